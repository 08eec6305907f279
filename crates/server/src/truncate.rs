//! How much of an outcome goes into an answer: output up to a bound, and of what was enforced the reasons that matter.
//!
//! What is cut off is kept for a while, as files are, and linked to. Never says less than that something is missing.

use cofferdam_engine::{Change, Outcome, Strength};
use rmcp::model::{ContentBlock, Resource};
use serde_json::Value;

use crate::blobs::{self, Kept};

/// Most output in an answer, bytes of both streams together.
pub const LONGEST_TEXT: usize = 1 << 20;

/// Most bytes of JSON that list changes in an answer.
const LONGEST_CHANGES: usize = 64 << 10;

/// Most bytes of a stream that are kept beside the answer.
const LARGEST_KEPT: usize = 16 << 20;

/// What was cut off.
#[derive(Debug, Default)]
pub struct Cut {
    /// Where the whole of it is.
    pub links: Vec<ContentBlock>,
    /// The same in words, a line for each stream.
    pub note: Option<String>,
    /// That changes are not listed, in words.
    pub changes: Option<String>,
}

/// Shortens both streams so that they have room in an answer, `most` bytes together; each may have what the other leaves.
pub fn cut(outcome: &mut Outcome, most: usize, shelf: &blobs::Shelf) -> Cut {
    let half = most / 2;
    let room = |other: &str| most - other.len().min(half);
    let rooms = [room(&outcome.stderr), room(&outcome.stdout)];
    let id = outcome.run_id.clone();
    let streams = [
        ("stdout", &mut outcome.stdout, &mut outcome.truncated.stdout),
        ("stderr", &mut outcome.stderr, &mut outcome.truncated.stderr),
    ];
    let mut cut = Cut::default();
    let mut notes = Vec::new();
    for ((name, text, truncated), room) in streams.into_iter().zip(rooms) {
        if text.len() <= room {
            continue;
        }
        let (printed, before) = (text.len(), *truncated);
        let mut whole = std::mem::take(text);
        *text = whole[..whole.floor_char_boundary(room)].to_owned();
        *truncated = true;
        whole.truncate(whole.floor_char_boundary(LARGEST_KEPT));
        let what = if before || whole.len() < printed {
            format!("the first {} bytes", whole.len())
        } else {
            "the whole".into()
        };
        let uri = blobs::address_of_stream(&id, name);
        let minutes = blobs::LIFE.as_secs() / 60;
        notes.push(format!(
            "{name}: the first {} bytes of {printed} are here; {what} of it is kept for {minutes} minutes at {uri}",
            text.len()
        ));
        let link = Resource::new(uri.clone(), name)
            .with_mime_type(PLAIN)
            .with_size(whole.len() as u64)
            .with_description(format!("{what} of {name}, kept for {minutes} minutes, to be read by this address"));
        shelf.keep(Kept { uri, mime: PLAIN, bytes: whole.into_bytes() });
        cut.links.push(ContentBlock::resource_link(link));
    }
    let changed = outcome.changes.len() as u64 + outcome.changes_omitted;
    let mut room = LONGEST_CHANGES;
    let fits = |change: &Change| {
        let bytes = serde_json::to_string(change).map_or(usize::MAX, |json| json.len() + 1);
        room = room.checked_sub(bytes)?;
        Some(())
    };
    let listed = outcome.changes.iter().map_while(fits).count();
    outcome.changes.truncate(listed);
    outcome.changes_omitted = changed - listed as u64;
    if outcome.changes_omitted > 0 {
        cut.changes = Some(format!("{changed} files changed; the first {listed} are listed"));
    }
    cut.note = (!notes.is_empty()).then(|| notes.join("\n"));
    cut
}

const PLAIN: &str = "text/plain";

