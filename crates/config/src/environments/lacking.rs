//! What code of an environment lacked, by the words of its own output, and the key of the configuration that gives it. Pure.
//!
//! Unvetted code chooses the words, so that a hint is made only where the policy says that it can be true, and names nothing
//! that stands in them.

use cofferdam_engine::network_event::{NetworkKind, NetworkReason};
use cofferdam_engine::{Ending, Outcome};
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, NetworkMode, Policy};

use super::spec::WORKSPACE;
use super::{Environment, EnvironmentKind, Project, Rank};
use crate::complaints::{Complaint, ComplaintKind, complaints};

/// Most hints of one call.
const MOST: usize = 3;

/// Most lines of each stream that are looked at, from its end.
const MOST_LINES: usize = 200;

/// Hints for a call that failed, for a model and for the operator who reads along.
pub fn hints(environment: &Environment, project: Option<&Project>, policy: &Policy, outcome: &Outcome) -> Vec<String> {
    if outcome.success || outcome.outcome != Ending::Exited {
        return Vec::new();
    }
    let last = |text: &str| text.lines().rev().take(MOST_LINES).map(str::to_owned).collect::<Vec<_>>();
    let said = complaints(last(&outcome.stderr).into_iter().chain(last(&outcome.stdout)));
    let mut hints: Vec<String> = refused_host(environment, outcome).into_iter().collect();
    for hint in said.iter().filter_map(|complaint| hint(environment, project, policy, complaint)) {
        if !hints.contains(&hint) && hints.len() < MOST {
            hints.push(hint);
        }
    }
    hints
}

fn hint(
    environment: &Environment,
    project: Option<&Project>,
    policy: &Policy,
    complaint: &Complaint,
) -> Option<String> {
    let table = || table_of(environment);
    let configurable = matches!(environment.rank, Rank::Preset | Rank::Configuration);
    match complaint.kind {
        ComplaintKind::NoNetwork | ComplaintKind::ConnectionRefused
            if policy.network.mode == NetworkMode::None && configurable =>
        {
            Some(format!(
                "the code has no network; the operator gives it hosts by allow = [\"HOST\"] in {} of the configuration",
                table()
            ))
        }
        ComplaintKind::ReadOnly => {
            let shown = project.filter(|project| project.access == Access::ReadOnly)?;
            let of_project =
                complaint.object.as_deref().is_some_and(|object| is_within(object, shown.mount_point.as_str()));
            Some(if of_project {
                format!(
                    "{} is read-only; the operator lets code change it by access = \"rw\", or a copy of it by access = \
                     \"cow\", in [project] of the configuration",
                    shown.mount_point
                )
            } else {
                workspace(policy)?
            })
        }
        ComplaintKind::NoModule if configurable && is_python(environment) => {
            Some(format!("the operator installs packages by packages = [\"NAME\"] in {} of the configuration", table()))
        }
        _ => None,
    }
}

/// For a host that the allowlist has and that lies in a private network, and for one that it has not.
fn refused_host(environment: &Environment, outcome: &Outcome) -> Option<String> {
    if environment.overrides.allow.is_empty() || environment.rank != Rank::Configuration {
        return None;
    }
    let events = outcome.network.iter().flat_map(|network| &network.events);
    let refused = events.filter(|event| event.kind == NetworkKind::Refused).find_map(|event| event.reason)?;
    let table = table_of(environment);
    match refused {
        NetworkReason::AddressNotPublic => Some(format!(
            "a host that is allowed has a private address; the operator allows that by allow_private = [\"HOST\"] in {table} of \
             the configuration"
        )),
        NetworkReason::NotAllowed => Some(format!(
            "a host is not among those that are allowed; the operator adds it by allow = [\"HOST\"] in {table} of the \
             configuration"
        )),
        _ => None,
    }
}

