//! System calls for what runs after clone: raw, without libc, one wrapper per call that is made.
//!
//! Compiled into init and, for the lines between clone and exec, into the library.
//!
//! Results are `Result<usize, i32>` with the errno. Nothing here decides anything.

use core::arch::asm;

/// errno values that init names.
pub mod errno {
    #![allow(missing_docs)]
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EINTR: i32 = 4;
    pub const ENOEXEC: i32 = 8;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const EFAULT: i32 = 14;
    pub const EEXIST: i32 = 17;
    pub const ENOTDIR: i32 = 20;
    pub const EINVAL: i32 = 22;
    pub const EROFS: i32 = 30;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ELOOP: i32 = 40;
    pub const ESTALE: i32 = 116;
}

#[cfg(target_arch = "x86_64")]
pub mod nr {
    #![allow(missing_docs)]
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const PREAD64: usize = 17;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const SENDMSG: usize = 46;
    pub const RECVMSG: usize = 47;
    pub const BIND: usize = 49;
    pub const LISTEN: usize = 50;
    pub const SETSOCKOPT: usize = 54;
    pub const GETSOCKOPT: usize = 55;
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    pub const WAIT4: usize = 61;
    pub const GETRUSAGE: usize = 98;
    pub const KILL: usize = 62;
    pub const FCNTL: usize = 72;
    pub const PIPE2: usize = 293;
    pub const CHDIR: usize = 80;
    pub const FCHDIR: usize = 81;
    pub const FCHMOD: usize = 91;
    pub const UMASK: usize = 95;
    pub const GETPPID: usize = 110;
    pub const SETSID: usize = 112;
    pub const SETGROUPS: usize = 116;
    pub const GETGROUPS: usize = 115;
    pub const GETRESUID: usize = 118;
    pub const GETRESGID: usize = 120;
    pub const SETRESUID: usize = 117;
    pub const GETSID: usize = 124;
    pub const SETRESGID: usize = 119;
    pub const CAPGET: usize = 125;
    pub const CAPSET: usize = 126;
    pub const GETPRIORITY: usize = 140;
    pub const SETPRIORITY: usize = 141;
    pub const SCHED_SETSCHEDULER: usize = 144;
    pub const SCHED_GETSCHEDULER: usize = 145;
    pub const PIVOT_ROOT: usize = 155;
    pub const CHROOT: usize = 161;
    pub const PRCTL: usize = 157;
    pub const MOUNT: usize = 165;
    pub const UMOUNT2: usize = 166;
    pub const SETHOSTNAME: usize = 170;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const KEYCTL: usize = 250;
    pub const IOPRIO_SET: usize = 251;
    pub const IOPRIO_GET: usize = 252;
    pub const OPENAT: usize = 257;
    pub const MKDIRAT: usize = 258;
    pub const MKNODAT: usize = 259;
    pub const UNLINKAT: usize = 263;
    pub const LINKAT: usize = 265;
    pub const SYMLINKAT: usize = 266;
    pub const READLINKAT: usize = 267;
    pub const PPOLL: usize = 271;
    pub const SIGNALFD4: usize = 289;
    pub const DUP3: usize = 292;
    pub const PRLIMIT64: usize = 302;
    pub const PROCESS_VM_READV: usize = 310;
    pub const RENAMEAT2: usize = 316;
    pub const SECCOMP: usize = 317;
    pub const EXECVEAT: usize = 322;
    pub const STATX: usize = 332;
    pub const FSTATFS: usize = 138;
}

