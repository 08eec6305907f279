//! Skills: directories of files under a signed manifest.
//!
//! ```text
//! manifest.json ─ manifest ─▶ Manifest ─ signature ─▶ its publisher's
//! ```
//!
//! What is not signed, not whole or not listed is refused, and every reason is told. Never runs anything.

mod json;
pub mod manifest;
pub mod signature;
#[cfg(test)]
mod tests;

pub use manifest::Manifest;
