//! The audit trail: what happened, as hash-chained JSON lines that cannot be quietly edited.
//!
//! ```text
//! Entry ─ secrets out ─▶ store (one writer at a time, chained) ─▶ made durable, many writers by one fsync
//!                            └─ every so often a signed checkpoint ─▶ anchor (a file, a command, syslog)
//! ```
//!
//! A run that began gets an end: from its owner, or, when that was killed, from the next writer, who can tell because the
//! kernel lets go of what the owner held.
//!
//! A changed, removed or reordered record is found by `verify`. What is *not* found from the files alone: the last
//! records cut off, or the whole chain written anew by somebody who may write it and sign it. Only an anchor, kept where
//! the same somebody cannot write, shows those. Of runs it knows when they begin and end; who calls says what happened.

mod anchor;
mod begun;
mod checkpoint;
mod lines;
mod mark;
pub mod opened;
mod owner;
pub mod random;
mod read;
mod record;
mod redact;
mod slots;
mod store;
pub mod trails;
mod verify;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub use anchor::{Anchor, Anchored, anchored};
pub use begun::Unended;
pub use checkpoint::{Key, PublicKey};
pub use owner::{Life, Owner};
pub use read::{Filter, Follow, Line, show};
pub use record::{Broken, Entry, Hash, KINDS, Link, Record, hex, read as read_record, sha256, unhex};
pub use redact::Secrets;
pub use trails::Unremembered;
pub use verify::{Failed, Problem, Verified, Wrong, is_trail, open_to_others, verify};

use mark::Mark;
use slots::{Reserved, Slot, abandoned};
use store::Store;

/// Why something could not be recorded. Nothing that has to be recorded may start then.
#[derive(Debug, thiserror::Error)]
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
    /// The directory, or one of its files, is another user's, who can change all of it.
    #[error(
        "{} belongs to user {owner}, who can change it as they like, and this is user {me}\n\
         hint: name a directory of your own, or write as user {owner}", path.display()
    )]
    Foreign {
        /// The directory or file.
        path: PathBuf,
        /// Whose it is, a user id.
        owner: u32,
        /// Who writes, a user id.
        me: u32,
    },
    /// The directory's name is a link that another user made.
    #[error(
        "{} is a link of user {owner}, who decides where it leads, and is not followed\n\
         hint: name the directory itself", path.display()
    )]
    Linked {
        /// The link.
        path: PathBuf,
        /// Whose it is, a user id.
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
    /// The file system cannot keep room.
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
    /// An earlier write could not be made durable, so nobody knows what is.
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
    /// A key that is none.
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

/// How a trail is written.
#[derive(Debug, Clone)]
pub struct Options {
    /// Size at which a file is closed and the next begun, bytes.
    pub rotate_at: u64,
    /// What must not stand in it.
    pub secrets: Secrets,
    /// Who signs checkpoints; none are written without.
    pub key: Option<Key>,
    /// A checkpoint follows each so many records.
    pub checkpoint_every: u64,
    /// Where checkpoints are told as well.
    pub anchor: Option<Anchor>,
    /// For root alone: the trail may be another user's, and what is made in it is that user's too. For checkpoints that are
    /// signed with a key out of that user's reach.
    pub of_others: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rotate_at: 64 << 20,
            secrets: Secrets::default(),
            key: None,
            checkpoint_every: 1000,
            anchor: None,
            of_others: false,
        }
    }
}

/// When `append` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When the record is written: it survives this process, not a crash of the machine.
    Written,
    /// When it is on the disk. Writers who wait at the same time share one fsync.
    Durable,
}

/// A trail, open for writing. Clones write to the same one.
#[derive(Debug, Clone)]
pub struct Trail(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    options: Options,
    store: Mutex<Store>,
    unremembered: Option<String>,
    sync: Mutex<Sync>,
    synced: Condvar,
}

/// Who makes durable what.
#[derive(Debug, Default)]
struct Sync {
    /// Newest record of ours that is written, and the file that it is in.
    written: u64,
    file: Option<Arc<File>>,
    /// Newest record of ours that is durable.
    durable: u64,
    /// Somebody is at it.
    busy: bool,
    /// It failed once: what is on the disk is not known any more.
    failed: bool,
    /// Records since the last checkpoint.
    since: u64,
}

/// Room for the last record of a run that was begun. Dropped without `end`, the record says that nobody ended it.
#[derive(Debug)]
pub struct Reservation {
    trail: Trail,
    reserved: Option<Reserved>,
    /// Where the start stands.
    mark: Option<Mark>,
    /// What to write then.
    given_up: Entry,
}

/// A record that was written, the room that was kept with it, and where it stands then.
type Written = (Link, Option<Reserved>, Option<Mark>);

