//! Typical mistakes of new users: each such call is refused before anything runs, with a hint that says what to write.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use common::{code_and_stderr, cofferdam, eventually, has, is_root, needs, open_directory, outcome, output, parse};
use serde_json::Value;

/// Refused, with a hint that holds this text.
#[track_caller]
fn hinted(code: i32, arguments: &[&str], hint: &str) {
    let (found, text) = code_and_stderr(arguments);
    assert_eq!(found, code, "{arguments:?}: {text}");
    let message = text.split("hint: ").nth(1).unwrap_or_default();
    assert!(message.contains(hint), "{arguments:?}: {text}");
}

/// A home with a secret and a plain file, both readable by everybody.
fn home() -> tempfile::TempDir {
    let home = open_directory();
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    std::fs::write(home.path().join(".ssh/id"), "secret").unwrap();
    std::fs::write(home.path().join("plain"), "plain").unwrap();
    home
}

#[test]
fn eval_hides_credentials_in_what_a_volume_shows() {
    let home = home();
    let place = home.path().to_str().unwrap();
    let script = "cat /h/plain; cat /h/.ssh/id; true";
    for (option, value) in [("-v", format!("{place}:/h")), ("-v", format!("{place}:/h:cow"))] {
        if value.ends_with("cow") && !has("overlayfs") {
            continue;
        }
        let output = cofferdam().env("HOME", place).args(["eval", option, &value, "shell", script]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"plain"[..]), "{message}");
    }
    let denied = |arguments: &[&str]| {
        let output = cofferdam().env("HOME", place).args(["eval", "--dry-run"]).args(arguments).output().unwrap();
        let policy = parse(&output)["policy"].clone();
        policy["filesystem"]["deny"].as_array().unwrap().iter().any(|d| *d == format!("{place}/.ssh"))
    };
    assert!(denied(&["-v", &format!("{place}:/h"), "shell", "true"]));
    assert!(denied(&["--root", "host", "shell", "true"]));
    assert!(!denied(&["shell", "true"]), "nothing of the home shows anyway");
    // A policy decides for itself.
    let policy = home.path().join("policy.json");
    std::fs::write(&policy, r#"{"version": 1}"#).unwrap();
    assert!(!denied(&["--policy", policy.to_str().unwrap(), "-v", &format!("{place}:/h"), "shell", "true"]));
}

#[test]
fn a_tool_that_is_named_and_not_there_names_the_variable() {
    let named = |variable: &str, backend: &str| {
        let mut command = cofferdam();
        command.env(variable, "/nonexist").args(["run", "--backend", backend, "--", "/bin/true"]).output().unwrap()
    };
    for (variable, backend) in [("COFFERDAM_NSJAIL", "nsjail"), ("COFFERDAM_BWRAP", "bubblewrap")] {
        let output = named(variable, backend);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{message}");
        assert!(
            message.contains(&format!("(named by {variable})"))
                && message.contains(&format!("hint: correct {variable}")),
            "{message}"
        );
    }
}

#[test]
fn a_backend_whose_program_is_missing_runs_nothing() {
    let empty = open_directory();
    let run = |backend: &str| {
        let mut command = cofferdam();
        command.env_remove("COFFERDAM_NSJAIL").env_remove("COFFERDAM_BWRAP").env("PATH", empty.path());
        command.args(["run", "--backend", backend, "--", "/bin/echo", "ran"]).output().unwrap()
    };
    for backend in ["nsjail", "bubblewrap"] {
        let output = run(backend);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]), "{backend}: {message}");
        assert!(message.contains(backend) && message.contains("hint: "), "{backend}: {message}");
    }
    let output = run("auto");
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"ran\n"[..]), "the control: {output:?}");
}

