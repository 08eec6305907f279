//! Watching: init after the payload has started. Reaps, answers notifications, holds the lifeline, reports the end.

use crate::guard::Guards;
use crate::payload::Child;
use crate::plan::Plan;
use crate::sys::{self, PollFd};
use crate::uapi::*;
use crate::wire::{Status, fd, flag, status, step};
use crate::{Fault, Step, at};

/// Writes a status record. When the owner is gone there is nobody to tell, and the lifeline ends us next.
pub fn send(record: &Status) {
    let bytes = (&raw const *record).cast::<u8>();
    while let Err(errno::EINTR) = sys::write(fd::STATUS, bytes, core::mem::size_of::<Status>()) {}
}

/// Reports that an optional step could not be done.
pub fn weakened(step: u16, errno: i32) {
    send(&Status { kind: status::WEAKENED, step, value: errno, ..Status::default() });
}

/// Sends the descriptor of a copy-on-write layer, or of a tmpfs that is handed back.
pub fn send_layer(op: u32, layer: i32) -> Result<(), i32> {
    send_fd(&Status { kind: status::LAYER, index: op, ..Status::default() }, layer)
}

/// `struct msghdr`.
#[repr(C)]
#[allow(missing_docs, reason = "recvmsg(2)")]
pub struct Msghdr {
    pub name: usize,
    pub namelen: usize,
    pub iov: *const [usize; 2],
    pub iovlen: usize,
    pub control: *const u8,
    pub controllen: usize,
    pub flags: usize,
}

fn send_fd(record: &Status, descriptor: i32) -> Result<(), i32> {
    #[repr(C, align(8))]
    struct Control {
        len: usize,
        level: i32,
        kind: i32,
        fd: i32,
        pad: i32,
    }
    let control = Control { len: 20, level: SOL_SOCKET, kind: SCM_RIGHTS, fd: descriptor, pad: 0 };
    let iov = [(&raw const *record) as usize, core::mem::size_of::<Status>()];
    let message = Msghdr {
        name: 0,
        namelen: 0,
        iov: &raw const iov,
        iovlen: 1,
        control: (&raw const control).cast(),
        controllen: 24,
        flags: 0,
    };
    sys::sendmsg(fd::STATUS, (&raw const message).cast(), MSG_NOSIGNAL).map(|_| ())
}

/// Sends the owner a socket that says what the sockets of this network namespace hold. Where nothing can be reached, none
/// holds anything; of a network that is not the sandbox's own nobody asks. A kernel without it sends nothing, which the owner
/// takes for what it is.
pub fn send_sockets(plan: &Plan) -> Step {
    if !plan.has(flag::ONLY_LOOPBACK) && !plan.has(flag::CAPTURED) {
        return Ok(());
    }
    let Ok(s) = sys::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG) else { return Ok(()) };
    send_fd(&Status { kind: status::SOCKETS, ..Status::default() }, s as i32).map_err(at(step::sockets::SEND))?;
    sys::close(s as i32).map_err(at(step::sockets::CLOSE))?;
    Ok(())
}

/// Makes a pseudo-terminal in the sandbox's own devpts: the master goes to the owner, the slave becomes 0, 1 and 2.
pub fn terminal(plan: &Plan) -> Result<bool, Fault> {
    if !plan.has(flag::TERMINAL) {
        return Ok(false);
    }
    let h = plan.header();
    let ptmx = if plan.has(flag::JAIL) { c"/dev/pts/ptmx" } else { c"/dev/ptmx" };
    let master = sys::openat(AT_FDCWD, ptmx.as_ptr().cast(), O_RDWR | O_NOCTTY | O_CLOEXEC, 0)
        .map_err(at(step::terminal::OPEN))? as i32;
    let unlocked = 0i32;
    sys::ioctl(master, TIOCSPTLCK, (&raw const unlocked) as usize).map_err(at(step::terminal::UNLOCK))?;
    let slave =
        sys::ioctl(master, TIOCGPTPEER, (O_RDWR | O_NOCTTY) as usize).map_err(at(step::terminal::OPEN_SLAVE))? as i32;
    let size = [h.rows, h.columns, 0, 0];
    sys::ioctl(master, TIOCSWINSZ, size.as_ptr() as usize).map_err(at(step::terminal::SIZE))?;
    for target in 0..3 {
        sys::dup3(slave, target, 0).map_err(at(step::terminal::STREAMS))?;
    }
    sys::close(slave).map_err(at(step::terminal::CLOSE_SLAVE))?;
    send_fd(&Status { kind: status::TERMINAL, ..Status::default() }, master).map_err(at(step::terminal::SEND))?;
    sys::close(master).map_err(at(step::terminal::CLOSE))?;
    Ok(true)
}

