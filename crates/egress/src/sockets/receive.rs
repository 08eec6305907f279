//! Receives the descriptors of a sandbox's sockets from its init, as `SCM_RIGHTS` control messages: asynchronously,
//! because init may never send them.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;

use crate::sockets::async_fd::readable;

/// Most descriptors of one message.
const MOST: usize = 64;

/// Receives `count` descriptors, in the order in which they were sent. Once `closing` is ready, returns those that have
/// been sent by then.
///
/// # Errors
/// The sender is gone, has sent more, or recvmsg(2) fails.
pub(crate) async fn receive(
    control: OwnedFd,
    count: usize,
    closing: impl Future<Output = ()>,
) -> io::Result<Vec<OwnedFd>> {
    let control = readable(control)?;
    let mut sockets = Vec::with_capacity(count);
    let mut closing = std::pin::pin!(closing);
    let mut is_closing = false;
    while sockets.len() < count {
        let received = match is_closing {
            true => receive_message(control.get_ref()),
            false => tokio::select! {
                received = control.async_io(Interest::READABLE, receive_message) => received,
                () = &mut closing => {
                    is_closing = true;
                    continue;
                }
            },
        };
        let received = match received {
            Err(e) if is_closing && e.kind() == ErrorKind::WouldBlock => return Ok(sockets),
            received => received?,
        };
        if received.is_empty() && is_closing {
            return Ok(sockets);
        }
        if received.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        sockets.extend(received);
    }
    if sockets.len() > count { Err(ErrorKind::InvalidData.into()) } else { Ok(sockets) }
}

/// Non-blocking whatever the socket's own mode, which its sender shares.
fn receive_message(socket: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    let mut bytes = [0u8; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(fds)
}
