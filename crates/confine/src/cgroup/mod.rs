//! Control groups: memory, process and CPU limits that hold for a whole tree of processes, and its figures.
//!
//! Owns every directory whose name begins with `cofferdam-` in the hierarchies, from `mkdir` to `rmdir`, and
//! moves no process of others; one of them, over all runs of a user, stays (`cap`). Runs no program and knows no policy: the engine asks for [`CgroupLimits`] and learns per
//! field what was [`Reached`].
//!
//! ```text
//!  probe() ──▶ Probe ──▶ prepare() ──▶ Location ──▶ Cgroup::create ──▶ attach / dir_fd ──▶ usage, events
//!  (looks)     (doctor)  (may move us)  (keep it)        │                                       │
//!                                          sweep(): dead owners'          kill_all ──▶ reset or remove
//! ```
//!
//! One [`Cgroup`] is one directory per hierarchy that something was asked of: one on version 2, up to five on
//! version 1, each held by fd. On hybrid hosts a version 2 directory counts CPU time instead of `cpuacct`, for
//! the same price, and adds `cgroup.kill` and `CLONE_INTO_CGROUP`.

mod cap;
mod dbus;
mod discover;
mod io;
mod kill;
mod mounts;
mod name;
mod observed;
mod reader;
mod sweep;
pub(crate) mod systemd;
mod types;
mod v1;
mod v2;

use std::io::Result as IoResult;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::Pid;

pub use cap::MemoryCap;
pub use discover::{Availability, CgroupLocation, CgroupPlan, LimitMechanism, Probe, is_own, probe};
pub use reader::{CgroupReader, Charged, Now};
pub use sweep::{SweepReport, sweep};
pub use types::{
    AppliedLimits, CgroupError, CgroupEvents, CgroupLimits, CgroupUsage, LimitLevel, OomCause, OomWatch, Reached,
};

use discover::{CgroupParent, CgroupVersion, enable, serve};
use io as files;

/// How long `remove` waits for the kernel to let go of processes that have ended, in all.
const REMOVE_PATIENCE: Duration = Duration::from_millis(500);

/// Failures of `Drop`, which cannot return them.
static DROPPED: Mutex<Vec<CgroupError>> = Mutex::new(Vec::new());

