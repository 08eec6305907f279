//! Layers that hide many names of one directory by one mount: a directory of whiteouts, named by its content.
//!
//! Making thousands of whiteouts takes long, and they name nothing of the host's but names: so a layer is made once,
//! complete before it gets its name, and used again by every later run with the same names. Its name is no proof of what is in it:
//! each run lists it, and mounts the very directory that it listed.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_audit::hidden::{Remembered, remember};
use cofferdam_audit::opened;
use cofferdam_policy::{Access, Field, Mount, Policy};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, mkdirat, mknodat, openat, openat2, renameat,
};
use rustix::io::Errno;

use crate::failure::Failure;

fn fail(what: &str, path: &Path, e: &std::io::Error) -> Failure {
    Failure::new(Field::Deny, format!("{what} {}: {e}", path.display()))
        .hint("remove it, or set XDG_CACHE_HOME, without XDG_RUNTIME_DIR, to a directory that this user can write")
}

/// Where layers lie: in the runtime directory, which no root view shows, else in the cache.
pub(crate) fn base() -> PathBuf {
    bases().swap_remove(0)
}

/// Where layers really lie, behind the links on the way: what is not there yet comes into being where the way to it ends.
pub(crate) fn real_base() -> PathBuf {
    let base = base();
    let there = base.ancestors().find_map(|dir| Some((dir, fs::canonicalize(dir).ok()?)));
    there.and_then(|(dir, real)| Some(real.join(base.strip_prefix(dir).ok()?))).unwrap_or(base)
}

/// Everywhere that layers of this user's may lie, whatever the next run finds in its variables; this run's first.
pub(crate) fn bases() -> Vec<PathBuf> {
    let me = rustix::process::geteuid();
    if me.is_root() {
        return vec![PathBuf::from("/var/cache/cofferdam/hidden")];
    }
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let runtime = named("XDG_RUNTIME_DIR").filter(|run| own(run).is_ok());
    let cache = named("HOME").map(|home| home.join(".cache"));
    let all = runtime.into_iter().chain(named("XDG_CACHE_HOME")).chain(cache).chain([last_resort(me)]);
    all.map(|dir| dir.join("cofferdam/hidden")).collect()
}

fn last_resort(me: rustix::process::Uid) -> PathBuf {
    PathBuf::from(format!("/tmp/cofferdam-{}", me.as_raw()))
}

/// Makes this run's own place for layers where the program could make it, before it is looked at: what is there can be
/// sealed, while a layer that comes into being after the look lies open to the program it is to hold. Of the other places
/// only what leads to ours is made, whose name can be guarded without taking a cache from programs.
pub(crate) fn claim(policy: &Policy) {
    let writable: Vec<PathBuf> = policy
        .filesystem
        .mounts
        .iter()
        .filter_map(|m| match m {
            Mount::Bind { source, access: Access::ReadWrite, .. } => fs::canonicalize(source).ok(),
            _ => None,
        })
        .collect();
    if writable.is_empty() {
        return;
    }
    let bases = bases();
    for (i, base) in bases.iter().enumerate() {
        let there = base.ancestors().find_map(|dir| fs::canonicalize(dir).ok());
        let above = base.ancestors().nth(2);
        if there.is_some_and(|dir| writable.iter().any(|w| dir.starts_with(w))) {
            // Who cannot make it finds its name guarded.
            let may_be_used = i == 0 || (*base == resort() && is_moved(&bases[0]));
            match above.filter(|_| !may_be_used) {
                None => make_base(base).ok().map(drop),
                Some(above) if !base.starts_with("/tmp") => make_way(above).ok().map(drop),
                Some(_) => None,
            };
        }
    }
}

/// Where layers lie if they can lie nowhere else.
fn resort() -> PathBuf {
    last_resort(rustix::process::geteuid()).join("cofferdam/hidden")
}

/// A name for what is kept under a key of its content.
fn digest(content: &impl Hash) -> String {
    let (mut one, mut two) = (DefaultHasher::new(), DefaultHasher::new());
    content.hash(&mut one);
    (content, 1u8).hash(&mut two);
    format!("{:016x}{:016x}", one.finish(), two.finish())
}

/// A layer as it was looked at.
#[derive(Debug)]
pub(crate) struct VerifiedLayer {
    /// Its path without links.
    pub path: String,
    /// Its device and inode.
    pub identity: (u64, u64),
}

