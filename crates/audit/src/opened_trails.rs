//! The trails that this process has opened, and the state directory, in which they are remembered for later runs. The
//! engine queries them, and hides them from every sandbox.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cofferdam_policy::BaseDirectory;

use super::known_directories::Remembered;

/// Trails that this process has opened. No sandbox of this process shows one.
static TRAILS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Takes a trail's directory out of every sandbox that this process makes from now on, and that later ones of this user
/// make.
///
/// # Errors
/// It has no path that a policy could name, or the state directory cannot be trusted.
pub(crate) fn hide(directory: &Path) -> std::io::Result<Option<super::known_directories::Unremembered>> {
    let directory = fs::canonicalize(directory)?;
    if directory.to_str().is_none() {
        return Err(std::io::Error::other("its path is not UTF-8, so no sandbox could be kept out of it"));
    }
    let unremembered = match state_directory() {
        Ok(state) => crate::known_directories::remember(Remembered::Trails, &state, &directory)?,
        Err(why) => Some(why.to_string()),
    };
    let mut trails = TRAILS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !trails.contains(&directory) {
        trails.push(directory);
        COUNT.store(trails.len(), Ordering::SeqCst);
    }
    Ok(unremembered)
}

/// How many trails this process has opened: a plan of an earlier number does not hide them all.
pub fn count() -> usize {
    COUNT.load(Ordering::SeqCst)
}

/// The directories of those trails, canonical.
pub fn all() -> Vec<PathBuf> {
    TRAILS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

/// The state directory of this user.
///
/// # Errors
/// No variable says where it is.
pub fn state_directory() -> std::io::Result<PathBuf> {
    let base = BaseDirectory::State.of(std::env::var_os(BaseDirectory::State.variable()), std::env::var_os("HOME"));
    Ok(base.ok_or_else(|| std::io::Error::other("neither XDG_STATE_HOME nor HOME is set"))?.join("cofferdam"))
}

/// Records in the state directory what became of a trail while a run went on. Gives the file.
///
/// # Errors
/// There is no state directory, or it cannot be written.
pub(crate) fn note(line: &serde_json::Value) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    let directory = state_directory()?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let file = directory.join("trails-lost.jsonl");
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let mut open = fs::OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(&file)?;
    open.write_all(format!("{line}\n").as_bytes())?;
    open.sync_data()?;
    Ok(file)
}
