//! A policy planned for an external program, and one run of it: plan, start, watch, outcome.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::{Cgroup, CgroupLimits, CgroupLocation, LimitLevel};
use cofferdam_confine::external::{ExternalProgram, spawn};
use cofferdam_confine::host::{self, CallerIdentity};
use cofferdam_confine::{memfd, seatbelt as profile};
use cofferdam_policy::Field;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};

use super::mounted::Mounts;
use super::program_tree::{ProgramReport, ProgramTree, StartGate, TreeKind};
use super::tool::{InstalledTool, Tool};
use super::{bubblewrap, nsjail, seatbelt};
use crate::backends::complaint::{Cause, cause};
use crate::backends::enforcement::{EnforcementPurpose, NamedEnforcer, answers, sufficient};
use crate::backends::layout::{MountLayout, layout};
use crate::backends::real_sources;
use crate::backends::{BackendPlan, PlanRequest, PlanSummary};
use crate::failure::{FailedStep, Failure};
use crate::io::{Io, Stream};
use crate::outcome::{AppliedEnforcement, AppliedField, Outcome, Strength};
use crate::plan::facts::HostFacts;
use crate::plan::lookup::Lookup;
use crate::run::evidence::Log;
use crate::run::outcome_builder;
use crate::run::outcome_builder::{Finished, RunContext};
use crate::run::report::{RunEnd, SupervisorReport};
use crate::run::streams::{InputSource, OutputSink};
use crate::run::supervise::{SupervisedRun, supervise};

/// A policy with the program that holds it, to be run many times and from several threads.
#[derive(Debug)]
pub struct ExternalPlan {
    /// What was planned; the engine completes its enforcement with what cgroups give.
    pub planned: PlanSummary,
    tool: InstalledTool,
    identity: CallerIdentity,
    /// The tool is started as the first process of a pid namespace.
    own_pids: bool,
    /// Where cgroups can be made.
    pub location: Option<Arc<CgroupLocation>>,
}

impl BackendPlan for ExternalPlan {
    fn planned(&self) -> &PlanSummary {
        &self.planned
    }

    fn describe(&self) -> Value {
        let PlanSummary { backend, reason, enforcement, .. } = &self.planned;
        match self.start() {
            Ok((start, _)) => json!({
                "backend": backend,
                "backend_reason": reason,
                "enforcement": enforcement,
                "program": self.tool.path,
                "plan": start.plan,
            }),
            Err(failure) => json!({ "error": failure }),
        }
    }

    fn run(&self, mut io: Io) -> Outcome {
        let begun = Instant::now();
        let outcome =
            self.attempt(&mut io, begun).unwrap_or_else(|failure| self.planned.unstarted().refused(failure, begun));
        io.monitor.end();
        outcome
    }
}

/// What is started for one run.
struct ProgramLaunch {
    program: CString,
    argv: Vec<CString>,
    envp: Vec<CString>,
    cwd: CString,
    /// What is on the descriptors from the first on.
    fds: Vec<Descriptor>,
    /// What the sandbox has to show before the program starts. `None`: the tool mounts nothing.
    layout: Option<MountLayout>,
    plan: Value,
}

/// What a descriptor of the tool's is.
enum Descriptor {
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
    CString::new(value).map_err(|_| Failure::new(FailedStep::Spawn, "an argument holds a NUL character"))
}

impl ExternalPlan {
    /// Plans a policy for a tool.
    ///
    /// # Errors
    /// The tool cannot be used here, or the policy asks for what it has not at all. What it holds less than fully stands in
    /// its enforcement: see [`BackendPlan::sufficient`].
    pub fn plan(
        request: &PlanRequest<'_>,
        tool: InstalledTool,
        identity: CallerIdentity,
    ) -> Result<ExternalPlan, Failure> {
        // bubblewrap may be let have them where others are not: installed setuid, or named in AppArmor's rules.
        if tool.tool == Tool::Nsjail
            && let Some((why, command)) = host::user_namespaces_refused(false)
        {
            return Err(
                Failure::new(FailedStep::Namespaces, format!("user namespaces cannot be had: {why}")).hint(command)
            );
        }
        if !identity.switches() && identity.is_root_outside() {
            return Err(crate::backends::landlock::as_root());
        }
        // Ids are changed where they can be; else a pid namespace takes a user namespace.
        let own_pids =
            tool.tool == Tool::Bubblewrap && (identity.switches() || host::user_namespaces_refused(false).is_none());
        let planned = PlanSummary::new(tool.tool.name(), request, AppliedEnforcement::new());
        let mut ready = ExternalPlan { planned, tool, identity, own_pids, location: None };
        ready.planned.enforcement = ready.start()?.1;
        Ok(ready)
    }

