//! The sandbox's file system as a list of mounts that any mount-making tool can be told: what is shown where, what may be
//! written, and what deny and protected paths need of it.
//!
//! Pure but for the facts asked for. The jail has a plan of its own, with more to hold with (guards, layers, owner maps);
//! what cannot be held by mounts alone is listed in [`Layout::unheld`], and the field is then no more than partial.

use std::collections::BTreeSet;

use cofferdam_policy::{Access, Mount, NetworkMode, Policy, Root};

use super::facts::{Facts, Kind, Resolved, resolve};
use crate::interpreter::Part;
use crate::outcome::Failure;
use crate::view::{Place, Shows, View, below, join};

/// One thing to mount or make, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A file or directory of the host, nosuid and nodev.
    Bind {
        /// Canonical path on the host.
        source: String,
        /// Path inside.
        target: String,
        /// Whether it can be written.
        writable: bool,
        /// Whether programs on it can be executed.
        exec: bool,
        /// Whether it is a directory.
        directory: bool,
        /// Whether it may be left out, should nothing be there any more.
        optional: bool,
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
    },
    /// A directory in what was mounted before.
    Directory {
        /// Path inside.
        target: String,
        /// Mode.
        mode: u32,
    },
    /// A symbolic link in what was mounted before.
    Link {
        /// What it says.
        says: String,
        /// Path inside.
        target: String,
    },
    /// A read-only file with this text.
    Text {
        /// Path inside.
        target: String,
        /// Contents.
        text: String,
    },
    /// Devices of the sandbox's own.
    Dev,
    /// A procfs of the sandbox's own pid namespace.
    Proc,
    /// A file or directory that can be neither read nor written any more.
    Mask {
        /// Path inside.
        target: String,
        /// Whether it is a directory.
        directory: bool,
    },
}

/// The whole of it.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// In the order of mounting, on an empty root that ends read-only.
    pub items: Vec<Item>,
    /// What shows where.
    pub view: View,
    /// Denied paths that mounts alone cannot hold.
    pub unheld_deny: Vec<String>,
    /// Protected paths that mounts alone cannot hold.
    pub unheld_protected: Vec<String>,
    /// Protected files with further names, through which they could be written.
    pub linked: Vec<String>,
    /// Binds of the host below which something else is mounted.
    pub nested: Vec<String>,
    /// Writable binds on which nothing may be executed.
    pub closed: Vec<String>,
    /// Read-only binds in which something passes on what is written to it, or that hold too much to be looked through.
    pub passing: Vec<String>,
    /// Sources of optional mounts that are not there.
    pub left_out: Vec<String>,
    /// Where links of the root lead, for finding the program.
    pub(super) links: Vec<(String, String)>,
}

/// Of the scratch space, in eighths: /tmp, /dev/shm, /var/tmp, /run.
const SHARES: [(&str, u64, u32); 4] =
    [("/tmp", 4, 0o1777), ("/dev/shm", 2, 0o1777), ("/var/tmp", 1, 0o1777), ("/run", 1, 0o755)];
/// Bytes of a container's /dev/shm.
const SHM: u64 = 1 << 20;
/// Files of procfs that tell about the host and that every user may read there.
const PROC_MASKS: [&str; 3] = ["/proc/cmdline", "/proc/keys", "/proc/key-users"];
/// Of /etc, what programs need to run.
const ETC: [&str; 6] = ["ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl", "localtime"];
/// Tells one start of the host from another, and so one host from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Where processors are told about: what programs ask for to size their thread pools.
const CPUS: &str = "/sys/devices/system/cpu";

fn refuse(field: &str, message: String, hint: &str) -> Failure {
    Failure { code: 125, step: field.to_owned(), message, hint: Some(hint.to_owned()) }
}

/// Where a link in this directory leads that says this.
fn joined(directory: &str, says: &str) -> String {
    let leads = if says.starts_with('/') { says.to_owned() } else { format!("{directory}/{says}") };
    cofferdam_policy::paths::normalize(&leads).unwrap_or(leads)
}

