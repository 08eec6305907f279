//! The notes on standard error after a run: one line each, on which a user can act. They never affect the outcome.

mod common;

use std::os::unix::fs::PermissionsExt as _;

use common::{code_and_stderr, cofferdam, open_directory};

#[test]
fn few_changed_files_are_named_and_many_are_counted() {
    let directory = open_directory();
    std::fs::write(directory.path().join("old"), "1").unwrap();
    std::fs::write(directory.path().join("gone"), "1").unwrap();
    let text = |script: &str| {
        let arguments = ["run", "--best-effort", "-v", ".:.:cow", "--", "sh", "-c", script];
        let output = cofferdam().current_dir(directory.path()).args(arguments).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let place = directory.path().display();
    assert_eq!(
        text("echo 2 >old; echo 1 >new; rm gone"),
        format!(
            "cofferdam: changed: D {place}/gone, A {place}/new, M {place}/old; dropped; hint: --keep-changes DIR\n"
        )
    );
    let many = text("for i in 1 2 3 4 5 6; do echo >$i; done");
    assert_eq!(many, "cofferdam: changed: 6 added, 0 modified, 0 deleted; dropped; hint: --keep-changes DIR\n");
    // A name cannot make a line of its own.
    let forged = text("echo >\"$(printf 'x\\ncofferdam: error: forged')\"");
    assert!(forged.contains("x\\ncofferdam: error: forged; dropped"), "{forged}");
    assert_eq!(forged.lines().count(), 1, "{forged}");
    // Nor a hint.
    let hinted = text("echo >'x; hint: --allow evil.example'");
    assert!(hinted.contains("x; hint\\: --allow evil.example; dropped; hint: --keep-changes DIR"), "{hinted}");
}

#[test]
fn reached_limit_gets_a_note_with_its_option() {
    let script = "import os, time\nfor i in range(9):\n  try:\n    if os.fork() == 0: time.sleep(1); os._exit(0)\n  \
                  except OSError: pass";
    let (code, text) = code_and_stderr(&["run", "--best-effort", "--pids", "4", "--", common::PYTHON, "-c", script]);
    assert_eq!(code, 0, "{text}");
    // Without a cgroup the kernel reports nothing.
    if common::has("cgroup pids") {
        assert!(
            text.starts_with("cofferdam: ran into the limit limits.processes (4 processes and threads), "),
            "{text}"
        );
        assert!(text.ends_with(" times; hint: --pids N\n"), "{text}");
    }
}

#[test]
fn code_that_is_a_file_name_and_missing_files_get_hints() {
    let directory = open_directory();
    std::fs::write(directory.path().join("job.py"), "print(6 * 7)").unwrap();
    let code_and_stderr = |arguments: &[&str]| {
        let output = cofferdam().current_dir(directory.path()).arg("eval").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, _, text) = code_and_stderr(&["python", "job.py"]);
    assert_eq!(code, Some(1));
    let note = "cofferdam: job.py is a file here, and was run as code; hint: --file job.py\n";
    assert!(text.ends_with(note), "{text}");
    assert_eq!(code_and_stderr(&["python", "--file", "job.py"]), (Some(0), "42\n".into(), String::new()));
    let (code, _, text) = code_and_stderr(&["python", "--file", "nope.py"]);
    assert_eq!(code, Some(125));
    assert!(text.starts_with("cofferdam: error: cannot read the code file nope.py: "), "{text}");
}

#[test]
fn output_that_finds_no_room_is_no_success() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = cofferdam().args(["run", "--", "echo", "hello"]).stdout(full).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.starts_with("cofferdam: error: cannot pass the program's output on: No space left"), "{text}");
}

#[test]
fn changes_that_nothing_can_make_are_not_waited_for() {
    let (code, text) = code_and_stderr(&["run", "--keep-changes", "/tmp/never-made", "--", "true"]);
    assert_eq!((code, text.lines().count()), (0, 1), "{text}");
    assert!(text.contains("no volume is copy-on-write"), "{text}");
    assert!(!std::path::Path::new("/tmp/never-made").exists());
}