/// Lets go of all that watching does not need: the payload's streams, the program, spare descriptors, capabilities.
pub fn narrow(plan: &Plan) -> Step {
    if !plan.has(flag::NO_SPAWN) {
        for f in 0..3 {
            sys::close(f).map_err(at(step::init::CLOSE_STREAMS))?;
        }
        crate::payload::let_go_of_channel(plan)?;
    }
    // CAP_KILL and CAP_SYS_PTRACE: ending the tree, reading the arguments of a notified call. The jail only: without
    // namespaces an unprivileged owner has neither and needs neither.
    let keep = match plan.has(flag::JAIL) {
        true => 1 << CAP_KILL | 1 << CAP_SYS_PTRACE,
        false if plan.has(flag::APART) => 1 << CAP_KILL, // the program is another user
        false => 0,
    };
    match sys::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) {
        Ok(_) | Err(errno::EINVAL) => {}
        Err(e) => return Err(at(step::init::CLEAR_AMBIENT)(e)),
    }
    let header = [LINUX_CAPABILITY_VERSION_3, 0];
    let data = [keep, keep, 0, 0, 0, 0u32];
    sys::capset(header.as_ptr(), data.as_ptr()).map_err(at(step::init::DROP_CAPABILITIES))?;
    Ok(())
}

/// How long a program that was started early may wait for its go, nanoseconds; its owner ends it sooner. An owner who is
/// gone without closing its ends, as one whose forked child lives on, never sends one.
const EARLIEST: u64 = 600_000_000_000;

/// Until the payload or the owner ends.
pub fn run(plan: &Plan, child: Child, mut guards: Guards) -> Step {
    let begins = || {
        let at_ns = sys::now_ns();
        send(&Status { kind: status::STARTED, value: child.pid, at_ns, ..Status::default() });
        at_ns.saturating_add(plan.header().wall_ns)
    };
    // Started early it waits for its input, which comes after the go. Nobody waits for it until then: it ends like any
    // sandbox whose owner is gone.
    let mut early = plan.has(flag::EARLY);
    let mut deadline = if early { sys::now_ns().saturating_add(EARLIEST) } else { begins() };
    let mask = 1u64 << (SIGCHLD - 1);
    let signals = sys::signalfd4(-1, &mask, 8, SFD_NONBLOCK | SFD_CLOEXEC).map_err(at(step::init::SIGNALFD))? as i32;
    let (mut answer, listener) = (child.answer, child.listener);
    let mut fds = [
        PollFd { fd: signals, events: POLLIN, revents: 0 },
        PollFd { fd: fd::LIFELINE, events: POLLIN, revents: 0 },
        PollFd { fd: listener, events: POLLIN, revents: 0 },
        PollFd { fd: if early { fd::SYNC } else { -1 }, events: POLLIN, revents: 0 },
    ];
    let mut ended = None;
    while ended.is_none() {
        // The wall limit is held here, so that it holds whatever the owner is busy with.
        let left = deadline.saturating_sub(sys::now_ns());
        let wait = if guards.waiting() { left.min(5_000_000) } else { left };
        let timeout = [wait / 1_000_000_000, wait % 1_000_000_000];
        match sys::ppoll(fds.as_mut_ptr(), 4, timeout.as_ptr(), core::ptr::null(), 8) {
            Ok(_) | Err(errno::EINTR) => {}
            Err(e) => return Err(at(step::init::POLL)(e)),
        }
        if fds[3].revents != 0 {
            crate::late::go()?;
            sys::close(fd::SYNC).map_err(at(step::sync::CLOSE_AFTER_RELEASE))?;
            fds[3] = PollFd { fd: -1, events: 0, revents: 0 };
            (early, deadline) = (false, begins());
            continue; // what else was to be seen is there still
        }
        if left == 0 && early {
            end_tree(plan);
            sys::exit(0);
        }
        if left == 0 {
            let (events, lost) = answer.seen();
            send(&Status {
                kind: status::TIMED_OUT,
                index: most_kib(),
                at_ns: sys::now_ns(),
                events,
                lost,
                ..Status::default()
            });
            end_tree(plan);
            linger(plan);
            sys::exit(0);
        }
        if fds[1].revents != 0 {
            end_tree(plan);
            sys::exit(0); // the owner is gone
        }
        if fds[2].revents & POLLIN != 0 {
            if answer.next(plan, &mut guards) {
                let (events, lost) = answer.seen();
                send(&Status {
                    kind: status::VIOLATION,
                    index: most_kib(),
                    at_ns: sys::now_ns(),
                    events,
                    lost,
                    ..Status::default()
                });
                end_tree(plan);
                linger(plan);
                sys::exit(0);
            }
        } else if fds[2].revents != 0 {
            fds[2].fd = -1; // nobody is left under the filter
        }
        guards.retry(plan, &mut answer);
        if fds[0].revents != 0 {
            let mut drain = [0u8; 128 * 4];
            while sys::read(signals, drain.as_mut_ptr(), drain.len()).is_ok() {}
            ended = reap(child.pid);
            if ended.is_some()
                && let Some(fault) = crate::payload::failure()
            {
                return Err(fault); // without spawning, a failed exec shows only now
            }
        }
    }
    let (events, lost) = answer.seen();
    end_tree(plan);
    let value = ended.unwrap_or(0);
    let index = most_kib();
    send(&Status { kind: status::ENDED, index, value, at_ns: sys::now_ns(), events, lost, ..Status::default() });
    linger(plan);
    Ok(())
}

