//! Whether the directories that were looked at before a run are still where they were. Their user may rename them at any time,
//! and what is looked for by a path is then not found, or is another directory.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use serde::{Deserialize, Serialize};

use super::obeyed::place_of;
use super::{IndexTargets, RepositoriesBefore, WorkTree};

/// Names below the volumes of a run among which a directory is looked for that has moved.
const MOST_NAMES: usize = 20_000;

/// Which directory it is, by whatever name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    /// When it was made, in nanoseconds, where the file system knows: the number of an inode is given again.
    made: Option<u64>,
}

/// Directories that the program cannot rename: volumes, and what is around or outside of them.
pub(super) type PlaceIdentities = BTreeMap<PathBuf, Identity>;

impl Identity {
    fn of(directory: &Path) -> Option<Identity> {
        let about = std::fs::metadata(directory).ok().filter(std::fs::Metadata::is_dir)?;
        let made = about.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let made = made.and_then(|made| u64::try_from(made.as_nanos()).ok()).filter(|&made| made > 0);
        Some(Identity { device: about.dev(), inode: about.ino(), made })
    }

    /// Whether it is the same. A disk may have another number once it is mounted again, and some file systems give an inode
    /// another one; none changes when a directory was made.
    fn is_at(&self, path: &Path) -> bool {
        Identity::of(path).is_some_and(|there| match (self.made, there.made) {
            (Some(was), Some(is)) => was == is,
            _ => (self.device, self.inode) == (there.device, there.inode),
        })
    }

    /// The same of another path than that at which it was: many directories are asked.
    fn moved_to(&self, path: &Path) -> bool {
        self.is_at(path) && Identity::of(path).is_some_and(|there| there.inode == self.inode)
    }
}

/// The directories without which a look after the run would not find what one before it has found.
pub(super) fn places<'d>(
    volumes: &'d [PathBuf],
    tops: &'d [(WorkTree, IndexTargets)],
    followed: impl Iterator<Item = &'d PathBuf>,
) -> PlaceIdentities {
    let touches = |tree: &Path| volumes.iter().any(|volume| tree.starts_with(volume) || volume.starts_with(tree));
    let trees = tops.iter().map(|(top, _)| (top.tree.as_path(), top.index.parent()));
    // The tree of another directory of version control is the one around it.
    let others = followed.filter_map(|directory| {
        let tree = if volumes.contains(directory) { directory } else { directory.parent()? };
        Some((tree, Some(directory.as_path())))
    });
    let mut all: Vec<&Path> = Vec::new();
    for (tree, directory) in trees.chain(others).filter(|(tree, _)| touches(tree)) {
        let about = |volume: &&Path| tree.starts_with(volume) || volume.starts_with(tree);
        all.extend(volumes.iter().map(PathBuf::as_path).filter(about));
        all.extend([Some(tree), directory].into_iter().flatten());
    }
    // What lies in a volume is the program's to rename.
    all.retain(|path| !volumes.iter().any(|volume| path.starts_with(volume) && *path != volume));
    all.into_iter().filter_map(|path| Some((path.to_owned(), Identity::of(path)?))).collect()
}

/// A directory that is kept open while a run goes on, and so can be found under another name.
#[derive(Debug)]
pub(super) struct OpenPlace {
    path: PathBuf,
    open: OwnedFd,
}

/// Where such a directory is after the run.
pub(super) enum Whereabouts {
    /// At another path, where that is known.
    Moved(Option<PathBuf>),
    Removed,
}

impl OpenPlace {
    pub(super) fn all(places: &PlaceIdentities) -> Vec<OpenPlace> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &PathBuf| openat(CWD, path, flags, Mode::empty()).ok();
        places.keys().filter_map(|path| Some(OpenPlace { path: path.clone(), open: open(path)? })).collect()
    }

    /// Where it is now.
    fn now(&self) -> Whereabouts {
        let Ok(opened) = fstat(&self.open) else { return Whereabouts::Moved(None) };
        let Some(path) = place_of(self.open.as_fd()) else { return Whereabouts::Moved(None) };
        match std::fs::symlink_metadata(&path) {
            Ok(there) if (there.dev(), there.ino()) == (opened.st_dev, opened.st_ino) => Whereabouts::Moved(Some(path)),
            _ if opened.st_nlink == 0 || path.to_string_lossy().ends_with(" (deleted)") => Whereabouts::Removed,
            _ => Whereabouts::Moved(None),
        }
    }
}

impl RepositoriesBefore {
    /// The recorded directories that are not at their paths.
    fn away(&self) -> impl Iterator<Item = (&PathBuf, &Identity)> {
        self.places.iter().filter(|(path, identity)| !identity.is_at(path))
    }

