//! The OCI runtimes themselves: where they are, which version they are, and what each of them can.
//!
//! | | crun | runc | youki | runsc |
//! |---|---|---|---|---|
//! | init's descriptors | inherited | inherited | inherited | by rendezvous |
//! | read-only all the way down a bind | `rro` | `rro` | `rro` | always: one server serves it all |
//! | its cgroups | made none | as root its own, beside the run's | as root its own, beside the run's | made none |
//! | reports system calls to init | yes | yes | yes | no |
//! | its own process is the sandbox | no | no | no | yes |
//!
//! youki's column is its documentation's and has been run by no test. Starts nothing but `--version`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_policy::BackendName;
use serde::{Deserialize, Serialize};

use crate::failure::{FailedStep, Failure};
use crate::host_programs;

/// An OCI runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Runtime {
    /// crun(1), in C.
    Crun,
    /// runc(8), Docker's.
    Runc,
    /// youki, in Rust.
    Youki,
    /// runsc, gVisor's: a kernel of its own in user space.
    Runsc,
}

impl Runtime {
    /// Every one, in the order in which `oci` looks for them; it never takes the last, whose boundary is of another kind.
    pub(crate) const ALL: [Runtime; 4] = [Runtime::Crun, Runtime::Runc, Runtime::Youki, Runtime::Runsc];

    /// Its program's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Runtime::Crun => "crun",
            Runtime::Runc => "runc",
            Runtime::Youki => "youki",
            Runtime::Runsc => "runsc",
        }
    }

    /// The environment variable that names its program.
    pub(crate) const fn variable(self) -> &'static str {
        match self {
            Runtime::Crun => "COFFERDAM_CRUN",
            Runtime::Runc => "COFFERDAM_RUNC",
            Runtime::Youki => "COFFERDAM_YOUKI",
            Runtime::Runsc => "COFFERDAM_RUNSC",
        }
    }

    /// Whether a process that it starts has the descriptors that were handed to the runtime.
    pub(crate) const fn inherits(self) -> bool {
        !matches!(self, Runtime::Runsc)
    }

    /// Whether it creates a session keyring for each container unless `--no-new-keyring` is given.
    pub(crate) const fn creates_keyrings(self) -> bool {
        matches!(self, Runtime::Crun | Runtime::Runc)
    }

    /// What stands behind its boundary, for reasons.
    pub(crate) const fn isolation(self) -> &'static str {
        match self {
            Runtime::Runsc => {
                "gVisor's kernel in user space, whose own processes count towards the limits: at least 64 MiB and 64 threads"
            }
            _ => "namespaces, mounts of its own, no capabilities",
        }
    }

    const fn install(self) -> &'static str {
        match self {
            Runtime::Crun => "apt-get install crun (or dnf, apk, pacman), or name it with COFFERDAM_CRUN=/path/to/crun",
            Runtime::Runc => "apt-get install runc (or dnf, apk, pacman), or name it with COFFERDAM_RUNC=/path/to/runc",
            Runtime::Youki => "see youki's releases, and name it with COFFERDAM_YOUKI=/path/to/youki",
            Runtime::Runsc => {
                "see gvisor.dev/docs/user_guide/install, or name it with COFFERDAM_RUNSC=/path/to/runsc; Debian has it as runsc"
            }
        }
    }
}

/// Where the runtimes' programs are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Programs {
    paths: [Option<PathBuf>; 4],
}

impl Programs {
    /// As this process's environment says: by its variable, else in [the directories of `PATH` that hold installed programs](host_programs).
    pub(crate) fn from_environment() -> Programs {
        let find = |runtime: Runtime| {
            let named = std::env::var_os(runtime.variable()).filter(|v| !v.is_empty()).map(PathBuf::from);
            named.or_else(|| host_programs::installed(runtime.name(), &SBIN))
        };
        Programs { paths: Runtime::ALL.map(find) }
    }

    /// The program of a runtime.
    pub(crate) fn path(&self, runtime: Runtime) -> Option<&Path> {
        self.paths[runtime as usize].as_deref()
    }

    /// The same with a runtime's program there.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn with(mut self, runtime: Runtime, path: PathBuf) -> Programs {
        self.paths[runtime as usize] = Some(path);
        self
    }
}

