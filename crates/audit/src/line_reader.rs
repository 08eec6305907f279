//! Reads the lines of one file of a trail in order, each with its offset: the only parser of a trail's bytes.
//!
//! The file is untrusted, so a line that is longer than any record is returned in pieces, none of which is a record.
//! Does not interpret lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::record::MOST_BYTES;
use super::store::open_file;

/// A line, or a piece of one that is too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawLine {
    /// Its bytes, without the newline; at most [`MOST_BYTES`] and one.
    pub bytes: Vec<u8>,
    /// Its number, from 1; pieces count.
    pub number: u64,
    /// Its offset in bytes.
    pub offset: u64,
    /// It ends with a newline.
    pub whole: bool,
}

impl RawLine {
    /// Whether the file ends with it, without a newline: what is there may be the middle of a write.
    pub(crate) fn is_end(&self) -> bool {
        !self.whole && self.bytes.len() <= MOST_BYTES
    }
}

/// Reads a file's lines.
#[derive(Debug)]
pub(crate) struct LineReader {
    reader: BufReader<File>,
    number: u64,
    offset: u64,
}

impl LineReader {
    /// A file's lines from here on, bytes; they are numbered from there.
    ///
    /// # Errors
    /// It cannot be opened, or is no regular file.
    pub(crate) fn open(path: &Path, offset: u64) -> io::Result<LineReader> {
        LineReader::of(open_file(path)?, offset)
    }

    /// The same of a file that is open.
    ///
    /// # Errors
    /// It cannot be read there.
    pub(crate) fn of(mut file: File, offset: u64) -> io::Result<LineReader> {
        if offset > 0 {
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(LineReader { reader: BufReader::with_capacity(64 << 10, file), number: 0, offset })
    }

    /// The next one; none at the end, which can be asked again when more has been written.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn next(&mut self) -> io::Result<Option<RawLine>> {
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(MOST_BYTES as u64 + 1).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        let whole = bytes.last() == Some(&b'\n');
        if whole {
            bytes.pop();
        }
        self.number += 1;
        let raw = RawLine { bytes, number: self.number, offset: self.offset, whole };
        self.offset += read as u64;
        Ok(Some(raw))
    }

    /// Puts back what came last, to be read again from the file with what was written meanwhile.
    ///
    /// # Errors
    /// The file cannot be read there.
    pub(crate) fn put_back(&mut self, last: &RawLine) -> io::Result<()> {
        self.reader.seek(SeekFrom::Start(last.offset))?;
        (self.number, self.offset) = (last.number - 1, last.offset);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn all(lines: &mut LineReader) -> Vec<(u64, u64, usize, bool)> {
        let mut found = Vec::new();
        while let Some(raw) = lines.next().unwrap() {
            found.push((raw.number, raw.offset, raw.bytes.len(), raw.whole));
        }
        found
    }

    #[test]
    fn each_line_is_returned_with_its_offset() {
        let file = file(b"one\n\nthree\nno end");
        let mut lines = LineReader::open(file.path(), 0).unwrap();
        assert_eq!(all(&mut lines), [(1, 0, 3, true), (2, 4, 0, true), (3, 5, 5, true), (4, 11, 6, false)]);
        assert_eq!(all(&mut LineReader::open(file.path(), 5).unwrap()), [(1, 5, 5, true), (2, 11, 6, false)]);
        assert_eq!(all(&mut LineReader::open(file.path(), 400).unwrap()), []);
    }

    #[test]
    fn the_longest_line_is_whole_and_a_longer_one_comes_in_pieces() {
        let long = |bytes: usize| {
            let mut text = vec![b'x'; bytes];
            text.extend(b"\nnext\n");
            let file = file(&text);
            let mut lines = LineReader::open(file.path(), 0).unwrap();
            let first = lines.next().unwrap().unwrap();
            assert!(!first.is_end(), "more follows");
            lines.put_back(&first).unwrap();
            all(&mut lines)
        };
        let most = MOST_BYTES as u64;
        assert_eq!(long(MOST_BYTES), [(1, 0, MOST_BYTES, true), (2, most + 1, 4, true)]);
        assert_eq!(
            long(MOST_BYTES + 2),
            [(1, 0, MOST_BYTES + 1, false), (2, most + 1, 1, true), (3, most + 3, 4, true)],
            "bounded, and nothing passed over"
        );
        let one_more = [(1, 0, MOST_BYTES + 1, false), (2, most + 1, 0, true), (3, most + 2, 4, true)];
        assert_eq!(long(MOST_BYTES + 1), one_more);
    }

    #[test]
    fn what_was_put_back_is_read_again_with_what_was_written_since() {
        let mut file = file(b"whole\nha");
        let mut lines = LineReader::open(file.path(), 0).unwrap();
        assert!(lines.next().unwrap().is_some_and(|raw| raw.whole));
        let half = lines.next().unwrap().unwrap();
        assert!(half.is_end() && half.bytes == b"ha");
        lines.put_back(&half).unwrap();
        file.write_all(b"lf\nmore\n").unwrap();
        assert_eq!(all(&mut lines), [(2, 6, 4, true), (3, 11, 4, true)]);
        file.write_all(b"late\n").unwrap();
        assert_eq!(all(&mut lines), [(4, 16, 4, true)], "the end is no end for good");
    }

    #[test]
    fn no_link_is_followed_and_nothing_but_a_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "a\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(LineReader::open(&file, 0).is_ok());
        assert!(LineReader::open(&link, 0).is_err() && LineReader::open(dir.path(), 0).is_err());
    }
}
