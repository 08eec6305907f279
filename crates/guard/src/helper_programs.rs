//! Helper programs, which an allowed command may start: the built-in lists, and what follows from them.
//!
//! A helper has helpers of its own: a command that may start git may start what git starts. No other program of the
//! tree is ever executed. Runs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::error::GuardError;
use super::executable_lookup::{ExecutableSearch, ResolvedCommand};
use cofferdam_engine::executables::{DeviceInode, Executable};

/// In a list of helpers: everything that is built in for the command.
pub const BUILT_IN: &str = "@built-in";

/// Programs that are many in one, told apart by the name they are called by. Nothing that looks at files can tell one
/// of them from another.
const MANY_IN_ONE: &[&str] = &["busybox", "coreutils", "toybox"];

/// rustup's own, which starts the toolchain's program of the name it is called by.
const RUSTUP: &str = "rustup";

/// What is built in for a command, by its name in its rule: programs by name, directories of programs by `/`.
const BUILT_IN_HELPERS: &[(&str, &[&str])] = &[
    ("cargo", &["rustc", "rustdoc", "cc", "gcc", "c++", "ld", "as", "ar", "/usr/lib/gcc/", "/usr/libexec/gcc/"]),
    // git's own programs lie in a directory beside it; no shell: hooks, aliases and filters are programs of the
    // workspace.
    ("git", &[]),
    ("npm", &["node", "sh"]),
    ("python", &["ldconfig", "uname"]),
];

/// Other names of the commands above.
const SAME_AS: &[(&str, &str)] = &[("npx", "npm"), ("python3", "python"), ("rustc", "cargo")];

/// The programs that a command may execute besides itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HelperPrograms {
    /// Programs, by canonical path.
    pub programs: BTreeSet<String>,
    /// Directories, canonical, of which every program may be executed.
    pub directories: BTreeSet<String>,
    /// Directories and files that have to be readable for it to work.
    pub readable: BTreeSet<String>,
}

/// Whether an executable is many programs in one, of which its name alone decides.
pub(super) fn is_many_in_one(canonical: &str) -> bool {
    Path::new(canonical).file_name().is_some_and(|name| MANY_IN_ONE.iter().any(|many| name == *many))
}

/// Why a script cannot be executed: its interpreter is a multi-call binary, all of whose programs it could start, and
/// no rule names it.
pub(super) fn many_in_chain(found: &ResolvedCommand, named: impl Fn(&str) -> bool) -> Option<String> {
    let many = found.chain.iter().find(|link| is_many_in_one(&link.path) && !named(&link.path))?;
    Some(format!(
        "it is executed by {0}, many programs in one, all of which it could start\n\
         hint: name {0} among its helpers if that is meant",
        many.path
    ))
}

/// Whether an executable is rustup's, by its own name or by a link of a tool's.
pub(super) fn is_rustup(canonical: &str, identity: DeviceInode, search: &ExecutableSearch) -> bool {
    let path = Path::new(canonical);
    path.file_name().is_some_and(|name| name == RUSTUP)
        || path.parent().is_some_and(|dir| {
            let rustup = dir.join(RUSTUP);
            rustup.to_str().and_then(|path| search.identify(path).ok()).is_some_and(|(_, i)| i == identity)
        })
}

/// What is built in for a command of this name.
fn built_in(name: &str) -> &'static [&'static str] {
    let name = SAME_AS.iter().find(|(other, _)| *other == name).map_or(name, |(_, first)| first);
    BUILT_IN_HELPERS.iter().find(|(command, _)| *command == name).map_or(&[], |(_, helpers)| helpers)
}

