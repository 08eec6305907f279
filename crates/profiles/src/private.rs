//! Private directories: created for the user alone, opened once, and used by descriptor from then on.

use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, fsync, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// The prefix of temporary files, followed by the process id and a number.
pub(crate) const TEMPORARY: &str = ".tmp-";

/// Opens a directory. Creates it and missing ancestors for the user alone.
///
/// # Errors
/// It cannot be created or opened.
pub fn open_or_make(path: &Path) -> Result<OwnedFd> {
    match open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened,
    }
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    open(path)
}

/// Opens an existing directory.
///
/// # Errors
/// It does not exist, or is not a directory.
pub fn open(path: &Path) -> Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory below another one, without following a link.
///
/// # Errors
/// It does not exist, or is not a directory.
pub fn open_below(parent: impl AsFd, name: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Opens a directory below another one, creating it for the user alone if it does not exist.
///
/// # Errors
/// It cannot be created or opened.
pub fn make_below(parent: impl AsFd, name: &str) -> Result<OwnedFd> {
    match mkdirat(parent.as_fd(), name, Mode::RWXU) {
        Err(error) if error != rustix::io::Errno::EXIST => Err(error.into()),
        _ => open_below(parent, name),
    }
}

/// Opens a regular file below a directory for reading, without following a link, and without blocking on a FIFO.
///
/// # Errors
/// It does not exist, or is not a regular file.
pub fn open_file(directory: impl AsFd, name: &str) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// Whether this name in a directory is a symbolic link. Only messages depend on it: opening refuses links by itself.
pub(crate) fn is_link(directory: impl AsFd, name: &str) -> bool {
    rustix::fs::readlinkat(directory, name, Vec::new()).is_ok()
}

/// Which other users could have written to an open file or directory; `None` if there are none.
///
/// # Errors
/// fstat(2) failed.
pub fn others_write(fd: impl AsFd) -> Result<Option<String>> {
    let stat = fstat(&fd)?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if let Some(why) = writer((stat.st_uid, stat.st_gid, stat.st_mode), user, group) {
        return Ok(Some(why));
    }
    // With an access control list the group's bits are the most that it gives to another user: acl(5).
    let listed = stat.st_mode & 0o020 != 0 && has_access_list(fd.as_fd())?;
    Ok(listed.then(|| "an access control list lets others write to it".to_owned()))
}

/// Whether a file has an access control list. Also of a descriptor that is only a place.
fn has_access_list(fd: BorrowedFd<'_>) -> Result<bool> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0u8; 0]) {
        Ok(_) | Err(Errno::RANGE) => Ok(true),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Which other users can write to a file of this owner, group and mode. The caller's own group is assumed to have no other members,
/// as with user private groups.
fn writer((owner, group, mode): (u32, u32, u32), user: u32, own_group: u32) -> Option<String> {
    if owner != user && owner != 0 {
        Some(format!("it belongs to user {owner}"))
    } else if mode & 0o002 != 0 {
        Some("everybody can write to it".to_owned())
    } else if mode & 0o020 != 0 && group != own_group && group != 0 {
        Some(format!("group {group} can write to it"))
    } else {
        None
    }
}

/// Replaces a file atomically: writes a temporary file, synchronises it if requested, and renames it.
///
/// # Errors
/// It cannot be written; the previous file is unchanged.
pub fn replace(directory: impl AsFd, name: &str, bytes: &[u8], sync: bool) -> Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let directory = directory.as_fd();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = format!("{TEMPORARY}{}-{number}", std::process::id());
    let written = write_new(directory, &temporary, bytes, sync)
        .and_then(|()| Ok(renameat(directory, &temporary, directory, name)?));
    if written.is_err() {
        // The first error is returned; the temporary file may not exist.
        unlinkat(directory, &temporary, AtFlags::empty()).ok();
    }
    written
}

fn write_new(directory: BorrowedFd<'_>, name: &str, bytes: &[u8], sync: bool) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(bytes)?;
    if sync {
        fsync(&file)?;
    }
    Ok(())
}

/// The names in a directory that are valid UTF-8, without `.` and `..`.
///
/// # Errors
/// It cannot be read.
pub fn names(directory: impl AsFd) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        if let Ok(name) = entry?.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{others_write, writer};

    #[test]
    fn an_access_control_list_that_lets_others_write_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let opened = || {
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap()
        };
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o660);
        assert_eq!(others_write(opened()).unwrap(), None, "the control: a group of one's own");
        // Version 2; owner rw, user 12345 rw, group r, mask rw, others nothing.
        let entries =
            [(1u16, 6u16, u32::MAX), (2, 6, 12345), (4, 4, u32::MAX), (0x10, 6, u32::MAX), (0x20, 0, u32::MAX)];
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
            list.extend(id.to_le_bytes());
        }
        let written = rustix::fs::setxattr(&path, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty());
        if written == Err(rustix::io::Errno::NOTSUP) {
            return; // the file system has none, so no file here has one
        }
        written.unwrap();
        assert!(others_write(opened()).unwrap().is_some_and(|why| why.contains("access control list")));
        set(0o640); // the mask
        assert_eq!(others_write(opened()).unwrap(), None, "only the owner can write");
    }

    #[test]
    fn only_the_user_and_the_system_are_trusted_to_write() {
        let (me, mine, other) = (1000, 1000, 50);
        for (owner, group, mode) in
            [(me, mine, 0o700), (me, mine, 0o775), (me, other, 0o755), (0, 0, 0o775), (me, 0, 0o770)]
        {
            assert_eq!(writer((owner, group, mode), me, mine), None, "{owner} {group} {mode:o}");
        }
        for (owner, group, mode, word) in [
            (me, other, 0o770, "group 50"),
            (0, other, 0o775, "group 50"),
            (me, mine, 0o702, "everybody"),
            (other, mine, 0o700, "user 50"),
        ] {
            assert!(writer((owner, group, mode), me, mine).unwrap().contains(word), "{owner} {group} {mode:o}");
        }
    }
}
