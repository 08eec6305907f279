//! Queries as clients send them, and the answers, parsed by another implementation (hickory-proto) wherever it can.

use hickory_proto::op::{Edns as TheirEdns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name as TheirName, RData, RecordType};

use super::*;
use crate::decide::synthetic_addresses::{SyntheticAddresses, reverse_name};

/// Allows names that end in `.example`, and only a few of them.
struct Inside {
    names: SyntheticAddresses,
    refusals: Vec<(String, NetworkReason)>,
    only_v4: bool,
}

fn inside() -> Inside {
    Inside { names: SyntheticAddresses::new(3), refusals: Vec::new(), only_v4: false }
}

impl Zone for Inside {
    fn address(&mut self, name: &Name, family: Family) -> Result<IpAddr, EgressRefusal> {
        let family = if self.only_v4 { Family::V4 } else { family };
        match name.as_str().ends_with(".example") {
            true => self
                .names
                .address(name, family)
                .map_err(|full| EgressRefusal::because(NetworkReason::TooManyNames, full.to_string())),
            false => Err(EgressRefusal::because(NetworkReason::NotAllowed, "")),
        }
    }

    fn reverse(&self, address: IpAddr) -> Option<Name> {
        self.names.lookup(address).cloned()
    }

    fn refused(&mut self, text: String, refusal: EgressRefusal) {
        self.refusals.push((text, refusal.reason));
    }
}

/// A query as bytes: flags, labels, type, class, and what follows the question with its count.
fn query(name: &str, kind: u16) -> Vec<u8> {
    let labels: Vec<&[u8]> = name.split('.').filter(|label| !label.is_empty()).map(str::as_bytes).collect();
    raw(RD, &labels, kind, 1, &[], 0)
}

fn raw(flags: u16, labels: &[&[u8]], kind: u16, class: u16, after: &[u8], additional: u16) -> Vec<u8> {
    let mut bytes = vec![0xab, 0xcd];
    [flags, 1, 0, 0, additional].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    for label in labels {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label);
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(class.to_be_bytes());
    bytes.extend(after);
    bytes
}

fn with_opt(name: &str, kind: u16, size: u16, version: u8, options: &[u8]) -> Vec<u8> {
    let mut bytes = query(name, kind);
    bytes[11] = 1;
    bytes.extend([0, 0, 41]);
    bytes.extend(size.to_be_bytes());
    bytes.extend([0, version, 0x80, 0]);
    bytes.extend((options.len() as u16).to_be_bytes());
    bytes.extend(options);
    bytes
}

fn udp(inside: &mut Inside, query: &[u8]) -> Message {
    let answer = answer(query, Transport::Udp, inside).expect("it is answered");
    assert!(answer.len() <= SHORT);
    let message = Message::from_vec(&answer).expect("another implementation reads it");
    assert_eq!(message.metadata.id, 0xabcd);
    message
}

fn code(message: &Message) -> u16 {
    message.metadata.response_code.into()
}

fn ips(message: &Message) -> Vec<IpAddr> {
    let of = |data: &RData| match data {
        RData::A(address) => IpAddr::V4(address.0),
        RData::AAAA(address) => IpAddr::V6(address.0),
        other => panic!("{other:?}"),
    };
    message.answers.iter().map(|record| of(&record.data)).collect()
}

/// An SOA that allows only short caching.
fn assert_denial(message: &Message) {
    assert!(message.answers.is_empty());
    let [record] = &message.authorities[..] else { panic!("{message}") };
    let RData::SOA(soa) = &record.data else { panic!("{record}") };
    assert!(record.name.is_root() && record.ttl == DENIAL && soa.minimum == DENIAL);
}

fn v4(text: &str) -> Vec<IpAddr> {
    vec![text.parse().unwrap()]
}

#[test]
fn addresses_of_allowed_names_are_synthetic() {
    let mut inside = inside();
    let message = udp(&mut inside, &query("a.example", A));
    assert_eq!((code(&message), ips(&message)), (NOERROR, v4("198.18.0.1")));
    assert!(message.answers.iter().all(|record| record.ttl == TTL && record.name.to_string() == "a.example."));
    assert!(message.metadata.recursion_available && message.metadata.recursion_desired);
    assert!(!message.metadata.authentic_data && !message.metadata.truncation);
    assert_eq!(ips(&udp(&mut inside, &query("a.example", AAAA))), v4("fd63:6f66:6665:7264::1"));
    assert_eq!(ips(&udp(&mut inside, &query("b.example.", A))), v4("198.18.0.2"));
    assert_eq!(
        ips(&udp(&mut inside, &query("a.example", ANY))),
        [v4("198.18.0.1"), v4("fd63:6f66:6665:7264::1")].concat()
    );
    assert_eq!(inside.refusals, []);
}

