//! What each level does with each system call, as data: clauses of conditions on arguments, first match wins.
//!
//! The one place where the rules are written down. It knows nothing of BPF; `emit` turns what it says into
//! instructions, and the tests run both against each other. Order for one call: the policy's own rules, a
//! refusal of the whole call, checks of its arguments, and last whether a call that is allowed is watched.

use std::collections::HashMap;

use libc::{E2BIG, EACCES, EAFNOSUPPORT, EINVAL, ENOMEM, ENOSYS, EPERM, EPROTONOSUPPORT};

use super::calls::{Group, SystemCall};
use super::{ArgComparison, RuleAction, SeccompError, SeccompReason, SeccompRequest, SyscallLevel};

/// How much of an argument the kernel reads. It ignores the upper half of an `int`, so a comparison that
/// looked at it could be dodged by setting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Bits32,
    Bits64,
}

/// One condition on one argument: `(argument & mask) op value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cond {
    pub(super) arg: u8,
    pub(super) width: Width,
    pub(super) mask: u64,
    pub(super) op: ArgComparison,
    pub(super) value: u64,
}

#[cfg(test)]
impl Cond {
    /// Whether the condition holds.
    pub(super) fn holds(&self, args: &[u64; 6]) -> bool {
        let value = args[usize::from(self.arg)] & self.mask;
        match self.width {
            Width::Bits32 => self.op.holds(value & u64::from(u32::MAX), self.value & u64::from(u32::MAX)),
            Width::Bits64 => self.op.holds(value, self.value),
        }
    }
}

/// Whether a refusal is worth reporting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalReporting {
    /// A violation.
    Always,
    /// Reported, but libc does it by itself, so it never kills.
    NeverKill,
    /// A probe that libc or a runtime makes on any host: answered and forgotten.
    Never,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Allow,
    Kill { rule: u32 },
    Refuse { errno: i32, reason: SeccompReason, rule: u32, report: RefusalReporting },
    Create,
    Trace,
    Perform { rule: u32 },
    Exec,
}

/// An effect and when it applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Clause {
    pub(super) when: Vec<Cond>,
    pub(super) effect: Effect,
}

/// Everything about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) clauses: Vec<Clause>,
    pub(super) otherwise: Effect,
}

#[cfg(test)]
impl Decision {
    /// What happens to the call with these arguments.
    pub(super) fn effect(&self, args: &[u64; 6]) -> Effect {
        let clause = self.clauses.iter().find(|clause| clause.when.iter().all(|cond| cond.holds(args)));
        clause.map_or(self.otherwise, |clause| clause.effect)
    }
}

/// `ENOSYS`, silently: what a kernel without the call says.
pub(super) const ABSENT: Effect = quiet(ENOSYS);

