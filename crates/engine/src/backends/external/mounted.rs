//! Whether what an external program has mounted is what was planned, looked at before the sandbox's program starts.
//!
//! Such a program mounts by path, and a path can lead elsewhere by then: a program in another sandbox that may write the
//! directory above a source can put a link into its place. So the tool is held once it has made its mounts
//! (`program_tree::StartGate`), and every place is opened as the sandbox sees it, without following a link. No program that could
//! change anything there has started yet.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_policy::{Mount, Policy};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, openat, openat2, statx};
use rustix::io::Errno;

use crate::backends::layout::{Item, MountLayout};
use crate::failure::{FailedStep, Failure};
use crate::plan::mount_table::below;
use crate::plan::source_identity;

/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;
/// `PROC_SUPER_MAGIC` of linux/magic.h.
const PROC: i64 = 0x9fa0;
const NULL: &str = "/dev/null";

/// A mount that the sandbox has to have.
#[derive(Debug)]
struct RequiredMount {
    /// Path inside.
    target: String,
    shows: RequiredContent,
    step: FailedStep,
}

#[derive(Debug)]
enum RequiredContent {
    /// A file or directory of the host: its name, and its device and inode. `None`: there was none to be looked at.
    Host(String, Option<(u64, u64)>),
    /// A file system of the sandbox's own, of this type.
    Own(i64),
}

/// All of them that can be seen inside: what lies below a later mount cannot.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    planned: Vec<RequiredMount>,
}

/// What is at a place.
struct MountedFile {
    identity: (u64, u64),
    /// Something is mounted at this very place.
    is_mount: bool,
    file: OwnedFd,
}

impl Mounts {
    /// What a layout of this policy, whose sources are pinned, has to show. Sources that are none of the policy's, such as
    /// those of the root view, are what they are now.
    pub(super) fn of(policy: &Policy, layout: &MountLayout) -> Mounts {
        let mut planned: Vec<RequiredMount> = Vec::new();
        for item in &layout.items {
            let (target, shows) = match item {
                Item::Bind { source, target, .. } => (target, Some(RequiredContent::Host(source.clone(), None))),
                Item::Mask { target, directory: false } => (target, Some(RequiredContent::Host(NULL.to_owned(), None))),
                Item::Mask { target, directory: true } | Item::Tmpfs { target, .. } => {
                    (target, Some(RequiredContent::Own(TMPFS)))
                }
                Item::Dev => (&"/dev".to_owned(), Some(RequiredContent::Own(TMPFS))),
                Item::Proc => (&"/proc".to_owned(), Some(RequiredContent::Own(PROC))),
                // It is a file of our own making, and covers what is there.
                Item::Text { target, .. } => (target, None),
                Item::Directory { .. } | Item::Link { .. } => continue,
            };
            planned.retain(|earlier| below(&earlier.target, target).is_none());
            let Some(shows) = shows else { continue };
            planned.push(RequiredMount { target: target.clone(), shows, step: FailedStep::Mount });
        }
        for of in &mut planned {
            let RequiredContent::Host(source, identity) = &mut of.shows else { continue };
            let mounts = policy.filesystem.mounts.iter().enumerate();
            let named = mounts.rev().find_map(|(index, mount)| match mount {
                Mount::Bind { source, target, .. } if *target == of.target && source != NULL => Some((index, source)),
                _ => None,
            });
            match named {
                Some((index, name)) if source != NULL => {
                    *identity = source_identity::expected(policy, name);
                    source.clone_from(name);
                    of.step = FailedStep::mount_entry(index);
                }
                _ => *identity = look(CWD, source, false).ok().map(|found| found.identity),
            }
        }
        Mounts { planned }
    }

