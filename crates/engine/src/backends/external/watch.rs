//! One run of an external sandbox program, from its start to the dead tree: streams, limits, the end.
//!
//! The same limits as the jail's supervisor holds, without an init of ours to talk to: the clock is this loop's, the program
//! reports on one descriptor (`side`), and there are no events.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::Cgroup;
use cofferdam_confine::{Running, process};
use cofferdam_policy::Field;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::{Failure, Step};
use crate::io::Io;
use crate::proctree;
use crate::run::evidence::Log;
use crate::run::streams::{Sink, Source, buffer};
use crate::run::supervise::{End, Report, now_ns};

/// A started program.
pub struct Watched<'a> {
    /// The sandbox program itself.
    pub running: Running,
    /// What it tells.
    pub side: Option<OwnedFd>,
    /// What it waits at before the program starts.
    pub gate: Option<Gate<'a>>,
    /// How the whole tree is ended.
    pub tree: Tree,
    /// Standard input.
    pub source: Source,
    /// Standard output and error.
    pub sinks: [Option<Sink>; 2],
    /// The run's cgroup.
    pub cgroup: Option<&'a Cgroup>,
    /// Wall limit.
    pub wall: Duration,
    /// CPU seconds of the tree.
    pub cpu_seconds: u64,
    /// Memory bytes, when no cgroup holds it.
    pub sample_memory: Option<u64>,
}

/// Where the sandbox program waits once it has made its mounts, and before the program starts.
pub struct Gate<'a> {
    /// A pipe that is full, until the sandbox program reads from it: its mounts are made.
    pub reached: OwnedFd,
    /// A socket from which it reads on, to the end, and on which it may tell why the program could not be started.
    pub go: OwnedFd,
    /// What it reads there. Without all of it no program starts, so that our death starts none.
    pub says: &'a [u8],
    /// Whether the program may start in the sandbox in which this process is.
    pub allows: &'a dyn Fn(i32) -> Result<(), Failure>,
}

/// How a whole tree is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// The sandbox program is the first process of a pid namespace: its end is everybody's.
    Namespace,
    /// What is below the sandbox program is one: that comes first.
    Below,
    /// The sandbox program leads a process group.
    Group,
}

/// What is known afterwards.
pub struct Seen {
    /// How it ended, as far as this process ended it, and what was counted. Without an init of ours there are no events in it.
    pub report: Report,
    /// Why this process ended it.
    pub killed: Option<End>,
    /// wait(2) status of the sandbox program.
    pub status: i32,
    /// wait(2) status of the program, where the kernel tells.
    pub inner: Option<i32>,
    /// What the sandbox program reported.
    pub side: Vec<u8>,
    /// Why the program was not let start.
    pub refused: Option<Failure>,
    /// The errno with which the program could not be executed.
    pub not_executed: Option<i32>,
}

/// How often limits are looked at.
const SAMPLE: Duration = Duration::from_millis(50);
/// How long the program may take over ending once what it runs is dead.
const GRACE: Duration = Duration::from_secs(1);
/// As much is kept of what the program tells.
const SIDE: usize = 64 * 1024;

struct Loop<'a, 'io> {
    w: Watched<'a>,
    io: &'io mut Io,
    seen: Seen,
    begun: Instant,
    next_sample: Instant,
    sampler: proctree::Sampler,
    /// The program, which is the sandbox program's child.
    inner: Option<OwnedFd>,
    /// The gate's socket, once the program was let start.
    answers: Option<OwnedFd>,
    buf: Vec<u8>,
}

/// Watches until the tree is dead and every stream is read to its end.
///
/// `ending` is called before the program is waited for: until then its number is its own.
pub fn watch(w: Watched<'_>, log: Log, io: &mut Io, ending: &dyn Fn()) -> Seen {
    let begun = Instant::now();
    let mut report = Report::begin(log);
    report.started_ns = now_ns();
    let seen =
        Seen { report, killed: None, status: 0, inner: None, side: Vec::new(), refused: None, not_executed: None };
    let (next_sample, sampler) = (begun + SAMPLE, proctree::Sampler::default());
    let mut l = Loop { w, io, seen, begun, next_sample, sampler, inner: None, answers: None, buf: buffer() };
    while !l.step() {}
    ending();
    l.finish()
}

