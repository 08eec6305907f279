//! The process tree of an external sandbox program: what it reports, the gate before the program's start, and how it is ended.
//!
//! There is no init of ours in it: the program reports on one descriptor, and there are no events.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cofferdam_confine::process;
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::{FailedStep, Failure};
use crate::proctree;
use crate::run::report::RunEnd;
use crate::run::supervise::{GRACE, ProcessTree, ProgramStart, RunSupervisor, now_ns};

/// A started sandbox program, and what came of it.
pub(crate) struct ProgramTree<'a> {
    /// What it reports on.
    pub reports: Option<OwnedFd>,
    /// Where it waits before the program starts.
    pub gate: Option<StartGate<'a>>,
    /// How the whole tree is ended.
    pub kind: TreeKind,
    /// The program, which is the sandbox program's child.
    pub inner: Option<OwnedFd>,
    /// The gate's socket, once the program was let start.
    pub answers: Option<OwnedFd>,
    /// What is known afterwards.
    pub seen: ProgramReport,
}

/// Where the sandbox program waits once it has made its mounts, and before the program starts.
pub(crate) struct StartGate<'a> {
    /// A pipe that is full, until the sandbox program reads from it: its mounts are made.
    pub reached: OwnedFd,
    /// A socket from which it reads on, to the end, and on which it may report why the program could not be started.
    pub go: OwnedFd,
    /// What it reads there. Without all of it no program starts, so that our death starts none.
    pub says: &'a [u8],
    /// Whether the program may start in the sandbox in which this process is.
    pub allows: &'a dyn Fn(i32) -> Result<(), Failure>,
}

/// How a whole tree is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeKind {
    /// The sandbox program is the first process of a pid namespace: all others end with it.
    Namespace,
    /// What is below the sandbox program is one: that comes first.
    Below,
    /// The sandbox program leads a process group.
    Group,
}

/// What is known of the program besides the supervisor's report.
#[derive(Debug, Default)]
pub(crate) struct ProgramReport {
    /// wait(2) status of the sandbox program.
    pub status: i32,
    /// wait(2) status of the program, where the kernel has it.
    pub inner: Option<i32>,
    /// What the sandbox program reported.
    pub reported: Vec<u8>,
    /// Why the program was not let start.
    pub refused: Option<Failure>,
    /// The errno with which the program could not be executed.
    pub not_executed: Option<i32>,
}

/// As much is kept of what the sandbox program reports.
const MOST_REPORTED: usize = 64 * 1024;

impl ProcessTree for ProgramTree<'_> {
    fn polled(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let reports = self.reports.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN));
        // Last: its place is known from the end.
        let gate = self.gate.as_ref().map(|gate| (gate.reached.as_fd(), PollFlags::OUT));
        reports.into_iter().chain(gate).collect()
    }

    fn start(&self) -> ProgramStart {
        ProgramStart::AtOnce
    }

    fn take_reports(&mut self, supervisor: &mut RunSupervisor<'_, '_>, ready: &[PollFlags], _dead: bool) {
        let gate = ready.last().filter(|flags| self.gate.is_some() && !flags.is_empty());
        self.read_reports();
        if let Some(flags) = gate {
            self.pass(supervisor, flags.contains(PollFlags::OUT));
        }
    }

    fn kill(&mut self, supervisor: &mut RunSupervisor<'_, '_>) -> bool {
        if let Some(c) = supervisor.run.cgroup
            && let Err(e) = c.kill_all(Duration::from_millis(200))
        {
            // The pid namespace is killed next and takes the same processes along; the cgroup's removal shows if not.
            supervisor.report.problem(e.to_string());
        }
        match self.kind {
            TreeKind::Namespace => {}
            TreeKind::Below => proctree::kill(supervisor.run.running.pid),
            TreeKind::Group => end_group(supervisor),
        }
        if let Err(e) = process::kill(supervisor.run.running.pidfd.as_fd()) {
            supervisor.report.problem(format!("cannot kill the sandbox: {e}"));
        }
        true
    }

    fn reap(&mut self, supervisor: &mut RunSupervisor<'_, '_>) {
        self.read_reports();
        if supervisor.report.ended_ns == 0 {
            supervisor.report.ended_ns = now_ns();
        }
        if self.kind == TreeKind::Group {
            end_group(supervisor);
        }
        match process::wait_status(supervisor.run.running.pidfd.as_fd()) {
            Ok((status, usage)) => (self.seen.status, supervisor.report.usage) = (status, usage),
            Err(e) => supervisor.report.problem(format!("cannot wait for the sandbox: {e}")),
        }
        let mut errno = [0; 4];
        if let Some(answers) = self.answers.take()
            && let Ok((4, _)) = recv(&answers, &mut errno, RecvFlags::DONTWAIT)
        {
            self.seen.not_executed = Some(i32::from_ne_bytes(errno));
        }
        self.seen.inner = self.inner.take().and_then(|inner| process::exit_status(inner.as_fd()));
        // Where there is no namespace that takes everything along.
        if let Some(c) = supervisor.run.cgroup.filter(|_| self.kind != TreeKind::Namespace)
            && let Err(e) = c.kill_all(GRACE)
        {
            supervisor.report.problem(e.to_string());
        }
    }
}

impl ProgramTree<'_> {
    fn read_reports(&mut self) {
        let mut buf = [0; 4096];
        while let Some(reports) = &self.reports {
            match rustix::io::read(reports, &mut buf) {
                Ok(0) => self.reports = None,
                Ok(n) => {
                    let room = MOST_REPORTED.saturating_sub(self.seen.reported.len()).min(n);
                    self.seen.reported.extend_from_slice(&buf[..room]);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                Err(_) => self.reports = None,
            }
        }
    }

    /// Lets the program start, or ends it all. The sandbox program's child waits meanwhile, so that its number is its own.
    /// Not `reached`: no process is left that could.
    fn pass(&mut self, supervisor: &mut RunSupervisor<'_, '_>, reached: bool) {
        let Some(gate) = self.gate.take().filter(|_| reached) else { return };
        let allowed = match last_of(supervisor.run.running.pid) {
            Some((pid, pidfd)) => {
                self.inner = Some(pidfd);
                (gate.allows)(pid)
            }
            None => Err(Failure::new(
                FailedStep::Mount,
                "cannot find the sandbox's process in /proc: what is mounted in it cannot be compared with the policy",
            )
            .hint("this backend needs a /proc that shows the processes of its own user; or use --backend jail")),
        };
        if let Err(failure) = allowed {
            self.seen.refused = Some(failure);
            return supervisor.end(RunEnd::Cancelled);
        }
        let sent = send(&gate.go, gate.says, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        let ended = sent.and_then(|n| rustix::net::shutdown(&gate.go, Shutdown::Write).map(|()| n == gate.says.len()));
        match ended {
            Ok(true) => self.answers = Some(gate.go),
            // It has ended meanwhile, which shows next.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET | rustix::io::Errno::NOTCONN) => {}
            Ok(false) | Err(_) => {
                self.seen.refused = Some(Failure::new(FailedStep::Spawn, "cannot let the sandbox start the program"));
                supervisor.end(RunEnd::Cancelled);
            }
        }
    }
}

/// The program leads a session and a process group, whose number stays taken until it has been waited for.
fn end_group(supervisor: &mut RunSupervisor<'_, '_>) {
    proctree::kill(supervisor.run.running.pid);
    if let Some(pid) = Pid::from_raw(supervisor.run.running.pid)
        && let Err(e) = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL)
        && e != rustix::io::Errno::SRCH
    {
        supervisor.report.problem(format!("cannot kill the sandbox's processes: {e}"));
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
