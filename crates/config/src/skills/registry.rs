//! The registry of skills: their names and versions, and which of them are revoked.
//!
//! ```text
//! registered ─ revoke ─▶ revoked        (final: a revoked version is not registered again)
//! ```
//!
//! One file, `registry.json`, which is replaced atomically: written to a temporary file, synchronised and renamed, under a lock for
//! writers; readers need none. A version's content is stored before the registry names it. A name belongs to the publisher who
//! registered it first. Runs nothing.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cofferdam_profiles::private;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fsync, openat};
use serde::{Deserialize, Serialize};

use super::error::{FaultCode, SkillError};
use super::intake::{self, Taken};
use super::manifest::is_registered_name;
use super::store::{self, StoredVersion};

const LOCK: &str = ".lock";
const FILE: &str = "registry.json";
/// Longest registry, bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Fewest digits by which a version can be named.
const FEWEST_DIGITS: usize = 8;

/// Whether a version may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionState {
    /// It may run.
    Registered,
    /// It must not run, ever again.
    Revoked,
}

/// One version of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Versioned {
    /// The hash of its manifest without the signature, 64 hexadecimal digits.
    pub version: String,
    /// Whether it may run.
    pub state: VersionState,
    /// When it was registered, seconds since 1970.
    pub registered_at: u64,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub revoked_at: Option<u64>,
}

/// One skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Skill {
    /// The address of its publisher, in lower case.
    pub publisher: String,
    /// Its versions, in the order in which they were registered.
    pub versions: Vec<Versioned>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    skills: BTreeMap<String, Skill>,
}

/// A skill, and which of its versions: `NAME` or `NAME@VERSION`, of which the first eight digits are enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillSpec {
    /// The name.
    pub name: String,
    /// The beginning of the version; `None` for the latest that may run.
    pub version: Option<String>,
}

impl std::str::FromStr for SkillSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<SkillSpec, String> {
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let shown: String = text.chars().take(100).collect();
        if !is_registered_name(name) {
            return Err(format!("{shown:?} is no skill: NAME or NAME@VERSION, of a-z, 0-9 and -"));
        }
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if version.is_some_and(|version| !(FEWEST_DIGITS..=64).contains(&version.len()) || !digits(version)) {
            return Err(format!("{shown:?} has no version behind @: 8 to 64 of the digits that `skill show` prints"));
        }
        Ok(SkillSpec { name: name.to_owned(), version: version.map(str::to_owned) })
    }
}

/// The result of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registered {
    /// The skill's name.
    pub name: String,
    /// The version.
    pub version: String,
    /// The address of its publisher, in lower case.
    pub publisher: String,
    /// Whether it was registered before, and its damaged files were restored.
    pub repaired: bool,
}

/// A registry. Nothing is opened or created before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    directory: PathBuf,
}

