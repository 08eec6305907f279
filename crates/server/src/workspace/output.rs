//! Collects the files in the output directory of a workspace, after the run's process tree is dead or after a call in a session.
//!
//! The untrusted program chose every name and byte. The directory is walked by descriptor, and never above itself: no symbolic
//! link is followed, no FIFO or device opened, no other mount entered. The number of names, the depth, and the number and size of
//! files are bounded; files that are skipped are reported by name.

use std::fs::File as Opened;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::media_type::{MediaType, media_type};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, chmodat, openat2, statat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// Most files that are collected.
const MAX_FILES: usize = 32;
/// Largest file that is returned, bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 8 << 20;
/// Most bytes of all files together.
const MAX_TOTAL_BYTES: u64 = 16 << 20;
/// Depth of the deepest directory that is entered, below the output directory.
const MAX_DEPTH: usize = 8;
/// Most names that are examined.
const MAX_NAMES: usize = 4096;
/// Most skipped files that are reported by name.
const MAX_REPORTED: usize = 16;

/// The resolution of file timestamps: a tick of the kernel's at 100 Hz.
const TICK: Duration = Duration::from_millis(10);

/// The present time of the clock of file timestamps, since 1970: no later change has an earlier one.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default().min(999_999_999))
}

/// A file of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceFile {
    /// Its path below the directory that was read.
    pub name: String,
    /// Its media type.
    pub media_type: MediaType,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The collected files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OutputFiles {
    /// The files, by name.
    pub files: Vec<WorkspaceFile>,
    /// The skipped files, each with the reason.
    pub skipped: Vec<String>,
    /// Whether the process tree is dead, so that nothing changes the files.
    pub dead: bool,
    /// The earliest change time of files that are collected, since 1970.
    pub since: Option<Duration>,
    /// How many more were skipped, beside those named.
    pub more: usize,
    /// The bytes of all collected files.
    pub bytes: u64,
    /// How many names were examined.
    pub names: usize,
    /// The latest change time of the collected files, since 1970.
    pub newest: Duration,
}

/// Collects the directory `name` below `root`, whose process tree is dead.
pub(crate) fn collect(root: &OwnedFd, name: &str) -> OutputFiles {
    collected(root, name, OutputFiles { dead: true, ..OutputFiles::default() })
}

/// Collects it while the program lives: only files changed since `since`, a time of [`now`]. Returns once that clock has passed
/// the newest of these changes, so that no later call takes them for its own.
pub(crate) fn collect_since(root: &OwnedFd, name: &str, since: Duration) -> OutputFiles {
    let found = collected(root, name, OutputFiles { since: Some(since), ..OutputFiles::default() });
    let begun = Instant::now();
    // The program cannot choose this time of a file, but the clock can be set back.
    while now() <= found.newest && begun.elapsed() < TICK * 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    found
}

