//! Files of a work tree that a configuration of version control has it run or obey: git's `core.hooksPath`, `core.fsmonitor`,
//! `include.path` and `includeIf` (git-config(1)); Mercurial's `%include`, extensions, and hooks in Python (hgrc(5)).
//!
//! What is found only ever adds a protected name, so a line that git would read in another way costs nothing but that name. Pure.

use cofferdam_policy::paths::lexical;
use std::path::{Path, PathBuf};

/// The files that this configuration of git names: absolute, without `.` and `..`. `file` is where it lies, and `tree` the work tree,
/// in which hooks are run.
pub(crate) fn obeyed_by_git(text: &str, file: &Path, tree: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let named = values_of_git(text).into_iter().filter_map(|(key, value)| {
        let base = match key {
            FileKey::HooksPath | FileKey::Program | FileKey::Template => tree,
            FileKey::Include => file.parent()?,
        };
        let path = match value.strip_prefix("~/") {
            Some(rest) => home?.join(rest),
            None => base.join(&value),
        };
        Some(lexical(&path))
    });
    named.collect()
}

/// The directories of hooks that this configuration of git names relative to a work tree, as it says them.
pub(crate) fn relative_hooks(text: &str) -> Vec<PathBuf> {
    relative(text, FileKey::HooksPath)
}

/// The programs that this configuration of git has run by a path relative to a work tree.
pub(crate) fn relative_programs(text: &str) -> Vec<PathBuf> {
    relative(text, FileKey::Program)
}

/// Whether this configuration of git includes a file that it names relative to itself.
pub(crate) fn has_relative_include(text: &str) -> bool {
    !relative(text, FileKey::Include).is_empty()
}

fn relative(text: &str, wanted: FileKey) -> Vec<PathBuf> {
    let values = values_of_git(text).into_iter().filter(|(key, _)| *key == wanted).map(|(_, value)| value);
    values.filter(|value| !value.starts_with(['/', '~'])).map(PathBuf::from).collect()
}

/// What names a file in a configuration of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKey {
    HooksPath,
    Include,
    /// A directory that `git clone` and `git init` copy hooks from.
    Template,
    /// A word in a command line that may be a file.
    Program,
}

fn values_of_git(text: &str) -> Vec<(FileKey, String)> {
    let mut found = Vec::new();
    for GitSetting { section, key, value, .. } in settings_of_git(text) {
        let key = match (&*section, &*key) {
            ("core", "hookspath") => FileKey::HooksPath,
            ("init", "templatedir") => FileKey::Template,
            ("include" | "includeif", "path") => FileKey::Include,
            // The shell gets it, in the work tree.
            ("core", "fsmonitor") => {
                let words = words_of(&value).into_iter().enumerate();
                // The first one without a slash is looked for in PATH, and another one may be the script of a shell.
                let words = words.filter(|(at, word)| word.contains('/') || *at > 0 && !word.starts_with('-'));
                found.extend(words.map(|(_, word)| (FileKey::Program, word)));
                continue;
            }
            _ => continue,
        };
        // Below `%(prefix)/` is where git itself is installed, which is not known here.
        if !value.is_empty() && !value.starts_with("%(prefix)/") {
            found.push((key, value));
        }
    }
    found
}