    /// Compares them with what is mounted in the sandbox in which this process is.
    ///
    /// # Errors
    /// Something else is, or nothing; or the sandbox cannot be looked into.
    pub(super) fn compare(&self, pid: i32, tool: &str) -> Result<(), Failure> {
        let root = rustix::fs::open(
            format!("/proc/{pid}/root"),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| {
            Failure::new(FailedStep::Mount, format!("what {tool} has mounted cannot be compared with the policy: cannot open the sandbox's root in /proc: {e}"))
                .hint("this backend needs a /proc that shows the processes of its own user; or use --backend jail")
        })?;
        self.planned.iter().try_for_each(|of| of.compare(root.as_fd(), tool))
    }
}

impl RequiredMount {
    fn compare(&self, root: BorrowedFd<'_>, tool: &str) -> Result<(), Failure> {
        let target = &self.target;
        let found =
            look(root, target.trim_start_matches('/'), true).map_err(|e| self.is_not_there(tool, &e.to_string()))?;
        if !found.is_mount {
            return Err(self.is_not_there(tool, "nothing is mounted at this place"));
        }
        let same = match &self.shows {
            RequiredContent::Host(_, judged) => *judged == Some(found.identity),
            RequiredContent::Own(kind) => {
                let is = rustix::fs::fstatfs(&found.file).map_err(|e| self.is_not_there(tool, &e.to_string()))?;
                is.f_type == *kind
            }
        };
        if same { Ok(()) } else { Err(self.is_another(tool)) }
    }

    fn is_another(&self, tool: &str) -> Failure {
        let target = &self.target;
        let what = match &self.shows {
            RequiredContent::Host(source, _) => {
                format!("the mount source {source} was replaced while {tool} mounted it at {target}")
            }
            RequiredContent::Own(_) => format!("what is above {target} was replaced while {tool} mounted there"),
        };
        self.refused(format!("{what}: what is mounted is not what was checked"))
    }

    fn is_not_there(&self, tool: &str, why: &str) -> Failure {
        let target = &self.target;
        self.refused(format!(
            "what {tool} has mounted at {target} is not there: the place, or one above it, was replaced or removed meanwhile ({why})"
        ))
    }

    fn refused(&self, message: String) -> Failure {
        Failure::new(self.step.clone(), message).hint(
            "the program was not started. Run it again, and do not let untrusted code write the directory that a source is in; \
             or use --backend jail, which mounts what it has opened",
        )
    }
}

