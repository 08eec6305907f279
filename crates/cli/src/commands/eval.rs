//! `cofferdam eval`: runs code in an environment.
//!
//! Exit code: as of `run`.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgMatches, Command};
use cofferdam_config::environments::discover::HostTree;
use cofferdam_engine::{Engine, ExpectedUse};

use crate::args::config::config_option;
use crate::args::help::{EXAMPLES, defaults};
use crate::args::option::Heading;
use crate::args::sandbox;
use crate::call::environment::{self, Building};
use crate::call::{self, preset, profile};
use crate::caller::Caller;
use crate::execute::execute;
use crate::outcome::presentation::Presentation;
use crate::outcome::refusal_report;
use crate::output::progress;
use crate::refusal::CliRefusal;

/// Accepts any name, because the parser does not know which environments are defined. Completions suggest the presets.
#[derive(Clone)]
struct EnvironmentName;

impl TypedValueParser for EnvironmentName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(preset::NAMES.iter().map(PossibleValue::new)))
    }
}

/// The arguments of `eval`.
pub(super) fn command(command: Command, full: bool) -> Command {
    let command =
        sandbox::arguments(command, full)
            .about("Run code in an environment (python, shell, node, ...); CODE - is standard input")
            .override_usage("cofferdam eval [OPTIONS] ENVIRONMENT [CODE | -] [-- ARGS...]")
            .arg(
                Arg::new("file")
                    .long("file")
                    .value_name("FILE")
                    .conflicts_with("code")
                    .help_heading(Heading::Program.title())
                    .help("Run this file, at its own path"),
            )
            .arg(
                Arg::new("environment")
                    .value_name("ENVIRONMENT")
                    .required(true)
                    .value_parser(EnvironmentName)
                    .hide_possible_values(true)
                    .hide_short_help(true)
                    .long_help(
                        "python, shell or node; the name of a defined environment (cofferdam environment list); or an \
                     artifact's directory, as a path with a slash in it",
                    ),
            )
            .arg(config_option().help_heading(Heading::Program.title()).hide_short_help(true))
            .arg(Arg::new("code").value_name("CODE").hide_short_help(true).long_help(
                "Code to run; - reads it from standard input; an interactive session when left out with -it",
            ))
            .arg(
                Arg::new("args")
                    .value_name("ARGS")
                    .last(true)
                    .num_args(0..)
                    .hide_short_help(true)
                    .long_help("Arguments for the code"),
            );
    if full { command.after_long_help(format!("{}\n{EXAMPLES}", defaults("minimal"))) } else { command }
}

/// Runs the code and returns the exit code.
pub(super) fn run(matches: &ArgMatches, engine: Option<Engine>) -> Result<i32, CliRefusal> {
    let presentation = Presentation::of_sandbox(matches);
    let engine = engine
        .unwrap_or_else(|| Engine::for_own_process(ExpectedUse::Anything))
        .on_progress(progress::reporter(presentation.quiet));
    let result = Caller::observe().and_then(|caller| {
        let building = if presentation.dry_run { Building::Never } else { Building::WhenNeeded };
        let resolved = environment::resolve(matches, &caller, &engine, building, presentation.quiet)?;
        let base = match &resolved {
            Some(resolved) => resolved.base.clone(),
            None => profile::base(matches, &caller, &engine, presentation.quiet)?,
        };
        let call = call::from_base(matches, true, &caller, &HostTree, base, resolved.as_ref())?;
        execute(&engine, call, &caller, presentation)
    });
    result.or_else(|refusal| refusal_report::refused_run(refusal, presentation))
}