/// The layer that hides exactly these names, which are sorted and differ. Whatever lies at its place counts only where it is
/// what this function would have made: code of an earlier run may have written there, or a cleaner of caches. `remembered`
/// are the directories that runs without this run's variables know of.
///
/// # Errors
/// The cache cannot be written, is not this user's alone, or something else changes it.
pub(crate) fn layer(names: &[String], remembered: &[PathBuf]) -> Result<VerifiedLayer, Failure> {
    let (real, at) = place(remembered)?;
    let name = format!("{}-{}", digest(&names), names.len());
    let path = real.join(&name);
    for _ in 0..MOST_TRIES {
        match look(&at, &name, names).map_err(|e| fail("cannot look at", &path, &e.into()))? {
            Found::Whole(identity) => {
                let utf8 = |d| fail("cannot use", Path::new(&d), &std::io::Error::other("its path is not UTF-8"));
                return Ok(VerifiedLayer { path: path.into_os_string().into_string().map_err(utf8)?, identity });
            }
            Found::Unfit => put_aside(&at, &name).map_err(|e| {
                let e = std::io::Error::from(e);
                fail("something changed what hides names, and it cannot be renamed,", &path, &e)
            })?,
            Found::Missing => {}
        }
        sweep(&real);
        make(&at, &real, &name, names)?;
    }
    Err(fail("will not use", &path, &std::io::Error::other("something else changes it again and again")))
}

/// A layer is made, and then looked at; another run may put it aside that had looked at the one before.
const MOST_TRIES: usize = 4;

/// The place for layers, opened: where a variable names it, only if runs without that variable can be made to hide it, and else
/// one that every run of this user seals.
fn place(remembered: &[PathBuf]) -> Result<(PathBuf, OwnedFd), Failure> {
    let base = base();
    let real = make_base(&base)?;
    let at = open_base(&real)?;
    if !is_moved(&base) || remember_base(&real, remembered)? {
        return Ok((real, at));
    }
    let real = make_base(&resort())?;
    let at = open_base(&real)?;
    Ok((real, at))
}

/// Whether a variable names the place: runs without it look elsewhere.
fn is_moved(base: &Path) -> bool {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let usual = home.into_iter().chain([PathBuf::from("/var/cache"), last_resort(rustix::process::geteuid())]);
    usual.map(|dir| dir.join("cofferdam/hidden")).all(|usual| base != usual)
}

/// Makes the place for layers, at which there is no link, nor on the way below a place that a variable names. Returns it without links.
fn make_base(base: &Path) -> Result<PathBuf, Failure> {
    let no_link = |path: &Path| match path.is_symlink() {
        false => Ok(()),
        true => {
            let why = std::io::Error::other("it is a link, which code in a sandbox could have made");
            Err(fail("will not use", path, &why))
        }
    };
    base.parent().filter(|_| is_moved(base)).map_or(Ok(()), no_link)?;
    no_link(base)?;
    let real = make_way(base)?;
    // Nothing replaced them meanwhile.
    let own = if is_moved(base) { "cofferdam/hidden" } else { "hidden" };
    if real.ends_with(own) { Ok(real) } else { no_link(base).and_then(|()| Err(not_alone(base))) }
}

/// Opens the place for layers. One that others can write would let them decide what is hidden.
fn open_base(real: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat2(CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let opened = opened.map_err(|e| fail("cannot open", real, &e.into()))?;
    match rustix::fs::fstat(&opened) {
        Ok(about) if is_alone(about.st_uid, about.st_mode) => Ok(opened),
        Ok(_) => Err(not_alone(real)),
        Err(e) => Err(fail("cannot look at", real, &e.into())),
    }
}

/// Has runs without the variable hide what is in Cofferdam's directory there. False where there is no state directory that could
/// remember it: a run with other variables could change a layer while another has it mounted.
fn remember_base(real: &Path, remembered: &[PathBuf]) -> Result<bool, Failure> {
    let Some(own) = real.parent().filter(|own| remembered.iter().all(|known| known != own)) else { return Ok(true) };
    let Ok(state) = opened::state_directory() else { return Ok(false) };
    let why = remember(Remembered::Caches, &state, own).map_err(|e| fail("cannot remember", own, &e))?;
    Ok(why.is_none())
}

/// What lies at a layer's place.
enum Found {
    Missing,
    /// The layer, by device and inode.
    Whole((u64, u64)),
    /// Something else.
    Unfit,
}

/// Looks whether a layer is a directory of this user's alone that holds these whiteouts, and nothing else.
fn look(base: &OwnedFd, name: &str, names: &[String]) -> rustix::io::Result<Found> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = match openat(base, name, flags, Mode::empty()) {
        Ok(at) => at,
        Err(Errno::NOENT) => return Ok(Found::Missing),
        Err(Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) => return Ok(Found::Unfit),
        Err(e) => return Err(e),
    };
    let about = rustix::fs::fstat(&at)?;
    if !is_alone(about.st_uid, about.st_mode) {
        return Ok(Found::Unfit);
    }
    let mut left = names.len();
    let mut buf = Vec::with_capacity(64 * 1024);
    let mut entries = RawDir::new(&at, buf.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            // Not every file system says.
            FileType::Unknown => {
                let about = rustix::fs::statat(&at, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(about.st_mode)
            }
            kind => kind,
        };
        // Only root could make a character device that is no whiteout.
        let wanted = kind == FileType::CharacterDevice && names.binary_search_by(|n| n.as_bytes().cmp(name)).is_ok();
        if !wanted || left == 0 {
            return Ok(Found::Unfit);
        }
        left -= 1; // a directory has a name once
    }
    Ok(if left == 0 { Found::Whole((super::executables::device(about.st_dev), about.st_ino)) } else { Found::Unfit })
}

