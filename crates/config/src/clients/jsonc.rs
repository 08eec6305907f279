//! Sets or removes one entry of an object of objects in a JSON text that may have comments and trailing commas.
//!
//! The rest of the text is unchanged, byte for byte. The result is parsed again, and must have the content of the old text except
//! for that entry; otherwise the edit is an error. No I/O.

use serde::Serialize as _;
use serde_json::{Map, Value};

/// Why a text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// It cannot be parsed.
    #[error("line {line}: {problem}")]
    Syntax {
        /// The line, from 1 on.
        line: usize,
        /// The mistake.
        problem: String,
    },
    /// Another value is where an object is required.
    #[error("{what} is no object")]
    NoObject {
        /// `the file`, or the key.
        what: String,
    },
    /// A key occurs more than once, and readers may take either value.
    #[error("the key {key:?} stands twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// The edited text would have other content.
    #[error("it cannot be edited without changing what else it says")]
    Unsafe,
}

/// Deepest nesting that is parsed.
const DEEPEST: usize = 128;

struct JsoncMember {
    key: String,
    start: usize,
    value: JsoncNode,
}

struct JsoncNode {
    start: usize,
    end: usize,
    /// The members of an object, and the position of a comma after the last.
    members: Option<(Vec<JsoncMember>, Option<usize>)>,
}

struct JsoncScanner<'t> {
    text: &'t str,
    at: usize,
    /// The text with comments and trailing commas replaced by spaces.
    plain: Vec<u8>,
}

impl JsoncScanner<'_> {
    fn fail(&self, problem: &str) -> EditError {
        let line =
            self.text.as_bytes()[..self.at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
        EditError::Syntax { line, problem: problem.to_owned() }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self, from: usize, to: usize) {
        for byte in &mut self.plain[from..to] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }

    /// Skips spaces and comments.
    fn space(&mut self) -> Result<(), EditError> {
        loop {
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                let end = self.at + rest.find('\n').unwrap_or(rest.len());
                self.blank(self.at, end);
                self.at = end;
            } else if rest.starts_with("/*") {
                let Some(length) = rest.find("*/") else { return Err(self.fail("a comment has no end")) };
                self.blank(self.at, self.at + length + 2);
                self.at += length + 2;
            } else if self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
                self.at += 1;
            } else {
                return Ok(());
            }
        }
    }

    fn string(&mut self) -> Result<String, EditError> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.fail("a key in quotes is expected"));
        }
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'\\') => self.at += 2,
                Some(b'"') => break,
                Some(_) => self.at += 1,
                None => return Err(self.fail("a string has no end")),
            }
        }
        self.at += 1;
        let text = self.text.get(start..self.at).unwrap_or_default();
        serde_json::from_str(text).map_err(|_| self.fail("a string is not readable"))
    }

    fn value(&mut self, depth: usize) -> Result<JsoncNode, EditError> {
        self.space()?;
        let start = self.at;
        if depth > DEEPEST {
            return Err(self.fail("nests too deeply"));
        }
        let members = match self.peek() {
            Some(b'{') => Some(self.object(depth)?),
            Some(b'[') => {
                self.list(b']', |scan| scan.value(depth + 1).map(drop))?;
                None
            }
            Some(b'"') => {
                self.string()?;
                None
            }
            _ => {
                let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
                while self.peek().is_some_and(is_word) {
                    self.at += 1;
                }
                if self.at == start {
                    return Err(self.fail("a value is expected"));
                }
                None
            }
        };
        Ok(JsoncNode { start, end: self.at, members })
    }

    fn object(&mut self, depth: usize) -> Result<(Vec<JsoncMember>, Option<usize>), EditError> {
        let mut members = Vec::new();
        let comma = self.list(b'}', |scan| {
            let start = scan.at;
            let key = scan.string()?;
            scan.space()?;
            if scan.peek() != Some(b':') {
                return Err(scan.fail("a colon is expected"));
            }
            scan.at += 1;
            members.push(JsoncMember { key, start, value: scan.value(depth + 1)? });
            Ok(())
        })?;
        Ok((members, comma))
    }

    /// Parses items separated by commas, up to the end. Returns the position of a comma after the last.
    fn list(
        &mut self,
        end: u8,
        mut item: impl FnMut(&mut Self) -> Result<(), EditError>,
    ) -> Result<Option<usize>, EditError> {
        self.at += 1;
        let mut comma = None;
        loop {
            self.space()?;
            if self.peek() == Some(end) {
                if let Some(at) = comma {
                    self.blank(at, at + 1);
                }
                self.at += 1;
                return Ok(comma);
            }
            item(self)?;
            self.space()?;
            comma = None;
            match self.peek() {
                Some(b',') => {
                    comma = Some(self.at);
                    self.at += 1;
                }
                Some(byte) if byte == end => {}
                _ => return Err(self.fail("a comma or the end is expected")),
            }
        }
    }
}

