//! `cofferdam environment check`: every mistake of the definitions, and which environments cannot be used here.

use std::path::Path;

use cofferdam_config::environments::{
    DefinitionProblem, EnvironmentKind, Environments, Surroundings, artifact, as_known,
};
use cofferdam_engine::{Engine, ExpectedUse};
use serde::Serialize;

use super::problems::{mistakes, print_problems, print_warnings};
use super::row::{self, CallHost};
use crate::call::environment::{builder, surroundings};
use crate::caller::Caller;
use crate::output::stderr::print_note;
use crate::output::stdout::{print, print_json};
use crate::refusal::CliRefusal;

/// Checks all definitions that are in force, and whether each could be used here.
pub(super) fn check_defined(all: &Environments, caller: &Caller, json: bool) -> Result<i32, CliRefusal> {
    let mut problems = mistakes(all);
    let (builder, around) = (builder(caller), surroundings(caller));
    for one in all.all().iter().filter(|one| matches!(one.kind, EnvironmentKind::Reference(_))) {
        if let EnvironmentKind::Broken(found) = as_known(one, &builder, &around).kind {
            problems.extend(found);
        }
    }
    print_warnings(all);
    let code = report(&problems, json)?;
    if code == 0 && !json {
        let engine = Engine::for_own_process(ExpectedUse::Anything);
        let host = CallHost { caller, engine: &engine, project: all.project.as_ref(), evaluates: false };
        let mut unusable = 0;
        for one in all.in_force() {
            let row::EnvironmentRow { reason: Some(reason), .. } = row::EnvironmentRow::of(one, None, &host) else {
                continue;
            };
            let (message, hint) = reason.split_once("\nhint: ").map_or((&*reason, None), |(m, h)| (m, Some(h)));
            print_note(&format!("warning: `{}` ({}) cannot be used here: {message}", one.name, one.place), hint);
            unusable += 1;
        }
        let but = if unusable == 0 { String::new() } else { format!(", of which {unusable} cannot be used here") };
        print(&format!("{}{but}\n", count_of_right(all.in_force().count())))?;
    }
    Ok(code)
}

/// Checks files and directories by themselves, without the other definitions.
pub(super) fn check_places(places: &[&str], around: &Surroundings, json: bool) -> Result<i32, CliRefusal> {
    let (mut problems, mut count) = (Vec::new(), 0);
    for place in places {
        let path = Path::new(&around.cwd).join(place);
        if path.is_dir() {
            problems.extend(artifact(&path, None, &around.homes, &around.store()).err().unwrap_or_default());
            count += 1;
            continue;
        }
        let of_file = Environments::of_file(place, around);
        print_warnings(&of_file);
        problems.extend(mistakes(&of_file));
        count += of_file.all().len();
    }
    let code = report(&problems, json)?;
    if code == 0 && !json {
        print(&format!("{}\n", count_of_right(count)))?;
    }
    Ok(code)
}

/// A mistake as `check --json` prints it.
#[derive(Serialize)]
struct ProblemRow {
    place: String,
    key: String,
    problem: String,
    accepted: String,
}

/// Prints the mistakes and returns the exit code.
fn report(problems: &[DefinitionProblem], json: bool) -> Result<i32, CliRefusal> {
    if json {
        let row = |one: &DefinitionProblem| {
            let one = one.clone();
            ProblemRow { place: one.place, key: one.key, problem: one.problem, accepted: one.accepted }
        };
        print_json(&problems.iter().map(row).collect::<Vec<_>>())?;
    } else {
        print_problems(problems);
    }
    Ok(if problems.is_empty() { 0 } else { 1 })
}

fn count_of_right(count: usize) -> String {
    if count == 1 { "1 environment is right".into() } else { format!("{count} environments are right") }
}
