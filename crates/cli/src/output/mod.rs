//! What reaches the caller's terminal and streams: results, messages, the program's own output, and the terminal's modes.
//!
//! Knows nothing of policies, runs or subcommands.

pub mod progress;
pub mod stderr;
pub mod stdout;
pub mod stream;
pub mod terminal;
mod terminal_queries;
pub mod text;
