//! Environments: named places to run code. Their definitions are read, checked and put into one order of precedence here;
//! `spec` has what one sets in a policy.
//!
//! ```text
//! command line (a path) ─┐
//! configuration file     ├─ load ─▶ Environments ─ find(name) ─▶ Environment ─ spec ─▶ Policy, and how code is passed
//! references of a variable│          (errors, all at once, beside them)
//! registry directories   │
//! bundled metadata       │
//! presets               ─┘
//! ```
//!
//! A name means its first definition in this order, even if that is invalid: an invalid definition never gives way to one of lower
//! precedence. Runs nothing but `nix`, and only when asked to.

mod artifact;
mod built;
mod code_slot;
mod credentials;
pub mod discover;
mod file;
mod hint_wording;
mod home_links;
mod lacking;
mod metadata;
pub mod nix;
pub mod packages;
mod preset;
mod shell;
mod sources;
mod spec;
mod surroundings;

use std::fmt;
use std::path::PathBuf;

use cofferdam_policy::{Access, AllowRule, BackendName, FileIdentity, HttpUrl, NetworkMode, Root};

pub use artifact::{Artifact, artifact};
pub use built::{BuildError, Builders, as_known, build_environment, build_project_shell};
pub use credentials::{HomeListings, apply, credentials, credentials_of, deny_dot_names, deny_moved, eval_base};
pub use file::{Parsed, parse};
pub use hint_wording::in_definition;
pub use home_links::led_by_a_home;
pub use lacking::hints;
pub use metadata::{Metadata, SessionAgent, StdinMode, bundled, metadata};
pub use preset::{CodeSource, PresetError, image_preset, preset};
pub use shell::Shell;
pub use sources::{EnvironmentLookup, Environments};
pub use spec::{CodeInput, CodeSlot, EnvironmentSpec, LONGEST_ARGUMENT, WORKSPACE, spec};
pub use surroundings::{InterpreterSurroundings, ObserveError, Surroundings};

/// The presets, which work without a definition.
pub const PRESETS: &[&str] = &["python", "shell", "node"];

/// Longest configuration or metadata file, bytes.
pub(crate) const LONGEST_FILE: u64 = 1 << 20;

/// A mistake in a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionProblem {
    /// The file, with its line if known, or the variable.
    pub place: String,
    /// The key, dotted; empty for the whole file or variable.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be accepted; empty if nothing would be.
    pub accepted: String,
}

impl fmt::Display for DefinitionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)?;
        if !self.accepted.is_empty() {
            write!(f, "; accepted: {}", self.accepted)?;
        }
        Ok(())
    }
}

/// Where a definition comes from, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The path of an artifact, on the command line.
    CommandLine,
    /// The configuration file.
    Configuration,
    /// A flake reference of `COFFERDAM_ENVS`.
    References,
    /// A registry directory, by its order of precedence.
    Registry(u8),
    /// `COFFERDAM_METADATA`.
    Bundled,
    /// Built in.
    Preset,
}

impl Rank {
    /// The source in a word.
    pub fn word(self) -> &'static str {
        match self {
            Rank::CommandLine => "command line",
            Rank::Configuration => "configuration",
            Rank::References => "references",
            Rank::Registry(_) => "registry",
            Rank::Bundled => "bundled",
            Rank::Preset => "built in",
        }
    }
}

/// A defined environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Its name.
    pub name: String,
    /// The precedence of its definition.
    pub rank: Rank,
    /// The file with its line, the directory, or the variable that defines it.
    pub place: String,
    /// What runs its code.
    pub kind: EnvironmentKind,
    /// The definition's other settings.
    pub overrides: Overrides,
}

