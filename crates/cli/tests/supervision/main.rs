//! Limits, streams and ends of a run: what stops a program that does not stop by itself, and what is left of it.
//!
//! Every fork or memory bomb here runs inside a limit that another test covers, and inside a wall limit as well.

#[path = "../common/mod.rs"]
mod common;

mod memory;
mod memory_of_all_runs;
mod streams;

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{PYTHON, carrying, cgroups_of, cofferdam, eventually, has, marker, mounts_with, needs, outcome, parse};
use serde_json::Value;

/// Runs this shell code with these options and the marker in its variables; gives the outcome and checks that nothing
/// is left when the call has returned.
#[track_caller]
fn run(options: &[&str], code: &str) -> Value {
    program(options, &["sh", "-c", code])
}

#[track_caller]
fn program(options: &[&str], argv: &[&str]) -> Value {
    let mark = marker();
    let mut command = cofferdam();
    command.args(["run", "--json", "-e", &format!("MARK={mark}")]).args(options).arg("--").args(argv);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(carrying(&mark), [0; 0], "processes are left when the call returns");
    assert_eq!(cgroups_of(pid), [""; 0], "cgroups are left when the call returns");
    assert_eq!(mounts_with("cofferdam"), [""; 0], "mounts are left when the call returns");
    parse(&output)
}

/// The backend without namespaces, with what it cannot hold taken back.
const LANDLOCK: [&str; 7] =
    ["--backend", "landlock", "--best-effort=filesystem,process,limits", "--root", "minimal", "-w", "/"];

#[track_caller]
fn ended(outcome: &Value, ending: &str, limit: Option<&str>) {
    let limit = limit.map_or(Value::Null, Value::from);
    assert_eq!((&outcome["outcome"], &outcome["limit"]), (&ending.into(), &limit), "{outcome:#}");
}

const STUBBORN: [(&str, &str); 5] = [
    ("ignores every signal", "trap '' 1 2 3 6 10 12 13 14 15 20 21 22; while :; do sleep 1; done"),
    ("forks twice", "(setsid sh -c 'sleep 100 & sleep 100' & ) ; exec sleep 100"),
    ("makes sessions", "setsid -f sleep 100; setsid -f setsid -f sleep 100; sleep 100"),
    ("stops itself", "sleep 100 & kill -STOP $$; sleep 100"),
    ("stops all", "sleep 100 & sleep 100 & kill -STOP -1; kill -STOP 0; sleep 100"),
];

#[test]
fn the_wall_limit_holds_whatever_the_program_does_about_it() {
    for (name, code) in STUBBORN {
        let start = Instant::now();
        let o = run(&["--timeout", "400ms"], code);
        ended(&o, "timed_out", Some("limits.wall_ms"));
        assert!(start.elapsed() < Duration::from_secs(5), "{name}: {:?}", start.elapsed());
        let took = o["execution_time_ms"].as_f64().unwrap();
        assert!((390.0..2000.0).contains(&took), "{name}: {took}");
    }
}

#[test]
fn the_wall_limit_holds_without_namespaces_too() {
    for (name, code) in STUBBORN {
        let start = Instant::now();
        let o = run(&[&LANDLOCK[..], &["--timeout", "400ms"]].concat(), code);
        ended(&o, "timed_out", Some("limits.wall_ms"));
        assert!(start.elapsed() < Duration::from_secs(8), "{name}: {:?}", start.elapsed());
    }
}

#[test]
fn children_that_outlive_the_program_end_with_it() {
    for backend in [&["--backend", "jail"][..], &LANDLOCK] {
        let start = Instant::now();
        let o = run(
            backend,
            "setsid -f sleep 50; (trap '' 1 15; sleep 50) & (sleep 50 & kill -STOP $!) & sleep 0.1; exit 3",
        );
        ended(&o, "exited", None);
        assert_eq!(o["exit_code"], 3);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_stalled_reader_does_not_stretch_the_wall_limit() {
    let mark = marker();
    let start = Instant::now();
    let mut child = cofferdam()
        .args(["run", "-e", &format!("MARK={mark}"), "--timeout", "1s", "--", "sh", "-c"])
        .arg("trap '' 1 2 13 15; while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let held = child.stdout.take();
    assert_eq!(child.wait().unwrap().code(), Some(124));
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    assert_eq!(carrying(&mark), [0; 0]);
    drop(held);
}

#[test]
fn cpu_time_counts_for_the_whole_tree() {
    // Each of the four stays below the limit, together they do not.
    let start = Instant::now();
    let spin = "for i in 1 2 3 4; do sh -c 'while :; do :; done' & done; wait";
    let o = run(&["--cpu-time", "1s", "--best-effort", "--timeout", "30s"], spin);
    ended(&o, "limit_exceeded", Some("limits.cpu_seconds"));
    let used = o["cpu_time_seconds"].as_f64().unwrap();
    assert!((0.9..3.0).contains(&used), "{used}");
    assert!(start.elapsed() < Duration::from_secs(20));
    // Control: the same program uses little.
    ended(&run(&["--cpu-time", "1s", "--best-effort"], "for i in 1 2 3 4; do true & done; wait"), "exited", None);
}

#[test]
fn cpu_time_of_one_process_is_exact_on_a_busy_machine() {
    // More of them than there are CPUs: the kernel's per-process limit counts ticks, and is early there.
    let runs: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                run(&["--cpu-time", "1s", "--best-effort", "--timeout", "60s"], "while :; do :; done")
            })
        })
        .collect();
    for one in runs {
        ended(&one.join().unwrap(), "limit_exceeded", Some("limits.cpu_seconds"));
    }
}

