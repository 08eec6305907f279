//! Programs that are started before their runs: each is used once, by a run that it is for, or by none.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam_engine::{Cancel, Early, Ending, Engine, Input, Io, Outcome, Output};
use cofferdam_policy::{Access, BackendName, Field, Mount, Policy, Stdin};

/// These tests count this process's descriptors and children, so they take turns.
static TURN: Mutex<()> = Mutex::new(());
/// Longer than any of them waits.
const LONG: Duration = Duration::from_secs(60);

/// A shell that reads all of its input, and then evaluates it.
fn policy() -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = ["sh", "-c", "code=$(cat); eval \"$code\""].map(String::from).to_vec();
    policy.command.stdin = Stdin::Caller;
    policy
}

fn early(policy: &Policy, life: Duration) -> Early {
    Early::new(Engine::probe().prepare(policy).unwrap_or_else(|e| panic!("{e:?}")), life).expect("it can be started")
}

fn io(code: &str) -> Io {
    Io { input: Input::Bytes(code.as_bytes().to_vec()), ..Io::default() }
}

fn children() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = tasks.map(|t| std::fs::read_to_string(t.path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Starts one, and waits until its program is there: init has a child then.
fn started(early: &Early) {
    early.start();
    let begun = Instant::now();
    loop {
        let list = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        if children().iter().any(|init| !list(init).trim().is_empty()) {
            std::thread::sleep(Duration::from_millis(100)); // it reads its input by then
            return;
        }
        assert!(begun.elapsed() < LONG, "nothing was started");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until there are no children.
fn nothing_is_left() {
    let begun = Instant::now();
    while !children().is_empty() {
        assert!(begun.elapsed() < LONG, "{:?} are left", children());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn run(early: &Early, code: &str) -> Option<Outcome> {
    early.run(&mut io(code))
}

#[test]
fn each_serves_one_run_and_ends_with_it() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    assert!(Engine::probe().prepare(&policy()).unwrap().run(io("true")).success); // init's program stays open from here on
    let before = descriptors();
    let early = early(&policy(), LONG);
    assert!(run(&early, "echo nobody asked").is_none(), "none was started");
    let mut ids = Vec::new();
    for _ in 0..4 {
        started(&early);
        // What one leaves the next does not find.
        let o =
            run(&early, "cat /proc/sys/kernel/random/boot_id; ls /tmp; touch /tmp/secret; exit 6").expect("it waits");
        assert_eq!((o.outcome, o.exit_code), (Ending::Exited, Some(6)), "{o:?}");
        assert!(o.error.is_none() && o.backend == "jail" && !o.stdout.contains("secret"), "{o:?}");
        assert!(o.memory_used_bytes.is_some() && o.cpu_time_seconds.is_some_and(|cpu| cpu > 0.0), "{o:?}");
        ids.push(o.stdout);
        assert!(run(&early, "echo again").is_none(), "it serves a second run");
        nothing_is_left();
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "each has an id of its own");
    started(&early);
    drop(early);
    assert!(children().is_empty(), "dropping ends one that waits");
    assert_eq!(descriptors(), before);
}

#[test]
fn a_run_that_comes_while_it_is_started_waits_for_it() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let early = early(&policy(), LONG);
    for _ in 0..5 {
        early.start();
        let o = run(&early, "echo ran").expect("it is on its way");
        assert_eq!((o.success, o.stdout.as_str()), (true, "ran\n"), "{o:?}");
    }
}

#[test]
fn of_two_runs_one_gets_it() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let early = early(&policy(), LONG);
    for waits in [true, false] {
        if waits {
            started(&early);
        } else {
            early.start();
        }
        let served: Vec<Option<Outcome>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| run(&early, "sleep 0.2; echo ran"))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let served: Vec<Outcome> = served.into_iter().flatten().collect();
        assert_eq!(served.len(), 1, "{served:?}");
        assert_eq!(served[0].stdout, "ran\n");
    }
}

#[test]
fn wall_time_and_what_is_told_of_it_begin_with_the_run() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let mut policy = policy();
    policy.limits.wall_ms = 1000;
    let early = early(&policy, LONG);
    started(&early);
    std::thread::sleep(Duration::from_millis(1500)); // longer than the limit, which does not count it
    let o = run(&early, "sleep 0.3; echo ran").expect("it waits");
    assert_eq!((o.outcome, o.stdout.as_str()), (Ending::Exited, "ran\n"), "{o:?}");
    assert!((300.0..900.0).contains(&o.execution_time_ms) && o.setup_time_ms < 500.0, "{o:?}");
    started(&early);
    let begun = Instant::now();
    let o = run(&early, "echo begun; sleep 60 & sleep 60").expect("it waits");
    assert_eq!((o.outcome, o.limit, o.stdout.as_str()), (Ending::TimedOut, Some(Field::WallTime), "begun\n"), "{o:?}");
    assert!((1000.0..1900.0).contains(&o.execution_time_ms), "{o:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    nothing_is_left();
}

#[test]
fn limits_cancelling_and_streams_are_those_of_any_run() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let mut policy = policy();
    (policy.limits.memory_mb, policy.limits.processes, policy.limits.cpu_seconds) = (64, 20, 1);
    policy.limits.output_bytes = 1000;
    let early = early(&policy, LONG);
    let served = |code: &str| {
        started(&early);
        run(&early, code).expect("it waits")
    };
    let o = served("head -c 200000000 /dev/zero | tail -c 190000000");
    if o.enforcement[&Field::Memory].strength == cofferdam_engine::Strength::Full {
        assert_eq!((o.outcome, o.limit), (Ending::LimitExceeded, Some(Field::Memory)), "{o:?}");
    }
    let o = served("while :; do :; done");
    assert_eq!((o.outcome, o.limit), (Ending::LimitExceeded, Some(Field::CpuTime)), "{o:?}");
    let o = served("i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i + 1)); done; echo all");
    assert!(!o.stdout.contains("all") && o.pid_count.is_none_or(|count| count <= 21), "{o:?}");
    let o = served("head -c 5000 /dev/zero; echo error >&2");
    assert_eq!((o.stdout.len(), o.truncated.stdout, o.stderr.as_str()), (1000, true, "error\n"), "{o:?}");
    let o = served("unshare -U true && echo escaped");
    assert!(!o.success && !o.stdout.contains("escaped"), "{o:?}");
    // Cancelled while it runs, output as it comes.
    started(&early);
    let cancel = Cancel::default();
    let (theirs, seen) = (cancel.clone(), Arc::new(Mutex::new(Vec::new())));
    let into = Arc::clone(&seen);
    let output = Output::Stream(Box::new(move |_, bytes| {
        into.lock().unwrap().extend_from_slice(bytes);
        theirs.cancel();
        Ok(bytes.len())
    }));
    let begun = Instant::now();
    let mut io = Io { output, cancel, ..io("echo begun; sleep 60 & sleep 60") };
    let o = early.run(&mut io).expect("it waits");
    assert_eq!((o.outcome, o.signal), (Ending::Signalled, Some(15)), "{o:?}");
    assert_eq!(seen.lock().unwrap().as_slice(), b"begun\n");
    assert!(begun.elapsed() < Duration::from_secs(10));
    nothing_is_left();
}

#[test]
fn an_unused_or_ended_program_is_not_used() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let early = early(&policy(), Duration::from_millis(400));
    started(&early);
    nothing_is_left();
    assert!(run(&early, "echo late").is_none());
    started(&early);
    let init = children()[0];
    let pid = rustix::process::Pid::from_raw(init).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let begun = Instant::now();
    while !std::fs::read_to_string(format!("/proc/{init}/stat")).unwrap().contains(") Z") {
        assert!(begun.elapsed() < LONG, "it lives on");
    }
    assert!(run(&early, "echo dead").is_none());
    nothing_is_left();
    started(&early);
    assert!(run(&early, "echo alive").is_some_and(|o| o.stdout == "alive\n"), "the next one is as good as any");
}

