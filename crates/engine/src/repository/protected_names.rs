//! Which names of a writable volume are protected, given the policy's list and what lies in the volume.
//!
//! The list names files by where they are in a project or a home. A volume can also be a directory inside of one (`.git` by
//! itself, `.config`), a bare repository, or a work tree with linked work trees and submodules, whose files have names that
//! no list knows beforehand. What is read here only ever adds a protected name: what lies in a volume may have been written
//! by a sandbox.

use std::collections::BTreeSet;
use std::path::Path;

use cofferdam_policy::PROTECTED_COMPANIONS;
use cofferdam_policy::paths::{fault, is_within, lexical};

use crate::plan::facts::{Facts, FileKind};
use crate::plan::mount_table::join;
use crate::plan::tree::{Disk, VolumeTree};
use crate::repository::{configurations, git_index};

/// Linked work trees of one repository that are looked at. Where there are more, the directory of all of them is protected as
/// well, and a run that made them fails.
pub(crate) const MOST_WORKTREES: usize = 1024;
/// Submodules whose repositories are protected, at most.
const MOST_SUBMODULES: usize = 64;

/// Names to which a program adds a version, a host or its own name, for a file that it takes instead: `.psqlrc-16.2`,
/// `.zcompdump-HOST-5.9`. Those that are there are protected.
const WITH_SUFFIX: [&str; 4] = [".lldbinit", ".muttrc", ".psqlrc", ".zcompdump"];
/// At most so many of them.
const MOST_WITH_SUFFIX: usize = 1024;

/// How deep subrepositories are looked for in subrepositories.
const DEPTH: usize = 4;
/// Most bytes of a list of subrepositories.
const MOST_HGSUB: u64 = 1 << 20;
/// Most bytes of a list of queues of patches.
const MOST_QUEUES: u64 = 1 << 16;

/// The files that a planner was given. What they hold is not among its facts.
pub(crate) struct PlannerFiles<'a>(pub &'a dyn Facts);

impl VolumeTree for PlannerFiles<'_> {
    fn home(&self) -> Option<String> {
        self.0.home()
    }

    fn homes(&self) -> Vec<String> {
        self.0.homes()
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.0.variable(name)
    }

    fn canonical(&self, path: &str) -> Option<String> {
        self.0.canonical(path)
    }

    fn link(&self, path: &str) -> Option<String> {
        self.exists(path).then(|| Disk.link(path)).flatten()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        self.0.list(directory)
    }

    fn exists(&self, path: &str) -> bool {
        !matches!(self.0.kind(path), FileKind::Missing | FileKind::Unknown)
    }

    fn read(&self, file: &str, most: u64) -> Option<Vec<u8>> {
        self.exists(file).then(|| Disk.read(file, most)).flatten()
    }
}

