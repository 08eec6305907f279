//! Records runs in the audit trail that a call names, or else in that of `COFFERDAM_AUDIT`.
//!
//! A process opens each trail once. A forked process opens it again, since records name their process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cofferdam_engine::audit::{Trail, TrailOptions};
use cofferdam_engine::audited_run::{RunDetails, Unrecorded};
use cofferdam_engine::{Io, Outcome, Prepared};
use cofferdam_policy::Policy;
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::{PyErr, PyResult, Python};

use crate::errors::CofferdamError;

/// The open trails, each with the process that opened it.
static OPEN: Mutex<Vec<(u32, PathBuf, Trail)>> = Mutex::new(Vec::new());

/// The trail that a run is recorded in, if one is named.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn trail(named: Option<&Path>) -> PyResult<Option<Trail>> {
    let variable = || std::env::var_os("COFFERDAM_AUDIT").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    named.map(Path::to_owned).or_else(variable).map(|dir| opened(&dir)).transpose()
}

fn opened(dir: &Path) -> PyResult<Trail> {
    let fails =
        |why: String| CofferdamError::new_err(format!("nothing was started, since it cannot be recorded: {why}"));
    let dir = std::path::absolute(dir).map_err(|e| fails(e.to_string()))?;
    let me = std::process::id();
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., trail)) = open.iter().find(|(pid, path, _)| *pid == me && *path == dir) {
        return Ok(trail.clone());
    }
    let trail = Trail::open(&dir, TrailOptions::default()).map_err(|e| fails(e.to_string()))?;
    if let Some(warning) = trail.warning() {
        warn(&warning)?;
    }
    open.push((me, dir, trail.clone()));
    Ok(trail)
}

/// Raises a Python `RuntimeWarning`, which the caller may have turned into an error.
fn warn(message: &str) -> PyResult<()> {
    let message = std::ffi::CString::new(message.replace('\0', " ")).unwrap_or_default();
    Python::attach(|py| PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1))
}

/// Runs it, with records if there is a trail. A run that cannot be recorded does not start, or does not count as a success.
pub(crate) fn run(prepared: &Prepared, policy: &Policy, trail: Option<&Trail>, io: Io) -> Outcome {
    match trail {
        Some(trail) => {
            prepared.run_recorded(io, policy, trail, RunDetails::default()).unwrap_or_else(Unrecorded::into_outcome)
        }
        None => prepared.run(io),
    }
}
