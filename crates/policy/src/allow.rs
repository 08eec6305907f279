//! The entries of the network's lists: their syntax, what they match by text, and which covers which; and the methods of
//! HTTP.
//!
//! One parser for the policy's validation and for the gateway, so that both mean the same. Never resolves a name.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::bundles::SIGN;
use crate::host::{host_name, is_local};
use crate::ports::{Ports, number};

/// The methods that `network.methods` may name (RFC 9110, RFC 5789), but for `CONNECT`: in a tunnel any method passes.
pub const METHODS: &[&str] = &["GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE"];

/// Ports of HTTP in the clear. A rule that looks into requests lets nothing else pass there; on any other port it lets
/// pass what is encrypted, which has no method that anybody could see.
pub const PLAIN_HTTP: &[u16] = &[80, 8080];

/// Where an entry leads: one name, the names below one, or a net.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum To {
    /// This host.
    Host {
        /// Normalised name.
        name: String,
    },
    /// Every name below the suffix, not the suffix itself.
    Suffix {
        /// Normalised name, without the `*.`.
        suffix: String,
    },
    /// These addresses.
    Net {
        /// First address of the net.
        address: IpAddr,
        /// Leading bits that count; all of them for a single address.
        prefix: u8,
    },
}

impl To {
    /// Whether that normalised name is meant.
    pub fn has_name(&self, name: &str) -> bool {
        match self {
            To::Host { name: host } => name == host,
            To::Suffix { suffix } => name
                .strip_suffix(suffix.as_str())
                .and_then(|below| below.strip_suffix('.'))
                .is_some_and(|b| !b.is_empty()),
            To::Net { .. } => false,
        }
    }

    /// Whether that address is meant. An IPv4 address in IPv6's clothing is none of an IPv4 net's.
    pub fn has_address(&self, given: IpAddr) -> bool {
        match self {
            To::Net { address, prefix } => {
                let ((net, width), (given, other)) = (bits(*address), bits(given));
                width == other && (net ^ given).leading_zeros() >= u32::from(*prefix)
            }
            _ => false,
        }
    }

    /// Whether whatever `other` means is meant here as well.
    pub fn covers(&self, other: &To) -> bool {
        match (self, other) {
            (_, To::Host { name }) => self.has_name(name),
            (To::Suffix { suffix: mine }, To::Suffix { suffix }) => mine == suffix || self.has_name(suffix),
            (To::Net { prefix: mine, .. }, To::Net { address, prefix }) => mine <= prefix && self.has_address(*address),
            _ => false,
        }
    }
}

/// The address's bits from the top of 128, and how many it has.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    }
}

/// Where, and on which ports. As text of `network.allow`: without ports, 80 and 443.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllowEntry {
    /// Where.
    pub to: To,
    /// On which ports.
    pub ports: Ports,
}

impl AllowEntry {
    /// Whether a connection to that name and port is meant. The name may have capitals and a final dot.
    pub fn matches_name(&self, name: &str, port: u16) -> bool {
        self.ports.contains(port) && host_name(name).is_ok_and(|name| self.to.has_name(&name))
    }

    /// Whether a connection to that address and port, asked for by address, is meant.
    pub fn matches_address(&self, address: IpAddr, port: u16) -> bool {
        self.ports.contains(port) && self.to.has_address(address)
    }

    /// Whether whatever `other` means is meant here as well.
    pub fn covers(&self, other: &AllowEntry) -> bool {
        self.to.covers(&other.to) && self.ports.covers(&other.ports)
    }

    /// What stands for an entry that cannot be read; it means nothing.
    fn unread() -> AllowEntry {
        AllowEntry { to: To::Host { name: String::new() }, ports: Ports::none() }
    }

    fn text(&self, unsaid: &Ports, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.ports != *unsaid;
        match &self.to {
            To::Host { name } => f.write_str(name)?,
            To::Suffix { suffix } => write!(f, "*.{suffix}")?,
            To::Net { address, prefix } => {
                let (open, close) = if ports && address.is_ipv6() { ("[", "]") } else { ("", "") };
                match u32::from(*prefix) == bits(*address).1 {
                    true => write!(f, "{open}{address}{close}")?,
                    false => write!(f, "{open}{address}/{prefix}{close}")?,
                }
            }
        }
        if ports { write!(f, ":{}", self.ports) } else { Ok(()) }
    }
}

