//! What one run asks for: of the container runtime a container spec, of init its plan. Nothing is made or started here; the
//! sources of binds are looked at, so that init can compare them with what it finds.

use std::path::{Path, PathBuf};

use cofferdam_confine::InitPlan;
use cofferdam_confine::host::{resource, rlimit};
use cofferdam_confine::init_plan::{MountStep, PathRule};
use cofferdam_confine::wire::flag;
use cofferdam_policy::{ArgCondition, ArgOp, Mount, NetworkMode, Policy, SeccompLevel, SyscallAction, SyscallRule};

use super::super::Arrival;
use super::super::mount_points::Moved;
use super::super::owner;
use super::super::rendezvous::Rendezvous;
use super::super::spec::{self, ContainerSpec, Mounted, Parts, RuntimeLimits};
use super::Contained;
use crate::failure::{self, Failure};
use crate::plan::egress::EgressPlan;

/// Open files that init has room for, so that the number of the one program without spawning is the same everywhere.
const OPEN_FILES: u64 = 4096;

impl Contained {
    pub(super) fn spec(&self, parts: &Parts, moved: &Moved, id: String, directory: &Path) -> ContainerSpec {
        let l = &self.planned.policy.limits;
        let mut mounts = moved.mounts(&parts.mounts);
        let own = spec::own(&id);
        mounts.push(Mounted::Bind {
            source: directory.to_owned(),
            target: own.clone(),
            writable: false,
            exec: true,
            directory: true,
        });
        let bounds = RuntimeLimits {
            memory_bytes: Some(l.memory_mb << 20),
            cpu_millis: (!crate::plan::rlimits::is_all(l.cpu_millis)).then_some(l.cpu_millis),
            pids: Some(l.processes + 1), // init
        };
        let mut argv = vec![format!("{own}/init")];
        if self.about.arrival == Arrival::Rendezvous {
            argv.push(format!("{own}/{}", Rendezvous::NAME));
        }
        let labels = [(owner::RUN, Some(id.clone())), (owner::OWNER, owner::me())];
        let mut spec = ContainerSpec {
            root: parts.root.clone().unwrap_or(spec::Rootfs::Made(Vec::new())),
            mounts,
            masked: parts.masked.iter().map(|path| moved.path(path)).collect(),
            user: self.user,
            powers: self.way.is_some(),
            apart: None,
            hostname: self.planned.policy.process.hostname.clone(),
            network: spec::network(&self.planned.policy),
            bounds: if self.about.limits { bounds } else { RuntimeLimits::default() },
            open_files: open_files(&self.planned.policy),
            labels: labels.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
            argv,
            id,
        };
        spec.apart = self.about.apart.then(|| beside(self.runtime.runs_as(&spec)));
        spec
    }

    /// `checked` is what init has to find, where it can.
    pub(super) fn init_plan(
        &self,
        parts: &Parts,
        spec: &ContainerSpec,
        arguments: Vec<String>,
        checked: Vec<PathRule>,
    ) -> InitPlan {
        let policy = &self.planned.policy;
        let runs_as = self.runtime.runs_as(spec);
        let mut flags = flag::CONTAINER | if self.about.limits { flag::LINGER } else { 0 };
        flags |= match policy.network.mode {
            NetworkMode::None => flag::NO_NETWORK,
            NetworkMode::Loopback => flag::ONLY_LOOPBACK,
            NetworkMode::Allowlist | NetworkMode::Host => 0,
        };
        if spec.powers && runs_as != (0, 0) {
            flags |= flag::DROP_IDS;
        }
        if spec.apart.is_some() {
            flags |= flag::SEPARATE_USER;
        }
        let mut rlimits = crate::plan::rlimits::rlimits(policy, 1);
        // Where a cgroup counts, the user's other processes are no concern of this one's.
        let counted = self.about.limits || self.location.is_some();
        if counted && self.user.0 == rustix::process::geteuid().as_raw() {
            rlimits.retain(|(r, ..)| *r != resource::NPROC);
        } else if counted {
            crate::plan::rlimits::leave_processes_to_the_cgroup(&mut rlimits);
        }
        let mounts = parts.made.iter().map(|(path, mode)| MountStep::Mkdir { name: path.clone(), mode: *mode });
        let mut init_plan = InitPlan {
            ids_in: spec.apart.unwrap_or(runs_as),
            ids_out: runs_as,
            hostname: spec.hostname.clone(),
            rlimits,
            mounts: mounts.collect(),
            checked,
            capture: self.way.as_ref().map(EgressPlan::capture),
            wall_ns: policy.limits.wall_ms.saturating_mul(1_000_000),
            ..InitPlan::default()
        };
        crate::plan::payload::fill(&mut init_plan, policy, flags, &self.filter);
        if self.way.is_some() {
            init_plan.envp.extend(crate::plan::egress::variables(policy).into_iter().map(|(k, v)| format!("{k}={v}")));
        }
        init_plan.argv.extend(arguments);
        init_plan
    }

