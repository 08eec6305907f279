//! Files, and output, that an answer only links to: kept for a while, so that they can be read by their address.
//!
//! An address holds the run's id or a random word, which nobody can guess: whoever was given the answer may read, and
//! nobody else. Bounded in number, size and time; the oldest go first.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a file is kept.
pub const LIFE: Duration = Duration::from_secs(600);
/// Most files.
const MOST: usize = 256;
/// Most bytes of all files.
const MOST_BYTES: usize = 64 << 20;

/// A kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its address.
    pub uri: String,
    /// Its type.
    pub mime: &'static str,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// What is kept.
#[derive(Debug, Default)]
pub struct Shelf(Mutex<VecDeque<(Instant, Kept)>>);

impl Shelf {
    /// Keeps a file; older ones make room.
    pub fn keep(&self, file: Kept) {
        self.keep_at(file, Instant::now());
    }

    fn keep_at(&self, file: Kept, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back((now, file));
        let mut bytes: usize = all.iter().map(|(_, kept)| kept.bytes.len()).sum();
        while all.len() > MOST || bytes > MOST_BYTES || all.front().is_some_and(|(at, _)| now - *at > LIFE) {
            let Some((_, gone)) = all.pop_front() else { break };
            bytes -= gone.bytes.len();
        }
    }

    /// The file of an address, if it is still kept.
    pub fn find(&self, uri: &str) -> Option<Kept> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find(|(at, kept)| kept.uri == uri && at.elapsed() <= LIFE);
        found.map(|(_, kept)| kept.clone())
    }
}

/// The address of a file of a run.
pub fn address(run: &str, name: &str) -> String {
    addressed(format!("cofferdam://run/{run}/output/"), name)
}

/// The address of what a run printed on a stream.
pub fn address_of_stream(run: &str, stream: &str) -> String {
    addressed(format!("cofferdam://run/{run}/"), stream)
}

/// The address of a file that was asked for; `word` is one that nobody guesses.
pub fn address_of_download(word: &str, name: &str) -> String {
    addressed(format!("cofferdam://download/{word}/"), name)
}

fn addressed(mut uri: String, name: &str) -> String {
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

    fn file(uri: &str, size: usize) -> Kept {
        Kept { uri: uri.into(), mime: "application/octet-stream", bytes: vec![0; size] }
    }

    #[test]
    fn files_are_found_until_others_need_their_room_or_their_time_is_over() {
        let shelf = Shelf::default();
        shelf.keep(file("a", 1));
        assert_eq!(shelf.find("a"), Some(file("a", 1)));
        assert_eq!(shelf.find("b"), None);
        shelf.keep(file("b", MOST_BYTES));
        assert_eq!((shelf.find("a"), shelf.find("b").is_some()), (None, true));
        for index in 0..MOST {
            shelf.keep(file(&format!("n{index}"), 0));
        }
        assert_eq!((shelf.find("b"), shelf.find("n0").is_some()), (None, true));
        let shelf = Shelf::default();
        let now = Instant::now();
        shelf.keep_at(file("old", 1), now);
        shelf.keep_at(file("new", 1), now + LIFE + Duration::from_secs(1));
        assert_eq!(shelf.find("old"), None);
    }

    #[test]
    fn addresses_hold_any_name() {
        assert_eq!(address("id", "a b/c\u{e9}.bin"), "cofferdam://run/id/output/a%20b/c%C3%A9.bin");
    }
}
