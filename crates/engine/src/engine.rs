//! The engine: what this host can do, which backend enforces a policy, and what is prepared for its runs.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use cofferdam_confine::cgroup::{self, Cgroup, Limits, Location};
use cofferdam_confine::host::{self, Identity};
use cofferdam_confine::netns;
use cofferdam_confine::other_cpu;
use cofferdam_policy::{Backend, Field, NetworkMode, Policy};

use crate::backends::containers::run::{Contained, ProgressCallback};
use crate::backends::enforcement::{self, Target, sufficient};
use crate::backends::landlock::{self, Refusal};
use crate::backends::native::Core;
use crate::backends::{self, Installed, Tool, Tools, containers, jail};
use crate::failure::{Failure, Step};
use crate::outcome::{Applied, Enforcement, Strength};
use crate::plan::executables::{self, Executables};
use crate::plan::seccomp_filter::{Filters, Needs};
use crate::plan::support::Support;
use crate::plan::{Plan, state};
use crate::prepared::Prepared;

/// What this host can do, asked once; makes prepared policies.
#[derive(Debug, Default)]
pub struct Engine {
    identity: OnceLock<Identity>,
    cgroups: OnceLock<Cgroups>,
    owns_process: bool,
    /// The search for a place for cgroups, under way beside the caller's own work.
    search: Search,
    /// The cgroup of the one run.
    cgroup: Mutex<Option<Cgroup>>,
    /// Where external sandbox programs are; where this is `None`, the environment says so.
    tools: Option<Tools>,
    /// Called with the progress of a pull.
    on_progress: OnProgress,
}

/// What a process of its own is going to do with an engine, as far as its caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// One run.
    Run,
    /// Something else, or nothing that is known yet.
    Anything,
}

/// The callback for progress, where there is one.
#[derive(Default)]
struct OnProgress(Option<ProgressCallback>);

impl std::fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Telling(..)" } else { "Telling(nobody)" })
    }
}

/// A place for cgroups, and the cgroup that was made there for the one run.
type Found = (Cgroups, Option<Cgroup>);

/// The thread that searches. Dropped, it is waited for: what it made goes with it.
#[derive(Debug, Default)]
struct Search(Mutex<Option<JoinHandle<Option<Found>>>>);

impl Search {
    fn take(&self) -> Option<Found> {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.and_then(|thread| thread.join().ok()).flatten()
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        drop(self.take());
    }
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

impl Engine {
    /// An engine inside any program: it never moves the process into another cgroup.
    pub fn probe() -> Engine {
        Engine::default()
    }

    /// An engine that has its process for itself, as the command does: the process may be moved into a cgroup of its
    /// own where that is what makes limits possible.
    ///
    /// While the caller still works out its policy, a thread looks for the place of cgroups, and where a `run` is expected
    /// it makes that run's cgroup. Where nothing runs, the cgroup goes unused.
    pub fn for_own_process(run: Expected) -> Engine {
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let search = other_cpu::spawn(thread, move || {
            let found = find_cgroups(true);
            let cgroup = match (&found, run) {
                (Cgroups::Here(location, _), Expected::Run) => Cgroup::unlimited(location, &LIKELY),
                _ => None,
            };
            (found, cgroup)
        });
        // Without a thread the place is looked for when it is needed.
        Engine { owns_process: true, search: Search(Mutex::new(search.ok())), ..Engine::default() }
    }

    /// Names the external sandbox programs, instead of the environment.
    #[must_use]
    pub fn with_tools(self, tools: Tools) -> Engine {
        Engine { tools: Some(tools), ..self }
    }

    /// Reports progress to this callback, when an image is pulled or unpacked for a container.
    #[must_use]
    pub fn on_progress(self, on_progress: ProgressCallback) -> Engine {
        Engine { on_progress: OnProgress(Some(on_progress)), ..self }
    }

    fn identity(&self) -> Identity {
        *self.identity.get_or_init(host::identity)
    }

