//! What goes into a cgroup and what comes out: limits, how far each is held, figures, events and errors.
//!
//! Data and pure arithmetic; no file of a cgroup is touched here.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::PollFlags;

/// What one cgroup shall hold and count. Whatever is `None` or `false` costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupLimits {
    /// Memory of the tree with swap, bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the tree.
    pub pids: Option<u64>,
    /// CPU share in thousandths of one CPU.
    pub cpu_millis: Option<u64>,
    /// Whether the tree's CPU time is counted.
    pub cpu_time: bool,
    /// Whether ending the tree is the cgroup's to do, which version 2 does at once; version 1 is joined faster.
    pub kill: bool,
}

/// How far a limit is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitLevel {
    /// Not at all.
    None,
    /// With the gap that the reason names.
    Partial,
    /// In full.
    Full,
}

/// What was reached for one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reached {
    /// How far.
    pub level: LimitLevel,
    /// Why not in full.
    pub reason: Option<String>,
}

impl Reached {
    /// Held in full.
    pub(super) fn full() -> Self {
        Self { level: LimitLevel::Full, reason: None }
    }

    /// Held with a gap.
    pub(super) fn partial(reason: String) -> Self {
        Self { level: LimitLevel::Partial, reason: Some(reason) }
    }

    /// Not held.
    pub(super) fn none(reason: String) -> Self {
        Self { level: LimitLevel::None, reason: Some(reason) }
    }
}

/// What was reached for each limit that was asked for; `None` for the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AppliedLimits {
    /// Memory.
    pub memory: Option<Reached>,
    /// Processes and threads.
    pub pids: Option<Reached>,
    /// CPU share.
    pub cpu: Option<Reached>,
    /// Counting of CPU time.
    pub cpu_time: Option<Reached>,
}

/// What the tree used. `None`: this kernel does not report it, or nothing that counts it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CgroupUsage {
    /// Highest memory use, bytes, page cache of the tree included.
    pub memory_peak_bytes: Option<u64>,
    /// CPU time, user and system, microseconds.
    pub cpu_time_us: Option<u64>,
    /// Highest number of processes and threads; on kernels without `pids.peak` the present number.
    pub pids_peak: Option<u64>,
    /// Whether `pids_peak` is the kernel's own maximum rather than a sample.
    pub pids_peak_is_exact: bool,
}

/// What happened to the tree, counted by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CgroupEvents {
    /// Processes killed because the memory limit could not be kept.
    pub oom_kills: u64,
    /// Allocations that met the memory limit; most are satisfied by reclaim and no harm is done. Version 2 only:
    /// the failure counts of version 1 stay at 0 on some kernels (seen on 6.18).
    pub memory_limit_hits: Option<u64>,
    /// How often the tree's own memory limit could not be kept and something was killed for it. Version 2 only.
    pub own_ooms: Option<u64>,
    /// Forks refused by the process limit.
    pub pids_limit_hits: u64,
    /// Scheduling periods in which the CPU share was used up and the tree had to wait.
    pub cpu_throttled: u64,
}

/// Whose memory had run out when the kernel killed a process of the tree for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomCause {
    /// The tree's own limit was met.
    OwnLimit,
    /// The limit over all runs of the user was met, bytes; the tree was within its own.
    AllRunsLimit(u64),
    /// Neither: the machine's, or that of a cgroup further up.
    Machine,
}

/// A file that becomes ready when memory runs out. Poll `file` for `ready`; then ask for the events.
#[derive(Debug)]
pub struct OomWatch {
    /// What to poll.
    pub file: OwnedFd,
    /// For what.
    pub ready: PollFlags,
    /// Must stay open as long as the watch.
    pub(super) keep: Option<OwnedFd>,
}

impl OomWatch {
    /// Makes the watch wait for the next event.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn rearm(&self) -> io::Result<()> {
        let mut sink = [0u8; 512];
        if self.keep.is_none() {
            rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Start(0))?;
        }
        match rustix::io::read(&self.file, &mut sink) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Why a cgroup could not be found, made, read or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// There is no place where this process may make one.
    #[error("cannot make a cgroup: {reason}\nhint: {hint}")]
    Unavailable {
        /// What stands in the way.
        reason: String,
        /// What would help.
        hint: String,
    },
    /// A file or directory operation failed.
    #[error("cannot {operation} {object}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// The cause.
        source: io::Error,
    },
    /// Processes were still inside when the time was over.
    #[error("cannot empty cgroup {name}: processes are left after {waited_ms} ms: {pids:?}")]
    NotEmpty {
        /// The directory's name.
        name: String,
        /// How long was waited, milliseconds.
        waited_ms: u64,
        /// Those that are left; 0 stands for one that this pid namespace cannot see.
        pids: Vec<i32>,
    },
    /// The kernel cannot start this cgroup's counters anew.
    #[error("cannot reuse cgroup {name}: {reason}")]
    NotReusable {
        /// The directory's name.
        name: String,
        /// What cannot be reset.
        reason: String,
    },
    /// systemd did not make the scope.
    #[error("cannot get a transient scope from systemd")]
    Systemd(#[source] super::systemd::ScopeError),
}

impl CgroupError {
    pub(super) fn io(operation: &'static str, object: impl Into<String>, source: io::Error) -> Self {
        Self::Io { operation, object: object.into(), source }
    }
}

/// CPU bandwidth of a share: quota and period in microseconds. The kernel takes no quota below 1 ms, so small
/// shares get a longer period.
pub(super) fn quota(millis: u64) -> (u64, u64) {
    let period: u64 = if millis < 10 { 1_000_000 } else { 100_000 };
    (millis.max(1).saturating_mul(period) / 1000, period)
}

/// Whether any swap is in use on this host; without it a missing swap limit is no gap.
pub(super) fn host_has_swap() -> bool {
    rustix::system::sysinfo().totalswap != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_becomes_a_quota_that_the_kernel_takes() {
        assert_eq!(quota(1500), (150_000, 100_000));
        assert_eq!(quota(10), (1_000, 100_000));
        assert_eq!(quota(1), (1_000, 1_000_000));
        for millis in [1, 9, 10, 11, 999, 64_000] {
            let (quota, period) = quota(millis);
            assert!(quota >= 1_000 && period <= 1_000_000, "{millis}");
            assert_eq!(quota * 1000 / period, millis);
        }
    }
}
