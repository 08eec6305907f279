//! The cache of compiled profiles on disk, keyed by everything that a result depends on.
//!
//! ```text
//! $XDG_CACHE_HOME/cofferdam/policies/SHA256-OF-THE-REQUEST   MAC of the rest; files read, files missing, the result
//! ```
//!
//! An entry is valid as long as all files that were read are unchanged, and all files that were not found still do not exist. Files
//! are compared by stat(2), or by SHA-256 if that is not sufficient (the file is as young as the entry, or was touched since). Only
//! entries with a MAC of the user's own key are used (`seal`), since the policy in an entry decides what a sandbox may do. The
//! cache causes no errors: an entry that cannot be read, verified or parsed counts as missing, and is replaced.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cofferdam_policy::BaseDirectory;
use rustix::fs::{AtFlags, unlinkat};
use serde::{Deserialize, Serialize};

use crate::identity::{sha256, sha256_of};
use crate::private;
use crate::protocol::{Evaluated, FileStamp};
use crate::seal::{self, SealKey};

/// The version of the entry format.
const VERSION: u32 = 2;

/// Most bytes of an entry.
const MAX_ENTRY: u64 = 64 << 20;

/// Most bytes of a file that is hashed. No profile has more.
const MAX_FILE: u64 = 16 << 20;

/// Most entries. The oldest are removed first.
const MAX_ENTRIES: usize = 512;

/// The coarsest resolution of file timestamps, nanoseconds.
const GRANULARITY_NS: i64 = 2_000_000_000;

/// A cache directory. Nothing is opened or created before it is used.
#[derive(Debug, Clone)]
pub struct EvaluationCache {
    directory: PathBuf,
    /// The directory of the key. Without a key the cache is not used.
    keys: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CacheEntry {
    version: u32,
    question: String,
    /// When the evaluation began, nanoseconds since 1970.
    begun_ns: i64,
    answer: Evaluated,
}

/// The present time, nanoseconds since 1970; to be taken before an evaluation begins.
pub fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl EvaluationCache {
    /// The cache in this directory, with this user's key.
    pub fn at(directory: impl Into<PathBuf>) -> EvaluationCache {
        EvaluationCache { directory: directory.into(), keys: seal::default_directory() }
    }

    /// The cache with its key in another directory.
    pub fn with_keys(directory: impl Into<PathBuf>, keys: impl Into<PathBuf>) -> EvaluationCache {
        EvaluationCache { directory: directory.into(), keys: Some(keys.into()) }
    }

    fn key(&self, make: bool) -> Option<SealKey> {
        SealKey::of(self.keys.as_deref()?, make)
    }

    /// The default directory: below `$XDG_CACHE_HOME` if that is absolute, else below `~/.cache`.
    pub fn default_directory(xdg_cache_home: Option<&str>, home: Option<&Path>) -> Option<PathBuf> {
        BaseDirectory::Cache.of(xdg_cache_home, home).map(|base| base.join("cofferdam/policies"))
    }

    /// The result of this request, if nothing that it depends on has changed.
    pub fn look_up(&self, question: &str) -> Option<Evaluated> {
        let directory = private::open(&self.directory).ok()?;
        own(&directory)?;
        let name = sha256(question.as_bytes());
        let file = private::open_file(&directory, &name).ok()?;
        own(&file)?;
        let mut bytes = Vec::new();
        (&file).take(MAX_ENTRY).read_to_end(&mut bytes).ok()?;
        let key = self.key(false)?;
        let line = bytes.iter().position(|&byte| byte == b'\n')?;
        if !key.suits(&bytes[line + 1..], &bytes[..line]) {
            return None;
        }
        let mut entry: CacheEntry = serde_json::from_slice(&bytes[line + 1..]).ok()?;
        if entry.version != VERSION || entry.question != question {
            return None;
        }
        if entry.answer.absent.iter().any(|path| std::fs::metadata(path).is_ok_and(|data| !data.is_dir())) {
            return None;
        }
        let mut refreshed = false;
        let looked_ns = now_ns();
        for seen in &mut entry.answer.files {
            let file = open(&seen.path)?;
            let identity = FileStamp::of(&file.metadata().ok()?);
            let young = seen.identity.ctime_ns >= entry.begun_ns.saturating_sub(GRANULARITY_NS);
            if identity == seen.identity && !young {
                continue;
            }
            if identity.size != seen.identity.size || sha256_of(&file, MAX_FILE).ok()?? != seen.sha256 {
                return None;
            }
            seen.identity = identity;
            refreshed = true;
        }
        if refreshed {
            // With a newer time of the entry they need not be hashed again, once they are old enough.
            entry.begun_ns = looked_ns;
            self.write(&directory, &name, &entry, &key);
        }
        Some(entry.answer)
    }

    /// Stores a result. `begun_ns` is from before the first file was read.
    pub fn keep(&self, question: &str, answer: &Evaluated, begun_ns: i64) {
        let Some(key) = self.key(true) else { return };
        let Ok(directory) = private::open_or_make(&self.directory) else { return };
        if own(&directory).is_none() {
            return;
        }
        let entry = CacheEntry { version: VERSION, question: question.to_owned(), begun_ns, answer: answer.clone() };
        self.write(&directory, &sha256(question.as_bytes()), &entry, &key);
        self.prune(&directory);
    }

    fn write(&self, directory: &OwnedFd, name: &str, entry: &CacheEntry, key: &SealKey) {
        // A failure to write the cache only costs time.
        // An entry that is too large to be read again would only use disk space.
        if let Ok(content) = serde_json::to_vec(entry)
            && content.len() as u64 + 65 <= MAX_ENTRY
        {
            let bytes = [key.code(&content).as_bytes(), b"\n", &content].concat();
            private::replace(directory, name, &bytes, false).ok();
        }
    }

    fn prune(&self, directory: &OwnedFd) {
        let Ok(mut names) = private::names(directory) else { return };
        // If the directory is a link, it may contain files that do not belong to the cache.
        names.retain(|name| is_own(name));
        if names.len() <= MAX_ENTRIES {
            return;
        }
        let mut aged: Vec<(SystemTime, String)> = names
            .into_iter()
            .filter_map(|name| {
                Some((private::open_file(directory, &name).ok()?.metadata().ok()?.modified().ok()?, name))
            })
            .collect();
        aged.sort_unstable();
        for (_, name) in aged.iter().take(aged.len().saturating_sub(MAX_ENTRIES / 2)) {
            // Another process may have removed it already, and the next stored entry prunes again.
            unlinkat(directory, name, AtFlags::empty()).ok();
        }
    }
}

/// Whether a file of this name is an entry, or the temporary file of one.
fn is_own(name: &str) -> bool {
    name.starts_with(private::TEMPORARY) || name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Opens an entry that only this user could have written.
fn own(fd: impl std::os::fd::AsFd) -> Option<()> {
    let stat = rustix::fs::fstat(fd).ok()?;
    (stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0).then_some(())
}

/// Opens a file that a result depends on. Opening a FIFO does not block.
fn open(path: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}
