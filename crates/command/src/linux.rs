//! Linux: the Landlock ruleset and the seccomp filter of a specification, and which of its rules this kernel enforces.
//!
//! ```text
//! Spec, ABI ─▶ KernelSupport ─┬─ ruleset ─▶ Landlock
//!                             ├─ filter  ─▶ seccomp: what Landlock cannot express
//!                             └─ enforcement ─▶ the report to the caller
//! ```
//!
//! Landlock enforces each rule that the kernel's version supports. The rest is enforced by the filter, if numbers are
//! enough to decide; by the notification supervisor (`cofferdam_confine::command`), if objects have to be inspected; or
//! by not granting at all.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cofferdam_confine::command::{NAME_ONLY, Restrictions, Trees};
use cofferdam_confine::landlock::{self, Ruleset, access};

use crate::confinement_spec::{Area, CommandNetwork, ConfinementSpec};
use crate::enforcement::{CommandEnforcement, ConfinementRule, RuleStrength};
use crate::error::ConfineReason;
use crate::kernel_support::KernelSupport;
use crate::path_resolution::around;
use crate::ruleset_cache::{self, GrantedPath};
use crate::seccomp_filter::filter;

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

/// Prepares the restrictions, and reports what they enforce.
pub(crate) fn prepare(spec: &ConfinementSpec) -> Result<(Restrictions, CommandEnforcement), ConfineReason> {
    let support = KernelSupport::of(spec);
    let enforcement = enforcement(spec, support);
    if let Some(restrictions) = ruleset_cache::find(spec, support) {
        return Ok((restrictions, enforcement));
    }
    let mut granted = RulesetGrants::default();
    let ruleset = if support.abi > 0 { Some(ruleset(spec, support, &mut granted)?) } else { None };
    let keeps = support.keeper.then(|| Trees { roots: granted.roots, holes: spec.write.holes.clone() });
    let restrictions = Restrictions::new(ruleset, filter(support)?, keeps).map_err(failed("descriptors"))?;
    if !granted.enumerated {
        ruleset_cache::insert(spec, support, granted.seen, &restrictions);
    }
    Ok((restrictions, enforcement))
}

/// What a ruleset grants.
#[derive(Default)]
struct RulesetGrants {
    /// The writable trees, for the notification supervisor.
    roots: Vec<OwnedFd>,
    /// Every granted path, with its inode.
    seen: Vec<GrantedPath>,
    /// Entries of a directory were granted one by one, so the rules are valid only at this moment.
    enumerated: bool,
}

impl RulesetGrants {
    fn see(&mut self, path: PathBuf, file: File) -> Result<(), ConfineReason> {
        let step = format!("cannot look at {}", path.display());
        self.seen.push(GrantedPath::new(path, file).map_err(failed(step))?);
        Ok(())
    }
}

fn failed(step: impl Into<String>) -> impl FnOnce(io::Error) -> ConfineReason {
    let step = step.into();
    move |source| ConfineReason::Prepare { step, source: source.into() }
}

