//! Impossible calls: each is refused in time, with a reason and without leftovers. And hosts that lack a mechanism.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{PYTHON, code_and_stderr, cofferdam, has, is_root, needs, open_directory, outcome, parse};
use serde_json::Value;

/// Refused with this exit code and this word in the reason, both in words and as JSON, and nothing has started.
#[track_caller]
fn refused(arguments: &[&str], code: i32, part: &str) {
    let (found, text) = code_and_stderr(arguments);
    assert_eq!(found, code, "{arguments:?}: {text}");
    assert!(text.starts_with("cofferdam: error: ") && text.contains(part), "{arguments:?}: {text}");
    let position = arguments.iter().position(|a| *a == "run" || *a == "eval").unwrap();
    let mut with_json = arguments.to_vec();
    with_json.insert(position + 1, "--json");
    let (found, o) = outcome(&with_json);
    assert_eq!((found, &o["outcome"], &o["error"]["code"]), (code, &"setup_failed".into(), &code.into()), "{o:#}");
    assert!(o["error"]["message"].as_str().unwrap().contains(part), "{o:#}");
    assert_eq!((&o["exit_code"], &o["success"]), (&Value::Null, &false.into()));
}

#[test]
fn exit_code_is_126_if_not_executable_and_127_if_not_found() {
    let directory = open_directory();
    let make = |name: &str, text: &[u8], mode| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let place = directory.path().to_str().unwrap();
    let volume = format!("{place}:{place}");
    let plain = make("plain", b"#!/bin/sh\n", 0o644);
    let garbage = make("garbage", b"\x01\x02\x03 no program", 0o755);
    let orphan = make("orphan", b"#!/no/such/interpreter\n", 0o755);
    let empty = make("empty", b"", 0o755);
    for (program, code) in [
        (plain.as_str(), 126),
        (garbage.as_str(), 126),
        (place, 126),
        (empty.as_str(), 126),
        (orphan.as_str(), 127),
        ("/no/such/program", 127),
        ("no-such-program", 127),
        ("/etc/passwd/x", 127),
        ("/etc/shadow", 126),
    ] {
        for spawn in ["--spawn", "--no-spawn"] {
            refused(&["run", "-v", &volume, "-w", "/", spawn, "--", program], code, program);
        }
    }
    refused(&["run", "-w", "/", "--", ""], 125, "argv");
}

#[test]
fn directories_that_are_denied_or_missing() {
    let directory = open_directory();
    let place = directory.path().to_str().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    refused(&["run", "-w", "/no/such/directory", "--", "true"], 125, "/no/such/directory");
    refused(&["run", "-w", file.to_str().unwrap(), "-v", &format!("{place}:{place}"), "--", "true"], 125, "file");
    refused(&["run", "--deny", place, "-w", place, "--", "true"], 125, place);
    refused(&["run", "--deny", place, "-w", &format!("{place}/below"), "--", "true"], 125, place);
    refused(&["run", "--root", "/no/such/root", "-w", "/", "--", "true"], 125, "/no/such/root");
    refused(
        &["run", "--keep-changes", place, "-v", &format!("{place}:/mnt:cow"), "-w", "/", "--", "true"],
        125,
        "not empty",
    );
    // Gone while we stand in it.
    let gone = directory.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let script = "cd \"$1\" && rmdir \"$1\" && exec \"$0\" run -- true";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_cofferdam"), gone.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("working directory"));
}

#[test]
fn mounts_that_cannot_be() {
    let directory = open_directory();
    let place = directory.path().to_str().unwrap();
    refused(&["run", "-v", "/no/such/source:/mnt", "--", "true"], 125, "/no/such/source");
    refused(&["run", "-v", &format!("{place}:/mnt:sideways"), "--", "true"], 125, "sideways");
    refused(&["run", "-v", "/etc/passwd:/mnt:cow", "-w", "/", "--", "true"], 125, "/etc/passwd");
    refused(&["run", "--tmpfs", "/mnt:size=0", "--", "true"], 125, "size");
    refused(&["run", "--tmpfs", "relative:size=1x", "--", "true"], 125, "size");
}

