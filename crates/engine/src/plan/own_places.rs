//! Where Cofferdam keeps what it writes and obeys itself: audit trails, their state, configuration, profiles, skills, caches.
//!
//! No sandbox writes there, and none sees a trail, a key or a lock: who holds a lock, keeps everybody else from it. Every
//! backend asks [`OwnPlaces`] and refuses what it cannot enforce. Names paths only; it makes those that a writable volume would
//! otherwise leave to the program ([`claim`]).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cofferdam_audit::hidden::{Remembered, known, take};
use cofferdam_audit::opened;
use cofferdam_policy::paths::{is_within, lexical};
use cofferdam_policy::{Access, BaseDirectory, Field, Mount, Policy, Root};

use crate::failure::{FailedStep, Failure};
use crate::plan::aliases::{Aliases, MOST, MOUNT_TABLE};
use crate::plan::lookup::Lookup;

/// A directory or file of Cofferdam's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPlace {
    /// Absolute, without `.` and `..`.
    pub path: String,
    /// Neither read nor written; else only read.
    pub hidden: bool,
    /// A trail that this process writes.
    pub trail: bool,
}

/// What this process reads besides, and whether no sandbox of it sees that, as [`hide`] has it, or none writes it, as
/// [`keep_read_only`] has it.
static MORE: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());

/// Directories in places of Cofferdam's own that this process mounts in sandboxes itself: [`show_own`].
static SHOWN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Lets sandboxes that this process plans from now on mount a directory of Cofferdam's own, such as the state of the agent that
/// runs, though what lies beside it stays hidden. The path is canonical.
pub fn show_own(directory: &Path) {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner).push(directory.to_owned());
}

fn is_shown(source: &str) -> bool {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|shown| shown == Path::new(source))
}

/// Takes a file of the caller's own, such as one with a secret, out of every sandbox that this process plans from now on.
///
/// # Errors
/// It is not there, or its path is not UTF-8, so that no sandbox could be kept out of it.
pub fn hide(path: &Path) -> std::io::Result<()> {
    more(fs::canonicalize(path)?, true)
}

/// Makes a file or directory that this process obeys, such as its configuration, read-only for every sandbox that it plans from
/// now on: by this name, and where links lead from it.
///
/// # Errors
/// It is not there, or its path is not UTF-8.
pub fn keep_read_only(path: &Path) -> std::io::Result<()> {
    let real = fs::canonicalize(path)?;
    let named = std::path::absolute(path)?;
    if named.components().all(|part| part != Component::ParentDir) {
        more(lexical(&named), false)?;
    }
    more(real, false)
}

fn more(path: PathBuf, hidden: bool) -> std::io::Result<()> {
    let path = path.into_os_string().into_string().map_err(|_| std::io::Error::other("its path is not UTF-8"))?;
    *MORE.lock().unwrap_or_else(PoisonError::into_inner).entry(path).or_default() |= hidden;
    Ok(())
}

/// Everything of this user's, by the variables of this process, and where it is without them; also under the other names that
/// the host's bind mounts and overlays give it.
#[derive(Debug)]
pub(crate) struct OwnPlaces {
    pub places: Vec<OwnPlace>,
    /// Those that the state directory remembers.
    pub remembered: Vec<PathBuf>,
    /// The mounts that give the other names.
    pub aliases: Aliases,
    /// What was looked up for a policy, which its plan goes on from.
    pub lookup: RefCell<Option<Lookup>>,
}

impl OwnPlaces {
    /// As they are now.
    ///
    /// # Errors
    /// It cannot be read which directories the state directory remembers.
    pub(crate) fn now() -> Result<OwnPlaces, Failure> {
        let remembered = remembered()?;
        let mut places = named_places(&mut Lookup::default(), &remembered);
        // Where the mounts cannot be read, `acceptable` has refused the run.
        let aliases = Aliases::here();
        also_at(&mut places, &aliases);
        Ok(OwnPlaces { places, remembered, aliases, lookup: RefCell::default() })
    }

    /// The same for a policy.
    fn for_policy(policy: &Policy, aliases: Aliases, remembered: Vec<PathBuf>) -> OwnPlaces {
        let mut lookup = Lookup::expecting(&policy.filesystem.deny);
        let mut places = named_places(&mut lookup, &remembered);
        also_at(&mut places, &aliases);
        OwnPlaces { places, remembered, aliases, lookup: RefCell::new(Some(lookup)) }
    }
}

