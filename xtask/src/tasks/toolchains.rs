//! The caller's toolchains, copied into the home of a task: rustup's default toolchain, cargo's programs, pyenv's version.
//!
//! They are one copy for each user, with links to it in the user's homes: a copy because an unprivileged user cannot read those of root, and a task may spoil its own alone. What names the
//! old place is rewritten: the first lines of scripts, the settings of a Python, and the run path of one that is linked to its library.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::shell::run_quietly;

/// Directories of a home that stay when the rest of it is removed.
pub(super) const KEPT: &[&str] = &[".rustup", ".cargo", ".pyenv"];

/// Parts of pyenv's directory that no program needs, and the versions, of which one is copied.
const NOT_OF_PYENV: &[&str] = &["versions", ".git", "cache", "sources", "test"];

/// Where the caller's toolchains lie.
pub(super) struct Toolchains {
    home: PathBuf,
    rustup: PathBuf,
    cargo: PathBuf,
    pyenv: PathBuf,
}

impl Toolchains {
    /// As the environment says, or where they are by default.
    pub(super) fn find() -> Toolchains {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into()));
        let of = |name: &str, place: &str| std::env::var_os(name).map_or_else(|| home.join(place), PathBuf::from);
        let (rustup, cargo) = (of("RUSTUP_HOME", ".rustup"), of("CARGO_HOME", ".cargo"));
        Toolchains { rustup, cargo, pyenv: of("PYENV_ROOT", ".pyenv"), home }
    }

    /// Copies those that are there.
    pub(super) fn copy_to(&self, home: &Path) -> Result {
        let settings = std::fs::read_to_string(self.rustup.join("settings.toml")).unwrap_or_default();
        let settings: toml::Table = settings.parse().map_err(|error| format!("rustup's settings: {error}"))?;
        if let Some(name) = settings.get("default_toolchain").and_then(toml::Value::as_str) {
            let from = self.rustup.join("toolchains").join(name);
            let to = home.join(".rustup/toolchains").join(name);
            make(&to)?;
            for part in ["bin", "etc", "lib", "libexec"].map(|part| from.join(part)) {
                copy(&part, &to)?;
            }
            copy(&self.rustup.join("settings.toml"), &home.join(".rustup"))?;
            make(&home.join(".cargo"))?;
            copy(&self.cargo.join("bin"), &home.join(".cargo"))?;
        }
        let version = std::fs::read_to_string(self.pyenv.join("version")).unwrap_or_default();
        if let Some(version) = version.split_whitespace().next().filter(|version| *version != "system") {
            let to = home.join(".pyenv");
            make(&to.join("versions"))?;
            for part in children(&self.pyenv)? {
                if !NOT_OF_PYENV.iter().any(|name| part.ends_with(name)) {
                    copy(&part, &to)?;
                }
            }
            copy(&self.pyenv.join("versions").join(version), &to.join("versions"))?;
            relocate(&to, &self.pyenv)?;
        }
        Ok(())
    }

    /// Links a copy into another directory of the same owner: a copy of many thousand files takes long to remove.
    pub(super) fn link(copy: &Path, home: &Path) -> Result {
        for part in KEPT.iter().map(|name| copy.join(name)).filter(|part| part.exists()) {
            run_quietly(Command::new("cp").args(["-a", "--link"]).arg(part).arg(home))?;
        }
        relocate(&home.join(".pyenv"), &copy.join(".pyenv"))
    }

    /// The caller's PATH as it is with the copies in that home. What else lies in the caller's home is none of the task's.
    pub(super) fn path(&self, home: &Path, path: &str) -> String {
        let mut kept: Vec<String> = Vec::new();
        for entry in path.split(':').map(Path::new).filter(|entry| entry.is_absolute()) {
            let copied = [(&self.cargo, ".cargo"), (&self.pyenv, ".pyenv"), (&self.rustup, ".rustup")];
            let moved =
                copied.into_iter().find_map(|(from, to)| Some(home.join(to).join(entry.strip_prefix(from).ok()?)));
            let entry = match moved {
                Some(moved) => moved,
                None if entry.starts_with(&self.home) => continue,
                None => entry.to_owned(),
            };
            let entry = entry.display().to_string();
            if !kept.contains(&entry) {
                kept.push(entry);
            }
        }
        kept.join(":")
    }
}

