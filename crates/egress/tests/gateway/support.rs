//! A gateway with a sandbox whose sockets are ordinary ones of this host: a connection to 127.77.x.y counts as one to
//! the address that the test maps it to. Upstreams are listeners of the test on loopback.

use std::collections::HashMap;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam_egress::event::{NetworkEvent, NetworkKind, NetworkReason};
use cofferdam_egress::gateway::{Attached, EgressJob, Gateway, Settings, Traffic};
use cofferdam_egress::host_name::Name;
use cofferdam_egress::host_resolver::{Addresses, Resolve, unresolved};
use cofferdam_egress::layout::{LayoutSocket, SocketLayout};
use cofferdam_egress::rules::EgressRules;
use cofferdam_policy::{Network, NetworkMode};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

/// Time limit for anything that is expected to happen.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Names to which the test gives addresses.
#[derive(Default)]
pub(crate) struct Fixed(pub Mutex<HashMap<String, Vec<IpAddr>>>);

impl Resolve for Fixed {
    fn addresses(&self, name: &Name) -> Addresses {
        let found = self.0.lock().unwrap().get(name.as_str()).cloned();
        Box::pin(async move { found.ok_or_else(|| unresolved("there is no such name")) })
    }
}

type Places = Arc<Mutex<Vec<SocketAddr>>>;

/// A gateway, and what its sandboxes share.
pub(crate) struct World {
    gateway: Gateway,
    places: Places,
    pub names: Arc<Fixed>,
}

/// One sandbox.
pub(crate) struct Inside {
    attached: Option<Attached>,
    events: Arc<Mutex<Vec<NetworkEvent>>>,
    places: Places,
    port: u16,
    resolver: SocketAddr,
}

pub(crate) fn world() -> World {
    timed(Duration::from_secs(5), Duration::from_secs(60))
}

/// With other time limits for first messages and idle connections.
pub(crate) fn timed(greeting: Duration, idle: Duration) -> World {
    with(greeting, idle, None)
}

/// With this many descriptors for connections.
pub(crate) fn with(greeting: Duration, idle: Duration, descriptors: Option<usize>) -> World {
    let places = Places::default();
    let names = Arc::<Fixed>::default();
    let at = Arc::clone(&places);
    let destination = move |local: SocketAddr| match local.ip() {
        IpAddr::V4(ip) if ip.octets()[1] == 77 => {
            at.lock().unwrap()[usize::from(u16::from_be_bytes([ip.octets()[2], ip.octets()[3]]))]
        }
        _ => local,
    };
    let settings = Settings {
        resolve: Arc::clone(&names) as Arc<dyn Resolve>,
        destination: Some(Arc::new(destination)),
        greeting,
        idle,
        descriptors,
    };
    World { gateway: Gateway::with(settings).unwrap(), places, names }
}

/// A policy's network that allows and denies.
pub(crate) fn network(allow: &[&str], deny: &[&str]) -> Network {
    Network {
        mode: NetworkMode::Allowlist,
        allow: allow.iter().map(|entry| entry.parse().unwrap()).collect(),
        deny: deny.iter().map(|entry| entry.parse().unwrap()).collect(),
        ..Network::none()
    }
}

