//! The directory in which the suite works, and the users as which it runs: every user can read it and no sandbox hides
//! it, and it has copies of the command and of the scripts.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The unprivileged user of trials that root starts: Debian's `nobody`.
pub const NOBODY: u32 = 65534;

/// The user as which the command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Root of the machine.
    Root,
    /// An unprivileged user, whose world is in a user namespace of its own.
    Unprivileged,
}

/// Both, in the order of the table.
pub const USERS: [User; 2] = [User::Root, User::Unprivileged];

impl User {
    /// Its name in test names.
    pub fn name(self) -> &'static str {
        match self {
            User::Root => "root",
            User::Unprivileged => "unprivileged",
        }
    }
}

/// The suite's directory; removed with the value.
#[derive(Debug)]
pub struct SuiteDirectory {
    base: PathBuf,
    /// The command under test.
    pub cofferdam: PathBuf,
    /// Scripts that run inside.
    pub inside: PathBuf,
    /// Scripts that make the world.
    pub world: PathBuf,
    /// Whether the suite runs as root, and so as both users.
    pub root: bool,
}

impl SuiteDirectory {
    /// Makes the directory and the copies.
    ///
    /// # Errors
    /// Names what cannot be made.
    pub fn set_up() -> Result<SuiteDirectory, String> {
        let root = fs::metadata("/proc/self").map_err(|e| format!("cannot read /proc/self: {e}"))?.uid() == 0;
        // Not in a directory for temporary files, which sandboxes have of their own, and not below a home that other
        // users cannot enter.
        let parent = match std::env::var_os("COFFERDAM_PROGRAMS_DIR") {
            Some(dir) => PathBuf::from(dir),
            None if root => PathBuf::from("/var/lib"),
            None => PathBuf::from(std::env::var_os("HOME").ok_or("neither COFFERDAM_PROGRAMS_DIR nor HOME is set")?),
        };
        let base = parent.join(format!("cofferdam-egress.{}", std::process::id()));
        make_dir(&base)?;
        let suite = SuiteDirectory {
            cofferdam: base.join("cofferdam"),
            inside: base.join("inside"),
            world: base.join("world"),
            base,
            root,
        };
        copy(&command()?, &suite.cofferdam)?;
        for (name, to) in [("inside", &suite.inside), ("world", &suite.world)] {
            make_dir(to)?;
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            for entry in fs::read_dir(&from).map_err(|e| format!("cannot read {}: {e}", from.display()))? {
                let path = entry.map_err(|e| e.to_string())?.path();
                if path.is_file() {
                    copy(&path, &to.join(path.file_name().unwrap_or_default()))?;
                }
            }
        }
        Ok(suite)
    }

    /// An empty directory of this user's.
    ///
    /// # Errors
    /// Names what cannot be made.
    pub fn directory(&self, name: &str, user: User) -> Result<PathBuf, String> {
        let dir = self.base.join(name);
        make_dir(&dir)?;
        if self.root && user == User::Unprivileged {
            chown(&dir, Some(NOBODY), Some(NOBODY)).map_err(|e| format!("cannot give {} away: {e}", dir.display()))?;
        }
        Ok(dir)
    }
}

impl Drop for SuiteDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.base) {
            eprintln!("cannot remove {}: {error}", self.base.display());
        }
    }
}

/// The first of these that is missing: a program, or an absolute path.
pub fn missing(needs: &[&'static str]) -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| {
        let on_path = || std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
        // Servers are not on the PATH of users.
        if name.starts_with('/') {
            Path::new(name).exists()
        } else {
            on_path() || Path::new("/usr/sbin").join(name).is_file()
        }
    };
    needs.iter().copied().find(|need| !is_there(need))
}

fn make_dir(path: &Path) -> Result<(), String> {
    fs::create_dir(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .map_err(|e| format!("cannot make {}: {e}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(|_| ()).map_err(|e| format!("cannot copy {}: {e}", from.display()))
}

/// The command under test: `COFFERDAM_BIN`, or the one beside the test's own program.
fn command() -> Result<PathBuf, String> {
    let command = match std::env::var_os("COFFERDAM_BIN") {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()
            .ok()
            .and_then(|exe| Some(exe.parent()?.parent()?.join("cofferdam")))
            .ok_or("the test's own path is unknown")?,
    };
    if command.is_file() {
        return Ok(command);
    }
    Err(format!("{} does not exist\nhint: cargo build -p cofferdam", command.display()))
}
