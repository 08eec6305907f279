//! Hostile programs and servers: they occupy their own share, and do not affect other sandboxes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use cofferdam_egress::event::{NetworkKind, NetworkReason, NetworkVia};

use rustix::process::Signal;

use crate::support::{SOON, echo, is_reset, network, serve, timed, world};

fn hello(name: &str) -> Vec<u8> {
    padded(name, 0)
}

/// A ClientHello with this many bytes of padding.
fn padded(name: &str, padding: usize) -> Vec<u8> {
    let name = name.as_bytes();
    let length = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
    let server = [&length(name.len() + 3)[..], &[0], &length(name.len()), name].concat();
    let extensions = match name.is_empty() {
        true => vec![0, 10, 0, 4, 0, 2, 0, 29],
        false => [&[0, 0][..], &length(server.len()), &server].concat(),
    };
    let extensions = match padding {
        0 => extensions,
        _ => [&extensions[..], &[0, 21], &length(padding), &vec![0; padding]].concat(),
    };
    let body = [&[3, 3][..], &[9; 32], &[0, 0, 2, 0x13, 1, 1, 0], &length(extensions.len()), &extensions].concat();
    let message = [&[1, 0][..], &length(body.len()), &body].concat();
    [&[22, 3, 1][..], &length(message.len()), &message].concat()
}

#[test]
fn a_client_hello_passes_whole_for_its_own_name_only() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let own = hello("good.example");
    let mut stream = inside.connect_name("good.example", port);
    // In pieces, each sent after the gateway has read the one before.
    for piece in own.chunks(own.len() / 3) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut back = vec![0u8; own.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, own);
    for (name, why) in [("bad.example", NetworkReason::ServerNameMismatch), ("", NetworkReason::ServerNameMissing)] {
        let mut stream = inside.connect_name("good.example", port);
        stream.write_all(&hello(name)).unwrap();
        assert!(is_reset(stream), "{name}");
        let event = inside.event_of(|event| event.reason == Some(why));
        assert_eq!((event.kind, event.host.as_deref()), (NetworkKind::Refused, Some("good.example")));
    }
}

#[test]
fn a_long_client_hello_in_small_pieces_is_cheap() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let long = padded("good.example", 15_000);
    let mut stream = inside.connect_name("good.example", port);
    stream.set_nodelay(true).unwrap();
    let begun = Instant::now();
    long.chunks(10).for_each(|piece| stream.write_all(piece).unwrap());
    let mut back = vec![0u8; long.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == long && begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn nothing_of_a_refused_client_hello_reaches_upstream() {
    let (told, got) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let port = serve(move |mut stream| {
        let mut all = Vec::new();
        let mut buffer = [0u8; 1024];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            all.extend_from_slice(&buffer[..n]);
        }
        told.lock().unwrap().send(all).unwrap();
    });
    let world = world();
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    for first in [hello("bad.example"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), vec![22, 3, 1, 0, 1, 2]] {
        let mut stream = inside.connect_name("good.example", port);
        stream.write_all(&first).unwrap();
        assert!(is_reset(stream));
        assert_eq!(got.recv_timeout(SOON).unwrap(), b"");
    }
    let mut stream = inside.connect_name("good.example", port);
    stream.write_all(b"\x01fine").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(got.recv_timeout(SOON).unwrap(), b"\x01fine");
}

fn socks(inside: &crate::support::Inside, request: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut stream = inside.connect((Ipv4Addr::LOCALHOST, 1080));
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0u8; 2];
    stream.read_exact(&mut method).unwrap();
    assert_eq!(method, [5, 0]);
    stream.write_all(request).unwrap();
    let mut reply = vec![0u8; 10];
    stream.read_exact(&mut reply).unwrap();
    (stream, reply)
}

fn socks_to(name: &str, port: u16) -> Vec<u8> {
    [&[5, 1, 0, 3, name.len() as u8][..], name.as_bytes(), &port.to_be_bytes()].concat()
}

