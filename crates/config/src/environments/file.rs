//! The configuration file: `[environments.NAME]`, `[project]` and `[session]`. Other tables of the same file belong to other
//! programs and are ignored.
//!
//! All mistakes are reported at once, each with its line, its key and what is accepted. Pure: parses a text, and does not look at
//! the paths and references in it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use cofferdam_engine::network_address::is_this_machine;
use cofferdam_policy::bundles::allow_rules;
use cofferdam_policy::sizes::mebibytes;
use cofferdam_policy::{Access, AllowEntry, AllowRule, BackendName, HttpUrl, NetworkMode, To, closest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::metadata::{most_memory, most_seconds};
use super::packages::{INDEX_ACCEPTED, index_fault, is_package};
use super::{
    ACCESS_ACCEPTED, BackendWord, DefinitionProblem, NAME_ACCEPTED, Overrides, PRESETS, PROJECT_ACCESS, Packages,
    ProjectDefinition, interpreter_words, is_name, is_variable, shown,
};

/// What a definition runs its code with, as written in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefinitionSource {
    /// `preset`.
    Preset(String),
    /// `sandbox`, a path.
    Directory(PathBuf),
    /// `sandbox`, a flake reference.
    Reference(String),
    /// `flake`, with `interpreter`.
    Flake(String, Vec<String>),
    /// `profile`, possibly with `interpreter`.
    Profile(PathBuf, Vec<String>),
    /// `image`, a reference, possibly with `interpreter`.
    Image(String, Vec<String>),
    /// `image`, the absolute path of a tarball or directory, possibly with `interpreter`.
    ImageAt(PathBuf, Vec<String>),
}

/// One `[environments.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The name, which may be invalid; then `what` has the mistake.
    pub name: String,
    /// `FILE:LINE`.
    pub place: String,
    /// Its source and settings, or all mistakes in it.
    pub what: Result<(DefinitionSource, Overrides), Vec<DefinitionProblem>>,
}

/// A parsed configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    /// The definitions, in the order of their names.
    pub definitions: Vec<Definition>,
    /// Mistakes outside the definitions. With any, no part of the file is used.
    pub problems: Vec<DefinitionProblem>,
    /// `[project]`, its path absolute.
    pub project: Option<ProjectDefinition>,
    /// `[session]`.
    pub session: Lives,
    /// Keys of other programs that have no effect here: `PLACE: KEY`.
    pub ignored: Vec<String>,
}

/// What to use for networks that a definition's `network` cannot express.
const HOSTS: &str = "; a list of hosts is `allow`, as in allow = [\"@pypi\", \"api.example.org:443\"]";
/// What an element of `allow` may be.
const ENTRY: &str =
    "a list of hosts such as \"api.example.org:443\" or \"*.example.org\", or bundles such as \"@pypi\"";

/// What an element of `allow_private` may be.
const PRIVATE: &str = "a list of single hosts such as \"db.example.org:5432\"";

const FORMS: &[&str] = &["preset", "sandbox", "flake", "profile", "image"];
const KEYS: &[&str] = &[
    "preset",
    "sandbox",
    "flake",
    "profile",
    "image",
    "interpreter",
    "venv",
    "packages",
    "index",
    "timeout_seconds",
    "memory",
    "memory_mb",
    "network",
    "allow",
    "allow_private",
    "description",
    "backend",
    "nesting",
];

/// Parses a configuration. `file` is its absolute path, which relative paths start from; `home` is the value of `~/`.
pub fn parse(text: &str, file: &Path, home: Option<&str>) -> Parsed {
    let mut out = Parsed::default();
    let reader = DefinitionReader { text, file, home };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        out.problems.push(reader.syntax(error, document.get_ref()));
    }
    for (key, value) in document.get_ref() {
        match key.get_ref().as_ref() {
            "environments" => reader.environments(value, &mut out),
            "project" => reader.project(value, &mut out),
            "session" => reader.session(value, &mut out),
            _ => {}
        }
    }
    // Last, since the table may precede the definitions that it applies to.
    if let Some(value) = document.get_ref().get("defaults") {
        reader.defaults(value, &mut out);
    }
    out
}

struct DefinitionReader<'t> {
    text: &'t str,
    file: &'t Path,
    home: Option<&'t str>,
}

