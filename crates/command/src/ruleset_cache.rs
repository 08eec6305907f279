//! Caches prepared restrictions, for commands that are spawned again and again. A Landlock rule is bound to the inode
//! of a path, so an entry is used only while every path still leads to the same inode. Restrictions that depend on the
//! entries of a directory are never cached.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_confine::command::Restrictions;

use crate::confinement_spec::ConfinementSpec;
use crate::kernel_support::KernelSupport;

/// Most entries.
const MOST: usize = 4;

/// A granted path and its inode. The descriptor prevents the inode number from being reused.
pub(crate) struct GrantedPath {
    path: PathBuf,
    /// None for devices, whose nodes come and go with the hardware.
    pin: Option<File>,
    inode: (u64, u64),
}

impl GrantedPath {
    pub(crate) fn new(path: PathBuf, file: File) -> io::Result<GrantedPath> {
        let data = file.metadata()?;
        let pin = (!data.file_type().is_char_device()).then_some(file);
        Ok(GrantedPath { path, pin, inode: (data.dev(), data.ino()) })
    }

    fn is_device(&self) -> bool {
        self.pin.is_none()
    }

    fn is_still(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|data| (data.dev(), data.ino()) == self.inode)
    }
}

/// Device nodes are checked again after this time: if one was recreated, the old rule grants nothing.
const DEVICES: Duration = Duration::from_secs(1);

struct CachedRuleset {
    spec: ConfinementSpec,
    support: KernelSupport,
    paths: Vec<GrantedPath>,
    /// When the devices were checked.
    checked_at: Instant,
    restrictions: Restrictions,
}

static CACHE: Mutex<Vec<CachedRuleset>> = Mutex::new(Vec::new());

pub(crate) fn find(spec: &ConfinementSpec, support: KernelSupport) -> Option<Restrictions> {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let at = cache.iter().position(|entry| entry.spec == *spec && entry.support == support)?;
    let mut entry = cache.remove(at);
    let devices = entry.checked_at.elapsed() > DEVICES;
    if !entry.paths.iter().all(|path| path.is_device() && !devices || path.is_still()) {
        return None;
    }
    if devices {
        entry.checked_at = Instant::now();
    }
    let restrictions = entry.restrictions.clone();
    cache.push(entry);
    Some(restrictions)
}

pub(crate) fn insert(
    spec: &ConfinementSpec,
    support: KernelSupport,
    paths: Vec<GrantedPath>,
    restrictions: &Restrictions,
) {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if cache.len() == MOST {
        cache.remove(0);
    }
    cache.push(CachedRuleset {
        spec: spec.clone(),
        support,
        paths,
        checked_at: Instant::now(),
        restrictions: restrictions.clone(),
    });
}
