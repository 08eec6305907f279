//! From a policy to what the jail will do: recipe, sources, second wall, rlimits, and what of it holds in full.
//!
//! Looks at the host's files (which exist, who owns them) and changes nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cofferdam_confine::host::Identity;
use cofferdam_confine::landlock::{self, access};
use cofferdam_confine::recipe::{self, PathRule, Recipe, Source, Step, attr};
use cofferdam_confine::wire::flag;
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, Field, Mount, NetworkMode, Policy, Root, SeccompLevel};

use super::paths::{self, Held, Unheld};
use super::root::{Build, HOST, Ids};
use crate::outcome::{Applied, Enforcement, Failure, Strength};
use crate::view::{Place, Shows, View};

/// The sandbox's own user and group, as it sees itself.
pub const INSIDE: u32 = 1000;

/// A source that a privileged owner prepares itself, before clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// Canonical path on the host.
    pub path: String,
    /// `(device, inode)` when it was looked at.
    pub identity: (u64, u64),
    /// Owner of it: becomes the sandbox's user on this mount.
    pub owner: (u32, u32),
    /// Whether the run cannot do without that.
    pub required: bool,
    /// JSON path, for errors.
    pub field: String,
}

/// A copy-on-write mount.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Index of its mount step.
    pub op: usize,
    /// Path inside.
    pub target: String,
    /// Path on the host.
    pub source: String,
}

/// What the jail will do for one run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For init.
    pub recipe: Recipe,
    /// Sources of a privileged owner.
    pub prepared: Vec<Prepared>,
    /// Whether a network namespace is made.
    pub own_net: bool,
    /// Copy-on-write mounts.
    pub layers: Vec<Layer>,
    /// What shows where.
    pub view: View,
    /// Denied and protected paths as seen inside.
    pub denied: std::collections::BTreeSet<String>,
    /// See `denied`.
    pub protected: std::collections::BTreeSet<String>,
    /// Crowds of denied names: one layer each; the step index of each whiteout and its names.
    pub crowds: Vec<(usize, Vec<String>)>,
    /// What holds, as far as the plan can tell; limits that a cgroup gives are filled in by the run.
    pub enforcement: Enforcement,
}

fn refuse(field: &str, message: String, hint: Option<&str>) -> Failure {
    Failure { code: 125, step: field.to_owned(), message, hint: hint.map(str::to_owned) }
}

/// `st_dev` as init compares it.
fn device(dev: u64) -> u64 {
    u64::from(rustix::fs::major(dev)) << 32 | u64::from(rustix::fs::minor(dev))
}

struct Looked {
    path: String,
    identity: (u64, u64),
    owner: (u32, u32),
    is_dir: bool,
}

fn look(source: &str, field: &str) -> Result<Looked, Failure> {
    let fail = |e: std::io::Error| {
        refuse(field, format!("mount source {source} cannot be used: {e}"), Some("create it, or correct the path"))
    };
    let real = std::fs::canonicalize(source).map_err(fail)?;
    let meta = std::fs::symlink_metadata(&real).map_err(fail)?;
    let Some(path) = real.to_str().map(str::to_owned) else {
        return Err(refuse(field, format!("mount source {source} leads to a path that is not UTF-8"), None));
    };
    use std::os::unix::fs::FileTypeExt;
    let kind = meta.file_type();
    if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
        return Err(refuse(
            field,
            format!(
                "mount source {source} is neither a file nor a directory; a device, FIFO or socket would be a way out"
            ),
            Some("bind the directory that holds the data instead"),
        ));
    }
    Ok(Looked {
        path,
        identity: (device(meta.dev()), meta.ino()),
        owner: (meta.uid(), meta.gid()),
        is_dir: meta.is_dir(),
    })
}

/// Whether everybody may enter a directory and all above it.
fn open_to_all(path: &str, read: bool) -> bool {
    Path::new(path).ancestors().enumerate().all(|(i, dir)| {
        let want = if i == 0 && read { 0o5 } else { 0o1 };
        std::fs::metadata(dir).is_ok_and(|m| m.mode() & want == want || (i == 0 && m.is_file() && m.mode() & 0o4 != 0))
    })
}

struct Planner<'a> {
    policy: &'a Policy,
    me: Identity,
    build: Build,
    prepared: Vec<Prepared>,
    layers: Vec<(usize, String, String)>,
    second_wall: Vec<PathRule>,
    foreign: Vec<String>,
    /// Closed directories that an empty one stands in for, and its name in the scratch.
    hides: Vec<(String, String)>,
    /// Sources of optional mounts that are not there.
    left_out: Vec<String>,
}

