//! How the result of a run is reported: as JSON on standard output, or as notes on standard error beside the program's own
//! output.

use cofferdam_engine::{Ending, Failure, Outcome};

use super::notes::{self, RunNote};
use super::presentation::Presentation;
use super::runner_result::RunnerResult;
use crate::call::RunnableCall;
use crate::failure;
use crate::output::complaints::Complaint;
use crate::output::stderr::{print_error, print_note};
use crate::output::stdout::print_json;
use crate::refusal::CliRefusal;

/// Reports a failure before the program started, and returns its exit code.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn report_failure(failure: Failure, presentation: Presentation) -> Result<i32, CliRefusal> {
    let code = failure.code;
    if presentation.json {
        print_json(&Outcome::unstarted(Some(failure)))?;
    } else if presentation.result {
        print_json(&RunnerResult::of(&Outcome::unstarted(Some(failure)), code))?;
    } else {
        print_error(&failure.message, failure.hint.as_deref());
    }
    Ok(code)
}

/// Reports the outcome of a run, and returns the exit code of the command. `code` is the exit code of the outcome; `complaint`
/// is what the program said that it lacks; `warning` is about the audit trail.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn report_outcome(
    outcome: &Outcome,
    code: i32,
    call: &RunnableCall,
    presentation: Presentation,
    is_skill: bool,
    complaint: Option<Complaint>,
    warning: Option<String>,
) -> Result<i32, CliRefusal> {
    if presentation.json {
        print_json(outcome)?;
        return Ok(code);
    }
    if presentation.result {
        let result = RunnerResult::of(outcome, code);
        print_json(&result)?;
        return Ok(result.exit_code);
    }
    // The hints of notes name options of `run`, which `skill run` does not have.
    let print = |note: RunNote| print_note(&note.text, note.hint.as_deref().filter(|_| !is_skill));
    match &outcome.error {
        Some(failure) if outcome.outcome == Ending::SetupFailed => {
            print_error(&failure.message, failure.hint.as_deref())
        }
        _ if !presentation.quiet => {
            if let Some(warning) = warning {
                print_note(&warning, Some("XDG_STATE_HOME=DIR, a directory that this user can write"));
            }
            let notes = notes::notes(outcome, call);
            let complaint = complaint.or_else(|| notes::complaint_of_arguments(call)).filter(|_| notes.is_empty());
            notes.into_iter().for_each(print);
            if let Some(note) = notes::file_for_code(outcome, call) {
                print_note(&note.text, note.hint.as_deref());
            } else if let Some(note) = complaint.and_then(|complaint| notes::of_complaint(complaint, outcome, call)) {
                print(note);
            }
        }
        error => {
            if let Some(failure) = error.as_ref().filter(|failure| failure::is_repositories(failure)) {
                print_note(&failure.message, failure.hint.as_deref());
            }
            notes::truncated_streams(outcome, call).into_iter().for_each(print);
        }
    }
    Ok(code)
}
