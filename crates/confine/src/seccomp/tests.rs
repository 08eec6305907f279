//! The decisions against facts written down by hand, the table against itself; and what both have in common with the tests
//! of the compiled programs.

mod programs;

use super::classify::{self, SeccompData};
use super::*;

const ARCHS: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];
const LEVELS: [SyscallLevel; 4] =
    [SyscallLevel::Disabled, SyscallLevel::Basic, SyscallLevel::Standard, SyscallLevel::Strict];
const ERRNO: u32 = RET_ERRNO;
/// Beyond every number of the table.
const END: u32 = 520;

fn data(nr: u32, arch: Arch, args: [u64; 6]) -> SeccompData {
    SeccompData { nr, arch: arch.audit(), instruction_pointer: 0, args }
}

fn number(name: &str) -> u32 {
    syscall_number(name, Arch::X86_64).unwrap_or_else(|| panic!("no call {name}"))
}

/// What the kernel would get for a call by name on x86_64.
fn result(request: &SeccompRequest<'_>, name: &str, args: &[u64]) -> u32 {
    let program = compile(request, Arch::X86_64).unwrap();
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    classify::run(&program.filter, &data(number(name), Arch::X86_64, all)).unwrap()
}

/// The verdict that the receiver of a notification gets.
fn verdict_of(request: &SeccompRequest<'_>, name: &str, args: &[u64]) -> Verdict {
    let program = compile(request, Arch::X86_64).unwrap();
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    classify::classify(&program.classifier, &data(number(name), Arch::X86_64, all))
}

const fn errno(errno: i32) -> u32 {
    ERRNO | errno as u32
}

const EPERM: u32 = errno(libc::EPERM);
const ENOSYS: u32 = errno(libc::ENOSYS);
const EAFNOSUPPORT: u32 = errno(libc::EAFNOSUPPORT);
const EPROTONOSUPPORT: u32 = errno(libc::EPROTONOSUPPORT);
const HIGH: u64 = 0xdead_beef_0000_0000;

#[test]
fn other_architectures_and_x32_are_killed_unknown_calls_enosys() {
    for level in LEVELS {
        let program = compile(&SeccompRequest::of(level), Arch::X86_64).unwrap().filter;
        let run = |nr, arch| classify::run(&program, &SeccompData { nr, arch, instruction_pointer: 0, args: [0; 6] });
        for arch in [0x4000_0003, Arch::Aarch64.audit(), 0, u32::MAX] {
            assert_eq!(run(number("read"), arch), Some(RET_KILL_PROCESS));
        }
        for nr in [0x4000_0000, 0x4000_0001, 0x4000_0208, 0x8000_0000, 0xffff_fffe] {
            assert_eq!(run(nr, Arch::X86_64.audit()), Some(RET_KILL_PROCESS), "{nr:x}");
        }
        for nr in [u32::MAX, 337, 400, 423, 470, 512, 547, 0x3fff_ffff] {
            assert_eq!(run(nr, Arch::X86_64.audit()), Some(ENOSYS), "{nr:x}");
        }
        assert_eq!(run(number("read"), Arch::X86_64.audit()), Some(RET_ALLOW));
        let program = compile(&SeccompRequest::of(level), Arch::Aarch64).unwrap().filter;
        let run = |nr, arch| classify::run(&program, &SeccompData { nr, arch, instruction_pointer: 0, args: [0; 6] });
        assert_eq!(run(63, Arch::Aarch64.audit()), Some(RET_ALLOW));
        assert_eq!(run(63, Arch::X86_64.audit()), Some(RET_KILL_PROCESS));
        assert_eq!(run(63, 0x4000_0028), Some(RET_KILL_PROCESS));
        assert_eq!(run(0x4000_0000, Arch::Aarch64.audit()), Some(ENOSYS));
    }
}

