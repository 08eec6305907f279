//! Where a push may go on this machine: the addresses of remotes in every place that git reads them from.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use crate::plan::mount_table::join;
use crate::plan::tree::VolumeTree;
use crate::repository::configurations::{for_each_of_every_repository, for_each_of_these};
use crate::repository::vcs_config::settings_of_git;

/// Bytes of a remote that is a file.
const MOST_BYTES: u64 = 1 << 16;
/// Remotes that are files, and addresses that are looked at, at most.
const MOST: usize = 4096;
/// Pairs of an address and a beginning that another one stands for, at most.
const MOST_PAIRS: usize = 1 << 20;
/// Links on the way of one address, as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// What configurations say of pushes.
#[derive(Debug, Clone, Default)]
pub(super) struct Destinations {
    addresses: BTreeSet<String>,
    /// Remotes that have an address.
    named: BTreeSet<String>,
    /// What stands for a remote, by its name or its address.
    remotes: BTreeSet<String>,
    /// The beginnings of addresses that get another one (`url.BASE.insteadOf`).
    instead: BTreeSet<(String, String)>,
    /// There is more of it than is read.
    cut: bool,
}

/// The paths that a push may go to.
#[derive(Debug, Default)]
pub(super) struct PushPaths {
    pub paths: BTreeSet<OsString>,
    /// There are more.
    pub cut: bool,
}

impl Destinations {
    /// What the caller's configuration and the system's say, in every repository.
    pub(super) fn of_every_repository(tree: &dyn VolumeTree) -> Destinations {
        let mut found = Destinations::default();
        let complete = for_each_of_every_repository(tree, |text| found.configuration(text));
        found.cut |= !complete;
        found
    }

    /// What a repository says itself. `git` are its directories: its own, and the one that work trees share.
    pub(super) fn of_repository(tree: &dyn VolumeTree, git: &[String]) -> Destinations {
        let mut found = Destinations::default();
        let own =
            git.iter().flat_map(|directory| ["config", "config.worktree"].map(|name| join(directory, name))).collect();
        let complete = for_each_of_these(tree, own, |text| found.configuration(text));
        found.cut |= !complete;
        for (directory, old) in
            git.iter().flat_map(|git| [(join(git, "remotes"), false), (join(git, "branches"), true)])
        {
            let names = tree.names(&directory);
            found.cut |= names.len() > MOST;
            for name in names.into_iter().take(MOST) {
                let Some(text) = tree.read(&join(&directory, &name), MOST_BYTES) else { continue };
                found.file(&String::from_utf8_lossy(&text), old);
                found.named.insert(name);
            }
        }
        found
    }

    /// What both say.
    pub(super) fn and(mut self, other: &Destinations) -> Destinations {
        self.addresses.extend(other.addresses.iter().cloned());
        self.named.extend(other.named.iter().cloned());
        self.remotes.extend(other.remotes.iter().cloned());
        self.instead.extend(other.instead.iter().cloned());
        self.cut |= other.cut;
        self
    }

    /// The same where a push is also to remotes of these names. Where there is no such remote, git takes the name for a path, as
    /// `git push origin` does.
    pub(super) fn pushed_to(mut self, names: impl IntoIterator<Item = String>) -> Destinations {
        self.remotes.extend(names);
        self
    }

    /// The names of the remotes.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.named.iter()
    }

    fn configuration(&mut self, text: &str) {
        for setting in settings_of_git(text) {
            match (&*setting.section, &*setting.key) {
                ("remote", "url" | "pushurl") => {
                    self.named.insert(setting.subsection);
                    self.addresses.insert(setting.value);
                }
                ("remote", "pushdefault") | ("branch", "remote" | "pushremote") => {
                    self.remotes.insert(setting.value);
                }
                ("url", "insteadof" | "pushinsteadof") => {
                    self.instead.insert((setting.value, setting.subsection));
                }
                _ => {}
            }
        }
    }

    /// A remote that is a file, by gitrepository-layout(5).
    fn file(&mut self, text: &str, old: bool) {
        if old {
            let address = text.trim().split('#').next().unwrap_or_default();
            self.addresses.insert(address.lines().next().unwrap_or_default().to_owned());
        } else {
            let urls = text.lines().filter_map(|line| line.strip_prefix("URL:"));
            self.addresses.extend(urls.map(|url| url.trim().to_owned()));
        }
    }

    /// Whether there is more of it than is followed for a repository that the program may have written.
    pub(super) fn is_too_much(&self) -> bool {
        self.cut || self.addresses.len() + self.remotes.len() > MOST
    }

    pub(super) fn paths(&self, tree: &dyn VolumeTree) -> PushPaths {
        let mut all = self.addresses.clone();
        all.extend(self.remotes.difference(&self.named).cloned());
        let pairs = all.iter().flat_map(|address| self.instead.iter().map(move |(begin, base)| (address, begin, base)));
        let other: Vec<String> = pairs
            .take(MOST_PAIRS)
            .filter_map(|(address, begin, base)| Some(format!("{base}{}", address.strip_prefix(begin.as_str())?)))
            .take(MOST)
            .collect();
        let cut = self.cut || other.len() == MOST || all.len().saturating_mul(self.instead.len()) > MOST_PAIRS;
        all.extend(other);
        let paths = all.iter().flat_map(|address| local_paths(address, tree));
        let paths: Vec<OsString> = paths.filter(|path| !path.is_empty()).take(MOST).collect();
        PushPaths { cut: cut || paths.len() == MOST, paths: paths.into_iter().collect() }
    }
}

