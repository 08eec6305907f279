//! Remembers the directories of audit trails that runs of this user have opened, and those with states of coding agents, kept caches,
//! packages and layers that hide names where a variable moved them, so that later runs hide them without having to be given their paths.
//!
//! ```text
//! STATE/trails/DEVICE-INODE-DIGEST-BORN -> PATH     one symbolic link for each trail; DIGEST is of PATH
//! STATE/agents/DEVICE-INODE-DIGEST-BORN -> PATH     the same for each directory with states of agents
//! STATE/caches/DEVICE-INODE-DIGEST-BORN -> PATH     the same for each directory with kept caches, packages or layers
//! ```
//!
//! Sandboxes cannot access the state directory. A link is created by one system call and never changed, because its
//! name is derived from its target: writers need no lock. An entry is valid while the directory at its path is the same
//! one: BORN is when it was made, where the file system knows that, since another directory may get its inode when it is gone. (Older
//! entries lack it.) One of a trail must also contain only files of a trail, so a trail in a directory with other files does not hide those
//! from later runs.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock, mkdirat, openat, openat2, readlinkat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::end_slots;
use super::record::{hex, sha256};
use super::store;

/// Entries of a kind at most. One beyond that is refused, for it would not stay hidden.
const MOST: usize = 1024;

/// What is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    /// Audit trails.
    Trails,
    /// Directories with states of coding agents.
    AgentStates,
    /// Directories with kept caches, installed packages, or layers that hide names.
    Caches,
}

impl Remembered {
    /// Every kind.
    pub const ALL: [Remembered; 3] = [Remembered::Trails, Remembered::AgentStates, Remembered::Caches];

    /// The directory of the entries in the state directory.
    fn name(self) -> &'static str {
        match self {
            Remembered::Trails => "trails",
            Remembered::AgentStates => "agents",
            Remembered::Caches => "caches",
        }
    }

    /// What the directories hold, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Remembered::Trails => "audit trails",
            Remembered::AgentStates => "states of agents",
            Remembered::Caches => "caches",
        }
    }

    /// Whether a directory is still such a one.
    fn is_one(self, path: &Path) -> bool {
        match self {
            Remembered::Trails => is_trail(path),
            Remembered::AgentStates | Remembered::Caches => true,
        }
    }
}

/// Why a directory could not be remembered, which does not stop the run: later runs do not know that they have to hide it.
pub type Unremembered = String;

/// Remembers a directory, by its canonical path, in this state directory. `Some` where the directory of entries
/// is another user's, is read-only, or is missing and cannot be made.
///
/// # Errors
/// Other users can write the directory of entries, or it has room for no more.
pub fn remember(what: Remembered, state: &Path, directory: &Path) -> io::Result<Option<Unremembered>> {
    if fs::canonicalize(state).is_ok_and(|state| directory.starts_with(state)) {
        return Ok(None); // hidden with the state directory
    }
    let (at, entries) = match make_entries(what, state)? {
        Ok(made) => made,
        Err(why) => return Ok(Some(why)),
    };
    let about = fs::metadata(directory)?;
    let name = entry(&about, directory);
    if readlinkat(&entries, &name, Vec::new()).is_ok() {
        return Ok(None);
    }
    let older = older_entry(&about, directory);
    let mut count = 0;
    for (name, path) in list(&at, &entries)? {
        if is_same(&name, &path) && name != older {
            count += 1;
        } else if let Err(why) = unlinkat(&entries, &name, AtFlags::empty())
            && why != Errno::NOENT
        {
            return Err(why.into());
        }
    }
    if count >= MOST {
        return Err(io::Error::other(format!("{} has {MOST} entries, and remembers no more", at.display())));
    }
    match symlinkat(directory, &entries, &name) {
        Ok(()) | Err(Errno::EXIST) => Ok(None), // another run remembered the same one
        Err(why @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) => {
            Ok(Some(format!("{} cannot be written: {why}", at.display())))
        }
        Err(why) => Err(why.into()),
    }
}

/// The directories that this state directory remembers and that are still there.
///
/// # Errors
/// The directory of entries is this user's, and cannot be read or can be written by other users.
pub fn known(what: Remembered, state: &Path) -> io::Result<Vec<PathBuf>> {
    let at = state.join(what.name());
    let Some(entries) = open(&at)? else { return Ok(Vec::new()) };
    let all = list(&at, &entries)?.into_iter().take(2 * MOST);
    Ok(all.filter(|(name, path)| is_same(name, path) && what.is_one(path)).map(|(_, path)| path).collect())
}

