//! Parses `--set a.b=value` into a field path and a Nickel expression.
//!
//! Pure. A value that can only be Nickel is taken as Nickel: numbers, `true`, `false`, `null`, and values that begin with a quote, a
//! bracket, a brace, a parenthesis, `'` or `m%`. Any other value is plain text, which needs no quotes within quotes:
//! `--set description=hello`.

use crate::protocol::Override;

/// Parses one assignment.
///
/// # Errors
/// Why it is invalid, and what would be accepted.
pub fn parse(text: &str) -> Result<Override, String> {
    let mut path = Vec::new();
    let mut rest = text;
    loop {
        let (name, after) = name(rest).map_err(|problem| format!("`{text}`: {problem}; write it like a.b=value"))?;
        path.push(name);
        match after.chars().next() {
            Some('.') => rest = &after[1..],
            Some('=') => {
                rest = &after[1..];
                break;
            }
            _ => return Err(format!("`{text}` has no value; write it like a.b=value")),
        }
    }
    Ok(Override { path, value: value(rest) })
}

/// The first name of a path, and the rest.
fn name(text: &str) -> Result<(String, &str), String> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (name, after) = quoted.split_once('"').ok_or("a quote is not closed")?;
        return Ok((name.to_owned(), after));
    }
    let end = text.find(['.', '=']).unwrap_or(text.len());
    let name = &text[..end];
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-'".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("`{name}` is no field name (other names stand in double quotes)"));
    }
    Ok((name.to_owned(), &text[end..]))
}

/// A value as a Nickel expression.
fn value(text: &str) -> String {
    let nickel = matches!(text, "true" | "false" | "null")
        || text.starts_with(['"', '[', '{', '(', '\''])
        || text.starts_with("m%")
        || is_number(text);
    if nickel { text.to_owned() } else { quoted(text) }
}

/// Whether Nickel reads it as a number. `1.2.3`, `0x` and `1m` are text.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, fraction)| (whole, Some(fraction)));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    all_digits(whole) && fraction.is_none_or(all_digits)
}

/// A text as a Nickel string without interpolation.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            // `%{` begins an interpolation.
            '%' => out.push_str("\\x25"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, String) {
        let o = parse(text).unwrap();
        (o.path.join("/"), o.value)
    }

    #[test]
    fn values_are_nickel_only_if_they_cannot_be_text() {
        for (given, path, value) in [
            ("a=1", "a", "1"),
            ("a.b=-1.5", "a/b", "-1.5"),
            ("a=1.2.3", "a", "\"1.2.3\""),
            ("a=true", "a", "true"),
            ("a=truely", "a", "\"truely\""),
            ("a=[1, 2]", "a", "[1, 2]"),
            ("a={ b = 1 }", "a", "{ b = 1 }"),
            ("a=\"x\"", "a", "\"x\""),
            ("a='deny", "a", "'deny"),
            ("a=deny", "a", "\"deny\""),
            ("a=", "a", "\"\""),
            ("a=b=c", "a", "\"b=c\""),
            ("env.\"A.B\"=x y", "env/A.B", "\"x y\""),
        ] {
            assert_eq!(read(given), (path.to_owned(), value.to_owned()), "{given}");
        }
    }

    #[test]
    fn text_cannot_leave_its_quotes() {
        assert_eq!(quoted("a\"b\\c%{d}\n"), "\"a\\\"b\\\\c\\x25{d}\\n\"");
    }

    #[test]
    fn what_is_no_assignment_is_refused() {
        for text in ["", "a", "=1", "a..b=1", "a b=1", "\"a=1", ".a=1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