/// What git takes an address for on this machine (connect.c, parse_connect_url; path.c, enter_repo).
fn local_paths(address: &str, tree: &dyn VolumeTree) -> Vec<OsString> {
    let trimmed = |path: &[u8]| {
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        OsString::from_vec(path[..end].to_owned())
    };
    if let Some((scheme, rest)) = address.split_once("://") {
        if !scheme.eq_ignore_ascii_case("file") {
            return Vec::new();
        }
        // A host is passed over.
        let path = |bytes: &[u8]| Some(trimmed(&bytes[bytes.iter().position(|&byte| byte == b'/')?..]));
        return [path(rest.as_bytes()), path(&decoded(rest.as_bytes()))].into_iter().flatten().collect();
    }
    let slash = address.find('/');
    if address.find(':').is_some_and(|colon| slash.is_none_or(|slash| colon < slash)) {
        return Vec::new();
    }
    let Some(user) = address.strip_prefix('~') else { return vec![trimmed(address.as_bytes())] };
    let (user, rest) = user.split_once('/').unwrap_or((user, ""));
    let home = if user.is_empty() { tree.home() } else { home_of(user, tree) };
    home.map(|home| trimmed(join(&home, rest).as_bytes())).into_iter().collect()
}

fn home_of(user: &str, tree: &dyn VolumeTree) -> Option<String> {
    let users = tree.read("/etc/passwd", 1 << 20)?;
    let users = String::from_utf8_lossy(&users);
    let line = users.lines().find(|line| line.split(':').next() == Some(user))?;
    line.split(':').nth(5).map(str::to_owned)
}

/// Without the escapes of an address. One that is none stays.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let digits = text.get(at + 1..at + 3).filter(|digits| byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|&byte| byte != 0) {
            Some(byte) => {
                found.push(byte);
                at += 3;
            }
            None => {
                found.push(byte);
                at += 1;
            }
        }
    }
    found
}

/// Where an address ends for a process of git's in this directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddressEnd {
    /// Without links.
    At(PathBuf),
    /// Through one of these links it leads elsewhere for each process.
    Unknown(Vec<PathBuf>),
    Nowhere,
}

