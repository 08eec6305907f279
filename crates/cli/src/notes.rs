//! What is worth a line on standard error after a run, and the words for it. Pure: outcome in, lines out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cofferdam_engine::network_address::{Special, not_offered, special};
use cofferdam_engine::network_event::{Event, Kind, Reason};
use cofferdam_engine::{Ending, Evidence, Failure, Outcome, Step, Violation};
use cofferdam_policy::{Access, AuditLevel, Field, Mount, Policy, text};

use crate::call::Call;
use crate::options::POLICY_OPTIONS;

/// Most violations, and most changed files, that are told one by one.
const TOLD: usize = 5;
/// Most refused hosts that are told one by one.
const TOLD_HOSTS: usize = 20;

/// Addresses of which what they are is nothing to whoever reads: they stand for any.
const EXAMPLES: [Special; 2] = [Special::Documentation, Special::Benchmark];

/// Names by which containers' programs call the host that they run on, and the one that is the sandbox itself inside.
const HOST_NAMES: &[&str] =
    &["localhost", "host.docker.internal", "gateway.docker.internal", "host.containers.internal"];

/// One line, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What happened.
    pub text: String,
    /// What changes it.
    pub hint: Option<String>,
}

/// The lines for an outcome, most important first; none for a run in which nothing happened.
pub fn notes(outcome: &Outcome, call: &Call) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |text: String, hint: Option<String>| notes.push(Note { text, hint });
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
        // The program went on, or failed by itself, after it ran into one.
        (_, Some(limit)) => note(format!("ran into the limit {}", amount(limit, &call.policy)), option_hint(limit)),
        _ => {}
    }
    // The limit that ended it has been told.
    let ended_by = outcome.limit.map(Field::name);
    let missing = missing_hosts(outcome);
    for host in missing.iter().take(TOLD_HOSTS) {
        note(host.text(), host.hint());
    }
    if missing.len() > TOLD_HOSTS {
        let more = missing.len() - TOLD_HOSTS;
        note(format!("{more} more hosts were refused"), Some("--json lists them all".into()));
    }
    let is_missing = |v: &Violation| missing.iter().any(|host| host.has(v));
    let others: Vec<_> =
        outcome.violations.iter().filter(|v| Some(v.operation.as_str()) != ended_by && !is_missing(v)).collect();
    for violation in others.iter().take(TOLD) {
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
        note(format!("refused: {}{object} ({}{times}){why}", violation.operation, violation.field), hint);
    }
    if others.len() > TOLD {
        let more = others.len() - TOLD;
        note(format!("{more} more violations"), Some("--json lists them all".into()));
    }
    if call.policy.audit.records(AuditLevel::Info) {
        let failed = failures(outcome);
        for (text, times) in failed.iter().take(TOLD) {
            let times = if *times > 1 { format!(", {times} times") } else { String::new() };
            note(format!("failed: {text}{times}"), None);
        }
        if failed.len() > TOLD {
            let more = failed.len() - TOLD;
            note(format!("{more} more connections failed"), Some("--json lists them all".into()));
        }
    }
    for Note { text, hint } in cut(outcome, call) {
        note(text, hint);
    }
    if !outcome.changes.is_empty() {
        let count = |kind| outcome.changes.iter().filter(|c| c.kind == kind).count();
        let text = if outcome.changes.len() <= TOLD {
            // The program chose the names, and a line of ours is one line.
            let names: Vec<String> =
                outcome.changes.iter().map(|c| format!("{} {}", c.kind, text::one_line(&c.path))).collect();
            format!("changed: {}", names.join(", "))
        } else {
            format!("changed: {} added, {} modified, {} deleted", count('A'), count('M'), count('D'))
        };
        match &call.keep_changes {
            // Nothing was kept in what the program removed; the error says so.
            Some(_)
                if outcome.error.as_ref().is_some_and(|error| error.step == Step::KeepChanges && error.code != 0) => {}
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

/// That output is missing, which no `-q` hides: who reads it takes it for the whole.
pub fn cut(outcome: &Outcome, call: &Call) -> Vec<Note> {
    let limit = call.policy.limits.output_bytes;
    [(outcome.truncated.stdout, "output"), (outcome.truncated.stderr, "error output")]
        .into_iter()
        .filter(|(cut, _)| *cut)
        .map(|(_, stream)| Note {
            text: format!("standard {stream} was cut after {limit} bytes"),
            hint: Some("--output-limit SIZE".into()),
        })
        .collect()
}

/// A host that the program wanted and no rule has, which is what there is to add to the rules.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    /// Name, or address as rules have it.
    host: String,
    /// As it was wanted, where no name was.
    address: Option<IpAddr>,
    /// Those that it tried; none where it only asked for the name.
    ports: BTreeSet<u16>,
    /// What violations say of it.
    objects: BTreeSet<String>,
    times: u64,
}

impl Missing {
    fn has(&self, violation: &Violation) -> bool {
        violation.evidence == Evidence::Gateway && violation.object.as_ref().is_some_and(|o| self.objects.contains(o))
    }

    fn text(&self) -> String {
        let times = if self.times > 1 { format!(", {} times", self.times) } else { String::new() };
        let what = self.address.and_then(not_offered).or_else(|| {
            let address = self.address?;
            let known = special(address).filter(|special| !EXAMPLES.contains(special))?;
            Some(format!("{address} is {known}"))
        });
        let what = what.map_or(String::new(), |what| format!(": {what}"));
        format!("refused: {}{}{times}{what}", self.host, ports(&self.ports))
    }

    /// What to do about it: nothing that gives away what a machine's cloud trusts it with.
    fn hint(&self) -> Option<String> {
        if HOST_NAMES.contains(&self.host.as_str()) {
            return Some(own_services(self.ports.first().copied()));
        }
        let is_offered = self.address.and_then(not_offered).is_none();
        is_offered.then(|| format!("--allow {}", self.entry()))
    }

    /// What allows it, and nothing more than it tried.
    fn entry(&self) -> String {
        let is_web = self.ports.iter().all(|port| [80, 443].contains(port));
        // Brackets are for what a port follows.
        let host = if is_web { self.host.trim_matches(['[', ']']) } else { &self.host };
        format!("{host}{}", if is_web { String::new() } else { ports(&self.ports) })
    }
}

/// What lets the program reach a server on the host's loopback, and by which address.
fn own_services(port: Option<u16>) -> String {
    let port = port.map_or_else(|| "PORT".to_owned(), |port| port.to_string());
    format!("--api http://127.0.0.1:{port}, for a server on the host's loopback; inside, its URL is in ISCL_API_URL")
}

fn ports(ports: &BTreeSet<u16>) -> String {
    let list: Vec<String> = ports.iter().map(u16::to_string).collect();
    if list.is_empty() { String::new() } else { format!(":{}", list.join(",")) }
}

/// The host of an event as rules write it, and with its port, as violations have it.
fn place(event: &Event) -> Option<(String, String)> {
    let host = match (&event.host, event.address) {
        (Some(host), _) => host.clone(),
        (None, Some(IpAddr::V6(address))) => format!("[{address}]"),
        (None, Some(address)) => address.to_string(),
        (None, None) => return None,
    };
    let object = event.port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    Some((host, object))
}

/// The reason of an event, with what is known beyond it, on one line.
fn reason(event: &Event) -> Option<String> {
    let words = event.reason?.words();
    Some(match event.detail.as_deref().map(|detail| detail.replace('\n', "; ")) {
        // It says the same, with the address.
        Some(detail) if event.reason == Some(Reason::AddressNotPublic) => detail,
        Some(detail) if detail != words => format!("{words}: {detail}"),
        _ => words.to_owned(),
    })
}

/// Why the gateway refused it, behind a colon, and what allows it where its address is all that is missing.
fn reasons(outcome: &Outcome, violation: &Violation) -> (String, Option<String>) {
    let (mut told, mut entries): (Vec<String>, Vec<String>) = Default::default();
    let events = outcome.network.iter().flat_map(|network| &network.events);
    for event in events.filter(|e| e.kind == Kind::Refused && violation.evidence == Evidence::Gateway) {
        let is_about = place(event).is_some_and(|(_, object)| violation.object.as_ref() == Some(&object));
        // One without a rule is told under what would have to have one.
        if !is_about || event.rule.as_ref().is_some_and(|rule| *rule != violation.field) {
            continue;
        }
        told.extend(reason(event).filter(|why| !told.contains(why)));
        entries.extend(address_entry(event).filter(|entry| !entries.contains(entry)));
    }
    told.truncate(TOLD);
    entries.truncate(TOLD);
    let why = if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) };
    (why, (!entries.is_empty()).then(|| entries.join(" ")))
}

