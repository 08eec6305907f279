//! The limits: what rlimits, the supervisor and the backends themselves enforce, and what is left of a cgroup's promise.

use cofferdam_confine::host::{resource, rlimit};
use cofferdam_policy::{Field, NetworkMode, Policy, SeccompLevel};

use super::container_runtime::{Inodes, RuntimeFacts};
use super::{By, EnforcementPurpose};
use crate::backends::external::tool::Tool;
use crate::outcome::{AppliedEnforcement, AppliedField, Strength};
use crate::plan::rlimits::is_all;

const OWN_USERS: &str = "RLIMIT_NPROC in a user namespace of its own";
const OWN_USER: &str = "RLIMIT_NPROC of a user as which nothing else runs";

/// All limits, as far as they are enforced without a cgroup of the run's.
pub(super) fn limits(policy: &Policy, by: &By<'_>, e: &mut AppliedEnforcement) {
    match *by {
        By::Jail { .. } => supervised(policy, true, e),
        By::Landlock { .. } => {
            supervised(policy, false, e);
            e.insert(Field::Tmpfs, AppliedField::none("no scratch space of its own"));
        }
        By::Tool { tool, purpose, .. } => tool_limits(policy, tool, purpose, e),
        By::Seatbelt(purpose) => seatbelt_limits(policy, purpose, e),
        By::Container { about, other_user, .. } => container_limits(policy, about, other_user, e),
    }
}

/// What rlimits and the supervisor enforce. `own_users`: the sandbox has a user namespace, in which processes are counted for
/// it alone.
fn supervised(policy: &Policy, own_users: bool, e: &mut AppliedEnforcement) {
    e.insert(Field::WallTime, AppliedField::full("the supervisor's clock"));
    e.insert(Field::Output, AppliedField::full("the supervisor counts, drops and drains"));
    let bounded = |wanted: u64, resource: u32, reason: &str| {
        if wanted <= rlimit(resource).1 {
            AppliedField::full(reason)
        } else {
            AppliedField::partial("this process's own hard limit is lower, and holds")
        }
    };
    let l = &policy.limits;
    e.insert(Field::FileSize, bounded(l.file_size_mb << 20, resource::FSIZE, "RLIMIT_FSIZE, per file"));
    e.insert(Field::OpenFiles, bounded(l.open_files, resource::NOFILE, "RLIMIT_NOFILE, per process"));
    let processes = if own_users {
        AppliedField::full(OWN_USERS)
    } else {
        AppliedField::partial("RLIMIT_NPROC counts every process of the user, not only the sandbox's")
    };
    e.insert(Field::Processes, processes);
    let no_cgroup = "no cgroup here; run as root, or under systemd with a delegated scope";
    let memory = format!("the supervisor samples what the tree maps and kills it; {no_cgroup}");
    e.insert(Field::Memory, AppliedField::partial(memory));
    let cpu_time = format!("RLIMIT_CPU per process, and the supervisor samples; {no_cgroup}");
    e.insert(Field::CpuTime, AppliedField::partial(cpu_time));
    let share = if is_all(l.cpu_millis) {
        AppliedField::full("the limit is no less than the whole machine")
    } else {
        AppliedField::none(no_cgroup)
    };
    e.insert(Field::CpuShare, share);
    let tmpfs = if own_users {
        AppliedField::full("one sized tmpfs for all scratch space")
    } else {
        AppliedField::none("scratch space is the host's /tmp")
    };
    e.insert(Field::Tmpfs, tmpfs);
}

/// Nothing is limited, for this reason.
fn unlimited(e: &mut AppliedEnforcement, reason: &str) {
    for field in Field::ALL.iter().filter(|field| field.name().starts_with("limits.") && **field != Field::Layer) {
        e.insert(*field, AppliedField::none(reason));
    }
}

