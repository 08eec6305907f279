//! `metadata.json` of an artifact, in both existing formats, and the metadata of environments that a wrapper bundles.
//!
//! Text from an artifact is not trusted: it is bounded, a key may occur only once, and all mistakes are reported. Unknown keys
//! are ignored, since a newer builder may write more of them. No I/O.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::{DefinitionProblem, LONGEST_FILE, is_name, is_variable, shown};

/// How `bin/run`, which reads the code from its standard input, passes it to its interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StdinMode {
    /// As an argument.
    #[default]
    Arg,
    /// On standard input.
    Pipe,
}

/// An artifact's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// Whether it needs a virtual machine.
    pub microvm: bool,
    /// The interpreter, for display.
    pub interpreter: String,
    /// How `bin/run` passes code on.
    pub stdin_mode: StdinMode,
    /// Wall time of a run, seconds.
    pub timeout_seconds: u64,
    /// Memory of a run, MiB.
    pub memory_mb: u64,
    /// A description, for display.
    pub description: Option<String>,
    /// The interpreter that `bin/session-run` starts; `None` if it is an agent itself.
    pub session_agent: Option<SessionAgent>,
}

/// An interpreter that Cofferdam has an agent for, and that a session's program starts with its own arguments. Without one, the
/// program implements the session protocol itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionAgent {
    /// Python.
    Python,
    /// Bash.
    Bash,
    /// Node.
    Node,
}

/// The wall time of metadata without one, seconds.
pub(super) const TIMEOUT_DEFAULT: u64 = 30;
/// The memory of metadata without one, MiB.
pub(super) const MEMORY_DEFAULT: u64 = 512;

/// The maximum of `timeout_seconds`.
pub(crate) fn most_seconds() -> u64 {
    limit("wall_ms") / 1000
}

/// The maximum of `memory_mb`.
pub(crate) fn most_memory() -> u64 {
    limit("memory_mb")
}

fn limit(key: &str) -> u64 {
    cofferdam_policy::limits::LIMITS.iter().find(|limit| limit.key == key).map_or(u64::MAX, |limit| limit.max)
}

/// Parses a `metadata.json`. `place` names it in messages.
///
/// # Errors
/// All mistakes in it.
pub fn metadata(text: &[u8], place: &str) -> Result<Metadata, Vec<DefinitionProblem>> {
    let mut reader = MetadataReader { place, prefix: String::new(), problems: Vec::new() };
    let read = reader.object(text).map(|object| reader.metadata(&object, None));
    match read {
        Some(Some(metadata)) if reader.problems.is_empty() => Ok(metadata),
        _ => Err(reader.problems),
    }
}

/// An environment that a wrapper bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundled {
    /// The program that runs its code: a path.
    pub program: String,
    /// The program that keeps an interpreter's state between calls: a path.
    pub session_program: Option<String>,
    /// Its metadata.
    pub metadata: Metadata,
}

/// The environments and settings that a wrapper bundles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BundledSet {
    /// Each environment by name, or its mistakes.
    pub environments: Vec<(String, Result<Bundled, Vec<DefinitionProblem>>)>,
    /// `project.path`, `mount_point`, `use_flake`, `inherit_env.vars`.
    pub project: Option<(String, Option<String>, bool, Vec<String>)>,
    /// `session.idle_timeout_seconds` and `max_lifetime_seconds`.
    pub session: (Option<u64>, Option<u64>),
}

/// Parses the metadata of environments that a wrapper bundles (`COFFERDAM_METADATA`).
///
/// # Errors
/// It cannot be parsed, or `project` or `session` are invalid. Mistakes in one environment are returned with it.
pub fn bundled(text: &[u8], place: &str) -> Result<BundledSet, Vec<DefinitionProblem>> {
    let mut reader = MetadataReader { place, prefix: String::new(), problems: Vec::new() };
    let mut set = BundledSet::default();
    if let Some(top) = reader.object(text) {
        reader.bundled(&top, &mut set);
        // A JSON object here is sorted; environments and their mistakes keep the order of the text.
        let order = serde_json::from_slice::<Order>(text).map(|order| order.environments.0).unwrap_or_default();
        set.environments.sort_by_key(|(name, _)| order.iter().position(|one| one == name));
    }
    if reader.problems.is_empty() { Ok(set) } else { Err(reader.problems) }
}

type Object = Map<String, Value>;

/// The order of the environments in a text.
#[derive(serde::Deserialize)]
struct Order {
    environments: Keys,
}

/// The keys of an object, in their order.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Keys, D::Error> {
        deserializer.deserialize_map(Keys(Vec::new()))
    }
}