impl FromStr for AllowEntry {
    type Err = &'static str;

    /// Reads an entry; the error says in words what is wrong with it.
    fn from_str(entry: &str) -> Result<AllowEntry, &'static str> {
        let read = read(entry, Ports::web)?;
        match &read.to {
            To::Net { prefix: 0, .. } => Err("a prefix of 0 allows everything: that is no allowlist"),
            To::Host { name } | To::Suffix { suffix: name } if is_local(name) => {
                Err("inside, `localhost` is the sandbox itself; for a service of the host there is network.api")
            }
            _ => Ok(read),
        }
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text(&Ports::web(), f)
    }
}

impl Serialize for AllowEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One entry of `network.deny`: as text the same forms, but without ports it means every port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DenyEntry(pub AllowEntry);

impl DenyEntry {
    /// What stands for an entry that cannot be read; it means nothing.
    pub(crate) fn unread() -> DenyEntry {
        DenyEntry(AllowEntry::unread())
    }
}

impl FromStr for DenyEntry {
    type Err = &'static str;

    fn from_str(entry: &str) -> Result<DenyEntry, &'static str> {
        read(entry, Ports::all).map(DenyEntry)
    }
}

impl fmt::Display for DenyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text(&Ports::all(), f)
    }
}

impl Serialize for DenyEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One rule of `network.allow`. It is written as a text when it says no more than where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowRule {
    /// Where.
    pub entry: AllowEntry,
    /// Methods that requests on plain HTTP may have; none means any. What is encrypted is not looked into.
    pub methods: Option<Vec<String>>,
    /// Paths that requests on plain HTTP may have, exact or ending in `/*`; none means any. What is encrypted is not looked
    /// into.
    pub paths: Option<Vec<String>>,
    /// Whether a TLS greeting may hide its name (Encrypted Client Hello): then the address alone says where it goes.
    pub encrypted_hello: bool,
    /// Whether the name may lead to an address of a private network. Never to this host, a link-local address or a metadata
    /// service.
    pub private: bool,
}

impl AllowRule {
    /// What stands for a rule that cannot be read; it means nothing.
    pub(crate) fn unread() -> AllowRule {
        AllowEntry::unread().into()
    }

    /// Whether it looks into requests, which only plain HTTP lets it.
    pub fn inspects(&self) -> bool {
        self.methods.is_some() || self.paths.is_some()
    }
}

impl From<AllowEntry> for AllowRule {
    fn from(entry: AllowEntry) -> AllowRule {
        AllowRule { entry, methods: None, paths: None, encrypted_hello: false, private: false }
    }
}

impl FromStr for AllowRule {
    type Err = &'static str;

    /// Reads a rule that says no more than where.
    fn from_str(entry: &str) -> Result<AllowRule, &'static str> {
        AllowEntry::from_str(entry).map(AllowRule::from)
    }
}

impl Serialize for AllowRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.inspects() && !self.encrypted_hello && !self.private {
            return self.entry.serialize(serializer);
        }
        let optional = [self.methods.is_some(), self.paths.is_some(), self.private];
        let said = 2 + optional.into_iter().filter(|said| *said).count();
        let mut rule = serializer.serialize_struct("AllowRule", said)?;
        rule.serialize_field("to", &self.entry)?;
        if let Some(methods) = &self.methods {
            rule.serialize_field("methods", methods)?;
        }
        if let Some(paths) = &self.paths {
            rule.serialize_field("paths", paths)?;
        }
        rule.serialize_field("encrypted_hello", &self.encrypted_hello)?;
        if self.private {
            rule.serialize_field("private", &self.private)?;
        }
        rule.end()
    }
}

