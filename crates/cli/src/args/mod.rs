//! The arguments that subcommands have in common: their definition for clap, the table of policy options with the values
//! that they take, and hints for mistyped input.
//!
//! ```text
//! values ◀─ table (one row for each option) ─▶ draft (the policy under construction)
//!             ▲
//!          sandbox (arguments of `run` and `eval`)      config, profile (options of several subcommands)
//! ```
//!
//! Parsing has no side effects: it starts nothing and reads no policy.

pub mod agents;
pub mod config;
pub(crate) mod draft;
pub mod help;
pub mod option;
pub mod presets;
pub mod profile;
pub mod sandbox;
pub mod table;
pub(crate) mod typing_mistakes;
pub mod values;
