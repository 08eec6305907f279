//! The trail's files: one writer at a time, on whatever container or namespace; the end of the chain; space reserved
//! for the ends of runs.
//!
//! ```text
//! DIR/trail-000001.jsonl  trail-000002.jsonl …   the records, the last file growing
//! DIR/lock                                       held while writing; remembers where the chain ends, and who keeps room
//! DIR/run-0001 …                                 runs under way; `slots` has them
//! ```
//!
//! The contents of the lock file are a hint to writers, checked against the trail itself and rebuilt if they do not
//! match, as after a writer was killed. Verification never reads it. Does not interpret records.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Uid, fallocate, flock, fstat, openat, readlinkat,
    statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::AuditError;
use super::record::{self, AuditEntry, Hash, Link, sha256};

/// Bytes reserved for the end of each run, in which its last record fits.
pub(crate) const END_ROOM: u64 = 8 * 1024;
/// Links that are followed to a trail's directory, one after the other.
const MOST_LINKS: usize = 16;
/// Room is asked of the file system in pieces of this size.
const PIECE: u64 = 256 * 1024;
const MAGIC: u64 = 0x6466_6672_6564_7501;
/// Length of what the lock file says of the chain; who keeps room stands after it.
pub(crate) const HEAD: usize = 96;

/// The end of the chain, as the last writer left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChainEnd {
    /// Number of the file that grows; 0 before the first.
    pub file: u64,
    /// Its length, bytes.
    pub end: u64,
    /// Bytes that the file system has promised for it.
    pub room: u64,
    /// The last record.
    pub link: Link,
}

/// The directory of a trail, open.
#[derive(Debug)]
pub(crate) struct TrailStore {
    pub(super) dir: File,
    pub(super) path: PathBuf,
    pub(super) lock: File,
    /// Whose it all is.
    owner: Uid,
    /// Size at which a file is closed and the next one begun.
    pub(super) rotate_at: u64,
    /// The file that grew when this process last wrote.
    open: Option<(u64, File)>,
}

/// The store under the lock.
#[derive(Debug)]
pub(crate) struct LockedStore<'a> {
    pub(super) store: &'a mut TrailStore,
    pub(super) state: ChainEnd,
}

/// The error of a system call, with what it was for.
pub(super) fn fail(what: &str, path: &Path) -> impl FnOnce(io::Error) -> AuditError {
    let place = format!("{what} {}", path.display());
    move |source| AuditError::Io { place, source }
}

/// The name of a file of a trail.
pub(crate) fn file_name(number: u64) -> String {
    format!("trail-{number:06}.jsonl")
}

/// The number in such a name.
pub(crate) fn file_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("trail-")?.strip_suffix(".jsonl")?;
    let number = digits.parse().ok().filter(|_| digits.len() >= 6)?;
    (file_name(number) == name).then_some(number)
}

/// The numbers of the files in a trail's directory, in order.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn files(dir: &Path) -> io::Result<Vec<u64>> {
    let mut list = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        list.extend(entry?.file_name().to_str().and_then(file_number));
    }
    list.sort_unstable();
    Ok(list)
}

/// The same of a directory that is open.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn files_in(dir: &File) -> io::Result<Vec<u64>> {
    let mut list = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        list.extend(entry?.file_name().to_str().ok().and_then(file_number));
    }
    list.sort_unstable();
    Ok(list)
}

/// Opens a file of a trail for reading. Only a regular file is accepted: a link leads elsewhere, and a pipe blocks.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    regular(rustix::fs::CWD, path)
}

/// The same of a file in a directory that is open, by its name.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub(crate) fn open_file_in(dir: &File, name: &str) -> io::Result<File> {
    regular(dir.as_fd(), Path::new(name))
}

fn regular(at: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let wrong = |why: &str| io::Error::other(format!("{}: {why}", path.display()));
    let file = match openat(at, path, flags, Mode::empty()) {
        Err(Errno::LOOP) => return Err(wrong("it is a link, and none is followed")),
        opened => File::from(opened?),
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(wrong("it is no regular file")) }
}

