//! Per field of a policy, how strongly each backend enforces it, and by what: the one place where this is written down.
//!
//! The tables of the documentation, `support`, the refusals of `prepare` and those of `export` all come from here. Each field
//! has one function, in which the backends stand side by side. Pure but for the limits of this process.
//!
//! What cgroups add is filled in afterwards, by the engine and by the run.

#[cfg_attr(not(feature = "containers"), expect(dead_code))]
pub(crate) mod container_runtime;
mod filesystem;
mod limits;
mod network;
mod process;

use cofferdam_policy::{Field, Policy};

use self::container_runtime::RuntimeFacts;
use crate::backends::external::tool::Tool;
use crate::backends::layout::MountLayout;
use crate::failure::Failure;
use crate::outcome::{AppliedEnforcement, AppliedField, Strength};
use crate::plan::egress::EgressPlan;

pub(crate) use limits::{memory_inside, socket_buffers};
pub(crate) use network::OWN_NETWORKS;
#[cfg(feature = "containers")]
pub(crate) use {container_runtime::shared_with_kernel, limits::container_tmpfs};

/// What an external sandbox program's enforcement is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnforcementPurpose {
    /// Cofferdam starts the program and supervises it.
    Run {
        /// The program runs as another user than the caller, as which nothing else runs.
        other_user: bool,
        /// The tool is the first process of a pid namespace, and without another user of a user namespace.
        own_pids: bool,
    },
    /// The configuration is written out, and another program starts the sandbox.
    Export,
}

/// What enforces a policy.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'a> {
    /// The jail.
    Jail {
        /// Version of the kernel's Landlock; 0 without it.
        abi: u32,
        /// Protected files with further names.
        linked: &'a [String],
        /// Paths in copy-on-write mounts that belong to other users.
        foreign: &'a [String],
        /// How the network is captured, where it is.
        egress: Option<&'a EgressPlan>,
        /// Sources of optional mounts that are not there.
        left_out: &'a [String],
    },
    /// Landlock and seccomp, without namespaces.
    Landlock {
        /// Version of the kernel's Landlock; 0 without it.
        abi: u32,
        /// The program runs as another user than the caller.
        other_user: bool,
        /// Sources of optional mounts that are not there.
        left_out: &'a [String],
    },
    /// bubblewrap or nsjail.
    Tool {
        /// Which.
        tool: Tool,
        /// What its mounts show.
        layout: &'a MountLayout,
        /// Run or export.
        purpose: EnforcementPurpose,
    },
    /// macOS Seatbelt.
    Seatbelt(EnforcementPurpose),
    /// A container.
    #[cfg_attr(not(feature = "containers"), expect(dead_code))]
    Container {
        /// What its mounts show.
        layout: &'a MountLayout,
        /// What the container runtime provides.
        about: &'a RuntimeFacts,
        /// How the network is captured, where it is.
        egress: Option<&'a EgressPlan>,
        /// The program runs as another user than the caller.
        other_user: bool,
    },
}

impl By<'_> {
    /// Whether nsjail leaves mounts below a bind with the flags that they have: it sets them on the top mount alone.
    fn keeps_flags_below(&self) -> Option<AppliedField> {
        match self {
            By::Tool { tool: Tool::Nsjail, layout, .. } if !layout.nested.is_empty() => {
                Some(AppliedField::partial(format!(
                    "what is mounted below {} keeps its own flags: nsjail sets them on the top mount alone",
                    some(&layout.nested)
                )))
            }
            _ => None,
        }
    }
}

/// How strongly each field is enforced, without a cgroup.
pub(crate) fn enforcement(policy: &Policy, by: &By<'_>) -> AppliedEnforcement {
    let mut e = AppliedEnforcement::from([
        (Field::Root, filesystem::root(policy, by)),
        (Field::Mounts, filesystem::mounts(policy, by)),
        (Field::Layer, filesystem::layer(by)),
        (Field::Deny, filesystem::deny(policy, by)),
        (Field::Protected, filesystem::protected(policy, by)),
        (Field::Metadata, filesystem::metadata(by)),
        (Field::Network, network::mode(policy, by)),
        (Field::NestedSandboxes, process::nested_sandboxes(policy, by)),
        (Field::Seccomp, process::seccomp(policy, by)),
        (Field::Spawn, process::spawn(policy, by)),
        (Field::UnixSockets, process::unix_sockets(policy, by)),
        (Field::Isolation, process::isolation(by)),
        (Field::Hostname, process::hostname(by)),
        (Field::TreeKill, process::tree_kill(policy, by)),
    ]);
    e.extend(network::gateway(policy, by));
    limits::limits(policy, by, &mut e);
    e
}