/// The words of a command line, without quotes.
fn words_of(command: &str) -> Vec<String> {
    let command = command.replace(['\'', '"'], "");
    let words = command.split([' ', '\t', '\n', ';', '&', '|', '(', ')', '<', '>', '!']);
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// What this configuration of git names by a whole path, or by one from the home, that may be a program: every word of every
/// value, but for keys whose files git only reads as data. It runs them in whatever work tree it is used in, and has more keys for
/// programs than a list would keep up with.
pub(crate) fn programs_of_git(text: &str, home: Option<&Path>) -> Vec<PathBuf> {
    let is_data = |setting: &GitSetting| match (&*setting.section, &*setting.key) {
        ("core", key) => matches!(key, "excludesfile" | "attributesfile" | "worktree" | "gitdir"),
        ("commit" | "merge", "template") | ("maintenance", "repo") | ("safe", "directory") => true,
        ("include" | "includeif", "path") => true,
        ("blame", "ignorerevsfile") | ("mailmap", "file") | ("diff", "orderfile") | ("format", "signaturefile") => true,
        ("gpg", "allowedsignersfile" | "revocationfile") | ("user", _) | ("fsck" | "receive" | "fetch", "skiplist") => {
            true
        }
        ("remote", "url" | "pushurl" | "fetch" | "push") | ("submodule", "url" | "path") => true,
        ("url", "insteadof" | "pushinsteadof") | ("branch", _) => true,
        ("http", key) => !key.contains("helper"),
        _ => false,
    };
    let commands = settings_of_git(text).into_iter().filter(|setting| !is_data(setting));
    programs_in(commands.map(|setting| setting.value), home)
}

/// The whole paths, and those from the home, in these command lines.
pub(crate) fn programs_in(commands: impl Iterator<Item = String>, home: Option<&Path>) -> Vec<PathBuf> {
    let path = |word: String| match ["~/", "$HOME/"].iter().find_map(|start| word.strip_prefix(start)) {
        Some(rest) => home.map(|home| lexical(&home.join(rest))),
        None => word.starts_with('/').then(|| lexical(Path::new(&word))),
    };
    let mut found: Vec<PathBuf> = commands.flat_map(|command| path_words(&command)).filter_map(path).collect();
    found.dedup();
    found
}

/// The words of a command line in which a path may stand, without quotes: also behind `=`, in backquotes and the like. A path that
/// has such a character itself is a word as well.
fn path_words(command: &str) -> Vec<String> {
    let command = command.replace("${HOME}", "$HOME").replace(['\\', '`'], " ");
    words_of(&command)
        .into_iter()
        .flat_map(|word| {
            let parts: Vec<String> = word.split(['=', ',', ':', '{', '}']).map(str::to_owned).collect();
            if parts.len() == 1 { parts } else { [vec![word], parts].concat() }
        })
        .filter(|word| !word.is_empty())
        .collect()
}

/// One assignment in a configuration of git's. Section and key are in lower case.
#[derive(Debug)]
pub(crate) struct GitSetting {
    pub section: String,
    /// Empty where there is none.
    pub subsection: String,
    pub key: String,
    pub value: String,
}

/// The assignments of a configuration of git's, in their order.
pub(crate) fn settings_of_git(text: &str) -> Vec<GitSetting> {
    let (mut section, mut subsection) = (String::new(), String::new());
    let mut found = Vec::new();
    // git passes over a byte order mark, and takes several headers in one line.
    for line in whole_lines(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        let mut line = trimmed(&line);
        while let Some((header, rest)) = line.strip_prefix('[').and_then(header_of) {
            let name = header.split(['"', ' ', '\t']).next().unwrap_or_default();
            let quoted = text_of(&header[name.len()..]);
            // The older form has a dot.
            let (name, older) = name.split_once('.').unwrap_or((name, ""));
            section = name.to_ascii_lowercase();
            subsection = if older.is_empty() { quoted } else { older.to_ascii_lowercase() };
            line = trimmed(rest);
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        found.push(GitSetting {
            section: section.clone(),
            subsection: subsection.clone(),
            key: trimmed(key).to_ascii_lowercase(),
            value: text_of(value),
        });
    }
    found
}

/// What stands before the bracket that ends a header, and behind it. One in quotes ends none.
fn header_of(line: &str) -> Option<(&str, &str)> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some((&line[..at], &line[at + 1..])),
            _ => {}
        }
    }
    line.split_once(']')
}

/// The files that this configuration of Mercurial names, in the same form. `tree` is the work tree, where `hg` is run.
pub(crate) fn obeyed_by_mercurial(text: &str, file: &Path, tree: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut section = "";
    let mut found = Vec::new();
    for line in text.lines() {
        let (base, value) = if let Some(path) = line.strip_prefix("%include ") {
            (file.parent(), path.trim())
        } else if let Some((header, _)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            section = header.trim();
            continue;
        } else if let Some((_, value)) = line.split_once('=') {
            match (section, value.trim()) {
                ("extensions", path) if !path.starts_with('!') => (Some(tree), path),
                // The name of a function follows.
                ("hooks", hook) => match hook.strip_prefix("python:").and_then(|hook| hook.rsplit_once(':')) {
                    Some((path, _)) => (Some(tree), path),
                    None => continue,
                },
                _ => continue,
            }
        } else {
            continue;
        };
        let path = match ["~/", "$HOME/", "${HOME}/"].iter().find_map(|start| value.strip_prefix(start)) {
            Some(rest) => home.map(|home| home.join(rest.trim_start_matches('/'))),
            None => base.map(|base| base.join(value)),
        };
        let path = path.filter(|_| !value.is_empty()).map(|path| lexical(&path));
        // Where Python looks for a module compiled.
        let is_module =
            !section.is_empty() && path.as_ref().is_some_and(|path| path.extension().is_some_and(|e| e == "py"));
        found.extend(path.iter().filter(|_| is_module).map(|path| path.with_file_name("__pycache__")));
        found.extend(path);
    }
    found
}

/// The paths in this configuration of Mercurial's, by any name: the values of `[paths]`, each whole and as a list.
pub(crate) fn paths_of_mercurial(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for setting in settings_of_mercurial(text).into_iter().filter(|setting| setting.section == "paths") {
        let items = setting.value.split([',', ' ', '\t', '\n', '"']).filter(|item| !item.is_empty());
        found.extend(items.map(str::to_owned));
        found.push(setting.value);
    }
    found
}

