//! Any text as a skill's manifest or an operator's configuration: property tests with the properties of the fuzz targets.
#![cfg(feature = "skills")]

#[path = "common/skills.rs"]
mod skills;

use proptest::prelude::*;
use serde_json::{Value, json};

const MANIFEST: &str = include_str!("seeds/skill_manifest/a.json");
const OPERATOR: &str = include_str!("seeds/skill_operator/all.toml");

/// Any value where a manifest has one.
fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>(), "[./a-z\\\\]{0,12}", "0x[0-9a-f]{38,42}", Just("/proc/x".to_owned())];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0u64..70_000).prop_map(Value::from),
        text.prop_map(Value::from),
        Just(json!([])),
        Just(json!(["a.example", "10.0.0.1", "*.b.example:443", ""])),
        Just(json!([{ "path": "a", "sha256": "00" }, { "path": "../a", "sha256": "0".repeat(64) }])),
    ]
}

/// A manifest with some of its values replaced, at the top and one level down.
fn changed() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>(), value()), 1..4)
        .prop_map(|changes| {
            let mut whole: Value = serde_json::from_str(MANIFEST).unwrap();
            for (at, below, is_deep, value) in changes {
                let members = whole.as_object_mut().unwrap();
                let count = members.len();
                let Some(place) = members.values_mut().nth(at.index(count)) else { continue };
                match place {
                    Value::Object(deep) if is_deep && !deep.is_empty() => {
                        let count = deep.len();
                        deep.values_mut().nth(below.index(count)).into_iter().for_each(|place| *place = value.clone());
                    }
                    place => *place = value,
                }
            }
            whole.to_string().into_bytes()
        })
}

/// An operator's configuration of which some lines have other values.
fn configuration() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        "-?[0-9]{1,12}",
        "(true|false|\"none\"|\"allowlist\"|\"/\"|\"\"|\\[\\]|\\{\\}|0x10|1e3)",
        Just("[\"a.example\", \"10.0.0.1:22\"]".to_owned()),
        Just("[{ target = \"/skill/x\" }, { target = \"/w\", source = \"/root\" }]".to_owned()),
        Just("{ ISCL_API_URL = \"ftp://x\", OTHER = \"y\" }".to_owned()),
        "\\PC{0,8}",
    ];
    prop::collection::vec((any::<prop::sample::Index>(), value), 1..4).prop_map(|changes| {
        let mut lines: Vec<String> = OPERATOR.lines().map(str::to_owned).collect();
        for (at, value) in changes {
            let line = &mut lines[at.index(OPERATOR.lines().count())];
            *line = line.split_once(" = ").map_or(String::new(), |(key, _)| format!("{key} = {value}"));
        }
        lines.join("\n")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_manifest_is_read_or_refused(text in changed()) {
        skills::manifest(&text);
    }

    #[test]
    fn any_operators_side_is_read_or_refused(text in configuration()) {
        skills::operator(text.as_bytes());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        skills::manifest(&bytes);
        skills::operator(&bytes);
    }
}

#[test]
fn the_seeds_are_read() {
    skills::manifest(MANIFEST.as_bytes());
    skills::manifest(include_bytes!("seeds/skill_manifest/b.json"));
    skills::operator(OPERATOR.as_bytes());
    skills::operator(include_bytes!("seeds/skill_operator/all.json"));
}

#[test]
fn control_characters_are_escaped_in_errors() {
    for text in ["\0", "\u{1b}[2J", "a = \u{7}", "\u{9b}31m = 1", "{\"\u{1b}\": 1}", "{\"image\": \"\u{9b}\"}"] {
        skills::operator(text.as_bytes());
        skills::manifest(text.as_bytes());
    }
}

#[test]
fn deep_and_long_texts_end() {
    for open in ["[", "{\"a\":", "a = [", "[a."] {
        skills::manifest(open.repeat(100_000).as_bytes());
        skills::operator(open.repeat(100_000).as_bytes());
    }
}
