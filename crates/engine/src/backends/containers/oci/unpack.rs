//! Tarballs, unpacked into a root of ours: their untrusted contents stay inside it and get no power from it.
//!
//! Every entry is made by descriptor, below its directory, which is reached without following any link. Refused:
//! absolute paths and `..`, an entry that goes through a link or a file, a hard link to what is no file of the
//! tarball's, more than the bounds. Left out: devices, FIFOs, sockets, whiteouts of layers, extended attributes,
//! owners, setuid and setgid bits. Owners say nothing here: no one inside can write the root.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tar::EntryType;

use super::cache::{CacheLease, RootfsCache, failed, gone, private};
use super::image_store::Images;
use crate::backends::containers::Progress;
use crate::backends::containers::archive;
use crate::backends::containers::archive::{LARGEST, plain};
use crate::backends::containers::content::{hex, settle, stamp};
use crate::failure::{FailedStep, Failure};
use cofferdam_policy::text::escape;

/// How much a tarball may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnpackLimits {
    /// Bytes of all files together.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of one entry's names and attributes.
    pub headers: u64,
}

/// What is enough for every image that people work with.
const LIMITS: UnpackLimits = UnpackLimits { bytes: LARGEST, entries: 2_000_000, headers: 1 << 20 };
/// How often it is told how far it is, in bytes.
const STEP: u64 = 4 << 20;
/// Where it is kept which file held what.
const SEEN: &str = "tarballs";
/// How many of these are kept.
const MOST_SEEN: usize = 256;
/// Nobody writes one for so long.
const UNFINISHED: Duration = Duration::from_secs(600);

/// The root in a tarball on this host, unpacked now or before.
///
/// # Errors
/// It cannot be read, is no tarball of a root, or holds what is refused.
pub(super) fn tarball(cache: &RootfsCache, path: &Path, told: &dyn Fn(Progress)) -> Result<CacheLease, Failure> {
    let unreadable = |e: &dyn std::fmt::Display| {
        Failure::new(FailedStep::Image, format!("cannot read {}: {e}", path.display()))
            .hint("name a tarball that this user can read")
    };
    // Without waiting for whoever writes into a FIFO of that name.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|e| unreadable(&io::Error::from(e)))?);
    let before = file.metadata().map_err(|e| unreadable(&e))?;
    if !before.is_file() {
        return Err(unreadable(&"it is not a file"));
    }
    if before.len() > LARGEST {
        let why = archive::too_large(LARGEST);
        return Err(Failure::new(FailedStep::Image, format!("cannot use {}: {why}", path.display()))
            .hint("name what holds less"));
    }
    let seen = cache.seen(&before);
    if let Some(key) = std::fs::read_to_string(&seen).ok().filter(|key| key.starts_with("tar-"))
        && let Some(held) = cache.get(key.trim())?
    {
        return Ok(held);
    }
    settle((before.ctime(), before.ctime_nsec()));
    let mut key = String::new();
    let held = cache.make(|rootfs| {
        let what = format!("unpacking {}", path.display());
        let whole = Whole::new(&file, &what, Some(before.len()), told);
        let unpacked = unpack(Box::new(plain(whole.clone(), path)?), rootfs, LIMITS, &path.display().to_string())?;
        let hash = whole.finish().map_err(|e| unreadable(&e))?;
        let after = file.metadata().map_err(|e| unreadable(&e))?;
        if stamp(&before) != stamp(&after) {
            return Err(Failure::new(FailedStep::Image, format!("{} was changed while it was read", path.display()))
                .hint("run it again"));
        }
        key = format!("tar-{hash}");
        Ok((key.clone(), unpacked))
    })?;
    cache.remember(&seen, &key)?;
    Ok(held)
}

/// The root of an image in an engine's store.
///
/// # Errors
/// It cannot be had, or holds what is refused.
pub(super) fn image(
    cache: &RootfsCache,
    images: &dyn Images,
    id: &str,
    reference: &str,
    told: &dyn Fn(Progress),
) -> Result<CacheLease, Failure> {
    cache.make(|rootfs| {
        let what = format!("unpacking {reference}");
        let whole = Whole::new(images.export(id)?, &what, None, told);
        let unpacked = unpack(Box::new(whole), rootfs, LIMITS, reference)?;
        Ok((format!("image-{}", id.trim_start_matches("sha256:")), unpacked))
    })
}

