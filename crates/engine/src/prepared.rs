//! A policy with the backend that runs it: many runs, from any thread. Chooses nothing and enforces nothing itself.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cofferdam_policy::Backend;

use crate::backends;
use crate::backends::containers::run::Contained;
use crate::backends::native::Core;
use crate::io::Io;
use crate::outcome::{Enforcement, Outcome};
use crate::pool::{Early, Level, Pool};
use crate::repository::embedded;
use crate::run::channel::Channel;

/// A policy with its backend, ready to run, many times and from several threads.
#[derive(Debug)]
pub struct Prepared(By);

/// What runs it.
#[derive(Debug)]
enum By {
    /// The jail or the landlock backend, and its pool of staged sandboxes.
    Own(Arc<Core>, Option<Pool>),
    /// An external program.
    Foreign(Box<backends::Ready>),
    /// Containers.
    Contained(Box<Contained>),
}

impl Prepared {
    pub(crate) fn new(core: Core) -> Prepared {
        Prepared(By::Own(Arc::new(core), None))
    }

    pub(crate) fn by_foreign(ready: backends::Ready) -> Prepared {
        Prepared(By::Foreign(Box::new(ready)))
    }

    pub(crate) fn by_containers(contained: Contained) -> Prepared {
        Prepared(By::Contained(Box::new(contained)))
    }

    /// Keeps up to `count` sandboxes staged ahead of their runs, so that a run only has to start its program: for callers
    /// who run the policy again and again and wait for each. A thread of this process stages them, from now on and after
    /// each run; each is a waiting process with its cgroup, and ends when it has not been used for two seconds or when
    /// this is dropped. What it shows is the host as it is when the run begins: one that was staged before a mount, or a
    /// file that is bound or masked, changed is not used. Nothing is staged where a policy has copy-on-write mounts or
    /// hundreds of paths, on the landlock backend, or by an external program.
    #[must_use]
    pub fn keep_ready(mut self, count: usize) -> Prepared {
        if let By::Own(core, pool) = &mut self.0 {
            let stages = count > 0 && core.backend != Backend::Landlock;
            *pool = stages.then(|| Pool::new(core, Level::Staged { count }));
        }
        self
    }

    /// Has each run hand back the tmpfs that the policy mounts at `target`, after the tree is dead, with what the program
    /// left in it (`Io::handed_back`). The directory `made` is made in it before the program starts. Only the jail has such
    /// mounts; with other backends nothing is handed back.
    #[must_use]
    pub fn hands_back(self, target: &str, made: &str) -> Prepared {
        if let By::Own(core, _) = &self.0 {
            core.handed.get_or_init(|| (target.to_owned(), made.to_owned()));
        }
        self
    }

    /// The backend's name, such as `jail`.
    pub fn backend(&self) -> &'static str {
        match &self.0 {
            By::Own(core, _) => core.backend.name(),
            By::Foreign(foreign) => foreign.backend(),
            By::Contained(contained) => contained.backend(),
        }
    }

    /// Whether a tmpfs of the policy can be handed back after a run: see [`Prepared::hands_back`].
    pub fn can_hand_back(&self) -> bool {
        matches!(&self.0, By::Own(core, _) if core.backend == Backend::Jail)
    }

    /// Why that one.
    pub fn backend_reason(&self) -> &str {
        match &self.0 {
            By::Own(core, _) => &core.reason,
            By::Foreign(foreign) => &foreign.reason,
            By::Contained(contained) => &contained.reason,
        }
    }

    /// What will hold, as far as it can be told before the run.
    pub fn enforcement(&self) -> &Enforcement {
        match &self.0 {
            By::Own(core, _) => &core.enforcement,
            By::Foreign(foreign) => &foreign.enforcement,
            By::Contained(contained) => &contained.enforcement,
        }
    }

    /// What the backend will do, for people: steps in order.
    pub fn plan_json(&self) -> serde_json::Value {
        match &self.0 {
            By::Own(core, _) => match core.plan() {
                Ok(plan) => crate::plan::dry_run::plan(&plan, self.backend(), &core.reason, &core.enforcement),
                Err(failure) => serde_json::json!({ "error": failure }),
            },
            By::Foreign(foreign) => foreign.plan_json(),
            By::Contained(contained) => contained.plan_json(),
        }
    }

    /// Runs it and returns when the tree is dead and nothing of it is left.
    pub fn run(&self, io: Io) -> Outcome {
        self.watched(|| match &self.0 {
            By::Own(core, pool) => core.run(io, &|plan, running| pool.as_ref()?.take_staged(plan, running), None),
            By::Foreign(foreign) => foreign.run(io),
            By::Contained(contained) => contained.run(io),
        })
    }

    /// A run, between two looks at what git obeys in its volumes.
    fn watched(&self, run: impl FnOnce() -> Outcome) -> Outcome {
        let watch = embedded::Watch::begin(match &self.0 {
            By::Own(core, _) => &core.policy,
            By::Foreign(foreign) => foreign.policy(),
            By::Contained(contained) => contained.policy(),
        });
        if let (true, By::Own(core, _)) = (watch.renamed(), &self.0) {
            // It was made before that, and would mount what has another name now.
            core.fresh.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        let mut outcome = run();
        watch.end(&mut outcome);
        outcome
    }

    /// The same for a session, whose program gets a channel. Somebody else's program gives it none: those are refused
    /// before this is called.
    pub(crate) fn run_session(&self, io: Io, channel: &mut Channel) -> Outcome {
        self.watched(|| match &self.0 {
            By::Own(core, _) => core.run(io, &|_, _| None, Some(channel)),
            By::Foreign(foreign) => foreign.run(io),
            By::Contained(contained) => contained.run(io),
        })
    }

    /// What runs it, where that is ours.
    pub(crate) fn core(&self) -> Option<&Arc<Core>> {
        match &self.0 {
            By::Own(core, _) => Some(core),
            By::Foreign(_) | By::Contained(_) => None,
        }
    }

    /// Whether it can run a session.
    pub(crate) fn gives_channel(&self) -> bool {
        matches!(self.0, By::Own(..))
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
