//! From a policy to what the jail will do: init plan, sources, Landlock layer, rlimits, and what of it holds in full.
//!
//! Looks at the host's files (which exist, who owns them) and changes nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cofferdam_confine::host::CallerIdentity;
use cofferdam_confine::init_plan::{self, InitPlan, MountSource, MountStep, PathRule, attr};
use cofferdam_confine::landlock::{self, access};
use cofferdam_confine::wire::flag;
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, Field, Mount, NetworkMode, Policy, Root};

use super::paths::{self, PathPlan, Unheld};
use super::root::{Build, HOST, Ids};
use crate::backends::enforcement::{By, enforcement};
use crate::backends::real_sources;
use crate::failure::{self, Failure};
use crate::outcome::AppliedEnforcement;
use crate::plan::egress::EgressPlan;
use crate::plan::lookup::Lookup;
use crate::plan::mount_table::{MountContent, MountEntry};
use crate::plan::own_places::OwnPlaces;
use crate::plan::seccomp_filter::Filters;
use crate::plan::{Layer, NativePlan, PreparedSource};

/// Inodes of a layer's file system that overlayfs keeps for itself: its root, upper and work directories.
const LAYER_OWN: u64 = 5;
/// Fewest changed files that leave overlayfs room for what it tries when it is mounted; with fewer it refuses, or mounts
/// read-only.
const LEAST_CHANGES: u64 = 2;

/// The sandbox's own user and group, as it sees itself.
pub(crate) const INSIDE: u32 = 1000;

struct ResolvedSource {
    path: String,
    identity: (u64, u64),
    owner: (u32, u32),
    is_dir: bool,
}

