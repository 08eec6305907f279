//! Configurations of older profiles and of nsjail, in the store and as files: each is converted, or refused with the command
//! that runs it. None is taken for a policy.

mod common;

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

/// A store with what older exports left: `old` has nothing but an `nsjail.json`.
fn store(further: &Value) -> tempfile::TempDir {
    let store = common::open_directory();
    let mut config = json!({
        "name": "old", "mode": "EXEC", "hostname": "omni-old", "cmd": ["/bin/echo", "own"], "env": ["PATH=/usr/bin:/bin"],
        "mount": [], "log_level": "info", "clone_newnet": false,
    });
    config.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    fs::create_dir(store.path().join("old")).unwrap();
    fs::write(store.path().join("old/nsjail.json"), config.to_string()).unwrap();
    store
}

fn output(store: &tempfile::TempDir, arguments: &[&str]) -> Output {
    common::cofferdam().env("COFFERDAM_PROFILES", store.path()).args(arguments).output().unwrap()
}

#[track_caller]
fn refused(store: &tempfile::TempDir, code: i32, arguments: &[&str]) -> String {
    let output = output(store, arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), &*output.stdout), (Some(code), &b""[..]), "{arguments:?}: {message}");
    message
}

#[test]
fn profile_with_only_an_older_config_runs_with_warnings() {
    let store = store(&json!({}));
    let ran = output(&store, &["run", "--profile", "old"]);
    let message = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(0), &b"own\n"[..]), "{message}");
    assert!(message.contains("warning: clone_newnet: false was how older profiles wrote"), "{message}");
    let planned = output(&store, &["run", "--quiet", "--profile", "old", "--dry-run"]);
    assert_eq!(planned.stderr, b"");
    let plan: Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(plan["policy"]["network"]["mode"], "none", "{plan}");
    // What the store has as a policy counts.
    fs::write(store.path().join("old/policy.json"), r#"{"version": 1, "command": {"argv": ["/bin/echo", "new"]}}"#)
        .unwrap();
    assert_eq!(output(&store, &["run", "--profile", "old"]).stdout, b"new\n");
}

#[test]
fn errors_of_an_older_configuration_are_reported() {
    let store = store(&json!({"cmd": []}));
    let message = refused(&store, 125, &["run", "--profile", "old"]);
    assert!(message.contains("old/nsjail.json: cmd: the configuration names no command\nhint: "), "{message}");
    let file = store.path().join("old/nsjail.json");
    fs::write(&file, "{\n  \"cmd\": [").unwrap();
    let message = refused(&store, 125, &["run", "--profile", "old"]);
    assert!(message.contains("old/nsjail.json: not JSON: ") && message.contains("at line 2"), "{message}");
    assert!(message.contains("\nhint: correct it there, or export the profile again"), "{message}");
    let message = refused(&store, 125, &["run", "--profile", "nobody"]);
    assert!(message.contains("no profile `nobody`") && message.contains("policy.json is not there"), "{message}");
}

#[test]
fn a_value_of_a_wrong_type_is_refused_by_its_field() {
    let mount = |key: &str, value: Value| {
        let mut mount = json!({"src": "/usr", "dst": "/usr", "fstype": "bind", "rw": false});
        mount[key] = value;
        json!({"mount": [mount]})
    };
    for (wrong, words) in [
        (json!({"cmd": "echo"}), "cmd: invalid type: string \"echo\""),
        (json!({"cmd": ["echo", 5]}), "cmd[1]: invalid type: integer `5`"),
        (json!({"rlimit_as": "1g"}), "rlimit_as: invalid type: string \"1g\""),
        (json!({"hostname": null}), "hostname: invalid type: null"),
        (mount("src", json!(5)), "mount[0].src: invalid type: integer `5`"),
    ] {
        let store = store(&wrong);
        let said = refused(&store, 125, &["run", "--profile", "old"]);
        assert!(said.contains(words), "{said}");
        let text = fs::read_to_string(store.path().join("old/nsjail.json")).unwrap();
        // Of nsjail's own form as well: what is not read as a limit would be no limit.
        let own = text.replace("\"cmd\"", "\"unused\"").replace("\"env\"", "\"unused2\"");
        let mut own: Value = serde_json::from_str(&own).unwrap();
        own["exec_bin"] = json!({"path": "/bin/echo", "arg": ["own"]});
        own["time_limit"] = json!("soon");
        fs::write(store.path().join("old/nsjail.json"), own.to_string()).unwrap();
        let said = refused(&store, 125, &["run", "--profile", "old"]);
        assert!(said.contains(" is not accepted; "), "{said}");
    }
    let store = store(&json!({"cmd": "echo"}));
    let said = refused(&store, 125, &["run", "--profile", "old"]);
    assert!(said.contains("hint: \"cmd\": [\"echo\"]"), "{said}");
}