impl TrailStore {
    /// Opens a trail's directory, and creates it with mode 0700 if it is missing.
    ///
    /// # Errors
    /// It cannot be made, opened or locked, or others may write in it, or it is another user's: root may say that it
    /// knows.
    pub(crate) fn open(path: &Path, rotate_at: u64, of_others: bool) -> Result<TrailStore, AuditError> {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt};
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(fail("cannot make the trail's directory", path))?;
        let me = geteuid();
        let trusted = |link: u32| link == me.as_raw() || link == 0 || of_others && me.is_root();
        let (dir, real) = open_directory(path, &trusted)?;
        let path = &*real;
        let about = dir.metadata().map_err(fail("cannot look at the trail's directory", path))?;
        let theirs = Uid::from_raw(about.uid());
        let owner = if of_others && me.is_root() { theirs } else { me };
        is_own(&about, owner, path)?;
        // What another user may have put there is not made use of as if it had just been made.
        let make = if owner == me { OFlags::CREATE } else { OFlags::empty() };
        let lock = open_in(&dir, "lock", OFlags::RDWR | make).map_err(fail("cannot open the lock of", path))?;
        let store = TrailStore { dir, path: path.to_owned(), lock, owner, rotate_at, open: None };
        store.is_own(&store.lock, "lock")?;
        Ok(store)
    }

    /// Whether an open file of the trail belongs to the right user alone.
    pub(super) fn is_own(&self, file: &File, name: &str) -> Result<(), AuditError> {
        let path = self.path.join(name);
        let about = file.metadata().map_err(fail("cannot look at", &path))?;
        if !about.is_file() {
            return Err(AuditError::NoFile { path });
        }
        is_own(&about, self.owner, &path)
    }

    /// Refuses a directory that is not the one at its path any more, and a lock that is not the one in it: another writer
    /// there would not see this one, and nobody would look for records in a directory that was put away.
    fn is_in_place(&self) -> Result<(), AuditError> {
        use std::os::unix::fs::MetadataExt as _;
        let moved = |what| AuditError::Moved { path: self.path.clone(), what };
        let same = |mine: io::Result<std::fs::Metadata>, at: rustix::io::Result<rustix::fs::Stat>| {
            mine.is_ok_and(|mine| at.is_ok_and(|at| (mine.dev(), mine.ino()) == (at.st_dev, at.st_ino)))
        };
        if !same(self.dir.metadata(), rustix::fs::lstat(&self.path)) {
            return Err(moved("directory"));
        }
        match same(self.lock.metadata(), statat(&self.dir, "lock", AtFlags::SYMLINK_NOFOLLOW)) {
            true => Ok(()),
            false => Err(moved("lock")),
        }
    }

    /// Takes the lock, and repairs what a killed writer left behind.
    ///
    /// # Errors
    /// The trail cannot be read, does not hold together, or is not the one that was opened any more.
    pub(crate) fn hold(&mut self, now: &str) -> Result<LockedStore<'_>, AuditError> {
        loop {
            match flock(&self.lock, FlockOperation::LockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(fail("cannot lock", &self.path)(e.into())),
            }
        }
        let mut held = LockedStore { store: self, state: ChainEnd::default() };
        held.store.is_in_place()?;
        match held.store.remembered() {
            Some(state) if held.still(&state)? => held.state = state,
            _ => held.recover(now)?,
        }
        Ok(held)
    }

    /// What stands at the name of a file.
    fn look(&self, number: u64) -> rustix::io::Result<rustix::fs::Stat> {
        statat(&self.dir, file_name(number), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn remembered(&self) -> Option<ChainEnd> {
        let mut head = [0u8; HEAD];
        self.lock.read_exact_at(&mut head, 0).ok()?;
        let word = |i: usize| u64::from_le_bytes(head[i * 8..i * 8 + 8].try_into().unwrap_or_default());
        if word(0) != MAGIC || sha256(&head[..HEAD - 8])[..8] != head[HEAD - 8..] {
            return None;
        }
        let hash: Hash = head[48..80].try_into().ok()?;
        Some(ChainEnd { file: word(1), end: word(2), room: word(3), link: Link { seq: word(4), hash } })
    }
}

impl Drop for LockedStore<'_> {
    fn drop(&mut self) {
        // A lock of ours can only fail to be let go when the descriptor is none.
        if let Err(e) = flock(&self.store.lock, FlockOperation::Unlock) {
            debug_assert!(false, "a lock of ours cannot be let go: {e}");
        }
    }
}

