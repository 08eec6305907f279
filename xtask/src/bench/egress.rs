//! What the egress gateway adds to connections: how long one takes to open, how fast one streams, what a thousand of them
//! keep in memory, and how soon one is refused; beside the same connections without it, and beside srt.
//!
//! Everything happens in a network namespace that is made for it, whose one address is the server's.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Context;
use super::report::{Bound, Goal, Row, Section};
use super::stats::Samples;
use super::worker::{Worker, pss_kib};
use crate::Result;
use crate::shell::which;

/// Where the server listens: an address that is nobody's in there.
const SERVER: &str = "93.184.216.34:7001";
/// An address of the same namespace that no rule names.
const OTHER: &str = "93.184.216.35:7001";
/// Connections that are held.
const HELD: u64 = 1000;
/// Nanoseconds in a millisecond.
const MS: f64 = 1e6;
/// The row that ratios refer to.
const DIRECT: &str = "direct";

/// A client, and how the table calls where it runs.
struct Client {
    name: &'static str,
    command: String,
    worker: Worker,
    connect: Samples,
    stream: Samples,
    refused: Samples,
}

/// srt's program: what `COFFERDAM_BENCH_SRT` names, or on the PATH.
fn srt() -> Option<PathBuf> {
    std::env::var_os("COFFERDAM_BENCH_SRT").map(PathBuf::from).or_else(|| which("srt"))
}

/// Settings with which srt lets out what the client wants.
fn srt_settings(directory: &Path) -> Result<PathBuf> {
    let file = directory.join("srt-settings.json");
    let text = r#"{"network": {"allowedDomains": ["93.184.216.34"], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}"#;
    std::fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
}

/// The table.
pub(super) fn egress(context: &Context) -> Result<Section> {
    let bench = context.programs.egress.display().to_string();
    let script = "ip link set lo up && ip address add 93.184.216.34/32 dev lo && ip address add 93.184.216.35/32 dev lo && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", script, "sh", &bench, "serve", SERVER]);
    let mut server = Worker::start(command)?;
    server.read()?;
    // It became the server without another process in between.
    let namespace = server.pid().to_string();
    let inside = |words: &[&str]| {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &namespace]).args(words);
        command
    };
    let directory = Path::new(&bench).parent().unwrap_or(Path::new("/")).display().to_string();
    let cofferdam = context.programs.cofferdam.display().to_string();
    let bind = format!("{directory}:{directory}");
    let walled = [
        cofferdam.as_str(),
        "run",
        "-i",
        "-v",
        &bind,
        "--network",
        "allow=93.184.216.34:7001-7002",
        "--network-limit",
        "connections=2000",
        "--network-limit",
        "connections_per_host=2000",
        "--network-limit",
        "down_mb=1000000",
        "--open-files",
        "4096",
        "--timeout",
        "20m",
        "--cpu-time",
        "600",
        "--cpus",
        "2",
        "--memory",
        "1g",
        "--",
        &bench,
        "client",
        SERVER,
    ];
    let mut clients = vec![
        Client::start(DIRECT, "bench-egress client", inside(&[&bench, "client", SERVER]))?,
        Client::start("cofferdam", "cofferdam run --network allow=… -- bench-egress client", inside(&walled))?,
    ];
    let mut missing = None;
    match srt() {
        Some(program) => {
            let settings = srt_settings(&context.programs.directory)?;
            let line = format!("exec {bench} client {SERVER} --proxy \"$HTTP_PROXY\"");
            let words =
                [&program.display().to_string(), "-s", &settings.display().to_string(), "-c", &line].map(str::to_owned);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match Client::start("srt", "srt -c 'bench-egress client --proxy $HTTP_PROXY'", inside(&words)) {
                Ok(client) => clients.push(client),
                Err(error) => missing = Some(error),
            }
        }
        None => missing = Some("srt is not installed (npm install -g @anthropic-ai/sandbox-runtime)".to_owned()),
    }
    let rounds = context.pick(20, 4);
    for round in 0..rounds {
        let count = clients.len();
        for turn in 0..count {
            let client = &mut clients[(round + turn) % count];
            client.connect.0.extend(client.worker.asked("connect 50")?.iter().map(|ns| ns / MS));
            // MiB per second.
            let mib = 512.0;
            client.stream.0.extend(client.worker.asked("stream 512")?.iter().map(|ns| mib / (ns / 1e9)));
            if client.name != DIRECT {
                let request = format!("refused 20 {OTHER}");
                client.refused.0.extend(client.worker.asked(&request)?.iter().map(|ns| ns / MS));
            }
        }
    }
    let memory = held(&mut clients)?;
    let mut rows = Vec::new();
    for client in clients {
        let Client { name, command, connect, stream, refused, worker } = client;
        worker.finish()?;
        rows.push(Row::new(name, &command, Ok(connect)));
        rows.push(Row::new(format!("{name}: one stream, MiB/s"), "stream 512", Ok(stream)));
        if name != DIRECT {
            rows.push(Row::new(format!("{name}: refused"), "connect to a host that no rule names", Ok(refused)));
        }
    }
    if let Some(why) = missing {
        rows.push(Row::new("srt", "", Err(why)));
    }
    rows.push(Row::new(
        "cofferdam: 1,000 connections, KiB each",
        "memory of the gateway's process",
        Ok(Samples(vec![memory])),
    ));
    let mut section = Section { unit: "ms, or as the row says", peer: DIRECT, rows, goals: Vec::new() }.with_ratios();
    // What is no connection has another unit, and no ratio to one.
    section.rows.iter_mut().filter(|row| row.name.contains(':')).for_each(|row| row.ratio = None);
    Ok(with_goals(section, memory))
}

