//! Roots that were made or unpacked, kept for the next run: `roots/KEY/rootfs`, by what is in them.
//!
//! ```text
//! roots/.new-RANDOM  (locked: being made) ──rename──▶ roots/KEY  (shared lock: in use) ──rename──▶ roots/.gone-RANDOM
//! ```
//!
//! A root appears whole or not at all. A user of one holds a shared lock on its `lock`; removal takes it exclusively,
//! and leaves the root when that fails. Locks end with their process, so a dead one holds nothing. The time of the last
//! use is that file's. Never touches what has not such a name.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::failure::{FailedStep, Failure};

/// Where roots are kept.
#[derive(Debug, Clone)]
pub(super) struct RootfsCache {
    at: PathBuf,
    bounds: CacheBounds,
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheBounds {
    /// Roots.
    pub roots: usize,
    /// Bytes of them all.
    pub bytes: u64,
    /// How long one that nobody uses is kept in any case: between being made ready and being used nobody holds it.
    pub grace: Duration,
}

impl Default for CacheBounds {
    fn default() -> Self {
        CacheBounds { roots: 64, bytes: 16 << 30, grace: Duration::from_secs(600) }
    }
}

/// A root in use: it stays until this is dropped.
#[derive(Debug)]
pub(super) struct CacheLease {
    /// The root.
    pub rootfs: PathBuf,
    _lock: File,
}

pub(super) fn failed(what: &str, path: &Path, e: &dyn std::fmt::Display) -> Failure {
    Failure::new(FailedStep::Image, format!("{what} {}: {e}", path.display()))
        .hint("name another place with COFFERDAM_STATE=/path/to/directory, or make room")
}

/// Makes a directory that is this user's alone, with those above it.
///
/// # Errors
/// It cannot be made, or is somebody else's: files there would be his to change.
pub(super) fn private(path: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| failed("cannot make", path, &e))?;
    let found = std::fs::symlink_metadata(path).map_err(|e| failed("cannot read", path, &e))?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(failed("cannot keep roots in", path, &"it is not a directory that this user alone may write"));
    }
    Ok(())
}

impl RootfsCache {
    /// The cache in this directory, which is made when it is needed.
    pub(super) fn new(state: &Path, bounds: CacheBounds) -> RootfsCache {
        RootfsCache { at: state.join("roots"), bounds }
    }

    /// Where it is.
    pub(super) fn place(&self) -> &Path {
        &self.at
    }

