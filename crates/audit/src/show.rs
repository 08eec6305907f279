//! Selects records for display: those of a run, a skill, a kind or a time, and new ones as they are written (`tail
//! -f`).

use std::io;
use std::path::{Path, PathBuf};

use super::line_reader::LineReader;
use super::open_runs::{self, OpenRuns, Unended};
use super::record::{self, AuditRecord};
use super::store::{file_name, files};

/// Which records are shown; a field that is not set excludes none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// Of this run.
    pub run: Option<String>,
    /// Of this skill.
    pub skill: Option<String>,
    /// Of these kinds, where some are named.
    pub kinds: Vec<String>,
    /// Not before; compared as text, which RFC 3339 in UTC allows.
    pub since: Option<String>,
    /// Not after.
    pub until: Option<String>,
}

impl RecordFilter {
    /// Whether a record is one of them.
    pub fn takes(&self, record: &AuditRecord) -> bool {
        let is = |wanted: &Option<String>, given: &Option<String>| wanted.is_none() || wanted == given;
        is(&self.run, &record.run)
            && is(&self.skill, &record.skill)
            && (self.kinds.is_empty() || self.kinds.contains(&record.kind))
            && self.since.as_ref().is_none_or(|since| record.time.as_str() >= since.as_str())
            && self.until.as_ref().is_none_or(|until| record.time.as_str() <= until.as_str())
    }
}

/// A line of a trail.
#[derive(Debug, Clone, PartialEq)]
pub enum TrailLine {
    /// A record whose own hash is right; whether the chain holds, `verify` says.
    Record(Box<AuditRecord>),
    /// Something else: where.
    Broken(PathBuf, u64),
}

/// Follows a trail through its files, and returns new records as they are written.
#[derive(Debug)]
pub struct Follow {
    dir: PathBuf,
    number: u64,
    lines: Option<LineReader>,
}

impl Follow {
    /// From the first record that is there.
    pub fn new(dir: &Path) -> Follow {
        Follow { dir: dir.to_owned(), number: 0, lines: None }
    }

    /// The next line, or none if there is none yet. A line that is being written is not returned in part.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<TrailLine>> {
        let mut closed = false;
        loop {
            if self.lines.is_none() && !self.next_file()? {
                return Ok(None);
            }
            let Some(lines) = &mut self.lines else { return Ok(None) };
            let last = lines.next()?;
            let broken = |line: u64| TrailLine::Broken(self.dir.join(file_name(self.number)), line);
            if let Some(raw) = last.as_ref().filter(|raw| !raw.is_end()) {
                let record = record::read(&raw.bytes);
                return Ok(Some(record.map_or_else(|_| broken(raw.number), |r| TrailLine::Record(Box::new(r)))));
            }
            // The end, or the middle of a write: looked at again from where that line begins.
            if let Some(raw) = &last {
                lines.put_back(raw)?;
            }
            if !closed && !files(&self.dir)?.iter().any(|&number| number > self.number) {
                return Ok(None);
            }
            // A file that has a successor grows no more. It may have grown before that was looked at: so once more.
            if !std::mem::replace(&mut closed, true) {
                continue;
            }
            (self.lines, closed) = (None, false);
            if let Some(raw) = last {
                return Ok(Some(broken(raw.number)));
            }
        }
    }

    fn next_file(&mut self) -> io::Result<bool> {
        let Some(number) = files(&self.dir)?.into_iter().find(|&number| number > self.number) else { return Ok(false) };
        self.lines = Some(LineReader::open(&self.dir.join(file_name(number)), 0)?);
        self.number = number;
        Ok(true)
    }
}

/// Calls `each` with every record that the filter takes, and with what is broken. Gives the runs that have no end, of
/// those whose starts it would take if it took every kind.
///
/// # Errors
/// A file cannot be read, or `each` failed.
pub fn show(
    dir: &Path,
    filter: &RecordFilter,
    mut each: impl FnMut(TrailLine) -> io::Result<()>,
) -> io::Result<Vec<Unended>> {
    let mut all = Follow::new(dir);
    let mut open = OpenRuns::default();
    let starts = RecordFilter { kinds: Vec::new(), ..filter.clone() };
    while let Some(line) = all.next_line()? {
        if let TrailLine::Record(record) = &line {
            // An end counts wherever it stands.
            if record.kind != open_runs::STARTED || starts.takes(record) {
                open.observe(record);
            }
            if !filter.takes(record) {
                continue;
            }
        }
        each(line)?;
    }
    Ok(open.remaining().0)
}