/// Gives the scripts and programs of a copied pyenv their new place.
fn relocate(pyenv: &Path, from: &Path) -> Result {
    let (from, to) = (from.display().to_string(), pyenv.display().to_string());
    let mut files = children(&pyenv.join("shims"))?;
    let versions = children(&pyenv.join("versions"))?;
    for version in &versions {
        files.extend(children(&version.join("bin"))?);
        for library in children(&version.join("lib"))? {
            let kept = |file: &PathBuf| file.file_name().is_some_and(|name| is_settings(&name.to_string_lossy()));
            files.extend(children(&library)?.into_iter().filter(kept));
        }
    }
    for file in files.iter().filter(|file| !file.is_symlink() && file.is_file()) {
        let cannot = |error: std::io::Error| format!("cannot rewrite {}: {error}", file.display());
        let old = std::fs::read(file).map_err(cannot)?;
        let settings = file.file_name().is_some_and(|name| is_settings(&name.to_string_lossy()));
        let new = if settings || old.starts_with(b"#!") {
            String::from_utf8_lossy(&old).replace(&from, &to).into_bytes()
        } else if old.starts_with(b"\x7fELF") {
            versions.iter().fold(old.clone(), |program, version| {
                let name = version.file_name().unwrap_or_default().to_string_lossy();
                with_run_path(program, format!("{from}/versions/{name}/lib\0").as_bytes())
            })
        } else {
            continue;
        };
        if new != old {
            replace(file, &new).map_err(cannot)?;
        }
    }
    Ok(())
}

/// Whether a file has the settings that a Python was built with, its directories among them.
fn is_settings(name: &str) -> bool {
    name.starts_with("_sysconfigdata") && name.ends_with(".py")
}

/// Writes a new file in place of one that has other links.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let data = std::fs::metadata(file)?;
    std::fs::remove_file(file)?;
    std::fs::write(file, bytes)?;
    chown(file, Some(data.uid()), Some(data.gid()))?;
    std::fs::set_permissions(file, data.permissions())
}

/// The program with a run path relative to itself instead of the old one, which is never shorter.
fn with_run_path(mut program: Vec<u8>, old: &[u8]) -> Vec<u8> {
    const NEW: &[u8] = b"$ORIGIN/../lib";
    let at = program.windows(old.len()).position(|window| window == old);
    if let Some(at) = at.filter(|_| old.len() > NEW.len()) {
        program[at..at + old.len()].fill(0);
        program[at..at + NEW.len()].copy_from_slice(NEW);
    }
    program
}

fn children(directory: &Path) -> Result<Vec<PathBuf>> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if [NotADirectory, NotFound].contains(&error.kind()) => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", directory.display())),
    };
    entries
        .map(|entry| {
            entry.map(|entry| entry.path()).map_err(|error| format!("cannot read {}: {error}", directory.display()))
        })
        .collect()
}

fn make(directory: &Path) -> Result {
    std::fs::create_dir_all(directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))
}

/// Copies a file or directory, if it is there.
fn copy(from: &Path, to: &Path) -> Result {
    if !from.exists() {
        return Ok(());
    }
    run_quietly(Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolchains() -> Toolchains {
        let of = |place: &str| PathBuf::from(place);
        Toolchains { home: of("/h"), rustup: of("/h/.rustup"), cargo: of("/opt/cargo"), pyenv: of("/h/.pyenv") }
    }

    #[test]
    fn the_path_leads_to_the_copies_and_not_into_the_callers_home() {
        let path = "/opt/cargo/bin:/opt/cargo/bin:/h/.pyenv/shims:/h/bin:.:/usr/bin:";
        assert_eq!(toolchains().path(Path::new("/t"), path), "/t/.cargo/bin:/t/.pyenv/shims:/usr/bin");
    }

    #[test]
    fn a_run_path_becomes_relative_in_place() {
        let program = b"\x7fELF..\0/h/.pyenv/versions/3.1/lib\0rest".to_vec();
        let new = with_run_path(program.clone(), b"/h/.pyenv/versions/3.1/lib\0");
        assert_eq!(new.len(), program.len());
        assert!(new.starts_with(b"\x7fELF..\0$ORIGIN/../lib\0\0") && new.ends_with(b"\0rest"));
        assert_eq!(with_run_path(program.clone(), b"/other\0"), program);
    }
}
