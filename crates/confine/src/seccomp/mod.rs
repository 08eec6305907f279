//! The system call filter: from a [`SeccompRequest`] to classic-BPF programs, for x86_64 and aarch64.
//!
//! Pure: nothing here installs a filter or asks the kernel anything. The parent compiles; the process that execs the
//! payload installs [`FilterProgram::filter`] with `seccomp(SECCOMP_SET_MODE_FILTER, …)` as the last thing before
//! exec; the receiver of notifications runs [`FilterProgram::classifier`] on the reported call to learn what the
//! filter meant.
//!
//! ```text
//! Request ─ levels ─▶ clauses per call ─ emit ─▶ filter      (kernel: allow, errno, kill, notify)
//!           (calls)                    └ emit ─▶ classifier  (receiver: class, errno, reason, rule)
//! ```
//!
//! An emitter of our own because the libraries do not fit: seccompiler knows neither user notification nor
//! x32 nor different actions in one filter, and libseccomp is a C library that the static programs around
//! the payload could not use.
//!
//! What holds at **every** level, `Disabled` too:
//! - a foreign architecture and x32 kill the process; numbers newer than the table give ENOSYS;
//! - `socket` makes INET and INET6 streams and datagrams, NETLINK_ROUTE, and UNIX when granted; `socketpair`
//!   makes UNIX; nothing else;
//! - no setuid or setgid bit by chmod or by a mode on creation, no device nodes;
//! - no `request_key`, for which the kernel starts a program of the host's;
//! - no pages of the host's huge page pool and no filters on sockets, which no memory limit counts;
//! - no TIOCSTI and TIOCLINUX; no `io_uring` and no `openat2`, which pass a filter by (ENOSYS);
//! - the core limit stays what it is, and the limits of init cannot be set by another process;
//! - the options of the request (`no_spawn`, `limited_exec`, `private_ipc`, `metadata_refused`, watching).
//!
//! `Basic` adds what is dangerous anywhere, new namespaces included; `Standard` is an allowlist, without asynchronous I/O contexts; `Strict` has
//! no sockets at all and no metadata changes. Comparisons look at 32 bits where the kernel does and at 64
//! where it does: the table says which.
//!
//! *No spawn.* execveat with an absolute path ignores its directory fd, so the fd alone cannot distinguish the first
//! exec from a later one. The filter therefore hands execveat on that fd to a gate that can count:
//! see [`ExecGate`].

pub(crate) mod calls;
pub mod classify;
mod emit;
pub mod kafel;
mod levels;
#[cfg(test)]
mod numbers;
#[cfg(test)]
mod tests;

pub use calls::Arch;
use calls::{CALLS, Group};
use classify::{Insn, Verdict};
use emit::{CallAnswer, Fixed, Segment};
#[cfg(test)]
use levels::Clause;
use levels::{CallRules, Decision, Effect, RefusalReporting};

/// `SECCOMP_RET_KILL_PROCESS`
const RET_KILL_PROCESS: u32 = 0x8000_0000;
/// `SECCOMP_RET_ERRNO`
const RET_ERRNO: u32 = 0x0005_0000;
/// `SECCOMP_RET_USER_NOTIF`
const RET_USER_NOTIF: u32 = 0x7fc0_0000;
/// `SECCOMP_RET_TRACE`
const RET_TRACE: u32 = 0x7ff0_0000;
/// `SECCOMP_RET_ALLOW`
const RET_ALLOW: u32 = 0x7fff_0000;

/// The built-in rule sets, each stricter than the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyscallLevel {
    /// Only what holds at every level.
    Disabled,
    /// Refuses what is dangerous anywhere.
    Basic,
    /// An allowlist.
    Standard,
    /// The allowlist without sockets and metadata changes.
    Strict,
}

/// What becomes of a refused call. Probes that libc makes on any host always get their errno, silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denials {
    /// It fails with its errno, without a notification.
    Errno,
    /// It goes to the listener, which replies with the errno that the classifier names.
    Notify,
    /// The process is killed.
    Kill,
}

/// Who counts execs when the payload may not spawn. The gate, where there is one, lets exactly the first one through;
/// the filter refuses execve, and execveat on any other fd, by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecGate {
    /// The call goes to the listener with class [`Verdict::EXEC`]: it continues the first and refuses the rest.
    /// Only the one thread that is about to exec can make the first, so continuing it is no race.
    Notify,
    /// `SECCOMP_RET_TRACE`: a tracer lets the first through and detaches; without a tracer the kernel says ENOSYS.
    Trace,
    /// No receiver, where no listener is available: no process can be made, but the one there is can become another program.
    Open,
}

