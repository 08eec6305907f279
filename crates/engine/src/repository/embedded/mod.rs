//! Repositories in a work tree that git outside obeys from its top: those that the index has an entry for, which is how git
//! knows a submodule.
//!
//! `git status` runs git in each of them, by the configuration that lies there. What a volume shows of them may be written by
//! the program, and so may the index. So they are looked at before a run and after it, when its processes are dead: one that
//! is new or obeys something else, and could run programs, has its `.git` renamed.
//!
//! ```text
//! before: volumes ─▶ work trees ─▶ index ─▶ entries ─▶ what each obeys      (hashes)
//! after:  the same ─▶ as before? plain? ── no ─▶ rename, and say so
//! ```
//!
//! Everything below a work tree is opened beneath it without following a link. Nothing of git's is run. An entry behind a link is
//! none that git makes, though some of its commands follow it: the link is renamed, unless it led there before.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, ResolveFlags, fstat, openat, openat2, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::plan::tree::Disk;
use crate::repository::configurations::relative_programs;
use crate::repository::git_index;
use crate::repository::git_index::{Entries, MOST_INDEX};
use crate::repository::protected_names::{MOST_WORKTREES, is_git_directory};

mod addresses;
mod config_values;
mod followed;
mod lists;
mod mercurial;
mod named;
mod obeyed;
mod pending;
mod places;
mod remotes;
mod work_trees;

use addresses::Destinations;
use followed::Followed;
use named::names_others;
use obeyed::{FoundRepository, Print, Scope, absent, beneath, find, hash, read, read_itself};
pub(crate) use pending::RepositoryWatch;
pub(crate) use pending::watches;
use places::{PlaceIdentities, places};
use remotes::{Remote, remotes_of};
use work_trees::Restored;

/// Repositories that are looked at below one work tree, at most. Where there are more, its index counts as not understood.
const MOST: usize = 10_000;
/// How deep repositories are looked for in repositories.
const DEPTH: usize = 16;
/// How often everything is looked at after a run, at most: what is renamed must not make anything else be found.
const LOOKS: usize = 8;
/// What a name gets that git is not to find, and a random part behind it ([`disable_in`]).
const SUFFIX: &str = ".disabled";
/// The same for a reference and its log: git passes over such a file, and no reference has such a name. With another suffix it
/// would be a reference again, which `HEAD` could name.
const SUFFIX_OF_REFERENCES: &str = ".disabled.lock";

/// A work tree whose index is looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename = "Top")]
struct WorkTree {
    tree: PathBuf,
    index: PathBuf,
}

/// What stood there before a run.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Before")]
pub(crate) struct RepositoriesBefore {
    /// The directories that the program may write.
    #[serde(default)]
    volumes: Vec<PathBuf>,
    tops: Vec<(WorkTree, IndexTargets)>,
    /// What leads elsewhere in each directory of version control.
    followed: BTreeMap<PathBuf, Followed>,
    /// What the repositories obey that paths of Mercurial's lead to.
    #[serde(default)]
    paths: mercurial::PathTargets,
    /// Which directories stood there. A record of an older Cofferdam has none.
    #[serde(default)]
    places: PlaceIdentities,
}

/// What the index of a work tree leads to.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Seen")]
struct IndexTargets {
    /// What each embedded repository obeys, by its path.
    repositories: BTreeMap<PathBuf, Print>,
    /// The hashes of the indexes that are not understood, by the path of their repository.
    unread: BTreeMap<PathBuf, Print>,
    /// What each repository obeys that a remote leads to, by its place.
    #[serde(default)]
    remotes: BTreeMap<PathBuf, Print>,
}

