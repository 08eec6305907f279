//! Starts an engine or joins the one that is there, and holds it for as long as the value lives.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

/// `O_NOFOLLOW` and `O_NONBLOCK`.
const NOFOLLOW: i32 = if cfg!(target_arch = "aarch64") { 0o100000 } else { 0o400000 };
const NONBLOCK: i32 = 0o4000;
/// What keeps an engine running.
const SUPERVISOR: &str = include_str!("../supervisor.py");
/// How long a shared engine is kept when nobody needs it: longer than a test runner takes between two tests.
const LINGER: &str = "15";
/// Where engines' directories begin. Short, and not TMPDIR: podman makes sockets deep below, and without one that fits a
/// socket's name, `wait` takes twenty seconds.
const PLACE: &str = "/tmp/cdt";
/// The group that may use the sockets of root's engines. Nobody is in it; a test that plays an engine's ordinary user
/// gives it to the process that it starts. Above the ids of people, services and containers.
pub const GROUP: u32 = 3_999_999;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// dockerd, which takes root.
    Docker,
    /// Podman's service as whoever runs the test.
    Podman,
    /// Podman's service as this user, who has no ids besides his own; for another than the caller it takes root.
    PodmanOf(u32),
}

impl Kind {
    /// The policy's name of the backend.
    pub fn backend(self) -> &'static str {
        match self {
            Kind::Docker => "docker",
            Kind::Podman | Kind::PodmanOf(_) => "podman",
        }
    }

    /// The variable that tells clients where the engine is.
    pub fn variable(self) -> &'static str {
        match self {
            Kind::Docker => "DOCKER_HOST",
            Kind::Podman | Kind::PodmanOf(_) => "CONTAINER_HOST",
        }
    }

    /// Why it cannot be started here; `None` when all it takes is there.
    pub fn missing(self) -> Option<String> {
        let me = uid();
        match self {
            Kind::Docker if me != 0 => return Some("dockerd needs root".into()),
            Kind::PodmanOf(uid) if me != 0 && me != uid => return Some(format!("only root or {uid} can be uid {uid}")),
            _ => {}
        }
        let needed: &[(&str, &str)] = match self {
            Kind::Docker => &[("dockerd", "docker.io"), ("runc", "runc"), ("python3", "python3-minimal")],
            _ => &[("podman", "podman"), ("runc", "runc"), ("python3", "python3-minimal")],
        };
        let missing = needed.iter().find(|(program, _)| {
            !["/usr/sbin", "/usr/bin", "/usr/local/bin"].iter().any(|d| Path::new(d).join(program).exists())
        })?;
        Some(format!("{} is missing\nhint: apt-get install {}", missing.0, missing.1))
    }

    fn owner(self) -> u32 {
        if let Kind::PodmanOf(uid) = self { uid } else { uid() }
    }

    fn directory(self) -> String {
        match self {
            Kind::Docker => "d".into(),
            Kind::Podman => "p".into(),
            Kind::PodmanOf(uid) => format!("p{uid}"),
        }
    }
}

/// An engine that answers, and goes on to for as long as this lives.
#[derive(Debug)]
pub struct Engine {
    kind: Kind,
    directory: PathBuf,
    /// Only of an engine of its own: removed when it has ended.
    own: Option<PathBuf>,
    /// Locked: the supervisor sees that somebody needs the engine.
    holder: Option<File>,
}

impl Engine {
    /// The engine that all tests of this user share.
    ///
    /// # Errors
    /// What is missing ([`Kind::missing`]), or the engine's own log when it does not start.
    pub fn shared(kind: Kind) -> Result<Engine, String> {
        // Tests of another version of this crate have engines of their own.
        let version = Sha256::digest(SUPERVISOR.as_bytes());
        let base = PathBuf::from(format!("{PLACE}-{}-{:02x}{:02x}", uid(), version[0], version[1]));
        directory(&base)?;
        Engine::hold(kind, base.join(kind.directory()), LINGER, None)
    }

