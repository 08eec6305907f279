//! The fields of the file system: root, mounts, layers, denied and protected paths, metadata.

use cofferdam_policy::{Access, Mount, Policy, Root};

use super::container_runtime::RuntimeFacts;
use super::{By, EnforcementPurpose, some};
use crate::backends::external::tool::Tool;
use crate::backends::layout::MountLayout;
use crate::outcome::AppliedField;
use crate::plan::facts::may_pass_on;
use crate::plan::optional_mounts;

/// What stands for the file system in the jail.
fn jail(policy: &Policy, abi: u32) -> String {
    if policy.process.nested_sandboxes {
        "mounts alone: behind Landlock no sandbox could be made inside; and /proc shows what it shows everybody".into()
    } else if abi > 0 {
        format!("mounts, and Landlock ABI {abi} behind them")
    } else {
        "mounts".into()
    }
}

/// What Landlock alone enforces of files.
fn landlock(abi: u32) -> AppliedField {
    match abi {
        0 => AppliedField::none("no Landlock"),
        1 | 2 => AppliedField::partial("Landlock before ABI 3 does not hold truncation"),
        _ => AppliedField::full(format!("Landlock ABI {abi}")),
    }
}

fn writes(policy: &Policy) -> bool {
    policy.filesystem.mounts.iter().any(Mount::is_writable)
}

fn writes_a_bind(policy: &Policy) -> bool {
    policy.filesystem.mounts.iter().any(|m| matches!(m, Mount::Bind { .. }) && m.is_writable())
}

pub(super) fn root(policy: &Policy, by: &By<'_>) -> AppliedField {
    let root = &policy.filesystem.root;
    match *by {
        // A read-only mount holds files, not what a FIFO or a device passes on.
        By::Jail { .. } if policy.process.nested_sandboxes && *root == Root::Host => AppliedField::partial(
            "with nested sandboxes there is no Landlock behind the mounts, and the host's FIFOs can be written to \
             through read-only ones; the view `minimal` has none of them",
        ),
        By::Jail { abi: 0, .. } if *root == Root::Host => AppliedField::partial(
            "without Landlock in this kernel the host's FIFOs can be written to through read-only mounts",
        ),
        By::Jail { abi, .. } => AppliedField::full(jail(policy, abi)),
        By::Landlock { .. } if *root == Root::Host => {
            AppliedField::partial("the host's own tree: sockets, FIFOs and run-time directories are not hidden")
        }
        By::Landlock { abi, .. } => landlock(abi),
        By::Tool { .. } if *root == Root::Host => AppliedField::partial(
            "the host's FIFOs can be written to through read-only mounts: there is no Landlock behind them",
        ),
        By::Tool { .. } => by.keeps_flags_below().unwrap_or_else(|| AppliedField::full("mounts")),
        By::Seatbelt(_) => match root {
            Root::Interpreter => AppliedField::partial("the system's other programs can be read as well"),
            Root::Directory(_) | Root::Image(_) => {
                AppliedField::none("Seatbelt shows every file at its own place: it has no mounts")
            }
            Root::Host | Root::Minimal => AppliedField::full("deny by default, reads allowed by path"),
        },
        By::Container { .. } => AppliedField::full(match root {
            Root::Image(_) => "the image, read-only",
            Root::Directory(_) => "a root of the container's own from that directory, read-only",
            Root::Host | Root::Minimal | Root::Interpreter => {
                "a root of the container's own with the system's directories bound, read-only"
            }
        }),
    }
}

pub(super) fn mounts(policy: &Policy, by: &By<'_>) -> AppliedField {
    let (applied, left_out) = match *by {
        By::Jail { abi, left_out, .. } => (in_jail(policy, abi), left_out),
        By::Landlock { abi, other_user, left_out } => (by_landlock(policy, abi, other_user), left_out),
        By::Tool { tool, layout, purpose } => {
            (by_tool(policy, tool, layout, purpose, by.keeps_flags_below()), &*layout.left_out)
        }
        By::Seatbelt(_) => (by_seatbelt(policy), &[][..]),
        By::Container { layout, about, other_user, .. } => {
            (in_container(policy, layout, about, other_user), &*layout.left_out)
        }
    };
    optional_mounts::with_left_out(applied, left_out)
}