/// What was done after a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mended {
    /// What was renamed, and the name that it has now.
    pub renamed: Vec<(PathBuf, PathBuf)>,
    /// What could not be, and why.
    pub failed: Vec<(PathBuf, String)>,
    /// The same of links on the way to an entry of an index.
    pub behind: Vec<(PathBuf, PathBuf)>,
    /// The same of what a tool would follow out of its directory.
    pub unlinked: Vec<(PathBuf, PathBuf)>,
    /// Whether a `gitdir` says again what it said.
    pub restored: bool,
    /// Whether one could not be made to say that again.
    pub unrestored: bool,
    /// What could not be renamed of that, or not be looked at, and why.
    pub followed: Vec<(PathBuf, String)>,
    /// What could not be looked at before the run either, and why.
    pub unseen: Vec<(PathBuf, String)>,
}

/// Looks at the work trees that these directories are in, or hold at their top.
pub(crate) fn before(volumes: &[String]) -> RepositoriesBefore {
    let tops: BTreeSet<WorkTree> = volumes.iter().flat_map(|volume| tops(Path::new(volume))).collect();
    let hooks = relative_programs(&Disk, &[]);
    let writable: Vec<PathBuf> = volumes.iter().filter_map(|volume| std::fs::canonicalize(volume).ok()).collect();
    let callers = Destinations::of_every_repository(&Disk);
    let scope = Scope { hooks: &hooks, volumes: &writable, callers: &callers };
    let tops: Vec<(WorkTree, IndexTargets)> = tops
        .into_iter()
        .map(|top| {
            let seen = see(&top, scope);
            (top, seen)
        })
        .collect();
    let mut git: Vec<PathBuf> = Vec::new();
    for (top, seen) in &tops {
        git.extend(top.index.parent().map(Path::to_owned));
        git.extend(seen.repositories.keys().map(|at| top.tree.join(at).join(".git")));
    }
    let directories: BTreeSet<PathBuf> =
        volumes.iter().flat_map(|volume| followed::directories(Path::new(volume), &git)).collect();
    let look = |directory: PathBuf| {
        let found = match followed::open(&directory) {
            Ok(opened) => followed::look(opened.as_fd(), false),
            Err(e) => {
                let unseen = (!absent(e)).then(|| (PathBuf::new(), std::io::Error::from(e).to_string()));
                Followed { unseen, ..Followed::default() }
            }
        };
        (directory, found)
    };
    let paths = mercurial::see(directories.iter(), &writable);
    let places = places(&writable, &tops, directories.iter());
    RepositoriesBefore { volumes: writable, tops, followed: directories.into_iter().map(look).collect(), paths, places }
}

impl RepositoriesBefore {
    /// Whether there is nothing to look at again.
    pub(crate) fn is_empty(&self) -> bool {
        self.tops.is_empty() && self.followed.is_empty()
    }

    /// Leaves out what a look of another run did not see, which goes on: it may be that run's program's.
    fn as_also_seen_by(&mut self, others: &[RepositoriesBefore]) {
        for (directory, known) in &mut self.followed {
            for theirs in others.iter().filter_map(|other| other.followed.get(directory)) {
                known.links.retain(|at, print| theirs.links.get(at) == Some(print));
                // Whatever that run's program has it say now.
                known.work_trees.extend(theirs.work_trees.clone());
            }
        }
        self.paths.retain(|at, print| {
            others.iter().all(|other| match other.paths.get(at) {
                Some(theirs) => theirs == print,
                // That run began where nothing led there, or nothing was there; or is about other volumes.
                None => !other.volumes.iter().any(|volume| at.starts_with(volume)),
            })
        });
        for (top, seen) in &mut self.tops {
            for (_, theirs) in others.iter().flat_map(|other| &other.tops).filter(|(other, _)| other == top) {
                seen.repositories.retain(|at, print| theirs.repositories.get(at) == Some(print));
                seen.unread.retain(|at, print| theirs.unread.get(at) == Some(print));
                seen.remotes.retain(|at, print| theirs.remotes.get(at) == Some(print));
            }
        }
    }

