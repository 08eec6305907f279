//! What the kernel keeps for each open description of a directory, for the memory limit: no cgroup is charged for it.
//!
//! ext4 keeps the names of one block that was listed, and overlayfs, of a directory that exists in both of its layers, all of
//! them, also when the directory has changed since. So a program that lists directories, and keeps them open, can have many
//! times its limit. The kernel does not say how much. But it is memory that the host cannot reclaim: by what that has grown
//! counts for the sandbox, up to the most that its open directories can have.
//!
//! Owns the questions to /proc and the sum. It ends nothing: the supervisor does. A directory whose names have to be counted
//! is opened anew, so that the program's own description stays as it is. What cannot be looked at counts as the whole growth.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use cofferdam_confine::process::share_descriptors;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};

use crate::proctree;

/// Most that overlayfs takes for one name, bytes: `struct ovl_cache_entry` with a name of 255 bytes, as kmalloc(9) rounds it up.
const OF_A_NAME: u64 = 512;
/// No directory of an overlay counts for fewer names: they can have been made, listed and removed between two looks.
const LEAST_NAMES: u64 = 128;
/// Bytes of a directory's size for each name in it: `BOGO_DIRENT_SIZE` of tmpfs, which the upper layer of a sandbox is.
/// Removed names of the lower layer are among them (whiteouts), and are kept as well.
const OF_AN_ENTRY: u64 = 20;
/// Most that other file systems take for a directory, for each byte of its block size: ext4 has 64 bytes or more for an entry
/// of 12, and others a buffer or two.
const OF_A_BLOCK: u64 = 8;
/// Most processes, and most descriptors, that are looked at. To read what a socket carries counts as several.
const MOST_PROCESSES: usize = 4096;
const MOST_DESCRIPTORS: u32 = 16_384;
const OF_A_SOCKET: u32 = 8;
/// How long names are counted in one look: each directory's once in a run.
const COUNTING: Duration = Duration::from_millis(100);

/// Counts for one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    /// Whether the program may write to an overlay.
    overlays: bool,
    /// Least that the host could not reclaim since the run began, bytes.
    least: u64,
    /// Most names that any look found in one directory of an overlay.
    names: u64,
    /// Directories whose names have been counted.
    counted: HashSet<DirectoryInode>,
    /// What the last look found, bytes.
    pub held: u64,
    /// Nothing is asked before.
    pub rests_until: Option<Instant>,
}

/// Device and inode.
type DirectoryInode = (u32, u32, u64);

impl Directories {
    /// Begins to count, before the program starts.
    pub(crate) fn begin(overlays: bool) -> Directories {
        Directories { overlays, least: unreclaimable().unwrap_or(0), names: LEAST_NAMES, ..Directories::default() }
    }

    /// Looks at the tree below `root`, unless the host has no more than `little` that it could not reclaim before the run:
    /// most bytes that the kernel has for its open directories.
    pub(crate) fn look(&mut self, root: i32, little: u64) -> u64 {
        self.held = match unreclaimable() {
            Some(now) => {
                self.least = self.least.min(now);
                let grown = now - self.least;
                if grown > little { grown.min(self.most(root, grown)) } else { 0 }
            }
            // Where the kernel does not say, what is seen decides: a guess about the rest would end runs that hold nothing.
            None => Some(self.most(root, u64::MAX)).filter(|&most| most < u64::MAX).unwrap_or(0),
        };
        self.held
    }

    /// Most bytes that the directories of a tree can have. More than `enough` is not worth counting names for.
    fn most(&mut self, root: i32, enough: u64) -> u64 {
        let processes = proctree::descendants(root);
        let mut look = TreeScan { hidden: processes.len() > MOST_PROCESSES, ..TreeScan::default() };
        for &process in processes.iter().take(MOST_PROCESSES) {
            look.process(process);
        }
        self.names = self.names.max(look.names);
        let begun = Instant::now();
        for (identity, directory) in std::mem::take(&mut look.directories) {
            if look.most(self.overlays, self.names) >= enough {
                break;
            }
            if !self.counted.insert(identity) {
                continue;
            }
            if begun.elapsed() > COUNTING {
                self.counted.remove(&identity);
                look.hidden = true;
                break;
            }
            match directory.names() {
                Some(names) => self.names = self.names.max(names),
                None => look.hidden = true,
            }
        }
        look.most(self.overlays, self.names)
    }
}

/// One look at a tree.
#[derive(Debug, Default)]
struct TreeScan {
    /// Descriptors of directories on overlays that can be written.
    on_overlays: u64,
    /// Bytes that those of other directories can have, and the most for one.
    of_others: u64,
    of_another: u64,
    /// Threads. One that is in a system call may be the last that holds a description which others have closed, as in
    /// flock(2).
    threads: u64,
    /// Some cannot be seen.
    hidden: bool,
    /// Most names that any directory has in its upper layer.
    names: u64,
    /// Mounts by their number: whether each is an overlay that can be written.
    mounts: HashMap<u64, bool>,
    /// Directories on overlays.
    directories: HashMap<DirectoryInode, OverlayDirectory>,
    /// Sockets that have been looked at.
    sockets: HashSet<u64>,
    descriptors: u32,
}

/// A directory on an overlay: one of the descriptors that it is open by, in /proc, and the names in its upper layer.
#[derive(Debug)]
struct OverlayDirectory {
    open: String,
    upper: u64,
}

impl OverlayDirectory {
    /// How many names it can have in all. `None` where it cannot be opened.
    fn names(&self) -> Option<u64> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match openat(CWD, self.open.as_str(), flags, Mode::empty()).and_then(Dir::new) {
            Ok(listed) => Some(listed.count() as u64 + self.upper),
            Err(rustix::io::Errno::NOENT) => Some(0), // closed meanwhile
            Err(_) => None,
        }
    }
}

