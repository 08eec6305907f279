//! The sources of definitions and their precedence: reads the configuration file, the variables and the registry directories, and
//! sorts the definitions.
//!
//! Reads files; builds and runs nothing. A default file or directory may be missing, but a named one must exist.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::paths::lexical;
use cofferdam_policy::{Access, BackendName, FileIdentity, Root};

use crate::project_directory;

use super::artifact::{Artifact, artifact};
use super::file::{Definition, DefinitionSource, Parsed, parse};
use super::metadata::{Bundled, bundled, most_seconds};
use super::{
    ACCESS_ACCEPTED, BackendWord, DefinitionProblem, Environment, EnvironmentKind, LONGEST_FILE, NO_MICROVM, Overrides,
    PRESETS, PROJECT_ACCESS, PROJECT_MOUNT, Project, ProjectDefinition, Rank, SessionSettings, Surroundings, is_name,
    shown,
};

/// Most entries of one registry directory that are read.
const MOST_ENTRIES: usize = 4096;

/// All definitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environments {
    all: Vec<Environment>,
    /// Mistakes outside of any one definition. With any, no definition is used.
    pub problems: Vec<DefinitionProblem>,
    /// What was ignored without being a mistake.
    pub warnings: Vec<String>,
    /// The configuration file that was read.
    pub configuration: Option<PathBuf>,
    /// The file of `COFFERDAM_METADATA`, where that names one.
    pub metadata: Option<PathBuf>,
    /// The project that environments mount.
    pub project: Option<Project>,
    /// The limits of sessions.
    pub sessions: SessionSettings,
}

/// The meaning of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvironmentLookup<'e> {
    /// This environment.
    Environment(&'e Environment),
    /// No environment has the name.
    Unknown,
}

impl Environments {
    /// Reads all definitions. `configuration` names the configuration file instead of variables and defaults.
    pub fn load(around: &Surroundings, configuration: Option<&str>) -> Environments {
        let mut out = Environments::default();
        let mut project = out.bundled(around);
        if let Some((file, named)) = around.configuration(configuration)
            && let Some(parsed) = out.read(&file, named, around)
        {
            out.configuration = Some(file);
            project = parsed.project.or(project);
            let (said, lives) = (parsed.session, &mut out.sessions);
            lives.idle_timeout_seconds = said.idle_timeout_seconds.unwrap_or(lives.idle_timeout_seconds);
            lives.max_lifetime_seconds = said.max_lifetime_seconds.unwrap_or(lives.max_lifetime_seconds);
            lives.max_sessions = said.max_sessions.unwrap_or(lives.max_sessions);
            let own = said.max_sessions_per_client.unwrap_or(lives.max_sessions_per_client);
            lives.max_sessions_per_client = own.min(lives.max_sessions);
            out.found(parsed.ignored, parsed.problems, parsed.definitions, around);
        }
        out.references(around);
        for (index, (directory, named)) in around.registries().into_iter().enumerate() {
            out.registry(&directory, named, index as u8, around);
        }
        for name in PRESETS {
            let (name, place) = ((*name).to_owned(), "built in".to_owned());
            let kind = EnvironmentKind::Preset(name.clone());
            out.all.push(Environment { name, rank: Rank::Preset, place, kind, overrides: Overrides::default() });
        }
        out.all.sort_by(|a, b| (&a.name, a.rank).cmp(&(&b.name, b.rank)));
        out.surroundings_of_runs(around, project);
        out
    }

    /// Adds the definitions of a configuration file, and its mistakes.
    fn found(
        &mut self,
        ignored: Vec<String>,
        problems: Vec<DefinitionProblem>,
        definitions: Vec<Definition>,
        around: &Surroundings,
    ) {
        self.warnings.extend(ignored.iter().map(|key| format!("{key} is not applied: Cofferdam has no such key")));
        self.problems.extend(problems);
        self.all.extend(definitions.into_iter().map(|definition| defined(definition, around)));
    }

