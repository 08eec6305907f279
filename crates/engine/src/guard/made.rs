//! A guard that was made: its rules bound to files, its decisions, and one run at a time or many.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_confine::host;
use cofferdam_policy::paths::is_within;

use super::blocked::{Blocked, Identities};
use super::cache::Cache;
use super::config::{GuardConfig, Mode};
use super::error::{GuardError, Refusal};
use super::find::{Found, Search};
use super::helpers::{self, Tree};
use super::output::Together;
use super::policy::{self, Call, Frame};
use super::record::{Event, Recorder};
use super::rules::{self, Checked};
use super::{Execution, ExecutionResult, Sandbox};
use crate::compat::task::{Handle, Task};
use crate::engine::Engine;
use crate::executables::Executables;
use crate::io::{Cancel, Io};
use crate::monitor::Monitor;
use crate::outcome::{Ending, Outcome};

/// Executes allowed commands in one workspace. Cheap to clone; clones are the same guard.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

/// A guard in the making.
pub struct GuardBuilder {
    config: GuardConfig,
    workspace: PathBuf,
    variables: Option<Vec<(String, String)>>,
    recorder: Option<Arc<dyn Recorder>>,
}

/// A rule and the file that its command led to when the guard was made.
struct Bound {
    checked: Checked,
    /// The last part of its command.
    name: String,
    canonical: String,
    /// Whether the executable is many programs, so that only this name stands for the rule.
    by_name: bool,
    /// Whether nothing may be started, since all that could be is this executable under another name.
    alone: bool,
    tree: Tree,
    workspace_programs: bool,
}

struct Inner {
    config: GuardConfig,
    engine: Engine,
    frame: Frame,
    search: Search,
    rules: Vec<Bound>,
    /// Rules by canonical path.
    by_path: HashMap<String, Vec<usize>>,
    /// Rules whose command was not there.
    inert: Vec<String>,
    blocked: Blocked,
    identities: Mutex<Option<(Instant, Arc<Identities>)>>,
    recorder: Option<Arc<dyn Recorder>>,
    commands: Cache,
    paths: Cache,
}

/// How old the identities of blocked files may be in an answer about a path.
const AGE: Duration = Duration::from_millis(100);

impl GuardBuilder {
    /// The variables that commands get the harmless ones of, and whose PATH and HOME count, instead of this process's.
    #[must_use]
    pub fn variables(mut self, variables: impl IntoIterator<Item = (String, String)>) -> GuardBuilder {
        self.variables = Some(variables.into_iter().collect());
        self
    }

