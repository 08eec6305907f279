//! What of the host lies at a path inside of a sandbox, by its policy, and which option lets programs there be executed.

use std::path::{Path, PathBuf};

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, Mount, Policy, Root};

use crate::output::text::quoted;

/// A path of the host that is visible inside.
pub(super) struct HostPath {
    /// Where it is on the host.
    pub path: PathBuf,
    /// The root of the mount or view on the host: directories above it do not matter.
    pub from: PathBuf,
    /// Whether a mount of the policy shows it, and not the root view.
    pub mounted: bool,
}

/// The path of the host at a path inside; `None` where the sandbox has files of its own.
pub(super) fn host_path(policy: &Policy, inside: &str) -> Option<HostPath> {
    let below = |from: &str, at: &str, mounted| {
        let rest = inside.strip_prefix(at)?.trim_start_matches('/');
        let path = if rest.is_empty() { PathBuf::from(from) } else { Path::new(from).join(rest) };
        Some(HostPath { path, from: from.into(), mounted })
    };
    let mount = policy.filesystem.mounts.iter().rev().find(|mount| is_within(inside, mount.target()));
    match (mount, &policy.filesystem.root) {
        (Some(Mount::Bind { source, target, .. }), _) => below(source, target, true),
        (Some(_), _) => None,
        // The sandbox's own, whatever the host has there.
        (None, _) if ["/tmp", "/dev", "/proc", "/run"].iter().any(|own| is_within(inside, own)) => None,
        (None, Root::Host) => below("/", "/", false),
        (None, Root::Directory(root)) => below(root, "/", false),
        (None, Root::Minimal | Root::Interpreter | Root::Image(_)) => None,
    }
}

/// The option that allows programs to be executed on the mount at this path, where it forbids that.
pub(super) fn mount_without_exec(policy: &Policy, inside: &Path) -> Option<String> {
    let inside = inside.to_str()?;
    let Some(mount) = policy.filesystem.mounts.iter().rev().find(|mount| is_within(inside, mount.target())) else {
        let scratch = ["/tmp", "/var/tmp"].into_iter().find(|scratch| is_within(inside, scratch))?;
        return Some(format!("--tmpfs {scratch}:exec"));
    };
    match mount {
        Mount::Bind { source, target, access: Access::ReadWrite, exec: false, .. } => {
            Some(format!("-v {}", quoted(&format!("{source}:{target}:rw,exec"))))
        }
        Mount::Bind { source, target, access: Access::CopyOnWrite, exec: false, .. } => {
            Some(format!("-v {}", quoted(&format!("{source}:{target}:cow,exec"))))
        }
        Mount::Tmpfs { target, exec: false, .. } => Some(format!("--tmpfs {}", quoted(&format!("{target}:exec")))),
        _ => None,
    }
}
