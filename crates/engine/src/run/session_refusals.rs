//! What a session was refused so far, while it lives: the supervisor collects it, and a call asks for what is new.
//!
//! Init writes of a refusal before the program goes on, and the gateway before it resets a connection, so by the time of an
//! answer the record lies in the supervisor's socket, or a descriptor of the gateway's is ready. The caller waits until it
//! has been read.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_egress::gateway::Repeats;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::outcome::Violation;

/// How long the supervisor is waited for.
const PATIENCE: Duration = Duration::from_millis(50);

/// A view of the supervisor's list.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    /// The supervisor's socket, and what else wakes it.
    events: OnceLock<Vec<OwnedFd>>,
    /// What the gateway counts before it tells.
    repeats: OnceLock<Repeats>,
    list: Mutex<Vec<Violation>>,
}

impl Tap {
    /// The supervisor begins.
    pub(crate) fn begin<'f>(&self, events: impl Iterator<Item = BorrowedFd<'f>>, repeats: Option<Repeats>) {
        if let Some(repeats) = repeats {
            self.repeats.get_or_init(|| repeats);
        }
        if let Ok(copies) = events.map(|fd| fd.try_clone_to_owned()).collect() {
            self.events.get_or_init(|| copies);
        }
    }

    /// The list, to be held while records are read and put into it.
    pub(crate) fn list(&self) -> MutexGuard<'_, Vec<Violation>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that was refused until now.
    pub(crate) fn until_now(&self) -> Vec<Violation> {
        let Some(events) = self.events.get() else { return Vec::new() };
        if let Some(repeats) = self.repeats.get() {
            repeats.catch_up();
        }
        let begun = Instant::now();
        let waits = || {
            let mut fds: Vec<PollFd<'_>> = events.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
                && !fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP))
        };
        while waits() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.list().clone()
    }
}

/// What of `now` was not yet `before`, with how often since. Entries are only ever added, so each has its place; where one
/// has not, it is looked for.
pub(crate) fn since(before: &[Violation], now: Vec<Violation>) -> Vec<Violation> {
    let what = |v: &Violation| (v.operation.clone(), v.object.clone(), v.field.clone(), v.aggregated);
    now.into_iter()
        .enumerate()
        .filter_map(|(at, mut violation)| {
            let same = |b: &&Violation| what(b) == what(&violation);
            let earlier = before.get(at).filter(same).or_else(|| before.iter().find(same));
            violation.count = violation.count.saturating_sub(earlier.map_or(0, |b| b.count));
            (violation.count > 0).then_some(violation)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Evidence;

    fn violation(operation: &str, count: u64) -> Violation {
        let (object, field) = (Some("x".to_owned()), "$.process.seccomp".to_owned());
        Violation {
            operation: operation.into(),
            object,
            field,
            evidence: Evidence::Kernel,
            pid: 2,
            count,
            aggregated: false,
        }
    }

    #[test]
    fn what_is_new_is_reported_with_its_count() {
        let before = [violation("ptrace", 2), violation("mount", 1)];
        let now = vec![violation("ptrace", 5), violation("mount", 1), violation("bpf", 1)];
        assert_eq!(since(&before, now), [violation("ptrace", 3), violation("bpf", 1)]);
    }

    #[test]
    fn a_tap_without_a_supervisor_has_nothing() {
        assert!(Tap::default().until_now().is_empty());
    }
}
