//! Verifies a trail: finds the first record that is not as it was written, and says where and what is wrong.
//!
//! Reads only the files: no lock, no state of writers. Streams, so a trail may be larger than memory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::anchor::{Anchored, Lines};
use super::checkpoint::{self, PublicKey};
use super::line_reader::{LineReader, RawLine};
use super::open_runs::{OpenRuns, Unended};
use super::record::{self, AuditRecord, Broken, Hash, Link, MOST_BYTES, hex, sha256, unhex};
use super::store::{file_name, files, files_in, open_file_in};

/// What is wrong with a trail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// A record's bytes are not those that were written, or are no record.
    Changed,
    /// Records are missing before this one.
    Removed {
        /// The first that is.
        from: u64,
        /// The last that is.
        to: u64,
    },
    /// A record is repeated, or precedes an earlier one.
    Reordered {
        /// The expected number.
        expected: u64,
        /// The one that does.
        found: u64,
    },
    /// It does not follow the record before it, though its number does: one of the two was rewritten.
    Unchained,
    /// A file is missing.
    FileMissing,
    /// The last bytes are no whole record, and no writer has been there since to say so.
    Torn,
    /// A checkpoint is not what it says.
    Checkpoint(&'static str),
    /// A checkpoint was signed by another key than the one that was named.
    OtherKey(String),
    /// An anchored record is missing: the trail was truncated.
    CutShort {
        /// Its number.
        anchored: u64,
    },
    /// A line of the anchor has another hash for a record: the trail was rewritten, or the line is not the trail's.
    Rewritten {
        /// Its number.
        anchored: u64,
    },
    /// The trail begins after everything that was anchored, so the anchor says nothing of it.
    Unanchored {
        /// Number of the last record that was anchored.
        anchored: u64,
    },
    /// The anchor, or the caller, means another trail.
    OtherTrail {
        /// The one that is meant.
        wanted: String,
        /// This one; none where nothing is left that says so.
        found: Option<String>,
    },
    /// A key was named, and no checkpoint is signed by it.
    Unsigned,
    /// There is no record at all.
    Empty,
    /// There is no record at all, and there was one: it is anchored.
    Gone {
        /// Number of the last one that was anchored.
        anchored: u64,
        /// Its hash.
        hash: Hash,
        /// Its trail, where the anchor says it.
        trail: Option<String>,
    },
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::Changed => f.write_str("this record was changed"),
            Wrong::Removed { from, to } if from == to => write!(f, "record {from} was removed before this one"),
            Wrong::Removed { from, to } => write!(f, "records {from} to {to} were removed before this one"),
            Wrong::Reordered { expected, found } => {
                write!(f, "record {found} stands where {expected} should: records were reordered or repeated")
            }
            Wrong::Unchained => f.write_str("this record does not follow the one before it: one of them was replaced"),
            Wrong::FileMissing => f.write_str("this file is missing"),
            Wrong::Torn => {
                f.write_str("the last bytes are no whole record: a writer was stopped in the middle, or it was changed")
            }
            Wrong::Checkpoint(why) => write!(f, "this checkpoint does not hold: {why}"),
            Wrong::OtherKey(key) => write!(f, "this checkpoint was signed by another key, {key}"),
            Wrong::CutShort { anchored } => {
                write!(f, "the anchor has record {anchored}, and the trail ends before it: it was cut short")
            }
            Wrong::Rewritten { anchored } => {
                write!(
                    f,
                    "the anchor has another record {anchored}: the trail was written anew, or a line was added to the anchor that is not the trail's"
                )
            }
            Wrong::Unanchored { anchored } => {
                write!(
                    f,
                    "the anchor ends with record {anchored}, and the trail begins after it: nothing binds the two"
                )
            }
            Wrong::OtherTrail { wanted, found: Some(found) } => {
                write!(f, "this is trail {found}, and what it is compared with is of trail {wanted}")
            }
            Wrong::OtherTrail { wanted, found: None } => {
                write!(f, "what it is compared with is of trail {wanted}, and nothing here says which trail this is")
            }
            Wrong::Unsigned => f.write_str("there is no checkpoint, so the key says nothing of this trail"),
            Wrong::Empty => f.write_str("there is no record"),
            Wrong::Gone { anchored, hash, trail } => {
                let of = trail.as_ref().map_or(String::new(), |trail| format!(" of trail {trail}"));
                let hash = hex(hash);
                write!(
                    f,
                    "the anchor has record {anchored}{of}, with hash {hash}, and there is no record here: the trail was removed or emptied"
                )
            }
        }
    }
}

