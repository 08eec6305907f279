//! Flake references: building one with `nix build`, and remembering what it came to.
//!
//! What was built is held by a link in the cache, which is a root of Nix's garbage collector as well: a reference is built
//! once, until somebody asks for it anew. Nix's progress goes to the caller's standard error as it comes; nothing of its
//! output is read.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest as _, Sha256};

use super::shell::LONGEST;

/// Why a reference cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NixError {
    /// There is no Nix.
    #[error(
        "{reference} is a flake reference, and no `nix` is on PATH to build it\nhint: apt-get install nix-bin; or build it elsewhere, and name the path of the result"
    )]
    Absent {
        /// What was to be built.
        reference: String,
    },
    /// There is no place to remember it.
    #[error("cannot keep what {reference} comes to in {}: {problem}", path.display())]
    Cache {
        /// What was to be built.
        reference: String,
        /// The directory or link.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// Nix cannot be started.
    #[error("cannot start {}", program.display())]
    Unstarted {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Nix said no, on standard error.
    #[error("`nix build` of {reference} failed with {status}")]
    Failed {
        /// What was to be built.
        reference: String,
        /// How Nix ended.
        status: std::process::ExitStatus,
    },
    /// Something is missing that building a development shell takes.
    #[error("the development shell of {project} cannot be built: {problem}\nhint: {hint}")]
    Unable {
        /// Whose shell.
        project: String,
        /// What is missing.
        problem: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The flake of a project has no development shell that can be used.
    #[error(
        "the development shell of {project} cannot be used: {problem}\nhint: where its inputs are not locked: nix flake lock {project}; or use_flake = false"
    )]
    Shell {
        /// The project.
        project: String,
        /// Why not.
        problem: String,
    },
    /// Nix said yes, and built nothing.
    #[error("`nix build` of {reference} left nothing at {}", path.display())]
    Nothing {
        /// What was to be built.
        reference: String,
        /// Where it should be.
        path: PathBuf,
    },
}

/// How a reference that was not built yet is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Building {
    /// It is built.
    WhenNeeded,
    /// It is built, again if it was.
    Anew,
    /// It is told.
    Never,
}

/// Builds references, and knows those that were built.
#[derive(Debug, Clone)]
pub struct Builder {
    program: Option<PathBuf>,
    cache: Option<PathBuf>,
}

impl Builder {
    /// One that looks for `nix` along `path`, and keeps what it builds in `cache`.
    pub fn new(path: Option<&str>, cache: Option<PathBuf>) -> Builder {
        // A relative entry would find a program in a directory that nobody vetted.
        let mut directories = path.unwrap_or("/usr/local/bin:/usr/bin:/bin").split(':').filter(|d| d.starts_with('/'));
        let program = directories.find_map(|directory| {
            let candidate = Path::new(directory).join("nix");
            use std::os::unix::fs::PermissionsExt as _;
            let metadata = std::fs::metadata(&candidate).ok()?;
            (metadata.is_file() && metadata.permissions().mode() & 0o111 != 0).then_some(candidate)
        });
        Builder { program, cache }
    }

    /// What the reference came to when it was built last, if that is still there.
    pub fn built(&self, reference: &str) -> Option<PathBuf> {
        // Nobody else's word is taken for what runs here.
        self.led(&self.link(reference)?)
    }

    /// The file in which Nix has described the development shell of a project as its flake is now, if that was built.
    pub fn described(&self, project: &str) -> Option<PathBuf> {
        let link = self.cache.as_ref()?.join(shell_key(project)?);
        self.led(&link)
    }

    /// What [`Builder::describe`] needs: Nix, a cache, and the name of the project's shell in it.
    ///
    /// # Errors
    /// One of them is missing, and the shell cannot be built.
    pub fn describes(&self, project: &str) -> Result<(&Path, &Path, String), NixError> {
        let unable = |problem, hint| NixError::Unable { project: project.to_owned(), problem, hint };
        let no_nix =
            || unable("there is no `nix` on PATH", "install Nix (https://nixos.org), or set use_flake = false");
        let no_cache = || unable("there is no home directory to remember it in", "set HOME, or XDG_CACHE_HOME");
        let no_flake = || unable("its flake.nix cannot be read", "write one, or set use_flake = false");
        let program = self.program.as_ref().ok_or_else(no_nix)?;
        let cache = self.cache.as_ref().ok_or_else(no_cache)?;
        let name = shell_key(project).ok_or_else(no_flake)?;
        Ok((program, cache, name))
    }

