//! The transport of streamable HTTP: any number of clients, each with the bearer token.
//!
//! ```text
//! connection ─ how many ─ token (401) ─ body (413) ─ Host, Origin (403) ─▶ service ─▶ document, or stream (`single`)
//! ```

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use cofferdam_config::serve::Serve;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::conn_limit::{Doorway, LetIn};
use crate::event_log::RETRY;
use crate::http_sessions::Conversations;
use crate::json_answers;
use crate::server::ServeError;
use crate::service::{LONGEST_CODE, Service, Shared};
use crate::token::{self, Token};

/// Largest request, bytes: code of the largest size, of which every character is escaped as two.
pub const LARGEST_REQUEST: usize = LONGEST_CODE * 2 + (64 << 10);

/// How long a client with `initialize` may be silent at least.
const IDLE: Duration = Duration::from_secs(300);

/// Where the protocol is served.
pub const PATH: &str = "/mcp";

/// Where to listen, and who may come.
#[derive(Debug)]
pub struct Door {
    address: SocketAddr,
    token: Option<Token>,
    /// Told to the operator, because nobody else has it.
    new: bool,
    config: StreamableHttpServerConfig,
}

impl Door {
    /// What the options come to. `open` makes no token where none was given.
    ///
    /// # Errors
    /// The address is none, or would let in whom it must not.
    pub fn of(serve: &Serve, address: &str, open: bool) -> Result<Door, ServeError> {
        let address: SocketAddr = address.parse().map_err(|_| ServeError::Address(address.to_owned()))?;
        let variable = std::env::var(token::VARIABLE).ok().filter(|text| !text.is_empty());
        let (token, new) = match (&serve.token_file, variable) {
            (Some(file), _) => (Some(Token::of_file(Path::new(file))?), false),
            (None, Some(text)) => (Some(Token::of_variable(&text)?), false),
            (None, None) if open => (None, false),
            (None, None) => (Some(Token::new()?), true),
        };
        let is_loopback = address.ip().to_canonical().is_loopback();
        if !is_loopback && (new || token.is_none()) {
            return Err(ServeError::Exposed(address));
        }
        if !is_loopback && serve.allow_hosts.is_empty() {
            return Err(ServeError::Nameless(address));
        }
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).to_vec();
        if is_loopback {
            hosts.push(match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => ip.to_string(),
            });
        }
        hosts.extend(serve.allow_hosts.iter().cloned());
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_allowed_origins(serve.allow_origins.iter().cloned())
            .enforce_origin_validation()
            .with_sse_retry(Some(RETRY))
            .with_max_request_body_bytes(LARGEST_REQUEST);
        Ok(Door { address, token, new, config })
    }
}

/// Serves until `stop`.
pub async fn serve(shared: Arc<Shared>, door: Door, stop: CancellationToken) -> Result<(), ServeError> {
    let Door { address, token, new, mut config } = door;
    let listener =
        tokio::net::TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
    let local = listener.local_addr().map_err(|source| ServeError::Listen { address, source })?;
    if local.ip().to_canonical().is_loopback() {
        // Pages that come from this very address.
        let own = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{}", local.port()));
        config.allowed_origins.extend(own);
    }
    tracing::info!("listening on http://{local}{PATH}");
    if let Some(token) = token.as_ref().filter(|_| new) {
        tracing::info!("callers send: Authorization: Bearer {}", token.text());
    }
    if token.is_none() {
        tracing::warn!("every program of this machine can have code run: no token is asked for");
    }
    let conversations = Arc::new(Conversations::new(idle(&shared)));
    tokio::spawn(follow(Arc::clone(&shared), Arc::downgrade(&conversations)));
    let config = config.with_cancellation_token(stop.child_token());
    let protocol = StreamableHttpService::new(move || Ok(Service::connected(&shared, true)), conversations, config);
    let mut router = axum::Router::new().nest_service(PATH, protocol).layer(middleware::from_fn(json_answers::single));
    router =
        router.layer(middleware::from_fn(one_host)).layer(middleware::from_fn(ended)).layer(middleware::from_fn(stays));
    if let Some(token) = token {
        let token = Arc::new(token);
        router = router.layer(middleware::from_fn(move |request, next| admit(Arc::clone(&token), request, next)));
    }
    router = router.layer(middleware::from_fn(hinted));
    axum::serve(Doorway::new(listener), router.into_make_service_with_connect_info::<LetIn>())
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
        .map_err(|source| ServeError::Listen { address, source })
}

