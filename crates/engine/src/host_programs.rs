//! Programs of the host that Cofferdam starts itself, outside of every sandbox: container engines and runtimes, bubblewrap,
//! nsjail, Nix. They are looked for along PATH, but not in every directory of it.
//!
//! A shell with an active virtual environment has a directory of a project on its PATH, and code in a sandbox that may write
//! the project could put a `crun` there. So only directories count into which programs are installed, by where they really
//! are: those of the system and of known package managers, and few of a home. The same holds for the file: a link such as
//! `~/bin/bwrap` counts if it, every link after it and the file itself are where programs are installed. Anything else is
//! named by the tool's own variable.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Where the system and package managers install programs.
const OF_THE_SYSTEM: [&str; 19] = [
    "/Applications",
    "/Library",
    "/bin",
    "/gnu/store",
    "/home/linuxbrew/.linuxbrew",
    "/nix/store",
    "/nix/var/nix/profiles",
    "/opt/homebrew",
    "/opt/local",
    "/opt/podman",
    "/opt/rancher-desktop",
    "/run/current-system",
    "/run/wrappers",
    "/sbin",
    "/snap",
    "/usr",
    "/var/guix/profiles",
    "/var/lib/snapd",
    "/var/usrlocal",
];

/// Directories below these in which sources lie.
const SOURCES: [&str; 3] = ["/usr/local/src", "/usr/src", "/var/usrlocal/src"];

/// Where programs of a user alone are installed, below the home.
const OF_A_HOME: [&str; 15] = [
    ".cargo/bin",
    ".docker/bin",
    ".guix-profile",
    ".linuxbrew",
    ".local/bin",
    ".local/pipx/venvs",
    ".local/share/mise/installs",
    ".local/share/pipx/venvs",
    ".local/share/uv/tools",
    ".local/state/nix",
    ".nix-profile",
    ".orbstack/bin",
    ".rd/bin",
    "bin",
    "google-cloud-sdk/bin",
];

/// Where users work on projects.
const WORKED_ON: [&str; 9] = ["/Users", "/home", "/media", "/mnt", "/root", "/srv", "/tmp", "/var/tmp", "/workspace"];

/// Where the system keeps links to programs, and no programs.
const ALTERNATIVES: &str = "/etc/alternatives";

/// Most links on the way to a file (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// The program of this name in the directories of PATH, and then in those of `also`, that hold installed programs.
pub fn installed(name: &str, also: &[&str]) -> Option<PathBuf> {
    let (path, home) = (std::env::var_os("PATH").unwrap_or_default(), std::env::var_os("HOME"));
    installed_along(&path, home.as_deref().map(Path::new), name, also)
}

/// The same by another PATH and home.
pub fn installed_along(path: &OsStr, home: Option<&Path>, name: &str, also: &[&str]) -> Option<PathBuf> {
    let places = Places::of(home);
    places
        .directories(path, also)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file() && places.lead(file).is_ok())
}

/// For a message that no program of this name was found: which one of PATH is not used because of where it lies. Empty if PATH
/// has none.
pub fn passed_over(name: &str) -> String {
    let (path, home) = (std::env::var_os("PATH").unwrap_or_default(), std::env::var_os("HOME"));
    passed_over_along(&path, home.as_deref().map(Path::new), name)
}

/// The same by another PATH and home.
pub fn passed_over_along(path: &OsStr, home: Option<&Path>, name: &str) -> String {
    let places = Places::of(home);
    let why = |directory: PathBuf| {
        let file = directory.join(name);
        let real = std::fs::canonicalize(&directory).ok().filter(|_| directory.is_absolute() && file.is_file())?;
        let place = if places.hold(&real) { places.lead(&real.join(name)).err()? } else { real };
        let text = |path: &Path| cofferdam_policy::text::escape(path.as_os_str().as_encoded_bytes());
        Some(format!("; {} is not used, since {} is not where programs are installed", text(&file), text(&place)))
    };
    std::env::split_paths(path).find_map(why).unwrap_or_default()
}

/// The PATH for such a program, which may look for others itself: those directories of this process's that count, and in which
/// no link leads to where a project may be worked on.
pub fn installed_path() -> OsString {
    let (path, home) = (std::env::var_os("PATH").unwrap_or_default(), std::env::var_os("HOME"));
    let places = Places::of(home.as_deref().map(Path::new));
    // A directory with a `:` in its name is none of a PATH.
    std::env::join_paths(places.directories(&path, &[]).filter(|directory| places.all_lead(directory)))
        .unwrap_or_default()
}