impl DefinitionReader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        self.text.as_bytes().iter().take(span.start).filter(|byte| **byte == b'\n').count() + 1
    }

    fn place(&self, span: &Range<usize>) -> String {
        format!("{}:{}", self.file.display(), self.line(span))
    }

    fn problem(&self, span: &Range<usize>, key: &str, problem: impl Into<String>, accepted: &str) -> DefinitionProblem {
        let key = key.escape_debug().to_string();
        DefinitionProblem { place: self.place(span), key, problem: problem.into(), accepted: accepted.into() }
    }

    /// An error of the parser. For a duplicate key it names the place of the first one.
    fn syntax(&self, error: &toml::de::Error, document: &DeTable<'_>) -> DefinitionProblem {
        let span = error.span().unwrap_or_default();
        let mut problem = error.message().to_owned();
        if problem.contains("duplicate key") {
            let line = self.text.lines().nth(self.line(&span) - 1).unwrap_or_default().trim();
            let is_header = line.starts_with('[');
            let word = if is_header { line } else { self.text.get(span.clone()).unwrap_or_default() };
            let first = match is_header {
                true => self.header_before(line, span.start),
                false => first_of(document, word.trim_matches(['"', '\'']), span.start, 0),
            };
            if let Some(first) = first {
                problem = format!("{} is defined twice: here and at {}", shown(word), self.place(&first));
            }
        }
        self.problem(&span, "", problem, "")
    }

    /// The same header on an earlier line.
    fn header_before(&self, header: &str, before: usize) -> Option<Range<usize>> {
        let mut start = 0;
        for line in self.text.split_inclusive('\n') {
            if start + line.len() > before {
                return None;
            }
            if line.trim() == header {
                return Some(start..start);
            }
            start += line.len();
        }
        None
    }

    fn environments(&self, value: &Spanned<DeValue<'_>>, out: &mut Parsed) {
        let DeValue::Table(table) = value.get_ref() else {
            let found = kind(value.get_ref());
            return out.problems.push(self.problem(
                &value.span(),
                "environments",
                found,
                "tables: [environments.NAME]",
            ));
        };
        for (key, value) in table {
            let name: &str = key.get_ref();
            let mut problems = Vec::new();
            if !is_name(name) {
                let key_ = format!("environments.{name}");
                problems.push(self.problem(&key.span(), &key_, format!("{} is no name", shown(name)), NAME_ACCEPTED));
            }
            let read = self.environment(name, &key.span(), value, &mut problems);
            let what = match read {
                Some(read) if problems.is_empty() => Ok(read),
                _ => Err(problems),
            };
            out.definitions.push(Definition { name: name.to_owned(), place: self.place(&key.span()), what });
        }
    }

    fn environment(
        &self,
        name: &str,
        at: &Range<usize>,
        value: &Spanned<DeValue<'_>>,
        problems: &mut Vec<DefinitionProblem>,
    ) -> Option<(DefinitionSource, Overrides)> {
        let prefix = format!("environments.{name}");
        let DeValue::Table(table) = value.get_ref() else {
            problems.push(self.problem(&value.span(), &prefix, kind(value.get_ref()), "a table"));
            return None;
        };
        let mut fields = Fields { reader: self, prefix: &prefix, table, problems };
        fields.unknown(KEYS);
        let forms: Vec<&str> = FORMS.iter().copied().filter(|form| fields.get(form).is_some()).collect();
        let one = format!("exactly one of {}", FORMS.join(", "));
        let interpreter = fields.text("interpreter").map(|(text, span)| (interpreter_words(text), span));
        let interpreter = match interpreter {
            Some((Ok(words), span)) => Some((words, span)),
            Some((Err(problem), span)) => {
                fields.wrong(&span, "interpreter", problem, "a program and its options, as in \"python3 -c\"");
                None
            }
            None => None,
        };
        if let (Some((_, span)), Some(form)) = (&interpreter, forms.first())
            && !matches!(*form, "preset" | "flake" | "profile" | "image")
        {
            let accepted = "with preset, flake, profile or image";
            fields.wrong(span, "interpreter", format!("is of no use with `{form}`"), accepted);
        }
        fields.require_python(&forms);
        let words = interpreter.map(|(words, _)| words);
        let own = words.clone().filter(|_| forms == ["preset"]).unwrap_or_default();
        let source = match forms[..] {
            [form] => fields.source(form, words),
            [] => {
                fields.wrong(at, "", "says nothing to run code with", &one);
                None
            }
            _ => {
                let span = fields.get(forms[1]).map_or(at.clone(), Spanned::span);
                fields.wrong(&span, "", format!("has {}", forms.join(" and ")), &one);
                None
            }
        };
        let overrides = Overrides { interpreter: own, ..fields.overrides() };
        Some((source?, overrides))
    }

    fn project(&self, value: &Spanned<DeValue<'_>>, out: &mut Parsed) {
        let DeValue::Table(table) = value.get_ref() else {
            return out.problems.push(self.problem(&value.span(), "project", kind(value.get_ref()), "a table"));
        };
        let mut fields = Fields { reader: self, prefix: "project", table, problems: &mut out.problems };
        fields.unknown(&["path", "mount_point", "use_flake", "inherit_env", "access"]);
        let path = fields.text("path").map_or(".", |(path, _)| path);
        let path = self.path(path);
        let mount_point = fields.text("mount_point").map(|(text, _)| text.to_owned());
        let use_flake = fields.flag("use_flake");
        let inherit_env = fields.names("inherit_env");
        let mut access = Access::default();
        if let Some((text, span)) = fields.text("access") {
            match PROJECT_ACCESS.iter().find(|(word, _)| *word == text) {
                Some((_, word)) => access = *word,
                None => fields.wrong(&span, "access", format!("{} is none", shown(text)), ACCESS_ACCEPTED),
            }
        }
        out.project = Some(ProjectDefinition { path, mount_point, use_flake, inherit_env, access });
    }

    /// Default limits of definitions that have none of their own. An artifact always has its own.
    fn defaults(&self, value: &Spanned<DeValue<'_>>, out: &mut Parsed) {
        let DeValue::Table(table) = value.get_ref() else {
            return out.problems.push(self.problem(&value.span(), "defaults", kind(value.get_ref()), "a table"));
        };
        let mut fields = Fields { reader: self, prefix: "defaults", table, problems: &mut out.problems };
        let seconds = fields.number("timeout_seconds", most_seconds());
        let memory = fields.number("memory_mb", most_memory());
        for definition in &mut out.definitions {
            let Ok((source, overrides)) = &mut definition.what else { continue };
            if !matches!(source, DefinitionSource::Directory(_) | DefinitionSource::Reference(_)) {
                overrides.timeout_seconds = overrides.timeout_seconds.or(seconds);
                overrides.memory_mb = overrides.memory_mb.or(memory);
            }
        }
        let others = table.keys().filter(|key| !["timeout_seconds", "memory_mb"].contains(&key.get_ref().as_ref()));
        out.ignored.extend(
            others.map(|key| format!("{}: defaults.{}", self.place(&key.span()), key.get_ref().escape_debug())),
        );
    }

    fn session(&self, value: &Spanned<DeValue<'_>>, out: &mut Parsed) {
        let DeValue::Table(table) = value.get_ref() else {
            return out.problems.push(self.problem(&value.span(), "session", kind(value.get_ref()), "a table"));
        };
        let mut fields = Fields { reader: self, prefix: "session", table, problems: &mut out.problems };
        fields.unknown(&["idle_timeout_seconds", "max_lifetime_seconds", "max_sessions", "max_sessions_per_client"]);
        let lives = Lives {
            idle_timeout_seconds: fields.number("idle_timeout_seconds", most_seconds()),
            max_lifetime_seconds: fields.number("max_lifetime_seconds", most_seconds()),
            max_sessions: fields.number("max_sessions", MOST_SESSIONS),
            max_sessions_per_client: fields.number("max_sessions_per_client", MOST_SESSIONS),
        };
        let total = lives.max_sessions.unwrap_or(super::SessionSettings::default().max_sessions);
        if let Some(own) = lives.max_sessions_per_client.filter(|own| *own > total)
            && let Some(value) = fields.table.get("max_sessions_per_client")
        {
            let problem = format!("`{own}` is more than all clients together may have, by max_sessions");
            fields.wrong(&value.span(), "max_sessions_per_client", problem, &format!("1 to {total}"));
        }
        out.session = lives;
    }

    /// Resolves a path: below the home, or relative to the directory of the file.
    fn path(&self, text: &str) -> PathBuf {
        match (text.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => Path::new(home).join(rest),
            _ => self.file.parent().unwrap_or(Path::new("/")).join(text),
        }
    }
}

