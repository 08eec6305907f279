//! The streamable HTTP transport: any number of clients, each with the bearer token.
//!
//! ```text
//! connection ─ limit ─ token (401) ─ Host (400) ─ body (408, 413, 503) ─ Host, Origin (403) ─▶ service ─▶ JSON document or event stream
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

use super::conn_limit::{AdmittedConnection, ConnLimiter};
use super::error::TransportError;
use super::event_log::RETRY;
use super::http_sessions::HttpSessions;
use super::json_response::{self, LARGEST_REQUEST};
use super::request_body::BodyReader;
use super::token::{self, Token};
use crate::connection::ServerState;
use crate::service::ConnectionService;

/// The shortest idle timeout of a session with `initialize`.
const MIN_IDLE: Duration = Duration::from_secs(300);

/// How long responses may still be written after the shutdown. Calls end at once, so that theirs are short.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The path of the protocol's endpoint.
pub(crate) const PATH: &str = "/mcp";

/// Where the transport listens, and which requests it accepts.
#[derive(Debug)]
pub(crate) struct HttpConfig {
    address: SocketAddr,
    token: Option<Token>,
    /// Whether the token was made now, and so has to be shown to the operator.
    is_new_token: bool,
    config: StreamableHttpServerConfig,
}

impl HttpConfig {
    /// Evaluates the options. With `allow_no_token`, no token is made if none was given.
    ///
    /// # Errors
    /// The address is invalid, or would be reachable without a token or by no allowed host name.
    pub(crate) fn new(serve: &Serve, address: &str, allow_no_token: bool) -> Result<HttpConfig, TransportError> {
        let address: SocketAddr = address.parse().map_err(|_| TransportError::Address(address.to_owned()))?;
        let variable = std::env::var(token::VARIABLE).ok().filter(|text| !text.is_empty());
        let (token, is_new_token) = match (&serve.token_file, variable) {
            (Some(file), _) => (Some(Token::from_file(Path::new(file))?), false),
            (None, Some(text)) => (Some(Token::from_variable(&text)?), false),
            (None, None) if allow_no_token => (None, false),
            (None, None) => (Some(Token::random()?), true),
        };
        let is_loopback = address.ip().to_canonical().is_loopback();
        if !is_loopback && (is_new_token || token.is_none()) {
            return Err(TransportError::Exposed(address));
        }
        if !is_loopback && serve.allow_hosts.is_empty() {
            return Err(TransportError::Nameless(address));
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
        Ok(HttpConfig { address, token, is_new_token, config })
    }
}

/// Serves until `shutdown`.
pub(crate) async fn serve(
    state: Arc<ServerState>,
    http: HttpConfig,
    shutdown: CancellationToken,
) -> Result<(), TransportError> {
    let HttpConfig { address, token, is_new_token, mut config } = http;
    let listener =
        tokio::net::TcpListener::bind(address).await.map_err(|source| TransportError::Listen { address, source })?;
    let local = listener.local_addr().map_err(|source| TransportError::Listen { address, source })?;
    if local.ip().to_canonical().is_loopback() {
        // Pages served by this very address.
        let own = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{}", local.port()));
        config.allowed_origins.extend(own);
    }
    tracing::info!("listening on http://{local}{PATH}");
    if let Some(token) = token.as_ref().filter(|_| is_new_token) {
        tracing::info!("callers send: Authorization: Bearer {}", token.text());
    }
    if token.is_none() {
        tracing::warn!("every program of this machine can have code run: no token is asked for");
    }
    let sessions = Arc::new(HttpSessions::new(idle_timeout(&state)));
    tokio::spawn(follow_definitions(Arc::clone(&state), Arc::downgrade(&sessions)));
    let config = config.with_cancellation_token(shutdown.child_token());
    let protocol = StreamableHttpService::new(move || Ok(ConnectionService::new(&state, true)), sessions, config);
    let reader = BodyReader::new();
    let mut router = axum::Router::new()
        .nest_service(PATH, protocol)
        .layer(middleware::from_fn(move |request, next| json_response::prefer_document(reader.clone(), request, next)));
    router = router
        .layer(middleware::from_fn(one_host))
        .layer(middleware::from_fn(delete_status))
        .layer(middleware::from_fn(admit_connection));
    if let Some(token) = token {
        let token = Arc::new(token);
        router =
            router.layer(middleware::from_fn(move |request, next| require_token(Arc::clone(&token), request, next)));
    }
    router = router.layer(middleware::from_fn(add_hint));
    let ended = shutdown.clone();
    let served =
        axum::serve(ConnLimiter::new(listener), router.into_make_service_with_connect_info::<AdmittedConnection>())
            .with_graceful_shutdown(async move { shutdown.cancelled().await });
    // A client that has sent half a request keeps its connection open as long as it likes.
    let deadline = async {
        ended.cancelled().await;
        tokio::time::sleep(END_TIMEOUT).await;
    };
    tokio::select! {
        served = served => served.map_err(|source| TransportError::Listen { address, source }),
        () = deadline => Ok(()),
    }
}

/// The idle timeout of a client: at least that of its sandbox sessions, which end with it.
fn idle_timeout(state: &ServerState) -> Duration {
    Duration::from_secs(state.environments.current().sessions.idle_timeout_seconds).max(MIN_IDLE)
}

/// Updates the idle timeout when definitions change.
async fn follow_definitions(state: Arc<ServerState>, sessions: Weak<HttpSessions>) {
    let mut changes = state.environments.changes();
    while changes.changed().await.is_ok() {
        let Some(sessions) = sessions.upgrade() else { return };
        sessions.set_idle(idle_timeout(&state));
    }
}

/// Admits the connection of an authenticated request.
async fn admit_connection(
    ConnectInfo(admission): ConnectInfo<AdmittedConnection>,
    request: Request,
    next: Next,
) -> Response {
    admission.admit();
    next.run(request).await
}

/// Answers DELETE by 204, since the session has ended by then. The library answers 202, which clients take for a failure.
async fn delete_status(request: Request, next: Next) -> Response {
    let is_delete = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    if is_delete && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    response
}

/// Refuses a request whose host or origin is ambiguous. The library checks which are allowed, and reads only the first of each.
async fn one_host(request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let has_user = first.is_some_and(|host| host.as_bytes().contains(&b'@'));
    if second.is_some() || has_user {
        let why = "the Host header must name one host, without a user\nhint: send one Host header: NAME or NAME:PORT\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    }
    if request.headers().get_all(header::ORIGIN).iter().nth(1).is_some() {
        let why = "the Origin header must name one origin\nhint: send one Origin header, or none\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    }
    // A target in absolute form takes precedence over Host (RFC 9112, 3.2.2).
    let target = request.uri().authority().map(|authority| authority.as_str());
    let other =
        |host: &HeaderValue| target.is_some_and(|target| !target.as_bytes().eq_ignore_ascii_case(host.as_bytes()));
    if first.is_some_and(other) {
        let why = "the request target names another host than Host\nhint: send the path alone as the target, /mcp\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

/// Longest text of an error response, bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// Adds a hint to each error response that is not a message of the protocol.
async fn add_hint(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    if !(status.is_client_error() || status.is_server_error()) || kind.is_some_and(|kind| kind == b"application/json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, LONGEST_ERROR).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let text = match text.trim() {
        "" => status.canonical_reason().unwrap_or("refused"),
        text => text,
    };
    let text = match hint(status, text) {
        Some(hint) if !text.contains("\nhint: ") => format!("{text}\nhint: {hint}\n"),
        _ => format!("{text}\n"),
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Response::from_parts(parts, text.into())
}

/// The hint for an error response. The library's text only selects the more specific hint.
fn hint(status: StatusCode, text: &str) -> Option<&'static str> {
    Some(match status {
        StatusCode::BAD_REQUEST if text.contains("Session ID") => {
            "send initialize first, and the Mcp-Session-Id of its answer with what follows; or MCP-Protocol-Version: 2026-07-28"
        }
        StatusCode::FORBIDDEN if text.contains("Origin") => "have the server started with --allow-origin ORIGIN",
        StatusCode::FORBIDDEN => "use a loopback name, or have the server started with --allow-host NAME",
        StatusCode::NOT_FOUND if text.contains("Session") => {
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

/// Refuses a request without the token.
async fn require_token(token: Arc<Token>, request: Request, next: Next) -> Response {
    let mut sent = request.headers().get_all(header::AUTHORIZATION).iter();
    // With two of them this server and a proxy before it could go by different ones.
    if token.matches_header(sent.next().map(HeaderValue::as_bytes)) && sent.next().is_none() {
        return next.run(request).await;
    }
    let text = "the bearer token is missing or wrong\nhint: send Authorization: Bearer TOKEN\n";
    // A client without the token keeps no connection.
    let headers = [(header::WWW_AUTHENTICATE, "Bearer"), (header::CONNECTION, "close")];
    (StatusCode::UNAUTHORIZED, headers, text).into_response()
}
