//! The limits that the supervisor enforces by sampling, since the kernel enforces them in part or not at all: CPU time,
//! memory, what sockets buffer and what overlays keep of names.
//!
//! Init enforces the wall time (`confine/init/supervise.rs`); only where it does not does the supervisor end the run, a moment
//! later ([`super::ProcessTree::wall_limit_grace`]).

use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::Cgroup;
use cofferdam_policy::{Field, NetworkMode};

use super::{OwnNetwork, RunSupervisor, SAMPLE};
use crate::proctree;
use crate::run::report::RunEnd;

/// The same once what no cgroup counts is an eighth of the memory limit.
const CLOSELY: Duration = Duration::from_millis(5);
/// A sum that is not worth comparing: sockets at rest have less.
const LITTLE: u64 = 1 << 20;
/// After a look nothing is asked for so many times as long as it took, and no longer than [`LONGEST_REST`].
const REST_SHARE: u32 = 20;
/// See [`REST_SHARE`].
const LONGEST_REST: Duration = Duration::from_millis(250);
/// How long a process may take from giving up its namespaces to its end.
const EXITING: Duration = Duration::from_millis(100);
/// A look at very many sockets takes long: they are looked at for no more than a fifth of the time.
const LOOK_SHARE: u32 = 4;
/// What a kernel says that cannot.
const EOPNOTSUPP: i32 = 95;
/// What setup takes at the most where nothing hangs.
const SLOW_SETUP: Duration = Duration::from_secs(10);
/// Setup that takes longer than this hangs, as on a dead network file system.
const SETUP: Duration = Duration::from_secs(60);

impl RunSupervisor<'_, '_> {
    pub(super) fn out_of_memory(&mut self) {
        let Some(c) = self.run.cgroup else { return };
        if let Some(end) = RunEnd::oom_kill(c) {
            self.end(end);
            self.oom = None;
        } else if let Some(w) = &self.oom
            && w.rearm().is_err()
        {
            self.oom = None; // the end of the run asks the counters again
        }
    }

    pub(super) fn sample(&mut self) {
        let now = Instant::now();
        if now < self.next_sample {
            return;
        }
        self.next_sample = now + SAMPLE;
        self.kill |= self.killed.is_some(); // until it is dead: what forked meanwhile goes the same way
        self.arm();
        if self.report.started_ns == 0 {
            // Init can be stopped before it has said that the program runs: no longer than a run may take, either.
            if now.duration_since(self.begun) > SETUP.min(self.run.wall.saturating_add(SLOW_SETUP)) {
                self.end(RunEnd::Lost);
            }
            return;
        }
        self.sample_uncharged();
        if let Some(c) = self.run.cgroup
            && let Ok(Some(us)) = c.cpu_time_us()
        {
            if us >= self.run.cpu_seconds * 1_000_000 {
                self.end(RunEnd::Limit(Field::CpuTime));
            }
            if self.run.sample_memory.is_none() {
                return;
            }
        }
        let t = self.sampler.sample(self.run.running.pid);
        // Shared pages count once for each process in the sample; above the limit they are divided, which takes longer.
        let most = self.run.sample_memory.filter(|&most| t.memory_bytes > most);
        let memory = most.map_or(t.memory_bytes, |_| proctree::memory(self.run.running.pid));
        self.report.sampled_memory = self.report.sampled_memory.max(memory);
        self.report.sampled_processes = self.report.sampled_processes.max(t.processes);
        self.report.sampled_cpu_us = self.report.sampled_cpu_us.max(t.cpu_us);
        if t.cpu_us >= self.run.cpu_seconds * 1_000_000 {
            self.end(RunEnd::Limit(Field::CpuTime));
        }
        if most.is_some_and(|most| memory > most) {
            self.end(RunEnd::Limit(Field::Memory));
        }
    }