/// The payload may start threads but no process and no other program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSpawn {
    /// The fd of the program, opened O_CLOEXEC, above the hard RLIMIT_NOFILE so that it cannot be made again.
    pub exec_fd: u32,
    /// Who lets the first exec through.
    pub gate: ExecGate,
}

/// Comparison of an argument with a value, unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgComparison {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less than.
    Lt,
    /// At most.
    Le,
    /// Greater than.
    Gt,
    /// At least.
    Ge,
}

impl ArgComparison {
    /// Whether `left op right`.
    pub fn holds(self, left: u64, right: u64) -> bool {
        match self {
            ArgComparison::Eq => left == right,
            ArgComparison::Ne => left != right,
            ArgComparison::Lt => left < right,
            ArgComparison::Le => left <= right,
            ArgComparison::Gt => left > right,
            ArgComparison::Ge => left >= right,
        }
    }

    /// As it is written, here and in Kafel.
    pub(crate) const fn symbol(self) -> &'static str {
        match self {
            ArgComparison::Eq => "==",
            ArgComparison::Ne => "!=",
            ArgComparison::Lt => "<",
            ArgComparison::Le => "<=",
            ArgComparison::Gt => ">",
            ArgComparison::Ge => ">=",
        }
    }
}

/// `(argument & mask) op value`. Where the kernel reads the argument as 32 bits, so does the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Argument number, 0 to 5.
    pub index: u8,
    /// And-ed to the argument first; all ones compares the whole of it.
    pub mask: u64,
    /// How it is compared.
    pub op: ArgComparison,
    /// With what.
    pub value: u64,
}

/// What a custom rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    /// Refuses with this errno, 1 to 4095.
    Errno(u16),
    /// Kills the process.
    Kill,
    /// It goes to the listener, which performs it itself or refuses it ([`Verdict::PERFORM`]).
    Perform,
}

/// A rule of the policy. Rules are looked at before the level, the first match wins, and they only narrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterRule {
    /// Kernel names; one that only the other architecture has is passed over.
    pub syscalls: Vec<String>,
    /// What happens.
    pub action: RuleAction,
    /// All must hold; empty means always.
    pub when: Vec<Condition>,
}

/// What the filter has to hold.
#[derive(Debug, Clone, Copy)]
pub struct SeccompRequest<'a> {
    /// The built-in rule set.
    pub level: SyscallLevel,
    /// What becomes of refused calls.
    pub denials: Denials,
    /// Calls that create, link or rename a name go to the listener ([`Verdict::CREATE`]): open and openat with
    /// O_CREAT or O_TMPFILE, creat, mkdir(at), mknod(at), symlink(at), link(at), rename(at, at2), and bind.
    pub notify_creates: bool,
    /// With `notify_creates`: unlink and unlinkat go there as well. For names that exist and cannot be mounted over,
    /// which are symbolic links; without any, removing files costs nothing more.
    pub notify_removes: bool,
    /// Every allowed call that takes a path or a socket address goes to the listener ([`Verdict::TRACE`]), but execve and
    /// execveat, which the process that installs the filter makes next.
    pub trace: bool,
    /// Of the calls on sockets those that name an address go to the listener ([`Verdict::TRACE`]), as with `trace`.
    pub addresses: bool,
    /// connect goes to the listener ([`Verdict::TRACE`]): for a network that refuses addresses, where the refusal is all that
    /// tells what the program wanted.
    pub connects: bool,
    /// No child processes.
    pub no_spawn: Option<NoSpawn>,
    /// Whether `socket(AF_UNIX)` is granted.
    pub unix_sockets: bool,
    /// Refuses INET, INET6 and NETLINK sockets whole: for a backend without a network namespace.
    pub no_network_sockets: bool,
    /// The host has a pool of huge pages, which mmap must not take from. Without one the kernel refuses by itself, and the call
    /// keeps its place in the kernel's cache of calls that are always allowed.
    pub huge_pages: bool,
    /// Refuses NETLINK sockets: for a backend in which nothing counts what they buffer.
    pub no_netlink: bool,
    /// Whether there is an IPC namespace of the sandbox's own; without one System V and POSIX message IPC is
    /// refused.
    pub private_ipc: bool,
    /// Refuses chmod, chown, utime, xattr and their kin, as `Strict` does, and to make file systems: Landlock does not
    /// cover them.
    pub metadata_refused: bool,
    /// Whether the core limit may be set: nothing keeps a core handler from running.
    pub core_limit: bool,
    /// Lets through what programs make sandboxes of their own with: namespaces, mounts, a root and a name. From `Basic` on;
    /// everything else that is dangerous stays refused.
    pub nested: bool,
    /// Refuses memfd_create, through which anything that can be written could be executed.
    pub limited_exec: bool,
    /// The policy's own rules.
    pub rules: &'a [FilterRule],
}

