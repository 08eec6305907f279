//! A policy ready to be run in containers: planned once with its container runtime, and what is said of it before
//! anything runs. What one run asks for stands in `request`, one run of it in `attempt`.

mod attempt;
mod request;

use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError};

use cofferdam_confine::cgroup::CgroupLocation;
use cofferdam_confine::host::{self, CallerIdentity};
use cofferdam_confine::wire::fd;
use cofferdam_policy::{Field, Policy, Root};
use serde_json::{Value, json};

use super::host_files::HostFilesDirectory;
use super::spec::{self, Mounted, Parts, Rootfs};
use super::{Arrival, ContainerRuntime, ProgressCallback, ReadyRootfs, RuntimeFacts};
use crate::backends::enforcement::{By, NamedEnforcer, container_tmpfs, enforcement, shared_with_kernel, sufficient};
use crate::backends::layout::{MountLayout, in_container};
use crate::backends::{BackendPlan, PlanRequest, PlanSummary};
use crate::failure::{FailedStep, Failure};
use crate::io::Io;
use crate::outcome::{AppliedEnforcement, Outcome};
use crate::plan::egress::EgressPlan;
use crate::plan::facts::HostFacts;
use crate::plan::seccomp_filter;
use crate::plan::seccomp_filter::{CompiledFilter, Needs};
use request::{floored, open_files};

/// A policy with the runtime of its containers, to be run many times and from several threads.
pub struct Contained {
    /// What was planned; the engine completes its enforcement with what cgroups give.
    pub planned: PlanSummary,
    runtime: Arc<dyn ContainerRuntime>,
    about: RuntimeFacts,
    place: HostFilesDirectory,
    /// The host when the policy was planned; each run looks again.
    first: HostLayout,
    way: Option<EgressPlan>,
    filter: CompiledFilter,
    user: (u32, u32),
    /// Where cgroups can be made, for runtimes that hold no limits themselves.
    pub location: Option<Arc<CgroupLocation>>,
    on_progress: Option<ProgressCallback>,
    root: Mutex<Option<ReadyRoot>>,
    swept: Once,
}

/// What the files of the host make of the policy.
struct HostLayout {
    layout: MountLayout,
    parts: Parts,
}

impl HostLayout {
    fn at_host(policy: &Policy, place: &HostFilesDirectory) -> Result<HostLayout, Failure> {
        let facts = HostFacts::for_run(rustix::process::geteuid().is_root());
        let layout = in_container(policy, &facts)?;
        if !matches!(policy.filesystem.root, Root::Image(_)) {
            layout.program(policy, &facts)?; // so that a missing one is told as that
        }
        let parts = spec::parts(policy, &layout, &place.texts());
        Ok(HostLayout { layout, parts })
    }
}

/// A root file system that is ready, and what it was made for.
struct ReadyRoot {
    of: Option<Rootfs>,
    mounts: Vec<Mounted>,
    ready: ReadyRootfs,
}

impl std::fmt::Debug for Contained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contained")
            .field("backend", &self.planned.backend)
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

impl BackendPlan for Contained {
    fn planned(&self) -> &PlanSummary {
        &self.planned
    }

    fn describe(&self) -> Value {
        self.plan_json()
    }

    fn run(&self, io: Io) -> Outcome {
        Contained::run(self, io)
    }
}

impl Contained {
    /// Plans a policy for a runtime. Nothing is pulled or started.
    ///
    /// # Errors
    /// The runtime cannot be used here, or the policy asks for what containers have not at all.
    pub(crate) fn plan(
        request: &PlanRequest<'_>,
        backend: &'static str,
        runtime: Arc<dyn ContainerRuntime>,
        me: CallerIdentity,
        on_progress: Option<ProgressCallback>,
    ) -> Result<Contained, Failure> {
        let policy = request.policy;
        let about = runtime.about()?;
        let place = HostFilesDirectory::find()?;
        let root = rustix::process::geteuid().is_root();
        let first = HostLayout::at_host(policy, &place)?;
        // gVisor's own network knows no rules, which leave a program nothing but the gateway.
        let way = if about.listener { EgressPlan::of(policy)? } else { None };
        if policy.audit.trace && !about.listener {
            let told = format!("the {backend} backend cannot observe calls: gVisor reports none");
            return Err(
                Failure::new(FailedStep::policy("audit.trace"), told).hint("leave --trace out, or use another backend")
            );
        }
        let user = if root {
            host::unprivileged_id().map(|id| (id, id)).ok_or_else(|| {
                Failure::new(FailedStep::Ids, "no unprivileged id is mapped here").hint("run it as an ordinary user")
            })?
        } else {
            (me.uid, me.gid)
        };
        let exec = fd::exec(open_files(policy)).unsigned_abs();
        let needs = Needs {
            guards: false,
            links: false,
            // Loopback is up in every container: without network its sockets are refused whole.
            no_net_namespace: true,
            own_net_namespace: true,
            no_ipc_namespace: false,
            no_mounts: false,
            no_listener: !about.listener,
            limited_exec: false,
            exec_number: Some(exec),
        };
        let filter = seccomp_filter::build(&floored(policy, !about.listener), needs)?;
        let enforcement = enforcement(
            policy,
            &By::Container { layout: &first.layout, about: &about, egress: way.as_ref(), other_user: root },
        );
        Ok(Contained {
            planned: PlanSummary::new(backend, request, enforcement),
            runtime,
            about,
            place,
            first,
            way,
            filter,
            user,
            location: None,
            on_progress,
            root: Mutex::new(None),
            swept: Once::new(),
        })
    }

    /// Whether every required field is enforced in full, as it has come out by now.
    fn still_sufficient(&self, e: &AppliedEnforcement) -> Result<(), Failure> {
        sufficient(NamedEnforcer::External(self.planned.backend), &self.planned.policy, e, &[])
    }

    /// Whether the runtime holds memory, CPU share and processes itself.
    pub fn holds_limits(&self) -> bool {
        self.about.limits
    }

    /// Says what follows from the limits that the run's own cgroup holds. Where the runtime's own processes are in it, as
    /// gVisor's are, they count there as well.
    pub fn in_the_runs_cgroup(&mut self) {
        container_tmpfs(self.about.inodes, &mut self.planned.enforcement);
        if self.about.arrival == Arrival::Rendezvous && self.location.is_some() {
            self.planned.enforcement.insert(Field::Processes, shared_with_kernel());
        }
    }

    /// What will be started, for people.
    pub fn plan_json(&self) -> Value {
        let root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = root.as_ref().map(|root| root.ready.moved.clone()).unwrap_or_default();
        let spec = self.spec(
            &self.first.parts,
            &moved,
            "cofferdam-0000000000000000".into(),
            Path::new("(a directory of the run's own)"),
        );
        json!({
            "backend": self.planned.backend,
            "backend_reason": self.planned.reason,
            "enforcement": self.planned.enforcement,
            "maker": self.about,
            "plan": self.runtime.show(&spec, root.as_ref().map(|root| &root.ready)),
        })
    }
}

// The type stays usable from several threads.
const _: fn() = || {
    fn both<T: Send + Sync>() {}
    both::<Contained>();
};
