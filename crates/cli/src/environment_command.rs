//! `cofferdam environment`: lists what is defined, shows what one comes to, checks definitions, builds references.
//!
//! Exit code: 0; 1 when a definition is wrong; 125 when nothing can be told. Starts no sandbox but the evaluator's.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_config::environments::{
    CodeInput, Environment, Environments, Kind, Problem, Project, Surroundings, apply, artifact, as_known, spec,
};
use cofferdam_engine::{Engine, Expected};
use cofferdam_policy::{Policy, text};
use serde::Serialize;

use crate::caller::Caller;
use crate::execute::{print, print_json};
use crate::profile;
use crate::report::{Refusal, paragraph, print_note, printable, write_stderr};
use crate::resolve::{self, Building, surroundings, unusable};

/// What can be done with environments.
const ACTIONS: &[&str] = &["list", "show", "check", "build", "reload"];

/// The option that names the configuration file.
pub fn config_option() -> Arg {
    Arg::new("config").long("config").value_name("FILE").help("The configuration that defines environments").long_help(
        "The configuration that defines environments. Default: $COFFERDAM_CONFIG, $NIX_SANDBOX_CONFIG, \
             ~/.config/cofferdam/config.toml, or /etc/cofferdam/config.toml",
    )
}

/// The command line of `environment`.
pub fn command(command: Command) -> Command {
    crate::profile::options(command, None)
        .about("List, show, check, build or reload the environments that eval and mcp know")
        .override_usage("cofferdam environment [OPTIONS] <list | show NAME | check [FILE | DIR]... | build NAME | reload>")
        .after_help(
            "list: every environment, where it is defined, and whether a call of it would start here. show: what one of them comes \
             to, with the policy that code and options are added to. check: every mistake of the definitions that \
             hold here, or of a configuration FILE or an artifact's DIR; and of those that are right, which this host \
             refuses. build: builds the flake reference of one, \
             again if it was built before. reload: has every running server of yours read the definitions \
             again, and says what each answered.\n\nExit code: 0 when all is right, 1 when a definition is wrong or a server refuses it, 125 \
             when nothing can be told.",
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

/// Does what is asked for, and returns the exit code.
pub fn run(matches: &ArgMatches, caller: &Caller) -> Result<i32, Refusal> {
    let action = matches.get_one::<String>("action").map_or("", String::as_str);
    let what: Vec<&str> = matches.get_many::<String>("what").into_iter().flatten().map(String::as_str).collect();
    let configuration = matches.get_one::<String>("config").map(String::as_str);
    let around = surroundings(caller);
    let json = matches.get_flag("json");
    match (action, &what[..]) {
        ("list", []) => {
            let all = Environments::load(&around, configuration);
            list(&all, configuration, caller, json, matches.get_flag("all"))
        }
        ("check", []) => check_all(&Environments::load(&around, configuration), caller, json),
        ("check", places) => check(places, &around, json),
        ("show", [name]) => show(name, configuration, matches, caller, json),
        ("build", [name]) => build(name, configuration, caller, json),
        ("reload", []) => crate::reload::run(caller, json),
        ("reload", _) => Err(Refusal::new("arguments", "reload takes no name").hint("cofferdam environment reload")),
        ("list", _) => Err(Refusal::new("arguments", "list takes no name").hint("cofferdam environment show NAME")),
        _ => Err(Refusal::new("arguments", format!("{action} takes the name of one environment"))
            .hint("cofferdam environment list")),
    }
}

/// Why nothing that is defined is used while there are mistakes which are not about one environment alone.
fn refused(configuration: Option<&str>) -> String {
    format!("what defines environments has mistakes, so no name is used: {}", resolve::command("check", configuration))
}

/// One definition, as `--json` prints it.
#[derive(Serialize)]
struct Row<'e> {
    name: &'e str,
    kind: &'e str,
    source: &'e str,
    place: &'e str,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether it is a definition with mistakes.
    broken: bool,
    /// Of a flake reference: whether it was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    built: Option<bool>,
    /// Of a profile: whether it was evaluated for this answer. What it is not known to require, a call may be refused for.
    #[serde(skip_serializing_if = "Option::is_none")]
    evaluated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'e str>,
    /// The stronger definition of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden_by: Option<&'e str>,
}

/// What a row is made with: whose call it would be, and on which engine.
struct Host<'h> {
    caller: &'h Caller,
    engine: &'h Engine,
    project: Option<&'h Project>,
    /// Whether profiles are evaluated.
    evaluates: bool,
}

