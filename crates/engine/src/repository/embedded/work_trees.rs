//! Which work tree each directory in `.git/worktrees` is of, which its file `gitdir` says, and what git obeys of it.
//!
//! The file `.git` of a linked work tree is protected because a `gitdir` names it. So one that names another file after a run,
//! or none, is put back as it was: else the next run could write the `.git` that is no longer named.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::paths::lexical;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;

use super::obeyed::{absent, beneath, hash, read, read_itself};
use super::{SUFFIX, disable_in, obeyed, permit, permit_above};

/// What each `gitdir` says, by its path below the repository.
pub(super) type WorkTrees = BTreeMap<PathBuf, String>;

/// Most bytes of a `gitdir`.
const MOST: u64 = 8192;

/// The directory in `.git/worktrees` that has this `gitdir`.
fn own(git: BorrowedFd<'_>, gitdir: &Path) -> Option<PathBuf> {
    let git = std::fs::read_link(Path::new("/proc/self/fd").join(git.as_raw_fd().to_string())).ok()?;
    git.join(gitdir).parent().map(Path::to_owned)
}

/// The file that a `gitdir` in this directory names, without links. None where it is in no directory.
fn named(own: &Path, says: &[u8]) -> Option<PathBuf> {
    let file = own.join(OsStr::from_bytes(says.trim_ascii()));
    Some(std::fs::canonicalize(file.parent()?).ok()?.join(file.file_name()?))
}

/// Whether this file `.git` says that its repository is this directory.
fn leads_back(file: &Path, own: &Path) -> bool {
    let text = read(CWD, file, MOST).ok().flatten().unwrap_or_default();
    let back = text.strip_prefix(b"gitdir:").zip(file.parent());
    let back = back.map(|(back, tree)| tree.join(OsStr::from_bytes(back.trim_ascii())));
    back.is_some_and(|back| std::fs::canonicalize(back).is_ok_and(|back| back == own))
}

/// Whether a `gitdir` names a file `.git` that leads back, or one in the work tree around, or one where nothing is:
/// `git worktree repair` makes that file anew wherever it is.
pub(super) fn is_harmless(git: BorrowedFd<'_>, gitdir: &Path, says: &[u8]) -> bool {
    let Some(own) = own(git, gitdir) else { return false };
    let Some(file) = named(&own, says) else { return true };
    let around = own.parent().and_then(Path::parent).and_then(Path::parent);
    around.is_some_and(|around| around != Path::new("/") && file.parent().is_some_and(|tree| tree.starts_with(around)))
        || leads_back(&file, &own)
}

/// The hash of what git would obey in the directory of a linked work tree, where its `commondir` does not lead to the
/// repository around it: git takes its configuration from where that leads, and without one from the directory itself.
pub(super) fn own_repository(git: BorrowedFd<'_>, at: &Path) -> Option<String> {
    let commondir = at.join("commondir");
    let says = read_itself(git, &commondir, MOST);
    if matches!(&says, Ok(Some(says)) if is_around(git, &commondir, says)) {
        return None;
    }
    let config = read_itself(git, &at.join("config"), MOST).ok().flatten().unwrap_or_default();
    Some(hash(&[says.ok().flatten().as_deref().unwrap_or_default(), &config]))
}

/// Whether a `commondir` leads to the repository around it. git reads a path up to the ends of lines behind it, blanks and all.
fn is_around(git: BorrowedFd<'_>, commondir: &Path, says: &[u8]) -> bool {
    let Some(own) = own(git, commondir) else { return false };
    let end = says.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let leads = std::fs::canonicalize(own.join(OsStr::from_bytes(&says[..end])));
    own.parent().and_then(Path::parent).is_some_and(|around| leads.is_ok_and(|leads| leads == around))
}

/// Whether a `config.worktree` has nothing but what git writes by itself, or is the copy of the repository's own that
/// `git worktree add` makes.
pub(super) fn is_plain(git: BorrowedFd<'_>, name: &Path, says: &[u8]) -> bool {
    let around = name.parent().and_then(Path::parent).and_then(Path::parent);
    let theirs = around.and_then(|around| read(git, &around.join("config.worktree"), MOST).ok().flatten());
    obeyed::is_plain(says) || theirs.is_some_and(|theirs| theirs == says)
}

/// What a `gitdir` says whose file leads back.
pub(super) fn known(git: BorrowedFd<'_>, gitdir: &Path) -> Option<String> {
    let says = read_itself(git, gitdir, MOST).ok()??;
    let own = own(git, gitdir)?;
    let file = named(&own, &says).filter(|file| leads_back(file, &own));
    file.and_then(|_| String::from_utf8(says).ok())
}

/// What became of a `gitdir`.
pub(super) enum Restored {
    AsBefore,
    /// It was put back, and what was in its place has this name in the repository, or was replaced.
    From(Option<PathBuf>),
}

/// Has a `gitdir` say again what it said before, where the file that it named still leads back. One that names another file
/// gets another name in the repository. One that names what is not there is replaced: git in a sandbox writes paths of the
/// sandbox. Permissions that the program took away from the work tree are given back.
///
/// # Errors
/// It cannot be written.
pub(super) fn restore(git: BorrowedFd<'_>, gitdir: &Path, said: &str) -> Result<Restored, Errno> {
    let Some(own) = own(git, gitdir) else { return Ok(Restored::AsBefore) };
    let file = own.join(said.trim());
    if file.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied) {
        permit_above(&file);
    }
    let Some(before) = named(&own, said.as_bytes()).filter(|file| leads_back(file, &own)) else {
        return Ok(Restored::AsBefore);
    };
    let now = read_itself(git, gitdir, MOST);
    // By a link that the program may make lead elsewhere it is not the same.
    let written = |says: &[u8]| lexical(&own.join(OsStr::from_bytes(says.trim_ascii())));
    if let Ok(Some(now)) = &now
        && (written(now) == written(said.as_bytes()) || written(now) == before)
    {
        return Ok(Restored::AsBefore);
    }
    let names = now.as_ref().ok().and_then(|now| named(&own, now.as_deref()?)).filter(|file| *file != before);
    let (Some(parent), Some(name)) = (gitdir.parent(), gitdir.file_name()) else { return Ok(Restored::AsBefore) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat2(git, parent, flags, Mode::empty(), beneath()) {
        Err(e) if absent(e) => return Ok(Restored::AsBefore),
        opened => opened?,
    };
    let mut disabled = None;
    // What is no file cannot be replaced by one.
    if names.is_some_and(|file| file.symlink_metadata().is_ok()) || now.is_err() {
        disabled = Some(disable_in(parent.as_fd(), name, git, SUFFIX)?.into());
    }
    let made = format!("{}.{}", name.to_string_lossy(), &cofferdam_audit::random::uuid()[..8]);
    let create = || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&parent, &made, flags, Mode::from_raw_mode(0o644))
    };
    let file = match create() {
        Err(Errno::ACCESS) => {
            permit(parent.as_fd());
            create()
        }
        file => file,
    }?;
    let written = std::fs::File::from(file)
        .write_all(said.as_bytes())
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
        .and_then(|()| renameat(&parent, &made, &parent, name));
    if written.is_err() {
        unlinkat(&parent, &made, AtFlags::empty()).ok(); // that it could not be written is what is said
    }
    written.map(|()| Restored::From(disabled))
}