    /// The same with no pid namespace around the tool, as on hosts that let bubblewrap have user namespaces and nobody else.
    ///
    /// # Errors
    /// As [`ExternalPlan::plan`].
    pub fn without_namespace(self) -> Result<ExternalPlan, Failure> {
        let mut ready = ExternalPlan { own_pids: false, ..self };
        ready.planned.enforcement = ready.start()?.1;
        Ok(ready)
    }

    fn start(&self) -> Result<(ProgramLaunch, AppliedEnforcement), Failure> {
        let purpose = EnforcementPurpose::Run { other_user: self.identity.switches(), own_pids: self.own_pids };
        let facts = HostFacts::for_run(self.identity.switches());
        let version = self.tool.version;
        let program = text(self.tool.path.as_os_str().as_encoded_bytes())?;
        if self.tool.tool == Tool::Seatbelt {
            let profile = seatbelt::plan(&self.planned.policy, &facts)?;
            let mut e = answers(self.tool.tool, &self.planned.policy, None, purpose);
            if let Some(mounts) = e.get_mut(&Field::Mounts) {
                *mounts = crate::plan::optional_mounts::with_left_out(
                    mounts.clone(),
                    &seatbelt::left_out(&self.planned.policy, &facts),
                );
            }
            return Ok((self.seatbelt(program, &profile)?, e));
        }
        let layout = layout(&self.planned.policy, &facts)?;
        let e = answers(self.tool.tool, &self.planned.policy, Some(&layout), purpose);
        let command = layout.program(&self.planned.policy, &facts)?;
        let start = match self.tool.tool {
            Tool::Bubblewrap => {
                let arguments = bubblewrap::plan(
                    &self.planned.policy,
                    &layout,
                    command,
                    version.unwrap_or_default(),
                    !self.own_pids,
                )?;
                let mut argv = vec!["bwrap".to_owned(), "--args".into(), bubblewrap::ARGS_FD.to_string(), "--".into()];
                argv.extend(arguments.command.iter().cloned());
                let mut fds = vec![
                    Descriptor::File(arguments.by_descriptor()),
                    Descriptor::Tells,
                    Descriptor::Go(arguments.filter.clone()),
                    Descriptor::Reached,
                ];
                fds.extend(arguments.files.iter().map(|file| Descriptor::File(file.clone().into_bytes())));
                let plan = json!({ "argv": arguments.argv(), "files": arguments.files });
                self.outside(program, &argv, fds, plan)?
            }
            _ => {
                let config = nsjail::plan(&self.planned.policy, &layout, command, purpose)?;
                let file = format!("/proc/self/fd/{}", nsjail::CONFIG_FD);
                let argv = ["nsjail".to_owned(), "-C".into(), file];
                let plan = serde_json::to_value(&config).unwrap_or_default();
                let file = Descriptor::File(config.text().into_bytes());
                let fds = vec![
                    file,
                    Descriptor::Tells,
                    Descriptor::Init,
                    Descriptor::Reached,
                    Descriptor::Go(vec![nsjail::GO]),
                ];
                self.outside(program, &argv, fds, plan)?
            }
        };
        Ok((ProgramLaunch { layout: Some(layout), ..start }, e))
    }

    /// A program that makes the sandbox and gets nothing of the policy's variables itself.
    fn outside(
        &self,
        program: CString,
        argv: &[String],
        fds: Vec<Descriptor>,
        plan: Value,
    ) -> Result<ProgramLaunch, Failure> {
        let argv = argv.iter().map(|argument| text(argument.as_str())).collect::<Result<_, _>>()?;
        Ok(ProgramLaunch { program, argv, envp: Vec::new(), cwd: text("/")?, fds, layout: None, plan })
    }

    /// sandbox-exec becomes the program, so it starts as the program is to.
    fn seatbelt(&self, program: CString, profile: &profile::Profile) -> Result<ProgramLaunch, Failure> {
        let command = &self.planned.policy.command;
        let mut argv = vec!["sandbox-exec".to_owned()];
        argv.extend(profile.arguments());
        argv.push("--".into());
        argv.extend(command.argv.iter().cloned());
        let plan = json!({ "argv": argv, "warnings": profile.warnings });
        let argv = argv.iter().map(|argument| text(argument.as_str())).collect::<Result<_, _>>()?;
        let envp = command.variables.iter().map(|(k, v)| text(format!("{k}={v}"))).collect::<Result<_, _>>()?;
        let cwd = text(command.cwd.as_deref().unwrap_or("/"))?;
        Ok(ProgramLaunch { program, argv, envp, cwd, fds: Vec::new(), layout: None, plan })
    }

