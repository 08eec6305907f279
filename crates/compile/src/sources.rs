//! Reads a profile and all its imports before Nickel does, and passes the texts to Nickel in memory.
//!
//! Finds files in Nickel's order: beside the importing file, then in the library. Refuses imports out of the allowed directories,
//! sources that are too large or too deeply nested, and files that are not regular. Each file is read once, so Nickel sees what was
//! hashed.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use cofferdam_profiles::identity::sha256;
use cofferdam_profiles::protocol::{EvaluationProblem, EvaluatorDirectory, FileSeen, FileStamp, ProblemKind};
use nickel_lang_core::ast::InputFormat;
use nickel_lang_core::cache::{SourceCache, SourcePath, normalize_abs_path};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::imports_and_depth;
use crate::library::{DIRECTORY, LIBRARY, ROOT};

/// Most bytes of one profile and its imports together.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// The sources of one evaluator in memory, by name and format.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    read: HashMap<(PathBuf, InputFormat), Read>,
}

/// A file that is in memory already.
#[derive(Debug, Clone)]
struct Read {
    seen: FileSeen,
    bytes: u64,
    imports: Vec<(imports_and_depth::Import, (usize, usize))>,
}

/// The files of one profile.
#[derive(Debug, Default)]
pub(crate) struct LoadedSources {
    /// The files that were read.
    pub files: Vec<FileSeen>,
    /// The paths that were looked up and do not exist.
    pub absent: Vec<PathBuf>,
    /// The files of the library that it imports directly, below `sandbox/`.
    pub library: Vec<String>,
}

/// The origin of an import, for messages.
struct ImportOrigin {
    name: PathBuf,
    format: InputFormat,
    /// `FILE:LINE:COLUMN` of the import and its text; `None` for the profile itself.
    by: Option<(String, String)>,
}

/// The result of looking up one candidate.
enum CandidateLookup {
    Yes,
    No,
}

impl Sources {
    /// No files yet, except the library in Nickel's cache.
    pub(crate) fn new(cache: &mut SourceCache) -> Sources {
        cache.add_import_paths(std::iter::once(PathBuf::from(ROOT)));
        let root = Path::new(ROOT);
        cache.add_string(SourcePath::Path(root.join("sandbox"), InputFormat::Nickel), DIRECTORY.into());
        for (name, text, _) in LIBRARY {
            let path = root.join("sandbox").join(name);
            cache.add_string(SourcePath::Path(path, InputFormat::Nickel), (*text).into());
        }
        Sources::default()
    }

    /// Reads the profile and all its imports into the cache.
    ///
    /// # Errors
    /// A file cannot be read, is too large or too deeply nested, or an import leads out of the allowed directories.
    pub(crate) fn load(
        &mut self,
        cache: &mut SourceCache,
        file: &Path,
        imports: &[PathBuf],
        dirs: &[EvaluatorDirectory],
    ) -> Result<LoadedSources, EvaluationProblem> {
        let mut loaded = LoadedSources::default();
        let mut total = 0;
        let mut open = vec![ImportOrigin { name: normalize_abs_path(file), format: InputFormat::Nickel, by: None }];
        let mut done: Vec<(PathBuf, InputFormat)> = Vec::new();
        while let Some(wanted) = open.pop() {
            let key = (wanted.name.clone(), wanted.format);
            if done.contains(&key) {
                continue;
            }
            if !self.read.contains_key(&key) {
                let at = allowed(&wanted, imports, dirs)?;
                let (read, text) = read(&wanted, &at)?;
                cache.add_string(SourcePath::Path(wanted.name.clone(), wanted.format), text);
                self.read.insert(key.clone(), read);
            }
            let read = self.read[&key].clone();
            done.push(key);
            total += read.bytes;
            if total > MAX_BYTES {
                let message = format!(
                    "{} and what it imports have more than {} MiB; {} is one file too many",
                    file.display(),
                    MAX_BYTES >> 20,
                    wanted.name.display()
                );
                return Err(problem(ProblemKind::TooLarge, message)
                    .hint("a profile holds rules, not data: leave out what it does not need"));
            }
            loaded.files.push(read.seen);
            let parent = wanted.name.parent().unwrap_or(Path::new("/")).to_owned();
            for (import, (line, column)) in read.imports {
                let by = (format!("{}:{line}:{column}", wanted.name.display()), import.path.clone());
                for directory in [parent.as_path(), Path::new(ROOT)] {
                    let name = normalize_abs_path(&directory.join(&import.path));
                    let next = ImportOrigin { name, format: import.format, by: Some(by.clone()) };
                    match look(cache, &next, imports, dirs, &mut loaded.absent)? {
                        CandidateLookup::Yes if next.name.starts_with(ROOT) => {
                            let below = next.name.strip_prefix(ROOT).unwrap_or(&next.name);
                            let below = below.strip_prefix("sandbox").unwrap_or(below).to_string_lossy();
                            let file = if below.is_empty() { "main.ncl".into() } else { below.into_owned() };
                            loaded.library.push(file);
                            break;
                        }
                        CandidateLookup::Yes => {
                            open.push(next);
                            break;
                        }
                        CandidateLookup::No => {}
                    }
                }
            }
        }
        loaded.absent.sort_unstable();
        loaded.absent.dedup();
        Ok(loaded)
    }
}

