//! The thread that made a notified call, by its number: its memory, directories, descriptors, terminal, signals, umask.
//!
//! Only reads. Most of it stands in /proc alone; a number may be used again meanwhile, so a caller that decides on an answer
//! asks the listener afterwards whether the call still waits.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::sys::{self, Str};
use crate::uapi::*;

/// The name under /proc of the directory that a thread's relative paths start from, NUL-terminated.
pub fn base_link(pid: u32, dir: i32, text: &mut [u8; 64]) {
    let mut n = 0;
    let mut put = |s: &[u8]| {
        text[n..n + s.len()].copy_from_slice(s);
        n += s.len();
    };
    let mut digits = [0u8; 24];
    put(b"/proc/");
    put(number(pid as u64, &mut digits));
    if dir == AT_FDCWD || dir < 0 {
        put(b"/cwd");
    } else {
        put(b"/fd/");
        put(number(dir as u64, &mut digits));
    }
}

/// A number in decimal.
pub fn number(n: u64, digits: &mut [u8; 24]) -> &[u8] {
    let start = sys::decimal(n, digits);
    let skip = start as usize - digits.as_ptr() as usize;
    &digits[skip..23]
}

/// A copy of the program's own descriptor.
pub fn borrow(pid: u32, n: i32) -> Result<i32, i32> {
    let p = sys::pidfd_open(pid as i32, PIDFD_THREAD).or_else(|_| sys::pidfd_open(pid as i32, 0))? as i32;
    let f = sys::pidfd_getfd(p, n, 0);
    sys::close(p)?;
    f.map(|f| f as i32).map_err(|e| if e == errno::EBADF { errno::ENOENT } else { e })
}

/// What `/dev/tty` means to a process: the terminal of its session, found by number, for to us it means none.
pub fn terminal_of(pid: u32, flags: i32) -> Result<i32, i32> {
    let mut buf = [0u8; 512];
    let stat = proc_file(pid, b"/stat", &mut buf)?;
    let after_name = stat.iter().rposition(|&b| b == b')').ok_or(errno::ENXIO)?;
    // state, ppid, pgrp, session, tty_nr (proc_pid_stat(5))
    let field = stat[after_name..].split(|&b| b == b' ').nth(5).ok_or(errno::ENXIO)?;
    let tty = field.iter().fold(0u32, |n, b| n.wrapping_mul(10).wrapping_add(b.wrapping_sub(b'0') as u32));
    let (major, minor) = (tty >> 8 & 0xfff, tty & 0xff | tty >> 12 & 0xfff00);
    if major != 136 {
        return Err(errno::ENXIO); // no terminal, or none of the sandbox's own
    }
    let mut path = [0u8; 40];
    let mut digits = [0u8; 24];
    let text = number(minor as u64, &mut digits);
    path[..9].copy_from_slice(b"/dev/pts/");
    path[9..9 + text.len()].copy_from_slice(text);
    let how = flags & !(O_CREAT | O_EXCL | O_TRUNC) | O_NOCTTY | O_CLOEXEC;
    Ok(sys::openat(AT_FDCWD, path.as_ptr(), how, 0)? as i32)
}

/// Opens a file of a process below /proc.
pub fn open_proc(pid: u32, name: &[u8]) -> Result<i32, i32> {
    let mut path = [0u8; 48];
    let mut digits = [0u8; 24];
    let text = number(pid as u64, &mut digits);
    path[..6].copy_from_slice(b"/proc/");
    path[6..6 + text.len()].copy_from_slice(text);
    path[6 + text.len()..6 + text.len() + name.len()].copy_from_slice(name);
    Ok(sys::openat(AT_FDCWD, path.as_ptr(), O_RDONLY | O_CLOEXEC, 0)? as i32)
}

/// The start of a file of a process below /proc.
fn proc_file<'b>(pid: u32, name: &[u8], buf: &'b mut [u8]) -> Result<&'b [u8], i32> {
    let f = open_proc(pid, name)?;
    let n = sys::read(f, buf.as_mut_ptr(), buf.len());
    sys::close(f)?;
    Ok(&buf[..n?])
}

