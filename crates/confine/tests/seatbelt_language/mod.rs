//! A small evaluator of Seatbelt's language, for tests of profiles: the last rule that matches decides.
//! What it does not know it panics on, so that no profile passes by a word that may not exist.

#![allow(dead_code, missing_docs, reason = "each test uses its part")]

use std::collections::BTreeMap;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    Word(String),
    Text(String),
    Pattern(String),
    List(Vec<Form>),
}

impl Form {
    fn list(&self) -> &[Form] {
        match self {
            Form::List(items) => items,
            other => panic!("{other:?} is no list"),
        }
    }

    fn word(&self) -> &str {
        match self {
            Form::Word(word) => word,
            other => panic!("{other:?} is no word"),
        }
    }
}

/// Reads a whole profile.
pub(crate) fn parse(text: &str) -> Vec<Form> {
    let mut chars = text.chars().peekable();
    let mut stack: Vec<Vec<Form>> = vec![Vec::new()];
    while let Some(c) = chars.next() {
        match c {
            ';' => drop(chars.by_ref().find(|c| *c == '\n')),
            c if c.is_whitespace() => {}
            '(' => stack.push(Vec::new()),
            ')' => {
                let list = stack.pop().unwrap();
                stack.last_mut().expect("no more closed than opened").push(Form::List(list));
            }
            '"' | '#' => {
                if c == '#' {
                    assert_eq!(chars.next(), Some('"'), "only #\"…\" is a pattern");
                }
                let mut text = String::new();
                loop {
                    match chars.next().expect("a string ends") {
                        '"' => break,
                        '\\' if c == '"' => text.push(chars.next().unwrap()),
                        other => text.push(other),
                    }
                }
                let form = if c == '#' { Form::Pattern(text) } else { Form::Text(text) };
                stack.last_mut().unwrap().push(form);
            }
            first => {
                let mut word = String::from(first);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !"()\";".contains(*c)) {
                    word.push(c);
                }
                assert!(!word.starts_with('/'), "a bare path: {word}");
                stack.last_mut().unwrap().push(Form::Word(word));
            }
        }
    }
    assert_eq!(stack.len(), 1, "everything opened is closed");
    stack.pop().unwrap()
}

/// One thing that a program might do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempt<'a> {
    pub operation: &'a str,
    pub path: Option<&'a str>,
    pub device: bool,
    /// Host and port on the far or the near side.
    pub remote: Option<&'a str>,
    pub local: Option<&'a str>,
    pub other_sandbox: bool,
    pub name: Option<&'a str>,
}

pub(crate) struct Profile {
    rules: Vec<Form>,
    parameters: BTreeMap<String, String>,
}

impl Profile {
    pub(crate) fn new(profile: &cofferdam_confine::seatbelt::Profile) -> Profile {
        let rules = parse(&profile.text);
        assert_eq!(rules[0], Form::List(vec![Form::Word("version".into()), Form::Word("1".into())]));
        assert_eq!(rules[1].list()[1].word(), "default", "the default rule comes second");
        Profile { rules, parameters: profile.parameters.iter().cloned().collect() }
    }

    /// The last rule that matches decides.
    pub(crate) fn allows(&self, attempt: &Attempt<'_>) -> bool {
        let mut allowed = None;
        for rule in &self.rules[1..] {
            let (verdict, rest) = rule.list().split_first().unwrap();
            let operations = rest.iter().take_while(|form| matches!(form, Form::Word(_)));
            let matches = operations.clone().any(|operation| covers(operation.word(), attempt.operation));
            let filters: Vec<&Form> = rest.iter().skip(operations.count()).filter(|f| !is_modifier(f)).collect();
            if matches && (filters.is_empty() || filters.iter().any(|filter| self.holds(filter, attempt))) {
                allowed = Some(match verdict.word() {
                    "allow" => true,
                    "deny" => false,
                    other => panic!("{other} is no verdict"),
                });
            }
        }
        allowed.expect("there is a default")
    }

    fn value<'f>(&'f self, form: &'f Form) -> &'f str {
        match form {
            Form::Text(text) => text,
            Form::List(list) if list[0].word() == "param" => match &list[1] {
                Form::Text(name) => self.parameters.get(name).unwrap_or_else(|| panic!("no parameter {name}")),
                other => panic!("{other:?} is no parameter's name"),
            },
            other => panic!("{other:?} is no value"),
        }
    }

    fn holds(&self, filter: &Form, attempt: &Attempt<'_>) -> bool {
        let (name, rest) = filter.list().split_first().unwrap();
        let path_is = |test: &dyn Fn(&str) -> bool| attempt.path.is_some_and(test);
        match name.word() {
            "require-all" => rest.iter().all(|f| self.holds(f, attempt)),
            "require-any" => rest.iter().any(|f| self.holds(f, attempt)),
            "require-not" => !self.holds(&rest[0], attempt),
            "literal" => path_is(&|path| path == self.value(&rest[0])),
            "subpath" => path_is(&|path| {
                let base = self.value(&rest[0]);
                base == "/" || path == base || path.strip_prefix(base).is_some_and(|below| below.starts_with('/'))
            }),
            "regex" => match &rest[0] {
                // As far as it is used: a literal text between ^ and $, with a number at its end or without.
                Form::Pattern(p) => path_is(&|path| {
                    let text = p.trim_matches(['^', '$']).replace('\\', "");
                    match text.strip_suffix("[0-9]+") {
                        Some(stem) => path.strip_prefix(stem).is_some_and(|n| n.parse::<u64>().is_ok()),
                        None => text == path,
                    }
                }),
                other => panic!("{other:?} is no pattern"),
            },
            "vnode-type" => attempt.device && rest[0].word() == "CHARACTER-DEVICE",
            "remote" => self.end(rest, attempt.remote, attempt),
            "local" => self.end(rest, attempt.local, attempt),
            "target" => rest[0].word() == "same-sandbox" && !attempt.other_sandbox,
            "global-name" | "ipc-posix-name" => attempt.name == Some(self.value(&rest[0])),
            "socket-domain" | "socket-protocol" => false,
            other => panic!("{other} is not a filter that is known to exist"),
        }
    }

    fn end(&self, rest: &[Form], end: Option<&str>, attempt: &Attempt<'_>) -> bool {
        match rest[0].word() {
            "unix-socket" => self.holds(&rest[1], attempt),
            "ip" => {
                let (host, port) = self.value(&rest[1]).split_once(':').unwrap();
                assert!(["localhost", "*"].contains(&host), "Seatbelt knows no other host: {host}");
                end.and_then(|end| end.split_once(':'))
                    .is_some_and(|(h, p)| (host == "*" || h == "localhost") && (port == "*" || port == p))
            }
            other => panic!("{other} is no kind of address"),
        }
    }
}

fn is_modifier(form: &Form) -> bool {
    matches!(form, Form::List(list) if list[0] == Form::Word("with".into()))
}

/// Whether a rule's operation is the attempted one, or stands for it.
fn covers(rule: &str, operation: &str) -> bool {
    rule == "default" || rule == operation || rule.strip_suffix('*').is_some_and(|stem| operation.starts_with(stem))
}

pub(crate) fn on<'a>(operation: &'a str, path: &'a str) -> Attempt<'a> {
    Attempt { operation, path: Some(path), ..Attempt::default() }
}
