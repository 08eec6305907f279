//! A policy planned for an external program, and one run of it: plan, start, watch, outcome.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::{Cgroup, Level, Limits, Location};
use cofferdam_confine::external::{ExternalProgram, spawn};
use cofferdam_confine::host::{self, Identity};
use cofferdam_confine::{memfd, seatbelt as profile};
use cofferdam_policy::{AuditLevel, Field, Policy, SyscallAction};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};

use super::mounted::Mounts;
use super::tool::{Installed, Tool};
use super::watch::{Gate, Killed, Seen, Tree, Watched, watch};
use super::{bubblewrap, nsjail, seatbelt};
use crate::backends::Plan;
use crate::backends::complaint::{Cause, cause};
use crate::backends::enforcement::{Purpose, Target, answers, sufficient};
use crate::backends::layout::{Layout, layout};
use crate::backends::real_sources;
use crate::failure::{Failure, Step};
use crate::io::{Io, Stream};
use crate::outcome::{Applied, Ending, Enforcement, Evidence, Outcome, Strength, Truncated, Violation};
use crate::plan::facts::Here;
use crate::run::outcome_builder::{SIGSYS, SIGXFSZ, by_signal};
use crate::run::streams::{Sink, Source};

/// A policy with the program that holds it, to be run many times and from several threads.
#[derive(Debug)]
pub struct Ready {
    policy: Policy,
    tool: Installed,
    identity: Identity,
    /// The tool is started as the first process of a pid namespace.
    own_pids: bool,
    /// What holds, completed by the engine with what cgroups give.
    pub enforcement: Enforcement,
    /// Why this backend.
    pub reason: String,
    /// Where cgroups can be made.
    pub location: Option<Arc<Location>>,
}

impl Plan for Ready {
    fn backend(&self) -> &'static str {
        Ready::backend(self)
    }

    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn reason(&self) -> &str {
        &self.reason
    }

    fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    fn describe(&self) -> Value {
        self.plan_json()
    }

    fn run(&self, io: Io) -> Outcome {
        Ready::run(self, io)
    }
}

/// What is started for one run.
struct Start {
    program: CString,
    argv: Vec<CString>,
    envp: Vec<CString>,
    cwd: CString,
    /// What is on the descriptors from the first on.
    fds: Vec<End>,
    /// What the sandbox has to show before the program starts. `None`: the tool mounts nothing.
    layout: Option<Layout>,
    plan: Value,
}

/// What a descriptor of the tool's is.
enum End {
    /// A file with these contents.
    File(Vec<u8>),
    /// It tells us on it.
    Tells,
    /// It reads from it when its mounts are made.
    Reached,
    /// It reads these bytes from it to start the program, and waits for them.
    Go(Vec<u8>),
    /// Init's program.
    Init,
}

/// A pipe with room for one write, which is taken: (ours to write, theirs to read). It can be written again when they have read.
fn full() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::pipe::fcntl_setpipe_size(&ours, 1)?; // the kernel makes it one page
    rustix::io::write(&ours, b"0")?;
    Ok((ours, theirs))
}

fn text(value: impl Into<Vec<u8>>) -> Result<CString, Failure> {
    CString::new(value).map_err(|_| Failure::new(Step::Spawn, "an argument holds a NUL character"))
}

impl Ready {
    /// Plans a policy for a tool.
    ///
    /// # Errors
    /// The tool cannot be used here, or the policy asks for what it has not at all. What it holds less than fully stands in
    /// `enforcement`: see [`Ready::sufficient`].
    pub fn plan(policy: &Policy, tool: Installed, identity: Identity) -> Result<Ready, Failure> {
        // bubblewrap may be let have them where others are not: installed setuid, or named in AppArmor's rules.
        if tool.tool == Tool::Nsjail
            && let Some((why, command)) = host::user_namespaces_refused(false)
        {
            return Err(Failure::new(Step::Namespaces, format!("user namespaces cannot be had: {why}")).hint(command));
        }
        if !identity.switches() && identity.is_root_outside() {
            return Err(crate::backends::landlock::as_root());
        }
        // Ids are changed where they can be; else a pid namespace takes a user namespace.
        let own_pids =
            tool.tool == Tool::Bubblewrap && (identity.switches() || host::user_namespaces_refused(false).is_none());
        let mut ready = Ready {
            policy: policy.clone(),
            tool,
            identity,
            own_pids,
            enforcement: Enforcement::new(),
            reason: "named by the policy".into(),
            location: None,
        };
        ready.enforcement = ready.start()?.1;
        Ok(ready)
    }

