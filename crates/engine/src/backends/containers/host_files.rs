//! Where this user's containers keep files on the host: init's program, texts that are bound, a directory for each run, and
//! what container runtimes cache.
//!
//! ```text
//! $COFFERDAM_STATE, else /var/lib/cofferdam as root, else $XDG_DATA_HOME/cofferdam, ~/.local/share/cofferdam    0700
//! ├── init/HASH/init     the program, for hard links
//! ├── texts/HASH         files such as the sandbox's own /etc/hosts
//! ├── runs/ID/           one run: `owner`, which is not visible inside, and
//! │   └── shared/        `init`, the rendezvous socket; mounted into its container
//! ├── engines/           what an engine said of itself
//! └── cache/             a container runtime's own
//! ```

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cofferdam_confine::memfd;
use cofferdam_policy::BaseDirectory;
use sha2::{Digest, Sha256};

use super::owner::{self, Leftover, ProcessScope};
use super::spec::DENIED;
use crate::failure::{FailedStep, Failure};

/// The part of a run's directory that its container sees.
const SHARED: &str = "shared";
/// Names another directory for all of it.
pub(super) const VARIABLE: &str = "COFFERDAM_STATE";

/// How old a run's directory is that never will say whose it is.
const UNWRITTEN: std::time::Duration = std::time::Duration::from_secs(600);

/// The directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostFilesDirectory {
    root: PathBuf,
}

impl HostFilesDirectory {
    /// Finds and makes it.
    ///
    /// # Errors
    /// It cannot be made, belongs to somebody else, or nothing on it can be executed.
    pub(super) fn find() -> Result<HostFilesDirectory, Failure> {
        let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let root = named(VARIABLE)
            .or_else(|| rustix::process::geteuid().is_root().then(|| "/var/lib/cofferdam".into()))
            .or_else(|| {
                let data = BaseDirectory::Data.of(named(BaseDirectory::Data.variable()), named("HOME"));
                data.map(|data| data.join("cofferdam"))
            });
        let root = root.ok_or_else(|| {
            Failure::new(FailedStep::State, format!("neither {VARIABLE} nor HOME says where containers' files go"))
                .hint("set COFFERDAM_STATE")
        })?;
        HostFilesDirectory::at(root)
    }

