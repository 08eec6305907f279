//! Captured connections: what reaches upstream and what does not, each refusal beside an allowed control.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};

use cofferdam_egress::event::{NetworkKind, NetworkReason, NetworkVia};
use cofferdam_egress::layout::{HTTP_PROXY_PORT, INSIDE};

use crate::support::{Inside, SOON, World, echo, is_reset, network, query, rest, serve, with, world};

fn talk(mut stream: &TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = vec![0u8; text.len()];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn an_allowed_name_is_reached_and_another_is_refused() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    world.name("bad.example", &["127.0.0.1"]);
    let mut inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let stream = inside.connect_name("good.example", port);
    assert_eq!(talk(&stream, "\u{1}hello"), "\u{1}hello");
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&stream), b"");
    let allowed = inside.event(NetworkKind::Allowed);
    assert_eq!((allowed.host.as_deref(), allowed.port), (Some("good.example"), Some(port)));
    assert_eq!(allowed.address, Some(IpAddr::from([127, 0, 0, 1])));
    assert_eq!(allowed.rule.as_deref(), Some("$.network.allow[0]"));
    let closed = inside.event(NetworkKind::Closed);
    assert_eq!((closed.bytes_up, closed.bytes_down, closed.connection), (Some(6), Some(6), allowed.connection));

    assert_eq!(inside.resolve("bad.example"), None);
    let (reason, event) = inside.refusal();
    assert_eq!(
        (reason, event.via, event.host.as_deref()),
        (NetworkReason::NotAllowed, NetworkVia::Dns, Some("bad.example"))
    );
    let traffic = inside.end();
    assert_eq!((traffic.connections, traffic.refused), (1, 1));
    assert_eq!((traffic.bytes_up, traffic.bytes_down), (6, 6));
}

#[test]
fn an_address_without_a_rule_is_reset() {
    let (world, port) = (world(), echo());
    // An address that a rule names is reached in `proxies`, because none of this host's may be.
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "8.8.8.8:443"], &[]));
    let to: SocketAddr = ([93, 184, 216, 34], port).into();
    assert!(is_reset(inside.connect(to)));
    let (reason, event) = inside.refusal();
    assert_eq!((reason, event.address, event.port), (NetworkReason::NotAllowed, Some(to.ip()), Some(port)));
}

#[test]
fn attempts_just_before_the_end_are_reported() {
    let world = world();
    for round in 0..20 {
        let begin = |inside: &Inside| {
            drop(inside.connect(([192, 0, 2, 1], 80)));
            let mut asking = inside.connect((INSIDE, HTTP_PROXY_PORT));
            asking.write_all(b"CONNECT proxied.example:443 HTTP/1.1\r\nhost: proxied.example\r\n\r\n").unwrap();
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(&query("refused.example"), inside.resolver()).unwrap();
        };
        let mut inside = world.begun(&network(&["allowed.example:443"], &[]), begin);
        let traffic = inside.end();
        let mut told: Vec<_> =
            inside.events().iter().map(|e| (e.kind, e.host.clone(), e.address.map(|a| a.to_string()))).collect();
        told.sort_by_key(|(_, host, address)| (host.clone(), address.clone()));
        let expected = [
            (NetworkKind::Refused, None, Some("192.0.2.1".to_owned())),
            (NetworkKind::Refused, Some("proxied.example".to_owned()), None),
            (NetworkKind::Refused, Some("refused.example".to_owned()), None),
        ];
        assert_eq!(told, expected, "round {round}");
        assert_eq!(traffic.refused, 3, "round {round}");
    }
}

#[test]
fn another_port_of_an_allowed_name_is_reset() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    assert_eq!(talk(&inside.connect_name("good.example", port), "\u{1}"), "\u{1}");
    assert!(is_reset(inside.connect_name("good.example", port.wrapping_add(1))));
    let (reason, event) = inside.refusal();
    assert_eq!((reason, event.host.as_deref()), (NetworkReason::PortNotAllowed, Some("good.example")));
}

#[test]
fn a_name_with_a_private_address_is_refused_unless_allowed() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let entry = format!("good.example:{port}");
    let inside = world.inside(&network(&[&entry], &[]));
    assert!(is_reset(inside.connect_name("good.example", port)));
    let (reason, event) = inside.refusal();
    assert_eq!((reason, event.address), (NetworkReason::AddressNotPublic, Some(IpAddr::from([127, 0, 0, 1]))));
    let inside = world.inside(&network(&[&entry, "127.0.0.1:*"], &[]));
    assert_eq!(talk(&inside.connect_name("good.example", port), "\u{1}"), "\u{1}");
}