/// runc is in sbin, which is on few users' PATH.
const SBIN: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// A runtime that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InstalledRuntime {
    /// Which.
    pub runtime: Runtime,
    /// Absolute path.
    pub path: PathBuf,
    /// What it says of its version, such as `1.1.5+ds1`.
    pub version: String,
}

/// The runtimes that a backend may mean, best first.
pub(super) fn of(backend: BackendName) -> &'static [Runtime] {
    match backend {
        BackendName::Oci => &[Runtime::Crun, Runtime::Runc, Runtime::Youki],
        BackendName::OciCrun => &[Runtime::Crun],
        BackendName::OciRunc => &[Runtime::Runc],
        BackendName::OciYouki => &[Runtime::Youki],
        BackendName::OciRunsc => &[Runtime::Runsc],
        _ => &[],
    }
}

/// Oldest versions that are taken: before it runc has no read-only binds all the way down.
const OLDEST_RUNC: (u64, u64) = (1, 1);
/// From this one on runc mounts with the mode that it is told.
const GIVEN_MODES: (u64, u64) = (1, 2);
/// The oldest that has been tried.
const OLDEST_CRUN: (u64, u64) = (1, 8);
/// gVisor counts by days. Before it files of `/tmp` would outlive a run in the root, and `--host-uds` has no `open`.
const OLDEST_RUNSC: u64 = 20_221_201;
/// From this day on gVisor has `systrap`, which needs no ptrace and no /dev/kvm.
const SYSTRAP: u64 = 20_230_605;

impl InstalledRuntime {
    /// Looks for the first of these that is installed and asks it what it is.
    ///
    /// # Errors
    /// None is there, or the first that is cannot be run or is too old; the hint says what to do.
    pub(super) fn first(runtimes: &[Runtime], programs: &Programs) -> Result<InstalledRuntime, Failure> {
        let there = runtimes.iter().find(|runtime| programs.path(**runtime).is_some());
        match (there, runtimes.first()) {
            (Some(runtime), _) => InstalledRuntime::find(*runtime, programs),
            (None, Some(first)) => {
                let names = runtimes.iter().map(|runtime| runtime.name()).collect::<Vec<_>>().join(" nor ");
                let passed_over: String =
                    runtimes.iter().map(|runtime| host_programs::passed_over(runtime.name())).collect();
                let message = match runtimes {
                    [one] => format!("{} is not installed: none on PATH", one.name()),
                    _ => format!("no OCI runtime is installed: neither {names} on PATH"),
                };
                Err(Failure::new(FailedStep::Engine, format!("{message}{passed_over}")).hint(first.install()))
            }
            (None, None) => Err(Failure::new(FailedStep::Engine, "no OCI runtime is meant")
                .hint("name one: oci:crun, oci:runc, oci:runsc")),
        }
    }

    /// Looks for one and asks it what it is.
    ///
    /// # Errors
    /// As [`InstalledRuntime::first`].
    pub(super) fn find(runtime: Runtime, programs: &Programs) -> Result<InstalledRuntime, Failure> {
        let name = runtime.name();
        let Some(path) = programs.path(runtime) else {
            let message = format!("{name} is not installed: none on PATH{}", host_programs::passed_over(name));
            return Err(Failure::new(FailedStep::Engine, message).hint(runtime.install()));
        };
        let path = std::path::absolute(path).map_err(|e| {
            Failure::new(FailedStep::Engine, format!("cannot use {}: {e}", path.display()))
                .hint("name it by an absolute path")
        })?;
        let said = ask(&path).map_err(|e| {
            let hint = format!("reinstall it, or name another one with {}", runtime.variable());
            Failure::new(FailedStep::Engine, format!("cannot run {} --version: {e}", path.display())).hint(hint)
        })?;
        let Some(version) = version(runtime, &said) else {
            let hint = format!("name {name}'s own program with {}", runtime.variable());
            return Err(Failure::new(FailedStep::Engine, format!("{} does not say that it is {name}", path.display()))
                .hint(hint));
        };
        let installed = InstalledRuntime { runtime, path, version };
        installed.new_enough()?;
        Ok(installed)
    }

