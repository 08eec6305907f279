//! Reads and writes the small text files of a cgroup directory, relative to a directory fd.
//!
//! Owns the system calls and the number formats, knows no controller. Every open is `O_CLOEXEC`, and no path
//! is ever resolved twice: the directory fd is what decides which cgroup is meant.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};

/// Largest file read whole into a stack buffer; every file but `cgroup.procs` is far smaller.
const SMALL: usize = 2048;

/// Opens a file of the cgroup directory.
pub(super) fn open(dir: impl AsFd, name: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory below `dir`.
pub(super) fn open_dir(dir: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// Writes one value. A cgroup file takes a value in one `write`, so a short write is an error.
pub(super) fn write(dir: impl AsFd, name: &CStr, value: &[u8]) -> io::Result<()> {
    let file = open(dir, name, OFlags::WRONLY)?;
    let written = rustix::io::retry_on_intr(|| rustix::io::write(&file, value))?;
    if written == value.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::WriteZero)) }
}

/// Writes a decimal number.
pub(super) fn write_number(dir: impl AsFd, name: &CStr, value: u64) -> io::Result<()> {
    let mut text = [0u8; 20];
    write(dir, name, decimal(value, &mut text))
}

/// Formats without allocating, for paths that run after a sandbox has been created.
pub(super) fn decimal(mut value: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &buffer[at..];
        }
    }
}

/// A small file's text.
pub(super) struct Small {
    bytes: [u8; SMALL],
    len: usize,
}

impl Small {
    /// The text; not UTF-8 reads as empty, which no kernel file is.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }

    /// The value of a `key value` line, as in `memory.events` or `cpu.stat`.
    pub(super) fn key(&self, key: &str) -> Option<u64> {
        self.text().lines().find_map(|line| {
            let (name, value) = line.split_once(' ')?;
            if name == key { value.trim().parse().ok() } else { None }
        })
    }

    /// The file's only number; `max` is `u64::MAX`.
    pub(super) fn number(&self) -> Option<u64> {
        match self.text().trim() {
            "max" => Some(u64::MAX),
            text => text.parse().ok(),
        }
    }

    /// Whether a space-separated list holds this word.
    pub(super) fn has_word(&self, word: &str) -> bool {
        self.text().split_ascii_whitespace().any(|w| w == word)
    }
}

/// Reads a file that fits into one `read`.
pub(super) fn read(dir: impl AsFd, name: &CStr) -> io::Result<Small> {
    read_fd(open(dir, name, OFlags::RDONLY)?)
}

/// Reads an open small file from its current position. One `read`: kernfs hands over up to a page at once.
pub(super) fn read_fd(file: impl AsFd) -> io::Result<Small> {
    let mut small = Small { bytes: [0; SMALL], len: 0 };
    small.len = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut small.bytes[..]))?;
    Ok(small)
}

/// Reads the single number of a file; a file of another form is an error.
pub(super) fn read_number(dir: impl AsFd, name: &CStr) -> io::Result<u64> {
    read(dir, name)?.number().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Reads the pids of `cgroup.procs`, however many there are. A pid of 0 is a process that this pid
/// namespace cannot see.
pub(super) fn read_pids(dir: impl AsFd) -> io::Result<Vec<i32>> {
    let text = read_whole(open(dir, c"cgroup.procs", OFlags::RDONLY)?)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// Whether no process is directly inside.
pub(super) fn is_empty(dir: impl AsFd) -> io::Result<bool> {
    let file = open(dir, c"cgroup.procs", OFlags::RDONLY)?;
    Ok(rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut [0u8; 1][..]))? == 0)
}

/// Reads a file of any length in large pieces: the standard library starts with small ones, and for files of
/// unknown size each is a system call.
pub(super) fn read_whole(file: impl AsFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let start = bytes.len();
        bytes.resize(start + 16 * 1024, 0);
        let n = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut bytes[start..]))?;
        bytes.truncate(start + n);
        if n == 0 {
            return Ok(bytes);
        }
    }
}

/// Whether the file exists below `dir`.
pub(super) fn exists(dir: impl AsFd, name: &CStr) -> bool {
    rustix::fs::accessat(dir, name, rustix::fs::Access::EXISTS, AtFlags::empty()).is_ok()
}

/// Why the effective ids may not write this file or directory, if they may not.
pub(super) fn writable(dir: impl AsFd, name: &CStr) -> io::Result<()> {
    Ok(rustix::fs::accessat(dir, name, rustix::fs::Access::WRITE_OK, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(text: &str) -> Small {
        let mut small = Small { bytes: [0; SMALL], len: text.len() };
        small.bytes[..text.len()].copy_from_slice(text.as_bytes());
        small
    }

    #[test]
    fn numbers_are_formatted_without_leading_zeroes() {
        let mut buffer = [0; 20];
        assert_eq!(decimal(0, &mut buffer), b"0");
        assert_eq!(decimal(1_048_576, &mut buffer), b"1048576");
        assert_eq!(decimal(u64::MAX, &mut buffer), b"18446744073709551615");
    }

    #[test]
    fn a_key_is_matched_whole_and_not_as_a_prefix() {
        let events = small("low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 1\n");
        assert_eq!(events.key("oom"), Some(1));
        assert_eq!(events.key("oom_kill"), Some(3));
        assert_eq!(events.key("kill"), None);
    }

    #[test]
    fn max_is_a_number_and_words_are_matched_whole() {
        assert_eq!(small("max\n").number(), Some(u64::MAX));
        assert_eq!(small("12\n").number(), Some(12));
        assert_eq!(small("x\n").number(), None);
        assert!(small("cpuset cpu io\n").has_word("cpu"));
        assert!(!small("cpuset io\n").has_word("cpu"));
    }
}
