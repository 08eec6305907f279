//! Where an engine of this machine listens. The decision is pure, over what the surroundings answer; what starts a service of
//! Podman's where none listens is [`super::service`].
//!
//! Only Unix sockets: init, in the container, comes to us through a directory that is mounted from this machine.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::engine_facts::Flavour;
use crate::failure::{FailedStep, Failure};
use crate::host_programs;

/// What discovery looks at.
pub(super) trait DiscoveryHost {
    /// An environment variable, where it is set to something.
    fn variable(&self, name: &str) -> Option<String>;
    /// What connecting to this path gives.
    fn connect(&self, path: &Path) -> io::Result<()>;
    /// A file's contents.
    fn read(&self, path: &Path) -> Option<String>;
    /// Where a program is.
    fn program(&self, name: &str) -> Option<PathBuf>;
    /// The effective user.
    fn uid(&self) -> u32;
    /// Whether a directory is the effective user's.
    fn is_own(&self, directory: &Path) -> bool;
}

/// What helps whoever may not talk to Docker's socket.
const JOIN: &str =
    "sudo usermod -aG docker $USER and log in again (who is in that group is as good as root), or use rootless Docker";

/// An engine, or how to get one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EngineEndpoint {
    /// It listens here.
    Socket(PathBuf),
    /// This program can serve.
    Program(PathBuf),
}

/// Looks for an engine.
///
/// # Errors
/// There is none: names each place that was looked at, and the command that helps.
pub(super) fn find(flavour: Flavour, around: &dyn DiscoveryHost) -> Result<EngineEndpoint, Failure> {
    let (variable, help) = match flavour {
        Flavour::Docker => ("DOCKER_HOST", "sudo systemctl start docker"),
        Flavour::Podman => ("CONTAINER_HOST", "systemctl --user start podman.socket"),
    };
    let mut looked = Vec::new();
    let mut forbidden = None;
    let mut attempt = |path: &Path| -> bool {
        match around.connect(path) {
            Ok(()) => return true,
            Err(error) => {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    forbidden.get_or_insert_with(|| path.to_owned());
                }
                looked.push(format!("{} ({})", path.display(), reason(&error)));
            }
        }
        false
    };
    if let Some(host) = around.variable(variable) {
        let path = local(&host, variable)?;
        return if attempt(&path) {
            Ok(EngineEndpoint::Socket(path))
        } else {
            let hint = match (flavour, forbidden) {
                (Flavour::Docker, Some(_)) => JOIN.to_owned(),
                (Flavour::Podman, Some(_)) => format!("it is another user's engine: unset {variable} for your own"),
                (_, None) => format!("correct {variable}, unset it, or start that engine: {help}"),
            };
            Err(missing(flavour, &looked, hint))
        };
    }
    if flavour == Flavour::Docker
        && let Some((name, path)) = context(around)?
    {
        return if attempt(&path) {
            Ok(EngineEndpoint::Socket(path))
        } else {
            let hint =
                format!("start the engine of the docker context {name}, or choose another: docker context use default");
            Err(missing(flavour, &looked, hint))
        };
    }
    for path in usual(flavour, around) {
        if attempt(&path) {
            return Ok(EngineEndpoint::Socket(path));
        }
    }
    if flavour == Flavour::Podman {
        match around.program("podman") {
            Some(program) => return Ok(EngineEndpoint::Program(program)),
            None => looked.push("podman (not on PATH)".into()),
        }
    }
    let hint = match (flavour, forbidden) {
        (Flavour::Docker, Some(_)) => JOIN.to_owned(),
        (Flavour::Docker, None) => format!("{help}, or name its socket with DOCKER_HOST=unix:///path"),
        (Flavour::Podman, _) => {
            format!("apt-get install podman, {help}, or name its socket with CONTAINER_HOST=unix:///path")
        }
    };
    Err(missing(flavour, &looked, hint))
}

fn missing(flavour: Flavour, looked: &[String], hint: String) -> Failure {
    Failure::new(
        FailedStep::Engine,
        format!("no {} engine is reachable: looked at {}", flavour.name(), looked.join(", ")),
    )
    .hint(hint)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "not there".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::ConnectionRefused => "nobody listens".into(),
        _ => error.to_string(),
    }
}

/// The path of a `unix://` address.
fn local(host: &str, named_by: &str) -> Result<PathBuf, Failure> {
    let path = host.strip_prefix("unix://").map(PathBuf::from).filter(|path| path.is_absolute());
    path.ok_or_else(|| Failure::new(FailedStep::Engine, format!(
            "{named_by} names {}, and only an engine of this machine can be used: init inside reaches us by a directory that is mounted from here",
            cofferdam_policy::text::escape(host.as_bytes())
        )).hint(format!("{named_by}=unix:///var/run/docker.sock, or whichever socket of this machine")))
}

/// The socket of docker's current context, and its name; none for the default one.
fn context(around: &dyn DiscoveryHost) -> Result<Option<(String, PathBuf)>, Failure> {
    let directory = around
        .variable("DOCKER_CONFIG")
        .map(PathBuf::from)
        .or_else(|| around.variable("HOME").map(|home| Path::new(&home).join(".docker")));
    let Some(directory) = directory else { return Ok(None) };
    let json = |path: PathBuf| -> Option<Value> { serde_json::from_str(&around.read(&path)?).ok() };
    let named = around
        .variable("DOCKER_CONTEXT")
        .or_else(|| json(directory.join("config.json"))?.get("currentContext")?.as_str().map(str::to_owned));
    let Some(name) = named.filter(|name| !name.is_empty() && name != "default") else { return Ok(None) };
    let digest: String = Sha256::digest(name.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let meta = directory.join("contexts/meta").join(digest).join("meta.json");
    let host = json(meta).and_then(|meta| meta.pointer("/Endpoints/docker/Host")?.as_str().map(str::to_owned));
    let Some(host) = host else {
        return Err(Failure::new(
            FailedStep::Engine,
            format!("docker's context {} is nowhere described", cofferdam_policy::text::escape(name.as_bytes())),
        )
        .hint("docker context use default, or DOCKER_HOST=unix:///path"));
    };
    let path = local(&host, &format!("docker's context {}", cofferdam_policy::text::escape(name.as_bytes())))?;
    Ok(Some((name, path)))
}

/// Where engines listen when nobody says otherwise. A directory for the run of somebody else, such as sudo may leave in the
/// variables, is none of ours: whoever listens there sees what runs, and need not hold any of it.
fn usual(flavour: Flavour, around: &dyn DiscoveryHost) -> Vec<PathBuf> {
    let own = around.variable("XDG_RUNTIME_DIR").filter(|named| around.is_own(Path::new(named)));
    let own = own.unwrap_or_else(|| format!("/run/user/{}", around.uid()));
    let own = Path::new(&own);
    match flavour {
        Flavour::Docker => vec!["/var/run/docker.sock".into(), own.join("docker.sock")],
        Flavour::Podman => vec![own.join("podman/podman.sock"), "/run/podman/podman.sock".into()],
    }
}

/// This process's.
pub(super) struct Real;

impl DiscoveryHost for Real {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn connect(&self, path: &Path) -> io::Result<()> {
        UnixStream::connect(path).map(drop)
    }

    fn read(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        host_programs::installed(name, &[])
    }

    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn is_own(&self, directory: &Path) -> bool {
        std::fs::metadata(directory).is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == self.uid())
    }
}

#[cfg(test)]
mod tests;
