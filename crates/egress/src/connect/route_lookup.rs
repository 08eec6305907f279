//! Where the kernel would route an address: to this host, out by an interface, or nowhere. Sends nothing and decides
//! nothing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// The route to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// The address is this host's.
    Own,
    /// An interface leads there.
    Out,
    /// There is no route.
    None,
}

/// Queries the kernel's routes. Connecting a datagram socket sends nothing.
pub(crate) fn route(address: IpAddr) -> Route {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    match source {
        // The kernel uses the first address of an interface as the source even for its other addresses.
        Ok(source) if source.ip() == address || is_own(address) => Route::Own,
        Ok(_) => Route::Out,
        Err(_) => Route::None,
    }
}

/// Whether an address is local to the kernel. If routes cannot be queried: whether it can be bound to, which with
/// `ip_nonlocal_bind` is every address; then all count as the host's own.
fn is_own(address: IpAddr) -> bool {
    kind(address).map_or_else(|_| UdpSocket::bind((address, 0)).is_ok(), |kind| matches!(kind, LOCAL | ANYCAST))
}

/// Route types (rtnetlink(7)): `RTN_LOCAL` and `RTN_ANYCAST`.
const LOCAL: u8 = 2;
const ANYCAST: u8 = 4;

/// `NETLINK_ROUTE` is protocol 0, which rustix writes as none.
const NETLINK_ROUTE: Option<Protocol> = None;

/// The type of the route to an address (rtnetlink(7), `RTM_GETROUTE`).
fn kind(address: IpAddr) -> io::Result<u8> {
    const GET: u16 = 26;
    const NEW: u16 = 24;
    const REQUEST: u16 = 1;
    const DESTINATION: u16 = 1;
    const PROTOCOL: u16 = 27;
    const TCP: u8 = 6;
    let (family, octets) = match address {
        IpAddr::V4(v4) => (2, v4.octets().to_vec()),
        IpAddr::V6(v6) => (10, v6.octets().to_vec()),
    };
    // struct rtmsg: family, length of the destination, and ten bytes that are not used.
    let mut body = vec![family, octets.len() as u8 * 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (kind, value) in [(DESTINATION, &octets[..]), (PROTOCOL, &[TCP])] {
        body.extend((4 + value.len() as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(GET.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]); // sequence number and port id
    message.extend(body);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, NETLINK_ROUTE)?;
    send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0u8; 1024];
    // The kernel answers before `send` returns.
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    let is_route = length >= 28 && answer[4..6] == NEW.to_ne_bytes();
    is_route.then(|| answer[23]).ok_or_else(|| io::Error::other("the kernel returned no route"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_recognised() {
        assert_eq!(route(IpAddr::from([127, 0, 0, 1])), Route::Own);
        // As for a second address of an interface, which the kernel reaches from the first.
        assert_eq!(route(IpAddr::from([127, 9, 9, 9])), Route::Own);
        assert_eq!(kind(IpAddr::from([127, 9, 9, 9])).unwrap(), LOCAL);
        if UdpSocket::bind("[::1]:0").is_ok() {
            assert_eq!(
                (route(Ipv6Addr::LOCALHOST.into()), kind(Ipv6Addr::LOCALHOST.into()).unwrap()),
                (Route::Own, LOCAL)
            );
        }
    }

    #[test]
    fn other_addresses_are_not_own() {
        for other in ["192.0.2.1", "2001:db8::1"] {
            let other: IpAddr = other.parse().unwrap();
            assert!(!is_own(other) && route(other) != Route::Own, "{other}");
        }
    }
}
