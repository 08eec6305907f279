//! The filter in a real kernel: a process of its own installs it and makes one call; each refusal has its
//! allowed control, so that a call which would have failed anyway never counts as refused.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use cofferdam_confine::seccomp::{
    Arch, ArgComparison, Condition, FilterRule, RuleAction, SeccompRequest, SyscallLevel, compile, syscall_number,
};

const LEVELS: [(&str, SyscallLevel); 4] = [
    ("disabled", SyscallLevel::Disabled),
    ("basic", SyscallLevel::Basic),
    ("standard", SyscallLevel::Standard),
    ("strict", SyscallLevel::Strict),
];

/// Not a test: the process that `attempt` starts. It makes one call under the filter and exits with its errno,
/// 200 standing for success.
#[test]
fn child() {
    let Ok(case) = std::env::var("COFFERDAM_SECCOMP_CASE") else { return };
    let mut words = case.split_whitespace();
    let level = words.next().unwrap();
    let number: i64 = words.next().unwrap().parse().unwrap();
    let mut args = [0u64; 6];
    for (arg, word) in args.iter_mut().zip(words) {
        *arg = u64::from_str_radix(word, 16).unwrap();
    }
    if let Some((_, level)) = LEVELS.iter().find(|(name, _)| *name == level) {
        let rules = [FilterRule {
            syscalls: vec!["getpriority".into()],
            action: RuleAction::Kill,
            when: vec![Condition { index: 0, mask: u64::MAX, op: ArgComparison::Eq, value: 2 }],
        }];
        install(&SeccompRequest { rules: &rules, ..SeccompRequest::of(*level) });
    }
    // SAFETY: the cases below pass numbers, and null where the kernel wants a pointer.
    let result = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    // SAFETY: ends the process at once, so that nothing else runs under the filter.
    unsafe { libc::syscall(libc::SYS_exit_group, if result >= 0 { 200 } else { errno }) };
}

fn install(request: &SeccompRequest<'_>) {
    let filter = compile(request, Arch::native().unwrap()).unwrap().filter;
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: `program` points to as many instructions as it says, laid out as the kernel's, alive during the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program), 0);
    }
}

fn attempt(level: &str, number: u32, args: &[u64]) -> ExitStatus {
    let args: Vec<String> = args.iter().map(|arg| format!("{arg:x}")).collect();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--quiet"])
        .env("COFFERDAM_SECCOMP_CASE", format!("{level} {number} {}", args.join(" ")))
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap()
}

fn outcome(level: &str, name: &str, args: &[u64]) -> i32 {
    let number = syscall_number(name, Arch::native().unwrap()).unwrap();
    let status = attempt(level, number, args);
    status.code().unwrap_or_else(|| -status.signal().unwrap())
}

const HIGH: u64 = 0xdead_beef_0000_0000;
const DONE: i32 = 200;

#[test]
fn socket_families() {
    for (level, _) in LEVELS {
        // AF_ALG and AF_VSOCK exist or not depending on the kernel: the control without a filter is what INET is.
        for high in [0, HIGH] {
            for family in [17, 38, 40, 16] {
                let protocol = if family == 16 { 9 } else { 0 };
                let errno = outcome(level, "socket", &[family | high, 3, protocol]);
                assert!([libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT].contains(&errno), "{level} {family}: {errno}");
            }
            assert_eq!(outcome(level, "socket", &[1 | high, 1, 0]), libc::EAFNOSUPPORT);
            let inet = if level == "strict" { libc::EAFNOSUPPORT } else { DONE };
            assert_eq!(outcome(level, "socket", &[2 | high, 1, 0]), inet);
            assert_eq!(outcome(level, "socket", &[16 | high, 3, 0]), inet);
        }
    }
    assert_eq!(outcome("none", "socket", &[1, 1, 0]), DONE);
    // The kernel really ignores the upper halves, which is why the filter must.
    assert_eq!(outcome("none", "socket", &[1 | HIGH, 1 | HIGH, HIGH]), DONE);
    assert_eq!(outcome("none", "socket", &[16 | HIGH, 3, 9]), DONE);
}

