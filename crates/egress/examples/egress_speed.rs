//! How fast the gateway is beside no gateway: one stream, a connection, a refusal, and the memory of a thousand.
//!
//! Everything is on loopback, in one process: `unshare -rn sh -c 'ip link set lo up; egress_speed'`. The sandbox's
//! listener is an ordinary one; what a connection to it was made to is said by this program, as in the tests.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam_egress::gateway::{Attached, EgressJob, Gateway, Settings};
use cofferdam_egress::host_name::Name;
use cofferdam_egress::host_resolver::{Addresses, Resolve};
use cofferdam_egress::layout::{LayoutSocket, SocketLayout};
use cofferdam_egress::rules::EgressRules;
use cofferdam_policy::{Network, NetworkMode};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

/// A resolver by which every name is this host.
struct Here;

impl Resolve for Here {
    fn addresses(&self, _: &Name) -> Addresses {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }
}

/// A sandbox's side of the gateway. A connection to 127.77.0.N is one to the Nth place.
struct Inside {
    attached: Attached,
    _gateway: Gateway,
    port: u16,
}

impl Inside {
    fn new(connections: u64, places: Arc<Mutex<Vec<SocketAddr>>>) -> Inside {
        let destination = move |local: SocketAddr| match local.ip() {
            IpAddr::V4(ip) if ip.octets()[1] == 77 => places.lock().unwrap()[usize::from(ip.octets()[3])],
            _ => local,
        };
        let settings =
            Settings { destination: Some(Arc::new(destination)), resolve: Arc::new(Here), ..Settings::default() };
        let gateway = Gateway::with(settings).unwrap();
        let allow = ["good.example:*", "127.0.0.1:*"].map(|entry| entry.parse().unwrap()).to_vec();
        let mut network = Network { mode: NetworkMode::Allowlist, allow, ..Network::none() };
        (network.limits.connections, network.limits.connections_per_host) = (connections, connections);
        (network.limits.up_mb, network.limits.down_mb) = (1 << 30, 1 << 30);
        let rules = Arc::new(EgressRules::compile(&network));
        let layout = SocketLayout { sockets: vec![LayoutSocket::Listener(80)], redirected: Vec::new() };
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let attached = gateway.attach(ours, EgressJob::new(&network, rules, layout, Arc::new(drop), None).unwrap());
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let fds = [listener.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&theirs, &[IoSlice::new(&[0; 4])], &mut control, SendFlags::NOSIGNAL).unwrap();
        Inside { attached, _gateway: gateway, port: listener.local_addr().unwrap().port() }
    }

    fn place(&self, number: u8) -> SocketAddr {
        SocketAddr::from(([127, 77, 0, number], self.port))
    }
}

/// Asks the resolver, by TCP, for the name that stands for this host.
fn synthetic(resolver: SocketAddr) -> IpAddr {
    let mut query = vec![0, 30, 0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend(b"\x04good\x07example\0\0\x01\0\x01");
    let mut stream = TcpStream::connect(resolver).unwrap();
    stream.write_all(&query).unwrap();
    let mut length = [0u8; 2];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0u8; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer).unwrap();
    let record = answer.windows(6).rposition(|bytes| bytes[..2] == [0, 4]).unwrap();
    let octets: [u8; 4] = answer[record + 2..record + 6].try_into().unwrap();
    IpAddr::from(octets)
}

fn serve(with: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_nodelay(true).unwrap();
            std::thread::Builder::new().stack_size(256 << 10).spawn(move || with(stream)).unwrap();
        }
    });
    address
}

/// Seconds that threads of this process have run: those of the gateway, and the others.
fn ran() -> [f64; 2] {
    let mut ran = [0.0; 2];
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let time: f64 = read("schedstat").split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0);
        ran[usize::from(read("comm").trim() != "egress")] += time / 1e9;
    }
    ran
}

