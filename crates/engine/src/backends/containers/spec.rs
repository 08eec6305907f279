//! What a container is to be, for any container runtime: a policy's layout without anything specific to one.
//!
//! Pure. What it cannot say (a view of the whole host, copy-on-write mounts) the layout has refused before.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cofferdam_policy::{NetworkMode, Policy, Root};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::content::hex;
use crate::backends::layout::{Item, MountLayout};
use crate::plan::mount_table::below;

/// Where the run's own directory is inside, read-only: init's program, and the rendezvous socket. No link in an image can lead to it,
/// for nobody knows the name beforehand: what is mounted by way of such a link would stand in init's place.
pub fn own(id: &str) -> String {
    format!("/dev/{id}")
}
/// Among the files of texts, the empty one that nobody may read. It is mounted over denied files: a runtime's own mask is
/// /dev/null, which can be read and written.
pub(crate) const DENIED: &str = "denied";
/// Capabilities that init starts with where it makes the network what the gateway needs, which answers on port 53. It drops all of them, from every
/// set, before the program starts.
pub const POWERS: [&str; 6] = ["NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW", "SETUID", "SETGID", "SETPCAP"];

/// Capabilities that init starts with where it becomes another user than the program and covers its own files below `/proc`,
/// in a kernel that is the container's own. It keeps `KILL` alone, and the program has none.
pub const APART: [&str; 4] = ["KILL", "SETGID", "SETUID", "SYS_ADMIN"];

/// What no program has a use for, of `/proc` and `/sys`: what Docker and Podman hide, in their versions up to
/// now. Every runtime hides them, besides what a spec says.
pub(crate) const MASKED: [&str; 13] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/dev/block",
    "/sys/firmware",
];

/// A container, in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContainerSpec {
    /// Its name: `cofferdam-` and 16 hexadecimal digits.
    pub id: String,
    /// What `/` is.
    pub root: Rootfs,
    /// What is mounted over it, in order.
    pub mounts: Vec<Mounted>,
    /// Paths inside that are hidden, besides the runtime's own list.
    pub masked: Vec<String>,
    /// User and group as whom init starts and the program runs; with `powers` init starts as 0.
    pub user: (u32, u32),
    /// Init starts with [`POWERS`]. Otherwise there is no capability in any set, but what `apart` says.
    pub powers: bool,
    /// Init starts with [`APART`], in no bounding set, and becomes this user and group of its own; its child, which drops
    /// them, becomes the program's again.
    pub apart: Option<(u32, u32)>,
    /// Its host name.
    pub hostname: String,
    /// Its network.
    pub network: Net,
    /// Limits that the runtime holds.
    pub bounds: RuntimeLimits,
    /// Hard and soft limit of open files with which init starts; the program's own is lower or the same.
    pub open_files: u64,
    /// Labels: whose it is.
    pub labels: Vec<(String, String)>,
    /// Init and its arguments.
    pub argv: Vec<String>,
}

/// What `/` is; read-only in each case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rootfs {
    /// An image by reference, digest or id.
    Image(String),
    /// The image in this tarball.
    Tarball(PathBuf),
    /// This directory of the host: a canonical path.
    Directory(PathBuf),
    /// An empty tree with these.
    Made(Vec<RootEntry>),
}

/// What a made root holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RootEntry {
    /// A directory.
    Directory {
        /// Absolute path inside.
        path: String,
        /// Permissions.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Absolute path inside.
        path: String,
        /// What it says.
        says: String,
    },
}

/// One mount, nosuid and nodev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mounted {
    /// A file or directory of the host, private.
    Bind {
        /// Canonical path on the host.
        source: PathBuf,
        /// Path inside.
        target: String,
        /// Whether it can be written.
        writable: bool,
        /// Whether programs on it can be executed.
        exec: bool,
        /// Whether it is a directory.
        directory: bool,
    },
    /// An empty file system in memory.
    Tmpfs {
        /// Path inside.
        target: String,
        /// Size.
        bytes: u64,
        /// Mode of its root.
        mode: u32,
        /// Whether programs on it can be executed.
        exec: bool,
        /// Whether it can be written.
        writable: bool,
    },
}

