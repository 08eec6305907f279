//! The command's own results on standard output: text, or one JSON value.
//!
//! A result that cannot be written is an error, because the caller did not get what it asked for.

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

use super::text::printable_json;
use crate::refusal::{CLOSED, CliRefusal};

/// Prints one JSON value. Its texts are from elsewhere, so what steers the text around it is escaped, as JSON does it: a reader
/// of JSON gets the same value.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliRefusal> {
    let mut text = serde_json::to_string_pretty(value).expect("reports have text keys, so nothing can fail");
    text.push('\n');
    print(&printable_json(&text))
}

/// Prints text. On a terminal, control characters are escaped, because the text quotes data from elsewhere.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(text: &str) -> Result<(), CliRefusal> {
    let mut out = std::io::stdout().lock();
    let text = if out.is_terminal() { Cow::Owned(printable_json(text)) } else { Cow::Borrowed(text) };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| unwritten(&e))
}

/// The refusal for a failed write to standard output. Its code is [`CLOSED`] where the reader went away: a command that
/// only reads then ends without an error message.
pub(crate) fn unwritten(error: &std::io::Error) -> CliRefusal {
    let refusal = CliRefusal::new("output", format!("cannot write to standard output: {error}"));
    if error.kind() == std::io::ErrorKind::BrokenPipe { refusal.code(CLOSED) } else { refusal }
}
