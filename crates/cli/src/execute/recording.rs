//! The audit trail of a run: opens it, with the secrets that are removed from records, and runs a sandbox with its records.
//!
//! A run whose start cannot be recorded does not start.

use std::path::Path;

use cofferdam_engine::audit::{Secrets, Trail, TrailOptions};
use cofferdam_engine::audited_run::{RunDetails, Unrecorded};
use cofferdam_engine::{Io, Outcome, Prepared};

use crate::call::RunnableCall;
use crate::caller::Caller;
use crate::refusal::CliRefusal;

/// The trail in which a run is recorded, if there is one. For a skill, `further` is the caller, whose variables may be secrets
/// too: the program does not have them, but their values may reach it in other ways.
///
/// # Errors
/// A variable of `--audit-secret` does not exist, or the trail cannot be opened.
pub(super) fn open(call: &RunnableCall, further: Option<&Caller>) -> Result<Option<Trail>, CliRefusal> {
    let Some(dir) = &call.audit_trail else { return Ok(None) };
    let api = call.policy.network.api.as_ref();
    let value = |name: &String| {
        let own = call.policy.command.variables.get(name).cloned();
        let url = || api.filter(|api| api.variable == *name).map(|api| api.url.to_text());
        let callers = || further.and_then(|caller| caller.variable(name)).map(str::to_owned);
        own.or_else(url).or_else(callers).map(|value| (name.clone(), value))
    };
    if let Some(name) = call.audit_secrets.iter().find(|name| value(name).is_none()) {
        let (whose, hint) = match further {
            None => ("of the program's", format!("-e {name}=VALUE, or -e {name}")),
            Some(_) => ("of yours or the skill's", format!("{name}=VALUE cofferdam skill run …")),
        };
        return Err(CliRefusal::new("arguments", format!("--audit-secret {name} is no variable {whose}")).hint(hint));
    }
    let secrets = Secrets::new(call.audit_secrets.iter().filter_map(value));
    let trail = Trail::open(Path::new(dir), TrailOptions { secrets, ..TrailOptions::default() });
    trail.map(Some).map_err(|error| CliRefusal::new("audit", error.to_string()).split_hint())
}

/// Runs a sandbox with its records. The refusal beside the outcome is for a run whose end could not be recorded, which is not
/// a success.
///
/// # Errors
/// The start could not be recorded, and nothing ran.
pub(super) fn run(
    prepared: &Prepared,
    io: Io,
    call: &RunnableCall,
    trail: &Trail,
    about: RunDetails,
) -> Result<(Outcome, Option<CliRefusal>), CliRefusal> {
    let refusal = |e: &Unrecorded| CliRefusal::new("audit", e.to_string()).split_hint();
    match prepared.run_recorded(io, &call.policy, trail, about) {
        Ok(outcome) => Ok((outcome, None)),
        Err(e @ Unrecorded::Start(_)) => Err(refusal(&e)),
        Err(e) => {
            let refusal = refusal(&e);
            let Unrecorded::End(outcome, _) = e else { return Err(refusal) };
            Ok((*outcome, Some(refusal)))
        }
    }
}
