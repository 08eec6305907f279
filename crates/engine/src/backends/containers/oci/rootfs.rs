//! Roots: a directory as it is, a tree that is made, a tarball that is unpacked, an image that is fetched from an engine's store.
//!
//! What is made or unpacked is kept (`cache`), by its contents. A directory of the user's is never changed: a runtime makes the
//! mount points that are missing, so that a missing one is refused here. In a tree of ours they are made; as empty directories
//! they show in every root of the same contents.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::cache::{CacheLease, RootfsCache, failed};
use super::image_store::Images;
use super::tree::{RootfsTree, There};
use super::unpack;
use crate::backends::containers::content::hex;
use crate::backends::containers::mount_points::{Moved, NO_PLACE, placed, single};
use crate::backends::containers::spec::{Mounted, RootEntry, Rootfs};
use crate::backends::containers::{ImageCommand, Progress};
use crate::failure::{FailedStep, Failure};
use crate::plan::mount_table::{below, join};

/// Where roots come from and are kept.
#[derive(Debug, Clone)]
pub(super) struct Roots {
    pub(super) cache: RootfsCache,
    pub(super) images: Option<Arc<dyn Images>>,
    /// The runtime gives a file system in memory the mode of the directory that it is mounted on, whatever it is told.
    pub(super) modes_from_below: bool,
}

/// A root that stays as long as this does.
#[derive(Debug)]
pub(super) struct HeldRootfs {
    /// On this host.
    pub path: PathBuf,
    /// Targets of the mounts that lie behind links in it.
    pub moved: Moved,
    _held: Option<CacheLease>,
}

/// What the runtime mounts besides the spec's.
const OWN_MOUNTS: [&str; 2] = ["/proc", "/dev"];

impl Roots {
    /// Makes a root ready. The same again is quick.
    ///
    /// # Errors
    /// It is not there, cannot be used, or lacks a mount point.
    pub(super) fn ready(
        &self,
        root: &Rootfs,
        mounts: &[Mounted],
        told: &dyn Fn(Progress),
    ) -> Result<HeldRootfs, Failure> {
        let ready = self.whole(root, mounts, told)?;
        answers_at_once(&ready.path)?;
        Ok(ready)
    }

    /// What the image of a reference runs when nothing else is named.
    ///
    /// # Errors
    /// There is no such image, or no store that could have it.
    pub(super) fn command(&self, reference: &str, told: &dyn Fn(Progress)) -> Result<ImageCommand, Failure> {
        self.store(reference)?.command(reference, told)
    }

    fn store(&self, reference: &str) -> Result<&dyn Images, Failure> {
        self.images.as_deref().ok_or_else(|| {
            Failure::new(
                FailedStep::Image,
                format!("{reference} is an image's name, and there is no engine here that has images"),
            )
            .hint("give a directory with --root ./DIR, or a tarball with --image /path/to/root.tar")
        })
    }

    fn whole(&self, root: &Rootfs, mounts: &[Mounted], told: &dyn Fn(Progress)) -> Result<HeldRootfs, Failure> {
        match root {
            Rootfs::Directory(path) => {
                let moved = in_tree(path, mounts)?;
                lacks_nothing(path, &points(mounts), true, self.modes_from_below)?;
                self.sources(mounts)?;
                Ok(HeldRootfs { path: path.clone(), moved, _held: None })
            }
            Rootfs::Made(entries) => {
                self.sources(mounts)?;
                // Its links are ours, and no mount lies behind one.
                let (points, moved) = (points(mounts), placed(mounts, &|_| Ok(None))?);
                let key = key_of("made", &(entries, &points));
                let held = match self.cache.get(&key)? {
                    Some(held) => held,
                    None => self.cache.make(|rootfs| {
                        made(rootfs, entries, &points).map_err(|e| failed("cannot make a root in", rootfs, &e))?;
                        Ok((key, 4096 * (entries.len() + points.len()) as u64))
                    })?,
                };
                Ok(HeldRootfs { path: held.rootfs.clone(), moved, _held: Some(held) })
            }
            Rootfs::Tarball(path) => {
                self.sources(mounts)?;
                self.with_points(unpack::tarball(&self.cache, path, told)?, mounts)
            }
            Rootfs::Image(reference) => {
                self.sources(mounts)?;
                let images = self.store(reference)?;
                let id = images.id(reference, told)?;
                let Some(hash) = id.strip_prefix("sha256:").filter(|hash| hash.len() == 64) else {
                    let hint = "give a directory with --root ./DIR, or a tarball".to_owned();
                    return Err(Failure::new(FailedStep::Image, format!("the engine says no content of {reference}"))
                        .hint(hint));
                };
                let held = match self.cache.get(&format!("image-{hash}"))? {
                    Some(held) => held,
                    None => unpack::image(&self.cache, images, &id, reference, told)?,
                };
                self.with_points(held, mounts)
            }
        }
    }

