//! What a tool of version control follows in its own directory to another file: symbolic links, and lists of files that it
//! reads or writes.
//!
//! git writes `COMMIT_EDITMSG`, `logs/HEAD` and `index` through a link, be it to a file elsewhere or to its own configuration;
//! `git commit` reads and writes what `MERGE_RR` names, and the file that a symbolic reference names, `hg revert` moves what `dirstate` names, and `hg recover` writes, cuts
//! or removes whatever `store/journal` and its list of backups name. A program that may commit can write all of these.
//!
//! Pure but for reading below the directory, which is opened beneath it without following a link.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat2, readlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::obeyed::{absent, beneath, hash, place_of, read};
use super::work_trees::WorkTrees;
use super::{MOST_WORKTREES, lists, work_trees};

/// Directories in which tools of version control keep what they know.
const NAMES: [&str; 5] = [".git", ".hg", ".jj", ".bzr", ".sl"];
/// Names that are looked at in one such directory, at most: some seconds' work.
const MOST: usize = 2_000_000;
/// How deep.
const DEPTH: usize = 40;
/// Subrepositories of one repository that are looked at.
const MOST_SUBREPOSITORIES: usize = 64;
/// Bytes of a list of files.
const MOST_LIST: u64 = 16 << 20;
/// Lists of files to restore, below a directory of Mercurial's, and whether each of their lines is a backup.
const LISTS: [(&str, bool); 8] = [
    ("store/journal", false),
    ("store/journal.backupfiles", true),
    ("store/undo", false),
    ("store/undo.backupfiles", true),
    // A repository without a store.
    ("journal", false),
    ("journal.backupfiles", true),
    ("undo", false),
    ("undo.backupfiles", true),
];
/// References of git's beside those in `refs`, which it writes by itself; each `HEAD` is one as well.
const REFERENCES: [&str; 4] = ["AUTO_MERGE", "BISECT_EXPECTED_REV", "MERGE_AUTOSTASH", "NOTES_MERGE_REF"];
/// What no transaction restores: configuration, what says where and how a repository is read, and queues of patches.
const NEVER_RESTORED: [&str; 9] = [
    "hgrc",
    "hgrc-not-shared",
    "requires",
    "sharedpath",
    "shared",
    "hooks",
    "patches",
    "patches.queue",
    "patches.queues",
];
/// Files that a transaction itself reads.
const OF_TRANSACTIONS: [&str; 4] = ["journal", "journal.backupfiles", "undo", "undo.backupfiles"];
/// What a transaction puts before the name of a file that it copies, and a rollback takes away again.
const COPIES: [&str; 4] = ["journal.backup.", "undo.backup.", "journal.", "undo."];
/// What later versions put behind it.
const COPIED: &str = ".bck";

/// What leads elsewhere below a directory.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Followed {
    /// The hash of what each says, by its path below the directory.
    pub(super) links: BTreeMap<PathBuf, String>,
    /// What each linked work tree's `gitdir` says.
    #[serde(default)]
    pub(super) work_trees: WorkTrees,
    /// A place that could not be looked at, and why.
    pub(super) unseen: Option<(PathBuf, String)>,
}

/// The directories of version control that a tool uses in this volume: those at its top or above it, the one that it lies in,
/// and those of Mercurial's subrepositories. `git` are git's own, which may lie elsewhere.
pub(super) fn directories(volume: &Path, git: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found: BTreeSet<PathBuf> = git.iter().filter_map(|path| std::fs::canonicalize(path).ok()).collect();
    for name in NAMES {
        let is = |path: &PathBuf| path.symlink_metadata().is_ok_and(|about| about.is_dir());
        found.extend(volume.ancestors().map(|above| above.join(name)).find(is));
        found.extend(
            volume.ancestors().find(|above| above.file_name().is_some_and(|last| last == name)).map(Into::into),
        );
    }
    if ["HEAD", "objects", "refs"].iter().all(|name| volume.join(name).exists()) {
        found.insert(volume.to_owned());
    }
    let mercurial: Vec<PathBuf> = found.iter().filter(|path| path.ends_with(".hg")).cloned().collect();
    for directory in mercurial {
        let Some(tree) = directory.parent() else { continue };
        let text = read(CWD, &tree.join(".hgsub"), 1 << 20).ok().flatten().unwrap_or_default();
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !matches!(line.first(), None | Some(b'#' | b'[')));
        let names = lines.filter_map(|line| line.split(|&byte| byte == b'=').next()).map(<[u8]>::trim_ascii);
        let subs = names.take(MOST_SUBREPOSITORIES).map(|name| tree.join(OsStr::from_bytes(name)));
        found.extend(subs.flat_map(|sub| [sub.join(".hg"), sub.join(".git")]).filter(|path| path.is_dir()));
    }
    found
}