#[test]
fn cpu_time_of_one_process_ends_it_where_it_ignores_sigxcpu() {
    let o = run(&["--cpu-time", "1s", "--best-effort", "--timeout", "30s"], "trap '' XCPU; while :; do :; done");
    ended(&o, "limit_exceeded", Some("limits.cpu_seconds"));
}

#[test]
fn process_limit_makes_fork_fail() {
    let forks = "
import os, time
made = 0
try:
    for i in range(200):
        if os.fork() == 0:
            time.sleep(30); os._exit(0)
        made += 1
except OSError as e:
    print(made, e.errno)
";
    let o = program(&["--pids", "20", "--best-effort", "--timeout", "20s"], &[PYTHON, "-c", forks]);
    ended(&o, "exited", None);
    assert_eq!(o["stdout"], "19 11\n", "{o:#}");
    if needs("cgroup pids") {
        assert_eq!(o["pid_count"], 20);
        let v = common::violations(&o);
        assert!(v.iter().any(|v| v.0 == "limits.processes" && v.3 == "kernel"), "{v:?}");
    }
    let bomb = run(&["--pids", "20", "--timeout", "1s"], ":() { : | : & }; :; while :; do :; done");
    assert_ne!(bomb["outcome"], "setup_failed", "{bomb:#}");
}

#[test]
fn a_file_cannot_grow_beyond_its_limit() {
    let o =
        run(&["--file-size", "1m"], "head -c 3000000 /dev/zero > /tmp/big; echo $?; ls -l /tmp/big | cut -d' ' -f5");
    assert_eq!(o["stdout"], "153\n1048576\n", "{o:#}");
    let o = run(&["--file-size", "1m"], "exec head -c 3000000 /dev/zero > /tmp/big");
    // The signal is all there is, and every program can send it.
    let by_signal = |o: &Value, ending: &str, signal: i32| {
        ended(o, ending, None);
        assert_eq!(o["signal"], signal, "{o:#}");
    };
    let xfsz = |o: &Value| {
        by_signal(o, "signalled", 25);
        let v = common::violations(o);
        assert!(v.len() == 1 && v[0].0 == "SIGXFSZ" && v[0].3 == "inferred", "{v:?}");
        assert_eq!(o["violations"][0]["field"], "$.limits.file_size_mb");
    };
    xfsz(&o);
    xfsz(&run(&[], "kill -XFSZ $$"));
    for (name, number) in [("XCPU", 24), ("KILL", 9), ("SYS", 31)] {
        by_signal(&run(&[], &format!("kill -{name} $$")), "signalled", number);
    }
    ended(&run(&["--file-size", "4m"], "head -c 3000000 /dev/zero > /tmp/big"), "exited", None);
}

#[test]
fn open_files_are_bounded() {
    let code = "
import os
n = 0
try:
    while True:
        os.open('/dev/null', os.O_RDONLY); n += 1
except OSError as e:
    print(n + 3, e.errno)
";
    let o = program(&["--open-files", "40"], &[PYTHON, "-c", code]);
    assert_eq!(o["stdout"], "40 24\n", "{o:#}");
}

#[test]
fn terminals_are_bounded_so_that_other_sandboxes_have_some() {
    let code = "
import os, sys
n = 0
try:
    while n < int(sys.argv[1]):
        os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY); n += 1
except OSError as e:
    print(e.errno)