/// Whose programs are looked for, and from where.
struct Places {
    /// As the caller names it.
    home: Option<PathBuf>,
    /// The same, canonical.
    real_home: Option<PathBuf>,
    /// `None` where it is gone: then nothing is worked on there.
    cwd: Option<PathBuf>,
}

impl Places {
    fn of(home: Option<&Path>) -> Places {
        let home = home.filter(|home| home.is_absolute());
        let real_home = home.and_then(|home| std::fs::canonicalize(home).ok()).filter(|home| home != Path::new("/"));
        Places { home: home.map(Path::to_owned), real_home, cwd: std::env::current_dir().ok() }
    }

    /// The directories of a PATH that count, canonical.
    fn directories(&self, path: &OsStr, also: &[&str]) -> impl Iterator<Item = PathBuf> {
        let named: Vec<PathBuf> = std::env::split_paths(path).chain(also.iter().map(PathBuf::from)).collect();
        named
            .into_iter()
            .filter(|directory| directory.is_absolute())
            .filter_map(|directory| std::fs::canonicalize(directory).ok())
            .filter(|directory| self.hold(directory))
    }

    fn hold(&self, directory: &Path) -> bool {
        holds_installed(directory, self.real_home.as_deref(), self.cwd.as_deref())
    }

    /// Whether a path leads to where programs are installed, by links that lie there as well: code that can write a link on the way
    /// chooses the program. Else the first place that is none of these.
    fn lead(&self, file: &Path) -> Result<(), PathBuf> {
        self.pass(file, |place| self.hold(place))
    }

    /// Whether a path leads by places that `count` to one of them. One that ends in nothing leads to where that could be made.
    fn pass(&self, file: &Path, count: impl Fn(&Path) -> bool) -> Result<(), PathBuf> {
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        let mut left: Vec<OsString> = Vec::new();
        let add = |left: &mut Vec<OsString>, path: &Path| {
            let parts =
                path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
            left.extend(parts.map(|part| part.as_os_str().to_owned()));
        };
        add(&mut left, file);
        while let Some(part) = left.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            at.push(part);
            let Ok(to) = std::fs::read_link(&at) else { continue };
            links += 1;
            if links > MOST_LINKS || !(count(&at) || self.may_link(&at)) {
                return Err(at);
            }
            at.pop();
            if to.is_absolute() {
                at = PathBuf::from("/");
            }
            add(&mut left, &to);
        }
        at.pop();
        if count(&at) { Ok(()) } else { Err(at) }
    }

    /// Whether a link at this path is one of the system or on the way to the home.
    fn may_link(&self, link: &Path) -> bool {
        link.starts_with(ALTERNATIVES) || self.home.iter().any(|home| home.starts_with(link))
    }

    /// Whether no link in a directory that counts leads to where a project may be worked on. One that the administrator made may
    /// lead to any place of the system.
    fn all_lead(&self, directory: &Path) -> bool {
        let of_the_system = holds_installed(directory, None, None);
        let counts = |place: &Path| self.hold(place) || (of_the_system && !self.may_be_worked_on(place));
        let is_link = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        std::fs::read_dir(directory).is_ok_and(|entries| {
            entries.flatten().filter(is_link).all(|entry| self.pass(&entry.path(), counts).is_ok())
        })
    }

    /// Whether a project is or may be worked on at a place.
    fn may_be_worked_on(&self, place: &Path) -> bool {
        let around = self.cwd.iter().chain(&self.real_home).filter(|directory| *directory != Path::new("/"));
        WORKED_ON.iter().any(|directory| place.starts_with(directory))
            || around.into_iter().any(|at| place.starts_with(at))
    }
}