/// Opens such a directory, which no link may lead to.
///
/// # Errors
/// It is not there, or cannot be opened.
pub(super) fn open(directory: &Path) -> Result<OwnedFd, Errno> {
    let how = rustix::fs::ResolveFlags::NO_SYMLINKS;
    openat2(CWD, directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), how)
}

/// What leads elsewhere below the directory. With `restore`, permissions that its owner lacks are given back.
pub(super) fn look(directory: BorrowedFd<'_>, restore: bool) -> Followed {
    look_at_most(directory, restore, MOST)
}

/// The same with another bound on the number of names.
pub(super) fn look_at_most(directory: BorrowedFd<'_>, restore: bool, most: usize) -> Followed {
    let is_git = rustix::fs::statat(directory, "HEAD", rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let (found, named, linked, next) = (Followed::default(), Vec::new(), Vec::new(), VecDeque::new());
    let is_mercurial = place_of(directory).is_some_and(|place| place.ends_with(".hg"));
    let (left, worktrees) = (most, 0);
    let mut walk =
        FollowedWalk { top: directory, found, named, linked, next, left, worktrees, restore, is_git, is_mercurial };
    // What is near the top first, wherever a program has put more names than are looked at.
    walk.next.push_back(PathBuf::new());
    while let Some(at) = walk.next.pop_front() {
        walk.list(&at);
    }
    // Without the line of its version it is a pickle, which runs what it says when it is read.
    let state = |bytes: &[u8]| bytes.starts_with(b"v1\n");
    let states = std::iter::once("histedit-state".to_owned()).chain(copies_of("histedit-state"));
    let states = states.map(|name| (PathBuf::from(&name), judged(directory, &name, state)));
    let lists = LISTS.into_iter().map(|(name, backups)| {
        (name.into(), judged(directory, name, |bytes: &[u8]| restores_only_its_own(bytes, backups)))
    });
    walk.found.links.extend(states.chain(lists).filter_map(|(name, print)| Some((name, print?))));
    for name in std::mem::take(&mut walk.named) {
        let last = name.file_name().map(OsStr::as_bytes).unwrap_or_default();
        let print = judged(directory, &name, |bytes: &[u8]| match last {
            b"gitdir" => work_trees::is_harmless(directory, &name, bytes),
            b"config.worktree" => work_trees::is_plain(directory, &name, bytes),
            b"MERGE_RR" => lists::merge_rr(bytes),
            _ => match restored_as(last) {
                b"dirstate" => lists::dirstate(bytes, |id| trees(directory, &name, id)),
                b"state" => lists::merge_state(bytes),
                b"state2" => lists::merge_state2(bytes),
                _ => lists::reference(bytes),
            },
        });
        if name.file_name().is_some_and(|last| last == "gitdir")
            && let Some(says) = work_trees::known(directory, &name)
        {
            walk.found.work_trees.insert(name.clone(), says);
        }
        walk.found.links.extend(print.map(|print| (name, print)));
    }
    for at in std::mem::take(&mut walk.linked) {
        let other_hooks = || work_trees::has_other_hooks(directory, &at).then(|| work_trees::OTHER_HOOKS.to_owned());
        let print = work_trees::own_repository(directory, &at).or_else(other_hooks);
        walk.found.links.extend(print.map(|print| (at, print)));
    }
    if walk.worktrees > MOST_WORKTREES {
        walk.unseen(Path::new("worktrees"), "there are too many linked work trees");
    }
    walk.found
}

/// The hash of a file that is not as it has to be. One that cannot be read, or is too long to be, is none that is.
fn judged(directory: BorrowedFd<'_>, name: impl AsRef<Path>, good: impl Fn(&[u8]) -> bool) -> Option<String> {
    match read(directory, name.as_ref(), MOST_LIST) {
        Ok(None) => None,
        Ok(Some(bytes)) => (!good(&bytes)).then(|| hash(&[&bytes])),
        Err(e) => (!absent(e)).then(|| hash(&[b"cannot be read"])),
    }
}

/// What a file becomes when the transaction that copied it is rolled back.
fn restored_as(name: &[u8]) -> &[u8] {
    let whole = name.strip_suffix(COPIED.as_bytes()).unwrap_or(name);
    COPIES.iter().find_map(|copy| whole.strip_prefix(copy.as_bytes())).unwrap_or(name)
}

/// The names that the lists of transactions have for the copy of a file.
fn copies_of(name: &str) -> Vec<String> {
    let backups = COPIES.iter().filter(|copy| copy.ends_with(".backup."));
    backups.flat_map(|copy| ["", COPIED].map(|end| format!("{copy}{name}{end}"))).collect()
}

/// The trees that a dirstate may have, with what may take the place of its own: each is to be a good one. None where this is a
/// copy, and no tree is there.
fn trees(directory: BorrowedFd<'_>, dirstate: &Path, id: &str) -> Option<Vec<Vec<u8>>> {
    let beside = |name: String| match read(directory, &dirstate.with_file_name(name), MOST_LIST) {
        Ok(text) => text,
        Err(e) => (!absent(e)).then(Vec::new),
    };
    let data = format!("dirstate.{id}");
    let own = beside(data.clone());
    let name = dirstate.file_name().unwrap_or_default().to_string_lossy();
    let copies = copies_of(&data).into_iter().chain([format!("{name}.v2-data")]).filter_map(beside);
    // A tree only ever grows: an earlier state of it has nothing else.
    let is_earlier = |copy: &Vec<u8>| !copy.is_empty() && own.as_ref().is_some_and(|own| own.starts_with(copy));
    let mut all: Vec<Vec<u8>> = copies.filter(|copy| !is_earlier(copy)).collect();
    all.extend(own);
    (name == "dirstate" || !all.is_empty()).then_some(all)
}

struct FollowedWalk<'a> {
    top: BorrowedFd<'a>,
    found: Followed,
    /// Lists of files, and references, that are there.
    named: Vec<PathBuf>,
    /// Directories of linked work trees.
    linked: Vec<PathBuf>,
    /// Directories that are still to be listed.
    next: VecDeque<PathBuf>,
    left: usize,
    /// Names in `worktrees`.
    worktrees: usize,
    restore: bool,
    is_git: bool,
    is_mercurial: bool,
}

