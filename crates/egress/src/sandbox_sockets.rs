//! The descriptors of a sandbox's sockets, as its first process sends them: asynchronously, because it may never do so.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Most descriptors of one letter.
const MOST: usize = 64;

/// Receives as many descriptors as there are to be, in their order. When it is closing, what has come by then is all.
///
/// # Errors
/// The sender is gone, has sent more, or something else.
pub async fn receive(letters: OwnedFd, count: usize, closing: impl Future<Output = ()>) -> io::Result<Vec<OwnedFd>> {
    let letters = registered(letters)?;
    let mut sockets = Vec::with_capacity(count);
    let mut closing = std::pin::pin!(closing);
    let mut last = false;
    while sockets.len() < count {
        let came = match last {
            true => letter(letters.get_ref()),
            false => tokio::select! {
                came = letters.async_io(Interest::READABLE, letter) => came,
                () = &mut closing => {
                    last = true;
                    continue;
                }
            },
        };
        let came = match came {
            Err(e) if last && e.kind() == ErrorKind::WouldBlock => return Ok(sockets),
            came => came?,
        };
        if came.is_empty() && last {
            return Ok(sockets);
        }
        if came.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        sockets.extend(came);
    }
    if sockets.len() > count { Err(ErrorKind::InvalidData.into()) } else { Ok(sockets) }
}

/// A descriptor that the runtime tells of when there is something to read. Whoever reads does not block.
///
/// # Errors
/// epoll(7) does not take it.
#[allow(
    deprecated,
    reason = "an owned descriptor stays the same for as long as it lives: what the new function, which \
                              is unsafe, wants promised"
)]
pub fn registered(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Nonblocking, whatever the socket's own mode: it is shared with whoever gave it.
fn letter(socket: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
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
