//! Which registers of a system call point to paths, by the names of the calls.
//!
//! Owns no memory of a program: it says only where to look. A call that is not listed here has no path as far as events go.

use crate::seccomp::calls::native_or_absent;

/// Calls with a path in register 0.
const FIRST: [i32; 28] = numbers([
    "open",
    "stat",
    "lstat",
    "access",
    "execve",
    "truncate",
    "chdir",
    "mkdir",
    "rmdir",
    "creat",
    "unlink",
    "readlink",
    "chmod",
    "chown",
    "lchown",
    "utime",
    "mknod",
    "statfs",
    "chroot",
    "utimes",
    "setxattr",
    "lsetxattr",
    "getxattr",
    "lgetxattr",
    "listxattr",
    "llistxattr",
    "removexattr",
    "lremovexattr",
]);

/// Calls with paths in registers 0 and 1.
const FIRST_TWO: [i32; 4] = numbers(["rename", "link", "symlink", "mount"]);

/// Calls with a path in register 1, behind the directory that it starts from.
const AT: [i32; 25] = numbers([
    "openat",
    "mkdirat",
    "mknodat",
    "fchownat",
    "futimesat",
    "newfstatat",
    "unlinkat",
    "readlinkat",
    "fchmodat",
    "faccessat",
    "utimensat",
    "name_to_handle_at",
    "execveat",
    "statx",
    "openat2",
    "faccessat2",
    "fchmodat2",
    "open_tree",
    "setxattrat",
    "getxattrat",
    "listxattrat",
    "removexattrat",
    "file_getattr",
    "file_setattr",
    "inotify_add_watch",
]);

/// Calls with paths in registers 1 and 3, each behind the directory that it starts from.
const AT_TWICE: [i32; 4] = numbers(["renameat", "linkat", "renameat2", "move_mount"]);

/// Its paths are in registers 0 and 2, the second one behind the directory that it starts from.
const SYMLINKAT: i32 = native_or_absent("symlinkat");

/// inotify_add_watch(2): the register before its path is the inotify instance, and no directory.
const INOTIFY_ADD_WATCH: i32 = native_or_absent("inotify_add_watch");

const fn numbers<const N: usize>(names: [&str; N]) -> [i32; N] {
    let mut list = [0; N];
    let mut i = 0;
    while i < N {
        list[i] = native_or_absent(names[i]);
        i += 1;
    }
    list
}

/// The registers of a call's paths.
pub fn path_arguments(nr: i32) -> (Option<usize>, Option<usize>) {
    match nr {
        _ if FIRST.contains(&nr) => (Some(0), None),
        _ if AT.contains(&nr) => (Some(1), None),
        _ if FIRST_TWO.contains(&nr) => (Some(0), Some(1)),
        _ if AT_TWICE.contains(&nr) => (Some(1), Some(3)),
        SYMLINKAT => (Some(0), Some(2)),
        _ => (None, None),
    }
}

/// Whether the register before a call's path register holds a directory.
pub fn has_directory(nr: i32, register: usize) -> bool {
    if nr == INOTIFY_ADD_WATCH {
        return false;
    }
    let (first, second) = path_arguments(nr);
    // The calls with a path in register 0 and another in 1 (rename, link, mount) have none; symlinkat has one before 2.
    first.is_some_and(|f| f > 0 && f == register) || (second.is_some_and(|s| s == register) && register > 1)
}