/// The option that names an address which is not public, and its port. None for those that lead nowhere whatever is
/// listed, or to an address behind them, and none for what hands out a machine's credentials.
fn address_entry(event: &Event) -> Option<String> {
    let (address, port) = (event.address?.to_canonical(), event.port?);
    if event.reason == Some(Reason::AddressNotPublic) && address.is_loopback() {
        return Some(own_services(Some(port)));
    }
    (event.reason == Some(Reason::AddressNotPublic) && not_offered(address).is_none())
        .then(|| format!("--allow {}", std::net::SocketAddr::new(address, port)))
}

/// What was allowed and could not be, each with how often.
fn failures(outcome: &Outcome) -> Vec<(String, u64)> {
    let mut list: Vec<(String, u64)> = Vec::new();
    for event in outcome.network.iter().flat_map(|network| &network.events) {
        // A server may end a connection as it likes: its client says so.
        let is_told = event.kind == Kind::Failed && event.reason != Some(Reason::Reset);
        let Some(((_, object), why)) = place(event).zip(reason(event)).filter(|_| is_told) else { continue };
        let text = format!("{object}: {why}");
        match list.iter_mut().find(|(known, _)| *known == text) {
            Some((_, times)) => *times += event.count,
            None => list.push((text, event.count)),
        }
    }
    list
}

