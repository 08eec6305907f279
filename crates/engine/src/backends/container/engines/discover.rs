//! Where an engine of this machine listens. The decision is pure, over what the surroundings answer; here is also what
//! starts a service of Podman's where none listens.
//!
//! Only Unix sockets: init, in the container, comes to us through a directory that is mounted from this machine.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::about::Flavour;
use crate::backends::container::owner;
use crate::outcome::Failure;

/// What discovery looks at.
pub(super) trait Surroundings {
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
}

/// What helps whoever may not talk to Docker's socket.
const JOIN: &str =
    "sudo usermod -aG docker $USER and log in again (who is in that group is as good as root), or use rootless Docker";

/// An engine, or how to get one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// It listens here.
    Socket(PathBuf),
    /// This program can serve.
    Program(PathBuf),
}

/// Looks for an engine.
///
/// # Errors
/// There is none: names each place that was looked at, and the command that helps.
pub(super) fn find(flavour: Flavour, around: &dyn Surroundings) -> Result<Found, Failure> {
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
            Ok(Found::Socket(path))
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
            Ok(Found::Socket(path))
        } else {
            let hint =
                format!("start the engine of the docker context {name}, or choose another: docker context use default");
            Err(missing(flavour, &looked, hint))
        };
    }
    for path in usual(flavour, around) {
        if attempt(&path) {
            return Ok(Found::Socket(path));
        }
    }
    if flavour == Flavour::Podman {
        match around.program("podman") {
            Some(program) => return Ok(Found::Program(program)),
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
    Failure {
        code: 125,
        step: "engine".into(),
        message: format!("no {} engine is reachable: looked at {}", flavour.name(), looked.join(", ")),
        hint: Some(hint),
    }
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
    path.ok_or_else(|| Failure {
        code: 125,
        step: "engine".into(),
        message: format!(
            "{named_by} names {}, and only an engine of this machine can be used: init inside reaches us by a directory that is mounted from here",
            crate::evidence::escape(host.as_bytes())
        ),
        hint: Some(format!("{named_by}=unix:///var/run/docker.sock, or whichever socket of this machine")),
    })
}

/// The socket of docker's current context, and its name; none for the default one.
fn context(around: &dyn Surroundings) -> Result<Option<(String, PathBuf)>, Failure> {
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
        return Err(Failure {
            code: 125,
            step: "engine".into(),
            message: format!("docker's context {} is nowhere described", crate::evidence::escape(name.as_bytes())),
            hint: Some("docker context use default, or DOCKER_HOST=unix:///path".into()),
        });
    };
    let path = local(&host, &format!("docker's context {}", crate::evidence::escape(name.as_bytes())))?;
    Ok(Some((name, path)))
}

/// Where engines listen when nobody says otherwise.
fn usual(flavour: Flavour, around: &dyn Surroundings) -> Vec<PathBuf> {
    let own = around.variable("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("/run/user/{}", around.uid()));
    let own = Path::new(&own);
    match flavour {
        Flavour::Docker => vec!["/var/run/docker.sock".into(), own.join("docker.sock")],
        Flavour::Podman => vec![own.join("podman/podman.sock"), "/run/podman/podman.sock".into()],
    }
}

/// This process's.
pub(super) struct Real;

impl Surroundings for Real {
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
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(name))
            .find(|file| file.is_file())
    }

    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }
}

/// How long Podman's service waits for work before it ends.
const IDLE: &str = "--time=30";
/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the directories of such services are called.
const DIRECTORY: &str = "cofferdam-podman-";

/// A service of Podman's that this process started. It ends by itself when it has nothing to do, also when we were killed;
/// containers do not end with it.
#[derive(Debug)]
pub(super) struct Service {
    program: PathBuf,
    directory: PathBuf,
    child: Mutex<Option<Child>>,
}

/// One per process.
static SERVICE: Mutex<Option<Arc<Service>>> = Mutex::new(None);

impl Drop for Service {
    /// Never of the process's one: that one ends by itself.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It may have ended already, and then there is nothing to do.
            drop(child.kill());
            drop(child.wait());
        }
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

impl Service {
    /// The process's one; started when it has none yet.
    ///
    /// # Errors
    /// Podman cannot be started, or does not listen.
    pub(super) fn of_this_process(program: &Path) -> Result<Arc<Service>, Failure> {
        let mut known = SERVICE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = known.as_ref().filter(|service| service.program == program) {
            return Ok(service.clone());
        }
        let service = Service::new(program).and_then(|service| service.ensure().map(|()| service));
        let service = service.map_err(|error| Failure {
            code: 125,
            step: "engine".into(),
            message: format!("no Podman engine listens, and {} cannot serve: {error}", program.display()),
            hint: Some("see what `podman system service --time=5 unix:///tmp/podman-test.sock` says, or: systemctl --user start podman.socket".into()),
        })?;
        let service = Arc::new(service);
        *known = Some(service.clone());
        Ok(service)
    }

    fn new(program: &Path) -> io::Result<Service> {
        let around = Real;
        let own = around
            .variable("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|dir| std::fs::metadata(dir).is_ok_and(|stat| stat.is_dir() && stat.uid() == around.uid()));
        let parent = own.unwrap_or_else(std::env::temp_dir);
        sweep(&parent, around.uid());
        let directory = parent.join(format!("{DIRECTORY}{}-{}", std::process::id(), &crate::random::uuid()[..8]));
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Service { program: program.to_owned(), directory, child: Mutex::new(None) })
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("podman.sock")
    }

    /// Starts it when it is not there, or is no more, and waits until it listens.
    pub(super) fn ensure(&self) -> io::Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = child.as_mut()
            && running.try_wait()?.is_none()
        {
            return Ok(());
        }
        let socket = self.socket();
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let said = self.directory.join("said");
        let log = std::fs::File::create(&said)?;
        let mut address = std::ffi::OsString::from("unix://");
        address.push(&socket);
        let mut started = Command::new(&self.program)
            .args(["system", "service", IDLE])
            .arg(address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // What a terminal sends to us is not meant for it.
            .process_group(0)
            .spawn()?;
        let patience = Instant::now() + PATIENCE;
        loop {
            if UnixStream::connect(&socket).is_ok() {
                *child = Some(started);
                return Ok(());
            }
            if let Some(status) = started.try_wait()? {
                let said = std::fs::read(&said).unwrap_or_default();
                let tail = &said[said.len().saturating_sub(200)..];
                return Err(io::Error::other(format!("it ended ({status}): {}", crate::evidence::escape(tail))));
            }
            if Instant::now() > patience {
                started.kill()?;
                started.wait()?;
                return Err(io::Error::other(format!("it does not listen after {} seconds", PATIENCE.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Removes directories of services whose owner is gone, and in which nobody listens.
fn sweep(parent: &Path, uid: u32) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(DIRECTORY)) else { continue };
        let starter = rest.split('-').next().and_then(|pid| pid.parse().ok());
        let mine = entry.metadata().is_ok_and(|stat| stat.is_dir() && stat.uid() == uid);
        let gone = starter.is_some_and(|pid| owner::process(pid) == owner::Process::Absent);
        if mine && gone && UnixStream::connect(entry.path().join("podman.sock")).is_err() {
            // Another starter may be doing the same.
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests;