    /// Looks again, and disables what is new, or obeys something else than before, and could run programs; until a look finds
    /// no more of it.
    pub(crate) fn mend(&self) -> Mended {
        let mut mended = Mended::default();
        if self.volumes.is_empty() && self.is_empty() {
            return mended; // nothing could be written
        }
        for left in (0..LOOKS).rev() {
            let mut again = self.look_again();
            let found = again.renamed.len() + again.behind.len();
            again.failed.retain(|one| !mended.failed.contains(one));
            again.followed.retain(|one| !mended.followed.contains(one));
            again.unseen.retain(|one| !mended.unseen.contains(one));
            if found > 0 && left == 0 {
                let last = again.renamed.iter().chain(&again.behind).next_back().map(|(path, _)| path.clone());
                let why = format!("more is found with each of {LOOKS} looks");
                again.failed.extend(last.map(|path| (path, why)));
            }
            mended.append(again);
            if found == 0 {
                break;
            }
        }
        mended
    }

    fn look_again(&self) -> Mended {
        let mut mended = Mended::default();
        let mut new = BTreeSet::new();
        let (hooks, callers) = (relative_programs(&Disk, &[]), Destinations::of_every_repository(&Disk));
        let scope = Scope { hooks: &hooks, volumes: &self.volumes, callers: &callers };
        for (top, seen) in &self.tops {
            let mut after = self.walk(top, scope, seen, &mut mended);
            after.index();
            new.extend(after.seen.repositories.into_keys().map(|at| top.tree.join(at).join(".git")));
        }
        let nothing = IndexTargets::default();
        for top in self.made() {
            let mut after = self.walk(&top, scope, &nothing, &mut mended);
            after.index();
            new.extend(after.seen.repositories.into_keys().map(|at| top.tree.join(at).join(".git")));
        }
        mercurial::mend(self.followed.keys(), &self.volumes, &self.paths, &mut mended);
        let none = Followed::default();
        let new = new.iter().filter(|directory| !self.followed.contains_key(*directory) && directory.is_dir());
        for (directory, known) in self.followed.iter().chain(new.map(|directory| (directory, &none))) {
            mended.unlink(directory, known);
        }
        mended
    }
}

impl RepositoriesBefore {
    fn walk<'a>(
        &'a self,
        top: &'a WorkTree,
        scope: Scope<'a>,
        known: &'a IndexTargets,
        mended: &'a mut Mended,
    ) -> RepositoryWalk<'a> {
        RepositoryWalk { top, scope, seen: IndexTargets::default(), known: Some((known, mended)) }
    }

    /// The linked work trees that were made in the volumes since.
    fn made(&self) -> BTreeSet<WorkTree> {
        let mut made: BTreeSet<WorkTree> = self.volumes.iter().flat_map(|volume| tops(volume)).collect();
        made.retain(|top| {
            !self.tops.iter().any(|(known, _)| known == top)
                && top.tree.symlink_metadata().is_ok()
                && self.volumes.iter().any(|volume| top.tree.starts_with(volume))
        });
        made
    }
}

fn see(top: &WorkTree, scope: Scope<'_>) -> IndexTargets {
    let mut walk = RepositoryWalk { top, scope, seen: IndexTargets::default(), known: None };
    walk.index();
    walk.seen
}

/// The work trees whose index git reads for a command in this directory, and those linked to them.
fn tops(volume: &Path) -> BTreeSet<WorkTree> {
    let mut found = BTreeSet::new();
    for above in volume.ancestors() {
        if above.join(".git").symlink_metadata().is_ok() {
            found.extend(git_directory(above).into_iter().flat_map(|git| tops_of(above, git)));
            break;
        }
        // That of a work tree is found with it.
        let is_bare = !above.ends_with(".git") && above.to_str().is_some_and(|above| is_git_directory(above, &Disk));
        if is_bare {
            found.extend(tops_of(above, above.to_owned()));
        }
    }
    found
}

