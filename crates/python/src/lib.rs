//! The module `cofferdam._native`: policies made ready, runs, profiles and results as Python objects.
//!
//! ```text
//! policy, configuration ─▶ Prepared ─┬─ run ──▶ Outcome            on the calling thread, without Python's lock
//!                                    └─ start ─▶ Run ─ wait ─▶ Outcome   on a thread of its own
//! ```
//!
//! Converts and waits; decides nothing about safety, which is the engine's. What is asynchronous, and how things are
//! called by people, stands in python/cofferdam.
#![forbid(unsafe_code)]

mod errors;
mod here;
mod hints;
mod outcome;
mod prepared;
mod profiles;
mod recorded;
mod run;

use pyo3::prelude::*;

/// What `cofferdam` is made of.
#[pymodule]
mod _native {
    use std::path::PathBuf;

    use cofferdam_compat as compat;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::errors::{CofferdamError, PolicyError, ProfileError};
    #[pymodule_export]
    use crate::outcome::{ExecutionResult, Outcome, ResourceUsage};
    #[pymodule_export]
    use crate::prepared::Prepared;
    #[pymodule_export]
    use crate::profiles::{Store, compile_profile};
    #[pymodule_export]
    use crate::run::{Run, Samples};

    /// `linux`, `macos` or `unknown`.
    #[pyfunction]
    fn detect_platform() -> String {
        compat::detect_platform()
    }

    /// Whether there is an nsjail that can be used: at this path, or on `PATH`.
    #[pyfunction]
    #[pyo3(signature = (nsjail_path=None))]
    fn is_nsjail_available(py: Python<'_>, nsjail_path: Option<PathBuf>) -> bool {
        py.detach(|| compat::is_nsjail_available(nsjail_path.as_deref()))
    }

    /// Whether macOS's Seatbelt is here.
    #[pyfunction]
    fn is_seatbelt_available(py: Python<'_>) -> bool {
        py.detach(compat::is_seatbelt_available)
    }
}
