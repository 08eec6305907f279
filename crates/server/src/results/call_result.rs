//! Makes the protocol's result of a call: text, the outcome as data, and the files.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cofferdam_engine::network_event::{NetworkEvent, NetworkKind};
use cofferdam_engine::{Ending, FailedStep, Outcome, Violation};
use cofferdam_policy::{Field, text};
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::json;

use super::blobs::{self, Blob, BlobStore};
use super::truncate;
use crate::execution::call::{CallOutcome, SessionStatus};
use crate::workspace::media_type::MediaType;
use crate::workspace::output::WorkspaceFile;

/// Separates the two streams in the text.
const SEPARATOR: &str = "\n--- stderr ---\n";

/// How large a result may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeBudget {
    /// Output, bytes of both streams together.
    output: usize,
    /// A file, bytes. Larger ones are linked to.
    file: usize,
}

impl SizeBudget {
    /// For a result that is a document of its own.
    pub(crate) const DOCUMENT: SizeBudget = SizeBudget { output: truncate::MAX_OUTPUT_BYTES, file: usize::MAX };
    /// For an event of a stream, which contains the output twice, as text and as data, with up to six bytes for each.
    const EVENT: SizeBudget = SizeBudget { output: 48 << 10, file: 0 };
    /// Most bytes of output and files in an event: clients accept 1 MiB, and the event contains more than these.
    const MAX_EVENT_BYTES: usize = 800 << 10;

    /// The budget of a call's result in an event of a stream.
    pub(crate) fn for_event(call: &CallOutcome) -> SizeBudget {
        let escaped = |text: &str| -> usize {
            text.bytes().map(|byte| if byte < 0x20 { 6 } else { 1 + usize::from(matches!(byte, b'"' | b'\\')) }).sum()
        };
        let output = 2 * (escaped(&call.outcome.stdout) + escaped(&call.outcome.stderr));
        // Images in base64, or text with up to six bytes for each.
        let files: usize = call
            .files
            .files
            .iter()
            .map(|file| match &file.media_type {
                MediaType::Image(_) => file.bytes.len() / 3 * 4 + 4,
                MediaType::Text(_) => file.bytes.len().saturating_mul(6),
                MediaType::Other(_) => 0,
            })
            .sum();
        if output.saturating_add(files) <= SizeBudget::MAX_EVENT_BYTES {
            SizeBudget::DOCUMENT
        } else {
            SizeBudget::EVENT
        }
    }
}

/// The result of a call. Files and output that it only links to are stored in `store`.
pub(crate) fn call_result(call: CallOutcome, budget: SizeBudget, store: &BlobStore) -> CallToolResult {
    let CallOutcome { mut outcome, files, session, hints } = call;
    let truncation = truncate::truncate(&mut outcome, budget.output, store);
    let mut content = vec![ContentBlock::text(text(&outcome, truncation.note.as_deref(), session.as_ref(), &hints))];
    for mut file in files.files {
        let uri = blobs::output_uri(&outcome.run_id, &file.name);
        if file.bytes.len() > budget.file {
            file.media_type = file.media_type.linked();
        }
        content.push(content_block(file, uri, store));
    }
    if let Some(note) = &truncation.changes {
        content.push(ContentBlock::text(format!("[{note}]")));
    }
    if !files.skipped.is_empty() {
        let text = format!("Files that did not come back from /workspace/output:\n{}", files.skipped.join("\n"));
        content.push(ContentBlock::text(text));
    }
    let mut result = CallToolResult::success(content);
    result.is_error = Some(!outcome.success);
    result.structured_content = truncate::structured(&outcome, &truncation);
    result.content.extend(truncation.links);
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

/// The text for a model if repositories were disabled. The outcome says which.
const DISABLED: &str =
    "[a repository in git's index, which git outside would obey, was disabled: its .git was renamed]";

/// The text if something was disabled that leads out of a version control directory.
const UNLINKED: &str =
    "[a link or list that version control would follow out of its own directory, and write there, was renamed]";

/// Both streams as one text, followed by where the rest of them is, and how the run ended if it did not exit by itself.
fn text(outcome: &Outcome, note: Option<&str>, session: Option<&SessionStatus>, hints: &[String]) -> String {
    let mut text = match (outcome.stdout.is_empty(), outcome.stderr.is_empty()) {
        (_, true) => outcome.stdout.clone(),
        (true, false) => outcome.stderr.clone(),
        (false, false) => format!("{}{SEPARATOR}{}", outcome.stdout, outcome.stderr),
    };
    match note {
        Some(note) => text.push_str(&format!("\n[output cut here]\n[{}]", note.replace('\n', "]\n["))),
        None if outcome.truncated.stdout || outcome.truncated.stderr => text.push_str("\n[output cut here]"),
        None => {}
    }
    let ending = match session {
        Some(status) => session_note(outcome, status),
        None => ending(outcome),
    };
    // The outcome has only one failure, which may be another one.
    let has = |operation: &str| outcome.violations.iter().any(|violation| violation.operation == operation);
    let disabled = has("gitlink").then(|| DISABLED.into());
    let unlinked = has("link").then(|| UNLINKED.into());
    let hints = hints.iter().map(|hint| format!("[hint: {hint}]"));
    let notes = refusals(outcome).into_iter().chain(changes(outcome)).chain(hints);
    for ending in [ending, disabled, unlinked].into_iter().flatten().chain(notes) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&ending);
    }
    text
}

