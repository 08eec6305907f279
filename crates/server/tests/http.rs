//! The server over streamable HTTP, with hand-written requests: which are accepted, and which are refused.

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use common::http::{Served, TOKEN, initialize, last};
use common::{Home, meta, until};
use serde_json::{Value, json};

#[test]
fn both_eras_are_served_to_who_has_the_token() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let (status, tools) = served.ask("tools/list", None, json!({}));
    assert_eq!((status, &tools["result"]["tools"][0]["name"]), (200, &json!("run")), "{tools}");
    let arguments = json!({ "env": "shell", "code": "echo over http" });
    let (status, ran) = served.ask("tools/call", Some("run"), json!({ "name": "run", "arguments": arguments }));
    assert_eq!((status, common::text(&ran["result"])), (200, "over http\n"));
    let bearer = format!("Bearer {TOKEN}");
    let (status, head, body) = served.send(&[("Authorization", &bearer)], &initialize());
    assert_eq!((status, &last(&body)["result"]["protocolVersion"]), (200, &json!("2025-11-25")), "{body}");
    let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session").to_owned();
    let call = json!({ "name": "run", "arguments": { "env": "shell", "code": "echo legacy" } });
    let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }).to_string();
    let headers =
        [("Authorization", bearer.as_str()), ("Mcp-Session-Id", &session), ("MCP-Protocol-Version", "2025-11-25")];
    // The stream ends with the answer.
    let (status, _, body) = served.send(&headers, &body);
    assert_eq!((status, common::text(&last(&body)["result"])), (200, "legacy\n"), "{body}");
}

#[test]
fn no_sandbox_sees_the_token_file() {
    let home = Home::new();
    let project = tempfile::tempdir().unwrap();
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // The control: another file that its owner alone may read.
    for name in ["token", "other"] {
        std::fs::write(project.path().join(name), TOKEN).unwrap();
        std::fs::set_permissions(project.path().join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    home.configure(&format!("[project]\npath = {:?}\n", project.path()));
    let command = home.program(&json!({ "http": "127.0.0.1:0", "token_file": project.path().join("token") }));
    let served = Served::begin(command, home, None);
    let code = "cat /project/other; cat /project/token";
    for session in [None, Some("new")] {
        let mut arguments = json!({ "env": "shell", "code": code });
        if let Some(session) = session {
            arguments["session"] = json!(session);
        }
        let (_, ran) = served.ask("tools/call", Some("run"), json!({ "name": "run", "arguments": arguments }));
        assert_eq!(ran["result"]["structuredContent"]["stdout"], TOKEN, "the other file alone: {ran}");
    }
}

#[test]
fn a_message_with_a_key_twice_is_invalid() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let bearer = format!("Bearer {TOKEN}");
    let good = initialize();
    let twice = good.replacen("\"params\":{", "\"params\":{\"capabilities\":{},\"capabilities\":{},", 1);
    assert_ne!(good, twice);
    let (status, _, body) = served.send(&[("Authorization", &bearer)], &twice);
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32602)), "{body}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("`capabilities`"), "{body}");
    assert_eq!(served.send(&[("Authorization", &bearer)], &good).0, 200);
}

#[test]
fn a_message_of_no_protocol_is_answered_with_its_error() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let bearer = format!("Bearer {TOKEN}");
    for (message, code) in [
        ("{", -32700),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
    ] {
        let (status, head, body) = served.send(&[("Authorization", &bearer)], message);
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {head}\n{body}"));
        assert_eq!((status, &answer["error"]["code"], &answer["id"]), (400, &json!(code), &Value::Null), "{body}");
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains("\nhint: send one message of JSON-RPC 2.0"), "{text}");
    }
    assert_eq!(served.send(&[("Authorization", &bearer)], &initialize()).0, 200);
}