impl SeccompRequest<'static> {
    /// A level by itself, in namespaces of the sandbox's own: who is refused gets an errno, and nothing is granted besides.
    pub const fn of(level: SyscallLevel) -> SeccompRequest<'static> {
        SeccompRequest {
            level,
            denials: Denials::Errno,
            notify_creates: false,
            notify_removes: false,
            trace: false,
            addresses: false,
            connects: false,
            no_spawn: None,
            unix_sockets: false,
            no_network_sockets: false,
            huge_pages: false,
            no_netlink: false,
            private_ipc: true,
            metadata_refused: false,
            core_limit: false,
            nested: false,
            limited_exec: false,
            rules: &[],
        }
    }
}

/// Why a call is refused: which part of the policy is responsible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum SeccompReason {
    /// The level.
    Level = 1,
    /// A socket family that no level allows.
    SocketFamily = 2,
    /// A raw or other special socket type or protocol.
    SocketType = 3,
    /// `socket(AF_UNIX)` is not granted. libc's name service does this by itself.
    UnixSocket = 4,
    /// The sandbox has no network.
    Network = 5,
    /// A setuid or setgid bit.
    SetId = 6,
    /// A device node.
    Device = 7,
    /// Typing into a terminal or changing its discipline.
    Terminal = 8,
    /// No child processes.
    Spawn = 9,
    /// A change of metadata.
    Metadata = 10,
    /// IPC without a namespace of its own.
    Ipc = 11,
    /// Execution is limited.
    Exec = 12,
    /// A rule of the policy; [`Verdict::rule`] says which.
    Rule = 13,
}

impl SeccompReason {
    /// The reason in a classifier's verdict.
    pub fn of(verdict: Verdict) -> Option<SeccompReason> {
        use SeccompReason::*;
        let all = [
            Level,
            SocketFamily,
            SocketType,
            UnixSocket,
            Network,
            SetId,
            Device,
            Terminal,
            Spawn,
            Metadata,
            Ipc,
            Exec,
            Rule,
        ];
        all.into_iter().find(|reason| *reason as u32 == verdict.reason())
    }
}

/// What a filter cannot be made of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeccompError {
    /// A name that neither architecture knows.
    #[error("seccomp rule {rule}: unknown system call {call:?}; hint: use the kernel's name, as in `man 2 syscalls`")]
    UnknownCall {
        /// Index of the rule.
        rule: usize,
        /// The name.
        call: String,
    },
    /// A rule without calls would do nothing.
    #[error("seccomp rule {rule}: names no system call")]
    EmptyRule {
        /// Index of the rule.
        rule: usize,
    },
    /// An errno that the kernel would not deliver.
    #[error("seccomp rule {rule}: errno {errno} is not in 1 to 4095")]
    Errno {
        /// Index of the rule.
        rule: usize,
        /// The errno.
        errno: u16,
    },
    /// A system call has six arguments.
    #[error("seccomp rule {rule}: argument {argument} is not in 0 to 5")]
    Argument {
        /// Index of the rule.
        rule: usize,
        /// The argument's number.
        argument: u8,
    },
    /// The rule would refuse what starts the program.
    #[error(
        "seccomp rule {rule}: refusing {call} without conditions would keep the program from starting; \
         hint: use process.spawn = false to refuse other programs"
    )]
    StopsStart {
        /// Index of the rule.
        rule: usize,
        /// The call.
        call: String,
    },
    /// More rules than a verdict can name.
    #[error("{rules} seccomp rules are more than the 4095 that a filter can hold")]
    TooManyRules {
        /// How many there are.
        rules: usize,
    },
    /// The kernel takes 4096 instructions.
    #[error("the seccomp filter needs {instructions} instructions, the kernel takes 4096; hint: use fewer rules")]
    TooLong {
        /// How many it needs.
        instructions: usize,
    },
}

