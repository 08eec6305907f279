//! One file in or out of the workspace of a session that lives: where it may lie, and how it is opened.
//!
//! The program may change anything in there at any moment. Everything is opened by descriptor, below the workspace and
//! nowhere else: no symbolic link is followed, no other mount entered, nothing but a regular file read or replaced. A server
//! that is root does it on a thread of its own, as the workspace's owner and without a capability: what it makes is the
//! program's, and what the program may not it may not. (Root itself could not: its id means nothing in the program's user
//! namespace.) The kernel has such a process be no other's to look into from then on; it is made again what it was.

use std::fs::File as Opened;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat2, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Uid, dumpable_behavior, geteuid, set_dumpable_behavior};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::files::{BENEATH, File, LARGEST, content};

/// Largest file that goes in, bytes.
pub const LARGEST_IN: usize = 16 << 20;
/// Longest path, bytes.
const LONGEST_PATH: usize = 1024;
/// Longest name in a path, bytes: what tmpfs takes.
const LONGEST_NAME: usize = 255;
/// Most names in a path.
const DEEPEST: usize = 32;

/// Where code works, as it sees it.
pub const WORKSPACE: &str = "/workspace";

const PASSED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const MADE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A file's place below the workspace: at least one name, none of them `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(Vec<String>);

impl Place {
    /// Reads a path that is relative to the workspace, or absolute and below it.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(path: &str) -> Result<Place, String> {
        let shown = || cofferdam_policy::text::short(path, 120);
        let takes = format!("hint: a path relative to {WORKSPACE}, or one below it, such as data/table.csv");
        if path.len() > LONGEST_PATH {
            return Err(format!("the path has {} bytes, and {LONGEST_PATH} are taken at most", path.len()));
        }
        if path.chars().any(char::is_control) {
            return Err(format!("the path `{}` has a control character\n{takes}", shown()));
        }
        let below = match path.strip_prefix(WORKSPACE) {
            Some(rest) if rest.starts_with('/') => rest,
            Some("") => "",
            _ if path.starts_with('/') => {
                return Err(format!("the path `{}` is not below {WORKSPACE}\n{takes}", shown()));
            }
            _ => path,
        };
        let names: Vec<String> =
            below.split('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned).collect();
        if names.iter().any(|name| name == "..") {
            return Err(format!("the path `{}` has a `..`\n{takes}", shown()));
        }
        if names.is_empty() || below.ends_with('/') || below.ends_with("/.") {
            return Err(format!("the path `{}` names a directory and no file\n{takes}", shown()));
        }
        if names.len() > DEEPEST || names.iter().any(|name| name.len() > LONGEST_NAME) {
            return Err(format!(
                "the path `{}` goes too deep or has too long a name: {DEEPEST} names of {LONGEST_NAME} bytes at most",
                shown()
            ));
        }
        Ok(Place(names))
    }

    /// Below the workspace.
    pub fn below(&self) -> String {
        self.0.join("/")
    }

    /// As the code sees it.
    pub fn shown(&self) -> String {
        format!("{WORKSPACE}/{}", self.below())
    }

    fn parts(&self) -> (&[String], &str) {
        self.0.split_last().map_or((&[], ""), |(name, parents)| (parents, name))
    }
}

/// Writes a file, of mode 0644: whoever opens its name gets what was there before or all of this. Directories on the way that
/// are not there are made, of mode 0755. `word` is one that nobody guesses. Whether there was a file before.
///
/// # Errors
/// Why it was not written; what was there before still is.
pub fn put(root: &OwnedFd, place: &Place, bytes: &[u8], word: &str) -> Result<bool, String> {
    as_owner(root, || write(root.as_fd(), place, bytes, word))
}

/// Reads a file.
///
/// # Errors
/// Why it was not read.
pub fn get(root: &OwnedFd, place: &Place) -> Result<File, String> {
    as_owner(root, || read(root.as_fd(), place))
}

