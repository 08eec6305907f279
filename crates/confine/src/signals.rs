//! The signals of threads that this project starts in a caller's process.

/// Blocks every signal on this thread. The process's signals are for the caller's own threads; and what a thread brings
/// upon itself by writing to a peer that is gone (SIGPIPE, against which not every call has a flag) is an error there and
/// nothing else, whatever the process does with that signal.
pub fn block() {
    // SAFETY: a set of signals is plain data, filled by sigfillset before it is used; the mask is this thread's own.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
