//! Properties of what a sandbox sends to the gateway: arbitrary bytes, and mutated real ones. The fuzz targets check
//! the same for longer, and begin with the same seeds.

#[path = "common/untrusted.rs"]
mod untrusted;

use cofferdam_egress::client_hello::{self, HelloParse};
use cofferdam_egress::dns::Transport;
use proptest::prelude::*;

/// The seeds of one parser: every file of its directory, in order.
fn seeds(parser: &str) -> Vec<Vec<u8>> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds").join(parser);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "{} has seeds", directory.display());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A mutation of some bytes.
#[derive(Debug, Clone)]
enum Change {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Cut(prop::sample::Index),
    /// Copies some of the bytes to another place.
    Copy(prop::sample::Index, usize, prop::sample::Index),
    /// Changes a number of two bytes a little.
    Add(prop::sample::Index, i16),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    let telling =
        prop::sample::select(vec![0u8, 1, 3, 4, 5, b' ', b'\n', b'\r', b'/', b'.', 22, 63, 64, 0x7f, 0xc0, 0xff]);
    prop_oneof![
        (at(), prop_oneof![telling.clone(), any::<u8>()]).prop_map(|(at, byte)| Change::Set(at, byte)),
        (at(), 0u8..8).prop_map(|(at, bit)| Change::Flip(at, 1 << bit)),
        (at(), prop::collection::vec(prop_oneof![telling, any::<u8>()], 1..12))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (at(), 1usize..40).prop_map(|(at, length)| Change::Remove(at, length)),
        at().prop_map(Change::Cut),
        (at(), 1usize..80, at()).prop_map(|(from, length, to)| Change::Copy(from, length, to)),
        (at(), -8i16..=8).prop_map(|(at, by)| Change::Add(at, by)),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let length = bytes.len();
        let index = |at: &prop::sample::Index| at.index(length.max(1)).min(length);
        match change {
            Change::Set(at, byte) if length > 0 => bytes[index(at)] = *byte,
            Change::Flip(at, bit) if length > 0 => bytes[index(at)] ^= bit,
            Change::Insert(at, new) => drop(bytes.splice(index(at)..index(at), new.iter().copied())),
            Change::Remove(at, most) => drop(bytes.drain(index(at)..(index(at) + most).min(length))),
            Change::Cut(at) => bytes.truncate(index(at)),
            Change::Copy(from, most, to) => {
                let copied = bytes[index(from)..(index(from) + most).min(length)].to_vec();
                drop(bytes.splice(index(to)..index(to), copied));
            }
            Change::Add(at, by) if index(at) + 2 <= length => {
                let place = index(at)..index(at) + 2;
                let number = u16::from_be_bytes([bytes[place.start], bytes[place.start + 1]]);
                bytes[place].copy_from_slice(&number.wrapping_add_signed(*by).to_be_bytes());
            }
            Change::Set(..) | Change::Flip(..) | Change::Add(..) => {}
        }
    }
    bytes
}

/// Mutated seeds.
fn mutated(parser: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    (prop::sample::select(seeds(parser)), prop::collection::vec(change(), 0..5))
        .prop_map(|(bytes, changes)| changed(bytes, &changes))
}

/// Arbitrary bytes after a valid beginning.
fn any_behind(starts: Vec<&'static [u8]>) -> impl Strategy<Value = Vec<u8>> {
    (prop::sample::select(starts), prop::collection::vec(any::<u8>(), 0..200))
        .prop_map(|(start, bytes)| [start, &bytes].concat())
}

/// Words that make lines of requests, and what else may stand in one.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        &b"GET"[..],
        b"get",
        b"POST",
        b"FOO",
        b"PRI",
        b"PROXY",
        b"CONNECT",
        b"*",
        b"/",
        b"/x",
        b"{",
        b"http://a/",
        b"a:443",
        b"HTTP/1.1",
        b"HTTP/2.0",
        b"http/1.0",
        b"HTTP",
        b" ",
        b" ",
        b" ",
        b"\t",
        b"\r",
        b"\n",
        b"\r\n",
        b"\x0b",
        b"\x1f",
        b"\0",
        b"\x01",
        b"\x7f",
        b"\x85",
        b"\xff",
        b"<",
        b"\x16\x03",
        b"SM",
    ]);
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