/// Adds the other places at which these show, [`MOST`] at the most. One that is the whole tree is left out: no sandbox could see
/// anything.
fn also_at(all: &mut Vec<OwnPlace>, aliases: &Aliases) {
    let mut known: BTreeMap<String, usize> = all.iter().enumerate().map(|(at, p)| (p.path.clone(), at)).collect();
    let mut at = 0;
    while let Some(OwnPlace { path, hidden, trail }) = all.get(at).cloned() {
        let others = aliases.itself(&path).into_iter().filter(|path| path != "/");
        let mut next = at + 1;
        for path in others {
            match known.get(&path) {
                None if all.len() < MOST => {
                    known.insert(path.clone(), all.len());
                    all.push(OwnPlace { path, hidden, trail });
                }
                None => {}
                Some(&earlier) => {
                    let place = &mut all[earlier];
                    if (hidden && !place.hidden) || (trail && !place.trail) {
                        (place.hidden, place.trail) = (place.hidden | hidden, place.trail | trail);
                        next = next.min(earlier); // its own other places are so as well
                    }
                }
            }
        }
        at = next;
    }
}

/// The directories that the state directory remembers; none without a state directory.
///
/// # Errors
/// It cannot be read which there are.
fn remembered() -> Result<Vec<PathBuf>, Failure> {
    let Ok(state) = opened::state_directory() else { return Ok(Vec::new()) };
    let each = Remembered::ALL.into_iter().map(|what| {
        known(what, &state).map_err(|why| {
            Failure::new(Field::Deny, format!("cannot read which directories hold {}: {why}", what.words()))
                .hint("remove that directory, or set XDG_STATE_HOME to a directory of your own")
        })
    });
    Ok(each.collect::<Result<Vec<_>, Failure>>()?.concat())
}

/// The same by its own names alone.
fn named_places(lookup: &mut Lookup, remembered: &[PathBuf]) -> Vec<OwnPlace> {
    let opened = opened::all();
    let root = rustix::process::geteuid().is_root();
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let mut all = list(&|name| std::env::var_os(name), &here, root, &opened, lookup);
    // With the variable that moved them, packages are shown read-only, as they are where they usually lie.
    let is_shown = |directory: &Path| {
        let own = directory.parent().filter(|own| directory.ends_with("cofferdam/packages") && own.is_absolute());
        own.is_some_and(|own| all.iter().any(|place| Path::new(&place.path) == own && !place.hidden))
    };
    let of_others: Vec<&PathBuf> = remembered.iter().filter(|directory| !is_shown(directory)).collect();
    for directory in
        of_others.into_iter().flat_map(|directory| [directory.clone()].into_iter().chain(beside(directory)))
    {
        let new = |path: &&str| all.iter().all(|place| place.path != *path);
        let Some(path) = directory.to_str().filter(new) else { continue };
        all.push(OwnPlace { path: path.to_owned(), hidden: true, trail: false });
    }
    let more = MORE.lock().unwrap_or_else(PoisonError::into_inner);
    // Of one that is gone there is nothing to hide, and `claim` would make a directory of its name.
    for (path, hidden) in more.iter().filter(|(path, _)| fs::symlink_metadata(path).is_ok()) {
        let known = all.iter_mut().find(|place| place.path == *path);
        match known {
            Some(place) => place.hidden |= hidden,
            None => all.push(OwnPlace { path: path.clone(), hidden: *hidden, trail: false }),
        }
    }
    all
}

/// What Cofferdam keeps beside a directory that is remembered: a variable that moved one of them moved them all.
fn beside(remembered: &Path) -> Vec<PathBuf> {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let is_own = |path: &&Path| name(path).as_deref() == Some("cofferdam");
    // The packages are in it.
    let directory = remembered.parent().filter(is_own).unwrap_or(remembered);
    let names = match name(directory).as_deref() {
        Some("cofferdam" | "cofferdam-caches" | "cofferdam-packages") => {
            &["cofferdam", "cofferdam-caches", "cofferdam-packages"][..]
        }
        Some("cofferdam-agents") => &["cofferdam"],
        _ => return Vec::new(),
    };
    names.iter().map(|name| directory.with_file_name(name)).filter(|path| path != remembered).collect()
}

