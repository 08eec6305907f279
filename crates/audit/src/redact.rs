//! Replaces secrets in records by the names under which they were declared. Pure.
//!
//! Texts of a program are changed before they are recorded: escaped, truncated, in lower case, normalised as a path. So
//! a secret is searched for as it is, and then in each of these forms: the text and the secret are decoded to units
//! with their positions in the text.

use std::ops::Range;

use serde_json::{Map, Value};

use super::record::AuditEntry;

/// Values shorter than this are no secrets: taking out every `a` would say more than it hides. The same holds for the
/// beginning of one at the end of a text that was cut.
const SHORTEST: usize = 6;
/// What stands where a text was cut ([`cofferdam_policy::text::short`]).
const CUT: char = '…';
/// The longest beginning of a secret that is looked for before a cut. Texts are cut at fewer characters.
const LONGEST_CUT: usize = 4096;
/// The longest escape, `\u{10ffff}`: what was cut may end within one.
const LONGEST_ESCAPE: usize = 10;

/// Secrets that must not occur in the trail, and the names that replace them.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Vec<Secret>);

#[derive(Debug, Clone)]
struct Secret {
    value: String,
    /// What stands there instead.
    instead: String,
    /// The value in each form, where it is long enough in it.
    forms: Vec<(EncodedForm, Vec<u8>)>,
}

/// How a text came into the trail. In each of them case does not count, and paths are normal: host names are lowered,
/// and `//` and `/./` are taken out of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EncodedForm {
    /// [`cofferdam_policy::text::one_line`]: `\n`, `\u{1b}`.
    Words,
    /// The same where each backslash of the text's own is doubled, as in the object of a violation.
    Doubled,
    /// The resolver's names: `\032`.
    Numbers,
    /// Paths and queries of requests: `%20`.
    Percent,
}

impl Secrets {
    /// From names and values. Values of fewer than 6 characters are left alone.
    pub fn new(named: impl IntoIterator<Item = (String, String)>) -> Secrets {
        let long = named.into_iter().filter(|(_, value)| value.len() >= SHORTEST);
        let mut list: Vec<_> = long.map(|(name, value)| Secret::new(&name, value)).collect();
        // A secret that holds another one is taken out first, or its rest would stay.
        list.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
        Secrets(list)
    }

    /// Takes them out of every text of an entry, keys included.
    pub(crate) fn take_out(&self, entry: &mut AuditEntry) {
        if self.0.is_empty() {
            return;
        }
        for text in [&mut entry.run, &mut entry.skill].into_iter().flatten() {
            *text = self.text(text);
        }
        entry.data = self.object(std::mem::take(&mut entry.data));
    }

    fn object(&self, map: Map<String, Value>) -> Map<String, Value> {
        map.into_iter().map(|(key, value)| (self.text(&key), self.value(value))).collect()
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(list) => Value::Array(list.into_iter().map(|v| self.value(v)).collect()),
            Value::Object(map) => Value::Object(self.object(map)),
            other => other,
        }
    }

    fn text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| secret.take_out(text))
    }
}

impl Secret {
    fn new(name: &str, value: String) -> Secret {
        let decoded = |form: Option<EncodedForm>| {
            let mut bytes: Vec<u8> = units(&value, form).into_iter().map(|(byte, _)| byte).collect();
            // A normal path does not end in a slash, nor a host name in a dot.
            while bytes.pop_if(|last| matches!(last, b'/' | b'.')).is_some() {}
            bytes
        };
        // A form may have escapes in it that are the secret's own, escaped again or not.
        let both = |form| [decoded(None), decoded(Some(form))].map(|bytes| (form, bytes));
        let mut forms: Vec<_> = [EncodedForm::Words, EncodedForm::Doubled, EncodedForm::Numbers, EncodedForm::Percent]
            .into_iter()
            .flat_map(both)
            .collect();
        forms.retain(|(_, bytes)| bytes.len() >= SHORTEST);
        forms.dedup();
        Secret { value, instead: format!("[secret {name}]"), forms }
    }

    fn take_out(&self, mut text: String) -> String {
        if text.contains(&self.value) {
            text = text.replace(&self.value, &self.instead);
        }
        // One that was not cut may have an ellipsis of its own, and so is looked for first.
        for places in [whole, begun] {
            let mut found: Vec<_> = self.forms.iter().flat_map(|(form, secret)| places(&text, *form, secret)).collect();
            found.sort_by_key(|place| place.start);
            found.dedup_by(|next, last| {
                let over = next.start < last.end;
                last.end = if over { last.end.max(next.end) } else { last.end };
                over
            });
            for place in found.into_iter().rev() {
                text.replace_range(place, &self.instead);
            }
        }
        text
    }
}

