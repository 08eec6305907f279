//! Resolves the paths that a caller names to those that can be granted: canonical, existing, and no more than was
//! meant. Reads the file system, changes nothing.

use std::io;
use std::path::{Path, PathBuf};

use crate::blocked_paths;
use crate::error::ConfineReason;

/// Entries beside a denied path that are granted one by one, at most.
const SIBLINGS: usize = 65_536;

fn fault(rule: &'static str, path: &Path, fault: impl Into<String>, hint: &'static str) -> ConfineReason {
    ConfineReason::Path { rule, path: path.to_owned(), fault: fault.into(), hint }
}

/// Resolves a path, which must exist. `rule` names it in errors.
pub(crate) fn there(rule: &'static str, path: &Path) -> Result<PathBuf, ConfineReason> {
    if path.as_os_str().is_empty() {
        return Err(fault(rule, path, "it is empty", "name it from the root on"));
    }
    if path.starts_with("~") {
        return Err(fault(
            rule,
            path,
            "it is relative: only a shell knows what ~ means",
            "begin it with the home's path",
        ));
    }
    if !path.is_absolute() {
        return Err(fault(rule, path, "it is relative", "name it from the root on, as in std::path::absolute"));
    }
    std::fs::canonicalize(path).map_err(|error| match error.kind() {
        // A file that is denied should not be created first.
        io::ErrorKind::NotFound if rule == "deny_read" => {
            fault(rule, path, "it does not exist", "name what exists, such as the directory that it would be in")
        }
        io::ErrorKind::NotFound => fault(rule, path, "it does not exist", "create it first"),
        _ => fault(rule, path, error.to_string(), "name a path that can be looked up"),
    })
}

/// Resolves a path that may be granted for writing: it neither is, nor is in, nor contains one of the system's
/// directories. Once all writable paths are known, [`astray`] checks the links on the way.
pub(crate) fn writable(rule: &'static str, path: &Path) -> Result<PathBuf, ConfineReason> {
    const HINT: &str = "name a directory of your own, such as one in your home";
    let lies_below = |found: &Path| {
        let dir = blocked_paths::system().iter().find(|dir| blocked_paths::below(found, dir))?;
        Some(fault(rule, path, format!("it lies below {}, where nothing is written", dir.display()), HINT))
    };
    // A missing path that would be refused anyway gets that error, and no hint to create it.
    let found = there(rule, path)
        .map_err(|error| blocked_paths::resolve(path).and_then(|at| lies_below(&at)).unwrap_or(error))?;
    if found.parent().is_none() {
        return Err(fault(rule, path, "it leads to the root: everything could be written", HINT));
    }
    if let Some(error) = lies_below(&found) {
        return Err(error);
    }
    for dir in blocked_paths::system() {
        if blocked_paths::below(dir, &found) {
            return Err(fault(rule, path, format!("it holds {}, where nothing is written", dir.display()), HINT));
        }
    }
    Ok(found)
}

/// Refuses a path that leads out of one of these writable trees by a link in it, which a confined command may have
/// created. Every link on the way counts. `found` is what the path resolved to.
pub(crate) fn astray(rule: &'static str, path: &Path, found: &Path, trees: &[PathBuf]) -> Result<(), ConfineReason> {
    // A path that leads to itself has no link in it.
    if path.as_os_str() == found.as_os_str() || trees.iter().all(|tree| blocked_paths::below(found, tree)) {
        return Ok(());
    }
    let (end, links) =
        follow(path).map_err(|error| fault(rule, path, error.to_string(), "name a path that can be looked up"))?;
    // Elsewhere than here the same name can be written in many ways.
    if cfg!(target_os = "linux") && end != found {
        let text = format!("it leads to {} by now, and led to {}", end.display(), found.display());
        return Err(fault(rule, path, text, "name the directory itself"));
    }
    let left = |tree: &&PathBuf| {
        let passed = |at: &Path| blocked_paths::below(at, tree);
        !passed(found) && (passed(path) || links.iter().any(|at| passed(at)))
    };
    if let Some(tree) = trees.iter().find(left) {
        let text = format!("a link in {}, which can be written, leads it to {}", tree.display(), found.display());
        return Err(fault(rule, path, text, "name the directory itself"));
    }
    Ok(())
}

