//! Slots: disk space reserved for the ends of runs, and the owner of each. So an end never lacks space, and a run whose
//! owner died gets an end.
//!
//! ```text
//! DIR/lock      after its head, a table: who keeps room, as PID, PID namespace and start time, a place for each run
//! DIR/run-0001  for the place of that number: held (flock) while the run is under way, and says where its start stands
//! ```
//!
//! The kernel releases a lock when its owner is dead, however it died and in whichever container it ran, and not
//! before: a process that gets the lock knows that no other has it. So an end is written for a run only if its process
//! is not found *and* its file can be locked, under the lock that every writer needs, and if the trail has no end of
//! it. Runs whose state cannot be determined are left alone. A program inside a sandbox sees none of these files,
//! unless the trail is in a directory that it may write.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::error::AuditError;
use super::open_runs::{self, StartPosition};
use super::owner::{self, RecordingProcess};
use super::record::{AuditEntry, sha256};
use super::store::{END_ROOM, HEAD, LockedStore, fail, open_in, space};

/// Most runs that can be under way at once.
pub(crate) const SLOTS: usize = 1024;
const SLOT: usize = 16;

/// An index in the table of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndSlot(pub usize);

/// A reserved slot, and the file that is locked meanwhile; none if the file system has no such locks.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// Where.
    pub slot: EndSlot,
    /// The file of that place.
    pub live: Option<File>,
}

/// The state of a slot.
enum SlotState {
    /// It is free.
    Free,
    /// Its owner is alive.
    Taken,
    /// Its owner is in another PID namespace, and may or may not be alive.
    Elsewhere,
    /// Its owner is dead. The file, if there is one, is locked by this process.
    Gone(Option<File>),
}

/// The owner of a slot: a process id and its PID namespace; 0 if that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotOwner(pub(super) u64);

impl SlotOwner {
    const NONE: SlotOwner = SlotOwner(0);

    pub(super) fn of(owner: &RecordingProcess) -> SlotOwner {
        SlotOwner(u64::from(owner.namespace) << 32 | u64::from(owner.pid))
    }

    fn pid(self) -> u32 {
        self.0 as u32
    }

    fn is_elsewhere(self, me: SlotOwner) -> bool {
        let (theirs, mine) = (self.0 >> 32, me.0 >> 32);
        theirs != 0 && mine != 0 && theirs != mine
    }
}

fn name(slot: usize) -> String {
    format!("run-{:04}", slot + 1)
}

/// Whether this is the name of such a file.
pub(crate) fn is_name(file: &str) -> bool {
    let digits = file.strip_prefix("run-").and_then(|digits| digits.parse::<usize>().ok());
    digits.and_then(|number| number.checked_sub(1)).is_some_and(|slot| name(slot) == file)
}

/// The record of a run that nobody ends any more, which began with record `started`. `why` is for programs:
/// `owner_gone`, `given_up`.
pub(crate) fn abandoned(started: u64, why: &str, owner: &serde_json::Value) -> AuditEntry {
    AuditEntry::new(open_runs::ABANDONED).with("started", started).with("why", why).with("owner", owner.clone())
}

