//! Between `clone3` and `exec`: the few lines that run in the new process while it still shares its owner's memory.
//!
//! No allocation, no lock, no panic, no libc: raw system calls on what the owner prepared. The owner's thread is
//! suspended meanwhile (`CLONE_VFORK`), and a failure is left in its memory as an errno.

use crate::sys;
use crate::uapi::*;

/// Descriptors that init starts with; the last one, its own program, goes with exec.
pub(crate) const TARGETS: usize = 9;
/// Above every target: where the sources wait so that no target overwrites one.
const ASIDE: usize = 16;

/// What the child needs, prepared by the owner.
#[repr(C)]
pub(crate) struct InitChild {
    /// Descriptors by their targets, 0 to 8: standard streams, nothing, lifeline, status, events, sync, init.
    pub fds: [i32; TARGETS],
    /// A cgroup v2 directory to enter first, where the process could not be born in it; -1: none.
    pub cgroup: i32,
    /// Keep every capability across exec (the process is in a user namespace of its own).
    pub keep_caps: bool,
    pub argv: [*const u8; 2],
    pub envp: [*const u8; 1],
    /// The step that failed and its errno; `None` when exec succeeded.
    pub failed: Option<(ChildStep, i32)>,
}

/// What can fail, in the order of `enter`. Messages show the numbers, so each step keeps its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum ChildStep {
    OpenCgroup = 7,
    JoinCgroup = 8,
    CloseCgroup = 9,
    MoveAside = 1,
    CloseUnused = 3,
    Place = 2,
    CloseRest = 4,
    KeepCapabilities = 5,
    Exec = 6,
}

/// Turns an errno into the failure of a step.
fn at(step: ChildStep) -> impl Fn(i32) -> (ChildStep, i32) {
    move |errno| (step, errno)
}

/// The child's entry.
pub(crate) extern "C" fn entry(child: usize) -> ! {
    // SAFETY: the owner passes the address of its `InitChild`, which no other code touches until the child has exec'd or ended.
    let child = unsafe { &mut *(child as *mut InitChild) };
    child.failed = enter(child).err();
    sys::exit(127)
}

fn enter(c: &mut InitChild) -> Result<(), (ChildStep, i32)> {
    if c.cgroup >= 0 {
        let procs = sys::openat(c.cgroup, c"cgroup.procs".as_ptr().cast(), O_WRONLY | O_CLOEXEC, 0)
            .map_err(at(ChildStep::OpenCgroup))? as i32;
        sys::write(procs, b"0".as_ptr(), 1).map_err(at(ChildStep::JoinCgroup))?;
        sys::close(procs).map_err(at(ChildStep::CloseCgroup))?;
    }
    // First up and out of the way, all of them, so that no target number overwrites a source.
    let mut aside = [-1i32; TARGETS];
    for (from, to) in c.fds.iter().zip(&mut aside) {
        if *from >= 0 {
            *to = sys::fcntl(*from, F_DUPFD_CLOEXEC, ASIDE).map_err(at(ChildStep::MoveAside))? as i32;
        }
    }
    for (target, from) in aside.iter().enumerate() {
        let goes = target == TARGETS - 1; // init's program, with exec
        match *from {
            // Whatever of the owner's has this number.
            -1 => sys::close_range(target as u32, target as u32, 0).map_err(at(ChildStep::CloseUnused))?,
            from => sys::dup3(from, target as i32, if goes { O_CLOEXEC } else { 0 }).map_err(at(ChildStep::Place))?,
        };
    }
    sys::close_range(TARGETS as u32, u32::MAX, 0).map_err(at(ChildStep::CloseRest))?; // nothing of the owner's goes along
    if c.keep_caps {
        keep_capabilities().map_err(at(ChildStep::KeepCapabilities))?;
    }
    let empty = c"".as_ptr().cast();
    sys::execveat(TARGETS as i32 - 1, empty, c.argv.as_ptr(), c.envp.as_ptr(), AT_EMPTY_PATH)
        .map_err(at(ChildStep::Exec))?;
    Ok(())
}

/// Of the new namespaces' capabilities, what init needs.
const NEEDED: [u32; 15] = [
    // overlayfs keeps the mounter's
    CAP_CHOWN,
    CAP_DAC_OVERRIDE,
    CAP_FOWNER,
    CAP_FSETID,
    CAP_KILL,
    CAP_SETGID,
    CAP_SETUID,
    CAP_SETPCAP,
    // loopback, and a captured network's ports, routes and raw sockets
    CAP_NET_BIND_SERVICE,
    CAP_NET_ADMIN,
    CAP_NET_RAW,
    CAP_SYS_CHROOT,
    CAP_SYS_PTRACE,   // a notified call's arguments
    CAP_SYS_ADMIN,    // mounts
    CAP_SYS_RESOURCE, // no nested namespaces
];

/// exec as a user other than 0 would lose them: they become inheritable and ambient.
fn keep_capabilities() -> Result<(), i32> {
    let header = [LINUX_CAPABILITY_VERSION_3, 0];
    let mut data = [0u32; 6]; // effective, permitted, inheritable; twice
    sys::capget(header.as_ptr(), data.as_mut_ptr())?;
    data[2] = data[1];
    data[5] = data[4];
    sys::capset(header.as_ptr(), data.as_ptr())?;
    for cap in NEEDED {
        sys::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap as usize, 0, 0)?;
    }
    Ok(())
}
