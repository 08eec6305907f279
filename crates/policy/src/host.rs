//! Host names and addresses as texts: the form in which they are compared, and the spellings that are refused.
//!
//! One reader for the policy and for the gateway, so that both mean the same. Never resolves a name.

use std::net::IpAddr;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

/// Longest name, in characters (RFC 1035, without the final dot).
const MAX_NAME: usize = 253;

/// A host name in lower-case ASCII without a final dot, from any spelling of it: upper case, a final dot, Unicode
/// (UTS 46). Labels are those of RFC 1123, and `_`, which real names use.
///
/// The error says in words what is wrong. What some programs read as an address (`127.1`, `0x7f.1`, `2130706433`) is
/// none; `localhost` is one.
pub fn host_name(text: &str) -> Result<String, &'static str> {
    // Before the work of normalising: no longer text can end in a name, since no mapping makes fewer than a fourth.
    if text.is_empty() || text.len() > 4 * MAX_NAME {
        return Err("a host name has 1 to 253 characters");
    }
    if text.bytes().any(|b| b.is_ascii() && !(b.is_ascii_alphanumeric() || b"-_.".contains(&b))) {
        return Err("not a host name: labels of letters, digits, `-` and `_`, joined by single dots");
    }
    let lower = text.to_ascii_lowercase();
    let ascii = if lower.is_ascii() && !lower.contains("xn--") {
        lower
    } else {
        let processed =
            Uts46::new().to_ascii(lower.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore);
        processed.map_err(|_| "not a name that IDNA knows (UTS 46)")?.into_owned()
    };
    let name = ascii.strip_suffix('.').unwrap_or(&ascii);
    if name.is_empty() || name.len() > MAX_NAME {
        return Err("a host name has 1 to 253 characters");
    }
    for label in name.split('.') {
        // Mapping may have made what the first look would have refused.
        let letters = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if label.is_empty() || label.len() > 63 || !letters || label.starts_with('-') || label.ends_with('-') {
            return Err("not a host name: labels of letters, digits, `-` and `_`, joined by single dots");
        }
    }
    // What ends in a number some resolvers take as an IPv4 address.
    let last = name.rsplit('.').next().unwrap_or(name);
    let hexadecimal = last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if last.bytes().all(|b| b.is_ascii_digit()) || hexadecimal {
        return Err("a name that ends in a number is read as an address by some programs");
    }
    Ok(name.to_owned())
}

/// Whether a normalised name is the sandbox's own whatever a resolver says (RFC 6761, 6.3).
pub fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// What stands for a host in a URL: a name, or an address in its one canonical form, IPv6 in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UrlHost {
    /// Normalised by [`host_name`].
    Name(String),
    /// Four decimal numbers, or IPv6 that stood in brackets, without a zone.
    Address(IpAddr),
}

impl std::str::FromStr for UrlHost {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<UrlHost, &'static str> {
        if let Some(rest) = text.strip_prefix('[') {
            let address = rest.strip_suffix(']').and_then(|rest| rest.parse().ok());
            return address.map(|v6| UrlHost::Address(IpAddr::V6(v6))).ok_or("not an IPv6 address in the brackets");
        }
        match text.parse() {
            Ok(v4) => Ok(UrlHost::Address(IpAddr::V4(v4))),
            Err(_) => host_name(text).map(UrlHost::Name),
        }
    }
}

impl std::fmt::Display for UrlHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UrlHost::Name(name) => f.write_str(name),
            UrlHost::Address(IpAddr::V4(v4)) => write!(f, "{v4}"),
            UrlHost::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_name_has_one_form() {
        for (given, name) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("a_b.example", "a_b.example"),
            ("registry", "registry"),
            ("b\u{fc}cher.example", "xn--bcher-kva.example"),
            ("B\u{dc}CHER.example.", "xn--bcher-kva.example"),
            ("bu\u{308}cher.example", "xn--bcher-kva.example"),
            ("XN--Bcher-KVA.example", "xn--bcher-kva.example"),
            ("\u{ff45}xample\u{3002}com", "example.com"),
            ("fa\u{df}.example", "xn--fa-hia.example"),
            ("\u{430}pple.example", "xn--pple-43d.example"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(host_name(given).as_deref(), Ok(name), "{given}");
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        let long = |label: &str, times: usize| [label].repeat(times).join(".");
        let texts = [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a..",
            "-a",
            "a-",
            "a b",
            "a\0b",
            "a@b",
            "a%25b",
            "fe80::1%eth0",
            "a:80",
            "a/b",
            "*.a",
            "127.1",
            "0x7f.1",
            "0X7F",
            "2130706433",
            "017700000001",
            "1.2.3.4.5",
            "1.2.3.4",
            "a.1",
            "a.0x",
            "a.0xff",
            "\u{ff11}\u{ff12}7.1",
            "a\u{ff0f}b",
            "a\u{200b}",
            "xn--a",
            "xn--\u{e4}",
            "a.xn--",
            "\u{2488}com",
            "[::1]",
            "a\\b",
            "\u{ff05}",
            "a\u{ff20}b",
            "\u{0}",
        ];
        for text in texts {
            // A mark that UTS 46 ignores leaves the name that it stood in.
            if text == "a\u{200b}" {
                assert_eq!(host_name(text).as_deref(), Ok("a"));
                continue;
            }
            assert!(host_name(text).is_err(), "{text:?} became {:?}", host_name(text));
        }
        assert!(host_name(&"a".repeat(63)).is_ok() && host_name(&"a".repeat(64)).is_err());
        assert!(host_name(&long("abcdef", 36)).is_ok() && host_name(&long("abcdef", 37)).is_err());
    }

    #[test]
    fn a_urls_host_has_one_spelling_of_each_address() {
        for good in ["192.0.2.1", "[2001:db8::1]", "[::1]", "a.example"] {
            assert_eq!(good.parse::<UrlHost>().unwrap().to_string(), good);
        }
        for bad in ["192.0.2", "192.0.2.01", "0300.0.2.1", "[192.0.2.1]", "[::1", "::1", "[::1%lo]", "[::1]x", ""] {
            assert!(bad.parse::<UrlHost>().is_err(), "{bad}");
        }
    }
}
