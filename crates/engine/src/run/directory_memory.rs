//! What overlayfs keeps of the names in open directories, for the memory limit: no cgroup is charged for it.
//!
//! A directory that exists in both layers of an overlay is listed from a cache of all its names. Each open description keeps
//! the cache that it was read from, also when the directory has changed since and others are read from a new one: what a
//! program can take so grows with its open directories times their names. The kernel says of neither how large it is. But
//! it is memory that the host cannot reclaim: by what that has grown counts for the sandbox, up to the most that its open
//! directories can have.
//!
//! Owns the questions to /proc and the sum. It ends nothing: the supervisor does. Counting names opens the directory anew, so
//! that the program's own description stays as it is. What cannot be looked at counts as more than the limit, if the host's
//! memory has grown by as much.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use cofferdam_confine::process::share_descriptors;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};

use crate::proctree;

/// Most that one name takes, bytes: `struct ovl_cache_entry` with a name of 255 bytes, as kmalloc(9) rounds it up.
const OF_A_NAME: u64 = 512;
/// No directory counts for fewer names: they can have been made, listed and removed between two looks.
const LEAST_NAMES: u64 = 2048;
/// Bytes of a directory's size for each name in it: `BOGO_DIRENT_SIZE` of tmpfs, which the upper layer of a sandbox is.
/// Removed names of the lower layer are among them (whiteouts), and are in the cache as well.
const OF_AN_ENTRY: u64 = 20;
/// Most processes that are looked at.
const MOST_PROCESSES: usize = 4096;

/// Counts for one sandbox.
#[derive(Debug, Default)]
pub struct Directories {
    /// Whether there may be an overlay that can be written.
    matter: bool,
    /// Least that the host could not reclaim since the run began, bytes.
    least: u64,
    /// Most names that any look found in one directory.
    names: u64,
    /// What the last look found, bytes.
    pub held: u64,
    /// Nothing is asked before.
    pub rests_until: Option<Instant>,
}

/// What the open descriptors of a tree are.
#[derive(Debug, Default)]
struct Found {
    /// Descriptors of directories on overlays that can be written.
    directories: u64,
    /// Some cannot be seen.
    hidden: bool,
}

impl Directories {
    /// Begins to count, before the program starts, where it can write to an overlay.
    pub fn begin(matter: bool) -> Directories {
        let least = if matter { unreclaimable().unwrap_or(0) } else { 0 };
        Directories { matter, least, names: LEAST_NAMES, ..Directories::default() }
    }

    /// Looks at the tree below `root`, unless the host has no more than `little` that it could not reclaim before the run:
    /// most bytes that overlayfs has for its open directories.
    pub fn look(&mut self, root: i32, little: u64) -> u64 {
        self.held = 0;
        if !self.matter {
            return 0;
        }
        // Where the kernel does not say, the descriptors alone decide.
        let grown = match unreclaimable() {
            Some(now) => {
                self.least = self.least.min(now);
                now - self.least
            }
            None => u64::MAX,
        };
        if grown > little {
            let found = self.count(root);
            let most = if found.hidden {
                u64::MAX
            } else {
                found.directories.saturating_mul(self.names).saturating_mul(OF_A_NAME)
            };
            self.held = grown.min(most);
        }
        self.held
    }

    fn count(&mut self, root: i32) -> Found {
        let mut look = Look { names: self.names, ..Look::default() };
        let processes = proctree::descendants(root);
        look.found.hidden = processes.len() > MOST_PROCESSES;
        for &process in processes.iter().take(MOST_PROCESSES) {
            look.process(process);
        }
        self.names = look.names;
        look.found
    }
}

/// One look at a tree.
#[derive(Debug, Default)]
struct Look {
    found: Found,
    names: u64,
    /// Mounts by their number: whether each is an overlay that can be written.
    mounts: HashMap<u64, bool>,
    /// Directories whose names have been counted: device and inode.
    counted: HashSet<(u32, u32, u64)>,
}

