//! How init comes by its descriptors: the pairs that its owner makes, and the rendezvous socket at which it fetches
//! them where the runtime hands none on.
//!
//! The socket lies in the run's own directory, which is mounted into the container. Nothing runs in there before init,
//! no other process reaches that directory, and the socket is removed before the program starts.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_confine::wire::fd::INITIAL_COUNT;
use cofferdam_confine::{RunningInit, control, process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::StartedContainer;
use crate::failure::{FailedStep, Failure};
use crate::run::lifeline::Lifeline;
use crate::run::streams::give_away;

/// How long init may take to come.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the runtime is asked meanwhile.
const ASK: Duration = Duration::from_millis(20);

/// Our ends.
pub(crate) struct Ours {
    /// Standard input, output and error.
    pub stdio: [OwnedFd; 3],
    /// Closing it ends the run.
    pub lifeline: Lifeline,
    /// Status records.
    pub status: OwnedFd,
    /// Event records.
    pub events: OwnedFd,
    /// The socket of the control messages.
    pub control: OwnedFd,
}

/// Init's ends.
pub(crate) struct Theirs {
    /// Standard input, output and error.
    pub stdio: [OwnedFd; 3],
    /// In the place of the plan, which comes by letter.
    pub nothing: OwnedFd,
    /// Readable when the owner is gone.
    pub lifeline: OwnedFd,
    /// Status records.
    pub status: OwnedFd,
    /// Event records.
    pub events: OwnedFd,
    /// Letters.
    pub control: OwnedFd,
}

impl Theirs {
    /// What follows the standard streams, from 3 on.
    pub(super) fn init(&self) -> [BorrowedFd<'_>; 5] {
        [&self.nothing, &self.lifeline, &self.status, &self.events, &self.control].map(AsFd::as_fd)
    }

    /// The standard streams.
    pub(super) fn stdio(&self) -> [BorrowedFd<'_>; 3] {
        [&self.stdio[0], &self.stdio[1], &self.stdio[2]].map(AsFd::as_fd)
    }
}

/// Makes both sides. The streams become the program's own, as whom it may open them by name.
///
/// # Errors
/// No descriptors are left.
pub(crate) fn ends(user: (u32, u32)) -> Result<(Ours, Theirs), Failure> {
    let failed = |e: io::Error| {
        Failure::new(FailedStep::Container, format!("cannot make the run's pipes: {e}"))
            .hint("more open files have to be allowed here: ulimit -n")
    };
    let (in_theirs, in_ours) = crate::run::streams::incoming().map_err(failed)?;
    let (out_ours, out_theirs) = crate::run::streams::outgoing().map_err(failed)?;
    let (err_ours, err_theirs) = crate::run::streams::outgoing().map_err(failed)?;
    for theirs in [&in_theirs, &out_theirs, &err_theirs] {
        give_away(theirs, user);
    }
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| failed(e.into()));
    let records = |flags: SocketFlags| {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)
            .map_err(|e| failed(e.into()))
    };
    let (life_theirs, lifeline) = pipe()?;
    let (nothing, _) = pipe()?;
    let (status, status_theirs) = records(SocketFlags::empty())?;
    let (events, events_theirs) = records(SocketFlags::NONBLOCK)?;
    let (control, control_theirs) = control::socket().map_err(failed)?;
    let ours =
        Ours { stdio: [in_ours, out_ours, err_ours], lifeline: Lifeline::new(lifeline), status, events, control };
    let theirs = Theirs {
        stdio: [in_theirs, out_theirs, err_theirs],
        nothing,
        lifeline: life_theirs,
        status: status_theirs,
        events: events_theirs,
        control: control_theirs,
    };
    Ok((ours, theirs))
}

/// Where init comes.
pub(crate) struct Rendezvous {
    listener: OwnedFd,
    path: PathBuf,
}

impl Rendezvous {
    /// Its name in the run's directory.
    pub(super) const NAME: &'static str = "door";

    /// Opens one in a run's directory.
    ///
    /// # Errors
    /// socket(2), bind(2), listen(2), chmod(2).
    pub(super) fn open(directory: &Path) -> Result<Rendezvous, Failure> {
        let path = directory.join(Self::NAME);
        let open = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            // By the directory's descriptor: an address has room for 107 bytes (unix(7)).
            let at = std::fs::File::open(directory)?;
            let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/{}", at.as_raw_fd(), Self::NAME))?;
            bind(&listener, &address)?;
            // Init may be another user; nobody but it comes by this directory.
            std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
            listen(&listener, 1)?;
            Ok(listener)
        };
        match open() {
            Ok(listener) => Ok(Rendezvous { listener, path }),
            Err(e) => Err(Failure::new(
                FailedStep::Container,
                format!("cannot open {} for the container's init: {e}", path.display()),
            )
            .hint("set COFFERDAM_STATE to a directory on a file system of this machine's")),
        }
    }

    /// Waits for init and hands over what is its. The socket is removed after that.
    ///
    /// # Errors
    /// It does not come, and why.
    pub(super) fn admit(self, theirs: &Theirs, made: &dyn StartedContainer) -> Result<RunningInit, Failure> {
        let connection = self.knock(made)?;
        let gone = |e: io::Error| {
            let hint = "somebody has ended it: look into the engine's log, or use --backend jail";
            Failure::new(FailedStep::Container, format!("the container's init is gone: {e}")).hint(hint)
        };
        std::fs::remove_file(&self.path).map_err(gone)?;
        let number = process::peer(connection.as_fd()).map_err(gone)?;
        let Some(pid) = Pid::from_raw(number) else {
            return Err(Failure::new(
                FailedStep::Container,
                "the container runs where its processes cannot be seen from here",
            )
            .hint(
                "run this command in the pid namespace of the engine (docker run --pid=host), or use --backend jail",
            ));
        };
        // Taken before anything is sent: what is sent arrives only where the connection, and so the process, still is.
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| gone(e.into()))?;
        let stdio = theirs.stdio();
        let all: Vec<BorrowedFd<'_>> = stdio.into_iter().chain(theirs.init()).collect();
        debug_assert_eq!(all.len(), INITIAL_COUNT);
        control::descriptors(connection.as_fd(), &all).map_err(gone)?;
        Ok(RunningInit { pid: number, pidfd })
    }

    fn knock(&self, made: &dyn StartedContainer) -> Result<OwnedFd, Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
            let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(ASK.subsec_nanos()) };
            // EINTR is a reason to look again.
            if matches!(poll(&mut fds, Some(&pause)), Ok(n) if n > 0) {
                match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                    Ok(connection) => return Ok(connection),
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                    Err(e) => {
                        let hint = "more open files have to be allowed here: ulimit -n";
                        return Err(Failure::new(
                            FailedStep::Container,
                            format!("cannot let the container's init in: {e}"),
                        )
                        .hint(hint));
                    }
                }
            }
            if let Some(why) = made.gave_up() {
                return Err(why);
            }
            if Instant::now() > until {
                let hint = "what mounts the directory of the run, or a label of SELinux on it, may keep it away";
                let message = format!("the container's init has not come in {} seconds", PATIENCE.as_secs());
                return Err(Failure::new(FailedStep::Container, message).hint(hint));
            }
        }
    }
}
