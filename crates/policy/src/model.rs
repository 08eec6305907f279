//! The policy's data: what one sandbox may do, complete, with units in the names and nothing left to guess.
//!
//! Types only. `decode` reads them from JSON, `validate` holds the rules between fields, `field` names each
//! leaf that a backend must answer for. Every type serializes to the exact JSON form that `decode` accepts.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::allow::{AllowRule, DenyEntry};
use crate::field::Field;
use crate::url::HttpUrl;

/// The only policy version there is.
pub const VERSION: u32 = 1;

/// What one sandbox may do. The one object that every front end compiles to and every backend reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Policy {
    /// Always 1.
    pub version: u32,
    /// A short name for reports, `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Free text for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What is run.
    pub command: Command,
    /// What it sees of the file system and may change there.
    pub filesystem: Filesystem,
    /// What it may reach.
    pub network: Network,
    /// Processes, system calls and the host name.
    pub process: Process,
    /// Whole-run budgets.
    pub limits: Limits,
    /// Which fields may be held less than fully.
    pub enforcement: Enforcement,
    /// What happens on a violation.
    pub on_violation: OnViolation,
    /// What the answer records of violations.
    pub audit: Audit,
    /// Which mechanism holds the policy.
    pub backend: BackendName,
}

/// The program, its arguments, variables, directory and standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Command {
    /// The program and its arguments; the program is found on the sandbox's own PATH when it has no slash.
    pub argv: Vec<String>,
    /// The only variables that the program gets; the built-in ones hold only when this is left out.
    pub variables: BTreeMap<String, String>,
    /// Absolute directory inside the sandbox in which the program starts; none means its home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Where standard input comes from.
    pub stdin: Stdin,
}

/// Where the program's standard input comes from. Never inherited by accident: `closed` is the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Stdin {
    /// Reads end of file at once.
    #[default]
    Closed,
    /// The caller's stream, copied through a pipe.
    Caller,
    /// This text.
    Text(String),
}

/// The file system as the sandbox sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Filesystem {
    /// What `/` is.
    pub root: Root,
    /// What is mounted over it, in order.
    pub mounts: Vec<Mount>,
    /// Absolute paths that can be neither read nor written, wherever the same file appears, and also when
    /// they do not exist yet.
    pub deny: Vec<String>,
    /// Paths that can be read but never written, created, replaced or removed. An absolute path, or a relative
    /// one that holds at the root of every writable mount. The built-in list holds only when this is left out.
    pub protected: Vec<String>,
    /// The file that each of these mount sources was when the caller decided to mount it. A backend refuses to mount another
    /// one that has come into its place since. No text of a policy has this field.
    #[serde(skip)]
    pub identities: BTreeMap<String, FileIdentity>,
}

/// A file of the host, whatever its path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// What `/` is inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Root {
    /// The host's own tree, read-only, without run-time directories, devices and what is denied.
    Host,
    /// An empty tree with the system's programs and libraries, read-only.
    Minimal,
    /// An empty tree with what the program needs of the system's, read-only: itself, its interpreter, and the directories
    /// of their libraries.
    Interpreter,
    /// This directory, read-only.
    Directory(String),
    /// An image that containers are made of, read-only: its reference, such as `alpine:3.20` or one with a digest, or the
    /// absolute path of a tarball.
    Image(String),
}

/// One thing mounted into the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub enum Mount {
    /// A file or directory of the host.
    Bind {
        /// Absolute path on the host; must exist unless the mount is optional.
        source: String,
        /// Absolute path inside.
        target: String,
        /// What may be done with it.
        access: Access,
        /// Whether programs on it may be executed. Writable binds are noexec unless this is set.
        exec: bool,
        /// Whether it is left out when nothing is at `source`, and the answer says so. What is there and cannot be
        /// mounted is refused all the same.
        optional: bool,
    },
    /// An empty file system in memory.
    Tmpfs {
        /// Absolute path inside.
        target: String,
        /// Size, MiB.
        size_mb: u64,
        /// Whether programs on it may be executed.
        exec: bool,
    },
}

/// What may be done with a bind mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Access {
    /// Read.
    #[default]
    ReadOnly,
    /// Read and write the host's own files.
    ReadWrite,
    /// Read and write; writes go to a layer in memory that is listed in the outcome and dropped or kept.
    CopyOnWrite,
}

