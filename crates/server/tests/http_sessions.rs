//! Sessions over HTTP of the protocol with `initialize`: each answer reaches its own stream, a broken stream can be resumed, and
//! nothing keeps running for a client that has gone.

mod common;

use std::time::{Duration, Instant};

use common::http::{Served, TOKEN, last};
use common::{running, text, until};
use serde_json::{Value, json};

fn served() -> Served {
    Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN))
}

fn printed(answer: &Value) -> &str {
    text(&answer["result"])
}

#[test]
fn cancelled_call_does_not_answer_the_next_one_with_its_id() {
    let served = served();
    let session = served.session();
    // Messages that belong to no request would arrive here.
    let (_, mut rest) = session.open("GET", "", "");
    for index in 0..10 {
        let mut old = session.run(900, "echo old; trap '' TERM; sleep 60");
        std::thread::sleep(Duration::from_millis(if index % 2 == 0 { 0 } else { 60 }));
        session.notify("notifications/cancelled", json!({ "requestId": 900 }));
        let answer = session.run(900, &format!("echo new {index}")).message().expect("an answer");
        assert_eq!((printed(&answer), &answer["id"]), (format!("new {index}\n").as_str(), &json!(900)), "{answer}");
        assert_eq!(old.message(), None, "a cancelled call is not answered");
    }
    std::thread::sleep(Duration::from_millis(300));
    drop(session.open("DELETE", "", ""));
    assert_eq!(rest.message(), None);
}

#[test]
fn what_a_client_says_of_itself_is_bounded() {
    let served = served();
    let bearer = format!("Bearer {TOKEN}");
    let hello = |name: usize, capability: usize| {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "experimental": { "x": { "y": "c".repeat(capability) } } },
            "clientInfo": { "name": "n".repeat(name), "version": "1" },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let (_, _, answer) = served.send(&[("Authorization", &bearer)], &body.to_string());
        last(&answer)
    };
    for (name, capability) in [(70 << 10, 1), (1, 70 << 10), (40 << 10, 40 << 10)] {
        let refused = hello(name, capability);
        assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32602), &json!(1)), "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("64 KiB"), "{refused}");
    }
    let answer = hello(20 << 10, 20 << 10);
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
}

#[test]
fn request_with_an_id_in_use_is_refused() {
    let served = served();
    let session = served.session();
    let mut first = session.run(77, "sleep 0.5; echo first");
    let refused = session.run(77, "echo second").message().unwrap();
    assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32600), &json!(77)), "{refused}");
    // A string is a different id from the number in it, and each client has its own ids.
    assert_eq!(printed(&session.run("77", "echo text").message().unwrap()), "text\n");
    assert_eq!(printed(&served.session().run(77, "echo other").message().unwrap()), "other\n");
    assert_eq!(printed(&first.message().unwrap()), "first\n");
    assert_eq!(printed(&session.run(77, "echo third").message().unwrap()), "third\n");
}

#[test]
fn progress_reaches_the_stream_of_its_own_call() {
    let served = served();
    let session = served.session();
    let ask = |id: u64, word: &str| {
        let arguments =
            json!({ "env": "shell", "code": format!("for i in 1 2 3 4; do echo {word}; sleep 0.15; done") });
        session.ask(
            id,
            "tools/call",
            json!({ "name": "run", "arguments": arguments, "_meta": { "progressToken": "same" } }),
        )
    };
    let both = [("one", ask(1, "one")), ("two", ask(2, "two"))];
    for (word, mut events) in both {
        let mut reported = 0;
        loop {
            let message = events.message().expect("an answer");
            if message.get("result").is_some() {
                assert_eq!(printed(&message), format!("{word}\n").repeat(4));
                break;
            }
            assert_eq!(message["params"]["progressToken"], "same", "{message}");
            let said = message["params"]["message"].as_str().unwrap();
            assert!(said.lines().all(|line| line == word), "{said:?} in the stream of {word}");
            reported += 1;
        }
        assert!(reported > 0, "no progress of {word}");
    }
}

#[test]
fn call_ends_when_its_client_does_not_resume() {
    let served = served();
    let session = served.session();
    let begun = Instant::now();
    let mut events = session.run(1, "sleep 7753.5 & sleep 7753.5");
    let (id, _) = events.next().expect("where to come back");
    until("two sleeps", || running("7753.5") >= 2);
    drop(events);
    // If the client resumes the stream, the call continues.
    std::thread::sleep(Duration::from_secs(4));
    let again = session.open("GET", &format!("Last-Event-ID: {id}\r\n"), "").1;
    std::thread::sleep(Duration::from_secs(13));
    assert!(running("7753.5") >= 2, "a call whose stream was resumed continues");
    drop(again);
    until("the end of both", || running("7753.5") == 0);
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    // The session continues, and the id can be reused.
    assert_eq!(printed(&session.run(1, "echo alive").message().unwrap()), "alive\n");
}

