//! The command's own messages: errors, hints and notes on standard error, with the prefix `cofferdam:`.
//!
//! The program's own output never passes through here.

use super::text::paragraph;

/// Prints `cofferdam: error: …`, and `hint: …` on a line of its own.
pub(crate) fn print_error(message: &str, hint: Option<&str>) {
    let mut text = format!("cofferdam: error: {}\n", paragraph(message));
    if let Some(hint) = hint {
        text.push_str("hint: ");
        text.push_str(&paragraph(hint));
        text.push('\n');
    }
    write(&text);
}

/// Prints one `cofferdam: …` line, with its hint on the same line.
pub(crate) fn print_note(note: &str, hint: Option<&str>) {
    let hint = hint.map(|h| format!("; hint: {}", paragraph(h))).unwrap_or_default();
    write(&format!("cofferdam: {}{hint}\n", paragraph(note)));
}

/// Writes all of the text in as few writes as possible. A failure is ignored, because there is no place left to report it.
pub(crate) fn write(text: &str) {
    use std::io::Write as _;
    std::io::stderr().write_all(text.as_bytes()).ok();
}
