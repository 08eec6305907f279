//! The run's streams: pipes of ours, counted, capped and always drained.
//!
//! After the cap a stream is still read, and what comes is dropped: the program neither blocks nor fills our memory.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
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
///
/// What the program has not read when it ends stays with the caller, as if the program had been given the caller's input itself:
/// in a loop such as `while read -r line; do cofferdam run …; done <list`, the next turn finds it. A file is read without being
/// moved, and moved at the end by what the program has read. Of a pipe, the first bytes are copied (tee(2)) a buffer at a time, and
/// only taken once the program has read them.
///
/// What is in the program's pipe says how much that is, and a program can write into its own pipe: it decides what it leaves of
/// what it was given, and nothing of what lies before that.
pub(crate) struct InputSource {
    /// Our end of the program's standard input; `None` once it is closed.
    pub to: Option<OwnedFd>,
    from: Option<OwnedFd>,
    kind: SourceKind,
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
/// One buffer of a pipe: it is full with one copy, and can be written again once that is read.
const ONE_BUFFER: usize = 4096;
/// So much of a pipe is copied. What follows is read ahead, which is faster.
const COPIED: usize = 64 * 1024;

/// What the caller's input is, as far as it can be given back.
#[derive(Debug)]
enum SourceKind {
    /// It cannot.
    Stream,
    /// A pipe, of which so much has been copied to the program and read by it.
    Pipe { copied: usize },
    /// A pipe with so many bytes that were copied to the program, which may have read some of them; and as before.
    Copied { bytes: usize, copied: usize },
    /// A file of which so much was taken, from this place on. The other end is one of the program's pipe, so that what is in that
    /// can be counted when the program and our own end are gone.
    File { start: u64, taken: u64, end: OwnedFd },
}

impl SourceKind {
    fn of(from: &OwnedFd, to: &OwnedFd, terminal: bool) -> SourceKind {
        use rustix::fs::{FileType, fstat};
        let kind = fstat(from).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            _ if terminal => SourceKind::Stream,
            Ok(FileType::Fifo) => SourceKind::Pipe { copied: 0 },
            Ok(FileType::RegularFile) => match (rustix::fs::tell(from), reader(to)) {
                (Ok(start), Some(end)) => SourceKind::File { start, taken: 0, end },
                _ => SourceKind::Stream,
            },
            _ => SourceKind::Stream,
        }
    }
}

impl InputSource {
    /// What goes into our end of the pipe (or pty).
    pub(crate) fn new(to: OwnedFd, input: Input, terminal: bool) -> InputSource {
        let (from, pending) = match input {
            Input::Closed => (None, Vec::new()),
            Input::Bytes(b) => (None, b),
            Input::Fd(fd) => (Some(fd), Vec::new()),
        };
        let kind = from.as_ref().map_or(SourceKind::Stream, |from| SourceKind::of(from, &to, terminal));
        let interrupts = (0, Instant::now());
        let mut s = InputSource { to: Some(to), from, kind, pending, sent: 0, terminal, interrupts };
        s.close_when_done();
        s
    }

