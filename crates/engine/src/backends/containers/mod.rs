//! Containers: created by an external runtime (Docker, Podman, an OCI runtime), with init as their first process.
//!
//! ```text
//! Policy ─ layout ─ container spec (pure) ─────────────────────┬─ engines: Docker, Podman, by their API ─┐
//!            └─ answers (what holds, pure)                     └─ oci: crun, runc, youki, runsc, bundles ┼─▶ init ─ the program
//! run: root made ready, started, then supervised as any sandbox: ◀── status, events, streams ────────────┘
//! ```
//!
//! The runtime gives namespaces, mounts, limits and its own filter; init, which it starts in there, adds the policy's
//! filter on top of that one, so that what the runtime refuses stays refused, starts the program, answers and reports
//! as it does in a jail. Nothing of the program runs that init has not started. When the owner dies init ends, and with
//! it the container.
//!
//! A further runtime is one more folder here, behind [`ContainerRuntime`], and a line in [`of`].

mod archive;
mod content;
pub mod documented;
mod engines;
mod host_files;
mod mount_points;
mod oci;
pub(crate) mod owner;
mod rendezvous;
pub mod run;
pub mod spec;
mod usage;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use cofferdam_confine::RunningInit;
use cofferdam_confine::cgroup::Cgroup;
use cofferdam_confine::init_plan::PathRule;
use cofferdam_policy::BackendName;
use serde::Serialize;
use serde_json::Value;

pub(crate) use crate::backends::enforcement::container_runtime::{Arrival, Inodes, RuntimeFacts};
use crate::backends::enforcement::{OWN_NETWORKS, socket_buffers};
use crate::backends::{Backend, BackendPlan, BackendRefusal, Capabilities, PlanRequest};
use crate::failure::{FailedStep, Failure};
use crate::host::Host;
use crate::plan::executables;
pub use crate::progress::{Progress, ProgressCallback};
use mount_points::Moved;
use run::Contained;
pub use spec::{APART, ContainerSpec, Mounted, Net, POWERS, RootEntry, Rootfs, RuntimeLimits};

/// What creates containers: an engine by its interface, or an OCI runtime by its program.
pub(crate) trait ContainerRuntime: std::fmt::Debug + Send + Sync {
    /// Whether it can be used here at all, and what it is. Cheap.
    ///
    /// # Errors
    /// It is not installed or cannot be reached, with what to do.
    fn about(&self) -> Result<RuntimeFacts, Failure>;

    /// Makes a root file system ready: looks in the store, pulls, imports, unpacks. Can take long, and reports progress; the same root
    /// again is quick. Several at once are safe.
    ///
    /// # Errors
    /// There is no such image, or it cannot be had.
    fn prepare(&self, root: &Rootfs, mounts: &[Mounted], told: &dyn Fn(Progress)) -> Result<ReadyRootfs, Failure>;

    /// What an image runs when nothing else is named. An image that is absent is pulled, as by [`ContainerRuntime::prepare`].
    ///
    /// # Errors
    /// There is no such image, or it cannot be had.
    fn image_command(&self, reference: &str, told: &dyn Fn(Progress)) -> Result<ImageCommand, Failure>;

    /// Makes a container and starts it.
    ///
    /// # Errors
    /// It was refused, or is not what was asked for; nothing is left of it then.
    fn start(
        &self,
        spec: &ContainerSpec,
        root: &ReadyRootfs,
        handed: &Handed<'_>,
    ) -> Result<Box<dyn StartedContainer>, Failure>;

    /// Removes what dead owners left, and nothing else.
    ///
    /// # Errors
    /// What is there cannot be told.
    fn sweep(&self) -> Result<Swept, Failure>;

    /// Where it is on this host: the socket of its interface, or its program.
    ///
    /// # Errors
    /// As [`ContainerRuntime::about`].
    fn place(&self) -> Result<PathBuf, Failure>;

    /// As whom a spec's user runs with this runtime: in a user namespace of the caller's there may be one id alone.
    fn runs_as(&self, spec: &ContainerSpec) -> (u32, u32);

    /// What would be asked for, for people.
    fn show(&self, spec: &ContainerSpec, root: Option<&ReadyRootfs>) -> Value;
}

/// What is handed to a runtime whose container inherits.
pub(crate) struct Handed<'a> {
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Init's descriptors, from 3 on.
    pub init: [BorrowedFd<'a>; 5],
    /// Readable when the owner is gone.
    pub lifeline: BorrowedFd<'a>,
    /// The run's own cgroup, for runtimes whose own process is the sandbox.
    pub cgroup: Option<&'a Cgroup>,
    /// `(resource, soft, hard)` of the runtime's own process.
    pub rlimits: &'a [(u32, u64, u64)],
    /// The run's own directory on this host: in it a bundle may be made; removed after the run.
    pub directory: &'a Path,
}

/// A root file system that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ReadyRootfs {
    /// What the runtime calls it: an image's id, a path.
    pub reference: String,
    /// Directories that the image wants to be volumes: they are covered, since a volume is a disk that can be written.
    pub volumes: Vec<String>,
    /// What the image runs when nothing else is named.
    pub command: ImageCommand,
    /// Targets of mounts that lie behind links of the image.
    pub moved: Moved,
}

