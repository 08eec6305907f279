//! One container: its bundle written, its runtime started, ended and cleaned up after.
//!
//! ```text
//! STATE/oci/ID/ owner        whose it is, and which runtime made it: written first (`leftovers`)
//!               config.json  `spec`
//!               state/       the runtime's own: no other program of this host's lists our containers, and none theirs here
//!               log          what it says of its own failures
//!               alive        locked (flock) while the runtime lives
//!               rootfs/      for gVisor, a root of the run's own (`skeleton`)
//! ```
//!
//! The runtime stays in the foreground, so that it ends with its container; it removes what it made. What it did not remove is
//! removed here. When the owner is gone, init ends, whether it had started the program or not, and so does a runtime from which
//! init inherits its liveness pipe; gVisor's is killed, and its kernel with it.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_confine::external::{ExternalProgram, FIRST_FD, SpawnOptions, spawn_with};
use cofferdam_confine::init_plan::PathRule;
use cofferdam_confine::{RunningInit, process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::cgroups;
use super::devices;
use super::gofer;
use super::leftovers::BundleOwner;
use super::rootfs::HeldRootfs;
use super::runtimes::{InstalledRuntime, Runtime, unified_has_controllers};
use super::skeleton::Skeleton;
use super::spec::{With, json};
use crate::backends::complaint::{Cause, cause};
use crate::backends::containers::owner;
use crate::backends::containers::owner::OwnerProcess;
use crate::backends::containers::spec::own as own_directory;
use crate::backends::containers::{ContainerEnd, ContainerSpec, Handed, Net, StartedContainer};
use crate::failure::{FailedStep, Failure};
use cofferdam_policy::text::escape;

/// How long a runtime may take to end after its container, or to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of what it says is read.
const SAID: u64 = 64 << 10;
/// What the name of a bundle begins with that is being removed.
pub(super) const GONE: &str = ".gone-";
/// A root in a bundle.
pub(super) const ROOT: &str = "rootfs";

/// How a runtime is called for one container.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    pub(super) installed: InstalledRuntime,
    pub(super) rootless: bool,
    pub(super) host_network: bool,
    /// The bundle.
    pub(super) bundle: PathBuf,
    pub(super) id: String,
}

impl Calls {
    fn argv(&self, log: &str, command: &[&str]) -> Result<Vec<CString>, Failure> {
        let path = |name: &str| self.bundle.join(name).into_os_string().into_encoded_bytes();
        let mut argv: Vec<Vec<u8>> = vec![self.installed.path.as_os_str().as_encoded_bytes().into()];
        argv.extend([b"--root".to_vec(), path("state"), b"--log".to_vec(), path(log)]);
        argv.extend([b"--log-format".to_vec(), b"json".to_vec()]);
        argv.extend(self.installed.options(self.rootless, self.host_network).into_iter().map(String::into_bytes));
        argv.extend(command.iter().map(|word| word.as_bytes().to_vec()));
        argv.into_iter()
            .map(|word| {
                CString::new(word).map_err(|_| Failure::new(FailedStep::Container, "a path holds a NUL character"))
            })
            .collect()
    }

    fn spawn(&self, argv: &[CString], start: &RuntimeStart<'_>) -> Result<RunningInit, Failure> {
        let argv: Vec<&CStr> = argv.iter().map(CString::as_c_str).collect();
        let cgroup = start.cgroup.and_then(|cgroup| cgroup.dir_fd());
        let tasks = match start.cgroup.map(|cgroup| cgroup.tasks_files()).transpose() {
            Ok(tasks) => tasks.unwrap_or_default(),
            Err(e) => return Err(Failure::new(FailedStep::Container, format!("cannot use the run's cgroup: {e}"))),
        };
        let tasks: Vec<BorrowedFd<'_>> = tasks.iter().map(AsFd::as_fd).collect();
        let foreign = ExternalProgram {
            program: argv[0],
            argv: &argv,
            envp: &[],
            stdio: start.stdio,
            fds: start.fds,
            ids: None,
            first_process: false,
            lifeline: start.lifeline,
            rlimits: start.rlimits,
            cgroup,
            cwd: c"/",
            tasks: &tasks,
        };
        let first_fd = if start.fds.is_empty() { FIRST_FD } else { 3 };
        let around = SpawnOptions {
            first_fd,
            hidden: self.installed.hidden(unified_has_controllers()),
            finishes: start.finishes,
        };
        spawn_with(&foreign, &around).map_err(|e| Failure::not_started(FailedStep::Container, &self.installed.path, &e))
    }