/// One assignment in a configuration of Mercurial's.
#[derive(Debug)]
pub(crate) struct MercurialSetting {
    pub section: String,
    pub key: String,
    pub value: String,
}

/// The assignments of a configuration of Mercurial's, and what it includes as the key `%include` of no section.
pub(crate) fn settings_of_mercurial(text: &str) -> Vec<MercurialSetting> {
    let mut section = String::new();
    let mut found: Vec<MercurialSetting> = Vec::new();
    let mut goes_on = false;
    let add = |found: &mut Vec<_>, section: &str, key: &str, value: &str| {
        let (section, key, value) = (section.to_owned(), key.trim().to_owned(), value.trim().to_owned());
        found.push(MercurialSetting { section, key, value });
    };
    for line in text.strip_prefix('\u{feff}').unwrap_or(text).lines() {
        if line.trim().is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(last) = found.last_mut().filter(|_| goes_on && line.starts_with([' ', '\t'])) {
            last.value = [&last.value, line.trim()].join("\n").trim().to_owned();
            continue;
        }
        goes_on = false;
        if let Some(path) = line.strip_prefix("%include ") {
            add(&mut found, "", "%include", path);
        } else if let Some((header, _)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            section = header.trim().to_owned();
        } else if let Some((key, value)) = line.split_once('=') {
            add(&mut found, &section, key, value);
            goes_on = true;
        }
    }
    found
}

/// The lines of a configuration of git's; one that goes on behind a backslash at its end is whole.
fn whole_lines(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        match all.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(line),
            None => all.push(line.to_owned()),
        }
        let Some(last) = all.last_mut() else { continue };
        goes_on = ends_in_backslash(last);
        if goes_on {
            last.pop();
        }
    }
    all
}

/// Whether a line ends in a backslash that is not in a comment, nor behind another one.
fn ends_in_backslash(line: &str) -> bool {
    let (mut quoted, mut escapes) = (false, false);
    for c in line.chars() {
        escapes = match c {
            _ if escapes => false,
            '\\' => true,
            '#' | ';' if !quoted => return false,
            '"' => {
                quoted = !quoted;
                false
            }
            _ => false,
        };
    }
    escapes
}

/// A value without quotes, escapes and a comment behind it.
fn text_of(value: &str) -> String {
    let (mut text, mut quoted, mut end) = (String::new(), false, 0);
    let mut all = trimmed(value).chars();
    while let Some(c) = all.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => text.extend(all.next().map(escaped)),
            '#' | ';' if !quoted => break,
            c => text.push(c),
        }
        // A blank at the end counts where it is quoted.
        if quoted || !is_blank(c) {
            end = text.len();
        }
    }
    text.truncate(end);
    text
}

/// What a letter behind a backslash stands for.
fn escaped(letter: char) -> char {
    match letter {
        't' => '\t',
        'n' => '\n',
        'b' => '\u{8}',
        itself => itself,
    }
}

