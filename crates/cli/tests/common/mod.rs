//! Shared by the tests of the command: running it, reading its outcome, and finding out what this host has.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

/// Debian's own interpreter: a version manager's may lie where the sandbox's user cannot go.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// The command, with an empty standard input.
pub(crate) fn cofferdam() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    command.stdin(Stdio::null());
    command
}

/// The same with SIGHUP, SIGINT and SIGQUIT as their default is, or ignored, whatever these tests were started with.
pub(crate) fn cofferdam_with_signals(way: &str) -> Command {
    let mut command = Command::new("env");
    command.arg(format!("--{way}-signal=HUP,INT,QUIT")).arg(env!("CARGO_BIN_EXE_cofferdam")).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn output<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    cofferdam().args(arguments).output().unwrap()
}

/// The exit code and what was said on standard error.
pub(crate) fn code_and_stderr<S: AsRef<OsStr>>(arguments: &[S]) -> (i32, String) {
    let output = output(arguments);
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The exit code and the one outcome that `--json` prints, which the arguments must ask for.
#[track_caller]
pub(crate) fn outcome<S: AsRef<OsStr>>(arguments: &[S]) -> (i32, Value) {
    outcome_of(&mut cofferdam(), arguments)
}

/// The same with a command made by the caller.
#[track_caller]
pub(crate) fn outcome_of<S: AsRef<OsStr>>(command: &mut Command, arguments: &[S]) -> (i32, Value) {
    let output = command.args(arguments).output().unwrap();
    (output.status.code().unwrap_or(-1), parse(&output))
}

/// The outcome in an output.
#[track_caller]
pub(crate) fn parse(output: &Output) -> Value {
    let (text, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{message}"))
}

/// The violations of an outcome as `(operation, object, field, evidence)`.
pub(crate) fn violations(outcome: &Value) -> Vec<(String, String, String, String)> {
    let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
    let list = outcome["violations"].as_array().unwrap();
    list.iter().map(|v| (text(v, "operation"), text(v, "object"), text(v, "field"), text(v, "evidence"))).collect()
}

/// A directory that the sandbox's own ids can read.
pub(crate) fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// A directory that the host view shows, which it does not where a temporary one is. Removed when the test ends.
pub(crate) struct Shown(pub PathBuf);

impl Drop for Shown {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Makes one. `None` where this user can make none, which is said, and a failure where every test has to run. The variable
/// names a directory that an unprivileged user can write.
pub(crate) fn shown_directory(name: &str) -> Option<Shown> {
    let parent = std::env::var_os("COFFERDAM_TEST_HOMES").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    let path = Path::new(&parent).join(format!("{name}-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir_all(&path) {
        let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
        assert!(!must, "{} cannot be made: {error}; COFFERDAM_TEST_HOMES names a directory", path.display());
        eprintln!("skipped: {} cannot be made: {error}", path.display());
        return None;
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(Shown(std::fs::canonicalize(&path).unwrap()))
}

/// Whether the tests run as user 0.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether `doctor` says that this mechanism can be used.
pub(crate) fn has(mechanism: &str) -> bool {
    static REPORT: OnceLock<Value> = OnceLock::new();
    let report = REPORT.get_or_init(|| parse(&output(&["doctor", "--json"])));
    let rows = report["mechanisms"].as_array().unwrap();
    let row = rows.iter().find(|r| r["name"] == mechanism).unwrap_or_else(|| panic!("doctor has no row {mechanism}"));
    row["available"].as_bool().unwrap()
}

/// Whether the test can go on; else says why not, which is a failure where the mechanism has to be there.
pub(crate) fn needs(mechanism: &str) -> bool {
    if has(mechanism) {
        return true;
    }
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some() && is_root();
    assert!(!must, "{mechanism} must work here");
    eprintln!("skipped: no {mechanism}, says doctor");
    false
}

/// Whether [`PYTHON`] is here; else says so, which is a failure where every test has to run.
pub(crate) fn needs_python() -> bool {
    let there = Path::new(PYTHON).exists();
    assert!(there || std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "{PYTHON} is missing");
    if !there {
        eprintln!("skipped: {PYTHON} is missing");
    }
    there
}

/// Whether bubblewrap is here; else says so, which is a failure where every test has to run.
pub(crate) fn needs_bubblewrap() -> bool {
    let there = Path::new("/usr/bin/bwrap").exists();
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
    assert!(there || !must, "bwrap is missing; apt-get install bubblewrap");
    if !there {
        eprintln!("skipped: bwrap is missing; apt-get install bubblewrap");
    }
    there
}

/// A text that no other process carries.
pub(crate) fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("cofferdam-mark-{}-{}-end", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processes other than our own children of the command line that have the marker in their arguments or variables.
pub(crate) fn carrying(marker: &str) -> Vec<i32> {
    let has = |path: &Path| {
        std::fs::read(path).is_ok_and(|text| text.windows(marker.len()).any(|window| window == marker.as_bytes()))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if pid != std::process::id() as i32
            && (has(&entry.path().join("cmdline")) || has(&entry.path().join("environ")))
        {
            found.push(pid);
        }
    }
    found
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn eventually(what: &str, patience: Duration, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// When this process started.
fn started() -> SystemTime {
    let number = |text: &str, n: usize| text.split_whitespace().nth(n).and_then(|word| word.parse::<u64>().ok());
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.rsplit_once(')').and_then(|(_, rest)| number(rest, 19)).unwrap();
    let system = std::fs::read_to_string("/proc/stat").unwrap();
    let boot = system.lines().find(|line| line.starts_with("btime")).and_then(|line| number(line, 1)).unwrap();
    // A hundred ticks in each second, on every machine (time(7)); the boot's second is rounded.
    SystemTime::UNIX_EPOCH + Duration::from_secs(boot + ticks / 100).saturating_sub(Duration::from_secs(2))
}

/// The cgroup directories whose owner is this process, a child of ours, in every hierarchy. An older one is of an earlier
/// process of that number.
pub(crate) fn cgroups_of(pid: u32) -> Vec<String> {
    fn walk(dir: &Path, part: &str, depth: usize, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let ours = || entry.metadata().and_then(|m| m.modified()).is_ok_and(|at| at >= started());
            if name.starts_with("cofferdam-") && name.contains(part) && ours() {
                found.push(entry.path().to_string_lossy().into_owned());
            }
            if depth > 0 {
                walk(&entry.path(), part, depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), &format!("-{pid}-"), 8, &mut found);
    found
}

/// Mounts of this process's namespace with this text in their line.
pub(crate) fn mounts_with(text: &str) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// A pseudo-terminal: our side and the command's.
pub(crate) fn pty() -> (OwnedFd, OwnedFd) {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    (ours, theirs)
}

/// The evaluator beside the command; `None` where only the command was built.
pub(crate) fn evaluator() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_cofferdam")).with_file_name("cofferdam-compile");
    if path.exists() {
        return Some(path);
    }
    let reason = "cofferdam-compile is not built; cargo build -p cofferdam-compile";
    assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "{reason}");
    eprintln!("skipped: {reason}");
    None
}
