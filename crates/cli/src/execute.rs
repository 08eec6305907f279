//! Carries a call out: prepare, run with our streams, signals and terminal, and turn the outcome into an exit code.
//!
//! Decides nothing about the sandbox. The program's output goes to our streams untouched; what we have to say goes
//! to standard error, or into the one JSON object on standard output.

use std::borrow::Cow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use cofferdam_engine::audit::Trail;
use cofferdam_engine::audited_run::{About, Unrecorded};
use cofferdam_engine::{Cancel, Ending, Enforcement, Engine, Failure, Input, Io, Outcome, Output, Prepared, Step};
use cofferdam_policy::{Policy, Stdin};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};

use crate::audit;
use crate::call::Call;
use crate::caller::Caller;
use crate::explain;
use crate::keep_changes::{Became, Keeping};
use crate::notes;
use crate::output;
use crate::report::{CLOSED, REFUSED, Refusal, print_error, print_note, shown};
use crate::runner;
use crate::skill::hints;
use crate::terminal;

/// How a run is presented.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Presentation {
    /// One outcome as JSON on standard output instead of the streams.
    pub json: bool,
    /// The runner's result as JSON instead: `{success, exitCode, stdout, stderr, durationMs}`, 137 for the wall limit.
    pub result: bool,
    /// Nothing about limits and refusals on standard error.
    pub quiet: bool,
    /// Policy and plan only.
    pub dry_run: bool,
}

/// Runs the call and returns the exit code.
pub fn execute(engine: &Engine, call: Call, caller: &Caller, presentation: Presentation) -> Result<i32, Refusal> {
    execute_about(engine, call, caller, presentation, About::default())
}

/// The same, where the run's record says more than the policy does.
pub fn execute_about(
    engine: &Engine,
    mut call: Call,
    caller: &Caller,
    presentation: Presentation,
    about: About,
) -> Result<i32, Refusal> {
    let is_skill = about.skill.is_some();
    if call.tty {
        if presentation.json {
            return Err(Refusal::new("arguments", "-t and --json exclude each other").hint("leave one of them out"));
        }
        if !presentation.dry_run {
            terminal::require()?;
        }
    }
    if presentation.dry_run {
        return match engine.prepare(&call.policy) {
            Ok(prepared) => print_json(&DryRun::of(&call, &prepared, &about)).map(|()| 0),
            Err(failure) => failed(failure, &call, caller, presentation, is_skill),
        };
    }
    let recording = audit::recording(&call, Some(caller).filter(|_| is_skill))?;
    let keeping = call.keep_changes.as_deref().map(Keeping::begin).transpose().map_err(|refusal| {
        if is_skill {
            refusal.hint("name a directory that is empty or does not exist yet: --output DIR")
        } else {
            refusal
        }
    })?;
    let signals = Signals::catch(call.tty)?;
    let lost = Arc::new(AtomicI32::new(0));
    let asked = Arc::new(AtomicBool::new(false));
    let io = Io {
        input: match call.policy.command.stdin {
            Stdin::Caller => Input::Fd(std::io::stdin().as_fd().try_clone_to_owned().map_err(|e| {
                Refusal::new("arguments", format!("cannot pass standard input on: {e}")).hint("leave out -i")
            })?),
            Stdin::Closed | Stdin::Text(_) => Input::Closed,
        },
        output: if presentation.json || presentation.result {
            Output::Capture
        } else {
            let wall = Duration::from_millis(call.policy.limits.wall_ms);
            Output::Stream(Box::new(output::through(
                signals.cancel.clone(),
                wall,
                Arc::clone(&lost),
                Arc::clone(&asked),
            )))
        },
        terminal: call.tty.then(terminal::size),
        cancel: signals.cancel.clone(),
        resize: signals.resized.clone().map(|resized| -> Box<dyn FnMut() -> Option<(u16, u16)> + Send> {
            Box::new(move || {
                let changed = resized.swap(false, Ordering::Relaxed);
                changed.then(terminal::size).map(|size| (size.rows, size.columns))
            })
        }),
        keep_changes: keeping.as_ref().zip(call.keep_changes.as_deref()).map(|(keeping, named)| keeping.path(named)),
        ..Io::default()
    };
    let prepared = match engine.prepare(&call.policy) {
        // The process ends with this call: taking a large policy apart first would only take time.
        Ok(prepared) => std::mem::ManuallyDrop::new(prepared),
        Err(failure) => return failed(failure, &call, caller, presentation, is_skill),
    };
    let raw = match call.tty.then(terminal::Raw::enter).transpose() {
        Ok(raw) => raw,
        Err(refusal) => {
            drop(std::mem::ManuallyDrop::into_inner(prepared));
            return Err(refusal);
        }
    };
    let (mut outcome, unrecorded) = match &recording {
        None => (prepared.run(io), None),
        Some(trail) => recorded(&prepared, io, &call, trail, about)?,
    };
    if asked.load(Ordering::Relaxed) {
        terminal::discard_answers();
    }
    drop(raw);
    if let (Some(keeping), Some(named), Some(failure)) = (&keeping, &call.keep_changes, &mut outcome.error) {
        failure.message = keeping.by_name(&failure.message, named);
    }
    let unkept = match (&keeping, &mut call.keep_changes) {
        (Some(keeping), Some(named)) if !outcome.changes.is_empty() => {
            unkept(keeping.became(named), named, &mut outcome)
        }
        _ => false,
    };
    drop(keeping);
    if let Some(failure) = outcome.error.as_mut().filter(|_| outcome.outcome == Ending::SetupFailed) {
        explain::explain(failure, &call.policy, caller);
        if is_skill {
            hints::for_operators(failure);
        }
    }
    let code = match (signals.caught(), &unrecorded) {
        (_, Some(refusal)) => refusal.code,
        (0, None) if (unkept || at_large(&outcome)) && exit_code(&outcome) == 0 => REFUSED,
        (0, None) => exit_code(&outcome),
        (signal, None) => 128 + signal,
    };
    if let Some(refusal) = unrecorded {
        print_error(&refusal.message, refusal.hint.as_deref());
    }
    if let Some(failure) = outcome.error.as_ref().filter(|_| unkept) {
        print_error(&failure.message, failure.hint.as_deref());
    }
    if presentation.json {
        print_json(&outcome)?;
        return Ok(code);
    }
    if presentation.result {
        let result = runner::RunnerResult::of(&outcome, code);
        print_json(&result)?;
        return Ok(result.exit_code);
    }
    match &outcome.error {
        Some(failure) if outcome.outcome == Ending::SetupFailed => {
            print_error(&failure.message, failure.hint.as_deref())
        }
        _ if !presentation.quiet => {
            if let Some(warning) = recording.as_ref().and_then(Trail::warning) {
                print_note(&warning, Some("XDG_STATE_HOME=DIR, a directory that this user can write"));
            }
            for note in notes::notes(&outcome, &call) {
                // What the hints name are options of `run`.
                print_note(&note.text, note.hint.as_deref().filter(|_| !is_skill));
            }
            if let Some(note) = notes::file_for_code(&outcome, &call) {
                print_note(&note.text, note.hint.as_deref());
            }
        }
        _ => {
            let repositories = outcome.error.as_ref().filter(|failure| failure.step == Step::Repositories);
            if let Some(failure) = repositories {
                print_note(&failure.message, failure.hint.as_deref());
            }
            for note in notes::cut(&outcome, &call) {
                print_note(&note.text, note.hint.as_deref().filter(|_| !is_skill));
            }
        }
    }
    let lost = lost.load(Ordering::Relaxed);
    if lost != 0 {
        let error = std::io::Error::from_raw_os_error(lost);
        print_error(&format!("cannot pass the program's output on: {error}; some of it is lost"), None);
        // The program may have ignored the broken pipe: what it calls success is none.
        return Ok(if code == 0 { REFUSED } else { code });
    }
    Ok(code)
}

