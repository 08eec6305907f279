//! `cofferdam run`: runs a program in a sandbox.
//!
//! Exit code: the program's own, or the one that `outcome::presentation` gives the outcome.

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_config::environments::discover::HostTree;
use cofferdam_engine::{Engine, ExpectedUse, python_name};

use crate::args::help::{EXAMPLES, defaults};
use crate::args::option::Heading;
use crate::args::sandbox;
use crate::call::{self, profile};
use crate::caller::Caller;
use crate::execute::execute;
use crate::outcome::presentation::Presentation;
use crate::outcome::refusal_report;
use crate::output::progress;
use crate::refusal::CliRefusal;

/// The arguments of `run`.
pub(super) fn command(command: Command, full: bool) -> Command {
    let command = sandbox::arguments(command, full)
        .about("Run a program in a sandbox")
        .override_usage("cofferdam run [OPTIONS] [--] PROGRAM [ARGS]...")
        .arg(
            Arg::new("for")
                .long("for")
                .value_name("TOOL")
                .action(ArgAction::Append)
                .help_heading(Heading::Program.title())
                .help("What a tool needs, such as npm, pip or cargo")
                .long_help(
                    "What a tool needs: npm, pip, cargo, make, go, maven, gradle, browser, jupyter or agent. A preset stands for \
                     options, which --dry-run prints and docs/presets.md lists; options of the command line win. What the tool \
                     keeps, such as a cache, goes with the run, but for --cache",
                ),
        )
        .arg(
            Arg::new("cache")
                .long("cache")
                .action(ArgAction::SetTrue)
                .help_heading(Heading::Program.title())
                .hide_short_help(true)
                .help("Keep the caches of the tools of --for between runs in this directory")
                .long_help(
                    "Keep the caches of the tools of --for between runs in this directory, and in no other: each directory has \
                     its own, in ~/.cache/cofferdam-caches",
                ),
        )
        // One argument for both: if PROGRAM were an argument of its own, options right behind it would be parsed as ours.
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .num_args(0..)
                .trailing_var_arg(true)
                .hide_short_help(true)
                .long_help("Program to run and its arguments, options included; the policy file's own when left out"),
        );
    if full { command.after_long_help(format!("{}\n{EXAMPLES}", defaults("host"))) } else { command }
}

/// Runs the program and returns the exit code.
pub(super) fn run(matches: &ArgMatches, engine: Option<Engine>) -> Result<i32, CliRefusal> {
    let presentation = Presentation::of_sandbox(matches);
    let engine = engine
        .unwrap_or_else(|| Engine::for_own_process(ExpectedUse::Anything))
        .on_progress(progress::reporter(presentation.quiet));
    let result = Caller::observe().and_then(|caller| {
        let base = profile::base(matches, &caller, &engine, presentation.quiet)?;
        let has_profile = base.is_some();
        let mut call = call::from_base(matches, false, &caller, &HostTree, base, None)?;
        if has_profile {
            python_name::python3(&mut call.policy);
        }
        if let Some(caches) = call.kept_caches.as_ref().filter(|_| !presentation.dry_run) {
            caches.make()?;
        }
        execute(&engine, call, &caller, presentation)
    });
    result.or_else(|refusal| refusal_report::refused_run(refusal, presentation))
}
