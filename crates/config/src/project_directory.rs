//! Whether a directory is one that a program may be given to write: a project, and not what many share.

use std::os::unix::fs::MetadataExt as _;

use cofferdam_policy::paths::is_within;

/// What is the system's, with everything in it.
const SYSTEM: [&str; 22] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/run/systemd",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/sbin",
    "/usr/share",
    "/var/lib/dpkg",
    "/var/log",
    "/var/spool",
];

/// Directories in which everybody's things lie.
const ABOVE_PROJECTS: [&str; 16] = [
    "/dev/shm",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/run",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/local/sbin",
    "/var",
    "/var/lib",
    "/var/tmp",
];

/// Whether much more lies in an absolute directory than one project: it is the whole tree, a home or above one, a directory of
/// the system, or one that everybody shares, such as `temporary`.
pub fn holds_more(directory: &str, homes: &[String], temporary: Option<&str>) -> bool {
    let temporary = temporary.map(|path| path.trim_end_matches('/'));
    directory == "/"
        || homes.iter().any(|home| is_within(home, directory))
        || SYSTEM.iter().any(|system| is_within(directory, system))
        || ABOVE_PROJECTS.contains(&directory)
        || temporary == Some(directory)
}

/// The home, of these or of any user of this machine, that a directory is, by any name, or that lies in it.
pub fn home_in(directory: &str, homes: &[String]) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of_users = users.lines().filter_map(|line| line.split(':').nth(5)).filter(|home| home.len() > 1);
    let identity = |path: &str| std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()));
    let here = identity(directory);
    let mut homes = homes.iter().map(String::as_str).chain(of_users);
    homes.find(|home| is_within(home, directory) || here.is_some() && identity(home) == here).map(str::to_owned)
}