#[test]
fn limits_of_zero_and_beyond_the_host() {
    for (option, zero, huge) in [
        ("--memory", "0", "99999999999g"),
        ("--cpus", "0", "1e30"),
        ("--timeout", "0s", "99999999999999999999s"),
        ("--cpu-time", "0", "99999999999999999999s"),
        ("--pids", "0", "99999999999"),
        ("--open-files", "0", "99999999999"),
        ("--file-size", "0", "99999999999g"),
        ("--tmpfs-size", "0", "99999999999g"),
        ("--output-limit", "1.5.5", "99999999999999g"),
    ] {
        for value in [zero, huge, "many", ""] {
            refused(
                &["run", option, value, "--", "true"],
                125,
                option.trim_start_matches('-').split('-').next().unwrap(),
            );
        }
    }
    // What the schema allows and this process may not raise is refused, since an option names it.
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if let Some(hard) = hard.filter(|h| *h < 1 << 20) {
        refused(&["run", "--open-files", &(hard + 1).to_string(), "--", "true"], 125, "open_files");
        let o = outcome(&["run", "--json", "--best-effort", "--open-files", &(hard + 1).to_string(), "--", "true"]).1;
        assert_eq!(o["enforcement"]["limits.open_files"]["strength"], "partial", "{o:#}");
    }
    if !has("cgroup memory") {
        refused(&["run", "--memory", "64m", "--", "true"], 125, "limits.memory_mb");
    }
    // Fewer than setup needs.
    // What setup needs is known before, and is enough.
    refused(&["run", "--open-files", "15", "--", "true"], 125, "at least 16");
    for trace in ["--trace", "--no-trace"] {
        let (code, text) = code_and_stderr(&["run", "-w", "/", trace, "--open-files", "16", "--", "true"]);
        assert_eq!(code, 0, "{text}");
    }
    // More memory than the machine has is a limit that never bites.
    let o = outcome(&["run", "--json", "--memory", "1000g", "--best-effort", "--", "true"]).1;
    assert_eq!(o["outcome"], "exited", "{o:#}");
}

#[test]
fn policies_that_cannot_be_read_or_parsed() {
    let directory = open_directory();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let many: String = (0..20_000).map(|i| format!("\"k{i}\": {i},")).collect();
    for (path, part) in [
        (file("empty", b""), "empty"),
        (file("not-json", b"limits: 3"), "not-json"),
        (file("cut", b"{\"version\": 1, \"limits\": {"), "cut"),
        (file("not-utf-8", b"{\"version\": 1, \"id\": \"\xff\xfe\"}"), "UTF-8"),
        (file("version", b"{\"version\": 2}"), "$.version"),
        (file("unknown", b"{\"version\": 1, \"colour\": 1}"), "colour"),
        (file("twice", b"{\"version\": 1, \"version\": 1}"), "version"),
        (file("nul", b"{\"version\": 1, \"command\": {\"cwd\": \"/a\\u0000b\"}}"), "cwd"),
        (file("deep", deep.as_bytes()), "deep"),
        (file("many", format!("{{{many}\"version\": 1}}").as_bytes()), "many"),
        (directory.path().join("missing").to_str().unwrap().to_owned(), "missing"),
        (directory.path().to_str().unwrap().to_owned(), "cannot read"),
    ] {
        let start = Instant::now();
        refused(&["run", "--policy", &path, "--", "true"], 125, part);
        assert!(start.elapsed() < Duration::from_secs(5), "{path}: {:?}", start.elapsed());
    }
    let sealed = file("sealed", b"{\"version\": 1}");
    std::fs::set_permissions(&sealed, std::fs::Permissions::from_mode(0o0)).unwrap();
    if !is_root() {
        refused(&["run", "--policy", &sealed, "--", "true"], 125, "sealed");
    }
}