impl FollowedWalk<'_> {
    fn list(&mut self, at: &Path) {
        let depth = at.components().count();
        if depth > DEPTH {
            return self.unseen(at, "it is too deep to be looked at");
        }
        let opened = match self.enter(at) {
            Ok(opened) => opened,
            Err(e) if absent(e) => return,
            Err(e) => return self.unseen(at, std::io::Error::from(e)),
        };
        if self.restore {
            super::permit(opened.as_fd());
        }
        let entries = match Dir::read_from(&opened) {
            Ok(entries) => entries,
            Err(e) => return self.unseen(at, std::io::Error::from(e)),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => return self.unseen(at, std::io::Error::from(e)),
            };
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else { return self.unseen(at, "there are too many files") };
            self.left = left;
            self.worktrees += usize::from(self.is_git && at == Path::new("worktrees"));
            self.one(opened.as_fd(), OsStr::from_bytes(entry.file_name().to_bytes()), entry.file_type(), at);
        }
    }

    fn one(&mut self, within: BorrowedFd<'_>, name: &OsStr, kind: FileType, at: &Path) {
        let kind = match kind {
            FileType::Unknown => match rustix::fs::statat(within, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
                Ok(about) => FileType::from_raw_mode(about.st_mode),
                Err(e) if absent(e) => return,
                Err(e) => return self.unseen(&at.join(name), std::io::Error::from(e)),
            },
            known => known,
        };
        if self.is_mercurial && at.as_os_str().is_empty() && is_queue(name.as_bytes()) && kind != FileType::Symlink {
            let text = read(self.top, Path::new(name), MOST_LIST).ok().flatten().unwrap_or_default();
            self.found.links.insert(name.into(), hash(&[b"a queue", &text]));
        }
        match kind {
            FileType::Symlink => {
                let Ok(target) = readlinkat(within, name, Vec::new()) else { return };
                if !is_the_tools_own(name.as_bytes(), target.to_bytes()) {
                    self.found.links.insert(at.join(name), hash(&[target.to_bytes()]));
                }
            }
            FileType::RegularFile if is_list(at, name) || self.is_git && is_reference(at, name) => {
                self.named.push(at.join(name));
            }
            // Objects are written beside each other and renamed, never through a link.
            FileType::Directory if at.ends_with("objects") && name.len() == 2 => {}
            FileType::Directory => {
                if at.ends_with("worktrees") && self.is_repository(at.parent()) {
                    self.linked.push(at.join(name));
                }
                self.next.push_back(at.join(name));
            }
            _ => {}
        }
    }

    /// Whether git would take this directory for a repository, and so what is in its `worktrees` for linked work trees.
    fn is_repository(&self, at: Option<&Path>) -> bool {
        let head = at.unwrap_or(Path::new("")).join("HEAD");
        openat2(self.top, &head, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), beneath()).is_ok()
    }

    /// Takes note of the first place that cannot be looked at. The others are looked at all the same.
    fn unseen(&mut self, at: &Path, why: impl ToString) {
        self.found.unseen.get_or_insert_with(|| (at.to_owned(), why.to_string()));
    }

    fn enter(&self, at: &Path) -> Result<OwnedFd, Errno> {
        let at = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        let open = |flags| openat2(self.top, at, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), beneath());
        match open(OFlags::RDONLY) {
            Err(Errno::ACCESS) if self.restore => {
                super::permit(open(OFlags::PATH)?.as_fd());
                open(OFlags::RDONLY)
            }
            end => end,
        }
    }
}

