//! Sends allowed requests to upstream, and returns the responses. Decides nothing: the destination is given.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::http::interface::{BoxedStream, Dial, Dialed};

/// Time limit of a response's head, after the request was sent.
const ANSWER: Duration = Duration::from_secs(300);
/// Time limit between two parts of a response's body. Event streams send something more often.
const BODY: Duration = Duration::from_secs(900);
/// A body after `Expect: 100-continue` is sent after this time even without an answer (RFC 9110, 10.1.1).
const CONTINUE: Duration = Duration::from_secs(1);
/// A connection that is not ready for another request within this time is replaced.
const READY: Duration = Duration::from_millis(200);
/// Most interim responses (1xx) to one request. hyper reads any number of them.
const MOST_INTERIM: usize = 32;
/// Header lines of one answer.
const MOST_HEADERS: usize = 1000;
/// Most bytes up to the end of a response's head, interim responses included. A single head that hyper reads is shorter.
const MOST_ANSWER_BYTES: usize = 512 * 1024;
/// Most bytes of a response that are no part of its body, besides [`FRAMING_SHARE`] for each byte of it: sizes of chunks, which
/// hyper reads with any number of zeros, and trailers. What is read ahead counts until it is delivered.
const MOST_FRAMING: usize = 2 * 1024 * 1024;
/// A chunk of one byte has five others; extensions of chunks may have some more.
const FRAMING_SHARE: usize = 32;
/// Most bytes that are read at once while a head is awaited: hyper parses all of them before it reads again.
const ANSWER_READ: usize = 16 * 1024;

/// The error of a body.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;
/// A body that is being forwarded.
pub(crate) type BoxedBody = UnsyncBoxBody<Bytes, BodyError>;

/// A task that is aborted when this is dropped.
struct AbortingTask(JoinHandle<()>);

impl Drop for AbortingTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What upstream sends before the response to a request: bounded, or it could go on for ever.
#[derive(Default)]
struct AnswerLimit {
    /// A request was sent, and its response has not arrived.
    awaited: AtomicBool,
    interim: AtomicUsize,
    bytes: AtomicUsize,
    /// Bytes that were read since, and those of them that were delivered as the body.
    read: AtomicUsize,
    delivered: AtomicUsize,
    /// The connection is no HTTP any more.
    upgraded: AtomicBool,
}

impl AnswerLimit {
    /// A request is sent.
    fn begin(&self) {
        self.interim.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.read.store(0, Ordering::Relaxed);
        self.delivered.store(0, Ordering::Relaxed);
        self.awaited.store(true, Ordering::Release);
    }

    /// Its response has arrived.
    fn end(&self) {
        self.awaited.store(false, Ordering::Release);
    }

    fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    fn is_exceeded(&self) -> bool {
        self.is_awaited()
            && (self.interim.load(Ordering::Relaxed) > MOST_INTERIM
                || self.bytes.load(Ordering::Relaxed) > MOST_ANSWER_BYTES)
    }

    /// Takes note of bytes that were read behind a head. False where too few of all are a body.
    fn note_read(&self, count: usize) -> bool {
        let read = self.read.fetch_add(count, Ordering::Relaxed).saturating_add(count);
        let body = self.delivered.load(Ordering::Relaxed).saturating_mul(FRAMING_SHARE);
        self.upgraded.load(Ordering::Relaxed) || read <= MOST_FRAMING.saturating_add(body)
    }

    fn refusal() -> EgressRefusal {
        let most = MOST_ANSWER_BYTES / 1024;
        let why = format!("upstream answered with more than {MOST_INTERIM} interim responses, or {most} KiB of them");
        EgressRefusal::because(NetworkReason::Gateway, why)
    }
}

/// A connection to upstream from which nothing is read once its [`AnswerLimit`] is exceeded.
struct LimitedStream {
    io: BoxedStream,
    limit: Arc<AnswerLimit>,
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.limit.is_awaited() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
            let is_body = self.limit.note_read(buffer.filled().len() - before);
            return Poll::Ready(if is_body { Ok(()) } else { Err(io::Error::other("upstream sends no body")) });
        }
        if self.limit.is_exceeded() {
            return Poll::Ready(Err(io::Error::other("too many interim responses")));
        }
        let most = buffer.remaining().min(ANSWER_READ);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.io).poll_read(context, &mut part))?;
        let count = part.filled().len();
        buffer.advance(count);
        self.limit.bytes.fetch_add(count, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// One connection to upstream, for one request after the other.
struct Http1Connection {
    sender: SendRequest<BoxedBody>,
    limit: Arc<AnswerLimit>,
    /// Whether it has been used: then upstream may have closed it meanwhile.
    used: bool,
    task: AbortingTask,
}

impl Http1Connection {
    async fn new(dial: Dial) -> Result<Http1Connection, EgressRefusal> {
        let Dialed { io, .. } = dial.await?;
        let limit = Arc::<AnswerLimit>::default();
        let io = LimitedStream { io, limit: Arc::clone(&limit) };
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(MOST_HEADERS)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| failed(&error))?;
        let task = AbortingTask(tokio::spawn(async move {
            // The error also reaches the task that waits for a response.
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "upstream's connection ended");
            }
        }));
        Ok(Http1Connection { sender, limit, used: false, task })
    }

    async fn is_ready(&mut self) -> bool {
        matches!(timeout(READY, self.sender.ready()).await, Ok(Ok(())))
    }
}

/// The refusal for an error of upstream.
fn failed(error: &hyper::Error) -> EgressRefusal {
    let detail = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    EgressRefusal::because(NetworkReason::Reset, detail)
}

/// Connections to one host and port, one at a time.
pub(crate) struct UpstreamClient {
    dial: Box<dyn Fn() -> Dial + Send + Sync>,
    state: tokio::sync::Mutex<UpstreamState>,
}

