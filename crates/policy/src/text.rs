//! Escapes untrusted text before it is shown to a user or passed to a model: one rule for all of Cofferdam.
//!
//! What ends a line, drives a terminal, turns the direction of text, or is not seen at all is escaped, so that no
//! text looks like another one. A backslash stays as it is: text that holds `\u{202e}` literally reads like the
//! escape. A model reads escapes as text, too, so what is for one has them taken out.
//!
//! Pure. Which characters: Unicode's control and format characters (Cc, Cf), line and paragraph separators (Zl, Zp),
//! and those that are invisible by being default-ignorable (variation selectors, fillers, tags).

/// Whether a character changes how the text around it reads, and shows nothing itself.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}'
            | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// The text with every character that steers escaped, as `\n` or `\u{202e}`: one line.
pub fn one_line(text: &str) -> String {
    escaped(text, |_| false, in_words)
}

/// The same of a text that has lines of its own, whose ends stay.
pub fn lines(text: &str) -> String {
    escaped(text, |c| c == '\n', in_words)
}

/// The same with every further line indented: what a message quotes begins no line, and is not taken for another
/// message or a hint.
pub fn paragraph(text: &str) -> String {
    let mut all: Vec<String> = lines(text).lines().map(str::to_owned).collect();
    all.iter_mut().skip(1).filter(|line| !line.starts_with("  ")).for_each(|line| line.insert_str(0, "  "));
    all.join("\n")
}

/// `\0`, `\n`, `\u{202e}`.
fn in_words(c: char, out: &mut String) {
    match c {
        '\0' => out.push_str("\\0"),
        c => out.extend(c.escape_default()),
    }
}

/// The same in JSON's way, so that JSON stays what it is.
pub fn json(text: &str) -> String {
    escaped(
        text,
        |c| matches!(c, '\n' | '\t'),
        |c, out| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        },
    )
}

/// At most so many characters of it, then an ellipsis: one line.
pub fn short(text: &str, most: usize) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(most).collect();
    let more = if chars.next().is_some() { "…" } else { "" };
    one_line(&start) + more
}

/// The same between backquotes, as a name stands in a message.
pub fn name(text: &str) -> String {
    const MOST: usize = 80;
    format!("`{}`", short(text, MOST))
}

/// One word of a command that a person may paste into a shell. `None` where a character that steers is in it: the
/// command would not be what is read.
pub fn shell_word(text: &str) -> Option<String> {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    match text {
        _ if text.chars().any(steers) => None,
        _ if !text.is_empty() && text.chars().all(plain) => Some(text.to_owned()),
        _ => Some(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

/// For a model: what steers is taken out, white space is one space, and there are at most so many characters.
pub fn for_model(text: &str, most: usize) -> String {
    let seen = |c: char| if c.is_whitespace() || c.is_control() { Some(' ') } else { (!steers(c)).then_some(c) };
    let plain: String = text.chars().filter_map(seen).collect();
    short(&plain.split_whitespace().collect::<Vec<_>>().join(" "), most)
}

fn escaped(text: &str, stays: impl Fn(char) -> bool, escape: impl Fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) && !stays(c) {
            escape(c, &mut out);
        } else {
            out.push(c);
        }
    }
    out
}

/// Text of the program's for a person's terminal: on one line, what is not UTF-8 replaced, cut at 256 characters with
/// an ellipsis. The trail knows by it that a secret may have been cut.
pub fn escape(bytes: &[u8]) -> String {
    short(&String::from_utf8_lossy(bytes), 256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What attacks have used, and what people write.
    const STEERING: &str = "\0\t\n\r\x1b\x7f\u{9b}\u{ad}\u{61c}\u{200b}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\
                            \u{2060}\u{2066}\u{2069}\u{3164}\u{fe0f}\u{feff}\u{e0001}\u{e0041}\u{e007f}\u{e0100}";
    const PLAIN: &str = "it’s “é” – … \\ \" ' ` 漢字 עברית العربية ❤ 🦀 e\u{301}";

    #[test]
    fn attack_characters_are_escaped_and_plain_text_is_not() {
        assert!(STEERING.chars().all(steers));
        assert_eq!(one_line(PLAIN), PLAIN);
        assert_eq!(for_model(PLAIN, 100), PLAIN);
        assert_eq!(one_line("a\x1b[2J\nb\u{202e}"), "a\\u{1b}[2J\\nb\\u{202e}");
        assert_eq!(lines("a\r\nb"), "a\\r\nb");
        assert_eq!(json("\u{1b}\t\u{e0041}\n"), "\\u001b\t\\udb40\\udc41\n");
        assert_eq!(name(&"x".repeat(100)), format!("`{}…`", "x".repeat(80)));
        assert_eq!(shell_word("/a b'; $(c) \u{e9}").as_deref(), Some("'/a b'\\''; $(c) \u{e9}'"));
        assert_eq!((shell_word("/a-b.c").as_deref(), shell_word("").as_deref()), (Some("/a-b.c"), Some("''")));
        assert_eq!((shell_word("a\nb"), shell_word("a\u{202e}")), (None, None));
        assert_eq!(for_model(" a\n\n| b \u{202e}c\u{e0041}", 100), "a | b c");
        assert_eq!(for_model(&"long ".repeat(100), 6), "long l…");
    }

    proptest! {
        #[test]
        fn no_control_character_gets_through(text in prop::collection::vec(any::<char>(), 0..200), most in 0usize..100) {
            let text: String = text.into_iter().collect::<String>() + STEERING;
            for shown in [one_line(&text), short(&text, most), name(&text), for_model(&text, most)] {
                prop_assert!(!shown.chars().any(steers), "{:?}", shown);
            }
            prop_assert!(!lines(&text).chars().any(|c| c != '\n' && steers(c)));
            prop_assert!(!json(&text).chars().any(|c| !matches!(c, '\n' | '\t') && steers(c)));
            prop_assert!(for_model(&text, most).chars().count() <= most + 1);
        }

        #[test]
        fn escaped_data_is_the_same_data(text in prop::collection::vec(any::<char>(), 0..100)) {
            let text: String = text.into_iter().collect();
            let data = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&json(&data)).unwrap(), text);
        }
    }
}
