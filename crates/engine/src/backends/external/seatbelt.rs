//! From a policy to a Seatbelt profile. The text itself is `confine`'s.
//!
//! Links are followed where the host can be asked, because Seatbelt compares canonical paths.

use cofferdam_confine::seatbelt::{self, Profile, Reading, SeatbeltGrant, SeatbeltNetwork, SeatbeltRequest};
use cofferdam_policy::{Access, Field, Mount, NetworkMode, Policy, Root};

use crate::failure::{FailedStep, Failure};
use crate::plan::facts::{Facts, FileKind, ResolvedPath, resolve};

fn refuse(step: impl Into<FailedStep>, message: &str) -> Failure {
    Failure::new(step, message).hint("mount the path at its own place (-v PATH:PATH), or use the jail")
}

/// The profile that stands for a policy.
///
/// # Errors
/// The policy asks for what needs mounts.
pub fn plan(policy: &Policy, facts: &dyn Facts) -> Result<Profile, Failure> {
    if let Root::Directory(_) | Root::Image(_) = policy.filesystem.root {
        return Err(refuse(Field::Root, "a root directory needs mounts, which Seatbelt has not"));
    }
    let mut granted = Vec::new();
    for (i, mount) in policy.filesystem.mounts.iter().enumerate() {
        let field = FailedStep::mount_entry(i);
        let Mount::Bind { source, target, access, exec, optional } = mount else {
            return Err(refuse(&field, "a tmpfs needs mounts, which Seatbelt has not"));
        };
        if source != target || *access == Access::CopyOnWrite {
            return Err(refuse(&field, "Seatbelt can give a path only at its own place, read-only or read-write"));
        }
        if *optional && is_missing(source, facts) {
            continue;
        }
        let write = *access == Access::ReadWrite;
        let file = matches!(resolve(facts, source).0, ResolvedPath::There(_, FileKind::File { .. }));
        granted.push(SeatbeltGrant { path: real(source, facts), file, write, exec: !write || *exec });
    }
    if let Some(cwd) = &policy.command.cwd
        && matches!(policy.filesystem.root, Root::Minimal | Root::Interpreter)
        && !granted.iter().any(|g| cofferdam_policy::paths::is_within(cwd, &g.path))
    {
        granted.push(SeatbeltGrant { path: real(cwd, facts), file: true, write: false, exec: false });
    }
    let program = policy.command.argv.first().filter(|p| p.starts_with('/')).map(|p| real(p, facts));
    Ok(seatbelt::profile(&SeatbeltRequest {
        tag: policy.id.clone().unwrap_or_else(|| "cofferdam".into()),
        reading: if policy.filesystem.root == Root::Host { Reading::Everything } else { Reading::System },
        granted,
        deny: policy.filesystem.deny.iter().map(|path| real(path, facts)).collect(),
        protected: policy
            .filesystem
            .protected
            .iter()
            .map(|path| if path.starts_with('/') { real(path, facts) } else { path.clone() })
            .collect(),
        network: match policy.network.mode {
            // An allowlist cannot be held: nothing is the part of it that can.
            NetworkMode::None | NetworkMode::Allowlist => SeatbeltNetwork::None,
            NetworkMode::Loopback => SeatbeltNetwork::Loopback,
            NetworkMode::Host => SeatbeltNetwork::Host,
        },
        unix_sockets: policy.process.unix_sockets,
        spawn: policy.process.spawn,
        program,
    }))
}

fn is_missing(source: &str, facts: &dyn Facts) -> bool {
    matches!(resolve(facts, source).0, ResolvedPath::Missing(..))
}

/// Sources of optional mounts that are not there.
pub fn left_out(policy: &Policy, facts: &dyn Facts) -> Vec<String> {
    let optional = policy.filesystem.mounts.iter().filter_map(|mount| match mount {
        Mount::Bind { source, optional: true, .. } => Some(source),
        _ => None,
    });
    optional.filter(|source| is_missing(source, facts)).cloned().collect()
}

/// A path without links, as far as the host can be asked: what does not exist keeps the name that it would get.
fn real(path: &str, facts: &dyn Facts) -> String {
    let mut at = path;
    let mut rest: Vec<&str> = Vec::new();
    loop {
        if let ResolvedPath::There(canonical, _) = resolve(facts, at).0 {
            return rest.iter().rev().fold(canonical, |dir, name| crate::plan::mount_table::join(&dir, name));
        }
        match at.rsplit_once('/') {
            Some((above, name)) if !above.is_empty() => {
                rest.push(name);
                at = above;
            }
            _ => return path.to_owned(),
        }
    }
}
