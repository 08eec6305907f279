//! The fields of processes: the system call filter, spawning, sockets, isolation, the end of the tree.

use cofferdam_confine::host;
use cofferdam_policy::{NetworkMode, Policy, SeccompLevel};

use super::{By, EnforcementPurpose};
use crate::backends::external::tool::Tool;
use crate::outcome::AppliedField;

/// The system call filter's level, in words.
fn level(policy: &Policy) -> &'static str {
    match policy.process.seccomp.level {
        SeccompLevel::Disabled => "the floor that every level has",
        SeccompLevel::Basic => "seccomp, level basic",
        SeccompLevel::Standard => "seccomp, level standard",
        SeccompLevel::Strict => "seccomp, level strict",
    }
}

pub(super) fn nested_sandboxes(policy: &Policy, by: &By<'_>) -> AppliedField {
    match (by, policy.process.nested_sandboxes) {
        (By::Jail { .. }, true) => AppliedField::full(
            "granted, a bounded number of them: the kernel's code for mounts, networks and user namespaces is in reach, \
             and no second layer stands behind the mounts",
        ),
        (By::Jail { .. }, false) => AppliedField::full("not granted: there are no further user namespaces"),
        (_, true) => AppliedField::none("only the jail has room for sandboxes inside"),
        (_, false) => AppliedField::full("not granted"),
    }
}

pub(super) fn seccomp(policy: &Policy, by: &By<'_>) -> AppliedField {
    match by {
        By::Jail { .. } if policy.process.nested_sandboxes => AppliedField::full(format!(
            "{}, and the calls that make a sandbox: namespaces, mount, pivot_root",
            level(policy)
        )),
        By::Jail { .. } => AppliedField::full(level(policy)),
        By::Tool { tool: Tool::Nsjail, .. } => AppliedField::full("seccomp, by Kafel"),
        By::Landlock { .. } | By::Tool { .. } => AppliedField::full("seccomp"),
        By::Seatbelt(_) => {
            AppliedField::partial("macOS has no system call filter: operations are denied by default instead")
        }
        By::Container { about, .. } => {
            AppliedField::full(format!("{}, by init, on top of {}", level(policy), about.detail))
        }
    }
}

pub(super) fn spawn(policy: &Policy, by: &By<'_>) -> AppliedField {
    if policy.process.spawn {
        return AppliedField::full("spawning is allowed");
    }
    match by {
        By::Landlock { .. } if !host::listener_available() => AppliedField::partial(
            "seccomp: threads only; inside another sandbox no supervisor counts execs, so it can become another program",
        ),
        By::Jail { .. } | By::Landlock { .. } | By::Container { .. } => {
            AppliedField::full("seccomp: one exec, threads only")
        }
        By::Tool { tool, .. } => AppliedField::partial(format!(
            "no child can be made, but execve stays open for {}'s own use of it: the program can become another",
            tool.name()
        )),
        By::Seatbelt(_) => match policy.command.argv.first().is_some_and(|program| program.starts_with('/')) {
            true => AppliedField::full("process-fork is denied, and no other program can be executed"),
            false => AppliedField::partial("process-fork is denied, but the program is not known by its path"),
        },
    }
}

pub(super) fn unix_sockets(policy: &Policy, by: &By<'_>) -> AppliedField {
    let shares = policy.network.mode == NetworkMode::Host;
    match (by, policy.process.unix_sockets) {
        (By::Seatbelt(_), false) => AppliedField::full("deny by default"),
        (_, false) => AppliedField::full("seccomp refuses socket(AF_UNIX)"),
        (By::Seatbelt(_), true) => AppliedField::full("granted below writable directories"),
        (By::Landlock { .. }, true) => AppliedField::none("granted sockets would reach the host's"),
        (By::Jail { abi: ..6, .. }, true) if shares => {
            AppliedField::partial("granted, and without Landlock ABI 6 the host's network shares its abstract sockets")
        }
        (By::Tool { .. } | By::Container { .. }, true) if shares => {
            AppliedField::partial("granted, and the host's network shares its abstract sockets")
        }
        (By::Jail { .. } | By::Tool { .. } | By::Container { .. }, true) => {
            AppliedField::full("granted: those whose paths the file system shows can be reached")
        }
    }
}

pub(super) fn isolation(by: &By<'_>) -> AppliedField {
    match by {
        By::Jail { .. } => AppliedField::full("pid, ipc, uts, cgroup, mount and user namespaces"),
        By::Tool { .. } => {
            AppliedField::full("pid, ipc, uts, cgroup, mount and user namespaces; the filter refuses further ones")
        }
        By::Landlock { abi: 6.., .. } => AppliedField::partial(
            "signals and abstract sockets are scoped by Landlock; processes of the host can be seen in /proc",
        ),
        By::Landlock { .. } => AppliedField::none("no pid namespace, and Landlock before ABI 6 does not scope signals"),
        By::Seatbelt(_) => AppliedField::partial("signals reach only the same sandbox, but there is no pid namespace"),
        By::Container { about, .. } => {
            let users = if about.rootless { ", and a user namespace of the caller's" } else { "" };
            let namespaces = format!("pid, ipc, uts, cgroup and mount namespaces of the container's{users}");
            match (about.listener, about.apart) {
                (true, _) => AppliedField::full(namespaces),
                // Its kernel keeps what is inside apart by users alone.
                (false, true) => AppliedField::full(format!("{namespaces}, in which init is a user of its own")),
                (false, false) => AppliedField::partial(format!(
                    "{namespaces}; in gVisor the program can look at init, which is the same user there, and stop it"
                )),
            }
        }
    }
}

pub(super) fn hostname(by: &By<'_>) -> AppliedField {
    match by {
        By::Landlock { .. } => AppliedField::none("no uts namespace: the host's name shows"),
        By::Seatbelt(_) => AppliedField::none("the host's name shows"),
        By::Jail { .. } | By::Tool { .. } | By::Container { .. } => AppliedField::full("uts namespace"),
    }
}

pub(super) fn tree_kill(policy: &Policy, by: &By<'_>) -> AppliedField {
    match by {
        By::Jail { .. } => AppliedField::full("the pid namespace ends with its init"),
        By::Landlock { .. } if policy.process.spawn => AppliedField::partial(
            "no pid namespace: what leaves between two looks could live on, unless there is a cgroup",
        ),
        By::Landlock { .. } => AppliedField::full("no child process can be made"),
        By::Tool { tool, purpose: EnforcementPurpose::Run { own_pids: false, .. }, .. } => {
            AppliedField::partial(format!(
                "should Cofferdam itself be killed in the moment in which {} starts, what it starts lives on; a cgroup would find it",
                tool.name()
            ))
        }
        By::Tool { .. } => AppliedField::full("a pid namespace ends with its first process"),
        By::Seatbelt(EnforcementPurpose::Run { .. }) => {
            AppliedField::partial("the process group is killed: what leaves it lives on")
        }
        By::Seatbelt(EnforcementPurpose::Export) => {
            AppliedField::none("sandbox-exec becomes the program and ends nothing")
        }
        By::Container { .. } => AppliedField::full("the pid namespace ends with its init, and init with its owner"),
    }
}
