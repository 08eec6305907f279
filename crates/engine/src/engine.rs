//! The engine: what this host can do, which backend holds a policy, and one run from plan to outcome.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::{self, Cgroup, Level, Limits, Location};
use cofferdam_confine::host::{self, Identity};
use cofferdam_confine::netns;
use cofferdam_policy::{Backend, Field, NetworkMode, Policy, Stdin};

use crate::evidence::Paths;
use crate::filter::{self, Filter, Needs};
use crate::io::{Input, Io, Output, Stream};
use crate::jail;
use crate::landlock;
use crate::outcome::{Applied, Ending, Enforcement, Evidence, Failure, Outcome, Strength, Truncated, Violation};
use crate::streams::{Sink, Source};
use crate::supervise::{self, End, Report, Run};
use crate::support::Support;
use crate::words;

/// What this host can do, asked once; makes prepared policies.
#[derive(Debug, Default)]
pub struct Engine {
    identity: OnceLock<Identity>,
    cgroups: OnceLock<Cgroups>,
    owns_process: bool,
    /// The search for a place for cgroups, under way beside the caller's own work.
    search: Mutex<Option<JoinHandle<Cgroups>>>,
}

#[derive(Debug)]
enum Cgroups {
    Here(std::sync::Arc<Location>, Predicted),
    Not(String, String),
}

/// What a cgroup made here will hold.
#[derive(Debug, Clone, Copy)]
struct Predicted {
    memory: bool,
    pids: bool,
    cpu: bool,
    cpu_time: bool,
}

/// The filters of a policy, compiled when first needed.
#[derive(Debug)]
pub struct Filters {
    needs: Needs,
    plain: OnceLock<Result<Filter, Failure>>,
    guarded: OnceLock<Result<Filter, Failure>>,
    linked: OnceLock<Result<Filter, Failure>>,
}

impl Filters {
    pub(crate) fn new(needs: Needs) -> Filters {
        Filters { needs, plain: OnceLock::new(), guarded: OnceLock::new(), linked: OnceLock::new() }
    }

    /// The filter for a plan with or without guards, and with links among the guarded names.
    ///
    /// # Errors
    /// The policy's rules cannot be compiled.
    pub fn get(&self, policy: &Policy, guards: bool, links: bool) -> Result<&Filter, Failure> {
        let slot = match (guards, links) {
            (false, _) => &self.plain,
            (true, false) => &self.guarded,
            (true, true) => &self.linked,
        };
        slot.get_or_init(|| filter::build(policy, Needs { guards, links, ..self.needs })).as_ref().map_err(Clone::clone)
    }
}

/// A policy with its backend, ready to run, many times and from several threads.
#[derive(Debug)]
pub struct Prepared {
    policy: Policy,
    identity: Identity,
    backend: Backend,
    reason: String,
    filters: Filters,
    location: Option<std::sync::Arc<Location>>,
    enforcement: Enforcement,
    /// The plan that `prepare` looked at, for a run that follows at once. Later runs look again: what exists changes.
    fresh: Mutex<Option<(Instant, jail::Plan)>>,
    /// Empty network namespaces of earlier runs.
    networks: netns::Pool,
    /// Owner maps of earlier runs.
    owner_maps: jail::OwnerMaps,
    /// Whether it has run before: the first run of a command is mostly the only one.
    ran: AtomicBool,
}

/// How long a plan made by `prepare` may wait for its run.
const FRESH: Duration = Duration::from_millis(20);

impl Engine {
    /// An engine inside somebody's program: it moves nothing of the process.
    pub fn probe() -> Engine {
        Engine::default()
    }

    /// An engine that has its process for itself, as the command does: the process may be moved into a cgroup of its
    /// own where that is what makes limits possible.
    pub fn for_own_process() -> Engine {
        // A second thread looks for the place while the first reads its arguments: both take a good part of a
        // millisecond. Without a thread the search happens when it is needed.
        let search = std::thread::Builder::new().stack_size(256 << 10).spawn(|| find_cgroups(true)).ok();
        Engine { owns_process: true, search: Mutex::new(search), ..Engine::default() }
    }

