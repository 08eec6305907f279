//! Why something could not be recorded: the error of every operation on a trail, with a hint where the user can act.

use std::io;
use std::path::PathBuf;

use super::record;

/// Why something could not be recorded. Nothing that has to be recorded may start then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// A system call failed.
    #[error("{place}: {source}")]
    Io {
        /// What, and where.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// Others may write in the trail's directory, or in one of its files.
    #[error("others may write in {}\nhint: chmod go-w {}", path.display(), path.display())]
    Open {
        /// The directory or file.
        path: PathBuf,
    },
    /// The directory, or one of its files, belongs to another user, who can change it.
    #[error(
        "{} belongs to user {owner}, who can change it as they like, and this is user {me}\n\
         hint: name a directory of your own, or write as user {owner}", path.display()
    )]
    Foreign {
        /// The directory or file.
        path: PathBuf,
        /// The user id of the owner.
        owner: u32,
        /// The user id of the writer.
        me: u32,
    },
    /// The directory's name is a link of another user.
    #[error(
        "{} is a link of user {owner}, who decides where it leads, and is not followed\n\
         hint: name the directory itself", path.display()
    )]
    Linked {
        /// The link.
        path: PathBuf,
        /// The user id of the owner.
        owner: u32,
    },
    /// A file of the trail is a pipe, a device or a directory.
    #[error("{} is no regular file\nhint: remove it, or name another directory", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// No space is left, or none that the ends of runs do not need.
    #[error(
        "no space is left for the audit trail in {}: nothing that has to be recorded starts\n\
         hint: free some, or name another directory", path.display()
    )]
    Full {
        /// The directory.
        path: PathBuf,
    },
    /// A file of the trail would be larger than this process may make one.
    #[error(
        "a file of the audit trail in {} would be larger than this process may write (RLIMIT_FSIZE): nothing that has to be \
         recorded starts\nhint: start it without that limit (ulimit -f unlimited)", path.display()
    )]
    FileSize {
        /// The directory.
        path: PathBuf,
    },
    /// The file system cannot reserve space.
    #[error(
        "the file system of {} cannot keep room for the end of a run\n\
         hint: put the trail on a local file system (ext4, xfs, btrfs, tmpfs)", path.display()
    )]
    CannotReserve {
        /// The directory.
        path: PathBuf,
    },
    /// A file vanished.
    #[error("a file of the trail in {} is gone", path.display())]
    Gone {
        /// The directory.
        path: PathBuf,
    },
    /// The directory that is open, or the lock in it, is not the one at its path any more.
    #[error(
        "the audit trail in {} is not the one that was opened: its {what} was removed, moved or replaced. Nothing that has to be \
         recorded starts\nhint: put it back, or start again", path.display()
    )]
    Moved {
        /// The directory.
        path: PathBuf,
        /// The directory or the lock.
        what: &'static str,
    },
    /// A file has no whole record where there must be one.
    #[error("{} holds no whole record\nhint: `cofferdam audit verify` says what is wrong", place.display())]
    Damaged {
        /// The file.
        place: PathBuf,
    },
    /// A record that is too long.
    #[error("a record of kind {kind} has {bytes} bytes, and at most {} are written", record::MOST_BYTES)]
    TooLarge {
        /// Its kind.
        kind: String,
        /// Its length.
        bytes: usize,
    },
    /// Too many runs at once.
    #[error("{most} runs are under way, and room is kept for no more")]
    TooMany {
        /// How many.
        most: usize,
    },
    /// An earlier write could not be made durable, so the state on disk is unknown.
    #[error("the trail in {} could not be made durable before; open it again", path.display())]
    Undurable {
        /// The directory.
        path: PathBuf,
    },
    /// While a run went on, its trail was removed, replaced or changed.
    #[error(
        "the audit trail in {} is not the one that the run began in: {why}; {noted}\n\
         hint: `cofferdam audit verify` says what is left; keep the trail where nobody else writes", path.display()
    )]
    Lost {
        /// The directory.
        path: PathBuf,
        /// What was found.
        why: String,
        /// Where that is recorded.
        noted: String,
    },
    /// An invalid key.
    #[error("{what}\nhint: `cofferdam audit keygen FILE` makes a key")]
    Key {
        /// What is wrong with it.
        what: String,
    },
    /// A checkpoint was written and could not be anchored.
    #[error(
        "the checkpoint is written, as record {record}, and could not be anchored: {why}\n\
         hint: `cofferdam audit checkpoint` again, with the same --key and an --anchor that works: its line covers this one too"
    )]
    Anchor {
        /// The number of the checkpoint's record.
        record: u64,
        /// Why.
        why: String,
    },
}