impl Registry {
    /// The registry in this directory.
    pub fn at(directory: impl Into<PathBuf>) -> Registry {
        Registry { directory: directory.into() }
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Registers a skill's directory as a new version, after `record` has recorded it. The files of a registered version that was
    /// damaged are restored, since the verified directory has the same content.
    ///
    /// # Errors
    /// All faults of the skill, in the order of [`FaultCode`]; or it cannot be recorded, or the registry cannot be written. The
    /// registry is unchanged then.
    pub fn register(
        &self,
        source: &Path,
        record: impl FnOnce(&Registered) -> Result<(), String>,
    ) -> Result<Registered, SkillError> {
        let taken = intake::take(source)?;
        let registry = self.locked()?;
        let mut contents = self.read(&registry.directory)?;
        self.add(&registry, &mut contents, &taken, record)
    }

    /// Checks a skill's directory as [`Registry::register`] does, without changing anything. A registered version is not a fault.
    ///
    /// # Errors
    /// All faults of the skill, in the order of [`FaultCode`]; or the registry cannot be read.
    pub fn verify(&self, source: &Path) -> Result<Taken, SkillError> {
        let taken = intake::take(source)?;
        let contents = Contents { version: 1, skills: self.list()? };
        let publisher = taken.manifest.publisher.address.to_ascii_lowercase();
        acceptable(&contents, &taken.manifest.name, &taken.version.hex(), &publisher)?;
        Ok(taken)
    }

    fn add(
        &self,
        registry: &Locked,
        contents: &mut Contents,
        taken: &Taken,
        record: impl FnOnce(&Registered) -> Result<(), String>,
    ) -> Result<Registered, SkillError> {
        let (name, version) = (taken.manifest.name.clone(), taken.version.hex());
        let publisher = taken.manifest.publisher.address.to_ascii_lowercase();
        acceptable(contents, &name, &version, &publisher)?;
        let skill = contents
            .skills
            .entry(name.clone())
            .or_insert_with(|| Skill { publisher: publisher.clone(), versions: Vec::new() });
        match skill.versions.iter().find(|known| known.version == version).map(|known| known.state) {
            Some(VersionState::Registered) if store::open(&self.directory, &version).is_err() => {
                // Recorded first: a reader of the record finds the files restored, or damaged as before.
                let registered = Registered { name, version, publisher, repaired: true };
                record(&registered).map_err(SkillError::Unrecorded)?;
                store::keep(&registry.directory, &self.directory, taken)?;
                return Ok(registered);
            }
            Some(VersionState::Registered) => {
                let problem = format!("{name}@{version} is registered already");
                return Err(SkillError::one(FaultCode::DuplicateSkill, problem));
            }
            Some(VersionState::Revoked) | None => {}
        }
        store::keep(&registry.directory, &self.directory, taken)?;
        let versioned = Versioned {
            version: version.clone(),
            state: VersionState::Registered,
            registered_at: now(),
            revoked_at: None,
        };
        skill.versions.push(versioned);
        let registered = Registered { name, version, publisher, repaired: false };
        record(&registered).map_err(SkillError::Unrecorded)?;
        self.write(registry, contents)?;
        Ok(registered)
    }

    /// Revokes a version, or all versions of a skill. Revoked versions stay revoked.
    ///
    /// # Errors
    /// There is no such skill, or the registry cannot be written.
    pub fn revoke(&self, spec: &SkillSpec) -> Result<Vec<Registered>, SkillError> {
        let registry = self.locked()?;
        let mut contents = self.read(&registry.directory)?;
        let skill = contents.skills.get_mut(&spec.name).ok_or_else(|| missing(spec))?;
        let one = spec.version.as_ref().map(|_| chosen(spec, skill).map(|at| skill.versions[at].version.clone()));
        let one = one.transpose()?;
        let mut revoked = Vec::new();
        let publisher = skill.publisher.clone();
        for known in skill.versions.iter_mut().filter(|known| one.as_ref().is_none_or(|one| known.version == *one)) {
            if known.state == VersionState::Registered {
                (known.state, known.revoked_at) = (VersionState::Revoked, Some(now()));
                let (name, publisher) = (spec.name.clone(), publisher.clone());
                revoked.push(Registered { name, version: known.version.clone(), publisher, repaired: false });
            }
        }
        self.write(&registry, &contents)?;
        Ok(revoked)
    }

    /// All skills by name; none if there is no registry.
    ///
    /// # Errors
    /// The registry cannot be read, or another user could have written it.
    pub fn list(&self) -> Result<BTreeMap<String, Skill>, SkillError> {
        match private::open(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(source) => Err(self.reported("read")(source)),
            Ok(directory) => Ok(self.read(&directory)?.skills),
        }
    }

    /// One skill.
    ///
    /// # Errors
    /// As for [`Registry::list`], or there is no such skill.
    pub fn find(&self, name: &str) -> Result<Skill, SkillError> {
        let spec = SkillSpec { name: name.to_owned(), version: None };
        self.list()?.remove(name).ok_or_else(|| missing(&spec))
    }

    /// The version that is meant, whatever its state.
    ///
    /// # Errors
    /// As for [`Registry::find`], or there is no such version, or several begin so.
    pub fn version(&self, spec: &SkillSpec) -> Result<Versioned, SkillError> {
        let skill = self.find(&spec.name)?;
        chosen(spec, &skill).map(|at| skill.versions[at].clone())
    }

    /// A version's content, which is what was registered, whatever its state.
    ///
    /// # Errors
    /// It is not there, or another.
    pub fn content(&self, version: &str) -> Result<StoredVersion, SkillError> {
        store::open(&self.directory, version)
    }

    /// What is to run: a version that may, and its content.
    ///
    /// # Errors
    /// There is none, it is revoked, or its content is not what was registered.
    pub fn runnable(&self, spec: &SkillSpec) -> Result<(Versioned, StoredVersion), SkillError> {
        let versioned = self.version(spec)?;
        if versioned.state == VersionState::Revoked {
            let reported = format!("{}@{} is revoked", spec.name, versioned.version);
            return Err(SkillError::one(FaultCode::Revoked, reported));
        }
        let kept = self.content(&versioned.version)?;
        if kept.manifest.name != spec.name {
            let path = self.directory.join(FILE);
            let why = format!("it names {} what is {}", spec.name, kept.manifest.name);
            return Err(SkillError::Unreadable { path, why });
        }
        Ok((versioned, kept))
    }

    fn reported(&self, operation: &'static str) -> impl Fn(io::Error) -> SkillError {
        let path = self.directory.clone();
        move |source| SkillError::Io { operation, path: path.clone(), source }
    }

    fn trusted(&self, fd: impl AsFd, path: &Path) -> Result<(), SkillError> {
        match private::others_write(fd) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(SkillError::Untrusted { path: path.to_owned(), why }),
            Err(source) => Err(SkillError::Io { operation: "look at", path: path.to_owned(), source }),
        }
    }

