//! The profile store: a directory per skill with the files that its profile was exported to, for later runs.
//!
//! ```text
//! ~/.omni/sandbox/profiles/{skill_id}/policy.json, nsjail.json, seatbelt.sb
//! ```
//!
//! Files are replaced atomically: written to a temporary file, synchronised and renamed, under a lock against concurrent exports.
//! Ids are names and never paths. Never evaluates or interprets the files.

use std::fmt;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fsync, openat, unlinkat};

use crate::private;

/// Most bytes of one file in the store.
const MAX_BYTES: u64 = 16 << 20;

/// The lock file of exports.
const LOCK: &str = ".lock";

/// The name of a stored profile: `^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$` without `..`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(String);

impl Id {
    /// Parses an id.
    ///
    /// # Errors
    /// It is not a plain name.
    pub fn new(text: &str) -> Result<Id, StoreError> {
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if first && plain && text.len() <= 128 && !text.contains("..") {
            return Ok(Id(text.to_owned()));
        }
        Err(StoreError::Id(text.chars().take(200).collect()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One of the files of a stored profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stored {
    /// nsjail's configuration.
    Nsjail,
    /// A Seatbelt profile.
    Seatbelt,
    /// The complete policy.
    Policy,
}

impl Stored {
    /// All files; the policy last, because readers look for it.
    pub const ALL: &'static [Stored] = &[Stored::Nsjail, Stored::Seatbelt, Stored::Policy];

    /// The file's name.
    pub fn file_name(self) -> &'static str {
        match self {
            Stored::Nsjail => "nsjail.json",
            Stored::Seatbelt => "seatbelt.sb",
            Stored::Policy => "policy.json",
        }
    }
}

/// Why something cannot be stored or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The id is invalid.
    #[error(
        "`{}` is no profile id: letters, digits, `.`, `_` and `-`, at most 128, beginning with a letter or digit, \
         without `..`",
        .0.escape_debug()
    )]
    Id(String),
    /// No such profile.
    #[error("no profile `{id}` in {store}: {missing} is not there")]
    Missing {
        /// Its id.
        id: Id,
        /// The store's directory.
        store: PathBuf,
        /// The file that is missing.
        missing: &'static str,
    },
    /// A symbolic link, which is not followed: it could lead to a file of another user.
    #[error("cannot use {path}: it is a symbolic link, and no link inside a profile store is followed")]
    Linked {
        /// The link.
        path: PathBuf,
    },
    /// Another user could have written it.
    #[error("cannot trust {path}: {why}")]
    Untrusted {
        /// Directory or file.
        path: PathBuf,
        /// The user or users who could.
        why: String,
    },
    /// A system call failed.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl StoreError {
    /// A hint for the user, as a command if possible.
    pub fn hint(&self) -> Option<String> {
        match self {
            StoreError::Id(_) => Some("choose another name with --id".into()),
            StoreError::Missing { id, .. } => Some(format!("cofferdam export FILE.ncl --store --id {id}")),
            StoreError::Linked { .. } => Some(
                "put the directory or file itself there, or name the store that it leads to: --profiles DIR".into(),
            ),
            StoreError::Untrusted { path, .. } => {
                Some(format!("chown and chmod go-w {} if it is yours", path.display()))
            }
            StoreError::Io { operation: "read", source, .. } if source.kind() == ErrorKind::PermissionDenied => {
                Some("name a profile store that you may read: --profiles DIR, or COFFERDAM_PROFILES".into())
            }
            StoreError::Io { source, .. } => match source.kind() {
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                    Some("name a directory that can be written: --profiles DIR, or COFFERDAM_PROFILES".into())
                }
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    Some("make room there, or name --profiles DIR".into())
                }
                _ => None,
            },
        }
    }
}

/// A profile store. Nothing is opened or created before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileStore {
    directory: PathBuf,
}

impl ProfileStore {
    /// The store in this directory.
    pub fn at(directory: impl Into<PathBuf>) -> ProfileStore {
        ProfileStore { directory: directory.into() }
    }