#[cfg(target_arch = "aarch64")]
pub mod nr {
    #![allow(missing_docs)]
    pub const FCNTL: usize = 25;
    pub const PIPE2: usize = 59;
    pub const DUP3: usize = 24;
    pub const IOCTL: usize = 29;
    pub const IOPRIO_SET: usize = 30;
    pub const IOPRIO_GET: usize = 31;
    pub const MKNODAT: usize = 33;
    pub const MKDIRAT: usize = 34;
    pub const UNLINKAT: usize = 35;
    pub const SYMLINKAT: usize = 36;
    pub const LINKAT: usize = 37;
    pub const UMOUNT2: usize = 39;
    pub const MOUNT: usize = 40;
    pub const PIVOT_ROOT: usize = 41;
    pub const CHROOT: usize = 51;
    pub const CHDIR: usize = 49;
    pub const FCHDIR: usize = 50;
    pub const FCHMOD: usize = 52;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const PREAD64: usize = 67;
    pub const PPOLL: usize = 73;
    pub const SIGNALFD4: usize = 74;
    pub const READLINKAT: usize = 78;
    pub const CAPGET: usize = 90;
    pub const CAPSET: usize = 91;
    pub const EXIT_GROUP: usize = 94;
    pub const CLOCK_GETTIME: usize = 113;
    pub const SCHED_SETSCHEDULER: usize = 119;
    pub const SCHED_GETSCHEDULER: usize = 120;
    pub const KILL: usize = 129;
    pub const RT_SIGACTION: usize = 134;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const SETPRIORITY: usize = 140;
    pub const GETPRIORITY: usize = 141;
    pub const SETRESUID: usize = 147;
    pub const SETRESGID: usize = 149;
    pub const SETSID: usize = 157;
    pub const GETSID: usize = 156;
    pub const SETGROUPS: usize = 159;
    pub const GETGROUPS: usize = 158;
    pub const GETRESUID: usize = 148;
    pub const GETRESGID: usize = 150;
    pub const SETHOSTNAME: usize = 161;
    pub const UMASK: usize = 166;
    pub const PRCTL: usize = 167;
    pub const GETPPID: usize = 173;
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const BIND: usize = 200;
    pub const LISTEN: usize = 201;
    pub const SETSOCKOPT: usize = 208;
    pub const GETSOCKOPT: usize = 209;
    pub const SENDMSG: usize = 211;
    pub const RECVMSG: usize = 212;
    pub const KEYCTL: usize = 219;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const MMAP: usize = 222;
    pub const WAIT4: usize = 260;
    pub const GETRUSAGE: usize = 165;
    pub const PRLIMIT64: usize = 261;
    pub const PROCESS_VM_READV: usize = 270;
    pub const RENAMEAT2: usize = 276;
    pub const SECCOMP: usize = 277;
    pub const EXECVEAT: usize = 281;
    pub const STATX: usize = 291;
    pub const FSTATFS: usize = 44;
}

const OPEN_TREE: usize = 428;
const MOVE_MOUNT: usize = 429;
const FSOPEN: usize = 430;
const FSCONFIG: usize = 431;
const FSMOUNT: usize = 432;
const CLOSE_RANGE: usize = 436;
const OPENAT2: usize = 437;
const PIDFD_OPEN: usize = 434;
const PIDFD_GETFD: usize = 438;
const MOUNT_SETATTR: usize = 442;
const LANDLOCK_CREATE_RULESET: usize = 444;
const LANDLOCK_ADD_RULE: usize = 445;
const LANDLOCK_RESTRICT_SELF: usize = 446;

/// Result of a call: its value, or the errno.
pub type Res = Result<usize, i32>;

/// A NUL-terminated string, by address.
pub type Str = *const u8;

#[inline(always)]
fn call(n: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Res {
    let r: isize;
    // SAFETY: the kernel checks every argument of a system call; pointers are given by the wrappers below, each of
    // which passes memory that outlives the call and, where the kernel writes, memory of at least the size it writes.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") n as isize => r, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") n, inlateout("x0") a as isize => r, in("x1") b, in("x2") c, in("x3") d,
             in("x4") e, in("x5") f, options(nostack));
    }
    if r < 0 && r > -4096 { Err(-r as i32) } else { Ok(r as usize) }
}

