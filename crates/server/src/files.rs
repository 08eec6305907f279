//! The files that code left in its output directory: read once its whole tree is dead, and told apart by what is in them.
//!
//! The program wrote every name and byte here. The directory is walked by descriptor, below itself and nowhere else: no
//! symbolic link is followed, no FIFO or device opened, no other mount entered. How much is looked at, how deep, how many
//! files come back and how large they are is bounded; what stays behind is told by name.

use std::fs::File as Opened;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, chmodat, openat2, statat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// Most files that come back.
const MOST_FILES: usize = 32;
/// Largest file that comes back, bytes.
pub const LARGEST: u64 = 8 << 20;
/// Most bytes of all files.
const MOST_BYTES: u64 = 16 << 20;
/// Deepest directory that is looked into, below the output directory.
const DEEPEST: usize = 8;
/// Most names that are looked at.
const MOST_NAMES: usize = 4096;
/// Most of what stays behind that is told by name.
const MOST_TOLD: usize = 16;
/// Largest text that is part of the answer; a larger one is linked.
const LARGEST_TEXT: usize = 256 << 10;

/// How long the clock of files stands still: a tick of the kernel's at 100 Hz.
const TICK: Duration = Duration::from_millis(10);

/// The clock of files, from 1970 on: what is changed from now on has no earlier time.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default().min(999_999_999))
}

