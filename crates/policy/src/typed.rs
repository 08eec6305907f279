//! Values of each JSON type, read with a report of what they are not.
//!
//! Owns the words for a wrong type, an unknown, missing or duplicate key. Knows no key by itself: `decode` says
//! where which type stands.

use crate::error::{Collector, PolicyError, PolicyPlace, closest};
use crate::json::shown_json;
use crate::json::{Json, JsonMember};
use crate::object_schema::{self, ObjectSchema};

/// The members of one object, or of none.
#[derive(Clone, Copy)]
pub(crate) struct JsonMembers<'j>(pub(crate) &'j [JsonMember<'j>]);

impl<'j> JsonMembers<'j> {
    /// The value of the first member of that name.
    pub(crate) fn get(self, key: &str) -> Option<&'j Json<'j>> {
        self.0.iter().find(|member| member.key == key).map(|member| &member.value)
    }
}

/// Reads values; what it cannot read it reports, and returns a stand-in, so that reading goes on.
#[derive(Default)]
pub(crate) struct Decoder {
    pub(crate) errors: Collector,
}

impl Decoder {
    /// The members of an object, whose keys are checked against its shape.
    pub(crate) fn object<'j>(
        &mut self,
        at: &PolicyPlace<'_>,
        json: Option<&'j Json<'j>>,
        expected: &ObjectSchema,
    ) -> JsonMembers<'j> {
        let members = match json {
            None => return JsonMembers(&[]),
            Some(Json::Object(members)) => members,
            Some(other) => {
                self.wrong(at, other, "not an object", &format!("{}: an object", expected.what));
                return JsonMembers(&[]);
            }
        };
        for member in members {
            if !expected.keys.contains(&member.key.as_ref()) {
                self.unknown_key(&at.key(&member.key), member, expected);
            }
        }
        for key in expected.required {
            if !members.iter().any(|member| member.key == *key) {
                self.errors.add(|| PolicyError {
                    path: at.key(key).to_string(),
                    value: String::new(),
                    problem: "missing".into(),
                    accepted: format!("{}: `{key}` cannot be left out", expected.what),
                });
            }
        }
        JsonMembers(members)
    }

    pub(crate) fn unknown_key(&mut self, at: &PolicyPlace<'_>, member: &JsonMember<'_>, expected: &ObjectSchema) {
        self.errors.add(|| {
            let known = object_schema::KNOWN_MISTAKES.iter().find(|(mistake, meant)| {
                *mistake == member.key && expected.keys.iter().any(|key| meant.starts_with(&format!("`{key}`")))
            });
            let accepted = match (known, closest(&member.key, expected.keys.iter().copied())) {
                (Some((_, meant)), _) => format!("did you mean {meant}?"),
                (None, Some(key)) => format!("did you mean `{key}`?"),
                (None, None) => list(expected.keys.iter().copied()),
            };
            let problem = format!("{} has no such key", expected.what);
            PolicyError { path: at.to_string(), value: shown_json(&member.value), problem, accepted }
        });
    }

    /// Reports every key that is there twice, wherever.
    pub(crate) fn duplicates(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) {
        match json {
            Json::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.duplicates(&at.index(index), item);
                }
            }
            Json::Object(members) => {
                for member in members {
                    let at = at.key(&member.key);
                    if member.duplicate {
                        self.wrong(&at, &member.value, "the same key stands there before", "each key once");
                    }
                    self.duplicates(&at, &member.value);
                }
            }
            _ => {}
        }
    }

    /// The elements of an array, in their places; `None` when it is absent.
    pub(crate) fn list<T>(
        &mut self,
        at: &PolicyPlace<'_>,
        json: Option<&Json<'_>>,
        mut element: impl FnMut(&mut Decoder, &PolicyPlace<'_>, &Json<'_>) -> T,
    ) -> Option<Vec<T>> {
        match json? {
            Json::Array(items) => {
                Some(items.iter().enumerate().map(|(i, item)| element(self, &at.index(i), item)).collect())
            }
            other => {
                self.wrong(at, other, "not an array", "an array, also for a single element");
                Some(Vec::new())
            }
        }
    }

    pub(crate) fn strings(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> Option<Vec<String>> {
        self.list(at, json, Decoder::string)
    }

    /// A text, or an empty one in place of another type.
    pub(crate) fn string(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) -> String {
        match json {
            Json::String(text) => text.to_string(),
            Json::Null => {
                self.wrong(at, json, "not a text", "a text in quotes; leave the key out for the built-in value");
                String::new()
            }
            other => {
                self.wrong(at, other, "not a text", "a text in quotes");
                String::new()
            }
        }
    }

    /// A text that cannot be absent: that it is was reported with the object.
    pub(crate) fn text(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> String {
        json.map(|json| self.string(at, json)).unwrap_or_default()
    }

    pub(crate) fn boolean(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>, default: bool) -> bool {
        match json {
            None => default,
            Some(Json::Bool(value)) => *value,
            Some(other) => {
                self.wrong(at, other, "not a truth value", "true or false");
                default
            }
        }
    }

    /// A whole number that is not negative; `unit` says of what, in the plural.
    pub(crate) fn integer(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>, unit: &str) -> u64 {
        let problem = match json {
            Json::Number(number) => match (number.as_u64(), number.as_f64()) {
                (Some(value), _) => return value,
                (None, Some(value)) if value < 0.0 => "negative",
                (None, Some(value)) if value >= 18_446_744_073_709_551_616.0 => "too large",
                (None, _) => "not written as a whole number",
            },
            Json::String(_) => "a text, not a number",
            _ => "not a number",
        };
        self.errors.add(|| PolicyError {
            path: at.to_string(),
            value: shown_json(json),
            problem: problem.into(),
            accepted: format!("a whole number of {unit}, without quotes, unit or fraction"),
        });
        1
    }

    /// One of a few words, or the default of their type when it is absent.
    pub(crate) fn word<T: Copy + Default>(
        &mut self,
        at: &PolicyPlace<'_>,
        json: Option<&Json<'_>>,
        words: &[(&str, T)],
    ) -> T {
        json.map_or_else(T::default, |json| self.known_word(at, json, words))
    }

    /// One of a few words, or the first of them in place of another.
    pub(crate) fn known_word<T: Copy>(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>, words: &[(&str, T)]) -> T {
        if let Some((_, value)) = words.iter().find(|(word, _)| word_of(json) == Some(word)) {
            return *value;
        }
        let all = list(words.iter().map(|(word, _)| *word));
        let accepted = match word_of(json).and_then(|given| closest(given, words.iter().map(|(word, _)| *word))) {
            Some(close) => format!("one of {all}; did you mean `{close}`?"),
            None => format!("one of {all}"),
        };
        self.wrong(at, json, "not one of the known words", &accepted);
        words[0].1
    }

    pub(crate) fn wrong(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>, problem: &str, accepted: &str) {
        self.errors.add(|| PolicyError {
            path: at.to_string(),
            value: shown_json(json),
            problem: problem.into(),
            accepted: accepted.into(),
        });
    }
}

/// The text, if it is one.
pub(crate) fn word_of<'j>(json: &'j Json<'_>) -> Option<&'j str> {
    match json {
        Json::String(text) => Some(text),
        _ => None,
    }
}

/// The key and value of an object with one member.
pub(crate) fn single_member<'j>(json: &'j Json<'j>) -> Option<(&'j str, &'j Json<'j>)> {
    match json {
        Json::Object(members) => match members.as_slice() {
            [only] => Some((&only.key, &only.value)),
            _ => None,
        },
        _ => None,
    }
}

/// Names in backquotes, with commas.
pub(crate) fn list<'s>(names: impl Iterator<Item = &'s str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
