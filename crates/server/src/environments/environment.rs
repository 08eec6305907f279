//! One environment that the server offers: its definition, and what is prepared of it on first use.
//!
//! ```text
//! Environment ─ build (flakes, once) ─ compile (profiles) ─ apply settings ─▶ Policy ─ prepare ─▶ PreparedEnvironment
//! ```

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use cofferdam_config::environments::discover::HostTree;
use cofferdam_config::environments::nix::{Building, NixBuilder, cache_directory};
use cofferdam_config::environments::{
    self, BackendWord, Builders, CodeInput, CodeSlot, CodeSource, Environment, EnvironmentKind, EnvironmentSpec,
    LONGEST_ARGUMENT, Project, SessionAgent, Surroundings, WORKSPACE, spec,
};
use cofferdam_engine::audit::Trail;
use cofferdam_engine::audited_run::RunDetails;
use cofferdam_engine::backends::capabilities;
use cofferdam_engine::session::{Agent, SessionStart};
use cofferdam_engine::{Cancel, Engine, FailedStep, Failure, Outcome, Prepared};
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{FileIdentity, Mount, Policy, Root};
use cofferdam_profiles::cache::EvaluationCache;
use cofferdam_profiles::helper::{self, DIRECTORY_VARIABLE};
use cofferdam_profiles::protocol::{Encoding, OutputFormat, RequestedOutput};
use cofferdam_profiles::{CompileRequest, Compiler};

use super::fixed_places::{ABSENT, FixedPlaces, hold, identity};
use super::warm_pool::WarmPool;

/// The directory of [`WORKSPACE`] whose files are returned to the client.
pub(crate) const OUTPUT: &str = "output";

/// Staged sandboxes that the engine keeps for each environment in use.
const STAGED: usize = 1;

/// What environments are prepared with: the host's side of each.
#[derive(Debug)]
pub(crate) struct EnvironmentHost {
    /// The process's variables, directories and user.
    pub around: Surroundings,
    /// The engine.
    pub engine: Arc<Engine>,
    /// Whether interpreters are started before their calls.
    pub prestart: bool,
    /// The audit trail that runs and sessions are recorded in, if any.
    pub trail: Option<Trail>,
    /// What configured paths led to at first.
    pub places: FixedPlaces,
}

impl EnvironmentHost {
    fn variable(&self, name: &str) -> Option<&str> {
        self.around.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The builder of flake references.
    pub(crate) fn builder(&self) -> NixBuilder {
        let (path, home) = (self.variable("PATH"), self.around.home());
        NixBuilder::new(path, home, cache_directory(self.variable("XDG_CACHE_HOME"), home))
    }

    /// The policy that a profile compiles to.
    fn compiled(&self, file: &std::path::Path) -> Result<Policy, Failure> {
        let own = std::env::current_exe().ok();
        let evaluator = helper::find(self.variable(DIRECTORY_VARIABLE).map(std::path::Path::new), own.as_deref());
        let home = self.around.home().map(std::path::Path::new);
        let cache = EvaluationCache::default_directory(self.variable("XDG_CACHE_HOME"), home).map(EvaluationCache::at);
        let request = CompileRequest {
            file: file.to_owned(),
            overrides: Vec::new(),
            outputs: vec![RequestedOutput { format: OutputFormat::Policy, encoding: Encoding::Json }],
            imports: Vec::new(),
        };
        let mut compiled = Compiler::new(&self.engine, evaluator).cache(cache).compile(&request).map_err(|error| {
            Failure { code: 125, step: FailedStep::caller("profile"), message: error.message, hint: error.hint }
        })?;
        let json = compiled.outputs.remove(0).map_err(|why| failure(FailedStep::caller("profile"), &why))?;
        Policy::decode(json.as_bytes()).map_err(|errors| failure(FailedStep::caller("profile"), &errors.to_string()))
    }
}

/// A failure of a step. In `text`, the hint follows `hint:`.
pub(crate) fn failure(step: FailedStep, text: &str) -> Failure {
    let (message, hint) = match text.split_once("\nhint: ") {
        Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
        None => (text.to_owned(), None),
    };
    Failure { code: 125, step, message, hint }
}

/// The failure with its hint, as text.
fn in_words(failure: Failure) -> String {
    failure.message + &failure.hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default()
}

/// An environment prepared to run code.
#[derive(Debug)]
pub(crate) struct PreparedEnvironment {
    /// The policy, without the code.
    pub policy: Policy,
    /// That policy, prepared by the engine.
    pub prepared: Prepared,
    /// How code is passed to the interpreter.
    pub entry: CodeSlot,
    /// Interpreters started before their calls, where that is possible.
    pub warm_pool: Option<WarmPool>,
}

impl PreparedEnvironment {
    /// Whether files of the output directory are returned.
    pub(crate) fn hands_back(&self) -> bool {
        self.prepared.can_hand_back() && works_in_workspace(&self.policy)
    }
}

/// Whether the policy mounts the tmpfs that files are returned from.
fn works_in_workspace(policy: &Policy) -> bool {
    policy.filesystem.mounts.iter().any(|mount| matches!(mount, Mount::Tmpfs { target, .. } if target == WORKSPACE))
}

/// A cached value, and the host state that it depends on.
#[derive(Debug)]
struct Cached<T> {
    value: Arc<T>,
    /// The files at the sources of its mounts that were canonical paths.
    sources: BTreeMap<String, FileIdentity>,
    /// Descriptors of them, so that no other file gets their numbers; `None` where one was replaced before it was held.
    held: Option<Vec<OwnedFd>>,
    /// The project whose development shell it contains, and the key of that shell's inputs.
    shell: Option<(String, Option<String>)>,
}

/// The project whose development shell is used, and the present key of that shell's inputs.
fn shell_of(project: Option<&Project>) -> Option<(String, Option<String>)> {
    let project = project.filter(|project| project.use_flake)?;
    Some((project.path.clone(), environments::nix::shell_key(&project.path)))
}

impl<T> Cached<T> {
    /// `shell` is the result of [`shell_of`] before the value was built.
    fn new(value: T, policy: &Policy, shell: Option<(String, Option<String>)>) -> Cached<T> {
        let mounted = |path: &str| policy.filesystem.mounts.iter().any(|mount| mount.source() == Some(path));
        let mut sources = policy.filesystem.identities.clone();
        sources.retain(|path, _| mounted(path));
        let there = sources.iter().filter(|(_, known)| **known != ABSENT);
        let held = there.map(|(path, known)| hold(path, *known)).collect();
        Cached { value: Arc::new(value), sources, held, shell }
    }

