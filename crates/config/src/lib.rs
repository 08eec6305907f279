//! Parses configuration files into the types of the engine: the guard's table, environments, and signed skills. It is small and
//! does not contain the evaluator, so a program that uses the guard can depend on it and on the engine alone.
//!
//! Checks the form. The engine decides what the values mean, and whether this host can enforce them. Unknown keys are errors with
//! their line, so that a misspelt rule is never ignored.
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
pub mod complaints;
pub mod environments;
mod guard;
pub mod json;
pub mod project_directory;
pub mod serve;
pub mod server_control;
#[cfg(feature = "skills")]
pub mod skills;

pub use guard::{ConfigError, guard, guard_from_file};
