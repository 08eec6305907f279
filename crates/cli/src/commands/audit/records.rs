//! `cofferdam audit show` and `tail`: prints records, one on each line.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use cofferdam_engine::audit::{self, AuditRecord, Follow, RecordFilter, TrailLine, Unended};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::errors::unreadable;
use super::unended::{MOST_UNENDED, description};
use crate::output::stderr::print_note;
use crate::output::stdout::{print, unwritten};
use crate::output::text::printable;
use crate::refusal::CliRefusal;

/// How often `tail -f` looks for new records.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Records that `tail` begins with.
const LAST: usize = 10;

/// Prints the records of the filter, and notes the runs without an end.
pub(super) fn show(dir: &Path, filter: &RecordFilter, json: bool) -> Result<i32, CliRefusal> {
    let unended = each_line(dir, filter, |found| print_line(&found, json))?;
    for run in unended.iter().take(MOST_UNENDED) {
        print_note(&description(run), None);
    }
    if unended.len() > MOST_UNENDED {
        print_note(
            &format!("{} more runs have no end", unended.len() - MOST_UNENDED),
            Some("cofferdam audit verify --json"),
        );
    }
    Ok(0)
}

/// Prints the last records of the filter, and with `follow` new ones as they are written.
pub(super) fn tail(dir: &Path, filter: &RecordFilter, follow: bool, json: bool) -> Result<i32, CliRefusal> {
    let mut last = VecDeque::new();
    let mut all = Follow::new(dir);
    let mut next = || all.next_line().map_err(|e| unreadable(dir, &e));
    let selects = |found: &TrailLine| !matches!(found, TrailLine::Record(record) if !filter.takes(record));
    while let Some(found) = next()? {
        if selects(&found) {
            last.push_back(found);
            if last.len() > LAST {
                last.pop_front();
            }
        }
    }
    last.iter().try_for_each(|found| print_line(found, json))?;
    if !follow {
        return Ok(0);
    }
    loop {
        match next()? {
            Some(found) if selects(&found) => print_line(&found, json)?,
            Some(_) => {}
            None => wait()?,
        }
    }
}

/// Waits for [`POLL_INTERVAL`], or until the reader of standard output goes away.
fn wait() -> Result<(), CliRefusal> {
    let (stdout, timeout) =
        (rustix::stdio::stdout(), Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() });
    // Without requested events, poll(2) reports only errors and hang-ups.
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    match poll(&mut polled, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
        Ok(_) => Err(unwritten(&std::io::ErrorKind::BrokenPipe.into())),
        Err(error) => Err(unwritten(&error.into())),
    }
}

/// Passes the records of the filter to `each`, and returns the runs without an end.
fn each_line(
    dir: &Path,
    filter: &RecordFilter,
    mut each: impl FnMut(TrailLine) -> Result<(), CliRefusal>,
) -> Result<Vec<Unended>, CliRefusal> {
    let mut refusal = None;
    let done = audit::show(dir, filter, |found| {
        each(found).map_err(|e| {
            refusal = Some(e);
            std::io::Error::other("reported already")
        })
    });
    match (refusal, done) {
        (Some(refusal), _) => Err(refusal),
        (None, Err(e)) => Err(unreadable(dir, &e)),
        (None, Ok(unended)) => Ok(unended),
    }
}

fn print_line(found: &TrailLine, json: bool) -> Result<(), CliRefusal> {
    match found {
        TrailLine::Record(record) => print(&line(record, json)?),
        TrailLine::Broken(file, number) => {
            print_note(&format!("{}:{number} is no whole record", file.display()), Some("cofferdam audit verify"));
            Ok(())
        }
    }
}

/// A record as one line of text, or as it is in the trail.
fn line(record: &AuditRecord, json: bool) -> Result<String, CliRefusal> {
    if json {
        let text = serde_json::to_string(record)
            .map_err(|e| CliRefusal::new("output", format!("cannot write a record as JSON: {e}")))?;
        return Ok(text + "\n");
    }
    let mut text = format!("{:>6}  {}  {}", record.seq, record.time, record.kind);
    for (name, value) in [("skill", &record.skill), ("run", &record.run)] {
        if let Some(value) = value {
            text.push_str(&format!("  {name}={value}"));
        }
    }
    for (name, value) in &record.data {
        match value.as_str() {
            // A value that could be taken for another field, or for another line, is quoted.
            Some(value) if !value.is_empty() && !value.contains(|c: char| c == '"' || c.is_whitespace()) => {
                text.push_str(&format!("  {name}={value}"))
            }
            _ => text.push_str(&format!("  {name}={value}")),
        }
    }
    Ok(printable(&text.replace('\n', "\\n")) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_one_line_and_no_value_forges_a_field() {
        let mut record: AuditRecord = serde_json::from_value(serde_json::json!({
            "seq": 2, "time": "t", "kind": "k", "run": "r\nr", "data": { "plain": "as-it-is", "a\nb": 1 }, "prev": "",
        }))
        .unwrap();
        for value in ["x\nforged", "x\u{a0}skill=other", "x\u{2028}y", "x\ty", "x\u{1b}[2J", "x\u{202e}y"] {
            record.data.insert("object".into(), value.into());
            let shown = line(&record, false).unwrap();
            assert_eq!((shown.matches('\n').count(), shown.lines().count()), (1, 1), "{shown:?}");
            assert!(!shown.contains(['\u{1b}', '\u{202e}']) && shown.contains("plain=as-it-is"), "{shown:?}");
            assert!(!value.contains(char::is_whitespace) || shown.contains("object=\"x"), "{shown:?}");
        }
    }
}
