//! A root of a run's own in which another one is shown, entry by entry: for gVisor, whose file server makes every mount point
//! that it lacks in the root itself, as the caller, and leaves it there. Never changes the root that is shown.

use std::path::{Path, PathBuf};

use cofferdam_confine::init_plan::PathRule;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};

use super::tree::RootfsTree;
use crate::backends::containers::spec::Mounted;
use crate::failure::{FailedStep, Failure};
use crate::plan::executables::device;

/// What the runtime puts there itself.
const OWN: [&str; 3] = ["dev", "proc", "sys"];

/// What stands at the top of such a root.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TopEntry {
    Directory,
    File,
    Link(String),
}

/// A root to be made, and what is bound into it before everything else.
#[derive(Debug, Clone)]
pub(super) struct Skeleton {
    tops: Vec<(String, TopEntry)>,
    /// The binds, read-only.
    pub mounts: Vec<Mounted>,
    /// Device and inode of the root that is shown.
    identity: (u64, u64),
    /// The same of what is bound.
    bound: Vec<PathRule>,
}

impl Skeleton {
    /// Of a root at whose top these paths, the targets of mounts and masks, show nothing of it. Sockets, FIFOs and devices at
    /// its top are left out.
    ///
    /// # Errors
    /// It cannot be read, or an entry has a name that is no text.
    pub(super) fn of(root: &Path, covered: &[&str]) -> Result<Skeleton, Failure> {
        let failed = |e: &dyn std::fmt::Display| {
            Failure::new(FailedStep::Image, format!("cannot show {} as the root: {e}", root.display()))
                .hint("name a directory that this user can read, or use --backend oci:crun")
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let at = openat(CWD, root, flags, Mode::empty()).map_err(|e| failed(&e))?;
        let whole = fstat(&at).map_err(|e| failed(&e))?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&at).map_err(|e| failed(&e))? {
            let name = entry.map_err(|e| failed(&e))?.file_name().to_owned();
            let name = name.into_string().map_err(|e| failed(&format!("{e}: {:?}", e.clone().into_cstring())))?;
            if !matches!(name.as_str(), "." | "..") {
                names.push(name);
            }
        }
        names.sort();
        let identity = (device(whole.st_dev), whole.st_ino);
        let mut made = Skeleton { tops: Vec::new(), mounts: Vec::new(), identity, bound: Vec::new() };
        for name in names {
            let stat = statat(&at, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| failed(&e))?;
            let target = format!("/{name}");
            let top = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => TopEntry::Directory,
                FileType::RegularFile => TopEntry::File,
                FileType::Symlink => {
                    if name == "tmp" {
                        // It would mount a file system of its own behind it.
                        let message = format!("{} is a symbolic link", root.join("tmp").display());
                        return Err(Failure::new(FailedStep::Image, message)
                            .hint("use an image that has a directory /tmp, or --backend oci:crun"));
                    }
                    let says = readlinkat(&at, &name, Vec::new()).map_err(|e| failed(&e))?;
                    TopEntry::Link(says.into_string().map_err(|e| failed(&e))?)
                }
                _ => continue,
            };
            let covered = OWN.contains(&name.as_str()) || covered.iter().any(|at| at.trim_end_matches('/') == target);
            if !covered && !matches!(top, TopEntry::Link(_)) {
                made.mounts.push(Mounted::Bind {
                    source: root.join(&name),
                    target: target.clone(),
                    writable: false,
                    exec: true,
                    directory: top == TopEntry::Directory,
                });
                let identity = Some((device(stat.st_dev), stat.st_ino));
                made.bound.push(PathRule { path: target, access: 0, optional: false, identity });
            }
            made.tops.push((name, top));
        }
        Ok(made)
    }

    /// Makes it in a directory that is there, and empty.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn make(&self, at: &Path) -> std::io::Result<()> {
        let tree = RootfsTree::open(at)?;
        for own in OWN {
            drop(tree.directory(own, 0o755)?);
        }
        for (name, top) in &self.tops {
            match top {
                TopEntry::Directory => drop(tree.directory(name, 0o755)?),
                TopEntry::File => tree.file(name)?,
                TopEntry::Link(says) => tree.link(name, says)?,
            }
        }
        Ok(())
    }

    /// What has to be found where these were to be, with what is bound in the place of the root that is shown.
    ///
    /// # Errors
    /// That root is another one by now.
    pub(super) fn rules(&self, checked: &[PathRule]) -> Result<Vec<PathRule>, PathBuf> {
        let (root, mut rules): (Vec<_>, Vec<_>) = checked.iter().cloned().partition(|rule| rule.path == "/");
        if root.iter().any(|rule| rule.identity.is_some_and(|identity| identity != self.identity)) {
            return Err("/".into());
        }
        rules.extend(self.bound.iter().cloned());
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_at_the_top_is_bound_and_what_is_covered_is_not() {
        let root = tempfile::tempdir().unwrap();
        for name in ["bin", "tmp", "sys/deep", "dev", "data"] {
            std::fs::create_dir_all(root.path().join(name)).unwrap();
        }
        std::fs::write(root.path().join("file"), "text").unwrap();
        symlink("bin", root.path().join("sbin")).unwrap();
        let skeleton = Skeleton::of(root.path(), &["/data/", "/tmp", "/bin/deeper"]).unwrap();
        let bound: Vec<_> = skeleton.mounts.iter().map(Mounted::target).collect();
        assert_eq!(bound, ["/bin", "/file"]);
        let made = tempfile::tempdir().unwrap();
        skeleton.make(made.path()).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(made.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["bin", "data", "dev", "file", "proc", "sbin", "sys", "tmp"]);
        assert_eq!(std::fs::read_link(made.path().join("sbin")).unwrap(), Path::new("bin"));
        assert_eq!(std::fs::read(made.path().join("file")).unwrap(), b"", "only what is bound has contents");
    }

    #[test]
    fn a_link_in_the_place_of_tmp_is_refused() {
        let root = tempfile::tempdir().unwrap();
        symlink("var", root.path().join("tmp")).unwrap();
        let failure = Skeleton::of(root.path(), &[]).unwrap_err();
        assert!(failure.message.contains("/tmp is a symbolic link") && failure.hint.is_some(), "{failure:?}");
    }

    #[test]
    fn a_root_changed_meanwhile_is_reported() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(root.path().join("bin")).unwrap();
        let skeleton = Skeleton::of(root.path(), &[]).unwrap();
        let rule = |path: &Path| {
            let stat = rustix::fs::stat(path).unwrap();
            let identity = Some((device(stat.st_dev), stat.st_ino));
            PathRule { path: "/".into(), access: 0, optional: false, identity }
        };
        let rules = skeleton.rules(&[rule(root.path())]).unwrap();
        assert_eq!(rules.iter().map(|rule| rule.path.as_str()).collect::<Vec<_>>(), ["/bin"]);
        assert!(skeleton.rules(&[rule(other.path())]).is_err());
    }
}
