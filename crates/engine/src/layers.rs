//! What a copy-on-write layer holds after the tree is dead: which files were added, changed or deleted, and keeping them.
//!
//! The program wrote the layer, so nothing in it is trusted: it is walked by descriptor, no symbolic link is followed,
//! and only regular files and directories are kept. What is kept takes no more room than the layer did: holes stay holes
//! and hard links stay hard links. What is listed is bounded as well, and a mode that forbids its owner to look does not
//! hide anything.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, SeekFrom, chmodat, fgetxattr, fstatvfs, linkat, mkdirat,
    openat, openat2, seek, statat,
};
use rustix::io::Errno;

use crate::outcome::Change;
use crate::view::join;

/// The name under which one of several mounts' changes are kept: its target, in a form that no other target has.
pub fn directory(target: &str) -> String {
    target.trim_start_matches('/').replace('%', "%25").replace('/', "%2F")
}

/// Deepest directory that is walked.
const DEPTH: usize = 256;
/// Bytes of paths that are listed: the program chooses how long they are and how many.
const LISTED: usize = 16 << 20;

struct Walk<'a> {
    source: &'a str,
    target: &'a str,
    changes: Vec<Change>,
    keep: Option<BorrowedFd<'a>>,
    /// Where a file with several names was kept first.
    kept: HashMap<u64, String>,
    /// Bytes that may still be written.
    room: u64,
    skipped: Vec<String>,
    listed: usize,
    unlisted: u64,
}

/// What a layer changed, and what was left out of what was kept.
pub struct Changes {
    /// Sorted by path.
    pub list: Vec<Change>,
    /// Paths that were not kept: links, FIFOs, sockets, devices, names that are not UTF-8.
    pub skipped: Vec<String>,
    /// Changes and skipped entries beyond what is listed.
    pub unlisted: u64,
}

/// Reads the layer below `root`; `keep` is a new directory for the changed files.
///
/// # Errors
/// The layer cannot be read or the copies cannot be written.
pub fn changes(root: BorrowedFd<'_>, source: &str, target: &str, keep: Option<&Path>) -> io::Result<Changes> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let upper = openat(root, "upper", flags, Mode::empty())?;
    let keep = match keep {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            Some(openat(CWD, dir, flags, Mode::empty())?)
        }
        None => None,
    };
    let room = fstatvfs(root)?;
    let keep = keep.as_ref().map(AsFd::as_fd);
    let mut w = Walk {
        source,
        target,
        changes: Vec::new(),
        keep,
        kept: HashMap::new(),
        room: room.f_blocks.saturating_sub(room.f_bfree).saturating_mul(room.f_frsize),
        skipped: Vec::new(),
        listed: 0,
        unlisted: 0,
    };
    w.walk(upper.as_fd(), keep, "", 0)?;
    w.changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Changes { list: w.changes, skipped: w.skipped, unlisted: w.unlisted })
}

/// Opens an entry without following anything. Whoever ran the program owns it and may have been left without the right to
/// look; the tree is dead, so giving that right back changes nothing.
fn open_entry(dir: BorrowedFd<'_>, name: &str, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(dir, name, flags, Mode::empty(), how) {
        Err(Errno::ACCESS) => {
            chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
            Ok(openat2(dir, name, flags, Mode::empty(), how)?)
        }
        other => Ok(other?),
    }
}

/// Whether a directory of the layer replaces the one below it: overlayfs marks it so.
fn opaque(dir: BorrowedFd<'_>) -> bool {
    let mut value = [0u8; 4];
    matches!(fgetxattr(dir, "user.overlay.opaque", &mut value[..]), Ok(1) if value[0] == b'y')
}