    /// The root of this key, in use from now on; `None` when there is none.
    ///
    /// # Errors
    /// It is there and cannot be used.
    pub(super) fn get(&self, key: &str) -> Result<Option<CacheLease>, Failure> {
        let entry = self.at.join(key);
        let lock = match open_lock(&entry) {
            Ok(lock) => lock,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("cannot open", &entry, &e)),
        };
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None), // it is being removed
            Err(e) => return Err(failed("cannot lock", &entry, &e)),
        }
        // It may have been removed before it was locked.
        let same = match (lock.metadata(), std::fs::symlink_metadata(entry.join("lock"))) {
            (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
            _ => false,
        };
        if !same {
            return Ok(None);
        }
        lock.set_modified(SystemTime::now()).map_err(|e| failed("cannot mark the use of", &entry, &e))?;
        Ok(Some(CacheLease { rootfs: entry.join("rootfs"), _lock: lock }))
    }

    /// Makes a root: `fill` puts it into an empty directory and says its key and size. Where another made the same meanwhile,
    /// that one is taken.
    ///
    /// # Errors
    /// What `fill` says, or files cannot be made.
    pub(super) fn make(
        &self,
        fill: impl FnOnce(&Path) -> Result<(String, u64), Failure>,
    ) -> Result<CacheLease, Failure> {
        private(&self.at)?;
        self.tidy();
        let new = self.at.join(format!(".new-{}", cofferdam_audit::random::uuid()));
        let made = self.make_at(&new, fill);
        if !matches!(made, Ok((_, true))) {
            // A refusal is told; what could not be removed is swept by the next one.
            std::fs::remove_dir_all(&new).or_else(gone).map_err(|e| failed("cannot remove", &new, &e))?;
        }
        made.map(|(held, _)| held)
    }

    fn make_at(
        &self,
        new: &Path,
        fill: impl FnOnce(&Path) -> Result<(String, u64), Failure>,
    ) -> Result<(CacheLease, bool), Failure> {
        let cannot = |e: &dyn std::fmt::Display| failed("cannot make", new, e);
        DirBuilder::new().mode(0o700).create(new).map_err(|e| cannot(&e))?;
        let mut options = OpenOptions::new();
        let lock = options.write(true).create_new(true).mode(0o600).open(new.join("lock")).map_err(|e| cannot(&e))?;
        flock(&lock, FlockOperation::LockShared).map_err(|e| cannot(&e))?;
        let rootfs = new.join("rootfs");
        DirBuilder::new().mode(0o755).create(&rootfs).map_err(|e| cannot(&e))?;
        let (key, bytes) = fill(&rootfs)?;
        std::fs::write(new.join("bytes"), bytes.to_string()).map_err(|e| cannot(&e))?;
        let entry = self.at.join(&key);
        for _ in 0..100 {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            match renameat_with(CWD, new, CWD, &entry, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok((CacheLease { rootfs: entry.join("rootfs"), _lock: lock }, true)),
                Err(Errno::EXIST) => {
                    if let Some(held) = self.get(&key)? {
                        return Ok((held, false));
                    }
                    std::thread::sleep(Duration::from_millis(10)); // it is being removed
                }
                Err(e) => return Err(cannot(&e)),
            }
        }
        Err(failed("cannot make", &entry, &"another process keeps a lock on it"))
    }

    /// Removes what is left of dead creators, and the longest unused roots beyond the bounds.
    ///
    /// What cannot be removed is left for the next time: it is room that is lost, and nothing else.
    pub(super) fn tidy(&self) -> Vec<String> {
        let mut removed = Vec::new();
        let Ok(entries) = std::fs::read_dir(&self.at) else { return removed };
        let mut unused = Vec::new();
        let (mut roots, mut bytes) = (0, 0);
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with(".new-") || name.starts_with(".gone-") {
                if self.remove(&name) {
                    removed.push(name);
                }
                continue;
            }
            if !is_key(&name) {
                continue;
            }
            let Ok(used) = std::fs::metadata(entry.path().join("lock")).and_then(|m| m.modified()) else { continue };
            let text = std::fs::read_to_string(entry.path().join("bytes")).unwrap_or_default();
            let size: u64 = text.trim().parse().unwrap_or(0);
            roots += 1;
            bytes += size;
            unused.push((used, size, name));
        }
        unused.sort();
        for (used, size, name) in unused {
            let within = roots <= self.bounds.roots && bytes <= self.bounds.bytes;
            if within || used.elapsed().unwrap_or_default() < self.bounds.grace {
                break; // and so are all that were used later
            }
            if self.remove(&name) {
                roots -= 1;
                bytes = bytes.saturating_sub(size);
                removed.push(name);
            }
        }
        removed
    }

    /// Removes one that nobody uses; false when somebody does, or it cannot be removed.
    fn remove(&self, name: &str) -> bool {
        let entry = self.at.join(name);
        match open_lock(&entry) {
            Ok(lock) => {
                // One that is just being made is not locked for a moment.
                let young = lock
                    .metadata()
                    .and_then(|m| m.modified())
                    .map_or(true, |t| t.elapsed().unwrap_or_default() < self.bounds.grace);
                if (name.starts_with(".new-") && young)
                    || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
                {
                    return false;
                }
                let gone = self.at.join(format!(".gone-{}", cofferdam_audit::random::uuid()));
                std::fs::rename(&entry, &gone).is_ok() && std::fs::remove_dir_all(&gone).is_ok()
            }
            // One whose creator or remover died where there was no lock yet, or none any more. A living one is there shortly.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let old =
                    |m: std::fs::Metadata| m.modified().is_ok_and(|t| t.elapsed().is_ok_and(|d| d > self.bounds.grace));
                std::fs::symlink_metadata(&entry).is_ok_and(old) && std::fs::remove_dir_all(&entry).is_ok()
            }
            Err(_) => false,
        }
    }
}

/// That a file is not there is what was wanted.
pub(super) fn gone(e: io::Error) -> io::Result<()> {
    if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) }
}

fn open_lock(entry: &Path) -> io::Result<File> {
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    OpenOptions::new().read(true).write(true).custom_flags(nofollow).open(entry.join("lock"))
}

