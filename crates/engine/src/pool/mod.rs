//! Sandboxes created before their runs, at one of two levels, by a thread of this process.
//!
//! ```text
//! Staged    namespaces, mounts, cgroup ─▶ init waits for the run's own plan ─▶ program
//! Started   the same, and exec ─────────▶ the program waits for its input ──▶ release, input
//!
//! worker ── create ──▶ stock ── take: still what a new one would be? (`snapshot`) ──▶ run
//!    ▲                   └── too old, or not what the run wants ──▶ ended
//!    └──── Staged: while runs keep coming · Started: when one is asked for
//! ```
//!
//! A started program is a run like any other, whose input comes late: its wall time begins with its release. What it has read by
//! then it has read, and what it does before it reads its input it has done, used or not. There is one at a time, and none
//! while it is not asked for, so that many runs at once have no others beside them.

mod snapshot;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_confine::other_cpu;
use cofferdam_confine::wire::flag;
use cofferdam_policy::{NetworkMode, Stdin};

use crate::backends::native::{Core, Staged};
use crate::io::Io;
use crate::outcome::Outcome;
use crate::plan::NativePlan;
use crate::repository::embedded;
use snapshot::{NoSnapshot, Snapshot};

/// How long a staged sandbox waits for its run, and how long after a run others are staged.
const STAGED_LIFE: Duration = Duration::from_secs(2);
/// How long a run waits for a program that is being started when it begins. Starting takes a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the caller that asked for a start has for what else it does at the end of a run.
const RESPECT: Duration = Duration::from_millis(2);
/// Longer than anything waits.
const LONG: Duration = Duration::from_secs(3600);

/// How far a sandbox of the pool is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PoolLevel {
    /// Init waits for the program. Up to `count` of them.
    Staged {
        /// How many at most.
        count: usize,
    },
    /// The program waits for its input. One.
    Started {
        /// How long it waits.
        life: Duration,
    },
}

impl PoolLevel {
    fn life(self) -> Duration {
        match self {
            PoolLevel::Staged { .. } => STAGED_LIFE,
            PoolLevel::Started { life } => life,
        }
    }

    /// Has init wait at this level.
    fn flag(self) -> u32 {
        match self {
            PoolLevel::Staged { .. } => flag::HOLD,
            PoolLevel::Started { .. } => flag::EARLY,
        }
    }

    fn thread(self) -> &'static str {
        match self {
            PoolLevel::Staged { .. } => "cofferdam-ready",
            PoolLevel::Started { .. } => "cofferdam-early",
        }
    }
}

/// A sandbox that waits, and what it was created of.
#[derive(Debug)]
struct Stock {
    staged: Staged,
    snapshot: Snapshot,
    /// What a run's plan is compared with.
    compared: NativePlan,
    /// The plan as it was carried out, where that is the run's.
    carried_out: Option<NativePlan>,
    created: Instant,
}

impl Stock {
    /// Whether it is what a new one would be. What a sandbox met while it was staged, a path that was away for a moment, is
    /// nothing to refuse a later run for.
    fn is_usable(&mut self, level: PoolLevel, wanted: &NativePlan) -> bool {
        let waits = match level {
            PoolLevel::Staged { .. } => self.staged.is_set_up(),
            PoolLevel::Started { .. } => !self.staged.is_over(),
        };
        waits && self.snapshot.shows(level, &self.compared, wanted)
    }

    /// Whether it may go on waiting.
    fn keeps(&self, level: PoolLevel) -> bool {
        self.created.elapsed() < level.life() && !self.staged.is_over()
    }
}

/// What the worker is to do, or does, besides ending what is old.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum WorkerState {
    /// Nothing is asked for.
    #[default]
    Idle,
    /// One is asked for. `claimed`: a run waits for it.
    Wanted { claimed: bool },
    /// The worker creates it.
    Making { claimed: bool },
    /// It is there, or failed, and the run that waited for it has not seen that yet.
    Claimed,
    /// The policy is one whose program cannot be started before its run.
    Unfit,
}

#[derive(Debug, Default)]
struct PoolState {
    stock: Vec<Stock>,
    /// To be ended.
    over: Vec<Stock>,
    start: WorkerState,
    /// When a run last took one, or tried to. Only where sandboxes are staged while runs keep coming.
    used: Option<Instant>,
    /// When staging may be tried again, after it failed.
    again: Option<Instant>,
    /// The processor of the caller that took or asked.
    processor: usize,
    closing: bool,
}

