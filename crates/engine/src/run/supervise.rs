//! One run, from the started process tree to the dead one: streams, limits, cancelling, the end. The same for every backend.
//!
//! ```text
//! set up ──started──▶ running ──its end, a limit, cancelled──▶ killed ──first process dead──▶ streams to their end, reaped
//! ```
//!
//! One thread, one poll loop. What a tree reports and how it is ended is a [`ProcessTree`]: that of an init of ours
//! ([`init_tree`]), in a namespace of ours or in a container, and that of an external program (`backends/external/program_tree.rs`).

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use cofferdam_confine::RunningInit;
use cofferdam_confine::cgroup::{Cgroup, OomWatch};
use cofferdam_policy::{Field, NetworkMode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::io::{Io, Output, SignalsPassed};
use crate::proctree;
use crate::run::directory_memory::Directories;
use crate::run::evidence::Log;
use crate::run::report::{RunEnd, SupervisorReport};
use crate::run::socket_memory::Sockets;
use crate::run::streams::{InputSource, OutputSink, buffer};

pub(crate) mod init_tree;
mod sampled_limits;

/// What the supervisor holds of a run, by whatever backend the sandbox was set up.
pub(crate) struct SupervisedRun<'a> {
    /// The first process that is watched: init, or the external program.
    pub running: RunningInit,
    /// Standard input.
    pub source: InputSource,
    /// Standard output and error.
    pub sinks: [Option<OutputSink>; 2],
    /// The run's cgroup.
    pub cgroup: Option<&'a Cgroup>,
    /// The wall limit.
    pub wall: Duration,
    /// CPU seconds of the tree.
    pub cpu_seconds: u64,
    /// Memory bytes, when no cgroup holds it.
    pub sample_memory: Option<u64>,
    /// Memory bytes.
    pub memory_bytes: u64,
    /// The network, where its namespace is the sandbox's own and of this kernel: what its sockets hold is memory of the run.
    pub own_network: Option<OwnNetwork>,
    /// Whether the program may write to an overlay: a layer of the sandbox's own, a volume of the host's, or one that a
    /// granted sandbox inside mounts.
    pub overlays: bool,
    /// Bytes kept of each stream.
    pub output_bytes: u64,
    /// What is recorded.
    pub log: Log,
}

/// A network namespace whose sockets are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnNetwork {
    /// What can be reached in it.
    pub mode: NetworkMode,
    /// The watched process is a runtime outside of it, and a child of that one is inside.
    pub below_runtime: bool,
}

/// The processes of a run: what they report, and how they are ended.
///
/// No method waits but [`ProcessTree::reap`]. A tree asks for its own end by [`RunSupervisor::end`].
pub(crate) trait ProcessTree {
    /// What is waited for besides the streams and the end of the first process.
    fn polled(&self) -> Vec<(BorrowedFd<'_>, PollFlags)>;

    /// Takes what was reported. Called in every turn: `ready` says of each of `polled`, in order, what it is ready for.
    fn take_reports(&mut self, run: &mut RunSupervisor<'_, '_>, ready: &[PollFlags], dead: bool);

    /// Ends every process. False where it takes more time: then it is called again.
    fn kill(&mut self, run: &mut RunSupervisor<'_, '_>) -> bool;

    /// Waits for every process, and takes what they reported last.
    fn reap(&mut self, run: &mut RunSupervisor<'_, '_>);

    /// Passes a signal on to the program, which may then end by itself. False where the tree has no way to do so.
    fn pass_on(&mut self, _signal: u8) -> bool {
        false
    }

    /// How much longer than the wall limit it may run before the supervisor ends it, where it holds the limit itself.
    fn wall_limit_grace(&self) -> Duration {
        Duration::ZERO
    }

    /// When the program starts.
    fn start(&self) -> ProgramStart;
}

/// When the program of a run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramStart {
    /// With the first process that is watched: nothing reports it.
    AtOnce,
    /// When that is reported, and not before there is output.
    ReportedOrOutput,
    /// When that is reported. What sets the sandbox up writes to the same streams.
    Reported,
}

