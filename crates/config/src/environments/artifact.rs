//! Checks an environment artifact: a directory with `bin/run` and `metadata.json`.
//!
//! Nothing in it is trusted. Its files are opened below its own directory, so that no symlink makes a reader open another file;
//! the exception is the Nix store, which is readable for all users and immutable. Runs and writes nothing.

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::metadata::{Metadata, metadata};
use super::{DefinitionProblem, LONGEST_FILE, NO_MICROVM, shown};

/// The default Nix store; `NIX_STORE_DIR` names another one.
pub(crate) const NIX_STORE: &str = "/nix/store";

/// A checked artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Artifact {
    /// Its canonical directory, which is mounted at the same path; `None` if only the program is known.
    pub directory: Option<PathBuf>,
    /// The program that reads code from its standard input.
    pub program: PathBuf,
    /// The program that keeps an interpreter's state between calls, if there is one: `bin/session-run`.
    pub session_program: Option<PathBuf>,
    /// The Nix store, if it has to be mounted.
    pub store: Option<PathBuf>,
    /// Its metadata.
    pub metadata: Metadata,
    /// Whether its program creates a nested sandbox, which has to be granted.
    pub nests: bool,
    /// Why it is unavailable although it is valid.
    pub unavailable: Option<String>,
}

/// Checks the artifact in `directory`. With `name`, its metadata must have that name. `store` is the Nix store.
///
/// # Errors
/// All its mistakes.
pub fn artifact(
    directory: &Path,
    name: Option<&str>,
    homes: &[String],
    store: &Path,
) -> Result<Artifact, Vec<DefinitionProblem>> {
    let mut look = ArtifactReader { place: directory.display().to_string(), store, problems: Vec::new() };
    let found = look.artifact(directory, name, homes);
    match found {
        Some(artifact) if look.problems.is_empty() => Ok(artifact),
        _ => Err(look.problems),
    }
}

/// Programs that create a nested sandbox when `bin/run` calls them.
const NESTING: &str = "bwrap";

struct ArtifactReader<'s> {
    place: String,
    store: &'s Path,
    problems: Vec<DefinitionProblem>,
}

