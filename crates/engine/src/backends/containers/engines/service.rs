//! A service of Podman's where none listens: started by the first process that needs one, shared by all processes that
//! would start the same, and gone when it has had nothing to do for a while.
//!
//! ```text
//! $XDG_RUNTIME_DIR, else the directory for temporary files
//! └── cofferdam-podman-UID-KEY/    0700; KEY is over all that a service inherits: variables, limits, namespaces, cgroup
//!     ├── lock                     held by the process that starts it, or removes its leftovers
//!     ├── podman.sock
//!     └── said                     its standard error
//! ```
//!
//! Never ends a service: others may be using it. Never follows a link, or uses a directory that others may write in.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::failure::{FailedStep, Failure};
use crate::host_programs;

/// How long it waits for work before it ends.
const IDLE: &str = "--time=30";
/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the directories are called.
const DIRECTORY: &str = "cofferdam-podman-";
/// A directory without a lock that is older is nobody's who is just making it.
const MAKING: Duration = Duration::from_secs(60);
/// Variables that differ between two commands of one shell. A service gets none of them.
const FLEETING: [&str; 7] =
    ["_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "HYPERFINE_RANDOMIZED_ENVIRONMENT_OFFSET"];

/// A service of Podman's that this process may start. It ends by itself when it has nothing to do, also when we were killed;
/// containers do not end with it.
#[derive(Debug)]
pub(super) struct PodmanService {
    program: PathBuf,
    directory: PathBuf,
    /// What this process has started, to be waited for.
    child: Mutex<Option<Child>>,
}

/// One per process.
static SERVICE: Mutex<Option<Arc<PodmanService>>> = Mutex::new(None);

impl PodmanService {
    /// The process's one, which listens.
    ///
    /// # Errors
    /// Podman cannot be started, or does not listen.
    pub(super) fn of_this_process(program: &Path) -> Result<Arc<PodmanService>, Failure> {
        let mut known = SERVICE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = known.as_ref().filter(|service| service.program == program) {
            return Ok(service.clone());
        }
        let service = PodmanService::new(program).and_then(|service| service.ensure().map(|()| service));
        let service = service.map_err(|error| Failure::new(FailedStep::Engine, format!("no Podman engine listens, and {} cannot serve: {error}", program.display())).hint("see what `podman system service --time=5 unix:///tmp/podman-test.sock` says, or: systemctl --user start podman.socket"))?;
        let service = Arc::new(service);
        *known = Some(service.clone());
        Ok(service)
    }

    fn new(program: &Path) -> io::Result<PodmanService> {
        PodmanService::below(&parent(), program)
    }

    fn below(parent: &Path, program: &Path) -> io::Result<PodmanService> {
        let name = format!("{DIRECTORY}{}-{}", uid(), key(program));
        let mut directory = parent.join(&name);
        if let Err(error) = own(&directory) {
            tracing::debug!("{}: {error}", directory.display());
            directory = parent.join(format!("{name}-{}", &cofferdam_audit::random::uuid()[..8]));
            own(&directory)?;
        }
        Ok(PodmanService { program: program.to_owned(), directory, child: Mutex::new(None) })
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("podman.sock")
    }

    /// Starts it when it is not there, or is no more, and waits until it listens.
    pub(super) fn ensure(&self) -> io::Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // One that ended is waited for, so that nothing is left of it.
        if let Some(running) = child.as_mut()
            && running.try_wait()?.is_some()
        {
            *child = None;
        }
        if self.listens() {
            return Ok(());
        }
        let patience = Instant::now() + PATIENCE;
        let _lock = loop {
            own(&self.directory)?;
            let lock = lock_file(&self.directory, true)?;
            match lock.try_lock() {
                // Whoever removes the directory holds the lock that was in it.
                Ok(()) if is_at(&lock, &self.directory) => break lock,
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if self.listens() {
                return Ok(());
            }
            if Instant::now() > patience {
                return Err(late());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if self.listens() {
            return Ok(());
        }
        match self.start() {
            Ok(started) => *child = Some(started),
            Err(error) => {
                // Nothing listens in it, and it is locked.
                drop(fs::remove_dir_all(&self.directory));
                return Err(error);
            }
        }
        // What dead ones left, now that it costs little beside this.
        let beside = self.directory.parent().unwrap_or(Path::new("/"));
        sweep(beside);
        if beside != std::env::temp_dir() {
            sweep(&std::env::temp_dir());
        }
        Ok(())
    }

    /// Whether one of this user's listens there. The directory is looked at each time: when it had been removed, somebody else
    /// may have made one of its name, where a link leads to any socket of this user's.
    fn listens(&self) -> bool {
        is_own(&self.directory)
            && UnixStream::connect(self.socket())
                .is_ok_and(|stream| peer(&stream).is_some_and(|(_, user)| user == uid()))
    }

    fn start(&self) -> io::Result<Child> {
        let socket = self.socket();
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let said = self.directory.join("said");
        let log = File::options().write(true).create(true).truncate(true).mode(0o600).open(&said)?;
        let mut address = std::ffi::OsString::from("unix://");
        address.push(&socket);
        let mut command = Command::new(&self.program);
        command.args(["system", "service", IDLE]).arg(address);
        for name in FLEETING {
            command.env_remove(name);
        }
        // Podman looks for its helpers along PATH.
        command.env("PATH", host_programs::installed_path());
        // What a terminal sends to us is not meant for it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).current_dir("/");
        let mut started = command.spawn()?;
        let patience = Instant::now() + PATIENCE;
        loop {
            if UnixStream::connect(&socket).is_ok() {
                return Ok(started);
            }
            if let Some(status) = started.try_wait()? {
                let said = fs::read(&said).unwrap_or_default();
                let tail = &said[said.len().saturating_sub(200)..];
                return Err(io::Error::other(format!("it ended ({status}): {}", cofferdam_policy::text::escape(tail))));
            }
            if Instant::now() > patience {
                started.kill()?;
                started.wait()?;
                return Err(late());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn late() -> io::Error {
    io::Error::other(format!("it does not listen after {} seconds", PATIENCE.as_secs()))
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The pid and user of whoever listens at the other end.
pub(super) fn peer(stream: &UnixStream) -> Option<(i32, u32)> {
    let credentials = rustix::net::sockopt::socket_peercred(stream.as_fd()).ok()?;
    Some((credentials.pid.as_raw_nonzero().get(), credentials.uid.as_raw()))
}

fn parent() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    own.filter(|dir| fs::metadata(dir).is_ok_and(|stat| stat.is_dir() && stat.uid() == uid()))
        .unwrap_or_else(std::env::temp_dir)
}

/// A directory that nobody else can use.
fn own(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    if is_own(path) {
        return Ok(());
    }
    Err(io::Error::other(format!("{} is not a directory of this user's alone", path.display())))
}

fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|it| it.is_dir() && it.uid() == uid() && it.mode() & 0o077 == 0)
}

fn lock_file(directory: &Path, create: bool) -> io::Result<File> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(true).create(create).mode(0o600).custom_flags(no_link);
    options.open(directory.join("lock"))
}

/// Whether a lock is the one that is in the directory now.
fn is_at(lock: &File, directory: &Path) -> bool {
    let there = fs::symlink_metadata(directory.join("lock"));
    matches!((lock.metadata(), there), (Ok(ours), Ok(there)) if (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

/// What a service would have of this process: two with the same are one.
fn key(program: &Path) -> String {
    let mut hasher = Sha256::new();
    let mut add = |what: &[u8]| {
        hasher.update((what.len() as u64).to_le_bytes());
        hasher.update(what);
    };
    let mut variables: Vec<_> = std::env::vars_os().filter(|(name, _)| !FLEETING.iter().any(|f| name == f)).collect();
    variables.retain(|(name, _)| name != "PATH");
    variables.push(("PATH".into(), host_programs::installed_path()));
    variables.sort();
    add(program.as_os_str().as_encoded_bytes());
    for (name, value) in variables {
        add(name.as_encoded_bytes());
        add(value.as_encoded_bytes());
    }
    for name in ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"] {
        let link = fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
        add(link.as_os_str().as_encoded_bytes());
    }
    add(fs::read_link("/proc/self/root").unwrap_or_default().as_os_str().as_encoded_bytes());
    for file in ["limits", "cgroup", "attr/current"] {
        add(&fs::read(Path::new("/proc/self").join(file)).unwrap_or_default());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kept = ["Umask:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapBnd:", "NoNewPrivs:", "Seccomp:"];
    for line in status.lines().filter(|line| kept.iter().any(|name| line.starts_with(name))) {
        add(line.as_bytes());
    }
    hasher.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes directories of this user's services in which nobody listens, nor is about to.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(DIRECTORY)) {
            continue;
        }
        // Of the entry itself, never of what a link names.
        let Ok(stat) = entry.metadata() else { continue };
        let directory = entry.path();
        if stat.is_dir() && stat.uid() == uid() && removed(&directory, &stat) {
            tracing::debug!("removed {}, in which nobody listened", directory.display());
        }
    }
}

/// Removes one, where it is left over; says whether.
fn removed(directory: &Path, stat: &fs::Metadata) -> bool {
    let silent = || UnixStream::connect(directory.join("podman.sock")).is_err();
    if !silent() {
        return false;
    }
    let old = stat.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > MAKING));
    let _lock = match lock_file(directory, false) {
        Ok(lock) if lock.try_lock().is_ok() => Some(lock),
        Err(error) if error.kind() == io::ErrorKind::NotFound && old => None,
        Ok(_) | Err(_) => return false,
    };
    // Another sweeper may have done it meanwhile.
    silent() && fs::remove_dir_all(directory).is_ok()
}

#[cfg(test)]
mod tests;
