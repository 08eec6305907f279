//! Per field, what a container holds of a policy: the one place where it is written down. Pure.

use cofferdam_policy::{Field, Mount, NetworkMode, Policy, Root};

use super::{About, Inodes};
use crate::backends::layout::Layout;
use crate::outcome::{Applied, Enforcement, Strength};
use crate::plan::egress::EgressPlan;

fn full(reason: impl Into<String>) -> Applied {
    Applied { strength: Strength::Full, reason: reason.into() }
}

fn partial(reason: impl Into<String>) -> Applied {
    Applied { strength: Strength::Partial, reason: reason.into() }
}

/// Of a list of names, the first and how many more.
fn some(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one} and {} more", rest.len()),
    }
}

/// What holds in a container of this maker. `other_user`: the program is another user than the caller.
pub(crate) fn answers(
    policy: &Policy,
    layout: &Layout,
    about: &About,
    way: Option<&EgressPlan>,
    other_user: bool,
) -> Enforcement {
    let mut e = Enforcement::new();
    e.insert(
        Field::Root,
        full(match &policy.filesystem.root {
            Root::Image(_) => "the image, read-only",
            Root::Directory(_) => "a root of the container's own from that directory, read-only",
            _ => "a root of the container's own with the system's directories bound, read-only",
        }),
    );
    e.insert(
        Field::Mounts,
        crate::plan::optional_mounts::told(mounts(policy, layout, about, other_user), &layout.left_out),
    );
    e.insert(Field::Layer, full("no copy-on-write mounts"));
    let made = |names: &[String]| partial(format!("{}: mounts alone do not keep a name from being made", some(names)));
    e.insert(
        Field::Deny,
        if layout.unheld_deny.is_empty() {
            full("masks; names in the container's own memory are its own")
        } else {
            made(&layout.unheld_deny)
        },
    );
    e.insert(
        Field::Protected,
        if !layout.unheld_protected.is_empty() {
            made(&layout.unheld_protected)
        } else if !layout.linked.is_empty() {
            partial(format!("{}: it has other hard links, through which it could be written", some(&layout.linked)))
        } else {
            full("read-only binds")
        },
    );
    e.insert(Field::Metadata, full("read-only mounts refuse metadata changes outside writable mounts"));
    e.insert(
        Field::Network,
        match policy.network.mode {
            NetworkMode::None => {
                full("a network namespace with nothing but loopback, and the filter refuses its sockets")
            }
            NetworkMode::Loopback => full("a network namespace of its own with loopback"),
            NetworkMode::Host => full("nothing to hold: the host's network was asked for"),
            NetworkMode::Allowlist => way.map_or_else(
                || Applied {
                    strength: Strength::None,
                    reason: "the container's kernel has no routing rules, by which connections would come to the egress gateway".into(),
                },
                EgressPlan::applied,
            ),
        },
    );
    e.extend(crate::plan::support::network(policy, way.is_some()));
    e.insert(Field::NestedSandboxes, crate::plan::support::nested(policy));
    e.insert(
        Field::Seccomp,
        full(format!("{}, by init, on top of {}", crate::plan::support::level(policy), about.detail)),
    );
    e.insert(
        Field::Spawn,
        full(if policy.process.spawn { "spawning is allowed" } else { "seccomp: one exec, threads only" }),
    );
    e.insert(
        Field::UnixSockets,
        match (policy.process.unix_sockets, policy.network.mode) {
            (false, _) => full("seccomp refuses socket(AF_UNIX)"),
            (true, NetworkMode::Host) => partial("granted, and the host's network shares its abstract sockets"),
            (true, _) => full("granted: those whose paths the file system shows can be reached"),
        },
    );
    let users = if about.rootless { ", and a user namespace of the caller's" } else { "" };
    let namespaces = format!("pid, ipc, uts, cgroup and mount namespaces of the container's{users}");
    e.insert(
        Field::Isolation,
        match (about.listener, about.apart) {
            (true, _) => full(namespaces),
            // Its kernel keeps what is inside apart by users alone.
            (false, true) => full(format!("{namespaces}, in which init is a user of its own")),
            (false, false) => partial(format!(
                "{namespaces}; in gVisor the program can look at init, which is the same user there, and stop it"
            )),
        },
    );
    e.insert(Field::Hostname, full("uts namespace"));
    e.insert(Field::TreeKill, full("the pid namespace ends with its init, and init with its owner"));
    crate::plan::rlimits::enforcement(policy, false, &mut e);
    if about.limits {
        for (field, reason) in [
            (Field::Memory, "the container's cgroup, swap included"),
            (Field::CpuShare, "the container's cgroup"),
            (Field::Processes, "the container's cgroup"),
            (Field::CpuTime, "the container's cgroup counts, the supervisor kills"),
        ] {
            e.insert(field, full(reason));
        }
    } else if other_user {
        e.insert(Field::Processes, full("RLIMIT_NPROC of a user as which nothing else runs"));
    }
    tmpfs(about.inodes, &mut e);
    e
}