/// Directories of programs that belong to an executable, wherever it is installed, and what it reads.
fn beside(name: &str, canonical: &str, rustup: bool, search: &ExecutableSearch, tree: &mut HelperPrograms) {
    let name = SAME_AS.iter().find(|(other, _)| *other == name).map_or(name, |(_, first)| first);
    let prefix = Path::new(canonical).parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let mut add = |dir: PathBuf, reads: bool| {
        let Ok(dir) = std::fs::canonicalize(&dir) else { return };
        let Some(dir) = dir.to_str().filter(|_| dir.is_dir()) else { return };
        let within = cofferdam_policy::paths::is_within;
        if search.writable.iter().any(|w| within(dir, w) || within(w, dir)) {
            return; // what commands may write is not theirs to execute
        }
        if reads {
            tree.readable.insert(dir.to_owned());
        }
        tree.directories.insert(dir.to_owned());
    };
    match name {
        "git" => ["lib/git-core", "libexec/git-core"].iter().for_each(|dir| add(prefix.join(dir), false)),
        "cargo" if rustup => {
            let Some(home) = &search.rustup_home else { return };
            add(Path::new(home).join("toolchains"), false);
            tree.readable.insert(home.clone());
        }
        // A toolchain of its own: its tools, and the linkers among its libraries.
        "cargo" if prefix.join("lib/rustlib").is_dir() => {
            add(prefix.join("lib/rustlib"), false);
            if prefix != Path::new("/usr") && prefix != Path::new("/usr/local") {
                add(prefix.join("bin"), true);
            }
        }
        _ => {}
    }
}

