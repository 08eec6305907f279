//! Text that is safe to show: messages and data in which terminal control characters are escaped, and shell quoting.
//!
//! Pure: text in, text out. Writes nothing.

use cofferdam_policy::text;
pub(crate) use cofferdam_policy::text::paragraph;

/// A message in which every line is safe to show, because messages quote text from elsewhere.
pub(crate) fn printable(message: &str) -> String {
    text::lines(message)
}

/// Data that is safe to show on a terminal. Control characters are escaped as in JSON, so that JSON stays valid and keeps
/// its meaning. A file or a pipe gets the bytes unchanged.
pub(crate) fn printable_json(data: &str) -> String {
    text::json(data)
}

/// A word quoted for a shell. What cannot be shown as it is, is escaped: a hint is one line.
pub(crate) fn quoted(word: &str) -> String {
    text::shell_word(word).unwrap_or_else(|| format!("'{}'", text::one_line(&word.replace('\'', r"'\''"))))
}

#[cfg(test)]
mod tests {
    use super::{paragraph, printable, printable_json};

    #[test]
    fn escape_sequences_and_bidi_overrides_are_escaped() {
        assert_eq!(printable("a\x1b[2Jb\r\n\u{202e}é"), "a\\u{1b}[2Jb\\r\n\\u{202e}é");
        assert_eq!(printable("\u{200f}\u{9b}"), "\\u{200f}\\u{9b}");
    }

    #[test]
    fn quoted_text_cannot_start_a_hint_line() {
        assert_eq!(paragraph("cannot read a\nhint: b\n  c\n"), "cannot read a\n  hint: b\n  c");
        assert_eq!(paragraph("one"), "one");
    }

    #[test]
    fn escaped_json_keeps_its_value() {
        let value = "a\u{7f}\u{9b}2J\u{202e}\u{200f}é\t\"";
        let text = serde_json::to_string_pretty(&[value]).unwrap();
        let printed = printable_json(&text);
        assert!(printed.contains("\\u007f\\u009b2J\\u202e\\u200fé"), "{printed}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&printed).unwrap(), [value]);
        assert_eq!(printable_json("a\x1b[2J\tb\n"), "a\\u001b[2J\tb\n");
    }
}
