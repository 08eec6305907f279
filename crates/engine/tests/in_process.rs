//! Runs inside an embedding program: streams, cancelling, several threads, and what is left of a run in the caller.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam_engine::{Cancel, Ending, Engine, Input, Io, Outcome, Output, Prepared, Stream, Terminal};
use cofferdam_policy::{BackendName, Field, NetworkMode, Policy, Root, Stdin};

/// These tests count this process's descriptors and children, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn policy(argv: &[&str]) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = argv.iter().map(|a| (*a).to_owned()).collect();
    policy
}

fn prepared(policy: &Policy) -> Prepared {
    Engine::probe().prepare(policy).unwrap_or_else(|e| panic!("{e:?}"))
}

fn run(argv: &[&str], io: Io) -> Outcome {
    prepared(&policy(argv)).run(io)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn children() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.map(|t| std::fs::read_to_string(t.path().join("children")).unwrap_or_default()).collect()
}

#[test]
fn captured_output_comes_back_whole_and_apart() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let o = run(&["sh", "-c", "echo out; echo err >&2; exit 5"], Io::default());
    assert_eq!((o.outcome, o.exit_code, o.success), (Ending::Exited, Some(5), false), "{o:?}");
    assert_eq!((o.stdout.as_str(), o.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn the_size_of_the_terminal_is_asked_for_in_every_run_and_kept_until_there_is_one() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    // An embedding program looks at its signals where it is asked, also in a run without a terminal.
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let resize = Box::new(move || {
        *count.lock().unwrap() += 1;
        None
    });
    assert!(run(&["sleep", "0.5"], Io { resize: Some(resize), ..Io::default() }).success);
    assert!(*asked.lock().unwrap() >= 3, "{asked:?}");
    // A change that comes first of all is not lost.
    let mut change = Some((40, 123));
    let terminal = Some(Terminal { rows: 10, columns: 20 });
    let io = Io { terminal, resize: Some(Box::new(move || change.take())), ..Io::default() };
    let mut policy = policy(&["sh", "-c", "sleep 0.3; stty size"]);
    policy.command.stdin = Stdin::Caller;
    let o = prepared(&policy).run(io);
    assert_eq!((o.success, o.stdout.trim()), (true, "40 123"), "{o:?}");
}

#[test]
fn a_network_from_which_sockets_can_be_handed_on_is_not_used_again() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let mut policy = policy(&["true"]);
    policy.process.unix_sockets = true;
    let prepared = prepared(&policy);
    assert!(prepared.run(Io::default()).success);
    let before = descriptors();
    for _ in 0..3 {
        assert!(prepared.run(Io::default()).success);
    }
    assert_eq!(descriptors(), before, "an idle namespace is kept");
}

#[test]
fn a_stream_is_handed_over_as_it_comes_and_holds_the_program_back() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let seen = Arc::new(Mutex::new((0usize, Vec::new())));
    let into = Arc::clone(&seen);
    let begun = Instant::now();
    let output = Output::Stream(Box::new(move |stream, bytes| {
        let mut seen = into.lock().unwrap();
        if stream == Stream::Stderr {
            seen.1.extend_from_slice(bytes);
        } else {
            seen.0 += bytes.len();
            // 2 MiB at no more than 64 KiB each: at least 32 of these.
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(bytes.len())
    }));
    let code = "s=$(date +%s%N); head -c 2097152 /dev/zero; e=$(date +%s%N); echo $(( (e - s) / 1000000 )) >&2";
    let o = run(&["sh", "-c", code], Io { output, ..Io::default() });
    assert_eq!(o.outcome, Ending::Exited, "{o:?}");
    assert!(o.stdout.is_empty() && o.stderr.is_empty(), "what is streamed is not captured");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.0, 2 << 20);
    let waited: u64 = String::from_utf8_lossy(&seen.1).trim().parse().unwrap();
    assert!(waited > 300, "the program was held back for {waited} ms of {:?}", begun.elapsed());
}