/// Most refusals, and most changed files, that stand in the text. The data has them all.
const MOST: usize = 10;

/// What was refused, a line each. A model reads the text, and seldom the data.
fn refusals(outcome: &Outcome) -> Vec<String> {
    let limits = |operation: &str| Field::ALL.iter().any(|field| field.name() == operation);
    let listed = |v: &&Violation| !matches!(v.operation.as_str(), "gitlink" | "link") && !limits(&v.operation);
    let all: Vec<&Violation> = outcome.violations.iter().filter(listed).collect();
    let line = |v: &&Violation| {
        let object = v.object.as_deref().map(|object| format!(" {}", text::one_line(object))).unwrap_or_default();
        let times = if v.count > 1 { format!(", {} times", v.count) } else { String::new() };
        let why = detail_of(outcome, v).map(|why| format!(": {why}")).unwrap_or_default();
        format!("[refused: {}{object} ({}{times}){why}]", v.operation, v.field)
    };
    let more = all.len().saturating_sub(MOST);
    all.iter().take(MOST).map(line).chain((more > 0).then(|| format!("[{more} more refusals]"))).collect()
}

/// What the gateway said of a refusal beyond that no rule allows it, such as that a name leads to a private address.
fn detail_of(outcome: &Outcome, violation: &Violation) -> Option<String> {
    let events = outcome.network.iter().flat_map(|network| &network.events);
    let object = violation.object.as_deref()?;
    let about = |event: &&NetworkEvent| {
        let host = event.host.as_deref().unwrap_or_default();
        let port = event.port.map(|port| format!("{host}:{port}"));
        event.kind == NetworkKind::Refused && (object == host || port.is_some_and(|named| named == object))
    };
    events.filter(about).find_map(|event| event.detail.as_deref().map(text::one_line))
}

/// What copy-on-write volumes changed, in one line.
fn changes(outcome: &Outcome) -> Option<String> {
    let named =
        outcome.changes.iter().take(MOST).map(|change| format!("{} {}", change.kind, text::one_line(&change.path)));
    let named: Vec<String> = named.collect();
    let more = outcome.changes.len() as u64 - named.len() as u64 + outcome.changes_omitted;
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("[changed in the copy: {}{more}]", named.join(", ")))
}

