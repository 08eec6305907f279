//! Fits an outcome into a result: output and changes up to a bound, and reasons only for fields not enforced in full.
//!
//! Output that is cut off is stored as a blob for a while and linked to. The result always says that something is missing.

use cofferdam_engine::{FileChange, Outcome, Strength};
use rmcp::model::{ContentBlock, Resource};
use serde_json::Value;

use super::blobs::{self, Blob, BlobStore};

/// Most output in a result, bytes of both streams together.
pub(crate) const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// Most bytes of JSON that list changes in a result.
const MAX_CHANGES_BYTES: usize = 64 << 10;

/// Most bytes of a stream that are stored as a blob.
const MAX_BLOB_BYTES: usize = 16 << 20;

/// What was left out.
#[derive(Debug, Default)]
pub(crate) struct Truncation {
    /// Links to the blobs with all of it.
    pub links: Vec<ContentBlock>,
    /// The same as text, a line for each stream.
    pub note: Option<String>,
    /// A text saying that not all changes are listed.
    pub changes: Option<String>,
}

/// Shortens both streams to `most` bytes together, where each may use what the other leaves, and the list of changes.
pub(crate) fn truncate(outcome: &mut Outcome, most: usize, blobs: &BlobStore) -> Truncation {
    let half = most / 2;
    let room = |other: &str| most - other.len().min(half);
    let rooms = [room(&outcome.stderr), room(&outcome.stdout)];
    let id = outcome.run_id.clone();
    let streams = [
        ("stdout", &mut outcome.stdout, &mut outcome.truncated.stdout),
        ("stderr", &mut outcome.stderr, &mut outcome.truncated.stderr),
    ];
    let mut truncation = Truncation::default();
    let mut notes = Vec::new();
    for ((name, text, truncated), room) in streams.into_iter().zip(rooms) {
        if text.len() <= room {
            continue;
        }
        let (printed, before) = (text.len(), *truncated);
        let mut whole = std::mem::take(text);
        *text = whole[..whole.floor_char_boundary(room)].to_owned();
        *truncated = true;
        whole.truncate(whole.floor_char_boundary(MAX_BLOB_BYTES));
        let what = if before || whole.len() < printed {
            format!("the first {} bytes", whole.len())
        } else {
            "the whole".into()
        };
        let uri = blobs::stream_uri(&id, name);
        let minutes = blobs::LIFETIME.as_secs() / 60;
        notes.push(format!(
            "{name}: the first {} bytes of {printed} are here; {what} of it is kept for {minutes} minutes at {uri}",
            text.len()
        ));
        let link = Resource::new(uri.clone(), name)
            .with_mime_type(PLAIN)
            .with_size(whole.len() as u64)
            .with_description(format!("{what} of {name}, kept for {minutes} minutes, to be read by this address"));
        blobs.insert(Blob { uri, mime: PLAIN, bytes: whole.into_bytes() });
        truncation.links.push(ContentBlock::resource_link(link));
    }
    let changed = outcome.changes.len() as u64 + outcome.changes_omitted;
    let mut room = MAX_CHANGES_BYTES;
    let fits = |change: &FileChange| {
        let bytes = serde_json::to_string(change).map_or(usize::MAX, |json| json.len() + 1);
        room = room.checked_sub(bytes)?;
        Some(())
    };
    let listed = outcome.changes.iter().map_while(fits).count();
    outcome.changes.truncate(listed);
    outcome.changes_omitted = changed - listed as u64;
    if outcome.changes_omitted > 0 {
        truncation.changes = Some(format!("{changed} files changed; the first {listed} are listed"));
    }
    truncation.note = (!notes.is_empty()).then(|| notes.join("\n"));
    truncation
}

const PLAIN: &str = "text/plain";