/// What init can begin with before the rest of a policy is known: the root view. `None` for a view that takes more, such
/// as a source that has to be looked at, and where init has no place for its scratch that hides no source.
pub fn beginning(likely: &Policy, me: Identity, ids: &Ids) -> Option<Recipe> {
    if matches!(likely.filesystem.root, Root::Directory(_)) || !Path::new("/sys").is_dir() {
        return None;
    }
    let (mounts, system_mounts) = Build::new(likely, false, ids).steps();
    Some(Recipe { flags: start(me) | flag::BEGINNING, mounts, system_mounts, ..outline(likely, me)? })
}

/// What of a recipe init needs to begin with.
fn outline(policy: &Policy, me: Identity) -> Option<Recipe> {
    Some(Recipe {
        flags: start(me),
        ids_in: (INSIDE, INSIDE),
        ids_out: super::outside(me)?,
        scratch_bytes: policy.limits.tmpfs_mb << 20,
        scratch_inodes: (policy.limits.tmpfs_mb * 256).max(4096),
        ..Recipe::default()
    })
}

fn start(me: Identity) -> u32 {
    flag::JAIL | flag::NO_USERNS | if me.privileged { flag::MAPS_BY_OWNER | flag::SYNC } else { 0 }
}

/// Plans one run.
///
/// # Errors
/// A mount source that cannot be used, or something that no jail can hold.
pub fn plan(policy: &Policy, me: Identity, filters: &crate::engine::Filters, ids: &Ids) -> Result<Plan, Failure> {
    let exec_scratch = false;
    let mut p = Planner {
        policy,
        me,
        build: Build::new(policy, exec_scratch, ids),
        prepared: Vec::new(),
        layers: Vec::new(),
        second_wall: Vec::new(),
        foreign: Vec::new(),
        hides: Vec::new(),
        left_out: Vec::new(),
    };
    p.root_source()?;
    for (i, mount) in policy.filesystem.mounts.iter().enumerate() {
        p.mount(i, mount)?;
    }
    let held = paths::hold(policy, &p.build.view, &p.build.own_entries());
    if let Some((path, why, deny)) = held.unheld.first() {
        let field = if *deny { "filesystem.deny" } else { "filesystem.protected" };
        let (message, hint) = match why {
            Unheld::OfEachProcess => (
                format!("{path} is another file for each process that asks: it cannot be held"),
                "leave it out: no process sees another one's, and the supervisor's is not there",
            ),
            Unheld::Root => (
                format!("{path} is what the sandbox has as its root: nothing could run with everything denied"),
                "deny paths below it",
            ),
        };
        return Err(refuse(field, message, Some(hint)));
    }
    p.finish(held, filters)
}