/// What a file is, by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A picture, of this type.
    Image(&'static str),
    /// Text that is part of the answer.
    Text(&'static str),
    /// Anything else, by its type where that is plain.
    Other(&'static str),
}

impl Content {
    /// The same, only linked to.
    pub fn linked(self) -> Content {
        match self {
            Content::Image(mime) | Content::Text(mime) | Content::Other(mime) => Content::Other(mime),
        }
    }
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its path below the output directory.
    pub name: String,
    /// What it is.
    pub content: Content,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// The files, by name.
    pub files: Vec<File>,
    /// What stayed behind, and why.
    pub left: Vec<String>,
    /// Whether nothing can change it any more.
    pub dead: bool,
    /// Since when a file must have been changed, from 1970 on.
    pub since: Option<Duration>,
    /// How many more stayed behind.
    pub more: usize,
    /// How many bytes came back.
    pub bytes: u64,
    /// How many names were looked at.
    pub names: usize,
    /// When the file that was changed last was changed.
    pub newest: Duration,
}

/// Reads the directory `name` below `root`, whose tree is dead.
pub fn collect(root: &OwnedFd, name: &str) -> Collected {
    collected(root, name, Collected { dead: true, ..Collected::default() })
}

/// The same while the program lives: only what was changed since then, by [`now`]. Returns when that clock has passed the
/// newest of these changes, so that a later call, which begins later, does not take them for its own.
pub fn collect_since(root: &OwnedFd, name: &str, since: Duration) -> Collected {
    let found = collected(root, name, Collected { since: Some(since), ..Collected::default() });
    let begun = Instant::now();
    // A program can give a file no such time of its own choice, but the clock can be set back.
    while now() <= found.newest && begun.elapsed() < TICK * 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    found
}

fn collected(root: &OwnedFd, name: &str, mut found: Collected) -> Collected {
    match open(root.as_fd(), name.as_bytes(), DIRECTORY, found.dead.then_some(0o700)) {
        Ok(directory) => found.walk(directory.as_fd(), "", 0),
        // It was removed, or something else stands in its place.
        Err(Errno::NOENT) => {}
        Err(errno) => found.leave(name, &errno.to_string()),
    }
    if found.more > 0 {
        let told = format!("{} more", found.more);
        found.left.push(told);
    }
    found
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
/// How names are followed where code inside may have made them: not at all, and never out.
pub const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_MAGICLINKS);
const REGULAR: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Opens a name without following anything. The program may have taken the right to look from its own files; it is dead,
/// so giving that back changes nothing.
/// While it lives it could put a link in the place of the file, and nothing is given.
fn open(directory: BorrowedFd<'_>, name: &[u8], flags: OFlags, give: Option<u32>) -> Result<OwnedFd, Errno> {
    match (openat2(directory, name, flags, Mode::empty(), BENEATH), give) {
        (Err(Errno::ACCESS), Some(mode)) => {
            chmodat(directory, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
            openat2(directory, name, flags, Mode::empty(), BENEATH)
        }
        (other, _) => other,
    }
}

impl Collected {
    fn leave(&mut self, name: &str, why: &str) {
        if self.left.len() < MOST_TOLD {
            let name = cofferdam_policy::text::short(name, 120);
            self.left.push(format!("{name}: {why}"));
        } else {
            self.more += 1;
        }
    }

    fn walk(&mut self, directory: BorrowedFd<'_>, prefix: &str, depth: usize) {
        let mut names = Vec::new();
        let entries = match Dir::read_from(directory) {
            Ok(entries) => entries,
            Err(errno) => return self.leave(prefix, &errno.to_string()),
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.names += 1;
            if self.names > MOST_NAMES {
                self.leave(prefix, "there are too many names to look at them all");
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
            return self.leave(&shown, "its name is no plain text");
        }
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => return self.leave(&shown, &errno.to_string()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth >= DEEPEST => self.leave(&shown, "it lies too deep"),
            FileType::Directory => match open(directory, name, DIRECTORY, self.dead.then_some(0o700)) {
                Ok(below) => self.walk(below.as_fd(), &format!("{shown}/"), depth + 1),
                Err(errno) => self.leave(&shown, &errno.to_string()),
            },
            FileType::RegularFile if self.since.is_some_and(|since| changed(&stat) < since) => {}
            FileType::RegularFile => match self.read(directory, name) {
                Ok(bytes) => {
                    self.newest = self.newest.max(changed(&stat));
                    let content = content(&shown, &bytes);
                    self.files.push(File { name: shown, content, bytes });
                }
                Err(why) => self.leave(&shown, &why),
            },
            FileType::Symlink => self.leave(&shown, "it is a symbolic link, and none is followed"),
            _ => self.leave(&shown, "it is no regular file"),
        }
    }

    fn read(&mut self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, String> {
        if self.files.len() >= MOST_FILES {
            return Err(format!("{MOST_FILES} files come back at most"));
        }
        let file = Opened::from(
            open(directory, name, REGULAR, self.dead.then_some(0o600)).map_err(|errno| errno.to_string())?,
        );
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        if !metadata.is_file() {
            return Err("it is no regular file".into());
        }
        let size = metadata.len();
        if size > LARGEST {
            return Err(format!("it has {size} bytes, and a file of {LARGEST} comes back at most"));
        }
        if self.bytes + size > MOST_BYTES {
            return Err(format!("all files together have more than {MOST_BYTES} bytes"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        file.take(size).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        self.bytes += bytes.len() as u64;
        Ok(bytes)
    }
}

/// When a file was changed last, from 1970 on.
fn changed(stat: &rustix::fs::Stat) -> Duration {
    let seconds = u64::try_from(stat.st_ctime).unwrap_or_default();
    Duration::new(seconds, u32::try_from(stat.st_ctime_nsec).unwrap_or_default().min(999_999_999))
}

/// What a file is: by its first bytes. A name only tells kinds of text apart.
pub fn content(name: &str, bytes: &[u8]) -> Content {
    const MAGIC: &[(&[u8], Content)] = &[
        (b"\x89PNG\r\n\x1a\n", Content::Image("image/png")),
        (b"\xff\xd8\xff", Content::Image("image/jpeg")),
        (b"GIF87a", Content::Image("image/gif")),
        (b"GIF89a", Content::Image("image/gif")),
        (b"%PDF-", Content::Other("application/pdf")),
        (b"PK\x03\x04", Content::Other("application/zip")),
        (b"\x1f\x8b", Content::Other("application/gzip")),
    ];
    if let Some((_, content)) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return content.clone();
    }
    let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')) else {
        return Content::Other("application/octet-stream");
    };
    if is_svg(text) {
        return Content::Image("image/svg+xml");
    }
    let extension = name.rsplit('/').next().unwrap_or(name).rsplit_once('.').map_or("", |(_, end)| end);
    let kind = match extension.to_ascii_lowercase().as_str() {
        "json" if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => "application/json",
        "csv" => "text/csv",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "xml" => "text/xml",
        _ => "text/plain",
    };
    if bytes.len() > LARGEST_TEXT { Content::Other(kind) } else { Content::Text(kind) }
}

/// Whether a text is an SVG document: its first element, behind what may stand before it, is `svg`.
fn is_svg(text: &str) -> bool {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    loop {
        let end = match rest {
            _ if rest.starts_with("<?") => "?>",
            _ if rest.starts_with("<!--") => "-->",
            _ if rest.starts_with("<!DOCTYPE svg") => ">",
            _ => break,
        };
        let Some((_, after)) = rest.split_once(end) else { return false };
        rest = after.trim_start();
    }
    rest.strip_prefix("<svg").is_some_and(|after| after.starts_with([' ', '>', '\n', '\t', '\r', '/']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    fn collected(make: impl FnOnce(&Path)) -> Collected {
        let root = tempfile::tempdir().unwrap();
        let output = root.path().join("output");
        std::fs::create_dir(&output).unwrap();
        make(&output);
        let fd = rustix::fs::open(root.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        collect(&fd, "output")
    }

    fn names(found: &Collected) -> Vec<&str> {
        found.files.iter().map(|file| file.name.as_str()).collect()
    }

    #[test]
    fn content_is_told_by_what_is_in_a_file_and_not_by_its_name() {
        for (name, bytes, expected) in [
            ("a.txt", &b"\x89PNG\r\n\x1a\nrest"[..], Content::Image("image/png")),
            ("a.png", b"no picture", Content::Text("text/plain")),
            ("p", b"\xff\xd8\xff\xe0", Content::Image("image/jpeg")),
            ("p", b"GIF89a", Content::Image("image/gif")),
            ("p.svg", b"<svg", Content::Text("text/plain")),
            ("p", b"<?xml version=\"1.0\"?>\n<!-- x --><svg xmlns='a'/>", Content::Image("image/svg+xml")),
            ("p.html", b"<html><svg/></html>", Content::Text("text/html")),
            ("a.json", b"{\"a\": 1}", Content::Text("application/json")),
            ("a.json", b"{\"a\": ", Content::Text("text/plain")),
            ("a/b.csv", b"1,2", Content::Text("text/csv")),
            ("a", b"x\0y", Content::Other("application/octet-stream")),
            ("a", b"\xff\xfe", Content::Other("application/octet-stream")),
            ("a", b"%PDF-1.7", Content::Other("application/pdf")),
            ("a", b"", Content::Text("text/plain")),
        ] {
            assert_eq!(content(name, bytes), expected, "{name} {bytes:?}");
        }
        assert_eq!(content("a", &vec![b'x'; LARGEST_TEXT + 1]), Content::Other("text/plain"));
    }

    #[test]
    fn files_come_back_by_name_and_hard_links_are_files() {
        let found = collected(|output| {
            std::fs::create_dir_all(output.join("sub")).unwrap();
            std::fs::write(output.join("b"), "2").unwrap();
            std::fs::write(output.join("sub/c"), "3").unwrap();
            std::fs::hard_link(output.join("b"), output.join("a")).unwrap();
        });
        assert_eq!((names(&found), found.left.len()), (vec!["a", "b", "sub/c"], 0));
        assert_eq!(found.files[0].bytes, b"2");
    }

    #[test]
    fn nothing_is_followed_and_nothing_special_is_opened() {
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
        let told = found.left.join("\n");
        for name in
            ["link: it is a symbolic link", "dirlink: it is a symbolic link", "fifo: it is no", "socket: it is no"]
        {
            assert!(told.contains(name), "{told}");
        }
    }

    #[test]
    fn a_link_in_place_of_the_directory_gives_nothing() {
        let root = tempfile::tempdir().unwrap();
        symlink("/etc", root.path().join("output")).unwrap();
        let fd = rustix::fs::open(root.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let found = collect(&fd, "output");
        assert!(found.files.is_empty() && found.left.len() == 1, "{found:?}");
        std::fs::remove_file(root.path().join("output")).unwrap();
        assert!(collect(&fd, "output").files.is_empty());
    }

    #[test]
    fn count_and_size_are_bounded_and_told() {
        let found = collected(|output| {
            for index in 0..MOST_FILES + 20 {
                std::fs::write(output.join(format!("f{index:03}")), "x").unwrap();
            }
        });
        assert_eq!((found.files.len(), found.left.len()), (MOST_FILES, MOST_TOLD + 1));
        assert_eq!(found.left.last().map(String::as_str), Some("4 more"));
        let found = collected(|output| {
            let file = Opened::create(output.join("big")).unwrap();
            file.set_len(LARGEST + 1).unwrap();
            for name in ["c", "d", "e"] {
                Opened::create(output.join(name)).unwrap().set_len(LARGEST).unwrap();
            }
        });
        assert_eq!(names(&found), ["c", "d"]);
        assert!(found.left[0].starts_with("big: it has 8388609 bytes") && found.left[1].starts_with("e: all files"));
    }

    #[test]
    fn of_what_lives_only_what_is_new_comes_back_and_no_mode_is_changed() {
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
        // At once, within a tick: what was not changed does not come back, and what was does, of the same size too.
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
    fn modes_and_strange_names_hide_nothing() {
        let found = collected(|output| {
            std::fs::create_dir(output.join("shut")).unwrap();
            std::fs::write(output.join("shut/f"), "x").unwrap();
            std::fs::set_permissions(output.join("shut/f"), std::fs::Permissions::from_mode(0o0)).unwrap();
            std::fs::set_permissions(output.join("shut"), std::fs::Permissions::from_mode(0o0)).unwrap();
            std::fs::write(output.join("line\nbreak"), "x").unwrap();
        });
        assert_eq!(names(&found), ["shut/f"]);
        assert_eq!(found.left, ["line\\nbreak: its name is no plain text"]);
    }
}