/// How often limits are sampled that the kernel does not hold by itself.
const SAMPLE: Duration = Duration::from_millis(50);
/// How long a tree may take over what it was asked to do, before it is done from outside.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// A run that is watched.
pub(crate) struct RunSupervisor<'a, 'io> {
    pub run: SupervisedRun<'a>,
    pub report: SupervisorReport,
    /// What sockets hold.
    pub sockets: Sockets,
    io: &'io mut Io,
    /// What goes into a terminal that is not the program's standard input.
    keys: Option<InputSource>,
    /// Nothing is left to be watched.
    over: bool,
    /// Why this process ended it.
    killed: Option<RunEnd>,
    /// The tree is to be killed in this turn.
    kill: bool,
    /// A size of the terminal that it does not have yet.
    resized: Option<(u16, u16)>,
    /// When it is to be killed, once a signal was passed on to the program.
    kill_at: Option<Instant>,
    wall_limit_grace: Duration,
    buf: Vec<u8>,
    begun: Instant,
    next_sample: Instant,
    oom: Option<OomWatch>,
    directories: Directories,
    sampler: proctree::Sampler,
    /// The watch for memory was asked for. Most runs are over before it would report anything that their end does not.
    armed: bool,
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Watches until the tree is dead and reaped and every stream is read to its end.
pub(crate) fn supervise(mut run: SupervisedRun<'_>, tree: &mut dyn ProcessTree, io: &mut Io) -> SupervisorReport {
    let report = SupervisorReport::begin(std::mem::take(&mut run.log));
    let now = Instant::now();
    let directories = Directories::begin(run.overlays);
    let mut supervisor = RunSupervisor {
        run,
        report,
        sockets: Sockets::default(),
        io,
        keys: None,
        over: false,
        killed: None,
        kill: false,
        resized: None,
        kill_at: None,
        wall_limit_grace: tree.wall_limit_grace(),
        buf: buffer(),
        begun: now,
        next_sample: now + SAMPLE,
        oom: None,
        directories,
        sampler: proctree::Sampler::default(),
        armed: false,
    };
    if tree.start() == ProgramStart::AtOnce {
        supervisor.report.started_ns = now_ns();
    }
    while !supervisor.over {
        supervisor.turn(tree);
        if supervisor.kill {
            supervisor.kill = !tree.kill(&mut supervisor);
        }
    }
    supervisor.finish(tree)
}

impl RunSupervisor<'_, '_> {
    /// The run is to end, and why. The first reason stays.
    pub(crate) fn end(&mut self, why: RunEnd) {
        if self.killed.is_none() {
            self.killed = Some(why);
            self.report.ended_ns = now_ns();
        }
        self.kill = true;
    }

    /// Nothing more will be reported.
    pub(crate) fn over(&mut self) {
        self.over = true;
    }

    fn turn(&mut self, tree: &mut dyn ProcessTree) {
        let polled = tree.polled();
        let (ready, reports) = self.wait(&polled);
        drop(polled);
        self.hold_cancel(tree);
        self.resize();
        tree.take_reports(self, &reports, ready.dead);
        // Its sockets may be open in a process that shares its descriptors: a dead process says nothing more.
        self.over |= ready.dead;
        for i in 0..2 {
            if let Some(sink) = &mut self.run.sinks[i]
                && (ready.sinks[i] || sink.waits())
            {
                sink.pump(&mut self.buf, &mut self.io.output);
                if sink.spoke && self.report.started_ns == 0 && tree.start() == ProgramStart::ReportedOrOutput {
                    self.report.started_ns = now_ns(); // until it is reported when that was
                }
            }
        }
        let cut = self.run.sinks.iter().flatten().any(|sink| sink.truncated);
        if cut && self.io.cut_ends_run && matches!(self.io.output, Output::Capture) {
            self.end(RunEnd::Limit(Field::Output));
        }
        for (source, ready) in [Some(&mut self.run.source), self.keys.as_mut()].into_iter().zip(ready.inputs) {
            let Some(source) = source else { continue };
            if ready.from {
                source.read(&mut self.buf);
            }
            if ready.to {
                source.write();
            }
        }
        if self.terminal().is_some_and(InputSource::is_interrupted) {
            self.end(RunEnd::Cancelled);
        }
        if ready.oom {
            self.out_of_memory();
        }
        self.hold_wall_limit();
        self.sample();
    }

