//! The tools `list_sessions` and `end_session`: a client sees and ends only its own sessions.
//!
//! In the stateless protocol over HTTP a session's name is the permission to use it, so names are not listed there.

use cofferdam_engine::FailedStep;
use cofferdam_engine::session::SessionKey;
use cofferdam_policy::text;
use rmcp::model::{CallToolResponse, ContentBlock, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::arguments::TextArguments;
use super::reply;
use super::schema::{END_SESSION, LIST_SESSIONS};
use crate::connection::McpConnection;
use crate::environments::failure;
use crate::execution::session::SessionRef;

fn no_such_session(name: &str) -> CallToolResponse {
    reply::failure(failure(
        FailedStep::Session,
        &format!("there is no session {}, or it is over\nhint: `run` with this word begins one", text::name(name)),
    ))
}

/// Carries out a call of `list_sessions`.
///
/// # Errors
/// The arguments are invalid.
pub(crate) fn list(
    connection: &McpConnection,
    arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let mut texts = TextArguments { tool: LIST_SESSIONS, accepts: "session, or nothing", arguments };
    let only = texts.optional("session")?;
    texts.finish()?;
    let SessionRef { owner, server_named, .. } = connection.session_ref(String::new(), context);
    if server_named && only.is_none() {
        return Ok(reply::failure(failure(
            FailedStep::Session,
            "without a connection, a session is known by its name alone, and nobody is told the names of others\n\
             hint: say which one: the name that its first answer gave",
        )));
    }
    let mut all = connection.state.sessions.list();
    all.retain(|one| one.key.owner == owner && only.as_ref().is_none_or(|name| one.key.name == *name));
    if let (Some(name), true) = (&only, all.is_empty()) {
        return Ok(no_such_session(name));
    }
    let seconds = |time: std::time::Duration| time.as_millis() as f64 / 1e3;
    let sessions: Vec<Value> = all
        .iter()
        .map(|one| {
            json!({
                "name": one.key.name,
                "env": one.environment,
                "idle_seconds": one.idle.map(seconds),
                "left_seconds": seconds(one.left),
                "calls": one.calls,
            })
        })
        .collect();
    let data = json!({ "sessions": sessions });
    let text = data.to_string();
    Ok(reply::success(ContentBlock::text(text), data))
}

/// Carries out a call of `end_session`.
///
/// # Errors
/// The arguments are invalid.
pub(crate) async fn end(
    connection: &McpConnection,
    arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let mut texts = TextArguments { tool: END_SESSION, accepts: "session", arguments };
    let name = texts.required("session")?;
    texts.finish()?;
    let SessionRef { owner, name, .. } = connection.session_ref(name, context);
    let (state, key) = (connection.state.clone(), SessionKey { owner, name: name.clone() });
    // Ending waits until the sandbox is gone.
    match reply::blocking(move || state.sessions.end(&key)).await? {
        Some(ended) => {
            let text = format!("the session {} is over{}", text::name(&name), ended.findings());
            let outcome = ended.outcome.as_deref();
            let violations = outcome.map_or(&[][..], |outcome| &outcome.violations);
            let error = outcome.and_then(|outcome| outcome.error.as_ref());
            let data = json!({ "session": name, "violations": violations, "error": error });
            Ok(reply::success(ContentBlock::text(text), data))
        }
        None => Ok(no_such_session(&name)),
    }
}
