//! A process tree below an init of ours: status and event records, the gateway's refusals, the lifeline, and how it is ended.
//!
//! ```text
//! Setup ──Started──▶ Running ──Ended/TimedOut/Violation──▶ Draining ──EOF, reaped──▶ over
//!   └──Failed──────────┴──limit, cancel: kill init──────────▶┘
//! ```
//!
//! The wall limit is init's to hold, so that a caller who does not read cannot stretch it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_confine::status::{self, InitStatus, decode_event};
use cofferdam_confine::{process, wire};
use rustix::event::PollFlags;

use super::{GRACE, ProcessTree, ProgramStart, RunSupervisor, now_ns};
use crate::proctree;
use crate::run::channel::AgentChannel;
use crate::run::evidence::Paths;
use crate::run::gateway::GatewayWatch;
use crate::run::lifeline::Lifeline;
use crate::run::report::{RunEnd, SupervisorReport};
use crate::run::streams::{InputSource, OutputSink};

/// How long a container may take to end once it has been asked to.
const LEAVE: Duration = Duration::from_secs(5);

/// An init, and what is between it and its owner.
pub(crate) struct InitTree<'a> {
    /// Status records.
    pub status: OwnedFd,
    /// Those that were received before the run, of a sandbox that was staged.
    pub received: Vec<InitStatus>,
    /// Event records.
    pub events: OwnedFd,
    /// No process is left that could write events: their socket would be ready for ever.
    pub no_more_events: bool,
    /// Closing it ends the run.
    pub lifeline: Option<Lifeline>,
    /// Init's end is the end of every process: it is the first of a pid namespace.
    pub own_pids: bool,
    /// What paths mean, for events.
    pub paths: Paths<'a>,
    /// The channel of a session, which gets each refusal while it lives, and a tmpfs as soon as it is there.
    pub session: Option<&'a AgentChannel>,
    /// The mount step of that tmpfs.
    pub workspace: Option<usize>,
    /// Copy-on-write mounts, whose layers a session gets as well.
    pub layers: &'a [crate::plan::Layer],
    /// What the egress gateway reports, and whether a refusal ends the run.
    pub gateway: Option<(&'a GatewayWatch, bool)>,
    /// What ends the run where init is in a container that a runtime made.
    pub container: Option<&'a dyn Outer>,
    /// When init was asked to end its tree.
    pub asked: Option<Instant>,
}

/// What is around an init that this process did not start itself.
pub(crate) trait Outer {
    /// Ends every process of it at once. Done already is done.
    ///
    /// # Errors
    /// It may still run, and why.
    fn kill(&self) -> Result<(), String>;

    /// Whether the process that is watched is a child of this one, to be waited for.
    fn is_child(&self) -> bool;

    /// Whether init's clock is another than this kernel's, as gVisor's is: then what it reports happened when it reported it.
    fn own_clock(&self) -> bool;
}

impl ProcessTree for InitTree<'_> {
    fn polled(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let refusals = self.gateway.map(|(watch, _)| watch.wakes());
        let events = (!self.no_more_events).then(|| self.events.as_fd());
        [Some(self.status.as_fd()), refusals, events].into_iter().flatten().map(|fd| (fd, PollFlags::IN)).collect()
    }

    fn take_reports(&mut self, supervisor: &mut RunSupervisor<'_, '_>, ready: &[PollFlags], dead: bool) {
        let ready = |i: usize| ready.get(i).is_some_and(|flags| !flags.is_empty());
        let refusals = usize::from(self.gateway.is_some());
        if ready(0) || dead {
            self.read_status(supervisor);
        }
        if ready(1 + refusals) {
            self.read_events(supervisor, 256);
        }
        if refusals == 1 && ready(1) {
            self.read_refusals(supervisor);
        }
    }

    fn kill(&mut self, supervisor: &mut RunSupervisor<'_, '_>) -> bool {
        if let Some(container) = self.container {
            if self.lifeline.take().is_some() {
                count(supervisor);
            }
            if let Err(why) = container.kill() {
                supervisor.report.problem(why);
            }
            return true;
        }
        // A pid namespace ends with its init, which is killed next: the kernel lets nothing in it live or fork.
        if !self.own_pids
            && let Some(c) = supervisor.run.cgroup
            && let Err(e) = c.kill_all(Duration::from_millis(200))
        {
            supervisor.report.problem(e.to_string());
        }
        if !self.own_pids && supervisor.run.cgroup.is_none() && !self.end_by_init(supervisor) {
            return false;
        }
        if let Err(e) = process::kill(supervisor.run.running.pidfd.as_fd()) {
            init_failed(&mut supervisor.report, &e);
        }
        true
    }

    /// Init's socket has closed, which happens as it ends; waiting for it waits for every process of its namespace.
    fn reap(&mut self, supervisor: &mut RunSupervisor<'_, '_>) {
        match self.container {
            Some(container) => self.see_off(supervisor, container),
            None => reap_init(supervisor),
        }
        self.read_events(supervisor, usize::MAX); // no process is left to write more
    }

    fn pass_on(&mut self, signal: u8) -> bool {
        self.lifeline.as_ref().is_some_and(|lifeline| lifeline.pass_on(signal))
    }

    /// The supervisor steps in where init cannot hold the limit.
    fn wall_limit_grace(&self) -> Duration {
        GRACE
    }

    /// In a container what makes it may speak as well, on the same pipes.
    fn start(&self) -> ProgramStart {
        if self.container.is_some() { ProgramStart::Reported } else { ProgramStart::ReportedOrOutput }
    }
}

