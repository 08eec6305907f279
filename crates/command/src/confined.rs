//! The builder: resolves the caller's rules, applies them by this system's mechanism, and returns what is enforced.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::blocked_paths;
use crate::confinement_spec::{Area, CommandNetwork, ConfinementSpec, Fallback};
use crate::enforcement::{CommandEnforcement, ConfinementRule, RuleStrength};
use crate::error::{ConfineError, ConfineReason};
use crate::mode::SandboxMode;
use crate::path_resolution;

/// A command that is to be confined.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use cofferdam_command::{Confined, SandboxMode};
///
/// let (mut command, enforcement) =
///     Confined::new("claude").mode(SandboxMode::Sandbox).data_dir("/home/me/.agent").write("/home/me/project").command()?;
/// tracing::info!(%enforcement, "confined");
/// let output = command.arg("--print").arg("hello").kill_on_drop(true).output().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Confined {
    program: OsString,
    mode: SandboxMode,
    data_dir: Option<PathBuf>,
    write: Vec<PathBuf>,
    read: Vec<PathBuf>,
    deny_read: Vec<PathBuf>,
    enforce_reads: bool,
    network: CommandNetwork,
    unix_sockets: bool,
    shared_ipc: bool,
    inherit_descriptors: bool,
    fallback: Fallback,
    landlock_at_most: Option<u32>,
    mechanism: RuleMechanism,
    /// Grants everything except what is always refused.
    protects: bool,
}

/// The mechanism that enforces the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleMechanism {
    Landlock,
    Seatbelt(PathBuf),
    None,
}

impl RuleMechanism {
    fn of_this_system() -> RuleMechanism {
        if cfg!(target_os = "linux") {
            RuleMechanism::Landlock
        } else if cfg!(target_os = "macos") {
            RuleMechanism::Seatbelt(crate::seatbelt::SANDBOX_EXEC.into())
        } else {
            RuleMechanism::None
        }
    }
}

/// Directories that programs need to start and run, without files of users.
const SYSTEM_READS: [&str; 22] = [
    "/Applications",
    "/Library",
    "/System",
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix",
    "/opt",
    "/private/etc",
    "/private/var/db",
    "/proc",
    "/run/current-system",
    "/run/systemd/resolve",
    "/sbin",
    "/snap",
    "/sys",
    "/usr",
    "/var/lib/ca-certificates",
    "/var/lib/flatpak",
];

impl Confined {
    /// A command: a path, or a name that is looked up in `PATH`. By default in the mode `sandbox`, with the host's
    /// network, without Unix sockets, and refused if something cannot be enforced.
    pub fn new(program: impl AsRef<OsStr>) -> Confined {
        Confined {
            program: program.as_ref().to_owned(),
            mode: SandboxMode::default(),
            data_dir: None,
            write: Vec::new(),
            read: Vec::new(),
            deny_read: Vec::new(),
            enforce_reads: false,
            network: CommandNetwork::default(),
            unix_sockets: false,
            shared_ipc: false,
            inherit_descriptors: false,
            fallback: Fallback::default(),
            landlock_at_most: None,
            mechanism: RuleMechanism::of_this_system(),
            protects: false,
        }
    }

    /// Sets the mode. With `rwx` nothing is enforced, and the other settings are ignored.
    pub fn mode(mut self, mode: SandboxMode) -> Confined {
        self.mode = mode;
        self
    }

