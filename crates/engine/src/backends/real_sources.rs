//! Where the sources of a policy's mounts really lie: a link must not show what the policy denies, nor let write what it
//! protects. The policy's own validation compares texts alone; this follows links, before anything is planned.
//!
//! Reads paths of the host. Mounts nothing: backends open what they mount and compare it again.

use std::fs;

use cofferdam_policy::Policy;
use cofferdam_policy::paths::is_within;

use crate::failure::{Failure, Step};

/// Refuses a source that lies below a denied path or in the host's /proc, and a writable one that reaches a protected name
/// only by a link: who names such a place by its own path asks for it, and a link may be the work of an earlier run.
///
/// # Errors
/// There is such a source; the first one is named. What cannot be looked at is left to the backend.
pub fn acceptable(policy: &Policy) -> Result<(), Failure> {
    let real = |path: &str| fs::canonicalize(path).ok()?.into_os_string().into_string().ok();
    let sources: Vec<(usize, &str, String, bool)> = policy
        .filesystem
        .mounts
        .iter()
        .enumerate()
        .filter_map(|(index, mount)| {
            let source = mount.source()?;
            Some((index, source, real(source)?, mount.is_writable()))
        })
        .collect();
    for (index, source, leads_to, _) in &sources {
        if is_within(leads_to, "/proc") {
            let message = format!("{source} leads to {leads_to}, and the host's /proc cannot be given");
            return Err(Failure::new(Step::mount_entry(*index), message).hint("the sandbox has a /proc of its own"));
        }
    }
    // A denied path may itself be reached by a link, so each is followed; there are hundreds, and most do not exist.
    if let Some((_, path)) = sources.iter().find_map(|(index, source, leads_to, _)| {
        let denied = policy.filesystem.deny.iter().find(|path| {
            let below = |path: &str| leads_to != path && is_within(leads_to, path);
            below(path) || real(path).is_some_and(|path| below(&path))
        })?;
        Some((index, (index, source, leads_to, denied)))
    }) {
        let (index, source, leads_to, denied) = path;
        let led = if leads_to == source { String::new() } else { format!(" leads to {leads_to}, which") };
        let message = format!("{source}{led} lies in {denied}, and that is denied");
        return Err(Failure::new(Step::mount_entry(*index), message)
            .hint("mount a directory outside of it, or copy what the program needs"));
    }
    for (index, source, leads_to, writable) in &sources {
        if !writable || leads_to == source {
            continue;
        }
        let protected = policy.filesystem.protected.iter().find(|name| holds(leads_to, name));
        if let Some(name) = protected {
            let message =
                format!("{source} is a link, or lies behind one, that leads to {leads_to}: {name} is protected");
            return Err(Failure::new(Step::mount_entry(*index), message)
                .hint(format!("to let the program write there, name it by its own path: -v {leads_to}:…:rw")));
        }
    }
    Ok(())
}

/// Whether a path is, or lies in, a place of this protected name: an absolute path, or one at the top of any directory.
fn holds(path: &str, name: &str) -> bool {
    if name.starts_with('/') {
        return is_within(path, name);
    }
    path.match_indices(name).any(|(at, _)| {
        let end = at + name.len();
        path[..at].ends_with('/') && (end == path.len() || path[end..].starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn policy(source: &Path, access: &str, deny: &[&Path], protected: &[&str]) -> Policy {
        let deny: Vec<&str> = deny.iter().map(|path| path.to_str().unwrap()).collect();
        let text = serde_json::json!({
            "version": 1,
            "command": { "argv": ["/bin/true"] },
            "filesystem": {
                "mounts": [{ "type": "bind", "source": source, "target": "/in", "access": access }],
                "deny": deny,
                "protected": protected,
            },
        });
        Policy::from_json(text.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_link_below_a_denied_path_is_refused_and_one_beside_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(dir.join("secret/below")).unwrap();
        fs::create_dir_all(dir.join("secrets")).unwrap();
        symlink("secret/below", dir.join("link")).unwrap();
        symlink("secrets", dir.join("beside")).unwrap();
        let with = |name: &str| acceptable(&policy(&dir.join(name), "read_only", &[&dir.join("secret")], &[]));
        let failure = with("link").unwrap_err();
        assert!(failure.message.contains("is denied"), "{failure:?}");
        assert_eq!(with("beside"), Ok(()));
        assert_eq!(with("secret"), Ok(()), "the mask covers the whole of it");
        // The denied path itself may be named by a link.
        symlink("secret", dir.join("alias")).unwrap();
        let by_alias = policy(&dir.join("secret/below"), "read_only", &[&dir.join("alias")], &[]);
        assert!(acceptable(&by_alias).is_err());
    }

    #[test]
    fn a_link_into_proc_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/proc", dir.path().join("link")).unwrap();
        symlink("/usr", dir.path().join("usr")).unwrap();
        let with = |name: &str| acceptable(&policy(&dir.path().join(name), "read_only", &[], &[]));
        assert!(with("link").unwrap_err().message.contains("/proc cannot be given"));
        assert_eq!(with("usr"), Ok(()));
    }

    #[test]
    fn a_writable_volume_reaches_a_protected_name_by_its_own_path_alone() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(dir.join(".git/hooks")).unwrap();
        fs::create_dir_all(dir.join("work.git/hooks")).unwrap();
        symlink(".git/hooks", dir.join("out")).unwrap();
        symlink("work.git/hooks", dir.join("other")).unwrap();
        let with = |name: &str, access: &str| acceptable(&policy(&dir.join(name), access, &[], &[".git/hooks"]));
        assert!(with("out", "read_write").unwrap_err().message.contains(".git/hooks is protected"));
        assert_eq!(with("out", "read_only"), Ok(()));
        assert_eq!(with(".git/hooks", "read_write"), Ok(()), "it was asked for");
        assert_eq!(with("other", "read_write"), Ok(()));
    }
}
