//! Copies the program's output to the command's own standard output and standard error as it arrives.
//!
//! Never blocks for long: a reader that stops reading stops the program, which is the backpressure, but neither a signal nor
//! a limit has to wait for the reader. When a reader closes a stream, that stream ends, and the run continues.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_engine::{Cancel, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::termios::isatty;

use super::excerpt::Excerpt;
use super::terminal_queries::Queries;

/// Most bytes in one write where a write could block: what a writable pipe accepts without blocking (pipe(7)).
const PIPE_BUF: usize = 4096;

/// How long to wait for a reader before the limits are checked again.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How long to wait for a reader after the wall limit. Giving up breaks the program's pipe, so it must not happen before the
/// limit itself, which counts from the start of the program and not from here.
const GRACE: Duration = Duration::from_millis(500);

/// One of the command's own output streams.
struct OutputStream {
    fd: BorrowedFd<'static>,
    terminal: bool,
    /// Whether a write may block. A regular file is always writable.
    blocks: bool,
    /// Whether the run was cancelled when the reader was last waited for.
    cancelled: bool,
}

impl OutputStream {
    fn new(fd: BorrowedFd<'static>) -> OutputStream {
        let regular = fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        OutputStream { fd, terminal: isatty(fd), blocks: !regular, cancelled: false }
    }

    /// Writes what the reader accepts and returns its length.
    fn write(&mut self, bytes: &[u8], cancel: &Cancel, deadline: Instant) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            let left = bytes.len() - sent;
            if self.blocks && !self.is_writable(if sent == 0 { CHECK_INTERVAL } else { NO_WAIT })? {
                // A first request is taken back before the next call, where the program gets a signal instead.
                let cancelled = std::mem::replace(&mut self.cancelled, cancel.is_cancelled());
                if cancelled && self.cancelled {
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

    fn is_writable(&self, timeout: Timespec) -> io::Result<bool> {
        match poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            // The write itself returns an error or a hang-up.
            Ok(_) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// The callback that copies chunks of output. `wall` is the wall limit of the run. `lost` becomes the errno of a write that
/// failed although the reader is there, such as ENOSPC. `asked` becomes true when the output asks a terminal for an answer.
/// `excerpts` get the beginning and the end of standard output and standard error.
pub(crate) fn copy(
    cancel: Cancel,
    wall: Duration,
    lost: Arc<AtomicI32>,
    asked: Arc<AtomicBool>,
    excerpts: Arc<Mutex<[Excerpt; 2]>>,
) -> impl FnMut(Stream, &[u8]) -> io::Result<usize> + Send {
    let (mut out, mut err) = (OutputStream::new(rustix::stdio::stdout()), OutputStream::new(rustix::stdio::stderr()));
    let now = Instant::now();
    let deadline = now.checked_add(wall.saturating_add(GRACE)).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
    let mut queries = Queries::default();
    move |stream, bytes| {
        let sink = match stream {
            Stream::Stdout => &mut out,
            Stream::Stderr => &mut err,
        };
        if sink.terminal {
            queries.read(bytes);
            asked.store(queries.asked(), Ordering::Relaxed);
        }
        let written = sink.write(bytes, &cancel, deadline).inspect_err(|error| {
            if let Some(errno) = error.raw_os_error().filter(|_| error.kind() != io::ErrorKind::BrokenPipe) {
                lost.store(errno, Ordering::Relaxed);
            }
        })?;
        let mut excerpts = excerpts.lock().unwrap_or_else(PoisonError::into_inner);
        excerpts[usize::from(stream == Stream::Stderr)].take(&bytes[..written]);
        Ok(written)
    }
}