/// Whether git outside would obey a repository that the program left, which is no success.
fn at_large(outcome: &Outcome) -> bool {
    outcome.error.as_ref().is_some_and(|failure| failure.step == Step::Repositories && failure.code != 0)
}

/// Says where changes are that were to be kept in a directory of this name. True: the program removed it, so they are lost,
/// which is no success.
fn unkept(became: Became, named: &mut String, outcome: &mut Outcome) -> bool {
    match became {
        Became::Same => false,
        Became::Moved(to) => {
            let to = to.to_string_lossy().into_owned();
            let message = format!("the program moved {named}: the changes are kept in {to}");
            let failure = Failure { code: 0, step: "keep_changes".into(), message, hint: None };
            outcome.error.get_or_insert(failure);
            *named = to;
            false
        }
        Became::Removed => {
            outcome.success = false;
            outcome.error = Some(Failure {
                code: REFUSED,
                step: "keep_changes".into(),
                message: format!("the changes are lost: the program removed {named}, in which they were to be kept"),
                hint: Some(
                    "name a directory outside of the volumes that the program may write: --keep-changes DIR".into(),
                ),
            });
            true
        }
    }
}

/// Runs it with its records. What ran and could not be recorded to its end is told, and no success.
fn recorded(
    prepared: &Prepared,
    io: Io,
    call: &Call,
    trail: &Trail,
    about: About,
) -> Result<(Outcome, Option<Refusal>), Refusal> {
    let refusal = |e: &Unrecorded| Refusal::new("audit", e.to_string()).split_hint();
    match prepared.run_recorded(io, &call.policy, trail, about) {
        Ok(outcome) => Ok((outcome, None)),
        Err(e @ Unrecorded::Start(_)) => Err(refusal(&e)),
        Err(e) => {
            let refusal = refusal(&e);
            let Unrecorded::End(outcome, _) = e else { return Err(refusal) };
            Ok((*outcome, Some(refusal)))
        }
    }
}

