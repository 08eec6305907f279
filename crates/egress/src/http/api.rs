//! The API that a policy passes through: every request goes to one base URL, and its method, path, status, bytes and
//! duration are reported. Nothing else is reachable here; headers and bodies are not reported.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use cofferdam_policy::HttpUrl;
use cofferdam_policy::webpath::{decoded, overlong};
use http::header::{HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::decide::host_name::RequestedHost;
use crate::decide::rules::EgressTarget;
use crate::decide::socket_layout::{API_PORT, INSIDE};
use crate::http::authority::Authority;
use crate::http::connection::{HttpConnection, RequestService, serve};
use crate::http::interface::{BoxedStream, Dial, GatewayInterface};
use crate::http::refusal_response::{RefusedRequest, RequestInfo};
use crate::http::request_target::{InvalidRequest, override_header, request_target};
use crate::http::upstream_client::{BodyError, BoxedBody, UpstreamClient};
use crate::report::event::{NetworkKind, NetworkVia};

/// Makes a connection to the base URL's host and port, and nothing else.
pub type Connect = Arc<dyn Fn() -> Dial + Send + Sync>;

/// The parsed base URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// The host, which may be local or private: the policy names it.
    pub host: RequestedHost,
    /// The port.
    pub port: u16,
    /// Prefix of every request's path: empty, or beginning with `/` and not ending with one.
    pub prefix: String,
    /// The Host header of the requests to it.
    authority: HeaderValue,
}

/// Why a base URL cannot be passed through to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The gateway does not speak TLS.
    #[error(
        "an API with https cannot be passed through; hint: allow its host in `network.allow`, \
         or run a proxy to it on this host's loopback and name that, with http"
    )]
    Https,
    /// The URL's host has a character that no host has, which a validated policy never has.
    #[error("the API's host is no host")]
    Host,
}

impl Api {
    /// The API of a policy's `network.api.url`.
    ///
    /// # Errors
    /// The base URL cannot be passed through to.
    pub fn new(url: &HttpUrl) -> Result<Api, ApiError> {
        if url.https {
            return Err(ApiError::Https);
        }
        let text = match url.port {
            80 => url.host.to_string(),
            port => format!("{}:{port}", url.host),
        };
        let authority = HeaderValue::try_from(text).map_err(|_| ApiError::Host)?;
        Ok(Api { host: RequestedHost::of_policy(&url.host), port: url.port, prefix: url.path.clone(), authority })
    }

    fn target(&self) -> EgressTarget {
        match &self.host {
            RequestedHost::Name(name) => EgressTarget::Name(name.clone()),
            RequestedHost::Address(address) => EgressTarget::Address(*address),
        }
    }

    /// Refuses a request with a header by which some servers would take another path than the one below the base
    /// URL's. An API without a path has no other.
    fn within(&self, headers: &HeaderMap) -> Result<(), InvalidRequest> {
        match override_header(headers) {
            Some(name) if !self.prefix.is_empty() => {
                Err(InvalidRequest(format!("`{name}`, which could lead out of the API's own path")))
            }
            _ => Ok(()),
        }
    }

    /// The URI of a request: its path after the base URL's.
    fn below(&self, path: &PathAndQuery) -> Result<Uri, InvalidRequest> {
        if self.prefix.is_empty() {
            return Ok(Uri::from(path.clone()));
        }
        if !path.as_str().starts_with('/') || leaves_prefix(path.path()) {
            return Err(InvalidRequest("a path that could lead out of the API's own".to_owned()));
        }
        let whole = format!("{}{}", self.prefix, path.as_str());
        whole.parse().map_err(|_| InvalidRequest("a path that is too long".to_owned()))
    }
}

/// Whether some server could take a segment of this path for `.` or `..`: percent-encoded once or several times or as
/// by IIS (`%u002e`), in overlong UTF-8, between backslashes, with parameters after a semicolon, or truncated at a
/// control character.
fn leaves_prefix(path: &str) -> bool {
    let mut bytes = path.as_bytes().to_vec();
    loop {
        let dots = |segment: &[u8]| {
            let end = segment.iter().position(|byte| *byte == b';' || byte.is_ascii_control()).unwrap_or(segment.len());
            let name = segment[..end].trim_ascii();
            name == b"." || name == b".."
        };
        let wide =
            bytes.windows(3).any(|three| matches!(three, [b'%', b'u' | b'U', digit] if digit.is_ascii_hexdigit()));
        if wide || overlong(&bytes) || bytes.split(|byte| matches!(byte, b'/' | b'\\')).any(dots) {
            return true;
        }
        let decoded = decoded(&bytes);
        if decoded.len() == bytes.len() {
            return false;
        }
        bytes = decoded;
    }
}

/// Serves requests to the API, on whatever connection they come.
pub(super) struct ApiService {
    api: Arc<Api>,
    upstream: UpstreamClient,
}

impl ApiService {
    pub(super) fn new(api: Arc<Api>, connect: Connect) -> ApiService {
        ApiService { api, upstream: UpstreamClient::new(None, move || connect()) }
    }
}

/// Serves a connection to the API's address in the sandbox until either side ends it. Each request is an event.
pub async fn api(gateway: Arc<dyn GatewayInterface>, client: BoxedStream, api: Arc<Api>, connect: Connect) {
    serve(gateway, NetworkVia::Api, client, ApiService::new(api, connect)).await;
}

