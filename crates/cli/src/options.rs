//! What a policy option is, and the policy under construction that options are applied to. The rows are `table`'s.
//!
//! An option says which leaves of the policy it sets, which promises it thereby makes required, and how it is applied.
//! Options are applied in the order of the command line, so that mounts nest as written and the last word counts.

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Field, Mount, NetworkMode, Policy};

use crate::caller::Caller;
use crate::values;

pub use crate::table::POLICY_OPTIONS;

/// How often an option is given and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// No value.
    Nothing,
    /// One value; the last one counts.
    One(&'static str),
    /// One of these values.
    Choice(&'static str, &'static [&'static str]),
    /// One value each time; all count.
    Many(&'static str),
    /// An optional value after `=`; the given text when there is none.
    Optional(&'static str, &'static str),
}

/// Under which heading help shows an option.
pub type Heading = &'static str;

/// Heading of the options about the program.
pub const PROGRAM: Heading = "Program";
/// Heading of the options about files.
pub const FILES: Heading = "Files";
/// Heading of the options about what it may do.
pub const RIGHTS: Heading = "Network and processes";
/// Heading of the limits.
pub const LIMITS: Heading = "Limits";
/// Heading of the options about how it is held.
pub const HOLD: Heading = "Enforcement";

/// One policy option.
pub struct PolicyOption {
    /// Long name without dashes; also its id.
    pub long: &'static str,
    /// Short name.
    pub short: Option<char>,
    /// Value.
    pub takes: Takes,
    /// One line.
    pub help: &'static str,
    /// What the long form adds.
    pub more: &'static str,
    /// Heading.
    pub heading: Heading,
    /// Left out of the one-screen help.
    pub rare: bool,
    /// Dotted paths of the policy's leaves that it sets.
    pub leaves: &'static [&'static str],
    /// Promises that naming it makes required.
    pub requires: &'static [Field],
    /// Applied after all others, wherever it stands.
    pub late: bool,
    /// Puts the value into the policy; the error says what would be accepted.
    pub apply: fn(&mut Draft<'_>, &str) -> Result<(), String>,
}

/// A policy under construction.
pub struct Draft<'a> {
    /// What it is so far.
    pub policy: Policy,
    /// Whose call it is.
    pub caller: &'a Caller,
    /// How many of the mounts came with the base: an option with the same target replaces those.
    pub base_mounts: usize,
    /// Whether the command line named a network mode; `--allow` alone means `allowlist`.
    pub network_named: bool,
    /// Whether connections go out directly, whatever proxy the caller's variables name.
    pub direct: bool,
}

impl Draft<'_> {
    /// An option that says where the network leads means mode `allowlist`, unless the command line names another.
    pub(crate) fn network_by_list(&mut self) {
        if !self.network_named {
            self.policy.network.mode = NetworkMode::Allowlist;
        }
    }

    /// Refuses a value of `--deny` or `--protect` that would silently hold nothing: no path, a pattern, or several paths
    /// with commas between them, which is told by what exists.
    pub(crate) fn is_one_path(&self, option: &str, text: &str) -> Result<(), String> {
        values::literal_path(option, text)?;
        let exists = |path: &str| std::fs::symlink_metadata(self.caller.absolute(path)).is_ok();
        let parts: Vec<&str> = text.split(',').filter(|part| !part.is_empty()).collect();
        if parts.len() > 1 && !exists(text) && parts.iter().all(|part| exists(part)) {
            let each: Vec<String> = parts.iter().map(|part| format!("--{option} {part}")).collect();
            return Err(format!("`{text}` is one path, which does not exist\nhint: {}", each.join(" ")));
        }
        Ok(())
    }

    /// Adds a mount of the command line. It replaces the base's mount with the same target. A base's mount inside it
    /// is replaced as well where it shows the same files, and stays on top of it where it does not.
    pub(crate) fn mount(&mut self, mount: Mount) {
        let mounts = &mut self.policy.filesystem.mounts;
        let same_tree = matches!(&mount, Mount::Bind { source, target, .. } if source == target);
        let mut on_top = Vec::new();
        for at in (0..self.base_mounts).rev() {
            if is_within(mounts[at].target(), mount.target()) {
                let replaced = mounts.remove(at);
                self.base_mounts -= 1;
                if !same_tree && replaced.target() != mount.target() {
                    on_top.insert(0, replaced);
                }
            }
        }
        mounts.push(mount);
        mounts.append(&mut on_top);
    }
}

pub(crate) const BLANK: PolicyOption = PolicyOption {
    long: "",
    short: None,
    takes: Takes::Nothing,
    help: "",
    more: "",
    heading: PROGRAM,
    rare: false,
    leaves: &[],
    requires: &[],
    late: false,
    apply: |_, _| Ok(()),
};

/// The option that sets what a JSON path of a policy error points at, such as `$.limits.memory_mb`.
pub fn option_of_path(path: &str) -> Option<&'static PolicyOption> {
    let path = path.strip_prefix("$.")?;
    POLICY_OPTIONS.iter().find(|o| {
        o.leaves.iter().any(|l| path.strip_prefix(l).is_some_and(|r| r.is_empty() || r.starts_with(['.', '['])))
    })
}
