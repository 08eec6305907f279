//! Sandboxes staged ahead of their runs: namespaces, mounts and cgroup made, init waiting for the program.
//!
//! ```text
//! worker ── stage ──▶ stock ── take: same plan? same files under it? same mounts? ──▶ run
//!    ▲                  └── two seconds old, or not what the run wants ──▶ ended
//!    └──── wanted: after each run, while runs keep coming
//! ```
//!
//! A staged sandbox is a picture of the host's mounts and of which files are bound or masked. It is used only while that
//! picture is still what a new one would show: the run's own plan, made when it begins, must ask for the same mounts; each
//! path that they cover must still be the same file, by the same name, behind directories with the same permissions; and
//! nothing may have been mounted or unmounted since.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use cofferdam_confine::init_plan::Step;
use cofferdam_confine::other_cpu;
use cofferdam_confine::wire::flag;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::backends::native::{Core, Staged};
use crate::plan::Plan;

/// How long a staged sandbox waits for its run.
const LIFE: Duration = Duration::from_secs(2);
/// With more mounts than this, looking at each path again costs what staging saves.
pub(crate) const MOST_MOUNTS: usize = 256;

/// A staged sandbox and what it pictures.
#[derive(Debug)]
struct Stock {
    staged: Staged,
    plan: Plan,
    files: Vec<Option<Identity>>,
    mounts: File,
    made: Instant,
}

/// What stands under a name. A mount stays with the name that it was made on, and goes when that is removed: so it is not
/// enough that the same file is there, it must not have gone and come back either.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    file: (u64, u64),
    /// The number of a removed file is given to a new one.
    made: Option<SystemTime>,
    /// Kind and permissions, owner and group: whether init could come to what lies behind.
    access: (u32, u32, u32),
    /// When the file was last changed, linked or renamed. Directories change with each name in them, and have but one.
    changed: Option<(i64, i64)>,
}

#[derive(Debug, Default)]
struct State {
    stock: Vec<Stock>,
    used: Option<Instant>,
    /// The processor of the caller who used it.
    taken: usize,
    closing: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

/// Keeps sandboxes staged. Dropped, it ends those that wait.
#[derive(Debug)]
pub(crate) struct Ready {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
    /// The process whose sandboxes these are: one that forks off it has copies of everything here, but for the thread.
    owner: u32,
    /// Processors that there are for runs.
    processors: usize,
}

impl Ready {
    pub fn new(core: &Arc<Core>, count: usize) -> Ready {
        let shared = Arc::new(Shared::default());
        shared.lock().used = Some(Instant::now());
        let (core, theirs) = (Arc::clone(core), Arc::clone(&shared));
        // Without a thread every run stages its own sandbox.
        let worker = std::thread::Builder::new()
            .name("cofferdam-ready".into())
            .stack_size(512 << 10)
            .spawn(move || work(&core, &theirs, count))
            .ok();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ready { shared, worker, owner: std::process::id(), processors }
    }

