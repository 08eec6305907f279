//! `cofferdam check`: validates policy files and profiles, and prints each as a complete policy, or its errors: all of a policy,
//! the first of a profile, because Nickel stops there.
//!
//! Exit code: 0 when all are valid, 1 when one is not, 125 when one cannot be read.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_engine::{Engine, ExpectedUse};
use cofferdam_policy::{Policy, PolicyErrors};
use cofferdam_profiles::protocol::{Encoding, OutputFormat, RequestedOutput};
use cofferdam_profiles::{CompileError, Id};
use serde::Serialize;

use crate::args;
use crate::call::policy_file::{error_of_other_document, read_text};
use crate::call::profile::{self, ProfileOptions};
use crate::caller::Caller;
use crate::output::stderr::{self, print_error, print_note};
use crate::output::stdout::{print, print_json};
use crate::output::text::paragraph;
use crate::refusal::{CliRefusal, REFUSED};

/// The arguments of `check`.
pub(super) fn command(command: Command) -> Command {
    args::profile::options(command, None)
        .about("Check policies and profiles: print each completed, or what is wrong with it")
        .after_help("Exit code: 0 when all are valid, 1 when one is not, 125 when one cannot be read.")
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON array"))
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .num_args(1..)
                .help("Policy as JSON, - for stdin; or a profile, with the ending .ncl"),
        )
}

/// The result for one file.
enum Checked {
    /// A policy. `true` when it has no program of its own and is a base for `run --policy`.
    Valid(Box<Policy>, bool),
    Invalid(PolicyErrors),
    Unreadable(std::io::Error),
    /// A profile that does not evaluate to a policy.
    NoPolicy(CompileError),
}

/// What `--json` prints per file.
#[derive(Serialize)]
struct CheckRow<'a> {
    file: &'a str,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<&'a PolicyErrors>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
}

impl<'a> CheckRow<'a> {
    fn of(file: &'a str, checked: &'a Checked) -> CheckRow<'a> {
        let row = CheckRow {
            file,
            valid: false,
            base_only: None,
            policy: None,
            errors: None,
            unreadable: None,
            refused: None,
        };
        match checked {
            Checked::Valid(policy, base) => {
                CheckRow { valid: true, base_only: Some(*base), policy: Some(policy), ..row }
            }
            Checked::Invalid(errors) => CheckRow { errors: Some(errors), ..row },
            Checked::Unreadable(error) => CheckRow { unreadable: Some(error.to_string()), ..row },
            Checked::NoPolicy(error) => CheckRow { refused: Some(&error.message), ..row },
        }
    }
}