#[test]
fn the_socks_proxy_reaches_what_a_connection_would() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let (mut stream, reply) = socks(&inside, &socks_to("GOOD.example.", port));
    assert_eq!(reply[1], 0);
    stream.write_all(&[1, 2, 3]).unwrap();
    let mut back = [0u8; 3];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, [1, 2, 3]);
    assert_eq!(inside.event(NetworkKind::Allowed).via, NetworkVia::Socks);
    // The tunnel's first bytes are checked like those of any connection.
    let (mut stream, reply) = socks(&inside, &socks_to("good.example", port));
    assert_eq!(reply[1], 0);
    stream.write_all(&hello("bad.example")).unwrap();
    assert!(is_reset(stream));
    inside.event_of(|event| event.reason == Some(NetworkReason::ServerNameMismatch) && event.via == NetworkVia::Socks);
    // A synthetic address is the name it stands for.
    let synthetic = inside.resolve("good.example").unwrap();
    let std::net::IpAddr::V4(synthetic) = synthetic else { panic!("{synthetic}") };
    let request = [&[5, 1, 0, 1][..], &synthetic.octets(), &port.to_be_bytes()].concat();
    assert_eq!(socks(&inside, &request).1[1], 0);
    for (request, why) in [
        (socks_to("bad.example", port), NetworkReason::NotAllowed),
        (socks_to("good.example", 1), NetworkReason::PortNotAllowed),
        (socks_to("127.0.0.1", port), NetworkReason::AddressNotPublic),
        (socks_to("0x7f.1", port), NetworkReason::BadName),
        (socks_to("localhost", port), NetworkReason::BadName),
        ([&[5, 1, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat(), NetworkReason::AddressNotPublic),
        ([&[5, 2, 0, 1, 9, 9, 9, 9][..], &port.to_be_bytes()].concat(), NetworkReason::BadProxyRequest),
    ] {
        let (mut stream, reply) = socks(&inside, &request);
        assert_ne!(reply[1], 0, "{request:?}");
        assert!(matches!(stream.read(&mut [0u8; 1]), Ok(0) | Err(_)));
        inside.event_of(|event| event.reason == Some(why) && event.via == NetworkVia::Socks);
    }
}

#[test]
fn a_flood_of_refused_connections_leaves_others_working() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let network = network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]);
    let (mut flooding, calm) = (world.inside(&network), world.inside(&network));
    let first = calm.connect_name("good.example", port);
    drop(first);
    let (made, slowest) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let begun = Instant::now();
            let mut made = 0u64;
            while made < 10_000 && begun.elapsed() < Duration::from_secs(4) {
                drop(flooding.connect((Ipv4Addr::new(93, 184, 216, 34), 443)));
                made += 1;
            }
            made
        });
        let mut slowest = Duration::ZERO;
        while !flood.is_finished() {
            let begun = Instant::now();
            let mut stream = calm.connect_name("good.example", port);
            stream.write_all(&[1]).unwrap();
            stream.read_exact(&mut [0u8; 1]).unwrap();
            slowest = slowest.max(begun.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        (flood.join().unwrap(), slowest)
    });
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    let events = flooding.events().len();
    let traffic = flooding.end();
    assert!(events < 1000, "{events} events");
    assert_eq!(traffic.connections, 0);
    // Beyond the first burst it is the flood that waits; what is in the backlog at the end was never accepted.
    assert!(made > 300, "{made}");
    assert!((made - 300..=made).contains(&traffic.refused), "{traffic:?} of {made}");
}

#[test]
fn slow_clients_occupy_only_their_connections() {
    let (world, port) = (timed(Duration::from_millis(400), SOON), echo());
    world.name("good.example", &["127.0.0.1"]);
    let network = network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]);
    let inside = world.inside(&network);
    // More than the number whose first bytes are read at once.
    let mut slow: Vec<TcpStream> = (0..64).map(|_| inside.connect_name("good.example", port)).collect();
    let begun = Instant::now();
    let hello = hello("good.example");
    for byte in hello.iter().take(3) {
        for stream in &mut slow {
            // It may have been ended already.
            stream.write_all(&[*byte]).ok();
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    for stream in slow {
        assert!(matches!((&stream).read(&mut [0u8; 1]), Err(_) | Ok(0)));
    }
    assert!(begun.elapsed() < SOON);
    let mut stream = inside.connect_name("good.example", port);
    stream.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0u8; 1]).unwrap();
}