impl RootfsCache {
    fn seen(&self, file: &std::fs::Metadata) -> std::path::PathBuf {
        self.place().join(SEEN).join(stamp(file))
    }

    fn remember(&self, seen: &Path, key: &str) -> Result<(), Failure> {
        let directory = self.place().join(SEEN);
        private(&directory)?;
        if let Ok(entries) = std::fs::read_dir(&directory) {
            // What another run is about to rename is not in its way for long.
            let young = |entry: &std::fs::DirEntry| {
                let written = entry.metadata().and_then(|m| m.modified());
                written.map_or(true, |at| at.elapsed().unwrap_or_default() < UNFINISHED)
            };
            let begun = |entry: &std::fs::DirEntry| entry.file_name().as_bytes().starts_with(b".");
            let all: Vec<_> = entries.flatten().filter(|entry| !begun(entry) || !young(entry)).collect();
            for old in all.iter().take(all.len().saturating_sub(MOST_SEEN)) {
                // Another run may have been faster.
                std::fs::remove_file(old.path()).or_else(gone).map_err(|e| failed("cannot remove", &old.path(), &e))?;
            }
        }
        let new = directory.join(format!(".{}", cofferdam_audit::random::uuid()));
        std::fs::write(&new, key)
            .and_then(|()| std::fs::rename(&new, seen))
            .map_err(|e| failed("cannot write", seen, &e))
    }
}

/// A source that is hashed as it is read, and told of.
struct Whole<'a, R> {
    shared: Rc<RefCell<HashedSource<R>>>,
    what: &'a str,
    total: Option<u64>,
    told: &'a dyn Fn(Progress),
}

struct HashedSource<R> {
    source: R,
    hash: Sha256,
    done: u64,
    said: u64,
}

impl<R> Clone for Whole<'_, R> {
    fn clone(&self) -> Self {
        Whole { shared: Rc::clone(&self.shared), ..*self }
    }
}

impl<'a, R: Read> Whole<'a, R> {
    fn new(source: R, what: &'a str, total: Option<u64>, told: &'a dyn Fn(Progress)) -> Whole<'a, R> {
        let shared = HashedSource { source, hash: Sha256::new(), done: 0, said: 0 };
        Whole { shared: Rc::new(RefCell::new(shared)), what, total, told }
    }

    /// Reads what is left and says the hash of it all.
    fn finish(mut self) -> io::Result<String> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(hex(&std::mem::take(&mut self.shared.borrow_mut().hash).finalize()))
    }
}

impl<R: Read> Read for Whole<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut shared = self.shared.borrow_mut();
        let n = shared.source.read(buf)?;
        shared.hash.update(&buf[..n]);
        shared.done += n as u64;
        if shared.done - shared.said >= STEP || (n == 0 && shared.done != shared.said) {
            shared.said = shared.done;
            (self.told)(Progress { what: self.what.to_owned(), done: shared.done, total: self.total });
        }
        Ok(n)
    }
}

/// Stops reading when a budget is used up: what the tar library reads on its own account, into memory, is bounded by it.
struct Fuse<R> {
    source: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Fuse<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left.get()).unwrap_or(usize::MAX);
        if left == 0 && !buf.is_empty() {
            return Err(io::Error::other("an entry's header is too long"));
        }
        let most = buf.len().min(left);
        let n = self.source.read(&mut buf[..most])?;
        self.left.set(self.left.get().saturating_sub(n as u64));
        Ok(n)
    }
}

struct Unpacker<'a> {
    root: OwnedFd,
    limits: UnpackLimits,
    what: &'a str,
    bytes: u64,
    entries: u64,
    /// The directory of the entry before, which mostly is that of the next.
    last: Option<(Vec<u8>, OwnedFd)>,
    /// Names at the top that tell a root from an archive of layers.
    layers: bool,
    system: bool,
}