impl PoolState {
    /// Takes out of the stock what may not wait any longer.
    fn expire(&mut self, level: PoolLevel) {
        let (keeps, over): (Vec<_>, Vec<_>) = std::mem::take(&mut self.stock).into_iter().partition(|s| s.keeps(level));
        self.stock = keeps;
        self.over.extend(over);
    }

    /// Whether the worker has one to create.
    fn wants(&self, level: PoolLevel) -> bool {
        match level {
            PoolLevel::Staged { count } => {
                self.used.is_some_and(|at| at.elapsed() < STAGED_LIFE)
                    && self.stock.len() < count
                    && self.again.is_none_or(|at| at <= Instant::now())
            }
            PoolLevel::Started { .. } => matches!(self.start, WorkerState::Wanted { .. }),
        }
    }

    /// Whether one that is asked for is not there yet.
    fn is_coming(&self) -> bool {
        self.stock.is_empty() && matches!(self.start, WorkerState::Wanted { .. } | WorkerState::Making { .. })
    }

    /// How long there is nothing to do unless somebody asks.
    fn pause(&self, level: PoolLevel) -> Duration {
        let left = self.stock.iter().map(|stock| level.life().saturating_sub(stock.created.elapsed()));
        let again = self.again.map(|at| at.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
        left.chain(again).min().unwrap_or(LONG)
    }

    /// Takes in what the worker has created.
    fn settle(&mut self, created: Result<Stock, NoSnapshot>) {
        self.start = match self.start {
            WorkerState::Making { claimed: true } => WorkerState::Claimed,
            WorkerState::Making { claimed: false } => WorkerState::Idle,
            other => other,
        };
        match created {
            Ok(stock) => self.stock.push(stock),
            // The next run finds out why, or it can be done again later.
            Err(NoSnapshot::Now) => self.again = Some(Instant::now() + STAGED_LIFE),
            Err(NoSnapshot::Ever) => self.start = WorkerState::Unfit,
        }
    }
}

#[derive(Debug, Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    moved: Condvar,
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, PoolState>,
        most: Duration,
        goes_on: impl FnMut(&mut PoolState) -> bool,
    ) -> MutexGuard<'a, PoolState> {
        self.moved.wait_timeout_while(state, most, goes_on).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Creates sandboxes of one policy. Dropped, it ends those that wait.
#[derive(Debug)]
pub(crate) struct SandboxPool {
    core: Arc<Core>,
    level: PoolLevel,
    shared: Arc<PoolShared>,
    worker: Option<JoinHandle<()>>,
    /// The process whose sandboxes these are: one that forks off it has copies of everything here, but for the thread.
    owner: u32,
}

impl SandboxPool {
    /// A pool for this policy. Without a thread to spare it stays empty.
    pub(crate) fn new(core: &Arc<Core>, level: PoolLevel) -> SandboxPool {
        let shared = Arc::new(PoolShared::default());
        if let PoolLevel::Staged { .. } = level {
            shared.lock().used = Some(Instant::now());
        }
        let (theirs, worked) = (Arc::clone(&shared), Arc::clone(core));
        let thread = std::thread::Builder::new().name(level.thread().into()).stack_size(512 << 10);
        let worker = thread.spawn(move || work(&worked, &theirs, level)).ok();
        SandboxPool { core: Arc::clone(core), level, shared, worker, owner: std::process::id() }
    }

    /// A staged sandbox that shows what this plan asks for, if there is one. The worker stages another, unless `running` runs have
    /// every processor: it would take from them what it gives to the next one, and its own besides.
    pub(crate) fn take_staged(&self, plan: &NativePlan, running: usize) -> Option<Staged> {
        if std::process::id() != self.owner {
            return None;
        }
        let mut state = self.shared.lock();
        (state.used, state.processor, state.again) = (Some(Instant::now()), other_cpu::here(), None);
        let found = state.stock.pop();
        drop(state);
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if running < processors {
            self.shared.moved.notify_all();
        }
        let fresh = |stock: &Stock| stock.created.elapsed() < self.level.life();
        let mut stock = found.filter(fresh)?;
        stock.is_usable(self.level, plan).then_some(stock.staged)
    }

    /// Has the worker start a program, where none waits and none is on its way.
    fn start(&self) {
        let mut state = self.shared.lock();
        if !state.stock.is_empty() {
            return;
        }
        let claimed = match state.start {
            WorkerState::Idle => false,
            WorkerState::Wanted { claimed } => claimed,
            WorkerState::Claimed => true,
            WorkerState::Making { .. } | WorkerState::Unfit => return,
        };
        (state.start, state.processor) = (WorkerState::Wanted { claimed }, other_cpu::here());
        drop(state);
        self.shared.moved.notify_all();
    }

