//! Why a skill is not accepted or not run: named faults, all reported at once in a fixed order.
//!
//! ```text
//! schema_validation_failed, then signature_verification_failed, file_hash_mismatch, static_scan_failed, duplicate_skill
//! ```
//!
//! If the manifest itself is invalid, no later fault can be determined. Never prints.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use cofferdam_policy::PolicyErrors;
use serde::Serialize;

/// The name of a fault, in the order in which faults are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultCode {
    /// The manifest does not conform to the schema.
    SchemaValidationFailed,
    /// It is not signed by its publisher.
    SignatureVerificationFailed,
    /// The directory has other content than the manifest lists.
    FileHashMismatch,
    /// A file has content that skills must not have.
    StaticScanFailed,
    /// The same version is registered, or the name belongs to another publisher.
    DuplicateSkill,
    /// The version is revoked.
    Revoked,
    /// There is no such skill.
    NotRegistered,
}

impl FaultCode {
    /// The name as text.
    pub fn name(self) -> &'static str {
        match self {
            FaultCode::SchemaValidationFailed => "schema_validation_failed",
            FaultCode::SignatureVerificationFailed => "signature_verification_failed",
            FaultCode::FileHashMismatch => "file_hash_mismatch",
            FaultCode::StaticScanFailed => "static_scan_failed",
            FaultCode::DuplicateSkill => "duplicate_skill",
            FaultCode::Revoked => "revoked",
            FaultCode::NotRegistered => "not_registered",
        }
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SkillFault {
    /// Its name.
    pub code: FaultCode,
    /// The file with the fault, relative to the skill's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
    /// A hint, if this fault needs another one than others of its code.
    #[serde(skip)]
    pub hint: Option<&'static str>,
}

impl SkillFault {
    pub(super) fn new(code: FaultCode, message: impl Into<String>) -> SkillFault {
        SkillFault { code, file: None, line: None, message: message.into(), hint: None }
    }

    pub(super) fn of_file(code: FaultCode, file: &str, message: impl Into<String>) -> SkillFault {
        SkillFault { file: Some(file.to_owned()), ..SkillFault::new(code, message) }
    }
}

impl fmt::Display for SkillFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.name())?;
        if let Some(file) = &self.file {
            write!(f, ": {}", file.escape_debug())?;
        }
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Why an operation on a skill fails.
#[derive(Debug)]
#[non_exhaustive]
pub enum SkillError {
    /// The faults of the skill; never empty.
    Refused(Vec<SkillFault>),
    /// Another user could have written to the registry.
    Untrusted {
        /// Directory or file.
        path: PathBuf,
        /// The user or users who could.
        why: String,
    },
    /// The registry file is invalid.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The stored files of a version were changed.
    Damaged {
        /// Directory or file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It cannot be recorded in the audit trail.
    Unrecorded(String),
    /// A system call failed.
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl SkillError {
    pub(super) fn one(code: FaultCode, message: impl Into<String>) -> SkillError {
        SkillError::Refused(vec![SkillFault::new(code, message)])
    }

    /// The names of the faults, each once, in order.
    pub fn codes(&self) -> Vec<FaultCode> {
        let SkillError::Refused(faults) = self else { return Vec::new() };
        let mut codes: Vec<FaultCode> = faults.iter().map(|fault| fault.code).collect();
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// A hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            SkillError::Refused(faults) => match faults.first()? {
                SkillFault { hint: Some(hint), .. } => Some((*hint).to_owned()),
                first => of_code(first.code),
            },
            SkillError::Untrusted { path, .. } => Some(format!(
                "chown and chmod go-w,ug-s {} if it is yours; then compare it with its source",
                path.display()
            )),
            SkillError::Unrecorded(_) => None,
            SkillError::Damaged { .. } => Some(
                "register it again from its source, which puts the same files back: cofferdam skill register DIR"
                    .into(),
            ),
            SkillError::Unreadable { path, .. } => Some(format!(
                "put {} back from a backup; without it nothing says what was revoked, and every skill has to be registered anew",
                path.display()
            )),
            SkillError::Io { source, .. } => match source.kind() {
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                    Some("name a registry that is yours: --registry DIR, or COFFERDAM_SKILLS".into())
                }
                _ => None,
            },
        }
    }
}

/// The hint for faults of this code.
fn of_code(code: FaultCode) -> Option<String> {
    match code {
        FaultCode::NotRegistered => Some("cofferdam skill list".into()),
        FaultCode::SignatureVerificationFailed => Some("cofferdam skill sign DIR --key FILE, by the publisher".into()),
        _ => None,
    }
}

impl From<PolicyErrors> for SkillError {
    fn from(errors: PolicyErrors) -> SkillError {
        let fault = |error: &cofferdam_policy::PolicyError| {
            SkillFault::new(FaultCode::SchemaValidationFailed, error.to_string())
        };
        SkillError::Refused(errors.0.iter().map(fault).collect())
    }
}

impl std::error::Error for SkillError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SkillError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for SkillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SkillError::Refused(faults) => {
                for (number, fault) in faults.iter().enumerate() {
                    write!(f, "{}{fault}", if number > 0 { "\n" } else { "" })?;
                }
                Ok(())
            }
            SkillError::Untrusted { path, why } => write!(f, "cannot trust {}: {why}", path.display()),
            SkillError::Damaged { path, why } | SkillError::Unreadable { path, why } => {
                write!(f, "{} is damaged: {why}", path.display())
            }
            SkillError::Unrecorded(why) => write!(f, "nothing was registered, since it could not be recorded: {why}"),
            SkillError::Io { operation, path, source } => write!(f, "cannot {operation} {}: {source}", path.display()),
        }
    }
}
