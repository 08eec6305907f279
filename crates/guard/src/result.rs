//! The result of a command: data only.

use serde::{Deserialize, Serialize};

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionResult {
    /// Standard output as UTF-8, with invalid bytes replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// The exit code; 128 + N where signal N ended it; -1 in what a refusal carries of a command that a limit ended.
    pub exit_code: i32,
    /// From the start of the program to its end, milliseconds.
    pub duration_ms: u64,
    /// Whether both streams together exceeded the output cap.
    pub truncated: bool,
}
