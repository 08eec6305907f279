//! The position of the record of a run's start, and whether it is still there when the run ends.
//!
//! A run cannot access its trail, but another process of the user can. A trail that was removed, replaced by another
//! directory or file, renamed, or that lost this record cannot record the run's end.

use std::fs::Metadata;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::record::{self, Link};
use super::store::{LockedStore, file_name, open_file};
use super::verify;

/// A record, by its position.
#[derive(Debug, Clone)]
pub(crate) struct StartMark {
    path: PathBuf,
    directory: (u64, u64),
    lock: (u64, u64),
    file: u64,
    /// Where its line ends, with the newline.
    end: u64,
    link: Link,
    trail: Option<String>,
}

fn identity(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

impl StartMark {
    /// The record that was written last, while no other writer can come between.
    ///
    /// # Errors
    /// The trail cannot be looked at.
    pub(crate) fn of(all: &LockedStore<'_>) -> std::io::Result<StartMark> {
        Ok(StartMark {
            path: all.store.path.clone(),
            directory: identity(&all.store.dir.metadata()?),
            lock: identity(&all.store.lock.metadata()?),
            file: all.state.file,
            end: all.state.end,
            link: all.state.link,
            trail: verify::identity_in(&all.store.dir)?,
        })
    }

    /// What is wrong with the trail now, in words; none if the record is still where it was written.
    pub(crate) fn fault(&self) -> Option<String> {
        let is = |path: &Path, wanted| std::fs::symlink_metadata(path).is_ok_and(|about| identity(&about) == wanted);
        // The directory may be named by a link.
        match std::fs::metadata(&self.path) {
            Err(e) => return Some(format!("its directory is gone: {e}")),
            Ok(about) if identity(&about) != self.directory => return Some("another directory is in its place".into()),
            Ok(_) => {}
        }
        if !is(&self.path.join("lock"), self.lock) {
            return Some("its lock was removed or replaced".into());
        }
        if !self.is_in_place() {
            return Some(format!("record {}, the start of this run, is not there any more", self.link.seq));
        }
        match verify::identity(&self.path) {
            Ok(now) if now == self.trail || self.trail.is_none() => None,
            Ok(_) => Some("it is another trail by now".into()),
            Err(e) => Some(format!("it cannot be read: {e}")),
        }
    }

    fn is_in_place(&self) -> bool {
        let Ok(file) = open_file(&self.path.join(file_name(self.file))) else { return false };
        let begin = self.end.saturating_sub(record::MOST_BYTES as u64 + 1);
        let mut bytes = vec![0u8; usize::try_from(self.end - begin).unwrap_or(0)];
        if file.read_exact_at(&mut bytes, begin).is_err() || bytes.pop() != Some(b'\n') {
            return false;
        }
        let line = bytes.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
        record::read(line).ok().and_then(|record| record.link()).is_some_and(|link| link == self.link)
    }
}
