//! `cofferdam environment`: lists environments, shows the policy of one, checks definitions, and builds flake references.
//!
//! Exit code: 0; 1 when a definition is wrong; 125 when that cannot be determined. Starts no sandbox but the evaluator's.

mod build;
mod check;
mod list;
mod problems;
mod reload;
mod row;
mod show;
mod usable;

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_config::environments::Environments;

use crate::args;
use crate::args::config::config_option;
use crate::call::environment::surroundings;
use crate::caller::Caller;
use crate::refusal::CliRefusal;

const ACTIONS: &[&str] = &["list", "show", "check", "build", "reload"];

/// The arguments of `environment`.
pub(super) fn command(command: Command) -> Command {
    args::profile::options(command, None)
        .about("List, show, check, build or reload the environments that eval and mcp know")
        .override_usage("cofferdam environment [OPTIONS] <list | show NAME | check [FILE | DIR]... | build NAME | reload>")
        .after_help(
            "list: every environment, where it is defined, and whether a call of it would start here. show: what one of them comes \
             to, with the policy that code and options are added to. check: every mistake of the definitions that \
             hold here, or of a configuration FILE or an artifact's DIR; and of those that are right, which this host \
             refuses. build: builds the flake reference of one, \
             again if it was built before. reload: has every running server of yours read the definitions \
             again, and says what each answered.\n\nExit code: 0 when all is right, 1 when a definition is wrong or a server refuses it, 125 \
             when that cannot be found out.",
        )
        .arg(config_option())
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON value"))
        .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("List hidden definitions, too"))
        .arg(
            Arg::new("action")
                .value_name("ACTION")
                .required(true)
                .value_parser(ACTIONS.to_vec())
                .help("list, show, check, build or reload"),
        )
        .arg(Arg::new("what").value_name("NAME").num_args(0..).help("The environment; files or directories to check"))
}

/// Whether the call only reads definitions.
pub(super) fn only_reads(matches: &ArgMatches) -> bool {
    let action = matches.get_one::<String>("action").map_or("", String::as_str);
    matches!(action, "list" | "show" | "check")
}

/// Performs the action and returns the exit code.
pub(super) fn run(matches: &ArgMatches) -> Result<i32, CliRefusal> {
    let caller = &Caller::observe()?;
    let action = matches.get_one::<String>("action").map_or("", String::as_str);
    let what: Vec<&str> = matches.get_many::<String>("what").into_iter().flatten().map(String::as_str).collect();
    let configuration = matches.get_one::<String>("config").map(String::as_str);
    let around = surroundings(caller);
    let json = matches.get_flag("json");
    match (action, &what[..]) {
        ("list", []) => {
            let all = Environments::load(&around, configuration);
            list::list(&all, configuration, caller, json, matches.get_flag("all"))
        }
        ("check", []) => check::check_defined(&Environments::load(&around, configuration), caller, json),
        ("check", places) => check::check_places(places, &around, json),
        ("show", [name]) => show::show(name, configuration, matches, caller, json),
        ("build", [name]) => build::build(name, configuration, caller, json),
        ("reload", []) => reload::run(caller, json),
        ("reload", _) => Err(CliRefusal::new("arguments", "reload takes no name").hint("cofferdam environment reload")),
        ("list", _) => Err(CliRefusal::new("arguments", "list takes no name").hint("cofferdam environment show NAME")),
        _ => Err(CliRefusal::new("arguments", format!("{action} takes the name of one environment"))
            .hint("cofferdam environment list")),
    }
}
