//! Changes of metadata on behalf of a command: owner, mode, times and attributes, inside its trees alone.
//!
//! Landlock does not hold them, a filter cannot see what they are about, and programs cannot do without: git and npm set
//! modes, tar and touch set times. So the filter hands the call over; here the object is opened, found to lie inside, and
//! then changed by that very descriptor, whatever its name means by then.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::caller::WaitingThread;
use super::errno::errno;
use super::notification::{SeccompNotification, is_valid};
use crate::uapi::{S_ISGID, S_ISUID};

/// Where metadata may be changed.
#[derive(Debug, Default)]
pub struct Trees {
    /// What each descriptor is, wherever it is renamed to, and everything below it.
    pub roots: Vec<OwnedFd>,
    /// But not below these canonical paths, nor on the way to them.
    pub holes: Vec<PathBuf>,
}

/// A call, taken apart.
struct ChangeCall {
    target: ChangeTarget,
    change: MetadataChange,
}

/// What it is about.
enum ChangeTarget {
    Descriptor(i32),
    /// A path's address, from a directory's descriptor, and flags of the kind of `AT_SYMLINK_NOFOLLOW`.
    Path {
        dir: i32,
        path: u64,
        flags: i32,
    },
}

#[derive(Debug)]
enum MetadataChange {
    Mode(u32),
    Owner(u32, u32),
    /// Two points in time; none is now.
    Times(Option<[libc::timespec; 2]>),
    SetAttribute {
        name: CString,
        value: Vec<u8>,
        flags: i32,
    },
    RemoveAttribute(CString),
}

/// Longest value of an attribute (`XATTR_SIZE_MAX`).
const VALUE: u64 = 65536;
/// Longest name of one, with its end.
const NAME: usize = 256;
/// `PATH_MAX`
const PATH: usize = 4096;

/// Performs it, or says with which errno it is refused.
pub(super) fn perform(listener: &OwnedFd, call: &SeccompNotification, name: &str, trees: &Trees) -> Result<(), i32> {
    let caller = WaitingThread::new(call.pid);
    let ChangeCall { target, change } = decode(name, call, &caller)?;
    let object = match target {
        ChangeTarget::Descriptor(fd) => caller.descriptor(fd)?,
        ChangeTarget::Path { dir, path: 0, .. } => place(&caller, dir)?,
        ChangeTarget::Path { dir, path, flags } => {
            let path = caller.string(path, PATH)?;
            let path = CStr::from_bytes_with_nul(&path).map_err(|_| libc::EINVAL)?;
            if path.is_empty() {
                if flags & libc::AT_EMPTY_PATH == 0 {
                    return Err(libc::ENOENT);
                }
                place(&caller, dir)?
            } else {
                caller.resolve(dir, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)?
            }
        }
    };
    caller.is_like_us()?;
    is_valid(listener, call)?;
    if !is_within(&object, trees) {
        return Err(libc::EPERM);
    }
    apply(&change, &object)
}

fn place(caller: &WaitingThread, dir: i32) -> Result<OwnedFd, i32> {
    if dir == libc::AT_FDCWD { caller.directory() } else { caller.descriptor(dir) }
}

