//! Checks that the raw bytes of a request's head are unambiguous. Pure; interprets nothing else of a request.
//!
//! Programs on the path of a request disagree on heads that the standard forbids or leaves open: where a line ends,
//! whether a space before a colon belongs to the name, which of two lengths counts. What one of them takes for a body
//! another takes for the next request, to another host (request smuggling). So everything that is known to be read in
//! two ways is refused here, before any other parser. What remains is written anew for upstream.

/// Most bytes of a head, request line and final empty line included.
pub const MOST_BYTES: usize = 64 * 1024;
/// Most header lines.
pub const MOST_HEADERS: usize = 100;
/// Most bytes of a method.
const MOST_METHOD: usize = 32;

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum HeadFault {
    /// More than `MOST_BYTES`.
    #[error("the head is longer than 64 KiB")]
    TooLong,
    /// More than `MOST_HEADERS`.
    #[error("the head has more than 100 lines")]
    TooManyHeaders,
    /// A line of the head has no end.
    #[error("a line of the head does not end")]
    Incomplete,
    /// The client ended the stream in the middle of the request: nothing is refused, and nothing more passes.
    #[error("the request ends in the middle")]
    CutOff,
    /// The rest of the request does not come in time.
    #[error("the request did not go on in time")]
    TimedOut,
    /// A line feed without a carriage return before it.
    #[error("a line ends in a line feed alone")]
    BareLineFeed,
    /// A carriage return without a line feed after it.
    #[error("a carriage return stands alone")]
    BareCarriageReturn,
    /// A NUL or another control character.
    #[error("a control character in the head")]
    ControlCharacter,
    /// The first line is not three words with one space between them.
    #[error("the request line is not `METHOD TARGET HTTP/1.1`")]
    RequestLine,
    /// The method is no token, or too long.
    #[error("the method is not a word")]
    Method,
    /// The target has a byte that may not occur in URLs.
    #[error("the target has a character that must be percent-encoded")]
    Target,
    /// A version other than HTTP/1.1 and HTTP/1.0, or none, as in HTTP/0.9.
    #[error("the version is neither HTTP/1.1 nor HTTP/1.0")]
    Version,
    /// A header continues in the next line (obs-fold).
    #[error("a header is folded over two lines")]
    Folded,
    /// A space or tab between a header's name and its colon.
    #[error("a space before a header's colon")]
    SpaceBeforeColon,
    /// A header line without a colon, or with an invalid name.
    #[error("a header's name is not a word")]
    HeaderName,
    /// A name that some programs take for Host, Content-Length or Transfer-Encoding: `Content_Length`, `#Host`.
    #[error("a header's name is almost Host, Content-Length or Transfer-Encoding")]
    AlmostHeader,
    /// No Host.
    #[error("there is no Host header")]
    NoHost,
    /// More than one Host.
    #[error("there is more than one Host header")]
    SeveralHosts,
    /// The Host header has no value.
    #[error("the Host header is empty")]
    EmptyHost,
    /// A Content-Length that is no plain decimal number.
    #[error("Content-Length is not a plain number")]
    Length,
    /// More than one Content-Length, even equal ones.
    #[error("there is more than one Content-Length")]
    SeveralLengths,
    /// Content-Length and Transfer-Encoding together.
    #[error("there are Content-Length and Transfer-Encoding both")]
    LengthAndEncoding,
    /// A Transfer-Encoding that is not a single `chunked`.
    #[error("Transfer-Encoding is not exactly `chunked`")]
    Encoding,
    /// Transfer-Encoding in HTTP/1.0.
    #[error("HTTP/1.0 has no Transfer-Encoding")]
    EncodingInOldVersion,
    /// The Connection header names a header that must reach upstream.
    #[error("Connection names a header that is not the connection's")]
    Nominated,
    /// An expectation that is not `100-continue`.
    #[error("Expect is not `100-continue`")]
    Expectation,
    /// A CONNECT with a body.
    #[error("CONNECT has no body")]
    TunnelBody,
    /// A chunk's size is not a few hexadecimal digits.
    #[error("a chunk's size is not a plain hexadecimal number")]
    ChunkSize,
    /// A chunk extension.
    #[error("a chunk has an extension")]
    ChunkExtension,
    /// A chunk's data does not end where its size says.
    #[error("a chunk does not end where its size says")]
    ChunkEnd,
    /// Trailers that are too long, or contain a header that belongs in the head.
    #[error("the trailers are too long, or have a header that belongs in the head")]
    Trailers,
}