const S_ISUID_S_ISGID: u64 = 0o6000;
/// Set in S_IFCHR and S_IFBLK, clear in S_IFREG, S_IFIFO and S_IFSOCK (and set in S_IFLNK, which mknod(2)
/// takes for no type at all).
const DEVICE_TYPE_BIT: u64 = 0o020000;
const RENAME_WHITEOUT: u64 = 4;
/// O_CREAT and the bit of O_TMPFILE that is its own; the same on both architectures.
const CREATING_FLAGS: u64 = 0o100 | 0o20000000;
/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET (NEWTIME is no flag of clone).
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// What bubblewrap and its like call besides; the newer calls for mounts are not among them.
const NESTING: [&str; 5] = ["mount", "umount2", "pivot_root", "chroot", "sethostname"];
/// CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM: what unshare may be asked for.
const HARMLESS_UNSHARE: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000;
const CLONE_THREAD: u64 = 0x1_0000;
const SECCOMP_NEW_LISTENER: u64 = 8;
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const TIOCSETD: u64 = 0x5423;
/// What changes a file or a directory by a descriptor that was opened to read: FS_IOC_SETFLAGS and its 32-bit form,
/// FS_IOC_FSSETXATTR, FS_IOC_SETVERSION and EXT4_IOC_SETVERSION with their 32-bit forms, FS_IOC_SET_ENCRYPTION_POLICY,
/// FS_IOC_ENABLE_VERITY, FAT_IOCTL_SET_ATTRIBUTES.
pub const METADATA_IOCTLS: [u64; 10] = [
    0x4008_6602,
    0x4004_6602,
    0x401c_5820,
    0x4008_7602,
    0x4004_7602,
    0x4008_6604,
    0x4004_6604,
    0x800c_6613,
    0x4080_6685,
    0x4004_7211,
];
/// What makes and removes names and whole trees without a call that takes a path, past every mask, guard and ruleset. A
/// snapshot shows what is denied in the original. BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE, SNAP_DESTROY, SNAP_CREATE_V2,
/// SUBVOL_CREATE_V2, SUBVOL_SETFLAGS, SNAP_DESTROY_V2; BCH_IOCTL_SUBVOLUME_CREATE and SUBVOLUME_DESTROY of bcachefs;
/// OCFS2_IOC_REFLINK.
pub const TREE_IOCTLS: [u64; 10] = [
    0x5000_9401,
    0x5000_940e,
    0x5000_940f,
    0x5000_9417,
    0x5000_9418,
    0x4008_941a,
    0x5000_943f,
    0x4020_bc10,
    0x4020_bc11,
    0x4018_6f04,
];
/// PER_LINUX, PER_LINUX32, ADDR_NO_RANDOMIZE, and the query.
const PERSONALITIES: [u64; 4] = [0, 8, 0x4_0000, 0xffff_ffff];
/// Protocols whose buffers no list of sockets shows.
const IPPROTO_UDPLITE: u64 = 136;
const IPPROTO_MPTCP: u64 = 262;
/// Any, ICMP echo, TCP, UDP, ICMPv6 echo.
const PROTOCOLS: [u64; 5] = [0, 1, 6, 17, 58];
const SOCK_TYPE_MASK: u64 = 0xf;
const SOCK_STREAM: u64 = 1;
const SOCK_DGRAM: u64 = 2;
const SOCK_SEQPACKET: u64 = 5;
const RLIMIT_CORE: u64 = 4;
/// MAP_HUGETLB of mmap(2), MFD_HUGETLB of memfd_create(2), SHM_HUGETLB of shmget(2).
const MAP_HUGETLB: u64 = 0x4_0000;
const MFD_HUGETLB: u64 = 4;
/// What is no flag of memfd_create(2): neither one of those that have a name, nor the size of huge pages.
const MFD_UNKNOWN: u64 = 0x03ff_ffe0;
const SHM_HUGETLB: u64 = 0o4000;
/// The largest value of an extended attribute, bytes: all bits set.
const XATTR_BYTES: u64 = 0xff;
const SOL_SOCKET: u64 = 1;
/// SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF.
const ATTACHMENTS: [u64; 4] = [26, 50, 51, 52];
/// Options by which a connection keeps what it has sent after every process that knew it has ended, because its end is
/// never heard or its data never leaves: TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY, TCP_AO_INFO and
/// TCP_AO_REPAIR; IP_MINTTL; IPV6_MINHOPCOUNT; SO_MAX_PACING_RATE. And IPV6_FLOWLABEL_MGR, whose labels are few and shared
/// by all network namespaces. By level and number.
const REFUSED_OPTIONS: [(u64, u64); 10] =
    [(6, 14), (6, 32), (6, 38), (6, 39), (6, 40), (6, 42), (0, 21), (41, 73), (41, 32), (SOL_SOCKET, 47)];
const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;
const NETLINK_KOBJECT_UEVENT: u64 = 15;

/// The policy's own rules, found by the name of the call.
pub(super) struct CallRules<'a> {
    by_call: HashMap<&'a str, Vec<usize>>,
    request: &'a SeccompRequest<'a>,
}

