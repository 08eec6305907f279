//! What a program complains of in its output, in the words of the C library and of common tools, for the note after the run.
//!
//! A read-only mount and a network that is not there refuse without a record, and only a trace reports them. So the note
//! repeats what the program said, and names the option; it is no violation, and nothing is decided by it. Pure.

/// What a program can complain of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// A file system that is read-only.
    ReadOnly,
    /// A network that is not there.
    NoNetwork,
}

/// The words, and what they mean.
const WORDS: &[(&str, Complaint)] = &[
    ("Read-only file system", Complaint::ReadOnly),
    ("EROFS", Complaint::ReadOnly),
    ("Could not resolve host", Complaint::NoNetwork),
    ("Temporary failure in name resolution", Complaint::NoNetwork),
    ("Temporary failure resolving", Complaint::NoNetwork),
    ("Name or service not known", Complaint::NoNetwork),
    ("Network is unreachable", Complaint::NoNetwork),
    ("unable to resolve host address", Complaint::NoNetwork),
    ("failed to lookup address information", Complaint::NoNetwork),
    ("dial udp: lookup", Complaint::NoNetwork),
    ("dial tcp: lookup", Complaint::NoNetwork),
    ("EAI_AGAIN", Complaint::NoNetwork),
    ("ENETUNREACH", Complaint::NoNetwork),
    ("ENOTFOUND", Complaint::NoNetwork),
];

/// Bytes of the end of a chunk that a word can begin in.
const LONGEST: usize = 64;

/// Reads one stream as it comes, and remembers the first complaint.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    end: Vec<u8>,
    found: Option<Complaint>,
}

impl Complaints {
    /// Reads the next bytes of the stream.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        if self.found.is_some() {
            return;
        }
        // Words are looked for where a chunk ends and the next begins, and in the chunk.
        let overlap = [&self.end, &bytes[..bytes.len().min(LONGEST)]].concat();
        self.found = first(&overlap).or_else(|| first(bytes));
        let kept = overlap.len().saturating_sub(LONGEST);
        self.end = match bytes.len() >= LONGEST {
            true => bytes[bytes.len() - LONGEST..].to_vec(),
            false => overlap[kept..].to_vec(),
        };
    }

    /// The first complaint so far.
    pub(crate) fn found(&self) -> Option<Complaint> {
        self.found
    }
}

/// The complaint that comes first in some bytes.
fn first(bytes: &[u8]) -> Option<Complaint> {
    let places =
        WORDS.iter().filter_map(|(word, complaint)| Some((memchr::memmem::find(bytes, word.as_bytes())?, complaint)));
    places.min_by_key(|(at, _)| *at).map(|(_, complaint)| *complaint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(chunks: &[&str]) -> Option<Complaint> {
        let mut complaints = Complaints::default();
        chunks.iter().for_each(|chunk| complaints.read(chunk.as_bytes()));
        complaints.found()
    }

    #[test]
    fn the_first_complaint_counts_wherever_a_chunk_ends() {
        assert_eq!(of(&["touch: cannot touch 'x': Read-only file system\n"]), Some(Complaint::ReadOnly));
        let text = "curl: (6) Could not resolve host: example.org\nthen: Read-only file system\n";
        for at in 0..text.len() {
            assert_eq!(of(&[&text[..at], &text[at..]]), Some(Complaint::NoNetwork), "{at}");
        }
        let bytes: Vec<&str> = text.split_inclusive(|_: char| true).collect();
        assert_eq!(of(&bytes), Some(Complaint::NoNetwork), "byte by byte");
        let long = format!("{}EROFS{}", "x".repeat(1 << 16), "y".repeat(1 << 16));
        assert_eq!(of(&[&long]), Some(Complaint::ReadOnly));
        assert_eq!(of(&["all is well\n", "Read-only", " memory\n"]), None);
    }

    #[test]
    fn no_word_is_longer_than_what_is_kept() {
        assert!(WORDS.iter().all(|(word, _)| word.len() <= LONGEST));
    }
}