    /// Whether every required field is enforced in full, as it has come out by now.
    fn still_sufficient(&self, e: &AppliedEnforcement) -> Result<(), Failure> {
        sufficient(NamedEnforcer::External(self.planned.backend), &self.planned.policy, e, &[])
    }

    fn attempt(&self, io: &mut Io, begun: Instant) -> Result<Outcome, Failure> {
        if !io.arguments.is_empty() {
            let told = format!("the {} backend takes no arguments besides the policy's", self.planned.backend);
            return Err(Failure::new(FailedStep::policy("command.argv"), told).hint("prepare a policy with them"));
        }
        if io.terminal.is_some() {
            let hint = "use --backend jail, or leave --tty out";
            return Err(Failure::new(
                FailedStep::Terminal,
                format!("the {} backend gives no terminal", self.planned.backend),
            )
            .hint(hint));
        }
        let pinned = real_sources::pinned(&self.planned.policy, &mut Lookup::default())?;
        let (start, mut enforcement) = self.start()?;
        crate::plan::source_identity::compare_all(&pinned)?;
        // What the engine knows of cgroups stays.
        for (field, applied) in &self.planned.enforcement {
            if field.name().starts_with("limits.") || *field == Field::TreeKill {
                enforcement.insert(*field, applied.clone());
            }
        }
        self.still_sufficient(&enforcement)?;
        let cgroup = self.cgroup(&mut enforcement)?;
        let mounts = start.layout.as_ref().map(|layout| Mounts::of(&pinned, layout)).unwrap_or_default();
        let allows = |pid| mounts.compare(pid, self.planned.backend);
        let (run, mut tree) = self.spawn(&start, &allows, cgroup.as_ref(), io)?;
        io.monitor.begin(run.running.pid, cgroup.as_ref(), self.ours());
        let report = supervise(run, &mut tree, io);
        let mut seen = tree.seen;
        if let Some(failure) = seen.refused.take() {
            if let Some(Err(e)) = cgroup.map(Cgroup::remove) {
                return Err(Failure { message: format!("{}; {e}", failure.message), ..failure });
            }
            return Err(failure);
        }
        Ok(self.outcome(report, &seen, enforcement, cgroup, begun))
    }

    /// Processes in the cgroup that are no part of the sandbox: the tool itself, where it does not become the program.
    fn ours(&self) -> u32 {
        u32::from(self.tool.tool != Tool::Seatbelt)
    }

    /// Runs have a cgroup there: what the tool itself could lose sight of stays in it and is ended with it.
    pub fn in_cgroups(&mut self, location: Arc<CgroupLocation>) {
        self.location = Some(location);
        if self.tool.tool != Tool::Seatbelt && !self.own_pids {
            let reason = "the pid namespace ends with its first process, and the cgroup with the run".to_owned();
            self.planned.enforcement.insert(Field::TreeKill, AppliedField { strength: Strength::Full, reason });
        }
    }

