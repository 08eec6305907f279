//! What git obeys in a repository that it finds at a path, and whether any of it could run a program.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat, statat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

/// Bytes of a file that git obeys.
const MOST_BYTES: u64 = 1 << 20;
/// Hooks of one repository.
const MOST_HOOKS: usize = 4096;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What a repository obeys, as a hash; `None` where that cannot be read, which is like nothing else.
pub(super) type Print = Option<String>;

/// What git finds at the path of an entry.
pub(super) struct Found {
    /// The directory with the `.git`.
    pub within: OwnedFd,
    pub obeys: Print,
    /// It obeys nothing that could run a program.
    pub plain: bool,
    /// The directory with its index; `None` where it is named and not there.
    pub git: Option<OwnedFd>,
}

/// How a path in a work tree is opened.
pub(super) fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

/// What git finds at the path of an entry: a directory with a `.git`. It follows no link there.
pub(super) fn find(tree: BorrowedFd<'_>, path: &Path) -> Option<Found> {
    repository(openat2(tree, path, DIRECTORY, Mode::empty(), beneath()).ok()?)
}

/// What the `.git` of a directory is and leads to. What leads somewhere may lead elsewhere for another process.
fn repository(within: OwnedFd) -> Option<Found> {
    let kind = FileType::from_raw_mode(statat(&within, ".git", AtFlags::SYMLINK_NOFOLLOW).ok()?.st_mode);
    let (git, says) = match kind {
        FileType::RegularFile => leads(within.as_fd()),
        FileType::Symlink => {
            let target = readlinkat(&within, ".git", Vec::new()).ok()?.into_bytes();
            match open(within.as_fd(), OsStr::new(".git")) {
                Ok(git) => (Some(git), target),
                // A link to a file that says where it is.
                Err(_) => {
                    let (git, says) = leads(within.as_fd());
                    (git, [target, says].concat())
                }
            }
        }
        _ => (Some(openat(&within, ".git", DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).ok()?), Vec::new()),
    };
    let files = git.as_ref().map(|git| obeyed(git.as_fd()));
    let plain = kind == FileType::Directory && matches!(&files, Some(Ok(files)) if files.is_plain());
    let print = |obeys: &str| Some(hash(&[format!("{kind:?}").as_bytes(), &says, obeys.as_bytes()]));
    let obeys = match files {
        None => print("nothing is there"),
        Some(files) => files.ok().and_then(|files| print(&files.hash())),
    };
    Some(Found { within, obeys, plain, git })
}

/// The directory that a file `.git` leads to, and the text of the file.
fn leads(within: BorrowedFd<'_>) -> (Option<OwnedFd>, Vec<u8>) {
    let text = read(within, Path::new(".git"), MOST_BYTES).ok().flatten().unwrap_or_default();
    let says = text.strip_prefix(b"gitdir:").map(<[u8]>::trim_ascii);
    (says.and_then(|says| open(within, OsStr::from_bytes(says)).ok()), text)
}