/// The work tree of this repository, or the repository itself where it has none, and those linked to it.
fn tops_of(tree: &Path, git: PathBuf) -> BTreeSet<WorkTree> {
    let mut found = BTreeSet::new();
    found.insert(WorkTree { tree: tree.to_owned(), index: git.join("index") });
    let common = match read(CWD, &git.join("commondir"), 8192) {
        Ok(Some(text)) => git.join(OsStr::from_bytes(text.trim_ascii_end())),
        _ => git,
    };
    let linked = std::fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten().take(MOST_WORKTREES);
    for entry in linked {
        // It names the file `.git` of the work tree.
        let Ok(Some(text)) = read(CWD, &entry.path().join("gitdir"), 8192) else { continue };
        let file = entry.path().join(OsStr::from_bytes(text.trim_ascii_end()));
        if let Some(tree) = file.parent().and_then(|tree| std::fs::canonicalize(tree).ok()) {
            found.insert(WorkTree { tree, index: entry.path().join("index") });
        }
    }
    found
}

/// Where the repository of this work tree is.
fn git_directory(tree: &Path) -> Option<PathBuf> {
    let git = tree.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = read(CWD, &git, 8192).ok()??;
    let says = text.strip_prefix(b"gitdir:")?.trim_ascii();
    std::fs::canonicalize(tree.join(OsStr::from_bytes(says))).ok()
}

/// One look at all that is below a work tree. With what stood there before, it disables what must not be there.
struct RepositoryWalk<'a> {
    top: &'a WorkTree,
    scope: Scope<'a>,
    seen: IndexTargets,
    known: Option<(&'a IndexTargets, &'a mut Mended)>,
}

