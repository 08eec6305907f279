//! What the first bytes of a connection are: TLS, HTTP, or neither. Pure.
//!
//! `Opaque` means that nobody looks into what follows, so it is said only of what no server takes for TLS or HTTP:
//! whatever a lenient one could take for either goes to the strict reader of that protocol, which refuses it. For the
//! other protocols it is said as soon as it is certain, because their clients may wait for an answer to their first
//! bytes.
//!
//! ```text
//! bytes ─┬─ 14..18 03, or a greeting of SSL 2 ────────────────────────▶ Tls    (the greeting's reader knows 16 only)
//!        ├─ 15 or 16 and another version, where a greeting follows ───▶ Tls
//!        ├─ PRI * HTTP/2.0 ───────────────────────────────────────────▶ Http2
//!        └─ blanks, word ─┬─ not of a method's characters ────────────▶ Opaque
//!                         ├─ end of line ─────────────────────────────▶ Opaque
//!                         └─ blank ─┬─ a method that is known ────────▶ Http
//!                                   ├─ … HTTP/ ───────────────────────▶ Http
//!                                   └─ … end of line, control byte ───▶ Opaque
//! ```
//!
//! Never reads further than `MOST` bytes: what is still undecided then is `Http`, where it is refused.
//!
//! Not held: a server that takes a method with characters that none has (RFC 9110, 5.6.2), or an unknown method with
//! control characters in its target. Python's does both; its usual handlers answer such a method with an error. So where a
//! rule has methods or paths, `Opaque` must not satisfy it.

/// Most bytes that may come before it is certain what they are.
pub const MOST: usize = 16 * 1024;

/// What they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Not certain yet.
    More,
    /// Records of TLS, or what a server may take for some.
    Tls,
    /// A request of HTTP/1, or what a server may take for one.
    Http,
    /// HTTP/2 without TLS.
    Http2,
    /// Anything else.
    Opaque,
}

/// How HTTP/2 begins (RFC 9113, 3.4).
const HTTP2: &[u8] = b"PRI * HTTP/2.0";

/// How a header of the PROXY protocol begins, in its two versions. A server that takes one reads on behind it as if the
/// connection began there.
const PROXY: [&[u8]; 2] = [b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"];

/// Methods that servers know, by which a request without a version is one of HTTP/0.9: those of IANA's registry that are
/// in use, and what Node's parser has besides.
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

/// Tells what `bytes`, all that have come so far, begin. Once it is not `More`, further bytes change nothing.
pub fn classify(bytes: &[u8]) -> First {
    let long = bytes.len() >= MOST;
    match decide(&bytes[..bytes.len().min(MOST)]) {
        First::More if long => First::Http,
        first => first,
    }
}

fn decide(bytes: &[u8]) -> First {
    match bytes {
        [] => return First::More,
        // The types of records from change_cipher_spec to heartbeat: some servers step over such a record, an alert for
        // one, and read a greeting behind it.
        [0x14..=0x18] => return First::More,
        [0x14..=0x18, 3, ..] => return First::Tls,
        // Some servers look at no version in the first record, or at half of it; of another one it is theirs only where
        // the rest is that of a greeting or a warning, because other protocols begin so as well.
        [0x15 | 0x16, _, rest @ ..] => match rest {
            [] | [_] => return First::More,
            [_, 0..=0x48] | [_, 0..=0x48, _] => return First::More,
            [_, 0..=0x48, _, 1, ..] if bytes[0] == 0x16 => return First::Tls,
            [_, 0, 2, ..] if bytes[0] == 0x15 => return First::Tls,
            _ => {}
        },
        // A greeting in the form of SSL 2, without a name, which OpenSSL still takes, and Java whatever its version: length
        // with the highest bit, client_hello, version. It is no longer than a record.
        [0x80..=0xc7] | [0x80..=0xc7, _] | [0x80..=0xc7, _, 1] | [0x80..=0xc7, _, 1, 0] => return First::More,
        [0x80..=0xc7, _, 1, 3..=0xff, ..] | [0x80..=0xc7, _, 1, 0, 2, ..] => return First::Tls,
        _ => {}
    }
    for start in PROXY {
        if bytes.starts_with(start) {
            return First::Http;
        }
        if start.starts_with(bytes) {
            return First::More;
        }
    }
    let Some(blanks) = bytes.iter().position(|byte| !blank(*byte) && *byte != b'\n') else { return First::More };
    let line = &bytes[blanks..];
    if line.starts_with(HTTP2) {
        return First::Http2;
    }
    match HTTP2.starts_with(line) {
        true => First::More,
        false => request(line),
    }
}

/// What a server might skip before a request and between its words: what HTTP has, and what Python's `split` takes.
fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r' | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// What a line is that begins with no blank.
fn request(line: &[u8]) -> First {
    let end = line.iter().position(|byte| !token(*byte));
    let Some(end) = end else { return First::More };
    let (method, rest) = line.split_at(end);
    if method.is_empty() || !blank(rest[0]) && rest[0] != b'\n' {
        return First::Opaque;
    }
    let known = METHODS.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(method));
    let upper = known && !method.iter().any(u8::is_ascii_lowercase);
    let Some(blanks) = rest.iter().position(|byte| !blank(*byte)) else { return First::More };
    let target = rest[blanks];
    match target {
        b'/' | b'*' if known => return First::Http,
        // NATS begins so, and no target does. STOMP has the end of the line at once, Node's parser only behind a blank.
        b'{' if method == b"CONNECT" => {}
        b'\n' if method == b"CONNECT" && matches!(rest[..blanks], [] | [b'\r']) => {}
        // In lower case it may be another protocol's word, as `get key` is.
        _ if upper => return First::Http,
        _ => {}
    }
    // From the blanks on, because a version may stand where a target is missing.
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'\n' if target == b'/' || known && has(&rest[..at], b"://") => return First::Http,
            b'\n' => return First::Opaque,
            b'/' if version(&rest[..at]) => return First::Http,
            0..=0x1f | 0x7f if !blank(*byte) && known => return First::Http,
            0..=0x1f | 0x7f if !blank(*byte) => return First::Opaque,
            _ => {}
        }
    }
    First::More
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

/// A character that a method may have (RFC 9110, 5.6.2).
fn token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
