//! The jail: namespaces, mounts, Landlock, seccomp, rlimits and a cgroup around one command.
//!
//! `run` is the owner's half of the order; init's half stands in `confine/init/main.rs`. What is opened here is closed
//! by ownership on every path; what the kernel would keep (cgroup directories) is removed before the call returns.

mod paths;
mod plan;
mod root;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_confine::cgroup::Cgroup;
use cofferdam_confine::host::{self, CallerIdentity};
use cofferdam_confine::init_plan::{self, InitPlan, MountSource};
use cofferdam_confine::netns::Lease;
use cofferdam_confine::spawn::{Namespaces, SpawnError};
use cofferdam_confine::status::{self, InitStatus};
use cofferdam_confine::wire::flag;
use cofferdam_confine::{Launch, control, memfd, mountfd, spawn};
use cofferdam_policy::{BackendName, Policy};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

pub(crate) use plan::plan;
pub(crate) use root::Ids;
pub(crate) use root::terminal_device;

use crate::backends::native::{self, Native};
use crate::backends::{Backend, BackendPlan, BackendRefusal, Capabilities, PlanRequest};
use crate::failure::{FailedStep, Failure};
use crate::host::Host;
use crate::plan::NativePlan;
use crate::plan::own_places::OwnPlaces;
use crate::plan::seccomp_filter::{Filters, Needs};
use crate::run::lifeline::Lifeline;

/// The jail.
#[derive(Debug)]
pub(crate) struct Jail;

static NATIVE: Native = Native {
    name: BackendName::Jail,
    namespaces: true,
    needs: Needs::default,
    plan: |policy, me, filters, own| Ok(complete(policy, me, filters, &Ids::fresh(), own)?),
};

impl Backend for Jail {
    fn name(&self) -> &'static str {
        NATIVE.name.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            takes_arguments: true,
            hands_back: true,
            hides_paths: true,
            judges_sources: true,
            sets_up_under_limits: true,
        }
    }

    fn plan(&self, host: &Host, request: &PlanRequest<'_>) -> Result<Box<dyn BackendPlan>, BackendRefusal> {
        available(host.identity())?;
        Ok(Box::new(native::prepare(host, &NATIVE, request)?))
    }
}

/// Whether this process can make the namespaces of a jail, and its filter.
///
/// # Errors
/// Why not, and what would help.
pub(crate) fn available(me: CallerIdentity) -> Result<(), Failure> {
    let refused = |why: String, hint: &str| {
        Failure::new(FailedStep::Namespaces, format!("user namespaces cannot be had: {why}")).hint(hint)
    };
    if let Some((why, command)) = host::user_namespaces_refused(me.privileged) {
        return Err(refused(why.to_owned(), command));
    }
    if !me.privileged && me.is_root_outside() {
        return Err(crate::backends::landlock::as_root());
    }
    // The switches are not all: what is around this process may refuse as well, and only trying tells.
    if host::is_enclosed()
        && let Err(e) = host::try_user_namespace()
    {
        return Err(refused(format!("{e}; what is around this process refuses them"), host::ENCLOSED));
    }
    if host::is_enclosed() && !host::listener_available() {
        let why = "what is around this process has a filter with a listener, and the kernel gives one to each process";
        return Err(Failure::new(FailedStep::Namespaces, format!("no filter of ours can stand here: {why}"))
            .hint(host::ENCLOSED));
    }
    Ok(())
}

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
        // Not to know is to take it for over.
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
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

