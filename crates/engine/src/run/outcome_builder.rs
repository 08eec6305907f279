//! What came of a run: from what init reported, what was counted and what was refused, to the outcome.
//!
//! Pure but for the clock. The same for every sandbox.

use std::time::Instant;

use cofferdam_confine::InitPlan;
use cofferdam_confine::cgroup::{CgroupUsage, OomCause};
use cofferdam_confine::wire::step::FailurePoint;
use cofferdam_policy::{AuditLevel, Field, NetworkMode, OnViolation, Policy, SyscallAction};

use crate::failure::{FailedStep, Failure};
use crate::outcome::{
    AppliedEnforcement, AppliedField, Ending, Evidence, FileChange, NetworkSummary, Outcome, Strength, Truncated,
    Violation,
};
use crate::run::report::{RunEnd, SupervisorReport};
use crate::start_failures;

/// What is left of a run besides its report, for the outcome.
pub(crate) struct Finished {
    pub report: SupervisorReport,
    pub enforcement: AppliedEnforcement,
    pub network: Option<NetworkSummary>,
    pub changes: Vec<FileChange>,
    pub changes_omitted: u64,
    pub problems: Vec<String>,
    pub memory: Option<u64>,
    pub cpu: Option<f64>,
    pub processes: Option<u64>,
    pub pids_hits: u64,
    /// Why nothing ran, where something else than init says so.
    pub setup_failure: Option<Failure>,
    /// Why changes that were to be kept are not.
    pub changes_lost: Option<Failure>,
}

impl Finished {
    /// What the supervisor itself saw.
    pub(crate) fn of(mut report: SupervisorReport, enforcement: AppliedEnforcement) -> Finished {
        Finished {
            memory: Some(report.sampled_memory.max(report.largest).max(report.sampled_with_uncharged))
                .filter(|&bytes| bytes > 0),
            cpu: Some(report.usage.cpu_us.max(report.sampled_cpu_us) as f64 / 1e6),
            processes: (report.sampled_processes > 0).then_some(report.sampled_processes),
            problems: std::mem::take(&mut report.problems),
            report,
            enforcement,
            network: None,
            changes: Vec::new(),
            changes_omitted: 0,
            pids_hits: 0,
            setup_failure: None,
            changes_lost: None,
        }
    }

    /// What a cgroup counted, which knows better; so many of the processes in it are not the program's.
    pub(crate) fn counted(&mut self, used: &CgroupUsage, ours: u64) {
        let with_uncharged = Some(self.report.sampled_with_uncharged).filter(|&bytes| bytes > 0);
        self.memory = used.memory_peak_bytes.max(with_uncharged).or(self.memory);
        // The cgroup counts init's setup as well, the process times leave out what nobody waited for: the larger.
        let counted = used.cpu_time_us.map_or(0.0, |us| us as f64 / 1e6);
        self.cpu = Some(self.cpu.unwrap_or(0.0).max(counted));
        self.processes = used.pids_peak.map(|n| n.saturating_sub(ours)).or(self.processes);
    }
}

/// What an outcome is built from, besides the end of the run.
pub(crate) struct RunContext<'a> {
    /// The policy that was run.
    pub policy: &'a Policy,
    /// What init was sent, where init sets the sandbox up.
    pub init_plan: Option<&'a InitPlan>,
    /// A program that sets the sandbox up reports a signal of the program's as the exit code 128 + N.
    pub codes_are_signals: bool,
    /// Every refusal can be reported where it is traced: by mounts, by the filter. Landlock alone reports none.
    pub reports: bool,
}