#[test]
fn refused_addresses_of_a_name_are_skipped_and_reported() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["10.0.0.1", "169.254.169.254", "127.0.0.1", "::1"]);
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    assert_eq!(talk(&inside.connect_name("good.example", port), "\u{1}"), "\u{1}");
    assert_eq!(inside.event(NetworkKind::Allowed).address, Some(IpAddr::from([127, 0, 0, 1])));
    for address in ["10.0.0.1", "169.254.169.254", "::1"] {
        let address: IpAddr = address.parse().unwrap();
        let event = inside.event_of(|event| event.address == Some(address));
        assert_eq!(
            (event.kind, event.reason),
            (NetworkKind::Refused, Some(NetworkReason::AddressNotPublic)),
            "{address}"
        );
    }
}

#[test]
fn loopback_and_unknown_synthetic_addresses_are_refused() {
    let (world, port) = (world(), echo());
    let inside = world.inside(&network(&["127.0.0.0/8:*", "198.18.0.0/15:*", "0.0.0.0:*"], &[]));
    for (to, why) in [
        ([127, 0, 0, 1], NetworkReason::AddressNotPublic),
        ([127, 1, 2, 3], NetworkReason::AddressNotPublic),
        ([0, 0, 0, 0], NetworkReason::AddressNotPublic),
        ([198, 18, 77, 77], NetworkReason::UnknownAddress),
    ] {
        assert!(is_reset(inside.connect(SocketAddr::from((to, port)))), "{to:?}");
        let event = inside.event_of(|event| event.address == Some(IpAddr::from(to)));
        assert_eq!((event.kind, event.reason), (NetworkKind::Refused, Some(why)), "{to:?}");
    }
}

#[test]
fn a_server_may_speak_first() {
    let world = world();
    let port = serve(|mut stream| {
        stream.write_all(b"SSH-2.0-server\r\n").unwrap();
        let mut line = [0u8; 16];
        stream.read_exact(&mut line).unwrap();
        stream.write_all(&line).unwrap();
    });
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let mut stream = inside.connect_name("good.example", port);
    let mut banner = [0u8; 16];
    stream.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"SSH-2.0-server\r\n");
    assert_eq!(talk(&stream, "SSH-2.0-client\r\n"), "SSH-2.0-client\r\n");
}

#[test]
fn half_closes_and_resets_are_passed_on_both_ways() {
    let world = world();
    let counts = serve(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(all.len().to_string().as_bytes()).unwrap();
    });
    let resets = serve(|mut stream| {
        stream.read_exact(&mut [0u8; 1]).unwrap();
        rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
    });
    let (told, ends) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let watches = serve(move |mut stream| {
        let error = loop {
            match stream.read(&mut [0u8; 64]) {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error.kind()),
            }
        };
        told.lock().unwrap().send(error).unwrap();
    });
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&["good.example:*", "127.0.0.1:*"], &[]));

    let mut stream = inside.connect_name("good.example", counts);
    stream.write_all(&[1u8; 1000]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&stream), b"1000");

    let mut stream = inside.connect_name("good.example", resets);
    stream.write_all(&[1]).unwrap();
    assert!(is_reset(stream));

    let stream = inside.connect_name("good.example", watches);
    assert_eq!((&stream).write(&[1]).unwrap(), 1);
    inside.event_of(|event| event.kind == NetworkKind::Allowed && event.port == Some(watches));
    rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
    drop(stream);
    assert_eq!(ends.recv().unwrap(), Some(std::io::ErrorKind::ConnectionReset));
}

#[test]
fn megabytes_pass_unchanged_both_ways_and_are_counted() {
    megabytes(&world());
}

#[test]
fn megabytes_pass_without_free_pipes() {
    megabytes(&with(SOON, SOON, Some(7)));
}

fn megabytes(world: &World) {
    let port = echo();
    world.name("good.example", &["127.0.0.1"]);
    let mut inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let stream = inside.connect_name("good.example", port);
    let data: Vec<u8> = (0..5_000_003u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 | 0x80).collect();
    let sent = data.clone();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    assert!(rest(&stream) == data, "not the same bytes");
    writing.join().unwrap();
    let closed = inside.event(NetworkKind::Closed);
    assert_eq!((closed.bytes_up, closed.bytes_down), (Some(5_000_003), Some(5_000_003)));
    let traffic = inside.end();
    assert_eq!((traffic.bytes_up, traffic.bytes_down), (5_000_003, 5_000_003));
}

