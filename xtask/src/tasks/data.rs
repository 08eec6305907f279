//! The tasks of tests/tasks: their files, each key checked.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use toml::{Table, Value};

use crate::Result;

/// How long a command may take where the task names no time.
pub(crate) const WITHIN: Duration = Duration::from_secs(120);

/// What one user wants to do, and what must be seen. The keys are described in tests/tasks/README.md.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Task {
    /// The name of its file, without the ending.
    pub file: String,
    /// Its unique name.
    pub id: String,
    /// What a user would say.
    pub wants: String,
    /// Programs and Python modules that must be installed.
    pub needs: Vec<String>,
    /// Shell before it.
    pub setup: String,
    /// Stand-ins of services.
    pub serve: Vec<String>,
    /// Variables of the caller.
    pub env: Vec<(String, String)>,
    /// What is typed.
    pub first: String,
    /// Whether it is typed at a terminal.
    pub terminal: bool,
    /// What is typed to the program.
    pub keys: Vec<Key>,
    /// Calls of an MCP server's tool.
    pub calls: Vec<serde_json::Value>,
    /// Whether it runs as root and as an unprivileged user.
    pub users: Vec<User>,
    /// Whether the project lies below /tmp.
    pub below_tmp: bool,
    /// The exit code.
    pub code: Option<i32>,
    /// What must be in the output.
    pub see: Vec<String>,
    /// What must not be in the output.
    pub not_see: Vec<String>,
    /// Shell afterwards, which must succeed.
    pub after: Option<String>,
    /// How long each command may take.
    pub within: Duration,
    /// What a line of Cofferdam's own says.
    pub message: Option<String>,
    /// What is typed then.
    pub then: Option<String>,
}

/// Who runs a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum User {
    /// User 0.
    Root,
    /// Any other.
    Unprivileged,
}

impl User {
    /// As the files and the option name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            User::Root => "root",
            User::Unprivileged => "65534",
        }
    }

    /// The user of that name.
    pub(crate) fn named(name: &str) -> Option<User> {
        [User::Root, User::Unprivileged].into_iter().find(|user| user.name() == name)
    }
}

/// One step at a terminal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Key {
    /// Is sent when the terminal is quiet.
    Text(String),
    /// Waits.
    Wait(Duration),
    /// Waits for a text.
    See(String),
    /// Changes rows and columns.
    Size(u16, u16),
}

impl Key {
    fn parse(text: &str) -> Option<Key> {
        if let Some(seconds) = text.strip_prefix("@wait ") {
            return Some(Key::Wait(Duration::from_secs(seconds.parse().ok()?)));
        }
        if let Some(text) = text.strip_prefix("@see ") {
            return Some(Key::See(text.to_owned()));
        }
        if let Some(size) = text.strip_prefix("@size ") {
            let (rows, columns) = size.split_once('x')?;
            return Some(Key::Size(rows.parse().ok()?, columns.parse().ok()?));
        }
        (!text.is_empty() && !text.starts_with('@')).then(|| Key::Text(text.to_owned()))
    }
}

/// Reads all files of the directory, sorted by name.
///
/// # Errors
/// A file cannot be read, a task has a key or value that the README does not describe, or two have one name.
pub(crate) fn read(directory: &Path) -> Result<Vec<Task>> {
    let cannot = |path: &Path, error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let entries = std::fs::read_dir(directory).map_err(|error| cannot(directory, error))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(|error| cannot(directory, error)))
        .collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    let mut tasks = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| cannot(&path, error))?;
        let file = path.file_stem().unwrap_or_default().to_string_lossy();
        tasks.extend(parse(&file, &text)?);
    }
    unique(&tasks)?;
    Ok(tasks)
}

fn unique(tasks: &[Task]) -> Result {
    let mut ids = BTreeSet::new();
    match tasks.iter().find(|task| !ids.insert(&task.id)) {
        Some(task) => Err(format!("{}.toml: `{}` is the id of another task, too", task.file, task.id)),
        None => Ok(()),
    }
}

