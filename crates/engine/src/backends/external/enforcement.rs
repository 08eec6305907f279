//! Per field, what each of these programs can hold: the one place where it is written down.
//!
//! The docs' table, `support`, the refusals of `prepare` and those of `export` all come from here. Pure.

use cofferdam_policy::{Field, Mount, NetworkMode, Policy, Root};

use super::tool::Tool;
use crate::backends::layout::Layout;
use crate::failure::Failure;
use crate::outcome::{Applied, Enforcement, Strength};

/// What the answers are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Cofferdam starts the program and supervises it.
    Run {
        /// The program runs as another user than the caller, as which nothing else runs.
        other_user: bool,
        /// The tool is the first process of a pid namespace, and without another user of a user namespace.
        own_pids: bool,
    },
    /// The configuration is written out, and somebody else starts the program.
    Export,
}

fn full(reason: &str) -> Applied {
    Applied { strength: Strength::Full, reason: reason.to_owned() }
}

fn partial(reason: impl Into<String>) -> Applied {
    Applied { strength: Strength::Partial, reason: reason.into() }
}

fn none(reason: &str) -> Applied {
    Applied { strength: Strength::None, reason: reason.to_owned() }
}

/// What a tool can hold of a policy. `layout` is `None` for Seatbelt, which has no mounts.
pub fn answers(tool: Tool, policy: &Policy, layout: Option<&Layout>, purpose: Purpose) -> Enforcement {
    match (tool, layout) {
        (Tool::Seatbelt, _) | (_, None) => seatbelt(policy, purpose),
        (_, Some(layout)) => mounted(tool, policy, layout, purpose),
    }
}

/// Fields of which an exported configuration only tells, though they are held in part and required.
///
/// nsjail starts its program by execve after its filter is in place, so that no configuration of it can refuse that call.
/// Children are refused, and whatever the program becomes has the same walls and limits. A run has the jail to be
/// referred to, and refuses.
pub fn told(tool: Tool, purpose: Purpose) -> &'static [Field] {
    match (tool, purpose) {
        (Tool::Nsjail, Purpose::Export) => &[Field::Spawn],
        _ => &[],
    }
}

/// The required fields that a tool cannot hold in full, as a refusal; what is best effort, or in `told`, passes.
///
/// # Errors
/// The first such field, the others by name, and what to do.
pub fn sufficient(target: &str, policy: &Policy, e: &Enforcement, told: &[Field]) -> Result<(), Failure> {
    let is_short = |field: &Field, applied: &Applied| {
        applied.strength != Strength::Full && policy.is_required(*field) && !told.contains(field)
    };
    let short: Vec<(&Field, &Applied)> = e.iter().filter(|(field, applied)| is_short(field, applied)).collect();
    let Some((first, applied)) = short.first() else { return Ok(()) };
    let names: Vec<&str> = short.iter().map(|(field, _)| field.name()).collect();
    let others = match names.len() {
        1 => String::new(),
        n => format!(" (and {} more: {})", n - 1, names[1..].join(", ")),
    };
    let how = if applied.strength == Strength::None { "not at all" } else { "only in part" };
    Err(Failure::new(**first, format!("{target} can hold {} {how}: {}{others}", first.name(), applied.reason)).hint(
        format!(
            "--best-effort={} (enforcement.best_effort) takes what can be had; --backend jail holds more",
            names.join(",")
        ),
    ))
}

/// Of a list of names, the first and how many more.
fn some(names: &[String]) -> String {
    let first = names.first().map_or("", String::as_str);
    match names.len() {
        0 | 1 => first.to_owned(),
        n => format!("{first} and {} more", n - 1),
    }
}

