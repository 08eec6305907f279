//! Where Cofferdam keeps what it writes and obeys itself: audit trails, their state, configuration, profiles, skills, caches.
//!
//! No sandbox writes there, and none sees a trail, a key or a lock: who holds a lock, keeps everybody else from it. Every
//! backend asks [`places`] and refuses what it cannot enforce. Names paths only; it makes those that a writable volume would
//! otherwise leave to the program ([`claim`]).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_audit::{opened, trails};
use cofferdam_policy::paths::{is_within, lexical};
use cofferdam_policy::{Access, Field, Mount, Policy, Root};

use crate::failure::{Failure, Step};

/// A directory or file of Cofferdam's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Absolute, without `.` and `..`.
    pub path: String,
    /// Neither read nor written; else only read.
    pub hidden: bool,
    /// A trail that this process writes.
    pub trail: bool,
}

/// Everything of this user's, by the variables of this process, and where it is without them.
pub fn places() -> Vec<Place> {
    let opened = opened::all();
    let root = rustix::process::geteuid().is_root();
    let mut all =
        list(&|name| std::env::var_os(name), &std::env::current_dir().unwrap_or_else(|_| "/".into()), root, &opened);
    // Where they cannot be read, `acceptable` has refused the run.
    for trail in opened::state_directory().and_then(|state| trails::known(&state)).unwrap_or_default() {
        let Some(path) = trail.to_str().filter(|path| all.iter().all(|place| place.path != *path)) else { continue };
        all.push(Place { path: path.to_owned(), hidden: true, trail: false });
    }
    all
}

/// The same from these variables. A path that is a link is in it under both names.
fn list(variable: &dyn Fn(&str) -> Option<OsString>, cwd: &Path, root: bool, opened: &[PathBuf]) -> Vec<Place> {
    let named = |name: &str| variable(name).filter(|value| !value.is_empty()).map(|value| cwd.join(value));
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("HOME");
    // A program that is started with another variable looks at the place without it.
    let base = |name: &str, below: &str| -> Vec<PathBuf> {
        absolute(name)
            .into_iter()
            .chain(home.as_ref().map(|home| home.join(below)))
            .map(|dir| dir.join("cofferdam"))
            .collect()
    };
    let (config, cache) = (base("XDG_CONFIG_HOME", ".config"), base("XDG_CACHE_HOME", ".cache"));
    let (state, data) = (base("XDG_STATE_HOME", ".local/state"), base("XDG_DATA_HOME", ".local/share"));
    let profiles: Vec<PathBuf> = named("COFFERDAM_PROFILES")
        .into_iter()
        .chain(home.as_ref().map(|home| home.join(".omni/sandbox/profiles")))
        .collect();
    let skills: Vec<PathBuf> =
        named("COFFERDAM_SKILLS").into_iter().chain(data.iter().map(|dir| dir.join("skills"))).collect();
    let containers: Vec<PathBuf> = named("COFFERDAM_STATE")
        .into_iter()
        .chain(root.then(|| PathBuf::from("/var/lib/cofferdam")))
        .chain(data.iter().cloned())
        .collect();

    let mut all: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    let mut add = |path: &Path, hidden: bool, trail: bool| {
        for path in [lexical(path)].into_iter().chain(fs::canonicalize(path).ok()) {
            let Some(path) = path.to_str().filter(|path| *path != "/") else { continue };
            let known = all.entry(path.to_owned()).or_default();
            *known = (known.0 | hidden, known.1 | trail);
        }
    };
    opened.iter().for_each(|dir| add(dir, true, true));
    named("COFFERDAM_AUDIT").iter().chain(&state).for_each(|dir| add(dir, true, false));
    containers
        .iter()
        .flat_map(|dir| ["runs", "engines", "cache"].map(|part| dir.join(part)))
        .for_each(|dir| add(&dir, true, false));
    profiles.iter().chain(&skills).for_each(|dir| add(&dir.join(".lock"), true, false));
    let read = config.iter().chain(&cache).chain(&data).chain(&profiles).chain(&skills).cloned();
    let read = read.chain(named("COFFERDAM_LIBEXEC")).chain(root.then(|| "/var/cache/cofferdam".into()));
    // Files and directories of definitions are often links into a directory under version control.
    let read = read.chain(["COFFERDAM_CONFIG", "COFFERDAM_DIR", "COFFERDAM_METADATA"].into_iter().filter_map(named));
    let read = read.chain(config.iter().chain(&profiles).flat_map(|dir| links_below(dir)));
    read.for_each(|dir| add(&dir, false, false));
    all.into_iter().map(|(path, (hidden, trail))| Place { path, hidden, trail }).collect()
}