    /// The same with no pid namespace around the tool, as on hosts that let bubblewrap have user namespaces and nobody else.
    ///
    /// # Errors
    /// As [`Ready::plan`].
    pub fn without_namespace(self) -> Result<Ready, Failure> {
        let mut ready = Ready { own_pids: false, ..self };
        ready.enforcement = ready.start()?.1;
        Ok(ready)
    }

    /// Whether every required field holds in full.
    ///
    /// # Errors
    /// The first that does not, and what to do.
    pub fn sufficient(&self) -> Result<(), Failure> {
        sufficient(Target::External(self.backend()), &self.policy, &self.enforcement, &[])
    }

    /// The backend's name.
    pub fn backend(&self) -> &'static str {
        self.tool.tool.name()
    }

    /// What will be started, for people.
    pub fn plan_json(&self) -> Value {
        match self.start() {
            Ok((start, _)) => json!({
                "backend": self.backend(),
                "backend_reason": self.reason,
                "enforcement": self.enforcement,
                "program": self.tool.path,
                "plan": start.plan,
            }),
            Err(failure) => json!({ "error": failure }),
        }
    }

    fn start(&self) -> Result<(Start, Enforcement), Failure> {
        let purpose = Purpose::Run { other_user: self.identity.switches(), own_pids: self.own_pids };
        let facts = Here::for_run(self.identity.switches());
        let version = self.tool.version;
        let program = text(self.tool.path.as_os_str().as_encoded_bytes())?;
        if self.tool.tool == Tool::Seatbelt {
            let profile = seatbelt::plan(&self.policy, &facts)?;
            let mut e = answers(self.tool.tool, &self.policy, None, purpose);
            if let Some(mounts) = e.get_mut(&Field::Mounts) {
                *mounts = crate::plan::optional_mounts::with_left_out(
                    mounts.clone(),
                    &seatbelt::left_out(&self.policy, &facts),
                );
            }
            return Ok((self.seatbelt(program, &profile)?, e));
        }
        let layout = layout(&self.policy, &facts)?;
        let e = answers(self.tool.tool, &self.policy, Some(&layout), purpose);
        let command = layout.program(&self.policy, &facts)?;
        let start = match self.tool.tool {
            Tool::Bubblewrap => {
                let arguments =
                    bubblewrap::plan(&self.policy, &layout, command, version.unwrap_or_default(), !self.own_pids)?;
                let mut argv = vec!["bwrap".to_owned(), "--args".into(), bubblewrap::ARGS_FD.to_string(), "--".into()];
                argv.extend(arguments.command.iter().cloned());
                let mut fds = vec![
                    End::File(arguments.by_descriptor()),
                    End::Tells,
                    End::Go(arguments.filter.clone()),
                    End::Reached,
                ];
                fds.extend(arguments.files.iter().map(|file| End::File(file.clone().into_bytes())));
                let plan = json!({ "argv": arguments.argv(), "files": arguments.files });
                self.outside(program, &argv, fds, plan)?
            }
            _ => {
                let config = nsjail::plan(&self.policy, &layout, command, purpose)?;
                let file = format!("/proc/self/fd/{}", nsjail::CONFIG_FD);
                let argv = ["nsjail".to_owned(), "-C".into(), file];
                let plan = serde_json::to_value(&config).unwrap_or_default();
                let file = End::File(config.text().into_bytes());
                let fds = vec![file, End::Tells, End::Init, End::Reached, End::Go(vec![nsjail::GO])];
                self.outside(program, &argv, fds, plan)?
            }
        };
        Ok((Start { layout: Some(layout), ..start }, e))
    }

    /// A program that makes the sandbox and gets nothing of the policy's variables itself.
    fn outside(&self, program: CString, argv: &[String], fds: Vec<End>, plan: Value) -> Result<Start, Failure> {
        let argv = argv.iter().map(|argument| text(argument.as_str())).collect::<Result<_, _>>()?;
        Ok(Start { program, argv, envp: Vec::new(), cwd: text("/")?, fds, layout: None, plan })
    }

    /// sandbox-exec becomes the program, so it starts as the program is to.
    fn seatbelt(&self, program: CString, profile: &profile::Profile) -> Result<Start, Failure> {
        let command = &self.policy.command;
        let mut argv = vec!["sandbox-exec".to_owned()];
        argv.extend(profile.arguments());
        argv.push("--".into());
        argv.extend(command.argv.iter().cloned());
        let plan = json!({ "argv": argv, "warnings": profile.warnings });
        let argv = argv.iter().map(|argument| text(argument.as_str())).collect::<Result<_, _>>()?;
        let envp = command.variables.iter().map(|(k, v)| text(format!("{k}={v}"))).collect::<Result<_, _>>()?;
        let cwd = text(command.cwd.as_deref().unwrap_or("/"))?;
        Ok(Start { program, argv, envp, cwd, fds: Vec::new(), layout: None, plan })
    }

    /// Runs it and returns when the tree is dead.
    pub fn run(&self, mut io: Io) -> Outcome {
        let begun = Instant::now();
        let outcome = self.attempt(&mut io, begun).unwrap_or_else(|failure| self.blank().refused(failure, begun));
        io.monitor.end();
        outcome
    }

    fn attempt(&self, io: &mut Io, begun: Instant) -> Result<Outcome, Failure> {
        if !io.arguments.is_empty() {
            let told = format!("the {} backend takes no arguments besides the policy's", self.backend());
            return Err(Failure::new(Step::policy("command.argv"), told).hint("prepare a policy with them"));
        }
        if io.terminal.is_some() {
            let hint = "use --backend jail, or leave --tty out";
            return Err(
                Failure::new(Step::Terminal, format!("the {} backend gives no terminal", self.backend())).hint(hint)
            );
        }
        let pinned = real_sources::pinned(&self.policy)?;
        let (start, mut enforcement) = self.start()?;
        crate::plan::source_identity::compare_all(&pinned)?;
        // What the engine knows of cgroups stays.
        for (field, applied) in &self.enforcement {
            if field.name().starts_with("limits.") || *field == Field::TreeKill {
                enforcement.insert(*field, applied.clone());
            }
        }
        sufficient(Target::External(self.backend()), &self.policy, &enforcement, &[])?;
        let cgroup = self.cgroup(&mut enforcement)?;
        let mounts = start.layout.as_ref().map(|layout| Mounts::of(&pinned, layout)).unwrap_or_default();
        let allows = |pid| mounts.compare(pid, self.backend());
        let (watched, setup) = self.spawn(&start, &allows, cgroup.as_ref(), io, begun)?;
        io.monitor.begin(watched.running.pid, cgroup.as_ref(), self.ours());
        let monitor = io.monitor.clone();
        let mut seen = watch(watched, io, &|| monitor.end());
        if let Some(failure) = seen.refused.take() {
            if let Some(Err(e)) = cgroup.map(Cgroup::remove) {
                return Err(Failure { message: format!("{}; {e}", failure.message), ..failure });
            }
            return Err(failure);
        }
        Ok(self.outcome(seen, setup, enforcement, cgroup))
    }

    /// Processes in the cgroup that are no part of the sandbox: the tool itself, where it does not become the program.
    fn ours(&self) -> u32 {
        u32::from(self.tool.tool != Tool::Seatbelt)
    }

    /// Runs have a cgroup there: what the tool itself could lose sight of stays in it and is ended with it.
    pub fn in_cgroups(&mut self, location: Arc<Location>) {
        self.location = Some(location);
        if self.tool.tool != Tool::Seatbelt && !self.own_pids {
            let reason = "the pid namespace ends with its first process, and the cgroup with the run".to_owned();
            self.enforcement.insert(Field::TreeKill, Applied { strength: Strength::Full, reason });
        }
    }

    fn cgroup(&self, e: &mut Enforcement) -> Result<Option<Cgroup>, Failure> {
        let Some(location) = &self.location else { return Ok(None) };
        let l = &self.policy.limits;
        let limits = Limits {
            memory_bytes: Some(l.memory_mb << 20),
            pids: Some(l.processes + u64::from(self.ours())),
            cpu_millis: (!crate::plan::rlimits::is_all(l.cpu_millis)).then_some(l.cpu_millis),
            cpu_time: true,
            kill: true,
        };
        let weaker = |e: &mut Enforcement, field, strength, reason: String| {
            e.insert(field, Applied { strength, reason });
        };
        let made = match Cgroup::create(location, &limits) {
            Ok((cgroup, applied)) => {
                for (field, reached) in [
                    (Field::Memory, applied.memory),
                    (Field::CpuShare, applied.cpu),
                    (Field::CpuTime, applied.cpu_time),
                ] {
                    let Some(r) = reached.filter(|r| r.level != Level::Full) else { continue };
                    let strength = if r.level == Level::None { Strength::None } else { Strength::Partial };
                    weaker(e, field, strength, r.reason.unwrap_or_default());
                }
                Some(cgroup)
            }
            Err(error) => {
                for field in [Field::Memory, Field::CpuShare, Field::CpuTime, Field::Processes] {
                    weaker(e, field, Strength::Partial, error.to_string());
                }
                None
            }
        };
        sufficient(Target::External(self.backend()), &self.policy, e, &[]).map(|()| made)
    }

    fn spawn<'c>(
        &self,
        start: &'c Start,
        allows: &'c dyn Fn(i32) -> Result<(), Failure>,
        cgroup: Option<&'c Cgroup>,
        io: &mut Io,
        begun: Instant,
    ) -> Result<(Watched<'c>, Duration), Failure> {
        let failed = |what: &str, e: &dyn std::fmt::Display| Failure::new(Step::Spawn, format!("{what}: {e}"));
        let pipes = |e: std::io::Error| failed("cannot make the run's pipes", &e);
        let ids = if self.identity.switches() {
            let id = host::unprivileged_id();
            let id = id.ok_or_else(|| {
                Failure::new(Step::Ids, "no unprivileged id is mapped here").hint("run it as an ordinary user")
            })?;
            Some((id, id))
        } else {
            None
        };
        let (in_theirs, in_ours) = crate::run::streams::incoming().map_err(pipes)?;
        let (out_ours, out_theirs) = crate::run::streams::outgoing().map_err(pipes)?;
        let (err_ours, err_theirs) = crate::run::streams::outgoing().map_err(pipes)?;
        let mut side = None;
        let mut held: Vec<OwnedFd> = Vec::new();
        let (mut reached, mut go) = (None, None);
        for end in &start.fds {
            held.push(match end {
                End::File(bytes) => {
                    let file = memfd::plan(bytes).map_err(|e| failed("cannot write the plan", &e))?;
                    // It is read from where it was left.
                    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))
                        .map_err(|e| failed("cannot rewind the plan", &e))?;
                    file
                }
                End::Tells => {
                    let (ours, theirs) = crate::run::streams::outgoing().map_err(pipes)?;
                    side = Some(ours);
                    theirs
                }
                End::Reached => {
                    let (ours, theirs) = full().map_err(|e| pipes(e.into()))?;
                    reached = Some(ours);
                    theirs
                }
                End::Go(says) => {
                    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
                    let (ours, theirs) = pair.map_err(|e| pipes(e.into()))?;
                    go = Some((ours, says.as_slice()));
                    theirs
                }
                End::Init => memfd::init_program()
                    .and_then(|init| init.try_clone_to_owned())
                    .map_err(|e| failed("cannot make init's program", &e))?,
            });
        }
        let (lifeline, alive) = crate::run::streams::outgoing().map_err(pipes)?;
        if let Some((uid, gid)) = ids {
            let owner = (Some(rustix::fs::Uid::from_raw(uid)), Some(rustix::fs::Gid::from_raw(gid)));
            for theirs in [&in_theirs, &out_theirs, &err_theirs].into_iter().chain(&held) {
                rustix::fs::fchown(theirs, owner.0, owner.1).map_err(|e| failed("cannot give a stream away", &e))?;
            }
        }
        let tasks =
            cgroup.map(Cgroup::tasks_files).transpose().map_err(|e| Failure::new(Step::Cgroup, e.to_string()))?;
        let tasks = tasks.unwrap_or_default();
        let rlimits = self.rlimits(cgroup.is_some());
        let running = spawn(&ExternalProgram {
            program: &start.program,
            argv: &start.argv.iter().map(CString::as_c_str).collect::<Vec<_>>(),
            envp: &start.envp.iter().map(CString::as_c_str).collect::<Vec<_>>(),
            stdio: [in_theirs.as_fd(), out_theirs.as_fd(), err_theirs.as_fd()],
            fds: &held.iter().map(AsFd::as_fd).collect::<Vec<BorrowedFd<'_>>>(),
            ids,
            // nsjail looks for its child in /proc by the number that it knows it by.
            first_process: self.own_pids,
            lifeline: lifeline.as_fd(),
            rlimits: &rlimits,
            cgroup: cgroup.and_then(Cgroup::dir_fd),
            cwd: &start.cwd,
            tasks: &tasks.iter().map(AsFd::as_fd).collect::<Vec<BorrowedFd<'_>>>(),
        })
        .map_err(|e| Failure::not_started(Step::Spawn, &self.tool.path, &e))?;
        drop(alive); // it has seen that we live, and is told of our death by a signal from now on
        let input = io.take_input(&self.policy.command.stdin);
        let l = &self.policy.limits;
        let watched = Watched {
            running,
            side,
            gate: reached.zip(go).map(|(reached, (go, says))| Gate { reached, go, says, allows }),
            tree: match self.tool.tool {
                Tool::Bubblewrap if self.own_pids => Tree::Namespace,
                Tool::Bubblewrap | Tool::Nsjail => Tree::Below,
                Tool::Seatbelt => Tree::Group,
            },
            source: Source::new(in_ours, input, false),
            sinks: [
                Some(Sink::new(out_ours, Stream::Stdout, l.output_bytes)),
                Some(Sink::new(err_ours, Stream::Stderr, l.output_bytes)),
            ],
            cgroup,
            wall: Duration::from_millis(l.wall_ms),
            cpu_seconds: l.cpu_seconds,
            sample_memory: cgroup.is_none().then_some(l.memory_mb << 20),
        };
        Ok((watched, begun.elapsed()))
    }

    fn rlimits(&self, cgroup: bool) -> Vec<(u32, u64, u64)> {
        // Where there is no namespace to count in, all that the user runs is counted.
        let alone = self.own_pids || self.identity.switches();
        let others = if alone { 0 } else { crate::proctree::threads_of(rustix::process::geteuid().as_raw()) };
        let mut rlimits = crate::plan::rlimits::rlimits(&self.policy, u64::from(self.ours()) + others);
        if cgroup {
            crate::plan::rlimits::leave_processes_to_the_cgroup(&mut rlimits);
        }
        rlimits
    }

    fn blank(&self) -> Outcome {
        Outcome {
            violations_complete: false,
            enforcement: self.enforcement.clone(),
            backend: self.backend().into(),
            backend_reason: self.reason.clone(),
            ..Outcome::unstarted(None)
        }
    }

    fn outcome(&self, mut seen: Seen, setup: Duration, enforcement: Enforcement, cgroup: Option<Cgroup>) -> Outcome {
        let mut o = Outcome { enforcement, setup_time_ms: setup.as_secs_f64() * 1e3, ..self.blank() };
        let sampled = seen.sampled;
        o.memory_used_bytes = (sampled.memory_bytes > 0).then_some(sampled.memory_bytes);
        o.pid_count = (sampled.processes > 0).then_some(sampled.processes);
        let mut cpu_us = seen.usage.cpu_us.max(sampled.cpu_us);
        let mut pids_hits = 0;
        if let Some(c) = cgroup {
            if let Ok(u) = c.usage() {
                o.memory_used_bytes = u.memory_peak_bytes.or(o.memory_used_bytes);
                cpu_us = cpu_us.max(u.cpu_time_us.unwrap_or(0));
                o.pid_count = u.pids_peak.map(|n| n.saturating_sub(u64::from(self.ours()))).or(o.pid_count);
            }
            pids_hits = c.events().map_or(0, |e| e.pids_limit_hits);
            if let Err(e) = c.remove() {
                seen.problems.push(e.to_string());
            }
        }
        o.cpu_time_seconds = Some(cpu_us as f64 / 1e6);
        o.execution_time_ms = seen.took.as_secs_f64() * 1e3;
        let [(out, out_cut), (err, err_cut)] = std::mem::take(&mut seen.streams);
        o.stdout = String::from_utf8_lossy(&out).into_owned();
        o.stderr = String::from_utf8_lossy(&err).into_owned();
        o.truncated = Truncated { stdout: out_cut, stderr: err_cut };
        self.ending(&mut o, &seen, cpu_us);
        let audit = self.policy.audit;
        if let Some(limit) = o.limit.filter(|_| audit.records(AuditLevel::Error)) {
            let by_signal = seen.killed.is_none();
            o.violations.push(limit_violation(limit, if by_signal { Evidence::Inferred } else { Evidence::Kernel }, 1));
        }
        if pids_hits > 0 && audit.records(AuditLevel::Warning) {
            o.violations.push(limit_violation(Field::Processes, Evidence::Kernel, pids_hits));
        }
        let kills = |r: &cofferdam_policy::SyscallRule| matches!(r.action, SyscallAction::Kill);
        let may_kill = self.policy.process.seccomp.rules.iter().any(kills)
            || self.policy.on_violation == cofferdam_policy::OnViolation::Terminate;
        let by_filter = o.signal == Some(SIGSYS) || (may_kill && o.exit_code == Some(128 + SIGSYS));
        let by_file_size = self.signal(&o) == Some(SIGXFSZ);
        for (_, signal) in [(by_filter, SIGSYS), (by_file_size, SIGXFSZ)].into_iter().filter(|(by, _)| *by) {
            if audit.records(AuditLevel::Error) {
                o.violations.push(by_signal(signal));
            }
        }
        if o.error.is_none()
            && let Some(first) = seen.problems.first()
        {
            o.error = Some(Failure::new(Step::Cleanup, first.clone()).code(0));
        }
        o
    }

    fn ending(&self, o: &mut Outcome, seen: &Seen, cpu_us: u64) {
        match seen.killed {
            Some(Killed::TimedOut) => {
                o.outcome = Ending::TimedOut;
                o.limit = Some(Field::WallTime);
                return;
            }
            Some(Killed::Limit(field)) => {
                o.outcome = Ending::LimitExceeded;
                o.limit = Some(field);
                return;
            }
            // What is refused has no outcome of its own.
            Some(Killed::Cancelled | Killed::Refused) => {
                o.outcome = Ending::Signalled;
                o.signal = Some(15);
                return;
            }
            None => {}
        }
        let ended = match self.tool.tool {
            // It tells of a signal as 128 + N; the kernel may know better.
            Tool::Bubblewrap => exit_code(&seen.side).map(|code| match seen.inner {
                Some(status) if status & 0x7f != 0 => Ended::Signalled(status & 0x7f),
                _ => Ended::Exited(code & 0xff),
            }),
            Tool::Nsjail if seen.not_executed.is_some() => None,
            Tool::Nsjail => nsjail_ended(&seen.side),
            Tool::Seatbelt if seen.status & 0x7f == 0 => Some(Ended::Exited(seen.status >> 8 & 0xff)),
            Tool::Seatbelt => Some(Ended::Signalled(seen.status & 0x7f)),
        };
        match ended {
            Some(Ended::Exited(code)) => {
                o.outcome = Ending::Exited;
                o.exit_code = Some(code);
                o.success = code == 0;
            }
            Some(Ended::Signalled(signal)) => {
                o.outcome = Ending::Signalled;
                o.signal = Some(signal);
            }
            None if seen.status & 0x7f != 0 => {
                o.outcome = Ending::Signalled;
                o.signal = Some(seen.status & 0x7f);
            }
            None => {
                o.outcome = Ending::SetupFailed;
                o.error = Some(self.setup_failure(o, seen));
                o.violations_complete = true; // nothing ran
            }
        }
        // Every program can send these signals to itself: the measure decides.
        let signal = self.signal(o);
        let used = cpu_us as f64 / 1e6;
        let most = self.policy.limits.cpu_seconds as f64;
        if signal == Some(24) && used >= most * 0.75 || signal == Some(9) && used >= most * 0.95 {
            (o.outcome, o.limit) = (Ending::LimitExceeded, Some(Field::CpuTime));
        }
    }

    /// The signal that ended the program. Bubblewrap says it as 128 + N.
    fn signal(&self, o: &Outcome) -> Option<i32> {
        o.signal.or(o.exit_code.filter(|_| self.tool.tool == Tool::Bubblewrap).map(|code| code - 128))
    }

    /// What the tool said before it gave up. Nothing of the program's ran, so the words are the tool's own.
    fn setup_failure(&self, o: &Outcome, seen: &Seen) -> Failure {
        let said = match self.tool.tool {
            Tool::Nsjail => match seen.not_executed {
                Some(errno) => format!("cannot execute the program: {}", std::io::Error::from_raw_os_error(errno)),
                None => nsjail_complaints(&seen.side),
            },
            _ => o.stderr.trim().to_owned(),
        };
        let said = if said.is_empty() { "it said nothing".to_owned() } else { said };
        let message = format!("{} could not set the sandbox up: {said}", self.backend());
        let hint = (cause(&said) == Some(Cause::PermissionDenied)).then_some(
            "the sandbox's unprivileged user must be able to reach what is mounted; or use --backend jail, which maps owners",
        );
        Failure::new(Step::Setup, message).maybe_hint(hint)
    }
}

