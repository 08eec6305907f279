//! Host names in the form in which they are compared: ASCII, lower case, no final dot. Refuses ambiguous spellings.
//! Pure.
//!
//! `policy::host` defines what a name is, so that one parser reads both the policy and what a program asks for.

use std::fmt;
use std::net::IpAddr;

use cofferdam_policy::host::{UrlHost, host_name, is_local};

/// A host name in lower-case ASCII without a final dot: never an address in any spelling, and never `localhost`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Normalises a name, in ASCII or in Unicode (UTS 46).
    ///
    /// # Errors
    /// Why it is no host name: a NUL, a userinfo, a zone, a port, an empty label or one of more than 63 characters; an
    /// address in any spelling; or `localhost`, which inside a sandbox is the sandbox itself.
    pub fn parse(bytes: &[u8]) -> Result<Name, &'static str> {
        let name = host_name(std::str::from_utf8(bytes).map_err(|_| "neither ASCII nor UTF-8")?)?;
        if is_local(&name) { Err("`localhost` is the sandbox itself") } else { Ok(Name(name)) }
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A host as it is written in URLs, Host headers, SOCKS and CONNECT.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestedHost {
    /// By name.
    Name(Name),
    /// By address.
    Address(IpAddr),
}

impl RequestedHost {
    /// Reads canonical dotted IPv4, bracketed IPv6 without a zone, or a name.
    ///
    /// # Errors
    /// As for [`Name::parse`].
    pub fn parse(text: &str) -> Result<RequestedHost, &'static str> {
        match text.parse()? {
            UrlHost::Address(address) => Ok(RequestedHost::Address(address)),
            UrlHost::Name(name) if is_local(&name) => Err("`localhost` is the sandbox itself"),
            UrlHost::Name(name) => Ok(RequestedHost::Name(Name(name))),
        }
    }

    /// A host that the policy names for the gateway's own use, outside the sandbox: it may be `localhost`.
    #[cfg(feature = "gateway")]
    pub(crate) fn of_policy(host: &UrlHost) -> RequestedHost {
        match host {
            UrlHost::Address(address) => RequestedHost::Address(*address),
            UrlHost::Name(name) => RequestedHost::Name(Name(name.clone())),
        }
    }
}

impl fmt::Display for RequestedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestedHost::Name(name) => name.fmt(f),
            RequestedHost::Address(IpAddr::V4(v4)) => v4.fmt(f),
            RequestedHost::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_normalised() {
        for spelling in ["Example.COM", "example.com.", "\u{ff25}xample.com", "example\u{3002}com"] {
            assert_eq!(Name::parse(spelling.as_bytes()).unwrap().as_str(), "example.com", "{spelling}");
        }
        assert_eq!(Name::parse("b\u{fc}cher.example".as_bytes()), Name::parse(b"XN--BCHER-KVA.example."));
        for same in ["192.0.2.1", "[2001:db8::1]", "a.example"] {
            assert_eq!(RequestedHost::parse(same).unwrap().to_string(), same);
        }
        let api: cofferdam_policy::HttpUrl = "http://localhost:8000".parse().unwrap();
        assert_eq!(RequestedHost::of_policy(&api.host).to_string(), "localhost");
    }

    #[test]
    fn ambiguous_hosts_are_refused() {
        for bad in [
            "",
            ".",
            "a..b",
            "a\0.example",
            "a.example\0.evil",
            "user@a.example",
            "a.example:80",
            "a.example%25eth0",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.0.0.1.",
            "0x7f.1",
            "\u{ff11}27.0.0.1",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "\u{ff4c}ocalhost",
            "fe80::1%eth0",
            "[fe80::1%25eth0]",
            "::1",
            "[127.0.0.1]",
            "a b",
            "a/b",
            "*.a",
        ] {
            assert!(RequestedHost::parse(bad).is_err(), "{bad:?} is {:?}", RequestedHost::parse(bad));
        }
        assert!(Name::parse(b"\xff\xfe").is_err() && Name::parse(b"192.0.2.1").is_err());
        assert!(Name::parse(&[b"a".repeat(63), b".example".to_vec()].concat()).is_ok());
        assert!(Name::parse(&[b"a".repeat(64), b".example".to_vec()].concat()).is_err());
    }
}