fn mounted(tool: Tool, policy: &Policy, layout: &Layout, purpose: Purpose) -> Enforcement {
    let name = tool.name();
    let mut e = Enforcement::new();
    let nested = tool == Tool::Nsjail && !layout.nested.is_empty();
    let flags = || {
        partial(format!(
            "what is mounted below {} keeps its own flags: nsjail sets them on the top mount alone",
            some(&layout.nested)
        ))
    };
    e.insert(
        Field::Root,
        match policy.filesystem.root {
            Root::Host => {
                partial("the host's FIFOs can be written to through read-only mounts: there is no Landlock behind them")
            }
            _ if nested => flags(),
            _ => full("mounts"),
        },
    );
    let held = mounts(tool, policy, layout, purpose, nested.then(flags));
    e.insert(Field::Mounts, crate::plan::optional_mounts::told(held, &layout.left_out));
    e.insert(Field::Layer, full("no copy-on-write mounts"));
    e.insert(
        Field::Deny,
        if layout.unheld_deny.is_empty() {
            full("masks")
        } else {
            partial(format!("{}: mounts alone do not keep a name from being made", some(&layout.unheld_deny)))
        },
    );
    e.insert(
        Field::Protected,
        if !layout.unheld_protected.is_empty() {
            partial(format!("{}: mounts alone do not keep a name from being made", some(&layout.unheld_protected)))
        } else if !layout.linked.is_empty() {
            partial(format!("{}: it has other hard links, through which it could be written", some(&layout.linked)))
        } else {
            full("read-only binds")
        },
    );
    e.insert(
        Field::Metadata,
        if nested { flags() } else { full("read-only mounts refuse metadata changes outside writable mounts") },
    );
    e.insert(
        Field::Network,
        match policy.network.mode {
            NetworkMode::None if tool == Tool::Nsjail => full("an empty network namespace, loopback down"),
            NetworkMode::None => full("a network namespace of its own, and the filter refuses its sockets"),
            NetworkMode::Loopback => full("a network namespace of its own with loopback"),
            NetworkMode::Host => full("nothing to hold: the host's network was asked for"),
            NetworkMode::Allowlist => none("it has no egress gateway: the jail and containers have one"),
        },
    );
    e.extend(crate::plan::support::network(policy, false));
    e.insert(Field::NestedSandboxes, crate::plan::support::nested(policy));
    e.insert(Field::Seccomp, full(if tool == Tool::Nsjail { "seccomp, by Kafel" } else { "seccomp" }));
    e.insert(
        Field::Spawn,
        if policy.process.spawn {
            full("spawning is allowed")
        } else {
            partial(format!(
                "no child can be made, but execve stays open for {name}'s own use of it: the program can become another"
            ))
        },
    );
    e.insert(
        Field::UnixSockets,
        match (policy.process.unix_sockets, policy.network.mode) {
            (false, _) => full("seccomp refuses socket(AF_UNIX)"),
            (true, NetworkMode::Host) => partial("granted, and the host's network shares its abstract sockets"),
            (true, _) => full("granted: those whose paths the file system shows can be reached"),
        },
    );
    e.insert(
        Field::Isolation,
        full("pid, ipc, uts, cgroup, mount and user namespaces; the filter refuses further ones"),
    );
    e.insert(Field::Hostname, full("uts namespace"));
    e.insert(
        Field::TreeKill,
        match purpose {
            Purpose::Run { own_pids: false, .. } => partial(format!("should Cofferdam itself be killed in the moment in which {name} starts, what it starts lives on; a cgroup would find it")),
            _ => full("a pid namespace ends with its first process"),
        },
    );
    match purpose {
        Purpose::Run { other_user, own_pids } => {
            crate::plan::rlimits::enforcement(policy, false, &mut e);
            if other_user {
                e.insert(Field::Processes, full("RLIMIT_NPROC of a user as which nothing else runs"));
            } else if own_pids || tool == Tool::Nsjail {
                e.insert(Field::Processes, full("RLIMIT_NPROC in a user namespace of its own"));
            }
        }
        Purpose::Export if tool == Tool::Nsjail => nsjail_alone(policy, &mut e),
        Purpose::Export => limitless(&mut e, "bubblewrap limits nothing by itself"),
    }
    e.insert(
        Field::Tmpfs,
        match tool {
            Tool::Nsjail => full("sized: /tmp has half, /dev/shm a quarter, /var/tmp and /run the rest"),
            _ => partial("sized, but bubblewrap limits no number of files"),
        },
    );
    e
}

fn mounts(tool: Tool, policy: &Policy, layout: &Layout, purpose: Purpose, flags: Option<Applied>) -> Applied {
    let writes = policy.filesystem.mounts.iter().any(|m| matches!(m, Mount::Bind { .. }) && m.is_writable());
    if writes && matches!(purpose, Purpose::Run { other_user: true, .. }) {
        return partial(
            "the sandbox's unprivileged user cannot write what belongs to others, and owners are not mapped",
        );
    }
    if let Some(flags) = flags {
        return flags;
    }
    if !layout.passing.is_empty() {
        return partial(some(&layout.passing));
    }
    if tool == Tool::Bubblewrap && !layout.closed.is_empty() {
        return partial(format!(
            "{}: bubblewrap has no noexec, so what is written there can be executed",
            some(&layout.closed)
        ));
    }
    let tmpfs = |m: &Mount| matches!(m, Mount::Tmpfs { exec: false, .. });
    if tool == Tool::Bubblewrap && policy.filesystem.mounts.iter().any(tmpfs) {
        return partial("bubblewrap has no noexec, so what is written to a tmpfs can be executed");
    }
    full("mounts, without devices and setuid programs")
}