/// How long a client may be silent: as long as the sessions that go when it does, at least.
fn idle(shared: &Shared) -> Duration {
    Duration::from_secs(shared.shelf.now().sessions.idle_timeout_seconds).max(IDLE)
}

/// Has that follow the definitions.
async fn follow(shared: Arc<Shared>, conversations: Weak<Conversations>) {
    let mut changes = shared.shelf.changes();
    while changes.changed().await.is_ok() {
        let Some(conversations) = conversations.upgrade() else { return };
        conversations.set_idle(idle(&shared));
    }
}

/// Says that a connection is one of those that may stay.
async fn stays(ConnectInfo(let_in): ConnectInfo<LetIn>, request: Request, next: Next) -> Response {
    let_in.stays();
    next.run(request).await
}

/// Says that a session has ended, which is so when its DELETE is answered: the library says "accepted", which clients take
/// for a failure.
async fn ended(request: Request, next: Next) -> Response {
    let is_delete = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    if is_delete && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    response
}

/// Refuses a request whose host can be read in more than one way; which hosts are allowed is the library's to check, and it
/// reads the first `Host` alone.
async fn one_host(request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let has_user = first.is_some_and(|host| host.as_bytes().contains(&b'@'));
    if second.is_some() || has_user {
        let why = "the Host header must name one host, without a user\nhint: send one Host header: NAME or NAME:PORT\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    }
    // A target in absolute form comes before Host (RFC 9112, 3.2.2).
    let target = request.uri().authority().map(|authority| authority.as_str());
    let other =
        |host: &HeaderValue| target.is_some_and(|target| !target.as_bytes().eq_ignore_ascii_case(host.as_bytes()));
    if first.is_some_and(other) {
        let why = "the request target names another host than Host\nhint: send the path alone as the target, /mcp\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

/// Longest text of a refusal.
const LONGEST_REFUSAL: usize = 64 << 10;

/// Has each refusal say what helps, where it is no message of the protocol.
async fn hinted(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    if !(status.is_client_error() || status.is_server_error()) || kind.is_some_and(|kind| kind == b"application/json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, LONGEST_REFUSAL).await.unwrap_or_default();
    let said = String::from_utf8_lossy(&body);
    let said = match said.trim() {
        "" => status.canonical_reason().unwrap_or("refused"),
        said => said,
    };
    let told = match hint(status, said) {
        Some(hint) if !said.contains("\nhint: ") => format!("{said}\nhint: {hint}\n"),
        _ => format!("{said}\n"),
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Response::from_parts(parts, told.into())
}

/// What helps with a refusal. The library says them in words that are told apart here, and only for a better hint.
fn hint(status: StatusCode, said: &str) -> Option<&'static str> {
    Some(match status {
        StatusCode::BAD_REQUEST if said.contains("Session ID") => {
            "send initialize first, and the Mcp-Session-Id of its answer with what follows; or MCP-Protocol-Version: 2026-07-28"
        }
        StatusCode::FORBIDDEN if said.contains("Origin") => "have the server started with --allow-origin ORIGIN",
        StatusCode::FORBIDDEN => "use a loopback name, or have the server started with --allow-host NAME",
        StatusCode::NOT_FOUND if said.contains("Session") => {
            "the session is over; send initialize again, without Mcp-Session-Id"
        }
        StatusCode::NOT_FOUND => "the protocol is served at /mcp",
        StatusCode::METHOD_NOT_ALLOWED => "POST the protocol's messages to /mcp",
        StatusCode::NOT_ACCEPTABLE => "send Accept: application/json, text/event-stream",
        StatusCode::PAYLOAD_TOO_LARGE => {
            "code may have 16 MiB; larger data goes in by several calls of upload, or a project"
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "send one message of JSON-RPC 2.0, and Content-Type: application/json",
        _ => return None,
    })
}

/// Lets a request through that says the token.
async fn admit(token: Arc<Token>, request: Request, next: Next) -> Response {
    let sent = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    if token.is_in(sent) {
        return next.run(request).await;
    }
    let told = "the bearer token is missing or wrong\nhint: send Authorization: Bearer TOKEN\n";
    // Without the token nobody keeps a connection.
    let headers = [(header::WWW_AUTHENTICATE, "Bearer"), (header::CONNECTION, "close")];
    (StatusCode::UNAUTHORIZED, headers, told).into_response()
}
