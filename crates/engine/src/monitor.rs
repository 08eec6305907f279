//! What a running sandbox uses at this moment: asked at any time, from any thread, or taken as a stream.
//!
//! A [`Monitor`] is a slot that is handed to a run with its streams. The supervisor puts into it where the figures are, the
//! run's cgroup or else its processes, and takes that back before the first process is waited for: a number is never read
//! that could already be another's.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::{Cgroup, CgroupReader};
use serde::{Deserialize, Serialize};

use crate::proctree;

/// A snapshot of a running sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResourceUsage {
    /// Memory of the tree, bytes.
    pub memory_bytes: u64,
    /// CPU time of the tree so far, seconds.
    pub cpu_time_seconds: f64,
    /// Processes and threads.
    pub pid_count: u32,
}

/// Where the figures of one run are to be had.
#[derive(Debug, Default)]
enum MonitorSlot {
    /// It has not begun.
    #[default]
    Waiting,
    /// It runs.
    Running(MonitoredRun),
    /// It is over.
    Over,
}

/// A run under way.
#[derive(Debug)]
struct MonitoredRun {
    /// The process whose descendants it is.
    pid: i32,
    /// Its cgroup's figures.
    reader: Option<CgroupReader>,
    /// How many processes are no part of the sandbox.
    ours: u32,
    /// CPU time when it was last looked at: what has been used stays used, whoever has died since, microseconds.
    cpu_us: u64,
}

/// Tells what one run uses while it runs. Clones tell of the same run.
#[derive(Debug, Clone, Default)]
pub struct Monitor(Arc<(Mutex<MonitorSlot>, Condvar)>);

impl Monitor {
    /// What the sandbox uses now; `None` before it has begun and once it is over.
    pub fn usage(&self) -> Option<ResourceUsage> {
        match &mut *self.slot() {
            MonitorSlot::Running(running) => Some(running.look()),
            MonitorSlot::Waiting | MonitorSlot::Over => None,
        }
    }

    /// A snapshot every `interval`, the first as soon as the run has begun; ends when the run does.
    pub fn every(&self, interval: Duration) -> Samples {
        Samples { monitor: self.clone(), interval, next: None }
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        matches!(&*self.slot(), MonitorSlot::Over)
    }

    /// The run has begun below this process, `ours` of whose processes are no part of the sandbox.
    /// Costs nothing where nobody watches.
    pub(crate) fn begin(&self, pid: i32, cgroup: Option<&Cgroup>, ours: u32) {
        if Arc::strong_count(&self.0) < 2 {
            return;
        }
        // Without a reader the processes are asked, which costs more and tells the same.
        let reader = cgroup.and_then(|c| c.reader().ok());
        self.set(MonitorSlot::Running(MonitoredRun { pid, reader, ours, cpu_us: 0 }));
    }

    /// The run is over, or never began: whoever waits for its figures waits no longer.
    pub fn end(&self) {
        self.set(MonitorSlot::Over);
    }

    fn set(&self, slot: MonitorSlot) {
        *self.slot() = slot;
        self.0.1.notify_all();
    }

    fn slot(&self) -> MutexGuard<'_, MonitorSlot> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream of snapshots; each item is waited for.
#[derive(Debug)]
pub struct Samples {
    monitor: Monitor,
    interval: Duration,
    next: Option<Instant>,
}

impl Iterator for Samples {
    type Item = ResourceUsage;

    fn next(&mut self) -> Option<ResourceUsage> {
        let shared = Arc::clone(&self.monitor.0);
        let mut slot = self.monitor.slot();
        loop {
            let now = Instant::now();
            match &mut *slot {
                MonitorSlot::Over => return None,
                MonitorSlot::Running(running) if self.next.is_none_or(|next| next <= now) => {
                    self.next = Some(now + self.interval);
                    return Some(running.look());
                }
                MonitorSlot::Running(_) | MonitorSlot::Waiting => {}
            }
            let pause = self.next.map_or(Duration::from_secs(60), |next| next.saturating_duration_since(now));
            slot = shared.1.wait_timeout(slot, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl MonitoredRun {
    fn look(&mut self) -> ResourceUsage {
        let now = self.reader.as_ref().and_then(|r| r.now().ok()).unwrap_or_default();
        let missing = now.memory_bytes.is_none() || now.cpu_time_us.is_none() || now.processes.is_none();
        let sample = if missing { proctree::sample(self.pid) } else { proctree::Sample::default() };
        let ours = u64::from(self.ours);
        // The tree's sample leaves out the process at its top; a cgroup counts every one.
        let processes = now.processes.unwrap_or(sample.processes + 1).saturating_sub(ours);
        self.cpu_us = self.cpu_us.max(now.cpu_time_us.unwrap_or(sample.cpu_us));
        ResourceUsage {
            memory_bytes: now.memory_bytes.unwrap_or(sample.memory_bytes),
            cpu_time_seconds: self.cpu_us as f64 / 1e6,
            pid_count: u32::try_from(processes).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_figures_only_while_it_runs() {
        let monitor = Monitor::default();
        assert_eq!(monitor.usage(), None);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let watching = monitor.clone();
        monitor.begin(std::process::id() as i32, None, 1);
        let used = monitor.usage().unwrap();
        assert!(used.pid_count >= 1 && used.memory_bytes > 0, "{used:?}");
        let samples = watching.every(Duration::from_millis(10));
        let counting = std::thread::spawn(move || samples.count());
        std::thread::sleep(Duration::from_millis(100));
        monitor.end();
        let count = counting.join().unwrap();
        assert!((2..=20).contains(&count), "{count}");
        assert_eq!(monitor.usage(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_run_that_never_begins_ends_the_stream() {
        let monitor = Monitor::default();
        monitor.end();
        assert_eq!(monitor.every(Duration::from_secs(1)).next(), None);
    }
}
