//! What people write, read into what the engine takes: the guard's table, environments, and signed skills. Small, without
//! the evaluator: a program that uses the guard depends on this and on the engine.
//!
//! Reads and checks the form; what the values come to, and whether this host can hold them, is the engine's to say. Every
//! key that is not known is an error with its line: a misspelt rule never goes unnoticed.
//!
//! ```no_run
//! # async fn tool() -> Result<(), Box<dyn std::error::Error>> {
//! use cofferdam_guard::{Guard, Sandbox, SandboxError};
//!
//! let config = cofferdam_config::guard_from_file("config.toml")?;
//! let guard = Guard::new(config, "/home/you/workspace")?;
//! let result = guard.execute("git", &["status"]).await.map_err(SandboxError::from)?;
//! println!("{} {} {} ms", result.exit_code, result.stdout, result.duration_ms);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod clients;
pub mod environments;
mod guard;
pub mod running;
pub mod serve;
#[cfg(feature = "skills")]
pub mod skills;

pub use guard::{ConfigError, guard, guard_from_file};
