//! Trees as tar streams, for engines that import a root file system that way, and the fingerprint of a tree.
//!
//! Walks by descriptors, so that a tree that changes meanwhile cannot lead out of itself; stays on one file system; leaves
//! out devices and sockets. Never follows a link.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ::tar::{Builder, EntryType, Header};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use sha2::{Digest, Sha256};

use crate::backends::containers::RootEntry;

/// How deep a tree may be: each level keeps a descriptor open.
const DEEPEST: usize = 200;

/// Whose an entry is, and what may be done with it.
fn header(kind: EntryType, mode: u32, (uid, gid): (u32, u32), mtime: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(uid.into());
    header.set_gid(gid.into());
    header.set_mtime(mtime);
    header.set_size(0);
    header
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was read")
}

/// A made root.
pub(super) fn made(entries: &[RootEntry]) -> io::Result<Vec<u8>> {
    // Mode, and what a link says; a file has neither.
    let mut tree: BTreeMap<String, (EntryType, u32, Option<&str>)> = BTreeMap::new();
    let relative = |path: &str| path.trim_matches('/').to_owned();
    let directory = |mode| (EntryType::Directory, mode, None);
    for entry in entries {
        match entry {
            RootEntry::Directory { path, mode } => tree.insert(relative(path), directory(*mode)),
            RootEntry::Link { path, says } => tree.insert(relative(path), (EntryType::Symlink, 0o777, Some(says))),
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
    let mut archive = Builder::new(Vec::new());
    for (path, (kind, mode, says)) in &tree {
        let mut header = header(*kind, *mode, (0, 0), 0);
        match says {
            Some(says) => archive.append_link(&mut header, path, says)?,
            None => archive.append_data(&mut header, path, io::empty())?,
        }
    }
    archive.into_inner()
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
    io::Error::new(error.kind(), format!("{}: {error}", cofferdam_policy::text::escape(path)))
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
    let mut archive = Builder::new(to);
    let mut linked: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    walk(root, &mut |met| {
        let stat = met.stat;
        let path = Path::new(OsStr::from_bytes(met.path));
        let owner = if own { (0, 0) } else { (stat.st_uid, stat.st_gid) };
        let of = |kind| header(kind, stat.st_mode & 0o7777, owner, stat.st_mtime.max(0).cast_unsigned());
        let wrap = |error| with_path(met.path, error);
        if met.kind != FileType::Directory && stat.st_nlink > 1 {
            if let Some(first) = linked.get(&(stat.st_dev, stat.st_ino)) {
                return archive.append_link(&mut of(EntryType::Link), path, OsStr::from_bytes(first)).map_err(wrap);
            }
            linked.insert((stat.st_dev, stat.st_ino), met.path.to_vec());
        }
        match met.kind {
            FileType::Directory => archive.append_data(&mut of(EntryType::Directory), path, io::empty()).map_err(wrap),
            FileType::Symlink => {
                let says = rustix::fs::readlinkat(met.parent, met.name, Vec::new())?;
                let says = OsStr::from_bytes(says.as_bytes());
                archive.append_link(&mut of(EntryType::Symlink), path, says).map_err(wrap)
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = rustix::fs::openat(met.parent, met.name, flags, Mode::empty())
                    .map_err(|error| wrap(error.into()))?;
                let opened = rustix::fs::fstat(&file)?;
                if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) {
                    return Err(wrap(changed()));
                }
                let size = stat.st_size.cast_unsigned();
                let mut header = of(EntryType::Regular);
                header.set_size(size);
                let mut file = std::fs::File::from(file);
                let mut exact = Exact { from: (&mut file).take(size), left: size };
                archive.append_data(&mut header, path, &mut exact).map_err(wrap)?;
                // Neither shorter nor longer than its header says.
                if exact.left != 0 || file.read(&mut [0])? != 0 {
                    return Err(wrap(changed()));
                }
                Ok(())
            }
            // Devices and sockets mean nothing in there, and a FIFO leads nowhere: but an engine that looks for its users in one
            // waits for ever for whoever writes into it.
            _ => Ok(()),
        }
    })?;
    archive.into_inner().and_then(|mut to| to.flush())
}

/// Counts what is read.
struct Exact<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// What an archive holds: path, kind, mode, what a link says or a file holds.
    fn list(bytes: &[u8]) -> BTreeMap<String, (EntryType, u32, String)> {
        let mut archive = ::tar::Archive::new(bytes);
        let read = |mut entry: ::tar::Entry<'_, &[u8]>| {
            let path = entry.path().unwrap().display().to_string();
            let mut says = entry.link_name().unwrap().map(|link| link.display().to_string()).unwrap_or_default();
            entry.read_to_string(&mut says).unwrap();
            let header = entry.header();
            (path.trim_end_matches('/').to_owned(), (header.entry_type(), header.mode().unwrap(), says))
        };
        archive.entries().unwrap().map(|entry| read(entry.unwrap())).collect()
    }

    fn small() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/file"), "text").unwrap();
        std::fs::hard_link(dir.path().join("a/file"), dir.path().join("a/same")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
        dir
    }

    #[test]
    fn a_tree_is_written_with_its_links_and_not_through_them() {
        let dir = small();
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(150));
        std::fs::create_dir(dir.path().join("d".repeat(90))).unwrap();
        std::fs::write(dir.path().join(&long), "far").unwrap();
        let socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("fifo"), FileType::Fifo, mode, 0).unwrap();
        let mut bytes = Vec::new();
        tree(dir.path(), false, &mut bytes).unwrap();
        drop(socket);
        let list = list(&bytes);
        assert_eq!(list["a/file"].2, "text");
        assert_eq!((list["a/same"].0, list["a/same"].2.as_str()), (EntryType::Link, "a/file"));
        assert_eq!((list["out"].0, list["out"].2.as_str()), (EntryType::Symlink, "/etc"));
        assert_eq!(list[&long].2, "far");
        assert!(!list.keys().any(|path| path.starts_with("out/") || path == "socket" || path == "fifo"), "{list:?}");
        assert_eq!(list["a/b"].0, EntryType::Directory);
    }

    #[test]
    fn a_fingerprint_is_another_after_every_change_and_the_same_without() {
        let dir = small();
        let print = || fingerprint(dir.path()).unwrap().hash;
        let mut seen = vec![print()];
        assert_eq!(seen[0], print());
        let at = |name: &str| dir.path().join(name);
        let changes: [&dyn Fn(); 6] = [
            &|| std::fs::write(at("a/file"), "TEXT").unwrap(),
            &|| std::fs::rename(at("a/b"), at("a/c")).unwrap(),
            &|| std::fs::set_permissions(at("a/c"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap(),
            &|| std::fs::remove_file(at("out")).unwrap(),
            &|| std::os::unix::fs::symlink("/usr", at("out")).unwrap(),
            &|| std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap(),
        ];
        for (index, change) in changes.iter().enumerate() {
            std::thread::sleep(std::time::Duration::from_millis(20)); // the clock of inodes ticks slowly
            change();
            let now = print();
            assert!(!seen.contains(&now), "change {index}");
            seen.push(now);
        }
    }

    #[test]
    fn a_made_root_is_the_same_bytes_whatever_the_order_and_has_every_parent() {
        let entries = [
            RootEntry::Link { path: "/bin".into(), says: "usr/bin".into() },
            RootEntry::Directory { path: "/usr/bin".into(), mode: 0o711 },
        ];
        let bytes = made(&entries).unwrap();
        let reversed: Vec<RootEntry> = entries.iter().rev().cloned().collect();
        assert_eq!(bytes, made(&reversed).unwrap());
        let list = list(&bytes);
        assert_eq!(list.keys().collect::<Vec<_>>(), ["bin", "usr", "usr/bin"]);
        assert_eq!(list["usr/bin"].1, 0o711);
        assert_eq!((list["bin"].0, list["bin"].2.as_str()), (EntryType::Symlink, "usr/bin"));
    }

    #[test]
    fn a_file_that_grows_meanwhile_is_no_archive() {
        let dir = small();
        let grows = dir.path().join("a/file");
        /// Writes to the file once the first bytes of it have gone out.
        struct Meddles<'a>(&'a Path, bool);
        impl Write for Meddles<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if !self.1 && bytes.windows(4).any(|four| four == b"text") {
                    self.1 = true;
                    std::fs::write(self.0, "text and more")?;
                }
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = tree(dir.path(), false, Meddles(&grows, false)).unwrap_err();
        assert!(error.to_string().contains("changed while it was read"), "{error}");
    }
}
