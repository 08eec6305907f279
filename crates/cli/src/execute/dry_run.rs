//! What `--dry-run` prints: everything that is known before a run starts. Data only.

use std::collections::BTreeMap;

use cofferdam_engine::audited_run::RunDetails;
use cofferdam_engine::{AppliedEnforcement, Prepared};
use cofferdam_policy::Policy;
use serde::Serialize;

use crate::call::RunnableCall;

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
