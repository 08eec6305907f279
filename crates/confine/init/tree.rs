//! The sandbox's processes as a whole: reaping them, ending them, and what they used. Starts none.

use crate::plan::MappedPlan;
use crate::report::weakened;
use crate::sys::{self, PollFd};
use crate::uapi::*;
use crate::wire::{fd, flag, step};

/// The most memory that any one process had that has been reaped, KiB; 0 where none has.
pub fn most_kib() -> u32 {
    let mut usage = [0u64; 18]; // struct rusage: two times of two words each, then ru_maxrss
    match sys::getrusage(RUSAGE_CHILDREN, usage.as_mut_ptr()) {
        Ok(_) => usage[4].min(u64::from(u32::MAX)) as u32,
        Err(_) => 0,
    }
}

/// Reaps everything that has ended; the wait status of `main` when it is among them.
pub fn reap(main: i32) -> Option<i32> {
    let mut found = None;
    loop {
        let mut st = 0;
        match sys::wait4(-1, &mut st, WNOHANG, 0) {
            Ok(0) => return found,
            Ok(pid) if pid as i32 == main => found = Some(st),
            Ok(_) => {}
            Err(errno::EINTR) => {}
            Err(_) => return found,
        }
    }
}

/// Sends a signal to the program's process group, and has it go on where it was stopped, so that it can act on the signal.
pub fn signal(main: i32, signal: i32) {
    for signal in [signal, SIGCONT] {
        // ESRCH: the group has ended.
        if let Err(e) = sys::kill(-main, signal)
            && e != errno::ESRCH
        {
            weakened(step::INIT, e);
        }
    }
}

/// Ends every process of the sandbox but init. In the jail the kernel ends everything with us, but only after it has closed our files, and a call that waits for our
/// answer would go on then: so everything is killed first. Without a pid namespace: kill children until there are none, each
/// orphan becoming a child of ours as its parent dies.
pub fn end(plan: &MappedPlan) {
    if plan.has(flag::JAIL) || plan.has(flag::CONTAINER) {
        // All of the namespace but us; ESRCH when no process is left.
        if let Err(e) = sys::kill(-1, SIGKILL)
            && e != errno::ESRCH
        {
            weakened(step::INIT, e);
        }
        return;
    }
    let mut rounds = 0;
    while rounds < 10_000 {
        rounds += 1;
        let mut buf = [0u8; 4096];
        let Ok(f) = sys::openat(AT_FDCWD, c"/proc/thread-self/children".as_ptr().cast(), O_RDONLY | O_CLOEXEC, 0)
        else {
            break;
        };
        let n = sys::read(f as i32, buf.as_mut_ptr(), buf.len()).unwrap_or(0);
        if sys::close(f as i32).is_err() {
            break;
        }
        let mut pid = 0i32;
        let mut any = false;
        for &b in &buf[..n] {
            if b.is_ascii_digit() {
                pid = pid.wrapping_mul(10).wrapping_add((b - b'0') as i32);
            } else {
                if pid > 1 {
                    any = true;
                    // ESRCH only means that it is gone already.
                    if let Err(e) = sys::kill(pid, SIGKILL)
                        && e != errno::ESRCH
                    {
                        weakened(step::INIT, e);
                    }
                }
                pid = 0;
            }
        }
        let mut st = 0;
        if !any {
            if let Err(errno::EINTR) = sys::wait4(-1, &mut st, WNOHANG, 0) {
                continue;
            }
            break;
        }
        // One blocking wait a round is enough: the others were killed as well and are reaped without blocking.
        if sys::wait4(-1, &mut st, 0, 0).is_ok() {
            while sys::wait4(-1, &mut st, WNOHANG, 0).is_ok_and(|q| q != 0) {}
        }
    }
}

/// How long the owner has to read the cgroup, seconds and nanoseconds.
const LINGER: [u64; 2] = [2, 0];

/// Waits until the owner has read the container's cgroup, which goes with its last process, this one; the owner then closes
/// the lifeline.
pub fn linger(plan: &MappedPlan) {
    if plan.has(flag::LINGER) {
        let mut lifeline = [PollFd { fd: fd::LIFELINE, events: POLLIN, revents: 0 }];
        while let Err(errno::EINTR) = sys::ppoll(lifeline.as_mut_ptr(), 1, LINGER.as_ptr(), core::ptr::null(), 8) {}
    }
}
