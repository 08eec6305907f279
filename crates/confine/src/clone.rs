//! A new process on a stack of its own, by `clone3`, or by `clone` where `clone3` is refused.
//!
//! The filters of container engines cannot read the flags of `clone3`, so they refuse it with ENOSYS (or EPERM) and allow
//! `clone`, whose flags they can read. Knows nothing of what runs in the process.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::sys;
use crate::uapi::CLONE_INTO_CGROUP;

/// What the new process is made with.
pub(crate) struct CloneRequest<'a> {
    /// `CLONE_*` flags, CLONE_VM among them; CLONE_PIDFD is added.
    pub flags: u64,
    /// Its stack: nothing else uses it while the process shares our memory.
    pub stack: &'a mut [u128],
    /// A cgroup v2 directory to be born in, which only `clone3` can do.
    pub cgroup: Option<i32>,
}

/// Runs `entry(arg)` in a new process; its pid and its pidfd. With CLONE_VFORK it has exec'd or ended on return.
///
/// # Errors
/// clone(2).
///
/// # Safety
/// `entry` never returns and touches nothing but what `arg` leads to, which with the stack outlives its use of it.
pub(crate) unsafe fn start(
    request: CloneRequest<'_>,
    entry: extern "C" fn(usize) -> !,
    arg: usize,
) -> io::Result<(i32, OwnedFd)> {
    let mut pidfd: i32 = -1;
    let size = size_of_val(request.stack);
    let bottom = request.stack.as_mut_ptr();
    let cgroup = request.cgroup.map_or(0, |_| CLONE_INTO_CGROUP);
    let args: [u64; 11] = [
        request.flags | libc::CLONE_PIDFD as u64 | cgroup,
        &raw mut pidfd as u64,
        0,
        0,
        libc::SIGCHLD as u64,
        bottom as u64,
        size as u64,
        0,
        0,
        0,
        request.cgroup.unwrap_or(0) as u64,
    ];
    // SAFETY: the stack is exclusively ours to give; the rest is the caller's promise.
    match unsafe { sys::clone3_on(&args, entry, arg) } {
        // SAFETY: clone3 succeeded with CLONE_PIDFD, so the kernel stored a new descriptor that is ours alone.
        Ok(pid) => Ok((pid as i32, unsafe { OwnedFd::from_raw_fd(pidfd) })),
        Err(libc::ENOSYS | libc::EPERM) if request.cgroup.is_none() => {
            let flags = request.flags as usize | libc::SIGCHLD as usize;
            // SAFETY: one past the end of the stack, which is 16-byte aligned as its items are.
            let top = unsafe { bottom.cast::<u8>().add(size) };
            // SAFETY: as for clone3.
            let pid = unsafe { sys::clone_on(flags, top, entry, arg) }.map_err(io::Error::from_raw_os_error)?;
            // It is a child of ours that has not been waited for, so its pid is its own even when it has ended.
            let pidfd = sys::pidfd_open(pid as i32, 0).map_err(io::Error::from_raw_os_error)?;
            // SAFETY: pidfd_open succeeded: a new descriptor that is ours alone.
            Ok((pid as i32, unsafe { OwnedFd::from_raw_fd(pidfd as i32) }))
        }
        Err(e) => Err(io::Error::from_raw_os_error(e)),
    }
}
