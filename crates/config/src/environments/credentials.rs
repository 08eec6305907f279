//! The policy that environments start from, and the credentials that it denies: in the caller's homes, where variables move
//! them, and below the dot names of a host view.
//!
//! The command and the server share it, so that an environment means the same in both. Builds nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::LazyLock;

use cofferdam_policy::paths::{PathSet, is_within, may_be_one_name};
use cofferdam_policy::{BaseDirectory, CREDENTIALS, Policy, Root, credential_deny, credential_deny_moved, dot_deny};

use super::{EnvironmentSpec, InterpreterSurroundings, Project, led_by_a_home};

/// The default policy of code: it sees the system's files. With `shows_more` of the host, credentials are denied.
pub fn eval_base(shows_more: bool, homes: &[String]) -> Policy {
    let mut policy = Policy::base();
    if shows_more {
        policy.filesystem.deny = credentials(homes);
    }
    policy
}

/// The variables that move credentials to other paths.
static CREDENTIAL_VARIABLES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let named = CREDENTIALS.iter().flat_map(|entry| entry.variables()).filter_map(|name| name.split('/').next());
    named.chain(BaseDirectory::ALL.iter().map(|of| of.variable())).map(str::to_owned).collect()
});

/// Paths of credentials that an interpreter's installation never contains: a directory with one of them is not an installation.
pub(super) fn credentials_elsewhere(homes: &[String]) -> Vec<String> {
    let entries = || CREDENTIALS.iter().filter(|entry| !entry.is_of_an_installation()).map(|entry| entry.path);
    let (system, own): (Vec<&str>, Vec<&str>) = entries().partition(|path| path.starts_with('/'));
    let below =
        |home: &String| own.iter().map(|path| format!("{}/{path}", home.trim_end_matches('/'))).collect::<Vec<_>>();
    homes.iter().flat_map(below).chain(system.iter().map(|path| (*path).to_owned())).collect()
}

/// The paths of credentials in these homes.
pub fn credentials(homes: &[String]) -> Vec<String> {
    credentials_of(&HomeListings::of(homes))
}

/// The same where the homes are listed already.
pub fn credentials_of(listings: &HomeListings<'_>) -> Vec<String> {
    let homes = listings.homes;
    let mut deny: Vec<String> =
        homes.iter().flat_map(|home| credential_deny(home, &|directory| listings.names(directory))).collect();
    // Of a user without a home, as in many containers, programs take `/` for one.
    if homes.is_empty() {
        deny.extend(credential_deny("/", &|directory| listings.names(directory)));
    }
    deny.extend(linked_to(&deny, homes, listings));
    deny.sort(); // in parts it is: one for each home
    deny.dedup();
    deny
}

/// What symbolic links lead to that lie in these directories of credentials, as managers of dotfiles make them
/// (`~/.aws/credentials`); with homes, only in those below one. The backends follow a denied path that is itself a link.
///
/// What contains a home or the working directory is left out, and so are files of `/usr`, which programs need and which hold no
/// secrets.
fn linked_to(places: &[String], homes: &[String], listings: &HomeListings<'_>) -> Vec<String> {
    let here = std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok());
    let below = |place: &&String| homes.is_empty() || homes.iter().any(|home| is_within(place, home));
    let mut found = Vec::new();
    for place in places.iter().filter(below) {
        for name in listings.links(place) {
            let target = std::fs::canonicalize(format!("{place}/{name}")).ok();
            found.extend(target.and_then(|target| target.into_os_string().into_string().ok()));
        }
    }
    if found.is_empty() {
        return found;
    }
    // A home may be named by a link, and the targets have none.
    let real =
        |home: &String| std::fs::canonicalize(home).ok().and_then(|home| home.into_os_string().into_string().ok());
    let kept: Vec<String> =
        listings.homes.iter().filter_map(real).chain(listings.homes.iter().cloned()).chain(here).collect();
    let contains = |path: &str| kept.iter().any(|place| is_within(place, path));
    found.retain(|target| target != "/" && !contains(target) && !is_within(target, "/usr"));
    found
}

/// Denies credentials that the caller's variables move to other paths. A path that contains a home or the working directory is
/// not denied.
pub fn deny_moved<'v>(policy: &mut Policy, listings: &HomeListings<'_>, variable: impl Fn(&str) -> Option<&'v str>) {
    let homes = listings.homes;
    let cwd = policy.command.cwd.clone();
    let contains = |path: &String| homes.iter().chain(&cwd).any(|place| is_within(place, path));
    // The caller's programs resolve a relative value from their working directory, which is this process's.
    let here = std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok()).unwrap_or_default();
    if variable("HOME").is_some_and(is_root) && !homes.is_empty() {
        policy.filesystem.deny.extend(credential_deny("/", &|directory| listings.names(directory)));
    }
    let mut moved = credential_deny_moved(&here, homes, variable, &|directory| listings.names(directory));
    moved.retain(|path| !contains(path));
    policy.filesystem.deny.extend(linked_to(&moved, &[], listings).into_iter().filter(|path| !contains(path)));
    policy.filesystem.deny.extend(moved);
    policy.filesystem.deny.sort();
    policy.filesystem.deny.dedup();
}

