//! What must hold of any bytes that a sandbox sends to the gateway. Shared by the properties of this crate and the fuzz
//! targets; panics where something does not hold.

use cofferdam_egress::first::{self, First};
use cofferdam_egress::hello::{self, Hello, Read};
use cofferdam_egress::socks::{self, Asked, Greeting, Progress, Request};

/// Beginnings to be tried: all of them of what is short, some of what is long.
fn beginnings(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let step = (bytes.len() / 512).max(1);
    (0..bytes.len()).filter(move |end| *end < 64 || end % step == 0)
}

/// A TLS greeting: what is read needs all of what was read, stays whatever follows, and is the same in other records.
pub fn hello(bytes: &[u8]) {
    let read = hello::read(bytes);
    match &read {
        Read::More => assert!(bytes.len() < hello::MOST, "a greeting that is too long is waited for"),
        Read::Bad(why) => assert!(!why.is_empty()),
        Read::Hello(hello) => assert_hello(bytes, hello),
    }
    // A beginning is undecided, or the same already.
    for end in beginnings(bytes) {
        let earlier = hello::read(&bytes[..end]);
        assert!(earlier == Read::More || earlier == read, "{earlier:?} at {end}, then {read:?}");
    }
    if read != Read::More {
        assert_eq!(hello::read(&[bytes, b"\x16\x03\x01\0\x05"].concat()), read);
    }
    if matches!(read, Read::Hello(_)) {
        assert_eq!(first::classify(bytes), First::Tls);
    }
}

fn assert_hello(bytes: &[u8], hello: &Hello) {
    if let Some(name) = &hello.server_name {
        assert!(!name.is_empty() && name.len() <= 253, "{name:?}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte)));
        assert!(!name.ends_with('.') && name.parse::<std::net::IpAddr>().is_err(), "{name:?}");
    }
    // In one record, and in two.
    let message = unwrapped(bytes);
    if let Some(name) = &hello.server_name {
        assert!(
            message.windows(name.len()).any(|part| part.eq_ignore_ascii_case(name.as_bytes())),
            "{name:?} from where?"
        );
    }
    let halves = message.split_at(message.len() / 2);
    for pieces in [vec![&message[..]], vec![halves.0, halves.1]] {
        if pieces.iter().all(|piece| piece.len() <= 1 << 14) {
            assert_eq!(hello::read(&records(&pieces)), Read::Hello(hello.clone()));
        }
    }
}

/// Those pieces of a message, each in a record.
pub fn records(pieces: &[&[u8]]) -> Vec<u8> {
    let record = |piece: &&[u8]| {
        let length = u16::try_from(piece.len()).expect("it fits").to_be_bytes();
        [&[22, 3, 1][..], &length, piece].concat()
    };
    pieces.iter().flat_map(record).collect()
}

/// The message in the records that a greeting consists of.
pub fn unwrapped(bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut rest = bytes;
    while message.len() < 4 || message.len() < 4 + u32::from_be_bytes([0, message[1], message[2], message[3]]) as usize
    {
        let (piece, after) = rest[5..].split_at(u16::from_be_bytes([rest[3], rest[4]]).into());
        message.extend_from_slice(piece);
        rest = after;
    }
    message
}

/// First bytes: decided once and for all, and in time; and never opaque what a server takes for TLS or HTTP.
pub fn first(bytes: &[u8]) {
    let whole = first::classify(bytes);
    assert!(whole != First::More || bytes.len() < first::MOST);
    for end in beginnings(bytes) {
        let earlier = first::classify(&bytes[..end]);
        assert!(earlier == First::More || earlier == whole, "{earlier:?} at {end}, then {whole:?}");
    }
    let line = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    if whole == First::Opaque {
        assert!(!bytes.starts_with(b"\x16\x03"));
        let words: Vec<&[u8]> = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).collect();
        if let [method, .., version] = words[..] {
            // RFC 9112, 3: a method is a token. Characters that are in none end the question earlier.
            let plain = line.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
            let token = method.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte));
            assert!(!(plain && token && version.starts_with(b"HTTP/")), "{:?}", String::from_utf8_lossy(line));
            assert_ne!(method, b"GET");
        }
    }
}

/// Everything of SOCKS: what is read is what was taken, whatever follows; and every beginning of that needs more.
pub fn socks(bytes: &[u8]) {
    let asked = |asked: &Asked| {
        if let Asked::Host(host) = asked {
            assert!((1..=255).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_graphic()), "{host:?}");
        }
    };
    same(bytes, socks::greeting, |greeting| match greeting {
        Greeting::Version4 { to, .. } => asked(to),
        Greeting::Methods(_) => {}
    });
    same(bytes, socks::password, |()| {});
    same(bytes, socks::request, |request| match request {
        Request::Connect { to, .. } => asked(to),
        Request::Refused(reply, why) => assert!(!why.is_empty() && *reply as u8 >= 7),
    });
}

fn same<T: PartialEq + std::fmt::Debug>(bytes: &[u8], read: fn(&[u8]) -> Progress<T>, holds: impl Fn(&T)) {
    let progress = read(bytes);
    if let Progress::Done(done, taken) = &progress {
        holds(done);
        assert!((1..=bytes.len()).contains(taken), "{taken} of {}", bytes.len());
        assert_eq!(read(&bytes[..*taken]), progress);
        assert_eq!(read(&bytes[..taken - 1]), Progress::More);
    }
    for end in beginnings(bytes) {
        let earlier = read(&bytes[..end]);
        assert!(earlier == Progress::More || earlier == progress, "{earlier:?} at {end}, then {progress:?}");
    }
}
