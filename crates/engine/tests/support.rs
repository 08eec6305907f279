//! What the engine says of fields that no backend holds yet: each says so, and nothing starts that requires them.

use cofferdam_engine::{Engine, Io, Strength};
use cofferdam_policy::{Field, NetworkMode, Policy};

fn policy(methods: Option<&[&str]>) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = vec!["true".into()];
    policy.network.mode = NetworkMode::Allowlist;
    policy.network.allow = vec!["a.example".parse().unwrap()];
    policy.network.methods = methods.map(|list| list.iter().map(|m| (*m).to_owned()).collect());
    policy
}

#[test]
fn methods_are_held_by_no_backend_and_every_one_says_so() {
    let engine = Engine::probe();
    let mut asked = 0;
    for (methods, strength) in [(Some(["GET"].as_slice()), Strength::None), (None, Strength::Full)] {
        for support in engine.support(&policy(methods)).iter().filter(|s| s.unavailable.is_none()) {
            assert_eq!(support.fields[&Field::Methods].strength, strength, "{}", support.backend);
            asked += 1;
        }
    }
    if asked == 0 {
        eprintln!("skipped: no backend is available here");
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"));
    }
}

#[test]
fn required_methods_refuse_and_best_effort_ones_are_told() {
    let engine = Engine::probe();
    let mut policy = policy(Some(&["GET", "HEAD"]));
    let refused = engine.prepare(&policy).unwrap_err();
    assert_eq!(refused.step, "network.mode", "{refused:?}");
    assert!(refused.message.contains("network.methods"), "{refused:?}");
    policy.allow_partial(Field::Network);
    let refused = engine.prepare(&policy).unwrap_err();
    assert_eq!(refused.step, "network.methods", "{refused:?}");
    assert!(refused.hint.unwrap().contains("--best-effort=network.methods"));
    policy.allow_partial(Field::Methods);
    match engine.prepare(&policy) {
        Ok(prepared) => {
            let o = prepared.run(Io::default());
            assert!(o.success, "{o:?}");
            assert_eq!(o.enforcement[&Field::Methods].strength, Strength::None);
        }
        Err(failure) => {
            eprintln!("skipped: {}", failure.message);
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "{failure:?}");
        }
    }
}