    fn with_points(&self, held: CacheLease, mounts: &[Mounted]) -> Result<HeldRootfs, Failure> {
        let moved = in_tree(&held.rootfs, mounts)?;
        let points = points(mounts);
        let cannot = |e: std::io::Error| failed("cannot make mount points in", &held.rootfs, &e);
        let tree = RootfsTree::open(&held.rootfs).map_err(cannot)?;
        for point in &points {
            let added = add_point(&tree, point).and_then(|()| {
                point.mode.filter(|_| self.modes_from_below).map_or(Ok(()), |mode| tree.set_mode(&point.target, mode))
            });
            added.map_err(|e| match e.raw_os_error().map(Errno::from_raw_os_error) {
                // Nothing is made behind a link that leads to nothing in there: that could be the host's.
                Some(Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::NOENT | Errno::EXIST) => {
                    Failure::new(FailedStep::Image, format!("the image has nothing to mount {} on: {e}", point.target))
                        .hint(NO_PLACE)
                }
                _ => cannot(e),
            })?;
        }
        Ok(HeldRootfs { path: held.rootfs.clone(), moved, _held: Some(held) })
    }

    /// Mount points that lie in what is bound must be there: a runtime would make them on the host.
    fn sources(&self, mounts: &[Mounted]) -> Result<(), Failure> {
        for (i, mount) in mounts.iter().enumerate() {
            // What the root has is looked at there.
            let Some(j) = mounts[..i].iter().rposition(|m| below(mount.target(), m.target()).is_some()) else {
                continue;
            };
            if let (Mounted::Bind { source, target, directory: true, .. }, Some(rest)) =
                (&mounts[j], below(mount.target(), mounts[j].target()))
            {
                if rest.is_empty() {
                    continue; // over the whole of it
                }
                let point = point(mount, join("/", rest));
                lacks_nothing(source, &[point], false, self.modes_from_below).map_err(|failure| Failure {
                    message: format!("{} (mounted at {target})", failure.message),
                    ..failure
                })?;
            }
        }
        Ok(())
    }
}

/// Where something is mounted on the root itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct RootfsMountPoint {
    /// Absolute path inside.
    pub target: String,
    /// A directory; otherwise a file.
    pub directory: bool,
    /// Mode of what is mounted, where that is a file system in memory that can be written.
    pub mode: Option<u32>,
}

/// What a path of the sandbox is on, as mounts lie.
#[derive(Debug, PartialEq, Eq)]
enum Under {
    Root,
    Memory,
    Host(PathBuf),
}

fn under(mounts: &[Mounted], target: &str) -> Under {
    let nearest = mounts.iter().rev().find_map(|mount| Some((mount, below(target, mount.target())?)));
    match nearest {
        Some((Mounted::Tmpfs { .. }, _)) => Under::Memory,
        Some((Mounted::Bind { source, .. }, rest)) => Under::Host(source.join(rest)),
        None if OWN_MOUNTS.iter().any(|own| below(target, own).is_some()) => Under::Memory,
        None => Under::Root,
    }
}