impl InitTree<'_> {
    fn read_status(&mut self, supervisor: &mut RunSupervisor<'_, '_>) {
        for status in std::mem::take(&mut self.received) {
            self.take_status(supervisor, status);
        }
        loop {
            match status::receive(self.status.as_fd()) {
                Ok(Some(s)) => self.take_status(supervisor, s),
                Ok(None) => return supervisor.over(), // init is gone, and everything with it
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => {
                    supervisor.end(RunEnd::Lost);
                    return supervisor.over();
                }
            }
        }
    }

    fn take_status(&mut self, supervisor: &mut RunSupervisor<'_, '_>, s: InitStatus) {
        let own_clock = self.container.is_some_and(Outer::own_clock);
        let here = |at_ns| if own_clock { now_ns() } else { at_ns };
        let end = |report: &mut SupervisorReport, end, at_ns, events: (u64, u32)| {
            report.end = end;
            report.ended_ns = here(at_ns);
            report.lost += events.1;
        };
        let report = &mut supervisor.report;
        match s {
            InitStatus::Started { at_ns } => report.started_ns = here(at_ns),
            // Without spawning init cannot wait for exec, and reports its failure only afterwards: nothing ran then, either.
            InitStatus::Failed { step, index, errno } if report.started_ns == 0 || step == wire::step::EXEC => {
                report.started_ns = 0;
                end(report, RunEnd::Failed(step, index, errno), now_ns(), (0, 0))
            }
            // The program ran, whatever init says of itself later.
            InitStatus::Failed { step, index, errno } => {
                end(report, RunEnd::Lost, now_ns(), (0, 0));
                let text = format!("init failed while the program ran (step {step}, part {index}, errno {errno})");
                report.problem(text);
            }
            InitStatus::Ended { wait_status, at_ns, events, memory } => {
                report.largest = memory;
                end(report, RunEnd::Wait(wait_status), at_ns, events);
                self.let_init_go(supervisor);
            }
            InitStatus::Violation { at_ns, events, memory } => {
                report.largest = memory;
                end(report, RunEnd::Violation, at_ns, events);
                self.let_init_go(supervisor);
            }
            InitStatus::TimedOut { at_ns, events, memory } => {
                report.largest = memory;
                end(report, RunEnd::TimedOut, at_ns, events);
                self.let_init_go(supervisor);
            }
            InitStatus::Layer { op, fd } => {
                if let Some(session) = self.session.filter(|_| self.workspace == Some(op)) {
                    session.take_workspace(&fd);
                }
                if let (Some(session), Some(layer)) = (self.session, self.layers.iter().find(|layer| layer.op == op)) {
                    session.take_layer(layer, &fd);
                }
                report.layers.push((op, fd));
            }
            InitStatus::Sockets(diag) => supervisor.sockets.ask(diag),
            InitStatus::Held => {} // a run that waited for its plan has it by now
            InitStatus::Weakened { step, errno } => report.weakened.push((step, errno)),
            InitStatus::Terminal(master) => attach_terminal(supervisor, master),
        }
    }

    /// A container's cgroup goes with init, which waits for this look at it.
    fn let_init_go(&mut self, supervisor: &mut RunSupervisor<'_, '_>) {
        if self.container.is_some() {
            count(supervisor);
            self.lifeline = None;
        }
    }

    fn read_events(&mut self, supervisor: &mut RunSupervisor<'_, '_>, most: usize) {
        // Held meanwhile: who asks finds nothing in the socket that is not in the list.
        let mut recorded = self.session.map(|session| session.tap().list());
        self.take_events(supervisor, most);
        if let Some(recorded) = &mut recorded {
            recorded.clear();
            recorded.extend(supervisor.report.log.violations().cloned());
        }
    }

    /// What the gateway refused goes where init's events go.
    fn read_refusals(&mut self, supervisor: &mut RunSupervisor<'_, '_>) {
        let Some((watch, ends)) = self.gateway else { return };
        let mut recorded = self.session.map(|session| session.tap().list());
        let any = watch.drain(&mut supervisor.report.log);
        if let Some(recorded) = &mut recorded {
            recorded.clear();
            recorded.extend(supervisor.report.log.violations().cloned());
        }
        drop(recorded);
        if any && ends {
            supervisor.end(RunEnd::Violation);
        }
    }

    fn take_events(&mut self, supervisor: &mut RunSupervisor<'_, '_>, most: usize) {
        for _ in 0..most {
            let mut record = [0u8; 72 + 2 * wire::EVENT_PATH];
            match rustix::net::recv(&self.events, &mut record[..], rustix::net::RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    self.no_more_events = true; // init's descriptors go one by one while the kernel takes its mounts apart
                    return;
                }
                Err(_) => return,
                Ok((_, n)) => match decode_event(&record[..n.min(record.len())]) {
                    Some(event) => supervisor.report.log.event(&event, &self.paths),
                    None => supervisor.report.lost += 1,
                },
            }
        }
    }

    /// Without a pid namespace and a cgroup only init finds all of its tree: it is asked first. True when it took too
    /// long and init itself is to be killed; what it had below it then is dead.
    fn end_by_init(&mut self, supervisor: &mut RunSupervisor<'_, '_>) -> bool {
        self.lifeline = None;
        // Whatever stopped it: it has to run to end its tree.
        if let Err(e) = process::proceed(supervisor.run.running.pidfd.as_fd()) {
            init_failed(&mut supervisor.report, &e);
        }
        if self.asked.get_or_insert_with(Instant::now).elapsed() < GRACE {
            return false;
        }
        proctree::kill(supervisor.run.running.pid);
        true
    }

    /// Init ends by itself; what is around it may have to be told.
    fn see_off(&mut self, supervisor: &mut RunSupervisor<'_, '_>, container: &dyn Outer) {
        self.lifeline = None;
        let mut ended = supervisor.has_ended(LEAVE);
        if !ended {
            if let Err(why) = container.kill() {
                supervisor.report.problem(why);
            }
            ended = supervisor.has_ended(LEAVE);
        }
        if !ended {
            supervisor.report.problem("the container does not end");
        } else if container.is_child() {
            reap_init(supervisor);
        }
    }
}

