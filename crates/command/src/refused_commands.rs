//! Commands refused by a function that cannot return an error: each spawn of such a command fails, and its reason is
//! found by a marker in its arguments. Retains the latest reasons.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::Command;

use crate::error::{ConfineError, ConfineReason, SandboxError};

/// Most reasons that are retained.
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
    // A name with a NUL would fail by itself, without the reason.
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

/// On other systems nothing runs between fork and exec: uses a program that cannot exist.
#[cfg(not(target_os = "linux"))]
fn fail(command: &mut std::process::Command, _: &ConfineError) {
    *command = std::process::Command::new("/dev/null/cofferdam-refused");
}

/// The reason of an error of this command's spawn.
fn find(command: &Command, error: &io::Error) -> Option<ConfineError> {
    let first = command.as_std().get_args().next()?.to_str()?;
    let wanted: u64 = first.strip_prefix(MARK)?.parse().ok()?;
    let refusals = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, reason) = refusals.kept.iter().find(|(number, _)| *number == wanted)?;
    // A missing working directory fails before.
    let ours = !cfg!(target_os = "linux") || error.raw_os_error() == Some(reason.reason.errno());
    ours.then(|| reason.clone())
}

impl ConfineError {
    /// The full error behind an error of this command's spawn, if the confinement is its cause; none if it is about the
    /// program itself, such as a missing one.
    ///
    /// Only an errno can be returned from between fork and exec, so the error itself reads `Invalid argument` or the
    /// like. `command` must be the command that was spawned.
    pub fn of_spawn(command: &Command, error: &io::Error) -> Option<ConfineError> {
        let program = command.as_std().get_program();
        #[cfg(target_os = "linux")]
        if let Some(failed) = cofferdam_confine::command::RestrictionFailure::of_spawn(error) {
            let source = Arc::new(io::Error::from_raw_os_error(failed.errno));
            return Some(ConfineError::new(program, ConfineReason::Child { step: failed.step.call(), source }));
        }
        find(command, error)
    }
}

impl SandboxError {
    /// An error of this command's spawn, whatever its cause.
    pub fn of_spawn(command: &Command, error: io::Error) -> SandboxError {
        let known = ConfineError::of_spawn(command, &error);
        let program = command.as_std().get_program();
        known.unwrap_or_else(|| ConfineError::new(program, ConfineReason::Spawn(Arc::new(error)))).into()
    }
}
