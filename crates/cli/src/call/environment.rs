//! Resolves the ENVIRONMENT of an `eval`: a preset, a definition of that name, or an artifact by its path.
//!
//! ```text
//! PATH/ ─▶ artifact      NAME ─ plain preset ─▶ nothing to read      NAME ─ definitions ─▶ build, compile ─▶ Resolved
//! ```
//!
//! A preset that is not redefined costs only a look at the places of definitions. Decides nothing about what is safe: the
//! result becomes a policy, which is validated like any other.

use std::path::PathBuf;

use clap::ArgMatches;
pub use cofferdam_config::environments::nix::Building;
use cofferdam_config::environments::nix::{NixBuilder, NixError, cache_directory};
use cofferdam_config::environments::{
    self, BuildError, Builders, Environment, EnvironmentKind, EnvironmentLookup, EnvironmentSpec, Environments,
    Project, Rank, Surroundings, spec,
};
use cofferdam_engine::Engine;
use cofferdam_policy::text;

use super::policy_file::BasePolicy;
use super::profile;
use crate::args::typing_mistakes;
use crate::caller::Caller;
use crate::output::stderr::print_note;
use crate::output::text::quoted;
use crate::refusal::CliRefusal;

/// A defined environment that is built, and whose profile is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedEnvironment {
    /// Its name, or the path that the call gives.
    pub name: String,
    /// What it sets.
    pub recipe: EnvironmentSpec,
    /// The directory that it shows.
    pub project: Option<Project>,
    /// The policy of its profile.
    pub base: Option<BasePolicy>,
}

/// The caller's side of what definitions depend on.
pub fn surroundings(caller: &Caller) -> Surroundings {
    let (variables, homes) = (caller.variables.clone(), caller.homes.clone());
    Surroundings { variables, cwd: caller.cwd.clone(), homes, system: PathBuf::from("/etc") }
}

/// The environment that the arguments of an `eval` name; `None` for a preset that is not redefined.
///
/// # Errors
/// There is no such environment, or it cannot be used.
pub fn resolve(
    matches: &ArgMatches,
    caller: &Caller,
    engine: &Engine,
    building: Building,
    quiet: bool,
) -> Result<Option<ResolvedEnvironment>, CliRefusal> {
    let name = matches.get_one::<String>("environment").map_or("", String::as_str);
    let configuration = matches.get_one::<String>("config").map(String::as_str);
    let around = surroundings(caller);
    if configuration.is_none() && around.is_plain(name) {
        return Ok(None);
    }
    let (environment, project) = find(name, configuration, &around)?;
    resolve_found(matches, caller, engine, building, quiet, environment, project)
}

/// A definition that was found, for a call with these arguments; `None` for a preset that is not redefined.
///
/// # Errors
/// It cannot be used.
pub(crate) fn resolve_found(
    matches: &ArgMatches,
    caller: &Caller,
    engine: &Engine,
    building: Building,
    quiet: bool,
    mut environment: Environment,
    project: Option<Project>,
) -> Result<Option<ResolvedEnvironment>, CliRefusal> {
    let name = matches.get_one::<String>("environment").map_or("", String::as_str);
    // An artifact that needs nested sandboxes gets them only from its definition or from the caller.
    environment.overrides.nesting |= matches.get_flag("nested-sandboxes");
    if environment.rank == Rank::Preset {
        return Ok(None);
    }
    if let Some(option) = ["policy", "profile"].into_iter().find(|option| matches.contains_id(option)) {
        let message = format!("--{option} and the environment `{name}` would both be what the call starts from");
        return Err(CliRefusal::new("arguments", message)
            .hint("leave one out: options change what an environment allows, and run takes any interpreter"));
    }
    let (environment, built) = built(environment, caller, Some(engine), building, quiet)?;
    let project = with_shell(project, caller, building, quiet)?;
    let configuration = matches.get_one::<String>("config").map(String::as_str);
    let recipe =
        spec(&environment, built.as_deref()).map_err(|reason| unusable(name, &environment, &reason, configuration))?;
    let base = match &environment.kind {
        EnvironmentKind::Profile { file, .. } => Some(profile::of_file(matches, caller, engine, quiet, file)?),
        _ => None,
    };
    Ok(Some(ResolvedEnvironment { name: name.to_owned(), recipe, project, base }))
}

