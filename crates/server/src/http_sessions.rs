//! Conversations over HTTP of the era with `initialize`: which message belongs to which stream of which client.
//!
//! ```text
//! POST ─ request, renamed ─▶ service ─ what belongs to it ─▶ its record ─▶ the stream that the client reads
//!                               └───── what belongs to none ─▶ a record ─▶ the stream of its GET
//! ```
//!
//! No request has an id or a progress token that another one of its conversation ever had: ours are counted, and the
//! client's words are put back where an answer enters its record. So an answer reaches its own stream, or none.
//!
//! A stream that breaks can be taken up again, by its `Last-Event-ID` and within [`GRACE`]: the call goes on, and its answer
//! waits. Who does not come back by then has gone, and the call is cancelled as by `notifications/cancelled`.

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

use crate::event_log::{Reader, Record};

/// How long a stream that broke may be taken up again, and its call goes on.
pub const GRACE: Duration = Duration::from_secs(15);
/// Most conversations at a time.
const MOST: usize = 1024;
/// Most bytes of answers that wait for their client to come back.
const MOST_WAITING: usize = 64 << 20;

/// Why a conversation cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Unheard {
    /// There is none, or it is over.
    #[error("the session is over\nhint: send initialize again, without Mcp-Session-Id")]
    Over,
    /// There are too many.
    #[error("{MOST} clients are connected, and no more can be\nhint: end a session by DELETE, or come again later")]
    Full,
    /// Nobody was told of such an event.
    #[error("no stream has an event of this Last-Event-ID any more")]
    Event,
    /// The system has no random numbers.
    #[error("cannot name a session: {0}")]
    System(#[from] std::io::Error),
}

/// All conversations of the server.
#[derive(Debug)]
pub struct Conversations {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    all: Mutex<HashMap<SessionId, Arc<Conversation>>>,
    /// How long one is kept in which nothing is asked or heard.
    idle: Mutex<Duration>,
    grace: Duration,
    waiting: Arc<AtomicUsize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Conversations {
    /// None yet. One that is `idle` for so long ends.
    pub fn new(idle: Duration) -> Conversations {
        Conversations::with(idle, GRACE)
    }

    /// Has another time hold from now on.
    pub fn set_idle(&self, idle: Duration) {
        *lock(&self.inner.idle) = idle;
    }

    fn with(idle: Duration, grace: Duration) -> Conversations {
        Conversations {
            inner: Arc::new(Inner { all: Mutex::default(), idle: Mutex::new(idle), grace, waiting: Arc::default() }),
        }
    }

    fn find(&self, id: &SessionId) -> Result<Arc<Conversation>, Unheard> {
        lock(&self.inner.all).get(id).cloned().ok_or(Unheard::Over)
    }
}

impl Inner {
    async fn close(&self, id: &SessionId) {
        let conversation = lock(&self.all).remove(id);
        if let Some(conversation) = conversation {
            conversation.close().await;
        }
    }
}

/// Ends a conversation in which nothing happens any more.
async fn end_when_idle(inner: Weak<Inner>, id: SessionId) {
    loop {
        let Some(idle) = inner.upgrade().map(|inner| *lock(&inner.idle)) else { return };
        tokio::time::sleep(idle / 4).await;
        let Some(inner) = inner.upgrade() else { return };
        let Some(conversation) = lock(&inner.all).get(&id).cloned() else { return };
        if conversation.is_idle(idle) {
            return inner.close(&id).await;
        }
    }
}

impl SessionManager for Conversations {
    type Error = Unheard;
    type Transport = Line;