/// Takes away what lies at a layer's place. It is renamed and stays: a run may go on from which its whiteouts hide names.
fn put_aside(base: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match renameat(base, name, base, format!(".unfit-{}", cofferdam_audit::random::uuid())) {
        Err(Errno::NOENT) => Ok(()), // another run was faster
        other => other,
    }
}

/// Makes a directory with those above it, each for this user alone; every one that is there already is looked at before
/// anything is made below it, since another user may have been first. Returns it without links.
fn make_way(dir: &Path) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::DirBuilderExt;
    if fs::symlink_metadata(dir).is_ok() {
        return is_safe(dir);
    }
    if let Some(above) = dir.parent() {
        make_way(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(fail("cannot make", dir, &e)),
        _ => is_safe(dir),
    }
}

/// Whether no other user but root can put something else at a path: every directory and link on the way to it is this
/// user's or root's, and what everybody can write is sticky. Returns the path without links.
fn is_safe(path: &Path) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::MetadataExt;
    let me = rustix::process::geteuid().as_raw();
    let real = fs::canonicalize(path).map_err(|e| fail("cannot look at", path, &e))?;
    for at in path.ancestors().chain(real.ancestors()) {
        let meta = fs::symlink_metadata(at).map_err(|e| fail("cannot look at", at, &e))?;
        let open = !meta.is_symlink() && meta.mode() & 0o1002 == 0o002;
        if ![0, me].contains(&meta.uid()) || open {
            let why = if open { "every user can replace what is in it" } else { "it belongs to another user" };
            return Err(fail("will not use", at, &std::io::Error::other(why)));
        }
    }
    Ok(real)
}

/// Whether a directory is this user's alone.
fn own(dir: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::symlink_metadata(dir).map_err(|e| fail("cannot look at", dir, &e))?;
    if meta.is_dir() && is_alone(meta.uid(), meta.mode()) { Ok(()) } else { Err(not_alone(dir)) }
}

fn is_alone(owner: u32, mode: u32) -> bool {
    owner == rustix::process::geteuid().as_raw() && mode & 0o022 == 0
}

fn not_alone(dir: &Path) -> Failure {
    fail("will not use", dir, &std::io::Error::other("it is not a directory of this user's alone"))
}

/// What an unfinished layer's name begins with.
const UNFINISHED: &str = ".new-";
/// Nobody fills a layer for this long: whoever began it is gone.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Removes layers that a killed run left unfinished. Somebody else may be faster, and the next run tries again.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
        let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
        if unfinished && age.is_some_and(|age| age > FORGOTTEN) {
            // No run looks for a layer by such a name, so one that stays hides nothing.
            fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path())).ok();
        }
    }
}

/// Makes a layer, unless another run was faster: who looks at it decides whether it is one.
fn make(base: &OwnedFd, real: &Path, name: &str, names: &[String]) -> Result<(), Failure> {
    let temp = format!("{UNFINISHED}{}", cofferdam_audit::random::uuid());
    let path = real.join(&temp);
    let made = fill(base, &temp, names).map_err(|e| fail("cannot fill", &path, &e.into())).and_then(|()| {
        let exists = |e: &Errno| matches!(*e, Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR);
        match renameat(base, &temp, base, name) {
            Ok(()) => Ok(true),
            Err(e) if exists(&e) => Ok(false),
            Err(e) => Err(fail("cannot name", &real.join(name), &e.into())),
        }
    });
    match made {
        Ok(true) => Ok(()),
        Ok(false) => fs::remove_dir_all(&path).map_err(|e| fail("cannot remove", &path, &e)),
        Err(failure) => {
            fs::remove_dir_all(&path).ok(); // what came first is what the caller can act on
            Err(failure)
        }
    }
}