fn point(mount: &Mounted, target: String) -> RootfsMountPoint {
    let mode = if let Mounted::Tmpfs { mode, writable: true, .. } = mount { Some(*mode) } else { None };
    let directory = matches!(mount, Mounted::Tmpfs { .. } | Mounted::Bind { directory: true, .. });
    RootfsMountPoint { target, directory, mode }
}

/// The mount points that a root must have.
pub(super) fn points(mounts: &[Mounted]) -> Vec<RootfsMountPoint> {
    let mut points: Vec<RootfsMountPoint> =
        OWN_MOUNTS.iter().map(|own| RootfsMountPoint { target: (*own).into(), directory: true, mode: None }).collect();
    for (i, mount) in mounts.iter().enumerate() {
        let target = mount.target().trim_end_matches('/');
        if !target.is_empty() && under(&mounts[..i], target) == Under::Root {
            points.push(point(mount, target.into()));
        }
    }
    points.sort();
    points.dedup_by(|a, b| a.target == b.target);
    points
}

/// Where mounts come to lie in a root that is there.
fn in_tree(root: &Path, mounts: &[Mounted]) -> Result<Moved, Failure> {
    let tree = RootfsTree::open(root).map_err(|e| {
        Failure::new(FailedStep::Image, format!("cannot use {}: {e}", root.display()))
            .hint("name a directory that is there")
    })?;
    placed(mounts, &|path| tree.link_at(path))
}

fn lacks_nothing(root: &Path, points: &[RootfsMountPoint], is_root: bool, modes: bool) -> Result<(), Failure> {
    let tree = RootfsTree::open(root).map_err(|e| {
        Failure::new(FailedStep::Image, format!("cannot use {}: {e}", root.display()))
            .hint("name a directory that is there")
    })?;
    for point in points {
        let there = tree.there(&point.target).map_err(|e| {
            let at = format!("{}{}", root.display(), point.target);
            Failure::new(FailedStep::Image, format!("cannot look at {at}: {e}"))
                .hint("name a directory that this user can search")
        })?;
        let wanted = if point.directory { There::Directory } else { There::Other };
        if there == wanted {
            let mode = point.mode.filter(|_| modes).map(|wanted| Ok((wanted, tree.mode(&point.target)?)));
            let mode = mode.transpose().map_err(|e: std::io::Error| {
                Failure::new(FailedStep::Image, format!("cannot look at {}{}: {e}", root.display(), point.target))
                    .hint("mount it elsewhere")
            })?;
            match mode.filter(|(wanted, found)| wanted != found) {
                None => continue,
                Some((wanted, found)) => {
                    let at = format!("{}{}", root.display(), point.target);
                    let message =
                        format!("runc would mount with the mode of {at}, which is {found:o}, and {wanted:o} is needed");
                    return Err(Failure::new(FailedStep::Image, message)
                        .hint(format!("chmod {wanted:o} {at}, or use --backend oci:crun")));
                }
            }
        }
        let at = format!("{}{}", root.display(), point.target);
        let kind = if point.directory { "directory" } else { "file" };
        let message = match there {
            There::Missing if is_root => format!("the root has no {kind} {} to mount on", point.target),
            There::Missing => format!("there is no {kind} {at} to mount on"),
            _ => format!("{at} is not a {kind}, and one is to be mounted there"),
        };
        let hint = match there {
            There::Missing if point.directory => format!("mkdir -p {at}: it is not changed for you"),
            There::Missing => format!("touch {at}: it is not changed for you"),
            _ => "mount it elsewhere".into(),
        };
        return Err(Failure::new(FailedStep::Image, message).hint(hint));
    }
    Ok(())
}

/// No FIFO is where a runtime reads users and groups: it would wait there for ever, before anything of ours runs.
fn answers_at_once(root: &Path) -> Result<(), Failure> {
    for list in ["/etc/passwd", "/etc/group"] {
        let at = format!("{}{list}", root.display());
        let found = RootfsTree::open(root).and_then(|tree| tree.is_fifo(list));
        // Who may not look there is told by the runtime, which may not either.
        if found.unwrap_or(false) {
            let message = format!("{at} is a FIFO, on which a runtime waits for ever");
            return Err(Failure::new(FailedStep::Image, message).hint(format!("put a file there, or none: rm {at}")));
        }
    }
    Ok(())
}

