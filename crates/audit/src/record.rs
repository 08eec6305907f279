//! One record of the trail as a line: how it is written and parsed, and the hash that chains it to the previous one.
//!
//! ```text
//! {"seq":2,"time":"…","kind":"…","run":"…","data":{…},"prev":"<hash of record 1>","hash":"<hash of all bytes before this key>"}
//! ```
//!
//! Pure. The hash covers the bytes in the file, so no other encoding of a record has the same hash.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// Most bytes of a record's line, its newline counted.
pub(crate) const MOST_BYTES: usize = 64 * 1024;
/// Greatest number of a record; no trail gets that far.
const MOST_SEQ: u64 = u64::MAX >> 1;
/// What follows the hashed bytes: the key, 64 digits, and the end of the object.
const TAIL: usize = r#","hash":""}"#.len() + 64;

/// The kinds that Cofferdam itself writes; docs/audit.md says what each of them holds.
pub const KINDS: [&str; 19] = [
    "trail_opened",
    "sandbox_started",
    "security_violation",
    "network_attempt",
    "api_call",
    "limit_reached",
    "timeout_kill",
    "oom_kill",
    "limit_kill",
    "sandbox_completed",
    "sandbox_error",
    "sandbox_abandoned",
    "session_call",
    "session_answer",
    "skill_registered",
    "skill_registration_failed",
    "skill_revoked",
    "checkpoint",
    "recovered",
];

/// An event to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// What kind of event, such as `sandbox_started`.
    pub kind: String,
    /// The run that it is about.
    pub run: Option<String>,
    /// The skill that it is about.
    pub skill: Option<String>,
    /// What the kind has to say; docs/audit.md lists the fields of each.
    pub data: Map<String, Value>,
}

impl AuditEntry {
    /// An entry of this kind that is about nothing yet.
    pub fn new(kind: &str) -> AuditEntry {
        AuditEntry { kind: kind.to_owned(), run: None, skill: None, data: Map::new() }
    }

    /// The same, about this run.
    #[must_use]
    pub fn run(mut self, id: &str) -> AuditEntry {
        self.run = Some(id.to_owned());
        self
    }

    /// The same, about this skill.
    #[must_use]
    pub fn skill(mut self, name: &str) -> AuditEntry {
        self.skill = Some(name.to_owned());
        self
    }

    /// The same with one more fact.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> AuditEntry {
        self.data.insert(key.to_owned(), value.into());
        self
    }
}

/// A record in a trail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AuditRecord {
    /// Its number; the first is 1.
    pub seq: u64,
    /// When it was written, RFC 3339, UTC.
    pub time: String,
    /// What kind of event.
    pub kind: String,
    /// The run that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The skill that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// What the kind has to say.
    pub data: Map<String, Value>,
    /// Hash of the record before, in hexadecimal; zeros for the first.
    pub prev: String,
    /// Its own hash.
    #[serde(skip_deserializing)]
    pub hash: String,
}

/// The end of a chain: what the next record follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Number of the last record; 0 before the first.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
}

/// What is wrong with a single line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// It does not end as a record does: cut off, or not a record.
    #[error("not a whole record")]
    Cut,
    /// Its bytes have another hash.
    #[error("its bytes are not those that were hashed")]
    Changed,
    /// The hash is right, and the record is invalid.
    #[error("not a record, though its hash is right")]
    Shape,
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(DIGITS[usize::from(n & 15)]);
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(*b)]).collect()
}