/// Denies the dot names of the caller's homes in a host view, except those that programs need. Lists each home once, and the few
/// directories of which some names are shown. Not denied are the working directory, the directories of PATH, where no link of a
/// project leads there, and the paths of `volumes`; a volume that contains a home shows the home unchanged. Nor are
/// `real_paths`; what a link leads to that has come into one since is.
pub fn deny_dot_names(
    policy: &mut Policy,
    around: InterpreterSurroundings<'_>,
    listings: &HomeListings<'_>,
    volumes: &[String],
    real_paths: &[String],
) {
    let real =
        |path: &String| std::fs::canonicalize(path).ok().and_then(|real| real.into_os_string().into_string().ok());
    let path = || around.variable("PATH").unwrap_or_default().split(':').filter(|dir| dir.starts_with('/'));
    let named: Vec<String> = [around.cwd.to_owned()].into_iter().chain(volumes.iter().cloned()).collect();
    let mut opened: Vec<String> = named.iter().filter_map(real).collect();
    opened.extend(path().filter_map(|entry| led_to(entry, around.homes)));
    opened.extend(path().map(str::to_owned).chain(named).chain(real_paths.iter().cloned()));
    // A home that has a name with links is denied by that name.
    opened.extend(around.homes.iter().filter_map(|home| Some((home, real(home)?))).flat_map(|(home, at)| {
        let below = |path: &String| Path::new(path).strip_prefix(&at).ok().map(|below| Path::new(home).join(below));
        real_paths
            .iter()
            .filter_map(below)
            .filter_map(|path| path.into_os_string().into_string().ok())
            .collect::<Vec<_>>()
    }));
    let given = |home: &str| {
        volumes.iter().chain(volumes.iter().filter_map(real).collect::<Vec<_>>().iter()).any(|v| is_within(home, v))
    };
    let homes = around.homes.iter().map(|home| (home.as_str(), ""));
    let moved = BaseDirectory::ALL.iter().filter_map(|of| Some((around.variable(of.variable())?, of.usual())));
    for (base, directory) in homes.chain(moved) {
        let in_a_home = !directory.is_empty() && around.homes.iter().any(|home| is_within(home, base));
        if base.starts_with('/') && base != "/" && !in_a_home && !given(base) {
            let names = |directory: &str| listings.names(directory);
            policy.filesystem.deny.extend(dot_deny(&names, base, directory, &opened));
        }
    }
    if (around.homes.is_empty() || around.variable("HOME").is_some_and(is_root)) && !given("/") {
        let names = |directory: &str| listings.names(if directory.is_empty() { "/" } else { directory });
        policy.filesystem.deny.extend(dot_deny(&names, "", "", &opened));
    }
    // Paths below a denied directory are covered by it.
    let denied: PathSet = std::mem::take(&mut policy.filesystem.deny).into_iter().collect();
    policy.filesystem.deny = denied.into_outermost();
}

/// Where a directory of PATH really is, if no link leads there but one in a home itself, such as `~/bin`.
fn led_to(entry: &str, homes: &[String]) -> Option<String> {
    led_by_a_home(Path::new(entry), homes, "").ok()?.into_os_string().into_string().ok()
}

/// Whether a path is the whole tree, which no set of homes has in it.
fn is_root(path: &str) -> bool {
    cofferdam_policy::paths::normalize(path).as_deref() == Some("/")
}

/// What a name in a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Directory,
    Link,
    Other,
}

/// What a directory holds; `None` if it cannot be listed.
type DirectoryEntries = Option<Vec<(String, EntryKind)>>;

/// What the caller's homes and the directories in them hold, each listed once.
#[derive(Debug)]
pub struct HomeListings<'h> {
    homes: &'h [String],
    known: RefCell<HashMap<String, DirectoryEntries>>,
}

