//! One directory in one or more version 1 hierarchies: limits, figures and events of the controllers there.
//!
//! Owns the file names of cgroup v1 (kernel documentation `admin-guide/cgroup-v1/`). Never makes or removes
//! directories and never decides which hierarchy to use.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::EventfdFlags;
use rustix::fs::OFlags;

use super::io as files;
use super::types::{OomWatch, Reached};

/// Holds memory plus swap. A fresh cgroup has neither limit, so memory goes first: it may never exceed the sum.
pub(super) fn limit_memory(dir: BorrowedFd<'_>, bytes: u64) -> Reached {
    if let Err(error) = files::write_number(dir, c"memory.limit_in_bytes", bytes) {
        return Reached::none(format!("memory.limit_in_bytes could not be set: {error}"));
    }
    match files::write_number(dir, c"memory.memsw.limit_in_bytes", bytes) {
        Ok(()) => Reached::full(),
        Err(error) => {
            // Without swap accounting the next best thing is not to swap at all, which the kernel takes as a wish.
            let wish = files::write_number(dir, c"memory.swappiness", 0);
            if !super::types::host_has_swap() {
                return Reached::full();
            }
            let rest = if wish.is_ok() { "and swappiness 0 only discourages it" } else { "nor swappiness" };
            Reached::partial(format!("swap is not limited: memory.memsw.limit_in_bytes: {error}, {rest}"))
        }
    }
}

/// Bounds what TCP and UDP sockets buffer, which version 1 counts apart from all other memory: a quarter of the limit, on top
/// of it. Senders then wait and datagrams are dropped. A kernel without the file leaves them to who samples them
/// (`Cgroup::charged`).
pub(super) fn limit_sockets(dir: BorrowedFd<'_>, bytes: u64) -> Result<(), String> {
    limit_sockets_to(dir, bytes / 4)
}

pub(super) fn limit_sockets_to(dir: impl AsFd, bytes: u64) -> Result<(), String> {
    match files::write_number(dir, c"memory.kmem.tcp.limit_in_bytes", bytes) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("memory.kmem.tcp.limit_in_bytes could not be set: {error}"))
        }
        _ => Ok(()),
    }
}

/// Holds memory with swap of a directory whose limit of memory alone is `bytes`, where no limit below `total` does.
pub(super) fn limit_memory_and_swap(dir: impl AsFd, bytes: u64, total: u64) -> Result<(), String> {
    const FILE: &std::ffi::CStr = c"memory.memsw.limit_in_bytes";
    let held = files::read_number(&dir, FILE).is_ok_and(|there| there < total);
    let set = if held { Ok(()) } else { files::write_number(&dir, FILE, bytes) };
    set.map_err(|error| format!("swap is not limited: {}: {error}", FILE.to_string_lossy()))
}

/// Bounds processes and threads of the tree.
pub(super) fn limit_pids(dir: BorrowedFd<'_>, count: u64) -> Reached {
    match files::write_number(dir, c"pids.max", count) {
        Ok(()) => Reached::full(),
        Err(error) => Reached::none(format!("pids.max could not be set: {error}")),
    }
}

/// Bounds the share of CPU time.
pub(super) fn limit_cpu(dir: BorrowedFd<'_>, parent: BorrowedFd<'_>, millis: u64) -> Reached {
    let (quota, period) = super::types::quota(millis);
    let set = files::write_number(dir, c"cpu.cfs_period_us", period)
        .and_then(|()| files::write_number(dir, c"cpu.cfs_quota_us", quota));
    match set {
        Ok(()) => Reached::full(),
        // EINVAL: version 1 refuses a child a larger share than its parent has, which then holds as it is.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && parent_is_tighter(parent, quota, period) => {
            Reached::full()
        }
        Err(error) => Reached::none(format!("cpu.cfs_quota_us could not be set: {error}")),
    }
}

fn parent_is_tighter(parent: BorrowedFd<'_>, quota: u64, period: u64) -> bool {
    let above = (files::read_number(parent, c"cpu.cfs_quota_us"), files::read_number(parent, c"cpu.cfs_period_us"));
    let (Ok(above_quota), Ok(above_period)) = above else { return false };
    u128::from(above_quota) * u128::from(period) <= u128::from(quota) * u128::from(above_period)
}

/// Highest memory use, bytes.
pub(super) fn memory_peak(dir: BorrowedFd<'_>) -> io::Result<u64> {
    files::read_number(dir, c"memory.max_usage_in_bytes")
}

/// A charge that fails is for a few pages.
const NEARLY: u64 = 1 << 20;

/// Whether memory, or memory with swap, has been as high as this limit allows.
pub(super) fn met_limit(dir: impl AsFd, bytes: u64) -> io::Result<bool> {
    let memory = files::read_number(&dir, c"memory.max_usage_in_bytes")?;
    let with_swap = match files::read_number(&dir, c"memory.memsw.max_usage_in_bytes") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        read => read?,
    };
    Ok(memory.max(with_swap).saturating_add(NEARLY) >= bytes)
}

/// What earlier runs may leave charged before it is worth 0.5 ms to give it back, bytes.
const RESIDUE: u64 = 1 << 20;

/// Starts the peak and the failure counts anew. Page cache of earlier runs beyond `RESIDUE` is given back first,
/// so the next peak is at most that much too high.
pub(super) fn reset_memory(dir: BorrowedFd<'_>) -> io::Result<()> {
    if files::read_number(dir, c"memory.usage_in_bytes")? > RESIDUE {
        files::write(dir, c"memory.force_empty", b"0")?;
    }
    files::write(dir, c"memory.max_usage_in_bytes", b"0")?;
    match files::write(dir, c"memory.memsw.max_usage_in_bytes", b"0") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    }
}

/// CPU time of the tree since the directory was made, microseconds.
pub(super) fn cpu_time(dir: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(files::read_number(dir, c"cpuacct.usage")? / 1000)
}

/// Processes killed for lack of memory since the directory was made; kernels before 4.13 do not count them.
pub(super) fn oom_kills(dir: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(files::read(dir, c"memory.oom_control")?.key("oom_kill").unwrap_or(0))
}

/// An eventfd that becomes readable when the limit is met and nothing can be reclaimed.
pub(super) fn oom_watch(dir: BorrowedFd<'_>) -> io::Result<OomWatch> {
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let control = files::open(dir, c"memory.oom_control", OFlags::RDONLY)?;
    let line = format!("{} {}", raw(&event), raw(&control));
    files::write(dir, c"cgroup.event_control", line.as_bytes())?;
    // The kernel holds its own reference to the file; the registration lives as long as the eventfd.
    Ok(OomWatch { file: event, ready: rustix::event::PollFlags::IN, keep: Some(control) })
}

fn raw(fd: &impl AsFd) -> i32 {
    use std::os::fd::AsRawFd;
    fd.as_fd().as_raw_fd()
}