/// What is held of file systems in memory, as far as the limit of memory is: to be asked again when that changes.
pub(super) fn tmpfs(inodes: Inodes, e: &mut Enforcement) {
    let limited = e.get(&Field::Memory).is_some_and(|memory| memory.strength == Strength::Full);
    let applied = match inodes {
        Inodes::Counted => full("sized: /tmp has all of it, /dev/shm 1 MiB besides"),
        Inodes::Charged if limited => full("sized, and files without contents count towards the memory limit"),
        Inodes::Charged => partial(
            "sized, and how many files without contents it holds nothing bounds, since the memory limit is not held in full",
        ),
        Inodes::Unbounded => partial(
            "sized, and how many files without contents it holds nothing bounds: this kernel does not charge them to a memory limit",
        ),
    };
    e.insert(Field::Tmpfs, applied);
}

/// What makers answer on a host that has everything for them, by name: what the documentation's table is made of.
///
/// # Errors
/// The policy cannot be held by containers at all.
pub fn documented(
    policy: &Policy,
    facts: &dyn crate::plan::facts::Facts,
) -> Result<Vec<(&'static str, Enforcement)>, crate::failure::Failure> {
    use super::Arrival::{Door, Inherited};
    let layout = crate::backends::layout::in_container(policy, facts)?;
    let way = EgressPlan::of(policy)?;
    let about = |rootless, arrival, limits, inodes, [listener, flags]: [bool; 2], detail: &str| About {
        version: String::new(),
        rootless,
        arrival,
        apart: !listener,
        compares: !listener,
        listener,
        limits,
        inodes,
        flags,
        detail: detail.into(),
    };
    let profile = "the engine's default profile";
    let makers = [
        ("docker", about(false, Door, true, Inodes::Counted, [true, false], profile)),
        ("podman", about(false, Door, true, Inodes::Charged, [true, true], profile)),
        ("podman, rootless", about(true, Door, false, Inodes::Charged, [true, true], profile)),
        (
            "oci: crun, runc, youki",
            about(false, Inherited, false, Inodes::Counted, [true, true], "a bundle without a profile"),
        ),
        (
            "oci:runsc",
            about(false, Door, false, Inodes::Charged, [false, true], "gVisor's own kernel, which takes every call"),
        ),
    ];
    let answer = |(name, about): (_, About)| {
        let About { rootless, listener, limits, inodes, .. } = about;
        let mut e = answers(policy, &layout, &about, way.as_ref().filter(|_| listener), !rootless);
        if !limits && !rootless {
            for field in [Field::Memory, Field::CpuShare, Field::Processes] {
                e.insert(field, full("the run's own cgroup"));
            }
            e.insert(Field::CpuTime, full("the run's own cgroup counts, the supervisor kills"));
            tmpfs(inodes, &mut e);
        }
        if !listener {
            e.insert(Field::Processes, crowded());
        }
        (name, e)
    };
    Ok(makers.into_iter().map(answer).collect())
}

/// Threads that a kernel in user space has for itself on this one; about a hundred before the program does anything.
pub(super) const KERNEL_THREADS: u64 = 256;

/// What is held of `limits.processes` where the container's kernel is counted with the program.
pub(super) fn crowded() -> Applied {
    let reason =
        format!("the cgroup counts the threads of the container's kernel as well, and has room for {KERNEL_THREADS}");
    Applied { strength: Strength::Partial, reason }
}

fn mounts(policy: &Policy, layout: &Layout, about: &About, other_user: bool) -> Applied {
    let writes = policy.filesystem.mounts.iter().any(|m| matches!(m, Mount::Bind { .. }) && m.is_writable());
    if writes && other_user {
        return partial(
            "the container's unprivileged user cannot write what belongs to others, and owners are not mapped",
        );
    }
    if let Some(nested) = layout.nested_mounts.first() {
        return partial(format!("{nested}: what is mounted below it is not shown"));
    }
    if !layout.passing.is_empty() {
        return partial(some(&layout.passing));
    }
    if !about.flags && !layout.closed.is_empty() {
        return partial(format!(
            "{}: the engine has no noexec for what is the host's, so that what is written there can be executed",
            some(&layout.closed)
        ));
    }
    if !about.listener && !about.compares && policy.filesystem.mounts.iter().any(|m| matches!(m, Mount::Bind { .. })) {
        return partial(
            "gVisor numbers files in its own way, so that init cannot compare what is mounted with what was meant",
        );
    }
    if !about.listener && !layout.closed.is_empty() {
        return partial(format!(
            "{}: gVisor's noexec refuses to execute what is written there, and not the dynamic linker to map it",
            some(&layout.closed)
        ));
    }
    full(if about.flags {
        "mounts, without devices and setuid programs"
    } else {
        "mounts, on which setuid programs gain nothing and no device opens but the engine's harmless ones"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_contents_are_bounded_by_a_number_or_by_memory_that_is_limited() {
        let strength = |inodes, memory: Applied| {
            let mut e = Enforcement::from([(Field::Memory, memory)]);
            tmpfs(inodes, &mut e);
            e[&Field::Tmpfs].strength
        };
        assert_eq!(strength(Inodes::Charged, full("cgroup")), Strength::Full);
        assert_eq!(strength(Inodes::Charged, partial("sampled")), Strength::Partial);
        assert_eq!(strength(Inodes::Counted, partial("sampled")), Strength::Full);
        assert_eq!(strength(Inodes::Unbounded, full("cgroup")), Strength::Partial);
    }
}
