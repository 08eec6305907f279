//! Evaluates profiles: the only crate that knows Nickel, and always a process of its own.
//!
//! ```text
//! request ─ limits ─ sources (read, capped, scanned) ─ evaluator (Nickel) ─ outputs ─▶ answers
//! ```
//!
//! Nickel aborts on exhausted memory and deep nesting and cannot be interrupted: whoever wants an evaluation starts
//! `cofferdam-compile` and speaks `cofferdam_profiles::protocol` with it. Imports of Nickel are static, so `sources`
//! finds and reads every file before Nickel sees the first; after that no file can be opened. No unsafe code.
#![forbid(unsafe_code)]

mod evaluator;
mod library;
mod places;
mod scan;
mod serve;
mod sources;

pub use evaluator::Evaluator;
pub use library::LIBRARY;
pub use serve::serve;