/// Where a secret, decoded as `form`, stands in a text.
fn whole(text: &str, form: EncodedForm, secret: &[u8]) -> Vec<Range<usize>> {
    let (bytes, at): (Vec<u8>, Vec<Range<usize>>) = units(text, Some(form)).into_iter().unzip();
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut next = 0;
    while next + secret.len() <= bytes.len() {
        if bytes[next..].starts_with(secret) {
            found.push(at[next].start..at[next + secret.len() - 1].end);
            next += secret.len();
        } else {
            next += 1;
        }
    }
    found
}

/// Where its beginning stands before a cut.
fn begun(text: &str, form: EncodedForm, secret: &[u8]) -> Vec<Range<usize>> {
    let (bytes, at): (Vec<u8>, Vec<Range<usize>>) = units(text, Some(form)).into_iter().unzip();
    let most = |end: usize| end.min(secret.len()).min(LONGEST_CUT);
    let start = |end: usize| {
        let length = (SHORTEST..=most(end)).rev().find(|&length| bytes[..end].ends_with(&secret[..length]))?;
        Some(at[end - length].start)
    };
    let mut found: Vec<Range<usize>> = Vec::new();
    for (cut, _) in text.match_indices(CUT) {
        let end = at.partition_point(|range| range.start < cut);
        let escape = bytes[..end].iter().rev().take(LONGEST_ESCAPE).position(|byte| matches!(byte, b'\\' | b'%'));
        let ends = [Some(end), escape.map(|back| end - back - 1)];
        if let Some(start) = ends.into_iter().flatten().filter_map(start).min() {
            found.push(start..cut);
        }
    }
    found
}

/// A text as bytes in lower case, decoded where a form is given, each with the place of the character or the escape
/// that it comes from.
fn units(text: &str, form: Option<EncodedForm>) -> Vec<(u8, Range<usize>)> {
    let mut units: Vec<(u8, Range<usize>)> = Vec::with_capacity(text.len());
    let mut start = 0;
    while let Some(c) = text[start..].chars().next() {
        let escaped = form.and_then(|form| escape(&text[start..], form));
        let end = start + escaped.map_or(c.len_utf8(), |(_, length)| length);
        let mut put = |byte: u8| match (byte, units.as_mut_slice()) {
            (b'/', [.., (b'/', last)]) => last.end = end,
            (b'/', [.., (b'/', last), (b'.', _)]) => {
                last.end = end;
                units.pop();
            }
            _ => units.push((byte, start..end)),
        };
        match escaped {
            Some((Escaped::Byte(byte), _)) => put(byte.to_ascii_lowercase()),
            Some((Escaped::Char(c), _)) => lower(c, &mut put),
            None => lower(c, &mut put),
        }
        start = end;
    }
    units
}

fn lower(c: char, put: &mut impl FnMut(u8)) {
    c.to_lowercase().for_each(|c| c.encode_utf8(&mut [0; 4]).bytes().for_each(&mut *put));
}

#[derive(Debug, Clone, Copy)]
enum Escaped {
    Byte(u8),
    Char(char),
}

