//! Arbitrary bytes from a client: upstream receives only requests to its host, whichever way they are parsed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::requests;
use crate::support::{Fake, GOOD, connect, echo, read_request};

/// The seeds of one parser: every file of its directory, in order.
fn seeds(parser: &str) -> Vec<Vec<u8>> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds").join(parser);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 20, "{} has seeds", directory.display());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Parts of requests, in any order; those that complete a request are more frequent.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = |pieces: &[&'static [u8]]| prop::sample::select(pieces.to_vec()).prop_map(<[u8]>::to_vec);
    let line = piece(&[
        b"GET / HTTP/1.1\r\n",
        b"GET /a?b HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\n",
        b"HEAD / HTTP/1.1\r\n",
        b"GET / HTTP/1.0\r\n",
        b"GET http://good.example/ HTTP/1.1\r\n",
        b"GET http://other.example/ HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"CONNECT good.example:80 HTTP/1.1\r\n",
    ]);
    let header = piece(&[
        b"Content-Length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"Content-Length: 41\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        b"Upgrade: h2c\r\n",
        b"Expect: 100-continue\r\n",
        b"TE: trailers\r\n",
        b"Trailer: X\r\n",
        b"X: y\r\n",
        b" folded\r\n",
        b"Host: other.example\r\n",
        b"HOST : other.example\r\n",
    ]);
    let host = piece(&[b"Host: good.example\r\n", b"hOsT:good.example:80\r\n"]);
    let end = piece(&[
        b"\r\n",
        b"\r\nhello",
        b"\r\n5\r\nhello\r\n0\r\n\r\n",
        b"\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"\r\n0\r\n\r\n",
        b"\n",
        b"\r\n2e\r\n",
        b"",
    ]);
    let noise = piece(&[
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b",",
        b";",
        b"0",
        b"5\r\n",
        b"\x0b",
        b"\x80",
        b"HTTP/1.1",
        b"Host:",
        b"other.example",
        b"#",
        b"@",
        b"\\",
    ]);
    let request = (line, host, prop::collection::vec(header, 0..3), end)
        .prop_map(|(line, host, headers, end)| [line, host, headers.concat(), end].concat());
    let part = prop_oneof![6 => request, 1 => noise, 1 => prop::collection::vec(any::<u8>(), 0..4)];
    prop::collection::vec(part, 1..7).prop_map(|parts| parts.concat())
}

/// Seeds with some bytes changed, removed or inserted.
fn mutated(parser: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let telling =
        prop::sample::select(vec![0u8, 9, 10, 11, 13, 32, b'0', b'5', b':', b',', b';', b'/', b'@', b'#', 0x7f, 0x80]);
    let change = (any::<prop::sample::Index>(), 0usize..3, prop_oneof![3 => telling, 1 => any::<u8>()], 0usize..3);
    (prop::sample::select(seeds(parser)), prop::collection::vec(change, 0..4)).prop_map(|(mut bytes, changes)| {
        for (at, removed, byte, put) in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + removed).min(bytes.len());
            bytes.splice(at..end, std::iter::repeat_n(byte, put));
        }
        bytes
    })
}

/// Checks what upstream received: whole requests, and perhaps the start of one whose body failed; each to its host.
fn assert_one_host(received: &[u8], sent: &[u8]) -> u64 {
    let shown = || format!("{:?} from {:?}", String::from_utf8_lossy(received), String::from_utf8_lossy(sent));
    let mut rest = received;
    let mut count = 0;
    while !rest.is_empty() {
        let end =
            rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {}", shown())) + 4;
        // Its head as that of a request without a body, so that it is read also when its body is not there.
        let head: Vec<u8> = String::from_utf8_lossy(&rest[..end])
            .split_inclusive("\r\n")
            .filter(|line| {
                !line.to_lowercase().starts_with("content-length:")
                    && !line.to_lowercase().starts_with("transfer-encoding:")
            })
            .collect::<String>()
            .into_bytes();
        let (seen, _) = read_request(&head).unwrap_or_else(|| panic!("unreadable: {}", shown()));
        let hosts = seen.get("host");
        assert!(hosts == [GOOD] || hosts == ["good.example:80"], "{hosts:?}: {}", shown());
        let target = seen.line.split(' ').nth(1).unwrap_or_default();
        assert!(target.starts_with('/') || target == "*", "{}", shown());
        assert!(seen.line.ends_with(" HTTP/1.1") && seen.line.split(' ').count() == 3, "{}", shown());
        assert!(seen.get("upgrade").iter().all(|upgrade| *upgrade == "websocket"), "{}", shown());
        count += 1;
        match read_request(rest) {
            Some((_, after)) => rest = after,
            None => break,
        }
    }
    count
}

/// Sends bytes in pieces, whatever the responses, and returns what upstream received.
fn through(bytes: &[u8], piece: usize) -> Vec<u8> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("runtime");
    runtime.block_on(async {
        let gateway = Arc::new(Fake::new(echo));
        let (mut read, mut write) = tokio::io::split(connect(&gateway));
        let reading = tokio::spawn(async move {
            let mut answer = Vec::new();
            read.read_to_end(&mut answer).await.ok();
        });
        for part in bytes.chunks(piece) {
            if write.write_all(part).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        write.shutdown().await.ok();
        reading.await.expect("the connection ends");
        gateway.received()
    })
}

/// Requests that passed in all cases of the properties: 0 would mean that nothing was tested.
static PASSED: AtomicU64 = AtomicU64::new(0);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn generated_requests_are_framed_in_one_way(bytes in pieces()) {
        requests::requests(&bytes);
        requests::head(&bytes);
    }

    #[test]
    fn mutated_requests_are_framed_in_one_way(bytes in mutated("request")) {
        requests::requests(&bytes);
        requests::head(&bytes);
    }

    #[test]
    fn mutated_authorities_are_parsed_literally(bytes in mutated("authority")) {
        requests::authority(&bytes);
    }

    #[test]
    fn any_bytes_as_authority(text in "[a-z0-9\\[\\]:.@%xX-]{0,24}") {
        requests::authority(text.as_bytes());
    }
}

#[test]
fn upstream_receives_only_requests_for_its_host() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(1500)
    });
    let bytes = prop_oneof![3 => pieces(), 1 => mutated("request")];
    runner
        .run(&(bytes, prop_oneof![Just(1usize), Just(13), Just(100_000)]), |(bytes, piece)| {
            let received = through(&bytes, piece);
            PASSED.fetch_add(assert_one_host(&received, &bytes), Ordering::Relaxed);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let passed = PASSED.load(Ordering::Relaxed);
    assert!(passed > 300, "only {passed} requests passed: most cases try nothing");
}