/// The hosts of refused attempts that the answer records, in the order of the first ones.
fn missing_hosts(outcome: &Outcome) -> Vec<Missing> {
    let mut hosts: Vec<Missing> = Vec::new();
    let events = outcome.network.iter().flat_map(|network| &network.events);
    for event in events.filter(|e| matches!(e.reason, Some(Reason::NotAllowed | Reason::PortNotAllowed))) {
        let Some((host, object)) = place(event) else { continue };
        let told = |v: &Violation| v.evidence == Evidence::Gateway && v.object.as_ref() == Some(&object);
        if !outcome.violations.iter().any(told) {
            continue;
        }
        let known = hosts.iter_mut().find(|known| known.host == host);
        let entry = match known {
            Some(known) => known,
            None => {
                let address = event.address.filter(|_| event.host.is_none()).map(|address| address.to_canonical());
                hosts.push(Missing { host, address, ports: BTreeSet::new(), objects: BTreeSet::new(), times: 0 });
                hosts.last_mut().expect("it was pushed")
            }
        };
        entry.ports.extend(event.port);
        entry.objects.insert(object);
        entry.times += event.count;
    }
    hosts
}

/// The line for an `eval` that failed on code which is the name of a file. Looks the name up, on this path alone.
pub fn file_for_code(outcome: &Outcome, call: &Call) -> Option<Note> {
    let code = call.perhaps_file.as_deref().filter(|_| outcome.outcome == Ending::Exited && !outcome.success)?;
    std::fs::metadata(code).is_ok_and(|m| m.is_file()).then(|| Note {
        text: format!("{code} is a file here, and was run as code"),
        hint: Some(format!("--file {code}")),
    })
}

fn amount(limit: Field, policy: &Policy) -> String {
    let key = limit.name().strip_prefix("limits.");
    match policy.limits.iter().find(|(row, _)| Some(row.key) == key) {
        Some((row, 1)) => format!("{} (1 {})", limit.name(), one(row.unit)),
        Some((row, value)) => format!("{} ({value} {})", limit.name(), row.unit),
        None => limit.name().to_owned(),
    }
}

/// One of what `unit` names in the plural.
fn one(unit: &str) -> &str {
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
        crate::options::Takes::One(value) => Some(format!("--{} {value}", option.long)),
        _ => Some(format!("--{}", option.long)),
    }
}

/// The outcome of a call that started nothing.
pub fn setup_failed(failure: Failure) -> Outcome {
    Outcome::unstarted(Some(failure))
}

#[cfg(test)]
mod tests {
    use super::one;

    #[test]
    fn every_unit_has_a_singular() {
        for (limit, _) in cofferdam_policy::Policy::base().limits.iter() {
            assert!(one(limit.unit) != limit.unit || limit.unit == "MiB", "{}", limit.unit);
        }
    }
}