    /// Calls it and waits for the answer; what it said where it refused.
    pub(super) fn call(&self, command: &[&str]) -> Result<(), Failure> {
        let name = self.installed.runtime.name();
        let failed = |e: &dyn std::fmt::Display| Failure::new(FailedStep::Container, format!("cannot ask {name}: {e}"));
        let null = std::fs::File::open("/dev/null").map_err(|e| failed(&e))?;
        let mut options = std::fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let mut said = options.open(self.bundle.join("answer")).map_err(|e| failed(&e))?;
        let (lifeline, _held) = std::io::pipe().map_err(|e| failed(&e))?;
        let start = RuntimeStart {
            stdio: [null.as_fd(), said.as_fd(), said.as_fd()],
            fds: &[],
            lifeline: lifeline.as_fd(),
            rlimits: &[],
            cgroup: None,
            finishes: false,
        };
        let running = self.spawn(&self.argv("answers", command)?, &start)?;
        if !ended_within(&running, PATIENCE) {
            process::kill(running.pidfd.as_fd()).map_err(|e| failed(&e))?;
        }
        let (status, _) = process::wait_status(running.pidfd.as_fd()).map_err(|e| failed(&e))?;
        if status == 0 {
            return Ok(());
        }
        let mut text = Vec::new();
        let read = said.rewind().and_then(|()| (&said).take(SAID).read_to_end(&mut text));
        let words = if read.is_ok() { complaint(&text) } else { None };
        let words = words.unwrap_or_else(|| "it said nothing".into());
        Err(Failure::new(FailedStep::Container, format!("{name} {}: {words}", command.join(" "))))
    }

    /// Whether the runtime keeps anything of the container, such as because it was killed.
    pub(super) fn keeps_state(&self) -> bool {
        std::fs::read_dir(self.bundle.join("state")).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Has the runtime end and forget the container. What remains of it, in words: then its files stay, which say whose it is, and
    /// the next sweep tries again.
    pub(super) fn forget(&self) -> Vec<String> {
        if !self.keeps_state() {
            return Vec::new();
        }
        self.call(&["delete", "--force", &self.id]).err().map(|failure| failure.message).into_iter().collect()
    }

    /// Removes the bundle. Under another name first: what is half removed would not say any more whose it was.
    pub(super) fn discard(&self) -> Vec<String> {
        let gone = self.bundle.with_file_name(format!("{GONE}{}", self.id));
        let removed = std::fs::rename(&self.bundle, &gone).and_then(|()| std::fs::remove_dir_all(&gone));
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                vec![format!("cannot remove {}: {e}", self.bundle.display())]
            }
            _ => Vec::new(),
        }
    }

    /// Removes the container with everything in it, and its bundle.
    pub(super) fn remove(&self) -> Vec<String> {
        let unfinished = self.keeps_state();
        let mut problems = self.forget();
        if problems.is_empty() && unfinished {
            problems = cgroups::remove(&cgroups::own(), &self.id);
        }
        if problems.is_empty() { self.discard() } else { problems }
    }
}

/// With what a runtime is started.
struct RuntimeStart<'a> {
    stdio: [BorrowedFd<'a>; 3],
    fds: &'a [BorrowedFd<'a>],
    lifeline: BorrowedFd<'a>,
    rlimits: &'a [(u32, u64, u64)],
    cgroup: Option<&'a cofferdam_confine::cgroup::Cgroup>,
    /// [`SpawnOptions::finishes`].
    finishes: bool,
}

fn ended_within(running: &RunningInit, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&running.pidfd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// What a log or an answer complains of: the message of the last error in it, else its last line.
fn complaint(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let mut last = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match serde_json::from_str::<serde_json::Value>(line) {
            Ok(record) => {
                let is_error =
                    record["level"].as_str().is_none_or(|level| matches!(level, "error" | "fatal" | "ERROR"));
                let message = record["msg"].as_str().or_else(|| record["fields"]["message"].as_str());
                if let Some(message) = message.filter(|_| is_error) {
                    last = Some(message.to_owned());
                }
            }
            Err(_) => last = Some(line.trim().to_owned()),
        }
    }
    last.map(|words| escape(words.as_bytes()))
}

/// A container that runs, or has ended.
pub(super) struct RuntimeContainer {
    calls: Calls,
    running: RunningInit,
    /// What is `/` stays as long as it.
    _root: HeldRootfs,
    /// It is this directory of the host, with whatever is mounted below that.
    directory: Option<PathBuf>,
    skeleton: Option<Skeleton>,
    /// The run's own directory, here.
    own: PathBuf,
    reaped: Cell<bool>,
}

