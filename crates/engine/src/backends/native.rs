//! The backends whose first process is init: the jail and landlock. One run of a policy planned for one of them.
//!
//! ```text
//! plan ─▶ stage (cgroup, mounts of the owner, network, init) ─▶ watch ─▶ figures, layers ─▶ outcome
//!            └─ or taken from what the pool staged before
//! ```

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::{self, Cgroup, CgroupLimits, CgroupLocation, LimitLevel};
use cofferdam_confine::control;
use cofferdam_confine::host::CallerIdentity;
use cofferdam_confine::init_plan;
use cofferdam_confine::netns;
use cofferdam_confine::wire::flag;
use cofferdam_policy::{BackendName, Field, NetworkMode, OnViolation, Policy};
use serde_json::Value;

use crate::backends::enforcement::{NamedEnforcer, OWN_NETWORKS, memory_inside, socket_buffers, sufficient};
use crate::backends::jail::{self, PendingInit};
use crate::backends::{BackendPlan, BackendRefusal, PlanRequest, PlanSummary};
use crate::failure::{FailedStep, Failure};
use crate::host::{FirstRun, Host};
use crate::io::{Io, Stream};
use crate::outcome::{AppliedEnforcement, AppliedField, Outcome, Strength};
use crate::plan::NativePlan;
use crate::plan::executables::Executables;
use crate::plan::own_places::OwnPlaces;
use crate::plan::seccomp_filter::{Filters, Needs};
use crate::run::channel::AgentChannel;
use crate::run::evidence::{Log, Paths};
use crate::run::gateway::Egress;
use crate::run::outcome_builder;
use crate::run::outcome_builder::{Finished, RunContext};
use crate::run::report::SupervisorReport;
use crate::run::streams::{InputSource, OutputSink};
use crate::run::supervise;
use crate::run::supervise::init_tree::InitTree;
use crate::run::supervise::{OwnNetwork, SupervisedRun};

/// What every run of a prepared policy starts from.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) planned: PlanSummary,
    pub(crate) identity: CallerIdentity,
    pub(crate) native: &'static Native,
    pub(crate) filters: Filters,
    /// What alone may be executed, where that is limited.
    pub(crate) programs: Option<Executables>,
    pub(crate) location: Option<Arc<CgroupLocation>>,
    /// The plan that `prepare` looked at, for a run that follows at once. Later runs look again: what exists changes.
    pub(crate) fresh: Mutex<Option<(Instant, usize, NativePlan)>>,
    /// Empty network namespaces of earlier runs.
    pub(crate) networks: netns::NetnsPool,
    /// Owner maps of earlier runs.
    pub(crate) owner_maps: jail::OwnerMaps,
    /// Whether it has run before: the first run of a command is mostly the only one.
    pub(crate) ran: AtomicBool,
    /// Runs under way.
    pub(crate) running: AtomicUsize,
    /// The tmpfs whose root is handed back after a run: where it is inside, and the directory that is made in it.
    pub(crate) handed: OnceLock<(String, String)>,
    /// What was made for the first run.
    pub(crate) first: Mutex<FirstRun>,
}

/// What the jail and the landlock backend differ in.
#[derive(Debug)]
pub(crate) struct Native {
    pub(crate) name: BackendName,
    /// Whether it makes namespaces, in which pids, mounts and the network are the sandbox's own.
    pub(crate) namespaces: bool,
    /// What its filters need.
    pub(crate) needs: fn() -> Needs,
    /// Plans one run.
    pub(crate) plan: fn(&Policy, CallerIdentity, &Filters, &OwnPlaces) -> Result<NativePlan, BackendRefusal>,
}

