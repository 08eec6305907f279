//! What both runs ask of the machine: processes, cgroups and mounts that belong to a run, and pseudo-random numbers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pseudo-random numbers, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number from 0 to `n - 1`; `n` is at least 1.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// The command under test: `COFFERDAM_BIN`, or the one beside this program.
///
/// # Errors
/// There is none.
pub fn command() -> Result<PathBuf, String> {
    let beside = || {
        let program = std::env::current_exe().ok()?;
        let directory = program.parent()?;
        // A test's own program lies one directory deeper.
        [directory, directory.parent()?].map(|at| at.join("cofferdam")).into_iter().find(|path| path.is_file())
    };
    let named = std::env::var_os("COFFERDAM_BIN").map(PathBuf::from);
    named.or_else(beside).filter(|path| path.is_file()).ok_or_else(|| {
        "the command under test is not built\nhint: cargo build --workspace, or COFFERDAM_BIN=PATH".to_owned()
    })
}

/// The process ids of this machine.
fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parent of a process, from /proc/PID/stat.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// All processes below `root` in the tree of processes, the nearest first.
pub fn descendants(root: i32) -> Vec<i32> {
    let all: Vec<(i32, i32)> = processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let above = found[next];
        found.extend(all.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

/// Processes that have the marker in their arguments or variables, this one left out.
pub fn carrying(marker: &str) -> Vec<i32> {
    let has = |path: String| {
        fs::read(path).is_ok_and(|text| text.windows(marker.len()).any(|window| window == marker.as_bytes()))
    };
    let own = std::process::id().cast_signed();
    processes()
        .filter(|pid| *pid != own && (has(format!("/proc/{pid}/cmdline")) || has(format!("/proc/{pid}/environ"))))
        .collect()
}

/// Cgroup directories of runs whose owner had one of these process ids, in every hierarchy.
pub fn cgroups_of(owners: &BTreeSet<u32>) -> Vec<String> {
    fn walk(directory: &Path, owners: &BTreeSet<u32>, depth: usize, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let mut parts = name.split('-');
            if parts.next() == Some("cofferdam") && parts.any(|part| part.parse().is_ok_and(|id| owners.contains(&id)))
            {
                found.push(entry.path().to_string_lossy().into_owned());
            }
            if depth > 0 {
                walk(&entry.path(), owners, depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), owners, 8, &mut found);
    found
}

/// Mounts of this process's namespace that name the project.
pub fn mounts() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter(|line| line.contains("cofferdam")).map(str::to_owned).collect()
}

/// Waits until something is true; whether it became so within the time.
pub fn within(patience: Duration, mut is: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is() {
        if begun.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Descriptors, threads and resident KiB of this process.
pub fn resources() -> (usize, usize, u64) {
    let count = |path: &str| fs::read_dir(path).map_or(0, Iterator::count);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    (count("/proc/self/fd"), count("/proc/self/task"), kib)
}
