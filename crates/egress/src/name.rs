//! Host names as they are compared: ASCII, lower case, no final dot; and the spellings that are refused.

use std::net::IpAddr;

/// A host name in lower-case ASCII without a final dot, which is no address in any spelling.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Normalises a name, or says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Name, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "not ASCII")?.to_ascii_lowercase();
        let text = text.strip_suffix('.').unwrap_or(&text);
        if text.is_empty() || text.len() > 253 {
            return Err("empty or longer than 253 bytes");
        }
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if !text.split('.').all(label) {
            return Err("a label that no host name has");
        }
        let last = text.rsplit('.').next().unwrap_or(text);
        if last.bytes().all(|b| b.is_ascii_digit())
            || last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            return Err("a number where a name ends");
        }
        if last == "localhost" {
            return Err("localhost");
        }
        Ok(Name(text.to_owned()))
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A host as URLs, Host headers, SOCKS and CONNECT name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// By name.
    Name(Name),
    /// By address.
    Address(IpAddr),
}

impl Host {
    /// Reads canonical dotted IPv4, bracketed IPv6 without a zone, or a name.
    pub fn parse(text: &str) -> Result<Host, &'static str> {
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return inner.parse().map(|v6| Host::Address(IpAddr::V6(v6))).map_err(|_| "no IPv6 address");
        }
        match text.parse() {
            Ok(v4) => Ok(Host::Address(IpAddr::V4(v4))),
            Err(_) => Name::parse(text.as_bytes()).map(Host::Name),
        }
    }
}
