//! The recorder interface of a guard: each decision before anything runs, and how each run ended.

/// One thing to record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardEvent {
    /// A command was asked for and decided on.
    Decided {
        /// The command as it was asked for.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// The file that its name resolves to; `None` if there is none, or it was not looked up.
        executable: Option<String>,
        /// The rule that allowed it.
        rule: Option<String>,
        /// Why it was refused; `None` when it was not.
        refused: Option<String>,
    },
    /// A command that was allowed has ended.
    Ended {
        /// The command as it was asked for.
        command: String,
        /// The run, as the outcome names it.
        run_id: String,
        /// Exit code, 128 + N for signal N; `None` where it was ended by a limit or never began.
        exit_code: Option<i32>,
        /// From its start to its end, milliseconds.
        duration_ms: u64,
    },
}

/// Keeps a record, such as an audit trail. Called on the thread that decides or runs.
pub trait Recorder: Send + Sync {
    /// Keeps one event.
    ///
    /// # Errors
    /// It could not be recorded. A command whose decision cannot be recorded is refused.
    fn record(&self, event: &GuardEvent) -> Result<(), String>;
}
