//! The notes on standard error after a run: limits, refusals, truncated output and changed files. Pure: outcome in, notes out,
//! but for [`file_for_code`].

use std::collections::BTreeMap;

use cofferdam_engine::{Ending, FileChange, Outcome, Violation};
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, AuditLevel, Field, Mount, NetworkMode, Policy, text};
use serde::Serialize;

use super::network_notes::{failed_connections, is_name_lookup, option_for_address, reasons, unlisted_hosts};
use crate::args::agents::agent_of;
use crate::args::option::Takes;
use crate::args::presets::preset_of;
use crate::args::table::POLICY_OPTIONS;
use crate::call::RunnableCall;
use crate::failure;

/// Most violations, and most changed files, with a note of their own.
const MOST: usize = 5;
/// Most refused hosts with a note of their own.
const MOST_HOSTS: usize = 20;

/// One line about a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct RunNote {
    /// What happened.
    pub text: String,
    /// The option that changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The notes for an outcome, the most important first; none for a run without incidents.
pub(super) fn notes(outcome: &Outcome, call: &RunnableCall) -> Vec<RunNote> {
    let mut notes = Vec::new();
    let mut note = |text: String, hint: Option<String>| notes.push(RunNote { text, hint });
    if let Some(failure) = &outcome.error {
        note(failure.message.clone(), failure.hint.clone());
    }
    match (outcome.outcome, outcome.limit) {
        (Ending::TimedOut, _) => {
            let seconds = call.policy.limits.wall_ms as f64 / 1000.0;
            note(format!("stopped after {seconds} s, the wall limit"), Some("--timeout TIME".into()));
        }
        (Ending::LimitExceeded, limit) => {
            let limit = limit.unwrap_or(Field::Memory);
            note(format!("stopped at the limit {}", amount(limit, &call.policy)), option_hint(limit));
        }
        (Ending::Violation, _) => note("stopped at a violation, as on_violation says".into(), None),
        // The program continued, or failed by itself, after it reached the limit.
        (_, Some(limit)) => note(format!("ran into the limit {}", amount(limit, &call.policy)), option_hint(limit)),
        _ => {}
    }
    // The limit that ended the run has its note already.
    let ended_by = outcome.limit.map(Field::name);
    let unlisted = unlisted_hosts(outcome);
    for host in unlisted.iter().take(MOST_HOSTS) {
        note(host.text(), host.hint());
    }
    if unlisted.len() > MOST_HOSTS {
        let more = unlisted.len() - MOST_HOSTS;
        note(format!("{more} more hosts were refused"), Some("--json lists them all".into()));
    }
    let is_unlisted = |v: &Violation| unlisted.iter().any(|host| host.is_object_of(v));
    // What a program says of a name that it could not look up tells more than the address of the resolver.
    let has_own_note = |v: &Violation| Some(v.operation.as_str()) == ended_by || is_unlisted(v) || is_name_lookup(v);
    let others: Vec<_> = outcome.violations.iter().filter(|v| !has_own_note(v)).collect();
    for violation in others.iter().take(MOST) {
        if let Some(limit) = Field::ALL.iter().copied().find(|f| f.name() == violation.operation) {
            let times = if violation.count == 1 { "once".into() } else { format!("{} times", violation.count) };
            note(format!("ran into the limit {}, {times}", amount(limit, &call.policy)), option_hint(limit));
            continue;
        }
        if violation.operation == "SIGXFSZ" {
            let limit = amount(Field::FileSize, &call.policy);
            let text = format!("ended by SIGXFSZ: a file at the limit {limit}, or a process that sent it");
            note(text, option_hint(Field::FileSize));
            continue;
        }
        let object = violation.object.as_deref().map(|o| format!(" {o}")).unwrap_or_default();
        let times = if violation.count > 1 { format!(", {} times", violation.count) } else { String::new() };
        let (why, hint) = reasons(outcome, violation);
        let hint = hint
            .or_else(|| refused_in_directory(violation, call))
            .or_else(|| refused_by_field(violation, call))
            .or_else(|| option_for_address(violation, call.policy.network.mode));
        note(format!("refused: {}{object} ({}{times}){why}", violation.operation, violation.field), hint);
    }
    if others.len() > MOST {
        let more = others.len() - MOST;
        note(format!("{more} more violations"), Some("--json lists them all".into()));
    }
    if call.policy.audit.records(AuditLevel::Info) {
        let failed = failed_connections(outcome);
        for (text, times) in failed.iter().take(MOST) {
            let times = if *times > 1 { format!(", {times} times") } else { String::new() };
            note(format!("failed: {text}{times}"), None);
        }
        if failed.len() > MOST {
            let more = failed.len() - MOST;
            note(format!("{more} more connections failed"), Some("--json lists them all".into()));
        }
    }
    for RunNote { text, hint } in truncated_streams(outcome, call) {
        note(text, hint);
    }
    if !outcome.changes.is_empty() {
        let count = |kind| outcome.changes.iter().filter(|c| c.kind == kind).count();
        let text = if outcome.changes.len() <= MOST {
            // The program chose the names, and a note is one line.
            let names: Vec<String> =
                outcome.changes.iter().map(|c| format!("{} {}", c.kind, text::one_line(&c.path))).collect();
            format!("changed: {}", names.join(", "))
        } else {
            let counts = format!("{} added, {} modified, {} deleted", count('A'), count('M'), count('D'));
            match changed_groups(&outcome.changes) {
                Some(groups) => format!("changed: {groups} ({counts})"),
                None => format!("changed: {counts}"),
            }
        };
        match &call.keep_changes {
            // The error reports that they are not kept, or not all of them.
            Some(_) if outcome.error.as_ref().is_some_and(failure::are_changes_lost) => {}
            Some(directory) => note(format!("{text}; kept in {directory}"), None),
            None => note(format!("{text}; dropped"), Some("--keep-changes DIR".into())),
        }
    }
    let copied = |m: &Mount| matches!(m, Mount::Bind { access: Access::CopyOnWrite, .. });
    if call.keep_changes.is_some() && !call.policy.filesystem.mounts.iter().any(copied) {
        note("no volume is copy-on-write, so there are no changes to keep".into(), Some("-v .:.:cow".into()));
    }
    notes
}