    /// The default directory of the store.
    pub fn default_directory(home: &Path) -> PathBuf {
        home.join(".omni/sandbox/profiles")
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// One file of a stored profile.
    ///
    /// # Errors
    /// It does not exist, cannot be read, or could have been written by another user.
    pub fn read(&self, id: &Id, what: Stored) -> Result<Vec<u8>, StoreError> {
        let path = self.directory.join(id.as_str()).join(what.file_name());
        let missing =
            || StoreError::Missing { id: id.clone(), store: self.directory.clone(), missing: what.file_name() };
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => missing(),
            _ => StoreError::Io { operation: "read", path: path.clone(), source: error },
        };
        let store = private::open(&self.directory).map_err(failed)?;
        self.trusted(&store, self.directory.clone())?;
        let own = self.directory.join(id.as_str());
        let linked = |at: &OwnedFd, name: &str, path: &Path, error| match private::is_link(at, name) {
            true => StoreError::Linked { path: path.to_owned() },
            false => failed(error),
        };
        let directory =
            private::open_below(&store, id.as_str()).map_err(|error| linked(&store, id.as_str(), &own, error))?;
        self.trusted(&directory, own)?;
        let name = what.file_name();
        let file = private::open_file(&directory, name).map_err(|error| linked(&directory, name, &path, error))?;
        self.trusted(&file, path.clone())?;
        let mut bytes = Vec::new();
        (&file).take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(failed(io::Error::new(ErrorKind::FileTooLarge, "it has more than 16 MiB")));
        }
        Ok(bytes)
    }

    /// The path of a file of a stored profile, whether or not it exists, for programs that read it themselves.
    pub fn path(&self, id: &Id, what: Stored) -> PathBuf {
        self.directory.join(id.as_str()).join(what.file_name())
    }

    /// The ids of all stored profiles; none if there is no store.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn list(&self) -> Result<Vec<Id>, StoreError> {
        let failed = |source| StoreError::Io { operation: "read", path: self.directory.clone(), source };
        let store = match private::open(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened.map_err(failed)?,
        };
        let names = private::names(&store).map_err(failed)?;
        let ids = names.iter().filter_map(|name| Id::new(name).ok());
        Ok(ids.filter(|id| private::open_below(&store, id.as_str()).is_ok()).collect())
    }

    /// Stores these files as a profile, and returns its directory. Files of an earlier export that this one does not have are removed,
    /// since they belong to another policy. Other files in the directory stay.
    ///
    /// # Errors
    /// A file cannot be written. Each file is complete nevertheless, either the old or the new one.
    pub fn save(&self, id: &Id, files: &[(Stored, &[u8])]) -> Result<PathBuf, StoreError> {
        let path = self.directory.join(id.as_str());
        let failed = |operation| {
            let path = path.clone();
            move |source: io::Error| StoreError::Io { operation, path, source }
        };
        let at = |operation| {
            let path = self.directory.clone();
            move |source: io::Error| StoreError::Io { operation, path, source }
        };
        let store = private::open_or_make(&self.directory).map_err(at("make the profile store"))?;
        self.trusted(&store, self.directory.clone())?;
        let lock = lock(&store).map_err(at("lock the profile store"))?;
        let directory =
            private::make_below(&store, id.as_str()).map_err(|error| match private::is_link(&store, id.as_str()) {
                true => StoreError::Linked { path: path.clone() },
                false => failed("make the profile's directory")(error),
            })?;
        self.trusted(&directory, path.clone())?;
        sweep(&directory).map_err(failed("clean"))?;
        for what in Stored::ALL {
            let file = path.join(what.file_name());
            match files.iter().find(|(stored, _)| stored == what) {
                Some((_, bytes)) => private::replace(&directory, what.file_name(), bytes, true)
                    .map_err(|source| StoreError::Io { operation: "write", path: file, source })?,
                None => match unlinkat(&directory, what.file_name(), AtFlags::empty()) {
                    Err(error) if error != rustix::io::Errno::NOENT => {
                        return Err(StoreError::Io { operation: "remove the old", path: file, source: error.into() });
                    }
                    _ => {}
                },
            }
        }
        fsync(&directory).and_then(|()| fsync(&store)).map_err(|error| failed("synchronise")(error.into()))?;
        drop(lock);
        Ok(path)
    }

    fn trusted(&self, fd: impl AsFd, path: PathBuf) -> Result<(), StoreError> {
        match private::others_write(fd) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(StoreError::Untrusted { path, why }),
            Err(source) => Err(StoreError::Io { operation: "look at", path, source }),
        }
    }
}

/// Waits for the store's lock, which is released with the descriptor.
fn lock(store: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = openat(store, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
    loop {
        match flock(&lock, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            locked => return locked.map(|()| lock).map_err(Into::into),
        }
    }
}

/// Removes temporary files of killed exports. The caller holds the lock.
fn sweep(directory: &OwnedFd) -> io::Result<()> {
    for name in private::names(directory)?.iter().filter(|name| name.starts_with(private::TEMPORARY)) {
        unlinkat(directory, name, AtFlags::empty())?;
    }
    Ok(())
}
