//! The audit trail: what happened, as hash-chained JSON lines that cannot be quietly edited.
//!
//! ```text
//! Entry ─ secrets out ─▶ store (one writer at a time, chained) ─▶ made durable, many writers by one fsync
//!                            └─ every so often a signed checkpoint ─▶ anchor (a file, a command, syslog)
//! ```
//!
//! A run that began gets an end: from its owner, or, if that was killed, from the next writer, which knows because the
//! kernel has released the owner's lock.
//!
//! `verify` finds a changed, removed or reordered record. The files alone do *not* reveal that the last records were
//! cut off, or that the whole chain was rewritten by an attacker who can write and sign it. Only an anchor that the
//! attacker cannot write reveals those. This crate knows when runs begin and end; the caller supplies the contents.
//!
//! ```
//! use cofferdam_audit::{Anchored, AuditEntry, Durability, Trail, TrailOptions, verify};
//!
//! let parent = tempfile::tempdir()?;
//! let directory = parent.path().join("audit");
//! let trail = Trail::open(&directory, TrailOptions::default())?;
//! trail.append(AuditEntry::new("deployment").with("version", "1.2"), Durability::Written)?;
//! let verified = verify(&directory, None, &Anchored::new(), &mut |_| {})?;
//! assert_eq!(verified.last.seq, 2, "its opening, and this one");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod anchor;
#[cfg(feature = "signatures")]
mod checkpoint;
#[cfg(not(feature = "signatures"))]
#[path = "no_signatures.rs"]
mod checkpoint;
mod end_slots;
mod error;
mod known_directories;
mod line_reader;
mod open_runs;
mod opened_trails;
mod owner;
pub mod random;
mod record;
mod redact;
mod show;
mod start_mark;
mod store;
mod trail;
mod verify;

pub use anchor::{Anchor, Anchored, anchored};
pub use checkpoint::{CheckpointKey, PublicKey};
pub use error::AuditError;
pub use open_runs::Unended;
pub use owner::{Life, RecordingProcess};
pub use record::{AuditEntry, AuditRecord, Broken, Hash, KINDS, Link, hex, read as read_record, sha256, unhex};
pub use redact::Secrets;
pub use show::{Follow, RecordFilter, TrailLine, show};
pub use trail::{Durability, Reservation, Trail, TrailOptions};
pub use verify::{TrailFault, VerificationFailure, Verified, Wrong, is_trail, open_to_others, verify};

/// Directories that earlier runs of this user have used, and that later ones hide.
pub mod hidden {
    pub use super::known_directories::{Remembered, Unremembered, is_known, known, open_or_make, remember, take};
}

/// The trails that this process has opened.
pub mod opened {
    pub use super::opened_trails::{all, count, state_directory};
}
