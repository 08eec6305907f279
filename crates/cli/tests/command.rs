//! The command as a user meets it: real runs, exit codes, streams, signals, bad input. Needs what the jail needs.

mod common;

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use common::{cofferdam, cofferdam_with_signals, output, parse};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[track_caller]
fn expect(arguments: &[&str], code: i32, stdout: &str) -> String {
    let output = output(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout, "{arguments:?}\n{stderr}");
    stderr
}

fn outcome(arguments: &[&str]) -> (i32, Value) {
    let output = output(arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {text}"));
    (output.status.code().unwrap(), value)
}

/// A directory that the sandbox's own ids can read.
fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

#[test]
fn each_environment_runs_code() {
    assert_eq!(expect(&["eval", "python", "print(6*7)"], 0, "42\n"), "");
    assert_eq!(expect(&["eval", "shell", "echo $((6*7)) $1", "--", "x"], 0, "42 x\n"), "");
    if Path::new("/usr/bin/node").exists() {
        assert_eq!(expect(&["eval", "node", "console.log(6*7)"], 0, "42\n"), "");
    } else {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "node is missing");
        eprintln!("skipped: node is missing");
    }
}

#[test]
fn code_comes_from_stdin_from_a_file_and_in_any_length() {
    let mut child =
        cofferdam().args(["eval", "python", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"print('from stdin')").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"from stdin\n");

    let directory = open_directory();
    let file = directory.path().join("code.py");
    std::fs::write(&file, "print(__file__)").unwrap();
    let file = file.to_str().unwrap();
    expect(&["eval", "python", "--file", file], 0, &format!("{file}\n"));

    let long = format!("echo long\n{}", "# filling\n".repeat(20_000));
    let mut child =
        cofferdam().args(["eval", "shell", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(long.as_bytes()).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"long\n");
}

#[test]
fn exit_codes_are_the_programs_own_or_a_shells() {
    expect(&["eval", "shell", "exit 7"], 7, "");
    expect(&["eval", "shell", "kill -TERM $$"], 143, "");
    let message = expect(&["eval", "--timeout", "300ms", "shell", "sleep 30"], 124, "");
    assert!(message.contains("cofferdam: stopped after 0.3 s") && message.contains("--timeout"), "{message}");
    assert_eq!(expect(&["eval", "-q", "--timeout", "300ms", "shell", "sleep 30"], 124, ""), "");
    let message = expect(&["run", "--", "no-such-program-anywhere"], 127, "");
    assert!(message.starts_with("cofferdam: error: "), "{message}");
    expect(&["run", "--", "/etc/passwd"], 126, "");
    expect(&["run", "--", "/usr"], 126, "");
}

#[test]
fn a_program_on_the_callers_path_only_is_named_with_its_place() {
    let directory = open_directory();
    let program = directory.path().join("only-here");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = cofferdam().env("PATH", directory.path()).args(["run", "only-here"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(127), "{message}");
    assert!(message.contains(program.to_str().unwrap()) && message.contains("-e PATH"), "{message}");
}

#[test]
fn stdin_is_what_a_pipe_or_a_file_gives() {
    let run = |arguments: &[&str]| {
        let mut child = cofferdam().args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The program may be gone before it is written.
        child.stdin.take().unwrap().write_all(b"secret").ok();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(run(&["run", "--", "cat"]), "secret");
    assert_eq!(run(&["run", "-i", "--", "cat"]), "secret");
    assert_eq!(run(&["run", "--stdin", "given", "--", "cat"]), "given");
    assert_eq!(run(&["run", "--stdin", "none", "--", "cat"]), "");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("input");
    std::fs::write(&file, "of the file").unwrap();
    let of = |input: std::fs::File, arguments: &[&str]| {
        let output = cofferdam().args(arguments).stdin(input).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let open = |path: &std::path::Path| std::fs::File::open(path).unwrap();
    assert_eq!(of(open(&file), &["run", "--", "cat"]), (Some(0), "of the file".into()));
    assert_eq!(
        of(open(std::path::Path::new("/dev/zero")), &["run", "--", "cat"]),
        (Some(0), String::new()),
        "a device"
    );
    // A policy states by itself what the program gets.
    let policy = directory.path().join("policy.json");
    std::fs::write(&policy, r#"{"version": 1, "command": {"argv": ["/bin/cat"]}}"#).unwrap();
    let policy = policy.to_str().unwrap();
    assert_eq!(of(open(&file), &["run", "--policy", policy]), (Some(0), String::new()));
    assert_eq!(of(open(&file), &["run", "--policy", policy, "-i"]), (Some(0), "of the file".into()));
}

#[test]
fn variables_are_the_sandboxs_own() {
    let own = ["HOME", "LANG", "PATH", "SHARED", "TERM", "USER", "X"];
    // Without a network package managers are asked not to try again.
    let retries = ["CARGO_NET_RETRY", "PIP_RETRIES", "npm_config_fetch_retries", "pnpm_config_fetch_retries"];
    for (network, further) in [("none", &retries[..]), ("loopback", &[])] {
        let output = cofferdam()
            .env("SECRET", "s")
            .env("SHARED", "yes")
            .env("HOME", "/no/toolchains")
            .env_remove("PYENV_ROOT")
            .env_remove("RUSTUP_HOME")
            .env_remove("NVM_DIR")
            .args(["run", "--network", network, "-e", "SHARED", "-e", "X=1", "--", "env"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut names: Vec<&str> = text.lines().map(|line| line.split('=').next().unwrap()).collect();
        names.sort_unstable();
        let mut expected = [&own, further].concat();
        expected.sort_unstable();
        assert_eq!(names, expected, "{network}: {text}");
        assert!(text.contains("SHARED=yes"));
    }
}

#[test]
fn working_directory_is_readable_and_writable_only_on_request() {
    let directory = open_directory();
    std::fs::write(directory.path().join("file"), "hello").unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let run = |options: &[&str], code: &str| {
        let output = cofferdam()
            .current_dir(directory.path())
            .arg("run")
            .args(options)
            .args(["--", "sh", "-c", code])
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(run(&[], "cat file"), (Some(0), "hello".into()));
    assert_ne!(run(&[], "echo x > new").0, Some(0));
    assert!(!directory.path().join("new").exists());
    assert_eq!(run(&["-v", ".:.:cow"], "echo x > new && cat new"), (Some(0), "x\n".into()));
    assert!(!directory.path().join("new").exists());
    let kept = tempfile::tempdir().unwrap();
    let keep = kept.path().join("changes");
    run(&["-v", ".:.:cow", "--keep-changes", keep.to_str().unwrap()], "echo x > new");
    assert!(keep.exists(), "the layer is kept where it was asked for");
}

#[test]
fn json_is_one_outcome_whatever_happens() {
    let (code, value) = outcome(&["eval", "--json", "python", "import sys; print('o'); print('e', file=sys.stderr)"]);
    assert_eq!((code, &value["outcome"], &value["exit_code"]), (0, &"exited".into(), &0.into()));
    assert_eq!((&value["stdout"], &value["stderr"]), (&"o\n".into(), &"e\n".into()));
    assert_eq!(value["success"], true);
    let (code, value) = outcome(&["run", "--json", "--", "no-such-program-anywhere"]);
    assert_eq!((code, &value["outcome"], &value["error"]["code"]), (127, &"setup_failed".into(), &127.into()));
    let (code, value) = outcome(&["run", "--json", "--memory", "0", "--", "true"]);
    assert_eq!((code, &value["outcome"], &value["error"]["step"]), (125, &"setup_failed".into(), &"policy".into()));
}

#[test]
fn truncated_output_is_reported() {
    let message = expect(&["eval", "--output-limit", "10", "shell", "echo 0123456789abcdef"], 0, "0123456789");
    assert!(message.contains("cut after 10 bytes") && message.contains("--output-limit"), "{message}");
}

#[test]
fn a_mount_may_lie_in_any_scratch_directory() {
    for target in ["/tmp/new/deep", "/var/tmp/new/deep", "/run/new/deep"] {
        expect(&["run", "-v", &format!("/usr/lib:{target}"), "--", "test", "-d", target], 0, "");
        expect(&["run", "-v", &format!("/etc/passwd:{target}"), "--", "test", "-s", target], 0, "");
    }
}

#[test]
fn output_comes_as_it_is_written() {
    let mut child = cofferdam().args(["eval", "shell", "echo first; sleep 20"]).stdout(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let mut first = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert!(&first == b"first\n" && start.elapsed() < Duration::from_secs(10));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

/// A run of a script of the shell that has written `up`.
fn up(options: &[&str], script: &str) -> Child {
    let mut command = cofferdam_with_signals("default");
    command.args(["eval"]).args(options).args(["shell", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    child
}

/// The exit code as a shell shows it: of a signal, 128 and its number.
fn shell_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap()
}

#[test]
fn without_grace_signals_end_the_run_at_once() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut child = up(&["--grace", "0"], "trap '' INT TERM HUP; echo up; sleep 30");
        let start = Instant::now();
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(shell_code(child.wait().unwrap()), code);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}

#[test]
fn signals_reach_the_program_which_may_end_by_itself() {
    for backend in ["jail", "landlock"] {
        let options = match backend {
            "jail" => &["--backend", "jail"][..],
            _ => &["--backend", "landlock", "--best-effort=filesystem,process,limits", "--root", "minimal", "-w", "/"],
        };
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
            let child = up(options, "trap 'echo tidied; exit 7' INT TERM HUP QUIT; echo up; sleep 30 & wait");
            kill_process(Pid::from_child(&child), signal).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"tidied\n"[..]), "{backend} {signal:?}");
            // Without a handler it ends by the signal, a stopped process as well. The shell itself ignores SIGQUIT.
            let scripts = ["(sleep 0.3; echo up) & exec sleep 30", "(sleep 1; echo up) & kill -STOP $$"];
            for script in scripts.into_iter().take(if signal == Signal::QUIT { 1 } else { 2 }) {
                let mut child = up(options, script);
                kill_process(Pid::from_child(&child), signal).unwrap();
                let start = Instant::now();
                assert_eq!(shell_code(child.wait().unwrap()), 128 + signal.as_raw(), "{backend} {script}");
                assert!(start.elapsed() < Duration::from_secs(8), "{backend} {script}: {:?}", start.elapsed());
            }
        }
    }
}

#[test]
fn a_program_that_ignores_a_signal_is_killed_after_its_grace() {
    let ignores = "trap '' INT TERM; echo up; while :; do sleep 1; done";
    let child = up(&["--grace", "500ms"], ignores);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(143));
    assert!(errors.contains("killed 0.5 s after SIGTERM") && errors.contains("hint: --grace TIME"), "{errors}");
    // A second signal does not wait.
    let child = up(&["--grace", "1h"], ignores);
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_millis(500));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).trim()), (Some(143), ""));
}

#[test]
fn an_interrupt_ends_the_loop_of_a_shell() {
    // Of bash: it goes on where a program exits with 130, as one that handles the signal does.
    let program = env!("CARGO_BIN_EXE_cofferdam");
    for (script, goes_on) in [("echo up; exec sleep 30", false), ("trap 'exit 3' INT; echo up; sleep 30 & wait", true)]
    {
        let line =
            format!("for n in 1 2; do '{program}' eval shell \"{script}\"; echo next $?; break; done; echo after");
        let mut command = Command::new("env");
        command.args(["--default-signal", "bash", "-c", &line]).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        rustix::process::kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let expected = if goes_on { "next 3\nafter\n" } else { "" };
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{script}");
    }
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    // As nohup starts it, and a script what it runs in the background.
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT] {
        let mut child = cofferdam_with_signals("ignore")
            .args(["eval", "shell", "echo up; sleep 1; echo done; exit 3"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), b"done\n".as_slice()), "{signal:?}");
    }
}