impl<'a> CallRules<'a> {
    /// Checks the rules and indexes them.
    pub(super) fn new(request: &'a SeccompRequest<'a>) -> Result<Self, SeccompError> {
        let mut by_call: HashMap<&str, Vec<usize>> = HashMap::new();
        if request.rules.len() > 0xfff {
            return Err(SeccompError::TooManyRules { rules: request.rules.len() });
        }
        for (index, rule) in request.rules.iter().enumerate() {
            if rule.syscalls.is_empty() {
                return Err(SeccompError::EmptyRule { rule: index });
            }
            if let RuleAction::Errno(errno) = rule.action
                && !(1..=4095).contains(&errno)
            {
                return Err(SeccompError::Errno { rule: index, errno });
            }
            if let Some(condition) = rule.when.iter().find(|condition| condition.index > 5) {
                return Err(SeccompError::Argument { rule: index, argument: condition.index });
            }
            for name in &rule.syscalls {
                if !super::CALLS.iter().any(|call| call.name == name) {
                    return Err(SeccompError::UnknownCall { rule: index, call: name.clone() });
                }
                let starts = name == "execveat" || (name == "execve" && request.no_spawn.is_none());
                if rule.when.is_empty() && (starts || name == "exit_group") {
                    return Err(SeccompError::StopsStart { rule: index, call: name.clone() });
                }
                by_call.entry(name).or_default().push(index);
            }
        }
        Ok(CallRules { by_call, request })
    }

    fn clauses(&self, call: &SystemCall) -> Vec<Clause> {
        let Some(indices) = self.by_call.get(call.name) else { return Vec::new() };
        let mut clauses = Vec::with_capacity(indices.len());
        for &index in indices {
            let rule = &self.request.rules[index];
            let number = index as u32;
            let effect = match rule.action {
                RuleAction::Kill => Effect::Kill { rule: number },
                RuleAction::Perform => Effect::Perform { rule: number },
                RuleAction::Errno(errno) => Effect::Refuse {
                    errno: i32::from(errno),
                    reason: SeccompReason::Rule,
                    rule: number,
                    report: RefusalReporting::Always,
                },
            };
            let when = rule.when.iter().map(|condition| Cond {
                arg: condition.index,
                width: if call.int_args >> condition.index & 1 == 1 { Width::Bits32 } else { Width::Bits64 },
                mask: condition.mask,
                op: condition.op,
                value: condition.value,
            });
            clauses.push(Clause { when: when.collect(), effect });
        }
        clauses
    }
}

/// Everything about one call under a request.
pub(super) fn decide(call: &SystemCall, rules: &CallRules<'_>) -> Decision {
    let request = rules.request;
    let mut clauses = rules.clauses(call);
    let otherwise = match whole_call(call, request) {
        Some(effect) => effect,
        None => {
            let checked = arguments(call, request, &mut clauses);
            match checked {
                Effect::Allow => watched(call, request, &mut clauses),
                other => other,
            }
        }
    };
    // What follows an unconditional clause is never reached.
    if let Some(at) = clauses.iter().position(|clause| clause.when.is_empty()) {
        let effect = clauses[at].effect;
        clauses.truncate(at);
        return Decision { clauses, otherwise: effect };
    }
    Decision { clauses, otherwise }
}

