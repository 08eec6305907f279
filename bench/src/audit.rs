//! `bench-audit`: the audit trail, timed from within its caller. `cargo xtask bench --only audit` drives it.
//!
//! ```text
//! bench-audit append DIR written|durable      a count per line in; its nanoseconds per record out
//! bench-audit run DIR                         the same of a start and its end, which nothing runs between
//! bench-audit group DIR WRITERS               a count per line in; `NANOSECONDS` out, in which each writer made so many
//!                                             records durable
//! ```
//!
//! The records are those of an attempt at the network, of some 300 bytes. What fails ends the measurement.
#![forbid(unsafe_code)]

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use cofferdam_engine::audit::{AuditEntry, AuditError, Durability, Trail, TrailOptions};

type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["append", directory, "written"] => each(directory, |trail| append(trail, Durability::Written)),
        ["append", directory, "durable"] => each(directory, |trail| append(trail, Durability::Durable)),
        ["run", directory] => each(directory, run),
        ["group", directory, writers] => group(directory, writers),
        _ => Err("unknown arguments; see the head of bench/src/audit.rs".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench-audit: {message}");
            ExitCode::FAILURE
        }
    }
}

fn open(directory: &str) -> Result<Trail> {
    Trail::open(Path::new(directory), TrailOptions::default()).map_err(|error| error.to_string())
}

fn attempt() -> AuditEntry {
    AuditEntry::new("network_attempt")
        .run("0b5b9c5e-6a3f-4c8e-9d0a-1f2e3d4c5b6a")
        .with("kind", "refused")
        .with("host", "api.example.com")
        .with("port", 443)
        .with("reason", "not_allowed")
}

fn append(trail: &Trail, durability: Durability) -> std::result::Result<(), AuditError> {
    trail.append(attempt(), durability).map(|_| ())
}

fn run(trail: &Trail) -> std::result::Result<(), AuditError> {
    let about = |kind: &str| AuditEntry::new(kind).run("0b5b9c5e-6a3f-4c8e-9d0a-1f2e3d4c5b6a");
    trail.begin(about("sandbox_started"))?.end(about("sandbox_completed")).map(|_| ())
}

fn counts(mut answer: impl FnMut(usize) -> Result<String>) -> Result {
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("stdin: {error}"))?;
        let count = line.trim().parse().map_err(|_| format!("`{line}` is not a number"))?;
        let told = answer(count)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{told}").and_then(|()| out.flush()).map_err(|error| format!("stdout: {error}"))?;
    }
    Ok(())
}

fn each(directory: &str, once: impl Fn(&Trail) -> std::result::Result<(), AuditError>) -> Result {
    let trail = open(directory)?;
    counts(|count| {
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            once(&trail).map_err(|error| error.to_string())?;
            samples.push(start.elapsed().as_nanos().to_string());
        }
        Ok(samples.join(" "))
    })
}

fn group(directory: &str, writers: &str) -> Result {
    let writers: usize = writers.parse().map_err(|_| format!("`{writers}` is not a number"))?;
    let trail = open(directory)?;
    counts(|count| {
        let start = Instant::now();
        let written: std::result::Result<(), AuditError> = std::thread::scope(|scope| {
            let write = || (0..count).try_for_each(|_| append(&trail, Durability::Durable));
            let all: Vec<_> = (0..writers).map(|_| scope.spawn(write)).collect();
            all.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
        });
        let elapsed = start.elapsed().as_nanos();
        written.map(|()| elapsed.to_string()).map_err(|error| error.to_string())
    })
}