    /// Whoever keeps a record of what is decided.
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<dyn Recorder>) -> GuardBuilder {
        self.recorder = Some(recorder);
        self
    }

    /// Makes the guard: every rule is checked and bound to its file, and the host is asked whether it can hold it all.
    ///
    /// # Errors
    /// Something in the configuration is wrong, or cannot be held here. Commands that are not installed are no error:
    /// they are listed by [`Guard::not_installed`], and refused.
    pub fn build(self) -> Result<Guard, GuardError> {
        let GuardBuilder { config, workspace, variables, recorder } = self;
        let me = host::identity();
        if me.uid == 0 && !config.run_as_root {
            return Err(GuardError::Root);
        }
        match (config.mode, config.enforce_reads) {
            (Mode::Rwx, _) => return Err(GuardError::Unwalled),
            (Mode::Rx, true) => return Err(GuardError::Reads),
            _ => {}
        }
        let given: Vec<(String, String)> = variables.unwrap_or_else(|| {
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect()
        });
        let variable = |name: &str| given.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let home = variable("HOME").and_then(cofferdam_policy::paths::normalize).filter(|home| home != "/");

        let workspace = directory(&workspace, "the workspace")?;
        let mut writable = Vec::new();
        for given in &config.writable {
            let dir = directory(Path::new(given), "writable")?;
            if is_within(&workspace, &dir) && workspace != dir {
                // Its own path would be theirs to change: the next command would work elsewhere.
                let reason =
                    format!("the workspace {workspace} lies in it\nhint: make it the workspace, or name others");
                return Err(GuardError::Directory { what: "writable", path: given.clone(), reason });
            }
            writable.push(dir);
        }
        // One inside another is written with it, and must not be a mount of its own whose path they can change.
        let all: Vec<String> = writable.iter().chain([&workspace]).cloned().collect();
        writable.retain(|dir| *dir != workspace && !all.iter().any(|other| other != dir && is_within(dir, other)));
        writable.sort();
        writable.dedup();
        let blocked = Blocked::new(&config.blocked_paths, home.as_deref(), &workspace)?;
        let mut frame =
            Frame { workspace, writable, home: home.clone(), variables: Default::default(), other_user: me.switches() };
        let mut search = search(variable("PATH").unwrap_or(DEFAULT_PATH), &frame);
        let rustup_home = variable("RUSTUP_HOME").map(PathBuf::from);
        let rustup_home = rustup_home.or_else(|| home.as_deref().map(|home| Path::new(home).join(".rustup")));
        let rustup_home = rustup_home.and_then(|dir| std::fs::canonicalize(dir).ok()).filter(|dir| dir.is_dir());
        search.rustup_home = rustup_home.and_then(|dir| dir.to_str().map(str::to_owned));
        let theirs = home.as_deref().filter(|_| !frame.other_user);
        frame.variables = policy::variables(&config, given.clone(), &search.directories.join(":"), theirs);

        let (mut bound, mut inert) = (Vec::new(), Vec::new());
        for rule in &config.allowed_commands {
            match Bound::new(Checked::new(rule)?, &config, &search)? {
                Some(rule) => bound.push(rule),
                None => inert.push(rule.command.clone()),
            }
        }
        check_names(&config)?;
        if let Some(dir) =
            search.rustup_home.as_ref().filter(|dir| bound.iter().any(|rule| rule.tree.readable.contains(*dir)))
        {
            frame.variables.entry("RUSTUP_HOME".into()).or_insert_with(|| dir.clone()); // its home is another one inside
        }
        let mut by_path: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, rule) in bound.iter().enumerate() {
            by_path.entry(rule.canonical.clone()).or_default().push(i);
        }
        let inner = Inner {
            config,
            engine: Engine::probe(),
            frame,
            search,
            rules: bound,
            by_path,
            inert,
            blocked,
            identities: Mutex::new(None),
            recorder,
            commands: Cache::default(),
            paths: Cache::default(),
        };
        inner.try_out()?;
        for command in &inner.inert {
            tracing::warn!(command, "an allowed command is not installed, or cannot be executed");
        }
        Ok(Guard(Arc::new(inner)))
    }
}

/// Where programs are looked for when nobody says.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

impl Bound {
    /// A rule, bound; `None` when there is no such program here.
    fn new(checked: Checked, config: &GuardConfig, search: &Search) -> Result<Option<Bound>, GuardError> {
        let command = checked.rule.command.clone();
        let refuse = |reason: String| GuardError::Rule { command: command.clone(), reason };
        let plain = !command.is_empty() && !command.contains('\0') && !command.ends_with('/');
        if !plain || command.contains('/') && !command.starts_with('/') {
            return Err(refuse("neither a name nor an absolute path".into()));
        }
        let found = match search.find(&command) {
            Ok(found) => found,
            Err(reason) if reason.contains("commands may write") => return Err(refuse(reason)),
            Err(_) if Path::new(&command).is_dir() => return Err(refuse("it is a directory".into())),
            Err(_) => return Ok(None),
        };
        let name = command.rsplit('/').next().unwrap_or(&command).to_owned();
        let many = helpers::is_many_in_one(&found.canonical) && command != found.canonical;
        let rustup = helpers::is_rustup(&found.canonical, found.identity, search);
        let tree = helpers::tree(&name, &found.canonical, rustup, &config.helpers, search)?;
        let named: Vec<&str> = config.helpers.get(&name).into_iter().flatten().map(String::as_str).collect();
        if let Some(reason) = helpers::many_in_chain(&found, &named) {
            return Err(refuse(reason));
        }
        let workspace_programs = config.workspace_programs.contains(&name);
        let alone = many && tree == Tree::default() && found.chain.len() <= 1;
        if many && (!alone || workspace_programs) {
            return Err(refuse(format!(
                "it is {0}, many programs in one: with helpers it could start all of them\n\
                 hint: leave its helpers out, or allow {0} itself",
                found.canonical
            )));
        }
        let by_name = many || rustup && name != "rustup";
        Ok(Some(Bound { checked, name, canonical: found.canonical, by_name, alone, tree, workspace_programs }))
    }
}