    /// The same at a given path.
    ///
    /// # Errors
    /// See [`HostFilesDirectory::find`].
    pub(super) fn at(root: PathBuf) -> Result<HostFilesDirectory, Failure> {
        let failed = |e: io::Error| {
            Failure::new(FailedStep::State, format!("cannot use {} for containers' files: {e}", root.display()))
                .hint("set COFFERDAM_STATE")
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&root).map_err(failed)?;
        let meta = fs::metadata(&root).map_err(failed)?;
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(Failure::new(
                FailedStep::State,
                format!("{} belongs to another user: what containers start would be theirs to change", root.display()),
            )
            .hint("set COFFERDAM_STATE to a directory of your own"));
        }
        // Somebody's shared directory is not taken away from everybody else, and what is in there may be theirs already.
        if meta.mode() & 0o022 != 0 {
            return Err(Failure::new(FailedStep::State, format!("others may write in {}", root.display()))
                .hint("set COFFERDAM_STATE to a directory of your own, such as one below it"));
        }
        if meta.mode() & 0o077 != 0 {
            fs::set_permissions(&root, Permissions::from_mode(0o700)).map_err(failed)?;
        }
        let flags = rustix::fs::statvfs(&root).map_err(|e| failed(e.into()))?.f_flag;
        if flags.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
            return Err(Failure::new(
                FailedStep::State,
                format!("{} is mounted noexec: a container's first program cannot be started from it", root.display()),
            )
            .hint("set COFFERDAM_STATE to a directory on another file system"));
        }
        for below in ["init", "texts", "runs", "engines", "cache"] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(root.join(below)).map_err(failed)?;
        }
        Ok(HostFilesDirectory { root })
    }

    /// Where the files of texts are.
    pub(super) fn texts(&self) -> PathBuf {
        self.root.join("texts")
    }

    /// Where runtimes keep what they made of images.
    pub(super) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Where is kept what engines say of themselves.
    pub(super) fn engines(&self) -> PathBuf {
        self.root.join("engines")
    }

    /// Has files of these texts there.
    ///
    /// # Errors
    /// They cannot be written.
    pub(super) fn write_texts(&self, texts: &[(PathBuf, String)]) -> Result<(), Failure> {
        for (name, text) in texts {
            let path = self.texts().join(name);
            if name == Path::new(DENIED) {
                self.deny(&path)
                    .map_err(|e| Failure::new(FailedStep::State, format!("cannot make {}: {e}", path.display())))?;
                continue;
            }
            // What is there under the name of its own hash was put there whole.
            if !fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
                write_whole(&path, text.as_bytes(), 0o444)
                    .map_err(|e| Failure::new(FailedStep::State, format!("cannot write {}: {e}", path.display())))?;
            }
        }
        Ok(())
    }

    /// Has the file there that nobody may read.
    fn deny(&self, path: &Path) -> io::Result<()> {
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_file() && there.len() == 0 && there.mode() & 0o777 == 0 => Ok(()),
            _ => write_whole(path, b"", 0),
        }
    }

    /// Makes the directory of a run, with init in the part of it that is mounted.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn run(&self, id: &str) -> Result<RunDirectory, Failure> {
        let path = self.root.join("runs").join(id);
        let failed = |e: io::Error| Failure::new(FailedStep::State, format!("cannot make {}: {e}", path.display()));
        let program = self.program().map_err(failed)?;
        let me = owner::me();
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let made = RunDirectory { whole: path.clone(), path: path.join(SHARED) };
        if let Some(me) = me {
            // Whole or not at all: half of it says of nobody that he is gone.
            write_whole(&path.join("owner"), me.as_bytes(), 0o600).map_err(failed)?;
        }
        fs::DirBuilder::new().mode(0o755).create(&made.path).map_err(failed)?;
        fs::set_permissions(&made.path, Permissions::from_mode(0o755)).map_err(failed)?; // whatever the umask
        fs::hard_link(program, made.path.join("init")).map_err(failed)?;
        Ok(made)
    }

    /// Init's program as a file.
    fn program(&self) -> io::Result<PathBuf> {
        let bytes = memfd::init_bytes();
        let hash: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        let path = self.root.join("init").join(hash);
        // It starts before any filter: what is there is compared whole, whoever may have written it.
        let mode = |meta: fs::Metadata| meta.is_file() && meta.mode() & 0o777 == 0o555;
        if fs::symlink_metadata(&path).is_ok_and(mode) && fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(path);
        }
        write_whole(&path, bytes, 0o555)?;
        Ok(path)
    }

    /// Removes the directories of runs whose owner is gone; `ended` says whether nothing of a container runs any more.
    pub(super) fn sweep(&self, ended: impl Fn(&str) -> bool) -> Vec<String> {
        let Some(here) = ProcessScope::read() else { return Vec::new() };
        let mut removed = Vec::new();
        for entry in fs::read_dir(self.root.join("runs")).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !owner::is_ours(&name) {
                continue;
            }
            let left = match fs::read_to_string(entry.path().join("owner")) {
                Ok(owner) if !owner.is_empty() => match owner::left_by(&owner, &here, owner::process) {
                    Leftover::No => false,
                    Leftover::Yes => true,
                    Leftover::IfEnded => ended(&name),
                },
                // Made, or removed, by one who was killed in the middle of it; who lives is done shortly.
                _ => {
                    let made = entry.metadata().and_then(|meta| meta.modified());
                    made.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNWRITTEN))
                }
            };
            if left && fs::remove_dir_all(entry.path()).is_ok() {
                removed.push(name);
            }
        }
        removed
    }
}

/// Writes a file that is never seen in part.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let beside = path.with_extension(format!("{:016x}", u64::from_ne_bytes(random)));
    let written = (|| {
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        drop(file);
        fs::rename(&beside, path)
    })();
    if written.is_err()
        && let Err(e) = fs::remove_file(&beside)
    {
        debug_assert!(e.kind() == io::ErrorKind::NotFound, "{e}");
    }
    written
}

/// The directory of one run; goes with it.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    whole: PathBuf,
    path: PathBuf,
}

