//! What a backend can enforce on this host: per policy field, with the reason. And the refusal when that is not enough.

use std::collections::BTreeMap;

use cofferdam_policy::allow::PLAIN_HTTP;
use cofferdam_policy::{AllowRule, Backend, Field, NetworkLimits, NetworkMode, Policy, SeccompLevel};
use serde::Serialize;

use crate::failure::Failure;
use crate::outcome::{Applied, Enforcement, Strength};

/// What one backend can enforce on this host, per field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Support {
    /// Backend name, such as `jail`.
    pub backend: &'static str,
    /// `None` when the backend can run at all; else why not and how to get it.
    pub unavailable: Option<Failure>,
    /// Per field, for the policy that was asked about.
    pub fields: BTreeMap<Field, Applied>,
}

/// The modes in which a sandbox has a network namespace of its own.
pub(crate) const OWN_NETWORKS: [NetworkMode; 3] = [NetworkMode::None, NetworkMode::Loopback, NetworkMode::Allowlist];

/// Takes back what a cgroup promises of memory where sockets can hold some that is neither charged to it nor counted by the
/// supervisor. `counted` are the modes of a network of the sandbox's own in which everything is.
pub(crate) fn sockets(policy: &Policy, counted: &[NetworkMode], e: &mut Enforcement) {
    let mode = policy.network.mode;
    let uncounted = if policy.process.seccomp.level == SeccompLevel::Strict {
        return; // there are none
    } else if mode == NetworkMode::Host {
        "the host's network is shared, and what netlink sockets and connections not yet accepted buffer there is counted for \
         nobody"
    } else if policy.process.nested_sandboxes {
        "what netlink sockets and connections not yet accepted buffer in networks that sandboxes inside make is not counted"
    } else if !counted.contains(&mode) {
        "what connections not yet accepted buffer is not counted"
    } else {
        return;
    };
    if let Some(memory) = e.get_mut(&Field::Memory).filter(|memory| memory.strength == Strength::Full) {
        *memory = Applied { strength: Strength::Partial, reason: format!("{}; {uncounted}", memory.reason) };
    }
}

/// Says of what sandboxes inside put into file systems in memory of their own by what it is bounded, once it is known whether a
/// cgroup counts it: the supervisor sees only what is mapped.
pub(crate) fn memory_inside(policy: &Policy, e: &mut Enforcement) {
    if !policy.process.nested_sandboxes {
        return;
    }
    let counted = e.get(&Field::Memory).is_some_and(|memory| memory.strength == Strength::Full);
    let reason = if counted {
        "file systems in memory that sandboxes inside make are bounded by limits.memory_mb alone"
    } else {
        "nothing bounds file systems in memory that sandboxes inside make, for no cgroup counts them"
    };
    e.insert(Field::Tmpfs, Applied { strength: Strength::Partial, reason: reason.to_owned() });
    if let Some(memory) = e.get_mut(&Field::Memory).filter(|_| !counted) {
        memory.reason.push_str("; file systems in memory that sandboxes inside make are not counted");
    }
}

/// What every backend can hold of the network's fields beside its mode: they are the egress gateway's, all of them.
pub(crate) fn network(policy: &Policy, gateway: bool) -> [(Field, Applied); 4] {
    let none = "only an egress gateway could hold it, and there is none here";
    let network = &policy.network;
    let api = match (&network.api, gateway) {
        (None, _) => (Strength::Full, "nothing to hold: the policy names no API"),
        (Some(api), true) if api.url.https => (
            Strength::None,
            "the egress gateway speaks no TLS to an API: give its URL with http, or allow its host in network.allow",
        ),
        (Some(_), true) => (Strength::Full, "the egress gateway passes it through, and it alone"),
        (Some(_), false) => (Strength::None, none),
    };
    let proxy = match (&network.upstream_proxy, gateway) {
        (None, _) => (Strength::Full, "nothing to hold: the policy names no proxy"),
        (Some(_), true) => {
            (Strength::Partial, "the proxy resolves names itself: the addresses that it connects to are not checked")
        }
        (Some(_), false) => (Strength::None, none),
    };
    let limits = match (network.limits == NetworkLimits::default(), gateway) {
        (_, true) => (Strength::Full, "the egress gateway counts"),
        (true, false) => (Strength::Full, "nothing to hold: the policy names none"),
        (false, false) => (Strength::None, none),
    };
    let told = |(strength, reason): (Strength, &str)| Applied { strength, reason: reason.to_owned() };
    [
        (Field::Methods, methods(policy, gateway)),
        (Field::Api, told(api)),
        (Field::UpstreamProxy, told(proxy)),
        (Field::NetworkLimits, told(limits)),
    ]
}

/// What can be held of `network.methods`, and of the methods and paths of single rules: what is encrypted has neither that
/// anybody could see, so only rules for ports of plain HTTP are held in full.
fn methods(policy: &Policy, gateway: bool) -> Applied {
    let network = &policy.network;
    let inspects = |rule: &AllowRule| network.methods.is_some() || rule.inspects();
    let open = |rule: &AllowRule| rule.entry.ports.ranges().iter().any(|(first, last)| !plain_http(*first, *last));
    let beyond = network.allow.iter().position(|rule| inspects(rule) && open(rule));
    let applied = |strength, reason: String| Applied { strength, reason };
    if network.methods.is_none() && !network.allow.iter().any(inspects) {
        return applied(Strength::Full, "nothing to hold: any request may be made".to_owned());
    }
    match (gateway, beyond) {
        (false, _) => {
            applied(Strength::None, "only an egress gateway sees a request's method, and there is none here".to_owned())
        }
        (true, None) => applied(Strength::Full, "the egress gateway looks into each request".to_owned()),
        (true, Some(index)) => {
            let entry = &network.allow[index].entry;
            let reason = format!(
                "the egress gateway looks into each request of plain HTTP; what is encrypted it does not, and \
                 network.allow[{index}] (`{entry}`) allows ports for that"
            );
            applied(Strength::Partial, reason)
        }
    }
}

