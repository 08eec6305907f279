//! What is left when the command is killed at any moment: no process at once, no mount, and no cgroup after the next start.
//!
//! The test process is the one that orphans fall to, so that init is found even before it carries anything of the run.

mod common;

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{carrying, cgroups_of, cofferdam, marker, mounts_with, pty};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

/// How long the processes of a sandbox may live on after its owner.
const AT_ONCE: Duration = Duration::from_secs(2);

/// One test at a time: whatever is a child of this process belongs to it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    guard
}

/// Reaps everything that has fallen to this process; true when there is nothing left to reap.
fn childless() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(_) => return true, // ECHILD
        }
    }
}

/// What has fallen to this process, by the beginning of its status file.
fn children() -> Vec<String> {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let me = std::process::id();
    let tasks = std::fs::read_dir(format!("/proc/{me}/task")).unwrap().flatten();
    let lists: String = tasks.map(|t| read(t.path().join("children").to_string_lossy().into_owned())).collect();
    let name = |pid: &str| read(format!("/proc/{pid}/status")).lines().take(3).collect::<Vec<_>>().join(" ");
    lists.split_whitespace().map(|pid| format!("{pid} {}", name(pid))).collect()
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Kills the command after the delay and checks what is left of its sandbox.
#[track_caller]
fn kill_after(child: Child, delay: Duration, mark: &str) {
    let pid = child.id();
    std::thread::sleep(delay);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    let killed = Instant::now();
    while !childless() {
        assert!(killed.elapsed() < AT_ONCE, "killed after {delay:?}, these live on: {:?}", children());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(carrying(mark), [0; 0], "killed after {delay:?}, looked {:?} later", killed.elapsed());
    assert_eq!(mounts_with("cofferdam"), [""; 0]);
    // What remains in the kernel is removed by the next run.
    assert!(cofferdam().args(["run", "--", "true"]).status().unwrap().success());
    let left = cgroups_of(pid);
    assert!(left.is_empty(), "killed after {delay:?}: {left:?}");
}

const CODE: &str = "setsid -f sleep 300; (trap '' 1 2 15; sleep 300) & (sleep 300 & kill -STOP $!); sleep 300";

fn command(options: &[&str], mark: &str) -> Command {
    let mut command = cofferdam();
    command.args(["run", "-e", &format!("MARK={mark}")]).args(options).args(["--", "sh", "-c", CODE]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn killed_at_any_moment_nothing_of_it_runs_on() {
    let _alone = alone();
    let mut dice = Dice(1);
    for round in 0..60 {
        let mark = marker();
        // Most during setup, which takes a few milliseconds, and some while the program runs.
        let delay = match round {
            0..50 => Duration::from_micros(dice.below(30_000)),
            _ => Duration::from_millis(30 + dice.below(300)),
        };
        let options: &[&str] = match round % 3 {
            0 => &[],
            1 => &["-v", "/usr/share:/usr/share:cow", "--deny", "/no/such/name", "--trace"],
            _ => &["--no-spawn", "--network", "loopback"],
        };
        kill_after(command(options, &mark).spawn().unwrap(), delay, &mark);
    }
}

#[test]
fn killed_without_namespaces_nothing_of_it_runs_on() {
    let _alone = alone();
    let mut dice = Dice(2);
    let options = ["--backend", "landlock", "--best-effort=filesystem,process,limits", "--root", "minimal", "-w", "/"];
    for round in 0..40 {
        let mark = marker();
        let delay = match round {
            0..30 => Duration::from_micros(dice.below(20_000)),
            _ => Duration::from_millis(20 + dice.below(200)),
        };
        let options = if round % 4 == 3 { [&options[..], &["--no-spawn"]].concat() } else { options.to_vec() };
        kill_after(command(&options, &mark).spawn().unwrap(), delay, &mark);
    }
}

#[test]
fn killed_with_a_terminal_nothing_of_it_runs_on() {
    let _alone = alone();
    let mut dice = Dice(3);
    for round in 0..20 {
        let mark = marker();
        let (ours, theirs) = pty();
        let end = || Stdio::from(theirs.as_fd().try_clone_to_owned().unwrap());
        let mut command = command(&["-t"], &mark);
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        drop(command);
        let delay = if round < 15 { dice.below(30_000) } else { 30_000 + dice.below(200_000) };
        kill_after(child, Duration::from_micros(delay), &mark);
        drop(ours);
    }
}

#[test]
fn init_killed_from_outside_ends_the_run_and_all_of_it() {
    let _alone = alone();
    let mark = marker();
    let mut child = cofferdam()
        .args(["run", "-q", "-e", &format!("MARK={mark}"), "--", "sh", "-c", "sleep 60 & echo up; sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    // Init says that the program runs a moment after it does.
    std::thread::sleep(Duration::from_millis(200));
    let pid = child.id();
    let init = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    kill_process(Pid::from_raw(init.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(137));
    assert_eq!(carrying(&mark), [0; 0]);
    assert_eq!(cgroups_of(pid), [""; 0]);
}

#[test]
fn a_hundred_runs_leave_no_descriptor_process_mount_or_cgroup() {
    let _alone = alone();
    let mark = marker();
    let mut pids = Vec::new();
    for _ in 0..25 {
        let children: Vec<Child> = (0..4)
            .map(|_| cofferdam().args(["run", "-e", &format!("MARK={mark}"), "--", "true"]).spawn().unwrap())
            .collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
            pids.push(child.id());
        }
    }
    assert!(childless());
    assert_eq!(carrying(&mark), [0; 0]);
    assert_eq!(mounts_with("cofferdam"), [""; 0]);
    let left: Vec<String> = pids.into_iter().flat_map(cgroups_of).collect();
    assert_eq!(left, [""; 0]);
}