impl ArtifactReader<'_> {
    fn problem(&mut self, key: &str, problem: impl Into<String>, accepted: &str) {
        let (place, problem) = (self.place.clone(), problem.into());
        self.problems.push(DefinitionProblem { place, key: key.into(), problem, accepted: accepted.into() });
    }

    fn artifact(&mut self, directory: &Path, name: Option<&str>, homes: &[String]) -> Option<Artifact> {
        const A_DIRECTORY: &str = "a directory with bin/run and metadata.json";
        let real = match std::fs::canonicalize(directory) {
            Ok(real) => real,
            Err(error) => {
                self.problem("", format!("cannot be looked at: {error}"), A_DIRECTORY);
                return None;
            }
        };
        // The whole directory is mounted, so it must not contain a home.
        let holds_home = homes.iter().any(|home| Path::new(home).starts_with(&real));
        let shallow = real.components().count() < 3;
        if holds_home || shallow || real.to_str().is_none() {
            self.problem(
                "",
                "is no directory of an artifact's own",
                "a directory that holds the artifact and nothing else",
            );
            return None;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(&real, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(error) => {
                self.problem("", format!("cannot be opened: {error}"), A_DIRECTORY);
                return None;
            }
        };
        let text = self.read(&fd, &real, "metadata.json", false);
        let metadata = text.and_then(|(text, _)| {
            metadata(&text, &format!("{}/metadata.json", self.place)).map_err(|found| self.problems.extend(found)).ok()
        });
        if let (Some(metadata), Some(name)) = (&metadata, name)
            && metadata.name != name
        {
            self.problem(
                "metadata.json: name",
                format!("{} is not {}", shown(&metadata.name), shown(name)),
                &format!("{}, or an environment that is called {}", shown(name), shown(&metadata.name)),
            );
        }
        let run = self.read(&fd, &real, "bin/run", true);
        let sessions = rustix::fs::statat(&fd, "bin/session-run", rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if sessions {
            self.read(&fd, &real, "bin/session-run", true);
        }
        let (metadata, (text, in_store)) = (metadata?, run?);
        let unavailable = metadata.microvm.then(|| NO_MICROVM.to_owned());
        let nests = nests(&text);
        let needed = in_store || real.starts_with(self.store) || mentions(&text, self.store);
        let store = needed.then(|| self.store.to_owned());
        Some(Artifact {
            program: real.join("bin/run"),
            session_program: sessions.then(|| real.join("bin/session-run")),
            directory: Some(real),
            store,
            metadata,
            nests,
            unavailable,
        })
    }

    /// Reads a file of the artifact, and reports whether it is in the store. Of a program only the head is read.
    fn read(&mut self, directory: &OwnedFd, real: &Path, name: &str, program: bool) -> Option<(Vec<u8>, bool)> {
        let accepted = if program { "an executable file" } else { "a file with one JSON object" };
        let opened = open(directory, real, Path::new(name), self.store);
        let (file, in_store) = match opened {
            Ok(opened) => opened,
            Err(Refused::Leaves(target)) => {
                self.problem(
                    name,
                    format!("is a symlink to {}, out of the artifact", shown(&target.display().to_string())),
                    "a file of the artifact, or a link into the Nix store",
                );
                return None;
            }
            Err(Refused::Errno(Errno::NOENT)) => {
                self.problem(name, "is not there", accepted);
                return None;
            }
            Err(Refused::Errno(errno)) => {
                self.problem(name, format!("cannot be opened: {errno}"), accepted);
                return None;
            }
        };
        let metadata = match file.metadata() {
            Ok(metadata) => metadata,
            Err(error) => {
                self.problem(name, format!("cannot be looked at: {error}"), accepted);
                return None;
            }
        };
        use std::os::unix::fs::PermissionsExt as _;
        if !metadata.is_file() {
            self.problem(name, "is no regular file", accepted);
            return None;
        }
        if program && metadata.permissions().mode() & 0o111 == 0 {
            self.problem(name, "is not executable", "chmod +x");
            return None;
        }
        let mut bytes = Vec::new();
        if let Err(error) = file.take(LONGEST_FILE + 1).read_to_end(&mut bytes) {
            self.problem(name, format!("cannot be read: {error}"), accepted);
            return None;
        }
        Some((bytes, in_store))
    }
}

enum Refused {
    Leaves(PathBuf),
    Errno(Errno),
}

/// Opens a file of the artifact for reading. Links on the path may lead into the store.
fn open(directory: &OwnedFd, real: &Path, name: &Path, store: &Path) -> Result<(std::fs::File, bool), Refused> {
    // Non-blocking, because opening a FIFO would wait for its other end.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(directory.as_fd(), name, flags, Mode::empty(), beneath) {
        Ok(file) => return Ok((file.into(), real.starts_with(store))),
        Err(Errno::XDEV | Errno::LOOP) => {}
        // Linux before 5.6, or refused by a seccomp filter: the walk below handles it as well.
        Err(Errno::NOSYS | Errno::PERM) => {}
        Err(errno) => return Err(Refused::Errno(errno)),
    }
    let (path, in_store) = walk(real, name, store)?;
    // The walk resolved all links. One that was created since is refused.
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(Refused::Errno)?;
    let relative = path.strip_prefix("/").unwrap_or(&path);
    let no_links = ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(root.as_fd(), relative, flags, Mode::empty(), no_links) {
        Ok(file) => Ok((file.into(), in_store)),
        Err(Errno::NOSYS) => match rustix::fs::open(&path, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(file) => Ok((file.into(), in_store)),
            Err(errno) => Err(Refused::Errno(errno)),
        },
        Err(errno) => Err(Refused::Errno(errno)),
    }
}

