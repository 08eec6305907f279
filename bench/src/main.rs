//! `bench-engine`: the engine called in-process, measured from within. `cargo xtask bench` drives it.
//!
//! ```text
//! bench-engine call PROGRAM [--resident MIB] [--ready COUNT] [--paths DIR COUNT] [--absent COUNT] [--closed DIR COUNT]   a count per line in; its nanoseconds per call out
//! bench-engine throughput PROGRAM THREADS                           milliseconds per line in; `CALLS NANOSECONDS` out
//! bench-engine concurrent PROGRAM COUNT                             `empty`, then `full` out, a line in after each
//! bench-engine inside [--rw DIR] -- PROGRAM ARGS…                   runs once, prints what the program printed
//! bench-engine policy PROGRAM [--paths DIR COUNT] [--absent COUNT] [--closed DIR COUNT]   prints the policy as JSON
//! ```
//!
//! Every measured policy is the base policy with the host's root view: all layers on. A run that does not end as it
//! should ends the measurement: a failure can never count as fast. Decides nothing and writes no files.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cofferdam_engine::{Cancel, Ending, Engine, Io, Outcome, Prepared};
use cofferdam_policy::{Access, Mount, Policy, Root};

/// The exit code of the no-op: nothing else ends with it by chance.
const NOOP_CODE: i32 = 7;

type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["call", program, options @ ..] => call(program, options),
        ["throughput", program, threads] => number(threads).and_then(|threads| throughput(program, threads)),
        ["concurrent", program, count] => number(count).and_then(|count| concurrent(program, count)),
        ["inside", "--rw", directory, "--", argv @ ..] => inside(Some(directory), argv),
        ["inside", "--", argv @ ..] => inside(None, argv),
        ["policy", program, options @ ..] => {
            Options::parse(options).and_then(|options| print(&options.policy(program).to_json_pretty()))
        }
        _ => Err("unknown arguments; see the head of bench/src/main.rs".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench-engine: {message}");
            ExitCode::FAILURE
        }
    }
}

/// What a caller looks like and what its policy lists.
#[derive(Default)]
struct Options {
    resident_mib: usize,
    ready: usize,
    paths: Option<(String, usize)>,
    absent: usize,
    closed: Option<(String, usize)>,
}

impl Options {
    fn parse(mut words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        loop {
            words = match words {
                [] => return Ok(options),
                ["--resident", mib, rest @ ..] => {
                    options.resident_mib = number(mib)?;
                    rest
                }
                ["--ready", count, rest @ ..] => {
                    options.ready = number(count)?;
                    rest
                }
                ["--paths", directory, count, rest @ ..] => {
                    options.paths = Some(((*directory).to_owned(), number(count)?));
                    rest
                }
                ["--closed", directory, count, rest @ ..] => {
                    options.closed = Some(((*directory).to_owned(), number(count)?));
                    rest
                }
                ["--absent", count, rest @ ..] => {
                    options.absent = number(count)?;
                    rest
                }
                other => return Err(format!("unknown options {other:?}")),
            };
        }
    }

    /// The measured policy. Absent paths are denied ones of a directory that has none of them. With paths, half are denied and half protected, and the directory is writable: of names
    /// `0`, `1`, … the even ones exist when the driver has made them.
    fn policy(&self, program: &str) -> Policy {
        let mut policy = policy(&[program]);
        if let Some((directory, count)) = &self.paths {
            policy.filesystem.mounts.push(bind(directory, Access::ReadWrite));
            let name = |index: usize| format!("{directory}/{index}");
            policy.filesystem.deny.extend((0..count / 2).map(name));
            policy.filesystem.protected.extend((count / 2..*count).map(name));
        }
        if let Some((directory, count)) = &self.closed {
            policy.filesystem.deny.extend((0..*count).map(|index| format!("{directory}/{index}")));
        }
        let nowhere = |index: usize| format!("/var/lib/cofferdam-absent-{index}");
        policy.filesystem.deny.extend((0..self.absent).map(nowhere));
        policy
    }
}

fn policy(argv: &[&str]) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = argv.iter().map(|word| (*word).to_owned()).collect();
    policy.filesystem.root = Root::Host;
    // The program's own directory, which the host view may hide (/tmp).
    if let Some((directory, _)) = argv.first().and_then(|program| program.rsplit_once('/')) {
        policy.filesystem.mounts.push(bind(directory, Access::ReadOnly));
    }
    policy
}

