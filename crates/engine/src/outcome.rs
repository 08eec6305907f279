//! What comes back: one `Outcome` per run, as data. Nothing here decides or does anything.

use std::collections::BTreeMap;

pub use cofferdam_egress::event::{NetworkEvent, NetworkKind, NetworkReason, NetworkVia};
use cofferdam_policy::Field;
use serde::Serialize;

use crate::failure::Failure;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The program exited by itself.
    Exited,
    /// A signal ended it that was not ours.
    Signalled,
    /// The wall limit ended it.
    TimedOut,
    /// Another limit ended it; `limit` says which.
    LimitExceeded,
    /// A violation ended it, under `on_violation: terminate`.
    Violation,
    /// Nothing ran; `error` says why.
    SetupFailed,
}

/// How strongly one field was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// Not held.
    None,
    /// Held against some ways around it; the reason says which are open.
    Partial,
    /// Held.
    Full,
}

/// What was applied for one field, and by what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedField {
    /// How strongly.
    pub strength: Strength,
    /// The mechanism, or what is missing.
    pub reason: String,
}

impl AppliedField {
    /// Enforced in full, by this.
    pub fn full(reason: impl Into<String>) -> AppliedField {
        AppliedField { strength: Strength::Full, reason: reason.into() }
    }

    /// Enforced in part, and why not in full.
    pub fn partial(reason: impl Into<String>) -> AppliedField {
        AppliedField { strength: Strength::Partial, reason: reason.into() }
    }

    /// Not enforced, and why.
    pub fn none(reason: impl Into<String>) -> AppliedField {
        AppliedField { strength: Strength::None, reason: reason.into() }
    }
}

/// What was in fact applied, for each field of the policy.
pub type AppliedEnforcement = BTreeMap<Field, AppliedField>;

/// How a denial is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Evidence {
    /// The kernel decided on values that the program cannot change meanwhile (registers, counters).
    Kernel,
    /// The argument was read out of the program's memory, which it could have changed meanwhile.
    ArgumentAsRead,
    /// Concluded from other facts.
    Inferred,
    /// The egress gateway refused what had arrived at it, of which it has a copy of its own.
    Gateway,
}

/// One denial: what was tried, on what, and which line of the policy refused it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// System call name or limit name.
    pub operation: String,
    /// Path, address or argument it was tried on, control characters escaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// JSON path of the responsible policy field.
    pub field: String,
    /// How it is known.
    pub evidence: Evidence,
    /// Process id inside the sandbox's host view, 0 when unknown.
    pub pid: u32,
    /// How many times the same thing was seen.
    pub count: u64,
    /// It counts what was done to several objects, for which there was no room; so it names none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aggregated: bool,
}

/// What went through the egress gateway, and what it refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NetworkSummary {
    /// Connections that went out.
    pub connections: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Bytes that the program sent.
    pub bytes_up: u64,
    /// Bytes that came back.
    pub bytes_down: u64,
    /// What happened, in order: each connection or request that went out, beyond a number of them for each destination;
    /// and each refusal once, with its count.
    pub events: Vec<NetworkEvent>,
    /// How many of what is counted among the events are on an aggregate, without their destination.
    pub lost: u64,
}

/// What a copy-on-write mount changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// `A` added, `M` modified, `D` deleted.
    pub kind: char,
    /// Absolute path inside the sandbox.
    pub path: String,
}

/// The whole answer of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// How it ended.
    pub outcome: Ending,
    /// `exited` with code 0.
    pub success: bool,
    /// The program's exit code, when it exited.
    pub exit_code: Option<i32>,
    /// The signal that ended it, when one did.
    pub signal: Option<i32>,
    /// Captured standard output, lossy UTF-8; empty when it was streamed.
    pub stdout: String,
    /// Captured standard error, lossy UTF-8; empty when it was streamed.
    pub stderr: String,
    /// Whether a stream was longer than `limits.output_bytes`.
    pub truncated: Truncated,
    /// From the start of the program to its end, milliseconds.
    pub execution_time_ms: f64,
    /// From the call to the start of the program, milliseconds.
    pub setup_time_ms: f64,
    /// Peak memory of the whole tree, bytes; null when it was not measured.
    pub memory_used_bytes: Option<u64>,
    /// CPU time of the whole tree, seconds.
    pub cpu_time_seconds: Option<f64>,
    /// Peak number of processes and threads; null when it was not measured.
    pub pid_count: Option<u64>,
    /// The limit that was exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Field>,
    /// What was refused.
    pub violations: Vec<Violation>,
    /// Whether `violations` holds everything that docs/evidence.md calls reported: needs `audit.trace`.
    pub violations_complete: bool,
    /// Connections and refusals, where the network's mode is `allowlist`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSummary>,
    /// Files changed in copy-on-write mounts.
    pub changes: Vec<FileChange>,
    /// How many more there were, which are not listed.
    pub changes_omitted: u64,
    /// What was applied, per field.
    pub enforcement: AppliedEnforcement,
    /// The backend that ran it.
    pub backend: String,
    /// Why that backend.
    pub backend_reason: String,
    /// Unique to this run.
    pub run_id: String,
    /// Files collected.
    pub artifacts: Vec<String>,
    /// Why nothing ran, or what went wrong afterwards.
    pub error: Option<Failure>,
}

impl Outcome {
    /// What is to be said when nothing ran and nothing is known: the start of every other outcome.
    pub fn unstarted(error: Option<Failure>) -> Outcome {
        Outcome {
            outcome: Ending::SetupFailed,
            success: false,
            exit_code: None,
            signal: None,
            stdout: String::new(),
            stderr: String::new(),
            truncated: Truncated::default(),
            execution_time_ms: 0.0,
            setup_time_ms: 0.0,
            memory_used_bytes: None,
            cpu_time_seconds: None,
            pid_count: None,
            limit: None,
            violations: Vec::new(),
            violations_complete: true, // what never ran was refused nothing
            network: None,
            changes: Vec::new(),
            changes_omitted: 0,
            enforcement: AppliedEnforcement::new(),
            backend: String::new(),
            backend_reason: String::new(),
            run_id: cofferdam_audit::random::uuid(),
            artifacts: Vec::new(),
            error,
        }
    }

    /// The same of a run that came to nothing, begun at this time.
    pub(crate) fn refused(self, failure: Failure, begun: std::time::Instant) -> Outcome {
        Outcome {
            outcome: Ending::SetupFailed,
            error: Some(failure),
            violations_complete: true, // nothing ran
            setup_time_ms: begun.elapsed().as_secs_f64() * 1e3,
            ..self
        }
    }
}

/// Per stream: was it cut?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Truncated {
    /// Standard output was cut.
    pub stdout: bool,
    /// Standard error was cut.
    pub stderr: bool,
}
