//! The repositories that the addresses of remotes lead to: `git push` runs their hooks.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use super::addresses::{self, AddressEnd};
use super::obeyed::{
    DIRECTORY, MOST_BYTES, Print, SUFFIXES, Scope, hash, is_gitfile, obeyed, open, place_of, read, with_suffix,
};
use crate::plan::tree::Disk;

/// A repository that a remote of the work tree's own repository leads to: `git push` runs its hooks.
pub(super) struct Remote {
    /// Its directory, or the file `.git` that leads to it, without links; a link, where that leads elsewhere for each process.
    pub place: PathBuf,
    pub obeys: Print,
    pub plain: bool,
}

/// Those of the remotes whose address is a path. What is the repository itself, or its work tree, is left out. With `restore`,
/// permissions that its owner lacks on the way are given back.
pub(super) fn remotes_of(tree: BorrowedFd<'_>, git: BorrowedFd<'_>, scope: Scope<'_>, restore: bool) -> Vec<Remote> {
    let common = read(git, Path::new("commondir"), MOST_BYTES).ok().flatten();
    let common = common.and_then(|common| open(git, OsStr::from_bytes(common.trim_ascii_end())).ok());
    let known = [place_of(git), common.as_ref().and_then(|common| place_of(common.as_fd()))];
    let Some(top) = place_of(tree) else { return Vec::new() };
    let own: Vec<String> = known.iter().flatten().filter_map(|place| place.to_str().map(str::to_owned)).collect();
    let mut found = Vec::new();
    for address in addresses::push_paths(&Disk, &own) {
        // git may be called in the repository's own directory, and takes an address as relative to that.
        let own = known.iter().flatten().filter(|own| **own != top && is_in(own, &address));
        for from in std::iter::once(&top).chain(own) {
            for suffix in SUFFIXES {
                found.extend(remotes_at(from, &with_suffix(&address, suffix), scope, restore));
            }
        }
    }
    let mut places = BTreeSet::new();
    found.retain(|remote| !known.contains(&Some(remote.place.clone())) && places.insert(remote.place.clone()));
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
