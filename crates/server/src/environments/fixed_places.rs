//! What configured paths led to when the server first read them. Code in a sandbox may be able to write the directory above
//! such a path, and decides nothing about what it leads to: another directory or a link in its place is refused, however
//! often the definitions are read again, until it is put back or the server is started again. Each is held open, so that its
//! inode number identifies nothing else meanwhile.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cofferdam_config::environments::{DefinitionProblem, Environment, EnvironmentKind, Environments, Project};
use cofferdam_engine::{FailedStep, Failure};
use cofferdam_policy::paths::lexical;
use cofferdam_policy::text::one_line;
use cofferdam_policy::{Field, FileIdentity, Mount, Policy, Root};
use rustix::fs::{Mode, OFlags};

use super::environment::failure;

const PUT_BACK: &str = "put the directory back, or start the server again";

/// What is pinned where nothing is. No file has inode 0.
pub(crate) const ABSENT: FileIdentity = FileIdentity { device: 0, inode: 0 };

/// The file at a canonical path; `None` if the path is not canonical or does not exist.
pub(crate) fn identity(path: &str) -> Option<FileIdentity> {
    let about = std::fs::canonicalize(path).ok().filter(|real| real.as_os_str() == path)?.symlink_metadata().ok()?;
    Some(FileIdentity { device: about.dev(), inode: about.ino() })
}

/// The file that a path leads to, by links as well.
fn leads_to(path: &str) -> Option<FileIdentity> {
    let about = std::fs::metadata(path).ok()?;
    Some(FileIdentity { device: about.dev(), inode: about.ino() })
}

/// A descriptor of the file that a path leads to, if it is this one. While it is open, no other file gets the numbers that
/// identify it.
pub(crate) fn hold(path: &str, known: FileIdentity) -> Option<OwnedFd> {
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let about = rustix::fs::fstat(&held).ok()?;
    (known == FileIdentity { device: about.st_dev, inode: about.st_ino }).then_some(held)
}

/// The directories and sources that definitions named so far, by the text that names them.
#[derive(Debug, Default)]
pub(crate) struct FixedPlaces(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    /// Path without links, and the directory, with a descriptor where it was still there.
    projects: BTreeMap<PathBuf, (String, FileIdentity, Option<OwnedFd>)>,
    images: BTreeMap<String, (FileIdentity, OwnedFd)>,
    /// Path without links. Another virtual environment at that path is the operator's, who may make it anew.
    venvs: BTreeMap<PathBuf, PathBuf>,
    /// Whether the source of a mount was reached by a link.
    linked: BTreeMap<String, bool>,
}

impl Places {
    /// Fixes the directory that an image's path leads to, where one is there.
    fn fix_image(&mut self, path: &str) {
        if self.images.contains_key(path) {
            return;
        }
        if let Some((now, held)) = leads_to(path).and_then(|now| Some((now, hold(path, now)?))) {
            self.images.insert(path.to_owned(), (now, held));
        }
    }
}

impl FixedPlaces {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has definitions that were read again name the directory that the same text led to before. A text that was not there
    /// before must not lead through a link: code may have made it since the server was started.
    pub(crate) fn keep(&self, all: &mut Environments) {
        for venv in all.all().iter().filter_map(|one| one.overrides.venv.as_ref()) {
            self.places().venvs.entry(venv.clone()).or_insert_with(|| lexical(venv));
        }
        let Some(project) = &mut all.project else { return };
        if let Some((path, identity, _)) = self.places().projects.get(&project.written) {
            (project.path, project.identity) = (path.clone(), *identity);
        } else if Path::new(&project.path) != lexical(&project.written) {
            all.problems.push(DefinitionProblem {
                place: project.written.display().to_string(),
                key: "project.path".into(),
                problem:
                    "leads through a symbolic link, which code in a sandbox may have made since the server was started"
                        .into(),
                accepted: format!("the path without links, {}, or the server started again", one_line(&project.path)),
            });
        }
    }

    /// Fixes what definitions that are in force from now on lead to.
    pub(crate) fn fix(&self, all: &Environments) {
        let mut places = self.places();
        if let Some(Project { written, path, identity, .. }) = &all.project {
            let held = || (path.clone(), *identity, hold(path, *identity));
            places.projects.entry(written.clone()).or_insert_with(held);
        }
        for path in all.all().iter().filter_map(image_directory) {
            places.fix_image(path);
        }
        for venv in all.all().iter().filter_map(|one| one.overrides.venv.as_ref()) {
            let real = || std::fs::canonicalize(venv).unwrap_or_else(|_| lexical(venv));
            places.venvs.entry(venv.clone()).or_insert_with(real);
        }
    }

