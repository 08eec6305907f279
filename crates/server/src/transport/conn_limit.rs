//! Limits how many connections there are, and how long one may last without an authenticated request: a client without the
//! token can hold no more than that. Does not read what connections carry.
//!
//! When all slots are taken, a new connection evicts the oldest one without an authenticated request, so idle connections,
//! however many, cannot lock out clients.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Most connections at a time; others wait until one ends.
const MAX_CONNECTIONS: usize = 256;

/// How long a connection may take until its first authenticated request.
const AUTH_TIMEOUT: Duration = Duration::from_secs(30);

/// A listener that accepts a bounded number of connections.
#[derive(Debug)]
pub(super) struct ConnLimiter {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    auth_timeout: Duration,
    /// Connections that may not be authenticated yet, the oldest first.
    unauthenticated: VecDeque<Weak<Conn>>,
    /// An accepted connection that waits for a slot.
    pending: Option<(TcpStream, SocketAddr)>,
}

impl ConnLimiter {
    /// Limits the connections of `listener`.
    pub(super) fn new(listener: TcpListener) -> ConnLimiter {
        ConnLimiter::with(listener, MAX_CONNECTIONS, AUTH_TIMEOUT)
    }

    fn with(listener: TcpListener, slots: usize, auth_timeout: Duration) -> ConnLimiter {
        let slots = Arc::new(Semaphore::new(slots));
        ConnLimiter { listener, slots, auth_timeout, unauthenticated: VecDeque::new(), pending: None }
    }

    /// Evicts the oldest connection without an authenticated request.
    fn evict_oldest(&mut self) {
        while let Some(oldest) = self.unauthenticated.pop_front() {
            if let Some(oldest) = oldest.upgrade()
                && oldest.evict()
            {
                return;
            }
        }
    }
}

impl Listener for ConnLimiter {
    type Io = LimitedConn;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedConn, SocketAddr) {
        // Cancel-safe: an accepted connection stays pending until it has a slot.
        if self.pending.is_none() {
            self.pending = Some(Listener::accept(&mut self.listener).await);
        }
        if self.slots.available_permits() == 0 {
            self.evict_oldest();
        }
        let slot = Arc::clone(&self.slots).acquire_owned().await.expect("the semaphore is never closed");
        let (stream, address) = match self.pending.take() {
            Some(pending) => pending,
            None => Listener::accept(&mut self.listener).await,
        };
        let (timeout, admission) = (Some(Box::pin(sleep(self.auth_timeout))), AdmittedConnection::default());
        self.unauthenticated.retain(|conn| conn.upgrade().is_some_and(|conn| !conn.is_admitted()));
        self.unauthenticated.push_back(Arc::downgrade(&admission.0));
        (LimitedConn { stream, timeout, admission, _slot: slot }, address)
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The state of a connection, and the task to wake when it changes.
#[derive(Debug, Default)]
struct Conn(Mutex<(ConnState, Option<Waker>)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ConnState {
    /// It has had no authenticated request yet.
    #[default]
    Unauthenticated,
    /// It has had one.
    Admitted,
    /// It has to be closed.
    Evicted,
}

impl Conn {
    fn lock(&self) -> MutexGuard<'_, (ConnState, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_admitted(&self) -> bool {
        self.lock().0 == ConnState::Admitted
    }

    /// Evicts the connection; `false` if it was admitted or evicted before.
    fn evict(&self) -> bool {
        let mut state = self.lock();
        if state.0 != ConnState::Unauthenticated {
            return false;
        }
        state.0 = ConnState::Evicted;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
        true
    }
}

/// Marks a connection as admitted; handlers of its requests have it as their connect info.
#[derive(Debug, Clone, Default)]
pub(super) struct AdmittedConnection(Arc<Conn>);

impl AdmittedConnection {
    /// A request of the connection was authenticated: it has no timeout from now on, and is not evicted.
    pub(super) fn admit(&self) {
        let mut state = self.0.lock();
        if state.0 == ConnState::Unauthenticated {
            *state = (ConnState::Admitted, None);
        }
    }
}

impl Connected<IncomingStream<'_, ConnLimiter>> for AdmittedConnection {
    fn connect_info(stream: IncomingStream<'_, ConnLimiter>) -> AdmittedConnection {
        stream.io().admission.clone()
    }
}

/// An accepted connection, with its slot.
#[derive(Debug)]
pub(super) struct LimitedConn {
    stream: TcpStream,
    /// Until the connection is admitted.
    timeout: Option<Pin<Box<Sleep>>>,
    admission: AdmittedConnection,
    _slot: OwnedSemaphorePermit,
}

impl AsyncRead for LimitedConn {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if self.timeout.is_some() {
            let conn = Arc::clone(&self.admission.0);
            let mut state = conn.lock();
            match state.0 {
                ConnState::Unauthenticated => state.1 = Some(context.waker().clone()),
                ConnState::Admitted => self.timeout = None,
                ConnState::Evicted => return Poll::Ready(Err(Error::from(ErrorKind::ConnectionAborted))),
            }
        }
        if let Some(timeout) = &mut self.timeout
            && timeout.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(Error::from(ErrorKind::TimedOut)));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LimitedConn {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn limiter(slots: usize) -> (ConnLimiter, SocketAddr) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        (ConnLimiter::with(listener, slots, Duration::from_millis(50)), address)
    }

    #[tokio::test]
    async fn unauthenticated_connections_time_out_and_admitted_ones_stay() {
        let (mut limiter, address) = limiter(1).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut conn, _) = limiter.accept().await;
        client.write_all(b"x").await.unwrap();
        let mut byte = [0u8];
        conn.read_exact(&mut byte).await.unwrap();
        assert_eq!(conn.read_exact(&mut byte).await.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(conn);
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut conn, _) = limiter.accept().await;
        conn.admission.admit();
        let late = async {
            sleep(Duration::from_millis(150)).await;
            client.write_all(b"y").await.unwrap();
        };
        let (read, ()) = tokio::join!(conn.read_exact(&mut byte), late);
        assert_eq!((read.unwrap(), byte), (1, *b"y"));
    }

    #[tokio::test]
    async fn further_connection_waits_for_a_slot() {
        let (mut limiter, address) = limiter(1).await;
        let (_a, _b) = (TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap());
        let (first, _) = limiter.accept().await;
        first.admission.admit();
        assert!(tokio::time::timeout(Duration::from_millis(100), limiter.accept()).await.is_err());
        drop(first);
        limiter.accept().await;
    }

    #[tokio::test]
    async fn full_limiter_evicts_the_oldest_unauthenticated_connection() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut limiter = ConnLimiter::with(listener, 3, Duration::from_secs(600));
        let mut clients = Vec::new();
        let mut conns = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
            conns.push(limiter.accept().await.0);
        }
        conns[0].admission.admit();
        let mut byte = [0u8];
        let [mut kept, mut oldest, mut other] = <[LimitedConn; 3]>::try_from(conns).unwrap();
        let evicted = tokio::spawn(async move { oldest.read_exact(&mut [0u8]).await.unwrap_err().kind() });
        tokio::task::yield_now().await;
        clients.push(TcpStream::connect(address).await.unwrap());
        let (mut fourth, _) = limiter.accept().await;
        assert_eq!(evicted.await.unwrap(), ErrorKind::ConnectionAborted);
        for (client, conn) in [(0, &mut kept), (2, &mut other), (3, &mut fourth)] {
            clients[client].write_all(b"x").await.unwrap();
            conn.read_exact(&mut byte).await.unwrap();
        }
    }
}