/// Whether a path exists for Nickel: in memory, or as a file that can be opened.
fn look(
    cache: &SourceCache,
    wanted: &ImportOrigin,
    imports: &[PathBuf],
    dirs: &[EvaluatorDirectory],
    absent: &mut Vec<PathBuf>,
) -> Result<CandidateLookup, EvaluationProblem> {
    if wanted.name.starts_with(ROOT) {
        let key = SourcePath::Path(wanted.name.clone(), wanted.format);
        return Ok(if cache.file_ids.contains_key(&key) { CandidateLookup::Yes } else { CandidateLookup::No });
    }
    // Checked before its existence, which must not be revealed for paths outside.
    let at = allowed(wanted, imports, dirs)?;
    if std::fs::metadata(&at).is_ok_and(|data| !data.is_dir()) {
        return Ok(CandidateLookup::Yes);
    }
    absent.push(wanted.name.clone());
    Ok(CandidateLookup::No)
}

/// Most links that are followed for one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// The target of a path.
enum Leads {
    /// In a directory of the request: its path on the host, and its path here. Neither has links.
    Inside(PathBuf, PathBuf),
    /// Outside of all directories: the first path that lies in none, and the directory to which the last link before it leads.
    Outside(PathBuf, Option<PathBuf>),
    /// A loop of links.
    Loop,
}

/// Follows the links of a path by the host's paths. In the jail directories are mounted at other paths, where the kernel would not
/// find the target of an absolute link, or of one that leads from one directory to another.
fn follow(name: &Path, dirs: &[&EvaluatorDirectory]) -> Leads {
    let here = |path: &Path| dirs.iter().find_map(|dir| Some(dir.at.join(path.strip_prefix(&dir.name).ok()?)));
    // The directories of a request are canonical, so none of their ancestors is a link.
    let above = |path: &Path| dirs.iter().any(|dir| dir.name.starts_with(path));
    let parts =
        |path: &Path| -> Vec<PathBuf> { path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect() };
    let (mut path, mut open, mut links) = (PathBuf::from("/"), parts(name), 0);
    // How many parts of the path stood below the last link.
    let mut below = 0;
    let joined = |start: PathBuf, open: &[PathBuf]| open.iter().rev().fold(start, |path, part| path.join(part));
    while let Some(part) = open.pop() {
        match part.components().next() {
            Some(Component::RootDir) => path = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(path.pop()),
            Some(Component::Normal(part)) => {
                let next = path.join(part);
                let Some(at) = here(&next) else {
                    if above(&next) {
                        path = next;
                        continue;
                    }
                    let linked = (below > 0 && below <= open.len()).then(|| joined(next.clone(), &open[below..]));
                    return Leads::Outside(joined(next, &open), linked);
                };
                match std::fs::read_link(&at) {
                    Ok(_) if links == MAX_LINKS => return Leads::Loop,
                    Ok(target) => {
                        links += 1;
                        below = open.len();
                        open.extend(parts(&target));
                    }
                    Err(_) => path = next,
                }
            }
            _ => {}
        }
    }
    match here(&path) {
        Some(at) => Leads::Inside(path, at),
        None => Leads::Outside(path, None),
    }
}