impl TreeScan {
    fn most(&self, overlays: bool, names: u64) -> u64 {
        if self.hidden {
            return u64::MAX;
        }
        let of_an_overlay = names.saturating_mul(OF_A_NAME);
        let unseen = if overlays { of_an_overlay.max(self.of_another) } else { self.of_another };
        let of_threads = self.threads.saturating_mul(unseen);
        self.on_overlays.saturating_mul(of_an_overlay).saturating_add(self.of_others).saturating_add(of_threads)
    }

    /// Threads need not share their descriptors, and the first can have ended.
    fn process(&mut self, process: i32) {
        self.table(process, process);
        for task in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            let Some(task) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            self.threads += 1;
            if task != process && !share_descriptors(process, task).unwrap_or(false) {
                self.table(process, task);
            }
        }
    }

    /// The descriptors of one task.
    fn table(&mut self, process: i32, task: i32) {
        if self.hidden {
            return;
        }
        let path = format!("/proc/{process}/task/{task}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let table = match openat(CWD, format!("{path}/fd"), flags, Mode::empty()) {
            Ok(table) => table,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => return, // it has ended
            Err(_) => return self.hidden = true,
        };
        let Ok(entries) = Dir::read_from(&table) else { return self.hidden = true };
        for entry in entries.flatten() {
            let Ok(number) = entry.file_name().to_str() else { continue };
            if number.starts_with('.') {
                continue;
            }
            self.descriptors += 1;
            if self.descriptors > MOST_DESCRIPTORS {
                return self.hidden = true;
            }
            let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::MNT_ID;
            // No server of a file system is asked: it could hang.
            let Ok(stat) = statx(&table, number, AtFlags::STATX_DONT_SYNC, wanted) else { continue };
            match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
                FileType::Directory if self.is_overlay(&path, &stat) => self.on_overlay(&path, number, &stat),
                FileType::Directory => {
                    let most = u64::from(stat.stx_blksize).max(4096).saturating_mul(OF_A_BLOCK);
                    self.of_others = self.of_others.saturating_add(most);
                    self.of_another = self.of_another.max(most);
                }
                // What it has sent and nobody has received is in no table.
                FileType::Socket if self.sockets.insert(stat.stx_ino) => {
                    self.descriptors += OF_A_SOCKET;
                    self.hidden |= carries(&path, number);
                }
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

    fn on_overlay(&mut self, task: &str, number: &str, stat: &Statx) {
        self.on_overlays += 1;
        let upper = stat.stx_size / OF_AN_ENTRY;
        self.names = self.names.max(upper);
        let identity = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let open = || OverlayDirectory { open: format!("{task}/fd/{number}"), upper };
        self.directories.entry(identity).or_insert_with(open);
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

/// What the host's kernel cannot reclaim of its own objects, bytes. Some containers have a /proc/meminfo of their own, where
/// it is 0 (lxcfs), and the host's /proc/vmstat. `None` where neither says.
fn unreclaimable() -> Option<u64> {
    let read = |file: &str, name: &str| number(&fs::read_to_string(file).ok()?, name);
    let kilobytes = read("/proc/meminfo", "SUnreclaim:").map(|kilobytes| kilobytes << 10);
    kilobytes.or_else(|| {
        let pages = read("/proc/vmstat", "nr_slab_unreclaimable")?;
        Some(pages.saturating_mul(rustix::param::page_size() as u64))
    })
}

/// The number in the line of a table that begins with this word; `None` where it is 0.
fn number(table: &str, name: &str) -> Option<u64> {
    let mut words = table.lines().map(str::split_whitespace).find(|words| words.clone().next() == Some(name))?;
    words.nth(1)?.parse().ok().filter(|&number| number > 0)
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
    fn a_table_without_the_figure_says_nothing() {
        assert_eq!(number("Slab: 9 kB\nSUnreclaim:       109780 kB\n", "SUnreclaim:"), Some(109_780));
        assert_eq!(number("nr_slab_unreclaimable 27445\n", "nr_slab_unreclaimable"), Some(27_445));
        assert_eq!((number("SUnreclaim: 0 kB\n", "SUnreclaim:"), number("", "SUnreclaim:")), (None, None));
    }

    #[test]
    fn nothing_is_looked_at_while_the_host_has_not_grown() {
        let mut directories = Directories::begin(true);
        assert_eq!(directories.look(std::process::id() as i32, u64::MAX - 1), 0);
        assert!(directories.least > 0 || unreclaimable().is_none(), "{directories:?}");
    }

    #[test]
    fn most_counts_what_is_seen_and_one_for_each_thread() {
        let mut look = TreeScan { on_overlays: 3, of_others: 40, of_another: 10, threads: 2, ..TreeScan::default() };
        assert_eq!(look.most(false, 1000), 3 * 512_000 + 40 + 2 * 10);
        assert_eq!(look.most(true, 1000), 3 * 512_000 + 40 + 2 * 512_000);
        look.hidden = true;
        assert_eq!(look.most(false, 1), u64::MAX);
    }

    #[test]
    fn directories_of_a_process_are_counted_until_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let stdin = fs::File::open(directory.path()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").stdin(stdin).spawn().unwrap();
        let mut look = TreeScan::default();
        look.process(child.id() as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(look.of_others > 0 || look.on_overlays > 0, "{look:?}");
        assert_eq!((look.threads, look.hidden), (1, false), "{look:?}");
        let mut ended = TreeScan::default();
        ended.process(child.id() as i32);
        assert_eq!((ended.most(true, 1000), ended.hidden), (0, false), "{ended:?}");
    }
}
