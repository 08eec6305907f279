//! The tmpfs that a session works in, for who brings files in and takes them out between calls, and while one runs.
//!
//! Gives out its descriptor and nothing else: what is opened below it, and how carefully, is the caller's. Runs no code.
//! A session that lives is given at once, also while it is busy; only one that is being started is waited for.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::call_queue::QueueFailure;
use super::exchange::Live;
use super::reply::{SessionError, SessionKey, SessionStart};
use super::{SessionSlot, Sessions, SessionsInner, lock};
use crate::failure::Failure;
use crate::io::Cancel;

/// How long init may take to tell of a mount that it has made before the interpreter began.
const REPORT_LIMIT: Duration = Duration::from_secs(2);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// Where a session works.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// Root of the tmpfs that [`SessionStart::hands_over`] names, as in [`super::SessionAnswer::workspace`]: nothing in it is
    /// trusted.
    /// `None` where there is none, as with other backends than the jail.
    pub root: Option<Arc<OwnedFd>>,
    /// This call started the session.
    pub fresh: bool,
}

impl Sessions {
    /// The workspace of the session of this key, which is started when there is none, as by [`Sessions::call`].
    ///
    /// # Errors
    /// As of [`Sessions::call`]: the session, where there is one, is as it was.
    pub fn open(
        &self,
        key: &SessionKey,
        environment: &str,
        start: impl FnOnce() -> Result<SessionStart, Failure>,
        cancel: &Cancel,
    ) -> Result<Workspace, SessionError> {
        let slot = self.inner.slot(key, environment)?;
        self.inner.workspace(key, &slot, Some(start), cancel)
    }

    /// The workspace of a session that there is.
    ///
    /// # Errors
    /// [`SessionError::Unknown`] where there is none; it is over; it is still being started and that takes too long.
    pub fn find(&self, key: &SessionKey, cancel: &Cancel) -> Result<Workspace, SessionError> {
        let slot = {
            let mut table = lock(&self.inner.table);
            if let Some(at) = table.unreported.iter().position(|(k, _)| k == key) {
                let (_, ended) = table.unreported.remove(at);
                return Err(SessionError::Ended { name: key.name.clone(), ended });
            }
            table.slots.get(key).cloned()
        };
        let slot = slot.ok_or_else(|| SessionError::Unknown { name: key.name.clone() })?;
        self.inner.workspace(key, &slot, None::<fn() -> Result<SessionStart, Failure>>, cancel)
    }
}

impl SessionsInner {
    fn workspace(
        self: &Arc<Self>,
        key: &SessionKey,
        slot: &Arc<SessionSlot>,
        start: Option<impl FnOnce() -> Result<SessionStart, Failure>>,
        cancel: &Cancel,
    ) -> Result<Workspace, SessionError> {
        let lives = slot.ended.get().is_none() && slot.handle.get().is_some_and(|handle| !handle.is_over());
        if let (true, Some(root)) = (lives, slot.workspace.get()) {
            *lock(&slot.used) = Instant::now();
            return Ok(Workspace { root: root.clone(), fresh: false });
        }
        let limits = self.limits();
        let turn = slot.line.wait(limits.waiting, limits.start, cancel).map_err(|left| match left {
            QueueFailure::Cancelled => SessionError::Cancelled,
            QueueFailure::Full | QueueFailure::Late => SessionError::Busy { name: key.name.clone() },
        })?;
        let mut live = lock(&slot.live);
        if let Some(ended) = slot.ended.get() {
            self.forget_unreported(key);
            return Err(SessionError::Ended { name: key.name.clone(), ended: ended.clone() });
        }
        let fresh = live.is_none();
        if fresh {
            // Whoever made the place may wait behind this turn: it stays.
            let Some(start) = start else { return Err(SessionError::Unknown { name: key.name.clone() }) };
            match self.start(key, slot, start, cancel) {
                Ok(started) => *live = Some(started),
                Err(e) => {
                    self.remove(key, slot);
                    return Err(e);
                }
            }
        }
        if let Some(there) = live.as_mut().filter(|there| there.handle().is_over()) {
            let ended = there.over(None);
            slot.ended.get_or_init(|| ended.clone());
            self.remove(key, slot);
            drop(live.take());
            return Err(SessionError::Ended { name: key.name.clone(), ended });
        }
        *lock(&slot.used) = Instant::now();
        let root = slot.workspace.get().cloned().flatten();
        drop(live);
        drop(turn);
        Ok(Workspace { root, fresh })
    }
}

/// The workspace of a session that was started a moment ago: its interpreter may be ready before init's word is read.
pub(super) fn wait_for_workspace(live: &Live, expected: bool) -> Option<Arc<OwnedFd>> {
    let begun = Instant::now();
    loop {
        let root = live.workspace();
        if root.is_some() || !expected || live.handle().is_over() || begun.elapsed() > REPORT_LIMIT {
            return root;
        }
        std::thread::sleep(LOOK);
    }
}
