//! Paths of HTTP requests as texts: whether one is unambiguous, and whether a rule's pattern matches it. Pure.

/// What keeps `path` (without query) from meaning the same to every server, as words; `None` when nothing does.
///
/// A path that normalising would change is one that a rule could read otherwise than the server: dot segments, empty
/// segments, backslashes, and percent-encoding of what need not be encoded or would be a separator. The final segment
/// may be empty.
pub fn fault(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("a path begins with `/`");
    }
    let bytes = path.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let hex = bytes.get(at + 1..at + 3).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
                let Some(hex) = hex.and_then(|hex| std::str::from_utf8(hex).ok()) else {
                    return Some("a `%` without two hexadecimal digits");
                };
                let byte = u8::from_str_radix(hex, 16).unwrap_or(0);
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    return Some("percent-encoding of what needs none");
                }
                if byte.is_ascii_control() || b"/\\%;".contains(&byte) {
                    return Some("percent-encoding of a separator, a percent sign or a control character");
                }
                at += 3;
                continue;
            }
            b'\\' | b'?' | b'#' => return Some("a backslash, a query or a fragment"),
            b if !b.is_ascii_graphic() => return Some("a character that must be percent-encoded"),
            _ => at += 1,
        }
    }
    if overlong(&decoded(bytes)) {
        return Some("percent-encoding of a character that is longer than it has to be");
    }
    if String::from_utf8_lossy(&decoded(bytes)).contains(LOOKALIKES) {
        return Some("a character that some servers take for a separator or a dot");
    }
    let mut segments = path[1..].split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Some("an empty segment (`//`)");
        }
        // Some servers drop what follows a `;` before they look for dots.
        let name = segment.split(';').next().unwrap_or(segment);
        if name == "." || name == ".." {
            return Some("a dot segment (`.` or `..`)");
        }
        let read: String =
            String::from_utf8_lossy(&decoded(name.as_bytes())).chars().filter(|c| !is_nothing(*c)).collect();
        if read == "." || read == ".." {
            return Some("a dot segment beside blanks, or characters that some servers ignore");
        }
    }
    None
}

/// Whether some servers read a character as nothing: blanks, controls, bytes that are no UTF-8, and what Unicode calls
/// default ignorable (DerivedCoreProperties.txt).
fn is_nothing(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{fffd}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// What Unicode's compatibility forms (NFKC), or a conversion to an older encoding, make a slash, a backslash, a dot, a
/// semicolon or a percent sign of.
const LOOKALIKES: [char; 19] = [
    '\u{2024}', '\u{2025}', '\u{2026}', '\u{2044}', '\u{2100}', '\u{2101}', '\u{2105}', '\u{2106}', '\u{2215}',
    '\u{2216}', '\u{29f5}', '\u{29f8}', '\u{fe52}', '\u{fe68}', '\u{fe6a}', '\u{ff05}', '\u{ff0e}', '\u{ff0f}',
    '\u{ff3c}',
];

/// Whether bytes have a character of UTF-8 that is longer than it has to be (RFC 3629, 3): a lenient reader takes `c0 ae`
/// for a dot.
pub fn overlong(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| matches!(pair, [0xc0 | 0xc1, 0x80..=0xbf] | [0xe0, 0x80..=0x9f] | [0xf0, 0x80..=0x8f]))
}