/// What an image runs when nothing else is named. Nothing of a container obeys it: who wants it names it as the policy's command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImageCommand {
    /// The program and its first arguments (`ENTRYPOINT`); may be empty.
    pub entry_point: Vec<String>,
    /// Further arguments, or the program where there is no entry point (`CMD`); may be empty.
    pub arguments: Vec<String>,
}

/// A container that has been started.
pub(crate) trait StartedContainer: Send {
    /// The runtime's process, where it is a child of this one.
    fn running(&self) -> Option<&RunningInit>;

    /// That it has ended, and why, asked while init has not come yet. Does not wait.
    fn gave_up(&self) -> Option<Failure>;

    /// Compares what stands at the targets of binds with what was looked at, once init is there and the program is not.
    ///
    /// # Errors
    /// It is something else, or cannot be looked at.
    fn compare(&self, _checked: &[PathRule]) -> Result<(), Failure> {
        Ok(())
    }

    /// Ends every process of it at once. Done already is done.
    ///
    /// # Errors
    /// It may still run.
    fn kill(&self) -> Result<(), Failure>;

    /// Waits for its end, not for ever, and removes everything of it.
    fn end(self: Box<Self>) -> ContainerEnd;
}

/// What the runtime says afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContainerEnd {
    /// Whether the kernel ended something of it for want of memory, where that is known.
    pub oom_killed: Option<bool>,
    /// What it said, for a run that failed.
    pub said: String,
    /// What could not be removed.
    pub problems: Vec<String>,
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Names of containers that are gone.
    pub removed: Vec<String>,
    /// What could not be removed.
    pub problems: Vec<String>,
}

/// A runtime that is on this host, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundRuntime {
    /// The backend that uses it.
    pub backend: &'static str,
    /// Its version.
    pub version: String,
    /// The socket of its interface, or its program.
    pub place: PathBuf,
    /// It runs as the caller, in user namespaces of the caller's.
    pub rootless: bool,
    /// What stands behind the boundary, and what is wrong with it.
    pub detail: String,
}

/// Every runtime that is on this host. Asks each of them.
pub fn found() -> Vec<FoundRuntime> {
    let each = BackendName::NAMES.iter().filter(|(_, backend)| backend.is_container() && *backend != BackendName::Oci);
    // Those that are not there say so, and what helps, where they are asked what they can hold.
    let found = each.filter_map(|(name, backend)| {
        let runtime = of(*backend).ok()?;
        let (about, place) = (runtime.about().ok()?, runtime.place().ok()?);
        Some(FoundRuntime {
            backend: name,
            version: about.version,
            place,
            rootless: about.rootless,
            detail: about.detail,
        })
    });
    found.collect()
}

/// The runtime of a backend.
///
/// # Errors
/// The backend makes no containers, or its runtime is not built into this program.
pub(crate) fn of(backend: BackendName) -> Result<std::sync::Arc<dyn ContainerRuntime>, Failure> {
    match backend {
        BackendName::Docker => Ok(std::sync::Arc::new(engines::ContainerEngine::docker())),
        BackendName::Podman => Ok(std::sync::Arc::new(engines::ContainerEngine::podman())),
        runtime if oci::makes(runtime) => {
            let cache = host_files::HostFilesDirectory::find()?.cache();
            let images = std::sync::Arc::new(engines::ImageStores::new());
            Ok(std::sync::Arc::new(oci::Oci::new(runtime, &oci::Programs::from_environment(), &cache, Some(images))?))
        }
        other => Err(Failure::new(
            FailedStep::Engine,
            format!("the {} backend is not built into this program", other.name()),
        )
        .hint("use --backend jail")),
    }
}

/// The backends that run an image of a registry's reference, where none is named.
pub const FOR_REFERENCES: &[BackendName] = &[BackendName::Docker, BackendName::Podman];

/// The same for an image in a tarball.
pub const FOR_TARBALLS: &[BackendName] = &[BackendName::Oci];

/// The backend that is this container runtime.
#[derive(Debug)]
pub struct Containers(pub BackendName);

impl Backend for Containers {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { takes_arguments: true, ..Capabilities::default() }
    }

    fn plan(&self, host: &Host, request: &PlanRequest<'_>) -> Result<Box<dyn BackendPlan>, BackendRefusal> {
        if request.programs.is_some() {
            return Err(executables::foreign(self.name()).into());
        }
        let policy = request.policy;
        let on_progress = host.on_progress().cloned();
        let mut contained = Contained::plan(request, self.name(), of(self.0)?, host.identity(), on_progress)?;
        if !contained.holds_limits() {
            host.cgroup_enforcement(&mut contained.planned.enforcement);
            contained.location = host.location();
            contained.in_the_runs_cgroup();
        }
        socket_buffers(policy, &OWN_NETWORKS, &mut contained.planned.enforcement);
        Ok(Box::new(contained))
    }
}
