//! Which answer is of which request, where a client uses an id more than once on one connection.
//!
//! The protocol forbids that, and the library does not look: it would give the answer of a cancelled call to the next one
//! that has its id. Here an id that is under way is refused, and one that was cancelled goes on under another name. Looks at
//! ids alone, and never at what is asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, ClientRequest, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// Most cancelled ids that are remembered; what was cancelled longer ago is long over.
const MOST: usize = 4096;

/// What who uses an id twice is told.
pub const TAKEN: &str = "a request with this id is under way, and their answers could not be told apart";

/// A transport whose requests each have an id that no other one has.
#[derive(Debug)]
pub struct Apart<T> {
    inner: T,
    ids: Arc<Mutex<Ids>>,
}

impl<T> Apart<T> {
    /// Around a transport.
    pub fn new(inner: T) -> Apart<T> {
        Apart { inner, ids: Arc::default() }
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the client calls its requests, and what we do.
#[derive(Debug, Default)]
struct Ids {
    /// The client's to ours.
    under_way: HashMap<RequestId, RequestId>,
    /// Ours to the client's, where they differ.
    renamed: HashMap<RequestId, RequestId>,
    /// The client's, whose requests may still be on their way to an end.
    cancelled: VecDeque<RequestId>,
    count: u64,
}

impl Ids {
    /// Our id of a request that comes. `None`: one with its id is under way.
    fn enter(&mut self, id: &RequestId, keeps: bool) -> Option<RequestId> {
        if self.under_way.contains_key(id) {
            return None;
        }
        let taken = self.renamed.contains_key(id) || self.cancelled.contains(id);
        let mut ours = id.clone();
        if taken && !keeps {
            while self.under_way.contains_key(&ours) || self.renamed.contains_key(&ours) || ours == *id {
                self.count += 1;
                ours = RequestId::String(format!("again {}", self.count).into());
            }
            self.renamed.insert(ours.clone(), id.clone());
        }
        self.under_way.insert(id.clone(), ours.clone());
        Some(ours)
    }

    /// Our id of a request that is cancelled. Nobody is answered any more.
    fn cancel(&mut self, id: &RequestId) -> RequestId {
        let Some(ours) = self.under_way.remove(id) else { return id.clone() };
        if self.renamed.remove(&ours).is_none() {
            self.cancelled.push_back(id.clone());
            if self.cancelled.len() > MOST {
                self.cancelled.pop_front();
            }
        }
        ours
    }

    /// The client's id of a request that is answered.
    fn leave(&mut self, ours: &RequestId) -> RequestId {
        let id = self.renamed.remove(ours).unwrap_or_else(|| ours.clone());
        self.under_way.remove(&id);
        id
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Apart<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        match &mut item {
            JsonRpcMessage::Response(response) => response.id = self.ids().leave(&response.id),
            JsonRpcMessage::Error(error) => error.id = error.id.as_ref().map(|id| self.ids().leave(id)),
            _ => {}
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let mut message = self.inner.receive().await?;
            match &mut message {
                JsonRpcMessage::Request(request) => {
                    // A subscription's id stands in everything that it tells.
                    let keeps = matches!(request.request, ClientRequest::SubscriptionsListenRequest(_));
                    let entered = self.ids().enter(&request.id, keeps);
                    let Some(ours) = entered else {
                        let refusal = ErrorData::invalid_request(TAKEN, None);
                        let sending = self.inner.send(JsonRpcMessage::error(refusal, Some(request.id.clone())));
                        tokio::spawn(async move {
                            if let Err(error) = sending.await {
                                tracing::debug!("nobody hears of a refusal: {error}");
                            }
                        });
                        continue;
                    };
                    request.id = ours;
                }
                JsonRpcMessage::Notification(notification) => {
                    if let ClientNotification::CancelledNotification(cancelled) = &mut notification.notification {
                        let id = &mut cancelled.params.request_id;
                        *id = id.as_ref().map(|id| self.ids().cancel(id));
                    }
                }
                _ => {}
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(id: i64) -> RequestId {
        RequestId::Number(id)
    }

    #[test]
    fn an_id_is_one_requests_until_it_is_answered() {
        let mut ids = Ids::default();
        assert_eq!(ids.enter(&number(1), false), Some(number(1)));
        assert_eq!(ids.enter(&number(1), false), None);
        assert_eq!(ids.enter(&RequestId::String("1".into()), false), Some(RequestId::String("1".into())));
        assert_eq!(ids.leave(&number(1)), number(1));
        assert_eq!(ids.enter(&number(1), false), Some(number(1)));
    }

    #[test]
    fn what_was_cancelled_goes_on_under_another_name() {
        let mut ids = Ids::default();
        ids.enter(&number(1), false).unwrap();
        assert_eq!(ids.cancel(&number(1)), number(1));
        let second = ids.enter(&number(1), false).unwrap();
        assert_ne!(second, number(1));
        // A client may think of the same name.
        let third = ids.enter(&second, false).unwrap();
        assert!(third != second && third != number(1));
        assert_eq!((ids.leave(&second), ids.leave(&third)), (number(1), second));
        // Cancelled twice in a row.
        let fourth = ids.enter(&number(1), false).unwrap();
        assert_eq!(ids.cancel(&number(1)), fourth);
        assert_ne!(ids.enter(&number(1), false).unwrap(), fourth);
        assert_eq!(ids.cancel(&number(9)), number(9));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut ids = Ids::default();
        for id in 0..i64::try_from(MOST).unwrap() + 10 {
            ids.enter(&number(id), false).unwrap();
            ids.cancel(&number(id));
        }
        assert_eq!((ids.cancelled.len(), ids.under_way.len(), ids.renamed.len()), (MOST, 0, 0));
    }
}
