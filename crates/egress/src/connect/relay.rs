//! Copies bytes between a program and upstream without inspecting them: counts and limits them, and passes half-closes
//! and resets on. Knows no rules.
//!
//! ```text
//! from ─ read ─▶ 256 KiB, borrowed while bytes are in it ─ write ─▶ to
//! from ─ read ─▶ 16 KiB, if all of those are in use       ─ write ─▶ to
//! ```
//!
//! It copies instead of using splice(2): on the sandbox's loopback a large write leaves in packets several times as
//! long as those that splice(2) would send, which saves more than the two copies cost (docs/performance.md).

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;

use crate::decide::refusal::EgressRefusal;
use crate::limits::{Account, Allowance, Direction};

/// Size of a large buffer, in bytes.
const LARGE_BYTES: usize = 256 * 1024;
/// Size of the buffer that is used if no large one is free, in bytes.
const SMALL_BYTES: usize = 16 * 1024;

/// How a relayed connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RelayEnd {
    /// The program reset the connection, ended it in the middle of a greeting, or does not accept bytes any more.
    ClientReset,
    /// The same of upstream.
    UpstreamReset,
    /// No bytes moved for the idle time.
    Idle,
    /// A limit of bytes was reached.
    Limit(EgressRefusal),
}

/// The large buffers of a gateway: a bounded number, and no more than half of them for one sandbox, whose programs may
/// occupy them for long by not reading.
#[derive(Debug)]
pub(crate) struct BufferPool {
    all: Arc<Quota>,
    one: Quota,
}

/// The number of buffers in use, its limit, and the buffers that are free.
#[derive(Debug)]
struct Quota {
    idle: Mutex<Vec<Box<[u8]>>>,
    count: AtomicUsize,
    most: usize,
}

impl Quota {
    fn new(most: usize) -> Quota {
        Quota { idle: Mutex::default(), count: AtomicUsize::new(0), most }
    }

    fn take_one(&self) -> bool {
        let change = |now: usize| (now < self.most).then_some(now + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }
}

/// A borrowed buffer. The bytes of an earlier user never leave it: only what was read into it is written.
struct Buffer<'b> {
    buffers: &'b BufferPool,
    bytes: Box<[u8]>,
}

impl BufferPool {
    /// A pool of at most `most` buffers, which are allocated when they are needed.
    pub(crate) fn new(most: usize) -> BufferPool {
        BufferPool { all: Arc::new(Quota::new(most)), one: Quota::new(most) }
    }

    /// One sandbox's share.
    pub(crate) fn share(&self) -> BufferPool {
        BufferPool { all: Arc::clone(&self.all), one: Quota::new(self.all.most.div_ceil(2)) }
    }

