//! Where a path below a home leads, by the links that a person made.
//!
//! ```text
//! HOME/bin                  a link here is the person's: followed
//!   └▶ HOME/dots/bin        lies in a repository, which a sandbox may have written: a link from here on is not followed
//! ```
//!
//! Links of the Nix and Guix stores are followed as well: nothing changes what is in them. Reads links and nothing else.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Directories in which nothing is changed once it is there.
const STORES: &[&str] = &["/nix/store", "/gnu/store"];

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// Where a path really is, if no link leads there but those in a home itself, or in `directory` of it, which is relative and may
/// be empty. Elsewhere a sandbox may have made the link, and would choose what of the home is shown.
///
/// # Errors
/// The link that is not followed, or the path that is not there.
pub fn led_by_a_home(path: &Path, homes: &[String], directory: &str) -> Result<PathBuf, PathBuf> {
    let walks = homes.iter().filter_map(|home| {
        let below = path.strip_prefix(home).ok()?;
        let real = std::fs::canonicalize(home).ok()?;
        let own = [real.clone(), real.join(directory)];
        Some(Walk { homes, own: &own, links: 0 }.from(real.clone(), below))
    });
    let mut refused = None;
    for walked in walks {
        match walked {
            Ok(real) => return Ok(real),
            Err(link) => refused = Some(link),
        }
    }
    match refused {
        Some(link) => Err(link),
        None => Walk { homes, own: &[], links: 0 }.from(PathBuf::from("/"), path),
    }
}

/// A walk along a path.
struct Walk<'w> {
    homes: &'w [String],
    /// The directories whose links are the person's.
    own: &'w [PathBuf],
    /// How many links were followed.
    links: usize,
}

impl Walk<'_> {
    /// Walks on from a directory that no link leads to.
    fn from(mut self, mut at: PathBuf, path: &Path) -> Result<PathBuf, PathBuf> {
        let mut left: VecDeque<OsString> = parts(path);
        while let Some(part) = left.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let here = at.join(&part);
            let about = here.symlink_metadata().map_err(|_| here.clone())?;
            if !about.is_symlink() {
                at = here;
                continue;
            }
            let trusted = self.own.contains(&at) || STORES.iter().any(|store| at.starts_with(store));
            if !trusted || self.links == MOST_LINKS {
                return Err(here);
            }
            self.links += 1;
            let target = std::fs::read_link(&here).map_err(|_| here.clone())?;
            let mut next = parts(&target);
            if target.is_absolute() {
                // A home may have a name with links, which the person's variable says.
                let home = self
                    .homes
                    .iter()
                    .find_map(|home| Some((std::fs::canonicalize(home).ok()?, target.strip_prefix(home).ok()?)));
                (at, next) = home.map_or_else(|| (PathBuf::from("/"), next), |(real, below)| (real, parts(below)));
            }
            next.append(&mut left);
            left = next;
        }
        Ok(at)
    }
}

/// The parts of a path, without its root.
fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_of_the_home_are_followed_and_no_other_behind_them() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let home = root.join("home");
        for directory in [".agent", ".private", "dots/bin", "dots/deep", "real"] {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        symlink("home", root.join("named")).unwrap();
        for (target, name) in [
            ("dots/bin", "bin"),
            ("dots/linked", "linked"),
            ("../.private", "dots/linked"),
            ("../dots/bin", ".agent/one"),
            ("../bin", ".agent/two"),
            ("../dots/linked", ".agent/other"),
            ("../../.private", "dots/deep/link"),
            ("dots/../real", "up"),
            ("dots/linked/../real", "up-a-link"),
            ("bin", "two"),
            ("loop", "loop"),
        ] {
            symlink(target, home.join(name)).unwrap();
        }
        symlink(root.join("named/dots/bin"), home.join("absolute")).unwrap();
        // What HOME says is the person's word, also where it is a link.
        for homes in [vec![home.to_str().unwrap().to_owned()], vec![root.join("named").to_str().unwrap().to_owned()]] {
            let led = |path: &str, directory: &str| led_by_a_home(&Path::new(&homes[0]).join(path), &homes, directory);
            let ends = |path: &str, directory: &str, end: &str| {
                assert_eq!(led(path, directory), Ok(home.join(end)), "{path} of {homes:?}");
            };
            ends("bin", "", "dots/bin");
            ends("bin/", "", "dots/bin");
            ends("up", "", "real");
            ends("dots/bin", "", "dots/bin");
            ends("dots/../real", "", "real");
            ends(".agent/one", ".agent", "dots/bin");
            ends(".agent/two", ".agent", "dots/bin");
            ends("two", "", "dots/bin");
            assert_eq!(led("absolute", "").is_ok(), homes[0].ends_with("named"), "of {homes:?}");
            for (path, directory, link) in [
                ("linked", "", "dots/linked"),
                ("up-a-link", "", "dots/linked"),
                (".agent/one", "", ".agent/one"),
                (".agent/other", ".agent", "dots/linked"),
                ("dots/deep/link", ".agent", "dots/deep/link"),
                ("loop", "", "loop"),
                ("missing", "", "missing"),
            ] {
                assert_eq!(led(path, directory), Err(home.join(link)), "{path} of {homes:?}");
            }
        }
        let homes = [home.to_str().unwrap().to_owned()];
        assert_eq!(led_by_a_home(&root.join("named"), &homes, ""), Err(root.join("named")));
        assert_eq!(led_by_a_home(&root, &homes, ""), Ok(root));
    }
}
