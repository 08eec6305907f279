//! ClientHellos of real clients, and each way in which one is refused, beside its allowed control.

use super::*;

/// A message that a real client sent: the fuzz targets begin with the same.
macro_rules! seed {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/seeds/hello/", $name))
    };
}

const BROWSER: &[u8] = seed!("browser-like");

fn named(name: &str) -> HelloParse {
    HelloParse::Hello(ClientHello { server_name: Some(name.into()), encrypted: false })
}

const NAMELESS: HelloParse = HelloParse::Hello(ClientHello { server_name: None, encrypted: false });

fn u16s(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap().to_be_bytes()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &u16s(body.len()), body].concat()
}

fn name_entry(kind: u8, name: &[u8]) -> Vec<u8> {
    [&[kind][..], &u16s(name.len()), name].concat()
}

fn names(entries: &[Vec<u8>]) -> Vec<u8> {
    let list = entries.concat();
    extension(0, &[&u16s(list.len())[..], &list].concat())
}

fn name(name: &[u8]) -> Vec<u8> {
    names(&[name_entry(0, name)])
}

/// The parts of a message, each to be changed.
struct Parts {
    kind: u8,
    version: [u8; 2],
    session: Vec<u8>,
    suites: Vec<u8>,
    compressions: Vec<u8>,
    extensions: Option<Vec<u8>>,
    after: Vec<u8>,
}

fn parts(extensions: &[Vec<u8>]) -> Parts {
    Parts {
        kind: 1,
        version: [3, 3],
        session: vec![7; 32],
        suites: vec![0x13, 1],
        compressions: vec![0],
        extensions: Some(extensions.concat()),
        after: Vec::new(),
    }
}

fn message(parts: &Parts) -> Vec<u8> {
    let mut body = [&parts.version[..], &[9; 32]].concat();
    body.push(parts.session.len() as u8);
    body.extend(&parts.session);
    body.extend(u16s(parts.suites.len()));
    body.extend(&parts.suites);
    body.push(parts.compressions.len() as u8);
    body.extend(&parts.compressions);
    if let Some(extensions) = &parts.extensions {
        body.extend(u16s(extensions.len()));
        body.extend(extensions);
    }
    body.extend(&parts.after);
    [&[parts.kind][..], &u32::try_from(body.len()).unwrap().to_be_bytes()[1..], &body].concat()
}

/// A message in records of that many bytes.
fn records(message: &[u8], most: usize) -> Vec<u8> {
    let record = |piece: &[u8]| [&[22, 3, 1][..], &u16s(piece.len()), piece].concat();
    message.chunks(most).flat_map(record).collect()
}

fn one(parts: &Parts) -> HelloParse {
    read(&records(&message(parts), MOST_RECORD))
}

fn bad(parts: &Parts) -> &'static str {
    match one(parts) {
        HelloParse::Bad(why) => why,
        read => panic!("{read:?}"),
    }
}

#[test]
fn client_hellos_of_real_clients_are_parsed() {
    for (bytes, name) in [
        (&seed!("python")[..], "api.example.com"),
        (seed!("python-tls12"), "api.example.com"),
        (seed!("python-idna"), "xn--bcher-kva.example"),
        (seed!("python-alpn"), "upper.example.com"),
        (seed!("openssl"), "api.example.com"),
        (seed!("openssl-tls12"), "api.example.com"),
        (seed!("openssl-fragments"), "api.example.com"),
        (seed!("curl"), "api.example.com"),
        (seed!("node"), "api.example.com"),
        (seed!("node-fetch"), "localhost"),
        (seed!("wget"), "localhost"),
        (seed!("git"), "localhost"),
        (seed!("java"), "api.example.com"),
        (BROWSER, "api.example.com"),
        (seed!("many-records"), "api.example.com"),
    ] {
        assert_eq!(read(bytes), named(name));
    }
    for bytes in [&seed!("python-no-name")[..], seed!("openssl-address"), seed!("no-extensions")] {
        assert_eq!(read(bytes), NAMELESS);
    }
}

#[test]
fn encrypted_client_hellos_are_detected() {
    let hidden = HelloParse::Hello(ClientHello { server_name: Some("api.example.com".into()), encrypted: true });
    assert_eq!(read(seed!("browser-like-ech")), hidden);
    assert_eq!(read(seed!("esni")), hidden);
    for kind in [0xfd00, 0xfe08, 0xfe09, 0xfe0a, 0xfe0b, 0xfe0c, 0xfe0d, 0xff02, 0xff03, 0xffce] {
        let hello = parts(&[extension(kind, &[]), name(b"api.example.com")]);
        assert_eq!(one(&hello), hidden, "{kind:#x}");
    }
    assert_eq!(one(&parts(&[extension(0xfe0e, &[]), name(b"api.example.com")])), named("api.example.com"));
}

