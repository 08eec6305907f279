//! Skills: directories of files under a signed manifest.
//!
//! ```text
//! DIR ─ intake (manifest, signature, hashes, scan) ─▶ Taken ─ registry, store ─▶ what may run, and its files
//! manifest + operator ─ policy ─▶ Policy ─ exchange (files and input of one run) ─▶ Policy
//! ```
//!
//! A skill that is not signed, incomplete, or has unlisted files is refused with all reasons. Runs nothing.

pub mod error;
pub mod exchange;
pub mod intake;
mod json;
pub mod manifest;
pub mod operator;
pub mod policy;
#[cfg(test)]
mod policy_tests;
pub mod registry;
pub(crate) mod scan;
pub mod signature;
pub mod store;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;

pub use error::{FaultCode, SkillError, SkillFault};
pub use manifest::Manifest;
pub use operator::OperatorConfig;
pub use registry::{Registry, SkillSpec, VersionState};

/// Writes a manifest atomically, and readable for other users, so that they can check it.
///
/// # Errors
/// It cannot be written; the previous file is unchanged.
pub fn put_manifest(directory: &std::os::fd::OwnedFd, manifest: &Manifest) -> std::io::Result<()> {
    use cofferdam_profiles::private;
    use std::os::unix::fs::PermissionsExt as _;
    private::replace(directory, manifest::MANIFEST_FILE, manifest.encode().as_bytes(), true)?;
    let file = private::open_file(directory, manifest::MANIFEST_FILE)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}
