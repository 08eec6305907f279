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

use crate::connect::poll_io::{self, ReadBudget};
use crate::connect::relay::{Activity, reset};
use crate::decide::refusal::EgressRefusal;
use crate::decide::rules::EgressTarget;
use crate::http::{BoxedStream, GatewayInterface};
use crate::limits::OpenSlot;
use crate::report::event::{NetworkEvent, NetworkKind, NetworkVia};
use crate::sandbox::{EgressSandbox, Undecided};

/// A program's connection.
pub(super) struct ClientConnection {
    /// The sandbox of the program.
    pub sandbox: Arc<EgressSandbox>,
    /// Its stream, which nothing else reads or writes.
    pub stream: Arc<TcpStream>,
    /// The service that it was made to.
    pub via: NetworkVia,
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
        sandbox: &Arc<EgressSandbox>,
        stream: TcpStream,
        via: NetworkVia,
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
    pub(super) fn io(self: &Arc<ClientConnection>) -> BoxedStream {
        Box::new(ClientStream { client: Arc::clone(self), turn: ReadBudget::default() })
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
    pub(super) fn refuse(&self, target: Option<&EgressTarget>, port: u16, refusal: EgressRefusal) {
        self.report(NetworkEvent::refused(self.via, target, port, refusal, None));
        reset(&self.stream);
    }

    /// Whether no event of it was reported.
    pub(super) fn is_undecided(&self) -> bool {
        self.undecided.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Reports an event of this connection.
    pub(super) fn report(&self, mut event: NetworkEvent) {
        event.connection = self.number;
        event.via = self.via;
        if event.kind == NetworkKind::Refused && event.pid.is_none() {
            event.pid = self.sandbox.process(self.peer, self.destination);
        }
        self.sandbox.reporter.report(event);
        drop(self.undecided.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The program's side as a stream.
struct ClientStream {
    client: Arc<ClientConnection>,
    turn: ReadBudget,
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
