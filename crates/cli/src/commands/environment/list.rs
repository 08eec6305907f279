//! `cofferdam environment list`: a table of all definitions.

use cofferdam_config::environments::Environments;
use cofferdam_engine::{Engine, ExpectedUse};
use cofferdam_policy::text;

use super::problems::{print_problems, print_warnings};
use super::row::{CallHost, EnvironmentRow};
use crate::caller::Caller;
use crate::output::stdout::{print, print_json};
use crate::output::text::printable;
use crate::refusal::CliRefusal;

/// Most characters of a description in the table.
const LONGEST: usize = 200;

/// Prints the definitions, with `hidden` also those that a stronger one hides.
pub(super) fn list(
    all: &Environments,
    configuration: Option<&str>,
    caller: &Caller,
    json: bool,
    hidden: bool,
) -> Result<i32, CliRefusal> {
    let engine = Engine::for_own_process(ExpectedUse::Anything);
    let host = CallHost { caller, engine: &engine, project: all.project.as_ref(), evaluates: false };
    let mut rows: Vec<EnvironmentRow<'_>> = Vec::new();
    for one in all.all().iter().filter(|one| hidden || all.hidden_by(one).is_none()) {
        rows.push(EnvironmentRow::of(one, Some(all), &host));
    }
    if !all.problems.is_empty() {
        rows.iter_mut().for_each(|row| row.refuse(configuration));
    }
    if json {
        print_json(&rows)?;
    } else {
        print(&printable(&table(&rows)))?;
    }
    print_warnings(all);
    print_problems(&all.problems);
    Ok(if all.problems.is_empty() { 0 } else { 1 })
}

fn table(rows: &[EnvironmentRow<'_>]) -> String {
    let width =
        |of: fn(&EnvironmentRow<'_>) -> usize, least: &str| rows.iter().map(of).max().unwrap_or(0).max(least.len());
    let (name, source) = (width(|row| row.name.len(), "NAME"), width(|row| row.source.len(), "SOURCE"));
    let line = |a: &str, b: &str, c: &str, d: &str, e: &str| {
        let (a, c) = (text::one_line(a), text::one_line(c));
        format!("{a:<name$}  {b:<7}  {c:<source$}  {d:<13}  {e}").trim_end().to_owned() + "\n"
    };
    let mut table = line("NAME", "KIND", "SOURCE", "STATE", "DESCRIPTION");
    for row in rows {
        let state = if row.hidden_by.is_some() { "hidden" } else { row.state() };
        // An artifact's author wrote its description, and a row is one line.
        let description = text::short(row.description.unwrap_or_default(), LONGEST);
        table.push_str(&line(row.name, row.kind, row.source, state, &description));
        for reason in row.reason.iter().flat_map(|reason| reason.lines()) {
            table.push_str(&format!("{:name$}  {}\n", "", text::one_line(reason)));
        }
    }
    table
}
