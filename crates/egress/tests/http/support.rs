//! A gateway interface of the test's own, upstreams that record each byte, and a parser of requests that shares nothing
//! with the one under test.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_egress::event::{NetworkEvent, NetworkKind, NetworkReason, NetworkVia};
use cofferdam_egress::host_name::Name;
use cofferdam_egress::http::{
    BoxedStream, BoxedTask, CapturedHttp, Dial, Dialed, GatewayInterface, Tunnel, TunnelDial, captured,
};
use cofferdam_egress::refusal::EgressRefusal;
use cofferdam_egress::rules::{EgressTarget, Grant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// The allowed name, at every port in `PORTS`.
pub(crate) const GOOD: &str = "good.example";
pub(crate) const OTHER: &str = "other.example";
pub(crate) const PORTS: [u16; 3] = [80, 443, 8080];

pub(crate) fn name(text: &str) -> EgressTarget {
    EgressTarget::Name(Name::parse(text.as_bytes()).expect("a name"))
}

pub(crate) type Upstream = Arc<dyn Fn(DuplexStream, Noted) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Bytes that one upstream connection received.
#[derive(Clone, Default)]
pub(crate) struct Noted(Arc<Mutex<Vec<u8>>>);

impl Noted {
    pub(crate) fn add(&self, bytes: &[u8]) {
        self.0.lock().expect("bytes").extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("bytes").clone()
    }
}

/// One connection to upstream that was made.
#[derive(Clone)]
pub(crate) struct Made {
    pub target: EgressTarget,
    pub port: u16,
    pub noted: Noted,
}

/// Allows `GOOD` and `OTHER` on `PORTS`; where `ruled`, only GET of paths below `/public`.
pub(crate) struct Fake {
    pub ruled: bool,
    pub events: Mutex<Vec<NetworkEvent>>,
    pub made: Mutex<Vec<Made>>,
    pub tunnels: Mutex<Vec<(EgressTarget, u16)>>,
    pub upstream: Upstream,
    pub unreachable: bool,
}

impl Fake {
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        upstream: impl Fn(DuplexStream, Noted) -> F + Send + Sync + 'static,
    ) -> Fake {
        Fake {
            ruled: false,
            events: Mutex::default(),
            made: Mutex::default(),
            tunnels: Mutex::default(),
            upstream: Arc::new(move |stream, noted| Box::pin(upstream(stream, noted))),
            unreachable: false,
        }
    }

    pub(crate) fn unreachable() -> Fake {
        Fake { unreachable: true, ..Fake::new(|_, _| async {}) }
    }

    pub(crate) fn events(&self) -> Vec<NetworkEvent> {
        self.events.lock().expect("events").clone()
    }

    /// The reasons of all refusals, in order.
    pub(crate) fn reasons(&self) -> Vec<NetworkReason> {
        self.events()
            .iter()
            .filter(|event| event.kind != NetworkKind::ApiRequest)
            .filter_map(|event| event.reason)
            .collect()
    }

    pub(crate) fn made(&self) -> Vec<Made> {
        self.made.lock().expect("made").clone()
    }

    /// Everything that any upstream received.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.made().iter().flat_map(|made| made.noted.bytes()).collect()
    }
}

fn refusal(reason: NetworkReason) -> EgressRefusal {
    EgressRefusal { reason, rule: None, detail: None, address: None }
}

impl GatewayInterface for Fake {
    fn decide(&self, target: &EgressTarget, port: u16) -> Result<Grant, EgressRefusal> {
        if *target != name(GOOD) && *target != name(OTHER) {
            Err(refusal(NetworkReason::NotAllowed))
        } else if !PORTS.contains(&port) {
            Err(refusal(NetworkReason::PortNotAllowed))
        } else {
            Ok(Grant { inspected: self.ruled, ..grant() })
        }
    }

    fn request(&self, _: &Grant, method: &str, path: &str) -> Result<(), EgressRefusal> {
        let rule =
            |reason| EgressRefusal { reason, rule: Some("$.network.allow[0]".to_owned()), detail: None, address: None };
        if self.ruled && method != "GET" {
            Err(rule(NetworkReason::MethodNotAllowed))
        } else if self.ruled && !path.starts_with("/public") {
            Err(rule(NetworkReason::PathNotAllowed))
        } else {
            Ok(())
        }
    }

    fn dial(&self, target: &EgressTarget, port: u16, _: &Grant) -> Dial {
        if self.unreachable {
            return Box::pin(async { Err(refusal(NetworkReason::Unreachable)) });
        }
        let (ours, theirs) = duplex(16 * 1024);
        let noted = Noted::default();
        self.made.lock().expect("made").push(Made { target: target.clone(), port, noted: noted.clone() });
        tokio::spawn((self.upstream)(theirs, noted));
        Box::pin(async move { Ok(Dialed { io: Box::new(ours), address: None }) })
    }

