//! Runs calls in a session, whose interpreter keeps its state between them. The engine owns sessions and their channel; this
//! module resolves a session's name and owner, and makes an outcome of its answer.
//!
//! The owner is a connection, and a session's name is meaningless on other connections. The stateless protocol over HTTP has no
//! connections; there the server names a session, and the name cannot be guessed.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_engine::session::{
    self, SessionAnswer, SessionError, SessionKey, SessionStart, Sessions, Why, Workspace,
};
use cofferdam_engine::{Cancel, Ending, FailedStep, Failure, Outcome, Output};
use cofferdam_policy::text;

use super::call::{CallOutcome, ExecutionCall, SessionStatus};
use super::progress::StreamedOutput;
use crate::environments::{EnvironmentHost, OUTPUT, ServedEnvironment, failure};
use crate::workspace::output::{self, OutputFiles};

/// The name by which a client asks for a session that the server names.
pub(crate) const NEW: &str = "new";

/// The session that a call refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRef {
    /// The owner: a connection, or all clients of the stateless protocol.
    pub owner: String,
    /// The name in the call.
    pub name: String,
    /// Whether only names that the server gave are valid.
    pub server_named: bool,
}

/// A session with an accessible workspace.
#[derive(Debug)]
pub(crate) struct SessionWorkspace {
    /// The root of its workspace. Nothing in it is trusted.
    pub root: Arc<OwnedFd>,
    /// Its name.
    pub name: String,
    /// Whether this call began it.
    pub fresh: bool,
}

/// Runs the code in its session, which is begun if it does not exist.
pub(crate) fn run(
    host: &EnvironmentHost,
    sessions: &Sessions,
    session: SessionRef,
    call: ExecutionCall,
) -> CallOutcome {
    let environment = Arc::clone(&call.environment);
    match attempt(host, sessions, session, call) {
        Ok(outcome) => outcome,
        Err(failure) => CallOutcome::failed(environment.with_definition_hint(failure)),
    }
}

fn attempt(
    host: &EnvironmentHost,
    sessions: &Sessions,
    session: SessionRef,
    call: ExecutionCall,
) -> Result<CallOutcome, Failure> {
    let begun = output::now();
    let key = resolve(sessions, session)?;
    let on_step = |text: &str| {
        if let Some(progress) = &call.progress {
            progress.step(text);
        }
    };
    let Some(start) = call.environment.session(host, &call.cancel, &on_step)? else {
        return Err(failure(FailedStep::caller("cancelled"), "the call was cancelled"));
    };
    let timeout = Duration::from_millis(start.policy.limits.wall_ms);
    let streamed = call.progress.is_some().then(StreamedOutput::default);
    let output = match (call.progress, &streamed) {
        (Some(progress), Some(streamed)) => streamed.output(progress),
        _ => Output::Capture,
    };
    let starting = Arc::clone(&start);
    let request =
        session::SessionCall { code: call.code, timeout, output, cancel: call.cancel, unheard_when_cancelled: true };
    let answer = sessions.call(&key, call.environment.name(), move || Ok(SessionStart::clone(&starting)), request);
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(SessionError::Ended { name, ended }) => {
            let violations = ended.outcome.as_ref().map(|outcome| outcome.violations.clone()).unwrap_or_default();
            let failure = session_failure(&SessionError::Ended { name, ended });
            let mut failed = CallOutcome::failed(call.environment.with_definition_hint(failure));
            failed.outcome.violations = violations;
            return Ok(failed);
        }
        Err(error) => return Err(session_failure(&error)),
    };
    if let Some(streamed) = streamed {
        (answer.stdout, answer.stderr) = streamed.take();
    }
    let files = match &answer.workspace {
        Some(root) => output::collect_since(root, OUTPUT, begun),
        None => OutputFiles::default(),
    };
    let status = SessionStatus {
        name: key.name,
        fresh: answer.fresh,
        interrupted: answer.interrupted.is_some(),
        over: answer.ended.as_ref().map(|ended| ended.why.to_string()),
    };
    let mut outcome = outcome(answer);
    outcome.artifacts = files.files.iter().map(|file| text::one_line(&file.name)).collect();
    let hints = call.environment.hints(&start.policy, &outcome);
    Ok(CallOutcome { outcome, files, session: Some(status), hints })
}