#[test]
fn the_level_decides_on_sockets_whatever_the_upper_halves() {
    for high in [0, HIGH, 0xffff_ffff_0000_0000] {
        let socket = |request: &SeccompRequest<'_>, family: u64, kind: u64, protocol: u64| {
            result(request, "socket", &[family | high, kind | high, protocol | high])
        };
        for level in [SyscallLevel::Disabled, SyscallLevel::Basic, SyscallLevel::Standard] {
            let plain = SeccompRequest::of(level);
            for family in [2, 10] {
                for kind in [1, 2, 0x80001, 0x80802] {
                    assert_eq!(socket(&plain, family, kind, 0), RET_ALLOW);
                }
                for kind in [0, 3, 4, 5, 6, 10, 0x80003, 15] {
                    assert_eq!(socket(&plain, family, kind, 0), EPERM, "type {kind}");
                }
                assert_eq!(socket(&plain, family, 1, 262), EPROTONOSUPPORT);
            }
            assert_eq!(socket(&plain, 16, 3, 0), RET_ALLOW);
            for protocol in [4, 9, 12, 15, 16] {
                assert_eq!(socket(&plain, 16, 3, protocol), EPROTONOSUPPORT);
            }
            for family in [0, 3, 4, 9, 15, 17, 21, 29, 30, 31, 38, 40, 44, 45, 46, 255, 0xffff_ffff] {
                assert_eq!(socket(&plain, family, 1, 0), EAFNOSUPPORT, "family {family}");
            }
            assert_eq!(socket(&plain, 1, 1, 0), EAFNOSUPPORT);
            assert_eq!(socket(&SeccompRequest { unix_sockets: true, ..plain }, 1, 1, 0), RET_ALLOW);
            let restricted = SeccompRequest { no_network_sockets: true, ..plain };
            for (family, kind, protocol) in [(2, 1, 0), (2, 1, 262), (10, 2, 0), (16, 3, 0), (40, 1, 0)] {
                assert_eq!(socket(&restricted, family, kind, protocol), EAFNOSUPPORT);
            }
            assert_eq!(result(&restricted, "socketpair", &[2 | high, 1, 0]), EAFNOSUPPORT);
        }
        let strict = SeccompRequest { unix_sockets: true, ..SeccompRequest::of(SyscallLevel::Strict) };
        for family in [1, 2, 10, 16, 40] {
            assert_eq!(socket(&strict, family, 1, 0), EAFNOSUPPORT);
        }
        let granted = |level| SeccompRequest { unix_sockets: true, ..SeccompRequest::of(level) };
        for (request, datagrams) in LEVELS
            .into_iter()
            .flat_map(|level| [(SeccompRequest::of(level), false), (granted(level), level != SyscallLevel::Strict)])
        {
            for cloexec in [0, 0x80000, 0x80800] {
                let pair = |family: u64, kind: u64| result(&request, "socketpair", &[family | high, kind | cloexec, 0]);
                assert_eq!((pair(1, 1), pair(1, 5)), (RET_ALLOW, RET_ALLOW));
                // SOCK_RAW is SOCK_DGRAM here, and a datagram pair can be sent anywhere.
                let expected = if datagrams { RET_ALLOW } else { errno(libc::EACCES) };
                assert_eq!((pair(1, 2), pair(1, 3)), (expected, expected));
                assert_eq!(pair(2, 1), EAFNOSUPPORT);
            }
        }
        assert_eq!(result(&strict, "connect", &[3]), errno(libc::EACCES));
    }
}

