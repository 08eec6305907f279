//! The target of a request, from its parsed head, and the headers as they are forwarded. Pure.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Uri};

use crate::decide::rules::{EgressTarget, Grant};
use crate::http::authority::Authority;
use crate::http::request_head::same_alphanumerics;

/// Why a request is invalid here: one line, with the text of the header or target where that helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidRequest(pub(crate) String);

fn wrong(text: impl Into<String>) -> InvalidRequest {
    InvalidRequest(text.into())
}

/// The target of a request other than CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    /// Its authority, if it is a URL.
    pub(crate) url: Option<Authority>,
    /// Path and query, or `*`.
    pub(crate) path: PathAndQuery,
}

/// The authority of the single Host header.
pub(crate) fn host(headers: &HeaderMap) -> Result<Option<Authority>, InvalidRequest> {
    let mut values = headers.get_all(HOST).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match Authority::parse(value.as_bytes()) {
            Ok(authority) => Ok(Some(authority)),
            Err(why) => Err(wrong(format!("Host `{}`: {why}", shown(value.as_bytes())))),
        },
        (Some(_), Some(_)) => Err(wrong("more than one Host")),
    }
}

/// Parses the target of a request other than CONNECT.
pub(crate) fn request_target(method: &Method, uri: &Uri) -> Result<RequestTarget, InvalidRequest> {
    let odd = || wrong(format!("target `{}`", shown(uri.to_string().as_bytes())));
    let path = match uri.path_and_query() {
        Some(path) if path.as_str() == "*" && method == Method::OPTIONS => path.clone(),
        Some(path) if path.as_str().starts_with('/') => path.clone(),
        // `http://host?query` is a URL too.
        Some(path) if path.as_str().starts_with('?') => format!("/{}", path.as_str()).parse().map_err(|_| odd())?,
        _ => return Err(odd()),
    };
    let url = match (uri.scheme(), uri.authority()) {
        (None, None) => None,
        (Some(scheme), Some(authority)) if *scheme == Scheme::HTTP => {
            match Authority::parse(authority.as_str().as_bytes()) {
                Ok(authority) => Some(authority),
                Err(why) => {
                    return Err(wrong(format!("URL with host `{}`: {why}", shown(authority.as_str().as_bytes()))));
                }
            }
        }
        (Some(scheme), _) if *scheme == Scheme::HTTPS => {
            return Err(wrong("a URL with https; hint: the client makes the TLS itself, by CONNECT HOST:443"));
        }
        _ => return Err(odd()),
    };
    Ok(RequestTarget { url, path })
}

/// Whether this is the same host, with the same port or none.
pub(crate) fn agrees(authority: &Authority, target: &EgressTarget, port: u16) -> bool {
    authority.target == *target && authority.port.is_none_or(|given| given == port)
}

/// Headers by which some servers replace the method or path of the request line. They are compared without punctuation:
/// CGI turns other characters than letters and digits into `_`.
const OVERRIDES: &[&str] = &[
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-forwarded-method",
    "x-forwarded-prefix",
    "x-forwarded-uri",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
];

/// A header by which some servers would replace the method or path of the request line.
pub(crate) fn override_header(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.keys().find(|name| OVERRIDES.iter().any(|other| same_alphanumerics(name.as_str(), other)))
}

/// Refuses a request that has to be inspected and that overrides the inspected method or path by a header.
pub(crate) fn plain(grant: &Grant, headers: &HeaderMap) -> Result<(), InvalidRequest> {
    match override_header(headers) {
        Some(name) if grant.inspected => {
            Err(wrong(format!("`{name}`, which a rule with methods or paths does not have")))
        }
        _ => Ok(()),
    }
}

/// Whether a header is hop-by-hop, whatever `Connection` says.
fn is_hop(name: &HeaderName) -> bool {
    matches!(name.as_str(), "connection" | "keep-alive" | "te" | "transfer-encoding" | "upgrade" | "http2-settings")
        || name.as_str().starts_with("proxy-")
}

/// Removes hop-by-hop headers.
fn strip(headers: &mut HeaderMap) {
    let nominated: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|option| HeaderName::from_bytes(option.trim_ascii()).ok())
        .collect();
    let hops: Vec<HeaderName> = headers.keys().filter(|name| is_hop(name)).cloned().collect();
    for name in hops.iter().chain(&nominated) {
        headers.remove(name);
    }
}

/// Whether a header is a list that contains this word.
pub(crate) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .any(|option| option.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Changes a request's headers to those that are sent to upstream.
pub(crate) fn clean_request(headers: &mut HeaderMap, host: HeaderValue, websocket: bool) {
    let trailers = has_token(headers, &TE, "trailers");
    let expects = headers.contains_key(EXPECT);
    strip(headers);
    headers.remove(http::header::CONTENT_LENGTH);
    headers.remove(EXPECT);
    headers.insert(HOST, host);
    if expects {
        headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
    }
    if websocket {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    } else if trailers {
        headers.insert(CONNECTION, HeaderValue::from_static("TE"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Changes a response's headers to those that are sent to the client.
pub(crate) fn clean_response(headers: &mut HeaderMap, websocket: bool) {
    strip(headers);
    if websocket {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
}

/// Makes an answer's length unambiguous: beside Transfer-Encoding, Content-Length does not count (RFC 9112, 6.3).
///
/// # Errors
/// A coding other than `chunked` is applied, which is removed nowhere here: the body would arrive as another one.
pub(crate) fn frame_response(headers: &mut HeaderMap) -> Result<(), String> {
    let values = headers.get_all(TRANSFER_ENCODING).iter();
    let codings: Vec<&[u8]> = values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
        .collect();
    match codings[..] {
        [] => {}
        [coding] if coding.eq_ignore_ascii_case(b"chunked") => {}
        _ => {
            let all = codings.join(&b", "[..]);
            return Err(format!("in Transfer-Encoding `{}`, which cannot be passed on", shown(&all)));
        }
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    Ok(())
}

/// Text from a client, for display: truncated and escaped.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 120;
    let cut = &bytes[..bytes.len().min(MOST)];
    let mut text: String = cut.iter().flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
    if cut.len() < bytes.len() {
        text.push('…');
    }
    text
}
