//! Init: the first process of every sandbox. It builds the walls, starts the payload and outlives it.
//!
//! Static, without libc, without an allocator: nothing after clone can allocate or take a lock, because neither exists
//! here. The owner execs it from a sealed memfd right after `clone3`, so no byte of the owner's memory is in it.
//!
//! ```text
//!   owner ──clone3+execve──▶ init (pid 1) ──vfork+execve──▶ payload
//!     │  plan, go                ▲
//!     └──────────────────────────┘
//!     ▲  status, events          │ reaps, answers notifications, watches the lifeline
//!     └──────────────────────────┘ when it ends, the kernel kills the whole tree
//! ```
//!
//! It ends when the payload ends, when the owner is gone (the lifeline reads end of file), or when a step fails; each
//! failure crosses as {step, index, errno} and the owner gives it words.
#![no_std]
#![no_main]

mod capture;
mod container;
mod guard;
mod late;
mod mounts;
mod netlink;
mod network;
mod notify;
mod path_args;
mod payload;
mod plan;
#[allow(dead_code, reason = "the library uses the rest")]
mod reach;
mod rt;
mod seccomp;
#[allow(dead_code, reason = "the library uses the rest")]
mod sys;
mod task;
#[allow(dead_code, reason = "the library uses the rest")]
mod uapi;
mod watch;
#[allow(dead_code, reason = "the library uses the rest")]
mod wire;

use core::sync::atomic::{AtomicI32, Ordering};

use plan::Plan;
use uapi::errno;
use uapi::*;
use wire::{flag, status, step};

/// A failed step: at which point, and the errno.
#[derive(Clone, Copy)]
pub struct Fault {
    /// Where it failed.
    pub at: step::Point,
    /// errno.
    pub errno: i32,
}

/// A step's result.
pub type Step = Result<(), Fault>;

/// Turns an errno into the fault at this point.
pub fn at(point: step::Point) -> impl Fn(i32) -> Fault {
    move |errno| Fault { at: point, errno }
}

/// The whole life, in order. Each line says why it stands where it stands.
fn live(plan: &Plan) -> Result<(), Fault> {
    let jail = plan.has(flag::JAIL);

    reap(plan)?;
    told_of_keys(plan);
    join(plan)?; // into the run's cgroups, so that everything from here on is counted there
    if jail {
        mounts::private()?; // nothing that follows may propagate to the host
        mounts::sources(plan)?; // every source is opened before any mount can hide it
    }
    if plan.has(flag::CONTAINER) {
        container::as_agreed(plan)?; // what is mounted is what the owner looked at
        capture::apply(plan)?; // while init has the capabilities that this takes
    }
    sync(plan)?; // a privileged owner has written the id maps
    ids(plan)?; // from here on files are made as the sandbox's own user
    if plan.has(flag::CONTAINER) {
        container::as_whom(plan)?; // the maker was told numbers, and may have taken them for an image's names
    }
    let mut plan = plan;
    if jail {
        no_nested_namespaces(plan)?; // while the host's writable /proc is still there
        let root = mounts::Root::begin(plan)?; // root view, binds, layers, masks
        loopback(plan)?;
        capture::apply(plan)?; // every way out leads to the owner's sockets, before there is a program to take one
        root.enter()?; // the old root goes
        let name = plan.bytes(plan.header().hostname);
        sys::sethostname(name.as_ptr(), name.len()).map_err(at(step::hostname::SET))?;
    }
    if plan.has(flag::CONTAINER) {
        container::directories(plan)?; // as the program's own user
        container::apart(plan)?; // a user of its own, where nothing else would keep the program from it
    }
    let fresh;
    if plan.has(flag::HOLD) {
        fresh = late::another()?; // made ready ahead of its run: everything below is what this very run asks for
        plan = &fresh;
    }
    if !plan.has(flag::EARLY) {
        sys::close(wire::fd::SYNC).map_err(at(step::sync::CLOSE))?; // no further letter is read
    }
    watch::send_sockets(plan)?; // what sockets hold counts towards the memory limit, which no cgroup sees to
    payload::channel(plan)?; // a session's program gets its channel, and nothing else gets past exec
    let terminal = watch::terminal(plan)?; // a pty of the sandbox's own devpts
    let mut guards = guard::Guards::prepare(plan)?; // names that may not come into being, by inode of their directory
    if !jail {
        payload::landlock(plan)?; // without mounts init performs creations itself: inside the same walls
    }
    let child = payload::start(plan, terminal, &mut guards)?; // rlimits, caps, no_new_privs, Landlock, seccomp, exec
    sys::umask(0).map_err(at(step::session::UMASK_FOR_PAYLOAD))?; // what init makes for the program has the program's umask applied
    watch::narrow(plan)?; // init keeps only what watching needs
    watch::run(plan, child, guards)
}

