//! The guard: runs the commands that `decision` permits, records both, and answers questions. Never changes its
//! configuration.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::blocked_paths::{Blocked, Identities};
use super::capped_output::SharedOutput;
use super::config::GuardConfig;
use super::decide::{BoundRule, Decider, Permit};
use super::decision_cache::DecisionCache;
use super::error::{GuardError, Refusal, plain};
use super::executable_lookup::{ExecutableSearch, ResolvedCommand};
use super::helper_programs;
use super::recorder::{GuardEvent, Recorder};
use super::result::ExecutionResult;
use super::sandbox::Sandbox;
use super::sandbox_policy::{CommandCall, PolicyBase};
use cofferdam_engine::engine::Engine;
use cofferdam_engine::executables::{Executable, Executables};
use cofferdam_engine::monitor::Monitor;
use cofferdam_engine::outcome::{Ending, Outcome};
use cofferdam_engine::task::{Handle, Task};
use cofferdam_engine::{Cancel, Io};

/// Executes allowed commands in one workspace. Cheap to clone; clones are the same guard.
#[derive(Clone)]
pub struct Guard(Arc<GuardInner>);

pub(super) struct GuardInner {
    pub(super) config: GuardConfig,
    pub(super) engine: Engine,
    pub(super) frame: PolicyBase,
    pub(super) search: ExecutableSearch,
    pub(super) rules: Vec<BoundRule>,
    /// Rules by canonical path.
    pub(super) by_path: HashMap<String, Vec<usize>>,
    /// Rules whose command was not there.
    pub(super) inert: Vec<String>,
    pub(super) blocked: Blocked,
    pub(super) identities: Mutex<Option<(Instant, Arc<Identities>)>>,
    pub(super) recorder: Option<Arc<dyn Recorder>>,
    pub(super) commands: DecisionCache,
    pub(super) paths: DecisionCache,
}

/// How old the identities of blocked files may be in an answer about a path.
const AGE: Duration = Duration::from_millis(100);

impl GuardInner {
    /// Probes whether this host can enforce what every command needs.
    pub(super) fn try_out(&self) -> Result<(), GuardError> {
        let executables = Executables::from(self.search.loaders());
        let denied = self.denied().map_err(|(path, reason)| GuardError::Blocked { path, reason })?;
        let none = BTreeSet::new();
        let call = CommandCall {
            argv: vec!["/usr/bin/true".into()],
            workspace_programs: false,
            spawn: true,
            executables: &executables.programs,
            readable: &none,
            denied,
        };
        let policy = self.frame.policy(&self.config, call);
        policy.validate().map_err(|errors| GuardError::Policy(errors.to_string()))?;
        self.engine.prepare_limited(&policy, executables).map(drop).map_err(GuardError::Host)
    }

    /// Blocked paths with the other names of what they are.
    fn denied(&self) -> Result<Vec<String>, (String, String)> {
        let writable: Vec<String> = self.frame.writable().cloned().collect();
        let mut denied: Vec<String> = self.blocked.deny().collect();
        denied.extend(self.blocked.other_names(&writable)?);
        Ok(denied)
    }

