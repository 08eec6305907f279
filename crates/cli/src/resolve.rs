//! What the ENVIRONMENT of an `eval` means: a preset, a definition of that name, or an artifact by its path.
//!
//! ```text
//! PATH/ ─▶ artifact      NAME ─ plain preset ─▶ nothing to read      NAME ─ definitions ─▶ build, compile ─▶ Chosen
//! ```
//!
//! A preset that nothing redefines costs some looks at where definitions would be. Decides nothing about what is safe:
//! what is chosen ends in a policy, which is validated as any other.

use std::path::PathBuf;

use clap::ArgMatches;
pub use cofferdam_config::environments::nix::Building;
use cofferdam_config::environments::nix::{Builder, NixError, cache_directory};
use cofferdam_config::environments::{
    self, BuildError, Environment, EnvironmentSpec, Environments, Found, Kind, PRESETS, Project, Rank, Surroundings,
    in_definition, spec,
};
use cofferdam_engine::Engine;
use cofferdam_policy::text;

use crate::call::{Base, make_from};
use crate::caller::Caller;
use crate::command::{Extent, build};
use crate::discover::HostTree;
use crate::hints;
use crate::profile;
use crate::report::{Refusal, print_note};

/// A defined environment, ready to be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Its name, or the path that was given.
    pub name: String,
    /// What it sets.
    pub recipe: EnvironmentSpec,
    /// The directory that it shows.
    pub project: Option<Project>,
    /// The policy of its profile.
    pub base: Option<Base>,
}

/// What definitions depend on, of this caller.
pub fn surroundings(caller: &Caller) -> Surroundings {
    let (variables, homes) = (caller.variables.clone(), caller.homes.clone());
    Surroundings { variables, cwd: caller.cwd.clone(), homes, system: PathBuf::from("/etc") }
}

/// What an `eval` names; `None` for a preset that works without a definition.
pub fn choose(
    matches: &ArgMatches,
    caller: &Caller,
    engine: &Engine,
    building: Building,
    quiet: bool,
) -> Result<Option<Chosen>, Refusal> {
    let name = matches.get_one::<String>("environment").map_or("", String::as_str);
    let configuration = matches.get_one::<String>("config").map(String::as_str);
    let around = surroundings(caller);
    if configuration.is_none() && around.is_plain(name) {
        return Ok(None);
    }
    let (environment, project) = find(name, configuration, &around)?;
    enter(matches, caller, engine, building, quiet, environment, project)
}

/// The environment as the call of these arguments enters it; `None` for a preset that nothing redefines.
fn enter(
    matches: &ArgMatches,
    caller: &Caller,
    engine: &Engine,
    building: Building,
    quiet: bool,
    mut environment: Environment,
    project: Option<Project>,
) -> Result<Option<Chosen>, Refusal> {
    let name = matches.get_one::<String>("environment").map_or("", String::as_str);
    // What an artifact needs of it has to be granted: by the definition, or by the caller.
    environment.overrides.nesting |= matches.get_flag("nested-sandboxes");
    if environment.rank == Rank::Preset {
        return Ok(None);
    }
    if let Some(option) = ["policy", "profile"].into_iter().find(|option| matches.contains_id(option)) {
        let told = format!("--{option} and the environment `{name}` would both be what the call starts from");
        return Err(Refusal::new("arguments", told)
            .hint("leave one out: options change what an environment allows, and run takes any interpreter"));
    }
    let (environment, built) = ready(environment, caller, building, quiet)?;
    let project = developed(project, caller, building, quiet)?;
    let configuration = matches.get_one::<String>("config").map(String::as_str);
    let recipe =
        spec(&environment, built.as_deref()).map_err(|reason| unusable(name, &environment, &reason, configuration))?;
    let base = match &environment.kind {
        Kind::Profile { file, .. } => Some(profile::of_file(matches, caller, engine, quiet, file)?),
        _ => None,
    };
    Ok(Some(Chosen { name: name.to_owned(), recipe, project, base }))
}

/// Why this host refuses a call of the environment, which goes the way of `eval` up to where a sandbox would start. The
/// hint is in terms of the definition. Builds nothing.
///
/// # Errors
/// It cannot be used here.
pub fn usable(
    environment: &Environment,
    project: Option<&Project>,
    caller: &Caller,
    engine: &Engine,
) -> Result<(), Refusal> {
    let words = ["cofferdam", "eval", environment.name.as_str(), ""];
    let parsed = build(Extent::Only("eval")).try_get_matches_from(words);
    let parsed = parsed.map_err(|error| Refusal::new("arguments", error.to_string()))?;
    let matches = parsed.subcommand_matches("eval").expect("the words name this subcommand");
    let project = project.cloned();
    let refused = |mut refusal: Refusal| {
        refusal.hint = refusal.hint.map(|hint| in_definition(environment, refusal.step, &hint));
        refusal
    };
    let chosen =
        enter(matches, caller, engine, Building::Never, true, environment.clone(), project).map_err(refused)?;
    let base = chosen.as_ref().and_then(|chosen| chosen.base.clone());
    let call = make_from(matches, true, caller, &HostTree, base, chosen.as_ref()).map_err(refused)?;
    engine.prepare(&call.policy).map(drop).map_err(|failure| {
        let hint = failure.hint.map(|hint| in_definition(environment, &failure.step, &hint));
        Refusal { hint, ..Refusal::new("environment", failure.message) }
    })
}