/// The links in a directory and in the directories in it, which lead to what is obeyed as if it lay there.
fn links_below(dir: &Path) -> Vec<PathBuf> {
    /// More than a person keeps there.
    const MOST: usize = 1024;
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().take(MOST);
    let (mut links, mut directories) = (Vec::new(), Vec::new());
    for entry in entries(dir) {
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => links.push(entry.path()),
            Ok(kind) if kind.is_dir() => directories.push(entry.path()),
            _ => {}
        }
    }
    // What a link leads to is a directory of definitions as well.
    for dir in directories.iter().chain(&links.clone()).take(MOST) {
        let is_link = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        links.extend(entries(dir).filter(is_link).map(|entry| entry.path()));
    }
    links
}

/// Makes the directories that are missing in a volume that the program may write, before it could. Where that is not
/// possible, a backend guards the name or refuses.
pub fn claim(policy: &Policy) {
    use std::os::unix::fs::DirBuilderExt as _;
    let writable = writable(policy);
    if writable.is_empty() {
        return;
    }
    for place in places().iter().filter(|place| !place.path.ends_with("/.lock")) {
        let path = Path::new(&place.path);
        let above = path.ancestors().find_map(|dir| fs::canonicalize(dir).ok());
        let inside =
            above.as_deref().and_then(Path::to_str).is_some_and(|dir| writable.iter().any(|w| is_within(dir, w)));
        if inside && fs::symlink_metadata(path).is_err() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path).ok(); // who cannot make it finds its name guarded
        }
    }
}

/// The sources of the volumes whose files the program may change.
pub fn writable(policy: &Policy) -> Vec<String> {
    let source = |mount: &Mount| match mount {
        Mount::Bind { source, access: Access::ReadWrite, .. } => {
            fs::canonicalize(source).ok()?.to_str().map(str::to_owned)
        }
        _ => None,
    };
    policy.filesystem.mounts.iter().filter_map(source).collect()
}

/// Refuses a volume that is, or lies in, what no sandbox sees, or could be written and may only be read.
///
/// # Errors
/// There is such a volume, or it cannot be read which trails there are.
pub fn acceptable(policy: &Policy) -> Result<(), Failure> {
    if let Ok(state) = opened::state_directory() {
        trails::known(&state).map_err(|why| {
            Failure::new(Field::Deny, format!("cannot read which directories hold audit trails: {why}"))
                .hint("remove that directory, or set XDG_STATE_HOME to a directory of your own")
        })?;
    }
    let places = places();
    let check = |step: Step, source: &str, writes: bool| {
        let Some(source) = fs::canonicalize(source).ok().and_then(|path| path.to_str().map(str::to_owned)) else {
            return Ok(());
        };
        match places.iter().find(|place| is_within(&source, &place.path) && (place.hidden || writes)) {
            None => Ok(()),
            Some(place) if place.hidden => Err(Failure::new(
                step,
                format!("{source} lies in {}, which Cofferdam keeps for itself: no sandbox sees it", place.path),
            )
            .hint("copy what the program needs to another directory")),
            Some(place) => Err(Failure::new(
                step,
                format!(
                    "{source} lies in {}, which decides what later sandboxes may do: no sandbox writes it",
                    place.path
                ),
            )
            .hint("mount it read-only, without :rw")),
        }
    };
    if let Root::Directory(root) = &policy.filesystem.root {
        check(Field::Root.into(), root, false)?;
    }
    for (i, mount) in policy.filesystem.mounts.iter().enumerate() {
        if let Mount::Bind { source, access, .. } = mount {
            check(Step::mount_entry(i), source, *access == Access::ReadWrite)?;
        }
    }
    Ok(())
}

