//! What a client gets of a run: text, the outcome as data, and the files.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cofferdam_engine::{Ending, Outcome};
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::json;

use crate::blobs::{self, Kept};
use crate::files::{Content, File};
use crate::run::Ran;
use crate::session::Told;
use crate::truncate;

/// Stands between the two streams.
const BETWEEN: &str = "\n--- stderr ---\n";

/// How much an answer has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Output, bytes of both streams together.
    text: usize,
    /// A file, bytes; larger ones are linked to.
    file: usize,
}

impl Room {
    /// An answer that is a document of its own.
    pub const DOCUMENT: Room = Room { text: truncate::LONGEST_TEXT, file: usize::MAX };
    /// An event of a stream: it has the output twice, as text and as data, and a byte of it can take six.
    const EVENT: Room = Room { text: 48 << 10, file: 0 };
    /// Most bytes of an event: clients take 1 MiB, and there is more in it than output and files.
    const LARGEST_EVENT: usize = 800 << 10;

    /// What the answer of this run has room for in an event of a stream.
    pub fn of_event(ran: &Ran) -> Room {
        let escaped = |text: &str| -> usize {
            text.bytes().map(|byte| if byte < 0x20 { 6 } else { 1 + usize::from(matches!(byte, b'"' | b'\\')) }).sum()
        };
        let output = 2 * (escaped(&ran.outcome.stdout) + escaped(&ran.outcome.stderr));
        // In base64, or as text of which every byte could be escaped.
        let files: usize = ran
            .files
            .files
            .iter()
            .map(|file| match &file.content {
                Content::Image(_) => file.bytes.len() / 3 * 4 + 4,
                Content::Text(_) => file.bytes.len().saturating_mul(6),
                Content::Other(_) => 0,
            })
            .sum();
        if output.saturating_add(files) <= Room::LARGEST_EVENT { Room::DOCUMENT } else { Room::EVENT }
    }
}

/// The answer of a run; files that are only linked to are `kept`.
pub fn answer(ran: Ran, room: Room, kept: &blobs::Shelf) -> CallToolResult {
    let Ran { mut outcome, files, session } = ran;
    let cut = truncate::cut(&mut outcome, room.text, kept);
    let mut content = vec![ContentBlock::text(text(&outcome, cut.note.as_deref(), session.as_ref()))];
    for mut file in files.files {
        let uri = blobs::address(&outcome.run_id, &file.name);
        if file.bytes.len() > room.file {
            file.content = file.content.linked();
        }
        content.push(block(file, uri, kept));
    }
    if let Some(note) = &cut.changes {
        content.push(ContentBlock::text(format!("[{note}]")));
    }
    if !files.left.is_empty() {
        let told = format!("Files that did not come back from /workspace/output:\n{}", files.left.join("\n"));
        content.push(ContentBlock::text(told));
    }
    let mut result = CallToolResult::success(content);
    result.is_error = Some(!outcome.success);
    result.structured_content = truncate::data(&outcome, &cut);
    result.content.extend(cut.links);
    if let (Some(data), Some(session)) = (&mut result.structured_content, session) {
        data["session"] = json!({
            "name": session.name,
            "fresh": session.fresh,
            "interrupted": session.interrupted,
            "over": session.over,
        });
    }
    result
}

/// What a model reads where repositories were disabled; which they are is in the outcome.
const DISABLED: &str =
    "[a repository in git's index, which git outside would obey, was disabled: its .git was renamed]";

/// The same where something was disabled that leads out of a directory of version control.
const UNLINKED: &str =
    "[a link or list that version control would follow out of its own directory, and write there, was renamed]";