#[test]
fn memory_that_no_limit_counts_is_refused_ordinary_uses_are_not() {
    const ENOMEM: u32 = errno(libc::ENOMEM);
    for level in LEVELS {
        let request = SeccompRequest { huge_pages: true, ..SeccompRequest::of(level) };
        let mmap = |flags: u64| result(&request, "mmap", &[0, 4096, 3, flags]);
        assert_eq!((mmap(0x4_0022), mmap(0x22)), (ENOMEM, RET_ALLOW));
        assert_eq!(
            result(&SeccompRequest::of(level), "mmap", &[0, 4096, 3, 0x4_0022]),
            RET_ALLOW,
            "no pool to take from"
        );
        let memfd = |flags: u64| result(&request, "memfd_create", &[0, flags]);
        assert_eq!((memfd(5 | HIGH), memfd(0x7800_0004), memfd(1)), (ENOMEM, ENOMEM, RET_ALLOW));
        // Unknown flags, with which programs look whether there is such a call.
        assert_eq!((memfd(0xffff_ffff), memfd(0xffff_fffb)), (errno(libc::EINVAL), RET_ALLOW));
        let segment = |flags: u64| result(&request, "shmget", &[0, 4096, flags]);
        assert_eq!((segment(0o4600), segment(0o600)), (ENOMEM, RET_ALLOW));
        let option = |option: u64| result(&request, "setsockopt", &[3, 1 | HIGH, option | HIGH]);
        assert_eq!((option(26), option(50), option(51), option(52)), (EPERM, EPERM, EPERM, EPERM));
        assert_eq!((option(8), option(9)), (RET_ALLOW, RET_ALLOW));
        // What keeps a connection's data after its processes, beside neighbours of each.
        let option = |level: u64, option: u64| result(&request, "setsockopt", &[3, level | HIGH, option | HIGH]);
        for (of, refused, allowed) in [(6, 14, 13), (6, 32, 31), (6, 38, 37), (6, 39, 37), (6, 40, 37), (6, 42, 37)] {
            assert_eq!((option(of, refused), option(of, allowed)), (EPERM, RET_ALLOW), "TCP option {refused}");
        }
        for (of, refused, allowed) in [(0, 21, 2), (41, 73, 72), (1, 47, 46)] {
            assert_eq!((option(of, refused), option(of, allowed)), (EPERM, RET_ALLOW), "level {of} option {refused}");
        }
        // Protocols that no list of sockets shows, beside UDP and TCP.
        if level < SyscallLevel::Strict {
            let socket = |kind: u64, protocol: u64| result(&request, "socket", &[2, kind, protocol]);
            let unknown = errno(libc::EPROTONOSUPPORT);
            assert_eq!((socket(2, 136), socket(1, 262)), (unknown, unknown), "{level:?}");
            assert_eq!((socket(2, 17), socket(1, 6)), (RET_ALLOW, RET_ALLOW), "{level:?}");
        }
        let contexts = result(&request, "io_setup", &[8]);
        assert_eq!(contexts, if level >= SyscallLevel::Standard { ENOSYS } else { RET_ALLOW });
        if level < SyscallLevel::Strict {
            let netlink = |no_netlink| result(&SeccompRequest { no_netlink, ..request }, "socket", &[16, 3, 0]);
            assert_eq!((netlink(true), netlink(false)), (EAFNOSUPPORT, RET_ALLOW));
        }
    }
}