/// What is at a path: no link on the way is followed, and of a link at its end this finds the link itself. Inside of a root,
/// or as this process sees it.
fn look(directory: BorrowedFd<'_>, path: &str, inside: bool) -> Result<MountedFile, Errno> {
    const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let path = if path.is_empty() { "." } else { path };
    let scope = if inside { ResolveFlags::IN_ROOT } else { ResolveFlags::empty() };
    let how = scope | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = match openat2(directory, path, FLAGS, Mode::empty(), how) {
        // Before Linux 5.6, and in sandboxes.
        Err(Errno::NOSYS) => step_by_step(directory, path)?,
        opened => opened?,
    };
    let st = statx(&file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
    // Before Linux 5.8 the kernel does not say. What is there is compared all the same.
    let says = st.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    let is_mount = !says || st.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let identity = (u64::from(st.stx_dev_major) << 32 | u64::from(st.stx_dev_minor), st.stx_ino);
    Ok(MountedFile { identity, is_mount, file })
}

fn step_by_step(directory: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    const NEXT: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let start = if path.starts_with('/') { "/" } else { "." };
    let mut at = openat(directory, start, NEXT | OFlags::DIRECTORY, Mode::empty())?;
    let mut parts = path.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
    while let Some(part) = parts.next() {
        // Of a link this opens the link itself, which is no directory.
        let kind = if parts.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
        at = openat(&at, part, NEXT | kind, Mode::empty())?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::backends::layout::layout;
    use crate::plan::facts::FactsTable;

    fn bind(source: &str, target: &str) -> Item {
        let (source, target) = (source.to_owned(), target.to_owned());
        Item::Bind { source, target, writable: true, exec: true, directory: true, optional: false }
    }

    #[test]
    fn what_a_later_mount_covers_is_not_looked_for() {
        let mask = Item::Mask { target: "/a/b/secret".into(), directory: true };
        let items = vec![bind("/usr", "/a/b/c"), bind("/usr", "/ab"), bind("/usr", "/a/b"), mask];
        let mounts = Mounts::of(&Policy::base(), &MountLayout { items, ..MountLayout::default() });
        let targets: Vec<&str> = mounts.planned.iter().map(|of| of.target.as_str()).collect();
        assert_eq!(targets, ["/ab", "/a/b", "/a/b/secret"]);
        let at_root = vec![bind("/usr", "/a"), Item::Proc, bind("/usr", "/")];
        let mounts = Mounts::of(&Policy::base(), &MountLayout { items: at_root, ..MountLayout::default() });
        assert_eq!(mounts.planned.len(), 1);
    }

    #[test]
    fn a_source_of_the_policy_is_what_was_pinned_and_any_other_is_what_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let source = dir.to_str().unwrap();
        let text = format!(
            r#"{{"version": 1, "command": {{"argv": ["/bin/true"]}}, "filesystem": {{"mounts": [{{"type": "bind", "source": "{source}", "target": "/in"}}]}}}}"#
        );
        let given = Policy::decode(text.as_bytes()).unwrap();
        let items = vec![bind(source, "/in"), bind(source, "/else")];
        let laid_out = MountLayout { items, ..MountLayout::default() };
        let identities = |policy: &Policy| -> Vec<Option<(u64, u64)>> {
            let planned = Mounts::of(policy, &laid_out).planned;
            planned
                .iter()
                .map(|of| if let RequiredContent::Host(_, identity) = &of.shows { *identity } else { None })
                .collect()
        };
        let now = look(CWD, source, false).unwrap().identity;
        assert_eq!(identities(&given), [None, Some(now)]);
        let pinned = crate::backends::real_sources::pinned(&given, &mut crate::plan::lookup::Lookup::default())
            .unwrap()
            .into_owned();
        assert_eq!(identities(&pinned), [Some(now), Some(now)]);
    }

    #[test]
    fn no_part_of_a_path_may_be_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("real/below")).unwrap();
        symlink("real", dir.join("link")).unwrap();
        symlink("below", dir.join("real/last")).unwrap();
        let top = rustix::fs::open(&dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let inode = |fd: OwnedFd| rustix::fs::fstat(&fd).unwrap().st_ino;
        let there = look(top.as_fd(), "real/below", true).unwrap();
        assert!(!there.is_mount, "nothing is mounted there");
        assert_eq!(inode(step_by_step(top.as_fd(), "real/below").unwrap()), there.identity.1);
        assert!(look(top.as_fd(), "link/below", true).is_err());
        assert!(step_by_step(top.as_fd(), "link/below").is_err());
        assert_ne!(look(top.as_fd(), "real/last", true).unwrap().identity, there.identity, "the link itself");
        assert_ne!(inode(step_by_step(top.as_fd(), "real/last").unwrap()), there.identity.1);
    }

    #[test]
    fn this_process_has_other_mounts_than_a_sandbox_would() {
        let policy = Policy::base();
        let layout = layout(&policy, &FactsTable::usual(&[])).unwrap();
        let refused = Mounts::of(&policy, &layout).compare(std::process::id() as i32, "bubblewrap").unwrap_err();
        assert!(refused.message.contains("bubblewrap") && refused.hint.is_some(), "{refused:?}");
        let own = Mounts { planned: Vec::new() };
        assert_eq!(own.compare(std::process::id() as i32, "bubblewrap"), Ok(()));
        let procfs = vec![Item::Proc];
        let mounts = Mounts::of(&policy, &MountLayout { items: procfs, ..MountLayout::default() });
        assert_eq!(mounts.compare(std::process::id() as i32, "bubblewrap"), Ok(()), "the host's /proc is one");
    }
}
