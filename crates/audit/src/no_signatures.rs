//! What stands in the place of signed checkpoints in a program that is built without signatures: no key can be made or
//! read, and a checkpoint signed by another program is not trusted.

use std::path::Path;

use super::error::AuditError;
use super::record::{AuditEntry, AuditRecord, Link};

/// The kind of a checkpoint's record.
pub(crate) const KIND: &str = "checkpoint";
const ABSENT: &str = "this program is built without signatures";

/// A key that signs, of which there is none.
#[derive(Debug, Clone)]
pub enum CheckpointKey {}

/// The public key, of which there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicKey {}

impl CheckpointKey {
    /// # Errors
    /// Always: signatures are not built in.
    pub fn make(_: &Path) -> Result<CheckpointKey, AuditError> {
        Err(AuditError::Key { what: ABSENT.into() })
    }

    /// # Errors
    /// Always: signatures are not built in.
    pub fn read(_: &Path) -> Result<CheckpointKey, AuditError> {
        Err(AuditError::Key { what: ABSENT.into() })
    }

    /// Never called: there is no key to call it on.
    pub fn public(&self) -> PublicKey {
        match *self {}
    }

    /// Never called.
    pub(super) fn sign(&self, _end: &Link, _trail: Option<&str>) -> AuditEntry {
        match *self {}
    }
}

impl PublicKey {
    /// Never called.
    pub fn text(&self) -> String {
        match *self {}
    }

    /// # Errors
    /// Always: signatures are not built in.
    pub fn parse(_: &str) -> Result<PublicKey, AuditError> {
        Err(AuditError::Key { what: ABSENT.into() })
    }
}

/// # Errors
/// Always: a signature cannot be checked here.
pub(crate) fn check(_: &AuditRecord, _before: &Link, _trail: Option<&str>) -> Result<PublicKey, &'static str> {
    Err(ABSENT)
}
