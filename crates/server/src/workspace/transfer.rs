//! Writes one file into the workspace of a live session, or reads one from it.
//!
//! The untrusted program may change the workspace at any moment. Every path is opened by descriptor below the workspace: no
//! symbolic link is followed, no other mount entered, and only regular files are read or replaced. If the server is root, a
//! thread of its own does it with the ids of the workspace's owner and without capabilities: files it creates belong to the
//! program, and it has no more access than the program. (Root itself has no access: its id is not mapped in the program's user
//! namespace.) The change of ids makes the process non-dumpable, so it is made dumpable again afterwards.

use std::fs::File as Opened;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat2, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Uid, dumpable_behavior, geteuid, set_dumpable_behavior};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::media_type::media_type;
use super::output::{BENEATH, MAX_FILE_BYTES, WorkspaceFile};

/// Largest file that is written, bytes.
pub(crate) const MAX_UPLOAD_BYTES: usize = 16 << 20;
/// Longest path, bytes.
const MAX_PATH_BYTES: usize = 1024;
/// Longest name in a path, bytes: the limit of tmpfs.
const MAX_NAME_BYTES: usize = 255;
/// Most names in a path.
const MAX_DEPTH: usize = 32;

/// The path of the workspace inside the sandbox.
pub(crate) const WORKSPACE: &str = "/workspace";

