//! A directory tree of ours that is to become a container's root: what is made in it stays in it, whatever links are there.
//!
//! Paths are resolved by the kernel with the tree as their root, so that a link of its own leads where it would lead inside.
//! Never follows a link out, never changes what is there already.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2, symlinkat};
use rustix::io::Errno;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum There {
    /// Nothing.
    Missing,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// The tree.
#[derive(Debug)]
pub(super) struct RootfsTree {
    root: OwnedFd,
}

impl RootfsTree {
    /// Opens one. The path itself is followed as it stands: it is the caller's.
    ///
    /// # Errors
    /// It is no directory, or cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<RootfsTree> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(RootfsTree { root: rustix::fs::openat(CWD, path, flags, Mode::empty())? })
    }

    fn inside(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let relative = match path.trim_start_matches('/') {
            "" => ".",
            relative => relative,
        };
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        loop {
            match openat2(&self.root, relative, flags | OFlags::CLOEXEC, Mode::empty(), how) {
                Err(Errno::AGAIN | Errno::INTR) => {} // something was renamed meanwhile
                other => return other,
            }
        }
    }

    /// What is at an absolute path inside, its links followed.
    ///
    /// # Errors
    /// It cannot be told.
    pub(super) fn there(&self, path: &str) -> io::Result<There> {
        let found = match self.inside(path, OFlags::PATH) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(There::Missing),
            Err(e) => return Err(e.into()),
        };
        let kind = FileType::from_raw_mode(fstat(&found)?.st_mode);
        Ok(if kind == FileType::Directory { There::Directory } else { There::Other })
    }

    /// Whether something at a path holds up who opens it: a FIFO.
    ///
    /// # Errors
    /// It cannot be told.
    pub(super) fn is_fifo(&self, path: &str) -> io::Result<bool> {
        match self.inside(path, OFlags::PATH) {
            Ok(found) => Ok(FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Fifo),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// What the symbolic link at a path says, on the way to which there is none.
    ///
    /// # Errors
    /// It cannot be told, or is no text.
    pub(super) fn link_at(&self, path: &str) -> io::Result<Option<String>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let found = match openat2(&self.root, path.trim_start_matches('/'), flags, Mode::empty(), how) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Symlink {
            return Ok(None);
        }
        let says = rustix::fs::readlinkat(&found, "", Vec::new())?;
        says.into_string().map(Some).map_err(|_| io::Error::other("a link says what is no text"))
    }

    /// The permissions of what is at a path.
    ///
    /// # Errors
    /// There is nothing, or it cannot be told.
    pub(super) fn mode(&self, path: &str) -> io::Result<u32> {
        Ok(fstat(self.inside(path, OFlags::PATH)?)?.st_mode & 0o7777)
    }

    /// Sets the permissions of a directory in a tree of ours.
    ///
    /// # Errors
    /// There is none, or it is not ours.
    pub(super) fn set_mode(&self, path: &str, mode: u32) -> io::Result<()> {
        let at = self.inside(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(rustix::fs::fchmod(at, Mode::from_raw_mode(mode))?)
    }

    /// Whether a directory holds nothing; one that is missing holds nothing either.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn is_empty(&self, path: &str) -> io::Result<bool> {
        let dir = match self.inside(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(true),
            Err(Errno::NOTDIR) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        for entry in rustix::fs::Dir::read_from(dir)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes sure that a directory is there, with those above it. `mode` is that of one that is made.
    ///
    /// # Errors
    /// Something else is there, or it cannot be made.
    pub(super) fn directory(&self, path: &str, mode: u32) -> io::Result<OwnedFd> {
        let mut at = self.root.as_fd().try_clone_to_owned()?;
        let mut so_far = String::new();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        for (i, part) in parts.iter().enumerate() {
            if matches!(*part, "." | "..") {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            so_far = format!("{so_far}/{part}");
            at = match self.inside(&so_far, OFlags::PATH | OFlags::DIRECTORY) {
                Err(Errno::NOENT) => {
                    let last = i + 1 == parts.len();
                    match mkdirat(&at, *part, Mode::from_raw_mode(0o700)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(e) => return Err(e.into()),
                    }
                    // Whatever the umask is. By its descriptor: what was missing inside may be a link to what this host has.
                    let mode = Mode::from_raw_mode(if last { mode } else { 0o755 });
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    rustix::fs::fchmod(rustix::fs::openat(&at, *part, flags, Mode::empty())?, mode)?;
                    self.inside(&so_far, OFlags::PATH | OFlags::DIRECTORY)?
                }
                other => other?,
            };
        }
        Ok(at)
    }

    /// Makes sure that something that is no directory is there; an empty file where nothing is.
    ///
    /// # Errors
    /// A directory is there, or it cannot be made.
    pub(super) fn file(&self, path: &str) -> io::Result<()> {
        match self.there(path)? {
            There::Other => Ok(()),
            There::Directory => Err(Errno::ISDIR.into()),
            There::Missing => {
                let (parent, name) = self.parent(path)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644));
                match made {
                    Ok(_) | Err(Errno::EXIST) => Ok(()), // another run needs it, too
                    Err(e) => Err(e.into()),
                }
            }
        }
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Something is there, or it cannot be made.
    pub(super) fn link(&self, path: &str, says: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(symlinkat(says, &parent, name)?)
    }

    fn parent<'p>(&self, path: &'p str) -> io::Result<(OwnedFd, &'p str)> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        if matches!(name, "" | "." | "..") {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok((self.directory(above, 0o755)?, name))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_where_they_would_inside_and_never_out() {
        let outside = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("usr/lib")).unwrap();
        symlink("/usr/lib", dir.path().join("lib")).unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        symlink("../../../../../..", dir.path().join("up")).unwrap();
        let tree = RootfsTree::open(dir.path()).unwrap();
        tree.directory("/lib/made/deep", 0o755).unwrap();
        assert!(dir.path().join("usr/lib/made/deep").is_dir(), "an absolute link is one of the tree");
        tree.directory("/up/here", 0o755).unwrap();
        assert!(dir.path().join("here").is_dir());
        // What the link names is not in the tree: nothing is made in its place, and nothing behind it.
        assert!(tree.directory("/out/made", 0o755).is_err());
        assert!(tree.file("/out/file").is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        assert!(tree.directory("/a/../../b", 0o755).is_err());
    }

    #[test]
    fn a_link_to_what_only_the_host_has_gives_nothing_of_the_host_another_mode() {
        use std::os::unix::fs::PermissionsExt;
        let outside = tempfile::tempdir().unwrap();
        let file = outside.path().join("file");
        std::fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(outside.path(), 0o700);
        set(&file, 0o600);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let dir = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join("to-directory")).unwrap();
        symlink(&file, dir.path().join("to-file")).unwrap();
        let tree = RootfsTree::open(dir.path()).unwrap();
        for path in ["/to-directory", "/to-file", "/to-directory/below", "/to-file/below"] {
            assert!(tree.directory(path, 0o1777).is_err(), "{path}");
            assert!(tree.set_mode(path, 0o1777).is_err(), "{path}");
        }
        assert_eq!((mode(outside.path()), mode(&file)), (0o700, 0o600));
        // The twin.
        tree.directory("/own/deep", 0o1777).unwrap();
        assert_eq!((mode(&dir.path().join("own")), mode(&dir.path().join("own/deep"))), (0o755, 0o1777));
    }

    #[test]
    fn what_is_there_stays_and_what_is_missing_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let tree = RootfsTree::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("file"), "kept").unwrap();
        tree.file("/file").unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("file")).unwrap(), "kept");
        tree.file("/etc/new").unwrap();
        tree.link("/bin", "usr/bin").unwrap();
        assert_eq!(std::fs::read_link(dir.path().join("bin")).unwrap(), Path::new("usr/bin"));
        assert_eq!(tree.there("/etc").unwrap(), There::Directory);
        assert_eq!(tree.there("/etc/new").unwrap(), There::Other);
        assert_eq!(tree.there("/etc/other").unwrap(), There::Missing);
        assert!(tree.file("/etc").is_err() && tree.directory("/file", 0o755).is_err());
        assert!(!tree.is_empty("/etc").unwrap() && tree.is_empty("/none").unwrap());
        tree.directory("/tmp", 0o1777).unwrap();
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(dir.path().join("tmp")).unwrap().permissions().mode() & 0o7777, 0o1777);
        assert!(tree.is_empty("/tmp").unwrap());
    }

    #[test]
    fn a_link_is_read_and_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        symlink("/etc", dir.path().join("out")).unwrap();
        symlink("passwd", dir.path().join("real/deep")).unwrap();
        let tree = RootfsTree::open(dir.path()).unwrap();
        assert_eq!(tree.link_at("/out").unwrap().as_deref(), Some("/etc"));
        assert_eq!(tree.link_at("/real/deep").unwrap().as_deref(), Some("passwd"));
        assert_eq!((tree.link_at("/real").unwrap(), tree.link_at("/none/deep").unwrap()), (None, None));
        assert!(tree.link_at("/out/passwd").is_err());
    }
}
