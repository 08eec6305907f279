//! What can go wrong, as Python exceptions. Each has the hint, where there is one, on a line of its own.

use std::io::ErrorKind;

use cofferdam_engine::Failure;
use cofferdam_profiles::{CompileError, StoreError};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError};
use pyo3::{PyErr, create_exception};

create_exception!(
    cofferdam,
    CofferdamError,
    PyRuntimeError,
    "Nothing was started: the host cannot hold the policy, or something is missing."
);
create_exception!(cofferdam, PolicyError, PyValueError, "A policy or configuration says what cannot be.");
create_exception!(cofferdam, ProfileError, PyRuntimeError, "A profile cannot be evaluated, or is refused.");

/// A text and what a user can do about it.
fn hinted(message: impl std::fmt::Display, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{message}\nhint: {hint}"),
        None => message.to_string(),
    }
}

/// Why nothing runs.
pub fn of_failure(failure: &Failure) -> PyErr {
    CofferdamError::new_err(hinted(&failure.message, failure.hint.as_deref().map(in_python).as_deref()))
}

/// The hint of a command line, where Python has no such option.
fn in_python(hint: &str) -> String {
    match hint.strip_prefix("--best-effort=").and_then(|rest| rest.split_once(' ')) {
        Some((fields, rest)) => {
            let fields = fields.replace(',', "\", \"");
            format!(
                "enforcement.best_effort = [\"{fields}\"] in the policy, best_effort in a skill's configuration, {rest}"
            )
        }
        None => hint.to_owned(),
    }
}

/// Why a profile is none.
pub fn of_compiler(error: &CompileError) -> PyErr {
    ProfileError::new_err(hinted(&error.message, error.hint.as_deref()))
}

/// What the profile store refuses, as the exceptions that Python's own files have.
pub fn of_store(error: &StoreError) -> PyErr {
    let text = hinted(error, error.hint().as_deref());
    match error {
        StoreError::Id(_) => PyValueError::new_err(error.to_string()),
        StoreError::Missing { .. } => PyFileNotFoundError::new_err(text),
        StoreError::Untrusted { .. } => PyPermissionError::new_err(text),
        StoreError::Io { source, .. } => match source.kind() {
            ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
            ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
            _ => PyOSError::new_err(text),
        },
    }
}