/// What git takes for a blank; no other one ends a value.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(is_blank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_and_includes_are_found_wherever_git_reads_them() {
        let text = "[user]\n path = no\n[core]\n\tbare = false\n\tHooksPath = tools/hooks ; ours\n[include] path = ../.gitconfig\n\
                    [includeIf \"gitdir:~/work/\"]\n\tpath = \"~/a b\"\n[core \"x\"]\nhookspath = \\\"q\n[Core]hooksPath=/abs/./h\n";
        let found = obeyed_by_git(text, Path::new("/w/.git/config"), Path::new("/w"), Some(Path::new("/h")));
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["/w/tools/hooks", "/w/.gitconfig", "/h/a b", "/w/\"q", "/abs/h"]);
        for text in
            ["\u{feff}[core]\nhooksPath = hh\n", "[alias][core]\nhooksPath = hh\n", "[alias] [core] hooksPath = hh\n"]
        {
            let found = obeyed_by_git(text, Path::new("/w/.git/config"), Path::new("/w"), None);
            assert_eq!(found, [Path::new("/w/hh")], "{text:?}");
        }
        assert!(obeyed_by_git("[core]\nhooksPath\nhooksPath=\n", Path::new("/c"), Path::new("/w"), None).is_empty());
    }

    #[test]
    fn programs_are_found_by_whole_paths_in_command_lines_alone() {
        let text = "[alias]\nx = !~/t/x a\ny = -c core.editor=/v/e commit\n[core]\nsshCommand = ssh -F '/v/f'\nexcludesFile = /v/no\n\
                    [credential \"h\"]\nhelper = !$HOME/c\n[gpg \"ssh\"]\nprogram = /v/g\n[filter \"l\"]\nclean = tools/no\n\
                    [remote \"o\"]\nurl = /v/no\n[maintenance]\nrepo = /v/no\n[tar \"x\"]\ncommand = \"/v/t\" -c\n";
        let found = programs_of_git(text, Some(Path::new("/h")));
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["/h/t/x", "/v/e", "/v/f", "/h/c", "/v/g", "/v/t"]);
        for value in [
            "!X=/v/p git rebase -i",
            "!git -c core.editor=/v/p commit",
            "!`/v/p`",
            r"!\\/v/p",
            r#"!A=/v/p; \"$A\""#,
            r#"!\"${HOME}/../v/p\""#,
            "rebase -x /v/p",
            "!cat a,/v/p",
        ] {
            let found = programs_of_git(&format!("[alias]\na = {value}\n"), Some(Path::new("/h")));
            assert!(found.contains(&"/v/p".into()), "{value}: {found:?}");
        }
        for (section, key) in [
            ("gc", "recentObjectsHook"),
            ("imap", "tunnel"),
            ("submodule \"m\"", "update"),
            ("guitool \"g\"", "cmd"),
            ("lfs \"customtransfer.x\"", "path"),
            ("svn", "authorsProg"),
            ("core", "sshCommand"),
        ] {
            let text = format!("[{section}]\n{key} = ssh -o ProxyCommand=/v/p\n");
            assert_eq!(programs_of_git(&text, None), [Path::new("/v/p")], "{section}.{key}");
        }
        let text = "[init]\ntemplateDir = ~/t\n";
        assert_eq!(obeyed_by_git(text, Path::new("/c"), Path::new("/w"), Some(Path::new("/h"))), [Path::new("/h/t")]);
    }

    #[test]
    fn what_a_configuration_names_relative_to_a_place_is_found() {
        let text =
            "[core]\nhooksPath = .husky/_\nhooksPath = /abs\nhooksPath = ~/h\nhooksPath =\n[include]\npath = ../x\n";
        assert_eq!(relative_hooks(text), [Path::new(".husky/_")]);
        assert!(has_relative_include(text));
        let text = "[core]\nfsmonitor = true\nfsmonitor = watch\nfsmonitor = /abs/x\nfsmonitor = sh tools/w -x\nfsmonitor = 'a/b'";
        assert_eq!(relative_programs(text), [Path::new("tools/w"), Path::new("a/b")]);
        assert!(!has_relative_include(
            "[include]\npath = /x\n[includeIf \"gitdir:x\"]\npath = ~/x\n[core]\nhooksPath = y"
        ));
    }

    #[test]
    fn a_value_has_the_characters_that_git_reads() {
        let text = "[core]\nhooksPath = h\\th # c\nhooksPath = h\u{a0}\nhooksPath = \"h \" \nhooksPath = h\\bh\n";
        let found = obeyed_by_git(text, Path::new("/w/c"), Path::new("/w"), None);
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["/w/h\th", "/w/h\u{a0}", "/w/h ", "/w/h\u{8}h"]);
    }

    #[test]
    fn a_line_that_goes_on_is_read_whole_and_a_comment_does_not_go_on() {
        let text = "[include]\n path = a\\\nb # c \\\n[include]\r\n path = \"d\\\r\n e\"\n; \\\n path = f\\\\\n path = g\n\
                    path = %(prefix)/x\npath = %(prefix)x\n";
        let found = obeyed_by_git(text, Path::new("/w/c"), Path::new("/w"), None);
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["/w/ab", "/w/d e", "/w/f\\", "/w/g", "/w/%(prefix)x"]);
    }

    #[test]
    fn the_home_in_a_path_of_mercurials_is_the_callers() {
        let text = "%include $HOME/a.rc\n[extensions]\nx = ${HOME}/x.py\ny = $HOMES/y.py\n";
        let found = obeyed_by_mercurial(text, Path::new("/w/.hg/hgrc"), Path::new("/w"), Some(Path::new("/h")));
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["/h/a.rc", "/h/__pycache__", "/h/x.py", "/w/$HOMES/__pycache__", "/w/$HOMES/y.py"]);
    }

    #[test]
    fn what_mercurial_loads_is_found() {
        let text = "%include ../team.rc\n[extensions]\nmq =\nours = tools/ext.py\nold = !tools/old.py\nhome = ~/e.py\n\
                    [hooks]\ncommit = python:tools/h.py:check\nupdate = make tags\n[ui]\neditor = tools/no\n";
        let found = obeyed_by_mercurial(text, Path::new("/w/.hg/hgrc"), Path::new("/w"), Some(Path::new("/h")));
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        let compiled = "/w/tools/__pycache__";
        let expected =
            ["/w/team.rc", compiled, "/w/tools/ext.py", "/h/__pycache__", "/h/e.py", compiled, "/w/tools/h.py"];
        assert_eq!(found, expected);
    }
}
