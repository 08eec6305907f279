//! Executes a call: prepares its policy, runs the sandbox with the command's own streams, signals and terminal, and reports
//! the outcome.
//!
//! Decides nothing about the sandbox. The program's output is copied unchanged; the command's messages go to standard error,
//! or into the one JSON value on standard output.

mod dry_run;
pub(crate) mod keep_changes;
mod recording;
mod sign_of_life;
mod signals;

use std::mem::ManuallyDrop;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cofferdam_engine::audit::Trail;
use cofferdam_engine::audited_run::RunDetails;
use cofferdam_engine::{Ending, Engine, Failure, Input, Io, Outcome, Output};
use cofferdam_policy::Stdin;
use signal_hook::consts::SIGINT;

use self::dry_run::DryRun;
use self::keep_changes::ChangesDirectory;
use self::sign_of_life::SignOfLife;
use self::signals::Signals;
use crate::call::RunnableCall;
use crate::caller::Caller;
use crate::failure;
use crate::outcome::presentation::{Presentation, exit_code};
use crate::outcome::run_report::{EndedRun, report_failure, report_outcome};
use crate::outcome::{explain, skill_hints};
use crate::output::excerpt::Excerpt;
use crate::output::stderr::{print_error, print_note};
use crate::output::{stream, terminal};
use crate::refusal::{CliRefusal, REFUSED};

/// What copying the program's output has found.
#[derive(Default, Clone)]
struct Copied {
    /// The errno of a write that failed although the reader is there, 0 for none.
    lost: Arc<AtomicI32>,
    /// Whether the output asked a terminal for an answer.
    asked: Arc<AtomicBool>,
    /// The beginning and the end of standard output and standard error.
    excerpts: Arc<Mutex<[Excerpt; 2]>>,
}

/// Runs the call and returns the exit code.
///
/// # Errors
/// The run cannot be started as the call asks for, or its result cannot be written.
pub(crate) fn execute(
    engine: &Engine,
    call: RunnableCall,
    caller: &Caller,
    presentation: Presentation,
) -> Result<i32, CliRefusal> {
    execute_about(engine, call, caller, presentation, RunDetails::default())
}

/// The same for a run whose records state more than its policy, such as the run of a skill.
///
/// # Errors
/// As [`execute`].
pub(crate) fn execute_about(
    engine: &Engine,
    mut call: RunnableCall,
    caller: &Caller,
    presentation: Presentation,
    about: RunDetails,
) -> Result<i32, CliRefusal> {
    let is_skill = about.skill.is_some();
    let explain = |failure: &mut Failure, call: &RunnableCall| {
        explain::explain(failure, &call.policy, caller);
        if is_skill {
            skill_hints::replace_hint(failure);
        }
    };
    require_terminal(&call, presentation)?;
    if let Some(directory) = &call.keep_changes {
        let trail: Vec<_> = call.audit_trail.iter().map(Into::into).collect();
        keep_changes::require_foreign(directory, &trail, "--keep-changes ./kept")?;
    }
    if presentation.dry_run {
        return match engine.prepare(&call.policy) {
            Ok(prepared) => dry_run::print(&call, &DryRun::of(&call, &prepared, &about)).map(|()| 0),
            Err(mut failure) => {
                explain(&mut failure, &call);
                report_failure(failure, presentation)
            }
        };
    }
    let trail = recording::open(&call, Some(caller).filter(|_| is_skill))?;
    let changes = call.keep_changes.as_deref().map(ChangesDirectory::create).transpose().map_err(|refusal| {
        if is_skill {
            refusal.hint("name a directory that is empty or does not exist yet: --output DIR")
        } else {
            refusal
        }
    })?;
    let signals = Signals::catch(call.tty)?;
    let copied = Copied::default();
    let io = io(&call, presentation, &signals, &copied, changes.as_ref())?;
    let prepared = match engine.prepare(&call.policy) {
        // The process ends with this call: freeing a large policy before would only take time.
        Ok(prepared) => ManuallyDrop::new(prepared),
        Err(mut failure) => {
            explain(&mut failure, &call);
            return report_failure(failure, presentation);
        }
    };
    let raw = match call.tty.then(terminal::RawTerminal::enter).transpose() {
        Ok(raw) => raw,
        Err(refusal) => {
            drop(ManuallyDrop::into_inner(prepared));
            return Err(refusal);
        }
    };
    let watched = !call.tty && !presentation.json && !presentation.result && !presentation.quiet;
    let sign = watched.then(|| SignOfLife::start(Arc::clone(&copied.excerpts))).flatten();
    let (mut outcome, unrecorded) = match &trail {
        None => (prepared.run(io), None),
        Some(trail) => recording::run(&prepared, io, &call, trail, about)?,
    };
    drop(sign);
    if copied.asked.load(Ordering::Relaxed) {
        terminal::discard_answers();
    }
    drop(raw);
    let changes_lost = match (&changes, &mut call.keep_changes) {
        (Some(changes), Some(named)) => {
            changes.locate(named, &mut outcome) || outcome.error.as_ref().is_some_and(failure::are_changes_lost)
        }
        _ => false,
    };
    drop(changes);
    if let Some(failure) = outcome.error.as_mut().filter(|_| outcome.outcome == Ending::SetupFailed) {
        explain(failure, &call);
    }
    // What ended by itself after a signal has its own exit code; what was killed has the signal's.
    let caught = if signals.ended_program() { 0 } else { signals.caught() };
    let code = match (caught, &unrecorded) {
        (_, Some(refusal)) => refusal.code,
        (0, None) if (changes_lost || leaves_repository(&outcome)) && exit_code(&outcome) == 0 => REFUSED,
        (0, None) => exit_code(&outcome),
        (signal, None) => 128 + signal,
    };
    if let Some(refusal) = unrecorded {
        print_error(&refusal.message, refusal.hint.as_deref());
    }
    if let Some(failure) = outcome.error.as_ref().filter(|_| changes_lost) {
        print_error(&failure.message, failure.hint.as_deref());
    }
    let warning = trail.as_ref().and_then(Trail::warning);
    let excerpts = copied.excerpts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let run = EndedRun { outcome: &outcome, call: &call, caller, output: excerpts, warning, is_skill };
    let code = report_outcome(&run, code, presentation)?;
    if let Some(name) = signals.killed_after_grace().filter(|_| !presentation.json && !presentation.quiet) {
        let text = format!("killed {} s after {name}, at which it did not end", call.grace.as_secs_f64());
        print_note(&text, Some("--grace TIME"));
    }
    let interrupted = signals.caught() == SIGINT && code == 128 + SIGINT;
    let code = if presentation.json || presentation.result { code } else { report_lost_output(&copied, code) };
    if interrupted {
        end_by_interrupt();
    }
    Ok(code)
}

