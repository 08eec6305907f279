//! What a copy-on-write layer holds after the tree is dead: which files were added, changed or deleted, and keeping them.
//!
//! The program wrote the layer, so nothing in it is trusted: it is walked by descriptor, no symbolic link is followed,
//! and only regular files and directories are kept.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, statat};

use crate::outcome::Change;
use crate::view::join;

/// Deepest directory that is walked.
const DEPTH: usize = 256;

struct Walk<'a> {
    source: &'a str,
    target: &'a str,
    changes: Vec<Change>,
    keep: Option<OwnedFd>,
    skipped: Vec<String>,
}

/// What a layer changed, and what was left out of what was kept.
pub struct Changes {
    /// Sorted by path.
    pub list: Vec<Change>,
    /// Paths that were not kept: links, FIFOs, sockets, devices, names that are not UTF-8.
    pub skipped: Vec<String>,
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
    let mut w = Walk { source, target, changes: Vec::new(), keep, skipped: Vec::new() };
    let keep = w.keep.take();
    w.walk(upper.as_fd(), keep.as_ref().map(AsFd::as_fd), "", 0)?;
    w.changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Changes { list: w.changes, skipped: w.skipped })
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
        for name in entries {
            let Ok(name) = String::from_utf8(name) else {
                self.skipped.push(join(self.target, &join(rel, "(a name that is not UTF-8)")));
                continue;
            };
            let below = if rel.is_empty() { name.clone() } else { format!("{rel}/{name}") };
            self.entry(dir, keep, &name, &below, depth)?;
        }
        Ok(())
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
                self.changes.push(Change { kind: 'D', path });
            }
            return Ok(());
        }
        match kind {
            FileType::Directory => {
                if existed.as_ref().is_none_or(|m| !m.is_dir()) {
                    self.changes.push(Change { kind: 'A', path: path.clone() });
                }
                if depth >= DEPTH {
                    self.skipped.push(path);
                    return Ok(());
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let inner =
                    openat2(dir, name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?;
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
                self.changes.push(Change { kind: if existed.is_some() { 'M' } else { 'A' }, path });
                match keep {
                    // A kept link would lead whoever reads the kept files to where the program wanted.
                    Some(_) if kind == FileType::Symlink => {
                        self.skipped.push(join(self.target, rel));
                        Ok(())
                    }
                    Some(k) => copy(dir, k, name, st.st_mode),
                    None => Ok(()),
                }
            }
            _ => {
                self.changes.push(Change { kind: 'A', path: path.clone() });
                self.skipped.push(path);
                Ok(())
            }
        }
    }
}

/// Copies a regular file; never its setuid, setgid or sticky bits.
fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &str, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let source = openat2(from, name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let target = openat(to, name, flags, Mode::from_raw_mode(mode & 0o777))?;
    io::copy(&mut std::fs::File::from(source), &mut std::fs::File::from(target))?;
    Ok(())
}