    fn decider(&self) -> Decider<'_> {
        let GuardInner { config, search, rules, by_path, blocked, .. } = self;
        Decider { config, search, rules, by_path, blocked }
    }

    /// Decides, records the decision, and runs.
    fn execute(&self, command: &str, args: &[String], cancel: Cancel) -> Result<ExecutionResult, Refusal> {
        let decided = self.decider().decide(command, args);
        let (rule, executable) = match &decided {
            Ok(permit) => (Some(self.rules[permit.rule].checked.rule.command.clone()), Some(&permit.found.canonical)),
            Err(_) => (None, None),
        };
        match &decided {
            Ok(_) => tracing::info!(command, ?args, ?rule, ?executable, "allowed"),
            Err(refusal) => tracing::warn!(command, ?args, %refusal, "refused"),
        }
        let event = GuardEvent::Decided {
            command: command.to_owned(),
            args: args.to_vec(),
            executable: executable.cloned(),
            rule,
            refused: decided.as_ref().err().map(ToString::to_string),
        };
        let recorded = self.recorder.as_ref().map_or(Ok(()), |recorder| recorder.record(&event));
        let permit = decided?;
        recorded.map_err(|reason| Refusal::Record { command: command.to_owned(), reason })?;
        self.run(command, args, &permit, cancel)
    }

    fn run(&self, command: &str, args: &[String], permit: &Permit, cancel: Cancel) -> Result<ExecutionResult, Refusal> {
        let rule = &self.rules[permit.rule];
        let named = || command.to_owned();
        let mut executables = vec![permit.found.executable()];
        executables.extend(permit.found.chain.iter().cloned());
        if !rule.alone {
            let helpers = helper_programs::opened(&rule.tree, &self.search)
                .map_err(|reason| Refusal::NotAllowed { command: named(), reason })?;
            executables.extend(helpers);
        }
        executables.retain(|program| !self.blocked.holds(&program.path));
        executables.sort();
        executables.dedup();
        let denied = self.denied().map_err(|(_, reason)| Refusal::Blocked { command: named(), reason })?;
        let (program, shown) = self.program(command, permit)?;
        let mut readable = rule.tree.readable.clone();
        readable.extend(shown.map(str::to_owned));
        let argv = std::iter::once(program.to_owned()).chain(args.iter().cloned()).collect();
        let call = CommandCall {
            argv,
            workspace_programs: rule.workspace_programs,
            spawn: !rule.alone,
            executables: &executables,
            readable: &readable,
            denied,
        };
        let policy = self.frame.policy(&self.config, call);
        if rule.workspace_programs {
            let path = self.frame.workspace.clone();
            executables.push(Executable { path, identity: None });
        }
        let setup = |failure| Refusal::Setup { command: named(), failure };
        let lost = |reason| Refusal::Lost { command: named(), reason };
        policy.validate().map_err(|e| lost(e.to_string()))?;
        self.frame.is_unmoved().map_err(lost)?;
        let prepared = self.engine.prepare_limited(&policy, limited(executables)).map_err(setup)?;
        self.frame.is_unmoved().map_err(lost)?;
        let kept = SharedOutput::new(self.config.max_output_bytes);
        let outcome = prepared.run(Io { output: kept.output(), cancel, ..Io::default() });
        let mut result = self.result(command, &outcome, &kept);
        if let Ok(result) = &mut result {
            self.name_blocked(args, result);
        }
        self.ended(command, &outcome, &result);
        result
    }

    /// The path that is executed, and a directory that has to be shown for it. That is the path by which the program
    /// was found, whose name it sees; the file's own where the sandbox does not show the other.
    fn program<'p>(&self, command: &str, permit: &'p Permit) -> Result<(&'p str, Option<&'p str>), Refusal> {
        let ResolvedCommand { called, canonical, .. } = &permit.found;
        if called == canonical || !self.frame.is_hidden(&self.config, called) {
            return Ok((called, None));
        }
        if !self.rules[permit.rule].by_name {
            return Ok((canonical, None));
        }
        let dir = self.frame.directory_of(called).ok_or_else(|| {
            let (called, canonical) = (plain(called), plain(canonical));
            let reason = format!("{called} cannot be shown to the sandbox, and {canonical} goes by its name");
            Refusal::NotFound { command: command.to_owned(), reason }
        })?;
        Ok((called, Some(dir)))
    }

    fn result(&self, command: &str, outcome: &Outcome, kept: &SharedOutput) -> Result<ExecutionResult, Refusal> {
        let command = command.to_owned();
        let cut = outcome.truncated.stdout || outcome.truncated.stderr;
        let (stdout, stderr, truncated) = kept.take(cut);
        let duration_ms = outcome.execution_time_ms.round() as u64;
        let printed = |exit_code| ExecutionResult { stdout, stderr, exit_code, duration_ms, truncated };
        match (outcome.outcome, &outcome.error) {
            (Ending::Exited, _) => Ok(printed(outcome.exit_code.unwrap_or(-1))),
            (Ending::Signalled, _) => Ok(printed(128 + outcome.signal.unwrap_or(0))),
            (Ending::TimedOut, _) => Err(Refusal::Timeout {
                command,
                limit_secs: self.config.max_execution_time_secs,
                output: Box::new(printed(-1)),
            }),
            (Ending::LimitExceeded, _) if outcome.limit.is_some() => Err(Refusal::Limit {
                command,
                limit: outcome.limit.unwrap_or(cofferdam_policy::Field::Memory),
                output: Box::new(printed(-1)),
            }),
            (Ending::SetupFailed, Some(failure)) => Err(Refusal::Setup { command, failure: failure.clone() }),
            (ending, _) => Err(Refusal::Lost { command, reason: format!("it ended as {ending:?}") }),
        }
    }

    /// Says under the errors of a command that failed which blocked paths its arguments name: its own words say only
    /// that it could not read or write them.
    fn name_blocked(&self, args: &[String], result: &mut ExecutionResult) {
        if result.exit_code == 0 {
            return;
        }
        for path in self.blocked.named_by(args, &self.frame.workspace, &self.identities()) {
            if !(result.stderr.is_empty() || result.stderr.ends_with('\n')) {
                result.stderr.push('\n');
            }
            let path = plain(&path);
            tracing::warn!(path, "an argument names a path of blocked_paths");
            result.stderr.push_str(&format!("cofferdam: {path}: blocked by blocked_paths\n"));
        }
    }

    fn ended(&self, command: &str, outcome: &Outcome, result: &Result<ExecutionResult, Refusal>) {
        let exit_code = result.as_ref().ok().map(|result| result.exit_code);
        let duration_ms = outcome.execution_time_ms.round() as u64;
        match result {
            Ok(_) => tracing::info!(command, exit_code, duration_ms, run_id = outcome.run_id, "ended"),
            Err(refusal) => tracing::warn!(command, %refusal, duration_ms, run_id = outcome.run_id, "ended"),
        }
        if let (Ok(_), Some(failure)) = (result, &outcome.error) {
            tracing::warn!(command, reason = failure.message, "not everything of the run could be taken apart");
        }
        let event =
            GuardEvent::Ended { command: command.to_owned(), run_id: outcome.run_id.clone(), exit_code, duration_ms };
        if let Some(Err(reason)) = self.recorder.as_ref().map(|recorder| recorder.record(&event)) {
            tracing::error!(command, reason, "the end of a command could not be recorded");
        }
    }

    fn identities(&self) -> Arc<Identities> {
        let mut kept = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((made, known)) if made.elapsed() < AGE => Arc::clone(known),
            _ => {
                let made = Instant::now();
                let known = Arc::new(self.blocked.identities());
                *kept = Some((made, Arc::clone(&known)));
                known
            }
        }
    }
}