/// What a record has to do with the room that is kept for ends.
#[derive(Debug, Clone, Copy)]
enum Room<'a> {
    /// It leaves it alone.
    Leave,
    /// More is kept for its end.
    Reserve(&'a Owner),
    /// It is such an end.
    Use(Option<Slot>),
}

/// Whether a trail has a file of this name.
pub(crate) fn is_file_name(name: &str) -> bool {
    name == "lock" || store::file_number(name).is_some() || slots::is_name(name)
}

fn held<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> String {
    humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string()
}

impl Trail {
    /// Opens the trail in a directory, which is made where it is not there. What a killed writer left is put in order.
    ///
    /// # Errors
    /// It cannot be written, or others may write in its directory, or it is another user's.
    pub fn open(dir: &Path, options: Options) -> Result<Trail, AuditError> {
        let mut store = Store::open(dir, options.rotate_at, options.of_others)?;
        let unremembered =
            opened::hide(dir).map_err(|source| AuditError::Io { place: dir.display().to_string(), source })?;
        let now = now();
        store.hold(&now)?.close_gone(&now)?;
        let (path, store) = (dir.to_owned(), Mutex::new(store));
        Ok(Trail(Arc::new(Shared {
            path,
            options,
            store,
            unremembered,
            sync: Mutex::default(),
            synced: Condvar::new(),
        })))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What to say where the user's state directory could not remember this trail: later runs of the user that show its
    /// directory, and do not name it as their trail, show the trail.
    pub fn warning(&self) -> Option<String> {
        let why = self.0.unremembered.as_ref()?;
        let path = self.0.path.display();
        Some(format!("later runs that show {path} and do not name it as their trail can read and change it: {why}"))
    }

    /// Records something.
    ///
    /// # Errors
    /// It does not stand in the trail, or is not known to be durable.
    pub fn append(&self, entry: Entry, durability: Durability) -> Result<Link, AuditError> {
        let (link, ..) = self.write(entry, Room::Leave)?;
        self.settle(link, durability)?;
        Ok(link)
    }

    /// Records that something begins, and whose it is, and keeps room for the record of its end. Durable when it returns.
    ///
    /// # Errors
    /// As of `append`; nothing may begin then.
    pub fn begin(&self, entry: Entry) -> Result<Reservation, AuditError> {
        let me = Owner::me();
        let entry = entry.with("owner", me.data());
        let (run, skill) = (entry.run.clone(), entry.skill.clone());
        let (link, reserved, mark) = self.write(entry, Room::Reserve(&me))?;
        let given_up = Entry { run, skill, ..abandoned(link.seq, "given_up", &me.data()) };
        let reservation = Reservation { trail: self.clone(), reserved, mark, given_up };
        self.settle(link, Durability::Durable)?;
        Ok(reservation)
    }

    /// Writes one record, with what is to be done about room, under one lock. Gives what was reserved.
    fn write(&self, mut entry: Entry, room: Room<'_>) -> Result<Written, AuditError> {
        self.0.options.secrets.take_out(&mut entry);
        let now = now();
        let mut store = held(&self.0.store);
        if held(&self.0.sync).failed {
            return Err(AuditError::Undurable { path: self.0.path.clone() });
        }
        let mut all = store.hold(&now)?;
        let run = entry.run.as_deref().unwrap_or_default();
        let reserved = if let Room::Reserve(me) = room { Some(all.reserve(me, run, &now)?) } else { None };
        let written = all.append(&entry, &now, matches!(room, Room::Use(_)));
        // An end that was written needs its room no more, and a start that was not has none.
        match (&written, &reserved, room) {
            (Err(_), Some(Reserved { slot, .. }), _) => all.release(*slot)?,
            (Ok(_), None, Room::Use(Some(slot))) => all.release(slot)?,
            _ => {}
        }
        let link = written?;
        let mark = reserved.is_some().then(|| Mark::of(&all)).transpose();
        let mark =
            mark.map_err(|source| AuditError::Io { place: format!("cannot read {}", self.0.path.display()), source })?;
        self.wrote(all, link)?;
        Ok((link, reserved, mark))
    }

    /// Remembers what is to be made durable, and lets other writers go on.
    fn wrote(&self, all: store::Held<'_>, link: Link) -> Result<(), AuditError> {
        let file = all.file().map(File::try_clone).transpose();
        let file = file.map_err(|source| AuditError::Io { place: "cannot keep the trail open".into(), source })?;
        drop(all);
        let mut sync = held(&self.0.sync);
        (sync.written, sync.since) = (link.seq, sync.since + 1);
        sync.file = file.map(Arc::new);
        Ok(())
    }

    /// Makes a record durable if that is asked for, and writes a checkpoint if it is time for one.
    fn settle(&self, link: Link, durability: Durability) -> Result<(), AuditError> {
        if durability == Durability::Durable {
            self.make_durable(link.seq)?;
        }
        let due = {
            let mut sync = held(&self.0.sync);
            let due = self.0.options.key.is_some() && sync.since >= self.0.options.checkpoint_every;
            sync.since = if due { 0 } else { sync.since };
            due
        };
        if due { self.checkpoint().map(|_| ()) } else { Ok(()) }
    }

    fn make_durable(&self, seq: u64) -> Result<(), AuditError> {
        let mut sync = held(&self.0.sync);
        loop {
            if sync.failed {
                return Err(AuditError::Undurable { path: self.0.path.clone() });
            }
            if sync.durable >= seq {
                return Ok(());
            }
            if sync.busy {
                sync = self.0.synced.wait(sync).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            sync.busy = true;
            // Everything that was written until now goes along.
            let (upto, file) = (sync.written, sync.file.clone());
            drop(sync);
            let done = file.map_or(Ok(()), |file| file.sync_data());
            sync = held(&self.0.sync);
            sync.busy = false;
            match done {
                Ok(()) => sync.durable = sync.durable.max(upto),
                // The kernel may have dropped what it could not write: trying again would say yes to what is not there.
                Err(_) => sync.failed = true,
            }
            self.0.synced.notify_all();
        }
    }

    /// Signs the chain as it ends now, in a record of its own, and tells the anchor. None without a key.
    ///
    /// # Errors
    /// It could not be written, or not be anchored.
    pub fn checkpoint(&self) -> Result<Option<Link>, AuditError> {
        let Some(key) = &self.0.options.key else { return Ok(None) };
        let time = now();
        let trail = verify::identity(&self.0.path)
            .map_err(|source| AuditError::Io { place: format!("cannot read {}", self.0.path.display()), source })?;
        let link = {
            let mut store = held(&self.0.store);
            let mut all = store.hold(&time)?;
            let end = all.link();
            if end.seq == 0 {
                return Ok(None);
            }
            let link = all.append(&key.sign(&end, trail.as_deref()), &time, false)?;
            self.wrote(all, link)?;
            link
        };
        self.make_durable(link.seq)?;
        if let Some(anchor) = &self.0.options.anchor {
            anchor.tell(&link, trail.as_deref(), &time)?;
        }
        Ok(Some(link))
    }
}

impl Reservation {
    /// Records the end in the room that was kept. Durable when it returns. A record that is longer than the room is cut
    /// down to its kind, its run and its skill, and says so.
    ///
    /// # Errors
    /// It does not stand in the trail, or is not known to be durable.
    pub fn end(mut self, mut entry: Entry) -> Result<Link, AuditError> {
        self.trail.0.options.secrets.take_out(&mut entry);
        let (line, _) = record::write(&entry, &now(), &Link { seq: u64::MAX - 1, hash: [0; 32] });
        if line.len() as u64 > store::END_ROOM {
            entry.data = Entry::new("").with("cut_bytes", line.len() as u64).data;
        }
        // The file is held until the end stands there, or another writer would write one.
        let reserved = self.reserved.take();
        let slot = reserved.as_ref().map(|reserved| reserved.slot);
        if let Some(why) = self.mark.as_ref().and_then(Mark::fault) {
            return Err(self.lost(&entry, why));
        }
        let (link, ..) = self.trail.write(entry, Room::Use(slot))?;
        self.trail.settle(link, Durability::Durable)?;
        drop(reserved.and_then(|reserved| reserved.live));
        Ok(link)
    }

    /// Records elsewhere what cannot be recorded in the trail: whatever is in its place by now is not written to.
    fn lost(&self, entry: &Entry, why: String) -> AuditError {
        let path = self.trail.0.path.clone();
        let line = serde_json::json!({
            "time": now(), "trail": path, "why": why, "run": entry.run, "kind": entry.kind, "data": entry.data,
        });
        let noted = match opened::note(&line) {
            Ok(file) => format!("recorded in {}", file.display()),
            Err(e) => format!("this could be recorded nowhere: {e}"),
        };
        AuditError::Lost { path, why, noted }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Some(reserved) = self.reserved.take() else { return };
        let entry = self.given_up.clone();
        let Err(unwritten) = self.trail.write(entry, Room::Use(Some(reserved.slot))) else { return };
        tracing::warn!("a run was given up, and that could not be recorded: {unwritten}");
        let mut store = held(&self.trail.0.store);
        // What cannot be given back now is given back when this process has ended.
        if let Ok(mut all) = store.hold(&now())
            && let Err(e) = all.release(reserved.slot)
        {
            tracing::warn!("{e}");
        }
    }
}

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod left_tests;
#[cfg(test)]
mod tests;
