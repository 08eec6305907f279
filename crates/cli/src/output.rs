//! Passes a run's output on to our own standard output and error as it comes.
//!
//! Never blocks for long: a reader that stops reading holds the program up, which is the backpressure, but neither a
//! signal nor a limit has to wait for it. A closed stream ends that stream and not the run.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use cofferdam_engine::{Cancel, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::termios::isatty;

use crate::queries::Queries;

/// Most that is written at once where a write could block: what a pipe takes whole once it is writable (pipe(7)).
const PIPE_BUF: usize = 4096;

/// How long a reader is waited for before the limits are looked at again.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const NOT_AT_ALL: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How long after the wall limit a reader that does not read is still waited for. Giving up breaks the program's pipe, so
/// it must not come before the limit itself, which counts from the program's start and not from here.
const AFTER: Duration = Duration::from_millis(500);

/// One of our own output streams.
struct Sink {
    fd: BorrowedFd<'static>,
    terminal: bool,
    /// A regular file is always writable.
    blocks: bool,
}

impl Sink {
    fn new(fd: BorrowedFd<'static>) -> Sink {
        let regular = fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        Sink { fd, terminal: isatty(fd), blocks: !regular }
    }

    /// Writes what the reader takes, and says how much that was.
    fn write(&self, bytes: &[u8], cancel: &Cancel, deadline: Instant) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            let left = bytes.len() - sent;
            if self.blocks && !self.ready(if sent == 0 { LOOK } else { NOT_AT_ALL })? {
                if cancel.is_cancelled() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                if Instant::now() > deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                break;
            }
            let most = if self.blocks { left.min(PIPE_BUF) } else { left };
            match rustix::io::write(self.fd, &bytes[sent..sent + most]) {
                Ok(written) => sent += written,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    fn ready(&self, patience: Timespec) -> io::Result<bool> {
        match poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], Some(&patience)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            // An error or a hang-up is told by the write itself.
            Ok(_) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// The callback that passes chunks on; `wall` is the run's wall limit. `lost` becomes the errno of a write that failed for
/// another reason than a reader who is gone: a full disk, say. `asked` becomes true when what went to a terminal asks it to
/// answer.
pub fn through(
    cancel: Cancel,
    wall: Duration,
    lost: Arc<AtomicI32>,
    asked: Arc<AtomicBool>,
) -> impl FnMut(Stream, &[u8]) -> io::Result<usize> + Send {
    let (out, err) = (Sink::new(rustix::stdio::stdout()), Sink::new(rustix::stdio::stderr()));
    let now = Instant::now();
    let deadline = now.checked_add(wall.saturating_add(AFTER)).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
    let mut queries = Queries::default();
    move |stream, bytes| {
        let sink = match stream {
            Stream::Stdout => &out,
            Stream::Stderr => &err,
        };
        if sink.terminal {
            queries.read(bytes);
            asked.store(queries.asked(), Ordering::Relaxed);
        }
        sink.write(bytes, &cancel, deadline).inspect_err(|error| {
            if let Some(errno) = error.raw_os_error().filter(|_| error.kind() != io::ErrorKind::BrokenPipe) {
                lost.store(errno, Ordering::Relaxed);
            }
        })
    }
}
