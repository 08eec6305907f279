//! Bytes between a program and upstream that need not be looked at: counted, bounded; half-closes and resets passed on.
//! Knows no rule.
//!
//! ```text
//! from ─ read ─▶ 256 KiB, borrowed while bytes are in it ─ write ─▶ to
//! from ─ read ─▶ 16 KiB, where all of those are lent      ─ write ─▶ to
//! ```
//!
//! Copied and not spliced: on a sandbox's own loopback a large write leaves as packets several times as long as those that
//! splice(2) makes of what came in, and that saves more than two copies cost (docs/performance.md).

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::limits::{Account, Allowance, Way};
use crate::rules::Refusal;

/// Bytes of a lent buffer.
const LARGE_BYTES: usize = 256 * 1024;
/// Bytes that are moved at once without one.
const SMALL_BYTES: usize = 16 * 1024;

/// How a relayed connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Both sides said that they were done.
    Closed,
    /// The program reset the connection, or cannot be written to any more.
    ClientReset,
    /// Upstream did.
    UpstreamReset,
    /// Nothing moved for the idle time.
    Idle,
    /// A limit of bytes was reached.
    Limit(Refusal),
}

/// The large buffers of a gateway: a bounded number, and no more than half of them for one sandbox, whose programs may hold
/// them for long by not reading.
#[derive(Debug)]
pub struct Buffers {
    all: Arc<Lent>,
    one: Lent,
}

/// Buffers that are lent, the most, and those that are not.
#[derive(Debug)]
struct Lent {
    idle: Mutex<Vec<Box<[u8]>>>,
    count: AtomicUsize,
    most: usize,
}

impl Lent {
    fn new(most: usize) -> Lent {
        Lent { idle: Mutex::default(), count: AtomicUsize::new(0), most }
    }

    fn is_one_more(&self) -> bool {
        let change = |now: usize| (now < self.most).then_some(now + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }
}

/// A buffer, borrowed. A program's bytes never leave it but to their peer: only what was read into it is written.
struct Buffer<'b> {
    buffers: &'b Buffers,
    bytes: Box<[u8]>,
}

impl Buffers {
    /// At most so many at a time, none of them made yet.
    pub fn new(most: usize) -> Buffers {
        Buffers { all: Arc::new(Lent::new(most)), one: Lent::new(most) }
    }

    /// One sandbox's part.
    pub fn part(&self) -> Buffers {
        Buffers { all: Arc::clone(&self.all), one: Lent::new(self.all.most.div_ceil(2)) }
    }

    fn borrow(&self) -> Option<Buffer<'_>> {
        if !self.one.is_one_more() {
            return None;
        }
        if !self.all.is_one_more() {
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
        // Back before it counts as free: there are never more of them than `most`.
        let bytes = std::mem::take(&mut self.bytes);
        self.buffers.all.idle.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        self.buffers.all.count.fetch_sub(1, Ordering::Relaxed);
        self.buffers.one.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When something last moved on a connection.
#[derive(Debug, Clone)]
pub struct Activity {
    since: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Activity {
    /// Now.
    pub fn new() -> Activity {
        Activity { since: Instant::now(), last_ms: Arc::default() }
    }

    /// Something moves.
    pub fn touch(&self) {
        self.last_ms.store(self.since.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns when nothing has moved for so long.
    pub async fn idle(&self, time: Duration) {
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

fn source_gone(way: Way) -> End {
    match way {
        Way::Up => End::ClientReset,
        Way::Down => End::UpstreamReset,
    }
}

fn sink_gone(way: Way) -> End {
    match way {
        Way::Up => End::UpstreamReset,
        Way::Down => End::ClientReset,
    }
}

/// Moves bytes one way until `from` is done, and says so to `to`.
///
/// # Errors
/// How the connection ended instead.
pub async fn one_way(
    from: &TcpStream,
    to: &TcpStream,
    way: Way,
    account: &Account,
    activity: &Activity,
    buffers: &Buffers,
) -> Result<(), End> {
    loop {
        from.readable().await.map_err(|_| source_gone(way))?;
        let reserved = match account.reserve(way, LARGE_BYTES) {
            Allowance::Bytes(bytes) => bytes,
            Allowance::Wait(time) => {
                // Waiting for its share is no idleness.
                activity.touch();
                tokio::time::sleep(time).await;
                continue;
            }
            Allowance::Never(refusal) => match ended(from) {
                Ok(true) => break,
                Ok(false) => return Err(End::Limit(refusal)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => return Err(source_gone(way)),
            },
        };
        // A buffer is held only while it has something in it: a connection that waits has none.
        let moved = match buffers.borrow() {
            Some(mut large) => move_once(from, to, way, &mut large.bytes, account, reserved, activity).await,
            None => move_once(from, to, way, &mut vec![0; SMALL_BYTES], account, reserved, activity).await,
        };
        match moved {
            Ok(0) => break,
            Ok(_) | Err(Stop::Again) => {}
            Err(Stop::End(end)) => return Err(end),
        }
    }
    // A peer that is gone already has been told nothing that it did not know.
    if let Err(error) = rustix::net::shutdown(to.as_fd(), rustix::net::Shutdown::Write)
        && error != Errno::NOTCONN
    {
        return Err(sink_gone(way));
    }
    Ok(())
}

enum Stop {
    Again,
    End(End),
}

/// Whether the stream has ended, as its next byte tells; `WouldBlock` when it does not tell yet.
fn ended(stream: &TcpStream) -> io::Result<bool> {
    stream.try_io(Interest::READABLE, || {
        let mut byte = [0u8; 1];
        Ok(recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0 == 0)
    })
}

async fn move_once(
    from: &TcpStream,
    to: &TcpStream,
    way: Way,
    buffer: &mut [u8],
    account: &Account,
    reserved: usize,
    activity: &Activity,
) -> Result<usize, Stop> {
    let most = buffer.len().min(reserved);
    let taken = from.try_read(&mut buffer[..most]);
    account.settle(way, reserved, *taken.as_ref().unwrap_or(&0));
    let taken = taken.map_err(|error| stopped(&error, way))?;
    activity.touch();
    write_all(to, &buffer[..taken], activity).await.map_err(|_| Stop::End(sink_gone(way)))?;
    Ok(taken)
}

fn stopped(error: &io::Error, way: Way) -> Stop {
    match error.kind() {
        ErrorKind::WouldBlock => Stop::Again,
        _ => Stop::End(source_gone(way)),
    }
}

/// Writes all of `bytes`.
///
/// # Errors
/// The stream cannot be written to any more.
pub async fn write_all(to: &TcpStream, mut bytes: &[u8], activity: &Activity) -> io::Result<()> {
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

/// Ends a connection with a reset, now, even when a forked child of this process holds a copy of its descriptor.
pub fn reset(stream: &TcpStream) {
    // Either call alone resets it on most kernels; a socket that is closed already refuses both.
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
        let all = Buffers::new(4);
        let (hostile, other) = (all.part(), all.part());
        let held: Vec<_> = (0..2).map(|_| hostile.borrow().unwrap()).collect();
        assert!(hostile.borrow().is_none());
        let others: Vec<_> = (0..2).map(|_| other.borrow().unwrap()).collect();
        drop(held);
        drop(others);
        assert!(hostile.borrow().is_some() && all.all.count.load(Ordering::Relaxed) == 0);
        // A third one finds none where two have them all.
        let _held: Vec<_> = [&hostile, &other].into_iter().flat_map(|one| [one.borrow(), one.borrow()]).collect();
        let third = all.part();
        assert!(third.borrow().is_none() && third.one.count.load(Ordering::Relaxed) == 0);
    }
}
