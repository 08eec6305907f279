//! Which error the last system call of this thread failed with, as a number: safe between fork and exec.

/// Of the call that has just failed.
pub(super) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
