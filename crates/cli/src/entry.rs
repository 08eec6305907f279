//! The entry of the command: parses the arguments, performs the subcommand, and returns the exit code.
//!
//! The time of a cold start is decided here: one thread, and nothing is probed that the call does not need.

use std::ffi::OsString;

use clap::ArgMatches;
use clap::error::ErrorKind;
use cofferdam_engine::{Engine, ExpectedUse};

use crate::args::typing_mistakes;
use crate::caller;
use crate::commands::{self, Extent, build};
use crate::outcome::refusal_report::{exit_code_after, report, report_unless_closed};
use crate::output::stderr::{self, print_error};
use crate::output::stdout::print;
use crate::output::text::paragraph;
use crate::refusal::{CliRefusal, REFUSED};

/// Performs the call that the arguments describe, the program's own name first, and returns the exit code.
pub fn entry(arguments: Vec<OsString>) -> i32 {
    let json = wants_outcome(&arguments);
    let mut texts = Vec::with_capacity(arguments.len());
    for (index, argument) in arguments.into_iter().enumerate() {
        match caller::utf8(argument, &format!("argument {index}")) {
            Ok(text) => texts.push(text),
            Err(refusal) => return exit_code_after(report(&refusal), json, &refusal),
        }
    }
    if texts.len() == 2 && texts[1] == "version" {
        texts[1] = "--version".into();
    }
    let named = texts.get(1).and_then(|name| commands::find(name));
    // First of all: what the engine has to find out takes as long as parsing, and does not depend on it.
    let engine = named.filter(|named| named.engine_first).map(|_| Engine::for_own_process(expected(&texts)));
    let parsed = match named {
        // Help and errors come from the whole command line; only then is it worth building.
        Some(named) => build(Extent::Only(named.name))
            .try_get_matches_from(&texts)
            .or_else(|_| build(Extent::All).try_get_matches_from(&texts)),
        None => build(Extent::All).try_get_matches_from(&texts),
    };
    let matches = match parsed {
        Ok(matches) => matches,
        Err(error) => return usage(&error, json, &texts),
    };
    let subcommand = matches.subcommand().and_then(|(name, matches)| Some((commands::find(name)?, matches)));
    let Some((subcommand, matches)) = subcommand else { return usage_missing() };
    if let Some(refusal) = empty_path(matches) {
        return exit_code_after(report(&refusal), json, &refusal);
    }
    (subcommand.run)(matches, engine)
        .unwrap_or_else(|refusal| report_unless_closed(&refusal, (subcommand.only_reads)(matches)))
}

/// Whether this looks like a run that needs a cgroup. After a wrong guess, a cgroup was made for nothing.
fn expected(texts: &[String]) -> ExpectedUse {
    let mut ours = texts.iter().skip(2).take_while(|text| *text != "--");
    let other = ["--backend", "--dry-run", "--help", "-h"];
    match ours.any(|text| other.iter().any(|option| text.starts_with(option))) {
        true => ExpectedUse::Anything,
        false => ExpectedUse::Run,
    }
}

/// Whether the arguments of a run ask for one JSON object. Asked before they are parsed: behind `--`, and nowhere else for
/// certain, they are the program's.
fn wants_outcome(arguments: &[OsString]) -> bool {
    let ours = || arguments.iter().skip(1).take_while(|argument| *argument != "--");
    ours().next().is_some_and(|first| first == "run" || first == "eval" || first == "agent" || first == "--json")
        && ours().any(|argument| argument == "--json")
}

/// Prints help, or the parser's error with a hint, and returns the exit code.
fn usage(error: &clap::Error, json: bool, words: &[String]) -> i32 {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match print(&text) {
            Ok(()) => 0,
            Err(refusal) => report_unless_closed(&refusal, true),
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            stderr::write(&text);
            let refusal = CliRefusal::new("arguments", "no command was given").hint("cofferdam --help");
            exit_code_after(REFUSED, json, &refusal)
        }
        _ => {
            let refusal = typing_mistakes::refusal(error, words.get(1..).unwrap_or_default(), &commands::names());
            report(&refusal);
            stderr::write(&format!("{}\n", paragraph(&typing_mistakes::usage_of(error))));
            exit_code_after(REFUSED, json, &refusal)
        }
    }
}

/// The arguments that are paths. As a path an empty text is the working directory, which `--profiles "$STORE"` with an unset
/// variable does not mean.
const PATHS: &[&str] = &[
    "allow-import",
    "audit-trail",
    "config",
    "dir",
    "file",
    "input",
    "keep-changes",
    "key",
    "output",
    "policy",
    "profile",
    "profiles",
    "registry",
    "token-file",
    "what",
];

/// Refuses a path that is empty.
fn empty_path(matches: &ArgMatches) -> Option<CliRefusal> {
    let is_empty = |id: &&&str| {
        let values = matches.try_get_raw(id).ok().flatten();
        values.is_some_and(|mut values| values.any(std::ffi::OsStr::is_empty))
    };
    let id = PATHS.iter().find(is_empty)?;
    let (named, example) = match *id {
        "what" => ("the argument".to_owned(), "a path or name".to_owned()),
        id => (format!("--{id}"), format!("--{id} PATH, or leave it out for the default")),
    };
    Some(
        CliRefusal::new("arguments", format!("the value of {named} is empty"))
            .hint(format!("{example}; a variable of the shell that is not set is empty")),
    )
}

fn usage_missing() -> i32 {
    print_error("no command was given", Some("cofferdam --help"));
    REFUSED
}