/// The protected names of a volume whose source is this directory (canonical), relative to it.
pub(crate) fn protected(list: &[&str], source: &str, tree: &dyn VolumeTree) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = list.iter().map(|name| (*name).to_owned()).collect();
    for entry in list {
        names.extend(rest_of(entry, source).map(str::to_owned));
    }
    names.extend(named_above(list, source, tree));
    names.extend(with_suffix(list, source, tree));
    // A home below the top has the same files.
    for home in tree.homes().iter().filter(|home| *home != source && is_within(home, source)) {
        let below = home[source.len()..].trim_start_matches('/');
        names.extend(list.iter().map(|name| format!("{below}/{name}")));
        names.extend(with_suffix(list, home, tree).into_iter().map(|name| format!("{below}/{name}")));
    }
    for (with, path) in PROTECTED_COMPANIONS {
        if list.contains(with) && tree.exists(&join(source, path)) {
            names.insert((*path).to_owned());
        }
    }
    if list.contains(&".svn") && ["format", "db", "hooks"].iter().all(|name| tree.exists(&join(source, name))) {
        names.extend(["hooks".to_owned(), "conf".to_owned()]);
    }
    let mercurial: Vec<&str> =
        list.iter().copied().filter(|entry| *entry == ".hgsub" || entry.starts_with(".hg/")).collect();
    if !mercurial.is_empty() {
        let hg = if source.ends_with("/.hg") { "" } else { ".hg/" };
        names.extend(named_by_commits(hg, source, tree));
        names.extend(queues(hg, source, tree));
        let top = configurations::top(source, ".hg", tree);
        for (path, kind) in subrepositories(top, "", tree, 0) {
            // The volume may be a directory of the work tree.
            let whole = join(top, &path);
            match kind {
                Subrepository::Mercurial if list.contains(&".hg/hgrc") => {
                    names.extend(configurations::named_by_mercurial(source, &whole, tree));
                }
                Subrepository::Git if list.contains(&".git/config") => {
                    names.extend(named_in_submodule(source, &whole, tree))
                }
                _ => {}
            }
            let Some(path) = whole.strip_prefix(source).and_then(|rest| rest.strip_prefix('/')) else { continue };
            let obeyed = |entry: &&&str| match kind {
                Subrepository::Mercurial => mercurial.contains(entry),
                Subrepository::Git => entry.starts_with(".git/"),
                Subrepository::Subversion => **entry == ".svn",
            };
            names.extend(list.iter().filter(obeyed).map(|entry| format!("{path}/{entry}")));
            names.extend(named_by_commits(&format!("{path}/.hg/"), source, tree));
            names.extend(queues(&format!("{path}/.hg/"), source, tree));
        }
    }
    let mut led_to = configurations::led_to(source, tree);
    let jujutsu: Vec<&str> = list.iter().filter_map(|entry| entry.strip_prefix(".jj/repo/")).collect();
    if !jujutsu.is_empty() {
        let (repository, git) = configurations::led_to_by_jujutsu(source, tree);
        let below = repository.as_deref().and_then(|path| path.strip_prefix(source)?.strip_prefix('/'));
        let below = below.filter(|below| fault(below).is_none());
        names.extend(below.iter().flat_map(|below| jujutsu.iter().map(move |name| format!("{below}/{name}"))));
        led_to.extend(git);
    }
    if list.contains(&".git/config") {
        let top = configurations::top(source, ".git", tree);
        let own = if is_git_directory(source, tree) { source.to_owned() } else { join(top, ".git") };
        let repositories: Vec<String> = led_to.iter().cloned().chain([own]).collect();
        names.extend(configurations::named_by_git(source, top, tree, &repositories));
        names.extend(configurations::named_for_work_trees(source, tree, &repositories));
    }
    if list.contains(&".hg/hgrc") {
        let top = configurations::top(source, ".hg", tree);
        names.extend(configurations::named_by_mercurial(source, top, tree));
    }
    let git: Vec<&str> = list.iter().filter_map(|entry| entry.strip_prefix(".git/")).collect();
    if git.is_empty() {
        return names;
    }
    if is_git_directory(source, tree) {
        names.extend(git.iter().map(|name| (*name).to_owned()));
        // git itself rewrites it; what would be obeyed is protected with the names above.
        names.remove("HEAD");
        names.extend(worktrees("", source, tree));
    } else {
        names.extend(worktrees(".git/", source, tree));
    }
    for directory in &led_to {
        let Some(below) = directory.strip_prefix(source).and_then(|rest| rest.strip_prefix('/')) else { continue };
        if fault(below).is_none() {
            names.extend(git.iter().filter(|name| **name != "HEAD").map(|name| format!("{below}/{name}")));
            names.extend(worktrees(&format!("{below}/"), source, tree));
        }
    }
    for module in git_index::submodules(source, tree).unwrap_or_default().into_iter().take(MOST_SUBMODULES) {
        names.extend(git.iter().map(|name| format!("{module}/.git/{name}")));
        if list.contains(&".git/config") {
            names.extend(named_in_submodule(source, &join(source, &module), tree));
        }
    }
    names
}

