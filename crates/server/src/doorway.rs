//! How many connections there are, and how long one may keep its place before a request of it was let in: who has no token
//! can take no more than that. Knows nothing of what is said on them, but that.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
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
}

impl Doorway {
    /// In front of a listener.
    pub fn new(listener: TcpListener) -> Doorway {
        Doorway { listener, places: Arc::new(Semaphore::new(MOST)), first: FIRST }
    }
}

impl Listener for Doorway {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("the places are never closed");
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let silent = Some(Box::pin(sleep(self.first)));
        (Guest { stream, silent, let_in: LetIn::default(), _place: place }, address)
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether a request of a connection was let in.
#[derive(Debug, Clone, Default)]
pub struct LetIn(Arc<AtomicBool>);

impl LetIn {
    /// It was, and the connection stays for as long as both sides like.
    pub fn stays(&self) {
        self.0.store(true, Ordering::Relaxed);
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
        if self.let_in.0.load(Ordering::Relaxed) {
            self.silent = None;
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
        let doorway = Doorway { listener, places: Arc::new(Semaphore::new(places)), first: Duration::from_millis(50) };
        (doorway, address)
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
        assert!(tokio::time::timeout(Duration::from_millis(100), doorway.accept()).await.is_err());
        drop(first);
        doorway.accept().await;
    }
}
