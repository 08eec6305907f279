//! Hides a directory of the caller's in which one run has a part of its own, and other runs theirs: the states of agents, kept
//! caches.

use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Mount, Policy};

use crate::refusal::CliRefusal;

/// Hides `all` behind an empty directory in memory, but for the volumes that are the run's own part of it, by their source and
/// target. A denied path could not be one that is mounted elsewhere, so it is no longer denied. With `is_there` the directory
/// exists when the run begins.
///
/// # Errors
/// Another volume would show it: `refused` makes the refusal.
pub(super) fn hide_others(
    policy: &mut Policy,
    all: &Path,
    is_there: bool,
    is_own: impl Fn(&str, &str) -> bool,
    refused: impl Fn(&Path) -> CliRefusal,
) -> Result<(), CliRefusal> {
    let text = all.to_str().ok_or_else(|| refused(all))?;
    let real = |path: &str| std::fs::canonicalize(path).ok();
    policy
        .filesystem
        .deny
        .retain(|denied| !is_within(denied, text) && real(denied).is_none_or(|denied| !denied.starts_with(all)));
    for mount in &policy.filesystem.mounts {
        let Mount::Bind { source, target, .. } = mount else { continue };
        let canonical = real(source).unwrap_or_else(|| source.into());
        if !is_own(source, target) && (canonical.starts_with(all) || all.starts_with(&canonical)) {
            return Err(refused(&canonical));
        }
    }
    if is_there {
        policy.filesystem.mounts.push(Mount::Tmpfs { target: text.to_owned(), size_mb: 1, exec: false });
    }
    Ok(())
}