impl RepositoryWalk<'_> {
    fn index(&mut self) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A person who goes there follows what is put in its place.
        let how = ResolveFlags::NO_MAGICLINKS;
        let at = Path::new("");
        let mut opened = openat2(CWD, &self.top.tree, flags, Mode::empty(), how);
        if opened.as_ref().err() == Some(&Errno::ACCESS) && self.known.is_some() {
            permit_above(&self.top.tree);
            opened = openat2(CWD, &self.top.tree, flags, Mode::empty(), how);
        }
        let tree = match opened {
            Ok(tree) => tree,
            Err(e) => return self.unreachable(at, e),
        };
        let Some(git) = self.top.index.parent() else { return };
        let mut opened = openat(CWD, git, flags, Mode::empty());
        if opened.as_ref().err() == Some(&Errno::ACCESS) && self.known.is_some() {
            permit(tree.as_fd());
            opened = openat(CWD, git, flags, Mode::empty());
        }
        let git = match opened {
            Ok(git) => git,
            Err(e) => return self.unreachable(at, e),
        };
        self.remotes(tree.as_fd(), git.as_fd());
        if !self.below(tree.as_fd(), git.as_fd(), at, 0)
            && !self.unread(git.as_fd(), at)
            && let Some((_, mended)) = &mut self.known
        {
            mended.rename(git.as_fd(), OsStr::new("index"), &self.top.index);
        }
    }

    /// Looks at the repositories that a push goes to. One in a volume is disabled by the name of its directory.
    fn remotes(&mut self, tree: BorrowedFd<'_>, git: BorrowedFd<'_>) {
        for Remote { place, obeys, plain } in remotes_of(tree, git, self.scope, self.known.is_some()) {
            if let Some((known, mended)) = &mut self.known
                && !plain
                && (obeys.is_none() || known.remotes.get(&place) != Some(&obeys))
                // It has gone with a directory above it that was renamed.
                && !place.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
                // Of one that the program could not write, what it names may be the program's.
                && (self.scope.volumes.iter().any(|volume| place.starts_with(volume))
                    || names_others(known.remotes.get(&place), &obeys))
                && let (Some(parent), Some(name)) = (place.parent(), place.file_name())
            {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                match openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
                    Ok(parent) => mended.rename(parent.as_fd(), name, &place),
                    Err(e) => mended.failed.push((place.clone(), std::io::Error::from(e).to_string())),
                }
            }
            self.seen.remotes.insert(place, obeys);
        }
    }

    /// Takes note of a place that cannot be looked at. One that could be looked at before the run is a failure.
    fn unreachable(&mut self, at: &Path, e: Errno) {
        if absent(e) {
            return;
        }
        let now = Some(format!("cannot be looked at: {e}"));
        if let Some((known, mended)) = &mut self.known
            && known.repositories.get(at) != Some(&now)
        {
            let why = std::io::Error::from(e).to_string();
            mended.failed.push((self.top.tree.join(at).join(".git"), why));
        }
        self.seen.repositories.insert(at.to_owned(), now);
    }

    /// Takes note of an index that is not understood. True where it was so before: a newer git may write what this does not
    /// read.
    fn unread(&mut self, git: BorrowedFd<'_>, at: &Path) -> bool {
        let now = read(git, Path::new("index"), MOST_INDEX).ok().flatten().map(|bytes| hash(&[&bytes]));
        let same = self.known.as_ref().is_none_or(|(known, _)| known.unread.get(at) == Some(&now));
        self.seen.unread.insert(at.to_owned(), now);
        same
    }

    /// Looks at what the index in one repository has. False where that is not understood.
    fn below(&mut self, tree: BorrowedFd<'_>, git: BorrowedFd<'_>, at: &Path, depth: usize) -> bool {
        let Some(entries) = entries_in(git) else { return false };
        for path in &entries.collapsed {
            // The entries of a directory that is not there are about nothing.
            let collapsed = Path::new(OsStr::from_bytes(path));
            let there = openat2(tree, collapsed, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), beneath());
            if there.is_ok() || there.is_err_and(|e| !absent(e) || e == Errno::LOOP) {
                let at = at.join(collapsed);
                if self.known.as_ref().is_some_and(|(known, _)| !known.repositories.contains_key(&at)) {
                    return false;
                }
                self.seen.repositories.insert(at, None);
            }
        }
        for path in &entries.links {
            if path.is_empty() || path.split(|&byte| byte == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
                return false;
            }
            let path = Path::new(OsStr::from_bytes(path));
            let found = find(tree, path, self.scope, self.known.is_some()).transpose();
            if found.is_some() && self.seen.repositories.len() >= MOST {
                return false;
            }
            match found {
                None => {}
                Some(Ok(found)) if !self.one(&found, &at.join(path), depth) => return false,
                Some(Ok(_)) => {}
                Some(Err(e)) => self.unreachable(&at.join(path), e),
            }
        }
        true
    }

    /// Looks at one repository. False where an entry leads to it that can be disabled in the index alone.
    fn one(&mut self, found: &FoundRepository, at: &Path, depth: usize) -> bool {
        let before = self.known.as_ref().map(|(known, _)| known.repositories.get(at));
        let same = before.is_none_or(|before| found.obeys.is_some() && before == Some(&found.obeys));
        // By a link it could be another one later.
        let there = |before: &Print| {
            let leads = found.link.as_ref().map(|link| link.leads.as_str());
            leads.is_none_or(|leads| before.as_ref().is_some_and(|before| before.starts_with(leads)))
        };
        let plain = found.plain && before.flatten().map_or(found.link.is_none(), there);
        self.seen.repositories.insert(at.to_owned(), found.obeys.clone());
        let understood = found.git.as_ref().is_none_or(|git| {
            let git = git.as_fd();
            depth < DEPTH && self.below(found.within.as_fd(), git, at, depth + 1) || self.unread(git, at)
        });
        let Some((_, mended)) = &mut self.known else { return true };
        if (same || plain) && understood {
            return true;
        }
        let Some(link) = &found.link else {
            mended.rename(found.within.as_fd(), OsStr::new(".git"), &self.top.tree.join(at).join(".git"));
            return true;
        };
        let place = std::fs::read_link(Path::new("/proc/self/fd").join(link.within.as_raw_fd().to_string()));
        let (Ok(place), Some(name)) = (place, link.at.file_name()) else { return false };
        // One that the program could not make is the caller's.
        if !self.scope.volumes.iter().any(|volume| place.starts_with(volume)) {
            return false;
        }
        let object = place.join(name);
        match disable(link.within.as_fd(), name, SUFFIX) {
            Ok(now) => mended.behind.push((object.clone(), object.with_file_name(now))),
            Err(e) => mended.failed.push((object, std::io::Error::from(e).to_string())),
        }
        true
    }
}