/// Whether a link is one that a tool makes itself, and never writes through: Mercurial's locks (`host:process`) and its
/// `checklink`, and git's `HEAD` where `core.preferSymlinkRefs` is set.
fn is_the_tools_own(name: &[u8], target: &[u8]) -> bool {
    let below = Path::new(OsStr::from_bytes(target)).components().all(|part| matches!(part, Component::Normal(_)));
    match name {
        b"lock" | b"wlock" => below && target.contains(&b':'),
        b"HEAD" => below && target.starts_with(b"refs/heads/"),
        _ => name.starts_with(b"checklink") && target.starts_with(b"checklink") && !target.contains(&b'/'),
    }
}

/// Whether this is a list of files of the work tree ([`lists`]), or what git obeys of a linked work tree ([`work_trees`]).
fn is_list(at: &Path, name: &OsStr) -> bool {
    match name.as_bytes() {
        b"MERGE_RR" => true,
        b"gitdir" | b"config.worktree" => at.parent().is_some_and(|above| above.ends_with("worktrees")),
        name => match restored_as(name) {
            b"dirstate" => true,
            b"state" | b"state2" => at.ends_with("merge"),
            _ => false,
        },
    }
}

/// Whether this is a queue of patches of Mercurial's extension `mq`, or says which there are. It makes none whose name has a dot.
fn is_queue(name: &[u8]) -> bool {
    matches!(name, b"patches" | b"patches.queue" | b"patches.queues")
        || name.strip_prefix(b"patches-").is_some_and(|queue| !queue.contains(&b'.'))
}

/// Whether git takes this file for a reference.
fn is_reference(at: &Path, name: &OsStr) -> bool {
    name.as_bytes().ends_with(b"HEAD")
        || REFERENCES.iter().any(|reference| name == *reference)
        || at.components().any(|part| part.as_os_str() == "refs")
}

