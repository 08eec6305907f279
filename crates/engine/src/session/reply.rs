//! What callers ask of sessions, and what they get.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_policy::{Field, Policy};

use super::agent::Agent;
use crate::audited_run::RunDetails;
use crate::failure::{FailedStep, Failure};
use crate::io::{Cancel, Output};
use crate::outcome::{Ending, FileChange, Outcome, Truncated, Violation};
use cofferdam_audit::Trail;

/// Which session: the owner's name for it. Owners do not see each other's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// Who asks, such as a connection. The caller of this crate vouches for it.
    pub owner: String,
    /// The owner's own word, or one of [`super::Sessions::new_name`]: 1 to 128 characters, none of them a control character.
    pub name: String,
}

/// Bounds of all sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions at a time, of all owners.
    pub sessions: usize,
    /// Sessions at a time of one owner.
    pub per_owner: usize,
    /// Calls that wait for their turn in one session.
    pub waiting: usize,
    /// How long a session may be without a call.
    pub idle: Duration,
    /// How long a session may live: the wall limit of its sandbox.
    pub lifetime: Duration,
    /// How long a session may take to start.
    pub start: Duration,
    /// How long a call that was interrupted may take to end, before its session is ended.
    pub grace: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        SessionLimits {
            sessions: 64,
            per_owner: 16,
            waiting: 16,
            idle: Duration::from_secs(300),
            lifetime: Duration::from_secs(3600),
            start: Duration::from_secs(30),
            grace: Duration::from_millis(500),
        }
    }
}

/// What a session is started with.
#[derive(Debug, Clone)]
pub struct SessionStart {
    /// Its command is the interpreter and its options, without code; an agent of ours follows as the last arguments. Its
    /// wall limit is replaced by the sessions' lifetime; the other limits hold for the whole session.
    pub policy: Policy,
    /// What the command speaks.
    pub agent: Agent,
    /// The tmpfs that the policy mounts here comes with each answer, and the directory of the second name is made in it
    /// before the interpreter starts, as by [`crate::Prepared::hands_back`].
    pub hands_over: Option<(String, String)>,
    /// The trail in which the session and its calls are recorded, and what is said of it there.
    pub recorded: Option<(Trail, RunDetails)>,
}

/// One call.
pub struct SessionCall {
    /// The code.
    pub code: String,
    /// How long it may take, waiting for its turn and the start of the session apart.
    pub timeout: Duration,
    /// Where its output goes, up to the policy's `limits.output_bytes` of each stream.
    pub output: Output,
    /// Set from anywhere: the call is interrupted as by its timeout.
    pub cancel: Cancel,
    /// Nobody hears the answer of a call that was cancelled. Where that ended the session, the next call by its name is told.
    pub unheard_when_cancelled: bool,
}

/// The answer to a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionAnswer {
    /// Exit code: as of the interpreter with this code. `None` where the call did not come to its end.
    pub exit_code: Option<i32>,
    /// Standard output, where it was captured; bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Which of them was longer than the cap.
    pub truncated: Truncated,
    /// It was interrupted, by its timeout ([`Why::TimedOut`]) or by the caller ([`Why::Cancelled`]). Where `ended` is
    /// `None` all the same, the interpreter is as the interrupted code left it.
    pub interrupted: Option<Why>,
    /// The session is over, and this is how it ended. The next call by this name starts a new one.
    pub ended: Option<SessionEnd>,
    /// This call started the session: there was no state before it.
    pub fresh: bool,
    /// How long it took, from the request to the answer.
    pub duration: Duration,
    /// CPU time of the session's tree since the answer before, seconds.
    pub cpu_time_seconds: Option<f64>,
    /// Memory of the session's tree when the answer came, bytes.
    pub memory_used_bytes: Option<u64>,
    /// What was refused since the answer before, as far as the policy's `audit` has it recorded.
    pub violations: Vec<Violation>,
    /// What the session's copy-on-write mounts changed so far.
    pub changes: Vec<FileChange>,
    /// How many more changes there are, at least.
    pub changes_omitted: u64,
    /// Root of the tmpfs that [`SessionStart::hands_over`] names; the jail alone has one. Nothing in it is trusted, and what the
    /// code left running may change it at any moment: open below it without following links, without waiting for what a
    /// FIFO never gives, and read no more than a bound.
    pub workspace: Option<Arc<OwnedFd>>,
}

impl SessionAnswer {
    /// Whether the code came to its end and said 0.
    pub fn success(&self) -> bool {
        self.exit_code == Some(0) && self.interrupted.is_none()
    }
}

/// How a session ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionEnd {
    /// Why.
    pub why: Why,
    /// What its sandbox tells of its whole life. Its `stdout` and `stderr` are what came outside of any call.
    pub outcome: Option<Box<Outcome>>,
}

impl SessionEnd {
    /// What the end itself found, for whoever hears of the session for the last time: what failed, and what version control
    /// would have obeyed and was renamed. Empty where there is nothing to say.
    pub fn findings(&self) -> String {
        let Some(outcome) = &self.outcome else { return String::new() };
        let mut text = String::new();
        // An outcome has one failure, which may be another one.
        if outcome.error.as_ref().is_none_or(|failure| failure.step != FailedStep::Repositories) {
            let renamed = |violation: &&Violation| matches!(violation.operation.as_str(), "gitlink" | "link");
            let renamed: Vec<&str> =
                outcome.violations.iter().filter(renamed).filter_map(|violation| violation.object.as_deref()).collect();
            if !renamed.is_empty() {
                text = format!("; what version control outside would have obeyed was renamed: {}", renamed.join(", "));
            }
        }
        if let Some(failure) = &outcome.error {
            text += &format!("; {}", failure.message);
        }
        text
    }
}