/// What the helpers of one command come to.
///
/// # Errors
/// A configured entry that resolves to nothing. Built-in entries that are not installed are skipped.
pub(super) fn tree(
    name: &str,
    canonical: &str,
    rustup: bool,
    tables: &BTreeMap<String, Vec<String>>,
    search: &ExecutableSearch,
) -> Result<HelperPrograms, GuardError> {
    let mut tree = HelperPrograms::default();
    beside(name, canonical, rustup, search, &mut tree);
    let mut queue = vec![name.to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(command) = queue.pop() {
        if !seen.insert(command.clone()) {
            continue;
        }
        let mut entries: Vec<(&str, bool)> = Vec::new();
        match tables.get(&command) {
            None => entries.extend(built_in(&command).iter().map(|entry| (*entry, false))),
            Some(list) => {
                for entry in list {
                    if entry == BUILT_IN {
                        entries.extend(built_in(&command).iter().map(|entry| (*entry, false)));
                    } else {
                        entries.push((entry, true));
                    }
                }
            }
        }
        let named: Vec<&str> = entries.iter().map(|(entry, _)| *entry).collect();
        for (entry, wanted) in entries {
            match add(entry, &named, &mut tree, search) {
                Ok(None) => {}
                Ok(Some(added)) => {
                    let rustup = is_rustup(&added.0, added.1, search);
                    let name = entry.rsplit('/').next().unwrap_or(entry).to_owned();
                    beside(&name, &added.0, rustup, search, &mut tree);
                    queue.push(name);
                }
                Err(reason) if wanted => {
                    let table = "helpers";
                    return Err(GuardError::Helper { table, entry: format!("{command}: {entry}"), reason });
                }
                Err(_) => {}
            }
        }
    }
    Ok(tree)
}

/// Adds one entry of those `named`; a program's canonical path and identity come back.
fn add(
    entry: &str,
    named: &[&str],
    tree: &mut HelperPrograms,
    search: &ExecutableSearch,
) -> Result<Option<(String, DeviceInode)>, String> {
    if entry.ends_with('/') {
        if !entry.starts_with('/') {
            return Err("a directory of helpers is an absolute path".into());
        }
        let dir = std::fs::canonicalize(entry).map_err(|e| e.to_string())?;
        let dir = dir.to_str().filter(|_| dir.is_dir()).ok_or("it is no directory")?;
        if dir == "/" {
            return Err("this would be every program there is: leave `helpers` out and use another sandbox".into());
        }
        // A writable directory inside it as well as one around it.
        let within = cofferdam_policy::paths::is_within;
        if let Some(writable) = search.writable.iter().find(|w| within(dir, w) || within(w, dir)) {
            return Err(format!(
                "commands may write {writable}: to execute what lies there is what workspace_programs is for"
            ));
        }
        tree.directories.insert(dir.to_owned());
        return Ok(None);
    }
    let found = search.find(entry)?;
    if is_many_in_one(&found.canonical) && entry != found.canonical {
        return Err(format!(
            "it is {0}, many programs in one, and all of them would be started by it\nhint: name {0} if that is meant",
            found.canonical
        ));
    }
    if let Some(many) = many_in_chain(&found, |path| named.contains(&path)) {
        return Err(many);
    }
    tree.programs.insert(found.canonical.clone());
    Ok(Some((found.canonical, found.identity)))
}

/// The files of a tree as they are now, with what executing them takes.
///
/// # Errors
/// One that is not what it was, as words.
pub(super) fn opened(tree: &HelperPrograms, search: &ExecutableSearch) -> Result<Vec<Executable>, String> {
    let mut all = search.loaders();
    for path in &tree.programs {
        let Ok(found) = search.find(path) else { continue }; // gone meanwhile: nothing to execute
        if found.canonical != *path {
            return Err(format!("the helper {path} has become {}: make the guard anew", found.canonical));
        }
        if let Some(many) = many_in_chain(&found, |path| tree.programs.contains(path)) {
            return Err(format!("the helper {path}: {many}"));
        }
        all.push(found.executable());
        all.extend(found.chain);
    }
    all.extend(tree.directories.iter().map(|path| Executable { path: path.clone(), identity: None }));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> ExecutableSearch {
        ExecutableSearch {
            directories: vec!["/usr/bin".into(), "/bin".into(), "/usr/sbin".into()],
            ..ExecutableSearch::default()
        }
    }

    fn names(tree: &HelperPrograms) -> Vec<&str> {
        tree.programs.iter().map(|path| path.rsplit('/').next().unwrap()).collect()
    }

    fn of(name: &str, tables: &[(&str, &[&str])]) -> Result<HelperPrograms, GuardError> {
        let table = |list: &[&str]| list.iter().map(|entry| (*entry).to_owned()).collect();
        let tables = tables.iter().map(|(name, list)| ((*name).to_owned(), table(list))).collect();
        tree(name, "/usr/bin/x", false, &tables, &search())
    }

    #[test]
    fn nothing_is_built_in_for_what_is_not_listed() {
        assert_eq!(of("cat", &[]).unwrap(), HelperPrograms::default());
    }

    #[test]
    fn configured_helpers_replace_built_in_ones_and_bring_theirs() {
        let real = |name: &str| std::fs::canonicalize(format!("/usr/bin/{name}")).unwrap();
        let has = |tree: &HelperPrograms, name: &str| tree.programs.contains(real(name).to_str().unwrap());
        let python = of("python", &[("python", &["cat"])]).unwrap();
        assert!(has(&python, "cat") && !has(&python, "uname"), "{:?}", names(&python));
        let python = of("python", &[("python", &["cat", BUILT_IN])]).unwrap();
        assert!(has(&python, "cat") && has(&python, "uname"), "{:?}", names(&python));
        let chained = of("find", &[("find", &["python3"]), ("python3", &["cat", "find"])]).unwrap();
        assert!(has(&chained, "cat"), "{:?}", names(&chained));
    }

    #[test]
    fn an_entry_that_leads_nowhere_is_refused() {
        for entry in ["no-such-program", "relative/", "/no/such/directory/", "/", "./x"] {
            assert!(matches!(of("find", &[("find", &[entry])]), Err(GuardError::Helper { .. })), "{entry}");
        }
        let inside = ExecutableSearch { writable: vec!["/usr/lib/x".into()], ..search() };
        let tables = BTreeMap::from([("find".to_owned(), vec!["/usr/lib/".to_owned()])]);
        assert!(tree("find", "/usr/bin/find", false, &tables, &inside).is_err(), "a writable directory lies in it");
    }
}