#[test]
fn the_question_is_repeated_unchanged() {
    let mut inside = inside();
    let asked = query("rEgiStry.ExaMPLE", A);
    let answer = answer(&asked, Transport::Udp, &mut inside).unwrap();
    assert_eq!(answer[12..asked.len()], asked[12..]);
    assert_eq!(ips(&Message::from_vec(&answer).unwrap()), v4("198.18.0.1"));
    assert_eq!(ips(&udp(&mut inside, &query("registry.example", A))), v4("198.18.0.1"));
}

#[test]
fn other_types_of_allowed_names_are_empty() {
    let mut inside = inside();
    for kind in [64, 65, 33, PTR, 16, 15, 2, SOA, 5, 43, 257, 35, 65280] {
        let message = udp(&mut inside, &query("a.example", kind));
        assert_eq!(code(&message), NOERROR, "{kind}");
        assert_denial(&message);
    }
    for (name, kind) in [("_xmpp-client._tcp.a.example", 33), ("_8443._https.a.example", 65), ("_dmarc.a.example", 16)]
    {
        let message = udp(&mut inside, &query(name, kind));
        assert_eq!(code(&message), NOERROR, "{name}");
        assert_denial(&message);
    }
    assert_eq!((inside.names.len(), inside.refusals), (1, vec![]));
}

#[test]
fn other_names_do_not_exist_and_are_reported() {
    let mut inside = inside();
    for (name, kind, refusals) in [
        ("evil.test", A, "evil.test"),
        ("Evil.TEST", AAAA, "evil.test"),
        ("evil.test", 65, "evil.test"),
        ("_ldap._tcp.evil.test", 33, "evil.test"),
        ("_ldap._tcp", 33, "_ldap._tcp"),
        ("example", A, "example"),
        ("a.example.evil.test", A, "a.example.evil.test"),
        ("x.in-addr.arpa", PTR, "x.in-addr.arpa"),
        ("com", 2, "com"),
    ] {
        let message = udp(&mut inside, &query(name, kind));
        assert_eq!(code(&message), NXDOMAIN, "{name}");
        assert_denial(&message);
        assert_eq!(inside.refusals.pop().unwrap().0, refusals);
    }
    assert!(inside.names.is_empty());
}

#[test]
fn invalid_names_do_not_exist_and_are_reported() {
    for (labels, refusals) in [
        (vec![&b"a.b"[..], b"example"], "a\\046b.example"),
        (vec![b"a\0", b"example"], "a\\000.example"),
        (vec![b"a b\\", b"example"], "a\\032b\\092.example"),
        (vec![b"\xff", b"example"], "\\255.example"),
        (vec![b"10", b"1"], "10.1"),
        (vec![b"-a", b"example"], "-a.example"),
        (vec![b"*", b"example"], "*.example"),
    ] {
        let mut inside = inside();
        assert_eq!(code(&udp(&mut inside, &raw(RD, &labels, A, 1, &[], 0))), NXDOMAIN, "{refusals}");
        assert_eq!(inside.refusals, [(refusals.to_owned(), NetworkReason::BadName)]);
        assert!(inside.names.is_empty());
    }
}

#[test]
fn names_beyond_the_limit_get_servfail() {
    let mut inside = inside();
    for name in ["a.example", "b.example", "c.example"] {
        assert_eq!(code(&udp(&mut inside, &query(name, A))), NOERROR);
    }
    let message = udp(&mut inside, &query("d.example", A));
    assert_eq!((code(&message), message.answers.len(), message.authorities.len()), (SERVFAIL, 0, 0));
    assert_eq!(code(&udp(&mut inside, &query("e.example", 16))), SERVFAIL);
    assert_eq!(code(&udp(&mut inside, &query("a.example", A))), NOERROR);
    let refusals = |name: &str| (name.to_owned(), NetworkReason::TooManyNames);
    assert_eq!(inside.refusals, [refusals("d.example"), refusals("e.example")]);
}

#[test]
fn a_missing_address_family_is_empty() {
    let mut inside = Inside { only_v4: true, ..inside() };
    assert_eq!(ips(&udp(&mut inside, &query("a.example", A))), v4("198.18.0.1"));
    let message = udp(&mut inside, &query("a.example", AAAA));
    assert_eq!(code(&message), NOERROR);
    assert_denial(&message);
    assert_eq!(ips(&udp(&mut inside, &query("a.example", ANY))), v4("198.18.0.1"));
}

#[test]
fn localhost_is_the_sandbox_itself() {
    let mut inside = inside();
    for name in ["localhost", "LOCALHOST.", "a.localhost"] {
        assert_eq!(ips(&udp(&mut inside, &query(name, A))), v4("127.0.0.1"));
        assert_eq!(ips(&udp(&mut inside, &query(name, AAAA))), v4("::1"));
        assert_denial(&udp(&mut inside, &query(name, 16)));
    }
    assert_eq!(code(&udp(&mut inside, &query("notlocalhost", A))), NXDOMAIN);
}

