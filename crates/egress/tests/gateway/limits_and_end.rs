//! Limits, time limits, and the end of a sandbox: each is enforced to the byte, the connection or the moment.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use cofferdam_egress::event::{NetworkEvent, NetworkKind, NetworkReason};
use cofferdam_policy::Network;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{SOON, echo, is_reset, network, query, rest, serve, timed, with, world};

const MIB: usize = 1 << 20;

fn limited(change: impl Fn(&mut Network)) -> Network {
    let mut network = network(&["good.example:*", "other.example:*", "127.0.0.1:*"], &[]);
    change(&mut network);
    network
}

/// Reads everything, and answers nothing.
fn sink() -> u16 {
    serve(|mut stream| {
        let mut buffer = [0u8; 65536];
        while matches!(stream.read(&mut buffer), Ok(1..)) {}
    })
}

/// Sends so many bytes.
fn source(bytes: usize) -> u16 {
    serve(move |mut stream| {
        if stream.write_all(&vec![7u8; bytes]).is_ok() {
            stream.shutdown(Shutdown::Write).unwrap();
            assert!(stream.read(&mut [0u8; 1]).is_ok());
        }
    })
}

fn write_all_but(mut stream: &TcpStream, bytes: usize) -> Result<(), ErrorKind> {
    stream.write_all(&vec![1u8; bytes]).map_err(|error| error.kind())
}

#[test]
fn a_connection_beyond_the_limit_is_reset() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&limited(|n| (n.limits.connections, n.limits.connections_per_host) = (3, 3)));
    let mut open: Vec<TcpStream> = (0..3).map(|_| inside.connect_name("good.example", port)).collect();
    for stream in &mut open {
        stream.write_all(&[1]).unwrap();
        stream.read_exact(&mut [0u8; 1]).unwrap();
    }
    assert!(is_reset(inside.connect_name("good.example", port)));
    let (reason, event) = inside.refusal();
    assert_eq!(
        (reason, event.rule.as_deref()),
        (NetworkReason::TooManyConnections, Some("$.network.limits.connections"))
    );
    // With one fewer there is room again.
    drop(open.pop());
    inside.event(NetworkKind::Closed);
    let begun = Instant::now();
    while begun.elapsed() < SOON {
        let mut stream = inside.connect_name("good.example", port);
        if stream.write_all(&[1]).is_ok() && stream.read_exact(&mut [0u8; 1]).is_ok() {
            return;
        }
    }
    panic!("no room after a connection has ended");
}

#[test]
fn connections_to_one_host_are_limited() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    world.name("other.example", &["127.0.0.1"]);
    let inside = world.inside(&limited(|n| n.limits.connections_per_host = 2));
    let talks = |mut stream: TcpStream| {
        stream.write_all(&[1]).unwrap();
        stream.read_exact(&mut [0u8; 1]).map(|()| stream)
    };
    let open: Vec<_> = (0..2).map(|_| talks(inside.connect_name("good.example", port)).unwrap()).collect();
    assert!(is_reset(inside.connect_name("good.example", port)));
    assert_eq!(inside.refusal().1.rule.as_deref(), Some("$.network.limits.connections_per_host"));
    assert!(talks(inside.connect_name("other.example", port)).is_ok());
    assert_eq!(open.len(), 2);
}

#[test]
fn bytes_up_are_limited_exactly() {
    let (world, port) = (world(), sink());
    world.name("good.example", &["127.0.0.1"]);
    let mut inside = world.inside(&limited(|n| n.limits.up_mb = 1));
    let stream = inside.connect_name("good.example", port);
    assert_eq!(write_all_but(&stream, MIB), Ok(()));
    inside.event(NetworkKind::Allowed);
    // All bytes have passed, and the end of the stream is no byte.
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&stream), b"");
    assert_eq!(inside.event(NetworkKind::Closed).bytes_up, Some(MIB as u64));
    let stream = inside.connect_name("good.example", port);
    let refused = write_all_but(&stream, 8 * MIB).is_err() || is_reset(stream);
    assert!(refused);
    let event = inside.event_of(|event| event.reason == Some(NetworkReason::TooManyBytes));
    assert_eq!((event.kind, event.rule.as_deref()), (NetworkKind::Refused, Some("$.network.limits.up_mb")));
    assert_eq!(inside.end().bytes_up, MIB as u64);
}