/// A compiled filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterProgram {
    /// For the kernel.
    pub filter: Vec<Insn>,
    /// For the receiver of notifications ([`classify::classify`]); empty when the filter never notifies.
    pub classifier: Vec<Insn>,
}

impl FilterProgram {
    /// Whether the filter ever notifies, so that it must be installed with `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
    pub fn notifies(&self) -> bool {
        !self.classifier.is_empty()
    }

    /// A program as the bytes of an array of `struct sock_filter`, in the byte order of both architectures.
    pub fn bytes(program: &[Insn]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(program.len() * 8);
        for insn in program {
            bytes.extend_from_slice(&insn.code.to_le_bytes());
            bytes.extend_from_slice(&[insn.jt, insn.jf]);
            bytes.extend_from_slice(&insn.k.to_le_bytes());
        }
        bytes
    }
}

/// Compiles a filter.
pub fn compile(request: &SeccompRequest<'_>, arch: Arch) -> Result<FilterProgram, SeccompError> {
    let decisions = decisions(request, arch)?;
    let returned = |effect| returned(effect, request);
    let fixed = Fixed { foreign: RET_KILL_PROCESS, no_call: returned(levels::ABSENT) };
    let filter = emit::emit(&segments(&decisions, returned), fixed, arch)?;
    let notifies = filter.iter().any(|insn| insn.code == classify::RET && insn.k == RET_USER_NOTIF);
    let classifier = if notifies {
        let fixed = Fixed { foreign: verdict(Effect::Kill { rule: 0 }).0, no_call: verdict(levels::ABSENT).0 };
        emit::emit(&segments(&decisions, |effect| verdict(effect).0), fixed, arch)?
    } else {
        Vec::new()
    };
    Ok(FilterProgram { filter, classifier })
}

/// The filter in words: one line per system call, by number.
#[cfg(test)]
fn describe(request: &SeccompRequest<'_>, arch: Arch) -> Result<String, SeccompError> {
    use std::fmt::Write;
    let mut text = String::new();
    for (number, name, decision) in decisions(request, arch)? {
        let mut line = format!("{number:3} {name}: ");
        for Clause { when, effect } in &decision.clauses {
            for (at, cond) in when.iter().enumerate() {
                let and = if at == 0 { "" } else { " and " };
                // Writing to a string cannot fail.
                write!(line, "{and}{}", in_words(cond)).unwrap_or_default();
            }
            line.push_str(" -> ");
            line.push_str(&effect_in_words(*effect));
            line.push_str("; ");
        }
        line.push_str(&effect_in_words(decision.otherwise));
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// A call's number.
pub fn syscall_number(name: &str, arch: Arch) -> Option<u32> {
    CALLS.iter().find(|call| call.name == name)?.number(arch)
}

/// A call's kernel name.
pub fn syscall_name(number: u32, arch: Arch) -> Option<&'static str> {
    CALLS.iter().find(|call| call.number(arch) == Some(number)).map(|call| call.name)
}

/// Every call of an architecture that changes owner, mode, times or attributes of a file.
pub fn metadata_calls(arch: Arch) -> impl Iterator<Item = &'static str> {
    CALLS.iter().filter(move |call| call.group == Group::Metadata && call.number(arch).is_some()).map(|call| call.name)
}

/// The `ioctl` commands that do the same.
pub use levels::{METADATA_IOCTLS, TREE_IOCTLS};

/// The decision for each call of an architecture, by number.
fn decisions(request: &SeccompRequest<'_>, arch: Arch) -> Result<Vec<(u32, &'static str, Decision)>, SeccompError> {
    let rules = CallRules::new(request)?;
    let mut decisions = Vec::with_capacity(CALLS.len());
    for call in CALLS {
        if let Some(number) = call.number(arch) {
            decisions.push((number, call.name, levels::decide(call, &rules)));
        }
    }
    decisions.sort_by_key(|(number, ..)| *number);
    Ok(decisions)
}

