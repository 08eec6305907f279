//! Configurations of any bytes, in each of their forms. The fuzz target holds the same for longer.

#[path = "common/untrusted.rs"]
mod untrusted;

use proptest::prelude::*;
use serde_json::{Value, json};

const LEGACY: &str = r#"{"name":"x","mode":"EXEC","hostname":"h","cmd":["true"],"env":["A=b"],"log_level":"info",
    "mount":[{"src":"/srv","dst":"/data","fstype":"bind","rw":true},{"src":"","dst":"/tmp","fstype":"tmpfs","rw":true}],
    "rlimit_as":1048576,"rlimit_cpu":5,"seccomp_mode":2,"seccomp_string":["ptrace","clone","no_such"],
    "time_limit":9,"clone_new":{"net":false,"user":true,"pid":true,"ns":true}}"#;

const NSJAIL: &str = r#"{"name":"x","exec_bin":{"path":"/usr/bin/true","arg":["a"],"arg0":"true"},"envar":["A=b","C"],
    "hostname":"h","clone_newnet":false,"time_limit":"9","rlimit_cpu":"5","cgroup_mem_max":"1048576",
    "mount":[{"src":"/","dst":"/","is_bind":true},{"dst":"/data","fstype":"tmpfs","rw":true,"options":"size=1"}]}"#;

const POLICY: &str = r#"{"version":1,"command":{"argv":["true"]},"filesystem":{"root":"host"}}"#;

/// Any value where a configuration has one.
fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>(), "[/.a-z]{0,12}", Just("/proc/x".to_owned()), Just("/a/../b".to_owned())];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        text.prop_map(Value::from),
        Just(json!([])),
        Just(json!([{}, {"dst": "/x"}, "y", 7])),
    ]
}

/// One form with some of its values replaced, in it and in its first mount.
fn changed() -> impl Strategy<Value = Vec<u8>> {
    let form = prop::sample::select(vec![LEGACY, NSJAIL, POLICY]);
    (form, prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), value()), 1..4)).prop_map(
        |(form, changes)| {
            let mut whole: Value = serde_json::from_str(form).unwrap();
            for (at, in_mount, value) in changes {
                let place = match in_mount && whole["mount"][0].is_object() {
                    true => &mut whole["mount"][0],
                    false => &mut whole,
                };
                let fields = place.as_object_mut().unwrap();
                // A change before this one may have emptied it.
                let Some(key) = fields.keys().nth(at.index(fields.len().max(1))).cloned() else { continue };
                fields.insert(key, value);
            }
            whole.to_string().into_bytes()
        },
    )
}

proptest! {
    #[test]
    fn a_configuration_is_refused_or_a_policy(bytes in prop_oneof![any::<Vec<u8>>(), changed()]) {
        untrusted::configuration(&bytes);
    }
}

#[test]
fn a_truncated_configuration_is_refused_by_its_name() {
    for form in [LEGACY, NSJAIL, POLICY] {
        untrusted::configuration(form.as_bytes());
        for end in 0..form.len() {
            untrusted::configuration(&form.as_bytes()[..end]);
        }
    }
}
