//! Any text as a configuration or as metadata: property tests with the properties of the fuzz targets.

#[path = "common/untrusted.rs"]
mod untrusted;

use proptest::prelude::*;

/// Fragments of configurations, so that some generated texts are valid.
fn toml_like() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("[environments.a]\n".to_owned()),
        Just("[environments.b]\n".to_owned()),
        Just("environments = ".to_owned()),
        Just("[project]\n[session]\n".to_owned()),
        "(preset|sandbox|flake|profile|image|interpreter|network|backend|timeout_seconds|memory_mb) = ",
        "(\"python\"|\"github:o/r#x\"|\"./d\"|\"microvm\"|1|-1|0x7f|1_0|true|\\[\\]|\\{\\}|\"\\\\u0007\")\n",
        "\\PC{0,12}",
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Fragments of metadata.
fn json_like() -> impl Strategy<Value = String> {
    let key = "\"(name|backend|interpreter|interpreter_type|stdin_mode|timeout_seconds|memory_mb|microvm|environments|exec)\"";
    let value = prop_oneof![
        "\"(a|jail|microvm|python|arg|pipe|/x)\"",
        "-?[0-9]{1,20}(\\.[0-9])?",
        Just("{\"vcpus\": 2}".to_owned()),
        Just("{\"a\": {\"exec\": \"/x\"}, \"\u{7}\": 1}".to_owned()),
        Just("[[[]]]".to_owned()),
        "\\PC{0,8}",
    ];
    let members = prop::collection::vec((key, value), 0..8);
    members.prop_map(|members| {
        let members: Vec<String> = members.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
        format!("{{{}}}", members.join(", "))
    })
}

proptest! {
    #[test]
    fn any_configuration_is_read_or_refused(text in toml_like()) {
        untrusted::configuration(text.as_bytes());
    }

    #[test]
    fn any_metadata_is_read_or_refused(text in json_like()) {
        untrusted::of_artifact(text.as_bytes());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        untrusted::configuration(&bytes);
        untrusted::of_artifact(&bytes);
    }
}

#[test]
fn deep_and_long_texts_end() {
    let deep = |open: &str, n: usize| open.repeat(n);
    untrusted::configuration(format!("a = {}", deep("[", 200_000)).as_bytes());
    untrusted::configuration(deep("[a.", 100_000).as_bytes());
    untrusted::configuration(format!("[{}x]", deep("a.", 100_000)).as_bytes());
    untrusted::of_artifact(deep("[", 200_000).as_bytes());
    untrusted::of_artifact(deep("{\"name\":", 100_000).as_bytes());
}