#[test]
fn a_stream_that_fails_breaks_the_programs_pipe_and_not_the_run() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let output = Output::Stream(Box::new(|_, _| Err(std::io::ErrorKind::BrokenPipe.into())));
    let begun = Instant::now();
    let o = run(&["sh", "-c", "yes; exit 3"], Io { output, ..Io::default() });
    assert_eq!((o.outcome, o.exit_code), (Ending::Exited, Some(3)), "{o:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_cancelled_run_is_dead_when_the_call_returns() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let cancel = Cancel::default();
    let io = Io { cancel: cancel.clone(), ..Io::default() };
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        cancel.cancel();
    });
    let begun = Instant::now();
    let o = run(&["sh", "-c", "trap '' TERM INT; sleep 50 & sleep 50"], io);
    canceller.join().unwrap();
    assert_eq!(o.outcome, Ending::Signalled, "{o:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(children(), "");
}

#[test]
fn input_comes_from_bytes_or_a_descriptor_and_only_when_the_policy_says_so() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let mut asks = policy(&["cat"]);
    asks.command.stdin = Stdin::Caller;
    let long = "0123456789abcdef".repeat(20_000);
    let o = prepared(&asks).run(Io { input: Input::Bytes(long.clone().into_bytes()), ..Io::default() });
    assert!(o.stdout == long, "{} bytes came back", o.stdout.len());
    let (reader, mut writer) = std::io::pipe().unwrap();
    let feeder = std::thread::spawn(move || writer.write_all(b"by descriptor").unwrap());
    let o = prepared(&asks).run(Io { input: Input::Fd(reader.into()), ..Io::default() });
    feeder.join().unwrap();
    assert_eq!(o.stdout, "by descriptor");
    let o = run(&["cat"], Io { input: Input::Bytes(b"not asked for".to_vec()), ..Io::default() });
    assert_eq!((o.stdout.as_str(), o.exit_code), ("", Some(0)));
}

#[test]
fn a_prepared_policy_runs_often_from_many_threads_and_leaves_nothing_in_the_caller() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let engine = Engine::probe();
    let prepared = engine.prepare(&policy(&["sh", "-c", "echo $PPID; exit 7"])).unwrap();
    let once = || {
        let o = prepared.run(Io::default());
        assert_eq!((o.exit_code, o.stdout.as_str(), &o.error), (Some(7), "1\n", &None), "{o:?}");
        o.run_id
    };
    once();
    let before = descriptors();
    let mut ids: Vec<String> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..15).map(|_| once()).collect::<Vec<_>>())).collect();
        callers.into_iter().flat_map(|c| c.join().unwrap()).collect()
    });
    assert_eq!(children(), "");
    // Idle network namespaces are kept for the next runs, one for each that ran at the same time.
    let after = descriptors();
    assert!(after <= before + 4, "{before} descriptors before, {after} after 60 runs");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 60, "every run has an id of its own");
}

#[test]
fn what_cannot_start_says_so_and_leaves_nothing() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let missing = prepared(&policy(&["/no/such/program"]));
    // The first runs find out, and one of them leaves a network namespace for the next.
    (0..3).for_each(|_| drop(missing.run(Io::default())));
    let before = descriptors();
    for _ in 0..10 {
        let o = missing.run(Io::default());
        assert_eq!(o.outcome, Ending::SetupFailed);
        assert_eq!(o.error.map(|e| e.code), Some(127));
    }
    assert_eq!(descriptors(), before);
    assert_eq!(children(), "");
}

/// Where the user of the test may write: outside of the sandbox's own scratch directories, as far as there is such a place.
fn place() -> std::path::PathBuf {
    let target = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    if tempfile::tempdir_in(&target).is_ok() { target } else { std::env::temp_dir() }
}

