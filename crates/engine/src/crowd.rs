//! Layers that hide many names of one directory by one mount: a directory of whiteouts, named by its content.
//!
//! Making thousands of whiteouts takes long, and they name nothing of the host's but names: so a layer is made once,
//! complete before it gets its name, and used again by every later run with the same names.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mkdirat, mknodat};

use crate::outcome::Failure;

fn fail(what: &str, path: &Path, e: &std::io::Error) -> Failure {
    Failure {
        code: 125,
        step: "filesystem.deny".into(),
        message: format!("{what} {}: {e}", path.display()),
        hint: Some("set XDG_CACHE_HOME to a directory that this user can write".into()),
    }
}

/// Where layers lie: in the runtime directory, which no root view shows, else in the cache.
pub fn base() -> PathBuf {
    if let Some(run) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute())
        && !rustix::process::geteuid().is_root()
        && own(&run).is_ok()
    {
        return run.join("cofferdam/hidden");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache")))
        .filter(|p| p.is_absolute());
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/cache/cofferdam/hidden");
    }
    cache
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/cofferdam-{}", rustix::process::geteuid().as_raw())))
        .join("cofferdam/hidden")
}

/// The directory of the layer that hides exactly these names.
///
/// # Errors
/// The cache cannot be written, or is not this user's alone.
pub fn layer(names: &[String]) -> Result<String, Failure> {
    let base = base();
    fs::create_dir_all(&base).map_err(|e| fail("cannot make", &base, &e))?;
    own(&base)?;
    if base.starts_with("/tmp") {
        base.ancestors().skip(1).take(2).try_for_each(own)?; // anybody may have been there first
    }
    let (mut one, mut two) = (DefaultHasher::new(), DefaultHasher::new());
    names.hash(&mut one);
    (names.len(), names, 1u8).hash(&mut two);
    let dir = base.join(format!("{:016x}{:016x}-{}", one.finish(), two.finish(), names.len()));
    if !dir.is_dir() {
        make(&base, &dir, names)?;
    }
    dir.into_os_string().into_string().map_err(|d| {
        let d = PathBuf::from(d);
        fail("cannot use", &d, &std::io::Error::other("its path is not UTF-8"))
    })
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

fn make(base: &Path, dir: &Path, names: &[String]) -> Result<(), Failure> {
    let temp = base.join(format!(".new-{}", crate::random::uuid()));
    let failed = |e: rustix::io::Errno| fail("cannot fill", &temp, &e.into());
    mkdirat(CWD, &temp, Mode::from_raw_mode(0o755)).map_err(failed)?;
    let at = fs::File::open(&temp).map_err(|e| fail("cannot open", &temp, &e))?;
    for name in names {
        // A character device 0:0 is overlayfs's whiteout; making one needs no privilege (Linux 5.8).
        mknodat(&at, name.as_str(), FileType::CharacterDevice, Mode::empty(), 0).map_err(failed)?;
    }
    match fs::rename(&temp, dir) {
        Ok(()) => Ok(()),
        // Another run was first; its layer is the same.
        Err(_) if dir.is_dir() => fs::remove_dir_all(&temp).map_err(|e| fail("cannot remove", &temp, &e)),
        Err(e) => Err(fail("cannot name", dir, &e)),
    }
}
