//! The interface by which commands are executed.

use async_trait::async_trait;

use super::error::Refusal;
use super::result::ExecutionResult;

/// Executes commands on a user's behalf. Works with any async runtime, and without one. Dropping the future that
/// `execute` returns kills the command and everything that it started.
///
/// Implement it with `#[async_trait]` and an `async fn execute`.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Executes a command and waits for its end.
    ///
    /// # Errors
    /// It was refused, could not be started, or was ended by a limit. An exit code that is not 0 is no error.
    async fn execute(&self, command: &str, args: &[&str]) -> Result<ExecutionResult, Refusal>;

    /// Whether a command may be executed, with some arguments at least. An answer is at most 100 ms old, and a
    /// permission no older than the last change of the files that decide it; `execute` decides anew.
    fn is_allowed(&self, command: &str) -> bool;

    /// Whether a path is none of those that are blocked, by any of its names. Relative to the workspace. At most 100 ms
    /// old, a permission no older than the path's own last change, and advice: what holds is held by the kernel.
    fn path_allowed(&self, path: &str) -> bool;
}