/// Names under `helpers` and `workspace_programs` that no rule has would do nothing.
fn check_names(config: &GuardConfig) -> Result<(), GuardError> {
    let names: BTreeSet<&str> =
        config.allowed_commands.iter().filter_map(|rule| rule.command.rsplit('/').next()).collect();
    for entry in &config.workspace_programs {
        if !names.contains(entry.as_str()) {
            let reason = "no entry of allowed_commands has this name".into();
            return Err(GuardError::Helper { table: "workspace_programs", entry: entry.clone(), reason });
        }
    }
    let helpers: BTreeSet<&str> =
        config.helpers.values().flatten().filter_map(|entry| entry.rsplit('/').next()).collect();
    for entry in config.helpers.keys() {
        if !names.contains(entry.as_str()) && !helpers.contains(entry.as_str()) {
            let reason = "no entry of allowed_commands, and no helper, has this name".into();
            return Err(GuardError::Helper { table: "helpers", entry: entry.clone(), reason });
        }
    }
    Ok(())
}

/// A directory that commands are to write, canonical.
fn directory(path: &Path, what: &'static str) -> Result<String, GuardError> {
    let refuse =
        |reason: &str| GuardError::Directory { what, path: path.display().to_string(), reason: reason.to_owned() };
    if !path.is_absolute() {
        return Err(refuse("it is relative\nhint: write it from `/` on"));
    }
    let real = std::fs::canonicalize(path).map_err(|e| refuse(&format!("{e}\nhint: create it first")))?;
    if !real.is_dir() {
        return Err(refuse("it is no directory"));
    }
    let Some(real) = real.to_str() else { return Err(refuse("it leads to a path that is not UTF-8")) };
    if real == "/" {
        return Err(refuse("it leads to `/`: everything would be writable"));
    }
    if let Some(own) = NEVER_WRITABLE.iter().find(|own| is_within(real, own) || is_within(own, real)) {
        return Err(refuse(&format!("{own} is the system's")));
    }
    Ok(real.to_owned())
}

/// Nothing that commands write lies in one of these, or around one.
const NEVER_WRITABLE: &[&str] =
    &["/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr"];

/// The absolute directories of a PATH that commands cannot write.
fn search(path: &str, frame: &Frame) -> Search {
    let mut search = Search { writable: frame.writable().cloned().collect(), ..Search::default() };
    for dir in path.split(':').filter(|dir| dir.starts_with('/')) {
        let real = std::fs::canonicalize(dir).ok();
        let writable = real
            .as_deref()
            .and_then(Path::to_str)
            .is_none_or(|real| search.writable.iter().any(|writable| is_within(real, writable)));
        if !writable && !search.directories.iter().any(|known| known == dir) {
            search.directories.push(dir.to_owned());
        }
    }
    search
}

/// A decision to run.
pub(super) struct Permit {
    pub found: Found,
    rule: usize,
}