/// The position of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrailFault {
    /// What.
    pub wrong: Wrong,
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1; 0 for the file as a whole.
    pub line: u64,
    /// Offset of that line in bytes.
    pub offset: u64,
    /// The expected number of the record.
    pub seq: u64,
}

/// A verified trail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The id that it got when it was opened first; none where no record is left that says it.
    pub trail: Option<String>,
    /// Number of the first record; above 1 where older files were put away.
    pub first: u64,
    /// The last record.
    pub last: Link,
    /// Its time.
    pub until: String,
    /// Files read.
    pub files: u64,
    /// Checkpoints with valid signatures.
    pub checkpoints: u64,
    /// Number of the last record that a checkpoint covers; 0 for none.
    pub covered: u64,
    /// The signers, 64 digits each.
    pub keys: Vec<String>,
    /// Places where a writer was stopped in the middle, and the next one said so: file and offset.
    pub recovered: Vec<(PathBuf, u64)>,
    /// Anchored records that were compared.
    pub anchored: u64,
    /// Runs that began and have no end: they are under way, or their owners were killed. No fault of the trail's.
    pub unended: Vec<Unended>,
    /// Starts that were too many to be remembered beside those.
    pub uncounted: u64,
}

/// What was not verified: it could not be read, or it is wrong.
#[derive(Debug, thiserror::Error)]
pub enum VerificationFailure {
    /// It could not be read.
    #[error("cannot read the trail")]
    Io(#[from] io::Error),
    /// It is wrong.
    #[error("{}:{}: record {}: {}", .0.file.display(), .0.line, .0.seq, .0.wrong)]
    Wrong(Box<TrailFault>),
}

struct VerificationWalk<'a> {
    signer: Option<PublicKey>,
    /// Which trail it is, as far as it says.
    trail: Option<String>,
    anchors: Lines,
    end: Option<Link>,
    sum: Verified,
    open: OpenRuns,
    each: &'a mut dyn FnMut(&AuditRecord),
}

/// Verifies a trail's directory. `signer` is the key that checkpoints must have been signed by, where one is named;
/// `each` is shown every record in order.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(
    dir: &Path,
    signer: Option<PublicKey>,
    anchors: &Anchored,
    each: &mut dyn FnMut(&AuditRecord),
) -> Result<Verified, VerificationFailure> {
    // A directory that is gone is a trail that is gone, where an anchor says that there was one.
    let list = match files(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !anchors.is_empty() => Vec::new(),
        listed => listed?,
    };
    let trail = if list.is_empty() { None } else { identity(dir)? };
    let last = anchors.last();
    let other = anchors.other(trail.as_deref()).map(str::to_owned);
    let anchors = anchors.lines_of(trail.as_deref());
    let mut walk = VerificationWalk {
        signer,
        trail,
        anchors,
        end: None,
        sum: Verified::default(),
        open: OpenRuns::default(),
        each,
    };
    for (i, &number) in list.iter().enumerate() {
        let expected = list[0] + i as u64;
        if number != expected {
            let (file, seq) = (dir.join(file_name(expected)), walk.next());
            return Err(VerificationFailure::Wrong(Box::new(TrailFault {
                wrong: Wrong::FileMissing,
                file,
                line: 0,
                offset: 0,
                seq,
            })));
        }
        walk.file(&dir.join(file_name(number)), i + 1 == list.len())?;
    }
    let place = |wrong, seq| {
        let file = list.last().map_or_else(|| dir.to_owned(), |&n| dir.join(file_name(n)));
        VerificationFailure::Wrong(Box::new(TrailFault { wrong, file, line: 0, offset: 0, seq }))
    };
    let Some(end) = walk.end else {
        let gone = last.map(|(anchored, hash, trail)| Wrong::Gone { anchored, hash, trail });
        return Err(place(gone.unwrap_or(Wrong::Empty), 1));
    };
    if let Some(wanted) = other {
        return Err(place(Wrong::OtherTrail { wanted, found: walk.trail.clone() }, walk.sum.first));
    }
    if let Some((&anchored, _)) = walk.anchors.range(end.seq + 1..).next() {
        return Err(place(Wrong::CutShort { anchored }, end.seq + 1));
    }
    if let Some((&anchored, _)) = walk.anchors.last_key_value().filter(|_| walk.sum.anchored == 0) {
        return Err(place(Wrong::Unanchored { anchored }, walk.sum.first));
    }
    if signer.is_some() && walk.sum.checkpoints == 0 {
        return Err(place(Wrong::Unsigned, end.seq + 1));
    }
    (walk.sum.last, walk.sum.trail) = (end, walk.trail);
    (walk.sum.unended, walk.sum.uncounted) = walk.open.remaining();
    Ok(walk.sum)
}