/// A ClientHello with generated contents, split into generated records.
fn greetings() -> impl Strategy<Value = (Vec<u8>, Option<String>)> {
    let name = prop::option::of("[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\\.[a-z]{1,10}){0,4}");
    let extensions = prop::collection::btree_map(1u16..0xfd00, prop::collection::vec(any::<u8>(), 0..40), 0..8);
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..6);
    (name, extensions, cuts, any::<prop::sample::Index>(), 0usize..=32).prop_filter_map(
        "a name that is a number",
        |(name, others, cuts, place, session)| {
            if name
                .as_ref()
                .is_some_and(|name| name.rsplit('.').next().unwrap().bytes().all(|byte| byte.is_ascii_digit()))
            {
                return None;
            }
            let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
            let mut all: Vec<(u16, Vec<u8>)> = others.into_iter().collect();
            if let Some(name) = &name {
                all.insert(place.index(all.len() + 1), (0, sized(&[&[0][..], &sized(name.as_bytes())].concat())));
            }
            let list: Vec<u8> =
                all.iter().flat_map(|(kind, body)| [&kind.to_be_bytes()[..], &sized(body)].concat()).collect();
            let mut body = vec![3, 3];
            body.extend([5; 32]);
            body.push(session as u8);
            body.extend(vec![6; session]);
            body.extend(sized(&[0x13, 1, 0x13, 2]));
            body.extend([1, 0]);
            body.extend(sized(&list));
            let message = [&[1][..], &(body.len() as u32).to_be_bytes()[1..], &body].concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(message.len())).collect();
            cuts.extend([0, message.len()]);
            cuts.sort();
            cuts.dedup();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &message[cut[0]..cut[1]]).collect();
            Some((untrusted::records(&pieces), name))
        },
    )
}

