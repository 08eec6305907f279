//! Whether a sandbox that was created earlier is still what a new one would be.
//!
//! It pictures the host's mounts and the files that are bound or masked. It is used only while that picture is what a new one
//! would show: the run's own plan, made when it begins, must ask for the same mounts; each path that they cover must still be the
//! same file, by the same name, behind directories with the same permissions; and nothing may have been mounted or unmounted
//! since. Where the program runs already, everything else of the plan must be the same as well, and so must the files that the
//! program and the Landlock rules are.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cofferdam_confine::init_plan::MountStep;
use cofferdam_confine::wire::flag;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::PoolLevel;
use crate::plan::NativePlan;

/// With more mounts than this, looking at each path again costs what a sandbox from the pool saves.
const MOST_MOUNTS: usize = 256;

/// What a sandbox was created of.
#[derive(Debug)]
pub(super) struct Snapshot {
    mounts: File,
    files: Vec<Option<EntryStamp>>,
    /// Only where the program runs.
    named: Vec<Option<EntryStamp>>,
}

/// Why there is no snapshot.
pub(super) enum NoSnapshot {
    /// Not now.
    Now,
    /// Never of this policy: each run has to look at the host itself.
    Ever,
}

impl Snapshot {
    /// Taken before the plan is made: what is mounted meanwhile counts as a change. `plan` makes it.
    ///
    /// # Errors
    /// The plan cannot be made, or a sandbox of it could not be compared.
    pub(super) fn take(
        level: PoolLevel,
        plan: impl FnOnce() -> Option<NativePlan>,
    ) -> Result<(Snapshot, NativePlan), NoSnapshot> {
        let mounts = File::open("/proc/self/mountinfo").map_err(|_| NoSnapshot::Now)?;
        let plan = plan().ok_or(NoSnapshot::Now)?;
        let simple = plan.layers.is_empty() && plan.whiteouts.is_empty() && plan.init_plan.mounts.len() <= MOST_MOUNTS;
        match level {
            PoolLevel::Staged { .. } if !simple => return Err(NoSnapshot::Now),
            // Layers list what changed since they were mounted; guards hold directories that were looked at; the egress gateway
            // is attached to one run.
            PoolLevel::Started { .. } if !simple || !plan.init_plan.guards.is_empty() || plan.egress.is_some() => {
                return Err(NoSnapshot::Ever);
            }
            PoolLevel::Staged { .. } | PoolLevel::Started { .. } => {}
        }
        let files = files(&plan).ok_or(NoSnapshot::Now)?;
        let named = match level {
            PoolLevel::Staged { .. } => Vec::new(),
            PoolLevel::Started { .. } => named(&plan),
        };
        Ok((Snapshot { mounts, files, named }, plan))
    }

    /// Whether a sandbox that was created of this snapshot and the plan `of` is what `wanted` asks for.
    pub(super) fn shows(&self, level: PoolLevel, of: &NativePlan, wanted: &NativePlan) -> bool {
        let program = || match level {
            PoolLevel::Staged { .. } => true, // it comes with the run's own plan
            PoolLevel::Started { .. } => same_program(of, wanted) && named(wanted) == self.named,
        };
        alike(of, wanted) && files(wanted).as_ref() == Some(&self.files) && program() && unchanged(&self.mounts)
    }
}

/// What stands under a name. A mount stays with the name that it was made on, and goes when that is removed: so it is not
/// enough that the same file is there, it must not have gone and come back either.
#[derive(Debug, PartialEq, Eq)]
struct EntryStamp {
    file: (u64, u64),
    /// The number of a removed file is given to a new one.
    made: Option<SystemTime>,
    /// Kind and permissions, owner and group: whether init could come to what lies behind.
    access: (u32, u32, u32),
    /// When the file was last changed, linked or renamed. Directories change with each name in them, and have but one.
    changed: Option<(i64, i64)>,
}

/// Whether two plans ask for the same namespaces, mounts and host name. The rest is the program's and comes with the go.
fn alike(staged: &NativePlan, wanted: &NativePlan) -> bool {
    let (a, b) = (&staged.init_plan, &wanted.init_plan);
    let same_mounts = a.mounts.len() == b.mounts.len() && a.mounts.iter().zip(&b.mounts).all(|(a, b)| same(a, b));
    same_mounts
        && a.system_mounts == b.system_mounts
        && (a.flags & !flag::HOLD) == b.flags
        && (a.ids_in, a.ids_out) == (b.ids_in, b.ids_out)
        && (a.scratch_bytes, a.scratch_inodes) == (b.scratch_bytes, b.scratch_inodes)
        && a.hostname == b.hostname
        && a.capture == b.capture
        && staged.own_net == wanted.own_net
        && staged.prepared == wanted.prepared
        && wanted.layers.is_empty()
        && wanted.whiteouts.is_empty()
}

