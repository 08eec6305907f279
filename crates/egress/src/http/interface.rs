//! What this module needs of the gateway: decisions, connections, a receiver of events. Decides nothing itself.

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::decide::refusal::EgressRefusal;
use crate::decide::rules::{EgressTarget, Grant};
use crate::report::event::{NetworkEvent, NetworkVia};

/// Both directions of a connection.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The value itself, to be downcast.
    fn any(self: Box<Self>) -> Box<dyn Any + Send>;
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for T {
    fn any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// Any connection.
pub type BoxedStream = Box<dyn ByteStream>;

/// A connection that is being made.
pub type Dial = Pin<Box<dyn Future<Output = Result<Dialed, EgressRefusal>> + Send>>;

/// A tunnel's connection to upstream that is being made.
pub type TunnelDial = Pin<Box<dyn Future<Output = Result<Tunnel, EgressRefusal>> + Send>>;

/// Serves a tunnel whose response has been sent, as if the client had connected to its target itself: its first bytes are
/// checked. Takes the client that was passed to [`crate::http::proxy`], and bytes of the tunnel that were read already.
pub type Tunnel = Box<dyn FnOnce(BoxedStream, Bytes) -> BoxedTask + Send>;

/// A boxed future without a result.
pub type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection to upstream, resolved, checked and pinned.
pub struct Dialed {
    /// Both directions. Dropping it ends the connection; the gateway counts its bytes and reports its end.
    pub io: BoxedStream,
    /// The address that it leads to; none if an upstream proxy resolved the name.
    pub address: Option<IpAddr>,
}

/// The gateway, as one client connection of one sandbox sees it: the implementation knows the sandbox, its rules and
/// limits, the connection's number and the process, and fills these into events.
///
/// This module reports refusals and failures of requests through [`GatewayInterface::event`], those that `decide` and
/// `dial` return included; the implementation reports when connections begin and end (`allowed`, `closed`).
pub trait GatewayInterface: Send + Sync + 'static {
    /// Whether this may be connected to. Pure, and reports nothing.
    fn decide(&self, target: &EgressTarget, port: u16) -> Result<Grant, EgressRefusal>;

    /// Whether this request may be made on a connection that `grant` allows. `path` begins with `/` and has no query,
    /// or is `*` with the method OPTIONS. Pure.
    fn request(&self, grant: &Grant, method: &str, path: &str) -> Result<(), EgressRefusal>;

    /// Connects to what `decide` allowed: resolves, checks the address, pins it, counts against the limits. The
    /// gateway's own time limit applies.
    fn dial(&self, target: &EgressTarget, port: u16, grant: &Grant) -> Dial;

    /// Connects as [`GatewayInterface::dial`] does, for a CONNECT tunnel, so that the response says whether there is a
    /// connection.
    fn dial_tunnel(&self, target: &EgressTarget, port: u16, grant: &Grant) -> TunnelDial;

    /// Reports an event, after filling in the connection, the process and the time. Does not block.
    fn event(&self, event: NetworkEvent);
}

/// A client's connection to a known destination, whose first bytes look like HTTP.
pub struct CapturedHttp {
    /// The host or address that the program connected to.
    pub target: EgressTarget,
    /// The port.
    pub port: u16,
    /// What allowed it.
    pub grant: Grant,
    /// The service that the program used.
    pub via: NetworkVia,
    /// The connection to upstream, which has been started already; [`GatewayInterface::dial`] makes another if upstream
    /// closes it between two requests.
    pub upstream: Dial,
}

/// A stream that begins with bytes which have been read from it already.
pub struct Replay<S> {
    first: Bytes,
    rest: S,
}

impl<S> Replay<S> {
    /// `first`, and then the bytes of `rest`.
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
