//! Init on its way into the sandbox: started in its namespaces, it waits for its plan, and from then on it works.
//!
//! ```text
//! PendingInit::launch ── clone, exec ──▶ init waits ── hand_over: plan, id maps, release ──▶ Started
//! ```
//!
//! Knows no policy. What is opened here is closed by ownership on every path, and an init without a plan is ended.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::Cgroup;
use cofferdam_confine::init_plan::InitPlan;
use cofferdam_confine::netns::Lease;
use cofferdam_confine::spawn::{Namespaces, SpawnError};
use cofferdam_confine::status::{self, InitStatus};
use cofferdam_confine::wire::flag;
use cofferdam_confine::{Launch, control, memfd, spawn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::failure::{FailedStep, Failure};
use crate::run::lifeline::Lifeline;

/// How long a run waits for a sandbox that is being staged when it begins. Staging takes less than a millisecond.
const SET_UP_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The owner's ends of a run that has been started.
#[derive(Debug)]
pub(crate) struct Started {
    /// Init.
    pub running: cofferdam_confine::RunningInit,
    /// Status records.
    pub status: OwnedFd,
    /// Those that were received while it waited for its run.
    pub received: Vec<InitStatus>,
    /// Event records.
    pub events: OwnedFd,
    /// Closing it ends the run.
    pub lifeline: Lifeline,
    /// Standard input, output and error: our ends.
    pub stdio: [OwnedFd; 3],
}

impl Started {
    /// Whether init has ended.
    pub(crate) fn is_over(&self) -> bool {
        let mut fds = [PollFd::new(&self.running.pidfd, PollFlags::IN)];
        // If it cannot be asked, it counts as ended.
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).map_or(true, |n| n > 0)
    }

    /// Whether init has set up a sandbox that is staged before its run; waits until it has, or has failed, but not for ever.
    pub(crate) fn is_set_up(&mut self) -> bool {
        loop {
            match status::receive(self.status.as_fd()) {
                Ok(Some(InitStatus::Held)) => return true,
                Ok(Some(InitStatus::Failed { .. }) | None) => return false,
                Ok(Some(other)) => self.received.push(other),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&self.status, PollFlags::IN)];
                    match poll(&mut fds, Some(&SET_UP_TIMEOUT)) {
                        Ok(0) => return false,
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(_) => return false,
                    }
                }
                Err(_) => return false,
            }
        }
    }
}

/// A pair of connected record sockets: ours, init's.
fn records(flags: SocketFlags) -> Result<(OwnedFd, OwnedFd), Failure> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)
        .map_err(|e| Failure::new(FailedStep::Spawn, "cannot make a socket pair").caused_by(&e))
}

/// How long what was made before its run may wait for it: longer than a policy takes to plan, and shorter than a person.
pub(crate) const FRESH: Duration = Duration::from_millis(20);

/// Init in its namespaces, which waits for its plan. Dropped, it is ended.
#[derive(Debug)]
pub(crate) struct PendingInit {
    namespaces: Namespaces,
    launched: Instant,
    /// The owner's ends, and what plans are sent by; `None` once it has its plan.
    ends: Option<(Started, OwnedFd)>,
    /// Init's ends of the standard streams.
    theirs: [OwnedFd; 3],
}

impl PendingInit {
    /// The namespaces that nearly every run has.
    pub(crate) const LIKELY: Namespaces = Namespaces { jail: true, net: true };