impl Mounted {
    /// Where it is mounted.
    pub fn target(&self) -> &str {
        match self {
            Mounted::Bind { target, .. } | Mounted::Tmpfs { target, .. } => target,
        }
    }
}

/// A container's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Net {
    /// A namespace with nothing but loopback.
    Own,
    /// The host's.
    Host,
}

/// Limits that the runtime holds; what is `None` is held by the run's own cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RuntimeLimits {
    /// Memory and swap together, bytes.
    pub memory_bytes: Option<u64>,
    /// CPU share in thousandths of one.
    pub cpu_millis: Option<u64>,
    /// Processes and threads, init among them.
    pub pids: Option<u64>,
}

/// What of a layout neither mounts nor masks say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts {
    /// Root and mounts.
    pub root: Option<Rootfs>,
    /// See [`ContainerSpec::mounts`].
    pub mounts: Vec<Mounted>,
    /// See [`ContainerSpec::masked`].
    pub masked: Vec<String>,
    /// Texts that have to be files of the host: name below the directory of texts, and contents.
    pub texts: Vec<(PathBuf, String)>,
    /// Directories that init makes in file systems in memory, and their modes.
    pub made: Vec<(String, u32)>,
    /// Targets of binds whose sources must be what was looked at, with the source.
    pub checked: Vec<(String, PathBuf)>,
}

/// Takes a layout apart; texts are to be found in the directory `texts`.
pub fn parts(policy: &Policy, layout: &MountLayout, texts: &Path) -> Parts {
    let mut parts = Parts::default();
    let mut entries = Vec::new();
    for item in &layout.items {
        match item {
            Item::Bind { source, target, .. } if target == "/" => {
                parts.root = Some(Rootfs::Directory(source.into()));
                parts.checked.push((target.clone(), source.into()));
            }
            Item::Bind { source, target, writable, exec, directory, .. } => {
                parts.checked.push((target.clone(), source.into()));
                parts.mounts.push(Mounted::Bind {
                    source: source.into(),
                    target: target.clone(),
                    writable: *writable,
                    exec: *exec,
                    directory: *directory,
                });
            }
            Item::Tmpfs { target, bytes, mode, exec } => parts.mounts.push(Mounted::Tmpfs {
                target: target.clone(),
                bytes: *bytes,
                mode: *mode,
                exec: *exec,
                // What says what this host is shows nothing of it, and holds nothing of the program's.
                writable: target != "/sys",
            }),
            Item::Directory { target, mode } if in_memory(&parts.mounts, target) => {
                parts.made.push((target.clone(), *mode));
            }
            Item::Directory { target, mode } => {
                entries.push(RootEntry::Directory { path: target.clone(), mode: *mode })
            }
            Item::Link { says, target } => entries.push(RootEntry::Link { path: target.clone(), says: says.clone() }),
            Item::Text { target, text } => {
                let name = PathBuf::from(hex(&Sha256::digest(text.as_bytes())));
                parts.mounts.push(Mounted::Bind {
                    source: texts.join(&name),
                    target: target.clone(),
                    writable: false,
                    exec: false,
                    directory: false,
                });
                parts.texts.push((name, text.clone()));
            }
            Item::Mask { target, directory: false } if below(target, "/proc").is_none() => {
                parts.mounts.push(Mounted::Bind {
                    source: texts.join(DENIED),
                    target: target.clone(),
                    writable: false,
                    exec: false,
                    directory: false,
                });
                parts.texts.push((DENIED.into(), String::new()));
            }
            Item::Mask { target, .. } => parts.masked.push(target.clone()),
            Item::Dev | Item::Proc => {} // every runtime has them
        }
    }
    let root = match &policy.filesystem.root {
        Root::Image(image) if image.starts_with('/') => Rootfs::Tarball(image.into()),
        Root::Image(image) => Rootfs::Image(image.clone()),
        _ => Rootfs::Made(entries),
    };
    parts.root.get_or_insert(root);
    parts.mounts = uncovered(parts.mounts, Mounted::target);
    let bound: BTreeSet<(&str, &Path)> = parts
        .mounts
        .iter()
        .filter_map(|mount| match mount {
            Mounted::Bind { source, target, .. } => Some((target.as_str(), source.as_path())),
            Mounted::Tmpfs { .. } => None,
        })
        .collect();
    parts.checked.retain(|(target, source)| target == "/" || bound.contains(&(target.as_str(), source.as_path())));
    parts
}

