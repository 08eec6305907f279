//! A captured network namespace, in which every connection arrives at the owner's sockets (transparent proxying): its
//! netlink messages and sockets.
//!
//! ```text
//! rule 10  to 127.0.0.0/8, ::1   ─┐
//! rule 20  TCP                    ├─▶ table local, in which every address is ours, on lo
//! rule 30  UDP to port 53         │
//! rule 31  UDP from port 53      ─┘
//! rule 40  anything else          ──▶ prohibited, at once
//! ```
//!
//! Builds bytes that init sends and data from which it makes the sockets; the kernel's own first rule, which looks into the
//! local table for everything, is deleted last. Pure but for [`attempt`], which asks the kernel.

use crate::plan_block::Block;
use crate::wire::step::{self, FailurePoint, SocketPart};
use crate::wire::{self, Ref};

mod attempt;
mod routes_and_rules;
mod sockets;

pub use attempt::attempt;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const TCP: u8 = 6;
const DNS: u16 = 53;
/// The loopback interface, the first of every namespace.
const LO: u32 = 1;

/// What init sets up in the namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capture {
    /// Netlink messages.
    pub messages: Vec<NetlinkMessages>,
    /// Sockets, in the order in which the owner gets them.
    pub sockets: Vec<CaptureSocket>,
}

/// Netlink messages that go to the kernel at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetlinkMessages {
    /// `NETLINK_ROUTE` or `NETLINK_NETFILTER`.
    protocol: u32,
    /// Number of the first one that the kernel answers.
    first: u32,
    /// The messages.
    bytes: Vec<u8>,
    /// What each message that is answered does, for people.
    does: Vec<String>,
}

/// A socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureSocket {
    family: u16,
    kind: u16,
    protocol: u16,
    backlog: u16,
    /// Level, option, value.
    options: Vec<(i32, i32, i32)>,
    filter: Vec<u64>,
    address: Vec<u8>,
    /// What it is, for people.
    is: String,
}

/// Versions of IP that the namespace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// Both. One socket serves both.
    Both,
    /// IPv4 alone: this kernel, or a sandbox around this process, has no IPv6.
    Four,
}

/// Which versions a new network namespace has here; asked once.
pub fn versions() -> Versions {
    use rustix::net::{AddressFamily, SocketType, socket};
    static KNOWN: std::sync::OnceLock<Versions> = std::sync::OnceLock::new();
    let is = |path: &str, value: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    *KNOWN.get_or_init(|| {
        let known = socket(AddressFamily::INET6, SocketType::DGRAM, None).is_ok();
        // Switched off for all interfaces, and new namespaces begin like this one (`net.core.devconf_inherit_init_net`)
        // or like the first one: which of the two does not matter where either is so.
        let inherited = ["1", "3"].iter().any(|how| is("/proc/sys/net/core/devconf_inherit_init_net", how));
        let off = inherited && is("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        if known && !off { Versions::Both } else { Versions::Four }
    })
}

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    Four,
    /// IPv6.
    Six,
}

impl Capture {
    /// The routes and rules of both versions, or of the one there is.
    pub fn new(versions: Versions) -> Capture {
        Capture { messages: vec![NetlinkMessages::routes(versions)], sockets: Vec::new() }
    }

    /// Sends connections to ports in these inclusive ranges to one port, but those to loopback addresses.
    pub fn redirect(&mut self, ranges: &[(u16, u16)], to: u16, versions: Versions) {
        let first = self.messages.iter().map(|m| m.does.len() as u32).sum();
        self.messages.push(NetlinkMessages::redirections(first, ranges, to, versions));
    }

    /// What failed, for people: the item of `step::CAPTURE`.
    pub fn item(&self, index: usize) -> String {
        let point = FailurePoint { step: step::CAPTURE, index: index as u32 };
        if matches!(point, step::capture::SEND | step::capture::CLOSE) {
            return "hand the sockets over".into();
        }
        if let Some(at) = step::capture::SOCKET.index_of(point) {
            let socket = self.sockets.get(at / SocketPart::COUNT).map_or("a socket", |socket| &socket.is);
            let what = match SocketPart::ALL.get(at % SocketPart::COUNT) {
                Some(SocketPart::Create) => "make",
                Some(SocketPart::Option) => "set an option of",
                Some(SocketPart::Filter) => "attach the filter of",
                Some(SocketPart::Bind) => "bind",
                Some(SocketPart::Listen) | None => "listen at",
            };
            return format!("{what} {socket}");
        }
        let mut does = self.messages.iter().flat_map(|m| &m.does);
        does.nth(index).cloned().unwrap_or_else(|| "set a rule".into())
    }

    /// Messages and sockets in the block that init reads.
    pub(crate) fn encode(&self, b: &mut Block) -> (Ref, Ref) {
        let messages: Vec<u64> = self
            .messages
            .iter()
            .flat_map(|m| {
                let bytes = b.bytes(&m.bytes);
                [pair(m.protocol, m.first), pair(m.does.len() as u32, 0), packed(bytes)]
            })
            .collect();
        let sockets: Vec<u64> = self
            .sockets
            .iter()
            .flat_map(|s| {
                let options: Vec<u64> = s
                    .options
                    .iter()
                    .flat_map(|&(level, name, value)| [pair(level as u32, name as u32), pair(value as u32, 0)])
                    .collect();
                let options = Ref { off: b.longs(&options), len: s.options.len() as u32 };
                let filter = Ref { off: b.longs(&s.filter), len: s.filter.len() as u32 };
                let address = b.bytes(&s.address);
                let head = u64::from(s.family)
                    | u64::from(s.kind) << 16
                    | u64::from(s.protocol) << 32
                    | u64::from(s.backlog) << 48;
                [head, packed(options), packed(filter), packed(address)]
            })
            .collect();
        (
            Ref { off: b.longs(&messages), len: self.messages.len() as u32 },
            Ref { off: b.longs(&sockets), len: self.sockets.len() as u32 },
        )
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn packed(r: Ref) -> u64 {
    pair(r.off, r.len)
}

const _: () = assert!(size_of::<wire::WireMessages>() == 24);
const _: () = assert!(size_of::<wire::WireSocket>() == 32);
const _: () = assert!(size_of::<wire::SocketOption>() == 16);