impl Guard {
    pub(super) fn of(inner: GuardInner) -> Guard {
        Guard(Arc::new(inner))
    }

    /// Allowed commands that were not installed when the guard was built. They are refused.
    pub fn not_installed(&self) -> &[String] {
        &self.0.inert
    }

    /// Whether a command would be executed with these arguments.
    ///
    /// # Errors
    /// It would not: why.
    pub fn check(&self, command: &str, args: &[&str]) -> Result<(), Refusal> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.0.decider().decide(command, &args).map(drop)
    }

    /// Executes a command on this thread and waits for its end.
    ///
    /// # Errors
    /// As [`Sandbox::execute`].
    pub fn execute_blocking(&self, command: &str, args: &[&str]) -> Result<ExecutionResult, Refusal> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.0.execute(command, &args, Cancel::default())
    }
}

#[cfg(test)]
impl Guard {
    /// A decision by itself.
    pub(super) fn permit(&self, command: &str, args: &[String]) -> Result<Permit, Refusal> {
        self.0.decider().decide(command, args)
    }

    /// What becomes of it.
    pub(super) fn run_permit(
        &self,
        command: &str,
        args: &[String],
        permit: &Permit,
    ) -> Result<ExecutionResult, Refusal> {
        self.0.run(command, args, permit, Cancel::default())
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("config", &self.0.config).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sandbox for Guard {
    async fn execute(&self, command: &str, args: &[&str]) -> Result<ExecutionResult, Refusal> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (inner, name) = (Arc::clone(&self.0), command.to_owned());
        let cancel = Cancel::default();
        let theirs = cancel.clone();
        let work = move || Ok(inner.execute(&name, &args, theirs));
        let task = Task::new(move || Handle::start(cancel, Monitor::default(), work));
        task.await.unwrap_or_else(|reason| Err(Refusal::Lost { command: command.to_owned(), reason }))
    }

    fn is_allowed(&self, command: &str) -> bool {
        let inner = &self.0;
        if !inner.config.enabled {
            return false;
        }
        let candidates = || inner.search.candidates(command);
        inner.commands.allows(command, candidates, || {
            let found = inner.search.find(command).ok()?;
            inner.decider().rules_that_allow(command, &found).ok()?;
            Some(found.chain.into_iter().map(|link| link.path.into()).collect())
        })
    }

    fn path_allowed(&self, path: &str) -> bool {
        let inner = &self.0;
        if path.is_empty() || path.contains('\0') {
            return false;
        }
        let whole = Path::new(&inner.frame.workspace).join(path);
        let answer = || (!inner.blocked.covering(&whole, &inner.identities())).then(Vec::new);
        inner.paths.allows(path, || vec![whole.clone()], answer)
    }
}

#[cfg(not(test))]
fn limited(programs: Vec<Executable>) -> Executables {
    programs.into()
}

#[cfg(test)]
thread_local! {
    /// The version of Landlock that this thread's commands make do with.
    pub(super) static OLDER: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
fn limited(programs: Vec<Executable>) -> Executables {
    Executables { programs, landlock: OLDER.get() }
}