    /// Refuses a project or an image directory that is not what it was, and a virtual environment that lies elsewhere.
    ///
    /// # Errors
    /// It is gone or was replaced.
    pub(crate) fn check(&self, environment: &Environment, project: Option<&Project>) -> Result<(), Failure> {
        let mut places = self.places();
        let held = |project: &Project| {
            places.projects.get(&project.written).is_some_and(|(_, fixed, held)| {
                *fixed == project.identity && held.is_some() && identity(&project.path) == Some(*fixed)
            })
        };
        if let Some(project) = project.filter(|project| !held(project)) {
            let message = format!(
                "the project {} is gone or was replaced, or a link leads elsewhere from it now",
                one_line(&project.path)
            );
            return Err(failure(FailedStep::caller("environment"), &format!("{message}\nhint: {PUT_BACK}")));
        }
        if let Some((venv, known)) =
            environment.overrides.venv.as_ref().and_then(|venv| places.venvs.get_key_value(venv))
            && std::fs::canonicalize(venv).is_ok_and(|now| now != *known)
        {
            let venv = one_line(&venv.display().to_string());
            let message = format!("a link leads elsewhere from the virtual environment {venv} now");
            return Err(failure(FailedStep::caller("environment"), &format!("{message}\nhint: {PUT_BACK}")));
        }
        let root = match &environment.kind {
            EnvironmentKind::Image { root: Root::Directory(path) | Root::Image(path), .. } => path,
            _ => return Ok(()),
        };
        match places.images.get(root) {
            // Nothing was there when the definition was read.
            None if identity(root).is_none() && leads_to(root).is_some() && image_directory(environment).is_some() => {
                let message = format!("a link leads elsewhere from the image {}", one_line(root));
                Err(failure(
                    Field::Root.into(),
                    &format!("{message}\nhint: name the path without links, or start the server again"),
                ))
            }
            None if image_directory(environment).is_some() => {
                places.fix_image(root);
                Ok(())
            }
            Some((known, _)) if leads_to(root) != Some(*known) => {
                let path = one_line(root);
                let message =
                    format!("the image {path} is gone or was replaced, or a link leads elsewhere from it now");
                Err(failure(Field::Root.into(), &format!("{message}\nhint: {PUT_BACK}")))
            }
            _ => Ok(()),
        }
    }

    /// Pins the policy to the files that its paths lead to now, so that no replacement is mounted, and to the project and the
    /// image directory that were fixed.
    ///
    /// # Errors
    /// The source of a mount is reached by a link, and was not before.
    pub(crate) fn pin(&self, policy: &mut Policy, project: Option<&Project>) -> Result<(), Failure> {
        let mut places = self.places();
        let mut pins = BTreeMap::new();
        for (index, mount) in policy.filesystem.mounts.iter().enumerate() {
            let Mount::Bind { source, .. } = mount else { continue };
            // Where nothing is, nothing that appears before the mount is accepted.
            let found = match std::fs::canonicalize(source) {
                Ok(_) => identity(source),
                Err(_) => Some(ABSENT),
            };
            let was_linked = *places.linked.entry(source.clone()).or_insert(found.is_none());
            if found.is_none() && !was_linked {
                let message = format!("a link leads elsewhere from the mount source {} now", one_line(source));
                return Err(failure(FailedStep::mount_entry(index), &format!("{message}\nhint: {PUT_BACK}")));
            }
            pins.extend(found.map(|identity| (source.clone(), identity)));
        }
        if let Root::Directory(root) = &policy.filesystem.root {
            pins.extend(places.images.get(root).map(|(identity, _)| (root.clone(), *identity)));
        }
        pins.extend(project.map(|project| (project.path.clone(), project.identity)));
        policy.filesystem.identities = pins;
        Ok(())
    }
}

/// The directory that an environment's root is made of.
fn image_directory(environment: &Environment) -> Option<&str> {
    match &environment.kind {
        EnvironmentKind::Image { root: Root::Directory(path), .. } => Some(path),
        _ => None,
    }
}