    /// What sockets buffer and overlays keep of names is charged to no cgroup, or to one apart: it counts towards the memory
    /// limit here.
    fn sample_uncharged(&mut self) {
        let begun = Instant::now();
        let looked = self.look_at_sockets(begun) | self.look_at_directories(begun);
        let (limit, sockets) = (self.run.memory_bytes, self.sockets.found);
        let held = sockets.saturating_add(self.directories.held);
        let soon = || Instant::now() + CLOSELY.max(begun.elapsed() * LOOK_SHARE);
        if self.sockets.growing || looked && held > limit / 8 {
            (self.sockets.rests_until, self.directories.rests_until) = (None, None);
            self.next_sample = self.next_sample.min(soon());
        }
        // What the rest takes is asked only where it matters: the figures of a cgroup are dear.
        if !looked || held <= LITTLE {
            return;
        }
        let (charged, counted) = match self.run.cgroup.map(Cgroup::charged) {
            Some(Ok(Some(charged))) => (charged.bytes, charged.sockets),
            // Without a cgroup's word the processes are asked, as for the limit itself.
            _ => (proctree::sample(self.run.running.pid).memory_bytes, 0),
        };
        let total = total(charged, counted, sockets, self.directories.held);
        self.report.sampled_with_uncharged = self.report.sampled_with_uncharged.max(total);
        if total > limit {
            self.end(RunEnd::Limit(Field::Memory));
        }
    }

    /// True where the names that overlays keep were asked for.
    fn look_at_directories(&mut self, begun: Instant) -> bool {
        if self.directories.rests_until.is_some_and(|until| begun < until) {
            return false;
        }
        let begun = Instant::now();
        self.directories.look(self.run.running.pid, self.run.memory_bytes / 8);
        self.directories.rests_until = Some(rest(begun));
        true
    }

    /// True where what sockets hold was asked for.
    fn look_at_sockets(&mut self, begun: Instant) -> bool {
        let Some(OwnNetwork { mode, below_runtime }) = self.run.own_network else { return false };
        if self.sockets.rests_until.is_some_and(|until| begun < until) {
            return false;
        }
        let reached = matches!(mode, NetworkMode::Loopback | NetworkMode::Allowlist);
        // An OCI runtime is a process of the caller's network, whose netlink sockets are not the container's.
        let pid = match below_runtime {
            true if reached => proctree::container_init(self.run.running.pid),
            true => None, // the filter refuses such sockets
            false => Some(self.run.running.pid),
        };
        // A runtime whose container has ended has no children any more.
        let lost = || pid.is_none() && !proctree::children(self.run.running.pid).is_empty();
        let unknown = reached && (!self.sockets.asks() || self.report.started_ns != 0 && lost());
        let held = match self.sockets.held(pid, self.run.memory_bytes / 8, mode == NetworkMode::Allowlist) {
            Ok(_) if unknown => Err(std::io::ErrorKind::Unsupported.into()),
            held => held,
        };
        self.sockets.rests_until = Some(rest(begun));
        match held {
            Ok(held) => {
                self.sockets.found = held;
                true
            }
            Err(e) => {
                let said = (cofferdam_confine::wire::step::SOCKETS, e.raw_os_error().unwrap_or(EOPNOTSUPP));
                // A process gives its namespaces up a moment before its end can be seen.
                if !self.report.weakened.contains(&said) && !self.has_ended(EXITING) {
                    self.report.weakened.push(said);
                }
                false
            }
        }
    }
}

/// Until when nothing is asked again after a look that began then. Hundreds of sandboxes make it dear for each: what it costs
/// bounds how often it is done.
fn rest(begun: Instant) -> Instant {
    begun + (begun.elapsed() * REST_SHARE).min(LONGEST_REST)
}

/// What a tree takes in all, where its cgroup is charged for `charged` bytes, of which `counted` are already for sockets.
fn total(charged: u64, counted: u64, sockets: u64, directories: u64) -> u64 {
    let counted = counted.min(sockets);
    charged.saturating_sub(counted).saturating_add(sockets).saturating_add(directories)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_cgroup_counts_already_is_not_counted_twice() {
        assert_eq!(super::total(100 << 20, 30 << 20, 50 << 20, 0), 120 << 20);
        assert_eq!(super::total(100 << 20, 30 << 20, 50 << 20, 7), (120 << 20) + 7);
        assert_eq!(super::total(100 << 20, 30 << 20, 0, 9), (100 << 20) + 9, "sockets were not looked at");
    }
}
