//! The guard: commands on a user's behalf, held to an allowlist, blocked paths, a time and an output cap.
//!
//! ```text
//! execute(command, args)
//!   └─ decide: enabled? ─ the file that the name leads to ─ a rule for that file ─ its arguments ─▶ recorded
//!        └─ one Policy: the workspace writable, blocked paths denied ─ Engine, limited to
//!           the command, its interpreters and its helpers ─ run ─▶ ExecutionResult
//! ```
//!
//! Never a shell: a command is a program and its arguments. What is allowed is a file, not the text of a name; what the
//! command starts in turn is held by the kernel to its helpers, and what it opens to what is not blocked. The sandbox is
//! the engine's own, with nothing beside it. What an allowlist cannot hold stands in docs/guard.md. Parses no
//! configuration.
#![forbid(unsafe_code)]

mod blocked;
mod builder;
mod cache;
pub mod compat;
mod config;
mod error;
mod find;
mod form;
mod guard;
mod helpers;
#[cfg(test)]
mod kernel_tests;
mod output;
mod policy;
mod record;
mod rules;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use builder::GuardBuilder;
pub use config::{GuardConfig, Mode, Rule};
pub use error::{GuardError, Refusal, SandboxError};
pub use guard::Guard;
pub use helpers::BUILT_IN;
pub use record::{Event, Recorder};

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionResult {
    /// Standard output as UTF-8, what is none replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// The exit code; 128 + N where signal N ended it; -1 in what a refusal carries of a command that a limit ended.
    pub exit_code: i32,
    /// From the start of the program to its end, milliseconds.
    pub duration_ms: u64,
    /// Whether there was more output than is kept of both streams together.
    pub truncated: bool,
}

/// Somewhere to execute commands on somebody's behalf. Needs no runtime of any kind; works in each. The future that
/// `execute` returns kills the command and all that it started when it is dropped.
///
/// Types of one's own implement it with `#[async_trait]` and an `async fn execute`.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Executes a command and waits for its end.
    ///
    /// # Errors
    /// It was refused, could not be started, or was ended by a limit. An exit code that is not 0 is no error.
    async fn execute(&self, command: &str, args: &[&str]) -> Result<ExecutionResult, Refusal>;

    /// Whether a command may be executed, with some arguments at least. An answer is at most 100 ms old, and a permission no
    /// older than the last change of the files that decide it; `execute` decides anew.
    fn is_allowed(&self, command: &str) -> bool;

    /// Whether a path is none of those that are blocked, by any of its names. Relative to the workspace. At most 100 ms
    /// old, a permission no older than the path's own last change, and advice: what holds is held by the kernel.
    fn path_allowed(&self, path: &str) -> bool;
}