    async fn create_session(&self) -> Result<(SessionId, Line), Unheard> {
        let id: SessionId = Sessions::new_name()?.into();
        let (into, messages) = channel(16);
        let conversation = Arc::new(Conversation {
            into: Mutex::new(Some(into)),
            talk: Mutex::new(Talk {
                last: 0,
                streams: HashMap::new(),
                under_way: HashMap::new(),
                used: Instant::now(),
            }),
            rest: Record::of_all(),
            grace: self.inner.grace,
            waiting: Arc::clone(&self.inner.waiting),
        });
        {
            let mut all = lock(&self.inner.all);
            if all.len() >= MOST {
                return Err(Unheard::Full);
            }
            all.insert(Arc::clone(&id), Arc::clone(&conversation));
        }
        tokio::spawn(end_when_idle(Arc::downgrade(&self.inner), Arc::clone(&id)));
        Ok((id, Line { conversation, messages }))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Unheard> {
        let mut reader = self.find(id)?.ask(message).await?;
        loop {
            let event = poll_fn(|context| Pin::new(&mut reader).poll_next(context)).await.ok_or(Unheard::Over)?;
            if let Some(message) = event.message.filter(|message| is_answer(message)) {
                return Ok(Arc::unwrap_or_clone(message));
            }
        }
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Unheard> {
        Ok(self.find(id).is_ok())
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Unheard> {
        self.inner.close(id).await;
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Unheard> {
        self.find(id)?.ask(message).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Unheard> {
        self.find(id)?.hear(message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Unheard> {
        Ok(self.find(id)?.rest.read(None, None))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Unheard> {
        self.find(id)?.again(&last_event_id)
    }
}

fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))
}

/// One client's.
#[derive(Debug)]
struct Conversation {
    /// To the service; taken when it is over.
    into: Mutex<Option<Sender<ClientJsonRpcMessage>>>,
    talk: Mutex<Talk>,
    /// What belongs to no request.
    rest: Arc<Record>,
    grace: Duration,
    /// The bytes of all answers that wait, in all conversations.
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Talk {
    last: u64,
    streams: HashMap<u64, Told>,
    /// By the client's ids.
    under_way: HashMap<RequestId, u64>,
    used: Instant,
}

/// The stream of a request.
#[derive(Debug)]
struct Told {
    record: Arc<Record>,
    /// The client's id and token.
    id: RequestId,
    token: Option<ProgressToken>,
    /// Bytes that are counted as waiting.
    waits: usize,
}

fn ours(number: u64) -> RequestId {
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

impl Conversation {
    async fn say(&self, message: ClientJsonRpcMessage) -> Result<(), Unheard> {
        let into = lock(&self.into).clone().ok_or(Unheard::Over)?;
        into.send(message).await.map_err(|_| Unheard::Over)
    }

    /// Asks the service, and says where its answer is read.
    async fn ask(self: &Arc<Self>, message: ClientJsonRpcMessage) -> Result<Reader, Unheard> {
        let JsonRpcMessage::Request(mut request) = message else { return Err(Unheard::Over) };
        let reader = {
            let mut talk = lock(&self.talk);
            talk.used = Instant::now();
            if talk.under_way.contains_key(&request.id) {
                let refusal = ErrorData::invalid_request(crate::request_ids::TAKEN, None);
                let refused = ServerJsonRpcMessage::error(refusal, Some(request.id));
                return Ok(Record::of_one(refused).read(None, None));
            }
            talk.last += 1;
            let number = talk.last;
            let id = std::mem::replace(&mut request.id, ours(number));
            let meta = request.request.get_meta_mut();
            let token = meta.get_progress_token();
            if token.is_some() {
                meta.set_progress_token(ProgressToken(ours(number)));
            }
            let record = Record::of_request(number);
            let reader = record.read(None, Some(self.when_left(number)));
            talk.under_way.insert(id.clone(), number);
            talk.streams.insert(number, Told { record, id, token, waits: 0 });
            reader
        };
        self.say(JsonRpcMessage::Request(request)).await?;
        Ok(reader)
    }

    /// Takes what is no request.
    async fn hear(&self, mut message: ClientJsonRpcMessage) -> Result<(), Unheard> {
        lock(&self.talk).used = Instant::now();
        if let JsonRpcMessage::Notification(notification) = &mut message
            && let ClientNotification::CancelledNotification(cancelled) = &mut notification.notification
        {
            let number = cancelled.params.request_id.as_ref().and_then(|id| lock(&self.talk).under_way.remove(id));
            // What is not under way is over, and there is nothing to cancel.
            let Some(number) = number else { return Ok(()) };
            cancelled.params.request_id = Some(ours(number));
            let record = lock(&self.talk).streams.get(&number).map(|told| Arc::clone(&told.record));
            if let Some(record) = record {
                record.end();
            }
            if !self.is_read(number) {
                self.forget(number);
            }
        }
        self.say(message).await
    }

    fn is_read(&self, number: u64) -> bool {
        lock(&self.talk).streams.get(&number).is_some_and(|told| told.record.is_being_read())
    }

    /// Takes up a stream behind an event.
    fn again(self: &Arc<Self>, event: &str) -> Result<Reader, Unheard> {
        let (after, stream) = match event.split_once('/') {
            Some((after, stream)) => (after, Some(stream.parse::<u64>().map_err(|_| Unheard::Event)?)),
            None => (event, None),
        };
        let after = Some(after.parse().map_err(|_| Unheard::Event)?);
        let Some(number) = stream else { return Ok(self.rest.read(after, None)) };
        let mut talk = lock(&self.talk);
        talk.used = Instant::now();
        let told = talk.streams.get_mut(&number).ok_or(Unheard::Event)?;
        self.waiting.fetch_sub(std::mem::take(&mut told.waits), Ordering::SeqCst);
        Ok(told.record.read(after, Some(self.when_left(number))))
    }

    /// What happens when the reader of a stream goes.
    fn when_left(self: &Arc<Self>, number: u64) -> Box<dyn FnOnce() + Send + Sync> {
        let this = Arc::downgrade(self);
        Box::new(move || {
            let Some(conversation) = this.upgrade() else { return };
            let record = lock(&conversation.talk).streams.get(&number).map(|told| Arc::clone(&told.record));
            let Some(record) = record else { return };
            if record.is_read() {
                return conversation.forget(number);
            }
            if record.is_over() {
                conversation.count(number);
            }
            let (readers, grace) = (record.readers(), conversation.grace);
            // Where there is no runtime any more, there is no server.
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
            runtime.spawn(async move {
                tokio::time::sleep(grace).await;
                if let Some(conversation) = this.upgrade()
                    && record.readers() == readers
                {
                    conversation.give_up(number).await;
                }
            });
        })
    }

    /// Nobody has come back for a stream.
    async fn give_up(&self, number: u64) {
        self.forget(number);
        // An answered request is not known any more, and the service takes no notice.
        if self.say(cancelled(ours(number), "its client has gone")).await.is_err() {
            tracing::debug!("a call of a client that has gone is over already");
        }
    }

    fn forget(&self, number: u64) {
        let mut talk = lock(&self.talk);
        let Some(told) = talk.streams.remove(&number) else { return };
        if talk.under_way.get(&told.id) == Some(&number) {
            talk.under_way.remove(&told.id);
        }
        self.waiting.fetch_sub(told.waits, Ordering::SeqCst);
    }

    /// Counts an answer that waits; where there are too many, it is not kept.
    fn count(&self, number: u64) {
        let mut talk = lock(&self.talk);
        let Some(told) = talk.streams.get_mut(&number).filter(|told| told.waits == 0) else { return };
        let bytes = told.record.bytes();
        if self.waiting.fetch_add(bytes, Ordering::SeqCst) + bytes > MOST_WAITING {
            self.waiting.fetch_sub(bytes, Ordering::SeqCst);
            tracing::warn!("an answer of {bytes} bytes does not wait for its client: too many do");
            told.record.forget();
        } else {
            told.waits = bytes;
        }
    }

    /// Puts what the service says where it belongs.
    fn tell(&self, mut message: ServerJsonRpcMessage) {
        let mut talk = lock(&self.talk);
        talk.used = Instant::now();
        let asked = match &message {
            JsonRpcMessage::Response(response) => Some(number(&response.id)),
            JsonRpcMessage::Error(error) => Some(error.id.as_ref().and_then(number)),
            JsonRpcMessage::Request(request) => {
                let asked = request.request.extensions().get::<OriginatingRequestId>();
                asked.and_then(|id| number(&id.0)).filter(|number| talk.streams.contains_key(number)).map(Some)
            }
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ServerNotification::ProgressNotification(progress) => Some(number(&progress.params.progress_token.0)),
                _ => None,
            },
        };
        let Some(asked) = asked else {
            drop(talk);
            return self.rest.tell(message);
        };
        // Of a request that was cancelled, or whose client did not come back: it is nobody's.
        let Some((number, told)) = asked.and_then(|number| Some((number, talk.streams.get(&number)?))) else { return };
        let (record, id) = (Arc::clone(&told.record), told.id.clone());
        match &mut message {
            JsonRpcMessage::Response(response) => response.id = id.clone(),
            JsonRpcMessage::Error(error) => error.id = Some(id.clone()),
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::ProgressNotification(progress) = &mut notification.notification
                    && let Some(token) = &told.token
                {
                    progress.params.progress_token = token.clone();
                }
            }
            JsonRpcMessage::Request(_) => {}
        }
        let answers = is_answer(&message);
        if answers && talk.under_way.get(&id) == Some(&number) {
            talk.under_way.remove(&id);
        }
        drop(talk);
        record.tell(message);
        if answers {
            record.end();
            if !record.is_being_read() {
                self.count(number);
            }
        }
    }

    fn is_idle(&self, idle: Duration) -> bool {
        let talk = lock(&self.talk);
        talk.streams.is_empty() && !self.rest.is_being_read() && talk.used.elapsed() >= idle
    }

    /// Ends it, with all that is under way.
    async fn close(&self) {
        let Some(into) = lock(&self.into).take() else { return };
        let under_way: Vec<u64> = lock(&self.talk).under_way.values().copied().collect();
        for number in under_way {
            if into.send(cancelled(ours(number), "its session is over")).await.is_err() {
                return;
            }
        }
    }
}

/// The service's end of a conversation.
#[derive(Debug)]
pub struct Line {
    conversation: Arc<Conversation>,
    messages: Receiver<ClientJsonRpcMessage>,
}

impl Transport<RoleServer> for Line {
    type Error = Unheard;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Unheard>> + Send + 'static {
        self.conversation.tell(item);
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), Unheard> {
        self.messages.close();
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Nothing comes any more, and who reads is not to wait for it.
        drop(lock(&self.conversation.into).take());
        self.conversation.rest.end();
        for told in lock(&self.conversation.talk).streams.values() {
            told.record.end();
        }
    }
}
