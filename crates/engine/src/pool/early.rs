//! A program that is started before the run that it is for: it waits for its standard input, in a sandbox of its own that
//! nobody has used and nobody uses again.
//!
//! ```text
//! start ──▶ worker: plan, stage, exec ──▶ waits ──▶ run: same plan? same files? same mounts? ── go, input ──▶ outcome
//!                                          └── too old, or not what the run wants ──▶ ended
//! ```
//!
//! What is started early is a run like any other, whose input comes late: its wall time begins with the go. It is used only
//! while a sandbox made now would show and hold the same. The run's own plan, made when it begins, must be the same in
//! everything but the ids that are new for each; what its mounts cover, its rules name and its program is must still be the
//! same files; and nothing may have been mounted or unmounted since. What the program has read by then it has read, and what
//! it does before it reads its input it has done, used or not.
//!
//! One at a time, and one by one: nothing is started while it is not asked for, so that who has many runs at once has no
//! others beside them.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_confine::other_cpu;
use cofferdam_confine::wire::flag;
use cofferdam_policy::{Backend, NetworkMode, Stdin};

use crate::backends::native::{Core, Staged};
use crate::io::Io;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::pool::ready::{Identity, MOST_MOUNTS, alike, files, identity, unchanged};
use crate::prepared::Prepared;
use crate::repository::embedded;

/// How long a run waits for a program that is being started when it begins. Starting takes a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the one who asked for a start has for what else it does at the end of a run.
const RESPECT: Duration = Duration::from_millis(2);

/// A program that waits, and what its sandbox pictures.
#[derive(Debug)]
struct Stock {
    staged: Staged,
    /// As it was before it was staged, which fills in what only one sandbox has.
    asked: Plan,
    /// As it was carried out.
    plan: Plan,
    files: Vec<Option<Identity>>,
    named: Vec<Option<Identity>>,
    mounts: File,
    made: Instant,
}

#[derive(Debug, Default)]
struct State {
    /// One is asked for.
    wanted: bool,
    /// The worker starts one.
    making: bool,
    /// The one that is being started has its run.
    taken: bool,
    waiting: Option<Stock>,
    /// To be ended.
    over: Vec<Stock>,
    /// The policy is none whose program can be started early.
    unfit: bool,
    /// The processor of who asked.
    processor: usize,
    closing: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    moved: Condvar,
}

/// Starts a policy's program ahead of its run. Dropped, it ends one that waits.
#[derive(Debug)]
pub struct Early {
    core: Arc<Core>,
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
    /// The process whose program it is, as of [`crate::pool::ready`].
    owner: u32,
}

impl Early {
    /// For runs of this policy, whose standard input is the caller's and whose program does nothing before it has read that;
    /// one waits for at most `life`, and ten minutes. `None` where nothing can be started early: on other backends than the
    /// jail, with input that is the policy's own, a network that is filtered by names or a volume that can be written, or
    /// where the system has no thread to spare.
    pub fn new(prepared: Prepared, life: Duration) -> Option<Early> {
        let core = Arc::clone(prepared.core()?);
        let policy = &core.policy;
        // A way out is made for one run, when it begins.
        let alone = policy.network.mode != NetworkMode::Allowlist;
        // What git obeys in a volume is looked at before anything of the program's runs.
        let watched = embedded::watches(policy);
        if core.backend == Backend::Landlock || policy.command.stdin != Stdin::Caller || !alone || watched {
            return None;
        }
        let shared = Arc::new(Shared::default());
        let (theirs, worked) = (Arc::clone(&shared), Arc::clone(&core));
        let worker = std::thread::Builder::new()
            .name("cofferdam-early".into())
            .stack_size(512 << 10)
            .spawn(move || work(&worked, &theirs, life))
            .ok()?;
        Some(Early { core, shared, worker: Some(worker), owner: std::process::id() })
    }

    /// Starts one, where none waits; it is there some milliseconds later.
    pub fn start(&self) {
        let mut state = self.shared.lock();
        if state.waiting.is_none() && !state.making && !state.unfit {
            (state.wanted, state.processor) = (true, other_cpu::here());
            drop(state);
            self.shared.moved.notify_all();
        }
    }

