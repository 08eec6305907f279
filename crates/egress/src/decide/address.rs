//! Classifies addresses: public, or one of the special-purpose kinds that are never connected to unless a policy names
//! them. Pure.
//!
//! Follows IANA's registries of special-purpose addresses for IPv4 and IPv6 (RFC 6890 and its updates), with the
//! addresses of the clouds' metadata services. IPv6 outside of 2000::/3 is never public.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A kind of address that is not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Special {
    /// 0.0.0.0/8 and `::`: this host, this network.
    Unspecified,
    /// 127.0.0.0/8 and `::1`.
    Loopback,
    /// RFC 1918, and the former site-local addresses of IPv6.
    Private,
    /// fc00::/7.
    UniqueLocal,
    /// 169.254.0.0/16 and fe80::/10.
    LinkLocal,
    /// 100.64.0.0/10, carrier-grade NAT.
    Cgnat,
    /// A cloud's metadata service, which gives a machine its credentials and settings.
    Metadata,
    /// 224.0.0.0/4 and ff00::/8.
    Multicast,
    /// 255.255.255.255.
    Broadcast,
    /// ::ffff:0:0/96 and ::/96: an IPv4-mapped or IPv4-compatible address.
    Mapped,
    /// 64:ff9b::/96, 64:ff9b:1::/48 and ::ffff:0:0:0/96: an IPv4 address behind a translator.
    Nat64,
    /// 2002::/16, and the relays of 192.88.99.0/24.
    SixToFour,
    /// 2001::/32.
    Teredo,
    /// An interface identifier that contains an IPv4 address (RFC 5214).
    Isatap,
    /// Documentation prefixes.
    Documentation,
    /// 198.18.0.0/15 and 2001:2::/48.
    Benchmark,
    /// Everything else that is not assigned on the public network.
    Reserved,
}

impl Special {
    /// Its name in messages.
    pub fn words(self) -> &'static str {
        match self {
            Special::Unspecified => "unspecified",
            Special::Loopback => "loopback",
            Special::Private => "private",
            Special::UniqueLocal => "unique local",
            Special::LinkLocal => "link-local",
            Special::Cgnat => "carrier-grade NAT",
            Special::Metadata => "a cloud's metadata service",
            Special::Multicast => "multicast",
            Special::Broadcast => "broadcast",
            Special::Mapped => "IPv4 within IPv6",
            Special::Nat64 => "translated (NAT64)",
            Special::SixToFour => "6to4",
            Special::Teredo => "Teredo",
            Special::Isatap => "ISATAP",
            Special::Documentation => "of a range for documentation",
            Special::Benchmark => "of a range for benchmarks",
            Special::Reserved => "reserved",
        }
    }
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Ranges of IPv4, each before the wider ones that contain it.
const V4: &[([u8; 4], u8, Special)] = &[
    // AWS and most others; its containers, its pods; Scaleway; Tencent; Azure; Alibaba; Oracle.
    ([169, 254, 169, 254], 32, Special::Metadata),
    ([169, 254, 170, 2], 32, Special::Metadata),
    ([169, 254, 170, 23], 32, Special::Metadata),
    ([169, 254, 42, 42], 32, Special::Metadata),
    ([169, 254, 0, 23], 32, Special::Metadata),
    ([168, 63, 129, 16], 32, Special::Metadata),
    ([100, 100, 100, 200], 32, Special::Metadata),
    ([192, 0, 0, 192], 32, Special::Metadata),
    ([0, 0, 0, 0], 8, Special::Unspecified),
    ([10, 0, 0, 0], 8, Special::Private),
    ([100, 64, 0, 0], 10, Special::Cgnat),
    ([127, 0, 0, 0], 8, Special::Loopback),
    ([169, 254, 0, 0], 16, Special::LinkLocal),
    ([172, 16, 0, 0], 12, Special::Private),
    ([192, 0, 0, 0], 24, Special::Reserved),
    ([192, 0, 2, 0], 24, Special::Documentation),
    ([192, 88, 99, 0], 24, Special::SixToFour),
    ([192, 168, 0, 0], 16, Special::Private),
    ([198, 18, 0, 0], 15, Special::Benchmark),
    ([198, 51, 100, 0], 24, Special::Documentation),
    ([203, 0, 113, 0], 24, Special::Documentation),
    ([224, 0, 0, 0], 4, Special::Multicast),
    ([255, 255, 255, 255], 32, Special::Broadcast),
    ([240, 0, 0, 0], 4, Special::Reserved),
];

