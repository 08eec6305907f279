//! What is remembered of a stream that is passed on: its beginning and its end, for the notes after the run.

/// Most bytes of the beginning, and of the end.
const PART: usize = 16 << 10;

/// The beginning and the end of a stream, whatever its length is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Excerpt {
    first: Vec<u8>,
    /// At most two parts long: shortened to one when it gets longer.
    last: Vec<u8>,
}

impl Excerpt {
    /// Takes the next bytes of the stream.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(PART - self.first.len()));
        self.first.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(PART)..];
        self.last.extend_from_slice(rest);
        if self.last.len() > 2 * PART {
            self.last.drain(..self.last.len() - PART);
        }
    }

    /// Whether nothing was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// The last byte.
    pub(crate) fn last(&self) -> Option<u8> {
        self.last.last().or_else(|| self.first.last()).copied()
    }

    /// The excerpt of a stream that is there as a whole.
    pub(crate) fn of(text: &str) -> Excerpt {
        let mut excerpt = Excerpt::default();
        excerpt.take(text.as_bytes());
        excerpt
    }

    /// The lines of the excerpt, in order. The ones where it was cut may be parts of lines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let parts = [self.first.as_slice(), self.last.as_slice()].concat();
        let lines: Vec<String> = parts
            .split(is_end)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .filter(|l| !l.is_empty())
            .collect();
        lines.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(excerpt: &Excerpt) -> Vec<String> {
        excerpt.lines().collect()
    }

    #[test]
    fn lines_are_whole_wherever_a_chunk_ends() {
        let text = "one\ntwo\r\nthree";
        for at in 0..text.len() {
            let mut excerpt = Excerpt::of(&text[..at]);
            excerpt.take(&text.as_bytes()[at..]);
            assert_eq!(lines(&excerpt), ["one", "two", "three"], "{at}");
        }
    }

    #[test]
    fn the_beginning_and_the_end_of_a_long_stream_are_there() {
        let mut excerpt = Excerpt::of("the beginning\n");
        for _ in 0..100 {
            excerpt.take(&vec![b'x'; 100_000]);
        }
        excerpt.take(b"\nthe end\n");
        let lines = lines(&excerpt);
        assert_eq!((lines[0].as_str(), lines.last().map(String::as_str)), ("the beginning", Some("the end")));
        assert!(excerpt.first.len() + excerpt.last.len() <= 3 * PART);
    }
}
