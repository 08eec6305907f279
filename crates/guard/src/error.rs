//! Why a guard cannot be built, why a command was refused, and both as the single string that some callers need.

use cofferdam_policy::Field;
use cofferdam_policy::text::one_line;

use super::result::ExecutionResult;
use cofferdam_engine::Failure;

/// Why a guard cannot be built. It never becomes a weaker one instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The caller is root.
    #[error("a guard refuses to run as root\nhint: run it as an ordinary user, or set run_as_root = true")]
    Root,
    /// A mode that enforces nothing.
    #[error(
        "mode = \"rwx\" holds nothing, and a guard is what it holds\nhint: use \"sandbox\" or \"rx\", and name further directories under `writable`"
    )]
    Unwalled,
    /// Reads can be limited in one mode only.
    #[error("enforce_reads is for mode = \"sandbox\"; \"rx\" reads everywhere\nhint: leave one of them out")]
    Reads,
    /// A directory that commands are to write.
    #[error("{path:?} cannot be {what}: {reason}")]
    Directory {
        /// What it was to be.
        what: &'static str,
        /// As it was given.
        path: String,
        /// Why not.
        reason: String,
    },
    /// An entry of `allowed_commands`.
    #[error("allowed_commands: {command:?}: {reason}")]
    Rule {
        /// The rule's command.
        command: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A pattern that is no regular expression.
    #[error("allowed_commands: {command:?}: args = {pattern:?} is no regular expression: {source}")]
    Pattern {
        /// The rule's command.
        command: String,
        /// The pattern.
        pattern: String,
        /// Why not.
        source: regex_lite::Error,
    },
    /// A rule's own example fails.
    #[error("allowed_commands: {command:?}: args = {pattern:?} {} the example `{}`, which stands under {}", if *.matches { "matches" } else { "does not match" }, one_line(.line), if *.matches { "not_match" } else { "match" })]
    Example {
        /// The rule's command.
        command: String,
        /// The pattern.
        pattern: String,
        /// The line of arguments.
        line: String,
        /// Whether it matches.
        matches: bool,
    },
    /// An entry of `helpers` or `workspace_programs`.
    #[error("{table}: {entry:?}: {reason}")]
    Helper {
        /// Which table.
        table: &'static str,
        /// The entry.
        entry: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// An entry of `keep_variables` or `strip_variables`.
    #[error("{table}: {entry:?} is no name of a variable\nhint: name each of them; patterns are not expanded")]
    Variable {
        /// Which table.
        table: &'static str,
        /// The entry.
        entry: String,
    },
    /// An entry of `blocked_paths` that cannot be enforced.
    #[error("blocked_paths: {path:?}: {reason}")]
    Blocked {
        /// As it was given.
        path: String,
        /// Why not.
        reason: String,
    },
    /// A number out of its range, or something else that no policy can have.
    #[error("no policy can be made of this: {0}")]
    Policy(String),
    /// This host cannot hold it.
    #[error("{}{}", .0.message, hint(.0))]
    Host(Failure),
}

/// Why a command was not run, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `enabled = false`.
    #[error("{}: refused by enabled = false: nothing is executed", plain(.command))]
    Disabled {
        /// The command as it was asked for.
        command: String,
    },
    /// No rule allows what the name leads to.
    #[error("{}: refused by allowed_commands: {reason}", plain(.command))]
    NotAllowed {
        /// The command as it was asked for.
        command: String,
        /// What it leads to, and what would allow it.
        reason: String,
    },
    /// Rules allow the command, and none allows these arguments.
    #[error("{}: refused by allowed_commands: no pattern of {rules} allows the arguments `{}`", plain(.command), one_line(.line))]
    Arguments {
        /// The command as it was asked for.
        command: String,
        /// The rules' patterns.
        rules: String,
        /// The line of arguments.
        line: String,
    },
    /// There is no such program, or it cannot be executed.
    #[error("{}: {reason}", plain(.command))]
    NotFound {
        /// The command as it was asked for.
        command: String,
        /// Where it was looked for, or what it is instead.
        reason: String,
    },
    /// A blocked path cannot be enforced at this moment.
    #[error("{}: refused by blocked_paths: {reason}", plain(.command))]
    Blocked {
        /// The command as it was asked for.
        command: String,
        /// Which one, and why.
        reason: String,
    },
    /// It ran longer than it may.
    #[error("{}: ended by max_execution_time_secs = {limit_secs}: it ran longer than {limit_secs} s", plain(.command))]
    Timeout {
        /// The command as it was asked for.
        command: String,
        /// The limit, seconds.
        limit_secs: u64,
        /// Its output until then.
        output: Box<ExecutionResult>,
    },
    /// It used more than it may.
    #[error("{}: ended by {limit}: it used more than that", plain(.command))]
    Limit {
        /// The command as it was asked for.
        command: String,
        /// Which limit.
        limit: Field,
        /// Its output until then.
        output: Box<ExecutionResult>,
    },
    /// The recorder could not record the decision, so nothing was run.
    #[error("{}: not run, since the decision could not be recorded: {reason}", plain(.command))]
    Record {
        /// The command as it was asked for.
        command: String,
        /// What the recorder said.
        reason: String,
    },
    /// The sandbox could not be created.
    #[error("{}: {}{}", plain(.command), plain(&.failure.message), hint(.failure))]
    Setup {
        /// The command as it was asked for.
        command: String,
        /// The step, and why.
        failure: Failure,
    },
    /// The run ended without an answer.
    #[error("{}: {reason}", plain(.command))]
    Lost {
        /// The command as it was asked for.
        command: String,
        /// What is known.
        reason: String,
    },
}

impl Refusal {
    /// The output of a command that a limit ended; `None` if nothing ran.
    pub fn output(&self) -> Option<&ExecutionResult> {
        match self {
            Refusal::Timeout { output, .. } | Refusal::Limit { output, .. } => Some(output),
            _ => None,
        }
    }
}

/// A name as it is shown: on one line, with nothing in it that steers a terminal or turns letters round. Whoever asked
/// for the command wrote it, and where it is shown is often a log.
pub(super) fn plain(name: &str) -> String {
    if name.is_empty() { "\"\"".into() } else { one_line(name) }
}

fn hint(failure: &Failure) -> String {
    failure.hint.as_ref().map_or_else(String::new, |hint| format!("\nhint: {hint}"))
}

/// Any error of the guard as one string: command, rule and reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// What went wrong.
    #[error("sandbox error: {0}")]
    Sandbox(String),
}

/// Characters of a stream's end that an error's text has.
const SHOWN: usize = 400;

impl From<Refusal> for SandboxError {
    /// The refusal's text; of a command that a limit ended, with the end of what it had printed.
    fn from(refusal: Refusal) -> Self {
        let mut text = refusal.to_string();
        for (name, stream) in
            refusal.output().into_iter().flat_map(|result| [("output", &result.stdout), ("errors", &result.stderr)])
        {
            let stream = stream.trim_end();
            if !stream.is_empty() {
                let from = stream.char_indices().rev().nth(SHOWN - 1).map_or(0, |(at, _)| at);
                let cut = if from > 0 { "\u{2026}" } else { "" };
                text.push_str(&format!("; its {name} until then: `{cut}{}`", one_line(&stream[from..])));
            }
        }
        SandboxError::Sandbox(text)
    }
}

impl From<GuardError> for SandboxError {
    fn from(error: GuardError) -> Self {
        SandboxError::Sandbox(error.to_string())
    }
}
