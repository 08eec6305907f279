//! The environments in force, and their replacement when definitions change.
//!
//! An `EnvironmentSet` is immutable. When definitions change, a new set replaces it as a whole and takes over the environments
//! whose definition is unchanged, with everything that was prepared of them. Calls in progress keep the set they began with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use cofferdam_config::environments::{
    DefinitionProblem, Environment, EnvironmentKind, Environments, Project, SessionSettings, as_known,
};
use cofferdam_engine::session;
use tokio::sync::watch;

use super::environment::{EnvironmentHost, ServedEnvironment};

/// The environments defined at one moment.
#[derive(Debug)]
pub(crate) struct EnvironmentSet {
    environments: BTreeMap<String, Arc<ServedEnvironment>>,
    /// The limits of sessions.
    pub sessions: SessionSettings,
    /// The operator's project that environments mount.
    pub project: Option<Project>,
}

impl EnvironmentSet {
    /// The set of these definitions. Unchanged environments are taken over from `previous`.
    fn new(all: &Environments, previous: Option<&EnvironmentSet>, host: &EnvironmentHost) -> EnvironmentSet {
        let builder = host.builder();
        let environments = all
            .in_force()
            .map(|environment| {
                let environment = &as_known(environment, &builder, &host.around);
                let unchanged =
                    |known: &&Arc<ServedEnvironment>| known.is_defined_as(environment, all.project.as_ref());
                let known = previous.and_then(|previous| previous.environments.get(&environment.name));
                let served = known
                    .filter(unchanged)
                    .cloned()
                    .unwrap_or_else(|| Arc::new(ServedEnvironment::new(environment.clone(), all.project.clone())));
                (environment.name.clone(), served)
            })
            .collect();
        EnvironmentSet { environments, sessions: all.sessions, project: all.project.clone() }
    }

    /// The environment of this name, available or not.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<ServedEnvironment>> {
        self.environments.get(name)
    }

    /// The limits of sessions, for the engine.
    pub(crate) fn session_limits(&self) -> session::SessionLimits {
        let bounds = &self.sessions;
        let count = |count| usize::try_from(count).unwrap_or(usize::MAX);
        session::SessionLimits {
            idle: Duration::from_secs(bounds.idle_timeout_seconds),
            lifetime: Duration::from_secs(bounds.max_lifetime_seconds),
            sessions: count(bounds.max_sessions),
            per_owner: count(bounds.max_sessions_per_client),
            ..session::SessionLimits::default()
        }
    }

    /// All environments, sorted by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ServedEnvironment>> {
        self.environments.values()
    }

    /// The names of the available environments, sorted.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.all()
            .filter(|environment| environment.unavailable().is_none())
            .map(|environment| environment.name())
            .collect()
    }
}

/// The result of reading the definitions again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReloadResult {
    /// The definitions are unchanged.
    Unchanged,
    /// New definitions are in force.
    Changed,
    /// The definitions have mistakes; the previous ones stay in force.
    Refused(Vec<String>),
}

/// The definitions in force.
#[derive(Debug)]
struct LoadedDefinitions {
    all: Environments,
    /// Why definitions read after those were refused.
    refused: Vec<String>,
}

/// Counts reloads, so that callers who wait for the next one share it.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    begun: AtomicU64,
    /// The number and result of the last completed reload. Locked while one is in progress.
    pub last: tokio::sync::Mutex<Option<(u64, ReloadResult)>>,
}

impl Reloads {
    /// How many reloads have begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Begins a reload, and returns its number.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// The set of environments in force, and how it is replaced.
#[derive(Debug)]
pub(crate) struct EnvironmentRegistry {
    host: Arc<EnvironmentHost>,
    configuration: Option<String>,
    current: RwLock<Arc<EnvironmentSet>>,
    /// What it was made of. Locked while definitions are read.
    loaded: Mutex<LoadedDefinitions>,
    versions: watch::Sender<u64>,
    /// The sessions whose limits follow the definitions.
    sessions: OnceLock<Weak<session::Sessions>>,
    /// Coordinates callers that ask for a reload.
    pub reloads: Reloads,
}

impl EnvironmentRegistry {
    /// Reads the definitions.
    ///
    /// # Errors
    /// All mistakes that are not about one environment alone.
    pub(crate) fn load(
        host: Arc<EnvironmentHost>,
        configuration: Option<String>,
    ) -> Result<EnvironmentRegistry, Vec<DefinitionProblem>> {
        let mut all = Environments::load(&host.around, configuration.as_deref());
        protect(&mut all);
        if !all.problems.is_empty() {
            return Err(all.problems);
        }
        log_environments(&all, None);
        host.places.fix(&all);
        let current = RwLock::new(Arc::new(EnvironmentSet::new(&all, None, &host)));
        Ok(EnvironmentRegistry {
            host,
            configuration,
            current,
            loaded: Mutex::new(LoadedDefinitions { all, refused: Vec::new() }),
            versions: watch::Sender::new(0),
            sessions: OnceLock::new(),
            reloads: Reloads::default(),
        })
    }

