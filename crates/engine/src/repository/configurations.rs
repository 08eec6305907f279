//! Which configurations of git and Mercurial count in a volume, and what of the volume they have those tools run or obey.
//!
//! The repository's own, the caller's and the system's are read, and whatever they include, under any condition: what is found
//! only ever adds a protected name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cofferdam_policy::paths::{fault, is_within, lexical};

use crate::plan::mount_table::join;
use crate::plan::tree::VolumeTree;
use crate::repository::protected_names::MOST_WORKTREES;
use crate::repository::vcs_config;

/// Most bytes of a configuration.
const MOST_BYTES: u64 = 1 << 20;
/// Configurations that are read for one volume, at most.
const MOST_FILES: usize = 64;
/// Links that lead from one to the next, at most: as many as the kernel follows.
const MOST_LINKS: usize = 40;
/// Names that are protected for them, at most.
const MOST_NAMES: usize = 64;

/// Variables with a command line of git's.
const PROGRAM_VARIABLES: [&str; 8] = [
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
];

/// What a configuration names, given its text, its place, the work tree and the home.
type ConfigurationParser = fn(&str, &Path, &Path, Option<&Path>) -> Vec<PathBuf>;

/// What lies in this volume of what git's configurations name for a work tree. `git` are the repository's directories, where
/// they are known.
pub(crate) fn named_by_git(source: &str, top: &str, tree: &dyn VolumeTree, git: &[String]) -> Vec<String> {
    let own: Vec<String> = std::iter::once(join(top, ".git")).chain(git.iter().cloned()).collect();
    let configurations: Vec<String> =
        own.iter().flat_map(|directory| [join(directory, "config"), join(directory, "config.worktree")]).collect();
    let files = configurations.iter().cloned().chain(of_every_repository(tree)).collect();
    let mut found = named(source, top, tree, files, vcs_config::obeyed_by_git);
    found.extend(programs(source, tree, &configurations));
    // A push has hooks looked for in the directory of the repository; husky's `_` has what runs the scripts beside it.
    for hooks in relative_hooks(tree, &configurations) {
        let receiving = own.iter().map(|directory| lexical(&Path::new(directory).join(&hooks)));
        let beside = hooks.ends_with("_").then(|| hooks.parent()).flatten();
        let beside = beside.map(|beside| lexical(&Path::new(top).join(beside))).filter(|path| path != Path::new(top));
        found.extend(receiving.chain(beside).filter_map(|path| below(source, path.to_str()?)));
    }
    let hooks: Vec<String> = own
        .iter()
        .map(|directory| join(directory, "hooks"))
        .chain(found.iter().map(|below| join(source, below)))
        .collect();
    found.extend(hooks.iter().flat_map(|directory| linked(source, directory, tree)).take(MOST_NAMES));
    found
}

/// The programs in this volume that git's configurations have by a whole path, and what the caller's variables name of git's
/// templates and programs. A directory in a command line is an argument.
fn programs(source: &str, tree: &dyn VolumeTree, own: &[String]) -> Vec<String> {
    let home = tree.home();
    let home = home.as_deref().map(Path::new);
    let commands = PROGRAM_VARIABLES.iter().filter_map(|name| tree.variable(name));
    let mut paths = vcs_config::programs_in(commands, home);
    for_each_of_these(tree, own.iter().cloned().chain(of_every_repository(tree)).collect(), |text| {
        paths.extend(vcs_config::programs_of_git(text, home));
    });
    let templates = tree.variable("GIT_TEMPLATE_DIR").map(PathBuf::from);
    paths.retain(|path| path.to_str().is_some_and(|path| !tree.exists(&format!("{path}/."))));
    let mut found: Vec<String> = Vec::new();
    for path in paths.iter().chain(&templates).filter_map(|path| path.to_str()) {
        let real = std::iter::once(path.to_owned()).chain(led_through(path, tree));
        found.extend(real.filter_map(|path| below(source, &path)));
    }
    found.sort();
    found.dedup();
    found.truncate(MOST_NAMES);
    found
}

/// The path below the volume, where it is one.
fn below(source: &str, path: &str) -> Option<String> {
    let below = path.strip_prefix(source)?.strip_prefix('/')?;
    (!below.is_empty() && fault(below).is_none()).then(|| below.to_owned())
}

