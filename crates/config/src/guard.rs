//! The guard's `[sandbox]` table. Other tables of the same file belong to the program and are ignored.
//!
//! ```toml
//! [sandbox]
//! mode = "sandbox"
//! allowed_commands = ["ls", "/usr/bin/grep", { command = "git", args = "status|log( .*)?", match = ["log -1"], not_match = ["push"] }]
//! blocked_paths = ["/etc/shadow", "~/.ssh"]
//! max_execution_time_secs = 30
//! max_output_bytes = 1_048_576
//! helpers = { find = ["grep"] }
//! ```

use std::path::{Path, PathBuf};

use cofferdam_guard::GuardConfig;
use serde::Deserialize;

/// Longest file that is read, bytes.
const MOST: u64 = 1 << 20;

/// Why a configuration cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is too long to be a configuration.
    #[error("{} is longer than 1 MiB", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// It is not TOML, or has an unknown key or a value of the wrong type. The error names the position.
    #[error("not a configuration of a guard: {0}")]
    Form(#[from] toml::de::Error),
    /// There is no `[sandbox]` table.
    #[error("there is no [sandbox] table\nhint: add one; an empty one denies every command")]
    NoTable,
}

/// Reads the `[sandbox]` table of a file. Missing keys have the documented defaults.
///
/// # Errors
/// The file cannot be read or is invalid.
pub fn guard_from_file(path: impl AsRef<Path>) -> Result<GuardConfig, ConfigError> {
    use std::io::Read as _;
    let path = path.as_ref();
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MOST + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MOST {
        return Err(ConfigError::TooLong { path: path.to_owned() });
    }
    guard(&text)
}

/// Parses the `[sandbox]` table of a text. Missing keys have the documented defaults.
///
/// # Errors
/// The text is invalid.
pub fn guard(text: &str) -> Result<GuardConfig, ConfigError> {
    let document: GuardDocument = toml::from_str(text)?;
    document.sandbox.ok_or(ConfigError::NoTable)
}

#[derive(Deserialize)]
struct GuardDocument {
    sandbox: Option<GuardConfig>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cofferdam_guard::{Mode, Rule};
    use cofferdam_policy::NetworkMode;

    use super::*;

    #[test]
    fn the_documented_example_and_the_defaults() {
        let text = r#"
            [other]
            key = 1
            [sandbox]
            enabled = true
            allowed_commands = ["ls", "cat", "grep", "find", "git", "cargo", "npm", "python"]
            blocked_paths = ["/etc/shadow", "/etc/passwd"]
            max_execution_time_secs = 30
            max_output_bytes = 1048576
        "#;
        let config = guard(text).unwrap();
        let commands: Vec<&str> = config.allowed_commands.iter().map(|rule| rule.command.as_str()).collect();
        assert_eq!(commands, ["ls", "cat", "grep", "find", "git", "cargo", "npm", "python"]);
        assert_eq!(config.blocked_paths, ["/etc/shadow", "/etc/passwd"]);
        let bare = guard("[sandbox]").unwrap();
        assert_eq!(bare, GuardConfig::default());
        assert_eq!((bare.enabled, bare.max_execution_time_secs, bare.max_output_bytes), (true, 30, 1 << 20));
        assert!(bare.allowed_commands.is_empty() && bare.blocked_paths.is_empty() && !bare.run_as_root);
        assert_eq!((bare.mode, bare.network), (Mode::Sandbox, NetworkMode::None));
    }