/// The same from these variables. A path that is a link is in it under both names.
fn list(
    variable: &dyn Fn(&str) -> Option<OsString>,
    cwd: &Path,
    root: bool,
    opened: &[PathBuf],
    lookup: &mut Lookup,
) -> Vec<OwnPlace> {
    let named = |name: &str| variable(name).filter(|value| !value.is_empty()).map(|value| cwd.join(value));
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("HOME");
    // A program that is started with another variable looks at the place without it.
    let base = |of: BaseDirectory| -> Vec<PathBuf> {
        let usual = home.as_ref().map(|home| home.join(of.usual()));
        absolute(of.variable()).into_iter().chain(usual).map(|dir| dir.join("cofferdam")).collect()
    };
    let [cache, config, data, state] = BaseDirectory::ALL.map(base);
    // What sandboxes themselves write, each its own part.
    let parts = [(&cache, "cofferdam-caches"), (&cache, "cofferdam-packages"), (&data, "cofferdam-agents")];
    let parts: Vec<PathBuf> =
        parts.iter().flat_map(|(bases, name)| bases.iter().map(move |base| base.with_file_name(name))).collect();
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
        let named = lexical(path).into_os_string().into_string().ok();
        // Before a `..`, a link leads elsewhere than its name says.
        let plain = path.components().all(|part| part != Component::ParentDir);
        let real = match &named {
            Some(named) if plain => lookup.canonical(named),
            _ => fs::canonicalize(path).ok().and_then(|path| path.into_os_string().into_string().ok()),
        };
        for path in named.into_iter().chain(real).filter(|path| path != "/") {
            let known = all.entry(path).or_default();
            *known = (known.0 | hidden, known.1 | trail);
        }
    };
    opened.iter().for_each(|dir| add(dir, true, true));
    parts.iter().for_each(|dir| add(dir, true, false));
    named("COFFERDAM_AUDIT").iter().chain(&state).for_each(|dir| add(dir, true, false));
    containers
        .iter()
        .flat_map(|dir| ["runs", "engines", "cache"].map(|part| dir.join(part)))
        .for_each(|dir| add(&dir, true, false));
    // Init's program and texts are there as well, which containers start with.
    containers.iter().for_each(|dir| add(dir, false, false));
    profiles.iter().chain(&skills).for_each(|dir| add(&dir.join(".lock"), true, false));
    let read = config.iter().chain(&cache).chain(&data).chain(&profiles).chain(&skills).cloned();
    let read = read.chain(named("COFFERDAM_LIBEXEC")).chain(root.then(|| "/var/cache/cofferdam".into()));
    // Files and directories of definitions are often links into a directory under version control.
    let read = read.chain(["COFFERDAM_CONFIG", "COFFERDAM_DIR", "COFFERDAM_METADATA"].into_iter().filter_map(named));
    let read = read.chain(config.iter().chain(&profiles).flat_map(|dir| links_below(dir)));
    read.for_each(|dir| add(&dir, false, false));
    all.into_iter().map(|(path, (hidden, trail))| OwnPlace { path, hidden, trail }).collect()
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
/// possible, a backend guards the name or refuses. Returns the places as they are then.
///
/// # Errors
/// As [`OwnPlaces::now`].
pub(crate) fn claim(policy: &Policy, own: OwnPlaces) -> Result<OwnPlaces, Failure> {
    let writable = writable(policy);
    if writable.is_empty() {
        return Ok(own);
    }
    let mut made = false;
    for place in own.places.iter().filter(|place| !place.path.ends_with("/.lock")) {
        let path = Path::new(&place.path);
        let above = path.ancestors().find_map(|dir| fs::canonicalize(dir).ok());
        let inside =
            above.as_deref().and_then(Path::to_str).is_some_and(|dir| writable.iter().any(|w| is_within(dir, w)));
        if inside && fs::symlink_metadata(path).is_err() {
            // Who cannot make it finds its name guarded.
            made |= make(path).is_ok();
        }
    }
    match made {
        true => Ok(OwnPlaces::for_policy(policy, own.aliases, remembered()?)),
        false => Ok(own),
    }
}

/// Makes a place of Cofferdam's own. Where a variable may have moved it, it is used later because it is remembered.
fn make(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let what = match path.file_name().and_then(|name| name.to_str()) {
        Some("cofferdam-caches" | "cofferdam-packages") => Some(Remembered::Caches),
        Some("cofferdam-agents") => Some(Remembered::AgentStates),
        _ => None,
    };
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let usual = |below: &str| home.as_ref().is_some_and(|home| path.parent() == Some(&home.join(below)));
    match (what, path.parent(), path.file_name().and_then(|name| name.to_str())) {
        (Some(what), Some(base), Some(name)) if !usual(".cache") && !usual(".local/share") => {
            take(what, &opened::state_directory()?, base, name).map(|_| ())
        }
        _ => fs::DirBuilder::new().recursive(true).mode(0o700).create(path),
    }
}

