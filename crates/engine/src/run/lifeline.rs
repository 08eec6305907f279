//! Lifelines: the pipes on which an init reads end of file when its owner is gone, and before that the signals that its owner
//! passes on to the program, a byte each.
//!
//! A process that forks without executing anything gives its child every descriptor, and so would keep its runs alive in
//! there after its own death. So all lifelines of a process are in one table, which a child made by fork(2) can close at once
//! ([`Fork`]); a child that executes another program closes them by that.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The table: the next number, and the open lifelines by theirs.
static OPEN: Mutex<(u64, BTreeMap<u64, OwnedFd>)> = Mutex::new((0, BTreeMap::new()));

fn open() -> MutexGuard<'static, (u64, BTreeMap<u64, OwnedFd>)> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The owner's end of a lifeline. Dropping it ends the run.
#[derive(Debug)]
pub(crate) struct Lifeline(u64);

impl Lifeline {
    /// Takes the write end of the pipe whose read end init has.
    pub(crate) fn new(end: OwnedFd) -> Lifeline {
        let mut open = open();
        let number = open.0;
        open.0 += 1;
        open.1.insert(number, end);
        Lifeline(number)
    }

    /// Has init pass a signal on to the program. False where init is gone, or takes nothing.
    pub(crate) fn pass_on(&self, signal: u8) -> bool {
        open().1.get(&self.0).is_some_and(|end| rustix::io::write(end, &[signal]) == Ok(1))
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        let end = open().1.remove(&self.0);
        drop(end); // `None` in a forked process
    }
}

/// A fork(2) that is about to happen on this thread: no other thread makes or closes a lifeline meanwhile. Drop it in the
/// parent; in the child, call [`Fork::in_child`] first.
#[derive(Debug)]
pub struct Fork(MutexGuard<'static, (u64, BTreeMap<u64, OwnedFd>)>);

impl Fork {
    /// Waits until no other thread makes or closes a lifeline.
    pub fn begin() -> Fork {
        Fork(open())
    }

    /// Closes the child's copies of its parent's lifelines.
    pub fn in_child(mut self) {
        self.0.1.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_lifeline_ends_when_it_is_dropped_and_not_with_another() {
        let (mut theirs, ours) = std::io::pipe().unwrap();
        let (other, others) = std::io::pipe().unwrap();
        let (lifeline, _stays) = (Lifeline::new(ours.into()), Lifeline::new(others.into()));
        drop(Fork::begin());
        drop(lifeline);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
        rustix::io::ioctl_fionbio(&other, true).unwrap();
        assert!((&other).read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock));
    }
}
