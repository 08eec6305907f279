//! The schema says what decoding does, and the committed file is the schema of today.

mod common;

use cofferdam_policy::bundles::allow_rules;
use cofferdam_policy::schema::{json_schema, json_schema_text};
use cofferdam_policy::{DenyEntry, HttpUrl, Policy};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn the_committed_schema_is_up_to_date() {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policy.schema.json");
    let text = std::fs::read_to_string(committed).expect("docs/policy.schema.json can be read");
    assert!(
        text == json_schema_text(),
        "docs/policy.schema.json is out of date: \
         cargo run -p cofferdam-policy --features schema --example schema > docs/policy.schema.json"
    );
}

/// Whether a text with a syntax of its own is read by its reader: a schema has no words for what that is.
fn is_read(definition: &str, value: &Value) -> bool {
    let text = value.as_str().or_else(|| value.get("to").and_then(Value::as_str));
    text.is_none_or(|text| match definition {
        "/$defs/AllowRule" => allow_rules(text).is_ok(),
        "/$defs/DenyEntry" => text.parse::<DenyEntry>().is_ok(),
        "/$defs/HttpUrl" => text.parse::<HttpUrl>().is_ok(),
        _ => true,
    })
}

/// Whether the schema's structure accepts a value: every keyword that the schema uses, but the ranges and
/// patterns, which are the business of `validate`.
fn accepts(root: &Value, schema: &Value, value: &Value) -> bool {
    schema.as_object().expect("a schema is an object").iter().all(|(keyword, rule)| match keyword.as_str() {
        "$ref" => {
            let pointer = rule.as_str().and_then(|target| target.strip_prefix('#')).expect("a local reference");
            accepts(root, root.pointer(pointer).expect("the target of a reference"), value) && is_read(pointer, value)
        }
        "oneOf" => rule.as_array().unwrap().iter().filter(|one| accepts(root, one, value)).count() == 1,
        "const" => rule == value || (rule.is_u64() && value.is_u64()),
        "type" => match rule.as_str().expect("one type") {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64(),
            other => panic!("unexpected type {other}"),
        },
        "properties" => value.as_object().is_none_or(|object| {
            object.iter().all(|(key, value)| rule.get(key).is_none_or(|schema| accepts(root, schema, value)))
        }),
        "required" => value
            .as_object()
            .is_none_or(|object| rule.as_array().unwrap().iter().all(|key| object.contains_key(key.as_str().unwrap()))),
        "additionalProperties" => value.as_object().is_none_or(|object| {
            let others = object.iter().filter(|(key, _)| schema["properties"].get(key).is_none());
            others.map(|(_, value)| value).all(|value| match rule {
                Value::Bool(allowed) => *allowed,
                rule => accepts(root, rule, value),
            })
        }),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(root, rule, item))),
        "uniqueItems" => value
            .as_array()
            .is_none_or(|items| items.iter().enumerate().all(|(index, item)| !items[..index].contains(item))),
        "minimum" | "maximum" | "pattern" | "propertyNames" | "minItems" | "enum" => true,
        "$comment" | "$defs" | "$schema" | "default" | "description" | "title" => true,
        other => panic!("unexpected keyword {other}"),
    })
}

/// Every place in a value, as JSON pointers.
fn places(value: &Value, at: String, all: &mut Vec<String>) {
    all.push(at.clone());
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            places(value, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| places(item, format!("{at}/{i}"), all));
        }
        _ => {}
    }
}

/// One change to a policy's text form.
#[derive(Debug, Clone)]
enum Change {
    Replace(Value),
    Remove,
    Add(&'static str, Value),
}

/// Values of every type, and of the forms that some place takes.
fn values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(""),
        json!("host"),
        json!("closed"),
        json!("kill"),
        json!("limits.memory_mb"),
        json!([]),
        json!(["x"]),
        json!([1]),
        json!([null]),
        json!({}),
        json!({"a": "b"}),
        json!({"a": 1}),
        json!({"text": "x"}),
        json!({"to": "x.example"}),
        json!({"to": "x y", "paths": ["/"]}),
        json!({"url": "http://x.example"}),
        json!("http://x.example"),
        json!("x.example:22"),
        json!({"directory": "/x"}),
        json!({"directory": "/x", "text": "x"}),
        json!({"errno": "EPERM"}),
        json!({"type": "bind", "source": "/a", "target": "/b"}),
        json!({"type": "tmpfs", "target": "/b"}),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let keys = vec![
        "memory_mb",
        "argv",
        "type",
        "exec",
        "optional",
        "cwd",
        "id",
        "source",
        "methods",
        "paths",
        "to",
        "upstream_proxy",
        "zzz",
        "version",
        "when",
    ];
    let values = prop::sample::select(values());
    prop_oneof![
        values.clone().prop_map(Change::Replace),
        Just(Change::Remove),
        (prop::sample::select(keys), values).prop_map(|(key, value)| Change::Add(key, value)),
    ]
}