/// Follows the links of a path in the artifact one by one, each of which must stay in it or lead into the store.
fn walk(real: &Path, name: &Path, store: &Path) -> Result<(PathBuf, bool), Refused> {
    let mut path = real.join(name);
    for _ in 0..40 {
        let mut walked = PathBuf::from("/");
        let mut components = path.components().filter(|c| !matches!(c, Component::RootDir));
        let next = loop {
            let Some(component) = components.next() else { break None };
            let here = walked.join(component);
            if let Ok(target) = std::fs::read_link(&here) {
                let mut next = walked.join(target);
                next.extend(components);
                break Some(cofferdam_policy::paths::lexical(&next)); // the part before a `..` is not a link
            }
            walked = here;
        };
        let allowed = |path: &Path| path.starts_with(real) || path.starts_with(store);
        match next {
            None => {
                return if allowed(&path) {
                    Ok((path.clone(), path.starts_with(store)))
                } else {
                    Err(Refused::Leaves(path))
                };
            }
            Some(next) if allowed(&next) => path = next,
            Some(next) => return Err(Refused::Leaves(next)),
        }
    }
    Err(Refused::Errno(Errno::LOOP))
}

/// Whether a script calls bubblewrap, outside of comments. Binary programs are not examined.
fn nests(program: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(program) else { return false };
    let word = |line: &str| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == NESTING);
    text.starts_with("#!") && text.lines().any(|line| !line.trim_start().starts_with('#') && word(line))
}