impl<'h> HomeListings<'h> {
    /// For these homes. Nothing is listed yet.
    pub fn of(homes: &'h [String]) -> HomeListings<'h> {
        HomeListings { homes, known: RefCell::default() }
    }

    /// The names in a directory that are not symbolic links; none if it cannot be listed, since the sandbox's user cannot list
    /// it either.
    fn names(&self, directory: &str) -> Vec<String> {
        match self.may_be_there(directory) {
            true => self.entries(directory, |kind| kind != EntryKind::Link),
            false => Vec::new(),
        }
    }

    /// The names in a directory that are symbolic links.
    fn links(&self, directory: &str) -> Vec<String> {
        match self.may_be_there(directory) {
            true => self.entries(directory, |kind| kind == EntryKind::Link),
            false => Vec::new(),
        }
    }

    fn entries(&self, directory: &str, wanted: impl Fn(EntryKind) -> bool) -> Vec<String> {
        self.with(directory, |entries| {
            entries.iter().flatten().filter(|(_, kind)| wanted(*kind)).map(|(name, _)| name.clone()).collect()
        })
    }

    /// Whether a directory may be there. One below a home is not if a listing on the way has not the name that leads there: of the
    /// home and its base directories, where most credentials lie and most are not there, and of what is listed already.
    fn may_be_there(&self, directory: &str) -> bool {
        self.homes.iter().all(|home| {
            let Some(below) = directory.strip_prefix(home.as_str()).and_then(|rest| rest.strip_prefix('/')) else {
                return true;
            };
            let mut start = directory.len() - below.len();
            below.split('/').all(|name| {
                let (at, end) = (&directory[..start - 1], start + name.len());
                let relative = at.get(home.len() + 1..).unwrap_or_default();
                let is_listed = relative.is_empty()
                    || BaseDirectory::ALL.iter().any(|of| of.usual() == relative)
                    || self.known.borrow().contains_key(at);
                start = end + 1;
                let leads_on = |kind: EntryKind| kind != EntryKind::Other;
                !is_listed
                    || self.with(at, |entries| {
                        entries.as_ref().is_none_or(|entries| {
                            entries.iter().any(|(entry, kind)| leads_on(*kind) && may_be_one_name(entry, name))
                        })
                    })
            })
        })
    }

    /// Calls `look` with what a directory holds.
    fn with<T>(&self, directory: &str, look: impl Fn(&DirectoryEntries) -> T) -> T {
        if let Some(known) = self.known.borrow().get(directory) {
            return look(known);
        }
        let entries = std::fs::read_dir(directory).ok().map(|entries| {
            let entry = |entry: std::fs::DirEntry| {
                let kind = match entry.file_type().ok()? {
                    kind if kind.is_symlink() => EntryKind::Link,
                    kind if kind.is_dir() => EntryKind::Directory,
                    _ => EntryKind::Other,
                };
                Some((entry.file_name().into_string().ok()?, kind))
            };
            entries.flatten().filter_map(entry).collect()
        });
        let found = look(&entries);
        self.known.borrow_mut().insert(directory.to_owned(), entries);
        found
    }
}

/// Applies an environment's settings and the project to the policy. If they show more of the host than the system's files,
/// credentials are denied, as for a call with volumes. `variable` returns a variable of the caller.
pub fn apply(
    policy: &mut Policy,
    spec: &EnvironmentSpec,
    project: Option<&Project>,
    homes: &[String],
    variable: impl Fn(&str) -> Option<String>,
) {
    if project.is_some() || !spec.binds.is_empty() || matches!(spec.root, Some(Root::Directory(_))) {
        let listings = HomeListings::of(homes);
        policy.filesystem.deny.extend(credentials_of(&listings));
        let values: BTreeMap<String, String> =
            CREDENTIAL_VARIABLES.iter().filter_map(|name| Some((name.clone(), variable(name)?))).collect();
        deny_moved(policy, &listings, |name| values.get(name).map(String::as_str));
    }
    policy.go_by_hosts_proxy(&variable);
    spec.apply(policy, project, variable);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_directories_of_credentials_are_followed_but_to_a_home() {
        use std::os::unix::fs::symlink;
        use std::path::Path;
        let directory = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(directory.path()).unwrap();
        let (home, named) = (real.join("home"), real.join("named"));
        for name in [".ssh", ".config/gh", "vault", "other"] {
            std::fs::create_dir_all(home.join(name)).unwrap();
        }
        std::fs::write(home.join("vault/key"), "").unwrap();
        symlink(&home, &named).unwrap();
        let links = [("..", ".ssh/home"), ("../vault/key", ".ssh/id"), ("../../other", ".config/gh/more")];
        for (target, link) in
            links.into_iter().chain([("/", ".ssh/root"), ("/usr/bin", ".ssh/bin"), ("gone", ".ssh/no")])
        {
            symlink(target, home.join(link)).unwrap();
        }
        for spelled in [&home, &named] {
            let denied = credentials(&[spelled.to_str().unwrap().to_owned()]);
            let has = |path: &Path| denied.iter().any(|denied| Path::new(denied) == path);
            assert!(has(&home.join("vault/key")) && has(&home.join("other")), "{spelled:?}: {denied:?}");
            for kept in [home.as_path(), &home.join("vault"), Path::new("/"), Path::new("/usr/bin")] {
                assert!(!has(kept), "{kept:?} of {spelled:?}: {denied:?}");
            }
        }
    }

    #[test]
    fn credentials_of_given_homes_alone_are_denied() {
        let deny = credentials(&["/home/u".into()]);
        assert!(deny.iter().any(|path| path == "/home/u/.ssh"), "{deny:?}");
        assert!(!deny.iter().any(|path| path.starts_with("/root")), "{deny:?}");
        let homeless = credentials(&[]);
        assert!(homeless.iter().any(|path| path == "/.ssh") && homeless.iter().any(|path| path == "/etc/shadow"));
        assert!(eval_base(false, &["/home/u".into()]).filesystem.deny.len() < deny.len());
    }
}
