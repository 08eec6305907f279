//! Serves a client's connection request by request, until it ends or is upgraded. A `RequestService` makes the
//! responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::decide::rules::EgressTarget;
use crate::http::inspect::{InspectedStream, InspectionHandle};
use crate::http::interface::{BoxedStream, GatewayInterface, Replay, Tunnel};
use crate::http::refusal_response::{RefusedRequest, RequestInfo, answer, report};
use crate::http::request_head;
use crate::http::request_target::{clean_request, clean_response, frame_response};
use crate::http::upstream_client::{BodyError, BoxedBody, TimedBody, UpstreamClient};
use crate::http::websocket;
use crate::report::event::NetworkVia;

/// Most bytes of a client that are buffered: the largest head, and some of a body.
const MOST_BUFFER: usize = request_head::MOST_BYTES + 8 * 1024;

/// What a connection becomes after its last request.
pub(crate) enum Upgrade {
    /// A tunnel, by CONNECT.
    Tunnel(Tunnel),
    /// A WebSocket, by upstream's status 101.
    Socket { upstream: OnUpgrade },
}

/// One client's connection, as its request service sees it.
pub(crate) struct HttpConnection {
    pub(crate) gateway: Arc<dyn GatewayInterface>,
    pub(crate) via: NetworkVia,
    watch: InspectionHandle,
    upgrade: Mutex<Option<(OnUpgrade, Upgrade)>>,
}

/// Responds to the requests of a connection.
pub(crate) trait RequestService: Send + Sync + 'static {
    /// The destination of every request of the connection, if it is known before a request is read.
    fn to(&self) -> Option<(EgressTarget, u16)> {
        None
    }

    /// The response, or why the request is refused. `info` is for the refusal's event, and has the method already.
    fn serve(
        &self,
        connection: &HttpConnection,
        request: Request<Incoming>,
        info: &mut RequestInfo,
    ) -> impl Future<Output = Result<Response<BoxedBody>, RefusedRequest>> + Send;
}

impl HttpConnection {
    /// Upgrades the connection once the response has been sent.
    pub(crate) fn upgrade(&self, client: OnUpgrade, upgrade: Upgrade) {
        *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some((client, upgrade));
    }

    fn is_upgrading(&self) -> bool {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Forwards a request that has been checked, with the target `uri` and the Host `host`.
    pub(crate) async fn pass<B>(
        &self,
        mut request: Request<B>,
        uri: Uri,
        host: HeaderValue,
        upstream: &UpstreamClient,
    ) -> Result<Response<BoxedBody>, RefusedRequest>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let client = hyper::upgrade::on(&mut request);
        let websocket = websocket::wanted(request.headers());
        *request.uri_mut() = uri;
        *request.version_mut() = http::Version::HTTP_11;
        clean_request(request.headers_mut(), host, websocket.is_some());
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let mut response = match upstream.exchange(request).await {
            Ok(response) => response,
            Err(refusal) => {
                return Err(match self.watch.broken() {
                    Some(fault) => RefusedRequest::from(fault),
                    None => RefusedRequest::from(refusal),
                });
            }
        };
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        match websocket {
            None if switched => return Err(RefusedRequest::odd_answer("101 without having been asked for it")),
            Some(expected) if switched && !expected.is_in(response.headers()) => {
                return Err(RefusedRequest::odd_answer("101 and not to this request's Sec-WebSocket-Key"));
            }
            _ => {}
        }
        if switched {
            let upstream = hyper::upgrade::on(&mut response);
            self.upgrade(client, Upgrade::Socket { upstream });
        }
        if !switched {
            frame_response(response.headers_mut()).map_err(|what| RefusedRequest::odd_answer(&what))?;
        }
        *response.version_mut() = http::Version::HTTP_11;
        clean_response(response.headers_mut(), switched);
        Ok(response.map(|body| TimedBody::new(body).boxed_unsync()))
    }
}