impl<'de> Visitor<'de> for Keys {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Keys, A::Error> {
        while let Some((key, _)) = members.next_entry::<String, IgnoredAny>()? {
            self.0.push(key);
        }
        Ok(self)
    }
}

struct MetadataReader<'p> {
    place: &'p str,
    prefix: String,
    problems: Vec<DefinitionProblem>,
}

impl MetadataReader<'_> {
    fn problem(&mut self, key: &str, problem: impl Into<String>, accepted: &str) {
        let key = match (self.prefix.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (_, true) => self.prefix.clone(),
            _ => format!("{}.{key}", self.prefix),
        };
        let (place, problem) = (self.place.to_owned(), problem.into());
        self.problems.push(DefinitionProblem { place, key, problem, accepted: accepted.into() });
    }

    fn object(&mut self, text: &[u8]) -> Option<Object> {
        if text.len() as u64 > LONGEST_FILE {
            self.problem("", "longer than 1 MiB", "one JSON object");
            return None;
        }
        match crate::json::parse(text, shown) {
            Ok(Value::Object(object)) => Some(object),
            Ok(other) => {
                self.problem("", format!("{}, not an object", word(&other)), "one JSON object");
                None
            }
            Err(error) => {
                self.problem("", format!("not readable as JSON: {}", shown(&error.to_string())), "one JSON object");
                None
            }
        }
    }

    fn text<'o>(&mut self, object: &'o Object, key: &str) -> Option<&'o str> {
        match get(object, key)? {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => {
                self.problem(key, word(other), "a string");
                None
            }
        }
    }

    fn word<'o>(&mut self, object: &'o Object, key: &str, words: &[&str]) -> Option<&'o str> {
        let text = self.text(object, key)?;
        if words.contains(&text) {
            return Some(text);
        }
        self.problem(key, format!("{} is not known", shown(text)), &words.join(", "));
        None
    }

    fn number(&mut self, object: &Object, key: &str, most: u64) -> Option<u64> {
        let value = get(object, key)?;
        match value {
            Value::Null => return None,
            value => match value.as_u64() {
                Some(number) if (1..=most).contains(&number) => return Some(number),
                Some(number) => self.problem(key, format!("{number} is out of range"), &format!("1 to {most}")),
                None => self.problem(key, format!("{}, not a whole number", word(value)), &format!("1 to {most}")),
            },
        }
        None
    }

    /// `name` is the name of metadata that has none of its own.
    fn metadata(&mut self, object: &Object, name: Option<&str>) -> Option<Metadata> {
        let own = self.text(object, "name");
        let Some(name) = own.or(name) else {
            if get(object, "name").is_none_or(|value| *value == Value::Null) {
                self.problem("name", "is missing", super::NAME_ACCEPTED);
            }
            return None;
        };
        if !is_name(name) {
            self.problem("name", format!("{} is no name", shown(name)), super::NAME_ACCEPTED);
        }
        let microvm = self.word(object, "backend", &["jail", "microvm"]) == Some("microvm");
        let kind = self.word(object, "interpreter_type", &["python", "bash", "node"]);
        let interpreter = match (self.text(object, "interpreter"), kind) {
            (Some(interpreter), _) => interpreter,
            (None, Some("python")) => "python3 -c",
            (None, Some("node")) => "node -e",
            (None, _) => "bash -s",
        };
        let stdin_mode = match self.word(object, "stdin_mode", &["arg", "pipe"]) {
            Some("pipe") => StdinMode::Pipe,
            Some(_) => StdinMode::Arg,
            // The documented default, unless an interpreter is given.
            None if get(object, "interpreter").is_none() && kind.is_none() => StdinMode::Arg,
            None => super::stdin_mode_of(interpreter),
        };
        if let Some(options) = get(object, "microvm") {
            self.microvm(options);
        }
        Some(Metadata {
            name: name.to_owned(),
            microvm,
            interpreter: interpreter.to_owned(),
            stdin_mode,
            timeout_seconds: self.number(object, "timeout_seconds", most_seconds()).unwrap_or(TIMEOUT_DEFAULT),
            memory_mb: self.number(object, "memory_mb", most_memory()).unwrap_or(MEMORY_DEFAULT),
            description: self.text(object, "description").map(str::to_owned),
            session_agent: match self.word(object, "session_agent", &["python", "bash", "node"]) {
                Some("python") => Some(SessionAgent::Python),
                Some("bash") => Some(SessionAgent::Bash),
                Some(_) => Some(SessionAgent::Node),
                None => None,
            },
        })
    }

    /// Checks the options, which nothing uses yet.
    fn microvm(&mut self, options: &Value) {
        let Value::Object(options) = options else {
            return self.problem("microvm", word(options), "an object of vcpus, kernel, rootfs");
        };
        let outer = std::mem::replace(&mut self.prefix, "microvm".into());
        self.number(options, "vcpus", 256);
        for key in ["kernel", "rootfs"] {
            self.text(options, key);
        }
        self.prefix = outer;
    }

    fn bundled(&mut self, top: &Object, set: &mut BundledSet) {
        match get(top, "environments") {
            Some(Value::Object(environments)) => {
                for (name, value) in environments {
                    set.environments.push((name.clone(), self.bundled_one(name, value)));
                }
            }
            other => self.problem("environments", other.map_or("is missing", word), "an object of environments"),
        }
        match get(top, "project") {
            None | Some(Value::Null) => {}
            Some(Value::Object(project)) => {
                self.prefix = "project".into();
                let path = self.text(project, "path").unwrap_or(".").to_owned();
                let mount_point = self.text(project, "mount_point").map(str::to_owned);
                let use_flake = get(project, "use_flake") == Some(&Value::Bool(true));
                let variables = match get(project, "inherit_env") {
                    Some(Value::Object(inherit)) => {
                        texts(get(inherit, "vars")).filter(|names| names.iter().all(|name| is_variable(name)))
                    }
                    None | Some(Value::Null) => Some(Vec::new()),
                    Some(_) => None,
                };
                if variables.is_none() {
                    self.problem("inherit_env", "is no list of names", "{\"vars\": [NAME, …]}");
                }
                set.project = Some((path, mount_point, use_flake, variables.unwrap_or_default()));
            }
            Some(other) => self.problem("project", word(other), "an object"),
        }
        self.prefix = "session".into();
        match get(top, "session") {
            None | Some(Value::Null) => {}
            Some(Value::Object(session)) => {
                let most = most_seconds();
                set.session = (
                    self.number(session, "idle_timeout_seconds", most),
                    self.number(session, "max_lifetime_seconds", most),
                );
            }
            Some(other) => self.problem("", word(other), "an object"),
        }
    }

    fn bundled_one(&mut self, name: &str, value: &Value) -> Result<Bundled, Vec<DefinitionProblem>> {
        let prefix = format!("environments.{}", name.escape_debug());
        let mut one = MetadataReader { place: self.place, prefix, problems: Vec::new() };
        let read = match value {
            Value::Object(object) => {
                if one.text(object, "exec").is_none_or(|exec| !exec.starts_with('/')) {
                    one.problem("exec", "is no absolute path", "the path of the program that reads the code");
                }
                let program = one.text(object, "exec").unwrap_or_default().to_owned();
                let session_program = one.text(object, "session_exec").map(str::to_owned);
                if session_program.as_ref().is_some_and(|program| !program.starts_with('/')) {
                    one.problem("session_exec", "is no absolute path", "the path of the program that runs sessions");
                }
                one.metadata(object, Some(name)).map(|metadata| Bundled { program, session_program, metadata })
            }
            other => {
                one.problem("", word(other), "an object");
                None
            }
        };
        match read {
            Some(bundled) if one.problems.is_empty() => Ok(bundled),
            _ => Err(one.problems),
        }
    }
}

