//! Which sockets a sandbox's network namespace has, and the purpose of each: agreed between the engine, whose init
//! makes them, and the gateway, which serves them.
//!
//! Data only. The sockets are passed as descriptors in the order of `SocketLayout::sockets`.

use std::net::{IpAddr, Ipv4Addr};

/// Port of the HTTP proxy at `INSIDE`.
pub const HTTP_PROXY_PORT: u16 = 3128;
/// Port of the SOCKS proxy at `INSIDE`.
pub const SOCKS_PORT: u16 = 1080;
/// Port of the API that a policy passes through, at `INSIDE`.
pub const API_PORT: u16 = 3129;
/// The resolver's port.
pub(crate) const DNS_PORT: u16 = 53;
/// The address of the proxies, the resolver and the API: the only loopback address at which the gateway serves
/// anything.
pub const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Most listeners of one sandbox. More ports than that are redirected to one of them, or refused.
pub const MOST_LISTENERS: usize = 128;

/// One socket of the namespace. Streams and datagrams are bound to every address, of IPv4 and IPv6 by one socket, or of
/// IPv4 alone where there is no IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayoutSocket {
    /// UDP, bound to `DNS_PORT`, with the address that each datagram was sent to (`IP_PKTINFO`).
    Resolver,
    /// TCP, listening on this port. The destination address and port of a connection select its service: `INSIDE` with
    /// one of the ports above is that service; another loopback address is refused; anything else is captured.
    Listener(u16),
    /// TCP, listening on this port, to which the namespace redirects all other ports that rules name; `SO_ORIGINAL_DST`
    /// has the address that the program connected to.
    Redirect(u16),
    /// A raw socket that receives only the first packet of each connection to a port without a listener, with the
    /// address that it was sent to. A packet begins with the TCP header (IPv6) or the IP header (IPv4). Not a packet
    /// socket, whose close(2) waits for every processor, for many milliseconds.
    Attempts {
        /// Of IPv6.
        ipv6: bool,
    },
    /// A netlink socket (`NETLINK_SOCK_DIAG`) that queries the namespace's other sockets, to find the process of a
    /// refused connection. Only if the kernel has such sockets.
    Inspector,
}

/// The sockets of a namespace, in the order in which their descriptors are sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketLayout {
    /// In order.
    pub sockets: Vec<LayoutSocket>,
    /// Inclusive ranges of ports that are redirected; empty if none is.
    pub redirected: Vec<(u16, u16)>,
}

/// More ports are wanted than a sandbox may have listeners, and its namespace cannot redirect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "network.allow names {wanted} ports; at most {} can be listened on here, which cannot redirect\nhint: name fewer \
     ports, or load the kernel's nf_tables with NAT",
    MOST_LISTENERS
)]
#[non_exhaustive]
pub struct TooManyPorts {
    /// How many ports are wanted, those of the gateway's own services included.
    pub wanted: usize,
}

impl SocketLayout {
    /// The sockets for these ports (sorted, merged, inclusive ranges): resolver, its TCP listener, proxies, the API if
    /// there is one, then a listener for each port. If there are too many, as many as fit have listeners of their own,
    /// the narrowest ranges first, and the rest is redirected to one.
    ///
    /// # Errors
    /// There are too many, and `can_redirect` is false.
    pub fn of(ports: &[(u16, u16)], api: bool, can_redirect: bool) -> Result<SocketLayout, TooManyPorts> {
        let mut own = vec![DNS_PORT, HTTP_PROXY_PORT, SOCKS_PORT];
        own.extend(api.then_some(API_PORT));
        let is_wanted = |port: u16| ports.iter().any(|(first, last)| (*first..=*last).contains(&port));
        let width = |(first, last): (u16, u16)| usize::from(last - first) + 1;
        let already = own.iter().filter(|port| is_wanted(**port)).count();
        let wanted = own.len() + ports.iter().copied().map(width).sum::<usize>() - already;
        let mut listeners = own.clone();
        let mut redirected = Vec::new();
        if wanted <= MOST_LISTENERS {
            listeners.extend(ports.iter().flat_map(|(first, last)| *first..=*last).filter(|port| !own.contains(port)));
        } else if !can_redirect {
            return Err(TooManyPorts { wanted });
        } else {
            let mut narrow_first = ports.to_vec();
            narrow_first.sort_by_key(|range| (width(*range), *range));
            for range in narrow_first {
                // One is reserved for the listener to which the rest is redirected.
                match listeners.len() + width(range) < MOST_LISTENERS {
                    true => listeners.extend((range.0..=range.1).filter(|port| !own.contains(port))),
                    false => redirected.push(range),
                }
            }
        }
        let mut sockets = vec![LayoutSocket::Resolver];
        if redirected.is_empty() {
            sockets.extend(listeners.into_iter().map(LayoutSocket::Listener));
            return Ok(SocketLayout { sockets, redirected });
        }
        // The highest port that no rule names; if rules name every port, the highest without a listener.
        let free = |port: &u16| !listeners.contains(port);
        let to = (1..=u16::MAX).rev().filter(free).find(|port| !is_wanted(*port));
        let to = to.or_else(|| (1..=u16::MAX).rev().find(free)).ok_or(TooManyPorts { wanted })?;
        sockets.extend(listeners.iter().copied().map(LayoutSocket::Listener));
        sockets.push(LayoutSocket::Redirect(to));
        let mut listened = listeners;
        listened.push(to);
        Ok(SocketLayout { sockets, redirected: without(redirected, listened) })
    }
}

/// The ranges without these ports, ascending.
fn without(ranges: Vec<(u16, u16)>, mut holes: Vec<u16>) -> Vec<(u16, u16)> {
    holes.sort_unstable();
    let mut left = Vec::new();
    for (first, last) in ranges {
        let mut next = u32::from(first);
        for hole in holes.iter().copied().filter(|hole| (first..=last).contains(hole)) {
            left.extend((next < u32::from(hole)).then(|| (next as u16, hole - 1)));
            next = u32::from(hole) + 1;
        }
        // At most `last` by the condition.
        left.extend((next <= u32::from(last)).then_some((next as u16, last)));
    }
    left.sort_unstable();
    left
}