/// Waits until a staged sandbox is there, or is not.
fn until(staged: bool) -> bool {
    let begun = Instant::now();
    while children().is_empty() == staged {
        if begun.elapsed() > Duration::from_secs(10) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(50)); // it is at the go by then
    true
}

#[test]
fn staged_sandboxes_run_what_they_are_asked_or_end_unused() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    assert!(run(&["true"], Io::default()).success); // init's program stays open from the first run on
    let before = descriptors();
    let prepared = prepared(&policy(&["sh", "-c", "cat /proc/sys/kernel/random/boot_id; exit 6"])).keep_ready(1);
    let mut ids = Vec::new();
    for _ in 0..5 {
        assert!(until(true), "nothing was staged");
        let o = prepared.run(Io::default());
        assert_eq!((o.outcome, o.exit_code), (Ending::Exited, Some(6)), "{o:?}");
        ids.push(o.stdout);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5, "each run has an id of its own");
    assert!(until(false), "an unused one stays");
    assert!(prepared.run(Io::default()).error.is_none(), "and none is needed");
    assert!(until(true), "it comes back with the next run");
    drop(prepared);
    assert_eq!(children(), "", "dropping ends it");
    assert_eq!(descriptors(), before);
}

#[test]
fn a_sandbox_staged_before_a_denied_file_was_replaced_does_not_show_the_new_one() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir_in(place()).unwrap();
    let at = dir.path().to_str().unwrap().to_owned();
    let replace = |name: &str, text: &str| {
        std::fs::write(format!("{at}/new"), text).unwrap();
        std::fs::rename(format!("{at}/new"), format!("{at}/{name}")).unwrap();
    };
    replace("secret", "first-secret");
    replace("open", "first-open");
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut policy = policy(&["sh", "-c", &format!("cat {at}/open; cat {at}/secret {at}/late")]);
    policy.filesystem.mounts.push(cofferdam_policy::Mount::Bind {
        source: at.clone(),
        target: at.clone(),
        access: cofferdam_policy::Access::ReadWrite,
        exec: false,
        optional: false,
    });
    policy.filesystem.deny.extend([format!("{at}/secret"), format!("{at}/late")]);
    let prepared = prepared(&policy).keep_ready(1);
    assert!(until(true), "nothing was staged");
    replace("secret", "second-secret");
    replace("open", "second-open");
    replace("late", "late-secret"); // was to be guarded, and is there now
    let o = prepared.run(Io::default());
    assert!(o.error.is_none(), "{o:?}");
    assert_eq!(o.stdout, "second-open", "{o:?}");
    // Nothing changed since: this one is taken, and holds the same.
    assert!(until(true), "nothing was staged");
    let o = prepared.run(Io::default());
    assert_eq!(o.stdout, "second-open", "{o:?}");
}

/// What a program prints of files below a directory of the host that it may write to, some of them denied, after what is
/// done to that directory between staging and running.
fn shown_after(
    open: &str,
    denied: &[&str],
    prepare: impl Fn(&std::path::Path),
    done: impl Fn(&std::path::Path),
) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir_in(place()).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    prepare(dir.path());
    let at = dir.path().to_str().unwrap().to_owned();
    let mut policy = policy(&["sh", "-c", &format!("cd {at}; cat {open} {}", denied.join(" "))]);
    policy.filesystem.mounts.push(cofferdam_policy::Mount::Bind {
        source: at.clone(),
        target: at.clone(),
        access: cofferdam_policy::Access::ReadWrite,
        exec: false,
        optional: false,
    });
    policy.filesystem.deny.extend(denied.iter().map(|name| format!("{at}/{name}")));
    let prepared = prepared(&policy).keep_ready(1);
    assert!(until(true), "nothing was staged");
    done(dir.path());
    let o = prepared.run(Io::default());
    assert!(o.error.is_none(), "{o:?}");
    o.stdout
}

fn put(dir: &std::path::Path, name: &str, text: &str) {
    std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
    std::fs::write(dir.join(name), text).unwrap();
}

