//! The engine: which backend enforces a policy on this host, and what is prepared for its runs.

use std::borrow::Cow;

use cofferdam_policy::{BackendName, Policy};

#[cfg(feature = "containers")]
use crate::backends::containers;
use crate::backends::{self, Backend, BackendRefusal, PlanRequest, Tools, registry};
use crate::failure::{FailedStep, Failure};
use crate::host::{ExpectedUse, Host};
use crate::outcome::AppliedEnforcement;
use crate::plan::executables::Executables;
use crate::plan::host_sockets;
use crate::plan::own_places::{self, OwnPlaces};
use crate::plan::support::Support;
use crate::prepared::Prepared;
use crate::progress::ProgressCallback;

/// What this host can do, asked once; makes prepared policies.
#[derive(Debug, Default)]
pub struct Engine {
    host: Host,
}

impl Engine {
    /// An engine inside any program: it never moves the process into another cgroup.
    pub fn probe() -> Engine {
        Engine::default()
    }

    /// An engine that has its process for itself, as the command does: the process may be moved into a cgroup of its
    /// own where that is what makes limits possible.
    ///
    /// While the caller still works out its policy, a thread looks for the place of cgroups, and where a run is expected it
    /// makes that run's cgroup and starts init in its namespaces, which waits for its plan. Where nothing runs, or anything
    /// other than the jail with a network of its own, both are removed.
    pub fn for_own_process(run: ExpectedUse) -> Engine {
        Engine { host: Host::for_own_process(run) }
    }

    /// Names the external sandbox programs, instead of the environment.
    #[must_use]
    pub fn with_tools(mut self, tools: Tools) -> Engine {
        self.host.tools = Some(tools);
        self
    }

    /// Reports progress to this callback, when an image is pulled or unpacked for a container.
    #[must_use]
    pub fn on_progress(mut self, on_progress: ProgressCallback) -> Engine {
        self.host.report_progress_to(on_progress);
        self
    }

    /// What each backend can enforce of this policy on this host.
    pub fn support(&self, policy: &Policy) -> Vec<Support> {
        registry::each().map(|backend| self.support_of(backend, policy)).collect()
    }

    fn support_of(&self, backend: &dyn Backend, policy: &Policy) -> Support {
        let request = PlanRequest { reason: String::new(), ..PlanRequest::of(policy) };
        match backend.plan(&self.host, &request) {
            Ok(plan) => {
                Support { backend: backend.name(), unavailable: None, fields: plan.planned().enforcement.clone() }
            }
            Err(BackendRefusal { failure, .. }) => {
                Support { backend: backend.name(), unavailable: Some(failure), fields: AppliedEnforcement::new() }
            }
        }
    }

    /// What an image runs when nothing else is named: `reference` is one of the store of this backend, which is a container's.
    /// An image that is absent is pulled.
    ///
    /// # Errors
    /// The backend cannot be used here, or has no such image.
    #[cfg(feature = "containers")]
    pub fn image_command(&self, backend: BackendName, reference: &str) -> Result<containers::ImageCommand, Failure> {
        let on_progress = |progress| self.host.on_progress().map_or((), |on_progress| on_progress(progress));
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
            Err(missing) if policy.backend == BackendName::Nsjail && missing.step == FailedStep::Tool => {
                let jail = Policy { backend: BackendName::Jail, ..policy.clone() };
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

    /// The same by a backend that is not among the registered ones, whatever the policy names.
    ///
    /// # Errors
    /// As [`Engine::prepare`].
    pub fn prepare_by(&self, backend: &dyn Backend, policy: &Policy) -> Result<Prepared, Failure> {
        let (policy, own) = acceptable(policy, &[backend])?;
        let request = PlanRequest { reason: "named by the caller".into(), own: Some(&own), ..PlanRequest::of(&policy) };
        Ok(self.prepared(backend, &request)?)
    }

    /// `instead` is why another backend than the policy's runs it.
    fn prepare_with(
        &self,
        policy: &Policy,
        programs: Option<Executables>,
        instead: Option<String>,
    ) -> Result<Prepared, Failure> {
        let named = policy.backend;
        let candidates = registry::candidates(&named).iter().map(|name| registry::of(*name));
        let candidates = candidates.collect::<Result<Vec<_>, Failure>>()?;
        let (policy, own) = acceptable(policy, &candidates)?;
        let mut refusals = Vec::new();
        for backend in candidates {
            let reason = instead.clone().unwrap_or_else(|| reason(named, backend, &refusals));
            let request = PlanRequest { policy: &policy, reason, programs: programs.as_ref(), own: Some(&own) };
            match self.prepared(backend, &request) {
                Ok(prepared) => return Ok(prepared),
                Err(refusal) => refusals.push((backend.name(), refusal)),
            }
        }
        Err(neither(refusals))
    }

    fn prepared(&self, backend: &dyn Backend, request: &PlanRequest<'_>) -> Result<Prepared, BackendRefusal> {
        let plan = backend.plan(&self.host, request)?;
        plan.sufficient()?;
        Ok(Prepared::new(plan, backend.capabilities(), || self.host.take_first_run()))
    }
}

/// The policy as these backends enforce it, where its paths are ones that may be shown at all, and what no sandbox may reach.
fn acceptable<'a>(policy: &'a Policy, candidates: &[&dyn Backend]) -> Result<(Cow<'a, Policy>, OwnPlaces), Failure> {
    let hides = candidates.iter().any(|backend| backend.capabilities().hides_paths);
    let policy = if hides { host_sockets::denied(policy)? } else { Cow::Borrowed(policy) };
    if !candidates.iter().all(|backend| backend.capabilities().judges_sources) {
        backends::real_sources::acceptable(&policy)?;
    }
    let own = own_places::acceptable(&policy)?;
    let own = own_places::claim(&policy, own)?;
    Ok((policy, own))
}

/// The failure to report where no backend can run a policy. The strongest one's refusal is what the user can act on. Where it
/// is about the host and not about the policy, the next one's says why it cannot replace it.
fn neither(refusals: Vec<(&str, BackendRefusal)>) -> Failure {
    let mut refusals = refusals.into_iter();
    let Some((_, BackendRefusal { failure: mut first, .. })) = refusals.next() else {
        return Failure::new(FailedStep::Backend, "no backend");
    };
    if matches!(first.step, FailedStep::Namespaces | FailedStep::Ids)
        && let Some((other, BackendRefusal { failure: next, needs_mounts })) = refusals.next()
    {
        if first == next {
            return first;
        }
        first.message = format!("{}\n  the {other} backend cannot stand in: {}", first.message, next.message);
        // Its hint names the jail, whose own refusal this is.
        let hint = next.hint.filter(|_| !needs_mounts);
        first.hint = match (first.hint, hint) {
            (Some(one), Some(other)) => Some(format!("{one}; or {other}")),
            (one, other) => one.or(other),
        };
    }
    first
}

fn reason(asked: BackendName, chosen: &dyn Backend, refusals: &[(&str, BackendRefusal)]) -> String {
    let name = chosen.name();
    match (asked, refusals.first()) {
        (BackendName::Auto, None) => format!("{name} is the strongest, and holds every required field"),
        (BackendName::Auto, Some((first, BackendRefusal { failure, .. }))) => {
            format!("{name} holds every required field; the {first} does not: {}", failure.message)
        }
        _ => "named by the policy".into(),
    }
}

// The type stays usable from several threads.
const _: fn() = || {
    fn both<T: Send + Sync>() {}
    both::<Engine>();
};
