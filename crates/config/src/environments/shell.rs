//! The development shell of a project's flake: Nix's description of it, and the part that environments use.
//!
//! The flake is as untrusted as the project, so it cannot make a sandbox show more of the host than the Nix store: of its PATH only
//! directories of the store are used, and its variables are text for the program inside. Its `shellHook` is not run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// Longest description of a shell, bytes.
pub(super) const LONGEST: u64 = 8 << 20;
/// Longest value of a variable, bytes: the kernel's limit is 128 KiB (execve(2)).
const LONGEST_VALUE: usize = 100 << 10;
/// Variables that are not used: those of the build itself, those that `nix develop` ignores, and those that the sandbox sets.
const IGNORED: [&str; 36] = [
    "BASHOPTS",
    "EUID",
    "HOME",
    "IFS",
    "IN_NIX_SHELL",
    "LOGNAME",
    "NIX_BUILD_CORES",
    "NIX_BUILD_TOP",
    "NIX_ENFORCE_PURITY",
    "NIX_LOG_FD",
    "NIX_REMOTE",
    "NIX_STORE",
    "OLDPWD",
    "PATH",
    "PPID",
    "PROJECT_DIR",
    "PROJECT_MOUNT",
    "PWD",
    "SHELL",
    "SHELLOPTS",
    "SHLVL",
    "SSL_CERT_FILE",
    "TEMP",
    "TEMPDIR",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "UID",
    "USER",
    "_",
    "builder",
    "dontAddDisableDepTrack",
    "out",
    "outputs",
    "shellHook",
];

/// The part of a development shell that is added to an environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shell {
    /// Directories of the store that are put first in PATH.
    pub path: Vec<String>,
    /// Variables, which replace none of the environment's.
    pub variables: BTreeMap<String, String>,
    /// The store, which is mounted.
    pub store: String,
}

#[derive(Deserialize)]
struct Dump {
    variables: BTreeMap<String, Variable>,
}

#[derive(Deserialize)]
struct Variable {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    value: serde_json::Value,
}

impl Shell {
    /// Parses Nix's description of a shell (`nix print-dev-env`). `is_directory` tells existing directories of the store.
    ///
    /// # Errors
    /// It is not such a description.
    pub fn parse(json: &[u8], store: &str, is_directory: impl Fn(&str) -> bool) -> Result<Shell, String> {
        let dump: Dump = serde_json::from_slice(json).map_err(|error| format!("it is not understood: {error}"))?;
        let mut shell = Shell { store: store.to_owned(), ..Shell::default() };
        for (name, Variable { kind, value }) in dump.variables {
            let Some(value) = value.as_str().filter(|_| kind == "exported") else { continue };
            if name == "PATH" {
                let plain = |entry: &&str| {
                    Path::new(entry)
                        .components()
                        .all(|part| matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)))
                };
                let below = |entry: &&str| entry.strip_prefix(store).is_some_and(|rest| rest.starts_with('/'));
                let entries = value.split(':').filter(below).filter(plain).filter(|entry| is_directory(entry));
                shell.path.extend(entries.map(str::to_owned));
            } else if is_taken(&name) && value.len() <= LONGEST_VALUE && is_text(value) {
                shell.variables.insert(name, value.to_owned());
            }
        }
        Ok(shell)
    }
}

fn is_taken(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.len() <= 256
        && name.starts_with(begins)
        && name.chars().all(word)
        && !name.starts_with("COFFERDAM_")
        && !IGNORED.contains(&name)
}

fn is_text(value: &str) -> bool {
    !value.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(variables: &str) -> Shell {
        let text = format!(r#"{{"bashFunctions": {{}}, "variables": {{{variables}}}}}"#);
        Shell::parse(text.as_bytes(), "/nix/store", |path| !path.contains("missing")).unwrap()
    }

    #[test]
    fn path_is_taken_in_the_store_alone() {
        let shell = parse(
            r#""PATH": {"type": "exported", "value": "/nix/store/a/bin:/usr/bin:/home/u/bin:bin::/nix/storeX/b:/nix/store/../../etc:/nix/store/missing/bin:/nix/store/c/bin"}"#,
        );
        assert_eq!(shell.path, ["/nix/store/a/bin", "/nix/store/c/bin"]);
        assert!(shell.variables.is_empty());
    }

    #[test]
    fn variables_exclude_those_of_the_build_and_the_sandbox() {
        let shell = parse(
            r#""GREETING": {"type": "exported", "value": "hello\nyou"}, "HOME": {"type": "exported", "value": "/homeless-shelter"},
               "local": {"type": "var", "value": "x"}, "list": {"type": "array", "value": ["a"]}, "number": {"type": "exported", "value": 1},
               "COFFERDAM_BACKEND": {"type": "exported", "value": "landlock"}, "a=b": {"type": "exported", "value": "x"},
               "ESC": {"type": "exported", "value": "\u001b[31m"}, "NUL": {"type": "exported", "value": "a\u0000b"},
               "out": {"type": "exported", "value": "/nix/store/x"}, "_9": {"type": "exported", "value": ""}"#,
        );
        let names: Vec<&str> = shell.variables.keys().map(String::as_str).collect();
        assert_eq!(names, ["GREETING", "_9"]);
        let long = format!(r#""L": {{"type": "exported", "value": "{}"}}"#, "x".repeat(LONGEST_VALUE + 1));
        assert!(parse(&long).variables.is_empty());
    }

    #[test]
    fn what_is_no_description_is_refused() {
        for text in ["", "{}", "[]", r#"{"variables": []}"#, r#"{"variables": {"a": 1}}"#] {
            assert!(Shell::parse(text.as_bytes(), "/nix/store", |_| true).is_err(), "{text}");
        }
    }
}