fn decode(name: &str, call: &SeccompNotification, caller: &WaitingThread) -> Result<ChangeCall, i32> {
    let a = call.args;
    let int = |n: usize| a[n] as i32;
    let here = |path: u64, flags: i32| ChangeTarget::Path { dir: libc::AT_FDCWD, path, flags };
    let at = |dir: i32, path: u64, flags: i32| ChangeTarget::Path { dir, path, flags };
    let no_follow = libc::AT_SYMLINK_NOFOLLOW;
    let (target, change) = match name {
        "chmod" => (here(a[0], 0), MetadataChange::Mode(a[1] as u32)),
        "fchmod" => (ChangeTarget::Descriptor(int(0)), MetadataChange::Mode(a[1] as u32)),
        "fchmodat" => (at(int(0), a[1], 0), MetadataChange::Mode(a[2] as u32)),
        "fchmodat2" => (at(int(0), a[1], int(3)), MetadataChange::Mode(a[2] as u32)),
        "chown" => (here(a[0], 0), MetadataChange::Owner(a[1] as u32, a[2] as u32)),
        "lchown" => (here(a[0], no_follow), MetadataChange::Owner(a[1] as u32, a[2] as u32)),
        "fchown" => (ChangeTarget::Descriptor(int(0)), MetadataChange::Owner(a[1] as u32, a[2] as u32)),
        "fchownat" => (at(int(0), a[1], int(4)), MetadataChange::Owner(a[2] as u32, a[3] as u32)),
        "utime" => (here(a[0], 0), MetadataChange::Times(times(caller, a[1], 1, 0)?)),
        "utimes" => (here(a[0], 0), MetadataChange::Times(times(caller, a[1], 2, 1000)?)),
        "futimesat" => (at(int(0), a[1], 0), MetadataChange::Times(times(caller, a[2], 2, 1000)?)),
        "utimensat" => (at(int(0), a[1], int(3)), MetadataChange::Times(times(caller, a[2], 2, 1)?)),
        "setxattr" => (here(a[0], 0), attribute(caller, &a)?),
        "lsetxattr" => (here(a[0], no_follow), attribute(caller, &a)?),
        "fsetxattr" => (ChangeTarget::Descriptor(int(0)), attribute(caller, &a)?),
        "removexattr" => (here(a[0], 0), MetadataChange::RemoveAttribute(attribute_name(caller, a[1])?)),
        "lremovexattr" => (here(a[0], no_follow), MetadataChange::RemoveAttribute(attribute_name(caller, a[1])?)),
        "fremovexattr" => {
            (ChangeTarget::Descriptor(int(0)), MetadataChange::RemoveAttribute(attribute_name(caller, a[1])?))
        }
        // Younger than this; every program that knows them knows the older ones.
        _ => return Err(libc::ENOSYS),
    };
    Ok(ChangeCall { target, change })
}

/// Two times: pairs of seconds and parts, of which `scale` nanoseconds make one. Without parts (0) there are seconds alone.
fn times(caller: &WaitingThread, address: u64, words: usize, scale: i64) -> Result<Option<[libc::timespec; 2]>, i32> {
    if address == 0 {
        return Ok(None);
    }
    let mut bytes = [0u8; 32];
    caller.read(address, &mut bytes[..16 * words])?;
    let word = |n: usize| i64::from_ne_bytes(bytes[8 * n..8 * n + 8].try_into().unwrap_or_default());
    let time = |n: usize| {
        let (seconds, parts) = if words == 1 { (word(n), 0) } else { (word(2 * n), word(2 * n + 1)) };
        // Microseconds are what the kernel takes them for; nanoseconds also mean "now" and "leave it", which it checks itself.
        if scale > 1 && !(0..1_000_000).contains(&parts) {
            return Err(libc::EINVAL);
        }
        Ok(libc::timespec { tv_sec: seconds, tv_nsec: parts * scale.max(1) })
    };
    Ok(Some([time(0)?, time(1)?]))
}

fn attribute(caller: &WaitingThread, a: &[u64; 6]) -> Result<MetadataChange, i32> {
    let name = attribute_name(caller, a[1])?;
    if a[3] > VALUE {
        return Err(libc::E2BIG);
    }
    let mut value = vec![0u8; a[3] as usize];
    caller.read(a[2], &mut value)?;
    Ok(MetadataChange::SetAttribute { name, value, flags: a[4] as i32 })
}

/// Attributes of users and access lists; those that give a program powers, or belong to the system, are never set.
fn attribute_name(caller: &WaitingThread, address: u64) -> Result<CString, i32> {
    let name =
        caller.string(address, NAME).map_err(|errno| if errno == libc::ENAMETOOLONG { libc::ERANGE } else { errno })?;
    if !(name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")) {
        return Err(libc::EPERM);
    }
    CString::from_vec_with_nul(name).map_err(|_| libc::EINVAL)
}

