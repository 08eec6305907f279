//! Removes the cgroups that dead owners left behind: the one thing that survives our own SIGKILL.
//!
//! Touches only directories whose name says that their owner was a process of this pid and time namespace, and
//! that it has ended. Any number of starters may sweep at once: whatever another one removed first is gone, and
//! that is all that was wanted.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::Dir;
use rustix::io::Errno;

use super::discover::{CgroupLocation, CgroupVersion, serve};
use super::{files, kill, name, remove_dir};

/// How long the processes of one left-over directory may take to die.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a sweep did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SweepReport {
    /// Directories removed, over all hierarchies.
    pub removed: usize,
    /// Ours, but their owner lives or cannot be judged from here.
    pub kept: usize,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
}

/// Looks for left-over directories and removes them with everything in them.
///
/// Costs one `fstat` per hierarchy when there is no child directory at all, a listing otherwise.
pub fn sweep(location: &CgroupLocation) -> SweepReport {
    let mut report = SweepReport::default();
    // The pids hierarchy first: it alone can stop what is left from forking away while it is killed.
    let (with_pids, without) = location.parents.iter().partition::<Vec<_>, _>(|p| p.serves & serve::PIDS != 0);
    let parents = with_pids.into_iter().chain(without).map(|parent| (parent, 0));
    // Above the directory over all runs of the user may lie what was made before there was one; it counts as a child there.
    let above = location.parents.iter().filter_map(|parent| parent.above.as_ref()).map(|above| (above, 1));
    for (parent, known) in parents.chain(above) {
        // The link count of a cgroup directory is two and one for each child directory.
        if rustix::fs::fstat(&parent.dir).is_ok_and(|stat| stat.st_nlink == 2 + known) {
            continue;
        }
        let entries = match Dir::read_from(&parent.dir) {
            Ok(entries) => entries,
            Err(error) => {
                report.failed.push(format!("cannot list {}: {error}", parent.path.display()));
                continue;
            }
        };
        for entry in entries.flatten() {
            let Ok(entry) = entry.file_name().to_str() else { continue };
            let Some(owner) = name::parse(entry) else { continue };
            if !location.identity.is_gone(&owner) {
                report.kept += 1;
                continue;
            }
            match clear(&parent.dir, parent.version, parent.serves, entry) {
                Ok(()) => report.removed += 1,
                Err(reason) => report.failed.push(format!("cannot remove {}/{entry}: {reason}", parent.path.display())),
            }
        }
    }
    report
}

fn clear(parent: impl AsFd, version: CgroupVersion, serves: u8, entry: &str) -> Result<(), String> {
    // Mostly empty: init died with its owner.
    match rustix::fs::unlinkat(&parent, entry, rustix::fs::AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::BUSY) => {}
        Err(error) => return Err(error.to_string()),
    }
    let dir = match files::open_dir(&parent, entry) {
        Ok(dir) => dir,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let target = kill::KillTarget { dir: dir.as_fd(), version, has_pids: serves & serve::PIDS != 0 };
    match kill::kill_tree(&[target], entry, PATIENCE) {
        Ok(()) => remove_dir(&parent, entry, PATIENCE).map_err(|error| error.to_string()),
        // Removed by another starter in the middle of it: reads of a dead directory give ENODEV.
        Err(_) if is_absent(&parent, entry) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn is_absent(parent: impl AsFd, entry: &str) -> bool {
    matches!(rustix::fs::statat(parent, entry, rustix::fs::AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}