#[test]
fn set_id_bits_and_devices_are_refused_at_every_level() {
    for level in LEVELS {
        let request = SeccompRequest::of(level);
        let metadata = if level == SyscallLevel::Strict { EPERM } else { RET_ALLOW };
        for high in [0, HIGH] {
            for bits in [0o4000, 0o2000, 0o6000] {
                assert_eq!(result(&request, "chmod", &[0, 0o755 | bits | high]), EPERM);
                assert_eq!(result(&request, "fchmod", &[3, 0o755 | bits | high]), EPERM);
                assert_eq!(result(&request, "fchmodat", &[3, 0, 0o755 | bits | high]), EPERM);
                assert_eq!(result(&request, "fchmodat2", &[3, 0, 0o755 | bits | high, 0]), EPERM);
                assert_eq!(result(&request, "open", &[0, 0o101 | high, 0o755 | bits]), EPERM);
                assert_eq!(result(&request, "openat", &[3, 0, 0o20200002 | high, 0o755 | bits]), EPERM);
                assert_eq!(result(&request, "openat", &[3, 0, 0o101, 0o755 | bits | high]), EPERM);
                assert_eq!(result(&request, "creat", &[0, 0o755 | bits]), EPERM);
                assert_eq!(result(&request, "mkdir", &[0, 0o755 | bits]), EPERM);
                assert_eq!(result(&request, "mkdirat", &[3, 0, 0o755 | bits]), EPERM);
                assert_eq!(result(&request, "mknod", &[0, 0o100755 | bits]), EPERM);
                assert_eq!(result(&request, "mknodat", &[3, 0, 0o10755 | bits]), EPERM);
            }
            // Without a creating flag the mode is whatever the register held.
            assert_eq!(result(&request, "openat", &[3, 0, high, 0o6755]), RET_ALLOW);
            assert_eq!(result(&request, "openat", &[3, 0, 0o101, 0o1777 | high]), RET_ALLOW);
            assert_eq!(result(&request, "chmod", &[0, 0o1777 | high]), metadata);
            for kind in [0o20000, 0o60000] {
                assert_eq!(result(&request, "mknod", &[0, kind | 0o666 | high, 0x103]), EPERM);
                assert_eq!(result(&request, "mknodat", &[3, 0, kind | 0o666 | high, 0x103]), EPERM);
            }
            for flags in [4, 5, 4 | high] {
                assert_eq!(result(&request, "renameat2", &[3, 0, 3, 0, flags]), EPERM);
            }
            for flags in [0, 1, 2, high] {
                assert_eq!(result(&request, "renameat2", &[3, 0, 3, 0, flags]), RET_ALLOW);
            }
            for kind in [0, 0o100000, 0o10000, 0o140000] {
                assert_eq!(result(&request, "mknodat", &[3, 0, kind | 0o666 | high]), RET_ALLOW);
            }
        }
    }
}

