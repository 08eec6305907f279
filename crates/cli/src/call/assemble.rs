//! The steps from the arguments of a call to its policy, in their order.
//!
//! ```text
//! start ─▶ options ─▶ network, terminal ─▶ command ─▶ defaults without a file ─▶ what others keep is hidden ─▶ validated
//! ```

use std::collections::BTreeMap;

use clap::ArgMatches;
use cofferdam_config::environments::discover::DiscoveryFiles;
use cofferdam_config::environments::{CodeInput, HomeListings, apply, deny_dot_names, deny_moved, eval_base};
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, BackendName, Mount, Network, NetworkLimits, NetworkMode, Policy, Root, Stdin};

use super::agent::AgentCall;
use super::applied_options::{apply_agent, apply_options, apply_presets, keep_caches};
use super::defaults::{
    copy_own_artifacts, fail_without_network, read_own_crates, require_open_files, run_defaults, without_rehash,
};
use super::environment::ResolvedEnvironment;
use super::kept_cache::KeptCaches;
use super::kept_cache::require_caches_of_here;
use super::policy_file::{self, BasePolicy, refused};
use super::preset::CodeSource;
use super::streams::{self, StreamOptions};
use super::{RunnableCall, audit_trail, code, grace, is_given, preset, text};
use crate::args::draft::Draft;
use crate::args::option::PolicyOption;
use crate::args::presets::{preset_of, tool_preset};
use crate::caller::Caller;
use crate::refusal::CliRefusal;

/// What a call is made of.
pub(super) struct CallArguments<'a> {
    /// The command line.
    pub matches: &'a ArgMatches,
    /// Whether it is an `eval`.
    pub eval: bool,
    /// The caller.
    pub caller: &'a Caller,
    /// The host's files, for finding interpreters.
    pub tree: &'a dyn DiscoveryFiles,
    /// The defined environment of an `eval`.
    pub environment: Option<&'a ResolvedEnvironment>,
    /// The agent that is run.
    pub agent: Option<&'a AgentCall>,
    /// What the caller's homes hold.
    pub listings: HomeListings<'a>,
}

/// What the options have made of the policy.
struct WithOptions {
    policy: Policy,
    /// Those of the command line.
    given: Vec<&'static PolicyOption>,
    /// The presets, and the options that each stands for.
    presets: BTreeMap<&'static str, Vec<String>>,
    kept_caches: Option<KeptCaches>,
    /// The sources of the volumes that the options add.
    volumes: Vec<String>,
    /// Whether the gateway ignores the proxy that the caller's variables name.
    direct: bool,
}

