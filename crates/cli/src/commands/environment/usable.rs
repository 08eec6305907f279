//! Whether a call of an environment would start here: does what `eval` does, up to the point where a sandbox would start.
//! Builds nothing.

use clap::Command;
use cofferdam_config::environments::discover::HostTree;
use cofferdam_config::environments::{Environment, Project, in_definition};
use cofferdam_engine::Engine;

use crate::call;
use crate::call::environment::{Building, resolve_found};
use crate::caller::Caller;
use crate::commands::eval;
use crate::refusal::CliRefusal;

/// Requires that a call of the environment could run on this host. The hint of the refusal is in terms of the definition.
///
/// # Errors
/// It cannot be used here.
pub(super) fn require_usable(
    environment: &Environment,
    project: Option<&Project>,
    caller: &Caller,
    engine: &Engine,
) -> Result<(), CliRefusal> {
    let command = eval::command(Command::new("eval").args_override_self(true), false);
    let matches = command.try_get_matches_from(["eval", environment.name.as_str(), ""]);
    let matches = &matches.map_err(|error| CliRefusal::new("arguments", error.to_string()))?;
    let project = project.cloned();
    let refused = |mut refusal: CliRefusal| {
        refusal.hint = refusal.hint.map(|hint| in_definition(environment, refusal.step, &hint));
        refusal
    };
    let resolved =
        resolve_found(matches, caller, engine, Building::Never, true, environment.clone(), project).map_err(refused)?;
    let base = resolved.as_ref().and_then(|resolved| resolved.base.clone());
    let call = call::from_base(matches, true, caller, &HostTree, base, resolved.as_ref()).map_err(refused)?;
    engine.prepare(&call.policy).map(drop).map_err(|failure| {
        let hint = failure.hint.map(|hint| in_definition(environment, failure.step.as_str(), &hint));
        CliRefusal { hint, ..CliRefusal::new("environment", failure.message) }
    })
}
