//! Reads a skill's directory: every file is opened and read once, and its hash is that of the bytes in memory. So later steps use
//! what was hashed, whatever happens to the directory meanwhile.
//!
//! ```text
//! DIR ─ manifest.json ─ decode, verify ─┐
//!  └─── walk, each name by descriptor ──┴─▶ Taken (manifest, bytes) or every fault
//! ```
//!
//! No link is followed below the directory, opening a FIFO does not block, no device is read, and no reported size is trusted.
//! Writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cofferdam_engine::audit::{hex, sha256};
use cofferdam_policy::MAX_ERRORS;
use cofferdam_profiles::private;
use rustix::fs::{AtFlags, FileType, statat};

use super::error::{FaultCode, SkillError, SkillFault};
use super::manifest::{MANIFEST_FILE, MAX_FILES, MAX_MANIFEST_BYTES, Manifest, ManifestFile, Stage};
use super::scan::scan;
use super::signature::{self, VersionHash};

/// Largest file of a skill, bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 16 << 20;

/// Most bytes of all files of a skill together, which are in memory while it is read.
pub(crate) const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// Deepest directory below a skill's own.
const MAX_DEPTH: usize = 32;

/// A skill that was read completely, with verified signature and hashes.
#[derive(Debug)]
#[non_exhaustive]
pub struct Taken {
    /// Its manifest.
    pub manifest: Manifest,
    /// The manifest's text, unchanged.
    pub text: Vec<u8>,
    /// The hash that is signed.
    pub version: VersionHash,
    /// The content of each file, by path.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Reads a skill's directory.
///
/// # Errors
/// All faults, in the order of [`FaultCode`], or the directory cannot be read.
pub fn take(directory: &Path) -> Result<Taken, SkillError> {
    let (root, text) = open(directory)?;
    let manifest = Manifest::decode(&text, Stage::Signed)?;
    let mut faults = Vec::new();
    if let Err(error) = signature::verify(&manifest) {
        faults.push(SkillFault::new(FaultCode::SignatureVerificationFailed, error.to_string()));
    }
    let mut walk = IntakeWalk::default();
    walk.directory(&root, "", 0);
    let mut mismatches = walk.faults;
    let reported: BTreeSet<String> = mismatches.iter().filter_map(|fault| fault.file.clone()).collect();
    for file in &manifest.files {
        match walk.files.get(&file.path) {
            Some(found) if found.sha256 != file.sha256 => {
                let problem = format!("its SHA-256 is {}, and the manifest says {}", found.sha256, file.sha256);
                mismatches.push(SkillFault::of_file(FaultCode::FileHashMismatch, &file.path, problem));
            }
            None if !reported.contains(&file.path) => {
                mismatches.push(SkillFault::of_file(
                    FaultCode::FileHashMismatch,
                    &file.path,
                    "it is listed, and not there",
                ));
            }
            _ => {}
        }
    }
    let listed: BTreeSet<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
    for path in walk.files.keys().filter(|path| !listed.contains(path.as_str())) {
        mismatches.push(SkillFault::of_file(
            FaultCode::FileHashMismatch,
            path,
            "it is there, and the manifest does not list it",
        ));
    }
    mismatches.sort_by(|a, b| a.file.cmp(&b.file));
    faults.extend(mismatches);
    for (path, found) in &walk.files {
        faults.extend(scan(path, found.mode, &found.bytes).into_iter().map(|finding| SkillFault {
            line: finding.line,
            ..SkillFault::of_file(FaultCode::StaticScanFailed, path, format!("{}: {}", finding.rule, finding.what))
        }));
    }
    if !faults.is_empty() {
        faults.truncate(MAX_ERRORS);
        return Err(SkillError::Refused(faults));
    }
    let version = VersionHash::of(&manifest);
    let files = walk.files.into_iter().map(|(path, found)| (path, found.bytes)).collect();
    Ok(Taken { manifest, text, version, files })
}

/// The files of a directory as a manifest lists them, for signing.
///
/// # Errors
/// The directory has content that skills must not have, or cannot be read.
pub fn listing(directory: &Path) -> Result<Vec<ManifestFile>, SkillError> {
    let root = private::open(directory).map_err(unreadable(directory))?;
    let mut walk = IntakeWalk::default();
    walk.directory(&root, "", 0);
    if !walk.faults.is_empty() {
        return Err(SkillError::Refused(walk.faults));
    }
    Ok(walk.files.into_iter().map(|(path, found)| ManifestFile { path, sha256: found.sha256 }).collect())
}

/// A skill's directory and its manifest's text, for signing.
///
/// # Errors
/// There is no readable manifest.
pub fn open(directory: &Path) -> Result<(OwnedFd, Vec<u8>), SkillError> {
    let root = private::open(directory).map_err(unreadable(directory))?;
    let text = private::open_file(&root, MANIFEST_FILE)
        .and_then(|file| read(&file, MAX_MANIFEST_BYTES as u64))
        .map_err(|error| {
            let problem = format!("{MANIFEST_FILE} in {}: {error}", directory.display());
            let missing = error.kind() == io::ErrorKind::NotFound;
            let hint = missing.then_some(
                "DIR is the directory that has manifest.json at its top; the publisher writes one, and then: \
                 cofferdam skill sign --files --key FILE DIR",
            );
            SkillError::Refused(vec![SkillFault {
                hint,
                ..SkillFault::new(FaultCode::SchemaValidationFailed, problem)
            }])
        })?;
    Ok((root, text))
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> SkillError {
    move |source| SkillError::Io { operation: "read the skill's directory", path: path.to_owned(), source }
}

/// The content of an open file, or an error if it is too large by its reported size or its actual length.
pub(super) fn read(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes"));
    let said = file.metadata()?.len();
    if said > most {
        return Err(large());
    }
    let mut bytes = Vec::with_capacity(said as usize);
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(large()) } else { Ok(bytes) }
}

/// One file that was read.
#[derive(Debug)]
struct IntakeFile {
    bytes: Vec<u8>,
    sha256: String,
    mode: u32,
}

/// The content of a directory tree.
#[derive(Debug, Default)]
struct IntakeWalk {
    files: BTreeMap<String, IntakeFile>,
    faults: Vec<SkillFault>,
    entries: usize,
    bytes: u64,
}

impl IntakeWalk {
    fn fault(&mut self, path: &str, message: impl Into<String>) {
        self.faults.push(SkillFault::of_file(FaultCode::FileHashMismatch, path, message));
    }