/// The outcome of a run that was started. `base` says by what it was held.
pub(crate) fn outcome(of: &RunContext<'_>, base: Outcome, mut f: Finished, begun: Instant) -> Outcome {
    let policy = of.policy;
    let mut o = base;
    let total = begun.elapsed().as_secs_f64() * 1e3;
    let ran = f.report.started_ns != 0;
    o.execution_time_ms = if ran { f.report.ended_ns.saturating_sub(f.report.started_ns) as f64 / 1e6 } else { 0.0 };
    o.setup_time_ms = (total - o.execution_time_ms).max(0.0);
    let mut log = std::mem::take(&mut f.report.log);
    ending(&mut o, &mut f, of);
    let audit = policy.audit;
    log.ended(audit, o.outcome == Ending::Violation);
    if let Some(limit) = o.limit {
        // Where all there is is a signal, anybody could have sent it.
        let by_signal = matches!(f.report.end, RunEnd::Wait(_));
        let evidence = if by_signal { Evidence::Inferred } else { Evidence::Kernel };
        log.met(audit, AuditLevel::Error, limit_violation(limit, evidence));
    }
    if f.pids_hits > 0 {
        let mut v = limit_violation(Field::Processes, Evidence::Kernel);
        v.count = f.pids_hits;
        log.met(audit, AuditLevel::Warning, v);
    }
    let rules = &policy.process.seccomp.rules;
    let kills = rules.iter().any(|r| matches!(r.action, SyscallAction::Kill));
    let may_kill = kills || policy.on_violation == OnViolation::Terminate;
    let by = |signal| match f.report.end {
        RunEnd::Wait(status) if status & 0x7f == signal => true,
        // Every program can end with such a code: the filter's signal only where the filter has it.
        RunEnd::Wait(_) => signal_of(of, f.report.end) == Some(signal) && (signal != SIGSYS || may_kill),
        _ => false,
    };
    let killed = by(SIGSYS);
    for signal in [SIGSYS, SIGXFSZ].into_iter().filter(|signal| by(*signal)) {
        log.met(audit, AuditLevel::Error, by_signal(signal));
    }
    // A call that the filter kills for is told by nobody; nor is a read that Landlock alone refuses.
    // What knocks at ports without a listener faster than the gateway reads is not counted either.
    let told = !kills && !killed && of.reports && policy.network.mode != NetworkMode::Allowlist;
    let complete = told && !policy.process.nested_sandboxes && log.trace && !log.overflowed && f.report.lost == 0;
    o.violations_complete = complete || !ran; // what never ran was refused nothing
    o.violations = log.into_violations();
    let [(out, out_cut), (err, err_cut)] = f.report.streams;
    o.stdout = String::from_utf8_lossy(&out).into_owned();
    o.stderr = String::from_utf8_lossy(&err).into_owned();
    o.truncated = Truncated { stdout: out_cut, stderr: err_cut };
    (o.memory_used_bytes, o.cpu_time_seconds, o.pid_count) = (f.memory, f.cpu, f.processes);
    o.network = f.network;
    (o.changes, o.changes_omitted) = (f.changes, f.changes_omitted);
    o.enforcement = f.enforcement;
    for (step, errno) in f.report.weakened {
        weaken(&mut o.enforcement, step, errno);
    }
    if o.error.is_none()
        && let Some(lost) = f.changes_lost
    {
        (o.success, o.error) = (false, Some(lost));
    }
    if o.error.is_none() && !f.problems.is_empty() {
        o.error = Some(Failure::new(FailedStep::Cleanup, f.problems.join("; ")).code(0));
    }
    o
}

/// Why a run was killed for lack of memory.
fn oom_killed(cause: OomCause) -> Failure {
    let (whose, hint) = match cause {
        OomCause::AllRunsLimit(bytes) => (
            format!(
                "all runs of this user together met their limit of {} MiB, or did so earlier and the machine had no more",
                bytes >> 20
            ),
            "run fewer at a time, or each with less --memory; cofferdam doctor --verbose names that limit",
        ),
        OomCause::OwnLimit | OomCause::Machine => (
            "the machine, or a cgroup around all runs, had no more".to_owned(),
            "run fewer at a time, or each with less --memory",
        ),
    };
    let message = format!("killed for lack of memory: {whose}; the run was within its own limit, {}", Field::Memory);
    Failure::new(FailedStep::Memory, message).hint(hint)
}