    /// The definitions of one configuration file alone.
    pub fn of_file(file: &str, around: &Surroundings) -> Environments {
        let mut out = Environments::default();
        let file = around.absolute(file);
        if let Some(parsed) = out.read(&file, true, around) {
            out.found(parsed.ignored, parsed.problems, parsed.definitions, around);
            if let Some(project) = parsed.project {
                out.project_of_runs(around, Some(project));
            }
        }
        out.configuration = Some(file);
        out
    }

    /// The artifact at a path of the command line.
    pub fn at_path(path: &str, around: &Surroundings) -> Environment {
        let directory = match (path.strip_prefix("~/"), around.home()) {
            (Some(rest), Some(home)) => Path::new(home).join(rest),
            _ => around.absolute(path),
        };
        let place = directory.display().to_string();
        let (name, kind) = match artifact(&directory, None, &around.homes, &around.store()) {
            Ok(found) => (found.metadata.name.clone(), EnvironmentKind::Artifact(Box::new(found))),
            Err(problems) => (path.to_owned(), EnvironmentKind::Broken(problems)),
        };
        Environment { name, rank: Rank::CommandLine, place, kind, overrides: Overrides::default() }
    }

    /// The files and directories of the caller's own that decide what environments are.
    pub fn obeyed(&self) -> Vec<&Path> {
        let of_kinds = self.all.iter().filter_map(|one| match &one.kind {
            EnvironmentKind::Artifact(artifact) => artifact.directory.as_deref(),
            EnvironmentKind::Profile { file, .. } => Some(file),
            EnvironmentKind::Image { root: Root::Directory(path) | Root::Image(path), .. } => Some(Path::new(path)),
            _ => None,
        });
        let venvs = self.all.iter().filter_map(|one| one.overrides.venv.as_deref());
        let files = self.configuration.iter().chain(&self.metadata);
        files.map(PathBuf::as_path).chain(of_kinds).chain(venvs).collect()
    }

    /// Makes what decides about environments read-only for the code that runs in them, where the project is one that code may
    /// write.
    ///
    /// # Errors
    /// Something of it cannot be kept from being written.
    pub fn protect(&self) -> Result<(), String> {
        let Some(project) = self.project.as_ref().filter(|project| project.access == Access::ReadWrite) else {
            return Ok(());
        };
        // Another name of the file may lie in the project, wherever this one lies.
        let device = std::fs::metadata(&project.path).map(|about| about.dev()).ok();
        let has_other_names = |path: &Path| {
            let about = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
            about.is_some_and(|about| about.nlink() > 1 && Some(about.dev()) == device)
        };
        // A reference of an image is no path.
        for path in self.obeyed().into_iter().filter(|path| path.is_absolute() && path.symlink_metadata().is_ok()) {
            if has_other_names(path) {
                let path = path.display();
                return Err(format!(
                    "cannot keep {path} from being written: it has other hard links, and code could write it by one in {}",
                    project.path
                ));
            }
            cofferdam_engine::keep_read_only(path)
                .map_err(|why| format!("cannot keep {} from being written: {why}", path.display()))?;
        }
        Ok(())
    }