/// Of these paths inside, which are to be hidden, those that are there, and whether each is a directory.
///
/// # Errors
/// One cannot be looked at: whether it is there is not known, and it would not be hidden.
pub(super) fn kinds(root: &Path, mounts: &[Mounted], paths: &[String]) -> Result<Vec<(String, bool)>, Failure> {
    let tree = match RootfsTree::open(root) {
        Err(e) if e.kind() == ErrorKind::NotFound => None, // it is only shown, and not made yet
        tree => Some(tree),
    };
    let there = |path: &String| match under(mounts, path) {
        Under::Memory => Ok(There::Missing),
        Under::Root => match &tree {
            None => Ok(There::Missing),
            Some(Ok(tree)) => tree.there(path),
            Some(Err(e)) => Err(std::io::Error::new(e.kind(), e.to_string())),
        },
        Under::Host(source) => match std::fs::symlink_metadata(&source) {
            Ok(found) if found.is_dir() => Ok(There::Directory),
            Ok(_) => Ok(There::Other),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(There::Missing),
            Err(e) => Err(e),
        },
    };
    let mut kinds = Vec::new();
    for path in paths {
        let there = there(path).map_err(|e| {
            let hint = "deny a directory above it, or use --backend jail";
            Failure::new(FailedStep::Image, format!("cannot look at {path}, which is to be hidden: {e}")).hint(hint)
        })?;
        if there == There::Missing {
            continue;
        }
        // What hides it is a mount, which a link would lead elsewhere.
        let at = match (&tree, under(mounts, path)) {
            (Some(Ok(tree)), Under::Root) => single(path, mounts, &|path| tree.link_at(path))?,
            _ => path.clone(),
        };
        kinds.push((at, there == There::Directory));
    }
    Ok(kinds)
}

/// Where a device would be one inside: the root, which no runtime mounts nodev, and what is bound where `binds` are not
/// nodev either. The system's own trees hold none.
pub(crate) fn with_devices(root: &Path, mounts: &[Mounted], binds: bool) -> Vec<PathBuf> {
    let bound = if binds { bound(mounts) } else { Vec::new() };
    std::iter::once(root.to_owned()).chain(bound).collect()
}

/// What of the host is bound, without the system's own trees.
pub(super) fn bound(mounts: &[Mounted]) -> Vec<PathBuf> {
    const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/sys"];
    let system = |path: &Path| SYSTEM.iter().any(|system| path.starts_with(system));
    let bound = mounts.iter().filter_map(|mount| match mount {
        Mounted::Bind { source, .. } if !system(source) => Some(source.clone()),
        _ => None,
    });
    bound.collect()
}

fn key_of(kind: &str, what: &impl Serialize) -> String {
    // Of plain data, so that there is always JSON of it; without, every root would be the same one.
    let text = serde_json::to_vec(what).unwrap_or_else(|e| {
        cofferdam_audit::random::uuid().into_bytes().into_iter().chain(e.to_string().into_bytes()).collect()
    });
    format!("{kind}-{}", hex(&Sha256::digest(text)))
}

fn made(rootfs: &Path, entries: &[RootEntry], points: &[RootfsMountPoint]) -> std::io::Result<()> {
    let tree = RootfsTree::open(rootfs)?;
    for entry in entries {
        match entry {
            RootEntry::Directory { path, mode } => drop(tree.directory(path, *mode)?),
            RootEntry::Link { path, says } => tree.link(path, says)?,
        }
    }
    points.iter().try_for_each(|point| add_point(&tree, point))
}

