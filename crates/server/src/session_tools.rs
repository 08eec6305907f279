//! The tools `list_sessions` and `end_session`: a client sees and ends its own sessions, and nobody else's.
//!
//! Where there are no connections, a session's name is the right to it: names are not told there, only asked for.

use cofferdam_engine::session::Key;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::environment::unusable;
use crate::schema::{END_SESSION, LIST_SESSIONS};
use crate::service::{Service, shown};
use crate::session::Asked;
use crate::transfers::{Texts, apart, failed};

fn told(data: Value, text: String) -> CallToolResponse {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(data);
    result.into()
}

fn none(name: &str) -> CallToolResponse {
    failed(unusable(
        "session",
        &format!("there is no session {}, or it is over\nhint: `run` with this word begins one", shown(name)),
    ))
}

impl Service {
    pub(crate) fn list_sessions(
        &self,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut texts = Texts { tool: LIST_SESSIONS, takes: "session, or nothing", arguments };
        let only = texts.maybe("session")?;
        texts.end()?;
        let Asked { owner, given, .. } = self.asked(String::new(), context);
        if given && only.is_none() {
            return Ok(failed(unusable(
                "session",
                "without a connection, a session is known by its name alone, and nobody is told the names of others\n\
                 hint: say which one: the name that its first answer gave",
            )));
        }
        let mut all = self.shared.sessions.list();
        all.retain(|one| one.key.owner == owner && only.as_ref().is_none_or(|name| one.key.name == *name));
        if let (Some(name), true) = (&only, all.is_empty()) {
            return Ok(none(name));
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
        Ok(told(data, text))
    }

    pub(crate) async fn end_session(
        &self,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut texts = Texts { tool: END_SESSION, takes: "session", arguments };
        let name = texts.text("session")?;
        texts.end()?;
        let Asked { owner, name, .. } = self.asked(name, context);
        let (shared, key) = (self.shared.clone(), Key { owner, name: name.clone() });
        // It waits until nothing of it is left.
        match apart(move || shared.sessions.end(&key)).await? {
            Some(_) => Ok(told(json!({ "session": name }), format!("the session {} is over", shown(&name)))),
            None => Ok(none(&name)),
        }
    }
}