/// What a path resolves to, and the directories of the links on the way.
fn follow(path: &Path) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    use std::path::Component;
    // The limit of Linux.
    const MOST: usize = 40;
    let mut links = Vec::new();
    let mut at = PathBuf::from("/");
    let parts = |path: &Path| -> Vec<std::ffi::OsString> {
        path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut rest = parts(path);
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                if !std::fs::symlink_metadata(&next)?.is_symlink() {
                    at = next;
                    continue;
                }
                links.push(at.clone());
                if links.len() > MOST {
                    return Err(io::Error::other("too many links lead on from it"));
                }
                rest.extend(parts(&std::fs::read_link(&next)?));
            }
            Some(Component::ParentDir) => {
                at.pop();
            }
            Some(Component::RootDir) => at = PathBuf::from("/"),
            _ => {}
        }
    }
    Ok((at, links))
}

/// Resolves the data directory, which must be a directory that may be granted for writing.
pub(crate) fn data_dir(path: &Path) -> Result<PathBuf, ConfineReason> {
    let found = writable("data directory", path)?;
    if !found.is_dir() {
        return Err(fault("data directory", path, "it is not a directory", "name a directory"));
    }
    Ok(found)
}

/// Checks a program: an empty name or a directory is refused. A missing program is reported by spawn.
pub(crate) fn program(program: &Path) -> Result<(), ConfineReason> {
    let fault = |fault: &str| Err(ConfineReason::Program { fault: fault.to_owned() });
    if program.as_os_str().is_empty() {
        return fault("it has no name");
    }
    if program.as_os_str().as_encoded_bytes().contains(&0) {
        return fault("its name has a zero byte in it");
    }
    // Without a slash it is looked up in PATH, where only executable files count.
    if program.components().count() > 1 && program.is_dir() {
        return fault("it is a directory");
    }
    Ok(())
}

/// Splits `root` into paths that exclude `holes`: a rule grants everything below its path, so the entries beside a hole
/// are granted one by one. Entries created later are in none of them. Links are excluded: their targets are in another
/// one.
pub(crate) fn around(root: &Path, holes: &[PathBuf]) -> Result<Vec<PathBuf>, ConfineReason> {
    let mut pieces = Vec::new();
    split(root, holes, &mut pieces)?;
    Ok(pieces)
}

