//! Trees as tar streams, for engines that import a root file system that way, and the fingerprint of a tree.
//!
//! Walks by descriptors, so that a tree that changes meanwhile cannot lead out of itself; stays on one file system; leaves
//! out devices and sockets. Never follows a link.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use sha2::{Digest, Sha256};

use crate::backends::container::{Entry, Mounted};

const BLOCK: usize = 512;
/// How deep a tree may be: each level keeps a descriptor open.
const DEEPEST: usize = 200;

/// Writes entries of a tar archive.
pub(super) struct Archive<W> {
    to: W,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Directory,
    /// Of this size; so many bytes follow.
    File(u64),
    Symlink(&'a [u8]),
    /// The same file as this earlier entry.
    Hardlink(&'a [u8]),
    Fifo,
}

/// Whose an entry is, and what may be done with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Owned {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: u64,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Archive<W> {
        Archive { to }
    }

    /// One entry's header, with those before it that names of more than a hundred bytes need. `path` has no slash before it.
    pub(super) fn entry(&mut self, path: &[u8], kind: Kind<'_>, owned: Owned) -> io::Result<()> {
        let (sign, size, link): (u8, u64, &[u8]) = match kind {
            Kind::File(size) => (b'0', size, b""),
            Kind::Hardlink(to) => (b'1', 0, to),
            Kind::Symlink(says) => (b'2', 0, says),
            Kind::Directory => (b'5', 0, b""),
            Kind::Fifo => (b'6', 0, b""),
        };
        let mut name = path.to_vec();
        if kind == Kind::Directory {
            name.push(b'/');
        }
        if link.len() > 100 {
            self.long(b'K', link)?;
        }
        if name.len() > 100 {
            self.long(b'L', &name)?;
        }
        self.header(&name, sign, size, link, owned)
    }

    /// The contents of the last entry, which was said to be `size` long.
    pub(super) fn contents(&mut self, mut from: impl Read, size: u64) -> io::Result<()> {
        let copied = io::copy(&mut from.by_ref().take(size), &mut self.to)?;
        if copied != size || from.read(&mut [0])? != 0 {
            return Err(changed());
        }
        self.pad(size)
    }

    /// Two empty blocks.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&[0; 2 * BLOCK])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn long(&mut self, sign: u8, text: &[u8]) -> io::Result<()> {
        let size = text.len() as u64 + 1;
        self.header(b"././@LongLink", sign, size, b"", Owned::default())?;
        self.to.write_all(text)?;
        self.to.write_all(&[0])?;
        self.pad(size)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
        if over > 0 { self.to.write_all(&[0; BLOCK][over..]) } else { Ok(()) }
    }

    fn header(&mut self, name: &[u8], sign: u8, size: u64, link: &[u8], owned: Owned) -> io::Result<()> {
        let mut block = [0u8; BLOCK];
        let put = |block: &mut [u8; BLOCK], at: usize, length: usize, text: &[u8]| {
            let length = length.min(text.len());
            block[at..at + length].copy_from_slice(&text[..length]);
        };
        put(&mut block, 0, 100, name);
        number(&mut block[100..108], u64::from(owned.mode));
        number(&mut block[108..116], u64::from(owned.uid));
        number(&mut block[116..124], u64::from(owned.gid));
        number(&mut block[124..136], size);
        number(&mut block[136..148], owned.mtime);
        block[156] = sign;
        put(&mut block, 157, 100, link);
        put(&mut block, 257, 8, b"ustar  \0"); // GNU's, whose long names these are
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        put(&mut block, 148, 7, format!("{sum:06o}\0").as_bytes());
        self.to.write_all(&block)
    }
}

/// Octal where it fits, else GNU's binary form.
fn number(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    let text = format!("{value:0digits$o}");
    if text.len() == digits {
        field[..digits].copy_from_slice(text.as_bytes());
    } else {
        field.fill(0);
        let start = field.len() - 8;
        field[start..].copy_from_slice(&value.to_be_bytes());
        field[0] |= 0x80;
    }
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was read")
}

/// A made root, with the mount points of what will be mounted.
pub(super) fn made(entries: &[Entry], mounts: &[Mounted]) -> io::Result<Vec<u8>> {
    let mut tree: std::collections::BTreeMap<String, (Owned, Option<&str>, bool)> = std::collections::BTreeMap::new();
    let relative = |path: &str| path.trim_matches('/').to_owned();
    let directory = |mode| (Owned { mode, ..Owned::default() }, None, true);
    for mount in mounts {
        let is_directory = !matches!(mount, Mounted::Bind { directory: false, .. });
        let made =
            if is_directory { directory(0o755) } else { (Owned { mode: 0o644, ..Owned::default() }, None, false) };
        tree.insert(relative(mount.target()), made);
    }
    for entry in entries {
        match entry {
            Entry::Directory { path, mode } => tree.insert(relative(path), directory(*mode)),
            Entry::Link { path, says } => {
                tree.insert(relative(path), (Owned { mode: 0o777, ..Owned::default() }, Some(says), false))
            }
        };
    }
    let paths: Vec<String> = tree.keys().cloned().collect();
    for path in paths {
        let mut above = path.as_str();
        while let Some((parent, _)) = above.rsplit_once('/') {
            tree.entry(parent.to_owned()).or_insert(directory(0o755));
            above = parent;
        }
    }
    tree.remove("");
    let mut archive = Archive::new(Vec::new());
    for (path, (owned, says, is_directory)) in &tree {
        let kind = match says {
            Some(says) => Kind::Symlink(says.as_bytes()),
            None if *is_directory => Kind::Directory,
            None => Kind::File(0),
        };
        archive.entry(path.as_bytes(), kind, *owned)?;
    }
    archive.finish()
}