    /// Applies changed session limits to `sessions` from the next change on.
    pub(crate) fn set_sessions(&self, sessions: &Arc<session::Sessions>) {
        self.sessions.get_or_init(|| Arc::downgrade(sessions));
    }

    /// The set in force.
    pub(crate) fn current(&self) -> Arc<EnvironmentSet> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration files that are read, whether or not they exist.
    pub(crate) fn configurations(&self) -> Vec<PathBuf> {
        let named = self.configuration.as_ref().map(|file| vec![Path::new(&self.host.around.cwd).join(file)]);
        named.unwrap_or_else(|| self.host.around.configurations())
    }

    /// The directories of environment artifacts.
    pub(crate) fn artifacts(&self) -> Vec<PathBuf> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = |one: &Environment| match &one.kind {
            EnvironmentKind::Artifact(artifact) => artifact.directory.clone(),
            _ => None,
        };
        loaded.all.all().iter().filter_map(directory).collect()
    }

    /// A receiver whose value changes whenever a new set is in force.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// Signals a change to all receivers of `changes`.
    pub(crate) fn notify_changed(&self) {
        self.versions.send_modify(|version| *version += 1);
    }

    /// Reads the definitions again. It blocks on files, so it must not run on the runtime's thread.
    pub(crate) fn reload(&self) -> ReloadResult {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Environments::load(&self.host.around, self.configuration.as_deref());
        self.host.places.keep(&mut all);
        protect(&mut all);
        if all == loaded.all {
            loaded.refused.clear();
            return ReloadResult::Unchanged;
        }
        if !all.problems.is_empty() {
            let problems: Vec<String> = all.problems.iter().map(ToString::to_string).collect();
            for problem in problems.iter().filter(|problem| !loaded.refused.contains(problem)) {
                tracing::error!("the environments stay as they were: {problem}");
            }
            loaded.refused.clone_from(&problems);
            return ReloadResult::Refused(problems);
        }
        log_environments(&all, Some(&loaded.all));
        self.host.places.fix(&all);
        let new = Arc::new(EnvironmentSet::new(&all, Some(&self.current()), &self.host));
        // Everything is in force before any receiver is notified.
        if let Some(sessions) = self.sessions.get().and_then(Weak::upgrade) {
            sessions.set_limits(new.session_limits());
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        *loaded = LoadedDefinitions { all, refused: Vec::new() };
        drop(loaded);
        self.notify_changed();
        ReloadResult::Changed
    }
}

/// Keeps code from writing what decides about it. What cannot be kept from it is a mistake of the definitions.
fn protect(all: &mut Environments) {
    if let Err(problem) = all.protect() {
        let (place, key) = ("project".to_owned(), "project.access".to_owned());
        all.problems.push(DefinitionProblem { place, key, problem, accepted: "\"ro\" or \"cow\"".into() });
    }
}

/// Logs the names of the environments and the reasons of unavailable ones, without what was logged for `before`.
fn log_environments(all: &Environments, before: Option<&Environments>) {
    let names: Vec<&str> =
        all.in_force().filter(|one| one.unavailable().is_none()).map(|one| one.name.as_str()).collect();
    tracing::info!("environments: {}", names.join(", "));
    for warning in all.warnings.iter().filter(|warning| before.is_none_or(|b| !b.warnings.contains(warning))) {
        tracing::warn!("{warning}");
    }
    for one in all.in_force().filter(|one| before.is_none_or(|before| !before.all().contains(one))) {
        if let Some(reason) = one.unavailable() {
            tracing::warn!("the environment {} ({}) is unavailable: {reason}", one.name, one.place);
        }
    }
}