/// Unpacks into an empty directory of ours; how many bytes there are now. `what` names the tarball in errors.
fn unpack(source: Box<dyn Read + '_>, rootfs: &Path, limits: UnpackLimits, what: &str) -> Result<u64, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, rootfs, flags, Mode::empty()).map_err(|e| failed("cannot open", rootfs, &e))?;
    let mut unpacker = Unpacker { root, limits, what, bytes: 0, entries: 0, last: None, layers: false, system: false };
    let broken = |e: io::Error| {
        let message = format!("{what} cannot be unpacked: {}", escape(e.to_string().as_bytes()));
        Failure::new(FailedStep::Image, message).hint("make it with tar -C DIR -cf root.tar . or docker export")
    };
    let left = Rc::new(Cell::new(u64::MAX));
    let mut archive = tar::Archive::new(Fuse { source, left: Rc::clone(&left) });
    let mut entries = archive.entries().map_err(broken)?;
    loop {
        left.set(limits.headers);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(broken)?;
        left.set(u64::MAX);
        unpacker.entry(&mut entry)?;
        // Whatever was not wanted of it.
        let rest = io::copy(&mut (&mut entry).take(limits.bytes), &mut io::sink()).map_err(broken)?;
        unpacker.bytes = unpacker.bytes.saturating_add(rest);
    }
    let hint = "a root is what `docker export CONTAINER` gives (docker create makes one), or tar -C DIR -cf root.tar .";
    if unpacker.layers && !unpacker.system {
        return Err(Failure::new(
            FailedStep::Image,
            format!("{what} is an archive of an image's layers, and not a root"),
        )
        .hint(hint));
    }
    if unpacker.entries == 0 {
        return Err(Failure::new(FailedStep::Image, format!("{what} holds no files")).hint(hint));
    }
    Ok(unpacker.bytes)
}