    /// To poll for reading: only while nothing waits to be written, or to be read by the program.
    pub(crate) fn poll_from(&self) -> Option<BorrowedFd<'_>> {
        match (&self.from, self.waits(), &self.to) {
            (Some(fd), false, Some(_)) => Some(fd.as_fd()),
            _ => None,
        }
    }

    /// To poll for writing: only while something waits to be written, or to be read by the program.
    pub(crate) fn poll_to(&self) -> Option<BorrowedFd<'_>> {
        if self.waits() { self.to.as_ref().map(AsFd::as_fd) } else { None }
    }

    fn waits(&self) -> bool {
        self.sent < self.pending.len() || matches!(self.kind, SourceKind::Copied { .. })
    }

    /// Reads from the caller.
    pub(crate) fn read(&mut self, buf: &mut [u8]) {
        if let SourceKind::Pipe { copied } = self.kind
            && copied < COPIED
            && self.copy(copied)
        {
            return;
        }
        let Some(fd) = &self.from else { return };
        let part = &mut buf[..4096];
        let read = match &self.kind {
            SourceKind::File { start, taken, .. } => rustix::io::pread(fd, part, start + taken),
            _ => read_ready(fd, part),
        };
        match read {
            Ok(n) if n > 0 => {
                if let SourceKind::File { taken, .. } = &mut self.kind {
                    *taken += n as u64;
                }
                self.count_interrupts(&buf[..n]);
                self.pending = buf[..n].to_vec();
                self.sent = 0;
                self.write();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.end(),
        }
        self.close_when_done();
    }

    /// Copies what a buffer holds from the caller's pipe to the program's, and leaves it in the caller's. False where that cannot
    /// be done: then it is read.
    fn copy(&mut self, copied: usize) -> bool {
        use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, tee};
        let (Some(from), Some(to)) = (&self.from, &self.to) else { return false };
        if copied == 0 && fcntl_setpipe_size(to, ONE_BUFFER).ok() != Some(ONE_BUFFER) {
            self.kind = SourceKind::Stream;
            return false;
        }
        match tee(from, to, ONE_BUFFER, SpliceFlags::NONBLOCK) {
            Ok(bytes @ 1..) => self.kind = SourceKind::Copied { bytes, copied },
            Err(Errno::PIPE) => self.to = None, // the program is gone, or has closed its standard input
            // Another reader was faster, or the program has put something into its pipe.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The end, which an ordinary read finds as well, or no pipe that can be copied.
            Ok(0) | Err(_) => {
                self.stop_copying();
                return false;
            }
        }
        true
    }

    /// From here on the caller's pipe is read ahead, and the program's has its room again.
    fn stop_copying(&mut self) {
        self.kind = SourceKind::Stream;
        if let Some(to) = &self.to {
            // Where the user has too many pipes for that, it stays slow.
            rustix::pipe::fcntl_setpipe_size(to, COPIED).ok();
        }
    }

    /// Takes what the program has read from the caller's pipe, as far as it was copied, or from the caller's file.
    fn settle(&mut self) {
        match std::mem::replace(&mut self.kind, SourceKind::Stream) {
            SourceKind::Copied { bytes, .. } => {
                let unread = self.to.as_ref().map_or(0, in_pipe);
                if let Some(from) = &self.from {
                    discard(from, bytes - bytes.min(usize::try_from(unread).unwrap_or(usize::MAX)));
                }
            }
            SourceKind::File { taken, end, .. } => {
                let unread = in_pipe(&end).saturating_add((self.pending.len() - self.sent) as u64);
                if let (Some(from), Ok(read @ 1..)) = (&self.from, i64::try_from(taken - unread.min(taken))) {
                    // It could be moved when the run began. Where it cannot be now, the next reader finds it once more.
                    rustix::fs::seek(from, rustix::fs::SeekFrom::Current(read)).ok();
                }
            }
            SourceKind::Stream | SourceKind::Pipe { .. } => {}
        }
    }

    /// Nothing more comes from the caller.
    fn end(&mut self) {
        if !matches!(self.kind, SourceKind::File { .. }) {
            self.from = None;
        }
        if self.sent == self.pending.len() && !self.terminal {
            self.to = None;
        }
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

    /// Writes what waits, or finds that the program has read what was copied.
    pub(crate) fn write(&mut self) {
        if let SourceKind::Copied { bytes, copied } = self.kind {
            match &self.to {
                Some(to) if has_reader(to) => {}
                _ => {
                    self.settle();
                    self.to = None; // the program has closed its standard input
                    return;
                }
            }
            let is_read = self.to.as_ref().is_some_and(|to| in_pipe(to) == 0);
            // The program may have made room for more in its pipe, and nothing else.
            let is_full_again =
                |to: &OwnedFd| rustix::pipe::fcntl_setpipe_size(to, ONE_BUFFER).ok() == Some(ONE_BUFFER);
            if !is_read && self.to.as_ref().is_some_and(is_full_again) {
                return;
            }
            // What is in the pipe is the program's by now, where there is more than was copied.
            if let Some(from) = &self.from {
                discard(from, bytes);
            }
            self.kind = SourceKind::Pipe { copied: copied + bytes };
            if !is_read || copied + bytes >= COPIED {
                self.stop_copying();
            }
            return;
        }
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
        if self.from.is_none() && !self.waits() && !self.terminal {
            self.to = None;
        }
    }
}

impl Drop for InputSource {
    /// Every process of the run is dead.
    fn drop(&mut self) {
        self.settle();
    }
}

/// Whether the program has the other end of its pipe open.
fn has_reader(to: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(to, PollFlags::OUT)];
    let asked = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    asked.is_ok() && !fds[0].revents().contains(PollFlags::ERR)
}

