//! Accepts the connections of a sandbox's programs: which service each is for follows from the address that it was made
//! to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};

use crate::connect::relay::reset;
use crate::decide::rules::EgressTarget;
use crate::decide::socket_layout::{API_PORT, DNS_PORT, HTTP_PROXY_PORT, INSIDE, SOCKS_PORT};
use crate::report::event::{NetworkEvent, NetworkVia};
use crate::sandbox::EgressSandbox;
use crate::serve::client_connection::ClientConnection;
use crate::serve::dispatch::dispatch;
use crate::sockets::async_fd::drain;

/// Pause after accept(2) failed for want of a resource.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Accepts at one listener until the sandbox ends, and then what is still in the backlog. `redirect`: connections to
/// other ports are redirected to this one.
pub(super) async fn serve(sandbox: Arc<EgressSandbox>, socket: OwnedFd, port: u16, redirect: bool) {
    let listener = match listener(socket) {
        Ok(listener) => listener,
        Err(error) => return sandbox.failed(&format!("the listener of port {port}: {error}")),
    };
    let mut closing = std::pin::pin!(sandbox.closing());
    let mut is_starved = false;
    loop {
        let accepted = tokio::select! {
            accepted = async { sandbox.accepts.one().await; listener.accept().await } => accepted,
            () = &mut closing => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                is_starved = false;
                begin(&sandbox, stream, peer, redirect);
            }
            // The connection waits in the backlog: it is not refused, and the next attempt is for the same one.
            Err(error) if is_exhausted(&error) => {
                if !std::mem::replace(&mut is_starved, true) {
                    sandbox.failed(&format!(
                        "connections wait, since none can be accepted at port {port}: {error}; hint: raise the limit \
                         of descriptors (`ulimit -n`)"
                    ));
                }
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
            // Such as a connection that was reset before it was accepted: later ones are not affected.
            Err(error) => {
                tracing::debug!(%error, port, "accept");
                tokio::task::yield_now().await;
            }
        }
    }
    // The runtime may not have reported these yet.
    match listener.into_std() {
        Ok(listener) => {
            for (stream, peer) in drain(|| listener.accept()) {
                let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                match stream {
                    Ok(stream) => begin(&sandbox, stream, peer, redirect),
                    Err(error) => return sandbox.failed(&format!("a connection at port {port}: {error}")),
                }
            }
        }
        Err(error) => sandbox.failed(&format!("the listener of port {port}: {error}")),
    }
}

fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Whether the process or the host has run out of descriptors or memory.
fn is_exhausted(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Counts an accepted connection, and starts its task.
fn begin(sandbox: &Arc<EgressSandbox>, stream: TcpStream, peer: SocketAddr, redirect: bool) {
    let Ok(local) = stream.local_addr() else { return reset(&stream) };
    let local = if redirect { original_destination(&stream, local) } else { local };
    let destination = sandbox.destination(local);
    let slots = sandbox.limits.connection().and_then(|open| Ok((open, sandbox.descriptors.take()?)));
    let slots = match slots {
        Ok(slots) => slots,
        Err(refusal) => {
            let target = EgressTarget::Address(destination.ip());
            let target = sandbox.named_target(&target).unwrap_or(target);
            let event = NetworkEvent::refused(NetworkVia::Connect, Some(&target), destination.port(), refusal, None);
            sandbox.reporter.report(event); // before the reset, so that the event is there when the program sees it
            return reset(&stream);
        }
    };
    if stream.set_nodelay(true).is_err() {
        return reset(&stream);
    }
    let (ip, port) = (destination.ip(), destination.port());
    let via = match port {
        HTTP_PROXY_PORT if ip == INSIDE => NetworkVia::HttpProxy,
        SOCKS_PORT if ip == INSIDE => NetworkVia::Socks,
        API_PORT if ip == INSIDE && sandbox.api.is_some() => NetworkVia::Api,
        DNS_PORT => NetworkVia::Dns,
        _ => NetworkVia::Connect,
    };
    let client = ClientConnection::new(sandbox, stream, via, peer, destination, slots);
    sandbox.spawn(dispatch(client));
}

/// The address that a redirected connection was made to; for one that was not redirected, where it arrived.
fn original_destination(stream: &TcpStream, local: SocketAddr) -> SocketAddr {
    let is_ipv4 = local.ip().to_canonical().is_ipv4();
    let original = if is_ipv4 {
        sockopt::ip_original_dst(stream).map(SocketAddr::from)
    } else {
        sockopt::ipv6_original_dst(stream).map(SocketAddr::from)
    };
    match original {
        Ok(original) if original.ip() != Ipv4Addr::UNSPECIFIED => original,
        _ => local,
    }
}
