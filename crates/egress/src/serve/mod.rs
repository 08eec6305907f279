//! Serves one sandbox: what arrives at the sockets of its network namespace.
//!
//! ```text
//! init ─ descriptors ─▶ start ─┬▶ listener ─▶ ClientConnection ─▶ dispatch ─┬▶ captured ─▶ UpstreamConnection
//!                              │                                            ├▶ socks_proxy ─▶ captured
//!                              │                                            ├▶ HTTP proxy, API (crate::http)
//!                              │                                            └▶ resolver, by TCP
//!                              ├▶ resolver         queries by UDP
//!                              └▶ refused_packets  what the kernel refused, to be reported
//! ```

mod captured;
mod client_connection;
mod dispatch;
mod http_interface;
mod listener;
mod refused_packets;
mod resolver;
mod socks_proxy;
mod upstream_connection;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::decide::socket_layout::LayoutSocket;
use crate::sandbox::{EgressSandbox, Undecided};
use crate::sockets::receive::receive;

/// How often counted repeats are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Receives the sockets of a sandbox's namespace from `control`, in the order of its layout, and serves them until the
/// sandbox ends. Returns at once.
pub(crate) fn start(sandbox: &Arc<EgressSandbox>, control: OwnedFd) {
    let undecided = Undecided::new(sandbox);
    let receiver = Arc::clone(sandbox);
    sandbox.spawn(async move {
        let _undecided = undecided;
        match receive(control, receiver.layout.sockets.len(), receiver.closing()).await {
            Ok(sockets) => {
                for (purpose, socket) in receiver.layout.sockets.iter().zip(sockets) {
                    serve_socket(&receiver, *purpose, socket);
                }
            }
            Err(error) => receiver.failed(&format!("the sandbox's sockets: {error}")),
        }
    });
    let ticker = Arc::clone(sandbox);
    sandbox.spawn(async move {
        loop {
            tokio::time::sleep(REPORT_INTERVAL).await;
            ticker.reporter.tick();
        }
    });
}

fn serve_socket(sandbox: &Arc<EgressSandbox>, purpose: LayoutSocket, socket: OwnedFd) {
    let of = Arc::clone(sandbox);
    match purpose {
        LayoutSocket::Resolver => sandbox.spawn_socket_task(resolver::serve_udp(of, socket)),
        LayoutSocket::Listener(port) => sandbox.spawn_socket_task(listener::serve(of, socket, port, false)),
        LayoutSocket::Redirect(port) => sandbox.spawn_socket_task(listener::serve(of, socket, port, true)),
        LayoutSocket::Attempts { ipv6 } => sandbox.spawn_socket_task(refused_packets::serve(of, socket, ipv6)),
        LayoutSocket::Inspector => sandbox.set_inspector(socket),
    }
}
