//! What git obeys in a repository that it finds at a path, and whether any of it could run a program.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat, statat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::addresses::Destinations;
use super::config_values::of_git;
use super::named::{Configuration, named, print_with};
use super::remotes::{Remote, remotes_of_embedded};

/// Bytes of a file that git obeys.
pub(super) const MOST_BYTES: u64 = 1 << 20;
/// Hooks of one repository, or its remotes.
const MOST_FILES: usize = 4096;

pub(super) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What a repository obeys, as a hash; `None` where that cannot be read, which is like nothing else.
pub(super) type Print = Option<String>;

/// What git finds at the path of an entry.
pub(super) struct FoundRepository {
    /// The directory with the `.git`; that of the link where nothing is there.
    pub within: OwnedFd,
    pub obeys: Print,
    /// It obeys nothing that could run a program.
    pub plain: bool,
    /// The directory with its index; `None` where it is named and not there.
    pub git: Option<OwnedFd>,
    /// The first link on the way there.
    pub link: Option<LinkOnTheWay>,
}

/// A symbolic link on the way to an entry. `git status` stops at it, and `git grep --recurse-submodules` does not.
pub(super) struct LinkOnTheWay {
    /// The directory that it lies in.
    pub within: OwnedFd,
    /// Its path from the work tree.
    pub at: PathBuf,
    /// The hash of where it leads.
    pub leads: String,
}

/// What counts in every repository that is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    /// Directories of hooks, and programs, that git looks for in each of them, relative to it.
    pub hooks: &'a BTreeSet<PathBuf>,
    /// What the program may write.
    pub volumes: &'a [PathBuf],
    /// What the caller's configuration, and the system's, say of pushes.
    pub callers: &'a Destinations,
}

/// Where an open directory is.
pub(super) fn place_of(directory: BorrowedFd<'_>) -> Option<PathBuf> {
    std::fs::read_link(Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string())).ok()
}

/// How a path in a work tree is opened.
pub(super) fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

/// Whether the error says that nothing is there. A link in the path counts so.
pub(super) fn absent(e: Errno) -> bool {
    matches!(e, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)
}

/// What git finds at the path of an entry: a directory with a `.git`, or a link on the way, wherever that leads. What
/// `scope` has git look for in it counts as well. With `restore`, permissions that its owner lacks are given back: the program may have taken them
/// away, for the time of a look.
///
/// # Errors
/// It cannot be looked at, so whether there is one is not known.
pub(super) fn find(
    tree: BorrowedFd<'_>,
    path: &Path,
    scope: Scope<'_>,
    restore: bool,
) -> Result<Option<FoundRepository>, Errno> {
    let found = match reach(tree, path, restore) {
        Err(Errno::LOOP) => linked(tree, path, scope),
        within => within.and_then(|within| repository(tree, within, scope, restore)),
    };
    match found {
        Err(e) if absent(e) => Ok(None),
        found => found.map(Some),
    }
}

/// What git finds behind a link on the way. It is there also where the link leads nowhere: something may be put there later,
/// from where this work tree is not looked at.
fn linked(tree: BorrowedFd<'_>, path: &Path, scope: Scope<'_>) -> Result<FoundRepository, Errno> {
    let (within, at) = first_link(tree, path)?;
    let target = readlinkat(&within, at.file_name().unwrap_or_default(), Vec::new())?.into_bytes();
    // Permissions are none of the link's: what cannot be entered counts as what cannot be read.
    let end = open(tree, path.as_os_str());
    let place = end.as_ref().ok().and_then(|end| place_of(end.as_fd())).unwrap_or_default();
    let leads = hash(&[at.as_os_str().as_bytes(), &target, place.as_os_str().as_bytes()]);
    let link = |within| Some(LinkOnTheWay { within, at: at.to_owned(), leads: leads.clone() });
    match end.and_then(|end| repository(tree, end, scope, false)) {
        Ok(found) => {
            let obeys = found.obeys.map(|obeys| format!("{leads} {obeys}"));
            Ok(FoundRepository { obeys, link: link(within), ..found })
        }
        Err(e) => {
            let directory = openat(&within, ".", DIRECTORY, Mode::empty())?;
            let obeys = Some(format!("{leads} {e}"));
            Ok(FoundRepository { within: directory, obeys, plain: false, git: None, link: link(within) })
        }
    }
}

