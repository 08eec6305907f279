//! Bytes between a program and upstream that need not be looked at: spliced, counted, bounded; half-closes and resets
//! passed on. Knows no rule.
//!
//! ```text
//! from ─ splice ─▶ pipe ─ splice ─▶ to          the pipe is borrowed while bytes are in it
//! from ─ read ──▶ 16 KiB ─ write ─▶ to          when there is no pipe, or the sockets cannot be spliced
//! ```

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::limits::{Account, Allowance, Way};
use crate::rules::Refusal;

/// What one pipe holds: more than the kernel's 64 KiB, because a fast stream costs the less the more is moved at a time. All
/// pipes of a gateway together stay below half of what a user's pipes may hold before the kernel makes them small (64 MiB).
const PIPE_BYTES: usize = 512 * 1024;
/// Bytes of a copy.
const COPY_BYTES: usize = 16 * 1024;
/// Idle pipes kept.
const IDLE_PIPES: usize = 16;

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

/// The pipes of a gateway: a bounded number, whoever needs them.
#[derive(Debug)]
pub struct Pipes {
    idle: Mutex<Vec<(OwnedFd, OwnedFd)>>,
    lent: AtomicUsize,
    most: usize,
}

/// A pipe, borrowed. With bytes in it it is never lent again: they are somebody's.
struct Pipe<'p> {
    pipes: &'p Pipes,
    ends: Option<(OwnedFd, OwnedFd)>,
    held: usize,
}

impl Pipes {
    /// At most so many at a time, none of them made yet.
    pub fn new(most: usize) -> Pipes {
        Pipes { idle: Mutex::default(), lent: AtomicUsize::new(0), most }
    }

    fn borrow(&self) -> Option<Pipe<'_>> {
        if self.lent.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.lent.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let ends = match idle {
            Some(ends) => Some(ends),
            None => pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok().inspect(|(read, _)| {
                if let Err(error) = fcntl_setpipe_size(read, PIPE_BYTES) {
                    tracing::debug!(%error, "pipe stays small");
                }
            }),
        };
        let pipe = Pipe { pipes: self, ends, held: 0 };
        pipe.ends.is_some().then_some(pipe)
    }
}

impl Drop for Pipe<'_> {
    fn drop(&mut self) {
        self.pipes.lent.fetch_sub(1, Ordering::Relaxed);
        if let Some(ends) = self.ends.take().filter(|_| self.held == 0) {
            let mut idle = self.pipes.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE_PIPES {
                idle.push(ends);
            }
        }
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

/// Moves bytes both ways until both sides are done, one is gone, a limit is reached or nothing moves. The streams are
/// left open; after anything but `Closed` the caller resets both.
pub async fn relay(
    client: &TcpStream,
    upstream: &TcpStream,
    account: &Account,
    activity: &Activity,
    idle: Duration,
    pipes: &Pipes,
) -> End {
    let up = one_way(client, upstream, Way::Up, account, activity, pipes);
    let down = one_way(upstream, client, Way::Down, account, activity, pipes);
    let both = async { tokio::try_join!(up, down) };
    tokio::select! {
        ended = both => ended.map_or_else(|end| end, |_| End::Closed),
        () = activity.idle(idle) => End::Idle,
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
    pipes: &Pipes,
) -> Result<(), End> {
    let mut splices = true;
    loop {
        from.readable().await.map_err(|_| source_gone(way))?;
        let reserved = match account.reserve(way, PIPE_BYTES) {
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
        let pipe = if splices { pipes.borrow() } else { None };
        let moved = match pipe {
            Some(pipe) => splice_once(from, to, way, pipe, account, reserved, activity).await,
            None => copy_once(from, to, way, account, reserved, activity).await,
        };
        match moved {
            Ok(0) => break,
            Ok(_) => {}
            Err(Stop::Again) => {}
            Err(Stop::NoSplice) => splices = false,
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
    NoSplice,
    End(End),
}

/// Whether the stream has ended, as its next byte tells; `WouldBlock` when it does not tell yet.
fn ended(stream: &TcpStream) -> io::Result<bool> {
    stream.try_io(Interest::READABLE, || {
        let mut byte = [0u8; 1];
        Ok(recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0 == 0)
    })
}

fn spliced(from: impl AsFd, to: impl AsFd, bytes: usize) -> io::Result<usize> {
    Ok(splice(from, None, to, None, bytes, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)?)
}

async fn splice_once(
    from: &TcpStream,
    to: &TcpStream,
    way: Way,
    mut pipe: Pipe<'_>,
    account: &Account,
    reserved: usize,
    activity: &Activity,
) -> Result<usize, Stop> {
    let Some((read, write)) = pipe.ends.as_ref() else { return Err(Stop::NoSplice) };
    let taken = from.try_io(Interest::READABLE, || spliced(from, write, reserved));
    account.settle(way, reserved, *taken.as_ref().unwrap_or(&0));
    pipe.held = taken.map_err(|error| stopped(&error, way))?;
    let taken = pipe.held;
    activity.touch();
    while pipe.held > 0 {
        match to.try_io(Interest::WRITABLE, || spliced(read, to, pipe.held)) {
            Ok(0) => return Err(Stop::End(sink_gone(way))),
            Ok(moved) => {
                pipe.held -= moved;
                activity.touch();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                to.writable().await.map_err(|_| Stop::End(sink_gone(way)))?;
            }
            Err(_) => return Err(Stop::End(sink_gone(way))),
        }
    }
    Ok(taken)
}

async fn copy_once(
    from: &TcpStream,
    to: &TcpStream,
    way: Way,
    account: &Account,
    reserved: usize,
    activity: &Activity,
) -> Result<usize, Stop> {
    // On the heap, and only while it holds something: a connection that waits has no buffer.
    let mut buffer = vec![0u8; COPY_BYTES.min(reserved)];
    let taken = from.try_read(&mut buffer);
    account.settle(way, reserved, *taken.as_ref().unwrap_or(&0));
    let taken = taken.map_err(|error| stopped(&error, way))?;
    activity.touch();
    write_all(to, &buffer[..taken], activity).await.map_err(|_| Stop::End(sink_gone(way)))?;
    Ok(taken)
}

fn stopped(error: &io::Error, way: Way) -> Stop {
    match error.kind() {
        ErrorKind::WouldBlock => Stop::Again,
        ErrorKind::InvalidInput => Stop::NoSplice,
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