/// Starts a container.
///
/// # Errors
/// It cannot be written or started; nothing is left of it.
pub(super) fn start(
    calls: Calls,
    spec: &ContainerSpec,
    root: HeldRootfs,
    directory: Option<PathBuf>,
    skeleton: Option<Skeleton>,
    with: &With<'_>,
    handed: &Handed<'_>,
) -> Result<RuntimeContainer, Failure> {
    let inherits = calls.installed.runtime.inherits();
    let started = write(&calls, spec, skeleton.as_ref(), with).and_then(|()| {
        let mut command = vec!["run"];
        if calls.installed.runtime.creates_keyrings() {
            // It is started with an empty session keyring already, and a second one counts against the caller's quota of keys:
            // 200 by default, of which a quick series of runs needs all, because the kernel frees them late.
            command.push("--no-new-keyring");
        }
        command.push("--bundle");
        let bundle = calls
            .bundle
            .to_str()
            .ok_or_else(|| Failure::new(FailedStep::Container, "the bundle's path is not UTF-8"))?;
        command.push(bundle);
        if inherits {
            command.push("--preserve-fds=5");
        }
        command.push(&calls.id);
        let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
        let null = null.map_err(|e| Failure::new(FailedStep::Container, format!("cannot open /dev/null: {e}")))?;
        let alive = RuntimeLock::of(&calls.bundle).map_err(|e| {
            Failure::new(
                FailedStep::Container,
                format!("cannot lock {}: {e}", calls.bundle.join(RuntimeLock::NAME).display()),
            )
        })?;
        // Behind those that it hands on.
        let mut fds: Vec<BorrowedFd<'_>> = if inherits { handed.init.to_vec() } else { Vec::new() };
        if inherits {
            fds.push(alive.0.as_fd());
        }
        let start = RuntimeStart {
            // Where init comes by its descriptors through the rendezvous socket, the runtime has none of the run's.
            stdio: if inherits { handed.stdio } else { [null.as_fd(); 3] },
            fds: &fds,
            lifeline: handed.lifeline,
            rlimits: handed.rlimits,
            // Elsewhere init joins it itself; here the runtime is the sandbox.
            cgroup: handed.cgroup.filter(|_| calls.installed.runtime == Runtime::Runsc),
            finishes: inherits,
        };
        calls.spawn(&calls.argv("log", &command)?, &start)
    });
    match started {
        Ok(running) => {
            RuntimeLock::is(&calls.bundle, running.pid);
            let own = handed.directory.to_owned();
            Ok(RuntimeContainer { calls, running, _root: root, directory, skeleton, own, reaped: Cell::new(false) })
        }
        Err(failure) => {
            let problems = calls.remove();
            let message = [vec![failure.message], problems].concat().join("; ");
            Err(Failure { message, ..failure })
        }
    }
}

/// A file that is locked as long as a runtime has it open.
pub(super) struct RuntimeLock(std::fs::File);

impl RuntimeLock {
    const NAME: &str = "alive";

    /// Makes and locks it, for a runtime to inherit.
    fn of(bundle: &Path) -> std::io::Result<RuntimeLock> {
        let mut file = std::fs::OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600).open(bundle.join(RuntimeLock::NAME))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        Ok(RuntimeLock(file))
    }

    /// Notes which process has it: whoever finds it waiting for ever ends it.
    fn is(bundle: &Path, pid: i32) {
        if let OwnerProcess::Started(since) = owner::process(pid)
            && let Err(e) = std::fs::write(bundle.join(RuntimeLock::NAME), format!("{pid}:{since}"))
        {
            tracing::debug!("cannot note whose a bundle is: {e}"); // then it is only told
        }
    }

    /// Ends the runtime of a bundle that has it open still. Whether it was told which process that is.
    pub(super) fn end(bundle: &Path) -> std::io::Result<bool> {
        let text = std::fs::read_to_string(bundle.join(RuntimeLock::NAME))?;
        let numbers = text.split_once(':').and_then(|(pid, since)| Some((pid.parse().ok()?, since.parse().ok()?)));
        let Some((pid, since)) = numbers else { return Ok(false) };
        let Some(process) = rustix::process::Pid::from_raw(pid) else { return Ok(false) };
        // Held before it is looked at, so that it is no later one of the same number that is ended.
        let held = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty())?;
        if owner::process(pid) != OwnerProcess::Started(since) {
            return Ok(false);
        }
        rustix::process::pidfd_send_signal(&held, rustix::process::Signal::KILL)?;
        Ok(true)
    }

    /// Waits until the runtime of a bundle has ended. Whether it has; true where it has not begun.
    pub(super) fn ended_within(bundle: &Path, patience: Duration) -> bool {
        let Ok(file) = std::fs::File::open(bundle.join(RuntimeLock::NAME)) else { return true };
        let until = Instant::now() + patience;
        loop {
            match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared) {
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
                Ok(()) => return true,
            }
        }
    }
}

