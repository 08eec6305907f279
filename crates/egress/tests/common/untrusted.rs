//! Invariants of any bytes that a sandbox sends to the gateway. Shared by the properties of this crate and the fuzz
//! targets; panics if one is violated.

use std::net::IpAddr;

use cofferdam_egress::client_hello::{self, ClientHello, HelloParse};
use cofferdam_egress::dns::{self, Transport, Zone};
use cofferdam_egress::event::NetworkReason;
use cofferdam_egress::first_bytes::{self, FirstBytes};
use cofferdam_egress::first_line::FirstLine;
use cofferdam_egress::greeting_watch::{ClientFlight, HelloAnswer, ServerFlight, WatchStep};
use cofferdam_egress::host_name::Name;
use cofferdam_egress::names::{self, Family, SyntheticAddresses};
use cofferdam_egress::refusal::EgressRefusal;
use cofferdam_egress::socks::{self, Destination, Greeting, SocksProgress, SocksRequest};

/// Prefixes to be tried: all of a short message, some of a long one.
fn beginnings(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let step = (bytes.len() / 512).max(1);
    (0..bytes.len()).filter(move |end| *end < 64 || end % step == 0)
}

/// A ClientHello: the result needs every byte of it, does not depend on what follows, and is the same in other records.
pub(crate) fn hello(bytes: &[u8]) {
    let read = client_hello::read(bytes);
    match &read {
        HelloParse::More => assert!(bytes.len() < client_hello::MOST, "a greeting that is too long is waited for"),
        HelloParse::Bad(why) => assert!(!why.is_empty()),
        HelloParse::Hello(hello) => assert_hello(bytes, hello),
    }
    // A prefix is undecided, or has the same result already.
    for end in beginnings(bytes) {
        let earlier = client_hello::read(&bytes[..end]);
        assert!(earlier == HelloParse::More || earlier == read, "{earlier:?} at {end}, then {read:?}");
    }
    if read != HelloParse::More {
        assert_eq!(client_hello::read(&[bytes, b"\x16\x03\x01\0\x05"].concat()), read);
    }
    if matches!(read, HelloParse::Hello(_)) {
        assert_eq!(first_bytes::classify(bytes), FirstBytes::Tls);
    }
}

fn assert_hello(bytes: &[u8], hello: &ClientHello) {
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
            assert_eq!(client_hello::read(&records(&pieces)), HelloParse::Hello(hello.clone()));
        }
    }
}

/// What a server and a client send after a ClientHello: the byte 0xff ends the server's part, if there is one. The result
/// does not depend on how either arrives, and nothing passes that is neither judged nor of another kind.
pub(crate) fn second_hello(bytes: &[u8]) {
    let (sent, client) = match bytes.iter().position(|byte| *byte == 0xff) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (&bytes[..0], bytes),
    };
    let mut server = ServerFlight::default();
    server.read(sent);
    let mut slowly = ServerFlight::default();
    sent.iter().for_each(|byte| slowly.read(&[*byte]));
    for hellos in 1..4 {
        assert_eq!(server.answer(hellos), slowly.answer(hellos));
    }
    let (passed, hellos, end) = watched(&mut ClientFlight::default(), client, &server);
    let mut watch = ClientFlight::default();
    let (mut at, mut found, mut last) = (0, 0, Ok(WatchStep::More));
    for so_far in 0..=client.len() {
        let (more, names, step) = watched(&mut watch, &client[at..so_far], &server);
        (at, found, last) = (at + more, found + names, step);
        if last != Ok(WatchStep::More) {
            break;
        }
    }
    assert_eq!((at, found, &last), (passed, hellos, &end));
    if end == Ok(WatchStep::Done) {
        assert_eq!(server.answer(hellos as u32 + 1), HelloAnswer::Hello);
    }
    let mut rest = &client[..passed];
    let mut judged = 0;
    while let [kind, 3, _, high, low, ..] = rest {
        let length = match client_hello::measured(rest) {
            Ok(Some((_, length))) if *kind == 22 => {
                judged += 1;
                length
            }
            _ => {
                assert!(matches!(kind, 20 | 21 | 23 | 24), "{kind}");
                5 + usize::from(u16::from_be_bytes([*high, *low]))
            }
        };
        rest = &rest[length.min(rest.len())..];
    }
    assert!(rest.is_empty() && judged == hellos);
}