/// A policy planned for the jail or the landlock backend, its enforcement completed by what cgroups enforce here.
pub(crate) fn prepare(
    host: &Host,
    native: &'static Native,
    request: &PlanRequest<'_>,
) -> Result<Arc<Core>, BackendRefusal> {
    let (policy, identity) = (request.policy, host.identity());
    let filters = Filters::new(Needs { limited_exec: request.programs.is_some(), ..(native.needs)() });
    let mut plan = match request.own {
        Some(own) => (native.plan)(policy, identity, &filters, own)?,
        None => (native.plan)(policy, identity, &filters, &OwnPlaces::now()?)?,
    };
    if let Some(programs) = request.programs {
        programs.limit(&mut plan)?;
    }
    host.cgroup_enforcement(&mut plan.enforcement);
    if native.namespaces {
        memory_inside(policy, &mut plan.enforcement);
    }
    // Without a network namespace there is no network but the host's, or none.
    let counted = if native.namespaces { &OWN_NETWORKS } else { &[NetworkMode::None][..] };
    socket_buffers(policy, counted, &mut plan.enforcement);
    Ok(Arc::new(Core {
        planned: PlanSummary::new(native.name.name(), request, plan.enforcement.clone()),
        identity,
        native,
        filters,
        programs: request.programs.cloned(),
        location: host.location(),
        fresh: Mutex::new(Some((Instant::now(), cofferdam_audit::opened::count(), plan))),
        networks: netns::NetnsPool::default(),
        owner_maps: jail::OwnerMaps::default(),
        ran: AtomicBool::new(false),
        running: AtomicUsize::new(0),
        handed: OnceLock::new(),
        first: Mutex::default(),
    }))
}

impl BackendPlan for Arc<Core> {
    fn planned(&self) -> &PlanSummary {
        &self.planned
    }

    fn sufficient(&self) -> Result<(), Failure> {
        self.still_sufficient(&self.planned.enforcement)
    }

    fn describe(&self) -> Value {
        match self.plan() {
            Ok(plan) => {
                let PlanSummary { backend, reason, enforcement, .. } = &self.planned;
                crate::plan::dry_run::plan(&plan, backend, reason, enforcement)
            }
            Err(failure) => serde_json::json!({ "error": failure }),
        }
    }

    fn run(&self, io: Io) -> Outcome {
        self.run_staged(io, &|_, _| None, None)
    }
}

/// A sandbox whose init is at work, or waits for the go.
#[derive(Debug)]
pub(crate) struct Staged {
    started: Option<jail::Started>,
    control: Option<OwnedFd>,
    cgroup: Option<Cgroup>,
    enforcement: AppliedEnforcement,
    /// Given back when the last process is reaped.
    network: Option<netns::Lease>,
}

impl Staged {
    /// Lets the wall time of a program that was started early begin.
    ///
    /// # Errors
    /// Its init is gone.
    pub(crate) fn go(&mut self) -> Result<(), Failure> {
        let control = self.control.take().ok_or_else(|| Failure::new(FailedStep::Spawn, "the program has its go"))?;
        control::release(control.as_fd()).map_err(|e| Failure::new(FailedStep::Spawn, format!("init is gone: {e}")))
    }

    /// Whether it is set up and waits for its run's plan. One that failed meanwhile is not.
    pub(crate) fn is_set_up(&mut self) -> bool {
        self.started.as_mut().is_some_and(jail::Started::is_set_up)
    }

    /// Whether its init is gone, as it is after a failed step.
    pub(crate) fn is_over(&self) -> bool {
        self.started.as_ref().is_none_or(jail::Started::is_over)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            jail::end(started);
        }
    }
}

/// Takes a staged sandbox that shows what this plan asks for, beside so many runs.
type TakeStaged<'a> = dyn Fn(&NativePlan, usize) -> Option<Staged> + 'a;

impl Core {
    pub(crate) fn plan(&self) -> Result<NativePlan, Failure> {
        let mut plan = (self.native.plan)(&self.planned.policy, self.identity, &self.filters, &OwnPlaces::now()?)?;
        if let Some(programs) = &self.programs {
            programs.limit(&mut plan)?;
        }
        self.hand_back(&mut plan);
        Ok(plan)
    }

    /// Whether every required field is enforced in full, as it has come out by now.
    fn still_sufficient(&self, e: &AppliedEnforcement) -> Result<(), Failure> {
        sufficient(NamedEnforcer::Own(self.planned.backend), &self.planned.policy, e, &[])
    }

    /// Marks the tmpfs that is handed back.
    fn hand_back(&self, plan: &mut NativePlan) {
        let Some((at, made)) = self.handed.get() else { return };
        for step in &mut plan.init_plan.mounts {
            if let init_plan::MountStep::Tmpfs { target, export, .. } = step
                && target == at
            {
                *export = Some(made.clone());
            }
        }
    }