/// How many bytes are in a pipe.
fn in_pipe(end: &OwnedFd) -> u64 {
    rustix::io::ioctl_fionread(end).unwrap_or(0)
}

/// Takes bytes from a pipe, as far as no other reader was faster.
fn discard(pipe: &OwnedFd, mut bytes: usize) {
    use rustix::pipe::{SpliceFlags, splice};
    let Ok(nowhere) = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) else { return };
    while bytes > 0 {
        match splice(pipe, None, &nowhere, None, bytes, SpliceFlags::NONBLOCK) {
            Ok(n @ 1..) => bytes -= n.min(bytes),
            Err(Errno::INTR) => {}
            _ => return,
        }
    }
}

/// Reads what is there, without waiting where another reader of the same pipe was faster.
fn read_ready(fd: &OwnedFd, buf: &mut [u8]) -> rustix::io::Result<usize> {
    use std::io::IoSliceMut;
    /// At the place where the file is, or of a stream.
    const HERE: u64 = u64::MAX;
    match rustix::io::preadv2(fd, &mut [IoSliceMut::new(buf)], HERE, rustix::io::ReadWriteFlags::NOWAIT) {
        // Not every kind of file can say that it would wait; and one whose bytes are on a disk has to.
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => rustix::io::read(fd, buf),
        Err(Errno::AGAIN) if is_file(fd) => rustix::io::read(fd, buf),
        read => read,
    }
}

fn is_file(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file())
}