/// Reads `HOST`, `*.SUFFIX`, `ADDRESS`, `ADDRESS/PREFIX`, each perhaps with `:PORTS`, for which IPv6 stands in brackets.
fn read(entry: &str, unsaid: fn() -> Ports) -> Result<AllowEntry, &'static str> {
    if entry.is_empty() {
        return Err("the entry is empty");
    }
    if entry.starts_with(SIGN) {
        return Err("a bundle of hosts is no single host, and belongs into what is allowed alone");
    }
    if entry.contains("://") {
        return Err("a URL: only its host and port belong here");
    }
    if let Some(rest) = entry.strip_prefix('[') {
        let (net, ports) = rest.split_once("]:").ok_or("brackets need ports: `[ADDRESS]:PORTS`")?;
        let to = net_of(net)?;
        return match to {
            To::Net { address: IpAddr::V6(_), .. } => Ok(AllowEntry { to, ports: Ports::parse(ports)? }),
            _ => Err("not an IPv6 address in the brackets"),
        };
    }
    if entry.split('/').next().is_some_and(|address| Ipv6Addr::from_str(address).is_ok()) {
        return Ok(AllowEntry { to: net_of(entry)?, ports: unsaid() });
    }
    let (host, ports) = match entry.split_once(':') {
        Some((host, ports)) => (host, Ports::parse(ports)?),
        None => (entry, unsaid()),
    };
    let to = if host.contains('/') || IpAddr::from_str(host).is_ok() {
        net_of(host)?
    } else if let Some(suffix) = host.strip_prefix("*.") {
        To::Suffix { suffix: host_name(suffix)? }
    } else if host == "*" {
        return Err("a lone `*` means everything: that is no list");
    } else {
        To::Host { name: host_name(host)? }
    };
    Ok(AllowEntry { to, ports })
}

