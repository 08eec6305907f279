//! Calls of the tool `run` of an MCP server on standard input and output, one after the other.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::judge::Seen;
use super::process::{Running, TICK};
use crate::Result;

/// Starts the server and makes the calls. The texts of the answers are what is seen of its standard output.
pub(super) fn run(command: &mut Command, calls: &[Value], within: Duration) -> Result<Seen> {
    let mut running = Running::start(command, Stdio::piped(), within)?;
    let mut input = running.input().ok_or("the server has no standard input")?;
    let mut texts = String::new();
    let trouble = talk(&running, &mut input, calls, &mut texts).err();
    drop(input);
    let seen = running.close(trouble)?;
    Ok(Seen { out: texts, ..seen })
}

fn talk(running: &Running, input: &mut ChildStdin, calls: &[Value], texts: &mut String) -> Result {
    let client = json!({ "name": "tasks", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    ask(running, input, 0, "initialize", &hello)?;
    send(input, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
    for (at, arguments) in calls.iter().enumerate() {
        let answer = ask(running, input, at + 1, "tools/call", &json!({ "name": "run", "arguments": arguments }))?;
        *texts += &text(&answer);
    }
    Ok(())
}

/// The texts of an answer, or its error.
fn text(answer: &Value) -> String {
    let parts = answer["result"]["content"].as_array().into_iter().flatten();
    let mut text: String = parts.filter_map(|part| part["text"].as_str()).map(|text| format!("{text}\n")).collect();
    if let Some(error) = answer["error"]["message"].as_str() {
        text += &format!("{error}\n");
    }
    text
}

fn send(input: &mut ChildStdin, message: &Value) -> Result {
    writeln!(input, "{message}")
        .and_then(|()| input.flush())
        .map_err(|error| format!("the server takes no calls: {error}"))
}

fn ask(running: &Running, input: &mut ChildStdin, id: usize, method: &str, params: &Value) -> Result<Value> {
    send(input, &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
    loop {
        let over = running.ended() || running.late();
        let answers = running.out.since(0);
        let mut answers = answers.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(answer) = answers.find(|answer| answer["id"] == id && answer.get("method").is_none()) {
            return Ok(answer);
        }
        if over {
            return Err(format!("no answer to {method}"));
        }
        std::thread::sleep(TICK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_texts_and_errors() {
        let answer = json!({ "result": { "content": [{ "text": "a" }, { "data": "" }, { "text": "b" }] } });
        assert_eq!(text(&answer), "a\nb\n");
        assert_eq!(text(&json!({ "error": { "message": "no" } })), "no\n");
    }

    #[test]
    fn calls_are_made_one_after_the_other() {
        let script = r#"n=0; while read -r line; do case "$line" in *'"id"'*)
            printf '{"id":%s,"result":{"content":[{"text":"answer %s"}]}}\n' $n $n; n=$((n+1));; esac; done; exit 5"#;
        let mut command = Command::new("setsid");
        let seen = run(command.args(["sh", "-c", script]), &[json!({}), json!({})], Duration::from_secs(20)).unwrap();
        assert_eq!((seen.code, seen.out.as_str(), seen.trouble), (Some(5), "answer 1\nanswer 2\n", None));
        let seen = run(Command::new("setsid").args(["sh", "-c", "exit 3"]), &[], Duration::from_secs(20)).unwrap();
        assert!(seen.trouble.is_some());
    }
}
