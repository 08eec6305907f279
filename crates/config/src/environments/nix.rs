//! Builds flake references with `nix build`, and caches the results.
//!
//! A link in the cache points to each result and is a root of Nix's garbage collector: a reference is built once, until the caller
//! asks for a rebuild. What Nix writes to standard error goes to the caller's, escaped: a flake may write to it. Its output is not
//! read.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cofferdam_engine::audit::{hex, sha256};
use cofferdam_engine::host_programs;
use cofferdam_policy::BaseDirectory;

use super::shell::LONGEST;

/// Why a reference cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NixError {
    /// Nix was not found.
    #[error(
        "{reference} is a flake reference, and no `nix` is on PATH to build it{passed_over}\nhint: apt-get install nix-bin; or build it elsewhere, and name the path of the result"
    )]
    Absent {
        /// The reference.
        reference: String,
        /// Which one of PATH is not used, and why.
        passed_over: String,
    },
    /// The cache cannot be written.
    #[error("cannot keep what {reference} comes to in {}: {problem}", path.display())]
    Cache {
        /// The reference.
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
    /// Nix failed, with its reason on standard error.
    #[error("`nix build` of {reference} failed with {status}")]
    Failed {
        /// The reference.
        reference: String,
        /// The exit status of Nix.
        status: std::process::ExitStatus,
    },
    /// Something that building a development shell requires is missing.
    #[error("the development shell of {project} cannot be built: {problem}\nhint: {hint}")]
    Unable {
        /// The project.
        project: String,
        /// What is missing.
        problem: String,
        /// How to provide it.
        hint: &'static str,
    },
    /// The flake of a project has no usable development shell.
    #[error(
        "the development shell of {project} cannot be used: {problem}\nhint: where its inputs are not locked: nix flake lock {project}; or use_flake = false"
    )]
    Shell {
        /// The project.
        project: String,
        /// Why not.
        problem: String,
    },
    /// Nix succeeded, but built nothing.
    #[error("`nix build` of {reference} left nothing at {}", path.display())]
    Nothing {
        /// The reference.
        reference: String,
        /// Where the result should be.
        path: PathBuf,
    },
}

/// How a reference that was not built yet is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Building {
    /// It is built.
    WhenNeeded,
    /// It is built, or rebuilt.
    Anew,
    /// It is an error.
    Never,
}

/// Builds references, and finds previous builds.
#[derive(Debug, Clone)]
pub struct NixBuilder {
    program: Option<PathBuf>,
    /// Which one of PATH is not used, and why.
    passed_over: String,
    cache: Option<PathBuf>,
}

impl NixBuilder {
    /// A builder that looks for `nix` along `path`, where [programs are installed](host_programs), and has links to builds in
    /// `cache`. `home` is the caller's.
    pub fn new(path: Option<&str>, home: Option<&str>, cache: Option<PathBuf>) -> NixBuilder {
        let path = path.unwrap_or("/usr/local/bin:/usr/bin:/bin");
        let program =
            host_programs::installed_along(path.as_ref(), home.map(Path::new), "nix", &[]).filter(|program| {
                use std::os::unix::fs::PermissionsExt as _;
                std::fs::metadata(program).is_ok_and(|about| about.permissions().mode() & 0o111 != 0)
            });
        let passed_over = match program {
            Some(_) => String::new(),
            None => host_programs::passed_over_along(path.as_ref(), home.map(Path::new), "nix"),
        };
        NixBuilder { program, passed_over, cache }
    }

    /// The result of the last build of the reference, if it still exists.
    pub fn built(&self, reference: &str) -> Option<PathBuf> {
        // Only a link of this user's own is trusted.
        self.led(&self.link(reference)?)
    }

    /// Nix's description of the development shell of a project, if it was built for the present flake.
    pub fn described(&self, project: &str) -> Option<PathBuf> {
        let link = self.cache.as_ref()?.join(shell_key(project)?);
        self.led(&link)
    }

    /// What [`NixBuilder::describe`] requires: Nix, a cache, and the name of the project's shell in it.
    ///
    /// # Errors
    /// One of them is missing.
    pub fn describes(&self, project: &str) -> Result<(&Path, &Path, String), NixError> {
        let unable =
            |problem: &str, hint| NixError::Unable { project: project.to_owned(), problem: problem.to_owned(), hint };
        let no_nix = || {
            unable(
                &format!("there is no `nix` on PATH{}", self.passed_over),
                "install Nix (https://nixos.org), or set use_flake = false",
            )
        };
        let no_cache = || unable("there is no home directory to remember it in", "set HOME, or XDG_CACHE_HOME");
        let no_flake = || unable("its flake.nix cannot be read", "write one, or set use_flake = false");
        let program = self.program.as_ref().ok_or_else(no_nix)?;
        let cache = self.cache.as_ref().ok_or_else(no_cache)?;
        let name = shell_key(project).ok_or_else(no_flake)?;
        Ok((program, cache, name))
    }