    fn cgroups(&self) -> &Cgroups {
        self.cgroups.get_or_init(|| match self.search.take() {
            Some((found, cgroup)) => {
                *self.cgroup.lock().unwrap_or_else(PoisonError::into_inner) = cgroup;
                found
            }
            None => find_cgroups(self.owns_process),
        })
    }

    /// What each backend can enforce of this policy on this host.
    pub fn support(&self, policy: &Policy) -> Vec<Support> {
        let own = [Backend::Jail, Backend::Landlock].into_iter().map(|b| self.support_of(b, policy));
        let foreign = Tool::ALL.into_iter().map(|tool| self.support_of_tool(tool, policy));
        let containers =
            Backend::NAMES.iter().filter(|(_, backend)| backend.is_container() && *backend != Backend::Oci);
        own.chain(foreign).chain(containers.map(|(_, backend)| self.support_of_containers(*backend, policy))).collect()
    }

    fn support_of_containers(&self, backend: Backend, policy: &Policy) -> Support {
        let (unavailable, fields) = match self.contained(backend, policy) {
            Ok(contained) => (None, contained.enforcement),
            Err(failure) => (Some(failure), Enforcement::new()),
        };
        Support { backend: backend.name(), unavailable, fields }
    }

    /// A policy planned for containers, its enforcement completed by what cgroups give here.
    fn contained(&self, backend: Backend, policy: &Policy) -> Result<Contained, Failure> {
        let runtime = containers::of(backend)?;
        let mut contained =
            Contained::plan(policy, backend.name(), runtime, self.identity(), self.on_progress.0.clone())?;
        if !contained.holds_limits() {
            self.cgroup_enforcement(&mut contained.enforcement);
            if let Cgroups::Here(location, _) = self.cgroups() {
                contained.location = Some(location.clone());
            }
            contained.in_the_runs_cgroup();
        }
        enforcement::socket_buffers(policy, &enforcement::OWN_NETWORKS, &mut contained.enforcement);
        Ok(contained)
    }

    fn support_of(&self, backend: Backend, policy: &Policy) -> Support {
        let name = backend.name();
        match self.plan_for(backend, policy, &Filters::new(needs_of(backend)), None).map(|plan| plan.enforcement) {
            Ok(fields) => Support { backend: name, unavailable: None, fields },
            Err(Refusal { failure, .. }) => {
                Support { backend: name, unavailable: Some(failure), fields: Enforcement::new() }
            }
        }
    }

    fn support_of_tool(&self, tool: Tool, policy: &Policy) -> Support {
        match self.foreign(tool, policy) {
            Ok(ready) => Support { backend: tool.name(), unavailable: None, fields: ready.enforcement },
            Err(failure) => Support { backend: tool.name(), unavailable: Some(failure), fields: Enforcement::new() },
        }
    }

    /// A policy planned for an external program, its enforcement completed by what cgroups enforce here.
    fn foreign(&self, tool: Tool, policy: &Policy) -> Result<backends::Ready, Failure> {
        let tools = self.tools.clone().unwrap_or_else(Tools::from_environment);
        let mut ready = backends::Ready::plan(policy, Installed::find(tool, &tools)?, self.identity())?;
        self.cgroup_enforcement(&mut ready.enforcement);
        if let Cgroups::Here(location, _) = self.cgroups() {
            ready.in_cgroups(location.clone());
        }
        // No init of ours in there hands out a socket to ask with. Without any address there is nothing to ask.
        enforcement::socket_buffers(policy, &[NetworkMode::None], &mut ready.enforcement);
        Ok(ready)
    }

