//! Finds where this process may create cgroups, and prepares that place.
//!
//! `probe` only looks: it changes nothing. `CgroupPlan::prepare` does what the place needs, which is nothing on
//! version 1 and, on version 2, one of these, tried in this order because each moves less than the next:
//!
//! 1. *here*: our own cgroup is the hierarchy's root, the only one that may hold both processes and children;
//! 2. *beside*: our parent is delegated to us and its controllers can be enabled: a sibling of our own;
//! 3. *leaf*: we are alone in our own delegated cgroup: we move ourselves down into `cofferdam-supervisor`,
//!    because a cgroup with processes cannot give controllers to its children;
//! 4. *top*: as root beside systemd, a directory of our own at the hierarchy's root, as container engines do;
//! 5. *scope*: systemd makes us a delegated scope, in which 3 then holds.
//!
//! In the directory that serves memory `prepare` then opens, or makes, the one over all runs of this user (`cap`).
//!
//! What systemd manages and has not delegated is never written to: it would undo our controllers at any time.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::CWD;

use super::cap::{self, MemoryCap};
use super::io as files;
use super::mounts::{CgroupMount, Membership, directory, memberships, mounts};
use super::name::{ProcessIdentity, identity};
use super::systemd;
use super::types::CgroupError;

/// The leaf into which we move ourselves when our own cgroup has to give controllers to its children.
pub(super) const SUPERVISOR: &str = "cofferdam-supervisor";

/// How a limit would be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitMechanism {
    /// A version 1 hierarchy.
    V1,
    /// The unified hierarchy.
    V2,
    /// The unified hierarchy, after our own process has moved into a leaf of its cgroup.
    V2Leaf,
    /// The unified hierarchy, in a scope that systemd makes for our own process.
    V2Scope,
}

/// Whether a limit can be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Available(LimitMechanism),
    /// It cannot.
    Unavailable {
        /// What stands in the way.
        reason: String,
        /// What would help.
        hint: String,
    },
}

/// What `probe` found.
#[derive(Debug)]
pub struct Probe {
    /// Memory of the tree.
    pub memory: Availability,
    /// Processes of the tree.
    pub pids: Availability,
    /// CPU share.
    pub cpu: Availability,
    /// Counting of CPU time.
    pub cpu_time: Availability,
    /// How to get there; `None` when nothing is available.
    pub plan: Option<CgroupPlan>,
}

/// What a directory can hold or count.
pub(super) mod serve {
    pub(in super::super) const MEMORY: u8 = 1;
    pub(in super::super) const PIDS: u8 = 2;
    pub(in super::super) const CPU: u8 = 4;
    pub(in super::super) const CPU_TIME: u8 = 8;

    /// Each version 2 controller by its name.
    pub(in super::super) const CONTROLLERS: [(u8, &str); 3] = [(MEMORY, "memory"), (PIDS, "pids"), (CPU, "cpu")];
}

/// Which interface a directory speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupVersion {
    V1,
    V2,
}

/// A directory below which ours are made.
#[derive(Debug)]
pub(super) struct CgroupParent {
    pub(super) dir: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) version: CgroupVersion,
    pub(super) serves: u8,
    /// The one above, where this is the directory over all runs of the user.
    pub(super) above: Option<Arc<CgroupParent>>,
}

/// The directories below which this process makes its cgroups, held open. Made once, used for many runs.
#[derive(Debug)]
pub struct CgroupLocation {
    pub(super) parents: Vec<Arc<CgroupParent>>,
    /// The limit over all runs, or why there is none; `None` without a memory controller.
    pub(super) cap: Option<Result<MemoryCap, String>>,
    pub(super) identity: ProcessIdentity,
}

/// What the unified hierarchy needs before it can be used.
#[derive(Debug)]
enum UnifiedSetup {
    /// `dir` gives at least the controllers of `enabled`; those of `missing` are to be enabled.
    Use { dir: OwnedFd, path: PathBuf, enabled: u8, missing: u8 },
    /// Move ourselves into a leaf of `dir`, then enable.
    Leaf { dir: OwnedFd, path: PathBuf, available: u8 },
    /// Ask systemd, then look again.
    Scope(systemd::Bus),
}

