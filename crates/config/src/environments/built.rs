//! Environments and projects whose flakes are built: what was built of them, checked before it is used.
//!
//! Builds only if the caller asks for it.

use std::path::{Path, PathBuf};

use cofferdam_engine::Engine;

use super::credentials::credentials_elsewhere;
use super::discover::contains_more;
use super::nix::{Building, NixBuilder, NixError};
use super::packages::{PackageCache, PackagesError};
use super::spec::store_of;
use super::{Environment, EnvironmentKind, Project, Rank, Shell, Surroundings, artifact};

/// Why an environment or project with a flake cannot be used now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// It was not built yet.
    #[error(
        "the environment `{name}` is {reference}, which was not built yet\nhint: cofferdam environment build {name}"
    )]
    NotYet {
        /// The environment.
        name: String,
        /// Its reference.
        reference: String,
    },
    /// The recorded result of the build would show more than a build.
    #[error(
        "the environment `{name}` is {reference}, and its result {} would show {}, which is no Nix store\nhint: cofferdam environment build {name}",
        built.display(), shown.display()
    )]
    NoStore {
        /// The environment.
        name: String,
        /// Its reference.
        reference: String,
        /// The target of the result's link.
        built: PathBuf,
        /// The directory that would be mounted for it.
        shown: PathBuf,
    },
    /// Its packages were not installed yet.
    #[error(
        "the packages of the environment `{name}` were not installed yet\nhint: cofferdam environment build {name}"
    )]
    NoPackages {
        /// The environment.
        name: String,
    },
    /// Nix failed.
    #[error(transparent)]
    Nix(#[from] NixError),
    /// Packages cannot be installed.
    #[error(transparent)]
    Packages(#[from] PackagesError),
}

/// What builds environments.
#[derive(Debug, Clone, Copy)]
pub struct Builders<'b> {
    /// Builds flakes.
    pub nix: &'b NixBuilder,
    /// Runs what installs packages; none are installed without it.
    pub engine: Option<&'b Engine>,
}

/// The environment with what was built of it: a checked artifact, the directory of a package, or the virtual environment with
/// its packages. `on_build` gets the reference or the packages before they are built.
///
/// # Errors
/// It is not built, and cannot or must not be built.
pub fn build_environment(
    mut environment: Environment,
    builders: Builders<'_>,
    around: &Surroundings,
    building: Building,
    on_build: impl FnOnce(&str),
) -> Result<(Environment, Option<PathBuf>), BuildError> {
    if !environment.overrides.packages.names.is_empty() {
        let venv = packages_of(&environment, builders.engine, around, building, on_build)?;
        return Ok((environment, Some(venv)));
    }
    let builder = builders.nix;
    let (EnvironmentKind::Reference(reference) | EnvironmentKind::Flake { reference, .. }) = &environment.kind else {
        return Ok((environment, None));
    };
    // An environment that is unavailable for another reason is not built.
    if environment.unavailable().is_some() {
        return Ok((environment, None));
    }
    let known = if building == Building::Anew { None } else { builder.built(reference) };
    let built = match (known, building) {
        (Some(built), _) => built,
        (None, Building::Never) => {
            return Err(BuildError::NotYet { name: environment.name.clone(), reference: reference.clone() });
        }
        (None, _) => {
            on_build(reference);
            builder.build(reference)?
        }
    };
    // The result is a link in a cache directory that a run may have been able to write to.
    let shown = built.to_str().and_then(store_of).map_or_else(|| built.clone(), PathBuf::from);
    if contains_more(around.around(), &credentials_elsewhere(&around.homes), &shown) {
        let (name, reference) = (environment.name.clone(), reference.clone());
        return Err(BuildError::NoStore { name, reference, built, shown });
    }
    if matches!(environment.kind, EnvironmentKind::Reference(_)) {
        // A name derived from the reference itself need not be the artifact's name.
        let name = (environment.rank != Rank::References).then_some(environment.name.as_str());
        environment.kind = match artifact(&built, name, &around.homes, &around.store()) {
            Ok(found) => EnvironmentKind::Artifact(Box::new(found)),
            Err(problems) => EnvironmentKind::Broken(problems),
        };
        return Ok((environment, None));
    }
    Ok((environment, Some(built)))
}

/// The virtual environment with the packages of an environment.
fn packages_of(
    environment: &Environment,
    engine: Option<&Engine>,
    around: &Surroundings,
    building: Building,
    on_build: impl FnOnce(&str),
) -> Result<PathBuf, BuildError> {
    let packages = &environment.overrides.packages;
    let variable = |name: &str| around.variables.get(name).map(String::as_str);
    let cache = PackageCache::new(variable("XDG_CACHE_HOME"), around.home()).ok_or(PackagesError::NoCache)?;
    let known = if building == Building::Anew { None } else { cache.installed(packages, around) };
    match (known, engine) {
        (Some(venv), _) => Ok(venv),
        (None, Some(engine)) if building != Building::Never => {
            on_build(&format!("packages {}", packages.names.join(", ")));
            Ok(cache.install(engine, packages, around)?)
        }
        (None, _) => Err(BuildError::NoPackages { name: environment.name.clone() }),
    }
}

/// The project with its development shell, if the project uses it. `on_build` gets the project's path before the shell is built.
/// If building is not allowed, a shell that is not built yet is left out.
///
/// # Errors
/// The shell cannot be built or used.
pub fn build_project_shell(
    project: Option<Project>,
    builder: &NixBuilder,
    around: &Surroundings,
    building: Building,
    on_build: impl FnOnce(&str),
) -> Result<Option<Project>, BuildError> {
    let Some(mut project) = project else { return Ok(None) };
    if !project.use_flake {
        return Ok(Some(project));
    }
    let known = if building == Building::Anew { None } else { builder.described(&project.path) };
    let file = match (known, building) {
        (Some(file), _) => file,
        // The first call will build it.
        (None, Building::Never) => {
            builder.describes(&project.path)?;
            return Ok(Some(project));
        }
        (None, _) => {
            on_build(&project.path);
            builder.describe(&project.path)?
        }
    };
    let unusable = |problem: String| NixError::Shell { project: project.path.clone(), problem };
    let store = file.to_str().and_then(store_of).ok_or_else(|| unusable("its description is in no store".into()))?;
    // The link to it is in a cache directory that a run may have been able to write to.
    if contains_more(around.around(), &credentials_elsewhere(&around.homes), Path::new(&store)) {
        return Err(unusable(format!("{store} is no Nix store")).into());
    }
    let text = std::fs::metadata(&file)
        .ok()
        .filter(|about| about.is_file() && about.len() <= super::shell::LONGEST)
        .and_then(|_| std::fs::read(&file).ok())
        .ok_or_else(|| unusable("its description cannot be read, or is too long".into()))?;
    let shell = Shell::parse(&text, &store, |path| Path::new(path).is_dir()).map_err(&unusable)?;
    project.shell = Some(shell);
    Ok(Some(project))
}

/// The environment as known without building anything. If the existing build of its reference is unusable, it says so.
pub fn as_known(environment: &Environment, builder: &NixBuilder, around: &Surroundings) -> Environment {
    let builders = Builders { nix: builder, engine: None };
    match build_environment(environment.clone(), builders, around, Building::Never, |_| {}) {
        Ok((known, _)) if matches!(known.kind, EnvironmentKind::Broken(_)) => known,
        _ => environment.clone(),
    }
}
