//! Control messages to init: its plan with the descriptors that the plan speaks of, and the release.
//!
//! The other end of init's `control.rs`. Decides nothing, and reads nothing.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

use crate::wire::CONTROL_FDS;

/// A pair of control sockets: ours, init's.
///
/// # Errors
/// socketpair(2).
pub fn socket() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Hands a plan over, and its descriptors: the first becomes `fd::FIRST_EXTRA`. Init may not have started to read yet.
///
/// # Errors
/// sendmsg(2): init is gone, or more descriptors are under way than this user may have (`unix(7)`, ETOOMANYREFS).
pub fn plan(to: BorrowedFd<'_>, plan: BorrowedFd<'_>, extra: &[BorrowedFd<'_>]) -> io::Result<()> {
    let all: Vec<BorrowedFd<'_>> = std::iter::once(plan).chain(extra.iter().copied()).collect();
    all.chunks(CONTROL_FDS).try_for_each(|part| send(to, all.len() as u32, part))
}

/// Hands a container's init its own descriptors over, on the socket that it connected to: from 0 on, as many as
/// `fd::INITIAL_COUNT`.
///
/// # Errors
/// sendmsg(2): init is gone.
pub fn descriptors(to: BorrowedFd<'_>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(to, fds.len() as u32, fds)
}

/// Releases init, which waits for it.
///
/// # Errors
/// sendmsg(2): init is gone.
pub fn release(to: BorrowedFd<'_>) -> io::Result<()> {
    send(to, 0, &[])
}

fn send(to: BorrowedFd<'_>, total: u32, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CONTROL_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    loop {
        // NOSIGNAL: a dead init is an error here and no signal to the caller.
        match sendmsg(to, &[IoSlice::new(&total.to_ne_bytes())], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
