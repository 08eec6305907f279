//! What fork(2) needs: a child must not keep its parent's runs alive, nor wait for its threads. Python calls these around each
//! `os.fork`.

use std::cell::RefCell;

use crate::attach;
use cofferdam_engine::Fork;
use pyo3::prelude::*;

thread_local! {
    /// The fork that this thread is about to make.
    static BEGUN: RefCell<Option<(Fork, attach::ForkGuard)>> = const { RefCell::new(None) };
}

/// Holds the lifelines of all runs as they are.
#[pyfunction]
pub(crate) fn before_fork() {
    BEGUN.set(Some((Fork::begin(), attach::ForkGuard::begin())));
}

/// Lets them go.
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    BEGUN.take();
}

/// Closes the copies that the child has.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    if let Some((lifelines, threads)) = BEGUN.take() {
        lifelines.in_child();
        threads.in_child();
    }
}
