//! One directory of the unified hierarchy: limits, figures, events and killing.
//!
//! Owns the file names of cgroup v2 (kernel documentation `admin-guide/cgroup-v2.rst`). Never makes or removes
//! directories and never enables controllers: `discover` does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::OFlags;

use super::io as files;
use super::types::{OomWatch, Reached};

/// Holds memory, forbids swap, and makes the kernel kill the whole tree when the limit cannot be kept, so that
/// no half of a program goes on.
pub(super) fn limit_memory(dir: BorrowedFd<'_>, bytes: u64) -> Reached {
    if let Err(error) = files::write_number(dir, c"memory.max", bytes) {
        return Reached::none(format!("memory.max could not be set: {error}"));
    }
    // Absent before 4.19: then one process dies at a time and the limit holds all the same.
    let group = files::write(dir, c"memory.oom.group", b"1");
    if let Err(error) = files::write(dir, c"memory.swap.max", b"0")
        && super::types::host_has_swap()
    {
        return Reached::partial(format!("swap is not limited: memory.swap.max: {error}"));
    }
    match group {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Reached::partial(format!("only single processes are killed: memory.oom.group: {error}"))
        }
        _ => Reached::full(),
    }
}

/// Bounds the share of CPU time. Version 2 lets a child ask for more than its parent has; the parent holds.
pub(super) fn limit_cpu(dir: BorrowedFd<'_>, millis: u64) -> Reached {
    let (quota, period) = super::types::quota(millis);
    match files::write(dir, c"cpu.max", format!("{quota} {period}").as_bytes()) {
        Ok(()) => Reached::full(),
        Err(error) => Reached::none(format!("cpu.max could not be set: {error}")),
    }
}

/// Highest memory use, bytes; none before 5.19.
pub(super) fn memory_peak(dir: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    optional(files::read_number(dir, c"memory.peak"))
}

/// CPU time of the tree since the directory was made, microseconds. Needs no controller.
pub(super) fn cpu_time(dir: BorrowedFd<'_>) -> io::Result<u64> {
    let stat = files::read(dir, c"cpu.stat")?;
    stat.key("usage_usec").ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// What `memory.events` counts, from one read.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryEvents {
    /// Processes killed for lack of memory, anybody's.
    pub(super) kills: u64,
    /// Limit hits.
    pub(super) hits: u64,
    /// Limit hits in this tree that killed.
    pub(super) own_ooms: u64,
}

pub(super) fn memory_events(dir: BorrowedFd<'_>) -> io::Result<MemoryEvents> {
    let events = files::read(dir, c"memory.events")?;
    let count = |key| events.key(key).unwrap_or(0);
    Ok(MemoryEvents { kills: count("oom_kill"), hits: count("max"), own_ooms: count("oom") })
}

/// How often the directory's own limit, none of its children's, could not be kept; not counted before 5.2.
pub(super) fn own_ooms(dir: impl AsFd) -> io::Result<u64> {
    Ok(optional(files::read(dir, c"memory.events.local").map(|events| events.key("oom").unwrap_or(0)))?.unwrap_or(0))
}

/// Kills every process of the tree at once, forks in flight included; `false` before 5.14.
pub(super) fn kill(dir: BorrowedFd<'_>) -> io::Result<bool> {
    match files::write(dir, c"cgroup.kill", b"1") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether any process is left in the tree.
pub(super) fn populated(dir: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(files::read(dir, c"cgroup.events")?.key("populated") != Some(0))
}

/// `memory.events` as a pollable file: `PRI` after each change. Read once, because only changes after a read count.
pub(super) fn oom_watch(dir: BorrowedFd<'_>) -> io::Result<OomWatch> {
    let file = files::open(dir, c"memory.events", OFlags::RDONLY)?;
    files::read_fd(&file)?;
    Ok(OomWatch { file, ready: rustix::event::PollFlags::PRI, keep: None })
}

/// A figure that older kernels do not have.
fn optional(read: io::Result<u64>) -> io::Result<Option<u64>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
