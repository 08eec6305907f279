//! Waiting for init and reading what its tree used.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What a process and its reaped descendants used. Not its memory: of that wait(2) counts what its starter had, whose memory
/// it shared until it was exec'd (CLONE_VM).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time, microseconds.
    pub cpu_us: u64,
}

/// Waits for the process of this pidfd and returns what its tree used; waitid(2) with the kernel's rusage argument.
///
/// # Errors
/// ECHILD when it is not a child of the calling process, or was reaped already.
pub fn wait(pidfd: BorrowedFd<'_>) -> io::Result<Usage> {
    wait_status(pidfd).map(|(_, usage)| usage)
}

/// The same, with the status word of wait(2): the exit code in the second byte, or the signal in the first.
///
/// # Errors
/// As [`wait`].
pub fn wait_status(pidfd: BorrowedFd<'_>) -> io::Result<(i32, Usage)> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: both buffers have the size that the kernel writes; P_PIDFD takes a descriptor, which is open.
        let r = unsafe {
            libc::syscall(
                libc::SYS_waitid,
                libc::P_PIDFD,
                pidfd.as_fd().as_raw_fd(),
                info.as_mut_ptr(),
                libc::WEXITED,
                usage.as_mut_ptr(),
            )
        };
        if r == 0 {
            // SAFETY: the buffer was zeroed and the kernel filled it; every field is an integer.
            let u = unsafe { usage.assume_init() };
            let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
            let usage = Usage { cpu_us: us(u.ru_utime) + us(u.ru_stime) };
            // SAFETY: as for the usage; the kernel filled the fields of SIGCHLD, of which the status is one.
            let (code, value) = unsafe {
                let info = info.assume_init();
                (info.si_code, info.si_status())
            };
            let status = if code == libc::CLD_EXITED { (value & 0xff) << 8 } else { value & 0x7f };
            return Ok((status, usage));
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// The wait(2) status of a process that is dead, asked by anybody who holds its pidfd: not its parent alone (Linux 6.15,
/// PIDFD_GET_INFO). `None` where the kernel does not tell, or it is not dead.
pub fn exit_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    /// `struct pidfd_info` (linux/pidfd.h), as far as its first version goes.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const EXIT: u64 = 1 << 3;
    /// `_IOWR(0xFF, 11, struct pidfd_info)`.
    const GET_INFO: libc::c_ulong = 0xc000_ff0b | (size_of::<Info>() as libc::c_ulong) << 16;
    let mut info = Info { mask: EXIT, ..Info::default() };
    // SAFETY: the request carries the size of the buffer, and the kernel writes no more than that.
    let r = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (r == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// Kills the process of this pidfd. Already dead is success.
///
/// # Errors
/// EPERM when it is not ours to kill.
pub fn kill(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    send(pidfd, rustix::process::Signal::KILL)
}

/// Interrupts (SIGINT) the process of this pidfd and everything in its process group. Already dead is success.
///
/// Where the kernel cannot signal a group by a pidfd (before Linux 6.9) the process alone is interrupted.
///
/// # Errors
/// EPERM when it is not ours to signal.
pub fn interrupt_group(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    const PROCESS_GROUP: libc::c_uint = 1 << 2; // PIDFD_SIGNAL_PROCESS_GROUP
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no siginfo is passed, and the descriptor is open.
    let r = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), libc::SIGINT, none, PROCESS_GROUP) };
    match (r, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        (_, e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        (_, e) if e.raw_os_error() == Some(libc::EINVAL) => send(pidfd, rustix::process::Signal::INT),
        (_, e) => Err(e),
    }
}

/// Lets the process of this pidfd run again when something stopped it. Already dead is success.
///
/// # Errors
/// EPERM when it is not ours to signal.
pub fn proceed(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    send(pidfd, rustix::process::Signal::CONT)
}

fn send(pidfd: BorrowedFd<'_>, signal: rustix::process::Signal) -> io::Result<()> {
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