impl Unpacker<'_> {
    fn refuse(&self, path: &[u8], why: &str) -> Failure {
        let message = format!("{} in {}: {why}", escape(path), self.what);
        Failure::new(FailedStep::Image, message)
            .hint("it is not unpacked; make it with tar -C DIR -cf root.tar . or docker export")
    }

    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<(), Failure> {
        let path = entry.path_bytes().into_owned();
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(self.refuse(&path, &format!("there are more than {} entries", self.limits.entries)));
        }
        let parts = self.parts(&path)?;
        let Some((name, above)) = parts.split_last() else { return Ok(()) }; // the root itself
        if name.starts_with(b".wh.") {
            return Ok(());
        }
        self.layers |= above.is_empty() && matches!(*name, b"manifest.json" | b"oci-layout");
        self.system |= matches!(parts[0], b"bin" | b"etc" | b"usr" | b"lib" | b"sbin");
        let mode = entry.header().mode().unwrap_or(0o644);
        let fail = |this: &Self, e: Errno| match e {
            Errno::LOOP | Errno::NOTDIR => this.refuse(&path, "it goes through a link or a file"),
            e => this.refuse(&path, &io::Error::from(e).to_string()),
        };
        match kind {
            EntryType::Directory => {
                let mode = Mode::from_raw_mode(mode & 0o1777 | 0o700); // ours to remove again
                self.directory(&parts).and_then(|()| {
                    let (above, name) = (self.above(above)?, OsStr::from_bytes(name));
                    rustix::fs::chmodat(above, name, mode, AtFlags::empty())
                })
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                return self.file(entry, &path, above, name, mode);
            }
            EntryType::Symlink => {
                let says = entry.link_name_bytes().unwrap_or_default().into_owned();
                self.clear(above, name).and_then(|()| {
                    rustix::fs::symlinkat(OsStr::from_bytes(&says), self.above(above)?, OsStr::from_bytes(name))
                })
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let from = self.parts(&target)?;
                let Some((old, old_above)) = from.split_last() else {
                    return Err(self.refuse(&path, "it links to a directory"));
                };
                let linked = self.existing(&from).and_then(|kind| {
                    if kind != rustix::fs::FileType::RegularFile { Err(Errno::ISDIR) } else { Ok(()) }
                });
                if linked.is_err() {
                    return Err(self.refuse(&path, "it links to what is no file of this tarball's"));
                }
                if from == parts {
                    return Ok(());
                }
                self.clear(above, name).and_then(|()| {
                    let from = self.above(old_above)?.try_clone().map_err(|_| Errno::MFILE)?;
                    let (old, name) = (OsStr::from_bytes(old), OsStr::from_bytes(name));
                    rustix::fs::linkat(from, old, self.above(above)?, name, AtFlags::empty())
                })
            }
            // Devices are the runtime's to make, and a FIFO or a socket in a read-only root leads nowhere.
            _ => Ok(()),
        }
        .map_err(|e| fail(self, e))
    }

    fn file<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        path: &[u8],
        above: &[&[u8]],
        name: &[u8],
        mode: u32,
    ) -> Result<(), Failure> {
        let size = entry.size();
        if size > self.limits.bytes.saturating_sub(self.bytes) {
            let why = format!("{size} bytes more than the {} that a root may have", self.limits.bytes);
            return Err(self.refuse(path, &why));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = self.clear(above, name).and_then(|()| {
            rustix::fs::openat(self.above(above)?, OsStr::from_bytes(name), flags, Mode::RUSR | Mode::WUSR)
        });
        let mut file = File::from(made.map_err(|e| match e {
            Errno::LOOP | Errno::NOTDIR => self.refuse(path, "it goes through a link or a file"),
            e => self.refuse(path, &io::Error::from(e).to_string()),
        })?);
        let written = io::copy(entry, &mut file).map_err(|e| self.refuse(path, &e.to_string()))?;
        if written != size {
            return Err(self.refuse(path, "the tarball ends in the middle of it"));
        }
        self.bytes += written;
        let mode = Mode::from_raw_mode(mode & 0o777 | 0o400);
        rustix::fs::fchmod(&file, mode).map_err(|e| self.refuse(path, &io::Error::from(e).to_string()))
    }

    /// The names of a path, one below the other.
    fn parts<'p>(&self, path: &'p [u8]) -> Result<Vec<&'p [u8]>, Failure> {
        if path.starts_with(b"/") {
            return Err(self.refuse(path, "the path is absolute"));
        }
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        if parts.contains(&b"..".as_slice()) {
            return Err(self.refuse(path, "the path leads upwards"));
        }
        if path.len() > 4095 || parts.len() > 256 {
            return Err(self.refuse(path, "the path is too long"));
        }
        Ok(parts)
    }

    fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        loop {
            match rustix::fs::openat2(&self.root, OsStr::from_bytes(path), flags | OFlags::CLOEXEC, Mode::empty(), how)
            {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
    }

    fn existing(&self, parts: &[&[u8]]) -> Result<rustix::fs::FileType, Errno> {
        // A link as the last name is opened itself, and is no file.
        let found = self.open(&parts.join(&b'/'), OFlags::PATH | OFlags::NOFOLLOW)?;
        Ok(rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode))
    }

    /// The directory with these names, made where it is missing.
    fn above(&mut self, parts: &[&[u8]]) -> Result<&OwnedFd, Errno> {
        let path = parts.join(&b'/');
        if self.last.as_ref().is_none_or(|(last, _)| *last != path) {
            let found = self.reach(parts)?;
            self.last = Some((path, found));
        }
        self.last.as_ref().map(|(_, found)| found).ok_or(Errno::NOENT)
    }

    fn reach(&self, parts: &[&[u8]]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        if parts.is_empty() {
            return self.open(b".", flags);
        }
        match self.open(&parts.join(&b'/'), flags) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let mut at = self.open(b".", flags)?;
        for n in 1..=parts.len() {
            let path = parts[..n].join(&b'/');
            at = match self.open(&path, flags) {
                Err(Errno::NOENT) => {
                    let name = OsStr::from_bytes(parts[n - 1]);
                    rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o700))?;
                    rustix::fs::chmodat(&at, name, Mode::from_raw_mode(0o755), AtFlags::empty())?;
                    self.open(&path, flags)?
                }
                other => other?,
            };
        }
        Ok(at)
    }

    fn directory(&mut self, parts: &[&[u8]]) -> Result<(), Errno> {
        self.reach(parts).map(drop)
    }

    /// Makes room for an entry that comes again: the last one counts, as it does for tar(1). A directory stays.
    fn clear(&mut self, above: &[&[u8]], name: &[u8]) -> Result<(), Errno> {
        match rustix::fs::unlinkat(self.above(above)?, OsStr::from_bytes(name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests;