/// Whether an object lies in one of the trees now. What has no name in any directory is the command's own.
fn is_within(object: &OwnedFd, trees: &Trees) -> bool {
    let Ok(path) = path_of(object) else { return false };
    if !path.starts_with(b"/") {
        // A pipe or a socket; what else has no path (a namespace) is the system's.
        use std::os::unix::fs::FileTypeExt as _;
        return std::fs::metadata(own(object))
            .is_ok_and(|data| data.file_type().is_fifo() || data.file_type().is_socket());
    }
    if path.starts_with(b"/memfd:") && std::fs::metadata(own(object)).is_ok_and(|data| data.nlink() == 0) {
        return true;
    }
    // A mount that hangs nowhere (open_tree(2), in a user namespace of one's own) has paths from its own root on, and one of
    // another namespace those of that: they say nothing about where it is.
    if !is_mounted_here(object, trees) {
        return false;
    }
    // What a hole lies in is not the command's to change either.
    let held = |hole: &[u8]| below(&path, hole) || below(hole, &path);
    !trees.holes.iter().any(|hole| held(hole.as_os_str().as_bytes()))
        && trees.roots.iter().any(|tree| path_of(tree).is_ok_and(|tree| below(&path, &tree)))
}

/// Whether the mount that an object was opened on is one of the notifier's own namespace: one of the trees' own, or listed.
fn is_mounted_here(object: &OwnedFd, trees: &Trees) -> bool {
    let Some(id) = mount_of(object) else { return false };
    if trees.roots.iter().any(|tree| mount_of(tree).as_ref() == Some(&id)) {
        return true;
    }
    // A mount point's name need not be text.
    let Ok(mounts) = std::fs::read("/proc/thread-self/mountinfo") else { return false };
    mounts.split(|&byte| byte == b'\n').any(|line| line.split(|&byte| byte == b' ').next() == Some(id.as_bytes()))
}

