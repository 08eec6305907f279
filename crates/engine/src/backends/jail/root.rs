//! Root views: the mount steps that make `/` what the policy says, and the table of what shows where.
//!
//! Both views share one scratch file system, sized by `limits.tmpfs_mb`: /tmp, /var/tmp, /run, /dev/shm and the
//! skeleton lie in it, so their sum is bounded by one number.

use std::fs;
use std::path::Path;

use cofferdam_confine::init_plan::{MountSource, MountStep, attr};
use cofferdam_policy::{NetworkMode, Policy, Root};

use crate::plan::facts::HostFacts;
use crate::plan::interpreter::Part;
use crate::plan::mount_table::{MountContent, MountEntry, View};
use crate::plan::user_names;

/// Read-only, no setuid, no devices: what every mount of the host's gets.
pub(crate) const HOST: u64 = attr::RDONLY | attr::NOSUID | attr::NODEV;
const OWN: u64 = attr::NOSUID | attr::NODEV;
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom"];
/// Files of procfs that tell about the host and that every user may read there.
const PROC_MASKS: &[&str] = &["/proc/cmdline", "/proc/keys", "/proc/key-users"];

/// `/dev/tty` for a run with a terminal: whoever opens it gets the terminal of its own session, which is the sandbox's.
pub(crate) fn terminal_device() -> MountStep {
    MountStep::Bind {
        source: MountSource::System("/dev/tty".into()),
        target: "/dev/tty".into(),
        attrs: attr::NOSUID | attr::NOEXEC,
        optional: true,
    }
}

/// What tells one run from another inside.
#[derive(Debug, Clone)]
pub(crate) struct Ids {
    boot: String,
    machine: String,
}

impl Ids {
    /// New ones.
    pub(crate) fn fresh() -> Ids {
        Ids { boot: cofferdam_audit::random::uuid(), machine: cofferdam_audit::random::uuid().replace('-', "") }
    }
}

/// Mount steps under way.
pub(super) struct Build {
    /// Steps on the scratch, before the root.
    pub skeleton: Vec<MountStep>,
    /// The root and what is mounted over it.
    pub mounts: Vec<MountStep>,
    /// What shows where.
    pub view: View,
    /// Whether the root is the skeleton, so that mount points can be made in it.
    pub own_root: bool,
    /// How many steps of `mounts` are on paths that are the system's own.
    pub system: usize,
    /// How many steps of `skeleton` and of `mounts` the root view itself takes.
    view_steps: (usize, usize),
    made: std::collections::HashSet<String>,
    /// Links of the skeleton of the root: path inside → what it says.
    links: std::collections::BTreeMap<String, String>,
}

/// The directory of the scratch that becomes the root.
const ROOTFS: &str = "rootfs";