/// Whether a signal waits for a thread that waits for us: while it does, only a fatal one reaches it, and none that
/// comes behind one that is handled.
pub fn has_signal(pid: u32) -> Result<bool, i32> {
    let mut buf = [0u8; 2048];
    let status = proc_file(pid, b"/status", &mut buf)?;
    let field = |name: &[u8], base: u64| -> Result<u64, i32> {
        let mut lines = status.split(|&b| b == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(name)).ok_or(errno::EINVAL)?;
        let digit = |b: u8| (b as char).to_digit(16).unwrap_or(0) as u64;
        Ok(value.iter().fold(0, |n, &b| n * base + digit(b)))
    };
    let mut pending = field(b"SigPnd:\t", 16)?;
    if field(b"Tgid:\t", 10)? == pid as u64 {
        pending |= field(b"ShdPnd:\t", 16)?; // the first thread is the one that the kernel gives it to when it can
    }
    Ok(pending & !(field(b"SigBlk:\t", 16)? | field(b"SigIgn:\t", 16)?) != 0)
}

/// The process whose umask was asked for last, and its status file, kept open: a descriptor stays its task's own, so a
/// number that is used again only makes the read fail.
static UMASK_PID: AtomicU32 = AtomicU32::new(0);
static UMASK_FILE: AtomicI32 = AtomicI32::new(-1);

/// The umask of a process, from its status file; it has no system call.
pub fn umask_of(pid: u32) -> Result<u32, i32> {
    let mut buf = [0u8; 512];
    let mut n = 0;
    if UMASK_PID.load(Ordering::Relaxed) == pid {
        n = sys::pread(UMASK_FILE.load(Ordering::Relaxed), buf.as_mut_ptr(), buf.len(), 0).unwrap_or(0);
    }
    if n == 0 {
        let f = open_proc(pid, b"/status")?;
        let old = UMASK_FILE.swap(f, Ordering::Relaxed);
        UMASK_PID.store(pid, Ordering::Relaxed);
        if old >= 0 {
            sys::close(old)?;
        }
        n = sys::pread(f, buf.as_mut_ptr(), buf.len(), 0)?;
    }
    let buf = &buf[..n];
    let mut at = 0;
    while at + 12 < buf.len() {
        if &buf[at..at + 7] == b"Umask:\t" {
            return Ok(buf[at + 7..at + 11].iter().fold(0, |m, b| m * 8 + (b.wrapping_sub(b'0') & 7) as u32));
        }
        at += 1;
    }
    Ok(0o022)
}

/// Bytes of a program's memory; `EPERM` where it may not be looked at, as that of a program whose file can be executed and not
/// read. A container runtime's filter may refuse the call, and leave the file.
pub fn read_memory(pid: u32, from: usize, into: &mut [u8]) -> Result<usize, i32> {
    let (local, remote) = ([into.as_mut_ptr() as usize, into.len()], [from, into.len()]);
    let refused = match sys::process_vm_readv(pid as i32, local.as_ptr(), 1, remote.as_ptr(), 1, 0) {
        Err(e @ (errno::EPERM | errno::ENOSYS)) => e,
        read => return read,
    };
    // The process is there, whatever its directory in /proc says.
    let f = open_proc(pid, b"/mem").map_err(|e| if refused == errno::EPERM { errno::EPERM } else { e })?;
    let read = sys::pread(f, into.as_mut_ptr(), into.len(), from);
    sys::close(f)?;
    read
}

/// Reads a NUL-terminated string of the calling thread; cut at the buffer's end. Returns its length.
pub fn read_path(pid: u32, address: u64, buf: &mut [u8]) -> Result<usize, i32> {
    let mut have = 0;
    while have < buf.len() {
        let from = address.wrapping_add(have as u64) as usize;
        let page = 4096 - from % 4096; // a string may end just before a page that is not mapped
        let want = page.min(buf.len() - have);
        let n = read_memory(pid, from, &mut buf[have..have + want])?;
        if n == 0 {
            return Err(errno::EFAULT);
        }
        if let Some(end) = buf[have..have + n].iter().position(|&b| b == 0) {
            return Ok(have + end);
        }
        have += n;
    }
    Ok(have)
}

/// The name of a descriptor of init's own, NUL-terminated.
pub fn self_fd(buf: &mut [u8; 40], f: i32) -> Str {
    let mut digits = [0u8; 24];
    let text = number(f as u64, &mut digits);
    buf[..14].copy_from_slice(b"/proc/self/fd/");
    buf[14..14 + text.len()].copy_from_slice(text);
    buf.as_ptr()
}