/// Serves the connection until it ends, after an upgrade as well.
pub(crate) async fn serve<S: RequestService>(
    gateway: Arc<dyn GatewayInterface>,
    via: NetworkVia,
    client: BoxedStream,
    service: S,
) {
    let (guard, watch) = InspectedStream::new(client);
    let connection = Arc::new(HttpConnection { gateway, via, watch, upgrade: Mutex::new(None) });
    let service = Arc::new(service);
    // It owns the connections to upstream, which outlive the requests if one becomes a WebSocket.
    let owned_service = Arc::clone(&service);
    let count = Arc::new(AtomicU64::new(0));
    let each = {
        let connection = Arc::clone(&connection);
        service_fn(move |request| {
            let (connection, service) = (Arc::clone(&connection), Arc::clone(&service));
            let number = count.fetch_add(1, Ordering::Relaxed);
            async move { Ok::<_, Infallible>(one(&connection, &*service, number, request).await) }
        })
    };
    let served = http1::Builder::new()
        .preserve_header_case(true)
        .auto_date_header(false)
        .max_headers(request_head::MOST_HEADERS)
        .max_buf_size(MOST_BUFFER)
        .serve_connection(TokioIo::new(guard), each)
        .with_upgrades()
        .await;
    let unread = RequestInfo { to: owned_service.to(), ..RequestInfo::nothing(via) };
    if let Some(fault) = connection.watch.broken() {
        report(&*connection.gateway, &unread, &RefusedRequest::from(fault));
    } else if let Err(error) = &served
        && error.is_parse()
    {
        report(&*connection.gateway, &unread, &RefusedRequest::unread(error));
    }
    let upgrade = connection.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Ok(()), Some((client, upgrade))) = (served, upgrade) {
        become_another(client, upgrade).await;
    }
    drop(owned_service);
}

async fn one<S: RequestService>(
    connection: &HttpConnection,
    service: &S,
    number: u64,
    request: Request<Incoming>,
) -> Response<BoxedBody> {
    let mut info = RequestInfo { to: service.to(), ..RequestInfo::nothing(connection.via) };
    let answered = match connection.watch.refused(number) {
        Some(fault) => Err(RefusedRequest::from(fault)),
        None => {
            info.method = Some(request.method().as_str().to_owned());
            service.serve(connection, request, &mut info).await
        }
    };
    if !connection.is_upgrading() {
        connection.watch.resume();
    }
    let response = answered.unwrap_or_else(|refused| {
        connection.watch.linger();
        report(&*connection.gateway, &info, &refused);
        answer(&info, &refused)
    });
    response.map(|body| WatchedBody { body, watch: connection.watch.clone() }.boxed_unsync())
}

/// A response's body, which reports its end.
struct WatchedBody {
    body: BoxedBody,
    watch: InspectionHandle,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.watch.answered();
    }
}

async fn become_another(client: OnUpgrade, upgrade: Upgrade) {
    let upgraded = match client.await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!(%error, "the client's connection ended before it became another"),
    };
    let Some((mut io, first)) = unwrap(upgraded) else { return };
    match upgrade {
        Upgrade::Tunnel(serve) => serve(io, first).await,
        Upgrade::Socket { upstream } => match upstream.await {
            Ok(upstream) => {
                let mut upstream = TokioIo::new(upstream);
                let copied = if first.is_empty() {
                    copy_bidirectional(&mut io, &mut upstream).await
                } else {
                    copy_bidirectional(&mut Replay::new(first, io), &mut upstream).await
                };
                if let Err(error) = copied {
                    tracing::debug!(%error, "a WebSocket ended");
                }
            }
            Err(error) => tracing::debug!(%error, "upstream's connection ended before it became another"),
        },
    }
}

/// The connection without inspection, and the bytes that were read from it after the last request.
fn unwrap(upgraded: Upgraded) -> Option<(BoxedStream, Bytes)> {
    let parts = upgraded.downcast::<TokioIo<InspectedStream>>().ok()?;
    let (io, rest) = parts.io.into_inner().into_inner();
    let mut first = BytesMut::from(&parts.read_buf[..]);
    first.extend_from_slice(&rest);
    Some((io, first.freeze()))
}