impl RequestService for ApiService {
    async fn serve(
        &self,
        connection: &HttpConnection,
        request: Request<hyper::body::Incoming>,
        info: &mut RequestInfo,
    ) -> Result<Response<BoxedBody>, RefusedRequest> {
        let began = Instant::now();
        info.to = Some((self.api.target(), self.api.port));
        if request.method() == Method::CONNECT {
            return Err(InvalidRequest("CONNECT is for the proxy, and this is an API".to_owned()).into());
        }
        let request_target = request_target(request.method(), request.uri())?;
        info.path = Some(request_target.path.path().to_owned());
        let here = Authority { target: EgressTarget::Address(INSIDE), port: Some(API_PORT) };
        if let Some(url) = request_target.url.filter(|url| *url != here) {
            return Err(RefusedRequest::mismatch(&url, &here.target, API_PORT));
        }
        self.api.within(request.headers())?;
        let uri = self.api.below(&request_target.path)?;
        let up = Arc::new(AtomicU64::new(0));
        let request = {
            let up = Arc::clone(&up);
            request.map(|body| CountedBody {
                body: body.map_err(BodyError::from).boxed_unsync(),
                count: up,
                event: None,
            })
        };
        // From here on it may have reached the API, whether or not its program waits for the answer.
        let mut event = RequestEvent {
            gateway: Arc::clone(&connection.gateway),
            info: info.clone(),
            status: None,
            began,
            up,
            down: Arc::default(),
            already_reported: false,
        };
        let response = match connection.pass(request, uri, self.api.authority.clone(), &self.upstream).await {
            Ok(response) => response,
            Err(refused) => {
                event.already_reported = !refused.cut_off;
                return Err(refused);
            }
        };
        event.status = Some(response.status().as_u16());
        Ok(response.map(|body| CountedBody { body, count: Arc::clone(&event.down), event: Some(event) }.boxed_unsync()))
    }
}

/// Reports a request when its response has ended or was dropped; without a status if there was no response.
struct RequestEvent {
    gateway: Arc<dyn GatewayInterface>,
    info: RequestInfo,
    status: Option<u16>,
    began: Instant,
    up: Arc<AtomicU64>,
    down: Arc<AtomicU64>,
    /// There is no response, and its refusal or failure is reported elsewhere.
    already_reported: bool,
}

impl Drop for RequestEvent {
    fn drop(&mut self) {
        if self.already_reported {
            return;
        }
        let mut event = self.info.event(NetworkKind::ApiRequest);
        event.status = self.status;
        event.bytes_up = Some(self.up.load(Ordering::Relaxed));
        event.bytes_down = Some(self.down.load(Ordering::Relaxed));
        event.duration_ms = Some(self.began.elapsed().as_millis() as u64);
        self.gateway.event(event);
    }
}

/// A body whose bytes are counted.
struct CountedBody {
    body: BoxedBody,
    count: Arc<AtomicU64>,
    event: Option<RequestEvent>,
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.count.fetch_add(length, Ordering::Relaxed);
            }
            Poll::Ready(_) => drop(self.event.take()),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_prefix_are_found_in_every_spelling() {
        for path in [
            "/..",
            "/../x",
            "/a/..",
            "/a/../../b",
            "/%2e%2e/x",
            "/.%2E/x",
            "/%252e%252e/x",
            "/%25252e./x",
            "/..%2fx",
            "/a/..%5cx",
            "/a\\..\\x",
            "/..;/x",
            "/..;a=b/x",
            "/./x",
            "/%2e",
            "/a/%2e%2e%2fx",
            "/..%00/x",
            "/..%20/x",
            "/..%0d%0aX/y",
            "/%u002e%u002e/x",
            "/%c0%ae%c0%ae/x",
            "/%25c0%25ae./x",
            "/..%c0%af/x",
        ] {
            assert!(leaves_prefix(path), "{path}");
        }
        for path in
            ["/", "/a.b", "/...", "/a..b/c", "/..a", "/a%2fb", "/%25", "/%", "/%zz", "/a;..", "/.well-known/x", "//a"]
        {
            assert!(!leaves_prefix(path), "{path}");
        }
    }

    #[test]
    fn headers_that_name_another_path_are_refused_below_a_path() {
        let api = |text: &str| Api::new(&text.parse().unwrap()).unwrap();
        let headers = |name: &'static str| HeaderMap::from_iter([(name.parse().unwrap(), "/admin".parse().unwrap())]);
        for name in ["x-original-url", "x-rewrite-url", "x_original_uri", "x-http-method-override"] {
            assert!(api("http://api.example/v1").within(&headers(name)).is_err(), "{name}");
            assert!(api("http://api.example/").within(&headers(name)).is_ok(), "{name}");
        }
        assert!(api("http://api.example/v1").within(&headers("x-original")).is_ok());
    }

    #[test]
    fn a_base_url_keeps_its_prefix_and_names_itself() {
        let api = |text: &str| Api::new(&text.parse().unwrap());
        for (text, authority) in [
            ("http://127.0.0.1:8000/v1", "127.0.0.1:8000"),
            ("http://localhost:8000", "localhost:8000"),
            ("http://[::1]", "[::1]"),
            ("http://api.example/", "api.example"),
        ] {
            assert_eq!(api(text).unwrap().authority, authority, "{text}");
        }
        let based = api("http://api.example/v1/").unwrap();
        let below = |path: &str| based.below(&path.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(below("/x?a=../b"), Ok("/v1/x?a=../b".to_owned()));
        assert_eq!(below("/"), Ok("/v1/".to_owned()));
        assert!(below("/../x").is_err() && below("*").is_err());
        assert_eq!(api("https://api.example"), Err(ApiError::Https));
    }
}
