//! Which directories of the host may be the root file system of a skill: none that contains secrets of the host.
//!
//! A skill can read everything in the directory. The check compares paths and inodes on the host as it is now, so that links
//! and bind mounts do not get around it. Reads no file's content.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::credential_deny;

use crate::refusal::CliRefusal;

/// The places of home directories on most systems.
const HOMES: &[&str] = &["/home", "/root"];
/// Directories in which the kernel and the system's services expose the host.
const SYSTEM: &[&str] = &["/proc", "/sys", "/dev", "/run"];

/// Requires that a directory neither contains, nor lies in, what no skill may read. `kept` are Cofferdam's own directories,
/// each with a description.
///
/// # Errors
/// It does.
pub(super) fn require_no_secrets(image: &str, homes: &[String], kept: &[(&str, PathBuf)]) -> Result<(), CliRefusal> {
    let directory = WalkedDirectory::of(Path::new(image));
    let refused = |what: &str, path: &Path| {
        let path = path.display();
        Err(CliRefusal::new("policy", format!("the image {image} would show {what} {path} to the skill")).hint(
            "image = \"/path/to/rootfs\", a directory made for it, such as an unpacked image of a container; or leave \
             image out",
        ))
    };
    if directory.real == Path::new("/") || WalkedDirectory::of(Path::new("/")).is(&directory) {
        return refused("all of the host,", Path::new("/"));
    }
    let homes = || homes.iter().map(String::as_str);
    for home in homes().chain(HOMES.iter().copied()).filter(|home| *home != "/") {
        let home = Path::new(home);
        if directory.contains(home) {
            return refused("what is in the home directory", home);
        }
    }
    let credentials = homes()
        .flat_map(|home| credential_deny(home, &|_| Vec::new()))
        .map(|path| ("credentials:", PathBuf::from(path)));
    let system = SYSTEM.iter().map(|path| ("what the host's system keeps in", PathBuf::from(path)));
    let kept = kept.iter().map(|(what, path)| (*what, path.clone()));
    for (what, path) in credentials.chain(system).chain(kept) {
        if directory.contains(&path) || WalkedDirectory::of(&path).contains(Path::new(image)) {
            return refused(what, &path);
        }
    }
    Ok(())
}

/// A directory, by its path without links and by its inode.
struct WalkedDirectory {
    real: PathBuf,
    about: Option<Metadata>,
}

impl WalkedDirectory {
    fn of(path: &Path) -> WalkedDirectory {
        let real = real(path);
        let about = std::fs::metadata(&real).ok();
        WalkedDirectory { real, about }
    }

    fn is(&self, other: &WalkedDirectory) -> bool {
        let inode = |directory: &WalkedDirectory| directory.about.as_ref().map(|about| (about.dev(), about.ino()));
        self.real == other.real || inode(self).is_some_and(|mine| inode(other) == Some(mine))
    }

    /// Whether it is this path or a directory above it.
    fn contains(&self, path: &Path) -> bool {
        real(path).ancestors().any(|above| self.is(&WalkedDirectory::of(above)))
    }
}

/// A path without links, as far as it exists; the rest of it as it is written.
fn real(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let Ok(real) = above.canonicalize() {
            // Everything below the deepest existing directory does not exist.
            return path.strip_prefix(above).map_or_else(|_| real.clone(), |rest| real.join(rest));
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_directory_with_secrets_of_the_host_is_refused() {
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
        let refusal = |image: &str| require_no_secrets(image, &homes, &kept).err().map(|refusal| refusal.message);
        for image in ["srv", "srv/rootfs", "home/u/rootfs", "homes", "homes/v", "not-there"] {
            assert_eq!(refusal(&text(image)), None, "{image}");
        }
        assert_eq!(refusal("/usr"), None);
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
            assert!(refusal(image).is_some_and(|message| message.contains(what)), "{image}: {:?}", refusal(image));
        }
    }
}