    /// Builds the development shell of a project, and gives the file that describes it. `nix` evaluates the flake without
    /// the caller's files and variables (pure evaluation) and with inputs that `flake.lock` holds by their content alone, builds
    /// as it builds anything, obeys no `nixConfig` of the flake, runs no program of the caller's, and writes nothing into the project.
    ///
    /// # Errors
    /// There is no Nix, or it fails.
    pub fn describe(&self, project: &str) -> Result<PathBuf, NixError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let unusable = |problem: &str| NixError::Shell { project: project.to_owned(), problem: problem.to_owned() };
        let (program, cache, name) = self.describes(project)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(cache).map_err(|error| NixError::Cache {
            reference: project.to_owned(),
            path: cache.to_owned(),
            problem: error.to_string(),
        })?;
        let link = cache.join(name);
        let status = Command::new(program)
            .args(["--extra-experimental-features", "nix-command flakes", "print-dev-env", "--json"])
            // An input that no lock holds by its content could be any file of the caller's: with --no-write-lock-file besides,
            // Nix would only warn of it.
            .args(["--no-update-lock-file", "--option", "accept-flake-config", "false", "--profile"])
            .arg(&link)
            // Git would run the programs that the repository's own configuration names.
            .arg(format!("path:{}", escaped(project)))
            // So would Mercurial, which a flake may have fetch from a directory of the project; neither is found.
            .env("PATH", "/var/empty")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|source| NixError::Unstarted { program: program.to_owned(), source })?;
        if !status.success() {
            return Err(unusable(&format!("`nix print-dev-env` failed with {status}")));
        }
        self.led(&link).ok_or_else(|| unusable("Nix left no description of it"))
    }

    /// Where a link of this user's in the cache leads.
    fn led(&self, link: &Path) -> Option<PathBuf> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = std::fs::symlink_metadata(link).ok()?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if metadata.is_symlink() && own { std::fs::canonicalize(link).ok() } else { None }
    }

    /// Builds the reference, anew if it was built before. `nix` writes to the caller's standard error while it works.
    ///
    /// # Errors
    /// There is no Nix, or it fails.
    pub fn build(&self, reference: &str) -> Result<PathBuf, NixError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let reference = reference.to_owned();
        let Some(program) = &self.program else { return Err(NixError::Absent { reference }) };
        let Some(link) = self.link(&reference) else {
            let problem = "there is no home directory".to_owned();
            return Err(NixError::Cache { reference, path: PathBuf::new(), problem });
        };
        let directory = link.parent().unwrap_or(&link);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        if let Err(error) = made {
            return Err(NixError::Cache { reference, path: directory.to_owned(), problem: error.to_string() });
        }
        let status = Command::new(program)
            .args(["--extra-experimental-features", "nix-command flakes", "build", "--out-link"])
            .arg(&link)
            .arg(&reference)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|source| NixError::Unstarted { program: program.clone(), source })?;
        if !status.success() {
            return Err(NixError::Failed { reference, status });
        }
        self.built(&reference).ok_or(NixError::Nothing { reference, path: link })
    }

    fn link(&self, reference: &str) -> Option<PathBuf> {
        let name: String = Sha256::digest(reference.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        Some(self.cache.as_ref()?.join(name))
    }
}

/// What the shell of a project is remembered by: where it is, and what its flake and the lock of its inputs say. `None` where
/// there is no flake that can be read.
pub fn shell_key(project: &str) -> Option<String> {
    let read = |name: &str| {
        let path = Path::new(project).join(name);
        std::fs::metadata(&path).ok().filter(|about| about.is_file() && about.len() <= LONGEST)?;
        std::fs::read(path).ok()
    };
    let mut digest = Sha256::new();
    for part in [project.as_bytes(), &read("flake.nix")?, &read("flake.lock").unwrap_or_default()] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    Some(digest.finalize().iter().fold("shell-".to_owned(), |name, byte| name + &format!("{byte:02x}")))
}

/// A path in a URL.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The directory of the cache: below the one that the variable names, or below the home.
pub fn cache_directory(cache_home: Option<&str>, home: Option<&str>) -> Option<PathBuf> {
    let named = cache_home.filter(|path| path.starts_with('/')).map(PathBuf::from);
    named.or_else(|| Some(Path::new(home?).join(".cache"))).map(|base| base.join("cofferdam/flakes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A `nix` that writes down what it is given, and links the result to `built`.
    fn stand_in(directory: &Path, built: &Path, code: u8) -> Builder {
        let bin = directory.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let text = format!(
            "#!/bin/sh\nfor a; do printf '%s\\n' \"$a\"; done >> {0}/said\n[ {code} = 0 ] && ln -sfn {1} \"$5\"\nexit {code}\n",
            directory.display(),
            built.display()
        );
        let nix = bin.join("nix");
        std::fs::write(&nix, text).unwrap();
        std::fs::set_permissions(&nix, std::fs::Permissions::from_mode(0o755)).unwrap();
        Builder::new(Some(&format!(".:{}", bin.display())), Some(directory.join("cache/flakes")))
    }

    #[test]
    fn a_reference_is_built_once_and_anew_when_asked() {
        let directory = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(directory.path()).unwrap();
        let (one, two) = (real.join("one"), real.join("two"));
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir(&two).unwrap();
        let builder = stand_in(&real, &one, 0);
        assert_eq!(builder.built("github:o/r#x"), None);
        assert_eq!(builder.build("github:o/r#x").unwrap(), one);
        let said = std::fs::read_to_string(real.join("said")).unwrap();
        let words: Vec<&str> = said.lines().collect();
        assert_eq!(words[..4], ["--extra-experimental-features", "nix-command flakes", "build", "--out-link"]);
        assert_eq!(words[5], "github:o/r#x");
        assert_eq!(builder.built("github:o/r#x").unwrap(), one);
        assert_eq!(builder.built("github:o/r#y"), None);
        assert_eq!(stand_in(&real, &two, 0).build("github:o/r#x").unwrap(), two);
        std::fs::remove_dir(&two).unwrap();
        assert_eq!(builder.built("github:o/r#x"), None, "collected by Nix");
    }

    #[test]
    fn what_fails_says_what_and_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let none = Builder::new(Some("/nowhere:relative"), Some(directory.path().join("c")));
        let told = none.build("github:o/r").unwrap_err().to_string();
        assert!(told.contains("no `nix` is on PATH") && told.contains("hint: apt-get install nix-bin"), "{told}");
        let failing = stand_in(directory.path(), Path::new("/nowhere"), 3);
        assert!(matches!(failing.build("x:y"), Err(NixError::Failed { .. })));
        let empty = stand_in(directory.path(), Path::new("/nowhere"), 0);
        assert!(matches!(empty.build("x:y"), Err(NixError::Nothing { .. })));
        let homeless = Builder { cache: None, ..empty };
        assert!(matches!(homeless.build("x:y"), Err(NixError::Cache { .. })));
    }
}