impl LockedStore<'_> {
    /// Bytes reserved for the ends of running runs.
    pub(super) fn reserved(&self) -> Result<u64, AuditError> {
        Ok(self.slots()?.iter().filter(|s| s.0 != SlotOwner::NONE).count() as u64 * END_ROOM)
    }

    fn slots(&self) -> Result<Vec<(SlotOwner, u64)>, AuditError> {
        let mut table = vec![0u8; SLOTS * SLOT];
        let mut got = 0;
        while got < table.len() {
            match self.store.lock.read_at(&mut table[got..], (HEAD + got) as u64) {
                Ok(0) => break, // never written: free
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(fail("cannot read the lock of", &self.store.path)(e)),
            }
        }
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        Ok(table.chunks_exact(SLOT).map(|s| (SlotOwner(number(&s[..8])), number(&s[8..]))).collect())
    }

    pub(super) fn set_slot(&self, slot: usize, (holder, start): (SlotOwner, u64)) -> Result<(), AuditError> {
        let mut bytes = [0u8; SLOT];
        bytes[..8].copy_from_slice(&holder.0.to_le_bytes());
        bytes[8..].copy_from_slice(&start.to_le_bytes());
        self.store
            .lock
            .write_all_at(&bytes, (HEAD + slot * SLOT) as u64)
            .map_err(fail("cannot write the lock of", &self.store.path))
    }

    /// Who is there, of those in the table. Looks no further than it must: most are this process, or one that is seen.
    fn kept(&self, slot: usize, (holder, start): (SlotOwner, u64), me: &RecordingProcess) -> SlotState {
        let mine = SlotOwner::of(me);
        if holder == SlotOwner::NONE {
            return SlotState::Free;
        }
        let is_elsewhere = holder.is_elsewhere(mine);
        if !is_elsewhere
            && (start == 0 || (holder, start) == (mine, me.started) || owner::started(holder.pid()) == Some(start))
        {
            return SlotState::Taken;
        }
        let file = open_in(&self.store.dir, &name(slot), OFlags::RDWR | OFlags::NONBLOCK)
            .ok()
            .filter(|file| self.store.is_own(file, &name(slot)).is_ok());
        match file.map(|file| (flock(&file, FlockOperation::NonBlockingLockExclusive), file)) {
            Some((Ok(()), file)) => SlotState::Gone(Some(file)),
            // Another process has it still, such as one that was forked from it.
            Some((Err(Errno::WOULDBLOCK), _)) => SlotState::Taken,
            Some((Err(_), _)) | None if is_elsewhere => SlotState::Elsewhere,
            Some((Err(_), _)) | None => SlotState::Gone(None),
        }
    }

    /// Writes the ends of runs whose owners are dead, in the reserved space.
    ///
    /// # Errors
    /// The table cannot be read. An end that cannot be written is left for the next writer.
    pub(crate) fn close_gone(&mut self, now: &str) -> Result<(), AuditError> {
        let slots = self.slots()?;
        if slots.iter().all(|kept| kept.0 == SlotOwner::NONE) {
            return Ok(());
        }
        let me = RecordingProcess::me();
        for (slot, &kept) in slots.iter().enumerate() {
            if let SlotState::Gone(file) = self.kept(slot, kept, &me) {
                self.close_or_leave(slot, file, now);
            }
        }
        Ok(())
    }

    /// Whether the place is free now.
    fn close_or_leave(&mut self, slot: usize, file: Option<File>, now: &str) -> bool {
        match self.close(slot, file, now) {
            Ok(()) => true,
            Err(e) => {
                tracing::warn!("a run that has no end got none: {e}");
                false
            }
        }
    }

    fn close(&mut self, slot: usize, file: Option<File>, now: &str) -> Result<(), AuditError> {
        let mut bytes = [0; StartPosition::BYTES];
        // One that says nothing was not begun, or by a writer that knew of no such files.
        if let Some(Ok(())) = file.as_ref().map(|file| file.read_exact_at(&mut bytes, 0)) {
            let start = open_runs::unended(&self.store.dir, StartPosition::of(&bytes))
                .map_err(fail("cannot read", &self.store.path))?;
            if let Some(start) = start {
                let owner = start.data.get("owner").cloned().unwrap_or_default();
                let end = abandoned(start.seq, "owner_gone", &owner);
                self.append(&AuditEntry { run: start.run, skill: start.skill, ..end }, now, true)?;
            }
        }
        self.release(EndSlot(slot))
    }

    /// Keeps room for one more end. What dead processes kept is theirs no more, and their runs get their ends.
    ///
    /// # Errors
    /// There is no space for it, or too many runs are under way.
    pub(crate) fn reserve(&mut self, me: &RecordingProcess, run: &str, now: &str) -> Result<Reserved, AuditError> {
        // Before the position is recorded: the start is written after it.
        self.begun(now, false)?;
        let slots = self.slots()?;
        let (mut free, mut elsewhere) = (Vec::new(), Vec::new());
        let mut taken = 0;
        for (slot, &kept) in slots.iter().enumerate() {
            match self.kept(slot, kept, me) {
                SlotState::Free => free.push(slot),
                SlotState::Taken => taken += 1,
                // It keeps its room for as long as there is another.
                SlotState::Elsewhere => {
                    elsewhere.push(slot);
                    taken += 1;
                }
                SlotState::Gone(file) => match self.close_or_leave(slot, file, now) {
                    true => free.push(slot),
                    false => taken += 1,
                },
            }
        }
        let mut candidates = free.into_iter().chain(elsewhere);
        let reserved = loop {
            let Some(slot) = candidates.next() else { return Err(AuditError::TooMany { most: SLOTS }) };
            if let Some(reserved) = self.take(slot, run)? {
                break reserved;
            }
        };
        self.make_room(self.state.end + (taken + 1) * END_ROOM)?;
        self.remember()?;
        self.set_slot(reserved.slot.0, (SlotOwner::of(me), me.started))?;
        Ok(reserved)
    }

    /// Takes a place for the run whose start is written next. None where somebody is just about to let it go.
    fn take(&self, slot: usize, run: &str) -> Result<Option<Reserved>, AuditError> {
        let file = open_in(&self.store.dir, &name(slot), OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK)
            .map_err(|e| space(e, &self.store.path))?;
        self.store.is_own(&file, &name(slot))?;
        let live = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Some(file),
            Err(Errno::WOULDBLOCK) => return Ok(None),
            // Its end cannot be proved by the lock, so no other process writes it.
            Err(_) => None,
        };
        if let Some(file) = &live {
            let is_next = self.state.end >= self.store.rotate_at;
            let (number, offset) = if is_next { (self.state.file + 1, 0) } else { (self.state.file, self.state.end) };
            let place =
                StartPosition { seq: self.state.link.seq + 1, file: number, offset, run: sha256(run.as_bytes()) };
            file.write_all_at(&place.bytes(), 0).map_err(|e| space(e, &self.store.path))?;
        }
        Ok(Some(Reserved { slot: EndSlot(slot), live }))
    }

    /// Frees the slot.
    ///
    /// # Errors
    /// The lock file cannot be written.
    pub(crate) fn release(&mut self, slot: EndSlot) -> Result<(), AuditError> {
        self.set_slot(slot.0, (SlotOwner::NONE, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::TrailStore;

    fn store(dir: &tempfile::TempDir) -> TrailStore {
        TrailStore::open(&dir.path().join("t"), 1 << 20, false).unwrap()
    }

    #[test]
    fn slots_of_another_pid_namespace_are_not_reused() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = store(&dir);
        let mut held = store.hold("t").unwrap();
        let me = RecordingProcess::me();
        // A process that is not here: gone where it would be ours, perhaps alive where it is another namespace's.
        let (gone, namespace) = (u64::from(u32::MAX - 1), u64::from(me.namespace));
        assert!(namespace != 0);
        held.set_slot(0, (SlotOwner((namespace ^ 1) << 32 | gone), 7)).unwrap();
        held.set_slot(1, (SlotOwner(namespace << 32 | gone), 7)).unwrap();
        let reserved = held.reserve(&me, "r", "t").unwrap();
        assert_eq!(reserved.slot, EndSlot(1));
        assert_eq!(held.reserved().unwrap(), 2 * END_ROOM);
        // Where none is left, runs go on all the same; but not in the place of one that is under way.
        drop(reserved);
        (0..SLOTS).for_each(|i| held.set_slot(i, (SlotOwner((namespace ^ 1) << 32 | gone), 7)).unwrap());
        let first = held.reserve(&me, "r", "t").unwrap();
        held.set_slot(first.slot.0, (SlotOwner((namespace ^ 1) << 32 | gone), 7)).unwrap();
        assert_ne!(held.reserve(&me, "r", "t").unwrap().slot, first.slot);
    }
}
