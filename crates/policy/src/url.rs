//! The URLs in a policy: of an API that is passed through, and of an upstream proxy. Pure.

use std::fmt;
use std::str::FromStr;

use crate::host::UrlHost;
use crate::webpath;

/// `http://` or `https://`, perhaps `USER:PASSWORD@`, a host, a port and a path, and nothing else.
///
/// Shows its password only where it is written out in full, by [`HttpUrl::to_text`]; everything else says `***`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HttpUrl {
    /// Whether it is `https`.
    pub https: bool,
    /// `USER:PASSWORD` with percent-encoding undone.
    pub credentials: Option<String>,
    /// The host.
    pub host: UrlHost,
    /// The port; the scheme's own where the text has none.
    pub port: u16,
    /// Empty, or a path that begins with `/` and does not end with it.
    pub path: String,
}

impl HttpUrl {
    /// What stands for a URL that cannot be read.
    pub(crate) fn unread() -> HttpUrl {
        HttpUrl { https: false, credentials: None, host: UrlHost::Name(String::new()), port: 0, path: String::new() }
    }

    /// The URL in full, with its password.
    pub fn to_text(&self) -> String {
        self.text(true)
    }

    fn text(&self, password: bool) -> String {
        let scheme = if self.https { "https" } else { "http" };
        let credentials = match &self.credentials {
            None => String::new(),
            Some(_) if !password => "***@".into(),
            Some(pair) => {
                let (user, password) = pair.split_once(':').unwrap_or((pair, ""));
                format!("{}:{}@", encoded(user), encoded(password))
            }
        };
        let default = if self.https { 443 } else { 80 };
        let port = if self.port == default { String::new() } else { format!(":{}", self.port) };
        format!("{scheme}://{credentials}{}{port}{}", self.host, self.path)
    }
}

impl FromStr for HttpUrl {
    type Err = &'static str;

    /// Reads a URL; the error says in words what is wrong with it, and shows no part of it.
    fn from_str(text: &str) -> Result<HttpUrl, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("not a URL: it has no `http://` or `https://`")?;
        let https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err("only `http://` and `https://` are known"),
        };
        if rest.bytes().any(|b| b.is_ascii_control() || b"?#\\ ".contains(&b)) {
            return Err("a query, a fragment, a backslash, a space or a control character");
        }
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        if !path.is_empty() {
            webpath::fault(path).map_or(Ok(()), Err)?;
        }
        let (credentials, place) = match authority.split_once('@') {
            None => (None, authority),
            Some((pair, place)) => (Some(credentials(pair)?), place),
        };
        // The colon after a bracket, or the only one.
        let colon = match place.rfind(']') {
            Some(bracket) => place[bracket..].find(':').map(|colon| bracket + colon),
            None => place.find(':'),
        };
        let (host, port) = match colon {
            None => (place, if https { 443 } else { 80 }),
            Some(colon) => {
                let port = crate::ports::number(&place[colon + 1..]).and_then(|port| u16::try_from(port).ok());
                (&place[..colon], port.filter(|&port| port > 0).ok_or("not a port: a number from 1 to 65535")?)
            }
        };
        Ok(HttpUrl { https, credentials, host: host.parse()?, port, path: path.to_owned() })
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(false))
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpUrl({self})")
    }
}

impl serde::Serialize for HttpUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_text())
    }
}

/// `USER:PASSWORD`, decoded; the colon that parts them is the first, so a user has none (RFC 7617).
fn credentials(pair: &str) -> Result<String, &'static str> {
    const BAD: &str = "before the `@` stand a user and a password, percent-encoded where they have `@`, `/` or `:`";
    let (user, password) = pair.split_once(':').unwrap_or((pair, ""));
    let user = decoded(user).filter(|user| !user.is_empty() && !user.contains(':')).ok_or(BAD)?;
    let password = decoded(password).ok_or(BAD)?;
    Ok(format!("{user}:{password}"))
}

/// Percent-encoding undone; none for what is not UTF-8 then, or has control characters.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

/// Everything but the unreserved characters of RFC 3986 as percent-encoding.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, b| {
        match b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            true => out.push(char::from(b)),
            false => out.push_str(&format!("%{b:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_read_back_as_themselves_and_hide_their_password() {
        for (given, full) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("HTTP://Localhost/", "http://localhost"),
            ("https://api.example:443/v1/", "https://api.example/v1"),
            ("http://[::1]:9/a%20b", "http://[::1]:9/a%20b"),
            ("http://u:p%40ss@proxy.example:3128", "http://u:p%40ss@proxy.example:3128"),
            ("http://u@proxy.example", "http://u:@proxy.example"),
        ] {
            let url: HttpUrl = given.parse().unwrap();
            assert_eq!(url.to_text(), full);
            assert_eq!(full.parse::<HttpUrl>().unwrap(), url);
            assert!(!format!("{url} {url:?}").contains("p@ss") && !format!("{url} {url:?}").contains("p%40ss"));
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for bad in [
            "",
            "a.example",
            "ftp://a.example",
            "http://",
            "http:///x",
            "http://a.example:0",
            "http://a.example:",
            "http://a:b:c",
            "http://a.example?x",
            "http://a.example/#x",
            "http://a b",
            "http://a\\b",
            "http://a.example/../x",
            "http://a.example//x",
            "http://a@b@c",
            "http://@a.example",
            "http://%zz@a.example",
            "http://[::1",
            "http://::1",
            "http://127.1",
            "http://%3a:x@a.example",
            "http://a.example\n",
        ] {
            assert!(bad.parse::<HttpUrl>().is_err(), "{bad}");
        }
    }
}