#[test]
fn a_flood_of_interim_responses_blocks_only_its_connection() {
    let flood = serve(|mut stream| {
        let mut request = [0; 4096];
        let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(2000);
        if !matches!(stream.read(&mut request), Ok(1..)) {
            return;
        }
        (0..2000).take_while(|_| stream.write_all(&interim).is_ok()).for_each(drop);
    });
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let network = network(&["good.example:*", "127.0.0.1:*"], &[]);
    let (mut hostile, calm) = (world.inside(&network), world.inside(&network));
    let request = format!("GET / HTTP/1.1\r\nHost: good.example:{flood}\r\n\r\n");
    let connections: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = hostile.connect_name("good.example", flood);
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    let begun = Instant::now();
    let mut stream = calm.connect_name("good.example", port);
    stream.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0u8; 1]).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let event = hostile.event(NetworkKind::Failed);
    assert_eq!(event.reason, Some(NetworkReason::Gateway));
    assert!(event.detail.unwrap().contains("interim responses"));
    let begun = Instant::now();
    hostile.end();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    drop(connections);
}

#[test]
fn a_client_that_never_reads_blocks_only_itself() {
    let world = world();
    let flood = serve(|mut stream| while stream.write_all(&[7u8; 65536]).is_ok() {});
    let port = echo();
    world.name("good.example", &["127.0.0.1"]);
    let mut inside = world.inside(&network(&["good.example:*", "127.0.0.1:*"], &[]));
    let stuck: Vec<TcpStream> = (0..40).map(|_| inside.connect_name("good.example", flood)).collect();
    std::thread::sleep(Duration::from_millis(300));
    let mut stream = inside.connect_name("good.example", port);
    stream.write_all(&[1; 5000]).unwrap();
    stream.read_exact(&mut [0u8; 5000]).unwrap();
    let begun = Instant::now();
    inside.end();
    assert!(begun.elapsed() < Duration::from_secs(1));
    drop(stuck);
}

#[test]
fn a_silent_upstream_occupies_only_its_connection() {
    // A full backlog: the connection is never made.
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = full.local_addr().unwrap().port();
    rustix::net::listen(&full, 0).unwrap();
    let _waiting: Vec<TcpStream> = (0..2)
        .filter_map(|_| TcpStream::connect_timeout(&full.local_addr().unwrap(), Duration::from_millis(300)).ok())
        .collect();
    let world = world();
    world.name("good.example", &["127.0.0.1"]);
    let mut inside = world.inside(&network(&["good.example:*", "127.0.0.1:*"], &[]));
    let stream = inside.connect_name("good.example", port);
    let other = echo();
    let mut fine = inside.connect_name("good.example", other);
    fine.write_all(&[1]).unwrap();
    fine.read_exact(&mut [0u8; 1]).unwrap();
    let begun = Instant::now();
    inside.end();
    assert!(begun.elapsed() < Duration::from_millis(500));
    assert!(matches!((&stream).read(&mut [0u8; 1]), Err(_) | Ok(0)));
}

#[test]
fn resets_in_every_state_leak_nothing() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let mut inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let hello = hello("good.example");
    let states: [&[u8]; 8] = [
        b"",
        b"G",
        b"GET / HTTP/1.1\r\n",
        &hello[..7],
        &hello,
        b"\x01opaque",
        b"SSH-2.0-x\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
    ];
    for round in 0..20 {
        for state in states {
            let mut stream = inside.connect_name("good.example", port);
            // The gateway may have reset it in between.
            stream.write_all(state).ok();
            if round % 2 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            if round % 3 != 0 {
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
        }
    }
    let mut stream = inside.connect_name("good.example", port);
    stream.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0u8; 1]).unwrap();
    let begun = Instant::now();
    let traffic = inside.end();
    assert!(begun.elapsed() < Duration::from_secs(1));
    let events = inside.events();
    let count = |kind| events.iter().filter(|event| event.kind == kind).count() as u64;
    assert_eq!((count(NetworkKind::Allowed), count(NetworkKind::Closed)), (traffic.connections, traffic.connections));
}

