//! `cofferdam doctor`: reports on one screen what this host can enforce, and the commands that would provide the rest.
//!
//! Exit code: 0 when a backend can run here, 1 when none can. Changes nothing, but for the
//! place of cgroups, which is prepared as for a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_config::environments::HomeListings;
use cofferdam_config::serve::PROGRAM as MCP_SERVER;
use cofferdam_engine::backends::containers::{FoundRuntime, found};
use cofferdam_engine::{Engine, Mechanism, Strength, Support};
use cofferdam_policy::Policy;
use cofferdam_profiles::helper::{DIRECTORY_VARIABLE, NAME as EVALUATOR, find_named};
use serde::Serialize;

use crate::call::defaults::run_defaults;
use crate::caller::Caller;
use crate::commands::doctor::details::{by_reason, in_full, shortened};
use crate::failure::is_root;
use crate::output::stdout::{print, print_json};
use crate::output::text::printable;
use crate::refusal::CliRefusal;

mod details;

/// The arguments of `doctor`.
pub(super) fn command(command: Command) -> Command {
    command
        .about("Show what this host can enforce, and how to get the rest")
        .after_help("Exit code: 0 when a backend can hold the default policy in full or in part, 1 when none can run.")
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object"))
        .arg(
            Arg::new("verbose")
                .long("verbose")
                .short('v')
                .action(ArgAction::SetTrue)
                .help("Print every mechanism with its evidence, and why each backend falls short of each field"),
        )
}

/// The output of `--json`.
#[derive(Serialize)]
struct DoctorReport<'a> {
    /// Whether any backend can run here.
    usable: bool,
    mechanisms: &'a [Mechanism],
    /// The container runtimes of this host.
    containers: &'a [FoundRuntime],
    /// The support of each backend for the default policy of `run` and of `eval`.
    support: BTreeMap<&'a str, &'a Vec<Support>>,
}

/// Prints the report and returns the exit code.
pub(super) fn run(matches: &ArgMatches) -> Result<i32, CliRefusal> {
    let caller = Caller::observe()?;
    let engine = Engine::probe();
    let mut mechanisms = engine.mechanisms();
    mechanisms.extend(helper_programs(&caller));
    let mut of_run = run_defaults(&caller, &HomeListings::of(&caller.homes), true);
    let mut of_eval = Policy::base();
    for policy in [&mut of_run, &mut of_eval] {
        policy.command.argv = vec!["true".into()];
    }
    let support = [("run", engine.support(&of_run)), ("eval", engine.support(&of_eval))];
    let usable = support.iter().any(|(_, backends)| backends.iter().any(|b| b.unavailable.is_none()));
    if matches.get_flag("json") {
        let support: BTreeMap<&str, &Vec<Support>> = support.iter().map(|(name, s)| (*name, s)).collect();
        print_json(&DoctorReport { usable, mechanisms: &mechanisms, containers: &found(), support })?;
    } else {
        let text = match matches.get_flag("verbose") {
            true => details::text(&mechanisms, &found(), &support),
            false => overview(&mechanisms, &support),
        };
        print(&printable(&text))?;
    }
    Ok(if usable { 0 } else { 1 })
}

/// The programs of other commands, which are files of their own.
fn helper_programs(caller: &Caller) -> [Mechanism; 2] {
    let libexec = caller.variable(DIRECTORY_VARIABLE).filter(|directory| !directory.is_empty()).map(Path::new);
    let own = std::env::current_exe().ok();
    [
        ("MCP server", MCP_SERVER, "cofferdam mcp: environments for agents"),
        ("evaluator of profiles", EVALUATOR, "profiles and policies in Nickel"),
    ]
    .map(|(name, program, gives)| {
        let path = find_named(program, libexec, own.as_deref());
        let (available, evidence) = match path.metadata() {
            Ok(metadata) if metadata.is_file() => (true, path.display().to_string()),
            Ok(_) => (false, format!("{} is no file", path.display())),
            Err(error) => (false, format!("{}: {error}", path.display())),
        };
        let enable = format!("put {program} beside the command, or say where it is with {DIRECTORY_VARIABLE}=DIR");
        Mechanism { name, available, evidence, gives, enable: (!available).then_some(enable) }
    })
}