impl Planner<'_> {
    fn source(&mut self, looked: &Looked, field: &str, writable: bool) -> Source {
        if self.me.privileged {
            self.prepared.push(Prepared {
                path: looked.path.clone(),
                identity: looked.identity,
                owner: looked.owner,
                required: writable,
                field: field.to_owned(),
            });
            return Source::Prepared(self.prepared.len() - 1);
        }
        Source::Path { path: looked.path.clone(), identity: Some(looked.identity) }
    }

    fn root_source(&mut self) -> Result<(), Failure> {
        let Root::Directory(dir) = &self.policy.filesystem.root else { return Ok(()) };
        let looked = look(dir, "filesystem.root")?;
        if !looked.is_dir {
            return Err(refuse("filesystem.root", format!("{dir} is not a directory"), None));
        }
        let source = self.source(&looked, "filesystem.root", false);
        self.build.mounts[0] = Step::RootDirectory { source, attrs: HOST };
        Ok(())
    }

    fn mount(&mut self, index: usize, mount: &Mount) -> Result<(), Failure> {
        let field = format!("filesystem.mounts[{index}]");
        let target = self.build.place_of(mount.target());
        match mount {
            Mount::Tmpfs { size_mb, exec, .. } => {
                let noexec = if *exec { 0 } else { attr::NOEXEC };
                self.make_target(&target, true, &field)?;
                self.build.mounts.push(Step::Tmpfs {
                    target: target.clone(),
                    bytes: size_mb << 20,
                    mode: 0o1777,
                    attrs: attr::NOSUID | attr::NODEV | noexec,
                    handed: None,
                });
                self.build.view.push(Place { target, shows: Shows::Own, writable: true, persistent: false });
                Ok(())
            }
            Mount::Bind { source, optional: true, .. } if crate::optional::is_missing(source) => {
                self.left_out.push(source.clone());
                Ok(())
            }
            Mount::Bind { source, access, exec, .. } => self.bind(source, &target, *access, *exec, &field),
        }
    }

    fn bind(&mut self, source: &str, target: &str, how: Access, exec: bool, field: &str) -> Result<(), Failure> {
        let looked = look(source, field)?;
        if how == Access::ReadOnly && source == target && looked.path == source && self.shows_already(target) {
            return Ok(());
        }
        if how == Access::CopyOnWrite && !looked.is_dir {
            return Err(refuse(
                field,
                format!("{source} is a file; copy-on-write needs a directory"),
                Some("mount its directory with :cow"),
            ));
        }
        self.make_target(target, looked.is_dir, field)?;
        let writable = how != Access::ReadOnly;
        let src = self.source(&looked, field, writable);
        let noexec = if writable && !exec { attr::NOEXEC } else { 0 };
        let attrs = attr::NOSUID | attr::NODEV | noexec | if writable { 0 } else { attr::RDONLY };
        if how == Access::CopyOnWrite {
            self.scan_foreign(&looked);
            let (bytes, inodes) = (self.policy.limits.layer_mb << 20, self.policy.limits.layer_inodes);
            self.layers.push((self.build.mounts.len(), target.to_owned(), looked.path.clone()));
            self.build.mounts.push(Step::Overlay { source: src, target: target.into(), attrs, bytes, inodes });
        } else {
            self.build.mounts.push(Step::Bind { source: src, target: target.into(), attrs, optional: false });
        }
        self.build.view.push(Place {
            target: target.into(),
            shows: Shows::Host(looked.path),
            writable,
            persistent: how == Access::ReadWrite,
        });
        Ok(())
    }

    /// A read-only bind of what the host view shows at the same place anyway is no mount at all. As root it is one where
    /// the owner matters and has to be mapped: others may not read it, or it is a work tree of git, which refuses one
    /// that belongs to somebody else.
    fn shows_already(&self, target: &str) -> bool {
        let view = &self.build.view;
        let suits = |dir: &str| open_to_all(dir, true) && std::fs::symlink_metadata(format!("{dir}/.git")).is_err();
        view.host_path(target).as_deref() == Some(target) && (!self.me.privileged || suits(target))
    }

    /// Copy-up keeps owners, and only the sandbox's own can be kept: what belongs to others can be read but not changed.
    fn scan_foreign(&mut self, looked: &Looked) {
        let owner = if self.me.privileged { looked.owner } else { (self.me.uid, self.me.gid) };
        let mut queue = vec![std::path::PathBuf::from(&looked.path)];
        let mut seen = 0;
        while let Some(dir) = queue.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                seen += 1;
                if (meta.uid(), meta.gid()) != owner {
                    self.foreign.push(entry.path().display().to_string());
                    return;
                }
                if seen > 2_000 {
                    return; // enough to warn about; copy-up itself refuses the rest with EOVERFLOW
                }
                if meta.is_dir() {
                    queue.push(entry.path());
                }
            }
        }
    }

    fn make_target(&mut self, target: &str, is_dir: bool, field: &str) -> Result<(), Failure> {
        let covering = self.build.view.covering(target).map(|place| place.target.clone()).unwrap_or_default();
        // As root: a directory that the sandbox's user may not enter hides everything in it anyway; an empty one that
        // leads only to the mounts in it takes its place.
        if self.me.privileged
            && let Some(host) = self.build.view.host_path(target)
            && let Some(closed) = closed_ancestor(&host, target)
            && covering != closed
            && is_within(&closed, &covering)
        {
            let name = format!("hide{}", self.hides.len());
            self.build.mkdir(&name, 0o755);
            self.hides.push((closed.clone(), name.clone()));
            self.build.mounts.push(Step::Scratch { name, target: closed.clone(), attrs: HOST, optional: false });
            self.build.view.push(Place { target: closed, shows: Shows::Own, writable: false, persistent: false });
        }
        let covering = self.build.view.covering(target).map(|place| place.target.as_str());
        if let Some((closed, name)) = self.hides.iter().find(|(closed, _)| Some(closed.as_str()) == covering) {
            let rest = crate::view::below(target, closed).unwrap_or_default();
            self.build.mount_point_in(name, rest, is_dir, 0o755);
            return Ok(());
        }
        if let Some(host) = self.build.view.host_path(target) {
            match std::fs::metadata(&host) {
                Ok(meta) if meta.is_dir() == is_dir => return Ok(()),
                Ok(_) => {
                    let (one, two) = if is_dir { ("directory", "file") } else { ("file", "directory") };
                    return Err(refuse(
                        field,
                        format!("cannot mount a {one} on {target}, which is a {two} there"),
                        None,
                    ));
                }
                Err(e) => {
                    return Err(refuse(
                        field,
                        format!("mount target {target} does not exist inside: {e}"),
                        Some(match self.policy.filesystem.root {
                            Root::Directory(_) => crate::words::ROOT_LACKS_PLACE,
                            _ => "choose a target that exists, one below /tmp, or a new one at the top such as /data",
                        }),
                    ));
                }
            }
        }
        self.build.mount_point(target, is_dir);
        Ok(())
    }

    fn finish(mut self, held: Held, filters: &crate::engine::Filters) -> Result<Plan, Failure> {
        let policy = self.policy;
        let (inside_wall, abi) = (self.wall(), landlock::abi());
        self.second_wall = inside_wall;
        let shift = self.build.skeleton.len();
        let (mut mounts, system) = self.build.steps();
        let mut crowds = Vec::new();
        for (dir, names) in held.crowds {
            crowds.push((mounts.len(), names));
            mounts.push(Step::Whiteout { layer: Source::System(String::new()), target: dir, attrs: HOST });
        }
        mounts.extend(held.steps);
        let own_net = policy.network.mode != NetworkMode::Host;
        let mut flags = start(self.me);
        if matches!(policy.network.mode, NetworkMode::Loopback | NetworkMode::Allowlist) {
            flags |= flag::LOOPBACK;
        }
        flags |= match policy.network.mode {
            NetworkMode::None => flag::NO_NETWORK,
            NetworkMode::Loopback => flag::ONLY_LOOPBACK,
            NetworkMode::Allowlist | NetworkMode::Host => 0,
        };
        let Some(outline) = outline(policy, self.me) else {
            let why = "this user namespace maps no id but 0, and the sandbox never runs as 0";
            return Err(refuse("jail", why.into(), None));
        };
        let filter = filters.get(policy, !held.guards.is_empty(), held.links)?;
        let mut recipe = Recipe {
            hostname: policy.process.hostname.clone(),
            rlimits: crate::rlimits::rlimits(policy, 1),
            mounts,
            system_mounts: system,
            guards: held.guards,
            ..outline
        };
        if abi > 0 {
            recipe.landlock = Some(recipe::Landlock {
                handled_fs: landlock::handled_fs(abi),
                handled_net: if policy.network.mode == NetworkMode::None { landlock::handled_net(abi) } else { 0 },
                scoped: landlock::scoped(abi),
                rules: masked(self.second_wall, landlock::handled_fs(abi)),
            });
        }
        crate::program::fill(&mut recipe, policy, flags, filter);
        recipe.wall_ns = policy.limits.wall_ms.saturating_mul(1_000_000);
        let layers =
            self.layers.into_iter().map(|(op, target, source)| Layer { op: op + shift, target, source }).collect();
        let mut plan = Plan {
            recipe,
            prepared: self.prepared,
            own_net,
            layers,
            view: self.build.view,
            denied: held.denied,
            protected: held.protected,
            crowds,
            enforcement: Enforcement::new(),
        };
        enforcement(policy, abi, &held.linked, &self.foreign, &mut plan);
        if let Some(mounts) = plan.enforcement.get_mut(&Field::Mounts) {
            *mounts = crate::optional::told(mounts.clone(), &self.left_out);
        }
        Ok(plan)
    }

    /// The second wall: what Landlock lets through is what the mounts let through, by path as seen inside.
    fn wall(&self) -> Vec<PathRule> {
        let rule = |path: &str, access, optional| PathRule { path: path.into(), access, optional, identity: None };
        let mut rules = vec![
            rule("/", access::READ, false),
            rule("/dev", access::READ_NO_EXEC | access::WRITE_FILE | access::IOCTL_DEV | access::TRUNCATE, true),
        ];
        for place in self.build.view.places().iter().filter(|p| p.writable) {
            rules.push(rule(&place.target, access::READ | access::WRITE, true));
        }
        rules
    }
}

