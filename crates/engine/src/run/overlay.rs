//! What a copy-on-write layer holds after the tree is dead: which files were added, changed or deleted, and keeping them.
//!
//! The program wrote the layer, so nothing in it is trusted: it is walked by descriptor, no symbolic link is followed,
//! and only regular files, directories and the text of symbolic links are kept. What is kept takes no more room than the
//! layer did: holes stay holes and hard links stay hard links. What is listed is bounded as well, and a mode that forbids
//! its owner to look does not hide anything. A failure to keep never shortens the list of what changed.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, SeekFrom, chmodat, fgetxattr, fstatvfs, linkat, mkdirat,
    openat, openat2, readlinkat, seek, statat, symlinkat,
};
use rustix::io::Errno;

use crate::outcome::FileChange;
use crate::plan::mount_table::join;

/// The name under which one of several mounts' changes are kept: its target, in a form that no other target has.
pub(crate) fn directory(target: &str) -> String {
    target.trim_start_matches('/').replace('%', "%25").replace('/', "%2F")
}

/// Deepest directory that is walked.
const DEPTH: usize = 256;
/// Bytes of JSON that list a layer's changes: the program chooses how long paths are and how many.
const LISTED: usize = 4 << 20;
/// What a change takes in JSON besides its path.
const EACH: usize = 24;
/// Entries of a layer that are looked at while its program runs.
const LOOKED_AT: u64 = 50_000;

struct OverlayWalk<'a> {
    source: &'a str,
    target: &'a str,
    changes: Vec<FileChange>,
    /// Where changes are kept: open, and by name for people.
    keep: Option<(BorrowedFd<'a>, &'a Path)>,
    /// Why nothing more is kept.
    failure: Option<String>,
    /// Where a file with several names was kept first.
    kept: HashMap<u64, String>,
    /// Bytes that may still be written.
    room: u64,
    skipped: Vec<Skipped>,
    /// Entries that are not kept and that no room is left to name.
    unnamed: u64,
    /// Whether directories were too deep to be looked into.
    deep: bool,
    listed: usize,
    omitted: u64,
    /// Entries that may still be looked at; `None` where the tree is dead, and all are.
    left: Option<u64>,
}

/// What a layer changed, and what was left out of what was kept.
pub(crate) struct LayerChanges {
    /// Sorted by path.
    pub list: Vec<FileChange>,
    /// What was left out of what was kept.
    pub skipped: Vec<Skipped>,
    /// What the destination refused, with its path; from there on nothing was kept.
    pub failure: Option<String>,
    /// How many more entries are not kept than `skipped` has room for.
    pub unnamed: u64,
    /// Whether directories were too deep to be looked into: then `omitted` is a lower bound.
    pub deep: bool,
    /// Changes beyond what is listed; of a layer whose program still runs, at least so many.
    pub omitted: u64,
}

/// An entry that is not kept.
pub(crate) struct Skipped {
    /// Path inside.
    pub path: String,
    /// What it is.
    pub why: &'static str,
}

/// Names what was not kept of a layer, of which `unnamed` more have no name; the program chose how many there are.
pub(crate) fn unkept(skipped: &[Skipped], unnamed: u64) -> String {
    const NAMED: usize = 256;
    let name = |s: &Skipped| format!("{} ({})", cofferdam_policy::text::escape(s.path.as_bytes()), s.why);
    let mut text = format!("not kept: {}", skipped.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", "));
    if skipped.is_empty() {
        return format!("not kept: {unnamed} entries, whose names are too long to be listed");
    }
    let more = unnamed.saturating_add(skipped.len().saturating_sub(NAMED) as u64);
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

/// Says how many changes are not listed; with `deep` that is a lower bound.
pub(crate) fn unlisted(omitted: u64, deep: bool, target: &str) -> String {
    if !deep {
        return format!("{omitted} more changes in {target} are not listed");
    }
    format!(
        "at least {omitted} more changes in {target} are not listed, and what is more than {DEPTH} directories deep is \
         neither listed nor kept: that is too deep to be looked into"
    )
}

/// Makes the directory that changes are kept in, and opens it.
fn destination(dir: &Path) -> Result<OwnedFd, String> {
    let fails = |what, e: &dyn Display| format!("cannot {what} {}: {e}", dir.display());
    std::fs::create_dir_all(dir).map_err(|e| fails("make the directory", &e))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(CWD, dir, flags, Mode::empty()).map_err(|e| fails("open the directory", &e))
}

