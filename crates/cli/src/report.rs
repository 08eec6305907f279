//! What the command says about itself: one error type, its exit codes, and text that cannot carry terminal escapes.
//!
//! Everything goes to standard error with the prefix `cofferdam:`; the program's own output never passes through here.

use std::fmt::Write as _;

/// Exit code when Cofferdam refused or failed itself.
pub const REFUSED: i32 = 125;

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
    let mut text = format!("cofferdam: error: {}\n", printable(message));
    if let Some(hint) = hint {
        text.push_str("hint: ");
        text.push_str(&printable(hint));
        text.push('\n');
    }
    write_stderr(&text);
}

/// Prints one `cofferdam: …` line, and its hint.
pub fn print_note(note: &str, hint: Option<&str>) {
    let hint = hint.map(|h| format!("; hint: {}", printable(h))).unwrap_or_default();
    write_stderr(&format!("cofferdam: {}{hint}\n", printable(note)));
}

/// Writes all of it to standard error in as few writes as it takes, or gives up: there is nowhere left to say so.
pub fn write_stderr(text: &str) {
    use std::io::Write as _;
    std::io::stderr().write_all(text.as_bytes()).ok();
}

/// The text with every control character but the line feed escaped: messages quote what others wrote.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Bidirectional overrides can make a line read as another one.
        let deceives = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if (c.is_control() && c != '\n') || deceives {
            write!(out, "{}", c.escape_default()).expect("a String takes every write");
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn escapes_and_overrides_are_shown_not_sent() {
        assert_eq!(printable("a\x1b[2Jb\r\n\u{202e}é"), "a\\u{1b}[2Jb\\r\n\\u{202e}é");
    }
}