/// Bytes of a tear that are remembered, to be compared with what the next writer said of them.
struct Tear {
    at: RawLine,
    bytes: Vec<u8>,
}

impl VerificationWalk<'_> {
    fn next(&self) -> u64 {
        self.end.map_or(1, |end| end.seq + 1)
    }

    fn file(&mut self, path: &Path, last: bool) -> Result<(), VerificationFailure> {
        self.sum.files += 1;
        let mut lines = LineReader::open(path, 0)?;
        let mut tear: Option<Tear> = None;
        let problem = |wrong, at: &RawLine, seq| {
            let (line, offset) = (at.number, at.offset);
            Err(VerificationFailure::Wrong(Box::new(TrailFault { wrong, file: path.to_owned(), line, offset, seq })))
        };
        while let Some(raw) = lines.next()? {
            let read = record::read(&raw.bytes);
            // Nobody is stopped in the middle of a record and leaves all of it: this one was whole.
            let full = match &read {
                Ok(_) => false,
                Err(Broken::Changed | Broken::Shape) => raw.whole,
                Err(Broken::Cut) => raw.whole && record::is_full(&raw.bytes),
            };
            match (read.ok().filter(|_| raw.whole), tear.take()) {
                (None, before) if full => {
                    return problem(Wrong::Changed, before.as_ref().map_or(&raw, |t| &t.at), self.next());
                }
                (Some(record), None) => {
                    // Whole files are put away, and no lines.
                    if self.end.is_none() && record.seq > 1 && path.ends_with(file_name(1)) {
                        return problem(Wrong::Removed { from: 1, to: record.seq - 1 }, &raw, 1);
                    }
                    if let Err(wrong) = self.take(&record) {
                        return problem(wrong, &raw, self.next());
                    }
                }
                // Only the record that says what the tear was makes it one; anything else that follows shows a change.
                (Some(record), Some(t)) if explains(&record, &t) => {
                    if let Err(wrong) = self.take(&record) {
                        return problem(wrong, &raw, self.next());
                    }
                    self.sum.recovered.push((path.to_owned(), t.at.offset));
                }
                (Some(_), Some(t)) => return problem(Wrong::Changed, &t.at, self.next()),
                (None, Some(mut t)) if t.bytes.len() + raw.bytes.len() < MOST_BYTES => {
                    t.bytes.push(b'\n');
                    t.bytes.extend_from_slice(&raw.bytes);
                    if record::is_full(&t.bytes) {
                        return problem(Wrong::Changed, &t.at, self.next());
                    }
                    tear = Some(t);
                }
                (None, Some(t)) => return problem(Wrong::Changed, &t.at, self.next()),
                (None, None) => {
                    let bytes = raw.bytes.clone();
                    tear = Some(Tear { at: raw, bytes });
                }
            }
        }
        match tear {
            None => Ok(()),
            Some(t) => {
                let cut = matches!(record::read(&t.at.bytes), Err(Broken::Cut)) || !t.at.whole;
                problem(if last && cut { Wrong::Torn } else { Wrong::Changed }, &t.at, self.next())
            }
        }
    }

    fn take(&mut self, record: &AuditRecord) -> Result<(), Wrong> {
        let expected = self.next();
        let link = record.link().ok_or(Wrong::Changed)?;
        match self.end {
            // Older files may have been put away: then the chain begins where it begins.
            None => {
                self.sum.first = record.seq;
                let before = record.seq - 1;
                if let Some(hashes) = self.anchors.get(&before) {
                    if hashes.iter().any(|hash| record.prev != hex(hash)) {
                        return Err(Wrong::Rewritten { anchored: before });
                    }
                    self.sum.anchored += 1;
                }
            }
            Some(_) if record.seq > expected => {
                return Err(Wrong::Removed { from: expected, to: record.seq - 1 });
            }
            Some(_) if record.seq < expected => return Err(Wrong::Reordered { expected, found: record.seq }),
            Some(end) if record.prev != hex(&end.hash) => return Err(Wrong::Unchained),
            Some(_) => {}
        }
        if record.seq == 1 && record.prev != hex(&[0; 32]) {
            return Err(Wrong::Unchained);
        }
        if record.kind == checkpoint::KIND {
            let before =
                self.end.unwrap_or(Link { seq: record.seq - 1, hash: unhex(&record.prev).ok_or(Wrong::Changed)? });
            let key = checkpoint::check(record, &before, self.trail.as_deref()).map_err(Wrong::Checkpoint)?;
            if self.signer.is_some_and(|signer| signer != key) {
                return Err(Wrong::OtherKey(key.text()));
            }
            self.sum.checkpoints += 1;
            self.sum.covered = before.seq;
            if !self.sum.keys.contains(&key.text()) {
                self.sum.keys.push(key.text());
            }
        }
        if let Some(hashes) = self.anchors.get(&record.seq) {
            if hashes.iter().any(|hash| *hash != link.hash) {
                return Err(Wrong::Rewritten { anchored: record.seq });
            }
            self.sum.anchored += 1;
        }
        self.end = Some(link);
        self.sum.until.clone_from(&record.time);
        self.open.observe(record);
        (self.each)(record);
        Ok(())
    }
}