/// Checks the files and returns the exit code.
pub(super) fn run(matches: &ArgMatches) -> Result<i32, CliRefusal> {
    let files: Vec<String> = matches.get_many("file").into_iter().flatten().cloned().collect();
    if let Some(file) = files.iter().find(|file| file.ends_with(".toml")) {
        let message = format!("{file} is a configuration by its name, and neither a policy nor a profile");
        return Err(CliRefusal::new("arguments", message).hint(format!("cofferdam environment check {file}")));
    }
    let as_json = matches.get_flag("json");
    let mut profiles = profiles(&files, matches)?.into_iter().peekable();
    let checked: Vec<(&String, Checked)> = files
        .iter()
        .map(|file| match profiles.next_if(|_| is_profile(file)) {
            Some(Ok(policy)) => (file, check_text(policy.as_bytes(), file)),
            Some(Err(error)) => (file, Checked::NoPolicy(error)),
            None => (file, check_one(file)),
        })
        .collect();
    let code = checked.iter().map(|(_, c)| match c {
        Checked::Valid(..) => 0,
        Checked::Invalid(_) => 1,
        Checked::NoPolicy(error) if error.refused => 1,
        Checked::Unreadable(_) | Checked::NoPolicy(_) => REFUSED,
    });
    let code = code.max().unwrap_or(0);
    if as_json {
        print_json(&checked.iter().map(|(file, checked)| CheckRow::of(file, checked)).collect::<Vec<_>>())?;
        return Ok(code);
    }
    for (file, checked) in checked {
        match checked {
            Checked::Valid(policy, base) => {
                print(&policy.to_json_pretty())?;
                if base {
                    let option = if is_profile(file) { "profile" } else { "policy" };
                    let hint = format!("cofferdam run --{option} {file} -- PROGRAM");
                    print_note(&format!("{file} has no program and is a base for others"), Some(&hint));
                }
            }
            Checked::Invalid(errors) => {
                let lines: Vec<String> = errors.0.iter().map(|e| paragraph(&format!("{file}: {e}"))).collect();
                stderr::write(&format!("{}\n", lines.join("\n")));
            }
            Checked::Unreadable(error) => {
                let id = error.kind() == std::io::ErrorKind::NotFound && Id::new(file).is_ok();
                let hint = id.then(|| {
                    format!(
                        "a stored profile is looked at with: cofferdam export {file}, or run --profile {file} --dry-run"
                    )
                });
                print_error(&format!("cannot read {file}: {error}"), hint.as_deref());
            }
            Checked::NoPolicy(error) => print_error(&error.message, error.hint.as_deref()),
        }
    }
    Ok(code)
}

fn is_profile(file: &str) -> bool {
    file.ends_with(".ncl")
}

/// The policies of those files that are profiles, all compiled by one evaluator.
fn profiles(files: &[String], matches: &ArgMatches) -> Result<Vec<Result<String, CompileError>>, CliRefusal> {
    let profiles: Vec<&Path> = files.iter().filter(|file| is_profile(file)).map(Path::new).collect();
    let options = ProfileOptions::of(matches)?;
    if profiles.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = vec![RequestedOutput { format: OutputFormat::Policy, encoding: Encoding::Json }];
    let asks: Vec<_> = profiles.iter().map(|file| options.ask(file, wanted.clone())).collect();
    let (caller, engine) = (Caller::observe()?, Engine::for_own_process(ExpectedUse::Anything));
    let answers = options.compiler(&engine, &caller).compile_all(&asks);
    let whose = profiles.iter().map(|file| file.to_str().unwrap_or_default());
    profile::warn(whose.zip(&answers).filter_map(|(file, answer)| Some((file, &answer.as_ref().ok()?.warnings[..]))));
    let answers = answers
        .into_iter()
        .map(|answer| answer?.outputs.remove(0).map_err(|message| CompileError { message, hint: None, refused: true }));
    Ok(answers.collect())
}

fn check_one(file: &str) -> Checked {
    let text = match read_text(file) {
        Ok(Ok(text)) => text,
        Ok(Err(errors)) => return Checked::Invalid(errors),
        Err(error) => return Checked::Unreadable(error),
    };
    check_text(&text, file)
}

fn check_text(text: &[u8], file: &str) -> Checked {
    match Policy::from_json(text) {
        Ok(policy) => Checked::Valid(Box::new(policy), false),
        Err(errors) => match Policy::decode(text) {
            Ok(policy) if policy.command.argv.is_empty() && errors.0.iter().all(|e| e.path == "$.command.argv") => {
                Checked::Valid(Box::new(policy), true)
            }
            // It may be meant as a base, which needs no program.
            _ => {
                Checked::Invalid(error_of_other_document(text, file).unwrap_or_else(|| without_missing_program(errors)))
            }
        },
    }
}

/// The errors without the one about a missing program, as long as there are others.
fn without_missing_program(mut errors: PolicyErrors) -> PolicyErrors {
    let missing = |e: &cofferdam_policy::PolicyError| e.path == "$.command.argv" && e.value == "[]";
    if !errors.0.iter().all(missing) {
        errors.0.retain(|e| !missing(e));
    }
    errors
}
