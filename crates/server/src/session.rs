//! Calls in a session: the interpreter stays between them, with its state. What holds between the code and the channel is
//! the engine's; here a session gets its name, its owner, and what a client is told of it.
//!
//! An owner is a connection: names of one connection's sessions mean nothing to another. The stateless protocol over HTTP
//! has no connections; there a session is known by a name that nobody can guess, which the server gives.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cofferdam_engine::session::{self, Answer, Key, SessionError, Sessions, Start, Why, Workspace};
use cofferdam_engine::{Cancel, Ending, Failure, Outcome, Output, Stream};

use crate::environment::{Host, OUTPUT, Place, unusable};
use crate::files::{self, Collected};
use crate::run::{Call, Ran};

/// What asks for a session with a name of the server's making.
pub const NEW: &str = "new";

/// What a client is told of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its name.
    pub name: String,
    /// Whether this call began it.
    pub fresh: bool,
    /// Whether this call was ended before it was through.
    pub interrupted: bool,
    /// Why it is over, where it is.
    pub over: Option<String>,
}

/// Who asks, and for which session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The connection.
    pub owner: String,
    /// The name, as the client has it.
    pub name: String,
    /// Whether only names of the server's making are good.
    pub given: bool,
}

/// A session whose workspace is at hand.
#[derive(Debug)]
pub struct Entered {
    /// Root of its workspace. Nothing in it is trusted.
    pub root: Arc<OwnedFd>,
    /// Its name.
    pub name: String,
    /// Whether it was begun for this.
    pub fresh: bool,
}

/// Runs the code in its session, which is begun where there is none.
pub fn run(host: &Host, sessions: &Sessions, asked: Asked, call: Call) -> Ran {
    let place = Arc::clone(&call.place);
    match attempt(host, sessions, asked, call) {
        Ok(ran) => ran,
        Err(failure) => Ran::failed(place.explained(failure)),
    }
}

fn attempt(host: &Host, sessions: &Sessions, asked: Asked, call: Call) -> Result<Ran, Failure> {
    let begun = files::now();
    let key = named(sessions, asked)?;
    let begins = |text: &str| {
        if let Some(progress) = &call.progress {
            progress.step(text);
        }
    };
    let Some(start) = call.place.session(host, &call.cancel, &begins)? else {
        return Err(unusable("cancelled", "the call was cancelled"));
    };
    let timeout = Duration::from_millis(start.policy.limits.wall_ms);
    let kept: Arc<std::sync::Mutex<[Vec<u8>; 2]>> = Arc::default();
    let output = match call.progress {
        Some(progress) => {
            let into = Arc::clone(&kept);
            Output::Stream(Box::new(move |stream, bytes| {
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                kept[usize::from(stream == Stream::Stderr)].extend_from_slice(bytes);
                progress.output(bytes);
                Ok(bytes.len())
            }))
        }
        None => Output::Capture,
    };
    let streamed = matches!(output, Output::Stream(_));
    let starting = Arc::clone(&start);
    let asked = session::Call { code: call.code, timeout, output, cancel: call.cancel };
    let answer = sessions.call(&key, call.place.name(), move || Ok(Start::clone(&starting)), asked);
    let mut answer = answer.map_err(|error| refused(&error))?;
    if streamed {
        let [out, err] = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
        answer.stdout = String::from_utf8_lossy(&out).into_owned();
        answer.stderr = String::from_utf8_lossy(&err).into_owned();
    }
    let files = match &answer.workspace {
        Some(root) => files::collect_since(root, OUTPUT, begun),
        None => Collected::default(),
    };
    let told = Told {
        name: key.name,
        fresh: answer.fresh,
        interrupted: answer.interrupted.is_some(),
        over: answer.ended.as_ref().map(|ended| ended.why.to_string()),
    };
    let mut outcome = outcome(answer);
    outcome.artifacts = files.files.iter().map(|file| file.name.clone()).collect();
    Ok(Ran { outcome, files, session: Some(told) })
}

/// The session that is meant; a new name where one is asked for.
fn named(sessions: &Sessions, asked: Asked) -> Result<Key, Failure> {
    let Asked { owner, name, given } = asked;
    if name == NEW {
        let name = Sessions::new_name().map_err(|error| unusable("session", &error.to_string()))?;
        return Ok(Key { owner, name });
    }
    let known = |one: &session::Listed| one.key.owner == owner && one.key.name == name;
    if given && !sessions.list().iter().any(known) {
        return Err(unusable(
            "session",
            &format!(
                "there is no such session, or it is over\nhint: \"{NEW}\" begins one, and the answer says its name"
            ),
        ));
    }
    Ok(Key { owner, name })
}

/// Where a session works, which is begun in `place` where there is none.
///
/// # Errors
/// There is none, and none can be begun; it has no workspace that is reached from outside.
pub fn enter(
    host: &Host,
    sessions: &Sessions,
    asked: Asked,
    place: &Place,
    cancel: &Cancel,
) -> Result<Entered, Failure> {
    let key = named(sessions, asked)?;
    let Some(start) = place.session(host, cancel, &|_| {}).map_err(|failure| place.explained(failure))? else {
        return Err(unusable("cancelled", "the call was cancelled"));
    };
    let found = sessions.open(&key, place.name(), || Ok(Start::clone(&start)), cancel);
    entered(found.map_err(|error| place.explained(refused(&error)))?, key.name)
}

/// Where a session works that there is.
///
/// # Errors
/// There is none; it has no workspace that is reached from outside.
pub fn find(sessions: &Sessions, asked: Asked, cancel: &Cancel) -> Result<Entered, Failure> {
    let key = named(sessions, asked)?;
    let found = sessions.find(&key, cancel);
    entered(found.map_err(|error| refused(&error))?, key.name)
}

fn entered(found: Workspace, name: String) -> Result<Entered, Failure> {
    let Workspace { root, fresh } = found;
    let root = root.ok_or_else(|| {
        unusable(
            "session",
            "this environment's sessions have no workspace that files go in and out of\n\
             hint: have the code carry what it needs; the jail backend has one, where the profile mounts /workspace",
        )
    })?;
    Ok(Entered { root, name, fresh })
}

fn refused(error: &SessionError) -> Failure {
    let step = match error {
        SessionError::Busy { .. } | SessionError::TooMany { .. } | SessionError::TooManyOwn { .. } => "busy",
        SessionError::Cancelled => "cancelled",
        _ => "session",
    };
    unusable(step, &error.to_string())
}

/// The answer as an outcome: what it does not tell is not known of one call.
fn outcome(answer: Answer) -> Outcome {
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
        Some(over) => Outcome { error: None, ..over.clone() },
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
    // What an interpreter said outside of its calls is why it ended, if anything says so.
    let last_words = std::mem::take(&mut outcome.stderr);
    (outcome.stdout, outcome.stderr, outcome.truncated) = (answer.stdout, answer.stderr, answer.truncated);
    if outcome.stderr.is_empty() && !success {
        outcome.stderr = last_words;
    }
    // Of a session that is over the sandbox tells all that it was ever refused: this call is told of its own.
    outcome.violations = answer.violations;
    (outcome.changes, outcome.changes_omitted) = (answer.changes, answer.changes_omitted);
    outcome.execution_time_ms = answer.duration.as_secs_f64() * 1e3;
    (outcome.cpu_time_seconds, outcome.memory_used_bytes) = (answer.cpu_time_seconds, answer.memory_used_bytes);
    outcome
}