#[test]
fn malformed_seeds_are_refused() {
    for bytes in [
        &seed!("bad-two-names")[..],
        seed!("bad-twice"),
        seed!("bad-nul"),
        seed!("bad-final-dot"),
        seed!("bad-address"),
        seed!("bad-alert-first"),
        seed!("bad-ssl2"),
    ] {
        assert!(matches!(read(bytes), HelloParse::Bad(_)), "{:?}", read(bytes));
    }
}

#[test]
fn prefixes_need_more_and_trailing_bytes_are_ignored() {
    for bytes in [BROWSER, seed!("many-records"), seed!("curl"), seed!("openssl-fragments"), seed!("no-extensions")] {
        let whole = read(bytes);
        assert!(matches!(whole, HelloParse::Hello(_)));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), HelloParse::More, "{end} of {}", bytes.len());
        }
        for after in [&[0][..], b"\x14\x03\x03\0\x01\x01", &[22, 3, 1], BROWSER] {
            assert_eq!(read(&[bytes, after].concat()), whole);
        }
    }
}

#[test]
fn records_may_split_the_message_anywhere() {
    let message = &BROWSER[5..];
    let whole = read(BROWSER);
    for cut in 1..message.len() {
        let both = [records(&message[..cut], MOST_RECORD), records(&message[cut..], MOST_RECORD)].concat();
        assert_eq!(read(&both), whole, "{cut}");
    }
    let small = message.len().div_ceil(MOST_RECORDS);
    assert_eq!(read(&records(message, small)), whole);
    assert_eq!(read(&records(message, 1)), HelloParse::Bad("it is spread over too many records"));
}

#[test]
fn records_need_a_valid_type_version_and_length() {
    let with = |at: usize, byte: u8| {
        let mut bytes = BROWSER.to_vec();
        bytes[at] = byte;
        read(&bytes)
    };
    for minor in [1, 2, 3, 4] {
        assert_eq!(with(2, minor), named("api.example.com"));
    }
    for (at, byte) in [(0, 21), (0, 23), (0, 20), (0, 0), (1, 2), (1, 4), (2, 0), (2, 5), (5, 0), (5, 2)] {
        assert!(matches!(with(at, byte), HelloParse::Bad(_)), "{at} {byte}");
    }
    assert_eq!(read(&[&[22, 3, 1, 0, 0][..], BROWSER].concat()), HelloParse::Bad("an empty record"));
    assert_eq!(read(&[22, 3, 1, 0x40, 0]), HelloParse::More);
    assert_eq!(read(&[22, 3, 1, 0x40, 1]), HelloParse::Bad("a record that is too long"));
    let (first, second) = (records(&BROWSER[5..25], 20), records(&BROWSER[25..], MOST_RECORD));
    for between in [&b"\x15\x03\x01\0\x02\x01\x5a"[..], b"\x14\x03\x01\0\x01\x01", b"\x16\x03\x01\0\0"] {
        assert!(matches!(read(&[&first, between, &second].concat()), HelloParse::Bad(_)));
    }
    assert_eq!(read(&[first, second].concat()), named("api.example.com"));
}

#[test]
fn a_record_must_end_with_the_message() {
    let mut message = BROWSER[5..].to_vec();
    message.push(0);
    assert_eq!(read(&records(&message, MOST_RECORD)), HelloParse::Bad("something follows it in the same record"));
    message.pop();
    message.extend_from_slice(&BROWSER[5..]);
    assert_eq!(read(&records(&message, MOST_RECORD)), HelloParse::Bad("something follows it in the same record"));
    assert_eq!(read(&[BROWSER, BROWSER].concat()), named("api.example.com"));
}

#[test]
fn client_hello_length_is_limited() {
    let padded = |length: usize| parts(&[name(b"a.example"), extension(21, &vec![0; length])]);
    let over = records(&message(&padded(0)), MOST_RECORD).len() + 4 * 5;
    let fits = records(&message(&padded(MOST - over)), MOST_RECORD);
    assert!(fits.len() <= MOST && fits.len() > MOST - 64, "{}", fits.len());
    assert_eq!(read(&fits), named("a.example"));
    // If its beginning says so, the rest is not waited for.
    assert_eq!(read(&[22, 3, 1, 0x40, 0, 1, 1, 0, 0]), HelloParse::Bad("it is too long"));
    assert_eq!(read(&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0]), HelloParse::More);
}