/// What a directory has of [`WITH_SUFFIX`], and the compiled form that zsh takes instead of such a file.
fn with_suffix(list: &[&str], directory: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let known: Vec<String> =
        WITH_SUFFIX.iter().filter(|name| list.contains(*name)).map(|name| format!("{name}-")).collect();
    if known.is_empty() {
        return Vec::new();
    }
    let there = tree.names(directory).into_iter().filter(|name| known.iter().any(|known| name.starts_with(known)));
    let compiled = |name: &String| name.starts_with(".zcompdump").then(|| format!("{name}.zwc"));
    let there = there.filter(|name| fault(name).is_none()).take(MOST_WITH_SUFFIX);
    there.flat_map(|name| compiled(&name).into_iter().chain([name])).collect()
}

/// What the configuration of a submodule, or a subrepository of git's, names in this volume.
fn named_in_submodule(source: &str, module: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let led_to = configurations::led_to_from(module, tree);
    configurations::named_by_git(source, module, tree, &led_to)
}

/// What keeps a subrepository of Mercurial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subrepository {
    Mercurial,
    Git,
    Subversion,
}

/// The subrepositories that `.hgsub` names (hg help subrepos), and those in them: Mercurial looks into each by itself.
fn subrepositories(source: &str, at: &str, tree: &dyn VolumeTree, depth: usize) -> Vec<(String, Subrepository)> {
    let text = tree.read(&join(source, ".hgsub"), MOST_HGSUB).and_then(|text| String::from_utf8(text).ok());
    let text = text.filter(|_| depth < DEPTH).unwrap_or_default();
    // Sections follow, which say where the repositories come from.
    let lines = text.lines().take_while(|line| !line.starts_with('['));
    let named = lines.filter_map(|line| {
        let (path, from) = line.split_once('=')?;
        let path = path.trim();
        let kind = match from.trim() {
            from if from.starts_with("[git]") => Subrepository::Git,
            from if from.starts_with("[svn]") => Subrepository::Subversion,
            _ => Subrepository::Mercurial,
        };
        (!path.starts_with(['#', '/']) && fault(path).is_none()).then_some((path, kind))
    });
    let mut found = Vec::new();
    for (path, kind) in named.take(MOST_SUBMODULES) {
        let below = if at.is_empty() { path.to_owned() } else { format!("{at}/{path}") };
        if kind == Subrepository::Mercurial {
            found.extend(subrepositories(&join(source, path), &below, tree, depth + 1));
        }
        found.push((below, kind));
    }
    found.truncate(MOST_SUBMODULES);
    found
}

/// The paths of the subrepositories in this work tree.
pub(crate) fn subrepositories_of(top: &str, tree: &dyn VolumeTree) -> Vec<String> {
    subrepositories(top, "", tree, 0).into_iter().map(|(path, _)| path).collect()
}

/// Where a repository of Mercurial has every text of `.hgsub` that commits have, by the encodings of its store (hg help
/// internals.requirements), and what says which that is. A commit that names subrepositories adds to it, and `hg update`
/// looks into them. Names whose directory is missing are left out: Mercurial makes it with the first commit.
fn named_by_commits(hg: &str, source: &str, tree: &dyn VolumeTree) -> Vec<String> {
    const FILES: [(&str, &str); 4] =
        [("store", "requires"), ("store/data", "~2ehgsub.i"), ("store/data", ".hgsub.i"), ("data", ".hgsub.i")];
    let there = FILES.iter().filter(|(directory, _)| tree.exists(&join(source, &format!("{hg}{directory}"))));
    there.map(|(directory, file)| format!("{hg}{directory}/{file}")).collect()
}