impl RunDirectory {
    /// What of it is mounted into the container, on the host.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it.
    ///
    /// # Errors
    /// What is left.
    pub(super) fn remove(self) -> io::Result<()> {
        let path = self.whole.clone();
        std::mem::forget(self);
        fs::remove_dir_all(path)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.whole) {
            debug_assert!(e.kind() == io::ErrorKind::NotFound, "{}: {e}", self.whole.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_directory_with_init_and_nothing_is_left_of_it() {
        let temporary = tempfile::tempdir().unwrap();
        let place = HostFilesDirectory::at(temporary.path().join("state")).unwrap();
        let run = place.run("cofferdam-0123456789abcdef").unwrap();
        assert_eq!(fs::read(run.path().join("init")).unwrap(), memfd::init_bytes());
        assert_eq!(fs::metadata(run.path()).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(temporary.path().join("state")).unwrap().mode() & 0o777, 0o700);
        assert!(place.sweep(|_| true).is_empty(), "its owner lives");
        let seen: Vec<_> = fs::read_dir(run.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(seen, ["init"], "whose it is tells of the host");
        fs::write(place.root.join("runs/cofferdam-0123456789abcdef/owner"), "1:1:other:1").unwrap();
        assert!(place.sweep(|_| false).is_empty());
        assert_eq!(place.sweep(|_| true), ["cofferdam-0123456789abcdef"]);
        let again = place.run("cofferdam-0123456789abcdef").unwrap();
        fs::write(place.root.join("runs/cofferdam-0123456789abcdef/owner"), "").unwrap();
        assert!(place.sweep(|_| true).is_empty(), "it may just be being made");
        let old = std::time::SystemTime::now() - UNWRITTEN * 2;
        fs::File::open(&again.whole).unwrap().set_modified(old).unwrap();
        assert_eq!(place.sweep(|_| false), ["cofferdam-0123456789abcdef"]);
        drop(again);
        let again = place.run("cofferdam-0123456789abcdef").unwrap();
        again.remove().unwrap();
        assert!(!place.root.join("runs/cofferdam-0123456789abcdef").exists());
    }

    #[test]
    fn another_program_of_the_same_length_is_not_taken_for_init() {
        let temporary = tempfile::tempdir().unwrap();
        let place = HostFilesDirectory::at(temporary.path().join("state")).unwrap();
        let path = place.program().unwrap();
        let made = fs::metadata(&path).unwrap().ino();
        assert_eq!((place.program().unwrap(), fs::metadata(&path).unwrap().ino()), (path.clone(), made), "the twin");
        fs::remove_file(&path).unwrap();
        fs::write(&path, vec![b'x'; memfd::init_bytes().len()]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o555)).unwrap();
        assert_eq!(fs::read(place.program().unwrap()).unwrap(), memfd::init_bytes());
    }

    #[test]
    fn the_file_over_denied_ones_is_nobodys_to_read_and_repaired() {
        let temporary = tempfile::tempdir().unwrap();
        let place = HostFilesDirectory::at(temporary.path().to_owned()).unwrap();
        let (texts, path) = ([(PathBuf::from(DENIED), String::new())], place.texts().join(DENIED));
        place.write_texts(&texts).unwrap();
        let made = fs::metadata(&path).unwrap();
        assert_eq!((made.mode() & 0o777, made.len()), (0, 0));
        place.write_texts(&texts).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), made.ino(), "a run that has it mounted would not be as agreed");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        place.write_texts(&texts).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0);
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused_and_left_as_it_is() {
        let temporary = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(temporary.path(), Permissions::from_mode(mode)).unwrap();
        mode(0o1777);
        let failure = HostFilesDirectory::at(temporary.path().to_owned()).unwrap_err();
        assert!(failure.message.contains("others may write") && failure.hint.is_some(), "{failure:?}");
        assert_eq!(fs::metadata(temporary.path()).unwrap().mode() & 0o7777, 0o1777);
        mode(0o755);
        HostFilesDirectory::at(temporary.path().to_owned()).unwrap();
        assert_eq!(fs::metadata(temporary.path()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn texts_are_whole_and_repaired() {
        let temporary = tempfile::tempdir().unwrap();
        let place = HostFilesDirectory::at(temporary.path().to_owned()).unwrap();
        let texts = [(PathBuf::from("a"), "one\n".to_owned())];
        place.write_texts(&texts).unwrap();
        let path = place.texts().join("a");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o444);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "on").unwrap();
        place.write_texts(&texts).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "one\n");
    }
}