#[test]
fn without_the_token_nothing_is_answered() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let wrong = format!("Bearer {}", TOKEN.replace('0', "1"));
    for headers in [&[][..], &[("Authorization", wrong.as_str())], &[("Authorization", TOKEN)]] {
        let (status, head, body) = served.send(headers, &initialize());
        assert_eq!(status, 401, "{head}");
        assert!(head.to_lowercase().contains("www-authenticate: bearer") && body.contains("hint: "), "{head}\n{body}");
    }
    let right = format!("bearer {TOKEN}");
    for two in [[right.as_str(), &wrong], [&wrong, &right], [&right, &right]] {
        assert_eq!(served.send(&two.map(|value| ("Authorization", value)), &initialize()).0, 401, "{two:?}");
    }
    assert_eq!(served.send(&[("Authorization", &right)], &initialize()).0, 200);
}

#[test]
fn foreign_hosts_and_origins_are_refused_and_own_accepted() {
    let served =
        Served::start(json!({ "http": "127.0.0.1:0", "allow_origins": ["https://app.example:443"] }), Some(TOKEN));
    let bearer = format!("Bearer {TOKEN}");
    let own = format!("http://localhost:{}", served.port);
    let status = |header: (&str, &str)| served.send(&[("Authorization", &bearer), header], &initialize()).0;
    for (header, expected) in [
        (("Host", "localhost"), 200),
        (("Host", "rebound.example"), 403),
        (("Host", "evil@127.0.0.1"), 400),
        (("Host", "127.0.0.1@evil.example"), 400),
        (("Origin", "https://evil.example"), 403),
        (("Origin", "http://localhost:1"), 403),
        (("Origin", "null"), 403),
        (("Origin", "https://app.example"), 200),
        (("Origin", own.as_str()), 200),
    ] {
        assert_eq!(status(header), expected, "{header:?}");
    }
    let two =
        [("Authorization", bearer.as_str()), ("Origin", "https://app.example"), ("Origin", "https://evil.example")];
    assert_eq!(served.send(&two, &initialize()).0, 400);
}

#[test]
fn oversized_request_is_refused_before_it_is_read() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let bearer = format!("Bearer {TOKEN}");
    let (status, _, body) = served.send(&[("Authorization", &bearer)], &" ".repeat(40 << 20));
    // A client that is still writing may not receive the text.
    assert!(status == 413 && (body.is_empty() || body.contains("hint: code may have 16 MiB")), "{status} {body}");
    assert_eq!(served.ask("tools/list", None, json!({})).0, 200);
}

/// Before any of it has come.
#[test]
fn a_length_that_is_too_large_is_refused_at_once() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let mut stream = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: 99999999999\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer));
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("hint: code may have 16 MiB"), "{answer}");
    assert_eq!(served.ask("tools/list", None, json!({})).0, 200);
}

#[test]
fn a_stream_that_is_closed_ends_its_run() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let running = || {
        let found = std::fs::read_dir("/proc").unwrap().flatten();
        found
            .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
            .filter(|line| line.windows(6).any(|part| part == b"7741.5"))
            .count()
    };
    let arguments = json!({ "env": "shell", "code": "sleep 7741.5 & sleep 7741.5" });
    let params = json!({ "name": "run", "arguments": arguments, "_meta": meta() });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: run\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    until("two sleeps", || running() >= 2);
    drop(stream);
    until("the end of both", || running() == 0);
    assert_eq!(served.ask("tools/list", None, json!({})).0, 200);
}

#[test]
fn stateless_session_is_known_by_its_server_given_name() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let call = |session: &str, code: &str| {
        let arguments = json!({ "env": "python", "session": session, "code": code });
        served.ask("tools/call", Some("run"), json!({ "name": "run", "arguments": arguments })).1["result"].clone()
    };
    let refused = call("guessed", "x = 1");
    assert!(common::text(&refused).contains("there is no such session"), "{refused}");
    let begun = call("new", "x = 41");
    let name = begun["structuredContent"]["session"]["name"].as_str().unwrap().to_owned();
    assert_eq!(common::text(&call(&name, "print(x + 1)")), "42\n");
}