/// Reads the layer below `root`; `keep` is a new directory for the changed files.
///
/// # Errors
/// The layer cannot be read. What cannot be kept is told in the result.
pub(crate) fn changes(
    root: BorrowedFd<'_>,
    source: &str,
    target: &str,
    keep: Option<&Path>,
) -> io::Result<LayerChanges> {
    read(root, source, target, keep, None)
}

/// The same of a layer whose program still runs: nothing is kept, nothing is changed, no more than a number of entries is
/// looked at, and what goes meanwhile is passed over.
///
/// # Errors
/// The layer cannot be read.
pub(crate) fn changes_so_far(root: BorrowedFd<'_>, source: &str, target: &str) -> io::Result<LayerChanges> {
    read(root, source, target, None, Some(LOOKED_AT))
}

fn read(
    root: BorrowedFd<'_>,
    source: &str,
    target: &str,
    keep: Option<&Path>,
    left: Option<u64>,
) -> io::Result<LayerChanges> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let upper = openat(root, "upper", flags, Mode::empty())?;
    let (kept, failure) = match keep.map(destination) {
        Some(Ok(fd)) => (Some(fd), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    let room = fstatvfs(root)?;
    let keep = kept.as_ref().map(AsFd::as_fd).zip(keep);
    let mut w = OverlayWalk {
        source,
        target,
        changes: Vec::new(),
        keep,
        failure,
        kept: HashMap::new(),
        room: room.f_blocks.saturating_sub(room.f_bfree).saturating_mul(room.f_frsize),
        skipped: Vec::new(),
        unnamed: 0,
        deep: false,
        listed: 0,
        omitted: 0,
        left,
    };
    w.walk(upper.as_fd(), keep.map(|(fd, _)| fd), "", 0)?;
    w.changes.sort_by(|a, b| a.path.cmp(&b.path));
    let OverlayWalk { changes: list, skipped, failure, unnamed, deep, omitted, .. } = w;
    Ok(LayerChanges { list, skipped, failure, unnamed, deep, omitted })
}

/// Opens an entry without following anything. Whoever ran the program owns it and may have been left without the right to
/// look; with a `mode`, when the tree is dead and that changes nothing, the right is given back.
fn open_entry(
    dir: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    flags: OFlags,
    mode: Option<u32>,
) -> io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match (openat2(dir, name, flags, Mode::empty(), how), mode) {
        (Err(Errno::ACCESS), Some(mode)) => {
            chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
            Ok(openat2(dir, name, flags, Mode::empty(), how)?)
        }
        (other, _) => Ok(other?),
    }
}

/// Whether a directory of the layer replaces the one below it: overlayfs marks it so.
fn opaque(dir: BorrowedFd<'_>) -> bool {
    let mut value = [0u8; 4];
    matches!(fgetxattr(dir, "user.overlay.opaque", &mut value[..]), Ok(1) if value[0] == b'y')
}

/// The names in a directory, sorted.
fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push(name.to_vec());
        }
    }
    entries.sort();
    Ok(entries)
}

