//! Which socket addresses a sandbox's network does not reach.
//!
//! Uses `core` alone, so that init and the library share it. Pure, and never decides what a call may do: the network
//! namespace refuses, and this only reports that it does.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `AF_INET`
pub const INET: u16 = 2;
/// `AF_INET6`
pub const INET6: u16 = 10;

/// The port of resolvers.
pub const RESOLVER: u16 = 53;

/// What there is in the network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkReach {
    /// Nothing that is up.
    Nothing,
    /// The loopback interface.
    Loopback,
    /// The loopback interface, at which every connection arrives, and every datagram to a resolver.
    Captured,
}

/// What a call wants an address for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPurpose {
    /// To connect to it by TCP.
    Connect,
    /// To reach it otherwise: connect, or send a datagram.
    Reach,
    /// To bind to it.
    Bind,
    /// To bind to it, under a rule that lets no such socket bind at all (Landlock's for TCP).
    BindRefused,
}

/// The address in a `struct sockaddr_in` or `struct sockaddr_in6` (ip(7), ipv6(7)); an IPv4 address in IPv6 form is one of
/// IPv4. None for other families and for what is too short.
pub fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let ip = match u16::from_ne_bytes([bytes[0], bytes[1]]) {
        INET if bytes.len() >= 16 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?)),
        INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Whether a network that holds no more than this refuses an address for this purpose.
pub fn refused(network: NetworkReach, purpose: AddressPurpose, address: SocketAddr) -> bool {
    let ip = address.ip();
    let own = network != NetworkReach::Nothing && ip.is_loopback();
    match purpose {
        AddressPurpose::BindRefused => true,
        // Every address is the namespace's own, and whether a connection goes on is for others to say.
        AddressPurpose::Bind | AddressPurpose::Connect if network == NetworkReach::Captured => false,
        // Any socket may have no address of its own or a group's: nothing reaches it there.
        AddressPurpose::Bind => {
            let groups = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
            // Without any address the kernel has no table of them, and takes every one of IPv4 (`inet_dev_addr_type`).
            let unknown = network == NetworkReach::Nothing && ip.is_ipv4();
            !own && !groups && !unknown && !ip.is_unspecified()
        }
        AddressPurpose::Reach if network == NetworkReach::Captured && address.port() == RESOLVER => false,
        // The unspecified address means this host.
        AddressPurpose::Reach | AddressPurpose::Connect => {
            network == NetworkReach::Nothing || !(own || ip.is_unspecified())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(ip: [u8; 4], port: u16) -> Vec<u8> {
        [&INET.to_ne_bytes()[..], &port.to_be_bytes(), &ip, &[0; 8]].concat()
    }

    fn v6(ip: &str, port: u16) -> Vec<u8> {
        let ip: Ipv6Addr = ip.parse().unwrap();
        [&INET6.to_ne_bytes()[..], &port.to_be_bytes(), &[0; 4], &ip.octets(), &[0; 4]].concat()
    }

    #[test]
    fn addresses_read_as_a_person_writes_them() {
        let text = |bytes: &[u8]| address(bytes).map(|a| a.to_string());
        assert_eq!(text(&v4([192, 0, 2, 1], 443)).as_deref(), Some("192.0.2.1:443"));
        assert_eq!(text(&v6("2001:db8::1", 80)).as_deref(), Some("[2001:db8::1]:80"));
        assert_eq!(text(&v6("::ffff:192.0.2.1", 1)).as_deref(), Some("192.0.2.1:1"));
        for bad in [&[][..], &[2], &[2, 0, 0, 1], &[1, 0, b'/', b'x', 0, 0, 0, 0], &v6("::1", 1)[..20]] {
            assert_eq!(text(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_empty_network_reaches_nothing_and_loopback_only_itself() {
        let asks = |network, purpose, ip: &str| refused(network, purpose, SocketAddr::new(ip.parse().unwrap(), 1));
        for ip in ["192.0.2.1", "127.0.0.1", "0.0.0.0", "::1", "::", "2001:db8::1", "255.255.255.255", "224.0.0.1"] {
            assert!(asks(NetworkReach::Nothing, AddressPurpose::Reach, ip), "{ip}");
            let own = ["127.0.0.1", "0.0.0.0", "::1", "::"].contains(&ip);
            assert_eq!(asks(NetworkReach::Loopback, AddressPurpose::Reach, ip), !own, "{ip}");
            for network in [NetworkReach::Nothing, NetworkReach::Loopback] {
                assert_eq!(
                    asks(network, AddressPurpose::Connect, ip),
                    asks(network, AddressPurpose::Reach, ip),
                    "{ip}"
                );
            }
        }
        for (ip, nothing, loopback) in [
            ("0.0.0.0", false, false),
            ("::", false, false),
            ("127.0.0.1", false, false),
            ("::1", true, false),
            ("192.0.2.1", false, true),
            ("2001:db8::1", true, true),
            ("224.0.0.1", false, false),
        ] {
            assert_eq!(asks(NetworkReach::Nothing, AddressPurpose::Bind, ip), nothing, "{ip}");
            assert_eq!(asks(NetworkReach::Loopback, AddressPurpose::Bind, ip), loopback, "{ip}");
        }
        assert!(asks(NetworkReach::Nothing, AddressPurpose::BindRefused, "0.0.0.0"));
    }

    #[test]
    fn a_captured_network_refuses_datagrams_but_not_to_resolvers() {
        let asks = |purpose, to: &str| refused(NetworkReach::Captured, purpose, to.parse().unwrap());
        for (to, is_refused) in [
            ("192.0.2.1:443", true),
            ("[2001:db8::1]:123", true),
            ("224.0.0.1:5353", true),
            ("8.8.8.8:53", false),
            ("[2001:db8::1]:53", false),
            ("127.0.0.1:9", false),
            ("0.0.0.0:9", false),
            ("[::1]:9", false),
        ] {
            assert_eq!(asks(AddressPurpose::Reach, to), is_refused, "{to}");
            assert!(!asks(AddressPurpose::Connect, to) && !asks(AddressPurpose::Bind, to), "{to}");
        }
    }
}
