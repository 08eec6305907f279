//! `cofferdam environment build`: builds the flake reference of an environment.

use cofferdam_config::environments::{EnvironmentKind, spec};
use cofferdam_engine::{Engine, ExpectedUse};

use super::row::{CallHost, EnvironmentRow};
use crate::call::environment::{self, Building, surroundings};
use crate::caller::Caller;
use crate::output::stdout::print_json;
use crate::refusal::CliRefusal;

/// Builds the flake reference of an environment, also if it was built before.
pub(super) fn build(name: &str, configuration: Option<&str>, caller: &Caller, json: bool) -> Result<i32, CliRefusal> {
    let (found, project) = environment::find(name, configuration, &surroundings(caller))?;
    if !matches!(found.kind, EnvironmentKind::Reference(_) | EnvironmentKind::Flake { .. }) {
        if let Some(reason) = found.unavailable() {
            return Err(environment::unusable(name, &found, &reason, configuration));
        }
        return Err(CliRefusal::new(
            "arguments",
            format!("the environment `{name}` is no flake reference: there is nothing to build"),
        ));
    }
    let (one, built) = environment::built(found, caller, Building::Anew, false)?;
    spec(&one, built.as_deref()).map_err(|reason| environment::unusable(name, &one, &reason, configuration))?;
    if json {
        let engine = Engine::for_own_process(ExpectedUse::Anything);
        let host = CallHost { caller, engine: &engine, project: project.as_ref(), evaluates: false };
        print_json(&EnvironmentRow::of(&one, None, &host))?;
    }
    Ok(0)
}
