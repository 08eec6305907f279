//! Parses `HOST[:PORT]` of CONNECT, Host headers and URLs, and refuses what is ambiguous. Pure.

use std::fmt;
use std::net::IpAddr;

use http::HeaderValue;

use crate::decide::host_name::RequestedHost;
use crate::decide::rules::EgressTarget;

/// A host, and a port if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The host.
    pub target: EgressTarget,
    /// The port, never zero.
    pub port: Option<u16>,
}

impl Authority {
    /// Parses `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
    ///
    /// # Errors
    /// What is wrong: user information, a zone, an unusual spelling of an address, an empty port or one with a leading
    /// zero, or any other character.
    pub fn parse(bytes: &[u8]) -> Result<Authority, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "not ASCII")?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a character that no host has");
        }
        if text.contains('@') {
            return Err("user information before the host");
        }
        if text.contains(['%', '/', '\\', '?', '#']) {
            return Err("a character that no host has");
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(inner) => {
                let close = inner.find(']').ok_or("a bracket that is not closed")?;
                let (host, rest) = text.split_at(close + 2);
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':').ok_or("something behind the bracket")?)),
                }
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let target = match RequestedHost::parse(host)? {
            RequestedHost::Name(name) => EgressTarget::Name(name),
            RequestedHost::Address(address) => EgressTarget::Address(address),
        };
        Ok(Authority { target, port: port.map(parse_port).transpose()? })
    }
}

/// One to five digits without a leading zero.
fn parse_port(text: &str) -> Result<u16, &'static str> {
    if text.starts_with('0') || text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("no port number");
    }
    text.parse().map_err(|_| "no port number")
}

impl From<&Authority> for HeaderValue {
    fn from(authority: &Authority) -> HeaderValue {
        // All characters of names, addresses and ports may occur in a header's value.
        HeaderValue::try_from(authority.to_string()).unwrap_or(HeaderValue::from_static("invalid"))
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            EgressTarget::Name(name) => f.write_str(name.as_str())?,
            EgressTarget::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            EgressTarget::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}