fn collected(root: &OwnedFd, name: &str, mut found: OutputFiles) -> OutputFiles {
    match open(root.as_fd(), name.as_bytes(), DIRECTORY, found.dead.then_some(0o700)) {
        Ok(directory) => found.walk(directory.as_fd(), "", 0),
        // It was removed.
        Err(Errno::NOENT) => {}
        Err(errno) => found.skip(name, &errno.to_string()),
    }
    if found.more > 0 {
        let more = format!("{} more", found.more);
        found.skipped.push(more);
    }
    found
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
/// How paths are resolved whose names untrusted code may have created: without links, and never out of the directory.
pub(crate) const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_MAGICLINKS);
const REGULAR: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Opens a name without following links. If the program removed its own permissions from the file, `mode` restores them, which
/// is safe only once the program is dead: a live one could replace the file by a link.
fn open(directory: BorrowedFd<'_>, name: &[u8], flags: OFlags, mode: Option<u32>) -> Result<OwnedFd, Errno> {
    match (openat2(directory, name, flags, Mode::empty(), BENEATH), mode) {
        (Err(Errno::ACCESS), Some(mode)) => {
            chmodat(directory, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
            openat2(directory, name, flags, Mode::empty(), BENEATH)
        }
        (other, _) => other,
    }
}

impl OutputFiles {
    fn skip(&mut self, name: &str, why: &str) {
        if self.skipped.len() < MAX_REPORTED {
            let name = cofferdam_policy::text::short(name, 120);
            self.skipped.push(format!("{name}: {why}"));
        } else {
            self.more += 1;
        }
    }

    fn walk(&mut self, directory: BorrowedFd<'_>, prefix: &str, depth: usize) {
        let mut names = Vec::new();
        let entries = match Dir::read_from(directory) {
            Ok(entries) => entries,
            Err(errno) => return self.skip(prefix, &errno.to_string()),
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.names += 1;
            if self.names > MAX_NAMES {
                self.skip(prefix, "there are too many names to look at them all");
                break;
            }
            names.push(name.to_vec());
        }
        names.sort_unstable();
        for name in names {
            self.entry(directory, prefix, &name, depth);
        }
    }

    fn entry(&mut self, directory: BorrowedFd<'_>, prefix: &str, name: &[u8], depth: usize) {
        let shown = format!("{prefix}{}", String::from_utf8_lossy(name));
        let plain = std::str::from_utf8(name).is_ok_and(|name| !name.chars().any(char::is_control));
        if !plain {
            return self.skip(&shown, "its name is no plain text");
        }
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => return self.skip(&shown, &errno.to_string()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth >= MAX_DEPTH => self.skip(&shown, "it lies too deep"),
            FileType::Directory => match open(directory, name, DIRECTORY, self.dead.then_some(0o700)) {
                Ok(below) => self.walk(below.as_fd(), &format!("{shown}/"), depth + 1),
                Err(errno) => self.skip(&shown, &errno.to_string()),
            },
            FileType::RegularFile if self.since.is_some_and(|since| changed(&stat) < since) => {}
            FileType::RegularFile => match self.read(directory, name) {
                Ok(bytes) => {
                    self.newest = self.newest.max(changed(&stat));
                    let media_type = media_type(&shown, &bytes);
                    self.files.push(WorkspaceFile { name: shown, media_type, bytes });
                }
                Err(why) => self.skip(&shown, &why),
            },
            FileType::Symlink => self.skip(&shown, "it is a symbolic link, and none is followed"),
            _ => self.skip(&shown, "it is no regular file"),
        }
    }

    fn read(&mut self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, String> {
        if self.files.len() >= MAX_FILES {
            return Err(format!("{MAX_FILES} files come back at most"));
        }
        let file = Opened::from(
            open(directory, name, REGULAR, self.dead.then_some(0o600)).map_err(|errno| errno.to_string())?,
        );
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        if !metadata.is_file() {
            return Err("it is no regular file".into());
        }
        let size = metadata.len();
        if size > MAX_FILE_BYTES {
            return Err(format!("it has {size} bytes, and a file of {MAX_FILE_BYTES} comes back at most"));
        }
        if self.bytes + size > MAX_TOTAL_BYTES {
            return Err(format!("all files together have more than {MAX_TOTAL_BYTES} bytes"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        file.take(size).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        self.bytes += bytes.len() as u64;
        Ok(bytes)
    }
}

/// The change time (ctime) of a file, since 1970.
fn changed(stat: &rustix::fs::Stat) -> Duration {
    let seconds = u64::try_from(stat.st_ctime).unwrap_or_default();
    Duration::new(seconds, u32::try_from(stat.st_ctime_nsec).unwrap_or_default().min(999_999_999))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    fn collected(make: impl FnOnce(&Path)) -> OutputFiles {
        let root = tempfile::tempdir().unwrap();
        let output = root.path().join("output");
        std::fs::create_dir(&output).unwrap();
        make(&output);
        let fd = rustix::fs::open(root.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        collect(&fd, "output")
    }

    fn names(found: &OutputFiles) -> Vec<&str> {
        found.files.iter().map(|file| file.name.as_str()).collect()
    }

    #[test]
    fn files_are_sorted_by_name_and_hard_links_are_files() {
        let found = collected(|output| {
            std::fs::create_dir_all(output.join("sub")).unwrap();
            std::fs::write(output.join("b"), "2").unwrap();
            std::fs::write(output.join("sub/c"), "3").unwrap();
            std::fs::hard_link(output.join("b"), output.join("a")).unwrap();
        });
        assert_eq!((names(&found), found.skipped.len()), (vec!["a", "b", "sub/c"], 0));
        assert_eq!(found.files[0].bytes, b"2");
    }

    #[test]
    fn links_are_not_followed_and_special_files_not_opened() {
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), "secret").unwrap();
        let found = collected(|output| {
            symlink(secret.path(), output.join("link")).unwrap();
            symlink(secret.path().parent().unwrap(), output.join("dirlink")).unwrap();
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, output.join("fifo"), fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            std::os::unix::net::UnixListener::bind(output.join("socket")).unwrap();
            std::fs::write(output.join("plain"), "x").unwrap();
        });
        assert_eq!(names(&found), ["plain"]);
        let skipped = found.skipped.join("\n");
        for name in
            ["link: it is a symbolic link", "dirlink: it is a symbolic link", "fifo: it is no", "socket: it is no"]
        {
            assert!(skipped.contains(name), "{skipped}");
        }
    }

    #[test]
    fn link_in_place_of_the_directory_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        symlink("/etc", root.path().join("output")).unwrap();
        let fd = rustix::fs::open(root.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let found = collect(&fd, "output");
        assert!(found.files.is_empty() && found.skipped.len() == 1, "{found:?}");
        std::fs::remove_file(root.path().join("output")).unwrap();
        assert!(collect(&fd, "output").files.is_empty());
    }

    #[test]
    fn count_and_size_are_bounded_and_reported() {
        let found = collected(|output| {
            for index in 0..MAX_FILES + 20 {
                std::fs::write(output.join(format!("f{index:03}")), "x").unwrap();
            }
        });
        assert_eq!((found.files.len(), found.skipped.len()), (MAX_FILES, MAX_REPORTED + 1));
        assert_eq!(found.skipped.last().map(String::as_str), Some("4 more"));
        let found = collected(|output| {
            let file = Opened::create(output.join("big")).unwrap();
            file.set_len(MAX_FILE_BYTES + 1).unwrap();
            for name in ["c", "d", "e"] {
                Opened::create(output.join(name)).unwrap().set_len(MAX_FILE_BYTES).unwrap();
            }
        });
        assert_eq!(names(&found), ["c", "d"]);
        assert!(
            found.skipped[0].starts_with("big: it has 8388609 bytes") && found.skipped[1].starts_with("e: all files")
        );
    }

    #[test]
    fn live_workspace_returns_new_files_and_keeps_modes() {
        let root = tempfile::tempdir().unwrap();
        let output = root.path().join("output");
        std::fs::create_dir(&output).unwrap();
        std::fs::write(output.join("old"), "x").unwrap();
        std::thread::sleep(TICK * 4);
        let begun = now();
        std::fs::write(output.join("new"), "x").unwrap();
        std::fs::write(output.join("shut"), "x").unwrap();
        std::fs::set_permissions(output.join("shut"), std::fs::Permissions::from_mode(0o0)).unwrap();
        let fd = rustix::fs::open(root.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let found = collect_since(&fd, "output", begun);
        assert!(!names(&found).contains(&"old") && names(&found).contains(&"new"), "{found:?}");
        // Within a tick as well: unchanged files are not collected, and changed ones are, also if their size is the same.
        for round in 0..20 {
            let begun = now();
            assert_eq!(names(&collect_since(&fd, "output", begun)), Vec::<&str>::new(), "round {round}");
            let begun = now();
            std::fs::write(output.join("new"), if round % 2 == 0 { "y" } else { "x" }).unwrap();
            assert_eq!(names(&collect_since(&fd, "output", begun)), ["new"], "round {round}");
        }
        assert_eq!(std::fs::metadata(output.join("shut")).unwrap().permissions().mode() & 0o777, 0);
        assert_eq!(collect(&fd, "output").files.len(), 3);
    }

    #[test]
    fn modes_and_unprintable_names_hide_no_file() {
        let found = collected(|output| {
            std::fs::create_dir(output.join("shut")).unwrap();
            std::fs::write(output.join("shut/f"), "x").unwrap();
            std::fs::set_permissions(output.join("shut/f"), std::fs::Permissions::from_mode(0o0)).unwrap();
            std::fs::set_permissions(output.join("shut"), std::fs::Permissions::from_mode(0o0)).unwrap();
            std::fs::write(output.join("line\nbreak"), "x").unwrap();
        });
        assert_eq!(names(&found), ["shut/f"]);
        assert_eq!(found.skipped, ["line\\nbreak: its name is no plain text"]);
    }
}
