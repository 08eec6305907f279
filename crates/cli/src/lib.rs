//! The `cofferdam` command as a library: its command line as data, and the one entry that `main` calls.
//!
//! ```text
//! command (clap) ─▶ call (arguments → policy) ─▶ execute (run, streams, signals) ─▶ exit code
//!     ▲                 ▲        ▲
//!  options, the table ──┘     environment ◀─ discover, chosen (what is defined besides)
//! ```
//!
//! Start-up decides the cold figure: one thread, nothing probed that the call does not need. No unsafe code.
#![forbid(unsafe_code)]

mod audit;
pub mod call;
pub mod caller;
mod check;
pub mod command;
mod doctor;
pub mod environment;
mod environment_command;
mod execute;
mod explain;
mod export;
mod hints;
mod install;
mod keep_changes;
mod mcp;
mod notes;
pub mod options;
mod output;
mod profile;
mod progress;
mod queries;
mod reload;
mod report;
pub mod resolve;
mod runner;
mod skill;
mod table;
mod terminal;
pub mod values;

use std::ffi::OsString;

use clap::error::ErrorKind;
use cofferdam_engine::{Engine, Expected};

use crate::caller::Caller;
use crate::command::{Extent, SUBCOMMANDS, build};
use crate::report::{CLOSED, REFUSED, print_error};
use crate::resolve::Building;

pub use crate::command::cli_command;
pub use crate::execute::{Presentation, exit_code};
pub use crate::report::Refusal;
pub use cofferdam_config::environments::discover;

/// Does what the arguments say, the program's own name first, and returns the exit code.
pub fn entry(arguments: Vec<OsString>) -> i32 {
    let json = wants_outcome(&arguments);
    let mut texts = Vec::with_capacity(arguments.len());
    for (index, argument) in arguments.into_iter().enumerate() {
        match caller::utf8(argument, &format!("argument {index}")) {
            Ok(text) => texts.push(text),
            Err(refusal) => return told(report(&refusal), json, &refusal),
        }
    }
    let subcommand = texts.get(1).map(String::as_str).filter(|name| SUBCOMMANDS.contains(name));
    // First of all: what it has to find out takes as long as reading the arguments, and needs none of them.
    let engine = matches!(subcommand, Some("run" | "eval")).then(|| Engine::for_own_process(expected(&texts)));
    let parsed = match subcommand {
        // Help and errors come from the whole command line; only then is it worth building.
        Some(name) => build(Extent::Only(name))
            .try_get_matches_from(&texts)
            .or_else(|_| build(Extent::All).try_get_matches_from(&texts)),
        None => build(Extent::All).try_get_matches_from(&texts),
    };
    let matches = match parsed {
        Ok(matches) => matches,
        Err(error) => return usage(&error, json, &texts),
    };
    let Some((name, matches)) = matches.subcommand() else { return usage_missing() };
    let result = match name {
        "run" | "eval" => {
            let engine = engine.unwrap_or_else(|| Engine::for_own_process(Expected::Anything));
            return sandbox(&engine.telling(progress::tell(matches.get_flag("quiet"))), matches, name == "eval");
        }
        "check" => {
            let files: Vec<String> = matches.get_many("file").into_iter().flatten().cloned().collect();
            check::check(&files, matches)
        }
        "environment" => Caller::observe().and_then(|caller| environment_command::run(matches, &caller)),
        "mcp" => Caller::observe().and_then(|caller| mcp::run(matches, &caller)),
        "skill" => skill::run(matches).or_else(|refusal| as_json(refusal, matches)),
        "audit" => Caller::observe()
            .and_then(|caller| audit::run(matches, &caller))
            .or_else(|refusal| as_json(refusal, matches)),
        "export" => Caller::observe()
            .and_then(|caller| export::export(matches, &caller, &Engine::for_own_process(Expected::Anything))),
        _ => Caller::observe().and_then(|caller| doctor::doctor(&caller, matches.get_flag("json"))),
    };
    result.unwrap_or_else(|refusal| ended(&refusal, only_reads(name, matches)))
}

/// A refusal of `skill` or `audit` as one line of JSON, in the form of a skill's faults, where that was asked for. A skill's
/// run has told its outcome itself.
fn as_json(refusal: Refusal, matches: &clap::ArgMatches) -> Result<i32, Refusal> {
    if !matches.get_flag("json") || refusal.step == "output" {
        return Err(refusal);
    }
    let mut fault = serde_json::json!({ "code": refusal.step, "message": refusal.message });
    if let Some(hint) = &refusal.hint {
        fault["hint"] = hint.as_str().into();
    }
    execute::print(&format!("{}\n", serde_json::json!({ "ok": false, "errors": [fault] }))).map(|()| refusal.code)
}

