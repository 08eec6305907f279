//! Configuration in TOML, read into what the engine takes. Small, without the evaluator: a program that uses the guard
//! depends on this and on the engine.
//!
//! Reads and checks the form; what the values come to, and whether this host can hold them, is the engine's to say. Every
//! key that is not known is an error with its line: a misspelt rule never goes unnoticed.
#![forbid(unsafe_code)]

mod guard;

pub use guard::{ConfigError, guard, guard_from_file};
