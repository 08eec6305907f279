//! Sessions of the protocol with `initialize` over HTTP: which message belongs to which stream of which client.
//!
//! ```text
//! POST ─ request, new id ─▶ service ─ messages of a request ─▶ its event log ─▶ the response's stream
//!                              └───── all other messages ────▶ an event log ─▶ the stream of the client's GET
//! ```
//!
//! Each request gets an id and a progress token that no other of its session ever has: our_id are counters, and the client's are
//! restored when an answer enters its log. So an answer reaches its own stream, or none.
//!
//! A client can resume a broken stream by its `Last-Event-ID` within [`RESUME_TIMEOUT`]: the call continues, and its answer is
//! retained. After that the call is cancelled, as by `notifications/cancelled`.

use std::collections::HashMap;
use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cofferdam_engine::session::Sessions;
use futures_core::Stream;
use rmcp::RoleServer;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification, ErrorData,
    GetExtensions as _, GetMeta as _, JsonRpcMessage, ProgressToken, RequestId, ServerJsonRpcMessage,
    ServerNotification,
};
use rmcp::service::{OriginatingRequestId, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::event_log::{EventLog, EventReader};

/// How long a broken stream can be resumed, while its call continues.
pub(super) const RESUME_TIMEOUT: Duration = Duration::from_secs(15);
/// Most sessions at a time.
const MAX_SESSIONS: usize = 1024;
/// Longest `initialize`: what a client says of itself is kept for as long as its session.
const MAX_INITIALIZE_BYTES: usize = 64 << 10;
/// Most bytes of answers, of all sessions, that are retained until their client resumes.
const MAX_RETAINED_BYTES: usize = 64 << 20;

/// Why a session cannot continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpSessionError {
    /// It does not exist, or has ended.
    #[error("the session is over\nhint: send initialize again, without Mcp-Session-Id")]
    Ended,
    /// There are too many sessions.
    #[error(
        "{MAX_SESSIONS} clients are connected, and no more can be\nhint: end a session by DELETE, or come again later"
    )]
    Full,
    /// No retained stream has such an event.
    #[error("no stream has an event of this Last-Event-ID any more")]
    Event,
    /// The system provides no random numbers.
    #[error("cannot name a session: {0}")]
    System(#[from] std::io::Error),
}

/// All sessions over HTTP.
#[derive(Debug)]
pub(super) struct HttpSessions {
    inner: Arc<HttpSessionsInner>,
}

#[derive(Debug)]
struct HttpSessionsInner {
    all: Mutex<HashMap<SessionId, Arc<HttpSession>>>,
    /// How long a session without any message lasts.
    idle: Mutex<Duration>,
    resume_timeout: Duration,
    retained: Arc<AtomicUsize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpSessions {
    /// No sessions yet. A session ends after being idle for `idle`.
    pub(super) fn new(idle: Duration) -> HttpSessions {
        HttpSessions::with(idle, RESUME_TIMEOUT)
    }

    /// Changes the idle timeout, for existing sessions as well.
    pub(super) fn set_idle(&self, idle: Duration) {
        *lock(&self.inner.idle) = idle;
    }

    fn with(idle: Duration, resume_timeout: Duration) -> HttpSessions {
        HttpSessions {
            inner: Arc::new(HttpSessionsInner {
                all: Mutex::default(),
                idle: Mutex::new(idle),
                resume_timeout,
                retained: Arc::default(),
            }),
        }
    }

    fn find(&self, id: &SessionId) -> Result<Arc<HttpSession>, HttpSessionError> {
        lock(&self.inner.all).get(id).cloned().ok_or(HttpSessionError::Ended)
    }
}

impl HttpSessionsInner {
    async fn close(&self, id: &SessionId) {
        let session = lock(&self.all).remove(id);
        if let Some(session) = session {
            session.close().await;
        }
    }
}

/// Ends a session once it has been idle for its timeout.
async fn end_when_idle(inner: Weak<HttpSessionsInner>, id: SessionId) {
    loop {
        let Some(idle) = inner.upgrade().map(|inner| *lock(&inner.idle)) else { return };
        tokio::time::sleep(idle / 4).await;
        let Some(inner) = inner.upgrade() else { return };
        let Some(session) = lock(&inner.all).get(&id).cloned() else { return };
        if session.is_idle(idle) {
            return inner.close(&id).await;
        }
    }
}

impl SessionManager for HttpSessions {
    type Error = HttpSessionError;
    type Transport = SessionTransport;

