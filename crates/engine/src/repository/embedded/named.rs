//! What the own configuration of a repository names in the volumes of a run: what it includes, directories of hooks, programs.
//!
//! Nothing keeps the program from writing these while the run goes on, since git or Mercurial only comes to that repository from
//! another one. So they are looked at before and after the run, as the repository itself is.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;

use super::addresses::{AddressEnd, resolve};
use super::config_values::NamedValue;
use super::obeyed::{Print, absent, hash, read};
use crate::plan::tree::{Disk, VolumeTree as _};

/// Bytes of a file that is compared by what it says.
const MOST_BYTES: u64 = 1 << 20;
/// Files that are looked at for one repository, and names in its configurations, at most.
const MOST_FILES: usize = 4096;
const MOST_NAMES: usize = 4096;
/// Configurations that are read for it.
const MOST_CONFIGURATIONS: usize = 64;
/// Directories in a directory.
const DEPTH: usize = 16;

/// What a configuration of one tool names.
type ValuesOf = fn(&str) -> Vec<NamedValue>;

/// The text of a configuration, and the directory that it lies in.
pub(super) type Configuration = (PathBuf, Vec<u8>);

/// The states of all that these configurations name in the volumes. A relative name is looked for in each of the directories
/// `bases`, in which the tool may be when it follows it.
///
/// # Errors
/// Something cannot be looked at, or is too much, so whether it changes cannot be known.
pub(super) fn named(
    configurations: Vec<Configuration>,
    bases: &[PathBuf],
    volumes: &[PathBuf],
    values_of: ValuesOf,
) -> Result<Vec<String>, Errno> {
    let mut walk = NamedWalk {
        bases,
        volumes,
        home: Disk.home().map(PathBuf::from),
        configurations,
        left: MOST_FILES,
        names: MOST_NAMES,
        found: BTreeSet::new(),
    };
    let mut read = 0;
    while let Some((directory, text)) = walk.configurations.pop() {
        read += 1;
        if read > MOST_CONFIGURATIONS {
            return Err(Errno::TOOBIG);
        }
        for value in values_of(&decoded(&text)) {
            walk.one(&directory, &value)?;
        }
    }
    Ok(walk.found.into_iter().collect())
}

/// What a repository obeys, and beside it what that names elsewhere.
pub(super) fn print_with(obeys: String, named: &[String]) -> String {
    let named: Vec<&[u8]> = named.iter().map(String::as_bytes).collect();
    if named.is_empty() { obeys } else { format!("{obeys}\n{}", hash(&named)) }
}

/// Whether a repository with this print names something elsewhere.
pub(super) fn names_any(obeys: &str) -> bool {
    obeys.contains('\n')
}

/// Whether what a repository names in the volumes is another one than before, whatever became of the repository itself.
pub(super) fn names_others(before: Option<&Print>, now: &Print) -> bool {
    let named = |print: &Print| print.as_deref().and_then(|print| Some(print.split_once('\n')?.1.to_owned()));
    before.and_then(named) != named(now)
}

/// A text of any encoding as one of characters, so that [`encoded`] gives its bytes back.
fn decoded(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned)
}

/// Both that this name may have been.
fn encoded(name: &str) -> Vec<OsString> {
    let bytes: Option<Vec<u8>> = name.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    let other = bytes.filter(|_| !name.is_ascii()).map(OsString::from_vec);
    std::iter::once(OsString::from(name)).chain(other).collect()
}

struct NamedWalk<'a> {
    bases: &'a [PathBuf],
    volumes: &'a [PathBuf],
    home: Option<PathBuf>,
    /// Those that are still to be read.
    configurations: Vec<Configuration>,
    left: usize,
    names: usize,
    found: BTreeSet<String>,
}

