//! The guard: executes commands on a user's behalf, limited to an allowlist, without blocked paths, with a time limit
//! and an output cap.
//!
//! ```text
//! execute(command, args)
//!   └─ decide: enabled? ─ the file that the name leads to ─ a rule for that file ─ its arguments ─▶ recorded
//!        └─ one Policy: the workspace writable, blocked paths denied ─ Engine, limited to
//!           the command, its interpreters and its helpers ─ run ─▶ ExecutionResult
//! ```
//!
//! ```
//! use cofferdam_guard::{Guard, GuardConfig, GuardError};
//!
//! let workspace = tempfile::tempdir()?;
//! let config: GuardConfig = serde_json::from_str(r#"{"allowed_commands": ["ls"]}"#)?;
//! match Guard::new(config, workspace.path()) {
//!     Ok(guard) => {
//!         assert!(guard.check("ls", &["-l"]).is_ok());
//!         assert!(guard.check("rm", &["-r", "."]).is_err());
//!     }
//!     // Commands would be root's.
//!     Err(refused) => assert!(matches!(refused, GuardError::Root), "{refused}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Never a shell: a command is a program and its arguments. A rule allows a file, not the text of a name; the kernel
//! limits what the command starts to its helpers, and what it opens to paths that are not blocked. There is no sandbox
//! but the engine's own. docs/guard.md says what an allowlist cannot enforce. Parses no configuration.
#![forbid(unsafe_code)]

mod argument_patterns;
mod blocked_paths;
mod builder;
mod capped_output;
pub mod compat;
mod config;
mod config_serde;
mod decide;
mod decision_cache;
mod error;
mod executable_lookup;
mod execute;
mod helper_programs;
#[cfg(test)]
mod kernel_tests;
mod recorder;
mod result;
mod sandbox;
mod sandbox_policy;

pub use builder::GuardBuilder;
pub use config::{GuardConfig, Mode, Rule};
pub use error::{GuardError, Refusal, SandboxError};
pub use execute::Guard;
pub use helper_programs::BUILT_IN;
pub use recorder::{GuardEvent, Recorder};
pub use result::ExecutionResult;
pub use sandbox::Sandbox;