/// Opens a trail's directory, and says where it is. A link is followed where a trusted user made it: one of anybody
/// else's leads where that one wants, whatever the kernel's `fs.protected_symlinks` says.
fn open_directory(path: &Path, trusted: &dyn Fn(u32) -> bool) -> Result<(File, PathBuf), AuditError> {
    let failed = |e: Errno| fail("cannot open the trail's directory", path)(e.into());
    // Without a slash at its end, by which the kernel would follow a link.
    let mut at: PathBuf = path.components().collect();
    for _ in 0..MOST_LINKS {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::open(&at, flags, Mode::empty()).map_err(failed)?;
        let about = fstat(&found).map_err(failed)?;
        if FileType::from_raw_mode(about.st_mode) != FileType::Symlink {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            return Ok((openat(&found, ".", flags, Mode::empty()).map_err(failed)?.into(), at));
        }
        if !trusted(about.st_uid) {
            return Err(AuditError::Linked { path: at, owner: about.st_uid });
        }
        let target = readlinkat(&found, "", Vec::new()).map_err(failed)?;
        at = at.parent().unwrap_or(Path::new("/")).join(OsStr::from_bytes(target.to_bytes())).components().collect();
    }
    Err(failed(Errno::LOOP))
}

/// Whether only its owner can write something, and the owner is this one.
fn is_own(about: &std::fs::Metadata, owner: Uid, path: &Path) -> Result<(), AuditError> {
    use std::os::unix::fs::MetadataExt;
    if about.uid() != owner.as_raw() {
        return Err(AuditError::Foreign { path: path.to_owned(), owner: about.uid(), me: geteuid().as_raw() });
    }
    // With an access control list, the group's bits are the most that anybody named in it may do.
    if about.mode() & 0o022 != 0 {
        return Err(AuditError::Open { path: path.to_owned() });
    }
    Ok(())
}

/// Opens a file of the directory, and no link.
pub(super) fn open_in(dir: &File, name: &str, flags: OFlags) -> io::Result<File> {
    let all = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat(dir, name, all, Mode::RUSR | Mode::WUSR)?.into())
}