    fn cgroup(&self, e: &mut AppliedEnforcement) -> Result<Option<Cgroup>, Failure> {
        let Some(location) = &self.location else { return Ok(None) };
        let l = &self.planned.policy.limits;
        let limits = CgroupLimits {
            memory_bytes: Some(l.memory_mb << 20),
            pids: Some(l.processes + u64::from(self.ours())),
            cpu_millis: (!crate::plan::rlimits::is_all(l.cpu_millis)).then_some(l.cpu_millis),
            cpu_time: true,
            kill: true,
        };
        let weaker = |e: &mut AppliedEnforcement, field, strength, reason: String| {
            e.insert(field, AppliedField { strength, reason });
        };
        let made = match Cgroup::create(location, &limits) {
            Ok((cgroup, applied)) => {
                for (field, reached) in [
                    (Field::Memory, applied.memory),
                    (Field::CpuShare, applied.cpu),
                    (Field::CpuTime, applied.cpu_time),
                ] {
                    let Some(r) = reached.filter(|r| r.level != LimitLevel::Full) else { continue };
                    let strength = if r.level == LimitLevel::None { Strength::None } else { Strength::Partial };
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
        self.still_sufficient(e).map(|()| made)
    }

    fn spawn<'c>(
        &self,
        start: &'c ProgramLaunch,
        allows: &'c dyn Fn(i32) -> Result<(), Failure>,
        cgroup: Option<&'c Cgroup>,
        io: &mut Io,
    ) -> Result<(SupervisedRun<'c>, ProgramTree<'c>), Failure> {
        let failed = |what: &str, e: &dyn std::fmt::Display| Failure::new(FailedStep::Spawn, format!("{what}: {e}"));
        let pipes = |e: std::io::Error| failed("cannot make the run's pipes", &e);
        let ids = if self.identity.switches() {
            let id = host::unprivileged_id();
            let id = id.ok_or_else(|| {
                Failure::new(FailedStep::Ids, "no unprivileged id is mapped here").hint("run it as an ordinary user")
            })?;
            Some((id, id))
        } else {
            None
        };
        let (in_theirs, in_ours) = crate::run::streams::incoming().map_err(pipes)?;
        let (out_ours, out_theirs) = crate::run::streams::outgoing().map_err(pipes)?;
        let (err_ours, err_theirs) = crate::run::streams::outgoing().map_err(pipes)?;
        let mut reports = None;
        let mut held: Vec<OwnedFd> = Vec::new();
        let (mut reached, mut go) = (None, None);
        for end in &start.fds {
            held.push(match end {
                Descriptor::File(bytes) => {
                    let file = memfd::plan(bytes).map_err(|e| failed("cannot write the plan", &e))?;
                    // It is read from where it was left.
                    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))
                        .map_err(|e| failed("cannot rewind the plan", &e))?;
                    file
                }
                Descriptor::Tells => {
                    let (ours, theirs) = crate::run::streams::outgoing().map_err(pipes)?;
                    reports = Some(ours);
                    theirs
                }
                Descriptor::Reached => {
                    let (ours, theirs) = full().map_err(|e| pipes(e.into()))?;
                    reached = Some(ours);
                    theirs
                }
                Descriptor::Go(says) => {
                    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
                    let (ours, theirs) = pair.map_err(|e| pipes(e.into()))?;
                    go = Some((ours, says.as_slice()));
                    theirs
                }
                Descriptor::Init => memfd::init_program()
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
            cgroup.map(Cgroup::tasks_files).transpose().map_err(|e| Failure::new(FailedStep::Cgroup, e.to_string()))?;
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
        .map_err(|e| Failure::not_started(FailedStep::Spawn, &self.tool.path, &e))?;
        drop(alive); // it has seen that we live, and is told of our death by a signal from now on
        let input = io.take_input(&self.planned.policy.command.stdin);
        let l = &self.planned.policy.limits;
        let run = SupervisedRun {
            running,
            source: InputSource::new(in_ours, input, false),
            sinks: [
                Some(OutputSink::new(out_ours, Stream::Stdout, l.output_bytes)),
                Some(OutputSink::new(err_ours, Stream::Stderr, l.output_bytes)),
            ],
            cgroup,
            wall: Duration::from_millis(l.wall_ms),
            cpu_seconds: l.cpu_seconds,
            sample_memory: cgroup.is_none().then_some(l.memory_mb << 20),
            memory_bytes: l.memory_mb << 20,
            // Nothing in there hands out a socket to ask with, and the watched process is outside.
            own_network: None,
            overlays: false,
            output_bytes: l.output_bytes,
            log: Log::new(&self.planned.policy),
        };
        let tree = ProgramTree {
            reports,
            gate: reached.zip(go).map(|(reached, (go, says))| StartGate { reached, go, says, allows }),
            kind: match self.tool.tool {
                Tool::Bubblewrap if self.own_pids => TreeKind::Namespace,
                Tool::Bubblewrap | Tool::Nsjail => TreeKind::Below,
                Tool::Seatbelt => TreeKind::Group,
            },
            inner: None,
            answers: None,
            seen: ProgramReport::default(),
        };
        Ok((run, tree))
    }

    fn rlimits(&self, cgroup: bool) -> Vec<(u32, u64, u64)> {
        // Where there is no namespace to count in, all that the user runs is counted.
        let alone = self.own_pids || self.identity.switches();
        let others = if alone { 0 } else { crate::proctree::threads_of(rustix::process::geteuid().as_raw()) };
        let mut rlimits = crate::plan::rlimits::rlimits(&self.planned.policy, u64::from(self.ours()) + others);
        if cgroup {
            crate::plan::rlimits::leave_processes_to_the_cgroup(&mut rlimits);
        }
        rlimits
    }

    fn outcome(
        &self,
        mut report: SupervisorReport,
        seen: &ProgramReport,
        enforcement: AppliedEnforcement,
        cgroup: Option<Cgroup>,
        begun: Instant,
    ) -> Outcome {
        let failure = self.ended(&mut report, seen);
        let mut f = Finished { setup_failure: failure, ..Finished::of(report, enforcement) };
        if let Some(c) = cgroup {
            if let Ok(used) = c.usage() {
                f.counted(&used, self.ours().into());
            }
            f.pids_hits = c.events().map_or(0, |e| e.pids_limit_hits);
            if let Err(e) = c.remove() {
                f.problems.push(e.to_string());
            }
        }
        let of = RunContext {
            policy: &self.planned.policy,
            init_plan: None,
            codes_are_signals: self.tool.tool == Tool::Bubblewrap,
            reports: false,
        };
        outcome_builder::outcome(&of, self.planned.unstarted(), f, begun)
    }

    /// Works out how the program ended, from what its sandbox's program reports; why it did not start, where it did not.
    fn ended(&self, report: &mut SupervisorReport, seen: &ProgramReport) -> Option<Failure> {
        if report.end != RunEnd::Lost {
            return None; // the supervisor has ended it
        }
        let by_signal = seen.status & 0x7f;
        let end = match self.tool.tool {
            // It tells of a signal as 128 + N; the kernel may know better.
            Tool::Bubblewrap => exit_code(&seen.reported).map(|code| match seen.inner {
                Some(status) if status & 0x7f != 0 => RunEnd::Wait(status & 0x7f),
                _ => exited(code),
            }),
            Tool::Nsjail if seen.not_executed.is_some() => None,
            Tool::Nsjail => nsjail_ended(&seen.reported),
            Tool::Seatbelt => Some(RunEnd::Wait(seen.status)),
        };
        match end {
            Some(end) => report.end = end,
            None if by_signal != 0 => report.end = RunEnd::Wait(by_signal),
            None => {
                (report.end, report.started_ns) = (RunEnd::Lost, 0);
                return Some(self.setup_failure(report, seen));
            }
        }
        None
    }

    /// What the tool said before it gave up. Nothing of the program's ran, so the words are the tool's own.
    fn setup_failure(&self, report: &SupervisorReport, seen: &ProgramReport) -> Failure {
        let said = match self.tool.tool {
            Tool::Nsjail => match seen.not_executed {
                Some(errno) => format!("cannot execute the program: {}", std::io::Error::from_raw_os_error(errno)),
                None => nsjail_complaints(&seen.reported),
            },
            _ => String::from_utf8_lossy(&report.streams[1].0).trim().to_owned(),
        };
        let said = if said.is_empty() { "it said nothing".to_owned() } else { said };
        let message = format!("{} could not set the sandbox up: {said}", self.planned.backend);
        let hint = (cause(&said) == Some(Cause::PermissionDenied)).then_some(
            "the sandbox's unprivileged user must be able to reach what is mounted; or use --backend jail, which maps owners",
        );
        Failure::new(FailedStep::Setup, message).maybe_hint(hint)
    }
}

/// The end of a program that exited with this code.
fn exited(code: i32) -> RunEnd {
    RunEnd::Wait((code & 0xff) << 8)
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

fn nsjail_ended(side: &[u8]) -> Option<RunEnd> {
    if !nsjail_complaints(side).is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(side);
    text.lines().rev().filter(|line| line.starts_with("[I]")).find_map(|line| {
        if let Some((_, rest)) = line.rsplit_once(") exited with status: ") {
            return rest.split(',').next()?.trim().parse().ok().map(exited);
        }
        let (_, rest) = line.rsplit_once(") terminated with signal: ")?;
        let (_, number) = rest.split_once('(')?;
        number.split(')').next()?.parse().ok().map(RunEnd::Wait)
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
        assert_eq!(nsjail_ended(line("exited with status: 7").as_bytes()), Some(RunEnd::Wait(7 << 8)));
        assert_eq!(nsjail_ended(line("terminated with signal: SIGSYS (31)").as_bytes()), Some(RunEnd::Wait(31)));
        let failed = format!(
            "[E][2026-01-01T00:00:00+0000][2] newProc():232 execve('/x') failed: No such file\n{}",
            line("exited with status: 255")
        );
        assert_eq!(nsjail_ended(failed.as_bytes()), None);
        assert_eq!(nsjail_complaints(failed.as_bytes()), "execve('/x') failed: No such file");
    }
}
