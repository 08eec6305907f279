//! The directory of `--keep-changes`: created and locked before the run, removed again if nothing was kept in it.
//!
//! The caller learns before a long run, and not after it, that its changes cannot be kept. What is kept, and how, is the
//! engine's.

use std::fs::DirBuilder;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use cofferdam_engine::{FailedStep, Failure, Outcome, destination_fault};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, Mode, OFlags, accessat, flock, fstat, open};
use rustix::io::Errno;

use crate::refusal::{CliRefusal, REFUSED};

/// A directory for the changes of one run. Dropped, it is removed if it is empty.
#[derive(Debug)]
pub(crate) struct ChangesDirectory {
    /// The directories that this run created, the innermost first.
    created: Vec<PathBuf>,
    /// The directory, locked by flock(2) for the time of the run.
    locked: OwnedFd,
}

impl ChangesDirectory {
    /// Creates the directory, or accepts an empty one that can be written.
    ///
    /// # Errors
    /// It cannot be created or written, is not an empty directory, or belongs to another run.
    pub(crate) fn create(directory: &str) -> Result<ChangesDirectory, CliRefusal> {
        let path = Path::new(directory);
        let missing: Vec<PathBuf> =
            path.ancestors().take_while(|p| p.symlink_metadata().is_err()).map(Path::to_owned).collect();
        let created = Created(missing);
        // The mode that the engine would give it: other users may read what was kept.
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
        Ok(ChangesDirectory { created: created.keep(), locked })
    }

    /// The locked directory, also after its name leads elsewhere: where it lies in a writable volume, the program can put a
    /// link in its place. `named` is its name.
    pub(crate) fn path(&self, named: &str) -> PathBuf {
        let path = PathBuf::from(self.proc_path());
        if path.is_dir() { path } else { named.into() }
    }

    fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}/.", self.locked.as_raw_fd())
    }

    /// After the run, puts into the outcome what the program did to the directory, and into `named` where the changes are.
    /// Returns true where the program removed the directory, so that the changes are lost, which is not a success.
    pub(crate) fn locate(&self, named: &mut String, outcome: &mut Outcome) -> bool {
        if let Some(failure) = &mut outcome.error {
            failure.message = failure.message.replace(&self.proc_path(), named);
        }
        if outcome.changes.is_empty() {
            return false;
        }
        match self.location(named) {
            DirectoryAfterRun::Same => false,
            DirectoryAfterRun::Moved(to) => {
                let to = to.to_string_lossy().into_owned();
                let message = format!("the program moved {named}: the changes are kept in {to}");
                let failure = Failure { code: 0, step: FailedStep::KeepChanges, message, hint: None };
                outcome.error.get_or_insert(failure);
                *named = to;
                false
            }
            DirectoryAfterRun::Removed => {
                outcome.success = false;
                outcome.error = Some(Failure {
                    code: REFUSED,
                    step: FailedStep::KeepChanges,
                    message: format!(
                        "the changes are lost: the program removed {named}, in which they were to be kept"
                    ),
                    hint: Some(
                        "name a directory outside of the volumes that the program may write: --keep-changes DIR".into(),
                    ),
                });
                true
            }
        }
    }

    fn location(&self, named: &str) -> DirectoryAfterRun {
        // A directory that cannot be looked at is taken for a removed one.
        let Ok(locked) = fstat(&self.locked) else { return DirectoryAfterRun::Removed };
        if locked.st_nlink == 0 {
            return DirectoryAfterRun::Removed;
        }
        let there = std::fs::symlink_metadata(named);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (locked.st_dev, locked.st_ino)) {
            return DirectoryAfterRun::Same;
        }
        let descriptor = format!("/proc/self/fd/{}", self.locked.as_raw_fd());
        std::fs::read_link(descriptor).map_or(DirectoryAfterRun::Removed, DirectoryAfterRun::Moved)
    }
}

/// Where the directory is after the run, if the program could write above it.
#[derive(Debug, PartialEq, Eq)]
enum DirectoryAfterRun {
    /// Under its name.
    Same,
    /// Elsewhere.
    Moved(PathBuf),
    /// Nowhere: what was written into it is lost.
    Removed,
}

impl Drop for ChangesDirectory {
    fn drop(&mut self) {
        remove_empty(&self.created);
    }
}

/// Directories that are removed again unless they are kept.
struct Created(Vec<PathBuf>);

impl Created {
    fn keep(mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        remove_empty(&self.0);
    }
}

/// Removes what is empty, and nothing else: rmdir(2). A directory that stays does no harm.
fn remove_empty(directories: &[PathBuf]) {
    for directory in directories {
        std::fs::remove_dir(directory).ok();
    }
}

/// Refuses a directory of Cofferdam's own, since what a program writes must not become what a later sandbox obeys. `own` are
/// such directories that this call names, and `option` how it names another.
///
/// # Errors
/// It is, contains or lies in one.
pub(crate) fn require_foreign(directory: &str, own: &[PathBuf], option: &str) -> Result<(), CliRefusal> {
    match destination_fault(Path::new(directory), own) {
        None => Ok(()),
        Some(fault) => Err(CliRefusal::new("keep_changes", format!("cannot keep changes in {directory}: {fault}"))
            .hint(format!("name a directory elsewhere: {option}"))),
    }
}

fn unusable(directory: &str, why: &str) -> CliRefusal {
    CliRefusal::new("keep_changes", format!("cannot keep changes in {directory}: {why}"))
        .hint("name a directory that does not exist yet, where you may write: --keep-changes ./kept")
}