/// Parses the text into spans and a value.
fn read(text: &str) -> Result<(JsoncNode, Value), EditError> {
    let start = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let mut scan = JsoncScanner { text, at: start, plain: text.as_bytes().to_vec() };
    let root = scan.value(0)?;
    scan.space()?;
    if scan.at != text.len() {
        return Err(scan.fail("more follows the end"));
    }
    if root.members.is_none() {
        return Err(EditError::NoObject { what: "the file".into() });
    }
    let plain = String::from_utf8_lossy(&scan.plain[start..]);
    let value = serde_json::from_str(&plain)
        .map_err(|error| EditError::Syntax { line: error.line(), problem: error.to_string() })?;
    Ok((root, value))
}

fn find<'n>(node: &'n JsoncNode, key: &str) -> Result<Option<(usize, &'n JsoncMember)>, EditError> {
    let Some((members, _)) = &node.members else { return Ok(None) };
    let mut found = members.iter().enumerate().filter(|(_, member)| member.key == key);
    let first = found.next();
    if found.next().is_some() {
        return Err(EditError::Twice { key: key.to_owned() });
    }
    Ok(first)
}

/// The indentation of the line of a position.
fn indentation(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..at].trim_start_matches('\u{feff}');
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The indentation of one level.
fn unit(text: &str, root: &JsoncNode) -> String {
    let first = root.members.as_ref().and_then(|(members, _)| members.first());
    let found = first.map(|member| indentation(text, member.start)).filter(|found| !found.is_empty());
    found.unwrap_or("  ").to_owned()
}

/// How a text ends its lines, by its first.
fn line_end(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// A member as text, with its later lines indented like the first.
fn member(key: &str, value: &Value, indent: &str, unit: &str, line_end: &str) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Writing to a vector cannot fail; an incomplete text would be detected by the final check.
    value.serialize(&mut serializer).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace('\n', &format!("{line_end}{indent}"));
    format!("{}: {text}", Value::from(key))
}

/// The text with a member added at the end of an object.
fn inserted(text: &str, object: &JsoncNode, key: &str, value: &Value, unit: &str) -> String {
    let Some((members, comma)) = &object.members else { return text.to_owned() };
    let close = object.end - 1;
    let line_end = line_end(text);
    let outer = indentation(text, object.start).to_owned();
    let own_line = |member: &&JsoncMember| text[..member.start].trim_end_matches([' ', '\t']).ends_with('\n');
    let indent = members.iter().find(own_line).map(|member| indentation(text, member.start).to_owned());
    let indent = indent.unwrap_or_else(|| format!("{outer}{unit}"));
    let before = text[..close].trim_end();
    let mut out = match (members.last(), comma) {
        (Some(last), None) => format!("{},{}", &before[..last.value.end], &before[last.value.end..]),
        _ => before.to_owned(),
    };
    // A trailing comma is kept.
    let comma = if comma.is_some() { "," } else { "" };
    out += &format!("{line_end}{indent}{}{comma}", member(key, value, &indent, unit, line_end));
    let rest = &text[before.len()..close];
    out += if rest.contains('\n') { rest } else { "" };
    if !rest.contains('\n') {
        out += &format!("{line_end}{outer}");
    }
    out + &text[close..]
}

/// The text in which the object of `key` has this entry.
///
/// # Errors
/// The text cannot be parsed, another value is where an object is required, or the edit would change more.
pub fn with(text: &str, key: &str, name: &str, entry: &Value) -> Result<String, EditError> {
    let empty = format!("{{}}{}", line_end(text));
    let text = if text.trim_start_matches('\u{feff}').trim().is_empty() { &empty } else { text };
    let (root, old) = read(text)?;
    let unit = unit(text, &root);
    let new = match find(&root, key)? {
        None => {
            let group = Value::Object(Map::from_iter([(name.to_owned(), entry.clone())]));
            inserted(text, &root, key, &group, &unit)
        }
        Some((_, group)) => {
            if group.value.members.is_none() {
                return Err(EditError::NoObject { what: format!("{key:?}") });
            }
            match find(&group.value, name)? {
                None => inserted(text, &group.value, name, entry, &unit),
                Some(_) if old[key][name] == *entry => text.to_owned(),
                Some((_, there)) => {
                    let written = member(name, entry, indentation(text, there.start), &unit, line_end(text));
                    format!("{}{written}{}", &text[..there.start], &text[there.value.end..])
                }
            }
        }
    };
    let mut expected = old;
    expected[key][name] = entry.clone();
    checked(new, &expected)
}

