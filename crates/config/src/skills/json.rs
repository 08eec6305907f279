//! Reads typed values out of parsed JSON, and collects all mistakes with their paths. Objects are closed: unknown keys are errors.
//!
//! Knows no key by itself, and opens no file.

use cofferdam_policy::{MAX_ERRORS, PolicyError, PolicyErrors};
use serde_json::{Map, Value};

/// Parses a text of at most `most` bytes.
///
/// # Errors
/// A single error: it is too long, not JSON, nested deeper than serde_json reads, or has a key twice.
pub(super) fn parse(text: &[u8], most: usize) -> Result<Value, PolicyErrors> {
    let refused = |problem: String| {
        let accepted = format!("one JSON object in UTF-8, each key once, at most {most} bytes");
        PolicyErrors(vec![PolicyError { path: "$".into(), value: String::new(), problem, accepted }])
    };
    if text.len() > most {
        return Err(refused(format!("it has {} bytes", text.len())));
    }
    crate::json::parse(text, shown).map_err(|cause| refused(format!("not readable as JSON: {cause}")))
}

/// A text in quotes, shortened, with everything escaped that could drive a terminal.
pub(super) fn shown(text: &str) -> String {
    format!("\"{}\"", cofferdam_policy::text::short(text, 60))
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        Value::Array(items) => format!("[… {} items]", items.len()),
        Value::Object(members) => format!("{{… {} keys}}", members.len()),
        plain => plain.to_string(),
    }
}

/// Reads values. It records each mistake and returns a default instead, so that all mistakes are reported at once.
#[derive(Default)]
pub(super) struct ValueReader {
    errors: Vec<PolicyError>,
}

impl ValueReader {
    /// All recorded mistakes as an error, up to a bound.
    pub(super) fn finish(self) -> Result<(), PolicyErrors> {
        if self.errors.is_empty() { Ok(()) } else { Err(PolicyErrors(self.errors)) }
    }

    pub(super) fn wrong(&mut self, path: &str, value: Option<&Value>, problem: &str, accepted: &str) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(PolicyError {
                path: path.into(),
                value: value.map(shown_value).unwrap_or_default(),
                problem: problem.into(),
                accepted: accepted.into(),
            });
        }
    }

    /// The members of an object with only these keys, of which those in `required` must exist.
    pub(super) fn object<'v>(
        &mut self,
        path: &str,
        value: Option<&'v Value>,
        keys: &[&str],
        required: &[&str],
    ) -> ValueMembers<'v> {
        let members = match value {
            None => return ValueMembers(None),
            Some(Value::Object(members)) => members,
            Some(other) => {
                self.wrong(path, Some(other), "not an object", &format!("an object with {}", keys.join(", ")));
                return ValueMembers(None);
            }
        };
        for (key, value) in members {
            if !keys.contains(&key.as_str()) {
                let at = format!("{path}[{}]", shown(key));
                self.wrong(&at, Some(value), "no such key", &keys.join(", "));
            }
        }
        for key in required.iter().filter(|key| !members.contains_key(**key)) {
            let accepted =
                if *key == "signature" { "what cofferdam skill sign writes" } else { "it cannot be left out" };
            self.wrong(&format!("{path}.{key}"), None, "missing", accepted);
        }
        ValueMembers(Some(members))
    }

    /// A text that satisfies `fits`.
    pub(super) fn text(
        &mut self,
        path: &str,
        value: Option<&Value>,
        accepted: &str,
        fits: impl Fn(&str) -> bool,
    ) -> String {
        match value {
            None => String::new(),
            Some(Value::String(text)) => {
                if !fits(text) {
                    self.wrong(path, value, "not of that form", accepted);
                }
                text.clone()
            }
            Some(other) => {
                self.wrong(path, Some(other), "not a text", accepted);
                String::new()
            }
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number(&mut self, path: &str, value: Option<&Value>, least: u64, most: u64) -> u64 {
        let Some(value) = value else { return least };
        match value.as_u64() {
            Some(number) if (least..=most).contains(&number) => number,
            _ => {
                self.wrong(path, Some(value), "out of its limits", &format!("a whole number from {least} to {most}"));
                least
            }
        }
    }

    /// True or false.
    pub(super) fn flag(&mut self, path: &str, value: Option<&Value>) -> bool {
        match value {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong(path, Some(other), "neither true nor false", "true or false");
                false
            }
        }
    }

    /// The elements of an array.
    pub(super) fn list<'v>(&mut self, path: &str, value: Option<&'v Value>, least: usize, most: usize) -> &'v [Value] {
        match value {
            None => &[],
            Some(Value::Array(items)) if (least..=most).contains(&items.len()) => items,
            Some(other) => {
                self.wrong(path, Some(other), "not such a list", &format!("a list of {least} to {most} elements"));
                &[]
            }
        }
    }
}

/// The members of one object, or of none.
#[derive(Clone, Copy)]
pub(super) struct ValueMembers<'v>(Option<&'v Map<String, Value>>);

impl<'v> ValueMembers<'v> {
    pub(super) fn get(self, key: &str) -> Option<&'v Value> {
        self.0.and_then(|members| members.get(key))
    }
}
