//! What is known of a run when it is over: how it ended, its streams, what was refused and what was counted.

use std::os::fd::OwnedFd;

use cofferdam_confine::cgroup::{Cgroup, CgroupEvents, CgroupUsage, OomCause};
use cofferdam_confine::process;
use cofferdam_policy::{Field, OnViolation};

use crate::outcome::NetworkSummary;
use crate::run::evidence::Log;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// wait status of the program.
    Wait(i32),
    /// The wall limit.
    TimedOut,
    /// Another limit.
    Limit(Field),
    /// It was within its limit, but something of it was killed for lack of memory.
    OomKilled(OomCause),
    /// A violation under `terminate`.
    Violation,
    /// Nothing ran: step, item, errno.
    Failed(u16, usize, i32),
    /// The caller asked for it.
    Cancelled,
    /// What was watched ended without a word: killed from outside, or by the memory limit.
    Lost,
}

impl RunEnd {
    /// The end of a run of which the kernel killed something for lack of memory; `None` where it did not.
    pub(crate) fn oom_kill(cgroup: &Cgroup) -> Option<RunEnd> {
        let cause = match cgroup.oom_cause() {
            Ok(cause) => cause?,
            // Something was killed, and whose limit that was cannot be read.
            Err(error) if cgroup.events().is_ok_and(|events| events.oom_kills > 0) => {
                tracing::warn!("whose memory ran out is not known: {error}");
                OomCause::OwnLimit
            }
            Err(_) => return None,
        };
        Some(match cause {
            OomCause::OwnLimit => RunEnd::Limit(Field::Memory),
            OomCause::AllRunsLimit(_) | OomCause::Machine => RunEnd::OomKilled(cause),
        })
    }
}

/// What the supervisor knows afterwards.
pub(crate) struct SupervisorReport {
    /// How it ended.
    pub end: RunEnd,
    /// Monotonic nanoseconds of the program's start, 0 when it never started.
    pub started_ns: u64,
    /// Monotonic nanoseconds of the end.
    pub ended_ns: u64,
    /// Captured streams, and whether they were cut.
    pub streams: [(Vec<u8>, bool); 2],
    /// What was refused.
    pub log: Log,
    /// Events that got lost.
    pub lost: u32,
    /// What the process tree used.
    pub usage: process::ProcessUsage,
    /// Most memory of any one process that ended, bytes; 0 when it is not known.
    pub largest: u64,
    /// Highest memory sample, bytes; 0 when none was taken.
    pub sampled_memory: u64,
    /// Highest sum of what no cgroup counts, of sockets and overlays, and all other memory, bytes; 0 where that was little.
    pub sampled_with_uncharged: u64,
    /// Highest sample of the tree's CPU time, microseconds; counts what was killed and so never waited for.
    pub sampled_cpu_us: u64,
    /// Highest process count sampled; 0 when none was taken.
    pub sampled_processes: u64,
    /// Copy-on-write layers: mount step and root of the layer.
    pub layers: Vec<(usize, OwnedFd)>,
    /// Steps that could not be done: step and errno.
    pub weakened: Vec<(u16, i32)>,
    /// What went wrong beside the run.
    pub problems: Vec<String>,
    /// What a cgroup counted that goes with its init, read when the program had ended.
    pub counted: Option<(CgroupUsage, CgroupEvents)>,
}

impl SupervisorReport {
    /// The report of a run of which nothing is known yet.
    pub(crate) fn begin(log: Log) -> SupervisorReport {
        SupervisorReport {
            end: RunEnd::Lost,
            started_ns: 0,
            ended_ns: 0,
            streams: [(Vec::new(), false), (Vec::new(), false)],
            log,
            lost: 0,
            usage: process::ProcessUsage::default(),
            largest: 0,
            sampled_memory: 0,
            sampled_with_uncharged: 0,
            sampled_cpu_us: 0,
            sampled_processes: 0,
            layers: Vec::new(),
            weakened: Vec::new(),
            problems: Vec::new(),
            counted: None,
        }
    }

    /// Something went wrong beside the run. Once said is enough.
    pub(crate) fn problem(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.problems.contains(&what) {
            self.problems.push(what);
        }
    }

    /// What the gateway refused ends a run under `terminate`, also where the program had ended by itself first: no refusal
    /// goes unnoticed.
    pub(crate) fn refused(&mut self, network: Option<&NetworkSummary>, on: OnViolation) {
        let refused = network.is_some_and(|network| network.refused > 0);
        if refused && on == OnViolation::Terminate && matches!(self.end, RunEnd::Wait(_)) {
            self.end = RunEnd::Violation;
        }
    }
}