fn fill(base: &OwnedFd, temp: &str, names: &[String]) -> rustix::io::Result<()> {
    mkdirat(base, temp, Mode::from_raw_mode(0o755))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = openat(base, temp, flags, Mode::empty())?;
    for name in names {
        // A character device 0:0 is overlayfs's whiteout; making one needs no privilege (Linux 5.8).
        mknodat(&at, name.as_str(), FileType::CharacterDevice, Mode::empty(), 0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(base: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(base).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn unfinished_layers_of_killed_runs_go_and_those_in_use_stay() {
        let base = tempfile::tempdir().unwrap();
        for name in [".new-old", ".new-now", "whole"] {
            fs::create_dir(base.path().join(name)).unwrap();
            fs::write(base.path().join(name).join("x"), "").unwrap();
        }
        let long_ago = std::time::SystemTime::now() - 2 * FORGOTTEN;
        for name in [".new-old", "whole"] {
            fs::File::open(base.path().join(name)).unwrap().set_modified(long_ago).unwrap();
        }
        sweep(base.path());
        assert_eq!(entries(base.path()), [".new-now", "whole"]);
    }

    #[test]
    fn what_another_user_made_first_is_neither_used_nor_made_in() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let there = tempfile::tempdir().unwrap();
        let (shared, victim) = (there.path().join("shared"), there.path().join("victim"));
        fs::create_dir(&shared).unwrap();
        fs::create_dir(&victim).unwrap();
        mode(&shared, 0o1777);
        // A directory of one's own in what everybody may write, as /tmp is.
        let own = shared.join("own/cofferdam/hidden");
        make_way(&own).unwrap();
        for dir in own.ancestors().take(3) {
            assert_eq!(fs::metadata(dir).unwrap().mode() & 0o777, 0o700, "{dir:?}");
        }
        make_way(&own).unwrap();
        // Without the sticky bit anybody replaces it.
        mode(&shared, 0o777);
        assert!(make_way(&shared.join("other/hidden")).unwrap_err().message.contains("every user"));
        assert!(is_safe(&own).is_err() && fs::symlink_metadata(shared.join("other")).is_err());
        mode(&shared, 0o1777);
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root makes what belongs to another user; its pass does");
            return;
        }
        // Another user's directory, and another user's link into one of ours, in which nothing is made.
        let planted = shared.join("planted");
        fs::create_dir(&planted).unwrap();
        chown(&planted, Some(65533), Some(65533)).unwrap();
        assert!(make_way(&planted.join("cofferdam/hidden")).unwrap_err().message.contains("another user"));
        let link = shared.join("link");
        symlink(&victim, &link).unwrap();
        lchown(&link, Some(65533), Some(65533)).unwrap();
        assert!(make_way(&link.join("cofferdam/hidden")).unwrap_err().message.contains("another user"));
        for untouched in [&planted, &victim] {
            assert_eq!(entries(untouched), [""; 0]);
        }
        // The same link, made by oneself.
        lchown(&link, Some(0), Some(0)).unwrap();
        make_way(&link.join("cofferdam/hidden")).unwrap();
        assert_eq!(entries(&victim), ["cofferdam"]);
    }

    #[test]
    fn a_layer_that_cannot_be_filled_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let at = open_base(base.path()).unwrap();
        let names = ["fine".to_owned(), "no/such/directory".to_owned()];
        assert!(make(&at, base.path(), "layer", &names).is_err());
        assert_eq!(entries(base.path()), [""; 0]);
        make(&at, base.path(), "layer", &names[..1]).unwrap();
        assert_eq!(entries(base.path()), ["layer"], "the control");
    }

    #[test]
    fn a_layer_has_the_whiteouts_that_are_wanted_and_nothing_else() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let base = tempfile::tempdir().unwrap();
        let at = open_base(base.path()).unwrap();
        let names = ["a".to_owned(), "b".to_owned()];
        let whole = |names: &[String]| matches!(look(&at, "layer", names).unwrap(), Found::Whole(_));
        assert!(matches!(look(&at, "layer", &names).unwrap(), Found::Missing));
        make(&at, base.path(), "layer", &names).unwrap();
        assert!(whole(&names), "the control");
        assert!(!whole(&names[..1]) && !whole(&["a".to_owned(), "b".to_owned(), "c".to_owned()]));
        assert!(!whole(&["a".to_owned(), "c".to_owned()]), "as many, and another one");
        let layer = base.path().join("layer");
        let mode = |mode| fs::set_permissions(&layer, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o777);
        assert!(!whole(&names), "others may write it");
        mode(0o755);
        assert!(whole(&names), "the control");
        let file = |path: &Path| fs::write(path, "x").unwrap();
        let directory = |path: &Path| fs::create_dir(path).unwrap();
        let link = |path: &Path| symlink("a", path).unwrap();
        for plant in [&file as &dyn Fn(&Path), &directory, &link] {
            fs::remove_file(layer.join("b")).unwrap();
            plant(&layer.join("b"));
            assert!(!whole(&names));
            put_aside(&at, "layer").unwrap();
            make(&at, base.path(), "layer", &names).unwrap();
            assert!(whole(&names), "the control");
        }
        fs::rename(&layer, base.path().join("other")).unwrap();
        symlink("other", &layer).unwrap();
        assert!(!whole(&names), "a link to a layer is none");
    }
}
