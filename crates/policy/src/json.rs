//! Parses untrusted JSON text to a small tree.
//!
//! Owns the limits on size, depth and number of values, and the exact position of what cannot be read. Keeps the
//! order of keys and every duplicate: `decode` reports those with all the other mistakes. serde_json is the
//! parser; nothing here knows what a policy is.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::error::{PolicyError, PolicyErrors, shown_text};

/// Largest policy text, bytes. Readers refuse a larger file by its size, before they read it.
pub const MAX_POLICY_BYTES: usize = 16 * 1024 * 1024;

/// Deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 64;

/// Most values (elements and members) in one policy: bounds the memory that a text within the size limit can take.
pub(crate) const MAX_VALUES: usize = 1_000_000;

/// A JSON value that borrows from its text where it can.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json<'t> {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    String(Cow<'t, str>),
    Array(Vec<Json<'t>>),
    Object(Vec<JsonMember<'t>>),
}

/// One member of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonMember<'t> {
    pub(crate) key: Cow<'t, str>,
    pub(crate) value: Json<'t>,
    /// Whether an earlier member of the same object has the same key.
    pub(crate) duplicate: bool,
}

/// A whole text.
#[derive(Debug)]
pub(crate) struct JsonDocument<'t> {
    pub(crate) root: Json<'t>,
    /// Whether any object in it has a key twice; spares looking for them.
    pub(crate) has_duplicates: bool,
}

impl PolicyErrors {
    /// The refusal of a text of that many bytes, for readers that know the size before they read.
    pub fn too_large(bytes: u64) -> PolicyErrors {
        PolicyErrors(vec![PolicyError {
            path: "$".into(),
            value: String::new(),
            problem: format!("the policy has {bytes} bytes"),
            accepted: format!("at most {} bytes", MAX_POLICY_BYTES),
        }])
    }
}

/// Any JSON value, shortened.
pub(crate) fn shown_json(value: &Json<'_>) -> String {
    match value {
        Json::Null => "null".into(),
        Json::Bool(value) => value.to_string(),
        Json::Number(value) => value.to_string(),
        Json::String(value) => shown_text(value),
        Json::Array(items) if items.is_empty() => "[]".into(),
        Json::Array(items) => format!("[… {} items]", items.len()),
        Json::Object(members) if members.is_empty() => "{}".into(),
        Json::Object(members) => format!("{{… {} keys}}", members.len()),
    }
}

/// Reads a text. What cannot be read is a single error, with the byte offset (UTF-8) or the line and column.
pub(crate) fn parse(text: &[u8]) -> Result<JsonDocument<'_>, PolicyErrors> {
    const ACCEPTED: &str = "one JSON object, UTF-8";
    if text.len() > MAX_POLICY_BYTES {
        return Err(PolicyErrors::too_large(text.len() as u64));
    }
    let text = std::str::from_utf8(text).map_err(|cause| {
        let offset = cause.valid_up_to();
        let problem = format!("not UTF-8: byte 0x{:02x} at offset {offset}", text[offset]);
        PolicyErrors::one("$", String::new(), problem, ACCEPTED)
    })?;
    let reader = JsonCounts { values: Cell::new(0), has_duplicates: Cell::new(false) };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Value { reader: &reader, depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|root| deserializer.end().map(|()| root))
        .map(|root| JsonDocument { root, has_duplicates: reader.has_duplicates.get() })
        .map_err(|cause| {
            let (line, column) = (cause.line(), cause.column());
            let message = cause.to_string();
            let message = message.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&message);
            let problem = format!("not readable as JSON at {line}:{column}: {message}");
            PolicyErrors::one("$", excerpt(text, line, column), problem, ACCEPTED)
        })
}

/// The text just before and at a position, both counted from 1, the column in bytes.
fn excerpt(text: &str, line: usize, column: usize) -> String {
    let Some(line) = text.split('\n').nth(line.saturating_sub(1)) else {
        return String::new();
    };
    let end = boundary(line, column);
    let start = boundary(line, end.saturating_sub(24));
    if start == end { String::new() } else { shown_text(&line[start..end]) }
}

/// The first character boundary at or after `index`, or the end.
fn boundary(text: &str, index: usize) -> usize {
    (index..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len())
}