fn split(root: &Path, holes: &[PathBuf], pieces: &mut Vec<PathBuf>) -> Result<(), ConfineReason> {
    let plain = |path: &Path, base: &Path| path.starts_with(base);
    if holes.iter().any(|hole| plain(root, hole)) {
        return Ok(());
    }
    if !holes.iter().any(|hole| plain(hole, root)) {
        pieces.push(root.to_owned());
        return Ok(());
    }
    let prepare = |source: io::Error| ConfineReason::Prepare {
        step: format!("cannot list {}, where what lies beside a denied path is granted one by one", root.display()),
        source: source.into(),
    };
    for entry in std::fs::read_dir(root).map_err(prepare)? {
        let entry = entry.map_err(prepare)?;
        if entry.file_type().map_err(prepare)?.is_symlink() {
            continue;
        }
        split(&entry.path(), holes, pieces)?;
        if pieces.len() > SIBLINGS {
            return Err(prepare(io::Error::other(format!("more than {SIBLINGS} entries"))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: ConfineReason) -> String {
        error.to_string()
    }

    #[test]
    fn a_data_directory_is_a_directory_of_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("fine")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink("/", at("root")).unwrap();
        std::os::unix::fs::symlink(at("fine"), at("link")).unwrap();
        let canonical = std::fs::canonicalize(at("fine")).unwrap();
        assert_eq!(data_dir(&at("fine")).unwrap(), canonical);
        assert_eq!(data_dir(&at("link")).unwrap(), canonical);
        for (path, said) in [
            (at("none"), "does not exist"),
            (at("file"), "not a directory"),
            (at("root"), "leads to the root"),
            (PathBuf::from("fine"), "relative"),
            (PathBuf::from(""), "it is empty"),
            (PathBuf::from("~/fine"), "only a shell knows"),
            (PathBuf::from("/"), "leads to the root"),
            (PathBuf::from("/usr/lib"), "lies below /usr/lib"),
            (PathBuf::from("/proc/self"), "lies below /proc"),
            (PathBuf::from("/usr/lib/none/below"), "lies below /usr/lib"),
            (at("root").join("usr/lib/none"), "lies below /usr/lib"),
            (PathBuf::from("/usr"), "it holds /usr/"),
        ] {
            let error = text(data_dir(&path).unwrap_err());
            assert!(error.contains(said) && error.contains("hint: "), "{}: {error}", path.display());
        }
    }

    #[test]
    fn a_missing_denied_file_gets_no_hint_to_create_it() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("none");
        let hint = |rule| text(there(rule, &none).unwrap_err());
        assert!(hint("write").contains("hint: create it first"));
        assert!(hint("deny_read").contains("does not exist\nhint: name what exists"));
    }

    #[test]
    fn a_link_in_a_writable_tree_leads_nowhere_else() {
        let (tree, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let canonical = |dir: &tempfile::TempDir| std::fs::canonicalize(dir.path()).unwrap();
        let (tree_path, home_path) = (canonical(&tree), canonical(&home));
        std::os::unix::fs::symlink(&home_path, tree_path.join("data")).unwrap();
        std::fs::create_dir(tree_path.join("own")).unwrap();
        std::os::unix::fs::symlink(tree_path.join("own"), tree_path.join("inside")).unwrap();
        let granted = |path: &Path, trees: &[PathBuf]| {
            let found = data_dir(path)?;
            astray("data directory", path, &found, trees).map(|()| found)
        };
        let error = text(granted(&tree_path.join("data"), std::slice::from_ref(&tree_path)).unwrap_err());
        assert!(error.contains("which can be written, leads it to"), "{error}");
        assert_eq!(granted(&tree_path.join("data"), &[]).unwrap(), home_path, "elsewhere links are the owner's");
        assert_eq!(
            granted(&tree_path.join("inside"), std::slice::from_ref(&tree_path)).unwrap(),
            tree_path.join("own")
        );
        // Neither does the way there, however it is written.
        let by = home_path.join("by");
        std::os::unix::fs::symlink(&tree_path, &by).unwrap();
        let up = tree_path.join("own/../../").join(tree_path.file_name().unwrap()).join("data");
        let written = PathBuf::from(format!("/proc/..{}", up.display()));
        for way in [by.join("data"), written] {
            let error = text(granted(&way, std::slice::from_ref(&tree_path)).unwrap_err());
            assert!(error.contains("which can be written, leads it to"), "{}: {error}", way.display());
        }
        assert_eq!(
            granted(&by.join("inside"), std::slice::from_ref(&tree_path)).unwrap(),
            tree_path.join("own"),
            "a link to the tree itself is the owner's"
        );
    }

    #[test]
    fn a_program_is_no_directory() {
        for wrong in ["/usr/bin", "", "/tmp/../tmp", "a\0b"] {
            assert!(program(Path::new(wrong)).is_err(), "{wrong:?}");
        }
        for fine in ["/bin/sh", "sh", "/not/there", "tmp"] {
            assert!(program(Path::new(fine)).is_ok(), "{fine}");
        }
    }

    #[test]
    fn split_paths_exclude_only_the_holes() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["a/x", "a/y/1", "a/y/2", "b"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("a", root.join("link")).unwrap();
        let around = |holes: &[&str]| {
            let holes: Vec<PathBuf> = holes.iter().map(|hole| root.join(hole)).collect();
            let mut pieces = around(&root, &holes).unwrap();
            pieces.sort();
            pieces.iter().map(|p| p.strip_prefix(&root).unwrap().display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(around(&[]), [""]);
        assert_eq!(around(&["a/y/1"]), ["a/x", "a/y/2", "b"]);
        assert_eq!(around(&["a"]), ["b"]);
        assert_eq!(around(&[""]), Vec::<String>::new());
        assert_eq!(around(&["a/none"]), ["a/x", "a/y", "b"], "what does not exist yet is left out, too");
    }
}
