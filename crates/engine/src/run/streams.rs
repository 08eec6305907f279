//! The run's streams: pipes of ours, counted, capped and always drained.
//!
//! After the cap a stream is still read, and what comes is dropped: the program neither blocks nor fills our memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::io::{Input, Output, Stream};

/// One output stream under way.
pub(crate) struct OutputSink {
    /// Our end; `None` once it has ended.
    pub fd: Option<OwnedFd>,
    which: Stream,
    left: u64,
    /// Anything has come: the program runs, whether or not init has said so yet.
    pub spoke: bool,
    /// It was longer than the cap.
    pub truncated: bool,
    /// What was captured.
    pub bytes: Vec<u8>,
    closed: bool,
    pty: bool,
    /// Read, and not yet taken by the caller.
    pending: Vec<u8>,
}

const CHUNK: usize = 64 * 1024;

impl OutputSink {
    /// A sink over our end of a pipe.
    pub(crate) fn new(fd: OwnedFd, which: Stream, cap: u64) -> OutputSink {
        OutputSink {
            fd: Some(fd),
            which,
            left: cap,
            spoke: false,
            truncated: false,
            bytes: Vec::new(),
            closed: false,
            pty: false,
            pending: Vec::new(),
        }
    }

    /// A sink over a copy of the master of a pty.
    pub(crate) fn pty(master: OwnedFd, cap: u64) -> OutputSink {
        OutputSink { pty: true, ..OutputSink::new(master, Stream::Stdout, cap) }
    }