/// The body after the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// So many bytes; zero if the head gives no length.
    Length(u64),
    /// Chunked transfer encoding.
    Chunked,
}

/// What the head says about the bytes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// How the body is framed.
    pub body: Body,
    /// It asks for an upgrade or a tunnel: what follows may be no HTTP.
    pub upgrading: bool,
}

/// Finds the end of the line that `bytes` begin with, from the index `from` on: the index of its `\r\n`.
///
/// # Errors
/// A fault; or none if the line is incomplete, and then the search may continue at the new `from`.
fn line_end(bytes: &[u8], from: &mut usize) -> Result<usize, Option<HeadFault>> {
    for index in *from..bytes.len() {
        match bytes[index] {
            b'\r' => match bytes.get(index + 1) {
                Some(b'\n') => return Ok(index),
                Some(_) => return Err(Some(HeadFault::BareCarriageReturn)),
                None => {
                    *from = index;
                    return Err(None);
                }
            },
            b'\n' => return Err(Some(HeadFault::BareLineFeed)),
            b'\t' => {}
            0..=31 | 127 => return Err(Some(HeadFault::ControlCharacter)),
            _ => {}
        }
    }
    *from = bytes.len();
    Err(None)
}

/// Finds the end of a head that is read in parts, without reading a byte twice.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadSearch {
    line: usize,
    seen: usize,
}

impl HeadSearch {
    /// The length of the head with the empty line at its end; `None` if it is incomplete. `bytes` are all bytes read so
    /// far, which begin with those of the last call.
    pub fn end(&mut self, bytes: &[u8], most: usize) -> Result<Option<usize>, HeadFault> {
        loop {
            if self.line + self.seen > most {
                return Err(HeadFault::TooLong);
            }
            match line_end(&bytes[self.line..], &mut self.seen) {
                Ok(0) if self.line + 2 > most => return Err(HeadFault::TooLong),
                // An empty first line is for `check` to refuse.
                Ok(0) => return Ok(Some(self.line + 2)),
                Ok(length) => *self = HeadSearch { line: self.line + length + 2, seen: 0 },
                Err(Some(fault)) => return Err(fault),
                Err(None) if bytes.len() >= most => return Err(HeadFault::TooLong),
                Err(None) => return Ok(None),
            }
        }
    }
}

/// Whether this byte may occur in a token (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| is_token(*byte))
}

/// Removes spaces and tabs at both ends.
fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Name and value of one header line, without its end.
pub(crate) fn header(line: &[u8]) -> Result<(&[u8], &[u8]), HeadFault> {
    if let Some(b' ' | b'\t') = line.first() {
        return Err(HeadFault::Folded);
    }
    let colon = line.iter().position(|byte| *byte == b':').ok_or(HeadFault::HeaderName)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if let Some(b' ' | b'\t') = name.last() {
        return Err(HeadFault::SpaceBeforeColon);
    }
    if !token(name) {
        return Err(HeadFault::HeaderName);
    }
    if resembles_framing_header(name) {
        return Err(HeadFault::AlmostHeader);
    }
    Ok((name, trim(value)))
}

/// Whether a name differs only in punctuation from a header that frames or routes a request. CGI turns other characters
/// than letters and digits into `_`, and other programs drop them.
fn resembles_framing_header(name: &[u8]) -> bool {
    let known: [&[u8]; 3] = [b"Host", b"Content-Length", b"Transfer-Encoding"];
    known.iter().any(|known| !name.eq_ignore_ascii_case(known) && alphanumerics(name).eq(alphanumerics(known)))
}

/// Whether two names are the same except for case and punctuation.
pub(crate) fn same_alphanumerics(one: &str, other: &str) -> bool {
    alphanumerics(one.as_bytes()).eq(alphanumerics(other.as_bytes()))
}

fn alphanumerics(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase)
}

