//! A server over HTTP, and hand-written requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::{Home, LONG, meta, until};

/// The token of a test.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server on a port of its own.
pub(crate) struct Served {
    pub child: Child,
    pub port: u16,
    pub said: std::sync::Arc<std::sync::Mutex<String>>,
    _home: Home,
}

impl Served {
    pub(crate) fn start(serve: Value, token: Option<&str>) -> Served {
        let home = Home::new();
        Served::begin(home.program(&serve), home, token)
    }

    pub(crate) fn begin(mut command: std::process::Command, home: Home, token: Option<&str>) -> Served {
        if let Some(token) = token {
            command.env("COFFERDAM_MCP_TOKEN", token);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said: std::sync::Arc<std::sync::Mutex<String>> = Default::default();
        let (into, stderr) = (said.clone(), BufReader::new(child.stderr.take().unwrap()));
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                into.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        until("listening", || said.lock().unwrap().contains("/mcp\n"));
        let text = said.lock().unwrap().clone();
        let port = text.split_once("127.0.0.1:").unwrap().1.split_once('/').unwrap().0.parse().unwrap();
        Served { child, port, said, _home: home }
    }

    /// Posts one request, and returns its status, headers and body.
    pub(crate) fn send(&self, headers: &[(&str, &str)], body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut text = format!("POST /mcp HTTP/1.1\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
        let own_host = format!("127.0.0.1:{}", self.port);
        let host = headers.iter().any(|(name, _)| *name == "Host");
        let defaults = [
            ("Host", own_host.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        for (name, value) in defaults.iter().filter(|(name, _)| !(*name == "Host" && host)).chain(headers) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        // The server does not read a body to its end that it refuses for its length.
        drop(stream.write_all(body.as_bytes()));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, head.to_owned(), body.to_owned())
    }

    /// One stateless request with the token.
    pub(crate) fn ask(&self, method: &str, name: Option<&str>, mut params: Value) -> (u16, Value) {
        params["_meta"] = meta();
        let bearer = format!("Bearer {TOKEN}");
        let mut headers =
            vec![("Authorization", bearer.as_str()), ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        headers.extend(name.map(|name| ("Mcp-Name", name)));
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let (status, _, body) = self.send(&headers, &body);
        (status, last(&body))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The last JSON object of an answer, which is a body or an event.
pub(crate) fn last(body: &str) -> Value {
    let objects = body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    objects.filter_map(|text| serde_json::from_str(text).ok()).rfind(Value::is_object).unwrap_or(Value::Null)
}

/// The `initialize` request.
pub(crate) fn initialize() -> String {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string()
}

/// The progress token of calls whose progress no test examines.
const PASSED_OVER: &str = "passed over";

/// A client of the protocol with `initialize`, with its session.
pub(crate) struct HttpSession<'a> {
    served: &'a Served,
    pub id: String,
}

/// The stream of one request, as it arrives.
pub(crate) struct Events(BufReader<TcpStream>);

impl Served {
    /// Begins a session.
    pub(crate) fn session(&self) -> HttpSession<'_> {
        let bearer = format!("Bearer {TOKEN}");
        let (status, head, body) = self.send(&[("Authorization", &bearer)], &initialize());
        assert_eq!(status, 200, "{head} {body}");
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id:")).unwrap();
        let session = HttpSession { served: self, id: line.split_once(':').unwrap().1.trim().to_owned() };
        session.notify("notifications/initialized", json!({}));
        session
    }
}

impl HttpSession<'_> {
    /// Sends one request with the session's headers. Returns the response's head, and its stream.
    pub(crate) fn open(&self, method: &str, headers: &str, body: &str) -> (String, Events) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.served.port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let text = format!(
            "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nMcp-Session-Id: {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{headers}\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.id,
            body.len()
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut events = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(events.read_line(&mut head).unwrap(), 0, "the answer has no end of its head: {head}");
        }
        (head, Events(events))
    }

    /// Sends a request, and returns the stream of its answer.
    pub(crate) fn ask(&self, id: impl Into<Value>, method: &str, params: Value) -> Events {
        let body = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
        self.open("POST", "", &body.to_string()).1
    }

    /// Calls `run` with a progress token, so that the answer is a stream. Progress is skipped.
    pub(crate) fn run(&self, id: impl Into<Value>, code: &str) -> Events {
        let arguments = json!({ "env": "shell", "code": code });
        let params = json!({ "name": "run", "arguments": arguments, "_meta": { "progressToken": PASSED_OVER } });
        self.ask(id, "tools/call", params)
    }

    /// Calls a tool without a progress token: the answer is one document.
    pub(crate) fn call(&self, id: u64, name: &str, arguments: Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string();
        let (head, mut rest) = self.open("POST", "", &body);
        let mut text = String::new();
        rest.0.read_to_string(&mut text).unwrap();
        assert!(head.to_ascii_lowercase().contains("content-type: application/json"), "{head}{text}");
        last(&text)
    }

    pub(crate) fn notify(&self, method: &str, params: Value) {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string();
        assert!(self.open("POST", "", &body).0.starts_with("HTTP/1.1 202"));
    }
}

impl Events {
    /// The next event's id and message; `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<(String, Value)> {
        let (mut id, mut message) = (String::new(), None);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(of) = line.strip_prefix("id:") {
                id = of.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data:").map(str::trim) {
                message = Some(if data.is_empty() { Value::Null } else { serde_json::from_str(data).unwrap() });
            } else if line.trim().is_empty()
                && let Some(message) = message.take()
            {
                return Some((id, message));
            }
        }
    }

    /// The next message, without the stream's own events.
    pub(crate) fn message(&mut self) -> Option<Value> {
        loop {
            let (_, message) = self.next()?;
            if !message.is_null() && message["params"]["progressToken"] != PASSED_OVER {
                return Some(message);
            }
        }
    }
}