/// What the gateway's process keeps for each of many connections, KiB.
fn held(clients: &mut [Client]) -> Result<f64> {
    let Some(walled) = clients.iter_mut().find(|client| client.name == "cofferdam") else {
        return Err("no client is walled in".into());
    };
    // nsenter became the command itself.
    let gateway = walled.worker.pid();
    let before = pss_kib(gateway)?;
    walled.worker.write(&format!("hold {HELD}"))?;
    walled.worker.read()?;
    let with = pss_kib(gateway)?;
    walled.worker.write("drop")?;
    walled.worker.read()?;
    Ok(with.saturating_sub(before) as f64 / HELD as f64)
}

fn with_goals(mut section: Section, memory: f64) -> Section {
    let median = |name: &str| section.rows.iter().find(|row| row.name == name).and_then(Row::median);
    let added = median("cofferdam").zip(median(DIRECT)).map(|(with, without)| with - without);
    let stream = median("cofferdam: one stream, MiB/s").zip(median("direct: one stream, MiB/s")).map(|(a, b)| a / b);
    let refused = median("cofferdam: refused");
    let goal = |text: &str, reached, bound, aim| Goal { text: text.into(), reached, bound, aim };
    section.goals = vec![
        goal("what the gateway adds to a connection, ms", added, Bound::AtMost(0.5), "less"),
        goal("one stream through the gateway over a direct one", stream, Bound::AtLeast(0.7), "0.9"),
        goal("1,000 connections, KiB of the gateway's for each", Some(memory), Bound::AtMost(32.0), "less"),
        goal("a refusal, ms", refused, Bound::AtMost(1.0), "less"),
    ];
    section
}

impl Client {
    fn start(name: &'static str, command: &str, words: Command) -> Result<Client> {
        let mut worker = Worker::start(words)?;
        if worker.read()?.trim() != "ready" {
            return Err(format!("{name}: the client did not start"));
        }
        let [connect, stream, refused] = [const { Samples(Vec::new()) }; 3];
        Ok(Client { name, command: command.to_owned(), worker, connect, stream, refused })
    }
}
