//! The `cofferdam` command as a library: its command line as data, and the one entry that `main` calls.
//!
//! ```text
//! entry ─▶ commands ─▶ execute (run, signals) ─▶ outcome (notes, explanations, exit code)
//!             │           │                         │
//!             └───────────┴─▶ call (arguments → policy) ─▶ args (clap, options) ─▶ output (streams, terminal)
//! ```
//!
//! No unsafe code.
#![forbid(unsafe_code)]

pub mod args;
pub mod call;
pub mod caller;
pub mod commands;
mod entry;
mod execute;
mod failure;
mod outcome;
mod output;
mod refusal;

pub use crate::commands::cli_command;
pub use crate::entry::entry;
pub use crate::refusal::CliRefusal;
pub use cofferdam_config::environments::discover;