    /// What waits, or will in a moment.
    fn take_started(&self) -> Option<Stock> {
        let mut state = self.shared.lock();
        match state.start {
            WorkerState::Wanted { claimed: false } if state.stock.is_empty() => {
                state.start = WorkerState::Wanted { claimed: true }
            }
            WorkerState::Making { claimed: false } if state.stock.is_empty() => {
                state.start = WorkerState::Making { claimed: true }
            }
            WorkerState::Wanted { claimed: true } | WorkerState::Making { claimed: true } | WorkerState::Claimed => {
                return None;
            }
            _ => return state.stock.pop(),
        }
        self.shared.moved.notify_all();
        state = self.shared.wait(state, PATIENCE, |state| state.is_coming());
        state.start = match state.start {
            WorkerState::Wanted { .. } => WorkerState::Wanted { claimed: false },
            WorkerState::Making { .. } => WorkerState::Making { claimed: false },
            WorkerState::Claimed | WorkerState::Idle => WorkerState::Idle,
            WorkerState::Unfit => WorkerState::Unfit,
        };
        state.stock.pop()
    }

    /// Has the worker end what cannot be used.
    fn give_up(&self, stock: Stock) {
        self.shared.lock().over.push(stock);
        self.shared.moved.notify_all();
    }
}

impl Drop for SandboxPool {
    fn drop(&mut self) {
        if std::process::id() != self.owner {
            return; // the thread, and so its share of the stock, is the owner's to end
        }
        self.shared.lock().closing = true;
        self.shared.moved.notify_all();
        if let Some(worker) = self.worker.take() {
            debug_assert!(worker.join().is_ok(), "the thread of a pool has panicked");
        }
    }
}

fn work(core: &Core, shared: &PoolShared, level: PoolLevel) {
    let mut state = shared.lock();
    while !state.closing {
        state.expire(level);
        if state.wants(level) {
            if let PoolLevel::Started { .. } = level {
                // The caller may not have sent its answer yet, and has no use for company on its processors until then.
                let alone =
                    |state: &mut PoolState| state.start == WorkerState::Wanted { claimed: false } && !state.closing;
                state = shared.wait(state, RESPECT, alone);
                let claimed = state.start == WorkerState::Wanted { claimed: true };
                state.start = WorkerState::Making { claimed };
            }
            let processor = state.processor;
            drop(state);
            // The run that asked for it may still be at its end where this thread was woken.
            let created = if other_cpu::leave(processor).is_ok() { create(core, level) } else { Err(NoSnapshot::Now) };
            state = shared.lock();
            state.settle(created);
            shared.moved.notify_all();
            continue;
        }
        let over = std::mem::take(&mut state.over);
        if !over.is_empty() {
            drop(state);
            drop(over);
            state = shared.lock();
            continue;
        }
        let pause = state.pause(level);
        state = shared.moved.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
    }
    let rest = (std::mem::take(&mut state.stock), std::mem::take(&mut state.over));
    drop(state);
    drop(rest);
}

fn create(core: &Core, level: PoolLevel) -> Result<Stock, NoSnapshot> {
    let (snapshot, mut plan) = Snapshot::take(level, || core.plan().ok())?;
    // Staging fills in what only one sandbox has.
    let before = match level {
        PoolLevel::Staged { .. } => None,
        PoolLevel::Started { .. } => Some(plan.clone()),
    };
    plan.init_plan.flags |= level.flag();
    let staged = core.stage(&mut plan, None).map_err(|_| NoSnapshot::Now)?;
    let (compared, carried_out) = match before {
        Some(before) => (before, Some(plan)),
        None => (plan, None),
    };
    Ok(Stock { staged, snapshot, compared, carried_out, created: Instant::now() })
}

/// Starts a policy's program before its run, in a sandbox that has no other. Dropped, it ends one that waits.
#[derive(Debug)]
pub struct Early(SandboxPool);

impl Early {
    pub(crate) fn of(core: &Arc<Core>, life: Duration) -> Option<Early> {
        let policy = &core.planned.policy;
        // The egress gateway is attached to one run, when that begins.
        let alone = policy.network.mode != NetworkMode::Allowlist;
        // What git obeys in a volume is looked at before anything of the program's runs.
        let watched = embedded::watches(policy);
        if !core.native.namespaces || policy.command.stdin != Stdin::Caller || !alone || watched {
            return None;
        }
        let pool = SandboxPool::new(core, PoolLevel::Started { life });
        pool.worker.is_some().then_some(Early(pool))
    }

