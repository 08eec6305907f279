//! Progress of what takes long before a run: pulls and unpacked images. Only reported.

use std::sync::Arc;

/// Called with the progress of a pull.
pub type ProgressCallback = Arc<dyn Fn(Progress) + Send + Sync>;

/// How far something long is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What is being done, such as `pulling alpine:3.20`.
    pub what: String,
    /// Bytes so far.
    pub done: u64,
    /// Bytes in all, where that is known.
    pub total: Option<u64>,
}