    /// The meaning of a name.
    pub fn find(&self, name: &str) -> EnvironmentLookup<'_> {
        self.all.iter().find(|one| one.name == name).map_or(EnvironmentLookup::Unknown, EnvironmentLookup::Environment)
    }

    /// All definitions, sorted by name and precedence.
    pub fn all(&self) -> &[Environment] {
        &self.all
    }

    /// The definitions in force, without those hidden by one of higher precedence.
    pub fn in_force(&self) -> impl Iterator<Item = &Environment> {
        let hidden = |index: usize| index > 0 && self.all[index - 1].name == self.all[index].name;
        self.all.iter().enumerate().filter(move |(index, _)| !hidden(*index)).map(|(_, one)| one)
    }

    /// The definition that hides this one, if any.
    pub fn hidden_by(&self, one: &Environment) -> Option<&Environment> {
        self.all.iter().find(|other| other.name == one.name).filter(|first| *first != one)
    }

    fn read(&mut self, file: &Path, named: bool, around: &Surroundings) -> Option<Parsed> {
        let mut problem = |problem: String, accepted: &str| {
            let (place, accepted) = (file.display().to_string(), accepted.to_owned());
            self.problems.push(DefinitionProblem { place, key: String::new(), problem, accepted });
            None
        };
        match std::fs::metadata(file) {
            Err(error) => return problem(format!("cannot be looked at: {error}"), ""),
            Ok(metadata) if !metadata.is_file() => return problem("is no regular file".into(), "a file of TOML"),
            Ok(metadata) if metadata.len() > LONGEST_FILE => return problem("is longer than 1 MiB".into(), ""),
            Ok(metadata) if !named && !is_ours(&metadata) => {
                return problem(
                    "can be changed by others".into(),
                    "a file that belongs to you or root and that not everybody may write, or one that --config names",
                );
            }
            Ok(_) => {}
        }
        let mut text = String::new();
        let read = std::fs::File::open(file).and_then(|file| file.take(LONGEST_FILE).read_to_string(&mut text));
        match read {
            Err(error) => problem(format!("cannot be read: {error}"), "a file of TOML in UTF-8"),
            Ok(_) => Some(parse(&text, file, around.home())),
        }
    }

    /// The environments that a wrapper bundles, and its project.
    fn bundled(&mut self, around: &Surroundings) -> Option<ProjectDefinition> {
        let (variable, value) = around.setting("METADATA")?;
        // The text itself, as wrappers set it, or the path of a file with it.
        let (place, text) = match value.starts_with('/') {
            true => match read_capped(Path::new(value)) {
                Ok(text) => {
                    self.metadata = Some(PathBuf::from(value));
                    (format!("{variable} ({value})"), text)
                }
                Err(error) => {
                    let problem = format!("{} cannot be read: {error}", shown(value));
                    let accepted = "one JSON object, or the path of a file with one".into();
                    self.problems.push(DefinitionProblem { place: variable, key: String::new(), problem, accepted });
                    return None;
                }
            },
            false => (variable, value.as_bytes().to_vec()),
        };
        let set = match bundled(&text, &place) {
            Ok(set) => set,
            Err(problems) => {
                self.problems.extend(problems);
                return None;
            }
        };
        for (name, read) in set.environments {
            let kind = match read {
                Ok(one) => of_bundle(one, &place, &name, around),
                Err(problems) => EnvironmentKind::Broken(problems),
            };
            let (place, overrides) = (place.clone(), Overrides::default());
            self.all.push(Environment { name, rank: Rank::Bundled, place, kind, overrides });
        }
        self.sessions.idle_timeout_seconds = set.session.0.unwrap_or(self.sessions.idle_timeout_seconds);
        self.sessions.max_lifetime_seconds = set.session.1.unwrap_or(self.sessions.max_lifetime_seconds);
        set.project.map(|(path, mount_point, use_flake, inherit_env)| ProjectDefinition {
            path: around.absolute(&path),
            mount_point,
            use_flake,
            inherit_env,
            access: Access::default(),
        })
    }

    /// Adds the flake references of a variable, each named by its last part.
    fn references(&mut self, around: &Surroundings) {
        let Some((variable, list)) = around.setting("ENVS") else { return };
        let mut seen: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for (index, reference) in list.split(',').map(str::trim).enumerate().filter(|(_, text)| !text.is_empty()) {
            let place = format!("{variable}, entry {}", index + 1);
            let problem = |problem: String, accepted: &str| DefinitionProblem {
                place: place.clone(),
                key: String::new(),
                problem,
                accepted: accepted.into(),
            };
            let name = name_of(reference);
            let bad = reference.starts_with('-') || reference.contains(|c: char| c.is_whitespace() || c.is_control());
            let Some(name) = name.filter(|_| !bad) else {
                let reported = format!("no name can be made of {}", shown(reference));
                self.problems
                    .push(problem(reported, "a flake reference that ends in a name, as in github:owner/repo#name"));
                continue;
            };
            let mut kind = EnvironmentKind::Reference(reference.to_owned());
            if let Some((first, other)) = seen.get(&name) {
                let reported = format!(
                    "{name} is defined twice: by {} here, and by {} in entry {}",
                    shown(reference),
                    shown(other),
                    first + 1
                );
                kind = EnvironmentKind::Broken(vec![problem(reported, "")]);
                self.all.retain(|one| !(one.rank == Rank::References && one.name == name));
            }
            seen.entry(name.clone()).or_insert((index, reference.to_owned()));
            let place = place.clone();
            self.all.push(Environment { name, rank: Rank::References, place, kind, overrides: Overrides::default() });
        }
    }

    fn registry(&mut self, directory: &Path, named: bool, index: u8, around: &Surroundings) {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => return,
            Err(error) => {
                self.warnings.push(format!("the registry {} cannot be read: {error}", directory.display()));
                return;
            }
        };
        if !named && !std::fs::metadata(directory).is_ok_and(|metadata| is_ours(&metadata)) {
            let reported = "the registry {} is left out: it can be changed by others than you and root";
            self.warnings.push(reported.replace("{}", &directory.display().to_string()));
            return;
        }
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        if names.len() > MOST_ENTRIES {
            let reported = format!("of the registry {}, {MOST_ENTRIES} entries are looked at", directory.display());
            self.warnings.push(reported);
            names.truncate(MOST_ENTRIES);
        }
        for name in names {
            let path = directory.join(&name);
            let hidden = name.as_encoded_bytes().starts_with(b".");
            if hidden || std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_dir()) {
                continue;
            }
            let Some(name) = name.to_str().filter(|name| is_name(name)).map(str::to_owned) else {
                self.warnings.push(format!(
                    "{} is left out: {}",
                    shown(&path.display().to_string()),
                    super::NAME_ACCEPTED
                ));
                continue;
            };
            let kind = match artifact(&path, Some(&name), &around.homes, &around.store()) {
                Ok(found) => EnvironmentKind::Artifact(Box::new(found)),
                Err(problems) => EnvironmentKind::Broken(problems),
            };
            let (rank, place) = (Rank::Registry(index), path.display().to_string());
            self.all.push(Environment { name, rank, place, kind, overrides: Overrides::default() });
        }
    }

    fn surroundings_of_runs(&mut self, around: &Surroundings, configured: Option<ProjectDefinition>) {
        self.project_of_runs(around, configured);
        self.sessions_of_runs(around);
    }

    /// Determines the project that runs mount, and its mistakes.
    fn project_of_runs(&mut self, around: &Surroundings, configured: Option<ProjectDefinition>) {
        let directory = around.setting("PROJECT_DIR").map(|(_, path)| around.absolute(path));
        let mount = around.setting("PROJECT_MOUNT").map(|(_, path)| path.to_owned());
        if directory.is_some() || configured.is_some() {
            let ProjectDefinition { path, mount_point, use_flake, inherit_env, mut access } =
                configured.unwrap_or_default();
            if let Some((place, word)) = around.setting("PROJECT_ACCESS") {
                match PROJECT_ACCESS.iter().find(|(known, _)| *known == word) {
                    Some((_, word)) => access = *word,
                    None => {
                        let (problem, accepted) = (format!("{} is none", shown(word)), ACCESS_ACCEPTED.to_owned());
                        self.problems.push(DefinitionProblem { place, key: String::new(), problem, accepted });
                    }
                }
            }
            let path = directory.unwrap_or(path);
            let mount_point = mount.or(mount_point).unwrap_or_else(|| PROJECT_MOUNT.to_owned());
            let real = std::fs::canonicalize(&path).and_then(|real| {
                let about = real.symlink_metadata()?;
                Ok((real, FileIdentity { device: about.dev(), inode: about.ino() }))
            });
            match real.map(|(real, identity)| real.into_os_string().into_string().map(|real| (real, identity))) {
                Ok(Ok((root, _))) if root == "/" => {
                    let (place, key) = (path.display().to_string(), "project.path".to_owned());
                    let problem = "is the whole host, with what runs on it".to_owned();
                    self.problems.push(DefinitionProblem {
                        place,
                        key,
                        problem,
                        accepted: "a directory below /".into(),
                    });
                }
                Ok(Ok((real, identity))) => {
                    self.project = Some(Project {
                        written: path,
                        path: real,
                        identity,
                        mount_point,
                        use_flake,
                        shell: None,
                        inherit_env,
                        access,
                    })
                }
                Ok(Err(_)) => self.warnings.push("the project's path is not valid UTF-8, and is not shown".into()),
                Err(error) => {
                    let (place, key) = (path.display().to_string(), "project.path".to_owned());
                    let (problem, accepted) = (format!("cannot be looked at: {error}"), "a directory".to_owned());
                    self.problems.push(DefinitionProblem { place, key, problem, accepted });
                }
            }
            if let Some(project) = self.project.as_ref().filter(|project| project.use_flake) {
                self.problems.extend(no_flake(project));
            }
            if let Some(project) = self.project.as_ref().filter(|project| project.access == Access::ReadWrite) {
                self.problems.extend(unwritable(project, &self.all, around));
            }
        }
    }

    /// Applies the session limits of the variables.
    fn sessions_of_runs(&mut self, around: &Surroundings) {
        for (end, into) in [
            ("SESSION_IDLE_TIMEOUT", &mut self.sessions.idle_timeout_seconds),
            ("SESSION_MAX_LIFETIME", &mut self.sessions.max_lifetime_seconds),
        ] {
            let Some((place, value)) = around.setting(end) else { continue };
            match value.trim().parse() {
                Ok(seconds) if (1..=most_seconds()).contains(&seconds) => *into = seconds,
                _ => {
                    let problem = format!("{} is no number of seconds", shown(value));
                    let accepted = format!("1 to {}", most_seconds());
                    self.problems.push(DefinitionProblem { place, key: String::new(), problem, accepted });
                }
            }
        }
    }
}