#[derive(Default)]
struct UpstreamState {
    first: Option<Dial>,
    connection_slot: Option<Http1Connection>,
    /// The task of a connection that was upgraded.
    turned: Option<AbortingTask>,
}

impl UpstreamClient {
    /// `first` is a connection that is being made already; `dial` makes more.
    pub(crate) fn new(first: Option<Dial>, dial: impl Fn() -> Dial + Send + Sync + 'static) -> UpstreamClient {
        let state = UpstreamState { first, ..UpstreamState::default() };
        UpstreamClient { dial: Box::new(dial), state: tokio::sync::Mutex::new(state) }
    }

    /// Sends a request, whose head is already as upstream is to receive it.
    pub(crate) async fn exchange(&self, request: Request<BoxedBody>) -> Result<Response<AnswerBody>, EgressRefusal> {
        let mut state = self.state.lock().await;
        let (mut request, gate) = gated(request);
        // A copy in case upstream closes the connection just when it is used again; only of requests that are
        // idempotent and have no body.
        let mut again = (matches!(*request.method(), Method::GET | Method::HEAD) && request.body().is_end_stream())
            .then(|| copy(&request));
        loop {
            let mut connection_slot = match state.connection_slot.take() {
                Some(mut connection_slot) => match connection_slot.is_ready().await {
                    true => connection_slot,
                    false => continue,
                },
                None => Http1Connection::new(state.first.take().unwrap_or_else(|| (self.dial)())).await?,
            };
            let (limit, opens) = (Arc::clone(&connection_slot.limit), gate.clone());
            limit.begin();
            hyper::ext::on_informational(&mut request, move |response| {
                limit.interim.fetch_add(1, Ordering::Relaxed);
                if let Some(gate) = opens.as_ref().filter(|_| response.status() == StatusCode::CONTINUE) {
                    gate.open();
                }
            });
            let sent = timeout(ANSWER, connection_slot.sender.try_send_request(request)).await;
            let is_exceeded = connection_slot.limit.is_exceeded();
            // hyper reads all that came at once before the limit is looked at.
            let too_many = connection_slot.limit.interim.load(Ordering::Relaxed) > MOST_INTERIM;
            connection_slot.limit.end();
            let used = std::mem::replace(&mut connection_slot.used, true);
            match sent {
                Ok(Ok(_)) if too_many => return Err(AnswerLimit::refusal()),
                Ok(Ok(response)) => {
                    let limit = Arc::clone(&connection_slot.limit);
                    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                        limit.upgraded.store(true, Ordering::Relaxed);
                        state.turned = Some(connection_slot.task);
                    } else if gate.as_ref().is_none_or(|gate| gate.is_open()) {
                        state.connection_slot = Some(connection_slot);
                    } else {
                        // Upstream did not want the body: no other request can follow on this connection.
                        state.turned = Some(connection_slot.task);
                    }
                    return Ok(response.map(|body| AnswerBody { body, limit }));
                }
                Ok(Err(_)) if is_exceeded => return Err(AnswerLimit::refusal()),
                Ok(Err(mut error)) => match (error.take_message(), again.take()) {
                    (Some(message), _) if used => request = message,
                    (None, Some(copy)) if used && !error.error().is_parse() => request = copy,
                    _ => return Err(failed(error.error())),
                },
                Err(_) => return Err(EgressRefusal::of(NetworkReason::UpstreamTimedOut)),
            }
        }
    }
}

/// A copy of a request that has no body.
fn copy(request: &Request<BoxedBody>) -> Request<BoxedBody> {
    let mut copy = Request::new(empty());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    copy
}

/// An empty body.
pub(crate) fn empty() -> BoxedBody {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Delays a body until upstream has asked for it.
#[derive(Default)]
struct BodyGate {
    open: AtomicBool,
    opened: Notify,
}

impl BodyGate {
    fn open(&self) {
        self.open.store(true, Ordering::Release);
        self.opened.notify_one();
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

fn gated(request: Request<BoxedBody>) -> (Request<BoxedBody>, Option<Arc<BodyGate>>) {
    if !request.headers().contains_key(EXPECT) {
        return (request, None);
    }
    if request.body().is_end_stream() {
        let mut request = request;
        request.headers_mut().remove(EXPECT);
        return (request, None);
    }
    let gate = Arc::new(BodyGate::default());
    let inner = Arc::clone(&gate);
    let request = request.map(|body| {
        let wait = Box::pin(async move {
            if timeout(CONTINUE, inner.opened.notified()).await.is_err() {
                inner.open();
            }
        });
        Gated { wait: Some(wait), body }.boxed_unsync()
    });
    (request, Some(gate))
}

/// A body behind a gate.
struct Gated {
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    body: BoxedBody,
}

impl Body for Gated {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(wait) = &mut self.wait {
            std::task::ready!(wait.as_mut().poll(context));
            self.wait = None;
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response's body as it arrives.
pub(crate) struct AnswerBody {
    body: Incoming,
    limit: Arc<AnswerLimit>,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            let count = frame.data_ref().map_or(0, Bytes::len);
            self.limit.delivered.fetch_add(count, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response's body, which fails when upstream sends nothing for `BODY`.
pub(crate) struct TimedBody {
    body: AnswerBody,
    sleep: Pin<Box<Sleep>>,
}

impl TimedBody {
    pub(crate) fn new(body: AnswerBody) -> TimedBody {
        TimedBody { body, sleep: Box::pin(sleep(BODY)) }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                self.sleep.as_mut().reset(Instant::now() + BODY);
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
            }
            Poll::Pending => {
                std::task::ready!(self.sleep.as_mut().poll(context));
                Poll::Ready(Some(Err("upstream sends nothing".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
