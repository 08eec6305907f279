//! Connections as they come in: where each was made to, and so what it is for.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};

use crate::client::Client;
use crate::event::{Reason, Via};
use crate::layout::{API_PORT, DNS_PORT, HTTP_PROXY_PORT, INSIDE, SOCKS_PORT};
use crate::relay::reset;
use crate::rules::Target;
use crate::sandbox::{Sandbox, refusal, refused, waiting};

/// How long nothing is accepted after the process has run out of descriptors.
const STARVED: Duration = Duration::from_millis(50);

/// Accepts at one listener until the sandbox ends, and then what waits there.
pub async fn serve(sandbox: Arc<Sandbox>, socket: OwnedFd, port: u16, redirect: bool) {
    let listener = match listener(socket) {
        Ok(listener) => listener,
        Err(error) => return sandbox.failed(&format!("the listener of port {port}: {error}")),
    };
    let mut closing = std::pin::pin!(sandbox.closing());
    loop {
        let came = tokio::select! {
            came = async { sandbox.accepts.one().await; listener.accept().await } => came,
            () = &mut closing => break,
        };
        match came {
            Ok((stream, peer)) => arrived(&sandbox, stream, peer, redirect),
            Err(error) if starved(&error) => {
                let refusal = refusal(Reason::TooManyConnections, "this process may open no more descriptors");
                sandbox.teller.tell(refused(Via::Connect, None, port, refusal, None));
                tokio::time::sleep(STARVED).await;
            }
            // The connection was gone before it was accepted, or the like: the next one is another matter.
            Err(error) => {
                tracing::debug!(%error, port, "accept");
                tokio::task::yield_now().await;
            }
        }
    }
    // The runtime may not have heard of them yet.
    match listener.into_std() {
        Ok(listener) => {
            for (stream, peer) in waiting(|| listener.accept()) {
                let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                match stream {
                    Ok(stream) => arrived(&sandbox, stream, peer, redirect),
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

fn starved(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn arrived(sandbox: &Arc<Sandbox>, stream: TcpStream, peer: SocketAddr, redirect: bool) {
    let Ok(local) = stream.local_addr() else { return reset(&stream) };
    let local = if redirect { original(&stream, local) } else { local };
    let destination = sandbox.destination(local);
    let open = sandbox.limits.connection().and_then(|open| Ok((open, sandbox.descriptors.take()?)));
    let open = match open {
        Ok(open) => open,
        Err(refusal) => {
            let target = Target::Address(destination.ip());
            let target = sandbox.meant(&target).unwrap_or(target);
            let event = refused(Via::Connect, Some(&target), destination.port(), refusal, None);
            sandbox.teller.tell(event); // first: who sees the reset can be told why
            return reset(&stream);
        }
    };
    if stream.set_nodelay(true).is_err() {
        return reset(&stream);
    }
    let (ip, port) = (destination.ip(), destination.port());
    let via = match port {
        HTTP_PROXY_PORT if ip == INSIDE => Via::HttpProxy,
        SOCKS_PORT if ip == INSIDE => Via::Socks,
        API_PORT if ip == INSIDE && sandbox.api.is_some() => Via::Api,
        DNS_PORT => Via::Dns,
        _ => Via::Connect,
    };
    let client = Client::new(sandbox, stream, via, peer, destination, open);
    sandbox.spawn(client.serve());
}

/// Where a redirected connection was made to. What was not redirected was made to where it arrived.
fn original(stream: &TcpStream, local: SocketAddr) -> SocketAddr {
    let mapped = local.ip().to_canonical().is_ipv4();
    let asked = if mapped {
        sockopt::ip_original_dst(stream).map(SocketAddr::from)
    } else {
        sockopt::ipv6_original_dst(stream).map(SocketAddr::from)
    };
    match asked {
        Ok(original) if original.ip() != Ipv4Addr::UNSPECIFIED => original,
        _ => local,
    }
}