fn masked(mut rules: Vec<PathRule>, handled: u64) -> Vec<PathRule> {
    for r in &mut rules {
        r.access &= handled;
    }
    rules
}

/// The topmost ancestor of a target in the host view that not everybody may enter, as a path inside.
fn closed_ancestor(host: &str, target: &str) -> Option<String> {
    if host != target {
        return None;
    }
    let mut dirs: Vec<&Path> = Path::new(target).ancestors().skip(1).collect();
    dirs.reverse();
    let closed = dirs.into_iter().find(|d| std::fs::metadata(d).is_ok_and(|m| m.mode() & 0o1 == 0))?;
    closed.to_str().map(str::to_owned)
}

fn enforcement(policy: &Policy, abi: u32, linked: &[String], foreign: &[String], plan: &mut Plan) {
    let full = |reason: &str| Applied { strength: Strength::Full, reason: reason.to_owned() };
    let wall = if abi > 0 { format!("mounts, and Landlock ABI {abi} behind them") } else { "mounts".to_owned() };
    let e = &mut plan.enforcement;
    let host_view = policy.filesystem.root == Root::Host;
    e.insert(
        Field::Root,
        if abi == 0 && host_view {
            // A read-only mount holds files, not what a FIFO or a device passes on.
            let reason = "without Landlock in this kernel the host's FIFOs can be written to through read-only mounts";
            Applied { strength: Strength::Partial, reason: reason.to_owned() }
        } else {
            full(&wall)
        },
    );
    e.insert(Field::Mounts, full(&wall));
    if let Some(path) = foreign.first() {
        let reason =
            format!("{path} belongs to another user: inside a copy-on-write mount it can be read but not changed");
        e.insert(Field::Layer, Applied { strength: Strength::Partial, reason });
    } else {
        e.insert(Field::Layer, full("a sized tmpfs under each copy-on-write mount"));
    }
    e.insert(Field::Deny, full("masks; names that do not exist are guarded"));
    if linked.is_empty() {
        e.insert(Field::Protected, full("read-only binds; names that do not exist are guarded"));
    } else {
        let reason = format!("{} has other hard links, through which it could be written: {}", linked[0], linked.len());
        e.insert(Field::Protected, Applied { strength: Strength::Partial, reason });
    }
    e.insert(Field::Metadata, full("read-only mounts refuse metadata changes outside writable mounts"));
    let net = match policy.network.mode {
        NetworkMode::None => full("an empty network namespace, loopback down"),
        NetworkMode::Loopback => full("a network namespace of its own with loopback"),
        NetworkMode::Host => full("nothing to hold: the host's network was asked for"),
        NetworkMode::Allowlist => {
            Applied { strength: Strength::None, reason: "the egress gateway is not part of this build".to_owned() }
        }
    };
    e.insert(Field::Network, net);
    e.insert(Field::Methods, crate::support::methods(policy));
    let level = match policy.process.seccomp.level {
        SeccompLevel::Disabled => "the floor that every level has",
        SeccompLevel::Basic => "seccomp, level basic",
        SeccompLevel::Standard => "seccomp, level standard",
        SeccompLevel::Strict => "seccomp, level strict",
    };
    e.insert(Field::Seccomp, full(level));
    e.insert(
        Field::Spawn,
        full(if policy.process.spawn { "spawning is allowed" } else { "seccomp: one exec, threads only" }),
    );
    e.insert(
        Field::UnixSockets,
        match (policy.process.unix_sockets, policy.network.mode) {
            (false, _) => full("seccomp refuses socket(AF_UNIX)"),
            (true, NetworkMode::Host) if abi < 6 => Applied {
                strength: Strength::Partial,
                reason: "granted, and without Landlock ABI 6 the host's network shares its abstract sockets".to_owned(),
            },
            (true, _) => full("granted: those whose paths the file system shows can be reached"),
        },
    );
    e.insert(Field::Isolation, full("pid, ipc, uts, cgroup, mount and user namespaces"));
    e.insert(Field::Hostname, full("uts namespace"));
    e.insert(Field::TreeKill, full("the pid namespace ends with its init"));
    crate::rlimits::enforcement(policy, true, e);
}
