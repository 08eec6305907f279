//! Confines a subprocess: one function that returns tokio's `Command`, confined by the kernel on Linux and macOS.
//!
//! ```text
//! sandboxed_command ─┐
//! protected_command ─┼─▶ Confined ─ paths (resolved, checked) ─▶ Spec ─┬─ linux ────▶ Landlock + seccomp, after fork
//! your own rules ────┘                                                └─ seatbelt ─▶ sandbox-exec -p …
//!                                      Enforcement ◀─ rule by rule ───────┘
//! ```
//!
//! In the modes `sandbox` and `rx` a command and all that it starts write to the data directory, `/tmp`, `~/.claude`
//! and harmless devices, and nowhere else: not by truncating, renaming, linking, changing modes or owners, making
//! devices, or through another process by a Unix socket or a signal. What a kernel cannot enforce is listed in the
//! [`CommandEnforcement`], and refused unless the caller accepts it.
//!
//! This is not a jail. The command sees the host's files, processes and network, shares its limits, and other programs
//! may trust what it writes to the data directory. To isolate more than writes, use `cofferdam run` or the engine.
//!
//! This crate has no unsafe code: what runs after fork is in `cofferdam-confine`.
#![forbid(unsafe_code)]

mod blocked_paths;
mod confined;
mod confinement_spec;
mod enforcement;
mod error;
#[cfg(target_os = "linux")]
mod kernel_support;
#[cfg(target_os = "linux")]
mod linux;
mod mode;
mod path_resolution;
mod refused_commands;
#[cfg(target_os = "linux")]
mod ruleset_cache;
mod seatbelt;
#[cfg(target_os = "linux")]
mod seccomp_filter;
#[cfg(test)]
mod tests;

#[cfg(test)]
#[path = "../../confine/tests/seatbelt_language/mod.rs"]
mod language;

use std::path::Path;

use tokio::process::Command;

pub use blocked_paths::{is_read_blocked, is_write_blocked};
pub use confined::Confined;
pub use confinement_spec::{CommandNetwork, Fallback};
pub use enforcement::{AppliedRule, CommandEnforcement, ConfinementRule, RuleStrength};
pub use error::{ConfineError, ConfineReason, SandboxError};
pub use mode::{SandboxConfig, SandboxMode};

/// A command that can write only to `data_dir` (its whole tree), `/tmp`, `~/.claude` and harmless devices, unless the
/// mode is `rwx`. It can read and execute everything.
///
/// It never fails, and never enforces less than it says: if something cannot be prepared or enforced, spawning the
/// command fails with the closest errno, and the reason is printed on the command's standard error.
/// [`ConfineError::of_spawn`] returns the full error. `tracing` has it at once, and also reports if `~/.claude` does
/// not exist and so is not granted.
pub fn sandboxed_command(program: &str, mode: SandboxMode, data_dir: &Path) -> Command {
    match Confined::new(program).mode(mode).data_dir(data_dir).command() {
        Ok((command, _)) => command,
        Err(error) => refused_commands::command(program, error),
    }
}

/// A command that cannot write to the system's directories, and can neither read nor write the data directory's own
/// `data` and `config.toml`; otherwise it has the caller's rights. The kernel enforces here what [`is_write_blocked`]
/// and [`is_read_blocked`] say.
///
/// Landlock has no exceptions below a grant, so on Linux the paths beside these are granted entry by entry, as they are
/// now: in the directories above them (`/`, a home with the data directory, the data directory itself) nothing can be
/// created, renamed or listed. Work in a directory below, such as `workspace`. Fails as [`sandboxed_command`] does.
pub fn protected_command(program: &str, data_dir: &Path) -> Command {
    match Confined::new(program).data_dir(data_dir).protecting().command() {
        Ok((command, _)) => command,
        Err(error) => refused_commands::command(program, error),
    }
}