fn tool_limits(policy: &Policy, tool: Tool, purpose: EnforcementPurpose, e: &mut AppliedEnforcement) {
    match purpose {
        EnforcementPurpose::Run { other_user, own_pids } => {
            supervised(policy, false, e);
            if other_user {
                e.insert(Field::Processes, AppliedField::full(OWN_USER));
            } else if own_pids || tool == Tool::Nsjail {
                e.insert(Field::Processes, AppliedField::full(OWN_USERS));
            }
        }
        EnforcementPurpose::Export if tool == Tool::Nsjail => nsjail_alone(policy, e),
        EnforcementPurpose::Export => unlimited(e, "bubblewrap limits nothing by itself"),
    }
    let tmpfs = match tool {
        Tool::Nsjail => AppliedField::full("sized: /tmp has half, /dev/shm a quarter, /var/tmp and /run the rest"),
        Tool::Bubblewrap | Tool::Seatbelt => AppliedField::partial("sized, but bubblewrap limits no number of files"),
    };
    e.insert(Field::Tmpfs, tmpfs);
}

/// What nsjail enforces by its configuration, without a supervisor.
fn nsjail_alone(policy: &Policy, e: &mut AppliedEnforcement) {
    let group = "its own cgroup, which nsjail must be allowed to make";
    let of_group =
        |required: bool, otherwise: AppliedField| if required { AppliedField::full(group) } else { otherwise };
    let memory = AppliedField::partial("RLIMIT_AS counts each process by itself");
    e.insert(Field::Memory, of_group(policy.is_required(Field::Memory), memory));
    let share = AppliedField::none("it takes a cgroup, which not every caller may make");
    e.insert(Field::CpuShare, of_group(policy.is_required(Field::CpuShare), share));
    e.insert(Field::Processes, AppliedField::full(OWN_USERS));
    let cpu_time = if policy.process.spawn {
        AppliedField::partial("RLIMIT_CPU counts each process by itself")
    } else {
        AppliedField::full("RLIMIT_CPU, and there is one process")
    };
    e.insert(Field::CpuTime, cpu_time);
    let wall_time = if policy.limits.wall_ms.is_multiple_of(1000) {
        AppliedField::full("time_limit")
    } else {
        AppliedField::partial("time_limit counts whole seconds: rounded up")
    };
    e.insert(Field::WallTime, wall_time);
    e.insert(Field::FileSize, AppliedField::full("RLIMIT_FSIZE, per file"));
    e.insert(Field::OpenFiles, AppliedField::full("RLIMIT_NOFILE, per process"));
    e.insert(Field::Output, AppliedField::none("nsjail passes output on and counts nothing"));
}

fn seatbelt_limits(policy: &Policy, purpose: EnforcementPurpose, e: &mut AppliedEnforcement) {
    match purpose {
        EnforcementPurpose::Run { .. } => {
            supervised(policy, false, e);
            e.insert(Field::Memory, AppliedField::none("macOS holds no memory limit of a tree"));
            e.insert(Field::CpuShare, AppliedField::none("macOS holds no CPU share"));
            e.insert(Field::CpuTime, AppliedField::partial("RLIMIT_CPU counts each process by itself"));
        }
        EnforcementPurpose::Export => unlimited(e, "sandbox-exec limits nothing by itself"),
    }
    e.insert(Field::Tmpfs, AppliedField::none("there is no scratch space of its own"));
}

fn container_limits(policy: &Policy, about: &RuntimeFacts, other_user: bool, e: &mut AppliedEnforcement) {
    supervised(policy, false, e);
    if about.limits {
        for (field, reason) in [
            (Field::Memory, "the container's cgroup, swap included"),
            (Field::CpuShare, "the container's cgroup"),
            (Field::Processes, "the container's cgroup"),
            (Field::CpuTime, "the container's cgroup counts, the supervisor kills"),
        ] {
            e.insert(field, AppliedField::full(reason));
        }
    } else if other_user {
        e.insert(Field::Processes, AppliedField::full(OWN_USER));
    }
    container_tmpfs(about.inodes, e);
}

