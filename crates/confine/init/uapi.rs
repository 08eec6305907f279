//! The kernel's names for the numbers that init passes to system calls: flags, commands, errno values.
//!
//! Owns no logic. Init has no libc to take them from; the library compiles this file as well, and its test holds every
//! constant that libc has equal to libc's.

#![allow(missing_docs, reason = "the names are the kernel's; the pages of section 2 say what they mean")]

/// Declares constants, and a test of that name which compares each with libc's.
macro_rules! as_in_libc {
    ($test:ident: $($name:ident: $type:ty = $value:expr;)+) => {
        $(pub(crate) const $name: $type = $value;)+

        #[cfg(all(test, target_env = "gnu"))]
        #[test]
        #[allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "libc's types differ from constant to constant")]
        fn $test() {
            $(assert_eq!($name as i128, libc::$name as i128, stringify!($name));)+
        }
    };
}

/// errno values.
pub(crate) mod errno {
    as_in_libc! { errno_values_are_those_of_libc:
        EPERM: i32 = 1;
        ENOENT: i32 = 2;
        ESRCH: i32 = 3;
        EINTR: i32 = 4;
        ENXIO: i32 = 6;
        E2BIG: i32 = 7;
        ENOEXEC: i32 = 8;
        EBADF: i32 = 9;
        EAGAIN: i32 = 11;
        EACCES: i32 = 13;
        EFAULT: i32 = 14;
        EBUSY: i32 = 16;
        EEXIST: i32 = 17;
        ENOTDIR: i32 = 20;
        EISDIR: i32 = 21;
        EINVAL: i32 = 22;
        ENAMETOOLONG: i32 = 36;
        ENOSYS: i32 = 38;
        ELOOP: i32 = 40;
        ENOTSOCK: i32 = 88;
        ESTALE: i32 = 116;
        EDQUOT: i32 = 122;
    }
    /// The kernel's own: a handler runs, and the call is made again or ends with EINTR, as the handler's flags say.
    pub(crate) const ERESTARTSYS: i32 = 512;
}

#[cfg(target_arch = "x86_64")]
as_in_libc! { open_flags_of_the_architecture_are_those_of_libc:
    O_DIRECTORY: i32 = 0o200_000;
    O_NOFOLLOW: i32 = 0o400_000;
}
#[cfg(target_arch = "aarch64")]
as_in_libc! { open_flags_of_the_architecture_are_those_of_libc:
    O_DIRECTORY: i32 = 0o40_000;
    O_NOFOLLOW: i32 = 0o100_000;
}

