//! The entries of the network allowlist, their syntax and what they match by text; and the methods of HTTP.
//!
//! One parser for the policy's validation and for the gateway, so that both mean the same. Never resolves a name.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// The methods that `network.methods` may name (RFC 9110, RFC 5789), but for `CONNECT`: in a tunnel any method passes.
pub const METHODS: &[&str] = &["GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE"];

/// One entry of `network.allow`, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowEntry {
    /// `HOST` or `HOST:PORT`.
    Host {
        /// Lower-case name without a final dot.
        name: String,
        /// Only this port; none means every port.
        port: Option<u16>,
    },
    /// `*.SUFFIX` or `*.SUFFIX:PORT`: every name below the suffix, not the suffix itself.
    Suffix {
        /// Lower-case name without the `*.`.
        suffix: String,
        /// Only this port; none means every port.
        port: Option<u16>,
    },
    /// `ADDRESS`, `ADDRESS:PORT` (IPv6 in brackets) or `ADDRESS/PREFIX`.
    Net {
        /// First address of the net.
        address: IpAddr,
        /// Leading bits that count; all of them for a single address.
        prefix: u8,
        /// Only this port; none means every port.
        port: Option<u16>,
    },
}

impl AllowEntry {
    /// Whether a connection to that name and port is allowed by this entry.
    pub fn matches_name(&self, name: &str, port: u16) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        match self {
            AllowEntry::Host { name: host, port: only } => {
                only.is_none_or(|only| only == port) && name.eq_ignore_ascii_case(host)
            }
            AllowEntry::Suffix { suffix, port: only } => {
                let below = name.len().checked_sub(suffix.len() + 1).is_some_and(|dot| {
                    dot > 0
                        && name.as_bytes()[dot] == b'.'
                        && name.as_bytes()[dot + 1..].eq_ignore_ascii_case(suffix.as_bytes())
                });
                only.is_none_or(|only| only == port) && below
            }
            AllowEntry::Net { .. } => false,
        }
    }

    /// Whether a connection to that address and port, asked for by address, is allowed by this entry.
    pub fn matches_address(&self, given: IpAddr, port: u16) -> bool {
        match self {
            AllowEntry::Net { address, prefix, port: only } => {
                let (net, given) = match (address, given) {
                    (IpAddr::V4(net), IpAddr::V4(given)) => {
                        (u128::from(u32::from(*net)) << 96, u128::from(u32::from(given)) << 96)
                    }
                    (IpAddr::V6(net), IpAddr::V6(given)) => (u128::from(*net), u128::from(given)),
                    _ => return false,
                };
                only.is_none_or(|only| only == port) && (net ^ given).leading_zeros() >= u32::from(*prefix)
            }
            _ => false,
        }
    }
}

impl FromStr for AllowEntry {
    type Err = &'static str;

    /// Reads an entry; the error says in words what is wrong with it.
    fn from_str(entry: &str) -> Result<AllowEntry, &'static str> {
        if entry.is_empty() {
            return Err("the entry is empty");
        }
        if let Some((address, prefix)) = entry.split_once('/') {
            return net(address, prefix);
        }
        if let Some(rest) = entry.strip_prefix('[') {
            let (address, port) = rest.split_once("]:").ok_or("brackets need a port: `[ADDRESS]:PORT`")?;
            let address = Ipv6Addr::from_str(address).map_err(|_| "not an IPv6 address in the brackets")?;
            return Ok(single(address.into(), Some(self::port(port)?)));
        }
        if let Ok(address) = Ipv6Addr::from_str(entry) {
            return Ok(single(address.into(), None));
        }
        let (host, port) = match entry.split_once(':') {
            Some((host, port)) => (host, Some(self::port(port)?)),
            None => (entry, None),
        };
        if let Ok(address) = IpAddr::from_str(host) {
            return Ok(single(address, port));
        }
        match host.strip_prefix("*.") {
            Some(suffix) => name(suffix).map(|suffix| AllowEntry::Suffix { suffix, port }),
            None if host == "*" => Err("a lone `*` allows everything: that is no allowlist"),
            None => name(host).map(|name| AllowEntry::Host { name, port }),
        }
    }
}

fn single(address: IpAddr, port: Option<u16>) -> AllowEntry {
    AllowEntry::Net { address, prefix: if address.is_ipv4() { 32 } else { 128 }, port }
}

