//! Which keys each object of a policy has: the table that decoding and the schema share.
//!
//! Data only. An object's name is that of its type in `model`.

/// One kind of object.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    /// What it describes, as words for a message.
    pub(crate) what: &'static str,
    /// Its keys, in the order in which a policy is written.
    pub(crate) keys: &'static [&'static str],
    /// Those that cannot be left out.
    pub(crate) required: &'static [&'static str],
}

const fn object(what: &'static str, keys: &'static [&'static str], required: &'static [&'static str]) -> ObjectSchema {
    ObjectSchema { what, keys, required }
}

pub(crate) const POLICY: ObjectSchema = object(
    "a policy",
    &[
        "version",
        "id",
        "description",
        "command",
        "filesystem",
        "network",
        "process",
        "limits",
        "enforcement",
        "on_violation",
        "audit",
        "backend",
    ],
    &["version"],
);
pub(crate) const COMMAND: ObjectSchema = object("a command", &["argv", "variables", "cwd", "stdin"], &[]);
pub(crate) const FILESYSTEM: ObjectSchema = object("a file system", &["root", "mounts", "deny", "protected"], &[]);
pub(crate) const BIND: ObjectSchema =
    object("a bind mount", &["type", "source", "target", "access", "exec", "optional"], &["type", "source", "target"]);
pub(crate) const TMPFS: ObjectSchema =
    object("a tmpfs mount", &["type", "target", "size_mb", "exec"], &["type", "target", "size_mb"]);
pub(crate) const NETWORK: ObjectSchema =
    object("a network", &["mode", "allow", "deny", "methods", "api", "upstream_proxy", "limits"], &[]);
pub(crate) const ALLOW_RULE: ObjectSchema =
    object("a rule of the network", &["to", "methods", "paths", "encrypted_hello", "private"], &["to"]);
pub(crate) const NETWORK_API: ObjectSchema = object("an API", &["url", "variable"], &["url"]);
pub(crate) const NETWORK_LIMITS: ObjectSchema = object(
    "limits of the network",
    &[
        "connections",
        "connections_per_host",
        "up_mb",
        "down_mb",
        "host_up_mb",
        "host_down_mb",
        "kib_per_second",
        "names",
    ],
    &[],
);
pub(crate) const PROCESS: ObjectSchema =
    object("a process", &["spawn", "nested_sandboxes", "seccomp", "unix_sockets", "hostname"], &[]);
pub(crate) const SECCOMP: ObjectSchema = object("a system call filter", &["level", "rules"], &[]);
pub(crate) const SYSCALL_RULE: ObjectSchema =
    object("a system call rule", &["syscalls", "action", "when"], &["syscalls", "action"]);
pub(crate) const ARG_CONDITION: ObjectSchema =
    object("an argument condition", &["index", "mask", "op", "value"], &["index", "op", "value"]);
pub(crate) const LIMITS: ObjectSchema = object(
    "limits",
    &[
        "memory_mb",
        "cpu_seconds",
        "cpu_millis",
        "wall_ms",
        "file_size_mb",
        "open_files",
        "processes",
        "tmpfs_mb",
        "output_bytes",
        "layer_mb",
        "layer_inodes",
    ],
    &[],
);
pub(crate) const ENFORCEMENT: ObjectSchema = object("enforcement", &["best_effort"], &[]);
pub(crate) const AUDIT: ObjectSchema = object("an audit", &["enabled", "level", "trace"], &[]);

/// Keys that people write for others: what was given, and what to write instead.
pub(crate) const KNOWN_MISTAKES: &[(&str, &str)] = &[
    ("args", "`argv`, with the program first"),
    ("cap_add", "nothing: a sandbox has no capabilities"),
    ("cmd", "`argv`"),
    ("cpus", "`cpu_millis`, thousandths of a CPU"),
    ("env", "`variables`"),
    ("environment", "`variables`"),
    ("max_processes", "`processes`"),
    ("mandatory", "`optional`, the other way round"),
    ("memory_bytes", "`memory_mb`, in MiB"),
    ("memory_gb", "`memory_mb`, in MiB"),
    ("pids", "`processes`"),
    ("readonly", "`access`: `read_only`"),
    ("read_only", "`access`: `read_only`"),
    ("timeout", "`wall_ms`, in milliseconds"),
    ("timeout_ms", "`wall_ms`"),
    ("timeout_seconds", "`wall_ms`, in milliseconds"),
    ("wall_seconds", "`wall_ms`, in milliseconds"),
    ("workdir", "`cwd`"),
    ("working_dir", "`cwd`"),
];