    /// Starts one, where none waits; it is there some milliseconds later.
    pub fn start(&self) {
        self.0.start();
    }

    /// Runs what waits, or is being started, with this input: as [`crate::Prepared::run`] would. The sandbox ends with it. `None`
    /// where there is none that can be used: nothing was run, and the streams are as they were.
    pub fn run(&self, io: &mut Io) -> Option<Outcome> {
        let begun = Instant::now();
        let pool = &self.0;
        if std::process::id() != pool.owner || io.terminal.is_some() || !io.arguments.is_empty() {
            return None;
        }
        let mut stock = pool.take_started()?;
        // A plan that cannot be made says why where the run is made another way.
        let usable = pool.core.plan().is_ok_and(|plan| stock.is_usable(pool.level, &plan)) && stock.staged.go().is_ok();
        if !usable {
            pool.give_up(stock);
            return None;
        }
        let Stock { staged, compared, carried_out, .. } = stock;
        let plan = carried_out.unwrap_or(compared);
        Some(pool.core.run_early(staged, &plan, io, begun))
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::{Access, BackendName, Field, Mount, Policy};

    use super::*;
    use crate::Engine;

    fn state(start: WorkerState) -> PoolState {
        PoolState { start, ..PoolState::default() }
    }

    #[test]
    fn what_a_run_waited_for_is_claimed_until_it_has_seen_it() {
        let mut claimed = state(WorkerState::Making { claimed: true });
        claimed.settle(Err(NoSnapshot::Now));
        assert_eq!((claimed.start, claimed.is_coming()), (WorkerState::Claimed, false));
        let mut nobody = state(WorkerState::Making { claimed: false });
        nobody.settle(Err(NoSnapshot::Now));
        assert_eq!(nobody.start, WorkerState::Idle);
    }

    #[test]
    fn an_unfit_policy_stays_unfit() {
        for claimed in [true, false] {
            let mut state = state(WorkerState::Making { claimed });
            state.settle(Err(NoSnapshot::Ever));
            assert_eq!((state.start, state.is_coming()), (WorkerState::Unfit, false));
            assert!(!state.wants(PoolLevel::Started { life: LONG }));
        }
    }

    #[test]
    fn sandboxes_are_staged_while_runs_keep_coming() {
        let level = PoolLevel::Staged { count: 1 };
        let mut state = state(WorkerState::Idle);
        assert!(!state.wants(level), "no run came");
        state.used = Some(Instant::now());
        assert!(state.wants(level) && !state.wants(PoolLevel::Staged { count: 0 }));
        state.settle(Err(NoSnapshot::Now));
        assert!(!state.wants(level), "it has failed just now");
        assert!(state.pause(level) <= STAGED_LIFE);
        state.again = Some(Instant::now());
        assert_eq!(state.pause(level), LONG, "what is past is no reason to look again at once");
    }

    /// A run that found it would fail for what was so while it was staged.
    #[test]
    fn a_staged_sandbox_whose_source_was_away_for_a_moment_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(at("project")).unwrap();
        let mut policy = Policy::base();
        policy.command.argv = vec!["/bin/true".to_owned()];
        policy.filesystem.mounts.push(Mount::Bind {
            source: at("project").to_str().unwrap().to_owned(),
            target: "/mnt".to_owned(),
            access: Access::ReadOnly,
            exec: false,
            optional: false,
        });
        Field::ALL.iter().for_each(|field| policy.allow_partial(*field));
        policy.backend = BackendName::Jail;
        let prepared = match Engine::probe().prepare(&policy) {
            Ok(prepared) => prepared,
            Err(failure) => {
                assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "{failure:?}");
                return eprintln!("skipped: {}", failure.message);
            }
        };
        let core = prepared.core().unwrap();
        let level = PoolLevel::Staged { count: 1 };
        let stage = |away: bool| {
            let (snapshot, mut plan) = Snapshot::take(level, || core.plan().ok()).ok().unwrap();
            plan.init_plan.flags |= level.flag();
            if away {
                std::fs::rename(at("project"), at("aside")).unwrap();
            }
            // A privileged owner opens sources itself.
            let set_up = core.stage(&mut plan, None).is_ok_and(|mut staged| staged.is_set_up());
            if away {
                std::fs::rename(at("aside"), at("project")).unwrap();
            }
            let wanted = core.plan().unwrap();
            (set_up, snapshot.shows(level, &plan, &wanted))
        };
        assert_eq!(stage(false), (true, true));
        assert_eq!(stage(true), (false, true), "the picture is as before, and only init knows");
    }
}
