//! Identifies the state of a file: by stat(2), and by SHA-256 if that is not sufficient.

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;

use sha2::{Digest as _, Sha256};

use crate::protocol::FileStamp;

impl FileStamp {
    /// The identity by stat(2).
    pub fn of(metadata: &Metadata) -> FileStamp {
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        FileStamp {
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.size(),
            mtime_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// SHA-256 of bytes, hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of at most `limit` bytes of a stream; `None` when it holds more.
///
/// # Errors
/// The stream cannot be read.
pub(crate) fn sha256_of(stream: impl Read, limit: u64) -> std::io::Result<Option<String>> {
    let mut hasher = Sha256::new();
    let mut stream = stream.take(limit + 1);
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok((total <= limit).then(|| hex(&hasher.finalize())));
        }
        total += read as u64;
        hasher.update(&buffer[..read]);
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|nibble| char::from(DIGITS[usize::from(nibble)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_the_known_ones() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
        assert_eq!(sha256_of(&b"abc"[..], 3).unwrap(), Some(sha256(b"abc")));
        assert_eq!(sha256_of(&b"abcd"[..], 3).unwrap(), None);
    }
}
