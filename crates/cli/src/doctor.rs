//! `cofferdam doctor`: what this host can enforce, how that is known, and the command that would provide the rest.
//!
//! Exit code: 0 when a backend can run here, 1 when none can. Changes nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cofferdam_engine::backends::container::{Found, found};
use cofferdam_engine::{Applied, Engine, Mechanism, Strength, Support};
use cofferdam_policy::{Field, Policy};
use serde::Serialize;

use crate::call::run_defaults;
use crate::caller::Caller;
use crate::execute::{print, print_json};
use crate::report::{Refusal, printable};

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    /// Whether any backend can run here.
    usable: bool,
    mechanisms: &'a [Mechanism],
    /// What makes containers here.
    containers: &'a [Found],
    /// Per backend, for the default policy of each command.
    support: BTreeMap<&'a str, &'a Vec<Support>>,
}

/// Prints the report and returns the exit code.
pub fn doctor(caller: &Caller, as_json: bool) -> Result<i32, Refusal> {
    let engine = Engine::probe();
    let mechanisms = engine.mechanisms();
    let mut run = run_defaults(caller, true);
    let mut eval = Policy::base();
    for policy in [&mut run, &mut eval] {
        policy.command.argv = vec!["true".into()];
    }
    let support = [("run", engine.support(&run)), ("eval", engine.support(&eval))];
    let usable = support.iter().any(|(_, backends)| backends.iter().any(|b| b.unavailable.is_none()));
    if as_json {
        let support: BTreeMap<&str, &Vec<Support>> = support.iter().map(|(name, s)| (*name, s)).collect();
        print_json(&Report { usable, mechanisms: &mechanisms, containers: &found(), support })?;
    } else {
        let mut text = table(&mechanisms);
        text.push_str(&makers(&found()));
        let mut said = Said::new();
        for (command, backends) in &support {
            write!(text, "\nThe default policy of `{command}`:\n").expect("a String takes every write");
            backends.iter().for_each(|backend| text.push_str(&summary(backend, command, &mechanisms, &mut said)));
        }
        print(&printable(&text))?;
    }
    Ok(if usable { 0 } else { 1 })
}

fn table(mechanisms: &[Mechanism]) -> String {
    let width = mechanisms.iter().map(|m| m.name.len()).max().unwrap_or(0).max("MECHANISM".len());
    let mut text = format!("{:<width$}  AVAILABLE  EVIDENCE\n", "MECHANISM");
    let mut said = Said::new();
    for mechanism in mechanisms {
        let available = if mechanism.available { "yes" } else { "no" };
        let blank = " ".repeat(width + 13);
        text.push_str(&format!("{:<width$}  {available:<9}  {}\n", mechanism.name, mechanism.evidence));
        text.push_str(&format!("{blank}gives: {}\n", mechanism.gives));
        if let Some(command) = &mechanism.enable {
            let command = once(&mut said, command, mechanism.name);
            text.push_str(&format!("{blank}enable: {command}\n"));
        }
    }
    text
}

/// A reason without what the table of mechanisms says already: the name of the mechanism stands for its evidence and the
/// way to enable it.
fn beside_table(reason: &str, mechanisms: &[Mechanism]) -> String {
    let mut text = reason.to_owned();
    for mechanism in mechanisms {
        let Some(enable) = &mechanism.enable else { continue };
        text = text.replace(&format!("{}; {enable}", mechanism.evidence), &format!("see {}", mechanism.name));
    }
    text
}

/// Who makes containers here; nothing where nobody does.
fn makers(found: &[Found]) -> String {
    let mut text = String::new();
    for maker in found {
        let head = if text.is_empty() { "\nWhat makes containers:\n" } else { "" };
        let Found { backend, version, place, detail, .. } = maker;
        write!(text, "{head}  {backend}: version {version}, {}\n    {detail}\n", place.display())
            .expect("a String takes every write");
    }
    text
}

/// What was said, and of which backend: one reason is said once.
type Said = BTreeMap<String, String>;

/// A reason, or where it was said before.
fn once(said: &mut Said, reason: &str, of: &str) -> String {
    match said.get(reason) {
        Some(before) => format!("as for {before}"),
        None => {
            said.insert(reason.to_owned(), of.to_owned());
            reason.to_owned()
        }
    }
}

fn summary(support: &Support, command: &str, mechanisms: &[Mechanism], said: &mut Said) -> String {
    let mut text = format!("  {}: ", support.backend);
    let of = format!("`{command}`, {}", support.backend);
    if let Some(failure) = &support.unavailable {
        // What is wrong with the policy's root is nothing that this host lacks.
        let what = if failure.step == Field::Root.into() { "not with this root" } else { "cannot run" };
        let hint = failure.hint.as_ref().map_or_else(String::new, |hint| format!("\n    hint: {hint}"));
        let why = once(said, &format!("{}{hint}", failure.message), &of);
        text.push_str(&format!("{what}: {why}\n"));
        return text;
    }
    let with = |strength| support.fields.iter().filter(move |(_, a)| a.strength == strength);
    let full = with(Strength::Full).count();
    text.push_str(&format!("{full} of {} fields in full\n", support.fields.len()));
    for (word, strength) in [("partial", Strength::Partial), ("none", Strength::None)] {
        // Fields that lack the same stand together, in their order.
        let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
        for (field, Applied { reason, .. }) in with(strength) {
            match groups.iter_mut().find(|(why, _)| why == reason) {
                Some((_, fields)) => fields.push(field.to_string()),
                None => groups.push((reason, vec![field.to_string()])),
            }
        }
        for (reason, fields) in groups {
            let reason = once(said, &beside_table(reason, mechanisms), &of);
            text.push_str(&format!("    {word} {}: {reason}\n", fields.join(", ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once() {
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
        let mut said = Said::new();
        let first = summary(&support("jail"), "run", &[], &mut said);
        let names = format!("{}, {}", Field::Memory, Field::Processes);
        assert!(first.contains(&format!("    partial {names}: no cgroup\n")), "{first}");
        let second = summary(&support("landlock"), "run", &[], &mut said);
        assert!(second.contains(&format!("    partial {names}: as for `run`, jail\n")), "{second}");
        assert_eq!(format!("{first}{second}").matches("no cgroup").count(), 1);
    }
}
