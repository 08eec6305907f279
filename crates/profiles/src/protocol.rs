//! What the callers and the evaluator say to each other: one request as JSON on its standard input, one answer per line
//! of JSON on its standard output.
//!
//! ```text
//! {"dirs": […], "jobs": [{"file": …}, …]}   ─▶  {"begun": 0}
//!                                                {"done": {"job": 0, "result": {"ok": …}}}
//!                                                {"begun": 1} …
//! ```
//!
//! Data only. `begun` comes before each job, so that a caller whose evaluator dies knows which file it died of.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What an output is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The complete policy.
    Policy,
    /// nsjail's configuration as data, for 3.5 and later.
    Nsjail,
    /// nsjail's configuration in its text format, for 3.4.
    NsjailText,
    /// A Seatbelt profile.
    Seatbelt,
    /// The profile itself, evaluated, as the `nickel` command exports it.
    Raw,
}

impl Format {
    /// All of them, in the order in which help shows them.
    pub const ALL: &'static [Format] =
        &[Format::Policy, Format::Nsjail, Format::NsjailText, Format::Seatbelt, Format::Raw];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Policy => "policy",
            Format::Nsjail => "nsjail",
            Format::NsjailText => "nsjail-text",
            Format::Seatbelt => "seatbelt",
            Format::Raw => "raw",
        }
    }

    /// Whether it is text in a language of its own, which no encoding changes.
    pub fn is_text(self) -> bool {
        matches!(self, Format::NsjailText | Format::Seatbelt)
    }
}

/// How data is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// JSON, indented by two.
    #[default]
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
}

impl Encoding {
    /// All of them.
    pub const ALL: &'static [Encoding] = &[Encoding::Json, Encoding::Yaml, Encoding::Toml];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Json => "json",
            Encoding::Yaml => "yaml",
            Encoding::Toml => "toml",
        }
    }
}

/// All that the evaluator is asked in its one life.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Directories that can be read, each under its own name and where it is found. Nothing else is.
    pub dirs: Vec<Dir>,
    /// What is evaluated, in order.
    pub jobs: Vec<Job>,
    /// Address space of the evaluator, bytes; 0 leaves it as it is.
    #[serde(default)]
    pub address_space: u64,
    /// CPU time of the evaluator, seconds; 0 leaves it as it is.
    #[serde(default)]
    pub cpu_seconds: u64,
}

/// A directory as people name it, and where the evaluator finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dir {
    /// Absolute, without `.`, `..` and links: its name in imports and messages.
    pub name: PathBuf,
    /// Where it is for the evaluator.
    pub at: PathBuf,
}

/// One profile and what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The profile, absolute, in one of the directories.
    pub file: PathBuf,
    /// Directories, out of those of the request, from which it may import.
    pub imports: Vec<PathBuf>,
    /// Values set from outside, before any contract is applied.
    #[serde(default)]
    pub overrides: Vec<Override>,
    /// What is wanted, answered in this order.
    pub outputs: Vec<Wanted>,
}

/// One wanted output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// What for.
    pub format: Format,
    /// How it is written; text formats take no notice.
    #[serde(default)]
    pub encoding: Encoding,
}

/// A field of the profile and the value that it gets instead of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// The names down to the field, never empty.
    pub path: Vec<String>,
    /// The value as a Nickel expression that imports nothing.
    pub value: String,
}

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The job of that index is being worked on.
    Begun(usize),
    /// What became of it.
    Done {
        /// Its index.
        job: usize,
        /// What came of it.
        result: Result,
    },
    /// The request itself is no good.
    Refused(String),
}

/// What became of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Result {
    /// It has been evaluated.
    Ok(Evaluated),
    /// It has not.
    Error(Problem),
}

/// An evaluated profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluated {
    /// The outputs in the order asked for: texts that end with a line feed, or why the target cannot have one.
    pub outputs: Vec<std::result::Result<String, String>>,
    /// What a target cannot express and goes without.
    pub warnings: Vec<String>,
    /// Every file that was read for it, library excepted.
    pub files: Vec<FileSeen>,
    /// Names that were looked for and not there: were they, they would have come first.
    pub absent: Vec<PathBuf>,
}

/// A file as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeen {
    /// Its name.
    pub path: PathBuf,
    /// Which file it was.
    pub identity: Identity,
    /// SHA-256 of the bytes that were read, hexadecimal.
    pub sha256: String,
}

/// What tells one state of a file from another without reading it (stat(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the content, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last change of anything, nanoseconds since 1970. Nobody can set it back.
    pub ctime_ns: i64,
}

/// Why a profile was not evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What sort of problem.
    pub kind: ProblemKind,
    /// The reason, several lines where Nickel shows the source.
    pub message: String,
    /// What a user can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The sorts of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Nickel refuses it: syntax, types, a contract, an import that is not there.
    Nickel,
    /// A file cannot be read.
    Unreadable,
    /// Too many bytes.
    TooLarge,
    /// Nested too deeply.
    TooDeep,
    /// An import outside the directories that are allowed.
    Import,
    /// It evaluates to a policy that is none.
    Policy,
    /// The target cannot express what the profile asks for.
    Target,
    /// A value that was set from outside cannot be read.
    Override,
}
