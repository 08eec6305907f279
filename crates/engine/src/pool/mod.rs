//! Sandboxes created before their runs: staged ones, which wait for a program, and started ones, whose program waits for input.

pub mod early;
pub(crate) mod ready;
