//! Linux: the ruleset and the filter of a specification, and which of its rules they hold on this kernel.
//!
//! ```text
//! Spec, ABI ─ held_by ─▶ Means (who holds what) ─┬─ ruleset ─▶ Landlock
//!                                                ├─ filter  ─▶ seccomp: what Landlock has no words for
//!                                                └─ enforcement ─▶ what the caller is told
//! ```
//!
//! Each rule is Landlock's where the kernel's version has it. What it has not is held by the filter, where a filter can
//! tell; by the keeper (`cofferdam_confine::command`), where somebody has to look; or by not granting at all.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cofferdam_confine::command::{
    NAME_ONLY, Restrictions, Trees, can_disinherit, has_capabilities, listener_available,
};
use cofferdam_confine::landlock::{self, Ruleset, access};
use cofferdam_confine::seccomp::Arch;

use crate::enforcement::{Enforcement, Rule, Strength};
use crate::error::Reason;
use crate::filter::filter;
use crate::places::around;
use crate::spec::{Area, Network, Spec};

/// Devices that do no harm, and terminals: read, write and ioctl.
const DEVICES: [&str; 7] = ["null", "zero", "full", "tty", "ptmx", "random", "urandom"];

/// Directories of `/dev` that hold terminals and shared memory.
const TERMINALS: &str = "/dev/pts";
const SHARED_MEMORY: &str = "/dev/shm";

/// Rights for reading: what a rule grants that lets a tree be read and executed.
pub(crate) fn read_access() -> u64 {
    access::READ
}

/// Every right that is ever granted on a tree: all but making device nodes and ioctl on them.
pub(crate) fn full_access() -> u64 {
    access::READ | access::WRITE & !(access::MAKE_CHAR | access::MAKE_BLOCK)
}

/// What holds what, on this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Means {
    /// Landlock's version; 0 without.
    pub(crate) abi: u32,
    /// Whether there is a filter for this architecture.
    pub(crate) filter: bool,
    /// Whether calls can be handed over.
    pub(crate) keeper: bool,
    /// Capabilities are in effect: what only the system's owner may do is refused as well.
    pub(crate) privileged: bool,
    pub(crate) network: Network,
    pub(crate) unix_sockets: bool,
    pub(crate) shared_ipc: bool,
    /// Descriptors can be closed by exec.
    pub(crate) disinherits: bool,
}

impl Means {
    fn of(spec: &Spec) -> Means {
        let abi = landlock::abi();
        let filter = Arch::native().is_some();
        Means {
            abi: spec.landlock_at_most.map_or(abi, |most| most.min(abi)),
            filter,
            keeper: filter && listener_available(),
            privileged: has_capabilities(),
            network: spec.network,
            unix_sockets: spec.unix_sockets,
            shared_ipc: spec.shared_ipc,
            disinherits: can_disinherit(),
        }
    }

    /// Truncation is the filter's.
    pub(crate) fn filters_truncation(self) -> bool {
        self.abi < 3
    }

    /// Signals are the keeper's.
    pub(crate) fn keeps_signals(self) -> bool {
        self.keeper && self.abi < 6
    }

    /// Which devices can be opened is what holds their ioctl.
    fn closes_devices(self) -> bool {
        (1..5).contains(&self.abi)
    }
}

/// Prepares it all: the walls, and what they hold.
pub(crate) fn prepare(spec: &Spec) -> Result<(Restrictions, Enforcement), Reason> {
    let means = Means::of(spec);
    let enforcement = enforcement(spec, means);
    if let Some(walls) = kept::find(spec, means) {
        return Ok((walls, enforcement));
    }
    let mut granted = Granted::default();
    let ruleset = if means.abi > 0 { Some(ruleset(spec, means, &mut granted)?) } else { None };
    let keeps = means.keeper.then(|| Trees { roots: granted.roots, holes: spec.write.holes.clone() });
    let walls = Restrictions::new(ruleset, filter(means)?, keeps).map_err(failed("descriptors"))?;
    if !granted.enumerated {
        kept::keep(spec, means, granted.seen, &walls);
    }
    Ok((walls, enforcement))
}

/// What a ruleset was made of.
#[derive(Default)]
struct Granted {
    /// What can be written, for the keeper.
    roots: Vec<OwnedFd>,
    /// Every path, as the very thing that was granted.
    seen: Vec<kept::Seen>,
    /// What lies in a directory was granted entry by entry, so that the rules are those of this very moment.
    enumerated: bool,
}

impl Granted {
    fn see(&mut self, path: PathBuf, file: File) -> Result<(), Reason> {
        let step = format!("cannot look at {}", path.display());
        self.seen.push(kept::Seen::new(path, file).map_err(failed(step))?);
        Ok(())
    }
}