/// A step that could not be done and that something else stands in for: the outcome says so.
fn weaken(e: &mut AppliedEnforcement, step: u16, errno: i32) {
    use cofferdam_confine::wire::step as s;
    let cause = std::io::Error::from_raw_os_error(errno);
    let (field, what) = match step {
        s::USERNS => {
            (Field::Isolation, "nested user namespaces could not be switched off, the filter alone refuses them")
        }
        s::KEYRING => (Field::Isolation, "no session keyring of its own, the filter alone refuses keyctl"),
        s::SOCKETS => (Field::Memory, "the buffers of sockets could not be counted, and no cgroup holds all of them"),
        _ => return,
    };
    e.insert(field, AppliedField { strength: Strength::Partial, reason: format!("{what}: {cause}") });
}

/// The signal of a filter that kills.
const SIGSYS: i32 = 31;
/// The signal of a file that would grow beyond its limit.
const SIGXFSZ: i32 = 25;
/// The signal of the CPU time's soft limit, and that of its hard one.
const SIGXCPU: i32 = 24;
const SIGKILL: i32 = 9;

/// What there is to say where one of these ended the program. Every program can send them to itself, and nothing measures
/// what they are for: so they are no evidence of the kernel's, and the outcome names no limit.
fn by_signal(signal: i32) -> Violation {
    let (operation, field) = match signal {
        SIGXFSZ => ("SIGXFSZ", "$.limits.file_size_mb"),
        _ => ("SIGSYS", "$.process.seccomp"),
    };
    let (operation, field) = (operation.to_owned(), field.to_owned());
    Violation { operation, object: None, field, evidence: Evidence::Inferred, pid: 0, count: 1, aggregated: false }
}

fn limit_violation(field: Field, evidence: Evidence) -> Violation {
    Violation {
        operation: field.name().into(),
        object: None,
        field: format!("$.{field}"),
        evidence,
        pid: 0,
        count: 1,
        aggregated: false,
    }
}

/// The signal that ended the program, or by its exit code may have.
fn signal_of(of: &RunContext<'_>, end: RunEnd) -> Option<i32> {
    match end {
        RunEnd::Wait(status) if status & 0x7f != 0 => Some(status & 0x7f),
        RunEnd::Wait(status) if of.codes_are_signals => Some((status >> 8 & 0xff) - 128),
        _ => None,
    }
}