/// Whether every file that a list of Mercurial's names is one that a transaction writes itself: `FILE\0OFFSET\n` in a
/// journal, `LOCATION\0FILE\0BACKUP\0CACHE\n` behind the line of its version in a list of backups.
fn restores_only_its_own(bytes: &[u8], backups: bool) -> bool {
    let Some(text) = bytes.strip_suffix(b"\n").or(bytes.is_empty().then_some(bytes)) else { return false };
    let mut lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    if backups {
        match lines.next() {
            None => return true,
            Some(version) => {
                if version != b"2" {
                    return false;
                }
            }
        }
    }
    lines.all(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        match (backups, fields.as_slice()) {
            (false, [file, offset]) => is_own(file) && !offset.is_empty() && offset.iter().all(u8::is_ascii_digit),
            (true, [_, b"", backup, _]) => backup.is_empty() || is_own(backup),
            (true, [_, file, backup, _]) => is_own(file) && (backup.is_empty() || is_copy(file, backup)),
            _ => false,
        }
    })
}

/// Whether a name is one below the store or its directory, and no configuration.
fn is_own(name: &[u8]) -> bool {
    let mut parts = Path::new(OsStr::from_bytes(name)).components();
    let first = match parts.next() {
        Some(Component::Normal(first)) => first.to_ascii_lowercase(),
        _ => return false,
    };
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    !NEVER_RESTORED.iter().any(|never| first == *never)
        && !first.as_bytes().starts_with(b"patches-")
        && !OF_TRANSACTIONS.iter().any(|list| last == list.as_bytes())
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Whether one file has the name that a transaction gives a copy of the other, so that it was looked at as what it becomes.
fn is_copy(file: &[u8], backup: &[u8]) -> bool {
    let (file, backup) = (Path::new(OsStr::from_bytes(file)), Path::new(OsStr::from_bytes(backup)));
    let name = file.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    file.parent() == backup.parent()
        && copies_of(&name).iter().any(|copy| backup.file_name().is_some_and(|backup| backup == copy.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_too_long_to_be_read_is_not_taken_for_a_good_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(directory.path().join("journal.backupfiles")).unwrap();
        let look = || look(open(&directory.path().canonicalize().unwrap()).unwrap().as_fd(), false);
        assert_eq!(look(), Followed::default(), "the control: an empty one");
        file.set_len(MOST_LIST + 1).unwrap();
        assert_eq!(look().links.into_keys().collect::<Vec<_>>(), [PathBuf::from("journal.backupfiles")]);
    }

    #[test]
    fn a_dirstate_to_roll_back_to_is_looked_at_with_its_tree() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join(".hg");
        std::fs::create_dir(&root).unwrap();
        let look = || -> Vec<String> {
            let found = look(open(&root).unwrap().as_fd(), false).links;
            found.into_keys().map(|path| path.to_str().unwrap().to_owned()).collect()
        };
        let write = |name: &str, text: &[u8]| std::fs::write(root.join(name), text).unwrap();
        let (good, bad) = (lists::tests::tree_with(b"a"), lists::tests::tree_with(b"../a"));
        for copy in ["undo.dirstate", "journal.dirstate", "undo.backup.dirstate", "journal.backup.dirstate.bck"] {
            write(copy, &lists::tests::docket(good.1));
            assert!(look().is_empty(), "{copy}: its tree has gone");
        }
        write("dirstate.ab", &good.0);
        write("undo.dirstate.v2-data", &good.0);
        write("dirstate", &lists::tests::docket(good.1));
        write("undo.backup.dirstate.ab.bck", &good.0[..4]);
        assert!(look().is_empty());
        write("undo.dirstate.v2-data", &bad.0);
        assert_eq!(look(), ["undo.dirstate"]);
        write("undo.dirstate.v2-data", &good.0);
        write("undo.backup.dirstate.ab.bck", &bad.0);
        assert!(look().contains(&"dirstate".to_owned()), "what can take the place of its tree");
        std::fs::remove_file(root.join("undo.backup.dirstate.ab.bck")).unwrap();
        write("undo.narrowspec.dirstate", b"[include]\npath:a\n");
        assert!(look().is_empty());
        write("dirstate.ab", &bad.0);
        write("dirstate", &lists::tests::docket(bad.1));
        write("undo.dirstate", &lists::tests::docket(bad.1));
        assert!(["dirstate", "undo.dirstate"].iter().all(|name| look().contains(&(*name).to_owned())), "{:?}", look());
    }

    #[test]
    fn queues_of_patches_are_found_in_a_repository_of_mercurials_alone() {
        let directory = tempfile::tempdir().unwrap();
        for name in [".hg", ".git"] {
            let root = directory.path().canonicalize().unwrap().join(name);
            for queue in ["patches", "patches-q", "patches-q.disabled-1", "store/patches"] {
                std::fs::create_dir_all(root.join(queue)).unwrap();
            }
            let look = || look(open(&root).unwrap().as_fd(), false).links;
            std::fs::write(root.join("patches.queue"), "q").unwrap();
            let found = look();
            let all: Vec<_> = found.keys().map(|path| path.to_str().unwrap()).collect();
            let expected: &[&str] = if name == ".hg" { &["patches", "patches-q", "patches.queue"] } else { &[] };
            assert_eq!(all, expected);
            std::fs::write(root.join("patches.queue"), "other").unwrap();
            assert_eq!(found == look(), name == ".git", "what it says counts");
        }
    }

    #[test]
    fn links_near_the_top_are_found_where_there_are_more_names_than_are_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        (0..20).for_each(|n| std::fs::write(root.join(format!("a/{n}")), "").unwrap());
        std::os::unix::fs::symlink("/etc/passwd", root.join("COMMIT_EDITMSG")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("a/b/c/x")).unwrap();
        let look = |most| look_at_most(open(&root).unwrap().as_fd(), false, most);
        let all = look(25);
        let links: Vec<_> = all.links.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!((links, all.unseen), (vec!["COMMIT_EDITMSG", "a/b/c/x"], None));
        let some = look(10);
        let links: Vec<_> = some.links.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(links, ["COMMIT_EDITMSG"]);
        assert_eq!(some.unseen.unwrap().0, Path::new("a"));
    }

    #[test]
    fn more_linked_work_trees_than_are_looked_at_are_said() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::write(root.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let look = || look(open(&root).unwrap().as_fd(), false).unseen.map(|(at, _)| at);
        (0..MOST_WORKTREES).for_each(|n| std::fs::create_dir_all(root.join(format!("worktrees/{n}"))).unwrap());
        assert_eq!(look(), None);
        std::fs::create_dir(root.join("worktrees/more")).unwrap();
        assert_eq!(look(), Some("worktrees".into()));
    }

    #[test]
    fn a_transaction_restores_files_of_the_repository_alone() {
        for text in ["", "data/a.i\x000\n00changelog.i\x00128\n"] {
            assert!(restores_only_its_own(text.as_bytes(), false), "{text:?}");
        }
        for text in [
            "patches/status\x000\n",
            "undo\x000\n",
            "../../x\x000\n",
            "/etc/x\x000\n",
            "requires\x000\n",
            "a\x00\n",
            "a\n",
            "a\x000",
        ] {
            assert!(!restores_only_its_own(text.as_bytes(), false), "{text:?}");
        }
        for text in [
            "",
            "2\n",
            "2\nplain\0dirstate\0journal.backup.dirstate\x000\n\0fncache\0journal.backup.fncache\x000\n",
            "2\nplain\0a/dirstate\0a/undo.backup.dirstate.bck\x000\n",
            "2\n\0\x0000changelog.i.a\x000\n",
        ] {
            assert!(restores_only_its_own(text.as_bytes(), true), "{text:?}");
        }
        for text in [
            "1\nplain\0dirstate\0b\x000\n",
            "2\nplain\0hgrc\0evil\x000\n",
            "2\nplain\0hgrc\0journal.backup.hgrc\x000\n",
            "2\nplain\0dirstate\0evil\x000\n",
            "2\nplain\0dirstate\0a/journal.backup.dirstate\x000\n",
            "2\nplain\0patches.queue\0journal.backup.patches.queue\x000\n",
            "2\nplain\0patches-q/status\0patches-q/journal.backup.status\x000\n",
            "2\n\0journal.backupfiles\0journal.backup.journal.backupfiles\x000\n",
            "2\nplain\0HGRC\0evil\x000\n",
            "2\nplain\0/home/a\0evil\x000\n",
            "2\nplain\0../../a\0evil\x000\n",
            "2\nplain\0dirstate\0/etc/passwd\x000\n",
            "2\nplain\0dirstate\n",
        ] {
            assert!(!restores_only_its_own(text.as_bytes(), true), "{text:?}");
        }
    }
}
