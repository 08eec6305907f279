//! What a program was allowed is on record whatever it is refused before: in the outcome, among the violations and in the
//! audit trail.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use cofferdam_engine::audit::{Anchored, Trail, TrailOptions, verify};
use cofferdam_engine::audited_run::RunDetails;
use cofferdam_engine::{Ending, Engine, Io, NetworkEvent, NetworkKind, Outcome, Output};
use cofferdam_policy::{Field, NetworkMode, Policy};
use serde_json::{Map, Value};

const PORT: u16 = 2222;
const ALLOWED: &str = "allowed.example";

/// Is refused thousands of hosts for three seconds, if asked to; then sends seven bytes to a host that is allowed, and tries
/// a cloud's metadata service.
const PROGRAM: &str = r#"
import socket, sys, time
begun, n = time.time(), 0
while sys.argv[1] == "flood" and (time.time() - begun < 3 or n < 2000):
    n += 1
    c = socket.create_connection(("127.0.0.1", 3128))
    c.sendall(b"CONNECT 8.%d.%d.8:443 HTTP/1.1\r\nHost: x\r\n\r\n" % (n >> 8 & 255, n & 255))
    c.recv(300)
    c.close()
out = socket.create_connection(("allowed.example", 2222))
out.sendall(b"\0SECRET")
print(out.recv(100).decode(), flush=True)
out.close()
try:
    metadata = socket.socket()
    metadata.settimeout(5)
    metadata.connect(("169.254.169.254", 80))
    metadata.recv(1)
except OSError as e:
    print("refused", flush=True)
"#;

/// A proxy of the host's, which answers for every host that it is asked for.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|n| n > 2) {}
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    url
}

type Records = Vec<(String, Map<String, Value>)>;

/// `None`, and why, where there is no jail.
fn run(how: &str) -> Option<(Outcome, Records)> {
    let mut policy = Policy::base();
    policy.command.argv = ["/usr/bin/python3", "-c", PROGRAM, how].map(str::to_owned).to_vec();
    policy.limits.wall_ms = 60_000;
    policy.network.mode = NetworkMode::Allowlist;
    policy.network.allow = vec![format!("{ALLOWED}:{PORT}").parse().unwrap()];
    policy.network.upstream_proxy = Some(upstream().parse().unwrap());
    policy.allow_partial(Field::UpstreamProxy);
    let prepared = match Engine::probe().prepare(&policy) {
        Ok(prepared) => prepared,
        Err(failure) => {
            eprintln!("skipped: {}", failure.message);
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "{failure:?}");
            return None;
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let trail = Trail::open(&dir.path().join("audit"), TrailOptions::default()).unwrap();
    let io = Io { output: Output::Capture, ..Io::default() };
    let outcome = prepared.run_recorded(io, &policy, &trail, RunDetails::default()).unwrap();
    let mut records = Vec::new();
    verify(trail.path(), None, &Anchored::new(), &mut |r| records.push((r.kind.clone(), r.data.clone()))).unwrap();
    Some((outcome, records))
}

#[track_caller]
fn is_on_record(o: &Outcome, records: &Records) {
    assert_eq!((o.outcome, o.stdout.as_str()), (Ending::Exited, "hello\nrefused\n"), "{}", o.stderr);
    let network = o.network.as_ref().unwrap();
    assert_eq!(network.connections, 1);
    let of = |kind| {
        let matches = move |e: &&NetworkEvent| e.kind == kind && e.host.as_deref() == Some(ALLOWED);
        network.events.iter().filter(matches).collect::<Vec<_>>()
    };
    assert_eq!(of(NetworkKind::Allowed).len(), 1, "{:?}", network.events.last());
    assert_eq!(of(NetworkKind::Closed).iter().map(|e| e.bytes_up).collect::<Vec<_>>(), [Some(7)]);
    let metadata = network.events.iter().filter(|e| e.address.is_some_and(|a| a.to_string() == "169.254.169.254"));
    assert_eq!(metadata.map(|e| e.kind).collect::<Vec<_>>(), [NetworkKind::Refused]);
    let counted: u64 = network.events.iter().filter(|e| e.kind == NetworkKind::Refused).map(|e| e.count).sum();
    assert_eq!(counted, network.refused, "every refusal is counted somewhere");
    let aggregated: u64 = network.events.iter().filter(|e| e.aggregated).map(|e| e.count).sum();
    assert_eq!(aggregated, network.lost);
    assert!(o.violations.iter().any(|v| v.object.as_deref() == Some("169.254.169.254:80")), "{:?}", o.violations);

    let attempt = |kind: &str, (key, value): (&str, &str)| {
        let is = |data: &&Map<String, Value>| data["kind"] == kind && data.get(key).is_some_and(|v| v == value);
        records.iter().filter(|(kind, _)| kind == "network_attempt").map(|(_, data)| data).filter(is).count()
    };
    assert_eq!((attempt("allowed", ("host", ALLOWED)), attempt("closed", ("host", ALLOWED))), (1, 1));
    assert_eq!(attempt("refused", ("address", "169.254.169.254")), 1);
    let (kind, end) = records.last().unwrap();
    assert_eq!((kind.as_str(), end.get("eventsLost")), ("sandbox_completed", None));
    assert_eq!(end["network"]["connections"], 1);
    assert_eq!(end["network"]["refused"], network.refused);
}

#[test]
fn thousands_of_refusals_hide_nothing_that_was_allowed() {
    let Some((o, records)) = run("flood") else { return };
    is_on_record(&o, &records);
    let network = o.network.unwrap();
    assert!(network.refused > 2000, "{}", network.refused);
    assert!(network.events.len() < 2000, "{}", network.events.len());
    assert!(network.lost > 0 && !o.violations_complete);
}

#[test]
fn the_same_without_a_flood_is_all_of_it() {
    let Some((o, records)) = run("quiet") else { return };
    is_on_record(&o, &records);
    let network = o.network.unwrap();
    assert_eq!((network.refused, network.lost), (1, 0));
}