#[test]
fn bytes_down_are_limited_exactly_in_all_and_per_host() {
    let (world, port) = (world(), source(3 * MIB));
    world.name("good.example", &["127.0.0.1"]);
    world.name("other.example", &["127.0.0.1"]);
    let mut inside = world.inside(&limited(|n| (n.limits.down_mb, n.limits.host_down_mb) = (3, Some(2))));
    let read = |name| {
        let mut stream = inside.connect_name(name, port);
        let (mut all, mut buffer) = (0, [0u8; 65536]);
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            all += n;
        }
        all
    };
    // What was in flight at the reset is lost to the program, but counted.
    assert!(read("good.example") <= 2 * MIB);
    let event = inside.event_of(|event| event.reason == Some(NetworkReason::TooManyBytes));
    assert_eq!(event.rule.as_deref(), Some("$.network.limits.host_down_mb"));
    assert!(read("other.example") <= MIB);
    inside.event_of(|event| event.rule.as_deref() == Some("$.network.limits.down_mb"));
    assert_eq!(inside.end().bytes_down, 3 * MIB as u64);
}

#[test]
fn bandwidth_is_limited_for_all_connections_together() {
    let (world, port) = (world(), source(MIB / 4));
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&limited(|n| n.limits.kib_per_second = Some(512)));
    let begun = Instant::now();
    let both: Vec<TcpStream> = (0..2).map(|_| inside.connect_name("good.example", port)).collect();
    for stream in &both {
        assert_eq!(rest(stream).len(), MIB / 4);
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(700), "512 KiB at 512 KiB/s in {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn one_sandbox_cannot_use_up_all_descriptors() {
    // Half of 32, of which each connection takes two.
    let (world, port) = (with(SOON, SOON, Some(32)), echo());
    world.name("good.example", &["127.0.0.1"]);
    let (greedy, other) = (world.inside(&limited(|_| {})), world.inside(&limited(|_| {})));
    let talks = |mut stream: TcpStream| {
        stream.write_all(&[1]).ok()?;
        stream.read_exact(&mut [0u8; 1]).ok().map(|()| stream)
    };
    let open: Vec<_> = (0..30).filter_map(|_| talks(greedy.connect_name("good.example", port))).collect();
    assert!((5..=8).contains(&open.len()), "{}", open.len());
    let (reason, event) = greedy.refusal();
    assert_eq!(reason, NetworkReason::TooManyConnections);
    assert!(event.detail.as_ref().is_some_and(|detail| detail.contains("ulimit -n")), "{event:?}");
    assert!(talks(other.connect_name("good.example", port)).is_some());
}

