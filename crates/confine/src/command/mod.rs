//! Restrictions of a command of the caller's own: Landlock and seccomp, applied between fork and exec, without namespaces
//! and without init. Decides nothing: what the ruleset and the filter restrict is the caller's choice.
//!
//! ```text
//! caller: ruleset, filter, post ─ attach ─▶ Command ─ spawn ─ fork ─▶ child: enter ─ exec ─▶ program
//!                          └────  run_restricted ─▶ a restricted thread of the caller's spawns it (no copy of memory)
//! notifier (a thread of the caller's) ◀─ listener ─ child;   performs the calls that the filter hands over
//! ```
//!
//! Everything is prepared before fork. [`PreparedChild::enter`] is all that runs after it: a handful of system calls, no
//! allocation, no lock, no panic. Its failure reaches the caller of spawn as an error whose number says which call failed
//! ([`RestrictionFailure::of_spawn`]), because a number is all that can cross.

mod caller;
mod capability;
mod change;
mod errno;
mod notification;
mod notifier;
mod schedule;
mod signal;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use crate::landlock::Ruleset;
use crate::seccomp::classify::Insn;

pub use capability::has_capabilities;
pub use change::Trees;
use errno::errno;
pub use schedule::CALLS as SCHEDULING_CALLS;
pub use signal::CALLS as SIGNAL_CALLS;

/// Flags for `OpenOptions::custom_flags`: a descriptor that only names its path, which ends in no link.
pub const NAME_ONLY: i32 = libc::O_PATH | libc::O_NOFOLLOW;

/// What is done after fork, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum RestrictionStep {
    /// `prctl(PR_SET_NO_NEW_PRIVS)`: without it the next two are refused to every user but root.
    NoNewPrivileges = 1,
    /// `capset`: capabilities that no command keeps are given up.
    Capabilities = 2,
    /// `landlock_restrict_self`.
    Landlock = 3,
    /// `seccomp(SECCOMP_SET_MODE_FILTER)`.
    Filter = 4,
    /// The filter's listener is handed to the notifier.
    Listener = 5,
    /// The notifier is a thread of the process that spawns.
    Notifier = 6,
    /// `close_range(CLOSE_RANGE_CLOEXEC)`: descriptors of the caller's, with what they allow, stay the caller's.
    Descriptors = 7,
}

impl RestrictionStep {
    const ALL: [RestrictionStep; 7] = [
        RestrictionStep::NoNewPrivileges,
        RestrictionStep::Capabilities,
        RestrictionStep::Landlock,
        RestrictionStep::Filter,
        RestrictionStep::Listener,
        RestrictionStep::Notifier,
        RestrictionStep::Descriptors,
    ];

    /// The system call, as its manual page calls it.
    pub fn call(self) -> &'static str {
        match self {
            RestrictionStep::NoNewPrivileges => "prctl(PR_SET_NO_NEW_PRIVS)",
            RestrictionStep::Capabilities => "capset",
            RestrictionStep::Landlock => "landlock_restrict_self",
            RestrictionStep::Filter => "seccomp(SECCOMP_SET_MODE_FILTER)",
            RestrictionStep::Listener => "sendmsg of the filter's listener",
            RestrictionStep::Descriptors => "close_range",
            RestrictionStep::Notifier => "the way to the keeper, a thread of the process that made the command,",
        }
    }
}

/// A step that failed in the child, so that the program never began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} failed between fork and exec: {}", step.call(), io::Error::from_raw_os_error(*errno))]
#[non_exhaustive]
pub struct RestrictionFailure {
    /// Which.
    pub step: RestrictionStep,
    /// Why.
    pub errno: i32,
}

/// Numbers from here on are no errno of the kernel's (which end at 4095): ten thousand for each step.
const CODES: i32 = 1_200_000_000;
/// As many per step.
const STEP: i32 = 10_000;