/// Ends this process by SIGINT as its program ended, so that a shell that runs a loop or a script ends as well. Returns
/// where that is not possible.
fn end_by_interrupt() {
    signal_hook::low_level::emulate_default_handler(SIGINT).ok();
}

/// Refuses a terminal where the call cannot have one.
fn require_terminal(call: &RunnableCall, presentation: Presentation) -> Result<(), CliRefusal> {
    if call.tty && presentation.json {
        return Err(CliRefusal::new("arguments", "-t and --json exclude each other").hint("leave one of them out"));
    }
    if call.tty && !presentation.dry_run { terminal::require() } else { Ok(()) }
}

/// The streams, the terminal and the signals of the run.
fn io(
    call: &RunnableCall,
    presentation: Presentation,
    signals: &Signals,
    copied: &Copied,
    changes: Option<&ChangesDirectory>,
) -> Result<Io, CliRefusal> {
    let no_keys = |e| CliRefusal::new("terminal", format!("cannot read the terminal's keys: {e}"));
    Ok(Io {
        input: match call.policy.command.stdin {
            Stdin::Caller => Input::Fd(std::io::stdin().as_fd().try_clone_to_owned().map_err(|e| {
                CliRefusal::new("arguments", format!("cannot pass standard input on: {e}")).hint("leave out -i")
            })?),
            Stdin::Closed | Stdin::Text(_) => Input::Closed,
        },
        output: if presentation.json || presentation.result {
            Output::Capture
        } else {
            let wall = Duration::from_millis(call.policy.limits.wall_ms);
            let Copied { lost, asked, excerpts } = copied.clone();
            Output::Stream(Box::new(stream::copy(signals.cancel.clone(), wall, lost, asked, excerpts)))
        },
        cut_ends_run: call.cut_ends_run,
        terminal: call.tty.then(terminal::size),
        keys: call.tty.then(terminal::keys_beside_input).transpose().map_err(no_keys)?.flatten(),
        cancel: signals.cancel.clone(),
        signals: signals.passed(call.grace, call.tty),
        resize: signals.resized.clone().map(|resized| -> Box<dyn FnMut() -> Option<(u16, u16)> + Send> {
            Box::new(move || {
                let changed = resized.swap(false, Ordering::Relaxed);
                changed.then(terminal::size).map(|size| (size.rows, size.columns))
            })
        }),
        keep_changes: changes.zip(call.keep_changes.as_deref()).map(|(changes, named)| changes.path(named)),
        ..Io::default()
    })
}

/// Whether the program left a repository that git outside of the sandbox would obey, which is not a success.
fn leaves_repository(outcome: &Outcome) -> bool {
    outcome.error.as_ref().is_some_and(|failure| failure::is_repositories(failure) && failure.code != 0)
}

/// Reports output that could not be copied, and returns the exit code of the command.
fn report_lost_output(copied: &Copied, code: i32) -> i32 {
    let lost = copied.lost.load(Ordering::Relaxed);
    if lost == 0 {
        return code;
    }
    let error = std::io::Error::from_raw_os_error(lost);
    print_error(&format!("cannot pass the program's output on: {error}; some of it is lost"), None);
    // A program may ignore the broken pipe and exit with 0, but its output is not complete.
    if code == 0 { REFUSED } else { code }
}