/// In a process of its own: the limit of descriptors is the whole process's.
#[test]
fn connections_wait_while_the_process_has_no_descriptors() {
    const NAME: &str = "limits_and_end::connections_wait_while_the_process_has_no_descriptors";
    const CHILD: &str = "COFFERDAM_TEST_NO_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let done = child.args([NAME, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{done:?}");
        return;
    }
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let mut inside = world.inside(&limited(|_| {}));
    let talk = |stream: &mut TcpStream| {
        stream.write_all(&[1]).and_then(|()| stream.read_exact(&mut [0u8; 1])).expect("an echo");
    };
    let mut before = inside.connect_name("good.example", port);
    talk(&mut before);
    let address = inside.resolve("good.example").expect("an address");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
    let mut fill: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    drop(fill.pop().expect("a descriptor")); // for the program's side
    let mut waiting = inside.connect((address, port));
    let event = inside.event(NetworkKind::Failed);
    assert_eq!((event.reason, event.count), (Some(NetworkReason::Gateway), 1), "{event:?}");
    assert!(event.detail.as_ref().is_some_and(|detail| detail.contains("ulimit -n")), "{event:?}");
    // Many attempts to accept it later there is nothing else to report, not even as a repeat.
    std::thread::sleep(Duration::from_millis(1500));
    let unserved = |events: &[NetworkEvent]| -> Vec<u64> {
        events
            .iter()
            .filter(|e| matches!(e.kind, NetworkKind::Failed | NetworkKind::Refused))
            .map(|e| e.count)
            .collect()
    };
    assert_eq!(unserved(&inside.events()), [1], "{:?}", inside.events());
    drop(fill);
    talk(&mut waiting);
    let traffic = inside.end();
    assert_eq!((traffic.refused, unserved(&inside.events())), (0, vec![1]), "{:?}", inside.events());
}

#[test]
fn names_are_limited() {
    let world = world();
    let mut network = network(&["*.example:443"], &[]);
    network.limits.names = 5;
    let inside = world.inside(&network);
    for i in 0..5 {
        assert!(inside.resolve(&format!("n{i}.example")).is_some(), "{i}");
    }
    assert_eq!(inside.resolve("n5.example"), None);
    assert_eq!(inside.refusal().0, NetworkReason::TooManyNames);
    assert!(inside.resolve("n0.example").is_some());
}

#[test]
fn an_incomplete_client_hello_times_out_and_silence_does_not() {
    let (world, port) = (timed(Duration::from_millis(200), SOON), echo());
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&limited(|_| {}));
    let silent = inside.connect_name("good.example", port);
    for first in [&b"GE"[..], &[22, 3, 1, 2, 0, 1, 0]] {
        let mut stream = inside.connect_name("good.example", port);
        stream.write_all(first).unwrap();
        assert!(is_reset(stream), "{first:?}");
    }
    assert_eq!(inside.refusal().0, NetworkReason::TimedOut);
    let mut silent = silent;
    silent.write_all(&[1]).unwrap();
    silent.read_exact(&mut [0u8; 1]).unwrap();
}

#[test]
fn idle_connections_are_ended_and_active_ones_are_not() {
    let (world, port) = (timed(SOON, Duration::from_millis(300)), echo());
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&limited(|_| {}));
    let idle = inside.connect_name("good.example", port);
    let mut active = inside.connect_name("good.example", port);
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(50));
        active.write_all(&[1]).unwrap();
        active.read_exact(&mut [0u8; 1]).unwrap();
    }
    idle.set_nonblocking(true).unwrap();
    assert!(is_reset(idle));
}

#[test]
fn the_end_closes_everything_at_once_and_no_event_follows() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    let mut inside = world.inside(&limited(|_| {}));
    let mut open: Vec<TcpStream> = (0..20).map(|_| inside.connect_name("good.example", port)).collect();
    for stream in &mut open {
        stream.write_all(&[1; 100]).unwrap();
        stream.read_exact(&mut [0u8; 100]).unwrap();
    }
    // Some in the middle of a ClientHello, some that have sent nothing.
    let mut middle: Vec<TcpStream> = (0..20).map(|_| inside.connect_name("good.example", port)).collect();
    middle.iter_mut().step_by(2).for_each(|stream| stream.write_all(b"GE").unwrap());
    let begun = Instant::now();
    let traffic = inside.end();
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    assert_eq!((traffic.bytes_up, traffic.bytes_down), (2000, 2000));
    let events = inside.events();
    let closed = events.iter().filter(|event| event.kind == NetworkKind::Closed && event.bytes_up == Some(100)).count();
    assert_eq!(closed, 20);
    for mut stream in open.into_iter().chain(middle) {
        assert!(matches!(stream.read(&mut [0u8; 1]), Err(_) | Ok(0)));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(inside.events().len(), events.len());
}