/// A policy with something in every place.
fn example() -> Value {
    let given = json!({
        "version": 1,
        "id": "build",
        "description": "an example",
        "command": {"argv": ["make"], "cwd": "/work/src", "stdin": {"text": "y\n"}},
        "filesystem": {
            "root": {"directory": "/srv/root"},
            "mounts": [
                {"type": "bind", "source": "/srv/project", "target": "/work", "access": "copy_on_write", "exec": true,
                 "optional": true},
                {"type": "tmpfs", "target": "/scratch", "size_mb": 64}
            ],
            "deny": ["/work/secret"]
        },
        "network": {
            "mode": "allowlist",
            "allow": [
                "*.example.org:443",
                {"to": "b.example:80", "methods": ["GET"], "paths": ["/v1/*"], "encrypted_hello": true}
            ],
            "deny": ["a.example.org"],
            "methods": ["GET"],
            "api": {"url": "http://127.0.0.1:8000/v1", "variable": "API"},
            "upstream_proxy": "http://proxy.example:3128",
            "limits": {"connections": 100, "kib_per_second": 1000}
        },
        "process": {"seccomp": {"rules": [
            {"syscalls": ["mkdir"], "action": {"errno": "EPERM"}, "when": [{"index": 1, "op": "eq", "value": 5}]}
        ]}},
        "limits": {"memory_mb": 256},
        "enforcement": {"best_effort": ["limits.memory_mb"]}
    });
    let policy = Policy::from_json(given.to_string().as_bytes()).unwrap_or_else(|errors| panic!("{errors}"));
    serde_json::to_value(&policy).unwrap()
}

#[test]
fn in_each_place_schema_and_decoding_take_the_same_values() {
    let (schema, example) = (json_schema(), example());
    let mut all = Vec::new();
    places(&example, String::new(), &mut all);
    let (mut taken, mut refused) = (0, 0);
    for place in &all {
        let replaced = values().into_iter().map(Change::Replace);
        let added = ["zzz", "version", "exec", "optional", "when"].map(|key| Change::Add(key, json!(false)));
        for change in replaced.chain([Change::Remove]).chain(added) {
            let value = changed(example.clone(), place, change.clone());
            let decoded = Policy::decode(value.to_string().as_bytes());
            assert_eq!(accepts(&schema, &schema, &value), decoded.is_ok(), "{place} {change:?} {decoded:?}");
            *(if decoded.is_ok() { &mut taken } else { &mut refused }) += 1;
        }
    }
    assert!(taken > 100 && refused > 1000, "{taken} taken, {refused} refused");
}

fn changed(mut value: Value, place: &str, change: Change) -> Value {
    match change {
        Change::Replace(new) => *value.pointer_mut(place).unwrap() = new,
        Change::Add(key, new) => {
            if let Some(object) = value.pointer_mut(place).and_then(Value::as_object_mut) {
                object.insert(key.into(), new);
            }
        }
        Change::Remove => {
            if let Some((parent, key)) = place.rsplit_once('/')
                && let Some(object) = value.pointer_mut(parent).and_then(Value::as_object_mut)
            {
                object.remove(&key.replace("~1", "/").replace("~0", "~"));
            }
        }
    }
    value
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn schema_and_decoding_accept_the_same(
        policy in common::policy(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 0..3),
    ) {
        let schema = SCHEMA.with(Clone::clone);
        let mut value = serde_json::to_value(&policy).unwrap();
        for (index, change) in changes {
            let mut all = Vec::new();
            places(&value, String::new(), &mut all);
            let place = index.get(&all).clone();
            value = changed(value, &place, change);
        }
        let text = value.to_string();
        let decoded = Policy::decode(text.as_bytes());
        prop_assert_eq!(accepts(&schema, &schema, &value), decoded.is_ok(), "{}\n{:?}", text, decoded.err());
    }
}

thread_local! {
    static SCHEMA: Value = json_schema();
}

#[test]
fn valid_policies_are_accepted_and_near_misses_are_not() {
    let schema = json_schema();
    let example = example();
    for value in [&example, &json!({"version": 1})] {
        assert!(accepts(&schema, &schema, value));
        assert!(Policy::decode(value.to_string().as_bytes()).is_ok());
    }
    for value in
        [json!({}), json!([]), json!({"version": 1, "limits": {"memory": 5}}), json!({"version": 1, "id": null})]
    {
        assert!(!accepts(&schema, &schema, &value), "{value}");
        assert!(Policy::decode(value.to_string().as_bytes()).is_err(), "{value}");
    }
}

#[test]
fn every_key_of_a_complete_policy_is_described() {
    let schema = json_schema();
    fn undescribed(value: &Value, at: &str, found: &mut Vec<String>) {
        if let Some(properties) = value.get("properties").and_then(Value::as_object) {
            for (key, property) in properties {
                let tag = property.get("const").is_some();
                // The one member of a variant is described with the variant.
                let variant = value.get("description").is_some() && properties.len() == 1 && at.contains("oneOf");
                if property.get("description").is_none() && !tag && !variant {
                    found.push(format!("{at}.{key}"));
                }
            }
        }
        match value {
            Value::Object(object) => {
                object.iter().for_each(|(key, value)| undescribed(value, &format!("{at}/{key}"), found));
            }
            Value::Array(items) => items.iter().for_each(|item| undescribed(item, at, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    undescribed(&schema, "", &mut found);
    assert_eq!(found, Vec::<String>::new());
}