macro_rules! wrap {
    ($($(#[doc = $doc:literal])* $name:ident($nr:expr $(, $arg:ident : $ty:ty)*);)+) => {
        $($(#[doc = $doc])* #[inline(always)] pub fn $name($($arg: $ty),*) -> Res {
            let v = [$($arg as usize),*];
            let at = |i: usize| -> usize { if i < v.len() { v[i] } else { 0 } };
            call($nr, at(0), at(1), at(2), at(3), at(4), at(5))
        })+
    };
}

wrap! {
    read(nr::READ, fd: i32, buf: *mut u8, len: usize);
    write(nr::WRITE, fd: i32, buf: *const u8, len: usize);
    close(nr::CLOSE, fd: i32);
    mmap(nr::MMAP, addr: usize, len: usize, prot: usize, flags: usize, fd: i32, off: usize);
    rt_sigaction(nr::RT_SIGACTION, sig: i32, new: *const u64, old: *mut u64, size: usize);
    rt_sigprocmask(nr::RT_SIGPROCMASK, how: i32, set: *const u64, old: *mut u64, size: usize);
    ioctl(nr::IOCTL, fd: i32, cmd: usize, arg: usize);
    pread(nr::PREAD64, fd: i32, buf: *mut u8, len: usize, off: usize);
    getsockopt(nr::GETSOCKOPT, fd: i32, level: i32, option: i32, value: *mut u8, len: *mut u32);
    setsockopt(nr::SETSOCKOPT, fd: i32, level: i32, option: i32, value: *const u8, len: usize);
    bind(nr::BIND, fd: i32, address: *const u8, len: usize);
    listen(nr::LISTEN, fd: i32, backlog: i32);
    socket(nr::SOCKET, family: i32, kind: i32, proto: i32);
    connect(nr::CONNECT, fd: i32, address: *const u8, len: usize);
    recvmsg(nr::RECVMSG, fd: i32, msg: *mut u8, flags: i32);
    sendmsg(nr::SENDMSG, fd: i32, msg: *const u8, flags: i32);
    execve(nr::EXECVE, path: Str, argv: *const Str, envp: *const Str);
    execveat(nr::EXECVEAT, fd: i32, path: Str, argv: *const Str, envp: *const Str, flags: i32);
    wait4(nr::WAIT4, pid: i32, status: *mut i32, options: i32, usage: usize);
    getrusage(nr::GETRUSAGE, who: i32, usage: *mut u64);
    kill(nr::KILL, pid: i32, sig: i32);
    fcntl(nr::FCNTL, fd: i32, cmd: i32, arg: usize);
    chdir(nr::CHDIR, path: Str);
    fchdir(nr::FCHDIR, fd: i32);
    fchmod(nr::FCHMOD, fd: i32, mode: u32);
    umask(nr::UMASK, mask: u32);
    setsid(nr::SETSID);
    getsid(nr::GETSID, pid: i32);
    getppid(nr::GETPPID);
    sched_getscheduler(nr::SCHED_GETSCHEDULER, pid: i32);
    sched_setscheduler(nr::SCHED_SETSCHEDULER, pid: i32, policy: i32, priority: *const i32);
    getpriority(nr::GETPRIORITY, which: i32, who: i32);
    setpriority(nr::SETPRIORITY, which: i32, who: i32, nice: i32);
    ioprio_get(nr::IOPRIO_GET, which: i32, who: i32);
    ioprio_set(nr::IOPRIO_SET, which: i32, who: i32, priority: i32);
    setgroups(nr::SETGROUPS, n: usize, list: *const u32);
    getgroups(nr::GETGROUPS, n: usize, list: *mut u32);
    getresuid(nr::GETRESUID, r: *mut u32, e: *mut u32, s: *mut u32);
    getresgid(nr::GETRESGID, r: *mut u32, e: *mut u32, s: *mut u32);
    setresuid(nr::SETRESUID, r: u32, e: u32, s: u32);
    setresgid(nr::SETRESGID, r: u32, e: u32, s: u32);
    capget(nr::CAPGET, header: *const u32, data: *mut u32);
    capset(nr::CAPSET, header: *const u32, data: *const u32);
    chroot(nr::CHROOT, path: Str);
    pivot_root(nr::PIVOT_ROOT, new: Str, old: Str);
    prctl(nr::PRCTL, op: i32, a: usize, b: usize, c: usize, d: usize);
    mount(nr::MOUNT, src: Str, dst: Str, kind: Str, flags: usize, data: Str);
    umount2(nr::UMOUNT2, path: Str, flags: i32);
    sethostname(nr::SETHOSTNAME, name: *const u8, len: usize);
    clock_gettime(nr::CLOCK_GETTIME, clock: i32, ts: *mut u64);
    keyctl(nr::KEYCTL, op: i32, a: usize);
    openat(nr::OPENAT, dir: i32, path: Str, flags: i32, mode: u32);
    mkdirat(nr::MKDIRAT, dir: i32, path: Str, mode: u32);
    mknodat(nr::MKNODAT, dir: i32, path: Str, mode: u32, dev: u64);
    unlinkat(nr::UNLINKAT, dir: i32, path: Str, flags: i32);
    linkat(nr::LINKAT, olddir: i32, old: Str, newdir: i32, new: Str, flags: i32);
    symlinkat(nr::SYMLINKAT, target: Str, dir: i32, path: Str);
    readlinkat(nr::READLINKAT, dir: i32, path: Str, buf: *mut u8, len: usize);
    ppoll(nr::PPOLL, fds: *mut PollFd, n: usize, timeout: *const u64, mask: *const u64, size: usize);
    signalfd4(nr::SIGNALFD4, fd: i32, mask: *const u64, size: usize, flags: i32);
    dup3(nr::DUP3, old: i32, new: i32, flags: i32);
    pipe2(nr::PIPE2, fds: *mut i32, flags: i32);
    prlimit(nr::PRLIMIT64, pid: i32, resource: u32, new: *const u64, old: *mut u64);
    process_vm_readv(nr::PROCESS_VM_READV, pid: i32, local: *const usize, nl: usize, remote: *const usize, nr: usize, flags: usize);
    renameat2(nr::RENAMEAT2, olddir: i32, old: Str, newdir: i32, new: Str, flags: u32);
    seccomp(nr::SECCOMP, op: u32, flags: u32, arg: *const u8);
    statx(nr::STATX, dir: i32, path: Str, flags: i32, mask: u32, buf: *mut Statx);
    open_tree(OPEN_TREE, dir: i32, path: Str, flags: u32);
    move_mount(MOVE_MOUNT, fdir: i32, from: Str, tdir: i32, to: Str, flags: u32);
    fsopen(FSOPEN, name: Str, flags: u32);
    fsconfig(FSCONFIG, fd: i32, cmd: u32, key: Str, value: Str, aux: i32);
    fsmount(FSMOUNT, fd: i32, flags: u32, attrs: u64);
    close_range(CLOSE_RANGE, first: u32, last: u32, flags: u32);
    pidfd_open(PIDFD_OPEN, pid: i32, flags: u32);
    pidfd_getfd(PIDFD_GETFD, pidfd: i32, fd: i32, flags: u32);
    mount_setattr(MOUNT_SETATTR, dir: i32, path: Str, flags: u32, attr: *const u64, size: usize);
    landlock_create_ruleset(LANDLOCK_CREATE_RULESET, attr: *const u64, size: usize, flags: u32);
    landlock_add_rule(LANDLOCK_ADD_RULE, fd: i32, kind: u32, attr: *const u8, flags: u32);
    landlock_restrict_self(LANDLOCK_RESTRICT_SELF, fd: i32, flags: u32);
}

/// Ends the process.
pub fn exit(code: i32) -> ! {
    loop {
        if call(nr::EXIT_GROUP, code as usize, 0, 0, 0, 0, 0).is_err() {
            continue;
        }
    }
}

/// `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PollFd {
    /// Descriptor; negative is ignored.
    pub fd: i32,
    /// Asked for.
    pub events: i16,
    /// Seen.
    pub revents: i16,
}

/// `struct statx`, as far as init reads it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Statx {
    /// Which fields are set.
    pub mask: u32,
    _blksize: u32,
    _attributes: u64,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Type and permissions.
    pub mode: u16,
    _pad: u16,
    /// Inode.
    pub ino: u64,
    _size: u64,
    _blocks: u64,
    _attributes_mask: u64,
    _times: [u64; 8],
    /// What device it is, when it is one: major and minor.
    pub rdev: [u32; 2],
    /// Device, major.
    pub dev_major: u32,
    /// Device, minor.
    pub dev_minor: u32,
    _rest: [u64; 14],
}