impl Loop<'_, '_> {
    /// One turn; true when the program is dead.
    fn step(&mut self) -> bool {
        let (dead, from, reached) = self.wait();
        if self.io.cancel.is_cancelled() {
            self.kill(End::Cancelled);
        }
        self.listen();
        if let Some(reached) = reached {
            self.pass(reached);
        }
        for sink in self.w.sinks.iter_mut().flatten() {
            sink.pump(&mut self.buf, &mut self.io.output);
        }
        if from {
            self.w.source.read(&mut self.buf);
        }
        self.w.source.write();
        if self.begun.elapsed() >= self.w.wall {
            self.kill(End::TimedOut);
        }
        self.sample();
        dead
    }

    /// Waits a little: whether the program is dead, whether the caller's input can be read, and whether the gate was reached:
    /// false where no process is left that could.
    fn wait(&mut self) -> (bool, bool, Option<bool>) {
        let waits = self.w.sinks.iter().flatten().any(Sink::waits);
        let most = if waits { Duration::from_millis(1) } else { SAMPLE };
        let left = self.w.wall.saturating_sub(self.begun.elapsed());
        let left = if self.seen.killed.is_some() { most } else { left };
        let pause = most.min(left).min(self.next_sample.saturating_duration_since(Instant::now()));
        let from = self.w.source.poll_from();
        let first = [Some(self.w.running.pidfd.as_fd()), from].into_iter().flatten();
        let rest = [
            self.w.side.as_ref().map(AsFd::as_fd),
            self.w.sinks[0].as_ref().and_then(Sink::poll_fd),
            self.w.sinks[1].as_ref().and_then(Sink::poll_fd),
        ];
        let readable = first.chain(rest.into_iter().flatten());
        let mut fds: Vec<PollFd<'_>> = readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        fds.extend(self.w.source.poll_to().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        let gate = self.w.gate.as_ref().map(|gate| {
            fds.push(PollFd::from_borrowed_fd(gate.reached.as_fd(), PollFlags::OUT));
            fds.len() - 1
        });
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
        // EINTR: a signal for the caller; the flags are looked at next.
        if poll(&mut fds, Some(&timeout)).is_err() {
            return (false, false, None);
        }
        let ready = |i: usize| !fds[i].revents().is_empty();
        let reached = gate.filter(|&i| ready(i)).map(|i| fds[i].revents().contains(PollFlags::OUT));
        (ready(0), from.is_some() && ready(1), reached)
    }

    /// Reads what the program tells.
    fn listen(&mut self) {
        while let Some(side) = &self.w.side {
            match rustix::io::read(side, &mut self.buf[..4096]) {
                Ok(0) => self.w.side = None,
                Ok(n) => {
                    let room = SIDE.saturating_sub(self.seen.side.len()).min(n);
                    self.seen.side.extend_from_slice(&self.buf[..room]);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                Err(_) => self.w.side = None,
            }
        }
    }

    /// Lets the program start, or ends it all. The sandbox program's child waits meanwhile, so that its number is its own.
    fn pass(&mut self, reached: bool) {
        let Some(gate) = self.w.gate.take().filter(|_| reached) else { return };
        let allowed = match last_of(self.w.running.pid) {
            Some((pid, pidfd)) => {
                self.inner = Some(pidfd);
                (gate.allows)(pid)
            }
            None => Err(Failure::new(
                Step::Mount,
                "cannot find the sandbox's process in /proc: what is mounted in it cannot be compared with the policy",
            )
            .hint("this backend needs a /proc that shows the processes of its own user; or use --backend jail")),
        };
        if let Err(failure) = allowed {
            self.seen.refused = Some(failure);
            return self.kill(End::Cancelled);
        }
        let sent = send(&gate.go, gate.says, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        let ended = sent.and_then(|n| rustix::net::shutdown(&gate.go, Shutdown::Write).map(|()| n == gate.says.len()));
        match ended {
            Ok(true) => self.answers = Some(gate.go),
            // It has ended meanwhile, which shows next.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET | rustix::io::Errno::NOTCONN) => {}
            Ok(false) | Err(_) => {
                self.seen.refused = Some(Failure::new(Step::Spawn, "cannot tell the sandbox to start the program"));
                self.kill(End::Cancelled);
            }
        }
    }

    fn sample(&mut self) {
        let now = Instant::now();
        if now < self.next_sample {
            return;
        }
        self.next_sample = now + SAMPLE;
        let mut cpu_us = 0;
        if let Some(c) = self.w.cgroup {
            if c.events().is_ok_and(|e| e.oom_kills > 0) {
                self.kill(End::Limit(Field::Memory));
            }
            cpu_us = c.cpu_time_us().ok().flatten().unwrap_or(0);
        }
        if self.w.cgroup.is_none() || self.w.sample_memory.is_some() {
            let t = self.sampler.sample(self.w.running.pid);
            // Shared pages count once for each process in the sample; above the limit they are divided, which takes longer.
            let most = self.w.sample_memory.filter(|&most| t.memory_bytes > most);
            let memory = most.map_or(t.memory_bytes, |_| proctree::memory(self.w.running.pid));
            let r = &mut self.seen.report;
            r.sampled_memory = r.sampled_memory.max(memory);
            r.sampled_cpu_us = r.sampled_cpu_us.max(t.cpu_us);
            r.sampled_processes = r.sampled_processes.max(t.processes);
            cpu_us = cpu_us.max(t.cpu_us);
            if most.is_some_and(|most| memory > most) {
                self.kill(End::Limit(Field::Memory));
            }
        }
        if cpu_us >= self.w.cpu_seconds * 1_000_000 {
            self.kill(End::Limit(Field::CpuTime));
        }
    }

    /// Ends it all. The first reason stays.
    fn kill(&mut self, why: End) {
        if self.seen.killed.is_none() {
            self.seen.killed = Some(why);
            self.seen.report.ended_ns = now_ns();
        }
        if let Some(c) = self.w.cgroup
            && let Err(e) = c.kill_all(Duration::from_millis(200))
        {
            // The pid namespace is killed next and takes the same processes along; the cgroup's removal tells if not.
            self.seen.report.problems.push(e.to_string());
        }
        match self.w.tree {
            Tree::Namespace => {}
            Tree::Below => proctree::kill(self.w.running.pid),
            Tree::Group => self.end_group(),
        }
        if let Err(e) = process::kill(self.w.running.pidfd.as_fd()) {
            self.seen.report.problems.push(format!("cannot kill the sandbox: {e}"));
        }
    }

    /// The program leads a session and a process group, whose number stays taken until it has been waited for.
    fn end_group(&mut self) {
        proctree::kill(self.w.running.pid);
        if let Some(pid) = Pid::from_raw(self.w.running.pid)
            && let Err(e) = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL)
            && e != rustix::io::Errno::SRCH
        {
            self.seen.report.problems.push(format!("cannot kill the sandbox's processes: {e}"));
        }
    }

    fn finish(mut self) -> Seen {
        if self.seen.report.ended_ns == 0 {
            self.seen.report.ended_ns = now_ns();
        }
        self.listen();
        if self.w.tree == Tree::Group {
            self.end_group();
        }
        match process::wait_status(self.w.running.pidfd.as_fd()) {
            Ok((status, usage)) => (self.seen.status, self.seen.report.usage) = (status, usage),
            Err(e) => self.seen.report.problems.push(format!("cannot wait for the sandbox: {e}")),
        }
        let mut errno = [0; 4];
        if let Some(answers) = self.answers.take()
            && let Ok((4, _)) = recv(&answers, &mut errno, RecvFlags::DONTWAIT)
        {
            self.seen.not_executed = Some(i32::from_ne_bytes(errno));
        }
        self.seen.inner = self.inner.take().and_then(|inner| process::exit_status(inner.as_fd()));
        if let Some(c) = self.w.cgroup {
            if self.seen.killed.is_none() && c.events().is_ok_and(|e| e.oom_kills > 0) {
                self.seen.killed = Some(End::Limit(Field::Memory));
            }
            // Where there is no namespace that takes everything along.
            if self.w.tree != Tree::Namespace
                && let Err(e) = c.kill_all(GRACE)
            {
                self.seen.report.problems.push(e.to_string());
            }
        }
        for i in 0..2 {
            if let Some(mut sink) = self.w.sinks[i].take() {
                // Everything that could write is dead: what is in the pipe is all there will be.
                while sink.pump(&mut self.buf, &mut self.io.output) {}
                self.seen.report.streams[i] = (sink.bytes, sink.truncated);
            }
        }
        self.seen
    }
}

/// The last of the processes that come each from the one before, alone, which waits: its number, which is its own meanwhile,
/// and a pidfd. A script may have started the sandbox program, or become it.
fn last_of(first: i32) -> Option<(i32, OwnedFd)> {
    let mut last = None;
    let mut children = proctree::children(first);
    while let [pid] = children[..] {
        last = Some(pid);
        children = proctree::children(pid);
    }
    let pid = last.filter(|_| children.is_empty())?;
    Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?))
}