/// The outcome as data. By what a field was held is told where it was not held in full.
pub fn data(outcome: &Outcome, cut: &Cut) -> Option<Value> {
    let mut data = serde_json::to_value(outcome).ok()?;
    for (field, applied) in &outcome.enforcement {
        if applied.strength == Strength::Full
            && let Some(Value::Object(said)) = data["enforcement"].get_mut(field.to_string())
        {
            said.remove("reason");
        }
    }
    if let Some(note) = &cut.note {
        data["truncated"]["note"] = Value::from(note.as_str());
    }
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_engine::Applied;
    use cofferdam_policy::Field;

    fn printed(stdout: usize, stderr: usize) -> Outcome {
        Outcome { stdout: "o".repeat(stdout), stderr: "e".repeat(stderr), ..Outcome::unstarted(None) }
    }

    #[test]
    fn each_stream_may_have_what_the_other_leaves() {
        let (most, half) = (LONGEST_TEXT, LONGEST_TEXT / 2);
        for (before, after) in [
            ((most, 0), (most, 0)),
            ((most + 1, 0), (most, 0)),
            ((most, 10), (most - 10, 10)),
            ((10, 9 * most), (10, most - 10)),
            ((2 * most, 3 * most), (half, half)),
            ((half, half), (half, half)),
        ] {
            let mut outcome = printed(before.0, before.1);
            let cut = cut(&mut outcome, LONGEST_TEXT, &blobs::Shelf::default());
            assert_eq!((outcome.stdout.len(), outcome.stderr.len()), after, "{before:?}");
            assert_eq!((outcome.truncated.stdout, outcome.truncated.stderr), (after.0 < before.0, after.1 < before.1));
            assert_eq!(cut.note.is_some(), after != before, "{before:?}");
            assert_eq!(cut.links.len(), usize::from(after.0 < before.0) + usize::from(after.1 < before.1));
        }
    }

    #[test]
    fn what_is_cut_off_is_kept_as_a_whole_and_between_characters() {
        let shelf = blobs::Shelf::default();
        let mut outcome = printed(0, 0);
        let text = format!("x{}", "\u{e9}".repeat(LONGEST_TEXT));
        outcome.stdout = text.clone();
        let cut = cut(&mut outcome, LONGEST_TEXT, &shelf);
        assert!(text.starts_with(&outcome.stdout) && outcome.stdout.len() == LONGEST_TEXT - 1);
        let uri = blobs::address_of_stream(&outcome.run_id, "stdout");
        assert_eq!(shelf.find(&uri).unwrap().bytes, text.as_bytes());
        let data = data(&outcome, &cut).unwrap();
        assert!(data["truncated"]["note"].as_str().unwrap().contains(&uri), "{}", data["truncated"]);
        assert_eq!(data["truncated"]["stdout"], true);
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let shelf = blobs::Shelf::default();
        let mut outcome = printed(LARGEST_KEPT + 5, 0);
        let note = cut(&mut outcome, LONGEST_TEXT, &shelf).note.unwrap();
        let kept = shelf.find(&blobs::address_of_stream(&outcome.run_id, "stdout")).unwrap();
        assert_eq!(kept.bytes.len(), LARGEST_KEPT);
        assert!(note.contains("the first 16777216 bytes of it"), "{note}");
    }

    #[test]
    fn changes_are_listed_up_to_a_bound_and_the_others_are_counted() {
        let change = |n: usize| Change { kind: 'A', path: format!("/project/{n:05}\u{1b}") };
        let mut outcome = printed(0, 0);
        outcome.changes = (0..100).map(change).collect();
        let few = cut(&mut outcome, LONGEST_TEXT, &blobs::Shelf::default());
        assert_eq!((outcome.changes.len(), outcome.changes_omitted, few.changes), (100, 0, None));
        outcome.changes = (0..50_000).map(change).collect();
        outcome.changes_omitted = 7;
        let many = cut(&mut outcome, LONGEST_TEXT, &blobs::Shelf::default());
        let listed = outcome.changes.len();
        assert!(serde_json::to_string(&outcome.changes).unwrap().len() <= LONGEST_CHANGES + 2, "{listed}");
        assert!(listed > 1000 && outcome.changes_omitted == 50_007 - listed as u64, "{listed}");
        assert_eq!(many.changes, Some(format!("50007 files changed; the first {listed} are listed")));
    }

    #[test]
    fn reasons_are_told_of_what_was_not_held_in_full() {
        let mut outcome = printed(0, 0);
        let of = |strength| Applied { strength, reason: "why".into() };
        outcome.enforcement.insert(Field::Memory, of(Strength::Partial));
        outcome.enforcement.insert(Field::Network, of(Strength::Full));
        let data = data(&outcome, &Cut::default()).unwrap();
        let said = |field: Field| data["enforcement"][field.to_string()].clone();
        assert_eq!(said(Field::Memory), serde_json::json!({ "strength": "partial", "reason": "why" }));
        assert_eq!(said(Field::Network), serde_json::json!({ "strength": "full" }));
        assert!(data["truncated"].get("note").is_none());
    }
}