impl Statx {
    /// All zero.
    pub const fn new() -> Statx {
        // SAFETY: every field is an integer, for which zero bytes are a value.
        unsafe { core::mem::zeroed() }
    }

    /// Device as one number.
    pub fn dev(&self) -> u64 {
        ((self.dev_major as u64) << 32) | self.dev_minor as u64
    }
}

/// `openat2` with a resolve mask.
pub fn openat2(dir: i32, path: Str, flags: u64, mode: u64, resolve: u64) -> Res {
    let how = [flags, mode, resolve];
    call(OPENAT2, dir as usize, path as usize, how.as_ptr() as usize, 24, 0, 0)
}

/// `fstatfs`: the file system's type and the mount's `ST_*` flags.
pub fn fstatfs(fd: i32) -> Result<(u64, u64), i32> {
    let mut st = [0u64; 16]; // struct statfs: f_type first, f_flags eleventh, on both architectures
    call(nr::FSTATFS, fd as usize, st.as_mut_ptr() as usize, 0, 0, 0, 0)?;
    Ok((st[0], st[10]))
}

/// Runs `entry(arg)` in a child made by `clone3(args)`, whose flags hold CLONE_VM and CLONE_VFORK, on the stack that
/// `args` names; the caller waits until the child has exec'd or ended. Returns the child's pid.
///
/// # Safety
/// `args` is a valid `struct clone_args` whose stack is unused writable memory; `entry` never returns.
pub unsafe fn clone3_on(args: &[u64; 11], entry: extern "C" fn(usize) -> !, arg: usize) -> Res {
    let r: isize;
    // SAFETY: the child starts on the given stack, touches nothing of the caller's frame, and calls `entry`, which does
    // not return; the caller is suspended meanwhile and then goes on with its own registers.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r13", "call r12", "ud2", "2:",
             inlateout("rax") 435isize => r, in("rdi") args.as_ptr(), in("rsi") 88usize,
             in("r12") entry as usize, in("r13") arg, lateout("rcx") _, lateout("r11") _);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x0, x21", "blr x20", "brk 1", "2:",
             in("x8") 435usize, inlateout("x0") args.as_ptr() as isize => r, in("x1") 88usize,
             in("x20") entry as usize, in("x21") arg, lateout("x30") _);
    }
    if r < 0 && r > -4096 { Err(-r as i32) } else { Ok(r as usize) }
}