    /// Whether each source is still the file that was checked. Code that can write to a directory above a source may have
    /// replaced it by a link or another directory, which has to be checked anew. A changed flake is built anew as well.
    fn is_current(&self) -> bool {
        self.held.is_some()
            && self.sources.iter().all(|(path, known)| identity(path).unwrap_or(ABSENT) == *known)
            && self.shell.as_ref().is_none_or(|(project, known)| environments::nix::shell_key(project) == *known)
    }
}

type CacheSlot<T> = Mutex<Option<Cached<T>>>;

/// The value in the slot, built by the first caller. `None` if this call was cancelled while another one built it.
fn get_or_build<T>(
    slot: &CacheSlot<T>,
    cancel: &Cancel,
    build: impl FnOnce() -> Result<Cached<T>, Failure>,
) -> Result<Option<Arc<T>>, Failure> {
    let mut slot = loop {
        match slot.try_lock() {
            Ok(slot) => break slot,
            Err(TryLockError::Poisoned(poisoned)) => break PoisonError::into_inner(poisoned),
            // Another call builds it, which may take minutes. This call may be cancelled meanwhile.
            Err(TryLockError::WouldBlock) if cancel.is_cancelled() => return Ok(None),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if let Some(cached) = slot.as_ref().filter(|cached| cached.is_current()) {
        return Ok(Some(Arc::clone(&cached.value)));
    }
    let cached = build()?;
    let value = Arc::clone(&cached.value);
    *slot = Some(cached);
    Ok(Some(value))
}

/// Sets the policy's command to the interpreter of a session, and returns the agent that it runs.
fn agent(
    environment: &Environment,
    spec: &EnvironmentSpec,
    policy: &mut Policy,
    host: &EnvironmentHost,
) -> Result<Agent, Failure> {
    let stateless = |why: &str| {
        let message = format!("the environment `{}` keeps no state between calls: {why}", environment.name);
        failure(FailedStep::Session, &format!("{message}\nhint: leave `session` out"))
    };
    if let EnvironmentKind::Artifact(artifact) = &environment.kind {
        let program = artifact.session_program.as_deref().ok_or_else(|| stateless("it has no bin/session-run"))?;
        let program =
            program.to_str().ok_or_else(|| stateless("the path of its bin/session-run is not valid UTF-8"))?;
        policy.command.argv = vec![program.to_owned()];
        return Ok(match artifact.metadata.session_agent {
            Some(SessionAgent::Python) => Agent::Python,
            Some(SessionAgent::Bash) => Agent::Shell,
            Some(SessionAgent::Node) => Agent::Node,
            None => Agent::Foreign,
        });
    }
    if let EnvironmentKind::Image { .. } = &environment.kind {
        return Err(stateless("it runs in an image, and its interpreter anew for each call"));
    }
    match &spec.code_input {
        CodeInput::Preset(name) => {
            let around = spec.surroundings(host.around.around());
            environments::preset(policy, around, &HostTree, name, CodeSource::Interactive, &[])
                .map_err(|error| failure(FailedStep::caller("environment"), &error.to_string()))?;
        }
        CodeInput::Words { argv, .. } => policy.command.argv.clone_from(argv),
        CodeInput::Program(_) | CodeInput::Own | CodeInput::Image(_) => {}
    }
    let argv = &mut policy.command.argv;
    // Drop the options that make it run an argument or its standard input: the agent has its own.
    while argv.len() > 1 && argv.last().is_some_and(|last| matches!(last.as_str(), "-c" | "-e" | "-s" | "-" | "--")) {
        argv.pop();
    }
    let name = argv.first().map_or("", |program| program.rsplit('/').next().unwrap_or(program));
    match name {
        name if name.starts_with("python") => Ok(Agent::Python),
        name if name.starts_with("node") => Ok(Agent::Node),
        "bash" => Ok(Agent::Shell),
        name => Err(stateless(&format!("`{name}` is none of python, node and bash"))),
    }
}

/// An environment that the server offers, and what is prepared of it.
#[derive(Debug)]
pub(crate) struct ServedEnvironment {
    environment: Environment,
    project: Option<Project>,
    /// For code of usual length, and for code that is too long for an argument.
    prepared: [CacheSlot<PreparedEnvironment>; 2],
    /// What its sessions start from.
    session: CacheSlot<SessionStart>,
}

impl ServedEnvironment {
    /// An environment of which nothing is prepared yet.
    pub(crate) fn new(environment: Environment, project: Option<Project>) -> ServedEnvironment {
        ServedEnvironment { environment, project, prepared: Default::default(), session: Mutex::default() }
    }

    /// Whether this is the environment of that definition.
    pub(crate) fn is_defined_as(&self, environment: &Environment, project: Option<&Project>) -> bool {
        self.environment == *environment && self.project.as_ref() == project
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.environment.name
    }

    /// The facts that audit records of its runs have.
    pub(crate) fn about(&self) -> RunDetails {
        let mut about = RunDetails::default();
        about.facts.insert("environment".into(), self.name().into());
        about
    }

    /// Its description, if the definition has one.
    pub(crate) fn description(&self) -> Option<&str> {
        self.environment.description()
    }

    /// The kind of its definition.
    pub(crate) fn kind(&self) -> &'static str {
        self.environment.kind.word()
    }

    /// Whether its definition alone rules out sessions and returned files, because it runs in an image or a container.
    pub(crate) fn is_stateless(&self) -> bool {
        let contained = matches!(self.environment.overrides.backend, Some(BackendWord::Ours(b)) if b.is_container());
        contained || matches!(self.environment.kind, EnvironmentKind::Image { .. })
    }

    /// Why it is unavailable by its definition; `None` if it is available.
    pub(crate) fn unavailable(&self) -> Option<String> {
        self.environment.unavailable()
    }

    /// Why a call would be refused now, as far as that is known without building or evaluating anything.
    pub(crate) fn refusal(&self, host: &EnvironmentHost) -> Option<String> {
        if let Some(reason) = self.unavailable() {
            return Some(reason);
        }
        if let Err(failure) = host.places.check(&self.environment, self.project.as_ref()) {
            return Some(in_words(failure));
        }
        let shell = self.project.as_ref().filter(|project| project.use_flake);
        let unable = shell.and_then(|project| host.builder().describes(&project.path).err());
        if unable.is_some() {
            return unable.map(|unable| unable.to_string());
        }
        let is_profile = matches!(self.environment.kind, EnvironmentKind::Profile { .. });
        if shell.is_some() || is_profile || self.environment.is_built() {
            return None;
        }
        let prepared =
            self.run_policy(host, false, &|_| {}).and_then(|(policy, _)| host.engine.prepare(&policy).map(drop));
        prepared.err().map(|failure| in_words(self.with_definition_hint(failure)))
    }

    /// Rewrites the failure's hint in terms of the definition, since clients of the server have no command-line options.
    pub(crate) fn with_definition_hint(&self, mut failure: Failure) -> Failure {
        failure.hint =
            failure.hint.map(|hint| environments::in_definition(&self.environment, failure.step.as_str(), &hint));
        failure
    }

    /// What code of it lacked, and the key of the configuration that gives it.
    pub(crate) fn hints(&self, policy: &Policy, outcome: &Outcome) -> Vec<String> {
        environments::hints(&self.environment, self.project.as_ref(), policy, outcome)
    }

    /// The environment prepared for code of `bytes` bytes. The first caller prepares it for all; `on_step` gets a description of
    /// each slow step. `None` if the call was cancelled meanwhile.
    ///
    /// # Errors
    /// It cannot be used. The next call tries again.
    pub(crate) fn prepared(
        &self,
        host: &EnvironmentHost,
        bytes: usize,
        cancel: &Cancel,
        on_step: &dyn Fn(&str),
    ) -> Result<Option<Arc<PreparedEnvironment>>, Failure> {
        host.places.check(&self.environment, self.project.as_ref())?;
        let Some(short) = self.slot(host, false, cancel, on_step)? else { return Ok(None) };
        if bytes > LONGEST_ARGUMENT && matches!(short.entry, CodeSlot::Argument { .. }) {
            return self.slot(host, true, cancel, on_step);
        }
        Ok(Some(short))
    }

    fn slot(
        &self,
        host: &EnvironmentHost,
        long: bool,
        cancel: &Cancel,
        on_step: &dyn Fn(&str),
    ) -> Result<Option<Arc<PreparedEnvironment>>, Failure> {
        get_or_build(&self.prepared[usize::from(long)], cancel, || {
            let shell = shell_of(self.project.as_ref());
            let prepared = self.prepare(host, long, on_step)?;
            let policy = prepared.policy.clone();
            Ok(Cached::new(prepared, &policy, shell))
        })
    }

    /// What a session starts from. `None` if the call was cancelled meanwhile.
    ///
    /// # Errors
    /// The environment cannot be used, or has no sessions.
    pub(crate) fn session(
        &self,
        host: &EnvironmentHost,
        cancel: &Cancel,
        on_step: &dyn Fn(&str),
    ) -> Result<Option<Arc<SessionStart>>, Failure> {
        host.places.check(&self.environment, self.project.as_ref())?;
        get_or_build(&self.session, cancel, || {
            let shell = shell_of(self.project.as_ref());
            let (environment, spec, mut policy) = self.configured_policy(host, on_step)?;
            let agent = agent(&environment, &spec, &mut policy, host)?;
            policy
                .validate()
                .map_err(|errors| failure(FailedStep::caller("policy"), &format!("the policy is refused: {errors}")))?;
            host.places.pin(&mut policy, self.project.as_ref())?;
            let has_workspace = works_in_workspace(&policy);
            let hands_over = has_workspace.then(|| (WORKSPACE.to_owned(), OUTPUT.to_owned()));
            let recorded = host.trail.clone().map(|trail| (trail, self.about()));
            let checked = policy.clone();
            Ok(Cached::new(SessionStart { policy, agent, hands_over, recorded }, &checked, shell))
        })
    }

    /// The environment as it was built, its settings, and the policy with them applied, without a command.
    fn configured_policy(
        &self,
        host: &EnvironmentHost,
        on_step: &dyn Fn(&str),
    ) -> Result<(Environment, EnvironmentSpec, Policy), Failure> {
        let name = self.name();
        let on_build = |reference: &str| {
            tracing::info!("building the environment {name} from {reference}, once");
            on_step(&format!("building the environment {name}, once"));
        };
        let environment = self.environment.clone();
        let homes = &host.around.homes;
        let builders = Builders { nix: &host.builder(), engine: Some(&host.engine) };
        let (environment, built) =
            environments::build_environment(environment, builders, &host.around, Building::WhenNeeded, on_build)
                .map_err(|error| failure(FailedStep::caller("environment"), &error.to_string()))?;
        let spec = self.spec(&environment, built)?;
        let base = match &environment.kind {
            EnvironmentKind::Profile { file, .. } => host.compiled(file)?,
            _ => environments::eval_base(false, homes),
        };
        let variable = |name: &str| host.around.variables.get(name).cloned();
        let mut policy = base;
        let project = self.project.clone();
        let on_build = |path: &str| {
            tracing::info!("building the development shell of {path}, once");
            on_step("building the development shell of the project, once");
        };
        let project =
            environments::build_project_shell(project, &host.builder(), &host.around, Building::WhenNeeded, on_build)
                .map_err(|error| failure(FailedStep::caller("environment"), &error.to_string()))?;
        environments::apply(&mut policy, &spec, project.as_ref(), homes, variable);
        if matches!(environment.kind, EnvironmentKind::Profile { .. }) {
            add_workspace(&mut policy);
        }
        Ok((environment, spec, policy))
    }

    /// The policy of its runs, and how code is passed to them.
    fn run_policy(
        &self,
        host: &EnvironmentHost,
        long: bool,
        on_step: &dyn Fn(&str),
    ) -> Result<(Policy, CodeSlot), Failure> {
        let (_, spec, mut policy) = self.configured_policy(host, on_step)?;
        let entry = spec
            .open(&mut policy, host.around.around(), &HostTree, long)
            .map_err(|error| failure(FailedStep::caller("environment"), &error))?;
        policy
            .validate()
            .map_err(|errors| failure(FailedStep::caller("policy"), &format!("the policy is refused: {errors}")))?;
        host.places.pin(&mut policy, self.project.as_ref())?;
        Ok((policy, entry))
    }

    fn prepare(
        &self,
        host: &EnvironmentHost,
        long: bool,
        on_step: &dyn Fn(&str),
    ) -> Result<PreparedEnvironment, Failure> {
        let name = self.name();
        let (policy, entry) = self.run_policy(host, long, on_step)?;
        let prepared = host.engine.prepare(&policy)?.hands_back(WORKSPACE, OUTPUT).keep_ready(STAGED);
        tracing::debug!("the environment {name} is ready, by the {} backend", prepared.backend());
        let can_prestart = host.prestart && prepared.can_hand_back();
        let warm_pool =
            can_prestart.then(|| WarmPool::new(&host.engine, &policy, &entry, (WORKSPACE, OUTPUT))).flatten();
        Ok(PreparedEnvironment { policy, prepared, entry, warm_pool })
    }

    fn spec(&self, environment: &Environment, built: Option<PathBuf>) -> Result<EnvironmentSpec, Failure> {
        let mut spec = spec(environment, built.as_deref()).map_err(|reason| {
            failure(
                FailedStep::caller("environment"),
                &format!("the environment `{}` is not available: {reason}", self.name()),
            )
        })?;
        // An agent's code always has a workspace, from which its files are returned.
        spec.workspace |= matches!(spec.code_input, CodeInput::Preset(_));
        Ok(spec)
    }
}

/// Adds the workspace to a profile's policy that mounts nothing there, in addition to its own working directory and home. A root
/// directory or image would need to contain the mount point, and containers return no files.
fn add_workspace(policy: &mut Policy) {
    let overlaps = |mount: &Mount| is_within(WORKSPACE, mount.target()) || is_within(mount.target(), WORKSPACE);
    let own_tree = !matches!(policy.filesystem.root, Root::Host | Root::Minimal | Root::Interpreter);
    let returns_files = capabilities(policy.backend).hands_back;
    if returns_files && !own_tree && !policy.filesystem.mounts.iter().any(overlaps) {
        let size_mb = policy.limits.tmpfs_mb;
        policy.filesystem.mounts.push(Mount::Tmpfs { target: WORKSPACE.into(), size_mb, exec: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_policy::Access;

    #[test]
    fn replaced_source_invalidates_and_changed_content_does_not() {
        let root = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(root.path()).unwrap();
        let venv = root.join("venv");
        std::fs::create_dir(&venv).unwrap();
        let mut policy = environments::eval_base(false, &[]);
        let source = venv.to_str().unwrap().to_owned();
        policy.filesystem.mounts =
            vec![Mount::Bind { target: source.clone(), source, access: Access::ReadOnly, exec: true, optional: false }];
        FixedPlaces::default().pin(&mut policy, None).unwrap();
        assert_eq!(policy.filesystem.identities.len(), 1, "the mounts are pinned to the checked files");
        let cached = Cached::new((), &policy, None);
        std::fs::write(venv.join("file"), "").unwrap();
        assert!(cached.is_current(), "the control: the same directory");
        std::fs::rename(&venv, root.join("old")).unwrap();
        std::fs::create_dir(&venv).unwrap();
        assert!(!cached.is_current(), "another directory");
        std::fs::remove_dir(&venv).unwrap();
        std::os::unix::fs::symlink(root.join("old"), &venv).unwrap();
        assert!(!cached.is_current(), "a link to the same directory");
        std::fs::remove_file(&venv).unwrap();
        std::fs::rename(root.join("old"), &venv).unwrap();
        assert!(cached.is_current(), "the control: it is back");
    }
}
