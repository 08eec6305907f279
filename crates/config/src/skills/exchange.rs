//! What a caller exchanges with a skill for one run: input files, its standard input, and a directory for its results.
//!
//! Both sides decide, as for all of a skill: the command line names each file, and files need the manifest's
//! `filesystemAccess`: `true`, or a list with [`INPUT_DIRECTORY`] or [`OUTPUT_DIRECTORY`]. Pure.

use std::collections::BTreeSet;

use cofferdam_policy::{Access, Field, Mount, Policy, PolicyError, PolicyErrors, Stdin, paths};

use super::json::shown;
use super::manifest::{Manifest, Wish};

/// The directory of input files inside the sandbox, read-only, each by the last part of its path.
pub(crate) const INPUT_DIRECTORY: &str = "/input";
/// The directory inside the sandbox for the files that a skill returns.
pub(crate) const OUTPUT_DIRECTORY: &str = "/output";
/// Most bytes that a skill returns, MiB.
pub(crate) const OUTPUT_MB: u64 = 64;
/// Most files and directories that a skill returns.
pub(crate) const OUTPUT_ENTRIES: u64 = 10_000;

/// What one run exchanges with its caller; by default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillExchange {
    /// Files of the host, by absolute path.
    pub input: Vec<String>,
    /// An empty directory of the host that the skill writes to copy-on-write, by absolute path. The run retains the changes.
    pub output: Option<String>,
    /// Whether `output` does not exist yet, in which case only a plan can be made.
    pub output_missing: bool,
    /// Whether the caller's standard input is passed on.
    pub stdin: bool,
}

impl SkillExchange {
    /// Adds all of it to the skill's policy.
    ///
    /// # Errors
    /// The manifest requests no files, two names are equal, or another mount is there; with all reasons.
    pub fn grant(&self, manifest: &Manifest, policy: &mut Policy) -> Result<(), PolicyErrors> {
        let mut errors = Vec::new();
        let mut wrong = |option: &str, value: &str, problem: String, accepted: &str| {
            errors.push(PolicyError { path: option.into(), value: shown(value), problem, accepted: accepted.into() });
        };
        let wanted = [
            ("--input", INPUT_DIRECTORY, !self.input.is_empty()),
            ("--output", OUTPUT_DIRECTORY, self.output.is_some()),
        ];
        for (option, directory, _) in wanted.into_iter().filter(|(_, _, given)| *given) {
            if !asks_for(manifest, directory) {
                let problem = "the manifest's permissions.filesystemAccess does not ask for it".to_owned();
                wrong(
                    option,
                    directory,
                    problem,
                    &format!("a skill with filesystemAccess true, or a list with {directory}"),
                );
            }
            let taken = policy
                .filesystem
                .mounts
                .iter()
                .map(target)
                .find(|other| paths::is_within(directory, other) || paths::is_within(other, directory));
            if let Some(other) = taken {
                let problem = format!("the operator's configuration mounts {} there", shown(other));
                wrong(option, directory, problem, "volumes elsewhere");
            }
        }
        let mut names = BTreeSet::new();
        let mut mounts = Vec::new();
        for source in &self.input {
            match name(source) {
                None => {
                    wrong("--input", source, "its name cannot be shown inside".into(), "a file, by a printable name")
                }
                Some(name) if !names.insert(name) => {
                    wrong("--input", source, "another input has this name".into(), "files of different names");
                }
                Some(name) => mounts.push(Mount::Bind {
                    source: source.clone(),
                    target: format!("{INPUT_DIRECTORY}/{name}"),
                    access: Access::ReadOnly,
                    exec: false,
                    optional: false,
                }),
            }
        }
        if !errors.is_empty() {
            return Err(PolicyErrors(errors));
        }
        if let Some(source) = &self.output {
            mounts.push(Mount::Bind {
                source: source.clone(),
                target: OUTPUT_DIRECTORY.into(),
                access: Access::CopyOnWrite,
                exec: false,
                optional: self.output_missing,
            });
            policy.limits.layer_mb = OUTPUT_MB;
            policy.limits.layer_inodes = OUTPUT_ENTRIES;
            policy.require(Field::Layer);
        }
        policy.filesystem.mounts.append(&mut mounts);
        if self.stdin {
            policy.command.stdin = Stdin::Caller;
        }
        policy.validate()
    }
}

