//! docs/outcome.md against what the command prints: every field, every ending and every kind of entry stands there.

mod common;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;

use cofferdam_engine::{
    Ending, Evidence, FailedStep, Failure, FileChange, NetworkEvent, NetworkKind, NetworkReason, NetworkVia, Strength,
    Violation,
};
use common::outcome;
use serde::Serialize;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/outcome.md");

/// The names in backquotes of a page.
fn names() -> BTreeSet<&'static str> {
    let words = PAGE.split('`').skip(1).step_by(2);
    words.flat_map(|code| code.split(|c: char| !(c.is_alphanumeric() || c == '_'))).filter(|w| !w.is_empty()).collect()
}

#[track_caller]
fn explained(value: impl Serialize) {
    let (names, value) = (names(), serde_json::to_value(value).unwrap());
    for key in value.as_object().unwrap().keys() {
        assert!(names.contains(key.as_str()), "docs/outcome.md says nothing about `{key}`");
    }
}

#[test]
fn every_field_of_an_outcome_stands_in_its_page() {
    let (_, o) =
        outcome(&["run", "--json", "-w", "/", "--allow", "a.example", "--timeout", "100ms", "--", "sleep", "60"]);
    assert!(o["limit"] == "limits.wall_ms", "{o:#}");
    explained(&o["truncated"]);
    explained(&o["network"]);
    explained(every_part_of_an_event());
    explained(o["enforcement"].as_object().unwrap().values().next().unwrap());
    explained(&o["notes"][0]);
    explained(o);
    explained(outcome(&["run", "--json", "-w", "/", "--", "no such"]).1);
    explained(Failure { code: 0, step: FailedStep::caller(""), message: String::new(), hint: Some(String::new()) });
    explained(FileChange { kind: 'A', path: String::new() });
    explained(Violation {
        operation: String::new(),
        object: Some(String::new()),
        field: String::new(),
        evidence: Evidence::Kernel,
        pid: 0,
        count: 1,
        aggregated: true,
    });
    let words = [
        json!(Ending::Exited),
        json!(Ending::Signalled),
        json!(Ending::TimedOut),
        json!(Ending::LimitExceeded),
        json!(Ending::Violation),
        json!(Ending::SetupFailed),
        json!(Strength::None),
        json!(Strength::Partial),
        json!(Strength::Full),
        json!(NetworkKind::Allowed),
        json!(NetworkKind::Refused),
        json!(NetworkKind::Failed),
        json!(NetworkKind::Closed),
        json!(NetworkKind::ApiRequest),
        json!(NetworkVia::Dns),
        json!(NetworkVia::Connect),
        json!(NetworkVia::HttpProxy),
        json!(NetworkVia::Socks),
        json!(NetworkVia::Api),
    ];
    for word in &words {
        assert!(names().contains(word.as_str().unwrap()), "docs/outcome.md says nothing about {word}");
    }
}

/// An event of the gateway's in which everything is known.
fn every_part_of_an_event() -> Value {
    let text = Some(String::new());
    json!(NetworkEvent {
        host: text.clone(),
        address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
        port: Some(1),
        rule: text.clone(),
        reason: Some(NetworkReason::NotAllowed),
        detail: text.clone(),
        pid: Some(1),
        bytes_up: Some(0),
        bytes_down: Some(0),
        duration_ms: Some(0),
        method: text.clone(),
        path: text,
        status: Some(200),
        last_ms: Some(0),
        aggregated: true,
        ..NetworkEvent::new(NetworkKind::Refused, NetworkVia::Connect)
    })
}

#[test]
fn no_row_of_the_page_is_about_a_field_that_is_gone() {
    let (_, o) =
        outcome(&["run", "--json", "-w", "/", "--allow", "a.example", "--timeout", "100ms", "--", "sleep", "60"]);
    let table = PAGE.split("| field | type | says |").nth(1).unwrap().split("\n\n").next().unwrap();
    let firsts = table.lines().skip(2).map(|row| row.split('|').nth(1).unwrap());
    let fields: BTreeSet<&str> = firsts.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let printed: BTreeSet<&str> = o.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, printed);
}

#[test]
fn a_run_of_the_command_has_no_artifacts_as_the_page_says() {
    let row = PAGE.lines().find(|line| line.starts_with("| `artifacts` |")).unwrap();
    assert!(row.contains("/workspace/output") && row.contains("empty for the command"), "{row}");
    let directory = common::open_directory();
    let volume = format!("{}:/workspace/output:rw", directory.path().display());
    let (code, o) = outcome(&["run", "--json", "-v", &volume, "--", "sh", "-c", "echo x >/workspace/output/file"]);
    assert_eq!((code, &o["artifacts"]), (0, &json!([])), "{o:#}");
    assert_eq!(std::fs::read_to_string(directory.path().join("file")).unwrap(), "x\n", "it is in the host's directory");
}

#[test]
fn binary_output_and_cancelled_runs_are_as_the_page_says() {
    let (code, o) = outcome(&["eval", "--json", "shell", r"printf 'a\377b'"]);
    assert_eq!((code, &o["stdout"]), (0, &Value::from("a\u{fffd}b")));
    // Cancelled as by Ctrl-C, once the program is seen to run: it ignores every signal that can be ignored.
    let mut run = common::cofferdam_with_signals("default");
    let marker = common::marker();
    let script = format!("trap '' INT TERM; : {marker}; sleep 60; true");
    run.args(["eval", "--json", "--grace", "0", "shell", &script]).stdout(std::process::Stdio::piped());
    let run = run.spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(run.id().cast_signed()).unwrap();
    let patience = std::time::Duration::from_secs(20);
    common::eventually("it runs", patience, || common::carrying(&marker).len() > 1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    let o = common::parse(&output);
    assert_eq!((output.status.signal(), &o["outcome"], &o["signal"]), (Some(2), &"signalled".into(), &15.into()));
}
