//! Untrusted JSON to values, strictly: a key that stands twice in one object is an error, since two readers could take
//! either; and closed objects, with every mistake by its path.
//!
//! Knows no key by itself and opens no file.

use std::fmt;

use cofferdam_policy::{MAX_ERRORS, PolicyError, PolicyErrors};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads a text of at most `most` bytes.
///
/// # Errors
/// One: it is too long, no JSON, nested deeper than serde_json reads, or has a key twice.
pub(super) fn parse(text: &[u8], most: usize) -> Result<Value, PolicyErrors> {
    let refused = |problem: String| {
        let accepted = format!("one JSON object in UTF-8, each key once, at most {most} bytes");
        PolicyErrors(vec![PolicyError { path: "$".into(), value: String::new(), problem, accepted }])
    };
    if text.len() > most {
        return Err(refused(format!("it has {} bytes", text.len())));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    Strict
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|cause| refused(format!("not readable as JSON: {cause}")))
}

/// Reads one value.
#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(Strict)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if members.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {} stands there twice", shown(&key))));
            }
            let value = access.next_value_seed(Strict)?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
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

/// Reads values; what it cannot read it reports, and returns a stand-in, so that every mistake is told at once.
#[derive(Default)]
pub(super) struct Reader {
    errors: Vec<PolicyError>,
}

impl Reader {
    /// Nothing, or everything that was found; so many that a hostile text cannot fill memory.
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

    /// The members of an object that has these keys and no others; those of `required` must be there.
    pub(super) fn object<'v>(
        &mut self,
        path: &str,
        value: Option<&'v Value>,
        keys: &[&str],
        required: &[&str],
    ) -> Members<'v> {
        let members = match value {
            None => return Members(None),
            Some(Value::Object(members)) => members,
            Some(other) => {
                self.wrong(path, Some(other), "not an object", &format!("an object with {}", keys.join(", ")));
                return Members(None);
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
        Members(Some(members))
    }

    /// A text that `fault` finds nothing wrong with.
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
pub(super) struct Members<'v>(Option<&'v Map<String, Value>>);

impl<'v> Members<'v> {
    pub(super) fn get(self, key: &str) -> Option<&'v Value> {
        self.0.and_then(|members| members.get(key))
    }
}
