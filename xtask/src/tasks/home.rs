//! Where tasks run: for each lane of a user a home with the toolchains in it, emptied before each task, and a project.
//!
//! Homes lie outside of the repository, whose settings cargo and git would find from inside. Everything goes when the
//! [`Place`] is dropped.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::data::{Task, User};
use super::stand_ins::{Network, StandIns};
use super::toolchains::{KEPT, Toolchains};
use crate::Result;
use crate::shell::{run_quietly, succeeds, uid, which};
use crate::workspace::Workspace;

/// The unprivileged user where the caller is root: Debian's `nobody`.
const NOBODY: u32 = 65534;

/// How the directories are called, before the id of the process.
const NAME: &str = "cofferdam-tasks-";

/// The line of the private key in each home.
const KEY: &str = "PRIVATE-KEY-OF-THE-HOST\n";

/// How many homes a user has. Tasks run beside each other in them.
pub(super) const LANES: usize = 3;

/// The programs that were built, by their names.
const PROGRAMS: &[&str] = &["cofferdam", "cofferdam-compile", "cofferdam-serve"];

/// The directory of all homes of this run.
pub(super) struct Place {
    directory: PathBuf,
    programs: PathBuf,
}

impl Place {
    /// Makes it, with the programs.
    pub(super) fn new(workspace: &Workspace) -> Result<Place> {
        let parent = match uid() {
            Some(0) => PathBuf::from("/home"),
            _ => PathBuf::from(std::env::var_os("HOME").ok_or("HOME is not set")?),
        };
        remove_old(&parent);
        let directory = parent.join(format!("{NAME}{}", std::process::id()));
        let place = Place { programs: directory.join("bin"), directory };
        make(&place.directory, 0o755)?;
        make(&place.programs, 0o755)?;
        let built = workspace.target.join(format!("{}-unknown-linux-gnu/debug", std::env::consts::ARCH));
        for name in PROGRAMS {
            let (from, to) = (built.join(name), place.programs.join(name));
            // A link stays what it is when the next build replaces the file.
            std::fs::hard_link(&from, &to).or_else(|_| std::fs::copy(&from, &to).map(drop)).map_err(|error| {
                format!("cannot use {}: {error}\nhint: cargo build --workspace --bins", from.display())
            })?;
        }
        Ok(place)
    }

    /// A text without the names of this run's directories.
    pub(super) fn shorten(&self, text: &str) -> String {
        lanes().fold(text.to_owned(), |text, (user, lane)| {
            text.replace(&self.home(user, lane).display().to_string(), "~")
                .replace(&below_tmp(user, lane).display().to_string(), "/tmp/project")
        })
    }

    /// The stand-ins of a lane.
    pub(super) fn stand_ins(&self, workspace: &Workspace, user: User, lane: usize) -> StandIns {
        let name = format!("stand-ins-{}", of_lane(user, lane));
        StandIns::new(workspace, self.directory.join(&name), &name)
    }

    fn home(&self, user: User, lane: usize) -> PathBuf {
        self.directory.join(of_lane(user, lane))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for (user, lane) in lanes() {
            remove(&below_tmp(user, lane));
        }
        remove(&self.directory);
    }
}

/// Removes what runs left that were killed.
fn remove_old(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name.strip_prefix(NAME).and_then(|id| id.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists()) {
            remove(&entry.path());
        }
    }
}

fn remove(directory: &Path) {
    unmount_below(directory);
    if !directory.exists() {
        return;
    }
    // Directories that a task closed for its own user.
    let removed = std::fs::remove_dir_all(directory).or_else(|_| {
        succeeds(Command::new("chmod").args(["-R", "u+rwX"]).arg(directory));
        std::fs::remove_dir_all(directory)
    });
    if let Err(error) = removed {
        eprintln!("{} is left: {error}", directory.display());
    }
}

/// Unmounts what a task mounted below its own directories.
fn unmount_below(directory: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for point in mounts.lines().rev().filter_map(|line| line.split(' ').nth(4)) {
        if Path::new(point) != directory && Path::new(point).starts_with(directory) {
            succeeds(Command::new("umount").arg("--lazy").arg(point));
        }
    }
}

fn make(directory: &Path, mode: u32) -> Result {
    std::fs::create_dir(directory)
        .and_then(|()| std::fs::set_permissions(directory, Permissions::from_mode(mode)))
        .map_err(|error| format!("cannot make {}: {error}", directory.display()))
}

fn below_tmp(user: User, lane: usize) -> PathBuf {
    Path::new("/tmp").join(format!("{NAME}{}-{}", std::process::id(), of_lane(user, lane)))
}

/// All lanes of both users. No name begins another, so that each can be replaced in a text.
fn lanes() -> impl Iterator<Item = (User, usize)> {
    [User::Root, User::Unprivileged].into_iter().flat_map(|user| (0..LANES).map(move |lane| (user, lane)))
}

fn of_lane(user: User, lane: usize) -> String {
    format!("{}-{lane}", user.name())
}

/// A home, and how commands are started in it.
pub(super) struct Home {
    directory: PathBuf,
    programs: PathBuf,
    user: User,
    lane: usize,
    /// The id to switch to.
    switch: Option<u32>,
    path: String,
}

