//! What `--dry-run` prints: everything that is known before a run starts. Data only.

use std::collections::BTreeMap;

use cofferdam_engine::audited_run::RunDetails;
use cofferdam_engine::{AppliedEnforcement, Prepared};
use cofferdam_policy::Policy;
use serde::Serialize;

use crate::call::RunnableCall;
use crate::output::stdout::print_json;
use crate::refusal::CliRefusal;

/// The output of `--dry-run`.
#[derive(Serialize)]
pub(super) struct DryRun<'a> {
    policy: &'a Policy,
    backend: &'a str,
    backend_reason: &'a str,
    enforcement: &'a AppliedEnforcement,
    plan: serde_json::Value,
    /// The options that presets stand for, by preset.
    #[serde(rename = "for", skip_serializing_if = "BTreeMap::is_empty")]
    presets: &'a BTreeMap<&'static str, Vec<String>>,
    /// Of a skill: the facts that the record of its start adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    skill: Option<&'a serde_json::Map<String, serde_json::Value>>,
}

impl<'a> DryRun<'a> {
    /// The output for a prepared call.
    pub(super) fn of(call: &'a RunnableCall, prepared: &'a Prepared, about: &'a RunDetails) -> DryRun<'a> {
        DryRun {
            policy: &call.policy,
            backend: prepared.backend(),
            backend_reason: prepared.backend_reason(),
            enforcement: prepared.enforcement(),
            plan: prepared.plan_json(),
            presets: &call.presets,
            skill: about.skill.as_ref().map(|_| &about.facts),
        }
    }
}

/// Prints it, without the values of the variables that are secret.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print(call: &RunnableCall, dry_run: &DryRun<'_>) -> Result<(), CliRefusal> {
    let value = |name: &&'static str| Some((*name, call.policy.command.variables.get(*name)?.as_str()));
    let secrets: Vec<(&str, &str)> = call.masked.iter().filter_map(value).collect();
    if secrets.is_empty() {
        return print_json(dry_run);
    }
    let mut printed = serde_json::to_value(dry_run).expect("reports have text keys, so nothing can fail");
    mask(&mut printed, &secrets);
    print_json(&printed)
}

/// Replaces these values, alone or as variables are written in an environment.
fn mask(value: &mut serde_json::Value, secrets: &[(&str, &str)]) {
    use serde_json::Value;
    match value {
        Value::String(text) => {
            for (name, secret) in secrets {
                let assigned = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
                if text == secret {
                    *text = "***".into();
                } else if assigned == Some(secret) {
                    *text = format!("{name}=***");
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, secrets)),
        Value::Object(fields) => fields.values_mut().for_each(|field| mask(field, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