/// Where a link in `base` leads that says this.
fn joined(base: &str, says: &str) -> String {
    let mut parts: Vec<&str> = if says.starts_with('/') { Vec::new() } else { base.split('/').collect() };
    for part in says.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

fn own(target: &str, writable: bool) -> MountEntry {
    MountEntry { target: target.into(), shows: MountContent::Own, writable, persistent: false }
}

fn host(target: &str, source: &str) -> MountEntry {
    MountEntry { target: target.into(), shows: MountContent::Host(source.into()), writable: false, persistent: false }
}

/// Scratch directories in which mount points can be made, their names in the scratch, and the modes of what is made.
const SCRATCH: [(&str, &str, u32); 3] = [("/tmp", "tmp", 0o777), ("/var/tmp", "vartmp", 0o777), ("/run", "run", 0o755)];

impl Build {
    /// The root view of a policy, without the policy's own mounts.
    pub(super) fn new(policy: &Policy, exec_scratch: bool, ids: &Ids) -> Build {
        let mut b = Build {
            skeleton: Vec::new(),
            mounts: Vec::new(),
            view: View::default(),
            own_root: false,
            system: 0,
            view_steps: (0, 0),
            made: std::collections::HashSet::new(),
            links: std::collections::BTreeMap::new(),
        };
        b.scratch_dirs();
        match &policy.filesystem.root {
            Root::Host => b.host_root(policy),
            Root::Minimal | Root::Image(_) => b.minimal_root(policy), // an image is refused before
            Root::Interpreter => b.interpreter_root(policy),
            Root::Directory(dir) => b.directory_root(dir),
        }
        b.common(exec_scratch, policy.process.nested_sandboxes);
        if policy.filesystem.root == Root::Host {
            b.identity(policy, ids);
        }
        // A directory given as the root can hold links of anybody's making.
        let given = matches!(policy.filesystem.root, Root::Directory(_));
        b.system = if given { 0 } else { b.mounts.len() };
        b.skeleton.push(MountStep::File { name: "bootid".into(), text: format!("{}\n", ids.boot), mode: 0o444 });
        b.view_steps = (b.skeleton.len(), b.mounts.len());
        b
    }

    /// Files of the host view that say which machine it is: they hold the sandbox's own name, and an id for one run.
    fn identity(&mut self, policy: &Policy, ids: &Ids) {
        let id = format!("{}\n", ids.machine);
        let hosts = ("hosts", crate::plan::host_names::hosts(policy), &["/etc/hosts"][..]);
        // In a captured network every view has one.
        let hosts = Some(hosts).filter(|_| policy.network.mode != NetworkMode::Allowlist);
        let files = [
            ("hostname", format!("{}\n", policy.process.hostname), &["/etc/hostname"][..]),
            ("machineid", id, &["/etc/machine-id", "/var/lib/dbus/machine-id"][..]),
        ];
        for (name, text, paths) in files.into_iter().chain(hosts) {
            // A link leads to the other one, or to where the sandbox has nothing of the host's.
            let files = paths.iter().filter(|p| fs::symlink_metadata(p).is_ok_and(|m| m.is_file()));
            let before = self.mounts.len();
            self.mounts.extend(files.map(|&path| MountStep::Scratch {
                name: name.into(),
                target: path.into(),
                attrs: HOST,
                optional: true,
            }));
            if self.mounts.len() > before {
                self.skeleton.push(MountStep::File { name: name.into(), text, mode: 0o444 });
            }
        }
    }

    /// Files that lead to the gateway's resolver, in place of those that the view has. Where it has none, libraries ask the
    /// resolver of the machine itself, which is the same one.
    pub(super) fn lookup(&mut self, policy: &Policy) {
        for (path, name, text) in crate::plan::host_names::captured(policy) {
            // A link, as into /run, leads to where the sandbox has nothing of the host's: there the file itself is made.
            let place = self.place_of(path);
            let covering = self.view.covering(&place).map(|p| (p.target.clone(), p.shows == MountContent::Own));
            let Some((covering, is_own)) = covering else { continue };
            if let Some((_, scratch, mode)) = SCRATCH.into_iter().find(|(dir, ..)| *dir == covering) {
                let rest = crate::plan::mount_table::below(&place, &covering).unwrap_or_default().to_owned();
                if let Some(file) = self.tree(scratch, &rest, false, mode) {
                    self.skeleton.push(MountStep::File { name: file, text, mode: 0o444 });
                }
                continue;
            }
            let there = match self.view.host_path(&place) {
                Some(host) => fs::symlink_metadata(host).is_ok_and(|meta| meta.is_file()),
                None => is_own && self.made.contains(&format!("{ROOTFS}{place}")),
            };
            if there {
                self.skeleton.push(MountStep::File { name: name.into(), text, mode: 0o444 });
                self.mounts.push(MountStep::Scratch { name: name.into(), target: place, attrs: HOST, optional: true });
            }
        }
    }

    /// All steps in order, the root view's before what the policy adds, and how many of them are on the system's own paths.
    pub(super) fn steps(&mut self) -> (Vec<MountStep>, usize) {
        let (mut skeleton, mut mounts) = (std::mem::take(&mut self.skeleton), std::mem::take(&mut self.mounts));
        let (added, covering) = (skeleton.split_off(self.view_steps.0), mounts.split_off(self.view_steps.1));
        let system = if self.system == 0 { 0 } else { skeleton.len() + self.system };
        (skeleton.into_iter().chain(mounts).chain(added).chain(covering).collect(), system)
    }

    /// What the writable scratch directories hold at the start, as seen inside.
    pub(super) fn own_entries(&self) -> std::collections::BTreeSet<String> {
        let places = SCRATCH.iter().map(|(path, name, _)| (*path, *name)).chain([("/dev/shm", "shm")]);
        let inside = |(path, name): (&str, &str)| {
            let entry = move |made: &String| Some(format!("{path}/{}", made.strip_prefix(name)?.strip_prefix('/')?));
            self.made.iter().filter_map(entry).collect::<Vec<_>>()
        };
        places.flat_map(inside).collect()
    }

    /// Makes a directory of the scratch once.
    pub(super) fn mkdir(&mut self, name: &str, mode: u32) {
        if self.made.insert(name.to_owned()) {
            self.skeleton.push(MountStep::Mkdir { name: name.into(), mode });
        }
    }

    /// A file of the scratch, with this text.
    fn file(&mut self, name: &str, text: String, mode: u32) {
        if self.made.insert(name.to_owned()) {
            self.skeleton.push(MountStep::File { name: name.into(), text, mode });
        }
    }

    /// A link in the skeleton of the root, at a path inside.
    fn link(&mut self, path: &str, says: &str) {
        self.links.insert(path.to_owned(), says.to_owned());
        self.skeleton.push(MountStep::Symlink { name: format!("{ROOTFS}{path}"), says: says.into() });
    }

    /// Where a path inside is: links on the way to it are followed, as init does. What is held is held by that name. Of the
    /// skeleton's own links the last name is not followed, so that a mount on a link takes the link's place and covers
    /// nothing elsewhere; in what is the host's nothing can be replaced, and the mount lies where the link leads.
    pub(super) fn place_of(&self, path: &str) -> String {
        /// Most links on the way to a file (path_resolution(7)).
        const MOST: usize = 40;
        let mut path = path.to_owned();
        for _ in 0..MOST {
            let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
            let on_the_way = ends.filter(|&end| end > 1).find_map(|end| {
                let (link, rest) = path.split_at(end);
                Some((link, self.says(link, rest.is_empty())?, rest))
            });
            let Some((link, says, rest)) = on_the_way else { break };
            let base = link.rsplit_once('/').map_or("", |(parent, _)| parent);
            path = crate::plan::mount_table::join(&joined(base, &says), rest.trim_start_matches('/'));
        }
        path
    }

    /// What a link inside says; `None` where there is none that is followed.
    fn says(&self, link: &str, is_last: bool) -> Option<String> {
        let place = self.view.covering(link)?;
        match &place.shows {
            MountContent::Own if place.target == "/" => self.links.get(link).filter(|_| !is_last).cloned(),
            MountContent::Own => None,
            MountContent::Host(_) => fs::read_link(self.view.host_path(link)?).ok()?.to_str().map(str::to_owned),
        }
    }

    /// Makes the mount point for a path inside, where that can be done: in the skeleton, or in a scratch directory.
    pub(super) fn mount_point(&mut self, target: &str, is_dir: bool) {
        let covering = self.view.covering(target).map(|place| place.target.clone()).unwrap_or_default();
        let scratch = |(path, name, mode): &(&'static str, &'static str, u32)| {
            let rest = crate::plan::mount_table::below(target, path).filter(|_| covering == *path || *path == "/tmp");
            rest.map(|rest| (*name, rest.to_owned(), *mode))
        };
        if let Some((name, rest, mode)) = SCRATCH.iter().find_map(scratch) {
            self.mount_point_in(name, &rest, is_dir, mode);
        } else if self.own_root && matches!(self.view.covering(target), Some(p) if p.target == "/") {
            if self.links.remove(target).is_some() {
                // The mount takes the link's place.
                let name = format!("{ROOTFS}{target}");
                let is_it = |step: &MountStep| matches!(step, MountStep::Symlink { name: link, .. } if *link == name);
                if let Some(at) = self.skeleton.iter().position(is_it) {
                    self.skeleton.remove(at);
                    self.view_steps.0 -= usize::from(at < self.view_steps.0);
                }
            }
            self.mount_point_in(ROOTFS, &target[1..], is_dir, 0o755);
        }
    }

    /// Makes a mount point in a directory of the scratch, with the directories that lead to it.
    pub(super) fn mount_point_in(&mut self, base: &str, rest: &str, is_dir: bool, mode: u32) {
        if let Some(file) = self.tree(base, rest, is_dir, mode) {
            self.skeleton.push(MountStep::File { name: file, text: String::new(), mode: 0o444 });
        }
    }

    /// Directories down to `rest` below `base`; the name of the file to make when the last is one.
    fn tree(&mut self, base: &str, rest: &str, is_dir: bool, mode: u32) -> Option<String> {
        let mut at = base.to_owned();
        let parts: Vec<&str> = rest.split('/').filter(|p| !p.is_empty()).collect();
        for (i, part) in parts.iter().enumerate() {
            at = format!("{at}/{part}");
            if i + 1 == parts.len() && !is_dir {
                return self.made.insert(at.clone()).then_some(at);
            }
            self.mkdir(&at, mode);
        }
        None
    }

    fn scratch_dirs(&mut self) {
        for (name, mode) in [("tmp", 0o1777), ("tmp/home", 0o700), ("vartmp", 0o1777), ("run", 0o755), ("shm", 0o1777)]
        {
            self.mkdir(name, mode);
        }
        for name in ["dev", "dev/pts", "dev/shm", "sys", "sys/devices", "sys/devices/system", "sys/devices/system/cpu"]
        {
            self.mkdir(name, 0o755);
        }
        for (name, says) in [
            ("dev/fd", "/proc/self/fd"),
            ("dev/stdin", "/proc/self/fd/0"),
            ("dev/stdout", "/proc/self/fd/1"),
            ("dev/stderr", "/proc/self/fd/2"),
            ("dev/ptmx", "pts/ptmx"),
        ] {
            self.skeleton.push(MountStep::Symlink { name: name.into(), says: says.into() });
        }
        for device in DEVICES.iter().copied().chain(["tty"]) {
            self.skeleton.push(MountStep::File { name: format!("dev/{device}"), text: String::new(), mode: 0o444 });
        }
    }

    fn host_root(&mut self, policy: &Policy) {
        self.mounts.push(MountStep::RootHost { attrs: HOST });
        self.view.push(host("/", "/"));
        // A mount point at the top that the host does not have: the root becomes a skeleton that shows the host's
        // top level entry by entry.
        let missing = |m: &cofferdam_policy::Mount| {
            let top = m.target()[1..].split('/').next().unwrap_or_default();
            fs::symlink_metadata(format!("/{top}")).is_err()
        };
        if policy.filesystem.mounts.iter().any(missing) {
            self.exploded_root();
        }
    }

    fn exploded_root(&mut self) {
        self.mounts.clear();
        self.view = View::default();
        self.own_root = true;
        self.mkdir(ROOTFS, 0o755);
        self.mounts.push(MountStep::RootScratch);
        self.view.push(own("/", false));
        for special in ["proc", "sys", "dev", "run", "tmp", "var"] {
            self.mkdir(&format!("{ROOTFS}/{special}"), 0o755);
        }
        let mut names: Vec<_> = fs::read_dir("/").into_iter().flatten().flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        for entry in names {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if ["proc", "sys", "dev", "run", "tmp"].contains(&name.as_str()) {
                continue;
            }
            self.system_entry(&format!("/{name}"));
        }
    }

    /// A top-level entry of the host's in the skeleton: a link as a link, anything else bound.
    fn system_entry(&mut self, path: &str) {
        let name = &path[1..];
        if let Ok(says) = fs::read_link(path) {
            if let Some(says) = says.to_str() {
                self.link(path, says);
            }
            return;
        }
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => self.mkdir(&format!("{ROOTFS}/{name}"), 0o755),
            Ok(meta) if meta.is_file() => {
                self.file(&format!("{ROOTFS}/{name}"), String::new(), 0o444);
            }
            _ => return,
        }
        self.bind_system(path, path, false);
    }

    fn bind_system(&mut self, source: &str, target: &str, optional: bool) {
        self.mounts.push(MountStep::Bind {
            source: MountSource::System(source.into()),
            target: target.into(),
            attrs: HOST,
            optional,
        });
        self.view.push(host(target, source));
    }

    /// A root of the sandbox's own, with its own files in /etc.
    fn own_skeleton(&mut self, policy: &Policy) {
        self.own_root = true;
        self.mkdir(ROOTFS, 0o755);
        for dir in ["proc", "sys", "dev", "run", "tmp", "var", "var/tmp", "etc", "usr"] {
            self.mkdir(&format!("{ROOTFS}/{dir}"), 0o755);
        }
        self.mounts.push(MountStep::RootScratch);
        self.view.push(own("/", false));
        self.own_etc(policy);
    }

    fn interpreter_root(&mut self, policy: &Policy) {
        self.own_skeleton(policy);
        for part in crate::plan::interpreter::parts(policy, &HostFacts::default()) {
            let path = part.path();
            match &part {
                Part::Link(_, says) => {
                    let (parent, _) = path.rsplit_once('/').unwrap_or_default();
                    self.tree(ROOTFS, parent, true, 0o755);
                    self.link(path, says);
                }
                Part::Directory(_) | Part::File(_) => {
                    self.mount_point_in(ROOTFS, &path[1..], matches!(part, Part::Directory(_)), 0o755);
                    self.bind_system(path, path, true);
                }
            }
        }
    }

    fn minimal_root(&mut self, policy: &Policy) {
        self.own_skeleton(policy);
        self.bind_system("/usr", "/usr", true);
        for top in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
            self.system_entry(top);
        }
        self.settings();
    }

    /// Files of /etc that the sandbox has of its own.
    fn own_etc(&mut self, policy: &Policy) {
        let names = [
            ("hosts", crate::plan::host_names::hosts(policy)),
            ("nsswitch.conf", crate::plan::host_names::ORDER.to_owned()),
            ("resolv.conf", crate::plan::host_names::resolver(policy)),
        ];
        for (name, text) in user_names::files(policy).into_iter().chain(names) {
            self.file(&format!("{ROOTFS}/etc/{name}"), text, 0o444);
        }
    }

    /// What programs need of the host's /etc.
    fn settings(&mut self) {
        // An /etc that cannot be listed has what every program needs all the same.
        let listed = fs::read_dir("/etc").into_iter().flatten().flatten();
        let names = listed.filter_map(|entry| entry.file_name().into_string().ok());
        for name in crate::plan::settings::shown(names) {
            let path = format!("/etc/{name}");
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_symlink() => {
                    if let Some(says) = fs::read_link(&path).ok().as_deref().and_then(Path::to_str) {
                        self.link(&path, says);
                    }
                }
                Ok(meta) => {
                    if meta.is_dir() {
                        self.mkdir(&format!("{ROOTFS}/etc/{name}"), 0o755);
                    } else {
                        self.file(&format!("{ROOTFS}/etc/{name}"), String::new(), 0o444);
                    }
                    self.bind_system(&path, &path, true);
                }
                Err(_) => {}
            }
        }
    }

    fn directory_root(&mut self, dir: &str) {
        // The source is filled in by the caller, who has looked at it. What is denied is looked for below the directory
        // itself, not below a link to it: the caller refuses when the two are not the same.
        let real = fs::canonicalize(dir).ok().and_then(|real| real.into_os_string().into_string().ok());
        let dir = real.unwrap_or_else(|| dir.to_owned());
        self.view.push(host("/", &dir));
        self.mounts
            .push(MountStep::RootDirectory { source: MountSource::Path { path: dir, identity: None }, attrs: HOST });
    }

    /// What every view has of its own: devices, proc, the parts of sys that programs ask for, scratch directories.
    fn common(&mut self, exec_scratch: bool, nested: bool) {
        let noexec = if exec_scratch { 0 } else { attr::NOEXEC };
        self.scratch("dev", "/dev", attr::RDONLY | attr::NOSUID | attr::NOEXEC, false);
        for device in DEVICES {
            let attrs = attr::NOSUID | attr::NOEXEC;
            self.mounts.push(MountStep::Device { name: (*device).into(), attrs });
        }
        self.mounts.push(MountStep::Devpts { target: "/dev/pts".into() });
        self.scratch("shm", "/dev/shm", OWN | attr::NOEXEC, true);
        self.mounts.push(MountStep::Proc { target: "/proc".into(), writable: nested });
        self.view.push(own("/proc", false));
        // The kernel lets a sandbox inside mount a proc of its own only where one is seen whole and can be written
        // (mount_namespaces(7)), and it writes its id maps there.
        if !nested {
            for path in PROC_MASKS {
                self.mounts.push(MountStep::Mask { target: (*path).into(), optional: true });
            }
            self.scratch("bootid", "/proc/sys/kernel/random/boot_id", HOST, false);
        }
        self.scratch("sys", "/sys", HOST, false);
        self.mounts.push(MountStep::Bind {
            source: MountSource::System("/sys/devices/system/cpu".into()),
            target: "/sys/devices/system/cpu".into(),
            attrs: HOST | attr::NOEXEC,
            optional: true,
        });
        self.scratch("run", "/run", OWN | attr::NOEXEC, true);
        self.scratch("tmp", "/tmp", OWN | noexec, true);
        self.scratch("vartmp", "/var/tmp", OWN | noexec, true);
    }

    fn scratch(&mut self, name: &str, target: &str, attrs: u64, writable: bool) {
        // A directory given as the root may lack a mount point: then there is nothing to hide there, and nothing to write.
        if writable && self.view.host_path(target).is_some_and(|host| !Path::new(&host).is_dir()) {
            return;
        }
        self.mounts.push(MountStep::Scratch { name: name.into(), target: target.into(), attrs, optional: true });
        if name != "bootid" {
            self.view.push(own(target, writable));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_where_they_are() {
        for (base, says, leads) in [
            ("", "usr/bin", "/usr/bin"),
            ("/etc", "../usr/x", "/usr/x"),
            ("/etc", "/usr/x/./y", "/usr/x/y"),
            ("/etc", "../../..", "/"),
        ] {
            assert_eq!(joined(base, says), leads, "{base} {says}");
        }
    }

    #[test]
    fn links_on_the_way_are_followed_and_the_last_name_is_not() {
        let mut policy = Policy::base();
        policy.filesystem.root = Root::Minimal;
        let mut build = Build::new(&policy, false, &Ids::fresh());
        build.links.clear();
        build.link("/a", "b/c");
        build.link("/b", "usr");
        build.link("/round", "round");
        for (path, place) in
            [("/a", "/a"), ("/a/x", "/usr/c/x"), ("/b/x/y", "/usr/x/y"), ("/ab/x", "/ab/x"), ("/usr/x", "/usr/x")]
        {
            assert_eq!(build.place_of(path), place, "{path}");
        }
        assert_eq!(build.place_of("/round/x"), "/round/x", "a link that leads to itself ends");
        // What a mount covers is not the skeleton's any more.
        build.view.push(own("/a", false));
        assert_eq!(build.place_of("/a/x"), "/a/x");
    }
}
