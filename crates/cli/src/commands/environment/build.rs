//! `cofferdam environment build`: builds the flake reference of an environment, or installs its packages.

use cofferdam_config::environments::spec;
use cofferdam_engine::{Engine, ExpectedUse};

use super::row::{CallHost, EnvironmentRow};
use crate::call::environment::{self, Building, surroundings};
use crate::caller::Caller;
use crate::output::stdout::print_json;
use crate::refusal::CliRefusal;

/// Builds the flake reference of an environment, or installs its packages, also if that was done before.
pub(super) fn build(name: &str, configuration: Option<&str>, caller: &Caller, json: bool) -> Result<i32, CliRefusal> {
    let (found, project) = environment::find(name, configuration, &surroundings(caller))?;
    if !found.is_built() {
        if let Some(reason) = found.unavailable() {
            return Err(environment::unusable(name, &found, &reason, configuration));
        }
        return Err(CliRefusal::new(
            "arguments",
            format!("the environment `{name}` has no flake reference and no `packages`: there is nothing to build"),
        ));
    }
    let engine = Engine::for_own_process(ExpectedUse::Anything);
    let (one, built) = environment::built(found, caller, Some(&engine), Building::Anew, false)?;
    spec(&one, built.as_deref()).map_err(|reason| environment::unusable(name, &one, &reason, configuration))?;
    if json {
        let host = CallHost { caller, engine: &engine, project: project.as_ref(), evaluates: false };
        print_json(&EnvironmentRow::of(&one, None, &host))?;
    }
    Ok(0)
}
