//! The result that runners of skills report: five fields of an outcome. Pure.

use cofferdam_engine::{Ending, Outcome};
use serde::Serialize;

/// What a runner of a skill reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunnerResult {
    /// Whether it ended by itself with exit code 0.
    pub success: bool,
    /// The program's own; 137 where the wall limit ended it.
    pub exit_code: i32,
    /// What it wrote, as far as it was kept.
    pub stdout: String,
    /// What it wrote to standard error; where nothing ran, why not.
    pub stderr: String,
    /// How long it ran, milliseconds.
    pub duration_ms: u64,
}

impl RunnerResult {
    /// Of an outcome, and the exit code that stands for it otherwise.
    pub fn of(outcome: &Outcome, code: i32) -> RunnerResult {
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
