//! Mounts that a privileged owner prepares before clone: detached, with owners mapped where files must be usable.
//!
//! As root the sandbox runs under an unprivileged id of the host. What it is given then has to be mapped: on this mount
//! alone, the directory's own owner appears as the sandbox's user, so nothing has to be chowned and no other files
//! become accessible. A file system that cannot do that (ENOTSUP, EINVAL) is reported, not worked around.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::uapi::*;
use crate::{clone, sys};

/// A detached copy of the tree at this descriptor.
///
/// # Errors
/// open_tree(2).
pub fn clone_tree(at: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE;
    let fd = sys::open_tree(at.as_raw_fd(), c"".as_ptr().cast(), flags).map_err(io::Error::from_raw_os_error)?;
    // SAFETY: open_tree returned a new descriptor that is ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Maps owners on a detached mount through this user namespace, recursively where every mount below can do it.
///
/// # Errors
/// mount_setattr(2): the file system cannot map owners.
pub fn map_owners(tree: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> io::Result<()> {
    let attr = [MOUNT_ATTR_IDMAP, 0, 0, userns.as_raw_fd() as u64];
    let set = |flags: i32| {
        sys::mount_setattr(tree.as_raw_fd(), c"".as_ptr().cast(), flags, attr.as_ptr(), MOUNT_ATTR_SIZE_VER0)
            .map_err(io::Error::from_raw_os_error)
            .map(|_| ())
    };
    set(AT_EMPTY_PATH | AT_RECURSIVE)
}

/// A user namespace in which `inside` ids stand for `outside` ids, for `map_owners`.
///
/// # Errors
/// The caller may not write such a map, or a process cannot be made.
pub fn owner_map(uids: (u32, u32), gids: (u32, u32)) -> io::Result<OwnedFd> {
    namespace_with(&[("uid_map", uids), ("gid_map", gids)])
}

/// The same with users only, which is all that an unprivileged caller may write from outside.
///
/// # Errors
/// As `owner_map`.
pub(crate) fn user_map(uids: (u32, u32)) -> io::Result<OwnedFd> {
    namespace_with(&[("uid_map", uids)])
}

fn namespace_with(maps: &[(&str, (u32, u32))]) -> io::Result<OwnedFd> {
    let mut stack = vec![0u128; 512];
    // A child that shares memory and only waits to be killed: it exists to hold the namespace while the maps are
    // written. No CLONE_VFORK, since the owner must go on.
    let flags = (libc::CLONE_VM | libc::CLONE_NEWUSER) as u64;
    let request = clone::CloneRequest { flags, stack: &mut stack, cgroup: None };
    // SAFETY: the child runs `wait_for_the_end` on a stack of its own that lives until it has been reaped below.
    let (pid, pidfd) = unsafe { clone::start(request, wait_for_the_end, std::process::id() as usize) }?;
    let made = (|| {
        let put = |name: &str, (inside, outside): (u32, u32)| {
            File::options()
                .write(true)
                .open(format!("/proc/{pid}/{name}"))?
                .write_all(format!("{inside} {outside} 1").as_bytes())
        };
        for (name, ids) in maps {
            put(name, *ids)?;
        }
        Ok(OwnedFd::from(File::open(format!("/proc/{pid}/ns/user"))?))
    })();
    crate::process::kill(pidfd.as_fd())?;
    crate::process::wait(pidfd.as_fd())?;
    drop(stack);
    made
}

extern "C" fn wait_for_the_end(owner: usize) -> ! {
    // The owner may be killed before it can end this process, and no other would.
    let dies_too = sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize, 0, 0, 0);
    if dies_too.is_err() || sys::getppid() != Ok(owner) {
        sys::exit(1); // writing the maps then fails, and says so
    }
    loop {
        let mut none = sys::PollFd { fd: -1, events: 0, revents: 0 };
        if sys::ppoll(&mut none, 1, std::ptr::null(), std::ptr::null(), 8).is_err() {
            continue;
        }
    }
}