/// Opens a path with `O_PATH`: no link at its end, and no other path than the one that was resolved.
fn name(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(NAME_ONLY).open(path)?;
    let now = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)))?;
    if now != path {
        // The name is gone, whether the file was removed or moved.
        let text = format!("it leads to {} by now", now.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(file)
}

/// Creates the ruleset, and records what it grants.
fn ruleset(
    spec: &ConfinementSpec,
    support: KernelSupport,
    granted: &mut RulesetGrants,
) -> Result<Ruleset, ConfineReason> {
    let known = landlock::handled_fs(support.abi);
    let mut handled = (access::WRITE | access::IOCTL_DEV) & known;
    if spec.read.is_some() {
        handled |= access::READ;
    } else if support.closes_devices() {
        handled |= access::READ_FILE;
    }
    let net = if spec.network == CommandNetwork::None { landlock::handled_net(support.abi) } else { 0 };
    let ruleset =
        Ruleset::new(handled, net, landlock::scoped(support.abi)).map_err(failed("landlock_create_ruleset"))?;
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
    // An entry beside an exception may be removed or moved before it is granted; then it is not granted.
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

    // What is writable is readable as well; if an exception is for writing only, so is the grant.
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

fn pieces(area: &Area) -> Result<Vec<PathBuf>, ConfineReason> {
    let mut all = Vec::new();
    for root in &area.roots {
        all.extend(around(root, &area.holes)?);
    }
    Ok(all)
}

/// The report to the caller. Every enforced rule names its mechanism.
fn enforcement(spec: &ConfinementSpec, support: KernelSupport) -> CommandEnforcement {
    let mut e = CommandEnforcement { landlock_abi: support.abi, ..CommandEnforcement::default() };
    let abi = support.abi;
    const NO_LANDLOCK: &str = "this kernel has no Landlock, or it is not among its security modules";
    const NO_FILTER: &str = "no system call filter is known for this architecture";
    let landlock = |since: u32| (abi >= since).then(|| format!("Landlock, ABI {abi}"));
    let filter = |text: &str| if support.filter { Ok(text.to_owned()) } else { Err(NO_FILTER.to_owned()) };
    let mut add = |rule, held: Result<String, String>| match held {
        Ok(by) => e.add(rule, RuleStrength::Full, by),
        Err(why) => e.add(rule, RuleStrength::None, why),
    };
    let restrictions = landlock(1).ok_or_else(|| NO_LANDLOCK.to_owned());
    add(ConfinementRule::Writes, restrictions.clone());
    add(
        ConfinementRule::Truncation,
        match (landlock(3), abi) {
            (Some(by), _) => Ok(by),
            (None, 0) => Err(NO_LANDLOCK.into()),
            _ => filter("seccomp refuses truncate(2), and O_TRUNC without opening for writing"),
        },
    );
    add(
        ConfinementRule::Links,
        match (landlock(2), abi) {
            (Some(by), _) => Ok(by),
            (None, 0) => Err(NO_LANDLOCK.into()),
            _ => Ok("Landlock, ABI 1, which refuses every link and rename between directories".into()),
        },
    );
    add(
        ConfinementRule::Devices,
        match (landlock(5), abi) {
            (Some(by), _) => Ok(by),
            (None, 0) => Err(NO_LANDLOCK.into()),
            _ => Ok(format!("Landlock, ABI {abi}: no device can be opened but the harmless ones")),
        },
    );
    add(
        ConfinementRule::Metadata,
        if abi == 0 {
            // Without Landlock the files can be replaced, so protecting their metadata has no use.
            Err(NO_LANDLOCK.into())
        } else if support.keeper {
            Ok("seccomp hands the calls over, and they are performed inside the writable paths alone".into())
        } else {
            filter("seccomp refuses them everywhere: an outer filter has the only listener that the kernel allows")
        },
    );
    match (support.unix_sockets, landlock(6)) {
        (false, _) => {
            add(ConfinementRule::AbstractSockets, filter("seccomp refuses socket(AF_UNIX)"));
            add(ConfinementRule::PathSockets, filter("seccomp refuses socket(AF_UNIX)"));
        }
        (true, Some(by)) => add(ConfinementRule::AbstractSockets, Ok(by)),
        (true, None) => {
            add(
                ConfinementRule::AbstractSockets,
                Err("Unix sockets were granted, and Landlock scopes them from ABI 6 on".into()),
            );
        }
    }
    add(
        ConfinementRule::Signals,
        match landlock(6) {
            Some(by) => Ok(by),
            None if support.keeps_signals() => {
                Ok("seccomp hands the calls over, and they are performed among the command's own processes".into())
            }
            None => {
                Err("Landlock scopes them from ABI 6 on, and an outer filter has the kernel's only listener".into())
            }
        },
    );
    if !support.shared_ipc {
        add(ConfinementRule::Ipc, filter("seccomp refuses System V IPC and POSIX message queues"));
    }
    add(ConfinementRule::Keys, filter("seccomp refuses add_key(2), keyctl(2) and request_key(2)"));
    add(
        ConfinementRule::Scheduling,
        filter(if support.keeper {
            "seccomp refuses every number but 0, and hands over a thread's own"
        } else {
            "seccomp refuses every number but 0"
        }),
    );
    if !spec.inherit_descriptors {
        let held = if support.disinherits {
            Ok("close_range(2), before exec".into())
        } else {
            Err("close_range(2) can do it from Linux 5.11 on".into())
        };
        add(ConfinementRule::Descriptors, held);
    }
    if spec.read.is_some() {
        add(ConfinementRule::Reads, restrictions);
    }
    if spec.network == CommandNetwork::None {
        add(ConfinementRule::Network, filter("seccomp refuses every network socket"));
    }
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    fn support(abi: u32) -> KernelSupport {
        KernelSupport {
            abi,
            filter: true,
            keeper: true,
            privileged: false,
            network: CommandNetwork::Host,
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
    fn all_rules_are_enforced_from_abi_1_and_none_without() {
        let spec = ConfinementSpec {
            read: Some(Area::default()),
            network: CommandNetwork::None,
            ..ConfinementSpec::default()
        };
        for abi in 1..=9 {
            let enforced = enforcement(&spec, support(abi));
            assert_eq!(enforced.strength(), RuleStrength::Full, "{abi}: {enforced}");
            assert_eq!(enforced.rules.len(), 14, "{abi}: every rule is listed");
        }
        let enforced = enforcement(&spec, support(0));
        for rule in [
            ConfinementRule::Writes,
            ConfinementRule::Truncation,
            ConfinementRule::Links,
            ConfinementRule::Devices,
            ConfinementRule::Metadata,
            ConfinementRule::Reads,
        ] {
            assert_eq!(enforced.of(rule), Some(RuleStrength::None), "{rule}");
        }
    }

    #[test]
    fn rules_that_need_a_listener_are_not_enforced_without_one() {
        let spec = ConfinementSpec::default();
        let nested = |abi| enforcement(&spec, KernelSupport { keeper: false, ..support(abi) });
        assert_eq!(nested(6).strength(), RuleStrength::Full);
        let old: Vec<ConfinementRule> = nested(5).missing().map(|a| a.rule).collect();
        assert_eq!(old, [ConfinementRule::Signals]);
    }

    #[test]
    fn granted_unix_sockets_leave_abstract_ones_to_landlock() {
        let spec = ConfinementSpec { unix_sockets: true, ..ConfinementSpec::default() };
        let enforced_at = |abi| enforcement(&spec, KernelSupport { unix_sockets: true, ..support(abi) });
        assert_eq!(enforced_at(6).strength(), RuleStrength::Full);
        assert_eq!(enforced_at(5).of(ConfinementRule::AbstractSockets), Some(RuleStrength::None));
        assert_eq!(enforced_at(5).of(ConfinementRule::PathSockets), None, "was not asked for");
    }

    #[test]
    fn the_filter_of_every_version_compiles() {
        for abi in 0..=9 {
            for keeper in [false, true] {
                let support =
                    KernelSupport { keeper, network: CommandNetwork::None, privileged: abi % 2 == 0, ..support(abi) };
                assert!(!filter(support).unwrap().is_empty());
            }
        }
    }
}