/// Bytes of lower-case hexadecimal digits, of exactly this length.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// The line of a record that follows `after`, its newline at the end, and the link that it makes.
pub(crate) fn write(entry: &AuditEntry, time: &str, after: &Link) -> (Vec<u8>, Link) {
    let mut line = Vec::with_capacity(512);
    let mut put = |key: &str, value: &Value| {
        line.extend_from_slice(if line.is_empty() { b"{" } else { b"," });
        line.extend_from_slice(format!("\"{key}\":{value}").as_bytes());
    };
    let seq = after.seq + 1;
    put("seq", &seq.into());
    put("time", &time.into());
    put("kind", &entry.kind.as_str().into());
    if let Some(run) = &entry.run {
        put("run", &run.as_str().into());
    }
    if let Some(skill) = &entry.skill {
        put("skill", &skill.as_str().into());
    }
    put("data", &Value::Object(entry.data.clone()));
    put("prev", &hex(&after.hash).into());
    let hash = sha256(&line);
    line.extend_from_slice(format!(",\"hash\":\"{}\"}}\n", hex(&hash)).as_bytes());
    (line, Link { seq, hash })
}

/// Reads a line, without its newline.
///
/// # Errors
/// It is no record, or not the one that was hashed.
pub fn read(line: &[u8]) -> Result<AuditRecord, Broken> {
    let body = line.len().checked_sub(TAIL).map(|end| &line[..end]).ok_or(Broken::Cut)?;
    let tail = std::str::from_utf8(&line[body.len()..]).map_err(|_| Broken::Cut)?;
    let digits = tail.strip_prefix(",\"hash\":\"").and_then(|t| t.strip_suffix("\"}")).ok_or(Broken::Cut)?;
    let hash: Hash = unhex(digits).ok_or(Broken::Cut)?;
    if sha256(body) != hash {
        return Err(Broken::Changed);
    }
    let mut whole = body.to_vec();
    whole.push(b'}');
    let mut record: AuditRecord = serde_json::from_slice(&whole).map_err(|_| Broken::Shape)?;
    record.hash = digits.to_owned();
    unhex::<32>(&record.prev).ok_or(Broken::Shape)?;
    if !(1..=MOST_SEQ).contains(&record.seq) {
        return Err(Broken::Shape);
    }
    Ok(record)
}

/// Whether a line that is no record has the length of one: more than a writer leaves that was stopped in the middle of
/// it.
pub(crate) fn is_full(line: &[u8]) -> bool {
    const PREV: &[u8] = b",\"prev\":\"";
    let at = line.windows(PREV.len()).rposition(|part| part == PREV);
    at.is_some_and(|at| line.len() >= at + PREV.len() + 64 + 1 + TAIL)
}

impl AuditRecord {
    /// The link that it makes.
    pub fn link(&self) -> Option<Link> {
        Some(Link { seq: self.seq, hash: unhex(&self.hash)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> (Vec<u8>, Link) {
        let entry = AuditEntry::new("sandbox_started").run("r-1").skill("weather").with("text", "a\n\u{1b}\"é");
        write(&entry, "2026-01-02T03:04:05.000006Z", &Link { seq: 6, hash: [7; 32] })
    }

    #[test]
    fn what_is_written_reads_as_what_it_was() {
        let (bytes, link) = line();
        let record = read(bytes.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!((record.seq, record.kind.as_str(), record.run.as_deref()), (7, "sandbox_started", Some("r-1")));
        assert_eq!((record.skill.as_deref(), &record.data["text"]), (Some("weather"), &"a\n\u{1b}\"é".into()));
        assert_eq!((record.prev, record.hash.clone()), ("07".repeat(32), hex(&link.hash)));
        assert_eq!(bytes.iter().filter(|&&b| b == b'\n').count(), 1, "one line");
    }

    #[test]
    fn no_byte_of_a_line_can_be_another() {
        let (bytes, _) = line();
        let line = bytes.strip_suffix(b"\n").unwrap();
        for at in 0..line.len() {
            for flip in [1u8, 0x20, 0x80] {
                let mut other = line.to_vec();
                other[at] ^= flip;
                assert!(read(&other).is_err(), "byte {at} with {flip:#x}");
            }
            assert!(read(&line[..at]).is_err() && read(&line[at + 1..]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn hexadecimal_digits_have_one_spelling() {
        assert_eq!(unhex::<2>("0aff"), Some([10, 255]));
        for text in ["0AFF", "0af", "0aff0", "0ag0", "+aff"] {
            assert_eq!(unhex::<2>(text), None, "{text}");
        }
    }
}
