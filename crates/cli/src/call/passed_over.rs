//! A program of the caller's PATH that the sandbox's user cannot reach, so that a later one of that name would run in its place.
//!
//! Run by root, a sandbox has a user of its own, who may not enter a home with mode 0700. What root's PATH has there is passed over.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{BackendName, Policy};

use crate::output::text::quoted;

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

/// The option that shows a program which the sandbox's user cannot reach: with the installation that it lies in.
pub(crate) fn option_for(program: &str, homes: &[String]) -> Option<String> {
    let directory = Path::new(program).parent()?;
    let installation = directory.parent()?;
    let is_shared = homes.iter().any(|home| installation == Path::new(home)) || installation.ends_with(".local");
    let shown = if is_shared { directory } else { installation };
    let of_a_home = homes.iter().any(|home| shown != Path::new(home) && shown.starts_with(home));
    let shown = shown.to_str().filter(|_| of_a_home)?;
    Some(format!("-v {}", quoted(&format!("{shown}:{shown}"))))
}

/// Whether everybody may enter the directories on the way to a program, or a volume shows it.
fn may_be_entered(policy: &Policy, program: &str) -> bool {
    let is_mounted = policy.filesystem.mounts.iter().any(|mount| is_within(program, mount.target()));
    let open =
        |directory: &Path| std::fs::metadata(directory).is_ok_and(|about| about.permissions().mode() & 0o001 != 0);
    is_mounted || Path::new(program).ancestors().skip(1).all(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_shows_an_installation_and_no_home() {
        let homes = ["/home/u".to_owned()];
        for (program, option) in [
            ("/home/u/.pyenv/shims/python3", Some("-v /home/u/.pyenv:/home/u/.pyenv")),
            (
                "/home/u/.nvm/versions/node/v22.1.0/bin/node",
                Some("-v /home/u/.nvm/versions/node/v22.1.0:/home/u/.nvm/versions/node/v22.1.0"),
            ),
            ("/home/u/.local/bin/tool", Some("-v /home/u/.local/bin:/home/u/.local/bin")),
            ("/home/u/bin/tool", Some("-v /home/u/bin:/home/u/bin")),
            ("/home/u/tool", None),
            ("/opt/closed/bin/tool", None),
        ] {
            assert_eq!(option_for(program, &homes).as_deref(), option, "{program}");
        }
    }
}
