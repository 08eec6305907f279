//! Invariants of any bytes that a client sends as HTTP. Shared by the properties of this crate and the fuzz targets;
//! panics if one is violated. Has a simple parser of its own.

use cofferdam_egress::http::authority::Authority;
use cofferdam_egress::http::framing::{FramingStep, RequestFraming};
use cofferdam_egress::http::request_head::{self, HeadFault, HeadSearch};
use cofferdam_egress::rules::EgressTarget;

/// Everything that passes when bytes come in pieces of this size, with the fault at which it ends. Upgrades and tunnels
/// are never granted.
fn passed(bytes: &[u8], piece: usize) -> (Vec<u8>, Option<HeadFault>, u64) {
    let mut framing = RequestFraming::default();
    let mut out = Vec::new();
    for mut bytes in bytes.chunks(piece) {
        while !bytes.is_empty() {
            let step = framing.step(bytes);
            match step {
                FramingStep::Pass(count) => {
                    assert!((1..=bytes.len()).contains(&count), "{step:?}");
                    out.extend_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                }
                FramingStep::Held(count) => {
                    assert!((1..=bytes.len()).contains(&count), "{step:?}");
                    bytes = &bytes[count..];
                    out.extend(framing.take().unwrap_or_default());
                }
                FramingStep::Wait => {
                    assert!(framing.is_upgrading());
                    framing.resume();
                }
                FramingStep::Fault(fault) => {
                    assert_eq!(framing.faulty(), Some(fault));
                    assert_eq!(framing.step(b"GET / HTTP/1.1\r\n"), step, "a fault is for good");
                    return (out, Some(fault), framing.heads());
                }
            }
        }
    }
    (out, None, framing.heads())
}

/// The bytes of a connection: what passes does not depend on how they are split, is a prefix of them, and consists of
/// unambiguous requests.
pub(crate) fn requests(bytes: &[u8]) {
    let whole = passed(bytes, bytes.len().max(1));
    for piece in [1, 2, 3, 7, 64] {
        assert_eq!(passed(bytes, piece), whole, "in pieces of {piece}");
    }
    let (passed, _, heads) = whole;
    assert!(bytes.starts_with(&passed));
    assert_eq!(plain(&passed), heads);
}

/// A single head, found and checked.
pub(crate) fn head(bytes: &[u8]) {
    let found = HeadSearch::default().end(bytes, request_head::MOST_BYTES);
    let mut search = HeadSearch::default();
    // In pieces, the same.
    let step = (bytes.len() / 64).max(1);
    let pieces = (0..=bytes.len()).filter(|end| end % step == 0).chain([bytes.len()]);
    let mut first = Ok(None);
    for end in pieces {
        first = search.end(&bytes[..end], request_head::MOST_BYTES);
        if first != Ok(None) {
            break;
        }
    }
    assert_eq!(first.is_ok(), found.is_ok(), "{first:?} {found:?}");
    if let Ok(Some(end)) = found {
        assert_eq!(first, found);
        if request_head::check(&bytes[..end]).is_ok() {
            plain_head(&bytes[..end]);
        }
    }
}

fn lines(head: &[u8]) -> Vec<&[u8]> {
    let text = head.strip_suffix(b"\r\n\r\n").expect("an empty line at the end");
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    lines.push(rest);
    lines
}

