//! One definition of an environment as `list`, `show` and `build` report it, and whether a call of it would start here.

use cofferdam_config::environments::{Environment, EnvironmentKind, Environments, Project, as_known};
use cofferdam_engine::Engine;
use serde::Serialize;

use super::usable::require_usable;
use crate::call::environment::{self, Building, builder, command_line, surroundings};
use crate::caller::Caller;
use crate::refusal::CliRefusal;

/// One definition, as `--json` prints it.
#[derive(Serialize)]
pub(super) struct EnvironmentRow<'e> {
    pub name: &'e str,
    pub kind: &'e str,
    pub source: &'e str,
    pub place: &'e str,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the definition has mistakes.
    pub broken: bool,
    /// Whether a flake reference was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    built: Option<bool>,
    /// Whether a profile was evaluated for this row. If not, a call may be refused for a reason that is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    evaluated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'e str>,
    /// Where the stronger definition of this name is, which hides this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_by: Option<&'e str>,
}

/// The host on which a call of the environment would run.
pub(super) struct CallHost<'h> {
    pub caller: &'h Caller,
    pub engine: &'h Engine,
    pub project: Option<&'h Project>,
    /// Whether profiles are evaluated.
    pub evaluates: bool,
}

impl<'e> EnvironmentRow<'e> {
    /// The row of a definition. `all` are the definitions among which a stronger one may hide it.
    pub(super) fn of(one: &'e Environment, all: Option<&'e Environments>, host: &CallHost<'_>) -> EnvironmentRow<'e> {
        let caller = host.caller;
        let built = match &one.kind {
            EnvironmentKind::Reference(reference) | EnvironmentKind::Flake { reference, .. } => {
                Some(builder(caller).built(reference).is_some())
            }
            _ if one.is_built() => {
                let known = as_built(one, caller);
                Some(known)
            }
            _ => None,
        };
        let evaluated = matches!(one.kind, EnvironmentKind::Profile { .. }).then_some(host.evaluates);
        let reason = one.unavailable().or_else(|| match &one.kind {
            EnvironmentKind::Reference(_) => as_known(one, &builder(caller), &surroundings(caller)).unavailable(),
            _ => None,
        });
        // A list builds and evaluates nothing.
        let known = built != Some(false) && evaluated != Some(false);
        let reason = reason.or_else(|| if known { host.refusal(one) } else { None });
        EnvironmentRow {
            name: &one.name,
            kind: one.kind.word(),
            source: one.rank.word(),
            place: &one.place,
            available: reason.is_none(),
            broken: matches!(one.kind, EnvironmentKind::Broken(_)),
            reason,
            built,
            evaluated,
            description: one.description(),
            hidden_by: all.and_then(|all| all.hidden_by(one)).map(|stronger| stronger.place.as_str()),
        }
    }

    /// Marks it as unavailable because the definitions have mistakes: `eval` and the server refuse every name then.
    pub(super) fn refuse(&mut self, configuration: Option<&str>) {
        self.available = false;
        self.reason =
            Some(self.reason.take().filter(|_| self.broken).unwrap_or_else(|| reason_for_mistakes(configuration)));
    }

    /// Its state in one word.
    pub(super) fn state(&self) -> &'static str {
        match (self.broken, self.available, self.built) {
            (true, ..) => "broken",
            (_, false, _) => "unavailable",
            (_, _, Some(false)) => "not built yet",
            _ if self.evaluated == Some(false) => "not evaluated",
            _ => "ready",
        }
    }
}

/// Whether the packages of an environment are installed.
fn as_built(one: &Environment, caller: &Caller) -> bool {
    environment::built(one.clone(), caller, None, Building::Never, true).is_ok()
}

impl CallHost<'_> {
    /// Why a call of it would be refused here, with the hint on a line of its own.
    fn refusal(&self, one: &Environment) -> Option<String> {
        let CliRefusal { message, hint, .. } = require_usable(one, self.project, self.caller, self.engine).err()?;
        let hint = hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        Some(message + &hint)
    }
}

/// Why no environment is available while there are mistakes that are not about one environment alone.
fn reason_for_mistakes(configuration: Option<&str>) -> String {
    format!("what defines environments has mistakes, so no name is used: {}", command_line("check", configuration))
}
