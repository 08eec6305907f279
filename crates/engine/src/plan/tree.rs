//! The files of a volume, as far as planners read them: the host's own, or those of a test.

use std::path::Path;

use crate::plan::aliases::Aliases;

/// What lies in a volume.
pub(crate) trait VolumeTree {
    /// The caller's home directory, canonical; `None` where nothing says which it is.
    fn home(&self) -> Option<String>;
    /// The home under each name that the host's mounts give it.
    fn homes(&self) -> Vec<String> {
        self.home().into_iter().collect()
    }
    /// A variable of the caller's that is an absolute path, or several with colons between them.
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
    /// Where a path ends up when every link is followed; `None` where nothing is there, or that is not known.
    fn canonical(&self, _path: &str) -> Option<String> {
        None
    }
    /// What a symbolic link says; `None` of anything else, or where that is not known.
    fn link(&self, _path: &str) -> Option<String> {
        None
    }
    /// The names in this directory.
    fn names(&self, directory: &str) -> Vec<String>;
    /// Whether something has this name.
    fn exists(&self, path: &str) -> bool;
    /// The content of a regular file.
    fn read(&self, file: &str, most: u64) -> Option<Vec<u8>>;
}

/// The host's own files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk;

impl VolumeTree for Disk {
    fn home(&self) -> Option<String> {
        let home = std::env::var_os("HOME").filter(|home| Path::new(home).is_absolute())?;
        std::fs::canonicalize(home).ok()?.into_os_string().into_string().ok()
    }

    fn homes(&self) -> Vec<String> {
        self.home().map_or_else(Vec::new, |home| Aliases::here().with_itself(home))
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| value.starts_with('/'))
    }

    fn canonical(&self, path: &str) -> Option<String> {
        std::fs::canonicalize(path).ok()?.into_os_string().into_string().ok()
    }

    fn link(&self, path: &str) -> Option<String> {
        std::fs::read_link(path).ok()?.into_os_string().into_string().ok()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn exists(&self, path: &str) -> bool {
        std::fs::symlink_metadata(path).is_ok()
    }

    fn read(&self, file: &str, most: u64) -> Option<Vec<u8>> {
        use std::io::Read as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        // Without waiting for the writer of a FIFO.
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        let file = std::fs::File::options().read(true).custom_flags(flags.bits().cast_signed()).open(file).ok()?;
        let about = file.metadata().ok()?;
        if !about.is_file() || about.len() > most {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or(0));
        file.take(most).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}
