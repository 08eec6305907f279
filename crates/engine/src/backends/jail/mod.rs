//! The jail: namespaces, mounts, Landlock, seccomp, rlimits and a cgroup around one command.
//!
//! `run` is the owner's half of the order; init's half stands in `confine/init/main.rs`. What is opened here is closed
//! by ownership on every path; what the kernel would keep (cgroup directories) is removed before the call returns.

mod paths;
mod plan;
mod root;
pub(crate) mod start;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_confine::host::{self, CallerIdentity};
use cofferdam_confine::init_plan::{self, MountSource};
use cofferdam_confine::mountfd;
use cofferdam_confine::spawn::Namespaces;
use cofferdam_policy::{BackendName, Policy};

pub(crate) use plan::plan;
pub(crate) use root::Ids;
pub(crate) use root::terminal_device;
pub(crate) use start::{FRESH, PendingInit, Started, end, send_plan};

use crate::backends::native::{self, Native};
use crate::backends::{Backend, BackendPlan, BackendRefusal, Capabilities, PlanRequest};
use crate::failure::{FailedStep, Failure};
use crate::host::Host;
use crate::plan::NativePlan;
use crate::plan::own_places::OwnPlaces;
use crate::plan::seccomp_filter::{Filters, Needs};

/// The jail.
#[derive(Debug)]
pub(crate) struct Jail;

static NATIVE: Native = Native {
    name: BackendName::Jail,
    namespaces: true,
    needs: Needs::default,
    plan: |policy, me, filters, own| Ok(complete(policy, me, filters, &Ids::fresh(), own)?),
};

impl Backend for Jail {
    fn name(&self) -> &'static str {
        NATIVE.name.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            takes_arguments: true,
            hands_back: true,
            hides_paths: true,
            judges_sources: true,
            sets_up_under_limits: true,
        }
    }

    fn plan(&self, host: &Host, request: &PlanRequest<'_>) -> Result<Box<dyn BackendPlan>, BackendRefusal> {
        available(host.identity())?;
        Ok(Box::new(native::prepare(host, &NATIVE, request)?))
    }
}

/// Whether this process can make the namespaces of a jail, and its filter.
///
/// # Errors
/// Why not, and what would help.
pub(crate) fn available(me: CallerIdentity) -> Result<(), Failure> {
    let refused = |why: String, hint: &str| {
        Failure::new(FailedStep::Namespaces, format!("user namespaces cannot be had: {why}")).hint(hint)
    };
    if let Some((why, command)) = host::user_namespaces_refused(me.privileged) {
        return Err(refused(why.to_owned(), command));
    }
    if !me.privileged && me.is_root_outside() {
        return Err(crate::backends::landlock::as_root());
    }
    // The switches are not all: what is around this process may refuse as well, and only trying tells.
    if host::is_enclosed()
        && let Err(e) = host::try_user_namespace()
    {
        return Err(refused(format!("{e}; what is around this process refuses them"), host::ENCLOSED));
    }
    if host::is_enclosed() && !host::listener_available() {
        let why = "what is around this process has a filter with a listener, and the kernel gives one to each process";
        return Err(Failure::new(FailedStep::Namespaces, format!("no filter of ours can stand here: {why}"))
            .hint(host::ENCLOSED));
    }
    Ok(())
}

/// A user namespace that maps one owner of files to the sandbox's user.
#[derive(Debug, Clone)]
pub(crate) struct OwnerMap {
    owner: (u32, u32),
    outside: (u32, u32),
    namespace: Arc<OwnedFd>,
}

impl OwnerMap {
    /// Makes one, which takes a process.
    ///
    /// # Errors
    /// user_namespaces(7).
    pub(crate) fn new(owner: (u32, u32), outside: (u32, u32)) -> std::io::Result<OwnerMap> {
        let namespace = mountfd::owner_map((owner.0, outside.0), (owner.1, outside.1))?;
        Ok(OwnerMap { owner, outside, namespace: Arc::new(namespace) })
    }
}