/// Ranges of IPv6, each before the wider ones that contain it.
const V6: &[([u16; 8], u8, Special)] = &[
    // AWS, its pods; Google; Scaleway; Oracle; Akamai; Alibaba.
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, Special::Metadata),
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128, Special::Metadata),
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, Special::Metadata),
    ([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128, Special::Metadata),
    ([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128, Special::Metadata),
    ([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128, Special::Metadata),
    ([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128, Special::Metadata),
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, Special::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, Special::Loopback),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, Special::Mapped),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, Special::Mapped),
    ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, Special::Nat64),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, Special::Nat64),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Special::Nat64),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, Special::Teredo),
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, Special::Benchmark),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Special::Reserved),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, Special::Documentation),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, Special::SixToFour),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Special::Documentation),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Special::UniqueLocal),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Special::LinkLocal),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Special::Private),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Special::Multicast),
];

/// The special kind of an address; none if it is public.
pub fn special(address: IpAddr) -> Option<Special> {
    range(address).map(|(special, _)| special)
}

/// The special kind of an address, and the prefix length of the narrowest range that it comes from.
pub fn range(address: IpAddr) -> Option<(Special, u8)> {
    match address {
        IpAddr::V4(v4) => {
            let bits = u32::from(v4);
            V4.iter()
                .find(|(net, prefix, _)| (bits ^ u32::from(Ipv4Addr::from(*net))).leading_zeros() >= u32::from(*prefix))
                .map(|(_, prefix, special)| (*special, *prefix))
        }
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            let listed = V6
                .iter()
                .find(|(net, prefix, _)| {
                    (bits ^ u128::from(Ipv6Addr::from(*net))).leading_zeros() >= u32::from(*prefix)
                })
                .map(|(_, prefix, special)| (*special, *prefix));
            let unlisted = || match bits >> 125 == 1 {
                true => is_isatap(v6).then_some((Special::Isatap, 128)),
                false => Some((Special::Reserved, 128)),
            };
            listed.or_else(unlisted)
        }
    }
}

/// An address in the form in which it is compared: an IPv4-mapped address becomes the IPv4 address.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The IPv4 address to which a translator or tunnel on the path may send what is sent to this IPv6 address.
pub fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return None };
    let s = v6.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match special(address)? {
        // RFC 6052: in 64:ff9b:1::/48 the operator chooses the position; /96 is what is used.
        Special::Mapped | Special::Nat64 | Special::Isatap => Some(v4(s[6], s[7])),
        Special::SixToFour => Some(v4(s[1], s[2])),
        // RFC 4380: the client's address with every bit inverted.
        Special::Teredo => Some(v4(!s[6], !s[7])),
        _ if is_isatap(v6) => Some(v4(s[6], s[7])),
        _ => None,
    }
}

/// Whether a rule that says so opens this address to a name: one of a private network, or of documentation, which stands for
/// one in tests. Never loopback, link-local, multicast or a metadata service, nor what may be translated to another address.
pub fn is_of_private_network(address: IpAddr) -> bool {
    let of_network = matches!(
        special(address),
        Some(Special::Private | Special::UniqueLocal | Special::Cgnat | Special::Documentation)
    );
    of_network && embedded(address).is_none()
}

/// Why a message must not suggest to allow an address, in words; none if it may. A metadata service gives the machine's
/// credentials to any client, so a user has to name it without being prompted; and some addresses no rule can allow.
pub fn not_offered(address: IpAddr) -> Option<String> {
    let address = canonical(address);
    // The address that it may be translated to counts as well.
    let place = embedded(address).map_or(address, IpAddr::V4);
    match (special(place), special(address)?) {
        (Some(Special::Metadata), _) | (_, Special::Metadata) => {
            Some(format!("{address} is {}, which gives this machine's credentials to any client", Special::Metadata))
        }
        (_, Special::LinkLocal) => Some(format!("{address} is link-local, as are clouds' services for their machines")),
        (_, Special::Private | Special::UniqueLocal | Special::Cgnat | Special::Documentation | Special::Benchmark)
            if place == address =>
        {
            None
        }
        (_, special) => Some(format!("{address} is {special}")),
    }
}