/// What an external sandbox program enforces of a policy. `layout` is `None` for Seatbelt, which has no mounts.
pub fn answers(
    tool: Tool,
    policy: &Policy,
    layout: Option<&MountLayout>,
    purpose: EnforcementPurpose,
) -> AppliedEnforcement {
    let by = match (tool, layout) {
        (Tool::Seatbelt, _) | (_, None) => By::Seatbelt(purpose),
        (_, Some(layout)) => By::Tool { tool, layout, purpose },
    };
    enforcement(policy, &by)
}

/// Fields that an exported configuration only warns of, though they are enforced in part and required.
///
/// nsjail starts its program by execve after its filter is in place, so that no configuration of it can refuse that call.
/// Children are refused, and whatever the program becomes has the same restrictions and limits. A run has the jail to be
/// referred to, and refuses.
pub(crate) fn only_warned_of(tool: Tool, purpose: EnforcementPurpose) -> &'static [Field] {
    match (tool, purpose) {
        (Tool::Nsjail, EnforcementPurpose::Export) => &[Field::Spawn],
        _ => &[],
    }
}

/// What a refusal names as too weak.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NamedEnforcer<'a> {
    /// The jail or the landlock backend, on this host.
    Own(&'a str),
    /// A backend that is an external program.
    External(&'a str),
    /// The program that an exported configuration is for.
    Exported(&'a str),
}

impl NamedEnforcer<'_> {
    fn message(self, field: Field, how: &str) -> String {
        match self {
            NamedEnforcer::Own(name) => format!("the {name} backend can hold {field} {how} here"),
            NamedEnforcer::External(name) => format!("the {name} backend can hold {field} {how}"),
            NamedEnforcer::Exported(name) => format!("{name} can hold {field} {how}"),
        }
    }

    /// The option that makes these fields best effort, and what else can be done.
    fn hint(self, fields: &str) -> String {
        match self {
            NamedEnforcer::Own(_) => {
                format!("--best-effort={fields} runs with what can be had; `cofferdam doctor` shows what is missing")
            }
            NamedEnforcer::External(_) | NamedEnforcer::Exported(_) => format!(
                "--best-effort={fields} (enforcement.best_effort) takes what can be had; --backend jail holds more"
            ),
        }
    }
}

/// Whether every required field is enforced in full, those in `except` aside.
///
/// # Errors
/// The first field that is not, the others by name, and what to do.
pub(crate) fn sufficient(
    target: NamedEnforcer<'_>,
    policy: &Policy,
    e: &AppliedEnforcement,
    except: &[Field],
) -> Result<(), Failure> {
    let is_short = |(field, applied): &(&Field, &AppliedField)| {
        applied.strength != Strength::Full && policy.is_required(**field) && !except.contains(field)
    };
    // What a backend says nothing of, it does not enforce.
    let unsaid = AppliedField::none("the backend does not say how it would be enforced");
    let all = Field::ALL.iter().map(|field| (field, e.get(field).unwrap_or(&unsaid)));
    let short: Vec<(&Field, &AppliedField)> = all.filter(is_short).collect();
    let Some((first, applied)) = short.first() else { return Ok(()) };
    let names: Vec<&str> = short.iter().map(|(field, _)| field.name()).collect();
    let others = match names.len() {
        1 => String::new(),
        n => format!(" (and {} more: {})", n - 1, names[1..].join(", ")),
    };
    let how = if applied.strength == Strength::None { "not at all" } else { "only in part" };
    let message = format!("{}: {}{others}", target.message(**first, how), applied.reason);
    Err(Failure::new(**first, message).hint(target.hint(&names.join(","))))
}

/// Of a list of names, the first and how many more.
fn some(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one} and {} more", rest.len()),
    }
}
