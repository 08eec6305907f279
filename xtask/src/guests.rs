//! What runs in virtual machines as part of `cargo xtask test`: checks that need another kernel or another cgroup layout
//! than this machine's. `guest` boots them; this file says what is booted and what must come out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::Result;
use crate::guest::{self, GuestSpec, Kernel};
use crate::packages::{self, must_work};
use crate::parts::Counts;
use crate::shell::{self, cargo, step, uid, which};
use crate::workspace::{Workspace, executables};

/// The entry of the task table.
pub(crate) fn run(arguments: &[String]) -> Result {
    let alone = match arguments {
        [] => None,
        [only, name] if only == "--only" && ["cgroups", "walls", "guard", "command"].contains(&name.as_str()) => {
            Some(name.as_str())
        }
        other => {
            return Err(format!(
                "unknown arguments {other:?}; accepted: --only cgroups, --only command, --only walls, --only guard"
            ));
        }
    };
    packages::ensure(packages::GUESTS)?;
    let workspace = Workspace::read()?;
    let Some(alone) = alone else { return run_all(&workspace, &mut Counts::default()) };
    let kernel = ready(&workspace)?;
    // The whole workspace, so that nothing is built a second time with other features.
    let built = executables(cargo().args(["test", "--workspace", "--no-run"]))?;
    match alone {
        "guard" => boot("the guard", &guard(&workspace, &kernel, &built)?),
        "cgroups" => {
            let check = built.get("cgroup_guest_test").ok_or("crates/confine has no example cgroup_guest_test")?;
            boot("cgroups of version 2", &places(&workspace, &kernel, check)?)?;
            boot("systemd's scopes", &guest::systemd::scopes(&kernel.image, &workspace.root, check)?)
        }
        "command" => boot("the command under version 2", &command(&workspace, &kernel, &built)?),
        _ => boot("a command's walls", &restrictions(&workspace, &kernel, &built)?),
    }
}