fn bound(dir: &Path, access: Access) -> Policy {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let at = dir.to_str().unwrap().to_owned();
    let mut policy = policy();
    let mount = |source: String, target: &str| Mount::Bind {
        source,
        target: target.into(),
        access,
        exec: true,
        optional: false,
    };
    policy.filesystem.mounts.push(mount(at.clone(), "/work"));
    policy.filesystem.mounts.push(mount(format!("{at}/file"), "/file"));
    policy.command.cwd = Some("/work".into());
    policy
}

fn replace(dir: &Path, name: &str, text: &str) {
    let new = dir.join("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(new, dir.join(name)).unwrap();
}

/// A directory that the sandbox's user can come to, whoever makes it.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    replace(dir.path(), "file", "first\n");
    dir
}

#[test]
fn one_started_before_a_file_was_replaced_does_not_show_the_old_one() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let dir = place();
    let policy = bound(dir.path(), Access::ReadOnly);
    let early = early(&policy, LONG);
    started(&early);
    // Its twin: nothing has changed.
    assert_eq!(run(&early, "cat /file file").expect("it waits").stdout, "first\nfirst\n");
    started(&early);
    replace(dir.path(), "file", "second\n");
    assert!(run(&early, "cat /file file").is_none(), "it shows the file from before");
    nothing_is_left();
    started(&early);
    assert_eq!(run(&early, "cat /file file").expect("it waits").stdout, "second\nsecond\n");
    // The mount itself, by another directory in its place.
    started(&early);
    let other = place();
    std::fs::rename(dir.path(), dir.path().with_extension("old")).unwrap();
    std::fs::rename(other.path(), dir.path()).unwrap();
    assert!(run(&early, "cat file").is_none(), "it shows the directory from before");
    std::fs::remove_dir_all(dir.path().with_extension("old")).unwrap();
}