#[test]
fn faults_of_upstream_are_failures_and_not_refusals() {
    let world = world();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&["good.example:*", "gone.example:*", "127.0.0.1:*"], &[]));
    assert!(is_reset(inside.connect_name("good.example", closed)));
    let event = inside.event(NetworkKind::Failed);
    assert_eq!((event.reason, event.address), (Some(NetworkReason::Unreachable), Some(IpAddr::from([127, 0, 0, 1]))));
    assert!(is_reset(inside.connect_name("gone.example", 443)));
    let event = inside.event_of(|event| event.host.as_deref() == Some("gone.example"));
    assert_eq!((event.kind, event.reason), (NetworkKind::Failed, Some(NetworkReason::NotResolved)));
}

#[test]
fn a_request_line_without_a_method_does_not_pass_unread() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let rules = network(&["good.example:*", "127.0.0.1:*"], &[]);
    for line in ["GE\"T / HTTP/1.1\r\n", "\u{feff}GET / HTTP/1.1\r\n", "GET: / http/1.0\n", "\u{1}GET\t/\tHTTP/1.1\r\n"]
    {
        let host = "Host: evil.example\r\n\r\n";
        for cut in [0, line.len() - 3] {
            let inside = world.inside(&rules);
            let mut stream = inside.connect_name("good.example", port);
            let rest = [&line.as_bytes()[cut..], host.as_bytes()].concat();
            if cut > 0 {
                stream.write_all(&line.as_bytes()[..cut]).unwrap();
                // The echo has spoken: it is no server that awaits a request line.
                let mut back = vec![0u8; cut];
                stream.read_exact(&mut back).unwrap();
                assert_eq!(talk(&stream, &String::from_utf8_lossy(&rest)).len(), rest.len());
                continue;
            }
            stream.write_all(&rest).unwrap();
            assert!(is_reset(stream), "{line:?}");
            assert_eq!(inside.refusal().0, NetworkReason::BadRequest, "{line:?}");
        }
    }
    for line in ["GE\"T / SIP/2.0\r\n\r\n", "{\"version\": \"HTTP/1.1\"}\n", "\u{1}\u{0}HTTP/1.1\n"] {
        let inside = world.inside(&rules);
        assert_eq!(talk(&inside.connect_name("good.example", port), line), line);
    }
}

#[test]
fn a_request_line_without_a_method_that_comes_in_parts_is_cut_off() {
    let world = world();
    // As a server of HTTP does, it says nothing before a line has come.
    let port = serve(|mut stream| {
        let (mut got, mut byte) = (Vec::new(), [0u8; 1]);
        while !got.ends_with(b"\n") && stream.read_exact(&mut byte).is_ok() {
            got.push(byte[0]);
        }
        drop(stream.write_all(&got).and_then(|()| std::io::copy(&mut stream.try_clone()?, &mut stream)));
    });
    world.name("good.example", &["127.0.0.1"]);
    for (parts, passes) in [
        (&["G\"T", " /", " HTTP/1.1\r", "\nHost: evil.example\r\n\r\n"][..], false),
        (&["\u{1}", "GET / HTT", "P/1.1\r\nHost: evil.example\r\n\r\n"], false),
        (&["G\"T", " /", " SIP/2.0\r", "\nHost: evil.example\r\n\r\n"], true),
    ] {
        let inside = world.inside(&network(&["good.example:*", "127.0.0.1:*"], &[]));
        let mut stream = inside.connect_name("good.example", port);
        for part in parts {
            // After the refusal it is reset.
            if stream.write_all(part.as_bytes()).is_err() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        if passes {
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(rest(&stream), parts.concat().as_bytes());
        } else {
            assert_eq!(inside.refusal().0, NetworkReason::BadRequest);
            assert!(!matches!(stream.read(&mut [0u8; 64]), Ok(1..)), "it was answered");
        }
    }
}

#[test]
fn a_program_that_ends_its_own_connection_early_is_not_refused() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let hello = greeting(Some("good.example"));
    let head = b"GET / HTTP/1.1\r\nHost: good.example\r\n";
    let upload = b"POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 9000\r\n\r\nhello";
    for (sent, passed) in [(&hello[..30], false), (&hello[..3], false), (head, false), (upload, true)] {
        for reset in [false, true] {
            let inside = world.inside(&network(&["good.example:*", "127.0.0.1:*"], &[]));
            let mut stream = inside.connect_name("good.example", port);
            stream.write_all(sent).unwrap();
            if passed {
                inside.event(NetworkKind::Allowed);
            }
            if reset {
                std::thread::sleep(std::time::Duration::from_millis(20));
                rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
            }
            drop(stream);
            let closed = inside.event_of(|event| matches!(event.kind, NetworkKind::Closed | NetworkKind::Failed));
            if passed {
                assert_eq!(closed.kind, NetworkKind::Closed);
            } else {
                assert!(closed.bytes_up.unwrap_or(0) == 0, "{closed:?}");
            }
            let refused = |event: &cofferdam_egress::event::NetworkEvent| event.kind == NetworkKind::Refused;
            assert!(!inside.events().iter().any(refused), "{:?}", inside.events());
        }
    }
    // What is refused before the end stays refused.
    for sent in [&b"\x16\x03\x01\0\x05\x02\0\0\x01\0"[..], b"GET / HTTP/1.1\nHost: good.example\r\n"] {
        let inside = world.inside(&network(&["good.example:*", "127.0.0.1:*"], &[]));
        let mut stream = inside.connect_name("good.example", port);
        stream.write_all(sent).unwrap();
        drop(stream);
        assert_eq!(inside.event_of(|event| event.kind == NetworkKind::Refused).port, Some(port));
    }
}