/// Takes the errors of cgroups that were dropped instead of removed, so that none is lost.
pub fn take_drop_errors() -> Vec<CgroupError> {
    std::mem::take(&mut *DROPPED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// One directory of a cgroup.
#[derive(Debug)]
struct CgroupNode {
    parent: Arc<CgroupParent>,
    dir: OwnedFd,
    /// What this directory answers for (`serve`).
    serves: u8,
    removed: bool,
}

impl CgroupNode {
    fn object(&self, name: &str) -> String {
        self.parent.path.join(name).display().to_string()
    }

    /// Sets a limit. The directory over all runs may have been made before there was a controller for it: it gets it then.
    fn limit(&self, bit: u8, set: impl Fn(BorrowedFd<'_>) -> Reached) -> Reached {
        let reached = set(self.dir.as_fd());
        let late = reached.level == LimitLevel::None
            && self.parent.version == CgroupVersion::V2
            && self.parent.above.is_some()
            && enable(&self.parent.dir, bit) == bit;
        if late { set(self.dir.as_fd()) } else { reached }
    }
}

/// A control group of our own for one sandbox, empty until something is attached.
///
/// Ends by [`Cgroup::remove`]; dropping it removes it too and keeps a failure for [`take_drop_errors`].
#[derive(Debug)]
pub struct Cgroup {
    name: String,
    nodes: Vec<CgroupNode>,
    limits: CgroupLimits,
    /// Counters that the kernel does not reset, as they stood when this run began.
    base: UsageBase,
}

#[derive(Debug, Clone, Copy, Default)]
struct UsageBase {
    cpu_time_us: u64,
    events: CgroupEvents,
}

impl Cgroup {
    /// Makes a cgroup below `location` and sets its limits before anything can run in it.
    ///
    /// A limit that cannot be set does not fail the call: `AppliedLimits` says so, and the caller decides.
    ///
    /// # Errors
    /// When no directory could be made at all; what was made until then is removed.
    pub fn create(location: &CgroupLocation, limits: &CgroupLimits) -> Result<(Self, AppliedLimits), CgroupError> {
        let (group, failed, cause) = Self::directories(location, limits)?;
        let applied = group.apply(limits, failed, cause.as_deref());
        Ok((group, applied))
    }

    /// The directories of a cgroup whose limits are not known yet, where all can be made that limits of this kind need.
    pub fn unlimited(location: &CgroupLocation, likely: &CgroupLimits) -> Option<Self> {
        let (group, failed, _) = Self::directories(location, likely).ok()?;
        (failed == 0).then_some(group)
    }

    /// Sets the limits of a cgroup that was made without; `None`, and nothing is done, when they need other directories.
    pub fn limit(&mut self, limits: &CgroupLimits) -> Option<AppliedLimits> {
        if wanted(limits) != wanted(&self.limits) || limits.kill != self.limits.kill {
            return None;
        }
        self.limits = *limits;
        Some(self.apply(limits, 0, None))
    }

    /// The directories, what could not be had of them, and why.
    fn directories(
        location: &CgroupLocation,
        limits: &CgroupLimits,
    ) -> Result<(Self, u8, Option<String>), CgroupError> {
        let wanted = wanted(limits);
        let mut group = Self {
            name: location.identity.fresh_name(),
            nodes: Vec::new(),
            limits: *limits,
            base: UsageBase::default(),
        };
        let (mut failed, mut cause) = (0, None);
        for (parent, serves) in assign(&location.parents, wanted, limits.kill) {
            match make_in(parent, &group.name, serves) {
                Ok(node) => group.nodes.push(node),
                Err(error) => {
                    failed |= serves;
                    cause = Some((parent.path.join(&group.name), error));
                }
            }
        }
        if group.nodes.is_empty() {
            return Err(match cause {
                Some((path, error)) => CgroupError::io("make cgroup", path.display().to_string(), error),
                None => CgroupError::Unavailable {
                    reason: "no hierarchy here holds any of the limits asked for".to_owned(),
                    hint: "see `cofferdam doctor`".to_owned(),
                },
            });
        }
        let cause = cause.map(|(path, error)| format!("cannot make {}: {error}", path.display()));
        Ok((group, failed, cause))
    }

    fn apply(&self, limits: &CgroupLimits, failed: u8, cause: Option<&str>) -> AppliedLimits {
        let absent = |bit: u8, name: &str| {
            let reason = cause.filter(|_| failed & bit != 0).map(str::to_owned);
            Reached::none(reason.unwrap_or_else(|| format!("no {name} controller is available to this process")))
        };
        let memory = limits.memory_bytes.map(|bytes| match self.node(serve::MEMORY) {
            Some(node) if node.parent.version == CgroupVersion::V1 => {
                let reached = v1::limit_memory(node.dir.as_fd(), bytes);
                match v1::limit_sockets(node.dir.as_fd(), bytes) {
                    Err(reason) if reached.level == LimitLevel::Full => Reached::partial(reason),
                    _ => reached,
                }
            }
            Some(node) => node.limit(serve::MEMORY, |dir| v2::limit_memory(dir, bytes)),
            None => absent(serve::MEMORY, "memory"),
        });
        let pids = limits.pids.map(|count| match self.node(serve::PIDS) {
            Some(node) => node.limit(serve::PIDS, |dir| v1::limit_pids(dir, count)),
            None => absent(serve::PIDS, "pids"),
        });
        let cpu = limits.cpu_millis.map(|millis| match self.node(serve::CPU) {
            Some(node) if node.parent.version == CgroupVersion::V1 => {
                let parent = node.parent.above.as_ref().unwrap_or(&node.parent);
                v1::limit_cpu(node.dir.as_fd(), parent.dir.as_fd(), millis)
            }
            Some(node) => node.limit(serve::CPU, |dir| v2::limit_cpu(dir, millis)),
            None => absent(serve::CPU, "cpu"),
        });
        let cpu_time = limits.cpu_time.then(|| match self.node(serve::CPU_TIME) {
            Some(_) => Reached::full(),
            None => absent(serve::CPU_TIME, "cpuacct"),
        });
        AppliedLimits { memory, pids, cpu, cpu_time }
    }

    fn node(&self, bit: u8) -> Option<&CgroupNode> {
        self.nodes.iter().find(|node| node.serves & bit != 0)
    }

    fn error(&self, operation: &'static str, node: &CgroupNode) -> impl FnOnce(std::io::Error) -> CgroupError {
        let object = node.object(&self.name);
        move |source| CgroupError::io(operation, object, source)
    }

    /// The directory's name, the same in every hierarchy.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version 2 directory, for `CLONE_INTO_CGROUP` (`clone(2)`); `None` where there is no such hierarchy.
    pub fn dir_fd(&self) -> Option<BorrowedFd<'_>> {
        self.nodes.iter().find(|node| node.parent.version == CgroupVersion::V2).map(|node| node.dir.as_fd())
    }

    /// Moves a process with all its threads into every hierarchy; what it forks from then on is inside too.
    ///
    /// Memory that it already has stays charged to where it came from, so attach before exec.
    ///
    /// # Errors
    /// When a hierarchy refuses it; it may then be in some and not in others, and must not be let run.
    pub fn attach(&self, pid: Pid) -> Result<(), CgroupError> {
        self.attach_where(pid, |_| true)
    }

    /// The same for a process that was cloned into [`Cgroup::dir_fd`]: the version 1 hierarchies alone.
    ///
    /// # Errors
    /// As [`Cgroup::attach`].
    pub fn attach_rest(&self, pid: Pid) -> Result<(), CgroupError> {
        self.attach_where(pid, |node| node.parent.version == CgroupVersion::V1)
    }

    fn attach_where(&self, pid: Pid, chosen: impl Fn(&CgroupNode) -> bool) -> Result<(), CgroupError> {
        for node in self.nodes.iter().filter(|node| chosen(node)) {
            let pid = u64::from(pid.as_raw_nonzero().get().unsigned_abs());
            files::write_number(&node.dir, c"cgroup.procs", pid)
                .map_err(self.error("move the process into cgroup", node))?;
        }
        Ok(())
    }

    /// The `tasks` files of the version 1 hierarchies, for a single-threaded child that writes `0` to each of them: the
    /// kernel then moves just that thread, without the machine-wide lock that `cgroup.procs` takes (and its grace period).
    ///
    /// # Errors
    /// When one cannot be opened.
    pub fn tasks_files(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        let open = |node: &CgroupNode| {
            files::open(&node.dir, c"tasks", OFlags::WRONLY).map_err(self.error("open tasks of", node))
        };
        self.nodes.iter().filter(|node| node.parent.version == CgroupVersion::V1).map(open).collect()
    }

    /// For a single-threaded child in an external cgroup: one file of each hierarchy to which it writes `0`, `tasks`
    /// of version 1, `cgroup.procs` of version 2, where permission is judged by who opened it (since 5.16).
    ///
    /// # Errors
    /// When one cannot be opened.
    pub fn join_files(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        let open = |node: &CgroupNode| {
            let name = if node.parent.version == CgroupVersion::V1 { c"tasks" } else { c"cgroup.procs" };
            files::open(&node.dir, name, OFlags::WRONLY).map_err(self.error("open the processes of", node))
        };
        self.nodes.iter().map(open).collect()
    }

    /// What the tree has used so far; final once it is dead.
    ///
    /// # Errors
    /// When a figure that the kernel has cannot be read.
    pub fn usage(&self) -> Result<CgroupUsage, CgroupError> {
        let mut usage = CgroupUsage::default();
        if let Some(node) = self.node(serve::MEMORY) {
            let peak = match node.parent.version {
                CgroupVersion::V1 => v1::memory_peak(node.dir.as_fd()).map(Some),
                CgroupVersion::V2 => v2::memory_peak(node.dir.as_fd()),
            };
            usage.memory_peak_bytes = peak.map_err(self.error("read the memory peak of", node))?;
        }
        if let Some(node) = self.node(serve::CPU_TIME) {
            let total = cpu_time(node).map_err(self.error("read the CPU time of", node))?;
            usage.cpu_time_us = Some(total.saturating_sub(self.base.cpu_time_us));
        }
        if let Some(node) = self.node(serve::PIDS) {
            let (peak, exact) = pids_peak(node).map_err(self.error("read the process count of", node))?;
            (usage.pids_peak, usage.pids_peak_is_exact) = (Some(peak), exact);
        }
        Ok(usage)
    }

    /// CPU time so far, microseconds: the cheap question of a supervisor that holds a CPU time limit.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn cpu_time_us(&self) -> Result<Option<u64>, CgroupError> {
        let Some(node) = self.node(serve::CPU_TIME) else { return Ok(None) };
        let total = cpu_time(node).map_err(self.error("read the CPU time of", node))?;
        Ok(Some(total.saturating_sub(self.base.cpu_time_us)))
    }

    /// What the limits have done to the tree so far.
    ///
    /// # Errors
    /// When a count cannot be read.
    pub fn events(&self) -> Result<CgroupEvents, CgroupError> {
        let (now, base) = (self.all_events()?, self.base.events);
        Ok(CgroupEvents {
            oom_kills: now.oom_kills.saturating_sub(base.oom_kills),
            memory_limit_hits: now
                .memory_limit_hits
                .map(|hits| hits.saturating_sub(base.memory_limit_hits.unwrap_or(0))),
            own_ooms: now.own_ooms.map(|ooms| ooms.saturating_sub(base.own_ooms.unwrap_or(0))),
            pids_limit_hits: now.pids_limit_hits.saturating_sub(base.pids_limit_hits),
            cpu_throttled: now.cpu_throttled.saturating_sub(base.cpu_throttled),
        })
    }

    fn all_events(&self) -> Result<CgroupEvents, CgroupError> {
        let mut events = CgroupEvents::default();
        if let Some(node) = self.node(serve::MEMORY) {
            let dir = node.dir.as_fd();
            let read = match node.parent.version {
                CgroupVersion::V1 => v1::oom_kills(dir).map(|kills| (kills, None, None)),
                CgroupVersion::V2 => {
                    v2::memory_events(dir).map(|seen| (seen.kills, Some(seen.hits), Some(seen.own_ooms)))
                }
            };
            (events.oom_kills, events.memory_limit_hits, events.own_ooms) =
                read.map_err(self.error("read the memory events of", node))?;
        }
        if let Some(node) = self.node(serve::PIDS) {
            events.pids_limit_hits = files::read(&node.dir, c"pids.events")
                .map_err(self.error("read the process events of", node))?
                .key("max")
                .unwrap_or(0);
        }
        if let Some(node) = self.node(serve::CPU) {
            events.cpu_throttled = files::read(&node.dir, c"cpu.stat")
                .map_err(self.error("read the CPU events of", node))?
                .key("nr_throttled")
                .unwrap_or(0);
        }
        Ok(events)
    }

    /// Whose memory had run out where the kernel killed something of the tree for it; `None` where it did not.
    ///
    /// # Errors
    /// When a figure cannot be read.
    pub fn oom_cause(&self) -> Result<Option<OomCause>, CgroupError> {
        let events = self.events()?;
        let Some(node) = self.node(serve::MEMORY).filter(|_| events.oom_kills > 0) else { return Ok(None) };
        let own = match (events.own_ooms, self.limits.memory_bytes) {
            (Some(ooms), _) => Ok(ooms > 0),
            (None, Some(bytes)) => v1::met_limit(&node.dir, bytes),
            // Without a limit of ours there is nobody else to name.
            (None, None) => Ok(true),
        };
        if own.map_err(self.error("read the memory peak of", node))? {
            return Ok(Some(OomCause::OwnLimit));
        }
        let met = if node.parent.above.is_some() { cap::met(&node.parent) } else { Ok(None) };
        let met = met.map_err(self.error("read the memory of all runs around", node))?;
        Ok(Some(met.map_or(OomCause::Machine, OomCause::AllRunsLimit)))
    }

    /// A file to poll for the memory limit being met; `None` without a memory limit.
    ///
    /// # Errors
    /// When it cannot be opened or registered.
    pub fn oom_watch(&self) -> Result<Option<OomWatch>, CgroupError> {
        let Some(node) = self.node(serve::MEMORY) else { return Ok(None) };
        let watch = match node.parent.version {
            CgroupVersion::V1 => v1::oom_watch(node.dir.as_fd()),
            CgroupVersion::V2 => v2::oom_watch(node.dir.as_fd()),
        };
        watch.map(Some).map_err(self.error("watch the memory of", node))
    }

    /// Kills everything inside and waits until it is gone, `patience` at most.
    ///
    /// # Errors
    /// When something is left, and what.
    pub fn kill_all(&self, patience: Duration) -> Result<(), CgroupError> {
        let dirs: Vec<kill::KillTarget<'_>> = self.nodes.iter().map(kill::KillTarget::of).collect();
        let outcome = kill::kill_tree(&dirs, &self.name, patience);
        // A version 1 kill sets pids.max to 0 so that nothing forks away; a reused cgroup needs its own limit back.
        if let (Ok(()), Some(count), Some(node)) = (&outcome, self.limits.pids, self.node(serve::PIDS)) {
            files::write_number(&node.dir, c"pids.max", count).map_err(self.error("restore pids.max of", node))?;
        }
        outcome
    }

    /// Makes the empty cgroup as good as new, for the next run with the same limits: cheaper than another.
    ///
    /// # Errors
    /// `NotReusable` when something is still inside or the kernel cannot restart a peak (version 2); the caller
    /// removes it and makes another.
    pub fn reset(&mut self) -> Result<(), CgroupError> {
        let refuse = |reason: &str| CgroupError::NotReusable { name: self.name.clone(), reason: reason.to_owned() };
        // Every hierarchy holds the same processes.
        if let Some(node) = self.nodes.first()
            && !files::is_empty(&node.dir).map_err(self.error("read cgroup.procs of", node))?
        {
            return Err(refuse("processes are inside"));
        }
        if let Some(node) = self.node(serve::MEMORY) {
            match node.parent.version {
                CgroupVersion::V1 => {
                    v1::reset_memory(node.dir.as_fd()).map_err(self.error("reset the memory figures of", node))?;
                }
                CgroupVersion::V2 => return Err(refuse("memory.peak cannot be reset for every reader")),
            }
        }
        self.renew_pids()?;
        let cpu_time_us = match self.node(serve::CPU_TIME) {
            Some(node) => cpu_time(node).map_err(self.error("read the CPU time of", node))?,
            None => 0,
        };
        self.base = UsageBase { cpu_time_us, events: self.all_events()? };
        Ok(())
    }

    /// No kernel can restart `pids.peak`, so its directory is made anew where it is one of its own; it is the
    /// cheapest of all.
    fn renew_pids(&mut self) -> Result<(), CgroupError> {
        let Some(at) = self.nodes.iter().position(|node| node.serves & serve::PIDS != 0) else { return Ok(()) };
        let node = &self.nodes[at];
        if !files::exists(&node.dir, c"pids.peak") {
            return Ok(());
        }
        let refuse = |reason: &str| CgroupError::NotReusable { name: self.name.clone(), reason: reason.to_owned() };
        if node.serves != serve::PIDS || node.parent.version == CgroupVersion::V2 {
            return Err(refuse("pids.peak cannot be reset"));
        }
        remove_dir(&node.parent.dir, &self.name, REMOVE_PATIENCE).map_err(self.error("renew", node))?;
        let fresh = make(&node.parent, &self.name, node.serves).map_err(self.error("renew", node))?;
        if let Some(count) = self.limits.pids {
            let reached = v1::limit_pids(fresh.dir.as_fd(), count);
            if reached.level != LimitLevel::Full {
                self.nodes[at] = fresh;
                return Err(refuse("pids.max could not be set again"));
            }
        }
        self.nodes[at] = fresh;
        Ok(())
    }

    /// Removes the empty directories, waiting a little for the kernel to let go of what has just ended.
    ///
    /// # Errors
    /// When one remains; the others are removed all the same.
    pub fn remove(mut self) -> Result<(), CgroupError> {
        self.remove_nodes()
    }

    fn remove_nodes(&mut self) -> Result<(), CgroupError> {
        let mut first = None;
        for node in self.nodes.iter_mut().filter(|node| !node.removed) {
            // Tried once: what remains is reported, not fought over again by Drop.
            node.removed = true;
            if let Err(error) = remove_dir(&node.parent.dir, &self.name, REMOVE_PATIENCE) {
                first.get_or_insert(CgroupError::io("remove cgroup", node.object(&self.name), error));
            }
        }
        first.map_or(Ok(()), Err)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = self.remove_nodes() {
            DROPPED.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        }
    }
}

/// What the limits ask of directories.
fn wanted(limits: &CgroupLimits) -> u8 {
    let bit = |asked: bool, bit: u8| if asked { bit } else { 0 };
    bit(limits.memory_bytes.is_some(), serve::MEMORY)
        | bit(limits.pids.is_some(), serve::PIDS)
        | bit(limits.cpu_millis.is_some(), serve::CPU)
        | bit(limits.cpu_time, serve::CPU_TIME)
}

/// Chooses as few hierarchies as possible. CPU time can be had in several places: where we are anyway; else on version 2
/// where the tree is to be killed through it, and in `cpuacct` where not.
fn assign(parents: &[Arc<CgroupParent>], wanted: u8, kill: bool) -> Vec<(&Arc<CgroupParent>, u8)> {
    let mut left = wanted & !serve::CPU_TIME;
    let mut chosen: Vec<(&Arc<CgroupParent>, u8)> = Vec::new();
    for parent in parents {
        let serves = parent.serves & left;
        if serves != 0 {
            left &= !serves;
            chosen.push((parent, serves));
        }
    }
    if wanted & serve::CPU_TIME != 0 {
        if let Some((_, serves)) = chosen.iter_mut().find(|(parent, _)| parent.serves & serve::CPU_TIME != 0) {
            *serves |= serve::CPU_TIME;
        } else {
            let able = || parents.iter().filter(|parent| parent.serves & serve::CPU_TIME != 0);
            let first = if kill { CgroupVersion::V2 } else { CgroupVersion::V1 };
            let best = able().find(|parent| parent.version == first).or_else(|| able().next());
            chosen.extend(best.map(|parent| (parent, serve::CPU_TIME)));
        }
    }
    chosen
}

/// Makes a directory. That over all runs of the user is made anew where it was removed while it was empty.
fn make_in(parent: &Arc<CgroupParent>, name: &str, serves: u8) -> IoResult<CgroupNode> {
    match (make(parent, name, serves), &parent.above) {
        (Err(error), Some(above)) if error.kind() == std::io::ErrorKind::NotFound => {
            let (parent, held) = cap::enter(Arc::clone(above));
            held.map_err(std::io::Error::other)?;
            make(&parent, name, serves)
        }
        (made, _) => made,
    }
}

fn make(parent: &Arc<CgroupParent>, name: &str, serves: u8) -> IoResult<CgroupNode> {
    rustix::fs::mkdirat(&parent.dir, name, Mode::from_raw_mode(0o755))?;
    let dir = match files::open_dir(&parent.dir, name) {
        Ok(dir) => dir,
        Err(error) => {
            remove_dir(&parent.dir, name, Duration::ZERO)?;
            return Err(error);
        }
    };
    Ok(CgroupNode { parent: Arc::clone(parent), dir, serves, removed: false })
}

fn cpu_time(node: &CgroupNode) -> IoResult<u64> {
    match node.parent.version {
        CgroupVersion::V1 => v1::cpu_time(node.dir.as_fd()),
        CgroupVersion::V2 => v2::cpu_time(node.dir.as_fd()),
    }
}

/// The highest number of processes, and whether the kernel kept it; `pids.peak` is new in 6.10, in both versions.
fn pids_peak(node: &CgroupNode) -> IoResult<(u64, bool)> {
    match files::read_number(&node.dir, c"pids.peak") {
        Ok(peak) => Ok((peak, true)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok((files::read_number(&node.dir, c"pids.current")?, false))
        }
        Err(error) => Err(error),
    }
}

/// Removes one directory; it counts as busy for a moment after its last process was reaped.
fn remove_dir(parent: impl AsFd, name: &str, patience: Duration) -> IoResult<()> {
    let mut pause = Duration::from_micros(20);
    let mut waited = Duration::ZERO;
    loop {
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if waited < patience => {
                std::thread::sleep(pause);
                waited += pause;
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
