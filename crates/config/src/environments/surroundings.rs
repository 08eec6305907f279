//! The process's surroundings as data: variables, working directory and homes, and the files and directories that they name
//! for definitions of environments. Reads no definition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_policy::BaseDirectory;

use super::PRESETS;
use super::artifact::NIX_STORE;

/// The process's surroundings.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
    /// Working directory, absolute.
    pub cwd: String,
    /// Home directories; `~` means the first.
    pub homes: Vec<String>,
    /// The directory of the system's configuration: `/etc`.
    pub system: PathBuf,
}

/// The part of the surroundings that finding an interpreter depends on.
#[derive(Debug, Clone, Copy)]
pub struct InterpreterSurroundings<'a> {
    /// Environment variables.
    pub variables: &'a BTreeMap<String, String>,
    /// Working directory, absolute.
    pub cwd: &'a str,
    /// Home directories.
    pub homes: &'a [String],
    /// The virtual environment whose interpreter is used, in place of the one along PATH.
    pub venv: Option<&'a str>,
}

impl<'a> InterpreterSurroundings<'a> {
    /// The value of a variable.
    pub fn variable(self, name: &str) -> Option<&'a str> {
        self.variables.get(name).map(String::as_str)
    }
}

/// Why the process's surroundings cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// There is no working directory.
    #[error("cannot tell the working directory: {0}\nhint: it was removed or cannot be read: change to another one")]
    NoDirectory(#[source] std::io::Error),
    /// Its path is not UTF-8, as a policy requires.
    #[error(
        "the working directory is not valid UTF-8: {0:?}\nhint: a policy is UTF-8 text; rename the directory, or reach it through one with such a name"
    )]
    NotText(std::ffi::OsString),
}

impl Surroundings {
    /// The surroundings of this process: its working directory, its variables in UTF-8, and its homes, which are `$HOME` and the
    /// one of the user database, each also by its canonical path.
    ///
    /// # Errors
    /// The working directory cannot be determined.
    pub fn observe() -> Result<Surroundings, ObserveError> {
        let cwd = std::env::current_dir().map_err(ObserveError::NoDirectory)?;
        let cwd = cwd.into_os_string().into_string().map_err(ObserveError::NotText)?;
        let variables: BTreeMap<String, String> =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
        let mut homes = Vec::new();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let own = variables.get("HOME").map(String::as_str);
        for home in [own, passwd_home(&passwd, rustix::process::getuid().as_raw())].into_iter().flatten() {
            let Some(home) = cofferdam_policy::paths::normalize(home) else { continue };
            // The real directory as well: a home is often reached through a symlink.
            let real = std::fs::canonicalize(&home).ok().and_then(|p| p.into_os_string().into_string().ok());
            for home in [Some(home), real].into_iter().flatten() {
                if home.starts_with('/') && home != "/" && !homes.contains(&home) {
                    homes.push(home);
                }
            }
        }
        Ok(Surroundings { variables, cwd, homes, system: PathBuf::from("/etc") })
    }
}

/// Home directory of a user id in the text of passwd(5).
fn passwd_home(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let id = fields.nth(2)?;
        (id.parse() == Ok(uid)).then(|| fields.nth(2))?
    })
}

impl Surroundings {
    /// A setting by the end of its variable's name: Cofferdam's variable first, then that of other programs. An empty value counts
    /// as unset.
    pub(super) fn setting(&self, end: &str) -> Option<(String, &str)> {
        let theirs = match end {
            "PROJECT_DIR" | "PROJECT_MOUNT" | "PROJECT_ACCESS" | "SESSION_IDLE_TIMEOUT" | "SESSION_MAX_LIFETIME" => {
                end.to_owned()
            }
            _ => format!("NIX_SANDBOX_{end}"),
        };
        [format!("COFFERDAM_{end}"), theirs].into_iter().find_map(|name| {
            let value = self.variables.get(&name)?;
            (!value.is_empty()).then_some((name, value.as_str()))
        })
    }

    /// The part that finding an interpreter depends on.
    pub fn around(&self) -> InterpreterSurroundings<'_> {
        InterpreterSurroundings { variables: &self.variables, cwd: &self.cwd, homes: &self.homes, venv: None }
    }

    /// The first home.
    pub fn home(&self) -> Option<&str> {
        self.homes.first().map(String::as_str)
    }

    /// The Nix store: `NIX_STORE_DIR`, or the default. A directory that contains a home or the whole system is not accepted, since
    /// the store is mounted in sandboxes.
    pub fn store(&self) -> PathBuf {
        let named = self.variables.get("NIX_STORE_DIR").map(Path::new);
        let fits = |store: &&Path| {
            store.is_absolute()
                && store.components().count() >= 3
                && store.components().all(|part| part != std::path::Component::ParentDir)
                && !self.homes.iter().any(|home| Path::new(home).starts_with(store))
        };
        named.filter(fits).unwrap_or(Path::new(NIX_STORE)).to_owned()
    }

    pub(super) fn absolute(&self, path: &str) -> PathBuf {
        Path::new(&self.cwd).join(path)
    }

    fn user_configuration(&self) -> Option<PathBuf> {
        BaseDirectory::Config.of(self.variables.get(BaseDirectory::Config.variable()), self.home())
    }

    /// The configuration file: the named one, or the first default that exists. `true` if it was named.
    pub(super) fn configuration(&self, named: Option<&str>) -> Option<(PathBuf, bool)> {
        if let Some(path) = named.or(self.setting("CONFIG").map(|(_, path)| path)) {
            return Some((self.absolute(path), true));
        }
        let mut files = self.configurations().into_iter();
        files.find(|file| std::fs::symlink_metadata(file).is_ok()).map(|file| (file, false))
    }

    /// The files that the configuration may be read from: the named one, or the defaults.
    pub fn configurations(&self) -> Vec<PathBuf> {
        if let Some((_, path)) = self.setting("CONFIG") {
            return vec![self.absolute(path)];
        }
        let defaults = [self.user_configuration(), Some(self.system.clone())];
        defaults.into_iter().flatten().map(|directory| directory.join("cofferdam/config.toml")).collect()
    }

    /// The registry directories, in order of precedence; `true` for one that was named.
    pub fn registries(&self) -> Vec<(PathBuf, bool)> {
        let mut found = Vec::new();
        if let Some((_, directory)) = self.setting("DIR") {
            found.push((self.absolute(directory), true));
        } else if let Some(user) = self.user_configuration() {
            found.push((user.join("cofferdam/environments"), false));
            found.push((user.join("nix-sandbox-mcp/sandboxes"), false));
        }
        found.push((self.system.join("cofferdam/environments"), false));
        found.push((self.system.join("nix-sandbox-mcp/sandboxes"), false));
        found
    }

    /// Whether only the presets can define this name, so that no definition has to be read.
    pub fn is_plain(&self, name: &str) -> bool {
        PRESETS.contains(&name)
            && ["METADATA", "CONFIG", "DIR", "ENVS"].iter().all(|end| self.setting(end).is_none())
            && self.configuration(None).is_none()
            && !self.registries().iter().any(|(directory, _)| std::fs::symlink_metadata(directory.join(name)).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_gives_the_home_of_the_id() {
        let text = "root:x:0:0:root:/root:/bin/bash\nbroken\nu:x:1000:1000:U,,:/home/u:/bin/sh\n";
        assert_eq!(passwd_home(text, 1000), Some("/home/u"));
        assert_eq!(passwd_home(text, 7), None);
    }
}