impl RestrictionFailure {
    /// The number that stands for it as an operating system's error.
    pub fn code(self) -> i32 {
        CODES + self.step as i32 * STEP + self.errno
    }

    /// What an error of spawn's says when it came from here.
    pub fn of_spawn(error: &io::Error) -> Option<RestrictionFailure> {
        let code = error.raw_os_error()?.checked_sub(CODES)?;
        let step = RestrictionStep::ALL.into_iter().find(|&step| step as i32 == code / STEP)?;
        Some(RestrictionFailure { step, errno: code % STEP })
    }
}

/// Makes every spawn of the command fail with this errno, after these words on its standard error: for an error that
/// was found earlier, by a function that returns none. The words have to fit into a pipe at once, or are left out.
pub fn refuse(command: &mut Command, errno: i32, words: Vec<u8>) {
    // SAFETY: the closure writes bytes that were prepared and makes an error of a number.
    unsafe {
        command.pre_exec(move || {
            say(&words);
            Err(io::Error::from_raw_os_error(errno))
        })
    };
}

/// Writes to standard error where that can be done at once: spawn waits for the child, and must not wait for a reader.
fn say(words: &[u8]) {
    let mut ready = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, which lives on the stack.
    let polled = unsafe { libc::poll(&raw mut ready, 1, 0) };
    if polled == 1 && ready.revents == libc::POLLOUT && words.len() <= libc::PIPE_BUF {
        // SAFETY: the bytes are there for the whole call. Words that do not arrive change nothing: the errno does.
        unsafe { libc::write(2, words.as_ptr().cast(), words.len()) };
    }
}

/// Prepared restrictions, for any number of commands. Clones share them.
#[derive(Debug, Clone)]
pub struct Restrictions(Arc<PreparedChild>);

