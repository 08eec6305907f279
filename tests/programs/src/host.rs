//! What one invocation shares: the command under test, the checks and a directory for what trials leave.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::program::Before;

/// A user as whom the command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Uid 0.
    Root,
    /// Uid 65534 when the suite runs as root, else whoever runs it.
    Unprivileged,
}

/// Both.
pub const USERS: [User; 2] = [User::Root, User::Unprivileged];

/// The user that stands for every unprivileged one: Debian's `nobody`.
const NOBODY: u32 = 65534;

impl User {
    /// What trials and the page call it.
    pub fn name(self) -> &'static str {
        match self {
            User::Root => "root",
            User::Unprivileged => "user",
        }
    }
}

/// Shared by all trials. The directory is removed when it is dropped.
pub struct Host {
    base: PathBuf,
    /// The command under test, where every user can run it.
    pub cofferdam: PathBuf,
    /// The checks, where every user can read them.
    pub scripts: PathBuf,
    /// Whether the suite runs as root.
    pub root: bool,
    rust: OnceLock<Result<PathBuf, String>>,
    next: AtomicU64,
}

impl Host {
    /// Copies command and checks to where every user can reach them.
    ///
    /// # Errors
    /// Names what is missing or cannot be made.
    pub fn set_up() -> Result<Host, String> {
        let root = fs::metadata("/proc/self").map(|m| m.uid() == 0).unwrap_or(false);
        // Not below /tmp: the host view hides that.
        let parent = match std::env::var_os("COFFERDAM_PROGRAMS_DIR") {
            Some(dir) => PathBuf::from(dir),
            None if root => PathBuf::from("/var/lib"),
            None => PathBuf::from(std::env::var_os("HOME").ok_or("neither COFFERDAM_PROGRAMS_DIR nor HOME is set")?),
        };
        let base = parent.join(format!("cofferdam-programs.{}", std::process::id()));
        make_dir(&base)?;
        let host = Host {
            cofferdam: base.join("bin/cofferdam"),
            scripts: base.join("scripts"),
            base,
            root,
            rust: OnceLock::new(),
            next: AtomicU64::new(0),
        };
        make_dir(&host.base.join("bin"))?;
        take(&command()?, &host.cofferdam)?;
        make_dir(&host.scripts)?;
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
        for entry in fs::read_dir(&from).map_err(|e| format!("cannot read {}: {e}", from.display()))? {
            let path = entry.map_err(|e| e.to_string())?.path();
            let to = host.scripts.join(path.file_name().unwrap_or_default());
            fs::copy(&path, &to).map_err(|e| format!("cannot copy {}: {e}", path.display()))?;
            set_mode(&to, 0o755)?;
        }
        Ok(host)
    }

    /// A directory of a trial's own, the user's, with what has to be there before.
    ///
    /// # Errors
    /// Names what cannot be made.
    pub fn directory(&self, before: Before, user: User) -> Result<PathBuf, String> {
        let dir = self.base.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        make_dir(&dir)?;
        match before {
            Before::Nothing => {}
            Before::Repository => repository(&dir)?,
            Before::Crate => a_crate(&dir)?,
            Before::Scripts => {
                write(&dir.join("script.sh"), "#!/bin/sh -e\necho \"$1\" of a script\n")?;
                write(&dir.join("script.py"), "#!/usr/bin/env python3\nprint('of Python')\n")?;
                set_mode(&dir.join("script.sh"), 0o755)?;
                set_mode(&dir.join("script.py"), 0o755)?;
                write(&dir.join("short.sh"), "#!/bin/cat")?;
                set_mode(&dir.join("short.sh"), 0o755)?;
            }
        }
        if self.root && user == User::Unprivileged {
            give(&dir, NOBODY)?;
        }
        Ok(dir)
    }

    /// A directory for a PATH with a Python in it that only root can reach.
    ///
    /// # Errors
    /// Names what cannot be made.
    pub fn closed_python(&self) -> Result<PathBuf, String> {
        let dir = self.directory(Before::Nothing, User::Root)?;
        let bin = dir.join("bin");
        make_dir(&bin)?;
        std::os::unix::fs::symlink("/usr/bin/python3", bin.join("python3"))
            .map_err(|e| format!("cannot link in {}: {e}", bin.display()))?;
        set_mode(&dir, 0o700)?;
        Ok(bin)
    }

