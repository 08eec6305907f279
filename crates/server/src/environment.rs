//! One environment as the server holds it: its definition, and what was prepared of it when it was first used.
//!
//! ```text
//! Environment ─ build (flakes, once) ─ compile (profiles) ─ dress ─ open ─▶ Policy ─ prepare ─▶ Ready, for every call
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use cofferdam_config::environments::discover::HostTree;
use cofferdam_config::environments::nix::{Builder, Building, cache_directory};
use cofferdam_config::environments::{
    self, BackendWord, Code, Entry, Environment, Kind, LONGEST_ARGUMENT, Passing, Project, Recipe, SessionAgent,
    Surroundings, WORKSPACE, recipe,
};
use cofferdam_engine::audit::Trail;
use cofferdam_engine::audited_run::About;
use cofferdam_engine::session::{Agent, Start};
use cofferdam_engine::{Cancel, Engine, Failure, Prepared};
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Backend, FileIdentity, Mount, Policy, Root};
use cofferdam_profiles::cache::Cache;
use cofferdam_profiles::helper::{self, DIRECTORY_VARIABLE};
use cofferdam_profiles::protocol::{Encoding, Format, Wanted};
use cofferdam_profiles::{Ask, Compiler};

use crate::early::Waiting;

/// The directory of [`WORKSPACE`] whose files come back.
pub const OUTPUT: &str = "output";

/// Sandboxes that are kept staged for each environment that is in use.
const STAGED: usize = 1;

/// What every environment depends on.
#[derive(Debug)]
pub struct Host {
    /// What the process has around it.
    pub around: Surroundings,
    /// The engine.
    pub engine: Arc<Engine>,
    /// Whether interpreters are started before the calls that they are for.
    pub early: bool,
    /// Where runs and sessions are recorded, if they are.
    pub trail: Option<Trail>,
}

impl Host {
    fn variable(&self, name: &str) -> Option<&str> {
        self.around.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// What builds flake references.
    pub fn builder(&self) -> Builder {
        Builder::new(self.variable("PATH"), cache_directory(self.variable("XDG_CACHE_HOME"), self.around.home()))
    }

    /// The policy that a profile compiles to.
    fn compiled(&self, file: &std::path::Path) -> Result<Policy, Failure> {
        let own = std::env::current_exe().ok();
        let evaluator = helper::find(self.variable(DIRECTORY_VARIABLE).map(std::path::Path::new), own.as_deref());
        let home = self.around.home().map(std::path::Path::new);
        let cache = Cache::default_directory(self.variable("XDG_CACHE_HOME"), home).map(Cache::at);
        let ask = Ask {
            file: file.to_owned(),
            overrides: Vec::new(),
            outputs: vec![Wanted { format: Format::Policy, encoding: Encoding::Json }],
            imports: Vec::new(),
        };
        let mut compiled = Compiler::new(&self.engine, evaluator)
            .cache(cache)
            .compile(&ask)
            .map_err(|error| Failure { code: 125, step: "profile".into(), message: error.message, hint: error.hint })?;
        let json = compiled.outputs.remove(0).map_err(|why| unusable("profile", &why))?;
        Policy::decode(json.as_bytes()).map_err(|errors| unusable("profile", &errors.to_string()))
    }
}

/// A failure of a step; what follows `hint:` in the text is the hint.
pub fn unusable(step: &str, told: &str) -> Failure {
    let (message, hint) = match told.split_once("\nhint: ") {
        Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
        None => (told.to_owned(), None),
    };
    Failure { code: 125, step: step.into(), message, hint }
}

/// An environment that is ready to run code.
#[derive(Debug)]
pub struct Ready {
    /// The policy, without the code.
    pub policy: Policy,
    /// The same, prepared.
    pub prepared: Prepared,
    /// How code goes in.
    pub entry: Entry,
    /// The same started early, where that can be.
    pub early: Option<Waiting>,
}

impl Ready {
    /// Whether each run gives its arguments itself. Other people's programs take none but those of a policy.
    pub fn takes_arguments(&self) -> bool {
        matches!(self.prepared.backend(), "jail" | "landlock")
    }

    /// Whether files come back.
    pub fn hands_back(&self) -> bool {
        self.prepared.can_hand_back() && works_in_workspace(&self.policy)
    }
}

/// Whether there is the tmpfs that files come back from.
fn works_in_workspace(policy: &Policy) -> bool {
    policy.filesystem.mounts.iter().any(|mount| matches!(mount, Mount::Tmpfs { target, .. } if target == WORKSPACE))
}

/// What was prepared of an environment once, with the sources of its mounts that were canonical paths then.
#[derive(Debug)]
struct Made<T> {
    it: Arc<T>,
    sources: BTreeMap<String, FileIdentity>,
    /// The project whose development shell is in it, and what that was built of.
    shell: Option<(String, Option<String>)>,
}

/// A project whose development shell is used, and what that is built of now.
fn shell_of(project: Option<&Project>) -> Option<(String, Option<String>)> {
    let project = project.filter(|project| project.use_flake)?;
    Some((project.path.clone(), environments::nix::shell_key(&project.path)))
}

/// The file at a canonical path; `None` where the path is not canonical, or nothing is there.
fn identity(path: &str) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;
    let about = std::fs::canonicalize(path).ok().filter(|real| real.as_os_str() == path)?.symlink_metadata().ok()?;
    Some(FileIdentity { device: about.dev(), inode: about.ino() })
}

