//! `bench-command`: spawning a subprocess with and without confinement, measured from within. `cargo xtask bench` drives it.
//!
//! ```text
//! bench-command plain|sandboxed|behind DIRECTORY MIB PROGRAM ARGS…     a count per line in; its nanoseconds per call out
//! ```
//!
//! A call is everything from making the command to having waited for its end, in a tokio runtime of one thread: `plain`
//! is tokio's own `Command`, `sandboxed` that of `sandboxed_command`, `behind` `Confined::spawn`. The caller holds MIB
//! mebibytes. A command that does not end as it should ends the measurement.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use cofferdam_command::{Confined, SandboxMode, sandboxed_command};
use tokio::process::Command;

/// The exit code of the no-op: nothing else ends with it by chance.
const NOOP_CODE: i32 = 7;

type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench-command: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result {
    let [way, directory, mib, program, rest @ ..] = arguments else {
        return Err("unknown arguments; see the head of bench/src/command.rs".into());
    };
    let mib: usize = mib.parse().map_err(|_| format!("{mib} is no number"))?;
    let mut resident = vec![0_u8; mib << 20];
    for page in resident.chunks_mut(4096) {
        page[0] = 1;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("stdin: {error}"))?;
        let count: usize = line.trim().parse().map_err(|_| format!("{line} is no number"))?;
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            let code = runtime.block_on(once(way, Path::new(directory), program, rest))?;
            samples.push(start.elapsed().as_nanos().to_string());
            if code != Some(NOOP_CODE) {
                return Err(format!("{program} ended with {code:?}"));
            }
        }
        let mut out = std::io::stdout();
        writeln!(out, "{}", samples.join(" "))
            .and_then(|()| out.flush())
            .map_err(|error| format!("stdout: {error}"))?;
    }
    black_box(&resident);
    Ok(())
}

async fn once(way: &str, directory: &Path, program: &str, rest: &[String]) -> Result<Option<i32>> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let plain = |mut command: Command| command.args(rest).spawn().map_err(failed);
    let mut child = match way {
        "plain" => plain(Command::new(program))?,
        "sandboxed" => plain(sandboxed_command(program, SandboxMode::Sandbox, directory))?,
        "behind" => {
            // As for a caller whose own descriptors are all close-on-exec: whoever started the measurement may have left this
            // process some that are not, for which it would be forked.
            let spawned = Confined::new(program).data_dir(directory).inherit_descriptors(true).spawn(|command| {
                command.args(rest);
            });
            spawned.map_err(|error| error.to_string())?.0
        }
        other => return Err(format!("no way is called {other}")),
    };
    Ok(child.wait().await.map_err(failed)?.code())
}
