//! The examples of README.md and docs, run: their commands in a directory of their own, and what they print against what
//! stands there.
//! The examples of `--help`, too.

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{has, needs, needs_python, open_directory};

/// Where the tour says that it takes place.
const PLACE: &str = "/home/you/demo";

/// The commands between the markers of this name, each with what it prints.
fn tour(name: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).chain([root.join("README.md")]);
    let texts: Vec<String> = pages.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let begin = format!("<!-- {name}:begin -->");
    let blocks: Vec<&str> = texts.iter().filter_map(|text| text.split(&begin).nth(1)).collect();
    assert_eq!(blocks.len(), 1, "pages with the block {name}");
    let block = blocks[0].split(&format!("<!-- {name}:end -->")).next().unwrap();
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with("```")) {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), String::new())),
            (None, Some((_, message))) => message.push_str(&format!("{line}\n")),
            (None, None) => panic!("the tour begins with something else than a command: {line}"),
        }
    }
    steps
}

/// Whether a shell finds this command.
fn found(command: &str) -> bool {
    let script = format!("command -v {command}");
    Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Does what these parts show, in one directory, and compares what is printed.
fn holds(parts: &[&str]) {
    let directory = open_directory();
    let here = std::fs::canonicalize(directory.path()).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_cofferdam")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for (part, (command, message)) in
        parts.iter().flat_map(|part| tour(part).into_iter().map(move |step| (*part, step)))
    {
        if let Some(file) = command.strip_prefix("cat ").filter(|file| !file.contains([' ', '/'])) {
            std::fs::write(here.join(file), &message).unwrap();
            continue;
        }
        if part != parts[parts.len() - 1] {
            continue;
        }
        if command.contains("| jq") && !found("jq") {
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "{command}: no jq");
            eprintln!("skipped: {command}: no jq");
            continue;
        }
        let script = format!("exec 2>&1; {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(&here).env("PATH", &path).stdin(Stdio::null());
        // Nothing of an earlier evaluation, and nothing left of this one.
        shell.env("XDG_CACHE_HOME", here.join(".cache"));
        let printed = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        assert_eq!(printed.replace(here.to_str().unwrap(), PLACE), message, "$ {command}");
    }
}

#[test]
fn the_tour_of_the_readme_is_true() {
    if !needs("user namespaces") || !needs("overlayfs") || !needs_python() {
        return;
    }
    assert!(tour("tour").len() >= 5);
    holds(&["tour"]);
}

#[test]
fn the_documented_commands_work() {
    if !needs("user namespaces") || !needs("overlayfs") || !needs_python() {
        return;
    }
    for recipe in ["pipe", "build", "review", "eval", "limits", "json"] {
        // An ordinary user without a cgroup is told so instead; the page says it.
        if recipe == "limits" && !has("cgroup memory") {
            continue;
        }
        let name = format!("recipe-{recipe}");
        assert!(tour(&name).len() >= 2, "{name}");
        holds(&[&name]);
    }
}

#[test]
fn the_example_of_a_profile_is_true() {
    let evaluator = Path::new(env!("CARGO_BIN_EXE_cofferdam")).with_file_name("cofferdam-compile");
    if !evaluator.exists() || !has("user namespaces") {
        let reason = "the profiles need the jail, and cofferdam-compile beside the command";
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "{reason}");
        eprintln!("skipped: {reason}");
        return;
    }
    assert!(tour("profiles").len() >= 4);
    // The directory is that of the tour, with its files.
    holds(&["tour", "profiles"]);
}

/// Nothing of it needs a network: what it shows is refused before anything could leave.
#[test]
fn the_example_of_an_allowlist_is_true() {
    if !common::needs("captured network") {
        return;
    }
    assert!(tour("network").len() >= 2);
    holds(&["network"]);
}

/// The lines below `Examples:` in a help text.
fn examples(words: &[&str]) -> Vec<String> {
    let help = String::from_utf8(common::output(words).stdout).unwrap();
    let block = help.split("\nExamples:\n").nth(1).unwrap_or_else(|| panic!("{words:?} has no examples"));
    block.lines().take_while(|line| !line.is_empty()).map(|line| line.trim_start().to_owned()).collect()
}

/// A part of each example, and what it prints in the directory of the test.
const EXAMPLES: &[(&str, &str)] = &[
    ("eval python 'print(6*7)'", "42"),
    ("./build.sh", "built"),
    ("make test", "tested"),
    ("eval shell -it", "exit"),
    ("cat notes.txt", "of the notes"),
];

/// Runs a line in a shell with a terminal, and types `exit`. Returns the exit code and the output.
fn typed(line: &str, here: &Path, path: &str) -> (Option<i32>, String) {
    let (ours, theirs) = common::pty();
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "--wait", "sh", "-c", line]).current_dir(here).env("PATH", path);
    shell.env("XDG_CACHE_HOME", here.join(".cache"));
    shell.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = shell.spawn().unwrap();
    drop(shell);
    rustix::io::write(&ours, b"exit\n").unwrap();
    let mut printed = Vec::new();
    let mut block = [0; 4096];
    // The read fails when the last process has closed the terminal.
    while let Ok(count @ 1..) = rustix::io::read(&ours, &mut block) {
        printed.extend_from_slice(&block[..count]);
    }
    (child.wait().unwrap().code(), String::from_utf8_lossy(&printed).into_owned())
}

#[test]
fn each_example_of_the_help_runs_as_it_is_printed() {
    if !needs("user namespaces") || !needs("overlayfs") || !needs_python() || common::evaluator().is_none() {
        return;
    }
    if !found("make") {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "make is missing");
        eprintln!("skipped: make is missing");
        return;
    }
    let directory = open_directory();
    let here = std::fs::canonicalize(directory.path()).unwrap();
    let script = "#!/bin/sh\necho built\n";
    // The target makes a program and executes it, as a target of tests does.
    let makefile = "test: made\n\t./made\nmade:\n\tprintf '#!/bin/sh\\necho tested\\n' > made && chmod +x made\n";
    let profile = "let sandbox = import \"sandbox\" in\nsandbox.make_default_config \"reader\"\n";
    for (name, text) in
        [("build.sh", script), ("Makefile", makefile), ("notes.txt", "of the notes\n"), ("reader.ncl", profile)]
    {
        std::fs::write(here.join(name), text).unwrap();
    }
    std::fs::set_permissions(here.join("build.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_cofferdam")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut lines: Vec<String> =
        [&["--help"][..], &["run", "--help"], &["eval", "--help"]].into_iter().flat_map(examples).collect();
    lines.sort();
    lines.dedup();
    assert!(lines.len() >= 5, "{lines:?}");
    for line in lines {
        let (code, printed) = typed(&line, &here, &path);
        assert_eq!(code, Some(0), "{line}\n{printed}");
        let (_, wanted) = EXAMPLES.iter().find(|(part, _)| line.contains(part)).unwrap_or_else(|| {
            panic!("what does it print? {line}\n{printed}");
        });
        assert!(printed.contains(wanted), "{line}\n{printed}");
    }
    assert!(here.join("made").exists(), "the example writes its directory");
}