/// The tasks of one file.
fn parse(file: &str, text: &str) -> Result<Vec<Task>> {
    let mut table: Table = text.parse().map_err(|error| format!("{file}.toml: {error}"))?;
    let Some(Value::Array(entries)) = table.remove("task") else {
        return Err(format!("{file}.toml has no [[task]]"));
    };
    if let Some(key) = table.keys().next() {
        return Err(format!("{file}.toml: unknown key `{key}`; there is [[task]]"));
    }
    let mut tasks = Vec::new();
    for entry in entries {
        let Value::Table(keys) = entry else { return Err(format!("{file}.toml: a task is no table")) };
        let id = keys.get("id").and_then(Value::as_str).unwrap_or("a task without id").to_owned();
        tasks.push(Keys { table: keys }.task(file).map_err(|error| format!("{file}.toml: {id}: {error}"))?);
    }
    Ok(tasks)
}

/// The keys of a task that are not read yet.
struct Keys {
    table: Table,
}

impl Keys {
    fn task(mut self, file: &str) -> Result<Task> {
        let calls = self.texts("calls")?.unwrap_or_default();
        let keys = self.texts("keys")?.unwrap_or_default();
        let users = self.texts("users")?.unwrap_or_else(|| vec!["root".into(), "65534".into()]);
        let task = Task {
            file: file.to_owned(),
            id: self.text("id")?.ok_or("`id` is missing")?,
            wants: self.text("wants")?.ok_or("`wants` is missing")?,
            needs: self.texts("needs")?.unwrap_or_default(),
            setup: self.text("setup")?.unwrap_or_default(),
            serve: self.texts("serve")?.unwrap_or_default(),
            env: self.variables()?,
            first: self.text("first")?.ok_or("`first` is missing")?,
            terminal: self.flag("terminal")?,
            keys: keys
                .iter()
                .map(|key| {
                    Key::parse(key).ok_or_else(|| format!("{key:?} in `keys` is no text and no @wait, @see, @size"))
                })
                .collect::<Result<_>>()?,
            calls: calls
                .iter()
                .map(|call| {
                    serde_json::from_str(call).map_err(|error| format!("{call} in `calls` is no JSON: {error}"))
                })
                .collect::<Result<_>>()?,
            users: users
                .iter()
                .map(|user| User::named(user).ok_or_else(|| format!("{user:?} in `users` is neither root nor 65534")))
                .collect::<Result<_>>()?,
            below_tmp: match self.text("directory")?.as_deref() {
                None | Some("home") => false,
                Some("tmp") => true,
                Some(other) => return Err(format!("`directory` is {other:?}, neither home nor tmp")),
            },
            code: self
                .number("code")?
                .map(|code| i32::try_from(code).map_err(|_| "`code` is no exit code"))
                .transpose()?,
            see: self.texts("see")?.unwrap_or_default(),
            not_see: self.texts("not_see")?.unwrap_or_default(),
            after: self.text("after")?,
            within: match self.number("within")? {
                None => WITHIN,
                Some(seconds) => Duration::from_secs(u64::try_from(seconds).map_err(|_| "`within` is negative")?),
            },
            message: self.text("message")?,
            then: self.text("then")?,
        };
        if let Some(key) = self.table.keys().next() {
            return Err(format!("unknown key `{key}`"));
        }
        let wrong = [
            (task.then.is_some() && task.message.is_none(), "`then` needs a `message` that says it"),
            (!task.keys.is_empty() && !task.terminal, "`keys` needs `terminal`"),
            (task.terminal && !task.calls.is_empty(), "`calls` are not made at a terminal"),
            (!task.calls.is_empty() && task.then.is_some(), "`calls` have no `then`"),
            (task.users.is_empty(), "`users` is empty"),
            (
                task.code.is_none() && task.see.is_empty() && task.after.is_none() && task.message.is_none(),
                "nothing is to be seen: `code`, `see`, `after` or `message` is missing",
            ),
            (
                !task.id.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'),
                "`id` is no-such-name",
            ),
        ];
        match wrong.into_iter().find(|(wrong, _)| *wrong) {
            Some((_, text)) => Err(text.to_owned()),
            None => Ok(task),
        }
    }