/// Opens a directory of Cofferdam's own, `name` below `base`, where a variable moved `base`; makes both where they are not there. It
/// is one that this call has made, or one that was remembered when it was made: what else is there at its place, or leads from it, is
/// somebody's who may have put anything into it. Returns its path without links.
///
/// # Errors
/// It is not such a one, or cannot be made or remembered.
pub fn take(what: Remembered, state: &Path, base: &Path, name: &str) -> io::Result<(OwnedFd, PathBuf)> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let base = fs::canonicalize(base)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat2(CWD, &base, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let path = base.join(name);
    // Another first use waits until this one has its record.
    let _lock = lock(what, state)?;
    let mut made = false;
    for part in name.split('/') {
        (at, made) = open_or_make(&at, part)?;
    }
    if !made {
        if !is_known(what, state, &at, &path)? {
            return Err(io::Error::other("it was not made by Cofferdam, or its record is gone"));
        }
        // An older entry becomes one that says when the directory was made.
        remember(what, state, &path)?;
        return Ok((at, path));
    }
    match remember(what, state, &path).unwrap_or_else(|why| Some(why.to_string())) {
        None if is_known(what, state, &at, &path)? => Ok((at, path)),
        None => Err(io::Error::other("something replaced it meanwhile")),
        Some(why) => {
            // The next run would find a directory that nobody remembers.
            let left = match fs::remove_dir(&path) {
                Ok(()) => String::new(),
                Err(why) => format!("; it was made, and cannot be removed: {why}"),
            };
            Err(io::Error::other(format!(
                "it could not be remembered, and so not be hidden from runs without the variable: {why}{left}"
            )))
        }
    }
}

/// Keeps other processes from making directories of this kind, until it is dropped. Where there can be no entries, nothing is locked:
/// what is made then cannot be remembered.
fn lock(what: Remembered, state: &Path) -> io::Result<Option<File>> {
    let Ok((_, entries)) = make_entries(what, state)? else { return Ok(None) };
    flock(&entries, FlockOperation::LockExclusive)?;
    Ok(Some(entries))
}

/// The directory of entries, which is made if it is not there; or why there is none.
fn make_entries(what: Remembered, state: &Path) -> io::Result<Result<(PathBuf, File), Unremembered>> {
    let at = state.join(what.name());
    // HOME/.local/state/cofferdam: a home that is not there, as a service's, is not made.
    if state.ancestors().nth(3).is_some_and(|home| !home.is_dir()) {
        return Ok(Err(format!("{} is in no home directory", at.display())));
    }
    if let Err(why) = fs::DirBuilder::new().recursive(true).mode(0o700).create(&at) {
        return Ok(Err(format!("{} cannot be made: {why}", at.display())));
    }
    Ok(match open(&at)? {
        Some(entries) => Ok((at, entries)),
        None => Err(format!("{} is not this user's, or cannot be opened", at.display())),
    })
}

/// Opens a directory in another, through no link, and makes it if it is not there. Says whether it did.
///
/// # Errors
/// It is none, or cannot be made or opened.
pub fn open_or_make(at: impl AsFd, name: &str) -> io::Result<(OwnedFd, bool)> {
    let made = match mkdirat(&at, name, Mode::from_raw_mode(0o700)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(why) => return Err(why.into()),
    };
    match openat(&at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(opened) => Ok((opened, made)),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            Err(io::Error::other(format!("a link leads elsewhere from it, or {name} is no directory")))
        }
        Err(why) => Err(why.into()),
    }
}

/// Whether an open directory is the one that this state directory remembers at this path, which has no links.
///
/// # Errors
/// The directory of entries is this user's, and cannot be read or can be written by other users.
pub fn is_known(what: Remembered, state: &Path, opened: impl AsFd, path: &Path) -> io::Result<bool> {
    if fs::canonicalize(state).is_ok_and(|state| path.starts_with(state)) {
        return Ok(true); // hidden with the state directory, which no sandbox writes
    }
    let Some(entries) = open(&state.join(what.name()))? else { return Ok(false) };
    let about = File::from(opened.as_fd().try_clone_to_owned()?).metadata()?;
    let own = about.is_dir() && about.uid() == rustix::process::geteuid().as_raw();
    let names = [entry(&about, path), older_entry(&about, path)];
    Ok(own && names.iter().any(|name| readlinkat(&entries, name, Vec::new()).is_ok()))
}