/// What happens to a call whatever its arguments are; none when it is allowed or they decide.
fn whole_call(call: &SystemCall, request: &SeccompRequest<'_>) -> Option<Effect> {
    let level = request.level;
    let no_spawn = request.no_spawn.is_some();
    match call.name {
        // They reach every other call, the checked ones too, through memory.
        "io_uring_setup" | "io_uring_enter" | "io_uring_register" | "openat2" => return Some(ABSENT),
        "clone3" if no_spawn || level >= SyscallLevel::Basic => return Some(ABSENT),
        "fork" | "vfork" | "execve" if no_spawn => return Some(refuse(EPERM, SeccompReason::Spawn)),
        // The contexts of all users share fs.aio-max-nr, and one process can take all of it. Programs fall back from ENOSYS.
        "io_setup" if level >= SyscallLevel::Standard => return Some(ABSENT),
        // The kernel answers it by starting a program of the host's, as the host's root (request-key(8)).
        "request_key" => return Some(refuse(EPERM, SeccompReason::Level)),
        // A file system that hangs nowhere, an overlay for one, works on directories all the same when it is made, and
        // Landlock has no say in it. With mounts of its own a sandbox's user has no right to make any.
        "fsopen" | "fsconfig" | "fsmount" | "fspick" | "open_tree" | "open_tree_attr" | "move_mount"
        | "mount_setattr"
            if request.metadata_refused =>
        {
            return Some(refuse(EPERM, SeccompReason::Metadata));
        }
        // The kernel keeps a NUMA policy for each range of a file in memory, and an access control list of up to 64 KiB for each
        // name, and counts neither towards any limit. Docker refuses mbind(2) as well; programs go on without.
        "mbind" | "set_mempolicy_home_node" if request.private_ipc => return Some(unasked(EPERM)),
        // Its size lies behind a pointer, and programs fall back to setxattr.
        "setxattrat" if request.private_ipc && !request.metadata_refused && level < SyscallLevel::Strict => {
            return Some(ABSENT);
        }
        "memfd_create" if request.limited_exec => return Some(refuse(EPERM, SeccompReason::Exec)),
        // Which family it asks for says who asks; a pair is a pipe in both directions, without which no JVM starts.
        "socket" | "socketpair" => return None,
        _ => {}
    }
    match call.group {
        Group::Listed | Group::Opaque => None,
        Group::Metadata => {
            let refused = request.metadata_refused || level >= SyscallLevel::Strict;
            refused.then_some(refuse(EPERM, SeccompReason::Metadata))
        }
        Group::Ipc => (!request.private_ipc).then_some(refuse(EPERM, SeccompReason::Ipc)),
        Group::Socket => (level >= SyscallLevel::Strict).then_some(refuse(EACCES, SeccompReason::Level)),
        Group::Dangerous if request.nested && NESTING.contains(&call.name) => None,
        Group::Dangerous => (level >= SyscallLevel::Basic).then_some(refuse(EPERM, SeccompReason::Level)),
        Group::Unlisted => (level >= SyscallLevel::Standard).then_some(refuse(EPERM, SeccompReason::Level)),
        Group::Obsolete => (level >= SyscallLevel::Basic).then_some(ABSENT),
    }
}

