//! The protocol between callers and the evaluator: one request as JSON on its standard input, and one message per line of JSON on
//! its standard output.
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

/// The format of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputFormat {
    /// The complete policy.
    Policy,
    /// nsjail's configuration as data, for 3.5 and later.
    Nsjail,
    /// nsjail's configuration in its text format, for 3.4.
    NsjailText,
    /// A Seatbelt profile.
    Seatbelt,
    /// The evaluated profile itself, as the `nickel` command exports it.
    Raw,
}

impl OutputFormat {
    /// All formats, in the order of the help text.
    pub const ALL: &'static [OutputFormat] = &[
        OutputFormat::Policy,
        OutputFormat::Nsjail,
        OutputFormat::NsjailText,
        OutputFormat::Seatbelt,
        OutputFormat::Raw,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            OutputFormat::Policy => "policy",
            OutputFormat::Nsjail => "nsjail",
            OutputFormat::NsjailText => "nsjail-text",
            OutputFormat::Seatbelt => "seatbelt",
            OutputFormat::Raw => "raw",
        }
    }

    /// Whether it is text of its own syntax, which has no encoding.
    pub fn is_text(self) -> bool {
        matches!(self, OutputFormat::NsjailText | OutputFormat::Seatbelt)
    }
}

/// The encoding of data.
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
    /// All encodings.
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

/// The one request of an evaluator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Request", deny_unknown_fields)]
pub struct EvaluatorRequest {
    /// The directories that can be read, each by its name and its location. No other files are read.
    pub dirs: Vec<EvaluatorDirectory>,
    /// The jobs, in order.
    pub jobs: Vec<EvaluationJob>,
    /// Address space of the evaluator, bytes; 0 leaves it as it is.
    #[serde(default)]
    pub address_space: u64,
    /// CPU time of the evaluator, seconds; 0 leaves it as it is.
    #[serde(default)]
    pub cpu_seconds: u64,
}

/// A directory, by its name for users and its location for the evaluator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Dir", deny_unknown_fields)]
pub struct EvaluatorDirectory {
    /// Absolute, without `.`, `..` and links: its name in imports and messages.
    pub name: PathBuf,
    /// Its path for the evaluator.
    pub at: PathBuf,
}

/// A profile to evaluate, and the requested outputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Job", deny_unknown_fields)]
pub struct EvaluationJob {
    /// The profile, absolute, in one of the directories.
    pub file: PathBuf,
    /// Directories, out of those of the request, from which it may import.
    pub imports: Vec<PathBuf>,
    /// Values set from outside, before any contract is applied.
    #[serde(default)]
    pub overrides: Vec<Override>,
    /// The requested outputs, in the order of the results.
    pub outputs: Vec<RequestedOutput>,
}

/// A requested output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename = "Wanted", deny_unknown_fields)]
pub struct RequestedOutput {
    /// Its format.
    pub format: OutputFormat,
    /// Its encoding, which text formats ignore.
    #[serde(default)]
    pub encoding: Encoding,
}

/// A field of the profile, and the value that overrides its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// The path of the field, never empty.
    pub path: Vec<String>,
    /// The value as a Nickel expression that imports nothing.
    pub value: String,
}

/// One message of the evaluator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluatorMessage {
    /// The job of that index has begun.
    Begun(usize),
    /// A job is done.
    Done {
        /// Its index.
        job: usize,
        /// Its result.
        result: EvaluationResult,
    },
    /// The request itself is invalid.
    Refused(String),
}

/// The result of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationResult {
    /// It was evaluated.
    Ok(Evaluated),
    /// It was not evaluated.
    Error(EvaluationProblem),
}

/// An evaluated profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluated {
    /// The outputs in the requested order: texts that end with a newline, or why the target cannot have one.
    pub outputs: Vec<std::result::Result<String, String>>,
    /// What a target cannot express.
    pub warnings: Vec<String>,
    /// All files that were read for it, except those of the library.
    pub files: Vec<FileSeen>,
    /// Paths that were looked up and did not exist; existing, they would have taken precedence.
    pub absent: Vec<PathBuf>,
}

/// A file as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeen {
    /// Its name.
    pub path: PathBuf,
    /// Its identity.
    pub identity: FileStamp,
    /// SHA-256 of the bytes that were read, hexadecimal.
    pub sha256: String,
}

/// Identifies the state of a file without reading it (stat(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the content, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last change of content or metadata (ctime), nanoseconds since 1970. Programs cannot set it.
    pub ctime_ns: i64,
}

/// Why a profile was not evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluationProblem {
    /// The kind of problem.
    pub kind: ProblemKind,
    /// The reason; several lines if Nickel shows the source.
    pub message: String,
    /// A hint for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// Nickel refuses it: syntax, types, a contract, a missing import.
    Nickel,
    /// A file cannot be read.
    Unreadable,
    /// Too many bytes.
    TooLarge,
    /// Nested too deeply.
    TooDeep,
    /// An import outside the allowed directories.
    Import,
    /// It evaluates to an invalid policy.
    Policy,
    /// The target cannot express what the profile requires.
    Target,
    /// An override cannot be parsed.
    Override,
}