impl Restrictions {
    /// A ruleset, where there is Landlock, and a filter; of a caller's capabilities only some are left. With `keeps`, the
    /// filter hands calls over
    /// ([`crate::seccomp::RuleAction::Perform`]): those that change metadata are performed inside these trees, and signals
    /// among the command's own processes; everything else that is handed over is refused.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub fn new(ruleset: Option<Ruleset>, filter: Arc<[Insn]>, keeps: Option<Trees>) -> io::Result<Restrictions> {
        let ruleset = ruleset.map(|ruleset| above_streams(ruleset.into_fd())).transpose()?;
        Ok(Restrictions(Arc::new(PreparedChild {
            ruleset,
            filter,
            privileged: has_capabilities(),
            keeps: keeps.map(Arc::new),
            post: Mutex::default(),
            thread: Mutex::default(),
        })))
    }

    /// Applies them to a command each time that this process spawns it: before closures that are given to `pre_exec`
    /// later. Unless it `inherits`, it has no descriptors but its standard streams, and what such a closure makes.
    ///
    /// # Errors
    /// No thread, socket or descriptor can be had.
    pub fn attach(&self, command: &mut Command, inherits: bool) -> io::Result<()> {
        let post = self.post()?;
        let prepared = self.0.clone();
        // SAFETY: `enter` and `hand` make system calls on what was prepared, and nothing else: see there.
        unsafe {
            command.pre_exec(move || {
                let there = match &post {
                    Some((process, _)) => is_child_of(*process),
                    None => Ok(()),
                };
                let there = there.and_then(|()| if inherits { Ok(()) } else { disinherit(FIRST) });
                let entered = there.and_then(|()| prepared.enter(post.is_some()));
                let entered = entered.and_then(|listener| match (listener, &post) {
                    (Some(listener), Some((_, post))) => hand(post.as_raw_fd(), listener)
                        .map_err(|errno| RestrictionFailure { step: RestrictionStep::Listener, errno }),
                    _ => Ok(()),
                });
                entered.map_err(|failed| io::Error::from_raw_os_error(failed.code()))
            });
        }
        Ok(())
    }

    /// Where children of this process send their listeners: one socket for all of them.
    fn post(&self) -> io::Result<Option<(u32, Arc<OwnedFd>)>> {
        let Some(trees) = &self.0.keeps else { return Ok(None) };
        let mut post = self.0.post.lock().unwrap_or_else(PoisonError::into_inner);
        let here = std::process::id();
        match &*post {
            // A process that was forked from ours has a notifier of its own.
            Some((process, post)) if *process == here => Ok(Some((here, post.clone()))),
            _ => {
                let made = Arc::new(above_streams(notifier::post(trees.clone())?)?);
                *post = Some((here, made.clone()));
                Ok(Some((here, made)))
            }
        }
    }

    /// Runs a job in a thread of this process that has restricted itself for good. What it spawns is restricted as well; no
    /// other thread of the process is touched.
    ///
    /// # Errors
    /// The step that failed; nothing was done then.
    pub fn run_restricted<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RestrictionFailure> {
        let gone = RestrictionFailure { step: RestrictionStep::Listener, errno: libc::EAGAIN };
        let (answer, answered) = mpsc::channel();
        let job: ThreadJob = Box::new(move || {
            // What panics there panics here.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            // It fails when the caller does not wait any more.
            answer.send(done).unwrap_or_default();
        });
        {
            let mut running = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner);
            let here = std::process::id();
            let thread = match running.take() {
                Some((process, thread)) if process == here => thread,
                _ => self.start_thread()?,
            };
            // One that has died is not asked again.
            thread.send(job).map_err(|_| gone)?;
            *running = Some((here, thread));
        }
        match answered.recv() {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(gone),
        }
    }

    /// Starts the thread, and returns once it has restricted itself.
    fn start_thread(&self) -> Result<mpsc::Sender<ThreadJob>, RestrictionFailure> {
        let no_thread = |error: io::Error| RestrictionFailure {
            step: RestrictionStep::Listener,
            errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
        };
        // So that nothing can fail once the filter waits for its listener.
        let notifier = self.0.keeps.clone().map(notifier::ListenerAdmission::new).transpose().map_err(no_thread)?;
        let (jobs, todo) = mpsc::channel::<ThreadJob>();
        let (there, arrived) = mpsc::channel();
        // The thread must not own the restrictions: it ends when the last clone of them is dropped.
        let (ruleset, filter) = (self.0.ruleset.as_ref().map(OwnedFd::try_clone).transpose(), self.0.filter.clone());
        let prepared = PreparedChild {
            ruleset: ruleset.map_err(no_thread)?,
            filter,
            privileged: self.0.privileged,
            keeps: None,
            post: Mutex::default(),
            thread: Mutex::default(),
        };
        let thread = move || {
            let entered = prepared.enter(notifier.is_some()).map(|listener| {
                if let (Some(listener), Some(notifier)) = (listener, notifier) {
                    // SAFETY: seccomp(2) has just returned it: a new descriptor that is ours alone.
                    notifier.admit(unsafe { OwnedFd::from_raw_fd(listener) });
                }
            });
            let failed = entered.is_err();
            if there.send(entered).is_err() || failed {
                return;
            }
            while let Ok(job) = todo.recv() {
                job();
            }
        };
        std::thread::Builder::new().name("cofferdam-behind".into()).spawn(thread).map_err(no_thread)?;
        arrived.recv().unwrap_or(Err(RestrictionFailure { step: RestrictionStep::Listener, errno: libc::EAGAIN }))?;
        Ok(jobs)
    }
}

/// What the restricted thread runs.
type ThreadJob = Box<dyn FnOnce() + Send>;

