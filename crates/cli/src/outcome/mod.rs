//! What the command says about a run: its exit code, the notes about refusals and limits, and explanations of failures.
//!
//! ```text
//! Failure ─▶ explain, skill_hints     Outcome ─▶ notes, network_notes ─▶ run_report ◀─ presentation (exit code)
//! Refusal ─▶ refusal_report ───────────────────────────────────────────────┘
//! ```
//!
//! Decides nothing about the sandbox, and runs nothing.

mod complaint_notes;
pub(crate) mod explain;
mod host_paths;
mod network_notes;
mod notes;
pub(crate) mod presentation;
pub(crate) mod refusal_report;
pub(crate) mod run_report;
mod runner_result;
pub(crate) mod skill_hints;
