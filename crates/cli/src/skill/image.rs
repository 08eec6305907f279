//! Which directories of the host may be a skill's root: those made for it, and none in which the host keeps its secrets.
//!
//! Whatever is in the directory can be read by the skill. Looks at the host as it is now, by place and by inode, so that
//! a link or a mount elsewhere is no way round. Reads no file's content.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::credential_deny;

use crate::report::Refusal;

/// Where homes are, on most systems.
const HOMES: &[&str] = &["/home", "/root"];
/// What the kernel and the system's services show of the host.
const OF_THE_SYSTEM: &[&str] = &["/proc", "/sys", "/dev", "/run"];

/// Refuses a directory that holds, or is held by, what no skill may read: `kept` are Cofferdam's own directories, as words
/// and path.
pub(super) fn check(image: &str, homes: &[String], kept: &[(&str, PathBuf)]) -> Result<(), Refusal> {
    let place = Place::of(Path::new(image));
    let refused = |what: &str, path: &Path| {
        let path = path.display();
        Err(Refusal::new("policy", format!("the image {image} would show {what} {path} to the skill")).hint(
            "image = \"/path/to/rootfs\", a directory made for it, such as an unpacked image of a container; or leave \
             image out",
        ))
    };
    if place.real == Path::new("/") || Place::of(Path::new("/")).is(&place) {
        return refused("all of the host,", Path::new("/"));
    }
    let homes = || homes.iter().map(String::as_str);
    for home in homes().chain(HOMES.iter().copied()).filter(|home| *home != "/") {
        let home = Path::new(home);
        if place.has(home) {
            return refused("what is in the home directory", home);
        }
    }
    let credentials = homes()
        .flat_map(|home| credential_deny(home, &|_| Vec::new()))
        .map(|path| ("credentials:", PathBuf::from(path)));
    let system = OF_THE_SYSTEM.iter().map(|path| ("what the host's system keeps in", PathBuf::from(path)));
    let kept = kept.iter().map(|(what, path)| (*what, path.clone()));
    for (what, path) in credentials.chain(system).chain(kept) {
        if place.has(&path) || Place::of(&path).has(Path::new(image)) {
            return refused(what, &path);
        }
    }
    Ok(())
}

/// A directory, by its name without links and by what is there.
struct Place {
    real: PathBuf,
    about: Option<Metadata>,
}

impl Place {
    fn of(path: &Path) -> Place {
        let real = real(path);
        let about = std::fs::metadata(&real).ok();
        Place { real, about }
    }

    fn is(&self, other: &Place) -> bool {
        let inode = |place: &Place| place.about.as_ref().map(|about| (about.dev(), about.ino()));
        self.real == other.real || inode(self).is_some_and(|mine| inode(other) == Some(mine))
    }

    /// Whether it is a path, or one above it.
    fn has(&self, path: &Path) -> bool {
        real(path).ancestors().any(|above| self.is(&Place::of(above)))
    }
}

/// A path without links, as far as it is there; the rest of it as it stands.
fn real(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let Ok(real) = above.canonicalize() {
            // What is below what is there is not there.
            return path.strip_prefix(above).map_or_else(|_| real.clone(), |rest| real.join(rest));
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_made_for_it_passes_and_what_holds_secrets_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let text = |name: &str| path(name).display().to_string();
        for name in ["home/u/.config/gcloud", "home/u/rootfs", "srv/rootfs", "state/skills/content", "homes/v"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        for (link, to) in [("all", "/"), ("to-home", "home"), ("srv/to-skills", "../state/skills")] {
            std::os::unix::fs::symlink(to, path(link)).unwrap();
        }
        let homes = [text("home/u")];
        let kept = [("the registry", path("state/skills")), ("the audit trail", path("state/audit/not-made-yet"))];
        let told = |image: &str| check(image, &homes, &kept).err().map(|refusal| refusal.message);
        for image in ["srv", "srv/rootfs", "home/u/rootfs", "homes", "homes/v", "not-there"] {
            assert_eq!(told(&text(image)), None, "{image}");
        }
        assert_eq!(told("/usr"), None);
        for (image, what) in [
            ("/", "all of the host"),
            ("/proc/self/root", "all of the host"),
            (&text("all"), "all of the host"),
            ("/etc", "credentials: /etc/"),
            ("/etc/ssh", "credentials: /etc/ssh"),
            ("/proc", "/proc"),
            ("/proc/self", "/proc"),
            ("/root", "home directory /root"),
            (&text("home"), "home directory"),
            (&text("home/u"), "home directory"),
            (&text("to-home"), "home directory"),
            (&text("to-home/u"), "home directory"),
            (&text("home/u/.config"), "credentials"),
            (&text("home/u/.config/gcloud"), "credentials"),
            (&text("home/u/.ssh/rootfs"), "credentials"),
            (&text("state"), "the registry"),
            (&text("state/skills/content"), "the registry"),
            (&text("srv/to-skills"), "the registry"),
            (&text("state/audit"), "the audit trail"),
            (dir.path().to_str().unwrap(), "home directory"),
        ] {
            assert!(told(image).is_some_and(|told| told.contains(what)), "{image}: {:?}", told(image));
        }
    }
}