fn mentions(program: &[u8], store: &Path) -> bool {
    let store = store.as_os_str().as_bytes();
    program.windows(store.len()).any(|window| window == store)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn made(name: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let bin = directory.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        program(&bin.join("run"), "#!/bin/sh\nexec sh -s\n");
        std::fs::write(directory.path().join("metadata.json"), format!(r#"{{"name": "{name}", "backend": "jail"}}"#))
            .unwrap();
        directory
    }

    fn program(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn artifact(directory: &Path, name: Option<&str>, homes: &[String]) -> Result<Artifact, Vec<DefinitionProblem>> {
        super::artifact(directory, name, homes, Path::new(NIX_STORE))
    }

    fn mistakes(directory: &Path, name: &str) -> String {
        let problems = artifact(directory, Some(name), &["/home/u".into()]).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn valid_artifact_is_accepted_directly_and_through_a_link() {
        let directory = made("a");
        let found = artifact(directory.path(), Some("a"), &[]).unwrap();
        let real = std::fs::canonicalize(directory.path()).unwrap();
        assert_eq!((found.directory.as_deref(), &found.program), (Some(real.as_path()), &real.join("bin/run")));
        assert!(found.store.is_none() && found.session_program.is_none() && found.unavailable.is_none());
        let links = tempfile::tempdir().unwrap();
        symlink(directory.path(), links.path().join("result")).unwrap();
        assert_eq!(artifact(&links.path().join("result"), Some("a"), &[]).unwrap(), found);
        program(&directory.path().join("bin/session-run"), "#!/bin/sh\n");
        program(&directory.path().join("bin/run"), "#!/nix/store/x-bash/bin/bash\n");
        let found = artifact(directory.path(), None, &[]).unwrap();
        assert_eq!(found.session_program, Some(real.join("bin/session-run")));
        assert!(found.store.as_deref() == Some(Path::new(NIX_STORE)));
    }

    #[test]
    fn links_inside_stay_and_links_out_are_refused() {
        let directory = made("a");
        let run = directory.path().join("bin/run");
        std::fs::rename(&run, directory.path().join("real")).unwrap();
        symlink("../real", &run).unwrap();
        assert!(artifact(directory.path(), Some("a"), &[]).is_ok());
        // An absolute link to the same file: openat2 refuses it, and the walk accepts it.
        std::fs::remove_file(&run).unwrap();
        symlink(std::fs::canonicalize(directory.path()).unwrap().join("real"), &run).unwrap();
        assert!(artifact(directory.path(), Some("a"), &[]).is_ok());
        std::fs::remove_file(&run).unwrap();
        symlink("/bin/sh", &run).unwrap();
        let text = mistakes(directory.path(), "a");
        assert!(text.contains("bin/run: is a symlink to `/bin/sh`, out of the artifact"), "{text}");
        let metadata = directory.path().join("metadata.json");
        std::fs::remove_file(&metadata).unwrap();
        symlink("../../../../../../../etc/passwd", &metadata).unwrap();
        let text = mistakes(directory.path(), "a");
        assert!(text.contains("metadata.json: is a symlink to `/etc/passwd`") && !text.contains("root:"), "{text}");
        // A directory on the path that is a link, and a loop.
        std::fs::remove_file(&run).unwrap();
        std::fs::remove_dir(directory.path().join("bin")).unwrap();
        symlink("/usr/bin", directory.path().join("bin")).unwrap();
        assert!(mistakes(directory.path(), "a").contains("bin/run: is a symlink to `/usr/bin/run`"));
        std::fs::remove_file(directory.path().join("bin")).unwrap();
        symlink("bin", directory.path().join("bin")).unwrap();
        assert!(mistakes(directory.path(), "a").contains("bin/run: cannot be opened"));
    }

    #[test]
    fn the_walk_allows_the_store_and_what_passes_through_it() {
        let directory = made("a");
        let real = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::remove_file(real.join("bin/run")).unwrap();
        symlink("/nix/store/none-wrapped/bin/run", real.join("bin/run")).unwrap();
        let (path, in_store) =
            walk(&real, Path::new("bin/run"), Path::new(NIX_STORE)).unwrap_or_else(|_| panic!("refused"));
        assert_eq!((path.to_str(), in_store), (Some("/nix/store/none-wrapped/bin/run"), true));
        std::fs::remove_file(real.join("bin/run")).unwrap();
        symlink("/nix/store/../../etc/passwd", real.join("bin/run")).unwrap();
        assert!(matches!(walk(&real, Path::new("bin/run"), Path::new(NIX_STORE)), Err(Refused::Leaves(_))));
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let text = mistakes(directory.path(), "a");
        assert!(text.contains("metadata.json: is not there") && text.contains("bin/run: is not there"), "{text}");
        let directory = made("b");
        std::fs::set_permissions(directory.path().join("bin/run"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let text = mistakes(directory.path(), "a");
        assert!(text.contains("`b` is not `a`") && text.contains("bin/run: is not executable"), "{text}");
        assert!(text.contains("accepted: `a`, or an environment that is called `b`"), "{text}");
        let directory = made("a");
        std::fs::remove_file(directory.path().join("metadata.json")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.path().join("metadata.json"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        assert!(mistakes(directory.path(), "a").contains("metadata.json: is no regular file"));
        for (directory, home) in [("/", "/home/u"), ("/usr", "/home/u"), ("/usr/lib", "/usr/lib/u")] {
            let problems = artifact(Path::new(directory), None, &[home.into()]).unwrap_err();
            assert!(problems[0].problem.contains("no directory of an artifact's own"), "{directory}");
        }
        assert!(mistakes(Path::new("/no/where"), "a").contains("cannot be looked at"));
    }

    #[test]
    fn nested_sandbox_and_virtual_machine_are_unavailable() {
        let directory = made("a");
        program(&directory.path().join("bin/run"), "#!/bin/sh\n# no bwrap here\nexec sh\n");
        assert_eq!(artifact(directory.path(), None, &[]).unwrap().unavailable, None);
        program(&directory.path().join("bin/run"), "#!/bin/sh\nexec /usr/bin/bwrap --ro-bind / / sh\n");
        let found = artifact(directory.path(), None, &[]).unwrap();
        assert!(found.nests && found.unavailable.is_none());
        let text = r#"{"name": "a", "backend": "microvm", "microvm": {"vcpus": 2}}"#;
        std::fs::write(directory.path().join("metadata.json"), text).unwrap();
        assert_eq!(artifact(directory.path(), None, &[]).unwrap().unavailable.as_deref(), Some(NO_MICROVM));
    }
}
