//! What reaches the caller's terminal and streams: results, messages, the program's own output, and the terminal's modes.
//!
//! Knows nothing of policies, runs or subcommands.

pub(crate) mod excerpt;
pub(crate) mod progress;
pub(crate) mod stderr;
pub(crate) mod stdout;
pub(crate) mod stream;
pub(crate) mod terminal;
mod terminal_queries;
pub(crate) mod text;