/// The outcome as data. Reasons are left out for fields that were enforced in full.
pub(crate) fn structured(outcome: &Outcome, truncation: &Truncation) -> Option<Value> {
    let mut data = serde_json::to_value(outcome).ok()?;
    for (field, applied) in &outcome.enforcement {
        if applied.strength == Strength::Full
            && let Some(Value::Object(field)) = data["enforcement"].get_mut(field.to_string())
        {
            field.remove("reason");
        }
    }
    if let Some(note) = &truncation.note {
        data["truncated"]["note"] = Value::from(note.as_str());
    }
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_engine::AppliedField;
    use cofferdam_policy::Field;

    fn printed(stdout: usize, stderr: usize) -> Outcome {
        Outcome { stdout: "o".repeat(stdout), stderr: "e".repeat(stderr), ..Outcome::unstarted(None) }
    }

    #[test]
    fn each_stream_may_use_what_the_other_leaves() {
        let (most, half) = (MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES / 2);
        for (before, after) in [
            ((most, 0), (most, 0)),
            ((most + 1, 0), (most, 0)),
            ((most, 10), (most - 10, 10)),
            ((10, 9 * most), (10, most - 10)),
            ((2 * most, 3 * most), (half, half)),
            ((half, half), (half, half)),
        ] {
            let mut outcome = printed(before.0, before.1);
            let truncation = truncate(&mut outcome, MAX_OUTPUT_BYTES, &BlobStore::default());
            assert_eq!((outcome.stdout.len(), outcome.stderr.len()), after, "{before:?}");
            assert_eq!((outcome.truncated.stdout, outcome.truncated.stderr), (after.0 < before.0, after.1 < before.1));
            assert_eq!(truncation.note.is_some(), after != before, "{before:?}");
            assert_eq!(truncation.links.len(), usize::from(after.0 < before.0) + usize::from(after.1 < before.1));
        }
    }

    #[test]
    fn truncated_output_is_stored_whole_and_cut_between_characters() {
        let blobs = BlobStore::default();
        let mut outcome = printed(0, 0);
        let text = format!("x{}", "\u{e9}".repeat(MAX_OUTPUT_BYTES));
        outcome.stdout = text.clone();
        let truncation = truncate(&mut outcome, MAX_OUTPUT_BYTES, &blobs);
        assert!(text.starts_with(&outcome.stdout) && outcome.stdout.len() == MAX_OUTPUT_BYTES - 1);
        let uri = blobs::stream_uri(&outcome.run_id, "stdout");
        assert_eq!(blobs.get(&uri).unwrap().bytes, text.as_bytes());
        let data = structured(&outcome, &truncation).unwrap();
        assert!(data["truncated"]["note"].as_str().unwrap().contains(&uri), "{}", data["truncated"]);
        assert_eq!(data["truncated"]["stdout"], true);
    }

    #[test]
    fn stored_output_is_bounded() {
        let blobs = BlobStore::default();
        let mut outcome = printed(MAX_BLOB_BYTES + 5, 0);
        let note = truncate(&mut outcome, MAX_OUTPUT_BYTES, &blobs).note.unwrap();
        let blob = blobs.get(&blobs::stream_uri(&outcome.run_id, "stdout")).unwrap();
        assert_eq!(blob.bytes.len(), MAX_BLOB_BYTES);
        assert!(note.contains("the first 16777216 bytes of it"), "{note}");
    }

    #[test]
    fn changes_are_listed_up_to_a_bound_and_the_rest_counted() {
        let change = |n: usize| FileChange { kind: 'A', path: format!("/project/{n:05}\u{1b}") };
        let mut outcome = printed(0, 0);
        outcome.changes = (0..100).map(change).collect();
        let few = truncate(&mut outcome, MAX_OUTPUT_BYTES, &BlobStore::default());
        assert_eq!((outcome.changes.len(), outcome.changes_omitted, few.changes), (100, 0, None));
        outcome.changes = (0..50_000).map(change).collect();
        outcome.changes_omitted = 7;
        let many = truncate(&mut outcome, MAX_OUTPUT_BYTES, &BlobStore::default());
        let listed = outcome.changes.len();
        assert!(serde_json::to_string(&outcome.changes).unwrap().len() <= MAX_CHANGES_BYTES + 2, "{listed}");
        assert!(listed > 1000 && outcome.changes_omitted == 50_007 - listed as u64, "{listed}");
        assert_eq!(many.changes, Some(format!("50007 files changed; the first {listed} are listed")));
    }

    #[test]
    fn reasons_are_kept_for_fields_not_enforced_in_full() {
        let mut outcome = printed(0, 0);
        let of = |strength| AppliedField { strength, reason: "why".into() };
        outcome.enforcement.insert(Field::Memory, of(Strength::Partial));
        outcome.enforcement.insert(Field::Network, of(Strength::Full));
        let data = structured(&outcome, &Truncation::default()).unwrap();
        let reported = |field: Field| data["enforcement"][field.to_string()].clone();
        assert_eq!(reported(Field::Memory), serde_json::json!({ "strength": "partial", "reason": "why" }));
        assert_eq!(reported(Field::Network), serde_json::json!({ "strength": "full" }));
        assert!(data["truncated"].get("note").is_none());
    }
}