/// The configurations of git that count in each repository: the caller's and the system's.
fn of_every_repository(tree: &dyn VolumeTree) -> Vec<String> {
    let home = tree.home();
    let mut files: Vec<String> =
        home.iter().flat_map(|home| [".gitconfig", ".config/git/config"].map(|name| join(home, name))).collect();
    files.extend(tree.variable("XDG_CONFIG_HOME").map(|directory| join(&directory, "git/config")));
    files.extend(["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].iter().filter_map(|name| tree.variable(name)));
    files.push("/etc/gitconfig".into());
    files
}

/// The directories of hooks that git looks for in whatever work tree it is used in, relative to it: by these configurations, by
/// those that count in every repository, and by what they include.
fn relative_hooks(tree: &dyn VolumeTree, own: &[String]) -> BTreeSet<PathBuf> {
    relative(tree, own, &[vcs_config::relative_hooks])
}

/// The same, and the programs that git runs by a path relative to the work tree.
pub(crate) fn relative_programs(tree: &dyn VolumeTree, own: &[String]) -> BTreeSet<PathBuf> {
    relative(tree, own, &[vcs_config::relative_hooks, vcs_config::relative_programs])
}

fn relative(tree: &dyn VolumeTree, own: &[String], all: &[fn(&str) -> Vec<PathBuf>]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let files = own.iter().cloned().chain(of_every_repository(tree)).collect();
    for_each_of_these(tree, files, |text| found.extend(all.iter().flat_map(|named| named(text))));
    found
}

/// Gives each configuration of git's that counts in every repository, and what it includes. False where there are more than
/// are read.
pub(crate) fn for_each_of_every_repository(tree: &dyn VolumeTree, each: impl FnMut(&str)) -> bool {
    for_each_of_these(tree, of_every_repository(tree), each)
}

/// The same of these alone.
pub(crate) fn for_each_of_these(tree: &dyn VolumeTree, files: Vec<String>, mut each: impl FnMut(&str)) -> bool {
    for_each_included(tree, files, vcs_config::obeyed_by_git, Path::new("/"), |_, text, _| each(text))
}

/// What this directory of hooks and the hooks in it are links to, in the volume.
fn linked(source: &str, directory: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let names = tree.names(directory).into_iter().filter(|name| !name.ends_with(".sample")).take(MOST_FILES);
    let all = std::iter::once(directory.to_owned()).chain(names.map(|name| join(directory, &name)));
    let ends = all.flat_map(|path| led_through(&path, tree)).filter(|end| !is_within(end, directory));
    ends.filter_map(|end| below(source, &end)).collect()
}

/// Where a path leads: by each link that it is one after the other, also to what is not there, and in the end.
fn led_through(path: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = path.to_owned();
    while found.len() < MOST_LINKS
        && let Some(target) = tree.link(&at)
    {
        let next = Path::new(&at).parent().map(|parent| lexical(&parent.join(target)));
        let Some(next) = next.as_deref().and_then(Path::to_str) else { break };
        at = next.to_owned();
        found.push(at.clone());
    }
    found.extend(tree.canonical(path));
    found
}

/// The same for the work trees that are linked to these repositories, wherever they lie: git runs hooks in the one that it is
/// used in, and each may have a configuration of its own.
pub(crate) fn named_for_work_trees(source: &str, tree: &dyn VolumeTree, repositories: &[String]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for common in repositories {
        let all = join(common, "worktrees");
        for name in tree.names(&all).into_iter().take(MOST_WORKTREES) {
            let own = join(&all, &name);
            let Some(says) = tree.read(&join(&own, "gitdir"), 8192).and_then(|text| String::from_utf8(text).ok())
            else {
                continue;
            };
            let file = lexical(&Path::new(&own).join(says.trim_end()));
            let Some(work_tree) = file.parent().and_then(Path::to_str) else { continue };
            found.extend(named_by_git(source, work_tree, tree, &[own, common.clone()]));
        }
    }
    found.into_iter().collect()
}

/// The same of Mercurial's.
pub(crate) fn named_by_mercurial(source: &str, top: &str, tree: &dyn VolumeTree) -> Vec<String> {
    named(source, top, tree, files_of_mercurial(top, tree), vcs_config::obeyed_by_mercurial)
}

/// The configurations of Mercurial that count in this work tree: its own, the caller's and the system's.
pub(crate) fn files_of_mercurial(top: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let mut files: Vec<String> = [".hg/hgrc", ".hg/hgrc-not-shared"].map(|name| join(top, name)).into();
    files.extend(tree.home().iter().flat_map(|home| [".hgrc", ".config/hg/hgrc"].map(|name| join(home, name))));
    files.extend(tree.variable("XDG_CONFIG_HOME").map(|directory| join(&directory, "hg/hgrc")));
    for path in tree.variable("HGRCPATH").iter().flat_map(|list| list.split(':')) {
        // Of a directory, the files in it count.
        let names = tree.names(path).into_iter().filter(|name| name.ends_with(".rc"));
        files.extend(names.map(|name| join(path, &name)).chain([path.to_owned()]));
    }
    files.push("/etc/mercurial/hgrc".into());
    files
}

/// Gives each of these configurations of Mercurial's, and of what they include, with its place.
pub(crate) fn for_each_of_mercurial(
    tree: &dyn VolumeTree,
    files: Vec<String>,
    top: &Path,
    mut each: impl FnMut(&str, &str),
) {
    for_each_included(tree, files, vcs_config::obeyed_by_mercurial, top, |file, text, _| each(file, text));
}

/// The work tree that the volume is in. A person's own configuration counts in every directory.
pub(crate) fn top<'s>(source: &'s str, repository: &str, tree: &dyn VolumeTree) -> &'s str {
    let is_top = |directory: &&str| tree.exists(&join(directory, repository));
    Path::new(source).ancestors().filter_map(Path::to_str).find(is_top).unwrap_or(source)
}

