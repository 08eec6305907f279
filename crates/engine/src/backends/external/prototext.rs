//! The text format of protocol buffers, for nsjail 3.4 and older, whose `-C` reads nothing else; and base64, which the JSON
//! form wants for bytes. Source: protobuf.dev, Text Format Language Specification.

use serde_json::Value;

/// A message as text. `enums` are the fields whose values are names.
pub(super) fn message(value: &Value, enums: &dyn Fn(&str) -> bool) -> String {
    let mut text = String::new();
    fields(value, enums, 0, &mut text);
    text
}

fn fields(value: &Value, enums: &dyn Fn(&str) -> bool, depth: usize, text: &mut String) {
    // By name: how a map keeps its members depends on how the program was built.
    let mut members: Vec<(&String, &Value)> = value.as_object().into_iter().flatten().collect();
    members.sort_by_key(|(name, _)| *name);
    for (name, value) in members {
        match value {
            Value::Array(items) => items.iter().for_each(|item| field(name, item, enums, depth, text)),
            one => field(name, one, enums, depth, text),
        }
    }
}

fn field(name: &str, value: &Value, enums: &dyn Fn(&str) -> bool, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(_) => {
            text.push_str(&format!("{indent}{name} {{\n"));
            fields(value, enums, depth + 1, text);
            text.push_str(&format!("{indent}}}\n"));
        }
        Value::String(word) if enums(name) => text.push_str(&format!("{indent}{name}: {word}\n")),
        Value::String(string) => text.push_str(&format!("{indent}{name}: {}\n", quoted(string))),
        other => text.push_str(&format!("{indent}{name}: {other}\n")),
    }
}

/// A string literal: everything but plain ASCII as octal bytes, so that no reader's escapes matter.
fn quoted(string: &str) -> String {
    let mut text = String::from("\"");
    for byte in string.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b'\n' => text.push_str("\\n"),
            b' '..=b'~' => text.push(char::from(byte)),
            other => text.push_str(&format!("\\{other:03o}")),
        }
    }
    text.push('"');
    text
}

/// Bytes as base64 with padding (RFC 4648).
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_length_has_its_padding() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn nothing_in_a_string_can_end_it() {
        let value = json!({ "mode": "ONCE", "arg": ["a\"\n}", "\u{e9}"], "m": { "x": 1, "y": true } });
        let text = message(&value, &|name| name == "mode");
        assert_eq!(text, "arg: \"a\\\"\\n}\"\narg: \"\\303\\251\"\nm {\n  x: 1\n  y: true\n}\nmode: ONCE\n".to_owned());
    }
}