/// The sources of the volumes whose files the program may change.
pub(crate) fn writable(policy: &Policy) -> Vec<String> {
    let source = |mount: &Mount| match mount {
        Mount::Bind { source, access: Access::ReadWrite, .. } => {
            fs::canonicalize(source).ok()?.to_str().map(str::to_owned)
        }
        _ => None,
    };
    policy.filesystem.mounts.iter().filter_map(source).collect()
}

/// Refuses a volume that is, or lies in, what no sandbox sees, or could be written and may only be read. Returns the places.
///
/// # Errors
/// There is such a volume, or it cannot be read which trails there are.
pub(crate) fn acceptable(policy: &Policy) -> Result<OwnPlaces, Failure> {
    let remembered = remembered()?;
    let unknown = |why: &str| {
        Failure::new(Field::Deny, format!("cannot determine where the host's mounts show Cofferdam's own files: {why}"))
    };
    let mounts = fs::read(MOUNT_TABLE)
        .map_err(|e| unknown(&format!("{MOUNT_TABLE}: {e}")).hint("mount a proc file system at /proc"))?;
    let own = OwnPlaces::for_policy(policy, Aliases::of_mounts(&mounts), remembered);
    let OwnPlaces { places, aliases, .. } = &own;
    if places.len() >= MOST {
        return Err(
            unknown("there are thousands of places").hint("unmount bind mounts and overlays that contain each other")
        );
    }
    let check = |step: FailedStep, source: &str, writes: bool| {
        let Some(source) = fs::canonicalize(source).ok().and_then(|path| path.to_str().map(str::to_owned)) else {
            return Ok(());
        };
        if let Some(point) = aliases.undetermined(&source) {
            return Err(Failure::new(
                step,
                format!("{source} lies in the overlay at {point}, and its layers may show Cofferdam's own files: one has a relative name, or another mount covers one"),
            )
            .hint("mount the overlay with absolute names of its layers, unmount what covers them, or copy what the program needs to another directory"));
        }
        if is_shown(&source) {
            return Ok(());
        }
        let Some((place, fault)) = fault(places, &source, writes) else { return Ok(()) };
        let hint = match place.hidden {
            true => "copy what the program needs to another directory",
            false => "mount it read-only, without :rw",
        };
        Err(Failure::new(step, fault).hint(hint))
    };
    if let Root::Directory(root) = &policy.filesystem.root {
        check(Field::Root.into(), root, false)?;
    }
    for (i, mount) in policy.filesystem.mounts.iter().enumerate() {
        if let Mount::Bind { source, access, .. } = mount {
            check(FailedStep::mount_entry(i), source, *access == Access::ReadWrite)?;
        }
    }
    Ok(own)
}

/// In which place a path lies that is to be seen, or also written, and the message about it.
fn fault<'p>(places: &'p [OwnPlace], path: &str, writes: bool) -> Option<(&'p OwnPlace, String)> {
    let place = places.iter().find(|place| is_within(path, &place.path) && (place.hidden || writes))?;
    let why = match place.hidden {
        true => "Cofferdam keeps for itself: no sandbox sees it",
        false => "decides what later runs do: no sandbox writes it",
    };
    let fault = match place.path == path {
        true => format!("{path} is what {why}"),
        false => format!("{path} lies in {}, which {why}", place.path),
    };
    Some((place, fault))
}

/// Why the files that a program wrote may not be put into this directory, which need not be there yet: it is, lies in, or
/// would contain a place of Cofferdam's own. `own` are more places, such as the registry that a call names.
pub fn destination_fault(directory: &Path, own: &[PathBuf]) -> Option<String> {
    let remembered = match remembered() {
        Ok(remembered) => remembered,
        Err(failure) => return Some(failure.message),
    };
    let mut all = named_places(&mut Lookup::default(), &remembered);
    all.extend(own.iter().map(|path| OwnPlace { path: real(path), hidden: true, trail: false }));
    also_at(&mut all, &Aliases::here());
    fault_of_destination(&all, &real(directory))
}

fn fault_of_destination(places: &[OwnPlace], directory: &str) -> Option<String> {
    let above = || {
        let inside = places.iter().find(|place| is_within(&place.path, directory))?;
        Some(format!("{directory} would contain {}, which is Cofferdam's own", inside.path))
    };
    fault(places, directory, true).map(|(_, fault)| fault).or_else(above)
}

/// A path without links, as far as it is there.
fn real(path: &Path) -> String {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        fs::canonicalize(above).ok().map(|above| lexical(&above.join(rest)))
    });
    found.unwrap_or_else(|| lexical(path)).to_string_lossy().into_owned()
}