/// The mistakes of a project that code may write: it is no project but more, or what is in it decides about later runs and cannot
/// be made read-only as a whole.
fn unwritable(project: &Project, all: &[Environment], around: &Surroundings) -> Vec<DefinitionProblem> {
    let at = Path::new(&project.path);
    let problem = |problem: String, accepted: &str| DefinitionProblem {
        place: project.path.clone(),
        key: "project.access".into(),
        problem: format!("is \"rw\", and {problem}"),
        accepted: accepted.into(),
    };
    let temporary = around.variables.get("TMPDIR").map(String::as_str);
    let mut found = Vec::new();
    if let Some(home) = project_directory::home_in(&project.path, &around.homes) {
        found.push(problem(format!("the home {home} is or lies there"), "the directory of a project"));
    } else if project_directory::holds_more(&project.path, &around.homes, temporary) {
        found.push(problem("more lies there than code should write".into(), "the directory of a project"));
    }
    if project.use_flake {
        let why = "its flake, which code could then rewrite, is evaluated outside of the sandbox";
        found.push(problem(why.into(), "\"ro\" or \"cow\"; or use_flake = false"));
    }
    for one in all {
        let venv = one.overrides.venv.as_deref().map(lexical);
        if let Some(venv) = venv.filter(|venv| venv.starts_with(at) && venv.symlink_metadata().is_err()) {
            let why = format!("the virtual environment {}, which code could then make, is not there", venv.display());
            found.push(problem(why, "\"ro\" or \"cow\"; or the virtual environment, made first"));
        }
        // What a profile imports lies anywhere.
        if let EnvironmentKind::Profile { file, .. } = &one.kind
            && std::fs::canonicalize(file).is_ok_and(|file| file.starts_with(at))
        {
            let why = format!("the profile of the environment `{}`, which code could then rewrite, is in it", one.name);
            found.push(problem(why, "\"ro\" or \"cow\"; or the profile in another directory"));
        }
    }
    found
}

