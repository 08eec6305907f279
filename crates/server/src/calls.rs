//! How many runs there are at a time, and how many calls wait for one to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that wait when nobody says otherwise.
const QUEUE: usize = 64;

/// The gate that every run goes through.
#[derive(Debug, Clone)]
pub struct Calls {
    runs: Arc<Semaphore>,
    most_runs: usize,
    waiting: Arc<AtomicUsize>,
    most_waiting: usize,
}

/// There are too many calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server is busy: {runs} runs are under way and {waiting} calls wait\nhint: call again when one has ended; cofferdam mcp --max-runs and --max-queue allow more"
)]
pub struct Busy {
    runs: usize,
    waiting: usize,
}

/// The right to one run, for as long as it is held.
#[derive(Debug)]
pub struct Turn(#[allow(dead_code, reason = "held")] OwnedSemaphorePermit);

/// One that waits. Dropped, it does not any more.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Calls {
    /// With these bounds, or what suits the machine.
    pub fn new(runs: Option<usize>, queue: Option<usize>) -> Calls {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let most_runs = runs.unwrap_or(processors * 2);
        Calls {
            runs: Arc::new(Semaphore::new(most_runs)),
            most_runs,
            waiting: Arc::default(),
            most_waiting: queue.unwrap_or(QUEUE),
        }
    }

    /// Waits for the right to a run, first come first served.
    ///
    /// # Errors
    /// Too many wait already.
    pub async fn turn(&self) -> Result<Turn, Busy> {
        if let Ok(permit) = Arc::clone(&self.runs).try_acquire_owned() {
            return Ok(Turn(permit));
        }
        let before = self.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting(&self.waiting);
        if before >= self.most_waiting {
            return Err(Busy { runs: self.most_runs, waiting: before });
        }
        let permit = Arc::clone(&self.runs).acquire_owned().await.expect("the gate is never closed");
        drop(waiting);
        Ok(Turn(permit))
    }

    /// Whether one run alone is under way, and none waits.
    pub fn is_one(&self) -> bool {
        self.runs.available_permits() + 1 >= self.most_runs && self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Waits until no run is under way.
    pub async fn idle(&self) {
        let all = u32::try_from(self.most_runs).unwrap_or(u32::MAX);
        drop(self.runs.acquire_many(all).await.expect("the gate is never closed"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_over_the_queue_is_told_and_what_ends_makes_room() {
        let calls = Calls::new(Some(1), Some(1));
        let first = calls.turn().await.unwrap();
        let queue = calls.clone();
        let second = tokio::spawn(async move { queue.turn().await.map(drop) });
        while calls.waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let told = calls.turn().await.unwrap_err().to_string();
        assert!(told.contains("1 runs are under way and 1 calls wait") && told.contains("hint: "), "{told}");
        drop(first);
        second.await.unwrap().unwrap();
        calls.turn().await.unwrap();
        calls.idle().await;
    }

    #[tokio::test]
    async fn one_run_is_one_only_while_nothing_else_runs_or_waits() {
        let calls = Calls::new(Some(2), Some(1));
        let first = calls.turn().await.unwrap();
        assert!(calls.is_one());
        let second = calls.turn().await.unwrap();
        assert!(!calls.is_one());
        let queue = calls.clone();
        let third = tokio::spawn(async move { queue.turn().await.map(drop) });
        while calls.waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        drop(second);
        third.await.unwrap().unwrap();
        assert!(calls.is_one());
        drop(first);
    }

    #[tokio::test]
    async fn who_gives_up_waiting_leaves_the_queue() {
        let calls = Calls::new(Some(1), Some(1));
        let first = calls.turn().await.unwrap();
        let wait = tokio::time::timeout(std::time::Duration::from_millis(20), calls.turn());
        assert!(wait.await.is_err());
        assert_eq!(calls.waiting.load(Ordering::SeqCst), 0);
        drop(first);
    }
}
