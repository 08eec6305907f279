//! First packets of connections that arrive at no listener: attempts on ports that no rule has. The kernel has refused them
//! already; here they are told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;

use crate::event::{Reason, Via};
use crate::letters::registered;
use crate::rules::Target;
use crate::sandbox::{Sandbox, refusal, refused};

const TCP: u8 = 6;

/// Tells until the sandbox ends.
pub async fn serve(sandbox: Arc<Sandbox>, socket: OwnedFd) {
    let socket = match registered(socket) {
        Ok(socket) => socket,
        Err(error) => return sandbox.failed(&format!("the packet socket: {error}")),
    };
    let mut buffer = [0u8; 128];
    loop {
        // What comes faster is dropped by the kernel; nothing but its event is lost.
        sandbox.accepts.one().await;
        let read = |socket: &OwnedFd| Ok(recv(socket, &mut buffer[..], RecvFlags::DONTWAIT)?.0);
        match socket.async_io(Interest::READABLE, read).await {
            Ok(length) => {
                if let Some((address, port)) = attempt(&buffer[..length.min(buffer.len())]) {
                    attempted(&sandbox, address, port);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "first packet");
                tokio::task::yield_now().await;
            }
        }
    }
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

/// Destination of a TCP packet that begins with its IP header.
fn attempt(packet: &[u8]) -> Option<(IpAddr, u16)> {
    let port = |at: usize| Some(u16::from_be_bytes([*packet.get(at + 2)?, *packet.get(at + 3)?]));
    match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&TCP) => {
            let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some((Ipv4Addr::from(address).into(), port(usize::from(packet[0] & 15) * 4)?))
        }
        6 if packet.get(6) == Some(&TCP) => {
            let address: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some((IpAddr::from(Ipv6Addr::from(address)).to_canonical(), port(40)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_destination_of_a_packet_is_read_whatever_its_length() {
        let mut v4 = vec![0u8; 40];
        (v4[0], v4[9]) = (0x46, TCP);
        v4[16..20].copy_from_slice(&[192, 0, 2, 7]);
        v4[26..28].copy_from_slice(&8443u16.to_be_bytes());
        assert_eq!(attempt(&v4), Some((IpAddr::from([192, 0, 2, 7]), 8443)));
        let mut v6 = vec![0u8; 60];
        (v6[0], v6[6], v6[24], v6[25], v6[39]) = (0x60, TCP, 0x20, 1, 9);
        v6[42..44].copy_from_slice(&22u16.to_be_bytes());
        assert_eq!(attempt(&v6), Some(("2001::9".parse().unwrap(), 22)));
        (0..28).for_each(|length| assert_eq!(attempt(&v4[..length]), None));
        (0..44).for_each(|length| assert_eq!(attempt(&v6[..length]), None));
        v4[9] = 17;
        assert_eq!(attempt(&v4), None);
    }
}
