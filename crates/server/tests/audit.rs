//! Runs and sessions of the server are recorded in the audit trail if one is configured, and otherwise nowhere.

mod common;

use std::path::Path;

use cofferdam_engine::audit::{Anchored, verify};
use common::{Client, Home, text};
use serde_json::{Map, Value, json};

type Records = Vec<(String, Map<String, Value>)>;

/// The records of the trail, after verification.
fn records(dir: &Path) -> Records {
    let mut all = Vec::new();
    verify(dir, None, &Anchored::new(), &mut |r| all.push((r.kind.clone(), r.data.clone()))).unwrap();
    all.remove(0); // the record of the trail itself
    all
}

fn kinds(records: &Records) -> Vec<&str> {
    records.iter().map(|(kind, _)| kind.as_str()).collect()
}

fn in_session(client: &mut Client, code: &str) -> Value {
    let asked = json!({ "name": "run", "arguments": { "env": "python", "session": "s", "code": code } });
    let id = client.ask("tools/call", asked);
    client.answer(id)["result"].clone()
}

fn sha256(code: &str) -> Value {
    cofferdam_engine::audited_run::code_facts(code)["codeSha256"].clone()
}

#[test]
fn run_is_recorded_with_its_environment_and_its_code() {
    let home = Home::new();
    let trail = home.path().join("audit");
    let mut client = home.client(json!({ "audit_trail": trail }));
    let ran = client.run("python", "print(6 * 7)");
    assert_eq!(text(&ran), "42\n", "{ran}");
    // Without a trail, the second would use an interpreter that was started before its call, and so before its record.
    let failed = client.run("shell", "exit 3");
    assert_eq!(failed["structuredContent"]["exit_code"], 3, "{failed}");
    let records = records(&trail);
    assert_eq!(
        kinds(&records),
        ["sandbox_started", "sandbox_completed", "sandbox_started", "sandbox_completed"],
        "{records:?}"
    );
    assert_eq!(
        (&records[0].1["environment"], &records[0].1["codeSha256"]),
        (&json!("python"), &sha256("print(6 * 7)"))
    );
    assert_eq!((&records[2].1["environment"], &records[3].1["exitCode"]), (&json!("shell"), &json!(3)));
    assert!(!records.iter().any(|(_, data)| json!(data).to_string().contains("6 * 7")), "the code is in no record");
}

#[test]
fn run_ended_by_a_limit_has_no_exit_code_anywhere() {
    let home = Home::new();
    home.configure("[environments.quick]\npreset = \"shell\"\ntimeout_seconds = 1\n");
    let trail = home.path().join("audit");
    let mut client = home.client(json!({ "audit_trail": trail }));
    let ended = client.run("quick", "exit 7");
    assert_eq!(ended["structuredContent"]["exit_code"], 7, "{ended}");
    let late = client.run("quick", "sleep 60");
    assert_eq!(late["structuredContent"]["outcome"], "timed_out", "{late}");
    assert!(late["structuredContent"].get("exit_code").is_none_or(Value::is_null), "{late}");
    let records = records(&trail);
    let ends: Vec<_> = records.iter().filter(|(kind, _)| kind == "sandbox_completed").map(|(_, data)| data).collect();
    assert_eq!(ends.iter().map(|data| data.get("exitCode")).collect::<Vec<_>>(), [Some(&json!(7)), None], "{ends:?}");
    assert_eq!(ends[1]["outcome"], "timed_out");
}

#[test]
fn a_session_is_recorded_with_each_of_its_calls() {
    let home = Home::new();
    let trail = home.path().join("audit");
    {
        let mut client = home.client(json!({ "audit_trail": trail }));
        in_session(&mut client, "x = 41");
        assert_eq!(text(&in_session(&mut client, "print(x + 1)")), "42\n");
        // Both records exist while the session lives.
        let so_far = records(&trail);
        assert_eq!(kinds(&so_far)[0], "sandbox_started");
        assert_eq!(kinds(&so_far)[1..], ["session_call", "session_answer", "session_call", "session_answer"]);
        client.leave();
    }
    let all = records(&trail);
    assert_eq!(kinds(&all).last(), Some(&"sandbox_completed"), "{all:?}");
    let of = |kind: &str, key: &str| {
        all.iter().filter(|(k, _)| k == kind).filter_map(|(_, data)| data.get(key).cloned()).collect::<Vec<_>>()
    };
    assert_eq!(of("session_call", "codeSha256"), [sha256("x = 41"), sha256("print(x + 1)")]);
    assert_eq!(of("session_call", "call"), of("session_answer", "call"));
    assert_eq!(of("session_answer", "exitCode"), [json!(0), json!(0)]);
    assert_eq!(of("sandbox_started", "environment"), [json!("python")]);
    assert!(!json!(all).to_string().contains("_cofferdam()"), "the agent is in no record");
}

#[test]
fn server_with_an_unwritable_trail_does_not_start() {
    let home = Home::new();
    std::fs::write(home.path().join("audit"), "a file").unwrap();
    let output = home.program(&json!({ "audit_trail": home.path().join("audit") })).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("audit"), "{said}");
}

#[test]
fn without_a_trail_nothing_is_recorded() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    assert_eq!(text(&client.run("python", "print(1)")), "1\n");
    in_session(&mut client, "x = 1");
    assert!(!home.path().join("audit").exists() && !home.path().join(".local/state/cofferdam/audit").exists());
}
