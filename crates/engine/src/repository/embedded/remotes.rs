//! The repositories that the addresses of remotes lead to: `git push` runs their hooks.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use super::addresses::{self, AddressEnd, Destinations};
use super::named::names_any;
use super::obeyed::{
    DIRECTORY, MOST_BYTES, Print, SUFFIXES, Scope, hash, is_gitfile, obeyed, open, place_of, read, with_suffix,
};
use crate::plan::mount_table::join;
use crate::plan::tree::Disk;
use crate::repository::configurations::led_to_from;
use crate::repository::vcs_config::has_relative_include;

/// A repository that a remote leads to: `git push` runs its hooks.
pub(super) struct Remote {
    /// Its directory, or the file `.git` that leads to it, without links; a link, where that leads elsewhere for each process.
    pub place: PathBuf,
    pub obeys: Print,
    pub plain: bool,
}

/// The directories of a repository: its own, and the one that work trees share.
struct RepositoryDirectories {
    own: OwnedFd,
    shared: Option<OwnedFd>,
}

impl RepositoryDirectories {
    fn of(git: BorrowedFd<'_>) -> Result<RepositoryDirectories, Errno> {
        let common = read(git, Path::new("commondir"), MOST_BYTES).ok().flatten();
        let shared = common.and_then(|common| open(git, OsStr::from_bytes(common.trim_ascii_end())).ok());
        Ok(RepositoryDirectories {
            own: openat2(git, ".", DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS)?,
            shared,
        })
    }

    fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.own.as_fd()).chain(self.shared.as_ref().map(|shared| shared.as_fd()))
    }

    fn places(&self) -> Vec<PathBuf> {
        self.all().filter_map(place_of).collect()
    }

    /// What the repository says of pushes.
    ///
    /// # Errors
    /// It includes a file relative to a place whose name is no text.
    fn destinations(&self) -> Result<Destinations, Errno> {
        let mut own = Vec::new();
        for directory in self.all() {
            let place = place_of(directory).and_then(|place| place.into_os_string().into_string().ok());
            let is_text = place.is_some();
            // Its files can be read by this name all the same.
            own.push(place.unwrap_or_else(|| format!("/proc/self/fd/{}", directory.as_raw_fd())));
            for name in ["config", "config.worktree"].iter().filter(|_| !is_text) {
                let text = read(directory, Path::new(name), MOST_BYTES)?.unwrap_or_default();
                if has_relative_include(&String::from_utf8_lossy(&text)) {
                    return Err(Errno::ILSEQ);
                }
            }
        }
        Ok(Destinations::of_repository(&Disk, &own))
    }
}

/// Those of the remotes of a work tree's own repository whose address is a path. What is the repository itself, or its work
/// tree, is left out. With `restore`, permissions that its owner lacks on the way are given back.
pub(super) fn remotes_of(tree: BorrowedFd<'_>, git: BorrowedFd<'_>, scope: Scope<'_>, restore: bool) -> Vec<Remote> {
    let Ok(directories) = RepositoryDirectories::of(git) else { return Vec::new() };
    let own = directories.destinations().unwrap_or_default();
    let pushed = own.and(scope.callers).pushed_to(["origin".into()]).paths(&Disk);
    remotes_with(tree, &directories.places(), &pushed.paths, scope, restore)
}

/// The same of a repository in the work tree `around`, which is left out as well. What its own configuration leads to counts
/// wherever it is, and what the caller's has it lead to counts for what lies in the volumes.
///
/// # Errors
/// One of them cannot be looked at, or is too much, so whether it changes cannot be known.
pub(super) fn remotes_of_embedded(
    around: BorrowedFd<'_>,
    tree: BorrowedFd<'_>,
    git: BorrowedFd<'_>,
    scope: Scope<'_>,
    restore: bool,
) -> Result<Vec<Remote>, Errno> {
    let directories = RepositoryDirectories::of(git)?;
    // A push of the repository around hands on the name of its remote.
    let outer = place_of(around).and_then(|place| place.into_os_string().into_string().ok());
    let outer: Vec<String> =
        outer.iter().flat_map(|top| std::iter::once(join(top, ".git")).chain(led_to_from(top, &Disk))).collect();
    let outer = Destinations::of_repository(&Disk, &outer).and(scope.callers);
    let own = directories.destinations()?.pushed_to(outer.names().cloned().chain(["origin".into()]));
    let all = own.clone().and(scope.callers);
    if all.is_too_much() {
        return Err(Errno::TOOBIG);
    }
    let (own, all) = (own.paths(&Disk), all.paths(&Disk));
    if own.cut || all.cut {
        return Err(Errno::TOOBIG);
    }
    let places = directories.places();
    let other: BTreeSet<OsString> = all.paths.difference(&own.paths).cloned().collect();
    let mut found = remotes_with(tree, &places, &own.paths, scope, restore);
    for mut remote in remotes_with(tree, &places, &other, scope, restore) {
        match &remote.obeys {
            _ if scope.volumes.iter().any(|volume| remote.place.starts_with(volume)) => {}
            Some(obeys) if names_any(obeys) => {}
            Some(_) => continue,
            // What it names in a volume is not known.
            None => remote.obeys = Some("cannot be looked at".into()),
        }
        found.push(remote);
    }
    let is = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let itself = statat(around, ".git", AtFlags::SYMLINK_NOFOLLOW).map(is).ok();
    found.retain(|remote| {
        let other = statat(CWD, &remote.place, AtFlags::SYMLINK_NOFOLLOW).map(is).ok();
        itself.is_none() || other != itself
    });
    if found.iter().any(|remote| remote.obeys.is_none()) {
        return Err(Errno::AGAIN);
    }
    Ok(found)
}

