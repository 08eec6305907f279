//! The tools `upload` and `download`: what they take, and what a client is told.
//!
//! Neither runs code, and neither waits for code that runs. An upload that has to begin its session takes the turn of a run
//! for that, since it starts a sandbox.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cofferdam_engine::session::Sessions;
use cofferdam_engine::{Cancel, Failure};
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::answer::block;
use crate::blobs;
use crate::files::Content;
use crate::schema::{DOWNLOAD, UPLOAD};
use crate::service::{EndsWith, Service, shown};
use crate::session::{self, Asked, Entered, NEW};
use crate::workspace::{self, LARGEST_IN, Place};

/// What `upload` takes.
struct In {
    session: String,
    env: String,
    place: Place,
    bytes: Vec<u8>,
}

/// What `download` takes.
struct Out {
    session: String,
    place: Place,
}

fn wrong(told: impl Into<String>) -> ErrorData {
    ErrorData::invalid_params(told.into(), None)
}

/// Texts of a call, each at most once.
pub(crate) struct Texts {
    pub(crate) tool: &'static str,
    pub(crate) takes: &'static str,
    pub(crate) arguments: JsonObject,
}

impl Texts {
    pub(crate) fn maybe(&mut self, name: &str) -> Result<Option<String>, ErrorData> {
        match self.arguments.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(format!("`{name}` is no text"))),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<String, ErrorData> {
        let missing = || wrong(format!("`{name}` is missing; `{}` takes {}", self.tool, self.takes));
        match self.arguments.get(name) {
            None | Some(Value::Null) => Err(missing()),
            Some(_) => self.maybe(name).and_then(|text| text.ok_or_else(|| wrong(format!("`{name}` is missing")))),
        }
    }

    pub(crate) fn end(self) -> Result<(), ErrorData> {
        let Some(name) = self.arguments.keys().next() else { return Ok(()) };
        Err(wrong(format!("`{}` takes no {}; it takes {}", self.tool, shown(name), self.takes)))
    }
}

impl In {
    fn read(arguments: JsonObject) -> Result<In, ErrorData> {
        let mut texts = Texts { tool: UPLOAD, takes: "session, env, path, and text or base64", arguments };
        let (session, env) = (texts.text("session")?, texts.text("env")?);
        let place = Place::read(&texts.text("path")?).map_err(wrong)?;
        let most = |bytes: usize| match bytes > LARGEST_IN {
            true => Err(wrong(format!(
                "the file has {bytes} bytes, and {LARGEST_IN} go in at most\nhint: send it in parts, and have code join them"
            ))),
            false => Ok(()),
        };
        let bytes = match (texts.maybe("text")?, texts.maybe("base64")?) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(encoded)) => {
                most((encoded.len() / 4 * 3).saturating_sub(padding(&encoded)))?;
                BASE64_STANDARD.decode(encoded.as_bytes()).map_err(|error| {
                    wrong(format!(
                        "`base64` is none: {error}\nhint: the standard alphabet, padded, without line breaks; or use text"
                    ))
                })?
            }
            (None, None) => return Err(wrong("`text` or `base64` is missing: what is in the file")),
            (Some(_), Some(_)) => return Err(wrong("`text` and `base64` are both there, and a file is one of them")),
        };
        most(bytes.len())?;
        texts.end()?;
        Ok(In { session, env, place, bytes })
    }
}

impl Out {
    fn read(arguments: JsonObject) -> Result<Out, ErrorData> {
        let mut texts = Texts { tool: DOWNLOAD, takes: "session and path", arguments };
        let session = texts.text("session")?;
        let place = Place::read(&texts.text("path")?).map_err(wrong)?;
        texts.end()?;
        if session == NEW {
            return Err(wrong(format!(
                "\"{NEW}\" begins a session, which has no files yet\nhint: name one that there is"
            )));
        }
        Ok(Out { session, place })
    }
}

/// How many bytes the end of base64 does not stand for.
fn padding(encoded: &str) -> usize {
    encoded.bytes().rev().take_while(|byte| *byte == b'=').count().min(2)
}

/// What a client is told that cannot be done.
pub(crate) fn failed(failure: Failure) -> CallToolResponse {
    let text = match &failure.hint {
        Some(hint) => format!("{}\nhint: {hint}", failure.message),
        None => failure.message,
    };
    CallToolResult::error(vec![ContentBlock::text(text)]).into()
}

/// Does what waits, on a thread of its own.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ErrorData> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!("a file was lost: {error}");
        ErrorData::internal_error("the call was lost by a mistake of the server's", None)
    })
}

fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
}