/// Nothing here depends on the plan, which may still be in the making.
fn session() -> Step {
    for signal in 1..65 {
        let default = [0u64; 4];
        // SIGKILL and SIGSTOP cannot be set, and 32 and 33 are nobody's here: EINVAL for those two is expected.
        match sys::rt_sigaction(signal, default.as_ptr(), core::ptr::null_mut(), 8) {
            Ok(_) => {}
            Err(_) if signal == SIGKILL || signal == SIGSTOP => {}
            Err(e) => return Err(at(step::session::SIGNAL.item(signal as usize))(e)),
        }
    }
    // A container's init can find something in the plan's place, to which a letter's descriptor is to come.
    if let Err(e) = sys::close(wire::fd::PLAN)
        && e != errno::EBADF
    {
        return Err(at(step::session::CLOSE_PLAN)(e)); // else nothing was there
    }
    // The payload gets 0, 1 and 2, nothing else.
    sys::close_range(3, i32::MAX as u32, CLOSE_RANGE_CLOEXEC).map_err(at(step::session::CLOSE_ON_EXEC))?;
    let all = !0u64;
    sys::rt_sigprocmask(SIG_SETMASK, &all, core::ptr::null_mut(), 8).map_err(at(step::session::BLOCK_SIGNALS))?;
    match sys::setsid() {
        // Who makes containers has done it.
        Err(errno::EPERM) if sys::getsid(0).is_ok_and(|leader| leader == 1) => {}
        done => done.map(|_| ()).map_err(at(step::session::SETSID))?,
    }
    sys::umask(0o022).map_err(at(step::session::UMASK))?;
    no_favours()?;
    // An inherited session keyring is a key of the owner's. Not there (ENOSYS, or refused
    // by an outer filter): then there is nothing to inherit through our own filter either, which refuses keyctl.
    if let Err(e) = sys::keyctl(KEYCTL_JOIN_SESSION_KEYRING, 0)
        && e != errno::ENOSYS
    {
        NO_KEYRING.store(e, Ordering::SeqCst);
    }
    Ok(())
}

/// Why there is no session keyring of our own; 0 where there is one.
static NO_KEYRING: AtomicI32 = AtomicI32::new(0);

/// Who makes a container has given it a keyring, and refuses the call for that very reason.
fn told_of_keys(plan: &Plan) {
    let e = NO_KEYRING.load(Ordering::SeqCst);
    if e != 0 && !plan.has(flag::CONTAINER) {
        watch::weakened(step::KEYRING, e);
    }
}

/// Without a pid namespace orphans come to init only if it asks for them.
fn reap(plan: &Plan) -> Step {
    if !plan.has(flag::JAIL) && !plan.has(flag::CONTAINER) {
        sys::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0).map_err(at(step::session::SUBREAPER))?;
    }
    Ok(())
}