    /// What is to be found at the targets of binds: looked at before the runtime is told the names.
    ///
    /// # Errors
    /// A source is not what it was when the policy was planned.
    pub(super) fn checked(&self, policy: &Policy, parts: &Parts) -> Result<Vec<PathRule>, Failure> {
        let look = |(target, source): &(String, PathBuf)| {
            let identity = identity(source).map_err(|e| {
                let message = format!("cannot use {} as the source of {target}: {e}", source.display());
                Failure::new(failure::FailedStep::Mount, message)
                    .hint("it was replaced or removed since the run was prepared: run it again")
            })?;
            // What is looked up is the path that the source led to, and its identity decides.
            let mounts = policy.filesystem.mounts.iter().enumerate();
            for (index, mount) in mounts.filter(|(_, mount)| mount.target() == target) {
                let Mount::Bind { source, .. } = mount else { continue };
                crate::plan::source_identity::compare(
                    policy,
                    source,
                    identity,
                    &failure::FailedStep::mount_entry(index),
                )?;
            }
            Ok(PathRule { path: target.clone(), access: 0, optional: false, identity: Some(identity) })
        };
        // What is covered by a later mount cannot be looked at.
        let masked =
            |target: &str| parts.masked.iter().any(|mask| crate::plan::mount_table::below(target, mask).is_some());
        // An engine makes its root of a copy of the directory; a runtime of the directory itself.
        let own = |target: &str| target != "/" || self.about.arrival == Arrival::Inherited || self.about.compares;
        parts.checked.iter().filter(|(target, _)| !masked(target) && own(target)).map(look).collect()
    }
}

/// Ids that are nobody else's in a container whose program has these: its neighbours among those that nothing on the host
/// runs as.
fn beside((user, group): (u32, u32)) -> (u32, u32) {
    (user ^ 1, group ^ 1)
}

/// Device and inode of a source. Its path was canonical when it was planned: a link on it by now is somebody's.
fn identity(source: &Path) -> std::io::Result<(u64, u64)> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let stat = fstat(openat2(CWD, source, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)?;
    Ok((crate::plan::executables::device(stat.st_dev), stat.st_ino))
}

/// Open files, soft and hard, of init.
pub(super) fn open_files(policy: &Policy) -> u64 {
    policy.limits.open_files.max(OPEN_FILES).min(rlimit(resource::NOFILE).1)
}

/// A policy whose filter refuses user namespaces at every level: no jail has switched them off. So it does with mount
/// namespaces where the kernel does not by itself (`mounts`): gVisor's says yes to whoever asks, and does nothing.
pub(super) fn floored(policy: &Policy, mounts: bool) -> Policy {
    let mut policy = policy.clone();
    if policy.process.seccomp.level == SeccompLevel::Disabled {
        const CLONE_NEWUSER: u64 = 0x1000_0000;
        const CLONE_NEWNS: u64 = 0x2_0000;
        let flag = |flag| ArgCondition { index: 0, mask: flag, op: ArgOp::Eq, value: flag };
        let rule = |call: &str, errno: &str, when: Vec<ArgCondition>| SyscallRule {
            syscalls: vec![call.into()],
            action: SyscallAction::Errno(errno.into()),
            when,
        };
        let rules = &mut policy.process.seccomp.rules;
        for refused in [CLONE_NEWUSER].into_iter().chain(mounts.then_some(CLONE_NEWNS)) {
            rules.push(rule("clone", "EPERM", vec![flag(refused)]));
            rules.push(rule("unshare", "EPERM", vec![flag(refused)]));
        }
        // What it is asked for lies behind a pointer; every program falls back to clone.
        rules.push(rule("clone3", "ENOSYS", Vec::new()));
    }
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_became_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let canonical = dir.path().canonicalize().unwrap();
        let (source, victim) = (canonical.join("source"), canonical.join("victim"));
        std::fs::create_dir_all(source.join("below")).unwrap();
        std::fs::create_dir_all(victim.join("below")).unwrap();
        let before = identity(&source.join("below")).unwrap();
        assert_ne!(before, identity(&victim.join("below")).unwrap());
        std::fs::rename(&source, canonical.join("aside")).unwrap();
        assert!(identity(&source).is_err(), "it is gone");
        std::os::unix::fs::symlink(&victim, &source).unwrap();
        assert!(identity(&source).is_err() && identity(&source.join("below")).is_err());
        std::fs::remove_file(&source).unwrap();
        std::fs::rename(canonical.join("aside"), &source).unwrap();
        assert_eq!(identity(&source.join("below")).unwrap(), before);
    }

    #[test]
    fn no_level_lets_a_container_make_user_namespaces() {
        let mut policy = Policy::base();
        policy.process.seccomp.level = SeccompLevel::Disabled;
        assert_eq!(floored(&policy, false).process.seccomp.rules.len(), 3);
        assert_eq!(floored(&policy, true).process.seccomp.rules.len(), 5);
        policy.process.seccomp.level = SeccompLevel::Basic;
        assert_eq!(floored(&policy, true), policy);
        assert_eq!(spec::network(&policy), spec::Net::Own);
    }
}