/// How to get to a `CgroupLocation`.
#[derive(Debug)]
pub struct CgroupPlan {
    v1: Vec<Arc<CgroupParent>>,
    v2: Option<UnifiedSetup>,
    identity: ProcessIdentity,
}

/// Looks where this process may make cgroups. Changes nothing.
pub fn probe() -> Probe {
    let found = look();
    let (v1, v2, identity) = match found {
        Ok(found) => found,
        Err(error) => return Probe::nothing(format!("/proc cannot be read: {error}"), "mount /proc".to_owned()),
    };
    let (step, refused) = match v2 {
        Ok(step) => (Some(step), HierarchyRefusal::default()),
        Err(refusal) => (None, refusal),
    };
    let (offered, mechanism) = match &step {
        Some(UnifiedSetup::Use { enabled, missing, .. }) => (enabled | missing | serve::CPU_TIME, LimitMechanism::V2),
        Some(UnifiedSetup::Leaf { available, .. }) => (available | serve::CPU_TIME, LimitMechanism::V2Leaf),
        // What systemd will delegate is seen only afterwards; these are what it gives by default.
        Some(UnifiedSetup::Scope(_)) => {
            (serve::MEMORY | serve::PIDS | serve::CPU | serve::CPU_TIME, LimitMechanism::V2Scope)
        }
        None => (0, LimitMechanism::V2),
    };
    let v1_offers = v1.parents.iter().fold(0, |bits, parent| bits | parent.serves);
    let answer = |bit: u8, name: &str| {
        if v1_offers & bit != 0 {
            Availability::Available(LimitMechanism::V1)
        } else if let Some((_, reason)) = v1.refused.iter().find(|(bits, _)| bits & bit != 0) {
            Availability::Unavailable { reason: reason.clone(), hint: V1_HINT.to_owned() }
        } else if offered & bit != 0 {
            Availability::Available(mechanism)
        } else if !refused.reason.is_empty() {
            Availability::Unavailable { reason: refused.reason.clone(), hint: refused.hint.clone() }
        } else {
            Availability::Unavailable {
                reason: format!("the {name} controller is not given to this cgroup"),
                hint: format!("enable it: echo +{name} > cgroup.subtree_control in each cgroup above"),
            }
        }
    };
    let (memory, pids, cpu) = (answer(serve::MEMORY, "memory"), answer(serve::PIDS, "pids"), answer(serve::CPU, "cpu"));
    let cpu_time = match answer(serve::CPU_TIME, "cpuacct") {
        // The unified hierarchy counts CPU time even where cpuacct is out of reach.
        Availability::Unavailable { .. } if offered & serve::CPU_TIME != 0 => Availability::Available(mechanism),
        answer => answer,
    };
    let usable = !v1.parents.is_empty() || step.is_some();
    Probe { memory, pids, cpu, cpu_time, plan: usable.then_some(CgroupPlan { v1: v1.parents, v2: step, identity }) }
}

const V1_HINT: &str = "cgroup version 1 is for root alone: run as root, or boot with \
                       systemd.unified_cgroup_hierarchy=1 on the kernel command line";

impl Probe {
    fn nothing(reason: String, hint: String) -> Self {
        let none = Availability::Unavailable { reason, hint };
        Self { memory: none.clone(), pids: none.clone(), cpu: none.clone(), cpu_time: none, plan: None }
    }

