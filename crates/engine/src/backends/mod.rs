//! The backends: each makes a sandbox of a policy by its own means.
//!
//! | | by | in |
//! |---|---|---|
//! | jail | namespaces, mounts, Landlock, seccomp; init is ours | `jail` |
//! | landlock | Landlock and seccomp alone; init is ours | `landlock` |
//! | bubblewrap, nsjail, Seatbelt | an external program | `external` |
//! | Docker, Podman, OCI runtimes | an external program, in whose container init is ours | `containers` |
//!
//! `layout` is what a policy shows, for those that mount by path.

pub(crate) mod complaint;
pub mod containers;
pub(crate) mod enforcement;
pub mod external;
pub(crate) mod jail;
pub(crate) mod landlock;
pub mod layout;
pub(crate) mod native;
pub(crate) mod real_sources;

pub use enforcement::{Purpose, answers};
pub use external::export::{Exported, Format, export};
pub use external::run::Ready;
pub use external::tool::{Installed, Tool, Tools};
pub use external::{bubblewrap, export, nsjail, seatbelt};

use std::any::Any;
use std::fmt::Debug;

use cofferdam_policy::{BackendName, Policy};
use serde_json::Value;

use crate::failure::{Failure, Step};
use crate::host::Host;
use crate::io::Io;
use crate::outcome::{Enforcement, Outcome};
use crate::plan::executables::Executables;
use external::External;

/// One way to make a sandbox of a policy.
pub trait Backend: Debug + Send + Sync {
    /// Such as `jail`.
    fn name(&self) -> &'static str;

    /// Works out what it will do for a policy on this host, and how strongly each field will be enforced. Starts nothing.
    ///
    /// # Errors
    /// It cannot be used here, or the policy asks for something that it does not have at all. A field that it enforces less
    /// than fully is no error here: the plan says so, and the engine compares it with what the policy requires.
    fn plan(&self, host: &Host, request: &Request<'_>) -> Result<Box<dyn Plan>, Refusal>;

    /// Whether each plan that it makes opens the sources of its mounts and refuses those that may not be shown. The engine
    /// looks at them before the plan where a backend does not.
    fn judges_sources(&self) -> bool {
        false
    }
}

/// What a backend is asked to plan.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The policy, whose paths have been checked.
    pub policy: &'a Policy,
    /// Why this backend was chosen, for reports.
    pub reason: String,
    /// The programs that alone may be executed, where that is limited.
    pub programs: Option<&'a Executables>,
}

/// A policy planned by one backend, to be run many times and from several threads.
pub trait Plan: Any + Debug + Send + Sync {
    /// The backend's name.
    fn backend(&self) -> &'static str;

    /// The policy.
    fn policy(&self) -> &Policy;

    /// Why this backend.
    fn reason(&self) -> &str;

    /// How strongly each field will be enforced, as far as is known before a run.
    fn enforcement(&self) -> &Enforcement;

    /// Whether every required field is enforced in full.
    ///
    /// # Errors
    /// The first that is not, and what to do.
    fn sufficient(&self) -> Result<(), Failure> {
        enforcement::sufficient(enforcement::Target::External(self.backend()), self.policy(), self.enforcement(), &[])
    }

    /// What will be done, as `--dry-run` shows it.
    fn describe(&self) -> Value;

    /// Whether a run takes arguments besides the policy's.
    fn takes_arguments(&self) -> bool {
        false
    }

    /// Runs it, and returns when every process of it is dead and nothing of it is left.
    fn run(&self, io: Io) -> Outcome;
}

/// Why a backend cannot run a policy.
#[derive(Debug)]
pub struct Refusal {
    /// The failure.
    pub failure: Failure,
    /// The policy asks for mounts, which only the jail has: its hint names the jail.
    pub needs_mounts: bool,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal { failure, needs_mounts: false }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        refusal.failure
    }
}

/// Every backend by the name that a policy calls it by. A further one is a folder here and a line in this list.
pub(crate) static REGISTERED: &[(BackendName, &dyn Backend)] = &[
    (BackendName::Jail, &jail::Jail),
    (BackendName::Landlock, &landlock::Landlock),
    (BackendName::Bubblewrap, &External(Tool::Bubblewrap)),
    (BackendName::Nsjail, &External(Tool::Nsjail)),
    (BackendName::Seatbelt, &External(Tool::Seatbelt)),
    (BackendName::Docker, &containers::Containers(BackendName::Docker)),
    (BackendName::Podman, &containers::Containers(BackendName::Podman)),
    (BackendName::Oci, &containers::Containers(BackendName::Oci)),
    (BackendName::OciCrun, &containers::Containers(BackendName::OciCrun)),
    (BackendName::OciRunc, &containers::Containers(BackendName::OciRunc)),
    (BackendName::OciYouki, &containers::Containers(BackendName::OciYouki)),
    (BackendName::OciRunsc, &containers::Containers(BackendName::OciRunsc)),
];

/// What `auto` tries, the strongest first.
pub(crate) const AUTOMATIC: &[BackendName] = &[BackendName::Jail, BackendName::Landlock];

/// The backend of this name.
///
/// # Errors
/// None is registered.
pub(crate) fn of(name: BackendName) -> Result<&'static dyn Backend, Failure> {
    let registered = REGISTERED.iter().find(|(registered, _)| *registered == name);
    registered.map(|(_, backend)| *backend).ok_or_else(|| {
        Failure::new(Step::Backend, format!("the {} backend is not built into this program", name.name()))
    })
}