    fn new_enough(&self) -> Result<(), Failure> {
        let oldest = match self.runtime {
            Runtime::Crun => (self.numbers() < OLDEST_CRUN).then(|| "1.8".to_owned()),
            Runtime::Runc => (self.numbers() < OLDEST_RUNC).then(|| "1.1".to_owned()),
            Runtime::Youki => None,
            // A build of somebody's own says no day, and is taken to be new.
            Runtime::Runsc => self.day().filter(|day| *day < OLDEST_RUNSC).map(|_| format!("release-{OLDEST_RUNSC}")),
        };
        let Some(oldest) = oldest else { return Ok(()) };
        let message =
            format!("{} is {} {}, and {oldest} is needed", self.path.display(), self.runtime.name(), self.version);
        Err(Failure::new(FailedStep::Engine, message)
            .hint("upgrade it, or use another one: --backend oci:crun, oci:runc"))
    }

    /// The first two numbers of its version.
    fn numbers(&self) -> (u64, u64) {
        let mut parts = self.version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    /// The day of gVisor's release, as the number YYYYMMDD.
    fn day(&self) -> Option<u64> {
        let mut parts = self.version.split(|c: char| !c.is_ascii_digit());
        parts.find(|part| part.len() == 8).and_then(|part| part.parse().ok())
    }

    /// Whether it gives a file system in memory the mode of a directory that is there already, whatever it is told.
    pub(super) fn modes_from_below(&self) -> bool {
        self.runtime == Runtime::Runc && self.numbers() < GIVEN_MODES
    }

    /// Options that stand before the command, besides where its state and log are.
    pub(super) fn options(&self, rootless: bool, host_network: bool) -> Vec<String> {
        let mut options: Vec<&str> = Vec::new();
        match self.runtime {
            // Init moves itself into the run's own cgroup: one of the runtime's would only have to be cleaned up.
            Runtime::Crun => options.push("--cgroup-manager=disabled"),
            // They make cgroups as root whatever they are told, and remove them.
            Runtime::Runc | Runtime::Youki => {}
            Runtime::Runsc => {
                let systrap = self.day().is_none_or(|day| day >= SYSTRAP);
                options.push(if systrap { "--platform=systrap" } else { "--platform=ptrace" });
                options.push(if host_network { "--network=host" } else { "--network=none" });
                // Its process is born in the run's cgroup already. Only the rendezvous socket may be connected to, and nothing listens
                // on any other socket in what is bound but what the policy gave. No file of its own appears in the root.
                options.extend(["--ignore-cgroups", "--host-uds=open", "--overlay2=none"]);
                if rootless {
                    options.push("--rootless");
                }
            }
        }
        options.into_iter().map(str::to_owned).collect()
    }

    /// Directories of the host that it must not see: crun refuses to start where version 2 of cgroups has controllers beside
    /// those of version 1, although it is to use neither.
    pub(super) fn hidden(&self, unified_has_controllers: bool) -> Option<&'static std::ffi::CStr> {
        (self.runtime == Runtime::Crun && unified_has_controllers).then_some(c"/sys/fs/cgroup/unified")
    }
}

/// Whether this host's version 2 of cgroups has controllers beside those of version 1.
pub(crate) fn unified_has_controllers() -> bool {
    std::fs::read_to_string("/sys/fs/cgroup/unified/cgroup.controllers").is_ok_and(|text| !text.trim().is_empty())
}

/// How long `--version` may take.
const PATIENCE: Duration = Duration::from_secs(10);

