//! A trail that is open for writing: records, reservations for the ends of runs, durability and checkpoints.
//!
//! ```text
//! append, begin, end ─▶ write (one lock) ─▶ settle ─┬─▶ fsync, shared by all who wait
//!                                                   └─▶ checkpoint, every so many records
//! ```

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::anchor::Anchor;
use super::checkpoint::CheckpointKey;
use super::end_slots::{EndSlot, Reserved, abandoned};
use super::error::AuditError;
use super::owner::RecordingProcess;
use super::record::{self, AuditEntry, Link};
use super::redact::Secrets;
use super::start_mark::StartMark;
use super::store::{self, TrailStore};
use super::{opened_trails, verify};

/// How a trail is written.
#[derive(Debug, Clone)]
pub struct TrailOptions {
    /// Size at which a file is closed and the next begun, bytes.
    pub rotate_at: u64,
    /// Secrets that must not be recorded.
    pub secrets: Secrets,
    /// The key that signs checkpoints; without one none are written.
    pub key: Option<CheckpointKey>,
    /// A checkpoint follows each so many records.
    pub checkpoint_every: u64,
    /// Where checkpoints are published.
    pub anchor: Option<Anchor>,
    /// For root alone: the trail may be another user's, and what is made in it is that user's too. For checkpoints that
    /// are signed with a key out of that user's reach.
    pub of_others: bool,
}

