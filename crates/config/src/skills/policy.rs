//! The policy of a skill: for each field the narrower of its manifest and its operator's configuration. Pure.
//!
//! | | manifest | operator | holds |
//! |---|---|---|---|
//! | memory | `memoryMb` | `memoryLimitMb` | the smaller; the manifest's alone where the operator states none |
//! | wall time | `timeoutMs` | `timeoutMs` | the smaller |
//! | processes | `allowSpawn` | `noSpawn` | only if both let it; then the system's programs are there as well |
//! | network | a list | `none` | none |
//! | | a list | `allowlist` | the list, and of it what is in `allowedHosts` too, if that is said |
//! | | an address in the list | `allowlist` | only if `allowedHosts` has it too |
//! | | `true` | `allowlist` | `allowedHosts`, which must be said |
//! | | `true`, or a list with `localhost` | `loopback` | a loopback of the sandbox's own, and no host |
//! | | `false` | any | none, and to name an address to connect or send to is a violation |
//! | the API | | `env.ISCL_API_URL` | reachable, and nothing else by it |
//! | Unix sockets | | `unixSockets` | those of the skill's own processes; the view shows none of the host's |
//! | variables | | `env` | the operator's, of those that neither look like a secret nor steer a program |
//! | files | `files` | | `/skill`, read-only; `/tmp`, 64 MiB, without programs; nothing of the host but what the program needs |

use cofferdam_policy::{
    API_VARIABLE_DEFAULT, Access, AllowEntry, Field, Mount, Network, NetworkApi, NetworkMode, OnViolation, Policy,
    PolicyError, PolicyErrors, Root, Stdin, To,
};

use serde::Serialize;

use super::manifest::{Manifest, Wish, is_loopback};
use super::operator::{CPU_QUOTA_DEFAULT, OperatorConfig, SKILL_DIRECTORY, TMP_MB};

/// The main programs of skills, each with the interpreter that runs it. The one that a skill has is run if the operator names none.
const PROGRAMS: &[(&str, &[&str])] =
    &[("run", &[]), ("main.py", &["python3"]), ("main.js", &["node"]), ("main.mjs", &["node"]), ("main.sh", &["sh"])];

/// Whether there is a program to run: the operator's, or one of the skill's main programs.
pub fn names_program(manifest: &Manifest, operator: &OperatorConfig) -> bool {
    operator.command.is_some() || manifest.files.iter().any(|file| PROGRAMS.iter().any(|(name, _)| file.path == *name))
}

/// The command of an image: its entry point, followed by its own arguments if the caller gives none. Without an entry point its
/// arguments are the command. [`None`] if it has neither.
pub fn image_program(entry_point: Vec<String>, own: Vec<String>, given: &[String]) -> Option<Vec<String>> {
    let command = if entry_point.is_empty() || given.is_empty() { [entry_point, own].concat() } else { entry_point };
    (!command.is_empty()).then_some(command)
}

/// The side that set a limit: the one with the lower value, or the manifest if both are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The skill's publisher.
    Manifest,
    /// The operator, who runs the skill.
    Operator,
}

/// The side that set each limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LimitsFrom {
    /// Of `limits.memory_mb`.
    pub memory_mb: Side,
    /// Of `limits.wall_ms`.
    pub wall_ms: Side,
}

impl LimitsFrom {
    /// The side with the lower of these two values.
    pub fn of(manifest: &Manifest, operator: &OperatorConfig) -> LimitsFrom {
        let side = |asked: u64, granted: Option<u64>| match granted {
            Some(granted) if granted < asked => Side::Operator,
            _ => Side::Manifest,
        };
        LimitsFrom {
            memory_mb: side(manifest.sandbox.memory_mb, operator.memory_limit_mb),
            wall_ms: side(manifest.sandbox.timeout_ms, operator.timeout_ms),
        }
    }
}

/// The policy of a skill whose files are in this directory of the host, with these further arguments.
///
/// # Errors
/// The two sides contradict each other, or there is no program to run; with all reasons.
pub fn policy(
    manifest: &Manifest,
    operator: &OperatorConfig,
    files: &str,
    arguments: &[String],
) -> Result<Policy, PolicyErrors> {
    let mut policy = Policy::base();
    policy.id = Some(manifest.name.clone()).filter(|name| !name.starts_with('-'));
    policy.command.argv = program(manifest, operator)?;
    policy.command.argv.extend_from_slice(arguments);
    policy.command.cwd = Some(SKILL_DIRECTORY.into());
    policy.command.stdin = Stdin::Closed;
    policy.command.variables.extend(operator.variables.clone());
    policy.process.spawn = manifest.sandbox.allow_spawn && !operator.no_spawn;
    policy.process.unix_sockets = operator.unix_sockets;
    // A skill that may start programs gets the system's; any other gets only what its own program needs.
    policy.filesystem.root = if policy.process.spawn { Root::Minimal } else { Root::Interpreter };
    policy.filesystem.mounts.push(Mount::Bind {
        source: files.into(),
        target: SKILL_DIRECTORY.into(),
        access: Access::ReadOnly,
        exec: true,
        optional: false,
    });
    let volumes = operator.volumes.iter();
    policy.filesystem.mounts.extend(volumes.map(|volume| Mount::Tmpfs {
        target: volume.target.clone(),
        size_mb: volume.size_mb,
        exec: false,
    }));
    // All backends can use a directory as root; other images need containers.
    if let Some(image) = &operator.image {
        let path = image.starts_with('/');
        policy.filesystem.root = if path { Root::Directory(image.clone()) } else { Root::Image(image.clone()) };
    }
    policy.network = network(manifest, operator)?;
    policy.limits.memory_mb = manifest.sandbox.memory_mb.min(operator.memory_limit_mb.unwrap_or(u64::MAX));
    policy.limits.cpu_millis = (operator.cpu_quota.unwrap_or(CPU_QUOTA_DEFAULT) / 100).max(1);
    policy.limits.wall_ms = manifest.sandbox.timeout_ms.min(operator.timeout_ms.unwrap_or(u64::MAX));
    policy.limits.tmpfs_mb = TMP_MB;
    policy.limits.processes = operator.max_processes.unwrap_or(policy.limits.processes);
    // The publisher and the operator agreed on the manifest, so it must be enforced in full.
    let named = [Field::Memory, Field::WallTime, Field::Tmpfs];
    named.into_iter().for_each(|field| policy.require(field));
    if operator.cpu_quota.is_some() {
        policy.require(Field::CpuShare);
    }
    policy.on_violation = OnViolation::Terminate;
    policy.validate()?;
    Ok(policy)
}