fn net(address: &str, prefix: &str) -> Result<AllowEntry, &'static str> {
    let address = IpAddr::from_str(address).map_err(|_| "not an address before the `/`")?;
    let (bits, width) = match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    let prefix = number(prefix).filter(|&prefix| prefix <= width).ok_or("not a prefix length after the `/`")?;
    if prefix == 0 {
        return Err("a prefix of 0 allows everything: that is no allowlist");
    }
    if bits.checked_shl(prefix).unwrap_or(0) != 0 {
        return Err("the address has bits set beyond the prefix");
    }
    // At most 128 by the filter above.
    Ok(AllowEntry::Net { address, prefix: prefix as u8, port: None })
}

fn port(text: &str) -> Result<u16, &'static str> {
    let port = number(text).and_then(|number| u16::try_from(number).ok()).filter(|&port| port > 0);
    port.ok_or("not a port: a number from 1 to 65535")
}

/// Decimal digits without sign or leading zero.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit());
    (digits && (text == "0" || !text.starts_with('0'))).then(|| text.parse().ok())?
}

/// A host name in lower case (RFC 1123, and `_`, which real names use).
fn name(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.len() > 253 {
        return Err("a host name has 1 to 253 characters");
    }
    for label in text.split('.') {
        let letters = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if label.is_empty() || label.len() > 63 || !letters || label.starts_with('-') || label.ends_with('-') {
            return Err("not a host name: labels of letters, digits, `-` and `_`, joined by single dots");
        }
    }
    // What ends in a number some resolvers take as an IPv4 address: `127.1`, `0x7f.1`, `2130706433`.
    let last = text.rsplit('.').next().unwrap_or(text);
    let hexadecimal = last.strip_prefix("0x").or(last.strip_prefix("0X"));
    if last.bytes().all(|b| b.is_ascii_digit()) || hexadecimal.is_some_and(|h| h.bytes().all(|b| b.is_ascii_hexdigit()))
    {
        return Err("a name that ends in a number is read as an address by some programs");
    }
    Ok(text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> AllowEntry {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn every_documented_form_is_read() {
        assert_eq!(entry("Example.com"), AllowEntry::Host { name: "example.com".into(), port: None });
        assert_eq!(entry("a_b.example:8443"), AllowEntry::Host { name: "a_b.example".into(), port: Some(8443) });
        assert_eq!(entry("*.x.org:443"), AllowEntry::Suffix { suffix: "x.org".into(), port: Some(443) });
        let net = |address: &str, prefix, port| AllowEntry::Net { address: address.parse().unwrap(), prefix, port };
        assert_eq!(entry("10.0.0.0/8"), net("10.0.0.0", 8, None));
        assert_eq!(entry("fd00::/8"), net("fd00::", 8, None));
        assert_eq!(entry("::1/128"), net("::1", 128, None));
        assert_eq!(entry("192.0.2.1/32"), net("192.0.2.1", 32, None));
        assert_eq!(entry("192.0.2.1:80"), net("192.0.2.1", 32, Some(80)));
        assert_eq!(entry("2001:db8::1"), net("2001:db8::1", 128, None));
        assert_eq!(entry("[2001:db8::1]:443"), net("2001:db8::1", 128, Some(443)));
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
            "x..org",
            ".x.org",
            "x.org.",
            "-x.org",
            "x-.org",
            "x org",
            "x.org\0",
            "ex\u{e4}mple.org",
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
            "10.0.0.0/8:443",
            "*.1",
            "user@x.org",
        ] {
            assert!(text.parse::<AllowEntry>().is_err(), "{text}");
        }
        assert!(format!("{}.org", "a".repeat(64)).parse::<AllowEntry>().is_err());
        assert!(format!("{}org", "a.".repeat(126)).parse::<AllowEntry>().is_err());
    }

    #[test]
    fn entries_match_what_they_say_and_no_neighbour() {
        assert!(entry("x.org").matches_name("X.ORG.", 1) && !entry("x.org").matches_name("a.x.org", 1));
        assert!(entry("x.org:443").matches_name("x.org", 443) && !entry("x.org:443").matches_name("x.org", 80));
        let suffix = entry("*.x.org");
        assert!(suffix.matches_name("a.b.X.org", 1));
        for other in ["x.org", ".x.org", "ax.org", "x.org.evil", "org", ""] {
            assert!(!suffix.matches_name(other, 1), "{other}");
        }
        let net = entry("10.1.0.0/16");
        assert!(net.matches_address("10.1.255.255".parse().unwrap(), 1));
        assert!(!net.matches_address("10.2.0.0".parse().unwrap(), 1));
        assert!(!net.matches_address("::ffff:10.1.0.1".parse().unwrap(), 1));
        assert!(!net.matches_name("10.1.0.1", 1));
        assert!(entry("::1").matches_address("::1".parse().unwrap(), 1));
    }
}
