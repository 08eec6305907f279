//! A directory of the caller's in which one run has a part of its own, and other runs theirs: the states of agents, kept caches. The
//! engine hides it from every sandbox.

use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Mount, Policy};

use crate::refusal::CliRefusal;

/// Takes back the denial of what is in `all`, where it would deny the run's own part, and refuses volumes that would show more of it.
/// The run's own part are volumes, by their source and target.
///
/// # Errors
/// Another volume would show it: `refused` makes the refusal.
pub(super) fn show_own_part(
    policy: &mut Policy,
    all: &Path,
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
    Ok(())
}