/// How long the owner has for its look.
const LOOK: [u64; 2] = [2, 0];

/// What the cgroup of a container has counted goes with its last process, which is this one: the owner looks first, and
/// closes the lifeline.
fn linger(plan: &Plan) {
    if plan.has(flag::LINGER) {
        let mut lifeline = [PollFd { fd: fd::LIFELINE, events: POLLIN, revents: 0 }];
        while let Err(errno::EINTR) = sys::ppoll(lifeline.as_mut_ptr(), 1, LOOK.as_ptr(), core::ptr::null(), 8) {}
    }
}

/// The most memory that any one process had that has been reaped, KiB; 0 where none has.
fn most_kib() -> u32 {
    let mut usage = [0u64; 18]; // struct rusage: two times of two words each, then ru_maxrss
    match sys::getrusage(RUSAGE_CHILDREN, usage.as_mut_ptr()) {
        Ok(_) => usage[4].min(u64::from(u32::MAX)) as u32,
        Err(_) => 0,
    }
}

/// Reaps everything that has ended; the wait status of `main` when it is among them.
fn reap(main: i32) -> Option<i32> {
    let mut found = None;
    loop {
        let mut st = 0;
        match sys::wait4(-1, &mut st, WNOHANG, 0) {
            Ok(0) => return found,
            Ok(pid) if pid as i32 == main => found = Some(st),
            Ok(_) => {}
            Err(errno::EINTR) => {}
            Err(_) => return found,
        }
    }
}

/// In the jail the kernel ends everything with us, but only after it has closed our files, and a call that waits for our
/// answer would go on then: so everything is killed first. Without a pid namespace: kill children until there are none, each
/// orphan becoming a child of ours as its parent dies.
pub fn end_tree(plan: &Plan) {
    if plan.has(flag::JAIL) || plan.has(flag::CONTAINER) {
        // All of the namespace but us; ESRCH when there is nobody left.
        if let Err(e) = sys::kill(-1, SIGKILL)
            && e != errno::ESRCH
        {
            weakened(step::INIT, e);
        }
        return;
    }
    let mut rounds = 0;
    while rounds < 10_000 {
        rounds += 1;
        let mut buf = [0u8; 4096];
        let Ok(f) = sys::openat(AT_FDCWD, c"/proc/thread-self/children".as_ptr().cast(), O_RDONLY | O_CLOEXEC, 0)
        else {
            break;
        };
        let n = sys::read(f as i32, buf.as_mut_ptr(), buf.len()).unwrap_or(0);
        if sys::close(f as i32).is_err() {
            break;
        }
        let mut pid = 0i32;
        let mut any = false;
        for &b in &buf[..n] {
            if b.is_ascii_digit() {
                pid = pid.wrapping_mul(10).wrapping_add((b - b'0') as i32);
            } else {
                if pid > 1 {
                    any = true;
                    // ESRCH only means that it is gone already.
                    if let Err(e) = sys::kill(pid, SIGKILL)
                        && e != errno::ESRCH
                    {
                        weakened(step::INIT, e);
                    }
                }
                pid = 0;
            }
        }
        let mut st = 0;
        if !any {
            if let Err(errno::EINTR) = sys::wait4(-1, &mut st, WNOHANG, 0) {
                continue;
            }
            break;
        }
        // One blocking wait a round is enough: the others were killed as well and are reaped without blocking.
        if sys::wait4(-1, &mut st, 0, 0).is_ok() {
            while sys::wait4(-1, &mut st, WNOHANG, 0).is_ok_and(|q| q != 0) {}
        }
    }
}
