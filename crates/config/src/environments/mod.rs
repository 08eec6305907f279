//! Environments: named places to run code. What defines them is read here, checked, and put in one order; what one comes
//! to as a policy is in `recipe`.
//!
//! ```text
//! command line (a path) ─┐
//! configuration file     ├─ load ─▶ Environments ─ find(name) ─▶ Environment ─ recipe ─▶ Policy, and how the code goes in
//! references of a variable│          (errors, all at once, beside them)
//! registry directories   │
//! bundled metadata       │
//! presets               ─┘
//! ```
//!
//! The first in this order that has a name is who the name means, also when it is broken: a broken definition never gives
//! way to a weaker one below it. Runs nothing but `nix build`, and that only when asked to.

mod artifact;
mod base;
pub mod discover;
mod entry;
mod file;
mod hints;
mod metadata;
pub mod nix;
mod preset;
mod recipe;
mod shell;
mod sources;

use std::fmt;
use std::path::PathBuf;

use cofferdam_policy::{Backend, NetworkMode, Root};

pub use artifact::{Artifact, NIX_STORE, artifact};
pub use base::{
    ObserveError, Unbuilt, as_known, credentials, deny_dot_names, deny_moved, developed, dress, eval_base, ready,
};
pub use entry::Entry;
pub use file::{Parsed, parse};
pub use hints::in_definition;
pub use metadata::{Metadata, SessionAgent, StdinMode, bundled, metadata};
pub use preset::{Code, PresetError, image_preset, preset};
pub use recipe::{INSIDE, LONGEST_ARGUMENT, Passing, Recipe, WORKSPACE, recipe};
pub use shell::Shell;
pub use sources::{Around, Environments, Found, Surroundings, no_flake};

/// The presets, which work without a definition.
pub const PRESETS: &[&str] = &["python", "shell", "node"];

/// Longest file that is read for a configuration or for metadata, bytes.
pub const LONGEST_FILE: u64 = 1 << 20;

/// One mistake in what defines environments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, with its line where that is known, or the variable.
    pub place: String,
    /// The key, dotted; empty for the whole place.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be accepted; empty where nothing would be.
    pub accepted: String,
}

impl fmt::Display for Problem {
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

/// Where a definition stands; the earlier, the stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The path of an artifact, on the command line.
    CommandLine,
    /// The configuration file.
    Configuration,
    /// A flake reference of `COFFERDAM_ENVS`.
    References,
    /// A registry directory; those named first are the stronger.
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
    /// How strong its definition is.
    pub rank: Rank,
    /// The file with its line, the directory, or the variable that defines it.
    pub place: String,
    /// What runs its code.
    pub kind: Kind,
    /// What the definition says besides.
    pub overrides: Overrides,
}

/// What runs an environment's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An interpreter of the host: one of [`PRESETS`].
    Preset(String),
    /// A checked artifact.
    Artifact(Box<Artifact>),
    /// A flake reference that is built into an artifact on first use.
    Reference(String),
    /// A flake reference that is built into a package with programs, and what of it runs code.
    Flake {
        /// The reference.
        reference: String,
        /// The interpreter's words.
        interpreter: Vec<String>,
    },
    /// A Nickel profile, and the interpreter where its own command is not it.
    Profile {
        /// The file, absolute.
        file: PathBuf,
        /// The interpreter's words; empty for the profile's own command.
        interpreter: Vec<String>,
    },
    /// An image that containers are made of, or a directory that is one, and what of it runs code.
    Image {
        /// What `/` is: an image, or a directory of the host.
        root: Root,
        /// The interpreter's words; empty for the image's shell.
        interpreter: Vec<String>,
    },
    /// A definition with mistakes in it. It keeps its name, so that nothing weaker takes its place.
    Broken(Vec<Problem>),
}

impl Kind {
    /// The kind in a word, as the configuration names it.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Preset(_) => "preset",
            Kind::Artifact(_) | Kind::Reference(_) => "sandbox",
            Kind::Flake { .. } => "flake",
            Kind::Profile { .. } => "profile",
            Kind::Image { .. } => "image",
            Kind::Broken(_) => "broken",
        }
    }
}

/// What a definition sets besides where its code runs. What stands here, a person named: it must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// Wall time of a run, seconds.
    pub timeout_seconds: Option<u64>,
    /// Memory of a run, MiB.
    pub memory_mb: Option<u64>,
    /// The network.
    pub network: Option<NetworkMode>,
    /// For people.
    pub description: Option<String>,
    /// The backend.
    pub backend: Option<BackendWord>,
    /// Whether programs may make sandboxes of their own inside.
    pub nesting: bool,
}

/// A backend as a definition names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendWord {
    /// One of ours.
    Ours(Backend),
    /// Virtual machines, which are not there yet.
    Microvm,
}