impl Look {
    /// Threads need not share their descriptors, and the first can have ended.
    fn process(&mut self, process: i32) {
        self.table(process, process);
        for task in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            let Some(task) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if task != process && !share_descriptors(process, task).unwrap_or(false) {
                self.table(process, task);
            }
        }
    }

    /// The descriptors of one task.
    fn table(&mut self, process: i32, task: i32) {
        let path = format!("/proc/{process}/task/{task}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let table = match openat(CWD, format!("{path}/fd"), flags, Mode::empty()) {
            Ok(table) => table,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => return, // it has ended
            Err(_) => return self.found.hidden = true,
        };
        let Ok(entries) = Dir::read_from(&table) else { return self.found.hidden = true };
        for entry in entries.flatten() {
            let Ok(number) = entry.file_name().to_str() else { continue };
            if number.starts_with('.') {
                continue;
            }
            let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::MNT_ID;
            // No server of a file system is asked: it could hang.
            let Ok(stat) = statx(&table, number, AtFlags::STATX_DONT_SYNC, wanted) else { continue };
            match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
                FileType::Directory if self.is_overlay(&path, &stat) => self.directory(&table, number, &stat),
                // What it has sent and nobody has received is in no table.
                FileType::Socket if carries(&path, number) => self.found.hidden = true,
                _ => {}
            }
        }
    }

    fn is_overlay(&mut self, task: &str, stat: &Statx) -> bool {
        if stat.stx_dev_major != 0 {
            return false; // overlayfs has no device
        }
        let has_number = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
        if !has_number {
            return true;
        }
        if !self.mounts.contains_key(&stat.stx_mnt_id) {
            let table = fs::read(format!("{task}/mountinfo")).unwrap_or_default();
            self.mounts.extend(String::from_utf8_lossy(&table).lines().filter_map(overlay));
            // In no table: mounted nowhere, or no longer.
            self.mounts.entry(stat.stx_mnt_id).or_insert(true);
        }
        self.mounts[&stat.stx_mnt_id]
    }

    fn directory(&mut self, table: &OwnedFd, number: &str, stat: &Statx) {
        self.found.directories += 1;
        if !self.counted.insert((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)) {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let listed = openat(table.as_fd(), number, flags, Mode::empty()).and_then(Dir::new).map(Iterator::count);
        match listed {
            Ok(listed) => self.names = self.names.max(listed as u64 + stat.stx_size / OF_AN_ENTRY),
            Err(rustix::io::Errno::NOENT) => {} // closed meanwhile
            Err(_) => self.found.hidden = true,
        }
    }
}

/// Whether a socket carries descriptors that were sent and not received (Linux 5.11).
fn carries(task: &str, number: &str) -> bool {
    match fs::read_to_string(format!("{task}/fdinfo/{number}")) {
        Ok(text) => {
            text.lines().find_map(|line| line.strip_prefix("scm_fds:")).is_some_and(|count| count.trim() != "0")
        }
        Err(e) => e.kind() != std::io::ErrorKind::NotFound, // closed meanwhile
    }
}

/// A line of mountinfo: the mount's number, and whether it is an overlay with a layer that can be written.
fn overlay(line: &str) -> Option<(u64, bool)> {
    let number = line.split(' ').next()?.parse().ok()?;
    let (_, of_file_system) = line.split_once(" - ")?;
    let mut words = of_file_system.split(' ');
    let is_overlay = words.next() == Some("overlay");
    Some((number, is_overlay && words.nth(1)?.split(',').any(|option| option.starts_with("upperdir="))))
}

/// What the host's kernel cannot reclaim of its own objects, bytes. `None` where it does not say, as in containers with a
/// /proc/meminfo of their own, where it is 0.
fn unreclaimable() -> Option<u64> {
    let table = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = table.lines().find_map(|line| line.strip_prefix("SUnreclaim:"))?.split_whitespace().next()?;
    kilobytes.parse::<u64>().ok().filter(|&kilobytes| kilobytes > 0).map(|kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlays_that_can_be_written_are_found_in_the_table() {
        let written =
            "123 96 0:44 / /d rw,nosuid - overlay none rw,lowerdir=a,upperdir=b/upper,workdir=b/work,userxattr";
        let hiding = "124 96 0:45 / /h ro,nosuid - overlay none ro,lowerdir=a:b,userxattr";
        let disk = "43 88 254:0 /w /w ro - ext4 /dev/vda rw,upperdir=x";
        assert_eq!([written, hiding, disk].map(overlay), [Some((123, true)), Some((124, false)), Some((43, false))]);
        assert_eq!((overlay("x"), overlay("7 8 0:1 / / rw")), (None, None));
    }

    #[test]
    fn nothing_is_looked_at_while_the_host_has_not_grown_and_without_overlays() {
        let mut none = Directories::begin(false);
        assert_eq!(none.look(1, 0), 0);
        let mut some = Directories::begin(true);
        assert_eq!(some.look(std::process::id() as i32, u64::MAX - 1), 0);
        assert!(some.least > 0 || unreclaimable().is_none(), "{some:?}");
    }

    #[test]
    fn directories_elsewhere_do_not_count() {
        let mut child =
            std::process::Command::new("sleep").arg("60").stdin(fs::File::open("/proc").unwrap()).spawn().unwrap();
        let mut look = Look::default();
        look.process(child.id() as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((look.found.directories, look.found.hidden), (0, false), "{look:?}");
        look.process(child.id() as i32);
        assert!(!look.found.hidden, "a process that has ended hides nothing");
    }
}
