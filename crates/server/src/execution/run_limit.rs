//! Limits how many runs are under way, and how many calls wait for one to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The default number of calls that may wait.
const DEFAULT_QUEUE: usize = 64;

/// The limiter that every run needs a permit of.
#[derive(Debug, Clone)]
pub(crate) struct RunLimiter {
    runs: Arc<Semaphore>,
    max_runs: usize,
    waiting: Arc<AtomicUsize>,
    max_waiting: usize,
}

/// Too many calls wait already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server is busy: {runs} runs are under way and {waiting} calls wait\nhint: call again when one has ended; cofferdam mcp --max-runs and --max-queue allow more"
)]
pub(crate) struct Busy {
    runs: usize,
    waiting: usize,
}

/// The permit for one run, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunPermit(#[allow(dead_code, reason = "released on drop")] OwnedSemaphorePermit);

/// Counts a waiting call until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RunLimiter {
    /// A limiter with these bounds; by default two runs for each processor, and 64 waiting limiter.
    pub(crate) fn new(runs: Option<usize>, queue: Option<usize>) -> RunLimiter {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let max_runs = runs.unwrap_or(processors * 2);
        RunLimiter {
            runs: Arc::new(Semaphore::new(max_runs)),
            max_runs,
            waiting: Arc::default(),
            max_waiting: queue.unwrap_or(DEFAULT_QUEUE),
        }
    }

    /// Waits for the permit for a run, first come, first served.
    ///
    /// # Errors
    /// Too many calls wait already.
    pub(crate) async fn acquire(&self) -> Result<RunPermit, Busy> {
        if let Ok(permit) = Arc::clone(&self.runs).try_acquire_owned() {
            return Ok(RunPermit(permit));
        }
        let before = self.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting(&self.waiting);
        if before >= self.max_waiting {
            return Err(Busy { runs: self.max_runs, waiting: before });
        }
        let permit = Arc::clone(&self.runs).acquire_owned().await.expect("the semaphore is never closed");
        drop(waiting);
        Ok(RunPermit(permit))
    }

    /// Whether one run is under way, and no call waits.
    pub(crate) fn is_only_run(&self) -> bool {
        self.runs.available_permits() + 1 >= self.max_runs && self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Waits until no run is under way.
    pub(crate) async fn idle(&self) {
        let all = u32::try_from(self.max_runs).unwrap_or(u32::MAX);
        drop(self.runs.acquire_many(all).await.expect("the semaphore is never closed"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn full_queue_is_busy_and_an_ended_run_frees_a_permit() {
        let limiter = RunLimiter::new(Some(1), Some(1));
        let first = limiter.acquire().await.unwrap();
        let queued = limiter.clone();
        let second = tokio::spawn(async move { queued.acquire().await.map(drop) });
        while limiter.waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let busy = limiter.acquire().await.unwrap_err().to_string();
        assert!(busy.contains("1 runs are under way and 1 calls wait") && busy.contains("hint: "), "{busy}");
        drop(first);
        second.await.unwrap().unwrap();
        limiter.acquire().await.unwrap();
        limiter.idle().await;
    }

    #[tokio::test]
    async fn a_run_is_the_only_one_while_no_other_runs_or_waits() {
        let limiter = RunLimiter::new(Some(2), Some(1));
        let first = limiter.acquire().await.unwrap();
        assert!(limiter.is_only_run());
        let second = limiter.acquire().await.unwrap();
        assert!(!limiter.is_only_run());
        let queued = limiter.clone();
        let third = tokio::spawn(async move { queued.acquire().await.map(drop) });
        while limiter.waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        drop(second);
        third.await.unwrap().unwrap();
        assert!(limiter.is_only_run());
        drop(first);
    }

    #[tokio::test]
    async fn cancelled_wait_leaves_the_queue() {
        let limiter = RunLimiter::new(Some(1), Some(1));
        let first = limiter.acquire().await.unwrap();
        let wait = tokio::time::timeout(std::time::Duration::from_millis(20), limiter.acquire());
        assert!(wait.await.is_err());
        assert_eq!(limiter.waiting.load(Ordering::SeqCst), 0);
        drop(first);
    }
}
