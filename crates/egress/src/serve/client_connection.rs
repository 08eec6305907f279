//! One connection that a program made: its stream, its place among the sandbox's connections, and the events about it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;

use crate::connect::poll_io::{self, Turn};
use crate::connect::relay::{Activity, reset};
use crate::decide::refusal::Refusal;
use crate::decide::rules::Target;
use crate::http::{GatewayInterface, Io};
use crate::limits::OpenSlot;
use crate::report::event::{Event, Kind, Via};
use crate::sandbox::{Sandbox, Undecided};

/// A program's connection.
pub(super) struct ClientConnection {
    /// The sandbox of the program.
    pub sandbox: Arc<Sandbox>,
    /// Its stream, which nothing else reads or writes.
    pub stream: Arc<TcpStream>,
    /// The service that it was made to.
    pub via: Via,
    /// The address that it was made to.
    pub destination: SocketAddr,
    /// When bytes last moved on it.
    pub activity: Activity,
    number: u64,
    peer: SocketAddr,
    this: Weak<ClientConnection>,
    /// Until its first event is reported.
    undecided: Mutex<Option<Undecided>>,
    _slots: (OpenSlot, (OpenSlot, OpenSlot)),
}

impl ClientConnection {
    /// A connection that was just accepted, with its place among the sandbox's connections and its descriptor.
    pub(super) fn new(
        sandbox: &Arc<Sandbox>,
        stream: TcpStream,
        via: Via,
        peer: SocketAddr,
        destination: SocketAddr,
        slots: (OpenSlot, (OpenSlot, OpenSlot)),
    ) -> Arc<ClientConnection> {
        Arc::new_cyclic(|this| ClientConnection {
            sandbox: Arc::clone(sandbox),
            stream: Arc::new(stream),
            via,
            destination,
            activity: Activity::new(),
            number: sandbox.next_connection_number(),
            peer,
            this: Weak::clone(this),
            undecided: Mutex::new(Some(Undecided::new(sandbox))),
            _slots: slots,
        })
    }

    /// Another reference to it; none when the last one is being dropped.
    pub(super) fn upgrade(&self) -> Option<Arc<ClientConnection>> {
        self.this.upgrade()
    }

    /// The gateway as `crate::http` sees it.
    pub(super) fn interface(self: &Arc<ClientConnection>) -> Arc<dyn GatewayInterface> {
        Arc::clone(self) as Arc<dyn GatewayInterface>
    }

    /// The program's side as a stream.
    pub(super) fn io(self: &Arc<ClientConnection>) -> Io {
        Box::new(ClientStream { client: Arc::clone(self), turn: Turn::default() })
    }

    /// Reads once into `buffer`, with room for `room` bytes; returns false at the end of the stream.
    ///
    /// # Errors
    /// The stream cannot be read any more.
    pub(super) async fn read_more(&self, buffer: &mut BytesMut, room: usize) -> io::Result<bool> {
        loop {
            consume_budget().await; // `readable` takes none of it
            self.stream.readable().await?;
            buffer.reserve(room);
            match self.stream.try_read_buf(buffer) {
                Ok(n) => {
                    self.activity.touch();
                    return Ok(n > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reports a refusal, with the process if it can be found, and resets the connection.
    pub(super) fn refuse(&self, target: Option<&Target>, port: u16, refusal: Refusal) {
        self.report(Event::refused(self.via, target, port, refusal, None));
        reset(&self.stream);
    }

    /// Reports an event of this connection.
    pub(super) fn report(&self, mut event: Event) {
        event.connection = self.number;
        event.via = self.via;
        if event.kind == Kind::Refused && event.pid.is_none() {
            event.pid = self.sandbox.process(self.peer, self.destination);
        }
        self.sandbox.reporter.report(event);
        drop(self.undecided.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The program's side as a stream.
struct ClientStream {
    client: Arc<ClientConnection>,
    turn: Turn,
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.turn.poll(context));
        let moved = ready!(this.turn.poll_read(&this.client.stream, context, buffer, usize::MAX));
        self.client.activity.touch();
        Poll::Ready(moved.map(drop))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let moved = ready!(poll_io::poll_write(&self.client.stream, context, bytes));
        self.client.activity.touch();
        Poll::Ready(moved)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_io::shutdown(&self.client.stream)
    }
}