    /// Waits until no other writer is at work.
    fn locked(&self) -> Result<Locked, SkillError> {
        let directory = private::open_or_make(&self.directory).map_err(self.reported("make the registry"))?;
        self.trusted(&directory, &self.directory)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&directory, LOCK, flags, Mode::RUSR | Mode::WUSR);
        let lock = lock.map_err(|error| self.reported("lock the registry")(error.into()))?;
        loop {
            match flock(&lock, FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.reported("lock the registry")(error.into())),
                Ok(()) => return Ok(Locked { directory, _lock: lock }),
            }
        }
    }

    fn read(&self, directory: &OwnedFd) -> Result<Contents, SkillError> {
        self.trusted(directory, &self.directory)?;
        let path = self.directory.join(FILE);
        let file = match private::open_file(directory, FILE) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Contents { version: 1, ..Contents::default() });
            }
            opened => opened.map_err(self.reported("read"))?,
        };
        self.trusted(&file, &path)?;
        let text = intake::read(&file, MAX_BYTES).map_err(self.reported("read"))?;
        let contents: Contents = serde_json::from_slice(&text)
            .map_err(|error| SkillError::Unreadable { path: path.clone(), why: error.to_string() })?;
        match contents.version {
            1 => Ok(contents),
            other => Err(SkillError::Unreadable { path, why: format!("it is of version {other}, and 1 is known") }),
        }
    }

    fn write(&self, registry: &Locked, contents: &Contents) -> Result<(), SkillError> {
        let mut text = serde_json::to_vec_pretty(contents).map_err(|error| self.reported("write")(error.into()))?;
        text.push(b'\n');
        private::replace(&registry.directory, FILE, &text, true).map_err(self.reported("write"))?;
        fsync(&registry.directory).map_err(|error| self.reported("synchronise")(error.into()))
    }
}

/// A registry locked for writing. The lock is released with the descriptor.
struct Locked {
    directory: OwnedFd,
    _lock: OwnedFd,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether a version of this publisher may have the name: neither is it another publisher's, nor was the version revoked.
fn acceptable(contents: &Contents, name: &str, version: &str, publisher: &str) -> Result<(), SkillError> {
    let Some(skill) = contents.skills.get(name) else { return Ok(()) };
    if skill.publisher != publisher {
        let problem = format!("{name} is the skill of {}, and this one is that of {publisher}", skill.publisher);
        return Err(SkillError::one(FaultCode::DuplicateSkill, problem));
    }
    if skill.versions.iter().any(|known| known.version == version && known.state == VersionState::Revoked) {
        let problem = format!("{name}@{version} was revoked, and is not taken again");
        return Err(SkillError::one(FaultCode::Revoked, problem));
    }
    Ok(())
}

fn missing(spec: &SkillSpec) -> SkillError {
    SkillError::one(FaultCode::NotRegistered, format!("no skill {} is registered", spec.name))
}

/// Which version is meant: the one that begins so, or the latest that may run, or the latest.
fn chosen(spec: &SkillSpec, skill: &Skill) -> Result<usize, SkillError> {
    let Some(begin) = &spec.version else {
        let may = skill.versions.iter().rposition(|known| known.state == VersionState::Registered);
        return may.or(skill.versions.len().checked_sub(1)).ok_or_else(|| missing(spec));
    };
    let mut fitting = skill.versions.iter().enumerate().filter(|(_, known)| known.version.starts_with(begin.as_str()));
    match (fitting.next(), fitting.next()) {
        (Some((at, _)), None) => Ok(at),
        (None, _) => {
            let reported = format!("{} has no version that begins with {begin}", spec.name);
            Err(SkillError::one(FaultCode::NotRegistered, reported))
        }
        _ => {
            let reported = format!("several versions of {} begin with {begin}: give more digits", spec.name);
            Err(SkillError::one(FaultCode::NotRegistered, reported))
        }
    }
}