fn limit_violation(field: Field, evidence: Evidence, count: u64) -> Violation {
    Violation {
        operation: field.name().into(),
        object: None,
        field: format!("$.{field}"),
        evidence,
        pid: 0,
        count,
        aggregated: false,
    }
}

/// How the program ended, as its sandbox's program tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Exited(i32),
    Signalled(i32),
}

/// The documents that bubblewrap writes one after the other.
fn documents(side: &[u8]) -> impl Iterator<Item = Value> {
    serde_json::Deserializer::from_slice(side).into_iter::<Value>().map_while(Result::ok)
}

fn exit_code(side: &[u8]) -> Option<i32> {
    documents(side).find_map(|d| d.get("exit-code")?.as_i64().and_then(|code| i32::try_from(code).ok()))
}

/// nsjail's lines that complain: `[E]…` and `[F]…`, without time and place.
fn nsjail_complaints(side: &[u8]) -> String {
    let text = String::from_utf8_lossy(side);
    let lines = text.lines().filter(|line| line.starts_with("[E]") || line.starts_with("[F]"));
    let words = lines.map(|line| {
        line.rsplit_once("():")
            .map_or(line, |(_, rest)| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' '))
    });
    words.take(3).collect::<Vec<_>>().join("; ")
}

fn nsjail_ended(side: &[u8]) -> Option<Ended> {
    if !nsjail_complaints(side).is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(side);
    text.lines().rev().filter(|line| line.starts_with("[I]")).find_map(|line| {
        if let Some((_, rest)) = line.rsplit_once(") exited with status: ") {
            return rest.split(',').next()?.trim().parse().ok().map(Ended::Exited);
        }
        let (_, rest) = line.rsplit_once(") terminated with signal: ")?;
        let (_, number) = rest.split_once('(')?;
        number.split(')').next()?.parse().ok().map(Ended::Signalled)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bubblewraps_status_is_read_document_by_document() {
        let side = b"{ \"child-pid\": 17, \"cgroup-namespace\": 4026532 }\n{ \"exit-code\": 3 }\n";
        assert_eq!(exit_code(side), Some(3));
        assert_eq!(exit_code(b"{ \"child-pid\": 17 }\n{ \"exi"), None);
    }

    #[test]
    fn nsjails_log_says_how_it_ended() {
        let line =
            |rest: &str| format!("[I][2026-01-01T00:00:00+0000] pid=9 ([STANDALONE MODE]) {rest}, (PIDs left: 0)\n");
        assert_eq!(nsjail_ended(line("exited with status: 7").as_bytes()), Some(Ended::Exited(7)));
        assert_eq!(nsjail_ended(line("terminated with signal: SIGSYS (31)").as_bytes()), Some(Ended::Signalled(31)));
        let failed = format!(
            "[E][2026-01-01T00:00:00+0000][2] newProc():232 execve('/x') failed: No such file\n{}",
            line("exited with status: 255")
        );
        assert_eq!(nsjail_ended(failed.as_bytes()), None);
        assert_eq!(nsjail_complaints(failed.as_bytes()), "execve('/x') failed: No such file");
    }
}
