//! Sealed memfds: init's program, created once per process, and a plan per run.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, write};

static INIT_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/init"));

/// Init's program, for container runtimes, which start it from a file.
pub fn init_bytes() -> &'static [u8] {
    INIT_PROGRAM
}

fn filled(name: &str, flags: MemfdFlags, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create(name, flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = write(&file, rest)?;
        rest = &rest[n..];
    }
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(file)
}

/// The init program as a sealed memfd; the same one for every run of this process.
///
/// # Errors
/// memfd_create(2) or sealing fails, for instance where `vm.memfd_noexec` forbids executable memfds.
pub fn init_program() -> io::Result<BorrowedFd<'static>> {
    static INIT: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(fd) = INIT.get() {
        return Ok(fd.as_fd());
    }
    // Before Linux 6.3 the flag is unknown, and every memfd is executable.
    let made = filled("cofferdam-init", MemfdFlags::from_bits_retain(0x10), INIT_PROGRAM).or_else(|e| {
        if Errno::from_io_error(&e) == Some(Errno::INVAL) {
            filled("cofferdam-init", MemfdFlags::empty(), INIT_PROGRAM)
        } else {
            Err(e)
        }
    })?;
    Ok(INIT.get_or_init(|| made).as_fd())
}

/// A plan as a sealed memfd.
///
/// # Errors
/// memfd_create(2), writing or sealing fails.
pub fn plan(bytes: &[u8]) -> io::Result<OwnedFd> {
    filled("cofferdam-plan", MemfdFlags::empty(), bytes)
}
