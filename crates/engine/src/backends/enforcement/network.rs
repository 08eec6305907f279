//! The fields of the network: its mode, and what the egress gateway alone enforces.

use cofferdam_policy::allow::PLAIN_HTTP;
use cofferdam_policy::{AllowRule, Field, NetworkLimits, NetworkMode, Policy};

use super::By;
use crate::backends::external::tool::Tool;
use crate::outcome::AppliedField;
use crate::plan::egress::EgressPlan;

/// The modes in which a sandbox has a network namespace of its own.
pub(crate) const OWN_NETWORKS: [NetworkMode; 3] = [NetworkMode::None, NetworkMode::Loopback, NetworkMode::Allowlist];

pub(super) fn mode(policy: &Policy, by: &By<'_>) -> AppliedField {
    match policy.network.mode {
        NetworkMode::Host => AppliedField::full("nothing to hold: the host's network was asked for"),
        NetworkMode::None => AppliedField::full(match by {
            By::Jail { .. } | By::Tool { tool: Tool::Nsjail, .. } => "an empty network namespace, loopback down",
            By::Landlock { .. } => "seccomp refuses every network socket, Landlock TCP behind it",
            By::Tool { .. } => "a network namespace of its own, and the filter refuses its sockets",
            By::Seatbelt(_) => "deny by default",
            By::Container { .. } => "a network namespace with nothing but loopback, and the filter refuses its sockets",
        }),
        NetworkMode::Loopback => match by {
            By::Jail { .. } | By::Tool { .. } | By::Container { .. } => {
                AppliedField::full("a network namespace of its own with loopback")
            }
            By::Landlock { .. } => AppliedField::none("there is no network namespace: loopback would be the host's"),
            By::Seatbelt(_) => AppliedField::partial("the loopback is the host's: every server on it can be reached"),
        },
        NetworkMode::Allowlist => match by {
            By::Jail { egress: Some(plan), .. } | By::Container { egress: Some(plan), .. } => plan.applied(),
            By::Jail { egress: None, .. } => AppliedField::none("its rules are not compiled"),
            By::Container { egress: None, .. } => AppliedField::none(
                "the container's kernel has no routing rules, by which connections would come to the egress gateway",
            ),
            By::Landlock { .. } => AppliedField::none(
                "there is no network namespace from which everything would arrive at the egress gateway: the jail has one",
            ),
            By::Tool { .. } => AppliedField::none("it has no egress gateway: the jail and containers have one"),
            By::Seatbelt(_) => AppliedField::none("Seatbelt knows no hosts by name"),
        },
    }
}

/// The fields beside the mode: all of them are enforced by the egress gateway.
pub(super) fn gateway(policy: &Policy, by: &By<'_>) -> [(Field, AppliedField); 4] {
    let egress: Option<&EgressPlan> = match by {
        By::Jail { egress, .. } | By::Container { egress, .. } => *egress,
        By::Landlock { .. } | By::Tool { .. } | By::Seatbelt(_) => None,
    };
    beside_mode(policy, egress.is_some())
}

fn beside_mode(policy: &Policy, gateway: bool) -> [(Field, AppliedField); 4] {
    let none = || AppliedField::none("only an egress gateway could hold it, and there is none here");
    let network = &policy.network;
    let api = match (&network.api, gateway) {
        (None, _) => AppliedField::full("nothing to hold: the policy names no API"),
        (Some(api), true) if api.url.https => AppliedField::none(
            "the egress gateway speaks no TLS to an API: give its URL with http, or allow its host in network.allow",
        ),
        (Some(_), true) => AppliedField::full("the egress gateway passes it through, and it alone"),
        (Some(_), false) => none(),
    };
    let proxy = match (&network.upstream_proxy, gateway) {
        (None, _) => AppliedField::full("nothing to hold: the policy names no proxy"),
        (Some(_), true) => {
            AppliedField::partial("the proxy resolves names itself: the addresses that it connects to are not checked")
        }
        (Some(_), false) => none(),
    };
    let limits = match (network.limits == NetworkLimits::default(), gateway) {
        (_, true) => AppliedField::full("the egress gateway counts"),
        (true, false) => AppliedField::full("nothing to hold: the policy names none"),
        (false, false) => none(),
    };
    [
        (Field::Methods, methods(policy, gateway)),
        (Field::Api, api),
        (Field::UpstreamProxy, proxy),
        (Field::NetworkLimits, limits),
    ]
}

/// `network.methods`, and the methods and paths of single rules: nothing in between can read them in an encrypted request, so
/// only rules for ports of plain HTTP are enforced in full.
fn methods(policy: &Policy, gateway: bool) -> AppliedField {
    let network = &policy.network;
    let inspects = |rule: &AllowRule| network.methods.is_some() || rule.inspects();
    let open = |rule: &AllowRule| rule.entry.ports.ranges().iter().any(|(first, last)| !plain_http(*first, *last));
    let beyond = network.allow.iter().position(|rule| inspects(rule) && open(rule));
    if network.methods.is_none() && !network.allow.iter().any(inspects) {
        return AppliedField::full("nothing to hold: any request may be made");
    }
    match (gateway, beyond) {
        (false, _) => AppliedField::none("only an egress gateway sees a request's method, and there is none here"),
        (true, None) => AppliedField::full("the egress gateway looks into each request"),
        (true, Some(index)) => {
            let entry = &network.allow[index].entry;
            AppliedField::partial(format!(
                "the egress gateway looks into each request of plain HTTP; what is encrypted it does not, and \
                 network.allow[{index}] (`{entry}`) allows ports for that"
            ))
        }
    }
}

/// Whether every port of the range is one of plain HTTP.
fn plain_http(first: u16, last: u16) -> bool {
    (first..=last).all(|port| PLAIN_HTTP.contains(&port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Strength;

    /// The strength with and without a gateway, and the reason with one.
    fn of(network: &str, field: Field) -> (Strength, Strength, String) {
        let text = format!(r#"{{"version":1,"command":{{"argv":["x"]}},"network":{{"mode":"allowlist",{network}}}}}"#);
        let policy = Policy::from_json(text.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"));
        let answer = |gateway| beside_mode(&policy, gateway).into_iter().find(|(f, _)| *f == field).unwrap().1;
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
