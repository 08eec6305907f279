//! The landlock backend: Landlock, seccomp, rlimits and supervision without namespaces, for hosts that give no more.
//!
//! It shares the init plan, init and supervision with the jail; what it cannot hold it says in its enforcement, field by
//! field, and required fields then refuse.

use cofferdam_confine::host::{self, CallerIdentity};
use cofferdam_confine::init_plan::{self, InitPlan, PathRule};
use cofferdam_confine::landlock::{self as kernel, access};
use cofferdam_confine::wire::flag;
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, BackendName, Field, Mount, NetworkMode, Policy, Root};

use crate::backends::enforcement::{By, enforcement};
use crate::backends::native::{self, Native};
use crate::backends::real_sources;
use crate::backends::{Backend, BackendPlan, BackendRefusal, Capabilities, PlanRequest};
use crate::failure::{FailedStep, Failure};
use crate::host::Host;
use crate::outcome::AppliedEnforcement;
use crate::plan::NativePlan;
use crate::plan::facts::HostFacts;
use crate::plan::interpreter::Part;
use crate::plan::lookup::Lookup;
use crate::plan::mount_table::{MountContent, MountEntry, View};
use crate::plan::own_places::{self, OwnPlaces};
use crate::plan::seccomp_filter::Filters;
use crate::plan::seccomp_filter::Needs;

/// Without namespaces the filter has more to hold.
fn needs() -> Needs {
    Needs {
        guards: false,
        links: false,
        no_net_namespace: true,
        own_net_namespace: false,
        no_ipc_namespace: true,
        no_mounts: true,
        no_listener: !host::listener_available(),
        limited_exec: false,
        exec_number: None,
    }
}

/// The landlock backend.
#[derive(Debug)]
pub(crate) struct LandlockBackend;

static NATIVE: Native = Native { name: BackendName::Landlock, namespaces: false, needs, plan };

impl Backend for LandlockBackend {
    fn name(&self) -> &'static str {
        NATIVE.name.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            takes_arguments: true,
            hands_back: false,
            // Landlock takes no path out of a directory that can be read.
            hides_paths: false,
            judges_sources: true,
            sets_up_under_limits: true,
        }
    }

    fn plan(&self, host: &Host, request: &PlanRequest<'_>) -> Result<Box<dyn BackendPlan>, BackendRefusal> {
        available()?;
        Ok(Box::new(native::prepare(host, &NATIVE, request)?))
    }
}

/// A refusal of what needs mounts.
fn needs_mounts(step: impl Into<FailedStep>, message: &str, hint: &str) -> BackendRefusal {
    BackendRefusal { failure: Failure::new(step, message).hint(hint), needs_mounts: true }
}

/// Whether this kernel has Landlock.
///
/// # Errors
/// It has not; says how to get it.
pub(crate) fn available() -> Result<(), Failure> {
    if kernel::abi() > 0 {
        return Ok(());
    }
    Err(Failure::new(
        FailedStep::Landlock,
        "this kernel has no Landlock, or it is not in the list of security modules at boot",
    )
    .hint("add lsm=landlock,... to the kernel command line; Linux 5.13 or later"))
}

/// The refusal of a caller that is user 0 and cannot become another user.
pub(crate) fn as_root() -> Failure {
    let why = "this process is user 0 without the capabilities to give the sandbox another user, and no sandbox runs as user 0";
    Failure::new(FailedStep::Ids, why)
        .hint("run it as an ordinary user: setpriv --reuid=65534 --regid=65534 --clear-groups cofferdam ...")
}

