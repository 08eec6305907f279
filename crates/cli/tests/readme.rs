//! The tour of README.md, run: its commands in a directory of their own, and what they print against what stands there.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{has, needs, needs_python, open_directory};

/// Where the tour says that it takes place.
const PLACE: &str = "/home/you/demo";

/// The commands between the markers of this name, each with what it prints.
fn tour(name: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let block = text.split(&format!("<!-- {name}:begin -->")).nth(1).unwrap();
    let block = block.split(&format!("<!-- {name}:end -->")).next().unwrap();
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

/// Does what the parts of the README show, in one directory, and compares what is printed.
fn holds(parts: &[&str]) {
    let directory = open_directory();
    let here = std::fs::canonicalize(directory.path()).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_cofferdam")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for (part, (command, told)) in parts.iter().flat_map(|part| tour(part).into_iter().map(move |step| (*part, step))) {
        if let Some(file) = command.strip_prefix("cat ").filter(|file| !file.contains([' ', '/'])) {
            std::fs::write(here.join(file), &told).unwrap();
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
        assert_eq!(printed.replace(here.to_str().unwrap(), PLACE), told, "$ {command}");
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
fn what_the_readme_shows_of_profiles_is_true() {
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
fn what_the_readme_shows_of_the_network_is_true() {
    if !common::needs("captured network") {
        return;
    }
    assert!(tour("network").len() >= 2);
    holds(&["network"]);
}
