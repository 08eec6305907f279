//! The long form of `cofferdam doctor`: every mechanism with its evidence, and every field that a backend does not hold in full.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cofferdam_engine::backends::containers::FoundRuntime;
use cofferdam_engine::{AppliedField, Mechanism, Strength, Support};

use crate::failure::is_root;

/// All of it.
pub(super) fn text(mechanisms: &[Mechanism], found: &[FoundRuntime], support: &[(&str, Vec<Support>)]) -> String {
    let mut text = table(mechanisms);
    text.push_str(&runtimes(found));
    let mut seen = PrintedReasons::new();
    for (command, backends) in support {
        write!(text, "\nThe default policy of `{command}`:\n").expect("a String takes every write");
        backends.iter().for_each(|backend| text.push_str(&summary(backend, command, mechanisms, &mut seen)));
    }
    text
}

fn table(mechanisms: &[Mechanism]) -> String {
    let width = mechanisms.iter().map(|m| m.name.len()).max().unwrap_or(0).max("MECHANISM".len());
    let mut text = format!("{:<width$}  AVAILABLE  EVIDENCE\n", "MECHANISM");
    let mut seen = PrintedReasons::new();
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
pub(super) fn shortened(reason: &str, mechanisms: &[Mechanism]) -> String {
    let mut text = reason.to_owned();
    for mechanism in mechanisms {
        let Some(enable) = &mechanism.enable else { continue };
        text = text.replace(&format!("{}; {enable}", mechanism.evidence), &format!("see {}", mechanism.name));
    }
    text
}

/// The container runtimes of this host; empty where there is none.
fn runtimes(found: &[FoundRuntime]) -> String {
    let mut text = String::new();
    for runtime in found {
        let head = if text.is_empty() { "\nWhat makes containers:\n" } else { "" };
        let FoundRuntime { backend, version, place, detail, .. } = runtime;
        write!(text, "{head}  {backend}: version {version}, {}\n    {detail}\n", place.display())
            .expect("a String takes every write");
    }
    text
}

/// The reasons that are printed already, each with the command and backend that it was printed for.
type PrintedReasons = BTreeMap<String, String>;

/// A reason, or a reference to the place where it is printed already.
fn once(seen: &mut PrintedReasons, reason: &str, of: &str) -> String {
    match seen.get(reason) {
        Some(before) => format!("as for {before}"),
        None => {
            seen.insert(reason.to_owned(), of.to_owned());
            reason.to_owned()
        }
    }
}

/// The fields of one strength, in their order; those with the same reason together.
pub(super) fn by_reason(support: &Support, strength: Strength) -> Vec<(&str, Vec<String>)> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for (field, AppliedField { reason, .. }) in
        support.fields.iter().filter(|(_, applied)| applied.strength == strength)
    {
        match groups.iter_mut().find(|(why, _)| why == reason) {
            Some((_, fields)) => fields.push(field.to_string()),
            None => groups.push((reason, vec![field.to_string()])),
        }
    }
    groups
}

/// How many fields it holds in full.
pub(super) fn in_full(support: &Support) -> usize {
    support.fields.values().filter(|applied| applied.strength == Strength::Full).count()
}

fn summary(support: &Support, command: &str, mechanisms: &[Mechanism], seen: &mut PrintedReasons) -> String {
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
    text.push_str(&format!("{} of {} fields in full\n", in_full(support), support.fields.len()));
    for (word, strength) in [("partial", Strength::Partial), ("none", Strength::None)] {
        for (reason, fields) in by_reason(support, strength) {
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
        let applied = |strength, reason: &str| AppliedField { strength, reason: reason.into() };
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
        let mut seen = PrintedReasons::new();
        let first = summary(&support("jail"), "run", &[], &mut seen);
        let names = format!("{}, {}", Field::Memory, Field::Processes);
        assert!(first.contains(&format!("    partial {names}: no cgroup\n")), "{first}");
        let second = summary(&support("landlock"), "run", &[], &mut seen);
        assert!(second.contains(&format!("    partial {names}: as for `run`, jail\n")), "{second}");
        assert_eq!(format!("{first}{second}").matches("no cgroup").count(), 1);
    }
}