#[test]
fn an_empty_source_of_an_older_bind_is_the_targets_own_path() {
    let shown = common::open_directory();
    fs::write(shown.path().join("file"), "shown").unwrap();
    let bind = |target: &str| json!({"src": "", "dst": target, "fstype": "bind", "rw": false, "mandatory": true});
    let target = shown.path().display().to_string();
    let file = shown.path().join("file").display().to_string();
    let with = store(&json!({"cmd": ["/bin/cat", file], "mount": [bind("/usr"), bind("/lib"), bind(&target)]}));
    let ran = output(&with, &["run", "--profile", "old"]);
    assert_eq!(ran.stdout, b"shown", "{}", String::from_utf8_lossy(&ran.stderr));
    let without = store(&json!({"cmd": ["/bin/cat", file], "mount": [bind("/usr"), bind("/lib")]}));
    assert_eq!(output(&without, &["run", "--profile", "old"]).stdout, b"", "and without the mount nothing is shown");
}

#[test]
fn older_config_is_exported_only_as_its_policy() {
    let store = store(&json!({}));
    let exported = output(&store, &["export", "old"]);
    let policy: Value = serde_json::from_slice(&exported.stdout).unwrap();
    assert_eq!((&policy["version"], &policy["network"]["mode"]), (&1.into(), &"none".into()));
    assert!(String::from_utf8_lossy(&exported.stderr).contains("warning: clone_newnet"));
    let message = refused(&store, 125, &["export", "--format", "nsjail", "old"]);
    assert!(
        message.contains("an older nsjail.json") && message.contains("hint: cofferdam export old prints"),
        "{message}"
    );
}

#[test]
fn older_config_as_policy_file_is_refused_with_a_command() {
    let store = store(&json!({}));
    let file = store.path().join("old/nsjail.json").display().to_string();
    let way = format!("cofferdam run --profiles {} --profile old", store.path().display());
    let message = refused(&store, 1, &["check", &file]);
    assert!(
        message.lines().count() == 1 && message.contains("an older nsjail.json") && message.contains(&way),
        "{message}"
    );
    let message = refused(&store, 125, &["run", "--policy", &file]);
    assert!(
        message.lines().count() <= 3 && message.contains("an older nsjail.json") && message.contains(&way),
        "{message}"
    );
    let ran = common::cofferdam().args(way.split(' ').skip(1)).output().unwrap();
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(0), &b"own\n"[..]), "what it says works");
    // Somewhere else it has to be put into a store first.
    let elsewhere = store.path().join("legacy.json").display().to_string();
    fs::copy(&file, &elsewhere).unwrap();
    let message = refused(&store, 1, &["check", &elsewhere]);
    assert!(message.contains("DIR/ID/nsjail.json: cofferdam run --profiles DIR --profile ID"), "{message}");
    // A policy with errors keeps every one of them.
    fs::write(&elsewhere, r#"{"version": 1, "cmd": [], "mode": "EXEC"}"#).unwrap();
    assert_eq!(refused(&store, 1, &["check", &elsewhere]).lines().count(), 2);
}