/// What works, what does not, and what to do about it: one screen.
fn overview(mechanisms: &[Mechanism], support: &[(&str, Vec<Support>); 2]) -> String {
    let [(_, of_run), (_, of_eval)] = support;
    let mut text = String::new();
    let mut say = |line: String| writeln!(text, "{line}").expect("a String takes every write");
    // The order in which `auto` takes them.
    let chosen =
        ["jail", "landlock"].iter().find_map(|name| of_run.iter().find(|of| of.backend == *name && can_run(of)));
    match chosen {
        Some(of) => {
            say(format!(
                "Sandboxes here are made by the {} backend, which holds {} of {} fields of the default policy in full.",
                of.backend,
                in_full(of),
                of.fields.len()
            ));
            for (word, strength) in [("in part", Strength::Partial), ("not held", Strength::None)] {
                for (reason, fields) in by_reason(of, strength) {
                    say(format!("  {word}: {}: {}", fields.join(", "), shortened(reason, mechanisms)));
                }
            }
        }
        None => say("No backend can make the default sandbox here.".to_owned()),
    }
    let todo = remedies(mechanisms);
    let jail = of_run.iter().find(|of| of.backend == "jail").and_then(|of| of.unavailable.as_ref());
    if jail.is_some() || !todo.is_empty() {
        say("\nTo do:".to_owned());
    }
    if let Some(failure) = jail {
        say(format!("  for the jail: {}", failure.hint.as_deref().unwrap_or(&failure.message)));
        say(format!("    now: {}", failure.message));
    }
    for (enable, missing) in todo {
        say(format!("  {enable}"));
        let gives: Vec<&str> = missing.iter().map(|mechanism| mechanism.gives).collect();
        say(format!("    gives: {}", gives.join("; ")));
    }
    let others = |of: &&Support| chosen.is_none_or(|chosen| chosen.backend != of.backend);
    let there = |name: &str| [of_run, of_eval].iter().any(|all| all.iter().any(|of| of.backend == name && can_run(of)));
    say(format!("\n{:<14} {:<20} eval", "Other backends", "run"));
    for of in of_run.iter().filter(others).filter(|of| there(of.backend)) {
        let held = |of: Option<&Support>| match of {
            Some(of) if can_run(of) => format!("{} of {}", in_full(of), of.fields.len()),
            Some(Support { unavailable: Some(failure), .. }) if is_root(failure) => "with another root".to_owned(),
            _ => "no".to_owned(),
        };
        let for_eval = of_eval.iter().find(|other| other.backend == of.backend);
        say(format!("  {:<12} {:<20} {}", of.backend, held(Some(of)), held(for_eval)));
    }
    let absent: Vec<&str> = of_run.iter().filter(others).map(|of| of.backend).filter(|name| !there(name)).collect();
    if !absent.is_empty() {
        say(format!("  not usable here: {}", absent.join(", ")));
    }
    say("\nEvery mechanism and reason: cofferdam doctor --verbose".to_owned());
    text
}

fn can_run(of: &Support) -> bool {
    of.unavailable.is_none()
}

/// What enables the mechanisms that are missing, and which these are: each remedy once.
fn remedies(mechanisms: &[Mechanism]) -> Vec<(&str, Vec<&Mechanism>)> {
    let mut found: Vec<(&str, Vec<&Mechanism>)> = Vec::new();
    for mechanism in mechanisms.iter().filter(|mechanism| !mechanism.available) {
        let enable = mechanism.enable.as_deref().unwrap_or(mechanism.evidence.as_str());
        match found.iter_mut().find(|(remedy, _)| *remedy == enable) {
            Some((_, of)) => of.push(mechanism),
            None => found.push((enable, vec![mechanism])),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use cofferdam_engine::AppliedField;
    use cofferdam_policy::Field;

    use super::*;

    fn support(backend: &'static str) -> Support {
        let applied = |strength, reason: &str| AppliedField { strength, reason: reason.into() };
        let partial = applied(Strength::Partial, "sampled; not writable; run as root");
        let fields = [
            (Field::Memory, partial.clone()),
            (Field::CpuTime, partial),
            (Field::WallTime, applied(Strength::Full, "clock")),
        ];
        Support { backend, unavailable: None, fields: fields.into() }
    }

    fn mechanism(name: &'static str, available: bool) -> Mechanism {
        let enable = (!available).then(|| "run as root".to_owned());
        Mechanism { name, available, evidence: "not writable".into(), gives: name, enable }
    }

    #[test]
    fn a_remedy_is_named_once_with_all_that_it_gives() {
        let mechanisms =
            [mechanism("cgroup memory", false), mechanism("landlock", true), mechanism("cgroup pids", false)];
        let both = [("run", vec![support("jail"), support("landlock")]), ("eval", vec![support("jail")])];
        let text = overview(&mechanisms, &both);
        assert!(text.starts_with("Sandboxes here are made by the jail backend, which holds 1 of 3 fields"), "{text}");
        let fields = format!("  in part: {}, {}: sampled; see cgroup memory\n", Field::Memory, Field::CpuTime);
        assert!(text.contains(&fields), "{text}");
        assert!(text.contains("\n  run as root\n    gives: cgroup memory; cgroup pids\n"), "{text}");
        assert_eq!(text.matches("run as root").count(), 1, "{text}");
        assert!(text.contains("  landlock     1 of 3               no\n"), "{text}");
    }

    #[test]
    fn without_a_jail_it_says_first_how_to_get_it() {
        let failure =
            cofferdam_engine::Failure::new(cofferdam_engine::FailedStep::Spawn, "no namespaces").hint("sysctl x=1");
        let jail = Support { unavailable: Some(failure), ..support("jail") };
        let text = overview(&[mechanism("landlock", true)], &[("run", vec![jail.clone()]), ("eval", vec![jail])]);
        assert!(text.starts_with("No backend can make the default sandbox here.\n"), "{text}");
        assert!(text.contains("\nTo do:\n  for the jail: sysctl x=1\n    now: no namespaces\n"), "{text}");
    }
}