impl Home {
    /// Makes the homes of a user's lanes, with the toolchains.
    pub(super) fn make(place: &Place, user: User) -> Result<Vec<Home>> {
        let toolchains = Toolchains::find();
        let copy = place.directory.join(format!("{}-toolchains", user.name()));
        make(&copy, 0o755)?;
        toolchains.copy_to(&copy)?;
        let caller = uid().ok_or("the user of this process is not known")?;
        let switch = (user == User::Unprivileged && caller == 0).then_some(NOBODY);
        if let Some(id) = switch {
            run_quietly(Command::new("chown").args(["-R", "-h", &format!("{id}:{id}")]).arg(&copy))?;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let lane = |lane| {
            let directory = place.home(user, lane);
            make(&directory, 0o755)?;
            chown(&directory, switch, switch)
                .map_err(|error| format!("cannot own {}: {error}", directory.display()))?;
            Toolchains::link(&copy, &directory)?;
            let path = format!("{}:{}", place.programs.display(), toolchains.path(&directory, &path));
            Ok(Home { directory, programs: place.programs.clone(), user, lane, switch, path })
        };
        (0..LANES).map(lane).collect()
    }

    /// Empties it and makes the project of a task, with the key for the SSH server of its network.
    pub(super) fn fresh(&self, task: &Task, network: Option<&Network>) -> Result<PathBuf> {
        self.clear()?;
        let ssh = self.directory.join(".ssh");
        let key = ssh.join("id_ed25519");
        make(&ssh, 0o700)?;
        std::fs::write(&key, KEY)
            .and_then(|()| std::fs::set_permissions(&key, Permissions::from_mode(0o600)))
            .map_err(|error| format!("cannot write {}: {error}", key.display()))?;
        let project = if task.below_tmp { below_tmp(self.user, self.lane) } else { self.directory.join("project") };
        make(&project, 0o755)?;
        let mut owned = vec![ssh, key, project.clone()];
        if let Some(network) = network.filter(|_| task.serve.iter().any(|name| name == "git-ssh")) {
            let key = self.directory.join("deploy_key");
            std::fs::copy(network.deploy_key(), &key)
                .map_err(|error| format!("cannot write {}: {error}", key.display()))?;
            owned.push(key);
        }
        for path in &owned {
            chown(path, self.switch, self.switch).map_err(|error| format!("cannot own {}: {error}", path.display()))?;
        }
        Ok(project)
    }

    /// Removes all but the toolchains, of which cargo's programs alone are kept.
    pub(super) fn clear(&self) -> Result {
        remove(&below_tmp(self.user, self.lane));
        unmount_below(&self.directory);
        for (directory, kept) in [(self.directory.clone(), KEPT), (self.directory.join(".cargo"), &["bin"])] {
            if !directory.exists() {
                continue;
            }
            let cannot = |error: std::io::Error| format!("cannot empty {}: {error}", directory.display());
            for entry in std::fs::read_dir(&directory).map_err(cannot)? {
                let entry = entry.map_err(cannot)?;
                if kept.iter().any(|name| entry.file_name() == *name) {
                    continue;
                }
                if entry.file_type().map_err(cannot)?.is_dir() {
                    remove(&entry.path());
                } else {
                    std::fs::remove_file(entry.path()).map_err(cannot)?;
                }
            }
        }
        Ok(())
    }

    /// A shell of the user with the variables of a task, in that directory and network and in a session of its own.
    pub(super) fn shell(
        &self,
        script: &str,
        task: Option<&Task>,
        project: &Path,
        network: Option<&Network>,
        terminal: bool,
    ) -> Command {
        let find = |name: &str| which(name).unwrap_or_else(|| name.into());
        let mut command = Command::new(find("setsid"));
        if terminal {
            command.arg("--ctty");
        }
        if let Some([enter, rest @ ..]) = network.map(|network| network.enter(project)).as_deref() {
            command.arg(find(enter)).args(rest);
        }
        if let Some(id) = self.switch {
            let id = id.to_string();
            command.arg(find("setpriv")).args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
        }
        command.arg(find("bash")).args(["-c", script]).current_dir(project).env_clear();
        let user = if self.user == User::Root { "root" } else { "nobody" };
        let home = self.directory.display().to_string();
        command.envs([("HOME", home.as_str()), ("USER", user), ("LOGNAME", user), ("SHELL", "/bin/bash")]);
        command.envs([("PATH", self.path.as_str()), ("LANG", "C.UTF-8"), ("TERM", "xterm-256color")]);
        if self.directory.join(".pyenv").exists() {
            command.env("PYENV_ROOT", self.directory.join(".pyenv"));
        }
        for (name, value) in task.iter().flat_map(|task| &task.env) {
            let mut value = fill(value, &home, &self.path, &project.display().to_string());
            let programs = self.programs.display().to_string();
            if name == "PATH" && !value.split(':').any(|entry| entry == programs) {
                value += &format!(":{programs}");
            }
            command.env(name, value);
        }
        command
    }

    /// The id of a user other than the caller.
    pub(super) fn switch(&self) -> Option<u32> {
        self.switch
    }

    /// Where it is.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// A value with the variables of the caller filled in.
fn fill(value: &str, home: &str, path: &str, project: &str) -> String {
    value.replace("$HOME", home).replace("$PATH", path).replace("$PWD", project)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_caller_are_filled_in() {
        assert_eq!(fill("$PWD/bin:$PATH:$HOME", "/h", "/bin", "/h/p"), "/h/p/bin:/bin:/h");
    }
}