#[test]
fn reverse_lookups_of_synthetic_addresses_are_answered() {
    let mut inside = inside();
    udp(&mut inside, &query("a.example", A));
    let pointer = |message: Message| match &message.answers[..] {
        [record] => match &record.data {
            RData::PTR(name) => Some(name.0.to_string()),
            other => panic!("{other:?}"),
        },
        _ => None,
    };
    for address in ["198.18.0.1", "fd63:6f66:6665:7264::1"] {
        let asked = query(&reverse_name(address.parse().unwrap()).to_ascii_uppercase(), PTR);
        assert_eq!(pointer(udp(&mut inside, &asked)), Some("a.example.".to_owned()));
    }
    for address in ["127.0.0.1", "127.1.2.3", "::1"] {
        let asked = query(&reverse_name(address.parse().unwrap()), PTR);
        assert_eq!(pointer(udp(&mut inside, &asked)), Some("localhost.".to_owned()));
    }
    for address in ["198.18.0.2", "192.0.2.1", "2001:db8::1"] {
        let message = udp(&mut inside, &query(&reverse_name(address.parse().unwrap()), PTR));
        assert_eq!(code(&message), NXDOMAIN);
        assert_denial(&message);
    }
    let message = udp(&mut inside, &query("1.0.18.198.in-addr.arpa", A));
    assert_eq!(code(&message), NOERROR);
    assert_denial(&message);
    assert_eq!(inside.refusals, []);
}

#[test]
fn the_root_exists_and_is_empty() {
    let mut inside = inside();
    let message = udp(&mut inside, &query("", 2));
    assert_eq!(code(&message), NOERROR);
    assert_denial(&message);
}

#[test]
fn queries_of_another_implementation_are_answered() {
    let mut inside = inside();
    let mut message = Message::new(0xabcd, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(TheirName::from_ascii("a.example.").unwrap(), RecordType::A));
    assert_eq!(ips(&udp(&mut inside, &message.to_vec().unwrap())), v4("198.18.0.1"));
    let mut edns = TheirEdns::new();
    edns.set_max_payload(4096).set_dnssec_ok(true);
    message.set_edns(edns);
    let answer = udp(&mut inside, &message.to_vec().unwrap());
    assert_eq!(ips(&answer), v4("198.18.0.1"));
    let edns = answer.edns.expect("an OPT record for one");
    assert_eq!((usize::from(edns.max_payload()), edns.version(), edns.flags().dnssec_ok), (LONG, 0, true));
    message.metadata.op_code = OpCode::Update;
    message.edns = None;
    assert_eq!(udp(&mut inside, &message.to_vec().unwrap()).metadata.response_code, ResponseCode::NotImp);
}

#[test]
fn edns_is_read_to_the_byte() {
    let mut inside = inside();
    for options in [&b""[..], b"\0\x0a\0\x08cookies!", b"\0\x0c\0\0\0\x0c\0\x01x"] {
        let message = udp(&mut inside, &with_opt("a.example", A, 4096, 0, options));
        assert_eq!((code(&message), ips(&message)), (NOERROR, v4("198.18.0.1")));
        assert!(message.edns.is_some());
    }
    for options in [&b"\0"[..], b"\0\x0a\0", b"\0\x0a\0\x08cookies", b"\0\x0a\0\0\0"] {
        assert_eq!(code(&udp(&mut inside, &with_opt("a.example", A, 4096, 0, options))), FORMERR, "{options:?}");
    }
    let message = udp(&mut inside, &with_opt("a.example", A, 4096, 1, b""));
    assert_eq!((code(&message), message.answers.len()), (BADVERS, 0));
    let mut short = with_opt("a.example", A, 4096, 0, b"\0\x0c\0\0");
    short.pop();
    assert_eq!(code(&udp(&mut inside, &short)), FORMERR);
    let mut twice = with_opt("a.example", A, 4096, 0, b"");
    let opt = twice[twice.len() - 11..].to_vec();
    twice.extend(opt);
    assert_eq!(code(&udp(&mut inside, &twice)), FORMERR);
    twice[11] = 2;
    assert_eq!(code(&udp(&mut inside, &twice)), FORMERR);
}

#[test]
fn classes_and_transfers_are_refused() {
    let mut inside = inside();
    for class in [0, 2, 3, 4, 254, 255] {
        let message = udp(&mut inside, &raw(RD, &[b"a", b"example"], A, class, &[], 0));
        assert_eq!((code(&message), message.queries[0].query_class()), (REFUSED, DNSClass::from(class)), "{class}");
    }
    for kind in [AXFR, IXFR] {
        assert_eq!(code(&udp(&mut inside, &query("a.example", kind))), REFUSED);
    }
    assert_eq!(inside.refusals.len(), 8);
    assert!(inside.refusals.iter().all(|refusals| *refusals == ("a.example".to_owned(), NetworkReason::BadQuery)));
}