#[test]
fn a_hundred_megabytes_of_policy_are_refused_at_once() {
    let directory = open_directory();
    let path = directory.path().join("huge.json");
    let mut text = b"{\"version\": 1, \"description\": \"".to_vec();
    text.resize(100 << 20, b'x');
    text.extend_from_slice(b"\"}");
    std::fs::write(&path, &text).unwrap();
    let start = Instant::now();
    refused(&["run", "--policy", path.to_str().unwrap(), "--", "true"], 125, "bytes");
    let mut child = cofferdam()
        .args(["run", "--policy", "-", "--", "true"])
        .stdin(std::fs::File::open(&path).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(125));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn non_utf8_output_is_unchanged_and_replaced_only_in_json() {
    let bytes = "printf 'a\\377\\376b\\000c\\033[2J'";
    let output = cofferdam().args(["eval", "shell", bytes]).output().unwrap();
    assert_eq!(output.stdout, b"a\xff\xfeb\0c\x1b[2J");
    let o = outcome(&["eval", "--json", "shell", bytes]).1;
    assert_eq!(o["stdout"], "a\u{fffd}\u{fffd}b\0c\u{1b}[2J");
}

#[test]
fn arguments_of_any_bytes_get_an_answer() {
    for bad in [&b"\xff"[..], b"a\xc3", b"\xed\xa0\x80"] {
        let output = cofferdam().arg("run").arg("--").arg("echo").arg(OsStr::from_bytes(bad)).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(String::from_utf8_lossy(&output.stderr).contains("not valid UTF-8"));
    }
    // Variables of the caller that are not UTF-8 are ignored.
    let output = cofferdam().env("BAD", OsStr::from_bytes(b"\xff")).args(["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let long = "x".repeat(100_000);
    let (code, text) = code_and_stderr(&["run", "--", "sh", "-c", "exit ${#1}", "sh", &long]);
    assert!(code == 160 || code == 125, "{code} {text}");
    let (code, _) = code_and_stderr(&["run", "--", "echo", "", " ", "\n", "-n", "--", "é\u{202e}"]);
    assert_eq!(code, 0);
}

fn shell(line: &str) -> Output {
    Command::new("sh").args(["-c", line, env!("CARGO_BIN_EXE_cofferdam")]).output().unwrap()
}

#[test]
fn closed_and_full_streams() {
    for closed in [">&-", "2>&-", "<&-", ">&- 2>&-", ">&- 2>&- <&-"] {
        let output = shell(&format!("\"$0\" run -i -- sh -c 'echo out; echo err >&2; exit 9' {closed}"));
        assert_eq!(output.status.code(), Some(9), "{closed}: {output:?}");
    }
    // A descriptor that the sandbox's plumbing would land on must not become the program's.
    let output = shell("\"$0\" run -- sh -c 'ls /proc/self/fd | wc -l' <&- 2>&-");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "4");
    if Path::new("/dev/full").exists() {
        let output = shell("\"$0\" run --json -- true > /dev/full");
        assert_eq!(output.status.code(), Some(125));
        let output = shell("\"$0\" run --timeout 20s -- sh -c 'trap \"\" PIPE; echo x; exit 3' > /dev/full");
        assert_eq!(output.status.code(), Some(3), "the program decides what a broken pipe means: {output:?}");
        let output = shell("\"$0\" run -- no-such-program 2> /dev/full");
        assert_eq!(output.status.code(), Some(127));
    }
}

#[test]
fn full_cow_layer_gives_enospc_and_leaves_the_host_unchanged() {
    if !needs("overlayfs") {
        return;
    }
    let directory = open_directory();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(directory.path().join("before"), "before").unwrap();
    let volume = format!("{0}:{0}:cow", directory.path().display());
    let place = directory.path().to_str().unwrap();
    let code =
        "head -c 5000000 /dev/zero > big; echo $?; echo more > small; rm -f big; echo after > small && cat small";
    let options = ["run", "--json", "-v", &volume, "-w", place];
    let o = outcome(&[&options[..], &["--layer-size", "2m", "--", "sh", "-c", code]].concat()).1;
    assert_eq!(o["outcome"], "exited", "{o:#}");
    assert!(o["stderr"].as_str().unwrap().contains("No space left"), "{o:#}");
    assert!(o["stdout"].as_str().unwrap().ends_with("after\n"), "{o:#}");
    assert_eq!(o["error"], Value::Null);
    let names =
        "import os\ntry:\n  for i in range(1000): open(f'f{i}', 'w').close()\nexcept OSError as e: print(e.errno)";
    let o = outcome(&[&options[..], &["--layer-files", "100", "--", PYTHON, "-c", names]].concat()).1;
    assert_eq!(o["stdout"], "28\n", "{o:#}");
    assert!(o["changes"].as_array().unwrap().len() <= 100);
    // As many as were named, also where they are few; with fewer than overlayfs can be mounted with, nothing starts.
    for files in ["2", "3", "7"] {
        let o = outcome(&[&options[..], &["--layer-files", files, "--", PYTHON, "-c", names]].concat()).1;
        assert_eq!((&o["stdout"], &o["outcome"]), (&"28\n".into(), &"exited".into()), "{files}: {o:#}");
        assert_eq!(o["changes"].as_array().unwrap().len().to_string(), files, "{o:#}");
    }
    let (code, o) = outcome(&[&options[..], &["--layer-files", "1", "--", "true"]].concat());
    assert_eq!((code, &o["error"]["hint"]), (125, &"--layer-files 2 or more".into()), "{o:#}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["before"]);
}

#[test]
fn unkeepable_changes_are_reported() {
    let directory = open_directory();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let place = directory.path().to_str().unwrap();
    let volume = format!("{place}:{place}:cow");
    let kept = tempfile::tempdir().unwrap();
    let keep = kept.path().join("k");
    let o = outcome(&[
        "run",
        "--json",
        "-v",
        &volume,
        "-w",
        place,
        "--keep-changes",
        keep.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "mkfifo fifo; echo x > file",
    ])
    .1;
    assert_eq!(o["outcome"], "exited", "{o:#}");
    assert_eq!(std::fs::read_to_string(keep.join("file")).unwrap(), "x\n");
    assert!(!keep.join("fifo").exists());
    assert!(o["error"]["message"].as_str().unwrap().contains("fifo"), "{o:#}");
}

/// Runs the command inside a user namespace in which no other one can be made.
fn without_user_namespaces(arguments: &[&str]) -> Option<Output> {
    // As root the one id that bubblewrap maps would be 0, which no sandbox gets; and the build may be root's alone to see.
    let place = open_directory();
    let copy = place.path().join("cofferdam");
    std::fs::copy(env!("CARGO_BIN_EXE_cofferdam"), &copy).unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"];
    let enclose = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--disable-userns", "--chdir", "/", "--"];
    let line = [if is_root() { &nobody[..] } else { &[] }, &enclose].concat();
    let attempt = || {
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).arg(&copy).args(arguments).current_dir("/").stdin(Stdio::null()).output()
    };
    // A child of another test's holds the copy open for writing until it executes something.
    let busy = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("Text file busy");
    let mut tried = attempt();
    for _ in 0..100 {
        if !tried.as_ref().is_ok_and(busy) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        tried = attempt();
    }
    let why = match tried {
        Ok(output) if !String::from_utf8_lossy(&output.stderr).starts_with("bwrap:") => return Some(output),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(e) => format!("no bubblewrap to take user namespaces away with: {e}"),
    };
    assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none() || !is_root(), "{why}");
    eprintln!("skipped: {why}");
    None
}

#[test]
fn auto_falls_back_to_landlock_only_if_it_can_enforce() {
    let Some(output) = without_user_namespaces(&["run", "--", "true"]) else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("user namespaces cannot be had") && text.contains("landlock"), "{text}");
    assert!(text.contains("hint: "), "{text}");

    let open = ["--best-effort=filesystem,process,limits", "--root", "minimal", "-w", "/"];
    let arguments = [&["run", "--json"], &open[..], &["--", "sh", "-c", "echo in; exit 4"]].concat();
    let output = without_user_namespaces(&arguments).unwrap();
    let o = parse(&output);
    assert_eq!(
        (&o["backend"], &o["exit_code"], &o["stdout"]),
        (&"landlock".into(), &4.into(), &"in\n".into()),
        "{o:#}"
    );
    assert!(o["backend_reason"].as_str().unwrap().contains("user namespaces cannot be had"), "{o:#}");

    let jail = [&["run", "--backend", "jail"], &open[..], &["--", "true"]].concat();
    let output = without_user_namespaces(&jail).unwrap();
    assert_eq!(output.status.code(), Some(125));

    let report = parse(&without_user_namespaces(&["doctor", "--json"]).unwrap());
    let row = report["mechanisms"].as_array().unwrap().iter().find(|r| r["name"] == "user namespaces").unwrap();
    assert_eq!(row["available"], false);
    assert!(row["enable"].as_str().unwrap().contains("container or sandbox"), "{row:#}");
    let support = &report["support"]["run"][0];
    assert_eq!(support["backend"], "jail");
    assert_ne!(support["unavailable"], Value::Null, "what doctor says is what a run finds");
}

