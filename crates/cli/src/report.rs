//! What the command says about itself: one error type, its exit codes, and text that cannot carry terminal escapes.
//!
//! Everything goes to standard error with the prefix `cofferdam:`; the program's own output never passes through here.

use cofferdam_policy::text;
pub use cofferdam_policy::text::paragraph;

/// Exit code when Cofferdam refused or failed itself.
pub const REFUSED: i32 = 125;

/// Exit code of a command that only reads, when the reader of its output went away: 128 and SIGPIPE, as of one whom the
/// signal ends.
pub const CLOSED: i32 = 141;

/// A refusal: what went wrong, what to do about it, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// 125, or 126 and 127 as a shell means them.
    pub code: i32,
    /// The step that failed, as an outcome names it.
    pub step: &'static str,
    /// Operation, object and cause; may have several lines.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
}

impl Refusal {
    /// A refusal with exit code 125.
    pub fn new(step: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code: REFUSED, step, message: message.into(), hint: None }
    }

    /// The same with something the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }

    /// The same with what stands behind `hint:` on a line of its own, where the message was made as one text.
    pub fn split_hint(mut self) -> Refusal {
        if let Some((message, hint)) = self.message.split_once("\nhint: ") {
            (self.message, self.hint) = (message.to_owned(), Some(hint.to_owned()));
        }
        self
    }

    /// The same with another exit code.
    pub fn code(mut self, code: i32) -> Refusal {
        self.code = code;
        self
    }
}

/// Prints `cofferdam: error: …` and `hint: …`.
pub fn print_error(message: &str, hint: Option<&str>) {
    let mut text = format!("cofferdam: error: {}\n", paragraph(message));
    if let Some(hint) = hint {
        text.push_str("hint: ");
        text.push_str(&paragraph(hint));
        text.push('\n');
    }
    write_stderr(&text);
}

/// Prints one `cofferdam: …` line, and its hint.
pub fn print_note(note: &str, hint: Option<&str>) {
    let hint = hint.map(|h| format!("; hint: {}", paragraph(h))).unwrap_or_default();
    write_stderr(&format!("cofferdam: {}{hint}\n", paragraph(note)));
}

/// Writes all of it to standard error in as few writes as it takes, or gives up: there is nowhere left to say so.
pub fn write_stderr(text: &str) {
    use std::io::Write as _;
    std::io::stderr().write_all(text.as_bytes()).ok();
}

/// A message: every line of it as it can be shown, since messages quote what others wrote.
pub fn printable(message: &str) -> String {
    text::lines(message)
}

/// Data as it can be shown on a terminal: escaped in JSON's way, so that JSON stays what it is. Of other texts, who wants
/// every byte has a file or a pipe.
pub fn shown(data: &str) -> String {
    text::json(data)
}

#[cfg(test)]
mod tests {
    use super::{paragraph, printable, shown};

    #[test]
    fn escapes_and_overrides_are_shown_not_sent() {
        assert_eq!(printable("a\x1b[2Jb\r\n\u{202e}é"), "a\\u{1b}[2Jb\\r\n\\u{202e}é");
        assert_eq!(printable("\u{200f}\u{9b}"), "\\u{200f}\\u{9b}");
    }

    #[test]
    fn what_a_message_quotes_begins_no_line() {
        assert_eq!(paragraph("cannot read a\nhint: b\n  c\n"), "cannot read a\n  hint: b\n  c");
        assert_eq!(paragraph("one"), "one");
    }

    #[test]
    fn data_stays_what_it_is() {
        let value = "a\u{7f}\u{9b}2J\u{202e}\u{200f}é\t\"";
        let text = serde_json::to_string_pretty(&[value]).unwrap();
        let told = shown(&text);
        assert!(told.contains("\\u007f\\u009b2J\\u202e\\u200fé"), "{told}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&told).unwrap(), [value]);
        assert_eq!(shown("a\x1b[2J\tb\n"), "a\\u001b[2J\tb\n");
    }
}