impl Walk<'_> {
    fn walk(&mut self, dir: BorrowedFd<'_>, keep: Option<BorrowedFd<'_>>, rel: &str, depth: usize) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                entries.push(name.to_vec());
            }
        }
        entries.sort();
        if opaque(dir) {
            self.replaced(rel, &entries);
        }
        for name in entries {
            let Ok(name) = String::from_utf8(name) else {
                self.skip(join(self.target, &join(rel, "(a name that is not UTF-8)")));
                continue;
            };
            let below = if rel.is_empty() { name.clone() } else { format!("{rel}/{name}") };
            self.entry(dir, keep, &name, &below, depth)?;
        }
        Ok(())
    }

    fn change(&mut self, kind: char, path: String) {
        if self.has_room(&path) {
            self.changes.push(Change { kind, path });
        }
    }

    fn skip(&mut self, path: String) {
        if self.has_room(&path) {
            self.skipped.push(path);
        }
    }

    fn has_room(&mut self, path: &str) -> bool {
        self.listed = self.listed.saturating_add(path.len());
        self.unlisted += u64::from(self.listed > LISTED);
        self.listed <= LISTED
    }

    /// What a directory held before another one took its place is gone.
    fn replaced(&mut self, rel: &str, now: &[Vec<u8>]) {
        use std::os::unix::ffi::OsStrExt;
        let now: HashSet<&[u8]> = now.iter().map(Vec::as_slice).collect();
        for entry in std::fs::read_dir(Path::new(self.source).join(rel)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !now.contains(name.as_bytes())
                && let Some(name) = name.to_str()
            {
                self.change('D', join(self.target, &join(rel, name)));
            }
        }
    }

    fn entry(
        &mut self,
        dir: BorrowedFd<'_>,
        keep: Option<BorrowedFd<'_>>,
        name: &str,
        rel: &str,
        depth: usize,
    ) -> io::Result<()> {
        let st = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(st.st_mode);
        let existed = std::fs::symlink_metadata(Path::new(self.source).join(rel)).ok();
        let path = join(self.target, rel);
        let whiteout = kind == FileType::CharacterDevice && st.st_rdev == 0;
        if whiteout {
            if existed.is_some() {
                self.change('D', path);
            }
            return Ok(());
        }
        match kind {
            FileType::Directory => {
                if existed.as_ref().is_none_or(|m| !m.is_dir()) {
                    self.change('A', path.clone());
                }
                if depth >= DEPTH {
                    self.skip(path);
                    return Ok(());
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let inner = open_entry(dir, name, flags, 0o700)?;
                let kept = match keep {
                    Some(k) => {
                        match mkdirat(k, name, Mode::from_raw_mode(0o755)) {
                            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                            Err(e) => return Err(e.into()),
                        }
                        Some(openat(k, name, flags, Mode::empty())?)
                    }
                    None => None,
                };
                self.walk(inner.as_fd(), kept.as_ref().map(AsFd::as_fd), rel, depth + 1)
            }
            FileType::RegularFile | FileType::Symlink => {
                self.change(if existed.is_some() { 'M' } else { 'A' }, path.clone());
                match keep {
                    // A kept link would lead whoever reads the kept files to where the program wanted.
                    Some(_) if kind == FileType::Symlink => {
                        self.skip(path);
                        Ok(())
                    }
                    Some(k) => {
                        if !self.keep_file(dir, k, name, rel, &st)? {
                            self.skip(path);
                        }
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            _ => {
                self.change('A', path.clone());
                self.skip(path);
                Ok(())
            }
        }
    }

    /// Keeps a regular file; never its setuid, setgid or sticky bits. False when there is no room for it.
    fn keep_file(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &str,
        rel: &str,
        st: &rustix::fs::Stat,
    ) -> io::Result<bool> {
        if st.st_nlink > 1 {
            if let (Some(first), Some(root)) = (self.kept.get(&st.st_ino), self.keep) {
                return Ok(link_again(root, first, to, name).is_ok());
            }
            self.kept.insert(st.st_ino, rel.to_owned());
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let source = File::from(open_entry(from, name, flags, 0o600)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let target = File::from(openat(to, name, flags, Mode::from_raw_mode(st.st_mode & 0o777))?);
        let mut buf = vec![0u8; 1 << 16];
        let mut at = 0u64;
        loop {
            let start = match seek(&source, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break, // only a hole is left
                Err(e) => return Err(e.into()),
            };
            let end = seek(&source, SeekFrom::Hole(start))?;
            let Some(room) = self.room.checked_sub(end - start) else { return Ok(false) };
            self.room = room;
            at = start;
            while at < end {
                let want = usize::try_from(end - at).unwrap_or(buf.len()).min(buf.len());
                let n = source.read_at(&mut buf[..want], at)?;
                if n == 0 {
                    break;
                }
                target.write_all_at(&buf[..n], at)?;
                at += n as u64;
            }
            at = end;
        }
        target.set_len(u64::try_from(st.st_size).unwrap_or(0))?;
        Ok(true)
    }
}

/// One more name for a file that was kept already.
fn link_again(root: BorrowedFd<'_>, first: &str, to: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let (dir, old) = first.rsplit_once('/').unwrap_or((".", first));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat2(root, dir, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?;
    Ok(linkat(&dir, old, to, name, AtFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::directory;

    #[test]
    fn no_two_targets_share_a_kept_directory() {
        assert_eq!(directory("/a/b"), "a%2Fb");
        assert_ne!(directory("/a/b"), directory("/a%2Fb"));
        assert_ne!(directory("/a/b"), directory("/a_b"));
    }
}
