//! What is shown before any mount of the policy's: the root views, the names that lead out, and what every view has of its
//! own (devices, procfs, scratch space).

use cofferdam_policy::{Field, NetworkMode, OWN_HOME, Root};

use super::{Item, LayoutBuilder};
use crate::failure::Failure;
use crate::plan::facts::{FileKind, ResolvedPath, resolve};
use crate::plan::interpreter::Part;
use crate::plan::mount_table::MountContent;
use crate::plan::user_names;

/// Of the scratch space, in eighths: /tmp, /dev/shm, /var/tmp, /run.
const SHARES: [(&str, u64, u32); 4] =
    [("/tmp", 4, 0o1777), ("/dev/shm", 2, 0o1777), ("/var/tmp", 1, 0o1777), ("/run", 1, 0o755)];
/// Bytes of a container's /dev/shm, besides those of its /tmp.
const SHM: u64 = 1 << 20;
/// Files of procfs that tell about the host and that every user may read there.
const PROC_MASKS: [&str; 3] = ["/proc/cmdline", "/proc/keys", "/proc/key-users"];
/// Tells one start of the host from another, and so one host from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Where processors are told about: what programs ask for to size their thread pools.
const CPUS: &str = "/sys/devices/system/cpu";

impl LayoutBuilder<'_> {
    pub(super) fn root(&mut self) -> Result<(), Failure> {
        match &self.policy.filesystem.root {
            Root::Host if self.container => {
                return Err(Failure::new(Field::Root, "a container has no view of the whole host").hint(
                    "--root minimal for the system's programs, --image for those of an image, -v for directories",
                ));
            }
            Root::Image(image) if !self.container => {
                return Err(Failure::new(
                    Field::Root,
                    format!("containers are made of images such as {image}, and this backend makes none"),
                )
                .hint("use --backend docker, podman or oci, or name a directory that holds its files: --root ./DIR"));
            }
            Root::Image(_) => {
                self.place("/", MountContent::Own, false);
                self.names();
            }
            Root::Host => {
                self.place("/", MountContent::Own, false);
                for name in self.facts.list("/") {
                    if !["proc", "sys", "dev", "run", "tmp"].contains(&name.as_str()) {
                        self.top(&format!("/{name}"));
                    }
                }
            }
            Root::Minimal => {
                self.place("/", MountContent::Own, false);
                if self.facts.kind("/usr") == FileKind::Directory {
                    self.host("/usr", "/usr", true);
                }
                for top in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
                    self.top(top);
                }
                self.etc();
            }
            Root::Interpreter => {
                self.place("/", MountContent::Own, false);
                self.own_etc();
                for part in crate::plan::interpreter::parts(self.policy, self.facts) {
                    match part {
                        Part::Directory(path) => self.host(&path, &path, true),
                        Part::File(path) => self.host(&path, &path, false),
                        Part::Link(path, says) => self.link(&says, &path),
                    }
                }
            }
            Root::Directory(dir) => {
                let ResolvedPath::There(canonical, FileKind::Directory) = resolve(self.facts, dir).0 else {
                    return Err(Failure::new(Field::Root, format!("{dir} is not a directory"))
                        .hint("create it, or correct the path"));
                };
                self.host(&canonical, "/", true);
                if self.container {
                    self.names();
                }
            }
        }
        Ok(())
    }

    /// How names are looked up in a root that is somebody else's: in what the sandbox has of its own. In a directory only
    /// where the files are, since they need a place.
    fn names(&mut self) {
        let captured = self.policy.network.mode == NetworkMode::Allowlist;
        let files = crate::plan::host_names::captured(self.policy);
        for (index, (path, _, text)) in files.into_iter().enumerate() {
            let hosts = crate::plan::host_names::are_the_hosts(self.policy);
            let there = match self.out.view.host_path(path) {
                Some(host) => {
                    matches!(resolve(self.facts, &host), (ResolvedPath::There(_, FileKind::File { .. }), links) if links.is_empty())
                }
                None => true,
            };
            match index {
                _ if !there || (hosts && index > 1) => {}
                // The host's network has the host's names.
                0 | 1 if hosts => match resolve(self.facts, path).0 {
                    ResolvedPath::There(canonical, FileKind::File { .. }) => self.host(&canonical, path, false),
                    _ => self.text(path, text),
                },
                1 if !captured => self.text(path, "# none\n".into()),
                2 if !captured => {}
                _ => self.text(path, text),
            }
        }
    }

    /// A top-level entry of the host's: a link as a link, anything else bound.
    fn top(&mut self, path: &str) {
        match self.facts.kind(path) {
            FileKind::Link(says) => self.link(&says, path),
            FileKind::Directory => self.host(path, path, true),
            FileKind::File { .. } => self.host(path, path, false),
            FileKind::Special | FileKind::Missing | FileKind::Unknown => {}
        }
    }

    fn etc(&mut self) {
        self.own_etc();
        for name in crate::plan::settings::shown(self.facts.list("/etc")) {
            self.top(&format!("/etc/{name}"));
        }
    }

    /// Files of /etc that the sandbox has of its own.
    fn own_etc(&mut self) {
        self.out.items.push(Item::Directory { target: "/etc".into(), mode: 0o755 });
        let names = [
            ("hosts", crate::plan::host_names::hosts(self.policy)),
            ("nsswitch.conf", crate::plan::host_names::ORDER.to_owned()),
            ("resolv.conf", "# none\n".to_owned()),
        ];
        for (name, text) in user_names::files(self.policy).into_iter().chain(names) {
            let path = format!("/etc/{name}");
            let hosts = crate::plan::host_names::are_the_hosts(self.policy)
                && crate::plan::host_names::FILES.contains(&path.as_str());
            let captured = (self.container && self.policy.network.mode == NetworkMode::Allowlist)
                .then(|| crate::plan::host_names::captured(self.policy));
            let own = captured.and_then(|files| files.into_iter().find(|(file, ..)| *file == path));
            let text = own.map_or(text, |(.., text)| text);
            match resolve(self.facts, &path).0 {
                ResolvedPath::There(canonical, FileKind::File { .. }) if hosts => self.host(&canonical, &path, false),
                _ => self.text(&path, text),
            }
        }
    }

    /// What every view has of its own.
    pub(super) fn common(&mut self) {
        self.out.items.push(Item::Dev);
        self.place("/dev", MountContent::Own, false);
        self.out.items.push(Item::Proc);
        self.place("/proc", MountContent::Own, false);
        for path in PROC_MASKS.iter().filter(|path| matches!(self.facts.kind(path), FileKind::File { .. })) {
            self.out.items.push(Item::Mask { target: (*path).into(), directory: false });
        }
        if matches!(self.facts.kind(BOOT_ID), FileKind::File { .. }) && self.container {
            self.out.items.push(Item::Mask { target: BOOT_ID.into(), directory: false });
        } else if matches!(self.facts.kind(BOOT_ID), FileKind::File { .. }) {
            self.text(BOOT_ID, "00000000-0000-4000-8000-000000000000\n".into());
        }
        self.tmpfs("/sys", 1 << 16, 0o755, false);
        self.place("/sys", MountContent::Own, false);
        if self.facts.kind(CPUS) == FileKind::Directory {
            self.host(CPUS, CPUS, true);
        }
        let scratch = self.policy.limits.tmpfs_mb << 20;
        let shares: Vec<(&str, u64, u32)> = if self.container {
            // The same /tmp as in a jail. Semaphores are all that most programs make in /dev/shm, which is apart.
            vec![("/tmp", scratch, 0o1777), ("/dev/shm", SHM, 0o1777)]
        } else {
            SHARES.map(|(target, eighths, mode)| (target, scratch / 8 * eighths, mode)).to_vec()
        };
        for (target, bytes, mode) in shares {
            // A directory given as the root may lack a mount point: then there is nothing to hide, and nothing to write.
            let lacks = matches!(self.policy.filesystem.root, Root::Directory(_))
                && self.out.view.host_path(target).is_some_and(|host| self.facts.kind(&host) != FileKind::Directory);
            if !lacks {
                self.tmpfs(target, bytes, mode, false);
                self.place(target, MountContent::Own, true);
            }
            if !lacks && target == "/tmp" {
                self.out.items.push(Item::Directory { target: OWN_HOME.into(), mode: 0o700 });
            }
        }
        if self.policy.filesystem.root == Root::Host {
            for (path, text) in [
                ("/etc/hostname", format!("{}\n", self.policy.process.hostname)),
                ("/etc/machine-id", format!("{}\n", "0".repeat(32))),
                ("/etc/hosts", crate::plan::host_names::hosts(self.policy)),
            ] {
                if matches!(self.facts.kind(path), FileKind::File { .. }) {
                    self.text(path, text);
                }
            }
        }
    }
}