fn named(
    source: &str,
    top: &str,
    tree: &dyn VolumeTree,
    files: Vec<String>,
    obeyed: ConfigurationParser,
) -> Vec<String> {
    let mut found = Vec::new();
    for_each_included(tree, files, obeyed, Path::new(top), |_, _, names| {
        for path in names.iter().filter_map(|path| path.to_str()) {
            // Through a link elsewhere it may lead into the volume, also to what is not there yet.
            let real = tree.canonical(path).or_else(|| {
                let (parent, name) = path.rsplit_once('/')?;
                Some(join(&tree.canonical(parent)?, name))
            });
            found.extend([Some(path.to_owned()), real].into_iter().flatten().filter_map(|path| below(source, &path)));
        }
    });
    found.sort();
    found.dedup();
    found.truncate(MOST_NAMES);
    found
}

/// Reads these configurations and what they name: it may be a configuration as well, and a program has no line that is taken for
/// one. Each is given with its place and what it names. False where there are more than are read.
fn for_each_included(
    tree: &dyn VolumeTree,
    mut files: Vec<String>,
    obeyed: ConfigurationParser,
    top: &Path,
    mut each: impl FnMut(&str, &str, &[PathBuf]),
) -> bool {
    let home = tree.home();
    let mut read = BTreeSet::new();
    let mut complete = true;
    while let Some(file) = files.pop() {
        if read.contains(&file) {
            continue;
        }
        if read.len() == MOST_FILES {
            complete = false;
            continue;
        }
        read.insert(file.clone());
        let Some(text) = tree.read(&file, MOST_BYTES) else { continue };
        let text = String::from_utf8_lossy(&text);
        let names = obeyed(&text, Path::new(&file), top, home.as_deref().map(Path::new));
        each(&file, &text, &names);
        files.extend(names.iter().filter_map(|path| path.to_str().map(str::to_owned)));
    }
    complete
}

/// The directories of the repository to which a file `.git` leads, in the work tree that the volume is in: that of the work tree,
/// and the one that several share. None where `.git` is a directory.
pub(crate) fn led_to(source: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let top = top(source, ".git", tree);
    led_to_from(top, tree)
}

/// The same for a work tree.
pub(crate) fn led_to_from(top: &str, tree: &dyn VolumeTree) -> Vec<String> {
    let says = |file: &str, prefix: &str| {
        let text = String::from_utf8(tree.read(file, 8192)?).ok()?;
        let path = text.strip_prefix(prefix)?.trim();
        let from = Path::new(file).parent()?;
        lexical(&from.join(path)).to_str().map(str::to_owned)
    };
    let Some(git) = says(&join(top, ".git"), "gitdir:") else { return Vec::new() };
    let common = says(&join(&git, "commondir"), "");
    std::iter::once(git).chain(common).collect()
}

