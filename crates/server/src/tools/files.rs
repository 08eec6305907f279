//! The tools `upload` and `download`, which write and read one file of a session's workspace.
//!
//! Neither runs code or waits for running code. An upload that has to begin its session needs a run permit, since it starts a
//! sandbox.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cofferdam_engine::session::Sessions;
use cofferdam_engine::{Cancel, FailedStep};
use rmcp::model::{CallToolResponse, ContentBlock, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::json;

use super::arguments::{TextArguments, invalid};
use super::reply;
use super::run::CancelOnDrop;
use super::schema::{DOWNLOAD, UPLOAD};
use crate::connection::McpConnection;
use crate::environments::failure;
use crate::execution::session::{self, NEW, SessionRef, SessionWorkspace};
use crate::results::blobs;
use crate::results::call_result::content_block;
use crate::workspace::transfer::{self, MAX_UPLOAD_BYTES, WorkspacePath};

/// The arguments of `upload`.
struct Upload {
    session: String,
    env: String,
    path: WorkspacePath,
    bytes: Vec<u8>,
}

/// The arguments of `download`.
struct Download {
    session: String,
    path: WorkspacePath,
}

impl Upload {
    fn read(arguments: JsonObject) -> Result<Upload, ErrorData> {
        let mut texts = TextArguments { tool: UPLOAD, accepts: "session, env, path, and text or base64", arguments };
        let (session, env) = (texts.required("session")?, texts.required("env")?);
        let path = WorkspacePath::parse(&texts.required("path")?).map_err(invalid)?;
        let check_size = |bytes: usize| match bytes > MAX_UPLOAD_BYTES {
            true => Err(invalid(format!(
                "the file has {bytes} bytes, and {MAX_UPLOAD_BYTES} go in at most\nhint: send it in parts, and have code join them"
            ))),
            false => Ok(()),
        };
        let bytes = match (texts.optional("text")?, texts.optional("base64")?) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(encoded)) => {
                check_size((encoded.len() / 4 * 3).saturating_sub(padding(&encoded)))?;
                BASE64_STANDARD.decode(encoded.as_bytes()).map_err(|error| {
                    invalid(format!(
                        "`base64` is none: {error}\nhint: the standard alphabet, padded, without line breaks; or use text"
                    ))
                })?
            }
            (None, None) => return Err(invalid("`text` or `base64` is missing: what is in the file")),
            (Some(_), Some(_)) => return Err(invalid("`text` and `base64` are both there, and a file is one of them")),
        };
        check_size(bytes.len())?;
        texts.finish()?;
        Ok(Upload { session, env, path, bytes })
    }
}

impl Download {
    fn read(arguments: JsonObject) -> Result<Download, ErrorData> {
        let mut texts = TextArguments { tool: DOWNLOAD, accepts: "session and path", arguments };
        let session = texts.required("session")?;
        let path = WorkspacePath::parse(&texts.required("path")?).map_err(invalid)?;
        texts.finish()?;
        if session == NEW {
            return Err(invalid(format!(
                "\"{NEW}\" begins a session, which has no files yet\nhint: name one that there is"
            )));
        }
        Ok(Download { session, path })
    }
}

/// The number of padding characters at the end of base64, at most two.
fn padding(encoded: &str) -> usize {
    encoded.bytes().rev().take_while(|byte| *byte == b'=').count().min(2)
}

fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
}

