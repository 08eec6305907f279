//! The errors of a policy: one entry for each mistake, all of them at once.
//!
//! Owns the error type that decoding and validation share and the way in which untrusted values are shown.
//! Never prints; every text that came from the input is escaped, so that a policy cannot drive a terminal.

use std::fmt;

use serde::Serialize;

/// Mistakes reported in full; what comes after them is counted only, so that a hostile file cannot fill memory.
pub const MAX_ERRORS: usize = 1000;

/// Characters of an offending value that are shown.
const SHOWN_CHARS: usize = 60;

/// One mistake in a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "{path}{}{value}: {problem}; {}{accepted}",
    if .value.is_empty() { "" } else { " = " },
    if .accepted.starts_with("did you mean") { "" } else { "accepted: " }
)]
pub struct PolicyError {
    /// Where: a JSON path such as `$.limits.memory_mb`; `$` is the whole text.
    pub path: String,
    /// The offending value as escaped JSON, shortened; empty when there is none, as for a missing key.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// What would be accepted instead.
    pub accepted: String,
}

/// Every mistake found in a policy, never empty when returned as an error. Displays one per line and serializes
/// as an array of [`PolicyError`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[serde(transparent)]
pub struct PolicyErrors(pub Vec<PolicyError>);

impl std::error::Error for PolicyErrors {}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl PolicyErrors {
    /// Only one mistake.
    pub(crate) fn one(path: &str, value: String, problem: String, accepted: &str) -> PolicyErrors {
        PolicyErrors(vec![PolicyError { path: path.into(), value, problem, accepted: accepted.into() }])
    }
}

/// Collects mistakes up to [`MAX_ERRORS`] and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    errors: Vec<PolicyError>,
    uncounted: usize,
}

impl Collector {
    /// Adds one; the texts are only made while there is room.
    pub(crate) fn add(&mut self, error: impl FnOnce() -> PolicyError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error());
        } else {
            self.uncounted += 1;
        }
    }

    /// Adds what a later stage found, except where an earlier one already has something to say about the same
    /// value, one inside it, or one around it: that would be the same mistake told twice.
    pub(crate) fn add_unless_known(&mut self, later: Collector) {
        let known = self.errors.len();
        for error in later.errors {
            if !self.errors[..known].iter().any(|earlier| overlap(&earlier.path, &error.path)) {
                self.add(|| error);
            }
        }
        self.uncounted += later.uncounted;
    }

    /// Nothing, or everything that was found.
    pub(crate) fn finish(mut self) -> Result<(), PolicyErrors> {
        if self.uncounted > 0 {
            self.errors.push(PolicyError {
                path: "$".into(),
                value: String::new(),
                problem: format!("{} more mistakes are not listed", self.uncounted),
                accepted: "a policy without mistakes".into(),
            });
        }
        if self.errors.is_empty() { Ok(()) } else { Err(PolicyErrors(self.errors)) }
    }
}

/// Whether one JSON path is the other or an ancestor of it.
fn overlap(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// A place in the policy, as a chain of borrowed steps: costs nothing until an error needs it as text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PolicyPlace<'a> {
    /// The whole text.
    Root,
    /// A member of an object.
    Key(&'a PolicyPlace<'a>, &'a str),
    /// An element of an array.
    Index(&'a PolicyPlace<'a>, usize),
}

impl<'a> PolicyPlace<'a> {
    /// The member `key` of what is here.
    pub(crate) fn key(&'a self, key: &'a str) -> PolicyPlace<'a> {
        PolicyPlace::Key(self, key)
    }

    /// The element `index` of what is here.
    pub(crate) fn index(&'a self, index: usize) -> PolicyPlace<'a> {
        PolicyPlace::Index(self, index)
    }
}

impl fmt::Display for PolicyPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyPlace::Root => f.write_str("$"),
            PolicyPlace::Key(parent, key) => {
                let plain = !key.is_empty()
                    && key.len() <= SHOWN_CHARS
                    && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                if plain { write!(f, "{parent}.{key}") } else { write!(f, "{parent}[{}]", shown_text(key)) }
            }
            PolicyPlace::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A text in quotes, shortened, on one line.
pub(crate) fn shown_text(text: &str) -> String {
    format!("\"{}\"", crate::text::short(text, SHOWN_CHARS).replace('"', "\\\""))
}

/// The one of `candidates` that `given` was most likely meant to be: at most a third of its letters wrong.
pub fn closest<'c>(given: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    if given.is_empty() || given.len() > 64 || !given.is_ascii() {
        return None;
    }
    let given = given.to_ascii_lowercase().replace('-', "_");
    candidates
        .filter_map(|candidate| {
            let unitless = candidate.rsplit_once('_').is_some_and(|(stem, _)| stem == given);
            let distance = if unitless { 1 } else { distance(given.as_bytes(), candidate.as_bytes()) };
            (distance <= candidate.len().div_ceil(3)).then_some((distance, candidate))
        })
        // Of two that are as near, the one with the same letters: swapped ones are the commonest slip.
        .min_by_key(|(distance, candidate)| (*distance, sorted(candidate) != sorted(&given)))
        .map(|(_, candidate)| candidate)
}

/// The letters of a word, sorted.
fn sorted(word: &str) -> Vec<u8> {
    let mut letters = word.to_ascii_lowercase().into_bytes();
    letters.sort_unstable();
    letters
}

/// Levenshtein distance with swapped neighbours counted as one.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substituted = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substituted.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_shortened() {
        assert_eq!(shown_text("a\u{1b}[2J\u{202e}\u{9b}"), r#""a\u{1b}[2J\u{202e}\u{9b}""#);
        let long = shown_text(&"x".repeat(1000));
        assert!(long.ends_with("…\"") && long.chars().count() == SHOWN_CHARS + 3);
        assert_eq!(PolicyPlace::Root.key("a").key("b c").index(3).to_string(), "$.a[\"b c\"][3]");
    }

    #[test]
    fn a_misspelt_key_finds_the_one_that_was_meant() {
        let keys = ["memory_mb", "cpu_seconds", "open_files"];
        assert_eq!(closest("memroy_mb", keys.into_iter()), Some("memory_mb"));
        assert_eq!(closest("memory", keys.into_iter()), Some("memory_mb"));
        assert_eq!(closest("open-files", keys.into_iter()), Some("open_files"));
        assert_eq!(closest("colour", keys.into_iter()), None);
        assert_eq!(closest(&"m".repeat(1 << 20), keys.into_iter()), None);
        assert_eq!(closest("nmp", ["cmp", "npm", "nm"].into_iter()), Some("npm"), "swapped letters");
    }

    #[test]
    fn errors_about_the_same_value_overlap() {
        assert!(overlap("$.a", "$.a[1]") && overlap("$.a.b", "$.a") && overlap("$.a", "$.a"));
        assert!(!overlap("$.a", "$.ab") && !overlap("$.a[1]", "$.a[10]") && overlap("$", "$.a"));
    }
}
