//! Commands that a function without a result had to refuse: each spawn of such a command fails, with a number that leads
//! to the reason here. Keeps the latest of them.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::process::Command;

use crate::error::ConfineError;

/// How many reasons are kept.
const KEPT: usize = 256;

struct Refusals {
    /// The number of the next one.
    next: u32,
    kept: Vec<(u32, ConfineError)>,
}

static REFUSALS: Mutex<Refusals> = Mutex::new(Refusals { next: 0, kept: Vec::new() });

/// A command that fails on spawn with this error.
pub(crate) fn command(program: &str, error: ConfineError) -> Command {
    tracing::error!(program, %error, "the command cannot be confined; its spawn will fail");
    let number = {
        let mut refusals = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = refusals.next;
        refusals.next = (number + 1) % 500_000_000;
        if refusals.kept.len() == KEPT {
            refusals.kept.remove(0);
        }
        refusals.kept.push((number, error));
        number
    };
    // A name that no program can have would fail by itself, and say nothing of the reason.
    let mut command = std::process::Command::new(program.replace('\0', "?"));
    fail(&mut command, number);
    Command::from(command)
}

#[cfg(target_os = "linux")]
fn fail(command: &mut std::process::Command, number: u32) {
    cofferdam_confine::command::refuse(command, number);
}

/// Elsewhere there is no number to be had: a program that cannot exist.
#[cfg(not(target_os = "linux"))]
fn fail(command: &mut std::process::Command, number: u32) {
    *command = std::process::Command::new(format!("/dev/null/cofferdam-refused/{number}"));
}

/// The reason behind an error of spawn's.
pub(crate) fn found(error: &io::Error) -> Option<ConfineError> {
    let wanted = number(error)?;
    let refusals = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
    refusals.kept.iter().find(|(number, _)| *number == wanted).map(|(_, error)| error.clone())
}

#[cfg(target_os = "linux")]
fn number(error: &io::Error) -> Option<u32> {
    cofferdam_confine::command::refusal(error)
}

/// Elsewhere the error has none: `tracing` has told the reason.
#[cfg(not(target_os = "linux"))]
fn number(_: &io::Error) -> Option<u32> {
    None
}
