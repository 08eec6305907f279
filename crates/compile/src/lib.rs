//! Evaluates profiles: the only crate that uses Nickel, always in a process of its own.
//!
//! ```text
//! request ─ limits ─ sources (read, capped, scanned) ─ evaluator (Nickel) ─ outputs ─▶ answers
//! ```
//!
//! Nickel aborts on exhausted memory and deep nesting and cannot be interrupted, so callers start `cofferdam-compile` and use
//! `cofferdam_profiles::protocol`. Imports in Nickel are static, so `sources` finds and reads all files before Nickel sees the
//! first; after that no file can be opened. No unsafe code.
#![forbid(unsafe_code)]

mod evaluator;
mod field_locations;
mod imports_and_depth;
mod library;
mod serve;
mod sources;

pub use evaluator::Evaluator;
pub use library::LIBRARY;
pub use serve::serve;
