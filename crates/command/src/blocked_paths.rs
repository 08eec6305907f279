//! Paths that are refused whatever a command was granted: the system's directories, and the data directory's own
//! records. Owns the lists, and decides whether a path is on them. Reads the file system, changes nothing.
//!
//! These are not the protected and credential paths of a policy, which are names inside writable directories.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Never written: the system's programs, libraries and settings, and file systems of the kernel.
pub(crate) const SYSTEM: [&str; 20] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/libx32",
    "/usr/sbin",
    "/Library",
    "/System",
];

/// Names in the data directory that are neither read nor written: its owner's records and configuration.
pub(crate) const OF_DATA: [&str; 2] = ["data", "config.toml"];

/// Most files whose other links are searched; with more, a file with several links is refused.
const LINKS: usize = 10_000;

/// Whether a tool must refuse to write, create, rename or remove this path. A relative path is refused, and one that
/// does not resolve.
pub fn is_write_blocked(path: &Path, data_dir: &Path) -> bool {
    let (Some(path), Some(data)) = (resolve(path), resolve(data_dir)) else { return true };
    let held = of_data(&data);
    system().iter().chain(&held).any(|dir| below(&path, dir)) || is_link_to(&path, &held)
}

/// The system's directories, and what they are links to (`/bin` is often in `/usr`, `/etc` in `/private`). Looked up
/// once: a system that moves its own directories does so at boot.
pub(crate) fn system() -> &'static [PathBuf] {
    static SEEN: OnceLock<Vec<PathBuf>> = OnceLock::new();
    SEEN.get_or_init(|| {
        let named = SYSTEM.iter().map(PathBuf::from);
        let mut all: Vec<PathBuf> =
            SYSTEM.iter().filter_map(|dir| std::fs::canonicalize(dir).ok()).chain(named).collect();
        all.sort();
        all.dedup();
        all
    })
}

/// Whether a tool must refuse to read this path: the data directory's own records, and the configuration file, wherever
/// that lies. A relative path is refused, and one that does not resolve.
pub fn is_read_blocked(path: &Path, data_dir: &Path, config_path: Option<&Path>) -> bool {
    let (Some(path), Some(data)) = (resolve(path), resolve(data_dir)) else { return true };
    let mut held = of_data(&data);
    match config_path.map(resolve) {
        None => {}
        Some(Some(config)) => held.push(config),
        // Which file it is cannot be known then.
        Some(None) => return true,
    }
    held.iter().any(|own| below(&path, own)) || is_link_to(&path, &held)
}

/// The data directory's own records: their paths, and where these lead.
pub(crate) fn of_data(data: &Path) -> Vec<PathBuf> {
    let named = OF_DATA.map(|name| data.join(name));
    let led = named.iter().filter_map(|path| std::fs::canonicalize(path).ok());
    let mut all: Vec<PathBuf> = led.collect();
    all.extend(named);
    all.sort();
    all.dedup();
    all
}

/// Whether a path is `base` or below it. Case is ignored: on a case-sensitive file system refusing both does no harm.
pub(crate) fn below(path: &Path, base: &Path) -> bool {
    let mut parts = path.components();
    base.components().all(|wanted| {
        let same = |part: Component<'_>| part.as_os_str().eq_ignore_ascii_case(wanted.as_os_str());
        parts.next().is_some_and(same)
    })
}

/// The path with every link resolved; for a name that does not exist yet, where it would be created. None for a
/// relative path, and if it cannot be resolved.
pub(crate) fn resolve(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&0) {
        return None;
    }
    let mut there = path.to_owned();
    let mut missing: Vec<std::ffi::OsString> = Vec::new();
    loop {
        match std::fs::canonicalize(&there) {
            Ok(mut found) => {
                // A file has no entries.
                if !missing.is_empty() && !found.is_dir() {
                    return None;
                }
                found.extend(missing.iter().rev());
                return Some(found);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
        // A link that leads nowhere may lead somewhere later.
        match std::fs::symlink_metadata(&there) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return None,
        }
        let Some(Component::Normal(name)) = there.components().next_back() else { return None };
        // `components` skips `.` and `//`, never `..`.
        missing.push(name.to_owned());
        if !there.pop() {
            return None;
        }
    }
}

/// Whether a path is another name of one of these files, or of one below these directories.
#[cfg(unix)]
fn is_link_to(path: &Path, held: &[PathBuf]) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(data) = std::fs::metadata(path) else { return false };
    if data.is_dir() || data.nlink() < 2 {
        return false;
    }
    let mut open: Vec<PathBuf> = held.to_vec();
    let mut seen = 0;
    while let Some(at) = open.pop() {
        seen += 1;
        if seen > LINKS {
            return true;
        }
        let Ok(found) = std::fs::symlink_metadata(&at) else { continue };
        if (found.dev(), found.ino()) == (data.dev(), data.ino()) {
            return true;
        }
        if found.is_dir() {
            match std::fs::read_dir(&at) {
                Ok(entries) => open.extend(entries.filter_map(|entry| Some(entry.ok()?.path()))),
                Err(_) => return true,
            }
        }
    }
    false
}

