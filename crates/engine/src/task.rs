//! A run on a thread of its own: as a handle to ask and to stop, and as a future.
//!
//! The future starts the thread when it is first polled, and cancels the run when it is dropped. No runtime: the thread
//! wakes the task that polled last.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::io::Cancel;
use crate::monitor::{Monitor, ResourceUsage, Samples};
use crate::outcome::Outcome;

/// What a run comes to: the outcome, or why its configuration could not be used.
pub type RunResult = Result<Outcome, String>;

/// How far a run is, and who waits for it.
struct TaskSlot<T> {
    came: Option<Result<T, String>>,
    over: bool,
    waker: Option<Waker>,
}

struct TaskShared<T> {
    slot: Mutex<TaskSlot<T>>,
    done: Condvar,
}

impl<T> Default for TaskShared<T> {
    fn default() -> Self {
        TaskShared { slot: Mutex::new(TaskSlot { came: None, over: false, waker: None }), done: Condvar::new() }
    }
}

impl<T> TaskShared<T> {
    fn lock(&self) -> MutexGuard<'_, TaskSlot<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, came: Result<T, String>) {
        let waker = {
            let mut slot = self.lock();
            (slot.came, slot.over) = (Some(came), true);
            slot.waker.take()
        };
        self.done.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Says that the run came to nothing if its thread ends without a word.
struct Promise<T>(Arc<TaskShared<T>>);

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let unkept = !self.0.lock().over;
        if unkept {
            self.0.set(Err("the run's thread ended unexpectedly".into()));
        }
    }
}

/// A run under way.
pub struct Handle<T = Outcome> {
    shared: Arc<TaskShared<T>>,
    cancel: Cancel,
    monitor: Monitor,
}

impl<T: Send + 'static> Handle<T> {
    /// Starts a thread that runs it; it is handed the flag that stops it and the slot for its figures.
    pub fn start(
        cancel: Cancel,
        monitor: Monitor,
        run: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Handle<T> {
        Handle::start_on(std::thread::Builder::new(), cancel, monitor, run)
    }

    fn start_on(
        thread: std::thread::Builder,
        cancel: Cancel,
        monitor: Monitor,
        run: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Handle<T> {
        let shared = Arc::new(TaskShared::default());
        let promise = Promise(Arc::clone(&shared));
        let work = move || {
            let came = run();
            promise.0.set(came);
        };
        let handle = Handle { shared, cancel, monitor };
        // The thread ends by itself, and says how through the promise: nobody joins it.
        if let Err(error) = thread.name("cofferdam-run".into()).spawn(work) {
            handle.shared.set(Err(format!(
                "cannot start a thread for the run: {error}; hint: more threads, or more memory, have to be allowed here (ulimit -u, the cgroup's pids.max)"
            )));
        }
        handle
    }

    /// What the sandbox uses now; `None` before it has begun and once it is over.
    pub fn usage(&self) -> Option<ResourceUsage> {
        self.monitor.usage()
    }

    /// A snapshot every `interval` until the run is over.
    pub fn samples(&self, interval: Duration) -> Samples {
        self.monitor.every(interval)
    }

    /// Ends the run: the whole tree is killed.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.shared.lock().over
    }

    /// Waits for the end. `None`: it was taken already.
    pub fn wait(&self) -> Option<Result<T, String>> {
        let mut slot = self.shared.lock();
        while !slot.over {
            slot = self.shared.done.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        slot.came.take()
    }

    /// Waits for the end, so long at most; `None` when it is not over by then.
    pub fn wait_for(&self, patience: Duration) -> Option<Result<T, String>> {
        let slot = self.shared.lock();
        let waiting = self.shared.done.wait_timeout_while(slot, patience, |slot| !slot.over);
        waiting.unwrap_or_else(PoisonError::into_inner).0.came.take()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<T, String>> {
        let mut slot = self.shared.lock();
        match slot.came.take() {
            Some(came) => Poll::Ready(came),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A run as a future, which starts when it is polled and is killed when it is dropped.
pub struct Task<T: Send + 'static = Outcome> {
    state: TaskState<T>,
}

enum TaskState<T> {
    Waiting(Option<Box<dyn FnOnce() -> Handle<T> + Send>>),
    Running(Handle<T>),
}

impl<T: Send + 'static> Task<T> {
    /// A future of what `start` starts.
    pub fn new(start: impl FnOnce() -> Handle<T> + Send + 'static) -> Task<T> {
        Task { state: TaskState::Waiting(Some(Box::new(start))) }
    }
}

impl<T: Send + 'static> Future for Task<T> {
    type Output = Result<T, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let TaskState::Waiting(start) = &mut self.state {
            let Some(start) = start.take() else { return Poll::Pending };
            self.state = TaskState::Running(start());
        }
        match &self.state {
            TaskState::Running(handle) => handle.poll(context),
            TaskState::Waiting(_) => Poll::Pending,
        }
    }
}

impl<T: Send + 'static> Drop for Task<T> {
    fn drop(&mut self) {
        if let TaskState::Running(handle) = &self.state {
            handle.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(thread: std::thread::Builder, run: fn() -> Result<u8, String>) -> Result<u8, String> {
        Handle::start_on(thread, Cancel::default(), Monitor::default(), run).wait().expect("nobody else takes it")
    }

    #[test]
    fn a_thread_that_cannot_be_started_is_reported_as_that() {
        let why = came(std::thread::Builder::new().stack_size(1 << 60), || Ok(1)).unwrap_err();
        assert!(why.starts_with("cannot start a thread for the run: ") && why.contains("hint: "), "{why}");
        assert_eq!(came(std::thread::Builder::new(), || Ok(1)), Ok(1));
        let panicked = came(std::thread::Builder::new(), || panic!("on purpose"));
        assert_eq!(panicked, Err("the run's thread ended unexpectedly".into()));
    }
}
