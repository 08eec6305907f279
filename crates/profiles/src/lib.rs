//! Compiles profiles to policies by an evaluator in another process, caches the results, and stores exported profiles.
//!
//! ```text
//! profile ─ Compiler (cache? else cofferdam-compile, in a jail) ─▶ outputs ─ Store (~/.omni/sandbox/profiles/ID/)
//! ```
//!
//! Never evaluates Nickel and does not depend on it: evaluation reads files, may not terminate, and aborts its process on deep
//! nesting and exhausted memory. Small, so that the command and the Python module can link it.
#![forbid(unsafe_code)]

pub mod cache;
#[cfg(feature = "compiler")]
mod compiler;
#[cfg(feature = "compiler")]
mod error;
#[cfg(feature = "compiler")]
pub mod helper;
pub mod identity;
#[cfg(feature = "compiler")]
mod jail;
pub mod overrides;
pub mod private;
pub mod protocol;
mod seal;
pub mod store;

#[cfg(feature = "compiler")]
pub use compiler::{CompileRequest, Compiled, Compiler};
#[cfg(feature = "compiler")]
pub use error::CompileError;
pub use store::{Id, ProfileStore, StoreError, Stored};
