//! The directory of `--keep-changes`, made sure of before anything runs and taken away again if nothing was kept.
//!
//! Whoever asks for the changes of a long run must not learn at its end that they have nowhere to go. What is kept, and
//! how, is the engine's.

use std::fs::DirBuilder;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, Mode, OFlags, accessat, flock, fstat, open};
use rustix::io::Errno;

use crate::report::Refusal;

/// A directory that this run alone may fill. Dropped, it leaves only what holds something.
#[derive(Debug)]
pub struct Keeping {
    /// Those that this run made, the innermost first.
    made: Vec<PathBuf>,
    /// Locked as long as the run goes on: flock(2).
    locked: OwnedFd,
}

impl Keeping {
    /// Makes the directory, or sees to it that an empty one can be written.
    ///
    /// # Errors
    /// It cannot be made or written, is none, or another run is to fill it.
    pub fn begin(directory: &str) -> Result<Keeping, Refusal> {
        let path = Path::new(directory);
        let missing: Vec<PathBuf> =
            path.ancestors().take_while(|p| p.symlink_metadata().is_err()).map(Path::to_owned).collect();
        let made = Made(missing);
        // As the engine would make it: others may look at what was kept.
        DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(|e| unusable(directory, &e.to_string()))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(path, flags, Mode::empty())
            .and_then(|fd| accessat(CWD, path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map(|()| fd));
        let locked = opened.map_err(|e| unusable(directory, &std::io::Error::from(e).to_string()))?;
        flock(&locked, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            Errno::WOULDBLOCK => unusable(directory, "another run keeps its changes there"),
            other => unusable(directory, &std::io::Error::from(other).to_string()),
        })?;
        let mut entries = std::fs::read_dir(path).map_err(|e| unusable(directory, &e.to_string()))?;
        if entries.next().is_some() {
            return Err(unusable(directory, "it is not empty"));
        }
        Ok(Keeping { made: made.stay(), locked })
    }

    /// What the engine says about the directory, with the name that people know.
    pub fn by_name(&self, message: &str, named: &str) -> String {
        message.replace(&self.held(), named)
    }

    fn held(&self) -> String {
        format!("/proc/self/fd/{}/.", self.locked.as_raw_fd())
    }

    /// The directory that was made sure of, whatever becomes of its name meanwhile: where it lies in a writable volume, the
    /// program can put a link in its place.
    pub fn path(&self, named: &str) -> PathBuf {
        let held = PathBuf::from(self.held());
        if held.is_dir() { held } else { named.into() }
    }
}

/// What became of the directory while the program ran, where that could write above it.
#[derive(Debug, PartialEq, Eq)]
pub enum Became {
    /// It is where it was named.
    Same,
    /// It is there, and elsewhere.
    Moved(PathBuf),
    /// It was removed, and what is written into it is lost.
    Removed,
}

impl Keeping {
    /// What became of it.
    pub fn became(&self, named: &str) -> Became {
        // What cannot be looked at is not said to hold anything.
        let Ok(held) = fstat(&self.locked) else { return Became::Removed };
        if held.st_nlink == 0 {
            return Became::Removed;
        }
        let there = std::fs::symlink_metadata(named);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (held.st_dev, held.st_ino)) {
            return Became::Same;
        }
        let descriptor = format!("/proc/self/fd/{}", self.locked.as_raw_fd());
        std::fs::read_link(descriptor).map_or(Became::Removed, Became::Moved)
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        remove_empty(&self.made);
    }
}

/// Directories that are taken away again unless all goes well.
struct Made(Vec<PathBuf>);

impl Made {
    fn stay(mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        remove_empty(&self.0);
    }
}

/// rmdir(2) takes away what is empty and nothing else; what is left is no harm.
fn remove_empty(directories: &[PathBuf]) {
    for directory in directories {
        std::fs::remove_dir(directory).ok();
    }
}

fn unusable(directory: &str, why: &str) -> Refusal {
    Refusal::new("keep_changes", format!("cannot keep changes in {directory}: {why}"))
        .hint("name a directory that does not exist yet, where you may write: --keep-changes ./kept")
}
