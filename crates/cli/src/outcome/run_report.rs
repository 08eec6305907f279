//! How the result of a run is reported: as JSON on standard output, or as notes on standard error beside the program's own
//! output.

use cofferdam_config::complaints::complaints;
use cofferdam_engine::{Ending, Failure, Outcome};
use cofferdam_policy::Field;
use serde::Serialize;

use super::complaint_notes::complaint_notes;
use super::notes::{self, RunNote};
use super::presentation::Presentation;
use super::runner_result::RunnerResult;
use crate::call::RunnableCall;
use crate::caller::Caller;
use crate::failure;
use crate::output::excerpt::Excerpt;
use crate::output::stderr::{print_error, print_note, write};
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

/// A run that has ended, and what its notes are made of.
pub(crate) struct EndedRun<'a> {
    /// Its outcome.
    pub outcome: &'a Outcome,
    /// The call that started it.
    pub call: &'a RunnableCall,
    /// Who called.
    pub caller: &'a Caller,
    /// Excerpts of standard output and standard error, where they were passed on.
    pub output: [Excerpt; 2],
    /// What the audit trail warns of.
    pub warning: Option<String>,
    /// Whether a skill was run. The hints of notes name options of `run`, which `skill run` does not have.
    pub is_skill: bool,
}

/// The outcome as `--json` prints it.
#[derive(Serialize)]
struct OutcomeWithNotes<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    notes: Vec<RunNote>,
}

impl EndedRun<'_> {
    /// The notes, the most important first.
    fn notes(&self) -> Vec<RunNote> {
        let EndedRun { outcome, call, .. } = self;
        let mut notes = notes::notes(outcome, call);
        let mistaken = notes::file_for_code(outcome, call).or_else(|| notes::agent_as_program(outcome, call));
        if let Some(note) = mistaken {
            notes.push(note);
        } else {
            let captured = || [Excerpt::of(&outcome.stdout), Excerpt::of(&outcome.stderr)];
            let output =
                if self.output.iter().any(|excerpt| !excerpt.is_empty()) { self.output.clone() } else { captured() };
            let said =
                complaint_notes(&complaints(output[1].lines().chain(output[0].lines())), outcome, call, self.caller);
            let known: Vec<_> = notes.iter().filter_map(|note| note.hint.clone()).collect();
            notes.extend(said.into_iter().filter(|note| !note.hint.as_ref().is_some_and(|hint| known.contains(hint))));
        }
        if self.is_skill {
            notes.iter_mut().for_each(|note| note.hint = None);
            if outcome.violations.iter().any(|violation| violation.field.starts_with("$.network")) {
                notes.push(RunNote {
                    text: "a skill reaches the hosts that its manifest names and the operator allows".into(),
                    hint: Some("--config FILE: networkMode = \"allowlist\", allowedHosts = [\"HOST\"]".into()),
                });
            }
        }
        notes
    }
}

/// Reports the outcome of a run, and returns the exit code of the command. `code` is the exit code of the outcome.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn report_outcome(run: &EndedRun<'_>, code: i32, presentation: Presentation) -> Result<i32, CliRefusal> {
    let EndedRun { outcome, call, .. } = run;
    if presentation.json {
        print_json(&OutcomeWithNotes { outcome, notes: run.notes() })?;
        if outcome.limit == Some(Field::Output) && !presentation.quiet {
            let text =
                format!("stopped at {} bytes of output, which were to be captured", call.policy.limits.output_bytes);
            print_note(&text, Some("--output-limit SIZE"));
        }
        return Ok(code);
    }
    if presentation.result {
        let result = RunnerResult::of(outcome, code);
        print_json(&result)?;
        if !presentation.quiet {
            run.notes().into_iter().for_each(|note| print_note(&note.text, note.hint.as_deref()));
        }
        return Ok(result.exit_code);
    }
    let print = |note: RunNote| print_note(&note.text, note.hint.as_deref());
    match &outcome.error {
        Some(failure) if outcome.outcome == Ending::SetupFailed => {
            print_error(&failure.message, failure.hint.as_deref())
        }
        _ if !presentation.quiet => {
            if let Some(warning) = &run.warning {
                print_note(warning, Some("XDG_STATE_HOME=DIR, a directory that this user can write"));
            }
            let notes = run.notes();
            // A note is a line of its own, also behind an editor that leaves the cursor where it was.
            if call.tty && !notes.is_empty() && run.output[0].last().is_some_and(|last| last != b'\n') {
                write("\n");
            }
            notes.into_iter().for_each(print);
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
