//! System calls for what runs after clone: raw, without libc, one wrapper per call that is made, under the kernel's
//! name. The numbers are those of the table of `seccomp`.
//!
//! Compiled into init and, for the lines between clone and exec, into the library.
//!
//! Results are `Result<usize, i32>` with the errno. Nothing here decides anything.

use core::arch::asm;

use crate::seccomp::calls::native;

const CLONE: usize = native("clone");
const CLONE3: usize = native("clone3");

/// Result of a call: its value, or the errno.
pub(crate) type Res = Result<usize, i32>;

/// A NUL-terminated string, by address.
pub(crate) type Str = *const u8;

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
    ($($name:ident $(= $kernel:literal)? ($($arg:ident : $ty:ty),*);)+) => {
        $(#[inline(always)] pub(crate) fn $name($($arg: $ty),*) -> Res {
            const NUMBER: usize = native([$($kernel,)? stringify!($name)][0]);
            let v = [$($arg as usize),*];
            let at = |i: usize| -> usize { if i < v.len() { v[i] } else { 0 } };
            call(NUMBER, at(0), at(1), at(2), at(3), at(4), at(5))
        })+
    };
}

wrap! {
    read(fd: i32, buf: *mut u8, len: usize);
    write(fd: i32, buf: *const u8, len: usize);
    close(fd: i32);
    mmap(addr: usize, len: usize, prot: usize, flags: usize, fd: i32, off: usize);
    rt_sigaction(sig: i32, new: *const u64, old: *mut u64, size: usize);
    rt_sigprocmask(how: i32, set: *const u64, old: *mut u64, size: usize);
    ioctl(fd: i32, cmd: usize, arg: usize);
    pread = "pread64"(fd: i32, buf: *mut u8, len: usize, off: usize);
    getsockopt(fd: i32, level: i32, option: i32, value: *mut u8, len: *mut u32);
    setsockopt(fd: i32, level: i32, option: i32, value: *const u8, len: usize);
    bind(fd: i32, address: *const u8, len: usize);
    listen(fd: i32, backlog: i32);
    socket(family: i32, kind: i32, proto: i32);
    connect(fd: i32, address: *const u8, len: usize);
    recvmsg(fd: i32, msg: *mut u8, flags: i32);
    sendmsg(fd: i32, msg: *const u8, flags: i32);
    execve(path: Str, argv: *const Str, envp: *const Str);
    execveat(fd: i32, path: Str, argv: *const Str, envp: *const Str, flags: i32);
    wait4(pid: i32, status: *mut i32, options: i32, usage: usize);
    getrusage(who: i32, usage: *mut u64);
    kill(pid: i32, sig: i32);
    fcntl(fd: i32, cmd: i32, arg: usize);
    chdir(path: Str);
    fchdir(fd: i32);
    fchmod(fd: i32, mode: u32);
    umask(mask: u32);
    setsid();
    getsid(pid: i32);
    getppid();
    sched_getscheduler(pid: i32);
    sched_setscheduler(pid: i32, policy: i32, priority: *const i32);
    getpriority(which: i32, who: i32);
    setpriority(which: i32, who: i32, nice: i32);
    ioprio_get(which: i32, who: i32);
    ioprio_set(which: i32, who: i32, priority: i32);
    setgroups(n: usize, list: *const u32);
    getgroups(n: usize, list: *mut u32);
    getresuid(r: *mut u32, e: *mut u32, s: *mut u32);
    getresgid(r: *mut u32, e: *mut u32, s: *mut u32);
    setresuid(r: u32, e: u32, s: u32);
    setresgid(r: u32, e: u32, s: u32);
    capget(header: *const u32, data: *mut u32);
    capset(header: *const u32, data: *const u32);
    chroot(path: Str);
    pivot_root(new: Str, old: Str);
    prctl(op: i32, a: usize, b: usize, c: usize, d: usize);
    mount(src: Str, dst: Str, kind: Str, flags: usize, data: Str);
    umount2(path: Str, flags: i32);
    sethostname(name: *const u8, len: usize);
    clock_gettime(clock: i32, ts: *mut u64);
    keyctl(op: u32, a: usize);
    openat(dir: i32, path: Str, flags: i32, mode: u32);
    mkdirat(dir: i32, path: Str, mode: u32);
    mknodat(dir: i32, path: Str, mode: u32, dev: u64);
    unlinkat(dir: i32, path: Str, flags: i32);
    linkat(olddir: i32, old: Str, newdir: i32, new: Str, flags: i32);
    symlinkat(target: Str, dir: i32, path: Str);
    readlinkat(dir: i32, path: Str, buf: *mut u8, len: usize);
    ppoll(fds: *mut PollFd, n: usize, timeout: *const u64, mask: *const u64, size: usize);
    signalfd4(fd: i32, mask: *const u64, size: usize, flags: i32);
    dup3(old: i32, new: i32, flags: i32);
    pipe2(fds: *mut i32, flags: i32);
    prlimit = "prlimit64"(pid: i32, resource: u32, new: *const u64, old: *mut u64);
    process_vm_readv(pid: i32, local: *const usize, nl: usize, remote: *const usize, nr: usize, flags: usize);
    renameat2(olddir: i32, old: Str, newdir: i32, new: Str, flags: u32);
    seccomp(op: u32, flags: u32, arg: *const u8);
    statx(dir: i32, path: Str, flags: i32, mask: u32, buf: *mut Statx);
    open_tree(dir: i32, path: Str, flags: i32);
    move_mount(fdir: i32, from: Str, tdir: i32, to: Str, flags: u32);
    fsopen(name: Str, flags: u32);
    fsconfig(fd: i32, cmd: u32, key: Str, value: Str, aux: i32);
    fsmount(fd: i32, flags: u32, attrs: u64);
    close_range(first: u32, last: u32, flags: u32);
    pidfd_open(pid: i32, flags: u32);
    pidfd_getfd(pidfd: i32, fd: i32, flags: u32);
    mount_setattr(dir: i32, path: Str, flags: i32, attr: *const u64, size: usize);
    landlock_create_ruleset(attr: *const u64, size: usize, flags: u32);
    landlock_add_rule(fd: i32, kind: u32, attr: *const u8, flags: u32);
    landlock_restrict_self(fd: i32, flags: u32);
}