/// Lays a policy out.
///
/// # Errors
/// A mount that cannot be made by mounts of this kind, or whose source or place is not there.
pub fn layout(policy: &Policy, facts: &dyn Facts) -> Result<Layout, Failure> {
    laid_out(policy, facts, false)
}

/// The same for a container, which can be made of an image, and whose maker mounts nothing in /proc.
///
/// # Errors
/// As [`layout`]; also the view of the whole host, over which a container's maker mounts nothing.
pub fn in_container(policy: &Policy, facts: &dyn Facts) -> Result<Layout, Failure> {
    laid_out(policy, facts, true)
}

fn laid_out(policy: &Policy, facts: &dyn Facts, container: bool) -> Result<Layout, Failure> {
    let mut b = Builder { policy, facts, container, out: Layout::default() };
    b.root()?;
    b.common();
    for (i, mount) in policy.filesystem.mounts.iter().enumerate() {
        b.mount(&format!("filesystem.mounts[{i}]"), mount)?;
    }
    b.hold();
    Ok(b.out)
}

struct Builder<'a> {
    policy: &'a Policy,
    facts: &'a dyn Facts,
    container: bool,
    out: Layout,
}

impl Builder<'_> {
    fn host(&mut self, source: &str, target: &str, directory: bool) {
        if self.facts.has_mounts_below(source) {
            self.out.nested.push(source.to_owned());
        }
        self.out.items.push(Item::Bind {
            source: source.into(),
            target: target.into(),
            writable: false,
            exec: true,
            directory,
            optional: false,
        });
        self.place(target, Shows::Host(source.into()), false);
    }

    fn place(&mut self, target: &str, shows: Shows, writable: bool) {
        let persistent = writable && matches!(shows, Shows::Host(_));
        self.out.view.push(Place { target: target.into(), shows, writable, persistent });
    }

    fn link(&mut self, says: &str, target: &str) {
        self.out.items.push(Item::Link { says: says.into(), target: target.into() });
        let (parent, _) = target.rsplit_once('/').unwrap_or_default();
        self.out.links.push((target.into(), joined(parent, says)));
    }

    fn text(&mut self, target: &str, text: String) {
        self.out.items.push(Item::Text { target: target.into(), text });
    }

    fn root(&mut self) -> Result<(), Failure> {
        match &self.policy.filesystem.root {
            Root::Host if self.container => {
                return Err(refuse(
                    "filesystem.root",
                    "a container has no view of the whole host".into(),
                    "--root minimal for the system's programs, --image for those of an image, -v for directories",
                ));
            }
            Root::Image(image) if !self.container => {
                return Err(refuse(
                    "filesystem.root",
                    format!("containers are made of images such as {image}, and this backend makes none"),
                    "use --backend docker, podman or oci, or name a directory that holds its files: --root ./DIR",
                ));
            }
            Root::Image(_) => {
                self.place("/", Shows::Own, false);
                self.names();
            }
            Root::Host => {
                self.place("/", Shows::Own, false);
                for name in self.facts.list("/") {
                    if !["proc", "sys", "dev", "run", "tmp"].contains(&name.as_str()) {
                        self.top(&format!("/{name}"));
                    }
                }
            }
            Root::Minimal => {
                self.place("/", Shows::Own, false);
                if self.facts.kind("/usr") == Kind::Directory {
                    self.host("/usr", "/usr", true);
                }
                for top in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
                    self.top(top);
                }
                self.etc();
            }
            Root::Interpreter => {
                self.place("/", Shows::Own, false);
                self.own_etc();
                for part in crate::interpreter::parts(self.policy, self.facts) {
                    match part {
                        Part::Directory(path) => self.host(&path, &path, true),
                        Part::File(path) => self.host(&path, &path, false),
                        Part::Link(path, says) => self.link(&says, &path),
                    }
                }
            }
            Root::Directory(dir) => {
                let Resolved::There(canonical, Kind::Directory) = resolve(self.facts, dir).0 else {
                    return Err(refuse(
                        "filesystem.root",
                        format!("{dir} is not a directory"),
                        "create it, or correct the path",
                    ));
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
        let files = crate::names::captured(self.policy);
        for (index, (path, _, text)) in files.into_iter().enumerate() {
            let hosts = crate::names::are_the_hosts(self.policy);
            let there = match self.out.view.host_path(path) {
                Some(host) => {
                    matches!(resolve(self.facts, &host), (Resolved::There(_, Kind::File { .. }), links) if links.is_empty())
                }
                None => true,
            };
            match index {
                _ if !there || (hosts && index > 1) => {}
                // The host's network has the host's names.
                0 | 1 if hosts => match resolve(self.facts, path).0 {
                    Resolved::There(canonical, Kind::File { .. }) => self.host(&canonical, path, false),
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
            Kind::Link(says) => self.link(&says, path),
            Kind::Directory => self.host(path, path, true),
            Kind::File { .. } => self.host(path, path, false),
            Kind::Special | Kind::Missing | Kind::Unknown => {}
        }
    }

    fn etc(&mut self) {
        self.own_etc();
        for name in ETC {
            self.top(&format!("/etc/{name}"));
        }
    }

    /// Files of /etc that the sandbox has of its own.
    fn own_etc(&mut self) {
        let home = self.policy.command.variables.get("HOME").map_or("/tmp/home", String::as_str);
        self.out.items.push(Item::Directory { target: "/etc".into(), mode: 0o755 });
        for (name, text) in [
            (
                "passwd",
                format!(
                    "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nsandbox:x:1000:1000::{home}:/bin/sh\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
                ),
            ),
            ("group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n".to_owned()),
            ("hosts", "127.0.0.1 localhost\n::1 localhost\n".to_owned()),
            ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_owned()),
            ("resolv.conf", "# none\n".to_owned()),
        ] {
            let path = format!("/etc/{name}");
            let hosts = crate::names::are_the_hosts(self.policy) && crate::names::FILES.contains(&path.as_str());
            let captured = (self.container && self.policy.network.mode == NetworkMode::Allowlist)
                .then(|| crate::names::captured(self.policy));
            let own = captured.and_then(|files| files.into_iter().find(|(file, ..)| *file == path));
            let text = own.map_or(text, |(.., text)| text);
            match resolve(self.facts, &path).0 {
                Resolved::There(canonical, Kind::File { .. }) if hosts => self.host(&canonical, &path, false),
                _ => self.text(&path, text),
            }
        }
    }

    /// What every view has of its own.
    fn common(&mut self) {
        self.out.items.push(Item::Dev);
        self.place("/dev", Shows::Own, false);
        self.out.items.push(Item::Proc);
        self.place("/proc", Shows::Own, false);
        for path in PROC_MASKS.iter().filter(|path| matches!(self.facts.kind(path), Kind::File { .. })) {
            self.out.items.push(Item::Mask { target: (*path).into(), directory: false });
        }
        if matches!(self.facts.kind(BOOT_ID), Kind::File { .. }) && self.container {
            self.out.items.push(Item::Mask { target: BOOT_ID.into(), directory: false });
        } else if matches!(self.facts.kind(BOOT_ID), Kind::File { .. }) {
            self.text(BOOT_ID, "00000000-0000-4000-8000-000000000000\n".into());
        }
        self.tmpfs("/sys", 1 << 16, 0o755, false);
        self.place("/sys", Shows::Own, false);
        if self.facts.kind(CPUS) == Kind::Directory {
            self.host(CPUS, CPUS, true);
        }
        let scratch = self.policy.limits.tmpfs_mb << 20;
        let shares: Vec<(&str, u64, u32)> = if self.container {
            // Semaphores are all that most programs make in /dev/shm.
            let shared = SHM.min(scratch / 2);
            vec![("/tmp", scratch - shared, 0o1777), ("/dev/shm", shared, 0o1777)]
        } else {
            SHARES.map(|(target, eighths, mode)| (target, scratch / 8 * eighths, mode)).to_vec()
        };
        for (target, bytes, mode) in shares {
            // A directory given as the root may lack a mount point: then there is nothing to hide, and nothing to write.
            let lacks = matches!(self.policy.filesystem.root, Root::Directory(_))
                && self.out.view.host_path(target).is_some_and(|host| self.facts.kind(&host) != Kind::Directory);
            if !lacks {
                self.tmpfs(target, bytes, mode, false);
                self.place(target, Shows::Own, true);
            }
            if !lacks && target == "/tmp" {
                self.out.items.push(Item::Directory { target: "/tmp/home".into(), mode: 0o700 });
            }
        }
        if self.policy.filesystem.root == Root::Host {
            for (path, text) in [
                ("/etc/hostname", format!("{}\n", self.policy.process.hostname)),
                ("/etc/machine-id", format!("{}\n", "0".repeat(32))),
            ] {
                if matches!(self.facts.kind(path), Kind::File { .. }) {
                    self.text(path, text);
                }
            }
        }
    }

    fn tmpfs(&mut self, target: &str, bytes: u64, mode: u32, exec: bool) {
        self.out.items.push(Item::Tmpfs { target: target.into(), bytes, mode, exec });
    }

    fn mount(&mut self, field: &str, mount: &Mount) -> Result<(), Failure> {
        match mount {
            Mount::Tmpfs { target, size_mb, exec } => {
                self.has_place(field, target, true)?;
                self.tmpfs(target, size_mb << 20, 0o1777, *exec);
                self.place(target, Shows::Own, true);
            }
            Mount::Bind { source, target, access, exec, optional } => {
                if *access == Access::CopyOnWrite {
                    return Err(refuse(
                        field,
                        "a copy-on-write mount needs a layer over it, which only the jail makes".into(),
                        "use --backend jail, or mount it :ro or :rw",
                    ));
                }
                let (canonical, kind) = match resolve(self.facts, source).0 {
                    Resolved::There(canonical, kind) => (canonical, kind),
                    Resolved::Missing(..) if *optional => {
                        self.out.left_out.push(source.clone());
                        return Ok(());
                    }
                    _ => {
                        return Err(refuse(
                            field,
                            format!("mount source {source} does not exist"),
                            "create it, or correct the path",
                        ));
                    }
                };
                let directory = kind == Kind::Directory;
                if !directory && !matches!(kind, Kind::File { .. }) {
                    let message = format!(
                        "mount source {source} is neither a file nor a directory; a device, FIFO or socket would be a way out"
                    );
                    return Err(refuse(field, message, "bind the directory that holds the data instead"));
                }
                self.has_place(field, target, directory)?;
                let writable = *access == Access::ReadWrite;
                if self.facts.has_mounts_below(&canonical) {
                    self.out.nested.push(canonical.clone());
                }
                if !writable && directory && self.facts.may_pass_on(&canonical) {
                    self.out.passing.push(target.clone());
                }
                if writable && !exec {
                    self.out.closed.push(target.clone());
                }
                self.out.items.push(Item::Bind {
                    source: canonical.clone(),
                    target: target.clone(),
                    writable,
                    exec: !writable || *exec,
                    directory,
                    optional: *optional,
                });
                self.place(target, Shows::Host(canonical), writable);
            }
        }
        Ok(())
    }

    /// Where the host's own tree shows, a mount needs a place that exists. It needs that name itself: through a link the
    /// mount would lie elsewhere, and what is denied or protected there would be looked for here.
    fn has_place(&self, field: &str, target: &str, directory: bool) -> Result<(), Failure> {
        let behind = |leads: &str| {
            let message = format!("mount target {target} is a symbolic link inside, or lies behind one");
            Err(refuse(field, message, &format!("mount it where that leads: {leads}")))
        };
        let own = self.out.links.iter().find(|(link, _)| below(target, link).is_some());
        if let Some((link, says)) =
            own.filter(|(link, _)| self.out.view.covering(link).is_some_and(|p| p.target == "/"))
        {
            let rest = below(target, link).unwrap_or_default();
            return behind(&join(&if says.starts_with('/') { says.clone() } else { join("/", says) }, rest));
        }
        let Some(host) = self.out.view.host_path(target) else { return Ok(()) };
        let (found, links) = resolve(self.facts, &host);
        if let (Resolved::There(canonical, _), false) = (&found, links.is_empty()) {
            return behind(self.out.view.appearances(canonical).first().unwrap_or(canonical));
        }
        let suits = match &found {
            Resolved::There(_, kind) => (*kind == Kind::Directory) == directory,
            _ => false,
        };
        if suits {
            return Ok(());
        }
        let what = if directory { "a directory" } else { "a file" };
        Err(refuse(
            field,
            format!("mount target {target} is not {what} inside"),
            match self.policy.command.cwd.as_deref() == Some(target) {
                true => "it is the working directory: start elsewhere with -w /, or make that directory in the root",
                false => "choose a target that exists, one below /tmp, or a new one at the top such as /data",
            },
        ))
    }

    fn hold(&mut self) {
        let fs = &self.policy.filesystem;
        let mut held = Held::default();
        let (absolute, relative): (Vec<&String>, Vec<&String>) = fs.protected.iter().partition(|p| p.starts_with('/'));
        let trees: Vec<String> = self
            .out
            .view
            .places()
            .iter()
            .filter(|p| p.writable && matches!(&p.shows, Shows::Host(s) if self.facts.kind(s) == Kind::Directory))
            .map(|p| p.target.clone())
            .collect();
        for path in &fs.deny {
            self.each(path, true, &mut held);
        }
        for path in absolute {
            self.each(path, false, &mut held);
        }
        for tree in &trees {
            for path in &relative {
                self.each(&join(tree, path), false, &mut held);
            }
        }
        self.finish(held);
    }

    /// A path as meant inside and as meant on the host.
    fn each(&mut self, path: &str, deny: bool, held: &mut Held) {
        match self.out.view.host_path(path) {
            Some(host) if host != path => self.host_path(&host, path, deny, held),
            // A name in a container's own memory is its own: nothing of the host's is there, nor comes from there.
            None if self.out.view.covering(path).is_some_and(|p| p.writable) && !self.container => {
                self.unheld(path, deny);
            }
            None if deny && self.container => self.own_path(path, held),
            _ => {}
        }
        self.host_path(path, path, deny, held);
    }

    /// A denied path in what is shown of no host's: a text of the container's own, or whatever an image has there, which
    /// nobody looked at. Its maker hides it if it is there, as a directory or as a file.
    fn own_path(&self, path: &str, held: &mut Held) {
        let text = |item: &Item| matches!(item, Item::Text { target, .. } if target == path);
        if self.out.items.iter().any(text) {
            held.masks.insert((path.to_owned(), false));
        } else if matches!(self.policy.filesystem.root, Root::Image(_))
            && self.out.view.covering(path).is_some_and(|place| place.target == "/")
        {
            held.masks.insert((path.to_owned(), true));
        }
    }

    fn unheld(&mut self, path: &str, deny: bool) {
        let list = if deny { &mut self.out.unheld_deny } else { &mut self.out.unheld_protected };
        if !list.iter().any(|known| known == path) {
            list.push(path.to_owned());
        }
    }

    fn host_path(&mut self, host: &str, named: &str, deny: bool, held: &mut Held) {
        let (found, links) = resolve(self.facts, host);
        // Whoever may replace a link on the way decides what is at the path.
        if links.iter().any(|(parent, _)| self.shows_writable(parent)) {
            self.unheld(named, deny);
        }
        match found {
            Resolved::Unknown => {
                let (parent, _) = host.rsplit_once('/').unwrap_or(("/", host));
                if self.shows_writable(parent) {
                    self.unheld(named, deny);
                }
            }
            Resolved::Missing(parent, _) => {
                if self.shows_writable(&parent) {
                    self.unheld(named, deny);
                }
            }
            Resolved::There(canonical, kind) => {
                for inside in self.everywhere(&canonical) {
                    let writable = self.out.view.covering(&inside).is_some_and(|p| p.writable);
                    if deny {
                        held.masks.insert((inside.clone(), kind == Kind::Directory));
                    } else if writable {
                        if matches!(kind, Kind::File { links: 2.., .. }) {
                            self.out.linked.push(inside.clone());
                        }
                        held.seals.insert((inside.clone(), kind == Kind::Directory));
                    }
                    if writable {
                        self.pin(&inside, held);
                    }
                }
            }
        }
    }

    fn everywhere(&self, canonical: &str) -> Vec<String> {
        let mut found = self.out.view.appearances(canonical);
        for twin in self.facts.twins(canonical) {
            found.extend(self.out.view.appearances(&twin));
        }
        found.sort();
        found.dedup();
        found
    }

    fn shows_writable(&self, directory: &str) -> bool {
        self.everywhere(directory).iter().any(|inside| self.out.view.covering(inside).is_some_and(|p| p.writable))
    }

    /// Each directory between the writable mount and the path becomes a mount, so that it cannot be moved away.
    fn pin(&self, inside: &str, held: &mut Held) {
        let Some(place) = self.out.view.covering(inside) else { return };
        let Some(rest) = below(inside, &place.target) else { return };
        let parts: Vec<&str> = rest.split('/').collect();
        let mut at = place.target.clone();
        for part in &parts[..parts.len().saturating_sub(1)] {
            at = join(&at, part);
            held.pins.insert(at.clone());
        }
    }

    fn finish(&mut self, mut held: Held) {
        // What the program's user cannot come to needs no hiding, and nothing can be mounted there as that user.
        let comes_to = |inside: &String| {
            let mut above = cofferdam_policy::paths::ancestors(inside).skip(1);
            above.all(|at| self.out.view.host_path(at).is_none_or(|host| !self.facts.is_closed(&host)))
        };
        held.masks.retain(|(mask, _)| comes_to(mask));
        held.seals.retain(|(seal, _)| comes_to(seal));
        held.pins.retain(comes_to);
        if self.container {
            // An engine mounts one thing at a place: a denied file is not shown first and hidden then.
            self.out.items.retain(|item| match item {
                Item::Text { target, .. } | Item::Bind { target, directory: false, .. } => {
                    !held.masks.contains(&(target.clone(), false))
                }
                _ => true,
            });
        }
        let covered = |path: &str| held.masks.iter().any(|(mask, _)| mask != path && below(path, mask).is_some());
        let binds = held.pins.iter().map(|pin| (pin, true, true));
        let binds = binds.chain(held.seals.iter().map(|(seal, directory)| (seal, false, *directory)));
        for (inside, writable, directory) in binds.filter(|(inside, ..)| !covered(inside)) {
            let Some(source) = self.out.view.host_path(inside) else { continue };
            // What could not be executed before cannot be now.
            let exec = !self.out.closed.iter().any(|closed| below(inside, closed).is_some());
            let target = inside.clone();
            self.out.items.push(Item::Bind { source, target, writable, exec, directory, optional: false });
        }
        for (target, directory) in held.masks.iter().filter(|(mask, _)| !covered(mask)) {
            self.out.items.push(Item::Mask { target: target.clone(), directory: *directory });
        }
    }
}

/// Paths inside that need something mounted over them; shorter ones first.
#[derive(Default)]
struct Held {
    pins: BTreeSet<String>,
    seals: BTreeSet<(String, bool)>,
    masks: BTreeSet<(String, bool)>,
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::Policy;

    use super::super::facts::Table;
    use super::*;

    fn policy(access: Access) -> Policy {
        let mut policy = Policy::base();
        policy.command.argv = vec!["sh".into()];
        policy.filesystem.mounts = vec![Mount::Bind {
            source: "/home/u/w".into(),
            target: "/work".into(),
            access,
            exec: true,
            optional: false,
        }];
        policy
    }

    fn targets(layout: &Layout, wanted: impl Fn(&Item) -> Option<&String>) -> Vec<String> {
        layout.items.iter().filter_map(wanted).cloned().collect()
    }

    #[test]
    fn protected_paths_that_exist_are_sealed_and_what_leads_to_them_is_pinned() {
        let host = Table::usual(&["/home/u/w/.git/hooks/", "/home/u/w/.bashrc"]);
        let layout = layout(&policy(Access::ReadWrite), &host).unwrap();
        let sealed = targets(&layout, |i| match i {
            Item::Bind { target, writable: false, .. } if target.starts_with("/work") => Some(target),
            _ => None,
        });
        assert_eq!(sealed, ["/work/.bashrc", "/work/.git/hooks"]);
        let pinned = targets(&layout, |i| match i {
            Item::Bind { target, writable: true, .. } => Some(target),
            _ => None,
        });
        assert_eq!(pinned, ["/work", "/work/.git"]);
        assert!(layout.unheld_protected.contains(&"/work/.zshrc".to_owned()), "it could be made");
        assert!(!layout.unheld_protected.contains(&"/work/.bashrc".to_owned()));
    }

    #[test]
    fn a_mount_is_made_on_no_link_and_behind_none() {
        let mut host = Table::usual(&["/home/u/w/", "/usr/bin/", "/usr/bin/perl", "/home/u/place/"]);
        host.add("/home/u/link", Kind::Link("place".into()));
        for (root, target, leads) in [
            (Root::Host, "/home/u/link", Some("/home/u/place")),
            (Root::Host, "/home/u/place", None),
            (Root::Minimal, "/bin", Some("/usr/bin")),
            (Root::Minimal, "/usr/bin", None),
            (Root::Minimal, "/work", None),
        ] {
            let mut policy = policy(Access::ReadOnly);
            policy.filesystem.root = root;
            let Mount::Bind { target: at, .. } = &mut policy.filesystem.mounts[0] else { unreachable!() };
            *at = target.into();
            let hint = layout(&policy, &host).err().and_then(|refusal| refusal.hint);
            assert_eq!(hint, leads.map(|leads| format!("mount it where that leads: {leads}")), "{target}");
        }
    }

    #[test]
    fn an_optional_mount_is_left_out_only_where_nothing_is() {
        let mut host = Table::usual(&["/home/u/w/", "/home/u/file"]);
        host.add("/home/u/hidden", Kind::Unknown);
        host.add("/home/u/fifo", Kind::Special);
        let with = |source: &str, optional: bool| {
            let mut policy = policy(Access::ReadOnly);
            if let Mount::Bind { source: from, optional: is, .. } = &mut policy.filesystem.mounts[0] {
                (*from, *is) = (source.into(), optional);
            }
            layout(&policy, &host)
        };
        let there = with("/home/u/w", true).unwrap();
        let bound = |l: &Layout| l.items.iter().any(|i| matches!(i, Item::Bind { target, .. } if target == "/work"));
        assert!(bound(&there) && there.left_out.is_empty());
        let gone = with("/home/u/gone", true).unwrap();
        assert!(!bound(&gone) && gone.view.covering("/work").is_none_or(|place| place.target == "/"));
        assert_eq!(gone.left_out, ["/home/u/gone"]);
        assert!(with("/home/u/gone", false).unwrap_err().message.contains("does not exist"));
        for there in ["/home/u/hidden", "/home/u/fifo", "/home/u/file/below"] {
            assert!(with(there, true).is_err(), "{there}");
        }
    }

    #[test]
    fn nothing_needs_holding_in_what_cannot_be_written() {
        let host = Table::usual(&["/home/u/w/.git/hooks/"]);
        let layout = layout(&policy(Access::ReadOnly), &host).unwrap();
        assert!(layout.unheld_protected.is_empty() && layout.linked.is_empty());
        assert!(!layout.items.iter().any(|i| matches!(i, Item::Bind { target, .. } if target.contains(".git"))));
    }

    #[test]
    fn a_denied_path_is_masked_wherever_it_shows() {
        let mut policy = policy(Access::ReadWrite);
        policy.filesystem.root = Root::Host;
        policy.filesystem.deny = vec!["/home/u/w/secret".into(), "/home/u/w/later".into()];
        let layout = layout(&policy, &Table::usual(&["/home/u/w/secret"])).unwrap();
        let masks = targets(&layout, |i| match i {
            Item::Mask { target, .. } if !target.starts_with("/proc") => Some(target),
            _ => None,
        });
        assert_eq!(masks, ["/home/u/w/secret", "/work/secret"]);
        assert_eq!(layout.unheld_deny, ["/home/u/w/later"], "it could be made through /work");
    }

    #[test]
    fn names_in_a_containers_own_memory_are_its_own() {
        let mut policy = policy(Access::ReadWrite);
        policy.filesystem.deny = vec!["/tmp/home/.aws".into(), "/home/u/w/later".into()];
        let host = Table::usual(&["/home/u/w/"]);
        assert_eq!(layout(&policy, &host).unwrap().unheld_deny, ["/tmp/home/.aws", "/home/u/w/later"]);
        assert_eq!(
            in_container(&policy, &host).unwrap().unheld_deny,
            ["/home/u/w/later"],
            "it could be made through /work"
        );
    }

    #[test]
    fn a_denied_path_of_an_image_is_masked_whatever_it_is_and_a_text_as_a_file() {
        let mut policy = policy(Access::ReadOnly);
        policy.filesystem.root = Root::Image("alpine".into());
        policy.filesystem.deny = ["/etc/secret", "/etc/hosts", "/dev/null", "/work/secret"].map(String::from).into();
        let host = Table::usual(&["/home/u/w/secret"]);
        let masks = |layout: &Layout| -> Vec<(String, bool)> {
            let mask = |item: &Item| match item {
                Item::Mask { target, directory } if !target.starts_with("/proc") => Some((target.clone(), *directory)),
                _ => None,
            };
            layout.items.iter().filter_map(mask).collect()
        };
        let layout = in_container(&policy, &host).unwrap();
        let expected = [("/etc/hosts", false), ("/etc/secret", true), ("/work/secret", false)];
        assert_eq!(masks(&layout), expected.map(|(path, directory)| (path.to_owned(), directory)));
        assert!(layout.unheld_deny.is_empty());
        let at = |layout: &Layout, path: &str| {
            let here = |item: &&Item| match item {
                Item::Bind { target, .. } | Item::Text { target, .. } | Item::Mask { target, .. } => target == path,
                _ => false,
            };
            layout.items.iter().filter(here).count()
        };
        assert_eq!((at(&layout, "/etc/hosts"), at(&layout, "/etc/resolv.conf")), (1, 1));
        policy.filesystem.root = Root::Minimal;
        policy.filesystem.deny = ["/etc/passwd", "/srv/nothing"].map(String::from).into();
        assert_eq!(masks(&in_container(&policy, &host).unwrap()), [("/etc/passwd".to_owned(), false)]);
    }

    #[test]
    fn the_program_is_found_through_the_roots_links() {
        let host = Table::usual(&["/usr/bin/data"]);
        let mut policy = policy(Access::ReadOnly);
        policy.filesystem.mounts.clear();
        let found = |policy: &Policy| layout(policy, &host).unwrap().program(policy, &host);
        assert_eq!(found(&policy), Ok(Some("/usr/bin/sh".into())));
        policy.command.argv = vec!["/bin/sh".into()];
        assert_eq!(found(&policy), Ok(Some("/bin/sh".into())));
        policy.command.argv = vec!["nothing".into()];
        assert_eq!(found(&policy).unwrap_err().code, 127);
        policy.command.argv = vec!["/usr/bin/data".into()];
        assert_eq!(found(&policy).unwrap_err().code, 126);
        policy.command.argv = vec!["/tmp/made".into()];
        assert_eq!(found(&policy), Ok(None), "scratch space can hold anything by then");
    }

    #[test]
    fn scratch_space_adds_up_to_its_limit() {
        let mut policy = policy(Access::ReadOnly);
        policy.filesystem.mounts.clear();
        policy.limits.tmpfs_mb = 64;
        let layout = layout(&policy, &Table::usual(&[])).unwrap();
        let sum: u64 = layout
            .items
            .iter()
            .filter_map(|i| match i {
                Item::Tmpfs { bytes, target, .. } if target != "/sys" => Some(*bytes),
                _ => None,
            })
            .sum();
        assert_eq!(sum, 64 << 20);
    }
}