/// The directory of entries, if there is one of this user.
fn open(at: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(at, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(Errno::NOENT | Errno::ACCESS) => return Ok(None),
        Err(Errno::NOTDIR) if fs::symlink_metadata(at).is_err() => return Ok(None), // such as below HOME=/dev/null
        Err(why) => return Err(io::Error::other(format!("cannot open {}: {why}", at.display()))),
    };
    let about = opened.metadata()?;
    // The state directory of another user, as after `su` with the variables of the caller, remembers nothing for this
    // one.
    if about.uid() != rustix::process::geteuid().as_raw() {
        tracing::warn!("nothing is remembered in {}, which belongs to another user", at.display());
        return Ok(None);
    }
    if about.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} can be written by other users", at.display())));
    }
    Ok(Some(opened))
}

/// The entries: their names, and the paths that they say.
fn list(at: &Path, entries: &File) -> io::Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for found in rustix::fs::Dir::read_from(entries)? {
        let found = found?;
        let Ok(name) = found.file_name().to_str() else { continue };
        if let Ok(path) = readlinkat(entries, name, Vec::new()) {
            all.push((name.to_owned(), PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes()))));
        }
    }
    tracing::debug!("{} remembers {} directories", at.display(), all.len());
    Ok(all)
}

/// The name of the entry of a directory at this path.
fn entry(about: &Metadata, path: &Path) -> String {
    let born = about.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
    format!("{}-{:x}", older_entry(about, path), born.map_or(0, |born| born.as_nanos()))
}

/// The same as earlier versions named it.
fn older_entry(about: &Metadata, path: &Path) -> String {
    let digest = &sha256(path.as_os_str().as_bytes())[..8];
    format!("{:x}-{:x}-{}", about.dev(), about.ino(), hex(digest))
}

/// Whether the directory that was remembered is still the one at this path.
fn is_same(name: &str, path: &Path) -> bool {
    let is_named = |about: &Metadata| name == entry(about, path) || name == older_entry(about, path);
    path.is_absolute() && fs::symlink_metadata(path).is_ok_and(|about| about.is_dir() && is_named(&about))
}

/// Whether a directory holds the files of a trail and nothing else.
fn is_trail(path: &Path) -> bool {
    let Ok(mut files) = fs::read_dir(path) else { return false };
    path.join("lock").is_file()
        && files.all(|file| file.is_ok_and(|file| file.file_name().to_str().is_some_and(is_file_name)))
}

/// Whether a trail has a file of this name.
fn is_file_name(name: &str) -> bool {
    name == "lock" || store::file_number(name).is_some() || end_slots::is_name(name)
}

#[cfg(test)]
mod tests {
    use super::Remembered::Trails;
    use super::*;

    #[test]
    fn a_home_that_is_not_there_is_not_made() {
        let root = tempfile::tempdir().unwrap();
        let trail = root.path().join("audit");
        fs::create_dir(&trail).unwrap();
        let home = root.path().join("home");
        let why = remember(Trails, &home.join(".local/state/cofferdam"), &trail).unwrap();
        assert!(why.is_some_and(|why| why.contains("no home directory")));
        assert!(!home.exists());
        fs::create_dir(&home).unwrap();
        assert_eq!(remember(Trails, &home.join(".local/state/cofferdam"), &trail).unwrap(), None, "the control");
        assert!(home.join(".local/state/cofferdam/trails").is_dir());
    }