as_in_libc! { constants_are_those_of_libc:
    // open(2), openat2(2)
    O_RDONLY: i32 = 0;
    O_WRONLY: i32 = 1;
    O_RDWR: i32 = 2;
    O_ACCMODE: i32 = 3;
    O_CREAT: i32 = 0o100;
    O_EXCL: i32 = 0o200;
    O_NOCTTY: i32 = 0o400;
    O_TRUNC: i32 = 0o1000;
    O_APPEND: i32 = 0o2000;
    O_NONBLOCK: i32 = 0o4000;
    O_CLOEXEC: i32 = 0o2_000_000;
    O_PATH: i32 = 0o10_000_000;
    O_TMPFILE: i32 = 0o20_000_000 | O_DIRECTORY;
    RESOLVE_NO_MAGICLINKS: u64 = 0x2;
    RESOLVE_NO_SYMLINKS: u64 = 0x4;
    RESOLVE_IN_ROOT: u64 = 0x10;

    // The *at calls
    AT_FDCWD: i32 = -100;
    AT_SYMLINK_NOFOLLOW: i32 = 0x100;
    AT_REMOVEDIR: i32 = 0x200;
    AT_SYMLINK_FOLLOW: i32 = 0x400;
    AT_EMPTY_PATH: i32 = 0x1000;
    AT_RECURSIVE: i32 = 0x8000;

    // statx(2), inode(7), fstatfs(2)
    STATX_BASIC_STATS: u32 = 0x7ff;
    S_IFMT: u16 = 0o170_000;
    S_IFIFO: u16 = 0o010_000;
    S_IFCHR: u16 = 0o020_000;
    S_IFDIR: u16 = 0o040_000;
    S_IFREG: u16 = 0o100_000;
    S_IFLNK: u16 = 0o120_000;
    S_ISUID: u32 = 0o4000;
    S_ISGID: u32 = 0o2000;
    PROC_SUPER_MAGIC: u64 = 0x9fa0;
    ST_RDONLY: u64 = 1;

    // fcntl(2), close_range(2), mmap(2), poll(2)
    F_GETFL: i32 = 3;
    F_SETFL: i32 = 4;
    F_SETFD: i32 = 2;
    F_DUPFD_CLOEXEC: i32 = 1030;
    FD_CLOEXEC: usize = 1;
    CLOSE_RANGE_CLOEXEC: u32 = 4;
    PROT_READ: usize = 1;
    MAP_PRIVATE: usize = 2;
    POLLIN: i16 = 1;
    POLLOUT: i16 = 4;

    // Signals and processes
    SIGKILL: i32 = 9;
    SIGCHLD: i32 = 17;
    SIGCONT: i32 = 18;
    SIGSTOP: i32 = 19;
    SIG_SETMASK: i32 = 2;
    SFD_NONBLOCK: i32 = O_NONBLOCK;
    SFD_CLOEXEC: i32 = O_CLOEXEC;
    WNOHANG: i32 = 1;
    RUSAGE_CHILDREN: i32 = -1;
    CLOCK_MONOTONIC: i32 = 1;
    RLIMIT_NOFILE: u32 = 7;
    CLONE_VM: usize = 0x100;
    CLONE_FILES: usize = 0x400;
    CLONE_VFORK: usize = 0x4000;
    PIDFD_THREAD: u32 = O_EXCL as u32;

    // prctl(2), keyctl(2)
    PR_SET_PDEATHSIG: i32 = 1;
    PR_SET_DUMPABLE: i32 = 4;
    PR_SET_KEEPCAPS: i32 = 8;
    PR_CAPBSET_DROP: i32 = 24;
    PR_SET_CHILD_SUBREAPER: i32 = 36;
    PR_SET_NO_NEW_PRIVS: i32 = 38;
    PR_CAP_AMBIENT: i32 = 47;
    PR_CAP_AMBIENT_RAISE: usize = 2;
    PR_CAP_AMBIENT_CLEAR_ALL: usize = 4;
    KEYCTL_JOIN_SESSION_KEYRING: u32 = 1;

    // sched(7), getpriority(2)
    SCHED_OTHER: i32 = 0;
    SCHED_FIFO: i32 = 1;
    SCHED_RR: i32 = 2;
    SCHED_DEADLINE: i32 = 6;
    PRIO_PROCESS: i32 = 0;

    // mount(2) and the calls of mount_setattr(2)'s family
    MS_RDONLY: usize = 1;
    MS_NOSUID: usize = 2;
    MS_NODEV: usize = 4;
    MS_NOEXEC: usize = 8;
    MS_BIND: usize = 4096;
    MS_REC: usize = 1 << 14;
    MS_PRIVATE: usize = 1 << 18;
    MNT_DETACH: i32 = 2;
    MOUNT_ATTR_RDONLY: u64 = 0x1;
    MOUNT_ATTR_NOSUID: u64 = 0x2;
    MOUNT_ATTR_NODEV: u64 = 0x4;
    MOUNT_ATTR_NOEXEC: u64 = 0x8;
    MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
    MOUNT_ATTR_SIZE_VER0: usize = 32;
    OPEN_TREE_CLONE: i32 = 1;
    OPEN_TREE_CLOEXEC: i32 = O_CLOEXEC;
    MOVE_MOUNT_F_EMPTY_PATH: u32 = 0x04;
    MOVE_MOUNT_T_SYMLINKS: u32 = 0x10;
    MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
    FSOPEN_CLOEXEC: u32 = 1;
    FSMOUNT_CLOEXEC: u32 = 1;

    // socket(2), socket(7), netlink(7), netdevice(7)
    AF_UNIX: i32 = 1;
    AF_INET: i32 = 2;
    AF_INET6: i32 = 10;
    AF_NETLINK: i32 = 16;
    SOCK_STREAM: i32 = 1;
    SOCK_DGRAM: i32 = 2;
    SOCK_RAW: i32 = 3;
    SOCK_SEQPACKET: i32 = 5;
    SOCK_NONBLOCK: i32 = O_NONBLOCK;
    SOCK_CLOEXEC: i32 = O_CLOEXEC;
    SOL_SOCKET: i32 = 1;
    SO_TYPE: i32 = 3;
    SO_ATTACH_FILTER: i32 = 26;
    SO_PROTOCOL: i32 = 38;
    SO_DOMAIN: i32 = 39;
    SCM_RIGHTS: i32 = 1;
    MSG_CTRUNC: i32 = 0x8;
    MSG_NOSIGNAL: i32 = 0x4000;
    MSG_FASTOPEN: i32 = 0x2000_0000;
    MSG_CMSG_CLOEXEC: i32 = 0x4000_0000;
    IPPROTO_TCP: i32 = 6;
    IPPROTO_MPTCP: i32 = 262;
    NETLINK_SOCK_DIAG: i32 = 4;
    NLMSG_ERROR: u16 = 2;
    SIOCGIFFLAGS: usize = 0x8913;
    SIOCSIFFLAGS: usize = 0x8914;
    IFF_UP: u8 = 1;

    // ioctl_tty(2)
    TIOCSCTTY: usize = 0x540e;
    TIOCSWINSZ: usize = 0x5414;
    TIOCGPTPEER: usize = 0x5441;
    TIOCSPTLCK: usize = 0x4004_5431;

    // seccomp(2), seccomp_unotify(2)
    SECCOMP_SET_MODE_FILTER: u32 = 1;
    SECCOMP_FILTER_FLAG_NEW_LISTENER: u32 = 1 << 3;
    SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: u32 = 1 << 5;
    SECCOMP_USER_NOTIF_FLAG_CONTINUE: u32 = 1;
    SECCOMP_IOCTL_NOTIF_RECV: usize = 0xc050_2100;
    SECCOMP_IOCTL_NOTIF_SEND: usize = 0xc018_2101;
    SECCOMP_IOCTL_NOTIF_ID_VALID: usize = 0x4008_2102;
    SECCOMP_IOCTL_NOTIF_ADDFD: usize = 0x4018_2103;
    SECCOMP_IOCTL_NOTIF_SET_FLAGS: usize = 0x4008_2104;
}

