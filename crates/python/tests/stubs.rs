//! The type stubs have exactly the names of the native module.

use std::collections::{BTreeMap, BTreeSet};

const STUBS: &str = include_str!("../../../python/cofferdam/_native.pyi");

const SOURCES: &[&str] = &[
    include_str!("../src/attach.rs"),
    include_str!("../src/errors.rs"),
    include_str!("../src/fork.rs"),
    include_str!("../src/lib.rs"),
    include_str!("../src/outcome.rs"),
    include_str!("../src/prepared.rs"),
    include_str!("../src/profiles.rs"),
    include_str!("../src/run.rs"),
];

/// Types that only the stubs have.
const STUBS_ALONE: &[&str] = &["Truncated"];

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The name that each class has in Python, by the name of its type.
fn classes() -> BTreeMap<&'static str, &'static str> {
    let mut classes = BTreeMap::new();
    for source in SOURCES {
        let mut marked = None;
        for line in source.lines() {
            if line.starts_with("#[pyclass") {
                marked = line.split_once("name = \"").map(|(_, name)| word(name));
            } else if let Some((_, name)) = line.split_once("struct ")
                && let Some(class) = marked.take()
            {
                classes.insert(word(name), class);
            }
        }
    }
    classes
}

/// The names of classes, functions and methods, methods as `Class.name`.
fn in_rust() -> BTreeSet<String> {
    let classes = classes();
    let mut found = BTreeSet::new();
    for source in SOURCES {
        let (mut class, mut methods, mut marked) = (String::new(), false, "");
        for line in source.lines() {
            let text = line.trim_start();
            let item = ["pub ", "pub(crate) "].iter().find_map(|visible| text.strip_prefix(visible)).unwrap_or(text);
            if let Some(kind) = ["#[pyclass", "#[pyfunction"].into_iter().find(|mark| text.starts_with(mark)) {
                marked = kind;
            } else if text == "#[pymethods]" {
                methods = true;
            } else if let Some(name) = text.strip_prefix("create_exception!(") {
                // The name is on the same line, or on the second of the following ones.
                marked = if name.is_empty() { "exception" } else { "" };
                found.extend(name.split(", ").nth(1).map(str::to_owned));
            } else if marked == "exception" && text != "cofferdam," {
                found.insert(word(text).to_owned());
                marked = "";
            } else if let Some(name) = item.strip_prefix("struct ").filter(|_| marked == "#[pyclass") {
                found.insert(classes[word(name)].to_owned());
                marked = "";
            } else if let Some(name) = text.strip_prefix("impl ").filter(|_| methods) {
                class = classes[word(name)].to_owned();
            } else if line == "}" {
                (class, methods) = (String::new(), false);
            } else if let Some(name) = item.strip_prefix("fn ") {
                let name = if word(name) == "new" { "__init__" } else { word(name) };
                if marked == "#[pyfunction" {
                    found.insert(name.to_owned());
                    marked = "";
                } else if methods && name != "__repr__" {
                    found.insert(format!("{class}.{name}"));
                }
            } else if line.starts_with("    ") && text.ends_with(',') && marked.is_empty() && text.contains(": ") {
                found.extend(fields_of_results(source, text));
            }
        }
    }
    found
}

/// Fields of the two classes that show all their fields.
fn fields_of_results(source: &str, line: &str) -> Option<String> {
    let class = ["PyExecutionResult", "PyResourceUsage"].into_iter().find(|class| {
        let Some((_, rest)) = source.split_once(&format!("pub struct {class} {{")) else { return false };
        rest.split_once("\n}").is_some_and(|(fields, _)| fields.lines().any(|field| field.trim_start() == line))
    })?;
    Some(format!("{}.{}", classes()[class], word(line)))
}

fn in_stubs() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut class = "";
    for line in STUBS.lines() {
        if let Some(name) = line.strip_prefix("class ") {
            class = word(name);
            found.insert(class.to_owned());
        } else if let Some(name) = line.strip_prefix("def ") {
            found.insert(word(name).to_owned());
        } else if let Some(name) = line.strip_prefix("    def ") {
            found.insert(format!("{class}.{}", word(name)));
        }
    }
    found.into_iter().filter(|name| !STUBS_ALONE.contains(&name.as_str())).collect()
}

#[test]
fn the_stubs_name_what_the_module_has() {
    let (rust, stubs) = (in_rust(), in_stubs());
    assert!(
        rust.contains("Prepared.run") && rust.contains("PolicyError") && rust.contains("Store.__init__"),
        "{rust:?}"
    );
    let missing: Vec<_> = rust.difference(&stubs).collect();
    let extra: Vec<_> = stubs.difference(&rust).collect();
    assert!(missing.is_empty() && extra.is_empty(), "not in the stubs: {missing:?}; only there: {extra:?}");
}