/// Runs `entry(arg)` in a child made by `clone(flags)` with CLONE_VM, on a stack of its own. Returns the child's pid.
///
/// # Safety
/// `stack_top` is the upper end of unused writable memory, 16-byte aligned; `entry` never returns.
pub unsafe fn clone_on(flags: usize, stack_top: *mut u8, entry: extern "C" fn(usize) -> !, arg: usize) -> Res {
    let r: isize;
    // SAFETY: the child starts with its stack pointer at `stack_top`, touches nothing of the parent's frame, and calls
    // `entry`, which does not return; the parent is suspended meanwhile and then goes on with its own registers.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r13", "call r12", "ud2", "2:",
             inlateout("rax") nr::CLONE as isize => r, in("rdi") flags, in("rsi") stack_top, in("rdx") 0usize,
             in("r10") 0usize, in("r8") 0usize, in("r12") entry as usize, in("r13") arg,
             lateout("rcx") _, lateout("r11") _);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x0, x21", "blr x20", "brk 1", "2:",
             in("x8") nr::CLONE, inlateout("x0") flags as isize => r, in("x1") stack_top, in("x2") 0usize,
             in("x3") 0usize, in("x4") 0usize, in("x20") entry as usize, in("x21") arg, lateout("x30") _);
    }
    if r < 0 && r > -4096 { Err(-r as i32) } else { Ok(r as usize) }
}

/// A whole number as a NUL-terminated decimal string in `buf`; returns where it starts.
pub fn decimal(mut n: u64, buf: &mut [u8; 24]) -> Str {
    let mut i = 23;
    buf[i] = 0;
    loop {
        i -= 1;
        buf[i] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    buf[i..].as_ptr()
}

/// Monotonic clock, nanoseconds.
pub fn now_ns() -> u64 {
    let mut ts = [0u64; 2];
    match clock_gettime(1, ts.as_mut_ptr()) {
        Ok(_) => ts[0] * 1_000_000_000 + ts[1],
        Err(_) => 0,
    }
}
