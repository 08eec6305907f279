//! A program of the caller's PATH that the sandbox's user cannot reach, so that a later one of that name would run in its place.
//!
//! Run by root, a sandbox has a user of its own, who may not enter a home with mode 0700. What root's PATH has there is passed over.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{BackendName, Policy};

/// The program that the caller's PATH leads to first, and the one that the sandbox runs in its place.
pub(crate) fn passed_over(policy: &Policy, is_root: bool) -> Option<(String, String)> {
    let jailed = matches!(policy.backend, BackendName::Auto | BackendName::Jail);
    let name = policy.command.argv.first().filter(|name| is_root && jailed && !name.contains('/'))?;
    let path = policy.command.variables.get("PATH")?;
    let is_program = |path: &String| {
        std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    let mut programs = path.split(':').map(|directory| format!("{directory}/{name}")).filter(is_program);
    let first = programs.next().filter(|first| !may_be_entered(policy, first))?;
    let used = programs.find(|program| may_be_entered(policy, program))?;
    Some((first, used))
}

/// Whether everybody may enter the directories on the way to a program, or a volume shows it.
fn may_be_entered(policy: &Policy, program: &str) -> bool {
    let is_mounted = policy.filesystem.mounts.iter().any(|mount| is_within(program, mount.target()));
    let open =
        |directory: &Path| std::fs::metadata(directory).is_ok_and(|about| about.permissions().mode() & 0o001 != 0);
    is_mounted || Path::new(program).ancestors().skip(1).all(open)
}
