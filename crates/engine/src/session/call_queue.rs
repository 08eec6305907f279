//! Whose turn it is: calls of one session go one after the other, in the order in which they came, up to a bound.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::io::Cancel;

/// The line of one session.
#[derive(Debug, Default)]
pub(super) struct CallQueue {
    state: Mutex<QueueState>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// The next number to be given out.
    next: u64,
    /// Numbers under way or waiting, in order.
    waiting: Vec<u64>,
}

/// Why it did not come to one's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueFailure {
    /// More wait than may.
    Full,
    /// It took too long.
    Late,
    /// The caller no longer wants it.
    Cancelled,
}

/// One's turn, until it is dropped.
#[derive(Debug)]
pub(super) struct QueueTurn<'a> {
    line: &'a CallQueue,
    number: u64,
}

/// How often a waiting caller's wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(20);

impl CallQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are in the line, the one whose turn it is among them.
    pub(super) fn length(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Waits for one's turn behind at most `most` others, for at most `patience`.
    ///
    /// # Errors
    /// Why it did not come.
    pub(super) fn wait(&self, most: usize, patience: Duration, cancel: &Cancel) -> Result<QueueTurn<'_>, QueueFailure> {
        let mut state = self.lock();
        if state.waiting.len() > most {
            return Err(QueueFailure::Full);
        }
        let number = state.next;
        state.next += 1;
        state.waiting.push(number);
        // Dropped on the way out, it leaves the line.
        let turn = QueueTurn { line: self, number };
        let begun = Instant::now();
        while state.waiting.first() != Some(&number) {
            let left = patience.saturating_sub(begun.elapsed());
            let why = if cancel.is_cancelled() {
                Some(QueueFailure::Cancelled)
            } else {
                left.is_zero().then_some(QueueFailure::Late)
            };
            if let Some(why) = why {
                drop(state);
                drop(turn);
                return Err(why);
            }
            state = self.moved.wait_timeout(state, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(turn)
    }
}

impl Drop for QueueTurn<'_> {
    fn drop(&mut self) {
        self.line.lock().waiting.retain(|number| *number != self.number);
        self.line.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn turns_come_in_the_order_in_which_they_were_asked_for() {
        let line = Arc::new(CallQueue::default());
        let first = line.wait(9, LONG, &Cancel::default()).unwrap();
        let served = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..5)
            .map(|i| {
                let (line, served) = (line.clone(), served.clone());
                let theirs = line.clone();
                let thread = std::thread::spawn(move || {
                    let _turn = theirs.wait(9, LONG, &Cancel::default()).unwrap();
                    assert_eq!(served.fetch_add(1, Ordering::SeqCst), i);
                });
                while line.length() < i + 2 {
                    std::thread::yield_now();
                }
                thread
            })
            .collect();
        drop(first);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((served.load(Ordering::SeqCst), line.length()), (5, 0));
    }

    #[test]
    fn a_full_line_a_late_turn_and_a_cancelled_one_leave_nothing_behind() {
        let line = CallQueue::default();
        let turn = line.wait(0, LONG, &Cancel::default()).unwrap();
        assert_eq!(line.wait(0, LONG, &Cancel::default()).unwrap_err(), QueueFailure::Full);
        assert_eq!(line.wait(1, Duration::from_millis(1), &Cancel::default()).unwrap_err(), QueueFailure::Late);
        let cancelled = Cancel::default();
        cancelled.cancel();
        assert_eq!(line.wait(1, LONG, &cancelled).unwrap_err(), QueueFailure::Cancelled);
        assert_eq!(line.length(), 1);
        drop(turn);
        assert!(line.wait(0, LONG, &Cancel::default()).is_ok());
    }
}