print(n)
";
    let opened = |wanted: &str| program(&["--open-files", "512"], &[PYTHON, "-c", code, wanted])["stdout"].clone();
    assert_eq!(opened("40"), "40\n", "the twin");
    assert_eq!(opened("200"), "28\n64\n", "as many as the machine has");
}

#[test]
fn scratch_space_is_bounded_as_a_whole() {
    let code = "head -c 6000000 /dev/zero > /tmp/a && head -c 6000000 /dev/zero > /dev/shm/b";
    let o = run(&["--tmpfs-size", "8m"], code);
    assert!(o["stderr"].as_str().unwrap().contains("No space left"), "{o:#}");
    ended(&run(&["--tmpfs-size", "16m"], code), "exited", None);
    let inodes = "import os\ntry:\n  for i in range(10**7): os.mkdir(f'/tmp/{i}')\nexcept OSError as e: print(e.errno)";
    let o = program(&["--tmpfs-size", "1m", "--timeout", "30s"], &[PYTHON, "-c", inodes]);
    assert_eq!(o["stdout"], "28\n", "{o:#}");
}

#[test]
fn exit_codes_distinguish_how_a_run_ended() {
    let code = |options: &[&str], argv: &[&str]| {
        let mut command = cofferdam();
        command.arg("run").arg("-q").args(options).arg("--").args(argv);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code().unwrap()
    };
    for n in [0, 1, 2, 123, 124, 125, 126, 127, 128, 255] {
        assert_eq!(code(&[], &["sh", "-c", &format!("exit {n}")]), n);
    }
    for n in [1, 2, 6, 9, 11, 15] {
        assert_eq!(code(&[], &["sh", "-c", &format!("kill -{n} $$")]), 128 + n);
    }
    assert_eq!(code(&["--timeout", "200ms"], &["sleep", "9"]), 124);
    assert_eq!(code(&["--backend", "nosuch"], &["true"]), 125);
    assert_eq!(code(&[], &["/etc/passwd"]), 126);
    assert_eq!(code(&[], &["/no/such/program"]), 127);
    // SIGXFSZ, which says of itself alone that the limit was met: the program can send it as well.
    assert_eq!(code(&["--file-size", "1m"], &["sh", "-c", "exec head -c 2000000 /dev/zero > /tmp/x"]), 128 + 25);
}

#[test]
fn the_outcome_has_every_field_of_its_documentation() {
    let o = run(
        &["--memory", "256m", "--best-effort"],
        "head -c 30000000 /dev/zero | tail -c 20000000 | wc -c; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done",
    );
    let mut keys: Vec<&str> = o.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected = [
        "artifacts",
        "backend",
        "backend_reason",
        "changes",
        "changes_omitted",
        "cpu_time_seconds",
        "enforcement",
        "error",
        "execution_time_ms",
        "exit_code",
        "memory_used_bytes",
        "notes",
        "outcome",
        "pid_count",
        "run_id",
        "setup_time_ms",
        "signal",
        "stderr",
        "stdout",
        "success",
        "truncated",
        "violations",
        "violations_complete",
    ];
    assert_eq!(keys, expected);
    assert_eq!((&o["success"], &o["backend"], &o["error"]), (&true.into(), &"jail".into(), &Value::Null));
    let cpu = o["cpu_time_seconds"].as_f64().unwrap();
    let wall = o["execution_time_ms"].as_f64().unwrap();
    assert!(cpu > 0.005 && cpu < 10.0, "{cpu}");
    assert!(wall > 5.0 && wall < 20_000.0, "{wall}");
    if has("cgroup memory") {
        let memory = o["memory_used_bytes"].as_u64().unwrap();
        assert!((15 << 20..256 << 20).contains(&memory), "{memory}");
    }
    if has("cgroup pids") {
        let processes = o["pid_count"].as_u64().unwrap();
        assert!((3..=5).contains(&processes), "{processes}");
    }
    let other = run(&[], "true");
    assert_ne!(o["run_id"], other["run_id"]);
    assert!(o["run_id"].as_str().unwrap().len() >= 32);
}

#[test]
fn without_a_cgroup_the_figures_are_samples() {
    if has("cgroup memory") {
        eprintln!("skipped: there is a cgroup here");
        return;
    }
    let o = program(
        &["--timeout", "20s"],
        &[PYTHON, "-c", "import time\nx=bytearray(40<<20)\nwhile time.process_time()<0.4: pass"],
    );
    assert!(o["memory_used_bytes"].as_u64().unwrap() > 40 << 20, "{o:#}");
    assert!(o["pid_count"].as_u64().unwrap() >= 1);
    // The program itself goes by CPU time, so that a busy machine changes nothing.
    assert!(o["cpu_time_seconds"].as_f64().unwrap() > 0.39, "{o:#}");
    assert_eq!(o["enforcement"]["limits.memory_mb"]["strength"], "partial");
}

