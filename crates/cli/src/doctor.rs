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
        for (command, backends) in &support {
            write!(text, "\nThe default policy of `{command}`:\n").expect("a String takes every write");
            backends.iter().for_each(|backend| text.push_str(&summary(backend)));
        }
        print(&printable(&text))?;
    }
    Ok(if usable { 0 } else { 1 })
}

fn table(mechanisms: &[Mechanism]) -> String {
    let width = mechanisms.iter().map(|m| m.name.len()).max().unwrap_or(0).max("MECHANISM".len());
    let mut text = format!("{:<width$}  AVAILABLE  EVIDENCE\n", "MECHANISM");
    for mechanism in mechanisms {
        let available = if mechanism.available { "yes" } else { "no" };
        let blank = " ".repeat(width + 13);
        text.push_str(&format!("{:<width$}  {available:<9}  {}\n", mechanism.name, mechanism.evidence));
        text.push_str(&format!("{blank}gives: {}\n", mechanism.gives));
        if let Some(command) = &mechanism.enable {
            text.push_str(&format!("{blank}enable: {command}\n"));
        }
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

fn summary(support: &Support) -> String {
    let mut text = format!("  {}: ", support.backend);
    if let Some(failure) = &support.unavailable {
        // What is wrong with the policy's root is nothing that this host lacks.
        let what = if failure.step == Field::Root.name() { "not with this root" } else { "cannot run" };
        text.push_str(&format!("{what}: {}\n", failure.message));
        if let Some(hint) = &failure.hint {
            text.push_str(&format!("    hint: {hint}\n"));
        }
        return text;
    }
    let of = |strength| support.fields.iter().filter(move |(_, a)| a.strength == strength);
    let full = of(Strength::Full).count();
    text.push_str(&format!("{full} of {} fields in full\n", support.fields.len()));
    let mut list = |word: &str, rows: Vec<(&Field, &Applied)>| {
        for (field, applied) in rows {
            text.push_str(&format!("    {word} {field}: {}\n", applied.reason));
        }
    };
    list("partial", of(Strength::Partial).collect());
    list("none", of(Strength::None).collect());
    text
}
