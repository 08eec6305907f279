//! The MCP server beside the bare interpreter: one call, many at once, a session, and how long the server takes to start.
//!
//! One call is measured in turns with the bare interpreter, in both orders, so that half of the calls come at once after
//! another and half after the time that two interpreters take; and after a pause, as an agent calls.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Context;
use super::report::{Bound, Goal, Row, Section};
use super::stats::Samples;
use crate::Result;

/// The bare interpreter.
const PYTHON: &str = "/usr/bin/python3";
/// The peer of the table.
const BARE: &str = "bare python3";
/// Calls at the same time.
const TOGETHER: usize = 16;
/// How often they come for one figure: the kernel tells CPU time in ticks of 10 ms, and rounds down.
const BATCHES: usize = 8;
/// Before a call that nothing came shortly before.
const PAUSE: Duration = Duration::from_millis(100);
/// Environments of the server that starts.
const MANY: usize = 50;

/// A client of a server that it has started.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Client {
    fn start(server: &Path, home: &Path) -> Result<Client> {
        let mut command = Command::new(server);
        command.arg("{}").env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home).env("XDG_RUNTIME_DIR", home);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", server.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the server has no streams".into());
        };
        let mut client = Client { child, input, output: BufReader::new(output), last: 0 };
        let who = json!({ "name": "bench", "version": "1" });
        let id = client
            .ask("initialize", &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who }))?;
        client.answer()?.0.eq(&id).then_some(()).ok_or("the first answer is another's")?;
        client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(client)
    }

    fn write(&mut self, message: &Value) -> Result {
        self.input.write_all(format!("{message}\n").as_bytes()).map_err(|error| format!("the server is gone: {error}"))
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.last += 1;
        let id = self.last;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        Ok(id)
    }

    fn begin(&mut self, session: Option<&str>) -> Result<u64> {
        let mut arguments = json!({ "env": "python", "code": "pass" });
        if let Some(session) = session {
            arguments["session"] = json!(session);
        }
        self.ask("tools/call", &json!({ "name": "run", "arguments": arguments }))
    }

    /// The next answer: whose, and its result.
    fn answer(&mut self) -> Result<(u64, Value)> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).map_err(|error| error.to_string())? == 0 {
                return Err("the server is gone".into());
            }
            let message: Value = serde_json::from_str(&line).map_err(|error| format!("no JSON: {error}"))?;
            let Some(id) = message["id"].as_u64() else { continue };
            if message["result"]["isError"] == true || !message["error"].is_null() {
                return Err(format!("a call failed: {message}"));
            }
            return Ok((id, message["result"].clone()));
        }
    }

    fn call(&mut self, session: Option<&str>) -> Result<f64> {
        let begun = Instant::now();
        self.begin(session)?;
        self.answer()?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }

    /// CPU time of the server and of everything that it waited for, milliseconds.
    fn cpu(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // utime, stime, cutime and cstime of proc_pid_stat(5), in ticks of 10 ms.
        Ok(fields.iter().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * 10.0)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for result in [self.child.kill(), self.child.wait().map(drop)] {
            if let Err(error) = result {
                eprintln!("cannot end the server: {error}");
            }
        }
    }
}

fn bare() -> Command {
    let mut command = Command::new(PYTHON);
    command.args(["-c", "pass"]).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// One bare interpreter, milliseconds.
fn alone() -> Result<f64> {
    let begun = Instant::now();
    let output = bare().output().map_err(|error| format!("{PYTHON}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{PYTHON} failed"));
    }
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// CPU time of that many bare interpreters at once, milliseconds, of several batches.
fn together() -> Result<f64> {
    // A shell of their own, so that its children's time is theirs.
    let batch = format!("for i in $(seq {TOGETHER}); do {PYTHON} -c pass & done; wait");
    let script = format!("for batch in $(seq {BATCHES}); do {batch}; done; cat /proc/$$/stat");
    let output = Command::new("/bin/sh").args(["-c", &script]).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields.iter().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks * 10.0 / BATCHES as f64)
}