/// Takes back what puts the owner ahead of everybody else: no CPU share bounds a real-time policy (sched(7)), and neither
/// a raised priority nor a place before the out-of-memory killer is a stranger's. What holds the owner back stays: a low
/// priority, the idle policy, its CPUs.
fn no_favours() -> Step {
    let policy = sys::sched_getscheduler(0).map_err(at(step::session::GET_SCHEDULER))? as i32 & 0xff;
    if matches!(policy, SCHED_FIFO | SCHED_RR | SCHED_DEADLINE) {
        let priority = 0;
        sys::sched_setscheduler(0, SCHED_OTHER, &priority).map_err(at(step::session::SET_SCHEDULER))?;
    }
    // The call itself gives 20 minus the nice value (getpriority(2)).
    if sys::getpriority(PRIO_PROCESS, 0).map_err(at(step::session::GET_PRIORITY))? > 20 {
        sys::setpriority(PRIO_PROCESS, 0, 0).map_err(at(step::session::SET_PRIORITY))?;
    }
    // No such call where the kernel schedules no block devices.
    if sys::ioprio_get(IOPRIO_WHO_PROCESS, 0).is_ok_and(|priority| priority >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_RT) {
        sys::ioprio_set(IOPRIO_WHO_PROCESS, 0, 0).map_err(at(step::session::SET_IO_PRIORITY))?;
    }
    let mut sign = 0u8;
    let f = match sys::openat(AT_FDCWD, c"/proc/self/oom_score_adj".as_ptr().cast(), O_RDWR | O_CLOEXEC, 0) {
        Ok(f) => f as i32,
        Err(e) => {
            watch::weakened(step::SESSION, e); // no /proc, as inside another sandbox
            return Ok(());
        }
    };
    sys::read(f, &mut sign, 1).map_err(at(step::session::READ_OOM_ADJUSTMENT))?;
    if sign == b'-' {
        sys::write(f, b"0".as_ptr(), 1).map_err(at(step::session::WRITE_OOM_ADJUSTMENT))?;
    }
    sys::close(f).map_err(at(step::session::CLOSE_OOM_ADJUSTMENT))?;
    Ok(())
}

/// A thread that writes 0 to a `tasks` file moves itself, which the kernel does without stopping every fork on the
/// machine; a pid written to `cgroup.procs` waits for a grace period instead, milliseconds of it.
fn join(plan: &Plan) -> Step {
    let h = plan.header();
    for i in 0..h.join_count {
        let f = i32::from(h.join_first + i);
        sys::write(f, b"0".as_ptr(), 1).map_err(at(step::sync::JOIN.item(i as usize)))?;
        sys::close(f).map_err(at(step::sync::CLOSE_JOINED.item(i as usize)))?;
    }
    Ok(())
}

fn sync(plan: &Plan) -> Step {
    if !plan.has(flag::SYNC) {
        return Ok(());
    }
    late::go()
}

fn ids(plan: &Plan) -> Step {
    let h = plan.header();
    if plan.has(flag::JAIL) {
        if !plan.has(flag::MAPS_BY_OWNER) {
            // The caller's own single id; setgroups must be refused before the group map may be written (user_namespaces(7)).
            write_file(c"/proc/self/setgroups".as_ptr().cast(), b"deny").map_err(at(step::ids::DENY_SETGROUPS))?;
            write_map(c"/proc/self/uid_map".as_ptr().cast(), h.uid_in, h.uid_out).map_err(at(step::ids::UID_MAP))?;
            write_map(c"/proc/self/gid_map".as_ptr().cast(), h.gid_in, h.gid_out).map_err(at(step::ids::GID_MAP))?;
        } else {
            sys::setgroups(0, core::ptr::null()).map_err(at(step::ids::CLEAR_GROUPS))?;
        }
        sys::setresgid(h.gid_in, h.gid_in, h.gid_in).map_err(at(step::ids::SET_GROUP))?;
        sys::setresuid(h.uid_in, h.uid_in, h.uid_in).map_err(at(step::ids::SET_USER))?;
    } else if plan.has(flag::DROP_IDS) {
        if plan.has(flag::CONTAINER) {
            payload::drop_bounding()?; // another user may not, later
        }
        sys::setgroups(0, core::ptr::null()).map_err(at(step::ids::DROP_GROUPS))?;
        sys::setresgid(h.gid_out, h.gid_out, h.gid_out).map_err(at(step::ids::DROP_GROUP))?;
        sys::setresuid(h.uid_out, h.uid_out, h.uid_out).map_err(at(step::ids::DROP_USER))?;
    }
    // Nobody reads our memory from here on. Not earlier: it takes our own /proc files away from us, the maps among them;
    // and changing ids would undo it. No other process exists yet that could look.
    sys::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0).map_err(at(step::ids::UNDUMPABLE))?;
    Ok(())
}

/// How many namespaces of each kind there may be inside, those that init itself lives in among them. No program that is
/// run here needs one for clocks.
const NAMESPACES: [(&core::ffi::CStr, &[u8]); 8] = [
    (c"/proc/sys/user/max_user_namespaces", b"16"),
    (c"/proc/sys/user/max_mnt_namespaces", b"32"),
    (c"/proc/sys/user/max_pid_namespaces", b"32"),
    (c"/proc/sys/user/max_net_namespaces", b"16"),
    (c"/proc/sys/user/max_ipc_namespaces", b"32"),
    (c"/proc/sys/user/max_uts_namespaces", b"32"),
    (c"/proc/sys/user/max_cgroup_namespaces", b"32"),
    (c"/proc/sys/user/max_time_namespaces", b"0"),
];
const CGROUP: usize = 6;