    #[test]
    fn every_key_reaches_the_guard() {
        let text = r#"
            [sandbox]
            mode = "rx"
            enabled = false
            enforce_reads = true
            allowed_commands = [{ command = "git", args = "log( .*)?", match = ["log -1", ["log", "a b"]], not_match = ["push"] }]
            helpers = { git = ["@built-in", "less"] }
            workspace_programs = ["git"]
            writable = ["/srv/out"]
            network = "host"
            keep_variables = ["A_TOKEN"]
            strip_variables = ["MINE"]
            run_as_root = true
            [sandbox.limits]
            memory_mb = 1
            cpu_seconds = 2
            cpu_millis = 3
            file_size_mb = 4
            open_files = 5
            processes = 6
            tmpfs_mb = 7
        "#;
        let config = guard(text).unwrap();
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let rule = Rule {
            command: "git".into(),
            args: Some("log( .*)?".into()),
            matches: vec![words(&["log", "-1"]), words(&["log", "a b"])],
            not_matches: vec![words(&["push"])],
        };
        let limits = cofferdam_policy::Limits {
            memory_mb: 1,
            cpu_seconds: 2,
            cpu_millis: 3,
            file_size_mb: 4,
            open_files: 5,
            processes: 6,
            tmpfs_mb: 7,
            ..GuardConfig::default().limits
        };
        let expected = GuardConfig {
            mode: Mode::Rx,
            enabled: false,
            enforce_reads: true,
            allowed_commands: vec![rule],
            helpers: BTreeMap::from([("git".into(), words(&["@built-in", "less"]))]),
            workspace_programs: words(&["git"]),
            writable: words(&["/srv/out"]),
            network: NetworkMode::Host,
            keep_variables: words(&["A_TOKEN"]),
            strip_variables: words(&["MINE"]),
            run_as_root: true,
            limits,
            ..GuardConfig::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_errors_with_position() {
        for (text, part) in [
            ("", "no [sandbox] table"),
            ("[sandbx]\nenabled = true", "no [sandbox] table"),
            ("[sandbox]\nallowed_comands = []", "allowed_comands"),
            ("[sandbox]\nmode = \"open\"", "line 2"),
            ("[sandbox]\nmode = \"Sandbox\"", "line 2"),
            ("[sandbox]\nenabled = \"yes\"", "line 2"),
            ("[sandbox]\nenabled = true\nenabled = false", "duplicate"),
            ("[sandbox]\nmax_output_bytes = -1", "line 2"),
            ("[sandbox]\nmax_execution_time_secs = \"30s\"", "line 2"),
            ("[sandbox]\nallowed_commands = [1]", "expected a command's name"),
            ("[sandbox]\nallowed_commands = [{ command = \"a\", arg = \"b\" }]", "expected a command's name"),
            ("[sandbox]\nallowed_commands = [{ args = \"b\" }]", "expected a command's name"),
            ("[sandbox]\nallowed_commands = [{ command = \"a\", args = \"b\", match = [\"'b'\"] }]", "as a list"),
            ("[sandbox]\nnetwork = \"allowlist\"", "line 2"),
            ("[sandbox]\n[sandbox.limits]\nwall_ms = 1", "wall_ms"),
            ("[sandbox", "line 1"),
            ("sandbox = true", "expected a table"),
            ("sandbox = [true, \"sandbox\", false, [\"ls\"]]", "expected a table"),
            ("[[sandbox]]\nallowed_commands = [\"ls\"]", "expected a table"),
            ("[sandbox]\nallowed_commands = [[\"ls\", \"-l\"]]", "expected a command's name"),
            ("[sandbox]\nlimits = [1, 2]", "expected a table"),
        ] {
            let error = guard(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn file_is_read_and_a_missing_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let error = guard_from_file(&path).unwrap_err();
        let reported = error.to_string();
        assert!(reported.starts_with("cannot read ") && reported.contains("config.toml"), "{reported}");
        assert!(reported.contains("No such file or directory"), "{reported}");
        let ConfigError::Unreadable { path: named, source } = error else { panic!("{reported}") };
        assert_eq!((named, source.kind()), (path.clone(), std::io::ErrorKind::NotFound));
        std::fs::write(&path, "[sandbox]\n").unwrap();
        assert_eq!(guard_from_file(&path).unwrap(), GuardConfig::default());
        std::fs::write(&path, "#".repeat(MOST as usize + 1)).unwrap();
        assert!(matches!(guard_from_file(&path), Err(ConfigError::TooLong { .. })));
    }

    #[test]
    fn modes_are_the_words_of_the_wrapper() {
        use cofferdam_command::SandboxMode;
        for (mode, here) in
            [(SandboxMode::Sandbox, Mode::Sandbox), (SandboxMode::Rx, Mode::Rx), (SandboxMode::Rwx, Mode::Rwx)]
        {
            let text = format!("[sandbox]\nmode = \"{mode}\"");
            assert_eq!(guard(&text).unwrap().mode, here);
        }
        assert_eq!(SandboxMode::default().display_name(), "sandbox");
    }
}
