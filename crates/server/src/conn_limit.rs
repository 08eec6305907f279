//! How many connections there are, and how long one may keep its place before a request of it was let in: who has no token
//! can take no more than that. Knows nothing of what is said on them, but that.
//!
//! Where all places are taken, the one goes that has been there longest without such a request: silent connections, however
//! many, keep nobody out who has something to ask.

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
const MOST: usize = 256;

/// How long a connection may take until its first request is let in.
const FIRST: Duration = Duration::from_secs(30);

/// Lets in so many.
#[derive(Debug)]
pub struct Doorway {
    listener: TcpListener,
    places: Arc<Semaphore>,
    first: Duration,
    /// Those who may not have been let in yet, the oldest first.
    silent: VecDeque<Weak<Standing>>,
    /// One that waits for a place.
    arrived: Option<(TcpStream, SocketAddr)>,
}

impl Doorway {
    /// In front of a listener.
    pub fn new(listener: TcpListener) -> Doorway {
        Doorway::of(listener, MOST, FIRST)
    }
}

impl Doorway {
    fn of(listener: TcpListener, places: usize, first: Duration) -> Doorway {
        Doorway { listener, places: Arc::new(Semaphore::new(places)), first, silent: VecDeque::new(), arrived: None }
    }

    /// Sends the oldest one away that was not let in.
    fn make_room(&mut self) {
        while let Some(oldest) = self.silent.pop_front() {
            if let Some(oldest) = oldest.upgrade()
                && oldest.send_away()
            {
                return;
            }
        }
    }
}

impl Listener for Doorway {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        // Whoever stops waiting here leaves it at the door.
        if self.arrived.is_none() {
            self.arrived = Some(Listener::accept(&mut self.listener).await);
        }
        if self.places.available_permits() == 0 {
            self.make_room();
        }
        let place = Arc::clone(&self.places).acquire_owned().await.expect("the places are never closed");
        let (stream, address) = match self.arrived.take() {
            Some(arrived) => arrived,
            None => Listener::accept(&mut self.listener).await,
        };
        let (silent, let_in) = (Some(Box::pin(sleep(self.first))), LetIn::default());
        self.silent.retain(|standing| standing.upgrade().is_some_and(|standing| !standing.is_let_in()));
        self.silent.push_back(Arc::downgrade(&let_in.0));
        (Guest { stream, silent, let_in, _place: place }, address)
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// How a connection stands.
#[derive(Debug, Default)]
struct Standing(Mutex<(Stands, Option<Waker>)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stands {
    /// No request of it was let in yet.
    #[default]
    Silent,
    /// One was.
    LetIn,
    /// It has to go.
    Out,
}

impl Standing {
    fn lock(&self) -> MutexGuard<'_, (Stands, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_let_in(&self) -> bool {
        self.lock().0 == Stands::LetIn
    }

    /// Whether it goes.
    fn send_away(&self) -> bool {
        let mut state = self.lock();
        if state.0 != Stands::Silent {
            return false;
        }
        state.0 = Stands::Out;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
        true
    }
}

/// Whether a request of a connection was let in.
#[derive(Debug, Clone, Default)]
pub struct LetIn(Arc<Standing>);

impl LetIn {
    /// It was, and the connection stays for as long as both sides like.
    pub fn stays(&self) {
        let mut state = self.0.lock();
        if state.0 == Stands::Silent {
            *state = (Stands::LetIn, None);
        }
    }
}

impl Connected<IncomingStream<'_, Doorway>> for LetIn {
    fn connect_info(stream: IncomingStream<'_, Doorway>) -> LetIn {
        stream.io().let_in.clone()
    }
}

/// A connection that has a place.
#[derive(Debug)]
pub struct Guest {
    stream: TcpStream,
    /// Until a request was let in.
    silent: Option<Pin<Box<Sleep>>>,
    let_in: LetIn,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Guest {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if self.silent.is_some() {
            let standing = Arc::clone(&self.let_in.0);
            let mut state = standing.lock();
            match state.0 {
                Stands::Silent => state.1 = Some(context.waker().clone()),
                Stands::LetIn => self.silent = None,
                Stands::Out => return Poll::Ready(Err(Error::from(ErrorKind::ConnectionAborted))),
            }
        }
        if let Some(silent) = &mut self.silent
            && silent.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(Error::from(ErrorKind::TimedOut)));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Guest {
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

    async fn doorway(places: usize) -> (Doorway, SocketAddr) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        (Doorway::of(listener, places, Duration::from_millis(50)), address)
    }

    #[tokio::test]
    async fn who_asks_for_nothing_loses_the_place_and_who_was_let_in_keeps_it() {
        let (mut doorway, address) = doorway(1).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut guest, _) = doorway.accept().await;
        client.write_all(b"x").await.unwrap();
        let mut byte = [0u8];
        guest.read_exact(&mut byte).await.unwrap();
        assert_eq!(guest.read_exact(&mut byte).await.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(guest);
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut guest, _) = doorway.accept().await;
        guest.let_in.stays();
        let late = async {
            sleep(Duration::from_millis(150)).await;
            client.write_all(b"y").await.unwrap();
        };
        let (read, ()) = tokio::join!(guest.read_exact(&mut byte), late);
        assert_eq!((read.unwrap(), byte), (1, *b"y"));
    }

    #[tokio::test]
    async fn the_next_one_waits_for_a_place() {
        let (mut doorway, address) = doorway(1).await;
        let (_a, _b) = (TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap());
        let (first, _) = doorway.accept().await;
        first.let_in.stays();
        assert!(tokio::time::timeout(Duration::from_millis(100), doorway.accept()).await.is_err());
        drop(first);
        doorway.accept().await;
    }

    #[tokio::test]
    async fn who_was_silent_longest_goes_for_the_next_one_and_who_was_let_in_stays() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut doorway = Doorway::of(listener, 3, Duration::from_secs(600));
        let mut clients = Vec::new();
        let mut guests = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
            guests.push(doorway.accept().await.0);
        }
        guests[0].let_in.stays();
        let mut byte = [0u8];
        let [mut kept, mut oldest, mut other] = <[Guest; 3]>::try_from(guests).unwrap();
        let goes = tokio::spawn(async move { oldest.read_exact(&mut [0u8]).await.unwrap_err().kind() });
        tokio::task::yield_now().await;
        clients.push(TcpStream::connect(address).await.unwrap());
        let (mut fourth, _) = doorway.accept().await;
        assert_eq!(goes.await.unwrap(), ErrorKind::ConnectionAborted);
        for (client, guest) in [(0, &mut kept), (2, &mut other), (3, &mut fourth)] {
            clients[client].write_all(b"x").await.unwrap();
            guest.read_exact(&mut byte).await.unwrap();
        }
    }
}