    /// A staged sandbox that shows what this plan asks for, if there is one. The worker is told to stage another, unless
    /// `running` runs have every processor: it would take from them what it gives to the next one, and its own besides.
    pub fn take(&self, plan: &Plan, running: usize) -> Option<Staged> {
        if std::process::id() != self.owner {
            return None;
        }
        let mut state = self.shared.lock();
        (state.used, state.taken) = (Some(Instant::now()), other_cpu::here());
        let found = state.stock.pop();
        drop(state);
        if running < self.processors {
            self.shared.wake.notify_one();
        }
        found.filter(|s| s.shows(plan)).map(|s| s.staged)
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if std::process::id() != self.owner {
            return; // the thread, and so its share of the stock, is the owner's to end
        }
        self.shared.lock().closing = true;
        self.shared.wake.notify_one();
        if let Some(worker) = self.worker.take() {
            debug_assert!(worker.join().is_ok(), "the thread that stages sandboxes has panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn work(core: &Core, shared: &Shared, count: usize) {
    let mut state = shared.lock();
    while !state.closing {
        let (old, stock) = std::mem::take(&mut state.stock).into_iter().partition(|s| s.made.elapsed() >= LIFE);
        state.stock = stock;
        let coming = state.used.is_some_and(|at| at.elapsed() < LIFE);
        if !old.is_empty() || (coming && state.stock.len() < count) {
            let wanted = coming && state.stock.len() < count;
            let busy = state.taken;
            drop(state);
            drop::<Vec<Stock>>(old);
            // A run is under way where this thread was woken.
            let new = if wanted && other_cpu::leave(busy).is_ok() { stage(core) } else { None };
            state = shared.lock();
            match new {
                Some(new) => state.stock.push(new),
                // It cannot be done now; the next run finds out why, or it can be done again later.
                None if wanted => state = wait(shared, state, LIFE),
                None => {}
            }
            continue;
        }
        let until = state.stock.iter().map(|s| LIFE.saturating_sub(s.made.elapsed())).min();
        state = wait(shared, state, until.unwrap_or(Duration::from_secs(3600)));
    }
    let rest = std::mem::take(&mut state.stock);
    drop(state);
    drop(rest);
}

fn wait<'a>(shared: &'a Shared, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
    shared.wake.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
}

fn stage(core: &Core) -> Option<Stock> {
    // Before anything is looked at: what is mounted while it is being looked at counts as a change.
    let mounts = File::open("/proc/self/mountinfo").ok()?;
    let mut plan = core.plan().ok()?;
    if !plan.layers.is_empty() || !plan.crowds.is_empty() || plan.recipe.mounts.len() > MOST_MOUNTS {
        return None;
    }
    let files = files(&plan)?;
    plan.recipe.flags |= flag::HOLD;
    let staged = core.stage(&mut plan, None).ok()?;
    Some(Stock { staged, plan, files, mounts, made: Instant::now() })
}

impl Stock {
    fn shows(&self, plan: &Plan) -> bool {
        self.made.elapsed() < LIFE
            && alike(&self.plan, plan)
            && !self.staged.is_over()
            && files(plan).as_ref() == Some(&self.files)
            && unchanged(&self.mounts)
    }
}

/// Whether two plans ask for the same namespaces, mounts and host name. The rest is the program's and comes with the go.
pub(crate) fn alike(staged: &Plan, wanted: &Plan) -> bool {
    let (a, b) = (&staged.recipe, &wanted.recipe);
    let same_mounts = a.mounts.len() == b.mounts.len() && a.mounts.iter().zip(&b.mounts).all(|(a, b)| same(a, b));
    same_mounts
        && a.system_mounts == b.system_mounts
        && (a.flags & !flag::HOLD) == b.flags
        && (a.ids_in, a.ids_out) == (b.ids_in, b.ids_out)
        && (a.scratch_bytes, a.scratch_inodes) == (b.scratch_bytes, b.scratch_inodes)
        && a.hostname == b.hostname
        && a.capture == b.capture
        && staged.own_net == wanted.own_net
        && staged.prepared == wanted.prepared
        && wanted.layers.is_empty()
        && wanted.crowds.is_empty()
}

/// Ids that are new for each run are new for each staged sandbox as well.
fn same(a: &Step, b: &Step) -> bool {
    match (a, b) {
        (Step::File { name: a, .. }, Step::File { name: b, .. }) if a == b && (a == "bootid" || a == "machineid") => {
            true
        }
        _ => a == b,
    }
}

/// What each mount covers on the host at this moment, with all directories above it. `None` where that cannot be told by
/// names, because one of them is a link.
pub(crate) fn files(plan: &Plan) -> Option<Vec<Option<Identity>>> {
    let mut paths = BTreeSet::new();
    for (i, step) in plan.recipe.mounts.iter().enumerate() {
        let (Step::Bind { target, .. }
        | Step::Scratch { target, .. }
        | Step::Tmpfs { target, .. }
        | Step::Overlay { target, .. }
        | Step::Mask { target, .. }
        | Step::SelfBind { target, .. }
        | Step::Whiteout { target, .. }) = step
        else {
            continue;
        };
        let covered = plan.view.host_path_below(target);
        // The system's own links are its administrator's.
        let own = i < plan.recipe.system_mounts;
        if !own && covered.as_ref().is_some_and(|path| std::fs::canonicalize(path).is_ok_and(|c| c != Path::new(path)))
        {
            return None;
        }
        paths.extend(covered);
        paths.extend(plan.view.host_path(target));
    }
    let above = |path: &String| Path::new(path).ancestors().map(Path::to_path_buf).collect::<Vec<_>>();
    let all: BTreeSet<PathBuf> = paths.iter().flat_map(above).collect();
    Some(all.iter().map(|path| identity(path)).collect())
}

pub(crate) fn identity(path: &Path) -> Option<Identity> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some(Identity {
        file: (meta.dev(), meta.ino()),
        made: meta.created().ok(),
        access: (meta.mode(), meta.uid(), meta.gid()),
        changed: (!meta.is_dir()).then(|| (meta.ctime(), meta.ctime_nsec())),
    })
}

/// Whether nothing was mounted or unmounted since the file was opened: the kernel marks it then (proc_pid_mounts(5)).
pub(crate) fn unchanged(mounts: &File) -> bool {
    let mut fds = [PollFd::new(mounts, PollFlags::PRI)];
    let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok() && !fds[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_run_do_not_make_two_plans_differ_and_other_texts_do() {
        let file = |name: &str, text: &str| Step::File { name: name.into(), text: text.into(), mode: 0o444 };
        assert!(same(&file("bootid", "a"), &file("bootid", "b")));
        assert!(!same(&file("hostname", "a"), &file("hostname", "b")));
        assert!(!same(&file("bootid", "a"), &file("machineid", "a")));
    }

    #[test]
    fn a_mount_table_that_nobody_touched_is_unchanged() {
        assert!(unchanged(&File::open("/proc/self/mountinfo").unwrap()));
    }
}
