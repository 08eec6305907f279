//! Waiting for init and reading what its tree used.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What a process and its reaped descendants used. Not its memory: of that wait(2) counts what its starter had, whose memory
/// it shared until it was exec'd (CLONE_VM).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessUsage {
    /// User and system time, microseconds.
    pub cpu_us: u64,
}

/// The pid of the process that connected to this Unix socket, as this process sees it; 0 when it lives in a pid namespace that is
/// not ours to see (`unix(7)`, SO_PEERCRED).
///
/// # Errors
/// getsockopt(2).
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer has the size that is passed, and any bytes are a value of it.
    let r = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut size,
        )
    };
    if r == 0 { Ok(found.pid) } else { Err(io::Error::last_os_error()) }
}

/// Whether two tasks use one table of descriptors (kcmp(2), `KCMP_FILES`).
///
/// # Errors
/// One of them has ended or is not ours to look at, or the kernel has no kcmp(2).
pub fn share_descriptors(one: i32, other: i32) -> io::Result<bool> {
    const KCMP_FILES: libc::c_int = 2;
    // SAFETY: numbers alone are passed.
    let r = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0 as libc::c_ulong, 0 as libc::c_ulong) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r == 0) }
}

/// Waits for the process of this pidfd and returns what its tree used; waitid(2) with the kernel's rusage argument.
///
/// # Errors
/// ECHILD when it is not a child of the calling process, or was reaped already.
pub fn wait(pidfd: BorrowedFd<'_>) -> io::Result<ProcessUsage> {
    wait_status(pidfd).map(|(_, usage)| usage)
}

/// The same, with the status word of wait(2): the exit code in the second byte, or the signal in the first.
///
/// # Errors
/// As [`wait`].
pub fn wait_status(pidfd: BorrowedFd<'_>) -> io::Result<(i32, ProcessUsage)> {
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
            let usage = ProcessUsage { cpu_us: us(u.ru_utime) + us(u.ru_stime) };
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

/// The wait(2) status of a dead process, for any holder of its pidfd and not its parent alone (Linux 6.15,
/// PIDFD_GET_INFO). `None` where the kernel does not report it, or the process is not dead.
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

/// Interrupts (SIGINT) the process of this pidfd, which leads a process group and has this number, and all of its group.
/// Already dead is success.
///
/// # Errors
/// EPERM when it is not ours to signal.
pub fn interrupt_group(pidfd: BorrowedFd<'_>, pid: i32) -> io::Result<()> {
    const PROCESS_GROUP: libc::c_uint = 1 << 2; // PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no siginfo is passed, and the descriptor is open.
    let r = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), libc::SIGINT, none, PROCESS_GROUP) };
    match (r, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        (_, e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        (_, e) if e.raw_os_error() == Some(libc::EINVAL) => interrupt_group_by_number(pidfd, pid),
        (_, e) => Err(e),
    }
}

/// By the group's number, which is its leader's: no other process can have it while the leader lives, and the kernel gives no number
/// again before it has used all others.
fn interrupt_group_by_number(pidfd: BorrowedFd<'_>, pid: i32) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut ended = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    if poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0 {
        return Ok(());
    }
    // 0 and 1 would be others' groups.
    let group = rustix::process::Pid::from_raw(pid).filter(|_| pid > 1).ok_or(io::ErrorKind::InvalidInput)?;
    match rustix::process::kill_process_group(group, rustix::process::Signal::INT) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(e.into()),
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process_group};

    use super::*;

    type Interrupt = fn(BorrowedFd<'_>, i32) -> io::Result<()>;

    #[test]
    fn an_interruption_reaches_a_whole_group_by_either_way() {
        for interrupt in [interrupt_group as Interrupt, interrupt_group_by_number] {
            let mut group = Command::new("sh");
            group.args(["-c", "echo there; sleep 60; exit 7"]).process_group(0).stdout(Stdio::piped());
            let mut child = group.spawn().unwrap();
            let mut there = [0; 6];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut there).unwrap();
            let pid = Pid::from_child(&child);
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            let begun = Instant::now();
            // A shell that is just starting its sleep may lose one.
            let status = loop {
                interrupt(pidfd.as_fd(), pid.as_raw_nonzero().get()).unwrap();
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                assert!(begun.elapsed() < Duration::from_secs(10), "the shell goes on");
                std::thread::sleep(Duration::from_millis(20));
            };
            assert_eq!(status.signal(), Some(libc::SIGINT));
            while test_kill_process_group(pid).is_ok() {
                assert!(begun.elapsed() < Duration::from_secs(10), "its sleep goes on");
                std::thread::sleep(Duration::from_millis(1));
            }
            interrupt(pidfd.as_fd(), pid.as_raw_nonzero().get()).unwrap();
        }
    }
}