/// Adds the checks of a call's arguments; what it returns holds when none of them matches.
fn arguments(call: &SystemCall, request: &SeccompRequest<'_>, clauses: &mut Vec<Clause>) -> Effect {
    let level = request.level;
    let mut add = |when: &[Cond], effect| clauses.push(Clause { when: when.to_vec(), effect });
    let set_id = refuse(EPERM, SeccompReason::SetId);
    match call.name {
        "open" => add(&[any(1, CREATING_FLAGS), any(2, S_ISUID_S_ISGID)], set_id),
        "openat" => add(&[any(2, CREATING_FLAGS), any(3, S_ISUID_S_ISGID)], set_id),
        "creat" | "mkdir" | "chmod" | "fchmod" => add(&[any(1, S_ISUID_S_ISGID)], set_id),
        "mkdirat" | "fchmodat" | "fchmodat2" => add(&[any(2, S_ISUID_S_ISGID)], set_id),
        "mknod" | "mknodat" => {
            let mode = if call.name == "mknod" { 1 } else { 2 };
            add(&[any(mode, S_ISUID_S_ISGID)], set_id);
            add(&[any(mode, DEVICE_TYPE_BIT)], refuse(EPERM, SeccompReason::Device));
        }
        // The name that is left behind would be a device, which mknod(2) is refused as well.
        "renameat2" => add(&[any(4, RENAME_WHITEOUT)], refuse(EPERM, SeccompReason::Device)),
        "socket" => return socket(request, clauses),
        // Pages of the host's pool, which no memory limit counts. ENOMEM is what an empty pool says, and every program that
        // asks for them takes ordinary pages then.
        "mmap" if request.huge_pages => add(&[any(3, MAP_HUGETLB)], quiet(ENOMEM)),
        "memfd_create" => {
            // As the kernel says of flags that it does not know: who asks with all of them asks for the call itself.
            add(&[any(1, MFD_HUGETLB), any(1, MFD_UNKNOWN)], quiet(EINVAL));
            add(&[any(1, MFD_HUGETLB)], quiet(ENOMEM));
        }
        "shmget" => add(&[any(2, SHM_HUGETLB)], quiet(ENOMEM)),
        // The compiled program of a socket is in kernel memory that no memory limit counts, and that all of the host shares.
        // What takes about as much as the name's own inode, which is counted.
        "setxattr" | "lsetxattr" | "fsetxattr" if request.private_ipc => {
            let larger = Cond { width: Width::Bits64, mask: !XATTR_BYTES, ..any(3, 0) };
            add(&[larger], unasked(E2BIG));
        }
        "setsockopt" => {
            for option in ATTACHMENTS {
                add(&[is(1, SOL_SOCKET), is(2, option)], refuse(EPERM, SeccompReason::Level));
            }
            for (level, option) in REFUSED_OPTIONS {
                add(&[is(1, level), is(2, option)], refuse(EPERM, SeccompReason::Level));
            }
        }
        "socketpair" => {
            // A datagram pair is not bound to its peer: sendto and connect reach any datagram socket by its path. SOCK_RAW
            // is another name for it (unix(7)). The other two are, and take no address.
            if !request.unix_sockets || level >= SyscallLevel::Strict {
                let is_no = |value| Cond { mask: SOCK_TYPE_MASK, ..is_not(1, value) };
                let unbound = [is(0, AF_UNIX), is_no(SOCK_STREAM), is_no(SOCK_SEQPACKET)];
                add(&unbound, refuse(EACCES, SeccompReason::UnixSocket));
            }
            add(&[is(0, AF_UNIX)], Effect::Allow);
            return refuse(EAFNOSUPPORT, SeccompReason::SocketFamily);
        }
        "ioctl" => {
            add(&[is(1, TIOCSTI)], refuse(EPERM, SeccompReason::Terminal));
            add(&[is(1, TIOCLINUX)], refuse(EPERM, SeccompReason::Terminal));
            if level >= SyscallLevel::Standard {
                add(&[is(1, TIOCSETD)], refuse(EPERM, SeccompReason::Terminal));
            }
            for command in TREE_IOCTLS {
                add(&[is(1, command)], refuse(EPERM, SeccompReason::Metadata));
            }
            if request.metadata_refused || level >= SyscallLevel::Strict {
                for command in METADATA_IOCTLS {
                    add(&[is(1, command)], refuse(EPERM, SeccompReason::Metadata));
                }
            }
        }
        "clone" => {
            // The kernel takes the lower half of the flags alone (`lower_32_bits`).
            if request.no_spawn.is_some() {
                add(&[none(0, CLONE_THREAD)], refuse(EPERM, SeccompReason::Spawn));
            }
            if level >= SyscallLevel::Basic && !request.nested {
                add(&[any(0, NEW_NAMESPACES)], refuse(EPERM, SeccompReason::Level));
            }
        }
        "unshare" if level >= SyscallLevel::Basic => {
            let harmless = HARMLESS_UNSHARE | if request.nested { NEW_NAMESPACES } else { 0 };
            let beyond = Cond { width: Width::Bits64, mask: !harmless, ..any(0, 0) };
            add(&[beyond], refuse(EPERM, SeccompReason::Level));
        }
        "execveat" => {
            if let Some(no_spawn) = request.no_spawn {
                add(&[is(0, u64::from(no_spawn.exec_fd))], Effect::Exec);
                return refuse(EPERM, SeccompReason::Spawn);
            }
        }
        // A piped core handler runs on the host for every limit but 1 (core(5)), which therefore stays 1. Programs that
        // want no core dump have none; EINVAL is what those of them take that insist on an answer.
        "setrlimit" if !request.core_limit => add(&[is(0, RLIMIT_CORE)], quiet(EINVAL)),
        "prlimit64" => {
            let given = Cond { width: Width::Bits64, ..is_not(2, 0) };
            if !request.core_limit {
                add(&[is(1, RLIMIT_CORE), given], quiet(EINVAL));
            }
            // Init has the same ids, so the kernel would let its limits be set: with no open files left to it, it fails.
            // It is process 1 where there is a pid namespace, and any other where there is none.
            let other = if request.private_ipc { is(0, 1) } else { is_not(0, 0) };
            add(&[other, given], refuse(EPERM, SeccompReason::Level));
        }
        "personality" if level >= SyscallLevel::Basic => {
            add(&PERSONALITIES.map(|value| is_not(0, value)), refuse(EPERM, SeccompReason::Level));
        }
        // EINVAL is what a kernel without the flag says; libseccomp asks on any host.
        "seccomp" if level >= SyscallLevel::Basic => add(&[any(1, SECCOMP_NEW_LISTENER)], quiet(EINVAL)),
        _ => {}
    }
    Effect::Allow
}

