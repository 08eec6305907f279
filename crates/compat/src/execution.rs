//! The interface of executors, and the result of an execution.

use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use cofferdam_engine::outcome::{Ending, Outcome};

/// The result of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionResult {
    /// The program exited with code 0.
    pub success: bool,
    /// Its exit code; 128 + N for signal N; -1 for the time limit.
    pub exit_code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From its start to its end, milliseconds.
    pub execution_time_ms: u64,
    /// Highest memory use of the whole tree, bytes.
    pub memory_used_bytes: Option<u64>,
    /// Why it failed, when more than its exit code tells; `Timeout` for the time limit.
    pub error: Option<String>,
}

/// The exit code of an execution that the time limit ended.
pub const TIMEOUT_CODE: i32 = -1;
/// The error of an execution that the time limit ended.
pub const TIMEOUT: &str = "Timeout";

impl ExecutionResult {
    /// An outcome as a result.
    ///
    /// # Errors
    /// Nothing ran; the text says why and what to do.
    pub fn of(outcome: Outcome) -> Result<ExecutionResult, String> {
        let mut error = outcome.error.as_ref().map(in_words);
        let exit_code = match outcome.outcome {
            Ending::SetupFailed => return Err(error.unwrap_or_else(|| "nothing was started".into())),
            Ending::Exited => outcome.exit_code,
            Ending::TimedOut => {
                error = Some(TIMEOUT.into());
                Some(TIMEOUT_CODE)
            }
            Ending::LimitExceeded => {
                error =
                    Some(outcome.limit.map_or_else(|| "limit exceeded".into(), |limit| format!("{limit} exceeded")));
                Some(outcome.exit_code.unwrap_or(128 + outcome.signal.unwrap_or(9)))
            }
            Ending::Signalled => {
                let signal = outcome.signal.unwrap_or(9);
                error = error.or_else(|| Some(format!("killed by signal {signal}")));
                Some(128 + signal)
            }
            Ending::Violation => {
                error = Some("violation".into());
                Some(128 + outcome.signal.unwrap_or(31))
            }
        };
        Ok(ExecutionResult {
            success: outcome.success,
            exit_code,
            stdout: outcome.stdout,
            stderr: outcome.stderr,
            // A run takes less than 2^64 milliseconds; the fraction is not reported here.
            execution_time_ms: outcome.execution_time_ms as u64,
            memory_used_bytes: outcome.memory_used_bytes,
            error,
        })
    }
}

/// A failure with its hint, in one text.
pub fn in_words(failure: &cofferdam_engine::Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{}\nhint: {hint}", failure.message),
        None => failure.message.clone(),
    }
}

/// Runs configurations. Object safe, so that an executor can be chosen at run time. Implement it with `#[async_trait]`
/// and an `async fn execute`.
#[async_trait]
pub trait SandboxExecutor: Send + Sync {
    /// The executor's name, such as `nsjail`.
    fn name(&self) -> &str;

    /// Runs the configuration at this path, with this standard input. Nothing starts before the future is polled;
    /// dropping it kills the whole process tree.
    ///
    /// # Errors
    /// The configuration cannot be used, or nothing could be started.
    // A `&PathBuf`, as in the design: a method with `&Path` would not accept implementations that are written after it.
    #[allow(clippy::ptr_arg)]
    async fn execute(&self, config_path: &PathBuf, input: &str) -> Result<ExecutionResult, String>;
}