/// Walls that were made before, for commands that are spawned again and again. Rules are bound to what a path was, so walls
/// are taken again only while every path is still that; and none whose rules depend on what lies in a directory.
mod kept {
    use std::time::{Duration, Instant};

    use super::*;

    /// How many are kept.
    const MOST: usize = 4;

    /// A path and what it was. The descriptor keeps its inode's number from being another's.
    pub(super) struct Seen {
        path: PathBuf,
        /// None for devices, whose nodes come and go with the device.
        pin: Option<File>,
        inode: (u64, u64),
    }

    impl Seen {
        pub(super) fn new(path: PathBuf, file: File) -> io::Result<Seen> {
            let data = file.metadata()?;
            let pin = (!data.file_type().is_char_device()).then_some(file);
            Ok(Seen { path, pin, inode: (data.dev(), data.ino()) })
        }

        fn is_device(&self) -> bool {
            self.pin.is_none()
        }

        fn is_still(&self) -> bool {
            std::fs::metadata(&self.path).is_ok_and(|data| (data.dev(), data.ino()) == self.inode)
        }
    }

    /// Device nodes are looked at again after this long: where one was made anew, the old rule grants nothing.
    const DEVICES: Duration = Duration::from_secs(1);

    struct Entry {
        spec: Spec,
        means: Means,
        seen: Vec<Seen>,
        /// When the devices were.
        looked: Instant,
        walls: Restrictions,
    }

    static KEPT: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

    pub(super) fn find(spec: &Spec, means: Means) -> Option<Restrictions> {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|entry| entry.spec == *spec && entry.means == means)?;
        let mut entry = kept.remove(at);
        let devices = entry.looked.elapsed() > DEVICES;
        if !entry.seen.iter().all(|seen| seen.is_device() && !devices || seen.is_still()) {
            return None;
        }
        if devices {
            entry.looked = Instant::now();
        }
        let walls = entry.walls.clone();
        kept.push(entry);
        Some(walls)
    }

    pub(super) fn keep(spec: &Spec, means: Means, seen: Vec<Seen>, walls: &Restrictions) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == MOST {
            kept.remove(0);
        }
        kept.push(Entry { spec: spec.clone(), means, seen, looked: Instant::now(), walls: walls.clone() });
    }
}

fn failed(step: impl Into<String>) -> impl FnOnce(io::Error) -> Reason {
    let step = step.into();
    move |source| Reason::Prepare { step, source: source.into() }
}

/// Opens a path to name it, and nothing else: no link at its end, and no other path than the one that was looked up.
fn name(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(NAME_ONLY).open(path)?;
    let now = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)))?;
    if now != path {
        // Nothing is here by this name any more, whether it was removed or moved.
        let text = format!("it leads to {} by now", now.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(file)
}

/// The ruleset, and what it was made of.
fn ruleset(spec: &Spec, means: Means, granted: &mut Granted) -> Result<Ruleset, Reason> {
    let known = landlock::handled_fs(means.abi);
    let mut handled = (access::WRITE | access::IOCTL_DEV) & known;
    if spec.read.is_some() {
        handled |= access::READ;
    } else if means.closes_devices() {
        handled |= access::READ_FILE;
    }
    let net = if spec.network == Network::None { landlock::handled_net(means.abi) } else { 0 };
    let ruleset = Ruleset::new(handled, net, landlock::scoped(means.abi)).map_err(failed("landlock_create_ruleset"))?;
    let allow = |path: &Path, file: &File, wanted: u64| {
        let kind = file.metadata().map_err(failed(format!("cannot look at {}", path.display())))?.file_type();
        let possible = if kind.is_dir() { u64::MAX } else { access::OF_FILES };
        let device = kind.is_char_device() && wanted & access::WRITE_FILE != 0;
        let device = if device { access::IOCTL_DEV | access::READ_FILE } else { 0 };
        let rights = (wanted | device) & possible & handled;
        if rights == 0 {
            return Ok(());
        }
        ruleset.allow(file.as_fd(), rights).map_err(failed(format!("landlock_add_rule for {}", path.display())))
    };
    let grant = |path: &Path, wanted: u64| {
        let file = name(path).map_err(failed(format!("cannot open {}", path.display())))?;
        allow(path, &file, wanted).map(|()| file)
    };
    // What lies beside a hole may be removed or moved before it is granted, and is none of ours to ask for: not granted.
    let piece = |path: &Path, wanted: u64| match name(path) {
        Ok(file) => allow(path, &file, wanted),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(format!("cannot open {}", path.display()))(error)),
    };
    let optional = |path: &Path, wanted: u64| match std::fs::canonicalize(path) {
        Ok(path) => grant(&path, wanted).map(|file| Some((path, file))),
        // A container may have no such device.
        Err(_) => Ok(None),
    };

    // What can be written is read as well; where a hole is for writing alone, so is the grant.
    for root in &spec.write.roots {
        let file = name(root).map_err(failed(format!("cannot open {}", root.display())))?;
        if spec.write.holes.iter().any(|hole| hole.starts_with(root)) {
            granted.enumerated = true;
            for path in around(root, &spec.write.holes)? {
                piece(&path, full_access() & access::WRITE)?;
            }
        } else {
            allow(root, &file, full_access() & access::WRITE)?;
        }
        let again = file.try_clone().map_err(failed("descriptors"))?;
        granted.see(root.clone(), again)?;
        granted.roots.push(file.into());
    }
    let read = match &spec.read {
        Some(area) => area.clone(),
        None => Area { roots: vec![PathBuf::from("/")], holes: vec![PathBuf::from("/dev")] },
    };
    if handled & access::READ != 0 {
        granted.enumerated = true;
        for path in pieces(&read)? {
            piece(&path, read_access())?;
        }
    }
    let terminal = access::READ_FILE | access::WRITE_FILE | access::TRUNCATE;
    for device in DEVICES {
        if let Some((path, file)) = optional(&Path::new("/dev").join(device), terminal)? {
            granted.see(path, file)?;
        }
    }
    if let Some((path, file)) = optional(Path::new(TERMINALS), terminal | access::READ_DIR | access::IOCTL_DEV)? {
        granted.see(path, file)?;
    }
    if let Some((path, file)) = optional(Path::new(SHARED_MEMORY), full_access())? {
        granted.roots.push(file.try_clone().map_err(failed("descriptors"))?.into());
        granted.see(path, file)?;
    }
    Ok(ruleset)
}