fn send(letters: &OwnedFd, fds: &[BorrowedFd<'_>]) {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(letters, &[IoSlice::new(&4u32.to_ne_bytes())], &mut control, SendFlags::NOSIGNAL).unwrap();
}

impl World {
    /// A sandbox whose sockets have not been sent: this socket would send them.
    pub(crate) fn waiting(&self, network: &Network) -> (Inside, OwnedFd) {
        let mut inside = self.inside(network);
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        inside.attached = Some(self.attach(network, ours, &inside.events));
        (inside, theirs)
    }

    fn attach(&self, network: &Network, letters: OwnedFd, events: &Arc<Mutex<Vec<NetworkEvent>>>) -> Attached {
        let told = Arc::clone(events);
        let layout =
            SocketLayout { sockets: vec![LayoutSocket::Resolver, LayoutSocket::Listener(80)], redirected: Vec::new() };
        let rules = Arc::new(EgressRules::compile(network));
        let sink = Arc::new(move |event| told.lock().unwrap().push(event));
        self.gateway.attach(letters, EgressJob::new(network, rules, layout, sink, None).unwrap())
    }

    /// A sandbox with these rules.
    pub(crate) fn inside(&self, network: &Network) -> Inside {
        self.begun(network, |_| {})
    }

    /// A sandbox whose program has done something before the gateway receives the sockets.
    pub(crate) fn begun(&self, network: &Network, begin: impl FnOnce(&Inside)) -> Inside {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let resolver = UdpSocket::bind("127.0.0.1:0").unwrap();
        cofferdam_confine::datagram::receive_destinations(resolver.as_fd(), false).unwrap();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut inside = Inside {
            attached: None,
            events: Arc::default(),
            places: Arc::clone(&self.places),
            port: listener.local_addr().unwrap().port(),
            resolver: resolver.local_addr().unwrap(),
        };
        begin(&inside);
        // In two messages: a sandbox with many sockets has several.
        send(&theirs, &[resolver.as_fd()]);
        send(&theirs, &[listener.as_fd()]);
        inside.attached = Some(self.attach(network, ours, &inside.events));
        inside
    }

    /// Gives a name addresses.
    pub(crate) fn name(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.names.0.lock().unwrap().insert(name.to_owned(), addresses);
    }
}

impl Inside {
    /// Connects as a program would that connects to this address.
    pub(crate) fn connect(&self, to: impl Into<SocketAddr>) -> TcpStream {
        let mut places = self.places.lock().unwrap();
        let [high, low] = u16::try_from(places.len()).unwrap().to_be_bytes();
        places.push(to.into());
        drop(places);
        let stream = match TcpStream::connect((Ipv4Addr::new(127, 77, high, low), self.port)) {
            // The gateway was faster than the program, which then sees the reset at once.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => cut_off(),
            connected => connected.unwrap(),
        };
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Connects as a program would that asks the resolver first.
    pub(crate) fn connect_name(&self, name: &str, port: u16) -> TcpStream {
        let address = self.resolve(name).unwrap_or_else(|| panic!("{name} is not allowed"));
        self.connect((address, port))
    }

    /// The address of the resolver.
    pub(crate) fn resolver(&self) -> SocketAddr {
        self.resolver
    }

    /// Asks the resolver for an IPv4 address.
    pub(crate) fn resolve(&self, name: &str) -> Option<IpAddr> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut answer = [0u8; 1500];
        // As every client does: a datagram may be lost.
        for _ in 0..5 {
            socket.send_to(&query(name), self.resolver).unwrap();
            if let Ok((length, from)) = socket.recv_from(&mut answer) {
                assert_eq!(from, self.resolver);
                return address(&answer[..length]);
            }
        }
        panic!("no answer for {name}");
    }

    /// The events so far.
    pub(crate) fn events(&self) -> Vec<NetworkEvent> {
        self.events.lock().unwrap().clone()
    }

    /// Waits for the first event of a kind.
    pub(crate) fn event(&self, kind: NetworkKind) -> NetworkEvent {
        self.event_of(|event| event.kind == kind)
    }

    /// Waits for a refusal.
    pub(crate) fn refusal(&self) -> (NetworkReason, NetworkEvent) {
        let event = self.event_of(|event| matches!(event.kind, NetworkKind::Refused | NetworkKind::Failed));
        (event.reason.unwrap(), event)
    }

    /// Waits for the first event that matches.
    pub(crate) fn event_of(&self, is: impl Fn(&NetworkEvent) -> bool) -> NetworkEvent {
        let begun = Instant::now();
        loop {
            if let Some(event) = self.events().into_iter().find(&is) {
                return event;
            }
            assert!(begun.elapsed() < SOON, "only {:#?}", self.events());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it.
    pub(crate) fn end(&mut self) -> Traffic {
        self.attached.take().unwrap().end()
    }
}

/// A query for an IPv4 address.
pub(crate) fn query(name: &str) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    query
}

/// The IPv4 address of an answer with one.
pub(crate) fn address(answer: &[u8]) -> Option<IpAddr> {
    (answer[7] == 1).then(|| {
        let last: [u8; 4] =
            answer[..answer.len()].windows(6).rev().find(|w| w[..2] == [0, 4]).unwrap()[2..].try_into().unwrap();
        IpAddr::from(last)
    })
}

/// A connection that was reset.
fn cut_off() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    rustix::net::sockopt::set_socket_linger(&other, Some(Duration::ZERO)).unwrap();
    stream
}

/// Whether the other side reset the connection, or had refused it before.
pub(crate) fn is_reset(mut stream: TcpStream) -> bool {
    matches!(stream.read(&mut [0u8; 64]), Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// Reads to the end.
pub(crate) fn rest(mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// A server that answers each connection's every byte by itself, at a port of loopback.
pub(crate) fn echo() -> u16 {
    serve(|mut stream| {
        let mut buffer = [0u8; 65536];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..n]).is_err() {
                return;
            }
        }
    })
}

/// A server that does this with each connection.
pub(crate) fn serve(with: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let with = Arc::new(with);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let with = Arc::clone(&with);
            std::thread::spawn(move || with(stream));
        }
    });
    port
}