fn look(source: &str, field: &failure::FailedStep) -> Result<ResolvedSource, Failure> {
    let fail = |e: std::io::Error| {
        Failure::new(field, format!("mount source {source} cannot be used: {e}")).hint("create it, or correct the path")
    };
    let real = std::fs::canonicalize(source).map_err(fail)?;
    let meta = std::fs::symlink_metadata(&real).map_err(fail)?;
    let Some(path) = real.to_str().map(str::to_owned) else {
        return Err(Failure::new(field, format!("mount source {source} leads to a path that is not UTF-8")));
    };
    use std::os::unix::fs::FileTypeExt;
    let kind = meta.file_type();
    if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
        return Err(Failure::new(
            field,
            format!(
                "mount source {source} is neither a file nor a directory; a device, FIFO or socket would be a way out"
            ),
        )
        .hint("bind the directory that holds the data instead"));
    }
    Ok(ResolvedSource {
        path,
        identity: (crate::plan::executables::device(meta.dev()), meta.ino()),
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
    me: CallerIdentity,
    build: Build,
    prepared: Vec<PreparedSource>,
    layers: Vec<(usize, String, String)>,
    second_wall: Vec<PathRule>,
    foreign: Vec<String>,
    /// Closed or empty directories that an empty one stands in for, and its name in the scratch.
    hides: Vec<(String, String)>,
    /// Sources of optional mounts that are not there.
    left_out: Vec<String>,
}

fn start(me: CallerIdentity, nested: bool) -> u32 {
    // Without a user of its own the run's cgroup may belong to the very user that programs inside run as.
    let room = flag::NESTED | if me.privileged { 0 } else { flag::NO_CGROUP_NAMESPACES };
    let namespaces = if nested { room } else { flag::NO_USERNS };
    flag::JAIL | namespaces | if me.privileged { flag::MAPS_BY_OWNER | flag::SYNC } else { 0 }
}

/// Plans one run.
///
/// # Errors
/// A mount source that cannot be used, or something that no jail can hold.
pub(crate) fn plan(
    policy: &Policy,
    me: CallerIdentity,
    filters: &Filters,
    ids: &Ids,
    own: &OwnPlaces,
) -> Result<NativePlan, Failure> {
    let mut lookup = own.lookup.take().unwrap_or_else(|| Lookup::expecting(&policy.filesystem.deny));
    let policy = &*real_sources::pinned(policy, &mut lookup)?;
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
    if policy.network.mode == NetworkMode::Allowlist {
        p.build.lookup(policy);
    }
    for (i, mount) in policy.filesystem.mounts.iter().enumerate() {
        p.mount(i, mount)?;
    }
    let mut held = paths::hold(policy, &p.build.view, &p.build.own_entries(), lookup, own);
    if let Some((path, why, deny)) = held.unheld.first() {
        let field = if *deny { Field::Deny } else { Field::Protected };
        let (message, hint) = match why {
            Unheld::OfEachProcess => (
                format!("{path} is another file for each process that asks: it cannot be held"),
                "leave it out: no process sees another one's, and the supervisor's is not there",
            ),
            Unheld::Root => (
                format!("{path} is what the sandbox has as its root: nothing could run with everything denied"),
                "deny paths below it",
            ),
            Unheld::UnknownLayer => (
                format!(
                    "{path} lies in an overlay that names a layer without a leading /, or of which another mount covers a layer: it is not known where else it shows"
                ),
                "mount the overlay with absolute names of its layers, and unmount what covers them",
            ),
            Unheld::NotText => (
                format!(
                    "the configuration of version control names {path}, which it obeys or runs, in another encoding than UTF-8: \
                     it cannot be protected"
                ),
                "give it a name in UTF-8 (core.hooksPath, core.fsmonitor, include.path, extensions of Mercurial)",
            ),
        };
        return Err(Failure::new(field, message).hint(hint));
    }
    if policy.process.nested_sandboxes {
        p.room_inside(&held)?;
        // What is left to guard is memory of the sandbox's own, and init cannot make names for whom has another root.
        held.guards.clear();
        held.links = false;
    }
    p.finish(held, filters)
}

impl Planner<'_> {
    fn source(&mut self, looked: &ResolvedSource, field: &failure::FailedStep, writable: bool) -> MountSource {
        if self.me.privileged {
            self.prepared.push(PreparedSource {
                path: looked.path.clone(),
                identity: looked.identity,
                owner: looked.owner,
                required: writable,
                step: field.clone(),
            });
            return MountSource::Prepared(self.prepared.len() - 1);
        }
        MountSource::Path { path: looked.path.clone(), identity: Some(looked.identity) }
    }

    fn root_source(&mut self) -> Result<(), Failure> {
        if let Root::Image(image) = &self.policy.filesystem.root {
            let hint = "use --backend docker, podman or oci, or name a directory that holds its files: --root ./DIR";
            return Err(Failure::new(
                Field::Root,
                format!("containers are made of images such as {image}, and the jail is none"),
            )
            .hint(hint));
        }
        let Root::Directory(dir) = &self.policy.filesystem.root else { return Ok(()) };
        let looked = look(dir, &Field::Root.into())?;
        if !looked.is_dir {
            return Err(Failure::new(Field::Root, format!("{dir} is not a directory")));
        }
        let is_planned = matches!(&self.build.mounts[0], MountStep::RootDirectory { source: MountSource::Path { path, .. }, .. } if *path == looked.path);
        let pinned = crate::plan::source_identity::expected(self.policy, dir);
        if !is_planned || pinned.is_some_and(|pinned| pinned != looked.identity) {
            return Err(Failure::new(Field::Root, format!("{dir} was replaced while the run was planned"))
                .hint("run it again, and do not let untrusted code write the directory that it is in"));
        }
        let source = self.source(&looked, &Field::Root.into(), false);
        self.build.mounts[0] = MountStep::RootDirectory { source, attrs: HOST };
        Ok(())
    }

    fn mount(&mut self, index: usize, mount: &Mount) -> Result<(), Failure> {
        let field = failure::FailedStep::mount_entry(index);
        let target = self.build.place_of(mount.target());
        match mount {
            Mount::Tmpfs { size_mb, exec, .. } => {
                let noexec = if *exec { 0 } else { attr::NOEXEC };
                self.make_target(&target, true, &field)?;
                self.build.mounts.push(MountStep::Tmpfs {
                    target: target.clone(),
                    bytes: size_mb << 20,
                    mode: 0o1777,
                    attrs: attr::NOSUID | attr::NODEV | noexec,
                    export: None,
                });
                self.build.view.push(MountEntry {
                    target,
                    shows: MountContent::Own,
                    writable: true,
                    persistent: false,
                });
                Ok(())
            }
            Mount::Bind { source, optional: true, .. } if crate::plan::optional_mounts::is_missing(source) => {
                self.left_out.push(source.clone());
                Ok(())
            }
            Mount::Bind { source, access, exec, .. } => self.bind(source, &target, *access, *exec, &field),
        }
    }

    fn bind(
        &mut self,
        source: &str,
        target: &str,
        how: Access,
        exec: bool,
        field: &failure::FailedStep,
    ) -> Result<(), Failure> {
        let looked = look(source, field)?;
        crate::plan::source_identity::compare(self.policy, source, looked.identity, field)?;
        if how == Access::ReadOnly && source == target && looked.path == source && self.shows_already(target) {
            return Ok(());
        }
        if how == Access::CopyOnWrite && !looked.is_dir {
            return Err(Failure::new(field, format!("{source} is a file; copy-on-write needs a directory"))
                .hint("mount its directory with :cow"));
        }
        self.make_target(target, looked.is_dir, field)?;
        let writable = how != Access::ReadOnly;
        let src = self.source(&looked, field, writable);
        let noexec = if writable && !exec { attr::NOEXEC } else { 0 };
        let attrs = attr::NOSUID | attr::NODEV | noexec | if writable { 0 } else { attr::RDONLY };
        if how == Access::CopyOnWrite {
            self.scan_foreign(&looked);
            let changes = self.policy.limits.layer_inodes;
            if changes < LEAST_CHANGES {
                return Err(Failure::new(failure::FailedStep::policy("limits.layer_inodes"), format!(
                        "limits.layer_inodes is {changes}, and overlayfs cannot be mounted with fewer than {LEAST_CHANGES}"
                    )).hint("--layer-files 2 or more"));
            }
            let inodes = changes.saturating_add(LAYER_OWN);
            let bytes = self.policy.limits.layer_mb << 20;
            self.layers.push((self.build.mounts.len(), target.to_owned(), looked.path.clone()));
            self.build.mounts.push(MountStep::Overlay { source: src, target: target.into(), attrs, bytes, inodes });
        } else {
            self.build.mounts.push(MountStep::Bind { source: src, target: target.into(), attrs, optional: false });
        }
        self.build.view.push(MountEntry {
            target: target.into(),
            shows: MountContent::Host(looked.path),
            writable,
            persistent: how == Access::ReadWrite,
        });
        Ok(())
    }

    /// A read-only bind of what the host view shows read-only at the same place anyway is no mount at all. As root it is one
    /// where the owner matters and has to be mapped: others may not read it, or it is a work tree of git, which refuses one
    /// that belongs to somebody else.
    fn shows_already(&self, target: &str) -> bool {
        let view = &self.build.view;
        let suits = |dir: &str| open_to_all(dir, true) && std::fs::symlink_metadata(format!("{dir}/.git")).is_err();
        // In a volume that can be written it is the mount alone that keeps it from being written.
        let read_only = view.covering(target).is_some_and(|place| !place.writable);
        read_only && view.host_path(target).as_deref() == Some(target) && (!self.me.privileged || suits(target))
    }

    /// Who makes sandboxes inside has mount namespaces in which a mount of this one's need not be. What mounts cover
    /// stays covered there, since the kernel locks them; but a name that a mount holds in a writable tree can be moved or
    /// removed from a namespace without that mount, and a name that the guard holds can be made through an overlay, which
    /// is another directory to it. So neither may be asked for.
    fn room_inside(&self, held: &PathPlan) -> Result<(), Failure> {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        if uncovers(&release) {
            let message = format!("an overlay made inside shows what mounts hide in this kernel, {release}");
            return Err(Failure::new(Field::NestedSandboxes, message).hint("use Linux 5.14 or later"));
        }
        let places = self.build.view.places();
        let files = || places.iter().filter(|place| place.writable && matches!(place.shows, MountContent::Host(_)));
        let below = |target: &str| {
            let lies = |place: &&MountEntry| target != place.target && is_within(target, &place.target);
            files().find(lies).map(|place| (target.to_owned(), place.target.clone()))
        };
        let steps = self.build.mounts.iter().chain(&held.steps);
        let held_by_mount =
            steps.filter_map(MountStep::target).chain(held.whiteouts.keys().map(String::as_str)).find_map(below);
        // What is guarded in the sandbox's own memory hides nothing of the host's.
        let guarded = held.guards.iter().find_map(|guard| {
            let name = guard.names.first().map_or("", String::as_str);
            let path = crate::plan::mount_table::join(&guard.parent, name);
            below(&path)
        });
        let Some((path, tree)) = held_by_mount.or(guarded) else { return Ok(()) };
        Err(Failure::new(Field::NestedSandboxes, format!(
                "{path} is held where {tree} can be written, and a sandbox inside could move, replace or make it from a mount \
                 namespace of its own"
            )).hint("mount that directory read-only, or hold nothing in it: protected = [] in a policy file, and no deny or \
                 mounts below it"))
    }

    /// Copy-up keeps owners, and only the sandbox's own can be kept: what belongs to others can be read but not changed.
    fn scan_foreign(&mut self, looked: &ResolvedSource) {
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

    /// Mounts an empty directory of the sandbox's own over this one, in which there is a place for each mount. It is read-only.
    fn stand_in(&mut self, directory: String) {
        let name = format!("hide{}", self.hides.len());
        self.build.mkdir(&name, 0o755);
        self.hides.push((directory.clone(), name.clone()));
        self.build.mounts.push(MountStep::Scratch { name, target: directory.clone(), attrs: HOST, optional: false });
        self.build.view.push(MountEntry {
            target: directory,
            shows: MountContent::Own,
            writable: false,
            persistent: false,
        });
    }

    /// The directory above a mount's target that a directory given as the root lacks, where it has nothing in it: another empty
    /// one in its place hides nothing, and there the target can be made.
    fn empty_parent(&self, target: &str) -> Option<String> {
        let (parent, _) = target.rsplit_once('/').filter(|(parent, _)| !parent.is_empty())?;
        let in_root = self.build.view.covering(parent).is_some_and(|place| place.target == "/");
        if !in_root || !matches!(self.policy.filesystem.root, Root::Directory(_)) {
            return None;
        }
        let mut entries = std::fs::read_dir(self.build.view.host_path(parent)?).ok()?;
        entries.next().is_none().then(|| parent.to_owned())
    }

    fn make_target(&mut self, target: &str, is_dir: bool, field: &failure::FailedStep) -> Result<(), Failure> {
        let covering = self.build.view.covering(target).map(|place| place.target.clone()).unwrap_or_default();
        // As root: a directory that the sandbox's user may not enter hides everything in it anyway; an empty one that
        // leads only to the mounts in it takes its place.
        if self.me.privileged
            && let Some(host) = self.build.view.host_path(target)
            && let Some(closed) = closed_ancestor(&host, target)
            && covering != closed
            && is_within(&closed, &covering)
        {
            self.stand_in(closed);
        } else if let Some(empty) = self.empty_parent(target) {
            self.stand_in(empty);
        }
        let covering = self.build.view.covering(target).map(|place| place.target.as_str());
        if let Some((closed, name)) = self.hides.iter().find(|(closed, _)| Some(closed.as_str()) == covering) {
            let rest = crate::plan::mount_table::below(target, closed).unwrap_or_default();
            self.build.mount_point_in(name, rest, is_dir, 0o755);
            return Ok(());
        }
        if let Some(host) = self.build.view.host_path(target) {
            match std::fs::metadata(&host) {
                Ok(meta) if meta.is_dir() == is_dir => return Ok(()),
                Ok(_) => {
                    let (one, two) = if is_dir { ("directory", "file") } else { ("file", "directory") };
                    return Err(Failure::new(
                        field,
                        format!("cannot mount a {one} on {target}, which is a {two} there"),
                    ));
                }
                Err(e) => {
                    return Err(Failure::new(field, format!("mount target {target} does not exist inside: {e}")).hint(
                        match self.policy.filesystem.root {
                            Root::Directory(_) => crate::start_failures::ROOT_LACKS_PLACE,
                            _ => "choose a target that exists, one below /tmp, or a new one at the top such as /data",
                        },
                    ));
                }
            }
        }
        match self.tmpfs_around(target) {
            Some(tmpfs) => self.points_in(&tmpfs, target, is_dir),
            None => self.build.mount_point(target, is_dir),
        }
        Ok(())
    }

    /// The policy's own tmpfs that a path is in.
    fn tmpfs_around(&self, target: &str) -> Option<String> {
        let covering = self.build.view.covering(target)?.target.as_str();
        let is_it = |step: &MountStep| matches!(step, MountStep::Tmpfs { target, .. } if target == covering);
        self.build.mounts.iter().any(is_it).then(|| covering.to_owned())
    }

    /// Makes a mount point in a tmpfs, which is empty when it is mounted, with the directories that lead to it.
    fn points_in(&mut self, tmpfs: &str, target: &str, is_dir: bool) {
        let mut directory = tmpfs.to_owned();
        let mut rest = crate::plan::mount_table::below(target, tmpfs).unwrap_or_default().split('/').peekable();
        while let Some(name) = rest.next() {
            let is_directory = is_dir || rest.peek().is_some();
            let point = MountStep::Point { directory: directory.clone(), name: name.to_owned(), is_directory };
            directory = format!("{directory}/{name}");
            if !name.is_empty() && !self.build.mounts.contains(&point) {
                self.build.mounts.push(point);
            }
        }
    }

    fn finish(mut self, held: PathPlan, filters: &Filters) -> Result<NativePlan, Failure> {
        let policy = self.policy;
        let (inside_rules, abi) = (self.landlock_rules(), landlock::abi());
        let nested = policy.process.nested_sandboxes;
        self.second_wall = inside_rules;
        let shift = self.build.skeleton.len();
        let (mut mounts, system) = self.build.steps();
        let mut whiteouts = Vec::new();
        for (dir, names) in held.whiteouts {
            whiteouts.push((mounts.len(), names));
            mounts.push(MountStep::Whiteout { layer: MountSource::System(String::new()), target: dir, attrs: HOST });
        }
        mounts.extend(held.steps);
        let own_net = policy.network.mode != NetworkMode::Host;
        let mut flags = start(self.me, nested);
        // A captured network's messages bring loopback up as well.
        if policy.network.mode == NetworkMode::Loopback {
            flags |= flag::LOOPBACK;
        }
        let way = EgressPlan::of(policy)?;
        flags |= match policy.network.mode {
            NetworkMode::None => flag::NO_NETWORK,
            NetworkMode::Loopback => flag::ONLY_LOOPBACK,
            NetworkMode::Allowlist | NetworkMode::Host => 0,
        };
        let Some(ids_out) = super::outside(self.me) else {
            let why = "this user namespace maps no id but 0, and the sandbox never runs as 0";
            return Err(Failure::new(failure::FailedStep::Jail, why));
        };
        let filter = filters.get(policy, !held.guards.is_empty(), held.links)?;
        let mut init_plan = InitPlan {
            hostname: policy.process.hostname.clone(),
            rlimits: crate::plan::rlimits::rlimits(policy, 1),
            mounts,
            system_mounts: system,
            guards: held.guards,
            capture: way.as_ref().map(EgressPlan::capture),
            ids_in: (INSIDE, INSIDE),
            ids_out,
            scratch_bytes: policy.limits.tmpfs_mb << 20,
            scratch_inodes: (policy.limits.tmpfs_mb * 256).max(4096),
            ..InitPlan::default()
        };
        // Whoever is in a domain that handles files may mount nothing (landlock(7)); since ABI 4 there are others.
        if abi > 0 && (!nested || abi >= 4) {
            init_plan.landlock = Some(init_plan::LandlockHandled {
                handled_fs: if nested { 0 } else { landlock::handled_fs(abi) },
                handled_net: if policy.network.mode == NetworkMode::None { landlock::handled_net(abi) } else { 0 },
                scoped: landlock::scoped(abi),
                rules: if nested { Vec::new() } else { masked(self.second_wall, landlock::handled_fs(abi)) },
            });
        }
        crate::plan::payload::fill(&mut init_plan, policy, flags, filter);
        if way.is_some() {
            init_plan.envp.extend(crate::plan::egress::variables(policy).into_iter().map(|(k, v)| format!("{k}={v}")));
        }
        init_plan.wall_ns = policy.limits.wall_ms.saturating_mul(1_000_000);
        let layers =
            self.layers.into_iter().map(|(op, target, source)| Layer { op: op + shift, target, source }).collect();
        let mut plan = NativePlan {
            init_plan,
            prepared: self.prepared,
            own_net,
            layers,
            view: self.build.view,
            denied: held.denied,
            protected: held.protected,
            whiteouts,
            egress: way,
            enforcement: AppliedEnforcement::new(),
        };
        let by = By::Jail {
            abi,
            linked: &held.linked,
            foreign: &self.foreign,
            egress: plan.egress.as_ref(),
            left_out: &self.left_out,
        };
        plan.enforcement = enforcement(policy, &by);
        Ok(plan)
    }

    /// The Landlock layer behind the mounts: what Landlock lets through is what the mounts let through, by path as seen inside.
    fn landlock_rules(&self) -> Vec<PathRule> {
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

/// Whether users of a namespace may mount overlays, and these look below what is mounted over: Linux 5.11 to 5.13
/// (CVE-2021-3732).
fn uncovers(release: &str) -> bool {
    ["5.11.", "5.12.", "5.13."].iter().any(|version| release.starts_with(version))
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
