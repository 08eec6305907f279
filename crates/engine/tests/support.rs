//! What the engine says of the network's fields, which the egress gateway alone holds: the jail and containers have it, others say
//! that they do not, and nothing starts that requires what is not held.

use cofferdam_engine::{Engine, Io, Strength};
use cofferdam_policy::{BackendName, Field, NetworkMode, Policy};

fn policy(methods: Option<&[&str]>) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = vec!["true".into()];
    policy.network.mode = NetworkMode::Allowlist;
    policy.network.allow = vec!["a.example".parse().unwrap()];
    policy.network.methods = methods.map(|list| list.iter().map(|m| (*m).to_owned()).collect());
    policy
}

/// No backend at all, where the jail must be: a failure; else a reason to skip.
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
    assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "{why}");
}

#[test]
fn methods_are_held_where_the_gateway_is_as_far_as_it_can_see_them() {
    let engine = Engine::probe();
    let mut asked = 0;
    let get = Some(["GET"].as_slice());
    for (methods, ports, jail, others) in [
        (get, "80", Strength::Full, Strength::None),
        (get, "80,443", Strength::Partial, Strength::None),
        (None, "80,443", Strength::Full, Strength::Full),
    ] {
        let mut policy = policy(methods);
        policy.network.allow = vec![format!("a.example:{ports}").parse().unwrap()];
        for support in engine.support(&policy).iter().filter(|s| s.unavailable.is_none()) {
            // Where init stands in the network, the gateway does; gVisor's own network has no way to it.
            let has_gateway = support.backend == "jail"
                || BackendName::from_name(support.backend)
                    .is_some_and(|backend| backend.is_container() && backend != BackendName::OciRunsc);
            let expected = if has_gateway { jail } else { others };
            assert_eq!(support.fields[&Field::Methods].strength, expected, "{} {ports}", support.backend);
            let mode = if has_gateway { Strength::Full } else { Strength::None };
            assert_eq!(support.fields[&Field::Network].strength, mode, "{}", support.backend);
            asked += 1;
        }
    }
    if asked == 0 {
        skipped("no backend is available here");
    }
}

#[test]
fn required_methods_refuse_in_part_and_best_effort_ones_report() {
    let engine = Engine::probe();
    let mut policy = policy(Some(&["GET", "HEAD"]));
    policy.backend = cofferdam_policy::BackendName::Jail;
    let refused = engine.prepare(&policy).unwrap_err();
    if refused.step != Field::Methods.into() {
        return skipped(&refused.message);
    }
    assert!(refused.message.contains("only in part"), "{refused:?}");
    assert!(refused.hint.unwrap().contains("--best-effort=network.methods"));
    policy.allow_partial(Field::Methods);
    let o = engine.prepare(&policy).unwrap_or_else(|e| panic!("{e:?}")).run(Io::default());
    assert!(o.success, "{o:?}");
    assert_eq!(o.enforcement[&Field::Methods].strength, Strength::Partial);
    assert_eq!(o.enforcement[&Field::Network].strength, Strength::Full);
    assert!(o.network.is_some_and(|network| network.connections == 0 && network.events.is_empty()));
}