    /// The limit over the memory of all runs of this user as it is, or as the first run will make it; why there will be
    /// none; `None` without a memory controller. Changes nothing.
    pub fn memory_cap(&self) -> Option<Result<MemoryCap, String>> {
        let plan = self.plan.as_ref().filter(|_| matches!(self.memory, Availability::Available(_)))?;
        if let Some(parent) = plan.v1.iter().find(|parent| parent.serves & serve::MEMORY != 0) {
            return Some(cap::look(&parent.dir, &parent.path, CgroupVersion::V1));
        }
        match plan.v2.as_ref()? {
            UnifiedSetup::Use { dir, path, .. } | UnifiedSetup::Leaf { dir, path, .. } => {
                Some(cap::look(dir, path, CgroupVersion::V2))
            }
            UnifiedSetup::Scope(_) => Some(Ok(cap::in_scope())),
        }
    }

    /// Prepares the place.
    ///
    /// # Errors
    /// When nothing is available or a step of the plan fails.
    pub fn prepare(self) -> Result<CgroupLocation, CgroupError> {
        match (self.plan, self.memory) {
            (Some(plan), _) => plan.prepare(),
            (None, Availability::Unavailable { reason, hint }) => Err(CgroupError::Unavailable { reason, hint }),
            (None, Availability::Available(_)) => unreachable!("without a plan nothing is available"),
        }
    }
}

impl CgroupPlan {
    /// Whether `prepare` moves this whole process to another cgroup. A library in a caller's process asks
    /// first, and leaves it to a process of its own.
    pub fn moves_caller(&self) -> bool {
        matches!(self.v2, Some(UnifiedSetup::Leaf { .. } | UnifiedSetup::Scope(_)))
    }

    /// Does what the place needs. The only function here that changes anything.
    ///
    /// # Errors
    /// When our own process cannot be moved, a controller cannot be enabled although it was offered, or systemd
    /// refuses. What version 1 gives is used even if the version 2 step fails.
    pub fn prepare(self) -> Result<CgroupLocation, CgroupError> {
        let Self { v1: mut parents, v2, identity } = self;
        match v2.map(|step| step.take(&identity)) {
            Some(Ok(parent)) => parents.push(Arc::new(parent)),
            Some(Err(error)) if parents.is_empty() => return Err(error),
            Some(Err(_)) | None => {}
        }
        let mut cap = None;
        if let Some(at) = parents.iter().position(|parent| parent.serves & serve::MEMORY != 0) {
            let (parent, held) = cap::enter(parents.swap_remove(at));
            parents.insert(at, parent);
            cap = Some(held);
        }
        Ok(CgroupLocation { parents, cap, identity })
    }
}

impl CgroupLocation {
    /// The limit over the memory of all runs of this user, or why there is none; `None` without a memory controller.
    pub fn memory_cap(&self) -> Option<Result<&MemoryCap, &str>> {
        self.cap.as_ref().map(|cap| cap.as_ref().map_err(String::as_str))
    }
}

impl UnifiedSetup {
    fn take(self, identity: &ProcessIdentity) -> Result<CgroupParent, CgroupError> {
        let unified = |dir, path, enabled| {
            let serves = enabled | serve::CPU_TIME;
            CgroupParent { dir, path, version: CgroupVersion::V2, serves, above: None }
        };
        match self {
            UnifiedSetup::Use { dir, path, enabled, missing } => {
                let enabled = enabled | enable(&dir, missing);
                Ok(unified(dir, path, enabled))
            }
            UnifiedSetup::Leaf { dir, path, available } => {
                let at = |operation, source| CgroupError::io(operation, path.display().to_string(), source);
                match rustix::fs::mkdirat(&dir, SUPERVISOR, rustix::fs::Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(at("make the supervisor's leaf in", error.into())),
                }
                let leaf = files::open_dir(&dir, SUPERVISOR).map_err(|e| at("open the supervisor's leaf in", e))?;
                // "0" is the writer itself with all its threads.
                files::write(&leaf, c"cgroup.procs", b"0").map_err(|e| at("move this process to a leaf of", e))?;
                let enabled = enable(&dir, available);
                Ok(unified(dir, path, enabled))
            }
            UnifiedSetup::Scope(bus) => {
                systemd::move_to_scope(&bus, identity).map_err(CgroupError::Systemd)?;
                in_scope().map_err(|e| CgroupError::io("use", "the scope that systemd made", e))?.take(identity)
            }
        }
    }
}