    fn identity(&self) -> Identity {
        *self.identity.get_or_init(host::identity)
    }

    fn cgroups(&self) -> &Cgroups {
        self.cgroups.get_or_init(|| {
            let search = self.search.lock().unwrap_or_else(PoisonError::into_inner).take();
            search.and_then(|s| s.join().ok()).unwrap_or_else(|| find_cgroups(self.owns_process))
        })
    }

    /// What each backend can enforce of this policy on this host.
    pub fn support(&self, policy: &Policy) -> Vec<Support> {
        [Backend::Jail, Backend::Landlock].into_iter().map(|b| self.support_of(b, policy)).collect()
    }

    fn support_of(&self, backend: Backend, policy: &Policy) -> Support {
        let name = name_of(backend);
        match self.plan_for(backend, policy, &Filters::new(needs_of(backend))).map(|plan| plan.enforcement) {
            Ok(fields) => Support { backend: name, unavailable: None, fields },
            Err(failure) => Support { backend: name, unavailable: Some(failure), fields: Enforcement::new() },
        }
    }

    /// The plan of one backend, its enforcement completed by what cgroups give here.
    fn plan_for(&self, backend: Backend, policy: &Policy, filters: &Filters) -> Result<jail::Plan, Failure> {
        let me = self.identity();
        let mut plan = match backend {
            Backend::Landlock => {
                landlock::available()?;
                landlock::plan(policy, me, filters)?
            }
            _ => {
                jail_available(me)?;
                jail::complete(policy, me, filters)?
            }
        };
        self.cgroup_enforcement(&mut plan.enforcement);
        Ok(plan)
    }

    fn cgroup_enforcement(&self, e: &mut Enforcement) {
        let full = |reason: &str| Applied { strength: Strength::Full, reason: reason.to_owned() };
        match self.cgroups() {
            Cgroups::Here(_, p) => {
                for (has, field) in [(p.memory, Field::Memory), (p.cpu, Field::CpuShare), (p.pids, Field::Processes)] {
                    if has {
                        e.insert(field, full("cgroup"));
                    }
                }
                if p.cpu_time {
                    e.insert(Field::CpuTime, full("the cgroup counts, the supervisor kills"));
                }
            }
            Cgroups::Not(reason, hint) => {
                for field in [Field::Memory, Field::CpuShare, Field::CpuTime] {
                    if let Some(a) = e.get_mut(&field).filter(|a| a.strength != Strength::Full) {
                        a.reason = format!("{}; {reason}; {hint}", a.reason.split("; ").next().unwrap_or_default());
                    }
                }
            }
        }
    }

    /// Chooses the backend, refuses what cannot be enforced, and makes the policy ready to run.
    ///
    /// # Errors
    /// The policy cannot be enforced as far as it requires, or names what is not there.
    pub fn prepare(&self, policy: &Policy) -> Result<Prepared, Failure> {
        let candidates = match policy.backend {
            Backend::Auto => vec![Backend::Jail, Backend::Landlock],
            named => vec![named],
        };
        let mut refusals = Vec::new();
        for backend in candidates {
            let filters = Filters::new(needs_of(backend));
            let plan = self.plan_for(backend, policy, &filters);
            match plan.and_then(|p| sufficient(policy, backend, &p.enforcement).map(|()| p)) {
                Ok(plan) => {
                    let reason = reason(policy.backend, backend, &refusals);
                    return Ok(self.prepared(policy, backend, reason, filters, plan));
                }
                Err(failure) => refusals.push(failure),
            }
        }
        Err(neither(refusals))
    }