    /// The start of a command line that runs as this user.
    pub fn as_user(&self, user: User) -> Vec<String> {
        if !self.root || user == User::Root {
            return Vec::new();
        }
        let id = NOBODY;
        ["setpriv", &format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups", "--inh-caps=-all", "--"]
            .map(str::to_owned)
            .to_vec()
    }

    /// A Rust toolchain that every user can read: cargo, rustc and the standard library, linked or copied to here.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn rust(&self) -> Result<&Path, String> {
        let made = self.rust.get_or_init(|| {
            let asked = Command::new("rustc").args(["--print", "sysroot"]).stderr(Stdio::null()).output();
            let answer = asked.map_err(|e| format!("cannot run rustc: {e}"))?.stdout;
            let from = PathBuf::from(String::from_utf8_lossy(&answer).trim_end());
            let to = self.base.join("rust");
            make_dir(&to)?;
            for part in ["bin", "lib"] {
                take_tree(&from.join(part), &to.join(part))?;
            }
            Ok(to)
        });
        made.as_deref().map_err(Clone::clone)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.base) {
            eprintln!("cannot remove {}: {error}", self.base.display());
        }
    }
}

/// Which of these is not on the caller's PATH (or at its absolute path).
pub fn missing(needs: &[&'static str]) -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    needs.iter().copied().find(|need| !is_there(need))
}

fn make_dir(path: &Path) -> Result<(), String> {
    fs::create_dir(path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
    set_mode(path, 0o755)
}

fn set_mode(path: &Path, bits: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(bits))
        .map_err(|e| format!("cannot chmod {}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Links a file to here, or copies it where that cannot be done.
fn take(from: &Path, to: &Path) -> Result<(), String> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(|_| ()).map_err(|e| format!("cannot copy {}: {e}", from.display()))
}

fn take_tree(from: &Path, to: &Path) -> Result<(), String> {
    make_dir(to)?;
    for entry in fs::read_dir(from).map_err(|e| format!("cannot read {}: {e}", from.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() { take_tree(&path, &to)? } else { take(&path, &to)? }
    }
    Ok(())
}

fn give(path: &Path, id: u32) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot give {} away: {e}", path.display());
    chown(path, Some(id), Some(id)).map_err(failed)?;
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).map_err(failed)? {
            give(&entry.map_err(failed)?.path(), id)?;
        }
    }
    Ok(())
}

fn repository(dir: &Path) -> Result<(), String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(dir).args(arguments).output();
        let output = output.map_err(|e| format!("cannot run git: {e}"))?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(format!("git {arguments:?}: {told}")) }
    };
    git(&["init", "-q", "-b", "main"])?;
    git(&["config", "user.name", "somebody"])?;
    git(&["config", "user.email", "somebody@example.org"])?;
    write(&dir.join("f"), "1\n")?;
    git(&["add", "f"])?;
    git(&["commit", "-qm", "one"])?;
    write(&dir.join("f"), "2\n")
}

fn a_crate(dir: &Path) -> Result<(), String> {
    let manifest = |name: &str, rest: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n{rest}")
    };
    for part in ["src", "six", "six/src"] {
        make_dir(&dir.join(part))?;
    }
    let files = [
        ("Cargo.toml", manifest("walled", "[dependencies]\nsix = { path = \"six\" }\n[workspace]\n")),
        ("six/Cargo.toml", manifest("six", "")),
        ("six/src/lib.rs", "pub fn six() -> u32 {\n    6\n}\n".to_owned()),
        (
            "build.rs",
            "fn main() {\n    let out = std::env::var(\"OUT_DIR\").unwrap();\n    \
             std::fs::write(out + \"/seven.rs\", \"const SEVEN: u32 = 7;\").unwrap();\n}\n"
                .to_owned(),
        ),
        (
            "src/main.rs",
            "include!(concat!(env!(\"OUT_DIR\"), \"/seven.rs\"));\nfn main() {\n    \
             println!(\"{}\", std::thread::spawn(|| six::six() * SEVEN).join().unwrap());\n}\n\
             #[test]\nfn it_is_known() {\n    assert_eq!(six::six() * SEVEN, 42);\n}\n"
                .to_owned(),
        ),
    ];
    files.iter().try_for_each(|(name, text)| write(&dir.join(name), text))
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
