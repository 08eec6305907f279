//! The notifier: one thread of the caller's process that makes, for restricted commands, the calls that their filter hands
//! over. It knows no rule but where metadata may be changed; whatever it cannot verify it refuses.
//!
//! ```text
//! child ─ its listener, by post ─▶ notifier ─ epoll ─▶ notification ─▶ change | signal | schedule ─▶ performed, or an errno
//! ```
//!
//! It never lets a call through: what stands behind a pointer may change after it was looked at. When the caller's process
//! ends, such calls fail with ENOSYS. A process that was forked from the caller gets a notifier of its own.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::change::{self, Trees};
use super::errno::errno;
use super::notification::SeccompNotification;
use super::{schedule, signal};
use crate::seccomp::{Arch, syscall_name};
use crate::uapi::{SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND};

/// `struct seccomp_notif_resp`
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// What the notifier listens to.
enum NotifierSource {
    /// Where children send their listeners.
    Post(UnixStream, Arc<Trees>),
    Listener(OwnedFd, Arc<Trees>),
}

impl NotifierSource {
    fn fd(&self) -> i32 {
        match self {
            NotifierSource::Post(post, _) => post.as_raw_fd(),
            NotifierSource::Listener(listener, _) => listener.as_raw_fd(),
        }
    }
}

/// What the notifier has still to look at, and what wakes it.
struct Inbox {
    new: Mutex<VecDeque<NotifierSource>>,
    wake: UnixStream,
}

impl Inbox {
    fn add(&self, source: NotifierSource) {
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push_back(source);
        // Full means that it is about to wake up anyway; it never closes its end.
        match (&self.wake).write(&[0]) {
            Ok(_) | Err(_) => {}
        }
    }
}

/// The running notifier, and the process that it runs in.
static NOTIFIER: Mutex<Option<(u32, Arc<Inbox>)>> = Mutex::new(None);

fn inbox() -> io::Result<Arc<Inbox>> {
    let mut notifier = NOTIFIER.lock().unwrap_or_else(PoisonError::into_inner);
    let here = std::process::id();
    if let Some((process, inbox)) = &*notifier
        && *process == here
    {
        return Ok(inbox.clone());
    }
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let waker = Waker::new()?;
    waker.add(woken.as_raw_fd(), INBOX)?;
    let inbox = Arc::new(Inbox { new: Mutex::default(), wake });
    let theirs = inbox.clone();
    std::thread::Builder::new()
        .name("cofferdam-keeper".into())
        .stack_size(256 * 1024)
        .spawn(move || keep(&theirs, woken, &waker))?;
    *notifier = Some((here, inbox.clone()));
    Ok(inbox)
}

/// A socket for the child: what listeners arrive by it may change metadata in these trees.
pub(super) fn post(trees: Arc<Trees>) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    inbox()?.add(NotifierSource::Post(ours, trees));
    Ok(theirs.into())
}

/// A place for a listener that will be made in this process.
pub(super) struct ListenerAdmission(Arc<Inbox>, Arc<Trees>);

impl ListenerAdmission {
    pub(super) fn new(trees: Arc<Trees>) -> io::Result<ListenerAdmission> {
        Ok(ListenerAdmission(inbox()?, trees))
    }

    pub(super) fn admit(self, listener: OwnedFd) {
        self.0.add(NotifierSource::Listener(listener, self.1));
    }
}

/// What wakes the notifier, with a number of the notifier's own. epoll(7): poll(2) refuses to wait for more descriptors than the
/// caller's limit is by now.
struct Waker(OwnedFd);