    fn borrow(&self) -> Option<Buffer<'_>> {
        if !self.one.take_one() {
            return None;
        }
        if !self.all.take_one() {
            self.one.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let idle = self.all.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = idle.unwrap_or_else(|| vec![0; LARGE_BYTES].into_boxed_slice());
        Some(Buffer { buffers: self, bytes })
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // Returned before it counts as free, so that there are never more of them than `most`.
        let bytes = std::mem::take(&mut self.bytes);
        self.buffers.all.idle.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        self.buffers.all.count.fetch_sub(1, Ordering::Relaxed);
        self.buffers.one.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The time when bytes last moved on a connection.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    since: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Activity {
    /// Active now.
    pub(crate) fn new() -> Activity {
        Activity { since: Instant::now(), last_ms: Arc::default() }
    }

    /// Marks it as active now.
    pub(crate) fn touch(&self) {
        self.last_ms.store(self.since.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns when it has been idle for this time.
    pub(crate) async fn idle(&self, time: Duration) {
        loop {
            let last = self.since + Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let left = time.saturating_sub(last.elapsed());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

impl Default for Activity {
    fn default() -> Activity {
        Activity::new()
    }
}

fn source_gone(direction: Direction) -> RelayEnd {
    match direction {
        Direction::Up => RelayEnd::ClientReset,
        Direction::Down => RelayEnd::UpstreamReset,
    }
}

fn sink_gone(direction: Direction) -> RelayEnd {
    match direction {
        Direction::Up => RelayEnd::UpstreamReset,
        Direction::Down => RelayEnd::ClientReset,
    }
}

/// Copies bytes in one direction until `from` ends, and then shuts down the sending side of `to`. `look` is called on
/// bytes before they are written.
///
/// # Errors
/// How the connection ended instead.
pub(crate) async fn one_way(
    from: &TcpStream,
    to: &TcpStream,
    direction: Direction,
    account: &Account,
    activity: &Activity,
    buffers: &BufferPool,
    look: impl Fn(&[u8]),
) -> Result<(), RelayEnd> {
    loop {
        // Two peers that are always ready would keep the thread: `readable` and `try_read` take nothing of the budget.
        consume_budget().await;
        from.readable().await.map_err(|_| source_gone(direction))?;
        let reserved = match account.reserve(direction, LARGE_BYTES) {
            Allowance::Bytes(bytes) => bytes,
            Allowance::Wait(time) => {
                // Waiting for bandwidth is not idleness.
                activity.touch();
                tokio::time::sleep(time).await;
                continue;
            }
            Allowance::Never(refusal) => match ended(from) {
                Ok(true) => break,
                Ok(false) => return Err(RelayEnd::Limit(refusal)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => return Err(source_gone(direction)),
            },
        };
        // A buffer is borrowed only while there are bytes in it: a connection that waits has none.
        let (mut large, mut small) = (buffers.borrow(), Vec::new());
        let buffer = match &mut large {
            Some(large) => &mut large.bytes[..],
            None => {
                small.resize(SMALL_BYTES, 0);
                &mut small[..]
            }
        };
        match take_once(from, direction, buffer, account, reserved) {
            Ok(0) => break,
            Ok(taken) => {
                activity.touch();
                look(&buffer[..taken]);
                write_all(to, &buffer[..taken], activity).await.map_err(|_| sink_gone(direction))?;
            }
            Err(MoveStop::Again) => {}
            Err(MoveStop::End(end)) => return Err(end),
        }
    }
    // A peer that is gone already needs no shutdown.
    if let Err(error) = rustix::net::shutdown(to.as_fd(), rustix::net::Shutdown::Write)
        && error != Errno::NOTCONN
    {
        return Err(sink_gone(direction));
    }
    Ok(())
}

enum MoveStop {
    Again,
    End(RelayEnd),
}

/// Whether the stream is at its end.
///
/// # Errors
/// `WouldBlock`: not known yet; or recv(2) fails.
fn ended(stream: &TcpStream) -> io::Result<bool> {
    stream.try_io(Interest::READABLE, || {
        let mut byte = [0u8; 1];
        Ok(recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0 == 0)
    })
}

/// Reads once, and counts what it has read.
fn take_once(
    from: &TcpStream,
    direction: Direction,
    buffer: &mut [u8],
    account: &Account,
    reserved: usize,
) -> Result<usize, MoveStop> {
    let most = buffer.len().min(reserved);
    let taken = from.try_read(&mut buffer[..most]);
    account.settle(direction, reserved, *taken.as_ref().unwrap_or(&0));
    taken.map_err(|error| stopped(&error, direction))
}

fn stopped(error: &io::Error, direction: Direction) -> MoveStop {
    match error.kind() {
        ErrorKind::WouldBlock => MoveStop::Again,
        _ => MoveStop::End(source_gone(direction)),
    }
}

/// Writes all of `bytes`.
///
/// # Errors
/// The stream cannot be written to any more.
pub(crate) async fn write_all(to: &TcpStream, mut bytes: &[u8], activity: &Activity) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                activity.touch();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Resets a connection at once, even if a forked child of this process has a copy of its descriptor.
pub(crate) fn reset(stream: &TcpStream) {
    // On most kernels either call is enough; both fail on a socket that is closed already.
    let lingers = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
    let gone = rustix::net::connect_unspec(stream);
    if let (Err(error), Err(_)) = (lingers, gone) {
        tracing::debug!(%error, "connection was gone before its reset");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sandbox_has_no_more_than_half_of_the_large_buffers() {
        let all = BufferPool::new(4);
        let (hostile, other) = (all.share(), all.share());
        let held: Vec<_> = (0..2).map(|_| hostile.borrow().unwrap()).collect();
        assert!(hostile.borrow().is_none());
        let others: Vec<_> = (0..2).map(|_| other.borrow().unwrap()).collect();
        drop(held);
        drop(others);
        assert!(hostile.borrow().is_some() && all.all.count.load(Ordering::Relaxed) == 0);
        // A third sandbox finds none if two have them all.
        let _held: Vec<_> = [&hostile, &other].into_iter().flat_map(|one| [one.borrow(), one.borrow()]).collect();
        let third = all.share();
        assert!(third.borrow().is_none() && third.one.count.load(Ordering::Relaxed) == 0);
    }
}