/// Headers that describe or route a message: neither hop-by-hop headers nor trailers.
const MESSAGE: &[&str] = &[
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "origin",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// Those of [`MESSAGE`] that `Connection` may name.
const CONNECTION: &[&str] =
    &["http2-settings", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade"];

fn among(list: &[&str], name: &[u8]) -> bool {
    list.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether a header of this name may be a trailer.
pub(crate) fn may_trail(name: &[u8]) -> bool {
    !among(MESSAGE, name)
}

/// Parses a `Content-Length`: a plain decimal number without sign, list or leading zeros.
fn length(value: &[u8]) -> Result<u64, HeadFault> {
    if value.is_empty()
        || value.len() > 18
        || !value.iter().all(u8::is_ascii_digit)
        || (value[0] == b'0' && value.len() > 1)
    {
        return Err(HeadFault::Length);
    }
    Ok(value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Checks a whole head, whose end [`HeadSearch::end`] has found.
pub fn check(head: &[u8]) -> Result<Head, HeadFault> {
    if head.len() > MOST_BYTES {
        return Err(HeadFault::TooLong);
    }
    let mut rest = head;
    let mut next = || -> Result<&[u8], HeadFault> {
        let length = line_end(rest, &mut 0).map_err(|fault| fault.unwrap_or(HeadFault::Incomplete))?;
        let line = &rest[..length];
        rest = &rest[length + 2..];
        Ok(line)
    };
    let (method, old) = request_line(next()?)?;
    let (mut hosts, mut lengths, mut encodings) = (0, 0, 0);
    let mut body = Body::Length(0);
    let mut upgrade = false;
    let mut lines = 0;
    loop {
        let line = next()?;
        if line.is_empty() {
            break;
        }
        lines += 1;
        if lines > MOST_HEADERS {
            return Err(HeadFault::TooManyHeaders);
        }
        let (name, value) = header(line)?;
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("host") {
            hosts += 1;
            if value.is_empty() {
                return Err(HeadFault::EmptyHost);
            }
        } else if is("content-length") {
            lengths += 1;
            body = Body::Length(length(value)?);
        } else if is("transfer-encoding") {
            encodings += 1;
            if value != b"chunked" {
                return Err(HeadFault::Encoding);
            }
        } else if is("connection") {
            for option in value.split(|byte| *byte == b',').map(trim) {
                if among(MESSAGE, option) && !among(CONNECTION, option) {
                    return Err(HeadFault::Nominated);
                }
            }
        } else if is("expect") {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(HeadFault::Expectation);
            }
        } else if is("upgrade") {
            upgrade = true;
        }
    }
    // `HeadSearch::end` stops at the empty line.
    if !rest.is_empty() {
        return Err(HeadFault::RequestLine);
    }
    match (hosts, lengths, encodings) {
        (_, 1.., _) | (_, _, 1..) if method == b"CONNECT" => return Err(HeadFault::TunnelBody),
        // Some clients omit Host with CONNECT (Python before 3.12), and the target is enough.
        (0, _, _) if method == b"CONNECT" => {}
        (0, _, _) => return Err(HeadFault::NoHost),
        (2.., _, _) => return Err(HeadFault::SeveralHosts),
        (_, 1.., 1..) => return Err(HeadFault::LengthAndEncoding),
        (_, 2.., _) => return Err(HeadFault::SeveralLengths),
        (_, _, 2..) => return Err(HeadFault::Encoding),
        (_, _, 1) if old => return Err(HeadFault::EncodingInOldVersion),
        (_, _, 1) => body = Body::Chunked,
        _ => {}
    }
    Ok(Head { body, upgrading: upgrade || method == b"CONNECT" })
}

/// The method, and whether the version is 1.0.
fn request_line(line: &[u8]) -> Result<(&[u8], bool), HeadFault> {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(version), None) => (method, target, version),
        // HTTP/0.9.
        (Some(_), Some(_), None, None) => return Err(HeadFault::Version),
        _ => return Err(HeadFault::RequestLine),
    };
    if method.len() > MOST_METHOD || !token(method) {
        return Err(HeadFault::Method);
    }
    // A fragment never leaves a client, and programs differ on what to do with one.
    if target.is_empty() || !target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') {
        return Err(HeadFault::Target);
    }
    match version {
        b"HTTP/1.1" => Ok((method, false)),
        b"HTTP/1.0" => Ok((method, true)),
        _ => Err(HeadFault::Version),
    }
}
