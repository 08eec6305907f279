//! The command's own messages: errors, hints and notes on standard error, with the prefix `cofferdam:`.
//!
//! The program's own output never passes through here.

use super::text::paragraph;

/// Escape sequences around the command's own words, all empty where there are no colours.
struct Colours {
    name: &'static str,
    error: &'static str,
    hint: &'static str,
    end: &'static str,
}

/// Colours where standard error is a terminal that has them, and NO_COLOR does not forbid them.
fn colours() -> Colours {
    use std::io::IsTerminal as _;
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let term = std::env::var_os("TERM").unwrap_or_default();
    if forbidden || term.is_empty() || term == "dumb" || !std::io::stderr().is_terminal() {
        return Colours { name: "", error: "", hint: "", end: "" };
    }
    Colours { name: "\x1b[1;33m", error: "\x1b[1;31m", hint: "\x1b[1;36m", end: "\x1b[0m" }
}

/// Prints `cofferdam: error: …`, and `hint: …` on a line of its own.
pub(crate) fn print_error(message: &str, hint: Option<&str>) {
    let Colours { name, error, hint: of_hint, end } = colours();
    let mut text = format!("{name}cofferdam:{end} {error}error:{end} {}\n", paragraph(message));
    if let Some(hint) = hint {
        text.push_str(&format!("{of_hint}hint:{end} "));
        text.push_str(&paragraph(hint));
        text.push('\n');
    }
    write(&text);
}

/// Prints one `cofferdam: …` line, with its hint on the same line.
pub(crate) fn print_note(note: &str, hint: Option<&str>) {
    let Colours { name, hint: of_hint, end, .. } = colours();
    let hint = hint.map(|h| format!("; {of_hint}hint:{end} {}", paragraph(h))).unwrap_or_default();
    // What the program named stands in the note, and must not begin a hint.
    let note = note.replace("hint:", "hint\\:");
    write(&format!("{name}cofferdam:{end} {}{hint}\n", paragraph(&note)));
}

/// Writes all of the text in as few writes as possible. A failure is ignored, because there is no place left to report it.
pub(crate) fn write(text: &str) {
    use std::io::Write as _;
    std::io::stderr().write_all(text.as_bytes()).ok();
}
