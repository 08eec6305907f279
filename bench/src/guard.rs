//! `bench-guard`: the guard's answers, timed one by one. `cargo xtask bench --only guard` drives it.
//!
//! ```text
//! bench-guard DIRECTORY RULES is_allowed|path_allowed kept|anew    a count per line in; its nanoseconds per answer out
//! ```
//!
//! Makes what the rules name in the directory: so many programs, and as many blocked paths, half of which exist. `kept`
//! asks the same few questions again and again, at least one in ten milliseconds, so that answers grow too old meanwhile;
//! `anew` asks none twice. A wrong answer ends the measurement.
#![forbid(unsafe_code)]

use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use cofferdam_guard::{Guard, GuardConfig, Rule, Sandbox as _};

type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [directory, rules, question, age] => measure(Path::new(directory), rules, question, age),
        _ => Err("unknown arguments; see the head of bench/src/guard.rs".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench-guard: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(directory: &Path, rules: &str, question: &str, age: &str) -> Result {
    let rules: usize = rules.parse().map_err(|_| format!("`{rules}` is not a number"))?;
    let guard = guard(directory, rules)?;
    let (ask_path, again) = match (question, age) {
        ("is_allowed", "kept") => (false, true),
        ("is_allowed", "anew") => (false, false),
        ("path_allowed", "kept") => (true, true),
        ("path_allowed", "anew") => (true, false),
        other => return Err(format!("{other:?} is nothing to ask")),
    };
    let mut asked = 0;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("stdin: {error}"))?;
        let count: usize = line.trim().parse().map_err(|_| format!("`{line}` is not a number"))?;
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            // Every other answer is a refusal.
            let index = if again { asked % 8 } else { asked };
            let (words, expected) = match (ask_path, index % 2) {
                (true, 0) => (format!("{}/blocked/{}/deep/{index}", directory.display(), index % rules), false),
                (true, _) => (format!("{}/work/src/{index}", directory.display()), true),
                (false, 0) => (format!("{}/bin/{}", directory.display(), index % rules), true),
                (false, _) => (format!("no-such-program-{index}"), false),
            };
            let start = Instant::now();
            let answer = if ask_path { guard.path_allowed(&words) } else { guard.is_allowed(&words) };
            samples.push(start.elapsed().as_nanos().to_string());
            if answer != expected {
                return Err(format!("{question}({words:?}) is {answer}"));
            }
            asked += 1;
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", samples.join(" "))
            .and_then(|()| out.flush())
            .map_err(|error| format!("stdout: {error}"))?;
    }
    Ok(())
}

/// A guard of so many commands and blocked paths.
fn guard(directory: &Path, rules: usize) -> Result<Guard> {
    let failed = |error: std::io::Error| format!("cannot make what is asked about: {error}");
    let directory = std::fs::canonicalize(directory).map_err(failed)?;
    for name in ["bin", "blocked", "work/src"] {
        std::fs::create_dir_all(directory.join(name)).map_err(failed)?;
    }
    let path = |name: String| directory.join(name).display().to_string();
    let mut config = GuardConfig { run_as_root: true, ..GuardConfig::default() };
    for index in 0..rules {
        let program = path(format!("bin/{index}"));
        std::fs::write(&program, "#!/bin/sh\n").map_err(failed)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
        config.allowed_commands.push(Rule::any(&program));
        let blocked = path(format!("blocked/{index}"));
        if index % 2 == 0 {
            std::fs::create_dir_all(&blocked).map_err(failed)?;
        }
        config.blocked_paths.push(blocked);
    }
    Guard::new(config, directory.join("work")).map_err(|error| error.to_string())
}