/// Decodes percent-encoding once; invalid sequences stay.
pub fn decoded(bytes: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match bytes.get(at + 1..at + 3).and_then(|two| Some(digit(two[0])? * 16 + digit(two[1])?)) {
            Some(value) if *byte == b'%' => {
                out.push(value as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

/// What is wrong with an entry of `paths`, as words: it is such a path, exact, or one that ends in `/*`.
pub fn pattern_fault(pattern: &str) -> Option<&'static str> {
    let literal = pattern.strip_suffix('*').unwrap_or(pattern);
    if literal.contains('*') || (literal.len() < pattern.len() && !literal.ends_with('/')) {
        return Some("`*` may stand only at the end, after a `/`");
    }
    fault(literal)
}

/// Whether a path without [`fault`] is what the pattern means: that path, or with `/*` at its end every path below.
/// Hexadecimal digits of percent-encoding are equal in both cases.
pub fn matches(pattern: &str, path: &str) -> bool {
    let path = upper_hex(path);
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(&*upper_hex(prefix)),
        None => path == upper_hex(pattern),
    }
}

fn upper_hex(path: &str) -> std::borrow::Cow<'_, str> {
    if !path.contains('%') {
        return path.into();
    }
    let mut left = 0;
    let upper = |c: char| {
        left = if c == '%' { 2 } else { i32::max(left - 1, -1) };
        if left >= 0 && c != '%' { c.to_ascii_uppercase() } else { c }
    };
    path.chars().map(upper).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_servers_could_read_differently_have_a_fault() {
        for good in [
            "/",
            "/v1/x",
            "/v1/x/",
            "/a%20b",
            "/%e4",
            "/%c0",
            "/%c3%a0",
            "/%e0%a4%a0",
            "/%ef%bc%a1",
            "/a;b=c",
            "/...",
            "/.a",
            "/a.b",
            "/~u",
            "/a:b@c!$&'()*+,=",
            "/.%20a",
            "/..%c3%a9",
            "/%20",
            "/...%20",
        ] {
            assert_eq!(fault(good), None, "{good}");
        }
        for bad in [
            "",
            "v1",
            "*",
            "/v1/../admin",
            "/v1/..",
            "/.",
            "/./x",
            "//",
            "//x",
            "/a//b",
            "/%2e%2e/admin",
            "/%2E",
            "/a%2fb",
            "/a%5cb",
            "/a\\b",
            "/%",
            "/%4",
            "/%zz",
            "/%41",
            "/%7E",
            "/%00",
            "/%25",
            "/a b",
            "/\u{e4}",
            "/a?b",
            "/a#b",
            "/a\0",
            "/..;/x",
            "/x/.;a=b",
            "/a%3bb",
            "/%c0%ae%C0%AE/x",
            "/%e0%80%af",
            "/%f0%80%80%ae",
            "/\u{7f}",
            "/public/%ef%bc%8f..%ef%bc%8fadmin",
            "/public/%EF%BC%8E%EF%BC%8E/admin",
            "/a%e2%88%95b",
            "/public/..%20/s",
            "/public/%20../s",
            "/public/..%a0/s",
            "/public/.%c2%ad./s",
            "/public/.%e2%80%8b./s",
            "/public/.%e3%80%80",
            "/public/..%c2%a0;x/s",
        ] {
            assert!(fault(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_mean_one_path_or_all_below() {
        for (pattern, path, same) in [
            ("/v1", "/v1", true),
            ("/v1", "/v1/", false),
            ("/v1", "/v10", false),
            ("/v1/*", "/v1/", true),
            ("/v1/*", "/v1/a/b", true),
            ("/v1/*", "/v1", false),
            ("/v1/*", "/v10/a", false),
            ("/*", "/", true),
            ("/V1", "/v1", false),
            ("/a%e4", "/a%E4", true),
            ("/%e4/*", "/%E4/x", true),
            ("/%C3%A4b", "/%c3%a4b", true),
            ("/%C3%A4b", "/%c3%a4B", false),
        ] {
            assert_eq!(matches(pattern, path), same, "{pattern} {path}");
        }
        for bad in ["", "*", "v1/*", "/v*", "/*/a", "/v1/**", "/../*", "//*", "/v1/%2e/*"] {
            assert!(pattern_fault(bad).is_some(), "{bad}");
        }
        assert_eq!((pattern_fault("/*"), pattern_fault("/v1/*"), pattern_fault("/v1")), (None, None, None));
    }
}