/// Names by which clouds' machines reach their metadata service.
const METADATA_NAMES: [&str; 5] = [
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.platformequinix.com",
];

/// The same for a name, in lower case: why a message must not suggest to allow it.
pub fn not_offered_name(name: &str) -> Option<String> {
    METADATA_NAMES.contains(&name).then(|| {
        format!("{name} is the name of {}, which gives this machine's credentials to any client", Special::Metadata)
    })
}

/// Names that container engines give to the host, and `localhost`, which is the sandbox itself inside.
const HOST_NAMES: [&str; 4] =
    ["localhost", "host.docker.internal", "gateway.docker.internal", "host.containers.internal"];

/// Whether a name, in lower case, stands for the machine itself, whose own services no name leads to.
pub fn is_this_machine(name: &str) -> bool {
    HOST_NAMES.contains(&name) || name.ends_with(".localhost")
}

/// Whether the interface identifier is that of RFC 5214: an IPv4 address after `0000:5efe` or `0200:5efe`.
fn is_isatap(v6: Ipv6Addr) -> bool {
    let s = v6.segments();
    s[5] == 0x5efe && (s[4] == 0 || s[4] == 0x200)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Special> {
        special(text.parse().unwrap_or_else(|_| panic!("{text}")))
    }

    #[test]
    fn metadata_and_unnameable_addresses_are_not_suggested() {
        let why = |text: &str| not_offered(text.parse().unwrap_or_else(|_| panic!("{text}")));
        for (text, words) in [
            ("169.254.169.254", "credentials"),
            ("::ffff:169.254.169.254", "credentials"),
            ("64:ff9b::169.254.169.254", "credentials"),
            ("fd00:1::5efe:a9fe:a9fe", "credentials"),
            ("fd00:ec2::254", "credentials"),
            ("fd00:c1::a9fe:a9fe", "credentials"),
            ("fd00:a9fe:a9fe::1", "credentials"),
            ("fd00:100::100:200", "credentials"),
            ("169.254.1.2", "link-local"),
            ("fe80::1", "link-local"),
            ("127.0.0.1", "loopback"),
            ("224.0.0.1", "multicast"),
            ("2002:a00:1::", "6to4"),
            ("fd00:1::5efe:a00:1", "unique local"),
        ] {
            assert!(why(text).is_some_and(|why| why.contains(words)), "{text}: {:?}", why(text));
        }
        for text in ["93.184.216.34", "10.1.2.3", "fd00::1", "203.0.113.7", "2606:4700::1", "::ffff:10.1.2.3"] {
            assert_eq!(why(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_of_private_networks_are_those_of_other_machines() {
        let of = |text: &str| is_of_private_network(text.parse().unwrap_or_else(|_| panic!("{text}")));
        for text in
            ["10.1.2.3", "172.16.5.5", "192.168.7.7", "100.64.0.1", "fd12::1", "fec0::1", "203.0.113.7", "2001:db8::1"]
        {
            assert!(of(text), "{text}");
        }
        for text in [
            "0.0.0.0",
            "127.0.0.1",
            "169.254.1.2",
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::1",
            "::ffff:10.1.2.3",
            "::10.1.2.3",
            "64:ff9b::10.1.2.3",
            "2002:a01:203::1",
            "2001::f5fe:fdfc",
            "fd00:1::5efe:7f00:1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "ff02::1",
            "8.8.8.8",
        ] {
            assert!(!of(text), "{text}");
        }
    }

    #[test]
    fn special_ranges_end_where_the_registries_say() {
        use Special::*;
        for (first, last, special) in [
            ("0.0.0.0", "0.255.255.255", Unspecified),
            ("10.0.0.0", "10.255.255.255", Private),
            ("100.64.0.0", "100.127.255.255", Cgnat),
            ("127.0.0.0", "127.255.255.255", Loopback),
            ("169.254.0.0", "169.254.255.255", LinkLocal),
            ("172.16.0.0", "172.31.255.255", Private),
            ("192.0.0.0", "192.0.0.255", Reserved),
            ("192.0.2.0", "192.0.2.255", Documentation),
            ("192.88.99.0", "192.88.99.255", SixToFour),
            ("192.168.0.0", "192.168.255.255", Private),
            ("198.18.0.0", "198.19.255.255", Benchmark),
            ("198.51.100.0", "198.51.100.255", Documentation),
            ("203.0.113.0", "203.0.113.255", Documentation),
        ] {
            let (low, high) = (first.parse::<Ipv4Addr>().unwrap(), last.parse::<Ipv4Addr>().unwrap());
            assert_eq!((of(first), of(last)), (Some(special), Some(special)), "{first}");
            let beside = |by: i64| {
                Ipv4Addr::from(u32::try_from(i64::from(u32::from(if by < 0 { low } else { high })) + by).unwrap())
            };
            assert_eq!(super::special(beside(1).into()), None, "after {last}");
            if first != "0.0.0.0" {
                assert_eq!(super::special(beside(-1).into()), None, "before {first}");
            }
        }
        for (text, special) in [
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("240.0.0.0", Reserved),
            ("255.255.255.254", Reserved),
            ("255.255.255.255", Broadcast),
            ("169.254.169.254", Metadata),
            ("168.63.129.16", Metadata),
            ("100.100.100.200", Metadata),
            ("192.0.0.192", Metadata),
            ("fd00:ec2::254", Metadata),
            ("::", Unspecified),
            ("::1", Loopback),
            ("::2", Mapped),
            ("::127.0.0.1", Mapped),
            ("::ffff:127.0.0.1", Mapped),
            ("::ffff:93.184.216.34", Mapped),
            ("::ffff:0:10.0.0.1", Nat64),
            ("64:ff9b::10.0.0.1", Nat64),
            ("64:ff9b::8.8.8.8", Nat64),
            ("64:ff9b:1:2::1", Nat64),
            ("64:ff9b:2::1", Reserved),
            ("100::1", Reserved),
            ("2001::1", Teredo),
            ("2001:2::1", Benchmark),
            ("2001:10::1", Reserved),
            ("2001:20::1", Reserved),
            ("2001:db8::1", Documentation),
            ("3fff::1", Documentation),
            ("2002:a00:1::", SixToFour),
            ("5f00::1", Reserved),
            ("fc00::1", UniqueLocal),
            ("fdff::1", UniqueLocal),
            ("fe80::1", LinkLocal),
            ("fec0::1", Private),
            ("ff02::1", Multicast),
            ("4000::1", Reserved),
            ("1fff::1", Reserved),
            ("2a00:1450::5efe:a00:1", Isatap),
            ("2a00:1450::200:5efe:a00:1", Isatap),
        ] {
            assert_eq!(of(text), Some(special), "{text}");
        }
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "168.63.129.17",
            "2600::1",
            "2001:200::1",
            "2a00:1450::1",
            "3ffe::1",
            "223.255.255.255",
        ] {
            assert_eq!(of(public), None, "{public}");
        }
    }

    #[test]
    fn embedded_ipv4_addresses_are_found() {
        for (text, v4) in [
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("::10.0.0.1", Some("10.0.0.1")),
            ("64:ff9b::10.0.0.1", Some("10.0.0.1")),
            ("2002:a00:1::1", Some("10.0.0.1")),
            ("2001::f5ff:fffe", Some("10.0.0.1")),
            ("2a00::5efe:10.0.0.1", Some("10.0.0.1")),
            ("fe80::5efe:10.0.0.1", Some("10.0.0.1")),
            ("2a00::1", None),
            ("10.0.0.1", None),
        ] {
            assert_eq!(embedded(text.parse().unwrap()), v4.map(|v4| v4.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn narrower_ranges_precede_wider_ones() {
        for (index, (net, prefix, _)) in V4.iter().enumerate() {
            assert_eq!(range(IpAddr::from(*net)).map(|(_, prefix)| prefix), Some(*prefix), "{index}");
        }
        for (index, (net, prefix, _)) in V6.iter().enumerate() {
            let found = range(IpAddr::from(*net)).map(|(_, prefix)| prefix).unwrap();
            assert!(found >= *prefix, "{index}");
        }
    }
}
