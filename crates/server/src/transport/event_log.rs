//! The events of one HTTP stream to a client, retained for as long as the client may resume it.
//!
//! The server appends events, and the client's present connection reads them: only the latest reader receives new events. A
//! reader that resumes names the last event that it has. The log knows nothing of requests.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;

/// Most events that are retained. The oldest are dropped first, and the answer is the last.
const MAX_EVENTS: usize = 64;

/// When a client should reconnect after its stream broke.
pub(super) const RETRY: Duration = Duration::from_secs(3);

/// Called when the latest reader of a stream disconnects.
type OnDisconnect = Box<dyn FnOnce() + Send + Sync>;

/// The events of one stream.
#[derive(Debug)]
pub(super) struct EventLog {
    /// What follows the number in an event's id.
    suffix: String,
    /// Whether a superseded reader stays open, without receiving anything.
    keeps_old_readers: bool,
    state: Mutex<EventLogState>,
}

#[derive(Debug, Default)]
struct EventLogState {
    events: VecDeque<(u64, ServerSseMessage)>,
    /// The number of the last event.
    last: u64,
    /// The number of the last event that a reader has received.
    received: u64,
    ended: bool,
    /// The latest reader, while it is connected.
    reader: Option<u64>,
    /// How many readers there were so far.
    readers: u64,
    waker: Option<Waker>,
}

impl EventLog {
    /// The log of one request's stream, whose number each event's id contains.
    pub(super) fn for_request(number: u64) -> Arc<EventLog> {
        let log = EventLog { suffix: format!("/{number}"), keeps_old_readers: false, state: Mutex::default() };
        // The first event gives the client an id to resume from.
        log.append(|id| ServerSseMessage::priming(id, RETRY));
        Arc::new(log)
    }

    /// The log of messages that belong to no request.
    pub(super) fn for_session() -> Arc<EventLog> {
        Arc::new(EventLog { suffix: String::new(), keeps_old_readers: true, state: Mutex::default() })
    }

    /// A log of a single message, which has ended.
    pub(super) fn single(message: ServerJsonRpcMessage) -> Arc<EventLog> {
        let log = EventLog { suffix: String::new(), keeps_old_readers: false, state: Mutex::default() };
        log.append(|_| ServerSseMessage::from_message(message));
        log.end();
        Arc::new(log)
    }

    fn lock(&self) -> MutexGuard<'_, EventLogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, event: impl FnOnce(String) -> ServerSseMessage) {
        let mut state = self.lock();
        if state.ended {
            return;
        }
        state.last += 1;
        let number = state.last;
        state.events.push_back((number, event(format!("{number}{}", self.suffix))));
        if state.events.len() > MAX_EVENTS {
            state.events.pop_front();
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Appends a message.
    pub(super) fn push(&self, message: ServerJsonRpcMessage) {
        self.append(|id| ServerSseMessage::new(id, message));
    }

    /// Ends the log: readers end after its last event.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Drops all retained events.
    pub(super) fn clear(&self) {
        self.lock().events.clear();
    }

    /// Whether it has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.lock().ended
    }

    /// Whether it has ended, and a reader has received all of it.
    pub(super) fn is_delivered(&self) -> bool {
        let state = self.lock();
        state.ended && state.received == state.last
    }

    /// Whether a reader is connected.
    pub(super) fn has_reader(&self) -> bool {
        self.lock().reader.is_some()
    }

    /// How many readers there were so far.
    pub(super) fn readers(&self) -> u64 {
        self.lock().readers
    }

    /// The approximate size of the retained events, bytes.
    pub(super) fn bytes(&self) -> usize {
        let messages: Vec<_> = self.lock().events.iter().filter_map(|(_, event)| event.message.clone()).collect();
        messages.iter().map(|message| serde_json::to_string(message.as_ref()).map_or(0, |text| text.len())).sum()
    }