/// The number of the mount that a descriptor was opened on.
fn mount_of(fd: &OwnedFd) -> Option<String> {
    let info = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

fn below(path: &[u8], tree: &[u8]) -> bool {
    tree == b"/"
        || tree.starts_with(b"/")
            && path.strip_prefix(tree).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn own(fd: &OwnedFd) -> String {
    format!("/proc/thread-self/fd/{}", fd.as_raw_fd())
}

/// Where the kernel says that it is.
fn path_of(fd: &OwnedFd) -> Result<Vec<u8>, i32> {
    let path = std::fs::read_link(own(fd)).map_err(|_| libc::EPERM)?;
    Ok(path.as_os_str().as_bytes().to_vec())
}

/// Bits that change the user or group of a process that executes the file.
const SET_ID: u32 = S_ISUID | S_ISGID;

fn apply(change: &MetadataChange, object: &OwnedFd) -> Result<(), i32> {
    let place = own(object);
    // Through a link of /proc a link itself is what is looked at.
    let link = std::fs::metadata(&place).map_err(|_| libc::EPERM)?.is_symlink();
    let path = CString::new(place).map_err(|_| libc::EINVAL)?;
    let path = path.as_ptr();
    let (fd, itself) = (object.as_raw_fd(), c"".as_ptr());
    let done = match change {
        // What has no mode and no attributes of users' could only be changed by following it.
        MetadataChange::Mode(_) if link => return Err(libc::EOPNOTSUPP),
        MetadataChange::SetAttribute { .. } | MetadataChange::RemoveAttribute(_) if link => return Err(libc::EPERM),
        MetadataChange::Mode(mode) if mode & SET_ID != 0 => return Err(libc::EPERM),
        // SAFETY: the string ends with a zero byte; it names the object itself, whatever that is called now.
        MetadataChange::Mode(mode) => unsafe { libc::chmod(path, mode & 0o1777) },
        // SAFETY: the string is empty: the descriptor itself.
        MetadataChange::Owner(uid, gid) => unsafe { libc::fchownat(fd, itself, *uid, *gid, libc::AT_EMPTY_PATH) },
        MetadataChange::Times(times) => {
            let times = times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr());
            // SAFETY: as for the owner; the times are two, or none.
            unsafe { libc::utimensat(fd, itself, times, libc::AT_EMPTY_PATH) }
        }
        // SAFETY: as for the mode; the value is as long as is said.
        MetadataChange::SetAttribute { name, value, flags } => unsafe {
            libc::setxattr(path, name.as_ptr(), value.as_ptr().cast(), value.len(), *flags)
        },
        // SAFETY: as for the mode.
        MetadataChange::RemoveAttribute(name) => unsafe { libc::removexattr(path, name.as_ptr()) },
    };
    if done == 0 { Ok(()) } else { Err(errno()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_its_root_and_what_is_below_it() {
        assert!(below(b"/data", b"/data") && below(b"/data/x", b"/data"));
        assert!(!below(b"/database", b"/data") && !below(b"/", b"/data") && below(b"/x", b"/"));
    }

    #[test]
    fn what_lies_elsewhere_is_not_within() {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &std::path::Path| OwnedFd::from(std::fs::File::open(path).unwrap());
        let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(inside.join("file"), "").unwrap();
        std::fs::write(outside.join("file"), "").unwrap();
        let mut trees = Trees { roots: vec![open(&inside)], holes: Vec::new() };
        assert!(is_within(&open(&inside.join("file")), &trees));
        assert!(!is_within(&open(&outside.join("file")), &trees));
        trees.holes = vec![std::fs::canonicalize(&inside).unwrap().join("file")];
        assert!(!is_within(&open(&inside.join("file")), &trees) && !is_within(&open(&inside), &trees));
        trees.holes.clear();
        // It is the directory that counts, not what has its name now.
        std::fs::rename(&inside, dir.path().join("moved")).unwrap();
        std::fs::rename(&outside, &inside).unwrap();
        assert!(!is_within(&open(&inside.join("file")), &trees));
        assert!(is_within(&open(&dir.path().join("moved/file")), &trees));
    }

    #[test]
    fn what_hangs_nowhere_is_not_within_whatever_its_path_says() {
        use std::os::unix::process::CommandExt as _;
        let dir = tempfile::tempdir().unwrap();
        // Below the directory's clone it has the path that the file inside has.
        let base = std::fs::canonicalize(dir.path()).unwrap();
        let below = base.strip_prefix("/").unwrap();
        let alias = base.join(below);
        std::fs::create_dir_all(&alias).unwrap();
        for file in [base.join("file"), alias.join("file")] {
            std::fs::write(file, "").unwrap();
        }
        let open = |path: &std::path::Path| OwnedFd::from(std::fs::File::open(path).unwrap());
        let trees = Trees { roots: vec![open(&base)], holes: Vec::new() };
        let path = CString::new(base.as_os_str().as_bytes()).unwrap();
        const FD: i32 = 77;
        let mut command = std::process::Command::new("sleep");
        // SAFETY: system calls on what was prepared, and nothing else.
        unsafe {
            command.arg("60").pre_exec(move || {
                if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                // OPEN_TREE_CLONE
                let tree = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), 1);
                if tree < 0 || libc::dup2(tree as i32, FD) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "no user namespaces: {error}");
                return;
            }
        };
        let hanging = open(&std::path::PathBuf::from(format!("/proc/{}/fd/{FD}", child.id())).join(below).join("file"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(
            path_of(&hanging).unwrap(),
            base.join("file").as_os_str().as_bytes(),
            "it says that it is the other"
        );
        assert!(!is_within(&hanging, &trees));
        assert!(is_within(&open(&base.join("file")), &trees));
        assert!(is_within(&open(&alias.join("file")), &trees), "by its own name it is");
    }

    #[test]
    fn every_call_that_changes_metadata_is_listed_or_enosys() {
        let arch = crate::seccomp::Arch::native().unwrap();
        let absent = ["setxattrat", "removexattrat", "file_setattr"];
        for name in crate::seccomp::metadata_calls(arch) {
            // No memory can be read of a process that is not there: so far it gets when it knows the call.
            let call = SeccompNotification { pid: 0, args: [0, 1, 1, 1, 0, 0], ..SeccompNotification::default() };
            let errno = decode(name, &call, &WaitingThread::new(0)).err();
            assert_eq!(errno == Some(libc::ENOSYS), absent.contains(&name), "{name}: {errno:?}");
        }
    }
}
