//! The module `cofferdam._native`: prepared policies, runs, profiles and results as Python objects.
//!
//! ```text
//! policy, configuration ─▶ Prepared ─┬─ run ──▶ Outcome            on the calling thread, without Python's lock
//!                                    └─ start ─▶ Run ─ wait ─▶ Outcome   on a thread of its own
//! ```
//!
//! Converts and waits; the engine decides what is safe. Asynchronous functions and the public interface are in python/cofferdam.
#![forbid(unsafe_code)]

mod attach;
mod audit;
mod errors;
mod fork;
mod hint_wording;
mod host;
mod outcome;
mod prepared;
mod profiles;
mod run;

use pyo3::prelude::*;

/// The native part of `cofferdam`.
#[pymodule]
mod _native {
    use std::path::PathBuf;

    use cofferdam_compat as compat;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::attach::at_exit;
    #[pymodule_export]
    use crate::errors::{CofferdamError, PolicyError, ProfileError};
    #[pymodule_export]
    use crate::fork::{after_fork_in_child, after_fork_in_parent, before_fork};
    #[pymodule_export]
    use crate::outcome::{PyExecutionResult, PyOutcome, PyResourceUsage};
    #[pymodule_export]
    use crate::prepared::PyPrepared;
    #[pymodule_export]
    use crate::profiles::{PyProfileStore, compile_profile};
    #[pymodule_export]
    use crate::run::{PyRun, PySamples};

    /// `linux`, `macos` or `unknown`.
    #[pyfunction]
    fn detect_platform() -> String {
        compat::detect_platform()
    }

    /// Whether a usable nsjail exists at this path, or on `PATH`.
    #[pyfunction]
    #[pyo3(signature = (nsjail_path=None))]
    fn is_nsjail_available(py: Python<'_>, nsjail_path: Option<PathBuf>) -> bool {
        py.detach(|| compat::is_nsjail_available(nsjail_path.as_deref()))
    }

    /// Whether macOS's Seatbelt is available.
    #[pyfunction]
    fn is_seatbelt_available(py: Python<'_>) -> bool {
        py.detach(compat::is_seatbelt_available)
    }
}