#[test]
fn calls_with_hidden_arguments_enosys_dangerous_ones_refused() {
    for level in LEVELS {
        let plain = SeccompRequest::of(level);
        let from_basic = |value| if level == SyscallLevel::Disabled { RET_ALLOW } else { value };
        for name in ["openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"] {
            assert_eq!(result(&plain, name, &[]), ENOSYS);
        }
        assert_eq!(result(&plain, "clone3", &[]), from_basic(ENOSYS));
        for name in [
            "ptrace",
            "bpf",
            "keyctl",
            "add_key",
            "kexec_load",
            "init_module",
            "finit_module",
            "mount",
            "umount2",
            "pivot_root",
            "move_mount",
            "open_tree",
            "open_tree_attr",
            "fsopen",
            "fsconfig",
            "mount_setattr",
            "userfaultfd",
            "perf_event_open",
            "memfd_secret",
            "clock_settime",
            "settimeofday",
            "setns",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "open_by_handle_at",
            "reboot",
            "chroot",
        ] {
            assert_eq!(result(&plain, name, &[]), from_basic(EPERM), "{name}");
        }
        assert_eq!(result(&plain, "request_key", &[]), EPERM, "it starts a program of the host's");
        for high in [0, HIGH] {
            for flag in [0x2_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
                assert_eq!(result(&plain, "clone", &[flag | 17 | high]), from_basic(EPERM));
                assert_eq!(result(&plain, "unshare", &[flag | high]), from_basic(EPERM));
            }
            // A thread, and posix_spawn's child.
            assert_eq!(result(&plain, "clone", &[0x3d_0f00 | high]), RET_ALLOW);
            assert_eq!(result(&plain, "clone", &[0x4111 | high]), RET_ALLOW);
            assert_eq!(result(&plain, "ioctl", &[high, 0x5412 | high]), EPERM);
            assert_eq!(result(&plain, "ioctl", &[high, 0x541c | high]), EPERM);
            assert_eq!(result(&plain, "ioctl", &[high, 0x5413 | high]), RET_ALLOW);
            // Snapshots and subvolumes are names and trees that no path was given for; BTRFS_IOC_SYNC is neither.
            for command in TREE_IOCTLS {
                assert_eq!(result(&plain, "ioctl", &[high, command | high]), EPERM, "{command:#x}");
            }
            assert_eq!(result(&plain, "ioctl", &[high, 0x9408 | high]), RET_ALLOW);
            assert_eq!(result(&plain, "seccomp", &[1, 8 | high]), from_basic(errno(libc::EINVAL)));
            assert_eq!(result(&plain, "seccomp", &[1, 1 | high]), RET_ALLOW);
            for value in [0, 8, 0x4_0000, 0xffff_ffff] {
                assert_eq!(result(&plain, "personality", &[value | high]), RET_ALLOW);
            }
            assert_eq!(result(&plain, "personality", &[0x40_0000 | high]), from_basic(EPERM));
        }
        assert_eq!(result(&plain, "unshare", &[0x80]), from_basic(EPERM));
        assert_eq!(result(&plain, "unshare", &[1 << 40]), from_basic(EPERM));
        assert_eq!(result(&plain, "unshare", &[0x4_0600]), RET_ALLOW);
        let restricted = SeccompRequest { private_ipc: false, limited_exec: true, metadata_refused: true, ..plain };
        for name in ["shmget", "shmat", "msgget", "semop", "mq_open", "memfd_create", "utimensat", "setxattr"] {
            assert_eq!(result(&restricted, name, &[]), EPERM, "{name}");
            if level < SyscallLevel::Strict {
                assert_eq!(result(&plain, name, &[]), RET_ALLOW, "{name}");
            }
        }
        assert_eq!(result(&restricted, "setxattrat", &[]), EPERM);
        // No limit counts what the kernel keeps for these.
        for name in ["mbind", "set_mempolicy_home_node"] {
            assert_eq!(result(&plain, name, &[]), EPERM, "{name}");
        }
        if level < SyscallLevel::Strict {
            for name in ["setxattr", "lsetxattr", "fsetxattr"] {
                for (size, wanted) in [(255, RET_ALLOW), (256, errno(libc::E2BIG)), (1 << 32, errno(libc::E2BIG))] {
                    assert_eq!(result(&plain, name, &[0, 0, 0, size]), wanted, "{name} {size}");
                }
            }
            assert_eq!(result(&plain, "setxattrat", &[]), errno(libc::ENOSYS), "its size cannot be seen");
        }
        // At `Disabled` the kernel's own rules would decide on them, and a user namespace gives every right.
        for name in ["fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "move_mount", "mount_setattr"] {
            assert_eq!(result(&restricted, name, &[]), EPERM, "{name}");
            assert_eq!(result(&plain, name, &[]), from_basic(EPERM), "{name}");
        }
        assert_eq!(result(&restricted, "ioctl", &[3, 0x4008_6602]), EPERM);
        // FS_IOC_ENABLE_VERITY; btrfs's SUBVOL_CREATE and SNAP_DESTROY. The kernel looks at the lower half alone.
        for command in [0x4080_6685, 0x5000_940e, 0x5000_940f, 0x7_5000_940f] {
            assert_eq!(result(&restricted, "ioctl", &[3, command]), EPERM, "{command:#x}");
        }
        assert_eq!(result(&restricted, "ioctl", &[3, 0x5401]), RET_ALLOW, "a terminal's settings");
    }
}

