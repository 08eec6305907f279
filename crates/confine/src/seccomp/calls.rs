//! The system calls of x86_64 and aarch64: numbers, groups, which arguments the kernel reads as 32 bits,
//! and which calls take a path. The one list that the levels, rules, names and traces come from.
//!
//! Init compiles this file as well: its system calls have their numbers from here, as constants. Uses `core` alone.
//!
//! It decides nothing: `levels` gives the groups their meaning. A number that is not here is a call newer
//! than this table; the filter answers those with ENOSYS, so a row may be added only together with its group.
//! Sources: `arch/x86/entry/syscalls/syscall_64.tbl` and `scripts/syscall.tbl` of Linux, checked against the
//! constants of the `libc` crate by a test.

/// An architecture that filters exist for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// x86_64, without x32.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// The one that this program was built for.
    pub const fn native() -> Option<Arch> {
        if cfg!(target_arch = "x86_64") {
            Some(Arch::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Arch::Aarch64)
        } else {
            None
        }
    }

    /// Its `AUDIT_ARCH_*` value (linux/audit.h), as in `seccomp_data.arch`.
    pub const fn audit(self) -> u32 {
        match self {
            Arch::X86_64 => 0xc000_003e,
            Arch::Aarch64 => 0xc000_00b7,
        }
    }
}

/// What kind of call it is; `levels` says what each level does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// On the allowlist, perhaps with checks of its arguments.
    Listed,
    /// Changes owner, mode, times, attributes: follows `Request::metadata_refused`.
    Metadata,
    /// System V and POSIX message IPC: follows `Request::private_ipc`.
    Ipc,
    /// Makes or connects sockets.
    Socket,
    /// Refused from `Basic` on, because it is dangerous anywhere.
    Dangerous,
    /// Not on the allowlist of `Standard`, allowed by `Basic`.
    Unlisted,
    /// Gone or never built; programs that probe for it expect ENOSYS.
    Obsolete,
    /// Its arguments lie behind pointers that a filter cannot read, and every program falls back from ENOSYS.
    Opaque,
}

/// One system call.
#[derive(Debug)]
pub(super) struct SystemCall {
    /// Kernel name.
    pub(super) name: &'static str,
    /// Number on x86_64 and aarch64, `NO` where the call does not exist.
    numbers: [u32; 2],
    /// What kind of call it is.
    pub(super) group: Group,
    /// Bit n is set when the kernel reads argument n as 32 bits and ignores the rest.
    pub(super) int_args: u8,
    /// Whether it takes a path (or an address that can be one), `execve` and `execveat` left out.
    pub(super) path: bool,
}

impl SystemCall {
    /// The call's number on an architecture.
    pub(super) fn number(&self, arch: Arch) -> Option<u32> {
        let number = self.numbers[arch as usize];
        (number != NO).then_some(number)
    }
}

/// The number of a call on the architecture that this is compiled for. For constants: what is not in the table, or is no
/// call of this architecture, does not compile.
#[allow(dead_code, reason = "without the feature `jail` nothing calls the kernel by number")]
pub(crate) const fn native(name: &str) -> usize {
    let number = native_or_absent(name);
    assert!(number >= 0, "this architecture lacks the call");
    number as usize
}

/// The same for a call that some architectures lack: there it is below 0, and different for each name, which is no
/// call's number.
#[allow(dead_code, reason = "as above")]
pub(crate) const fn native_or_absent(name: &str) -> i32 {
    let arch = match Arch::native() {
        Some(arch) => arch,
        None => panic!("no filters, and so no numbers, for this architecture"),
    };
    let mut row = 0;
    while row < CALLS.len() {
        if equal(CALLS[row].name, name) {
            let number = CALLS[row].numbers[arch as usize];
            return if number == NO { -1 - row as i32 } else { number as i32 };
        }
        row += 1;
    }
    panic!("no such call in the table")
}

/// `==` of strings, in a constant.
const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

const NO: u32 = u32::MAX;
const PATH: bool = true;
const NONE: bool = false;

use Group::{Dangerous, Ipc, Listed, Metadata, Obsolete, Opaque, Socket, Unlisted};