fn bind(directory: &str, access: Access) -> Mount {
    Mount::Bind { source: directory.to_owned(), target: directory.to_owned(), access, exec: true, optional: false }
}

fn prepare(policy: &Policy) -> Result<Prepared> {
    Engine::probe().prepare(policy).map_err(|failure| format!("{}: {}", failure.step, failure.message))
}

/// Times single calls of a prepared policy.
fn call(program: &str, words: &[&str]) -> Result {
    let options = Options::parse(words)?;
    let mut resident = vec![0_u8; options.resident_mib << 20];
    for page in resident.chunks_mut(4096) {
        page[0] = 1;
    }
    let prepared = prepare(&options.policy(program))?.keep_ready(options.ready);
    for line in std::io::stdin().lock().lines() {
        let count: usize = number(&line.map_err(|error| format!("stdin: {error}"))?)?;
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            let outcome = prepared.run(Io::default());
            samples.push(start.elapsed().as_nanos().to_string());
            exited(&outcome, NOOP_CODE)?;
        }
        print(&samples.join(" "))?;
    }
    black_box(&resident);
    Ok(())
}

/// Counts calls of several threads that share one prepared policy.
fn throughput(program: &str, threads: usize) -> Result {
    let prepared = prepare(&policy(&[program]))?;
    for line in std::io::stdin().lock().lines() {
        let span = Duration::from_millis(number(&line.map_err(|error| format!("stdin: {error}"))?)?);
        let calls = AtomicU64::new(0);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| -> Result {
                        while start.elapsed() < span {
                            exited(&prepared.run(Io::default()), NOOP_CODE)?;
                            calls.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(())
                    })
                })
                .collect();
            callers.into_iter().try_for_each(|caller| caller.join().map_err(|_| "a caller panicked".to_owned())?)
        })?;
        print(&format!("{} {}", calls.load(Ordering::Relaxed), start.elapsed().as_nanos()))?;
    }
    Ok(())
}

/// Holds many sandboxes at once, so that the driver can look at their memory.
fn concurrent(program: &str, count: usize) -> Result {
    let mut policy = policy(&[program]);
    policy.limits.wall_ms = 600_000;
    let prepared = prepare(&policy)?;
    print("empty")?;
    wait_for_line()?;
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..count)
            .map(|_| {
                let io = Io { cancel: cancel.clone(), ..Io::default() };
                // A caller's thread needs a stack for the engine and nothing else.
                std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, || prepared.run(io))
            })
            .collect();
        let waited = print("full").and_then(|()| wait_for_line());
        cancel.cancel();
        for run in runs {
            let outcome = run
                .map_err(|error| format!("cannot start a thread: {error}"))?
                .join()
                .map_err(|_| "a caller panicked".to_owned())?;
            if let Some(failure) = outcome.error {
                return Err(format!("{}: {}", failure.step, failure.message));
            }
        }
        waited
    })
}

/// Runs something longer inside, and hands on what it printed.
fn inside(writable: Option<&str>, argv: &[&str]) -> Result {
    let mut policy = policy(argv);
    if let Some(directory) = writable {
        policy.filesystem.mounts.push(bind(directory, Access::ReadWrite));
    }
    policy.command.cwd = Some("/".to_owned());
    policy.limits.wall_ms = 600_000;
    policy.limits.cpu_seconds = 600;
    policy.limits.memory_mb = policy.limits.memory_mb.max(1024);
    policy.limits.processes = policy.limits.processes.max(64);
    let outcome = prepare(&policy)?.run(Io::default());
    exited(&outcome, 0)?;
    print(outcome.stdout.trim_end())
}

fn exited(outcome: &Outcome, code: i32) -> Result {
    if outcome.outcome == Ending::Exited && outcome.exit_code == Some(code) {
        return Ok(());
    }
    let why =
        outcome.error.as_ref().map_or(String::new(), |failure| format!(": {}: {}", failure.step, failure.message));
    let (ending, exit_code, signal) = (outcome.outcome, outcome.exit_code, outcome.signal);
    Err(format!("ended as {ending:?}, code {exit_code:?}, signal {signal:?}{why}\n{}", outcome.stderr))
}

fn print(line: &str) -> Result {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| format!("stdout: {error}"))
}

fn wait_for_line() -> Result {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map(|_| ()).map_err(|error| format!("stdin: {error}"))
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T> {
    word.trim().parse().map_err(|_| format!("`{word}` is not a number"))
}