/// The text in which the object of `key` has no such entry. An object that becomes empty is removed as well.
///
/// # Errors
/// As [`with`].
pub fn removed(text: &str, key: &str, name: &str) -> Result<String, EditError> {
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(text.to_owned());
    }
    let (root, mut expected) = read(text)?;
    let Some((_, group)) = find(&root, key)? else { return Ok(text.to_owned()) };
    let Some((at, _)) = find(&group.value, name)? else { return Ok(text.to_owned()) };
    let mut new = without(text, &group.value, at);
    if let Some(group) = expected[key].as_object_mut() {
        group.remove(name);
    }
    let (root, _) = read(&new)?;
    // An object with a comment is kept.
    if let Some((at, group)) = find(&root, key)?
        && new[group.value.start + 1..group.value.end - 1].trim().is_empty()
    {
        new = without(&new, &root, at);
        if let Some(root) = expected.as_object_mut() {
            root.remove(key);
        }
    }
    checked(new, &expected)
}

/// The text without one member of an object.
fn without(text: &str, object: &JsoncNode, at: usize) -> String {
    let Some((members, comma)) = &object.members else { return text.to_owned() };
    let Some(gone) = members.get(at) else { return text.to_owned() };
    // Remove from the end of the previous line, so that no empty line is left.
    let before = text[..gone.start].trim_end_matches([' ', '\t', '\r']);
    let start = if before.ends_with('\n') { before.trim_end_matches(['\n', '\r']).len() } else { gone.start };
    let mut new = String::new();
    match (members.get(at + 1), at.checked_sub(1).map(|previous| &members[previous])) {
        (Some(next), _) => {
            // Remove the comma after it.
            let comma = text[gone.value.end..next.start].find(',').map_or(gone.value.end, |at| gone.value.end + at + 1);
            let own_line = start < gone.start;
            new += &text[..if own_line { start } else { gone.start }];
            new += if own_line { &text[comma..] } else { text[comma..].trim_start_matches([' ', '\t']) };
        }
        (None, previous) => {
            let end = comma.map_or(gone.value.end, |comma| comma + 1);
            match previous.filter(|_| comma.is_none()) {
                // Remove the comma before it, which would be a trailing one.
                Some(previous) => {
                    let between = &text[previous.value.end..start.max(previous.value.end)];
                    new += &text[..previous.value.end];
                    new += &between.replacen(',', "", 1);
                }
                None => new += &text[..start],
            }
            new += &text[end..];
        }
    }
    new
}

