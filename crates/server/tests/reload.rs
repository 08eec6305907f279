//! Definitions that change under a running server.

mod common;

use std::process::Command;

use common::{Home, artifact, meta, text, until};
use serde_json::{Value, json};

const SHELL: &str = "#!/bin/sh\nexec sh -s\n";

fn is_changed(message: &Value) -> bool {
    message["method"] == "notifications/tools/list_changed"
}

fn names(client: &mut common::Client) -> Vec<String> {
    let tools = client.call("tools/list", json!({}));
    let names = &tools["result"]["tools"][0]["inputSchema"]["properties"]["env"]["enum"];
    names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn new_artifact_is_used_by_the_next_call_and_notified() {
    let home = Home::new();
    let registry = home.registry();
    let mut client = home.client(json!({}));
    assert_eq!(names(&mut client), ["node", "python", "shell"]);
    artifact(&registry, "mine", SHELL);
    // At once, whether or not inotify has reported it yet.
    assert_eq!(text(&client.run("mine", "echo works")), "works\n");
    client.find("list_changed", is_changed);
    assert_eq!(names(&mut client), ["mine", "node", "python", "shell"]);
    // Without a call that names it.
    artifact(&registry, "other", SHELL);
    client.find("list_changed", is_changed);
    assert!(names(&mut client).contains(&"other".to_owned()));
    std::fs::remove_dir_all(registry.join("mine")).unwrap();
    until("mine to be gone", || !names(&mut client).contains(&"mine".to_owned()));
    let id = client.begin("mine", "echo x");
    assert_eq!(client.answer(id)["error"]["code"], -32602);
}

#[test]
fn a_registry_that_did_not_exist_is_noticed() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    artifact(&home.registry(), "mine", SHELL);
    client.find("list_changed", is_changed);
    until("mine", || names(&mut client).contains(&"mine".to_owned()));
}

#[test]
fn artifact_being_copied_is_used_once_it_is_complete() {
    let home = Home::new();
    let registry = home.registry();
    let mut client = home.client(json!({}));
    std::fs::create_dir(registry.join("slow")).unwrap();
    std::fs::write(registry.join("slow/metadata.json"), "{\"na").unwrap();
    let id = client.begin("slow", "echo x");
    let reported = client.answer(id);
    assert!(reported["error"]["message"].as_str().unwrap().contains("`slow` is unavailable"), "{reported}");
    assert_eq!(text(&client.run("shell", "echo others work")), "others work\n");
    artifact(&registry, "slow", SHELL);
    assert_eq!(text(&client.run("slow", "echo whole")), "whole\n");
}

#[test]
fn a_run_is_not_touched_by_what_changes_meanwhile() {
    let home = Home::new();
    let registry = home.registry();
    artifact(&registry, "mine", SHELL);
    let mut client = home.client(json!({}));
    let id = client.begin("mine", "echo begun > /workspace/x; sleep 1; cat /workspace/x");
    std::thread::sleep(std::time::Duration::from_millis(300));
    std::fs::write(registry.join("mine/metadata.json"), json!({ "name": "mine", "timeout_seconds": 1 }).to_string())
        .unwrap();
    std::fs::remove_file(registry.join("mine/bin/run")).unwrap();
    assert_eq!(text(&client.answer(id)["result"]), "begun\n");
    let id = client.begin("mine", "echo x");
    let reported = client.answer(id);
    assert!(reported["error"]["message"].as_str().unwrap().contains("bin/run: is not there"), "{reported}");
}

#[test]
fn changed_limits_apply_to_the_next_call() {
    let home = Home::new();
    home.configure("[environments.quick]\npreset = \"shell\"\n");
    let mut client = home.client(json!({}));
    assert_eq!(text(&client.run("quick", "sleep 0.1; echo slept")), "slept\n");
    home.configure("[environments.quick]\npreset = \"shell\"\ntimeout_seconds = 1\n");
    client.find("list_changed", is_changed);
    let result = client.run("quick", "sleep 20; echo slept");
    assert_eq!((&result["structuredContent"]["outcome"], &result["isError"]), (&json!("timed_out"), &json!(true)));
    assert!(text(&result).contains("by its time limit"), "{result}");
}