#[test]
fn without_spawn_only_threads_and_the_gated_exec_remain() {
    for level in LEVELS {
        let gates = [(ExecGate::Notify, RET_USER_NOTIF), (ExecGate::Trace, RET_TRACE), (ExecGate::Open, RET_ALLOW)];
        for (gate, passes) in gates {
            let request =
                SeccompRequest { no_spawn: Some(NoSpawn { exec_fd: 4095, gate }), ..SeccompRequest::of(level) };
            for name in ["fork", "vfork", "execve"] {
                assert_eq!(result(&request, name, &[]), EPERM);
            }
            assert_eq!(result(&request, "clone3", &[]), ENOSYS);
            assert_eq!(result(&request, "clone", &[17]), EPERM);
            assert_eq!(result(&request, "clone", &[0x4111]), EPERM);
            assert_eq!(result(&request, "clone", &[17 | 0x1_0000_0000_0000]), EPERM);
            assert_eq!(result(&request, "clone", &[0x3d_0f00]), RET_ALLOW);
            for high in [0, HIGH] {
                assert_eq!(result(&request, "execveat", &[4095 | high]), passes);
                for fd in [0, 3, 4094, 4096, 0xffff_ff9c] {
                    assert_eq!(result(&request, "execveat", &[fd | high]), EPERM);
                }
            }
        }
        let request = SeccompRequest {
            no_spawn: Some(NoSpawn { exec_fd: 4095, gate: ExecGate::Notify }),
            ..SeccompRequest::of(level)
        };
        let verdict = verdict_of(&request, "execveat", &[4095]);
        assert_eq!(
            (verdict.class(), verdict.errno(), SeccompReason::of(verdict)),
            (Verdict::EXEC, 1, Some(SeccompReason::Spawn))
        );
    }
}

#[test]
fn the_receiver_learns_class_errno_and_reason() {
    let request = SeccompRequest {
        denials: Denials::Notify,
        notify_creates: true,
        trace: true,
        ..SeccompRequest::of(SyscallLevel::Standard)
    };
    let expect = |name: &str, args: &[u64], class, errno: i32, reason| {
        assert_eq!(result(&request, name, args), RET_USER_NOTIF, "{name}");
        let verdict = verdict_of(&request, name, args);
        let got = (verdict.class(), verdict.errno(), SeccompReason::of(verdict));
        assert_eq!(got, (class, errno as u32, reason), "{name} {args:?}");
    };
    expect("ptrace", &[], Verdict::DENY, libc::EPERM, Some(SeccompReason::Level));
    expect("socket", &[40, 1, 0], Verdict::DENY, libc::EAFNOSUPPORT, Some(SeccompReason::SocketFamily));
    expect("socket", &[2, 3, 0], Verdict::DENY, libc::EPERM, Some(SeccompReason::SocketType));
    // Refused alike, and only the first is what a library asks for by itself.
    for (protocol, by_library) in [(15, true), (9, false)] {
        expect("socket", &[16, 3, protocol], Verdict::DENY, libc::EPROTONOSUPPORT, Some(SeccompReason::SocketFamily));
        assert_eq!(verdict_of(&request, "socket", &[16, 3, protocol]).by_libc(), by_library, "{protocol}");
    }
    expect("socket", &[1, 1, 0], Verdict::DENY, libc::EAFNOSUPPORT, Some(SeccompReason::UnixSocket));
    expect("openat", &[0, 0, 0o101, 0o4755], Verdict::DENY, libc::EPERM, Some(SeccompReason::SetId));
    expect("openat", &[0, 0, 0o101, 0o755], Verdict::CREATE, libc::EPERM, None);
    expect("openat", &[0, 0, 0, 0o4755], Verdict::TRACE, libc::EPERM, None);
    expect("renameat2", &[], Verdict::CREATE, libc::EPERM, None);
    expect("statx", &[], Verdict::TRACE, libc::EPERM, None);
    expect("connect", &[3, 1, 16], Verdict::TRACE, libc::EPERM, None);
    expect("sendto", &[3, 1, 1, 0, 1 << 32, 16], Verdict::TRACE, libc::EPERM, None);
    expect("sendmsg", &[3], Verdict::TRACE, libc::EPERM, None);
    expect("sendmmsg", &[3], Verdict::TRACE, libc::EPERM, None);
    assert_eq!(result(&request, "sendto", &[3, 1, 1, 0, 0, 0]), RET_ALLOW);
    let untraced = SeccompRequest { trace: false, notify_creates: false, ..request };
    for (name, args) in
        [("connect", &[3, 1, 16][..]), ("sendto", &[3, 1, 1, 0, 1, 16]), ("sendmsg", &[3]), ("bind", &[3])]
    {
        assert_eq!(result(&untraced, name, args), RET_ALLOW, "without a trace {name} costs nothing more");
    }
    let connects = SeccompRequest { connects: true, ..untraced };
    assert_eq!(verdict_of(&connects, "connect", &[3, 1, 16]).class(), Verdict::TRACE);
    for (name, args) in [("sendto", &[3, 1, 1, 0, 1, 16][..]), ("sendmsg", &[3]), ("bind", &[3])] {
        assert_eq!(result(&connects, name, args), RET_ALLOW, "{name}");
    }
    assert!(verdict_of(&request, "socket", &[1, 0x80801, 0]).by_libc());
    assert!(!verdict_of(&request, "socket", &[40, 1, 0]).by_libc());
    // Probes stay silent, and the process that installs the filter can still exec, write and exit.
    assert_eq!(result(&request, "io_uring_setup", &[]), ENOSYS);
    assert_eq!(result(&request, "clone3", &[]), ENOSYS);
    for name in ["execve", "execveat", "write", "close", "exit_group", "exit"] {
        assert_eq!(result(&request, name, &[]), RET_ALLOW, "{name}");
    }
    let killing = SeccompRequest { denials: Denials::Kill, ..self::SeccompRequest::of(SyscallLevel::Standard) };
    assert_eq!(result(&killing, "ptrace", &[]), RET_KILL_PROCESS);
    assert_eq!(result(&killing, "socket", &[1, 0x80801, 0]), EAFNOSUPPORT);
    assert_eq!(result(&killing, "clone3", &[]), ENOSYS);
    assert!(!compile(&killing, Arch::X86_64).unwrap().notifies());
}