/// Carries out a call of `upload`.
///
/// # Errors
/// The arguments are invalid, the environment cannot be used, or the client cancelled the call.
pub(crate) async fn upload(
    connection: &McpConnection,
    arguments: JsonObject,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let Upload { session, env, path, bytes } = Upload::read(arguments)?;
    let session = connection.session_ref(session, &context);
    let environment = connection.environment(&env).await?;
    let permit = match exists(connection, &session) {
        true => None,
        false => tokio::select! {
            permit = connection.state.runs.acquire() => match permit {
                Ok(permit) => Some(permit),
                Err(busy) => return Ok(reply::failure(failure(FailedStep::caller("busy"), &busy.to_string()))),
            },
            () = connection.cancelled(&context) => return Err(cancelled()),
        },
    };
    let cancel = Cancel::default();
    let _cancel = CancelOnDrop(cancel.clone());
    let state = connection.state.clone();
    let work = reply::blocking(move || {
        let SessionWorkspace { root, name, fresh } =
            session::open_or_begin(&state.host, &state.sessions, session, &environment, &cancel)?;
        drop(permit);
        let random = Sessions::new_name().map_err(|error| failure(FailedStep::caller("file"), &error.to_string()))?;
        let written = transfer::write_file(&root, &path, &bytes, &random);
        // A session that was begun belongs to the client even if the file could not be written.
        let begun = if fresh { format!("\n[a new session: {name}]") } else { String::new() };
        let replaced = written.map_err(|error| failure(FailedStep::caller("file"), &format!("{error}{begun}")))?;
        let session = json!({ "name": name, "fresh": fresh });
        let data = json!({ "path": path.absolute(), "bytes": bytes.len(), "replaced": replaced, "session": session });
        let verb = if replaced { "replaced" } else { "wrote" };
        Ok((format!("{verb} {}, {} bytes{begun}", path.absolute(), bytes.len()), data))
    });
    let done = tokio::select! {
        done = work => done?,
        () = connection.cancelled(&context) => return Err(cancelled()),
    };
    Ok(match done {
        Ok((text, data)) => reply::success(ContentBlock::text(text), data),
        Err(failure) => reply::failure(failure),
    })
}

/// Carries out a call of `download`.
///
/// # Errors
/// The arguments are invalid, or the client cancelled the call.
pub(crate) async fn download(
    connection: &McpConnection,
    arguments: JsonObject,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let Download { session, path } = Download::read(arguments)?;
    let session = connection.session_ref(session, &context);
    let cancel = Cancel::default();
    let _cancel = CancelOnDrop(cancel.clone());
    let state = connection.state.clone();
    let work = reply::blocking(move || {
        let workspace = session::open(&state.sessions, session, &cancel)?;
        let file =
            transfer::read_file(&workspace.root, &path).map_err(|error| failure(FailedStep::caller("file"), &error))?;
        let random = Sessions::new_name().map_err(|error| failure(FailedStep::caller("file"), &error.to_string()))?;
        let mime = file.media_type.name();
        let data = json!({ "path": path.absolute(), "bytes": file.bytes.len(), "type": mime });
        let uri = blobs::download_uri(&random, &file.name);
        Ok((content_block(file, uri, &state.blobs), data))
    });
    let done = tokio::select! {
        done = work => done?,
        () = connection.cancelled(&context) => return Err(cancelled()),
    };
    Ok(match done {
        Ok((block, data)) => reply::success(block, data),
        Err(failure) => reply::failure(failure),
    })
}

/// Whether the session exists already.
fn exists(connection: &McpConnection, session: &SessionRef) -> bool {
    let all = connection.state.sessions.list();
    all.iter().any(|one| one.key.owner == session.owner && one.key.name == session.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn read(arguments: Value) -> Result<Upload, String> {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        Upload::read(arguments).map_err(|error| error.message.into_owned())
    }

    #[test]
    fn file_is_text_or_base64_of_bounded_size() {
        let of = |name: &str, value: &str| json!({ "session": "s", "env": "e", "path": "p", name: value });
        assert_eq!(read(of("text", "a\u{e9}")).map(|read| read.bytes), Ok("a\u{e9}".as_bytes().to_vec()));
        assert_eq!(read(of("text", "")).map(|read| read.bytes), Ok(Vec::new()));
        assert_eq!(read(of("base64", "AP8=")).map(|read| read.bytes), Ok(vec![0, 255]));
        for broken in ["=", "AP8", "A\nP8=", "AP8=="] {
            assert!(read(of("base64", broken)).is_err_and(|error| error.contains("`base64` is none")), "{broken:?}");
        }
        let most = vec![b'x'; MAX_UPLOAD_BYTES];
        assert_eq!(
            read(of("base64", &BASE64_STANDARD.encode(&most))).map(|read| read.bytes.len()),
            Ok(MAX_UPLOAD_BYTES)
        );
        let more = vec![b'x'; MAX_UPLOAD_BYTES + 1];
        for (name, value) in
            [("base64", BASE64_STANDARD.encode(&more)), ("text", String::from_utf8(more.clone()).unwrap_or_default())]
        {
            assert!(read(of(name, &value)).is_err_and(|error| error.contains("16777217 bytes")), "{name}");
        }
    }

    #[test]
    fn invalid_arguments_are_errors() {
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
            assert!(of(more).is_err_and(|error| error.contains(expected)), "{expected}");
        }
    }
}