const fn c(name: &'static str, x86_64: u32, aarch64: u32, group: Group, int_args: u8, path: bool) -> SystemCall {
    SystemCall { name, numbers: [x86_64, aarch64], group, int_args, path }
}

/// Every call, in the order of the x86_64 numbers, those of aarch64 alone at the end.
#[rustfmt::skip]
pub(super) static CALLS: &[SystemCall] = &[
    // name, x86_64, aarch64, group, 32-bit arguments (bit n: argument n), takes a path
    c("read", 0, 63, Listed, 0b1, NONE),
    c("write", 1, 64, Listed, 0b1, NONE),
    c("open", 2, NO, Listed, 0b110, PATH),
    c("close", 3, 57, Listed, 0b1, NONE),
    c("stat", 4, NO, Listed, 0b0, PATH),
    c("fstat", 5, 80, Listed, 0b1, NONE),
    c("lstat", 6, NO, Listed, 0b0, PATH),
    c("poll", 7, NO, Listed, 0b110, NONE),
    c("lseek", 8, 62, Listed, 0b101, NONE),
    c("mmap", 9, 222, Listed, 0b0, NONE),
    c("mprotect", 10, 226, Listed, 0b0, NONE),
    c("munmap", 11, 215, Listed, 0b0, NONE),
    c("brk", 12, 214, Listed, 0b0, NONE),
    c("rt_sigaction", 13, 134, Listed, 0b1, NONE),
    c("rt_sigprocmask", 14, 135, Listed, 0b1, NONE),
    c("rt_sigreturn", 15, 139, Listed, 0b0, NONE),
    c("ioctl", 16, 29, Listed, 0b11, NONE),
    c("pread64", 17, 67, Listed, 0b1, NONE),
    c("pwrite64", 18, 68, Listed, 0b1, NONE),
    c("readv", 19, 65, Listed, 0b1, NONE),
    c("writev", 20, 66, Listed, 0b1, NONE),
    c("access", 21, NO, Listed, 0b10, PATH),
    c("pipe", 22, NO, Listed, 0b0, NONE),
    c("select", 23, NO, Listed, 0b1, NONE),
    c("sched_yield", 24, 124, Listed, 0b0, NONE),
    c("mremap", 25, 216, Listed, 0b0, NONE),
    c("msync", 26, 227, Listed, 0b100, NONE),
    c("mincore", 27, 232, Listed, 0b0, NONE),
    c("madvise", 28, 233, Listed, 0b100, NONE),
    c("shmget", 29, 194, Ipc, 0b101, NONE),
    c("shmat", 30, 196, Ipc, 0b101, NONE),
    c("shmctl", 31, 195, Ipc, 0b11, NONE),
    c("dup", 32, 23, Listed, 0b1, NONE),
    c("dup2", 33, NO, Listed, 0b11, NONE),
    c("pause", 34, NO, Listed, 0b0, NONE),
    c("nanosleep", 35, 101, Listed, 0b0, NONE),
    c("getitimer", 36, 102, Listed, 0b1, NONE),
    c("alarm", 37, NO, Listed, 0b1, NONE),
    c("setitimer", 38, 103, Listed, 0b1, NONE),
    c("getpid", 39, 172, Listed, 0b0, NONE),
    c("sendfile", 40, 71, Listed, 0b11, NONE),
    c("socket", 41, 198, Socket, 0b111, NONE),
    c("connect", 42, 203, Socket, 0b101, PATH),
    c("accept", 43, 202, Socket, 0b1, NONE),
    c("sendto", 44, 206, Listed, 0b101001, NONE),
    c("recvfrom", 45, 207, Listed, 0b1001, NONE),
    c("sendmsg", 46, 211, Listed, 0b101, NONE),
    c("recvmsg", 47, 212, Listed, 0b101, NONE),
    c("shutdown", 48, 210, Listed, 0b11, NONE),
    c("bind", 49, 200, Socket, 0b101, PATH),
    c("listen", 50, 201, Socket, 0b11, NONE),
    c("getsockname", 51, 204, Listed, 0b1, NONE),
    c("getpeername", 52, 205, Listed, 0b1, NONE),
    c("socketpair", 53, 199, Socket, 0b111, NONE),
    c("setsockopt", 54, 208, Listed, 0b10111, NONE),
    c("getsockopt", 55, 209, Listed, 0b111, NONE),
    c("clone", 56, 220, Listed, 0b0, NONE),
    c("fork", 57, NO, Listed, 0b0, NONE),
    c("vfork", 58, NO, Listed, 0b0, NONE),
    c("execve", 59, 221, Listed, 0b0, NONE),
    c("exit", 60, 93, Listed, 0b1, NONE),
    c("wait4", 61, 260, Listed, 0b101, NONE),
    c("kill", 62, 129, Listed, 0b11, NONE),
    c("uname", 63, 160, Listed, 0b0, NONE),
    c("semget", 64, 190, Ipc, 0b111, NONE),
    c("semop", 65, 193, Ipc, 0b101, NONE),
    c("semctl", 66, 191, Ipc, 0b111, NONE),
    c("shmdt", 67, 197, Ipc, 0b0, NONE),
    c("msgget", 68, 186, Ipc, 0b11, NONE),
    c("msgsnd", 69, 189, Ipc, 0b1001, NONE),
    c("msgrcv", 70, 188, Ipc, 0b10001, NONE),
    c("msgctl", 71, 187, Ipc, 0b11, NONE),
    c("fcntl", 72, 25, Listed, 0b11, NONE),
    c("flock", 73, 32, Listed, 0b11, NONE),
    c("fsync", 74, 82, Listed, 0b1, NONE),
    c("fdatasync", 75, 83, Listed, 0b1, NONE),
    c("truncate", 76, 45, Listed, 0b0, PATH),
    c("ftruncate", 77, 46, Listed, 0b1, NONE),
    c("getdents", 78, NO, Listed, 0b101, NONE),
    c("getcwd", 79, 17, Listed, 0b0, NONE),
    c("chdir", 80, 49, Listed, 0b0, PATH),
    c("fchdir", 81, 50, Listed, 0b1, NONE),
    c("rename", 82, NO, Listed, 0b0, PATH),
    c("mkdir", 83, NO, Listed, 0b10, PATH),
    c("rmdir", 84, NO, Listed, 0b0, PATH),
    c("creat", 85, NO, Listed, 0b10, PATH),
    c("link", 86, NO, Listed, 0b0, PATH),
    c("unlink", 87, NO, Listed, 0b0, PATH),
    c("symlink", 88, NO, Listed, 0b0, PATH),
    c("readlink", 89, NO, Listed, 0b100, PATH),
    c("chmod", 90, NO, Metadata, 0b10, PATH),
    c("fchmod", 91, 52, Metadata, 0b11, NONE),
    c("chown", 92, NO, Metadata, 0b110, PATH),
    c("fchown", 93, 55, Metadata, 0b111, NONE),
    c("lchown", 94, NO, Metadata, 0b110, PATH),
    c("umask", 95, 166, Listed, 0b1, NONE),
    c("gettimeofday", 96, 169, Listed, 0b0, NONE),
    c("getrlimit", 97, 163, Listed, 0b1, NONE),
    c("getrusage", 98, 165, Listed, 0b1, NONE),
    c("sysinfo", 99, 179, Listed, 0b0, NONE),
    c("times", 100, 153, Listed, 0b0, NONE),
    c("ptrace", 101, 117, Dangerous, 0b0, NONE),
    c("getuid", 102, 174, Listed, 0b0, NONE),
    c("syslog", 103, 116, Dangerous, 0b101, NONE),
    c("getgid", 104, 176, Listed, 0b0, NONE),
    c("setuid", 105, 146, Listed, 0b1, NONE),
    c("setgid", 106, 144, Listed, 0b1, NONE),
    c("geteuid", 107, 175, Listed, 0b0, NONE),
    c("getegid", 108, 177, Listed, 0b0, NONE),
    c("setpgid", 109, 154, Listed, 0b11, NONE),
    c("getppid", 110, 173, Listed, 0b0, NONE),
    c("getpgrp", 111, NO, Listed, 0b0, NONE),
    c("setsid", 112, 157, Listed, 0b0, NONE),
    c("setreuid", 113, 145, Listed, 0b11, NONE),
    c("setregid", 114, 143, Listed, 0b11, NONE),
    c("getgroups", 115, 158, Listed, 0b1, NONE),
    c("setgroups", 116, 159, Listed, 0b1, NONE),
    c("setresuid", 117, 147, Listed, 0b111, NONE),
    c("getresuid", 118, 148, Listed, 0b0, NONE),
    c("setresgid", 119, 149, Listed, 0b111, NONE),
    c("getresgid", 120, 150, Listed, 0b0, NONE),
    c("getpgid", 121, 155, Listed, 0b1, NONE),
    c("setfsuid", 122, 151, Listed, 0b1, NONE),
    c("setfsgid", 123, 152, Listed, 0b1, NONE),
    c("getsid", 124, 156, Listed, 0b1, NONE),
    c("capget", 125, 90, Listed, 0b0, NONE),
    c("capset", 126, 91, Listed, 0b0, NONE),
    c("rt_sigpending", 127, 136, Listed, 0b0, NONE),
    c("rt_sigtimedwait", 128, 137, Listed, 0b0, NONE),
    c("rt_sigqueueinfo", 129, 138, Listed, 0b11, NONE),
    c("rt_sigsuspend", 130, 133, Listed, 0b0, NONE),
    c("sigaltstack", 131, 132, Listed, 0b0, NONE),
    c("utime", 132, NO, Metadata, 0b0, PATH),
    c("mknod", 133, NO, Listed, 0b110, PATH),
    c("uselib", 134, NO, Obsolete, 0b0, NONE),
    c("personality", 135, 92, Listed, 0b1, NONE),
    c("ustat", 136, NO, Obsolete, 0b0, NONE),
    c("statfs", 137, 43, Listed, 0b0, PATH),
    c("fstatfs", 138, 44, Listed, 0b1, NONE),
    c("sysfs", 139, NO, Obsolete, 0b0, NONE),
    c("getpriority", 140, 141, Listed, 0b11, NONE),
    c("setpriority", 141, 140, Listed, 0b111, NONE),
    c("sched_setparam", 142, 118, Listed, 0b1, NONE),
    c("sched_getparam", 143, 121, Listed, 0b0, NONE),
    c("sched_setscheduler", 144, 119, Listed, 0b11, NONE),
    c("sched_getscheduler", 145, 120, Listed, 0b0, NONE),
    c("sched_get_priority_max", 146, 125, Listed, 0b0, NONE),
    c("sched_get_priority_min", 147, 126, Listed, 0b0, NONE),
    c("sched_rr_get_interval", 148, 127, Listed, 0b0, NONE),
    c("mlock", 149, 228, Listed, 0b0, NONE),
    c("munlock", 150, 229, Listed, 0b0, NONE),
    c("mlockall", 151, 230, Listed, 0b1, NONE),
    c("munlockall", 152, 231, Listed, 0b0, NONE),
    c("vhangup", 153, 58, Dangerous, 0b0, NONE),
    c("modify_ldt", 154, NO, Dangerous, 0b1, NONE),
    c("pivot_root", 155, 41, Dangerous, 0b0, NONE),
    c("_sysctl", 156, NO, Obsolete, 0b0, NONE),
    c("prctl", 157, 167, Listed, 0b1, NONE),
    c("arch_prctl", 158, NO, Listed, 0b1, NONE),
    c("adjtimex", 159, 171, Dangerous, 0b0, NONE),
    c("setrlimit", 160, 164, Listed, 0b1, NONE),
    c("chroot", 161, 51, Dangerous, 0b0, NONE),
    c("sync", 162, 81, Listed, 0b0, NONE),
    c("acct", 163, 89, Dangerous, 0b0, NONE),
    c("settimeofday", 164, 170, Dangerous, 0b0, NONE),
    c("mount", 165, 40, Dangerous, 0b0, NONE),
    c("umount2", 166, 39, Dangerous, 0b10, NONE),
    c("swapon", 167, 224, Dangerous, 0b10, NONE),
    c("swapoff", 168, 225, Dangerous, 0b0, NONE),
    c("reboot", 169, 142, Dangerous, 0b111, NONE),
    c("sethostname", 170, 161, Dangerous, 0b10, NONE),
    c("setdomainname", 171, 162, Dangerous, 0b10, NONE),
    c("iopl", 172, NO, Dangerous, 0b1, NONE),
    c("ioperm", 173, NO, Dangerous, 0b100, NONE),
    c("create_module", 174, NO, Obsolete, 0b0, NONE),
    c("init_module", 175, 105, Dangerous, 0b0, NONE),
    c("delete_module", 176, 106, Dangerous, 0b10, NONE),
    c("get_kernel_syms", 177, NO, Obsolete, 0b0, NONE),
    c("query_module", 178, NO, Obsolete, 0b0, NONE),
    c("quotactl", 179, 60, Dangerous, 0b101, NONE),
    c("nfsservctl", 180, 42, Obsolete, 0b0, NONE),
    c("getpmsg", 181, NO, Obsolete, 0b0, NONE),
    c("putpmsg", 182, NO, Obsolete, 0b0, NONE),
    c("afs_syscall", 183, NO, Obsolete, 0b0, NONE),
    c("tuxcall", 184, NO, Obsolete, 0b0, NONE),
    c("security", 185, NO, Obsolete, 0b0, NONE),
    c("gettid", 186, 178, Listed, 0b0, NONE),
    c("readahead", 187, 213, Listed, 0b1, NONE),
    c("setxattr", 188, 5, Metadata, 0b10000, PATH),
    c("lsetxattr", 189, 6, Metadata, 0b10000, PATH),
    c("fsetxattr", 190, 7, Metadata, 0b10001, NONE),
    c("getxattr", 191, 8, Listed, 0b0, PATH),
    c("lgetxattr", 192, 9, Listed, 0b0, PATH),
    c("fgetxattr", 193, 10, Listed, 0b1, NONE),
    c("listxattr", 194, 11, Listed, 0b0, PATH),
    c("llistxattr", 195, 12, Listed, 0b0, PATH),
    c("flistxattr", 196, 13, Listed, 0b1, NONE),
    c("removexattr", 197, 14, Metadata, 0b0, PATH),
    c("lremovexattr", 198, 15, Metadata, 0b0, PATH),
    c("fremovexattr", 199, 16, Metadata, 0b1, NONE),
    c("tkill", 200, 130, Listed, 0b11, NONE),
    c("time", 201, NO, Listed, 0b0, NONE),
    c("futex", 202, 98, Listed, 0b100110, NONE),
    c("sched_setaffinity", 203, 122, Listed, 0b11, NONE),
    c("sched_getaffinity", 204, 123, Listed, 0b11, NONE),
    c("set_thread_area", 205, NO, Unlisted, 0b0, NONE),
    c("io_setup", 206, 0, Listed, 0b0, NONE),
    c("io_destroy", 207, 1, Listed, 0b0, NONE),
    c("io_getevents", 208, 4, Listed, 0b0, NONE),
    c("io_submit", 209, 2, Listed, 0b0, NONE),
    c("io_cancel", 210, 3, Listed, 0b0, NONE),
    c("get_thread_area", 211, NO, Unlisted, 0b0, NONE),
    c("lookup_dcookie", 212, 18, Obsolete, 0b0, NONE),
    c("epoll_create", 213, NO, Listed, 0b1, NONE),
    c("epoll_ctl_old", 214, NO, Obsolete, 0b0, NONE),
    c("epoll_wait_old", 215, NO, Obsolete, 0b0, NONE),
    c("remap_file_pages", 216, 234, Listed, 0b0, NONE),
    c("getdents64", 217, 61, Listed, 0b101, NONE),
    c("set_tid_address", 218, 96, Listed, 0b0, NONE),
    c("restart_syscall", 219, 128, Listed, 0b0, NONE),
    c("semtimedop", 220, 192, Ipc, 0b101, NONE),
    c("fadvise64", 221, 223, Listed, 0b1001, NONE),
    c("timer_create", 222, 107, Listed, 0b1, NONE),
    c("timer_settime", 223, 110, Listed, 0b0, NONE),
    c("timer_gettime", 224, 108, Listed, 0b0, NONE),
    c("timer_getoverrun", 225, 109, Listed, 0b0, NONE),
    c("timer_delete", 226, 111, Listed, 0b0, NONE),
    c("clock_settime", 227, 112, Dangerous, 0b1, NONE),
    c("clock_gettime", 228, 113, Listed, 0b1, NONE),
    c("clock_getres", 229, 114, Listed, 0b1, NONE),
    c("clock_nanosleep", 230, 115, Listed, 0b11, NONE),
    c("exit_group", 231, 94, Listed, 0b1, NONE),
    c("epoll_wait", 232, NO, Listed, 0b1101, NONE),
    c("epoll_ctl", 233, 21, Listed, 0b111, NONE),
    c("tgkill", 234, 131, Listed, 0b111, NONE),
    c("utimes", 235, NO, Metadata, 0b0, PATH),
    c("vserver", 236, NO, Obsolete, 0b0, NONE),
    c("mbind", 237, 235, Listed, 0b100000, NONE),
    c("set_mempolicy", 238, 237, Listed, 0b1, NONE),
    c("get_mempolicy", 239, 236, Listed, 0b0, NONE),
    c("mq_open", 240, 180, Ipc, 0b110, NONE),
    c("mq_unlink", 241, 181, Ipc, 0b0, NONE),
    c("mq_timedsend", 242, 182, Ipc, 0b0, NONE),
    c("mq_timedreceive", 243, 183, Ipc, 0b0, NONE),
    c("mq_notify", 244, 184, Ipc, 0b0, NONE),
    c("mq_getsetattr", 245, 185, Ipc, 0b0, NONE),
    c("kexec_load", 246, 104, Dangerous, 0b0, NONE),
    c("waitid", 247, 95, Listed, 0b1011, NONE),
    c("add_key", 248, 217, Dangerous, 0b10000, NONE),
    c("request_key", 249, 218, Dangerous, 0b0, NONE),
    c("keyctl", 250, 219, Dangerous, 0b1, NONE),
    c("ioprio_set", 251, 30, Listed, 0b111, NONE),
    c("ioprio_get", 252, 31, Listed, 0b11, NONE),
    c("inotify_init", 253, NO, Listed, 0b0, NONE),
    c("inotify_add_watch", 254, 27, Listed, 0b101, PATH),
    c("inotify_rm_watch", 255, 28, Listed, 0b11, NONE),
    c("migrate_pages", 256, 238, Unlisted, 0b0, NONE),
    c("openat", 257, 56, Listed, 0b1101, PATH),
    c("mkdirat", 258, 34, Listed, 0b101, PATH),
    c("mknodat", 259, 33, Listed, 0b1101, PATH),
    c("fchownat", 260, 54, Metadata, 0b11101, PATH),
    c("futimesat", 261, NO, Metadata, 0b1, PATH),
    c("newfstatat", 262, 79, Listed, 0b1001, PATH),
    c("unlinkat", 263, 35, Listed, 0b101, PATH),
    c("renameat", 264, 38, Listed, 0b101, PATH),
    c("linkat", 265, 37, Listed, 0b10101, PATH),
    c("symlinkat", 266, 36, Listed, 0b10, PATH),
    c("readlinkat", 267, 78, Listed, 0b1001, PATH),
    c("fchmodat", 268, 53, Metadata, 0b101, PATH),
    c("faccessat", 269, 48, Listed, 0b101, PATH),
    c("pselect6", 270, 72, Listed, 0b1, NONE),
    c("ppoll", 271, 73, Listed, 0b10, NONE),
    c("unshare", 272, 97, Listed, 0b0, NONE),
    c("set_robust_list", 273, 99, Listed, 0b0, NONE),
    c("get_robust_list", 274, 100, Listed, 0b0, NONE),
    c("splice", 275, 76, Listed, 0b100101, NONE),
    c("tee", 276, 77, Listed, 0b1011, NONE),
    c("sync_file_range", 277, 84, Listed, 0b1001, NONE),
    c("vmsplice", 278, 75, Listed, 0b1001, NONE),
    c("move_pages", 279, 239, Unlisted, 0b0, NONE),
    c("utimensat", 280, 88, Metadata, 0b1001, PATH),
    c("epoll_pwait", 281, 22, Listed, 0b1101, NONE),
    c("signalfd", 282, NO, Listed, 0b1, NONE),
    c("timerfd_create", 283, 85, Listed, 0b11, NONE),
    c("eventfd", 284, NO, Listed, 0b1, NONE),
    c("fallocate", 285, 47, Listed, 0b11, NONE),
    c("timerfd_settime", 286, 86, Listed, 0b11, NONE),
    c("timerfd_gettime", 287, 87, Listed, 0b1, NONE),
    c("accept4", 288, 242, Socket, 0b1001, NONE),
    c("signalfd4", 289, 74, Listed, 0b1001, NONE),
    c("eventfd2", 290, 19, Listed, 0b11, NONE),
    c("epoll_create1", 291, 20, Listed, 0b1, NONE),
    c("dup3", 292, 24, Listed, 0b111, NONE),
    c("pipe2", 293, 59, Listed, 0b10, NONE),
    c("inotify_init1", 294, 26, Listed, 0b1, NONE),
    c("preadv", 295, 69, Listed, 0b1, NONE),
    c("pwritev", 296, 70, Listed, 0b1, NONE),
    c("rt_tgsigqueueinfo", 297, 240, Listed, 0b111, NONE),
    c("perf_event_open", 298, 241, Dangerous, 0b1110, NONE),
    c("recvmmsg", 299, 243, Listed, 0b1101, NONE),
    c("fanotify_init", 300, 262, Dangerous, 0b11, NONE),
    c("fanotify_mark", 301, 263, Unlisted, 0b1011, NONE),
    c("prlimit64", 302, 261, Listed, 0b11, NONE),
    c("name_to_handle_at", 303, 264, Dangerous, 0b10001, NONE),
    c("open_by_handle_at", 304, 265, Dangerous, 0b101, NONE),
    c("clock_adjtime", 305, 266, Dangerous, 0b1, NONE),
    c("syncfs", 306, 267, Listed, 0b1, NONE),
    c("sendmmsg", 307, 269, Listed, 0b1101, NONE),
    c("setns", 308, 268, Dangerous, 0b11, NONE),
    c("getcpu", 309, 168, Listed, 0b0, NONE),
    c("process_vm_readv", 310, 270, Dangerous, 0b0, NONE),
    c("process_vm_writev", 311, 271, Dangerous, 0b0, NONE),
    c("kcmp", 312, 272, Dangerous, 0b111, NONE),
    c("finit_module", 313, 273, Dangerous, 0b101, NONE),
    c("sched_setattr", 314, 274, Listed, 0b101, NONE),
    c("sched_getattr", 315, 275, Listed, 0b0, NONE),
    c("renameat2", 316, 276, Listed, 0b10101, PATH),
    c("seccomp", 317, 277, Listed, 0b11, NONE),
    c("getrandom", 318, 278, Listed, 0b100, NONE),
    c("memfd_create", 319, 279, Listed, 0b10, NONE),
    c("kexec_file_load", 320, 294, Dangerous, 0b11, NONE),
    c("bpf", 321, 280, Dangerous, 0b101, NONE),
    c("execveat", 322, 281, Listed, 0b10001, NONE),
    c("userfaultfd", 323, 282, Dangerous, 0b1, NONE),
    c("membarrier", 324, 283, Listed, 0b111, NONE),
    c("mlock2", 325, 284, Listed, 0b100, NONE),
    c("copy_file_range", 326, 285, Listed, 0b100101, NONE),
    c("preadv2", 327, 286, Listed, 0b100001, NONE),
    c("pwritev2", 328, 287, Listed, 0b100001, NONE),
    c("pkey_mprotect", 329, 288, Listed, 0b0, NONE),
    c("pkey_alloc", 330, 289, Listed, 0b0, NONE),
    c("pkey_free", 331, 290, Listed, 0b0, NONE),
    c("statx", 332, 291, Listed, 0b1101, PATH),
    c("io_pgetevents", 333, 292, Listed, 0b0, NONE),
    c("rseq", 334, 293, Listed, 0b110, NONE),
    c("uretprobe", 335, NO, Listed, 0b0, NONE),
    c("uprobe", 336, NO, Listed, 0b0, NONE),
    c("pidfd_send_signal", 424, 424, Listed, 0b1011, NONE),
    c("io_uring_setup", 425, 425, Opaque, 0b1, NONE),
    c("io_uring_enter", 426, 426, Opaque, 0b1111, NONE),
    c("io_uring_register", 427, 427, Opaque, 0b1011, NONE),
    c("open_tree", 428, 428, Dangerous, 0b101, NONE),
    c("move_mount", 429, 429, Dangerous, 0b10101, NONE),
    c("fsopen", 430, 430, Dangerous, 0b10, NONE),
    c("fsconfig", 431, 431, Dangerous, 0b10011, NONE),
    c("fsmount", 432, 432, Dangerous, 0b111, NONE),
    c("fspick", 433, 433, Dangerous, 0b101, NONE),
    c("pidfd_open", 434, 434, Listed, 0b11, NONE),
    c("clone3", 435, 435, Opaque, 0b0, NONE),
    c("close_range", 436, 436, Listed, 0b111, NONE),
    c("openat2", 437, 437, Opaque, 0b0, NONE),
    c("pidfd_getfd", 438, 438, Dangerous, 0b111, NONE),
    c("faccessat2", 439, 439, Listed, 0b1101, PATH),
    c("process_madvise", 440, 440, Dangerous, 0b11001, NONE),
    c("epoll_pwait2", 441, 441, Listed, 0b101, NONE),
    c("mount_setattr", 442, 442, Dangerous, 0b101, NONE),
    c("quotactl_fd", 443, 443, Dangerous, 0b0, NONE),
    c("landlock_create_ruleset", 444, 444, Listed, 0b100, NONE),
    c("landlock_add_rule", 445, 445, Listed, 0b1011, NONE),
    c("landlock_restrict_self", 446, 446, Listed, 0b11, NONE),
    c("memfd_secret", 447, 447, Dangerous, 0b1, NONE),
    c("process_mrelease", 448, 448, Dangerous, 0b11, NONE),
    c("futex_waitv", 449, 449, Listed, 0b10110, NONE),
    c("set_mempolicy_home_node", 450, 450, Listed, 0b0, NONE),
    c("cachestat", 451, 451, Listed, 0b1001, NONE),
    c("fchmodat2", 452, 452, Metadata, 0b1101, PATH),
    c("map_shadow_stack", 453, 453, Listed, 0b0, NONE),
    c("futex_wake", 454, 454, Listed, 0b0, NONE),
    c("futex_wait", 455, 455, Listed, 0b0, NONE),
    c("futex_requeue", 456, 456, Listed, 0b0, NONE),
    c("statmount", 457, 457, Listed, 0b0, NONE),
    c("listmount", 458, 458, Listed, 0b0, NONE),
    c("lsm_get_self_attr", 459, 459, Listed, 0b0, NONE),
    c("lsm_set_self_attr", 460, 460, Unlisted, 0b0, NONE),
    c("lsm_list_modules", 461, 461, Listed, 0b0, NONE),
    c("mseal", 462, 462, Listed, 0b0, NONE),
    c("setxattrat", 463, 463, Metadata, 0b101, PATH),
    c("getxattrat", 464, 464, Listed, 0b101, PATH),
    c("listxattrat", 465, 465, Listed, 0b101, PATH),
    c("removexattrat", 466, 466, Metadata, 0b101, PATH),
    c("open_tree_attr", 467, 467, Dangerous, 0b0, NONE),
    c("file_getattr", 468, 468, Listed, 0b10001, PATH),
    c("file_setattr", 469, 469, Metadata, 0b10001, PATH),
];