/// Owner maps kept from run to run: they name ids, nothing of the host's files.
#[derive(Debug, Default)]
pub(crate) struct OwnerMaps(Mutex<Vec<OwnerMap>>);

impl OwnerMaps {
    fn get(&self, owner: (u32, u32), outside: (u32, u32)) -> std::io::Result<Arc<OwnedFd>> {
        let mut maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = maps.iter().find(|m| (m.owner, m.outside) == (owner, outside)) {
            return Ok(map.namespace.clone());
        }
        let made = OwnerMap::new(owner, outside)?;
        let namespace = made.namespace.clone();
        maps.push(made);
        Ok(namespace)
    }
}

/// Opens and maps the sources of a privileged owner, each checked against what the plan saw.
///
/// # Errors
/// A source was replaced, or its file system cannot map owners and the mount is writable.
pub(crate) fn prepare(plan: &NativePlan, outside: (u32, u32), maps: &OwnerMaps) -> Result<Vec<OwnedFd>, Failure> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
    let mut trees = Vec::new();
    for p in &plan.prepared {
        let fail = |what: &str, e: &dyn std::error::Error, hint| {
            Failure::new(&p.step, format!("{what} {}", p.path)).caused_by(e).maybe_hint(hint)
        };
        let at = openat2(CWD, &p.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(|e| fail("cannot open", &e, None))?;
        let st = statx(&at, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(|e| fail("cannot look at", &e, None))?;
        let identity = (u64::from(st.stx_dev_major) << 32 | u64::from(st.stx_dev_minor), st.stx_ino);
        if identity != p.identity {
            let e = std::io::Error::other("it was replaced while the run was being prepared");
            return Err(fail("will not use", &e, None));
        }
        let tree = mountfd::clone_tree(at.as_fd()).map_err(|e| fail("cannot clone the mount of", &e, None))?;
        let map = maps.get(p.owner, outside).map_err(|e| fail("cannot make an owner map for", &e, None))?;
        if let Err(e) = mountfd::map_owners(tree.as_fd(), map.as_fd())
            && p.required
        {
            let hint = "its file system, or one mounted below it, cannot map owners; copy it to one that can (ext4, xfs, btrfs, tmpfs), or run as its owner";
            return Err(fail(
                "cannot map, for the sandbox's unprivileged user, the owners of",
                &e,
                Some(hint.to_owned()),
            ));
        }
        trees.push(tree);
    }
    Ok(trees)
}

/// The host's ids that a jail's user stands for.
pub(crate) fn outside(me: CallerIdentity) -> Option<(u32, u32)> {
    if me.privileged { cofferdam_confine::host::unprivileged_id().map(|id| (id, id)) } else { Some((me.uid, me.gid)) }
}

/// Namespaces of a plan.
pub(crate) fn namespaces(plan: &NativePlan, jail: bool) -> Namespaces {
    Namespaces { jail, net: plan.own_net }
}

/// A policy's plan with the filter that its guards ask for, and its layers of hidden names.
///
/// # Errors
/// As `plan`, and when a layer cannot be made.
pub(crate) fn complete(
    policy: &Policy,
    me: CallerIdentity,
    filters: &Filters,
    ids: &Ids,
    own: &OwnPlaces,
) -> Result<NativePlan, Failure> {
    crate::plan::whiteout::claim(policy);
    let mut plan = plan(policy, me, filters, ids, own)?;
    for (op, names) in &plan.whiteouts {
        let found = crate::plan::whiteout::layer(names, &own.remembered)?;
        if let Some(init_plan::MountStep::Whiteout { layer, .. }) = plan.init_plan.mounts.get_mut(*op) {
            *layer = MountSource::Path { path: found.path, identity: Some(found.identity) };
        }
    }
    Ok(plan)
}