impl<'e> Row<'e> {
    fn of(one: &'e Environment, all: Option<&'e Environments>, host: &Host<'_>) -> Row<'e> {
        let caller = host.caller;
        let built = match &one.kind {
            Kind::Reference(reference) | Kind::Flake { reference, .. } => {
                Some(resolve::builder(caller).built(reference).is_some())
            }
            _ => None,
        };
        let evaluated = matches!(one.kind, Kind::Profile { .. }).then_some(host.evaluates);
        let reason = one.unavailable().or_else(|| match &one.kind {
            Kind::Reference(_) => as_known(one, &resolve::builder(caller), &surroundings(caller)).unavailable(),
            _ => None,
        });
        // What nothing is known of yet is neither built nor evaluated for a list.
        let known = built != Some(false) && evaluated != Some(false);
        let reason = reason.or_else(|| if known { host.refusal(one) } else { None });
        Row {
            name: &one.name,
            kind: one.kind.word(),
            source: one.rank.word(),
            place: &one.place,
            available: reason.is_none(),
            broken: matches!(one.kind, Kind::Broken(_)),
            reason,
            built,
            evaluated,
            description: one.description(),
            hidden_by: all.and_then(|all| all.hidden_by(one)).map(|stronger| stronger.place.as_str()),
        }
    }

    /// As eval and the server do while something that defines environments cannot be relied upon.
    fn refuse(&mut self, configuration: Option<&str>) {
        self.available = false;
        self.reason = Some(self.reason.take().filter(|_| self.broken).unwrap_or_else(|| refused(configuration)));
    }

    fn state(&self) -> &'static str {
        match (self.broken, self.available, self.built) {
            (true, ..) => "broken",
            (_, false, _) => "unavailable",
            (_, _, Some(false)) => "not built yet",
            _ if self.evaluated == Some(false) => "not evaluated",
            _ => "ready",
        }
    }
}

impl Host<'_> {
    /// Why a call of it is refused here, by the way that a call goes, with the hint as a line of its own.
    fn refusal(&self, one: &Environment) -> Option<String> {
        let Refusal { message, hint, .. } = resolve::usable(one, self.project, self.caller, self.engine).err()?;
        let hint = hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        Some(message + &hint)
    }
}

/// Most characters of a description in a table.
const LONGEST: usize = 200;

fn list(
    all: &Environments,
    configuration: Option<&str>,
    caller: &Caller,
    json: bool,
    hidden: bool,
) -> Result<i32, Refusal> {
    let engine = Engine::for_own_process(Expected::Anything);
    let host = Host { caller, engine: &engine, project: all.project.as_ref(), evaluates: false };
    let mut rows: Vec<Row<'_>> = Vec::new();
    for one in all.all().iter().filter(|one| hidden || all.hidden_by(one).is_none()) {
        rows.push(Row::of(one, Some(all), &host));
    }
    if !all.problems.is_empty() {
        rows.iter_mut().for_each(|row| row.refuse(configuration));
    }
    if json {
        print_json(&rows)?;
    } else {
        print(&printable(&table(&rows)))?;
    }
    tell(all);
    Ok(if all.problems.is_empty() { 0 } else { 1 })
}