/// The remotes at these addresses, of a repository with these directories.
fn remotes_with(
    tree: BorrowedFd<'_>,
    known: &[PathBuf],
    addresses: &BTreeSet<OsString>,
    scope: Scope<'_>,
    restore: bool,
) -> Vec<Remote> {
    let Some(top) = place_of(tree) else { return Vec::new() };
    let mut found = Vec::new();
    for address in addresses {
        // git may be called in the repository's own directory, and takes an address as relative to that.
        let own = known.iter().filter(|own| **own != top && is_in(own, address));
        for from in std::iter::once(&top).chain(own) {
            for suffix in SUFFIXES {
                found.extend(remotes_at(from, &with_suffix(address, suffix), scope, restore));
            }
        }
    }
    let mut places = BTreeSet::new();
    found.retain(|remote| !known.contains(&remote.place) && places.insert(remote.place.clone()));
    found
}

/// Whether something may be at an address in this directory.
fn is_in(own: &Path, address: &OsStr) -> bool {
    let mut parts = Path::new(address).components();
    // Where that cannot be looked at, it may be.
    let may_be =
        |name: &OsStr| own.join(name).symlink_metadata().map_or_else(|e| e.kind() != ErrorKind::NotFound, |_| true);
    match parts.next() {
        // Where the address has no more to it, `.git` may be behind it.
        Some(Component::Normal(first)) if parts.next().is_none() => {
            [first.to_owned(), with_suffix(first, ".git")].iter().any(|name| may_be(name))
        }
        Some(Component::Normal(first)) => may_be(first),
        Some(Component::CurDir | Component::ParentDir) => true,
        _ => false,
    }
}

/// What git may find at this path: a repository, or a file that leads to one, and that one.
fn remotes_at(top: &Path, path: &OsStr, scope: Scope<'_>, restore: bool) -> Vec<Remote> {
    // Through links of the kernel's it is another path for git than here.
    let opened = || match addresses::resolve(top, path) {
        AddressEnd::At(end) => {
            let opened = openat2(CWD, &end, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS);
            Ok((end, opened))
        }
        AddressEnd::Nowhere => Err(Vec::new()),
        AddressEnd::Unknown(links) => Err(links),
    };
    let is_closed = |git: &OwnedFd| statat(git, "HEAD", AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::ACCESS);
    let opened = match opened() {
        Ok((end, Err(Errno::ACCESS))) if restore => {
            super::permit_above(&end.join("HEAD"));
            opened()
        }
        opened => opened,
    };
    if let Ok((_, Ok(git))) = &opened
        && restore
        && is_closed(git)
    {
        super::permit(git.as_fd());
    }
    let remote = |place: &Path, (obeys, plain)| Remote { place: place.to_owned(), obeys, plain };
    let unknown = |why: String| (Some(why), false);
    match opened {
        Err(links) => links.iter().map(|link| remote(link, unknown("elsewhere for each process".into()))).collect(),
        Ok((end, Ok(git))) => judged_remote(git.as_fd(), scope).map(|files| remote(&end, files)).into_iter().collect(),
        Ok((_, Err(Errno::NOENT | Errno::NAMETOOLONG))) => Vec::new(),
        Ok((end, Err(Errno::NOTDIR))) if !is_gitfile(CWD, &end) => Vec::new(),
        Ok((end, Err(Errno::NOTDIR))) => {
            let text = read(CWD, &end, MOST_BYTES).ok().flatten().unwrap_or_default();
            let says = text.strip_prefix(b"gitdir:").map(<[u8]>::trim_ascii).zip(end.parent());
            let git = says.map(|(says, within)| within.join(OsStr::from_bytes(says)));
            let git = git.and_then(|git| match addresses::resolve(top, git.as_os_str()) {
                AddressEnd::At(git) => Some(git),
                AddressEnd::Unknown(_) | AddressEnd::Nowhere => None,
            });
            let files = git.as_ref().and_then(|git| {
                let git = openat2(CWD, git, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?;
                judged_remote(git.as_fd(), scope)
            });
            let print = files.as_ref().and_then(|(obeys, _)| Some(hash(&[&text, obeys.as_ref()?.as_bytes()])));
            let led = git.zip(files).map(|(git, files)| remote(&git, files));
            std::iter::once(remote(&end, (print, false))).chain(led).collect()
        }
        Ok((end, Err(e))) => vec![remote(&end, unknown(format!("cannot be looked at: {e}")))],
    }
}

/// What a repository obeys to which is pushed, and whether none of it could run a program. None where it is none.
fn judged_remote(git: BorrowedFd<'_>, scope: Scope<'_>) -> Option<(Print, bool)> {
    statat(git, "HEAD", AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let files = obeyed(git).and_then(|mut files| {
        files.add_beside(git, scope)?;
        Ok(files)
    });
    Some(files.map_or((None, false), |files| (Some(files.print()), files.is_plain())))
}