impl Waker {
    fn new() -> io::Result<Waker> {
        // SAFETY: takes a flag.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded: a new descriptor that is ours alone.
        Ok(Waker(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn add(&self, fd: i32, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
        // SAFETY: takes descriptors, which are open, and an event that it reads.
        let done = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Explicitly, because a process that was forked from the caller has the descriptor still.
    fn remove(&self, fd: i32) {
        // SAFETY: takes descriptors, which are open. What is not there need not be removed.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// At least one event; none when a signal or a shortage of memory came between.
    fn wait<'a>(&self, events: &'a mut [libc::epoll_event; 16]) -> &'a [libc::epoll_event] {
        // SAFETY: as many events as are said.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, -1) };
        &events[..usize::try_from(count).unwrap_or(0)]
    }
}

/// The number of what wakes the notifier for its inbox.
const INBOX: u64 = 0;
/// How long the notifier waits for a descriptor when the caller has none left.
const SHORTAGE: Duration = Duration::from_millis(10);

/// The thread.
fn keep(inbox: &Inbox, mut woken: UnixStream, waker: &Waker) {
    crate::signals::block();
    let mut sources: HashMap<u64, NotifierSource> = HashMap::new();
    let mut last = INBOX;
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
    loop {
        let mut arrived: VecDeque<NotifierSource> = VecDeque::new();
        for event in waker.wait(&mut events) {
            let (number, readable) = (event.u64, event.events & libc::EPOLLIN as u32 != 0);
            if number == INBOX {
                let mut bytes = [0u8; 64];
                while matches!(woken.read(&mut bytes), Ok(n) if n > 0) {}
                continue;
            }
            let over = match sources.get(&number) {
                None => false,
                Some(NotifierSource::Post(post, trees)) => match receive(post) {
                    InboxMessage::Listener(listener) => {
                        arrived.push_back(NotifierSource::Listener(listener, trees.clone()));
                        false
                    }
                    InboxMessage::NotNow => {
                        std::thread::sleep(SHORTAGE);
                        false
                    }
                    InboxMessage::Over => true,
                },
                Some(NotifierSource::Listener(listener, trees)) if readable => !serve(listener, trees),
                // No process is left under that filter.
                Some(NotifierSource::Listener(..)) => true,
            };
            if over && let Some(source) = sources.remove(&number) {
                waker.remove(source.fd());
            }
        }
        arrived.extend(inbox.new.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
        for source in arrived {
            last += 1;
            // One that cannot be waited for is closed: calls that would go to it fail.
            if waker.add(source.fd(), last).is_ok() {
                sources.insert(last, source);
            }
        }
    }
}

/// What the post had.
enum InboxMessage {
    Listener(OwnedFd),
    /// The caller has no descriptor left for it: it stays where it is, and the caller waits.
    NotNow,
    /// No child can send one any more.
    Over,
}

/// A listener from the post: looked at first, and taken once there is a descriptor for it, because one that finds none is
/// lost when it is taken.
fn receive(post: &UnixStream) -> InboxMessage {
    let mut byte = 0u8;
    let mut content = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut space = [0u64; 4];
    // SAFETY: every field of the header is a number or a pointer, for which zero bytes are a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut content;
    message.msg_iovlen = 1;
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&space) as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the message and all that it points to are locals.
    match unsafe { libc::recvmsg(post.as_raw_fd(), &raw mut message, flags) } {
        1 => {}
        0 => return InboxMessage::Over,
        _ if [libc::EAGAIN, libc::EINTR, libc::ENOMEM].contains(&errno()) => return InboxMessage::NotNow,
        _ => return InboxMessage::Over,
    }
    // SAFETY: the kernel filled the control buffer as far as the header says.
    let Some(header) = (unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() }) else {
        return InboxMessage::NotNow;
    };
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return InboxMessage::Over;
    }
    // SAFETY: such a message holds a descriptor that the kernel has just made for us.
    let listener = unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()) };
    // SAFETY: one byte, into a local. Without room for descriptors it is what was looked at that goes.
    let taken = unsafe { libc::recv(post.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
    if taken == 1 { InboxMessage::Listener(listener) } else { InboxMessage::Over }
}

/// Answers one call. Not when that is no listener: one who sends another thing is no child of ours.
fn serve(listener: &OwnedFd, trees: &Trees) -> bool {
    let mut call = SeccompNotification::default();
    // SAFETY: the structure has the kernel's layout and is zero, as the kernel asks.
    if unsafe { libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut call) } != 0 {
        return errno() != libc::ENOTTY; // or it was killed meanwhile
    }
    let error = match perform(listener, &call, trees) {
        Ok(()) => 0,
        Err(errno) => -errno,
    };
    let response = Response { id: call.id, value: 0, error, flags: 0 };
    // SAFETY: as above. That it fails means that no thread waits for the answer any more.
    unsafe { libc::ioctl(listener.as_raw_fd(), SECCOMP_IOCTL_NOTIF_SEND as _, &raw const response) };
    true
}

fn perform(listener: &OwnedFd, call: &SeccompNotification, trees: &Trees) -> Result<(), i32> {
    let arch = Arch::native().ok_or(libc::EPERM)?;
    let name = u32::try_from(call.nr).ok().and_then(|nr| syscall_name(nr, arch)).ok_or(libc::EPERM)?;
    match name {
        _ if signal::is_one(name) => signal::send(listener, call, name),
        _ if schedule::is_one(name) => schedule::set(listener, call, name),
        _ => change::perform(listener, call, name, trees),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a descriptor by the post.
    fn send(post: &OwnedFd, fd: OwnedFd) -> Result<(), i32> {
        use std::os::fd::IntoRawFd as _;
        super::super::hand(post.as_raw_fd(), fd.into_raw_fd())
    }

    #[test]
    fn a_listener_for_which_there_is_no_descriptor_waits_for_one() {
        // In a process of its own, whose limit is another.
        if std::env::var_os("COFFERDAM_SHORTAGE_CASE").is_none() {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args([
                "--exact",
                "command::notifier::tests::a_listener_for_which_there_is_no_descriptor_waits_for_one",
            ]);
            let output = command.env("COFFERDAM_SHORTAGE_CASE", "1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let limit = |most: u64| {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: 1024 };
            // SAFETY: reads a structure.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        };
        let post = post(Arc::default()).unwrap();
        let pipe = || {
            let (reads, writes) = io::pipe().unwrap();
            // SAFETY: takes a descriptor, which is open, and a flag.
            assert_eq!(unsafe { libc::fcntl(reads.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
            (reads, OwnedFd::from(writes))
        };
        let ((ours, theirs), (second, again)) = (pipe(), pipe());
        let closed = |mut pipe: &io::PipeReader| {
            std::thread::sleep(Duration::from_millis(200));
            pipe.read(&mut [0u8]).is_ok()
        };
        limit(3);
        // What is in the post is not lost while no descriptor is left to receive it: the other end of what was sent stays open.
        send(&post, theirs).unwrap();
        assert!(!closed(&ours), "it was dropped");
        limit(1024);
        assert!(!closed(&ours), "it was dropped later");
        send(&post, again).unwrap();
        assert!(!closed(&second), "the post is closed");
        let held = std::fs::read_dir("/proc/self/fd").unwrap().count();
        drop((ours, second));
        std::thread::sleep(Duration::from_millis(100));
        // Two ends each: ours here, and theirs in the notifier, which saw them end.
        assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), held - 4, "the notifier had taken both");
    }
}
