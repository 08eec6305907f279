//! Errors of an audit trail, its keys and its anchors as refusals.

use std::path::Path;

use cofferdam_engine::audit::AuditError;

use crate::refusal::CliRefusal;

/// An error of the trail or of a key.
pub(super) fn refused(error: &AuditError) -> CliRefusal {
    CliRefusal::new("audit", error.to_string()).split_hint()
}

/// A trail that cannot be read.
pub(super) fn unreadable(dir: &Path, error: &std::io::Error) -> CliRefusal {
    let refusal = CliRefusal::new("audit", format!("cannot read the trail in {}: {error}", dir.display()));
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            refusal.hint("--dir DIR names the trail; `cofferdam run --audit-trail DIR` writes one")
        }
        _ => refusal,
    }
}

/// A file of anchored checkpoints that cannot be read.
pub(super) fn unreadable_anchor(file: &str, error: &std::io::Error) -> CliRefusal {
    CliRefusal::new("audit", format!("cannot read the anchor's file {file}: {error}")).hint(
        "`cofferdam audit checkpoint --key FILE --anchor file:PATH` writes one, and `verify --anchor PATH` reads it",
    )
}