/// The `[session]` table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lives {
    /// Seconds without a call.
    pub idle_timeout_seconds: Option<u64>,
    /// Seconds until a session ends in any case.
    pub max_lifetime_seconds: Option<u64>,
    /// Most sessions of all clients at a time.
    pub max_sessions: Option<u64>,
    /// Most sessions of one client at a time.
    pub max_sessions_per_client: Option<u64>,
}

/// The rule of an entry of `allow_private`.
fn private_rule(text: &str) -> Result<AllowRule, String> {
    let entry: AllowEntry = text.parse().map_err(|fault: &str| fault.to_owned())?;
    let rule = AllowRule { private: true, ..AllowRule::from(entry) };
    let this_machine = matches!(&rule.entry.to, To::Host { name } if is_this_machine(name));
    if this_machine {
        return Err("this machine, whose own services no name leads to".to_owned());
    }
    rule.private_fault().map_or(Ok(rule), |(problem, accepted)| Err(format!("{problem}; {accepted}")))
}

/// The largest number of sessions that is accepted.
const MOST_SESSIONS: u64 = 10_000;

/// Whether a `sandbox` is a flake reference, and not a path.
pub(super) fn is_reference(text: &str) -> bool {
    let path = ["/", "./", "../", "~/"].iter().any(|start| text.starts_with(start));
    text.contains('#') || (!path && text.contains(':'))
}

