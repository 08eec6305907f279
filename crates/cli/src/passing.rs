//! Passes a run's output on to our own standard output and error as it comes.
//!
//! Never blocks for good: a reader that stops reading holds the program up, which is the backpressure, but neither a
//! signal nor the wall limit has to wait for it. A closed stream ends that stream and not the run.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use cofferdam_engine::{Cancel, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};

/// Most that is written at once where a write could block: what a pipe takes whole once it is writable (pipe(7)).
const PIPE_BUF: usize = 4096;

/// How often a blocked write looks at the cancel flag: the signal may have come just before the wait.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// One of our own output streams.
struct Sink {
    fd: BorrowedFd<'static>,
    /// A regular file is always writable.
    blocks: bool,
}

impl Sink {
    fn new(fd: BorrowedFd<'static>) -> Sink {
        let regular = fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        Sink { fd, blocks: !regular }
    }

    fn write(&self, mut bytes: &[u8], cancel: &Cancel, deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let most = if self.blocks { bytes.len().min(PIPE_BUF) } else { bytes.len() };
            if self.blocks {
                self.wait(cancel, deadline)?;
            }
            match rustix::io::write(self.fd, &bytes[..most]) {
                Ok(written) => bytes = &bytes[written..],
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wait(&self, cancel: &Cancel, deadline: Instant) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // An error or a hang-up is told by the write itself.
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if cancel.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

/// The callback that passes chunks on; `wall` is the run's wall limit.
pub fn through(cancel: Cancel, wall: Duration) -> impl FnMut(Stream, &[u8]) -> io::Result<()> + Send {
    let (out, err) = (Sink::new(rustix::stdio::stdout()), Sink::new(rustix::stdio::stderr()));
    let now = Instant::now();
    let deadline = now.checked_add(wall).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
    move |stream, bytes| match stream {
        Stream::Stdout => out.write(bytes, &cancel, deadline),
        Stream::Stderr => err.write(bytes, &cancel, deadline),
    }
}