#[test]
fn invalid_definitions_leave_the_previous_ones_in_force() {
    let home = Home::new();
    home.configure("[environments.mine]\npreset = \"shell\"\n");
    let mut client = home.client(json!({}));
    home.configure("[environments.mine\n");
    let id = client.begin("unknown", "x");
    assert_eq!(client.answer(id)["error"]["code"], -32602);
    assert_eq!(text(&client.run("mine", "echo as before")), "as before\n");
    let (_, said) = client.leave();
    assert!(said.contains("the environments stay as they were") && said.contains("config.toml:1"), "{said}");
}

#[test]
fn stateless_client_is_notified_on_its_subscription() {
    let home = Home::new();
    let registry = home.registry();
    let mut client = home.silent(json!({}));
    let wanted = json!({ "toolsListChanged": true });
    let id = client.ask("subscriptions/listen", json!({ "notifications": wanted, "_meta": meta() }));
    let is_acknowledged = |message: &Value| message["method"] == "notifications/subscriptions/acknowledged";
    client.find("the acknowledgement", is_acknowledged);
    artifact(&registry, "mine", SHELL);
    let reported = client.find("list_changed", is_changed);
    assert_eq!(reported["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id, "{reported}");
}

#[test]
fn sighup_and_the_reload_command_reload_definitions() {
    let home = Home::new();
    let registry = home.registry();
    let client = home.client(json!({}));
    let pid = client.child.id();
    let around = cofferdam_config::environments::Surroundings {
        variables: [("XDG_RUNTIME_DIR".to_owned(), home.path().to_str().unwrap().to_owned())].into(),
        cwd: "/".into(),
        homes: Vec::new(),
        system: "/etc".into(),
    };
    let ask = || cofferdam_config::server_control::ask(&around, "reload").unwrap();
    let answers = ask();
    assert_eq!((answers.len(), answers[0].pid), (1, pid));
    assert_eq!(answers[0].answer.as_deref(), Ok("nothing has changed: 3 environments"));
    artifact(&registry, "mine", SHELL);
    assert!(ask()[0].answer.as_ref().unwrap().ends_with(": 4 environments"));
    home.configure("nonsense");
    assert!(ask()[0].answer.as_ref().unwrap().starts_with("refused: "));
    assert!(Command::new("kill").args(["-HUP", &pid.to_string()]).status().unwrap().success());
    until("SIGHUP to be heard", || client.said().contains("SIGHUP: reading the definitions again"));
    assert_eq!(client.said().matches("the environments stay as they were").count(), 1, "it is told once");
    let (code, said) = client.leave();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(ask(), [], "the socket goes with the server");
}

#[test]
fn many_calls_of_unknown_environments_do_not_block_others() {
    let home = Home::new();
    let registry = home.registry();
    // Enough definitions that reading them takes a while.
    for index in 0..50 {
        artifact(&registry, &format!("one{index}"), SHELL);
    }
    let mut client = home.client(json!({}));
    client.run("shell", "true");
    let unknown: Vec<u64> = (0..2000).map(|index| client.begin(&format!("none{index}"), "x")).collect();
    let begun = std::time::Instant::now();
    assert_eq!(text(&client.run("shell", "echo mine")), "mine\n");
    let waited = begun.elapsed();
    for id in unknown {
        assert_eq!(client.answer(id)["error"]["code"], -32602);
    }
    assert!(waited < std::time::Duration::from_secs(3), "{waited:?}");
    // An environment that is defined a moment later is found, also by many calls at once.
    artifact(&registry, "late", SHELL);
    let asked: Vec<u64> = (0..20).map(|_| client.begin("late", "echo late")).collect();
    for id in asked {
        assert_eq!(text(&client.answer(id)["result"]), "late\n");
    }
}