impl Default for TrailOptions {
    fn default() -> TrailOptions {
        TrailOptions {
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
    /// When it is on disk. Writers that wait at the same time share one fsync.
    Durable,
}

/// A trail, open for writing. Clones write to the same one.
#[derive(Debug, Clone)]
pub struct Trail(Arc<TrailShared>);

#[derive(Debug)]
struct TrailShared {
    path: PathBuf,
    options: TrailOptions,
    store: Mutex<TrailStore>,
    unremembered: Option<String>,
    sync: Mutex<Sync>,
    synced: Condvar,
}

/// The state of fsync.
#[derive(Debug, Default)]
struct Sync {
    /// Newest record of ours that is written, and the file that it is in.
    written: u64,
    file: Option<Arc<File>>,
    /// Newest record of ours that is durable.
    durable: u64,
    /// An fsync is in progress.
    busy: bool,
    /// It failed once: the state on disk is unknown.
    failed: bool,
    /// Records since the last checkpoint.
    since: u64,
}

/// Space reserved for the last record of a run. If it is dropped without `end`, the record says that the run was given
/// up.
#[derive(Debug)]
pub struct Reservation {
    trail: Trail,
    reserved: Option<Reserved>,
    /// The position of the start.
    mark: Option<StartMark>,
    /// The record for that case.
    given_up: AuditEntry,
}

/// A written record, the space reserved with it, and its position.
type WrittenRecord = (Link, Option<Reserved>, Option<StartMark>);

/// How a record uses the space reserved for ends.
#[derive(Debug, Clone, Copy)]
enum EndReservation<'a> {
    /// It does not.
    Leave,
    /// It reserves space for its end.
    Reserve(&'a RecordingProcess),
    /// It is such an end.
    Use(Option<EndSlot>),
}

fn held<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> String {
    humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string()
}

impl Trail {
    /// Opens the trail in a directory, which is created if it is missing, and repairs what a killed writer left.
    ///
    /// # Errors
    /// It cannot be written, or others may write in its directory, or it is another user's.
    pub fn open(dir: &Path, options: TrailOptions) -> Result<Trail, AuditError> {
        let mut store = TrailStore::open(dir, options.rotate_at, options.of_others)?;
        let unremembered =
            opened_trails::hide(dir).map_err(|source| AuditError::Io { place: dir.display().to_string(), source })?;
        let now = now();
        store.hold(&now)?.close_gone(&now)?;
        let (path, store) = (dir.to_owned(), Mutex::new(store));
        Ok(Trail(Arc::new(TrailShared {
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
    /// It is not in the trail, or may not be durable.
    pub fn append(&self, entry: AuditEntry, durability: Durability) -> Result<Link, AuditError> {
        let (link, ..) = self.write(entry, EndReservation::Leave)?;
        self.settle(link, durability)?;
        Ok(link)
    }

    /// Records that something begins, and whose it is, and keeps room for the record of its end. Durable when it
    /// returns.
    ///
    /// # Errors
    /// As of `append`; nothing may begin then.
    pub fn begin(&self, entry: AuditEntry) -> Result<Reservation, AuditError> {
        let me = RecordingProcess::me();
        let entry = entry.with("owner", me.data());
        let (run, skill) = (entry.run.clone(), entry.skill.clone());
        let (link, reserved, mark) = self.write(entry, EndReservation::Reserve(&me))?;
        let given_up = AuditEntry { run, skill, ..abandoned(link.seq, "given_up", &me.data()) };
        let reservation = Reservation { trail: self.clone(), reserved, mark, given_up };
        self.settle(link, Durability::Durable)?;
        Ok(reservation)
    }

    /// Writes one record, with what is to be done about room, under one lock. Gives what was reserved.
    fn write(&self, mut entry: AuditEntry, room: EndReservation<'_>) -> Result<WrittenRecord, AuditError> {
        self.0.options.secrets.take_out(&mut entry);
        let now = now();
        let mut store = held(&self.0.store);
        if held(&self.0.sync).failed {
            return Err(AuditError::Undurable { path: self.0.path.clone() });
        }
        let mut all = store.hold(&now)?;
        let run = entry.run.as_deref().unwrap_or_default();
        let reserved = if let EndReservation::Reserve(me) = room { Some(all.reserve(me, run, &now)?) } else { None };
        let written = all.append(&entry, &now, matches!(room, EndReservation::Use(_)));
        // A written end frees its space, and a start that was not written has none.
        match (&written, &reserved, room) {
            (Err(_), Some(Reserved { slot, .. }), _) => all.release(*slot)?,
            (Ok(_), None, EndReservation::Use(Some(slot))) => all.release(slot)?,
            _ => {}
        }
        let link = written?;
        let mark = reserved.is_some().then(|| StartMark::of(&all)).transpose();
        let mark =
            mark.map_err(|source| AuditError::Io { place: format!("cannot read {}", self.0.path.display()), source })?;
        self.wrote(all, link)?;
        Ok((link, reserved, mark))
    }

    /// Notes what is to be made durable, and releases the lock.
    fn wrote(&self, all: store::LockedStore<'_>, link: Link) -> Result<(), AuditError> {
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
            // Everything written until now is included.
            let (upto, file) = (sync.written, sync.file.clone());
            drop(sync);
            let done = file.map_or(Ok(()), |file| file.sync_data());
            sync = held(&self.0.sync);
            sync.busy = false;
            match done {
                Ok(()) => sync.durable = sync.durable.max(upto),
                // The kernel may have dropped what it could not write: another fsync would succeed without it.
                Err(_) => sync.failed = true,
            }
            self.0.synced.notify_all();
        }
    }

    /// Signs the current end of the chain in a record of its own, and publishes it to the anchor. None without a key.
    ///
    /// # Errors
    /// It could not be written, or not be anchored.
    pub fn checkpoint(&self) -> Result<Option<Link>, AuditError> {
        let Some(key) = &self.0.options.key else { return Ok(None) };
        let time = now();
        let (link, trail) = {
            let mut store = held(&self.0.store);
            let mut all = store.hold(&time)?;
            let end = all.link();
            if end.seq == 0 {
                return Ok(None);
            }
            let trail = verify::identity_in(&all.store.dir)
                .map_err(|source| AuditError::Io { place: format!("cannot read {}", self.0.path.display()), source })?;
            let link = all.append(&key.sign(&end, trail.as_deref()), &time, false)?;
            self.wrote(all, link)?;
            (link, trail)
        };
        self.make_durable(link.seq)?;
        if let Some(anchor) = &self.0.options.anchor {
            anchor.publish(&link, trail.as_deref(), &time)?;
        }
        Ok(Some(link))
    }
}

impl Reservation {
    /// Records the end in the room that was kept. Durable when it returns. A record that is longer than the room is cut
    /// down to its kind, its run and its skill, and says so.
    ///
    /// # Errors
    /// It is not in the trail, or may not be durable.
    pub fn end(mut self, mut entry: AuditEntry) -> Result<Link, AuditError> {
        self.trail.0.options.secrets.take_out(&mut entry);
        let (line, _) = record::write(&entry, &now(), &Link { seq: u64::MAX - 1, hash: [0; 32] });
        if line.len() as u64 > store::END_ROOM {
            entry.data = AuditEntry::new("").with("cut_bytes", line.len() as u64).data;
        }
        // The file stays locked until the end is written, or another writer would write one.
        let reserved = self.reserved.take();
        let slot = reserved.as_ref().map(|reserved| reserved.slot);
        if let Some(why) = self.mark.as_ref().and_then(StartMark::fault) {
            return Err(self.lost(&entry, why));
        }
        let (link, ..) = self.trail.write(entry, EndReservation::Use(slot))?;
        self.trail.settle(link, Durability::Durable)?;
        drop(reserved.and_then(|reserved| reserved.live));
        Ok(link)
    }

    /// Records elsewhere what cannot be recorded in the trail: whatever is in its place by now is not written to.
    fn lost(&self, entry: &AuditEntry, why: String) -> AuditError {
        let path = self.trail.0.path.clone();
        let line = serde_json::json!({
            "time": now(), "trail": path, "why": why, "run": entry.run, "kind": entry.kind, "data": entry.data,
        });
        let noted = match opened_trails::note(&line) {
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
        let Err(unwritten) = self.trail.write(entry, EndReservation::Use(Some(reserved.slot))) else { return };
        tracing::warn!("a run was given up, and that could not be recorded: {unwritten}");
        let mut store = held(&self.trail.0.store);
        // Space that cannot be freed now is freed when this process has ended.
        if let Ok(mut all) = store.hold(&now())
            && let Err(e) = all.release(reserved.slot)
        {
            tracing::warn!("{e}");
        }
    }
}

#[cfg(test)]
mod abandoned_tests;
#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod tests;
