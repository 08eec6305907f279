//! The policy under construction, to which options are applied in the order of the command line.
//!
//! So mounts nest as they are written, and the last value counts. Validates single values only; the whole policy is
//! validated when the draft is complete.

use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Mount, NetworkMode, Policy};

use super::values;
use crate::caller::Caller;

/// A policy under construction.
pub struct Draft<'a> {
    /// The policy so far.
    pub policy: Policy,
    /// The caller, for paths and variables.
    pub caller: &'a Caller,
    /// How many of the mounts are the base policy's: an option with the same target replaces those.
    pub base_mounts: usize,
    /// Whether the command line names a network mode. `--allow` alone means `allowlist`.
    pub network_named: bool,
    /// Whether the gateway ignores the proxy that the caller's variables name.
    pub direct: bool,
    /// Whether the command line names the directory in which the program starts.
    pub starts_elsewhere: bool,
}

impl Draft<'_> {
    /// Sets the network mode to `allowlist`, unless the command line names another mode.
    pub(crate) fn default_to_allowlist(&mut self) {
        if !self.network_named {
            self.policy.network.mode = NetworkMode::Allowlist;
        }
    }

    /// Refuses a value of `--deny` or `--protect` that would silently match nothing: no path, a pattern, or several paths
    /// with commas between them. The last is recognised by the files that exist.
    pub(crate) fn require_one_path(&self, option: &str, text: &str) -> Result<(), String> {
        values::literal_path(option, text)?;
        let exists = |path: &str| std::fs::symlink_metadata(self.caller.absolute(path)).is_ok();
        let parts: Vec<&str> = text.split(',').filter(|part| !part.is_empty()).collect();
        if parts.len() > 1 && !exists(text) && parts.iter().all(|part| exists(part)) {
            let each: Vec<String> = parts.iter().map(|part| format!("--{option} {part}")).collect();
            return Err(format!("`{text}` is one path, which does not exist\nhint: {}", each.join(" ")));
        }
        Ok(())
    }

    /// Adds a mount of the command line. It replaces the base policy's mount with the same target. A mount of the base
    /// policy inside that target is replaced as well where both show the same files, and stays on top otherwise: but for the
    /// caller's directory, which `run` shows by itself, where the volume has nothing there and the program starts elsewhere.
    pub(crate) fn mount(&mut self, mount: Mount) {
        let mounts = &mut self.policy.filesystem.mounts;
        let same_tree = matches!(&mount, Mount::Bind { source, target, .. } if source == target);
        let (cwd, starts_elsewhere) = (&self.caller.cwd, self.starts_elsewhere);
        let covered = |inside: &Mount| match (inside, &mount) {
            (Mount::Bind { source: own, target: at, .. }, Mount::Bind { source, target, .. }) => {
                let rest = Path::new(at).strip_prefix(target);
                starts_elsewhere
                    && (own, at) == (cwd, cwd)
                    && rest.is_ok_and(|rest| Path::new(source).join(rest).symlink_metadata().is_err())
            }
            _ => false,
        };
        let mut on_top = Vec::new();
        for at in (0..self.base_mounts).rev() {
            if is_within(mounts[at].target(), mount.target()) {
                let replaced = mounts.remove(at);
                self.base_mounts -= 1;
                if !same_tree && replaced.target() != mount.target() && !covered(&replaced) {
                    on_top.insert(0, replaced);
                }
            }
        }
        mounts.push(mount);
        mounts.append(&mut on_top);
    }
}