/// Leaves out each mount that a later one covers whole: in this order nothing of it would be seen. Engines refuse two mounts
/// at one place, and gVisor sorts them by the length of their targets, by which the covered one can come to lie on top.
pub(crate) fn uncovered<T>(mounts: Vec<T>, target: impl Fn(&T) -> &str) -> Vec<T> {
    let covered: Vec<bool> = (0..mounts.len())
        .map(|i| mounts[i + 1..].iter().any(|later| below(target(&mounts[i]), target(later)).is_some()))
        .collect();
    mounts.into_iter().zip(covered).filter_map(|(mount, covered)| (!covered).then_some(mount)).collect()
}

fn in_memory(mounts: &[Mounted], path: &str) -> bool {
    let nearest = mounts.iter().rev().find(|mount| below(path, mount.target()).is_some());
    matches!(nearest, Some(Mounted::Tmpfs { .. }))
}

/// How many files a file system in memory of this size may hold, where its runtime can say that: as many as it has pages,
/// as in a jail.
pub(crate) fn inodes(bytes: u64) -> u64 {
    (bytes >> 12).max(4096)
}

/// The network of a policy.
pub fn network(policy: &Policy) -> Net {
    if policy.network.mode == NetworkMode::Host { Net::Host } else { Net::Own }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_files_are_covered_and_those_in_proc_by_the_runtime() {
        let mask = |target: &str, directory| Item::Mask { target: target.into(), directory };
        let layout = MountLayout {
            items: vec![mask("/work/.env", false), mask("/work/.ssh", true), mask("/proc/keys", false)],
            ..MountLayout::default()
        };
        let parts = parts(&Policy::base(), &layout, Path::new("/state/texts"));
        assert_eq!(parts.masked, ["/work/.ssh", "/proc/keys"]);
        assert_eq!(
            parts.mounts,
            [Mounted::Bind {
                source: "/state/texts/denied".into(),
                target: "/work/.env".into(),
                writable: false,
                exec: false,
                directory: false,
            }]
        );
        assert_eq!(parts.texts, [(PathBuf::from(DENIED), String::new())]);
    }

    #[test]
    fn of_mounts_at_one_place_the_last_is_left_and_what_it_covers_is_not_asked_for() {
        let bind = |target: &str, writable| Item::Bind {
            source: format!("/host{target}"),
            target: target.into(),
            writable,
            exec: true,
            directory: true,
            optional: false,
        };
        let items = vec![
            bind("/h", true),
            bind("/h/.omni", true),
            bind("/h/.omni/sandbox", true),
            bind("/h/state", true),
            bind("/h/.omni", false),
            bind("/h/state", false),
            bind("/h/state/skills", false),
            bind("/h/stated", true),
        ];
        let parts = parts(&Policy::base(), &MountLayout { items, ..MountLayout::default() }, Path::new("/state/texts"));
        let left: Vec<(&str, bool)> = parts
            .mounts
            .iter()
            .map(|mount| (mount.target(), matches!(mount, Mounted::Bind { writable: true, .. })))
            .collect();
        let expected =
            [("/h", true), ("/h/.omni", false), ("/h/state", false), ("/h/state/skills", false), ("/h/stated", true)];
        assert_eq!(left, expected);
        assert!(!parts.checked.iter().any(|(target, _)| target == "/h/.omni/sandbox"), "{:?}", parts.checked);
        assert!(parts.checked.iter().any(|(target, _)| target == "/h/state"), "{:?}", parts.checked);
    }

    #[test]
    fn a_file_system_in_memory_holds_as_many_files_as_pages_and_some_in_any_case() {
        assert_eq!([inodes(4096), inodes(16 << 20), inodes(64 << 20)], [4096, 4096, 16_384]);
    }
}
