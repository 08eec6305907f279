//! Scans a source before Nickel parses it: for the files that it imports, and for its nesting depth.
//!
//! Uses Nickel's own lexer, so that strings and comments are recognised as Nickel does. Imports are static strings in Nickel, so the
//! tokens contain all imports.

use nickel_lang_core::ast::InputFormat;
use nickel_lang_core::parser::lexer::{Lexer, NormalToken, StringToken, Token};

/// Deepest nesting of brackets, braces, parentheses and interpolations. Nickel recurses over it.
pub(crate) const MAX_DEPTH: usize = 1000;

/// Longest chain of operators, arrows, functions and bindings without a bracket between. Nickel recurses over it as well.
pub(crate) const MAX_CHAIN: usize = 20_000;

/// One `import "path"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    /// The path as written.
    pub path: String,
    /// The format that it is read as.
    pub format: InputFormat,
    /// Its byte offset.
    pub at: usize,
}

/// The result of scanning a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceScan {
    /// Every import, in order.
    pub imports: Vec<Import>,
    /// The byte offset at which it is nested too deeply.
    pub too_deep: Option<usize>,
}

/// Scans a Nickel source. Nickel reports syntax errors.
pub(crate) fn nickel(source: &str) -> SourceScan {
    let mut scan = SourceScan::default();
    let (mut depth, mut chain) = (0_usize, 0_usize);
    let mut tokens = Lexer::new(source).map_while(Result::ok).peekable();
    while let Some((at, token, _)) = tokens.next() {
        match &token {
            Token::Normal(
                NormalToken::LBrace | NormalToken::LBracket | NormalToken::LParen | NormalToken::EnumOpen,
            )
            | Token::Str(StringToken::Interpolation)
            | Token::MultiStr(nickel_lang_core::parser::lexer::MultiStringToken::Interpolation) => {
                depth += 1;
            }
            Token::Normal(
                NormalToken::RBrace | NormalToken::RBracket | NormalToken::RParen | NormalToken::EnumClose,
            ) => {
                depth = depth.saturating_sub(1);
                chain = 0;
            }
            Token::Normal(NormalToken::Comma) => chain = 0,
            Token::Normal(_) => chain += 1,
            _ => {}
        }
        if depth > MAX_DEPTH || chain > MAX_CHAIN {
            scan.too_deep = Some(at);
            return scan;
        }
        if token != Token::Normal(NormalToken::Import) {
            continue;
        }
        if tokens.next_if(|(_, token, _)| *token == Token::Normal(NormalToken::DoubleQuote)).is_none() {
            continue; // an import of a package, which Nickel refuses without a package map
        }
        let mut path = String::new();
        for (_, token, _) in tokens.by_ref() {
            match token {
                Token::Str(StringToken::Literal(text)) => path.push_str(&text),
                Token::Str(StringToken::EscapedChar(c)) => path.push(unescaped(c)),
                Token::Str(StringToken::EscapedAscii(code) | StringToken::EscapedUnicode(code)) => {
                    path.extend(u32::from_str_radix(code, 16).ok().and_then(char::from_u32));
                }
                _ => break,
            }
        }
        let mut format = InputFormat::from_path(&path).unwrap_or_default();
        if tokens.next_if(|(_, token, _)| *token == Token::Normal(NormalToken::As)).is_some()
            && let Some((_, Token::Normal(NormalToken::RawEnumTag(tag)), _)) = tokens.peek()
            && let Ok(named) = tag.parse()
        {
            format = named;
        }
        scan.imports.push(Import { path, format, at });
    }
    scan
}

/// The byte offset at which data (JSON, YAML, TOML) is nested too deeply in brackets, outside of double-quoted strings.
pub(crate) fn data(source: &str) -> Option<usize> {
    let (mut depth, mut text) = (0_usize, false);
    let mut bytes = source.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => text = !text,
            b'\\' if text => {
                bytes.next();
            }
            b'[' | b'{' if !text => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Some(at);
                }
            }
            b']' | b'}' if !text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Line and column, both from 1, of a byte.
pub(crate) fn place(source: &str, at: usize) -> (usize, usize) {
    let before = &source.as_bytes()[..at.min(source.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    (line, before.len() - start + 1)
}

fn unescaped(c: char) -> char {
    match c {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &str) -> Vec<String> {
        nickel(source).imports.into_iter().map(|import| import.path).collect()
    }

    #[test]
    fn imports_are_found_at_any_position_and_not_in_text() {
        let source = "# import \"comment\"\n{ a = import \"x.ncl\", b = \"import \\\"text\\\"\", \
                      c = \"%{(import \"in.ncl\").z}\", d = m%\"import \"no\" %{import \"yes.ncl\"}\"% }";
        assert_eq!(paths(source), ["x.ncl", "in.ncl", "yes.ncl"]);
        assert_eq!(paths("import \"\\x2e./\\u{61}\""), ["../a"]);
        assert_eq!(paths("import package"), Vec::<String>::new());
    }

    #[test]
    fn formats_are_those_of_nickel() {
        let formats: Vec<InputFormat> =
            nickel("[import \"a\", import \"a.json\", import \"b.ncl\" as 'Text, import \"c.txt\"]")
                .imports
                .into_iter()
                .map(|import| import.format)
                .collect();
        assert_eq!(formats, [InputFormat::Nickel, InputFormat::Json, InputFormat::Text, InputFormat::Text]);
    }

    #[test]
    fn nesting_has_an_end() {
        let deep = |n: usize, open: &str, close: &str| format!("{}1{}", open.repeat(n), close.repeat(n));
        for (open, close) in [("[", "]"), ("(", ")"), ("{a=", "}")] {
            assert_eq!(nickel(&deep(MAX_DEPTH, open, close)).too_deep, None, "{open}");
            assert!(nickel(&deep(MAX_DEPTH + 1, open, close)).too_deep.is_some(), "{open}");
        }
        assert!(nickel(&"fun x => ".repeat(MAX_CHAIN)).too_deep.is_some());
        assert_eq!(nickel(&format!("\"{}\"", "[".repeat(5000))).too_deep, None);
        let flat: String = (0..50_000).map(|n| format!("a{n} = 1, ")).collect();
        assert_eq!(nickel(&format!("{{ {flat} }}")).too_deep, None);
        assert!(data(&"[".repeat(MAX_DEPTH + 1)).is_some());
        assert_eq!(data(&format!("[\"{}\"]", "[".repeat(5000))), None);
    }

    #[test]
    fn places_count_from_one() {
        assert_eq!(place("ab\ncd", 4), (2, 2));
        assert_eq!(place("", 0), (1, 1));
    }
}