    /// Ends a cancelled run; one whose caller passes signals on gets the signal first, and time to end by itself.
    fn hold_cancel(&mut self, tree: &mut dyn ProcessTree) {
        let late = self.kill_at.is_some_and(|at| Instant::now() >= at);
        if !self.io.cancel.is_cancelled() && !late {
            return;
        }
        if self.kill_at.is_none()
            && self.killed.is_none()
            && self.report.started_ns != 0
            && let Some(SignalsPassed { signal, grace }) = &mut self.io.signals
            && let Some(signal) = signal()
            && tree.pass_on(signal)
        {
            self.kill_at = Instant::now().checked_add(*grace);
            return self.io.cancel.withdraw();
        }
        self.io.cancel.cancel(); // what waits for the caller's reader gives up
        self.end(RunEnd::Cancelled);
    }

    fn resize(&mut self) {
        // Asked in every turn: callers look at more than a terminal's size then. A change that comes before the terminal waits
        // for it.
        if let Some(size) = self.io.resize.as_mut().and_then(|f| f()) {
            self.resized = Some(size);
        }
        if self.terminal().is_none() {
            return;
        }
        let Some(size) = self.resized.take() else { return };
        if let Some(to) = self.terminal().and_then(|terminal| terminal.to.as_ref()) {
            let w = rustix::termios::Winsize { ws_row: size.0, ws_col: size.1, ws_xpixel: 0, ws_ypixel: 0 };
            if let Err(e) = rustix::termios::tcsetwinsize(to, w) {
                self.report.weakened.push((cofferdam_confine::wire::step::TERMINAL, e.raw_os_error()));
            }
        }
    }

    /// What goes into the program's terminal, which comes once the sandbox is set up.
    fn terminal(&self) -> Option<&InputSource> {
        self.keys.as_ref().or(Some(&self.run.source).filter(|source| source.is_terminal()))
    }