impl LockedStore<'_> {
    /// The end of the chain.
    pub(crate) fn link(&self) -> Link {
        self.state.link
    }

    /// The file that grows, to make it durable.
    pub(crate) fn file(&self) -> Option<&File> {
        self.store.open.as_ref().map(|(_, file)| file)
    }

    fn current(&mut self, number: u64) -> Result<&File, AuditError> {
        if self.store.open.as_ref().is_none_or(|(n, _)| *n != number) {
            let name = file_name(number);
            let file = open_in(&self.store.dir, &name, OFlags::RDWR | OFlags::NONBLOCK)
                .map_err(fail("cannot open a file of", &self.store.path))?;
            self.store.is_own(&file, &name)?;
            self.store.open = Some((number, file));
        }
        match &self.store.open {
            Some((_, file)) => Ok(file),
            None => Err(AuditError::Gone { path: self.store.path.clone() }),
        }
    }

    /// Whether the file still ends where it was remembered to end. Another length means that a writer was killed
    /// between writing and remembering, or that somebody else changed the file.
    fn still(&mut self, state: &ChainEnd) -> Result<bool, AuditError> {
        if state.file == 0 {
            return Ok(false);
        }
        // A file that was removed under us is found by its name, not by our descriptor.
        let place = self.store.path.join(file_name(state.file));
        let named = match self.store.look(state.file) {
            Ok(about) => about,
            Err(Errno::NOENT) => return Ok(false),
            Err(e) => return Err(fail("cannot look at", &place)(e.into())),
        };
        let file = self.current(state.file)?;
        let about = file.metadata().map_err(fail("cannot look at", &place))?;
        use std::os::unix::fs::MetadataExt;
        if (about.dev(), about.ino()) != (named.st_dev, named.st_ino) {
            self.store.open = None;
            return Ok(false);
        }
        // A writer that was killed after it made the next file, and before it was remembered, left one that goes on.
        let next = self.store.look(state.file + 1);
        Ok(about.len() == state.end && (state.end < self.store.rotate_at || next.is_err()))
    }

    /// Reads the last file anew: the chain ends with its last whole record. What a killed writer left after that stays
    /// where it is, and a record says what it was.
    fn recover(&mut self, now: &str) -> Result<(), AuditError> {
        self.store.open = None;
        let list = files_in(&self.store.dir).map_err(fail("cannot read", &self.store.path))?;
        let Some(&last) = list.last() else {
            self.state = ChainEnd::default();
            return Ok(());
        };
        // A file that was begun and got no record yet follows the one before.
        let mut link = Link::default();
        let mut torn = None;
        for &number in list.iter().rev() {
            let place = self.store.path.join(file_name(number));
            let mut bytes = Vec::new();
            open_file_in(&self.store.dir, &file_name(number))
                .and_then(|mut file| file.read_to_end(&mut bytes))
                .map_err(fail("cannot read", &place))?;
            let tail = tail(&bytes);
            if number == last {
                self.state = ChainEnd { file: last, end: bytes.len() as u64, ..ChainEnd::default() };
                torn = (tail.end < bytes.len()).then(|| (tail.end, bytes[tail.end..].to_vec()));
            }
            if let Some(found) = tail.link {
                link = found;
                break;
            }
            if tail.end == 0 && !bytes.is_empty() && number != last {
                return Err(AuditError::Damaged { place });
            }
        }
        self.state.link = link;
        let Some((offset, bytes)) = torn else { return self.remember() };
        // The next record begins on a line of its own.
        if bytes.last() != Some(&b'\n') {
            self.write(b"\n", 0)?;
        }
        // All of a record but its newline is that record.
        if let Ok(record) = record::read(&bytes)
            && let Some(whole) =
                record.link().filter(|it| it.seq == link.seq + 1 && record.prev == record::hex(&link.hash))
        {
            self.state.link = whole;
            return self.remember();
        }
        let what = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let entry = AuditEntry::new("recovered")
            .with("offset", offset as u64)
            .with("bytes", what.len() as u64)
            .with("sha256", record::hex(&sha256(what)));
        // In the same file, however full it is: what it seals is there.
        self.put(&entry, now, false)?;
        // What was torn may have been the record that says which trail it is.
        if link.seq == 0 { self.open_trail(now, false) } else { Ok(()) }
    }

    /// Writes a record at the chain's end. `reserved` may use the room that was kept for the ends of runs.
    ///
    /// # Errors
    /// There is no space, or the file cannot be written. Nothing of the record stands in the trail then.
    pub(crate) fn append(&mut self, entry: &AuditEntry, now: &str, reserved: bool) -> Result<Link, AuditError> {
        self.begun(now, reserved)?;
        if self.state.end >= self.store.rotate_at {
            self.rotate()?;
        }
        self.put(entry, now, reserved)
    }

    /// Sees to it that there is a file and a record that says which trail it is, also where the first file was made, or
    /// emptied, and has none.
    pub(super) fn begun(&mut self, now: &str, reserved: bool) -> Result<(), AuditError> {
        if self.state.file == 0 {
            self.rotate()?;
        }
        if self.state.link.seq == 0 { self.open_trail(now, reserved) } else { Ok(()) }
    }

    /// Writes that record.
    fn open_trail(&mut self, now: &str, reserved: bool) -> Result<(), AuditError> {
        let entry = AuditEntry::new("trail_opened").with("trail", crate::random::uuid()).with("version", 1);
        self.put(&entry, now, reserved).map(|_| ())
    }

    fn put(&mut self, entry: &AuditEntry, now: &str, reserved: bool) -> Result<Link, AuditError> {
        let (line, link) = record::write(entry, now, &self.state.link);
        if line.len() > record::MOST_BYTES {
            return Err(AuditError::TooLarge { kind: entry.kind.clone(), bytes: line.len() });
        }
        let kept = if reserved { 0 } else { self.reserved()? };
        self.write(&line, kept)?;
        self.state.link = link;
        self.remember()?;
        Ok(link)
    }

    fn write(&mut self, bytes: &[u8], kept: u64) -> Result<(), AuditError> {
        let (number, end) = (self.state.file, self.state.end);
        self.make_room(end + bytes.len() as u64 + kept)?;
        let path = self.store.path.clone();
        let file = self.current(number)?;
        if let Err(e) = file.write_all_at(bytes, end) {
            // Whatever of it was written is removed: a refused record leaves nothing.
            return match file.set_len(end) {
                Ok(()) => Err(space(e, &path)),
                Err(worse) => Err(fail("cannot take back a half-written record of", &path)(worse)),
            };
        }
        self.state.end += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn make_room(&mut self, wanted: u64) -> Result<(), AuditError> {
        if wanted <= self.state.room {
            return Ok(());
        }
        let (number, path) = (self.state.file, self.store.path.clone());
        let file = self.current(number)?;
        for most in [wanted.next_multiple_of(PIECE), wanted] {
            match fallocate(file, FallocateFlags::KEEP_SIZE, 0, most) {
                Ok(()) => {
                    self.state.room = most;
                    return Ok(());
                }
                Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) if most > wanted => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Err(AuditError::CannotReserve { path }),
                Err(e) => return Err(space(e.into(), &path)),
            }
        }
        Ok(())
    }

    /// Begins the next file. The one before is durable before the next has a record, or a crash could leave a gap.
    fn rotate(&mut self) -> Result<(), AuditError> {
        let (before, kept) = (self.state, self.reserved()?);
        let next = before.file + 1;
        let path = self.store.path.clone();
        if before.file > 0 {
            let file = self.current(before.file)?;
            // What was promised beyond its end is given back.
            file.set_len(before.end).and_then(|()| file.sync_data()).map_err(fail("cannot finish a file of", &path))?;
        }
        let name = file_name(next);
        let file = open_in(&self.store.dir, &name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
            .map_err(fail("cannot begin the next file of", &path))?;
        if self.store.owner != geteuid() {
            rustix::fs::fchown(&file, Some(self.store.owner), None)
                .map_err(|e| fail("cannot give the next file to the owner of", &path)(e.into()))?;
        }
        self.store.open = Some((next, file));
        self.state = ChainEnd { file: next, end: 0, room: 0, link: before.link };
        if let Err(e) = self.make_room(record::MOST_BYTES as u64 + kept) {
            self.store.open = None;
            self.state = before;
            rustix::fs::unlinkat(&self.store.dir, &name, AtFlags::empty())
                .map_err(|e| fail("cannot remove the next file of", &path)(e.into()))?;
            return Err(e);
        }
        self.store.dir.sync_all().map_err(fail("cannot make durable", &path))?;
        self.remember()
    }

    pub(super) fn remember(&mut self) -> Result<(), AuditError> {
        let s = self.state;
        let mut head = Vec::with_capacity(HEAD);
        for word in [MAGIC, s.file, s.end, s.room, s.link.seq, 0] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.extend_from_slice(&s.link.hash);
        head.extend_from_slice(&[0; 8]);
        let sum = sha256(&head);
        head.extend_from_slice(&sum[..8]);
        self.store.lock.write_all_at(&head, 0).map_err(fail("cannot write the lock of", &self.store.path))
    }
}

