//! The tool `run`: reads its arguments, waits for a free slot, runs the code on a thread of its own, and notifies the client
//! of progress meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_engine::{Cancel, FailedStep, Failure};
use cofferdam_policy::text;
use rmcp::model::{CallToolResponse, JsonObject, ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use super::arguments::invalid;
use crate::connection::{DOCUMENT_TIMEOUT, McpConnection};
use crate::execution::call::{CallOutcome, ExecutionCall, LONGEST_CODE};
use crate::execution::progress::CallProgress;
use crate::execution::{run, session};
use crate::results::call_result::{SizeBudget, call_result};

/// A call that has run for less than `DOCUMENT_TIMEOUT` by this margin is still answered by a document.
const MARGIN: Duration = Duration::from_secs(2);

/// The shortest time between two progress notifications.
const TICK: Duration = Duration::from_millis(100);

/// Carries out a call of `run`.
///
/// # Errors
/// The arguments are invalid, the environment cannot be used, or the client cancelled the call while it waited.
pub(crate) async fn call(
    connection: &McpConnection,
    arguments: JsonObject,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let begun = Instant::now();
    let RunArguments { code, env, session } =
        RunArguments::read(arguments, &connection.state.environments.current().names())?;
    let session = session.map(|name| connection.session_ref(name, &context));
    let environment = connection.environment(&env).await?;
    let permit = tokio::select! {
        permit = connection.state.runs.acquire() => permit,
        () = connection.cancelled(&context) => return Err(ErrorData::internal_error("the call was cancelled", None)),
    };
    let permit = match permit {
        Ok(permit) => permit,
        Err(busy) => {
            let text = busy.to_string();
            let (message, hint) = text.split_once("\nhint: ").unwrap_or((&text, ""));
            let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
            let failure = Failure { code: 125, step: FailedStep::caller("busy"), message: message.into(), hint };
            let outcome = CallOutcome::failed(failure);
            return Ok(call_result(outcome, SizeBudget::DOCUMENT, &connection.state.blobs).into());
        }
    };
    let token = context.meta.get_progress_token();
    let has_progress = token.is_some();
    let progress = token.as_ref().map(|_| Arc::<CallProgress>::default());
    let cancel = Cancel::default();
    let call = ExecutionCall { environment, code, cancel: cancel.clone(), progress: progress.clone() };
    let state = Arc::clone(&connection.state);
    // Dropping this future ends the run, since no client waits for it any more.
    let _cancel = CancelOnDrop(cancel.clone());
    let mut task = tokio::task::spawn_blocking(move || {
        let outcome = match session {
            Some(session) => session::run(&state.host, &state.sessions, session, call),
            None => run::run(&state.host, call, || state.runs.is_only_run()),
        };
        drop(permit);
        outcome
    });
    let mut reporter = ProgressReporter { peer: &context.peer, token, progress, last: 0.0 };
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + TICK, TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut cancelled = false;
    let outcome = loop {
        tokio::select! {
            outcome = &mut task => break outcome,
            () = connection.cancelled(&context), if !cancelled => {
                cancelled = true;
                cancel.cancel();
                // The client may already use its token for the next call.
                reporter.progress = None;
            }
            _ = tick.tick(), if reporter.progress.is_some() => reporter.report().await,
        }
    };
    reporter.report().await;
    match outcome {
        Ok(call) => {
            tracing::debug!(run = call.outcome.run_id, outcome = ?call.outcome.outcome, "a run has ended");
            // Over HTTP, an answer that follows other messages is an event of their stream.
            let is_event = connection.is_multi_client && (has_progress || begun.elapsed() + MARGIN > DOCUMENT_TIMEOUT);
            let budget = if is_event { SizeBudget::for_event(&call) } else { SizeBudget::DOCUMENT };
            Ok(call_result(call, budget, &connection.state.blobs).into())
        }
        Err(error) => {
            tracing::error!("a run was lost: {error}");
            Err(ErrorData::internal_error("the run was lost by a mistake of the server's", None))
        }
    }
}

/// Cancels what it was made for when it is dropped.
pub(crate) struct CancelOnDrop(pub Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Sends progress notifications to the client that asked for them.
struct ProgressReporter<'a> {
    peer: &'a Peer<RoleServer>,
    token: Option<ProgressToken>,
    progress: Option<Arc<CallProgress>>,
    last: f64,
}

impl ProgressReporter<'_> {
    async fn report(&mut self) {
        let (Some(token), Some(progress)) = (&self.token, &self.progress) else { return };
        let Some((bytes, text)) = progress.take() else { return };
        // It must grow each time, also when a step was reported and no output came.
        self.last = (bytes as f64).max(self.last + 1.0);
        let notification = ProgressNotificationParam::new(token.clone(), self.last).with_message(text);
        if let Err(error) = self.peer.notify_progress(notification).await {
            tracing::debug!("a progress notification was not delivered: {error}");
            self.progress = None;
        }
    }
}

/// The arguments of `run`.
struct RunArguments {
    code: String,
    env: String,
    session: Option<String>,
}

impl RunArguments {
    fn read(mut arguments: JsonObject, environments: &[&str]) -> Result<RunArguments, ErrorData> {
        let mut text = |name: &str| match arguments.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(invalid(format!("`{name}` is no text"))),
            None => Err(invalid(format!(
                "`{name}` is missing; `run` takes code and env; available environments: {}",
                environments.join(", ")
            ))),
        };
        let (code, env) = (text("code")?, text("env")?);
        let session = match arguments.remove("session") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err(invalid("`session` is no text")),
        };
        if let Some(name) = arguments.keys().next() {
            return Err(invalid(format!("`run` takes no {}; it takes code, env and session", text::name(name))));
        }
        if code.len() > LONGEST_CODE {
            return Err(invalid(format!("the code has {} bytes, and {LONGEST_CODE} are run at most", code.len())));
        }
        if let Some(at) = code.find('\0') {
            return Err(invalid(format!("the code has a NUL character at byte {at}, and no interpreter takes one")));
        }
        Ok(RunArguments { code, env, session })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_without_an_environment_is_answered_with_those_that_there_are() {
        let read = |arguments: Value| {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            RunArguments::read(arguments, &["python", "shell"])
        };
        let missing = read(json!({ "code": "1" })).err().map(|error| error.message.into_owned());
        assert_eq!(
            missing.as_deref(),
            Some("`env` is missing; `run` takes code and env; available environments: python, shell")
        );
        assert_eq!(read(json!({ "code": "1", "env": "shell" })).ok().map(|read| read.env).as_deref(), Some("shell"));
    }
}
