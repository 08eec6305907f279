//! What a call asks for, and what it results in. Both are the same for a run of its own and for a call in a session.

use std::sync::Arc;

use cofferdam_engine::{Cancel, Failure, Outcome};

use super::progress::CallProgress;
use crate::environments::ServedEnvironment;
use crate::workspace::output::OutputFiles;

/// Longest code that is run, bytes.
pub(crate) const LONGEST_CODE: usize = 16 << 20;

/// A request to run code.
#[derive(Debug)]
pub(crate) struct ExecutionCall {
    /// The environment to run it in.
    pub environment: Arc<ServedEnvironment>,
    /// The code.
    pub code: String,
    /// Cancels the call.
    pub cancel: Cancel,
    /// Receives output and steps, if the client asked for progress.
    pub progress: Option<Arc<CallProgress>>,
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct CallOutcome {
    /// The engine's outcome.
    pub outcome: Outcome,
    /// The files of the output directory.
    pub files: OutputFiles,
    /// The state of its session, if it was a call in one.
    pub session: Option<SessionStatus>,
    /// What the code lacked, and the key of the configuration that gives it.
    pub hints: Vec<String>,
}

impl CallOutcome {
    /// Nothing ran.
    pub(crate) fn failed(failure: Failure) -> CallOutcome {
        let outcome = Outcome::unstarted(Some(failure));
        CallOutcome { outcome, files: OutputFiles::default(), session: None, hints: Vec::new() }
    }
}

/// The state of a session after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionStatus {
    /// Its name.
    pub name: String,
    /// Whether this call began it.
    pub fresh: bool,
    /// Whether this call was interrupted before it had finished.
    pub interrupted: bool,
    /// Why it has ended; `None` while it lives.
    pub over: Option<String>,
}
