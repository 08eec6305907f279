//! Why a command cannot be confined: as a typed error, and as the single string that some callers need.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::enforcement::{AppliedRule, RuleStrength};

/// A command that was not confined, and so did not start.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot confine `{program}`: {reason}")]
#[non_exhaustive]
pub struct ConfineError {
    /// The command.
    pub program: String,
    /// Why.
    #[source]
    pub reason: ConfineReason,
}

/// Why a command cannot be confined.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineReason {
    /// No data directory was named.
    #[error("writes: no data directory was named\nhint: name one with data_dir(), or ask for SandboxMode::Rwx")]
    NoDataDirectory,
    /// A path that a rule names cannot be used.
    #[error("{rule}: {path}: {fault}\nhint: {hint}")]
    Path {
        /// What names it: `data directory`, `write`, `read`, `deny_read`, …
        rule: &'static str,
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
        /// What would be accepted.
        hint: &'static str,
    },
    /// The program is invalid.
    #[error("program: {fault}\nhint: name an executable file, or a command that PATH leads to")]
    Program {
        /// What is wrong with it.
        fault: String,
    },
    /// This system cannot enforce some rules, and the caller did not accept that.
    #[error("{}\nhint: accept what cannot be held with fallback(Fallback::Warn), or use Linux 6.12 or later with Landlock \
             among its security modules (lsm=landlock,... on the kernel's command line)", list(.0))]
    NotHeld(Vec<AppliedRule>),
    /// `sandbox-exec` is missing.
    #[error(
        "writes held not at all: {} is not there\nhint: it is part of macOS: restore it, or accept that nothing is confined with \
         fallback(Fallback::Warn)", .0.display()
    )]
    NoSandboxExec(PathBuf),
    /// This system has no supported mechanism.
    #[error(
        "no sandbox of this system's is known here\nhint: run it on Linux or macOS, or accept that with fallback(Fallback::Warn)"
    )]
    Unsupported,
    /// Something could not be prepared.
    #[error("{step}: {source}")]
    Prepare {
        /// What.
        step: String,
        /// Why.
        #[source]
        source: Arc<io::Error>,
    },
    /// A step after fork failed.
    #[error("{step} failed between fork and exec: {source}")]
    Child {
        /// The system call.
        step: &'static str,
        /// Why.
        #[source]
        source: Arc<io::Error>,
    },
    /// The program itself could not be started, for a reason that has nothing to do with the confinement.
    #[error("spawn: {0}")]
    Spawn(#[source] Arc<io::Error>),
}

impl ConfineReason {
    /// The closest errno, which is all that a child can return before exec.
    pub(crate) fn errno(&self) -> i32 {
        const EIO: i32 = 5;
        const EINVAL: i32 = 22;
        const EOPNOTSUPP: i32 = 95;
        match self {
            ConfineReason::NoDataDirectory | ConfineReason::Path { .. } | ConfineReason::Program { .. } => EINVAL,
            ConfineReason::NotHeld(_) | ConfineReason::NoSandboxExec(_) | ConfineReason::Unsupported => EOPNOTSUPP,
            ConfineReason::Prepare { source, .. }
            | ConfineReason::Child { source, .. }
            | ConfineReason::Spawn(source) => source.raw_os_error().unwrap_or(EIO),
        }
    }
}

/// Lists each reason once, with the rules to which it applies.
fn list(missing: &[AppliedRule]) -> String {
    let alike = |a: &AppliedRule, b: &AppliedRule| a.strength == b.strength && a.reason == b.reason;
    let mut said: Vec<String> = Vec::new();
    for (nth, first) in missing.iter().enumerate() {
        if missing[..nth].iter().any(|before| alike(before, first)) {
            continue;
        }
        let others: Vec<String> =
            missing[nth + 1..].iter().filter(|a| alike(a, first)).map(|a| a.rule.to_string()).collect();
        let others = if others.is_empty() { String::new() } else { format!(" (the same for {})", others.join(", ")) };
        said.push(format!("{} held {}: {}{others}", first.rule, adverb(first), first.reason));
    }
    said.join("; ")
}

fn adverb(applied: &AppliedRule) -> &'static str {
    if applied.strength == RuleStrength::None { "not at all" } else { "only in part" }
}

impl ConfineError {
    pub(crate) fn new(program: &std::ffi::OsStr, reason: ConfineReason) -> ConfineError {
        ConfineError { program: program.to_string_lossy().into_owned(), reason }
    }
}

/// The error as a single string: command, rule and reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// All of it.
    #[error("sandbox error: {0}")]
    Sandbox(String),
}

impl From<ConfineError> for SandboxError {
    fn from(error: ConfineError) -> SandboxError {
        SandboxError::Sandbox(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforcement::ConfinementRule;

    #[test]
    fn a_reason_is_listed_once_with_every_rule() {
        let applied = |rule, strength, reason: &str| AppliedRule { rule, strength, reason: reason.to_owned() };
        let missing = vec![
            applied(ConfinementRule::Writes, RuleStrength::None, "no Landlock"),
            applied(ConfinementRule::Metadata, RuleStrength::Partial, "no Landlock"),
            applied(ConfinementRule::Truncation, RuleStrength::None, "no Landlock"),
            applied(ConfinementRule::Signals, RuleStrength::None, "too old"),
        ];
        let said = ConfineReason::NotHeld(missing).to_string();
        assert!(
            said.starts_with(
                "writes held not at all: no Landlock (the same for truncation); metadata held only in part: no Landlock; \
                 signals held not at all: too old\nhint: "
            ),
            "{said}"
        );
    }
}
