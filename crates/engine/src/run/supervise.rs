//! One run, from the started init to the dead tree: streams, limits, events, the end.
//!
//! ```text
//! Setup ──Started──▶ Running ──Ended/TimedOut/Violation──▶ Draining ──EOF, reaped──▶ over
//!   └──Failed──────────┴──limit, cancel: kill init──────────▶┘
//! ```
//!
//! One thread, one poll loop. The wall limit is init's to hold, so that a caller who does not read cannot stretch it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::{Cgroup, Events, Usage};
use cofferdam_confine::status::{self, Status, decode_event};
use cofferdam_confine::{Running, process};
use cofferdam_policy::{Field, NetworkMode, OnViolation};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::io::Io;
use crate::outcome::Network;
use crate::proctree;
use crate::run::channel::Channel;
use crate::run::directory_memory::Directories;
use crate::run::evidence::{Log, Paths};
use crate::run::gateway::Watch;
use crate::run::lifeline::Lifeline;
use crate::run::socket_memory::Sockets;
use crate::run::streams::{Sink, Source, buffer};

mod sampled_limits;

/// What the supervisor holds of a run.
pub struct Run<'a> {
    /// Init.
    pub running: Running,
    /// Status records.
    pub status: OwnedFd,
    /// Event records.
    pub events: OwnedFd,
    /// Closing it ends the run.
    pub lifeline: Option<Lifeline>,
    /// Init's end is the end of every process: it is the first of a pid namespace.
    pub own_pids: bool,
    /// The wall limit, which init holds; the supervisor steps in when init cannot.
    pub wall: Duration,
    /// Standard input.
    pub source: Source,
    /// Standard output and error.
    pub sinks: [Option<Sink>; 2],
    /// The run's cgroup.
    pub cgroup: Option<&'a Cgroup>,
    /// What paths mean, for events.
    pub paths: Paths<'a>,
    /// CPU seconds of the tree.
    pub cpu_seconds: u64,
    /// Memory bytes, when no cgroup holds it.
    pub sample_memory: Option<u64>,
    /// Memory bytes.
    pub memory_bytes: u64,
    /// The mode of the network, where its namespace is the sandbox's own and of this kernel: what its sockets hold is memory
    /// of the run.
    pub own_network: Option<NetworkMode>,
    /// Bytes kept of each stream.
    pub output_bytes: u64,
    /// What is recorded.
    pub log: Log,
    /// A session's, which is told what is refused while it lives, and of a tmpfs as soon as it is there.
    pub session: Option<&'a Channel>,
    /// The mount step of that tmpfs.
    pub workspace: Option<usize>,
    /// Copy-on-write mounts, whose layers a session gets as well.
    pub layers: &'a [crate::plan::Layer],
    /// Whether the program may write to an overlay: a layer of the sandbox's own, a volume of the host's, or one that a
    /// granted sandbox inside mounts.
    pub overlays: bool,
    /// What the egress gateway tells, and whether a refusal ends the run.
    pub gateway: Option<(&'a Watch, bool)>,
    /// What ends the run where init is in a container of somebody else's making.
    pub container: Option<&'a dyn Outer>,
}

/// What is around an init that this process did not start itself.
pub trait Outer {
    /// Ends every process of it at once. Done already is done.
    ///
    /// # Errors
    /// It may still run, and why.
    fn kill(&self) -> Result<(), String>;

    /// Whether the process that is watched is a child of this one, to be waited for.
    fn is_child(&self) -> bool;

    /// Whether init's clock is another than this kernel's, as gVisor's is: then what it tells happened when it was told.
    fn own_clock(&self) -> bool;
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// wait status of the program.
    Wait(i32),
    /// The wall limit.
    TimedOut,
    /// Another limit.
    Limit(Field),
    /// A violation under `terminate`.
    Violation,
    /// Nothing ran: step, item, errno.
    Failed(u16, usize, i32),
    /// The caller asked for it.
    Cancelled,
    /// Init ended without a word: killed from outside, or by the memory limit.
    Lost,
}

