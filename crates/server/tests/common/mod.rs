//! A hand-written client, which writes and reads the protocol's lines without a library.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod http;

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A timeout longer than any step takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// An empty home directory of the test's own.
pub(crate) struct Home(pub tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The registry of artifacts that the server scans.
    pub(crate) fn registry(&self) -> PathBuf {
        let registry = self.path().join(".config/cofferdam/environments");
        std::fs::create_dir_all(&registry).unwrap();
        registry
    }

    /// Writes the configuration.
    pub(crate) fn configure(&self, text: &str) {
        let directory = self.path().join(".config/cofferdam");
        std::fs::create_dir_all(&directory).unwrap();
        // Atomically, so that the server reads either the previous or the new configuration.
        std::fs::write(directory.join("config.new"), text).unwrap();
        std::fs::rename(directory.join("config.new"), directory.join("config.toml")).unwrap();
    }

    /// The server's program, with this home and an otherwise minimal set of variables.
    pub(crate) fn program(&self, serve: &Value) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam-serve"));
        let kept = ["PATH", "PYENV_ROOT", "PYENV_VERSION", "TMPDIR", "COFFERDAM_LIBEXEC"];
        command.env_clear().envs(kept.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env("HOME", self.path()).env("XDG_RUNTIME_DIR", self.path()).arg(serve.to_string());
        command.current_dir(self.path());
        command
    }

    /// A client over standard input and output that has not sent `initialize`.
    pub(crate) fn silent(&self, serve: Value) -> Client {
        Client::start(self.program(&serve))
    }

    /// A client that has sent `initialize`.
    pub(crate) fn client(&self, serve: Value) -> Client {
        let mut client = self.silent(serve);
        client.introduce("2025-11-25");
        client
    }
}

/// An artifact: a directory whose program passes code to an interpreter.
pub(crate) fn artifact(registry: &Path, name: &str, program: &str) -> PathBuf {
    let directory = registry.join(name);
    std::fs::create_dir_all(directory.join("bin")).unwrap();
    let run = directory.join("bin/run");
    std::fs::write(&run, program).unwrap();
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(directory.join("metadata.json"), json!({ "name": name }).to_string()).unwrap();
    directory
}

/// A client and its server process.
pub(crate) struct Client {
    pub child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Messages that were received and not taken yet.
    pub early: VecDeque<Value>,
    errors: Option<std::thread::JoinHandle<String>>,
    said: Arc<Mutex<String>>,
    last: u64,
}

impl Client {
    pub(crate) fn start(mut command: Command) -> Client {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                let message = serde_json::from_str(&line).unwrap_or_else(|e| panic!("no JSON on stdout: {e}: {line}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let said: Arc<Mutex<String>> = Arc::default();
        let into = Arc::clone(&said);
        let errors = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                into.lock().unwrap().push_str(&format!("{line}\n"));
            }
            into.lock().unwrap().clone()
        });
        let input = child.stdin.take();
        Client { child, input, lines, early: VecDeque::new(), errors: Some(errors), said, last: 0 }
    }

    /// The server's standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("the client has not gone");
        let mut line = message.to_string();
        line.push('\n');
        input.write_all(line.as_bytes()).and_then(|()| input.flush()).unwrap();
    }

    /// Sends a line of arbitrary bytes.
    pub(crate) fn line(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the client has not gone");
        input.write_all(bytes).and_then(|()| input.write_all(b"\n")).and_then(|()| input.flush()).unwrap();
    }

    /// Sends a request, and returns its number.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// The next message that satisfies the predicate; others stay queued.
    pub(crate) fn find(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&wanted) {
            return self.early.remove(at).unwrap();
        }
        let deadline = Instant::now() + LONG;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(message) if wanted(&message) => return message,
                Ok(message) => self.early.push_back(message),
                Err(RecvTimeoutError::Timeout) => panic!("{what} did not come: {:?}", self.early),
                Err(RecvTimeoutError::Disconnected) => {
                    let reported = self.errors.take().map(|errors| errors.join().unwrap());
                    panic!("the server has gone before {what} came: {reported:?}");
                }
            }
        }
    }

    /// The answer of a request.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.find(&format!("the answer of {id}"), |message| message["id"] == id && message.get("method").is_none())
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    pub(crate) fn introduce(&mut self, version: &str) -> Value {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        let answer = self.call("initialize", params);
        self.notify("notifications/initialized", json!({}));
        answer
    }

    /// Sends a call of `run`, and returns the request's number.
    pub(crate) fn begin(&mut self, env: &str, code: &str) -> u64 {
        self.ask("tools/call", json!({ "name": "run", "arguments": { "env": env, "code": code } }))
    }

    /// Runs code, and returns the result.
    pub(crate) fn run(&mut self, env: &str, code: &str) -> Value {
        let id = self.begin(env, code);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// Closes the client. Returns the server's exit code and its standard error.
    pub(crate) fn leave(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        let deadline = Instant::now() + LONG;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => panic!("the server outlives its client"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        (status.code(), self.errors.take().unwrap().join().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// The text of a result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

/// The `_meta` object of a request of the stateless protocol.
pub(crate) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    })
}

/// Waits until the condition is true.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} never held");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The number of processes with this word in their command line.
pub(crate) fn running(word: &str) -> usize {
    let found = std::fs::read_dir("/proc").unwrap().flatten();
    found
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| line.windows(word.len()).any(|part| part == word.as_bytes()))
        .count()
}