#[test]
fn one_whose_program_was_replaced_is_not_used() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let dir = place();
    let program = |says: &str| format!("#!/bin/sh\necho {says}; cat >/dev/null\n");
    replace(dir.path(), "program", &program("old"));
    let mut policy = bound(dir.path(), Access::ReadOnly);
    policy.command.argv = vec!["/work/program".into()];
    let early = early(&policy, LONG);
    started(&early);
    assert_eq!(run(&early, "").expect("it waits").stdout, "old\n");
    started(&early);
    replace(dir.path(), "program", &program("new"));
    assert!(run(&early, "").is_none());
    started(&early);
    assert_eq!(run(&early, "").expect("it waits").stdout, "new\n");
}

#[test]
fn what_each_run_has_to_look_at_the_host_for_is_not_started_early() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    // Copies of a directory tell what a run has changed.
    let dir = place();
    let mut layered = bound(dir.path(), Access::CopyOnWrite);
    layered.filesystem.mounts.pop();
    let early = early(&layered, LONG);
    early.start();
    assert!(run(&early, "echo x").is_none());
    nothing_is_left();
    // And where the input is the policy's own, or another backend runs it.
    let mut own = policy();
    own.command.stdin = Stdin::Text("echo own".into());
    let mut landlock = policy();
    landlock.backend = BackendName::Landlock;
    landlock.enforcement.best_effort = Field::ALL.iter().copied().collect();
    // In a volume that can be written there may be repositories, which are looked at before anything runs.
    let mut writable = bound(dir.path(), Access::ReadWrite);
    writable.filesystem.protected = vec![".git/config".into()];
    for policy in [own, landlock, writable] {
        assert!(Early::new(Engine::probe().prepare(&policy).unwrap(), LONG).is_none());
    }
    let mut arguments = io("echo x");
    arguments.arguments.push("x".into());
    let early = self::early(&policy(), LONG);
    started(&early);
    assert!(early.run(&mut arguments).is_none() && arguments.arguments == ["x"], "what waits has its arguments");
    assert!(run(&early, "echo x").is_some(), "and still does");
}