/// The location of a path, if the profile may read it.
fn allowed(
    wanted: &ImportOrigin,
    imports: &[PathBuf],
    dirs: &[EvaluatorDirectory],
) -> Result<PathBuf, EvaluationProblem> {
    let dirs: Vec<&EvaluatorDirectory> = dirs.iter().filter(|dir| imports.contains(&dir.name)).collect();
    // Hidden files are imported only below a directory that was named explicitly.
    let shown = |path: &Path| {
        wanted.by.is_none() || dirs.iter().any(|dir| path.strip_prefix(&dir.name).is_ok_and(|below| !is_hidden(below)))
    };
    let inside = |path: &Path| dirs.iter().any(|dir| path.starts_with(&dir.name));
    let name = wanted.name.display();
    // The path itself has to lie inside: a link of the host is not followed into an allowed directory.
    let leads =
        if inside(&wanted.name) { follow(&wanted.name, &dirs) } else { Leads::Outside(wanted.name.clone(), None) };
    let (target, linked, hidden) = match leads {
        Leads::Inside(path, at) if shown(&wanted.name) && shown(&path) => return Ok(at),
        Leads::Inside(path, _) => (path, None, true),
        Leads::Outside(path, linked) => (path, linked, false),
        Leads::Loop => {
            let place = wanted.by.as_ref().map(|(place, _)| format!("{place}: ")).unwrap_or_default();
            let message = format!("{place}{name} is a symbolic link that leads to itself");
            return Err(problem(ProblemKind::Import, message).hint("replace the link by the file"));
        }
    };
    let directories: Vec<String> = imports.iter().map(|dir| dir.display().to_string()).collect();
    let outside = format!("outside the directories that it may import from ({})", directories.join(", "));
    let leads_to = if target == wanted.name { String::new() } else { format!(" a link to {},", target.display()) };
    let message = match &wanted.by {
        Some((place, path)) if hidden => {
            format!(
                "{place}: the import \"{path}\" is {name},{leads_to} and names that begin with a dot are not imported"
            )
        }
        Some((place, path)) => format!("{place}: the import \"{path}\" leads to {name},{leads_to} {outside}"),
        None => format!("{name} is a link to {}, {outside}", target.display()),
    };
    Err(problem(ProblemKind::Import, message).hint(&way_in(wanted, &target, linked.as_deref(), imports)))
}

/// The hint with the option that would allow the file to be read, if there is one that was not given. Of a linked directory it is
/// the whole: its files import each other.
fn way_in(wanted: &ImportOrigin, target: &Path, linked: Option<&Path>, imports: &[PathBuf]) -> String {
    let hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().first() == Some(&b'.'));
    let plain = |path: &&Path| path.components().all(|part| part != Component::ParentDir);
    let parent = linked.filter(plain).or(target.parent()).unwrap_or(Path::new("/"));
    if wanted.by.is_some() && (hidden(target) || hidden(&wanted.name)) {
        "rename it: a file whose name begins with a dot is never imported".into()
    } else if parent == Path::new("/") || imports.iter().any(|dir| dir == parent) {
        "copy the file into the profile's directory".into()
    } else {
        format!("--allow-import {} lets it", parent.display())
    }
}

fn is_hidden(path: &Path) -> bool {
    path.components()
        .any(|part| matches!(part, Component::Normal(name) if name.as_encoded_bytes().first() == Some(&b'.')))
}