/// Why a session ended, or a call was interrupted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The interpreter ended.
    #[error("its interpreter exited with {0}")]
    Exited(i32),
    /// The interpreter was killed, by itself or by something in the sandbox.
    #[error("its interpreter was killed by signal {0}")]
    Signalled(i32),
    /// A limit of the policy.
    #[error("it exceeded its limit `{0}`")]
    Limit(Field),
    /// A violation, where those end the run.
    #[error("it violated its policy, which ends it")]
    Violation,
    /// A call took too long.
    #[error("a call took longer than it may")]
    TimedOut,
    /// The caller cancelled a call.
    #[error("a call was cancelled")]
    Cancelled,
    /// Without a call for too long.
    #[error("it was not used for longer than it may be")]
    Idle,
    /// It lived as long as it may.
    #[error("it lived as long as a session may")]
    Lifetime,
    /// Its owner ended it.
    #[error("its owner ended it")]
    Closed,
    /// Another process than the interpreter, this one, wrote to its channel.
    #[error("process {0} of the sandbox wrote to the channel of its interpreter")]
    Forged(i32),
    /// What its interpreter wrote to the channel is no answer.
    #[error("what its interpreter answers is no answer: {}", cofferdam_policy::text::escape(.0.as_bytes()))]
    Protocol(String),
    /// Its sandbox could not be started.
    #[error("its sandbox could not be started")]
    Unstarted,
    /// Ended from outside of everything that is known here.
    #[error("it was ended from outside")]
    Lost,
}

impl Why {
    /// As the outcome of the sandbox tells it.
    pub(super) fn of(outcome: &Outcome) -> Why {
        match (outcome.outcome, outcome.exit_code, outcome.signal, outcome.limit) {
            (Ending::Exited, Some(code), ..) => Why::Exited(code),
            (Ending::TimedOut, ..) => Why::Lifetime,
            (Ending::LimitExceeded, _, _, Some(limit)) => Why::Limit(limit),
            (Ending::Violation, ..) => Why::Violation,
            (Ending::SetupFailed, ..) => Why::Unstarted,
            (_, _, Some(signal), _) => Why::Signalled(signal),
            _ => Why::Lost,
        }
    }
}

/// Why a call was not made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No name for a session.
    #[error("'{}' is no name of a session\nhint: 1 to 128 characters, none of them a control character", .0.escape_debug())]
    Name(String),
    /// It is bound to another environment.
    #[error(
        "session '{name}' belongs to environment '{is}', not to '{asked}'\nhint: use another name for a session there"
    )]
    Environment {
        /// The session.
        name: String,
        /// What it is bound to.
        is: String,
        /// What was asked for.
        asked: String,
    },
    /// The session is over since the last call, and its state is gone. Told once: the next call starts a new session.
    #[error(
        "session '{name}' is over: {}{}\nhint: its state is gone; call again to start a new one", ended.why, ended.findings()
    )]
    Ended {
        /// The session.
        name: String,
        /// How.
        ended: SessionEnd,
    },
    /// There is none of this name.
    #[error("there is no session '{}'\nhint: running code or bringing a file into it begins one", name.escape_debug())]
    Unknown {
        /// The session.
        name: String,
    },
    /// As many sessions as may be.
    #[error("there are {most} sessions already\nhint: end one, or wait until one has been idle long enough")]
    TooMany {
        /// As many as may be.
        most: usize,
    },
    /// As many sessions as one owner may have.
    #[error("you have {most} sessions already\nhint: end one, or wait until one has been idle long enough")]
    TooManyOwn {
        /// As many as may be.
        most: usize,
    },
    /// Others wait already.
    #[error("session '{name}' is busy, and as many calls wait for it as may\nhint: wait for their answers")]
    Busy {
        /// The session.
        name: String,
    },
    /// Cancelled before its turn came: nothing was run, and the session is as it was.
    #[error("the call was cancelled before its turn came")]
    Cancelled,
    /// The session could not be started.
    #[error("session '{name}' could not be started: {}{}", failure.message, hint(failure))]
    Start {
        /// The session.
        name: String,
        /// Why.
        failure: Failure,
    },
    /// The call cannot be recorded: nothing was run.
    #[error("nothing was run in session '{name}', since it could not be recorded: {why}")]
    Unrecorded {
        /// The session.
        name: String,
        /// Why.
        why: String,
    },
    /// The code cannot be sent.
    #[error("the code cannot be sent to the session: {0}")]
    Code(String),
    /// Every pipe for output is held by what earlier calls started.
    #[error(
        "processes that {} earlier calls started still hold their output\nhint: end them, start them with their output to a file, or end the session",
        crate::run::channel::PAIRS
    )]
    Held,
    /// The system refused something.
    #[error("the session's channel: {0}")]
    System(String),
}

fn hint(failure: &Failure) -> String {
    failure.hint.as_ref().map_or_else(String::new, |hint| format!("\nhint: {hint}"))
}

/// A session in a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListedSession {
    /// Which.
    pub key: SessionKey,
    /// What it is bound to.
    pub environment: String,
    /// How old it is.
    pub age: Duration,
    /// How long it has been without a call; `None` while one is under way.
    pub idle: Option<Duration>,
    /// How long it may live still.
    pub left: Duration,
    /// Calls that were answered.
    pub calls: u64,
}
