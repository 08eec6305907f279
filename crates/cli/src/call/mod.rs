//! One call of `run` or `eval`: from parsed arguments to a complete, validated policy.
//!
//! ```text
//! defaults, policy_file or profile ─▶ environment ─▶ options, in their order ─▶ code, preset ─▶ validated ─▶ Call
//! ```
//!
//! Reads what the arguments name (policy file, code on standard input) and nothing else. Starts nothing but the evaluator of
//! profiles and the builder of environments.

pub(crate) mod agent;
pub mod audit_trail;
pub mod code;
pub mod defaults;
pub mod environment;
pub(crate) mod kept_cache;
pub(crate) mod policy_file;
pub mod preset;
pub mod profile;
mod streams;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;
use cofferdam_config::environments::discover::DiscoveryFiles;
use cofferdam_config::environments::{CodeInput, apply, deny_dot_names, deny_moved, eval_base};
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, BackendName, Mount, Network, NetworkLimits, NetworkMode, Policy, Root, Stdin};

use self::agent::AgentCall;
use self::defaults::{fail_without_network, read_own_crates, require_open_files, run_defaults, without_rehash};
use self::environment::ResolvedEnvironment;
use self::kept_cache::KeptCaches;
use self::policy_file::{BasePolicy, refused};
use self::preset::CodeSource;
use self::streams::StreamOptions;
use crate::args::draft::Draft;
use crate::args::option::{Heading, PolicyOption, Takes};
use crate::args::presets::{ToolPreset, preset_of, tool_preset};
use crate::args::table::POLICY_OPTIONS;
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
    build(matches, eval, caller, tree, profile, environment, None)
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
    let mut call = build(matches, false, caller, tree, None, None, Some(agent))?;
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

