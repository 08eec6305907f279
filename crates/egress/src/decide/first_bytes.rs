//! Detects a connection's protocol from its first bytes: TLS, HTTP, or neither. Pure.
//!
//! The rest of an `Opaque` connection is not inspected, so only what no server takes for TLS or HTTP is opaque. Bytes
//! that a lenient server could take for either go to the strict parser of that protocol, which refuses them. Other
//! protocols are detected as soon as possible, because their clients may wait for an answer to their first bytes.
//!
//! ```text
//! bytes ─┬─ 14..18 03, or an SSL 2 ClientHello ───────────────────────▶ Tls    (client_hello accepts 16 only)
//!        ├─ 15 or 16 and another version, if a ClientHello follows ───▶ Tls
//!        ├─ PRI * HTTP/2.0 ───────────────────────────────────────────▶ Http2
//!        └─ blanks, word ─┬─ not of a method's characters ────────────▶ Opaque
//!                         ├─ end of line ─────────────────────────────▶ Opaque
//!                         └─ blank ─┬─ a method that is known ────────▶ Http
//!                                   ├─ … HTTP/ ───────────────────────▶ Http
//!                                   └─ … end of line, control byte ───▶ Opaque
//! ```
//!
//! Never reads more than `MOST` bytes: what is undecided then is `Http`, whose parser refuses it.
//!
//! A server may accept a method with characters that none has (RFC 9110, 5.6.2), or an unknown method with control
//! characters in its target; Python's does both. Such a line is `Opaque` here as soon as it cannot be HTTP, and `first_line`
//! finds it while it passes. So where a rule has methods or paths, `Opaque` must not satisfy it.

/// Most bytes that are read before the decision.
pub const MOST: usize = 16 * 1024;

/// What the first bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstBytes {
    /// Undecided: more bytes are needed.
    More,
    /// TLS records, or what a server may take for them.
    Tls,
    /// An HTTP/1 request, or what a server may take for one.
    Http,
    /// HTTP/2 without TLS.
    Http2,
    /// Anything else.
    Opaque,
}

/// The connection preface of HTTP/2 (RFC 9113, 3.4).
const HTTP2: &[u8] = b"PRI * HTTP/2.0";

/// The start of a PROXY protocol header, in its two versions. A server that accepts one treats what follows it as the
/// start of the connection.
const PROXY: [&[u8]; 2] = [b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"];

/// Methods that make a line without a version an HTTP/0.9 request: those of IANA's registry that are in use, and the
/// others of Node's parser.
const METHODS: &[&str] = &[
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PRI",
    "QUERY",
    "ACL",
    "BIND",
    "CHECKOUT",
    "COPY",
    "LINK",
    "LOCK",
    "M-SEARCH",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MOVE",
    "NOTIFY",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "REBIND",
    "REPORT",
    "SEARCH",
    "SOURCE",
    "SUBSCRIBE",
    "UNBIND",
    "UNLINK",
    "UNLOCK",
    "UNSUBSCRIBE",
];

/// Classifies `bytes`, all that have come so far. Once the result is not `More`, further bytes do not change it.
pub fn classify(bytes: &[u8]) -> FirstBytes {
    let long = bytes.len() >= MOST;
    match decide(&bytes[..bytes.len().min(MOST)]) {
        FirstBytes::More if long => FirstBytes::Http,
        first => first,
    }
}

fn decide(bytes: &[u8]) -> FirstBytes {
    match bytes {
        [] => return FirstBytes::More,
        // The record types from change_cipher_spec to heartbeat: some servers skip such a record, for example an alert,
        // and read a ClientHello after it.
        [0x14..=0x18] => return FirstBytes::More,
        [0x14..=0x18, 3, ..] => return FirstBytes::Tls,
        // Some servers ignore the version in the first record, or half of it. With another version it is TLS only if a
        // ClientHello or a warning alert follows, because other protocols begin like this as well.
        [0x15 | 0x16, _, rest @ ..] => match rest {
            [] | [_] => return FirstBytes::More,
            [_, 0..=0x48] | [_, 0..=0x48, _] => return FirstBytes::More,
            [_, 0..=0x48, _, 1, ..] if bytes[0] == 0x16 => return FirstBytes::Tls,
            [_, 0, 2, ..] if bytes[0] == 0x15 => return FirstBytes::Tls,
            _ => {}
        },
        // A ClientHello in the format of SSL 2, without a name, which OpenSSL still accepts, and Java with any version:
        // a length with the highest bit, client_hello, version. It is no longer than a record.
        [0x80..=0xc7] | [0x80..=0xc7, _] | [0x80..=0xc7, _, 1] | [0x80..=0xc7, _, 1, 0] => return FirstBytes::More,
        [0x80..=0xc7, _, 1, 3..=0xff, ..] | [0x80..=0xc7, _, 1, 0, 2, ..] => return FirstBytes::Tls,
        _ => {}
    }
    for start in PROXY {
        if bytes.starts_with(start) {
            return FirstBytes::Http;
        }
        if start.starts_with(bytes) {
            return FirstBytes::More;
        }
    }
    let Some(blanks) = bytes.iter().position(|byte| !blank(*byte) && *byte != b'\n') else { return FirstBytes::More };
    let line = &bytes[blanks..];
    if line.starts_with(HTTP2) {
        return FirstBytes::Http2;
    }
    match HTTP2.starts_with(line) {
        true => FirstBytes::More,
        false => request(line),
    }
}

/// What a server might skip before a request and between its words: the blanks of HTTP, and those of Python's `split`.
pub(crate) fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r' | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// Classifies a line that does not begin with a blank.
fn request(line: &[u8]) -> FirstBytes {
    let end = line.iter().position(|byte| !token(*byte));
    let Some(end) = end else { return FirstBytes::More };
    let (method, rest) = line.split_at(end);
    if method.is_empty() || !blank(rest[0]) && rest[0] != b'\n' {
        return FirstBytes::Opaque;
    }
    let known = METHODS.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(method));
    let upper = known && !method.iter().any(u8::is_ascii_lowercase);
    let Some(blanks) = rest.iter().position(|byte| !blank(*byte)) else { return FirstBytes::More };
    let target = rest[blanks];
    match target {
        b'/' | b'*' if known => return FirstBytes::Http,
        // NATS begins like this, and no target does. STOMP ends the line directly, Node's parser only after a blank.
        b'{' if method == b"CONNECT" => {}
        b'\n' if method == b"CONNECT" && matches!(rest[..blanks], [] | [b'\r']) => {}
        // In lower case it may be a command of another protocol, such as `get key`.
        _ if upper => return FirstBytes::Http,
        _ => {}
    }
    // From the blanks on, because the version may follow directly if the target is missing.
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'\n' if target == b'/' || known && has(&rest[..at], b"://") => return FirstBytes::Http,
            b'\n' => return FirstBytes::Opaque,
            b'/' if version(&rest[..at]) => return FirstBytes::Http,
            0..=0x1f | 0x7f if !blank(*byte) && known => return FirstBytes::Http,
            0..=0x1f | 0x7f if !blank(*byte) => return FirstBytes::Opaque,
            _ => {}
        }
    }
    FirstBytes::More
}

/// Whether these bytes end with the word `HTTP`, in any case.
fn version(before: &[u8]) -> bool {
    match before {
        [.., blank_one, h, t1, t2, p] => blank(*blank_one) && [*h, *t1, *t2, *p].eq_ignore_ascii_case(b"HTTP"),
        _ => false,
    }
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// Whether a method may contain this character (RFC 9110, 5.6.2).
fn token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
