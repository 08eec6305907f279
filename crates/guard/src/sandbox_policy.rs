//! Makes the policy of one command. Reads the modes of directories, and decides nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cofferdam_policy::paths::{PathSet, is_within};
use cofferdam_policy::{Access, Field, Mount, OWN_HOME, Policy, Root, credential_deny};

use super::config::GuardConfig;
use super::error::plain;
use cofferdam_engine::executables::Executable;

/// Paths that the minimal root view shows anyway.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The parts of the policy that are the same for every command.
#[derive(Debug, Clone)]
pub(super) struct PolicyBase {
    /// The directory that commands work in, canonical.
    pub workspace: String,
    /// Others that they may write, canonical.
    pub writable: Vec<String>,
    /// The caller's home, whose credentials are denied.
    pub home: Option<String>,
    /// Variables of every command.
    pub variables: BTreeMap<String, String>,
    /// Whether sandboxes have a user of their own, who enters no closed directory.
    pub other_user: bool,
}

/// One command.
pub(super) struct CommandCall<'a> {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Whether it executes what lies in the workspace.
    pub workspace_programs: bool,
    /// Whether it may start anything at all.
    pub spawn: bool,
    /// The programs that it may execute.
    pub executables: &'a [Executable],
    /// Other paths that it may read.
    pub readable: &'a BTreeSet<String>,
    /// Denied paths.
    pub denied: Vec<String>,
}

impl PolicyBase {
    /// Every directory that commands may write.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.workspace).chain(&self.writable)
    }

    /// Whether every directory that commands may write is still where its path says, without a link on the way: one
    /// that was put there since would have them write elsewhere.
    pub(crate) fn is_unmoved(&self) -> Result<(), String> {
        for dir in self.writable() {
            match std::fs::canonicalize(dir) {
                Ok(real) if real == Path::new(dir) => {}
                Ok(real) => return Err(format!("{} leads to {} by now", plain(dir), plain(&real.to_string_lossy()))),
                Err(e) => return Err(format!("{} cannot be used any more: {e}", plain(dir))),
            }
        }
        Ok(())
    }

    /// The policy of one command.
    pub(crate) fn policy(&self, config: &GuardConfig, call: CommandCall<'_>) -> Policy {
        let mut policy = Policy::base();
        policy.command.argv = call.argv;
        policy.command.variables = self.variables.clone();
        policy.command.cwd = Some(self.workspace.clone());
        policy.filesystem.root = if config.enforce_reads { Root::Minimal } else { Root::Host };
        policy.network.mode = config.network;
        policy.process.spawn = call.spawn;
        policy.limits = config.limits.clone();
        policy.limits.wall_ms = config.max_execution_time_secs.saturating_mul(1000);
        policy.limits.output_bytes = config.max_output_bytes;
        policy.require(Field::WallTime);
        policy.require(Field::Output);
        let names = |directory: &str| -> Vec<String> {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        };
        let credentials = credential_deny(self.home.as_deref().unwrap_or("/nonexistent"), &names);
        // Writable directories were configured, so they take precedence over built-in rules.
        let credentials = credentials.into_iter().filter(|path| !self.writable().any(|dir| is_within(dir, path)));
        let denied: Vec<String> = call.denied.into_iter().chain(credentials).collect();
        let denied: PathSet = denied.iter().map(String::as_str).collect();
        policy.filesystem.deny = denied.outermost().iter().map(str::to_owned).collect();

        let mut mounts: BTreeMap<String, Mount> = BTreeMap::new();
        let needed = call.executables.iter().map(|e| &e.path).chain(call.readable);
        for path in needed.filter(|path| self.is_hidden(config, path)) {
            let covered = denied.covering(path).is_some() || self.writable().any(|dir| is_within(path, dir));
            if !covered {
                mounts.insert(path.clone(), bind(path, Access::ReadOnly, true));
            }
        }
        // One inside another is shown with it.
        let outer: Vec<String> = mounts.keys().cloned().collect();
        mounts.retain(|path, _| !outer.iter().any(|other| other != path && is_within(path, other)));
        for dir in self.writable() {
            let exec = call.workspace_programs && *dir == self.workspace;
            mounts.insert(dir.clone(), bind(dir, Access::ReadWrite, exec));
        }
        policy.filesystem.mounts = mounts.into_values().collect();
        policy
    }

    /// The directory to show so that a hidden program is found by its own name; `None` where that would show far more.
    pub(crate) fn directory_of<'p>(&self, program: &'p str) -> Option<&'p str> {
        let (dir, _) = program.rsplit_once('/')?;
        let far_more = ["", "/tmp", "/var/tmp", "/run", "/dev"].contains(&dir) || self.home.as_deref() == Some(dir);
        (!far_more && !self.writable().any(|writable| is_within(writable, dir))).then_some(dir)
    }

    /// Whether the root view does not show a path to the sandbox's user.
    pub(crate) fn is_hidden(&self, config: &GuardConfig, path: &str) -> bool {
        let shown = if config.enforce_reads {
            SYSTEM.iter().any(|dir| is_within(path, dir))
        } else {
            !["/tmp", "/var/tmp", "/run", "/dev"].iter().any(|dir| is_within(path, dir))
        };
        !shown || self.other_user && !open_to_all(path)
    }
}

fn bind(path: &str, access: Access, exec: bool) -> Mount {
    Mount::Bind { source: path.to_owned(), target: path.to_owned(), access, exec, optional: false }
}

/// Whether every user may reach a path and read it.
fn open_to_all(path: &str) -> bool {
    Path::new(path).ancestors().enumerate().all(|(i, at)| {
        let wanted = if i == 0 { 0o4 } else { 0o1 };
        std::fs::metadata(at).is_ok_and(|meta| meta.mode() & wanted == wanted)
    })
}

/// Whether it can be the name of a variable.
pub(super) fn is_name(name: &str) -> bool {
    let byte = |(i, b): (usize, u8)| b == b'_' || b.is_ascii_alphabetic() || i > 0 && b.is_ascii_digit();
    !name.is_empty() && name.bytes().enumerate().all(byte)
}

/// The variables of every command: the caller's without what says too much, and what the sandbox has of its own.
pub(super) fn variables(
    config: &GuardConfig,
    given: impl IntoIterator<Item = (String, String)>,
    path: &str,
    home: Option<&str>,
) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = given
        .into_iter()
        .filter(|(name, value)| is_name(name) && !value.contains('\0'))
        .filter(|(name, value)| {
            config.keep_variables.contains(name)
                || !config.strip_variables.contains(name) && !cofferdam_policy::variables::is_stripped(name, value)
        })
        .collect();
    let home = home.filter(|_| !config.enforce_reads).unwrap_or(OWN_HOME);
    for (name, value) in [("PATH", path), ("HOME", home), ("TMPDIR", "/tmp")] {
        variables.insert(name.into(), value.into());
    }
    for gone in ["PWD", "OLDPWD", "_"] {
        variables.remove(gone);
    }
    variables
}