impl Inner {
    /// Whether this host holds what every command will be held to.
    fn try_out(&self) -> Result<(), GuardError> {
        let executables = Executables(self.search.loaders());
        let denied = self.denied().map_err(|(path, reason)| GuardError::Blocked { path, reason })?;
        let none = BTreeSet::new();
        let call = Call {
            argv: vec!["/usr/bin/true".into()],
            workspace_programs: false,
            spawn: true,
            executables: &executables.0,
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

    /// The rules for the file that a command leads to.
    fn rules_for(&self, command: &str, canonical: &str) -> Vec<usize> {
        let called = command.rsplit('/').next().unwrap_or(command);
        let rules = self.by_path.get(canonical).into_iter().flatten().copied();
        let mut rules: Vec<usize> = rules.filter(|&i| !self.rules[i].by_name || self.rules[i].name == called).collect();
        // The rule of the same name first: helpers are its.
        rules.sort_by_key(|&i| self.rules[i].name != called);
        rules
    }

    fn decide(&self, command: &str, args: &[String]) -> Result<Permit, Refusal> {
        let named = || command.to_owned();
        if !self.config.enabled {
            return Err(Refusal::Disabled { command: named() });
        }
        if self.config.allowed_commands.is_empty() {
            let reason = "it is empty, which denies all".into();
            return Err(Refusal::NotAllowed { command: named(), reason });
        }
        if args.iter().any(|arg| arg.contains('\0')) {
            return Err(Refusal::NotFound { command: named(), reason: "an argument holds a NUL byte".into() });
        }
        let found = self.search.find(command).map_err(|reason| Refusal::NotFound { command: named(), reason })?;
        let rules = self.rules_for(command, &found.canonical);
        if rules.is_empty() {
            let reason = format!("no rule allows {}, which it leads to", found.canonical);
            return Err(Refusal::NotAllowed { command: named(), reason });
        }
        let needs = std::iter::once(&found.canonical).chain(found.chain.iter().map(|link| &link.path));
        if let Some(path) = needs.into_iter().find(|path| self.blocked.holds(path)) {
            return Err(Refusal::Blocked { command: named(), reason: format!("it takes {path}, which is blocked") });
        }
        let line = rules::line(args);
        match rules.iter().find(|&&i| self.rules[i].checked.allows(&line)) {
            Some(&rule) => Ok(Permit { found, rule }),
            None => {
                let patterns = rules.iter().filter_map(|&i| self.rules[i].checked.rule.args.as_deref());
                let rules = patterns.collect::<Vec<_>>().join(", ");
                Err(Refusal::Arguments { command: named(), rules, line })
            }
        }
    }

    /// Decides, tells of it, and runs.
    fn execute(&self, command: &str, args: &[String], cancel: Cancel) -> Result<ExecutionResult, Refusal> {
        let decided = self.decide(command, args);
        let (rule, executable) = match &decided {
            Ok(permit) => (Some(self.rules[permit.rule].checked.rule.command.clone()), Some(&permit.found.canonical)),
            Err(_) => (None, None),
        };
        match &decided {
            Ok(_) => tracing::info!(command, ?args, ?rule, ?executable, "allowed"),
            Err(refusal) => tracing::warn!(command, ?args, %refusal, "refused"),
        }
        let event = Event::Decided {
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
            let helpers = helpers::opened(&rule.tree, &self.search)
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
        let call = Call {
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
            executables.push(crate::executables::Executable { path, identity: None });
        }
        let setup = |failure| Refusal::Setup { command: named(), failure };
        policy.validate().map_err(|e| Refusal::Lost { command: named(), reason: e.to_string() })?;
        let prepared = self.engine.prepare_limited(&policy, Executables(executables)).map_err(setup)?;
        let kept = Together::new(self.config.max_output_bytes);
        let outcome = prepared.run(Io { output: kept.output(), cancel, ..Io::default() });
        let result = self.result(command, &outcome, &kept);
        self.ended(command, &outcome, &result);
        result
    }

    /// The path that is executed, and a directory that has to be shown for it. That is the path by which the program was
    /// found, whose name it sees; the file's own where the sandbox does not show the other.
    fn program<'p>(&self, command: &str, permit: &'p Permit) -> Result<(&'p str, Option<&'p str>), Refusal> {
        let Found { called, canonical, .. } = &permit.found;
        if called == canonical || !self.frame.is_hidden(&self.config, called) {
            return Ok((called, None));
        }
        if !self.rules[permit.rule].by_name {
            return Ok((canonical, None));
        }
        let dir = self.frame.directory_of(called).ok_or_else(|| {
            let reason = format!("{called} cannot be shown to the sandbox, and {canonical} goes by its name");
            Refusal::NotFound { command: command.to_owned(), reason }
        })?;
        Ok((called, Some(dir)))
    }

    fn result(&self, command: &str, outcome: &Outcome, kept: &Together) -> Result<ExecutionResult, Refusal> {
        let command = command.to_owned();
        let exit_code = match (outcome.outcome, &outcome.error) {
            (Ending::Exited, _) => outcome.exit_code.unwrap_or(-1),
            (Ending::Signalled, _) => 128 + outcome.signal.unwrap_or(0),
            (Ending::TimedOut, _) => {
                return Err(Refusal::Timeout { command, limit_secs: self.config.max_execution_time_secs });
            }
            (Ending::LimitExceeded, _) if outcome.limit.is_some() => {
                return Err(Refusal::Limit {
                    command,
                    limit: outcome.limit.unwrap_or(cofferdam_policy::Field::Memory),
                });
            }
            (Ending::SetupFailed, Some(failure)) => return Err(Refusal::Setup { command, failure: failure.clone() }),
            (ending, _) => return Err(Refusal::Lost { command, reason: format!("it ended as {ending:?}") }),
        };
        let (stdout, stderr, truncated) = kept.take();
        let cut = outcome.truncated.stdout || outcome.truncated.stderr;
        Ok(ExecutionResult {
            stdout,
            stderr,
            exit_code,
            duration_ms: outcome.execution_time_ms.round() as u64,
            truncated: truncated || cut,
        })
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
            Event::Ended { command: command.to_owned(), run_id: outcome.run_id.clone(), exit_code, duration_ms };
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
    /// A guard over this workspace: the directory that commands start in and may write.
    ///
    /// # Errors
    /// See [`GuardBuilder::build`].
    pub fn new(config: GuardConfig, workspace: impl Into<PathBuf>) -> Result<Guard, GuardError> {
        Guard::builder(config, workspace).build()
    }

    /// The same, with a recorder or variables of its own.
    pub fn builder(config: GuardConfig, workspace: impl Into<PathBuf>) -> GuardBuilder {
        GuardBuilder { config, workspace: workspace.into(), variables: None, recorder: None }
    }

    /// Allowed commands that there was no program for when the guard was made. They are refused.
    pub fn not_installed(&self) -> &[String] {
        &self.0.inert
    }

    /// Whether a command would be executed with these arguments.
    ///
    /// # Errors
    /// It would not: why.
    pub fn check(&self, command: &str, args: &[&str]) -> Result<(), Refusal> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.0.decide(command, &args).map(drop)
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
        self.0.decide(command, args)
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

impl Sandbox for Guard {
    fn execute<'a>(&'a self, command: &'a str, args: &'a [&'a str]) -> Execution<'a> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (inner, name) = (Arc::clone(&self.0), command.to_owned());
        let cancel = Cancel::default();
        let theirs = cancel.clone();
        let work = move || Ok(inner.execute(&name, &args, theirs));
        let task = Task::new(move || Handle::start(cancel, Monitor::default(), work));
        Box::pin(async move {
            task.await.unwrap_or_else(|reason| Err(Refusal::Lost { command: command.to_owned(), reason }))
        })
    }

    fn is_allowed(&self, command: &str) -> bool {
        let inner = &self.0;
        inner.config.enabled
            && inner.commands.get(command, || {
                let found = inner.search.identify(command);
                found.is_ok_and(|(canonical, _)| {
                    !inner.rules_for(command, &canonical).is_empty() && !inner.blocked.holds(&canonical)
                })
            })
    }

    fn path_allowed(&self, path: &str) -> bool {
        let inner = &self.0;
        if path.is_empty() || path.contains('\0') {
            return false;
        }
        inner.paths.get(path, || {
            let path = Path::new(&inner.frame.workspace).join(path);
            !inner.blocked.covering(&path, &inner.identities())
        })
    }
}