/// Room for sandboxes inside, and no more of it than that: what cannot be bounded is not given.
fn bounded_namespaces(plan: &Plan) -> Step {
    for (i, (file, most)) in NAMESPACES.into_iter().enumerate() {
        let most = if i == CGROUP && plan.has(flag::NO_CGROUP_NAMESPACES) { b"0" } else { most };
        match write_file(file.as_ptr().cast(), most) {
            Ok(()) => {}
            Err(errno::ENOENT) if i > 0 => {} // a kernel without this kind
            Err(e) => return Err(at(step::userns::LIMIT.item(i))(e)),
        }
    }
    Ok(())
}

fn no_nested_namespaces(plan: &Plan) -> Step {
    if plan.has(flag::NESTED) {
        return bounded_namespaces(plan);
    }
    if !plan.has(flag::NO_USERNS) {
        return Ok(());
    }
    match write_file(c"/proc/sys/user/max_user_namespaces".as_ptr().cast(), b"0") {
        Ok(()) => Ok(()),
        Err(e) => {
            // The filter refuses the calls as well; the owner decides whether that is enough.
            watch::weakened(step::USERNS, e);
            Ok(())
        }
    }
}

fn loopback(plan: &Plan) -> Step {
    if !plan.has(flag::LOOPBACK) {
        return Ok(());
    }
    let s = sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0).map_err(at(step::loopback::SOCKET))? as i32;
    let mut request = [0u8; 40]; // struct ifreq
    request[..2].copy_from_slice(b"lo");
    sys::ioctl(s, SIOCGIFFLAGS, request.as_mut_ptr() as usize).map_err(at(step::loopback::GET_FLAGS))?;
    request[16] |= IFF_UP; // ifr_flags, the low byte
    sys::ioctl(s, SIOCSIFFLAGS, request.as_ptr() as usize).map_err(at(step::loopback::SET_FLAGS))?;
    sys::close(s).map_err(at(step::loopback::CLOSE))?;
    Ok(())
}

fn write_file(path: sys::Str, text: &[u8]) -> Result<(), i32> {
    let f = sys::openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0)? as i32;
    let wrote = sys::write(f, text.as_ptr(), text.len());
    sys::close(f)?;
    wrote.map(|_| ())
}

fn write_map(path: sys::Str, inside: u32, outside: u32) -> Result<(), i32> {
    let mut line = [0u8; 64];
    let mut at = 0;
    for (i, n) in [inside, outside, 1].into_iter().enumerate() {
        if i > 0 {
            line[at] = b' ';
            at += 1;
        }
        let mut buf = [0u8; 24];
        let mut p = sys::decimal(n as u64, &mut buf);
        // SAFETY: `decimal` returns a pointer into `buf`, which ends in NUL.
        while unsafe { *p } != 0 {
            // SAFETY: as above; `line` holds three 10-digit numbers and two spaces.
            line[at] = unsafe { *p };
            // SAFETY: as above.
            p = unsafe { p.add(1) };
            at += 1;
        }
    }
    write_file(path, &line[..at])
}

/// Entered from `rt::_start`.
pub fn main(door: Option<sys::Str>) -> ! {
    if let Some(door) = door
        && container::arrive(door).is_err()
    {
        sys::exit(1) // there is nobody to tell: who waits at the door sees that nobody comes
    }
    // A new session first: no terminal of the owner's can reach us from here on.
    let fault = match session().and_then(|()| late::plan()) {
        Err(fault) => fault,
        Ok(plan) => match live(&plan) {
            Ok(()) => sys::exit(0),
            Err(fault) => {
                watch::end_tree(&plan); // a child may be waiting for an answer that never comes
                fault
            }
        },
    };
    watch::send(&wire::Status {
        kind: status::FAILED,
        step: fault.at.step,
        index: fault.at.index,
        value: fault.errno,
        ..wire::Status::default()
    });
    sys::exit(1)
}