/// Whether all of that range are ports of HTTP in the clear.
fn plain_http(first: u16, last: u16) -> bool {
    (first..=last).all(|port| PLAIN_HTTP.contains(&port))
}

/// The system call filter's level, in words.
pub(crate) fn level(policy: &Policy) -> &'static str {
    match policy.process.seccomp.level {
        SeccompLevel::Disabled => "the floor that every level has",
        SeccompLevel::Basic => "seccomp, level basic",
        SeccompLevel::Standard => "seccomp, level standard",
        SeccompLevel::Strict => "seccomp, level strict",
    }
}

/// What backends that make no room for sandboxes inside can hold of `process.nested_sandboxes`.
pub(crate) fn nested(policy: &Policy) -> Applied {
    let (strength, reason) = match policy.process.nested_sandboxes {
        false => (Strength::Full, "not granted"),
        true => (Strength::None, "only the jail has room for sandboxes inside"),
    };
    Applied { strength, reason: reason.to_owned() }
}

/// One row of `doctor`: a mechanism of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mechanism {
    /// Such as `user namespaces`.
    pub name: &'static str,
    /// Whether this process can use it.
    pub available: bool,
    /// What was tried and what came back.
    pub evidence: String,
    /// What it gives.
    pub gives: &'static str,
    /// The exact command that would provide it, when it is missing and there is one.
    pub enable: Option<String>,
}

/// A backend may run a policy when every required field holds in full.
pub(crate) fn sufficient(policy: &Policy, backend: Backend, e: &Enforcement) -> Result<(), Failure> {
    let short: Vec<(&Field, &Applied)> =
        e.iter().filter(|(f, a)| a.strength != Strength::Full && !policy.enforcement.best_effort.contains(f)).collect();
    let Some((first, applied)) = short.first() else { return Ok(()) };
    let others = match short.len() {
        1 => String::new(),
        n => format!(
            " (and {} more: {})",
            n - 1,
            short[1..].iter().map(|(f, _)| f.name()).collect::<Vec<_>>().join(", ")
        ),
    };
    let strength = if applied.strength == Strength::None { "not at all" } else { "only in part" };
    Err(Failure::new(
        **first,
        format!("the {} backend can hold {} {strength} here: {}{others}", backend.name(), first.name(), applied.reason),
    )
    .hint(format!(
        "--best-effort={} runs with what can be had; `cofferdam doctor` shows what is missing",
        short.iter().map(|(f, _)| f.name()).collect::<Vec<_>>().join(",")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The strength with and without a gateway, and the reason with one.
    fn of(network: &str, field: Field) -> (Strength, Strength, String) {
        let text = format!(r#"{{"version":1,"command":{{"argv":["x"]}},"network":{{"mode":"allowlist",{network}}}}}"#);
        let policy = Policy::from_json(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"));
        let answer = |gateway| super::network(&policy, gateway).into_iter().find(|(f, _)| *f == field).unwrap().1;
        (answer(true).strength, answer(false).strength, answer(true).reason)
    }

    #[test]
    fn what_looks_into_requests_is_held_in_full_only_where_nothing_is_encrypted() {
        use Strength::{Full, None, Partial};
        for (network, with, without) in [
            (r#""allow":["a.example"]"#, Full, Full),
            (r#""allow":["a.example:80,8080"],"methods":["GET"]"#, Full, None),
            (r#""allow":[{"to":"a.example:80","paths":["/v1/*"]},"b.example"]"#, Full, None),
            (r#""allow":["a.example"],"methods":["GET"]"#, Partial, None),
            (r#""allow":[{"to":"a.example:80,443","methods":["GET"]}]"#, Partial, None),
            (r#""allow":[{"to":"a.example:*","paths":["/"]}]"#, Partial, None),
            (r#""allow":["a.example:80","b.example:22"],"methods":["GET"]"#, Partial, None),
        ] {
            let (gateway, plain, reason) = of(network, Field::Methods);
            assert_eq!((gateway, plain), (with, without), "{network}: {reason}");
        }
        let reason = of(r#""allow":["a.example:80",{"to":"b.example","paths":["/"]}]"#, Field::Methods).2;
        assert!(reason.contains("network.allow[1] (`b.example`)"), "{reason}");
    }

    #[test]
    fn api_proxy_and_limits_are_the_gateways() {
        use Strength::{Full, None, Partial};
        let api = r#""api":{"url":"http://127.0.0.1:1"}"#;
        let encrypted = r#""api":{"url":"https://a.example"}"#;
        let proxy = r#""allow":["a"],"upstream_proxy":"http://proxy:3128""#;
        let limits = r#""allow":["a"],"limits":{"up_mb":1}"#;
        for (network, field, with, without) in [
            (api, Field::Api, Full, None),
            (encrypted, Field::Api, None, None),
            (limits, Field::Api, Full, Full),
            // Whose names a proxy resolves, that proxy's word is all there is.
            (proxy, Field::UpstreamProxy, Partial, None),
            (api, Field::UpstreamProxy, Full, Full),
            (limits, Field::NetworkLimits, Full, None),
            (proxy, Field::NetworkLimits, Full, Full),
        ] {
            let (gateway, plain, reason) = of(network, field);
            assert_eq!((gateway, plain), (with, without), "{network}: {reason}");
        }
    }
}
