//! Which records `show` and `tail` print: the options as a filter, and the run and the kinds that they name.

use std::collections::BTreeSet;
use std::path::Path;

use clap::ArgMatches;
use cofferdam_engine::audit::{self, Follow, RecordFilter, TrailLine};

use crate::refusal::CliRefusal;

/// Fewest characters of a run's id that name the run.
const SHORTEST_PREFIX: usize = 8;

/// The filter of the options.
///
/// # Errors
/// A time has the wrong form.
pub(super) fn filter(matches: &ArgMatches) -> Result<RecordFilter, CliRefusal> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let time = |name: &'static str| text(name).map(|given| instant(name, &given)).transpose();
    Ok(RecordFilter {
        run: text("run"),
        skill: text("skill"),
        kinds: matches.get_many("kind").into_iter().flatten().cloned().collect(),
        since: time("since")?,
        until: time("until")?,
    })
}

/// The id of a run: the given one, or the only one that begins with it, if it has [`SHORTEST_PREFIX`] characters or more.
///
/// # Errors
/// Several runs begin with it.
pub(super) fn whole_run(dir: &Path, given: String) -> Result<String, CliRefusal> {
    let mut found = BTreeSet::new();
    let mut all = Follow::new(dir);
    // A trail that cannot be read has no runs; the error is reported when the trail is shown.
    while given.len() >= SHORTEST_PREFIX
        && let Ok(Some(line)) = all.next_line()
    {
        if let TrailLine::Record(record) = line
            && let Some(run) = record.run.filter(|run| run.starts_with(&given))
        {
            if run == given {
                return Ok(given);
            }
            found.insert(run);
        }
    }
    match found.len() {
        0 => Ok(given),
        1 => Ok(found.pop_first().unwrap_or(given)),
        n => Err(CliRefusal::new("arguments", format!("--run {given}: the ids of {n} runs begin so"))
            .hint(format!("give more of it: {}", found.into_iter().take(3).collect::<Vec<_>>().join(", ")))),
    }
}

/// Requires that the kinds exist: kinds of the engine, or kinds that the trail contains, because other writers may add theirs.
///
/// # Errors
/// There is no such kind.
pub(super) fn require_known_kinds(dir: &Path, kinds: &[String]) -> Result<(), CliRefusal> {
    let mut unknown: Vec<&String> = kinds.iter().filter(|kind| !audit::KINDS.contains(&kind.as_str())).collect();
    let mut all = Follow::new(dir);
    // A trail that cannot be read contains none of them.
    while !unknown.is_empty()
        && let Ok(Some(line)) = all.next_line()
    {
        if let TrailLine::Record(record) = line {
            unknown.retain(|kind| **kind != record.kind);
        }
    }
    match unknown.first() {
        None => Ok(()),
        Some(kind) => Err(CliRefusal::new("arguments", format!("--kind {kind}: there are no records of that kind"))
            .hint(format!("there are {}", audit::KINDS.join(", ")))),
    }
}

/// A point in time in the form of the records, so that comparing the texts compares the times.
fn instant(option: &str, given: &str) -> Result<String, CliRefusal> {
    let bytes = given.as_bytes();
    let digits = |from: usize, to: usize| bytes.get(from..to).is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    let date = digits(0, 4) && digits(5, 7) && digits(8, 10) && bytes[4] == b'-' && bytes[7] == b'-';
    let clock = bytes.len() >= 19
        && bytes[10] == b'T'
        && digits(11, 13)
        && digits(14, 16)
        && digits(17, 19)
        && (bytes[13], bytes[16]) == (b':', b':');
    match given.get(19..) {
        None if date && bytes.len() == 10 => {
            Ok(if option == "until" { format!("{given}T23:59:59.999999Z") } else { given.to_owned() })
        }
        Some("Z" | "") if date && clock => {
            Ok(if option == "until" { format!("{}.999999Z", &given[..19]) } else { given[..19].to_owned() })
        }
        Some(rest) if date && clock && rest.starts_with('.') && rest.ends_with('Z') => Ok(given.to_owned()),
        _ => Err(CliRefusal::new("arguments", format!("--{option} {given:?} is no time in UTC"))
            .hint("2026-05-01, or 2026-05-01T12:00:00Z")),
    }
}

#[cfg(test)]
mod tests {
    use super::instant;

    #[test]
    fn times_get_the_form_of_the_records() {
        let time = |option, given| instant(option, given).ok();
        assert_eq!(time("since", "2026-05-01").as_deref(), Some("2026-05-01"));
        assert_eq!(time("until", "2026-05-01").as_deref(), Some("2026-05-01T23:59:59.999999Z"));
        assert_eq!(time("since", "2026-05-01T12:00:00Z").as_deref(), Some("2026-05-01T12:00:00"));
        assert_eq!(time("until", "2026-05-01T12:00:00Z").as_deref(), Some("2026-05-01T12:00:00.999999Z"));
        assert_eq!(time("since", "2026-05-01T12:00:00.5Z").as_deref(), Some("2026-05-01T12:00:00.5Z"));
        for wrong in ["", "yesterday", "2026-5-1", "2026-05-01T12", "2026-05-01T12:00:00+02:00", "2026-05-01 12:00:00"]
        {
            assert_eq!(time("since", wrong), None, "{wrong}");
        }
    }
}