/// The environment of a name or at a path, and the project that it shows.
///
/// # Errors
/// There is none, or the definitions have mistakes.
pub fn find(
    name: &str,
    configuration: Option<&str>,
    around: &Surroundings,
) -> Result<(Environment, Option<Project>), CliRefusal> {
    let all = Environments::load(around, configuration);
    if name.contains('/') {
        // A mistake elsewhere does not concern an environment that is named by its path, but the project may be wrong then.
        protect(&all)?;
        let project = all.project.filter(|_| all.problems.is_empty());
        return Ok((Environments::at_path(name, around), project));
    }
    if !all.problems.is_empty() {
        let lines: Vec<String> = all.problems.iter().map(|problem| format!("\n  {problem}")).collect();
        let message = format!("what defines environments has mistakes, and `{name}` may not mean what it should:");
        return Err(CliRefusal::new("environment", message + &lines.concat())
            .hint(format!("correct it, and look at it with: {}", command_line("check", configuration))));
    }
    protect(&all)?;
    match all.find(name) {
        EnvironmentLookup::Environment(found) => Ok((found.clone(), all.project)),
        EnvironmentLookup::Unknown => Err(unknown(name, &all, configuration)),
    }
}

/// Keeps what decides about environments from being written by their code.
fn protect(all: &Environments) -> Result<(), CliRefusal> {
    let hint = "access = \"cow\" under [project]; or give the file one name: cp FILE COPY && mv COPY FILE";
    all.protect().map_err(|why| CliRefusal::new("environment", why).hint(hint))
}

/// The command line of `cofferdam environment` with this action and configuration, for hints.
pub(crate) fn command_line(action: &str, configuration: Option<&str>) -> String {
    let option = configuration.map(|file| format!(" --config {}", quoted(file))).unwrap_or_default();
    format!("cofferdam environment {action}{option}")
}

fn unknown(name: &str, all: &Environments, configuration: Option<&str>) -> CliRefusal {
    let names: Vec<&str> = all.in_force().map(|one| one.name.as_str()).collect();
    let refusal = CliRefusal::new("environment", format!("no environment is called {}", text::name(name)));
    let similar = cofferdam_policy::closest(name, names.iter().copied());
    match typing_mistakes::environment(name).or_else(|| similar.map(|name| format!("did you mean `{name}`"))) {
        Some(hint) => refusal.hint(hint),
        None => refusal.hint(format!(
            "there are {}; an artifact is named by a path with a slash in it; {} says more",
            names.join(", "),
            command_line("list", configuration)
        )),
    }
}

/// The environment with the result of building its reference: a checked artifact, or the directory of a package.
///
/// # Errors
/// It cannot be built, or `building` forbids it.
pub fn built(
    environment: Environment,
    caller: &Caller,
    engine: Option<&Engine>,
    building: Building,
    quiet: bool,
) -> Result<(Environment, Option<PathBuf>), CliRefusal> {
    let name = environment.name.clone();
    let begins = |reference: &str| {
        if !quiet {
            print_note(&format!("building the environment `{name}` from {reference}, once"), None);
        }
    };
    let builders = Builders { nix: &builder(caller), engine };
    environments::build_environment(environment, builders, &surroundings(caller), building, begins).map_err(unbuilt)
}

/// The project with the development shell of its flake, where that is used.
///
/// # Errors
/// It cannot be built, or `building` forbids it.
pub(crate) fn with_shell(
    project: Option<Project>,
    caller: &Caller,
    building: Building,
    quiet: bool,
) -> Result<Option<Project>, CliRefusal> {
    let begins = |path: &str| {
        if !quiet {
            print_note(&format!("building the development shell of {path}, once"), None);
        }
    };
    environments::build_project_shell(project, &builder(caller), &surroundings(caller), building, begins)
        .map_err(unbuilt)
}

/// The builder of flake references for this caller.
pub fn builder(caller: &Caller) -> NixBuilder {
    let home = caller.homes.first().map(String::as_str);
    NixBuilder::new(caller.variable("PATH"), home, cache_directory(caller.variable("XDG_CACHE_HOME"), home))
}

fn unbuilt(error: BuildError) -> CliRefusal {
    match error {
        BuildError::Nix(error) => nix_refusal(&error),
        other => CliRefusal::new("environment", other.to_string()).split_hint(),
    }
}

fn nix_refusal(error: &NixError) -> CliRefusal {
    let mut message = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        // The cause goes before a hint, which ends the message.
        let at = message.find("\nhint: ").unwrap_or(message.len());
        message.insert_str(at, &format!(": {source}"));
    }
    CliRefusal::new("environment", message).split_hint()
}

/// The refusal of an environment that cannot be used, for this reason. `configuration` is the one that the call names.
pub fn unusable(name: &str, environment: &Environment, reason: &str, configuration: Option<&str>) -> CliRefusal {
    let lines = reason.replace('\n', "\n  ");
    let place = &environment.place;
    let broken = matches!(environment.kind, EnvironmentKind::Broken(_));
    let what = if broken { "is not whole" } else { "is not available" };
    let refusal = CliRefusal::new("environment", format!("the environment `{name}` ({place}) {what}: {lines}"));
    let check = match environment.rank {
        Rank::CommandLine => format!("cofferdam environment check {}", quoted(name)),
        _ => command_line("check", configuration),
    };
    if broken { refusal.hint(format!("correct it, and look at it with: {check}")) } else { refusal }
}
