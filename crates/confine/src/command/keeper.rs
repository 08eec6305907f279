//! The keeper: one thread of the caller's process that makes, for commands behind walls, the calls that their filter hands
//! over. It knows no rule but where metadata may be changed; everything it cannot be sure of it refuses.
//!
//! ```text
//! child ─ its listener, by post ─▶ keeper ─ poll ─▶ notification ─▶ change | signal | schedule ─▶ performed, or an errno
//! ```
//!
//! It never lets a call through: what stands behind a pointer may change after it was looked at. When the caller's process
//! ends, such calls fail with ENOSYS. A process that was forked from the caller gets a keeper of its own.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::{change, schedule, signal};
use crate::seccomp::{Arch, syscall_name};

/// Where metadata may be changed.
#[derive(Debug, Default)]
pub struct Trees {
    /// What each descriptor is, wherever it is renamed to, and everything below it.
    pub roots: Vec<OwnedFd>,
    /// But not below these canonical paths, nor on the way to them.
    pub holes: Vec<PathBuf>,
}

/// `struct seccomp_notif`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Notification {
    pub(super) id: u64,
    pub(super) pid: u32,
    pub(super) flags: u32,
    pub(super) nr: i32,
    pub(super) arch: u32,
    pub(super) instruction_pointer: u64,
    pub(super) args: [u64; 6],
}

/// `struct seccomp_notif_resp`
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const IS_VALID: u64 = 0x4008_2102;

/// What the keeper listens to.
enum Source {
    /// Where children send their listeners.
    Post(UnixStream, Arc<Trees>),
    Listener(OwnedFd, Arc<Trees>),
}

impl Source {
    fn fd(&self) -> i32 {
        match self {
            Source::Post(post, _) => post.as_raw_fd(),
            Source::Listener(listener, _) => listener.as_raw_fd(),
        }
    }
}

/// What the keeper has still to look at, and what wakes it.
struct Inbox {
    new: Mutex<VecDeque<Source>>,
    wake: UnixStream,
}

impl Inbox {
    fn add(&self, source: Source) {
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push_back(source);
        // Full means that it is about to wake up anyway; it never closes its end.
        match (&self.wake).write(&[0]) {
            Ok(_) | Err(_) => {}
        }
    }
}

/// The running keeper, and the process that it runs in.
static KEEPER: Mutex<Option<(u32, Arc<Inbox>)>> = Mutex::new(None);

fn inbox() -> io::Result<Arc<Inbox>> {
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    let here = std::process::id();
    if let Some((process, inbox)) = &*keeper
        && *process == here
    {
        return Ok(inbox.clone());
    }
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let inbox = Arc::new(Inbox { new: Mutex::default(), wake });
    let theirs = inbox.clone();
    std::thread::Builder::new()
        .name("cofferdam-keeper".into())
        .stack_size(256 * 1024)
        .spawn(move || keep(&theirs, woken))?;
    *keeper = Some((here, inbox.clone()));
    Ok(inbox)
}

/// A socket for the child: what listeners arrive by it may change metadata in these trees.
pub(super) fn post(trees: Arc<Trees>) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    inbox()?.add(Source::Post(ours, trees));
    Ok(theirs.into())
}

/// A place for a listener that will be made in this process.
pub(super) struct Admission(Arc<Inbox>, Arc<Trees>);

impl Admission {
    pub(super) fn new(trees: Arc<Trees>) -> io::Result<Admission> {
        Ok(Admission(inbox()?, trees))
    }

    pub(super) fn admit(self, listener: OwnedFd) {
        self.0.add(Source::Listener(listener, self.1));
    }
}

/// The thread.
fn keep(inbox: &Inbox, mut woken: UnixStream) {
    block_signals();
    let mut sources: Vec<Source> = Vec::new();
    loop {
        sources.extend(inbox.new.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds: Vec<libc::pollfd> =
            std::iter::once(woken.as_raw_fd()).chain(sources.iter().map(Source::fd)).map(poll).collect();
        // SAFETY: as many entries as are said.
        if unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) } < 0 {
            continue; // EINTR; ENOMEM passes as well
        }
        if fds[0].revents != 0 {
            let mut bytes = [0u8; 64];
            while matches!(woken.read(&mut bytes), Ok(n) if n > 0) {}
        }
        let mut arrived = Vec::new();
        let mut events = fds[1..].iter().map(|fd| fd.revents);
        sources.retain(|source| match (source, events.next().unwrap_or(0)) {
            (_, 0) => true,
            (Source::Post(post, trees), _) => match receive(post) {
                Some(listener) => {
                    arrived.push(Source::Listener(listener, trees.clone()));
                    true
                }
                None => false,
            },
            (Source::Listener(listener, trees), events) if events & libc::POLLIN != 0 => {
                serve(listener, trees);
                true
            }
            // Nobody is left behind that filter.
            (Source::Listener(..), _) => false,
        });
        sources.extend(arrived);
    }
}

/// The caller's signals are for the caller's own threads.
fn block_signals() {
    // SAFETY: a set of signals is plain data, filled by sigfillset before it is used; the mask is this thread's own.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// A listener from the post; none when no child can send one any more.
fn receive(post: &UnixStream) -> Option<OwnedFd> {
    let mut byte = 0u8;
    let mut content = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut space = [0u64; 4];
    // SAFETY: every field of the header is a number or a pointer, for which zero bytes are a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut content;
    message.msg_iovlen = 1;
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&space) as _;
    // SAFETY: the message and all that it points to are locals.
    let got = unsafe { libc::recvmsg(post.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if got != 1 {
        return None;
    }
    // SAFETY: the kernel filled the control buffer as far as the header says.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return None;
    }
    // SAFETY: such a message holds a descriptor that the kernel has just made for us.
    Some(unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()) })
}

/// Answers one call.
fn serve(listener: &OwnedFd, trees: &Trees) {
    let mut call = Notification::default();
    // SAFETY: the structure has the kernel's layout and is zero, as the kernel asks.
    if unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut call) } != 0 {
        return; // it was killed meanwhile
    }
    let error = match perform(listener, &call, trees) {
        Ok(()) => 0,
        Err(errno) => -errno,
    };
    let response = Response { id: call.id, value: 0, error, flags: 0 };
    // SAFETY: as above. That it fails means that nobody waits for the answer any more.
    unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw const response) };
}

fn perform(listener: &OwnedFd, call: &Notification, trees: &Trees) -> Result<(), i32> {
    let arch = Arch::native().ok_or(libc::EPERM)?;
    let name = u32::try_from(call.nr).ok().and_then(|nr| syscall_name(nr, arch)).ok_or(libc::EPERM)?;
    match name {
        _ if signal::is_one(name) => signal::send(listener, call, name),
        _ if schedule::is_one(name) => schedule::set(listener, call, name),
        _ => change::perform(listener, call, name, trees),
    }
}

/// Whether whoever made the call still waits for its answer: what was opened by its number was its own, then.
pub(super) fn is_valid(listener: &OwnedFd, call: &Notification) -> Result<(), i32> {
    // SAFETY: takes the address of a number.
    let valid = unsafe { libc::ioctl(listener.as_raw_fd(), IS_VALID as _, &raw const call.id) } == 0;
    if valid { Ok(()) } else { Err(libc::EINTR) }
}