    fn prepared(
        &self,
        policy: &Policy,
        backend: Backend,
        reason: String,
        filters: Filters,
        plan: jail::Plan,
    ) -> Prepared {
        let location = match self.cgroups() {
            Cgroups::Here(location, _) => Some(location.clone()),
            Cgroups::Not(..) => None,
        };
        Prepared {
            policy: policy.clone(),
            identity: self.identity(),
            backend,
            reason,
            filters,
            location,
            enforcement: plan.enforcement.clone(),
            fresh: Mutex::new(Some((Instant::now(), plan))),
            networks: netns::Pool::default(),
            owner_maps: jail::OwnerMaps::default(),
            ran: AtomicBool::new(false),
        }
    }
}

/// Where this process may make cgroups, ready to be used.
fn find_cgroups(owns_process: bool) -> Cgroups {
    let probe = cgroup::probe();
    let has = |a: &cgroup::Availability| matches!(a, cgroup::Availability::Available(_));
    let predicted = Predicted {
        memory: has(&probe.memory),
        pids: has(&probe.pids),
        cpu: has(&probe.cpu),
        cpu_time: has(&probe.cpu_time),
    };
    let why = match &probe.memory {
        cgroup::Availability::Unavailable { reason, hint } => (reason.clone(), hint.clone()),
        cgroup::Availability::Available(_) => (String::new(), String::new()),
    };
    let moves = probe.plan.as_ref().is_some_and(cgroup::Plan::moves_caller);
    if probe.plan.is_none() {
        return Cgroups::Not(why.0, why.1);
    }
    if moves && !owns_process {
        return Cgroups::Not(
            "limits need this process to be moved to a cgroup of its own, which a library does not do".into(),
            "run it by the cofferdam command".into(),
        );
    }
    match probe.prepare() {
        Ok(location) => {
            cgroup::sweep(&location);
            Cgroups::Here(std::sync::Arc::new(location), predicted)
        }
        Err(e) => Cgroups::Not(e.to_string(), "see `cofferdam doctor`".into()),
    }
}

fn needs_of(backend: Backend) -> Needs {
    if backend == Backend::Landlock { landlock::needs() } else { jail_needs() }
}

fn jail_needs() -> Needs {
    Needs { guards: false, links: false, no_net_namespace: false, no_ipc_namespace: false, no_mounts: false }
}

fn name_of(backend: Backend) -> &'static str {
    match backend {
        Backend::Landlock => "landlock",
        _ => "jail",
    }
}

fn jail_available(me: Identity) -> Result<(), Failure> {
    let refused = |why: String, hint: &str| Failure {
        code: 125,
        step: NAMESPACES.into(),
        message: format!("user namespaces cannot be had: {why}"),
        hint: Some(hint.into()),
    };
    if let Some((why, command)) = host::user_namespaces_refused(me.privileged) {
        return Err(refused(why.to_owned(), command));
    }
    if !me.privileged && me.is_root_outside() {
        return Err(landlock::as_root());
    }
    // The switches are not all: what is around this process may refuse as well, and only trying tells.
    if host::is_enclosed()
        && let Err(e) = host::try_user_namespace()
    {
        return Err(refused(format!("{e}; what is around this process refuses them"), host::ENCLOSED));
    }
    Ok(())
}

/// The step of a refusal that is about namespaces as such.
const NAMESPACES: &str = "namespaces";
/// The step of a refusal that is about whom the sandbox can run as.
const IDS: &str = "ids";

/// What to tell when no backend will do: the strongest one's refusal is what the user can act on; where it is about the
/// host and not about the policy, the next one's says why it does not stand in.
fn neither(refusals: Vec<Failure>) -> Failure {
    let mut refusals = refusals.into_iter();
    let Some(mut first) = refusals.next() else {
        return Failure { code: 125, step: "backend".into(), message: "no backend".into(), hint: None };
    };
    if (first.step == NAMESPACES || first.step == IDS)
        && let Some(next) = refusals.next()
    {
        if first == next {
            return first;
        }
        first.message = format!("{}\n  the landlock backend cannot stand in: {}", first.message, next.message);
        first.hint = match (first.hint, next.hint) {
            (Some(one), Some(other)) => Some(format!("{one}; or {other}")),
            (one, other) => one.or(other),
        };
    }
    first
}

