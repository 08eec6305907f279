//! The limits that the supervisor enforces by sampling, since the kernel enforces them in part or not at all: CPU time,
//! memory and what sockets buffer.
//!
//! Init enforces the wall time (`confine/init/supervise.rs`); only where it does not does the supervisor end the run, a moment
//! later.

use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::Cgroup;
use cofferdam_policy::{Field, NetworkMode};

use super::{End, GRACE, Loop, Outer, SAMPLE, now_ns};
use crate::proctree;
use crate::run::socket_memory;

/// The same once sockets hold an eighth of the memory limit.
const CLOSELY: Duration = Duration::from_millis(5);
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

impl Loop<'_, '_> {
    pub(super) fn out_of_memory(&mut self) {
        let Some(c) = self.run.cgroup else { return };
        if c.events().is_ok_and(|e| e.oom_kills > 0) {
            self.kill(End::Limit(Field::Memory));
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
        self.arm();
        if self.report.started_ns == 0 {
            // Init can be stopped before it has said that the program runs: no longer than a run may take, either.
            if now.duration_since(self.begun) > SETUP.min(self.run.wall.saturating_add(SLOW_SETUP)) {
                self.kill(End::Lost);
            }
            return;
        }
        self.sample_sockets();
        let late = self.run.wall.saturating_add(GRACE).as_nanos();
        if u128::from(now_ns().saturating_sub(self.report.started_ns)) > late {
            self.kill(End::TimedOut);
        }
        if let Some(c) = self.run.cgroup
            && let Ok(Some(us)) = c.cpu_time_us()
        {
            if us >= self.run.cpu_seconds * 1_000_000 {
                self.kill(End::Limit(Field::CpuTime));
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
            self.kill(End::Limit(Field::CpuTime));
        }
        if most.is_some_and(|most| memory > most) {
            self.kill(End::Limit(Field::Memory));
        }
    }

    /// What sockets hold is charged to no cgroup, or to one apart: it counts towards the memory limit here.
    fn sample_sockets(&mut self) {
        let Some(mode) = self.run.own_network else { return };
        let begun = Instant::now();
        if self.sockets.rests_until.is_some_and(|until| begun < until) {
            return;
        }
        let reached = matches!(mode, NetworkMode::Loopback | NetworkMode::Allowlist);
        // An OCI runtime is a process of the caller's network, whose netlink sockets are not the container's.
        let runtime = self.run.container.is_some_and(Outer::is_child);
        let pid = match runtime {
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
        // Hundreds of sandboxes make it dear for each: what it costs bounds how often it is done.
        self.sockets.rests_until =
            Some(begun + (begun.elapsed() * socket_memory::REST_SHARE).min(socket_memory::LONGEST_REST));
        let held = match held {
            Ok(held) => held,
            Err(e) => {
                let said = (cofferdam_confine::wire::step::SOCKETS, e.raw_os_error().unwrap_or(EOPNOTSUPP));
                // A process gives its namespaces up a moment before its end can be seen.
                if !self.report.weakened.contains(&said) && !self.has_ended(EXITING) {
                    self.report.weakened.push(said);
                }
                return;
            }
        };
        let soon = |begun: Instant| Instant::now() + CLOSELY.max(begun.elapsed() * LOOK_SHARE);
        if self.sockets.growing {
            self.sockets.rests_until = None;
            self.next_sample = self.next_sample.min(soon(begun));
        }
        // What the rest takes is asked only where it matters: the figures of a cgroup are dear.
        if held <= socket_memory::FLOOR {
            return;
        }
        let charged = match self.run.cgroup.map(Cgroup::charged) {
            Some(Ok(Some(charged))) => (charged.bytes, charged.sockets),
            // Without a cgroup's word the processes are asked, as for the limit itself.
            _ => (proctree::sample(self.run.running.pid).memory_bytes, 0),
        };
        let limit = self.run.memory_bytes;
        if let Some(total) = socket_memory::total(charged.0, charged.1, held) {
            self.report.sampled_with_sockets = self.report.sampled_with_sockets.max(total);
            if total > limit {
                self.kill(End::Limit(Field::Memory));
            }
        }
        if held > limit / 8 {
            self.sockets.rests_until = None;
            self.next_sample = self.next_sample.min(soon(begun));
        }
    }
}