impl Mended {
    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.renamed.is_empty()
            && self.failed.is_empty()
            && self.behind.is_empty()
            && self.unlinked.is_empty()
            && self.followed.is_empty()
            && self.unseen.is_empty()
    }

    /// Adds what another look did.
    fn append(&mut self, other: Mended) {
        self.renamed.extend(other.renamed);
        self.failed.extend(other.failed);
        self.behind.extend(other.behind);
        self.unlinked.extend(other.unlinked);
        self.restored |= other.restored;
        self.unrestored |= other.unrestored;
        self.followed.extend(other.followed);
        self.unseen.extend(other.unseen);
    }

    /// Disables what leads out of a directory of version control now, and did not before.
    fn unlink(&mut self, directory: &Path, known: &Followed) {
        let opened = match followed::open(directory) {
            Err(Errno::ACCESS) => {
                permit_above(directory);
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                if let Ok(closed) = openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
                    permit(closed.as_fd());
                }
                followed::open(directory)
            }
            opened => opened,
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(e) if absent(e) => return,
            Err(e) => return self.followed.push((directory.to_owned(), std::io::Error::from(e).to_string())),
        };
        let now = followed::look(opened.as_fd(), true);
        match now.unseen {
            // The program need not have made it so.
            Some((at, why)) if known.unseen.is_some() => self.unseen.push((directory.join(at), why)),
            Some((at, why)) => self.followed.push((directory.join(at), why)),
            None => {}
        }
        let mut moved: Vec<&Path> = Vec::new();
        // A work tree that was there has its hooks protected in the volumes, and outside of them they are the caller's.
        let is_known = |at: &Path, print: &str| {
            print == work_trees::OTHER_HOOKS && known.work_trees.contains_key(&at.join("gitdir"))
        };
        let new = |at: &PathBuf, print: &String| known.links.get(at) != Some(print) && !is_known(at, print);
        for (at, _) in now.links.iter().filter(|(at, print)| new(at, print)) {
            // What lies in a directory that has gone is followed by nothing.
            if moved.iter().any(|gone| at.starts_with(gone)) {
                continue;
            }
            let parent = at.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let Some(name) = at.file_name() else { continue };
            let is_reference = parent.components().any(|part| matches!(part.as_os_str().as_bytes(), b"refs" | b"logs"));
            let suffix = if is_reference { SUFFIX_OF_REFERENCES } else { SUFFIX };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // Under any name there it is a work tree, which `git gc` clears.
            let out = parent.components().any(|part| part.as_os_str() == "worktrees");
            let renamed = openat2(&opened, parent, flags, Mode::empty(), beneath()).and_then(|parent| match out {
                true => disable_in(parent.as_fd(), name, opened.as_fd(), suffix),
                false => disable(parent.as_fd(), name, suffix),
            });
            let object = directory.join(at);
            match renamed {
                Ok(now) if out => {
                    moved.push(at);
                    self.unlinked.push((object, directory.join(now)));
                }
                Ok(now) => self.unlinked.push((object.clone(), object.with_file_name(now))),
                Err(e) => self.followed.push((object, std::io::Error::from(e).to_string())),
            }
        }
        for (at, said) in &known.work_trees {
            let object = directory.join(at);
            match work_trees::restore(opened.as_fd(), at, said) {
                Ok(Restored::AsBefore) => {}
                Ok(Restored::From(disabled)) => {
                    self.restored = true;
                    self.unlinked.extend(disabled.map(|now| (object, directory.join(now))));
                }
                Err(e) => {
                    self.unrestored = true;
                    self.followed.push((object, std::io::Error::from(e).to_string()));
                }
            }
        }
    }

    fn rename(&mut self, within: BorrowedFd<'_>, name: &OsStr, object: &Path) {
        match disable(within, name, SUFFIX) {
            Ok(now) => self.renamed.push((object.to_owned(), object.with_file_name(now))),
            Err(e) => self.failed.push((object.to_owned(), std::io::Error::from(e).to_string())),
        }
    }
}

