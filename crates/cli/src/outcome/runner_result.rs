//! The result that runners of skills expect: five fields of an outcome. Pure.

use cofferdam_engine::{Ending, Outcome};
use serde::Serialize;

/// The result that a runner of a skill reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunnerResult {
    /// Whether it exited by itself with exit code 0.
    pub success: bool,
    /// The program's own exit code; 137 where the wall limit ended it.
    pub exit_code: i32,
    /// Its output, as far as it was captured.
    pub stdout: String,
    /// Its error output; where nothing ran, the reason.
    pub stderr: String,
    /// How long it ran, milliseconds.
    pub duration_ms: u64,
}

impl RunnerResult {
    /// The result of an outcome. `code` is the exit code of the command.
    pub(super) fn of(outcome: &Outcome, code: i32) -> RunnerResult {
        let unstarted = outcome.error.as_ref().filter(|_| outcome.outcome == Ending::SetupFailed);
        RunnerResult {
            success: outcome.success && code == 0,
            exit_code: if outcome.outcome == Ending::TimedOut { 137 } else { code },
            stdout: outcome.stdout.clone(),
            stderr: unstarted.map_or_else(|| outcome.stderr.clone(), |failure| failure.message.clone()),
            duration_ms: outcome.execution_time_ms.round() as u64,
        }
    }
}