fn write(calls: &Calls, spec: &ContainerSpec, skeleton: Option<&Skeleton>, with: &With<'_>) -> Result<(), Failure> {
    let fail = |path: &Path, e: &dyn std::fmt::Display| {
        Failure::new(FailedStep::Container, format!("cannot write {}: {e}", path.display()))
    };
    let config =
        json(spec, with).map_err(|e| Failure::new(FailedStep::Container, format!("cannot write config.json: {e}")))?;
    let note = BundleOwner::new(spec, calls.installed.runtime).text(); // before, so that there is hardly a moment without it
    std::fs::DirBuilder::new().mode(0o700).create(&calls.bundle).map_err(|e| fail(&calls.bundle, &e))?;
    let put = |name: &str, contents: &[u8]| -> Result<(), Failure> {
        let path = calls.bundle.join(name);
        let mut file = std::fs::OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(contents)).map_err(|e| fail(&path, &e))
    };
    // Seen whole or not at all: who finds half of it could not tell whose it is.
    put("owner.new", &note)?;
    let owner = calls.bundle.join("owner");
    std::fs::rename(calls.bundle.join("owner.new"), &owner).map_err(|e| fail(&owner, &e))?;
    put("nothing", b"")?;
    use std::os::unix::fs::PermissionsExt;
    let nothing = calls.bundle.join("nothing");
    std::fs::set_permissions(&nothing, std::fs::Permissions::from_mode(0o0)).map_err(|e| fail(&nothing, &e))?;
    if let Some(skeleton) = skeleton {
        let root = calls.bundle.join(ROOT);
        let made = std::fs::DirBuilder::new().mode(0o755).create(&root).and_then(|()| skeleton.make(&root));
        made.map_err(|e| fail(&root, &e))?;
    }
    put("config.json", config.to_string().as_bytes())?;
    let state = calls.bundle.join("state");
    std::fs::DirBuilder::new().mode(0o700).create(&state).map_err(|e| fail(&state, &e))
}

impl RuntimeContainer {
    fn said(&self) -> Option<String> {
        let mut text = Vec::new();
        let file = std::fs::File::open(self.calls.bundle.join("log")).ok()?;
        file.take(SAID).read_to_end(&mut text).ok()?;
        complaint(&text)
    }

    fn reap(&self) {
        // ECHILD where whoever watched it has done so.
        if !self.reaped.replace(true)
            && let Err(e) = process::wait(self.running.pidfd.as_fd())
        {
            tracing::debug!("{} was reaped elsewhere: {e}", self.calls.installed.runtime.name());
        }
    }
}

impl StartedContainer for RuntimeContainer {
    fn running(&self) -> Option<&RunningInit> {
        Some(&self.running)
    }

    fn gave_up(&self) -> Option<Failure> {
        if !ended_within(&self.running, Duration::ZERO) {
            return None;
        }
        let name = self.calls.installed.runtime.name();
        let said = self.said().unwrap_or_else(|| "it said nothing".into());
        Some(
            Failure::new(FailedStep::Container, format!("{name} could not start the container: {said}"))
                .maybe_hint(hint(&said)),
        )
    }

    fn compare(&self, checked: &[PathRule]) -> Result<(), Failure> {
        if self.calls.installed.runtime != Runtime::Runsc {
            // Init compares the rest. It is in there, so that what is mounted from here on does not show.
            return self.directory.as_deref().map_or(Ok(()), devices::nothing_mounted_below);
        }
        let rules = match &self.skeleton {
            Some(skeleton) => skeleton.rules(checked).map_err(|at| gofer::replaced(&at.to_string_lossy()))?,
            None => checked.to_vec(),
        };
        gofer::compare(self.running.pid, &self.own, &own_directory(&self.calls.id), &rules)
    }