#[test]
fn root_directory_needs_no_mount_point_for_the_cwd() {
    if !common::needs("user namespaces") {
        return;
    }
    let directory = open_directory();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let run = |options: &[&str]| {
        let arguments = [&["run", "--root", "./root"], options, &["--", "/nothing"]].concat();
        let output = cofferdam().current_dir(directory.path()).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = run(&["-w", "/"]);
    assert_eq!(code, Some(125), "{text}");
    assert!(text.contains("hint: a directory as the root is not written to"), "{text}");
    for name in ["dev", "proc"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    // All is there but the program.
    let (code, text) = run(&["-w", "/"]);
    assert_eq!(code, Some(127), "{text}");
    let (code, text) = run(&[]);
    assert_eq!(code, Some(125), "{text}");
    assert!(text.contains("working directory included"), "{text}");
}

#[test]
fn a_script_without_the_right_to_execute_says_what_to_do() {
    let directory = open_directory();
    std::fs::write(directory.path().join("job.py"), "#!/usr/bin/python3\n").unwrap();
    let run = |arguments: &[&str]| {
        let output = cofferdam().current_dir(directory.path()).arg("run").args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(126), "{text}");
        text
    };
    let text = run(&["./job.py"]);
    assert!(text.contains("chmod +x") && !text.contains(",exec"), "{text}");
    let text = run(&["-v", ".:.:rw,exec", "./job.py"]);
    assert!(text.contains("chmod +x") && !text.contains(",exec"), "{text}");
    let text = run(&["-v", ".:.:rw,noexec", "./job.py"]);
    assert!(text.contains("chmod +x") && text.contains(":rw,exec"), "{text}");
    std::fs::set_permissions(directory.path().join("job.py"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = run(&["-v", ".:.:rw,noexec", "./job.py"]);
    assert!(!text.contains("chmod") && text.contains(":rw,exec"), "{text}");
}

#[test]
fn a_failure_in_a_read_only_directory_names_here() {
    let directory = open_directory();
    std::fs::write(directory.path().join("build.sh"), "touch made || exit 3; echo made >&2\n").unwrap();
    let run = |arguments: &[&str], code: i32| {
        let output = cofferdam().current_dir(directory.path()).arg("run").args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        text
    };
    let hint = "hint: --here";
    let first = run(&["sh", "build.sh"], 3);
    assert!(first.contains("Read-only file system"), "{first}");
    assert!(first.ends_with(&format!("is read-only to the program; {hint}\n")), "{first}");
    assert!(!run(&["-q", "sh", "build.sh"], 3).contains(hint));
    assert!(!run(&["sh", "-c", "ls gone; exit 1"], 1).contains(hint), "it lacks something else");
    assert!(!run(&["sh", "-c", "touch made; true"], 0).contains(hint), "it has not failed");
    assert!(!run(&["-v", ".:.:rw", "sh", "-c", "echo EROFS >&2; exit 1"], 1).contains(hint), "it can write");
    assert!(!run(&["--here=cow", "sh", "-c", "./build.sh; sh build.sh"], 0).contains(hint));
    assert!(!directory.path().join("made").exists(), "a copy");
    assert_eq!(run(&["--here", "sh", "build.sh"], 0), "made\n");
    assert!(directory.path().join("made").exists());
}

#[test]
fn code_that_may_write_here_starts_here() {
    let directory = open_directory();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let place = std::fs::canonicalize(directory.path()).unwrap();
    let eval = |arguments: &[&str]| {
        let code = "import os; open('made', 'w'); print(os.getcwd())";
        let line = [&["eval"][..], arguments, &["python", code]].concat();
        let output = cofferdam().current_dir(&place).args(line).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let at = String::from_utf8(output.stdout).unwrap();
        (at.trim() == place.to_str().unwrap(), std::fs::remove_file(place.join("made")).is_ok())
    };
    assert_eq!(eval(&["--here"]), (true, true));
    assert_eq!(eval(&["--here=cow"]), (true, false));
    assert_eq!(eval(&["--here", "-w", "/tmp"]), (false, false));
    assert_eq!(eval(&["-w", "/tmp", "--here"]), (false, false));
    assert_eq!(eval(&[]), (false, false));
}

#[test]
fn a_repository_of_another_user_names_the_volume_that_makes_it_the_programs() {
    let directory = open_directory();
    let place = std::fs::canonicalize(directory.path()).unwrap();
    let tree = place.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let run = |options: &[&str]| {
        let said = format!(
            "echo \"fatal: detected dubious ownership in repository at '{}/.git'\" >&2; exit 128",
            tree.display()
        );
        let line = [&["run", "-w", "/"][..], options, &["sh", "-c", &said]].concat();
        String::from_utf8(cofferdam().args(line).output().unwrap().stderr).unwrap()
    };
    let volume = format!("-v {0}:{0}", tree.display());
    assert!(run(&[]).ends_with(&format!("hint: {volume}\n")), "{}", run(&[]));
    assert!(!run(&["-v", &volume[3..]]).contains("hint:"), "it is shown already");
}

#[test]
fn a_failure_in_a_volume_that_is_read_only_names_its_other_modes() {
    let directory = open_directory();
    let place = std::fs::canonicalize(directory.path()).unwrap();
    std::fs::create_dir(place.join("data")).unwrap();
    let data = place.join("data");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    let eval = |arguments: &[&str], code: i32| {
        let line = [&["eval"][..], arguments].concat();
        let output = cofferdam().current_dir(&place).args(line).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        text
    };
    let data = data.to_str().unwrap();
    let hint = format!("/d is read-only to the program; hint: -v {data}:/d:rw, or :cow for a copy\n");
    let write = "open('x', 'w')";
    assert!(eval(&["-v", "data:/d", "-w", "/d", "python", write], 1).ends_with(&hint));
    assert!(eval(&["-v", "data:/d", "python", "open('/d/x', 'w')"], 1).ends_with(&hint));
    assert_eq!(
        eval(&["-v", "data:/d:cow", "-w", "/d", "--keep-changes", "kept", "python", write], 0).lines().count(),
        1
    );
    assert_eq!(eval(&["-v", "data:/d:rw", "-w", "/d", "python", write], 0), "");
    // What belongs to the system is not offered.
    let system = eval(&["-v", "/usr/share:/d", "-w", "/d", "python", write], 1);
    assert!(!system.contains("/usr/share:/d:rw"), "{system}");
}

/// What a program says nothing about is known from what it tried.
#[test]
fn a_silent_program_that_wanted_a_network_gets_the_option() {
    let run = |options: &[&str], attempt: &str, ending: &str| {
        let code = format!("import socket, time\ntry: {attempt}\nexcept OSError: pass\n{ending}");
        let output = cofferdam().arg("run").args(options).args(["--", common::PYTHON, "-c", &code]).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let connect = "socket.create_connection(('203.0.113.7', 443), 2)";
    let resolve = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.53', 53))";
    let refused = "cofferdam: refused: connect 203.0.113.7:443 ($.network.mode); hint: --allow 203.0.113.7\n";
    let unresolved = "cofferdam: the program has no network; hint: --allow HOST\n";
    for (attempt, expected) in [(connect, refused), (resolve, unresolved)] {
        assert_eq!(run(&[], attempt, "exit(1)"), expected);
        let waits = run(&["--timeout", "1s"], attempt, "time.sleep(60)");
        assert!(
            waits.starts_with("cofferdam: stopped after 1 s, the wall limit;") && waits.ends_with(expected),
            "{waits}"
        );
    }
    // Tools that succeed without are left alone, but where a trace was asked for.
    assert_eq!(run(&[], resolve, "exit(0)"), "");
    assert!(run(&["--trace"], resolve, "exit(0)").ends_with(unresolved));
    // One that has a network is not refused.
    assert_eq!(run(&["--network", "loopback"], "socket.create_server(('127.0.0.1', 0))", "exit(1)"), "");
    let own = "a = socket.create_server(('127.0.0.1', 0)); socket.create_connection(a.getsockname())";
    assert_eq!(run(&["--network", "loopback"], own, "exit(1)"), "");
    let loopback = run(&[], "socket.create_connection(('127.0.0.1', 5432))", "exit(1)");
    assert_eq!(loopback, "cofferdam: refused: connect 127.0.0.1:5432 ($.network.mode); hint: --network loopback\n");
}

#[test]
fn a_failure_without_a_network_names_the_host_of_the_arguments() {
    let run = |arguments: &[&str]| {
        let output = cofferdam().arg("run").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(6), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let script = "echo 'Could not resolve host: example.org' >&2; exit 6";
    let fetch = ["sh", "-c", script, "fetch", "https://example.org:8443/x"];
    assert!(run(&fetch).ends_with("the program has no network; hint: --allow example.org:8443\n"));
    assert!(run(&fetch[..4]).ends_with("the program has no network; hint: --allow HOST\n"));
    // The arguments can be code that nobody has vetted.
    for never in ["https://169.254.169.254/x", "http://metadata.google.internal", "https://*.com/"] {
        let notes = run(&["sh", "-c", script, "fetch", never]);
        assert!(notes.ends_with("the program has no network; hint: --allow HOST\n"), "{never}: {notes}");
    }
    let silent = ["sh", "-c", "exit 6", "fetch", "https://example.org"];
    assert!(run(&silent).ends_with("the program has no network; hint: --allow example.org\n"), "curl -s says nothing");
    assert!(!run(&silent[..4]).contains("--allow"));
    let loopback = [&["--network", "loopback"][..], &fetch].concat();
    assert!(!run(&loopback).contains("--allow"), "it has one");
}

#[test]
fn a_tool_that_installs_without_a_network_gets_its_preset() {
    let Some(directory) = common::shown_directory("installs") else { return };
    for tool in ["pip", "curl"] {
        let path = directory.0.join(tool);
        std::fs::write(&path, "#!/bin/sh\necho 'Temporary failure in name resolution' >&2\nexit 6\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let hint = |arguments: &[&str]| {
        let output = cofferdam().current_dir(&directory.0).arg("run").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(6), "{arguments:?}: {output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        text.split_once("hint: ").map(|(_, hint)| hint.trim().to_owned())
    };
    assert_eq!(hint(&["./pip", "install", "six"]).as_deref(), Some("--here --for pip"));
    assert_eq!(hint(&["-v", ".:.:rw", "./pip", "install", "six"]).as_deref(), Some("--for pip"));
    assert_eq!(hint(&["./curl", "-O", "https://a.example/x"]).as_deref(), Some("--here --allow a.example"));
    assert_eq!(hint(&["./curl", "https://a.example/x"]).as_deref(), Some("--allow a.example"));
    assert_eq!(hint(&["--network", "loopback", "./pip", "install", "six"]), None, "it has one");
}

#[test]
fn mistyped_calls_get_what_was_meant() {
    let refused = |arguments: &[&str], code: i32, hint: &str| {
        let output = cofferdam().args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(&format!("hint: {hint}")), "{arguments:?}: {text}");
    };
    refused(&["run", "MODE=release", "make"], 127, "a variable is an option: cofferdam run -e MODE=release make");
    refused(&["run", "--allow", "*", "true"], 125, "--network host");
    refused(&["run", "--memory", "512", "true"], 125, "--memory 512m");
    refused(&["eval", "pyhton", "1"], 125, "did you mean `python`");
    refused(&["run", "sho", "-c", "true"], 127, "did you mean ");
    let version = cofferdam().arg("version").output().unwrap();
    assert!(version.status.success() && version.stdout.starts_with(b"cofferdam 0."), "{version:?}");
    refused(&["run", "--backend", "gvisor", "true"], 125, "--backend oci:runsc");
    refused(&["run", "-v", ".:rw", "true"], 125, "-v .:.:rw");
    refused(&["run", "-v", "part", "true"], 125, "-v part:part");
    refused(&["run", "--rw", ".", "true"], 125, "--here");
    refused(&["run", "--", "cd", "/usr"], 127, "cofferdam run -- sh -c 'cd /usr'");
    refused(&["run", "echo a && echo b"], 127, "cofferdam run -- sh -c 'echo a && echo b'");
    refused(&["run", "make; id"], 127, "cofferdam run -- sh -c 'make; id'");
    refused(
        &["run", "make all"],
        127,
        "that is one word with spaces in it; without the quotes: cofferdam run -- make all",
    );
    for time in ["none", "0", "1d"] {
        let output = cofferdam().args(["run", "--timeout", time, "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{time}: {output:?}");
    }
}

#[test]
fn what_lies_in_the_working_directory_can_be_executed_where_it_is_written() {
    let directory = open_directory();
    let project = directory.path().join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::create_dir(directory.path().join("downloads")).unwrap();
    for directory in [&project, &directory.path().join("downloads")] {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let run = |arguments: &[&str]| {
        let script = "printf '#!/bin/sh\\necho built\\n' > \"$0/t\" && chmod +x \"$0/t\" && \"$0/t\"";
        let (options, place) = arguments.split_at(arguments.len() - 1);
        let line = [&["run"][..], options, &["--", "sh", "-c", script, place[0]]].concat();
        let output = cofferdam().current_dir(&project).args(line).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let built = (Some(0), "built\n".to_owned());
    for executable in [&["--here", "."][..], &["-v", ".:.:rw", "."], &["-v", ".:/w:cow", "/w"], &["--here=cow", "."]] {
        assert_eq!(run(executable), built, "{executable:?}");
    }
    for not in [&["-v", ".:.:rw,noexec", "."][..], &["-v", "../downloads:/d:rw", "/d"], &["-v", ".:.:cow,noexec", "."]]
    {
        assert_eq!(run(not).0, Some(126), "{not:?}");
    }
    assert_eq!(run(&["-v", "../downloads:/d:rw,exec", "/d"]), built, "where it is named");
}

#[test]
fn the_working_directory_is_written_only_where_it_is_a_project() {
    for directory in ["/", "/tmp", "/etc"] {
        let output = cofferdam().current_dir(directory).args(["run", "--here", "true"]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(text.contains(&format!("{directory} is no project: ")) && text.contains("hint: change to"), "{text}");
    }
}

#[test]
fn unreachable_link_target_names_the_unsearchable_directory() {
    // Of this user the sandbox is not let into the directory only where it has another id.
    if !common::is_root() {
        return eprintln!("skipped: the sandbox's user is this one, who may enter what it owns");
    }
    let Some(shown) = common::shown_directory("linked") else { return };
    let (closed, open) = (shown.0.join("closed"), shown.0.join("open"));
    for directory in [&closed, &open] {
        std::fs::create_dir(directory).unwrap();
    }
    std::fs::copy("/bin/true", closed.join("tool")).unwrap();
    std::os::unix::fs::symlink(closed.join("tool"), open.join("tool")).unwrap();
    let run = || {
        let path = format!("PATH={}", open.display());
        let output = cofferdam().args(["run", "-w", "/", "-e", &path, "tool"]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(run().0, Some(0));
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let (code, text) = run();
    assert_eq!(code, Some(126), "{text}");
    assert!(text.contains(closed.to_str().unwrap()) && !text.contains("chmod") && !text.contains(",exec"), "{text}");
}

/// The kernel says EACCES of an entry of PATH that may not be searched, whether or not the program is there.
#[test]
fn missing_program_beside_a_closed_path_entry_is_not_found() {
    let Some(shown) = common::shown_directory("closed-entry") else { return };
    let closed = shown.0.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::copy("/bin/true", closed.join("tool")).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!("{}:/usr/bin:/bin", closed.display());
    let run = |program: &str| {
        let mut command = cofferdam();
        command.env("PATH", &path).args(["run", "-w", "/", "-e", &format!("PATH={path}"), program]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = run("no-such-tool");
    assert_eq!(code, Some(127), "{text}");
    assert!(text.contains("no-such-tool: not found") && !text.contains("chmod"), "{text}");
    // What is there is found: by the sandbox's user where it may enter, and else it is said that it may not.
    let (code, text) = run("tool");
    assert_eq!(code, Some(if common::is_root() { 126 } else { 0 }), "{text}");
    assert!(!common::is_root() || text.contains(&format!("may not enter {}", closed.display())), "{text}");
    assert_eq!(run("true").0, Some(0), "the control: another entry of PATH has it");
}

#[test]
fn denied_program_is_reported_by_its_path_and_by_a_link() {
    let place = open_directory();
    let (denied, plain) = (place.path().join("denied"), place.path().join("plain"));
    for directory in [&denied, &plain] {
        std::fs::create_dir(directory).unwrap();
        std::fs::copy("/bin/true", directory.join("tool")).unwrap();
    }
    std::os::unix::fs::symlink(denied.join("tool"), place.path().join("to-denied")).unwrap();
    std::os::unix::fs::symlink(plain.join("tool"), place.path().join("to-plain")).unwrap();
    let run = |deny: &std::path::Path, program: &str| {
        let mut command = cofferdam();
        command.current_dir(place.path()).args(["run", "--deny"]).arg(deny).args(["--", program]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let tool = denied.join("tool");
    for (deny, program) in [
        (&denied, "./to-denied"),
        (&denied, tool.to_str().unwrap()),
        (&denied, "./denied/tool"),
        (&tool, "./to-denied"),
        (&tool, tool.to_str().unwrap()),
    ] {
        let (code, text) = run(deny, program);
        assert_eq!(code, Some(126), "{program}: {text}");
        let denies = format!("denied by {} in filesystem.deny", deny.display());
        assert!(text.contains(&denies) && !text.contains("not executable") && !text.contains("chmod"), "{text}");
        let leads = text.contains(&format!("it leads to {}", tool.display()));
        assert_eq!(leads, program == "./to-denied", "{text}");
        assert!(text.contains("hint: ") && text.contains("--deny"), "{text}");
    }
    let (code, text) = run(&denied, "./to-plain");
    assert_eq!(code, Some(0), "{text}");
    // What is denied beside it is no reason.
    std::fs::set_permissions(plain.join("tool"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, text) = run(&denied, "./to-plain");
    assert!(code == Some(126) && text.contains("not executable") && !text.contains("denied by"), "{text}");
}

/// Hosts that no rule has are refused before anything is resolved or leaves, so none of these is ever reached.
#[test]
fn each_refused_host_gets_one_note_with_an_allow_hint() {
    if !common::needs("captured network") {
        return;
    }
    let program = "
import socket
def tcp(to, port):
    try:
        c = socket.create_connection((to, port), 5); c.sendall(b'\\0'); c.recv(1)
    except OSError: pass
for _ in range(2): tcp('one.example', 80)
tcp('203.0.113.7', 443); tcp('203.0.113.7', 80); tcp('203.0.113.8', 2222); tcp('2001:db8::7', 443); tcp('2001:db8::8', 22)
p = socket.create_connection(('127.0.0.1', 3128), 5)
p.sendall(b'CONNECT two.example:8443 HTTP/1.1\\r\\nHost: two.example:8443\\r\\n\\r\\n'); p.recv(99)
tcp('listed.example', 2222)";
    let code_and_stderr = |more: &[&str]| {
        let mut arguments = vec!["run", "--allow", "listed.example:80,443"];
        arguments.extend(more);
        arguments.extend(["--", common::PYTHON, "-c", program]);
        common::code_and_stderr(&arguments)
    };
    let (code, text) = code_and_stderr(&[]);
    assert_eq!(code, 0, "{text}");
    for (what, hint) in [
        ("one.example", "one.example"),
        ("203.0.113.7:80,443", "203.0.113.7"),
        ("203.0.113.8:2222", "203.0.113.8:2222"),
        ("[2001:db8::7]:443", "2001:db8::7"),
        ("[2001:db8::8]:22", "[2001:db8::8]:22"),
        ("two.example:8443", "two.example:8443"),
        ("listed.example:2222", "listed.example:2222"),
    ] {
        let about: Vec<&str> =
            text.lines().filter(|line| line.starts_with(&format!("cofferdam: refused: {what}"))).collect();
        let [line] = about[..] else { panic!("{what}: {text}") };
        assert!(line.ends_with(&format!("; hint: --allow {hint}")), "{line}");
        // What is said is a rule: with it the policy is read, and says nothing else.
        let (code, text) = common::code_and_stderr(&["run", "--dry-run", "--allow", hint, "--", "true"]);
        assert_eq!(code, 0, "{hint}: {text}");
    }
    assert_eq!(text.lines().count(), 7, "{text}");
    // Where no refusals are to be recorded, none is reported.
    let (_, text) = code_and_stderr(&["--audit", "error"]);
    assert!(!text.contains("refused"), "{text}");
}

/// What gives out a machine's credentials is not offered as if it were any host, whichever way it was asked for.
#[test]
fn no_hint_allows_a_metadata_service() {
    if !common::needs("captured network") {
        return;
    }
    let program = "
import socket
def tcp(to, port, words=b'\\0'):
    try:
        c = socket.create_connection((to, port), 5); c.sendall(words); c.recv(99)
    except OSError: pass
for to in ('169.254.169.254', '169.254.7.7', '168.63.129.16', 'fd00:ec2::254', 'fe80::7'): tcp(to, 80)
tcp('10.1.2.3', 5432); tcp('203.0.113.7', 443)
p = socket.create_connection(('127.0.0.1', 3128), 5)
p.sendall(b'CONNECT [::ffff:169.254.170.2]:80 HTTP/1.1\\r\\nHost: [::ffff:169.254.170.2]:80\\r\\n\\r\\n'); print(p.recv(999))";
    let code_and_stderr = |rules: &[&str]| {
        let arguments =
            [&["run", "--allow", "allowed.example"], rules, &["--", common::PYTHON, "-c", program]].concat();
        let output = common::output(&arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let (inside, text) = code_and_stderr(&[]);
    let line = |of: &str| text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of}: {text}"));
    for (what, why) in [
        ("refused: 169.254.169.254:80", "169.254.169.254 is a cloud's metadata service"),
        ("refused: 168.63.129.16:80", "168.63.129.16 is a cloud's metadata service"),
        ("refused: [fd00:ec2::254]:80", "fd00:ec2::254 is a cloud's metadata service"),
        ("refused: [::ffff:169.254.170.2]:80", "169.254.170.2 is a cloud's metadata service"),
        ("refused: 169.254.7.7:80", "169.254.7.7 is link-local"),
    ] {
        let line = line(what);
        assert!(line.contains(why) && !line.contains("--allow") && !line.contains("hint"), "{line}");
    }
    assert!(inside.contains("metadata service") && !inside.contains("--allow"), "{inside}");
    assert!(!text.contains("--allow 169.") && !text.contains("--allow fe80"), "{text}");
    // For other special addresses the option is offered, with the kind of the address.
    assert!(line("10.1.2.3:5432").ends_with(": 10.1.2.3 is private; hint: --allow 10.1.2.3:5432"), "{text}");
    assert!(line("203.0.113.7:443").ends_with("refused: 203.0.113.7:443; hint: --allow 203.0.113.7"), "{text}");
    // An address of a range that is allowed, and that the range does not name, is offered no more.
    let (_, text) = code_and_stderr(&["--allow", "169.0.0.0/8"]);
    let about: Vec<&str> = text.lines().filter(|line| line.contains("169.254.")).collect();
    assert!(about.len() >= 2 && about.iter().all(|line| !line.contains("hint")), "{text}");
}

#[test]
fn a_refusal_that_the_list_alone_does_not_explain_says_why() {
    if !common::needs("captured network") {
        return;
    }
    let program = "
import socket, ssl
def tcp(to, port, words=b'\\0'):
    try:
        c = socket.create_connection((to, port), 5); c.sendall(words); c.recv(99)
    except OSError: pass
tcp('10.1.2.3', 443)
tcp('127.0.0.1', 3128, b'CONNECT 127.0.0.1:443 HTTP/1.1\\r\\nHost: 127.0.0.1:443\\r\\n\\r\\n')
tcp('127.0.0.1', 3129, b'GET /../up HTTP/1.1\\r\\nHost: 127.0.0.1:3129\\r\\n\\r\\n')
context = ssl._create_unverified_context()
for name in (None, 'other.example'):
    try: context.wrap_socket(socket.create_connection(('a.example', 443), 5), server_hostname=name)
    except OSError: pass";
    // A way out that never answers: the greeting is read before anything can fail there.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", silent.local_addr().unwrap());
    let (code, text) = common::code_and_stderr(&[
        "run",
        "--upstream-proxy",
        &proxy,
        "--best-effort=network.upstream_proxy",
        "--allow",
        "8.0.0.0/5",
        "--allow",
        "a.example",
        "--api",
        "http://127.0.0.1:1/v1",
        "--",
        common::PYTHON,
        "-c",
        program,
    ]);
    assert_eq!(code, 0, "{text}");
    let line = |of: &str| text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of}: {text}"));
    // What names the address is said where an entry can, and is a rule.
    assert_eq!(
        line(" 10.1.2.3:443 "),
        "cofferdam: refused: connect 10.1.2.3:443 ($.network.allow): 10.1.2.3 is private; hint: --allow 10.1.2.3:443"
    );
    let (code, dry) = common::code_and_stderr(&["run", "--dry-run", "--allow", "10.1.2.3:443", "--", "true"]);
    assert_eq!(code, 0, "{dry}");
    let own = line(" 127.0.0.1:443 ");
    assert!(
        own.contains("($.network.allow): inside, it is the sandbox itself; hint: --api http://127.0.0.1:443,"),
        "{own}"
    );
    let api = line(" 127.0.0.1:1 ");
    assert!(api.starts_with("cofferdam: refused: request 127.0.0.1:1 ($.network.api): "), "{api}");
    let greeting = line(" a.example:443 ");
    assert!(greeting.contains("the TLS greeting names no host"), "{greeting}");
    assert!(greeting.contains("the TLS greeting names another host: "), "{greeting}");
}

#[test]
fn failed_allowed_connections_get_notes() {
    if !common::needs("captured network") {
        return;
    }
    let program = "
import socket
for _ in range(2):
    try: c = socket.socket(); c.connect(('a.example', 22)); c.sendall(b'SSH-2.0-x\\r\\n'); c.recv(1)
    except OSError: pass";
    let code_and_stderr = |more: &[&str]| {
        // Port 1 of this host has no listener.
        let mut arguments = vec!["run", "--allow", "a.example:22", "--upstream-proxy", "http://127.0.0.1:1"];
        arguments.extend(["--best-effort=network.upstream_proxy"]);
        arguments.extend(more);
        arguments.extend(["--", common::PYTHON, "-c", program]);
        common::code_and_stderr(&arguments)
    };
    let (code, text) = code_and_stderr(&[]);
    assert_eq!(code, 0, "{text}");
    let line = text.lines().find(|line| line.starts_with("cofferdam: failed: ")).unwrap_or_else(|| panic!("{text}"));
    let begin = "cofferdam: failed: a.example:22: upstream cannot be reached: the host's proxy: Connection refused";
    assert!(line.starts_with(begin) && line.ends_with(", 2 times"), "{line}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let (_, text) = code_and_stderr(&["--audit", "error"]);
    assert_eq!(text, "");
}

/// A server on the host's loopback is out of reach under every spelling, and the option that serves it is named.
#[test]
fn host_loopback_server_gets_a_hint_for_api() {
    if !common::needs("captured network") {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let program = format!(
        "
import urllib.request, socket
proxy = urllib.request.build_opener(urllib.request.ProxyHandler({{'http': 'http://127.0.0.1:3128'}}))
for host in ('host.docker.internal', 'localhost'):
    try: proxy.open(f'http://{{host}}:{port}/', timeout=5)
    except OSError: pass
try: c = socket.create_connection(('127.0.0.1', {port}), 5); c.send(b'x'); c.recv(9)
except OSError: pass"
    );
    let own = format!("127.0.0.1:{port}");
    let (code, text) = common::code_and_stderr(&["run", "--allow", &own, "--", common::PYTHON, "-c", &program]);
    assert_eq!(code, 0, "{text}");
    // Who goes past the proxy connects to one of the addresses of `localhost`.
    for host in ["host.docker.internal", "127.0.0.1"] {
        let line =
            text.lines().find(|line| line.contains(&format!("{host}:{port}"))).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(&format!("hint: --api http://127.0.0.1:{port},")), "{host}: {line}");
        assert!(!line.contains("--allow"), "{line}");
    }
    assert!(!text.contains("--allow"), "{text}");
    drop(listener);
    // What the hint says is served.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let api = format!("http://{}", server.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = server.accept().unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let _read = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved").unwrap();
    });
    let read = "import os, urllib.request as u; print(u.urlopen(os.environ['ISCL_API_URL']).read())";
    let output = common::output(&["run", "--api", &api, "--", common::PYTHON, "-c", read]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "b'served'\n", "{}", String::from_utf8_lossy(&output.stderr));
    serving.join().unwrap();
}

/// What the command itself says about a run in the project, and the exit code.
fn notes_of(project: &std::path::Path, home: &std::path::Path, arguments: &[&str]) -> (i32, String) {
    let mut command = cofferdam();
    command.env("HOME", home).current_dir(project).arg("run").args(arguments);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let own: Vec<&str> = text.lines().filter(|line| line.starts_with("cofferdam: ")).collect();
    (output.status.code().unwrap(), own.join("\n"))
}

#[test]
fn a_failed_program_is_given_the_option_for_what_it_lacks() {
    let Some(directory) = common::shown_directory("lacking") else { return };
    let home = directory.0.join("home");
    let project = home.join("project");
    for made in ["project/part", "beside", ".tool", ".ssh", "project/.vscode", ".config/app", ".config/gh"] {
        std::fs::create_dir_all(home.join(made)).unwrap();
    }
    for made in ["", "project", "project/part", "beside"] {
        std::fs::set_permissions(home.join(made), std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    std::fs::write(home.join(".tool/conf"), "setting").unwrap();
    std::fs::write(home.join(".ssh/id_rsa"), "key").unwrap();
    std::fs::write(home.join(".config/app/conf"), "setting").unwrap();
    std::fs::write(home.join(".config/gh/hosts.yml"), "key").unwrap();
    let of_app = home.join(".config/app");
    let (app, inside) =
        (format!("-v {0}:{0}", of_app.display()), format!("-v {}:/tmp/home/.config/app", of_app.display()));
    let conf = of_app.join("conf");
    let (tool, key) = (home.join(".tool/conf"), home.join(".ssh/id_rsa"));
    let beside = home.join("beside");
    let beside = format!("-v {0}:{0}:rw", beside.display());
    let dot = home.join(".tool");
    let dot = format!("-v {0}:{0}", dot.display());
    let open = "import os; [os.open('/dev/null', 0) for _ in range(200)]";
    let unix = "import socket; socket.socket(socket.AF_UNIX)";
    let refused = "import socket; socket.create_connection(('127.0.0.1', 5432))";
    // What is run, what is said, and the same where the policy is not the cause, of which nothing is said.
    let cases: &[(&[&str], &str, &[&str])] = &[
        (&["--here", "touch", "../beside/a"], &beside, &["--here", "touch", "../beside/missing/a"]),
        (&["--here", "rm", "-r", ".vscode"], ".vscode is protected", &["--here", "rm", "gone"]),
        (&["sh", "-c", "cat \"$0\"", tool.to_str().unwrap()], &dot, &["cat", "gone"]),
        (&["cat", conf.to_str().unwrap()], &app, &["cat", "gone"]),
        (&["sh", "-c", "cat ~/.config/app/conf"], &inside, &["sh", "-c", "cat ~/.config/other/conf"]),
        (&["sh", "-c", "cp /bin/true /tmp/t && /tmp/t"], "--tmpfs /tmp:exec", &["sh", "-c", "/tmp/t"]),
        (
            &["sh", "-c", "head -c 999M /dev/zero >/tmp/big"],
            "--tmpfs-size SIZE",
            &["--here", "sh", "-c", "echo sh: ./a/b: ENOSPC >&2; exit 1"],
        ),
        (&["--open-files", "64", "--", common::PYTHON, "-c", open], "--open-files N", &["sh", "-c", "exit 1"]),
        (
            &["--", common::PYTHON, "-c", unix],
            "--unix-sockets",
            &["--unix-sockets", "sh", "-c", "echo EAFNOSUPPORT >&2; exit 1"],
        ),
        (
            &["--stdin", "none", "--", common::PYTHON, "-c", "input()"],
            "-i",
            &["--stdin", "", "--", common::PYTHON, "-c", "input()"],
        ),
        (
            &["--network", "loopback", "--", common::PYTHON, "-c", refused],
            "--api http://127.0.0.1:5432",
            &["--network", "host", "sh", "-c", "echo ECONNREFUSED >&2; exit 1"],
        ),
        (&["sh", "-c", "exec 3</dev/kvm"], "a /dev of its own", &["sh", "-c", "exec 3</etc/none"]),
        (&["touch", "a", "--here"], "cofferdam run --here touch a", &["--here", "touch", "gone/a"]),
    ];
    for (fails, said, twin) in cases {
        let (code, notes) = notes_of(&project, &home, fails);
        assert!(code != 0 && code != 125 && notes.contains(said), "{fails:?}: {code} {notes}");
        let (code, notes) = notes_of(&project, &home, twin);
        assert!(code != 0 && code != 125 && !notes.contains("hint:"), "{twin:?}: {code} {notes}");
    }
    // No option that would show a key, whatever says that it lacks it.
    let (code, notes) = notes_of(&project, &home, &["sh", "-c", "cat \"$0\"", key.to_str().unwrap()]);
    assert!(code == 1 && notes.contains("is denied by") && !notes.contains("hint:"), "{notes}");
    let login = home.join(".config/gh/hosts.yml");
    for script in ["cat \"$0\"", "cat ~/.ssh/id_rsa", "cat ~/.config/gh/hosts.yml"] {
        let (code, notes) = notes_of(&project, &home, &["sh", "-c", script, login.to_str().unwrap()]);
        assert!(code == 1 && !notes.contains("hint:"), "{script}: {notes}");
    }
    for place in [&home.display().to_string(), "/etc", "/", "/home", &home.join(".ssh").display().to_string()] {
        let (_, notes) =
            notes_of(&project, &home, &["sh", "-c", "echo \"touch: cannot touch '$0/x': EROFS\" >&2; exit 1", place]);
        assert!(!notes.contains(&format!("{place}:")), "{place}: {notes}");
    }
}

#[test]
fn json_has_the_notes_and_output_that_is_cut_is_a_failure() {
    let json = |arguments: &[&str]| {
        let output = cofferdam().args(["run", "--json", "-w", "/"]).args(arguments).output().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), value, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let unresolved = "echo 'Could not resolve host: example.org' >&2; exit 6";
    let (code, value, _) = json(&["--", "sh", "-c", unresolved, "fetch", "https://example.org"]);
    assert_eq!((code, &value["notes"][0]["hint"]), (Some(6), &"--allow example.org".into()));
    let (code, value, _) = json(&["--", "true"]);
    assert_eq!((code, &value["notes"]), (Some(0), &serde_json::json!([])));
    let much = ["--", "head", "-c", "11M", "/dev/zero"];
    let (code, value, text) = json(&much);
    assert_eq!(
        (code, &value["outcome"], &value["limit"]),
        (Some(137), &"limit_exceeded".into(), &"limits.output_bytes".into())
    );
    assert!(text.contains("hint: --output-limit SIZE"), "{text}");
    let (code, value, _) = json(&[&["--output-limit", "1m"][..], &much].concat());
    assert_eq!((code, &value["truncated"]["stdout"]), (Some(0), &true.into()), "where it is asked for, it is cut");
}