/// The step for the scope in which we now are. It is ours whatever its marks say: older systemd versions set none
/// that a user can read.
fn in_scope() -> io::Result<UnifiedSetup> {
    let (memberships, mounts) = (read_memberships()?, read_mounts()?);
    let own = memberships.iter().find(|membership| membership.is_unified());
    let path = own.and_then(|own| directory(own, &mounts)).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let dir = files::open_dir(CWD, &path)?;
    writable_tree(&dir)?;
    let available = controllers(&dir, c"cgroup.controllers")?;
    Ok(UnifiedSetup::Leaf { dir, path, available })
}

/// Enables controllers for the children of `dir`, each on its own so that one that is not available does not
/// take the others with it. Gives those that are on.
pub(super) fn enable(dir: &OwnedFd, wanted: u8) -> u8 {
    let mut enabled = 0;
    for (bit, name) in serve::CONTROLLERS {
        if wanted & bit != 0 && files::write(dir, c"cgroup.subtree_control", format!("+{name}").as_bytes()).is_ok() {
            enabled |= bit;
        }
    }
    enabled
}

/// Why a hierarchy is of no use.
#[derive(Debug, Default)]
struct HierarchyRefusal {
    reason: String,
    hint: String,
}

/// The version 1 hierarchies.
#[derive(Debug, Default)]
struct V1 {
    parents: Vec<Arc<CgroupParent>>,
    /// What is mounted but closed to us, and why.
    refused: Vec<(u8, String)>,
}

type FoundHierarchies = (V1, Result<UnifiedSetup, HierarchyRefusal>, ProcessIdentity);

fn look() -> io::Result<FoundHierarchies> {
    let memberships = read_memberships()?;
    let identity = identity()?;
    let mut v1 = V1::default();
    let mut v2 = Err(HierarchyRefusal {
        reason: "no cgroup file system with controllers is mounted".to_owned(),
        hint: "mount one: mount -t cgroup2 none /sys/fs/cgroup".to_owned(),
    });
    // The usual host: one hierarchy, mounted whole, seen from the initial namespace. Saves mountinfo, which
    // takes longer than everything else here on a host with hundreds of mounts.
    if let [only] = memberships.as_slice()
        && only.is_unified()
        && let Some(dir) = whole_unified_mount()
    {
        let below = only.path.strip_prefix("/").unwrap_or(&only.path);
        let path = if below.as_os_str().is_empty() { dir } else { dir.join(below) };
        return Ok((v1, unified(&path, &only.path, false), identity));
    }
    let mounts = read_mounts()?;
    let hybrid = memberships.iter().any(|membership| v1_serves(membership) != 0);
    for membership in &memberships {
        let serves = v1_serves(membership);
        match directory(membership, &mounts) {
            Some(path) if membership.is_unified() => v2 = unified(&path, &membership.path, hybrid),
            Some(path) if serves != 0 => match open_parent(&path) {
                Ok(dir) => v1.parents.push(Arc::new(CgroupParent {
                    dir,
                    path,
                    version: CgroupVersion::V1,
                    serves,
                    above: None,
                })),
                Err(error) => v1.refused.push((serves, format!("{} is not writable: {error}", path.display()))),
            },
            None if serves != 0 => {
                let names = membership.controllers.join(",");
                v1.refused
                    .push((serves, format!("the {names} hierarchy is not mounted where this process can see it")));
            }
            _ => {}
        }
    }
    Ok((v1, v2, identity))
}

fn read_memberships() -> io::Result<Vec<Membership>> {
    Ok(memberships(&read_proc(c"/proc/self/cgroup")?))
}

fn read_mounts() -> io::Result<Vec<CgroupMount>> {
    Ok(mounts(&read_proc(c"/proc/self/mountinfo")?))
}