#[test]
fn rules_narrow_the_level_and_the_first_match_wins() {
    let rule = |call: &str, action, when: Vec<Condition>| FilterRule { syscalls: vec![call.into()], action, when };
    let is = |index, value| Condition { index, mask: u64::MAX, op: ArgComparison::Eq, value };
    let rules = [
        rule("prctl", RuleAction::Errno(13), vec![is(0, 15)]),
        rule("prctl", RuleAction::Kill, vec![is(0, 15), is(1, 2)]),
        rule("prctl", RuleAction::Kill, vec![is(0, 16)]),
        rule("openat", RuleAction::Errno(30), vec![]),
        rule(
            "mmap",
            RuleAction::Errno(12),
            vec![Condition { index: 1, mask: u64::MAX, op: ArgComparison::Gt, value: 1 << 33 }],
        ),
        rule("ptrace", RuleAction::Errno(3), vec![is(0, 0)]),
    ];
    let request = SeccompRequest { rules: &rules, ..SeccompRequest::of(SyscallLevel::Standard) };
    // prctl reads its option as an int.
    assert_eq!(result(&request, "prctl", &[15 | HIGH, 2]), errno(13));
    assert_eq!(result(&request, "prctl", &[16]), RET_KILL_PROCESS);
    assert_eq!(result(&request, "prctl", &[17]), RET_ALLOW);
    assert_eq!(result(&request, "openat", &[0, 0, 0o101, 0o4755]), errno(30));
    assert_eq!(result(&request, "mmap", &[0, 1 << 33]), RET_ALLOW);
    assert_eq!(result(&request, "mmap", &[0, (1 << 33) + 1]), errno(12));
    assert_eq!(result(&request, "ptrace", &[0]), errno(3));
    assert_eq!(result(&request, "ptrace", &[1]), EPERM);
    let notified = SeccompRequest { denials: Denials::Notify, ..request };
    assert_eq!((verdict_of(&notified, "openat", &[]).errno(), verdict_of(&notified, "openat", &[]).rule()), (30, 3));
}

