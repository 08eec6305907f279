//! Finds a request line at the start of a stream that is not taken for HTTP, because its method is none. Pure.
//!
//! Lenient servers take any word for a method, `GE"T` and `GET:` too, with control characters in it, and serve the host that
//! the request names. So a first line whose last word begins with `HTTP/` is refused wherever it has another word before.
//! Nothing waits for the line to end: what came of it has passed, and the rest of it does not.

use crate::decide::first_bytes::blank;

/// A line that is longer is no request line to any server.
const MOST: usize = 128 * 1024;

const VERSION: &[u8] = b"HTTP/";

/// The first line of a stream, as far as it has come.
#[derive(Debug, Clone, Default)]
pub struct FirstLine {
    /// Bytes so far, the blank ones before the line included.
    length: usize,
    /// Words that have begun.
    words: usize,
    /// Whether the last byte was one of a word.
    in_word: bool,
    /// How many bytes of the last word match `VERSION`, and whether the next one may.
    matched: usize,
    may_match: bool,
    done: bool,
}

impl FirstLine {
    /// Reads the bytes that follow; they may pass unless it is a request line.
    ///
    /// # Errors
    /// It is one.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        for byte in bytes {
            if self.done {
                break;
            }
            self.length += 1;
            // Some servers end a line at a carriage return alone.
            if matches!(byte, b'\r' | b'\n') && self.words > 1 && self.matched == VERSION.len() {
                return Err("a request line whose method is not a word");
            }
            match byte {
                b'\n' => self.done = self.words > 0,
                _ if blank(*byte) => self.in_word = false,
                _ => {
                    if !self.in_word {
                        (self.in_word, self.matched) = (true, 0);
                        self.words += 1;
                        self.may_match = true;
                    }
                    if self.may_match && self.matched < VERSION.len() {
                        self.may_match = VERSION[self.matched].eq_ignore_ascii_case(byte);
                        self.matched += usize::from(self.may_match);
                    }
                }
            }
            self.done |= self.length >= MOST;
        }
        Ok(())
    }

    /// Whether the rest of the stream need not be read.
    pub fn is_done(&self) -> bool {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However it is cut up.
    fn is_request(bytes: &[u8]) -> bool {
        let whole = FirstLine::default().read(bytes).is_err();
        for step in [1, 2, 5] {
            let mut line = FirstLine::default();
            assert_eq!(bytes.chunks(step).any(|part| line.read(part).is_err()), whole, "{bytes:?}");
        }
        whole
    }

    #[test]
    fn a_line_that_ends_in_a_version_is_a_request_whatever_its_method_is() {
        for method in
            ["GE\"T", "\u{feff}GET", "GET:", "GET,", "{}", "(x)", "@", "\u{1}GET", "FOO", "a\0b", "G T", "X /\u{1}"]
        {
            for version in ["HTTP/1.1", "http/1.0", "HTTP/", "HTTP/9"] {
                for (separator, end) in [(" ", "\r\n"), ("\t", "\n"), (" \u{c}", " \r\n"), ("\u{1f}", "\r")] {
                    let line = format!("\r\n{method}{separator}/{separator}{version}{end}Host: a\r\n\r\n");
                    assert!(is_request(line.as_bytes()), "{line:?}");
                    assert!(!is_request(&line.as_bytes()[..line.find(version).unwrap() + version.len()]), "{line:?}");
                }
            }
        }
        assert!(is_request(b"\xffGET / HTTP/1.1\r\n") && is_request(b"G\xa0/\x85HTTP/1.1\n"));
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            &b"HTTP/1.1 200 OK\r\n"[..],
            b"SSH-2.0-OpenSSH_9.6\r\nGE\"T / HTTP/1.1\r\n",
            b"{\"method\": \"GET\", \"version\": \"HTTP/1.1\"}\n",
            b"<1>host: \"GET / HTTP/1.1\" 200\n",
            b"(x) / XHTTP/1.1\r\n",
            b"(x) /HTTP/1.1\r\n",
            b"(x) / HTTP 1.1\r\n",
            b"HTTP/1.1\r\n",
            b"OPTIONS sip:a SIP/2.0\r\n",
            b"REQMOD icap://a ICAP/1.0\r\n",
        ] {
            assert!(!is_request(line), "{line:?}");
        }
        let mut long = FirstLine::default();
        assert!(long.read(&vec![b'x'; MOST]).is_ok() && long.is_done());
        let mut short = FirstLine::default();
        assert!(short.read(b"\r\n\r\n").is_ok() && !short.is_done());
        assert!(short.read(b"x\n").is_ok() && short.is_done());
    }
}
