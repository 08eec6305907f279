//! One call of `cofferdam skill`: its arguments, the caller, the registry, and the audit trail in which it is recorded.

use std::path::PathBuf;

use clap::ArgMatches;
use cofferdam_config::skills::{Registry, SkillError, SkillSpec};
use cofferdam_engine::audit::{Trail, TrailOptions};
use cofferdam_policy::BaseDirectory;

use crate::call::audit_trail;
use crate::caller::Caller;
use crate::refusal::CliRefusal;

/// Exit code when a skill is refused.
pub(super) const SKILL_REFUSED: i32 = 1;

/// A call of `skill`, as all actions need it.
pub(super) struct Invocation<'m> {
    pub matches: &'m ArgMatches,
    pub caller: &'m Caller,
    pub registry: Registry,
}

impl Invocation<'_> {
    /// The call of these arguments.
    ///
    /// # Errors
    /// No registry is named, and there is no home directory.
    pub(super) fn of<'m>(matches: &'m ArgMatches, caller: &'m Caller) -> Result<Invocation<'m>, CliRefusal> {
        let named = matches.get_one::<String>("registry").map(|given| PathBuf::from(caller.absolute(given)));
        let registry = Registry::at(named.map_or_else(|| default_registry(caller), Ok)?);
        Ok(Invocation { matches, caller, registry })
    }

    /// The value of an option or argument.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.matches.get_one::<String>(name).map(String::as_str)
    }

    /// Whether a flag is given.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.matches.get_flag(name)
    }

    /// The value of an option as an absolute path.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(|given| self.caller.absolute(given).into())
    }

    /// The argument of the action. `form` is its placeholder in the help.
    ///
    /// # Errors
    /// It is missing.
    pub(super) fn what(&self, form: &str) -> Result<&str, CliRefusal> {
        let action = self.text("action").unwrap_or_default();
        self.text("what").ok_or_else(|| {
            CliRefusal::new("arguments", format!("{action} takes a {form}"))
                .hint(format!("cofferdam skill {action} {form}"))
        })
    }

    /// The words behind `--`.
    fn behind(&self) -> impl Iterator<Item = &str> {
        self.matches.get_many::<String>("args").into_iter().flatten().map(String::as_str)
    }

    /// Whether the skill's name stands behind `--`: a registered one may begin with `-`, like an option.
    pub(super) fn named_behind(&self) -> bool {
        let named = matches!(self.text("action"), Some("show" | "run" | "revoke"));
        named && self.text("what").is_none() && self.behind().next().is_some()
    }

    /// The arguments for the skill: behind `--`, or where its name stands there, behind the name and another `--`.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut words = self.behind().skip(usize::from(self.named_behind())).map(str::to_owned).peekable();
        if self.named_behind() {
            words.next_if(|word| word == "--");
        }
        words.collect()
    }

    /// The skill, and perhaps the version, that the action is about.
    ///
    /// # Errors
    /// It is missing or has the wrong form.
    pub(super) fn spec(&self) -> Result<SkillSpec, CliRefusal> {
        let named = if self.named_behind() { self.behind().next() } else { None };
        named
            .map_or_else(|| self.what("NAME"), Ok)?
            .parse()
            .map_err(|error: String| CliRefusal::new("arguments", error).hint("cofferdam skill list"))
    }

    /// The directory of the audit trail.
    ///
    /// # Errors
    /// None is named, and there is no home directory.
    pub(super) fn trail_directory(&self) -> Result<PathBuf, CliRefusal> {
        self.path("audit-trail").map_or_else(|| audit_trail::directory(self.caller), Ok)
    }

    /// The audit trail, open: an action that cannot be recorded is not performed.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn trail(&self) -> Result<Trail, CliRefusal> {
        let directory = self.trail_directory()?;
        Trail::open(&directory, TrailOptions::default())
            .map_err(|error| CliRefusal::new("audit", error.to_string()).split_hint())
    }
}

/// The default directory of the registry.
fn default_registry(caller: &Caller) -> Result<PathBuf, CliRefusal> {
    if let Some(named) = caller.variable("COFFERDAM_SKILLS").filter(|named| !named.is_empty()) {
        return Ok(caller.absolute(named).into());
    }
    let data = caller.base_directory(BaseDirectory::Data);
    data.map(|data| data.join("cofferdam/skills")).ok_or_else(|| {
        CliRefusal::new("skill", "there is no home directory for the registry")
            .hint("--registry DIR names another place")
    })
}

/// The faults of a skill as a refusal. `code` is its exit code where the skill is refused.
pub(super) fn refused(error: &SkillError, code: i32) -> CliRefusal {
    let mut refusal = CliRefusal::new("skill", error.to_string());
    refusal.hint = error.hint();
    match error {
        SkillError::Refused(_) => refusal.code(code),
        _ => refusal,
    }
}