/// A backend may run a policy when every required field holds in full.
fn sufficient(policy: &Policy, backend: Backend, e: &Enforcement) -> Result<(), Failure> {
    let short: Vec<(&Field, &Applied)> =
        e.iter().filter(|(f, a)| a.strength != Strength::Full && !policy.enforcement.best_effort.contains(f)).collect();
    let Some((first, applied)) = short.first() else { return Ok(()) };
    let others = match short.len() {
        1 => String::new(),
        n => format!(
            " (and {} more: {})",
            n - 1,
            short[1..].iter().map(|(f, _)| f.name()).collect::<Vec<_>>().join(", ")
        ),
    };
    let strength = if applied.strength == Strength::None { "not at all" } else { "only in part" };
    Err(Failure {
        code: 125,
        step: first.name().into(),
        message: format!(
            "the {} backend can hold {} {strength} here: {}{others}",
            name_of(backend),
            first.name(),
            applied.reason
        ),
        hint: Some(format!(
            "--best-effort={} runs with what can be had; `cofferdam doctor` shows what is missing",
            short.iter().map(|(f, _)| f.name()).collect::<Vec<_>>().join(",")
        )),
    })
}

fn reason(asked: Backend, chosen: Backend, refusals: &[Failure]) -> String {
    match (asked, refusals.first()) {
        (Backend::Auto, None) => format!("{} is the strongest, and holds every required field", name_of(chosen)),
        (Backend::Auto, Some(f)) => {
            format!("{} holds every required field; the jail does not: {}", name_of(chosen), f.message)
        }
        _ => "named by the policy".into(),
    }
}

/// What is left of a run besides its report, for the outcome.
struct Finished {
    report: Report,
    enforcement: Enforcement,
    changes: Vec<crate::outcome::Change>,
    problems: Vec<String>,
    memory: Option<u64>,
    cpu: Option<f64>,
    processes: Option<u64>,
    pids_hits: u64,
}

