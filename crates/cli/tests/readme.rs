//! The tour of README.md, run: its commands in a directory of their own, and what they print against what stands there.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{has, open_directory};

/// Where the tour says that it takes place.
const PLACE: &str = "/home/you/demo";

/// The commands between the markers, each with what it prints.
fn tour() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let block = text.split("<!-- tour:begin -->").nth(1).unwrap().split("<!-- tour:end -->").next().unwrap();
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with("```")) {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), String::new())),
            (None, Some((_, told))) => told.push_str(&format!("{line}\n")),
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

#[test]
fn the_tour_of_the_readme_is_true() {
    if !has("user namespaces") || !has("overlayfs") || !Path::new(common::PYTHON).exists() {
        eprintln!("skipped: the tour needs the jail, overlayfs and {}", common::PYTHON);
        return;
    }
    let directory = open_directory();
    let here = std::fs::canonicalize(directory.path()).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_cofferdam")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let steps = tour();
    assert!(steps.len() >= 5, "{steps:?}");
    for (command, told) in steps {
        if let Some(file) = command.strip_prefix("cat ").filter(|file| !file.contains([' ', '/'])) {
            std::fs::write(here.join(file), &told).unwrap();
            continue;
        }
        if command.contains("| jq") && !found("jq") {
            eprintln!("skipped: {command}: no jq");
            continue;
        }
        let script = format!("exec 2>&1; {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(&here).env("PATH", &path).stdin(Stdio::null());
        let printed = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        assert_eq!(printed.replace(here.to_str().unwrap(), PLACE), told, "$ {command}");
    }
}
