//! A guarded shell tool, as an agent would be given one: each line of standard input is a command and its arguments.
//!
//! ```text
//! guarded_shell CONFIG.toml WORKSPACE [--as-root] < commands
//! ```
//!
//! Lines are split at spaces and nothing else: there is no shell, so `|`, `;`, `$(…)` and quotes are characters.

use std::io::BufRead as _;
use std::process::ExitCode;

use cofferdam_guard::{Guard, Sandbox, SandboxError};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    // As text, not as `main` would show it: the text has the hint.
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guarded_shell: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, workspace, as_root) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path, workspace] => (path, workspace, false),
        [path, workspace, "--as-root"] => (path, workspace, true),
        _ => return Err("usage: guarded_shell CONFIG.toml WORKSPACE [--as-root]".into()),
    };
    let mut config = cofferdam_config::guard_from_file(path)?;
    config.run_as_root |= as_root;
    let guard = Guard::new(config, workspace).map_err(SandboxError::from)?;
    for command in guard.not_installed() {
        eprintln!("not installed, and so refused: {command}");
    }
    // Whatever implements the trait will do from here on.
    let sandbox: &dyn Sandbox = &guard;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let Some((command, args)) = words.split_first() else { continue };
        match sandbox.execute(command, args).await.map_err(SandboxError::from) {
            Ok(result) => {
                print!("{}", result.stdout);
                eprint!("{}", result.stderr);
                let cut = if result.truncated { ", output cut" } else { "" };
                println!("[{} in {} ms{cut}]", result.exit_code, result.duration_ms);
            }
            Err(error) => println!("[{error}]"),
        }
    }
    Ok(())
}