/// What the sandbox may reach over the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Network {
    /// The overall rule.
    pub mode: NetworkMode,
    /// Where connections may lead, all entries together; only with mode `allowlist`. Without ports: 80 and 443.
    pub allow: Vec<AllowRule>,
    /// Where none may lead, whatever `allow` says, nor to an address of which an entry here is; only with mode
    /// `allowlist`. Without ports: every port.
    pub deny: Vec<DenyEntry>,
    /// Methods that requests on plain HTTP may have, such as `GET`; only with mode `allowlist`. Left out, any method
    /// passes. What is encrypted is not looked into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// One API of the host's side that is reachable inside at a fixed loopback address; only with mode `allowlist`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<NetworkApi>,
    /// The proxy through which the gateway itself goes out, `http://[USER:PASSWORD@]HOST:PORT`; only with mode
    /// `allowlist`. What names resolve to is then its choice, and cannot be checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_proxy: Option<HttpUrl>,
    /// Budgets of the connections; only with mode `allowlist`.
    pub limits: NetworkLimits,
}

/// An API that is passed through: reachable at `http://127.0.0.1:3129` inside and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct NetworkApi {
    /// Where it is, as the host sees it: `http(s)://HOST[:PORT][/PREFIX]`. The egress gateway speaks no TLS to it, so that
    /// with `https` nothing holds it; a program reaches such a host itself, where `allow` has it.
    pub url: HttpUrl,
    /// The variable with its address in the sandbox.
    pub variable: String,
}

/// Budgets of a run's connections. Bytes are those of the connections' contents, counted for the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct NetworkLimits {
    /// Connections open at once.
    pub connections: u64,
    /// Connections open at once to one name or address.
    pub connections_per_host: u64,
    /// Sent, MiB.
    pub up_mb: u64,
    /// Received, MiB.
    pub down_mb: u64,
    /// Sent to one name or address, MiB; left out, no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_up_mb: Option<u64>,
    /// Received from one name or address, MiB; left out, no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_down_mb: Option<u64>,
    /// Speed of both directions together, KiB per second; left out, no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kib_per_second: Option<u64>,
    /// Names that may be asked for.
    pub names: u64,
}

/// The overall network rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Default)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum NetworkMode {
    /// Nothing, not even loopback.
    #[default]
    None,
    /// A loopback of the sandbox's own.
    Loopback,
    /// The hosts of `allow` and nothing else, through the egress gateway.
    Allowlist,
    /// The host's network, unconfined.
    Host,
}

/// Processes and system calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Process {
    /// Whether the program may start child processes; threads always work.
    pub spawn: bool,
    /// Whether programs inside may make sandboxes of their own, as bubblewrap does. What that costs stands in the outcome.
    pub nested_sandboxes: bool,
    /// System call filter.
    pub seccomp: Seccomp,
    /// Whether `socket(AF_UNIX)` is granted; `socketpair` always is.
    pub unix_sockets: bool,
    /// The sandbox's own host name, `^[A-Za-z0-9]([A-Za-z0-9-]{0,62})$`.
    pub hostname: String,
}

/// System call filter: a level and rules on top of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Seccomp {
    /// The built-in rule set.
    pub level: SeccompLevel,
    /// Rules that only ever narrow the level, first match wins.
    pub rules: Vec<SyscallRule>,
}

/// The built-in system call rule sets, each stricter than the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Default)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SeccompLevel {
    /// No filter but the socket families, setuid bits and foreign architectures that no level lets through.
    Disabled,
    /// Refuses what is dangerous anywhere.
    Basic,
    /// An allowlist.
    #[default]
    Standard,
    /// The allowlist without sockets and metadata changes.
    Strict,
}

/// One rule on top of a level: refuse or kill on these calls, when all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct SyscallRule {
    /// Kernel names of system calls.
    pub syscalls: Vec<String>,
    /// What happens.
    pub action: SyscallAction,
    /// All must hold; empty, or left out, means always.
    pub when: Vec<ArgCondition>,
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum SyscallAction {
    /// Fails with this errno name, such as `EPERM`.
    Errno(String),
    /// Kills the process.
    Kill,
}

/// A condition on one argument of a system call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct ArgCondition {
    /// Argument number, 0 to 5.
    pub index: u8,
    /// The value is first and-ed with this mask; all ones compares the whole argument.
    pub mask: u64,
    /// How it is compared.
    pub op: ArgOp,
    /// With what.
    pub value: u64,
}

/// Comparison of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ArgOp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less than, unsigned.
    Lt,
    /// At most, unsigned.
    Le,
    /// Greater than, unsigned.
    Gt,
    /// At least, unsigned.
    Ge,
}