/// The environment of a name, or at a path; and the project that it shows.
pub fn find(
    name: &str,
    configuration: Option<&str>,
    around: &Surroundings,
) -> Result<(Environment, Option<Project>), Refusal> {
    let all = Environments::load(around, configuration);
    if name.contains('/') {
        // A mistake elsewhere is no reason to refuse what was named in full, unless it is about what would be shown.
        let project = all.project.filter(|_| all.problems.is_empty());
        return Ok((Environments::at_path(name, around), project));
    }
    if !all.problems.is_empty() {
        let lines: Vec<String> = all.problems.iter().map(|problem| format!("\n  {problem}")).collect();
        let told = format!("what defines environments has mistakes, and `{name}` may not mean what it should:");
        return Err(Refusal::new("environment", told + &lines.concat())
            .hint(format!("correct it, and look at it with: {}", command("check", configuration))));
    }
    match all.find(name) {
        Found::Environment(found) => Ok((found.clone(), all.project)),
        Found::Unknown => Err(unknown(name, &all, configuration)),
    }
}

/// The command line about what is defined in this configuration.
pub fn command(action: &str, configuration: Option<&str>) -> String {
    let option = configuration.map(|file| format!(" --config {}", hints::quoted(file))).unwrap_or_default();
    format!("cofferdam environment {action}{option}")
}

fn unknown(name: &str, all: &Environments, configuration: Option<&str>) -> Refusal {
    let names: Vec<&str> = all.in_force().map(|one| one.name.as_str()).collect();
    let refusal = Refusal::new("environment", format!("no environment is called {}", text::name(name)));
    match hints::environment(name) {
        Some(hint) => refusal.hint(hint),
        None => refusal.hint(format!(
            "there are {}; an artifact is named by a path with a slash in it; {} says more",
            names.join(", "),
            command("list", configuration)
        )),
    }
}

/// The environment with what its reference was built into: a checked artifact, or the directory of a package.
pub fn ready(
    environment: Environment,
    caller: &Caller,
    building: Building,
    quiet: bool,
) -> Result<(Environment, Option<PathBuf>), Refusal> {
    let name = environment.name.clone();
    let begins = |reference: &str| {
        if !quiet {
            print_note(&format!("building the environment `{name}` from {reference}, once"), None);
        }
    };
    environments::build_environment(environment, &builder(caller), &surroundings(caller), building, begins)
        .map_err(unbuilt)
}

/// The project with the development shell of its flake, where that is used.
pub fn developed(
    project: Option<Project>,
    caller: &Caller,
    building: Building,
    quiet: bool,
) -> Result<Option<Project>, Refusal> {
    let begins = |path: &str| {
        if !quiet {
            print_note(&format!("building the development shell of {path}, once"), None);
        }
    };
    environments::build_project_shell(project, &builder(caller), &surroundings(caller), building, begins)
        .map_err(unbuilt)
}

/// What builds references for this caller.
pub fn builder(caller: &Caller) -> Builder {
    let home = caller.homes.first().map(String::as_str);
    Builder::new(caller.variable("PATH"), cache_directory(caller.variable("XDG_CACHE_HOME"), home))
}

fn unbuilt(error: BuildError) -> Refusal {
    match error {
        BuildError::Nix(error) => of_nix(&error),
        other => Refusal::new("environment", other.to_string()).split_hint(),
    }
}

fn of_nix(error: &NixError) -> Refusal {
    let mut told = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        // Before a hint, which ends the message.
        let at = told.find("\nhint: ").unwrap_or(told.len());
        told.insert_str(at, &format!(": {source}"));
    }
    Refusal::new("environment", told).split_hint()
}

/// Why it cannot be used; `configuration` is the one that the call names.
pub fn unusable(name: &str, environment: &Environment, reason: &str, configuration: Option<&str>) -> Refusal {
    let lines = reason.replace('\n', "\n  ");
    let place = &environment.place;
    let broken = matches!(environment.kind, Kind::Broken(_));
    let what = if broken { "is not whole" } else { "is not available" };
    let refusal = Refusal::new("environment", format!("the environment `{name}` ({place}) {what}: {lines}"));
    let check = match environment.rank {
        Rank::CommandLine => format!("cofferdam environment check {}", hints::quoted(name)),
        _ => command("check", configuration),
    };
    if broken { refusal.hint(format!("correct it, and look at it with: {check}")) } else { refusal }
}

/// Whether a word of the command line can only be a preset's name.
pub fn is_preset(word: &str) -> bool {
    PRESETS.contains(&word)
}