// What libc does not have.

/// linux/sched.h; libc's is too narrow for it.
pub(crate) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// linux/seccomp.h: the supervisor and the program run on one CPU.
pub(crate) const SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: usize = 1;

/// linux/magic.h: the file system of pipes.
pub(crate) const PIPEFS_MAGIC: u64 = 0x5049_5045;

/// linux/mount.h: a parameter without a value.
pub(crate) const FSCONFIG_SET_FLAG: u32 = 0;
/// linux/mount.h: a parameter with a string.
pub(crate) const FSCONFIG_SET_STRING: u32 = 1;
/// linux/mount.h: makes the superblock.
pub(crate) const FSCONFIG_CMD_CREATE: u32 = 6;

/// linux/ioprio.h: one thread, by its id.
pub(crate) const IOPRIO_WHO_PROCESS: i32 = 1;
/// linux/ioprio.h: where the class begins in a priority.
pub(crate) const IOPRIO_CLASS_SHIFT: u32 = 13;
/// linux/ioprio.h: the real-time class.
pub(crate) const IOPRIO_CLASS_RT: usize = 1;

/// linux/capability.h: two words for each set.
pub(crate) const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;
/// linux/capability.h, as are the ones that follow: numbers of bits.
pub(crate) const CAP_CHOWN: u32 = 0;
pub(crate) const CAP_DAC_OVERRIDE: u32 = 1;
pub(crate) const CAP_DAC_READ_SEARCH: u32 = 2;
pub(crate) const CAP_FOWNER: u32 = 3;
pub(crate) const CAP_FSETID: u32 = 4;
pub(crate) const CAP_KILL: u32 = 5;
pub(crate) const CAP_SETGID: u32 = 6;
pub(crate) const CAP_SETUID: u32 = 7;
pub(crate) const CAP_SETPCAP: u32 = 8;
pub(crate) const CAP_NET_BIND_SERVICE: u32 = 10;
pub(crate) const CAP_NET_ADMIN: u32 = 12;
pub(crate) const CAP_NET_RAW: u32 = 13;
pub(crate) const CAP_SYS_CHROOT: u32 = 18;
pub(crate) const CAP_SYS_PTRACE: u32 = 19;
pub(crate) const CAP_SYS_ADMIN: u32 = 21;
pub(crate) const CAP_SYS_NICE: u32 = 23;
pub(crate) const CAP_SYS_RESOURCE: u32 = 24;

