//! Skills: directories of files under a signed manifest.
//!
//! ```text
//! DIR ─ intake (manifest, signature, hashes, scan) ─▶ Taken ─ registry, store ─▶ what may run, and its files
//! manifest + operator ─ policy ─▶ Policy
//! ```
//!
//! What is not signed, not whole or not listed is refused, and every reason is told. Never runs anything.

pub mod error;
pub mod intake;
mod json;
pub mod manifest;
pub mod operator;
pub mod policy;
#[cfg(test)]
mod policy_tests;
pub mod registry;
pub mod scan;
pub mod signature;
pub mod store;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;

pub use error::{Code, Fault, SkillError};
pub use manifest::Manifest;
pub use operator::SandboxConfig;
pub use registry::{Registry, Spec, State};

/// Puts a whole file in its place, or nothing: as [`cofferdam_profiles::private::replace`], synchronised.
///
/// # Errors
/// It cannot be written; what was there before is untouched.
pub fn replace(directory: &std::os::fd::OwnedFd, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    cofferdam_profiles::private::replace(directory, name, bytes, true)
}
