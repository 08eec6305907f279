//! The content of registered skills: a directory per version, written once and read-only from then on.
//!
//! ```text
//! DIR/content/VERSION/manifest.json   the manifest's text
//!                    /stamps.json     the stat(2) results of each file when it was written
//!                    /files/…         mounted in the sandbox; mode 0755 for scripts with `#!` and ELF programs, else 0644
//! ```
//!
//! A version is written to a temporary directory, synchronised, and renamed, so it is complete or does not exist. Before a run each
//! file is compared with its stamp, whose change time (ctime) programs cannot set. If one differs, all files are hashed again, and
//! must match the manifest. Every directory and file on the way must belong to the user, or to root, and no other user may write
//! to it. Knows no names of skills and no states.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_profiles::private;
use rustix::fs::{FileType, Mode, OFlags, RenameFlags, fchmod, fstat, fsync, mkdirat, openat, renameat, renameat_with};
use serde::{Deserialize, Serialize};

use super::error::SkillError;
use super::intake::{self, Taken};
use super::manifest::{MANIFEST_FILE, MAX_MANIFEST_BYTES, Manifest, Stage};
use super::signature::VersionHash;

const CONTENT: &str = "content";
const FILES: &str = "files";
const STAMPS: &str = "stamps.json";
/// The prefix of temporary directories, which readers ignore.
const UNFINISHED: &str = ".new-";
/// Longest file of stamps, bytes.
const MAX_STAMPS_BYTES: u64 = 16 << 20;

/// A stored version.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoredVersion {
    /// Its manifest.
    pub manifest: Manifest,
    /// The directory to mount.
    pub files: PathBuf,
    /// Whether the stamps were unchanged; otherwise all files were hashed again.
    pub by_stamps: bool,
}

/// The stat(2) results of a file or directory. Any change of content, mode or name changes the change time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stamp {
    path: String,
    device: u64,
    inode: u64,
    mode: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &str, about: &std::fs::Metadata) -> Stamp {
        // A directory's size depends on its file system, and may differ without a change.
        let size = if about.is_dir() { 0 } else { about.len() };
        Stamp {
            path: path.to_owned(),
            device: about.dev(),
            inode: about.ino(),
            mode: about.mode(),
            size,
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        }
    }
}

fn reported<'p>(operation: &'static str, path: &'p Path) -> impl Fn(io::Error) -> SkillError + 'p {
    move |source| SkillError::Io { operation, path: path.to_owned(), source }
}

/// Writes a version, in a registry that the caller has locked. An existing directory of the version is replaced: the caller has
/// checked that it is damaged or was left by a crash.
///
/// # Errors
/// It cannot be written; it does not exist then.
pub(super) fn keep(registry: &OwnedFd, directory: &Path, taken: &Taken) -> Result<(), SkillError> {
    let place = directory.join(CONTENT);
    let content = private::make_below(registry, CONTENT).map_err(reported("make", &place))?;
    trusted(&content, &place)?;
    sweep(&content, &place)?;
    let version = taken.version.hex();
    let unfinished = format!("{UNFINISHED}{version}");
    let path = place.join(&unfinished);
    let written = write(&content, &unfinished, &path, taken)
        .map_err(reported("write", &place.join(&version)))
        .and_then(|()| put(&content, &place, &unfinished, &version));
    // The temporary name now belongs to the replaced directory, or still to the new one if the rename failed.
    let rest = remove(&path);
    // The first error is returned; the next registration removes what is left.
    written.and(rest)
}

/// Renames the new directory to its place, atomically if the file system can exchange names: a reader finds one or the other.
fn put(content: &OwnedFd, place: &Path, unfinished: &str, version: &str) -> Result<(), SkillError> {
    let path = place.join(version);
    if renameat_with(content, unfinished, content, version, RenameFlags::EXCHANGE).is_err() {
        // There is no directory to replace, or the file system cannot exchange two names.
        remove(&path)?;
        renameat(content, unfinished, content, version).map_err(|error| reported("write", &path)(error.into()))?;
    }
    fsync(content).map_err(|error| reported("write", &path)(error.into()))
}