fn in_jail(policy: &Policy, abi: u32) -> AppliedField {
    let read_only = policy.filesystem.mounts.iter().filter_map(|mount| match mount {
        Mount::Bind { source, access: Access::ReadOnly, .. } => Some(source),
        _ => None,
    });
    let nested = policy.process.nested_sandboxes;
    match read_only.filter(|_| nested).find_map(|source| Some((source, may_pass_on(source)?))) {
        Some((source, why)) => AppliedField::partial(format!(
            "no Landlock stands behind the mounts where sandboxes can be made inside; {source}: {why}"
        )),
        None => AppliedField::full(jail(policy, abi)),
    }
}

fn by_landlock(policy: &Policy, abi: u32, other_user: bool) -> AppliedField {
    if policy.filesystem.mounts.is_empty() {
        landlock(abi)
    } else if writes(policy) && other_user {
        AppliedField::partial(
            "the sandbox's unprivileged user cannot write what belongs to others, and owners are not mapped here",
        )
    } else {
        AppliedField::partial(
            "without mounts there is no nodev and no noexec: device nodes in a bind open, and ld.so runs what can be read",
        )
    }
}

fn by_tool(
    policy: &Policy,
    tool: Tool,
    layout: &MountLayout,
    purpose: EnforcementPurpose,
    keeps_flags: Option<AppliedField>,
) -> AppliedField {
    if writes_a_bind(policy) && matches!(purpose, EnforcementPurpose::Run { other_user: true, .. }) {
        return AppliedField::partial(
            "the sandbox's unprivileged user cannot write what belongs to others, and owners are not mapped",
        );
    }
    if let Some(keeps) = keeps_flags {
        return keeps;
    }
    if !layout.passing.is_empty() {
        return AppliedField::partial(some(&layout.passing));
    }
    if tool == Tool::Bubblewrap && !layout.closed.is_empty() {
        return AppliedField::partial(format!(
            "{}: bubblewrap has no noexec, so what is written there can be executed",
            some(&layout.closed)
        ));
    }
    let tmpfs = |m: &Mount| matches!(m, Mount::Tmpfs { exec: false, .. });
    if tool == Tool::Bubblewrap && policy.filesystem.mounts.iter().any(tmpfs) {
        return AppliedField::partial("bubblewrap has no noexec, so what is written to a tmpfs can be executed");
    }
    AppliedField::full("mounts, without devices and setuid programs")
}

fn by_seatbelt(policy: &Policy) -> AppliedField {
    let elsewhere = policy.filesystem.mounts.iter().any(|m| match m {
        Mount::Bind { source, target, access, .. } => source != target || *access == Access::CopyOnWrite,
        Mount::Tmpfs { .. } => true,
    });
    if elsewhere {
        AppliedField::none("Seatbelt shows every file at its own place: it has no mounts, tmpfs or copies")
    } else {
        AppliedField::full("allowed by path")
    }
}

fn in_container(policy: &Policy, layout: &MountLayout, about: &RuntimeFacts, other_user: bool) -> AppliedField {
    if writes_a_bind(policy) && other_user {
        return AppliedField::partial(
            "the container's unprivileged user cannot write what belongs to others, and owners are not mapped",
        );
    }
    if let Some(nested) = layout.nested_mounts.first() {
        return AppliedField::partial(format!("{nested}: what is mounted below it is not shown"));
    }
    if !layout.passing.is_empty() {
        return AppliedField::partial(some(&layout.passing));
    }
    if !about.flags && !layout.closed.is_empty() {
        return AppliedField::partial(format!(
            "{}: the engine has no noexec for what is the host's, so that what is written there can be executed",
            some(&layout.closed)
        ));
    }
    if !about.listener && !about.compares && policy.filesystem.mounts.iter().any(|m| matches!(m, Mount::Bind { .. })) {
        return AppliedField::partial(
            "gVisor numbers files in its own way, so that init cannot compare what is mounted with what was meant",
        );
    }
    if !about.listener && !layout.closed.is_empty() {
        return AppliedField::partial(format!(
            "{}: gVisor's noexec refuses to execute what is written there, and not the dynamic linker to map it",
            some(&layout.closed)
        ));
    }
    AppliedField::full(if about.flags {
        "mounts, without devices and setuid programs"
    } else {
        "mounts, on which setuid programs gain nothing and no device opens but the engine's harmless ones"
    })
}