/// Whether a command does nothing but tell what is there.
fn only_reads(name: &str, matches: &clap::ArgMatches) -> bool {
    let action = || matches.get_one::<String>("action").map_or("", String::as_str);
    match name {
        "audit" => matches!(action(), "verify" | "show" | "tail"),
        "skill" => matches!(action(), "verify" | "list" | "show") || (action() == "run" && matches.get_flag("dry-run")),
        "environment" => matches!(action(), "list" | "show" | "check"),
        "check" | "doctor" => true,
        _ => false,
    }
}

/// The exit code of a refusal, which is told; but not that the reader of what was only read went away.
fn ended(refusal: &Refusal, reads: bool) -> i32 {
    if reads && refusal.code == CLOSED { CLOSED } else { report(refusal) }
}

/// Whether this looks like a run that takes a cgroup. A wrong guess costs a cgroup that goes unused.
fn expected(texts: &[String]) -> Expected {
    let mut ours = texts.iter().skip(2).take_while(|text| *text != "--");
    let other = ["--backend", "--dry-run", "--help", "-h"];
    match ours.any(|text| other.iter().any(|option| text.starts_with(option))) {
        true => Expected::Anything,
        false => Expected::Run,
    }
}

fn sandbox(engine: &Engine, matches: &clap::ArgMatches, eval: bool) -> i32 {
    let flag = |name| matches.get_flag(name);
    let presentation =
        Presentation { json: flag("json"), result: false, quiet: flag("quiet"), dry_run: flag("dry-run") };
    let result = Caller::observe().and_then(|caller| {
        let building = if presentation.dry_run { Building::Never } else { Building::WhenNeeded };
        let chosen = match eval {
            true => resolve::choose(matches, &caller, engine, building, presentation.quiet)?,
            false => None,
        };
        let base = match &chosen {
            Some(chosen) => chosen.base.clone(),
            None => profile::base(matches, &caller, engine, presentation.quiet)?,
        };
        let has_profile = base.is_some();
        let mut call = call::make_from(matches, eval, &caller, &discover::HostTree, base, chosen.as_ref())?;
        if has_profile && !eval {
            cofferdam_engine::python_name::python3(&mut call.policy);
        }
        execute::execute(engine, call, &caller, presentation)
    });
    result.unwrap_or_else(|refusal| {
        if presentation.json && refusal.step != "output" {
            if refusal.step == "environment" {
                report(&refusal); // as what the parser refuses: for the person who wrote the name
            }
            told(refusal.code, true, &refusal)
        } else {
            ended(&refusal, presentation.dry_run)
        }
    })
}

/// Whether the arguments of a run ask for one JSON object, before they could be read as a whole: behind `--`, and
/// nowhere else for certain, they are the program's.
fn wants_outcome(arguments: &[OsString]) -> bool {
    let ours = || arguments.iter().skip(1).take_while(|argument| *argument != "--");
    ours().next().is_some_and(|first| first == "run" || first == "eval" || first == "--json")
        && ours().any(|argument| argument == "--json")
}

/// The exit code of a refusal, after its outcome as JSON where that was asked for: whoever asked for one object gets one,
/// whatever happened.
fn told(code: i32, json: bool, refusal: &Refusal) -> i32 {
    if json {
        let presentation = execute::Presentation { json, ..execute::Presentation::default() };
        if let Err(unwritten) = execute::told(refusal, presentation) {
            return report(&unwritten);
        }
    }
    code
}

fn report(refusal: &Refusal) -> i32 {
    print_error(&refusal.message, refusal.hint.as_deref());
    if refusal.code == CLOSED { REFUSED } else { refusal.code }
}

fn usage(error: &clap::Error, json: bool, words: &[String]) -> i32 {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match execute::print(&text) {
            Ok(()) => 0,
            Err(refusal) => ended(&refusal, true),
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            report::write_stderr(&text);
            told(REFUSED, json, &Refusal::new("arguments", "no command was given").hint("cofferdam --help"))
        }
        _ => {
            let refusal = hints::refusal(error, words.get(1..).unwrap_or_default());
            report(&refusal);
            report::write_stderr(&format!("{}\n", report::paragraph(&hints::usage_of(error))));
            told(REFUSED, json, &refusal)
        }
    }
}

fn usage_missing() -> i32 {
    print_error("no command was given", Some("cofferdam --help"));
    REFUSED
}