fn one(path: &str, problem: String, accepted: &str) -> PolicyErrors {
    PolicyErrors(vec![PolicyError { path: path.into(), value: String::new(), problem, accepted: accepted.into() }])
}

fn program(manifest: &Manifest, operator: &OperatorConfig) -> Result<Vec<String>, PolicyErrors> {
    if let Some(command) = &operator.command {
        return Ok(command.clone());
    }
    let has = |name: &str| manifest.files.iter().any(|file| file.path == name);
    let mut there = PROGRAMS.iter().filter(|(name, _)| has(name));
    match (there.next(), there.next()) {
        (Some((name, runner)), None) => {
            let file = format!("{SKILL_DIRECTORY}/{name}");
            Ok(runner.iter().map(|word| (*word).to_owned()).chain([file]).collect())
        }
        (None, _) => {
            let what = if has("SKILL.md") { "instructions in SKILL.md, and " } else { "" };
            let accepted = format!(
                "the program to run, such as [\"python3\"], with its script as the skill's argument: the skill has {what}no \
                 run, main.py, main.js, main.mjs or main.sh"
            );
            Err(one("$.command", "missing".into(), &accepted))
        }
        (Some((first, _)), Some((second, _))) => {
            let problem = format!("missing, and the skill has both {first} and {second}");
            Err(one("$.command", problem, "the program to run"))
        }
    }
}

fn network(manifest: &Manifest, operator: &OperatorConfig) -> Result<Network, PolicyErrors> {
    let loopback = Network { mode: NetworkMode::Loopback, ..Network::none() };
    let allow = match (&manifest.permissions.network_access, operator.network) {
        (Wish::Flag(true), NetworkMode::Loopback) => return Ok(loopback),
        (Wish::List(hosts), NetworkMode::Loopback) if hosts.iter().any(|host| is_loopback(host)) => {
            return Ok(loopback);
        }
        (Wish::Flag(true), NetworkMode::Allowlist) => operator.allowed_hosts.clone().ok_or_else(|| {
            let problem = "missing, and the manifest names no hosts of its own".into();
            one("$.allowedHosts", problem, "the hosts that the skill may reach")
        })?,
        (Wish::List(hosts), NetworkMode::Allowlist) => {
            let wished: Vec<AllowEntry> = hosts.iter().filter_map(|host| host.parse().ok()).collect();
            match &operator.allowed_hosts {
                // An address may be in a network that names must not resolve to, such as the host's own, so it must be granted
                // explicitly.
                None => match wished.iter().find(|wish| matches!(wish.to, To::Net { .. })) {
                    Some(address) => {
                        let problem = format!("missing, and the manifest names an address, {address}");
                        return Err(one(
                            "$.allowedHosts",
                            problem,
                            "the addresses that the skill may reach, named here too",
                        ));
                    }
                    None => wished,
                },
                Some(granted) => both(&wished, granted),
            }
        }
        _ => Vec::new(),
    };
    let api = operator.api.clone().map(|url| NetworkApi { url, variable: API_VARIABLE_DEFAULT.into() });
    if allow.is_empty() && api.is_none() {
        return Ok(Network::none());
    }
    let allow = allow.into_iter().map(Into::into).collect();
    Ok(Network { mode: NetworkMode::Allowlist, allow, api, ..Network::none() })
}

/// The intersection of two lists: the narrower entry of each pair of which one contains the other.
fn both(wished: &[AllowEntry], granted: &[AllowEntry]) -> Vec<AllowEntry> {
    let mut common: Vec<AllowEntry> = Vec::new();
    for (wish, grant) in wished.iter().flat_map(|wish| granted.iter().map(move |grant| (wish, grant))) {
        let narrower = [(grant, wish), (wish, grant)].into_iter().find(|(wide, narrow)| wide.covers(narrow));
        // Hosts that overlap and ports that do: the names of one with the ports that both have.
        let narrower = narrower.map(|(_, narrow)| narrow.clone()).or_else(|| crossed(wish, grant));
        common.extend(narrower.filter(|entry| !common.contains(entry)));
    }
    common
}

fn crossed(one: &AllowEntry, two: &AllowEntry) -> Option<AllowEntry> {
    let to = [(one, two), (two, one)].into_iter().find(|(wide, narrow)| wide.to.covers(&narrow.to))?.1.to.clone();
    let ranges =
        one.ports.ranges().iter().flat_map(|a| two.ports.ranges().iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))));
    let ports: Vec<(u16, u16)> = ranges.filter(|(first, last)| first <= last).collect();
    let ports = cofferdam_policy::Ports::from_ranges(ports);
    (!ports.ranges().is_empty()).then_some(AllowEntry { to, ports })
}