/// linux/landlock.h: the only kind of rule that init makes.
pub(crate) const LANDLOCK_RULE_PATH_BENEATH: u32 = 1;
/// linux/landlock.h: a rule for a TCP port.
pub(crate) const LANDLOCK_RULE_NET_PORT: u32 = 2;
/// linux/landlock.h: asks for the version instead of making a ruleset.
pub(crate) const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
/// linux/landlock.h, as are the ones that follow: rights to files, in the order of their bits.
pub(crate) const LANDLOCK_ACCESS_FS_EXECUTE: u64 = 1;
pub(crate) const LANDLOCK_ACCESS_FS_WRITE_FILE: u64 = 1 << 1;
pub(crate) const LANDLOCK_ACCESS_FS_READ_FILE: u64 = 1 << 2;
pub(crate) const LANDLOCK_ACCESS_FS_READ_DIR: u64 = 1 << 3;
pub(crate) const LANDLOCK_ACCESS_FS_REMOVE_DIR: u64 = 1 << 4;
pub(crate) const LANDLOCK_ACCESS_FS_REMOVE_FILE: u64 = 1 << 5;
pub(crate) const LANDLOCK_ACCESS_FS_MAKE_CHAR: u64 = 1 << 6;
pub(crate) const LANDLOCK_ACCESS_FS_MAKE_DIR: u64 = 1 << 7;
pub(crate) const LANDLOCK_ACCESS_FS_MAKE_REG: u64 = 1 << 8;
pub(crate) const LANDLOCK_ACCESS_FS_MAKE_SOCK: u64 = 1 << 9;
pub(crate) const LANDLOCK_ACCESS_FS_MAKE_FIFO: u64 = 1 << 10;
pub(crate) const LANDLOCK_ACCESS_FS_MAKE_BLOCK: u64 = 1 << 11;
pub(crate) const LANDLOCK_ACCESS_FS_MAKE_SYM: u64 = 1 << 12;
pub(crate) const LANDLOCK_ACCESS_FS_REFER: u64 = 1 << 13;
pub(crate) const LANDLOCK_ACCESS_FS_TRUNCATE: u64 = 1 << 14;
pub(crate) const LANDLOCK_ACCESS_FS_IOCTL_DEV: u64 = 1 << 15;
pub(crate) const LANDLOCK_ACCESS_NET_BIND_TCP: u64 = 1;
pub(crate) const LANDLOCK_ACCESS_NET_CONNECT_TCP: u64 = 1 << 1;
pub(crate) const LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
pub(crate) const LANDLOCK_SCOPE_SIGNAL: u64 = 1 << 1;

#[cfg(all(test, feature = "jail"))]
#[test]
fn capabilities_are_those_of_rustix() {
    use rustix::thread::CapabilitySet as C;
    for (number, set) in [
        (CAP_CHOWN, C::CHOWN),
        (CAP_DAC_OVERRIDE, C::DAC_OVERRIDE),
        (CAP_DAC_READ_SEARCH, C::DAC_READ_SEARCH),
        (CAP_FOWNER, C::FOWNER),
        (CAP_FSETID, C::FSETID),
        (CAP_KILL, C::KILL),
        (CAP_SETGID, C::SETGID),
        (CAP_SETUID, C::SETUID),
        (CAP_SETPCAP, C::SETPCAP),
        (CAP_NET_BIND_SERVICE, C::NET_BIND_SERVICE),
        (CAP_NET_ADMIN, C::NET_ADMIN),
        (CAP_NET_RAW, C::NET_RAW),
        (CAP_SYS_CHROOT, C::SYS_CHROOT),
        (CAP_SYS_PTRACE, C::SYS_PTRACE),
        (CAP_SYS_ADMIN, C::SYS_ADMIN),
        (CAP_SYS_NICE, C::SYS_NICE),
        (CAP_SYS_RESOURCE, C::SYS_RESOURCE),
    ] {
        assert_eq!(1 << number, set.bits(), "{set:?}");
    }
}
