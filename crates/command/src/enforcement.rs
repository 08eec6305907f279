//! What is enforced, rule by rule, and by which mechanism: the answer to "is it really confined?". Pure data.

use std::fmt;

/// How far a rule is enforced, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleStrength {
    /// Not at all.
    None,
    /// Partially; the reason says what is missing.
    Partial,
    /// In full, by the kernel.
    Full,
}

impl fmt::Display for RuleStrength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleStrength::None => "none",
            RuleStrength::Partial => "partial",
            RuleStrength::Full => "full",
        })
    }
}

/// What a command is prevented from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ConfinementRule {
    /// Writing, creating and removing outside the writable paths.
    Writes,
    /// Truncating files outside of them.
    Truncation,
    /// Renaming into and out of them, and hard links across.
    Links,
    /// Making device nodes, and ioctl on devices but the harmless ones.
    Devices,
    /// Owner, mode, times and attributes of files outside.
    Metadata,
    /// Abstract sockets of processes outside.
    AbstractSockets,
    /// Unix sockets with a path, whose servers act for any client (a container engine, a session bus, an agent).
    PathSockets,
    /// Signals to processes outside.
    Signals,
    /// System V shared memory, semaphores and queues, and POSIX message queues, of the same user.
    Ipc,
    /// The user's keyrings in the kernel.
    Keys,
    /// Priority, scheduling class and processors of processes outside.
    Scheduling,
    /// Descriptors of the caller, except the standard streams.
    Descriptors,
    /// Reading what was not granted, or was denied.
    Reads,
    /// The network.
    Network,
}

impl fmt::Display for ConfinementRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfinementRule::Writes => "writes",
            ConfinementRule::Truncation => "truncation",
            ConfinementRule::Links => "renames and hard links",
            ConfinementRule::Devices => "devices",
            ConfinementRule::Metadata => "metadata",
            ConfinementRule::AbstractSockets => "abstract sockets",
            ConfinementRule::PathSockets => "path sockets",
            ConfinementRule::Signals => "signals",
            ConfinementRule::Ipc => "shared memory and queues",
            ConfinementRule::Keys => "keys",
            ConfinementRule::Scheduling => "scheduling",
            ConfinementRule::Descriptors => "descriptors",
            ConfinementRule::Reads => "reads",
            ConfinementRule::Network => "network",
        })
    }
}

/// The enforcement of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppliedRule {
    /// The rule.
    pub rule: ConfinementRule,
    /// How far it is enforced.
    pub strength: RuleStrength,
    /// By which mechanism, or why not.
    pub reason: String,
}

/// What is enforced on a command. A rule that was not requested is not listed: in the mode `rwx` the list is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandEnforcement {
    /// Rule by rule.
    pub rules: Vec<AppliedRule>,
    /// Version of the kernel's Landlock that is used; 0 without.
    pub landlock_abi: u32,
    /// Notes for the user, for instance a grant for a path that does not exist.
    pub notes: Vec<String>,
}

impl CommandEnforcement {
    /// The weakest strength of all rules: `Full` if nothing was requested.
    pub fn strength(&self) -> RuleStrength {
        self.rules.iter().map(|applied| applied.strength).min().unwrap_or(RuleStrength::Full)
    }

    /// How far one rule is enforced; none if it was not requested.
    pub fn of(&self, rule: ConfinementRule) -> Option<RuleStrength> {
        self.rules.iter().find(|applied| applied.rule == rule).map(|applied| applied.strength)
    }

    /// The rules that are not enforced in full.
    pub fn missing(&self) -> impl Iterator<Item = &AppliedRule> {
        self.rules.iter().filter(|applied| applied.strength != RuleStrength::Full)
    }

    pub(crate) fn add(&mut self, rule: ConfinementRule, strength: RuleStrength, reason: impl Into<String>) {
        self.rules.push(AppliedRule { rule, strength, reason: reason.into() });
    }
}

impl fmt::Display for AppliedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AppliedRule { rule, strength, reason } = self;
        write!(f, "{rule}: {strength} ({reason})")
    }
}

impl fmt::Display for CommandEnforcement {
    /// One line for each rule, with a newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.iter().try_for_each(|applied| writeln!(f, "{applied}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overall_strength_is_that_of_the_weakest_rule() {
        let mut enforcement = CommandEnforcement::default();
        assert_eq!(enforcement.strength(), RuleStrength::Full, "nothing was asked for");
        enforcement.add(ConfinementRule::Writes, RuleStrength::Full, "Landlock");
        enforcement.add(ConfinementRule::Signals, RuleStrength::None, "too old");
        enforcement.add(ConfinementRule::Metadata, RuleStrength::Partial, "some");
        assert_eq!(enforcement.strength(), RuleStrength::None);
        assert_eq!(enforcement.of(ConfinementRule::Metadata), Some(RuleStrength::Partial));
        assert_eq!(enforcement.of(ConfinementRule::Network), None);
        let missing: Vec<ConfinementRule> = enforcement.missing().map(|applied| applied.rule).collect();
        assert_eq!(missing, [ConfinementRule::Signals, ConfinementRule::Metadata]);
        assert_eq!(enforcement.missing().next().unwrap().to_string(), "signals: none (too old)");
        assert!(enforcement.to_string().starts_with("writes: full (Landlock)\nsignals: none (too old)\n"));
    }
}