    /// Waits a little: what is ready of the supervisor's own, and of the tree's.
    fn wait(&self, polled: &[(BorrowedFd<'_>, PollFlags)]) -> (PollReadiness, Vec<PollFlags>) {
        type Set = fn(&mut PollReadiness);
        let oom = self.oom.as_ref();
        let keys = self.keys.as_ref();
        let candidates: [(Option<BorrowedFd<'_>>, PollFlags, Set); 8] = [
            (Some(self.run.running.pidfd.as_fd()), PollFlags::IN, |r| r.dead = true),
            (self.run.sinks[0].as_ref().and_then(OutputSink::poll_fd), PollFlags::IN, |r| r.sinks[0] = true),
            (self.run.sinks[1].as_ref().and_then(OutputSink::poll_fd), PollFlags::IN, |r| r.sinks[1] = true),
            (self.run.source.poll_from(), PollFlags::IN, |r| r.inputs[0].from = true),
            (self.run.source.poll_to(), PollFlags::OUT, |r| r.inputs[0].to = true),
            (keys.and_then(InputSource::poll_from), PollFlags::IN, |r| r.inputs[1].from = true),
            (keys.and_then(InputSource::poll_to), PollFlags::OUT, |r| r.inputs[1].to = true),
            (oom.map(|o| o.file.as_fd()), oom.map_or(PollFlags::IN, |o| o.ready), |r| r.oom = true),
        ];
        let (mut fds, sets): (Vec<PollFd<'_>>, Vec<Set>) = candidates
            .into_iter()
            .filter_map(|(fd, flags, set)| Some((PollFd::from_borrowed_fd(fd?, flags), set)))
            .unzip();
        fds.extend(polled.iter().map(|&(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        // What the caller has not taken is offered again at once: the caller waits for its reader, limits do not.
        let waits = self.run.sinks.iter().flatten().any(OutputSink::waits);
        let most = if waits { Duration::from_millis(1) } else { Duration::from_millis(100) };
        let pause = most.min(self.next_sample.saturating_duration_since(Instant::now())).min(self.wall_limit_left());
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
        let (mut ready, mut reports) = (PollReadiness::default(), vec![PollFlags::empty(); polled.len()]);
        // EINTR: a signal for the caller; the flags are looked at next.
        if poll(&mut fds, Some(&timeout)).is_ok() {
            let (ours, theirs) = fds.split_at(sets.len());
            ours.iter().zip(sets).filter(|(fd, _)| !fd.revents().is_empty()).for_each(|(_, set)| set(&mut ready));
            reports = theirs.iter().map(PollFd::revents).collect();
        }
        (ready, reports)
    }

    /// What is left of the wall limit, and of the tree's grace.
    fn wall_limit_left(&self) -> Duration {
        if self.report.started_ns == 0 || self.killed.is_some() {
            return Duration::MAX;
        }
        let ran = Duration::from_nanos(now_ns().saturating_sub(self.report.started_ns));
        self.run.wall.saturating_add(self.wall_limit_grace).saturating_sub(ran)
    }

    fn hold_wall_limit(&mut self) {
        if self.wall_limit_left().is_zero() {
            self.end(RunEnd::TimedOut);
        }
    }

    /// From the first sample on, running out of memory wakes the loop at once; what happened before is asked for here.
    fn arm(&mut self) {
        if !self.armed {
            self.armed = true;
            // Without a watch the samples and the end of the run ask the counters.
            self.oom = self.run.cgroup.and_then(|c| c.oom_watch().ok().flatten());
        }
        if self.run.cgroup.is_some() {
            self.out_of_memory();
        }
    }

    /// Whether the watched process ends within that time.
    fn has_ended(&self, within: Duration) -> bool {
        let mut fds = [PollFd::new(&self.run.running.pidfd, PollFlags::IN)];
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut fds, Some(&timeout)) {
                Ok(n) if n > 0 => return true,
                Err(rustix::io::Errno::INTR) if !left.is_zero() => {}
                _ => return false,
            }
        }
    }

    fn finish(mut self, tree: &mut dyn ProcessTree) -> SupervisorReport {
        self.io.monitor.end(); // from here on its number may become another's
        tree.reap(&mut self);
        let patience = Instant::now() + GRACE;
        for i in 0..2 {
            if let Some(mut sink) = self.run.sinks[i].take() {
                // Everything that could write is dead: what is in the pipe is all there will be.
                while sink.pump(&mut self.buf, &mut self.io.output) {
                    // A reader that has stopped does not hold up the end that a signal asked for.
                    if self.kill_at.is_some() && Instant::now() > patience {
                        break;
                    }
                }
                if sink.spoke && self.report.started_ns == 0 && tree.start() == ProgramStart::ReportedOrOutput {
                    self.report.started_ns = self.report.ended_ns.max(1);
                }
                self.report.streams[i] = (sink.bytes, sink.truncated);
            }
        }
        let ended_by_itself =
            matches!(self.report.end, RunEnd::Wait(_) | RunEnd::Failed(..) | RunEnd::TimedOut | RunEnd::Violation);
        if let Some(why) = self.killed
            && !(ended_by_itself && why == RunEnd::Cancelled)
        {
            self.report.end = why;
        }
        if let Some(c) = self.run.cgroup
            && matches!(self.report.end, RunEnd::Wait(_) | RunEnd::Lost)
        {
            let killed = match self.report.counted {
                Some((_, events)) => (events.oom_kills > 0).then_some(RunEnd::Limit(Field::Memory)),
                None => RunEnd::oom_kill(c),
            };
            self.report.end = killed.unwrap_or(self.report.end);
        }
        if self.report.ended_ns == 0 {
            self.report.ended_ns = now_ns();
        }
        self.report
    }
}

/// What of the supervisor's own is ready.
#[derive(Default)]
struct PollReadiness {
    dead: bool,
    sinks: [bool; 2],
    /// Of standard input, and of the keys.
    inputs: [InputReadiness; 2],
    oom: bool,
}

/// What of an input is ready: to be read, and to be written.
#[derive(Default, Clone, Copy)]
struct InputReadiness {
    from: bool,
    to: bool,
}