/// How long the body behind a head is; none where it has chunks.
fn plain_head(head: &[u8]) -> Option<usize> {
    let shown = String::from_utf8_lossy(head);
    assert!(head.len() <= request_head::MOST_BYTES);
    let lines = lines(head);
    assert!(lines.len() <= request_head::MOST_HEADERS + 1, "{shown:?}");
    for line in &lines {
        assert!(!line.iter().any(|byte| b"\r\n\0\x0b\x7f".contains(byte)), "{shown:?}");
    }
    let words: Vec<_> = lines[0].split(|byte| byte.is_ascii_whitespace()).collect();
    assert!(words.len() == 3 && !words[0].is_empty() && !words[1].is_empty(), "{shown:?}");
    assert!([b"HTTP/1.1", b"HTTP/1.0"].iter().any(|version| words[2] == *version), "{shown:?}");
    // Every spelling that some program takes for that name.
    let values = |name: &str| -> Vec<&[u8]> {
        let is = |line: &&&[u8]| {
            let plain: Vec<u8> = line
                .iter()
                .take_while(|byte| **byte != b':')
                .filter(|byte| byte.is_ascii_alphanumeric())
                .map(u8::to_ascii_lowercase)
                .collect();
            plain == name.replace('-', "").as_bytes()
        };
        lines[1..].iter().filter(is).map(|line| line.cut_at(|byte| *byte == b':').1.trim_ascii()).collect()
    };
    let (hosts, lengths, encodings) = (values("host"), values("content-length"), values("transfer-encoding"));
    let tunnel = words[0] == b"CONNECT";
    assert!(hosts.len() == 1 && !hosts[0].is_empty() || tunnel && hosts.len() <= 1, "{shown:?}");
    assert!(lengths.len() + encodings.len() <= 1, "{shown:?}");
    if let [encoding] = encodings[..] {
        assert!(encoding == b"chunked" && words[2] == b"HTTP/1.1", "{shown:?}");
        return None;
    }
    match lengths[..] {
        [length] => Some(std::str::from_utf8(length).expect("digits").parse().expect("a number")),
        _ => Some(0),
    }
}

trait CutAt {
    fn cut_at(&self, is: impl Fn(&u8) -> bool) -> (&[u8], &[u8]);
}

impl CutAt for &[u8] {
    fn cut_at(&self, is: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
        let at = self.iter().position(is).expect("a colon in each header");
        (&self[..at], &self[at + 1..])
    }
}

/// Reads requests, the last of which may be cut off in its body. How many there are.
fn plain(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while !bytes.is_empty() {
        let end =
            bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("whole heads pass, and nothing less") + 4;
        count += 1;
        let length = plain_head(&bytes[..end]);
        bytes = &bytes[end..];
        match length {
            Some(length) => bytes = bytes.get(length..).unwrap_or_default(),
            None => match plain_chunks(bytes) {
                Some(rest) => bytes = rest,
                None => break,
            },
        }
    }
    count
}

/// What stands behind the chunks; none where they are cut off.
fn plain_chunks(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let text = std::str::from_utf8(&bytes[..end]).expect("digits");
        assert!((1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text:?}");
        let size = usize::from_str_radix(text, 16).expect("a number");
        bytes = &bytes[end + 2..];
        if size == 0 {
            break;
        }
        bytes = bytes.get(size..)?;
        if bytes.len() < 2 {
            return None;
        }
        bytes = bytes.strip_prefix(b"\r\n").expect("a chunk ends where its size says");
    }
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let line = &bytes[..end];
        bytes = &bytes[end + 2..];
        if line.is_empty() {
            return Some(bytes);
        }
        let name = line.cut_at(|byte| *byte == b':').0.to_ascii_lowercase();
        assert!(![&b"host"[..], b"content-length", b"transfer-encoding"].contains(&&name[..]), "in trailers");
    }
}

/// `HOST:PORT` of CONNECT, Host and URLs: the result is what is written there.
pub(crate) fn authority(bytes: &[u8]) {
    let Ok(read) = Authority::parse(bytes) else { return };
    let shown = read.to_string();
    assert_eq!(Authority::parse(shown.as_bytes()), Ok(read.clone()), "{shown}");
    assert!(read.port != Some(0));
    let given = std::str::from_utf8(bytes).expect("text").to_ascii_lowercase();
    assert!(given.bytes().all(|byte| byte.is_ascii_graphic() && !b"@%/\\?#,;".contains(&byte)), "{given:?}");
    let (host, port) = match read.port {
        Some(port) => (given.strip_suffix(&format!(":{port}")).expect("its port at the end"), Some(port)),
        None => (&*given, None),
    };
    match &read.target {
        EgressTarget::Name(name) => {
            assert_eq!(host.strip_suffix('.').unwrap_or(host), name.as_str());
            assert!(!name.as_str().contains([':', '[', ']']) && name.as_str().parse::<std::net::IpAddr>().is_err());
        }
        EgressTarget::Address(address) if address.is_ipv4() => assert_eq!(host, address.to_string()),
        EgressTarget::Address(address) => {
            let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).expect("brackets");
            assert_eq!(inner.parse(), Ok(*address));
        }
    }
    assert_eq!(port, read.port);
}
