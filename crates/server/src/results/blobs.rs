//! Files and output that a result links to, stored for a while so that the client can read them by their address.
//!
//! An address contains the run's id or a random word and so cannot be guessed: only a client that got the result can read the
//! blob. The store is bounded in number, size and time; the oldest blobs are dropped first.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a blob is stored.
pub(crate) const LIFETIME: Duration = Duration::from_secs(600);
/// Most blobs.
const MAX_BLOBS: usize = 256;
/// Most bytes of all blobs together.
const MAX_BYTES: usize = 64 << 20;

/// A stored file or stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob {
    /// Its address.
    pub uri: String,
    /// Its media type.
    pub mime: &'static str,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The stored blobs.
#[derive(Debug, Default)]
pub(crate) struct BlobStore(Mutex<VecDeque<(Instant, Blob)>>);

impl BlobStore {
    /// Stores a blob, and drops older ones beyond the bounds.
    pub(crate) fn insert(&self, blob: Blob) {
        self.insert_at(blob, Instant::now());
    }

    fn insert_at(&self, blob: Blob, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back((now, blob));
        let mut bytes: usize = all.iter().map(|(_, blob)| blob.bytes.len()).sum();
        while all.len() > MAX_BLOBS || bytes > MAX_BYTES || all.front().is_some_and(|(at, _)| now - *at > LIFETIME) {
            let Some((_, gone)) = all.pop_front() else { break };
            bytes -= gone.bytes.len();
        }
    }

    /// The blob at an address, if it is still stored.
    pub(crate) fn get(&self, uri: &str) -> Option<Blob> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find(|(at, blob)| blob.uri == uri && at.elapsed() <= LIFETIME);
        found.map(|(_, blob)| blob.clone())
    }
}

/// The address of an output file of a run.
pub(crate) fn output_uri(run: &str, name: &str) -> String {
    append_escaped(format!("cofferdam://run/{run}/output/"), name)
}

/// The address of a run's standard output or standard error.
pub(crate) fn stream_uri(run: &str, stream: &str) -> String {
    append_escaped(format!("cofferdam://run/{run}/"), stream)
}

/// The address of a downloaded file. `random` must be unguessable.
pub(crate) fn download_uri(random: &str, name: &str) -> String {
    append_escaped(format!("cofferdam://download/{random}/"), name)
}

fn append_escaped(mut uri: String, name: &str) -> String {
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(uri: &str, size: usize) -> Blob {
        Blob { uri: uri.into(), mime: "application/octet-stream", bytes: vec![0; size] }
    }

    #[test]
    fn blobs_are_found_until_bounds_or_lifetime_are_exceeded() {
        let store = BlobStore::default();
        store.insert(file("a", 1));
        assert_eq!(store.get("a"), Some(file("a", 1)));
        assert_eq!(store.get("b"), None);
        store.insert(file("b", MAX_BYTES));
        assert_eq!((store.get("a"), store.get("b").is_some()), (None, true));
        for index in 0..MAX_BLOBS {
            store.insert(file(&format!("n{index}"), 0));
        }
        assert_eq!((store.get("b"), store.get("n0").is_some()), (None, true));
        let store = BlobStore::default();
        let now = Instant::now();
        store.insert_at(file("old", 1), now);
        store.insert_at(file("new", 1), now + LIFETIME + Duration::from_secs(1));
        assert_eq!(store.get("old"), None);
    }

    #[test]
    fn addresses_escape_any_name() {
        assert_eq!(output_uri("id", "a b/c\u{e9}.bin"), "cofferdam://run/id/output/a%20b/c%C3%A9.bin");
    }
}