/// The exit code that an outcome stands for.
pub fn exit_code(outcome: &Outcome) -> i32 {
    match outcome.outcome {
        Ending::Exited => outcome.exit_code.unwrap_or(REFUSED),
        Ending::Signalled => 128 + outcome.signal.unwrap_or(9),
        Ending::TimedOut => 124,
        // Both are ended by SIGKILL.
        Ending::LimitExceeded | Ending::Violation => 137,
        Ending::SetupFailed => outcome.error.as_ref().map_or(REFUSED, |failure| failure.code),
    }
}

fn failed(
    mut failure: Failure,
    call: &Call,
    caller: &Caller,
    presentation: Presentation,
    is_skill: bool,
) -> Result<i32, Refusal> {
    explain::explain(&mut failure, &call.policy, caller);
    if is_skill {
        hints::for_operators(&mut failure);
    }
    let code = failure.code;
    if presentation.json {
        print_json(&notes::setup_failed(failure))?;
    } else if presentation.result {
        print_json(&runner::RunnerResult::of(&notes::setup_failed(failure), code))?;
    } else {
        print_error(&failure.message, failure.hint.as_deref());
    }
    Ok(code)
}

/// A refusal as the one JSON value that was asked for: an outcome, or the runner's result. Returns its exit code.
///
/// # Errors
/// It cannot be printed.
pub fn told(refusal: &Refusal, presentation: Presentation) -> Result<i32, Refusal> {
    let failure = Failure {
        code: refusal.code,
        step: refusal.step.into(),
        message: refusal.message.clone(),
        hint: refusal.hint.clone(),
    };
    let outcome = notes::setup_failed(failure);
    match presentation.result {
        true => print_json(&runner::RunnerResult::of(&outcome, refusal.code))?,
        false => print_json(&outcome)?,
    }
    Ok(refusal.code)
}

/// What `--dry-run` prints: all that is known before anything starts.
#[derive(Serialize)]
struct DryRun<'a> {
    policy: &'a Policy,
    backend: &'a str,
    backend_reason: &'a str,
    enforcement: &'a Enforcement,
    plan: serde_json::Value,
    /// Of a skill: what the record of its start will say besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    skill: Option<&'a serde_json::Map<String, serde_json::Value>>,
}

impl<'a> DryRun<'a> {
    fn of(call: &'a Call, prepared: &'a Prepared, about: &'a About) -> DryRun<'a> {
        DryRun {
            policy: &call.policy,
            backend: prepared.backend(),
            backend_reason: prepared.backend_reason(),
            enforcement: prepared.enforcement(),
            plan: prepared.plan_json(),
            skill: about.skill.as_ref().map(|_| &about.facts),
        }
    }
}

/// Prints one JSON value on standard output, or says that it could not.
pub fn print_json(value: &impl Serialize) -> Result<(), Refusal> {
    let mut text = serde_json::to_string_pretty(value).expect("reports have text keys, so nothing can fail");
    text.push('\n');
    print(&text)
}

/// Writes to standard output, or says that it could not: what was asked for did not arrive. A terminal gets nothing that
/// it would obey: data quotes what others wrote.
pub fn print(text: &str) -> Result<(), Refusal> {
    use std::io::{IsTerminal as _, Write as _};
    let mut out = std::io::stdout().lock();
    let text = if out.is_terminal() { Cow::Owned(shown(text)) } else { Cow::Borrowed(text) };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| unwritten(&e))
}

/// What could not be written to standard output. That its reader went away is told by the code [`CLOSED`], for `entry` to
/// judge: it is nothing to speak of where nothing but reading was done.
pub fn unwritten(error: &std::io::Error) -> Refusal {
    let refusal = Refusal::new("output", format!("cannot write to standard output: {error}"));
    if error.kind() == std::io::ErrorKind::BrokenPipe { refusal.code(CLOSED) } else { refusal }
}

/// The signals that this process was started to ignore, as a mask whose first bit is signal 1. None where the kernel does
/// not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Signals that end the run, kept until it has ended in order.
struct Signals {
    cancel: Cancel,
    number: Arc<AtomicUsize>,
    resized: Option<Arc<AtomicBool>>,
}

impl Signals {
    /// Catches what would end us otherwise: the tree has to be killed and the terminal put back first.
    fn catch(tty: bool) -> Result<Signals, Refusal> {
        let cancel = Cancel::default();
        let number = Arc::new(AtomicUsize::new(0));
        let failed = |e: std::io::Error| Refusal::new("signals", format!("cannot catch signals: {e}"));
        // One that is ignored stays so: who started this with nohup, or in the background of a script, wants it to go on.
        let ignored = ignored();
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
            let value = usize::try_from(signal).expect("signal numbers are positive");
            // The number first: whoever sees the flag finds the number.
            signal_hook::flag::register_usize(signal, Arc::clone(&number), value).map_err(failed)?;
            signal_hook::flag::register(signal, cancel.flag()).map_err(failed)?;
        }
        let mut resized = None;
        if tty {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(SIGWINCH, Arc::clone(&flag)).map_err(failed)?;
            resized = Some(flag);
        }
        Ok(Signals { cancel, number, resized })
    }

    /// The last signal that came, 0 for none.
    fn caught(&self) -> i32 {
        i32::try_from(self.number.load(Ordering::SeqCst)).unwrap_or(0)
    }
}
