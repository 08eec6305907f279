//! `cofferdam doctor`: reports what this host can enforce, the evidence for it, and the commands that would provide the rest.
//!
//! Exit code: 0 when a backend can run here, 1 when none can. Changes nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_engine::backends::containers::{Found, found};
use cofferdam_engine::{Applied, Engine, Mechanism, Strength, Support};
use cofferdam_policy::Policy;
use serde::Serialize;

use crate::call::defaults::run_defaults;
use crate::caller::Caller;
use crate::failure::is_root;
use crate::output::stdout::{print, print_json};
use crate::output::text::printable;
use crate::refusal::Refusal;

/// The arguments of `doctor`.
pub fn command(command: Command) -> Command {
    command
        .about("Show what this host can enforce, and how to get the rest")
        .after_help("Exit code: 0 when a backend can hold the default policy in full or in part, 1 when none can run.")
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object"))
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    /// Whether any backend can run here.
    usable: bool,
    mechanisms: &'a [Mechanism],
    /// The container runtimes of this host.
    containers: &'a [Found],
    /// The support of each backend for the default policy of `run` and of `eval`.
    support: BTreeMap<&'a str, &'a Vec<Support>>,
}

/// Prints the report and returns the exit code.
pub fn run(matches: &ArgMatches) -> Result<i32, Refusal> {
    let caller = Caller::observe()?;
    let engine = Engine::probe();
    let mechanisms = engine.mechanisms();
    let mut of_run = run_defaults(&caller, true);
    let mut of_eval = Policy::base();
    for policy in [&mut of_run, &mut of_eval] {
        policy.command.argv = vec!["true".into()];
    }
    let support = [("run", engine.support(&of_run)), ("eval", engine.support(&of_eval))];
    let usable = support.iter().any(|(_, backends)| backends.iter().any(|b| b.unavailable.is_none()));
    if matches.get_flag("json") {
        let support: BTreeMap<&str, &Vec<Support>> = support.iter().map(|(name, s)| (*name, s)).collect();
        print_json(&Report { usable, mechanisms: &mechanisms, containers: &found(), support })?;
    } else {
        let mut text = table(&mechanisms);
        text.push_str(&runtimes(&found()));
        let mut seen = Seen::new();
        for (command, backends) in &support {
            write!(text, "\nThe default policy of `{command}`:\n").expect("a String takes every write");
            backends.iter().for_each(|backend| text.push_str(&summary(backend, command, &mechanisms, &mut seen)));
        }
        print(&printable(&text))?;
    }
    Ok(if usable { 0 } else { 1 })
}

fn table(mechanisms: &[Mechanism]) -> String {
    let width = mechanisms.iter().map(|m| m.name.len()).max().unwrap_or(0).max("MECHANISM".len());
    let mut text = format!("{:<width$}  AVAILABLE  EVIDENCE\n", "MECHANISM");
    let mut seen = Seen::new();
    for mechanism in mechanisms {
        let available = if mechanism.available { "yes" } else { "no" };
        let blank = " ".repeat(width + 13);
        text.push_str(&format!("{:<width$}  {available:<9}  {}\n", mechanism.name, mechanism.evidence));
        text.push_str(&format!("{blank}gives: {}\n", mechanism.gives));
        if let Some(command) = &mechanism.enable {
            let command = once(&mut seen, command, mechanism.name);
            text.push_str(&format!("{blank}enable: {command}\n"));
        }
    }
    text
}

/// A reason with the evidence of a mechanism, and the command that enables it, replaced by the mechanism's name: the table
/// of mechanisms has both.
fn shortened(reason: &str, mechanisms: &[Mechanism]) -> String {
    let mut text = reason.to_owned();
    for mechanism in mechanisms {
        let Some(enable) = &mechanism.enable else { continue };
        text = text.replace(&format!("{}; {enable}", mechanism.evidence), &format!("see {}", mechanism.name));
    }
    text
}

/// The container runtimes of this host; empty where there is none.
fn runtimes(found: &[Found]) -> String {
    let mut text = String::new();
    for runtime in found {
        let head = if text.is_empty() { "\nWhat makes containers:\n" } else { "" };
        let Found { backend, version, place, detail, .. } = runtime;
        write!(text, "{head}  {backend}: version {version}, {}\n    {detail}\n", place.display())
            .expect("a String takes every write");
    }
    text
}

/// The reasons that are printed already, each with the command and backend that it was printed for.
type Seen = BTreeMap<String, String>;

/// A reason, or a reference to the place where it is printed already.
fn once(seen: &mut Seen, reason: &str, of: &str) -> String {
    match seen.get(reason) {
        Some(before) => format!("as for {before}"),
        None => {
            seen.insert(reason.to_owned(), of.to_owned());
            reason.to_owned()
        }
    }
}

fn summary(support: &Support, command: &str, mechanisms: &[Mechanism], seen: &mut Seen) -> String {
    let mut text = format!("  {}: ", support.backend);
    let of = format!("`{command}`, {}", support.backend);
    if let Some(failure) = &support.unavailable {
        // Where only the root view of the policy is wrong, this host lacks nothing.
        let what = if is_root(failure) { "not with this root" } else { "cannot run" };
        let hint = failure.hint.as_ref().map_or_else(String::new, |hint| format!("\n    hint: {hint}"));
        let why = once(seen, &format!("{}{hint}", failure.message), &of);
        text.push_str(&format!("{what}: {why}\n"));
        return text;
    }
    let with = |strength| support.fields.iter().filter(move |(_, a)| a.strength == strength);
    let full = with(Strength::Full).count();
    text.push_str(&format!("{full} of {} fields in full\n", support.fields.len()));
    for (word, strength) in [("partial", Strength::Partial), ("none", Strength::None)] {
        // Fields with the same reason share a line, in their order.
        let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
        for (field, Applied { reason, .. }) in with(strength) {
            match groups.iter_mut().find(|(why, _)| why == reason) {
                Some((_, fields)) => fields.push(field.to_string()),
                None => groups.push((reason, vec![field.to_string()])),
            }
        }
        for (reason, fields) in groups {
            let reason = once(seen, &shortened(reason, mechanisms), &of);
            text.push_str(&format!("    {word} {}: {reason}\n", fields.join(", ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::Field;

    use super::*;

    #[test]
    fn reason_is_printed_once() {
        let applied = |strength, reason: &str| Applied { strength, reason: reason.into() };
        let support = |backend| Support {
            backend,
            unavailable: None,
            fields: [
                (Field::Memory, applied(Strength::Partial, "no cgroup")),
                (Field::Processes, applied(Strength::Partial, "no cgroup")),
                (Field::CpuTime, applied(Strength::None, "sampled")),
                (Field::WallTime, applied(Strength::Full, "clock")),
            ]
            .into(),
        };
        let mut seen = Seen::new();
        let first = summary(&support("jail"), "run", &[], &mut seen);
        let names = format!("{}, {}", Field::Memory, Field::Processes);
        assert!(first.contains(&format!("    partial {names}: no cgroup\n")), "{first}");
        let second = summary(&support("landlock"), "run", &[], &mut seen);
        assert!(second.contains(&format!("    partial {names}: as for `run`, jail\n")), "{second}");
        assert_eq!(format!("{first}{second}").matches("no cgroup").count(), 1);
    }
}