/// The engine's key of the session, with a new name if the call asks for one.
fn resolve(sessions: &Sessions, session: SessionRef) -> Result<SessionKey, Failure> {
    let SessionRef { owner, name, server_named } = session;
    if name == NEW {
        let name = Sessions::new_name().map_err(|error| failure(FailedStep::Session, &error.to_string()))?;
        return Ok(SessionKey { owner, name });
    }
    let known = |one: &session::ListedSession| one.key.owner == owner && one.key.name == name;
    if server_named && !sessions.list().iter().any(known) {
        return Err(failure(
            FailedStep::Session,
            &format!(
                "there is no such session, or it is over\nhint: \"{NEW}\" begins one, and the answer says its name"
            ),
        ));
    }
    Ok(SessionKey { owner, name })
}

/// Opens the workspace of a session, which is begun in `environment` if it does not exist.
///
/// # Errors
/// The session cannot be begun, or has no workspace that is accessible from outside.
pub(crate) fn open_or_begin(
    host: &EnvironmentHost,
    sessions: &Sessions,
    session: SessionRef,
    environment: &ServedEnvironment,
    cancel: &Cancel,
) -> Result<SessionWorkspace, Failure> {
    let key = resolve(sessions, session)?;
    let start = environment.session(host, cancel, &|_| {});
    let Some(start) = start.map_err(|failure| environment.with_definition_hint(failure))? else {
        return Err(failure(FailedStep::caller("cancelled"), "the call was cancelled"));
    };
    let workspace = sessions.open(&key, environment.name(), || Ok(SessionStart::clone(&start)), cancel);
    let workspace = workspace.map_err(|error| environment.with_definition_hint(session_failure(&error)))?;
    session_workspace(workspace, key.name)
}

/// Opens the workspace of an existing session.
///
/// # Errors
/// The session does not exist, or has no workspace that is accessible from outside.
pub(crate) fn open(sessions: &Sessions, session: SessionRef, cancel: &Cancel) -> Result<SessionWorkspace, Failure> {
    let key = resolve(sessions, session)?;
    let workspace = sessions.find(&key, cancel);
    session_workspace(workspace.map_err(|error| session_failure(&error))?, key.name)
}

fn session_workspace(workspace: Workspace, name: String) -> Result<SessionWorkspace, Failure> {
    let Workspace { root, fresh } = workspace;
    let root = root.ok_or_else(|| {
        failure(
            FailedStep::Session,
            "this environment's sessions have no workspace that files go in and out of\n\
             hint: have the code carry what it needs; the jail backend has one, where the profile mounts /workspace",
        )
    })?;
    Ok(SessionWorkspace { root, name, fresh })
}

fn session_failure(error: &SessionError) -> Failure {
    let step = match error {
        SessionError::Busy { .. } | SessionError::TooMany { .. } | SessionError::TooManyOwn { .. } => {
            FailedStep::caller("busy")
        }
        SessionError::Cancelled => FailedStep::caller("cancelled"),
        _ => FailedStep::Session,
    };
    failure(step, &error.to_string())
}

/// Makes an outcome of a session's answer. Fields that the answer lacks are unknown for a single call.
fn outcome(answer: SessionAnswer) -> Outcome {
    let success = answer.success();
    let over = answer.ended.as_ref().and_then(|ended| ended.outcome.as_deref());
    let ending = match (&answer.interrupted, answer.exit_code, over) {
        (Some(Why::TimedOut), ..) => Ending::TimedOut,
        (Some(_), ..) => Ending::Signalled,
        (None, Some(_), _) => Ending::Exited,
        (None, None, Some(over)) => over.outcome,
        (None, None, None) => Ending::Signalled,
    };
    let mut outcome = match over {
        Some(over) => over.clone(),
        None => Outcome { violations_complete: false, ..Outcome::unstarted(None) },
    };
    outcome.outcome = ending;
    outcome.success = success;
    outcome.exit_code = answer.exit_code;
    if ending != Ending::Signalled {
        outcome.signal = None;
    }
    if ending != Ending::LimitExceeded && ending != Ending::TimedOut {
        outcome.limit = None;
    }
    if ending == Ending::TimedOut {
        outcome.limit = Some(cofferdam_policy::Field::WallTime);
    }
    // The interpreter's output outside of its calls may say why it ended.
    let last_words = std::mem::take(&mut outcome.stderr);
    (outcome.stdout, outcome.stderr, outcome.truncated) = (answer.stdout, answer.stderr, answer.truncated);
    if outcome.stderr.is_empty() && !success {
        outcome.stderr = last_words;
    }
    // The outcome of an ended session has the violations of all its calls. This call gets only its own.
    outcome.violations = answer.violations;
    (outcome.changes, outcome.changes_omitted) = (answer.changes, answer.changes_omitted);
    outcome.execution_time_ms = answer.duration.as_secs_f64() * 1e3;
    (outcome.cpu_time_seconds, outcome.memory_used_bytes) = (answer.cpu_time_seconds, answer.memory_used_bytes);
    outcome
}