/// socket(2): `UNIX` when granted; `INET`, `INET6` as streams and datagrams; `NETLINK` for routes alone.
/// SOCK_PACKET is a type that turns into another family, so types are allowed by name, too.
fn socket(request: &SeccompRequest<'_>, clauses: &mut Vec<Clause>) -> Effect {
    let mut add = |when: &[Cond], effect| clauses.push(Clause { when: when.to_vec(), effect });
    let unknown = refuse(EAFNOSUPPORT, SeccompReason::SocketFamily);
    // getpwnam(3) and its kin ask a name service cache by a path socket, getaddrinfo(3) lists the interfaces
    // by netlink: a program that means no harm does both without knowing.
    let by_libc = |reason| Effect::Refuse { errno: EAFNOSUPPORT, reason, rule: 0, report: RefusalReporting::NeverKill };
    if request.level >= SyscallLevel::Strict {
        add(&[is(0, AF_UNIX)], by_libc(SeccompReason::Level));
        add(&[is(0, AF_NETLINK)], by_libc(SeccompReason::Level));
        return refuse(EAFNOSUPPORT, SeccompReason::Level);
    }
    add(&[is(0, AF_UNIX)], if request.unix_sockets { Effect::Allow } else { by_libc(SeccompReason::UnixSocket) });
    if request.no_network_sockets {
        add(&[is(0, AF_NETLINK)], by_libc(SeccompReason::Network));
        add(&[is_not(0, AF_INET), is_not(0, AF_INET6)], unknown);
        return refuse(EAFNOSUPPORT, SeccompReason::Network);
    }
    if request.no_netlink {
        add(&[is(0, AF_NETLINK)], by_libc(SeccompReason::Network));
    }
    add(&[is(0, AF_NETLINK), is(2, 0)], Effect::Allow);
    // libudev, and what is linked with it as browsers are, listens for devices and does without.
    let devices = Effect::Refuse {
        errno: EPROTONOSUPPORT,
        reason: SeccompReason::SocketFamily,
        rule: 0,
        report: RefusalReporting::NeverKill,
    };
    add(&[is(0, AF_NETLINK), is(2, NETLINK_KOBJECT_UEVENT)], devices);
    add(&[is(0, AF_NETLINK)], refuse(EPROTONOSUPPORT, SeccompReason::SocketFamily));
    add(&[is_not(0, AF_INET), is_not(0, AF_INET6)], unknown);
    let masked = |value| Cond { mask: SOCK_TYPE_MASK, ..is_not(1, value) };
    add(&[masked(SOCK_STREAM), masked(SOCK_DGRAM)], refuse(EPERM, SeccompReason::SocketType));
    // Go's standard library asks for MPTCP on any host and falls back from this errno.
    add(&[is(2, IPPROTO_MPTCP)], quiet(EPROTONOSUPPORT));
    add(&[is(2, IPPROTO_UDPLITE)], refuse(EPROTONOSUPPORT, SeccompReason::SocketType));
    if request.level >= SyscallLevel::Basic {
        add(&PROTOCOLS.map(|value| is_not(2, value)), refuse(EPROTONOSUPPORT, SeccompReason::SocketType));
    }
    Effect::Allow
}