    /// The plan of one backend, its enforcement completed by what cgroups give here.
    fn plan_for(
        &self,
        backend: Backend,
        policy: &Policy,
        filters: &Filters,
        programs: Option<&Executables>,
    ) -> Result<Plan, Refusal> {
        let me = self.identity();
        let mut plan = match backend {
            Backend::Landlock => {
                landlock::available()?;
                landlock::plan(policy, me, filters)?
            }
            _ => {
                jail_available(me)?;
                jail::complete(policy, me, filters, &jail::Ids::fresh())?
            }
        };
        if let Some(programs) = programs {
            programs.limit(&mut plan)?;
        }
        self.cgroup_enforcement(&mut plan.enforcement);
        if backend != Backend::Landlock {
            enforcement::memory_inside(policy, &mut plan.enforcement);
        }
        // Without a network namespace there is no network but the host's, or none.
        let counted = if backend == Backend::Landlock { &[NetworkMode::None][..] } else { &enforcement::OWN_NETWORKS };
        enforcement::socket_buffers(policy, counted, &mut plan.enforcement);
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

    /// What an image runs when nothing else is named: `reference` is one of the store of this backend, which is a container's.
    /// An image that is absent is pulled.
    ///
    /// # Errors
    /// The backend cannot be used here, or has no such image.
    pub fn image_command(&self, backend: Backend, reference: &str) -> Result<containers::ImageCommand, Failure> {
        let on_progress = |progress| self.on_progress.0.as_deref().map_or((), |on_progress| on_progress(progress));
        containers::of(backend)?.image_command(reference, &on_progress)
    }

    /// Chooses the backend, refuses what cannot be enforced, and makes the policy ready to run.
    ///
    /// # Errors
    /// The policy cannot be enforced as far as it requires, or names what is not there.
    pub fn prepare(&self, policy: &Policy) -> Result<Prepared, Failure> {
        self.prepare_with(policy, None, None)
    }

    /// The same for the executors that run configurations written for nsjail: where it is not installed, the jail runs the
    /// policy, which holds all of it, and the backend's reason says so.
    ///
    /// # Errors
    /// As [`Engine::prepare`].
    pub fn prepare_or_jail(&self, policy: &Policy) -> Result<Prepared, Failure> {
        match self.prepare(policy) {
            Err(missing) if policy.backend == Backend::Nsjail && missing.step == Step::Tool => {
                let jail = Policy { backend: Backend::Jail, ..policy.clone() };
                let reason = format!("the jail runs it, which holds the same: {}", missing.message);
                self.prepare_with(&jail, None, Some(reason))
            }
            prepared => prepared,
        }
    }

    /// The same, where only these programs may be executed by the whole tree. No field of a policy says so: they are files
    /// that were opened and decided on, not names.
    ///
    /// # Errors
    /// As [`Engine::prepare`]; also where nothing here can hold that.
    pub fn prepare_limited(&self, policy: &Policy, programs: Executables) -> Result<Prepared, Failure> {
        self.prepare_with(policy, Some(programs), None)
    }

    /// `instead` is why another backend than the policy's runs it.
    fn prepare_with(
        &self,
        policy: &Policy,
        programs: Option<Executables>,
        instead: Option<String>,
    ) -> Result<Prepared, Failure> {
        let policy = &*crate::plan::host_sockets::denied(policy)?;
        // The jail and the landlock backend judge the sources of each plan that they make, and the first is made here.
        if policy.backend.is_container() || tool_of(policy.backend).is_some() {
            backends::real_sources::acceptable(policy)?;
        }
        state::acceptable(policy)?;
        state::claim(policy);
        if policy.backend.is_container() {
            if programs.is_some() {
                return Err(executables::foreign(policy.backend.name()));
            }
            let contained = self.contained(policy.backend, policy)?;
            return contained.sufficient().map(|()| Prepared::by_containers(contained));
        }
        if let (Some(tool), Some(_)) = (tool_of(policy.backend), &programs) {
            return Err(executables::foreign(tool.name()));
        }
        if let Some(tool) = tool_of(policy.backend) {
            let ready = self.foreign(tool, policy)?;
            return ready.sufficient().map(|()| Prepared::by_foreign(ready));
        }
        let candidates = match policy.backend {
            Backend::Auto => vec![Backend::Jail, Backend::Landlock],
            Backend::Landlock => vec![Backend::Landlock],
            _ => vec![Backend::Jail],
        };
        let mut refusals = Vec::new();
        for backend in candidates {
            let filters = Filters::new(Needs { limited_exec: programs.is_some(), ..needs_of(backend) });
            let plan = self.plan_for(backend, policy, &filters, programs.as_ref());
            match plan
                .and_then(|p| Ok(sufficient(Target::Own(backend.name()), policy, &p.enforcement, &[]).map(|()| p)?))
            {
                Ok(plan) => {
                    let reason = instead.unwrap_or_else(|| reason(policy.backend, backend, &refusals));
                    return Ok(self.prepared(policy, backend, reason, filters, plan, programs));
                }
                Err(refusal) => refusals.push(refusal),
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
        plan: Plan,
        programs: Option<Executables>,
    ) -> Prepared {
        let location = match self.cgroups() {
            Cgroups::Here(location, _) => Some(location.clone()),
            Cgroups::Not(..) => None,
        };
        Prepared::new(Core {
            policy: policy.clone(),
            identity: self.identity(),
            backend,
            reason,
            filters,
            programs,
            location,
            enforcement: plan.enforcement.clone(),
            fresh: Mutex::new(Some((Instant::now(), cofferdam_audit::opened::count(), plan))),
            networks: netns::Pool::default(),
            owner_maps: jail::OwnerMaps::default(),
            ran: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            handed: std::sync::OnceLock::new(),
            cgroup: Mutex::new(self.cgroup.lock().unwrap_or_else(PoisonError::into_inner).take()),
        })
    }
}

/// The external program that a backend is, where it is one.
fn tool_of(backend: Backend) -> Option<Tool> {
    match backend {
        Backend::Bubblewrap => Some(Tool::Bubblewrap),
        Backend::Nsjail => Some(Tool::Nsjail),
        Backend::Seatbelt => Some(Tool::Seatbelt),
        Backend::Auto | Backend::Jail | Backend::Landlock => None,
        backend => {
            debug_assert!(backend.is_container());
            None
        }
    }
}

/// The kind of limits that nearly every run has.
const LIKELY: Limits = Limits { memory_bytes: Some(0), pids: Some(0), cpu_millis: None, cpu_time: true, kill: false };

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
    if backend == Backend::Landlock { landlock::needs() } else { Needs::default() }
}

pub(crate) fn jail_available(me: Identity) -> Result<(), Failure> {
    let refused = |why: String, hint: &str| {
        Failure::new(Step::Namespaces, format!("user namespaces cannot be had: {why}")).hint(hint)
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
    if host::is_enclosed() && !host::listener_available() {
        let why = "what is around this process has a filter with a listener, and the kernel gives one to each process";
        return Err(
            Failure::new(Step::Namespaces, format!("no filter of ours can stand here: {why}")).hint(host::ENCLOSED)
        );
    }
    Ok(())
}

/// The failure to report where no backend can run a policy. The strongest one's refusal is what the user can act on. Where it
/// is about the host and not about the policy, the next one's says why it cannot replace it.
fn neither(refusals: Vec<Refusal>) -> Failure {
    let mut refusals = refusals.into_iter();
    let Some(Refusal { failure: mut first, .. }) = refusals.next() else {
        return Failure::new(Step::Backend, "no backend");
    };
    if matches!(first.step, Step::Namespaces | Step::Ids)
        && let Some(Refusal { failure: next, needs_mounts }) = refusals.next()
    {
        if first == next {
            return first;
        }
        first.message = format!("{}\n  the landlock backend cannot stand in: {}", first.message, next.message);
        // Its hint names the jail, whose own refusal this is.
        let other = next.hint.filter(|_| !needs_mounts);
        first.hint = match (first.hint, other) {
            (Some(one), Some(other)) => Some(format!("{one}; or {other}")),
            (one, other) => one.or(other),
        };
    }
    first
}

fn reason(asked: Backend, chosen: Backend, refusals: &[Refusal]) -> String {
    match (asked, refusals.first()) {
        (Backend::Auto, None) => format!("{} is the strongest, and holds every required field", chosen.name()),
        (Backend::Auto, Some(jail)) => {
            format!("{} holds every required field; the jail does not: {}", chosen.name(), jail.failure.message)
        }
        _ => "named by the policy".into(),
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
    both::<Engine>();
};