#[test]
fn rules_that_cannot_hold_are_errors() {
    let fails = |syscalls: &[&str], action, when: Vec<Condition>| {
        let syscalls = syscalls.iter().map(|name| (*name).into()).collect();
        compile(
            &SeccompRequest {
                rules: &[FilterRule { syscalls, action, when }],
                ..SeccompRequest::of(SyscallLevel::Standard)
            },
            Arch::X86_64,
        )
    };
    let kill = RuleAction::Kill;
    assert!(matches!(fails(&["opne"], kill, vec![]), Err(SeccompError::UnknownCall { rule: 0, .. })));
    assert!(matches!(fails(&[], kill, vec![]), Err(SeccompError::EmptyRule { .. })));
    assert!(matches!(fails(&["open"], RuleAction::Errno(0), vec![]), Err(SeccompError::Errno { .. })));
    assert!(matches!(fails(&["open"], RuleAction::Errno(4096), vec![]), Err(SeccompError::Errno { .. })));
    assert!(matches!(fails(&["execve"], kill, vec![]), Err(SeccompError::StopsStart { .. })));
    let condition = Condition { index: 6, mask: 0, op: ArgComparison::Eq, value: 0 };
    assert!(matches!(fails(&["open"], kill, vec![condition]), Err(SeccompError::Argument { .. })));
    let conditions: Vec<_> =
        (0..3000).map(|value| Condition { index: 1, mask: u64::MAX, op: ArgComparison::Ne, value }).collect();
    assert!(matches!(fails(&["mmap"], kill, conditions), Err(SeccompError::TooLong { .. })));
}
#[test]
fn the_decisions_are_the_ones_on_file() {
    for (level, name) in LEVELS.into_iter().zip(["disabled", "basic", "standard", "strict"]) {
        for (arch, arch_name) in [(Arch::X86_64, "x86_64"), (Arch::Aarch64, "aarch64")] {
            let text = describe(&SeccompRequest::of(level), arch).unwrap();
            let path = format!("{}/tests/golden/seccomp-{name}-{arch_name}.txt", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("COFFERDAM_UPDATE").is_some_and(|update| update == "1") {
                std::fs::write(&path, &text).unwrap();
            }
            let filed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(filed == text, "{path} is out of date; COFFERDAM_UPDATE=1 writes it anew");
        }
    }
}

#[test]
fn names_and_numbers_are_unique_and_in_order() {
    for arch in ARCHS {
        let mut seen = std::collections::BTreeMap::new();
        for call in CALLS {
            if let Some(number) = call.number(arch) {
                assert_eq!(seen.insert(number, call.name), None, "{number}");
                assert_eq!(syscall_name(number, arch), Some(call.name));
                assert_eq!(syscall_number(call.name, arch), Some(number));
            }
        }
        assert_eq!(seen.keys().next_back(), Some(&469));
    }
    assert_eq!(syscall_number("open", Arch::Aarch64), None);
}

#[test]
fn nested_sandboxes_get_their_calls_and_no_other_dangerous_one() {
    const MADE_OF: [&str; 5] = ["mount", "umount2", "pivot_root", "chroot", "sethostname"];
    for level in [SyscallLevel::Basic, SyscallLevel::Standard] {
        let (plain, nested) = (SeccompRequest::of(level), SeccompRequest { nested: true, ..SeccompRequest::of(level) });
        for call in CALLS.iter().filter(|call| call.number(Arch::X86_64).is_some()) {
            let (before, after) = (result(&plain, call.name, &[]), result(&nested, call.name, &[]));
            let expected = if MADE_OF.contains(&call.name) { RET_ALLOW } else { before };
            assert_eq!(after, expected, "{} at {level:?}", call.name);
        }
        for name in ["clone", "unshare"] {
            for flag in [0x1000_0000, 0x2_0000, 0x2000_0000, 0x4000_0000, 0x800_0000, 0x400_0000, 0x200_0000] {
                assert_ne!(result(&plain, name, &[flag]), RET_ALLOW, "{name} {flag:#x}");
                assert_eq!(result(&nested, name, &[flag]), RET_ALLOW, "{name} {flag:#x}");
            }
        }
        assert_ne!(result(&nested, "unshare", &[0x80]), RET_ALLOW, "clocks");
        assert_ne!(result(&nested, "clone3", &[]), RET_ALLOW, "its flags lie behind a pointer");
    }
}