#[test]
fn a_cancelled_run_leaves_nothing_with_either_backend() {
    use rustix::process::{Pid, Signal, kill_process};
    for backend in [&["--backend", "jail"][..], &LANDLOCK] {
        let mark = marker();
        let mut child = cofferdam()
            .args(["run", "--grace", "0", "-e", &format!("MARK={mark}")])
            .args(backend)
            .args(["--", "sh", "-c", "setsid -f sleep 60; trap '' 15; (sleep 60 & kill -STOP $!); echo up; sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        let pid = child.id();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(143));
        assert_eq!(carrying(&mark), [0; 0], "{backend:?}");
        assert_eq!(cgroups_of(pid), [""; 0]);
    }
}

#[test]
fn many_runs_at_once_do_not_disturb_each_other() {
    let runs: Vec<_> = (0..8)
        .map(|i| {
            std::thread::spawn(move || {
                let o = outcome(&["run", "--json", "--", "sh", "-c", &format!("sleep 0.1; echo {i}; exit {i}")]).1;
                assert_eq!((&o["exit_code"], &o["stdout"]), (&i.into(), &format!("{i}\n").into()), "{o:#}");
            })
        })
        .collect();
    runs.into_iter().for_each(|r| r.join().unwrap());
    eventually("no cgroup of ours", Duration::from_secs(1), || cgroups_of(std::process::id()).is_empty());
}

#[test]
fn the_wall_limit_holds_when_somebody_stops_init() {
    use rustix::process::{Pid, Signal, kill_process};
    for backend in [&["--backend", "jail"][..], &LANDLOCK] {
        let mark = marker();
        let mut child = cofferdam()
            .args(["run", "-q", "-e", &format!("MARK={mark}"), "--timeout", "1s"])
            .args(backend)
            .args(["--", "sh", "-c", "sleep 60 & echo up; sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        // Init says that the program runs a moment after it does.
        std::thread::sleep(Duration::from_millis(200));
        let pid = child.id();
        let init = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let init = Pid::from_raw(init.trim().parse().unwrap()).unwrap();
        let start = Instant::now();
        // Where this user may not signal init, no other unprivileged user may either.
        if kill_process(init, Signal::STOP).is_err() {
            eprintln!("skipped: init takes no signal of this user's");
        }
        assert_eq!(child.wait().unwrap().code(), Some(124), "{backend:?}");
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        eventually("all are gone", Duration::from_millis(500), || carrying(&mark).is_empty());
    }
}

#[test]
fn a_run_with_a_terminal_keeps_its_limits() {
    use std::os::fd::AsFd as _;
    let (ours, theirs) = common::pty();
    let mark = marker();
    let end = || Stdio::from(theirs.as_fd().try_clone_to_owned().unwrap());
    let start = Instant::now();
    let mut child = cofferdam()
        .args(["run", "-q", "-t", "-e", &format!("MARK={mark}"), "--timeout", "700ms", "--output-limit", "1k"])
        .args(["--", "sh", "-c", "trap '' 1 2 15; setsid -f sleep 60; yes"])
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    // The reader pauses, and then reads everything.
    std::thread::sleep(Duration::from_millis(300));
    let mut ours = std::fs::File::from(ours);
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    let (mut seen, mut chunk) = (0, [0; 4096]);
    let code = loop {
        seen += ours.read(&mut chunk).unwrap_or(0);
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        assert!(start.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(code, Some(124));
    assert!(seen <= 8 << 10, "{seen} bytes of a kilobyte"); // each line feed is two bytes on a terminal
    assert_eq!(carrying(&mark), [0; 0]);
}

/// Init may be scheduled only after a short program has ended: the time is counted from the program's own start.
#[test]
fn the_execution_time_covers_all_that_the_program_did() {
    let code = "import time; a = time.monotonic_ns(); \nwhile time.monotonic_ns() < a + 3_000_000: pass\nprint(time.monotonic_ns() - a)";
    for _ in 0..20 {
        let o = outcome(&["run", "--json", "--", PYTHON, "-c", code]).1;
        let ran: f64 = o["stdout"].as_str().unwrap().trim().parse().unwrap();
        assert!(o["execution_time_ms"].as_f64().unwrap() >= ran / 1e6, "{o:#}");
    }
}