fn table(rows: &[Row<'_>]) -> String {
    let width = |of: fn(&Row<'_>) -> usize, least: &str| rows.iter().map(of).max().unwrap_or(0).max(least.len());
    let (name, source) = (width(|row| row.name.len(), "NAME"), width(|row| row.source.len(), "SOURCE"));
    let line = |a: &str, b: &str, c: &str, d: &str, e: &str| {
        let (a, c) = (text::one_line(a), text::one_line(c));
        format!("{a:<name$}  {b:<7}  {c:<source$}  {d:<13}  {e}").trim_end().to_owned() + "\n"
    };
    let mut table = line("NAME", "KIND", "SOURCE", "STATE", "DESCRIPTION");
    for row in rows {
        let state = if row.hidden_by.is_some() { "hidden" } else { row.state() };
        // Whoever made an artifact wrote its description, and a row is one line.
        let description = text::short(row.description.unwrap_or_default(), LONGEST);
        table.push_str(&line(row.name, row.kind, row.source, state, &description));
        for reason in row.reason.iter().flat_map(|reason| reason.lines()) {
            table.push_str(&format!("{:name$}  {}\n", "", text::one_line(reason)));
        }
    }
    table
}

/// What stands beside the definitions, on standard error.
fn tell(all: &Environments) {
    for warning in &all.warnings {
        print_note(&format!("warning: {warning}"), None);
    }
    lines(&all.problems);
}

fn lines(problems: &[Problem]) {
    let text: String = problems.iter().map(|problem| paragraph(&problem.to_string()) + "\n").collect();
    write_stderr(&text);
}

/// What `check --json` prints.
#[derive(Serialize)]
struct Checked {
    place: String,
    key: String,
    problem: String,
    accepted: String,
}

fn report(problems: &[Problem], json: bool) -> Result<i32, Refusal> {
    if json {
        let checked = |one: &Problem| {
            let one = one.clone();
            Checked { place: one.place, key: one.key, problem: one.problem, accepted: one.accepted }
        };
        print_json(&problems.iter().map(checked).collect::<Vec<_>>())?;
    } else {
        lines(problems);
    }
    Ok(if problems.is_empty() { 0 } else { 1 })
}

fn mistakes(all: &Environments) -> Vec<Problem> {
    let broken = all.all().iter().filter_map(|one| match &one.kind {
        Kind::Broken(problems) => Some(problems.as_slice()),
        _ => None,
    });
    all.problems.iter().chain(broken.flatten()).cloned().collect()
}

fn warn(all: &Environments) {
    for warning in &all.warnings {
        print_note(&format!("warning: {warning}"), None);
    }
}

fn check_all(all: &Environments, caller: &Caller, json: bool) -> Result<i32, Refusal> {
    let mut problems = mistakes(all);
    let (builder, around) = (resolve::builder(caller), surroundings(caller));
    for one in all.all().iter().filter(|one| matches!(one.kind, Kind::Reference(_))) {
        if let Kind::Broken(found) = as_known(one, &builder, &around).kind {
            problems.extend(found);
        }
    }
    warn(all);
    let code = report(&problems, json)?;
    if code == 0 && !json {
        let engine = Engine::for_own_process(Expected::Anything);
        let host = Host { caller, engine: &engine, project: all.project.as_ref(), evaluates: false };
        let mut unusable = 0;
        for one in all.in_force() {
            let Row { reason: Some(reason), .. } = Row::of(one, None, &host) else { continue };
            let (message, hint) = reason.split_once("\nhint: ").map_or((&*reason, None), |(m, h)| (m, Some(h)));
            print_note(&format!("warning: `{}` ({}) cannot be used here: {message}", one.name, one.place), hint);
            unusable += 1;
        }
        let but = if unusable == 0 { String::new() } else { format!(", of which {unusable} cannot be used here") };
        print(&format!("{}{but}\n", right(all.in_force().count())))?;
    }
    Ok(code)
}

fn right(count: usize) -> String {
    if count == 1 { "1 environment is right".into() } else { format!("{count} environments are right") }
}

/// Checks files and directories by themselves, without what else is defined here.
fn check(places: &[&str], around: &Surroundings, json: bool) -> Result<i32, Refusal> {
    let (mut problems, mut count) = (Vec::new(), 0);
    for place in places {
        let path = std::path::Path::new(&around.cwd).join(place);
        if path.is_dir() {
            problems.extend(artifact(&path, None, &around.homes, &around.store()).err().unwrap_or_default());
            count += 1;
            continue;
        }
        let of_file = Environments::of_file(place, around);
        warn(&of_file);
        problems.extend(mistakes(&of_file));
        count += of_file.all().len();
    }
    let code = report(&problems, json)?;
    if code == 0 && !json {
        print(&format!("{}\n", right(count)))?;
    }
    Ok(code)
}

/// What `show` prints.
#[derive(Serialize)]
struct Shown<'e> {
    #[serde(flatten)]
    row: Row<'e>,
    /// How code goes in.
    #[serde(skip_serializing_if = "Option::is_none")]
    passing: Option<String>,
    /// What code and options are added to.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Policy>,
}

fn show(
    name: &str,
    configuration: Option<&str>,
    matches: &ArgMatches,
    caller: &Caller,
    json: bool,
) -> Result<i32, Refusal> {
    let (environment, project) = resolve::find(name, configuration, &surroundings(caller))?;
    let (environment, built) = match resolve::ready(environment.clone(), caller, Building::Never, false) {
        Ok(ready) => ready,
        Err(unbuilt) if matches!(environment.kind, Kind::Reference(_) | Kind::Flake { .. }) => {
            print_note(&unbuilt.message, unbuilt.hint.as_deref());
            (environment, None)
        }
        Err(refusal) => return Err(refusal),
    };
    let engine = Engine::for_own_process(Expected::Anything);
    // What was evaluated with options of this call's own says nothing of a call without them.
    let options = ["set", "allow-import", "trust-profile"];
    let evaluates = !options.iter().any(|option| matches.value_source(option) == Some(ValueSource::CommandLine));
    let host = Host { caller, engine: &engine, project: project.as_ref(), evaluates };
    let mut shown = Shown { row: Row::of(&environment, None, &host), passing: None, policy: None };
    if let Ok(recipe) = spec(&environment, built.as_deref()) {
        let mut policy = match &environment.kind {
            Kind::Profile { file, .. } => profile::of_file(matches, caller, &engine, false, file)?.policy,
            _ => Policy::base(),
        };
        let variable = |name: &str| caller.variable(name).map(str::to_owned);
        let project = resolve::developed(project.clone(), caller, Building::Never, false).unwrap_or_else(|unable| {
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

fn build(name: &str, configuration: Option<&str>, caller: &Caller, json: bool) -> Result<i32, Refusal> {
    let (environment, project) = resolve::find(name, configuration, &surroundings(caller))?;
    if !matches!(environment.kind, Kind::Reference(_) | Kind::Flake { .. }) {
        if let Some(reason) = environment.unavailable() {
            return Err(unusable(name, &environment, &reason, configuration));
        }
        return Err(Refusal::new(
            "arguments",
            format!("the environment `{name}` is no flake reference: there is nothing to build"),
        ));
    }
    let (environment, built) = resolve::ready(environment, caller, Building::Anew, false)?;
    spec(&environment, built.as_deref()).map_err(|reason| unusable(name, &environment, &reason, configuration))?;
    if json {
        let engine = Engine::for_own_process(Expected::Anything);
        let host = Host { caller, engine: &engine, project: project.as_ref(), evaluates: false };
        print_json(&Row::of(&environment, None, &host))?;
    }
    Ok(0)
}