#[test]
fn namespaces_and_dangerous_calls() {
    for (level, _) in &LEVELS[1..] {
        assert_eq!(outcome(level, "unshare", &[0x1000_0000]), libc::EPERM);
        assert_eq!(outcome(level, "unshare", &[0x400]), DONE);
        // PTRACE_PEEKUSER of a process that there is not.
        assert_eq!(outcome(level, "ptrace", &[3, 0]), libc::EPERM);
        assert_eq!(outcome(level, "keyctl", &[0, -3i64 as u64, 0]), libc::EPERM);
        assert_eq!(outcome(level, "clone3", &[]), libc::ENOSYS);
        assert_eq!(outcome(level, "seccomp", &[1, 8, 0]), libc::EINVAL);
        assert_eq!(outcome(level, "seccomp", &[1, 0, 0]), libc::EFAULT);
    }
    for free in ["none", "disabled"] {
        // Done, or EINVAL where the harness has a second thread.
        assert_ne!(outcome(free, "unshare", &[0x1000_0000]), libc::EPERM);
        assert_eq!(outcome(free, "ptrace", &[3, 0]), libc::ESRCH);
        assert_eq!(outcome(free, "keyctl", &[0, -3i64 as u64, 0]), DONE);
    }
    for (level, _) in LEVELS {
        assert_eq!(outcome(level, "openat2", &[]), libc::ENOSYS);
        assert_eq!(outcome(level, "io_uring_setup", &[1, 0]), libc::ENOSYS);
    }
    assert_ne!(outcome("none", "openat2", &[]), libc::ENOSYS);
}

#[test]
fn mode_bits_and_terminal() {
    for (level, _) in LEVELS {
        // fd -1: allowed calls say EBADF.
        let bad = -1i64 as u64;
        let metadata = if level == "strict" { libc::EPERM } else { libc::EBADF };
        assert_eq!(outcome(level, "fchmod", &[bad, 0o4755]), libc::EPERM);
        assert_eq!(outcome(level, "fchmod", &[bad, 0o755]), metadata);
        assert_eq!(outcome(level, "ioctl", &[bad, 0x5412 | HIGH, 0]), libc::EPERM);
        assert_eq!(outcome(level, "ioctl", &[bad, 0x5413 | HIGH, 0]), libc::EBADF);
        assert_eq!(outcome(level, "mkdirat", &[bad, 0, 0o2755]), libc::EPERM);
        assert_eq!(outcome(level, "mkdirat", &[bad, 0, 0o755]), libc::EFAULT);
        assert_eq!(outcome(level, "mknodat", &[bad, 0, 0o20666, 0x103]), libc::EPERM);
        assert_eq!(outcome(level, "mknodat", &[bad, 0, 0o10666, 0]), libc::EFAULT);
    }
    assert_eq!(outcome("none", "fchmod", &[-1i64 as u64, 0o4755]), libc::EBADF);
    assert_eq!(outcome("none", "ioctl", &[-1i64 as u64, 0x5412, 0]), libc::EBADF);
}

#[test]
fn rules_of_the_policy() {
    assert_eq!(outcome("standard", "getpriority", &[2 | HIGH, 0]), -libc::SIGSYS);
    assert_eq!(outcome("standard", "getpriority", &[0, 0]), DONE);
    assert_eq!(outcome("none", "getpriority", &[2, 0]), DONE);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn x32_dies_and_unknown_numbers_are_absent() {
    for (level, _) in LEVELS {
        assert_eq!(attempt(level, 0x4000_0000 | 39, &[]).signal(), Some(libc::SIGSYS));
        assert_eq!(attempt(level, 500, &[]).code(), Some(libc::ENOSYS));
        assert_eq!(attempt(level, 39, &[]).code(), Some(DONE));
    }
    assert_eq!(attempt("none", 0x4000_0000 | 39, &[]).signal(), None);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_32_bit_programs_die() {
    for (level, expected) in LEVELS.map(|(level, _)| (level, Some(libc::SIGSYS))).into_iter().chain([("none", None)]) {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_int80", "--quiet"])
            .env("COFFERDAM_SECCOMP_INT80", level)
            .stdout(std::process::Stdio::null())
            .process_group(0)
            .status()
            .unwrap();
        assert_eq!(status.signal(), expected, "{level}: {status}");
    }
}

/// Not a test: asks for its pid through the 32-bit entry.
#[test]
#[cfg(target_arch = "x86_64")]
fn child_int80() {
    let Ok(level) = std::env::var("COFFERDAM_SECCOMP_INT80") else { return };
    if let Some((_, level)) = LEVELS.iter().find(|(name, _)| *name == level) {
        install(&SeccompRequest::of(*level));
    }
    let mut result: u64 = 20;
    // SAFETY: int 0x80 with getpid's number of i386 takes no argument and changes rax alone (r8 to r11 may be
    // zeroed by older kernels, hence the clobbers).
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    assert_ne!(result, 0);
}