#[test]
fn the_resolver_survives_floods_and_malformed_queries() {
    let world = world();
    let inside = world.inside(&network(&["good.example:443"], &[]));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let resolver: SocketAddr = inside.resolver();
    for i in 0..3000usize {
        let nonsense: Vec<u8> = (0..i % 600).map(|k| (k * 31 + i) as u8).collect();
        socket.send_to(&nonsense, resolver).unwrap();
    }
    assert!(inside.resolve("good.example").is_some());
    assert!(inside.events().len() < 1100);
}

#[test]
fn missing_sockets_are_reported_and_do_not_delay_the_end() {
    let world = world();
    let (mut inside, letters) = world.waiting(&network(&["good.example:443"], &[]));
    drop(letters);
    let event = inside.event(NetworkKind::Failed);
    assert_eq!(event.reason, Some(NetworkReason::Gateway));
    inside.end();
    let (mut inside, letters) = world.waiting(&network(&["good.example:443"], &[]));
    let begun = Instant::now();
    inside.end();
    assert!(begun.elapsed() < Duration::from_millis(500));
    drop(letters);
}

/// Writing to a socket whose peer is gone may raise SIGPIPE, and the caller's process may have any handler for it.
#[test]
fn gateway_threads_block_signals_of_the_process() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let mut stream = inside.connect_name("good.example", port);
    stream.write_all(b"here\n").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    let mut threads = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // The numbers of other tests vary.
        let read = |file| std::fs::read_to_string(task.as_ref().unwrap().path().join(file)).unwrap_or_default();
        let status = read("status");
        if !read("comm").starts_with("egress") || status.is_empty() {
            continue;
        }
        threads += 1;
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
        let blocked = u64::from_str_radix(blocked, 16).unwrap();
        for signal in [Signal::PIPE, Signal::TERM, Signal::CHILD].map(Signal::as_raw) {
            assert_ne!(blocked & 1 << (signal - 1), 0, "signal {signal}: {blocked:x}");
        }
    }
    assert!(threads > 0);
}

#[test]
fn a_connection_without_bytes_is_reported() {
    let (told, accepted) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let port = serve(move |mut stream| {
        told.lock().unwrap().send(()).unwrap();
        while let Ok(1..) = stream.read(&mut [0; 64]) {}
    });
    let world = world();
    world.name("good.example", &["127.0.0.1"]);
    let mut inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let gone = inside.connect_name("good.example", port);
    accepted.recv_timeout(SOON).unwrap();
    // The gateway sees it a little later than the server.
    std::thread::sleep(Duration::from_millis(200));
    rustix::net::sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
    drop(gone);
    let closed = inside.event(NetworkKind::Closed);
    assert_eq!((closed.bytes_up, closed.bytes_down), (Some(0), Some(0)));
    // The same if the sandbox ends meanwhile.
    let _open = inside.connect_name("good.example", port);
    accepted.recv_timeout(SOON).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(inside.end().connections, 2);
    let kinds: Vec<NetworkKind> = inside.events().iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [NetworkKind::Allowed, NetworkKind::Closed, NetworkKind::Allowed, NetworkKind::Closed]);
}

#[test]
fn an_abandoned_attempt_is_reported() {
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = full.local_addr().unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    let _waiting: Vec<TcpStream> = (0..2).filter_map(connect).collect();
    let world = world();
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&["good.example:*", "127.0.0.1:*"], &[]));
    let gone = inside.connect_name("good.example", address.port());
    std::thread::sleep(Duration::from_millis(100));
    rustix::net::sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
    drop(gone);
    let event = inside.event(NetworkKind::Failed);
    assert_eq!((event.reason, event.host.as_deref()), (Some(NetworkReason::Unreachable), Some("good.example")));
}
