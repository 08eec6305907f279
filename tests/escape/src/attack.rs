//! The vocabulary in which an attack is written down: what it tries, in what sandbox, on which victim, and how the
//! host sees whether it worked. Data only.
//!
//! Texts may hold placeholders that a case fills in: `{out}` (visible through the host's tree, not bound), `{ro}`,
//! `{rw}`, `{cow}` and `{twin}` (directories to bind), `{attack}` (the program), `{pid}` and `{addr}` of the victim
//! process, `{port}`, `{token}` (unique), `{secret}`, `{abstract}`, `{key}`, `{handle}`, `{keep}`, `{disk}`.

use cofferdam_policy::{Access, Field, NetworkMode, SeccompLevel};

use crate::run::Run;

/// What kind of way out it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is named by its title")]
pub enum Class {
    Files,
    Denied,
    Protected,
    CopyOnWrite,
    Mounts,
    Proc,
    Tracing,
    Signals,
    Sockets,
    Network,
    Descriptors,
    Terminal,
    Privileges,
    Namespaces,
    Keyrings,
    Cores,
    Ipc,
    Bombs,
    Outliving,
    Arguments,
    Kernel,
    Execution,
    Devices,
    Metadata,
    Leaks,
}

impl Class {
    /// What the table calls it.
    pub fn title(self) -> &'static str {
        match self {
            Class::Files => "Files of the host",
            Class::Denied => "Denied paths",
            Class::Protected => "Protected paths",
            Class::CopyOnWrite => "Copy-on-write and its export",
            Class::Mounts => "Mounts and roots",
            Class::Proc => "/proc, /sys and cgroups",
            Class::Tracing => "Tracing, memory of others, pid 1",
            Class::Signals => "Signals and steering",
            Class::Sockets => "Path, abstract and vsock sockets",
            Class::Network => "Network",
            Class::Descriptors => "Inherited descriptors",
            Class::Terminal => "Terminal injection",
            Class::Privileges => "Setuid, capabilities, groups",
            Class::Namespaces => "Nested namespaces",
            Class::Keyrings => "Keyrings",
            Class::Cores => "Core dumps and their handlers",
            Class::Ipc => "Shared memory and message queues",
            Class::Bombs => "Bombs",
            Class::Outliving => "Outliving the run",
            Class::Arguments => "x32 and argument tricks",
            Class::Kernel => "The kernel's own state",
            Class::Execution => "memfd, ld.so and no-spawn",
            Class::Devices => "Device nodes",
            Class::Metadata => "Metadata",
            Class::Leaks => "Leaks and inherited state",
        }
    }
}

