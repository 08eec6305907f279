//! The signals of threads that this project starts in a caller's process, and of its own programs.

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

/// Has this process learn of its children's ends. A caller that ignores SIGCHLD passes that on by exec, and then wait(2) finds no
/// child that has ended: the status of every program would be lost.
pub fn wait_for_children() {
    // SAFETY: as in `ignore_file_size_limit`; the default action has no handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut());
    }
}

/// Makes a write beyond the process's limit of a file's size (RLIMIT_FSIZE) fail with EFBIG and nothing else. A handler that does
/// nothing, since a program that is started by exec has the default again, and would keep a signal that is ignored.
pub fn ignore_file_size_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: an action is plain data; all of it that the call reads is set, and the handler touches nothing. The call fails
    // for an unknown signal or a bad address alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
    }
}
