//! Signals on behalf of a command, for kernels whose Landlock does not hold them (before ABI 6): among its own processes,
//! and to no other. Its processes are those below the same child of the notifier's process; one that has lost its
//! parents cannot be attributed, and gets none.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::caller::WaitingThread;
use super::errno::errno;
use super::notification::{SeccompNotification, is_valid};

/// Calls that are about signals.
pub const CALLS: [&str; 6] = ["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"];

pub(super) fn is_one(name: &str) -> bool {
    CALLS.contains(&name)
}

/// Sends it, or says why not.
pub(super) fn send(listener: &OwnedFd, call: &SeccompNotification, name: &str) -> Result<(), i32> {
    let caller = WaitingThread::new(call.pid);
    caller.is_like_us()?;
    let own = group(call.pid as i32).ok_or(libc::EPERM)?;
    let branch = branch(own).ok_or(libc::EPERM)?;
    is_valid(listener, call)?;
    let a = call.args;
    let int = |n: usize| a[n] as i32;
    match name {
        "tgkill" if int(0) == own => thread(own, int(1), int(2)),
        "tkill" if group(int(0)) == Some(own) => thread(own, int(0), int(1)),
        "tgkill" => process(int(0), int(2), branch),
        "tkill" => process(group(int(0)).ok_or(libc::ESRCH)?, int(1), branch),
        "kill" => match int(0) {
            pid if pid > 0 => process(pid, int(1), branch),
            0 => processes(Some(process_group(own)?), int(1), branch),
            -1 => processes(None, int(1), branch),
            pid => processes(Some(-pid), int(1), branch),
        },
        // What comes with such a signal lies in memory; and no descriptor of a process goes by its number here.
        _ => Err(libc::EPERM),
    }
}

/// One thread of the caller's own process, which waits for us and so cannot be another by now.
fn thread(own: i32, tid: i32, signal: i32) -> Result<(), i32> {
    // SAFETY: takes numbers.
    done(unsafe { libc::syscall(libc::SYS_tgkill, own, tid, signal) })
}

/// One process, by a descriptor that is opened before it is looked at.
fn process(pid: i32, signal: i32, wanted: i32) -> Result<(), i32> {
    // SAFETY: takes numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(errno());
    }
    // SAFETY: the call succeeded: a new descriptor that is ours alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    if branch(pid) != Some(wanted) {
        return Err(libc::EPERM);
    }
    // SAFETY: takes a descriptor, which is open, and numbers.
    done(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, 0usize, 0) })
}

/// Every process of a group, or all, as far as they are the command's: as the kernel does, one that got it is enough.
fn processes(wanted: Option<i32>, signal: i32, branch: i32) -> Result<(), i32> {
    let mut result = Err(libc::ESRCH);
    for entry in fs::read_dir("/proc").map_err(|_| libc::EPERM)? {
        let name = entry.map_err(|_| libc::EPERM)?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if wanted.is_some_and(|wanted| process_group(pid) != Ok(wanted)) {
            continue;
        }
        match process(pid, signal, branch) {
            Ok(()) => result = Ok(()),
            Err(errno) if result == Err(libc::ESRCH) && errno != libc::ESRCH => result = Err(errno),
            Err(_) => {}
        }
    }
    result
}

fn done(value: i64) -> Result<(), i32> {
    if value == 0 { Ok(()) } else { Err(errno()) }
}

/// The group that a process is in.
fn process_group(pid: i32) -> Result<i32, i32> {
    // SAFETY: takes a number.
    let group = unsafe { libc::getpgid(pid) };
    if group >= 0 { Ok(group) } else { Err(errno()) }
}

/// The number on a line of a thread's status.
fn number(pid: i32, key: &str) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
}

/// The process of a thread.
fn group(tid: i32) -> Option<i32> {
    number(tid, "Tgid:")
}

/// The child of ours that a process descends from, or is.
fn branch(pid: i32) -> Option<i32> {
    let ours = std::process::id() as i32;
    let mut at = pid;
    // No chain of parents is longer than there are processes.
    for _ in 0..1 << 22 {
        let parent = number(at, "PPid:")?;
        if parent == ours {
            return Some(at);
        }
        if parent <= 1 {
            return None;
        }
        at = parent;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_the_child_that_everything_below_it_descends_from() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(branch(pid), Some(pid));
        assert_eq!(branch(std::process::id() as i32), None, "the caller itself is below none");
        assert_eq!(branch(1), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