    /// Reads the events after `after`, or those that no reader has received yet. `on_disconnect` is called if the reader is
    /// still the latest when it disconnects.
    pub(super) fn read(self: &Arc<Self>, after: Option<u64>, on_disconnect: Option<OnDisconnect>) -> EventReader {
        let mut state = self.lock();
        state.readers += 1;
        state.reader = Some(state.readers);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        let (number, after) = (state.readers, after.unwrap_or(state.received));
        drop(state);
        EventReader { log: Arc::clone(self), number, after, on_disconnect }
    }
}

/// A reader of a log, from an event on.
pub(super) struct EventReader {
    log: Arc<EventLog>,
    number: u64,
    after: u64,
    on_disconnect: Option<OnDisconnect>,
}

impl Stream for EventReader {
    type Item = ServerSseMessage;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let this = self.get_mut();
        let mut state = this.log.lock();
        if state.reader != Some(this.number) {
            return if this.log.keeps_old_readers { Poll::Pending } else { Poll::Ready(None) };
        }
        let next = state.events.iter().find(|(number, _)| *number > this.after);
        if let Some((number, event)) = next.map(|(number, event)| (*number, event.clone())) {
            this.after = number;
            state.received = state.received.max(number);
            return Poll::Ready(Some(event));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        let mut state = self.log.lock();
        if state.reader != Some(self.number) {
            return;
        }
        state.reader = None;
        drop(state);
        if let Some(on_disconnect) = self.on_disconnect.take() {
            on_disconnect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{ErrorData, RequestId};
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn message(id: i64) -> ServerJsonRpcMessage {
        ServerJsonRpcMessage::error(ErrorData::internal_error("x", None), Some(RequestId::Number(id)))
    }

    async fn next(reader: &mut EventReader) -> Option<String> {
        poll_fn(|context| Pin::new(&mut *reader).poll_next(context))
            .await
            .map(|event| event.event_id.unwrap_or_default())
    }

    async fn is_pending(reader: &mut EventReader) -> bool {
        poll_fn(|context| Poll::Ready(Pin::new(&mut *reader).poll_next(context).is_pending())).await
    }

    #[tokio::test]
    async fn broken_stream_resumes_after_the_last_event() {
        let log = EventLog::for_request(7);
        let left = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&left);
        let mut first = log.read(
            None,
            Some(Box::new(move || {
                counts.fetch_add(1, Ordering::SeqCst);
            })),
        );
        log.push(message(1));
        assert_eq!(next(&mut first).await.as_deref(), Some("1/7"));
        drop(first);
        assert_eq!((left.load(Ordering::SeqCst), log.has_reader()), (1, false));
        log.push(message(2));
        log.end();
        log.push(message(3));
        let mut second = log.read(Some(1), None);
        assert!(!log.is_delivered());
        assert_eq!(next(&mut second).await.as_deref(), Some("2/7"));
        assert_eq!(next(&mut second).await.as_deref(), Some("3/7"));
        assert_eq!(next(&mut second).await, None);
        assert!(log.is_delivered());
    }

    #[tokio::test]
    async fn only_the_latest_reader_receives_events() {
        for (log, stays) in [(EventLog::for_request(1), false), (EventLog::for_session(), true)] {
            let mut first = log.read(None, Some(Box::new(|| panic!("it is not the latest"))));
            while !is_pending(&mut first).await {}
            let mut second = log.read(None, None);
            log.push(message(1));
            assert_eq!(is_pending(&mut first).await, stays);
            assert!(next(&mut second).await.is_some());
            drop(first);
            assert!(log.has_reader());
        }
    }

    #[tokio::test]
    async fn retained_events_are_bounded_and_end_with_the_answer() {
        let log = EventLog::for_request(1);
        for id in 0..1000 {
            log.push(message(id));
        }
        log.end();
        assert_eq!(log.lock().events.len(), MAX_EVENTS);
        assert!(log.bytes() > MAX_EVENTS * 30);
        let mut reader = log.read(None, None);
        let mut last = None;
        while let Some(id) = next(&mut reader).await {
            last = Some(id);
        }
        assert_eq!(last.as_deref(), Some("1001/1"));
        log.clear();
        assert_eq!(log.bytes(), 0);
    }
}
