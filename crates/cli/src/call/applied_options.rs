//! The options of a call, applied to its policy: those that presets and agents stand for first, then those of the command line.

use std::collections::BTreeMap;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::agent::AgentCall;
use super::kept_cache::KeptCaches;
use crate::args::draft::Draft;
use crate::args::option::{Heading, PolicyOption, Takes};
use crate::args::presets::{ToolPreset, tool_preset};
use crate::args::table::POLICY_OPTIONS;
use crate::args::values;
use crate::refusal::CliRefusal;

/// Applies the options that the presets of `--for` stand for. Those of the command line come later, and replace their mounts too.
///
/// # Errors
/// A preset is unknown, or beside a policy file.
pub(super) fn apply_presets(
    draft: &mut Draft<'_>,
    matches: &ArgMatches,
    file: Option<&str>,
) -> Result<BTreeMap<&'static str, Vec<String>>, CliRefusal> {
    let mut presets = BTreeMap::new();
    let network_named = draft.network_named;
    for name in matches.get_many::<String>("for").into_iter().flatten() {
        if let Some(file) = file {
            let message = format!("--for {name} and {file} would both say what the tool may do");
            return Err(CliRefusal::new("arguments", message)
                .hint("leave --for out, and write what it stands for: --for TOOL --dry-run"));
        }
        let refused = |message: String| CliRefusal::new("arguments", format!("--for: {message}")).split_hint();
        let preset = tool_preset(name).map_err(refused)?;
        if presets.insert(preset.name, preset.typed()).is_some() {
            continue;
        }
        for (long, value) in preset.options {
            apply_preset_option(draft, long, value, network_named).map_err(refused)?;
        }
    }
    if !presets.is_empty() {
        draft.network_named = network_named;
        draft.base_mounts = draft.policy.filesystem.mounts.len();
    }
    Ok(presets)
}

/// Applies the options that an agent stands for, in the same way.
///
/// # Errors
/// An option of the agent is not possible here.
pub(super) fn apply_agent(
    draft: &mut Draft<'_>,
    agent: &AgentCall,
) -> Result<BTreeMap<&'static str, Vec<String>>, CliRefusal> {
    let network_named = draft.network_named;
    for (long, value) in &agent.options {
        apply_preset_option(draft, long, value, network_named)
            .map_err(|message| CliRefusal::new("arguments", format!("--{long}: {message}")).split_hint())?;
    }
    draft.network_named = network_named;
    draft.base_mounts = draft.policy.filesystem.mounts.len();
    Ok(BTreeMap::from([(agent.agent.name, agent.typed())]))
}

/// Applies one option that is not typed. `network_named`: the command line names a mode, which holds.
fn apply_preset_option(draft: &mut Draft<'_>, long: &str, value: &str, network_named: bool) -> Result<(), String> {
    let option = POLICY_OPTIONS.iter().find(|option| option.long == long);
    let option = option.ok_or_else(|| format!("--{long} is no option"))?;
    // Two presets may have the same home.
    if long == "tmpfs" {
        draft.base_mounts = draft.policy.filesystem.mounts.len();
    }
    if long == "network" && network_named {
        return Ok(());
    }
    (option.apply)(draft, value)?;
    // Limits stay what they are without an option: held as far as the host allows.
    if option.heading != Heading::Limits {
        option.requires.iter().for_each(|field| draft.policy.require(*field));
    }
    Ok(())
}

/// Adds the caches that the presets keep, and the options that they stand for.
///
/// # Errors
/// The presets keep none, or there is no place for them.
pub(super) fn keep_caches(
    draft: &mut Draft<'_>,
    presets: &mut BTreeMap<&'static str, Vec<String>>,
    dry_run: bool,
) -> Result<KeptCaches, CliRefusal> {
    let named: Vec<&ToolPreset> = presets.keys().filter_map(|name| tool_preset(name).ok()).collect();
    let caches = KeptCaches::of(&named, draft.caller, dry_run)?;
    for mount in caches.mounts()? {
        draft.mount(mount);
    }
    draft.base_mounts = draft.policy.filesystem.mounts.len();
    if let Some(typed) = presets.values_mut().next() {
        typed.extend(caches.typed());
    }
    Ok(caches)
}

/// Applies the options of the command line in their order, the late ones at the end. Returns those that were given.
///
/// # Errors
/// A value is wrong.
pub(super) fn apply_options(
    draft: &mut Draft<'_>,
    matches: &ArgMatches,
) -> Result<Vec<&'static PolicyOption>, CliRefusal> {
    let mut given: Vec<(usize, &'static PolicyOption, &str)> = Vec::new();
    for option in POLICY_OPTIONS {
        if matches.value_source(option.long) != Some(ValueSource::CommandLine) {
            continue;
        }
        let mut indices = matches.indices_of(option.long).into_iter().flatten();
        if option.takes == Takes::Nothing {
            given.push((indices.next_back().unwrap_or(0), option, ""));
        } else {
            let values = matches.get_many::<String>(option.long).into_iter().flatten();
            given.extend(indices.zip(values).map(|(index, value)| (index, option, value.as_str())));
        }
    }
    given.sort_by_key(|(index, option, _)| (option.late, *index));
    for (_, option, value) in &given {
        (option.apply)(draft, value)
            .map_err(|message| message.replace(values::OPTION, &format!("--{}", option.long)))
            .map_err(|message| CliRefusal::new("arguments", format!("--{}: {message}", option.long)).split_hint())?;
        // A field that an option names becomes required. `--best-effort` is applied later and may undo that.
        option.requires.iter().for_each(|field| draft.policy.require(*field));
    }
    Ok(given.into_iter().map(|(_, option, _)| option).collect())
}
