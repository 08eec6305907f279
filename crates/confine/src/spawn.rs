//! `clone3` into new namespaces and exec of init: everything is prepared before, nothing is allocated after.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::child::{InitChild, entry};
use crate::{clone, memfd, netns};

/// Namespaces to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces {
    /// User, mount, pid, ipc, uts and cgroup namespaces.
    pub jail: bool,
    /// A new network namespace; else the calling thread's, or the one that the launch names.
    pub net: bool,
}

impl Namespaces {
    fn flags(self) -> u64 {
        let jail = libc::CLONE_NEWUSER
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP;
        let bits = if self.jail { jail } else { 0 } | if self.net { libc::CLONE_NEWNET } else { 0 };
        bits as u32 as u64
    }
}

/// Everything that the new process gets.
pub struct Launch<'a> {
    /// Namespaces to create.
    pub namespaces: Namespaces,
    /// Standard input, output and error of the payload.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The owner alone has its other end.
    pub lifeline: BorrowedFd<'a>,
    /// Status records.
    pub status: BorrowedFd<'a>,
    /// Event records.
    pub events: BorrowedFd<'a>,
    /// Control messages (`control`): the plan, and the release.
    pub sync: BorrowedFd<'a>,
    /// A cgroup v2 directory to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// A network namespace to be born in; the caller must be privileged over it.
    pub network: Option<&'a netns::Lease>,
}

/// A running init.
#[derive(Debug)]
pub struct RunningInit {
    /// Its pid in the owner's namespace; valid until it has been waited for.
    pub pid: i32,
    /// Its pidfd.
    pub pidfd: OwnedFd,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// init's program or another preparation.
    #[error("cannot prepare init's program")]
    Prepare(#[source] io::Error),
    /// clone3(2).
    #[error("cannot create the process with its namespaces")]
    Clone(#[source] io::Error),
    /// Between clone and exec.
    #[error("cannot start init (line {step})")]
    Child {
        /// Number of the step between clone and exec, as `child.rs` and `external.rs` list them.
        step: i32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

const STACK: usize = 32 * 1024;

/// Creates the process and returns once init's program runs in it, waiting for its plan.
///
/// # Errors
/// The step that failed; nothing is left behind.
pub fn spawn(launch: &Launch<'_>) -> Result<RunningInit, SpawnError> {
    let init = memfd::init_program().map_err(SpawnError::Prepare)?;
    let mut stack = vec![0u128; STACK / 16];
    let fd = |f: &BorrowedFd<'_>| f.as_raw_fd();
    let mut child = InitChild {
        fds: [
            fd(&launch.stdio[0]),
            fd(&launch.stdio[1]),
            fd(&launch.stdio[2]),
            -1,
            fd(&launch.lifeline),
            fd(&launch.status),
            fd(&launch.events),
            fd(&launch.sync),
            init.as_raw_fd(),
        ],
        cgroup: -1,
        keep_caps: launch.namespaces.jail,
        argv: [c"cofferdam-init".as_ptr().cast(), std::ptr::null()],
        envp: [std::ptr::null()],
        failed: None,
    };
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK) as u64 | launch.namespaces.flags();
    let cgroup = launch.cgroup.as_ref().map(fd);
    let inside = launch.network.map(netns::Lease::enter).transpose().map_err(SpawnError::Prepare)?;
    let blocked = BlockedSignals::new().map_err(SpawnError::Prepare)?;
    // SAFETY: the stack is memory of ours that nothing else uses; `entry` does not return; `child` and all that it
    // points to live until the call returns, which is after the child has exec'd or ended.
    let mut start = |child: &mut InitChild, cgroup| unsafe {
        clone::start(clone::CloneRequest { flags, stack: &mut stack, cgroup }, entry, &raw mut *child as usize)
    };
    let started = match (start(&mut child, cgroup), cgroup) {
        // Being born in a cgroup takes clone3.
        (Err(e), Some(dir)) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            child.cgroup = dir;
            start(&mut child, None)
        }
        (started, _) => started,
    };
    drop(blocked);
    drop(inside); // this thread is back in its own network namespace before anything else happens on it
    let (pid, pidfd) = started.map_err(SpawnError::Clone)?;
    // SAFETY: `child` is a local that the other process wrote while it shared our memory; read it as memory, not as
    // what the compiler last knew of it.
    if let Some((step, errno)) = unsafe { (&raw const child.failed).read_volatile() } {
        crate::process::wait(std::os::fd::AsFd::as_fd(&pidfd)).map_err(SpawnError::Prepare)?;
        return Err(SpawnError::Child { step: step as i32, source: io::Error::from_raw_os_error(errno) });
    }
    Ok(RunningInit { pid, pidfd })
}

/// All signals blocked on this thread while it shares its memory with the child: no handler may run there.
struct BlockedSignals {
    old: libc::sigset_t,
}

impl BlockedSignals {
    fn new() -> io::Result<BlockedSignals> {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        let mut old = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both sets are valid memory of the right type; sigfillset initializes the first before it is read.
        let r = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr())
        };
        if r != 0 {
            return Err(io::Error::from_raw_os_error(r));
        }
        // SAFETY: pthread_sigmask succeeded and stored the old mask.
        Ok(BlockedSignals { old: unsafe { old.assume_init() } })
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the mask came from pthread_sigmask. It cannot fail with a valid `how`.
        let r = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.old, std::ptr::null_mut()) };
        debug_assert_eq!(r, 0);
    }
}