fn get<'o>(object: &'o Object, key: &str) -> Option<&'o Value> {
    object.get(key)
}

fn texts(value: Option<&Value>) -> Option<Vec<String>> {
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(list)) => {
            list.iter().map(|item| if let Value::String(text) = item { Some(text.clone()) } else { None }).collect()
        }
        Some(_) => None,
    }
}

/// What a value is, for messages.
fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "is null",
        Value::Bool(_) => "is true or false",
        Value::Number(_) => "is a number",
        Value::String(_) => "is a string",
        Value::Array(_) => "is a list",
        Value::Object(_) => "is an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Metadata, String> {
        let lines =
            |problems: Vec<DefinitionProblem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        metadata(text.as_bytes(), "metadata.json").map_err(lines)
    }

    #[test]
    fn both_formats_are_read_and_missing_keys_inferred() {
        let documented = of(r#"{"name": "python-data", "backend": "jail", "interpreter": "python3 -c",
            "stdin_mode": "arg", "timeout_seconds": 31, "memory_mb": 600, "description": "numpy"}"#);
        let expected = Metadata {
            name: "python-data".into(),
            microvm: false,
            interpreter: "python3 -c".into(),
            stdin_mode: StdinMode::Arg,
            timeout_seconds: 31,
            memory_mb: 600,
            description: Some("numpy".into()),
            session_agent: None,
        };
        assert_eq!(documented, Ok(expected));
        for (kind, interpreter, mode) in [
            ("python", "python3 -c", StdinMode::Arg),
            ("bash", "bash -s", StdinMode::Pipe),
            ("node", "node -e", StdinMode::Arg),
        ] {
            let shipped = of(&format!(r#"{{"name": "x", "interpreter_type": "{kind}"}}"#)).unwrap();
            assert_eq!((shipped.interpreter.as_str(), shipped.stdin_mode), (interpreter, mode));
            assert_eq!((shipped.timeout_seconds, shipped.memory_mb, shipped.description), (30, 512, None));
        }
        let least = of(r#"{"name": "x", "backend": "jail"}"#).unwrap();
        assert_eq!((least.stdin_mode, least.timeout_seconds, least.memory_mb), (StdinMode::Arg, 30, 512));
        assert_eq!(of(r#"{"name": "x", "interpreter": "perl"}"#).unwrap().stdin_mode, StdinMode::Pipe);
        let machine = of(r#"{"name": "x", "backend": "microvm", "microvm": {"vcpus": 2, "kernel": "/k"}}"#).unwrap();
        assert!(machine.microvm);
        assert!(of(r#"{"name": "x", "of_a_later_version": [1, {"a": 2.5}]}"#).is_ok());
    }

    #[test]
    fn all_mistakes_are_reported_with_accepted_values() {
        let reported = of(r#"{"name": "../x", "backend": "vm", "stdin_mode": 1, "timeout_seconds": 0, "memory_mb": -5,
            "microvm": {"vcpus": "two"}, "description": ["a"]}"#)
        .unwrap_err();
        for part in [
            "metadata.json: name: `../x` is no name",
            "backend: `vm` is not known; accepted: jail, microvm",
            "stdin_mode: is a number; accepted: a string",
            "timeout_seconds: 0 is out of range; accepted: 1 to ",
            "memory_mb: is a number, not a whole number",
            "microvm.vcpus: is a string, not a whole number; accepted: 1 to 256",
            "description: is a list",
        ] {
            assert!(reported.contains(part), "{part} in:\n{reported}");
        }
        for (text, part) in [
            ("", "not readable as JSON"),
            ("[]", "is a list, not an object"),
            ("{}", "name: is missing"),
            (r#"{"name": "a", "name": "b"}"#, "the key `name` stands there twice"),
            (r#"{"name": "a", "x": {"y": 1, "y": 2}}"#, "the key `y` stands there twice"),
            (r#"{"name": "a", "interpreter_type": "ruby"}"#, "accepted: python, bash, node"),
            ("{\"name\": \"a\x1b[2J\"}", "not readable as JSON"),
        ] {
            let reported = of(text).unwrap_err();
            assert!(reported.contains(part), "{text}: {reported}");
        }
    }

    #[test]
    fn what_a_wrapper_bundles() {
        let text = br#"{"environments": {
            "python": {"backend": "jail", "exec": "/nix/store/a/bin/run", "session_exec": "/nix/store/a/s", "timeout_seconds": 9, "memory_mb": 10, "interpreter_type": "python"},
            "bad": {"backend": "jail", "exec": "run"},
            "vm": {"backend": "microvm", "exec": "/nix/store/b/bin/run"}},
            "project": {"path": "/srv/p", "inherit_env": {"vars": ["LANG", "TZ"]}},
            "session": {"idle_timeout_seconds": 7}}"#;
        let set = bundled(text, "COFFERDAM_METADATA").unwrap();
        let names: Vec<&str> = set.environments.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["python", "bad", "vm"]);
        let python = set.environments[0].1.as_ref().unwrap();
        assert_eq!((python.program.as_str(), python.metadata.timeout_seconds), ("/nix/store/a/bin/run", 9));
        assert_eq!(python.session_program.as_deref(), Some("/nix/store/a/s"));
        assert_eq!(set.environments[2].1.as_ref().unwrap().session_program, None);
        let bad = set.environments[1].1.as_ref().unwrap_err();
        assert_eq!(bad[0].key, "environments.bad.exec");
        assert!(set.environments[2].1.as_ref().unwrap().metadata.microvm);
        assert_eq!(set.project, Some(("/srv/p".into(), None, false, vec!["LANG".into(), "TZ".into()])));
        assert_eq!(set.session, (Some(7), None));
        assert!(bundled(b"{}", "x").is_err() && bundled(br#"{"environments": {}, "session": 1}"#, "x").is_err());
    }
}