/// A home with that many environments in its registry.
fn home(count: usize) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let home = std::env::temp_dir().join(format!("cofferdam-bench-mcp-{}-{count}", std::process::id()));
    for index in 0..count {
        let directory = home.join(format!(".config/cofferdam/environments/e{index}"));
        let run = directory.join("bin/run");
        let made = std::fs::create_dir_all(directory.join("bin"))
            .and_then(|()| std::fs::write(&run, "#!/bin/sh\nexec sh -s\n"))
            .and_then(|()| std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)))
            .and_then(|()| std::fs::write(directory.join("metadata.json"), format!(r#"{{"name": "e{index}"}}"#)));
        made.map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    Ok(home)
}

/// The table.
pub(super) fn mcp(context: &Context) -> Result<Section> {
    let server = context.programs.server.as_path();
    let (plain, full) = (home(0)?, home(MANY)?);
    let measured = measure(context, server, &plain, &full);
    for home in [plain, full] {
        std::fs::remove_dir_all(&home).map_err(|error| format!("cannot remove {}: {error}", home.display()))?;
    }
    let [one, call, at_once, paced, sixteen, calls, start, session] = measured?;
    let row = |name: &str, command: &str, samples: Samples| Row {
        name: name.into(),
        command: command.into(),
        result: samples.summary().ok_or_else(|| "nothing was measured".to_owned()),
        ratio: None,
    };
    let many = format!("start with {MANY} environments, to the first answer");
    let rows = vec![
        row(BARE, "python3 -c pass", one),
        row("`run` of a no-op, over stdio", "tools/call run, env python", call),
        row("of these, at once after another call", "tools/call run, env python", at_once),
        row("the same after a pause of 100 ms", "tools/call run, env python", paced),
        row("CPU time of 16 bare interpreters at once", "16 × python3 -c pass", sixteen),
        row("CPU time of 16 calls at once", "16 × tools/call run", calls),
        row(&many, "cofferdam-serve", start),
        row("a call in a session", "tools/call run, with session", session),
    ];
    let median = |index: usize| rows[index].result.as_ref().ok().map(|summary| summary.median);
    let over = |a: usize, b: usize| Some(median(a)? / median(b)?);
    let goal =
        |text: &str, reached, bound| Goal { text: text.into(), reached, bound: Bound::AtMost(bound), aim: "less" };
    let goals = vec![
        goal("one MCP `run` over the bare interpreter", over(1, 0), 1.15),
        goal("one MCP `run` after a pause over the bare interpreter", over(3, 0), 1.15),
        goal("CPU time of 16 concurrent MCP calls over bare interpreters", over(5, 4), 1.2),
        goal("start of the MCP server with 50 environments, ms", median(6), 50.0),
        goal("a call in an MCP session, ms", median(7), 2.0),
    ];
    Ok(Section { unit: "ms", peer: BARE, rows, goals })
}

fn measure(context: &Context, server: &Path, plain: &Path, full: &Path) -> Result<[Samples; 8]> {
    let [mut one, mut call, mut at_once, mut paced] = [const { Samples(Vec::new()) }; 4];
    let [mut sixteen, mut calls, mut start, mut session] = [const { Samples(Vec::new()) }; 4];
    let mut client = Client::start(server, plain)?;
    for _ in 0..5 {
        alone()?;
        client.call(None)?;
    }
    for round in 0..context.pick(200, 20) {
        if round % 2 == 0 {
            one.0.push(alone()?);
            call.0.push(client.call(None)?);
        } else {
            let took = client.call(None)?;
            call.0.push(took);
            at_once.0.push(took);
            one.0.push(alone()?);
        }
    }
    for _ in 0..context.pick(100, 10) {
        std::thread::sleep(PAUSE);
        paced.0.push(client.call(None)?);
    }
    for _ in 0..context.pick(20, 2) {
        sixteen.0.push(together()?);
        let before = client.cpu()?;
        for _ in 0..BATCHES {
            for _ in 0..TOGETHER {
                client.begin(None)?;
            }
            for _ in 0..TOGETHER {
                client.answer()?;
            }
        }
        calls.0.push((client.cpu()? - before) / BATCHES as f64);
    }
    client.call(Some("bench"))?;
    for _ in 0..context.pick(500, 50) {
        session.0.push(client.call(Some("bench"))?);
    }
    for _ in 0..context.pick(50, 5) {
        let begun = Instant::now();
        drop(Client::start(server, full)?);
        start.0.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok([one, call, at_once, paced, sixteen, calls, start, session])
}