/// Does it as the owner of the workspace, on a thread that ends with it.
fn as_owner<T: Send>(root: &OwnedFd, work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    let owner = fstat(root).map_err(|errno| format!("the workspace cannot be looked at: {errno}"))?;
    if owner.st_uid == geteuid().as_raw() {
        return work();
    }
    if !geteuid().is_root() {
        return Err(format!("the workspace belongs to user {}, and this is {}", owner.st_uid, geteuid().as_raw()));
    }
    let (uid, gid) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    let become_owner = move || -> Result<(), Errno> {
        set_thread_groups(&[])?;
        // The effective ids are what files go by. The others stay: by them the owner's other processes could signal it.
        set_thread_res_gid(None::<Gid>, gid, None::<Gid>)?;
        // The last of them takes every capability out of effect with it.
        set_thread_res_uid(None::<Uid>, uid, None::<Uid>)
    };
    static BEFORE: OnceLock<Result<DumpableBehavior, Errno>> = OnceLock::new();
    let before = *BEFORE.get_or_init(dumpable_behavior);
    let done = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("cofferdam-files".into()).spawn_scoped(scope, || {
            become_owner().map_err(|errno| format!("no thread can be user {}: {errno}", owner.st_uid))?;
            work()
        });
        let thread = thread.map_err(|error| format!("no thread can be started: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("it was lost by a mistake of the server's".into()))
    });
    // The kernel takes it from the whole process when one thread's effective ids change, and gives it back to none. Another
    // such thread that is under way stays nobody's to look into: its real and saved ids are root's.
    if let Err(errno) = before.and_then(set_dumpable_behavior) {
        tracing::debug!("the server stays as it is, for nobody to look into: {errno}");
    }
    done
}

fn write(root: BorrowedFd<'_>, place: &Place, bytes: &[u8], word: &str) -> Result<bool, String> {
    let (parents, name) = place.parts();
    let mut directory: Option<OwnedFd> = None;
    for parent in parents {
        let here = directory.as_ref().map_or(root, |directory| directory.as_fd());
        directory = Some(step(here, parent, true).map_err(|errno| of_parent(here, parent, errno))?);
    }
    let here = directory.as_ref().map_or(root, |directory| directory.as_fd());
    let before = match statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            regular(FileType::from_raw_mode(stat.st_mode)).map_err(|what| format!("{} is {what}", place.shown()))?;
            true
        }
        Err(Errno::NOENT) => false,
        Err(errno) => return Err(told(place, errno)),
    };
    let temporary = format!(".upload-{word}");
    let file = openat2(here, temporary.as_str(), NEW, Mode::from_raw_mode(0o600), BENEATH);
    let mut file = Opened::from(file.map_err(|errno| told(place, errno))?);
    let written = file
        .write_all(bytes)
        .and_then(|()| Ok(fchmod(&file, Mode::from_raw_mode(0o644))?))
        .map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
        // What stands there now is replaced, and never followed.
        .and_then(|()| renameat(here, temporary.as_str(), here, name));
    written.map_err(|errno| {
        let gone = unlinkat(here, temporary.as_str(), AtFlags::empty());
        let left = gone.err().filter(|errno| *errno != Errno::NOENT);
        let left = left.map_or_else(String::new, |errno| format!("; {temporary} stays beside it: {errno}"));
        format!("{}{left}", told(place, errno))
    })?;
    Ok(before)
}

fn read(root: BorrowedFd<'_>, place: &Place) -> Result<File, String> {
    let (parents, name) = place.parts();
    let mut directory: Option<OwnedFd> = None;
    for parent in parents {
        let here = directory.as_ref().map_or(root, |directory| directory.as_fd());
        directory = Some(step(here, parent, false).map_err(|errno| match errno {
            Errno::NOENT => told(place, errno),
            _ => of_parent(here, parent, errno),
        })?);
    }
    let here = directory.as_ref().map_or(root, |directory| directory.as_fd());
    let not_regular = |what: &str| format!("{} is {what}", place.shown());
    // Before it is opened: that alone would be noticed at the other end of a FIFO.
    let stat = statat(here, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| told(place, errno))?;
    regular(FileType::from_raw_mode(stat.st_mode)).map_err(not_regular)?;
    let file = openat2(here, name, READ, Mode::empty(), BENEATH).map_err(|errno| told(place, errno))?;
    // It may have become another meanwhile.
    let stat = fstat(&file).map_err(|errno| told(place, errno))?;
    regular(FileType::from_raw_mode(stat.st_mode)).map_err(not_regular)?;
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > LARGEST {
        return Err(format!(
            "{} has {size} bytes, and a file of {LARGEST} comes back at most\nhint: have code split or compress it",
            place.shown()
        ));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    Opened::from(file).take(size).read_to_end(&mut bytes).map_err(|error| format!("{}: {error}", place.shown()))?;
    let name = place.below();
    let content = content(&name, &bytes);
    Ok(File { name, content, bytes })
}

/// Enters a directory, which is made where there is none and `make` says so.
fn step(here: BorrowedFd<'_>, name: &str, make: bool) -> Result<OwnedFd, Errno> {
    match openat2(here, name, PASSED, Mode::empty(), BENEATH) {
        Err(Errno::NOENT) if make => {}
        other => return other,
    }
    match mkdirat(here, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => {
            // By descriptor: a name could lead elsewhere by now.
            let made = openat2(here, name, MADE, Mode::empty(), BENEATH)?;
            fchmod(&made, Mode::from_raw_mode(0o755))?;
            Ok(made)
        }
        Err(Errno::EXIST) => openat2(here, name, PASSED, Mode::empty(), BENEATH),
        Err(errno) => Err(errno),
    }
}

/// What a file is that is no regular one.
fn regular(kind: FileType) -> Result<(), &'static str> {
    match kind {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err("a symbolic link, and none is followed\nhint: name the file that it leads to"),
        FileType::Directory => Err("a directory\nhint: name a file in it"),
        _ => Err("no regular file\nhint: only regular files go in and out"),
    }
}