fn build(
    matches: &ArgMatches,
    eval: bool,
    caller: &Caller,
    tree: &dyn DiscoveryFiles,
    profile: Option<BasePolicy>,
    environment: Option<&ResolvedEnvironment>,
    agent: Option<&AgentCall>,
) -> Result<RunnableCall, CliRefusal> {
    let text = |name: &str| text(matches, name);
    let code = if eval { text("code") } else { None };
    require_consistent(matches, code)?;
    // A policy file and a profile state by themselves what is denied.
    let file = profile.as_ref().map(|profile| profile.origin.clone()).or_else(|| text("policy").map(str::to_owned));
    let file = file.as_deref();
    let mut base = base(matches, eval, caller, profile)?;
    if file.is_none() && starts_outside_cwd(matches, caller) {
        // The image or the directory rarely has the caller's working directory, a container cannot show every directory, and
        // the program does not start there.
        base.filesystem.mounts.clear();
    }
    let network_named = is_given(matches, "network");
    if let Some(environment) = environment {
        let variable = |name: &str| caller.variable(name).map(str::to_owned);
        apply(&mut base, &environment.recipe, environment.project.as_ref(), &caller.homes, variable);
    }
    let base_mounts = base.filesystem.mounts.len();
    let shown = base.filesystem.mounts.clone();
    let starts_elsewhere = file.is_none() && text("workdir").is_some();
    let mut draft = Draft { policy: base, caller, base_mounts, network_named, direct: false, starts_elsewhere };
    let mut presets = match agent {
        Some(agent) => apply_agent(&mut draft, agent)?,
        None if eval => BTreeMap::new(),
        None => apply_presets(&mut draft, matches, file)?,
    };
    let kept_caches = match eval || agent.is_some() || !matches.get_flag("cache") {
        true => None,
        false => Some(keep_caches(&mut draft, &mut presets, matches.get_flag("dry-run"))?),
    };
    let given = apply_options(&mut draft, matches)?;
    let direct = draft.direct;
    let mounts = &draft.policy.filesystem.mounts;
    let settings = agent.map_or(&[][..], |agent| &agent.settings);
    let volumes: Vec<String> = mounts
        .iter()
        .filter(|mount| !shown.contains(mount))
        .filter_map(|mount| match mount {
            Mount::Bind { source, .. } if !settings.contains(source) => Some(source.clone()),
            _ => None,
        })
        .collect();
    let mut policy = draft.policy;
    if network_named && policy.network.mode != NetworkMode::Allowlist {
        replace_network(&mut policy, matches);
    }
    // The network of a policy file is complete.
    if text("policy").is_none() && !direct {
        policy.go_by_hosts_proxy(|name| caller.variable(name).map(str::to_owned));
    }
    let env_given = given.iter().any(|option| option.long == "env");
    let options = stream_options(matches, code);
    // Without code, `eval` is a prompt.
    let talks = !eval || (code.is_none() && !is_given(matches, "file"));
    let tty = options.tty || (file.is_none() && talks && streams::gets_terminal(options, caller, &policy));
    if tty {
        streams::connect_terminal(&mut policy, caller, !env_given);
    }
    if eval {
        let code = code::from_arguments(matches, code, caller, policy.command.stdin == Stdin::Caller)?;
        apply_code(&mut policy, matches, caller, tree, environment, code)?;
    } else if let Some(words) = matches.get_many::<String>("program") {
        policy.command.argv = words.cloned().collect();
        for preset in presets.keys().filter_map(|name| tool_preset(name).ok()) {
            preset.add_argument(&mut policy.command.argv);
        }
    } else if policy.command.argv.is_empty() {
        return Err(CliRefusal::new("arguments", "no program to run")
            .hint("cofferdam run -- PROGRAM [ARGS]..., with options before the dashes"));
    }
    if file.is_none() {
        streams::set_input(&mut policy, options, caller, tty);
        streams::lift_limits(&mut policy, options, tty && environment.is_none());
        if !eval {
            fail_without_network(&mut policy);
            read_own_crates(&mut policy, caller);
            if presets.contains_key("pip") || preset_of(&policy.command.argv) == Some("pip") {
                without_rehash(&mut policy);
            }
        }
        if !policy.filesystem.deny.is_empty() {
            deny_moved(&mut policy, &caller.homes, |name| caller.variable(name));
        }
        if policy.filesystem.root == Root::Host {
            deny_dot_names(&mut policy, caller.around(), &volumes, settings);
        }
    }
    if let Some(agent) = agent {
        agent.hide_other_states(&mut policy)?;
    }
    if let Some(caches) = &kept_caches {
        caches.hide_others(&mut policy)?;
    }
    policy.validate().and_then(|()| require_open_files(&policy)).map_err(|errors| refused(&errors, &given, file))?;
    let here_would_write = file.is_none() && here_would_write(&policy, caller);
    let perhaps_file = code.filter(|c| *c != "-" && c.len() < 256 && !c.contains(['\n', '(', '\0']));
    Ok(RunnableCall {
        policy,
        tty,
        keep_changes: text("keep-changes").map(|dir| caller.absolute(dir)),
        audit_trail: audit_trail::named(matches.get_one::<String>("audit-trail"), caller),
        audit_secrets: matches.get_many("audit-secret").into_iter().flatten().cloned().collect(),
        here_would_write,
        cut_ends_run: file.is_none() && options.json && !options.output_limit,
        grace: grace(matches)?,
        presets,
        kept_caches,
        perhaps_file: perhaps_file.map(str::to_owned),
        masked: Vec::new(),
    })
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

/// What the command line says about the streams.
fn stream_options(matches: &ArgMatches, code: Option<&str>) -> StreamOptions {
    StreamOptions {
        tty: matches.get_flag("tty"),
        input: is_given(matches, "stdin") || matches.get_flag("interactive") || code == Some("-"),
        json: matches.get_flag("json"),
        output_limit: is_given(matches, "output-limit"),
        timeout: is_given(matches, "timeout"),
        cpu_time: is_given(matches, "cpu-time"),
    }
}

/// Whether the working directory is shown read-only, at its own path, and `--here` would let the program write it.
fn here_would_write(policy: &Policy, caller: &Caller) -> bool {
    let shows_cwd = |mount: &&Mount| is_within(&caller.cwd, mount.target());
    let read_only = policy.filesystem.mounts.iter().rev().find(shows_cwd).is_some_and(|mount| {
        matches!(mount, Mount::Bind { source, target, access: Access::ReadOnly, .. }
            if (source, target) == (&caller.cwd, &caller.cwd))
    });
    read_only && policy.command.cwd.as_ref() == Some(&caller.cwd) && caller.require_project().is_ok()
}

/// Refuses two options that read standard input, or two that name the root view.
fn require_consistent(matches: &ArgMatches, code: Option<&str>) -> Result<(), CliRefusal> {
    let flag = |name: &str| matches.get_flag(name);
    let stdin_users: Vec<&str> = [
        (text(matches, "policy") == Some("-")).then_some("--policy -"),
        (code == Some("-")).then_some("code from -"),
        (flag("interactive") || flag("tty")).then_some("-i or -t"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if stdin_users.len() > 1 {
        return Err(CliRefusal::new(
            "arguments",
            format!("{} would both read standard input", stdin_users.join(" and ")),
        )
        .hint("put the policy or the code into a file: --policy FILE, --file FILE"));
    }
    if is_given(matches, "image") && is_given(matches, "root") {
        return Err(
            CliRefusal::new("arguments", "--image and --root both say what / is inside").hint("leave one of them out")
        );
    }
    Ok(())
}

/// The policy to which the options are applied: of the profile, of `--policy`, or the defaults.
fn base(matches: &ArgMatches, eval: bool, caller: &Caller, profile: Option<BasePolicy>) -> Result<Policy, CliRefusal> {
    Ok(match (profile, text(matches, "policy")) {
        (Some(profile), _) => profile.policy,
        (None, Some(path)) => policy_file::read(path)?,
        (None, None) if eval => {
            let shows_files = is_given(matches, "volume")
                || is_given(matches, "root")
                || text(matches, "image").is_some_and(|image| image.starts_with(['/', '.']));
            eval_base(shows_files, &caller.homes)
        }
        (None, None) => run_defaults(caller, text(matches, "workdir").is_some()),
    })
}

/// Whether the root view may lack the caller's working directory, and the program starts outside of it.
fn starts_outside_cwd(matches: &ArgMatches, caller: &Caller) -> bool {
    let workdir = text(matches, "workdir");
    let other_root = text(matches, "root").is_some_and(|root| !matches!(root, "host" | "minimal" | "interpreter"))
        || is_given(matches, "image");
    let container = text(matches, "backend").and_then(BackendName::from_name).is_some_and(BackendName::is_container);
    let outside = workdir.is_some_and(|dir| !is_within(&caller.absolute_inside(dir), &caller.cwd));
    other_root && workdir.is_some() || container && outside
}

/// Drops the network lists of the policy file, because the mode of the command line replaces its mode. The lists of the
/// command line stay, so that validation refuses them.
fn replace_network(policy: &mut Policy, matches: &ArgMatches) {
    let is_given = |name: &str| is_given(matches, name);
    let before = std::mem::replace(&mut policy.network, Network::none());
    policy.network = Network {
        mode: before.mode,
        allow: if is_given("allow") || is_given("allow-private") { before.allow } else { Vec::new() },
        deny: if is_given("deny-host") { before.deny } else { Vec::new() },
        methods: before.methods.filter(|_| is_given("methods")),
        api: before.api.filter(|_| is_given("api")),
        upstream_proxy: before.upstream_proxy.filter(|_| is_given("upstream-proxy")),
        limits: if is_given("network-limit") { before.limits } else { NetworkLimits::default() },
    };
}

/// Sets the policy's command to the interpreter of the environment with this code.
fn apply_code(
    policy: &mut Policy,
    matches: &ArgMatches,
    caller: &Caller,
    tree: &dyn DiscoveryFiles,
    environment: Option<&ResolvedEnvironment>,
    code: CodeSource,
) -> Result<(), CliRefusal> {
    let arguments: Vec<String> = matches.get_many("args").into_iter().flatten().cloned().collect();
    let image_given = is_given(matches, "image");
    match environment.map(|environment| (&environment.recipe, &environment.recipe.code_input)) {
        // An image of the command line replaces the definition's root, and a root of the command line its image.
        Some((_, CodeInput::Image(name))) if !is_given(matches, "root") => {
            preset::apply_in_image(policy, name, code, &arguments)
        }
        Some((_, CodeInput::Preset(name))) if image_given => preset::apply_in_image(policy, name, code, &arguments),
        Some((recipe, CodeInput::Preset(name) | CodeInput::Image(name))) => {
            preset::apply(policy, recipe.surroundings(caller.around()), tree, name, code, &arguments)
        }
        Some((recipe, _)) => {
            let passed = recipe.pass(policy, code::text_of(code)?, &arguments);
            passed.map_err(|message| CliRefusal::new("arguments", message).split_hint())
        }
        None => {
            let name = text(matches, "environment").unwrap_or_default();
            match image_given {
                true => preset::apply_in_image(policy, name, code, &arguments),
                false => preset::apply(policy, caller.around(), tree, name, code, &arguments),
            }
        }
    }
}

/// Applies the options that the presets of `--for` stand for. Those of the command line come later, and replace their mounts too.
fn apply_presets(
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
fn apply_agent(draft: &mut Draft<'_>, agent: &AgentCall) -> Result<BTreeMap<&'static str, Vec<String>>, CliRefusal> {
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
fn keep_caches(
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
fn apply_options(draft: &mut Draft<'_>, matches: &ArgMatches) -> Result<Vec<&'static PolicyOption>, CliRefusal> {
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