    /// Builds the development shell of a project, and returns the file that describes it. `nix` evaluates the flake without access to
    /// the caller's files and variables (pure evaluation) and only with inputs that `flake.lock` fixes by content. It builds as
    /// always, ignores the flake's `nixConfig`, runs no program of the caller's, and writes nothing into the project.
    ///
    /// # Errors
    /// Nix was not found, or failed.
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
            // An input that the lock does not fix by content could be any file of the caller's. With --no-write-lock-file as well,
            // Nix would only warn about it.
            .args(["--no-update-lock-file", "--option", "accept-flake-config", "false", "--profile"])
            .arg(&link)
            // Git would run programs that the repository's own configuration names.
            .arg(format!("path:{}", escaped(project)))
            // So would Mercurial, which a flake may use to fetch from a directory of the project. Neither program is found.
            .env("PATH", "/var/empty")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .and_then(ended)
            .map_err(|source| NixError::Unstarted { program: program.to_owned(), source })?;
        if !status.success() {
            return Err(unusable(&format!("`nix print-dev-env` failed with {status}")));
        }
        self.led(&link).ok_or_else(|| unusable("Nix left no description of it"))
    }

    /// The target of a link in the cache that belongs to this user.
    fn led(&self, link: &Path) -> Option<PathBuf> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = std::fs::symlink_metadata(link).ok()?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if metadata.is_symlink() && own { std::fs::canonicalize(link).ok() } else { None }
    }

    /// Builds or rebuilds the reference. What `nix` writes to standard error goes to the caller's, escaped.
    ///
    /// # Errors
    /// Nix was not found, or failed.
    pub fn build(&self, reference: &str) -> Result<PathBuf, NixError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let reference = reference.to_owned();
        let Some(program) = &self.program else {
            return Err(NixError::Absent { reference, passed_over: self.passed_over.clone() });
        };
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
            // Nix looks for git and others along it.
            .env("PATH", host_programs::installed_path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .and_then(ended)
            .map_err(|source| NixError::Unstarted { program: program.clone(), source })?;
        if !status.success() {
            return Err(NixError::Failed { reference, status });
        }
        self.built(&reference).ok_or(NixError::Nothing { reference, path: link })
    }

    fn link(&self, reference: &str) -> Option<PathBuf> {
        Some(self.cache.as_ref()?.join(hex(&sha256(reference.as_bytes()))))
    }
}

/// Waits for Nix, and writes to standard error what it writes to its own.
fn ended(mut child: std::process::Child) -> std::io::Result<std::process::ExitStatus> {
    if let Some(said) = child.stderr.take() {
        let copied = copy_escaped(said, &mut std::io::stderr());
        if let Err(error) = copied {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
    }
    child.wait()
}

/// Copies text line by line, with what would drive a terminal escaped. A longer line is split.
fn copy_escaped(from: impl std::io::Read, to: &mut impl std::io::Write) -> std::io::Result<()> {
    const LONGEST_LINE: u64 = 16 << 10;
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let text = cofferdam_policy::text::one_line(text.trim_end_matches(['\n', '\r']));
        // Who closed standard error reads nothing of it, and Nix goes on.
        drop(writeln!(to, "{text}"));
        line.clear();
    }
    Ok(())
}

/// The cache key of a project's shell: a hash of its path, its flake and the lock of its inputs. `None` if it has no readable
/// flake.
pub fn shell_key(project: &str) -> Option<String> {
    let read = |name: &str| {
        let path = Path::new(project).join(name);
        std::fs::metadata(&path).ok().filter(|about| about.is_file() && about.len() <= LONGEST)?;
        std::fs::read(path).ok()
    };
    let mut inputs = Vec::new();
    for part in [project.as_bytes(), &read("flake.nix")?, &read("flake.lock").unwrap_or_default()] {
        inputs.extend_from_slice(&(part.len() as u64).to_be_bytes());
        inputs.extend_from_slice(part);
    }
    Some(format!("shell-{}", hex(&sha256(&inputs))))
}

/// Escapes a path for a URL.
fn escaped(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The directory of the cache: below that of the variable, or below the home.
pub fn cache_directory(cache_home: Option<&str>, home: Option<&str>) -> Option<PathBuf> {
    BaseDirectory::Cache.of(cache_home, home).map(|base| base.join("cofferdam/flakes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A `nix` that records its arguments, and links the result to `built`.
    fn stand_in(directory: &Path, built: &Path, code: u8) -> NixBuilder {
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
        let path = format!(".:{}", bin.display());
        NixBuilder::new(Some(&path), directory.to_str(), Some(directory.join("cache/flakes")))
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

    /// A flake's `throw`, and the log of what it builds.
    #[test]
    fn what_nix_writes_drives_no_terminal() {
        let mut written = Vec::new();
        let said = b"building\n\x1b[2Jerror: \xe2\x80\xae\rhidden\r\n\xff\tlast".to_vec();
        copy_escaped(said.as_slice(), &mut written).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert_eq!(written, "building\n\\u{1b}[2Jerror: \\u{202e}\\rhidden\n\u{fffd}\\tlast\n");
        let mut long = Vec::new();
        copy_escaped(vec![b'x'; 100_000].as_slice(), &mut long).unwrap();
        assert_eq!(long.iter().filter(|byte| **byte == b'x').count(), 100_000);
    }

    #[test]
    fn what_fails_says_what_and_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let none = NixBuilder::new(Some("/nowhere:relative"), None, Some(directory.path().join("c")));
        let reported = none.build("github:o/r").unwrap_err().to_string();
        assert!(
            reported.contains("no `nix` is on PATH") && reported.contains("hint: apt-get install nix-bin"),
            "{reported}"
        );
        let failing = stand_in(directory.path(), Path::new("/nowhere"), 3);
        assert!(matches!(failing.build("x:y"), Err(NixError::Failed { .. })));
        let empty = stand_in(directory.path(), Path::new("/nowhere"), 0);
        assert!(matches!(empty.build("x:y"), Err(NixError::Nothing { .. })));
        let homeless = NixBuilder { cache: None, ..empty };
        assert!(matches!(homeless.build("x:y"), Err(NixError::Cache { .. })));
    }
}