/// The refusal of a backend that cannot keep the program from one of these places.
pub fn exposed(backend: &str, place: &Place) -> Failure {
    let (what, verb) =
        if place.trail { ("the audit trail of this run", "reach") } else { ("Cofferdam's own files", "write") };
    Failure::new(if place.hidden { Field::Deny } else { Field::Protected }, format!(
            "{what} in {} would be within the program's reach, and the {backend} backend cannot enforce that it does not {verb} them",
            place.path
        )).hint("use --backend jail, a volume that does not contain it, or another place: COFFERDAM_AUDIT, XDG_STATE_HOME")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places_with(variables: &[(&str, &str)], root: bool) -> Vec<Place> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        list(&find, Path::new("/no/cwd"), root, &[])
    }

    #[test]
    fn definitions_that_are_links_are_protected_where_they_lead() {
        use std::os::unix::fs::symlink;
        let home = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        let dir = home.join(".config/cofferdam");
        fs::create_dir_all(dir.join("environments")).unwrap();
        fs::create_dir_all(home.join("dot/profiles")).unwrap();
        for name in ["config.toml", "one.toml", "other.toml"] {
            fs::write(home.join("dot").join(name), "").unwrap();
        }
        symlink(home.join("dot/config.toml"), dir.join("config.toml")).unwrap();
        symlink(home.join("dot/profiles"), dir.join("profiles")).unwrap();
        symlink(home.join("dot/one.toml"), dir.join("environments/one.toml")).unwrap();
        let found = places_with(&[("HOME", home.to_str().unwrap()), ("COFFERDAM_CONFIG", "/no/config.toml")], false);
        let access = |path: &str| {
            let path = home.join(path);
            found.iter().find(|place| Path::new(&place.path) == path).map(|place| place.hidden)
        };
        assert_eq!(access("dot/config.toml"), Some(false));
        assert_eq!(access("dot/profiles"), Some(false));
        assert_eq!(access("dot/one.toml"), Some(false));
        assert_eq!(access("dot/other.toml"), None, "no definition leads there");
        assert_eq!(access("/no/config.toml"), Some(false));
    }

    #[test]
    fn variables_move_the_places_and_the_usual_ones_stay() {
        let found = places_with(
            &[
                ("HOME", "/no/home"),
                ("XDG_CONFIG_HOME", "/no/config"),
                ("COFFERDAM_AUDIT", "audit"),
                ("XDG_STATE_HOME", "relative"),
            ],
            false,
        );
        let access = |path: &str| found.iter().find(|place| place.path == path).map(|place| place.hidden);
        assert_eq!(access("/no/config/cofferdam"), Some(false));
        assert_eq!(access("/no/home/.config/cofferdam"), Some(false));
        assert_eq!(access("/no/cwd/audit"), Some(true));
        assert_eq!(access("/no/home/.local/state/cofferdam"), Some(true));
        assert_eq!(access("/no/home/.omni/sandbox/profiles"), Some(false));
        assert_eq!(access("/no/home/.omni/sandbox/profiles/.lock"), Some(true));
        assert_eq!(access("/var/lib/cofferdam/runs"), None);
        assert!(places_with(&[], true).iter().any(|place| place.path == "/var/lib/cofferdam/runs" && place.hidden));
        assert_eq!(places_with(&[], false), []);
    }
}
