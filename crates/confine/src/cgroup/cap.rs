//! The directory over all runs of one user, whose limit keeps them together from taking the machine's memory.
//!
//! `cofferdam-user-UID` lies where the runs would lie otherwise, in the hierarchy that serves memory. The first run makes
//! it, no run removes it. Its limit is set last: where there is one, everything else is done. A limit below the machine's
//! memory stays, an administrator's as well; any other is replaced by all of the memory but a [`reserve`].
//!
//! Where it cannot be had, runs lie where they would have lain, and [`CgroupLocation::memory_cap`] says why.
//!
//! [`CgroupLocation::memory_cap`]: super::CgroupLocation::memory_cap

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::Mode;
use rustix::io::Errno;

use super::discover::{CgroupParent, CgroupVersion, enable, serve};
use super::{files, name, v1, v2};

/// The limit over the memory of all runs of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCap {
    /// Memory of all runs together, bytes.
    pub bytes: u64,
    /// The directory.
    pub place: String,
    /// What it does not hold.
    pub gap: Option<String>,
}

/// The directory's name, which is none of a run's (`name::parse`).
fn directory(uid: u32) -> String {
    format!("{}user-{uid}", name::PREFIX)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Puts the directory of this user below `above`; without it `above` itself serves, and the reason says why.
pub(super) fn enter(above: Arc<CgroupParent>) -> (Arc<CgroupParent>, Result<MemoryCap, String>) {
    let uid = user();
    let own = directory(uid);
    // A process in the cgroup of a run finds the directory above it.
    if above.path.file_name() == Some(own.as_ref()) {
        let held = hold(&above.dir, &above).map(|(bytes, gap)| cap(bytes, gap, &above.path));
        return (above, held);
    }
    let path = above.path.join(&own);
    match open(&above, &own, uid).and_then(|dir| Ok((hold(&dir, &above)?, dir))) {
        Ok(((bytes, gap), dir)) => {
            let held = cap(bytes, gap, &path);
            let (version, serves) = (above.version, above.serves);
            (Arc::new(CgroupParent { dir, path, version, serves, above: Some(above) }), Ok(held))
        }
        Err(reason) => (above, Err(format!("{}: {reason}", path.display()))),
    }
}

/// What [`enter`] would find or make. Changes nothing.
pub(super) fn look(above: &OwnedFd, path: &Path, version: CgroupVersion) -> Result<MemoryCap, String> {
    let uid = user();
    let own = directory(uid);
    let place = if path.file_name() == Some(own.as_ref()) { path.to_owned() } else { path.join(&own) };
    let total = Machine::now().total;
    let there = || match files::open_dir(rustix::fs::CWD, &place) {
        Ok(dir) => {
            ours(&dir, uid)?;
            limit(&dir, version).map_err(|error| format!("its limit cannot be read: {error}"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => beside_runs(path).map(|()| u64::MAX),
        Err(error) => Err(format!("cannot be opened: {error}")),
    };
    let there = there().map_err(|reason| format!("{}: {reason}", place.display()))?;
    let bytes = if there < total { there } else { share(total.min(limit_above(above, path, version))) };
    Ok(cap(bytes, None, &place))
}

/// What a scope will have that is still to be made.
pub(super) fn in_scope() -> MemoryCap {
    MemoryCap { bytes: share(Machine::now().total), place: "the scope that systemd makes".to_owned(), gap: None }
}

fn cap(bytes: u64, gap: Option<String>, path: &Path) -> MemoryCap {
    MemoryCap { bytes, place: path.display().to_string(), gap }
}

/// What is made below a run's own directory would keep that from being removed.
fn beside_runs(above: &Path) -> Result<(), String> {
    let run = above.file_name().and_then(|name| name.to_str()).and_then(name::parse);
    match run {
        Some(_) => Err("this process is itself in the cgroup of a run, whose limit holds".to_owned()),
        None => Ok(()),
    }
}

fn open(above: &CgroupParent, own: &str, uid: u32) -> Result<OwnedFd, String> {
    let open = || files::open_dir(&above.dir, own);
    let dir = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            beside_runs(&above.path)?;
            match rustix::fs::mkdirat(&above.dir, own, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(error) => return Err(format!("cannot be made: {error}")),
            }
        }
        dir => dir,
    };
    let dir = dir.map_err(|error| format!("cannot be opened: {error}"))?;
    ours(&dir, uid).map(|()| dir)
}

/// No other user may put anything into it, or take its limit away.
fn ours(dir: &OwnedFd, uid: u32) -> Result<(), String> {
    let stat = rustix::fs::fstat(dir).map_err(|error| format!("cannot be looked at: {error}"))?;
    if stat.st_uid != uid {
        return Err(format!("belongs to uid {}, not to {uid}", stat.st_uid));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err("can be written by others than its owner".to_owned());
    }
    Ok(())
}

/// The limit that holds, and what it leaves open.
fn hold(dir: &OwnedFd, above: &CgroupParent) -> Result<(u64, Option<String>), String> {
    let unreadable = |error| format!("its limit cannot be read: {error}");
    let mut bytes = limit(dir, above.version).map_err(unreadable)?;
    let machine = Machine::now();
    if bytes >= machine.total {
        let least = machine.total.min(limit_above(&above.dir, &above.path, above.version));
        set(dir, above, share(least), reserve(least))?;
        bytes = limit(dir, above.version).map_err(unreadable)?;
    }
    let swaps = machine.swaps && above.version == CgroupVersion::V1;
    Ok((bytes, swaps.then(|| v1::limit_memory_and_swap(dir, bytes, machine.total).err()).flatten()))
}

/// Everything that the directory needs, the limit last.
fn set(dir: &OwnedFd, above: &CgroupParent, bytes: u64, sockets: u64) -> Result<(), String> {
    let set = |file: &std::ffi::CStr, value: u64| {
        files::write_number(dir, file, value)
            .map_err(|error| format!("{} cannot be set: {error}", file.to_string_lossy()))
    };
    match above.version {
        CgroupVersion::V1 => {
            // Before 5.11 a limit holds the directory's children only where this is set.
            if files::exists(dir, c"memory.use_hierarchy") {
                set(c"memory.use_hierarchy", 1)?;
            }
            // Version 1 counts what TCP and UDP buffer apart: it gets half of what the limit leaves.
            v1::limit_sockets_to(dir, sockets / 2)?;
            set(c"memory.limit_in_bytes", bytes)
        }
        CgroupVersion::V2 => {
            let wanted = above.serves & !serve::CPU_TIME;
            if enable(dir, wanted) & serve::MEMORY == 0 {
                return Err("the memory controller cannot be enabled for what is below".to_owned());
            }
            set(c"memory.max", bytes)
        }
    }
}

fn limit(dir: &OwnedFd, version: CgroupVersion) -> io::Result<u64> {
    match version {
        CgroupVersion::V1 => files::read_number(dir, c"memory.limit_in_bytes"),
        CgroupVersion::V2 => files::read_number(dir, c"memory.max"),
    }
}

/// The smallest limit of a cgroup and of those above it; without one, the largest number.
fn limit_above(above: &OwnedFd, path: &Path, version: CgroupVersion) -> u64 {
    match version {
        CgroupVersion::V1 => {
            files::read(above, c"memory.stat").ok().and_then(|stat| stat.key("hierarchical_memory_limit"))
        }
        // What a container does not see of the tree it cannot ask.
        CgroupVersion::V2 => {
            let limits = path.ancestors().map_while(|dir| std::fs::read_to_string(dir.join("memory.max")).ok());
            limits.filter_map(|text| text.trim().parse().ok()).min()
        }
    }
    .unwrap_or(u64::MAX)
}

/// What the machine has.
#[derive(Debug, Clone, Copy)]
struct Machine {
    /// Memory, bytes.
    total: u64,
    swaps: bool,
}

impl Machine {
    fn now() -> Machine {
        let info = rustix::system::sysinfo();
        let total = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
        Machine { total, swaps: info.totalswap != 0 }
    }
}

/// What is left to everything else: an eighth, and 512 MiB at the least, but no more than a quarter of a small machine.
fn reserve(total: u64) -> u64 {
    (total / 8).max((512 << 20).min(total / 4))
}

fn share(total: u64) -> u64 {
    total - reserve(total)
}

/// Whether the directory has met its limit since it was made, and the limit.
pub(super) fn met(parent: &CgroupParent) -> io::Result<Option<u64>> {
    let bytes = limit(&parent.dir, parent.version)?;
    let met = match parent.version {
        CgroupVersion::V1 => v1::met_limit(&parent.dir, bytes)?,
        CgroupVersion::V2 => v2::own_ooms(&parent.dir)? > 0,
    };
    Ok(met.then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_no_runs() {
        assert_eq!(directory(1000), "cofferdam-user-1000");
        assert_eq!(name::parse(&directory(1000)), None);
    }

    #[test]
    fn the_share_leaves_an_eighth_and_of_small_machines_a_quarter_at_the_most() {
        const GIB: u64 = 1 << 30;
        assert_eq!(share(64 * GIB), 56 * GIB);
        assert_eq!(share(4 * GIB), 4 * GIB - GIB / 2);
        assert_eq!(share(2 * GIB), 2 * GIB - GIB / 2);
        assert_eq!(share(GIB), GIB / 4 * 3);
        assert_eq!(share(GIB / 4), GIB / 16 * 3);
    }

    #[test]
    fn nothing_is_made_in_the_directory_of_a_run() {
        let run = name::identity().unwrap().fresh_name();
        assert!(beside_runs(&Path::new("/sys/fs/cgroup").join(run)).unwrap_err().contains("a run"));
        assert_eq!(beside_runs(Path::new("/sys/fs/cgroup")), Ok(()));
        assert_eq!(beside_runs(Path::new("/sys/fs/cgroup/cofferdam-supervisor")), Ok(()));
    }
}
