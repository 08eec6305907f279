//! Confines a subprocess: one function, tokio's `Command`, held by the kernel on Linux and macOS.
//!
//! ```text
//! sandboxed_command ─┐
//! protected_command ─┼─▶ Confined ─ places (resolved, checked) ─▶ Spec ─┬─ linux ────▶ Landlock + seccomp, after fork
//! your own rules ────┘                                                 └─ seatbelt ─▶ sandbox-exec -p …
//!                                     Enforcement ◀─ what holds, rule by rule ─┘
//! ```
//!
//! In the modes `sandbox` and `rx` a command and all that it starts write to the data directory, `/tmp`, `~/.claude` and
//! harmless devices, and nowhere else: not by truncating, renaming, linking, changing modes or owners, making devices, or
//! by asking somebody else through a Unix socket or a signal. What a kernel cannot hold is listed in the [`Enforcement`],
//! and refused unless the caller accepts it.
//!
//! What this is not: a jail. The command sees the host's files, processes and network, shares its clock and its limits, and
//! what it writes to the data directory is there for others to trip over. Whoever needs more than writes held uses
//! `cofferdam run`, or the engine.
//!
//! This crate has no unsafe code: what runs after fork is in `cofferdam-confine`.
#![forbid(unsafe_code)]

mod blocked;
mod confined;
mod enforcement;
mod error;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod linux;
mod mode;
mod places;
mod refused;
mod seatbelt;
mod spec;
#[cfg(test)]
mod tests;

#[cfg(test)]
#[path = "../../confine/tests/seatbelt_language/mod.rs"]
mod language;

use std::path::Path;

use tokio::process::Command;

pub use blocked::{is_read_blocked, is_write_blocked};
pub use confined::Confined;
pub use enforcement::{Applied, Enforcement, Rule, Strength};
pub use error::{ConfineError, Reason, SandboxError};
pub use mode::{SandboxConfig, SandboxMode};
pub use spec::{Fallback, Network};

/// A command whose writes are held to `data_dir` (its whole tree), `/tmp`, `~/.claude` and harmless devices, unless the
/// mode is `rwx`. Reading and executing is possible everywhere.
///
/// It never fails, and never gives less than it says: where something cannot be prepared or held, spawning the command
/// fails with the closest errno and the reason on the command's standard error. [`ConfineError::of_spawn`] gives the error
/// its words; `tracing` has them at once, as it has that `~/.claude` does not exist and so is not granted.
pub fn sandboxed_command(program: &str, mode: SandboxMode, data_dir: &Path) -> Command {
    match Confined::new(program).mode(mode).data_dir(data_dir).command() {
        Ok((command, _)) => command,
        Err(error) => refused::command(program, error),
    }
}

/// A command that writes nowhere in the system's directories, and neither reads nor writes the data directory's own `data`
/// and `config.toml`; everything else is the caller's own rights. The kernel's side of [`is_write_blocked`] and
/// [`is_read_blocked`].
///
/// On Linux a grant has no exceptions below it, so what lies beside these paths is granted entry by entry, as it is now:
/// in the directories above them (`/`, a home that holds the data directory, the data directory itself) nothing can be
/// made, renamed or listed. Work in a directory below, such as `workspace`. Fails as [`sandboxed_command`] does.
pub fn protected_command(program: &str, data_dir: &Path) -> Command {
    match Confined::new(program).data_dir(data_dir).protecting().command() {
        Ok((command, _)) => command,
        Err(error) => refused::command(program, error),
    }
}