#[test]
fn broken_stream_resumes_before_and_after_its_answer() {
    let served = served();
    let session = served.session();
    let other = served.session();
    let again = |id: &str| session.open("GET", &format!("Last-Event-ID: {id}\r\n"), "").1;
    for (pause, code, expected) in [(0, "sleep 1; echo before", "before\n"), (1500, "sleep 0.3; echo after", "after\n")]
    {
        let mut events = session.run(5, code);
        let (id, _) = events.next().expect("where to come back");
        drop(events);
        std::thread::sleep(Duration::from_millis(pause));
        let foreign = other.open("GET", &format!("Last-Event-ID: {id}\r\n"), "").1.message();
        assert_eq!(foreign, None, "another session's events are out of reach");
        let answer = again(&id).message().expect("the answer");
        assert_eq!((printed(&answer), &answer["id"]), (expected, &json!(5)), "{answer}");
        // A stream that was read to its end is not retained.
        assert_eq!(again(&id).message(), None);
    }
}

#[test]
fn ended_session_ends_its_calls_at_once() {
    let served = served();
    let session = served.session();
    let mut events = session.run(1, "sleep 7752.5 & sleep 7752.5");
    until("two sleeps", || running("7752.5") >= 2);
    let begun = Instant::now();
    assert!(session.open("DELETE", "", "").0.starts_with("HTTP/1.1 204"));
    until("the end of both", || running("7752.5") == 0);
    assert_eq!(events.message(), None);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(
        session
            .open("POST", "", &json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string())
            .0
            .contains(" 404 ")
    );
}

#[test]
fn silent_call_keeps_its_stream_open() {
    let served = served();
    let session = served.session();
    let mut waits = session.run(1, "sleep 4; echo late");
    // Others of the same client come and go meanwhile.
    for n in 0..5 {
        assert_eq!(printed(&session.run(format!("n{n}"), "echo quick").message().unwrap()), "quick\n");
    }
    assert_eq!(printed(&waits.message().unwrap()), "late\n");
}

#[test]
fn sessions_of_other_clients_cannot_be_listed_or_ended() {
    let served = Served::start(json!({ "http": "127.0.0.1:0", "tools": ["sessions"] }), Some(TOKEN));
    let (one, two) = (served.session(), served.session());
    let call = |session: &common::http::HttpSession<'_>, name: &str, arguments: Value| {
        session.call(1, name, arguments)["result"].clone()
    };
    let stateless = |name: &str, arguments: Value| {
        served.ask("tools/call", Some(name), json!({ "name": name, "arguments": arguments })).1["result"].clone()
    };
    let code = |session: &str| json!({ "env": "shell", "session": session, "code": "x=1" });
    call(&one, "run", code("s"));
    assert_eq!(call(&one, "list_sessions", json!({}))["structuredContent"]["sessions"][0]["name"], "s");
    assert_eq!(call(&two, "list_sessions", json!({}))["structuredContent"]["sessions"], json!([]));
    let begun = stateless("run", code("new"));
    let name = begun["structuredContent"]["session"]["name"].as_str().unwrap().to_owned();
    // In the stateless protocol a name is required, and none is listed.
    let asked = stateless("list_sessions", json!({}));
    assert!(asked["isError"] == true && !asked.to_string().contains(&name), "{asked}");
    let listed = stateless("list_sessions", json!({ "session": name }));
    assert_eq!(listed["structuredContent"]["sessions"][0]["env"], "shell", "{listed}");
    for session in ["s", &name] {
        let refused = call(&two, "end_session", json!({ "session": session }));
        assert!(refused["isError"] == true && text(&refused).contains("there is no session"), "{refused}");
    }
    assert_eq!(stateless("end_session", json!({ "session": "s" }))["isError"], true);
    assert_eq!(stateless("end_session", json!({ "session": name }))["isError"], false);
    assert_eq!(stateless("list_sessions", json!({ "session": name }))["isError"], true);
    assert_eq!(call(&one, "end_session", json!({ "session": "s" }))["isError"], false);
}
