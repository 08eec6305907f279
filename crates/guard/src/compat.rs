//! The guard under the names of an older design: a configuration of five fields, and a trait whose errors are a single
//! string, `OmegaError`. The guard itself does everything.
//!
//! ```
//! use cofferdam_guard::compat::{ExecutionResult, OmegaError, Sandbox, SandboxConfig};
//!
//! let config = SandboxConfig {
//!     enabled: true,
//!     allowed_commands: vec!["ls".to_string(), "cat".to_string()],
//!     blocked_paths: vec!["/etc/shadow".to_string()],
//!     max_execution_time_secs: 30,
//!     max_output_bytes: 1_048_576,
//! };
//!
//! // A sandbox of one's own, beside the guard, behind the same trait:
//! struct Refusing;
//!
//! #[async_trait::async_trait]
//! impl Sandbox for Refusing {
//!     async fn execute(&self, command: &str, _args: &[&str]) -> Result<ExecutionResult, OmegaError> {
//!         Err(OmegaError::Sandbox(format!("{command}: refused")))
//!     }
//!     fn is_allowed(&self, _command: &str) -> bool {
//!         false
//!     }
//!     fn path_allowed(&self, _path: &str) -> bool {
//!         false
//!     }
//! }
//!
//! async fn status(sandbox: &dyn Sandbox) -> Result<String, OmegaError> {
//!     Ok(sandbox.execute("git", &["status"]).await?.stdout)
//! }
//! # let _ = (config, Refusing, status(&Refusing));
//! ```

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::config::{GuardConfig, Rule};
use super::execute::Guard;

pub use super::error::SandboxError as OmegaError;
pub use super::result::ExecutionResult;

/// The configuration with its five fields. It is accepted wherever a [`GuardConfig`] is; the other fields have their
/// defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxConfig {
    /// Whether anything is executed at all.
    pub enabled: bool,
    /// Commands that may be executed, with any arguments: names or absolute paths. Empty denies all.
    pub allowed_commands: Vec<String>,
    /// Paths that are neither read nor written.
    pub blocked_paths: Vec<String>,
    /// Wall time of one command, seconds.
    pub max_execution_time_secs: u64,
    /// Bytes of standard output and standard error together.
    pub max_output_bytes: usize,
}

impl Default for SandboxConfig {
    fn default() -> SandboxConfig {
        SandboxConfig {
            enabled: true,
            allowed_commands: Vec::new(),
            blocked_paths: Vec::new(),
            max_execution_time_secs: 30,
            max_output_bytes: 1_048_576,
        }
    }
}

impl From<SandboxConfig> for GuardConfig {
    fn from(config: SandboxConfig) -> GuardConfig {
        GuardConfig {
            enabled: config.enabled,
            allowed_commands: config.allowed_commands.iter().map(|command| Rule::any(command)).collect(),
            blocked_paths: config.blocked_paths,
            max_execution_time_secs: config.max_execution_time_secs,
            max_output_bytes: u64::try_from(config.max_output_bytes).unwrap_or(u64::MAX),
            ..GuardConfig::default()
        }
    }
}

/// Somewhere to execute commands, with errors in one string. [`Sandbox`](super::sandbox::Sandbox) is the same with
/// typed ones.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Executes a command within the sandbox's constraints.
    ///
    /// # Errors
    /// It was refused, could not be started, or was ended by a limit: command, policy and reason.
    async fn execute(&self, command: &str, args: &[&str]) -> Result<ExecutionResult, OmegaError>;

    /// Whether a command is allowed by the policy.
    fn is_allowed(&self, command: &str) -> bool;

    /// Whether a path is accessible.
    fn path_allowed(&self, path: &str) -> bool;
}

#[async_trait]
impl Sandbox for Guard {
    async fn execute(&self, command: &str, args: &[&str]) -> Result<ExecutionResult, OmegaError> {
        Ok(super::sandbox::Sandbox::execute(self, command, args).await?)
    }

    fn is_allowed(&self, command: &str) -> bool {
        super::sandbox::Sandbox::is_allowed(self, command)
    }

    fn path_allowed(&self, path: &str) -> bool {
        super::sandbox::Sandbox::path_allowed(self, path)
    }
}