/// Whether a reference names a path of this host.
fn is_local(text: &str) -> bool {
    text.starts_with(['/', '.']) || text.starts_with("~/")
}

/// The first key of that name before a position, at any depth.
fn first_of(table: &DeTable<'_>, name: &str, before: usize, depth: usize) -> Option<Range<usize>> {
    if depth > 3 {
        return None;
    }
    let own = table.iter().find(|(key, _)| key.get_ref() == name && key.span().start < before);
    own.map(|(key, _)| key.span()).or_else(|| {
        let tables = table.values().filter_map(|value| value.get_ref().as_table());
        tables.filter_map(|table| first_of(table, name, before, depth + 1)).max_by_key(|span| span.start)
    })
}

fn kind(value: &DeValue<'_>) -> String {
    let article = if matches!(value, DeValue::Integer(_) | DeValue::Array(_)) { "an" } else { "a" };
    format!("is {article} {}", value.type_str())
}

struct Fields<'a, 't> {
    reader: &'a DefinitionReader<'a>,
    prefix: &'a str,
    table: &'a DeTable<'t>,
    problems: &'a mut Vec<DefinitionProblem>,
}

impl<'a> Fields<'a, '_> {
    fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'_>>> {
        self.table.get(key)
    }

    fn wrong(&mut self, span: &Range<usize>, key: &str, problem: impl Into<String>, accepted: &str) {
        let key = if key.is_empty() { self.prefix.to_owned() } else { format!("{}.{key}", self.prefix) };
        self.problems.push(self.reader.problem(span, &key, problem, accepted));
    }

    fn unknown(&mut self, known: &[&str]) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let meant = closest(name, known.iter().copied());
                let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
                self.wrong(&key.span(), name, format!("is not known{meant}"), &known.join(", "));
            }
        }
    }

    fn text(&mut self, key: &str) -> Option<(&'a str, Range<usize>)> {
        let value = self.table.get(key)?;
        match value.get_ref() {
            DeValue::String(text) if !text.is_empty() && !text.contains('\0') => Some((text, value.span())),
            DeValue::String(_) => {
                self.wrong(&value.span(), key, "is empty, or has a NUL in it", "text");
                None
            }
            other => {
                self.wrong(&value.span(), key, kind(other), "a string");
                None
            }
        }
    }

    fn number(&mut self, key: &str, most: u64) -> Option<u64> {
        let value = self.table.get(key)?;
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong(&value.span(), key, kind(value.get_ref()), &format!("a whole number, 1 to {most}"));
            return None;
        };
        match u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()) {
            Ok(number) if (1..=most).contains(&number) => Some(number),
            _ => {
                let problem = format!("{} is out of range", shown(number.as_str()));
                self.wrong(&value.span(), key, problem, &format!("1 to {most}"));
                None
            }
        }
    }

    fn flag(&mut self, key: &str) -> bool {
        match self.table.get(key).map(|value| (value.get_ref().as_bool(), value)) {
            None => false,
            Some((Some(flag), _)) => flag,
            Some((None, value)) => {
                self.wrong(&value.span(), key, kind(value.get_ref()), "true or false");
                false
            }
        }
    }

    /// Names of variables: a list, or `{ vars = [...] }` as in the metadata of wrappers.
    fn names(&mut self, key: &str) -> Vec<String> {
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let list = match value.get_ref() {
            DeValue::Table(table) if table.len() <= 1 => match table.get("vars") {
                Some(list) => list,
                None if table.is_empty() => return Vec::new(),
                None => value,
            },
            _ => value,
        };
        let texts = list.get_ref().as_array().map(|array| array.iter().map(|item| item.get_ref().as_str()).collect());
        let names: Option<Vec<&str>> = texts.unwrap_or(None);
        match names {
            Some(names) if names.iter().all(|name| is_variable(name)) => names.into_iter().map(str::to_owned).collect(),
            _ => {
                self.wrong(&value.span(), key, "is no list of names", "a list of variables' names");
                Vec::new()
            }
        }
    }

    fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)], besides: &str) -> Option<T> {
        let (text, span) = self.text(key)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let accepted = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ") + besides;
            self.wrong(&span, key, format!("{} is not known", shown(text)), &accepted);
        }
        found.map(|(_, value)| *value)
    }

    fn source(&mut self, form: &str, interpreter: Option<Vec<String>>) -> Option<DefinitionSource> {
        let (text, span) = self.text(form)?;
        let reference =
            (form == "image" && !is_local(text)) || form == "flake" || (form == "sandbox" && is_reference(text));
        if reference && (text.starts_with('-') || text.contains(|c: char| c.is_whitespace() || c.is_control())) {
            let problem = format!("{} is no reference", shown(text));
            self.wrong(&span, form, problem, "text without spaces that does not begin with `-`");
            return None;
        }
        let path = || self.reader.path(text);
        Some(match form {
            "preset" if PRESETS.contains(&text) => DefinitionSource::Preset(text.to_owned()),
            "preset" => {
                self.wrong(&span, form, format!("{} is not known", shown(text)), &PRESETS.join(", "));
                return None;
            }
            "sandbox" if reference => DefinitionSource::Reference(self.local(text)),
            "sandbox" => DefinitionSource::Directory(path()),
            // The default of the builder.
            "flake" => DefinitionSource::Flake(
                self.local(text),
                interpreter.unwrap_or_else(|| vec!["bash".into(), "-s".into()]),
            ),
            "profile" => DefinitionSource::Profile(path(), interpreter.unwrap_or_default()),
            _ if reference => DefinitionSource::Image(text.to_owned(), interpreter.unwrap_or_default()),
            _ => DefinitionSource::ImageAt(path(), interpreter.unwrap_or_default()),
        })
    }

    /// A reference to a directory is relative to the file, as a path is.
    fn local(&self, text: &str) -> String {
        let is_local = is_local(text) && !text.starts_with('/');
        let (path, rest) = text.split_at(text.find('#').unwrap_or(text.len()));
        if is_local { format!("{}{rest}", self.reader.path(path).display()) } else { text.to_owned() }
    }

    /// `memory` as a size, or `memory_mb` as a number.
    fn memory(&mut self) -> Option<u64> {
        let number = self.number("memory_mb", most_memory());
        let Some((text, span)) = self.text("memory") else { return number };
        if self.get("memory_mb").is_some() {
            self.wrong(&span, "memory", "says the same as `memory_mb`", "one of both");
        }
        match mebibytes(text) {
            Ok(size) if (1..=most_memory()).contains(&size) => Some(size),
            _ => {
                let problem = format!("{} is no size that is accepted", shown(text));
                self.wrong(&span, "memory", problem, "a whole number of MiB, as in \"512m\" or \"2g\"");
                None
            }
        }
    }

    /// The rules of `allow`: hosts, and bundles of them.
    fn allow(&mut self) -> Vec<AllowRule> {
        self.hosts("allow", ENTRY, |text| {
            allow_rules(text).map_err(|fault| {
                let meant = fault.meant().map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
                format!("{fault}{meant}")
            })
        })
    }

    /// The rules of a list of hosts.
    fn hosts(
        &mut self,
        key: &str,
        accepted: &str,
        rules_of: impl Fn(&str) -> Result<Vec<AllowRule>, String>,
    ) -> Vec<AllowRule> {
        let Some(value) = self.table.get(key) else { return Vec::new() };
        if let Some(network) = self.table.get("network") {
            let problem = format!("says otherwise than `{key}`, which reaches its hosts alone");
            self.wrong(&network.span(), "network", problem, "one of both");
        }
        let Some(list) = value.get_ref().as_array().filter(|list| !list.is_empty()) else {
            self.wrong(&value.span(), key, "is no list of hosts", accepted);
            return Vec::new();
        };
        let mut rules = Vec::new();
        for item in list {
            let Some(text) = item.get_ref().as_str() else {
                self.wrong(&item.span(), key, kind(item.get_ref()), accepted);
                continue;
            };
            match rules_of(text) {
                Ok(found) => rules.extend(found),
                Err(fault) => self.wrong(&item.span(), key, format!("{}: {fault}", shown(text)), accepted),
            }
        }
        rules
    }

    fn packages(&mut self, private: &[AllowRule]) -> Packages {
        let names = self.package_names();
        let besides = if names.is_empty() { Vec::new() } else { private.to_vec() };
        Packages { names, index: self.index(), besides }
    }

    /// The `index` of `packages`.
    fn index(&mut self) -> Option<HttpUrl> {
        let (text, span) = self.text("index")?;
        if self.get("packages").is_none() {
            self.wrong(&span, "index", "is of no use without `packages`", "with packages = [\"NAME\"]");
        }
        // What cannot be read may have a password in it, which no message shows.
        let read = text.parse::<HttpUrl>().map_err(|why| (why.to_owned(), INDEX_ACCEPTED));
        match read.and_then(|index| index_fault(&index).map_or(Ok(index), Err)) {
            Ok(index) => Some(index),
            Err((problem, accepted)) => {
                self.wrong(&span, "index", problem, accepted);
                None
            }
        }
    }

    /// The packages of `packages`: names of an index, with extras and versions.
    fn package_names(&mut self) -> Vec<String> {
        const ACCEPTED: &str = "a list of packages such as \"pandas\" or \"uvicorn[standard]>=0.30\"";
        let Some(value) = self.table.get("packages") else { return Vec::new() };
        let Some(list) = value.get_ref().as_array().filter(|list| !list.is_empty()) else {
            self.wrong(&value.span(), "packages", "is no list of packages", ACCEPTED);
            return Vec::new();
        };
        let mut packages = Vec::new();
        for item in list {
            match item.get_ref().as_str() {
                Some(name) if is_package(name) => packages.push(name.to_owned()),
                Some(name) => {
                    self.wrong(&item.span(), "packages", format!("{} names no package", shown(name)), ACCEPTED)
                }
                None => self.wrong(&item.span(), "packages", kind(item.get_ref()), ACCEPTED),
            }
        }
        packages
    }

    /// Requires that `venv` and `packages` stand alone, and beside `preset = "python"`.
    fn require_python(&mut self, forms: &[&str]) {
        let python = forms == ["preset"] && self.get("preset").is_some_and(|v| v.get_ref().as_str() == Some("python"));
        let keys = ["venv", "packages"].into_iter().filter(|key| self.table.contains_key(*key));
        let keys: Vec<&str> = keys.collect();
        let Some(value) = keys.first().and_then(|key| self.get(key)) else { return };
        let span = value.span();
        if keys.len() == 2 {
            self.wrong(&span, "packages", "and `venv` would both say which packages there are", "one of both");
        }
        if !python {
            self.wrong(&span, keys[0], "is of no use without a Python of its own", "with preset = \"python\"");
        } else if self.table.contains_key("interpreter") {
            self.wrong(&span, keys[0], "and `interpreter` would both say what runs the code", "one of both");
        }
    }

    fn overrides(&mut self) -> Overrides {
        let networks = [("none", NetworkMode::None), ("loopback", NetworkMode::Loopback), ("host", NetworkMode::Host)];
        let backends: Vec<(&str, BackendWord)> = BackendName::NAMES
            .iter()
            .map(|(name, backend)| (*name, BackendWord::Ours(*backend)))
            .chain([("microvm", BackendWord::Microvm)])
            .collect();
        let private = self.hosts("allow_private", PRIVATE, |text| private_rule(text).map(|rule| vec![rule]));
        Overrides {
            interpreter: Vec::new(),
            venv: self.text("venv").map(|(text, _)| self.reader.path(text)),
            packages: self.packages(&private),
            timeout_seconds: self.number("timeout_seconds", most_seconds()),
            memory_mb: self.memory(),
            network: self.word("network", &networks, HOSTS),
            allow: self.allow().into_iter().chain(private).collect(),
            description: self.text("description").map(|(text, _)| text.to_owned()),
            backend: self.word("backend", &backends, ""),
            nesting: self.flag("nesting"),
        }
    }
}