#[cfg(not(unix))]
fn is_link_to(_: &Path, _: &[PathBuf]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("data")).unwrap();
        std::fs::create_dir_all(dir.path().join("workspace")).unwrap();
        std::fs::write(dir.path().join("data/memory.db"), "x").unwrap();
        std::fs::write(dir.path().join("config.toml"), "x").unwrap();
        dir
    }

    #[test]
    fn the_systems_directories_are_never_written() {
        let dir = data();
        let blocked = |path: &str| is_write_blocked(Path::new(path), dir.path());
        for path in SYSTEM.iter().filter(|dir| Path::new(dir).is_dir()) {
            assert!(blocked(path) && blocked(&format!("{path}/x")), "{path}");
        }
        for path in
            ["/etc/../etc/passwd", "/ETC/passwd", "/usr//bin/./x", "/proc/self/root/etc/x", "/dev/sda", "/lib/x"]
        {
            assert!(blocked(path), "{path}");
        }
        for path in ["/tmp/x", "/var/tmp/x", "/etcetera", "/usr/local/x", "/usr/share/x", "/opt/x/y/z"] {
            assert!(!blocked(path), "{path}");
        }
    }

    #[test]
    fn the_data_directorys_own_records_are_neither_read_nor_written() {
        let dir = data();
        for name in ["data", "data/memory.db", "data/new", "config.toml", "DATA/x", "workspace/../config.toml"] {
            let path = dir.path().join(name);
            assert!(is_write_blocked(&path, dir.path()) && is_read_blocked(&path, dir.path(), None), "{name}");
        }
        for name in ["", "workspace/x", "database", "config.toml.example", "workspace/data/x"] {
            let path = dir.path().join(name);
            assert!(!is_write_blocked(&path, dir.path()) && !is_read_blocked(&path, dir.path(), None), "{name}");
        }
        // Also before they exist.
        let empty = tempfile::tempdir().unwrap();
        assert!(is_write_blocked(&empty.path().join("config.toml"), empty.path()));
    }

    #[test]
    fn the_configuration_is_not_read_wherever_it_lies() {
        let (dir, other) = (data(), tempfile::tempdir().unwrap());
        let config = other.path().join("settings.toml");
        std::fs::write(&config, "token").unwrap();
        assert!(is_read_blocked(&config, dir.path(), Some(&config)));
        assert!(!is_read_blocked(&config, dir.path(), None));
        assert!(!is_read_blocked(&other.path().join("else.toml"), dir.path(), Some(&config)));
        assert!(
            is_read_blocked(Path::new("/tmp/x"), dir.path(), Some(Path::new("settings.toml"))),
            "nobody knows which"
        );
    }

    #[test]
    fn relative_and_unresolvable_paths_are_refused() {
        let dir = data();
        let dangling = dir.path().join("workspace/dangling");
        std::os::unix::fs::symlink("/nowhere/at/all", &dangling).unwrap();
        let looped = dir.path().join("workspace/loop");
        std::os::unix::fs::symlink(&looped, &looped).unwrap();
        let file = dir.path().join("workspace/file");
        std::fs::write(&file, "").unwrap();
        let odd = ["x", "", "./x", "/nowhere/../etc/x"].map(PathBuf::from);
        let more = [dangling.clone(), dangling.join("x"), looped, file.join("x")];
        for path in odd.iter().chain(&more) {
            assert!(
                is_write_blocked(path, dir.path()) && is_read_blocked(path, dir.path(), None),
                "{}",
                path.display()
            );
        }
        let fine = dir.path().join("workspace/new/deep");
        assert!(!is_write_blocked(&fine, dir.path()));
        assert!(is_write_blocked(&fine, Path::new("relative")), "without a data directory nothing can be told");
    }

    #[test]
    fn links_are_resolved() {
        let dir = data();
        let at = |name: &str| dir.path().join("workspace").join(name);
        std::os::unix::fs::symlink("/etc", at("soft")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("data"), at("own")).unwrap();
        std::fs::hard_link(dir.path().join("config.toml"), at("hard")).unwrap();
        std::fs::hard_link(dir.path().join("data/memory.db"), at("deep")).unwrap();
        std::fs::write(at("one"), "").unwrap();
        std::fs::hard_link(at("one"), at("two")).unwrap();
        assert!(is_write_blocked(&at("soft/x"), dir.path()));
        for name in ["own/memory.db", "hard", "deep"] {
            assert!(is_write_blocked(&at(name), dir.path()) && is_read_blocked(&at(name), dir.path(), None), "{name}");
        }
        assert!(!is_write_blocked(&at("two"), dir.path()) && !is_read_blocked(&at("two"), dir.path(), None));
    }
}