/// The queues of patches that Mercurial's extension `mq` has beside `patches`: those that are there, and those that its lists
/// name. It takes what a queue says for the names of files, which it removes, and obeys the configuration of a repository in one.
fn queues(hg: &str, source: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let mut names = Vec::new();
    for list in ["patches.queue", "patches.queues"] {
        let text = tree.read(&join(source, &format!("{hg}{list}")), MOST_QUEUES).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        names.extend(text.lines().map(str::trim).filter(|name| !name.is_empty()).map(|name| format!("patches-{name}")));
    }
    let there = tree.names(&join(source, hg.trim_end_matches('/'))).into_iter();
    names.extend(there.filter(|name| name.starts_with("patches-")));
    names.truncate(MOST_WORKTREES);
    let below = names.into_iter().map(|name| format!("{hg}{name}"));
    let in_volume = |path: String| {
        let path = lexical(&Path::new(source).join(path));
        path.strip_prefix(source).ok()?.to_str().map(str::to_owned)
    };
    below.filter_map(in_volume).filter(|path| fault(path).is_none()).collect()
}

/// What is left of an entry such as `.git/hooks` in a volume that is `.git` itself. Nothing for a volume that is not a
/// directory on the way to it.
fn rest_of<'e>(entry: &'e str, source: &str) -> Option<&'e str> {
    entry.match_indices('/').find_map(|(at, _)| {
        let ends = source.strip_suffix(&entry[..at]).is_some_and(|above| above.ends_with('/'));
        ends.then(|| &entry[at + 1..])
    })
}

/// The same of names that are found in a repository's own directory, in a volume that lies in there, such as `.git/worktrees`
/// or `.hg/store`.
fn named_above(list: &[&str], source: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let git = list.iter().any(|entry| entry.starts_with(".git/"));
    let mercurial = list.iter().any(|entry| *entry == ".hgsub" || entry.starts_with(".hg/"));
    let mut found = Vec::new();
    for above in Path::new(source).ancestors().skip(1).filter_map(Path::to_str) {
        let names = match above {
            _ if mercurial && above.ends_with("/.hg") => named_by_commits("", above, tree),
            _ if git && is_git_directory(above, tree) => worktrees("", above, tree),
            _ => continue,
        };
        let rest = source.strip_prefix(above).unwrap_or_default().trim_start_matches('/');
        let in_volume = |name: String| Some(name.strip_prefix(rest)?.strip_prefix('/')?.to_owned());
        found.extend(names.into_iter().filter_map(in_volume));
    }
    found
}