/// A ClientHello with this name, or none, in one record.
fn greeting(name: Option<&str>) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let list = name.map(|name| sized(&[&[0][..], &sized(name.as_bytes())].concat()));
    let extensions = list.map_or_else(Vec::new, |list| [&[0, 0][..], &sized(&list)].concat());
    let body = [&[3, 3][..], &[5; 32], &[0, 0, 2, 0x13, 1, 1, 0], &sized(&extensions)].concat();
    let message = [&[1, 0][..], &sized(&body)].concat();
    [&[22, 3, 1][..], &sized(&message)].concat()
}

/// A ServerHello with this random, in one record.
fn server_hello(random: [u8; 32]) -> Vec<u8> {
    let body = [&[3, 3][..], &random, &[0, 0x13, 1, 0, 0, 0]].concat();
    [&[22, 3, 3, 0, 44, 2, 0, 0, 40][..], &body].concat()
}

/// A server that answers with each of these in turn whenever bytes arrive, and then with what it got in all.
fn answers(answers: Vec<Vec<u8>>) -> u16 {
    serve(move |mut stream| {
        let (mut got, mut buffer) = (Vec::new(), [0u8; 65536]);
        for answer in &answers {
            let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
            got.extend_from_slice(&buffer[..count]);
            stream.write_all(answer).unwrap();
        }
        // Where the gateway refuses, it resets the connection.
        drop(stream.read_to_end(&mut got).and_then(|_| stream.write_all(&got)));
    })
}

/// What a server got from a client that sends each of these when the last answer has come; none if it was cut off.
fn conversation(inside: &Inside, stream: &TcpStream, parts: &[&[u8]], answer: usize) -> Option<Vec<u8>> {
    let mut stream = stream;
    for (at, part) in parts.iter().enumerate() {
        stream.write_all(part).ok()?;
        if at + 1 < parts.len() {
            stream.read_exact(&mut vec![0u8; answer]).ok()?;
        }
    }
    stream.shutdown(Shutdown::Write).ok()?;
    let mut all = Vec::new();
    let got = stream.read_to_end(&mut all).ok().map(|_| all);
    assert!(got.is_some() || inside.events().iter().any(|event| event.kind == NetworkKind::Refused));
    got
}

#[test]
fn a_second_greeting_in_the_clear_is_judged_like_the_first() {
    use cofferdam_egress::greeting_watch::RETRY_RANDOM;
    let retry = server_hello(RETRY_RANDOM);
    let (world, port) = (world(), answers(vec![retry.clone()]));
    world.name("good.example", &["127.0.0.1"]);
    world.name("other.example", &["127.0.0.1"]);
    let rules = network(&["good.example:*", "other.example:*", "127.0.0.1:*"], &["denied.example"]);
    let good = greeting(Some("good.example"));
    let changed = b"\x14\x03\x03\0\x01\x01";
    // The same name again, as it is, behind a change_cipher_spec, and in records of three bytes.
    let split: Vec<u8> =
        good[5..].chunks(3).flat_map(|part| [&[22, 3, 3, 0, part.len() as u8][..], part].concat()).collect();
    for second in [good.clone(), [changed, &good[..]].concat(), [changed, &split[..]].concat()] {
        let inside = world.inside(&rules);
        let stream = inside.connect_name("good.example", port);
        let got = conversation(&inside, &stream, &[&good, &second], retry.len()).expect("it is allowed");
        assert_eq!(got, [&good[..], &second].concat()[..got.len()]);
        assert!(got.len() > good.len());
        assert!(!inside.events().iter().any(|event| event.kind == NetworkKind::Refused));
    }
    for (second, why) in [
        (greeting(Some("evil.example")), NetworkReason::ServerNameMismatch),
        // Allowed as well, and not the one of the first greeting.
        (greeting(Some("other.example")), NetworkReason::ServerNameMismatch),
        (greeting(None), NetworkReason::ServerNameMissing),
        (b"\x16\x03\x03\0\x05\x10\0\0\x01\x09".to_vec(), NetworkReason::BadHello),
    ] {
        for before in [&b""[..], changed, b"\x17\x03\x03\0\x02\x01\x02"] {
            let inside = world.inside(&rules);
            let stream = inside.connect_name("good.example", port);
            let second = [before, &second[..]].concat();
            assert_eq!(conversation(&inside, &stream, &[&good, &second], retry.len()), None);
            assert_eq!(inside.refusal().0, why);
        }
    }
}

