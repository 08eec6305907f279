//! One trial: the command as a user types it, with a time limit of the suite's own, and the verdict.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::host::{Host, User};
use crate::program::{Expect, LEVELS, Program};
use crate::terminal;

/// Longer than any trial may take.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// How a command ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Exit code, or 128+N for signal N.
    pub code: i32,
    /// Both streams.
    pub output: String,
}

/// Tries a program at a level (an index into [`LEVELS`]).
///
/// # Errors
/// Says how what happened differs from what was expected.
pub fn trial(host: &Host, program: &Program, level: usize, user: User) -> Result<(), String> {
    let dir = host.directory(program.before, user)?;
    let mut line = vec![host.cofferdam.display().to_string()];
    for (index, argument) in program.call.iter().enumerate() {
        let mut argument = argument
            .replace("{dir}", &dir.display().to_string())
            .replace("{scripts}", &host.scripts.display().to_string());
        if argument.contains("{rust}") {
            argument = argument.replace("{rust}", &host.rust()?.display().to_string());
        }
        line.push(argument);
        if index == 0 {
            line.extend(["--seccomp".to_owned(), LEVELS[level].to_owned()]);
        }
    }
    let ended = if program.dialog.is_empty() {
        run(host, user, &line, &dir)?
    } else {
        terminal::run(host, user, &line, &dir, program.dialog)?
    };
    judge(&ended, program, program.at[level])
}

fn judge(ended: &Ended, program: &Program, expected: Expect) -> Result<(), String> {
    let Ended { code, output } = ended;
    match expected {
        Expect::Works if *code != 0 => Err(format!("ended with {code}:\n{output}")),
        Expect::Works if !output.contains(program.prints) => {
            Err(format!("did not print {:?}:\n{output}", program.prints))
        }
        Expect::Refused { .. } if *code == 0 => Err(format!("worked, which docs/programs.md denies:\n{output}")),
        Expect::Refused { says, .. } if !output.contains(says) => {
            Err(format!("ended with {code}, but for another reason than {says:?}:\n{output}"))
        }
        _ => Ok(()),
    }
}

/// The command for a line of words as this user.
pub fn command(host: &Host, user: User, line: &[String], dir: &Path) -> Command {
    let mut words = host.as_user(user);
    words.extend_from_slice(line);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(dir).env_remove("XDG_RUNTIME_DIR");
    if user == User::Unprivileged && host.root {
        command.env("HOME", "/nonexistent").env("USER", "nobody");
    }
    command
}

/// Runs a command to its end, with standard input closed.
///
/// # Errors
/// It cannot be started, or did not end in time.
pub fn run(host: &Host, user: User, line: &[String], dir: &Path) -> Result<Ended, String> {
    finish(command(host, user, line, dir))
}

/// As [`run`], with a command made by [`command`].
///
/// # Errors
/// It cannot be started, or did not end in time.
pub fn finish(mut command: Command) -> Result<Ended, String> {
    let what = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cannot start {what}: {e}"))?;
    let readers = [
        child.stdout.take().map(|stream| thread::spawn(move || all(stream))),
        child.stderr.take().map(|stream| thread::spawn(move || all(stream))),
    ];
    let since = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| format!("cannot wait for {what}: {e}"))? {
            Some(status) => break status,
            None if since.elapsed() > PATIENCE => {
                child.kill().and_then(|()| child.wait()).map_err(|e| format!("cannot end {what}: {e}"))?;
                return Err(format!("hung for {} s: {what}", PATIENCE.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut output = String::new();
    for reader in readers.into_iter().flatten() {
        output.push_str(&reader.join().map_err(|_| "a reader panicked".to_owned())?);
    }
    Ok(Ended { code: code(status), output })
}

/// An exit status as a shell says it.
pub fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn all(mut stream: impl Read) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        bytes.extend_from_slice(format!("\n[reading failed: {error}]").as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