fn read_proc(path: &std::ffi::CStr) -> io::Result<String> {
    let bytes = files::read_whole(files::open(CWD, path, rustix::fs::OFlags::RDONLY)?)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a version 1 hierarchy is of use for; nothing for version 2, which lists no controllers there.
fn v1_serves(membership: &Membership) -> u8 {
    let bit = |name: &String| match name.as_str() {
        "memory" => serve::MEMORY,
        "pids" => serve::PIDS,
        "cpu" => serve::CPU,
        "cpuacct" => serve::CPU_TIME,
        _ => 0,
    };
    membership.controllers.iter().fold(0, |bits, name| bits | bit(name))
}

fn open_parent(path: &Path) -> io::Result<OwnedFd> {
    let dir = files::open_dir(CWD, path)?;
    files::writable(&dir, c".")?;
    Ok(dir)
}

/// Whether a cgroup that this process is in may be changed by its own user. What cannot be looked at may be.
pub fn is_own() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (Ok(memberships), Ok(mounts)) = (read_memberships(), read_mounts()) else { return true };
    let uid = rustix::process::geteuid().as_raw();
    let may_write = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    memberships.iter().any(|membership| {
        let Some(directory) = directory(membership, &mounts) else { return true };
        let owned = std::fs::metadata(&directory).map_or(true, |found| found.uid() == uid);
        owned || may_write(&directory) || may_write(&directory.join("cgroup.procs"))
    })
}

/// Whether the place where every host mounts its cgroups holds version 2 and nothing else.
pub(crate) fn is_unified() -> bool {
    rustix::fs::statfs(c"/sys/fs/cgroup").is_ok_and(|fs| fs.f_type == libc::CGROUP2_SUPER_MAGIC)
}

/// `/sys/fs/cgroup` when it is the root of the unified hierarchy and paths in `/proc/self/cgroup` start there too.
fn whole_unified_mount() -> Option<PathBuf> {
    /// Inode number of the initial cgroup namespace (`PROC_CGROUP_INIT_INO` in the kernel).
    const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFB;
    /// Inode number of a kernfs root.
    const ROOT: u64 = 1;
    let at = c"/sys/fs/cgroup";
    // What cannot be looked at is no such mount: callers go on to the table of mounts, or to systemd.
    let stat = |path: &std::ffi::CStr| rustix::fs::statat(CWD, path, rustix::fs::AtFlags::empty()).ok();
    let whole = is_unified() && stat(at)?.st_ino == ROOT && stat(c"/proc/self/ns/cgroup")?.st_ino == INITIAL_NAMESPACE;
    whole.then(|| PathBuf::from("/sys/fs/cgroup"))
}