/// Reads the counters of a cgroup that goes with its init.
fn count(supervisor: &mut RunSupervisor<'_, '_>) {
    if let Some(c) = supervisor.run.cgroup
        && let (Ok(usage), Ok(events)) = (c.usage(), c.events())
    {
        supervisor.report.counted = Some((usage, events));
    }
}

fn reap_init(supervisor: &mut RunSupervisor<'_, '_>) {
    match process::wait(supervisor.run.running.pidfd.as_fd()) {
        Ok(usage) => supervisor.report.usage = usage,
        Err(e) => init_failed(&mut supervisor.report, &e),
    }
}

fn init_failed(report: &mut SupervisorReport, e: &std::io::Error) {
    report.weakened.push((wire::step::INIT, e.raw_os_error().unwrap_or(0)));
}

/// From here on the pty is both input and output, or output with keys of its own.
fn attach_terminal(supervisor: &mut RunSupervisor<'_, '_>, master: OwnedFd) {
    let (Ok(()), Ok(copy)) = (rustix::io::ioctl_fionbio(&master, true), rustix::io::fcntl_dupfd_cloexec(&master, 3))
    else {
        return supervisor.end(RunEnd::Lost);
    };
    match supervisor.io.keys.take() {
        Some(keys) => supervisor.keys = Some(InputSource::new(master, crate::io::Input::Fd(keys), true)),
        None => {
            let input = std::mem::replace(&mut supervisor.io.input, crate::io::Input::Closed);
            supervisor.run.source = InputSource::new(master, input, true);
        }
    }
    supervisor.run.sinks = [Some(OutputSink::pty(copy, supervisor.run.output_bytes)), None];
}