/// Ids that are new for each run are new for each staged sandbox as well.
fn same(a: &MountStep, b: &MountStep) -> bool {
    match (a, b) {
        (MountStep::File { name: a, .. }, MountStep::File { name: b, .. })
            if a == b && (a == "bootid" || a == "machineid") =>
        {
            true
        }
        _ => a == b,
    }
}

/// What each mount covers on the host at this moment, with all directories above it. `None` where that cannot be told by
/// names, because one of them is a link.
fn files(plan: &NativePlan) -> Option<Vec<Option<EntryStamp>>> {
    let mut paths = BTreeSet::new();
    for (i, step) in plan.init_plan.mounts.iter().enumerate() {
        let (MountStep::Bind { target, .. }
        | MountStep::Scratch { target, .. }
        | MountStep::Tmpfs { target, .. }
        | MountStep::Overlay { target, .. }
        | MountStep::Mask { target, .. }
        | MountStep::SelfBind { target, .. }
        | MountStep::Whiteout { target, .. }) = step
        else {
            continue;
        };
        let covered = plan.view.host_path_below(target);
        // The system's own links are its administrator's.
        let own = i < plan.init_plan.system_mounts;
        if !own && covered.as_ref().is_some_and(|path| std::fs::canonicalize(path).is_ok_and(|c| c != Path::new(path)))
        {
            return None;
        }
        paths.extend(covered);
        paths.extend(plan.view.host_path(target));
    }
    let above = |path: &String| Path::new(path).ancestors().map(Path::to_path_buf).collect::<Vec<_>>();
    let all: BTreeSet<PathBuf> = paths.iter().flat_map(above).collect();
    Some(all.iter().map(|path| identity(path)).collect())
}

fn identity(path: &Path) -> Option<EntryStamp> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some(EntryStamp {
        file: (meta.dev(), meta.ino()),
        made: meta.created().ok(),
        access: (meta.mode(), meta.uid(), meta.gid()),
        changed: (!meta.is_dir()).then(|| (meta.ctime(), meta.ctime_nsec())),
    })
}

/// Whether nothing was mounted or unmounted since the file was opened: the kernel marks it then (proc_pid_mounts(5)).
fn unchanged(mounts: &File) -> bool {
    let mut fds = [PollFd::new(mounts, PollFlags::PRI)];
    let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok() && !fds[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
}

/// Whether two plans start the same program under the same restrictions.
fn same_program(started: &NativePlan, wanted: &NativePlan) -> bool {
    let (a, b) = (&started.init_plan, &wanted.init_plan);
    (&a.argv, &a.envp, &a.programs, &a.cwd) == (&b.argv, &b.envp, &b.programs, &b.cwd)
        && (&a.rlimits, &a.landlock, &a.filter, &a.classifier) == (&b.rlimits, &b.landlock, &b.filter, &b.classifier)
        && (&a.guards, a.wall_ns, a.terminal, a.channel) == (&b.guards, b.wall_ns, b.terminal, b.channel)
        && (&started.view, &started.denied, &started.protected) == (&wanted.view, &wanted.denied, &wanted.protected)
        && started.enforcement == wanted.enforcement
}

/// What the Landlock rules and the program are: files, not names, once they are in use.
fn named(plan: &NativePlan) -> Vec<Option<EntryStamp>> {
    let rules = plan.init_plan.landlock.iter().flat_map(|landlock| &landlock.rules).map(|rule| &rule.path);
    let paths: BTreeSet<&String> = rules.chain(&plan.init_plan.programs).collect();
    let mut all = Vec::new();
    for host in paths.into_iter().filter_map(|path| plan.view.host_path(path)) {
        all.push(identity(Path::new(&host)));
        // And what a link leads to.
        all.push(std::fs::canonicalize(&host).ok().and_then(|path| identity(&path)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_run_do_not_make_two_plans_differ_and_other_texts_do() {
        let file = |name: &str, text: &str| MountStep::File { name: name.into(), text: text.into(), mode: 0o444 };
        assert!(same(&file("bootid", "a"), &file("bootid", "b")));
        assert!(!same(&file("hostname", "a"), &file("hostname", "b")));
        assert!(!same(&file("bootid", "a"), &file("machineid", "a")));
    }

    #[test]
    fn a_mount_table_without_a_change_is_unchanged() {
        assert!(unchanged(&File::open("/proc/self/mountinfo").unwrap()));
    }
}
