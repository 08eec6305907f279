//! Python exceptions. A hint is on a line of its own in the message.

use std::io::ErrorKind;

use cofferdam_engine::Failure;
use cofferdam_profiles::{CompileError, StoreError};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError};
use pyo3::{PyErr, create_exception};

use crate::hint_wording::{in_python, message_in_python};

create_exception!(
    cofferdam,
    CofferdamError,
    PyRuntimeError,
    "Nothing was started: the host cannot hold the policy, or something is missing."
);
create_exception!(cofferdam, PolicyError, PyValueError, "A policy or configuration says what cannot be.");
create_exception!(cofferdam, ProfileError, PyRuntimeError, "A profile cannot be evaluated, or is refused.");

/// A message with its hint.
fn hinted(message: impl std::fmt::Display, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{message}\nhint: {}", in_python(hint)),
        None => message.to_string(),
    }
}

/// The exception for a run that does not start.
pub(crate) fn of_failure(failure: &Failure) -> PyErr {
    CofferdamError::new_err(hinted(&failure.message, failure.hint.as_deref()))
}

/// The exception for an invalid profile.
pub(crate) fn of_compiler(error: &CompileError) -> PyErr {
    // If several sources are refused, the message has a hint for each.
    ProfileError::new_err(hinted(message_in_python(&error.message), error.hint.as_deref()))
}

/// Errors of the profile store, as the exceptions that Python raises for files.
pub(crate) fn of_store(error: &StoreError) -> PyErr {
    let text = hinted(error, error.hint().as_deref());
    match error {
        StoreError::Id(_) => PyValueError::new_err(error.to_string()),
        StoreError::Missing { .. } => PyFileNotFoundError::new_err(text),
        StoreError::Linked { .. } | StoreError::Untrusted { .. } => PyPermissionError::new_err(text),
        StoreError::Io { source, .. } => match source.kind() {
            ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
            ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
            _ => PyOSError::new_err(text),
        },
    }
}