/// Why there is no way through a directory.
fn of_parent(here: BorrowedFd<'_>, name: &str, errno: Errno) -> String {
    let kind = statat(here, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode));
    match (kind, errno) {
        (Ok(FileType::Symlink), _) => {
            format!(
                "`{name}` on the way is a symbolic link, and none is followed\nhint: name the directory that it leads to"
            )
        }
        (Ok(FileType::Directory) | Err(_), errno) => format!("`{name}` on the way cannot be entered: {}", why(errno)),
        (Ok(_), _) => format!("`{name}` on the way is no directory\nhint: choose another path, or have code remove it"),
    }
}

fn told(place: &Place, errno: Errno) -> String {
    format!("{}: {}", place.shown(), why(errno))
}

/// An error in words, with what helps where something does.
fn why(errno: Errno) -> String {
    match errno {
        Errno::NOENT => "there is no such file\nhint: `run` can list what is there".into(),
        Errno::NOSPC => {
            "the workspace is full\nhint: have code remove what is not needed; its size is the environment's tmpfs_mb"
                .into()
        }
        Errno::ACCESS | Errno::PERM => {
            "its mode, or its directory's, does not allow that\nhint: have code chmod it".into()
        }
        Errno::XDEV => "it lies on another mount than the workspace\nhint: have code copy it".into(),
        Errno::LOOP => "a symbolic link is on the way, and none is followed\nhint: name what it leads to".into(),
        errno => errno.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Content;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    fn place(path: &str) -> Place {
        Place::read(path).unwrap()
    }

    /// A workspace, and a directory beside it that nothing may reach.
    fn workspace() -> (tempfile::TempDir, OwnedFd) {
        let all = tempfile::tempdir().unwrap();
        for name in ["in", "out"] {
            std::fs::create_dir(all.path().join(name)).unwrap();
        }
        std::fs::write(all.path().join("out/secret"), "secret").unwrap();
        let root = rustix::fs::open(all.path().join("in"), PASSED, Mode::empty()).unwrap();
        (all, root)
    }

    fn fifo(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }

    #[test]
    fn paths_are_below_the_workspace_and_name_a_file() {
        for (path, below) in [
            ("a", "a"),
            ("a/b.csv", "a/b.csv"),
            ("/workspace/a", "a"),
            ("./a//b", "a/b"),
            ("workspace/a", "workspace/a"),
            ("a..b", "a..b"),
            ("..a", "..a"),
        ] {
            assert_eq!(Place::read(path).map(|place| place.below()).as_deref(), Ok(below), "{path:?}");
        }
        let (deep, long) = ("a/".repeat(DEEPEST) + "b", "x".repeat(LONGEST_NAME + 1));
        for (path, expected) in [
            ("", "names a directory"),
            ("/workspace", "names a directory"),
            ("/workspace/", "names a directory"),
            ("a/", "names a directory"),
            ("a/.", "names a directory"),
            ("..", "has a `..`"),
            ("a/../b", "has a `..`"),
            ("/workspace/../etc/passwd", "has a `..`"),
            ("/etc/passwd", "is not below"),
            ("/workspaces/a", "is not below"),
            ("a\0b", "control character"),
            ("a\nb", "control character"),
            (deep.as_str(), "goes too deep"),
            (long.as_str(), "too long a name"),
            (&"a/".repeat(600), "has 1200 bytes"),
        ] {
            assert!(Place::read(path).is_err_and(|told| told.contains(expected)), "{path:?}");
        }
    }

    #[test]
    fn what_goes_in_comes_out_with_its_modes_and_nothing_stays_beside_it() {
        let (all, root) = workspace();
        assert_eq!(put(&root, &place("a/b/c.txt"), b"one", "w"), Ok(false));
        assert_eq!(put(&root, &place("a/b/c.txt"), b"three", "w"), Ok(true));
        let file = get(&root, &place("a/b/c.txt")).unwrap();
        assert_eq!((file.bytes.as_slice(), file.content), (&b"three"[..], Content::Text("text/plain")));
        let mode = |name: &str| std::fs::metadata(all.path().join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("in/a"), mode("in/a/b"), mode("in/a/b/c.txt")), (0o755, 0o755, 0o644));
        assert_eq!(std::fs::read_dir(all.path().join("in/a/b")).unwrap().count(), 1);
    }

    #[test]
    fn who_has_the_file_open_or_another_name_for_it_keeps_what_it_was() {
        let (all, root) = workspace();
        put(&root, &place("a"), b"one", "w").unwrap();
        std::fs::hard_link(all.path().join("in/a"), all.path().join("out/a")).unwrap();
        put(&root, &place("a"), b"two", "w").unwrap();
        assert_eq!(std::fs::read(all.path().join("out/a")).unwrap(), b"one");
        assert_eq!(std::fs::read(all.path().join("in/a")).unwrap(), b"two");
    }

    #[test]
    fn links_and_special_files_are_neither_followed_nor_opened_nor_replaced() {
        let (all, root) = workspace();
        let inside = all.path().join("in");
        symlink("../out", inside.join("parent")).unwrap();
        symlink("../out/secret", inside.join("link")).unwrap();
        symlink("plain", inside.join("own")).unwrap();
        std::fs::write(inside.join("plain"), "plain").unwrap();
        std::fs::create_dir(inside.join("directory")).unwrap();
        fifo(&inside.join("fifo"));
        std::os::unix::net::UnixListener::bind(inside.join("socket")).unwrap();
        for (path, expected) in [
            ("parent/secret", "symbolic link"),
            ("parent/new", "symbolic link"),
            ("link", "symbolic link"),
            ("own", "symbolic link"),
            ("directory", "is a directory"),
            ("fifo", "no regular file"),
            ("fifo/x", "no directory"),
            ("socket", "no regular file"),
            ("plain/x", "no directory"),
        ] {
            for told in [put(&root, &place(path), b"x", "w").map(drop), get(&root, &place(path)).map(drop)] {
                let told = told.unwrap_err();
                assert!(told.contains(expected) && told.contains("hint: "), "{path}: {told}");
            }
        }
        assert_eq!(std::fs::read_dir(all.path().join("out")).unwrap().count(), 1);
        assert_eq!(std::fs::read(all.path().join("out/secret")).unwrap(), b"secret");
        // The same name, the same call, and no link: both ways work.
        assert_eq!(put(&root, &place("plain"), b"new", "w"), Ok(true));
        assert_eq!(get(&root, &place("plain")).unwrap().bytes, b"new");
        let missing = get(&root, &place("none")).unwrap_err();
        assert!(missing.contains("no such file") && missing.contains("hint: "), "{missing}");
        assert!(get(&root, &place("none/a")).unwrap_err().contains("no such file"));
        assert!(!inside.join("none").exists(), "reading makes no directory");
    }

    #[test]
    fn a_file_that_stands_in_for_the_new_one_is_not_written_to() {
        let (all, root) = workspace();
        symlink("../out/secret", all.path().join("in/.upload-w")).unwrap();
        assert!(put(&root, &place("a"), b"x", "w").is_err());
        assert_eq!(std::fs::read(all.path().join("out/secret")).unwrap(), b"secret");
        assert_eq!(put(&root, &place("a"), b"x", "another"), Ok(false));
    }

    #[test]
    fn what_is_too_large_does_not_come_out() {
        let (all, root) = workspace();
        let file = Opened::create(all.path().join("in/big")).unwrap();
        file.set_len(LARGEST + 1).unwrap();
        assert!(get(&root, &place("big")).is_err_and(|told| told.contains("8388609 bytes")));
        file.set_len(LARGEST).unwrap();
        assert_eq!(get(&root, &place("big")).map(|file| file.bytes.len() as u64), Ok(LARGEST));
    }

    #[test]
    fn root_does_it_as_the_owner_and_has_its_rights_back() {
        if !geteuid().is_root() {
            return; // whoever is not root is the owner, or refused
        }
        let (all, root) = workspace();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(all.path(), open).unwrap();
        std::os::unix::fs::chown(all.path().join("in"), Some(65533), Some(65532)).unwrap();
        put(&root, &place("d/a"), b"x", "w").unwrap();
        for name in ["in/d", "in/d/a"] {
            let stat = rustix::fs::stat(all.path().join(name)).unwrap();
            assert_eq!((stat.st_uid, stat.st_gid), (65533, 65532), "{name}");
        }
        assert_eq!(get(&root, &place("d/a")).unwrap().bytes, b"x");
        // Root itself could read this one, and the program could not.
        std::fs::write(all.path().join("in/roots"), "x").unwrap();
        std::fs::set_permissions(all.path().join("in/roots"), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(get(&root, &place("roots")).is_err_and(|told| told.contains("does not allow that")));
        assert!(geteuid().is_root() && std::fs::read(all.path().join("in/roots")).is_ok());
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable), "the process is what it was");
    }
}
