//! Profiles from the outside: what a caller needs to turn a profile into a policy without evaluating it itself.
//!
//! ```text
//! profile ─ Compiler (cache? else cofferdam-compile, in a jail) ─▶ outputs ─ Store (~/.omni/sandbox/profiles/ID/)
//! ```
//!
//! Never evaluates Nickel and never depends on it: evaluation reads files, may run for ever, and aborts its process on
//! deep nesting and exhausted memory. Small, so that the command and the Python module can hold it.
#![forbid(unsafe_code)]

pub mod cache;
#[cfg(feature = "compiler")]
pub mod compiler;
#[cfg(feature = "compiler")]
pub mod helper;
pub mod identity;
pub mod overrides;
pub mod private;
pub mod protocol;
mod seal;
pub mod store;
#[cfg(feature = "compiler")]
mod walls;

#[cfg(feature = "compiler")]
pub use compiler::{Ask, CompileError, Compiled, Compiler};
pub use store::{Id, Store, StoreError, Stored};