#[test]
fn new_token_is_logged_or_stored_in_a_private_file() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), None);
    until("the token", || served.said.lock().unwrap().contains("Authorization: Bearer "));
    let home = Home::new();
    let file = home.path().join("token");
    let served = Served::start(json!({ "http": "127.0.0.1:0", "token_file": file }), None);
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    assert_eq!(served.send(&[("Authorization", &format!("Bearer {}", token.trim()))], &initialize()).0, 200);
    assert!(!served.said.lock().unwrap().contains(token.trim()), "it is not told as well");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = home.program(&json!({ "http": "127.0.0.1:0", "token_file": file })).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("hint: chmod 600"));
}

#[test]
fn reachable_address_needs_a_given_token_and_a_host_name() {
    let home = Home::new();
    let refused = |serve: Value, token: Option<&str>| {
        let mut command = home.program(&serve);
        if let Some(token) = token {
            command.env("COFFERDAM_MCP_TOKEN", token);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(json!({ "http": "0.0.0.0:0" }), None).contains("hint: --token-file FILE"));
    assert!(refused(json!({ "http": "0.0.0.0:0" }), Some(TOKEN)).contains("hint: --allow-host NAME"));
    assert!(refused(json!({ "http": "[::ffff:10.0.0.1]:0" }), None).contains("hint: --token-file FILE"));
    assert!(refused(json!({ "http": "nonsense" }), None).contains("hint: --http 127.0.0.1:8800"));
}

#[test]
fn conformance_fixtures_keep_a_token_and_warn_without_one() {
    for (token, status) in [(Some(TOKEN), 401), (None, 200)] {
        let home = Home::new();
        let mut command = home.program(&json!({ "http": "127.0.0.1:0" }));
        command.env("COFFERDAM_CONFORMANCE_FIXTURES", "1");
        let served = Served::begin(command, home, token);
        assert_eq!(served.send(&[], &initialize()).0, status);
        let said = served.said.lock().unwrap().clone();
        assert_eq!(said.contains("no token is asked for"), token.is_none(), "{said}");
    }
}

#[test]
fn files_of_another_clients_session_are_not_reached() {
    let served = Served::start(json!({ "http": "127.0.0.1:0", "tools": ["download", "upload"] }), Some(TOKEN));
    let bearer = format!("Bearer {TOKEN}");
    let connect = || {
        let (status, head, _) = served.send(&[("Authorization", &bearer)], &initialize());
        assert_eq!(status, 200);
        let line =
            head.lines().find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id:")).unwrap().to_owned();
        let id = line.split_once(':').unwrap().1.trim().to_owned();
        let headers = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", id.as_str())];
        served.send(&headers, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        id
    };
    let connected = |id: &str, name: &str, arguments: &Value| {
        let params = json!({ "name": name, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }).to_string();
        last(&served.send(&[("Authorization", &bearer), ("Mcp-Session-Id", id)], &body).2)
    };
    let stateless = |name: &str, arguments: &Value| {
        served.ask("tools/call", Some(name), json!({ "name": name, "arguments": arguments })).1
    };
    let file = |answer: &Value| answer["result"]["content"][0]["resource"]["text"].clone();
    let refused = |answer: Value| {
        let reported = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(answer["result"]["isError"] == true && reported.contains("there is no "), "{answer}");
    };
    let (one, two) = (connect(), connect());
    let put = json!({ "session": "s", "env": "shell", "path": "a", "text": "of one" });
    let get = json!({ "session": "s", "path": "a" });
    let answer = connected(&one, "upload", &put);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    refused(connected(&two, "download", &get));
    assert_eq!(file(&connected(&one, "download", &get)), "of one");
    // Without a connection there are no session names of the client's own.
    refused(stateless("download", &get));
    refused(stateless("upload", &put));
    let mut new = put;
    new["session"] = json!("new");
    let begun = stateless("upload", &new);
    let name = begun["result"]["structuredContent"]["session"]["name"].clone();
    let get = json!({ "session": name, "path": "a" });
    assert_eq!(file(&stateless("download", &get)), "of one", "{begun}");
    refused(connected(&two, "download", &get));
}

#[test]
fn every_refusal_says_what_helps() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let bearer = format!("Bearer {TOKEN}");
    let raw = |method: &str, path: &str, headers: &str, body: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {bearer}\r\nConnection: close\r\n{headers}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let accept = "Accept: application/json, text/event-stream\r\n";
    let both = format!("{accept}Content-Type: application/json\r\n");
    let session = format!("{both}Mcp-Session-Id: 0123\r\n");
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    for (status, hint, answer) in [
        (404, "served at /mcp", raw("POST", "/", &both, &ping)),
        (404, "send initialize again", raw("POST", "/mcp", &session, &ping)),
        (405, "POST the protocol's messages to /mcp", raw("PUT", "/mcp", &both, &ping)),
        (406, "send Accept: application/json, text/event-stream", raw("POST", "/mcp", "", &ping)),
        (415, "Content-Type: application/json", raw("POST", "/mcp", accept, &ping)),
        (400, "send initialize first", raw("POST", "/mcp", &both, &ping)),
        (400, "send initialize first", raw("POST", "http://localhost/mcp", &both, &ping)),
        (403, "send the path alone", raw("POST", "http://evil.example/mcp", &both, &ping)),
        (403, "send the path alone", raw("POST", "http://user@localhost/mcp", &both, &ping)),
        (400, "send one Host header", raw("POST", "/mcp", &format!("Host: evil.example\r\n{both}"), &ping)),
        (400, "send one Host header", raw("POST", "/mcp", &format!("Host: localhost\r\n{both}"), &ping)),
    ] {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(body.split_once("\nhint: ").is_some_and(|(_, said)| said.contains(hint)), "{answer}");
    }
    let refused = |headers: &[(&str, &str)]| served.send(headers, &initialize());
    for (status, hint, (reported, _, body)) in [
        (401, "send Authorization: Bearer TOKEN", refused(&[])),
        (403, "--allow-host NAME", refused(&[("Authorization", &bearer), ("Host", "rebound.example")])),
        (403, "--allow-origin ORIGIN", refused(&[("Authorization", &bearer), ("Origin", "null")])),
    ] {
        assert!(reported == status && body.contains("\nhint: ") && body.contains(hint), "{reported} {body}");
    }
    // A message of the protocol is left unchanged.
    let (status, answer) = served.ask("nothing/such", None, json!({}));
    assert_eq!((status, &answer["error"]["code"]), (404, &json!(-32601)));
}

#[test]
fn silent_connections_do_not_lock_out_clients() {
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let begun = std::time::Instant::now();
    // More connections than there are slots, from a client without the token.
    let mut silent = Vec::new();
    for index in 0..600 {
        let mut stream = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
        if index % 2 == 0 {
            drop(stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"));
        }
        silent.push(stream);
        if index % 200 == 199 {
            assert_eq!(served.ask("tools/list", None, json!({})).0, 200);
        }
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn an_open_connection_does_not_delay_the_end() {
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    );
    for sent in ["", "POST /mcp HT", head.as_str(), &format!("{head}Content-Length: 1000\r\n\r\n{{")] {
        let mut served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
        let mut open = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
        open.write_all(sent.as_bytes()).unwrap();
        assert_eq!(served.send(&[("Authorization", &format!("Bearer {TOKEN}"))], &initialize()).0, 200);
        let pid = rustix::process::Pid::from_child(&served.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let begun = std::time::Instant::now();
        until("its end", || served.child.try_wait().unwrap().is_some());
        assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{sent:?}: {:?}", begun.elapsed());
        drop(open);
    }
}