/// Merges neighbours that are answered alike; gaps and everything beyond the table are answered with ENOSYS.
fn segments(decisions: &[(u32, &'static str, Decision)], value: impl Fn(Effect) -> u32) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut add = |start, answer: CallAnswer| {
        if segments.last().is_none_or(|last| last.answer != answer) {
            segments.push(Segment { start, answer });
        }
    };
    let absent = || CallAnswer { clauses: Vec::new(), otherwise: value(levels::ABSENT) };
    let mut next = 0;
    for (number, _, decision) in decisions {
        if *number > next {
            add(next, absent());
        }
        let otherwise = value(decision.otherwise);
        let mut clauses: Vec<_> =
            decision.clauses.iter().map(|clause| (clause.when.clone(), value(clause.effect))).collect();
        // Trailing checks that change nothing would cost the call its place in the kernel's cache.
        while clauses.last().is_some_and(|(_, last)| *last == otherwise) {
            clauses.pop();
        }
        add(*number, CallAnswer { clauses, otherwise });
        next = number + 1;
    }
    add(next, absent());
    segments
}

/// What the filter returns for an effect.
fn returned(effect: Effect, request: &SeccompRequest<'_>) -> u32 {
    match effect {
        Effect::Allow => RET_ALLOW,
        Effect::Kill { .. } => RET_KILL_PROCESS,
        Effect::Refuse { errno, report, .. } => match (request.denials, report) {
            (Denials::Notify, RefusalReporting::Always | RefusalReporting::NeverKill) => RET_USER_NOTIF,
            (Denials::Kill, RefusalReporting::Always) => RET_KILL_PROCESS,
            _ => RET_ERRNO | errno as u32,
        },
        Effect::Create | Effect::Trace | Effect::Perform { .. } => RET_USER_NOTIF,
        Effect::Exec => match request.no_spawn.map(|no_spawn| no_spawn.gate) {
            Some(ExecGate::Trace) => RET_TRACE,
            Some(ExecGate::Open) => RET_ALLOW,
            _ => RET_USER_NOTIF,
        },
    }
}

/// What the classifier returns for an effect.
fn verdict(effect: Effect) -> Verdict {
    let eperm = libc::EPERM as u32;
    match effect {
        Effect::Allow => Verdict::new(Verdict::ALLOW, 0, 0, 0),
        Effect::Kill { rule } => Verdict::new(Verdict::KILL, 0, SeccompReason::Rule as u32, rule),
        Effect::Refuse { errno, reason, rule, report } => {
            let verdict = Verdict::new(Verdict::DENY, errno as u32, reason as u32, rule);
            if report == RefusalReporting::NeverKill { verdict.made_by_libc() } else { verdict }
        }
        Effect::Create => Verdict::new(Verdict::CREATE, eperm, 0, 0),
        Effect::Trace => Verdict::new(Verdict::TRACE, eperm, 0, 0),
        Effect::Perform { rule } => Verdict::new(Verdict::PERFORM, eperm, SeccompReason::Rule as u32, rule),
        Effect::Exec => Verdict::new(Verdict::EXEC, eperm, SeccompReason::Spawn as u32, 0),
    }
}

#[cfg(test)]
fn in_words(cond: &levels::Cond) -> String {
    let op = cond.op.symbol();
    let size = match cond.width {
        levels::Width::Bits32 => "",
        levels::Width::Bits64 => ":64",
    };
    if cond.mask == u64::MAX {
        format!("arg{}{size} {op} {:#x}", cond.arg, cond.value)
    } else {
        format!("arg{}{size} & {:#x} {op} {:#x}", cond.arg, cond.mask, cond.value)
    }
}

#[cfg(test)]
fn effect_in_words(effect: Effect) -> String {
    match effect {
        Effect::Allow => "allow".into(),
        Effect::Kill { .. } => "kill".into(),
        Effect::Create => "notify create".into(),
        Effect::Trace => "notify trace".into(),
        Effect::Perform { .. } => "notify perform".into(),
        Effect::Exec => "gate".into(),
        Effect::Refuse { errno, reason, report, .. } => {
            let name = match errno {
                libc::EPERM => "EPERM".into(),
                libc::EACCES => "EACCES".into(),
                libc::EINVAL => "EINVAL".into(),
                libc::ENOSYS => "ENOSYS".into(),
                libc::ENOMEM => "ENOMEM".into(),
                libc::EAFNOSUPPORT => "EAFNOSUPPORT".into(),
                libc::EPROTONOSUPPORT => "EPROTONOSUPPORT".into(),
                other => format!("errno {other}"),
            };
            match report {
                RefusalReporting::Always => format!("{name} ({reason:?})"),
                RefusalReporting::NeverKill => format!("{name} ({reason:?}, never kills)"),
                RefusalReporting::Never => format!("{name} (silent)"),
            }
        }
    }
}
