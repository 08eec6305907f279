//! First packets of connections that arrive at no listener: attempts on ports that no rule has. The kernel has refused them
//! already; here they are told.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cofferdam_confine::datagram;
use tokio::io::Interest;

use crate::event::{Reason, Via};
use crate::rules::Target;
use crate::sandbox::{Sandbox, refusal, refused, waiting};
use crate::sandbox_sockets::registered;

/// Tells until the sandbox ends.
pub async fn serve(sandbox: Arc<Sandbox>, socket: OwnedFd, ipv6: bool) {
    let socket = match registered(socket) {
        Ok(socket) => socket,
        Err(error) => return sandbox.failed(&format!("the raw socket: {error}")),
    };
    let mut buffer = [0u8; 128];
    let mut closing = std::pin::pin!(sandbox.closing());
    let told = |packet: datagram::Received, buffer: &[u8]| {
        if let Some(port) = port(&buffer[..packet.bytes.min(buffer.len())], ipv6) {
            attempted(&sandbox, packet.to, port);
        }
    };
    loop {
        let read = |socket: &OwnedFd| datagram::receive(socket.as_fd(), &mut buffer);
        let came = tokio::select! {
            // What comes faster is dropped by the kernel; nothing but its event is lost.
            came = async { sandbox.accepts.one().await; socket.async_io(Interest::READABLE, read).await } => came,
            () = &mut closing => break,
        };
        match came {
            Ok(packet) => told(packet, &buffer),
            Err(error) => {
                tracing::debug!(%error, "first packet");
                tokio::task::yield_now().await;
            }
        }
    }
    // What waits when the program has ended; the runtime may not have heard of it yet.
    let packets = waiting(|| {
        let packet = datagram::receive(socket.get_ref().as_fd(), &mut buffer)?;
        told(packet, &buffer);
        Ok(())
    });
    packets.for_each(drop);
}

fn attempted(sandbox: &Sandbox, address: IpAddr, port: u16) {
    if address.is_loopback() || address.is_unspecified() {
        return; // the sandbox's own affair
    }
    let asked = Target::Address(address);
    let (target, why) = match sandbox.meant(&asked) {
        Ok(target) => match sandbox.decide(&target, port) {
            Ok(_) => (target, refusal(Reason::Gateway, "no listener has this port")),
            Err(refusal) => (target, refusal),
        },
        Err(refusal) => (asked, refusal),
    };
    sandbox.teller.tell(refused(Via::Connect, Some(&target), port, why, None));
}

/// Destination port of a TCP packet, which begins with its IP header where that is one of IPv4.
fn port(packet: &[u8], ipv6: bool) -> Option<u16> {
    let header = if ipv6 { 0 } else { usize::from(packet.first()? & 15) * 4 };
    Some(u16::from_be_bytes([*packet.get(header + 2)?, *packet.get(header + 3)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_packet_is_read_whatever_its_length() {
        let mut four = vec![0u8; 40];
        four[0] = 0x46;
        four[26..28].copy_from_slice(&8443u16.to_be_bytes());
        assert_eq!(port(&four, false), Some(8443));
        let six = [0, 0, 0, 22, 0];
        assert_eq!(port(&six, true), Some(22));
        (0..28).for_each(|length| assert_eq!(port(&four[..length], false), None));
        (0..4).for_each(|length| assert_eq!(port(&six[..length], true), None));
    }
}