    /// Sets the directory whose whole tree is writable: an absolute path that exists, and none of the system's.
    /// Required except in the mode `rwx`.
    pub fn data_dir(mut self, path: impl AsRef<Path>) -> Confined {
        self.data_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Adds a writable directory or file: as for the data directory none of the system's, except for devices.
    pub fn write(mut self, path: impl AsRef<Path>) -> Confined {
        self.write.push(path.as_ref().to_owned());
        self
    }

    /// Adds a directory or file that can be read and executed, for [`Self::enforce_reads`].
    pub fn read(mut self, path: impl AsRef<Path>) -> Confined {
        self.read.push(path.as_ref().to_owned());
        self
    }

    /// Adds a directory or file that can be neither read, listed nor executed. Landlock has no exceptions below a
    /// grant, so on Linux everything beside it is granted entry by entry: the directories above it cannot be listed
    /// either, and files created in them later cannot be read. Its existence, size and times remain visible.
    pub fn deny_read(mut self, path: impl AsRef<Path>) -> Confined {
        self.deny_read.push(path.as_ref().to_owned());
        self
    }

    /// In the mode `sandbox`, limits reading to the writable paths, the system's directories, and the program's own
    /// directory.
    pub fn enforce_reads(mut self, enforce: bool) -> Confined {
        self.enforce_reads = enforce;
        self
    }

    /// Sets the network.
    pub fn network(mut self, network: CommandNetwork) -> Confined {
        self.network = network;
        self
    }

    /// Whether Unix sockets can be created and connected to. By default they cannot: a container engine, a session bus,
    /// a terminal multiplexer or a key agent that listens on one acts for any client (a confused deputy).
    pub fn unix_sockets(mut self, granted: bool) -> Confined {
        self.unix_sockets = granted;
        self
    }

    /// Whether System V IPC and POSIX message queues can be used. By default they cannot: they belong to the user, and
    /// any process of that user can change and remove them. A PostgreSQL server needs them to start.
    pub fn shared_ipc(mut self, granted: bool) -> Confined {
        self.shared_ipc = granted;
        self
    }

    /// Whether it inherits the caller's descriptors that are not close-on-exec, with all their rights: a file that the
    /// caller opened for writing is writable, wherever it is. By default it has its standard streams, and descriptors
    /// that closures given to `pre_exec` open or keep for it, such as those of jobservers.
    pub fn inherit_descriptors(mut self, inherit: bool) -> Confined {
        self.inherit_descriptors = inherit;
        self
    }

    /// Sets what happens if something cannot be enforced.
    pub fn fallback(mut self, fallback: Fallback) -> Confined {
        self.fallback = fallback;
        self
    }

    /// Uses Landlock as if the kernel had at most this ABI version: for tests. 0 means no Landlock.
    pub fn landlock_at_most(mut self, abi: u32) -> Confined {
        self.landlock_at_most = Some(abi);
        self
    }

    /// Uses Seatbelt, with this program in place of `sandbox-exec`: for tests on other systems than macOS.
    pub fn seatbelt_by(mut self, sandbox_exec: impl AsRef<Path>) -> Confined {
        self.mechanism = RuleMechanism::Seatbelt(sandbox_exec.as_ref().to_owned());
        self
    }

    /// Uses no mechanism, as on an unsupported system: for tests.
    pub fn without_mechanism(mut self) -> Confined {
        self.mechanism = RuleMechanism::None;
        self
    }

    /// Grants writing everything except what is always refused, and reading everything except the data directory's own
    /// records.
    pub(crate) fn protecting(mut self) -> Confined {
        self.protects = true;
        self
    }

    /// The command, which is confined each time that it is spawned, and what is enforced. It has every feature of
    /// tokio's `Command`. Closures given to its `pre_exec` run confined.
    ///
    /// Of the caller's descriptors it inherits only the standard streams: see [`Self::inherit_descriptors`].
    ///
    /// # Errors
    /// A path cannot be granted, something cannot be prepared, or, without [`Fallback::Warn`], this system cannot
    /// enforce something.
    pub fn command(self) -> Result<(Command, CommandEnforcement), ConfineError> {
        let program = self.program.clone();
        let prepared = self.prepare().map_err(|reason| ConfineError::new(&program, reason))?;
        let enforcement = prepared.enforcement.clone();
        let command = prepared.command().map_err(|reason| ConfineError::new(&program, reason))?;
        Ok((command, enforcement))
    }

    /// Spawns it, after `set_up` has set arguments, streams and so on. Unlike [`Self::command`], this is as fast from a
    /// caller with gigabytes of memory as from a small one: code between fork and exec makes the standard library copy
    /// the caller's page tables. Here a thread confines itself once and spawns the command, so there is nothing to do
    /// after fork, and a failure has a message.
    ///
    /// A caller with descriptors that are not close-on-exec (for instance inherited ones) is forked nevertheless,
    /// because only between fork and exec can they be closed for the command. One that another thread opens at that
    /// moment is missed.
    ///
    /// Do not use the parent-death signal (`prctl(PR_SET_PDEATHSIG)`) here: it is sent when that thread ends, not the
    /// process.
    ///
    /// # Panics
    /// Outside a tokio runtime, as tokio's own spawn does.
    ///
    /// # Errors
    /// As for [`Self::command`], and those of spawn.
    pub fn spawn(
        self,
        set_up: impl FnOnce(&mut Command),
    ) -> Result<(tokio::process::Child, CommandEnforcement), ConfineError> {
        let program = self.program.clone();
        let prepared = self.prepare().map_err(|reason| ConfineError::new(&program, reason))?;
        let enforcement = prepared.enforcement.clone();
        let child = prepared.spawn(set_up).map_err(|reason| ConfineError::new(&program, reason))?;
        Ok((child, enforcement))
    }

    fn prepare(self) -> Result<PreparedCommand, ConfineReason> {
        path_resolution::program(Path::new(&self.program))?;
        if self.mode == SandboxMode::Rwx && !self.protects {
            let restrictions = CommandWrapper::Nothing(Command::new(&self.program));
            return Ok(PreparedCommand {
                program: self.program,
                around: restrictions,
                enforcement: CommandEnforcement::default(),
            });
        }
        let mut notes = Vec::new();
        let spec = self.spec(&mut notes)?;
        let (around, mut enforcement) = match &self.mechanism {
            RuleMechanism::Landlock => self.landlock(&spec)?,
            RuleMechanism::Seatbelt(sandbox_exec) if sandbox_exec.is_file() => {
                let (command, enforcement) = crate::seatbelt::command(&self.program, &spec, sandbox_exec)?;
                (CommandWrapper::Nothing(command), enforcement)
            }
            RuleMechanism::Seatbelt(sandbox_exec) if self.fallback == Fallback::Refuse => {
                return Err(ConfineReason::NoSandboxExec(sandbox_exec.clone()));
            }
            RuleMechanism::Seatbelt(sandbox_exec) => {
                let why = format!("{} is not there", sandbox_exec.display());
                (CommandWrapper::Nothing(Command::new(&self.program)), nothing_held(&why))
            }
            RuleMechanism::None if self.fallback == Fallback::Warn => {
                let why = "no sandbox of this system's is known here";
                (CommandWrapper::Nothing(Command::new(&self.program)), nothing_held(why))
            }
            RuleMechanism::None => return Err(ConfineReason::Unsupported),
        };
        for note in &notes {
            tracing::info!(program = ?self.program, note, "a command is confined");
        }
        enforcement.notes.extend(notes);
        let missing: Vec<_> = enforcement.missing().cloned().collect();
        if !missing.is_empty() && self.fallback == Fallback::Refuse {
            return Err(ConfineReason::NotHeld(missing));
        }
        for applied in &missing {
            tracing::warn!(program = ?self.program, rule = %applied.rule, strength = %applied.strength,
                reason = applied.reason, "a rule is not held wholly");
        }
        tracing::debug!(program = ?self.program, mode = %self.mode, strength = %enforcement.strength(),
            landlock_abi = enforcement.landlock_abi, "a command is confined");
        Ok(PreparedCommand { program: self.program, around, enforcement })
    }

    #[cfg(target_os = "linux")]
    fn landlock(&self, spec: &ConfinementSpec) -> Result<(CommandWrapper, CommandEnforcement), ConfineReason> {
        let (restrictions, enforcement) = crate::linux::prepare(spec)?;
        // If the kernel cannot, that was accepted or refused before.
        let inherits =
            spec.inherit_descriptors || enforcement.of(ConfinementRule::Descriptors) != Some(RuleStrength::Full);
        Ok((CommandWrapper::Restrictions { restrictions, inherits }, enforcement))
    }

    #[cfg(not(target_os = "linux"))]
    fn landlock(&self, _: &ConfinementSpec) -> Result<(CommandWrapper, CommandEnforcement), ConfineReason> {
        Err(ConfineReason::Unsupported)
    }

    /// Resolves every path.
    fn spec(&self, notes: &mut Vec<String>) -> Result<ConfinementSpec, ConfineReason> {
        let data = self.data_dir.as_deref().ok_or(ConfineReason::NoDataDirectory)?;
        let mut write = Area::default();
        // Every agent writes temporary files, and the state of the model's own command.
        let mut common = vec![PathBuf::from("/tmp")];
        if self.mechanism != RuleMechanism::Landlock {
            common.extend(["/private/tmp", "/private/var/folders"].map(PathBuf::from));
        }
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        common.extend(home.map(|home| home.join(".claude")));
        // Each path as given, and what it resolved to.
        let mut named: Vec<(&'static str, PathBuf, PathBuf)> = Vec::new();
        for path in common {
            match std::fs::symlink_metadata(&path) {
                Ok(_) => {
                    let found = path_resolution::writable("always writable", &path)?;
                    write.roots.push(found.clone());
                    named.push(("always writable", path, found));
                }
                Err(_) if path.starts_with("/private") => {}
                Err(_) => notes.push(format!("{} does not exist, and so is not granted", path.display())),
            }
        }
        let data_named = data;
        let data = path_resolution::data_dir(data)?;
        write.roots.push(data.clone());
        named.push(("data directory", data_named.to_owned(), data.clone()));
        for path in &self.write {
            let device = path.starts_with("/dev") && path.components().count() > 2 && !path.is_dir();
            let found =
                if device { path_resolution::there("write", path)? } else { path_resolution::writable("write", path)? };
            write.roots.push(found.clone());
            named.push(("write", path.clone(), found));
        }
        // Only when all of them are known: the first path may lead through the last one.
        for (rule, path, found) in &named {
            path_resolution::astray(rule, path, found, &write.roots)?;
        }
        let denied = self
            .deny_read
            .iter()
            .map(|path| path_resolution::there("deny_read", path))
            .collect::<Result<Vec<_>, ConfineReason>>()?;
        for path in &denied {
            if let Some(root) = write.roots.iter().find(|root| root.starts_with(path)) {
                return Err(ConfineReason::Path {
                    rule: "deny_read",
                    path: path.clone(),
                    fault: format!("{} lies in it, which is granted", root.display()),
                    hint: "deny what lies beside it",
                });
            }
        }
        let mut read = None;
        if self.enforce_reads && self.mode == SandboxMode::Sandbox {
            let mut roots = write.roots.clone();
            for path in &self.read {
                let found = path_resolution::there("read", path)?;
                path_resolution::astray("read", path, &found, &write.roots)?;
                roots.push(found);
            }
            roots.extend(SYSTEM_READS.iter().filter_map(|path| std::fs::canonicalize(path).ok()));
            roots.extend(self.programs_place());
            roots.sort();
            roots.dedup();
            read = Some(Area { roots, holes: denied });
        } else if !denied.is_empty() {
            read = Some(Area { roots: vec![PathBuf::from("/")], holes: denied });
        }
        let mut spec = ConfinementSpec {
            write,
            read,
            network: self.network,
            unix_sockets: self.unix_sockets,
            shared_ipc: self.shared_ipc,
            inherit_descriptors: self.inherit_descriptors,
            landlock_at_most: self.landlock_at_most,
        };
        if self.protects {
            let own = blocked_paths::of_data(&data);
            let system = blocked_paths::SYSTEM.iter().filter_map(|dir| std::fs::canonicalize(dir).ok());
            let root = || vec![PathBuf::from("/")];
            let mut holes: Vec<PathBuf> = system.chain(own.iter().cloned()).collect();
            holes.sort();
            holes.dedup();
            spec.write = Area { roots: root(), holes };
            spec.read = Some(Area { roots: root(), holes: own });
        }
        Ok(spec)
    }

    /// The directory of the program and of what was installed with it: `PREFIX` for a program in `PREFIX/bin`, unless
    /// that is a home directory or contains one.
    fn programs_place(&self) -> Vec<PathBuf> {
        let path = Path::new(&self.program);
        let found = if path.components().count() > 1 {
            std::fs::canonicalize(path).ok()
        } else {
            let places = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&places).find_map(|dir| {
                let file = dir.join(path);
                file.is_file().then(|| std::fs::canonicalize(file).ok()).flatten()
            })
        };
        let Some(file) = found else { return Vec::new() };
        let prefix = file.parent().filter(|dir| dir.ends_with("bin")).and_then(Path::parent);
        let home = std::env::var_os("HOME").and_then(|home| std::fs::canonicalize(home).ok());
        let own = |dir: &&Path| dir.components().count() > 2 && home.as_ref().is_none_or(|home| !home.starts_with(dir));
        match prefix.filter(own) {
            Some(prefix) => vec![prefix.to_owned()],
            None => vec![file],
        }
    }
}

/// The enforcement of a command without a mechanism.
fn nothing_held(why: &str) -> CommandEnforcement {
    use crate::enforcement::ConfinementRule::*;
    let mut enforcement = CommandEnforcement::default();
    for rule in [Writes, Truncation, Links, Devices, Metadata, Signals] {
        enforcement.add(rule, RuleStrength::None, why);
    }
    enforcement
}

/// A confined command before it becomes one of tokio's.
struct PreparedCommand {
    program: OsString,
    around: CommandWrapper,
    enforcement: CommandEnforcement,
}

/// How it is confined.
enum CommandWrapper {
    /// Seatbelt's command line confines it, or nothing does.
    Nothing(Command),
    #[cfg(target_os = "linux")]
    Restrictions {
        restrictions: cofferdam_confine::command::Restrictions,
        /// Whether it inherits the caller's descriptors.
        inherits: bool,
    },
}

impl PreparedCommand {
    fn command(self) -> Result<Command, ConfineReason> {
        match self.around {
            CommandWrapper::Nothing(command) => Ok(command),
            #[cfg(target_os = "linux")]
            CommandWrapper::Restrictions { restrictions, inherits } => attached(&self.program, &restrictions, inherits),
        }
    }