    /// Runs it and returns when the tree is dead. `staged` takes a sandbox of the pool that shows what a plan asks for; it is
    /// given how many runs are under way.
    pub(crate) fn run_staged(
        &self,
        mut io: Io,
        staged: &TakeStaged<'_>,
        channel: Option<&mut AgentChannel>,
    ) -> Outcome {
        let begun = Instant::now();
        let _counted = CountGuard::one_of(&self.running);
        let outcome = match self.attempt(&mut io, staged, channel) {
            Ok((finished, plan)) => self.outcome(finished, &plan, begun),
            Err(failure) => {
                // What was made for it goes unused.
                drop(self.take_first());
                self.refused(failure, begun)
            }
        };
        io.monitor.end(); // where nothing was started, nobody has said so yet
        outcome
    }

    /// The plan that was made when the policy was prepared, where the run follows at once.
    fn plan_of_run(&self) -> Result<NativePlan, Failure> {
        let fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner).take();
        match fresh {
            // A trail that was opened since is not hidden by it.
            Some((made, trails, mut plan))
                if made.elapsed() < jail::FRESH && trails == cofferdam_audit::opened::count() =>
            {
                self.hand_back(&mut plan);
                Ok(plan)
            }
            _ => self.plan(),
        }
    }

    fn attempt(
        &self,
        io: &mut Io,
        staged: &TakeStaged<'_>,
        mut channel: Option<&mut AgentChannel>,
    ) -> Result<(Finished, NativePlan), Failure> {
        let mut plan = self.plan_of_run()?;
        if io.arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(Failure::new(
                FailedStep::policy("command.argv"),
                "an argument of this run has a NUL byte in it, and arguments end there",
            ));
        }
        plan.init_plan.argv.append(&mut io.arguments);
        if let Some(dir) = &io.keep_changes {
            empty_or_new(dir)?;
        }
        if let Some(t) = io.terminal {
            let beside_input = io.keys.is_some();
            plan.init_plan.terminal = Some(init_plan::InitTerminal { rows: t.rows, columns: t.columns, beside_input });
            plan.init_plan.mounts.push(jail::terminal_device());
        }
        let staged = match staged(&plan, self.running.load(Ordering::Relaxed)) {
            Some(staged) => self.let_go(staged, &mut plan)?,
            None => self.stage(&mut plan, channel.as_deref_mut())?,
        };
        let finished = self.see_through(staged, &plan, io, channel.as_deref())?;
        Ok((finished, plan))
    }

    /// Watches a sandbox whose program has its go until nothing of it is left.
    fn see_through(
        &self,
        mut staged: Staged,
        plan: &NativePlan,
        io: &mut Io,
        channel: Option<&AgentChannel>,
    ) -> Result<Finished, Failure> {
        // Init is at work meanwhile; what connects before the gateway has its sockets waits at them.
        let egress = match (&plan.egress, &staged.started) {
            (Some(egress), Some(started)) => {
                let control =
                    staged.control.take().ok_or_else(|| Failure::new(FailedStep::Spawn, "init's letters are gone"))?;
                Some(egress.attach(&self.planned.policy.network, control, started.running.pid)?)
            }
            _ => None,
        };
        let Some(started) = staged.started.take() else { return Err(Failure::new(FailedStep::Spawn, "init is gone")) };
        let mut report = self.watch(started, plan, staged.cgroup.as_ref(), io, channel, egress.as_ref());
        let network = egress.map(|egress| egress.end(&mut report.log));
        report.refused(network.as_ref(), self.planned.policy.on_violation);
        drop(staged.network.take()); // every process in it is dead and reaped: the next run may have it
        let mut f = self.figures(report, std::mem::take(&mut staged.enforcement), staged.cgroup.take());
        self.layers(&mut f, plan, io);
        f.network = network;
        Ok(f)
    }

    /// The run of a program that was started early, which has been told that its wall time begins.
    pub(crate) fn run_early(&self, staged: Staged, plan: &NativePlan, io: &mut Io, begun: Instant) -> Outcome {
        let _counted = CountGuard::one_of(&self.running);
        let outcome = match self.see_through(staged, plan, io, None) {
            Ok(finished) => self.outcome(finished, plan, begun),
            Err(failure) => self.refused(failure, begun),
        };
        io.monitor.end();
        outcome
    }

    /// Makes everything but the program: what only this process can do, then init, which does the rest.
    pub(crate) fn stage(&self, plan: &mut NativePlan, channel: Option<&mut AgentChannel>) -> Result<Staged, Failure> {
        let mut enforcement = self.planned.enforcement.clone();
        // Which optional mounts are there is this plan's to say.
        if let Some(mounts) = plan.enforcement.get(&Field::Mounts) {
            enforcement.insert(Field::Mounts, mounts.clone());
        }
        let FirstRun { init, cgroup: made } = self.take_first();
        let (cgroup, init) = self.cgroup(&mut enforcement, made, init)?;
        let mut extra = jail::prepare(plan, plan.init_plan.ids_out, &self.owner_maps)?;
        if let Some(c) = &cgroup {
            let tasks = c.tasks_files().map_err(|e| Failure::new(FailedStep::Cgroup, e.to_string()))?;
            plan.init_plan.joins = (extra.len() as u16, tasks.len() as u16);
            extra.extend(tasks);
            // The cgroup counts the same processes and tells when it refuses one; the rlimit behind it tells nobody.
            crate::plan::rlimits::leave_processes_to_the_cgroup(&mut plan.init_plan.rlimits);
        }
        if let Some(channel) = channel {
            channel.join(&mut plan.init_plan, &mut extra);
        }
        // What programs inside could mount is nothing that they may write.
        let flags = &mut plan.init_plan.flags;
        if *flags & flag::NO_CGROUP_NAMESPACES != 0 && cgroup.is_none() && !cgroup::is_own() {
            *flags &= !flag::NO_CGROUP_NAMESPACES;
        }
        let network = self.network()?;
        let mut namespaces = jail::namespaces(plan, self.native.namespaces);
        namespaces.net &= network.is_none();
        let init = match init.filter(|init| network.is_none() && init.serves(namespaces)) {
            Some(init) => init,
            None => PendingInit::launch(namespaces, cgroup.as_ref(), network.as_ref())?,
        };
        let (started, control) = init.hand_over(&plan.init_plan, &extra)?;
        // A held sandbox gets another plan, a program that was started early its go, and a captured one's sockets come back.
        let wanted = plan.init_plan.flags & (flag::HOLD | flag::EARLY) != 0 || plan.egress.is_some();
        let control = wanted.then_some(control);
        Ok(Staged { started: Some(started), control, cgroup, enforcement, network })
    }

    /// Gives a staged sandbox the program of this very run.
    fn let_go(&self, staged: Staged, plan: &mut NativePlan) -> Result<Staged, Failure> {
        if staged.cgroup.is_some() {
            crate::plan::rlimits::leave_processes_to_the_cgroup(&mut plan.init_plan.rlimits);
        }
        let control = staged
            .control
            .as_ref()
            .ok_or_else(|| Failure::new(FailedStep::Spawn, "the staged sandbox waits for nothing"))?;
        jail::send_plan(control, &plan.init_plan, &[])?;
        Ok(staged)
    }

    /// An empty network namespace that was used before, where the owner may enter one and the policy wants it empty.
    fn network(&self) -> Result<Option<netns::Lease>, Failure> {
        let again = self.ran.swap(true, Ordering::Relaxed);
        let empty = self.planned.policy.network.mode == NetworkMode::None && self.native.namespaces;
        // A granted Unix socket carries descriptors: a socket of this network may live on in another sandbox.
        let left_alone = !self.planned.policy.process.unix_sockets;
        if !(again && empty && left_alone && self.identity.privileged) {
            return Ok(None);
        }
        self.networks
            .lease()
            .map(Some)
            .map_err(|e| Failure::new(Field::Network, format!("cannot make a network namespace: {e}")))
    }

    fn take_first(&self) -> FirstRun {
        std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The run's cgroup with its limits: the one that was made for it, if it serves. With it the init that waits, unless that was
    /// born in another cgroup.
    fn cgroup(
        &self,
        e: &mut AppliedEnforcement,
        mut made: Option<Cgroup>,
        mut init: Option<PendingInit>,
    ) -> Result<(Option<Cgroup>, Option<PendingInit>), Failure> {
        let Some(location) = &self.location else { return Ok((None, init)) };
        let l = &self.planned.policy.limits;
        let limits = CgroupLimits {
            memory_bytes: Some(l.memory_mb << 20),
            // Init is one of them.
            pids: Some(l.processes + 1),
            // A share of all there is needs no holding.
            cpu_millis: (!crate::plan::rlimits::is_all(l.cpu_millis)).then_some(l.cpu_millis),
            cpu_time: true,
            kill: !self.native.namespaces,
        };
        let applied = made.as_mut().and_then(|cgroup| cgroup.limit(&limits));
        let limited = match (made, applied) {
            (Some(cgroup), Some(applied)) => Ok((cgroup, applied)),
            (other, _) => {
                init = None; // end init before its cgroup is removed
                drop(other);
                Cgroup::create(location, &limits)
            }
        };
        match limited {
            Ok((c, applied)) => {
                for (field, reached) in [
                    (Field::Memory, applied.memory),
                    (Field::CpuShare, applied.cpu),
                    (Field::CpuTime, applied.cpu_time),
                ] {
                    let Some(r) = reached else { continue };
                    if r.level != LimitLevel::Full {
                        let strength = if r.level == LimitLevel::None { Strength::None } else { Strength::Partial };
                        e.insert(field, AppliedField { strength, reason: r.reason.unwrap_or_default() });
                        if field == Field::Memory && self.native.namespaces {
                            memory_inside(&self.planned.policy, e);
                        }
                    }
                }
                self.still_sufficient(e).map(|()| (Some(c), init))
            }
            Err(error) => {
                for field in [Field::Memory, Field::CpuShare, Field::CpuTime] {
                    e.insert(field, AppliedField { strength: Strength::Partial, reason: error.to_string() });
                }
                if self.native.namespaces {
                    memory_inside(&self.planned.policy, e);
                }
                self.still_sufficient(e).map(|()| (None, init))
            }
        }
    }

    fn watch(
        &self,
        started: jail::Started,
        plan: &NativePlan,
        cgroup: Option<&Cgroup>,
        io: &mut Io,
        channel: Option<&AgentChannel>,
        egress: Option<&Egress>,
    ) -> SupervisorReport {
        let l = &self.planned.policy.limits;
        let [to, out, err] = started.stdio;
        let input = io.take_input(&self.planned.policy.command.stdin);
        let run = SupervisedRun {
            running: started.running,
            source: InputSource::new(to, input, false),
            sinks: [
                Some(OutputSink::new(out, Stream::Stdout, l.output_bytes)),
                Some(OutputSink::new(err, Stream::Stderr, l.output_bytes)),
            ],
            cgroup,
            wall: Duration::from_millis(l.wall_ms),
            cpu_seconds: l.cpu_seconds,
            sample_memory: cgroup.is_none().then_some(l.memory_mb << 20),
            memory_bytes: l.memory_mb << 20,
            own_network: (self.native.namespaces && self.planned.policy.network.mode != NetworkMode::Host)
                .then_some(OwnNetwork { mode: self.planned.policy.network.mode, below_runtime: false }),
            overlays: !plan.layers.is_empty()
                || self.planned.policy.process.nested_sandboxes
                || plan.view.places().iter().any(|place| place.persistent),
            output_bytes: l.output_bytes,
            log: Log::new(&self.planned.policy),
        };
        let mut tree = InitTree {
            status: started.status,
            received: started.received,
            events: started.events,
            no_more_events: false,
            lifeline: Some(started.lifeline),
            own_pids: self.native.namespaces,
            paths: Paths { view: &plan.view, denied: &plan.denied, protected: &plan.protected },
            session: channel,
            workspace: plan.init_plan.mounts.iter().position(handed),
            layers: &plan.layers,
            gateway: egress.map(|e| (e.watch(), self.planned.policy.on_violation == OnViolation::Terminate)),
            container: None,
            asked: None,
        };
        if let Some(session) = channel {
            let wakes = [tree.events.as_fd()].into_iter().chain(egress.map(|e| e.watch().wakes()));
            session.tap().begin(wakes, egress.map(|e| e.repeats()));
        }
        io.monitor.begin(run.running.pid, cgroup, 1);
        supervise::supervise(run, &mut tree, io)
    }

    /// The tree is dead: what did it use? Then its cgroup goes.
    fn figures(&self, report: SupervisorReport, enforcement: AppliedEnforcement, cgroup: Option<Cgroup>) -> Finished {
        let mut f = Finished::of(report, enforcement);
        let Some(c) = cgroup else { return f };
        if let Ok(used) = c.usage() {
            f.counted(&used, 1); // init is not the program's
        }
        f.pids_hits = c.events().map_or(0, |e| e.pids_limit_hits);
        if !self.native.namespaces
            && let Err(e) = c.kill_all(std::time::Duration::from_secs(2))
        {
            f.problems.push(e.to_string());
        }
        if let Err(e) = c.remove() {
            f.problems.push(e.to_string());
        }
        f
    }

    fn layers(&self, f: &mut Finished, plan: &NativePlan, io: &mut Io) {
        let layers: Vec<(usize, OwnedFd)> = std::mem::take(&mut f.report.layers);
        let several = plan.layers.len() > 1;
        for (op, root) in layers {
            if plan.init_plan.mounts.get(op).is_some_and(handed) {
                if let Some(take) = io.handed_back.take() {
                    take(root);
                }
                continue;
            }
            let Some(layer) = plan.layers.iter().find(|l| l.op == op) else { continue };
            let keep = io
                .keep_changes
                .as_ref()
                .map(|dir| if several { dir.join(crate::run::overlay::directory(&layer.target)) } else { dir.clone() });
            match crate::run::overlay::changes(root.as_fd(), &layer.source, &layer.target, keep.as_deref()) {
                Ok(c) => {
                    f.changes.extend(c.list);
                    if c.omitted > 0 {
                        f.changes_omitted += c.omitted;
                        f.problems.push(crate::run::overlay::unlisted(c.omitted, c.deep, &layer.target));
                    }
                    if let Some(why) = c.failure {
                        let dir = keep.as_deref().map_or_else(String::new, |k| k.display().to_string());
                        let message = format!("not all changes in {} are kept in {dir}: {why}", layer.target);
                        let hint = "name a directory with more room, outside of the volumes that the program may write: --keep-changes DIR";
                        f.changes_lost.get_or_insert(Failure::new(FailedStep::KeepChanges, message).hint(hint));
                    }
                    if keep.is_some() && (!c.skipped.is_empty() || c.unnamed > 0) {
                        f.problems.push(crate::run::overlay::unkept(&c.skipped, c.unnamed));
                    }
                }
                Err(e) => f.problems.push(format!("cannot read what changed in {}: {e}", layer.target)),
            }
        }
    }

    fn refused(&self, failure: Failure, begun: Instant) -> Outcome {
        self.planned.unstarted().refused(failure, begun)
    }

    fn outcome(&self, f: Finished, plan: &NativePlan, begun: Instant) -> Outcome {
        let of = RunContext {
            policy: &self.planned.policy,
            init_plan: Some(&plan.init_plan),
            codes_are_signals: false,
            reports: self.native.namespaces,
        };
        outcome_builder::outcome(&of, self.planned.unstarted(), f, begun)
    }
}

/// One more, for as long as it is held.
struct CountGuard<'a>(&'a AtomicUsize);

impl CountGuard<'_> {
    fn one_of(count: &AtomicUsize) -> CountGuard<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        CountGuard(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether it is the tmpfs that is handed back.
fn handed(step: &init_plan::MountStep) -> bool {
    matches!(step, init_plan::MountStep::Tmpfs { export: Some(_), .. })
}

fn empty_or_new(dir: &std::path::Path) -> Result<(), Failure> {
    let fail = |message: String| {
        Failure::new(FailedStep::KeepChanges, message).hint("name a directory that does not exist yet")
    };
    match std::fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(fail(format!("{} is not empty", dir.display()))),
            None => Ok(()),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(fail(format!("cannot use {}: {e}", dir.display()))),
    }
}
