//! The content of registered skills: a directory per version, written once and read-only from then on.
//!
//! ```text
//! DIR/content/VERSION/manifest.json   the manifest's text
//!                    /stamps.json     what stat(2) said of each file when it was written
//!                    /files/…         what is mounted; 0755 what begins with `#!` or as a program does, 0644 the rest
//! ```
//!
//! A version is written beside its place, synchronised, and renamed: it is whole or not there. Before a run every file is
//! compared with its stamp, of which the change time cannot be set by whoever changes a file; what differs is hashed again
//! against the manifest, and is refused when it is another. Knows no names of skills and no states.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_profiles::private;
use rustix::fs::{Mode, OFlags, RenameFlags, fchmod, fsync, mkdirat, openat, renameat, renameat_with};
use serde::{Deserialize, Serialize};

use super::error::SkillError;
use super::intake::{self, Taken};
use super::manifest::{MANIFEST_FILE, MAX_MANIFEST_BYTES, Manifest, Stage};
use super::signature::Version;

const CONTENT: &str = "content";
const FILES: &str = "files";
const STAMPS: &str = "stamps.json";
/// How what is being written begins; nobody else looks at it.
const UNFINISHED: &str = ".new-";
/// Longest file of stamps, bytes.
const MAX_STAMPS_BYTES: u64 = 16 << 20;

/// A version as it is kept.
#[derive(Debug)]
pub struct Kept {
    /// Its manifest.
    pub manifest: Manifest,
    /// The directory to mount.
    pub files: PathBuf,
    /// Whether the stamps were enough; otherwise every file was hashed again.
    pub by_stamps: bool,
}

/// What stat(2) said of a file or directory. Any change of content, mode or name leaves another change time.
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
        // A directory's size is its file system's affair, and may differ after nothing happened.
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

/// Writes a version, in a registry that the caller has locked. What is in its place goes: whoever asks for it to be kept
/// has looked that this is damaged, or was left by a crash.
///
/// # Errors
/// It cannot be written; then it is not there.
pub(super) fn keep(registry: &OwnedFd, directory: &Path, taken: &Taken) -> Result<(), SkillError> {
    let place = directory.join(CONTENT);
    let content = private::make_below(registry, CONTENT).map_err(reported("make", &place))?;
    sweep(&content, &place)?;
    let version = taken.version.hex();
    let unfinished = format!("{UNFINISHED}{version}");
    let path = place.join(&unfinished);
    let written = write(&content, &unfinished, &path, taken)
        .map_err(reported("write", &place.join(&version)))
        .and_then(|()| put(&content, &place, &unfinished, &version));
    // What was in its place has that name now, or what could not be put there has it still.
    let rest = remove(&path);
    // The first error is the one to tell; what is left is swept by the next registration.
    written.and(rest)
}

/// Puts what is written in its place, at once where the file system can: a reader finds the one or the other.
fn put(content: &OwnedFd, place: &Path, unfinished: &str, version: &str) -> Result<(), SkillError> {
    let path = place.join(version);
    if renameat_with(content, unfinished, content, version, RenameFlags::EXCHANGE).is_err() {
        // Nothing is in its place, or the file system cannot exchange two names.
        remove(&path)?;
        renameat(content, unfinished, content, version).map_err(|error| reported("write", &path)(error.into()))?;
    }
    fsync(content).map_err(|error| reported("write", &path)(error.into()))
}

/// Removes what a registration left that was killed.
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
    // The payload is another user than the store's, where the store is root's; the way here is nobody else's.
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

/// A version, if it is what was kept.
///
/// # Errors
/// It is not there, or another.
pub(super) fn open(directory: &Path, version: &str) -> Result<Kept, SkillError> {
    let path = directory.join(CONTENT).join(version);
    let own = private::open(&path).map_err(lost(&path))?;
    let text = file(&own, &path, MANIFEST_FILE, MAX_MANIFEST_BYTES as u64)?;
    let damaged = |why: &str| SkillError::Damaged { path: path.join(MANIFEST_FILE), why: why.into() };
    let manifest = Manifest::decode(&text, Stage::Signed).map_err(|_| damaged("it is no manifest"))?;
    if Version::of(&manifest).hex() != version {
        return Err(damaged("it is another manifest than the one that was registered"));
    }
    let files = path.join(FILES);
    let by_stamps = unchanged(&own, &path, &manifest)?;
    if !by_stamps {
        rehash(&files, &manifest)?;
    }
    Ok(Kept { manifest, files, by_stamps })
}

/// What is not there, or something else in its place, is damage like another.
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

/// Whether stat(2) says of everything what it said when it was written, and nothing else is there. A directory's own
/// stamp tells of names that came or went.
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

/// Whether every file is the manifest's, and none besides.
fn rehash(files: &Path, manifest: &Manifest) -> Result<(), SkillError> {
    let damaged = |why: String| SkillError::Damaged { path: files.to_owned(), why };
    // A link could lead to other files after these were hashed; and a listing passes the manifest's name over.
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
