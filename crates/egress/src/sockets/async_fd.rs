//! Descriptors that the runtime waits for, and what is still queued at one when no more is waited for.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How many queued items are read at the end: a bound for a program that goes on sending.
const MOST_DRAINED: usize = 4096;

/// Registers a descriptor with the runtime for reading. Readers must not block.
///
/// # Errors
/// epoll(7) does not accept it.
#[allow(
    deprecated,
    reason = "an owned descriptor stays the same for as long as it lives: what the new function, which \
                              is unsafe, wants promised"
)]
pub(crate) fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// What is queued at a non-blocking socket, whether or not the runtime has reported it yet. Items that fail are
/// skipped.
pub(crate) fn drain<T>(mut next: impl FnMut() -> io::Result<T>) -> impl Iterator<Item = T> {
    let queued = move || Some(next()).filter(|item| !matches!(item, Err(e) if e.kind() == io::ErrorKind::WouldBlock));
    std::iter::from_fn(queued).take(MOST_DRAINED).filter_map(Result::ok)
}
