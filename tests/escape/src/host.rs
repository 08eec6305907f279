//! What one invocation of the suite shares: the programs, the directory of its victims, and which cells can be tried.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cofferdam_policy::BackendName;
use cofferdam_test_containers::{Engine, Kind};

use crate::attack::{Attack, Twin, Victim};

/// A user as whom the command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    /// Uid 0.
    Root,
    /// A uid that nobody else has when the suite runs as root, another for each case; else whoever runs it.
    Unprivileged,
}

impl User {
    /// What the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            User::Root => "root",
            User::Unprivileged => "user",
        }
    }
}

/// The first of the ids that stand for unprivileged users: above those of people and services, below those that
/// are mapped into containers. Each case takes another, because the kernel counts processes and keys by user.
const FIRST_ID: u32 = 3_000_000;
/// The one unprivileged user of a podman without root, which is one user's: processes and keys in its containers are
/// counted for each container's own user namespace.
const PODMAN_ID: u32 = FIRST_ID - 1;

/// Shared by all trials. The directory is removed when it is dropped.
pub struct Host {
    /// Everything of this invocation lies in it.
    pub base: PathBuf,
    /// The static attack program.
    pub attack: PathBuf,
    /// The command under test.
    pub cofferdam: PathBuf,
    /// Whether the suite runs as root.
    pub root: bool,
    next: AtomicU64,
    engines: [OnceLock<Result<Engine, String>>; 3],
}

impl Host {
    /// Compiles the attacks (or takes the program that `COFFERDAM_ATTACK` names) and copies the command to where every user can run it.
    ///
    /// # Errors
    /// Says what is missing: the C compiler, the command, or a place for the files.
    pub fn set_up() -> Result<Host, String> {
        let root = fs::metadata("/proc/self").map(|m| m.uid() == 0).unwrap_or(false);
        // Not below /tmp: the host view hides that, and the victims have to be visible.
        let parent = match std::env::var_os("COFFERDAM_ESCAPE_DIR") {
            Some(dir) => PathBuf::from(dir),
            None if root => PathBuf::from("/var/lib"),
            None => PathBuf::from(std::env::var_os("HOME").ok_or("neither COFFERDAM_ESCAPE_DIR nor HOME is set")?),
        };
        sweep(&parent);
        let base = parent.join(format!("{PREFIX}{}", std::process::id()));
        let host = Host {
            attack: base.join("bin/attack"),
            cofferdam: base.join("bin/cofferdam"),
            base,
            root,
            next: AtomicU64::new(u64::from(std::process::id()) << 16),
            engines: Default::default(),
        };
        make_dir(&host.base, 0o755)?;
        make_dir(&host.base.join("bin"), 0o755)?;
        for owner in [None, root.then_some(PODMAN_ID)] {
            let state = host.state(owner).ok_or("a state has no place")?;
            if !state.is_dir() {
                make_dir(&state, 0o700)?;
                std::os::unix::fs::chown(&state, owner, owner).map_err(|e| format!("cannot chown a state: {e}"))?;
            }
        }
        match std::env::var_os("COFFERDAM_ATTACK") {
            Some(built) => copy(Path::new(&built), &host.attack)?,
            None => compile(&host.attack)?,
        }
        for file in command_files()? {
            let to = host.base.join("bin").join(file.file_name().unwrap_or_default());
            copy(&file, &to)?;
        }
        Ok(host)
    }

    /// The unprivileged user of the case with this number; `None` when it is whoever runs the suite.
    pub fn unprivileged(&self, number: u64, backend: BackendName) -> Option<u32> {
        let id = if backend == BackendName::Podman {
            PODMAN_ID
        } else {
            FIRST_ID + u32::try_from(number % 1_000_000).unwrap_or(0)
        };
        self.root.then_some(id)
    }

    /// Where containers keep their files for a user who starts them in many trials, as whoever runs containers has one place
    /// for all of them; `None` for the user of one case.
    pub fn state(&self, uid: Option<u32>) -> Option<PathBuf> {
        match uid {
            None => Some(self.base.join("state")),
            Some(PODMAN_ID) => Some(self.base.join("state-of-podman")),
            Some(_) => None,
        }
    }