/// What a walk meets.
struct Met<'a> {
    /// Relative to the root.
    path: &'a [u8],
    parent: BorrowedFd<'a>,
    name: &'a OsStr,
    stat: &'a Stat,
    kind: FileType,
}

/// Calls `visit` for everything below a directory, parents first, names in order.
fn walk(root: &Path, visit: &mut dyn FnMut(&Met<'_>) -> io::Result<()>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(root, flags, Mode::empty())?;
    let device = rustix::fs::fstat(&fd)?.st_dev;
    below(fd.as_fd(), &mut Vec::new(), device, 0, visit)
}

fn below(
    directory: BorrowedFd<'_>,
    path: &mut Vec<u8>,
    device: u64,
    depth: usize,
    visit: &mut dyn FnMut(&Met<'_>) -> io::Result<()>,
) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::other(format!("it is more than {DEEPEST} directories deep")));
    }
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    for name in names {
        let name = OsStr::from_bytes(&name);
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| changed())?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        visit(&Met { path, parent: directory, name, stat: &stat, kind })?;
        // Another file system is mounted there: it belongs to the host, not to the tree.
        if kind == FileType::Directory && stat.st_dev == device {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inner = rustix::fs::openat(directory, name, flags, Mode::empty())
                .map_err(|error| with_path(path, error.into()))?;
            let opened = rustix::fs::fstat(&inner)?;
            if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) {
                return Err(changed());
            }
            below(inner.as_fd(), path, device, depth + 1, visit)?;
        }
        path.truncate(length);
    }
    Ok(())
}

fn with_path(path: &[u8], error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", crate::evidence::escape(path)))
}

/// What a tree is, as far as its inodes tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Over each path with kind, size, times, inode, mode, owner and what a link says.
    pub hash: [u8; 32],
    /// Bytes in its files.
    pub bytes: u64,
    /// When the last inode changed, seconds and nanoseconds.
    pub newest: (i64, i64),
}

/// Reads every inode of a tree, and no file.
///
/// # Errors
/// Something of it cannot be read.
pub(super) fn fingerprint(root: &Path) -> io::Result<Fingerprint> {
    let mut hasher = Sha256::new();
    let (mut bytes, mut newest) = (0, (0, 0));
    let mut add = |path: &[u8], stat: &Stat, says: &[u8]| {
        for text in [path, says] {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        for number in [
            stat.st_mode.into(),
            stat.st_uid.into(),
            stat.st_gid.into(),
            stat.st_ino,
            stat.st_dev,
            stat.st_size.cast_unsigned(),
            stat.st_mtime.cast_unsigned(),
            stat.st_mtime_nsec,
            stat.st_ctime.cast_unsigned(),
            stat.st_ctime_nsec,
        ] {
            let number: u64 = number;
            hasher.update(number.to_le_bytes());
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            bytes += stat.st_size.cast_unsigned();
        }
        newest = newest.max((stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0)));
    };
    let own = rustix::fs::stat(root)?;
    add(b"", &own, b"");
    walk(root, &mut |met| {
        let says = match met.kind {
            FileType::Symlink => rustix::fs::readlinkat(met.parent, met.name, Vec::new())?.into_bytes(),
            _ => Vec::new(),
        };
        add(met.path, met.stat, &says);
        Ok(())
    })?;
    Ok(Fingerprint { hash: hasher.finalize().into(), bytes, newest })
}

/// Writes a tree as an archive. With `own`, everything belongs to the first user of the container.
///
/// # Errors
/// It cannot be read, changes meanwhile, or cannot be written out.
pub(super) fn tree(root: &Path, own: bool, to: impl Write) -> io::Result<()> {
    let mut archive = Archive::new(to);
    let mut linked: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    walk(root, &mut |met| {
        let stat = met.stat;
        let (uid, gid) = if own { (0, 0) } else { (stat.st_uid, stat.st_gid) };
        let owned = Owned { mode: stat.st_mode & 0o7777, uid, gid, mtime: stat.st_mtime.max(0).cast_unsigned() };
        let wrap = |error| with_path(met.path, error);
        if met.kind != FileType::Directory && stat.st_nlink > 1 {
            if let Some(first) = linked.get(&(stat.st_dev, stat.st_ino)) {
                return archive.entry(met.path, Kind::Hardlink(first), owned);
            }
            linked.insert((stat.st_dev, stat.st_ino), met.path.to_vec());
        }
        match met.kind {
            FileType::Directory => archive.entry(met.path, Kind::Directory, owned),
            FileType::Symlink => {
                let says = rustix::fs::readlinkat(met.parent, met.name, Vec::new())?;
                archive.entry(met.path, Kind::Symlink(says.as_bytes()), owned)
            }
            FileType::Fifo => archive.entry(met.path, Kind::Fifo, owned),
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = rustix::fs::openat(met.parent, met.name, flags, Mode::empty())
                    .map_err(|error| wrap(error.into()))?;
                let opened = rustix::fs::fstat(&file)?;
                if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) {
                    return Err(wrap(changed()));
                }
                let size = stat.st_size.cast_unsigned();
                archive.entry(met.path, Kind::File(size), owned)?;
                archive.contents(std::fs::File::from(file), size).map_err(wrap)
            }
            _ => Ok(()), // devices and sockets mean nothing in there
        }
    })?;
    archive.finish().map(drop)
}
