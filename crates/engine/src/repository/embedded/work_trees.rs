//! Which work tree each directory in `.git/worktrees` is of, which its file `gitdir` says, and what git obeys of it.
//!
//! The file `.git` of a linked work tree is protected because a `gitdir` names it. So one that names another file after a run,
//! or none, is put back as it was: else the next run could write the `.git` that is no longer named.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::paths::lexical;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;

use super::obeyed::{absent, beneath, hash, read, read_itself};
use super::{SUFFIX, disable_in, obeyed, permit, permit_above};
use crate::plan::tree::Disk;
use crate::repository::configurations::relative_programs;
use crate::repository::vcs_config::has_relative_include;

/// What each `gitdir` says, by its path below the repository.
pub(super) type WorkTrees = BTreeMap<PathBuf, String>;

/// Most bytes of a `gitdir`.
const MOST: u64 = 8192;

/// The directory in `.git/worktrees` that has this `gitdir`.
fn own(git: BorrowedFd<'_>, gitdir: &Path) -> Option<PathBuf> {
    let git = std::fs::read_link(Path::new("/proc/self/fd").join(git.as_raw_fd().to_string())).ok()?;
    git.join(gitdir).parent().map(Path::to_owned)
}

/// Where a path leads when its links are followed. A link of the kernel's to the directory of whichever process follows it, as
/// `/proc/self/cwd` is, leads elsewhere for git than here: ELOOP.
fn resolve(path: &Path) -> Result<PathBuf, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let end = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
    let opened = Path::new("/proc/self/fd").join(end.as_raw_fd().to_string());
    std::fs::read_link(opened).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

/// The file that a `gitdir` in this directory names, without links.
fn named(own: &Path, says: &[u8]) -> Result<PathBuf, Errno> {
    let file = own.join(OsStr::from_bytes(says.trim_ascii_end()));
    let (parent, name) = file.parent().zip(file.file_name()).ok_or(Errno::NOENT)?;
    Ok(resolve(parent)?.join(name))
}

/// Where this file `.git` says that its repository is.
fn back(file: &Path) -> Result<PathBuf, Errno> {
    let text = read(CWD, file, MOST)?.unwrap_or_default();
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let says = text[..end].strip_prefix(b"gitdir: ").zip(file.parent());
    says.map_or(Err(Errno::NOENT), |(says, tree)| resolve(&tree.join(OsStr::from_bytes(says))))
}

/// Whether this file `.git` says that its repository is this directory.
fn leads_back(file: &Path, own: &Path) -> bool {
    back(file).is_ok_and(|back| back == own)
}