/// Both streams as one text; then where the rest of them is, and how the run ended where that was not by itself.
fn text(outcome: &Outcome, note: Option<&str>, session: Option<&Told>) -> String {
    let mut text = match (outcome.stdout.is_empty(), outcome.stderr.is_empty()) {
        (_, true) => outcome.stdout.clone(),
        (true, false) => outcome.stderr.clone(),
        (false, false) => format!("{}{BETWEEN}{}", outcome.stdout, outcome.stderr),
    };
    match note {
        Some(note) => text.push_str(&format!("\n[output cut here]\n[{}]", note.replace('\n', "]\n["))),
        None if outcome.truncated.stdout || outcome.truncated.stderr => text.push_str("\n[output cut here]"),
        None => {}
    }
    let ending = match session {
        Some(told) => of_session(outcome, told),
        None => ending(outcome),
    };
    // Behind another failure it has no step of its own.
    let has = |operation: &str| outcome.violations.iter().any(|violation| violation.operation == operation);
    let disabled = has("gitlink").then(|| DISABLED.into());
    let unlinked = has("link").then(|| UNLINKED.into());
    for ending in [ending, disabled, unlinked].into_iter().flatten() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&ending);
    }
    text
}

/// How a run ended that did not exit by itself.
fn ending(outcome: &Outcome) -> Option<String> {
    let limit = || outcome.limit.map_or_else(|| "a limit".to_owned(), |field| field.to_string());
    Some(match outcome.outcome {
        Ending::Exited => return silent(outcome),
        Ending::Signalled => format!("[ended by signal {}]", outcome.signal.unwrap_or(9)),
        Ending::TimedOut => format!("[ended after {:.0} ms by its time limit]", outcome.execution_time_ms),
        Ending::LimitExceeded => format!("[ended by {}]", limit()),
        Ending::Violation => "[ended because of what it tried]".into(),
        Ending::SetupFailed => match &outcome.error {
            Some(failure) => match &failure.hint {
                Some(hint) => format!("{}\nhint: {hint}", failure.message),
                None => failure.message.clone(),
            },
            None => "nothing ran".into(),
        },
    })
}

/// A failure without a word, which would be an empty text.
fn silent(outcome: &Outcome) -> Option<String> {
    let silent = outcome.stdout.is_empty() && outcome.stderr.is_empty();
    let code = outcome.exit_code.filter(|code| *code != 0 && silent && outcome.outcome == Ending::Exited)?;
    Some(format!("[exited with code {code} and printed nothing]"))
}