    /// Our end, to poll: only while the caller has taken what was read.
    pub(crate) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.waits() { None } else { self.fd.as_ref().map(AsFd::as_fd) }
    }

    /// Whether the caller has not yet taken what was read: pump again soon.
    pub(crate) fn waits(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Hands over what waits, and then reads what is there. True when there may be more.
    pub(crate) fn pump(&mut self, buf: &mut [u8], output: &mut Output) -> bool {
        if self.waits() {
            self.offer(output);
            if self.waits() {
                return true;
            }
        }
        let Some(fd) = &self.fd else { return false };
        match rustix::io::read(fd, &mut *buf) {
            Ok(0) => {
                self.fd = None;
                false
            }
            Ok(n) => {
                self.take(&buf[..n], output);
                n == buf.len() || self.waits()
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            // EIO is how a pty says that its last user is gone.
            Err(_) => {
                self.fd = None;
                false
            }
        }
    }

    fn take(&mut self, bytes: &[u8], output: &mut Output) {
        self.spoke = true;
        let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        self.left -= n as u64;
        self.truncated |= n < bytes.len();
        if n == 0 || self.closed {
            return;
        }
        match output {
            Output::Capture => self.bytes.extend_from_slice(&bytes[..n]),
            Output::Stream(_) => {
                self.pending.extend_from_slice(&bytes[..n]);
                self.offer(output);
            }
        }
    }

    fn offer(&mut self, output: &mut Output) {
        let Output::Stream(f) = output else { return };
        match f(self.which, &self.pending) {
            Ok(n) if n < self.pending.len() => drop(self.pending.drain(..n)),
            Ok(_) => self.pending.clear(),
            Err(_) => {
                self.closed = true;
                self.pending.clear();
                if !self.pty {
                    self.fd = None; // the reader is gone: the program is told as by any pipe
                }
            }
        }
    }
}

/// A buffer for `OutputSink::pump` and `InputSource::pump`.
pub(crate) fn buffer() -> Vec<u8> {
    vec![0; CHUNK]
}

/// Standard input under way.
pub(crate) struct InputSource {
    /// Our end of the program's standard input; `None` once it is closed.
    pub to: Option<OwnedFd>,
    from: From,
    pending: Vec<u8>,
    sent: usize,
    terminal: bool,
    /// How often Ctrl-C came in a row, and when it came first.
    interrupts: (u32, Instant),
}

/// As often in a row, and within that time, Ctrl-C at a terminal ends a run whose program ignores it.
const INTERRUPTS: (u32, Duration) = (5, Duration::from_secs(2));
/// Ctrl-C.
const INTERRUPT: u8 = 3;

enum From {
    Nothing,
    Fd(OwnedFd),
}

impl InputSource {
    /// What goes into our end of the pipe (or pty).
    pub(crate) fn new(to: OwnedFd, input: Input, terminal: bool) -> InputSource {
        let (from, pending) = match input {
            Input::Closed => (From::Nothing, Vec::new()),
            Input::Bytes(b) => (From::Nothing, b),
            Input::Fd(fd) => (From::Fd(fd), Vec::new()),
        };
        let mut s = InputSource { to: Some(to), from, pending, sent: 0, terminal, interrupts: (0, Instant::now()) };
        s.close_when_done();
        s
    }

    /// To poll for reading: only while nothing waits to be written.
    pub(crate) fn poll_from(&self) -> Option<BorrowedFd<'_>> {
        match (&self.from, self.sent == self.pending.len(), &self.to) {
            (From::Fd(fd), true, Some(_)) => Some(fd.as_fd()),
            _ => None,
        }
    }

    /// To poll for writing: only while something waits to be written.
    pub(crate) fn poll_to(&self) -> Option<BorrowedFd<'_>> {
        if self.sent < self.pending.len() { self.to.as_ref().map(AsFd::as_fd) } else { None }
    }

    /// Reads from the caller.
    pub(crate) fn read(&mut self, buf: &mut [u8]) {
        let From::Fd(fd) = &self.from else { return };
        match rustix::io::read(fd, &mut buf[..4096]) {
            Ok(n) if n > 0 => {
                self.count_interrupts(&buf[..n]);
                self.pending = buf[..n].to_vec();
                self.sent = 0;
                self.write();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.from = From::Nothing,
        }
        self.close_when_done();
    }

    fn count_interrupts(&mut self, bytes: &[u8]) {
        let (count, first) = &mut self.interrupts;
        for byte in bytes.iter().filter(|_| self.terminal) {
            match *byte {
                INTERRUPT if *count > 0 && first.elapsed() <= INTERRUPTS.1 => *count += 1,
                INTERRUPT => (*count, *first) = (1, Instant::now()),
                _ => *count = 0,
            }
        }
    }

    /// Whether this is the program's terminal, which comes once the sandbox is set up.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether a person at the terminal wants the run to end, whatever its program does.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupts.0 >= INTERRUPTS.0
    }

    /// Writes what waits.
    pub(crate) fn write(&mut self) {
        while self.sent < self.pending.len() {
            let Some(to) = &self.to else { return };
            match rustix::io::write(to, &self.pending[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => self.to = None, // the program has closed its standard input
            }
        }
        self.close_when_done();
    }

    fn close_when_done(&mut self) {
        if matches!(self.from, From::Nothing) && self.sent == self.pending.len() && !self.terminal {
            self.to = None;
        }
    }
}

/// A pipe: (ours to read, theirs to write), ours non-blocking.
///
/// # Errors
/// pipe2(2).
pub(crate) fn outgoing() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (r, w) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&r, true)?;
    Ok((r, w))
}

/// A pipe: (theirs to read, ours to write), ours non-blocking.
///
/// # Errors
/// pipe2(2).
pub(crate) fn incoming() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (r, w) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&w, true)?;
    Ok((r, w))
}

/// Makes a pipe the sandbox user's own, as whom the program may open it by name: `> /dev/stderr` opens it anew, and a
/// pipe belongs to whoever made it. An owner who may not give files away keeps it: the program has it open already.
pub(crate) fn give_away(theirs: &OwnedFd, (uid, gid): (u32, u32)) {
    if rustix::process::geteuid().as_raw() != uid
        && let Err(e) =
            rustix::fs::fchown(theirs, rustix::fs::Uid::from_raw(uid).into(), Some(rustix::fs::Gid::from_raw(gid)))
    {
        debug_assert!(e == rustix::io::Errno::PERM, "a pipe of ours cannot be given away: {e}");
    }
}