/// The refusal of a backend that cannot keep the program from one of these places.
pub(crate) fn exposed(backend: &str, place: &OwnPlace) -> Failure {
    let (what, verb) = if place.trail {
        ("the audit trail of this run", "reach")
    } else {
        ("what decides what later runs do", "write")
    };
    Failure::new(if place.hidden { Field::Deny } else { Field::Protected }, format!(
            "{what} in {} would be within the program's reach, and the {backend} backend cannot enforce that it does not {verb} them",
            place.path
        )).hint("use --backend jail, a volume that does not contain it, or another place: COFFERDAM_AUDIT, XDG_STATE_HOME")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::bind_mounts::BindMounts;
    use crate::plan::overlays::Overlays;

    fn places_with(variables: &[(&str, &str)], root: bool) -> Vec<OwnPlace> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
        list(&find, Path::new("/no/cwd"), root, &[], &mut Lookup::default())
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
    fn files_of_a_run_are_put_outside_of_the_places() {
        let places = places_with(&[("HOME", "/no/home"), ("COFFERDAM_AUDIT", "audit")], false);
        let itself = fault_of_destination(&places, "/no/home/.config/cofferdam");
        assert!(itself.is_some_and(|fault| fault.starts_with("/no/home/.config/cofferdam is what decides")));
        for directory in [
            "/no/home/.config/cofferdam/profiles/kept",
            "/no/home/.cache/cofferdam/kept",
            "/no/home/.local/share/cofferdam/skills/kept",
            "/no/home/.local/state/cofferdam/kept",
            "/no/cwd/audit/kept",
        ] {
            assert!(fault_of_destination(&places, directory).is_some_and(|f| f.contains("lies in")), "{directory}");
        }
        for directory in ["/no/home/.config", "/no/home"] {
            assert!(fault_of_destination(&places, directory).is_some_and(|f| f.contains("would contain")));
        }
        for directory in ["/no/home/kept", "/no/home/.config/other", "/no/home/.config/cofferdam-kept", "/no/cwd/kept"]
        {
            assert_eq!(fault_of_destination(&places, directory), None, "{directory}");
        }
    }

    #[test]
    fn a_link_above_a_missing_directory_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(dir.join("own")).unwrap();
        std::os::unix::fs::symlink("own", dir.join("link")).unwrap();
        let own = [dir.join("link")];
        for inside in ["own", "own/a/b", "link/a/b", "link"] {
            assert!(destination_fault(&dir.join(inside), &own).is_some(), "{inside}");
        }
        assert_eq!(destination_fault(&dir.join("kept/a"), &own), None);
    }

    #[test]
    fn places_are_the_same_under_the_names_that_mounts_give_them() {
        let place = |path: &str, hidden, trail| OwnPlace { path: path.into(), hidden, trail };
        // /home is bound to /data, a layer of the overlay /m lies in the state, and the configuration lies in the overlay.
        let table = b"21 1 8:1 / / rw - ext4 /dev/sda rw\n\
            22 21 8:1 /home /data rw - ext4 /dev/sda rw\n\
            23 21 8:2 / /v rw - ext4 /dev/sdb rw\n";
        let overlays = Overlays::of_table(
            b"24 21 0:40 / /m rw - overlay o rw,lowerdir=/home/state/low,upperdir=/v/up,workdir=/v/work\n",
            &|path| Some(path.into()),
        );
        let mut all = vec![place("/home/state", true, true), place("/m/config", false, false)];
        also_at(&mut all, &Aliases::of(BindMounts::of_table(table), overlays));
        let found = |path: &str| all.iter().find(|place| place.path == path).map(|place| (place.hidden, place.trail));
        for hidden in ["/home/state", "/data/state", "/m", "/v/up", "/v/work", "/home/state/low"] {
            assert_eq!(found(hidden), Some((true, true)), "{hidden}: {all:?}");
        }
        for beside in ["/home", "/data", "/v", "/v/other", "/"] {
            assert_eq!(found(beside), None, "{beside}");
        }
        let mut alone = vec![place("/home/state", true, true), place("/etc/config", false, false)];
        also_at(&mut alone, &Aliases::default());
        assert_eq!(alone.len(), 2);
        also_at(&mut alone, &Aliases::of(BindMounts::of_table(table), Overlays::default()));
        assert_eq!(alone[2..], [place("/data/state", true, true)]);
        // A volume of such another place is refused as one of the place itself; one beside it is not.
        assert!(fault(&alone, "/data/state/x", false).is_some() && fault(&alone, "/data/stat", true).is_none());
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