impl Prepared {
    /// `jail` or `landlock`.
    pub fn backend(&self) -> &'static str {
        name_of(self.backend)
    }

    /// Why that one.
    pub fn backend_reason(&self) -> &str {
        &self.reason
    }

    /// What will hold, as far as it can be told before the run.
    pub fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// What the backend will do, for people: steps in order.
    pub fn plan_json(&self) -> serde_json::Value {
        match self.plan() {
            Ok(plan) => crate::show::plan(&plan, self.backend(), &self.reason, &self.enforcement),
            Err(failure) => serde_json::json!({ "error": failure }),
        }
    }

    fn plan(&self) -> Result<jail::Plan, Failure> {
        match self.backend {
            Backend::Landlock => landlock::plan(&self.policy, self.identity, &self.filters),
            _ => jail::complete(&self.policy, self.identity, &self.filters),
        }
    }

    /// Runs it and returns when the tree is dead and nothing of it is left.
    pub fn run(&self, mut io: Io) -> Outcome {
        let begun = Instant::now();
        match self.attempt(&mut io) {
            Ok((finished, plan)) => self.outcome(finished, &plan, begun),
            Err(failure) => self.refused(failure, begun),
        }
    }

    fn attempt(&self, io: &mut Io) -> Result<(Finished, jail::Plan), Failure> {
        let fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut plan = match fresh {
            Some((made, plan)) if made.elapsed() < FRESH => plan,
            _ => self.plan()?,
        };
        if let Some(dir) = &io.keep_changes {
            empty_or_new(dir)?;
        }
        if let Some(t) = io.terminal {
            plan.recipe.terminal = Some((t.rows, t.columns));
            plan.recipe.mounts.push(jail::terminal_device());
        }
        let mut enforcement = self.enforcement.clone();
        let cgroup = self.cgroup(&mut enforcement)?;
        let mut extra = jail::prepare(&plan, plan.recipe.ids_out, &self.owner_maps)?;
        if let Some(c) = &cgroup {
            let tasks = c.tasks_files().map_err(|e| refusal("cgroup", &e.to_string()))?;
            plan.recipe.joins = (extra.len() as u16, tasks.len() as u16);
            extra.extend(tasks);
            // The cgroup counts the same processes and tells when it refuses one; the rlimit behind it tells nobody.
            crate::rlimits::leave_processes_to_the_cgroup(&mut plan.recipe.rlimits);
        }
        let network = self.network()?;
        let mut namespaces = jail::namespaces(&plan, self.backend != Backend::Landlock);
        namespaces.net &= network.is_none();
        let started = jail::start(&plan.recipe, namespaces, &extra, cgroup.as_ref(), network.as_ref())?;
        drop(extra);
        let report = self.watch(started, &plan, cgroup.as_ref(), io);
        drop(network); // every process in it is dead and reaped: the next run may have it
        let mut f = self.figures(report, enforcement, cgroup);
        self.layers(&mut f, &plan, io);
        Ok((f, plan))
    }

    /// An empty network namespace that was used before, where the owner may enter one and the policy wants it empty.
    fn network(&self) -> Result<Option<netns::Lease>, Failure> {
        let again = self.ran.swap(true, Ordering::Relaxed);
        let empty = self.policy.network.mode == NetworkMode::None && self.backend != Backend::Landlock;
        // A granted Unix socket carries descriptors: a socket of this network may live on in another sandbox.
        let left_alone = !self.policy.process.unix_sockets;
        if !(again && empty && left_alone && self.identity.privileged) {
            return Ok(None);
        }
        self.networks
            .lease()
            .map(Some)
            .map_err(|e| refusal("network.mode", &format!("cannot make a network namespace: {e}")))
    }

    fn cgroup(&self, e: &mut Enforcement) -> Result<Option<Cgroup>, Failure> {
        let Some(location) = &self.location else { return Ok(None) };
        let l = &self.policy.limits;
        let limits = Limits {
            memory_bytes: Some(l.memory_mb << 20),
            // Init is one of them.
            pids: Some(l.processes + 1),
            // A share of all there is needs no holding.
            cpu_millis: (l.cpu_millis < crate::rlimits::all_cpus()).then_some(l.cpu_millis),
            cpu_time: true,
        };
        match Cgroup::create(location, &limits) {
            Ok((c, applied)) => {
                for (field, reached) in [
                    (Field::Memory, applied.memory),
                    (Field::CpuShare, applied.cpu),
                    (Field::CpuTime, applied.cpu_time),
                ] {
                    let Some(r) = reached else { continue };
                    if r.level != Level::Full {
                        let strength = if r.level == Level::None { Strength::None } else { Strength::Partial };
                        e.insert(field, Applied { strength, reason: r.reason.unwrap_or_default() });
                    }
                }
                sufficient(&self.policy, self.backend, e).map(|()| Some(c))
            }
            Err(error) => {
                for field in [Field::Memory, Field::CpuShare, Field::CpuTime] {
                    e.insert(field, Applied { strength: Strength::Partial, reason: error.to_string() });
                }
                sufficient(&self.policy, self.backend, e).map(|()| None)
            }
        }
    }

    fn watch(&self, started: jail::Started, plan: &jail::Plan, cgroup: Option<&Cgroup>, io: &mut Io) -> Report {
        let l = &self.policy.limits;
        let [to, out, err] = started.stdio;
        let input = match &self.policy.command.stdin {
            Stdin::Closed => Input::Closed,
            Stdin::Text(text) => Input::Bytes(text.clone().into_bytes()),
            Stdin::Caller if io.terminal.is_some() => Input::Closed, // the pty takes it over
            Stdin::Caller => std::mem::replace(&mut io.input, Input::Closed),
        };
        let run = Run {
            running: started.running,
            status: started.status,
            events: started.events,
            lifeline: Some(started.lifeline),
            own_pids: self.backend != Backend::Landlock,
            wall: Duration::from_millis(l.wall_ms),
            source: Source::new(to, input, false),
            sinks: [
                Some(Sink::new(out, Stream::Stdout, l.output_bytes)),
                Some(Sink::new(err, Stream::Stderr, l.output_bytes)),
            ],
            cgroup,
            paths: Paths { view: &plan.view, denied: &plan.denied, protected: &plan.protected },
            cpu_seconds: l.cpu_seconds,
            sample_memory: cgroup.is_none().then_some(l.memory_mb << 20),
            output_bytes: l.output_bytes,
            trace: self.policy.audit.trace,
        };
        supervise::supervise(run, io)
    }

    /// The tree is dead: what did it use? Then its cgroup goes.
    fn figures(&self, report: Report, enforcement: Enforcement, cgroup: Option<Cgroup>) -> Finished {
        let mut f = Finished {
            memory: (report.sampled_memory > 0).then_some(report.sampled_memory.max(report.usage.max_rss_bytes)),
            cpu: Some(report.usage.cpu_us.max(report.sampled_cpu_us) as f64 / 1e6),
            processes: (report.sampled_processes > 0).then_some(report.sampled_processes),
            report,
            enforcement,
            changes: Vec::new(),
            problems: Vec::new(),
            pids_hits: 0,
        };
        f.problems.append(&mut f.report.problems);
        if f.memory.is_none() && f.report.started_ns != 0 {
            f.memory = Some(f.report.usage.max_rss_bytes);
        }
        let Some(c) = cgroup else { return f };
        if let Ok(u) = c.usage() {
            f.memory = u.memory_peak_bytes.or(f.memory);
            // The cgroup counts init's setup as well, the process times leave out what nobody waited for: the larger.
            let counted = u.cpu_time_us.map_or(0.0, |us| us as f64 / 1e6);
            f.cpu = Some(f.cpu.unwrap_or(0.0).max(counted));
            // Init is not the program's.
            f.processes = u.pids_peak.map(|n| n.saturating_sub(1)).or(f.processes);
        }
        f.pids_hits = c.events().map_or(0, |e| e.pids_limit_hits);
        if self.backend == Backend::Landlock
            && let Err(e) = c.kill_all(std::time::Duration::from_secs(2))
        {
            f.problems.push(e.to_string());
        }
        if let Err(e) = c.remove() {
            f.problems.push(e.to_string());
        }
        f
    }

    fn layers(&self, f: &mut Finished, plan: &jail::Plan, io: &Io) {
        let layers: Vec<(usize, OwnedFd)> = std::mem::take(&mut f.report.layers);
        let several = plan.layers.len() > 1;
        for (op, root) in layers {
            let Some(layer) = plan.layers.iter().find(|l| l.op == op) else { continue };
            let keep = io
                .keep_changes
                .as_ref()
                .map(|dir| if several { dir.join(crate::layers::directory(&layer.target)) } else { dir.clone() });
            match crate::layers::changes(root.as_fd(), &layer.source, &layer.target, keep.as_deref()) {
                Ok(c) => {
                    f.changes.extend(c.list);
                    if c.unlisted > 0 {
                        f.problems.push(format!("{} more changes in {} are not listed", c.unlisted, layer.target));
                    }
                    if keep.is_some() && !c.skipped.is_empty() {
                        let first = crate::evidence::escape(c.skipped[0].as_bytes());
                        f.problems.push(format!(
                            "{} changed entries were not kept, such as {first}: only files and directories are, as far as the layer's size goes",
                            c.skipped.len()
                        ));
                    }
                }
                Err(e) => f.problems.push(format!("cannot read what changed in {}: {e}", layer.target)),
            }
        }
    }

    fn refused(&self, failure: Failure, begun: Instant) -> Outcome {
        Outcome {
            outcome: Ending::SetupFailed,
            error: Some(failure),
            violations_complete: true, // nothing ran
            setup_time_ms: begun.elapsed().as_secs_f64() * 1e3,
            ..self.blank()
        }
    }

    fn blank(&self) -> Outcome {
        Outcome {
            outcome: Ending::SetupFailed,
            success: false,
            exit_code: None,
            signal: None,
            stdout: String::new(),
            stderr: String::new(),
            truncated: Truncated::default(),
            execution_time_ms: 0.0,
            setup_time_ms: 0.0,
            memory_used_bytes: None,
            cpu_time_seconds: None,
            pid_count: None,
            limit: None,
            violations: Vec::new(),
            violations_complete: false,
            changes: Vec::new(),
            enforcement: self.enforcement.clone(),
            backend: self.backend().into(),
            backend_reason: self.reason.clone(),
            run_id: crate::random::uuid(),
            artifacts: Vec::new(),
            error: None,
        }
    }

    fn outcome(&self, mut f: Finished, plan: &jail::Plan, begun: Instant) -> Outcome {
        let mut o = self.blank();
        let total = begun.elapsed().as_secs_f64() * 1e3;
        let ran = f.report.started_ns != 0;
        o.execution_time_ms =
            if ran { f.report.ended_ns.saturating_sub(f.report.started_ns) as f64 / 1e6 } else { 0.0 };
        o.setup_time_ms = (total - o.execution_time_ms).max(0.0);
        let mut log = std::mem::take(&mut f.report.log);
        ending(&mut o, &f, plan, self.policy.limits.cpu_seconds);
        if let Some(limit) = o.limit {
            // Where all there is is a signal, anybody could have sent it.
            let by_signal = matches!(f.report.end, End::Wait(_));
            log.add(limit_violation(limit, if by_signal { Evidence::Inferred } else { Evidence::Kernel }));
        }
        if f.pids_hits > 0 {
            let mut v = limit_violation(Field::Processes, Evidence::Kernel);
            v.count = f.pids_hits;
            log.add(v);
        }
        let rules = &self.policy.process.seccomp.rules;
        let kills = rules.iter().any(|r| matches!(r.action, cofferdam_policy::SyscallAction::Kill));
        let killed = matches!(f.report.end, End::Wait(status) if status & 0x7f == SIGSYS);
        if killed {
            log.add(killed_by_filter());
        }
        // A call that the filter kills for is told by nobody; nor is a read that Landlock alone refuses.
        let told = !kills && !killed && self.backend != Backend::Landlock;
        let complete = told && log.trace && !log.overflowed && f.report.lost == 0;
        o.violations_complete = complete || !ran; // what never ran was refused nothing
        o.violations = log.into_violations();
        let [(out, out_cut), (err, err_cut)] = f.report.streams;
        o.stdout = String::from_utf8_lossy(&out).into_owned();
        o.stderr = String::from_utf8_lossy(&err).into_owned();
        o.truncated = Truncated { stdout: out_cut, stderr: err_cut };
        (o.memory_used_bytes, o.cpu_time_seconds, o.pid_count) = (f.memory, f.cpu, f.processes);
        o.changes = f.changes;
        o.enforcement = f.enforcement;
        for (step, errno) in f.report.weakened {
            weaken(&mut o.enforcement, step, errno);
        }
        if o.error.is_none()
            && let Some(first) = f.problems.first()
        {
            o.error = Some(Failure { code: 0, step: "cleanup".into(), message: first.clone(), hint: None });
        }
        o
    }
}