impl NamedWalk<'_> {
    fn one(&mut self, directory: &Path, value: &NamedValue) -> Result<(), Errno> {
        let (NamedValue::Configuration(name) | NamedValue::Tree(name) | NamedValue::File(name)) = value;
        self.names = self.names.checked_sub(1).ok_or(Errno::TOOBIG)?;
        for path in encoded(name) {
            let is_include = matches!(value, NamedValue::Configuration(_));
            for base in if is_include { vec![directory.to_owned()] } else { self.bases.to_vec() } {
                let Some(path) = self.with_home(&path) else { continue };
                match resolve(&base, &path) {
                    AddressEnd::At(end) => self.at(name, &end, value)?,
                    // As `/dev/stdin` does.
                    AddressEnd::Unknown(_) if !matches!(value, NamedValue::File(_)) => return Err(Errno::LOOP),
                    AddressEnd::Unknown(_) | AddressEnd::Nowhere => {}
                }
            }
        }
        Ok(())
    }

    /// A path with the home in it, where its beginning stands for that.
    fn with_home(&self, path: &OsStr) -> Option<OsString> {
        let rest = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|start| path.as_bytes().strip_prefix(start.as_bytes()));
        match rest {
            Some(rest) => Some(self.home.as_ref()?.join(OsStr::from_bytes(rest)).into()),
            None => Some(path.to_owned()),
        }
    }

    /// Takes note of what is at the end of a name. Where a name leads is part of it: a link on the way may be in a volume, and
    /// what it leads to need not be.
    fn at(&mut self, name: &str, end: &Path, value: &NamedValue) -> Result<(), Errno> {
        let state = match value {
            NamedValue::File(_) if !end.is_file() => {
                // What cannot be looked at could be one.
                match std::fs::symlink_metadata(end) {
                    Err(e) if !absent(errno(&e)) && self.is_writable(end) => return Err(errno(&e)),
                    _ => return Ok(()),
                }
            }
            _ if self.is_writable(end) => self.state(end, 0)?,
            _ => String::new(),
        };
        self.found.insert(format!("{name} {} {state}", end.display()));
        if matches!(value, NamedValue::Configuration(_)) {
            let text = match read(CWD, end, MOST_BYTES) {
                Err(e) if self.is_writable(end) && !absent(e) => return Err(e),
                text => text.ok().flatten(),
            };
            let within = end.parent().map(Path::to_owned);
            self.configurations.extend(within.zip(text));
        }
        Ok(())
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.volumes.iter().any(|volume| path.starts_with(volume))
    }

    /// What is at this place, which has no links on the way.
    fn state(&mut self, place: &Path, depth: usize) -> Result<String, Errno> {
        self.left = self.left.checked_sub(1).filter(|_| depth < DEPTH).ok_or(Errno::TOOBIG)?;
        let about = match std::fs::symlink_metadata(place) {
            Ok(about) => about,
            Err(e) if absent(errno(&e)) => return Ok("absent".into()),
            Err(e) => return Err(errno(&e)),
        };
        if about.is_dir() {
            return self.directory(place, depth);
        }
        let executable = about.mode() & 0o111;
        if about.is_file() && about.len() <= MOST_BYTES {
            let text = read(CWD, place, MOST_BYTES)?.ok_or(Errno::AGAIN)?;
            return Ok(format!("{executable:o} {}", hash(&[&text])));
        }
        Ok(format!("{} {:o} {} {}.{}", about.ino(), about.mode(), about.len(), about.ctime(), about.ctime_nsec()))
    }

    /// Of a directory that has the repository in it, only programs count that lie in it by themselves: the rest is its work.
    fn directory(&mut self, place: &Path, depth: usize) -> Result<String, Errno> {
        let is_around = self.bases.iter().any(|base| base.starts_with(place));
        let entries = std::fs::read_dir(place).map_err(|e| errno(&e))?;
        let mut names: Vec<OsString> = Vec::new();
        for entry in entries {
            names.push(entry.map_err(|e| errno(&e))?.file_name());
            if names.len() > MOST_FILES {
                return Err(Errno::TOOBIG);
            }
        }
        names.sort();
        let mut states = Vec::new();
        for name in names.iter().filter(|name| !name.as_bytes().ends_with(b".sample")) {
            let state = match resolve(place, name) {
                AddressEnd::At(end) if is_around && !is_program(&end) => continue,
                AddressEnd::At(end) if end == place.join(name) || self.is_writable(&end) => {
                    format!("{} {}", end.display(), self.state(&end, depth + 1)?)
                }
                AddressEnd::At(end) => end.display().to_string(),
                AddressEnd::Unknown(_) => return Err(Errno::LOOP),
                AddressEnd::Nowhere => "nowhere".to_owned(),
            };
            states.extend([name.as_bytes().to_vec(), state.into_bytes()]);
        }
        let states: Vec<&[u8]> = states.iter().map(Vec::as_slice).collect();
        Ok(format!("directory {}", hash(&states)))
    }
}

fn is_program(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|about| about.is_file() && about.mode() & 0o111 != 0)
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}