/// Whether a directory has a trail in it, or one that nothing was written to yet.
///
/// # Errors
/// It cannot be read.
pub fn is_trail(dir: &Path) -> io::Result<bool> {
    Ok(!files(dir)?.is_empty() || dir.join("lock").symlink_metadata().is_ok())
}

/// What of a trail others than its owner may write, by its mode or an access control list: its directory or a file of
/// it.
///
/// # Errors
/// It cannot be looked at.
pub fn open_to_others(dir: &Path) -> io::Result<Option<PathBuf>> {
    use std::os::unix::fs::MetadataExt as _;
    let all = std::iter::once(dir.to_owned()).chain(files(dir)?.into_iter().map(|number| dir.join(file_name(number))));
    for path in all {
        // With an access control list, the group's bits are the most that anybody named in it may do.
        if path.metadata()?.mode() & 0o022 != 0 {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Which trail it is: the first record says it, and where whole files were put away, any checkpoint that is left.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn identity(dir: &Path) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    identity_in(&rustix::fs::open(dir, flags, Mode::empty())?.into())
}

/// The same of a directory that is open.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn identity_in(dir: &File) -> io::Result<Option<String>> {
    for number in files_in(dir)? {
        let mut lines = LineReader::of(open_file_in(dir, &file_name(number))?, 0)?;
        while let Some(line) = lines.next()? {
            let text = line.bytes.as_slice();
            // Most lines are neither, and need not be read.
            let kind = |kind: &[u8]| text.windows(kind.len()).any(|part| part == kind);
            if (kind(b"\"kind\":\"trail_opened\"") || kind(b"\"kind\":\"checkpoint\""))
                && let Ok(record) = record::read(text)
                && (record.kind == "trail_opened" || record.kind == checkpoint::KIND)
                && let Some(trail) = record.data.get("trail").and_then(|it| it.as_str())
            {
                return Ok(Some(trail.to_owned()));
            }
        }
    }
    Ok(None)
}

/// Whether a record says that the bytes before it are what a writer left that was stopped.
fn explains(record: &AuditRecord, tear: &Tear) -> bool {
    let number = |key: &str| record.data.get(key).and_then(serde_json::Value::as_u64);
    record.kind == "recovered"
        && number("offset") == Some(tear.at.offset)
        && number("bytes") == Some(tear.bytes.len() as u64)
        && record.data.get("sha256").and_then(|v| v.as_str()) == Some(hex(&sha256(&tear.bytes)).as_str())
}