/// What there is to say of a session: where its name is news, and where its state is not what the client may think.
fn of_session(outcome: &Outcome, told: &Told) -> Option<String> {
    let mut lines = Vec::from_iter(silent(outcome));
    if told.interrupted {
        let why = if outcome.outcome == Ending::TimedOut { "by its time limit" } else { "as it was asked to be" };
        let state = if told.over.is_none() { "; the session keeps its state" } else { "" };
        lines.push(format!("[interrupted after {:.0} ms {why}{state}]", outcome.execution_time_ms));
    }
    if let Some(why) = &told.over {
        lines.push(format!("[the session is over, and its state is gone: {why}]"));
    } else if told.fresh {
        lines.push(format!("[a new session: {}]", told.name));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// A file as the protocol has it; one that is only linked to is `kept` at its address.
pub fn block(file: File, uri: String, kept: &blobs::Shelf) -> ContentBlock {
    match file.content {
        Content::Image(mime) => ContentBlock::image(BASE64_STANDARD.encode(&file.bytes), mime),
        Content::Text(mime) => {
            let text = String::from_utf8(file.bytes).unwrap_or_default(); // it was found to be text
            ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(mime))
        }
        Content::Other(mime) => {
            let name = file.name.rsplit('/').next().unwrap_or(&file.name).to_owned();
            let told = format!("kept for {} minutes, to be read by this address", blobs::LIFE.as_secs() / 60);
            let link = Resource::new(uri.clone(), name)
                .with_mime_type(mime)
                .with_size(file.bytes.len() as u64)
                .with_description(told);
            kept.keep(Kept { uri, mime, bytes: file.bytes });
            ContentBlock::resource_link(link)
        }
    }
}

/// A kept file as the protocol has it.
pub fn contents(kept: Kept) -> ResourceContents {
    match String::from_utf8(kept.bytes) {
        Ok(text) if kept.mime.starts_with("text/") || kept.mime == "application/json" => {
            ResourceContents::text(text, kept.uri).with_mime_type(kept.mime)
        }
        Ok(text) => ResourceContents::blob(BASE64_STANDARD.encode(text), kept.uri).with_mime_type(kept.mime),
        Err(error) => {
            ResourceContents::blob(BASE64_STANDARD.encode(error.as_bytes()), kept.uri).with_mime_type(kept.mime)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Collected;
    use cofferdam_engine::Failure;

    fn outcome(stdout: &str, stderr: &str, code: i32) -> Outcome {
        Outcome {
            outcome: Ending::Exited,
            exit_code: Some(code),
            success: code == 0,
            stdout: stdout.into(),
            stderr: stderr.into(),
            ..Outcome::unstarted(None)
        }
    }

    #[test]
    fn both_streams_are_one_text() {
        for (out, err, expected) in
            [("o\n", "", "o\n"), ("", "e\n", "e\n"), ("o\n", "e\n", "o\n\n--- stderr ---\ne\n"), ("", "", "")]
        {
            assert_eq!(text(&outcome(out, err, 0), None, None), expected);
        }
    }

    #[test]
    fn a_repository_that_was_disabled_is_said_behind_the_output() {
        let violation = cofferdam_engine::Violation {
            operation: "gitlink".into(),
            object: Some("/p/x/.git".into()),
            field: "$.filesystem.protected".into(),
            evidence: cofferdam_engine::Evidence::Inferred,
            pid: 0,
            count: 1,
            aggregated: false,
        };
        // Also where another failure has the outcome's one step.
        let failure = Failure { code: 125, step: "audit".into(), message: "m".into(), hint: None };
        let disabled = Outcome { error: Some(failure.clone()), violations: vec![violation], ..outcome("o", "", 0) };
        assert_eq!(text(&disabled, None, None), format!("o\n{DISABLED}"));
        let other = Outcome { error: Some(failure), ..outcome("o", "", 0) };
        assert_eq!(text(&other, None, None), "o");
    }

    #[test]
    fn what_is_cut_says_so_and_where_the_rest_is() {
        let kept = blobs::Shelf::default();
        let long = "x".repeat(truncate::LONGEST_TEXT + 1);
        let result = answer(
            Ran { outcome: outcome(&long, "e", 0), files: Collected::default(), session: None },
            Room::DOCUMENT,
            &kept,
        );
        let data = serde_json::to_value(&result).unwrap();
        let text = data["content"][0]["text"].as_str().unwrap();
        let (output, told) = text.split_once("\n[output cut here]\n[stdout: ").unwrap();
        assert_eq!(output.len(), truncate::LONGEST_TEXT + BETWEEN.len());
        let uri = data["content"][1]["uri"].as_str().unwrap();
        assert!(told.contains(uri) && output.ends_with("--- stderr ---\ne"), "{told}");
        assert_eq!(kept.find(uri).unwrap().bytes, long.as_bytes());
        let structured = &data["structuredContent"];
        assert_eq!(structured["stdout"].as_str().unwrap().len(), truncate::LONGEST_TEXT - 1);
        let mut short = outcome("abc", "", 0);
        short.truncated.stderr = true;
        assert_eq!(super::text(&short, None, None), "abc\n[output cut here]");
    }

    #[test]
    fn what_did_not_end_well_is_an_error_and_says_how() {
        let kept = blobs::Shelf::default();
        let of = |outcome| answer(Ran { outcome, files: Collected::default(), session: None }, Room::DOCUMENT, &kept);
        assert_eq!(of(outcome("x", "", 0)).is_error, Some(false));
        assert_eq!(of(outcome("x", "", 3)).is_error, Some(true));
        assert_eq!(text(&outcome("x", "", 3), None, None), "x");
        assert_eq!(text(&outcome("", "", 3), None, None), "[exited with code 3 and printed nothing]");
        let failure = Failure { code: 125, step: "s".into(), message: "m".into(), hint: Some("h".into()) };
        let failed = of(Outcome::unstarted(Some(failure)));
        assert_eq!(failed.is_error, Some(true));
        assert_eq!(failed.content, [ContentBlock::text("m\nhint: h")]);
        let timed = Outcome { outcome: Ending::TimedOut, execution_time_ms: 1000.2, ..outcome("x", "", 0) };
        assert_eq!(text(&timed, None, None), "x\n[ended after 1000 ms by its time limit]");
    }

    #[test]
    fn an_event_of_a_stream_is_no_larger_than_clients_take() {
        let ran = |stdout: String, image: usize| {
            let bytes = vec![0; image];
            let files = vec![File { name: "a.png".into(), content: Content::Image("image/png"), bytes }];
            Ran { outcome: outcome(&stdout, "", 0), files: Collected { files, ..Collected::default() }, session: None }
        };
        for (stdout, image, links) in [
            ("x".repeat(300 << 10), 100, 0),
            ("x".repeat(900 << 10), 100, 2),
            ("\x01".repeat(100 << 10), 100, 2),
            ("x".into(), 5 << 20, 1),
        ] {
            let kept = blobs::Shelf::default();
            let (text, ran) = (stdout.clone(), ran(stdout, image));
            let room = Room::of_event(&ran);
            let result = serde_json::to_value(answer(ran, room, &kept)).unwrap();
            assert!(result.to_string().len() < 1 << 20, "{} {image}", text.len());
            let blocks = result["content"].as_array().unwrap();
            let linked: Vec<_> = blocks.iter().filter(|block| block["type"] == "resource_link").collect();
            assert_eq!(linked.len(), links, "{} {image}", text.len());
            let whole =
                |of: &str| linked.iter().filter_map(|link| kept.find(link["uri"].as_str()?)).find(|k| k.mime == of);
            if links > 0 {
                assert_eq!(whole("image/png").unwrap().bytes.len(), image);
            }
            if links > 1 {
                assert_eq!(whole("text/plain").unwrap().bytes, text.as_bytes());
            }
        }
    }

    #[test]
    fn files_come_as_what_they_are() {
        let kept = blobs::Shelf::default();
        let file = |name: &str, content, bytes: &[u8]| File { name: name.into(), content, bytes: bytes.into() };
        let files = Collected {
            files: vec![
                file("a.png", Content::Image("image/png"), b"\x89PNG"),
                file("b.json", Content::Text("application/json"), b"{}"),
                file("d/c.bin", Content::Other("application/octet-stream"), b"\0"),
            ],
            left: vec!["l: it is a symbolic link".into()],
            ..Collected::default()
        };
        let result = answer(Ran { outcome: outcome("", "", 0), files, session: None }, Room::DOCUMENT, &kept);
        let data = serde_json::to_value(&result).unwrap();
        let blocks = data["content"].as_array().unwrap();
        assert_eq!((blocks[1]["type"].as_str(), blocks[1]["mimeType"].as_str()), (Some("image"), Some("image/png")));
        assert_eq!(blocks[1]["data"], "iVBORw==");
        assert_eq!(
            (blocks[2]["type"].as_str(), blocks[2]["resource"]["text"].as_str()),
            (Some("resource"), Some("{}"))
        );
        assert_eq!((blocks[3]["type"].as_str(), blocks[3]["name"].as_str()), (Some("resource_link"), Some("c.bin")));
        let uri = blocks[3]["uri"].as_str().unwrap();
        let read = serde_json::to_value(contents(kept.find(uri).unwrap())).unwrap();
        assert_eq!((read["blob"].as_str(), read["uri"].as_str()), (Some("AA=="), Some(uri)));
        assert!(blocks[4]["text"].as_str().unwrap().contains("l: it is a symbolic link"));
    }
}
