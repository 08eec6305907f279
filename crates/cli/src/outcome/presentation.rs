//! How the result of a run is presented, and the exit code that it stands for. Pure.

use clap::ArgMatches;
use cofferdam_engine::{Ending, Outcome};

use crate::refusal::REFUSED;

/// How the result of a run is presented.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Presentation {
    /// The outcome as JSON on standard output instead of the program's output.
    pub json: bool,
    /// The runner's result as JSON instead: `{success, exitCode, stdout, stderr, durationMs}`, 137 for the wall limit.
    pub result: bool,
    /// No notes about limits and refusals on standard error.
    pub quiet: bool,
    /// Policy and plan only; nothing starts.
    pub dry_run: bool,
}

impl Presentation {
    /// As the arguments of `run` or `eval` ask for it.
    pub(crate) fn of_sandbox(matches: &ArgMatches) -> Presentation {
        let flag = |name| matches.get_flag(name);
        Presentation { json: flag("json"), result: false, quiet: flag("quiet"), dry_run: flag("dry-run") }
    }

    /// As the arguments of `skill run` ask for it.
    pub(crate) fn of_skill(matches: &ArgMatches) -> Presentation {
        Presentation { result: matches.get_flag("result"), ..Presentation::of_sandbox(matches) }
    }
}

/// The exit code that an outcome stands for.
pub(crate) fn exit_code(outcome: &Outcome) -> i32 {
    match outcome.outcome {
        Ending::Exited => outcome.exit_code.unwrap_or(REFUSED),
        Ending::Signalled => 128 + outcome.signal.unwrap_or(9),
        Ending::TimedOut => 124,
        // SIGKILL ends both.
        Ending::LimitExceeded | Ending::Violation => 137,
        Ending::SetupFailed => outcome.error.as_ref().map_or(REFUSED, |failure| failure.code),
    }
}
