//! Decides whether a command may run with its arguments: the file that its name leads to, a rule for that file, and the
//! patterns of that rule. Runs and records nothing; `guard` does both with what is decided here.

use std::collections::HashMap;

use super::argument_patterns::{self, CheckedRule};
use super::blocked_paths::Blocked;
use super::config::GuardConfig;
use super::error::{Refusal, plain};
use super::executable_lookup::{ExecutableSearch, ResolvedCommand};
use super::helper_programs::{self, HelperPrograms};

/// A rule, and the file that its command resolved to when the guard was built.
pub(super) struct BoundRule {
    pub(super) checked: CheckedRule,
    /// The last part of its command.
    pub(super) name: String,
    pub(super) canonical: String,
    /// Whether the executable is many programs, so that only this name stands for the rule.
    pub(super) by_name: bool,
    /// Whether nothing may be started, since all that could be is this executable under another name.
    pub(super) alone: bool,
    pub(super) tree: HelperPrograms,
    pub(super) workspace_programs: bool,
}

/// A decision to run.
pub(super) struct Permit {
    /// What the command leads to.
    pub found: ResolvedCommand,
    /// The number of the rule that allows it.
    pub rule: usize,
}

/// What a decision is made from, all of it the guard's.
pub(super) struct Decider<'a> {
    pub config: &'a GuardConfig,
    pub search: &'a ExecutableSearch,
    pub rules: &'a [BoundRule],
    /// Rules by canonical path.
    pub by_path: &'a HashMap<String, Vec<usize>>,
    pub blocked: &'a Blocked,
}

impl Decider<'_> {
    /// The rules for the file that a command leads to.
    fn rules_for(&self, command: &str, canonical: &str) -> Vec<usize> {
        let called = command.rsplit('/').next().unwrap_or(command);
        let rules = self.by_path.get(canonical).into_iter().flatten().copied();
        let mut rules: Vec<usize> = rules.filter(|&i| !self.rules[i].by_name || self.rules[i].name == called).collect();
        // The rule of the same name first: helpers are its.
        rules.sort_by_key(|&i| self.rules[i].name != called);
        rules
    }

    /// The rules for what was found, where all that executing it takes may be executed.
    pub(super) fn rules_that_allow(&self, command: &str, found: &ResolvedCommand) -> Result<Vec<usize>, Refusal> {
        let named = || command.to_owned();
        let mut rules = self.rules_for(command, &found.canonical);
        if rules.is_empty() {
            let reason = format!("no rule allows {}, which it leads to", plain(&found.canonical));
            return Err(Refusal::NotAllowed { command: named(), reason });
        }
        let needs = std::iter::once(&found.canonical).chain(found.chain.iter().map(|link| &link.path));
        if let Some(path) = needs.into_iter().find(|path| self.blocked.holds(path)) {
            return Err(Refusal::Blocked {
                command: named(),
                reason: format!("it takes {}, which is blocked", plain(path)),
            });
        }
        // What it was when the guard was made says nothing of what executes it by now.
        let mut why = None;
        rules.retain(|&rule| {
            let many = helper_programs::many_in_chain(found, |path| self.rules[rule].tree.programs.contains(path));
            let kept = many.is_none();
            why = why.take().or(many);
            kept
        });
        match why {
            Some(reason) if rules.is_empty() => Err(Refusal::NotAllowed { command: named(), reason }),
            _ => Ok(rules),
        }
    }

    pub(super) fn decide(&self, command: &str, args: &[String]) -> Result<Permit, Refusal> {
        let named = || command.to_owned();
        if !self.config.enabled {
            return Err(Refusal::Disabled { command: named() });
        }
        if self.config.allowed_commands.is_empty() {
            let reason = "it is empty, which denies all".into();
            return Err(Refusal::NotAllowed { command: named(), reason });
        }
        if args.iter().any(|arg| arg.contains('\0')) {
            return Err(Refusal::NotFound { command: named(), reason: "an argument holds a NUL byte".into() });
        }
        let found = self.search.find(command).map_err(|reason| Refusal::NotFound { command: named(), reason })?;
        let rules = self.rules_that_allow(command, &found)?;
        let line = argument_patterns::line(args);
        match rules.iter().find(|&&i| self.rules[i].checked.allows(&line)) {
            Some(&rule) => Ok(Permit { found, rule }),
            None => {
                let patterns = rules.iter().filter_map(|&i| self.rules[i].checked.rule.args.as_deref());
                let rules = patterns.collect::<Vec<_>>().join(", ");
                Err(Refusal::Arguments { command: named(), rules, line })
            }
        }
    }
}