fn watched(
    watch: &mut ClientFlight,
    bytes: &[u8],
    server: &ServerFlight,
) -> (usize, usize, Result<WatchStep, &'static str>) {
    let (mut at, mut hellos) = (0, 0);
    loop {
        match watch.step(&bytes[at..], server) {
            Ok(WatchStep::Pass(count)) => at += count,
            Ok(WatchStep::Hello(_, length)) => (at, hellos) = (at + length, hellos + 1),
            end => return (at, hellos, end),
        }
    }
}

/// Those pieces of a message, each in a record.
pub(crate) fn records(pieces: &[&[u8]]) -> Vec<u8> {
    let record = |piece: &&[u8]| {
        let length = u16::try_from(piece.len()).expect("it fits").to_be_bytes();
        [&[22, 3, 1][..], &length, piece].concat()
    };
    pieces.iter().flat_map(record).collect()
}

/// The message in the records that a greeting consists of.
pub(crate) fn unwrapped(bytes: &[u8]) -> Vec<u8> {
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

/// First bytes: the decision is final and in time, and what a server takes for TLS or HTTP is never opaque.
pub(crate) fn first(bytes: &[u8]) {
    let whole = first_bytes::classify(bytes);
    assert!(whole != FirstBytes::More || bytes.len() < first_bytes::MOST);
    for end in beginnings(bytes) {
        let earlier = first_bytes::classify(&bytes[..end]);
        assert!(earlier == FirstBytes::More || earlier == whole, "{earlier:?} at {end}, then {whole:?}");
    }
    let line = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    if whole == FirstBytes::Opaque {
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
    let mut watched = FirstLine::default();
    let found = watched.read(bytes).is_err();
    let mut slowly = FirstLine::default();
    assert_eq!(bytes.iter().any(|byte| slowly.read(&[*byte]).is_err()), found);
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let ended = lines.find(|line| !line.trim_ascii().is_empty()).is_some_and(|line| line.ends_with(b"\n"));
    if whole == FirstBytes::Opaque && ended {
        let words: Vec<&[u8]> = line
            .split(|byte| matches!(byte, 9 | 11..=13 | 28..=32 | 0x85 | 0xa0))
            .filter(|word| !word.is_empty())
            .collect();
        if let [_, .., version] = words[..]
            && version.to_ascii_uppercase().starts_with(b"HTTP/")
        {
            assert!(found, "{:?}", String::from_utf8_lossy(line));
        }
    }
}

/// SOCKS messages: the result does not depend on what follows, and every prefix needs more bytes.
pub(crate) fn socks(bytes: &[u8]) {
    let asked = |asked: &Destination| {
        if let Destination::Host(host) = asked {
            assert!((1..=255).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_graphic()), "{host:?}");
        }
    };
    same(bytes, socks::greeting, |greeting| match greeting {
        Greeting::Version4 { to, .. } => asked(to),
        Greeting::Methods(_) => {}
    });
    same(bytes, socks::password, |()| {});
    same(bytes, socks::request, |request| match request {
        SocksRequest::Connect { to, .. } => asked(to),
        SocksRequest::Refused(reply, why) => assert!(!why.is_empty() && *reply as u8 >= 7),
    });
}

fn same<T: PartialEq + std::fmt::Debug>(bytes: &[u8], read: fn(&[u8]) -> SocksProgress<T>, holds: impl Fn(&T)) {
    let progress = read(bytes);
    if let SocksProgress::Done(done, taken) = &progress {
        holds(done);
        assert!((1..=bytes.len()).contains(taken), "{taken} of {}", bytes.len());
        assert_eq!(read(&bytes[..*taken]), progress);
        assert_eq!(read(&bytes[..taken - 1]), SocksProgress::More);
    }
    for end in beginnings(bytes) {
        let earlier = read(&bytes[..end]);
        assert!(earlier == SocksProgress::More || earlier == progress, "{earlier:?} at {end}, then {progress:?}");
    }
}

/// Allows what ends in `.example`.
pub(crate) struct Inside {
    names: SyntheticAddresses,
    refused: usize,
}

impl Inside {
    /// Knows one name.
    pub(crate) fn new() -> Inside {
        let mut names = SyntheticAddresses::new(16);
        names.address(&Name::parse(b"known.example").expect("a name"), Family::V4).expect("room");
        Inside { names, refused: 0 }
    }
}

impl Zone for Inside {
    fn address(&mut self, name: &Name, family: Family) -> Result<IpAddr, EgressRefusal> {
        let reason = match name.as_str().ends_with(".example") {
            true => match self.names.address(name, family) {
                Ok(address) => return Ok(address),
                Err(_) => NetworkReason::TooManyNames,
            },
            false => NetworkReason::NotAllowed,
        };
        Err(EgressRefusal { reason, rule: None, detail: None, address: None })
    }

    fn reverse(&self, address: IpAddr) -> Option<Name> {
        self.names.lookup(address).cloned()
    }

    fn refused(&mut self, text: String, _: EgressRefusal) {
        assert!(text.len() <= 1024 && text.bytes().all(|byte| byte.is_ascii_graphic()), "{text:?}");
        self.refused += 1;
    }
}

/// A query: its answer is well-formed, no longer than a datagram, with addresses of allowed names only; and each
/// refusal is reported once.
pub(crate) fn dns(bytes: &[u8]) {
    let mut inside = Inside::new();
    let answer = dns::answer(bytes, Transport::Udp, &mut inside);
    let mut again = Inside::new();
    assert_eq!(dns::answer(bytes, Transport::Tcp, &mut again), answer, "nothing is so long that it would be cut");
    assert_eq!(again.refused, inside.refused);
    let answers_itself = bytes.len() < 12 || bytes[2] & 0x80 != 0;
    assert_eq!(answer.is_none(), answers_itself);
    assert_eq!(
        dns::framed(&dns::frame(&bytes[..bytes.len().min(65535)])).map(|framed| framed.0.len()),
        Some(bytes.len().min(65535))
    );
    let Some(answer) = answer else { return };
    assert!(answer.len() <= 512);
    assert_eq!(answer[..2], bytes[..2]);
    assert_eq!(answer[2] & 0xfb, bytes[2] & 0x79 | 0x80, "an answer to that operation, not authoritative, not cut");
    assert_eq!(dns::answer(&answer, Transport::Udp, &mut inside), None, "answers are not answered");
    let code = answer[3] & 15;
    // No prefix of a well-formed query is well-formed.
    if answer.len() > 12 {
        for end in 12..bytes.len().min(600) {
            let cut = dns::answer(&bytes[..end], Transport::Udp, &mut Inside::new()).expect("it has a header");
            assert_eq!((cut.len(), cut[3] & 15), (12, 1), "{end}");
        }
        let mut end = 12;
        while bytes[end] != 0 {
            end += 1 + usize::from(bytes[end]);
        }
        end += 5;
        assert_eq!(answer[12..end], bytes[12..end], "the question as it came");
        assert_records(&answer, end, &inside.names);
    } else {
        assert!(code == 1 || code == 4, "{code}");
        assert_eq!(inside.refused, 1);
    }
    if matches!(code, 2 | 5) {
        assert_eq!(inside.refused, 1);
    }
}

/// The records behind the question: whole, of the question's name or the root, and addresses that stand for something.
fn assert_records(answer: &[u8], mut at: usize, known: &SyntheticAddresses) {
    let word = |at: usize| u16::from_be_bytes([answer[at], answer[at + 1]]);
    for _ in 0..word(6) + word(8) + word(10) {
        at += match answer[at] {
            0 => 1,
            _ => {
                assert_eq!(word(at), 0xc00c);
                2
            }
        };
        let (kind, length) = (word(at), usize::from(word(at + 8)));
        let data = &answer[at + 10..at + 10 + length];
        let address = match kind {
            1 => Some(IpAddr::from(<[u8; 4]>::try_from(data).expect("four bytes"))),
            28 => Some(IpAddr::from(<[u8; 16]>::try_from(data).expect("sixteen bytes"))),
            6 | 12 | 41 => None,
            other => panic!("a record of type {other}"),
        };
        if let Some(address) = address {
            assert!(address.is_loopback() || names::synthetic(address) && known.lookup(address).is_some(), "{address}");
        }
        at += 10 + length;
    }
    assert_eq!(at, answer.len(), "nothing behind them");
}
