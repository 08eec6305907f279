//! The configuration of a guard: complete data. Reads no file and decides nothing; `config_serde` is its form in TOML
//! and JSON.

use std::collections::BTreeMap;

use cofferdam_policy::{Limits, NetworkMode, Policy};
use serde::{Deserialize, Serialize};

/// What a guarded command may do with files, by the names that the modes of `cofferdam-command` have in configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It writes in the workspace only. With [`GuardConfig::enforce_reads`] it reads there and in the system only, too.
    #[default]
    Sandbox,
    /// It reads everywhere that is not blocked, and writes in the workspace only.
    Rx,
    /// Nothing would be enforced: refused when the guard is built.
    Rwx,
}

/// One entry of the allowlist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// A name that is looked up in the guard's PATH, or an absolute path.
    pub command: String,
    /// A regular expression that the whole line of arguments has to match; none allows any. The line is the arguments
    /// with a space between them; one that is empty, or has a character beyond `A-Za-z0-9_@%+=:,./-`, stands in it in
    /// single quotes, as a shell would need it, so that no argument can pass for two.
    pub args: Option<String>,
    /// Arguments that `args` must match, or the guard is not built.
    pub matches: Vec<Vec<String>>,
    /// Arguments that `args` must not match, or the guard is not built.
    pub not_matches: Vec<Vec<String>>,
}

impl Rule {
    /// A rule that allows a command with any arguments.
    pub fn any(command: &str) -> Rule {
        Rule { command: command.to_owned(), ..Rule::default() }
    }
}

/// Everything that a guard enforces. [`Default`] denies all commands, and has the documented limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardConfig {
    /// Whether anything is executed at all.
    pub enabled: bool,
    /// What commands may do with files.
    pub mode: Mode,
    /// In `sandbox` mode: whether the kernel limits reading to the workspace and the system's programs.
    pub enforce_reads: bool,
    /// What may be executed; empty denies all.
    pub allowed_commands: Vec<Rule>,
    /// What can be neither read nor written by anything that a command starts, whether it exists or not. Absolute, or
    /// beginning with `~/`.
    pub blocked_paths: Vec<String>,
    /// Wall time of one command, seconds.
    pub max_execution_time_secs: u64,
    /// Bytes kept of standard output and standard error together.
    pub max_output_bytes: u64,
    /// What a command may start in turn, by the command's name in its rule: names, absolute paths, or absolute
    /// directories that end in `/` with all programs in them. What stands here replaces what is built in; the entry
    /// [`BUILT_IN`](super::BUILT_IN) puts that back.
    pub helpers: BTreeMap<String, Vec<String>>,
    /// Commands, by their names in their rules, that may also execute what lies in the workspace: build scripts, tests,
    /// `node_modules/.bin`. What writes there can then run any program that it can copy.
    pub workspace_programs: Vec<String>,
    /// Directories that commands may write besides the workspace.
    pub writable: Vec<String>,
    /// What commands may reach over the network.
    pub network: NetworkMode,
    /// Variables that are handed on although they would be stripped.
    pub keep_variables: Vec<String>,
    /// Variables that are stripped besides the built-in list.
    pub strip_variables: Vec<String>,
    /// Whether root may build a guard.
    pub run_as_root: bool,
    /// Budgets of one command; wall time and output are those above.
    pub limits: Limits,
}

impl Default for GuardConfig {
    fn default() -> Self {
        // A build needs more than a snippet; limits that were not configured are enforced as far as the host allows.
        let limits = Limits { memory_mb: 4096, cpu_seconds: 600, processes: 512, ..Policy::base().limits };
        GuardConfig {
            enabled: true,
            mode: Mode::default(),
            enforce_reads: false,
            allowed_commands: Vec::new(),
            blocked_paths: Vec::new(),
            max_execution_time_secs: 30,
            max_output_bytes: 1 << 20,
            helpers: BTreeMap::new(),
            workspace_programs: Vec::new(),
            writable: Vec::new(),
            network: NetworkMode::None,
            keep_variables: Vec::new(),
            strip_variables: Vec::new(),
            run_as_root: false,
            limits,
        }
    }
}