#[test]
fn a_connection_that_is_being_made_at_the_end_is_reported() {
    // A proxy that reads the request and never answers it.
    let (taken, requests) = std::sync::mpsc::channel();
    let taken = std::sync::Mutex::new(taken);
    let port = serve(move |mut stream| {
        let mut byte = [0u8; 1];
        stream.read_exact(&mut byte).unwrap();
        taken.lock().unwrap().send(()).unwrap();
        while stream.read(&mut [0u8; 64]).is_ok_and(|count| count > 0) {}
    });
    let world = world();
    let mut network = network(&["good.example:4443"], &[]);
    network.upstream_proxy = Some(format!("http://127.0.0.1:{port}").parse().unwrap());
    let mut inside = world.inside(&network);
    let mut stream = inside.connect_name("good.example", 4443);
    stream.write_all(&[1]).unwrap();
    requests.recv_timeout(SOON).unwrap();
    let traffic = inside.end();
    assert_eq!(traffic.connections, 0, "nothing was relayed");
    let events = inside.events();
    let reported = |event: &&NetworkEvent| {
        event.kind == NetworkKind::Failed && event.host.as_deref() == Some("good.example") && event.port == Some(4443)
    };
    assert_eq!(events.iter().filter(reported).count(), 1, "{events:?}");
}

#[test]
fn upstream_sees_a_reset_when_the_sandbox_ends() {
    let (told, ends) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let port = serve(move |mut stream| {
        let end = loop {
            match stream.read(&mut [0u8; 64]) {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error.kind()),
            }
        };
        told.lock().unwrap().send(end).unwrap();
    });
    let world = world();
    world.name("good.example", &["127.0.0.1"]);
    let mut inside = world.inside(&limited(|_| {}));
    let mut stream = inside.connect_name("good.example", port);
    stream.write_all(&[1; 100]).unwrap();
    inside.event(NetworkKind::Allowed);
    inside.end();
    assert_eq!(ends.recv_timeout(SOON).unwrap(), Some(ErrorKind::ConnectionReset));
}

#[test]
fn synthetic_addresses_are_private_to_a_sandbox() {
    let (world, port) = (world(), echo());
    world.name("good.example", &["127.0.0.1"]);
    world.name("other.example", &["127.0.0.1"]);
    let one = world.inside(&limited(|_| {}));
    let two = world.inside(&limited(|_| {}));
    let first = one.resolve("good.example").unwrap();
    // In another sandbox the same address stands for no name, or for another one.
    assert!(is_reset(two.connect(SocketAddr::new(first, port))));
    assert_eq!(two.refusal().0, NetworkReason::UnknownAddress);
    assert_eq!(two.resolve("other.example"), Some(first));
    let mut stream = two.connect(SocketAddr::new(first, port));
    stream.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0u8; 1]).unwrap();
    assert_eq!(two.event(NetworkKind::Allowed).host.as_deref(), Some("other.example"));
    assert!(one.events().is_empty());
}

#[test]
fn the_resolver_answers_by_tcp_as_well_and_forwards_nothing() {
    let world = world();
    let inside = world.inside(&network(&["good.example:443"], &[]));
    let mut stream = inside.connect(SocketAddr::from((Ipv4Addr::new(9, 9, 9, 9), 53)));
    for (name, answered) in [("good.example", true), ("bad.example", false), ("good.example", true)] {
        let query = query(name);
        stream.write_all(&u16::try_from(query.len()).unwrap().to_be_bytes()).unwrap();
        // In two parts.
        stream.write_all(&query[..5]).unwrap();
        stream.write_all(&query[5..]).unwrap();
        let mut length = [0u8; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0u8; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(crate::support::address(&answer).is_some(), answered, "{name}");
    }
    assert_eq!(inside.refusal().1.host.as_deref(), Some("bad.example"));
}