/// Why microvm environments do not run.
pub const NO_MICROVM: &str = "its backend is `microvm`, and no backend runs virtual machines";

impl Environment {
    /// Why it cannot be used, although its definition is right; and the mistakes of a broken one.
    pub fn unavailable(&self) -> Option<String> {
        if let Kind::Broken(problems) = &self.kind {
            return Some(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
        let of_artifact = match &self.kind {
            Kind::Artifact(artifact) => artifact.unavailable.clone().or_else(|| self.no_room(artifact)),
            _ => None,
        };
        match self.overrides.backend {
            Some(BackendWord::Microvm) => Some(NO_MICROVM.into()),
            _ => of_artifact,
        }
    }

    /// An artifact does not grant itself what it needs.
    fn no_room(&self, artifact: &Artifact) -> Option<String> {
        if !artifact.nests || self.overrides.nesting {
            return None;
        }
        let told = "its bin/run calls bwrap, which makes a sandbox inside this one, and nested sandboxes are not granted: they \
                    cost the Landlock rules behind the mounts. Let bin/run start the interpreter itself, or grant them: ";
        let directory = artifact.directory.as_deref().unwrap_or(&artifact.program).display().to_string();
        Some(match self.rank {
            Rank::CommandLine => format!("{told}--nested-sandboxes"),
            Rank::Configuration => format!("{told}nesting = true in [environments.{}]", self.name),
            _ => {
                let name = if self.name.contains('.') { format!("\"{}\"", self.name) } else { self.name.clone() };
                format!(
                    "{told}[environments.{name}] with sandbox = {directory:?} and nesting = true, in the configuration"
                )
            }
        })
    }

    /// What it is for, for people: the definition's own words, or the artifact's.
    pub fn description(&self) -> Option<&str> {
        let own = self.overrides.description.as_deref();
        own.or(match &self.kind {
            Kind::Artifact(artifact) => artifact.metadata.description.as_deref(),
            _ => None,
        })
    }
}

/// A directory of the caller's that environments show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Absolute path on the host.
    pub path: String,
    /// Absolute path inside.
    pub mount_point: String,
    /// Whether the programs and variables of its flake's development shell are there.
    pub use_flake: bool,
    /// That shell, once it is built: see [`developed`].
    pub shell: Option<Shell>,
    /// Names of the caller's variables that go in.
    pub inherit_env: Vec<String>,
    /// Whether code may change it, in a copy that goes with the run. It is read-only otherwise.
    pub copy_on_write: bool,
}

/// A project as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The directory.
    pub path: PathBuf,
    /// Where it is inside.
    pub mount_point: Option<String>,
    /// Whether its flake's programs are meant to be there.
    pub use_flake: bool,
    /// Names of variables.
    pub inherit_env: Vec<String>,
    /// Whether code may change a copy.
    pub copy_on_write: bool,
}

/// What may be said of how code may use a project: the words, and whether that is a copy.
pub(crate) const PROJECT_ACCESS: &[(&str, bool)] = &[("ro", false), ("read-only", false), ("cow", true)];

/// Where a project is inside, unless somebody says otherwise.
pub const PROJECT_MOUNT: &str = "/project";

/// How long sessions live, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sessions {
    /// Seconds without a call.
    pub idle_timeout_seconds: u64,
    /// Seconds altogether.
    pub max_lifetime_seconds: u64,
    /// Of all clients at a time.
    pub max_sessions: u64,
    /// Of one client at a time.
    pub max_sessions_per_client: u64,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            idle_timeout_seconds: 300,
            max_lifetime_seconds: 3600,
            max_sessions: 64,
            max_sessions_per_client: 16,
        }
    }
}

/// Whether a text is a name that an environment can have.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(plain) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Whether a text is the name that a variable can have in a policy.
pub(crate) fn is_variable(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(plain) && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// What is accepted as a name.
pub const NAME_ACCEPTED: &str = "1 to 64 letters, digits, `-`, `_` or `.`, of which the first is a letter or digit";

/// An interpreter as people write it, as words.
pub(crate) fn interpreter_words(text: &str) -> Result<Vec<String>, &'static str> {
    if text.contains(['\'', '"', '\\', '$', '`', '\0']) {
        return Err("has quotes or other characters of a shell in it, and no shell reads it");
    }
    let words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Err("is empty") } else { Ok(words) }
}

/// How code reaches an interpreter that nobody said it of: as an argument behind `-c` or `-e`, else on standard input.
pub fn stdin_mode_of(interpreter: &str) -> StdinMode {
    let is_argument = interpreter.ends_with("-c") || interpreter.ends_with("-e");
    if is_argument { StdinMode::Arg } else { StdinMode::Pipe }
}

/// A text for a message: one line, without control characters, shortened.
pub(crate) fn shown(text: &str) -> String {
    cofferdam_policy::text::name(text)
}