/// Lets its owner list, search and write a directory again: the program may have taken the permission away.
fn permit(directory: BorrowedFd<'_>) {
    let Ok(stat) = fstat(directory) else { return };
    let mode = stat.st_mode & 0o7777;
    if mode & 0o700 != 0o700 {
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
        // It is the caller's directory, or what is tried next fails as well, and says so.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode | 0o700)).ok();
    }
}

/// The same of those directories above a work tree that even their owner cannot enter. Before the run it could be entered.
fn permit_above(tree: &Path) {
    let above: Vec<&Path> = tree.ancestors().skip(1).collect();
    for directory in above.into_iter().rev() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) else { return };
        if fstat(&directory).is_ok_and(|stat| stat.st_mode & 0o100 == 0) {
            permit(directory.as_fd());
        }
    }
}

/// Gives a file another name in its directory.
fn disable(within: BorrowedFd<'_>, name: &OsStr, suffix: &str) -> Result<std::ffi::OsString, Errno> {
    disable_in(within, name, within, suffix)
}

/// The same into another directory. The name is random: whatever the program wrote, an entry of an index or the address of a
/// remote, is older, and cannot lead through it.
fn disable_in(
    within: BorrowedFd<'_>,
    name: &OsStr,
    to: BorrowedFd<'_>,
    suffix: &str,
) -> Result<std::ffi::OsString, Errno> {
    let random = cofferdam_audit::random::uuid();
    let random = &random[..8];
    let mut now = name.to_owned();
    now.push(if suffix == SUFFIX { format!("{suffix}-{random}") } else { format!("-{random}{suffix}") });
    let mut attempt = renameat_with(within, name, to, &now, RenameFlags::NOREPLACE);
    if matches!(attempt, Err(Errno::ACCESS | Errno::PERM)) {
        permit(within);
        permit(to);
        attempt = renameat_with(within, name, to, &now, RenameFlags::NOREPLACE);
    }
    if attempt == Err(Errno::NAMETOOLONG) {
        now = std::ffi::OsString::from(format!("too-long-a-name-{random}{suffix}"));
        attempt = renameat_with(within, name, to, &now, RenameFlags::NOREPLACE);
    }
    attempt.map(|()| now)
}