/// The mistake of a project that uses its flake but has none.
pub(crate) fn no_flake(project: &Project) -> Option<DefinitionProblem> {
    let flake = Path::new(&project.path).join("flake.nix");
    (!flake.is_file()).then(|| DefinitionProblem {
        place: flake.display().to_string(),
        key: "project.use_flake".into(),
        problem: "is true, and the project has no such file".into(),
        accepted: "a flake.nix with a development shell, `devShells.SYSTEM.default`; or false".into(),
    })
}

fn read_capped(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    std::fs::File::open(path)?.take(LONGEST_FILE + 1).read_to_end(&mut text)?;
    Ok(text)
}

/// Whether only this user and root can write the file.
fn is_ours(metadata: &std::fs::Metadata) -> bool {
    let owner = metadata.uid();
    (owner == 0 || owner == rustix::process::geteuid().as_raw()) && metadata.mode() & 0o002 == 0
}

/// The name of a reference: the last part of its fragment, or of its path if the fragment is missing or `default`.
fn name_of(reference: &str) -> Option<String> {
    let (path, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    let end = fragment.rsplit('.').next().filter(|end| !end.is_empty() && *end != "default");
    let path = path.split('?').next().unwrap_or(path);
    let name = end.unwrap_or_else(|| path.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default());
    is_name(name).then(|| name.to_owned())
}

fn defined(definition: Definition, around: &Surroundings) -> Environment {
    let Definition { name, place, what } = definition;
    let (kind, overrides) = match what {
        Err(problems) => (EnvironmentKind::Broken(problems), Overrides::default()),
        Ok((source, overrides)) => {
            (unmade(of_source(source, &name, &place, around), &overrides, &name, &place), overrides)
        }
    };
    Environment { name, rank: Rank::Configuration, place, kind, overrides }
}

fn of_source(source: DefinitionSource, name: &str, place: &str, around: &Surroundings) -> EnvironmentKind {
    match source {
        DefinitionSource::Preset(name) => EnvironmentKind::Preset(name),
        DefinitionSource::Directory(directory) => {
            match artifact(&directory, Some(name), &around.homes, &around.store()) {
                Ok(found) => EnvironmentKind::Artifact(Box::new(found)),
                Err(mut problems) => {
                    problems.iter_mut().for_each(|problem| problem.place = format!("{place}: {}", problem.place));
                    EnvironmentKind::Broken(problems)
                }
            }
        }
        DefinitionSource::Reference(reference) => EnvironmentKind::Reference(reference),
        DefinitionSource::Flake(reference, interpreter) => EnvironmentKind::Flake { reference, interpreter },
        DefinitionSource::Profile(file, interpreter) => match std::fs::metadata(&file) {
            Ok(metadata) if metadata.is_file() => EnvironmentKind::Profile { file, interpreter },
            other => {
                let problem = match other {
                    Ok(_) => format!("{} is no regular file", shown(&file.display().to_string())),
                    Err(error) => format!("{} cannot be looked at: {error}", shown(&file.display().to_string())),
                };
                let (place, key) = (place.to_owned(), format!("environments.{name}.profile"));
                EnvironmentKind::Broken(vec![DefinitionProblem {
                    place,
                    key,
                    problem,
                    accepted: "a Nickel file".into(),
                }])
            }
        },
        DefinitionSource::Image(image, interpreter) => EnvironmentKind::Image { root: Root::Image(image), interpreter },
        DefinitionSource::ImageAt(path, interpreter) => {
            let metadata = std::fs::metadata(&path).map_err(|error| format!("cannot be looked at: {error}"));
            let found = metadata.and_then(|metadata| {
                let text = path.to_str().ok_or("is not valid UTF-8")?.to_owned();
                let text = cofferdam_policy::paths::normalize(&text).unwrap_or(text);
                match metadata.is_dir() {
                    true => Ok(Root::Directory(text)),
                    false if metadata.is_file() => Ok(Root::Image(text)),
                    false => Err("is neither a directory nor a regular file".to_owned()),
                }
            });
            match found {
                Ok(root) => EnvironmentKind::Image { root, interpreter },
                Err(problem) => {
                    let problem = format!("{} {problem}", shown(&path.display().to_string()));
                    let (place, key) = (place.to_owned(), format!("environments.{name}.image"));
                    EnvironmentKind::Broken(vec![DefinitionProblem { place, key, problem, accepted: IMAGES.into() }])
                }
            }
        }
    }
}

/// The accepted values of `image`.
const IMAGES: &str = "an image's reference such as `alpine:3.20`, or the path of a tarball or a directory, which begins \
                      with `/`, `.` or `~/`";

/// Marks an image as invalid with a backend that cannot run it: only containers can, while a directory works with others as well.
fn unmade(kind: EnvironmentKind, overrides: &Overrides, name: &str, place: &str) -> EnvironmentKind {
    let (EnvironmentKind::Image { root: Root::Image(image), .. }, Some(BackendWord::Ours(backend))) =
        (&kind, overrides.backend)
    else {
        return kind;
    };
    if backend == BackendName::Auto || backend.is_container() {
        return kind;
    }
    let containers: Vec<&str> =
        BackendName::NAMES.iter().filter(|(_, one)| one.is_container()).map(|(name, _)| *name).collect();
    let problem =
        format!("`{}` makes no containers, and only they are made of the image {}", backend.name(), shown(image));
    let accepted = format!("{}; or an image that is a directory", containers.join(", "));
    let (place, key) = (place.to_owned(), format!("environments.{name}.backend"));
    EnvironmentKind::Broken(vec![DefinitionProblem { place, key, problem, accepted }])
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

fn of_bundle(one: Bundled, place: &str, name: &str, around: &Surroundings) -> EnvironmentKind {
    let program = PathBuf::from(&one.program);
    let programs = [Some(one.program.as_str()), one.session_program.as_deref()];
    let store =
        Some(around.store()).filter(|store| programs.iter().flatten().any(|one| Path::new(one).starts_with(store)));
    let unavailable = one.metadata.microvm.then(|| NO_MICROVM.to_owned());
    if !is_program(&program) && unavailable.is_none() {
        let (place, key) = (place.to_owned(), format!("environments.{name}.exec"));
        let problem = format!("{} is no executable file", shown(&one.program));
        return EnvironmentKind::Broken(vec![DefinitionProblem {
            place,
            key,
            problem,
            accepted: "the path of a program".into(),
        }]);
    }
    let session_program = one.session_program.map(PathBuf::from);
    if let Some(program) = session_program.as_ref().filter(|program| unavailable.is_none() && !is_program(program)) {
        let (place, key) = (place.to_owned(), format!("environments.{name}.session_exec"));
        let problem = format!("{} is no executable file", shown(&program.display().to_string()));
        return EnvironmentKind::Broken(vec![DefinitionProblem {
            place,
            key,
            problem,
            accepted: "the path of a program".into(),
        }]);
    }
    let metadata = one.metadata;
    EnvironmentKind::Artifact(Box::new(Artifact {
        directory: None,
        program,
        session_program,
        store,
        metadata,
        nests: false,
        unavailable,
    }))
}