/// Another reading end of the pipe that this one writes.
fn reader(writing: &OwnedFd) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", writing.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};

    use super::*;

    /// The program's end of its standard input, and the source that fills it from `from`.
    fn program(from: OwnedFd) -> (File, InputSource) {
        let (theirs, ours) = incoming().unwrap();
        (File::from(theirs), InputSource::new(ours, Input::Fd(from), false))
    }

    fn pipe(bytes: &[u8]) -> (File, OwnedFd) {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        File::from(writing).write_all(bytes).unwrap();
        (File::from(reading.try_clone().unwrap()), reading)
    }

    /// Moves what can be moved at the moment.
    fn pump(source: &mut InputSource) {
        let mut buf = buffer();
        let ready = |fd: BorrowedFd<'_>, events| {
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, events)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0
        };
        use rustix::event::PollFlags;
        loop {
            if source.poll_to().is_some_and(|to| ready(to, PollFlags::OUT)) {
                source.write();
            } else if source.poll_from().is_some_and(|from| ready(from, PollFlags::IN)) {
                source.read(&mut buf);
            } else {
                return;
            }
        }
    }

    fn rest(mut caller: &File) -> String {
        let mut text = String::new();
        caller.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn what_a_program_does_not_read_of_a_pipe_stays_in_it() {
        for (taken, left) in [(0, "one\ntwo\n"), (1, "ne\ntwo\n"), (8, "")] {
            let (caller, from) = pipe(b"one\ntwo\n");
            let (mut theirs, mut source) = program(from);
            pump(&mut source);
            theirs.read_exact(&mut vec![0; taken]).unwrap();
            pump(&mut source);
            drop(source);
            assert_eq!(rest(&caller), left, "{taken}");
        }
    }

    #[test]
    fn what_a_program_does_not_read_of_a_file_is_read_again() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b"one\n", &b"x".repeat(100_000)[..]].concat()).unwrap();
        for taken in [0, 4, 5_000, 100_004] {
            file.rewind().unwrap();
            let (mut theirs, mut source) = program(file.try_clone().unwrap().into());
            let mut read = 0;
            while read < taken {
                pump(&mut source);
                let some = (taken - read).min(3_000);
                theirs.read_exact(&mut vec![0; some]).unwrap();
                read += some;
            }
            pump(&mut source);
            drop((theirs, source));
            assert_eq!(file.stream_position().unwrap(), taken as u64);
        }
    }

    #[test]
    fn a_program_that_fills_its_own_input_moves_a_file_back_to_its_start_at_most() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"taken by the caller\nrest\n").unwrap();
        file.seek(std::io::SeekFrom::Start(20)).unwrap();
        let (mut theirs, mut source) = program(file.try_clone().unwrap().into());
        pump(&mut source);
        theirs.read_exact(&mut [0; 5]).unwrap();
        // The source has closed its end.
        let own = rustix::fs::open(format!("/proc/self/fd/{}", theirs.as_raw_fd()), OFlags::WRONLY, Mode::empty());
        File::from(own.unwrap()).write_all(&[b'x'; 1000]).unwrap();
        drop((theirs, source));
        assert_eq!(file.stream_position().unwrap(), 20);
    }

    #[test]
    fn a_file_that_fills_the_pipe_is_read_again_when_the_program_is_gone() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&b"x".repeat(300_000)).unwrap();
        for taken in [0, 3] {
            file.rewind().unwrap();
            let (mut theirs, mut source) = program(file.try_clone().unwrap().into());
            pump(&mut source);
            theirs.read_exact(&mut vec![0; taken]).unwrap();
            drop(theirs);
            pump(&mut source);
            drop(source);
            assert_eq!(file.stream_position().unwrap(), taken as u64);
        }
    }

    #[test]
    fn a_program_that_ends_before_its_input_is_copied_takes_none() {
        let (caller, from) = pipe(b"one\n");
        let (theirs, mut source) = program(from);
        drop(theirs);
        pump(&mut source);
        assert!(source.to.is_none());
        drop(source);
        assert_eq!(rest(&caller), "one\n");
    }

    #[test]
    fn input_that_comes_in_pieces_stays_as_far_as_it_is_not_read() {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (caller, mut feed) = (File::from(reading.try_clone().unwrap()), File::from(writing));
        let (mut theirs, mut source) = program(reading);
        for piece in [b"a\n", b"b\n"] {
            feed.write_all(piece).unwrap();
            pump(&mut source);
            let mut read = [0; 2];
            theirs.read_exact(&mut read).unwrap();
            assert_eq!(&read, piece);
            pump(&mut source);
        }
        feed.write_all(b"c\nd\n").unwrap();
        pump(&mut source);
        drop((theirs, source, feed));
        assert_eq!(rest(&caller), "c\nd\n");
    }

    #[test]
    fn a_program_that_enlarges_its_pipe_gets_all_of_its_input() {
        let (_caller, from) = pipe(&b"y".repeat(20_000));
        let (mut theirs, mut source) = program(from);
        pump(&mut source);
        rustix::pipe::fcntl_setpipe_size(&theirs, 1 << 20).unwrap();
        let mut all = 0;
        while all < 20_000 {
            pump(&mut source);
            all += theirs.read(&mut [0; 100]).unwrap();
        }
        assert_eq!(all, 20_000);
    }

    #[test]
    fn a_program_that_enlarges_its_pipe_and_reads_nothing_takes_none() {
        let (caller, from) = pipe(b"one\ntwo\n");
        let (theirs, mut source) = program(from);
        pump(&mut source);
        for size in [8192, 1 << 20] {
            rustix::pipe::fcntl_setpipe_size(&theirs, size).unwrap();
            pump(&mut source);
        }
        drop((theirs, source));
        assert_eq!(rest(&caller), "one\ntwo\n");
    }

    #[test]
    fn a_file_is_where_it_was_until_the_run_ends() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one\ntwo\n").unwrap();
        file.rewind().unwrap();
        let (mut theirs, mut source) = program(file.try_clone().unwrap().into());
        pump(&mut source);
        theirs.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(file.stream_position().unwrap(), 0, "killed here, this process has taken nothing");
        drop((theirs, source));
        assert_eq!(file.stream_position().unwrap(), 4);
    }

    #[test]
    fn a_program_gets_all_of_a_pipe_and_its_end() {
        let bytes: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || File::from(writing).write_all(&sent));
        let (mut theirs, mut source) = program(reading);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).map(|_| all)
        });
        while source.to.is_some() {
            pump(&mut source);
            std::thread::sleep(Duration::from_micros(200));
        }
        writer.join().unwrap().unwrap();
        assert!(reader.join().unwrap().unwrap() == bytes);
    }

    #[test]
    fn a_pipe_that_another_reader_empties_and_one_that_is_closed_do_no_harm() {
        let (mut caller, from) = pipe(b"one\n");
        let (mut theirs, mut source) = program(from);
        pump(&mut source);
        caller.read_exact(&mut [0; 4]).unwrap();
        theirs.read_exact(&mut [0; 4]).unwrap();
        pump(&mut source);
        assert!(source.to.is_none(), "that was its end");
        drop(source);
        let (caller, from) = pipe(b"one\n");
        let (theirs, mut source) = program(from);
        pump(&mut source);
        drop(theirs);
        pump(&mut source);
        assert!(source.to.is_none());
        drop(source);
        assert_eq!(rest(&caller), "one\n");
    }
}