fn refusal(step: &str, message: &str) -> Failure {
    Failure { code: 125, step: step.into(), message: message.into(), hint: None }
}

/// A step that could not be done and that something else stands in for: the outcome says so.
fn weaken(e: &mut Enforcement, step: u16, errno: i32) {
    use cofferdam_confine::wire::step as s;
    let cause = std::io::Error::from_raw_os_error(errno);
    let (field, what) = match step {
        s::USERNS => {
            (Field::Isolation, "nested user namespaces could not be switched off, the filter alone refuses them")
        }
        s::KEYRING => (Field::Isolation, "no session keyring of its own, the filter alone refuses keyctl"),
        _ => return,
    };
    e.insert(field, Applied { strength: Strength::Partial, reason: format!("{what}: {cause}") });
}

/// The signal of a filter that kills. Anybody can send it to himself, so it is no evidence of the kernel's.
const SIGSYS: i32 = 31;

fn killed_by_filter() -> Violation {
    let (operation, field) = ("SIGSYS".to_owned(), "$.process.seccomp".to_owned());
    Violation { operation, object: None, field, evidence: Evidence::Inferred, pid: 0, count: 1 }
}

fn limit_violation(field: Field, evidence: Evidence) -> Violation {
    Violation { operation: field.name().into(), object: None, field: format!("$.{field}"), evidence, pid: 0, count: 1 }
}