    /// The engine behind a backend, as which user runs the command: started by the first who asks. `None` where none is
    /// needed.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn engine(&self, backend: BackendName, user: User) -> Result<Option<&Engine>, String> {
        let (at, kind) = match (backend, user) {
            (BackendName::Docker, _) => (0, Kind::Docker),
            (BackendName::Podman, User::Root) => (1, Kind::Podman),
            (BackendName::Podman, User::Unprivileged) if self.root => (2, Kind::PodmanOf(PODMAN_ID)),
            (BackendName::Podman, User::Unprivileged) => (2, Kind::Podman),
            _ => return Ok(None),
        };
        self.engines[at].get_or_init(|| Engine::shared(kind)).as_ref().map(Some).map_err(Clone::clone)
    }

    /// A number that no other trial of this invocation gets.
    pub fn unique(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Why this attack cannot be tried here: only root can make its victim or show that it works where it is allowed.
    pub fn root_missing(&self, attack: &Attack) -> Option<&'static str> {
        let made_by_root =
            |v: &Victim| matches!(v, Victim::Setuid | Victim::FileCaps | Victim::Node(_) | Victim::GroupFile);
        let needed =
            attack.victims.iter().any(made_by_root) || matches!(attack.twin, Twin::AsRoot | Twin::PrivateMounts);
        (needed && !self.root).then_some("its victim or its allowed twin needs root, as which the suite does not run")
    }

    /// Why there is no such user here.
    pub fn user_missing(&self, user: User) -> Option<&'static str> {
        (user == User::Root && !self.root).then_some("the suite does not run as root")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.base) {
            eprintln!("cannot remove {}: {error}", self.base.display());
        }
    }
}

/// What the directory of an invocation is called, before its process id.
const PREFIX: &str = "cofferdam-escape.";

/// Removes the directories of invocations that were killed.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok()) else {
            continue;
        };
        if !Path::new(&format!("/proc/{process}")).exists()
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            eprintln!("cannot remove {}: {error}", entry.path().display());
        }
    }
}

/// Makes a directory with exactly these bits.
///
/// # Errors
/// Names the directory and the cause.
pub fn make_dir(path: &Path, bits: u32) -> Result<(), String> {
    fs::create_dir(path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
    mode(path, bits)
}

/// Sets a file's mode.
///
/// # Errors
/// Names the file and the cause.
pub fn mode(path: &Path, bits: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(bits))
        .map_err(|e| format!("cannot chmod {}: {e}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
    mode(to, 0o755)
}

fn compile(to: &Path) -> Result<(), String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("attacks");
    let mut files: Vec<PathBuf> = fs::read_dir(&sources)
        .map_err(|e| format!("cannot read {}: {e}", sources.display()))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .collect();
    files.sort();
    let output = Command::new("gcc")
        .args(["-static", "-O1", "-pthread", "-Wall", "-Wextra", "-Wno-format-truncation", "-o"])
        .arg(to)
        .args(&files)
        .output()
        .map_err(|e| format!("cannot run gcc: {e}\nhint: apt-get install gcc libc6-dev"))?;
    if !output.status.success() {
        return Err(format!("the attacks do not compile:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    mode(to, 0o755)
}

/// Builds the command, so that what is attacked is what the sources say.
fn build() -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(["build", "--quiet", "--package", "cofferdam"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .map_err(|e| format!("cannot run cargo: {e}\nhint: COFFERDAM_BIN=… names a built command"))?;
    if done.success() { Ok(()) } else { Err("the command does not build".into()) }
}

/// The command, from `COFFERDAM_BIN` or built for this, and whatever helper programs lie beside it.
fn command_files() -> Result<Vec<PathBuf>, String> {
    let command = match std::env::var_os("COFFERDAM_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            build()?;
            std::env::current_exe()
                .ok()
                .and_then(|exe| exe.parent()?.parent().map(|dir| dir.join("cofferdam")))
                .ok_or("the test's own path is unknown")?
        }
    };
    if !command.is_file() {
        return Err(format!("{} does not exist\nhint: cargo build -p cofferdam", command.display()));
    }
    let directory = command.parent().unwrap_or(Path::new("/"));
    let mut files = vec![command.clone()];
    for entry in fs::read_dir(directory).map_err(|e| format!("cannot read {}: {e}", directory.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("cofferdam-") && !name.contains('.') && path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}
