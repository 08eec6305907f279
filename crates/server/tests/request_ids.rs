//! Each answer reaches its own request, whatever ids a client uses, and nothing keeps running for a client that has gone.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use common::{Home, running, text, until};
use serde_json::{Value, json};

fn call(id: impl Into<Value>, code: &str) -> Value {
    let params = json!({ "name": "run", "arguments": { "env": "shell", "code": code } });
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": params })
}

#[test]
fn request_with_an_id_in_use_is_refused() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    client.send(&call(77, "sleep 0.5; echo first"));
    client.send(&call(77, "echo second"));
    // A string is a different id from the number in it.
    client.send(&call("77", "echo text"));
    let refused = client.find("the refusal", |message| message["id"] == 77);
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let first = client.find("the first answer", |message| message["id"] == 77);
    assert_eq!(text(&first["result"]), "first\n");
    let other = client.find("the other answer", |message| message["id"] == "77");
    assert_eq!(text(&other["result"]), "text\n");
    // The id of an answered request may be reused.
    client.send(&call(77, "echo third"));
    let third = client.find("the third answer", |message| message["id"] == 77);
    assert_eq!(text(&third["result"]), "third\n");
}

#[test]
fn cancelled_call_does_not_answer_the_next_one_with_its_id() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    client.run("shell", "true");
    for index in 0..10 {
        client.send(&call(900, "echo old; sleep 60"));
        std::thread::sleep(Duration::from_millis(if index % 2 == 0 { 0 } else { 60 }));
        client.notify("notifications/cancelled", json!({ "requestId": 900 }));
        client.send(&call(900, &format!("echo new {index}")));
        let answer = client.find("the answer", |message| message["id"] == 900);
        assert_eq!(text(&answer["result"]), format!("new {index}\n"), "{answer}");
    }
}

#[test]
fn closed_stdout_ends_the_runs_and_the_server() {
    let home = Home::new();
    let mut server =
        home.program(&json!({})).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let begins = std::time::Instant::now();
    writeln!(input, "{hello}\n{ready}\n{}\n{}", call(1, "echo runs"), call(2, "sleep 50")).unwrap();
    for wanted in ["serverInfo", "runs"] {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.contains(wanted), "{line}");
    }
    // Standard input stays open.
    drop(output);
    until("the server's end", || server.try_wait().unwrap().is_some());
    assert!(begins.elapsed() < Duration::from_secs(40));
    drop(input);
}

/// A server whose client has sent `initialize` and `messages`, with its standard input.
fn serving(messages: &[Value], program: &mut std::process::Command) -> (std::process::Child, ChildStdin) {
    let mut server = program.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    for message in [&hello, &ready].into_iter().chain(messages) {
        writeln!(input, "{message}").unwrap();
    }
    (server, input)
}

#[test]
fn closed_stdin_and_stdout_end_the_calls_at_once() {
    let home = Home::new();
    let (mut server, input) =
        serving(&[call(1, "sleep 7761.5 & sleep 7761.5")], home.program(&json!({})).stdout(Stdio::piped()));
    until("two sleeps", || running("7761.5") >= 2);
    let begun = Instant::now();
    drop((input, server.stdout.take()));
    until("the server's end", || server.try_wait().unwrap().is_some());
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert_eq!(running("7761.5"), 0);
}

#[test]
fn a_client_that_only_writes_no_more_has_its_answers() {
    let home = Home::new();
    let calls = [call(1, "sleep 1; echo late"), call(2, "sleep 7762.5")];
    let (mut server, input) = serving(&calls, home.program(&json!({})).stdout(Stdio::piped()));
    let output = BufReader::new(server.stdout.take().unwrap());
    drop(input);
    let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
    assert!(lines.iter().any(|line| line.contains("late\\n")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("\"id\":2")), "{lines:?}");
    until("the server's end", || server.try_wait().unwrap().is_some());
    assert_eq!(running("7762.5"), 0);
}

#[test]
fn orphaned_server_ends_with_its_standard_input() {
    let home = Home::new();
    // A shell starts the server and exits. Output goes to a file, so that its end of standard output stays open.
    let server = home.program(&json!({}));
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "exec 3<&0; \"$0\" \"$@\" <&3 3<&- >output & echo $! >pid; sleep 1"]);
    shell.arg(server.get_program()).args(server.get_args()).current_dir(home.path()).env_clear();
    shell.envs(server.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdout(Stdio::null());
    let (mut shell, input) = serving(&[call(1, "sleep 7763.5 & sleep 7763.5")], &mut shell);
    until("two sleeps", || running("7763.5") >= 2);
    assert!(shell.wait().unwrap().success());
    assert!(running("7763.5") >= 2, "its input is open, and it goes on");
    let begun = Instant::now();
    drop(input);
    until("the end of both", || running("7763.5") == 0);
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[test]
fn a_signal_ends_the_server_with_its_calls_at_once() {
    let home = Home::new();
    let (mut server, input) =
        serving(&[call(1, "sleep 7764.5 & sleep 7764.5")], home.program(&json!({})).stdout(Stdio::null()));
    until("two sleeps", || running("7764.5") >= 2);
    let begun = Instant::now();
    let reported = std::process::Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(reported.success());
    until("the server's end", || server.try_wait().unwrap().is_some());
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert_eq!(running("7764.5"), 0);
    drop(input);
}