    async fn create_session(&self) -> Result<(SessionId, SessionTransport), HttpSessionError> {
        let id: SessionId = Sessions::new_name()?.into();
        let (to_service, messages) = channel(16);
        let session = Arc::new(HttpSession {
            to_service: Mutex::new(Some(to_service)),
            requests: Mutex::new(Requests {
                last: 0,
                streams: HashMap::new(),
                in_progress: HashMap::new(),
                last_used: Instant::now(),
            }),
            unrelated: EventLog::for_session(),
            resume_timeout: self.inner.resume_timeout,
            retained: Arc::clone(&self.inner.retained),
        });
        {
            let mut all = lock(&self.inner.all);
            if all.len() >= MAX_SESSIONS {
                return Err(HttpSessionError::Full);
            }
            all.insert(Arc::clone(&id), Arc::clone(&session));
        }
        tokio::spawn(end_when_idle(Arc::downgrade(&self.inner), Arc::clone(&id)));
        Ok((id, SessionTransport { session, messages }))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, HttpSessionError> {
        if let JsonRpcMessage::Request(request) = &message
            && serde_json::to_vec(&request.request).is_ok_and(|text| text.len() > MAX_INITIALIZE_BYTES)
        {
            self.inner.close(id).await;
            let why = format!(
                "initialize is longer than {} KiB, and it is kept with the session",
                MAX_INITIALIZE_BYTES >> 10
            );
            return Ok(ServerJsonRpcMessage::error(ErrorData::invalid_params(why, None), Some(request.id.clone())));
        }
        let mut reader = self.find(id)?.request(message).await?;
        loop {
            let event =
                poll_fn(|context| Pin::new(&mut reader).poll_next(context)).await.ok_or(HttpSessionError::Ended)?;
            if let Some(message) = event.message.filter(|message| is_answer(message)) {
                return Ok(Arc::unwrap_or_clone(message));
            }
        }
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, HttpSessionError> {
        Ok(self.find(id).is_ok())
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), HttpSessionError> {
        self.inner.close(id).await;
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, HttpSessionError> {
        self.find(id)?.request(message).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), HttpSessionError> {
        self.find(id)?.notify(message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, HttpSessionError> {
        Ok(self.find(id)?.unrelated.read(None, None))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, HttpSessionError> {
        self.find(id)?.resume(&last_event_id)
    }
}

fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))
}

/// One client's session.
#[derive(Debug)]
struct HttpSession {
    /// Messages to the service; taken when the session ends.
    to_service: Mutex<Option<Sender<ClientJsonRpcMessage>>>,
    requests: Mutex<Requests>,
    /// Messages that belong to no request.
    unrelated: Arc<EventLog>,
    resume_timeout: Duration,
    /// The bytes of the retained answers of all sessions.
    retained: Arc<AtomicUsize>,
}

/// The requests of a session.
#[derive(Debug)]
struct Requests {
    /// The number of the last one.
    last: u64,
    /// Their streams, by number.
    streams: HashMap<u64, RequestStream>,
    /// The numbers of those in progress, by the client's ids.
    in_progress: HashMap<RequestId, u64>,
    last_used: Instant,
}

/// The stream of a request.
#[derive(Debug)]
struct RequestStream {
    log: Arc<EventLog>,
    /// The client's id.
    id: RequestId,
    /// The client's progress token.
    token: Option<ProgressToken>,
    /// Bytes that are counted in `retained`.
    retained: usize,
}

/// Our id for the request of this number.
fn our_id(number: u64) -> RequestId {
    RequestId::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

fn number(id: &RequestId) -> Option<u64> {
    match id {
        RequestId::Number(number) => u64::try_from(*number).ok(),
        RequestId::String(_) => None,
    }
}

fn cancelled(id: RequestId, reason: &str) -> ClientJsonRpcMessage {
    let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
    let notification = CancelledNotification::new(params);
    ClientJsonRpcMessage::notification(ClientNotification::CancelledNotification(notification))
}

impl HttpSession {
    /// Sends a message to the service.
    async fn send(&self, message: ClientJsonRpcMessage) -> Result<(), HttpSessionError> {
        let to_service = lock(&self.to_service).clone().ok_or(HttpSessionError::Ended)?;
        to_service.send(message).await.map_err(|_| HttpSessionError::Ended)
    }

    /// Sends a request to the service, and returns the reader of its stream.
    async fn request(self: &Arc<Self>, message: ClientJsonRpcMessage) -> Result<EventReader, HttpSessionError> {
        let JsonRpcMessage::Request(mut request) = message else { return Err(HttpSessionError::Ended) };
        let reader = {
            let mut requests = lock(&self.requests);
            requests.last_used = Instant::now();
            if requests.in_progress.contains_key(&request.id) {
                let error = ErrorData::invalid_request(super::request_ids::ID_IN_USE, None);
                let response = ServerJsonRpcMessage::error(error, Some(request.id));
                return Ok(EventLog::single(response).read(None, None));
            }
            requests.last += 1;
            let number = requests.last;
            let id = std::mem::replace(&mut request.id, our_id(number));
            let meta = request.request.get_meta_mut();
            let token = meta.get_progress_token();
            if token.is_some() {
                meta.set_progress_token(ProgressToken(our_id(number)));
            }
            let log = EventLog::for_request(number);
            let reader = log.read(None, Some(self.on_disconnect(number)));
            requests.in_progress.insert(id.clone(), number);
            requests.streams.insert(number, RequestStream { log, id, token, retained: 0 });
            reader
        };
        self.send(JsonRpcMessage::Request(request)).await?;
        Ok(reader)
    }

    /// Passes a message on that is not a request.
    async fn notify(&self, mut message: ClientJsonRpcMessage) -> Result<(), HttpSessionError> {
        lock(&self.requests).last_used = Instant::now();
        if let JsonRpcMessage::Notification(notification) = &mut message
            && let ClientNotification::CancelledNotification(cancelled) = &mut notification.notification
        {
            let number =
                cancelled.params.request_id.as_ref().and_then(|id| lock(&self.requests).in_progress.remove(id));
            // A request that is not in progress has ended, and there is nothing to cancel.
            let Some(number) = number else { return Ok(()) };
            cancelled.params.request_id = Some(our_id(number));
            let log = lock(&self.requests).streams.get(&number).map(|stream| Arc::clone(&stream.log));
            if let Some(log) = log {
                log.end();
            }
            if !self.has_reader(number) {
                self.forget(number);
            }
        }
        self.send(message).await
    }

    fn has_reader(&self, number: u64) -> bool {
        lock(&self.requests).streams.get(&number).is_some_and(|stream| stream.log.has_reader())
    }

    /// Resumes a stream after an event.
    fn resume(self: &Arc<Self>, event: &str) -> Result<EventReader, HttpSessionError> {
        let (after, stream) = match event.split_once('/') {
            Some((after, stream)) => (after, Some(stream.parse::<u64>().map_err(|_| HttpSessionError::Event)?)),
            None => (event, None),
        };
        let after = Some(after.parse().map_err(|_| HttpSessionError::Event)?);
        let Some(number) = stream else { return Ok(self.unrelated.read(after, None)) };
        let mut requests = lock(&self.requests);
        requests.last_used = Instant::now();
        let stream = requests.streams.get_mut(&number).ok_or(HttpSessionError::Event)?;
        self.retained.fetch_sub(std::mem::take(&mut stream.retained), Ordering::SeqCst);
        Ok(stream.log.read(after, Some(self.on_disconnect(number))))
    }

    /// What is done when the reader of a stream disconnects.
    fn on_disconnect(self: &Arc<Self>, number: u64) -> Box<dyn FnOnce() + Send + Sync> {
        let this = Arc::downgrade(self);
        Box::new(move || {
            let Some(session) = this.upgrade() else { return };
            let log = lock(&session.requests).streams.get(&number).map(|stream| Arc::clone(&stream.log));
            let Some(log) = log else { return };
            if log.is_delivered() {
                return session.forget(number);
            }
            if log.is_ended() {
                session.retain(number);
            }
            let (readers, timeout) = (log.readers(), session.resume_timeout);
            // Without a runtime the server has shut down.
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
            runtime.spawn(async move {
                tokio::time::sleep(timeout).await;
                if let Some(session) = this.upgrade()
                    && log.readers() == readers
                {
                    session.give_up(number).await;
                }
            });
        })
    }

    /// Cancels the call of a stream that no client resumed.
    async fn give_up(&self, number: u64) {
        self.forget(number);
        // The service ignores a cancellation of a request that it has answered.
        if self.send(cancelled(our_id(number), "its client has gone")).await.is_err() {
            tracing::debug!("a call of a client that has gone is over already");
        }
    }

    fn forget(&self, number: u64) {
        let mut requests = lock(&self.requests);
        let Some(stream) = requests.streams.remove(&number) else { return };
        if requests.in_progress.get(&stream.id) == Some(&number) {
            requests.in_progress.remove(&stream.id);
        }
        self.retained.fetch_sub(stream.retained, Ordering::SeqCst);
    }

    /// Counts the answer of a stream without a reader as retained, or drops it if the bound is reached.
    fn retain(&self, number: u64) {
        let mut requests = lock(&self.requests);
        let Some(stream) = requests.streams.get_mut(&number).filter(|stream| stream.retained == 0) else { return };
        let bytes = stream.log.bytes();
        if self.retained.fetch_add(bytes, Ordering::SeqCst) + bytes > MAX_RETAINED_BYTES {
            self.retained.fetch_sub(bytes, Ordering::SeqCst);
            tracing::warn!("an answer of {bytes} bytes is not retained for its client: too many are");
            stream.log.clear();
        } else {
            stream.retained = bytes;
        }
    }

    /// Appends a message of the service to the log that it belongs to.
    fn route(&self, mut message: ServerJsonRpcMessage) {
        let mut requests = lock(&self.requests);
        requests.last_used = Instant::now();
        let request = match &message {
            JsonRpcMessage::Response(response) => Some(number(&response.id)),
            JsonRpcMessage::Error(error) => Some(error.id.as_ref().and_then(number)),
            JsonRpcMessage::Request(request) => {
                let origin = request.request.extensions().get::<OriginatingRequestId>();
                origin.and_then(|id| number(&id.0)).filter(|number| requests.streams.contains_key(number)).map(Some)
            }
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ServerNotification::ProgressNotification(progress) => Some(number(&progress.params.progress_token.0)),
                _ => None,
            },
        };
        let Some(request) = request else {
            drop(requests);
            return self.unrelated.push(message);
        };
        // The request was cancelled, or no client resumed its stream: the message is dropped.
        let Some((number, stream)) = request.and_then(|number| Some((number, requests.streams.get(&number)?))) else {
            return;
        };
        let (log, id) = (Arc::clone(&stream.log), stream.id.clone());
        match &mut message {
            JsonRpcMessage::Response(response) => response.id = id.clone(),
            JsonRpcMessage::Error(error) => error.id = Some(id.clone()),
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::ProgressNotification(progress) = &mut notification.notification
                    && let Some(token) = &stream.token
                {
                    progress.params.progress_token = token.clone();
                }
            }
            JsonRpcMessage::Request(_) => {}
        }
        let is_answer = is_answer(&message);
        if is_answer && requests.in_progress.get(&id) == Some(&number) {
            requests.in_progress.remove(&id);
        }
        drop(requests);
        log.push(message);
        if is_answer {
            log.end();
            if !log.has_reader() {
                self.retain(number);
            }
        }
    }

    fn is_idle(&self, idle: Duration) -> bool {
        let requests = lock(&self.requests);
        requests.streams.is_empty() && !self.unrelated.has_reader() && requests.last_used.elapsed() >= idle
    }

    /// Ends the session, and cancels its requests in progress.
    async fn close(&self) {
        let Some(to_service) = lock(&self.to_service).take() else { return };
        let in_progress: Vec<u64> = lock(&self.requests).in_progress.values().copied().collect();
        for number in in_progress {
            if to_service.send(cancelled(our_id(number), "its session is over")).await.is_err() {
                return;
            }
        }
    }
}

/// The service's end of a session.
#[derive(Debug)]
pub(super) struct SessionTransport {
    session: Arc<HttpSession>,
    messages: Receiver<ClientJsonRpcMessage>,
}

impl Transport<RoleServer> for SessionTransport {
    type Error = HttpSessionError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), HttpSessionError>> + Send + 'static {
        self.session.route(item);
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), HttpSessionError> {
        self.messages.close();
        Ok(())
    }
}

impl Drop for SessionTransport {
    fn drop(&mut self) {
        // The service sends nothing more, so all readers can end.
        drop(lock(&self.session.to_service).take());
        self.session.unrelated.end();
        for stream in lock(&self.session.requests).streams.values() {
            stream.log.end();
        }
    }
}
