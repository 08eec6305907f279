//! The public API under the names of the design that Cofferdam's profiles come from, beside its own: executors that take
//! the path of a configuration and some input, and say what came of it.
//!
//! Every configuration becomes a policy first (`config`), whatever form it has; the engine runs it. Nothing here needs an
//! async runtime: a run has a thread of its own, and the future that stands for it works with any executor. Dropping that
//! future kills the whole tree.

pub mod config;
mod executor;
pub mod legacy;
mod python;
pub(crate) mod task;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use serde::Serialize;

use crate::outcome::{Ending, Outcome};

pub use crate::monitor::ResourceUsage;
pub use config::{Form, Loaded, load};
pub use executor::{Call, JailExecutor, NsJailExecutor, SeatbeltExecutor};
pub use legacy::{MountJson, NsJailJsonConfig};
pub use python::python3;
pub use task::{Handle, Task};

/// What an execution came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
pub fn in_words(failure: &crate::outcome::Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{}\nhint: {hint}", failure.message),
        None => failure.message.clone(),
    }
}

/// An execution under way: what an `async fn` would return.
pub type Executing<'a> = Pin<Box<dyn Future<Output = Result<ExecutionResult, String>> + Send + 'a>>;

/// Runs configurations. Object safe, so that an executor can be chosen at run time.
pub trait SandboxExecutor: Send + Sync {
    /// The executor's name, such as `nsjail`.
    fn name(&self) -> &str;

    /// Runs what the configuration at this path says, with this standard input: `async fn` in a form that can be a trait
    /// object, to be awaited. Nothing starts before it is polled; dropping it kills the whole tree.
    ///
    /// # Errors
    /// The configuration cannot be used, or nothing could be started.
    fn execute<'a>(&'a self, config_path: &'a Path, input: &'a str) -> Executing<'a>;
}

/// `linux`, `macos` or `unknown`.
pub fn detect_platform() -> String {
    let name = match std::env::consts::OS {
        "linux" => "linux",
        "macos" => "macos",
        _ => "unknown",
    };
    name.to_owned()
}

/// Whether there is an nsjail that can be used: at this path, or on `PATH`.
pub fn is_nsjail_available(nsjail_path: Option<&Path>) -> bool {
    use crate::backends::{Installed, Tool, Tools};
    let mut tools = Tools::from_environment();
    if let Some(path) = nsjail_path {
        tools.nsjail = Some(path.to_owned());
    }
    Installed::find(Tool::Nsjail, &tools).is_ok()
}

/// Whether macOS's Seatbelt is here.
pub fn is_seatbelt_available() -> bool {
    use crate::backends::{Installed, Tool, Tools};
    Installed::find(Tool::Seatbelt, &Tools::from_environment()).is_ok()
}