/// The directory of Jujutsu's repository of the work tree that the volume is in, where the file `.jj/repo` leads to another
/// work tree's, and the repository of git's that its `git_target` leads to.
pub(crate) fn led_to_by_jujutsu(source: &str, tree: &dyn VolumeTree) -> (Option<String>, Option<String>) {
    let repo = join(top(source, ".jj", tree), ".jj/repo");
    // Relative ones are relative to the directory that the file is in.
    let says = |file: &str| {
        let text = String::from_utf8(tree.read(file, 8192)?).ok()?;
        let path = lexical(&Path::new(file).parent()?.join(text.trim_end_matches('\n')));
        let path = path.to_str()?.to_owned();
        Some(tree.canonical(&path).unwrap_or(path))
    };
    let led_to = says(&repo);
    let git = says(&join(led_to.as_deref().unwrap_or(&repo), "store/git_target"));
    (led_to, git)
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::PROTECTED_DEFAULT;

    use crate::plan::tree::VolumeTree;
    use crate::repository::protected_names::protected;

    /// A home, a variable, and files.
    struct Files(&'static [(&'static str, &'static str)]);

    impl VolumeTree for Files {
        fn home(&self) -> Option<String> {
            Some("/h".into())
        }

        fn variable(&self, name: &str) -> Option<String> {
            match name {
                "XDG_CONFIG_HOME" => Some("/x".into()),
                "HGRCPATH" => Some("/x/rc".into()),
                "GIT_TEMPLATE_DIR" => Some("/h/r/of-variable".into()),
                "GIT_ASKPASS" => Some("/h/r/ask".into()),
                _ => None,
            }
        }

        fn names(&self, directory: &str) -> Vec<String> {
            let below = format!("{directory}/");
            let names = self.0.iter().filter_map(|(file, _)| file.strip_prefix(&below)?.split('/').next());
            names.map(str::to_owned).collect()
        }

        fn exists(&self, path: &str) -> bool {
            self.0.iter().any(|(file, _)| *file == path || file.starts_with(&format!("{path}/")))
        }

        fn read(&self, file: &str, _: u64) -> Option<Vec<u8>> {
            self.0.iter().find(|(path, _)| *path == file).map(|(_, text)| text.as_bytes().to_vec())
        }
    }

    fn has(files: &Files, volume: &str, name: &str) -> bool {
        protected(PROTECTED_DEFAULT, volume, files).contains(name)
    }

    #[test]
    fn what_configurations_name_is_protected_wherever_the_volume_begins() {
        let files = Files(&[
            ("/h/.gitconfig", "[include]\npath = local.inc\n"),
            ("/h/.hgrc", "%include hg.inc\n"),
            ("/h/r/.git/config", "[core]\nhooksPath = tools/hooks\n"),
        ]);
        assert!(has(&files, "/h", "local.inc") && has(&files, "/h", "hg.inc") && !has(&files, "/h", "tools/hooks"));
        assert!(has(&files, "/h/r", "tools/hooks") && has(&files, "/h/r/tools", "hooks"));
        assert!(!has(&files, "/h/r", "local.inc"));
        assert!(!protected(&[".bashrc"], "/h/r", &files).contains("tools/hooks"), "the list has no file of git's");
    }

    #[test]
    fn templates_and_programs_that_git_has_by_a_whole_path_are_protected() {
        let files = Files(&[
            ("/h/.gitconfig", "[init]\ntemplateDir = ~/r/tmpl\n[alias]\nx = !/h/r/tools/x /h/r/dir\n"),
            ("/h/r/tools/x", ""),
            ("/h/r/dir/.", ""),
        ]);
        for name in ["tmpl", "tools/x", "of-variable", "ask"] {
            assert!(has(&files, "/h/r", name), "{name}");
        }
        assert!(!has(&files, "/h/r", "dir") && !has(&files, "/h/r", "tools"));
        assert!(!has(&files, "/other", "tmpl"));
    }

    #[test]
    fn what_is_included_is_read_in_turn() {
        let files = Files(&[
            ("/h/.gitconfig", "[includeIf \"gitdir:~/r/\"]\npath = one\n"),
            ("/h/one", "[include]\npath = two\n"),
            ("/h/two", "[include]\npath = one\n[core]\nhooksPath = deep\n"),
            ("/x/git/config", "[core]\nhooksPath = moved\n"),
            ("/x/hg/hgrc", "[extensions]\ne = ext.py\n"),
            ("/h/r/.git/config", "[include]\npath = ../.inc\n"),
            ("/h/r/.git/config.worktree", "[core]\nhooksPath = of-worktree\n"),
            ("/h/r/.inc", "[core]\nhooksPath = of-include\n"),
            ("/h/r/.hg/store/x", ""),
        ]);
        for name in ["deep", "moved", ".inc", "of-worktree", "of-include", "ext.py"] {
            assert!(has(&files, "/h/r", name), "{name}");
        }
    }

    #[test]
    fn what_configurations_of_submodules_and_subrepositories_name_is_protected() {
        let files = Files(&[
            ("/r/.hgsub", "sub = ../s\ngit = [git]../g\n[subpaths]\nno = no\n"),
            ("/r/.hg/hgrc", ""),
            ("/r/sub/.hg/hgrc", "%include ../tools/inc.rc\n[extensions]\nx = tools/ext.py\n"),
            ("/r/no/.hg/hgrc", "%include ../tools/inc.rc\n"),
            ("/r/git/.git/config", "[core]\nhooksPath = tools/hooks\n"),
        ]);
        for name in ["sub/tools/inc.rc", "sub/tools/ext.py", "git/tools/hooks"] {
            assert!(has(&files, "/r", name), "{name}");
            assert!(has(&files, "/r/sub", name.strip_prefix("sub/").unwrap_or(".git/config")), "{name}");
        }
        for name in ["no/tools/inc.rc", "tools/inc.rc", "tools/hooks"] {
            assert!(!has(&files, "/r", name), "{name}");
        }
    }

    #[test]
    fn linked_work_trees_have_what_is_named_in_them_protected() {
        let files = Files(&[
            ("/h/.gitconfig", "[core]\nhooksPath = .husky-of-mine\n"),
            ("/r/.git/HEAD", ""),
            ("/r/.git/config", "[core]\nhooksPath = tools/hooks\n"),
            ("/r/.git/worktrees/z/gitdir", "/r/zz/.git\n"),
            ("/r/.git/worktrees/z/commondir", "../..\n"),
            ("/r/.git/worktrees/z/config.worktree", "[include]\npath = /r/zz/cfg/inc\n"),
            ("/r/.git/worktrees/out/gitdir", "/out/.git\n"),
            ("/r/.git/worktrees/out/config.worktree", "[include]\npath = ../../../of-out\n"),
            ("/r/zz/.git", "gitdir: /r/.git/worktrees/z\n"),
        ]);
        for name in ["tools/hooks", "zz/tools/hooks", "zz/cfg/inc", "zz/.husky-of-mine", "of-out"] {
            assert!(has(&files, "/r", name), "{name}");
        }
        assert!(has(&files, "/r/zz", "tools/hooks") && has(&files, "/r/zz", "cfg/inc"));
        assert!(!has(&files, "/r", "cfg/inc") && !has(&files, "/r", "zz/tools"));
    }

    #[test]
    fn files_of_a_directory_that_mercurial_includes_are_read() {
        let files = Files(&[
            ("/x/rc/a.rc", "[extensions]\ne = ext.py\n"),
            ("/x/rc/a.txt", "[extensions]\ne = no.py\n"),
            ("/h/r/.hg/store/x", ""),
        ]);
        assert!(has(&files, "/h/r", "ext.py") && !has(&files, "/h/r", "no.py"));
    }

    #[test]
    fn the_repository_that_a_file_leads_to_is_protected() {
        let files = Files(&[
            ("/r/.git", "gitdir: ./.bare\n"),
            ("/r/.bare/HEAD", "ref: refs/heads/main\n"),
            ("/r/.bare/config", "[core]\nhooksPath = /r/tools\n"),
            ("/r/.bare/worktrees/w/gitdir", "/r/w/.git\n"),
            ("/t/.git", "gitdir: /t/all/worktrees/t"),
            ("/t/all/worktrees/t/commondir", "../..\n"),
            ("/o/.git", "gitdir: /elsewhere/x\n"),
        ]);
        for name in [".bare/hooks", ".bare/config", ".bare/commondir", ".bare/worktrees/w/commondir", "w/.git", "tools"]
        {
            assert!(has(&files, "/r", name), "{name}");
        }
        assert!(!has(&files, "/r", ".bare/HEAD"), "git's to write");
        assert!(has(&files, "/t", "all/hooks") && has(&files, "/t", "all/worktrees/t/config.worktree"));
        assert!(protected(PROTECTED_DEFAULT, "/o", &files).iter().all(|name| !name.contains("elsewhere")));
    }
}
