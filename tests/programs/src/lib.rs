//! Real programs inside the sandbox: which of them work at which system call level, and why not where they do not.
//!
//! ```text
//! table (program × level ─▶ expectation) ─┬─▶ trial: host ─ command ─ verdict
//!                                         └─▶ page: docs/programs.md
//! ```
//!
//! Each row is tried at every level, as root and as an unprivileged user, by the command as a user types it. Nothing
//! here is part of the product, and nothing here decides what is allowed.

pub mod host;
pub mod page;
pub mod program;
pub mod table;
pub mod terminal;
pub mod trial;