#[test]
fn a_sandbox_staged_before_a_denied_file_was_put_there_by_another_link_does_not_show_it() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let prepare = |dir: &std::path::Path| {
        put(dir, "open", "open");
        put(dir, "secret", "SECRET");
    };
    let done = |dir: &std::path::Path| {
        std::fs::rename(dir.join("secret"), dir.join("other")).unwrap();
        std::fs::hard_link(dir.join("other"), dir.join("secret")).unwrap();
    };
    assert_eq!(shown_after("open", &["secret"], prepare, |_| {}), "open");
    assert_eq!(shown_after("open", &["secret"], prepare, done), "open");
    // The same by directories: the file itself is not touched.
    let prepare = |dir: &std::path::Path| {
        put(dir, "open", "open");
        put(dir, "a/secret", "SECRET");
        std::fs::create_dir(dir.join("b")).unwrap();
        std::fs::hard_link(dir.join("a/secret"), dir.join("b/secret")).unwrap();
    };
    let done = |dir: &std::path::Path| {
        std::fs::rename(dir.join("a"), dir.join("c")).unwrap();
        std::fs::rename(dir.join("b"), dir.join("a")).unwrap();
    };
    assert_eq!(shown_after("open", &["a/secret"], prepare, done), "open");
}

#[test]
fn a_sandbox_staged_before_a_denied_file_was_made_anew_does_not_show_it() {
    use std::os::unix::fs::MetadataExt as _;
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let prepare = |dir: &std::path::Path| {
        put(dir, "open", "open");
        put(dir, "secret", "SECRET");
    };
    // Most file systems give the number of a removed file to the next one.
    let again = |dir: &std::path::Path| {
        let number = |name: &str| std::fs::metadata(dir.join(name)).unwrap().ino();
        let before = number("secret");
        std::fs::remove_file(dir.join("secret")).unwrap();
        put(dir, "secret", "SECRET");
        for i in 0..100 {
            if number("secret") == before {
                break;
            }
            std::fs::rename(dir.join("secret"), dir.join(format!("spare{i}"))).unwrap();
            put(dir, "secret", "SECRET");
        }
    };
    assert_eq!(shown_after("open", &["secret"], prepare, again), "open");
}

#[test]
fn a_sandbox_staged_before_a_directory_was_opened_does_not_show_what_is_denied_in_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let mode = |dir: &std::path::Path, mode| {
        std::fs::set_permissions(dir.join("closed"), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let prepare = |dir: &std::path::Path| {
        put(dir, "open", "open");
        put(dir, "closed/secret", "SECRET");
        // As root somebody else's, whom the sandbox's user is not.
        if std::os::unix::fs::chown(dir.join("closed"), Some(4711), Some(4711)).is_err() {
            assert!(!rustix::process::geteuid().is_root());
        }
        mode(dir, 0);
    };
    assert_eq!(shown_after("open", &["closed/secret"], prepare, |_| {}), "open");
    assert_eq!(shown_after("open", &["closed/secret"], prepare, |dir| mode(dir, 0o755)), "open");
}

#[test]
fn a_sandbox_staged_before_a_covered_directory_was_made_anew_does_not_show_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir_in(place()).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    put(dir.path(), "covered/secret", "SECRET");
    let mut policy = policy(&["sh", "-c", "ls /work /work/covered; cat /work/covered/secret"]);
    policy.filesystem.mounts.push(cofferdam_policy::Mount::Bind {
        source: dir.path().to_str().unwrap().to_owned(),
        target: "/work".into(),
        access: cofferdam_policy::Access::ReadWrite,
        exec: false,
        optional: false,
    });
    let covers = cofferdam_policy::Mount::Tmpfs { target: "/work/covered".into(), size_mb: 1, exec: false };
    policy.filesystem.mounts.push(covers);
    let prepared = prepared(&policy).keep_ready(1);
    assert!(until(true), "nothing was staged");
    std::fs::rename(dir.path().join("covered"), dir.path().join("old")).unwrap();
    put(dir.path(), "covered/secret", "SECRET");
    let o = prepared.run(Io::default());
    assert!(o.error.is_none() && !o.stdout.contains("SECRET") && o.stdout.contains("covered"), "{o:?}");
}