/// Ends the process.
pub(crate) fn exit(code: i32) -> ! {
    loop {
        if call(const { native("exit_group") }, code as usize, 0, 0, 0, 0, 0).is_err() {
            continue;
        }
    }
}

/// `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PollFd {
    /// Descriptor; negative is ignored.
    pub fd: i32,
    /// Asked for.
    pub events: i16,
    /// Seen.
    pub revents: i16,
}

/// `struct msghdr`.
#[repr(C)]
#[allow(missing_docs, reason = "recvmsg(2)")]
pub(crate) struct Msghdr {
    pub name: usize,
    pub namelen: usize,
    pub iov: *const [usize; 2],
    pub iovlen: usize,
    pub control: *const u8,
    pub controllen: usize,
    pub flags: usize,
}

/// `struct statx`, as far as init reads it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Statx {
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
    pub(crate) const fn new() -> Statx {
        // SAFETY: every field is an integer, for which zero bytes are a value.
        unsafe { core::mem::zeroed() }
    }

    /// Device as one number.
    pub(crate) fn dev(&self) -> u64 {
        ((self.dev_major as u64) << 32) | self.dev_minor as u64
    }
}

/// `openat2` with a resolve mask.
pub(crate) fn openat2(dir: i32, path: Str, flags: i32, mode: u64, resolve: u64) -> Res {
    let how = [flags as u64, mode, resolve];
    call(const { native("openat2") }, dir as usize, path as usize, how.as_ptr() as usize, 24, 0, 0)
}