/// A name as text: where it is not UTF-8, with `\xff` for each byte that is not, and `\\` for a backslash.
fn spelled(name: &[u8]) -> String {
    if let Ok(name) = std::str::from_utf8(name) {
        return name.to_owned();
    }
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text += &chunk.valid().replace('\\', "\\\\");
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

impl OverlayWalk<'_> {
    fn walk(&mut self, dir: BorrowedFd<'_>, keep: Option<BorrowedFd<'_>>, rel: &str, depth: usize) -> io::Result<()> {
        let entries = names(dir)?;
        if opaque(dir) {
            self.replaced(&Path::new(self.source).join(rel), &join(self.target, rel), &entries);
        }
        for name in entries {
            let looked_at = match std::str::from_utf8(&name) {
                Ok(name) => {
                    let below = if rel.is_empty() { name.to_owned() } else { format!("{rel}/{name}") };
                    self.entry(dir, keep, name, &below, depth)
                }
                Err(_) => {
                    let path = join(self.target, rel);
                    let listed = self.no_text(dir, &name, &Path::new(self.source).join(rel), &path, depth);
                    self.skip(path, "an entry whose name is not UTF-8");
                    listed
                }
            };
            self.looked_at(looked_at)?;
        }
        Ok(())
    }

    /// What goes while the program runs is passed over.
    fn looked_at(&mut self, entry: io::Result<()>) -> io::Result<()> {
        match (entry, self.left) {
            (Err(e), Some(_)) if e.kind() == io::ErrorKind::NotFound => {}
            (Err(_), Some(_)) => self.omitted += 1,
            (looked_at, _) => looked_at?,
        }
        Ok(())
    }

    /// One entry fewer may be looked at; false where none may.
    fn may_look(&mut self) -> bool {
        match self.left {
            Some(0) => {
                self.omitted += 1;
                return false;
            }
            Some(left) => self.left = Some(left - 1),
            None => {}
        }
        true
    }

    /// Lists an entry whose name is not UTF-8, or that lies below one, of which nothing is kept. `source` and `path` are
    /// the directory's.
    fn no_text(&mut self, dir: BorrowedFd<'_>, name: &[u8], source: &Path, path: &str, depth: usize) -> io::Result<()> {
        if !self.may_look() {
            return Ok(());
        }
        let (source, path) = (source.join(OsStr::from_bytes(name)), join(path, &spelled(name)));
        let st = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let existed = std::fs::symlink_metadata(&source).ok();
        match FileType::from_raw_mode(st.st_mode) {
            FileType::CharacterDevice if st.st_rdev == 0 => {
                if existed.is_some() {
                    self.change('D', path);
                }
            }
            FileType::Directory => {
                self.directory(existed.as_ref(), st.st_mode, &path);
                let Some(inner) = self.inner(dir, name, &path, depth)? else { return Ok(()) };
                let entries = names(inner.as_fd())?;
                if opaque(inner.as_fd()) {
                    self.replaced(&source, &path, &entries);
                }
                for name in entries {
                    let listed = self.no_text(inner.as_fd(), &name, &source, &path, depth + 1);
                    self.looked_at(listed)?;
                }
            }
            _ => self.change(if existed.is_some() { 'M' } else { 'A' }, path),
        }
        Ok(())
    }

    /// Opens a directory of the layer. `None`: it is too deep to be looked into, and its entries are counted.
    fn inner(
        &mut self,
        dir: BorrowedFd<'_>,
        name: impl rustix::path::Arg + Copy,
        path: &str,
        depth: usize,
    ) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let inner = open_entry(dir, name, flags, self.left.is_none().then_some(0o700))?;
        if depth < DEPTH {
            return Ok(Some(inner));
        }
        self.too_deep(inner.as_fd(), path.to_owned())?;
        Ok(None)
    }

    /// A directory of the layer. One that only holds a change is copied up with the mode that it has.
    fn directory(&mut self, existed: Option<&std::fs::Metadata>, mode: u32, path: &str) {
        use std::os::unix::fs::MetadataExt;
        const BITS: u32 = 0o7777;
        match existed {
            None => self.change('A', path.to_owned()),
            Some(before) if before.is_dir() && before.mode() & BITS == mode & BITS => {}
            Some(_) => self.change('M', path.to_owned()),
        }
    }

    fn change(&mut self, kind: char, path: String) {
        if self.has_room(&path) {
            self.changes.push(FileChange { kind, path });
        } else {
            self.omitted += 1;
        }
    }

    fn skip(&mut self, path: String, why: &'static str) {
        if self.has_room(&path) {
            self.skipped.push(Skipped { path, why });
        } else {
            self.unnamed += 1;
        }
    }

    /// Counts the entries of a directory that is not looked into any further, one at least where it has any.
    fn too_deep(&mut self, dir: BorrowedFd<'_>, path: String) -> io::Result<()> {
        let mut entries = 0;
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            entries += u64::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
        }
        if entries > 0 {
            (self.deep, self.omitted) = (true, self.omitted.saturating_add(entries));
            self.skip(path, "too deep to be looked into");
        }
        Ok(())
    }

    /// The destination refuses: nothing more is kept.
    fn fails(&mut self, what: &str, rel: &str, e: &dyn Display) {
        let at = self.keep.map_or_else(PathBuf::new, |(_, dir)| dir.join(rel));
        self.failure.get_or_insert_with(|| format!("cannot {what} {}: {e}", at.display()));
    }

    fn has_room(&mut self, path: &str) -> bool {
        // What is no more than one byte here may be six there, `\u001b`.
        let escaped = |c: char| if c.is_control() { 6 } else { c.len_utf8() + usize::from(matches!(c, '"' | '\\')) };
        self.listed = self.listed.saturating_add(EACH + path.chars().map(escaped).sum::<usize>());
        self.listed <= LISTED
    }

    /// What a directory held before another one took its place is gone.
    fn replaced(&mut self, source: &Path, path: &str, now: &[Vec<u8>]) {
        let now: HashSet<&[u8]> = now.iter().map(Vec::as_slice).collect();
        for entry in std::fs::read_dir(source).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !now.contains(name.as_bytes()) {
                self.change('D', join(path, &spelled(name.as_bytes())));
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
        if !self.may_look() {
            return Ok(());
        }
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
        let keep = keep.filter(|_| self.failure.is_none());
        match kind {
            FileType::Directory => {
                self.directory(existed.as_ref(), st.st_mode, &path);
                let Some(inner) = self.inner(dir, name, &path, depth)? else { return Ok(()) };
                let kept = keep.and_then(|k| self.keep_directory(k, name, rel));
                self.walk(inner.as_fd(), kept.as_ref().map(AsFd::as_fd), rel, depth + 1)
            }
            FileType::RegularFile | FileType::Symlink => {
                self.change(if existed.is_some() { 'M' } else { 'A' }, path.clone());
                match keep {
                    Some(k) if kind == FileType::Symlink => {
                        // Its text is the program's: copied, and never followed by anything here.
                        let text = readlinkat(dir, name, Vec::new())?;
                        if let Err(e) = symlinkat(text, k, name) {
                            self.fails("make the symbolic link", rel, &e);
                        }
                    }
                    Some(k) => {
                        let whole = self.keep_file(dir, k, name, rel, &st)? || self.failure.is_some();
                        if !whole {
                            self.skip(path, "more than the layer's size");
                        }
                    }
                    None => {}
                }
                Ok(())
            }
            _ => {
                self.change(if existed.is_some() { 'M' } else { 'A' }, path.clone());
                let why = match kind {
                    FileType::Fifo => "a FIFO",
                    FileType::Socket => "a socket",
                    _ => "a device",
                };
                self.skip(path, why);
                Ok(())
            }
        }
    }

    /// A directory to keep entries in; none when the destination refuses it.
    fn keep_directory(&mut self, to: BorrowedFd<'_>, name: &str, rel: &str) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let made = match mkdirat(to, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => openat(to, name, flags, Mode::empty()),
            Err(e) => Err(e),
        };
        made.map_err(|e| self.fails("make the directory", rel, &e)).ok()
    }

    /// Keeps a regular file; never its setuid, setgid or sticky bits. False when there is no room for it, or the
    /// destination refuses.
    fn keep_file(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &str,
        rel: &str,
        st: &rustix::fs::Stat,
    ) -> io::Result<bool> {
        if st.st_nlink > 1 {
            if let (Some(first), Some((root, _))) = (self.kept.get(&st.st_ino), self.keep) {
                let linked = link_again(root, first, to, name);
                return Ok(linked.map_err(|e| self.fails("make the hard link", rel, &e)).is_ok());
            }
            self.kept.insert(st.st_ino, rel.to_owned());
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let source = File::from(open_entry(from, name, flags, Some(0o600))?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let target = match openat(to, name, flags, Mode::from_raw_mode(st.st_mode & 0o777)) {
            Ok(fd) => File::from(fd),
            Err(e) => {
                self.fails("make the file", rel, &e);
                return Ok(false);
            }
        };
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
                if let Err(e) = target.write_all_at(&buf[..n], at) {
                    self.fails("write", rel, &e);
                    return Ok(false);
                }
                at += n as u64;
            }
            at = end;
        }
        if let Err(e) = target.set_len(u64::try_from(st.st_size).unwrap_or(0)) {
            self.fails("set the length of", rel, &e);
            return Ok(false);
        }
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
    use super::{directory, spelled};

    #[test]
    fn names_that_are_no_text_are_spelled_without_loss() {
        assert_eq!(spelled(b"a\\xff"), "a\\xff", "what is text stays as it is");
        assert_eq!(spelled(b"a\xff"), "a\\xff");
        assert_eq!(spelled(b"\xfe\\xff\xc3\xa9\xe2\x82"), "\\xfe\\\\xff\u{e9}\\xe2\\x82");
    }

    #[test]
    fn no_two_targets_share_a_kept_directory() {
        assert_eq!(directory("/a/b"), "a%2Fb");
        assert_ne!(directory("/a/b"), directory("/a%2Fb"));
        assert_ne!(directory("/a/b"), directory("/a_b"));
    }
}