/// Who looks on when the call is allowed.
fn watched(call: &SystemCall, request: &SeccompRequest<'_>, clauses: &mut Vec<Clause>) -> Effect {
    if request.notify_creates {
        let mut opens = |flags| clauses.push(Clause { when: vec![any(flags, CREATING_FLAGS)], effect: Effect::Create });
        match call.name {
            "open" => opens(1),
            "openat" => opens(2),
            "creat" | "mkdir" | "mkdirat" | "mknod" | "mknodat" | "symlink" | "symlinkat" | "link" | "linkat"
            | "rename" | "renameat" | "renameat2" => return Effect::Create,
            "unlink" | "unlinkat" if request.notify_removes => return Effect::Create,
            // Makes the name of a path socket: one of a socketpair can have a name as well.
            "bind" => return Effect::Create,
            _ => {}
        }
    }
    let addresses = request.trace || request.addresses;
    match call.name {
        // On a connection no address is named.
        "sendto" if addresses => {
            let named = Cond { width: Width::Bits64, ..is_not(4, 0) };
            clauses.push(Clause { when: vec![named], effect: Effect::Trace });
            Effect::Allow
        }
        // Whether they name an address stands behind a pointer.
        "sendmsg" | "sendmmsg" if addresses => Effect::Trace,
        "connect" if addresses || request.connects => Effect::Trace,
        "bind" if addresses => Effect::Trace,
        _ if request.trace && call.path => Effect::Trace,
        _ => Effect::Allow,
    }
}

const fn refuse(errno: i32, reason: SeccompReason) -> Effect {
    Effect::Refuse { errno, reason, rule: 0, report: RefusalReporting::Always }
}

/// Refused and recorded, and no reason to end what programs that mean no harm do.
const fn unasked(errno: i32) -> Effect {
    Effect::Refuse { errno, reason: SeccompReason::Level, rule: 0, report: RefusalReporting::NeverKill }
}

const fn quiet(errno: i32) -> Effect {
    Effect::Refuse { errno, reason: SeccompReason::Level, rule: 0, report: RefusalReporting::Never }
}

/// The lower half of an argument has one of these bits.
fn any(arg: u8, bits: u64) -> Cond {
    Cond { arg, width: Width::Bits32, mask: bits, op: ArgComparison::Ne, value: 0 }
}

/// The lower half of an argument has none of these bits.
fn none(arg: u8, bits: u64) -> Cond {
    Cond { op: ArgComparison::Eq, ..any(arg, bits) }
}

/// The lower half of an argument is this.
fn is(arg: u8, value: u64) -> Cond {
    Cond { arg, width: Width::Bits32, mask: u64::MAX, op: ArgComparison::Eq, value }
}

/// The lower half of an argument is not this.
fn is_not(arg: u8, value: u64) -> Cond {
    Cond { op: ArgComparison::Ne, ..is(arg, value) }
}
