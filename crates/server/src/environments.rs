//! Which environments there are, at one moment: what definitions came to, with what was prepared of each.
//!
//! A catalogue never changes. When definitions do, a new one takes its place as a whole, and takes over what was prepared
//! of each environment that is defined as before; calls that run keep the one that they began with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use cofferdam_config::environments::{Environment, Environments, Kind, Problem, Project, Sessions, as_known};
use cofferdam_engine::session;
use tokio::sync::watch;

use crate::environment::{Host, Place};

/// The environments of one moment.
#[derive(Debug)]
pub struct Catalogue {
    places: BTreeMap<String, Arc<Place>>,
    /// How long sessions live.
    pub sessions: Sessions,
    /// What environments show of the operator's.
    pub project: Option<Project>,
}

impl Catalogue {
    /// Out of what is defined; what is prepared already is taken over from `before`.
    fn of(all: &Environments, before: Option<&Catalogue>, host: &Host) -> Catalogue {
        let builder = host.builder();
        let places = all
            .in_force()
            .map(|environment| {
                let environment = &as_known(environment, &builder, &host.around);
                let same = |place: &&Arc<Place>| place.is(environment, all.project.as_ref());
                let known = before.and_then(|before| before.places.get(&environment.name)).filter(same).cloned();
                let place = known.unwrap_or_else(|| Arc::new(Place::new(environment.clone(), all.project.clone())));
                (environment.name.clone(), place)
            })
            .collect();
        Catalogue { places, sessions: all.sessions, project: all.project.clone() }
    }

    /// The environment of a name, whether or not it can be used.
    pub fn find(&self, name: &str) -> Option<&Arc<Place>> {
        self.places.get(name)
    }

    /// The same for who keeps them.
    pub fn limits(&self) -> session::Limits {
        let bounds = &self.sessions;
        let count = |count| usize::try_from(count).unwrap_or(usize::MAX);
        session::Limits {
            idle: Duration::from_secs(bounds.idle_timeout_seconds),
            lifetime: Duration::from_secs(bounds.max_lifetime_seconds),
            sessions: count(bounds.max_sessions),
            per_owner: count(bounds.max_sessions_per_client),
            ..session::Limits::default()
        }
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Place>> {
        self.places.values()
    }

    /// The names of those that can be used, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.all().filter(|place| place.unavailable().is_none()).map(|place| place.name()).collect()
    }
}

/// What came of reading the definitions again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reloaded {
    /// They are as they were.
    Same,
    /// They are others, and in force.
    Changed,
    /// They cannot be relied upon; those from before stay in force.
    Refused(Vec<String>),
}

/// What was read last.
#[derive(Debug)]
struct Read {
    all: Environments,
    /// Why what was read after that is not in force.
    refused: Vec<String>,
}

/// How often definitions were read again, and what came of it last.
#[derive(Debug, Default)]
pub struct Readings {
    begun: AtomicU64,
    /// The number of the last reading that is over. Held while one is under way.
    pub last: tokio::sync::Mutex<Option<(u64, Reloaded)>>,
}

impl Readings {
    /// How many have begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// One more begins: its number.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// The catalogue in force, and how it is replaced.
#[derive(Debug)]
pub struct Shelf {
    host: Arc<Host>,
    configuration: Option<String>,
    current: RwLock<Arc<Catalogue>>,
    /// What it was made of; also the turn of whoever reads definitions.
    read: Mutex<Read>,
    versions: watch::Sender<u64>,
    /// The sessions that a change of theirs holds for.
    governed: OnceLock<Weak<session::Sessions>>,
    /// Of whoever waits for a reading.
    pub readings: Readings,
}

impl Shelf {
    /// Reads what is defined.
    ///
    /// # Errors
    /// Every mistake that is not about one environment alone.
    pub fn load(host: Arc<Host>, configuration: Option<String>) -> Result<Shelf, Vec<Problem>> {
        let all = Environments::load(&host.around, configuration.as_deref());
        if !all.problems.is_empty() {
            return Err(all.problems);
        }
        tell(&all, None);
        let current = RwLock::new(Arc::new(Catalogue::of(&all, None, &host)));
        Ok(Shelf {
            host,
            configuration,
            current,
            read: Mutex::new(Read { all, refused: Vec::new() }),
            versions: watch::Sender::new(0),
            governed: OnceLock::new(),
            readings: Readings::default(),
        })
    }

    /// Has what is defined of sessions hold for these, from the next change on.
    pub fn governs(&self, sessions: &Arc<session::Sessions>) {
        self.governed.get_or_init(|| Arc::downgrade(sessions));
    }

    /// The catalogue in force.
    pub fn now(&self) -> Arc<Catalogue> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration files that definitions come from, or could.
    pub fn configurations(&self) -> Vec<PathBuf> {
        let named = self.configuration.as_ref().map(|file| vec![Path::new(&self.host.around.cwd).join(file)]);
        named.unwrap_or_else(|| self.host.around.configurations())
    }

    /// The directories of artifacts.
    pub fn artifacts(&self) -> Vec<PathBuf> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = |one: &Environment| match &one.kind {
            Kind::Artifact(artifact) => artifact.directory.clone(),
            _ => None,
        };
        read.all.all().iter().filter_map(directory).collect()
    }

    /// Tells when another one is in force: its number changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// Tells clients that the list has changed, whether or not it has.
    pub fn tell(&self) {
        self.versions.send_modify(|version| *version += 1);
    }

    /// Reads the definitions again. Reads files, so not for the runtime's thread.
    pub fn reload(&self) -> Reloaded {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let all = Environments::load(&self.host.around, self.configuration.as_deref());
        if all == read.all {
            read.refused.clear();
            return Reloaded::Same;
        }
        if !all.problems.is_empty() {
            let problems: Vec<String> = all.problems.iter().map(ToString::to_string).collect();
            for problem in problems.iter().filter(|problem| !read.refused.contains(problem)) {
                tracing::error!("the environments stay as they were: {problem}");
            }
            read.refused.clone_from(&problems);
            return Reloaded::Refused(problems);
        }
        tell(&all, Some(&read.all));
        let new = Arc::new(Catalogue::of(&all, Some(&self.now()), &self.host));
        // All of it is in force when anybody is told.
        if let Some(sessions) = self.governed.get().and_then(Weak::upgrade) {
            sessions.set_limits(new.limits());
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        *read = Read { all, refused: Vec::new() };
        drop(read);
        self.tell();
        Reloaded::Changed
    }
}

/// Says which environments there are, and why those that cannot be used cannot: what was said `before` is not said again.
fn tell(all: &Environments, before: Option<&Environments>) {
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