/// What runs an environment's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentKind {
    /// An interpreter of the host: one of [`PRESETS`].
    Preset(String),
    /// A checked artifact.
    Artifact(Box<Artifact>),
    /// A flake reference that is built into an artifact on first use.
    Reference(String),
    /// A flake reference that is built into a package with programs, and the interpreter in it.
    Flake {
        /// The reference.
        reference: String,
        /// The interpreter's words.
        interpreter: Vec<String>,
    },
    /// A Nickel profile, and the interpreter if that is not the profile's command.
    Profile {
        /// The file, absolute.
        file: PathBuf,
        /// The interpreter's words; empty for the profile's own command.
        interpreter: Vec<String>,
    },
    /// A container image, or a directory with the tree of one, and the interpreter in it.
    Image {
        /// The root: an image, or a directory of the host.
        root: Root,
        /// The interpreter's words; empty for the image's shell.
        interpreter: Vec<String>,
    },
    /// A definition with mistakes. It keeps its name, so that no definition of lower precedence replaces it.
    Broken(Vec<DefinitionProblem>),
}

impl EnvironmentKind {
    /// The kind in a word, as the configuration names it.
    pub fn word(&self) -> &'static str {
        match self {
            EnvironmentKind::Preset(_) => "preset",
            EnvironmentKind::Artifact(_) | EnvironmentKind::Reference(_) => "sandbox",
            EnvironmentKind::Flake { .. } => "flake",
            EnvironmentKind::Profile { .. } => "profile",
            EnvironmentKind::Image { .. } => "image",
            EnvironmentKind::Broken(_) => "broken",
        }
    }
}

/// The settings of a definition. They are named explicitly, so they must be enforced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// Of a preset: the interpreter's words, in place of what the preset finds; empty for what it finds.
    pub interpreter: Vec<String>,
    /// Of the preset `python`: the virtual environment whose interpreter runs the code, absolute.
    pub venv: Option<PathBuf>,
    /// Of the preset `python`: the packages that it has.
    pub packages: Packages,
    /// Wall time of a run, seconds.
    pub timeout_seconds: Option<u64>,
    /// Memory of a run, MiB.
    pub memory_mb: Option<u64>,
    /// The network.
    pub network: Option<NetworkMode>,
    /// The hosts that it reaches; with any, it is an allowlist.
    pub allow: Vec<AllowRule>,
    /// A description, for display.
    pub description: Option<String>,
    /// The backend.
    pub backend: Option<BackendWord>,
    /// Whether programs may create nested sandboxes.
    pub nesting: bool,
}

/// Packages of a Python environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packages {
    /// Their names, with extras and versions.
    pub names: Vec<String>,
    /// The index that they come from; none for PyPI. It has no credentials.
    pub index: Option<HttpUrl>,
    /// Other hosts that are reached for them, at any address: those of `allow_private`.
    pub besides: Vec<AllowRule>,
}

/// A backend as a definition names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendWord {
    /// One of ours.
    Ours(BackendName),
    /// Virtual machines, which are not implemented yet.
    Microvm,
}

/// Why `microvm` environments are unavailable.
pub(crate) const NO_MICROVM: &str = "its backend is `microvm`, and no backend runs virtual machines";

impl Environment {
    /// Whether something of it is built before its first use: a flake, or its packages.
    pub fn is_built(&self) -> bool {
        let flake = matches!(self.kind, EnvironmentKind::Reference(_) | EnvironmentKind::Flake { .. });
        flake || !self.overrides.packages.names.is_empty()
    }