    fn spawn(self, set_up: impl FnOnce(&mut Command)) -> Result<tokio::process::Child, ConfineReason> {
        let spawned = |result: std::io::Result<_>| result.map_err(|error| ConfineReason::Spawn(error.into()));
        match self.around {
            CommandWrapper::Nothing(mut command) => {
                set_up(&mut command);
                spawned(command.spawn())
            }
            #[cfg(target_os = "linux")]
            CommandWrapper::Restrictions { restrictions, inherits } => {
                if !inherits && cofferdam_confine::command::has_inheritable() {
                    let mut command = attached(&self.program, &restrictions, inherits)?;
                    set_up(&mut command);
                    return command.spawn().map_err(|error| match ConfineError::of_spawn(&command, &error) {
                        Some(known) => known.reason,
                        None => ConfineReason::Spawn(error.into()),
                    });
                }
                let mut command = Command::new(&self.program);
                set_up(&mut command);
                let runtime = tokio::runtime::Handle::current();
                let spawn = move || {
                    let _inside = runtime.enter();
                    command.spawn()
                };
                let behind = restrictions.run_restricted(spawn).map_err(|failed| ConfineReason::Child {
                    step: failed.step.call(),
                    source: std::io::Error::from_raw_os_error(failed.errno).into(),
                })?;
                spawned(behind)
            }
        }
    }
}

/// A command that is confined between fork and exec.
#[cfg(target_os = "linux")]
fn attached(
    program: &OsStr,
    restrictions: &cofferdam_confine::command::Restrictions,
    inherits: bool,
) -> Result<Command, ConfineReason> {
    let mut command = std::process::Command::new(program);
    let prepared = restrictions.attach(&mut command, inherits);
    prepared.map_err(|source| ConfineReason::Prepare { step: "the keeper".into(), source: source.into() })?;
    Ok(Command::from(command))
}
