//! Cgroups that a runtime made for a container and did not remove, because it was killed before it had written down
//! what it made.
//!
//! As root runc makes them whatever the configuration says, one in each hierarchy, below the cgroup that it is started
//! in or beside that one, with the container's name, which is random. Only directories of that very name are looked at,
//! in those places.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long processes in one may take to die.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a runtime that this process starts makes cgroups: this process's own, in each hierarchy.
pub(super) fn own() -> Vec<PathBuf> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    places(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
}

/// The directories of what `/proc/self/cgroup` lists, by `/proc/self/mountinfo` (proc_pid_mountinfo(5), cgroups(7)).
fn places(mounts: &str, own: &str) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let fields: Vec<&str> = before.split(' ').collect();
        let mut rest = after.split(' ');
        let (Some(root), Some(at)) = (fields.get(3), fields.get(4)) else { continue };
        let (kind, options) = (rest.next().unwrap_or_default(), rest.nth(1).unwrap_or_default());
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let this = match kind {
                "cgroup2" => controllers.is_empty(),
                "cgroup" => {
                    !controllers.is_empty()
                        && controllers.split(',').all(|c| options.split(',').any(|option| option == c))
                }
                _ => false,
            };
            this.then_some(path)
        });
        let below = path.and_then(|path| Path::new(path).strip_prefix(root).ok());
        // What is above this process's cgroup namespace cannot be named.
        if let Some(below) = below.filter(|below| !below.components().any(|c| c.as_os_str() == "..")) {
            places.push(if below.as_os_str().is_empty() { PathBuf::from(at) } else { Path::new(at).join(below) });
        }
    }
    places
}

/// Removes those of this name with everything in them. What remains, in words.
pub(super) fn remove(places: &[PathBuf], id: &str) -> Vec<String> {
    let beside = places.iter().filter_map(|place| place.parent());
    let mut directories: Vec<PathBuf> =
        places.iter().map(PathBuf::as_path).chain(beside).map(|at| at.join(id)).collect();
    directories.sort();
    directories.dedup();
    directories.iter().filter_map(|directory| removed(directory).err()).collect()
}

fn removed(directory: &Path) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match std::fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) if e.raw_os_error() == Some(16) && Instant::now() < until => {
                // EBUSY. Nothing but the container's was ever put into it.
                let processes = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
                for pid in processes.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
                    if let Err(e) = kill_process(pid, Signal::KILL)
                        && e != rustix::io::Errno::SRCH
                    {
                        return Err(format!(
                            "cannot end process {} in {}: {e}",
                            pid.as_raw_nonzero(),
                            directory.display()
                        ));
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => return Err(format!("cannot remove {}: {e}", directory.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cgroups_are_found_in_each_hierarchy() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:4 - cgroup cgroup rw,cpu,cpuacct\n\
                      35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      42 31 0:39 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        let own = "9:name=systemd:/a\n5:cpu,cpuacct:/\n4:memory:/docker/x/y\n3:pids:/../up\n0::/a/b\n";
        let expected = [
            "/sys/fs/cgroup/cpu,cpuacct",
            "/sys/fs/cgroup/memory/y",
            "/sys/fs/cgroup/systemd/a",
            "/sys/fs/cgroup/unified/a/b",
        ];
        assert_eq!(places(mounts, own), expected.map(PathBuf::from));
        assert!(places("", own).is_empty() && places(mounts, "").is_empty());
    }

    #[test]
    fn only_what_has_the_name_goes() {
        let dir = tempfile::tempdir().unwrap();
        let id = "cofferdam-0123456789abcdef";
        for name in ["a/other", "a/b"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        for at in ["a", "a/b", ""] {
            std::fs::create_dir_all(dir.path().join(at).join(id)).unwrap();
        }
        assert_eq!(remove(&[dir.path().join("a/b")], id), [""; 0]);
        assert!(
            !dir.path().join("a/b").join(id).exists() && !dir.path().join("a").join(id).exists(),
            "below and beside"
        );
        assert!(dir.path().join("a/other").exists() && dir.path().join(id).exists());
        std::fs::write(dir.path().join(id).join("file"), "").unwrap();
        assert_eq!(remove(&[dir.path().join("a")], id).len(), 1, "what holds files is no cgroup and is told");
    }
}
