//! Where the sources of a policy's mounts really lie: a link must not show what the policy denies, nor let write what it
//! protects. The policy's own validation compares texts alone; this follows links, whenever a run is planned.
//!
//! Reads paths of the host. Mounts nothing: backends open what they mount, and compare it with the file that was judged here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{FileIdentity, Policy};
use rustix::fs::{Mode, OFlags};

use crate::failure::{FailedStep, Failure};
use crate::plan::lookup::Lookup;
use crate::plan::mount_table::{below, join};
use crate::plan::tree::Disk;
use crate::repository::protected_names;

/// `PROC_SUPER_MAGIC` of linux/magic.h.
const PROC: i64 = 0x9fa0;

/// The directories in which version control keeps repositories, by their usual names.
const REPOSITORY_DIRECTORIES: [&str; 5] = [".git", ".hg", ".svn", ".jj", ".bzr"];

/// A mount source as it was found.
struct FoundSource<'a> {
    index: usize,
    source: &'a str,
    /// The path without links.
    leads_to: String,
    identity: FileIdentity,
    /// It is on a proc file system, wherever that is mounted.
    on_proc: bool,
    writable: bool,
}

/// The policy with the file that each of its sources is now, so that no backend mounts another one: a program that may write
/// the directory above a source could put a link into its place after it was judged here. What the caller has pinned stays.
///
/// # Errors
/// See [`acceptable`].
pub(crate) fn pinned<'p>(policy: &'p Policy, lookup: &mut Lookup) -> Result<Cow<'p, Policy>, Failure> {
    let found = find(policy);
    judge(policy, &found, lookup)?;
    let mut pins = policy.filesystem.identities.clone();
    for FoundSource { source, identity, .. } in found {
        pins.entry(source.to_owned()).or_insert(identity);
    }
    if pins.len() == policy.filesystem.identities.len() {
        return Ok(Cow::Borrowed(policy));
    }
    let mut policy = policy.clone();
    policy.filesystem.identities = pins;
    Ok(Cow::Owned(policy))
}

/// Refuses a source that lies below a denied path or in a proc file system, and a writable one that reaches a protected name
/// only by a link: who names such a place by its own path asks for it, and a link may be the work of an earlier run.
///
/// # Errors
/// There is such a source; the first one is named. What cannot be looked at is left to the backend.
pub(crate) fn acceptable(policy: &Policy) -> Result<(), Failure> {
    judge(policy, &find(policy), &mut Lookup::default())
}

/// Each source once, however many mounts show it: what is judged of one is pinned for all. A source that cannot be looked at is
/// left out and so has no pin, and `source_identity` refuses what stands there later.
fn find(policy: &Policy) -> Vec<FoundSource<'_>> {
    let mut mounts: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    for (index, mount) in policy.filesystem.mounts.iter().enumerate() {
        let Some(source) = mount.source() else { continue };
        let (_, writable) = mounts.entry(source).or_insert((index, false));
        *writable |= mount.is_writable();
    }
    let found = mounts.into_iter().filter_map(|(source, (index, writable))| {
        // An automount point is mounted by a look at it, and not by O_PATH.
        let _metadata = fs::metadata(source).ok()?;
        let (file, leads_to) = follow(source)?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let on_proc = rustix::fs::fstatfs(&file).is_ok_and(|of| of.f_type == PROC);
        let identity = FileIdentity { device: stat.st_dev, inode: stat.st_ino };
        Some(FoundSource { index, source, leads_to, identity, on_proc, writable })
    });
    let mut found: Vec<FoundSource<'_>> = found.collect();
    found.sort_by_key(|of| of.index);
    found
}

/// Opens what a path leads to, with its path without links: both are of one file, whatever is renamed meanwhile. `None` where
/// nothing is there, this user cannot reach it, or its path is no text.
fn follow(path: &str) -> Option<(OwnedFd, String)> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let leads_to = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    Some((file, leads_to.into_os_string().into_string().ok()?))
}