    /// Runs what waits, or is being started, with this input: as [`Prepared::run`] would. The sandbox ends with it. `None`
    /// where there is none that can be used: nothing was run, and the streams are as they were.
    pub fn run(&self, io: &mut Io) -> Option<Outcome> {
        let begun = Instant::now();
        if std::process::id() != self.owner || io.terminal.is_some() || !io.arguments.is_empty() {
            return None;
        }
        let mut stock = self.shared.take()?;
        // A plan that cannot be made says why where the run is made another way.
        let usable = self.core.plan().is_ok_and(|plan| stock.shows(&plan)) && stock.staged.go().is_ok();
        if !usable {
            self.shared.lock().over.push(stock);
            self.shared.moved.notify_all();
            return None;
        }
        Some(self.core.run_early(stock.staged, &stock.plan, io, begun))
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        if std::process::id() != self.owner {
            return; // the thread, and so its share of the stock, is the owner's to end
        }
        self.shared.lock().closing = true;
        self.shared.moved.notify_all();
        if let Some(worker) = self.worker.take() {
            debug_assert!(worker.join().is_ok(), "the thread that starts programs early has panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits, or will in a moment.
    fn take(&self) -> Option<Stock> {
        let mut state = self.lock();
        if state.waiting.is_none() && (state.making || state.wanted) && !state.taken {
            state.taken = true;
            self.moved.notify_all();
            let making = |state: &mut State| state.waiting.is_none() && (state.making || state.wanted);
            let waited = self.moved.wait_timeout_while(state, PATIENCE, making);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.taken = false;
            return state.waiting.take();
        }
        if state.taken { None } else { state.waiting.take() }
    }
}

fn work(core: &Core, shared: &Shared, life: Duration) {
    let mut state = shared.lock();
    while !state.closing {
        if let Some(old) = state.waiting.take_if(|stock| !state_keeps(stock, life)) {
            state.over.push(old);
        }
        if state.wanted {
            // The caller may not have told its answer yet, and has no use for company on its processors until then.
            let alone = |state: &mut State| !state.taken && !state.closing;
            let waited = shared.moved.wait_timeout_while(state, RESPECT, alone);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            (state.wanted, state.making) = (false, true);
            let processor = state.processor;
            drop(state);
            // The run that asked for it may still be at its end where this thread was woken.
            let made = if other_cpu::leave(processor).is_ok() { make(core) } else { Ok(None) };
            state = shared.lock();
            state.making = false;
            match made {
                Ok(stock) => state.waiting = stock,
                Err(Unfit) => state.unfit = true,
            }
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
        let left = state.waiting.as_ref().map(|stock| life.saturating_sub(stock.made.elapsed()));
        let pause = left.unwrap_or(Duration::from_secs(3600));
        state = shared.moved.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
    }
    let rest = (state.waiting.take(), std::mem::take(&mut state.over));
    drop(state);
    drop(rest);
}

fn state_keeps(stock: &Stock, life: Duration) -> bool {
    stock.made.elapsed() < life && !stock.staged.is_over()
}

/// The policy is one that each run has to look at the host for.
struct Unfit;

fn make(core: &Core) -> Result<Option<Stock>, Unfit> {
    // Before anything is looked at: what is mounted while it is being looked at counts as a change.
    let Ok(mounts) = File::open("/proc/self/mountinfo") else { return Ok(None) };
    let Ok(mut plan) = core.plan() else { return Ok(None) };
    // Layers tell what changed since they were made; guards hold directories that were looked at; a way out is one run's.
    if !plan.layers.is_empty()
        || !plan.crowds.is_empty()
        || !plan.recipe.guards.is_empty()
        || plan.egress.is_some()
        || plan.recipe.mounts.len() > MOST_MOUNTS
    {
        return Err(Unfit);
    }
    let Some(files) = files(&plan) else { return Ok(None) };
    let named = named(&plan);
    let asked = plan.clone();
    plan.recipe.flags |= flag::EARLY;
    let Ok(staged) = core.stage(&mut plan, None) else { return Ok(None) };
    Ok(Some(Stock { staged, asked, plan, files, named, mounts, made: Instant::now() }))
}

impl Stock {
    fn shows(&self, wanted: &Plan) -> bool {
        alike(&self.asked, wanted)
            && same_program(&self.asked, wanted)
            && !self.staged.is_over()
            && files(wanted).as_ref() == Some(&self.files)
            && named(wanted) == self.named
            && unchanged(&self.mounts)
    }
}

/// Whether two plans start the same program behind the same walls.
fn same_program(started: &Plan, wanted: &Plan) -> bool {
    let (a, b) = (&started.recipe, &wanted.recipe);
    (&a.argv, &a.envp, &a.programs, &a.cwd) == (&b.argv, &b.envp, &b.programs, &b.cwd)
        && (&a.rlimits, &a.landlock, &a.filter, &a.classifier) == (&b.rlimits, &b.landlock, &b.filter, &b.classifier)
        && (&a.guards, a.wall_ns, a.terminal, a.channel) == (&b.guards, b.wall_ns, b.terminal, b.channel)
        && (&started.view, &started.denied, &started.protected) == (&wanted.view, &wanted.denied, &wanted.protected)
        && started.enforcement == wanted.enforcement
}

/// What the rules of the second wall name, and the program: rules and programs are files, not names, once they are in use.
fn named(plan: &Plan) -> Vec<Option<Identity>> {
    let rules = plan.recipe.landlock.iter().flat_map(|landlock| &landlock.rules).map(|rule| &rule.path);
    let paths: BTreeSet<&String> = rules.chain(&plan.recipe.programs).collect();
    let mut all = Vec::new();
    for host in paths.into_iter().filter_map(|path| plan.view.host_path(path)) {
        all.push(identity(Path::new(&host)));
        // And what a link leads to.
        all.push(std::fs::canonicalize(&host).ok().and_then(|path| identity(&path)));
    }
    all
}
