//! Layers that hide many names of one directory by one mount: a directory of whiteouts, named by its content.
//!
//! Making thousands of whiteouts takes long, and they name nothing of the host's but names: so a layer is made once,
//! complete before it gets its name, and used again by every later run with the same names.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_policy::{Access, Field, Mount, Policy};
use rustix::fs::{CWD, FileType, Mode, mkdirat, mknodat};

use crate::failure::Failure;

fn fail(what: &str, path: &Path, e: &std::io::Error) -> Failure {
    Failure::new(Field::Deny, format!("{what} {}: {e}", path.display()))
        .hint("set XDG_CACHE_HOME to a directory that this user can write")
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
    let last = PathBuf::from(format!("/tmp/cofferdam-{}", me.as_raw()));
    let all = runtime.into_iter().chain(named("XDG_CACHE_HOME")).chain(cache).chain([last]);
    all.map(|dir| dir.join("cofferdam/hidden")).collect()
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
    for (i, base) in bases().iter().enumerate() {
        let there = base.ancestors().find_map(|dir| fs::canonicalize(dir).ok());
        let above = base.ancestors().nth(2);
        if there.is_some_and(|dir| writable.iter().any(|w| dir.starts_with(w)))
            && let Some(dir) = if i == 0 { Some(base.as_path()) } else { above.filter(|_| !base.starts_with("/tmp")) }
        {
            make_way(dir).ok(); // who cannot make it finds its name guarded
        }
    }
}

/// Which of these names a directory has as symbolic links; `None` when it cannot be listed in full.
///
/// Listing a large directory takes longer than all else, so the answer is kept as long as nothing was made, removed or
/// renamed in it, which its times tell: those of a directory that changed within the last seconds are not believed, since
/// a change may share its tick with the one before.
pub(crate) fn links(dir: &str, names: &[&str]) -> Option<Vec<String>> {
    use std::os::unix::fs::MetadataExt;
    let look = || {
        let m = fs::symlink_metadata(dir).ok()?;
        Some((m.dev(), m.ino(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))
    };
    let before = look()?;
    let stamp = format!("{before:?}");
    let base = base();
    let usable = own(&base).is_ok() && is_safe(&base).is_ok();
    let file = base.join(format!("{}.links", digest(&(dir, names))));
    if usable
        && let Ok(text) = fs::read_to_string(&file)
        && let Some((kept, rest)) = text.split_once('\0')
        && kept == stamp
    {
        return Some(rest.split_terminator('\0').map(str::to_owned).collect());
    }
    let there = crate::plan::lookup::among(dir, names)?;
    let found: Vec<String> =
        names.iter().zip(there).filter(|(_, t)| *t == Some(true)).map(|(&n, _)| n.to_owned()).collect();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    let settled = before.2.max(before.4) + SETTLED < now && look()? == before;
    if usable && settled {
        let temp = base.join(format!("{UNFINISHED}{}", cofferdam_audit::random::uuid()));
        let text: String = [stamp].iter().chain(&found).map(|part| format!("{part}\0")).collect();
        // Not to keep it only means to list again; the name is an unfinished layer's, which is swept.
        if fs::write(&temp, text).and_then(|()| fs::rename(&temp, &file)).is_err() {
            fs::remove_file(&temp).ok(); // it may not be there
        }
    }
    Some(found)
}

/// Seconds after which a directory's times tell that nothing changed since.
const SETTLED: i64 = 3;

/// A name for what is kept under a key of its content.
fn digest(content: &impl Hash) -> String {
    let (mut one, mut two) = (DefaultHasher::new(), DefaultHasher::new());
    content.hash(&mut one);
    (content, 1u8).hash(&mut two);
    format!("{:016x}{:016x}", one.finish(), two.finish())
}

/// The directory of the layer that hides exactly these names.
///
/// # Errors
/// The cache cannot be written, or is not this user's alone.
pub(crate) fn layer(names: &[String]) -> Result<String, Failure> {
    let base = base();
    make_way(&base)?;
    own(&base)?;
    let dir = base.join(format!("{}-{}", digest(&names), names.len()));
    if !dir.is_dir() {
        sweep(&base);
        make(&base, &dir, names)?;
    }
    dir.into_os_string().into_string().map_err(|d| {
        let d = PathBuf::from(d);
        fail("cannot use", &d, &std::io::Error::other("its path is not UTF-8"))
    })
}

/// Makes a directory with those above it, each for this user alone; every one that is there already is looked at before
/// anything is made below it, since another user may have been first.
fn make_way(dir: &Path) -> Result<(), Failure> {
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
/// user's or root's, and what everybody can write is sticky.
fn is_safe(path: &Path) -> Result<(), Failure> {
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
    Ok(())
}

/// A cache that others can write would let them decide what is hidden.
fn own(base: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::symlink_metadata(base).map_err(|e| fail("cannot look at", base, &e))?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 || !meta.is_dir() {
        return Err(fail("will not use", base, &std::io::Error::other("it is not a directory of this user's alone")));
    }
    Ok(())
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

fn make(base: &Path, dir: &Path, names: &[String]) -> Result<(), Failure> {
    let temp = base.join(format!("{UNFINISHED}{}", cofferdam_audit::random::uuid()));
    if let Err(failure) = fill(&temp, names) {
        fs::remove_dir_all(&temp).ok(); // what came first is what the caller can act on
        return Err(failure);
    }
    match fs::rename(&temp, dir) {
        Ok(()) => Ok(()),
        // Another run was first; its layer is the same.
        Err(_) if dir.is_dir() => fs::remove_dir_all(&temp).map_err(|e| fail("cannot remove", &temp, &e)),
        Err(e) => Err(fail("cannot name", dir, &e)),
    }
}

fn fill(temp: &Path, names: &[String]) -> Result<(), Failure> {
    let failed = |e: rustix::io::Errno| fail("cannot fill", temp, &e.into());
    mkdirat(CWD, temp, Mode::from_raw_mode(0o755)).map_err(failed)?;
    let at = fs::File::open(temp).map_err(|e| fail("cannot open", temp, &e))?;
    for name in names {
        // A character device 0:0 is overlayfs's whiteout; making one needs no privilege (Linux 5.8).
        mknodat(&at, name.as_str(), FileType::CharacterDevice, Mode::empty(), 0).map_err(failed)?;
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
        let names = ["fine".to_owned(), "no/such/directory".to_owned()];
        assert!(make(base.path(), &base.path().join("layer"), &names).is_err());
        assert_eq!(entries(base.path()), [""; 0]);
    }
}