    fn directory(&mut self, directory: &OwnedFd, above: &str, depth: usize) {
        let names = match names(directory) {
            Ok(names) => names,
            Err(error) => return self.fault(above, format!("it cannot be listed: {error}")),
        };
        for raw in names {
            self.entries += 1;
            // Directories count as well, since each file of a manifest may have its own.
            if self.entries > 2 * MAX_FILES || self.bytes > MAX_TOTAL_BYTES || self.faults.len() >= MAX_ERRORS {
                if self.entries > 2 * MAX_FILES {
                    self.fault(above, format!("it has more than {} entries", 2 * MAX_FILES));
                }
                return;
            }
            let Ok(name) = raw.to_str() else {
                self.fault(&format!("{above}{}", raw.to_string_lossy()), "its name is not UTF-8");
                continue;
            };
            let path = format!("{above}{name}");
            if path != MANIFEST_FILE {
                self.entry(directory, name, &path, depth);
            }
        }
    }

    fn entry(&mut self, directory: &OwnedFd, name: &str, path: &str, depth: usize) {
        let about = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(about) => about,
            Err(error) => return self.fault(path, format!("it cannot be looked at: {}", io::Error::from(error))),
        };
        let kind = match FileType::from_raw_mode(about.st_mode) {
            FileType::RegularFile => return self.file(directory, name, path),
            FileType::Directory if depth >= MAX_DEPTH => return self.fault(path, "it is too deep"),
            FileType::Directory => {
                return match private::open_below(directory, name) {
                    Ok(below) => self.directory(&below, &format!("{path}/"), depth + 1),
                    Err(error) => self.fault(path, format!("it cannot be opened: {error}")),
                };
            }
            FileType::Symlink => "a symbolic link",
            FileType::Fifo => "a named pipe",
            FileType::Socket => "a socket",
            _ => "a device",
        };
        self.fault(path, format!("it is {kind}: a skill has regular files and directories only"));
    }

    fn file(&mut self, directory: &OwnedFd, name: &str, path: &str) {
        // The file may have been replaced since it was examined: its type and size are checked again.
        let taken = private::open_file(directory, name).and_then(|file| {
            let bytes = read(&file, MAX_FILE_BYTES)?;
            Ok((file.metadata()?.mode(), bytes))
        });
        let (mode, bytes) = match taken {
            Ok(taken) => taken,
            Err(error) => return self.fault(path, format!("it cannot be read: {error}")),
        };
        self.bytes += bytes.len() as u64;
        if self.bytes > MAX_TOTAL_BYTES {
            return self.fault(path, format!("with it, the files have more than {MAX_TOTAL_BYTES} bytes"));
        }
        let sha256 = hex(&sha256(&bytes));
        self.files.insert(path.to_owned(), IntakeFile { bytes, sha256, mode });
    }
}

/// The names in a directory, sorted, without `.` and `..`, whatever their bytes.
fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() > 2 * MAX_FILES {
            break; // the walk reports it
        }
    }
    names.sort_unstable();
    Ok(names)
}
