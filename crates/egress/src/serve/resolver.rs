//! The sandbox's DNS server: queries by UDP and TCP, answered from the address that was asked. Forwards nothing.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::BytesMut;
use cofferdam_confine::datagram;
use tokio::io::Interest;

use crate::connect::relay::write_all;
use crate::decide::dns::{self, Transport};
use crate::decide::host_name::Name;
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::socket_layout::DNS_PORT;
use crate::decide::synthetic_addresses::Family;
use crate::report::event::{NetworkEvent, NetworkVia};
use crate::sandbox::EgressSandbox;
use crate::serve::client_connection::ClientConnection;
use crate::sockets::async_fd::{drain, readable};

/// Longest query. Real ones have less than 512 bytes; longer ones are truncated and refused.
const LONGEST: usize = 4096;
/// Most queries of one TCP connection.
const QUERIES: usize = 256;
/// Room for what is read at once by TCP.
const READ: usize = 1024;

/// Answers datagrams until the sandbox ends.
pub(super) async fn serve_udp(sandbox: Arc<EgressSandbox>, socket: OwnedFd) {
    let socket = match readable(socket) {
        Ok(socket) => socket,
        Err(error) => return sandbox.failed(&format!("the resolver's socket: {error}")),
    };
    let mut buffer = vec![0u8; LONGEST];
    let mut closing = std::pin::pin!(sandbox.closing());
    loop {
        let read = |socket: &OwnedFd| datagram::receive(socket.as_fd(), &mut buffer);
        let received = tokio::select! {
            received = async { sandbox.queries.one().await; socket.async_io(Interest::READABLE, read).await } => received,
            () = &mut closing => break,
        };
        let received = match received {
            Ok(received) => received,
            // A datagram that cannot be answered, or an error of an earlier answer.
            Err(error) => {
                tracing::debug!(%error, "query");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let Some(answer) = dns::answer(&buffer[..received.bytes], Transport::Udp, &mut SandboxZone(&sandbox)) else {
            continue;
        };
        // A client that does not read its answers loses them.
        if let Err(error) = datagram::answer(socket.get_ref().as_fd(), &received, &answer) {
            tracing::debug!(%error, "answer");
        }
    }
    // No program is left to read an answer, but refusals are reported.
    let queries = drain(|| {
        let received = datagram::receive(socket.get_ref().as_fd(), &mut buffer)?;
        Ok(dns::answer(&buffer[..received.bytes], Transport::Udp, &mut SandboxZone(&sandbox)))
    });
    queries.for_each(drop);
}

/// Answers the queries of a TCP connection, in which each message is preceded by its length.
pub(super) async fn serve_tcp(client: Arc<ClientConnection>) {
    let mut buffer = BytesMut::new();
    for _ in 0..QUERIES {
        let read = tokio::time::timeout(client.sandbox.settings.greeting, async {
            loop {
                if let Some((_, taken)) = dns::framed(&buffer) {
                    return Some(buffer.split_to(taken));
                }
                if !client.read_more(&mut buffer, READ).await.unwrap_or(false) {
                    return None;
                }
            }
        });
        let Ok(Some(query)) = read.await else { return };
        client.sandbox.queries.one().await;
        let answer = dns::answer(&query[2..], Transport::Tcp, &mut SandboxZone(&client.sandbox));
        let Some(answer) = answer.map(|answer| dns::frame(&answer)) else { return };
        if write_all(&client.stream, &answer, &client.activity).await.is_err() {
            return;
        }
    }
}

/// The names that a sandbox's rules allow.
struct SandboxZone<'a>(&'a EgressSandbox);

impl dns::Zone for SandboxZone<'_> {
    fn address(&mut self, name: &Name, family: Family) -> Result<IpAddr, EgressRefusal> {
        self.0.rules.name(name)?;
        self.0.names().address(name, family).map_err(|exhausted| {
            EgressRefusal::by_rule(NetworkReason::TooManyNames, "$.network.limits.names".to_owned())
                .detail(exhausted.to_string())
        })
    }

    fn reverse(&self, address: IpAddr) -> Option<Name> {
        self.0.names().lookup(address).cloned()
    }

    fn refused(&mut self, text: String, refusal: EgressRefusal) {
        let mut event = NetworkEvent::refused(NetworkVia::Dns, None, DNS_PORT, refusal, None);
        (event.host, event.port) = (Some(text), None);
        self.0.reporter.report(event);
    }
}