/// What is counted over a whole text.
struct JsonCounts {
    values: Cell<usize>,
    has_duplicates: Cell<bool>,
}

/// Reads one value at that depth.
#[derive(Clone, Copy)]
struct Value<'r> {
    reader: &'r JsonCounts,
    depth: usize,
}

impl Value<'_> {
    /// The reader of what is inside, unless that is too deep.
    fn inside<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format_args!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(Value { depth: self.depth + 1, ..self })
    }

    fn count<E: serde::de::Error>(self) -> Result<(), E> {
        self.reader.values.set(self.reader.values.get() + 1);
        if self.reader.values.get() > MAX_VALUES {
            return Err(E::custom(format_args!("more than {MAX_VALUES} values")));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json<'de>, E> {
        serde_json::Number::from_f64(value).map(Json::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json<'de>, A::Error> {
        let inside = self.inside()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(inside)? {
            self.count()?;
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json<'de>, A::Error> {
        /// Above so many members a set finds duplicates faster than looking at each.
        const FEW: usize = 32;
        let inside = self.inside()?;
        let mut members: Vec<JsonMember<'de>> = Vec::new();
        let mut seen: HashSet<Cow<'de, str>> = HashSet::new();
        while let Some(key) = access.next_key_seed(Text)? {
            self.count()?;
            if members.len() == FEW {
                seen.extend(members.iter().map(|member| member.key.clone()));
            }
            let duplicate = if members.len() < FEW {
                members.iter().any(|member| member.key == key)
            } else {
                !seen.insert(key.clone())
            };
            if duplicate {
                self.reader.has_duplicates.set(true);
            }
            let value = access.next_value_seed(inside)?;
            members.push(JsonMember { key, value, duplicate });
        }
        Ok(Json::Object(members))
    }
}

/// Reads a key.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &[u8]) -> String {
        parse(text).expect_err("must be refused").0.remove(0).problem
    }

    #[test]
    fn order_and_duplicates_are_kept() {
        let document = parse(br#"{"b":1,"a":{"x":[],"x":2},"b":null}"#).unwrap();
        let Json::Object(members) = &document.root else { panic!() };
        let keys: Vec<_> = members.iter().map(|m| (m.key.as_ref(), m.duplicate)).collect();
        assert_eq!(keys, [("b", false), ("a", false), ("b", true)]);
        assert!(document.has_duplicates);
        assert!(!parse(br#"{"a":{"a":1}}"#).unwrap().has_duplicates);
    }

    #[test]
    fn escaped_spellings_of_one_key_are_duplicates_also_among_many() {
        for others in [0, 31, 32, 33, 500] {
            let mut text = String::from("{\"k\":0");
            for i in 0..others {
                text += &format!(",\"x{i}\":0");
            }
            assert!(!parse(format!("{text}}}").as_bytes()).unwrap().has_duplicates);
            assert!(parse(format!("{text},\"\\u006b\":1}}").as_bytes()).unwrap().has_duplicates, "{others}");
        }
    }

    #[test]
    fn parse_errors_are_named_by_position() {
        assert_eq!(problem(b"{\"a\": \xff}"), "not UTF-8: byte 0xff at offset 6");
        assert!(problem(b"{\n  \"a\": 1,\n}").starts_with("not readable as JSON at 3:1: trailing comma"));
        assert!(problem(b"").starts_with("not readable as JSON at 1:0: EOF"));
        assert!(problem(b"{} {}").contains("at 1:4: trailing characters"));
        assert!(problem(b"[1e999]").contains("number out of range"));
        assert_eq!(parse(b"{\"a\": nope}").unwrap_err().0[0].value, r#""{\"a\": no""#);
    }

    #[test]
    fn depth_size_and_number_are_limited() {
        let nested = |n: usize| [vec![b'['; n], vec![b']'; n]].concat();
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        let deep = problem(&nested(MAX_DEPTH + 1));
        assert_eq!(deep, "not readable as JSON at 1:66: nested deeper than 64 levels");
        assert!(problem(&nested(5_000_000)).contains("nested deeper"));
        assert!(problem(&vec![b' '; MAX_POLICY_BYTES + 1]).contains("16777217 bytes"));
        let many = format!("[{}0]", "0,".repeat(MAX_VALUES));
        assert!(problem(many.as_bytes()).contains("more than 1000000 values"));
    }
}
