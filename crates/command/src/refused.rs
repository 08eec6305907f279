//! Commands that a function without a result had to refuse: each spawn of such a command fails, and its reason is found
//! by a mark that the command carries. Keeps the latest of them.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::process::Command;

use crate::error::ConfineError;

/// How many reasons are kept.
const KEPT: usize = 256;

/// The first argument of a refused command, before its number. It is never executed, so no program sees it.
const MARK: &str = "cofferdam-refused:";

struct Refusals {
    /// The number of the next one.
    next: u64,
    kept: Vec<(u64, ConfineError)>,
}

static REFUSALS: Mutex<Refusals> = Mutex::new(Refusals { next: 0, kept: Vec::new() });

/// A command that fails on spawn with this error.
pub(crate) fn command(program: &str, error: ConfineError) -> Command {
    tracing::error!(program, %error, "the command cannot be confined; its spawn will fail");
    // A name that no program can have would fail by itself, and say nothing of the reason.
    let mut command = std::process::Command::new(program.replace('\0', "?"));
    fail(&mut command, &error);
    let number = {
        let mut refusals = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = refusals.next;
        refusals.next += 1;
        if refusals.kept.len() == KEPT {
            refusals.kept.remove(0);
        }
        refusals.kept.push((number, error));
        number
    };
    command.arg(format!("{MARK}{number}"));
    Command::from(command)
}

#[cfg(target_os = "linux")]
fn fail(command: &mut std::process::Command, error: &ConfineError) {
    let words = format!("sandbox error: {error}\n").into_bytes();
    cofferdam_confine::command::refuse(command, error.reason.errno(), words);
}

/// Elsewhere nothing runs between fork and exec: a program that cannot exist.
#[cfg(not(target_os = "linux"))]
fn fail(command: &mut std::process::Command, _: &ConfineError) {
    *command = std::process::Command::new("/dev/null/cofferdam-refused");
}

/// The reason behind an error of this command's spawn.
pub(crate) fn found(command: &Command, error: &io::Error) -> Option<ConfineError> {
    let first = command.as_std().get_args().next()?.to_str()?;
    let wanted: u64 = first.strip_prefix(MARK)?.parse().ok()?;
    let refusals = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, reason) = refusals.kept.iter().find(|(number, _)| *number == wanted)?;
    // The working directory, which may not be there, comes before.
    let ours = !cfg!(target_os = "linux") || error.raw_os_error() == Some(reason.reason.errno());
    ours.then(|| reason.clone())
}