/// Opens a directory as git would, but for links whose end depends on who follows them.
fn open(at: BorrowedFd<'_>, path: &OsStr) -> Result<OwnedFd, Errno> {
    openat2(at, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

/// The files of a repository that git obeys.
#[derive(Default)]
struct Obeyed {
    config: Vec<u8>,
    worktree: Vec<u8>,
    common: Option<Vec<u8>>,
    /// Hooks that are no samples: which file each is, and since when.
    hooks: BTreeMap<Vec<u8>, String>,
    /// Those of the repository that `commondir` names.
    shared: Option<Box<Obeyed>>,
    /// Whether one of them is a link.
    links: bool,
}

impl Obeyed {
    fn is_plain(&self) -> bool {
        !self.links
            && self.worktree.is_empty()
            && self.common.is_none()
            && self.hooks.is_empty()
            && is_plain(&self.config)
    }

    fn hash(&self) -> String {
        let mut parts: Vec<&[u8]> = vec![&self.config, &self.worktree, self.common.as_deref().unwrap_or_default()];
        parts.extend(self.hooks.iter().flat_map(|(name, file)| [name.as_slice(), file.as_bytes()]));
        let shared = self.shared.as_ref().map(|shared| shared.hash()).unwrap_or_default();
        parts.push(shared.as_bytes());
        hash(&parts)
    }
}

fn obeyed(git: BorrowedFd<'_>) -> Result<Obeyed, Errno> {
    let file = |name: &str| read(git, Path::new(name), MOST_BYTES);
    let mut files = Obeyed {
        config: file("config")?.unwrap_or_default(),
        worktree: file("config.worktree")?.unwrap_or_default(),
        common: file("commondir")?,
        hooks: hooks(git)?,
        shared: None,
        links: ["config", "config.worktree", "commondir", "hooks"].iter().any(|name| {
            statat(git, *name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
        }),
    };
    if let Some(common) = &files.common {
        let shared = open(git, OsStr::from_bytes(common.trim_ascii_end()))?;
        let config = read(shared.as_fd(), Path::new("config"), MOST_BYTES)?.unwrap_or_default();
        files.shared = Some(Box::new(Obeyed { config, hooks: hooks(shared.as_fd())?, ..Obeyed::default() }));
    }
    Ok(files)
}

/// The hooks that are no samples. The time of a change is the kernel's, so no program can set it back.
fn hooks(git: BorrowedFd<'_>) -> Result<BTreeMap<Vec<u8>, String>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = match openat2(git, "hooks", flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(BTreeMap::new()),
        Err(e) => return Err(e),
    };
    let mut found = BTreeMap::new();
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let name = entry?.file_name().to_bytes().to_owned();
        if matches!(name.as_slice(), b"." | b"..") || name.ends_with(b".sample") {
            continue;
        }
        if found.len() == MOST_HOOKS {
            return Err(Errno::TOOBIG);
        }
        let file = match statat(&directory, OsStr::from_bytes(&name), AtFlags::empty()) {
            Ok(s) => format!("{} {:o} {} {}.{}", s.st_ino, s.st_mode, s.st_size, s.st_ctime, s.st_ctime_nsec),
            Err(e) => e.to_string(),
        };
        found.insert(name, file);
    }
    Ok(found)
}

/// Whether a configuration has only what `git init`, `git clone` and `git branch` write. What is written in any other way
/// than theirs does not count as that.
fn is_plain(config: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(config) else { return false };
    let mut keys: &[&str] = &[];
    text.lines().map(str::trim).filter(|line| !line.is_empty()).all(|line| {
        if let Some(header) = line.strip_prefix('[') {
            let Some(header) = header.strip_suffix(']') else { return false };
            let (name, rest) = header.split_once(' ').unwrap_or((header, ""));
            let quoted = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            keys = match (name, rest.is_empty(), quoted) {
                ("core", true, None) => {
                    &["repositoryformatversion", "filemode", "bare", "logallrefupdates", "symlinks", "ignorecase"]
                }
                ("extensions", true, None) => &["objectformat", "refstorage"],
                ("user", true, None) => &["name", "email"],
                ("remote", false, Some(_)) => &["url", "fetch"],
                ("branch", false, Some(_)) => &["remote", "merge", "rebase"],
                _ => return false,
            };
            return !rest.contains(['\\', ']', '[']) && quoted.is_none_or(|quoted| !quoted.contains('"'));
        }
        let Some((key, value)) = line.split_once('=') else { return false };
        // The address of a remote can name a program: `ext::command`.
        !value.contains(['\\', '"', '\r']) && !value.contains("::") && keys.contains(&&*key.trim().to_ascii_lowercase())
    })
}

/// A regular file, whole. `Ok(None)` where there is nothing of this name.
pub(super) fn read(at: BorrowedFd<'_>, name: &Path, most: u64) -> Result<Option<Vec<u8>>, Errno> {
    read_with(at, name, most, ResolveFlags::NO_MAGICLINKS)
}

/// The same, where the name is no link.
pub(super) fn read_itself(at: BorrowedFd<'_>, name: &Path, most: u64) -> Result<Option<Vec<u8>>, Errno> {
    read_with(at, name, most, beneath())
}

fn read_with(at: BorrowedFd<'_>, name: &Path, most: u64, how: ResolveFlags) -> Result<Option<Vec<u8>>, Errno> {
    // Without waiting for the writer of a FIFO.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat2(at, name, flags, Mode::empty(), how) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(e),
    };
    let about = fstat(&file)?;
    let size = about.st_size.cast_unsigned();
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile || size > most {
        return Err(Errno::FBIG);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(most).read_to_end(&mut bytes).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    Ok(Some(bytes))
}

/// A hash of these texts, each by itself.
pub(super) fn hash(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    crate::audit::hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn what_git_itself_writes_is_plain_and_nothing_else() {
        let written = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
                       [remote \"origin\"]\n\turl = https://example.org/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                       [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        assert!(is_plain(written.as_bytes()) && is_plain(b""));
        for other in [
            "[core]\nfsmonitor = x",
            "[core] fsmonitor = x",
            "[core]\nfilemode = true \\\n[core]\nbare = false",
            "[core]\nfilemode = \"true\"",
            "[core]\nhooksPath = x",
            "[core]\n\tsshCommand=x",
            "[include]\npath = ../x",
            "[includeIf \"gitdir:/\"]\npath = x",
            "[filter \"x\"]\nclean = x",
            "[alias]\nstatus = !x",
            "[diff \"x\"]\ntextconv = x",
            "[remote \"x\"]\nurl = ext::sh -c x",
            "[remote \"x\"]\npromisor = true",
            "[remote \"x\"]\nuploadpack = x",
            "[remote \"x\"] y = [z \"a\"]",
            "[extensions]\nworktreeConfig = true",
            "[extensions]\npartialClone = x",
            "[remote]\nurl = x",
            "[core \"x\"]\nbare = x",
            "bare = true",
            "[core]\nbare",
            "\u{feff}[core]\nbare = true",
        ] {
            assert!(!is_plain(other.as_bytes()), "{other}");
        }
        assert!(!is_plain(b"[core]\nbare = \xff"));
    }
}
