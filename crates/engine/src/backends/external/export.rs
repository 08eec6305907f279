//! A policy as the configuration of another sandbox program: the text, and what it cannot express. Runs nothing.

use cofferdam_policy::Policy;

use super::tool::Tool;
use super::{nsjail, seatbelt};
use crate::backends::enforcement::{EnforcementPurpose, NamedEnforcer, answers, only_warned_of, sufficient};
use crate::backends::layout::layout;
use crate::failure::Failure;
use crate::outcome::{AppliedEnforcement, Strength};
use crate::plan::facts::Facts;

/// Whose configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportTarget {
    /// nsjail's, as JSON: for 3.5 and later.
    Nsjail,
    /// nsjail's, as text: for any version.
    NsjailText,
    /// A Seatbelt profile, its parameters in a comment.
    Seatbelt,
}

impl ExportTarget {
    /// The tool that reads it.
    pub fn tool(self) -> Tool {
        match self {
            ExportTarget::Nsjail | ExportTarget::NsjailText => Tool::Nsjail,
            ExportTarget::Seatbelt => Tool::Seatbelt,
        }
    }
}

/// A written configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The file's text.
    pub text: String,
    /// `NAME=PATH` parameters that a Seatbelt profile is used with; empty for the others.
    pub parameters: Vec<(String, String)>,
    /// What the target holds less than fully, one line each: fields that were best effort.
    pub warnings: Vec<String>,
    /// What the target holds, per field.
    pub enforcement: AppliedEnforcement,
}

/// Writes a policy as a target's configuration.
///
/// # Errors
/// The target cannot hold a required field, or the policy names what is not there.
pub fn export(policy: &Policy, format: ExportTarget, facts: &dyn Facts) -> Result<Exported, Failure> {
    let tool = format.tool();
    let (text, parameters, mut warnings, enforcement) = if tool == Tool::Seatbelt {
        let enforcement = answers(tool, policy, None, EnforcementPurpose::Export);
        sufficient(
            NamedEnforcer::Exported(tool.name()),
            policy,
            &enforcement,
            only_warned_of(tool, EnforcementPurpose::Export),
        )?;
        let profile = seatbelt::plan(policy, facts)?;
        let left_out = seatbelt::left_out(policy, facts);
        let left_out = left_out.iter().map(|source| format!("{source} is left out: nothing is there"));
        let warnings: Vec<String> = profile.warnings.iter().cloned().chain(left_out).collect();
        (profile.file(), profile.parameters, warnings, enforcement)
    } else {
        let layout = layout(policy, facts)?;
        let enforcement = answers(tool, policy, Some(&layout), EnforcementPurpose::Export);
        sufficient(
            NamedEnforcer::Exported(tool.name()),
            policy,
            &enforcement,
            only_warned_of(tool, EnforcementPurpose::Export),
        )?;
        // Whoever runs it elsewhere has the program there.
        let program = layout.program(policy, facts).unwrap_or_else(|_| policy.command.argv.first().cloned());
        let config = nsjail::plan(policy, &layout, program, EnforcementPurpose::Export)?;
        let text = if format == ExportTarget::Nsjail { config.json() } else { config.text() };
        let root = "run it as an ordinary user: as root its user would be the host's root".to_owned();
        let left_out = layout.left_out.iter().map(|source| format!("{source} is left out: nothing is there"));
        (text, Vec::new(), left_out.chain([root]).collect(), enforcement)
    };
    warnings.extend(enforcement.iter().filter(|(_, a)| a.strength != Strength::Full).map(|(field, a)| {
        let how = if a.strength == Strength::None { "not held" } else { "held in part" };
        format!("{field} is {how}: {}", a.reason)
    }));
    Ok(Exported { text, parameters, warnings, enforcement })
}
