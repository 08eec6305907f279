//! Cgroups that another program has created, such as a container's: their figures are read, and nothing is changed.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};

use super::discover::{CgroupParent, CgroupVersion, serve};
use super::mounts::{directory, memberships, mounts};
use super::{Cgroup, CgroupLimits, CgroupNode, UsageBase, files};

impl Cgroup {
    /// The cgroup that a process is in, where it is another one than this process's own, for its figures alone: removing it
    /// removes nothing. What has been removed by its owner reads as an error.
    ///
    /// # Errors
    /// The process is gone, or its cgroup cannot be found out.
    pub fn of(pid: i32) -> io::Result<Option<Cgroup>> {
        let theirs = memberships(&fs::read_to_string(format!("/proc/{pid}/cgroup"))?);
        let ours = memberships(&fs::read_to_string("/proc/self/cgroup")?);
        let mounted = mounts(&fs::read_to_string("/proc/self/mountinfo")?);
        let mut nodes: Vec<CgroupNode> = Vec::new();
        for membership in theirs.iter().filter(|membership| !ours.contains(membership)) {
            let Some(path) = directory(membership, &mounted) else { continue };
            let taken = nodes.iter().fold(0, |taken, node| taken | node.serves);
            let node = if membership.is_unified() { unified(&path, taken)? } else { controllers(membership, &path)? };
            nodes.extend(node.filter(|node| node.serves != 0));
        }
        let name = String::new();
        Ok((!nodes.is_empty()).then_some(Cgroup {
            name,
            nodes,
            limits: CgroupLimits::default(),
            base: UsageBase::default(),
        }))
    }
}

fn node(path: &Path, version: CgroupVersion, serves: u8) -> io::Result<CgroupNode> {
    let open = || openat(rustix::fs::CWD, path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let parent = CgroupParent { dir: open()?, path: path.to_owned(), version, serves, above: None };
    // Not ours to remove.
    Ok(CgroupNode { parent: Arc::new(parent), dir: open()?, serves, removed: true })
}

fn controllers(membership: &super::mounts::Membership, path: &Path) -> io::Result<Option<CgroupNode>> {
    let known = [("memory", serve::MEMORY), ("pids", serve::PIDS), ("cpu", serve::CPU), ("cpuacct", serve::CPU_TIME)];
    let serves = known.iter().filter(|(name, _)| membership.controllers.iter().any(|c| c == name));
    let serves = serves.fold(0, |sum, (_, bit)| sum | bit);
    if serves == 0 { Ok(None) } else { node(path, CgroupVersion::V1, serves).map(Some) }
}

fn unified(path: &Path, taken: u8) -> io::Result<Option<CgroupNode>> {
    let mut node = node(path, CgroupVersion::V2, 0)?;
    let there = [
        (serve::MEMORY, c"memory.events"),
        (serve::PIDS, c"pids.events"),
        (serve::CPU, c"cpu.max"),
        (serve::CPU_TIME, c"cpu.stat"),
    ];
    for (bit, file) in there {
        if taken & bit == 0 && files::exists(&node.dir, file) {
            node.serves |= bit;
        }
    }
    Ok(Some(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_cgroup_belongs_to_no_other_process() {
        assert!(Cgroup::of(std::process::id() as i32).unwrap().is_none());
        assert!(Cgroup::of(i32::MAX).is_err());
    }
}