    #[test]
    fn a_trail_is_known_while_its_directory_is_the_same_and_pure() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let (state, trail) = (root.join("state"), root.join("audit"));
        fs::create_dir(&trail).unwrap();
        for file in ["lock", "trail-000001.jsonl", "run-0001"] {
            fs::write(trail.join(file), "").unwrap();
        }
        assert_eq!(known(Trails, &state).unwrap(), [] as [PathBuf; 0]);
        remember(Trails, &state, &trail).unwrap();
        remember(Trails, &state, &trail).unwrap();
        assert_eq!(known(Trails, &state).unwrap(), std::slice::from_ref(&trail));
        fs::write(trail.join("main.py"), "").unwrap();
        assert_eq!(known(Trails, &state).unwrap(), [] as [PathBuf; 0], "a directory with other files");
        fs::remove_file(trail.join("main.py")).unwrap();
        assert_eq!(known(Trails, &state).unwrap(), std::slice::from_ref(&trail));
        // Moved away, with a copy in its place; the next one that is remembered drops the entry.
        fs::rename(&trail, root.join("old")).unwrap();
        fs::create_dir(&trail).unwrap();
        fs::write(trail.join("lock"), "").unwrap();
        assert_eq!(known(Trails, &state).unwrap(), [] as [PathBuf; 0], "another directory");
        remember(Trails, &state, &root.join("old")).unwrap();
        assert_eq!(known(Trails, &state).unwrap(), [root.join("old")]);
        assert_eq!(fs::read_dir(state.join(Trails.name())).unwrap().count(), 1);
    }

    #[test]
    fn states_of_agents_are_known_while_their_directory_is_the_same() {
        use Remembered::AgentStates;
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let (state, states) = (root.join("state"), root.join("data/cofferdam-agents"));
        fs::create_dir_all(states.join("claude/project")).unwrap();
        assert_eq!(remember(AgentStates, &state, &states).unwrap(), None);
        assert_eq!(known(AgentStates, &state).unwrap(), std::slice::from_ref(&states));
        assert_eq!(known(Trails, &state).unwrap(), [] as [PathBuf; 0]);
        fs::remove_dir_all(&states).unwrap();
        assert_eq!(known(AgentStates, &state).unwrap(), [] as [PathBuf; 0], "removed");
    }

    #[test]
    fn a_directory_of_cofferdams_own_is_taken_if_it_was_made_and_remembered() {
        use Remembered::Caches;
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        fs::create_dir(root.join("home")).unwrap();
        let state = root.join("home/.local/state/cofferdam");
        let take = |name: &str| take(Caches, &state, &root.join("disk"), name).map(|(_, path)| path);
        let why = |name: &str| take(name).unwrap_err().to_string();
        for name in ["caches", "cofferdam/packages"] {
            assert_eq!(take(name).unwrap(), root.join("disk").join(name), "made");
            assert_eq!(take(name).unwrap(), root.join("disk").join(name), "known");
        }
        // Made by something else; or in the place of one that was removed, with the same inode for all that is known.
        fs::create_dir(root.join("disk/planted")).unwrap();
        assert!(why("planted").contains("was not made by Cofferdam"));
        fs::remove_dir(root.join("disk/caches")).unwrap();
        fs::create_dir(root.join("disk/caches")).unwrap();
        assert!(why("caches").contains("was not made by Cofferdam"));
        // Links, in its place and on the way below the base; nothing is made behind them.
        std::os::unix::fs::symlink("planted", root.join("disk/link")).unwrap();
        for name in ["link", "link/packages"] {
            assert!(why(name).contains("a link leads elsewhere"), "{name}");
        }
        assert_eq!(fs::read_dir(root.join("disk/planted")).unwrap().count(), 0);
        // The base itself is the caller's, and a link like any other.
        std::os::unix::fs::symlink("disk", root.join("named")).unwrap();
        let named = super::take(Caches, &state, &root.join("named"), "cofferdam/packages").unwrap().1;
        assert_eq!(named, root.join("disk/cofferdam/packages"));
        // An entry of an earlier version.
        let (about, path) = (fs::metadata(root.join("disk/planted")).unwrap(), root.join("disk/planted"));
        std::os::unix::fs::symlink(&path, state.join("caches").join(older_entry(&about, &path))).unwrap();
        assert_eq!(take("planted").unwrap(), path);
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(why("planted").contains("was not made by Cofferdam"), "the entry was replaced");
        // Where nothing is remembered, nothing is left.
        let nowhere = super::take(Caches, &root.join("gone/.local/state/cofferdam"), &root.join("disk"), "new");
        assert!(nowhere.unwrap_err().to_string().contains("could not be remembered"));
        assert!(!root.join("disk/new").exists());
    }

    #[test]
    fn entries_that_another_user_could_write_are_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().unwrap();
        let trail = fs::canonicalize(root.path()).unwrap();
        let state = trail.join("state");
        fs::create_dir_all(state.join(Trails.name())).unwrap();
        fs::set_permissions(state.join(Trails.name()), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(known(Trails, &state).unwrap(), [] as [PathBuf; 0], "the control");
        fs::set_permissions(state.join(Trails.name()), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(known(Trails, &state).unwrap_err().to_string().contains("can be written"));
        assert!(remember(Trails, &state, &trail).is_err());
    }
}
