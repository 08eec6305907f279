//! What a policy option is. The options themselves are the rows of `table`.
//!
//! An option names the leaves of the policy that it sets, and the fields that it makes required, and says how its value is
//! applied to the draft of a policy.

use cofferdam_policy::Field;

use super::draft::Draft;

/// How many values an option takes, and how often it may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// No value.
    Nothing,
    /// One value; the last one counts.
    One(&'static str),
    /// One of these values.
    Choice(&'static str, &'static [&'static str]),
    /// One value each time; all count.
    Many(&'static str),
    /// An optional value after `=`; the given text when there is none.
    Optional(&'static str, &'static str),
}

/// The heading under which help shows an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// Options about the program.
    Program,
    /// Options about files.
    Files,
    /// Options about the network and processes.
    NetworkAndProcesses,
    /// Options about limits.
    Limits,
    /// Options about how the policy is enforced and reported.
    Enforcement,
}

impl Heading {
    /// The heading as help shows it.
    pub const fn title(self) -> &'static str {
        match self {
            Heading::Program => "Program",
            Heading::Files => "Files",
            Heading::NetworkAndProcesses => "Network and processes",
            Heading::Limits => "Limits",
            Heading::Enforcement => "Enforcement",
        }
    }
}

/// One policy option.
#[derive(Clone, Copy)]
pub struct PolicyOption {
    /// Long name without dashes; also its id.
    pub long: &'static str,
    /// Short name.
    pub short: Option<char>,
    /// Value.
    pub takes: Takes,
    /// One line.
    pub help: &'static str,
    /// What the long form adds.
    pub more: &'static str,
    /// Heading.
    pub heading: Heading,
    /// Left out of the one-screen help.
    pub rare: bool,
    /// Dotted paths of the policy's leaves that it sets, such as `limits.memory_mb`.
    pub leaves: &'static [&'static str],
    /// Fields of the policy that become required when the option is given.
    pub requires: &'static [Field],
    /// Applied after all others, wherever it stands on the command line.
    pub late: bool,
    /// Puts the value into the policy; the error says what would be accepted.
    pub apply: fn(&mut Draft<'_>, &str) -> Result<(), String>,
}

/// What a row of the table leaves out.
pub(crate) const BLANK: PolicyOption = PolicyOption {
    long: "",
    short: None,
    takes: Takes::Nothing,
    help: "",
    more: "",
    heading: Heading::Program,
    rare: false,
    leaves: &[],
    requires: &[],
    late: false,
    apply: |_, _| Ok(()),
};