impl Service {
    pub(crate) async fn upload(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let In { session, env, place, bytes } = In::read(arguments)?;
        let asked = self.asked(session, &context);
        let environment = self.place(&env).await?;
        let turn = match self.lives(&asked) {
            true => None,
            false => tokio::select! {
                turn = self.shared.calls.turn() => match turn {
                    Ok(turn) => Some(turn),
                    Err(busy) => return Ok(failed(crate::environment::unusable("busy", &busy.to_string()))),
                },
                () = self.unwanted(&context) => return Err(cancelled()),
            },
        };
        let cancel = Cancel::default();
        let _ends = EndsWith(cancel.clone());
        let shared = self.shared.clone();
        let work = apart(move || {
            let Entered { root, name, fresh } =
                session::enter(&shared.host, &shared.sessions, asked, &environment, &cancel)?;
            drop(turn);
            let word =
                Sessions::new_name().map_err(|error| crate::environment::unusable("file", &error.to_string()))?;
            let told = workspace::put(&root, &place, &bytes, &word);
            // A session that was begun is the client's also where the file did not get into it.
            let begun = if fresh { format!("\n[a new session: {name}]") } else { String::new() };
            let replaced = told.map_err(|told| crate::environment::unusable("file", &format!("{told}{begun}")))?;
            let session = json!({ "name": name, "fresh": fresh });
            let data = json!({ "path": place.shown(), "bytes": bytes.len(), "replaced": replaced, "session": session });
            let did = if replaced { "replaced" } else { "wrote" };
            Ok((format!("{did} {}, {} bytes{begun}", place.shown(), bytes.len()), data))
        });
        let done = tokio::select! {
            done = work => done?,
            () = self.unwanted(&context) => return Err(cancelled()),
        };
        Ok(match done {
            Ok((text, data)) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
                result.structured_content = Some(data);
                result.into()
            }
            Err(failure) => failed(failure),
        })
    }

    pub(crate) async fn download(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Out { session, place } = Out::read(arguments)?;
        let asked = self.asked(session, &context);
        let cancel = Cancel::default();
        let _ends = EndsWith(cancel.clone());
        let shared = self.shared.clone();
        let work = apart(move || {
            let entered = session::find(&shared.sessions, asked, &cancel)?;
            let unusable = |told: &str| crate::environment::unusable("file", told);
            let file = workspace::get(&entered.root, &place).map_err(|told| unusable(&told))?;
            let word = Sessions::new_name().map_err(|error| unusable(&error.to_string()))?;
            let (Content::Image(mime) | Content::Text(mime) | Content::Other(mime)) = file.content;
            let data = json!({ "path": place.shown(), "bytes": file.bytes.len(), "type": mime });
            let uri = blobs::address_of_download(&word, &file.name);
            Ok((block(file, uri, &shared.kept), data))
        });
        let done = tokio::select! {
            done = work => done?,
            () = self.unwanted(&context) => return Err(cancelled()),
        };
        Ok(match done {
            Ok((block, data)) => {
                let mut result = CallToolResult::success(vec![block]);
                result.structured_content = Some(data);
                result.into()
            }
            Err(failure) => failed(failure),
        })
    }

    /// Whether the session is there already.
    fn lives(&self, asked: &Asked) -> bool {
        let all = self.shared.sessions.list();
        all.iter().any(|one| one.key.owner == asked.owner && one.key.name == asked.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: Value) -> Result<In, String> {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        In::read(arguments).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn a_file_is_text_or_base64_and_no_larger_than_may_be() {
        let of = |name: &str, value: &str| json!({ "session": "s", "env": "e", "path": "p", name: value });
        assert_eq!(read(of("text", "a\u{e9}")).map(|read| read.bytes), Ok("a\u{e9}".as_bytes().to_vec()));
        assert_eq!(read(of("text", "")).map(|read| read.bytes), Ok(Vec::new()));
        assert_eq!(read(of("base64", "AP8=")).map(|read| read.bytes), Ok(vec![0, 255]));
        for broken in ["=", "AP8", "A\nP8=", "AP8=="] {
            assert!(read(of("base64", broken)).is_err_and(|told| told.contains("`base64` is none")), "{broken:?}");
        }
        let most = vec![b'x'; LARGEST_IN];
        assert_eq!(read(of("base64", &BASE64_STANDARD.encode(&most))).map(|read| read.bytes.len()), Ok(LARGEST_IN));
        let more = vec![b'x'; LARGEST_IN + 1];
        for (name, value) in
            [("base64", BASE64_STANDARD.encode(&more)), ("text", String::from_utf8(more.clone()).unwrap_or_default())]
        {
            assert!(read(of(name, &value)).is_err_and(|told| told.contains("16777217 bytes")), "{name}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let of = |more: Value| {
            let mut all = json!({ "session": "s", "env": "e", "path": "p", "text": "t" });
            for (name, value) in more.as_object().unwrap() {
                all[name] = value.clone();
            }
            read(all).map(drop)
        };
        assert_eq!(of(json!({})), Ok(()));
        for (more, expected) in [
            (json!({ "base64": "" }), "both there"),
            (json!({ "text": null }), "`text` or `base64` is missing"),
            (json!({ "text": 1 }), "`text` is no text"),
            (json!({ "session": null }), "`session` is missing"),
            (json!({ "mode": "777" }), "takes no `mode`"),
            (json!({ "path": "../p" }), "has a `..`"),
        ] {
            assert!(of(more).is_err_and(|told| told.contains(expected)), "{expected}");
        }
    }
}