/// Plans one run.
///
/// # Errors
/// The policy asks for what needs mounts.
fn plan(policy: &Policy, me: CallerIdentity, filters: &Filters, own: &OwnPlaces) -> Result<NativePlan, BackendRefusal> {
    if policy.audit.trace && !host::listener_available() {
        let why = "a trace needs a listener, and what is around this process has the one that the kernel gives";
        let hint = "leave --trace out, or run it outside of the sandbox that this process is in";
        return Err(Failure::new(FailedStep::policy("audit.trace"), why).hint(hint).into());
    }
    let policy = &*real_sources::pinned(policy, &mut Lookup::default())?;
    let abi = kernel::abi();
    let mut view = View::default();
    view.push(MountEntry {
        target: "/".into(),
        shows: MountContent::Host("/".into()),
        writable: false,
        persistent: false,
    });
    let mut rules = Vec::new();
    let rule = |path: &str, access: u64, optional| PathRule { path: path.into(), access, optional, identity: None };
    match &policy.filesystem.root {
        Root::Host => rules.push(rule("/", access::READ, false)),
        Root::Minimal => {
            for path in [
                "/usr",
                "/bin",
                "/sbin",
                "/lib",
                "/lib32",
                "/lib64",
                "/libx32",
                "/etc/ld.so.cache",
                "/etc/alternatives",
                "/etc/localtime",
                "/etc/passwd",
                "/etc/group",
                "/etc/nsswitch.conf",
                "/etc/ssl",
                "/etc/pki",
                "/proc",
            ] {
                rules.push(rule(path, access::READ, true));
            }
            for path in crate::plan::host_names::FILES.iter().filter(|_| crate::plan::host_names::are_the_hosts(policy))
            {
                rules.push(rule(path, access::READ, true));
            }
        }
        Root::Interpreter => {
            let parts = crate::plan::interpreter::parts(policy, &HostFacts::default());
            // A rule would be for what a link leads to.
            for part in parts.iter().filter(|part| !matches!(part, Part::Link(..))) {
                rules.push(rule(part.path(), access::READ, true));
            }
            rules.push(rule("/proc", access::READ, true));
        }
        Root::Directory(_) | Root::Image(_) => {
            return Err(needs_mounts(
                Field::Root,
                "a root directory needs mounts, which the landlock backend has not",
                "use --backend jail",
            ));
        }
    }
    let mut left_out = Vec::new();
    for (i, m) in policy.filesystem.mounts.iter().enumerate() {
        let field = FailedStep::mount_entry(i);
        let Mount::Bind { source, target, access: how, optional, .. } = m else {
            return Err(needs_mounts(
                &field,
                "a tmpfs needs mounts, which the landlock backend has not",
                "use --backend jail",
            ));
        };
        if source != target || *how == Access::CopyOnWrite {
            return Err(needs_mounts(
                &field,
                "the landlock backend can give a path only at its own place, read-only or read-write",
                "use -v PATH:PATH, or --backend jail",
            ));
        }
        if *optional && crate::plan::optional_mounts::is_missing(source) {
            left_out.push(source.clone());
            continue;
        }
        let writable = *how == Access::ReadWrite;
        let rights = if writable { access::READ_NO_EXEC | access::WRITE } else { access::READ };
        // Init opens the path, and compares. A source that is not there, init reports.
        let identity = crate::plan::source_identity::expected(policy, source);
        if identity.is_none() && std::path::Path::new(source).exists() {
            return Err(crate::plan::source_identity::appeared(source, &field).into());
        }
        rules.push(PathRule { identity, ..rule(source, rights, false) });
        view.push(MountEntry {
            target: target.clone(),
            shows: MountContent::Host(source.clone()),
            writable,
            persistent: writable,
        });
    }
    exposed(&rules, &own.places)?;
    for device in ["null", "zero", "full", "random", "urandom"] {
        rules.push(rule(&format!("/dev/{device}"), access::READ_FILE | access::WRITE_FILE | access::TRUNCATE, true));
    }
    let handled = kernel::handled_fs(abi);
    for r in &mut rules {
        r.access &= handled;
    }
    let outside = if me.switches() {
        let id = host::unprivileged_id();
        let id = id.ok_or_else(|| {
            Failure::new(FailedStep::Landlock, "no unprivileged id is mapped here").hint("run it as an ordinary user")
        })?;
        (id, id)
    } else if me.is_root_outside() {
        return Err(as_root().into());
    } else {
        (me.uid, me.gid)
    };
    // Without a user namespace the kernel counts all that the user runs. An id that root takes for a run has nothing else.
    let others = if me.privileged { 0 } else { crate::proctree::threads_of(me.uid) };
    let mut init_plan = InitPlan {
        ids_in: outside,
        ids_out: outside,
        rlimits: crate::plan::rlimits::rlimits(policy, 1 + others),
        landlock: Some(init_plan::LandlockHandled {
            handled_fs: handled,
            handled_net: if policy.network.mode == NetworkMode::None { kernel::handled_net(abi) } else { 0 },
            scoped: kernel::scoped(abi),
            rules,
        }),
        wall_ns: policy.limits.wall_ms.saturating_mul(1_000_000),
        ..InitPlan::default()
    };
    let flags = if me.switches() { flag::DROP_IDS } else { 0 };
    crate::plan::payload::fill(&mut init_plan, policy, flags, filters.get(policy, false, false)?);
    if policy.command.cwd.is_none() {
        init_plan.cwd = "/".into();
    }
    let mut plan = NativePlan {
        init_plan,
        prepared: Vec::new(),
        own_net: false,
        layers: Vec::new(),
        view,
        denied: policy.filesystem.deny.iter().cloned().collect(),
        protected: Default::default(),
        whiteouts: Vec::new(),
        egress: None,
        enforcement: AppliedEnforcement::new(),
    };
    let by = By::Landlock { abi, other_user: me.switches(), left_out: &left_out };
    plan.enforcement = enforcement(policy, &by);
    Ok(plan)
}

/// Refuses rules by which the program could write Cofferdam's own files, or reach the trail that it is recorded in: nothing
/// can be taken out of what a rule gives.
fn exposed(rules: &[PathRule], places: &[own_places::OwnPlace]) -> Result<(), BackendRefusal> {
    for rule in rules {
        let Some(given) = std::fs::canonicalize(&rule.path).ok().and_then(|path| path.to_str().map(str::to_owned))
        else {
            continue;
        };
        let writes = rule.access & access::WRITE != 0;
        let mut reached = places.iter().filter(|place| is_within(&place.path, &given));
        if let Some(place) = reached.find(|place| writes || place.trail) {
            return Err(BackendRefusal { failure: own_places::exposed("landlock", place), needs_mounts: true });
        }
    }
    Ok(())
}