fn nsjail_alone(policy: &Policy, e: &mut Enforcement) {
    let (memory, share) = (policy.is_required(Field::Memory), policy.is_required(Field::CpuShare));
    let group = "its own cgroup, which nsjail must be allowed to make";
    e.insert(Field::Memory, if memory { full(group) } else { partial("RLIMIT_AS counts each process by itself") });
    e.insert(
        Field::CpuShare,
        if share { full(group) } else { none("it takes a cgroup, which not every caller may make") },
    );
    e.insert(Field::Processes, full("RLIMIT_NPROC in a user namespace of its own"));
    e.insert(
        Field::CpuTime,
        if policy.process.spawn {
            partial("RLIMIT_CPU counts each process by itself")
        } else {
            full("RLIMIT_CPU, and there is one process")
        },
    );
    e.insert(
        Field::WallTime,
        if policy.limits.wall_ms.is_multiple_of(1000) {
            full("time_limit")
        } else {
            partial("time_limit counts whole seconds: rounded up")
        },
    );
    e.insert(Field::FileSize, full("RLIMIT_FSIZE, per file"));
    e.insert(Field::OpenFiles, full("RLIMIT_NOFILE, per process"));
    e.insert(Field::Output, none("nsjail passes output on and counts nothing"));
}

fn limitless(e: &mut Enforcement, reason: &str) {
    for field in Field::ALL.iter().filter(|f| f.name().starts_with("limits.") && **f != Field::Layer) {
        e.insert(*field, none(reason));
    }
}

fn seatbelt(policy: &Policy, purpose: Purpose) -> Enforcement {
    let mut e = Enforcement::new();
    e.insert(
        Field::Root,
        match policy.filesystem.root {
            Root::Interpreter => partial("the system's other programs can be read as well"),
            Root::Directory(_) | Root::Image(_) => none("Seatbelt shows every file at its own place: it has no mounts"),
            _ => full("deny by default, reads allowed by path"),
        },
    );
    let elsewhere = policy.filesystem.mounts.iter().any(|m| match m {
        Mount::Bind { source, target, access, .. } => {
            source != target || *access == cofferdam_policy::Access::CopyOnWrite
        }
        Mount::Tmpfs { .. } => true,
    });
    e.insert(
        Field::Mounts,
        if elsewhere {
            none("Seatbelt shows every file at its own place: it has no mounts, tmpfs or copies")
        } else {
            full("allowed by path")
        },
    );
    e.insert(Field::Layer, full("no copy-on-write mounts"));
    e.insert(Field::Deny, full("denied last, by path, whether it exists or not"));
    e.insert(Field::Protected, full("denied last, by path, whether it exists or not"));
    e.insert(Field::Metadata, full("file-write* covers metadata"));
    e.insert(
        Field::Network,
        match policy.network.mode {
            NetworkMode::None => full("deny by default"),
            NetworkMode::Loopback => partial("the loopback is the host's: every server on it can be reached"),
            NetworkMode::Allowlist => none("Seatbelt knows no hosts by name"),
            NetworkMode::Host => full("nothing to hold: the host's network was asked for"),
        },
    );
    e.extend(crate::plan::support::network(policy, false));
    e.insert(Field::NestedSandboxes, crate::plan::support::nested(policy));
    e.insert(Field::Seccomp, partial("macOS has no system call filter: operations are denied by default instead"));
    e.insert(
        Field::Spawn,
        match (policy.process.spawn, policy.command.argv.first().is_some_and(|p| p.starts_with('/'))) {
            (true, _) => full("spawning is allowed"),
            (false, true) => full("process-fork is denied, and no other program can be executed"),
            (false, false) => partial("process-fork is denied, but the program is not known by its path"),
        },
    );
    e.insert(
        Field::UnixSockets,
        full(if policy.process.unix_sockets { "granted below writable directories" } else { "deny by default" }),
    );
    e.insert(Field::Isolation, partial("signals reach only the same sandbox, but there is no pid namespace"));
    e.insert(Field::Hostname, none("the host's name shows"));
    match purpose {
        Purpose::Run { .. } => {
            crate::plan::rlimits::enforcement(policy, false, &mut e);
            e.insert(Field::TreeKill, partial("the process group is killed: what leaves it lives on"));
            e.insert(Field::Memory, none("macOS holds no memory limit of a tree"));
            e.insert(Field::CpuShare, none("macOS holds no CPU share"));
            e.insert(Field::CpuTime, partial("RLIMIT_CPU counts each process by itself"));
        }
        Purpose::Export => {
            limitless(&mut e, "sandbox-exec limits nothing by itself");
            e.insert(Field::TreeKill, none("sandbox-exec becomes the program and ends nothing"));
        }
    }
    e.insert(Field::Tmpfs, none("there is no scratch space of its own"));
    e
}