    /// What is not where it was before the run, each with where it is now.
    pub(super) fn away_now(&self, open: &[OpenPlace]) -> Vec<(PathBuf, Whereabouts)> {
        let now =
            |path: &PathBuf| open.iter().find(|one| &one.path == path).map_or(Whereabouts::Moved(None), OpenPlace::now);
        self.away().map(|(path, _)| (path.clone(), now(path))).collect()
    }

    /// Forgets directories that are no more.
    pub(super) fn without(mut self, removed: &[&PathBuf]) -> RepositoriesBefore {
        self.places.retain(|path, _| !removed.contains(&path));
        self.volumes.retain(|path| !removed.contains(&path));
        self
    }

    /// The same about directories that have moved to where these volumes are, hold them, or lie in them.
    pub(super) fn found_in(self, volumes: &[PathBuf]) -> RepositoriesBefore {
        let mut found: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
        let mut left = MOST_NAMES;
        // What is around others comes before them.
        for (path, identity) in self.away() {
            let with_another = moved(path, &found).filter(|path| identity.moved_to(path));
            if let Some(now) = with_another.or_else(|| search(identity, volumes, &mut left)) {
                found.insert(path.clone(), now);
            }
        }
        if found.is_empty() { self } else { self.at(&found) }
    }

    fn at(self, found: &BTreeMap<PathBuf, PathBuf>) -> RepositoriesBefore {
        let to = |path: PathBuf| moved(&path, found).unwrap_or(path);
        let target = |mut seen: IndexTargets| {
            seen.remotes = seen.remotes.into_iter().map(|(path, print)| (to(path), print)).collect();
            seen
        };
        let tops = self.tops.into_iter();
        RepositoriesBefore {
            volumes: self.volumes.into_iter().map(to).collect(),
            tops: tops
                .map(|(top, seen)| (WorkTree { tree: to(top.tree), index: to(top.index) }, target(seen)))
                .collect(),
            followed: self.followed.into_iter().map(|(path, known)| (to(path), known)).collect(),
            paths: self.paths.into_iter().map(|(path, print)| (to(path), print)).collect(),
            places: self.places.into_iter().map(|(path, identity)| (to(path), identity)).collect(),
        }
    }

    /// What can be looked at, and what is about directories that are not where they were.
    pub(super) fn parted(self) -> (RepositoriesBefore, Option<RepositoriesBefore>) {
        let gone: Vec<PathBuf> = self.away().map(|(path, _)| path.clone()).collect();
        if gone.is_empty() {
            return (self, None);
        }
        let is_gone = |path: &Path| gone.iter().any(|gone| path.starts_with(gone));
        let (volumes_away, volumes) = self.volumes.into_iter().partition(|path| is_gone(path));
        let (tops_away, tops) = self.tops.into_iter().partition(|(top, _)| is_gone(&top.tree) || is_gone(&top.index));
        let (followed_away, followed) = self.followed.into_iter().partition(|(path, _)| is_gone(path));
        let (paths_away, paths) = self.paths.into_iter().partition(|(path, _)| is_gone(path));
        let (places_away, places) = self.places.into_iter().partition(|(path, _)| is_gone(path));
        let away = RepositoriesBefore {
            volumes: volumes_away,
            tops: tops_away,
            followed: followed_away,
            paths: paths_away,
            places: places_away,
        };
        (RepositoriesBefore { volumes, tops, followed, paths, places }, Some(away))
    }

    /// The first of its directories, which names it for people.
    pub(super) fn place(&self) -> Option<&Path> {
        self.places.keys().next().map(PathBuf::as_path)
    }
}

/// Where a path is once these directories have moved.
fn moved(path: &Path, found: &BTreeMap<PathBuf, PathBuf>) -> Option<PathBuf> {
    path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        let now = found.get(above)?;
        Some(if rest.as_os_str().is_empty() { now.clone() } else { now.join(rest) })
    })
}

/// Looks for a directory among these, those above them and those below them, the nearest first.
fn search(identity: &Identity, volumes: &[PathBuf], left: &mut usize) -> Option<PathBuf> {
    let mut above = volumes.iter().flat_map(|volume| volume.ancestors());
    if let Some(found) = above.find(|path| identity.moved_to(path)) {
        return Some(found.to_owned());
    }
    let mut next: VecDeque<PathBuf> = volumes.iter().cloned().collect();
    while let Some(directory) = next.pop_front() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            *left = left.checked_sub(1)?;
            // A link is no directory here, and leads nowhere.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let path = entry.path();
                if identity.moved_to(&path) {
                    return Some(path);
                }
                next.push_back(path);
            }
        }
    }
    None
}