/// One change to the policy of a trial, which starts as the host's tree read-only with no network.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "each sets the policy field that it names")]
pub enum Setting {
    /// `{ro}` bound read-only in place.
    Ro,
    /// `{rw}` bound writable in place, noexec.
    Rw,
    /// `{rw}` bound writable in place, with exec.
    RwExec,
    /// `{cow}` bound copy-on-write in place.
    Cow,
    Bind(&'static str, &'static str, Access),
    Minimal,
    Deny(&'static str),
    /// Nothing is protected.
    Unprotected,
    Net(NetworkMode),
    Unix,
    Level(SeccompLevel),
    NoSpawn,
    Stdin,
    MemoryMb(u64),
    CpuSeconds(u64),
    CpuMillis(u64),
    WallMs(u64),
    FileSizeMb(u64),
    OpenFiles(u64),
    Processes(u64),
    TmpfsMb(u64),
    OutputBytes(u64),
    LayerMb(u64),
    LayerInodes(u64),
    Terminate,
    Trace,
    /// Copy-on-write changes are kept in `{keep}`.
    Keep,
}

/// Something outside that the attack aims at, beyond the files that every case has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// A dumpable process of the same user that holds the secret in memory, variables and descriptor 9.
    Process,
    /// A stream socket at this path or abstract name.
    Stream(&'static str),
    /// A datagram socket at this path or abstract name.
    Dgram(&'static str),
    /// A TCP listener on 127.0.0.1:`{port}`.
    Tcp,
    /// A UDP socket on 127.0.0.1:`{port}`.
    Udp,
    /// Somebody on the host who connects to 127.0.0.1:`{port}` as soon as it listens.
    Dialer,
    /// A FIFO at this path with a reader.
    Fifo(&'static str),
    /// Segments, semaphores and queues with the secret, key `{key}`, queue `/{token}`.
    Ipc,
    /// A file in /dev/shm named `{token}` with the secret.
    PosixShm,
    /// A setuid root copy of the attack program at `{out}/suid`.
    Setuid,
    /// A copy with file capabilities at `{out}/filecap`.
    FileCaps,
    /// A device node made by root at this path: character 1:5, endless zeros; for Docker 1:11, the kernel's log.
    Node(&'static str),
    /// `{out}/group` is readable by group 4 alone.
    GroupFile,
    /// A file on which the host looks for the lock of another program.
    Lock(&'static str),
    /// The handle of this file, for `{handle}`.
    Handle(&'static str),
    /// A second run with the same policy, at the same time.
    Sandbox(&'static [&'static str]),
}

/// How the host sees whether the attack worked, beyond what the attack says.
#[derive(Clone, Copy)]
pub enum Proof {
    /// Nothing but the attack's own word.
    Said,
    /// The secret stands in the output.
    Secret,
    /// This file no longer says what it said.
    Changed(&'static str),
    /// This path is there.
    Exists(&'static str),
    /// This path is there with these mode bits.
    Mode(&'static str, u32),
    /// Mode, owner, times, flags or attributes of this file are no longer what they were.
    Meta(&'static str),
    /// The victim process is no more.
    Dead,
    /// The victim process has another priority, affinity, policy or limit.
    Steered,
    /// The victim's socket or FIFO got the attack's token, or the victim file was locked.
    Received,
    /// The file behind the caller's stdout, stderr or stdin lost its first line.
    Truncated,
    /// The caller's file has O_NONBLOCK now.
    Nonblocking,
    /// A process with the token in its command line lives on.
    Left,
    /// The launcher saw any of these afterwards: `window`, `modes` and `input` of the caller's terminal, `mounts`,
    /// `survivors`, `cgroups`.
    Saw(&'static [&'static str]),
    /// The launcher saw a process of its own group die.
    Bystander,
    /// Anything else about the run: true when it worked.
    Run(fn(&Run) -> bool),
}

/// The same operation by the same program on the same victim where it is allowed.
#[derive(Clone, Copy)]
pub enum Twin {
    /// Unconfined, as the same user.
    Outside,
    /// Unconfined, as root: for victims that only root could touch.
    AsRoot,
    /// Unconfined, as root in a private mount namespace.
    PrivateMounts,
    /// In a pid namespace whose pid 1 was forked carelessly.
    NaiveInit,
    /// In the same kind of sandbox with this policy (and these arguments, when there are any).
    Inside(&'static [Setting], &'static [&'static str]),
    /// The same, and success is what this function sees.
    Dose(&'static [Setting], &'static [&'static str], fn(&Run) -> bool),
}

/// An ending other than a refusal reported by the attack itself that also means that it was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Killed by the system call filter.
    Filter,
    /// Killed by a limit, whichever way the backend says so.
    Limit,
    /// The kernel refused to execute the program, which is there and may be executed, with EPERM.
    Exec,
    /// It ran to its end; only the proof counts.
    Any,
}

/// Where the caller's streams go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// One JSON outcome.
    Json,
    /// Passed through, into a file of the host.
    File,
    /// A pseudo-terminal of the caller's.
    Pty,
    /// The same, and `-t`: the program has one of its own.
    Terminal,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Unique.
    pub name: &'static str,
    /// Where the table lists it.
    pub class: Class,
    /// What it tries, one line.
    pub why: &'static str,
    /// The promises that it would break: required in the trial.
    pub fields: &'static [Field],
    /// Attack program's name and arguments.
    pub args: &'static [&'static str],
    /// The policy.
    pub settings: &'static [Setting],
    /// The victims.
    pub victims: &'static [Victim],
    /// Options of the launcher: what the caller leaves lying about.
    pub caller: &'static [&'static str],
    /// Streams.
    pub streams: Streams,
    /// How the host sees it.
    pub proof: Proof,
    /// Endings that are fine.
    pub held: &'static [End],
    /// The allowed twin.
    pub twin: Twin,
    /// A path without which this host has no such victim.
    pub needs: Option<&'static str>,
    /// Only meaningful for a caller that is root.
    pub root_only: bool,
    /// The paragraph of SECURITY.md which says that this is not prevented: success is then no hole, and not claimed.
    pub documented: Option<&'static str>,
}

/// What most rows share.
pub const ATTACK: Attack = Attack {
    name: "",
    class: Class::Files,
    why: "",
    fields: &[Field::Root],
    args: &[],
    settings: &[],
    victims: &[],
    caller: &[],
    streams: Streams::Json,
    proof: Proof::Said,
    held: &[],
    twin: Twin::Outside,
    needs: None,
    root_only: false,
    documented: None,
};
