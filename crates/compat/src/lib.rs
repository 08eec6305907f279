//! The public API under the names of the design that Cofferdam's profiles come from, beside its own: executors that take
//! the path of a configuration and some input, and say what came of it.
//!
//! With `use cofferdam_compat as omni_sandbox;` the design's own paths lead here:
//!
//! ```
//! use cofferdam_compat as omni_sandbox;
//! use omni_sandbox::executor::{MountConfig, NsJailExecutor, SandboxConfig, SeatbeltExecutor};
//! use omni_sandbox::monitor::ResourceUsage;
//! use omni_sandbox::{ExecutionResult, SandboxExecutor, detect_platform};
//! use std::path::PathBuf;
//!
//! let config = SandboxConfig {
//!     skill_id: "my-skill".to_string(),
//!     mode: "EXEC".to_string(),
//!     hostname: "omni-skill".to_string(),
//!     cmd: vec!["echo".to_string(), "hello".to_string()],
//!     env: vec!["PATH=/usr/bin:/bin".to_string()],
//!     mounts: vec![MountConfig {
//!         src: "/usr".to_string(),
//!         dst: "/usr".to_string(),
//!         fstype: "bind".to_string(),
//!         rw: false,
//!     }],
//!     rlimit_as: 134_217_728,
//!     rlimit_cpu: 60,
//!     log_level: "info".to_string(),
//! };
//! let policy = cofferdam_policy::Policy::try_from(config)?;
//! assert_eq!(policy.limits.memory_mb, 128);
//!
//! /// An executor of one's own.
//! struct DryRun;
//!
//! #[async_trait::async_trait]
//! impl SandboxExecutor for DryRun {
//!     async fn execute(&self, config_path: &PathBuf, input: &str) -> Result<ExecutionResult, String> {
//!         Err(format!("{} was not run with {} bytes", config_path.display(), input.len()))
//!     }
//!     fn name(&self) -> &str {
//!         "dry-run"
//!     }
//! }
//! # let _: (Box<dyn SandboxExecutor>, Option<ResourceUsage>, Option<SeatbeltExecutor>) = (Box::new(DryRun), None, None);
//! # let _: (fn() -> String, Option<NsJailExecutor>) = (detect_platform, None);
//! # Ok::<(), String>(())
//! ```
//!
//! Every configuration becomes a policy first (`config`), whatever form it has; the engine runs it. Nothing here needs an
//! async runtime: a run has a thread of its own, and the future that stands for it works with any executor. Dropping that
//! future kills the whole tree.
#![forbid(unsafe_code)]

pub mod config;
pub mod executor;
pub mod legacy;
mod skill;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use cofferdam_engine::outcome::{Ending, Outcome};

pub use cofferdam_engine::monitor::{self, ResourceUsage};
pub use cofferdam_engine::task::{self, Handle, Task};
pub use config::{Form, Loaded, load};
pub use executor::{Call, JailExecutor, NsJailExecutor, SeatbeltExecutor};
pub use legacy::{MountJson, NsJailJsonConfig};
pub use skill::{MountConfig, SandboxConfig};

/// What an execution came to.
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
pub fn in_words(failure: &cofferdam_engine::outcome::Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{}\nhint: {hint}", failure.message),
        None => failure.message.clone(),
    }
}

/// Runs configurations. Object safe, so that an executor can be chosen at run time; types of one's own implement it with
/// `#[async_trait]` and an `async fn execute`.
#[async_trait]
pub trait SandboxExecutor: Send + Sync {
    /// The executor's name, such as `nsjail`.
    fn name(&self) -> &str;

    /// Runs what the configuration at this path says, with this standard input. Nothing starts before the future is polled;
    /// dropping it kills the whole tree.
    ///
    /// # Errors
    /// The configuration cannot be used, or nothing could be started.
    // A `&PathBuf`, as in the design: a method with `&Path` would not accept implementations that are written after it.
    #[allow(clippy::ptr_arg)]
    async fn execute(&self, config_path: &PathBuf, input: &str) -> Result<ExecutionResult, String>;
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
    use cofferdam_engine::backends::{Installed, Tool, Tools};
    let mut tools = Tools::from_environment();
    if let Some(path) = nsjail_path {
        tools.nsjail = Some(path.to_owned());
    }
    Installed::find(Tool::Nsjail, &tools).is_ok()
}

/// Whether macOS's Seatbelt is here.
pub fn is_seatbelt_available() -> bool {
    use cofferdam_engine::backends::{Installed, Tool, Tools};
    Installed::find(Tool::Seatbelt, &Tools::from_environment()).is_ok()
}
