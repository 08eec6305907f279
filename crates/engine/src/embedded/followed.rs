//! What a tool of version control follows in its own directory to a file elsewhere: symbolic links, and the files that a
//! transaction of Mercurial's names.
//!
//! git writes `COMMIT_EDITMSG`, `logs/HEAD` and `index` through a link, and `hg recover` writes, cuts or removes whatever
//! `store/journal` and its list of backups name. A program that may commit can write all of these.
//!
//! Pure but for reading below the directory, which is opened beneath it without following a link.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat2, readlinkat};
use rustix::io::Errno;

use super::obeyed::{absent, beneath, hash, read};

/// Directories in which tools of version control keep what they know.
const NAMES: [&str; 5] = [".git", ".hg", ".jj", ".bzr", ".sl"];
/// Names that are looked at in one such directory, at most.
const MOST: usize = 400_000;
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
/// What no transaction restores: configuration, and what says where and how a repository is read.
const NEVER_RESTORED: [&str; 6] = ["hgrc", "hgrc-not-shared", "requires", "sharedpath", "shared", "hooks"];

/// What leads elsewhere, by its path below the directory: the hash of what it says.
pub(super) type Followed = BTreeMap<PathBuf, String>;

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
///
/// # Errors
/// Part of it cannot be looked at, or there is more than is looked at.
pub(super) fn look(directory: BorrowedFd<'_>, restore: bool) -> Result<Followed, (PathBuf, String)> {
    let mut walk = Walk { found: Followed::new(), left: MOST, restore };
    walk.below(directory, Path::new(""), 0)?;
    // Without the line of its version it is a pickle, which runs what it says when it is read.
    let state = |bytes: &[u8]| bytes.starts_with(b"v1\n");
    let states = std::iter::once(("histedit-state", judged(directory, "histedit-state", state)));
    let lists = LISTS
        .map(|(name, backups)| (name, judged(directory, name, |bytes: &[u8]| restores_only_its_own(bytes, backups))));
    walk.found.extend(states.chain(lists).filter_map(|(name, print)| Some((name.into(), print?))));
    Ok(walk.found)
}

/// The hash of a file that is not as it has to be. One that cannot be read, or is too long to be, is none that is.
fn judged(directory: BorrowedFd<'_>, name: &str, good: impl Fn(&[u8]) -> bool) -> Option<String> {
    match read(directory, Path::new(name), MOST_LIST) {
        Ok(None) => None,
        Ok(Some(bytes)) => (!good(&bytes)).then(|| hash(&[&bytes])),
        Err(e) => (!absent(e)).then(|| hash(&[b"cannot be read"])),
    }
}

struct Walk {
    found: Followed,
    left: usize,
    restore: bool,
}

impl Walk {
    fn below(&mut self, directory: BorrowedFd<'_>, at: &Path, depth: usize) -> Result<(), (PathBuf, String)> {
        let failed = |e: Errno| (at.to_owned(), std::io::Error::from(e).to_string());
        if depth > DEPTH {
            return Err((at.to_owned(), "it is too deep to be looked at".into()));
        }
        for entry in Dir::read_from(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            self.left = self.left.checked_sub(1).ok_or((at.to_owned(), "it has too many files".to_owned()))?;
            let path = at.join(name);
            let kind = match entry.file_type() {
                FileType::Unknown => match rustix::fs::statat(directory, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(about) => FileType::from_raw_mode(about.st_mode),
                    Err(e) if absent(e) => continue,
                    Err(e) => return Err((path, std::io::Error::from(e).to_string())),
                },
                known => known,
            };
            match kind {
                FileType::Symlink => {
                    let Ok(target) = readlinkat(directory, name, Vec::new()) else { continue };
                    if !stays_inside(target.to_bytes(), depth) {
                        self.found.insert(path, hash(&[target.to_bytes()]));
                    }
                }
                // Objects are written beside each other and renamed, never through a link.
                FileType::Directory if at.ends_with("objects") && name.len() == 2 => {}
                FileType::Directory => match self.enter(directory, name) {
                    Ok(inner) => self.below(inner.as_fd(), &path, depth + 1)?,
                    Err(e) if absent(e) => {}
                    Err(e) => return Err((path, std::io::Error::from(e).to_string())),
                },
                _ => {}
            }
        }
        Ok(())
    }

    fn enter(&self, directory: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
        let open =
            |flags| openat2(directory, name, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), beneath());
        match open(OFlags::RDONLY) {
            Err(Errno::ACCESS) if self.restore => {
                super::permit(open(OFlags::PATH)?.as_fd());
                open(OFlags::RDONLY)
            }
            end => end,
        }
    }
}

/// Whether a link that lies in so many directories leads to something below the outermost. It does as long as every other
/// link below it does, since `..` stands only where the directories above are known to be no links.
fn stays_inside(target: &[u8], depth: usize) -> bool {
    let mut parts =
        Path::new(OsStr::from_bytes(target)).components().filter(|part| *part != Component::CurDir).peekable();
    let mut up = 0;
    while parts.next_if_eq(&Component::ParentDir).is_some() {
        up += 1;
    }
    up <= depth && parts.all(|part| matches!(part, Component::Normal(_)))
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
            (true, [_, file, backup, _]) => (file.is_empty() || is_own(file)) && (backup.is_empty() || is_own(backup)),
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
    !NEVER_RESTORED.iter().any(|never| first == *never) && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_inside_only_by_what_is_known_of_the_way() {
        for (target, depth) in
            [("checklink-target", 1), ("../a/b", 1), ("../../a", 2), ("a/b", 0), ("./a", 0), ("host:12", 0)]
        {
            assert!(stays_inside(target.as_bytes(), depth), "{target}");
        }
        for (target, depth) in [("/etc", 3), ("../a", 0), ("../../a", 1), ("a/../../b", 1), ("a/..", 2), ("./../a", 0)]
        {
            assert!(!stays_inside(target.as_bytes(), depth), "{target}");
        }
    }

    #[test]
    fn a_list_that_is_too_long_to_be_read_is_not_taken_for_a_good_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(directory.path().join("journal.backupfiles")).unwrap();
        let look = || look(open(&directory.path().canonicalize().unwrap()).unwrap().as_fd(), false).unwrap();
        assert!(look().is_empty(), "the control: an empty one");
        file.set_len(MOST_LIST + 1).unwrap();
        assert_eq!(look().into_keys().collect::<Vec<_>>(), [PathBuf::from("journal.backupfiles")]);
    }

    #[test]
    fn a_transaction_restores_files_of_the_repository_alone() {
        for text in ["", "data/a.i\x000\n00changelog.i\x00128\n"] {
            assert!(restores_only_its_own(text.as_bytes(), false), "{text:?}");
        }
        for text in ["../../x\x000\n", "/etc/x\x000\n", "requires\x000\n", "a\x00\n", "a\n", "a\x000"] {
            assert!(!restores_only_its_own(text.as_bytes(), false), "{text:?}");
        }
        for text in
            ["", "2\n", "2\nplain\0dirstate\0journal.backup.dirstate\x000\n\0fncache\0journal.backup.fncache\x000\n"]
        {
            assert!(restores_only_its_own(text.as_bytes(), true), "{text:?}");
        }
        for text in [
            "1\nplain\0dirstate\0b\x000\n",
            "2\nplain\0hgrc\0evil\x000\n",
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
