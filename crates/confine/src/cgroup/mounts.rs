//! Where the hierarchies are mounted and where this process sits in each: `/proc/self/cgroup` and
//! `/proc/self/mountinfo` (`cgroups(7)`, `proc_pid_mountinfo(5)`). Pure parsing.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// One line of `/proc/self/cgroup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Membership {
    /// Controllers of the hierarchy; empty for version 2.
    pub(super) controllers: Vec<String>,
    /// Our place, as seen from our cgroup namespace.
    pub(super) path: PathBuf,
}

impl Membership {
    /// Version 2 is the one without a controller list.
    pub(super) fn is_unified(&self) -> bool {
        self.controllers.is_empty()
    }
}

/// Reads `/proc/self/cgroup`. Lines in another form are skipped.
pub(super) fn memberships(text: &str) -> Vec<Membership> {
    let parse = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        // The kernel says so of a directory that was removed under us: nothing can be made in it.
        if path.ends_with(" (deleted)") {
            return None;
        }
        let controllers = controllers.split(',').filter(|c| !c.is_empty()).map(str::to_owned).collect();
        Some(Membership { controllers, path: PathBuf::from(path) })
    };
    text.lines().filter_map(parse).collect()
}

/// One cgroup file system of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupMount {
    /// Directory of the hierarchy that is mounted, as seen from our cgroup namespace.
    root: PathBuf,
    /// Where.
    point: PathBuf,
    /// Whether it is version 2.
    unified: bool,
    /// Super block options, the controllers of version 1 among them.
    options: Vec<String>,
}

/// The cgroup mounts of `/proc/self/mountinfo`, in mount order.
pub(super) fn mounts(text: &str) -> Vec<CgroupMount> {
    let parse = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let kind = after.next()?;
        if kind != "cgroup" && kind != "cgroup2" {
            return None;
        }
        let mut before = before.split(' ').skip(3);
        Some(CgroupMount {
            root: unescape(before.next()?),
            point: unescape(before.next()?),
            unified: kind == "cgroup2",
            options: after.nth(1)?.split(',').map(str::to_owned).collect(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Decodes the octal escapes of space, tab, newline and backslash.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal =
            bytes.get(at + 1..at + 4).filter(|d| bytes[at] == b'\\' && d.iter().all(|c| (b'0'..b'8').contains(c)));
        if let Some(d) = octal {
            let value = d.iter().fold(0u32, |sum, c| sum * 8 + u32::from(c - b'0'));
            out.push(value as u8);
            at += 4;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// The directory that stands for a membership, through the last mount that shows it: the one that a path
/// lookup would reach. `None` when no mount does, as in a cgroup namespace without a mount of its own.
pub(super) fn directory(membership: &Membership, mounts: &[CgroupMount]) -> Option<PathBuf> {
    // A path outside of our namespace's root begins with `..`: no name leads there from here.
    let plain = |path: &Path| path.is_absolute() && !path.components().any(|c| c == Component::ParentDir);
    let shows = |mount: &&CgroupMount| {
        let same = if membership.is_unified() {
            mount.unified
        } else {
            !mount.unified && membership.controllers.iter().all(|c| mount.options.contains(c))
        };
        same && plain(&mount.root) && plain(&membership.path) && membership.path.starts_with(&mount.root)
    };
    let mount = mounts.iter().rfind(shows)?;
    let below = membership.path.strip_prefix(&mount.root).ok()?;
    Some(if below.as_os_str().is_empty() { mount.point.clone() } else { mount.point.join(below) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 master:2 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    fn find(cgroup: &str, mountinfo: &str) -> Vec<Option<String>> {
        let mounts = mounts(mountinfo);
        memberships(cgroup).iter().map(|m| directory(m, &mounts).map(|p| p.display().to_string())).collect()
    }

    #[test]
    fn hybrid_hosts_give_one_directory_per_hierarchy() {
        let found = find("4:memory:/a/b\n2:cpu,cpuacct:/\n0::/user.slice\n", HYBRID);
        let expected = ["/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/unified/user.slice"];
        assert_eq!(found, expected.map(|p| Some(p.to_owned())));
    }

    #[test]
    fn a_container_that_sees_its_part_of_the_tree_is_mapped_into_it() {
        let mount = "40 31 0:32 /docker/77 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        assert_eq!(find("4:memory:/docker/77/x\n", mount), [Some("/sys/fs/cgroup/memory/x".to_owned())]);
        assert_eq!(find("4:memory:/docker/770\n", mount), [None], "a prefix is one of whole names");
        assert_eq!(find("4:memory:/\n", mount), [None]);
    }

    #[test]
    fn another_cgroup_namespace_finds_nothing_not_a_wrong_directory() {
        let mount = "40 31 0:38 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(find("0::/\n", mount), [None]);
        let above = "40 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(find("0::/../x\n", above), [None]);
    }

    #[test]
    fn the_last_mount_wins_and_its_name_is_decoded() {
        let two = "40 31 0:38 / /a rw - cgroup2 none rw\n41 31 0:38 / /my\\040dir\\134 rw - cgroup2 none rw\n";
        assert_eq!(find("0::/x\n", two), [Some("/my dir\\/x".to_owned())]);
    }

    #[test]
    fn named_hierarchies_and_deleted_directories_are_distinguished() {
        let found = memberships("1:name=systemd:/x\n0::/gone (deleted)\nnonsense\n");
        assert_eq!(found.len(), 1);
        assert!(!found[0].is_unified());
    }
}