impl CallArguments<'_> {
    /// The call, with a validated policy.
    ///
    /// # Errors
    /// The arguments contradict each other, name what cannot be read, or do not make a valid policy.
    pub(super) fn call(&self, profile: Option<BasePolicy>) -> Result<RunnableCall, CliRefusal> {
        let (matches, caller) = (self.matches, self.caller);
        let code = if self.eval { text(matches, "code") } else { None };
        require_consistent(matches, code)?;
        // A policy file and a profile state by themselves what is denied.
        let of_profile = profile.as_ref().map(|profile| profile.origin.clone());
        let file = of_profile.or_else(|| text(matches, "policy").map(str::to_owned));
        let file = file.as_deref();
        let start = self.start(profile, file)?;
        let options = self.options(start, file)?;
        let WithOptions { mut policy, given, presets, kept_caches, volumes, direct } = options;
        self.set_network(&mut policy, direct);
        let streams = stream_options(matches, code);
        let tty = self.set_terminal(&mut policy, streams, code, file, &given);
        self.set_command(&mut policy, code, &presets)?;
        if file.is_none() {
            streams::set_input(&mut policy, streams, caller, tty);
            streams::lift_limits(&mut policy, streams, tty && self.environment.is_none());
            self.set_defaults(&mut policy, &presets, &volumes);
        }
        if let Some(agent) = self.agent {
            agent.hide_other_states(&mut policy)?;
        }
        if let Some(caches) = &kept_caches {
            caches.hide_others(&mut policy)?;
        }
        policy
            .validate()
            .and_then(|()| require_open_files(&policy))
            .map_err(|errors| refused(&errors, &given, file))?;
        let here_would_write = file.is_none() && here_would_write(&policy, caller);
        let perhaps_file = code.filter(|c| *c != "-" && c.len() < 256 && !c.contains(['\n', '(', '\0']));
        Ok(RunnableCall {
            policy,
            tty,
            keep_changes: text(matches, "keep-changes").map(|dir| caller.absolute(dir)),
            audit_trail: audit_trail::named(matches.get_one::<String>("audit-trail"), caller),
            audit_secrets: matches.get_many("audit-secret").into_iter().flatten().cloned().collect(),
            here_would_write,
            cut_ends_run: file.is_none() && streams.json && !streams.output_limit,
            grace: grace(matches)?,
            presets,
            kept_caches,
            perhaps_file: perhaps_file.map(str::to_owned),
            masked: Vec::new(),
        })
    }

    /// The policy of the profile, of `--policy`, or the defaults.
    fn base(&self, profile: Option<BasePolicy>) -> Result<Policy, CliRefusal> {
        let matches = self.matches;
        Ok(match (profile, text(matches, "policy")) {
            (Some(profile), _) => profile.policy,
            (None, Some(path)) => policy_file::read(path)?,
            (None, None) if self.eval => {
                let shows_files = is_given(matches, "volume")
                    || is_given(matches, "root")
                    || text(matches, "image").is_some_and(|image| image.starts_with(['/', '.']));
                eval_base(shows_files, &self.caller.homes)
            }
            (None, None) => run_defaults(self.caller, &self.listings, text(matches, "workdir").is_some()),
        })
    }

    /// The policy that the options are applied to.
    fn start(&self, profile: Option<BasePolicy>, file: Option<&str>) -> Result<Policy, CliRefusal> {
        let mut base = self.base(profile)?;
        if file.is_none() && starts_outside_cwd(self.matches, self.caller) {
            // The image or the directory rarely has the caller's working directory, a container cannot show every directory,
            // and the program does not start there.
            base.filesystem.mounts.clear();
        }
        if let Some(environment) = self.environment {
            let variable = |name: &str| self.caller.variable(name).map(str::to_owned);
            apply(&mut base, &environment.recipe, environment.project.as_ref(), &self.caller.homes, variable);
        }
        Ok(base)
    }

    /// Applies the options that presets and the agent stand for, and then those of the command line.
    fn options(&self, start: Policy, file: Option<&str>) -> Result<WithOptions, CliRefusal> {
        let matches = self.matches;
        let shown = start.filesystem.mounts.clone();
        let mut draft = Draft {
            policy: start,
            caller: self.caller,
            base_mounts: shown.len(),
            network_named: is_given(matches, "network"),
            direct: false,
            starts_elsewhere: file.is_none() && text(matches, "workdir").is_some(),
        };
        let mut presets = match self.agent {
            Some(agent) => apply_agent(&mut draft, agent)?,
            None if self.eval => BTreeMap::new(),
            None => apply_presets(&mut draft, matches, file)?,
        };
        let kept_caches = match self.eval || self.agent.is_some() || !matches.get_flag("cache") {
            true => None,
            false => {
                require_caches_of_here(text(matches, "workdir"), self.caller)?;
                Some(keep_caches(&mut draft, &mut presets, matches.get_flag("dry-run"))?)
            }
        };
        let given = apply_options(&mut draft, matches)?;
        let settings = self.settings();
        let mounts = draft.policy.filesystem.mounts.iter().filter(|mount| !shown.contains(mount));
        let volumes = mounts.filter_map(Mount::source).filter(|source| !settings.iter().any(|known| known == source));
        let volumes = volumes.map(str::to_owned).collect();
        Ok(WithOptions { volumes, given, presets, kept_caches, direct: draft.direct, policy: draft.policy })
    }

    /// The settings that the agent is shown.
    fn settings(&self) -> &[String] {
        self.agent.map_or(&[], |agent| &agent.settings)
    }

    fn set_network(&self, policy: &mut Policy, direct: bool) {
        if is_given(self.matches, "network") && policy.network.mode != NetworkMode::Allowlist {
            replace_network(policy, self.matches);
        }
        // The network of a policy file is complete.
        if text(self.matches, "policy").is_none() && !direct {
            policy.go_by_hosts_proxy(|name| self.caller.variable(name).map(str::to_owned));
        }
    }

    /// Whether the program gets a terminal, which is then its input.
    fn set_terminal(
        &self,
        policy: &mut Policy,
        streams: StreamOptions,
        code: Option<&str>,
        file: Option<&str>,
        given: &[&'static PolicyOption],
    ) -> bool {
        // Without code, `eval` is a prompt.
        let talks = !self.eval || (code.is_none() && !is_given(self.matches, "file"));
        let tty = streams.tty || (file.is_none() && talks && streams::gets_terminal(streams, self.caller, policy));
        if tty {
            let env_given = given.iter().any(|option| option.long == "env");
            streams::connect_terminal(policy, self.caller, !env_given);
        }
        tty
    }

    fn set_command(
        &self,
        policy: &mut Policy,
        code: Option<&str>,
        presets: &BTreeMap<&'static str, Vec<String>>,
    ) -> Result<(), CliRefusal> {
        if self.eval {
            let code = code::from_arguments(self.matches, code, self.caller, policy.command.stdin == Stdin::Caller)?;
            return self.apply_code(policy, code);
        }
        if let Some(words) = self.matches.get_many::<String>("program") {
            policy.command.argv = words.cloned().collect();
            for preset in presets.keys().filter_map(|name| tool_preset(name).ok()) {
                preset.add_argument(&mut policy.command.argv);
            }
        } else if policy.command.argv.is_empty() {
            return Err(CliRefusal::new("arguments", "no program to run")
                .hint("cofferdam run -- PROGRAM [ARGS]..., with options before the dashes"));
        }
        Ok(())
    }

    /// What a call has that no policy file describes.
    fn set_defaults(&self, policy: &mut Policy, presets: &BTreeMap<&'static str, Vec<String>>, volumes: &[String]) {
        let mut shown = volumes.to_vec();
        if !self.eval {
            fail_without_network(policy);
            read_own_crates(policy, self.caller);
            shown.extend(copy_own_artifacts(policy, self.caller));
            if presets.contains_key("pip") || preset_of(&policy.command.argv) == Some("pip") {
                without_rehash(policy);
            }
        }
        if !policy.filesystem.deny.is_empty() {
            deny_moved(policy, &self.listings, |name| self.caller.variable(name));
        }
        if policy.filesystem.root == Root::Host {
            deny_dot_names(policy, self.caller.around(), &self.listings, &shown, self.settings());
        }
    }

    /// Sets the policy's command to the interpreter of the environment with this code.
    fn apply_code(&self, policy: &mut Policy, code: CodeSource) -> Result<(), CliRefusal> {
        let arguments: Vec<String> = self.matches.get_many("args").into_iter().flatten().cloned().collect();
        let image_given = is_given(self.matches, "image");
        match self.environment.map(|environment| (&environment.recipe, &environment.recipe.code_input)) {
            // An image of the command line replaces the definition's root, and a root of the command line its image.
            Some((_, CodeInput::Image(name))) if !is_given(self.matches, "root") => {
                preset::apply_in_image(policy, name, code, &arguments)
            }
            Some((_, CodeInput::Preset(name))) if image_given => preset::apply_in_image(policy, name, code, &arguments),
            Some((recipe, CodeInput::Preset(name) | CodeInput::Image(name))) => {
                preset::apply(policy, recipe.surroundings(self.caller.around()), self.tree, name, code, &arguments)
            }
            Some((recipe, _)) => {
                let passed = recipe.pass(policy, code::text_of(code)?, &arguments);
                passed.map_err(|message| CliRefusal::new("arguments", message).split_hint())
            }
            None => {
                let name = text(self.matches, "environment").unwrap_or_default();
                match image_given {
                    true => preset::apply_in_image(policy, name, code, &arguments),
                    false => preset::apply(policy, self.caller.around(), self.tree, name, code, &arguments),
                }
            }
        }
    }
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
        allow: if ["allow", "allow-private", "allow-encrypted-hello"].into_iter().any(is_given) {
            before.allow
        } else {
            Vec::new()
        },
        deny: if is_given("deny-host") { before.deny } else { Vec::new() },
        methods: before.methods.filter(|_| is_given("methods")),
        api: before.api.filter(|_| is_given("api")),
        upstream_proxy: before.upstream_proxy.filter(|_| is_given("upstream-proxy")),
        limits: if is_given("network-limit") { before.limits } else { NetworkLimits::default() },
    };
}
