//! Directories of our own: made for the user alone, opened once, and used by descriptor from then on.

use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, fsync, mkdirat, openat, renameat, unlinkat};

/// How temporary files begin: the rest is the process and a number.
pub const TEMPORARY: &str = ".tmp-";

/// Opens a directory, and makes it and what is missing above it for the user alone.
///
/// # Errors
/// It cannot be made or opened.
pub fn open_or_make(path: &Path) -> Result<OwnedFd> {
    match open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened,
    }
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    open(path)
}

/// Opens a directory that is there.
///
/// # Errors
/// It is not there, or no directory.
pub fn open(path: &Path) -> Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory below another one; never a link.
///
/// # Errors
/// It is not there, or no directory.
pub fn open_below(parent: impl AsFd, name: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// Makes a directory below another one for the user alone, unless it is there, and opens it.
///
/// # Errors
/// It cannot be made or opened.
pub fn make_below(parent: impl AsFd, name: &str) -> Result<OwnedFd> {
    match mkdirat(parent.as_fd(), name, Mode::RWXU) {
        Err(error) if error != rustix::io::Errno::EXIST => Err(error.into()),
        _ => open_below(parent, name),
    }
}

/// Opens a regular file below a directory for reading; never a link, and never waiting for a pipe's writer.
///
/// # Errors
/// It is not there, or no regular file.
pub fn open_file(directory: impl AsFd, name: &str) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// Whether this name in a directory is a symbolic link. Only words depend on it: opening refuses links by itself.
pub fn is_link(directory: impl AsFd, name: &str) -> bool {
    rustix::fs::readlinkat(directory, name, Vec::new()).is_ok()
}

/// Whether somebody else could have written what an open file or directory holds, and who that is.
///
/// # Errors
/// The descriptor cannot be asked.
pub fn others_write(fd: impl AsFd) -> Result<Option<String>> {
    let stat = fstat(fd)?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Ok(writer((stat.st_uid, stat.st_gid, stat.st_mode), user, group))
}

/// Who else can write to what has this owner, group and mode. The caller's own group is taken as the caller's alone, as
/// where every user has one.
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

/// Puts a whole file in its place, or nothing: written beside it, synchronised if asked, and renamed.
///
/// # Errors
/// It cannot be written; what was there before is untouched.
pub fn replace(directory: impl AsFd, name: &str, bytes: &[u8], sync: bool) -> Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let directory = directory.as_fd();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = format!("{TEMPORARY}{}-{number}", std::process::id());
    let written = write_new(directory, &temporary, bytes, sync)
        .and_then(|()| Ok(renameat(directory, &temporary, directory, name)?));
    if written.is_err() {
        // The first error is the one to tell; the temporary file may not even exist.
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
    use super::writer;

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