/// The entries of the index in this directory. None at all where there is no index.
fn entries_in(git: BorrowedFd<'_>) -> Option<Entries> {
    let file = |name: &str| read_itself(git, Path::new(name), MOST_INDEX).ok();
    let Some(bytes) = file("index")? else { return Some(Entries::default()) };
    let entries = git_index::entries(&bytes, false)?;
    let Some(rest) = &entries.shared else { return (!entries.replaces).then_some(entries) };
    let shared = git_index::entries(&file(&format!("sharedindex.{rest}"))??, entries.replaces)?;
    (shared.shared.is_none() && !shared.replaces).then(|| entries.with_shared(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only name that this file has got.
    fn disabled(was: &Path) -> PathBuf {
        let start = format!("{}.disabled-", was.file_name().unwrap().to_str().unwrap());
        let all = std::fs::read_dir(was.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
        let found: Vec<_> = all.filter(|entry| entry.file_name().to_str().unwrap().starts_with(&start)).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].path()
    }

    #[test]
    fn what_a_run_that_goes_on_may_have_made_is_not_known_before_another() {
        let root = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(root.path()).unwrap();
        let look = || before(&[top.to_str().unwrap().to_owned()]);
        if !crate::repository::protected_names::tests::git(&top, &["init", "-q", "."]) {
            return;
        }
        let one = look();
        let planted = top.join("x");
        std::fs::create_dir(&planted).unwrap();
        crate::repository::protected_names::tests::git(&planted, &["init", "-q", "."]);
        crate::repository::protected_names::tests::git(&planted, &["commit", "-q", "--allow-empty", "-m", "x"]);
        crate::repository::protected_names::tests::git(&planted, &["config", "core.fsmonitor", "false"]);
        crate::repository::protected_names::tests::git(&top, &["add", "x"]);
        // Of another run that begins now, it counts as known only where the first has ended.
        assert!(look().mend().is_empty());
        let mut two = look();
        two.as_also_seen_by(std::slice::from_ref(&one));
        assert_eq!(one.mend().renamed.len(), 1);
        std::fs::rename(disabled(&top.join("x/.git")), top.join("x/.git")).unwrap();
        assert_eq!(two.mend().renamed, [(top.join("x/.git"), disabled(&top.join("x/.git")))]);
    }

    #[test]
    fn an_index_that_is_not_understood_is_disabled_unless_it_was_there_before() {
        let root = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(root.path()).unwrap();
        let index = top.join(".git/index");
        std::fs::create_dir(top.join(".git")).unwrap();
        let look = || before(&[top.to_str().unwrap().to_owned()]);
        let empty = look();
        assert!(empty.mend().is_empty());
        std::fs::write(&index, "DIRC of a later version").unwrap();
        assert!(look().mend().is_empty());
        let later = look();
        std::fs::write(&index, "DIRC of another").unwrap();
        assert_eq!(later.mend().renamed, [(index.clone(), disabled(&index))]);
        assert!(!index.exists() && later.mend().is_empty());
        assert_eq!(serde_json::from_str::<RepositoriesBefore>(&serde_json::to_string(&later).unwrap()).unwrap(), later);
    }

    #[test]
    fn a_link_to_an_entry_is_disabled_where_it_leads_elsewhere_than_before() {
        use std::os::unix::fs::symlink;

        use crate::repository::protected_names::tests::git;
        let root = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(root.path()).unwrap();
        let (top, own) = (root.join("top"), root.join("own"));
        for directory in [&top, &own, &root.join("other"), &top.join("in/plain")] {
            std::fs::create_dir_all(directory).unwrap();
            if !git(directory, &["init", "-q", "."]) {
                return;
            }
            git(directory, &["commit", "-q", "--allow-empty", "-m", "x"]);
        }
        git(&own, &["config", "core.fsmonitor", "false"]);
        let link = |to: &str, name: &str| {
            std::fs::remove_file(top.join(name)).ok();
            symlink(to, top.join(name)).unwrap();
        };
        link("../own", "l");
        link("in", "k");
        link("nowhere", "n");
        let entry = |name: &str| format!("160000,1111111111111111111111111111111111111111,{name}");
        for name in ["l", "k/plain", "n/x"] {
            git(&top, &["update-index", "--add", "--cacheinfo", &entry(name)]);
        }
        let look = || before(&[top.to_str().unwrap().to_owned()]);
        let now = |name: &str| disabled(&top.join(name));
        let known = look();
        git(&top.join("in/plain"), &["remote", "add", "origin", "https://h/x"]);
        assert!(known.mend().is_empty());
        // What it leads to is another one, or the same by another link, or is there for the first time.
        for (to, name, back) in [("../other", "l", "../own"), ("../top/in", "k", "in"), ("in", "n", "nowhere")] {
            link(to, name);
            assert_eq!(known.mend().behind, [(top.join(name), now(name))], "{name}");
            assert!(top.join("in/plain/.git").exists() && own.join(".git").exists());
            std::fs::remove_file(now(name)).unwrap();
            link(back, name);
            assert!(known.mend().is_empty(), "{name}");
        }
        git(&top.join("in/plain"), &["config", "core.fsmonitor", "false"]);
        assert_eq!(known.mend().behind, [(top.join("k"), now("k"))]);
        // One outside of the volumes is left, and the index is not.
        link("in", "k");
        std::fs::remove_file(now("k")).unwrap();
        let outside = RepositoriesBefore { volumes: vec![top.join(".git")], ..look() };
        link("../other", "l");
        let mended = outside.mend();
        assert_eq!(mended.renamed, [(top.join(".git/index"), now(".git/index"))]);
        assert!(mended.behind.is_empty() && top.join("l").is_symlink());
    }
}
