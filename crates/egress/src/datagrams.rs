//! The resolver's socket: queries as they come, answers from the address that was asked. Forwards nothing.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cofferdam_confine::datagram;
use tokio::io::Interest;

use crate::dns::{self, Transport};
use crate::event::{Reason, Via};
use crate::layout::DNS_PORT;
use crate::name::Name;
use crate::names::Family;
use crate::rules::Refusal;
use crate::sandbox::{Sandbox, refused, waiting};
use crate::sandbox_sockets::registered;

/// Longest query. Real ones have less than 512 bytes, and those that are longer are cut and refused.
const LONGEST: usize = 4096;

/// Answers until the sandbox ends.
pub async fn serve(sandbox: Arc<Sandbox>, socket: OwnedFd) {
    let socket = match registered(socket) {
        Ok(socket) => socket,
        Err(error) => return sandbox.failed(&format!("the resolver's socket: {error}")),
    };
    let mut buffer = vec![0u8; LONGEST];
    let mut closing = std::pin::pin!(sandbox.closing());
    loop {
        let read = |socket: &OwnedFd| datagram::receive(socket.as_fd(), &mut buffer);
        let came = tokio::select! {
            came = async { sandbox.queries.one().await; socket.async_io(Interest::READABLE, read).await } => came,
            () = &mut closing => break,
        };
        let received = match came {
            Ok(received) => received,
            // A datagram that cannot be answered, or an error of an earlier answer.
            Err(error) => {
                tracing::debug!(%error, "query");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let Some(answer) = dns::answer(&buffer[..received.bytes], Transport::Udp, &mut Asking(&sandbox)) else {
            continue;
        };
        // A client that does not read its answers loses them.
        if let Err(error) = datagram::answer(socket.get_ref().as_fd(), &received, &answer) {
            tracing::debug!(%error, "answer");
        }
    }
    // Nobody reads an answer any more, but a refusal is told.
    let queries = waiting(|| {
        let received = datagram::receive(socket.get_ref().as_fd(), &mut buffer)?;
        Ok(dns::answer(&buffer[..received.bytes], Transport::Udp, &mut Asking(&sandbox)))
    });
    queries.for_each(drop);
}

/// A sandbox that asks.
pub struct Asking<'a>(pub &'a Sandbox);

impl dns::Resolve for Asking<'_> {
    fn address(&mut self, name: &Name, family: Family) -> Result<IpAddr, Refusal> {
        self.0.rules.name(name)?;
        self.0.names().address(name, family).map_err(|full| Refusal {
            reason: Reason::TooManyNames,
            rule: Some("$.network.limits.names".to_owned()),
            detail: Some(full.to_string()),
        })
    }

    fn reverse(&self, address: IpAddr) -> Option<Name> {
        self.0.names().lookup(address).cloned()
    }

    fn refused(&mut self, text: String, refusal: Refusal) {
        let mut event = refused(Via::Dns, None, DNS_PORT, refusal, None);
        (event.host, event.port) = (Some(text), None);
        self.0.teller.tell(event);
    }
}
