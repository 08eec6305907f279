//! One call that the filter handed over, as the kernel describes it to the listener, and whether it still waits for its
//! answer. Decides nothing and performs nothing.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::uapi::SECCOMP_IOCTL_NOTIF_ID_VALID;

/// `struct seccomp_notif`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SeccompNotification {
    pub(super) id: u64,
    pub(super) pid: u32,
    pub(super) flags: u32,
    pub(super) nr: i32,
    pub(super) arch: u32,
    pub(super) instruction_pointer: u64,
    pub(super) args: [u64; 6],
}

/// Whether the thread that made the call still waits for its answer: what was opened by its number was its own, then.
pub(super) fn is_valid(listener: &OwnedFd, call: &SeccompNotification) -> Result<(), i32> {
    // SAFETY: takes the address of a number.
    let valid =
        unsafe { libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_ID_VALID as _, &raw const call.id) } == 0;
    if valid { Ok(()) } else { Err(libc::EINTR) }
}