fn ask(path: &Path) -> std::io::Result<String> {
    let mut command = Command::new(path);
    let mut child = command
        .arg("--version")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let begun = Instant::now();
    // It writes less than a pipe holds.
    while child.try_wait()?.is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The version of `runc version 1.1.5`, `crun version 1.8.1`, `youki version 0.5.0`, `runsc version release-20230801.0`.
fn version(runtime: Runtime, said: &str) -> Option<String> {
    let line = said.lines().next()?.trim();
    let rest = line.strip_prefix(runtime.name())?.strip_prefix(" version")?.trim_start_matches([':', ' ']);
    let version = rest.split_whitespace().next()?;
    let plain = version.len() <= 64 && version.bytes().all(|b| b.is_ascii_graphic());
    (plain && version.bytes().any(|b| b.is_ascii_digit())).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(runtime: Runtime, version: &str) -> InstalledRuntime {
        InstalledRuntime { runtime, path: "/usr/bin/it".into(), version: version.into() }
    }

    #[test]
    fn what_each_says_of_its_version_is_read() {
        for (runtime, said, expected) in [
            (Runtime::Runc, "runc version 1.1.5+ds1\ncommit: x\nspec: 1.0.2-dev\n", Some("1.1.5+ds1")),
            (Runtime::Crun, "crun version 1.8.1\ncommit: f8a\n", Some("1.8.1")),
            (Runtime::Youki, "youki version 0.5.1\ncommit: 0.5.1-0-abc\n", Some("0.5.1")),
            (Runtime::Youki, "youki version: 0.3.0\n", Some("0.3.0")),
            (Runtime::Runsc, "runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n", Some("0.0~20221219.0")),
            (Runtime::Runsc, "runsc version release-20240401.0\n", Some("release-20240401.0")),
            (Runtime::Runc, "crun version 1.8.1\n", None),
            (Runtime::Runc, "runc version \u{1b}[31m1.1\n", None),
            (Runtime::Runc, "", None),
        ] {
            assert_eq!(version(runtime, said).as_deref(), expected, "{said}");
        }
    }

    #[test]
    fn old_versions_are_refused_and_new_ones_taken() {
        for (runtime, old, new) in [
            (Runtime::Runc, "1.0.3", "1.1.0-rc.1"),
            (Runtime::Crun, "0.20", "1.14.1"),
            (Runtime::Runsc, "release-20220103.0", "0.0~20221219.0"),
        ] {
            let failure = installed(runtime, old).new_enough().unwrap_err();
            assert!(failure.message.contains("is needed") && failure.hint.is_some(), "{failure:?}");
            assert_eq!(installed(runtime, new).new_enough(), Ok(()));
        }
        assert_eq!(installed(Runtime::Runsc, "unknown").new_enough(), Ok(()));
    }

    #[test]
    fn options_are_those_of_the_runtime_and_its_day() {
        let old = installed(Runtime::Runsc, "0.0~20221219.0").options(true, false);
        assert!(old.contains(&"--platform=ptrace".into()) && old.contains(&"--rootless".into()), "{old:?}");
        assert!(old.contains(&"--network=none".into()) && old.contains(&"--overlay2=none".into()), "{old:?}");
        let new = installed(Runtime::Runsc, "release-20240401.0").options(false, true);
        assert!(new.contains(&"--platform=systrap".into()) && !new.contains(&"--rootless".into()), "{new:?}");
        assert!(new.contains(&"--network=host".into()), "{new:?}");
        assert_eq!(installed(Runtime::Crun, "1.8.1").options(true, false), ["--cgroup-manager=disabled"]);
        assert!(installed(Runtime::Runc, "1.1.5").options(true, false).is_empty());
    }

    #[test]
    fn only_crun_has_something_hidden_from_it_and_only_where_it_would_refuse() {
        assert!(installed(Runtime::Crun, "1.8.1").hidden(true).is_some());
        assert!(installed(Runtime::Crun, "1.8.1").hidden(false).is_none());
        assert!(installed(Runtime::Runc, "1.1.5").hidden(true).is_none());
    }

    #[test]
    fn what_is_missing_is_reported_with_a_hint() {
        let one = InstalledRuntime::first(&[Runtime::Youki], &Programs::default()).unwrap_err();
        assert_eq!((one.code, one.step.as_str()), (125, "engine"));
        assert!(one.message.starts_with("youki is not installed") && one.hint.unwrap().contains("COFFERDAM_YOUKI"));
        let any = InstalledRuntime::first(of(BackendName::Oci), &Programs::default()).unwrap_err();
        assert!(any.message.contains("neither crun nor runc nor youki"), "{}", any.message);
        assert!(any.hint.unwrap().contains("apt-get install crun"));
    }

    #[test]
    fn a_program_that_is_another_one_is_refused() {
        let programs = Programs::default().with(Runtime::Crun, "/bin/echo".into());
        let failure = InstalledRuntime::find(Runtime::Crun, &programs).unwrap_err();
        assert!(failure.message.contains("does not say that it is crun"), "{}", failure.message);
        let programs = Programs::default().with(Runtime::Crun, "/no/such/crun".into());
        let failure = InstalledRuntime::find(Runtime::Crun, &programs).unwrap_err();
        assert!(failure.message.contains("cannot run /no/such/crun --version"), "{}", failure.message);
    }
}