    /// Starts init in its namespaces.
    ///
    /// # Errors
    /// Nothing runs.
    pub(crate) fn launch(
        namespaces: Namespaces,
        cgroup: Option<&Cgroup>,
        network: Option<&Lease>,
    ) -> Result<PendingInit, Failure> {
        let io = |e: std::io::Error| Failure::new(FailedStep::Spawn, "cannot make the run's pipes").caused_by(&e);
        let (in_theirs, in_ours) = crate::run::streams::incoming().map_err(io)?;
        let (out_ours, out_theirs) = crate::run::streams::outgoing().map_err(io)?;
        let (err_ours, err_theirs) = crate::run::streams::outgoing().map_err(io)?;
        let (life_theirs, lifeline) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| io(e.into()))?;
        let (status, status_theirs) = records(SocketFlags::empty())?;
        let (events, events_theirs) = records(SocketFlags::NONBLOCK)?;
        let (control, control_theirs) = control::socket().map_err(io)?;
        let launch = Launch {
            namespaces,
            stdio: [in_theirs.as_fd(), out_theirs.as_fd(), err_theirs.as_fd()],
            lifeline: life_theirs.as_fd(),
            status: status_theirs.as_fd(),
            events: events_theirs.as_fd(),
            sync: control_theirs.as_fd(),
            cgroup: cgroup.and_then(Cgroup::dir_fd),
            network,
        };
        let running = spawn(&launch).map_err(|e| spawn_failure(&e, namespaces.jail))?;
        let (lifeline, stdio) = (Lifeline::new(lifeline), [in_ours, out_ours, err_ours]);
        let started = Started { running, status, received: Vec::new(), events, lifeline, stdio };
        let theirs = [in_theirs, out_theirs, err_theirs];
        Ok(PendingInit { namespaces, launched: Instant::now(), ends: Some((started, control)), theirs })
    }

    /// Its pid.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> i32 {
        self.ends.as_ref().map_or(0, |(started, _)| started.running.pid)
    }

    /// Whether a run in these namespaces may have it: what is mounted on the host it knows from when it was launched.
    pub(crate) fn serves(&self, namespaces: Namespaces) -> bool {
        let is_there = self.ends.as_ref().is_some_and(|(started, _)| !started.is_over());
        is_there && self.namespaces == namespaces && self.launched.elapsed() < FRESH
    }

    /// Hands its plan over: from here on it works. Also returns what further plans are sent by.
    ///
    /// # Errors
    /// Nothing runs any more.
    pub(crate) fn hand_over(mut self, init_plan: &InitPlan, extra: &[OwnedFd]) -> Result<(Started, OwnedFd), Failure> {
        for theirs in &self.theirs {
            crate::run::streams::give_away(theirs, init_plan.ids_out);
        }
        if let Some((started, control)) = &self.ends {
            send_plan(control, init_plan, extra)?;
            release(init_plan, started.running.pid, control)?;
        }
        self.ends.take().ok_or_else(|| Failure::new(FailedStep::Spawn, "init has its plan already"))
    }
}

impl Drop for PendingInit {
    fn drop(&mut self) {
        if let Some((started, _)) = self.ends.take() {
            end(started);
        }
    }
}

/// Sends init its plan.
///
/// # Errors
/// Init is gone.
pub(crate) fn send_plan(control: &OwnedFd, init_plan: &InitPlan, extra: &[OwnedFd]) -> Result<(), Failure> {
    let block = memfd::plan(&init_plan.encode())
        .map_err(|e| Failure::new(FailedStep::Spawn, "cannot write the plan").caused_by(&e))?;
    let extra: Vec<BorrowedFd<'_>> = extra.iter().map(AsFd::as_fd).collect();
    control::plan(control.as_fd(), block.as_fd(), &extra)
        .map_err(|e| Failure::new(FailedStep::Spawn, "cannot hand the plan over").caused_by(&e))
}

/// Ends a run that never began, and reaps it.
pub(crate) fn end(started: Started) {
    let Started { running, lifeline, .. } = started;
    drop(lifeline);
    for done in [
        cofferdam_confine::process::kill(running.pidfd.as_fd()),
        cofferdam_confine::process::wait(running.pidfd.as_fd()).map(|_| ()),
    ] {
        if let Err(e) = done {
            debug_assert!(false, "a child of ours could not be ended: {e}");
        }
    }
}

/// What only a privileged owner can do for a process in its new namespaces: its id maps. Then it may go on.
fn release(init_plan: &InitPlan, pid: i32, control: &OwnedFd) -> Result<(), Failure> {
    if init_plan.flags & flag::MAPS_BY_OWNER != 0 {
        for (name, inside, outside) in
            [("uid_map", init_plan.ids_in.0, init_plan.ids_out.0), ("gid_map", init_plan.ids_in.1, init_plan.ids_out.1)]
        {
            File::options()
                .write(true)
                .open(format!("/proc/{pid}/{name}"))
                .and_then(|mut f| f.write_all(format!("{inside} {outside} 1").as_bytes()))
                .map_err(|e| {
                    Failure::new(FailedStep::Ids, format!("cannot write the sandbox's {name}")).caused_by(&e)
                })?;
        }
    }
    if init_plan.flags & flag::SYNC != 0 {
        control::release(control.as_fd())
            .map_err(|e| Failure::new(FailedStep::Spawn, "cannot release init").caused_by(&e))?;
    }
    Ok(())
}

fn spawn_failure(e: &SpawnError, jail: bool) -> Failure {
    let hint = match e {
        SpawnError::Clone(cause) => match cause.raw_os_error() {
            Some(1 | 28) if jail => Some(
                "user namespaces are switched off here; `cofferdam doctor` names the command that switches them on, \
                 and --backend landlock runs without them"
                    .to_owned(),
            ),
            Some(1 | 38) => Some("what is around this process lets it make no other one".to_owned()),
            _ => None,
        },
        SpawnError::Child { source, .. } if source.raw_os_error() == Some(13) => {
            Some("executable memory files are switched off: sysctl -w vm.memfd_noexec=1".to_owned())
        }
        _ => None,
    };
    Failure::new(FailedStep::Namespaces, "nothing was started").caused_by(e).maybe_hint(hint)
}