/// Whether a `gitdir` names a file `.git` that leads back, or one in the work tree around, or one where nothing is:
/// `git worktree repair` makes that file anew wherever it is.
pub(super) fn is_harmless(git: BorrowedFd<'_>, gitdir: &Path, says: &[u8]) -> bool {
    let Some(own) = own(git, gitdir) else { return false };
    let file = match named(&own, says) {
        Ok(file) => file,
        Err(e) => return e != Errno::LOOP,
    };
    if back(&file) == Err(Errno::LOOP) {
        return false;
    }
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

/// Whether a `commondir` names the repository around it, as git writes it or by its whole path. Through links it could lead
/// elsewhere for another process, or later. git reads a path up to the ends of lines behind it, blanks and all.
fn is_around(git: BorrowedFd<'_>, commondir: &Path, says: &[u8]) -> bool {
    let end = says.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let says = says[..end].strip_suffix(b"/").unwrap_or(&says[..end]);
    let own = own(git, commondir);
    let around = own.as_deref().and_then(Path::parent).and_then(Path::parent);
    says == b"../.." || around.is_some_and(|around| says == around.as_os_str().as_bytes())
}

/// What a directory of a linked work tree counts as whose hooks are others than the repository's.
pub(super) const OTHER_HOOKS: &str = "other hooks";

/// Whether a linked work tree has hooks that differ from those in the work tree around the repository: where `core.hooksPath`
/// or `core.fsmonitor` is relative, git looks for them in each work tree.
pub(super) fn has_other_hooks(git: BorrowedFd<'_>, at: &Path) -> bool {
    let Some(own) = own(git, &at.join("commondir")) else { return false };
    let Some(around) = own.parent().and_then(Path::parent) else { return false };
    let configurations = [around.join("config"), around.join("config.worktree"), own.join("config.worktree")];
    let configurations = configurations.map(|file| file.to_string_lossy().into_owned());
    let relative = relative_programs(&Disk, &configurations);
    if relative.is_empty() {
        return false;
    }
    let says = read_itself(git, &at.join("gitdir"), MOST).ok().flatten().unwrap_or_default();
    let Some(tree) = named(&own, &says).ok().and_then(|file| file.parent().map(Path::to_owned)) else { return false };
    let main = around.parent();
    relative.iter().any(|directory| {
        // A push to the work tree has hooks looked for in its own directory of the repository.
        let receiving = obeyed::hooks_in(CWD, &own.join(directory));
        // husky's `_` has what runs the scripts beside it.
        let all = if directory.ends_with("_") { directory.parent().unwrap_or(directory) } else { directory };
        let known = main.map(|main| main.join(all));
        receiving.map_or_else(|e| !absent(e) || e == Errno::LOOP, |hooks| !hooks.is_empty())
            || !same_files(&tree.join(all), known.as_deref(), &mut MOST_FILES.clone())
    })
}

/// Files that are compared, at most.
const MOST_FILES: usize = 4096;

/// Whether each file below a directory has the same text as that of its name below another, and no other name through which it
/// could be written. One that cannot be read is none that is, and so is each where there are too many.
fn same_files(directory: &Path, known: Option<&Path>, left: &mut usize) -> bool {
    let text = |file: &Path| read(CWD, file, 1 << 20).ok().flatten();
    let is_same = |theirs: &Path, known: &Path, about: &std::fs::Metadata| {
        about.is_file() && about.nlink() == 1 && text(theirs).is_some_and(|theirs| text(known) == Some(theirs))
    };
    // A program by itself.
    if std::fs::metadata(directory).is_ok_and(|about| !about.is_dir()) {
        let about = std::fs::symlink_metadata(directory);
        return about.is_ok_and(|about| known.is_some_and(|known| is_same(directory, known, &about)));
    }
    let hooks = match obeyed::hooks_in(CWD, directory) {
        Ok(hooks) => hooks,
        Err(e) => return absent(e) && e != Errno::LOOP,
    };
    hooks.keys().map(|name| Path::new(OsStr::from_bytes(name))).all(|name| {
        let (Some(now_left), Some(known)) = (left.checked_sub(1), known) else { return false };
        *left = now_left;
        let (theirs, known) = (directory.join(name), known.join(name));
        match std::fs::symlink_metadata(&theirs) {
            Ok(about) if about.is_dir() => same_files(&theirs, Some(&known), left),
            // A link may lead elsewhere later.
            about => about.is_ok_and(|about| is_same(&theirs, &known, &about)),
        }
    })
}

/// Whether a `config.worktree` has nothing but what git writes by itself, or is the copy of the repository's own that
/// `git worktree add` makes.
pub(super) fn is_plain(git: BorrowedFd<'_>, name: &Path, says: &[u8]) -> bool {
    let around = name.parent().and_then(Path::parent).and_then(Path::parent);
    let theirs = around.and_then(|around| read(git, &around.join("config.worktree"), MOST).ok().flatten());
    // A file that the copy names relative to itself is another one.
    let is_same = |theirs: Vec<u8>| theirs == says && !has_relative_include(&String::from_utf8_lossy(says));
    obeyed::is_plain(says) || theirs.is_some_and(is_same)
}

/// What a `gitdir` says whose file leads back.
pub(super) fn known(git: BorrowedFd<'_>, gitdir: &Path) -> Option<String> {
    let says = read_itself(git, gitdir, MOST).ok()??;
    let own = own(git, gitdir)?;
    let leads = named(&own, &says).is_ok_and(|file| leads_back(&file, &own));
    leads.then(|| String::from_utf8(says).ok()).flatten()
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
    let file = own.join(said.trim_end());
    if file.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied) {
        permit_above(&file);
    }
    let Some(before) = named(&own, said.as_bytes()).ok().filter(|file| leads_back(file, &own)) else {
        return Ok(Restored::AsBefore);
    };
    let now = read_itself(git, gitdir, MOST);
    // By a link that the program may make lead elsewhere it is not the same.
    let written = |says: &[u8]| lexical(&own.join(OsStr::from_bytes(says.trim_ascii_end())));
    if let Ok(Some(now)) = &now
        && (written(now) == written(said.as_bytes()) || written(now) == before)
    {
        return Ok(Restored::AsBefore);
    }
    let names = now.as_ref().ok().and_then(|now| named(&own, now.as_deref()?).ok()).filter(|file| *file != before);
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