#[test]
fn malformed_queries_get_a_header_alone() {
    let good = query("a.example", A);
    let mut cases: Vec<Vec<u8>> = (12..good.len()).map(|end| good[..end].to_vec()).collect();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    // Questions none or two, answers, authorities, additional records, cut; lengths that go beyond.
    cases.extend(
        [(5, 0), (5, 2), (4, 1), (7, 1), (9, 1), (11, 1), (11, 2), (10, 0xff), (2, 3)].map(|(at, b)| changed(at, b)),
    );
    cases.extend([(12, 64), (12, 0x80), (12, 0xff), (14, 63), (22, 1)].map(|(at, byte)| changed(at, byte)));
    // A pointer to itself, to the header, and behind a label; and bytes after the end.
    cases.push([&good[..12], b"\xc0\x0c\0\x01\0\x01"].concat());
    cases.push([&good[..12], b"\xc0\x00\0\x01\0\x01"].concat());
    cases.push([&good[..12], b"\x01a\xc0\x0c\0\x01\0\x01"].concat());
    cases.push([&good[..], &[0]].concat());
    let labels: Vec<&[u8]> = vec![&[b'a'; 63]; 4];
    cases.push(raw(RD, &labels, A, 1, &[], 0));
    for case in cases {
        let mut inside = inside();
        let answer = answer(&case, Transport::Udp, &mut inside).unwrap_or_else(|| panic!("{case:?}"));
        assert_eq!(answer.len(), 12, "{case:?}");
        assert_eq!(answer[..2], case[..2]);
        assert_eq!((answer[3] & 15, &answer[4..]), (FORMERR as u8, &[0; 8][..]), "{case:?}");
        assert_eq!(inside.refusals, [(String::new(), NetworkReason::BadQuery)]);
    }
    assert_eq!(code(&udp(&mut inside(), &good)), NOERROR);
    let longest: Vec<&[u8]> = vec![&[b'a'; 63], &[b'a'; 63], &[b'a'; 63], &[b'a'; 53], b"example"];
    assert_eq!(code(&udp(&mut inside(), &raw(RD, &longest, A, 1, &[], 0))), NOERROR);
}

#[test]
fn no_answer_to_short_messages_and_answers() {
    let good = query("a.example", A);
    for end in 0..12 {
        assert_eq!(answer(&good[..end], Transport::Udp, &mut inside()), None);
    }
    let own = answer(&good, Transport::Udp, &mut inside()).unwrap();
    assert_eq!(answer(&own, Transport::Udp, &mut inside()), None);
}

#[test]
fn other_operations_are_not_implemented() {
    for operation in 1..16u16 {
        let mut inside = inside();
        let answer = answer(&raw(operation << 11, &[b"a"], A, 1, &[], 0), Transport::Udp, &mut inside).unwrap();
        assert_eq!((answer.len(), answer[3] & 15), (12, NOTIMP as u8));
        assert_eq!(inside.refusals, [(String::new(), NetworkReason::BadQuery)]);
    }
}

#[test]
fn an_answer_that_is_too_long_is_truncated() {
    let bytes = with_opt("a.example", A, 4096, 0, b"");
    let asked = read(&bytes[12..], [1, 0, 0, 1], 0).unwrap();
    let records = || vec![DnsRecord::Address("198.18.0.1".parse().unwrap())];
    let whole = write(7, 0, &asked, NOERROR, &records(), SHORT);
    assert_eq!(write(7, 0, &asked, NOERROR, &records(), whole.len()), whole);
    let cut = Message::from_vec(&write(7, 0, &asked, NOERROR, &records(), whole.len() - 1)).unwrap();
    assert!(cut.metadata.truncation && cut.answers.is_empty() && cut.edns.is_some());
    assert_eq!(cut.queries.len(), 1);
}

#[test]
fn messages_in_a_stream_are_framed() {
    let asked = query("a.example", A);
    let stream = [frame(&asked), frame(&asked)].concat();
    let size = asked.len() + 2;
    assert_eq!(framed(&stream), Some((&asked[..], size)));
    assert_eq!(framed(&stream[size..]), Some((&asked[..], size)));
    for end in 0..size {
        assert_eq!(framed(&stream[..end]), None);
    }
    assert_eq!(framed(&[0, 0, 1]), Some((&[][..], 2)));
    assert_eq!(answer(&[], Transport::Tcp, &mut inside()), None);
    let answer = answer(&asked, Transport::Tcp, &mut inside()).unwrap();
    assert_eq!(framed(&frame(&answer)), Some((&answer[..], answer.len() + 2)));
}