    /// Why it is unavailable: the mistakes of an invalid definition, or the reason why a valid one cannot be used.
    pub fn unavailable(&self) -> Option<String> {
        if let EnvironmentKind::Broken(problems) = &self.kind {
            return Some(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
        let of_artifact = match &self.kind {
            EnvironmentKind::Artifact(artifact) => {
                artifact.unavailable.clone().or_else(|| self.ungranted_nesting(artifact))
            }
            _ => None,
        };
        match self.overrides.backend {
            Some(BackendWord::Microvm) => Some(NO_MICROVM.into()),
            _ => of_artifact,
        }
    }

    /// Why an artifact that creates nested sandboxes is unavailable: it cannot grant itself that.
    fn ungranted_nesting(&self, artifact: &Artifact) -> Option<String> {
        if !artifact.nests || self.overrides.nesting {
            return None;
        }
        let reason = "its bin/run calls bwrap, which makes a sandbox inside this one, and nested sandboxes are not granted: they \
                    cost the Landlock rules behind the mounts. Let bin/run start the interpreter itself, or grant them: ";
        let directory = artifact.directory.as_deref().unwrap_or(&artifact.program).display().to_string();
        Some(match self.rank {
            Rank::CommandLine => format!("{reason}--nested-sandboxes"),
            Rank::Configuration => format!("{reason}nesting = true in [environments.{}]", self.name),
            _ => {
                let name = if self.name.contains('.') { format!("\"{}\"", self.name) } else { self.name.clone() };
                format!(
                    "{reason}[environments.{name}] with sandbox = {directory:?} and nesting = true, in the configuration"
                )
            }
        })
    }

    /// The description of the definition, or of the artifact.
    pub fn description(&self) -> Option<&str> {
        let own = self.overrides.description.as_deref();
        own.or(match &self.kind {
            EnvironmentKind::Artifact(artifact) => artifact.metadata.description.as_deref(),
            _ => None,
        })
    }
}

/// A directory of the caller's that environments mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its path as it is configured, absolute.
    pub written: PathBuf,
    /// Absolute path on the host, without links.
    pub path: String,
    /// The directory that was there when the configuration was read.
    pub identity: FileIdentity,
    /// Absolute path inside the sandbox.
    pub mount_point: String,
    /// Whether the programs and variables of its flake's development shell are used.
    pub use_flake: bool,
    /// That shell, once it is built: see [`build_project_shell`].
    pub shell: Option<Shell>,
    /// Names of the caller's variables that are passed on.
    pub inherit_env: Vec<String>,
    /// How it is mounted.
    pub access: Access,
}

/// A project as defined.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProjectDefinition {
    /// The directory.
    pub path: PathBuf,
    /// The path inside the sandbox.
    pub mount_point: Option<String>,
    /// Whether its flake's development shell is used.
    pub use_flake: bool,
    /// Names of variables.
    pub inherit_env: Vec<String>,
    /// How it is mounted.
    pub access: Access,
}

/// The words for a project's access.
pub(crate) const PROJECT_ACCESS: &[(&str, Access)] = &[
    ("ro", Access::ReadOnly),
    ("read-only", Access::ReadOnly),
    ("cow", Access::CopyOnWrite),
    ("rw", Access::ReadWrite),
];

/// What a project's access may be, for messages.
pub(crate) const ACCESS_ACCEPTED: &str = "ro, rw, or cow";

/// The default path of a project inside the sandbox.
pub const PROJECT_MOUNT: &str = "/project";

/// The limits of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSettings {
    /// Seconds without a call until a session ends.
    pub idle_timeout_seconds: u64,
    /// Seconds until a session ends in any case.
    pub max_lifetime_seconds: u64,
    /// Most sessions of all clients at a time.
    pub max_sessions: u64,
    /// Most sessions of one client at a time.
    pub max_sessions_per_client: u64,
}

impl Default for SessionSettings {
    fn default() -> SessionSettings {
        SessionSettings {
            idle_timeout_seconds: 300,
            max_lifetime_seconds: 3600,
            max_sessions: 64,
            max_sessions_per_client: 16,
        }
    }
}

/// Whether a text is a valid environment name.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(plain) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Whether a text is a valid variable name in a policy.
pub(crate) fn is_variable(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(plain) && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// The names that are accepted.
pub const NAME_ACCEPTED: &str = "1 to 64 letters, digits, `-`, `_` or `.`, of which the first is a letter or digit";

/// Splits an interpreter's command line into words.
pub(crate) fn interpreter_words(text: &str) -> Result<Vec<String>, &'static str> {
    if text.contains(['\'', '"', '\\', '$', '`', '\0']) {
        return Err("has quotes or other characters of a shell in it, and no shell reads it");
    }
    let words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Err("is empty") } else { Ok(words) }
}

/// How code reaches an interpreter by default: as an argument if its command ends in `-c` or `-e`, else on standard input.
pub(crate) fn stdin_mode_of(interpreter: &str) -> StdinMode {
    let is_argument = interpreter.ends_with("-c") || interpreter.ends_with("-e");
    if is_argument { StdinMode::Arg } else { StdinMode::Pipe }
}

/// A text for a message: quoted, on one line, without control characters, shortened.
pub(crate) fn shown(text: &str) -> String {
    cofferdam_policy::text::name(text)
}