/// Whether a filter of this process's children can have a listener: the kernel allows one in a chain of filters, so
/// that below a filter with a listener none is left.
pub fn listener_available() -> bool {
    // SAFETY: a prctl that takes numbers.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0u64, 0u64, 0u64, 0u64) } != 2 {
        return true;
    }
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        // A thread of its own: what it gets it never loses.
        let allow = Insn { code: crate::seccomp::classify::RET, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
        let (post, thread) = (Mutex::default(), Mutex::default());
        let prepared =
            PreparedChild { ruleset: None, filter: [allow].into(), privileged: false, keeps: None, post, thread };
        let thread = std::thread::Builder::new().spawn(move || {
            // SAFETY: the descriptor has just been made, and is ours alone.
            prepared.enter(true).map(|listener| listener.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })).is_ok()
        });
        thread.is_ok_and(|thread| thread.join().unwrap_or(false))
    })
}

/// Where the standard streams of a child cannot overwrite it.
fn above_streams(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    // SAFETY: the descriptor is open.
    let moved = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    if moved < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fcntl succeeded: a new descriptor that is ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

/// What the child needs, and what the caller keeps for it; the latter by the process that it was made in.
#[derive(Debug)]
struct PreparedChild {
    ruleset: Option<OwnedFd>,
    filter: Arc<[Insn]>,
    /// There may be capabilities to give up.
    privileged: bool,
    keeps: Option<Arc<Trees>>,
    post: Mutex<Option<(u32, Arc<OwnedFd>)>>,
    thread: Mutex<Option<(u32, mpsc::Sender<ThreadJob>)>>,
}

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`
const NEW_LISTENER: u64 = 8;
/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, since Linux 5.19: a signal then cannot restart a call that was performed.
const WAIT_KILLABLE: u64 = 32;

impl PreparedChild {
    /// The order. Runs after fork: raw calls on what was prepared. Returns the listener, when there is to be one.
    fn enter(&self, listening: bool) -> Result<Option<i32>, RestrictionFailure> {
        let failed = |step| RestrictionFailure { step, errno: errno() };
        // Whatever it executes, it gains nothing by it. Also what allows the next two to an unprivileged process.
        // SAFETY: a prctl that takes numbers.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1u64, 0u64, 0u64, 0u64) } != 0 {
            return Err(failed(RestrictionStep::NoNewPrivileges));
        }
        // After it, which is what keeps them from coming back.
        if self.privileged {
            capability::give_up().map_err(|()| failed(RestrictionStep::Capabilities))?;
        }
        // Before the filter, which could be one that refuses it.
        if let Some(ruleset) = &self.ruleset {
            // SAFETY: takes a descriptor, which is open, and flags.
            if unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) } != 0 {
                return Err(failed(RestrictionStep::Landlock));
            }
        }
        // Last: from here on what it refuses is refused to us, too.
        if self.filter.is_empty() {
            return Ok(None);
        }
        let flags = if listening { NEW_LISTENER } else { 0 };
        let mut listener = self.install(flags | if listening { WAIT_KILLABLE } else { 0 });
        if listener < 0 && listening && errno() == libc::EINVAL {
            listener = self.install(flags);
        }
        match i32::try_from(listener) {
            Ok(fd) if fd >= 0 => Ok(listening.then_some(fd)),
            _ => Err(failed(RestrictionStep::Filter)),
        }
    }

    fn install(&self, flags: u64) -> i64 {
        let program =
            libc::sock_fprog { len: self.filter.len() as u16, filter: self.filter.as_ptr().cast_mut().cast() };
        // SAFETY: `Insn` is `struct sock_filter`; the program lives until the call is over, and the kernel only reads it.
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) }
    }
}

/// The first descriptor that is no standard stream.
const FIRST: u32 = 3;

/// Has descriptors from this one on closed by exec. Runs after fork.
fn disinherit(first: u32) -> Result<(), RestrictionFailure> {
    /// `CLOSE_RANGE_CLOEXEC`, since Linux 5.11.
    const CLOEXEC: u32 = 4;
    // SAFETY: takes numbers; nothing is closed yet.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(RestrictionFailure { step: RestrictionStep::Descriptors, errno: errno() }) }
}

/// Whether this kernel can have descriptors closed by exec, all at once.
pub fn can_disinherit() -> bool {
    // No descriptor has that number.
    disinherit(u32::MAX).is_ok()
}

/// Whether a child would have descriptors of this process's besides its standard streams: some are not close-on-exec.
pub fn has_inheritable() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let most = status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse().ok());
    // SAFETY: takes numbers, and changes nothing.
    let flags = |fd: i32| unsafe { libc::fcntl(fd, libc::F_GETFD) };
    most.is_none_or(|most: i32| (FIRST as i32..most).any(|fd| flags(fd) == 0))
}

/// Whether the notifier is there to be reached: in a process that was forked from the one that made the command it is not, and
/// calls that are handed over would wait for ever. In a process namespace of its own a child has no parent. Runs after fork.
fn is_child_of(process: u32) -> Result<(), RestrictionFailure> {
    // SAFETY: takes nothing.
    match unsafe { libc::getppid() } {
        0 => Ok(()),
        parent if parent as u32 == process => Ok(()),
        _ => Err(RestrictionFailure { step: RestrictionStep::Notifier, errno: libc::ESRCH }),
    }
}

/// Sends a descriptor and closes it. Runs after fork: buffers on the stack.
fn hand(post: i32, fd: i32) -> Result<(), i32> {
    let byte = 0u8;
    let mut content = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
    let mut space = [0u64; 4];
    // SAFETY: every field of the header is a number or a pointer, for which zero bytes are a value; they are filled in below.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut content;
    message.msg_iovlen = 1;
    message.msg_control = space.as_mut_ptr().cast();
    // SAFETY: only computes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as _;
    // SAFETY: the control buffer is aligned and long enough for a header and one descriptor.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
    }
    // SAFETY: the message and all that it points to are locals.
    if unsafe { libc::sendmsg(post, &raw const message, libc::MSG_NOSIGNAL) } != 1 {
        return Err(errno());
    }
    // SAFETY: it is ours alone, and not used after this.
    if unsafe { libc::close(fd) } != 0 { Err(errno()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_crosses_as_a_number_and_comes_back_in_words() {
        let failed = RestrictionFailure { step: RestrictionStep::Landlock, errno: libc::E2BIG };
        let error = io::Error::from_raw_os_error(failed.code());
        assert_eq!(RestrictionFailure::of_spawn(&error), Some(failed));
        assert!(failed.to_string().starts_with("landlock_restrict_self failed between fork and exec: Argument list"));
        for step in RestrictionStep::ALL {
            let failed = RestrictionFailure { step, errno: libc::EPERM };
            assert_eq!(RestrictionFailure::of_spawn(&io::Error::from_raw_os_error(failed.code())), Some(failed));
        }
        for other in [libc::ENOENT, 4095, CODES, CODES + 9 * STEP, i32::MAX] {
            assert_eq!(RestrictionFailure::of_spawn(&io::Error::from_raw_os_error(other)), None, "{other}");
        }
    }

    #[test]
    fn the_notifier_is_reached_by_children_of_its_process_alone() {
        // SAFETY: takes nothing.
        let parent = unsafe { libc::getppid() } as u32;
        assert_eq!(is_child_of(parent), Ok(()));
        // As in a child that was spawned by a process forked from the one that has the notifier.
        let failed = is_child_of(std::process::id()).unwrap_err();
        assert_eq!(RestrictionFailure::of_spawn(&io::Error::from_raw_os_error(failed.code())), Some(failed));
        assert!(failed.to_string().starts_with("the way to the keeper"), "{failed}");
    }

    #[test]
    fn a_refused_command_never_starts() {
        let mut command = Command::new("/bin/true");
        assert!(command.status().unwrap().success(), "it does without");
        refuse(&mut command, libc::EINVAL, Vec::new());
        let error = command.status().unwrap_err();
        assert_eq!(error.to_string(), "Invalid argument (os error 22)");
        assert_eq!(RestrictionFailure::of_spawn(&error), None);
    }
}