/// Starts the command behind a filter that gives `errno` for some system calls, as the calling user.
///
/// The number 0 stands for new user namespaces by `clone`.
fn behind_a_filter(calls: &[i64], errno: u32, arguments: &[&str]) -> Output {
    let script = "
import ctypes, os, platform, struct, sys
arch = {'x86_64': 0xc000003e, 'aarch64': 0xc00000b7}[platform.machine()]
errno, calls = int(sys.argv[1]), [int(n) for n in sys.argv[2].split(',')]
insns = [(0x20, 0, 0, 0)]
refuse = (0x06, 0, 0, 0x50000 | errno)
clone = {'x86_64': 56, 'aarch64': 220}[platform.machine()]
for n in calls:
    if n: insns += [(0x15, 0, 1, n), refuse]
    else: insns += [(0x15, 0, 4, clone), (0x20, 0, 0, 16), (0x45, 0, 1, 0x10000000), refuse, (0x20, 0, 0, 0)]
insns += [(0x06, 0, 0, 0x7fff0000)]
code = b''.join(struct.pack('HBBI', *i) for i in insns)
buf = ctypes.create_string_buffer(code)
prog = struct.pack('HxxxxxxQ', len(insns), ctypes.addressof(buf))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(prog)) == 0, ctypes.get_errno()
os.execv(sys.argv[3], sys.argv[3:])
";
    let calls: Vec<String> = calls.iter().map(i64::to_string).collect();
    Command::new(PYTHON)
        .args(["-c", script, &errno.to_string(), &calls.join(","), env!("CARGO_BIN_EXE_cofferdam")])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