/// How a run ended that did not exit by itself.
fn ending(outcome: &Outcome) -> Option<String> {
    let limit = || outcome.limit.map_or_else(|| "a limit".to_owned(), |field| field.to_string());
    Some(match outcome.outcome {
        Ending::Exited => return silent_failure(outcome),
        Ending::Signalled => {
            let signal = outcome.signal.unwrap_or(9);
            // What the machine or other runs took is no fault of the code's.
            let why = outcome.error.as_ref().filter(|failure| failure.step == FailedStep::Memory);
            why.map_or_else(
                || format!("[ended by signal {signal}]"),
                |why| format!("[ended by signal {signal}: {}]", text::one_line(&why.message)),
            )
        }
        Ending::TimedOut => format!("[ended after {:.0} ms by its time limit]", outcome.execution_time_ms),
        Ending::LimitExceeded if outcome.limit == Some(Field::Memory) => {
            format!("[ended by {}; hint: memory = \"SIZE\" in the definition of the environment]", limit())
        }
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

/// The text of a failure without output, which would otherwise be empty.
fn silent_failure(outcome: &Outcome) -> Option<String> {
    let silent = outcome.stdout.is_empty() && outcome.stderr.is_empty();
    let code = outcome.exit_code.filter(|code| *code != 0 && silent && outcome.outcome == Ending::Exited)?;
    Some(format!("[exited with code {code} and printed nothing]"))
}

/// The text about a session: that it is new, was interrupted, or has ended.
fn session_note(outcome: &Outcome, status: &SessionStatus) -> Option<String> {
    let mut lines = Vec::from_iter(silent_failure(outcome));
    if status.interrupted {
        let why = if outcome.outcome == Ending::TimedOut { "by its time limit" } else { "as it was asked to be" };
        let state = if status.over.is_none() { "; the session keeps its state" } else { "" };
        lines.push(format!("[interrupted after {:.0} ms {why}{state}]", outcome.execution_time_ms));
    }
    if let Some(why) = &status.over {
        lines.push(format!("[the session is over, and its state is gone: {why}]"));
    } else if status.fresh {
        lines.push(format!("[a new session: {}]", status.name));
    }
    lines.extend(outcome.error.as_ref().map(|failure| format!("[{}]", text::one_line(&failure.message))));
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// A file as the protocol's content block. A file that is only linked to is stored at its address.
pub(crate) fn content_block(file: WorkspaceFile, uri: String, store: &BlobStore) -> ContentBlock {
    match file.media_type {
        MediaType::Image(mime) => ContentBlock::image(BASE64_STANDARD.encode(&file.bytes), mime),
        MediaType::Text(mime) => {
            let text = String::from_utf8(file.bytes).unwrap_or_default(); // its media type says that it is text
            ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(mime))
        }
        MediaType::Other(mime) => {
            let name = text::one_line(file.name.rsplit('/').next().unwrap_or(&file.name));
            let description =
                format!("kept for {} minutes, to be read by this address", blobs::LIFETIME.as_secs() / 60);
            let link = Resource::new(uri.clone(), name)
                .with_mime_type(mime)
                .with_size(file.bytes.len() as u64)
                .with_description(description);
            store.insert(Blob { uri, mime, bytes: file.bytes });
            ContentBlock::resource_link(link)
        }
    }
}

/// A blob as the protocol's resource contents.
pub(crate) fn resource_contents(blob: Blob) -> ResourceContents {
    match String::from_utf8(blob.bytes) {
        Ok(text) if blob.mime.starts_with("text/") || blob.mime == "application/json" => {
            ResourceContents::text(text, blob.uri).with_mime_type(blob.mime)
        }
        Ok(text) => ResourceContents::blob(BASE64_STANDARD.encode(text), blob.uri).with_mime_type(blob.mime),
        Err(error) => {
            ResourceContents::blob(BASE64_STANDARD.encode(error.as_bytes()), blob.uri).with_mime_type(blob.mime)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::output::OutputFiles;
    use cofferdam_engine::Failure;

    #[test]
    fn refusals_and_changes_stand_in_the_text_a_line_each() {
        let violation = |object: &str, count| Violation {
            operation: "connect".into(),
            object: Some(object.into()),
            field: "$.network.allow".into(),
            evidence: cofferdam_engine::Evidence::Gateway,
            pid: 1,
            count,
            aggregated: false,
        };
        let change = |path: &str| cofferdam_engine::FileChange { kind: 'M', path: path.into() };
        let some = Outcome {
            violations: vec![violation("a.example:443", 2), violation("b\n[refused: forged]", 1)],
            changes: vec![change("/project/notes.txt"), change("/project/x\n[y]")],
            ..outcome("o", "", 0)
        };
        let expected = "o\n[refused: connect a.example:443 ($.network.allow, 2 times)]\n[refused: connect \
                        b\\n[refused: forged] ($.network.allow)]\n[changed in the copy: M /project/notes.txt, M \
                        /project/x\\n[y]]";
        assert_eq!(text(&some, None, None, &[]), expected);
        let many = Outcome { violations: vec![violation("a", 1); MOST + 2], ..outcome("", "", 0) };
        assert!(text(&many, None, None, &[]).ends_with("[2 more refusals]"));
        assert_eq!(text(&outcome("o", "", 0), None, None, &[]), "o");
    }

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
    fn both_streams_are_joined_into_one_text() {
        for (out, err, expected) in
            [("o\n", "", "o\n"), ("", "e\n", "e\n"), ("o\n", "e\n", "o\n\n--- stderr ---\ne\n"), ("", "", "")]
        {
            assert_eq!(text(&outcome(out, err, 0), None, None, &[]), expected);
        }
    }

    #[test]
    fn disabled_repository_is_noted_after_the_output() {
        let violation = cofferdam_engine::Violation {
            operation: "gitlink".into(),
            object: Some("/p/x/.git".into()),
            field: "$.filesystem.protected".into(),
            evidence: cofferdam_engine::Evidence::Inferred,
            pid: 0,
            count: 1,
            aggregated: false,
        };
        // Also if the outcome has another failure.
        let failure = Failure { code: 125, step: FailedStep::Audit, message: "m".into(), hint: None };
        let disabled = Outcome { error: Some(failure.clone()), violations: vec![violation], ..outcome("o", "", 0) };
        assert_eq!(text(&disabled, None, None, &[]), format!("o\n{DISABLED}"));
        let other = Outcome { error: Some(failure), ..outcome("o", "", 0) };
        assert_eq!(text(&other, None, None, &[]), "o");
    }

    #[test]
    fn truncated_output_is_noted_with_a_link_to_the_rest() {
        let store = BlobStore::default();
        let long = "x".repeat(truncate::MAX_OUTPUT_BYTES + 1);
        let result = call_result(
            CallOutcome {
                outcome: outcome(&long, "e", 0),
                files: OutputFiles::default(),
                session: None,
                hints: Vec::new(),
            },
            SizeBudget::DOCUMENT,
            &store,
        );
        let data = serde_json::to_value(&result).unwrap();
        let text = data["content"][0]["text"].as_str().unwrap();
        let (output, note) = text.split_once("\n[output cut here]\n[stdout: ").unwrap();
        assert_eq!(output.len(), truncate::MAX_OUTPUT_BYTES + SEPARATOR.len());
        let uri = data["content"][1]["uri"].as_str().unwrap();
        assert!(note.contains(uri) && output.ends_with("--- stderr ---\ne"), "{note}");
        assert_eq!(store.get(uri).unwrap().bytes, long.as_bytes());
        let structured = &data["structuredContent"];
        assert_eq!(structured["stdout"].as_str().unwrap().len(), truncate::MAX_OUTPUT_BYTES - 1);
        let mut short = outcome("abc", "", 0);
        short.truncated.stderr = true;
        assert_eq!(super::text(&short, None, None, &[]), "abc\n[output cut here]");
    }

    #[test]
    fn unsuccessful_runs_are_errors_with_a_reason() {
        let store = BlobStore::default();
        let of = |outcome| {
            call_result(
                CallOutcome { outcome, files: OutputFiles::default(), session: None, hints: Vec::new() },
                SizeBudget::DOCUMENT,
                &store,
            )
        };
        assert_eq!(of(outcome("x", "", 0)).is_error, Some(false));
        assert_eq!(of(outcome("x", "", 3)).is_error, Some(true));
        assert_eq!(text(&outcome("x", "", 3), None, None, &[]), "x");
        assert_eq!(text(&outcome("", "", 3), None, None, &[]), "[exited with code 3 and printed nothing]");
        let failure = Failure { code: 125, step: FailedStep::caller("s"), message: "m".into(), hint: Some("h".into()) };
        let failed = of(Outcome::unstarted(Some(failure)));
        assert_eq!(failed.is_error, Some(true));
        assert_eq!(failed.content, [ContentBlock::text("m\nhint: h")]);
        let killed = |step| Outcome {
            outcome: Ending::Signalled,
            signal: Some(9),
            error: Some(Failure { code: 125, step, message: "all runs".into(), hint: None }),
            ..outcome("x", "", 0)
        };
        assert_eq!(text(&killed(FailedStep::Memory), None, None, &[]), "x\n[ended by signal 9: all runs]");
        assert_eq!(text(&killed(FailedStep::Audit), None, None, &[]), "x\n[ended by signal 9]");
        let timed = Outcome { outcome: Ending::TimedOut, execution_time_ms: 1000.2, ..outcome("x", "", 0) };
        assert_eq!(text(&timed, None, None, &[]), "x\n[ended after 1000 ms by its time limit]");
    }

    #[test]
    fn events_stay_below_the_size_that_clients_accept() {
        let call = |stdout: String, image: usize| {
            let bytes = vec![0; image];
            let files = vec![WorkspaceFile { name: "a.png".into(), media_type: MediaType::Image("image/png"), bytes }];
            CallOutcome {
                outcome: outcome(&stdout, "", 0),
                files: OutputFiles { files, ..OutputFiles::default() },
                session: None,
                hints: Vec::new(),
            }
        };
        for (stdout, image, links) in [
            ("x".repeat(300 << 10), 100, 0),
            ("x".repeat(900 << 10), 100, 2),
            ("\x01".repeat(100 << 10), 100, 2),
            ("x".into(), 5 << 20, 1),
        ] {
            let store = BlobStore::default();
            let (text, call) = (stdout.clone(), call(stdout, image));
            let budget = SizeBudget::for_event(&call);
            let result = serde_json::to_value(call_result(call, budget, &store)).unwrap();
            assert!(result.to_string().len() < 1 << 20, "{} {image}", text.len());
            let blocks = result["content"].as_array().unwrap();
            let linked: Vec<_> = blocks.iter().filter(|block| block["type"] == "resource_link").collect();
            assert_eq!(linked.len(), links, "{} {image}", text.len());
            let whole =
                |of: &str| linked.iter().filter_map(|link| store.get(link["uri"].as_str()?)).find(|k| k.mime == of);
            if links > 0 {
                assert_eq!(whole("image/png").unwrap().bytes.len(), image);
            }
            if links > 1 {
                assert_eq!(whole("text/plain").unwrap().bytes, text.as_bytes());
            }
        }
    }

    #[test]
    fn characters_that_steer_are_escaped_in_names_of_links() {
        for (name, shown) in [
            ("d/a\u{202e}gnp.bin", "a\\u{202e}gnp.bin"),
            ("a\u{e0041}\u{200b}.bin", "a\\u{e0041}\\u{200b}.bin"),
            ("\u{e9}\u{5e9}.bin", "\u{e9}\u{5e9}.bin"),
        ] {
            let media_type = MediaType::Other("application/octet-stream");
            let file = WorkspaceFile { name: name.into(), media_type, bytes: vec![0] };
            let uri = blobs::output_uri("id", name);
            let block = serde_json::to_value(content_block(file, uri, &BlobStore::default())).unwrap();
            assert_eq!((block["type"].as_str(), block["name"].as_str()), (Some("resource_link"), Some(shown)));
        }
    }

    #[test]
    fn files_are_returned_by_media_type() {
        let store = BlobStore::default();
        let file =
            |name: &str, media_type, bytes: &[u8]| WorkspaceFile { name: name.into(), media_type, bytes: bytes.into() };
        let files = OutputFiles {
            files: vec![
                file("a.png", MediaType::Image("image/png"), b"\x89PNG"),
                file("b.json", MediaType::Text("application/json"), b"{}"),
                file("d/c.bin", MediaType::Other("application/octet-stream"), b"\0"),
            ],
            skipped: vec!["l: it is a symbolic link".into()],
            ..OutputFiles::default()
        };
        let result = call_result(
            CallOutcome { outcome: outcome("", "", 0), files, session: None, hints: Vec::new() },
            SizeBudget::DOCUMENT,
            &store,
        );
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
        let read = serde_json::to_value(resource_contents(store.get(uri).unwrap())).unwrap();
        assert_eq!((read["blob"].as_str(), read["uri"].as_str()), (Some("AA=="), Some(uri)));
        assert!(blocks[4]["text"].as_str().unwrap().contains("l: it is a symbolic link"));
    }
}