    fn text(&mut self, key: &str) -> Result<Option<String>> {
        match self.table.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(format!("`{key}` is no text")),
        }
    }

    fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>> {
        let wrong = || format!("`{key}` is no list of texts");
        match self.table.remove(key) {
            None => Ok(None),
            Some(Value::Array(values)) => values
                .into_iter()
                .map(|value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned).ok_or_else(wrong))
                .collect::<Result<_>>()
                .map(Some),
            Some(_) => Err(wrong()),
        }
    }

    fn number(&mut self, key: &str) -> Result<Option<i64>> {
        match self.table.remove(key) {
            None => Ok(None),
            Some(value) => value.as_integer().map(Some).ok_or_else(|| format!("`{key}` is no number")),
        }
    }

    fn flag(&mut self, key: &str) -> Result<bool> {
        match self.table.remove(key) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| format!("`{key}` is neither true nor false")),
        }
    }

    fn variables(&mut self) -> Result<Vec<(String, String)>> {
        let wrong = || "`env` is no table of texts".to_owned();
        match self.table.remove("env") {
            None => Ok(Vec::new()),
            Some(Value::Table(table)) => table
                .into_iter()
                .map(|(name, value)| Ok((name, value.as_str().ok_or_else(wrong)?.to_owned())))
                .collect(),
            Some(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[[task]]\nid = \"a\"\nwants = \"B\"\nfirst = \"c\"\n";

    #[test]
    fn the_projects_own_tasks_are_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tasks");
        let tasks = read(&root).unwrap_or_else(|error| panic!("{error}"));
        assert!(tasks.len() > 300, "{}", tasks.len());
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        let tasks = parse("f", &format!("{LEAST}code = 0")).unwrap();
        let expected = Task {
            file: "f".into(),
            id: "a".into(),
            wants: "B".into(),
            first: "c".into(),
            users: vec![User::Root, User::Unprivileged],
            code: Some(0),
            within: WITHIN,
            ..Task::default()
        };
        assert_eq!(tasks, [expected]);
    }

    #[test]
    fn keys_are_texts_and_what_begins_with_an_at_sign() {
        let text = format!(
            "{LEAST}code = 0\nterminal = true\nkeys = [\"@wait 2\", \"@see x y\", \"@size 40x120\", \"exit\\r\"]"
        );
        let wait = Key::Wait(Duration::from_secs(2));
        let expected = [wait, Key::See("x y".into()), Key::Size(40, 120), Key::Text("exit\r".into())];
        assert_eq!(parse("f", &text).unwrap()[0].keys, expected);
    }

    #[test]
    fn what_the_readme_does_not_describe_is_refused() {
        for (lines, reason) in [
            ("code = 0\nsees = [\"x\"]", "f.toml: a: unknown key `sees`"),
            ("code = \"0\"", "f.toml: a: `code` is no number"),
            ("see = \"x\"", "f.toml: a: `see` is no list of texts"),
            ("see = [\"\"]", "f.toml: a: `see` is no list of texts"),
            ("code = 0\nusers = [\"me\"]", "f.toml: a: \"me\" in `users` is neither root nor 65534"),
            ("code = 0\ndirectory = \"here\"", "f.toml: a: `directory` is \"here\", neither home nor tmp"),
            ("code = 0\nthen = \"x\"", "f.toml: a: `then` needs a `message` that says it"),
            ("code = 0\nkeys = [\"x\"]", "f.toml: a: `keys` needs `terminal`"),
            ("", "f.toml: a: nothing is to be seen: `code`, `see`, `after` or `message` is missing"),
        ] {
            assert_eq!(parse("f", &format!("{LEAST}{lines}")).unwrap_err(), reason);
        }
        let unknown = format!("{LEAST}code = 0\nterminal = true\nkeys = [\"@sea x\"]");
        assert!(parse("f", &unknown).unwrap_err().contains("@sea"));
    }

    #[test]
    fn two_tasks_of_one_name_are_refused() {
        let tasks = parse("f", &format!("{LEAST}code = 0\n{LEAST}code = 0")).unwrap();
        assert_eq!(unique(&tasks).unwrap_err(), "f.toml: `a` is the id of another task, too");
    }
}