/// Whole-run budgets: each holds for the whole tree of processes unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Limits {
    /// Memory of the tree, MiB, swap included.
    pub memory_mb: u64,
    /// CPU time of the tree, seconds.
    pub cpu_seconds: u64,
    /// CPU share in thousandths of one CPU: 1500 is one and a half.
    pub cpu_millis: u64,
    /// Wall time, milliseconds.
    pub wall_ms: u64,
    /// Largest file that can be written, MiB (per file).
    pub file_size_mb: u64,
    /// Open files (per process).
    pub open_files: u64,
    /// Processes and threads of the tree.
    pub processes: u64,
    /// The sandbox's own scratch space in memory (/tmp, home, /dev/shm together), MiB.
    pub tmpfs_mb: u64,
    /// Bytes kept of each output stream; the rest is read and dropped.
    pub output_bytes: u64,
    /// Layer of copy-on-write mounts, MiB each.
    pub layer_mb: u64,
    /// Files and directories in the layer of each copy-on-write mount.
    pub layer_inodes: u64,
}

/// Which fields may be held less than fully. Everything not listed is required: it holds in full, or nothing starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Enforcement {
    /// Fields that are held as far as the host allows; what was reached stands in the outcome.
    pub best_effort: BTreeSet<Field>,
}

/// What happens when the program does what it may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OnViolation {
    /// The call fails with an errno and the program goes on.
    #[default]
    Deny,
    /// The whole sandbox is killed.
    Terminate,
}

/// What the answer records of what the program was refused. Nothing here changes what is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Audit {
    /// Whether violations are recorded at all. Without, the system call filter refuses in silence, which is faster.
    pub enabled: bool,
    /// How grave a violation has to be to be recorded.
    pub level: AuditLevel,
    /// Observes every call that takes a path, so that refusals by mounts, masks and Landlock are events too. Slower.
    pub trace: bool,
}

/// Which violations are recorded; each level has those of the one before it as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Default)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum AuditLevel {
    /// What ended the run: a limit, or a violation under `on_violation: terminate`.
    Error,
    /// Limits that the program ran into and went on.
    Warning,
    /// Each refusal that can be reported.
    #[default]
    Info,
    /// What libc asks for by itself on any host.
    Debug,
}

/// Which mechanism holds the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Default)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Backend"))]
pub enum BackendName {
    /// The strongest that can enforce the whole policy.
    #[default]
    Auto,
    /// Namespaces, mounts, Landlock, seccomp and a cgroup.
    Jail,
    /// Landlock, seccomp and rlimits, without namespaces.
    Landlock,
    /// bubblewrap's program, bwrap(1).
    Bubblewrap,
    /// nsjail's program; the jail, where that is not installed.
    Nsjail,
    /// macOS's Seatbelt, sandbox-exec(1).
    Seatbelt,
    /// A container of the Docker engine's.
    Docker,
    /// A container of Podman's.
    Podman,
    /// A container made by an OCI runtime: the first of crun, runc and youki that is installed.
    Oci,
    /// A container made by crun(1).
    #[serde(rename = "oci:crun")]
    OciCrun,
    /// A container made by runc(8).
    #[serde(rename = "oci:runc")]
    OciRunc,
    /// A container made by youki.
    #[serde(rename = "oci:youki")]
    OciYouki,
    /// A container in gVisor, made by runsc.
    #[serde(rename = "oci:runsc")]
    OciRunsc,
}

impl BackendName {
    /// Every one, by the name that it has in a policy and as an option.
    pub const NAMES: &'static [(&'static str, BackendName)] = &[
        ("auto", BackendName::Auto),
        ("jail", BackendName::Jail),
        ("landlock", BackendName::Landlock),
        ("bubblewrap", BackendName::Bubblewrap),
        ("nsjail", BackendName::Nsjail),
        ("seatbelt", BackendName::Seatbelt),
        ("docker", BackendName::Docker),
        ("podman", BackendName::Podman),
        ("oci", BackendName::Oci),
        ("oci:crun", BackendName::OciCrun),
        ("oci:runc", BackendName::OciRunc),
        ("oci:youki", BackendName::OciYouki),
        ("oci:runsc", BackendName::OciRunsc),
    ];

    /// The backend of this name.
    pub fn from_name(name: &str) -> Option<BackendName> {
        BackendName::NAMES.iter().find(|(known, _)| *known == name).map(|(_, backend)| *backend)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        BackendName::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Whether it makes containers.
    pub fn is_container(self) -> bool {
        use BackendName::{Docker, Oci, OciCrun, OciRunc, OciRunsc, OciYouki, Podman};
        matches!(self, Docker | Podman | Oci | OciCrun | OciRunc | OciYouki | OciRunsc)
    }
}
