//! Python's lock for the threads of runs, while the interpreter is there.
//!
//! A thread that takes the lock while the interpreter ends, or has it then, ends the whole process by a fatal error. So at its
//! exit the interpreter waits until no such thread has the lock, and from then on none takes it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

#[derive(Debug)]
struct Threads {
    /// How many have the lock, or wait for it.
    inside: usize,
    /// The interpreter ends.
    closed: bool,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { inside: 0, closed: false });
static LEFT: Condvar = Condvar::new();

fn threads() -> MutexGuard<'static, Threads> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One that is inside, for as long as this lives.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        threads().inside -= 1;
        LEFT.notify_all();
    }
}

/// Does this with Python's lock. `None` once the interpreter ends.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let inside = {
        let mut threads = threads();
        if threads.closed {
            return None;
        }
        threads.inside += 1;
        Inside
    };
    let result = Python::try_attach(work);
    drop(inside);
    result
}

/// Python calls this when it begins to end: waits for the threads that are inside, and lets no more in.
#[pyfunction]
pub(crate) fn at_exit(py: Python<'_>) {
    py.detach(|| {
        let mut threads = threads();
        threads.closed = true;
        while threads.inside > 0 {
            threads = LEFT.wait(threads).unwrap_or_else(PoisonError::into_inner);
        }
    });
}

/// A fork(2) that is about to happen on this thread.
pub(crate) struct ForkGuard(MutexGuard<'static, Threads>);

impl ForkGuard {
    /// Holds the count as it is.
    pub(crate) fn begin() -> ForkGuard {
        ForkGuard(threads())
    }

    /// A forked process has none of its parent's other threads.
    pub(crate) fn in_child(mut self) {
        self.0.inside = 0;
    }
}