/// What is enforced of a container's file systems in memory, as far as the limit of memory is: to be called again when that
/// changes.
pub(crate) fn container_tmpfs(inodes: Inodes, e: &mut AppliedEnforcement) {
    let limited = e.get(&Field::Memory).is_some_and(|memory| memory.strength == Strength::Full);
    let applied = match inodes {
        Inodes::Counted => AppliedField::full("sized: /tmp has all of it, /dev/shm 1 MiB besides"),
        Inodes::ChargedInDev => AppliedField::partial(
            "sized, but for /dev, where the program can make files of any size: they count towards the memory limit alone",
        ),
        Inodes::Charged if limited => {
            AppliedField::full("sized, and files without contents count towards the memory limit")
        }
        Inodes::Charged => AppliedField::partial(
            "sized, and how many files without contents it holds nothing bounds, since the memory limit is not held in full",
        ),
        Inodes::Unbounded => AppliedField::partial(
            "sized, and how many files without contents it holds nothing bounds: this kernel does not charge them to a memory limit",
        ),
    };
    e.insert(Field::Tmpfs, applied);
}

/// Takes back what a cgroup promises of memory where sockets can hold some that is neither charged to it nor counted by the
/// supervisor. `counted` are the modes of a network of the sandbox's own in which everything is.
pub(crate) fn socket_buffers(policy: &Policy, counted: &[NetworkMode], e: &mut AppliedEnforcement) {
    let mode = policy.network.mode;
    let uncounted = if policy.process.seccomp.level == SeccompLevel::Strict {
        return; // there are none
    } else if mode == NetworkMode::Host {
        "the host's network is shared, and what netlink sockets and connections not yet accepted buffer there is counted for \
         nobody"
    } else if policy.process.nested_sandboxes {
        "what netlink sockets and connections not yet accepted buffer in networks that sandboxes inside make is not counted"
    } else if !counted.contains(&mode) {
        "what connections not yet accepted buffer is not counted"
    } else {
        return;
    };
    if let Some(memory) = e.get_mut(&Field::Memory).filter(|memory| memory.strength == Strength::Full) {
        *memory = AppliedField::partial(format!("{}; {uncounted}", memory.reason));
    }
}

/// What bounds file systems in memory that sandboxes inside mount, once it is known whether a cgroup counts them: the
/// supervisor sees only what is mapped.
pub(crate) fn memory_inside(policy: &Policy, e: &mut AppliedEnforcement) {
    if !policy.process.nested_sandboxes {
        return;
    }
    let counted = e.get(&Field::Memory).is_some_and(|memory| memory.strength == Strength::Full);
    let reason = if counted {
        "file systems in memory that sandboxes inside make are bounded by limits.memory_mb alone"
    } else {
        "nothing bounds file systems in memory that sandboxes inside make, for no cgroup counts them"
    };
    e.insert(Field::Tmpfs, AppliedField::partial(reason));
    if let Some(memory) = e.get_mut(&Field::Memory).filter(|_| !counted) {
        memory.reason.push_str("; file systems in memory that sandboxes inside make are not counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_contents_are_bounded_by_a_number_or_by_memory_that_is_limited() {
        let strength = |inodes, memory: AppliedField| {
            let mut e = AppliedEnforcement::from([(Field::Memory, memory)]);
            container_tmpfs(inodes, &mut e);
            e[&Field::Tmpfs].strength
        };
        assert_eq!(strength(Inodes::Charged, AppliedField::full("cgroup")), Strength::Full);
        assert_eq!(strength(Inodes::Charged, AppliedField::partial("sampled")), Strength::Partial);
        assert_eq!(strength(Inodes::ChargedInDev, AppliedField::full("cgroup")), Strength::Partial);
        assert_eq!(strength(Inodes::Counted, AppliedField::partial("sampled")), Strength::Full);
        assert_eq!(strength(Inodes::Unbounded, AppliedField::full("cgroup")), Strength::Partial);
    }
}