/// Removes temporary directories of killed registrations.
fn sweep(content: &OwnedFd, place: &Path) -> Result<(), SkillError> {
    let names = private::names(content).map_err(reported("list", place))?;
    names.iter().filter(|name| name.starts_with(UNFINISHED)).try_for_each(|name| remove(&place.join(name)))
}

fn remove(path: &Path) -> Result<(), SkillError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            std::fs::remove_file(path).map_err(reported("remove", path))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(reported("remove", path)(error)),
        _ => Ok(()),
    }
}

fn write(content: &OwnedFd, name: &str, path: &Path, taken: &Taken) -> io::Result<()> {
    let own = private::make_below(content, name)?;
    let files = private::make_below(&own, FILES)?;
    let mut directories = vec![String::new()];
    for (file, bytes) in &taken.files {
        let mut above = files.try_clone()?;
        let mut done = String::new();
        let (parents, last) = file.rsplit_once('/').map_or(("", file.as_str()), |(parents, last)| (parents, last));
        for parent in parents.split('/').filter(|parent| !parent.is_empty()) {
            done.push_str(parent);
            match mkdirat(&above, parent, Mode::RWXU) {
                Ok(()) => directories.push(done.clone()),
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            above = private::open_below(&above, parent)?;
            done.push('/');
        }
        let program = bytes.starts_with(b"#!") || bytes.starts_with(b"\x7fELF");
        create(&above, last, bytes, if program { 0o755 } else { 0o644 })?;
    }
    // The payload has another user id than the store if that is root's, so it needs read access; other users cannot reach the
    // directories above.
    for directory in directories.iter().rev() {
        let opened = private::open(&path.join(FILES).join(directory))?;
        fchmod(&opened, Mode::from_raw_mode(0o755))?;
        fsync(&opened)?;
    }
    let paths = directories.iter().map(String::as_str).chain(taken.files.keys().map(String::as_str));
    let stamps: Vec<Stamp> = paths
        .map(|below| Ok(Stamp::of(below, &path.join(FILES).join(below).symlink_metadata()?)))
        .collect::<io::Result<_>>()?;
    create(&own, STAMPS, &serde_json::to_vec(&stamps)?, 0o400)?;
    create(&own, MANIFEST_FILE, &taken.text, 0o400)?;
    Ok(fsync(&own)?)
}

fn create(directory: &OwnedFd, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(bytes)?;
    fchmod(&file, Mode::from_raw_mode(mode as _))?;
    file.sync_all()
}

/// A stored version, if it is unchanged.
///
/// # Errors
/// It does not exist, or was changed.
pub(super) fn open(directory: &Path, version: &str) -> Result<StoredVersion, SkillError> {
    let place = directory.join(CONTENT);
    let path = place.join(version);
    let registry = private::open(directory).map_err(lost(directory))?;
    let content = private::open_below(&registry, CONTENT).map_err(lost(&place))?;
    trusted(&content, &place)?;
    let own = private::open_below(&content, version).map_err(lost(&path))?;
    trusted_tree(&own, &path)?;
    let text = file(&own, &path, MANIFEST_FILE, MAX_MANIFEST_BYTES as u64)?;
    let damaged = |why: &str| SkillError::Damaged { path: path.join(MANIFEST_FILE), why: why.into() };
    let manifest = Manifest::decode(&text, Stage::Registered).map_err(|_| damaged("it is no manifest"))?;
    if VersionHash::of(&manifest).hex() != version {
        return Err(damaged("it is another manifest than the one that was registered"));
    }
    let files = path.join(FILES);
    let by_stamps = unchanged(&own, &path, &manifest)?;
    if !by_stamps {
        rehash(&files, &manifest)?;
    }
    Ok(StoredVersion { manifest, files, by_stamps })
}

/// Refuses what another user could write to: also a file that is hashed again and again could be another one when it runs.
fn trusted(fd: impl AsFd, path: &Path) -> Result<(), SkillError> {
    let looked = reported("look at", path);
    let why = private::others_write(fd.as_fd()).map_err(&looked)?;
    why.map_or(Ok(()), |why| Err(SkillError::Untrusted { path: path.to_owned(), why }))
}

/// The same of a directory and everything in it. No file of a skill has a set-id bit. Neither links nor special files are
/// registered: they count as damage later.
fn trusted_tree(directory: &OwnedFd, path: &Path) -> Result<(), SkillError> {
    trusted(directory, path)?;
    for name in private::names(directory).map_err(reported("list", path))? {
        let path = path.join(&name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = openat(directory, &name, flags, Mode::empty()).map_err(|error| lost(&path)(error.into()))?;
        let stat = fstat(&entry).map_err(|error| lost(&path)(error.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                trusted_tree(&private::open_below(directory, &name).map_err(lost(&path))?, &path)?;
            }
            FileType::RegularFile => {
                trusted(&entry, &path)?;
                if stat.st_mode & 0o6000 != 0 {
                    return Err(SkillError::Untrusted { path, why: "it has a set-id bit".into() });
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A missing or replaced file counts as damage.
fn lost(path: &Path) -> impl Fn(io::Error) -> SkillError + '_ {
    move |source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            SkillError::Damaged { path: path.to_owned(), why: source.to_string() }
        }
        _ => reported("read", path)(source),
    }
}

fn file(own: &OwnedFd, path: &Path, name: &str, most: u64) -> Result<Vec<u8>, SkillError> {
    let opened = private::open_file(own, name).and_then(|file| intake::read(&file, most));
    opened.map_err(lost(&path.join(name)))
}

/// Whether all files and directories have their stamps, and there are no others. A directory's stamp detects added and removed
/// names.
fn unchanged(own: &OwnedFd, path: &Path, manifest: &Manifest) -> Result<bool, SkillError> {
    let text = file(own, path, STAMPS, MAX_STAMPS_BYTES)?;
    let Ok(stamps) = serde_json::from_slice::<Vec<Stamp>>(&text) else { return Ok(false) };
    let mut sorted: Vec<&str> = stamps.iter().map(|stamp| stamp.path.as_str()).collect();
    sorted.sort_unstable();
    let every = manifest.files.iter().all(|file| sorted.binary_search(&file.path.as_str()).is_ok());
    let root = sorted.first() == Some(&"");
    if !every || !root {
        return Ok(false);
    }
    let files = path.join(FILES);
    let same = |stamp: &Stamp| {
        let path = if stamp.path.is_empty() { files.clone() } else { files.join(&stamp.path) };
        path.symlink_metadata().is_ok_and(|about| Stamp::of(&stamp.path, &about) == *stamp)
    };
    Ok(stamps.iter().all(same))
}

/// Whether the files are exactly those of the manifest.
fn rehash(files: &Path, manifest: &Manifest) -> Result<(), SkillError> {
    let damaged = |why: String| SkillError::Damaged { path: files.to_owned(), why };
    // A link could lead to other files after these were hashed, and a listing leaves the manifest out.
    let about = files.symlink_metadata().map_err(|error| damaged(error.to_string()))?;
    if !about.is_dir() || files.join(MANIFEST_FILE).symlink_metadata().is_ok() {
        return Err(damaged(format!(
            "{} is not what was registered",
            if about.is_dir() { MANIFEST_FILE } else { FILES }
        )));
    }
    let mut found = intake::listing(files).map_err(|error| damaged(error.to_string()))?;
    let mut wanted = manifest.files.clone();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    wanted.sort_by(|a, b| a.path.cmp(&b.path));
    if found != wanted {
        let other =
            found.iter().find(|file| !wanted.contains(file)).or_else(|| wanted.iter().find(|f| !found.contains(f)));
        let other = other.map(|file| file.path.escape_debug().to_string()).unwrap_or_default();
        return Err(damaged(format!("{other} is not what was registered")));
    }
    Ok(())
}
