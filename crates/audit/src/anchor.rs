//! Publishes checkpoints outside of the trail (a file, a command, syslog), so that a truncated or rewritten chain is
//! detected.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::AuditError;
use super::record::{Hash, Link, hex, unhex};

/// Where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anchor {
    /// A line at the end of a file, on the disk when it returns. It proves as much as the trail's writers cannot change
    /// it.
    File(PathBuf),
    /// A program, which gets the line as its last argument and must end with 0.
    Command(Vec<String>),
    /// The system's log, facility `authpriv`, by /dev/log (RFC 3164).
    Syslog,
}

impl Anchor {
    /// Reads `file:PATH`, `command:PROGRAM ARGS…` (split at spaces) or `syslog`.
    ///
    /// # Errors
    /// None of these, in words.
    pub fn parse(text: &str) -> Result<Anchor, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Anchor::File(path.into())),
            Some(("command", line)) if !line.trim().is_empty() => {
                Ok(Anchor::Command(line.split_whitespace().map(str::to_owned).collect()))
            }
            None if text == "syslog" => Ok(Anchor::Syslog),
            _ => Err(format!("{text:?} is no anchor: file:PATH, command:PROGRAM or syslog")),
        }
    }

    /// Publishes it.
    ///
    /// # Errors
    /// It was not published.
    pub(super) fn publish(&self, link: &Link, trail: Option<&str>, time: &str) -> Result<(), AuditError> {
        let text = line(link, trail, time);
        let failed = |why: String| AuditError::Anchor { record: link.seq, why };
        match self {
            Anchor::File(path) => OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(path)
                .and_then(|mut f| f.write_all(format!("{text}\n").as_bytes()).and_then(|()| f.sync_data()))
                .map_err(|e| failed(format!("{}: {e}", path.display()))),
            Anchor::Command(argv) => {
                let Some((program, rest)) = argv.split_first() else { return Err(failed("no program".into())) };
                let status = Command::new(program)
                    .args(rest)
                    .arg(&text)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .status()
                    .map_err(|e| failed(format!("{program}: {e}")))?;
                if status.success() { Ok(()) } else { Err(failed(format!("{program}: {status}"))) }
            }
            Anchor::Syslog => {
                // authpriv.notice: facility 10, severity 5.
                let message = format!("<85>cofferdam[{}]: {text}", std::process::id());
                UnixDatagram::unbound()
                    .and_then(|socket| socket.send_to(message.as_bytes(), "/dev/log"))
                    .map(|_| ())
                    .map_err(|e| failed(format!("/dev/log: {e}")))
            }
        }
    }
}

/// The published line: `cofferdam-audit SEQ HASH TIME TRAIL`. Readers that know no TRAIL parse the rest as before.
fn line(link: &Link, trail: Option<&str>, time: &str) -> String {
    let trail = trail.map_or(String::new(), |trail| format!(" {trail}"));
    format!("{MARK}{} {} {time}{trail}", link.seq, hex(&link.hash))
}

/// Numbers of records, each with every hash that the lines about it have: one, unless a line was added that is not the
/// trail's.
pub(super) type Lines = BTreeMap<u64, BTreeSet<Hash>>;

/// What a published line begins with.
const MARK: &str = "cofferdam-audit ";

/// The contents of an anchor: numbers and hashes of records, of one trail or several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anchored {
    /// Of lines that name no trail: they may be of any.
    unnamed: Lines,
    /// Of those that do.
    named: BTreeMap<String, Lines>,
    /// The trail that it must be.
    wanted: Option<String>,
}

impl<const N: usize> From<[(u64, Hash); N]> for Anchored {
    fn from(lines: [(u64, Hash); N]) -> Anchored {
        let mut anchored = Anchored::default();
        for (seq, hash) in lines {
            anchored.unnamed.entry(seq).or_default().insert(hash);
        }
        anchored
    }
}

impl Anchored {
    /// Nothing.
    pub fn new() -> Anchored {
        Anchored::default()
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.unnamed.len() + self.named.values().map(BTreeMap::len).sum::<usize>()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it holds of one trail, and of none that it names. No other trail than that one passes.
    #[must_use]
    pub fn of(mut self, trail: &str) -> Anchored {
        self.named.retain(|named, _| named == trail);
        self.wanted = Some(trail.to_owned());
        self
    }

    /// The record with the highest number: that, its hash, and its trail where that is named.
    pub(super) fn last(&self) -> Option<(u64, Hash, Option<String>)> {
        let named = self.named.iter().flat_map(|(trail, lines)| lines.iter().map(move |one| (one, Some(trail))));
        let all = self.unnamed.iter().map(|one| (one, None)).chain(named);
        let ((&seq, hashes), trail) = all.max_by_key(|((seq, _), _)| **seq)?;
        Some((seq, *hashes.first()?, trail.cloned()))
    }

    /// A trail that this one would have to be, and is not.
    pub(super) fn other(&self, trail: Option<&str>) -> Option<&str> {
        self.wanted.iter().chain(self.named.keys()).map(String::as_str).find(|named| trail != Some(named))
    }

    /// What it says of a trail. No line takes the place of another, wherever it stands: a record agrees with the anchor
    /// if it agrees with all lines about it.
    pub(super) fn lines_of(&self, trail: Option<&str>) -> Lines {
        let mut lines = self.unnamed.clone();
        for (&seq, hashes) in trail.and_then(|trail| self.named.get(trail)).into_iter().flatten() {
            lines.entry(seq).or_default().extend(hashes);
        }
        lines
    }
}

/// Reads an anchor's lines; other lines of the same file, such as other programs' in a system log, are passed over.
///
/// # Errors
/// The file cannot be read.
pub fn anchored(path: &Path) -> io::Result<Anchored> {
    let mut found = Anchored::new();
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        // What was added before it without a line end hides no line.
        for rest in line.split(MARK).skip(1) {
            let mut words = rest.split_ascii_whitespace();
            let record = (words.next().and_then(|word| word.parse().ok()), words.next().and_then(unhex));
            let (Some(seq), Some(hash)) = record else { continue };
            let lines = match words.nth(1) {
                Some(trail) => found.named.entry(trail.to_owned()).or_default(),
                None => &mut found.unnamed,
            };
            lines.entry(seq).or_default().insert(hash);
        }
    }
    Ok(found)
}