const LANDLOCK_CREATE_RULESET: i64 = 444;
const CLONE3: i64 = 435;
const SECCOMP: i64 = if cfg!(target_arch = "aarch64") { 277 } else { 317 };
const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSYS: u32 = 38;

#[test]
fn without_landlock_the_jail_holds_by_its_mounts_and_says_so() {
    let output = behind_a_filter(&[LANDLOCK_CREATE_RULESET], ENOSYS, &["run", "--json", "--", "sh", "-c", "echo in"]);
    let o = parse(&output);
    if o["outcome"] == "setup_failed" {
        // Then it is refused for want of it, and says so.
        assert!(o["error"]["message"].as_str().unwrap().contains("Landlock"), "{o:#}");
    } else {
        assert_eq!((&o["stdout"], &o["backend"]), (&"in\n".into(), &"jail".into()), "{o:#}");
        let reason = o["enforcement"]["filesystem.root"]["reason"].as_str().unwrap();
        assert!(!reason.contains("Landlock ABI"), "{reason}");
    }
    let options = ["run", "--backend", "landlock", "--best-effort=filesystem,process,limits", "--", "true"];
    let output = behind_a_filter(&[LANDLOCK_CREATE_RULESET], ENOSYS, &options);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("Landlock"), "{text}");
    let both = behind_a_filter(&[LANDLOCK_CREATE_RULESET, CLONE3, 0], EPERM, &["run", "--", "true"]);
    assert_eq!(both.status.code(), Some(125), "{}", String::from_utf8_lossy(&both.stderr));
}

