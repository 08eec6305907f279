//! Keeps request ids unique on one connection, so that an answer reaches its own request.
//!
//! The protocol forbids a client to reuse an id, but the library does not check it: the answer of a cancelled call would reach
//! the next call with its id. Here a request whose id is in use is refused, and the id of a cancelled one is renamed on reuse.
//! Only ids are looked at, never the requests themselves.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, ClientRequest, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// Most cancelled ids that are remembered. Requests cancelled before those have ended.
const MAX_CANCELLED: usize = 4096;

/// The error for a request whose id is in use.
pub(super) const ID_IN_USE: &str = "a request with this id is under way, and their answers could not be told apart";

/// A transport that gives each request an id of its own.
#[derive(Debug)]
pub(super) struct UniqueIds<T> {
    inner: T,
    ids: Arc<Mutex<RequestIdMap>>,
}

impl<T> UniqueIds<T> {
    /// Wraps a transport.
    pub(super) fn new(inner: T) -> UniqueIds<T> {
        UniqueIds { inner, ids: Arc::default() }
    }

    fn ids(&self) -> MutexGuard<'_, RequestIdMap> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's ids of its requests, and ours.
#[derive(Debug, Default)]
struct RequestIdMap {
    /// Requests in progress: from the client's id to ours.
    in_progress: HashMap<RequestId, RequestId>,
    /// From our id to the client's, where they differ.
    renamed: HashMap<RequestId, RequestId>,
    /// The client's ids of cancelled requests that may not have ended yet.
    cancelled: VecDeque<RequestId>,
    count: u64,
}

impl RequestIdMap {
    /// Our id for a new request; `None` if its id is in use. `keeps` says that the id must not be renamed.
    fn begin(&mut self, id: &RequestId, keeps: bool) -> Option<RequestId> {
        if self.in_progress.contains_key(id) {
            return None;
        }
        let taken = self.renamed.contains_key(id) || self.cancelled.contains(id);
        let mut ours = id.clone();
        if taken && !keeps {
            while self.in_progress.contains_key(&ours) || self.renamed.contains_key(&ours) || ours == *id {
                self.count += 1;
                ours = RequestId::String(format!("again {}", self.count).into());
            }
            self.renamed.insert(ours.clone(), id.clone());
        }
        self.in_progress.insert(id.clone(), ours.clone());
        Some(ours)
    }

    /// Our id of a request that is cancelled, which is not answered any more.
    fn cancel(&mut self, id: &RequestId) -> RequestId {
        let Some(ours) = self.in_progress.remove(id) else { return id.clone() };
        if self.renamed.remove(&ours).is_none() {
            self.cancelled.push_back(id.clone());
            if self.cancelled.len() > MAX_CANCELLED {
                self.cancelled.pop_front();
            }
        }
        ours
    }

    /// The client's id of a request that is answered.
    fn end(&mut self, ours: &RequestId) -> RequestId {
        let id = self.renamed.remove(ours).unwrap_or_else(|| ours.clone());
        self.in_progress.remove(&id);
        id
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for UniqueIds<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        match &mut item {
            JsonRpcMessage::Response(response) => response.id = self.ids().end(&response.id),
            JsonRpcMessage::Error(error) => error.id = error.id.as_ref().map(|id| self.ids().end(id)),
            _ => {}
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let mut message = self.inner.receive().await?;
            match &mut message {
                JsonRpcMessage::Request(request) => {
                    // Notifications of a subscription contain its id.
                    let keeps = matches!(request.request, ClientRequest::SubscriptionsListenRequest(_));
                    let begun = self.ids().begin(&request.id, keeps);
                    let Some(ours) = begun else {
                        let error = ErrorData::invalid_request(ID_IN_USE, None);
                        let sending = self.inner.send(JsonRpcMessage::error(error, Some(request.id.clone())));
                        tokio::spawn(async move {
                            if let Err(error) = sending.await {
                                tracing::debug!("an error about a request id was not delivered: {error}");
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
    fn id_in_use_is_refused_until_its_request_is_answered() {
        let mut ids = RequestIdMap::default();
        assert_eq!(ids.begin(&number(1), false), Some(number(1)));
        assert_eq!(ids.begin(&number(1), false), None);
        assert_eq!(ids.begin(&RequestId::String("1".into()), false), Some(RequestId::String("1".into())));
        assert_eq!(ids.end(&number(1)), number(1));
        assert_eq!(ids.begin(&number(1), false), Some(number(1)));
    }

    #[test]
    fn reused_id_of_a_cancelled_request_is_renamed() {
        let mut ids = RequestIdMap::default();
        ids.begin(&number(1), false).unwrap();
        assert_eq!(ids.cancel(&number(1)), number(1));
        let second = ids.begin(&number(1), false).unwrap();
        assert_ne!(second, number(1));
        // A client may use the same new id.
        let third = ids.begin(&second, false).unwrap();
        assert!(third != second && third != number(1));
        assert_eq!((ids.end(&second), ids.end(&third)), (number(1), second));
        // Cancelled twice in a row.
        let fourth = ids.begin(&number(1), false).unwrap();
        assert_eq!(ids.cancel(&number(1)), fourth);
        assert_ne!(ids.begin(&number(1), false).unwrap(), fourth);
        assert_eq!(ids.cancel(&number(9)), number(9));
    }

    #[test]
    fn remembered_ids_are_bounded() {
        let mut ids = RequestIdMap::default();
        for id in 0..i64::try_from(MAX_CANCELLED).unwrap() + 10 {
            ids.begin(&number(id), false).unwrap();
            ids.cancel(&number(id));
        }
        assert_eq!((ids.cancelled.len(), ids.in_progress.len(), ids.renamed.len()), (MAX_CANCELLED, 0, 0));
    }
}
