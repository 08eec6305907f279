//! Reports connections to ports that no rule names, by their first packets. The kernel has refused them already.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cofferdam_confine::datagram;
use tokio::io::Interest;

use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::EgressTarget;
use crate::report::event::{NetworkEvent, NetworkVia};
use crate::sandbox::EgressSandbox;
use crate::sockets::async_fd::{drain, readable};

/// Reads the raw socket until the sandbox ends.
pub(super) async fn serve(sandbox: Arc<EgressSandbox>, socket: OwnedFd, ipv6: bool) {
    let socket = match readable(socket) {
        Ok(socket) => socket,
        Err(error) => return sandbox.failed(&format!("the raw socket: {error}")),
    };
    let mut buffer = [0u8; 128];
    let mut closing = std::pin::pin!(sandbox.closing());
    let report = |packet: datagram::ReceivedDatagram, buffer: &[u8]| {
        if let Some(port) = destination_port(&buffer[..packet.bytes.min(buffer.len())], ipv6) {
            report_attempt(&sandbox, packet.to, port);
        }
    };
    loop {
        let read = |socket: &OwnedFd| datagram::receive(socket.as_fd(), &mut buffer);
        let received = tokio::select! {
            // The kernel drops packets that arrive faster; only their events are lost.
            received = async { sandbox.accepts.one().await; socket.async_io(Interest::READABLE, read).await } => received,
            () = &mut closing => break,
        };
        match received {
            Ok(packet) => report(packet, &buffer),
            Err(error) => {
                tracing::debug!(%error, "first packet");
                tokio::task::yield_now().await;
            }
        }
    }
    // What is still queued when the program has ended; the runtime may not have reported it yet.
    let packets = drain(|| {
        let packet = datagram::receive(socket.get_ref().as_fd(), &mut buffer)?;
        report(packet, &buffer);
        Ok(())
    });
    packets.for_each(drop);
}

fn report_attempt(sandbox: &EgressSandbox, address: IpAddr, port: u16) {
    if address.is_loopback() || address.is_unspecified() {
        return; // not an attempt to leave the sandbox
    }
    let address = EgressTarget::Address(address);
    let (target, why) = match sandbox.named_target(&address) {
        Ok(target) => match sandbox.decide(&target, port) {
            Ok(_) => (target, EgressRefusal::because(NetworkReason::Gateway, "no listener has this port")),
            Err(refusal) => (target, refusal),
        },
        Err(refusal) => (address, refusal),
    };
    sandbox.reporter.report(NetworkEvent::refused(NetworkVia::Connect, Some(&target), port, why, None));
}

/// The destination port of a TCP packet, which begins with its IP header if it is one of IPv4.
fn destination_port(packet: &[u8], ipv6: bool) -> Option<u16> {
    let header = if ipv6 { 0 } else { usize::from(packet.first()? & 15) * 4 };
    Some(u16::from_be_bytes([*packet.get(header + 2)?, *packet.get(header + 3)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_port_is_read_from_packets_of_any_length() {
        let mut four = vec![0u8; 40];
        four[0] = 0x46;
        four[26..28].copy_from_slice(&8443u16.to_be_bytes());
        assert_eq!(destination_port(&four, false), Some(8443));
        let six = [0, 0, 0, 22, 0];
        assert_eq!(destination_port(&six, true), Some(22));
        (0..28).for_each(|length| assert_eq!(destination_port(&four[..length], false), None));
        (0..4).for_each(|length| assert_eq!(destination_port(&six[..length], true), None));
    }
}
