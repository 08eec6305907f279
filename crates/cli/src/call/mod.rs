//! One call of `run` or `eval`: from parsed arguments to a complete, validated policy.
//!
//! ```text
//! defaults, policy_file or profile ─▶ environment ─▶ options, in their order ─▶ code, preset ─▶ validated ─▶ Call
//! ```
//!
//! Reads what the arguments name (policy file, code on standard input) and nothing else. Starts nothing but the evaluator of
//! profiles and the builder of environments.

pub(crate) mod agent;
mod applied_options;
mod assemble;
pub mod audit_trail;
pub mod code;
pub mod defaults;
pub mod environment;
pub(crate) mod kept_cache;
mod others_hidden;
pub(crate) mod passed_over;
pub(crate) mod policy_file;
pub mod preset;
pub mod profile;
mod streams;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;
use cofferdam_config::environments::HomeListings;
use cofferdam_config::environments::discover::DiscoveryFiles;
use cofferdam_policy::Policy;

use self::agent::AgentCall;
use self::assemble::CallArguments;
use self::environment::ResolvedEnvironment;
use self::kept_cache::KeptCaches;
use self::policy_file::BasePolicy;
use crate::args::values;
use crate::caller::Caller;
use crate::refusal::CliRefusal;

/// A call that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnableCall {
    /// What the sandbox may do: validated.
    pub policy: Policy,
    /// Whether the program gets a terminal.
    pub tty: bool,
    /// The directory that gets the changes of copy-on-write mounts, absolute.
    pub keep_changes: Option<String>,
    /// The audit trail in which the run is recorded, absolute.
    pub audit_trail: Option<String>,
    /// Names of variables whose values are removed from the records.
    pub audit_secrets: Vec<String>,
    /// Whether the working directory is shown read-only and `--here` would let the program write it.
    pub here_would_write: bool,
    /// Whether captured output that is longer than its limit ends the run.
    pub cut_ends_run: bool,
    /// How long the program may take to end after a signal; then it is killed.
    pub grace: Duration,
    /// The presets of `--for`, and the options that each stands for.
    pub presets: BTreeMap<&'static str, Vec<String>>,
    /// The code of an `eval`, where it is short enough to be the name of a file by mistake.
    pub perhaps_file: Option<String>,
    /// Variables whose values `--dry-run` does not print.
    pub masked: Vec<&'static str>,
    /// The caches that are kept for later runs.
    pub(crate) kept_caches: Option<KeptCaches>,
}

/// Whether the command line gives this option.
pub(crate) fn is_given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(ValueSource::CommandLine)
}

fn text<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// The call that the arguments of `run` (`eval` is false) or `eval` describe, without a profile.
///
/// # Errors
/// The arguments contradict each other, name what cannot be read, or do not make a valid policy.
pub fn from_arguments(
    matches: &ArgMatches,
    eval: bool,
    caller: &Caller,
    tree: &dyn DiscoveryFiles,
) -> Result<RunnableCall, CliRefusal> {
    from_base(matches, eval, caller, tree, None, None)
}

/// The same, starting from the policy of a profile, and in a defined environment.
///
/// # Errors
/// As [`from_arguments`].
pub(crate) fn from_base(
    matches: &ArgMatches,
    eval: bool,
    caller: &Caller,
    tree: &dyn DiscoveryFiles,
    profile: Option<BasePolicy>,
    environment: Option<&ResolvedEnvironment>,
) -> Result<RunnableCall, CliRefusal> {
    let listings = HomeListings::of(&caller.homes);
    CallArguments { matches, eval, caller, tree, environment, agent: None, listings }.call(profile)
}

/// Options that would say otherwise than `agent` what is shown to the agent.
pub(crate) const OF_NO_AGENT: [&str; 5] = ["policy", "profile", "image", "root", "workdir"];

/// The call of a coding agent with these arguments.
///
/// # Errors
/// As [`from_arguments`].
pub(crate) fn of_agent(
    matches: &ArgMatches,
    caller: &Caller,
    tree: &dyn DiscoveryFiles,
    agent: &AgentCall,
    arguments: &[String],
) -> Result<RunnableCall, CliRefusal> {
    if let Some(named) = OF_NO_AGENT.iter().find(|name| is_given(matches, name)) {
        let message = format!("--{named} and the agent would both say what it is shown");
        return Err(CliRefusal::new("arguments", message)
            .hint("use `cofferdam run` with what the agent stands for: cofferdam agent --dry-run AGENT"));
    }
    let listings = HomeListings::of(&caller.homes);
    let arguments_of_call =
        CallArguments { matches, eval: false, caller, tree, environment: None, agent: Some(agent), listings };
    let mut call = arguments_of_call.call(None)?;
    call.policy.command.argv = agent.argv(arguments);
    call.audit_secrets.extend(agent.secrets.iter().map(|name| (*name).to_owned()));
    call.masked.clone_from(&agent.secrets);
    if let Some((name, value)) = agent.key_as(caller) {
        call.policy.command.variables.insert(name.to_owned(), value.to_owned());
        call.audit_secrets.push(name.to_owned());
        call.masked.push(name);
    }
    Ok(call)
}

/// How long the program may take to end after a signal, where nothing else is said.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// The value of `--grace`.
fn grace(matches: &ArgMatches) -> Result<Duration, CliRefusal> {
    let Some(text) = text(matches, "grace") else { return Ok(GRACE) };
    let milliseconds =
        values::milliseconds(text).map_err(|why| CliRefusal::new("arguments", format!("--grace: {why}")))?;
    Ok(Duration::from_millis(milliseconds))
}