/// Follows an address by its links. Those of the kernel's to a working directory lead to `tree`, in which git pushes.
pub(super) fn resolve(tree: &Path, address: &OsStr) -> AddressEnd {
    let parts =
        |path: &Path| -> Vec<OsString> { path.components().rev().map(|part| part.as_os_str().into()).collect() };
    let (mut at, mut left, mut links) = (tree.to_owned(), parts(Path::new(address)), Vec::new());
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                let Ok(target) = std::fs::read_link(&next) else {
                    at = next;
                    continue;
                };
                links.push(next);
                if links.len() > MOST_LINKS {
                    return AddressEnd::Nowhere;
                }
                // Of a process, as `/proc/self` and `/proc/thread-self` lead to one.
                let process = at.strip_prefix("/proc").ok().filter(|process| process.components().count() > 0);
                match (process, name.as_bytes()) {
                    (Some(_), b"cwd") => at = tree.to_owned(),
                    (Some(_), b"root") => at = PathBuf::from("/"),
                    (Some(_), _) => return AddressEnd::Unknown(links),
                    (None, _) => left.extend(parts(&target)),
                }
            }
            _ => {}
        }
    }
    AddressEnd::At(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A home, and files.
    struct Files(&'static [(&'static str, &'static str)]);

    impl VolumeTree for Files {
        fn home(&self) -> Option<String> {
            Some("/h".into())
        }

        fn names(&self, directory: &str) -> Vec<String> {
            let below = format!("{directory}/");
            self.0.iter().filter_map(|(file, _)| file.strip_prefix(&below).map(str::to_owned)).collect()
        }

        fn exists(&self, _: &str) -> bool {
            false
        }

        fn read(&self, file: &str, _: u64) -> Option<Vec<u8>> {
            self.0.iter().find(|(path, _)| *path == file).map(|(_, text)| text.as_bytes().to_vec())
        }
    }

    fn paths(files: &'static [(&'static str, &'static str)]) -> Vec<String> {
        let tree = Files(files);
        let found = Destinations::of_repository(&tree, &["/r/.git".into()]);
        let found = found.and(&Destinations::of_every_repository(&tree)).pushed_to(["origin".into()]).paths(&tree);
        assert!(!found.cut);
        found.paths.into_iter().map(|path| path.into_string().unwrap()).collect()
    }

    #[test]
    fn addresses_are_found_wherever_git_reads_them() {
        let found = paths(&[
            (
                "/r/.git/config",
                "[remote \"a\"]\n\turl = https://x/y\n\tpushUrl = one\n[branch \"m]\"] pushRemote = two/\n[branch.n]\nremote = a\n",
            ),
            ("/r/.git/config.worktree", "[remote \"origin\"]\n\turl = \"thr\\\"ee\" # c\n[include]\npath = inc\n"),
            ("/r/.git/inc", "[remote]\npushDefault = four\n"),
            (
                "/h/.gitconfig",
                "[remote \"b\"]\nurl = fi\\\nve\n[url \"six/\"]\ninsteadOf = s:\n[remote \"c\"]\nurl = s:x\n",
            ),
            ("/r/.git/remotes/d", "URL: seven\nPush: no\nURL:eight\n"),
            ("/r/.git/branches/e", "nine#main\n"),
            ("/etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
        ]);
        assert_eq!(found, ["eight", "five", "four", "nine", "one", "seven", "six/x", "thr\"ee", "two"]);
        assert_eq!(paths(&[]), ["origin"]);
    }

    #[test]
    fn a_name_that_is_no_remote_is_a_path() {
        let tree = Files(&[(
            "/r/.git/config",
            "[remote \"a\"]\n\turl = ../a.git/\n\tURL=/b:c\n\turl = file:///d\n\turl = https://e/f\n\turl = host:path\n\
             \turl = ssh://h/i\n\tfetch = ../x\n[branch \"m\"]\n\tremote = a\n[branch \"n\"]\n\tremote = e\n\
             [remote \"without\"]\n\tfetch = x\n",
        )]);
        let names = ["a", "origin", "without"].map(str::to_owned);
        let found = Destinations::of_repository(&tree, &["/r/.git".into()]).pushed_to(names).paths(&tree);
        let found: Vec<_> = found.paths.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["../a.git", "/b:c", "/d", "e", "origin", "without"]);
    }

    #[test]
    fn more_addresses_than_are_followed_are_said() {
        let all = |count: usize| (0..count).map(|n| format!("{n}")).collect();
        let tree = Files(&[]);
        let some = Destinations { addresses: all(MOST - 1), ..Destinations::default() };
        assert!(!some.is_too_much() && !some.paths(&tree).cut);
        let more = Destinations { addresses: all(MOST + 1), ..Destinations::default() };
        assert!(more.is_too_much() && more.paths(&tree).cut);
        let instead = |count: usize| (0..count).map(|n| ("1".to_owned(), format!("{n}/"))).collect();
        let rewritten = Destinations { addresses: all(100), instead: instead(MOST), ..Destinations::default() };
        assert!(!rewritten.is_too_much() && rewritten.paths(&tree).cut);
    }

    #[test]
    fn an_address_is_the_path_that_git_takes_it_for() {
        for (address, expected) in [
            ("file://localhost/a/%62", &["/a/%62", "/a/b"][..]),
            ("file:///a%2fb%00%", &["/a%2fb%00%", "/a/b%00%"]),
            ("~/x/", &["/h/x"]),
            ("~root/x", &["/root/x"]),
            ("~nobody-here/x", &[]),
            ("a/b:c", &["a/b:c"]),
            ("host:a", &[]),
            ("ext::sh", &[]),
            ("ssh://h/a", &[]),
        ] {
            let users = &[("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")];
            let found: Vec<_> =
                local_paths(address, &Files(users)).into_iter().map(|path| path.into_string().unwrap()).collect();
            assert_eq!(found, expected, "{address}");
        }
    }

    #[test]
    fn a_link_to_a_working_directory_leads_to_that_of_git() {
        let root = tempfile::tempdir().unwrap();
        let tree = std::fs::canonicalize(root.path()).unwrap();
        std::os::unix::fs::symlink("/proc/self/cwd/q", tree.join("k")).unwrap();
        std::os::unix::fs::symlink("/proc/self/fd/0", tree.join("f")).unwrap();
        std::os::unix::fs::symlink("l", tree.join("l")).unwrap();
        let end = |address: &str| resolve(&tree, OsStr::new(address));
        for address in ["q/b", "k/b", "/proc/self/cwd/q/./b", "/proc/thread-self/root/proc/self/cwd/x/../q/b"] {
            assert_eq!(end(address), AddressEnd::At(tree.join("q/b")), "{address}");
        }
        assert!(matches!(end("f/x"), AddressEnd::Unknown(links) if links[0] == tree.join("f")));
        assert_eq!(end("l/x"), AddressEnd::Nowhere);
    }
}
