//! What cargo says about the workspace: its root, its target directory, its packages. Reads, never writes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;
use crate::shell::{cargo, output, words};

/// The workspace as `cargo metadata` describes it, without dependencies.
pub(crate) struct Workspace {
    /// The directory of the root Cargo.toml.
    pub root: PathBuf,
    /// Where cargo builds to.
    pub target: PathBuf,
    /// The members.
    pub packages: Vec<Package>,
}

/// One member of the workspace.
pub(crate) struct Package {
    /// Its name.
    pub name: String,
    /// The directory of its Cargo.toml, relative to the root.
    pub directory: PathBuf,
    /// Its integration tests, by target name.
    pub tests: Vec<String>,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn read() -> Result<Workspace> {
        let text = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
        let data: Value = serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let (Some(root), Some(target)) = (path(&data["workspace_root"]), path(&data["target_directory"])) else {
            return Err("cargo metadata names no workspace root or target directory".into());
        };
        let packages = data["packages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|package| {
                let manifest = PathBuf::from(package["manifest_path"].as_str()?);
                Some(Package {
                    name: package["name"].as_str()?.to_owned(),
                    directory: manifest.parent()?.strip_prefix(&root).ok()?.to_owned(),
                    tests: package["targets"]
                        .as_array()?
                        .iter()
                        .filter(|target| target["kind"][0] == "test")
                        .filter_map(|target| Some(target["name"].as_str()?.to_owned()))
                        .collect(),
                })
            })
            .collect();
        Ok(Workspace { root, target, packages })
    }
}

/// Runs a build and says where its programs are, by name: cargo's own answer, whatever the target or profile. Integration tests
/// are among them; a program's own unit tests are no program of that name.
pub(crate) fn executables(build: &mut Command) -> Result<BTreeMap<String, PathBuf>> {
    build.args(["--message-format", "json-render-diagnostics"]).stdin(Stdio::null()).stderr(Stdio::inherit());
    eprintln!("+ {}", words(build));
    let text = output(build)?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages
        .filter_map(|message| {
            let target = &message["target"];
            let kind = target["kind"][0].as_str()?;
            let own_tests = message["profile"]["test"] == true;
            let wanted = if own_tests { matches!(kind, "test" | "lib") } else { matches!(kind, "bin" | "example") };
            if !wanted {
                return None;
            }
            let name = target["name"].as_str()?;
            let name = if own_tests && kind == "lib" { format!("{name}, its own tests") } else { name.to_owned() };
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        })
        .collect())
}