/// The error of a write: no space, a limit of this process, or another.
pub(super) fn space(e: io::Error, path: &Path) -> AuditError {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => AuditError::Full { path: path.to_owned() },
        io::ErrorKind::FileTooLarge => AuditError::FileSize { path: path.to_owned() },
        _ => fail("cannot write", path)(e),
    }
}

/// The last whole record of a file's bytes, and where it ends.
struct Tail {
    link: Option<Link>,
    end: usize,
}

fn tail(bytes: &[u8]) -> Tail {
    // From the end: what a killed writer left is at most a record, and all before it was whole when it was written.
    let mut upto = bytes.len();
    while let Some(newline) = bytes[..upto].iter().rposition(|&b| b == b'\n') {
        let start = bytes[..newline].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        if let Ok(record) = record::read(&bytes[start..newline])
            && let Some(link) = record.link()
        {
            return Tail { link: Some(link), end: newline + 1 };
        }
        upto = newline;
    }
    Tail { link: None, end: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_have_one_spelling() {
        assert_eq!(file_number(&file_name(7)), Some(7));
        assert_eq!(file_number(&file_name(12_345_678)), Some(12_345_678));
        for name in ["trail-7.jsonl", "trail-0000007.jsonl", "trail-+00007.jsonl", "trail-000007.jsonl.bak", "lock"] {
            assert_eq!(file_number(name), None, "{name}");
        }
    }

    #[test]
    fn a_second_store_continues_after_the_lock_is_released() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let (mut a, mut b) =
            (TrailStore::open(&path, 1 << 20, false).unwrap(), TrailStore::open(&path, 1 << 20, false).unwrap());
        let one = a.hold("t").unwrap().append(&AuditEntry::new("a"), "t", false).unwrap();
        let two = b.hold("t").unwrap().append(&AuditEntry::new("b"), "t", false).unwrap();
        assert_eq!((one.seq, two.seq), (2, 3), "the first record opens the trail");
    }
}
