//! Configurations of any bytes, in each of their forms, what agents write, and what stands in an audit trail. The fuzz targets hold the same for longer.

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

const RECORD: &str = include_str!("seeds/audit_record/start");
const RECORDS: &str = include_str!("seeds/audit_record/checkpoint");

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

/// Frames, some of them whole, some of them replies.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let bodies = prop::sample::select(vec![
        r#"{"type":"ready"}"#,
        r#"{"type":"pong"}"#,
        r#"{"type":"result","id":"7f","exit_code":-1,"stdout":"\\u0000"}"#,
        r#"{"type":"error","message":"x"}"#,
        r#"{"type":"result","id":"7f"}"#,
        "[",
        "",
    ]);
    prop::collection::vec((bodies, prop_oneof![4 => Just(0i64), 1 => -3i64..1000]), 0..6).prop_map(|all| {
        let frame = |(body, wrong): (&str, i64)| {
            let length = (body.len() as i64 + wrong).max(0) as u32;
            [&length.to_be_bytes()[..], body.as_bytes()].concat()
        };
        all.into_iter().flat_map(frame).collect()
    })
}

/// Lines of a trail, some of them changed.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![RECORD, RECORDS]).prop_map(str::to_owned);
    let change = (any::<prop::sample::Index>(), prop_oneof!["[0-9]{1,20}", "\"[a-z_]{0,16}\"", "\\PC{0,6}"]);
    (known, prop::collection::vec(change, 0..4)).prop_map(|(text, changes)| {
        let mut text: Vec<char> = text.chars().collect();
        for (at, put) in changes {
            let at = at.index(text.len());
            text.splice(at..(at + put.len()).min(text.len()), put.chars());
        }
        text.into_iter().collect::<String>().into_bytes()
    })
}

proptest! {
    #[test]
    fn what_stands_in_a_trail_is_a_record_or_is_told(bytes in prop_oneof![any::<Vec<u8>>(), lines()]) {
        untrusted::trail(&bytes);
    }

    #[test]
    fn what_an_agent_writes_is_replies_up_to_the_first_mistake(bytes in prop_oneof![any::<Vec<u8>>(), frames()]) {
        untrusted::frames(&bytes);
    }

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