fn add_point(tree: &RootfsTree, point: &RootfsMountPoint) -> std::io::Result<()> {
    if point.directory {
        tree.directory(&point.target, point.mode.unwrap_or(0o755)).map(drop)
    } else {
        tree.file(&point.target)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::CacheBounds;
    use super::*;

    fn bind(source: &Path, target: &str, directory: bool) -> Mounted {
        Mounted::Bind { source: source.into(), target: target.into(), writable: true, exec: true, directory }
    }

    fn tmpfs(target: &str) -> Mounted {
        Mounted::Tmpfs { target: target.into(), bytes: 4096, mode: 0o755, exec: false, writable: true }
    }

    fn roots(state: &Path) -> Roots {
        Roots { cache: RootfsCache::new(state, CacheBounds::default()), images: None, modes_from_below: false }
    }

    fn point(target: &str, directory: bool) -> RootfsMountPoint {
        RootfsMountPoint { target: target.into(), directory, mode: None }
    }

    #[test]
    fn a_root_needs_what_is_mounted_on_it_and_nothing_of_what_is_mounted_on_a_mount() {
        let mounts = [
            Mounted::Tmpfs { target: "/sys".into(), bytes: 4096, mode: 0o755, exec: false, writable: false },
            bind(Path::new("/sys/devices"), "/sys/devices", true),
            bind(Path::new("/etc/hosts"), "/etc/hosts", false),
            tmpfs("/dev/shm"),
            tmpfs("/tmp"),
            bind(Path::new("/srv"), "/tmp/work", true),
        ];
        let expected = [
            point("/dev", true),
            point("/etc/hosts", false),
            point("/proc", true),
            point("/sys", true),
            RootfsMountPoint { mode: Some(0o755), ..point("/tmp", true) },
        ];
        assert_eq!(points(&mounts), expected);
    }

    #[test]
    fn a_directory_is_used_as_it_is_and_what_it_lacks_is_said() {
        let state = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = Rootfs::Directory(dir.path().into());
        let ready = |mounts: &[Mounted]| roots(state.path()).ready(&root, mounts, &|_| {});
        for (lacking, what) in
            [("dev", "directory"), ("etc/hosts", "file"), ("proc", "directory"), ("sys", "directory")]
        {
            let mounts = [tmpfs("/sys"), bind(Path::new("/etc/hosts"), "/etc/hosts", false)];
            let failure = ready(&mounts).unwrap_err();
            assert!(failure.message.contains(&format!("no {what} /{lacking} ")), "{failure:?}");
            assert!(failure.hint.unwrap().contains(&format!("{}/{lacking}", dir.path().display())));
            let at = dir.path().join(lacking);
            if what == "file" {
                std::fs::create_dir(dir.path().join("etc")).unwrap();
                std::fs::write(at, "").unwrap();
            } else {
                std::fs::create_dir(at).unwrap();
            }
        }
        let mounts = [tmpfs("/sys"), bind(Path::new("/etc/hosts"), "/etc/hosts", false)];
        assert_eq!(ready(&mounts).unwrap().path, dir.path());
        let failure = ready(&[bind(Path::new("/etc"), "/etc/hosts", true)]).unwrap_err();
        assert!(failure.message.contains("is not a directory"), "{failure:?}");
        assert!(!state.path().join("roots").exists(), "nothing of it is kept");
    }

    #[test]
    fn modes_of_mount_points_count_where_the_runtime_takes_them() {
        let state = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        for name in ["dev", "proc", "tmp"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mounts = [Mounted::Tmpfs { target: "/tmp".into(), bytes: 4096, mode: 0o1777, exec: false, writable: true }];
        let root = Rootfs::Directory(dir.path().into());
        let ready = |modes_from_below| {
            Roots { modes_from_below, ..roots(state.path()) }.ready(&root, &mounts, &|_| {}).map(|root| root.path)
        };
        use std::os::unix::fs::PermissionsExt;
        let set =
            |mode| std::fs::set_permissions(dir.path().join("tmp"), std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o755);
        let failure = ready(true).unwrap_err();
        assert!(failure.message.contains("is 755, and 1777 is needed"), "{failure:?}");
        assert!(ready(false).is_ok());
        set(0o1777);
        assert!(ready(true).is_ok());
    }

    #[test]
    fn nothing_is_made_in_what_is_bound() {
        let state = tempfile::tempdir().unwrap();
        let project = tempfile::tempdir().unwrap();
        let mounts = [bind(project.path(), "/work", true), tmpfs("/work/scratch")];
        let ready = || roots(state.path()).ready(&Rootfs::Made(Vec::new()), &mounts, &|_| {});
        let failure = ready().unwrap_err();
        assert!(failure.message.contains("scratch") && failure.message.contains("/work"), "{failure:?}");
        assert!(!project.path().join("scratch").exists());
        std::fs::create_dir(project.path().join("scratch")).unwrap();
        assert!(ready().is_ok());
    }

    #[test]
    fn a_made_root_holds_what_was_asked_for_and_is_the_same_one_again() {
        let state = tempfile::tempdir().unwrap();
        let entries = vec![
            RootEntry::Link { path: "/bin".into(), says: "usr/bin".into() },
            RootEntry::Directory { path: "/home/me".into(), mode: 0o700 },
        ];
        let mounts =
            [bind(Path::new("/usr"), "/usr", true), tmpfs("/tmp"), bind(Path::new("/etc/hosts"), "/etc/hosts", false)];
        let root = Rootfs::Made(entries);
        let first = roots(state.path()).ready(&root, &mounts, &|_| {}).unwrap();
        assert_eq!(std::fs::read_link(first.path.join("bin")).unwrap(), Path::new("usr/bin"));
        for directory in ["home/me", "usr", "tmp", "proc", "dev"] {
            assert!(first.path.join(directory).is_dir(), "{directory}");
        }
        assert!(first.path.join("etc/hosts").is_file());
        assert_eq!(roots(state.path()).ready(&root, &mounts, &|_| {}).unwrap().path, first.path);
        let other = roots(state.path()).ready(&root, &mounts[..1], &|_| {}).unwrap();
        assert_ne!(other.path, first.path);
    }

    #[test]
    fn an_image_without_an_engine_is_refused_with_an_alternative() {
        let state = tempfile::tempdir().unwrap();
        let failure = roots(state.path()).ready(&Rootfs::Image("alpine".into()), &[], &|_| {}).unwrap_err();
        assert!(failure.message.contains("alpine") && failure.hint.unwrap().contains("--root"));
    }

    #[test]
    fn what_a_mask_covers_is_looked_at_where_it_is() {
        let root = tempfile::tempdir().unwrap();
        let project = tempfile::tempdir().unwrap();
        std::fs::create_dir(project.path().join(".git")).unwrap();
        std::fs::write(project.path().join(".env"), "").unwrap();
        std::fs::write(root.path().join("secret"), "").unwrap();
        let mounts = [bind(project.path(), "/work", true), tmpfs("/tmp")];
        let paths = ["/work/.git", "/work/.env", "/work/none", "/secret", "/tmp/x", "/proc/keys"].map(str::to_owned);
        let expected = [("/work/.git", true), ("/work/.env", false), ("/secret", false)];
        assert_eq!(kinds(root.path(), &mounts, &paths).unwrap(), expected.map(|(path, dir)| (path.to_owned(), dir)));
    }

    #[test]
    fn what_is_to_be_hidden_and_cannot_be_looked_at_is_refused() {
        let (root, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [root.path(), project.path()] {
            std::os::unix::fs::symlink("round", dir.join("round")).unwrap();
            std::fs::write(dir.join("file"), "").unwrap();
        }
        let mounts = [bind(project.path(), "/work", true)];
        for (path, there) in
            [("/round/secret", None), ("/work/round/secret", None), ("/file/none", Some(0)), ("/file", Some(1))]
        {
            match (kinds(root.path(), &mounts, &[path.to_owned()]), there) {
                (Ok(found), Some(there)) => assert_eq!(found.len(), there, "{path}"),
                (Err(failure), None) => {
                    assert!(failure.message.contains(path) && failure.hint.is_some(), "{failure:?}");
                }
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(kinds(Path::new("/no/such/root"), &mounts, &["/secret".to_owned()]), Ok(Vec::new()));
    }
}