fn ending(o: &mut Outcome, f: &mut Finished, of: &RunContext<'_>) {
    let limit = |o: &mut Outcome, field| {
        o.outcome = Ending::LimitExceeded;
        o.limit = Some(field);
    };
    match f.report.end {
        RunEnd::Wait(status) if status & 0x7f == 0 => {
            let code = status >> 8 & 0xff;
            o.outcome = Ending::Exited;
            o.exit_code = Some(code);
            o.success = code == 0;
        }
        RunEnd::Wait(status) => {
            let signal = status & 0x7f;
            o.outcome = Ending::Signalled;
            o.signal = Some(signal);
        }
        RunEnd::TimedOut => {
            o.outcome = Ending::TimedOut;
            o.limit = Some(Field::WallTime);
        }
        RunEnd::Limit(field) => limit(o, field),
        RunEnd::OomKilled(cause) => {
            // As after any signal from outside: no limit of the policy's was met.
            let ran = f.report.started_ns != 0;
            o.outcome = if ran { Ending::Signalled } else { Ending::SetupFailed };
            o.signal = ran.then_some(SIGKILL);
            o.error = Some(oom_killed(cause));
        }
        RunEnd::Violation => o.outcome = Ending::Violation,
        RunEnd::Cancelled => {
            o.outcome = Ending::Signalled;
            o.signal = Some(15);
        }
        RunEnd::Failed(step, index, errno) => {
            o.outcome = Ending::SetupFailed;
            let point = FailurePoint { step, index: index as u32 };
            o.error = of.init_plan.map(|plan| start_failures::failure(plan, point, errno));
        }
        RunEnd::Lost if f.setup_failure.is_some() => {
            o.outcome = Ending::SetupFailed;
            o.error = f.setup_failure.take();
        }
        RunEnd::Lost if f.report.started_ns == 0 => {
            o.outcome = Ending::SetupFailed;
            let message = "init ended before the program could start: killed from outside, or the memory limit is too low for setup";
            let hint = Some("raise --memory".to_owned());
            o.error = Some(Failure::new(FailedStep::Init, message).maybe_hint(hint));
        }
        RunEnd::Lost => {
            o.outcome = Ending::Signalled;
            o.signal = Some(9);
        }
    }
    // Anybody can send these signals to himself: the measure decides where there is one. SIGXCPU comes by ticks, which can run
    // ahead of what was used.
    let (used, most) = (f.cpu.unwrap_or(0.0), of.policy.limits.cpu_seconds as f64);
    let signal = signal_of(of, f.report.end);
    if signal == Some(SIGXCPU) && used >= most * 0.75 || signal == Some(SIGKILL) && used >= most * 0.95 {
        limit(o, Field::CpuTime);
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_confine::wire::step;

    use super::*;
    use crate::run::evidence::Log;

    #[test]
    fn what_met_the_limit_of_all_runs_has_not_met_its_own() {
        let (policy, init_plan) = (Policy::base(), InitPlan::default());
        let ended = |end, started_ns| {
            let mut report = SupervisorReport::begin(Log::default());
            (report.end, report.started_ns) = (end, started_ns);
            let finished = Finished::of(report, AppliedEnforcement::new());
            let of =
                RunContext { policy: &policy, init_plan: Some(&init_plan), codes_are_signals: false, reports: true };
            outcome(&of, Outcome::unstarted(None), finished, Instant::now())
        };
        let own = ended(RunEnd::Limit(Field::Memory), 1);
        assert_eq!(
            (own.outcome, own.limit, own.error),
            (Ending::LimitExceeded, Some(Field::Memory), None),
            "the control"
        );
        assert_eq!(own.violations.len(), 1, "{:?}", own.violations);
        for (cause, part) in [
            (OomCause::AllRunsLimit(96 << 20), "together met their limit of 96 MiB"),
            (OomCause::Machine, "the machine"),
        ] {
            let all = ended(RunEnd::OomKilled(cause), 1);
            assert_eq!((all.outcome, all.signal, all.limit), (Ending::Signalled, Some(9), None));
            assert!(!all.success && all.violations.is_empty(), "{:?}", all.violations);
            let error = all.error.unwrap();
            assert_eq!(error.step, FailedStep::Memory);
            assert!(error.message.contains(part) && error.message.contains("within its own limit"), "{error}");
            assert!(error.hint.is_some());
            let unstarted = ended(RunEnd::OomKilled(cause), 0);
            assert_eq!((unstarted.outcome, unstarted.signal), (Ending::SetupFailed, None));
        }
    }

    #[test]
    fn memory_is_partial_where_the_buffers_of_sockets_could_not_be_counted() {
        let (policy, init_plan) = (Policy::base(), InitPlan::default());
        let memory = |weakened: Vec<(u16, i32)>| {
            let mut report = SupervisorReport::begin(Log::default());
            (report.end, report.weakened) = (RunEnd::Wait(0), weakened);
            let full = AppliedField { strength: Strength::Full, reason: "a cgroup".into() };
            let finished = Finished::of(report, AppliedEnforcement::from([(Field::Memory, full)]));
            let of =
                RunContext { policy: &policy, init_plan: Some(&init_plan), codes_are_signals: false, reports: true };
            let outcome = outcome(&of, Outcome::unstarted(None), finished, Instant::now());
            assert!(outcome.success, "the run is none the worse");
            outcome.enforcement[&Field::Memory].clone()
        };
        let (eacces, other) = (13, (step::KEYRING, 13));
        let without = memory(vec![other]);
        assert_eq!((without.strength, &*without.reason), (Strength::Full, "a cgroup"), "the control");
        let with = memory(vec![other, (step::SOCKETS, eacces)]);
        assert_eq!(with.strength, Strength::Partial);
        for part in ["the buffers of sockets could not be counted", "Permission denied"] {
            assert!(with.reason.contains(part), "{part}: {}", with.reason);
        }
    }
}