    fn dial_tunnel(&self, target: &EgressTarget, port: u16, _: &Grant) -> TunnelDial {
        if self.unreachable {
            return Box::pin(async { Err(refusal(NetworkReason::Unreachable)) });
        }
        self.tunnels.lock().expect("tunnels").push((target.clone(), port));
        let serve = |client: BoxedStream, first: Bytes| -> BoxedTask {
            Box::pin(async move {
                // An echo, so that a test sees every byte in order.
                let mut client = client;
                client.write_all(&first).await.expect("client");
                let (mut read, mut write) = tokio::io::split(client);
                tokio::io::copy(&mut read, &mut write).await.expect("echo");
            })
        };
        Box::pin(async move { Ok(Box::new(serve) as Tunnel) })
    }

    fn event(&self, event: NetworkEvent) {
        self.events.lock().expect("events").push(event);
    }
}

pub(crate) fn grant() -> Grant {
    Grant::default()
}

/// A connection to `GOOD:80`, served by the gateway in a task.
pub(crate) fn connect(gateway: &Arc<Fake>) -> DuplexStream {
    connect_to(gateway, name(GOOD), 80)
}

pub(crate) fn connect_to(gateway: &Arc<Fake>, target: EgressTarget, port: u16) -> DuplexStream {
    let (client, ours) = duplex(16 * 1024);
    let upstream = gateway.dial(&target, port, &grant());
    let grant = Grant { inspected: gateway.ruled, ..grant() };
    let gateway: Arc<dyn GatewayInterface> = gateway.clone();
    let seat = CapturedHttp { target, port, grant, via: NetworkVia::Connect, upstream };
    tokio::spawn(captured(gateway, Box::new(ours), seat));
    client
}

/// Sends bytes, shuts down the sending side, and reads the response to its end.
pub(crate) async fn talk(client: DuplexStream, bytes: &[u8]) -> String {
    let (mut read, mut write) = tokio::io::split(client);
    let bytes = bytes.to_vec();
    let send = tokio::spawn(async move {
        // The other side may have ended the connection already.
        if write.write_all(&bytes).await.is_ok() {
            write.shutdown().await.ok();
        }
    });
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), read.read_to_end(&mut answer)).await.expect("an end").ok();
    send.abort();
    String::from_utf8_lossy(&answer).into_owned()
}

/// One request as upstream received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub line: String,
    pub headers: Fields,
    pub body: Vec<u8>,
    pub trailers: Fields,
}

impl Seen {
    pub(crate) fn get(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str()).collect()
    }
}

/// Parses requests in the simplest way: lines, lengths, chunks. Left-over bytes are an error.
pub(crate) fn read_requests(mut bytes: &[u8]) -> Result<Vec<Seen>, String> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (seen, rest) =
            read_request(bytes).ok_or_else(|| format!("unreadable: {:?}", String::from_utf8_lossy(bytes)))?;
        all.push(seen);
        bytes = rest;
    }
    Ok(all)
}

fn line(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some((String::from_utf8_lossy(&bytes[..end]).into_owned(), &bytes[end + 2..]))
}

/// Names and values.
type Fields = Vec<(String, String)>;

fn fields(mut bytes: &[u8]) -> Option<(Fields, &[u8])> {
    let mut fields = Vec::new();
    loop {
        let (text, rest) = line(bytes)?;
        bytes = rest;
        if text.is_empty() {
            return Some((fields, bytes));
        }
        let (name, value) = text.split_once(':')?;
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// The first request and what follows it; none while it is not complete.
pub(crate) fn read_request(bytes: &[u8]) -> Option<(Seen, &[u8])> {
    let (first, bytes) = line(bytes)?;
    let (headers, mut bytes) = fields(bytes)?;
    let mut seen = Seen { line: first, headers, body: Vec::new(), trailers: Vec::new() };
    if seen.get("transfer-encoding") == ["chunked"] {
        loop {
            let (size, rest) = line(bytes)?;
            let size = usize::from_str_radix(&size, 16).ok()?;
            if size == 0 {
                let (trailers, rest) = fields(rest)?;
                seen.trailers = trailers;
                return Some((seen, rest));
            }
            seen.body.extend_from_slice(rest.get(..size)?);
            bytes = rest.get(size..)?.strip_prefix(b"\r\n")?;
        }
    }
    let length: usize = seen.get("content-length").first().map_or(Some(0), |text| text.parse().ok())?;
    seen.body = bytes.get(..length)?.to_vec();
    Some((seen, &bytes[length..]))
}

/// An upstream that answers each complete request with its request line as the body, and continues.
pub(crate) async fn echo(mut stream: DuplexStream, noted: Noted) {
    let mut pending = Vec::new();
    let mut space = [0; 4096];
    loop {
        while let Some((seen, rest)) = read_request(&pending) {
            pending = rest.to_vec();
            let head = seen.line.starts_with("HEAD ");
            let body = if head { String::new() } else { seen.line.clone() };
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Up: yes\r\n\r\n{body}", seen.line.len());
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
        match stream.read(&mut space).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                noted.add(&space[..count]);
                pending.extend_from_slice(&space[..count]);
            }
        }
    }
}