/// Whether programs are installed in a directory, which is canonical.
fn holds_installed(directory: &Path, home: Option<&Path>, cwd: Option<&Path>) -> bool {
    let below = |base: &Path, names: &[&str]| names.iter().any(|name| directory.starts_with(base.join(name)));
    let of_the_system = below(Path::new("/"), &OF_THE_SYSTEM) && !below(Path::new("/"), &SOURCES);
    // A project that is worked on may lie anywhere in a home, also there. The home itself is no project.
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
            ("/var/usrlocal/bin", "/", true),
            ("/snap/docker/current/bin", "/", true),
            ("/home/u/.local/share/uv/tools/one/bin", "/home/u", true),
            ("/home/u/.local/share/uv/other", "/home/u", false),
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

    /// A home with programs, and the program of that name which is found along its PATH.
    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Home {
            let home = Home(tempfile::tempdir().unwrap());
            for file in [".local/share/uv/tools/t/bin/wrap", ".local/bin/wrap", "dots/bin/wrap"] {
                home.file(file);
            }
            std::fs::create_dir(home.path("bin")).unwrap();
            home
        }

        fn path(&self, name: &str) -> PathBuf {
            std::fs::canonicalize(self.0.path()).unwrap().join(name)
        }

        fn file(&self, name: &str) {
            std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            std::fs::write(self.path(name), "").unwrap();
        }

        /// What is found while this is at `bin/wrap`, a link.
        fn with(&self, target: &str) -> Option<PathBuf> {
            std::fs::remove_file(self.path("bin/wrap")).ok();
            std::os::unix::fs::symlink(target, self.path("bin/wrap")).unwrap();
            installed_along(&self.along(), Some(&self.path("")), "wrap", &[])
        }

        fn along(&self) -> OsString {
            std::env::join_paths([self.path("bin"), self.path(".local/bin")]).unwrap()
        }
    }

    /// A link that a person keeps in `~/bin` may lead into a repository, whose code could replace the program.
    #[test]
    fn a_link_to_a_program_counts_by_where_it_leads() {
        let home = Home::new();
        let (own, other) = (home.path("bin/wrap"), home.path(".local/bin/wrap"));
        std::os::unix::fs::symlink("/usr/bin", home.path("dots/usr")).unwrap();
        std::os::unix::fs::symlink("../.local/bin/wrap", home.path("dots/back")).unwrap();
        std::os::unix::fs::symlink("../dots/bin/wrap", home.path("bin/again")).unwrap();
        for target in ["../.local/share/uv/tools/t/bin/wrap", "../.local/bin/wrap", "/usr/bin/env"] {
            assert_eq!(home.with(target), Some(own.clone()), "{target}");
        }
        let absolute = home.path("dots/bin/wrap");
        // The last ones lead to installed programs, by links that the repository has.
        for target in ["../dots/bin/wrap", absolute.to_str().unwrap(), "again", "../dots/back", "../dots/usr/env"] {
            assert_eq!(home.with(target), Some(other.clone()), "{target}");
        }
        let place = |name: &str| format!("since {} is not where", home.path(name).display());
        home.with("../dots/bin/wrap");
        let why = || passed_over_along(&home.along(), Some(&home.path("")), "wrap");
        assert!(why().contains(&place("dots/bin")) && why().contains("bin/wrap is not used"), "{}", why());
        home.with("../dots/back");
        assert!(why().contains(&place("dots/back")), "{}", why());
        let project = passed_over_along(home.path("dots/bin").as_os_str(), Some(&home.path("")), "wrap");
        assert!(project.contains(&place("dots/bin")), "{project}");
        assert_eq!(passed_over_along(&home.along(), Some(&home.path("")), "none"), "");
    }

    #[test]
    fn a_home_that_is_a_link_has_its_programs() {
        let home = Home::new();
        let by_link = home.path("link");
        std::os::unix::fs::symlink(home.path(""), &by_link).unwrap();
        let target = by_link.join(".local/bin/wrap");
        home.with(target.to_str().unwrap());
        let found = installed_along(by_link.join("bin").as_os_str(), Some(&by_link), "wrap", &[]);
        assert_eq!(found, Some(home.path("bin/wrap")));
    }

    /// What a program of the host looks for itself is any name.
    #[test]
    fn a_directory_with_a_link_to_a_project_is_none_of_the_path_of_host_programs() {
        let home = Home::new();
        let places = Places::of(Some(&home.path("")));
        for (target, counts) in [("../.local/bin/wrap", true), ("../dots/bin/wrap", false), ("../dots/no", false)] {
            home.with(target);
            assert_eq!(places.all_lead(&home.path("bin")), counts, "{target}");
        }
        assert!(places.all_lead(&std::fs::canonicalize("/usr/bin").unwrap()));
        assert!(places.may_be_worked_on(&home.path("dots")) && !places.may_be_worked_on(Path::new("/opt/vendor/bin")));
    }

    /// A program of the host that looks for others along PATH must not find one in a project.
    #[test]
    fn the_path_of_host_programs_has_no_directory_of_a_project() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join(".venv/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let path = format!("{}:/usr/bin:bin::/usr/bin/../bin:{}/no", bin.display(), dir.path().display());
        let kept: Vec<PathBuf> = Places::of(Some(dir.path())).directories(path.as_ref(), &[]).collect();
        let real = std::fs::canonicalize("/usr/bin").unwrap();
        assert_eq!(kept, [real.clone(), real]);
    }
}
