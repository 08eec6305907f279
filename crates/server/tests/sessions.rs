//! Sessions through the protocol: state stays, belongs to its environment and its client, and what is lost is told.

mod common;

use std::time::Instant;

use common::{Client, Home, artifact, text};
use serde_json::{Value, json};

fn ask(client: &mut Client, env: &str, session: &str, code: &str) -> u64 {
    client.ask("tools/call", json!({ "name": "run", "arguments": { "env": env, "session": session, "code": code } }))
}

fn call(client: &mut Client, env: &str, session: &str, code: &str) -> Value {
    let id = ask(client, env, session, code);
    let answer = client.answer(id);
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"].clone()
}

#[test]
fn state_stays_in_each_language_and_belongs_to_one_environment() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    for (env, first, second) in [
        ("python", "x = 41", "print(x + 1)"),
        ("shell", "x=41", "echo $((x + 1))"),
        ("node", "var x = 41", "console.log(x + 1)"),
    ] {
        let begun = call(&mut client, env, env, first);
        assert_eq!(begun["structuredContent"]["session"]["fresh"], true, "{begun}");
        assert_eq!(text(&begun), format!("[a new session: {env}]"));
        let result = call(&mut client, env, env, second);
        assert_eq!((text(&result), &result["isError"]), ("42\n", &json!(false)), "{result}");
        assert_eq!(result["structuredContent"]["session"]["fresh"], false);
    }
    let other = call(&mut client, "shell", "python", "echo x");
    assert_eq!(other["isError"], true, "{other}");
    assert!(text(&other).contains("belongs to environment 'python'"), "{other}");
    // What runs without a session sees nothing of one.
    assert!(text(&client.run("python", "print('x' in globals())")).starts_with("False"));
}

#[test]
fn a_name_of_the_servers_making_is_told_and_good_for_the_next_call() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let begun = call(&mut client, "python", "new", "x = 1");
    let name = begun["structuredContent"]["session"]["name"].as_str().unwrap().to_owned();
    assert!(name.len() >= 32 && text(&begun).contains(&name), "{begun}");
    assert_eq!(text(&call(&mut client, "python", &name, "print(x)")), "1\n");
    let second = call(&mut client, "python", "new", "print('x' in globals())");
    assert!(text(&second).starts_with("False\n"), "{second}");
}

#[test]
fn a_timeout_says_whether_the_state_is_kept_and_the_next_answer_is_its_own() {
    let home = Home::new();
    home.configure("[environments.quick]\npreset = \"python\"\ntimeout_seconds = 1\n");
    let mut client = home.client(json!({}));
    call(&mut client, "quick", "s", "x = 7");
    let late =
        call(&mut client, "quick", "s", "import time\nprint('begun', flush=True)\ntime.sleep(30)\nprint('never')");
    assert_eq!(
        (&late["structuredContent"]["outcome"], &late["isError"]),
        (&json!("timed_out"), &json!(true)),
        "{late}"
    );
    assert!(text(&late).contains("begun") && text(&late).contains("the session keeps its state"), "{late}");
    assert_eq!(text(&call(&mut client, "quick", "s", "print(x)")), "7\n");
}

#[test]
fn a_cancelled_call_is_not_answered_and_its_session_goes_on() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    call(&mut client, "python", "s", "x = 7");
    let id = ask(&mut client, "python", "s", "import time; time.sleep(30)");
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.tell("notifications/cancelled", json!({ "requestId": id }));
    let begun = Instant::now();
    assert_eq!(text(&call(&mut client, "python", "s", "print(x)")), "7\n");
    assert!(begun.elapsed().as_secs() < 20);
    assert!(!client.early.iter().any(|message| message["id"] == id));
}

#[test]
fn an_interpreter_that_dies_is_told_and_the_next_call_begins_anew() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    call(&mut client, "python", "s", "x = 1");
    let died = call(&mut client, "python", "s", "import os; os.kill(os.getpid(), 9)");
    assert_eq!(died["isError"], true, "{died}");
    assert!(text(&died).contains("the session is over, and its state is gone"), "{died}");
    assert!(died["structuredContent"]["session"]["over"].is_string(), "{died}");
    let next = call(&mut client, "python", "s", "print('x' in globals())");
    assert!(text(&next).starts_with("False\n"), "{next}");
    assert_eq!(next["structuredContent"]["session"]["fresh"], true);
}

#[test]
fn files_of_a_session_come_back_when_they_are_written() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let first = call(&mut client, "python", "s", "open('output/a.json', 'w').write('{}')");
    assert_eq!(first["structuredContent"]["artifacts"], json!(["a.json"]), "{first}");
    std::thread::sleep(std::time::Duration::from_millis(50));
    let second =
        call(&mut client, "python", "s", "print(open('output/a.json').read()); open('output/b.txt', 'w').write('b')");
    assert_eq!(second["structuredContent"]["artifacts"], json!(["b.txt"]), "{second}");
    assert_eq!(text(&second), "{}\n");
}

#[test]
fn an_artifact_without_a_session_program_says_so() {
    let home = Home::new();
    artifact(&home.registry(), "mine", "#!/bin/sh\nexec sh -s\n");
    let mut client = home.client(json!({}));
    let told = call(&mut client, "mine", "s", "echo x");
    assert_eq!(told["isError"], true);
    assert!(text(&told).contains("it has no bin/session-run"), "{told}");
}