const ANY_DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const NEW_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const READ_FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const NEW_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The path of a file below the workspace: at least one name, none of them `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspacePath(Vec<String>);

impl WorkspacePath {
    /// Parses a path that is relative to the workspace, or absolute and below it.
    ///
    /// # Errors
    /// Why it is not such a path.
    pub(crate) fn parse(path: &str) -> Result<WorkspacePath, String> {
        let shown = || cofferdam_policy::text::short(path, 120);
        let accepted = format!("hint: a path relative to {WORKSPACE}, or one below it, such as data/table.csv");
        if path.len() > MAX_PATH_BYTES {
            return Err(format!("the path has {} bytes, and {MAX_PATH_BYTES} are taken at most", path.len()));
        }
        if path.chars().any(char::is_control) {
            return Err(format!("the path `{}` has a control character\n{accepted}", shown()));
        }
        let below = match path.strip_prefix(WORKSPACE) {
            Some(rest) if rest.starts_with('/') => rest,
            Some("") => "",
            _ if path.starts_with('/') => {
                return Err(format!("the path `{}` is not below {WORKSPACE}\n{accepted}", shown()));
            }
            _ => path,
        };
        let names: Vec<String> =
            below.split('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned).collect();
        if names.iter().any(|name| name == "..") {
            return Err(format!("the path `{}` has a `..`\n{accepted}", shown()));
        }
        if names.is_empty() || below.ends_with('/') || below.ends_with("/.") {
            return Err(format!("the path `{}` names a directory and no file\n{accepted}", shown()));
        }
        if names.len() > MAX_DEPTH || names.iter().any(|name| name.len() > MAX_NAME_BYTES) {
            return Err(format!(
                "the path `{}` goes too deep or has too long a name: {MAX_DEPTH} names of {MAX_NAME_BYTES} bytes at most",
                shown()
            ));
        }
        Ok(WorkspacePath(names))
    }

    /// The path relative to the workspace.
    pub(crate) fn relative(&self) -> String {
        self.0.join("/")
    }

    /// The path inside the sandbox.
    pub(crate) fn absolute(&self) -> String {
        format!("{WORKSPACE}/{}", self.relative())
    }

    fn parts(&self) -> (&[String], &str) {
        self.0.split_last().map_or((&[], ""), |(name, parents)| (parents, name))
    }
}

/// Writes a file of mode 0644 atomically: a reader gets the previous file or the whole new one. Missing directories are created
/// with mode 0755. `random` names the temporary file and must be unguessable. Returns whether a file was replaced.
///
/// # Errors
/// Why it was not written. The previous file is unchanged.
pub(crate) fn write_file(root: &OwnedFd, path: &WorkspacePath, bytes: &[u8], random: &str) -> Result<bool, String> {
    as_owner(root, || write(root.as_fd(), path, bytes, random))
}

/// Reads a file.
///
/// # Errors
/// Why it was not read.
pub(crate) fn read_file(root: &OwnedFd, path: &WorkspacePath) -> Result<WorkspaceFile, String> {
    as_owner(root, || read(root.as_fd(), path))
}

/// Does `work` with the ids of the workspace's owner, on a thread that ends afterwards.
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
        // Effective ids determine file access. The others stay root's, so that the owner's processes cannot signal the thread.
        set_thread_res_gid(None::<Gid>, gid, None::<Gid>)?;
        // Changing the effective user id clears the effective capabilities.
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
    // A change of one thread's effective ids makes the whole process non-dumpable, and the kernel does not undo it. Another such
    // thread in progress stays protected from ptrace: its real and saved ids are root's.
    if let Err(errno) = before.and_then(set_dumpable_behavior) {
        tracing::debug!("the server stays non-dumpable: {errno}");
    }
    done
}

fn write(root: BorrowedFd<'_>, path: &WorkspacePath, bytes: &[u8], random: &str) -> Result<bool, String> {
    let (parents, name) = path.parts();
    let mut directory: Option<OwnedFd> = None;
    for parent in parents {
        let here = directory.as_ref().map_or(root, |directory| directory.as_fd());
        directory = Some(step(here, parent, true).map_err(|errno| parent_error(here, parent, errno))?);
    }
    let here = directory.as_ref().map_or(root, |directory| directory.as_fd());
    let before = match statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            regular(FileType::from_raw_mode(stat.st_mode)).map_err(|what| format!("{} is {what}", path.absolute()))?;
            true
        }
        Err(Errno::NOENT) => false,
        Err(errno) => return Err(file_error(path, errno)),
    };
    let temporary = format!(".upload-{random}");
    let file = openat2(here, temporary.as_str(), NEW_FILE, Mode::from_raw_mode(0o600), BENEATH);
    let mut file = Opened::from(file.map_err(|errno| file_error(path, errno))?);
    let written = file
        .write_all(bytes)
        .and_then(|()| Ok(fchmod(&file, Mode::from_raw_mode(0o644))?))
        .map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
        // An existing name is replaced, and never followed.
        .and_then(|()| renameat(here, temporary.as_str(), here, name));
    written.map_err(|errno| {
        let gone = unlinkat(here, temporary.as_str(), AtFlags::empty());
        let left = gone.err().filter(|errno| *errno != Errno::NOENT);
        let left = left.map_or_else(String::new, |errno| format!("; {temporary} stays beside it: {errno}"));
        format!("{}{left}", file_error(path, errno))
    })?;
    Ok(before)
}

fn read(root: BorrowedFd<'_>, path: &WorkspacePath) -> Result<WorkspaceFile, String> {
    let (parents, name) = path.parts();
    let mut directory: Option<OwnedFd> = None;
    for parent in parents {
        let here = directory.as_ref().map_or(root, |directory| directory.as_fd());
        directory = Some(step(here, parent, false).map_err(|errno| match errno {
            Errno::NOENT => file_error(path, errno),
            _ => parent_error(here, parent, errno),
        })?);
    }
    let here = directory.as_ref().map_or(root, |directory| directory.as_fd());
    let not_regular = |what: &str| format!("{} is {what}", path.absolute());
    // Checked before opening, which alone would be noticed at the other end of a FIFO.
    let stat = statat(here, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| file_error(path, errno))?;
    regular(FileType::from_raw_mode(stat.st_mode)).map_err(not_regular)?;
    let file = openat2(here, name, READ_FILE, Mode::empty(), BENEATH).map_err(|errno| file_error(path, errno))?;
    // The name may have been replaced meanwhile.
    let stat = fstat(&file).map_err(|errno| file_error(path, errno))?;
    regular(FileType::from_raw_mode(stat.st_mode)).map_err(not_regular)?;
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > MAX_FILE_BYTES {
        return Err(format!(
            "{} has {size} bytes, and a file of {MAX_FILE_BYTES} comes back at most\nhint: have code split or compress it",
            path.absolute()
        ));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    Opened::from(file).take(size).read_to_end(&mut bytes).map_err(|error| format!("{}: {error}", path.absolute()))?;
    let name = path.relative();
    let media_type = media_type(&name, &bytes);
    Ok(WorkspaceFile { name, media_type, bytes })
}

/// Opens a directory, creating it with `create` if it does not exist.
fn step(here: BorrowedFd<'_>, name: &str, create: bool) -> Result<OwnedFd, Errno> {
    match openat2(here, name, ANY_DIRECTORY, Mode::empty(), BENEATH) {
        Err(Errno::NOENT) if create => {}
        other => return other,
    }
    match mkdirat(here, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => {
            // By descriptor, since the name may have been replaced.
            let created = openat2(here, name, NEW_DIRECTORY, Mode::empty(), BENEATH)?;
            fchmod(&created, Mode::from_raw_mode(0o755))?;
            Ok(created)
        }
        Err(Errno::EXIST) => openat2(here, name, ANY_DIRECTORY, Mode::empty(), BENEATH),
        Err(errno) => Err(errno),
    }
}

/// What a file is, as the error, if it is not a regular one.
fn regular(kind: FileType) -> Result<(), &'static str> {
    match kind {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err("a symbolic link, and none is followed\nhint: name the file that it leads to"),
        FileType::Directory => Err("a directory\nhint: name a file in it"),
        _ => Err("no regular file\nhint: only regular files go in and out"),
    }
}

/// Why a directory of the path cannot be entered.
fn parent_error(here: BorrowedFd<'_>, name: &str, errno: Errno) -> String {
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

fn file_error(path: &WorkspacePath, errno: Errno) -> String {
    format!("{}: {}", path.absolute(), why(errno))
}

/// An error's description, with a hint if there is one.
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
    use super::super::media_type::MediaType;
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    fn at(path: &str) -> WorkspacePath {
        WorkspacePath::parse(path).unwrap()
    }

    /// A workspace, and a directory beside it that must stay out of reach.
    fn workspace() -> (tempfile::TempDir, OwnedFd) {
        let all = tempfile::tempdir().unwrap();
        for name in ["in", "out"] {
            std::fs::create_dir(all.path().join(name)).unwrap();
        }
        std::fs::write(all.path().join("out/secret"), "secret").unwrap();
        let root = rustix::fs::open(all.path().join("in"), ANY_DIRECTORY, Mode::empty()).unwrap();
        (all, root)
    }

    fn fifo(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }

    #[test]
    fn paths_must_be_below_the_workspace_and_name_a_file() {
        for (path, below) in [
            ("a", "a"),
            ("a/b.csv", "a/b.csv"),
            ("/workspace/a", "a"),
            ("./a//b", "a/b"),
            ("workspace/a", "workspace/a"),
            ("a..b", "a..b"),
            ("..a", "..a"),
        ] {
            assert_eq!(WorkspacePath::parse(path).map(|path| path.relative()).as_deref(), Ok(below), "{path:?}");
        }
        let (deep, long) = ("a/".repeat(MAX_DEPTH) + "b", "x".repeat(MAX_NAME_BYTES + 1));
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
            assert!(WorkspacePath::parse(path).is_err_and(|error| error.contains(expected)), "{path:?}");
        }
    }

    #[test]
    fn written_file_reads_back_with_its_mode_and_no_temporary() {
        let (all, root) = workspace();
        assert_eq!(write_file(&root, &at("a/b/c.txt"), b"one", "w"), Ok(false));
        assert_eq!(write_file(&root, &at("a/b/c.txt"), b"three", "w"), Ok(true));
        let file = read_file(&root, &at("a/b/c.txt")).unwrap();
        assert_eq!((file.bytes.as_slice(), file.media_type), (&b"three"[..], MediaType::Text("text/plain")));
        let mode = |name: &str| std::fs::metadata(all.path().join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("in/a"), mode("in/a/b"), mode("in/a/b/c.txt")), (0o755, 0o755, 0o644));
        assert_eq!(std::fs::read_dir(all.path().join("in/a/b")).unwrap().count(), 1);
    }

    #[test]
    fn replacing_a_file_leaves_its_other_hard_links_unchanged() {
        let (all, root) = workspace();
        write_file(&root, &at("a"), b"one", "w").unwrap();
        std::fs::hard_link(all.path().join("in/a"), all.path().join("out/a")).unwrap();
        write_file(&root, &at("a"), b"two", "w").unwrap();
        assert_eq!(std::fs::read(all.path().join("out/a")).unwrap(), b"one");
        assert_eq!(std::fs::read(all.path().join("in/a")).unwrap(), b"two");
    }

    #[test]
    fn links_and_special_files_are_refused_in_both_directions() {
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
            for result in [write_file(&root, &at(path), b"x", "w").map(drop), read_file(&root, &at(path)).map(drop)] {
                let error = result.unwrap_err();
                assert!(error.contains(expected) && error.contains("hint: "), "{path}: {error}");
            }
        }
        assert_eq!(std::fs::read_dir(all.path().join("out")).unwrap().count(), 1);
        assert_eq!(std::fs::read(all.path().join("out/secret")).unwrap(), b"secret");
        // The positive control: without a link, both directions work.
        assert_eq!(write_file(&root, &at("plain"), b"new", "w"), Ok(true));
        assert_eq!(read_file(&root, &at("plain")).unwrap().bytes, b"new");
        let missing = read_file(&root, &at("none")).unwrap_err();
        assert!(missing.contains("no such file") && missing.contains("hint: "), "{missing}");
        assert!(read_file(&root, &at("none/a")).unwrap_err().contains("no such file"));
        assert!(!inside.join("none").exists(), "reading makes no directory");
    }

    #[test]
    fn planted_temporary_file_is_not_written_to() {
        let (all, root) = workspace();
        symlink("../out/secret", all.path().join("in/.upload-w")).unwrap();
        assert!(write_file(&root, &at("a"), b"x", "w").is_err());
        assert_eq!(std::fs::read(all.path().join("out/secret")).unwrap(), b"secret");
        assert_eq!(write_file(&root, &at("a"), b"x", "another"), Ok(false));
    }

    #[test]
    fn oversized_file_is_not_read() {
        let (all, root) = workspace();
        let file = Opened::create(all.path().join("in/big")).unwrap();
        file.set_len(MAX_FILE_BYTES + 1).unwrap();
        assert!(read_file(&root, &at("big")).is_err_and(|error| error.contains("8388609 bytes")));
        file.set_len(MAX_FILE_BYTES).unwrap();
        assert_eq!(read_file(&root, &at("big")).map(|file| file.bytes.len() as u64), Ok(MAX_FILE_BYTES));
    }

    #[test]
    fn root_acts_as_the_owner_and_regains_its_rights() {
        if !geteuid().is_root() {
            return; // an unprivileged server is the owner, or is refused
        }
        let (all, root) = workspace();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(all.path(), open).unwrap();
        std::os::unix::fs::chown(all.path().join("in"), Some(65533), Some(65532)).unwrap();
        write_file(&root, &at("d/a"), b"x", "w").unwrap();
        for name in ["in/d", "in/d/a"] {
            let stat = rustix::fs::stat(all.path().join(name)).unwrap();
            assert_eq!((stat.st_uid, stat.st_gid), (65533, 65532), "{name}");
        }
        assert_eq!(read_file(&root, &at("d/a")).unwrap().bytes, b"x");
        // Root itself could read this file, and the program could not.
        std::fs::write(all.path().join("in/roots"), "x").unwrap();
        std::fs::set_permissions(all.path().join("in/roots"), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read_file(&root, &at("roots")).is_err_and(|error| error.contains("does not allow that")));
        assert!(geteuid().is_root() && std::fs::read(all.path().join("in/roots")).is_ok());
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable), "the process is dumpable again");
    }
}