/// The escape that a text begins with, and how long it is.
fn escape(text: &str, form: EncodedForm) -> Option<(Escaped, usize)> {
    let bytes = text.as_bytes();
    match (form, bytes) {
        (EncodedForm::Doubled, [b'\\', b'\\', ..]) => Some((Escaped::Byte(b'\\'), 2)),
        (EncodedForm::Words | EncodedForm::Doubled, [b'\\', c, ..]) => {
            // Where the case does not count, it does not in an escape.
            let byte = match c.to_ascii_lowercase() {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'0' => 0,
                b'u' => {
                    let digits = text[2..].strip_prefix('{')?.split_once('}')?.0;
                    let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
                    return Some((Escaped::Char(c), digits.len() + 4));
                }
                _ => return None,
            };
            Some((Escaped::Byte(byte), 2))
        }
        (EncodedForm::Numbers, [b'\\', a, b, c, ..]) if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) => {
            text[1..4].parse().ok().map(|byte| (Escaped::Byte(byte), 4))
        }
        (EncodedForm::Percent, [b'%', a, b, ..]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
            u8::from_str_radix(&text[1..3], 16).ok().map(|byte| (Escaped::Byte(byte), 3))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_with_backslashes_is_found_where_they_are_doubled() {
        for secret in [r"hunter\2-hunter", r"hunter\\2", r"\nhunter2", r"hunter2\"] {
            let secrets = Secrets::new([("KEY".into(), secret.into())]);
            for text in [format!("/x/{secret}"), format!("/x/{}", secret.replace('\\', r"\\"))] {
                let mut entry = AuditEntry::new("api_call").with("path", text.as_str());
                secrets.take_out(&mut entry);
                let left = entry.data["path"].as_str().unwrap();
                assert!(left.contains("[secret KEY]") && !left.contains("hunter"), "{text}: {left}");
            }
        }
    }

    #[test]
    fn a_declared_value_stands_nowhere_and_everything_else_stays() {
        let named = [("SHORT", "abc"), ("KEY", "hunter2-hunter2"), ("PART", "hunter2")];
        let secrets = Secrets::new(named.map(|(n, v)| (n.into(), v.into())));
        let mut entry = AuditEntry::new("api_call")
            .skill("abc hunter2")
            .with("path", "/x?k=hunter2-hunter2&abc")
            .with("list", vec!["hunter2", "plain"]);
        entry.data.insert("hunter2".into(), serde_json::json!({"deep": ["hunter2-hunter2", 5]}));
        secrets.take_out(&mut entry);
        let text = serde_json::to_string(&entry.data).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(entry.skill.as_deref(), Some("abc [secret PART]"));
        assert_eq!(entry.data["path"], "/x?k=[secret KEY]&abc");
        assert_eq!(entry.data["list"][1], "plain");
    }

    #[test]
    fn a_secret_is_found_in_the_forms_that_the_trail_gives_a_text() {
        let secret = |value: &str| Secrets::new([("K".to_owned(), value.to_owned())]);
        let written = cofferdam_policy::text::escape;
        for (value, text, left) in [
            ("TokenAbc123", "tokenabc123.example.com:443".to_owned(), "[secret K].example.com:443"),
            ("BEGIN\nMIIabc\u{1b}[END", written(b"/etc/BEGIN\nMIIabc\x1b[END/x"), "/etc/[secret K]/x"),
            ("ab//cd/./ef/", "/etc/ab/cd/ef".to_owned(), "/etc/[secret K]"),
            ("key of mine", "/v1/key%20of%20mine?x".to_owned(), "/v1/[secret K]?x"),
            ("key of.mine", "key\\032of\\046mine.example".to_owned(), "[secret K].example"),
            ("é…token-0123", "É…TOKEN-0123".to_owned(), "[secret K]"),
            ("token-0123", "cannot start `/bin/token-0…`: x".to_owned(), "cannot start `/bin/[secret K]…`: x"),
            ("token-0123", "/bin/token…".to_owned(), "/bin/token…"),
            ("token-0123", "/bin/token-0".to_owned(), "/bin/token-0"),
        ] {
            assert_eq!(secret(value).text(&text), left, "{value:?} in {text:?}");
        }
        let long = "Q".repeat(300);
        assert_eq!(secret(&long).text(&written(format!("/etc/{long}").as_bytes())), "/etc/[secret K]…");
        // The control: a text of the same letters that is no secret.
        let other = "q".repeat(255);
        assert_eq!(secret(&long).text(&other), other);
    }

    proptest! {
        #[test]
        fn of_a_secret_no_more_than_five_characters_are_left(
            before in "[=#;]{0,270}",
            value in "[A-Za-z0-9/.%\\\\{}…é\n\t\u{1b}\u{202e}]{6,280}",
            after in "[=#;]{0,9}",
            form in 0..6,
        ) {
            let secrets = Secrets::new([("K".to_owned(), value.clone())]);
            let percent = |byte: u8| match byte {
                byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                byte => format!("%{byte:02x}"),
            };
            let number = |byte: u8| match byte {
                byte if byte.is_ascii_alphanumeric() => char::from(byte.to_ascii_lowercase()).to_string(),
                byte => format!("\\{byte:03}"),
            };
            let (shown, form) = match form {
                0 => (value.clone(), EncodedForm::Words),
                1 => (value.to_lowercase(), EncodedForm::Words),
                2 => (value.bytes().map(percent).collect(), EncodedForm::Percent),
                3 => (value.bytes().map(number).collect(), EncodedForm::Numbers),
                4 => (value.replace('\\', r"\\"), EncodedForm::Doubled),
                _ => (value.replace("//", "/"), EncodedForm::Words),
            };
            let text = cofferdam_policy::text::escape(format!("{before}{shown}{after}").as_bytes());
            let left = secrets.text(&text).replace("[secret K]", "");
            let rest: String = left.chars().filter(|c| !"=#;…".contains(*c)).collect();
            // What is cut within an escape, or ends in what is taken off a name, is no part of the secret.
            let rest = units(rest.trim_end_matches(['/', '.']), Some(form));
            prop_assert!(rest.len() < SHORTEST + LONGEST_ESCAPE, "{left}");
        }
    }
}
