//! What the values of a configuration name that is not the caller's to keep: further configurations, directories of hooks or
//! extensions, and the words that may be programs. Pure.
//!
//! Any key may have a program behind it, those of later versions as well. So each word of each value counts, but for keys that
//! are known to name none, and the caller looks which of them are files.

use crate::repository::vcs_config::{settings_of_git, settings_of_mercurial};

/// Words of one value that are looked at, at most. A longer one is a program by itself.
const MOST_WORDS: usize = 256;

/// What a value names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NamedValue {
    /// A configuration that is read as well.
    Configuration(String),
    /// A directory, or a file, that counts as a whole.
    Tree(String),
    /// What counts where it is a file.
    File(String),
}

/// Sections of git's in which no key of a repository's own has a program run when git reaches it from another one.
const SECTIONS: [&str; 6] = ["user", "author", "committer", "alias", "color", "branch"];
/// The same of keys by themselves, whose values are data, or words with a meaning.
const KEYS: [(&str, &str); 18] = [
    ("core", "repositoryformatversion"),
    ("core", "filemode"),
    ("core", "bare"),
    ("core", "logallrefupdates"),
    ("core", "symlinks"),
    ("core", "ignorecase"),
    ("core", "sparsecheckout"),
    ("core", "sparsecheckoutcone"),
    ("core", "worktree"),
    ("core", "excludesfile"),
    ("remote", "fetch"),
    ("remote", "push"),
    ("submodule", "url"),
    ("submodule", "active"),
    ("blame", "ignorerevsfile"),
    ("commit", "template"),
    ("mailmap", "file"),
    ("merge", "conflictstyle"),
];

/// Of a configuration of git's.
pub(super) fn of_git(text: &str) -> Vec<NamedValue> {
    let mut found = Vec::new();
    for setting in settings_of_git(text) {
        let (section, key) = (&*setting.section, &*setting.key);
        let path = || setting.value.strip_prefix(":(optional)").unwrap_or(&setting.value);
        match (section, key) {
            _ if SECTIONS.contains(&section) || KEYS.contains(&(section, key)) => {}
            // An address, which names a program in one form alone.
            ("remote", "url" | "pushurl") if !setting.value.contains("::") => {}
            ("include" | "includeif", "path") => found.push(NamedValue::Configuration(path().to_owned())),
            ("core", "hookspath") => found.extend(trees(path())),
            _ => found.extend(words(&setting.value).into_iter().map(NamedValue::File)),
        }
    }
    found
}

/// A directory of hooks, and that around husky's `_`, which has what they run.
fn trees(value: &str) -> Vec<NamedValue> {
    let path = if value.len() > 1 { value.trim_end_matches('/') } else { value };
    let around = path.strip_suffix("/_").map(|around| NamedValue::Tree(around.to_owned()));
    std::iter::once(NamedValue::Tree(path.to_owned())).chain(around).filter(|_| !path.is_empty()).collect()
}

/// Of a configuration of Mercurial's.
pub(super) fn of_mercurial(text: &str) -> Vec<NamedValue> {
    let mut found = Vec::new();
    for setting in settings_of_mercurial(text) {
        match (&*setting.section, &*setting.key) {
            ("paths" | "alias", _) | ("ui", "username") => {}
            (_, "%include") => found.push(NamedValue::Configuration(setting.value)),
            ("extensions", _) => found.extend(module(&setting.value)),
            ("hooks", _) if setting.value.starts_with("python:") => {
                let path = setting.value.trim_start_matches("python:").rsplit_once(':').map(|(path, _)| path);
                found.extend(path.into_iter().flat_map(module));
            }
            _ => found.extend(words(&setting.value).into_iter().map(NamedValue::File)),
        }
    }
    found
}

/// A module in Python, and where Python looks for it compiled.
fn module(path: &str) -> Vec<NamedValue> {
    if path.is_empty() || path.starts_with('!') {
        return Vec::new();
    }
    let (directory, name) = path.rsplit_once('/').unwrap_or((".", path));
    let compiled = name.ends_with(".py").then(|| NamedValue::Tree(format!("{directory}/__pycache__")));
    std::iter::once(NamedValue::Tree(path.to_owned())).chain(compiled).collect()
}

/// The value as a path, and what a shell may make words of.
fn words(value: &str) -> Vec<String> {
    if matches!(value, "" | "true" | "false" | "yes" | "no" | "on" | "off") || value.bytes().all(|b| b.is_ascii_digit())
    {
        return Vec::new();
    }
    let unquoted = value.replace(['\'', '"', '\\'], "");
    let separators = |c: char| c.is_whitespace() || ";&|()<>=`!{},".contains(c);
    let mut found = vec![value.to_owned()];
    let words = unquoted.split(separators).filter(|word| !word.is_empty()).take(MOST_WORDS);
    for word in words {
        found.push(word.to_owned());
        // What a variable or a command stands for may be the work tree.
        let rest = match word.split_once('/') {
            Some((start, rest)) if start.starts_with('$') || start.is_empty() && value.contains(['$', '`']) => rest,
            _ => continue,
        };
        found.push(rest.to_owned());
    }
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(values: Vec<NamedValue>) -> Vec<String> {
        let file = |value| match value {
            NamedValue::File(path) => path,
            NamedValue::Configuration(path) => format!("+{path}"),
            NamedValue::Tree(path) => format!("{path}/"),
        };
        values.into_iter().map(file).collect()
    }

    #[test]
    fn every_word_of_a_value_of_gits_counts_but_what_is_known_to_be_none() {
        let text = "[user]\nname = a b\n[core]\nbare = true\nhooksPath = .husky/_\n[include]\npath = ../x\n[alias]\nx = !make\n\
                    [remote \"o\"]\nurl = ../y\nfetch = +refs/heads/*:refs/remotes/o/*\nuploadpack = tools/up\n";
        assert_eq!(files(of_git(text)), [".husky/_/", ".husky/", "+../x", "tools/up", "tools/up"][..4]);
        let found = files(of_git("[filter \"x\"]\nclean = \"sh 'tools/a b' >x;$(git top)/t/c $PWD/d\"\n"));
        for word in ["sh", "tools/a", "x", "/t/c", "t/c", "$PWD/d", "d"] {
            assert!(found.iter().any(|known| known == word), "{word}: {found:?}");
        }
        assert_eq!(files(of_git("[remote \"o\"]\nurl = ext::./t %S\n"))[1..], ["ext::./t", "%S"]);
    }

    #[test]
    fn modules_and_hooks_of_mercurials_count_and_paths_do_not() {
        let text = "%include x.rc\n[paths]\ndefault = up\n[extensions]\nmq =\na = t/a.py\nb = !t/b\n[hooks]\nc = python:t/c.py:f\n\
                    d = sh\n  tools/d\n";
        let found = files(of_mercurial(text));
        assert_eq!(found[..5], ["+x.rc", "t/a.py/", "t/__pycache__/", "t/c.py/", "t/__pycache__/"]);
        assert!(found.iter().any(|known| known == "tools/d"), "{found:?}");
    }
}