fn target(mount: &Mount) -> &str {
    match mount {
        Mount::Bind { target, .. } | Mount::Tmpfs { target, .. } => target,
    }
}

fn asks_for(manifest: &Manifest, directory: &str) -> bool {
    match &manifest.permissions.filesystem_access {
        Wish::Flag(flag) => *flag,
        Wish::List(paths) => paths.iter().any(|path| path.trim_end_matches('/') == directory),
    }
}

/// The last part of a path, if it is printable.
fn name(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    (!matches!(name, "" | "." | "..") && !name.chars().any(cofferdam_policy::text::steers)).then_some(name)
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::Root;
    use serde_json::{Value, json};

    use super::super::manifest::Stage;
    use super::super::operator::OperatorConfig;
    use super::super::policy::policy;
    use super::*;

    fn granted(access: &Value, operator: &str, exchange: &SkillExchange) -> Result<Policy, PolicyErrors> {
        let document = json!({
            "version": "1",
            "name": "report",
            "publisher": { "name": "Example", "address": format!("0x{}", "0".repeat(40)), "contact": "dev@example.com" },
            "permissions": { "txActions": [], "chains": [], "networkAccess": false, "filesystemAccess": access },
            "sandbox": { "memoryMb": 100, "timeoutMs": 5000, "allowSpawn": true },
            "files": [{ "path": "main.py", "sha256": "00".repeat(32) }],
        });
        let manifest = Manifest::decode(document.to_string().as_bytes(), Stage::Draft).unwrap();
        let operator = OperatorConfig::decode(operator.as_bytes()).unwrap();
        let mut policy = policy(&manifest, &operator, "/store/files", &[]).unwrap();
        assert_eq!((&policy.filesystem.root, &policy.command.stdin), (&Root::Minimal, &Stdin::Closed));
        exchange.grant(&manifest, &mut policy).map(|()| policy)
    }

    fn both() -> SkillExchange {
        let input = vec!["/home/user/one.pdf".to_owned(), "/srv/two.pdf".to_owned()];
        SkillExchange { input, output: Some("/home/user/out".into()), ..SkillExchange::default() }
    }

    #[test]
    fn files_need_the_leave_of_both_sides() {
        for access in [json!(true), json!(["/input", "/output/"])] {
            let mounts = granted(&access, "", &both()).unwrap().filesystem.mounts;
            assert_eq!(
                mounts.iter().map(target).collect::<Vec<_>>(),
                ["/skill", "/input/one.pdf", "/input/two.pdf", "/output"]
            );
            assert!(matches!(mounts[1], Mount::Bind { access: Access::ReadOnly, exec: false, .. }));
            assert!(matches!(mounts[3], Mount::Bind { access: Access::CopyOnWrite, exec: false, .. }));
            assert_eq!(granted(&access, "", &SkillExchange::default()).unwrap().filesystem.mounts.len(), 1);
        }
        let refused = granted(&json!(false), "", &both()).unwrap_err();
        assert_eq!(refused.0.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(), ["--input", "--output"]);
        let refused = granted(&json!(["/input"]), "", &both()).unwrap_err();
        assert_eq!(refused.0.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(), ["--output"]);
    }

    #[test]
    fn one_name_is_one_file_and_one_place_one_mount() {
        let of = |input: &[&str]| SkillExchange {
            input: input.iter().map(|path| (*path).to_owned()).collect(),
            ..SkillExchange::default()
        };
        assert!(granted(&json!(true), "", &of(&["/a/x", "/b/y"])).is_ok());
        for input in [&["/a/x", "/b/x"][..], &["/"], &["/a/\u{1b}[2J"]] {
            let refused = granted(&json!(true), "", &of(input)).unwrap_err().to_string();
            assert!(!refused.contains('\u{1b}'), "{refused:?}");
        }
        let volume = "volumes = [{ target = '/input/x' }]";
        assert!(granted(&json!(true), volume, &of(&["/a/x"])).is_err());
        assert!(granted(&json!(true), volume, &SkillExchange::default()).is_ok());
    }

    #[test]
    fn standard_input_is_passed_on_only_when_asked_for() {
        let exchange = SkillExchange { stdin: true, ..SkillExchange::default() };
        assert_eq!(granted(&json!(false), "", &exchange).unwrap().command.stdin, Stdin::Caller);
    }
}