/// `fstatfs`: the file system's type and the mount's `ST_*` flags.
pub(crate) fn fstatfs(fd: i32) -> Result<(u64, u64), i32> {
    let mut st = [0u64; 16]; // struct statfs: f_type first, f_flags eleventh, on both architectures
    call(const { native("fstatfs") }, fd as usize, st.as_mut_ptr() as usize, 0, 0, 0, 0)?;
    Ok((st[0], st[10]))
}

/// Runs `entry(arg)` in a child made by `clone3(args)`, whose flags hold CLONE_VM and CLONE_VFORK, on the stack that
/// `args` names; the caller waits until the child has exec'd or ended. Returns the child's pid.
///
/// # Safety
/// `args` is a valid `struct clone_args` whose stack is unused writable memory; `entry` never returns.
pub(crate) unsafe fn clone3_on(args: &[u64; 11], entry: extern "C" fn(usize) -> !, arg: usize) -> Res {
    let r: isize;
    // SAFETY: the child starts on the given stack, touches nothing of the caller's frame, and calls `entry`, which does
    // not return; the caller is suspended meanwhile and then goes on with its own registers.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r13", "call r12", "ud2", "2:",
             inlateout("rax") CLONE3 as isize => r, in("rdi") args.as_ptr(), in("rsi") 88usize,
             in("r12") entry as usize, in("r13") arg, lateout("rcx") _, lateout("r11") _);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x0, x21", "blr x20", "brk 1", "2:",
             in("x8") CLONE3, inlateout("x0") args.as_ptr() as isize => r, in("x1") 88usize,
             in("x20") entry as usize, in("x21") arg, lateout("x30") _);
    }
    if r < 0 && r > -4096 { Err(-r as i32) } else { Ok(r as usize) }
}

/// Runs `entry(arg)` in a child made by `clone(flags)` with CLONE_VM, on a stack of its own. Returns the child's pid.
///
/// # Safety
/// `stack_top` is the upper end of unused writable memory, 16-byte aligned; `entry` never returns.
pub(crate) unsafe fn clone_on(flags: usize, stack_top: *mut u8, entry: extern "C" fn(usize) -> !, arg: usize) -> Res {
    let r: isize;
    // SAFETY: the child starts with its stack pointer at `stack_top`, touches nothing of the parent's frame, and calls
    // `entry`, which does not return; the parent is suspended meanwhile and then goes on with its own registers.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", "test rax, rax", "jnz 2f", "xor ebp, ebp", "mov rdi, r13", "call r12", "ud2", "2:",
             inlateout("rax") CLONE as isize => r, in("rdi") flags, in("rsi") stack_top, in("rdx") 0usize,
             in("r10") 0usize, in("r8") 0usize, in("r12") entry as usize, in("r13") arg,
             lateout("rcx") _, lateout("r11") _);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", "cbnz x0, 2f", "mov x29, xzr", "mov x0, x21", "blr x20", "brk 1", "2:",
             in("x8") CLONE, inlateout("x0") flags as isize => r, in("x1") stack_top, in("x2") 0usize,
             in("x3") 0usize, in("x4") 0usize, in("x20") entry as usize, in("x21") arg, lateout("x30") _);
    }
    if r < 0 && r > -4096 { Err(-r as i32) } else { Ok(r as usize) }
}

/// A whole number as a NUL-terminated decimal string in `buf`; returns where it starts.
pub(crate) fn decimal(mut n: u64, buf: &mut [u8; 24]) -> Str {
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
pub(crate) fn now_ns() -> u64 {
    let mut ts = [0u64; 2];
    match clock_gettime(crate::uapi::CLOCK_MONOTONIC, ts.as_mut_ptr()) {
        Ok(_) => ts[0] * 1_000_000_000 + ts[1],
        Err(_) => 0,
    }
}
