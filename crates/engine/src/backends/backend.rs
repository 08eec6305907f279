//! What a backend is: its name and capabilities, the plan that it makes of a policy, and the run of a plan.
//!
//! ```text
//! Backend ─ plan(host, request) ─▶ Plan (enforcement, describe) ─ run(io) ─▶ Outcome
//! ```
//!
//! A crate of its own can have a further backend (`Engine::prepare_by`). Chooses none: `engine` does.

use std::any::Any;
use std::fmt::Debug;

use cofferdam_policy::Policy;
use serde_json::Value;

use super::enforcement;
use crate::failure::Failure;
use crate::host::Host;
use crate::io::Io;
use crate::outcome::{AppliedEnforcement, Outcome};
use crate::plan::executables::Executables;
use crate::plan::own_places::OwnPlaces;

/// One way to make a sandbox of a policy.
///
/// ```
/// use cofferdam_engine::backends::{Backend, BackendPlan, BackendRefusal, PlanRequest, PlanSummary};
/// use cofferdam_engine::{AppliedEnforcement, Ending, Engine, Host, Io, Outcome};
/// use cofferdam_policy::{Field, Policy};
///
/// /// Prints the program's arguments and enforces nothing.
/// #[derive(Debug)]
/// struct Echo;
///
/// #[derive(Debug)]
/// struct EchoPlan(PlanSummary);
///
/// impl Backend for Echo {
///     fn name(&self) -> &'static str {
///         "echo"
///     }
///     fn plan(&self, _: &Host, request: &PlanRequest<'_>) -> Result<Box<dyn BackendPlan>, BackendRefusal> {
///         Ok(Box::new(EchoPlan(PlanSummary::new(self.name(), request, AppliedEnforcement::new()))))
///     }
/// }
///
/// impl BackendPlan for EchoPlan {
///     fn planned(&self) -> &PlanSummary {
///         &self.0
///     }
///     fn describe(&self) -> serde_json::Value {
///         self.0.policy.command.argv.clone().into()
///     }
///     fn run(&self, _: Io) -> Outcome {
///         let stdout = self.0.policy.command.argv.join(" ");
///         Outcome { outcome: Ending::Exited, success: true, stdout, ..self.0.unstarted() }
///     }
/// }
///
/// let mut policy = Policy::base();
/// policy.command.argv = vec!["/bin/echo".into(), "hello".into()];
/// let refused = Engine::probe().prepare_by(&Echo, &policy).unwrap_err();
/// assert!(refused.message.contains("echo backend"), "what it does not enforce has to be given up: {refused:?}");
/// Field::ALL.iter().for_each(|field| policy.allow_partial(*field));
/// let prepared = Engine::probe().prepare_by(&Echo, &policy)?;
/// assert_eq!(prepared.run(Io::default()).stdout, "/bin/echo hello");
/// # Ok::<(), cofferdam_engine::Failure>(())
/// ```
pub trait Backend: Debug + Send + Sync {
    /// Such as `jail`.
    fn name(&self) -> &'static str;

    /// What it can do for a caller besides what a policy asks for.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Works out what it will do for a policy on this host, and how strongly each field will be enforced. Starts nothing.
    ///
    /// # Errors
    /// It cannot be used here, or the policy asks for something that it does not have at all. A field that it enforces less
    /// than fully is no error here: the plan says so, and the engine compares it with what the policy requires.
    fn plan(&self, host: &Host, request: &PlanRequest<'_>) -> Result<Box<dyn BackendPlan>, BackendRefusal>;
}

/// What a backend can do besides enforcing a policy, and what it leaves to the engine. The default is that of a backend of
/// which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// A run takes arguments besides the policy's ([`Io::arguments`]).
    pub takes_arguments: bool,
    /// A tmpfs of the policy can be handed back after a run. Needs init as the first process.
    pub hands_back: bool,
    /// A path can be hidden in a directory that is shown: the host's Unix sockets become denied paths.
    pub hides_paths: bool,
    /// Each plan opens the sources of its mounts and refuses those that may not be shown. Otherwise the engine looks at them
    /// before the plan.
    pub judges_sources: bool,
    /// The sandbox is set up under the program's own limit of open files.
    pub sets_up_under_limits: bool,
}

impl Default for Capabilities {
    fn default() -> Capabilities {
        Capabilities {
            takes_arguments: false,
            hands_back: false,
            hides_paths: true,
            judges_sources: false,
            sets_up_under_limits: false,
        }
    }
}

/// What a backend is asked to plan.
#[derive(Debug, Clone)]
pub struct PlanRequest<'a> {
    /// The policy, whose paths have been checked.
    pub policy: &'a Policy,
    /// Why this backend was chosen, for reports.
    pub reason: String,
    /// The programs that alone may be executed, where that is limited.
    pub programs: Option<&'a Executables>,
    /// What no sandbox may reach, where it has just been looked up.
    pub(crate) own: Option<&'a OwnPlaces>,
}

impl<'a> PlanRequest<'a> {
    /// For a policy that names this backend and allows every program.
    pub fn of(policy: &'a Policy) -> PlanRequest<'a> {
        PlanRequest { policy, reason: "named by the policy".into(), programs: None, own: None }
    }
}

/// What every plan knows: the policy, the backend that it is for, and how strongly each field will be enforced.
#[derive(Debug, Clone)]
pub struct PlanSummary {
    /// The backend's name.
    pub backend: &'static str,
    /// The policy.
    pub policy: Policy,
    /// Why this backend.
    pub reason: String,
    /// How strongly each field will be enforced, as far as is known before a run.
    pub enforcement: AppliedEnforcement,
}

impl PlanSummary {
    /// What a backend planned for this request.
    pub fn new(backend: &'static str, request: &PlanRequest<'_>, enforcement: AppliedEnforcement) -> PlanSummary {
        PlanSummary { backend, policy: request.policy.clone(), reason: request.reason.clone(), enforcement }
    }

    /// The outcome of a run in which nothing has started yet.
    pub fn unstarted(&self) -> Outcome {
        Outcome {
            enforcement: self.enforcement.clone(),
            backend: self.backend.into(),
            backend_reason: self.reason.clone(),
            ..Outcome::unstarted(None)
        }
    }
}

/// A policy planned by one backend, to be run many times and from several threads.
pub trait BackendPlan: Any + Debug + Send + Sync {
    /// What was planned, and by whom.
    fn planned(&self) -> &PlanSummary;

    /// Whether every required field is enforced in full.
    ///
    /// # Errors
    /// The first that is not, and what to do.
    fn sufficient(&self) -> Result<(), Failure> {
        let PlanSummary { backend, policy, enforcement, .. } = self.planned();
        enforcement::sufficient(enforcement::NamedEnforcer::External(backend), policy, enforcement, &[])
    }

    /// What will be done, as `--dry-run` shows it.
    fn describe(&self) -> Value;

    /// Runs it, and returns when every process of it is dead and nothing of it is left.
    fn run(&self, io: Io) -> Outcome;
}

/// Why a backend cannot run a policy.
#[derive(Debug)]
pub struct BackendRefusal {
    /// The failure.
    pub failure: Failure,
    /// The policy asks for mounts, which only the jail has: its hint names the jail.
    pub needs_mounts: bool,
}

impl From<Failure> for BackendRefusal {
    fn from(failure: Failure) -> BackendRefusal {
        BackendRefusal { failure, needs_mounts: false }
    }
}

impl From<BackendRefusal> for Failure {
    fn from(refusal: BackendRefusal) -> Failure {
        refusal.failure
    }
}
