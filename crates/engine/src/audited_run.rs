//! A run that stands in the audit trail: its start before anything starts, its end before the outcome is returned.
//!
//! Says what a run's records hold; how they are kept is `audit`'s.

use cofferdam_policy::{Field, Policy, Root};
use serde_json::{Map, Value};

use crate::failure::{FailedStep, Failure};
use crate::io::Io;
use crate::outcome::{Ending, Outcome};
use crate::prepared::Prepared;
use cofferdam_audit::{AuditEntry, AuditError, Durability, Reservation, Trail, hex};

/// What a run's records say besides what the policy and the outcome do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunDetails {
    /// The skill that is run.
    pub skill: Option<String>,
    /// Further facts of the first record, such as the profile or the manifest that the policy was made of.
    pub facts: Map<String, Value>,
}

/// Why a run is not, or not wholly, in the trail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unrecorded {
    /// Nothing was started.
    #[error("nothing was started, since it could not be recorded: {0}")]
    Start(#[source] AuditError),
    /// It ran, and its end could not be recorded.
    #[error("the run's end could not be recorded: {1}")]
    End(Box<Outcome>, #[source] AuditError),
}

impl Unrecorded {
    /// What there is to say of the run: that nothing ran, or how it ended, which is no success, and why it is not recorded.
    pub fn into_outcome(self) -> Outcome {
        let text = self.to_string();
        let (message, hint) =
            text.split_once("\nhint: ").map_or((text.as_str(), None), |(m, h)| (m, Some(h.to_owned())));
        let failure = Failure::new(FailedStep::Audit, message).maybe_hint(hint);
        match self {
            Unrecorded::Start(_) => Outcome::unstarted(Some(failure)),
            Unrecorded::End(outcome, _) => {
                let before = outcome.error.as_ref().map(|error| format!("{}; {}", error.message, failure.message));
                let hint = failure.hint.clone().or_else(|| outcome.error.as_ref()?.hint.clone());
                let message = before.unwrap_or_else(|| failure.message.clone());
                Outcome { success: false, error: Some(Failure { message, hint, ..failure }), ..*outcome }
            }
        }
    }
}

impl Prepared {
    /// Runs it, with its start, what it was refused and its end in the trail. The start is durable before anything starts,
    /// and the end before this returns.
    ///
    /// # Errors
    /// Something does not stand in the trail. Where that is the start, nothing ran.
    pub fn run_recorded(
        &self,
        io: Io,
        policy: &Policy,
        trail: &Trail,
        about: RunDetails,
    ) -> Result<Outcome, Unrecorded> {
        let recording = Recording::begin(policy, self.backend(), trail, about)?;
        recording.end(self.run(io))
    }
}

/// A run whose start stands in the trail, with room for its end. Dropped, it ends as given up.
#[derive(Debug)]
pub(crate) struct Recording {
    notes: Notes,
    reservation: Reservation,
}

/// What records what happens between the start of a run and its end.
#[derive(Debug, Clone)]
pub(crate) struct Notes {
    trail: Trail,
    run: String,
    skill: Option<String>,
}

impl Notes {
    fn entry(&self, kind: &str) -> AuditEntry {
        AuditEntry { skill: self.skill.clone(), ..AuditEntry::new(kind).run(&self.run) }
    }

    /// Records that code is about to run in a session. Durable before this returns.
    ///
    /// # Errors
    /// It does not stand in the trail, so the code is not to run.
    pub(crate) fn call(&self, id: &str, code: &str) -> Result<(), AuditError> {
        let mut entry = self.entry("session_call").with("call", id);
        entry.data.extend(code_facts(code));
        self.trail.append(entry, Durability::Durable).map(drop)
    }

    /// Records what came of it.
    ///
    /// # Errors
    /// It does not stand in the trail.
    pub(crate) fn answer(&self, id: &str, data: Value) -> Result<(), AuditError> {
        let mut entry = self.entry("session_answer").with("call", id);
        entry.data.extend(object(data).into_iter().filter(|(_, value)| !value.is_null()));
        self.trail.append(entry, Durability::Written).map(drop)
    }
}

/// What says which code it was. The code itself is for no trail: it may be long, and may hold secrets.
pub fn code_facts(code: &str) -> Map<String, Value> {
    let sha256 = hex(&cofferdam_audit::sha256(code.as_bytes()));
    object(serde_json::json!({ "codeSha256": sha256, "codeBytes": code.len() }))
}

impl Recording {
    /// Records the start. Durable before this returns.
    ///
    /// # Errors
    /// It does not stand in the trail, so nothing is to start.
    pub(crate) fn begin(
        policy: &Policy,
        backend: &str,
        trail: &Trail,
        about: RunDetails,
    ) -> Result<Recording, Unrecorded> {
        let notes = Notes { trail: trail.clone(), run: cofferdam_audit::random::uuid(), skill: about.skill.clone() };
        let mut start = notes.entry("sandbox_started");
        start.data = started(policy, backend, &about);
        let reservation = trail.begin(start).map_err(Unrecorded::Start)?;
        Ok(Recording { notes, reservation })
    }

    /// What records what happens until its end.
    pub(crate) fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// Records what happened and the end. Durable before this returns.
    ///
    /// # Errors
    /// The end does not stand in the trail.
    pub(crate) fn end(self, mut outcome: Outcome) -> Result<Outcome, Unrecorded> {
        let Recording { notes, reservation } = self;
        outcome.run_id.clone_from(&notes.run);
        let mut lost = 0u64;
        // As many as the outcome has, which bounds them by kind: none is left out for another.
        for (kind, data) in events(&outcome) {
            // A disk that is full now has room for the end, and the end says what is missing before it.
            let written = notes.trail.append(AuditEntry { data, ..notes.entry(kind) }, Durability::Written);
            lost += u64::from(written.is_err());
        }
        let (kind, mut data) = ended(&outcome);
        if lost > 0 {
            data.insert("eventsLost".into(), lost.into());
        }
        match reservation.end(AuditEntry { data, ..notes.entry(kind) }) {
            Ok(_) => Ok(outcome),
            Err(e) => Err(Unrecorded::End(Box::new(outcome), e)),
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// What the record of a start says.
fn started(policy: &Policy, backend: &str, about: &RunDetails) -> Map<String, Value> {
    let text = serde_json::to_string(policy).unwrap_or_default();
    let mut data = object(serde_json::json!({
        "memoryMb": policy.limits.memory_mb,
        "networkMode": policy.network.mode,
        "backend": backend,
        "argv": policy.command.argv,
        "policySha256": hex(&cofferdam_audit::sha256(text.as_bytes())),
    }));
    match &policy.filesystem.root {
        Root::Image(root) | Root::Directory(root) => drop(data.insert("image".into(), root.as_str().into())),
        Root::Host | Root::Minimal | Root::Interpreter => {}
    }
    if let Some(skill) = &about.skill {
        data.insert("skillName".into(), skill.as_str().into());
    }
    data.extend(about.facts.clone());
    data
}

/// What happened between start and end.
fn events(outcome: &Outcome) -> Vec<(&'static str, Map<String, Value>)> {
    let mut list = Vec::new();
    let mut add = |kind, value: Value| list.push((kind, object(value)));
    for v in &outcome.violations {
        // A limit that was run into is no attempt at anything.
        let kind = if v.field.starts_with("$.limits.") { "limit_reached" } else { "security_violation" };
        add(kind, serde_json::to_value(v).unwrap_or_default());
    }
    for event in outcome.network.iter().flat_map(|network| &network.events) {
        let value = serde_json::to_value(event).unwrap_or_default();
        add(if value["kind"] == "api_request" { "api_call" } else { "network_attempt" }, value);
    }
    match (outcome.outcome, outcome.limit) {
        (Ending::TimedOut, _) => add("timeout_kill", serde_json::json!({ "durationMs": outcome.execution_time_ms })),
        (Ending::LimitExceeded, Some(Field::Memory)) => {
            add("oom_kill", serde_json::json!({ "memoryBytes": outcome.memory_used_bytes }));
        }
        // The run was within its own limit: the limit over all runs, or the machine's memory, ran out.
        _ if outcome.error.as_ref().is_some_and(|failure| failure.step == FailedStep::Memory) => {
            add("oom_kill", serde_json::json!({ "memoryBytes": outcome.memory_used_bytes }));
        }
        (Ending::LimitExceeded, Some(limit)) => add("limit_kill", serde_json::json!({ "limit": limit })),
        _ => {}
    }
    list
}

/// What the record of an end says.
fn ended(outcome: &Outcome) -> (&'static str, Map<String, Value>) {
    if let (Ending::SetupFailed, Some(failure)) = (outcome.outcome, &outcome.error) {
        let data = serde_json::json!({ "error": failure.message, "step": failure.step, "exitCode": failure.code });
        return ("sandbox_error", object(data));
    }
    let data = serde_json::json!({
        "outcome": outcome.outcome,
        "exitCode": outcome.exit_code,
        "signal": outcome.signal,
        "limit": outcome.limit,
        "durationMs": outcome.execution_time_ms,
        "memoryBytes": outcome.memory_used_bytes,
        "cpuSeconds": outcome.cpu_time_seconds,
        "violations": outcome.violations.len(),
        "violationsComplete": outcome.violations_complete,
        "network": outcome.network.as_ref().map(|network| serde_json::json!({
            "connections": network.connections,
            "refused": network.refused,
            "bytesUp": network.bytes_up,
            "bytesDown": network.bytes_down,
            "lost": network.lost,
        })),
        "backend": outcome.backend,
        "error": outcome.error.as_ref().map(|failure| &failure.message),
    });
    let data = object(data).into_iter().filter(|(_, value)| !value.is_null()).collect();
    ("sandbox_completed", data)
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::Policy;

    use super::*;
    use crate::{Engine, Output};
    use cofferdam_audit::{Anchored, TrailOptions, verify};

    fn policy(script: &str) -> Policy {
        let mut policy = Policy::base();
        policy.command.argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        policy.limits.wall_ms = 2000;
        policy
    }

    type Records = Vec<(String, Map<String, Value>)>;

    fn recorded(policy: &Policy, about: RunDetails) -> (Outcome, Records) {
        let dir = tempfile::tempdir().unwrap();
        let trail = Trail::open(&dir.path().join("audit"), TrailOptions::default()).unwrap();
        let prepared = Engine::probe().prepare(policy).unwrap();
        let io = Io { output: Output::Capture, ..Io::default() };
        let outcome = prepared.run_recorded(io, policy, &trail, about).unwrap();
        let mut records = Vec::new();
        verify(trail.path(), None, &Anchored::new(), &mut |r| {
            if r.seq > 1 {
                assert_eq!(r.run.as_deref(), Some(outcome.run_id.as_str()));
                records.push((r.kind.clone(), r.data.clone()));
            }
        })
        .unwrap();
        (outcome, records)
    }

    fn kinds(records: &Records) -> Vec<&str> {
        records.iter().map(|(kind, _)| kind.as_str()).collect()
    }

    #[test]
    fn a_run_begins_and_ends_in_the_trail() {
        let about =
            RunDetails { skill: Some("weather".into()), facts: object(serde_json::json!({ "manifestSha256": "00" })) };
        let (outcome, records) = recorded(&policy("exit 3"), about);
        assert_eq!(outcome.exit_code, Some(3));
        assert_eq!(kinds(&records), ["sandbox_started", "sandbox_completed"]);
        assert_eq!((&records[0].1["skillName"], &records[0].1["networkMode"]), (&"weather".into(), &"none".into()));
        assert_eq!((&records[0].1["manifestSha256"], &records[1].1["exitCode"]), (&"00".into(), &3.into()));
    }

    #[test]
    fn what_ended_it_stands_between() {
        let mut slow = policy("sleep 60");
        slow.limits.wall_ms = 200;
        let (_, records) = recorded(&slow, RunDetails::default());
        assert_eq!(kinds(&records), ["sandbox_started", "limit_reached", "timeout_kill", "sandbox_completed"]);
        let (outcome, records) = recorded(&policy("unshare -U true; exit 0"), RunDetails::default());
        assert_eq!(outcome.exit_code, Some(0));
        assert!(kinds(&records).contains(&"security_violation"), "{records:?}");
    }

    #[test]
    fn where_it_went_and_wanted_to_go_stands_between_as_well() {
        use cofferdam_policy::NetworkMode;
        let mut policy = policy("exec 3<>/dev/tcp/203.0.113.7/443; read -u 3 x; exit 0");
        policy.command.argv[0] = "/bin/bash".into();
        policy.network.mode = NetworkMode::Allowlist;
        policy.network.allow.push("allowed.test".parse().unwrap());
        let (_, records) = recorded(&policy, RunDetails::default());
        let attempt = records.iter().find(|(kind, _)| kind == "network_attempt").map(|(_, data)| data);
        let attempt = attempt.unwrap_or_else(|| panic!("{records:?}"));
        assert_eq!((&attempt["address"], &attempt["reason"]), (&"203.0.113.7".into(), &"not_allowed".into()));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let mut missing = policy("");
        missing.command.argv = vec!["/no/such/program".into()];
        let (_, records) = recorded(&missing, RunDetails::default());
        assert_eq!(kinds(&records), ["sandbox_started", "sandbox_error"]);
        assert_eq!(records[1].1["exitCode"], 127);
    }

    #[test]
    fn what_cannot_be_recorded_does_not_start() {
        let dir = tempfile::tempdir().unwrap();
        let trail = Trail::open(&dir.path().join("audit"), TrailOptions::default()).unwrap();
        let mut large = policy("echo ran");
        large.command.argv.push("x".repeat(100_000));
        let prepared = Engine::probe().prepare(&large).unwrap();
        let io = || Io { output: Output::Capture, ..Io::default() };
        let refused = prepared.run_recorded(io(), &large, &trail, RunDetails::default());
        assert!(matches!(refused, Err(Unrecorded::Start(AuditError::TooLarge { .. }))), "{refused:?}");
        let small = policy("echo ran");
        let ran =
            Engine::probe().prepare(&small).unwrap().run_recorded(io(), &small, &trail, RunDetails::default()).unwrap();
        assert_eq!(ran.stdout, "ran\n");
    }
}