/// A query with generated contents, and whether it is well-formed.
fn queries() -> impl Strategy<Value = Vec<u8>> {
    let label = prop_oneof![
        prop::sample::select(vec![
            "known",
            "example",
            "localhost",
            "_tcp",
            "in-addr",
            "arpa",
            "ip6",
            "198",
            "18",
            "0",
            "1",
            "a"
        ])
        .prop_map(|label| label.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..64),
    ];
    let kind = prop_oneof![prop::sample::select(vec![1u16, 28, 12, 16, 33, 64, 65, 251, 255]), any::<u16>()];
    let edns = prop::option::of((any::<u16>(), 0u8..2, prop::collection::vec(any::<u8>(), 0..20)));
    (any::<u16>(), 0u8..8, prop::collection::vec(label, 0..6), kind, 0u16..3, edns).prop_map(
        |(id, flags, labels, kind, class, edns)| {
            let mut bytes = id.to_be_bytes().to_vec();
            bytes.extend([
                if flags == 7 { 0x20 } else { 1 },
                flags << 4,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                u8::from(edns.is_some()),
            ]);
            labels.iter().for_each(|label| bytes.extend([&[label.len() as u8][..], label].concat()));
            bytes.push(0);
            [kind, class].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
            if let Some((size, version, option)) = edns {
                bytes.extend([0, 0, 41]);
                bytes.extend(size.to_be_bytes());
                bytes.extend([0, version, 0x80, 0]);
                bytes.extend((option.len() as u16 + 4).to_be_bytes());
                bytes.extend([0, 12]);
                bytes.extend((option.len() as u16).to_be_bytes());
                bytes.extend(option);
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_client_hellos_are_parsed_in_any_records((bytes, name) in greetings()) {
        prop_assert_eq!(client_hello::read(&bytes), HelloParse::Hello(client_hello::ClientHello { server_name: name, encrypted: false }));
        for end in 0..bytes.len() {
            prop_assert_eq!(client_hello::read(&bytes[..end]), HelloParse::More);
        }
        untrusted::hello(&bytes);
    }

    #[test]
    fn generated_client_hellos_mutated((bytes, _) in greetings(), changes in prop::collection::vec(change(), 1..4)) {
        untrusted::hello(&changed(bytes, &changes));
    }

    #[test]
    fn client_hellos_of_real_clients_mutated(bytes in mutated("hello")) {
        untrusted::hello(&bytes);
        untrusted::second_hello(&bytes);
        untrusted::first(&bytes);
    }

    #[test]
    fn any_bytes_as_client_hello(bytes in any_behind(vec![b"", b"\x16\x03\x01", b"\x16\x03\x01\0\x40\x01\0\0\x3c\x03\x03"])) {
        untrusted::hello(&bytes);
    }

    #[test]
    fn any_bytes_after_a_client_hello(
        kinds in prop::collection::vec((prop::sample::select(vec![20u8, 21, 22, 23, 24, 25]), prop::collection::vec(0u8..0xff, 0..9)), 0..4),
        answers in prop::collection::vec(any::<Option<bool>>(), 0..3),
        (hello, _) in greetings(),
        changes in prop::collection::vec(change(), 0..3),
    ) {
        let record = |kind: u8, content: &[u8]| [&[kind, 3, 3, 0, content.len() as u8][..], content].concat();
        let server = answers.iter().flat_map(|answer| match answer {
            // The byte 0xff would end the server's part.
            Some(retry) => {
                let random = if *retry { cofferdam_egress::greeting_watch::RETRY_RANDOM } else { [7; 32] };
                record(22, &[&[2, 0, 0, 34, 3, 3][..], &random].concat())
            }
            None => record(20, &[1]),
        });
        let client = kinds.iter().flat_map(|(kind, content)| record(*kind, content)).chain(hello);
        let bytes: Vec<u8> = server.chain([0xff]).chain(client).collect();
        untrusted::second_hello(&bytes);
        untrusted::second_hello(&changed(bytes, &changes));
    }

    #[test]
    fn any_bytes_as_first_bytes(bytes in any_behind(vec![b"", b"\x16", b"\x80", b"\r\n", b"GET", b"FOO /", b"\x1f"])) {
        untrusted::first(&bytes);
    }

    #[test]
    fn first_bytes_that_look_like_requests(bytes in lines()) {
        untrusted::first(&bytes);
    }

    #[test]
    fn first_bytes_of_real_clients_mutated(bytes in mutated("first")) {
        untrusted::first(&bytes);
    }

    #[test]
    fn any_bytes_as_socks(bytes in any_behind(vec![b"", b"\x05", b"\x04\x01", b"\x05\x01\0\x03", b"\x01"])) {
        untrusted::socks(&bytes);
    }

    #[test]
    fn generated_queries(bytes in queries()) {
        untrusted::dns(&bytes);
    }

    #[test]
    fn generated_queries_mutated(bytes in queries(), changes in prop::collection::vec(change(), 1..4)) {
        untrusted::dns(&changed(bytes, &changes));
    }

    #[test]
    fn queries_are_parsed_as_by_another_implementation(bytes in queries()) {
        use hickory_proto::op::Message;
        let answer = cofferdam_egress::dns::answer(&bytes, Transport::Udp, &mut untrusted::Inside::new());
        if let Some(answer) = answer.filter(|answer| answer.len() > 12) {
            let (asked, answered) = (Message::from_vec(&bytes).unwrap(), Message::from_vec(&answer).unwrap());
            prop_assert_eq!(&asked.queries, &answered.queries);
            prop_assert_eq!(asked.edns.is_some(), answered.edns.is_some());
        }
    }

    #[test]
    fn any_bytes_as_query(bytes in any_behind(vec![b"", b"\0\x01\x01\0\0\x01\0\0\0\0\0\0", b"\0\x01\x01\0\0\x01\0\0\0\0\0\x01\x05known\x07example\0"])) {
        untrusted::dns(&bytes);
    }

    #[test]
    fn queries_of_real_clients_mutated(bytes in mutated("dns")) {
        untrusted::dns(&bytes);
    }

    #[test]
    fn socks_of_real_clients_mutated(bytes in mutated("socks")) {
        untrusted::socks(&bytes);
    }
}

/// The invariants of any bytes.
type Holds = fn(&[u8]);

/// Each seed unchanged, and truncated at every byte.
#[test]
fn invariants_hold_for_every_prefix_of_the_seeds() {
    let parsers: [(&str, Holds); 4] = [
        ("hello", untrusted::hello),
        ("first", untrusted::first),
        ("socks", untrusted::socks),
        ("dns", untrusted::dns),
    ];
    for (parser, holds) in parsers {
        for seed in seeds(parser) {
            for end in 0..=seed.len() {
                holds(&seed[..end]);
            }
        }
    }
}