#[test]
fn stalled_reader_delays_neither_wall_limit_nor_signal() {
    let spawn = |timeout: &str| {
        let mut command = cofferdam();
        command.args(["eval", "--timeout", timeout, "shell", "echo up; yes"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 3]).unwrap();
        (child, stdout)
    };
    let start = Instant::now();
    let (mut child, _held_open) = spawn("1s");
    assert_eq!(child.wait().unwrap().code(), Some(124));
    assert!(start.elapsed() < Duration::from_secs(10));
    let (mut child, _held_open) = spawn("60s");
    std::thread::sleep(Duration::from_millis(200));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_reader_that_went_away_ends_the_program_as_a_pipe_does() {
    let mut child =
        cofferdam().args(["eval", "--timeout", "20s", "shell", "yes"]).stdout(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    drop(child.stdout.take());
    child.wait().unwrap();
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_closed_stdout_confuses_nothing() {
    let status = Command::new("sh")
        .args(["-c", "\"$0\" eval shell 'echo lost; exit 3' >&- <&-", env!("CARGO_BIN_EXE_cofferdam")])
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(3));
    if Path::new("/dev/full").exists() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = cofferdam().args(["eval", "--json", "shell", "true"]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to standard output"));
    }
}

#[test]
fn arguments_that_are_not_utf_8_are_refused() {
    for arguments in [
        [OsStr::new("run"), OsStr::new("--"), OsStr::new("cat"), OsStr::from_bytes(b"a\xff\x1b")],
        [OsStr::new("run"), OsStr::new("-v"), OsStr::from_bytes(b"\xff:/x"), OsStr::new("true")],
    ] {
        let output = output(&arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{message}");
        assert!(
            message.contains("not valid UTF-8") && message.contains("\\xFF") && !message.contains('\x1b'),
            "{message}"
        );
    }
}

#[test]
fn bad_input_is_refused_before_anything_starts() {
    let directory = open_directory();
    let huge = directory.path().join("huge.json");
    std::fs::File::create(&huge).unwrap().set_len(100 << 20).unwrap();
    let huge = huge.to_str().unwrap();
    let table: &[(&[&str], &str)] = &[
        (&["run"], "no program"),
        (&["run", "--memry", "1g", "true"], "--memory"),
        (&["run", "--memory", "0", "true"], "--memory"),
        (&["run", "-v", "/no/such/source:/x", "true"], "/no/such/source"),
        (&["run", "-w", "/no/such/directory", "true"], "/no/such/directory"),
        (&["run", "--policy", huge, "true"], "bytes"),
        (&["run", "--policy", "/", "true"], "cannot read"),
        (&["run", "-t", "true"], "-t needs a terminal"),
        (&["eval", "pyton", "1"], "python"),
        (&["eval", "python"], "no code"),
        (&["frob"], "frob"),
    ];
    for (arguments, part) in table {
        let message = expect(arguments, 125, "");
        assert!(message.starts_with("cofferdam: error: ") && message.contains(part), "{arguments:?}: {message}");
    }
}

#[test]
fn a_dry_run_prints_policy_and_plan_and_starts_nothing() {
    let directory = open_directory();
    let arguments = ["run", "--dry-run", "-v", ".:.:rw", "--memory", "64m", "--best-effort", "--", "touch", "started"];
    let run = || cofferdam().current_dir(directory.path()).args(arguments).output().unwrap();
    let first = run();
    assert_eq!(first.status.code(), Some(0), "{}", String::from_utf8_lossy(&first.stderr));
    let value: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(value["policy"]["limits"]["memory_mb"], 64);
    assert_eq!(value["policy"]["command"]["argv"], serde_json::json!(["touch", "started"]));
    for key in ["backend", "backend_reason", "enforcement", "plan"] {
        assert!(!value[key].is_null(), "{key}");
    }
    assert_eq!(run().stdout, first.stdout, "the same call gives the same plan");
    assert!(!directory.path().join("started").exists());
    // The printed policy is a policy.
    let policy = directory.path().join("p.json");
    std::fs::write(&policy, value["policy"].to_string()).unwrap();
    expect(&["check", "--json", "/no/such"], 125, &{
        let text = "[\n  {\n    \"file\": \"/no/such\",\n    \"valid\": false,\n    \"unreadable\": ";
        format!("{text}\"No such file or directory (os error 2)\"\n  }}\n]\n")
    });
    assert_eq!(output(&["check", policy.to_str().unwrap()]).status.code(), Some(0));
}

#[test]
fn check_reports_every_error_of_every_file() {
    let directory = open_directory();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file("good.json", r#"{"version": 1, "command": {"argv": ["x"]}}"#);
    let base = file("base.json", r#"{"version": 1}"#);
    let bad = file("bad.json", r#"{"version": 2, "limits": {"memory_mb": 0}, "colour": 1}"#);
    let printed = output(&["check", &good]);
    assert_eq!(printed.status.code(), Some(0));
    let policy: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(policy["limits"]["memory_mb"], 512, "completed with the defaults");
    let output_of_base = output(&["check", &base]);
    assert_eq!(output_of_base.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output_of_base.stderr).contains("no program"));
    let output_of_bad = output(&["check", &good, &bad]);
    assert_eq!(output_of_bad.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output_of_bad.stderr).into_owned();
    for part in ["$.version", "$.limits.memory_mb = 0", "colour", "accepted"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(message.lines().all(|line| line.starts_with(&bad)), "{message}");
    let (code, rows) = outcome(&["check", "--json", &good, &bad]);
    assert_eq!((code, &rows[0]["valid"], &rows[1]["valid"]), (1, &true.into(), &false.into()));
    assert!(rows[1]["errors"].as_array().unwrap().len() >= 3);
    // Zeroes without end are not read to their end.
    assert_eq!(output(&["check", "/dev/zero"]).status.code(), Some(1));
}

#[test]
fn doctor_reports_available_and_missing_mechanisms() {
    let text = String::from_utf8(output(&["doctor", "--verbose"]).stdout).unwrap();
    for part in ["MECHANISM", "AVAILABLE", "EVIDENCE", "gives:", "jail", "landlock"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, report) = outcome(&["doctor", "--json"]);
    assert_eq!(code == 0, report["usable"].as_bool().unwrap());
    assert!(!report["mechanisms"].as_array().unwrap().is_empty());
    // The two own backends, three external programs, six container runtimes.
    assert_eq!(report["support"]["run"].as_array().unwrap().len(), 11);
}

#[test]
fn doctor_says_which_programs_are_missing() {
    let empty = open_directory();
    let programs = ["MCP server", "evaluator of profiles"];
    let rows = |output: Output| {
        let report = parse(&output);
        let rows = report["mechanisms"].as_array().unwrap().clone();
        programs.map(|name| rows.iter().find(|row| row["name"] == name).unwrap()["available"] == true)
    };
    let without = || {
        let mut command = cofferdam();
        command.env("COFFERDAM_LIBEXEC", empty.path()).arg("doctor");
        command
    };
    assert_eq!(rows(without().arg("--json").output().unwrap()), [false, false]);
    let text = String::from_utf8(without().output().unwrap().stdout).unwrap();
    let todo = "  put cofferdam-serve beside the command, or say where it is with COFFERDAM_LIBEXEC=DIR\n    gives: cofferdam mcp";
    assert!(text.contains(todo), "{text}");
    // Files in their places are enough.
    for program in ["cofferdam-serve", "cofferdam-compile"] {
        std::fs::write(empty.path().join(program), "").unwrap();
    }
    assert_eq!(rows(without().arg("--json").output().unwrap()), [true, true]);
    assert!(!String::from_utf8(without().output().unwrap().stdout).unwrap().contains("cofferdam-serve"));
}

#[test]
fn help_and_version_go_to_stdout_and_succeed() {
    for arguments in [&["--help"][..], &["help", "run"], &["run", "-h"], &["eval", "--help"], &["--version"]] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{arguments:?}");
    }
}

/// A pseudo-terminal: our side and the command's.
fn pty(rows: u16, columns: u16) -> (OwnedFd, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
    tcsetwinsize(&ours, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (ours, theirs)
}

/// What a terminal shows until the command has ended. `look` is called with it, at least ten times a second.
fn screen_until_end(ours: &OwnedFd, child: &mut Child, mut look: impl FnMut(&str)) -> String {
    let (mut screen, start) = (String::new(), Instant::now());
    loop {
        let mut ready = [rustix::event::PollFd::new(ours, rustix::event::PollFlags::IN)];
        let tenth = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if rustix::event::poll(&mut ready, Some(&tenth)).unwrap() > 0 {
            let mut chunk = [0; 4096];
            let read = rustix::io::read(ours, &mut chunk).unwrap_or(0);
            screen.push_str(&String::from_utf8_lossy(&chunk[..read]));
        } else if child.try_wait().unwrap().is_some() {
            return screen;
        }
        look(&screen);
        assert!(start.elapsed() < Duration::from_secs(30), "{screen}");
    }
}

/// A terminal that answers every question for its attributes, and only a moment later; what is left on its input when the
/// command has ended.
fn left_on_the_input(arguments: &[&str]) -> (String, String) {
    let (ours, theirs) = pty(24, 80);
    let end = |fd: &OwnedFd| Stdio::from(fd.as_fd().try_clone_to_owned().unwrap());
    let mut command = std::process::Command::new("setsid");
    command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_cofferdam")]).args(arguments);
    let mut child = command.stdin(end(&theirs)).stdout(end(&theirs)).stderr(end(&theirs)).spawn().unwrap();
    let mut screen = String::new();
    let mut answered = 0;
    let start = Instant::now();
    loop {
        let mut ready = [rustix::event::PollFd::new(&ours, rustix::event::PollFlags::IN)];
        let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if rustix::event::poll(&mut ready, Some(&pause)).unwrap() > 0 {
            let mut chunk = [0; 4096];
            let read = rustix::io::read(&ours, &mut chunk).unwrap_or(0);
            screen.push_str(&String::from_utf8_lossy(&chunk[..read]));
            // What an emulator does takes it a moment, and more over a network.
            std::thread::sleep(Duration::from_millis(40));
            while answered < screen.matches("\u{1b}[c").count() {
                rustix::io::write(&ours, b"\x1b[?62;22c").unwrap();
                answered += 1;
            }
        } else if child.try_wait().unwrap().is_some() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{screen}");
    }
    assert_eq!(child.wait().unwrap().code(), Some(0), "{screen}");
    // As a shell reads it: what is there and not yet a line counts as well.
    let mut raw = rustix::termios::tcgetattr(&theirs).unwrap();
    raw.make_raw();
    rustix::termios::tcsetattr(&theirs, rustix::termios::OptionalActions::Now, &raw).unwrap();
    let mut left = String::new();
    let mut ready = [rustix::event::PollFd::new(&theirs, rustix::event::PollFlags::IN)];
    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    if rustix::event::poll(&mut ready, Some(&pause)).unwrap() > 0 {
        let mut chunk = [0; 4096];
        let read = rustix::io::read(&theirs, &mut chunk).unwrap();
        left.push_str(&String::from_utf8_lossy(&chunk[..read]));
    }
    (left, screen)
}

#[test]
fn answers_that_a_program_asked_the_terminal_for_reach_no_shell() {
    for options in [&["eval"][..], &["eval", "-it"]] {
        let asking = [options, &["shell", r"printf '\033[c\033[c\033[c'"]].concat();
        let (left, screen) = left_on_the_input(&asking);
        assert!(screen.matches("\u{1b}[c").count() >= 4, "{screen:?}");
        assert_eq!(left, "", "{options:?}");
        // After a program without queries, the terminal is not queried.
        let (left, screen) = left_on_the_input(&[options, &["shell", r"printf '\033[1mbold\033[0m'"]].concat());
        assert!(!screen.contains("\u{1b}[c") && screen.contains("bold"), "{screen:?}");
        assert_eq!(left, "", "{options:?}");
    }
}

#[test]
fn interactive_shell_has_its_own_pty_and_ours_is_restored() {
    let (ours, theirs) = pty(33, 99);
    let before = rustix::termios::tcgetattr(&theirs).unwrap();
    let end = |fd: &OwnedFd| Stdio::from(fd.as_fd().try_clone_to_owned().unwrap());
    let mut child = cofferdam()
        .args(["eval", "--timeout", "20s", "-it", "shell"])
        .stdin(end(&theirs))
        .stdout(end(&theirs))
        .stderr(end(&theirs))
        .spawn()
        .unwrap();
    // The echo of what is typed must not look like the answer.
    rustix::io::write(&ours, b"test -t 0 && stty size && echo mark$((40+2)); exit 5\n").unwrap();
    let screen = screen_until_end(&ours, &mut child, |_| {});
    let code = child.wait().unwrap().code();
    assert!(screen.contains("33 99") && screen.contains("mark42"), "{screen}");
    assert_eq!(code, Some(5), "{screen}");
    let after = rustix::termios::tcgetattr(&theirs).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
    assert_eq!(after.output_modes, before.output_modes);
}

/// Runs a command at a terminal of 24 × 80, types there once it shows `up`, and returns the screen and the exit code.
fn at_terminal(mut command: Command, keys: &[u8]) -> (String, i32) {
    let (ours, theirs) = pty(24, 80);
    let end = |fd: &OwnedFd| Stdio::from(fd.as_fd().try_clone_to_owned().unwrap());
    let mut child = command.stdin(end(&theirs)).stdout(end(&theirs)).stderr(end(&theirs)).spawn().unwrap();
    let mut typed = false;
    let screen = screen_until_end(&ours, &mut child, |screen| {
        if !typed && screen.contains("up") {
            typed = true;
            rustix::io::write(&ours, keys).unwrap();
        }
    });
    (screen, shell_code(child.wait().unwrap()))
}

/// The same of `run`.
fn typed(arguments: &[&str], keys: &[u8]) -> (String, i32) {
    let mut command = cofferdam_with_signals("default");
    command.args(["run", "-w", "/"]).args(arguments);
    at_terminal(command, keys)
}

#[test]
fn a_program_that_is_started_at_a_terminal_can_ask_there() {
    let asks = "test -t 0 && test -t 1 && test -t 2 && echo up && read name && echo hello $name";
    let (screen, code) = typed(&["sh", "-c", asks], b"Ann\n");
    assert!(code == 0 && screen.contains("hello Ann"), "{code}: {screen}");
    // Ctrl-C is the program's, which may go on; five times in a row end it in any case.
    let ignores = "trap 'echo caught' INT; echo up; sleep 2; sleep 2; echo end; exit 3";
    let (screen, code) = typed(&["sh", "-c", ignores], b"\x03");
    assert!(code == 3 && screen.contains("caught") && screen.contains("end"), "{code}: {screen}");
    let (screen, code) = typed(&["sh", "-c", ignores], b"\x03\x03\x03\x03\x03");
    assert!(code == 143 && !screen.contains("end"), "{code}: {screen}");
}

/// The same of a shell's script, with the command as `$0`, in a session of its own; with `ctty` the terminal is the session's.
fn shown(ctty: bool, script: &str, arguments: &[&str], keys: &[u8]) -> (String, i32) {
    let mut command = Command::new("setsid");
    command.args(if ctty { &["--ctty", "--wait"][..] } else { &["--wait"] });
    command.args(["sh", "-c", script, env!("CARGO_BIN_EXE_cofferdam")]).args(arguments).env("NO_COLOR", "1");
    at_terminal(command, keys)
}

#[test]
fn a_program_at_the_end_of_a_pipe_has_its_keys_beside_it() {
    let inside = "test ! -t 0 && test -t 1 && test -t 2 && stty size <&1 && cat && echo up && read key </dev/tty && echo got $key";
    let piped = "printf 'one\\ntwo\\n' | \"$0\" run -w / -t sh -c \"$1\"";
    let (screen, code) = shown(true, piped, &[inside], b"x\n");
    assert_eq!(code, 0, "{screen}");
    for part in ["24 80\r\n", "one\r\ntwo\r\n", "got x\r\n"] {
        assert!(screen.contains(part), "{part:?}: {screen}");
    }
    // Ctrl-C at the keys is the program's.
    let (screen, code) = shown(true, piped, &["trap 'echo caught; exit 4' INT; cat; echo up; sleep 5"], b"\x03");
    assert!(code == 4 && screen.contains("caught"), "{code}: {screen}");
    // Nobody reads the keys of a terminal that is not its own session's, or that another group has.
    let (screen, code) = shown(false, piped, &["true"], b"");
    assert!(code == 125 && screen.contains("hint: -i, without -t"), "{code}: {screen}");
    let behind = "set -m; printf x | \"$0\" run -w / -t true & wait $!";
    let (screen, code) = shown(true, behind, &[], b"");
    assert!(code == 125 && screen.contains("hint: -i, without -t"), "{code}: {screen}");
}

#[test]
fn a_pager_at_the_end_of_a_pipe_gets_the_option() {
    let directory = open_directory();
    for name in ["less", "more-or-less"] {
        let path = directory.path().join(name);
        std::fs::write(&path, "#!/bin/sh\ncat\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let place = directory.path().to_str().unwrap();
    let hint = "hint: -t";
    for (script, name, hinted) in [
        ("cd \"$1\"; echo text | \"$0\" run \"./$2\"", "less", true),
        ("cd \"$1\"; echo text | \"$0\" run \"./$2\"", "more-or-less", false),
        ("cd \"$1\"; echo text | \"$0\" run -q \"./$2\"", "less", false),
        ("cd \"$1\"; echo text | \"$0\" run \"./$2\" | cat", "less", false),
    ] {
        let (screen, code) = shown(true, script, &[place, name], b"");
        assert_eq!((code, screen.contains("text")), (0, true), "{screen}");
        assert_eq!(screen.contains(hint), hinted, "{script}: {screen}");
    }
}

#[test]
fn doctor_fits_on_one_screen() {
    let out = cofferdam().arg("doctor").env("HOME", "/nonexistent").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.lines().count() <= 24, "{text}");
    for part in ["fields of the default policy in full", "Other backends", "cofferdam doctor --verbose"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut lines: Vec<&str> = text.lines().filter(|line| line.len() > 40).collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "{text}");
}

/// For a user without access to cgroups of version 1, several mechanisms lack the same.
#[test]
fn doctor_says_each_reason_and_each_remedy_once() {
    let out = cofferdam().args(["doctor", "--verbose"]).env("HOME", "/nonexistent").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let remedies: Vec<&str> =
        text.lines().map(str::trim).filter(|line| line.starts_with("enable:") || line.starts_with("hint:")).collect();
    let own = |line: &&&str| !line.contains(": as for ") && !line.starts_with("enable: as for ");
    for remedy in remedies.iter().filter(own) {
        let what = remedy.split_once(": ").map_or(*remedy, |(_, what)| what);
        assert_eq!(text.matches(what).count(), 1, "{what}\n{text}");
    }
    assert!(text.contains("MECHANISM") && text.contains("The default policy of `eval`"), "{text}");
}