fn judge(policy: &Policy, sources: &[FoundSource<'_>], lookup: &mut Lookup) -> Result<(), Failure> {
    if let Some(of) = sources.iter().find(|of| of.on_proc || is_within(&of.leads_to, "/proc")) {
        let message = format!("{} leads to {}, and the host's /proc cannot be given", of.source, of.leads_to);
        return Err(Failure::new(FailedStep::mount_entry(of.index), message).hint("the sandbox has a /proc of its own"));
    }
    // A denied path may itself be reached by a link, so each is followed; there are hundreds, and most do not exist.
    // No source leads to one that is not there, or that this user cannot reach.
    let denied: Vec<(&String, Option<String>)> = match sources {
        [] => Vec::new(),
        _ => policy.filesystem.deny.iter().map(|path| (path, lookup.canonical(path))).collect(),
    };
    if let Some((of, denied)) = sources.iter().find_map(|of| {
        let below = |path: &str| of.leads_to != path && is_within(&of.leads_to, path);
        let (denied, _) = denied.iter().find(|(path, real)| below(path) || real.as_deref().is_some_and(below))?;
        Some((of, denied))
    }) {
        let FoundSource { index, source, leads_to, .. } = of;
        let led = if leads_to == source { String::new() } else { format!(" leads to {leads_to}, which") };
        let message = format!("{source}{led} lies in {denied}, and that is denied");
        return Err(Failure::new(FailedStep::mount_entry(*index), message)
            .hint("mount a directory outside of it, or copy what the program needs"));
    }
    for FoundSource { index, source, leads_to, .. } in
        sources.iter().filter(|of| of.writable && of.leads_to != of.source)
    {
        let listed = policy.filesystem.protected.iter().find(|name| holds(leads_to, name)).cloned();
        if let Some(name) = listed.or_else(|| named_by_a_repository(policy, leads_to)) {
            let message =
                format!("{source} is a link, or lies behind one, that leads to {leads_to}: {name} is protected");
            return Err(Failure::new(FailedStep::mount_entry(*index), message)
                .hint(format!("to let the program write there, name it by its own path: -v {leads_to}:…:rw")));
        }
    }
    Ok(())
}

/// The protected name that a path is, or lies in, where a directory above it is a work tree whose repository makes it one,
/// such as the directory that `core.hooksPath` names. Where anything of a repository's own directory is protected, all of it
/// is: what is a name of it can lie deeper than the path.
fn named_by_a_repository(policy: &Policy, path: &str) -> Option<String> {
    let relative: Vec<&str> =
        policy.filesystem.protected.iter().map(String::as_str).filter(|name| !name.starts_with('/')).collect();
    let protects_in = |own: &str| relative.iter().any(|name| below(name, own).is_some());
    let own = path.split('/').find(|part| REPOSITORY_DIRECTORIES.contains(part) && protects_in(part));
    if let Some(own) = own {
        return Some(own.to_owned());
    }
    let mut above = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
    above.find_map(|top| {
        if protects_in(".git") && protected_names::is_git_directory(top, &Disk) {
            return Some(top.to_owned());
        }
        let rest = below(path, top)?;
        let names = protected_names::protected(&relative, top, &Disk);
        names.into_iter().find(|name| below(rest, name).is_some()).map(|name| join(top, &name))
    })
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
    fn a_writable_link_to_what_a_repository_names_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        for made in [
            "tools/hooks",
            "tools/other",
            ".git/objects",
            "conf",
            "apart/.github",
            "bare/worktrees",
            "bare/objects",
            "bare/refs",
        ] {
            fs::create_dir_all(dir.join(made)).unwrap();
        }
        fs::write(dir.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(dir.join(".git/config"), "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../conf/gc\n")
            .unwrap();
        fs::write(dir.join("conf/gc"), "").unwrap();
        fs::write(dir.join("conf/gd"), "").unwrap();
        fs::write(dir.join("bare/HEAD"), "ref: refs/heads/main\n").unwrap();
        let listed = [".git/hooks", ".git/config", ".git"];
        for (link, to, refused) in [
            ("a", "tools/hooks", true),
            ("b", "tools/other", false),
            ("c", "conf/gc", true),
            ("d", "conf/gd", false),
            ("e", ".git/objects", true),
            ("f", "apart/.github", false),
            ("g", "bare/worktrees", true),
        ] {
            symlink(to, dir.join(link)).unwrap();
            let by_link = acceptable(&policy(&dir.join(link), "read_write", &[], &listed));
            assert_eq!(by_link.is_err(), refused, "{to}: {by_link:?}");
            let read_only = acceptable(&policy(&dir.join(link), "read_only", &[], &listed));
            assert_eq!(read_only, Ok(()), "{to}");
            assert_eq!(acceptable(&policy(&dir.join(to), "read_write", &[], &listed)), Ok(()), "{to} was asked for");
        }
    }

    #[test]
    fn a_source_of_two_mounts_is_judged_once_as_the_writable_one() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(dir.join(".git/hooks")).unwrap();
        symlink(".git/hooks", dir.join("link")).unwrap();
        let mut twice = policy(&dir.join("link"), "read_only", &[], &[".git/hooks"]);
        assert_eq!((find(&twice).len(), acceptable(&twice)), (1, Ok(())));
        let writable = policy(&dir.join("link"), "read_write", &[], &[".git/hooks"]);
        twice.filesystem.mounts.extend(writable.filesystem.mounts);
        assert_eq!(find(&twice).len(), 1);
        assert!(acceptable(&twice).unwrap_err().message.contains(".git/hooks is protected"));
    }

    #[test]
    fn a_source_is_pinned_to_the_file_that_was_judged() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(dir.join("data")).unwrap();
        fs::create_dir_all(dir.join("other")).unwrap();
        let given = policy(&dir.join("data"), "read_write", &[], &[]);
        let judged = pinned(&given, &mut Lookup::default()).unwrap().into_owned();
        crate::plan::source_identity::compare_all(&judged).unwrap();
        fs::rename(dir.join("data"), dir.join("aside")).unwrap();
        symlink("other", dir.join("data")).unwrap();
        let replaced = crate::plan::source_identity::compare_all(&judged).unwrap_err();
        assert!(replaced.message.contains("was replaced"), "{replaced:?}");
        // What was not there to be judged is refused when it is there.
        let absent = policy(&dir.join("new"), "read_write", &[], &[]);
        let judged_absent = pinned(&absent, &mut Lookup::default()).unwrap().into_owned();
        crate::plan::source_identity::compare_all(&judged_absent).unwrap();
        symlink("other", dir.join("new")).unwrap();
        let appeared = crate::plan::source_identity::compare_all(&judged_absent).unwrap_err();
        assert!(appeared.message.contains("appeared"), "{appeared:?}");
        crate::plan::source_identity::compare_all(&pinned(&absent, &mut Lookup::default()).unwrap()).unwrap();
        // Looked at again, it is another directory, and that one is pinned.
        crate::plan::source_identity::compare_all(&pinned(&given, &mut Lookup::default()).unwrap()).unwrap();
        assert!(
            crate::plan::source_identity::compare_all(&pinned(&judged, &mut Lookup::default()).unwrap()).is_err(),
            "a caller's pin stays"
        );
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
