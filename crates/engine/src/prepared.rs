//! A policy with the backend that runs it: many runs, from any thread. Chooses nothing and enforces nothing itself.

use std::any::Any;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::backends::native::Core;
use crate::backends::{BackendPlan, Capabilities};
use crate::host::FirstRun;
use crate::io::Io;
use crate::outcome::{AppliedEnforcement, Outcome};
use crate::pool::{Early, PoolLevel, SandboxPool};
use crate::repository::embedded;
use crate::run::channel::AgentChannel;

/// A policy with its backend, ready to run, many times and from several threads.
#[derive(Debug)]
pub struct Prepared {
    plan: Box<dyn BackendPlan>,
    capabilities: Capabilities,
    /// Sandboxes that are staged before their runs.
    pool: Option<SandboxPool>,
}

impl Prepared {
    /// The first run of a sandbox whose first process is init takes what was made for it.
    pub(crate) fn new(
        plan: Box<dyn BackendPlan>,
        capabilities: Capabilities,
        first: impl FnOnce() -> FirstRun,
    ) -> Prepared {
        let prepared = Prepared { plan, capabilities, pool: None };
        let first = first();
        match prepared.core() {
            Some(core) => *core.first.lock().unwrap_or_else(PoisonError::into_inner) = first,
            None => drop(first), // another backend has no use for it
        }
        prepared
    }

    /// Keeps up to `count` sandboxes staged ahead of their runs, so that a run only has to start its program: for callers
    /// who run the policy again and again and wait for each. A thread of this process stages them, from now on and after
    /// each run; each is a waiting process with its cgroup, and ends when it has not been used for two seconds or when
    /// this is dropped. What it shows is the host as it is when the run begins: one that was staged before a mount, or a
    /// file that is bound or masked, changed is not used. Nothing is staged where a policy has copy-on-write mounts or
    /// hundreds of paths, on the landlock backend, or by an external program.
    #[must_use]
    pub fn keep_ready(mut self, count: usize) -> Prepared {
        if let Some(core) = self.core() {
            let stages = count > 0 && core.native.namespaces;
            self.pool = stages.then(|| SandboxPool::new(core, PoolLevel::Staged { count }));
        }
        self
    }

    /// Has each run hand back the tmpfs that the policy mounts at `target`, after the tree is dead, with what the program
    /// left in it (`Io::handed_back`). The directory `made` is made in it before the program starts. Only the jail has such
    /// mounts; with other backends nothing is handed back.
    #[must_use]
    pub fn hands_back(self, target: &str, made: &str) -> Prepared {
        if let Some(core) = self.core() {
            core.handed.get_or_init(|| (target.to_owned(), made.to_owned()));
        }
        self
    }

    /// The backend's name, such as `jail`.
    pub fn backend(&self) -> &'static str {
        self.plan.planned().backend
    }

    /// Whether a tmpfs of the policy can be handed back after a run: see [`Prepared::hands_back`].
    pub fn can_hand_back(&self) -> bool {
        self.capabilities.hands_back && self.core().is_some()
    }

    /// Whether a run takes arguments besides the policy's ([`Io::arguments`]).
    pub fn takes_arguments(&self) -> bool {
        self.capabilities.takes_arguments
    }

    /// Why that backend was chosen.
    pub fn backend_reason(&self) -> &str {
        &self.plan.planned().reason
    }

    /// How strongly each field will be enforced, as far as is known before the run.
    pub fn enforcement(&self) -> &AppliedEnforcement {
        &self.plan.planned().enforcement
    }

    /// What the backend will do, for people: steps in order.
    pub fn plan_json(&self) -> serde_json::Value {
        self.plan.describe()
    }

    /// Runs it and returns when the tree is dead and nothing of it is left.
    pub fn run(&self, io: Io) -> Outcome {
        self.watched(|| match self.core() {
            Some(core) => core.run_staged(io, &|plan, running| self.pool.as_ref()?.take_staged(plan, running), None),
            None => self.plan.run(io),
        })
    }

    /// A run, between two looks at what git obeys in its volumes.
    fn watched(&self, run: impl FnOnce() -> Outcome) -> Outcome {
        let watch = embedded::RepositoryWatch::begin(&self.plan.planned().policy);
        if let (true, Some(core)) = (watch.renamed(), self.core()) {
            // It was made before that, and would mount what has another name now.
            core.fresh.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        let mut outcome = run();
        watch.end(&mut outcome);
        outcome
    }

    /// The same for a session, whose program gets a channel. Other backends give it none: they are refused before this is
    /// called.
    pub(crate) fn run_session(&self, io: Io, channel: &mut AgentChannel) -> Outcome {
        self.watched(|| match self.core() {
            Some(core) => core.run_staged(io, &|_, _| None, Some(channel)),
            None => self.plan.run(io),
        })
    }

    /// The plan of the jail or of the landlock backend, whose first process is init: pools and sessions need that.
    pub(crate) fn core(&self) -> Option<&Arc<Core>> {
        (&*self.plan as &dyn Any).downcast_ref()
    }

    /// Whether it can run a session.
    pub(crate) fn gives_channel(&self) -> bool {
        self.core().is_some()
    }
}

impl Early {
    /// For runs of this policy, whose standard input is the caller's and whose program does nothing before it has read that;
    /// one waits for at most `life`, and ten minutes. `None` where nothing can be started early: on other backends than the
    /// jail, with input that is the policy's own, a network that is filtered by names or a volume that can be written, or
    /// where the system has no thread to spare.
    pub fn new(prepared: Prepared, life: Duration) -> Option<Early> {
        Early::of(prepared.core()?, life)
    }
}

// The type stays usable from several threads.
const _: fn() = || {
    fn both<T: Send + Sync>() {}
    both::<Prepared>();
};