/// Reads and scans one file.
fn read(wanted: &ImportOrigin, at: &Path) -> Result<(Read, String), EvaluationProblem> {
    let name = wanted.name.display().to_string();
    let place = wanted.by.as_ref().map(|(place, _)| format!("{place}: ")).unwrap_or_default();
    let unreadable = |cause: String| problem(ProblemKind::Unreadable, format!("{place}cannot read {name}: {cause}"));
    let file = open_without_links(at).map_err(|error| unreadable(error.to_string()))?;
    let metadata = file.metadata().map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() {
        return Err(unreadable("it is no regular file".into()));
    }
    let identity = FileStamp::of(&metadata);
    let bytes = contents(&file, identity.size).map_err(|error| unreadable(error.to_string()))?;
    let bytes = bytes.ok_or_else(|| {
        problem(
            ProblemKind::TooLarge,
            format!("{place}{name} has {} bytes; at most {} MiB are read", identity.size, MAX_BYTES >> 20),
        )
        .hint("a profile holds rules, not data: leave out what it does not need")
    })?;
    let seen = FileSeen { path: wanted.name.clone(), identity, sha256: sha256(&bytes) };
    let text = String::from_utf8(bytes)
        .map_err(|error| unreadable(format!("it is not valid UTF-8 at byte {}", error.utf8_error().valid_up_to())))?;
    let (imports, too_deep) = match wanted.format {
        InputFormat::Nickel => {
            let scan = imports_and_depth::nickel(&text);
            (scan.imports, scan.too_deep)
        }
        InputFormat::Text => (Vec::new(), None),
        _ => (Vec::new(), imports_and_depth::data(&text)),
    };
    if let Some(at) = too_deep {
        return Err(too_deeply(&name, &text, at));
    }
    let imports = imports.into_iter().map(|import| (imports_and_depth::place(&text, import.at), import));
    let imports = imports.map(|(place, import)| (import, place)).collect();
    Ok((Read { seen, bytes: text.len() as u64, imports }, text))
}

/// Opens a path without following links, so that a replacement of the checked file is not opened.
fn open_without_links(at: &Path) -> std::io::Result<File> {
    // Opening a FIFO without a writer would block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
        return Err(std::io::ErrorKind::IsADirectory.into());
    };
    let above = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = openat(CWD, "/", above, Mode::empty())?;
    for component in parent.components().filter(|component| *component != Component::RootDir) {
        directory = openat(&directory, component.as_os_str(), above, Mode::empty())?;
    }
    Ok(openat(&directory, name, flags, Mode::empty())?.into())
}

/// The content of a file; `None` if it is larger than the limit.
fn contents(file: &File, size: u64) -> std::io::Result<Option<Vec<u8>>> {
    if size > MAX_BYTES {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= MAX_BYTES).then_some(bytes))
}

/// The problem of a source that is nested too deeply.
pub(crate) fn too_deeply(name: &str, text: &str, at: usize) -> EvaluationProblem {
    let (line, column) = imports_and_depth::place(text, at);
    let message = format!(
        "{name}:{line}:{column}: nested too deeply here; at most {} brackets, and {} words without a comma or a bracket",
        imports_and_depth::MAX_DEPTH,
        imports_and_depth::MAX_CHAIN
    );
    problem(ProblemKind::TooDeep, message).hint("give inner parts names of their own, or import them as files")
}

/// A problem without a hint.
pub(crate) fn problem(kind: ProblemKind, message: impl Into<String>) -> EvaluationProblem {
    EvaluationProblem { kind, message: message.into(), hint: None }
}

/// Adds a hint.
pub(crate) trait Hint {
    /// The problem with a hint.
    fn hint(self, hint: &str) -> Self;
}

impl Hint for EvaluationProblem {
    fn hint(mut self, hint: &str) -> EvaluationProblem {
        self.hint = Some(hint.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_that_replaced_a_directory_is_not_followed() {
        let scene = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(scene.path()).unwrap();
        for name in ["inside", "outside"] {
            std::fs::create_dir(root.join(name)).unwrap();
            std::fs::write(root.join(name).join("file"), name).unwrap();
        }
        let text = |path: &Path| {
            let mut text = String::new();
            open_without_links(path).and_then(|mut file| file.read_to_string(&mut text)).map(|_| text)
        };
        let wanted = root.join("inside/file");
        assert_eq!(text(&wanted).unwrap(), "inside");
        std::fs::rename(root.join("inside"), root.join("before")).unwrap();
        std::os::unix::fs::symlink("outside", root.join("inside")).unwrap();
        assert_eq!(std::fs::read_to_string(&wanted).unwrap(), "outside", "the victim is there to be had");
        assert!(text(&wanted).is_err());
        assert_eq!(text(&root.join("outside/file")).unwrap(), "outside", "and its own name opens it");
        std::os::unix::fs::symlink("file", root.join("outside/link")).unwrap();
        assert!(text(&root.join("outside/link")).is_err());
    }
}