pub(super) fn layer(by: &By<'_>) -> AppliedField {
    match by {
        By::Jail { foreign: [path, ..], .. } => AppliedField::partial(format!(
            "{path} belongs to another user: inside a copy-on-write mount it can be read but not changed"
        )),
        By::Jail { .. } => AppliedField::full("a sized tmpfs under each copy-on-write mount"),
        _ => AppliedField::full("no copy-on-write mounts"),
    }
}

/// What the jail's guard of names adds to masks and binds.
fn guarded(policy: &Policy) -> &'static str {
    if policy.process.nested_sandboxes {
        "; names that do not exist are not guarded in the sandbox's own memory, where nothing of the host's is"
    } else {
        "; names that do not exist are guarded"
    }
}

/// Names that mounts cannot keep from being created.
fn unguarded(names: &[String]) -> AppliedField {
    AppliedField::partial(format!("{}: mounts alone do not keep a name from being made", some(names)))
}

pub(super) fn deny(policy: &Policy, by: &By<'_>) -> AppliedField {
    match by {
        By::Jail { .. } => AppliedField::full(format!("masks{}", guarded(policy))),
        By::Landlock { abi, .. } => {
            let covered = policy.filesystem.root != Root::Host || policy.filesystem.deny.is_empty();
            if covered && !writes(policy) {
                landlock(*abi)
            } else {
                AppliedField::none(
                    "a layer of Landlock grants what any rule above a path grants: there is no carving out",
                )
            }
        }
        By::Tool { layout, .. } | By::Container { layout, .. } if !layout.unheld_deny.is_empty() => {
            unguarded(&layout.unheld_deny)
        }
        By::Tool { .. } => AppliedField::full("masks"),
        By::Container { .. } => AppliedField::full("masks; names in the container's own memory are its own"),
        By::Seatbelt(_) => AppliedField::full("denied last, by path, whether it exists or not"),
    }
}

pub(super) fn protected(policy: &Policy, by: &By<'_>) -> AppliedField {
    match by {
        By::Jail { linked: linked @ [path, ..], .. } => AppliedField::partial(format!(
            "{path} has other hard links, through which it could be written: {}",
            linked.len()
        )),
        By::Jail { .. } => AppliedField::full(format!("read-only binds{}", guarded(policy))),
        By::Landlock { .. } if writes(policy) && !policy.filesystem.protected.is_empty() => {
            AppliedField::none("there is no carving out of a writable tree")
        }
        By::Landlock { .. } => AppliedField::full("nothing is writable"),
        By::Tool { layout, .. } | By::Container { layout, .. } => {
            if !layout.unheld_protected.is_empty() {
                unguarded(&layout.unheld_protected)
            } else if !layout.linked.is_empty() {
                AppliedField::partial(format!(
                    "{}: it has other hard links, through which it could be written",
                    some(&layout.linked)
                ))
            } else {
                AppliedField::full("read-only binds")
            }
        }
        By::Seatbelt(_) => AppliedField::full("denied last, by path, whether it exists or not"),
    }
}

pub(super) fn metadata(by: &By<'_>) -> AppliedField {
    match by {
        By::Landlock { .. } => AppliedField::full("seccomp refuses metadata changes everywhere"),
        By::Seatbelt(_) => AppliedField::full("file-write* covers metadata"),
        By::Jail { .. } | By::Tool { .. } | By::Container { .. } => by
            .keeps_flags_below()
            .unwrap_or_else(|| AppliedField::full("read-only mounts refuse metadata changes outside writable mounts")),
    }
}