    /// An engine that no other test sees, for tests that stop it. It ends when this is dropped.
    ///
    /// # Errors
    /// As for [`Engine::shared`].
    pub fn own(kind: Kind) -> Result<Engine, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = PathBuf::from(format!("{PLACE}o-{}-{number}", std::process::id()));
        directory(&base)?;
        Engine::hold(kind, base.join(kind.directory()), "0", Some(base))
    }

    fn hold(kind: Kind, at: PathBuf, linger: &str, own: Option<PathBuf>) -> Result<Engine, String> {
        if let Some(reason) = kind.missing() {
            return Err(reason);
        }
        at.parent().map_or(Ok(()), directory)?;
        directory(&at)?;
        let start = lock_file(&at, "start")?;
        start.lock().map_err(|e| format!("cannot lock {}: {e}", at.display()))?;
        if !is_still_there(&at, &start) {
            // It was cleared meanwhile.
            return Engine::hold(kind, at, linger, own);
        }
        let holder = lock_file(&at, "holders")?;
        holder.lock_shared().map_err(|e| format!("cannot lock {}: {e}", at.display()))?;
        let engine = Engine { kind, directory: at, own, holder: Some(holder) };
        let alive = lock_file(&engine.directory, "alive")?;
        let running = alive.try_lock().is_err();
        drop(alive);
        if !running || !engine.answers() {
            engine.start(linger)?;
        }
        Ok(engine)
    }

    fn start(&self, linger: &str) -> Result<(), String> {
        let script = self.directory.join("supervisor.py");
        fs::write(&script, SUPERVISOR).map_err(|e| format!("cannot write {}: {e}", script.display()))?;
        let output = Command::new("/usr/bin/python3")
            .arg(&script)
            .arg(&self.directory)
            .arg(self.kind.backend())
            .args([self.kind.owner().to_string(), GROUP.to_string(), linger.to_owned()])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("cannot run python3: {e}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{} does not start: {}", self.kind.backend(), String::from_utf8_lossy(&output.stderr)))
    }

    /// Which engine it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The socket of its API.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("e/socket")
    }

    /// The same as clients read it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// What a client's environment needs so that it finds this engine: name and value.
    pub fn environment(&self) -> (&'static str, String) {
        (self.kind.variable(), self.host())
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("e/log")).unwrap_or_default()
    }

    /// The process ids of the engine's daemon, of an engine of its own: for tests that kill or stop it.
    ///
    /// # Errors
    /// When it is not there.
    pub fn daemon(&self) -> Result<u32, String> {
        let marked = format!("COFFERDAM_TEST_ENGINE={}", self.directory.display());
        let name = if self.kind == Kind::Docker { "dockerd" } else { "podman" };
        for entry in fs::read_dir("/proc").map_err(|e| e.to_string())?.flatten() {
            let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
            let ours = read("environ").split(|b| *b == 0).any(|variable| variable == marked.as_bytes());
            let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
            if ours && line.starts_with(name) && line.contains("unix://") {
                return entry.file_name().to_string_lossy().parse().map_err(|_| "no process id".to_owned());
            }
        }
        Err(format!("no {name} runs in {}", self.directory.display()))
    }

    fn answers(&self) -> bool {
        self.api("GET", "/_ping", None).is_ok_and(|answer| answer.status == 200)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.holder.take());
        let Some(base) = &self.own else { return };
        // Gone when nobody holds `alive` any more.
        let ended = lock_file(&self.directory, "alive").and_then(|alive| alive.lock().map_err(|e| e.to_string()));
        if let Err(error) = ended {
            eprintln!("cannot wait for the end of {}: {error}", base.display());
        }
        if let Err(error) = fs::remove_dir_all(base) {
            eprintln!("cannot remove {}: {error}", base.display());
        }
    }
}

/// Waits until no shared engine is left, root for every user's, and removes the directories that they were in: for whoever
/// runs tests, when all of them are over. An engine that somebody still needs stays, with its directory.
///
/// # Errors
/// What cannot be removed, or is still needed after `patience`.
pub fn clear(patience: Duration) -> Result<(), String> {
    Path::new(PLACE).parent().map_or(Ok(()), |root| clear_below(root, patience))
}

/// The same for engines whose directories are in `root`.
///
/// # Errors
/// See [`clear`].
pub fn clear_below(root: &Path, patience: Duration) -> Result<(), String> {
    let since = Instant::now();
    let prefix = format!("{}-", Path::new(PLACE).file_name().unwrap_or_default().to_string_lossy());
    let mut left = Vec::new();
    for base in fs::read_dir(root).map_err(|e| format!("cannot read {}: {e}", root.display()))?.flatten() {
        let name = base.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(&prefix).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        let its_own = |owner: u32| base.metadata().is_ok_and(|stat| stat.is_dir() && stat.uid() == owner);
        if !owner.is_some_and(|owner| its_own(owner) && (owner == uid() || uid() == 0)) {
            continue;
        }
        let before = left.len();
        for at in fs::read_dir(base.path()).into_iter().flatten().flatten().map(|entry| entry.path()) {
            left.extend(clear_one(&at, patience.saturating_sub(since.elapsed())).err());
        }
        if left.len() == before
            && let Err(error) = fs::remove_dir(base.path())
        {
            left.push(format!("cannot remove {}: {error}", base.path().display()));
        }
    }
    if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
}

fn clear_one(at: &Path, patience: Duration) -> Result<(), String> {
    let since = Instant::now();
    loop {
        let start = lock_file(at, "start")?;
        start.lock().map_err(|e| format!("cannot lock {}: {e}", at.display()))?;
        let alive = lock_file(at, "alive")?;
        if alive.try_lock().is_ok() {
            // Whoever waits for `start` sees that it is gone, and begins anew.
            return fs::remove_dir_all(at).map_err(|e| format!("cannot remove {}: {e}", at.display()));
        }
        // The engine's supervisor takes it to end.
        drop(start);
        if since.elapsed() > patience {
            return Err(format!("somebody still needs the engine in {}", at.display()));
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Whether a lock that was waited for is the one that others would take.
fn is_still_there(at: &Path, start: &File) -> bool {
    let identity = |stat: fs::Metadata| (stat.dev(), stat.ino());
    let there = fs::symlink_metadata(at.join("start")).map(identity);
    there.is_ok_and(|there| start.metadata().map(identity).is_ok_and(|held| held == there))
}

/// Who runs the test.
pub fn uid() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |m| m.uid())
}

/// A directory of the caller's own, made when it is missing. The name may be a known one below a directory that all
/// may write in, so what another has put there is refused.
pub(crate) fn directory(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o755))
            .map_err(|e| format!("cannot chmod {shown}: {e}")),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let there = fs::symlink_metadata(path).map_err(|e| format!("cannot look at {shown}: {e}"))?;
            if there.is_dir() && there.uid() == uid() && there.mode() & 0o022 == 0 {
                Ok(())
            } else {
                Err(format!("{shown} is somebody else's"))
            }
        }
        Err(error) => Err(format!("cannot make {shown}: {error}")),
    }
}

fn lock_file(directory: &Path, name: &str) -> Result<File, String> {
    let path = directory.join(name);
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // What another user has put there is never followed, nor waited for.
        .custom_flags(NOFOLLOW | NONBLOCK)
        .open(&path)
        .map_err(|e| format!("cannot open {}: {e}", path.display()))
}
