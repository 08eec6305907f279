//! Runs that began and have no end in the trail: collected while it is read, and looked up by a writer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use super::line_reader::LineReader;
use super::owner::RecordingProcess;
use super::record::{self, AuditRecord, Hash, sha256};
use super::store::{file_name, files_in, open_file_in};

/// The record of a start.
pub(crate) const STARTED: &str = "sandbox_started";
/// The record of the end of a run whose owner died.
pub(crate) const ABANDONED: &str = "sandbox_abandoned";
/// The records that end a run.
const ENDS: [&str; 3] = ["sandbox_completed", "sandbox_error", ABANDONED];
/// Most runs that are remembered at once: a trail may be larger than memory, and anybody's.
const MOST: usize = 1 << 16;

/// A run without an end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unended {
    /// The run.
    pub run: String,
    /// The skill that it is of.
    pub skill: Option<String>,
    /// The record of its start.
    pub seq: u64,
    /// When it began.
    pub time: String,
    /// Whose it is; none where the record does not say.
    pub owner: Option<RecordingProcess>,
}

/// The runs without an end, among the records read so far.
#[derive(Debug, Default)]
pub(crate) struct OpenRuns {
    runs: BTreeMap<String, Unended>,
    skipped: u64,
}

impl OpenRuns {
    /// One more record.
    pub(crate) fn observe(&mut self, record: &AuditRecord) {
        let Some(run) = &record.run else { return };
        if record.kind == STARTED {
            if self.runs.len() >= MOST {
                self.skipped += 1;
                return;
            }
            let (skill, time, owner) = (record.skill.clone(), record.time.clone(), RecordingProcess::of(&record.data));
            self.runs.insert(run.clone(), Unended { run: run.clone(), skill, seq: record.seq, time, owner });
        } else if ENDS.contains(&record.kind.as_str()) {
            self.runs.remove(run);
        }
    }

    /// Those that are left, by their starts; and how many starts were too many to be remembered.
    pub(crate) fn remaining(self) -> (Vec<Unended>, u64) {
        let mut left: Vec<Unended> = self.runs.into_values().collect();
        left.sort_by_key(|unended| unended.seq);
        (left, self.skipped)
    }
}

/// The position at which the record of a start was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartPosition {
    /// Its number.
    pub seq: u64,
    /// The file's.
    pub file: u64,
    /// Where in it, bytes.
    pub offset: u64,
    /// SHA-256 of the run's name: a writer that is killed before it wrote leaves that place to another run.
    pub run: Hash,
}

impl StartPosition {
    /// How many bytes say it.
    pub(crate) const BYTES: usize = 24 + 32;

    /// Those bytes.
    pub(crate) fn bytes(&self) -> [u8; StartPosition::BYTES] {
        let mut bytes = [0; StartPosition::BYTES];
        for (part, number) in bytes.chunks_exact_mut(8).zip([self.seq, self.file, self.offset]) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        bytes[24..].copy_from_slice(&self.run);
        bytes
    }

    /// Reads them.
    pub(crate) fn of(bytes: &[u8; StartPosition::BYTES]) -> StartPosition {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let run = bytes[24..].try_into().unwrap_or_default();
        StartPosition { seq: number(0), file: number(8), offset: number(16), run }
    }
}

/// The record of the run that began there, if it is there and has no end after it.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn unended(dir: &File, place: StartPosition) -> io::Result<Option<AuditRecord>> {
    let mut start: Option<(AuditRecord, String)> = None;
    for number in files_in(dir)?.into_iter().filter(|number| *number >= place.file) {
        let from = if start.is_none() { place.offset } else { 0 };
        let mut lines = LineReader::of(open_file_in(dir, &file_name(number))?, from)?;
        while let Some(line) = lines.next()? {
            let text = line.bytes.as_slice();
            let Some((_, run)) = &start else {
                // The first record there is the start, unless its writer was killed before it wrote it.
                let found = record::read(text).ok().and_then(|it| it.run.clone().map(|run| (it, run)));
                match found.filter(|(it, run)| it.seq == place.seq && sha256(run.as_bytes()) == place.run) {
                    Some(found) => start = Some(found),
                    None => return Ok(None),
                }
                continue;
            };
            // Most lines are of other runs; those of this one are read.
            if text.windows(run.len()).any(|part| part == run.as_bytes())
                && record::read(text).is_ok_and(|it| it.run.as_ref() == Some(run) && ENDS.contains(&it.kind.as_str()))
            {
                return Ok(None);
            }
        }
        if start.is_none() {
            return Ok(None);
        }
    }
    Ok(start.map(|(record, _)| record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AuditEntry, Link, write};

    #[test]
    fn what_ended_is_not_open_and_what_is_seen_twice_is_open_once() {
        let mut open = OpenRuns::default();
        let mut seq = 0;
        let mut see = |kind: &str, run: &str| {
            seq += 1;
            let (line, _) = write(&AuditEntry::new(kind).run(run), "t", &Link { seq, hash: [0; 32] });
            open.observe(&record::read(line.strip_suffix(b"\n").unwrap()).unwrap());
        };
        for (kind, run) in [
            (STARTED, "a"),
            (STARTED, "b"),
            ("network_attempt", "a"),
            ("sandbox_completed", "a"),
            (STARTED, "c"),
            (STARTED, "d"),
            ("sandbox_error", "c"),
            (ABANDONED, "d"),
            ("sandbox_completed", "never-began"),
            (STARTED, "e"),
        ] {
            see(kind, run);
        }
        let (left, skipped) = open.remaining();
        let left: Vec<_> = left.iter().map(|unended| (unended.run.as_str(), unended.seq)).collect();
        assert_eq!((left, skipped), (vec![("b", 3), ("e", 11)], 0));
    }

    #[test]
    fn a_place_reads_as_it_was_written() {
        let place = StartPosition { seq: 7, file: 2, offset: u64::MAX, run: [9; 32] };
        assert_eq!(StartPosition::of(&place.bytes()), place);
    }
}