#[test]
fn a_second_greeting_that_comes_before_the_answer_waits_for_it() {
    use cofferdam_egress::greeting_watch::RETRY_RANDOM;
    let (sender, got) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let world = world();
    let port = serve(move |mut stream| {
        let (mut all, mut buffer) = (Vec::new(), [0u8; 65536]);
        stream.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            all.extend_from_slice(&buffer[..count]);
        }
        sender.lock().unwrap().send(all).unwrap();
        stream.write_all(&server_hello(RETRY_RANDOM)).unwrap();
        let count = stream.read(&mut buffer).unwrap_or(0);
        sender.lock().unwrap().send(buffer[..count].to_vec()).unwrap();
    });
    world.name("good.example", &["127.0.0.1"]);
    let good = greeting(Some("good.example"));
    for (name, allowed) in [("good.example", true), ("evil.example", false)] {
        let inside = world.inside(&network(&["good.example:*", "127.0.0.1:*"], &[]));
        let mut stream = inside.connect_name("good.example", port);
        stream.write_all(&[&good[..], &greeting(Some(name))].concat()).unwrap();
        assert_eq!(got.recv_timeout(SOON).unwrap(), good, "the second one is held back");
        let second = got.recv_timeout(SOON).unwrap();
        assert_eq!(second, if allowed { good.clone() } else { Vec::new() });
        if !allowed {
            assert_eq!(inside.refusal().0, NetworkReason::ServerNameMismatch);
        }
    }
}

#[test]
fn a_name_that_is_denied_does_not_pass_in_a_second_greeting_at_an_address() {
    use cofferdam_egress::greeting_watch::RETRY_RANDOM;
    let retry = server_hello(RETRY_RANDOM);
    let (world, port) = (world(), answers(vec![retry.clone()]));
    world.name("good.example", &["127.0.0.1"]);
    let rules = network(&["good.example:*", "127.0.0.1:*"], &["denied.example"]);
    let first = greeting(Some("good.example"));
    for (second, allowed) in [("good.example", true), ("denied.example", false), ("some.example", false)] {
        let inside = world.inside(&rules);
        let stream = inside.connect_name("good.example", port);
        let got = conversation(&inside, &stream, &[&first, &greeting(Some(second))], retry.len());
        assert_eq!(got.is_some(), allowed, "{second}");
    }
}

#[test]
fn handshakes_without_a_second_greeting_pass() {
    let on = server_hello([7; 32]);
    let (world, port) = (world(), answers(vec![on.clone()]));
    world.name("good.example", &["127.0.0.1"]);
    let good = greeting(Some("good.example"));
    let rules = network(&["good.example:*", "127.0.0.1:*"], &[]);
    // TLS 1.2: a key exchange, and an encrypted handshake that begins like a greeting. TLS 1.3: encrypted records.
    let key = b"\x16\x03\x03\0\x05\x10\0\0\x01\x09\x14\x03\x03\0\x01\x01\x16\x03\x03\0\x28\x01\0\0\x24";
    let encrypted = b"\x14\x03\x03\0\x01\x01\x17\x03\x03\0\x02\x16\x01\x16\x03\x03\0\x02\x01\0";
    for second in [&key[..], &encrypted[..]] {
        let inside = world.inside(&rules);
        let stream = inside.connect_name("good.example", port);
        let got = conversation(&inside, &stream, &[&good, second], on.len());
        assert_eq!(got, Some([&good[..], second].concat()));
    }
    let inside = world.inside(&rules);
    let stream = inside.connect_name("good.example", port);
    assert_eq!(conversation(&inside, &stream, &[&good, &good], on.len()), None, "which no server asks for");
    assert_eq!(inside.refusal().0, NetworkReason::BadHello);
}