/// Chooses the step for our own directory in the unified hierarchy; `hybrid` when version 1 has controllers of ours.
fn unified(own: &Path, membership: &Path, hybrid: bool) -> Result<UnifiedSetup, HierarchyRefusal> {
    let refuse = |reason: String| {
        let hint = if Path::new(systemd::BOOTED).exists() {
            "run it in a scope of its own: systemd-run --user --scope -p Delegate=yes -- COMMAND"
        } else {
            "give this user a cgroup of its own (chown its directory, cgroup.procs and cgroup.subtree_control) \
             and start the command alone in it"
        };
        Err(HierarchyRefusal { reason, hint: hint.to_owned() })
    };
    let dir = match files::open_dir(CWD, own) {
        Ok(dir) => dir,
        Err(error) => return refuse(format!("{} cannot be opened: {error}", own.display())),
    };
    let given = match controllers(&dir, c"cgroup.controllers") {
        Ok(given) => given,
        Err(error) => return refuse(format!("{}/cgroup.controllers cannot be read: {error}", own.display())),
    };
    let enabled = controllers(&dir, c"cgroup.subtree_control").unwrap_or(0);
    let managed = Path::new(systemd::BOOTED).exists();
    // Only the true root has no cgroup.events.
    let is_root = !files::exists(&dir, c"cgroup.events");
    let own_refusal = writable_tree(&dir).err();

    // 1. here. On a hybrid host without any controller here every cgroup may hold processes and children.
    let counts_only = hybrid && given == 0;
    if own_refusal.is_none() && (is_root || counts_only) {
        let missing = if is_root && !managed { given & !enabled } else { 0 };
        return Ok(UnifiedSetup::Use { dir, path: own.to_owned(), enabled, missing });
    }
    if counts_only {
        return refuse(format!("{} is not writable", own.display()));
    }
    // 2. beside. The parent of our own leaf is ours too; a user's systemd need not mark it (252 does not).
    let parent = own.parent().filter(|_| membership != Path::new("/"));
    if let Some(path) = parent
        && let Ok(above) = files::open_dir(CWD, path)
        && writable_tree(&above).is_ok()
        && (!managed || delegated(&above) || membership.file_name() == Some(SUPERVISOR.as_ref()))
    {
        let enabled = controllers(&above, c"cgroup.subtree_control").unwrap_or(0);
        let more = if files::writable(&above, c"cgroup.subtree_control").is_ok() {
            controllers(&above, c"cgroup.controllers").unwrap_or(0) & !enabled
        } else {
            0
        };
        if enabled | more != 0 {
            return Ok(UnifiedSetup::Use { dir: above, path: path.to_owned(), enabled, missing: more });
        }
    }
    // 3. leaf.
    let others = match own_refusal {
        Some(error) => format!("{} is not delegated to this user: {error}", own.display()),
        None if managed && !delegated(&dir) => format!("{} belongs to systemd and is not delegated", own.display()),
        None => match files::read_pids(&dir) {
            Ok(pids) if pids == [rustix::process::getpid().as_raw_nonzero().get()] => {
                return Ok(UnifiedSetup::Leaf { dir, path: own.to_owned(), available: given });
            }
            Ok(pids) => format!(
                "{} holds {} other processes, and a cgroup with processes gives no controllers to its children",
                own.display(),
                pids.len().saturating_sub(1)
            ),
            Err(error) => format!("{}/cgroup.procs cannot be read: {error}", own.display()),
        },
    };
    if managed {
        // 4. top.
        if rustix::process::geteuid().is_root()
            && let Some(path) = whole_unified_mount()
            && let Ok(dir) = files::open_dir(CWD, &path)
            && writable_tree(&dir).is_ok()
        {
            let enabled = controllers(&dir, c"cgroup.subtree_control").unwrap_or(0);
            if enabled & (serve::MEMORY | serve::PIDS) == serve::MEMORY | serve::PIDS {
                return Ok(UnifiedSetup::Use { dir, path, enabled, missing: 0 });
            }
        }
        // 5. scope.
        if let Some(bus) = systemd::Bus::find() {
            return Ok(UnifiedSetup::Scope(bus));
        }
    }
    refuse(others)
}

/// Whether children can be made and processes moved into them: the directory and its `cgroup.procs`.
fn writable_tree(dir: &OwnedFd) -> io::Result<()> {
    files::writable(dir, c".")?;
    files::writable(dir, c"cgroup.procs")
}

/// Whether systemd says that this directory is no longer its own (`user.delegate` since 252, `trusted.delegate`
/// before, which only root can read).
fn delegated(dir: &OwnedFd) -> bool {
    let says = |name: &std::ffi::CStr| {
        let mut value = [0u8; 8];
        rustix::fs::fgetxattr(dir, name, &mut value[..]).is_ok_and(|n| value.get(..n) == Some(b"1"))
    };
    says(c"user.delegate") || says(c"trusted.delegate")
}

/// The controllers of ours that a list file names.
fn controllers(dir: &OwnedFd, name: &std::ffi::CStr) -> io::Result<u8> {
    let list = files::read(dir, name)?;
    Ok(serve::CONTROLLERS.iter().fold(0, |bits, (bit, name)| if list.has_word(name) { bits | bit } else { bits }))
}