/// What the supervisor knows afterwards.
pub struct Report {
    /// How it ended.
    pub end: End,
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
    pub usage: process::Usage,
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
    pub counted: Option<(Usage, Events)>,
}

impl Report {
    /// The report of a run of which nothing is known yet.
    pub(crate) fn begin(log: Log) -> Report {
        Report {
            end: End::Lost,
            started_ns: 0,
            ended_ns: 0,
            streams: [(Vec::new(), false), (Vec::new(), false)],
            log,
            lost: 0,
            usage: process::Usage::default(),
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

    /// What the gateway refused ends a run under `terminate`, also where the program had ended by itself first: no refusal
    /// goes unnoticed.
    pub(crate) fn refused(&mut self, network: Option<&Network>, on: OnViolation) {
        let refused = network.is_some_and(|network| network.refused > 0);
        if refused && on == OnViolation::Terminate && matches!(self.end, End::Wait(_)) {
            self.end = End::Violation;
        }
    }
}

/// How often limits are sampled that the kernel does not hold by itself.
const SAMPLE: Duration = Duration::from_millis(50);
/// How long init may take over what it was asked to do, before it is done from outside.
const GRACE: Duration = Duration::from_secs(1);
/// How long a container may take to end once it has been told to.
const LEAVE: Duration = Duration::from_secs(5);
struct Loop<'a, 'io> {
    run: Run<'a>,
    io: &'io mut Io,
    report: Report,
    over: bool,
    killed: Option<End>,
    let_go: Option<Instant>,
    buf: Vec<u8>,
    begun: Instant,
    next_sample: Instant,
    oom: Option<cofferdam_confine::cgroup::OomWatch>,
    sockets: Sockets,
    directories: Directories,
    sampler: proctree::Sampler,
    /// Nobody is left who could write events: their socket would be ready for ever.
    deaf: bool,
    /// The watch was asked for. Most runs are over before it would tell anything that their end does not tell.
    armed: bool,
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Watches until the tree is dead and reaped and every stream is read to its end.
pub fn supervise(mut run: Run<'_>, io: &mut Io) -> Report {
    let log = std::mem::take(&mut run.log);
    let report = Report::begin(log);
    let now = Instant::now();
    let directories = Directories::begin(run.overlays);
    let mut l = Loop {
        run,
        io,
        report,
        over: false,
        killed: None,
        let_go: None,
        buf: buffer(),
        begun: now,
        next_sample: now + SAMPLE,
        oom: None,
        sockets: Sockets::default(),
        directories,
        sampler: proctree::Sampler::default(),
        deaf: false,
        armed: false,
    };
    l.watch();
    l.finish()
}

impl Loop<'_, '_> {
    fn watch(&mut self) {
        while !self.over {
            let ready = self.wait();
            if self.io.cancel.is_cancelled() {
                self.kill(End::Cancelled);
            }
            self.resize();
            if ready.status || ready.dead {
                self.read_status();
            }
            // Its socket may be open in a process that shares its descriptors: a dead init says nothing more.
            self.over |= ready.dead;
            if ready.events {
                self.read_events(256);
            }
            if ready.refused {
                self.read_refusals();
            }
            for i in 0..2 {
                if let Some(sink) = &mut self.run.sinks[i]
                    && (ready.sinks[i] || sink.waits())
                {
                    sink.pump(&mut self.buf, &mut self.io.output);
                    // In a container what makes it may speak as well, on the same pipes.
                    if sink.spoke && self.report.started_ns == 0 && self.run.container.is_none() {
                        self.report.started_ns = now_ns(); // until init says when it was
                    }
                }
            }
            if ready.from {
                self.run.source.read(&mut self.buf);
            }
            if ready.to {
                self.run.source.write();
            }
            if ready.oom {
                self.out_of_memory();
            }
            self.sample();
            if let (Some(_), Some(why)) = (self.let_go, self.killed) {
                self.kill(why);
            }
        }
    }

    fn resize(&mut self) {
        let Some(size) = self.io.resize.as_mut().and_then(|f| f()) else { return };
        if let Some(to) = &self.run.source.to {
            let w = rustix::termios::Winsize { ws_row: size.0, ws_col: size.1, ws_xpixel: 0, ws_ypixel: 0 };
            if let Err(e) = rustix::termios::tcsetwinsize(to, w) {
                self.report.weakened.push((cofferdam_confine::wire::step::TERMINAL, e.raw_os_error()));
            }
        }
    }

    fn wait(&mut self) -> Ready {
        type Set = fn(&mut Ready);
        let oom = self.oom.as_ref();
        let candidates: [(Option<BorrowedFd<'_>>, PollFlags, Set); 9] = [
            (Some(self.run.status.as_fd()), PollFlags::IN, |r| r.status = true),
            (Some(self.run.running.pidfd.as_fd()), PollFlags::IN, |r| r.dead = true),
            ((!self.deaf).then(|| self.run.events.as_fd()), PollFlags::IN, |r| r.events = true),
            (self.run.sinks[0].as_ref().and_then(Sink::poll_fd), PollFlags::IN, |r| r.sinks[0] = true),
            (self.run.sinks[1].as_ref().and_then(Sink::poll_fd), PollFlags::IN, |r| r.sinks[1] = true),
            (self.run.source.poll_from(), PollFlags::IN, |r| r.from = true),
            (self.run.source.poll_to(), PollFlags::OUT, |r| r.to = true),
            (oom.map(|o| o.file.as_fd()), oom.map_or(PollFlags::IN, |o| o.ready), |r| r.oom = true),
            (self.run.gateway.map(|(watch, _)| watch.wakes()), PollFlags::IN, |r| r.refused = true),
        ];
        let (mut fds, sets): (Vec<PollFd<'_>>, Vec<Set>) = candidates
            .into_iter()
            .filter_map(|(fd, flags, set)| Some((PollFd::from_borrowed_fd(fd?, flags), set)))
            .unzip();
        // What the caller has not taken is offered again at once: the caller waits for its reader, limits do not.
        let waits = self.run.sinks.iter().flatten().any(Sink::waits);
        let most = if waits { Duration::from_millis(1) } else { Duration::from_millis(100) };
        let pause = most.min(self.next_sample.saturating_duration_since(Instant::now()));
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
        let mut ready = Ready::default();
        // EINTR: a signal for the caller; the flags are looked at next.
        if poll(&mut fds, Some(&timeout)).is_ok() {
            for (fd, set) in fds.iter().zip(sets) {
                if !fd.revents().is_empty() {
                    set(&mut ready);
                }
            }
        }
        ready
    }

    fn read_status(&mut self) {
        loop {
            match status::receive(self.run.status.as_fd()) {
                Ok(Some(s)) => self.take_status(s),
                Ok(None) => {
                    self.over = true; // init is gone, and everything with it
                    return;
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.kill(End::Lost);
                    self.over = true;
                    return;
                }
            }
        }
    }

    fn take_status(&mut self, s: Status) {
        let own_clock = self.run.container.is_some_and(Outer::own_clock);
        let here = |at_ns| if own_clock { now_ns() } else { at_ns };
        let end = |report: &mut Report, end, at_ns, events: (u64, u32)| {
            report.end = end;
            report.ended_ns = here(at_ns);
            report.lost += events.1;
        };
        match s {
            Status::Started { at_ns } => self.report.started_ns = here(at_ns),
            // Without spawning init cannot wait for exec, and tells of its failure only afterwards: nothing ran then, either.
            Status::Failed { step, index, errno }
                if self.report.started_ns == 0 || step == cofferdam_confine::wire::step::EXEC =>
            {
                self.report.started_ns = 0;
                end(&mut self.report, End::Failed(step, index, errno), now_ns(), (0, 0))
            }
            // The program ran, whatever init says of itself later.
            Status::Failed { step, index, errno } => {
                end(&mut self.report, End::Lost, now_ns(), (0, 0));
                let text = format!("init failed while the program ran (step {step}, part {index}, errno {errno})");
                self.report.problems.push(text);
            }
            Status::Ended { wait_status, at_ns, events, memory } => {
                self.report.largest = memory;
                end(&mut self.report, End::Wait(wait_status), at_ns, events);
                self.let_init_go();
            }
            Status::Violation { at_ns, events, memory } => {
                self.report.largest = memory;
                end(&mut self.report, End::Violation, at_ns, events);
                self.let_init_go();
            }
            Status::TimedOut { at_ns, events, memory } => {
                self.report.largest = memory;
                end(&mut self.report, End::TimedOut, at_ns, events);
                self.let_init_go();
            }
            Status::Layer { op, fd } => {
                if let Some(session) = self.run.session.filter(|_| self.run.workspace == Some(op)) {
                    session.take_workspace(&fd);
                }
                if let (Some(session), Some(layer)) =
                    (self.run.session, self.run.layers.iter().find(|layer| layer.op == op))
                {
                    session.take_layer(layer, &fd);
                }
                self.report.layers.push((op, fd));
            }
            Status::Sockets(diag) => self.sockets.ask(diag),
            Status::Weakened { step, errno } => self.report.weakened.push((step, errno)),
            Status::Terminal(master) => self.attach_terminal(master),
        }
    }

    /// A container's cgroup goes with init, which waits for this look at it.
    fn let_init_go(&mut self) {
        if self.run.container.is_some() {
            self.look();
            self.run.lifeline = None;
        }
    }

    fn look(&mut self) {
        if let Some(c) = self.run.cgroup
            && let (Ok(usage), Ok(events)) = (c.usage(), c.events())
        {
            self.report.counted = Some((usage, events));
        }
    }

    /// From here on the pty is both input and output.
    fn attach_terminal(&mut self, master: OwnedFd) {
        let (Ok(()), Ok(copy)) =
            (rustix::io::ioctl_fionbio(&master, true), rustix::io::fcntl_dupfd_cloexec(&master, 3))
        else {
            self.kill(End::Lost);
            return;
        };
        let input = std::mem::replace(&mut self.io.input, crate::io::Input::Closed);
        self.run.source = Source::new(master, input, true);
        self.run.sinks = [Some(Sink::pty(copy, self.run.output_bytes)), None];
    }

    fn read_events(&mut self, most: usize) {
        // Held meanwhile: who asks finds nothing in the socket that is not in the list.
        let mut recorded = self.run.session.map(|session| session.tap().list());
        self.take_events(most);
        if let Some(recorded) = &mut recorded {
            recorded.clear();
            recorded.extend(self.report.log.violations().cloned());
        }
    }

    /// What the gateway refused goes where init's events go.
    fn read_refusals(&mut self) {
        let Some((watch, ends)) = self.run.gateway else { return };
        let mut recorded = self.run.session.map(|session| session.tap().list());
        let any = watch.drain(&mut self.report.log);
        if let Some(recorded) = &mut recorded {
            recorded.clear();
            recorded.extend(self.report.log.violations().cloned());
        }
        drop(recorded);
        if any && ends {
            self.kill(End::Violation);
        }
    }

    fn take_events(&mut self, most: usize) {
        for _ in 0..most {
            let mut record = [0u8; 72 + 2 * cofferdam_confine::wire::EVENT_PATH];
            match rustix::net::recv(&self.run.events, &mut record[..], rustix::net::RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    self.deaf = true; // init's descriptors go one by one while the kernel takes its mounts apart
                    return;
                }
                Err(_) => return,
                Ok((_, n)) => match decode_event(&record[..n.min(record.len())]) {
                    Some(event) => self.report.log.event(&event, &self.run.paths),
                    None => self.report.lost += 1,
                },
            }
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

    /// Ends the run. The first reason stays.
    fn kill(&mut self, why: End) {
        if self.killed.is_none() {
            self.killed = Some(why);
            self.report.ended_ns = now_ns();
        }
        if let Some(container) = self.run.container {
            if self.run.lifeline.take().is_some() {
                self.look();
            }
            if let Err(why) = container.kill()
                && !self.report.problems.contains(&why)
            {
                self.report.problems.push(why);
            }
            return;
        }
        // A pid namespace ends with its init, which is killed next: the kernel lets nothing in it live or fork.
        if !self.run.own_pids
            && let Some(c) = self.run.cgroup
            && let Err(e) = c.kill_all(Duration::from_millis(200))
        {
            self.report.problems.push(e.to_string());
        }
        if !self.run.own_pids && self.run.cgroup.is_none() && !self.end_by_init() {
            return;
        }
        if let Err(e) = process::kill(self.run.running.pidfd.as_fd()) {
            self.report.weakened.push((cofferdam_confine::wire::step::INIT, e.raw_os_error().unwrap_or(0)));
        }
    }

    /// Without a pid namespace and a cgroup only init finds all of its tree: it is asked first. True when it took too
    /// long and init itself is to be killed; what it had below it then is dead.
    fn end_by_init(&mut self) -> bool {
        self.run.lifeline = None;
        // Whatever stopped it: it has to run to end its tree.
        if let Err(e) = process::proceed(self.run.running.pidfd.as_fd()) {
            self.report.weakened.push((cofferdam_confine::wire::step::INIT, e.raw_os_error().unwrap_or(0)));
        }
        if self.let_go.get_or_insert_with(Instant::now).elapsed() < GRACE {
            return false;
        }
        proctree::kill(self.run.running.pid);
        true
    }

    fn reap(&mut self) {
        match process::wait(self.run.running.pidfd.as_fd()) {
            Ok(usage) => self.report.usage = usage,
            Err(e) => self.report.weakened.push((cofferdam_confine::wire::step::INIT, e.raw_os_error().unwrap_or(0))),
        }
    }

    /// Init ends by itself; what is around it may have to be told.
    fn see_off(&mut self, container: &dyn Outer) {
        self.run.lifeline = None;
        let mut ended = self.has_ended(LEAVE);
        if !ended {
            if let Err(why) = container.kill() {
                self.report.problems.push(why);
            }
            ended = self.has_ended(LEAVE);
        }
        if !ended {
            self.report.problems.push("the container does not end".into());
        } else if container.is_child() {
            self.reap();
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

    fn finish(mut self) -> Report {
        self.io.monitor.end(); // from here on its number may become another's
        // Init's socket has closed, which happens as it ends; waiting for it waits for every process of its namespace.
        match self.run.container {
            Some(container) => self.see_off(container),
            None => self.reap(),
        }
        self.read_events(usize::MAX); // nobody is left to write more
        for i in 0..2 {
            if let Some(mut sink) = self.run.sinks[i].take() {
                // Everything that could write is dead: what is in the pipe is all there will be.
                while sink.pump(&mut self.buf, &mut self.io.output) {}
                if sink.spoke && self.report.started_ns == 0 && self.run.container.is_none() {
                    self.report.started_ns = self.report.ended_ns.max(1);
                }
                self.report.streams[i] = (sink.bytes, sink.truncated);
            }
        }
        let ended_by_itself =
            matches!(self.report.end, End::Wait(_) | End::Failed(..) | End::TimedOut | End::Violation);
        if let Some(why) = self.killed
            && !(ended_by_itself && why == End::Cancelled)
        {
            self.report.end = why;
        }
        if let Some(c) = self.run.cgroup
            && matches!(self.report.end, End::Wait(_) | End::Lost)
            && self.report.counted.map_or_else(|| c.events().is_ok_and(|e| e.oom_kills > 0), |(_, e)| e.oom_kills > 0)
        {
            self.report.end = End::Limit(Field::Memory);
        }
        if self.report.ended_ns == 0 {
            self.report.ended_ns = now_ns();
        }
        self.report
    }
}

#[derive(Default)]
struct Ready {
    status: bool,
    dead: bool,
    events: bool,
    refused: bool,
    sinks: [bool; 2],
    from: bool,
    to: bool,
    oom: bool,
}