fn ending(o: &mut Outcome, f: &Finished, plan: &jail::Plan, cpu_seconds: u64) {
    let limit = |o: &mut Outcome, field| {
        o.outcome = Ending::LimitExceeded;
        o.limit = Some(field);
    };
    match f.report.end {
        End::Wait(status) if status & 0x7f == 0 => {
            let code = status >> 8 & 0xff;
            o.outcome = Ending::Exited;
            o.exit_code = Some(code);
            o.success = code == 0;
        }
        End::Wait(status) => {
            let signal = status & 0x7f;
            o.outcome = Ending::Signalled;
            o.signal = Some(signal);
            // Anybody can send these signals to himself: the measure decides where there is one.
            let used = f.cpu.unwrap_or(0.0);
            let limit_seconds = cpu_seconds as f64;
            // SIGXCPU comes by ticks, which can run ahead of what was used.
            if signal == 24 && used >= limit_seconds * 0.75 || signal == 9 && used >= limit_seconds * 0.95 {
                limit(o, Field::CpuTime);
            } else if signal == 25 {
                limit(o, Field::FileSize);
            }
        }
        End::TimedOut => {
            o.outcome = Ending::TimedOut;
            o.limit = Some(Field::WallTime);
        }
        End::Limit(field) => limit(o, field),
        End::Violation => o.outcome = Ending::Violation,
        End::Cancelled => {
            o.outcome = Ending::Signalled;
            o.signal = Some(15);
        }
        End::Failed(step, index, errno) => {
            o.outcome = Ending::SetupFailed;
            o.error = Some(words::failure(&plan.recipe, step, index, errno));
        }
        End::Lost if f.report.started_ns == 0 => {
            o.outcome = Ending::SetupFailed;
            let message = "init ended before the program could start: killed from outside, or the memory limit is too low for setup";
            let hint = Some("raise --memory".to_owned());
            o.error = Some(Failure { code: 125, step: "init".into(), message: message.into(), hint });
        }
        End::Lost => {
            o.outcome = Ending::Signalled;
            o.signal = Some(9);
        }
    }
}

fn empty_or_new(dir: &std::path::Path) -> Result<(), Failure> {
    let fail = |message: String| Failure {
        code: 125,
        step: "keep_changes".into(),
        message,
        hint: Some("name a directory that does not exist yet".into()),
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

/// Removes what killed runs of this user left: their cgroups. Every command does it when it starts.
pub fn sweep() {
    let probe = cgroup::probe();
    if probe.plan.as_ref().is_some_and(|p| !p.moves_caller())
        && let Ok(location) = probe.prepare()
    {
        cgroup::sweep(&location);
    }
}

// The type stays usable from several threads.
const _: fn() = || {
    fn both<T: Send + Sync>() {}
    both::<Prepared>();
    both::<Engine>();
    let _: fn(Output) = drop;
};
