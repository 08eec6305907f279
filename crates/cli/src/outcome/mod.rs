//! What the command says about a run: its exit code, the notes about refusals and limits, and explanations of failures.
//!
//! ```text
//! Failure ─▶ explain, skill_hints     Outcome ─▶ notes, network_notes ─▶ run_report ◀─ presentation (exit code)
//! Refusal ─▶ refusal_report ───────────────────────────────────────────────┘
//! ```
//!
//! Decides nothing about the sandbox, and runs nothing.

pub mod explain;
mod network_notes;
mod notes;
pub mod presentation;
pub mod refusal_report;
pub mod run_report;
mod runner_result;
pub mod skill_hints;