fn pieces(area: &Area) -> Result<Vec<PathBuf>, Reason> {
    let mut all = Vec::new();
    for root in &area.roots {
        all.extend(around(root, &area.holes)?);
    }
    Ok(all)
}

/// What the caller is told. Every rule that is held says by what.
fn enforcement(spec: &Spec, means: Means) -> Enforcement {
    let mut e = Enforcement { landlock_abi: means.abi, ..Enforcement::default() };
    let abi = means.abi;
    const NO_LANDLOCK: &str = "this kernel has no Landlock, or it is not among its security modules";
    const NO_FILTER: &str = "no system call filter is known for this architecture";
    let landlock = |since: u32| (abi >= since).then(|| format!("Landlock, ABI {abi}"));
    let filter = |text: &str| if means.filter { Ok(text.to_owned()) } else { Err(NO_FILTER.to_owned()) };
    let mut add = |rule, held: Result<String, String>| match held {
        Ok(by) => e.add(rule, Strength::Full, by),
        Err(why) => e.add(rule, Strength::None, why),
    };
    let walls = landlock(1).ok_or_else(|| NO_LANDLOCK.to_owned());
    add(Rule::Writes, walls.clone());
    add(
        Rule::Truncation,
        match (landlock(3), abi) {
            (Some(by), _) => Ok(by),
            (None, 0) => Err(NO_LANDLOCK.into()),
            _ => filter("seccomp refuses truncate(2), and O_TRUNC without opening for writing"),
        },
    );
    add(
        Rule::Links,
        match (landlock(2), abi) {
            (Some(by), _) => Ok(by),
            (None, 0) => Err(NO_LANDLOCK.into()),
            _ => Ok("Landlock, ABI 1, which refuses every link and rename between directories".into()),
        },
    );
    add(
        Rule::Devices,
        match (landlock(5), abi) {
            (Some(by), _) => Ok(by),
            (None, 0) => Err(NO_LANDLOCK.into()),
            _ => Ok(format!("Landlock, ABI {abi}: no device can be opened but the harmless ones")),
        },
    );
    add(
        Rule::Metadata,
        if abi == 0 {
            // Without Landlock there is no sense in holding less than what could be replaced.
            Err(NO_LANDLOCK.into())
        } else if means.keeper {
            Ok("seccomp hands the calls over, and they are performed inside the writable paths alone".into())
        } else {
            filter("seccomp refuses them everywhere: an outer filter has the only listener that the kernel allows")
        },
    );
    match (means.unix_sockets, landlock(6)) {
        (false, _) => {
            add(Rule::AbstractSockets, filter("seccomp refuses socket(AF_UNIX)"));
            add(Rule::PathSockets, filter("seccomp refuses socket(AF_UNIX)"));
        }
        (true, Some(by)) => add(Rule::AbstractSockets, Ok(by)),
        (true, None) => {
            add(Rule::AbstractSockets, Err("Unix sockets were granted, and Landlock scopes them from ABI 6 on".into()));
        }
    }
    add(
        Rule::Signals,
        match landlock(6) {
            Some(by) => Ok(by),
            None if means.keeps_signals() => {
                Ok("seccomp hands the calls over, and they are performed among the command's own processes".into())
            }
            None => {
                Err("Landlock scopes them from ABI 6 on, and an outer filter has the kernel's only listener".into())
            }
        },
    );
    if !means.shared_ipc {
        add(Rule::Ipc, filter("seccomp refuses System V IPC and POSIX message queues"));
    }
    add(Rule::Keys, filter("seccomp refuses add_key(2), keyctl(2) and request_key(2)"));
    add(
        Rule::Scheduling,
        filter(if means.keeper {
            "seccomp refuses every number but 0, and hands over a thread's own"
        } else {
            "seccomp refuses every number but 0"
        }),
    );
    if !spec.inherit_descriptors {
        let held = if means.disinherits {
            Ok("close_range(2), before exec".into())
        } else {
            Err("close_range(2) can do it from Linux 5.11 on".into())
        };
        add(Rule::Descriptors, held);
    }
    if spec.read.is_some() {
        add(Rule::Reads, walls);
    }
    if spec.network == Network::None {
        add(Rule::Network, filter("seccomp refuses every network socket"));
    }
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(abi: u32) -> Means {
        Means {
            abi,
            filter: true,
            keeper: true,
            privileged: false,
            network: Network::Host,
            unix_sockets: false,
            shared_ipc: false,
            disinherits: true,
        }
    }

    #[test]
    fn test_read_access_flags() {
        let read = read_access();
        for flag in [access::READ_FILE, access::READ_DIR, access::EXECUTE] {
            assert_eq!(read & flag, flag);
        }
        assert_eq!(read & access::WRITE, 0, "and nothing that writes");
    }

    #[test]
    fn test_full_access_contains_writes() {
        let full = full_access();
        const MAKE_DIR: u64 = 1 << 7;
        for flag in [access::WRITE_FILE, MAKE_DIR, access::TRUNCATE, access::REFER] {
            assert_eq!(full & flag, flag);
        }
        assert_eq!(full & read_access(), read_access());
        // A device node in a writable directory would be a way to every disk.
        assert_eq!(full & (access::MAKE_CHAR | access::MAKE_BLOCK | access::IOCTL_DEV), 0);
    }

    #[test]
    fn every_rule_is_held_on_every_version_and_none_without_landlock() {
        let spec = Spec { read: Some(Area::default()), network: Network::None, ..Spec::default() };
        for abi in 1..=9 {
            let told = enforcement(&spec, means(abi));
            assert_eq!(told.strength(), Strength::Full, "{abi}: {told}");
            assert_eq!(told.rules.len(), 14, "{abi}: every rule is listed");
        }
        let told = enforcement(&spec, means(0));
        for rule in [Rule::Writes, Rule::Truncation, Rule::Links, Rule::Devices, Rule::Metadata, Rule::Reads] {
            assert_eq!(told.of(rule), Some(Strength::None), "{rule}");
        }
    }

    #[test]
    fn what_only_a_listener_can_hold_is_not_held_without_one() {
        let spec = Spec::default();
        let nested = |abi| enforcement(&spec, Means { keeper: false, ..means(abi) });
        assert_eq!(nested(6).strength(), Strength::Full);
        let old: Vec<Rule> = nested(5).missing().map(|a| a.rule).collect();
        assert_eq!(old, [Rule::Signals]);
    }

    #[test]
    fn granted_unix_sockets_leave_abstract_ones_to_landlock() {
        let spec = Spec { unix_sockets: true, ..Spec::default() };
        let told = |abi| enforcement(&spec, Means { unix_sockets: true, ..means(abi) });
        assert_eq!(told(6).strength(), Strength::Full);
        assert_eq!(told(5).of(Rule::AbstractSockets), Some(Strength::None));
        assert_eq!(told(5).of(Rule::PathSockets), None, "was not asked for");
    }

    #[test]
    fn the_filter_of_every_version_compiles() {
        for abi in 0..=9 {
            for keeper in [false, true] {
                let means = Means { keeper, network: Network::None, privileged: abi % 2 == 0, ..means(abi) };
                assert!(!filter(means).unwrap().is_empty());
            }
        }
    }
}
