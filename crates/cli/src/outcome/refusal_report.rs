//! How a refusal is reported: as a message on standard error, or as the JSON value that the call asks for.
//!
//! A call that asks for one JSON value gets one, whatever happens.

use clap::ArgMatches;
use cofferdam_engine::{FailedStep, Failure};

use super::presentation::Presentation;
use super::run_report::report_failure;
use crate::output::stderr::print_error;
use crate::output::stdout::print;
use crate::refusal::{CLOSED, CliRefusal, REFUSED};

/// Prints the refusal on standard error and returns its exit code.
pub(crate) fn report(refusal: &CliRefusal) -> i32 {
    print_error(&refusal.message, refusal.hint.as_deref());
    if refusal.code == CLOSED { REFUSED } else { refusal.code }
}

/// The same, but silent where the call only read and the reader of its output went away.
pub(crate) fn report_unless_closed(refusal: &CliRefusal, only_reads: bool) -> i32 {
    if only_reads && refusal.code == CLOSED { CLOSED } else { report(refusal) }
}

/// Prints the refusal as the outcome of a run that did not start, or as the runner's result, and returns its exit code.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_as_outcome(refusal: &CliRefusal, presentation: Presentation) -> Result<i32, CliRefusal> {
    let failure = Failure {
        code: refusal.code,
        step: FailedStep::caller(refusal.step),
        message: refusal.message.clone(),
        hint: refusal.hint.clone(),
    };
    report_failure(failure, presentation)
}

/// `code`, after the refusal was printed as an outcome where `json` asks for that.
pub(crate) fn exit_code_after(code: i32, json: bool, refusal: &CliRefusal) -> i32 {
    if json {
        let presentation = Presentation { json, ..Presentation::default() };
        if let Err(unwritten) = print_as_outcome(refusal, presentation) {
            return report(&unwritten);
        }
    }
    code
}

/// The refusal of `run` or `eval` as the outcome that `--json` asks for.
///
/// # Errors
/// The refusal itself, where `--json` is not given or standard output cannot be written.
pub(crate) fn refused_run(refusal: CliRefusal, presentation: Presentation) -> Result<i32, CliRefusal> {
    if !presentation.json || refusal.is_unwritten() {
        return Err(refusal);
    }
    if refusal.is_about_environment() {
        report(&refusal); // As for a parser error: for the person who wrote the name.
    }
    Ok(exit_code_after(refusal.code, true, &refusal))
}

/// The refusal of `skill` or `audit` as one line of JSON, in the form of a skill's faults, where `--json` asks for it. The
/// run of a skill has printed its outcome itself.
///
/// # Errors
/// The refusal itself, where `--json` is not given or standard output cannot be written.
pub(crate) fn refused_with_faults(refusal: CliRefusal, matches: &ArgMatches) -> Result<i32, CliRefusal> {
    if !matches.get_flag("json") || refusal.is_unwritten() {
        return Err(refusal);
    }
    let mut fault = serde_json::json!({ "code": refusal.step, "message": refusal.message });
    if let Some(hint) = &refusal.hint {
        fault["hint"] = hint.as_str().into();
    }
    print(&format!("{}\n", serde_json::json!({ "ok": false, "errors": [fault] }))).map(|()| refusal.code)
}