#[test]
fn deny_refuses_values_that_are_not_paths() {
    let directory = open_directory();
    std::fs::write(directory.path().join("a"), "").unwrap();
    std::fs::write(directory.path().join("b"), "").unwrap();
    std::fs::write(directory.path().join("a,b"), "").unwrap();
    for option in ["--deny", "--protect"] {
        hinted(125, &["run", &format!("{option}=~/.x"), "--", "true"], &format!("{option} \"$HOME/.x\""));
        hinted(125, &["run", option, "/etc/*.conf", "--", "true"], &format!("{option} /etc"));
        let (code, text) = code_and_stderr(&["run", option, "", "--", "true"]);
        assert!(code == 125 && text.contains("empty"), "{text}");
        let here = |value: &str| {
            let output = cofferdam()
                .current_dir(directory.path())
                .args(["run", "--dry-run", option, value, "--", "true"])
                .output()
                .unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        let (code, text) = here("./b,./a");
        assert!(code == Some(125) && text.contains(&format!("hint: {option} ./b {option} ./a")), "{text}");
        assert_eq!(here("./a,b").0, Some(0), "there is such a path");
        assert_eq!(here("./a,c").0, Some(0), "nothing says that these are two");
    }
}

#[test]
fn volumes_that_contradict_themselves_and_paths_with_colons() {
    let directory = open_directory();
    let odd = directory.path().join("a:b");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("f"), "there").unwrap();
    for modes in ["ro,rw", "rw,cow"] {
        let (code, text) = code_and_stderr(&["run", "-v", &format!("/etc:/d:{modes}"), "--", "true"]);
        assert!(code == 125 && text.contains("contradicts itself"), "{text}");
    }
    let volume = format!("{}:/d", odd.display());
    hinted(125, &["run", "-v", &volume, "--", "true"], "symbolic link");
    // And what the hint says works.
    std::os::unix::fs::symlink(&odd, directory.path().join("link")).unwrap();
    let volume = format!("{}/link:/d", directory.path().display());
    let output = output(&["eval", "-v", &volume, "shell", "cat /d/f"]);
    assert_eq!(output.stdout, b"there", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn unusable_changes_directory_is_refused_before_the_run() {
    if !needs("overlayfs") {
        return;
    }
    let directory = open_directory();
    let place = directory.path().to_str().unwrap();
    let (ran, data) = (directory.path().join("ran"), directory.path().join("data"));
    std::fs::create_dir(&ran).unwrap();
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&ran, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    let closed = directory.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o555)).unwrap();
    let run = |keep: &str, script: &str| {
        let (witness, volume) = (format!("{}:/ran:rw", ran.display()), format!("{}:/d:cow", data.display()));
        let arguments = ["eval", "--keep-changes", keep, "-v", &witness, "-v", &volume, "shell", script];
        let output = cofferdam().args(arguments).stdout(Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let closed_below = format!("{}/x", closed.display());
    let bad: &[&str] = if is_root() { &["/proc/zz"] } else { &["/proc/zz", "/etc/x", &closed_below] };
    for keep in bad {
        let (code, text) = run(keep, "echo > /ran/it");
        assert!(code == 125 && text.contains(keep) && text.contains("--keep-changes"), "{text}");
        assert!(!ran.join("it").exists(), "it ran");
    }
    // Nothing kept leaves nothing, something kept stays.
    let keep = format!("{place}/new/kept");
    let (code, text) = run(&keep, "true");
    assert!(code == 0 && !directory.path().join("new").exists(), "{text}");
    let (code, text) = run(&keep, "echo > /d/x");
    assert!(code == 0 && std::path::Path::new(&keep).join("x").exists(), "{text}");
}

#[test]
fn changes_are_kept_in_the_locked_directory() {
    if !needs("overlayfs") {
        return;
    }
    let directory = open_directory();
    let place = directory.path().display();
    for name in ["work", "data", "elsewhere"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    let (work, data, keep) =
        (format!("{place}/work:/w:rw"), format!("{place}/data:/d:cow"), format!("{place}/work/out/kept"));
    let script = format!("mv /w/out /w/old && ln -s {place}/elsewhere /w/out && echo > /d/x");
    let arguments = ["eval", "--keep-changes", &keep, "-v", &work, "-v", &data, "shell", &script];
    let (code, text) = code_and_stderr(&arguments);
    assert_eq!(code, 0, "{text}");
    assert!(directory.path().join("work/old/kept/x").exists(), "{text}");
    assert_eq!(std::fs::read_dir(directory.path().join("elsewhere")).unwrap().count(), 0);
    assert!(text.contains(&format!("kept in {place}/work/old/kept")), "it is said where they are: {text}");
}

#[test]
fn removed_changes_directory_is_reported_as_lost() {
    if !needs("overlayfs") {
        return;
    }
    let directory = open_directory();
    let place = directory.path().display();
    for name in ["work", "data"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    let (work, data, keep) =
        (format!("{place}/work:/w:rw"), format!("{place}/data:/d:cow"), format!("{place}/work/kept"));
    let run = |options: &[&str], script: &str| {
        let fixed = ["--keep-changes", &keep, "-v", &work, "-v", &data, "shell", script];
        let arguments: Vec<&str> = ["eval"].iter().chain(options).chain(&fixed).copied().collect();
        code_and_stderr(&arguments)
    };
    for options in [&[][..], &["-q"]] {
        let (code, text) = run(options, "echo > /d/x; rmdir /w/kept");
        assert_eq!(code, 125, "{text}");
        assert!(text.contains("the changes are lost") && text.contains(&keep), "{text}");
        assert!(!text.contains("kept in"), "{text}");
    }
    let (code, text) = run(&[], "echo > /d/x; rmdir /w/kept; exit 3");
    assert!(code == 3 && text.contains("the changes are lost"), "the program's own failure stays: {text}");
    // The same, left alone: and so is a directory that nothing was to be kept in.
    let (code, text) = run(&[], "rmdir /w/kept");
    assert_eq!(code, 0, "{text}");
    let (code, text) = run(&[], "echo > /d/x");
    assert!(code == 0 && text.contains(&format!("kept in {keep}")), "{text}");
    assert!(directory.path().join("work/kept/x").exists(), "{text}");
}

#[test]
fn two_runs_do_not_keep_their_changes_in_one_directory() {
    if !needs("overlayfs") {
        return;
    }
    let directory = open_directory();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let keep = directory.path().join("kept");
    let volume = format!("{}:/d:cow", data.display());
    let arguments = |script| ["eval", "--keep-changes", keep.to_str().unwrap(), "-v", &volume, "-i", "shell", script];
    let mut first = cofferdam().args(arguments("read line")).stdin(Stdio::piped()).spawn().unwrap();
    eventually("the first run has its directory", Duration::from_secs(10), || keep.exists());
    // It is locked right after it was made.
    std::thread::sleep(Duration::from_millis(100));
    let (code, text) = code_and_stderr(&arguments("true"));
    assert!(code == 125 && text.contains("another run"), "{text}");
    drop(first.stdin.take());
    first.wait().unwrap();
    let (code, text) = code_and_stderr(&arguments("true"));
    assert_eq!(code, 0, "{text}");
}

/// The outcome on standard output and the reason on standard error of a call that the parser refuses.
#[track_caller]
fn both(arguments: &[&OsStr]) -> Value {
    let output = output(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("cofferdam: error: "), "{text}");
    let outcome = parse(&output);
    assert_eq!((output.status.code(), &outcome["outcome"]), (Some(125), &"setup_failed".into()), "{outcome:#}");
    assert_eq!(outcome["error"]["code"], 125);
    assert!(text.contains(outcome["error"]["message"].as_str().unwrap()), "{text}");
    outcome
}

#[test]
fn one_json_object_for_calls_that_cannot_be_read() {
    fn os(texts: &[&'static str]) -> Vec<&'static OsStr> {
        texts.iter().map(|text| OsStr::new(*text)).collect()
    }
    both(&os(&["run", "--json", "--bogus", "--", "true"]));
    both(&os(&["eval", "--json", "ruby", "1"]));
    both(&os(&["run", "--memory", "--json"]));
    both(&os(&["--json", "run", "--", "true"]));
    let raw = OsStr::from_bytes(b"\xff");
    let mut arguments = os(&["run", "--json", "--", "echo"]);
    arguments.push(raw);
    assert!(both(&arguments)["error"]["message"].as_str().unwrap().contains("UTF-8"));
    // Without --json, and with one of the program's, standard output stays empty.
    for arguments in [vec!["run", "--bogus"], vec!["run", "--bogus", "--", "x", "--json"]] {
        assert_eq!(output(&arguments).stdout, b"", "{arguments:?}");
    }
}

#[test]
fn options_of_other_tools_lead_to_ours() {
    for (arguments, hint) in [
        (&["run", "--rm", "x"][..], "leave it out"),
        (&["run", "-p", "80:80", "x"], "--network loopback"),
        (&["run", "-u", "1000", "x"], "user without rights"),
        (&["run", "-m", "1g", "x"], "--memory SIZE"),
        (&["run", "--mount", "type=bind", "x"], "-v SRC:DST"),
        (&["run", "--bind", "/a", "/b", "x"], "-v SRC:DST:rw"),
        (&["run", "--ro-bind", "/a", "/b", "x"], "-v SRC:DST"),
        (&["run", "--privileged", "x"], "nothing is privileged"),
        (&["run", "--env-file=.env", "x"], "-e NAME=VALUE"),
        (&["run", "--mem", "1g", "x"], "--memory"),
        (&["eval", "bash", "x"], "cofferdam eval shell"),
        (&["eval", "sh", "x"], "cofferdam eval shell"),
        (&["eval", "js", "x"], "cofferdam eval node"),
        (&["eval", "--session", "s", "python", "1"], "sessions are kept by `cofferdam mcp`"),
        (&["run", "--processes", "5", "--", "true"], "--pids N"),
        (&["run", "--audit", "./trail", "--", "true"], "--audit-trail ./trail records runs in a directory"),
        (&["run", "--allow-write", ".", "--", "true"], "--here, or -v SRC:DST:rw"),
        (&["run", "--allow-net=x.org", "--", "true"], "--allow HOST"),
        (&["run", "--copy", "--", "true"], "--here=cow"),
        (&["run", "--ro", ".", "--", "true"], "read-only"),
        (&["run", "--internet", "--", "true"], "--allow HOST"),
        (&["run", "--offline", "--", "true"], "no network by default"),
        (&["run", "--gpus", "all", "--", "true"], "no device of this machine"),
        (&["run", "--max-time", "5", "--", "true"], "--timeout TIME"),
        (&["run", "--tim", "5", "--", "true"], "'--timeout'"),
        (&["run", "--alow", "x.org", "--", "true"], "'--allow'"),
        // What is like no option of ours is the program's, as far as anybody can tell.
        (
            &["run", "--stage", "3", "true"],
            "an option of the program stands behind it: cofferdam run -- PROGRAM --stage",
        ),
        (&["doctor", "--offline"], "cofferdam doctor --help lists the options"),
        (&["eval", "javascript", "x"], "cofferdam eval node"),
        (&["rnu", "--", "x"], "'run'"),
        (&["runn", "--", "x"], "'run'"),
        (&["exec", "ls", "a b"], "cofferdam run -- ls 'a b'"),
        (&["sh", "-c", "a b"], "cofferdam run -- sh -c 'a b'"),
        (&["run", "--root", "minmal", "x"], "--root host, --root minimal"),
        (&["run", "--policy", "x.ncl", "x"], "--profile x.ncl"),
        (&["check", "x.toml"], "cofferdam environment check x.toml"),
        (&["run", "--profile", "x.json", "x"], "--policy x.json"),
    ] {
        hinted(125, arguments, hint);
    }
    // What is ours, though others have it too, goes on working.
    for good in [&["run", "--read-only", "--dry-run", "true"][..], &["run", "--root", "minimal", "--dry-run", "true"]] {
        assert_eq!(code_and_stderr(good).0, 0, "{good:?}");
    }
}

#[test]
fn programs_that_are_not_programs() {
    hinted(127, &["run", "-w", "/", "--", "python3 report.py"], "cofferdam run -- python3 report.py");
    hinted(127, &["run", "-w", "/", "--", "python3 report.py"], "cofferdam eval shell 'python3 report.py'");
    hinted(127, &["run", "-w", "/", "--best-effort", "limits.memory", "--", "true"], "--best-effort=limits.memory");
    let (code, text) = code_and_stderr(&["run", "-w", "/", "-e", "PATH=/root/x:/usr/bin", "--", "nosuch"]);
    assert!(code == 127 && text.contains("nosuch: not found"), "{text}");
    let directory = open_directory();
    let place = directory.path().to_str().unwrap();
    let volume = format!("{place}:{place}");
    let (code, text) = code_and_stderr(&["run", "-w", "/", "-v", &volume, "--", place]);
    assert!(code == 126 && text.contains("is a directory") && !text.contains("chmod"), "{text}");
    // A file that only lacks execute permission still gets that hint.
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").unwrap();
    hinted(126, &["run", "-w", "/", "-v", &volume, "--", plain.to_str().unwrap()], "chmod +x");
    // Where the sandbox's user is another one, a private directory is closed to it, unless it is mounted for it.
    let private = |path: &str| std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o7 == 0);
    if is_root() && private("/root") {
        let (code, text) = code_and_stderr(&["run", "-w", "/", "--", "/root/bin/it"]);
        assert!(code == 126 && text.contains("may not enter /root") && !text.contains("chmod"), "{text}");
        let closed = directory.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::copy("/bin/true", closed.join("it")).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
        let (code, text) = code_and_stderr(&["run", "-v", &format!("{place}:/mnt"), "--", "/mnt/closed/it"]);
        assert_eq!(code, 0, "{text}");
    }
    let (_, o) = outcome(&["run", "--json", "-w", "/", "--", "a b"]);
    assert!(o["error"]["hint"].as_str().unwrap().contains("without the quotes"), "{o:#}");
}

#[test]
fn output_of_a_dry_run_is_refused_as_a_policy() {
    let directory = open_directory();
    let file = directory.path().join("plan.json");
    std::fs::write(&file, output(&["run", "--dry-run", "-w", "/", "--", "true"]).stdout).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [&["check", file][..], &["run", "--policy", file, "--", "true"]] {
        let (code, text) = code_and_stderr(arguments);
        assert!(code != 0 && text.contains("--dry-run") && text.contains("`.policy`"), "{text}");
    }
}

#[test]
fn truncated_output_is_reported_despite_quiet() {
    let (code, text) = code_and_stderr(&["run", "-q", "--output-limit", "10", "--", "echo", "0123456789abcdef"]);
    assert!(code == 0 && text.contains("cut after 10 bytes"), "{text}");
    let (code, text) = code_and_stderr(&["run", "-q", "--output-limit", "100", "--", "echo", "0123456789abcdef"]);
    assert_eq!((code, text.as_str()), (0, ""));
}

#[test]
fn output_that_goes_to_a_pipe_is_not_cut_unless_asked_for() {
    const LENGTH: usize = 24 << 20;
    let written = |options: &[&str]| {
        let arguments = [&["run", "-q"], options, &["--", "head", "-c", "24M", "/dev/zero"]].concat();
        let output = output(&arguments);
        (output.status.code(), output.stdout.len(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(written(&[]), (Some(0), LENGTH, String::new()));
    let (code, length, text) = written(&["--output-limit", "1m"]);
    assert!((code, length) == (Some(0), 1 << 20) && text.contains("cut after"), "{code:?}, {length}: {text}");
}

#[test]
fn an_option_that_no_command_has_is_not_offered_as_a_value() {
    for (arguments, hint) in [
        (&["eval", "python", "-c", "print(1)"][..], "cofferdam eval python 'print(1)'"),
        (&["eval", "node", "-e", "console.log(1)"], "cofferdam eval ENVIRONMENT CODE"),
        (&["eval", "python", "-x"], "cofferdam eval ENVIRONMENT CODE -- -x"),
        (&["eval", "python", "-1"], "on standard input: cofferdam eval ENVIRONMENT -"),
        (&["run", "-x", "true"], "cofferdam run -- PROGRAM -x"),
        (&["check", "--foo", "x"], "cofferdam check --help"),
        (&["environment", "list", "--foo"], "cofferdam environment --help"),
        (&["export", "--foo", "a.ncl"], "cofferdam export --help"),
        (&["skill", "run", "--foo"], "cofferdam skill run NAME -- --foo"),
        (&["skill", "list", "--foo"], "cofferdam skill --help"),
        (&["doctor", "-x"], "cofferdam doctor --help"),
        (&["--foo"], "cofferdam --help"),
        // The control: an option that is close is named.
        (&["run", "--memroy", "1g", "--", "true"], "'--memory'"),
    ] {
        hinted(125, arguments, hint);
        let (_, text) = code_and_stderr(arguments);
        assert!(!text.contains("as a value"), "{text}");
    }
    hinted(125, &["run", "--network", "example.org", "--", "true"], "--allow example.org");
    hinted(125, &["eval", "python", "--file", "-"], "cofferdam eval ENVIRONMENT -");
    let directory = open_directory();
    let file = directory.path().join("a.sh");
    std::fs::write(&file, "echo $1").unwrap();
    let file = file.to_str().unwrap();
    hinted(125, &["eval", "shell", file, "b"], &format!("cofferdam eval shell --file {file} -- b"));
    assert_eq!(output(&["eval", "shell", "--file", file, "--", "b"]).stdout, b"b\n");
    // What the hints say works.
    assert_eq!(output(&["eval", "python", "print(1)"]).stdout, b"1\n");
    assert_eq!(output(&["eval", "shell", "echo $1", "--", "-x"]).stdout, b"-x\n");
    assert_eq!(output(&["run", "--", "echo", "-x"]).stdout, b"-x\n");
}