/// Reads `ADDRESS` or `ADDRESS/PREFIX`.
fn net_of(text: &str) -> Result<To, &'static str> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address = IpAddr::from_str(address).map_err(|_| "not an address before the `/`")?;
    let (bits, width) = bits(address);
    let prefix = match prefix {
        None => width,
        Some(prefix) => number(prefix).filter(|&prefix| prefix <= width).ok_or("not a prefix length after the `/`")?,
    };
    if bits.checked_shl(prefix).unwrap_or(0) != 0 {
        return Err("the address has bits set beyond the prefix");
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() && prefix >= 96) {
        return Err("an IPv4 address written as IPv6: write it as IPv4");
    }
    // At most 128 by the filter above.
    Ok(To::Net { address, prefix: prefix as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> AllowEntry {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn every_documented_form_is_read_and_written_back() {
        let host = |name: &str, ports| AllowEntry { to: To::Host { name: name.into() }, ports };
        let net = |address: &str, prefix, ports| AllowEntry {
            to: To::Net { address: address.parse().unwrap(), prefix },
            ports,
        };
        let only = |port| Ports::from_ranges([(port, port)]);
        for (given, read, written) in [
            ("Example.com", host("example.com", Ports::web()), "example.com"),
            ("example.com.", host("example.com", Ports::web()), "example.com"),
            ("example.com:443,80", host("example.com", Ports::web()), "example.com"),
            ("ex\u{e4}mple.org:22", host("xn--exmple-cua.org", only(22)), "xn--exmple-cua.org:22"),
            ("a_b.example:8443", host("a_b.example", only(8443)), "a_b.example:8443"),
            ("x.org:*", host("x.org", Ports::all()), "x.org:*"),
            ("x.org:8000-8010,22", host("x.org", Ports::parse("22,8000-8010").unwrap()), "x.org:22,8000-8010"),
            ("*.x.org:443", AllowEntry { to: To::Suffix { suffix: "x.org".into() }, ports: only(443) }, "*.x.org:443"),
            ("10.0.0.0/8", net("10.0.0.0", 8, Ports::web()), "10.0.0.0/8"),
            ("10.0.0.0/8:443", net("10.0.0.0", 8, only(443)), "10.0.0.0/8:443"),
            ("fd00::/8", net("fd00::", 8, Ports::web()), "fd00::/8"),
            ("[fd00::/8]:*", net("fd00::", 8, Ports::all()), "[fd00::/8]:*"),
            ("::1/128", net("::1", 128, Ports::web()), "::1"),
            ("192.0.2.1/32", net("192.0.2.1", 32, Ports::web()), "192.0.2.1"),
            ("192.0.2.1:80", net("192.0.2.1", 32, only(80)), "192.0.2.1:80"),
            ("2001:DB8::1", net("2001:db8::1", 128, Ports::web()), "2001:db8::1"),
            ("[2001:db8::1]:443", net("2001:db8::1", 128, only(443)), "[2001:db8::1]:443"),
        ] {
            assert_eq!(entry(given), read, "{given}");
            assert_eq!(read.to_string(), written);
            assert_eq!(entry(written), read);
        }
    }

    #[test]
    fn a_denied_entry_without_ports_means_every_port() {
        for (given, ports, written) in
            [("x.org", "*", "x.org"), ("x.org:80,443", "80,443", "x.org:80,443"), ("0.0.0.0/0:*", "*", "0.0.0.0/0")]
        {
            let entry: DenyEntry = given.parse().unwrap();
            assert_eq!(entry.0.ports, Ports::parse(ports).unwrap());
            assert_eq!(entry.to_string(), written);
            assert_eq!(written.parse::<DenyEntry>().unwrap(), entry);
        }
        assert!("localhost".parse::<DenyEntry>().is_ok() && "*".parse::<DenyEntry>().is_err());
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "*",
            "*:443",
            "*.",
            "*.*.com",
            "a*.com",
            "https://x.org",
            "x.org/path",
            "x.org:",
            "x.org:0",
            "x.org:65536",
            "x.org:+80",
            "x.org:080",
            "x.org:80:80",
            "x.org:90-80",
            "x.org:80,",
            "x.org:80,*",
            "x..org",
            ".x.org",
            "x.org..",
            "-x.org",
            "x-.org",
            "x org",
            "x.org\0",
            "127.1",
            "0x7f.1",
            "2130706433",
            "1.2.3.4.5",
            "0x7f000001",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/08",
            "0.0.0.0/0",
            "::/0",
            "[::1]",
            "[::1]:0",
            "[10.0.0.1]:80",
            "fe80::1%eth0",
            "fd00::/8:443",
            "::ffff:10.0.0.1",
            "::ffff:10.0.0.0/104",
            "*.1",
            "user@x.org",
            "localhost",
            "LOCALHOST.:8080",
            "*.localhost",
            "a.localhost",
        ] {
            assert!(text.parse::<AllowEntry>().is_err(), "{text}");
        }
        assert!(format!("{}.org", "a".repeat(64)).parse::<AllowEntry>().is_err());
        assert!(format!("{}org", "a.".repeat(126)).parse::<AllowEntry>().is_err());
    }

    #[test]
    fn entries_match_what_they_say_and_no_neighbour() {
        assert!(entry("x.org").matches_name("X.ORG.", 443) && !entry("x.org").matches_name("a.x.org", 443));
        assert!(entry("x.org").matches_name("x.org", 80) && !entry("x.org").matches_name("x.org", 22));
        assert!(entry("x.org:443").matches_name("x.org", 443) && !entry("x.org:443").matches_name("x.org", 80));
        let suffix = entry("*.x.org:*");
        assert!(suffix.matches_name("a.b.X.org", 1));
        for other in ["x.org", ".x.org", "ax.org", "x.org.evil", "org", ""] {
            assert!(!suffix.matches_name(other, 1), "{other}");
        }
        let net = entry("10.1.0.0/16:*");
        assert!(net.matches_address("10.1.255.255".parse().unwrap(), 1));
        assert!(!net.matches_address("10.2.0.0".parse().unwrap(), 1));
        assert!(!net.matches_address("::ffff:10.1.0.1".parse().unwrap(), 1));
        assert!(!net.matches_name("10.1.0.1", 1));
        assert!(entry("::1").matches_address("::1".parse().unwrap(), 80));
    }

    #[test]
    fn an_entry_covers_what_it_means_as_a_whole() {
        for (over, under, covered) in [
            ("x.org:*", "x.org", true),
            ("x.org", "x.org:443", true),
            ("x.org:443", "x.org", false),
            ("*.x.org", "a.x.org", true),
            ("*.x.org", "x.org", false),
            ("*.x.org", "*.x.org", true),
            ("*.x.org", "*.a.x.org", true),
            ("*.a.x.org", "*.x.org", false),
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.1.0.0/16", "10.0.0.0/8", false),
            ("10.0.0.0/8", "x.org", false),
            ("10.0.0.0/8", "a00::", false),
        ] {
            assert_eq!(entry(over).covers(&entry(under)), covered, "{over} {under}");
        }
    }
}
