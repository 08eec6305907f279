//! `cofferdam environment show`: one definition, and the policy that code and options are added to.

use clap::ArgMatches;
use clap::parser::ValueSource;
use cofferdam_config::environments::{CodeInput, EnvironmentKind, apply, spec};
use cofferdam_engine::{Engine, ExpectedUse};
use cofferdam_policy::{Policy, text};
use serde::Serialize;

use super::row::{CallHost, EnvironmentRow};
use crate::call::environment::{self, Building, surroundings};
use crate::call::profile;
use crate::caller::Caller;
use crate::output::stderr::print_note;
use crate::output::stdout::{print, print_json};
use crate::output::text::printable;
use crate::refusal::CliRefusal;

/// The output of `show --json`.
#[derive(Serialize)]
struct ShownEnvironment<'e> {
    #[serde(flatten)]
    row: EnvironmentRow<'e>,
    /// How code reaches the interpreter.
    #[serde(skip_serializing_if = "Option::is_none")]
    passing: Option<String>,
    /// The policy to which code and options are added.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Policy>,
}

/// Prints an environment, and the policy of its calls.
pub(super) fn show(
    name: &str,
    configuration: Option<&str>,
    matches: &ArgMatches,
    caller: &Caller,
    json: bool,
) -> Result<i32, CliRefusal> {
    let (found, project) = environment::find(name, configuration, &surroundings(caller))?;
    let (one, built) = match environment::built(found.clone(), caller, None, Building::Never, false) {
        Ok(built) => built,
        Err(unbuilt) if found.is_built() => {
            print_note(&unbuilt.message, unbuilt.hint.as_deref());
            (found, None)
        }
        Err(refusal) => return Err(refusal),
    };
    let engine = Engine::for_own_process(ExpectedUse::Anything);
    // A profile that is evaluated with options of this call says nothing about a call without them.
    let options = ["set", "allow-import", "trust-profile"];
    let evaluates = !options.iter().any(|option| matches.value_source(option) == Some(ValueSource::CommandLine));
    let host = CallHost { caller, engine: &engine, project: project.as_ref(), evaluates };
    let mut shown = ShownEnvironment { row: EnvironmentRow::of(&one, None, &host), passing: None, policy: None };
    if let Ok(recipe) = spec(&one, built.as_deref()) {
        let mut policy = match &one.kind {
            EnvironmentKind::Profile { file, .. } => profile::of_file(matches, caller, &engine, false, file)?.policy,
            _ => Policy::base(),
        };
        let variable = |name: &str| caller.variable(name).map(str::to_owned);
        let project =
            environment::with_shell(project.clone(), caller, Building::Never, false).unwrap_or_else(|unable| {
                print_note(&unable.message, unable.hint.as_deref());
                project
            });
        apply(&mut policy, &recipe, project.as_ref(), &caller.homes, variable);
        shown.passing = Some(match &recipe.code_input {
            CodeInput::Preset(name) => format!("as the preset {name} takes it"),
            CodeInput::Image(name) => format!("as the preset {name} takes it, to the image's own"),
            CodeInput::Words { argv, .. } => format!("to the interpreter: {}", argv.join(" ")),
            CodeInput::Program(program) => format!("on the standard input of {program}"),
            CodeInput::Own => "to the command of its profile".to_owned(),
        });
        shown.policy = Some(policy);
    }
    let broken = shown.row.broken;
    if json {
        print_json(&shown)?;
    } else {
        let mut text = String::new();
        let mut line = |key: &str, value: &str| text.push_str(&format!("{key:<12}{}\n", text::one_line(value)));
        line("name", shown.row.name);
        line("kind", shown.row.kind);
        line("source", &format!("{}: {}", shown.row.source, shown.row.place));
        line("state", shown.row.state());
        for reason in shown.row.reason.iter().flat_map(|reason| reason.lines()) {
            line("reason", reason);
        }
        shown.row.description.into_iter().for_each(|description| line("description", description));
        shown.passing.iter().for_each(|passing| line("code goes", passing));
        if let Some(policy) = &shown.policy {
            text.push_str(&policy.to_json_pretty());
        }
        print(&printable(&text))?;
    }
    Ok(if broken { 1 } else { 0 })
}