/// Boots every guest, whatever one of them says. Where they cannot be booted, the reason is shown, or is an error under
/// `COFFERDAM_MUST_WORK=1`.
pub(crate) fn run_all(workspace: &Workspace, counts: &mut Counts) -> Result {
    let kernel = match ready(workspace) {
        Ok(kernel) => kernel,
        Err(reason) if must_work() => return Err(reason),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            counts.skipped += 1;
            return Ok(());
        }
    };
    // An example of crates/confine, which building the tests has built.
    let mut build = cargo();
    let built = executables(build.args(["test", "--workspace", "--no-run"]))?;
    let check = built.get("cgroup_guest_test").ok_or("crates/confine has no example cgroup_guest_test")?;
    let guests: [(&str, Result<GuestSpec>); 5] = [
        ("the command under version 2", command(workspace, &kernel, &built)),
        ("cgroups of version 2", places(workspace, &kernel, check)),
        ("a command on a kernel whose Landlock is old", restrictions(workspace, &kernel, &built)),
        ("the guard", guard(workspace, &kernel, &built)),
        // A host of systemd's, where an unprivileged user gets a delegated scope.
        ("systemd's scopes", guest::systemd::scopes(&kernel.image, &workspace.root, check)),
    ];
    // Two at a time: booting takes one processor, and much of what a guest checks is waiting.
    let guests = Mutex::new(guests.into_iter());
    let next = || guests.lock().map_err(|_| "a guest's thread panicked").map(|mut guests| guests.next());
    let results = std::thread::scope(|scope| {
        let boots = || -> Result<Vec<Result>> {
            let mut results = Vec::new();
            while let Some((name, spec)) = next()? {
                results.push(spec.and_then(|spec| boot(name, &spec)));
            }
            Ok(results)
        };
        let threads = [scope.spawn(boots), scope.spawn(boots)];
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err("a guest's thread panicked".into())))
    });
    let mut failures = Vec::new();
    for result in results.into_iter().flat_map(|of_one| of_one.unwrap_or_else(|failure| vec![Err(failure)])) {
        match result {
            Ok(()) => counts.passed += 1,
            Err(failure) => {
                counts.failed += 1;
                failures.push(failure);
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// The guest of version 2 with every controller, checked from each place where a process can sit.
fn places(workspace: &Workspace, kernel: &Kernel, check: &Path) -> Result<GuestSpec> {
    let mut spec = GuestSpec::new(&kernel.image, &["sh", "/cgroup.sh"])
        .program(check, "/cgroup_guest_test")?
        .program(Path::new("/usr/bin/setpriv"), "/usr/bin/setpriv")?
        .file(workspace.root.join("tests/guest/cgroup.sh"), "/cgroup.sh");
    spec.timeout = Duration::from_secs(360);
    Ok(spec)
}

/// The guest in which the command itself and part of the escape suite run: as their statically linked programs, with the
/// attacks compiled here, because the guest has no compiler.
fn command(workspace: &Workspace, kernel: &Kernel, built: &BTreeMap<String, PathBuf>) -> Result<GuestSpec> {
    let program = |name: &str| built.get(name).ok_or_else(|| format!("the build made no program `{name}`"));
    let attack = workspace.target.join("guest-attack");
    let sources = workspace.root.join("tests/escape/attacks");
    let listed = std::fs::read_dir(&sources).map_err(|error| format!("cannot read {}: {error}", sources.display()))?;
    let files =
        listed.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.extension().is_some_and(|e| e == "c"));
    shell::run(Command::new("gcc").args(["-static", "-O1", "-pthread", "-o"]).arg(&attack).args(files))?;
    let mut spec = GuestSpec::new(&kernel.image, &["sh", "/command.sh"])
        .program(program("cofferdam")?, "/bin/cofferdam")?
        .program(program("escape")?, "/escape")?
        .program(&attack, "/attack")?
        .program(Path::new("/usr/bin/setpriv"), "/usr/bin/setpriv")?
        .file(workspace.root.join("tests/guest/command.sh"), "/command.sh");
    spec.modules = vec![kernel.module("fs/overlayfs/overlay.ko")];
    spec.memory_mb = 2048;
    spec.timeout = Duration::from_secs(600);
    Ok(spec)
}

/// The guest in which crates/command is tested: Landlock of version 2, and no notification but the first kind.
fn restrictions(workspace: &Workspace, kernel: &Kernel, built: &BTreeMap<String, PathBuf>) -> Result<GuestSpec> {
    let mut spec = GuestSpec::new(&kernel.image, &["sh", "/walls.sh"])
        .program(Path::new("/usr/bin/setpriv"), "/usr/bin/setpriv")?
        .program(Path::new("/bin/true"), "/bin/true")?
        .program(Path::new("/bin/echo"), "/bin/echo")?
        .program(Path::new("/usr/bin/unshare"), "/usr/bin/unshare")?
        .file(workspace.root.join("tests/guest/walls.sh"), "/walls.sh");
    for name in ["restrictions", "metadata", "other_processes", "reads", "spawning", "refusals", "protected"] {
        let test = built.get(name).ok_or_else(|| format!("crates/command has no test `{name}`"))?;
        spec = spec.program(test, format!("/tests/{name}"))?;
    }
    spec.modules = vec![kernel.module("fs/overlayfs/overlay.ko")];
    spec.timeout = Duration::from_secs(450);
    Ok(spec)
}

/// The guest in which the guard is tested: the same kernel, with the programs that its tests execute.
fn guard(workspace: &Workspace, kernel: &Kernel, built: &BTreeMap<String, PathBuf>) -> Result<GuestSpec> {
    const PROGRAMS: &[&str] = &[
        "awk", "busybox", "cat", "cp", "dash", "dd", "echo", "env", "find", "git", "grep", "head", "id", "ls", "nice",
        "nl", "sed", "setpriv", "setsid", "sleep", "tac", "tar", "timeout", "touch", "true", "xargs", "yes",
    ];
    let mut spec = GuestSpec::new(&kernel.image, &["sh", "/guard.sh"])
        .file(workspace.root.join("tests/guest/guard.sh"), "/guard.sh");
    for name in PROGRAMS {
        let path = format!("/usr/bin/{name}");
        spec = spec.program(Path::new(&path), path.clone())?;
    }
    for (name, place) in [("guard", "/tests/guard"), ("cofferdam_guard, its own tests", "/tests/guard-units")] {
        let test = built.get(name).ok_or_else(|| format!("crates/guard has no test `{name}`"))?;
        spec = spec.program(test, place)?;
    }
    spec.modules = vec![kernel.module("fs/overlayfs/overlay.ko")];
    spec.memory_mb = 2048;
    spec.timeout = Duration::from_secs(450);
    Ok(spec)
}

fn ready(workspace: &Workspace) -> Result<Kernel> {
    for (program, package) in [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static")] {
        if which(program).is_none() {
            return Err(format!("guests need {program}\nhint: apt-get install {package}"));
        }
    }
    let directory = workspace.target.join("guest-kernel");
    guest::provide(&directory).or_else(|error| {
        // The lists of packages may be missing or old.
        if uid() != Some(0) || which("apt-get").is_none() {
            return Err(error);
        }
        shell::run(std::process::Command::new("apt-get").args(["update", "-qq"]))?;
        guest::provide(&directory)
    })
}

fn boot(name: &str, spec: &GuestSpec) -> Result {
    let begun = Instant::now();
    let result = guest::run(spec);
    step(&format!("guest: {name}, {} s", begun.elapsed().as_secs()));
    let (code, text) = result?;
    eprint!("{text}");
    if code == 0 { Ok(()) } else { Err(format!("guest: {name}: ended with {code}{}", failures(&text))) }
}

/// What a guest's output says of its failures, for the closing lines of the whole task: a guest's script writes `FAILED:`,
/// and a test runner explains its failures between `failures:` and its summary. Without either, the last lines.
fn failures(output: &str) -> String {
    const MOST: usize = 60;
    let mut explained = false;
    let said: Vec<&str> = output
        .lines()
        .filter(|line| {
            explained = (explained || *line == "failures:") && !line.starts_with("test result:");
            explained || line.contains("FAILED") || line.contains("panicked at")
        })
        .collect();
    let all: Vec<&str> = output.lines().collect();
    let shown = if said.is_empty() { &all[all.len().saturating_sub(MOST)..] } else { &said[..said.len().min(MOST)] };
    shown.iter().map(|line| format!("\n    {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::failures;

    #[test]
    fn a_guest_that_fails_says_which_check_failed() {
        let output = "ok: one\nFAILED: two: no 3 in: 4\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b ----\nno pid\n\n\
                      test result: FAILED. 1 passed; 1 failed\nroot: 2 held\n";
        let shown = failures(output);
        assert_eq!(
            shown.split("\n    ").filter(|line| !line.is_empty()).collect::<Vec<_>>(),
            [
                "FAILED: two: no 3 in: 4",
                "test b ... FAILED",
                "failures:",
                "---- b ----",
                "no pid",
                "test result: FAILED. 1 passed; 1 failed"
            ]
        );
        assert_eq!(failures("one\ntwo\n"), "\n    one\n    two");
    }
}