#[test]
fn without_seccomp_nothing_runs() {
    for errno in [EINVAL, ENOSYS, EPERM] {
        for backend in ["jail", "landlock"] {
            let options = [
                "run",
                "--backend",
                backend,
                "--best-effort=filesystem,process,limits",
                "--root",
                "minimal",
                "-w",
                "/",
            ];
            let arguments = [&options[..], &["--", "echo", "ran"]].concat();
            let output = behind_a_filter(&[SECCOMP], errno, &arguments);
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{text}");
            assert!(text.contains("seccomp") || text.contains("filter"), "{text}");
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn outer_filter_without_clone3_is_tolerated() {
    for errno in [EPERM, ENOSYS] {
        for (backend, more) in [("jail", ""), ("landlock", "--best-effort=filesystem,process,limits")] {
            let mut arguments = vec!["run", "--json", "--backend", backend, "--root", "minimal", "-w", "/"];
            arguments.extend(Some(more).filter(|m| !m.is_empty()));
            let o = parse(&behind_a_filter(&[CLONE3], errno, &[&arguments[..], &["--", "echo", "in"]].concat()));
            assert_eq!((&o["backend"], &o["stdout"]), (&backend.into(), &"in\n".into()), "{o:#}");
        }
    }
}

#[test]
fn auto_falls_back_when_a_seccomp_filter_refuses_namespaces() {
    let container = |arguments: &[&str]| {
        // clone3 is answered as unknown, so that clone is asked, whose flags the filter sees.
        let calls = [CLONE3, 0];
        behind_a_filter(&calls, EPERM, arguments)
    };
    let output = container(&["run", "--", "true"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("user namespaces cannot be had") && text.contains("cannot stand in"), "{text}");
    let open = ["--best-effort=filesystem,process,limits", "--root", "minimal", "-w", "/"];
    let o = parse(&container(&[&["run", "--json"], &open[..], &["--", "id", "-u"]].concat()));
    assert_eq!((&o["backend"], &o["outcome"]), (&"landlock".into(), &"exited".into()), "{o:#}");
    assert_ne!(o["stdout"], "0\n", "no sandbox runs as user 0");
}

#[test]
fn root_without_caps_is_refused_and_container_root_is_remapped() {
    if !is_root() {
        eprintln!("skipped: only root can be root without capabilities");
        return;
    }
    let with = |capabilities: &str, arguments: &[&str]| {
        Command::new("setpriv")
            .args([&format!("--bounding-set=-all{capabilities}"), "--inh-caps=-all", env!("CARGO_BIN_EXE_cofferdam")])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    for backend in ["auto", "jail", "landlock"] {
        let output = with("", &["run", "--backend", backend, "--best-effort=filesystem,process,limits", "--", "true"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(text.contains("no sandbox runs as user 0"), "{text}");
    }
    let open = ["--best-effort=filesystem,process,limits", "--root", "minimal", "-w", "/"];
    let container = ",+chown,+dac_override,+fowner,+setgid,+setuid,+kill,+setpcap,+sys_chroot,+mknod";
    let o = parse(&with(container, &[&["run", "--json"], &open[..], &["--", "id", "-u"]].concat()));
    assert_eq!((&o["backend"], &o["outcome"]), (&"landlock".into(), &"exited".into()), "{o:#}");
    assert_ne!(o["stdout"], "0\n");
}

#[test]
fn an_empty_path_is_not_the_working_directory() {
    let directory = open_directory();
    // What a foreign repository could have there.
    std::fs::create_dir(directory.path().join("ci")).unwrap();
    let policy = r#"{"version":1,"command":{"argv":["/bin/echo","of the repository"]}}"#;
    std::fs::write(directory.path().join("ci/policy.json"), policy).unwrap();
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let command = |arguments: &[&str]| {
        let mut command = cofferdam();
        command.current_dir(directory.path()).args(arguments).stdin(Stdio::null());
        command
    };
    for (arguments, option) in [
        (&["run", "--profiles", "", "--profile", "ci"][..], "--profiles"),
        (&["run", "--profiles=", "--profile", "ci"], "--profiles"),
        (&["run", "--audit-trail", "", "--", "true"], "--audit-trail"),
        (&["eval", "--audit-trail=", "shell", "true"], "--audit-trail"),
        (&["run", "--keep-changes", "", "--", "true"], "--keep-changes"),
        (&["skill", "list", "--registry", ""], "--registry"),
        (&["skill", "run", "--output", "", "x"], "--output"),
        (&["skill", "run", "--input", "f", "--input", "", "x"], "--input"),
        (&["skill", "verify", ""], "the argument"),
        (&["audit", "verify", "--dir", ""], "--dir"),
        (&["mcp", "--audit-trail", ""], "--audit-trail"),
    ] {
        let output = command(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{arguments:?}: {text}");
        assert!(text.contains(&format!("the value of {option} is empty\nhint: ")), "{arguments:?}: {text}");
        assert_eq!(names(), ["ci"], "{arguments:?}");
    }
    // The program's own arguments, and the caller's variables, may be empty.
    let ran = command(&["run", "--profiles", ".", "--profile", "ci", "--", "/bin/echo", "", "x"]).output().unwrap();
    assert_eq!(ran.stdout, b" x\n", "{ran:?}");
    let home = open_directory();
    let empty = ["COFFERDAM_PROFILES", "COFFERDAM_AUDIT", "COFFERDAM_SKILLS"];
    for arguments in [&["run", "--", "true"][..], &["skill", "list"], &["audit", "list"]] {
        let mut command = command(arguments);
        command.envs(empty.map(|name| (name, "")));
        command.env("HOME", home.path()).env_remove("XDG_STATE_HOME").output().unwrap();
        assert_eq!(names(), ["ci"], "{arguments:?}");
    }
}

/// A caller that ignores SIGCHLD passes that on to the command.
#[test]
fn a_caller_that_ignores_sigchld_gets_the_status() {
    if !needs("user namespaces") {
        return;
    }
    let directory = open_directory();
    let volume = format!("{0}:{0}:rw", directory.path().display());
    for ignored in ["", "IGNORE"] {
        let script = format!(
            "import os,signal,sys\nif '{ignored}': signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.execv(sys.argv[1], sys.argv[1:])"
        );
        let output = Command::new(PYTHON)
            .args(["-c", &script, env!("CARGO_BIN_EXE_cofferdam"), "run", "-v", &volume])
            .args(["--", "sh", "-c", "(exit 4); echo $?; exit 3"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"4\n"[..]), "{ignored}: {output:?}");
    }
}
