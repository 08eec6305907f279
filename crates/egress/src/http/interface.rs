//! What HTTP needs of the gateway: decisions, connections, a place for events. Decides nothing itself.

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::decide::refusal::Refusal;
use crate::decide::rules::{Grant, Target};
use crate::report::event::{Event, Via};

/// Both directions of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The value itself, for who knows its type and can do more with it.
    fn any(self: Box<Self>) -> Box<dyn Any + Send>;
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {
    fn any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// A connection of whatever kind.
pub type Io = Box<dyn Stream>;

/// A connection that is being made.
pub type Dial = Pin<Box<dyn Future<Output = Result<Dialed, Refusal>> + Send>>;

/// Something that goes on until it ends.
pub type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection to upstream, resolved, checked and pinned.
pub struct Dialed {
    /// Both directions. Dropping it ends the connection; the gateway counts its bytes and tells of its end.
    pub io: Io,
    /// Where it goes; none where an upstream proxy resolved the name.
    pub address: Option<IpAddr>,
}

/// The gateway, as one client connection of one sandbox sees it: the implementation knows the sandbox, its rules and
/// limits, the connection's number and the process, and fills these into events.
///
/// Refusals and failures of requests are told by this module through [`GatewayInterface::event`], those that `decide`
/// and `dial` return as well; connections that begin and end (`allowed`, `closed`) are told by the implementation.
pub trait GatewayInterface: Send + Sync + 'static {
    /// May this be connected to? Pure, and tells nobody.
    fn decide(&self, target: &Target, port: u16) -> Result<Grant, Refusal>;

    /// May this request be made to where `grant` leads? `path` begins with `/` and has no query,
    /// or is `*` with the method OPTIONS. Pure.
    fn request(&self, grant: &Grant, method: &str, path: &str) -> Result<(), Refusal>;

    /// Connects to what `decide` allowed: resolves, checks the address, pins it, counts against the limits. The future
    /// ends by itself, in an error after the gateway's own time limit.
    fn dial(&self, target: &Target, port: u16, grant: &Grant) -> Dial;

    /// Goes on with a CONNECT tunnel whose answer has been sent, as if the client had connected to `target` itself: its
    /// first bytes are looked at. `client` is the very value that [`crate::http::proxy`] was given; `first` are bytes
    /// of the tunnel that were read already.
    fn tunnel(self: Arc<Self>, client: Io, first: Bytes, target: Target, port: u16, grant: Grant) -> BoxedTask;

    /// Records what happened, after filling in the connection, the process and the time. Does not block.
    fn event(&self, event: Event);
}

/// A client's connection whose destination is settled and whose first bytes look like HTTP.
pub struct CapturedHttp {
    /// Where the program connected to.
    pub target: Target,
    /// On which port.
    pub port: u16,
    /// What allowed it.
    pub grant: Grant,
    /// How it came here.
    pub via: Via,
    /// The connection to upstream, begun already; another is made by [`GatewayInterface::dial`] when upstream has
    /// closed it between two requests.
    pub upstream: Dial,
}

/// A stream of which some bytes have been read already: they come first, again.
pub struct Replay<S> {
    first: Bytes,
    rest: S,
}

impl<S> Replay<S> {
    /// `first`, then what `rest` has to say.
    pub fn new(first: impl Into<Bytes>, rest: S) -> Replay<S> {
        Replay { first: first.into(), rest }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Replay<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.rest).poll_read(context, buffer);
        }
        let length = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Replay<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.rest.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_shutdown(context)
    }
}
