//! The stand-ins of real services: starts a lane's network of namespaces (tests/tasks/standins), and has commands join it.
//!
//! The machine's own network, mounts and files stay as they are: what is mounted over them is seen in the namespaces
//! alone, which end with the process that holds them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Result;
use crate::shell::{cannot_run, run, uid, which};
use crate::workspace::Workspace;

/// The program that makes a network.
const PROGRAM: &str = "tests/tasks/standins/network.py";

/// What it needs: the system's own Python, and where the others are looked for.
const PYTHON: &str = "/usr/bin/python3";
const NEEDS: &[&str] = &["ip", "unshare", "nsenter", "mount", "openssl", PYTHON];

/// What PyPI's stand-in has from the real one.
const WHEELS: &[&str] = &["setuptools", "wheel", "pandas"];

/// Fetches what stand-ins do not make themselves: wheels, for the caller's Python and the system's.
///
/// # Errors
/// pip failed.
pub(super) fn fetch(workspace: &Workspace) -> Result {
    for python in ["python3", PYTHON] {
        let mut command = Command::new(python);
        command.args(["-m", "pip", "download", "--only-binary", ":all:", "--dest"]);
        run(command.arg(workspace.target.join("tasks/pypi")).args(WHEELS))?;
    }
    Ok(())
}

/// How a network is made for a lane.
#[derive(Debug, Clone)]
pub(super) struct StandIns {
    program: PathBuf,
    /// The network's own files.
    base: PathBuf,
    /// What was asked of the services.
    log: PathBuf,
}

impl StandIns {
    /// For the lane of that name, with its files at `base`.
    pub(super) fn new(workspace: &Workspace, base: PathBuf, lane: &str) -> StandIns {
        let log = workspace.target.join(format!("tasks/{lane}.log"));
        StandIns { program: workspace.root.join(PROGRAM), base, log }
    }

    /// Why there cannot be any on this machine.
    pub(super) fn missing() -> Option<String> {
        if uid() != Some(0) {
            return Some("stand-ins need root".into());
        }
        let missing = NEEDS.iter().find(|name| which(name).is_none());
        missing.map(|name| format!("stand-ins need {name}, which is missing"))
    }

    /// Starts the network, whose programs find their own roots below that home.
    ///
    /// # Errors
    /// It cannot be made; what its programs said is on standard error and in the log.
    pub(super) fn start(&self, home: &Path) -> Result<Network> {
        for directory in [Some(self.base.as_path()), self.log.parent()].into_iter().flatten() {
            std::fs::create_dir_all(directory)
                .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        }
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", PYTHON, "-B"]).arg(&self.program);
        command.args([&self.base, &self.log]).arg(home).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| cannot_run(&command, &error))?;
        let output = child.stdout.take().ok_or("a network has no output")?;
        let mut network = Network { child, lacks: BTreeMap::new(), base: self.base.clone() };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| format!("a network says nothing: {error}"))?;
        network.lacks = serde_json::from_str(&line)
            .map_err(|_| format!("the network of stand-ins did not start: see above, and {}", self.log.display()))?;
        Ok(network)
    }
}

/// A network that is running.
pub(super) struct Network {
    child: Child,
    /// The services, and what each lacks; nothing where it is there.
    lacks: BTreeMap<String, String>,
    base: PathBuf,
}

impl Network {
    /// Why one of the services is not there.
    pub(super) fn lacks(&self, services: &[String]) -> Option<String> {
        services.iter().find_map(|name| match self.lacks.get(name).map(String::as_str) {
            Some("") => None,
            Some(reason) => Some(format!("the stand-in {name}: {reason}")),
            None => Some(format!("there is no stand-in {name}")),
        })
    }

    /// How a command enters it: a program and its arguments, before those of the command.
    pub(super) fn enter(&self, directory: &Path) -> Vec<String> {
        let pid = self.child.id().to_string();
        let directory = format!("--wdns={}", directory.display());
        ["nsenter", "--target", &pid, "--net", "--mount", &directory, "--"].map(str::to_owned).to_vec()
    }

    /// The key that the SSH server takes.
    pub(super) fn deploy_key(&self) -> PathBuf {
        self.base.join("deploy_key")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // It ends with its input, and all others of it with it.
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("cannot end a network of stand-ins: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tasks::process;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_network_has_its_hosts_and_trust_and_the_machine_stays_as_it_is() {
        if let Some(reason) = StandIns::missing() {
            eprintln!("skipped: {reason}");
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none() || uid() != Some(0), "skipped: {reason}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let before = std::fs::read("/etc/resolv.conf").unwrap();
        let (base, log) = (directory.path().join("base"), directory.path().join("log"));
        let program = Workspace::read().unwrap().root.join(PROGRAM);
        let network = StandIns { program, base, log }.start(directory.path()).unwrap();
        assert_eq!(network.lacks(&texts(&["http", "npm-registry"])), None);
        assert!(network.lacks(&texts(&["http", "no-such"])).unwrap().contains("no-such"));

        let seen = |line: &str| {
            let mut command = Command::new("setsid");
            command.args(network.enter(Path::new("/"))).args(["sh", "-c", line]).env_clear();
            process::run(&mut command, Duration::from_secs(60)).unwrap()
        };
        let page = seen("curl -fsS https://downloads.example.org/data.txt");
        assert_eq!((page.code, page.out.as_str()), (Some(0), "some data\n"), "{page:?}");
        let other = seen("curl -sS https://nobody.example.org/");
        assert_eq!(other.code, Some(6), "no other name leads anywhere: {other:?}");
        let home = seen("getent passwd 0 | cut -d: -f6");
        assert_eq!(home.out.trim(), directory.path().display().to_string());
        assert_eq!(std::fs::read("/etc/resolv.conf").unwrap(), before);

        let id = network.child.id();
        drop(network);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }
}
