//! Programs of the host that Cofferdam starts itself, outside of every sandbox: container engines and runtimes, bubblewrap,
//! nsjail, Nix. They are looked for along PATH, but not in every directory of it.
//!
//! A shell with an active virtual environment has a directory of a project on its PATH, and code in a sandbox that may write
//! the project could put a `crun` there. So only directories count into which programs are installed, by where they really
//! are: those of the system and of known package managers, and few of a home. Anything else is named by the tool's own
//! variable.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Where the system and package managers install programs.
const OF_THE_SYSTEM: [&str; 10] = [
    "/bin",
    "/gnu/store",
    "/home/linuxbrew/.linuxbrew",
    "/nix/store",
    "/opt/homebrew",
    "/run/current-system",
    "/run/wrappers",
    "/sbin",
    "/snap/bin",
    "/usr",
];

/// Directories below these in which sources lie.
const SOURCES: [&str; 2] = ["/usr/local/src", "/usr/src"];

/// Where programs of a user alone are installed, below the home.
const OF_A_HOME: [&str; 5] = [".cargo/bin", ".linuxbrew", ".local/bin", ".local/state/nix", "bin"];

/// The program of this name in the directories of PATH, and then in those of `also`, that hold installed programs.
pub fn installed(name: &str, also: &[&str]) -> Option<PathBuf> {
    let (path, home) = (std::env::var_os("PATH").unwrap_or_default(), std::env::var_os("HOME"));
    installed_along(&path, home.as_deref().map(Path::new), name, also)
}

/// The same by another PATH and home.
pub fn installed_along(path: &OsStr, home: Option<&Path>, name: &str, also: &[&str]) -> Option<PathBuf> {
    directories(path, home, also).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// The PATH for such a program, which may look for others itself: those directories of this process's that count.
pub fn installed_path() -> OsString {
    let (path, home) = (std::env::var_os("PATH").unwrap_or_default(), std::env::var_os("HOME"));
    // A directory with a `:` in its name is none of a PATH.
    std::env::join_paths(directories(&path, home.as_deref().map(Path::new), &[])).unwrap_or_default()
}

/// The directories of a PATH that count, canonical.
fn directories(path: &OsStr, home: Option<&Path>, also: &[&str]) -> impl Iterator<Item = PathBuf> {
    let home = home.filter(|home| home.is_absolute()).and_then(|home| std::fs::canonicalize(home).ok());
    let home = home.filter(|home| home != Path::new("/"));
    let cwd = std::env::current_dir().ok(); // `None` where it is gone: then nothing is worked on there
    let named: Vec<PathBuf> = std::env::split_paths(path).chain(also.iter().map(PathBuf::from)).collect();
    named
        .into_iter()
        .filter(|directory| directory.is_absolute())
        .filter_map(|directory| std::fs::canonicalize(directory).ok())
        .filter(move |directory| holds_installed(directory, home.as_deref(), cwd.as_deref()))
}

/// Whether programs are installed in a directory, which is canonical.
fn holds_installed(directory: &Path, home: Option<&Path>, cwd: Option<&Path>) -> bool {
    let below = |base: &Path, names: &[&str]| names.iter().any(|name| directory.starts_with(base.join(name)));
    let of_the_system = below(Path::new("/"), &OF_THE_SYSTEM) && !below(Path::new("/"), &SOURCES);
    // A project that is worked on may lie anywhere in a home, also there.
    let worked_on =
        |home: &Path| cwd.is_some_and(|cwd| cwd != home && cwd.starts_with(home) && directory.starts_with(cwd));
    let of_a_home = home.is_some_and(|home| below(home, &OF_A_HOME) && !worked_on(home));
    of_the_system || of_a_home
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_count_where_they_are_installed_and_not_in_projects() {
        let home = Some(Path::new("/home/u"));
        for (directory, cwd, counts) in [
            ("/usr/bin", "/home/u/project", true),
            ("/usr/local/sbin", "/", true),
            ("/nix/store/abc-podman/bin", "/", true),
            ("/home/u/.local/bin", "/home/u", true),
            ("/home/u/bin", "/home/u/project", true),
            ("/home/u/bin", "/home/u/bin", false),
            ("/home/u/bin", "/home", true),
            ("/home/u/project/.venv/bin", "/home/u/project", false),
            ("/home/u/project/.venv/bin", "/home/u", false),
            ("/home/u/.venv/bin", "/home/u", false),
            ("/home/u/binary", "/", false),
            ("/home/other/bin", "/", false),
            ("/usr/local/src/project/bin", "/", false),
            ("/opt/project/bin", "/", false),
            ("/tmp", "/", false),
        ] {
            assert_eq!(
                holds_installed(Path::new(directory), home, Some(Path::new(cwd))),
                counts,
                "{directory} from {cwd}"
            );
        }
        assert!(holds_installed(Path::new("/usr/bin"), None, None) && !holds_installed(Path::new("/bin2"), None, None));
    }

    /// A program of the host that looks for others along PATH must not find one in a project.
    #[test]
    fn the_path_of_host_programs_has_no_directory_of_a_project() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join(".venv/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let path = format!("{}:/usr/bin:bin::/usr/bin/../bin:{}/no", bin.display(), dir.path().display());
        let kept: Vec<PathBuf> = directories(path.as_ref(), Some(dir.path()), &[]).collect();
        let real = std::fs::canonicalize("/usr/bin").unwrap();
        assert_eq!(kept, [real.clone(), real]);
    }
}