/// Whether a name is one of ours: a kind and a hash.
fn is_key(name: &str) -> bool {
    let Some((kind, hash)) = name.split_once('-') else { return false };
    ["made", "tar", "image"].contains(&kind) && hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> String {
        format!("made-{n:064x}")
    }

    fn make(cache: &RootfsCache, n: u64, bytes: u64) -> CacheLease {
        cache
            .make(|rootfs| {
                std::fs::write(rootfs.join("file"), n.to_string()).unwrap();
                Ok((key(n), bytes))
            })
            .unwrap()
    }

    fn bounds(roots: usize, bytes: u64) -> CacheBounds {
        CacheBounds { roots, bytes, grace: Duration::ZERO }
    }

    #[test]
    fn a_root_is_made_once_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = RootfsCache::new(dir.path(), CacheBounds::default());
        assert!(cache.get(&key(1)).unwrap().is_none());
        let made = make(&cache, 1, 10);
        assert_eq!(std::fs::read_to_string(made.rootfs.join("file")).unwrap(), "1");
        let again = make(&cache, 1, 10);
        assert_eq!(again.rootfs, made.rootfs);
        assert_eq!(cache.get(&key(1)).unwrap().unwrap().rootfs, made.rootfs);
        assert_eq!(std::fs::read_dir(dir.path().join("roots")).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn one_that_could_not_be_made_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = RootfsCache::new(dir.path(), CacheBounds::default());
        let failure = cache.make(|rootfs| Err(failed("no", rootfs, &"said"))).unwrap_err();
        assert!(failure.message.contains("said"));
        assert_eq!(std::fs::read_dir(dir.path().join("roots")).unwrap().count(), 0);
    }

    #[test]
    fn the_longest_unused_goes_first_and_never_one_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let cache = RootfsCache::new(dir.path(), bounds(2, 1000));
        let oldest = make(&cache, 1, 10);
        for n in 2..=4 {
            drop(make(&cache, n, 10));
            std::thread::sleep(Duration::from_millis(15));
        }
        cache.tidy();
        assert!(cache.get(&key(1)).unwrap().is_some(), "it is in use");
        assert!(cache.get(&key(2)).unwrap().is_none() && cache.get(&key(4)).unwrap().is_some());
        drop(oldest);
        let small = RootfsCache::new(dir.path(), bounds(10, 5));
        small.tidy();
        assert!(small.get(&key(1)).unwrap().is_none(), "in bytes there was no room for any");
    }

    #[test]
    fn what_was_just_prepared_stays_although_it_is_unused() {
        let dir = tempfile::tempdir().unwrap();
        let cache = RootfsCache::new(dir.path(), CacheBounds { roots: 0, bytes: 0, grace: Duration::from_secs(60) });
        drop(make(&cache, 1, 10));
        cache.tidy();
        assert!(cache.get(&key(1)).unwrap().is_some());
    }

    #[test]
    fn leftovers_of_dead_processes_go_and_files_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let cache = RootfsCache::new(dir.path(), bounds(0, 0));
        let roots = dir.path().join("roots");
        std::fs::create_dir_all(roots.join(".new-dead/rootfs")).unwrap();
        std::fs::write(roots.join(".new-dead/lock"), "").unwrap();
        std::fs::create_dir_all(roots.join("somebody's")).unwrap();
        std::fs::create_dir_all(roots.join(".new-alive/rootfs")).unwrap();
        std::fs::write(roots.join(".new-alive/lock"), "").unwrap();
        let alive = open_lock(&roots.join(".new-alive")).unwrap();
        flock(&alive, FlockOperation::LockShared).unwrap();
        assert_eq!(cache.tidy(), [".new-dead"]);
        assert!(roots.join("somebody's").exists() && roots.join(".new-alive").exists());
    }

    #[test]
    fn a_place_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let roots = dir.path().join("roots");
        std::fs::create_dir(&roots).unwrap();
        std::fs::set_permissions(&roots, std::fs::Permissions::from_mode(0o777)).unwrap();
        let cache = RootfsCache::new(dir.path(), CacheBounds::default());
        let failure = cache.make(|_| Ok((key(1), 1))).unwrap_err();
        assert!(failure.message.contains("this user alone") && failure.hint.is_some(), "{failure:?}");
    }
}
