//! The notes on standard error after a run: limits, refusals, truncated output and changed files. Pure: outcome in, notes out,
//! but for [`file_for_code`].

use cofferdam_engine::{Ending, Outcome, Violation};
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, AllowEntry, AuditLevel, Field, Mount, NetworkMode, Policy, text};

use super::network_notes::{failed_connections, reasons, unlisted_hosts};
use crate::args::option::Takes;
use crate::args::table::POLICY_OPTIONS;
use crate::call::RunnableCall;
use crate::failure;
use crate::output::complaints::Complaint;

/// Most violations, and most changed files, with a note of their own.
const MOST: usize = 5;
/// Most refused hosts with a note of their own.
const MOST_HOSTS: usize = 20;

/// One line about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunNote {
    /// What happened.
    pub text: String,
    /// The option that changes it.
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
    let others: Vec<_> =
        outcome.violations.iter().filter(|v| Some(v.operation.as_str()) != ended_by && !is_unlisted(v)).collect();
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
        let hint = hint.or_else(|| refused_in_directory(violation, call));
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
            format!("changed: {} added, {} modified, {} deleted", count('A'), count('M'), count('D'))
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

/// The option that lets the program write the working directory, where that is what was refused.
fn refused_in_directory(violation: &Violation, call: &RunnableCall) -> Option<String> {
    let directory = call.policy.command.cwd.as_deref().filter(|_| call.here_would_write)?;
    let of_mounts = violation.field.ends_with(Field::Mounts.name());
    let inside = violation.object.as_deref().is_some_and(|object| is_within(object, directory));
    (of_mounts && inside).then(|| "--here".into())
}

/// The note for a program that failed, and said that it lacks something which an option gives.
pub(super) fn of_complaint(complaint: Complaint, outcome: &Outcome, call: &RunnableCall) -> Option<RunNote> {
    let failed = outcome.outcome == Ending::Exited && !outcome.success && outcome.limit.is_none();
    match complaint {
        Complaint::ReadOnly => {
            let directory = call.policy.command.cwd.as_deref().filter(|_| failed && call.here_would_write)?;
            Some(RunNote {
                text: format!("{} is read-only to the program", text::one_line(directory)),
                hint: Some("--here".into()),
            })
        }
        Complaint::NoNetwork => {
            let none = failed && call.policy.network.mode == NetworkMode::None;
            let host = call.policy.command.argv.iter().find_map(|argument| host_of_url(argument));
            let hint = format!("--allow {}", host.unwrap_or_else(|| "HOST".into()));
            none.then(|| RunNote { text: "the program has no network".into(), hint: Some(hint) })
        }
    }
}

/// What a failed program that said nothing lacks by its arguments: a network, where one of them is an address.
pub(super) fn complaint_of_arguments(call: &RunnableCall) -> Option<Complaint> {
    let named = call.policy.command.argv.iter().any(|argument| host_of_url(argument).is_some());
    named.then_some(Complaint::NoNetwork)
}

/// The host of an address in an argument, as `--allow` takes it: with the port where the scheme has another one.
fn host_of_url(argument: &str) -> Option<String> {
    let (scheme, rest) = argument.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let usual = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => "",
    };
    let host = host.strip_suffix(usual).unwrap_or(host);
    let entry: Result<AllowEntry, _> = host.parse();
    entry.is_ok().then(|| host.to_owned())
}

fn amount(limit: Field, policy: &Policy) -> String {
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
    use super::{host_of_url, singular};

    #[test]
    fn the_host_of_an_address_is_what_an_option_takes() {
        for (argument, host) in [
            ("https://example.org/a?b", Some("example.org")),
            ("http://you:secret@example.org:80", Some("example.org")),
            ("http://example.org:8443/", Some("example.org:8443")),
            ("git+https://github.com/a/b.git#c", Some("github.com")),
            ("example.org", None),
            ("https://", None),
            ("https://*", None),
            ("data://x y", None),
        ] {
            assert_eq!(host_of_url(argument).as_deref(), host, "{argument}");
        }
    }

    #[test]
    fn every_unit_has_a_singular() {
        for (limit, _) in cofferdam_policy::Policy::base().limits.iter() {
            assert!(singular(limit.unit) != limit.unit || limit.unit == "MiB", "{}", limit.unit);
        }
    }
}