/// The table of the configuration that defines an environment, or would.
fn table_of(environment: &Environment) -> String {
    match environment.rank {
        Rank::Preset => format!("[environments.{0}] with preset = \"{0}\"", environment.name),
        _ if environment.name.contains('.') => format!("[environments.\"{}\"]", environment.name),
        _ => format!("[environments.{}]", environment.name),
    }
}

fn is_python(environment: &Environment) -> bool {
    let preset = matches!(&environment.kind, EnvironmentKind::Preset(name) if name == "python");
    preset && environment.overrides.interpreter.is_empty()
}

fn workspace(policy: &Policy) -> Option<String> {
    let there = policy.filesystem.mounts.iter().any(|mount| mount.target() == WORKSPACE);
    there.then(|| format!("code may write in {WORKSPACE}"))
}

#[cfg(test)]
mod tests {
    use super::super::Overrides;
    use super::*;

    fn python(rank: Rank) -> Environment {
        Environment {
            name: "python".into(),
            rank,
            place: String::new(),
            kind: EnvironmentKind::Preset("python".into()),
            overrides: Overrides::default(),
        }
    }

    fn failed(stderr: &str) -> Outcome {
        Outcome { outcome: Ending::Exited, exit_code: Some(1), stderr: stderr.into(), ..Outcome::unstarted(None) }
    }

    #[test]
    fn a_failure_names_the_key_that_gives_what_was_missing() {
        let policy = Policy::base();
        let module = failed("ModuleNotFoundError: No module named 'six'\n");
        let network = failed("socket.gaierror: [Errno -3] Temporary failure in name resolution\n");
        for (rank, table) in [
            (Rank::Preset, "[environments.python] with preset = \"python\""),
            (Rank::Configuration, "[environments.python]"),
        ] {
            let of = |outcome: &Outcome| hints(&python(rank), None, &policy, outcome);
            assert_eq!(
                of(&module),
                [format!("the operator installs packages by packages = [\"NAME\"] in {table} of the configuration")]
            );
            assert!(of(&network)[0].contains("allow = [\"HOST\"]") && of(&network)[0].contains(table));
        }
        // No hint: code that succeeded, an environment that has a network, and one that no configuration defines.
        let success = Outcome { success: true, exit_code: Some(0), ..network.clone() };
        assert!(hints(&python(Rank::Preset), None, &policy, &success).is_empty());
        let mut other = policy.clone();
        other.network.mode = NetworkMode::Host;
        assert!(hints(&python(Rank::Preset), None, &other, &network).is_empty());
        assert!(hints(&python(Rank::Bundled), None, &policy, &network).is_empty());
    }

    #[test]
    fn a_refused_host_names_the_key_that_adds_it_and_not_the_host() {
        use cofferdam_engine::network_event::{NetworkEvent, NetworkVia};
        let refused = |reason| {
            let mut outcome = failed("");
            let event = NetworkEvent::new(NetworkKind::Refused, NetworkVia::Connect);
            let event = NetworkEvent { host: Some("chosen-by-code.example".into()), reason: Some(reason), ..event };
            let network = outcome.network.get_or_insert_default();
            network.events.push(event);
            outcome
        };
        let mut allowed = python(Rank::Configuration);
        allowed.overrides.allow = cofferdam_policy::bundles::allow_rules("@pypi").unwrap();
        let of = |environment: &Environment, reason| hints(environment, None, &Policy::base(), &refused(reason));
        for (reason, key) in [
            (NetworkReason::AddressNotPublic, "allow_private = [\"HOST\"] in [environments.python]"),
            (NetworkReason::NotAllowed, "allow = [\"HOST\"] in [environments.python]"),
        ] {
            let hint = of(&allowed, reason).concat();
            assert!(hint.contains(key) && !hint.contains("chosen-by-code"), "{hint}");
            assert!(of(&python(Rank::Configuration), reason).is_empty(), "it has another network");
        }
        assert!(of(&allowed, NetworkReason::Denied).is_empty());
    }
}