/// Whether git takes a directory itself for a repository.
pub(crate) fn is_git_directory(source: &str, tree: &dyn VolumeTree) -> bool {
    let has = |name: &str| tree.exists(&join(source, name));
    source.ends_with("/.git") || has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

/// What says where the repository of each linked work tree is, and what else is configuration. Its `gitdir` is left to git,
/// which writes it anew when it is a day old and fails where it cannot; it names no configuration.
fn worktrees(git: &str, source: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let all = format!("{git}worktrees");
    let names = tree.names(&join(source, &all));
    let too_many = (names.len() > MOST_WORKTREES).then(|| all.clone());
    let names: Vec<String> = names.into_iter().take(MOST_WORKTREES).collect();
    let files = |name: &String| ["commondir", "config.worktree"].map(|file| format!("{all}/{name}/{file}"));
    let mut found: Vec<String> = names.iter().flat_map(files).collect();
    // The file that says where the repository of a work tree in this volume is.
    found.extend(names.iter().filter_map(|name| {
        let directory = join(source, &format!("{all}/{name}"));
        let text = String::from_utf8(tree.read(&join(&directory, "gitdir"), 8192)?).ok()?;
        let file = lexical(&Path::new(&directory).join(text.trim_end()));
        let below = file.strip_prefix(source).ok()?.to_str()?;
        (file.ends_with(".git") && below != ".git").then(|| below.to_owned())
    }));
    found.extend(too_many);
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;

    use cofferdam_policy::PROTECTED_DEFAULT;

    use super::*;

    #[test]
    fn what_is_left_of_an_entry_holds_in_a_volume_on_the_way_to_it() {
        assert_eq!(rest_of(".git/hooks", "/home/u/r/.git"), Some("hooks"));
        assert_eq!(rest_of(".jj/repo/store/git_target", "/r/.jj/repo"), Some("store/git_target"));
        assert_eq!(rest_of(".git/hooks", "/home/u/not.git"), None);
        assert_eq!(rest_of(".git/hooks", "/r/.git/hooks"), None);
        assert_eq!(rest_of(".bashrc", "/home/u"), None);
    }

    /// Runs git. False where there is no git.
    pub(crate) fn git(at: &std::path::Path, arguments: &[&str]) -> bool {
        let fixed = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"];
        let done = Command::new("git").args(fixed).args(arguments).current_dir(at).output();
        let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
        match done {
            Ok(done) => {
                assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
                true
            }
            Err(e) => {
                assert!(!must, "git must work here: {e}");
                eprintln!("skipped: no git: {e}");
                false
            }
        }
    }

    #[test]
    fn a_repository_itself_has_its_configuration_protected_and_its_head_left_to_git() {
        let root = tempfile::tempdir().unwrap();
        let bare = root.path().join("x");
        std::fs::create_dir(&bare).unwrap();
        if !git(&bare, &["init", "-q", "--bare", "."]) {
            return;
        }
        let names = protected(PROTECTED_DEFAULT, bare.to_str().unwrap(), &Disk);
        for name in ["hooks", "config", "commondir", "config.worktree"] {
            assert!(names.contains(name), "{name}");
        }
        assert!(!names.contains("HEAD"));
        let other = root.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let names = protected(PROTECTED_DEFAULT, other.to_str().unwrap(), &Disk);
        assert!(names.contains("HEAD") && !names.contains("hooks") && !names.contains("config"));
    }

    #[test]
    fn submodules_have_what_their_configuration_names_protected() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().canonicalize().unwrap();
        if !git(&top, &["init", "-q", "."]) {
            return;
        }
        for (name, hooks) in [("sub", "tools/hooks"), ("other", "h")] {
            let module = top.join(name);
            std::fs::create_dir(&module).unwrap();
            git(&module, &["init", "-q", "."]);
            git(&module, &["commit", "-q", "--allow-empty", "-m", "x"]);
            git(&module, &["config", "core.hooksPath", hooks]);
        }
        git(&top, &["add", "sub"]);
        let names = protected(PROTECTED_DEFAULT, top.to_str().unwrap(), &Disk);
        assert!(names.contains("sub/tools/hooks") && names.contains("sub/.git/config"));
        assert!(!names.contains("tools/hooks") && !names.contains("other/h") && !names.contains("other/.git/config"));
    }

    #[test]
    fn what_is_found_in_a_repository_holds_in_a_volume_that_lies_in_it() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        for directory in [
            ".git/objects",
            ".git/refs",
            ".git/worktrees/w",
            ".hg/store/data",
            ".hg/patches-q",
            "bare/objects",
            "bare/refs",
        ] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        std::fs::create_dir_all(top.join("bare/worktrees/v")).unwrap();
        std::fs::write(top.join("bare/HEAD"), "").unwrap();
        std::fs::write(top.join(".git/HEAD"), "").unwrap();
        let of = |volume: &str| protected(PROTECTED_DEFAULT, top.join(volume).to_str().unwrap(), &Disk);
        for (volume, name) in [
            (".git/worktrees", "w/commondir"),
            (".git/worktrees", "w/config.worktree"),
            ("bare/worktrees", "v/commondir"),
            (".hg/store", "requires"),
            (".hg/store", "data/~2ehgsub.i"),
            (".hg/store/data", "~2ehgsub.i"),
            (".hg", "patches-q"),
            ("", ".hg/patches-q"),
            (".hg", "patches"),
        ] {
            assert!(of(volume).contains(name), "{volume}: {name}");
        }
        assert!(!of(".git/refs").contains("w/commondir") && !of("bare/objects").contains("commondir"));
    }

    #[test]
    fn what_jujutsus_files_lead_to_is_protected() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().canonicalize().unwrap();
        for directory in [".jj", "main/.jj/repo/store", "other/.jj/repo/store", "bare/refs", "bare.git/refs"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        std::fs::write(top.join(".jj/repo"), "../main/.jj/repo").unwrap();
        std::fs::write(top.join("main/.jj/repo/store/git_target"), "../../../../bare.git").unwrap();
        let of = |volume: &std::path::Path| protected(PROTECTED_DEFAULT, volume.to_str().unwrap(), &Disk);
        let names = of(&top);
        for name in ["config.toml", "config-id", "store/git_target", "store/type", "store/git/hooks"] {
            assert!(names.contains(&format!("main/.jj/repo/{name}")), "{name}");
            assert!(!names.contains(&format!("other/.jj/repo/{name}")), "nothing leads to it");
        }
        assert!(names.contains("bare.git/hooks") && names.contains("bare.git/config"));
        assert!(!names.contains("bare/hooks"), "nothing leads to it");
        // The main work tree by itself has its repository of git's elsewhere.
        assert!(!of(&top.join("main")).iter().any(|name| name.contains("bare")));
        // By an absolute path as well, and where `.jj/repo` is the directory itself.
        let target = format!("{}/bare", top.display());
        std::fs::remove_file(top.join(".jj/repo")).unwrap();
        std::fs::create_dir_all(top.join(".jj/repo/store")).unwrap();
        std::fs::write(top.join(".jj/repo/store/git_target"), target).unwrap();
        let names = of(&top);
        assert!(names.contains("bare/hooks") && !names.contains("bare.git/hooks"));
    }

    #[test]
    fn names_with_a_version_are_protected_where_they_are_there() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().canonicalize().unwrap();
        let there = [".psqlrc-16.2", ".zcompdump-host-5.9", ".muttrc-2.2.13", ".lldbinit-tool"];
        for name in there.iter().chain(&[".psqlrcs", ".zcompcache-x", "a.psqlrc-16.2"]) {
            std::fs::write(top.join(name), "").unwrap();
        }
        let list = [".bashrc", ".lldbinit", ".muttrc", ".psqlrc", ".zcompdump"];
        let names = protected(&list, top.to_str().unwrap(), &Disk);
        assert!(there.iter().all(|name| names.contains(*name)), "{names:?}");
        assert!(names.contains(".zcompdump-host-5.9.zwc"), "zsh takes it for the file");
        assert_eq!(names.len(), list.len() + there.len() + 1, "{names:?}");
        assert_eq!(protected(&[".bashrc"], top.to_str().unwrap(), &Disk).len(), 1, "by the policy's list alone");
    }

    #[test]
    fn work_trees_are_protected_however_many_there_are() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().canonicalize().unwrap();
        let add = |n: usize| {
            let own = top.join(format!(".git/worktrees/{n}"));
            std::fs::create_dir_all(&own).unwrap();
            std::fs::write(own.join("gitdir"), format!("{}/w{n}/.git\n", top.display())).unwrap();
        };
        let names = || protected(PROTECTED_DEFAULT, top.to_str().unwrap(), &Disk);
        (0..100).for_each(add);
        let some = names();
        assert!((0..100).all(|n| some.contains(&format!("w{n}/.git"))) && !some.contains(".git/worktrees"));
        assert!(!some.contains("w0/a") && !some.contains(".git/worktrees/0/gitdir"));
        (100..=MOST_WORKTREES).for_each(add);
        let many = names();
        assert!(many.contains(".git/worktrees"));
        assert_eq!(many.iter().filter(|name| name.ends_with("/.git")).count(), MOST_WORKTREES);
    }
}