/// The names in the directory that has all changes in it, with how many changes are in each; `None` for more than [`MOST`].
fn changed_groups(changes: &[FileChange]) -> Option<String> {
    let first = changes.first()?.path.rsplit_once('/')?.0;
    let common = changes.iter().fold(first, |common, change| {
        let within = |directory: &&str| change.path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        let mut above = std::iter::successors(Some(common), |directory| Some(directory.rsplit_once('/')?.0));
        above.find(within).unwrap_or_default()
    });
    let mut groups: BTreeMap<&str, (char, u64, bool)> = BTreeMap::new();
    for change in changes {
        let rest = change.path.get(common.len() + 1..).unwrap_or(&change.path);
        let (name, deeper) = rest.split_once('/').map_or((rest, false), |(name, _)| (name, true));
        let group = groups.entry(name).or_insert((change.kind, 0, false));
        group.1 += 1;
        group.2 |= deeper;
        if group.0 != change.kind {
            group.0 = 'M';
        }
    }
    let one = |(name, (kind, count, deeper)): (&&str, &(char, u64, bool))| {
        let path = text::one_line(&format!("{common}/{name}"));
        if *deeper { format!("{kind} {path}/ ({count})") } else { format!("{kind} {path}") }
    };
    (groups.len() <= MOST).then(|| groups.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// The notes about truncated output. `-q` does not hide them, because the output looks complete.
pub(super) fn truncated_streams(outcome: &Outcome, call: &RunnableCall) -> Vec<RunNote> {
    let limit = call.policy.limits.output_bytes;
    [(outcome.truncated.stdout, "output"), (outcome.truncated.stderr, "error output")]
        .into_iter()
        .filter(|(truncated, _)| *truncated)
        .map(|(_, stream)| RunNote {
            text: format!("standard {stream} was cut after {limit} bytes"),
            hint: Some("--output-limit SIZE".into()),
        })
        .collect()
}

/// The note for an `eval` that failed on code which is the name of a file. Looks the name up on the file system.
pub(super) fn file_for_code(outcome: &Outcome, call: &RunnableCall) -> Option<RunNote> {
    let code = call.perhaps_file.as_deref().filter(|_| outcome.outcome == Ending::Exited && !outcome.success)?;
    std::fs::metadata(code).is_ok_and(|m| m.is_file()).then(|| RunNote {
        text: format!("{code} is a file here, and was run as code"),
        hint: Some(format!("--file {code}")),
    })
}

/// The note for a coding agent that was run as any other program, and failed: it has no network, and no state.
pub(super) fn agent_as_program(outcome: &Outcome, call: &RunnableCall) -> Option<RunNote> {
    let agent = agent_of(&call.policy.command.argv)?;
    let without = call.policy.network.mode == NetworkMode::None && call.presets.is_empty() && call.here_would_write;
    (without && !outcome.success).then(|| RunNote {
        text: format!("{} is a coding agent, which needs the API of its models and its settings", agent.name),
        hint: Some(format!("cofferdam agent {}", agent.name)),
    })
}

/// The option that allows what a field refused, where one does.
fn refused_by_field(violation: &Violation, call: &RunnableCall) -> Option<String> {
    const OF_SANDBOXES: [&str; 7] = ["unshare", "mount", "pivot_root", "setns", "clone", "clone3", "umount2"];
    let operation = violation.operation.split(' ').next().unwrap_or_default();
    let of = |field: Field| violation.field.ends_with(field.name());
    let object = violation.object.as_deref().unwrap_or_default();
    if of(Field::Spawn) {
        return Some("--spawn".into());
    }
    if of(Field::Protected) && operation == "mkdir" && object.ends_with("/.git") {
        return Some("git init of a new directory, as in git init DIR, or outside of the sandbox".into());
    }
    let filtered = violation.field.contains(Field::Seccomp.name());
    let browser = preset_of(&call.policy.command.argv).filter(|preset| *preset == "browser");
    let option = browser.map_or("--nested-sandboxes", |_| "--for browser");
    (filtered && OF_SANDBOXES.contains(&operation)).then(|| option.into())
}

/// The option that lets the program write the working directory, where that is what was refused.
fn refused_in_directory(violation: &Violation, call: &RunnableCall) -> Option<String> {
    let directory = call.policy.command.cwd.as_deref().filter(|_| call.here_would_write)?;
    let of_mounts = violation.field.ends_with(Field::Mounts.name());
    let inside = violation.object.as_deref().is_some_and(|object| is_within(object, directory));
    (of_mounts && inside).then(|| "--here".into())
}

/// A limit with its value and unit.
pub(super) fn amount(limit: Field, policy: &Policy) -> String {
    let key = limit.name().strip_prefix("limits.");
    match policy.limits.iter().find(|(row, _)| Some(row.key) == key) {
        Some((row, 1)) => format!("{} (1 {})", limit.name(), singular(row.unit)),
        Some((row, value)) => format!("{} ({value} {})", limit.name(), row.unit),
        None => limit.name().to_owned(),
    }
}

/// The singular of a unit.
fn singular(unit: &str) -> &str {
    match unit {
        "seconds of CPU time" => "second of CPU time",
        "thousandths of a CPU" => "thousandth of a CPU",
        "milliseconds" => "millisecond",
        "open files" => "open file",
        "processes and threads" => "process or thread",
        "bytes of each stream" => "byte of each stream",
        "files and directories" => "file or directory",
        other => other,
    }
}

fn option_hint(limit: Field) -> Option<String> {
    let option = POLICY_OPTIONS.iter().find(|o| o.leaves == [limit.name()])?;
    match option.takes {
        Takes::One(value) => Some(format!("--{} {value}", option.long)),
        _ => Some(format!("--{}", option.long)),
    }
}

#[cfg(test)]
mod tests {
    use super::{changed_groups, singular};
    use cofferdam_engine::FileChange;

    #[test]
    fn many_changes_are_named_by_the_directories_that_they_are_in() {
        let change = |(kind, path): &(char, &str)| FileChange { kind: *kind, path: (*path).into() };
        let of = |list: &[(char, &str)]| changed_groups(&list.iter().map(change).collect::<Vec<_>>());
        let installed = [
            ('A', "/p/node_modules"),
            ('A', "/p/node_modules/a/index.js"),
            ('M', "/p/package-lock.json"),
            ('A', "/p/node_modules/b/c"),
        ];
        assert_eq!(of(&installed).unwrap(), "A /p/node_modules/ (3), M /p/package-lock.json");
        assert_eq!(of(&[('A', "/p/a/b/1"), ('D', "/p/a/b/c/2")]).unwrap(), "A /p/a/b/1, D /p/a/b/c/ (1)");
        assert_eq!(of(&[('A', "/v/x"), ('A', "/w/y")]).unwrap(), "A /v/ (1), A /w/ (1)");
        let many: Vec<(char, String)> = (0..6).map(|n| ('A', format!("/p/{n}"))).collect();
        assert_eq!(of(&many.iter().map(|(kind, path)| (*kind, path.as_str())).collect::<Vec<_>>()), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn every_unit_has_a_singular() {
        for (limit, _) in cofferdam_policy::Limits::base().iter() {
            assert!(singular(limit.unit) != limit.unit || limit.unit == "MiB", "{}", limit.unit);
        }
    }
}