#[test]
fn vectors_are_checked_to_the_byte() {
    let good = || parts(&[name(b"a.example")]);
    assert_eq!(one(&good()), named("a.example"));
    for version in [[3, 1], [3, 2], [3, 3]] {
        assert_eq!(one(&Parts { version, ..good() }), named("a.example"));
    }
    for version in [[3, 0], [3, 4], [2, 0], [0, 2], [0x7f, 0x1c]] {
        assert_eq!(bad(&Parts { version, ..good() }), "an unknown version");
    }
    assert_eq!(one(&Parts { session: vec![], ..good() }), named("a.example"));
    assert_eq!(bad(&Parts { session: vec![0; 33], ..good() }), "a session id that is too long");
    assert_eq!(bad(&Parts { suites: vec![], ..good() }), "an invalid list of cipher suites");
    assert_eq!(bad(&Parts { suites: vec![1; 3], ..good() }), "an invalid list of cipher suites");
    assert_eq!(one(&Parts { compressions: vec![1, 0], ..good() }), named("a.example"));
    assert_eq!(bad(&Parts { compressions: vec![], ..good() }), "compression methods without null");
    assert_eq!(bad(&Parts { compressions: vec![1], ..good() }), "compression methods without null");
    assert_eq!(bad(&Parts { after: vec![0], ..good() }), "bytes after its end");
    assert_eq!(one(&Parts { extensions: None, ..good() }), NAMELESS);
    assert_eq!(one(&parts(&[])), NAMELESS);
    assert_eq!(bad(&Parts { extensions: None, after: vec![0], ..good() }), "a part that goes beyond its end");
    let cut = |cut: usize| {
        let mut extensions = [name(b"a.example"), extension(16, b"\0\x03\x02h2")].concat();
        extensions.truncate(extensions.len() - cut);
        Parts { extensions: Some(extensions), ..good() }
    };
    assert_eq!(one(&cut(0)), named("a.example"));
    for missing in 1..9 {
        assert_eq!(bad(&cut(missing)), "a part that goes beyond its end");
    }
}

#[test]
fn server_name_must_be_single_and_of_type_host_name() {
    assert_eq!(one(&parts(&[names(&[name_entry(0, b"a.example")])])), named("a.example"));
    let why = |extensions: &[Vec<u8>]| bad(&parts(extensions));
    let twice = [name_entry(0, b"a.example"), name_entry(0, b"b.example")];
    assert_eq!(why(&[names(&twice)]), "more than one server name");
    assert_eq!(why(&[names(&[name_entry(0, b"a.example"), name_entry(1, b"")])]), "more than one server name");
    assert_eq!(why(&[names(&[name_entry(1, b"a.example")])]), "a server name of an unknown type");
    assert_eq!(why(&[names(&[])]), "a part that goes beyond its end");
    assert_eq!(why(&[extension(0, &[])]), "a part that goes beyond its end");
    assert_eq!(why(&[extension(0, &[&name(b"a.example")[4..], &[0]].concat())]), "bytes after its end");
    assert_eq!(why(&[name(b"a.example"), name(b"a.example")]), "an extension that comes twice");
    assert_eq!(why(&[name(b"a.example"), extension(7, &[]), extension(7, &[])]), "an extension that comes twice");
    let all: Vec<_> = (0..2000).filter(|kind| *kind != 0).map(|kind| extension(kind, &[])).collect();
    assert_eq!(one(&parts(&all)), NAMELESS);
}

#[test]
fn server_name_must_be_a_host_name() {
    let long = [[b'a'; 63].as_slice(), &[b'b'; 63], &[b'c'; 63], &[b'd'; 61]].join(&b'.');
    for good in
        [&b"a"[..], b"A.Example", b"xn--bcher-kva.example", b"1.a", b"a_b.example", b"3com.com", b"a.0xg", &long]
    {
        let lower = String::from_utf8(good.to_ascii_lowercase()).unwrap();
        assert_eq!(one(&parts(&[name(good)])), named(&lower));
    }
    let too_long = [long.as_slice(), b"e"].concat();
    for none in [
        &b""[..],
        b".",
        b"a.example.",
        b".a.example",
        b"a..example",
        b"a.example\0",
        b"a.example\0.b",
        b"a b",
        b"a/b",
        b"a.example:443",
        b"*.example",
        b"b\xc3\xbccher.example",
        b"-a.example",
        b"a-.example",
        b"10.0.0.1",
        b"10.1",
        b"2130706433",
        b"0x7f.1",
        b"0x7F000001",
        b"a.0x",
        b"::1",
        b"[::1]",
        b"user@a.example",
        &[b'a'; 64],
        &too_long,
    ] {
        assert_eq!(bad(&parts(&[name(none)])), "an invalid server name", "{none:?}");
    }
}
