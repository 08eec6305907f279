//! What one stream of a client over HTTP is told, kept for as long as it may have to be told again.
//!
//! A record is written by the server and read by the connection that the client has at the moment: the latest reader gets
//! what comes, an earlier one nothing any more. Who reads again names the last event that it has. Knows nothing of requests.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;

/// Most events that are kept; the oldest go first, and the answer comes last.
const MOST: usize = 64;

/// When a client is to come back whose stream breaks.
pub const RETRY: Duration = Duration::from_secs(3);

/// What happens to a stream when its reader goes.
type Left = Box<dyn FnOnce() + Send + Sync>;

/// The events of one stream.
#[derive(Debug)]
pub struct Record {
    /// What stands behind the number in an event's id.
    suffix: String,
    /// Whether a reader that is not the latest one any more stays, and hears nothing.
    readers_stay: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<(u64, ServerSseMessage)>,
    /// The number of the last event.
    last: u64,
    /// The number of the last event that a reader has taken.
    taken: u64,
    over: bool,
    /// The latest reader, while it is there.
    reader: Option<u64>,
    /// How many readers there were.
    readers: u64,
    waker: Option<Waker>,
}

impl Record {
    /// Of the stream of one request: each event says which.
    pub fn of_request(number: u64) -> Arc<Record> {
        let record = Record { suffix: format!("/{number}"), readers_stay: false, state: Mutex::default() };
        // By this a client knows where to come back.
        record.add(|id| ServerSseMessage::priming(id, RETRY));
        Arc::new(record)
    }

    /// Of what belongs to no request.
    pub fn of_all() -> Arc<Record> {
        Arc::new(Record { suffix: String::new(), readers_stay: true, state: Mutex::default() })
    }

    /// One that says this and nothing else.
    pub fn of_one(message: ServerJsonRpcMessage) -> Arc<Record> {
        let record = Record { suffix: String::new(), readers_stay: false, state: Mutex::default() };
        record.add(|_| ServerSseMessage::from_message(message));
        record.end();
        Arc::new(record)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, event: impl FnOnce(String) -> ServerSseMessage) {
        let mut state = self.lock();
        if state.over {
            return;
        }
        state.last += 1;
        let number = state.last;
        state.events.push_back((number, event(format!("{number}{}", self.suffix))));
        if state.events.len() > MOST {
            state.events.pop_front();
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Tells one more.
    pub fn tell(&self, message: ServerJsonRpcMessage) {
        self.add(|id| ServerSseMessage::new(id, message));
    }

    /// There is nothing more to tell.
    pub fn end(&self) {
        let mut state = self.lock();
        state.over = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Forgets what was told.
    pub fn forget(&self) {
        self.lock().events.clear();
    }

    /// Whether there is nothing more to tell.
    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Whether a reader has taken all that there ever will be.
    pub fn is_read(&self) -> bool {
        let state = self.lock();
        state.over && state.taken == state.last
    }

    /// Whether somebody reads.
    pub fn is_being_read(&self) -> bool {
        self.lock().reader.is_some()
    }

    /// How many have begun to read.
    pub fn readers(&self) -> u64 {
        self.lock().readers
    }

    /// The bytes of what is kept, about.
    pub fn bytes(&self) -> usize {
        let messages: Vec<_> = self.lock().events.iter().filter_map(|(_, event)| event.message.clone()).collect();
        messages.iter().map(|message| serde_json::to_string(message.as_ref()).map_or(0, |text| text.len())).sum()
    }

    /// Reads what comes after this event, or what nobody has taken yet. `left` is called when the reader goes as the latest
    /// one.
    pub fn read(self: &Arc<Self>, after: Option<u64>, left: Option<Left>) -> Reader {
        let mut state = self.lock();
        state.readers += 1;
        state.reader = Some(state.readers);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        let (number, after) = (state.readers, after.unwrap_or(state.taken));
        drop(state);
        Reader { record: Arc::clone(self), number, after, left }
    }
}

/// One that reads a record, from an event on.
pub struct Reader {
    record: Arc<Record>,
    number: u64,
    after: u64,
    left: Option<Left>,
}

impl Stream for Reader {
    type Item = ServerSseMessage;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let this = self.get_mut();
        let mut state = this.record.lock();
        if state.reader != Some(this.number) {
            return if this.record.readers_stay { Poll::Pending } else { Poll::Ready(None) };
        }
        let next = state.events.iter().find(|(number, _)| *number > this.after);
        if let Some((number, event)) = next.map(|(number, event)| (*number, event.clone())) {
            this.after = number;
            state.taken = state.taken.max(number);
            return Poll::Ready(Some(event));
        }
        if state.over {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.record.lock();
        if state.reader != Some(self.number) {
            return;
        }
        state.reader = None;
        drop(state);
        if let Some(left) = self.left.take() {
            left();
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

    async fn next(reader: &mut Reader) -> Option<String> {
        poll_fn(|context| Pin::new(&mut *reader).poll_next(context))
            .await
            .map(|event| event.event_id.unwrap_or_default())
    }

    async fn waits(reader: &mut Reader) -> bool {
        poll_fn(|context| Poll::Ready(Pin::new(&mut *reader).poll_next(context).is_pending())).await
    }

    #[tokio::test]
    async fn what_broke_off_is_taken_up_again_behind_the_last_event() {
        let record = Record::of_request(7);
        let left = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&left);
        let mut first = record.read(
            None,
            Some(Box::new(move || {
                counts.fetch_add(1, Ordering::SeqCst);
            })),
        );
        record.tell(message(1));
        assert_eq!(next(&mut first).await.as_deref(), Some("1/7"));
        drop(first);
        assert_eq!((left.load(Ordering::SeqCst), record.is_being_read()), (1, false));
        record.tell(message(2));
        record.end();
        record.tell(message(3));
        let mut second = record.read(Some(1), None);
        assert!(!record.is_read());
        assert_eq!(next(&mut second).await.as_deref(), Some("2/7"));
        assert_eq!(next(&mut second).await.as_deref(), Some("3/7"));
        assert_eq!(next(&mut second).await, None);
        assert!(record.is_read());
    }

    #[tokio::test]
    async fn the_latest_reader_gets_what_comes() {
        for (record, stays) in [(Record::of_request(1), false), (Record::of_all(), true)] {
            let mut first = record.read(None, Some(Box::new(|| panic!("it is not the latest"))));
            while !waits(&mut first).await {}
            let mut second = record.read(None, None);
            record.tell(message(1));
            assert_eq!(waits(&mut first).await, stays);
            assert!(next(&mut second).await.is_some());
            drop(first);
            assert!(record.is_being_read());
        }
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_ends_with_the_answer() {
        let record = Record::of_request(1);
        for id in 0..1000 {
            record.tell(message(id));
        }
        record.end();
        assert_eq!(record.lock().events.len(), MOST);
        assert!(record.bytes() > MOST * 30);
        let mut reader = record.read(None, None);
        let mut last = None;
        while let Some(id) = next(&mut reader).await {
            last = Some(id);
        }
        assert_eq!(last.as_deref(), Some("1001/1"));
        record.forget();
        assert_eq!(record.bytes(), 0);
    }
}