/// The first link in a path: the directory that it lies in, and the path up to it.
fn first_link<'p>(tree: BorrowedFd<'_>, path: &'p Path) -> Result<(OwnedFd, &'p Path), Errno> {
    let mut within = openat(tree, ".", DIRECTORY, Mode::empty())?;
    let all: Vec<&Path> = path.ancestors().filter(|above| !above.as_os_str().is_empty()).collect();
    for at in all.into_iter().rev() {
        let name = at.file_name().ok_or(Errno::NOENT)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = openat(&within, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&next)?.st_mode) == FileType::Symlink {
            return Ok((within, at));
        }
        within = next;
    }
    Err(Errno::NOENT)
}

fn reach(tree: BorrowedFd<'_>, path: &Path, restore: bool) -> Result<OwnedFd, Errno> {
    let open = |path: &Path| openat2(tree, path, DIRECTORY, Mode::empty(), beneath());
    match open(path) {
        Err(Errno::ACCESS) if restore => {}
        end => return end,
    }
    super::permit(tree);
    let parents: Vec<&Path> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
    for above in parents.iter().rev() {
        super::permit(open(above)?.as_fd());
    }
    open(path)
}

/// What the `.git` of a directory is and leads to. What leads somewhere may lead elsewhere for another process. `tree` is the
/// work tree around it, whose own repository is looked at by itself.
fn repository(
    tree: BorrowedFd<'_>,
    within: OwnedFd,
    scope: Scope<'_>,
    restore: bool,
) -> Result<FoundRepository, Errno> {
    let look = || statat(&within, ".git", AtFlags::SYMLINK_NOFOLLOW);
    let there = match look() {
        Err(Errno::ACCESS) if restore => {
            super::permit(within.as_fd());
            look()
        }
        there => there,
    };
    let kind = FileType::from_raw_mode(there?.st_mode);
    let (git, says) = match kind {
        FileType::RegularFile => leads(within.as_fd()),
        FileType::Symlink => {
            let target = readlinkat(&within, ".git", Vec::new())?.into_bytes();
            match open(within.as_fd(), OsStr::new(".git")) {
                Ok(git) => (Some(git), target),
                // A link to a file that says where it is.
                Err(_) => {
                    let (git, says) = leads(within.as_fd());
                    (git, [target, says].concat())
                }
            }
        }
        _ => (Some(openat(&within, ".git", DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?), Vec::new()),
    };
    let files = git.as_ref().map(|git| {
        let mut files = obeyed(git.as_fd())?;
        files.pushed = remotes_of_embedded(tree, within.as_fd(), git.as_fd(), scope, restore)?;
        files.add_beside(within.as_fd(), scope)?;
        Ok::<_, Errno>(files)
    });
    let plain = kind == FileType::Directory && matches!(&files, Some(Ok(files)) if files.is_plain());
    let print = |obeys: &str| Some(hash(&[format!("{kind:?}").as_bytes(), &says, obeys.as_bytes()]));
    let obeys = match files {
        None => print("nothing is there"),
        Some(files) => files.ok().and_then(|files| print(&files.hash())),
    };
    Ok(FoundRepository { within, obeys, plain, git, link: None })
}

/// The directory that a file `.git` leads to, and the text of the file.
fn leads(within: BorrowedFd<'_>) -> (Option<OwnedFd>, Vec<u8>) {
    let text = read(within, Path::new(".git"), MOST_BYTES).ok().flatten().unwrap_or_default();
    let says = text.strip_prefix(b"gitdir:").map(<[u8]>::trim_ascii);
    (says.and_then(|says| open(within, OsStr::from_bytes(says)).ok()), text)
}

/// Opens a directory as git would, but for links whose end depends on who follows them.
pub(super) fn open(at: BorrowedFd<'_>, path: &OsStr) -> Result<OwnedFd, Errno> {
    openat2(at, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

/// The files of a repository that git obeys.
#[derive(Default)]
pub(super) struct RepositoryFiles {
    /// Where they are.
    at: Option<PathBuf>,
    config: Vec<u8>,
    worktree: Vec<u8>,
    common: Option<Vec<u8>>,
    /// Hooks that are no samples: which file each is, and since when.
    hooks: BTreeMap<Vec<u8>, String>,
    /// Remotes that are files: git prefers them to the configuration.
    remotes: BTreeMap<Vec<u8>, String>,
    /// Those of the repository that `commondir` names.
    shared: Option<Box<RepositoryFiles>>,
    /// The repositories that a remote's address leads to: their hooks run where a push goes on to submodules.
    pushed: Vec<Remote>,
    /// The states of what the configuration names in the volumes.
    named: Vec<String>,
    /// Whether one of them is a link.
    links: bool,
}

impl RepositoryFiles {
    /// Adds what git would run and read that lies elsewhere than in the repository, used in this directory: hooks and programs
    /// that the caller's configuration has it look for there, and what the repository's own names.
    pub(super) fn add_beside(&mut self, at: BorrowedFd<'_>, scope: Scope<'_>) -> Result<(), Errno> {
        for one in scope.hooks {
            let path = |name: Vec<u8>| [one.as_os_str().as_bytes(), b"/", &name].concat();
            self.hooks.extend(hooks_in(at, one)?.into_iter().map(|(name, file)| (path(name), file)));
            self.hooks.extend(program(at, one)?.map(|file| (one.as_os_str().as_bytes().to_owned(), file)));
        }
        let mut configurations = self.configurations();
        configurations.retain(|(_, text)| !is_plain(text));
        if configurations.is_empty() {
            return Ok(());
        }
        let shared = self.shared.as_ref().and_then(|shared| shared.at.clone());
        let above = self.at.as_deref().filter(|at| at.ends_with(".git")).and_then(Path::parent).map(Path::to_owned);
        let mut bases: Vec<PathBuf> = [place_of(at), self.at.clone(), shared, above].into_iter().flatten().collect();
        bases.sort();
        bases.dedup();
        self.named = named(configurations, &bases, scope.volumes, of_git)?;
        Ok(())
    }

    /// The texts of its configuration, and the directories that they lie in.
    fn configurations(&self) -> Vec<Configuration> {
        let own =
            self.at.iter().flat_map(|at| [(at.clone(), self.config.clone()), (at.clone(), self.worktree.clone())]);
        own.chain(self.shared.iter().flat_map(|shared| shared.configurations())).collect()
    }

    pub(super) fn is_plain(&self) -> bool {
        !self.links
            && self.worktree.is_empty()
            && self.common.is_none()
            && self.hooks.is_empty()
            && self.remotes.is_empty()
            && is_plain(&self.config)
            && self.pushed.iter().all(|remote| remote.plain)
    }

    /// The hash, and beside it that of what is named elsewhere.
    pub(super) fn print(&self) -> String {
        print_with(self.hash(), &self.named)
    }

    fn hash(&self) -> String {
        let mut parts: Vec<&[u8]> = vec![&self.config, &self.worktree, self.common.as_deref().unwrap_or_default()];
        parts.extend(self.hooks.iter().flat_map(|(name, file)| [name.as_slice(), file.as_bytes()]));
        let pushed = self.pushed.iter().map(|remote| {
            let obeys = remote.obeys.as_deref().unwrap_or_default();
            hash(&[remote.place.as_os_str().as_bytes(), obeys.as_bytes()])
        });
        let further: Vec<String> = self.shared.iter().map(|shared| shared.hash()).chain(pushed).collect();
        parts.push(b"further");
        parts.extend(further.iter().map(String::as_bytes));
        parts.push(b"remotes");
        parts.extend(self.remotes.iter().flat_map(|(name, file)| [name.as_slice(), file.as_bytes()]));
        if !self.named.is_empty() {
            parts.push(b"named");
            parts.extend(self.named.iter().map(String::as_bytes));
        }
        hash(&parts)
    }
}

pub(super) fn obeyed(git: BorrowedFd<'_>) -> Result<RepositoryFiles, Errno> {
    let file = |name: &str| read(git, Path::new(name), MOST_BYTES);
    let mut files = RepositoryFiles {
        at: place_of(git),
        config: file("config")?.unwrap_or_default(),
        worktree: file("config.worktree")?.unwrap_or_default(),
        common: file("commondir")?,
        hooks: hooks(git)?,
        remotes: remotes(git)?,
        shared: None,
        pushed: Vec::new(),
        named: Vec::new(),
        links: ["config", "config.worktree", "commondir", "hooks", "remotes", "branches"].iter().any(|name| {
            statat(git, *name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
        }),
    };
    if let Some(common) = &files.common {
        let shared = open(git, OsStr::from_bytes(common.trim_ascii_end()))?;
        let config = read(shared.as_fd(), Path::new("config"), MOST_BYTES)?.unwrap_or_default();
        let (hooks, remotes) = (hooks(shared.as_fd())?, remotes(shared.as_fd())?);
        files.shared = Some(Box::new(RepositoryFiles {
            at: place_of(shared.as_fd()),
            config,
            hooks,
            remotes,
            ..RepositoryFiles::default()
        }));
    }
    Ok(files)
}

pub(super) const SUFFIXES: [&str; 4] = ["/.git", "", ".git/.git", ".git"];

pub(super) fn with_suffix(address: &OsStr, suffix: &str) -> OsString {
    let mut path = address.to_owned();
    path.push(suffix);
    path
}

/// Whether a file says where a repository is; also where that cannot be read.
pub(super) fn is_gitfile(at: BorrowedFd<'_>, path: &Path) -> bool {
    match read(at, path, MOST_BYTES) {
        Ok(text) => text.is_some_and(|text| text.starts_with(b"gitdir:")),
        Err(Errno::FBIG) => false, // too large for git as well
        Err(_) => true,
    }
}

/// What git takes the address of a remote for.
#[derive(Debug, PartialEq, Eq)]
enum RemoteAddress {
    /// Another machine.
    Away,
    Path,
    /// Nothing that is certain.
    Other,
}

impl RemoteAddress {
    /// By git's rule (connect.c, parse_connect_url and url_is_local_not_ssh).
    fn of(text: &str) -> RemoteAddress {
        if let Some((scheme, rest)) = text.split_once("://") {
            return match scheme {
                "https" | "http" | "ssh" | "git" => RemoteAddress::Away,
                // With a host, or an encoded character, git makes another path of it.
                "file" if rest.starts_with('/') && !rest.contains('%') => RemoteAddress::Path,
                _ => RemoteAddress::Other,
            };
        }
        let colon = text.find(':');
        let slash = text.find('/');
        match colon {
            Some(colon) if slash.is_none_or(|slash| colon < slash) => RemoteAddress::Away,
            // Of the home of whoever pushes, or of somebody else.
            _ if text.starts_with('~') => RemoteAddress::Other,
            _ => RemoteAddress::Path,
        }
    }
}

/// The hooks that are no samples.
fn hooks(git: BorrowedFd<'_>) -> Result<BTreeMap<Vec<u8>, String>, Errno> {
    hooks_in(git, Path::new("hooks"))
}

/// The same in a directory below or beside this one.
pub(super) fn hooks_in(at: BorrowedFd<'_>, directory: &Path) -> Result<BTreeMap<Vec<u8>, String>, Errno> {
    let mut hooks = files(at, directory)?;
    hooks.retain(|name, _| !name.ends_with(b".sample"));
    Ok(hooks)
}

/// Which file this is and since when, where it is no directory.
fn program(at: BorrowedFd<'_>, file: &Path) -> Result<Option<String>, Errno> {
    match openat2(at, file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        Ok(file) => {
            let about = fstat(&file)?;
            let is_directory = FileType::from_raw_mode(about.st_mode) == FileType::Directory;
            Ok((!is_directory).then(|| since(&about)))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e),
    }
}

fn since(s: &rustix::fs::Stat) -> String {
    format!("{} {:o} {} {}.{}", s.st_ino, s.st_mode, s.st_size, s.st_ctime, s.st_ctime_nsec)
}

/// The remotes that are files of their own, in both of their forms (gitrepository-layout(5)).
fn remotes(git: BorrowedFd<'_>) -> Result<BTreeMap<Vec<u8>, String>, Errno> {
    let mut found = BTreeMap::new();
    for directory in ["remotes", "branches"] {
        found.extend(files(git, Path::new(directory))?.into_iter().map(|(name, file)| {
            let path = [directory.as_bytes(), b"/", &name].concat();
            (path, file)
        }));
    }
    Ok(found)
}

/// Which file each is in a directory, and since when. The time of a change is the kernel's, so no program can set it back.
fn files(git: BorrowedFd<'_>, directory: &Path) -> Result<BTreeMap<Vec<u8>, String>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = match openat2(git, directory, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        Ok(directory) => directory,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(BTreeMap::new()),
        Err(e) => return Err(e),
    };
    let mut found = BTreeMap::new();
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let name = entry?.file_name().to_bytes().to_owned();
        if matches!(name.as_slice(), b"." | b"..") {
            continue;
        }
        if found.len() == MOST_FILES {
            return Err(Errno::TOOBIG);
        }
        let file = match statat(&directory, OsStr::from_bytes(&name), AtFlags::empty()) {
            Ok(about) => since(&about),
            Err(e) => e.to_string(),
        };
        found.insert(name, file);
    }
    Ok(found)
}

/// Whether a configuration has only what `git init`, `git clone`, `git branch` and `git sparse-checkout` write. What is written
/// in any other way than theirs does not count as that.
pub(super) fn is_plain(config: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(config) else { return false };
    // Blanks that are none for git.
    if text.chars().any(|c| !matches!(c, '\n' | '\t' | '\r' | ' ') && (c.is_control() || c.is_whitespace())) {
        return false;
    }
    let mut keys: &[&str] = &[];
    text.lines().map(str::trim).filter(|line| !line.is_empty()).all(|line| {
        if let Some(header) = line.strip_prefix('[') {
            let Some(header) = header.strip_suffix(']') else { return false };
            let (name, rest) = header.split_once(' ').unwrap_or((header, ""));
            let quoted = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            keys = match (name, rest.is_empty(), quoted) {
                ("core", true, None) => &[
                    "repositoryformatversion",
                    "filemode",
                    "bare",
                    "logallrefupdates",
                    "symlinks",
                    "ignorecase",
                    "sparsecheckout",
                    "sparsecheckoutcone",
                ],
                ("index", true, None) => &["sparse"],
                ("extensions", true, None) => &["objectformat", "refstorage"],
                ("user", true, None) => &["name", "email"],
                ("remote", false, Some(_)) => &["url", "fetch"],
                ("branch", false, Some(_)) => &["remote", "merge", "rebase"],
                _ => return false,
            };
            return !rest.contains(['\\', ']', '[']) && quoted.is_none_or(|quoted| !quoted.contains('"'));
        }
        let Some((key, value)) = line.split_once('=') else { return false };
        let key = key.trim().to_ascii_lowercase();
        let is_address = matches!(key.as_str(), "url" | "remote");
        // The address of a remote can name a program: `ext::command`.
        !value.contains(['\\', '"', '\r'])
            && !value.contains("::")
            && keys.contains(&key.as_str())
            && (!is_address || is_plain_address(value.trim()))
    })
}

/// Whether an address is one, without a comment behind it. An empty one takes back those before it.
fn is_plain_address(value: &str) -> bool {
    !value.is_empty() && !value.contains(['#', ';']) && RemoteAddress::of(value) != RemoteAddress::Other
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
    cofferdam_audit::hex(&hasher.finalize())
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
            "[remote \"x\"]\nurl = file://localhost/x",
            "[remote \"x\"]\nurl = file:///%78",
            "[remote \"x\"]\nurl = FILE:///x",
            "[remote \"x\"]\nurl = ~/x",
            "[remote \"x\"]\nurl = ~",
            "[remote \"x\"]\nurl = /x # y",
            "[remote \"x\"]\nurl = /x;y",
            "[remote \"x\"]\nurl = https://x/y\nurl =",
            "[remote \"x\"]\nurl = \u{a0}x",
            "[remote \"x\"]\nurl = x\u{b}",
            "[branch \"x\"]\nremote = /x # y",
            "[branch \"x\"]\nremote = file://localhost/x",
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
