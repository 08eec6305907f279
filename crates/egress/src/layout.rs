//! Which sockets a sandbox's namespace has and what each is for: agreed between whoever makes them and the gateway.
//!
//! Data only. The sockets cross as descriptors in the order of `Layout::sockets`.

use std::net::{IpAddr, Ipv4Addr};

/// Loopback port inside of the HTTP proxy.
pub const HTTP_PROXY_PORT: u16 = 3128;
/// Loopback port inside of the SOCKS proxy.
pub const SOCKS_PORT: u16 = 1080;
/// Loopback port inside of the API that a policy passes through.
pub const API_PORT: u16 = 3129;
/// The resolver's port.
pub const DNS_PORT: u16 = 53;
/// Where the proxies, the resolver and the API answer: the only loopback address at which the gateway serves anything.
pub const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Most listeners of one sandbox. More ports than that are redirected to one of them, or refused.
pub const MOST_LISTENERS: usize = 128;

/// One socket of the namespace. Streams and datagrams are bound to every address, of IPv4 and IPv6 by one socket, or of
/// IPv4 alone where there is no IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Socket {
    /// UDP, bound to `DNS_PORT`, telling the address that each datagram was sent to.
    Resolver,
    /// TCP, listening on this port. What a connection is for follows from the address that it was made to and the port:
    /// `INSIDE` with a port of the constants above is that service; another loopback address is refused; anything else is
    /// captured.
    Listener(u16),
    /// TCP, listening on this port: to it the namespace redirects every other port that is wanted; `SO_ORIGINAL_DST` has
    /// what the program connected to.
    Redirect(u16),
    /// A packet socket that sees the first packet of each connection and nothing else, by which attempts on other ports
    /// are known.
    Attempts,
}

/// The sockets of a namespace, in the order in which their descriptors come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// In order.
    pub sockets: Vec<Socket>,
    /// Inclusive ranges of ports that are redirected, empty where none is.
    pub redirected: Vec<(u16, u16)>,
}
