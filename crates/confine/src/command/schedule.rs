//! Priority, scheduling class and processors on behalf of a command: those of the very thread that asks, which C libraries
//! name by its number. Any other number could be another's by the time that it is used, and the kernel asks for no more
//! than the same user: so no other process is changed.

use std::os::fd::OwnedFd;

use super::caller::WaitingThread;
use super::errno::errno;
use super::notification::{SeccompNotification, is_valid};

/// Calls that are about scheduling. What they name as 0 is the caller itself, and needs no check.
pub const CALLS: [&str; 6] =
    ["setpriority", "ioprio_set", "sched_setparam", "sched_setscheduler", "sched_setattr", "sched_setaffinity"];

/// Longest structure that is taken from memory: a page, as by the kernel.
const MOST: u64 = 4096;

pub(super) fn is_one(name: &str) -> bool {
    CALLS.contains(&name)
}

/// Changes it, or says why not.
pub(super) fn set(listener: &OwnedFd, call: &SeccompNotification, name: &str) -> Result<(), i32> {
    let caller = WaitingThread::new(call.pid);
    let a = call.args;
    // Which kind of number it is stands before it: that of a process (or thread), a group, a user.
    let thread = match name {
        "setpriority" if a[0] as u32 == PRIO_PROCESS => a[1],
        "ioprio_set" if a[0] as u32 == IOPRIO_WHO_PROCESS => a[1],
        "setpriority" | "ioprio_set" => return Err(libc::EPERM),
        _ => a[0],
    } as u32;
    if thread != call.pid {
        return Err(libc::EPERM);
    }
    // What lies in the caller's memory, as long as the call says; 8 bytes more, so that no kernel reads beyond it.
    let mut memory = Vec::new();
    let mut take = |address: u64, length: u64| {
        if length > MOST {
            return Err(libc::EINVAL);
        }
        memory = vec![0u8; length as usize + 8];
        caller.read(address, &mut memory[..length as usize])
    };
    match name {
        "sched_setparam" => take(a[1], 4)?,
        "sched_setscheduler" => take(a[2], 4)?,
        "sched_setaffinity" => take(a[2], (a[1] as u32).into())?,
        "sched_setattr" => {
            // The structure begins with its size, which is 48 where it says 0.
            let mut size = [0u8; 4];
            caller.read(a[1], &mut size)?;
            let size = u32::from_ne_bytes(size);
            take(a[1], if size == 0 { 48 } else { size.max(4).into() })?;
            // It was read once more: what is taken is what was looked at.
            memory[..4].copy_from_slice(&size.to_ne_bytes());
        }
        _ => {}
    }
    caller.is_like_us()?;
    is_valid(listener, call)?;
    let (thread, at) = (thread as i32, memory.as_ptr());
    // SAFETY: numbers, and the address of bytes that live until the calls are over, as long as each of them reads. The thread
    // waits for us: its number belongs to no other.
    let done = unsafe {
        match name {
            "setpriority" => libc::syscall(libc::SYS_setpriority, PRIO_PROCESS, thread, a[2] as i32),
            "ioprio_set" => libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, a[2] as i32),
            "sched_setparam" => libc::syscall(libc::SYS_sched_setparam, thread, at),
            "sched_setscheduler" => libc::syscall(libc::SYS_sched_setscheduler, thread, a[1] as i32, at),
            "sched_setattr" => libc::syscall(libc::SYS_sched_setattr, thread, at, a[2] as u32),
            "sched_setaffinity" => libc::syscall(libc::SYS_sched_setaffinity, thread, a[1] as u32, at),
            _ => return Err(libc::EPERM),
        }
    };
    if done == 0 { Ok(()) } else { Err(errno()) }
}

/// What `setpriority` calls a process.
const PRIO_PROCESS: u32 = 0;
/// What `ioprio_set` does.
const IOPRIO_WHO_PROCESS: u32 = 1;