    fn kill(&self) -> Result<(), Failure> {
        if !self.calls.keeps_state() && ended_within(&self.running, Duration::ZERO) {
            return Ok(());
        }
        let Err(refusal) = self.calls.call(&["kill", &self.calls.id, "KILL"]) else { return Ok(()) };
        // There is none yet, or none any more: the runtime itself is what is left.
        if let Err(e) = process::kill(self.running.pidfd.as_fd()) {
            return Err(Failure::new(
                FailedStep::Container,
                format!("cannot end {}: {e}", self.calls.installed.runtime.name()),
            ));
        }
        let ended = ended_within(&self.running, PATIENCE);
        match self.calls.keeps_state() {
            true => self.calls.call(&["delete", "--force", &self.calls.id]),
            false if ended => Ok(()),
            false => Err(refusal),
        }
    }

    fn end(self: Box<Self>) -> ContainerEnd {
        let mut problems = Vec::new();
        // What holds its network or its processes up is none of the program's: init is dead or ends now.
        if !ended_within(&self.running, PATIENCE) {
            if let Err(failure) = self.kill() {
                problems.push(failure.message);
            }
            if !ended_within(&self.running, PATIENCE)
                && let Err(e) = process::kill(self.running.pidfd.as_fd())
            {
                problems.push(format!("cannot end {}: {e}", self.calls.installed.runtime.name()));
            }
        }
        self.reap();
        let said = self.said().unwrap_or_default();
        problems.extend(self.calls.remove());
        ContainerEnd { oom_killed: None, said, problems }
    }
}

/// What can be done about a refusal.
fn hint(said: &str) -> Option<&'static str> {
    match cause(said)? {
        Cause::HybridCgroups => Some("use another runtime: --backend oci:runc"),
        Cause::PermissionDenied | Cause::NotPermitted => Some(
            "as a user it takes user namespaces, and directories that this user can reach; `cofferdam doctor` shows more",
        ),
    }
}

/// Calls for a spec's container.
pub(super) fn calls(installed: &InstalledRuntime, state: &Path, spec: &ContainerSpec, rootless: bool) -> Calls {
    Calls {
        installed: installed.clone(),
        rootless,
        host_network: spec.network == Net::Host,
        bundle: super::bundles(state).join(&spec.id),
        id: spec.id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_the_last_error_and_shows_no_control_characters() {
        let log = b"{\"level\":\"warning\",\"msg\":\"w\"}\n{\"level\":\"error\",\"msg\":\"runc run failed: \\u001b[31mno\"}\n{\"level\":\"info\",\"msg\":\"i\"}\n";
        assert_eq!(complaint(log).unwrap(), "runc run failed: \\u{1b}[31mno");
        assert_eq!(complaint(b"plain words\n\n").unwrap(), "plain words");
        assert_eq!(complaint(b"{\"level\":\"info\",\"msg\":\"i\"}\n"), None);
        assert_eq!(complaint(b""), None);
    }

    #[test]
    fn a_runtime_lives_as_long_as_it_has_its_lock_open() {
        let bundle = tempfile::tempdir().unwrap();
        assert!(RuntimeLock::ended_within(bundle.path(), Duration::ZERO), "none has begun");
        let alive = RuntimeLock::of(bundle.path()).unwrap();
        assert!(!RuntimeLock::ended_within(bundle.path(), Duration::ZERO));
        let inherited = alive.0.try_clone().unwrap();
        drop(alive);
        assert!(!RuntimeLock::ended_within(bundle.path(), Duration::from_millis(20)), "what it inherited counts");
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(inherited);
        });
        assert!(RuntimeLock::ended_within(bundle.path(), Duration::from_secs(60)));
        ends.join().unwrap();
    }

    #[test]
    fn only_the_process_that_was_noted_is_ended() {
        let bundle = tempfile::tempdir().unwrap();
        drop(RuntimeLock::of(bundle.path()).unwrap());
        assert!(!RuntimeLock::end(bundle.path()).unwrap(), "nothing is noted");
        let mut sleeps = std::process::Command::new("sleep").arg("61.25").spawn().unwrap();
        let pid = i32::try_from(sleeps.id()).unwrap();
        std::fs::write(bundle.path().join(RuntimeLock::NAME), format!("{pid}:1")).unwrap();
        assert!(!RuntimeLock::end(bundle.path()).unwrap(), "another one of the same number");
        assert!(sleeps.try_wait().unwrap().is_none());
        RuntimeLock::is(bundle.path(), pid);
        assert!(RuntimeLock::end(bundle.path()).unwrap());
        assert!(!sleeps.wait().unwrap().success());
    }
}