#[test]
fn the_memory_of_a_run_is_its_own_and_not_its_callers() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let held = vec![1u8; 300 << 20];
    for backend in [BackendName::Jail, BackendName::Landlock] {
        let mut policy = policy(&["/bin/true"]);
        policy.backend = backend;
        policy.enforcement.best_effort = Field::ALL.iter().copied().collect();
        let least = prepared(&policy).run(Io::default());
        let bytes = least.memory_used_bytes.unwrap_or_else(|| panic!("{least:?}"));
        assert!(least.success && bytes < 50 << 20, "{backend:?}: {least:?}");
        policy.command.argv =
            vec!["/bin/sh".into(), "-c".into(), "head -c 80000000 /dev/zero | tail -c 70000000".into()];
        policy.limits.output_bytes = 1;
        let most = prepared(&policy).run(Io::default());
        assert!(most.memory_used_bytes.is_some_and(|bytes| bytes > 60 << 20), "{backend:?}: {most:?}");
    }
    assert_eq!(held.iter().map(|&b| u64::from(b)).sum::<u64>(), 300 << 20);
}

#[test]
fn with_the_hosts_network_names_are_looked_up_as_the_host_does() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let Ok(resolver) = std::fs::read_to_string("/etc/resolv.conf") else { return };
    for mode in [NetworkMode::Host, NetworkMode::None] {
        let mut policy = policy(&["/bin/cat", "/etc/resolv.conf"]);
        policy.filesystem.root = Root::Minimal;
        policy.network.mode = mode;
        let o = prepared(&policy).run(Io::default());
        let expected = if mode == NetworkMode::Host { resolver.as_str() } else { "" };
        assert_eq!((o.success, o.stdout.as_str()), (true, expected), "{o:?}");
    }
}

#[test]
fn what_differs_between_runs_of_one_policy_are_arguments_and_what_a_run_leaves_in_its_tmpfs_is_handed_back() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let mut policy = policy(&["sh", "-c"]);
    policy.filesystem.mounts.push(cofferdam_policy::Mount::Tmpfs { target: "/work".into(), size_mb: 8, exec: false });
    // Staged sandboxes, and such as are made when they are needed.
    for staged in [0, 1] {
        let prepared = prepared(&policy).hands_back("/work", "out").keep_ready(staged);
        for word in ["one", "two", "three"] {
            let given = Arc::new(Mutex::new(None));
            let into = Arc::clone(&given);
            let code = "echo $0; cd /work/out && mkdir d && echo $0 > d/f && ln -s /etc/passwd l";
            let o = prepared.run(Io {
                arguments: vec![code.into(), word.into()],
                handed_back: Some(Box::new(move |root| *into.lock().unwrap() = Some(root))),
                ..Io::default()
            });
            assert_eq!((o.success, o.stdout.trim_end()), (true, word), "{o:?}");
            let root = given.lock().unwrap().take().expect("the jail hands it back");
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            let file = rustix::fs::openat(&root, "out/d/f", flags, rustix::fs::Mode::empty()).unwrap();
            assert_eq!(std::io::read_to_string(std::fs::File::from(file)).unwrap().trim_end(), word);
        }
        drop(prepared);
    }
    let o = prepared(&policy).run(Io { arguments: vec!["echo a\0b".into()], ..Io::default() });
    assert_eq!(o.outcome, Ending::SetupFailed);
    assert!(o.error.as_ref().is_some_and(|failure| failure.message.contains("NUL")), "{o:?}");
}