/// GiB/s of one stream, for a second and a half; and for each GiB the seconds of processor time of the gateway's
/// threads, and of the client and the server, which a busy host changes less.
fn stream(to: SocketAddr) -> (f64, [f64; 2]) {
    let before = ran();
    let mut stream = TcpStream::connect(to).unwrap();
    let (mut buffer, mut all) = (vec![0u8; 256 << 10], 0u64);
    stream.write_all(&[1]).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        all += stream.read(&mut buffer).unwrap() as u64;
    }
    let (gib, after) = (all as f64 / f64::from(1 << 30), ran());
    (gib / begun.elapsed().as_secs_f64(), [0, 1].map(|i| (after[i] - before[i]) / gib))
}

fn streams(source: SocketAddr, inside: &Inside) {
    let ((direct, [_, ends]), (through, [gateway, others])) = (stream(source), stream(inside.place(1)));
    println!("one stream: direct {direct:.2} GiB/s, through {through:.2} GiB/s, {:.2}", through / direct);
    println!("            direct {ends:.2} s/GiB, through {others:.2} s/GiB and the gateway's {gateway:.2}");
}

/// Connecting, and one byte there and back.
fn greet(to: SocketAddr) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    begun.elapsed()
}

fn refused(to: SocketAddr) -> Duration {
    let begun = Instant::now();
    if let Ok(mut stream) = TcpStream::connect(to) {
        assert!(stream.read(&mut [0]).is_err());
    }
    begun.elapsed()
}

fn quantiles(mut of: Vec<Duration>) -> String {
    of.sort();
    let at = |share: f64| of[(of.len() as f64 * share) as usize].as_secs_f64() * 1e3;
    format!("p50 {:.3} ms, p99 {:.3} ms", at(0.5), at(0.99))
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn main() {
    let only = std::env::args().nth(1);
    let source = serve(|mut stream| {
        let data = vec![7u8; 256 << 10];
        while stream.write_all(&data).is_ok() {}
    });
    let echo = serve(|mut stream| {
        let mut buffer = [0u8; 1024];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..n]).is_err() {
                return;
            }
        }
    });
    let places = Arc::new(Mutex::new(vec![SocketAddr::from(([9, 9, 9, 9], 53))]));
    let inside = Inside::new(4096, Arc::clone(&places));
    let name = synthetic(inside.place(0));
    let more = [(name, source.port()), (name, echo.port()), (IpAddr::from([93, 184, 216, 34]), 443)];
    places.lock().unwrap().extend(more.map(SocketAddr::from));
    if only.as_deref() == Some("stream") {
        (0..4).for_each(|_| streams(source, &inside));
        return;
    }
    for round in 0..3 {
        streams(source, &inside);
        let greetings = |to| (0..1000).map(|_| greet(to)).collect::<Vec<_>>();
        println!("connect, a byte there and back: direct {}", quantiles(greetings(echo)));
        println!("                               through {}", quantiles(greetings(inside.place(2))));
        let refusals = (0..200).map(|_| refused(inside.place(3))).collect();
        println!("refusal: {}", quantiles(refusals));
        if round < 2 {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let held = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 1024).unwrap();
    places.lock().unwrap().push(SocketAddr::new(name, listener.local_addr().unwrap().port()));
    let keeps = Arc::clone(&held);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut byte = [0u8; 1];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
            keeps.lock().unwrap().push(stream);
        }
    });
    let before = resident();
    let mut open: Vec<TcpStream> = (0..1000).map(|_| TcpStream::connect(inside.place(4)).unwrap()).collect();
    open.iter_mut().for_each(|stream| stream.write_all(&[1]).unwrap());
    open.iter_mut().for_each(|stream| stream.read_exact(&mut [0]).unwrap());
    let grown = resident().saturating_sub(before);
    println!("1,000 connections: {} bytes each", grown / 1000);
    let begun = Instant::now();
    let traffic = inside.attached.end();
    println!("the end of them: {:.1} ms; {traffic:?}", begun.elapsed().as_secs_f64() * 1e3);
}