/// Starts init in its namespaces and hands its plan over: from here on it works. Also returns what further plans are sent by.
///
/// # Errors
/// Nothing runs.
pub(crate) fn start(
    namespaces: Namespaces,
    cgroup: Option<&Cgroup>,
    network: Option<&Lease>,
    init_plan: &InitPlan,
    extra: &[OwnedFd],
) -> Result<(Started, OwnedFd), Failure> {
    let io = |e: std::io::Error| Failure::new(FailedStep::Spawn, "cannot make the run's pipes").caused_by(&e);
    let (in_theirs, in_ours) = crate::run::streams::incoming().map_err(io)?;
    let (out_ours, out_theirs) = crate::run::streams::outgoing().map_err(io)?;
    let (err_ours, err_theirs) = crate::run::streams::outgoing().map_err(io)?;
    for theirs in [&in_theirs, &out_theirs, &err_theirs] {
        crate::run::streams::give_away(theirs, init_plan.ids_out);
    }
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
    let lifeline = Lifeline::new(lifeline);
    let started =
        Started { running, status, received: Vec::new(), events, lifeline, stdio: [in_ours, out_ours, err_ours] };
    let handed = send_plan(&control, init_plan, extra).and_then(|()| release(init_plan, started.running.pid, &control));
    match handed {
        Ok(()) => Ok((started, control)),
        Err(failure) => {
            end(started);
            Err(failure)
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

/// A user namespace that maps one owner of files to the sandbox's user.
#[derive(Debug, Clone)]
pub(crate) struct OwnerMap {
    owner: (u32, u32),
    outside: (u32, u32),
    namespace: Arc<OwnedFd>,
}

impl OwnerMap {
    /// Makes one, which takes a process.
    ///
    /// # Errors
    /// user_namespaces(7).
    pub(crate) fn new(owner: (u32, u32), outside: (u32, u32)) -> std::io::Result<OwnerMap> {
        let namespace = mountfd::owner_map((owner.0, outside.0), (owner.1, outside.1))?;
        Ok(OwnerMap { owner, outside, namespace: Arc::new(namespace) })
    }
}

/// Owner maps kept from run to run: they name ids, nothing of the host's files.
#[derive(Debug, Default)]
pub(crate) struct OwnerMaps(Mutex<Vec<OwnerMap>>);

impl OwnerMaps {
    fn get(&self, owner: (u32, u32), outside: (u32, u32)) -> std::io::Result<Arc<OwnedFd>> {
        let mut maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = maps.iter().find(|m| (m.owner, m.outside) == (owner, outside)) {
            return Ok(map.namespace.clone());
        }
        let made = OwnerMap::new(owner, outside)?;
        let namespace = made.namespace.clone();
        maps.push(made);
        Ok(namespace)
    }
}

/// Opens and maps the sources of a privileged owner, each checked against what the plan saw.
///
/// # Errors
/// A source was replaced, or its file system cannot map owners and the mount is writable.
pub(crate) fn prepare(plan: &NativePlan, outside: (u32, u32), maps: &OwnerMaps) -> Result<Vec<OwnedFd>, Failure> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
    let mut trees = Vec::new();
    for p in &plan.prepared {
        let fail = |what: &str, e: &dyn std::error::Error, hint| {
            Failure::new(&p.step, format!("{what} {}", p.path)).caused_by(e).maybe_hint(hint)
        };
        let at = openat2(CWD, &p.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(|e| fail("cannot open", &e, None))?;
        let st = statx(&at, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(|e| fail("cannot look at", &e, None))?;
        let identity = (u64::from(st.stx_dev_major) << 32 | u64::from(st.stx_dev_minor), st.stx_ino);
        if identity != p.identity {
            let e = std::io::Error::other("it was replaced while the run was being prepared");
            return Err(fail("will not use", &e, None));
        }
        let tree = mountfd::clone_tree(at.as_fd()).map_err(|e| fail("cannot clone the mount of", &e, None))?;
        let map = maps.get(p.owner, outside).map_err(|e| fail("cannot make an owner map for", &e, None))?;
        if let Err(e) = mountfd::map_owners(tree.as_fd(), map.as_fd())
            && p.required
        {
            let hint = "its file system, or one mounted below it, cannot map owners; copy it to one that can (ext4, xfs, btrfs, tmpfs), or run as its owner";
            return Err(fail(
                "cannot map, for the sandbox's unprivileged user, the owners of",
                &e,
                Some(hint.to_owned()),
            ));
        }
        trees.push(tree);
    }
    Ok(trees)
}

/// The host's ids that a jail's user stands for.
pub(crate) fn outside(me: CallerIdentity) -> Option<(u32, u32)> {
    if me.privileged { cofferdam_confine::host::unprivileged_id().map(|id| (id, id)) } else { Some((me.uid, me.gid)) }
}

/// Namespaces of a plan.
pub(crate) fn namespaces(plan: &NativePlan, jail: bool) -> Namespaces {
    Namespaces { jail, net: plan.own_net }
}

/// A policy's plan with the filter that its guards ask for, and its layers of hidden names.
///
/// # Errors
/// As `plan`, and when a layer cannot be made.
pub(crate) fn complete(
    policy: &Policy,
    me: CallerIdentity,
    filters: &Filters,
    ids: &Ids,
    own: &OwnPlaces,
) -> Result<NativePlan, Failure> {
    crate::plan::whiteout::claim(policy);
    let mut plan = plan(policy, me, filters, ids, own)?;
    for (op, names) in &plan.whiteouts {
        let dir = crate::plan::whiteout::layer(names)?;
        if let Some(init_plan::MountStep::Whiteout { layer, .. }) = plan.init_plan.mounts.get_mut(*op) {
            *layer = MountSource::System(dir);
        }
    }
    Ok(plan)
}