/// Has the policy mount the files that are at its sources now, and no others that come into their place.
fn identify(policy: &mut Policy) {
    let sources = policy.filesystem.mounts.iter().filter_map(|mount| match mount {
        Mount::Bind { source, .. } => Some((source.clone(), identity(source)?)),
        Mount::Tmpfs { .. } => None,
    });
    policy.filesystem.identities = sources.collect();
}

impl<T> Made<T> {
    /// `shell` is what [`shell_of`] said before it was made.
    fn new(it: T, policy: &Policy, shell: Option<(String, Option<String>)>) -> Made<T> {
        Made { it: Arc::new(it), sources: policy.filesystem.identities.clone(), shell }
    }

    /// Whether each source is still what was judged: code that could write a directory above one may have put a link, or
    /// another directory, in its place since, and that is judged anew. A flake that was changed is built anew as well.
    fn is_current(&self) -> bool {
        self.sources.iter().all(|(path, known)| identity(path).as_ref() == Some(known))
            && self.shell.as_ref().is_none_or(|(project, known)| environments::nix::shell_key(project) == *known)
    }
}

type Slot<T> = Mutex<Option<Made<T>>>;

/// What is in the slot, made by whoever comes first. `None` when the call was cancelled while another made it.
fn once<T>(
    slot: &Slot<T>,
    cancel: &Cancel,
    make: impl FnOnce() -> Result<Made<T>, Failure>,
) -> Result<Option<Arc<T>>, Failure> {
    let mut slot = loop {
        match slot.try_lock() {
            Ok(slot) => break slot,
            Err(TryLockError::Poisoned(poisoned)) => break PoisonError::into_inner(poisoned),
            // Somebody builds it: that may take minutes, and this call may be cancelled meanwhile.
            Err(TryLockError::WouldBlock) if cancel.is_cancelled() => return Ok(None),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if let Some(made) = slot.as_ref().filter(|made| made.is_current()) {
        return Ok(Some(Arc::clone(&made.it)));
    }
    let made = make()?;
    let it = Arc::clone(&made.it);
    *slot = Some(made);
    Ok(Some(it))
}

/// Makes the policy's command the interpreter of a session, and says what it speaks.
fn agent(environment: &Environment, recipe: &Recipe, policy: &mut Policy, host: &Host) -> Result<Agent, Failure> {
    let stateless = |why: &str| {
        let told = format!("the environment `{}` keeps no state between calls: {why}", environment.name);
        unusable("session", &format!("{told}\nhint: leave `session` out"))
    };
    if let Kind::Artifact(artifact) = &environment.kind {
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
    if let Kind::Image { .. } = &environment.kind {
        return Err(stateless("it runs in an image, and its interpreter anew for each call"));
    }
    match &recipe.passing {
        Passing::Preset(name) => {
            environments::preset(policy, host.around.around(), &HostTree, name, Code::Interactive, &[])
                .map_err(|error| unusable("environment", &error.to_string()))?;
        }
        Passing::Words { argv, .. } => policy.command.argv.clone_from(argv),
        Passing::Program(_) | Passing::Own | Passing::Image(_) => {}
    }
    let argv = &mut policy.command.argv;
    // What makes it run one argument or its standard input: the agent brings its own.
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

/// An environment, and what was prepared of it.
#[derive(Debug)]
pub struct Place {
    environment: Environment,
    project: Option<Project>,
    /// For code of usual length, and for code that is too long for an argument.
    ready: [Slot<Ready>; 2],
    /// What its sessions begin with.
    session: Slot<Start>,
}

impl Place {
    /// One of which nothing is prepared.
    pub fn new(environment: Environment, project: Option<Project>) -> Place {
        Place { environment, project, ready: Default::default(), session: Mutex::default() }
    }

    /// Whether this is the environment of that definition.
    pub fn is(&self, environment: &Environment, project: Option<&Project>) -> bool {
        self.environment == *environment && self.project.as_ref() == project
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.environment.name
    }

    /// What the audit trail says of what runs in it.
    pub fn about(&self) -> About {
        let mut about = About::default();
        about.facts.insert("environment".into(), self.name().into());
        about
    }

    /// What it is for.
    pub fn description(&self) -> Option<&str> {
        self.environment.description()
    }

    /// The kind of its definition.
    pub fn kind(&self) -> &'static str {
        self.environment.kind.word()
    }

    /// Whether its definition says already that it keeps no session and hands no files back: it runs in an image, or in a
    /// container.
    pub fn keeps_nothing(&self) -> bool {
        let contained = matches!(self.environment.overrides.backend, Some(BackendWord::Ours(b)) if b.is_container());
        contained || matches!(self.environment.kind, Kind::Image { .. })
    }

    /// Why its definition says that it cannot be used.
    pub fn unavailable(&self) -> Option<String> {
        self.environment.unavailable()
    }

    /// Why a call would be refused here and now, as far as that is known without building or evaluating anything.
    pub fn refusal(&self, host: &Host) -> Option<String> {
        if let Some(reason) = self.unavailable() {
            return Some(reason);
        }
        let shell = self.project.as_ref().filter(|project| project.use_flake);
        let unable = shell.and_then(|project| host.builder().describes(&project.path).err());
        if unable.is_some() {
            return unable.map(|unable| unable.to_string());
        }
        if shell.is_some()
            || matches!(self.environment.kind, Kind::Profile { .. } | Kind::Reference(_) | Kind::Flake { .. })
        {
            return None;
        }
        let prepared = self.opened(host, false, &|_| {}).and_then(|(policy, _)| host.engine.prepare(&policy).map(drop));
        prepared.err().map(|failure| {
            let Failure { message, hint, .. } = self.explained(failure);
            message + &hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default()
        })
    }

    /// The failure with its hint in terms of the definition: a client of the server has no options of the command.
    pub fn explained(&self, mut failure: Failure) -> Failure {
        failure.hint =
            failure.hint.map(|hint| environments::in_definition(&self.environment, failure.step.as_str(), &hint));
        failure
    }

    /// It, ready to run code of that length: prepared by whoever comes first, for everybody. `begins` is told what takes
    /// long. `None` when the call was cancelled meanwhile.
    ///
    /// # Errors
    /// It cannot be used; the next call tries again.
    pub fn ready(
        &self,
        host: &Host,
        bytes: usize,
        cancel: &Cancel,
        begins: &dyn Fn(&str),
    ) -> Result<Option<Arc<Ready>>, Failure> {
        let Some(short) = self.slot(host, false, cancel, begins)? else { return Ok(None) };
        if bytes > LONGEST_ARGUMENT && matches!(short.entry, Entry::Argument { .. }) {
            return self.slot(host, true, cancel, begins);
        }
        Ok(Some(short))
    }

    fn slot(
        &self,
        host: &Host,
        long: bool,
        cancel: &Cancel,
        begins: &dyn Fn(&str),
    ) -> Result<Option<Arc<Ready>>, Failure> {
        once(&self.ready[usize::from(long)], cancel, || {
            let shell = shell_of(self.project.as_ref());
            let ready = self.prepare(host, long, begins)?;
            let policy = ready.policy.clone();
            Ok(Made::new(ready, &policy, shell))
        })
    }

    /// What a session begins with. `None` when the call was cancelled meanwhile.
    ///
    /// # Errors
    /// It cannot be used, or keeps no state.
    pub fn session(&self, host: &Host, cancel: &Cancel, begins: &dyn Fn(&str)) -> Result<Option<Arc<Start>>, Failure> {
        once(&self.session, cancel, || {
            let shell = shell_of(self.project.as_ref());
            let (environment, recipe, mut policy) = self.dressed(host, begins)?;
            let agent = agent(&environment, &recipe, &mut policy, host)?;
            policy.validate().map_err(|errors| unusable("policy", &format!("the policy is refused: {errors}")))?;
            identify(&mut policy);
            let has_workspace = works_in_workspace(&policy);
            let hands_over = has_workspace.then(|| (WORKSPACE.to_owned(), OUTPUT.to_owned()));
            let recorded = host.trail.clone().map(|trail| (trail, self.about()));
            let seen = policy.clone();
            Ok(Made::new(Start { policy, agent, hands_over, recorded }, &seen, shell))
        })
    }

    /// The environment as it was built, what it comes to, and the policy that is dressed so, without a command.
    fn dressed(&self, host: &Host, begins: &dyn Fn(&str)) -> Result<(Environment, Recipe, Policy), Failure> {
        let name = self.name();
        let told = |reference: &str| {
            tracing::info!("building the environment {name} from {reference}, once");
            begins(&format!("building the environment {name}, once"));
        };
        let environment = self.environment.clone();
        let homes = &host.around.homes;
        let (environment, built) =
            environments::ready(environment, &host.builder(), &host.around, Building::WhenNeeded, told)
                .map_err(|error| unusable("environment", &error.to_string()))?;
        let recipe = self.recipe(&environment, built)?;
        let base = match &environment.kind {
            Kind::Profile { file, .. } => host.compiled(file)?,
            _ => environments::eval_base(false, homes),
        };
        let variable = |name: &str| host.around.variables.get(name).cloned();
        let mut policy = base;
        let project = self.project.clone();
        let told = |path: &str| {
            tracing::info!("building the development shell of {path}, once");
            begins("building the development shell of the project, once");
        };
        let project = environments::developed(project, &host.builder(), &host.around, Building::WhenNeeded, told)
            .map_err(|error| unusable("environment", &error.to_string()))?;
        environments::dress(&mut policy, &recipe, project.as_ref(), homes, variable);
        if matches!(environment.kind, Kind::Profile { .. }) {
            add_workspace(&mut policy);
        }
        Ok((environment, recipe, policy))
    }

    /// The policy of its runs, and how code goes in.
    fn opened(&self, host: &Host, long: bool, begins: &dyn Fn(&str)) -> Result<(Policy, Entry), Failure> {
        let (_, recipe, mut policy) = self.dressed(host, begins)?;
        let entry = recipe
            .open(&mut policy, host.around.around(), &HostTree, long)
            .map_err(|told| unusable("environment", &told))?;
        policy.validate().map_err(|errors| unusable("policy", &format!("the policy is refused: {errors}")))?;
        identify(&mut policy);
        Ok((policy, entry))
    }

    fn prepare(&self, host: &Host, long: bool, begins: &dyn Fn(&str)) -> Result<Ready, Failure> {
        let name = self.name();
        let (policy, entry) = self.opened(host, long, begins)?;
        let prepared = host.engine.prepare(&policy)?.hands_back(WORKSPACE, OUTPUT).keep_ready(STAGED);
        tracing::debug!("the environment {name} is ready, by the {} backend", prepared.backend());
        let waits = host.early && prepared.can_hand_back();
        let early = waits.then(|| Waiting::of(&host.engine, &policy, &entry, (WORKSPACE, OUTPUT))).flatten();
        Ok(Ready { policy, prepared, entry, early })
    }

    fn recipe(&self, environment: &Environment, built: Option<PathBuf>) -> Result<Recipe, Failure> {
        let mut recipe = recipe(environment, built.as_deref()).map_err(|reason| {
            unusable("environment", &format!("the environment `{}` is not available: {reason}", self.name()))
        })?;
        // Code of an agent always has a place for its files, from which they come back.
        recipe.workspace |= matches!(recipe.passing, Passing::Preset(_));
        Ok(recipe)
    }
}

/// Adds the workspace to the policy of a profile that mounts nothing there, beside its own working directory and home. A
/// tree of its own would have to have the directory, and a container hands no files back.
fn add_workspace(policy: &mut Policy) {
    let taken = |mount: &Mount| is_within(WORKSPACE, mount.target()) || is_within(mount.target(), WORKSPACE);
    let own_tree = !matches!(policy.filesystem.root, Root::Host | Root::Minimal | Root::Interpreter);
    let room = matches!(policy.backend, Backend::Auto | Backend::Jail);
    if room && !own_tree && !policy.filesystem.mounts.iter().any(taken) {
        let size_mb = policy.limits.tmpfs_mb;
        policy.filesystem.mounts.push(Mount::Tmpfs { target: WORKSPACE.into(), size_mb, exec: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_policy::Access;

    #[test]
    fn a_source_that_was_replaced_is_judged_anew_and_one_whose_files_changed_is_not() {
        let root = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(root.path()).unwrap();
        let venv = root.join("venv");
        std::fs::create_dir(&venv).unwrap();
        let mut policy = environments::eval_base(false, &[]);
        let source = venv.to_str().unwrap().to_owned();
        policy.filesystem.mounts =
            vec![Mount::Bind { target: source.clone(), source, access: Access::ReadOnly, exec: true, optional: false }];
        identify(&mut policy);
        assert_eq!(policy.filesystem.identities.len(), 1, "what is mounted is what was judged");
        let made = Made::new((), &policy, None);
        std::fs::write(venv.join("file"), "").unwrap();
        assert!(made.is_current(), "the control: the same directory");
        std::fs::rename(&venv, root.join("old")).unwrap();
        std::fs::create_dir(&venv).unwrap();
        assert!(!made.is_current(), "another directory");
        std::fs::remove_dir(&venv).unwrap();
        std::os::unix::fs::symlink(root.join("old"), &venv).unwrap();
        assert!(!made.is_current(), "a link to the same directory");
        std::fs::remove_file(&venv).unwrap();
        std::fs::rename(root.join("old"), &venv).unwrap();
        assert!(made.is_current(), "the control: it is back");
    }
}