fn checked(text: String, expected: &Value) -> Result<String, EditError> {
    match read(&text) {
        Ok((_, value)) if value == *expected => Ok(text),
        _ => Err(EditError::Unsafe),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry() -> Value {
        json!({"command": "/bin/c", "args": ["mcp"]})
    }

    const ZED: &str = "// Zed settings\n{\n    \"theme\": \"One\", // mine\n    \"vim_mode\": true,\n    /* a server */\n    \
                       \"context_servers\": {\n        \"other\": {\n            \"command\": \"x\", // {\n        }, // kept\n    },\n}\n";

    #[test]
    fn added_entry_can_be_removed_and_restores_the_content() {
        for text in [
            "{}\n",
            "{\n  \"mcpServers\": {}\n}\n",
            "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}, \"b\": 1}",
            "{\n\t\"b\": [1, 2],\n\t\"mcpServers\": {\n\t\t\"a\": {\n\t\t\t\"command\": \"x\"\n\t\t}\n\t}\n}\n",
            "{\r\n  \"mcpServers\": {\r\n    \"a\": {}\r\n  }\r\n}\r\n",
        ] {
            let new = with(text, "mcpServers", "cofferdam", &entry()).unwrap();
            assert_eq!(with(&new, "mcpServers", "cofferdam", &entry()).unwrap(), new, "twice is once");
            let (_, value) = read(&new).unwrap();
            assert_eq!(value["mcpServers"]["cofferdam"], entry());
            let back = removed(&new, "mcpServers", "cofferdam").unwrap();
            assert_eq!(removed(&back, "mcpServers", "cofferdam").unwrap(), back);
            let (mut was, now) = (read(text).unwrap().1, read(&back).unwrap().1);
            if was["mcpServers"] == json!({}) {
                was.as_object_mut().unwrap().remove("mcpServers");
            }
            assert_eq!(now, was);
        }
    }

    #[test]
    fn line_ends_stay() {
        for text in [
            "{}\n",
            "{\n}\n",
            "\n",
            "{\n  \"b\": 1\n}\n",
            "{\n  \"servers\": {}\n}",
            "{\n  \"servers\": {\n    \"a\": {},\n    \"b\": {} // b\n  },\n}\n",
        ] {
            let unix = with(text, "servers", "cofferdam", &entry()).unwrap();
            let changed = with(&unix, "servers", "cofferdam", &json!({"args": ["a", "b"]})).unwrap();
            let back = removed(&unix, "servers", "cofferdam").unwrap();
            assert!(![&unix, &changed, &back].iter().any(|text| text.contains('\r')), "{text}");
            let windows = |text: &str| text.replace('\n', "\r\n");
            let new = with(&windows(text), "servers", "cofferdam", &entry()).unwrap();
            assert_eq!(new, windows(&unix));
            let other = with(&new, "servers", "cofferdam", &json!({"args": ["a", "b"]})).unwrap();
            assert_eq!(other, windows(&changed));
            assert_eq!(removed(&new, "servers", "cofferdam").unwrap(), windows(&back));
        }
    }

    #[test]
    fn comments_commas_and_indentation_stay() {
        let new = with(ZED, "context_servers", "cofferdam", &json!({"args": ["mcp"]})).unwrap();
        let added =
            "\n        \"cofferdam\": {\n            \"args\": [\n                \"mcp\"\n            ]\n        },";
        assert_eq!(new, ZED.replace("}, // kept", &format!("}}, // kept{added}")));
        assert_eq!(removed(&new, "context_servers", "cofferdam").unwrap(), ZED);
        let changed = with(&new, "context_servers", "cofferdam", &json!({"command": "other"})).unwrap();
        assert!(
            changed.contains("// kept") && changed.contains("// mine") && !changed.contains("\"mcp\""),
            "{changed}"
        );
        let first =
            "{\n  \"servers\": {\n    // ours\n    \"cofferdam\": {},\n    // theirs\n    \"b\": {} // b\n  }\n}\n";
        let left = removed(first, "servers", "cofferdam").unwrap();
        assert_eq!(left, "{\n  \"servers\": {\n    // ours\n    // theirs\n    \"b\": {} // b\n  }\n}\n");
        let last = "{\n  \"servers\": {\n    \"b\": {}, // b, with a comma\n    \"cofferdam\": {}\n  }\n}\n";
        let left = removed(last, "servers", "cofferdam").unwrap();
        assert_eq!(left, "{\n  \"servers\": {\n    \"b\": {} // b, with a comma\n  }\n}\n");
    }

    #[test]
    fn emptied_object_is_removed_unless_it_has_a_comment() {
        let end = |text: &str| removed(text, "servers", "cofferdam").unwrap();
        assert_eq!(end("{\n  \"a\": 1,\n  \"servers\": {\n    \"cofferdam\": {}\n  }\n}\n"), "{\n  \"a\": 1\n}\n");
        assert_eq!(end("{\n  \"servers\": {\n    \"cofferdam\": {}\n  },\n  \"a\": 1\n}\n"), "{\n  \"a\": 1\n}\n");
        assert_eq!(end("{\"servers\": {\"cofferdam\": {}}}"), "{}");
        assert_eq!(end("// mine\n{\n  \"servers\": {\n    \"cofferdam\": {},\n  },\n}\n"), "// mine\n{\n}\n");
        let kept = "{\n  \"servers\": {\n    // my servers\n  }\n}\n";
        assert_eq!(end(&kept.replace("servers\n", "servers\n    \"cofferdam\": {}\n")), kept);
    }

    #[test]
    fn an_empty_file_becomes_one_entry() {
        let text = with("", "servers", "cofferdam", &json!({"command": "c"})).unwrap();
        assert_eq!(text, "{\n  \"servers\": {\n    \"cofferdam\": {\n      \"command\": \"c\"\n    }\n  }\n}\n");
        assert_eq!(with("\u{feff}\n", "servers", "cofferdam", &json!({"command": "c"})).unwrap(), text);
        assert_eq!(removed(" \n", "servers", "cofferdam").unwrap(), " \n");
    }

    #[test]
    fn uneditable_texts_are_errors_with_position() {
        let error = |text: &str| with(text, "servers", "cofferdam", &entry()).unwrap_err().to_string();
        assert_eq!(error("[]"), "the file is no object");
        assert_eq!(error("{\"servers\": []}"), "\"servers\" is no object");
        assert_eq!(error("{\"servers\": {}, \"servers\": {}}"), "the key \"servers\" stands twice");
        assert_eq!(error("{\"servers\": {\"cofferdam\": 1, \"cofferdam\": 2}}"), "the key \"cofferdam\" stands twice");
        assert_eq!(error("{\n  \"a\": 1\n  \"b\": 2\n}"), "line 3: a comma or the end is expected");
        assert_eq!(error("{\n/* no end"), "line 2: a comment has no end");
        assert!(error("{\"a\": tru}").starts_with("line 1: "));
        assert!(error(&"[".repeat(100_000)).contains("nests too deeply"));
        assert!(error("{} {}").contains("more follows the end"));
        assert!(error("{\"a").contains("a string has no end"));
        assert!(error("{\"a\\").contains("a string has no end"));
    }
}
