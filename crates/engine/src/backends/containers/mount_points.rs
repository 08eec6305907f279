//! Where mounts come to lie in a root whose author is not trusted: a symbolic link in it can lead a mount into another one, and a
//! runtime makes there, on the host, what the mount point lacks.
//!
//! A link that leads elsewhere in the root is resolved here, and the runtime is given the path behind it. One that leads into
//! `/dev`, `/proc`, `/sys` or another mount is refused. Pure but for the links that are asked for.

use std::io;
use std::path::Path;

use cofferdam_confine::init_plan::PathRule;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::spec::Mounted;
use crate::failure::{FailedStep, Failure};
use crate::plan::mount_table::{below, join};
use cofferdam_policy::text::escape;

/// What the symbolic link at an absolute path without links says; `None` where there is none.
pub(crate) type LinkReader<'a> = dyn Fn(&str) -> io::Result<Option<String>> + 'a;

/// What every runtime mounts itself. The mounts of a spec that lie below are in memory of the runtime's.
const OWN: [&str; 3] = ["/dev", "/proc", "/sys"];
/// No path goes through more links than this (`ELOOP`, path_resolution(7)).
const MOST_LINKS: usize = 40;
/// What helps where a link leads to nothing.
pub(crate) const NO_PLACE: &str = "use an image that has a directory there, and no link that leads to nothing in it";
const HINT: &str = "mount it elsewhere, or use an image without that link";

/// Targets that lie behind links, with the path that each leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Moved(Vec<(String, String)>);

impl Moved {
    /// Where a path of the sandbox lies.
    pub(crate) fn path(&self, path: &str) -> String {
        let nearest = self.0.iter().filter_map(|(from, to)| Some((from.len(), to, below(path, from)?)));
        nearest.max_by_key(|(length, ..)| *length).map_or_else(|| path.to_owned(), |(_, to, rest)| join(to, rest))
    }

    /// The same mounts where they lie.
    pub(crate) fn mounts(&self, mounts: &[Mounted]) -> Vec<Mounted> {
        let mut mounts = mounts.to_vec();
        for mount in &mut mounts {
            let (Mounted::Bind { target, .. } | Mounted::Tmpfs { target, .. }) = mount;
            *target = self.path(target);
        }
        mounts
    }

    /// The same rules where they hold.
    pub(crate) fn rules(&self, rules: Vec<PathRule>) -> Vec<PathRule> {
        rules.into_iter().map(|rule| PathRule { path: self.path(&rule.path), ..rule }).collect()
    }

    /// Whether nothing is moved.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Where these mounts come to lie in a root with these links.
///
/// # Errors
/// A link leads into another mount, or this cannot be known.
pub(crate) fn placed(mounts: &[Mounted], links: &LinkReader<'_>) -> Result<Moved, Failure> {
    for own in OWN {
        let way = Way::of(own, links)?;
        if way.linked {
            let message = format!("{own} in the image is a symbolic link, to {}", escape(way.to.as_bytes()));
            return Err(
                Failure::new(FailedStep::Image, message).hint("use an image that has a directory there, or nothing")
            );
        }
    }
    let mut moved = Moved::default();
    let mut lie: Vec<String> = OWN.map(str::to_owned).to_vec();
    for (i, mount) in mounts.iter().enumerate() {
        let target = mount.target();
        let covering = mounts[..i].iter().rfind(|other| below(target, other.target()).is_some());
        let to = if let Some(covering) = covering {
            without_links(covering, target)?;
            moved.path(target)
        } else if OWN.iter().any(|own| below(target, own).is_some()) {
            continue;
        } else {
            let way = Way::of(target, links)?;
            if way.linked {
                let others = mounts.iter().map(Mounted::target).filter(|other| below(other, target).is_none());
                let mut others = lie.iter().map(String::as_str).chain(others);
                let hits = |other: &&str| way.enters(other) || below(other, &way.to).is_some();
                if let Some(other) = others.find(hits) {
                    return Err(leads(target, &way.to, other));
                }
            }
            way.to
        };
        if to != target {
            moved.0.push((target.to_owned(), to.clone()));
        }
        lie.push(to);
    }
    Ok(moved)
}

/// Where a single path lies that is covered by nothing of `mounts`, but may not lead into them either.
///
/// # Errors
/// As [`placed`].
pub(crate) fn single(path: &str, mounts: &[Mounted], links: &LinkReader<'_>) -> Result<String, Failure> {
    let way = Way::of(path, links)?;
    let others = OWN.into_iter().chain(mounts.iter().map(Mounted::target));
    match others.into_iter().find(|other| way.enters(other)) {
        Some(other) => Err(leads(path, &way.to, other)),
        None => Ok(way.to),
    }
}

/// What an engine mounts besides a spec's mounts, which lie where they are to, makes no name in what is bound: the volumes that an
/// image declares, and files and directories of the engine's own.
///
/// # Errors
/// It would.
pub(crate) fn apart(
    volumes: &[String],
    own: &[String],
    moved: &Moved,
    mounts: &[Mounted],
    links: &LinkReader<'_>,
) -> Result<(), Failure> {
    let hint = "mount that elsewhere, or use --backend oci, where an image declares nothing";
    let covering = |path: &str| mounts.iter().rfind(|mount| below(path, mount.target()).is_some());
    let bound: Vec<Mounted> = mounts.iter().filter(|mount| matches!(mount, Mounted::Bind { .. })).cloned().collect();
    for volume in volumes {
        let shown = escape(volume.as_bytes());
        if moved.path(volume) != *volume {
            let message = format!("the image declares the volume {shown}, on the way to which it has a symbolic link");
            return Err(Failure::new(FailedStep::Image, message).hint(HINT));
        }
        match covering(volume) {
            Some(over) if over.target() == volume => {}
            Some(Mounted::Bind { target, source, .. }) => {
                let source = source.display();
                let message = format!(
                    "the image declares the volume {shown}, which lies in {target}: the engine would make it in {source}"
                );
                return Err(Failure::new(FailedStep::Image, message).hint(hint));
            }
            Some(Mounted::Tmpfs { .. }) => {}
            None => drop(single(volume, &bound, links)?),
        }
    }
    for path in own.iter().filter(|path| covering(path).is_none()) {
        single(path, &bound, links)?;
    }
    Ok(())
}

fn leads(target: &str, to: &str, other: &str) -> Failure {
    let (target, to) = (escape(target.as_bytes()), escape(to.as_bytes()));
    let what = match (to.as_str(), other) {
        ("/", _) => "the root itself".to_owned(),
        (_, other) => format!("{to}, which is not apart from the mount at {}", escape(other.as_bytes())),
    };
    Failure::new(FailedStep::Image, format!("a symbolic link of the image leads from {target} to {what}")).hint(HINT)
}

/// That no link stands in a bound directory on the way to what is mounted in it: the runtime would follow it.
fn without_links(covering: &Mounted, target: &str) -> Result<(), Failure> {
    let Mounted::Bind { source, target: at, directory: true, .. } = covering else { return Ok(()) };
    let Some(rest) = below(target, at).filter(|rest| !rest.is_empty()) else { return Ok(()) };
    let point = source.join(rest);
    match openat2(CWD, &point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::LOOP) => {
            let message = format!("{} is a symbolic link, or lies behind one", escape_path(&point));
            Err(Failure::new(FailedStep::Mount, format!("cannot mount at {}: {message}", escape(target.as_bytes())))
                .hint("mount it where the link leads, or elsewhere"))
        }
        // What is missing, or cannot be looked at, its runtime finds as well.
        _ => Ok(()),
    }
}

fn escape_path(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

/// How a path is resolved.
struct Way {
    to: String,
    linked: bool,
    /// Every path that is gone through from the first link on.
    through: Vec<String>,
}

impl Way {
    fn of(path: &str, links: &LinkReader<'_>) -> Result<Way, Failure> {
        let unknown = |why: &dyn std::fmt::Display| {
            let message = format!("cannot look for links on the way to {}: {why}", escape(path.as_bytes()));
            Failure::new(FailedStep::Image, message).hint(HINT)
        };
        let parts = |text: &str| -> Vec<String> {
            text.split('/').rev().filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect()
        };
        let mut left = parts(path);
        let mut way = Way { to: "/".into(), linked: false, through: Vec::new() };
        let mut followed = 0;
        while let Some(part) = left.pop() {
            if part == ".." {
                let above = way.to.rfind('/').unwrap_or(0).max(1);
                way.to.truncate(above);
                continue;
            }
            let next = join(&way.to, &part);
            match links(&next).map_err(|e| unknown(&e))? {
                Some(says) => {
                    followed += 1;
                    if followed > MOST_LINKS {
                        let shown = escape(path.as_bytes());
                        let message = format!("the image has nothing to mount {shown} on: its links lead in a circle");
                        return Err(Failure::new(FailedStep::Image, message).hint(NO_PLACE));
                    }
                    if says.starts_with('/') {
                        way.to = "/".into();
                    }
                    way.linked = true;
                    left.extend(parts(&says));
                }
                None => {
                    if way.linked {
                        way.through.push(next.clone());
                    }
                    way.to = next;
                }
            }
        }
        Ok(way)
    }

    /// Whether it goes into this mount, having begun outside.
    fn enters(&self, mount: &str) -> bool {
        self.through.iter().any(|path| below(path, mount).is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn bind(source: &str, target: &str) -> Mounted {
        Mounted::Bind { source: source.into(), target: target.into(), writable: true, exec: true, directory: true }
    }

    fn tmpfs(target: &str) -> Mounted {
        Mounted::Tmpfs { target: target.into(), bytes: 1, mode: 0o755, exec: false, writable: true }
    }

    fn with<T>(links: &[(&str, &str)], of: impl FnOnce(&LinkReader<'_>) -> T) -> T {
        let links: HashMap<_, _> = links.iter().map(|(at, says)| ((*at).to_owned(), (*says).to_owned())).collect();
        of(&|path| Ok(links.get(path).cloned()))
    }

    #[test]
    fn a_link_that_stays_apart_is_resolved_and_what_lies_below_moves_with_it() {
        let mounts = [bind("/none", "/var/run"), tmpfs("/var/run/deep"), bind("/none", "/lib64/x"), tmpfs("/tmp")];
        let links = [("/var/run", "../run"), ("/lib64", "usr/lib64"), ("/bin", "usr/bin")];
        let moved = with(&links, |links| placed(&mounts, links)).unwrap();
        let lie: Vec<_> = moved.mounts(&mounts).iter().map(|mount| mount.target().to_owned()).collect();
        assert_eq!(lie, ["/run", "/run/deep", "/usr/lib64/x", "/tmp"]);
        assert_eq!((moved.path("/var/run/deep/er"), moved.path("/var/x")), ("/run/deep/er".into(), "/var/x".into()));
        assert!(with(&[("/bin", "usr/bin")], |links| placed(&mounts, links)).unwrap().is_empty());
        let rule = |path: &str| PathRule { path: path.into(), access: 0, optional: false, identity: None };
        let rules = moved.rules(vec![rule("/var/run"), rule("/tmp"), rule("/")]);
        assert_eq!(rules.iter().map(|rule| rule.path.as_str()).collect::<Vec<_>>(), ["/run", "/tmp", "/"]);
    }

    #[test]
    fn a_link_into_another_mount_is_refused() {
        let mounts = [bind("/none", "/t"), bind("/none", "/data"), tmpfs("/tmp")];
        for (at, says) in [
            ("/t", "/dev"),
            ("/t", "dev/pts"),
            ("/t", ".."),
            ("/t", "/"),
            ("/t", "/proc/self"),
            ("/t", "/data"),
            ("/t", "/data/below"),
            ("/t", "/data/../usr"),
            ("/t", "/tmp/x"),
            ("/t", "t"),
            ("/data", "/t"),
            ("/tmp", "/t/new"),
            ("/dev", "/t"),
            ("/sys", "/t/sys"),
        ] {
            let failure = with(&[(at, says)], |links| placed(&mounts, links)).expect_err(&format!("{at} {says}"));
            assert!(failure.hint.is_some() && failure.step == FailedStep::Image, "{failure:?}");
        }
        // Over what another mount lies in.
        let nested = [bind("/none", "/t"), bind("/none", "/srv/deep")];
        assert!(with(&[("/t", "/srv")], |links| placed(&nested, links)).is_err());
        let twice = [bind("/none", "/a"), bind("/none", "/b")];
        assert!(with(&[("/a", "/c"), ("/b", "/c")], |links| placed(&twice, links)).is_err());
    }

    #[test]
    fn links_that_cannot_be_looked_at_are_refused() {
        let failure = placed(&[tmpfs("/t")], &|_| Err(io::Error::other("no"))).unwrap_err();
        assert!(failure.message.contains("links on the way"), "{failure:?}");
    }

    #[test]
    fn a_volume_of_the_images_in_what_is_bound_is_refused() {
        let mounts = [bind("/host", "/t"), tmpfs("/tmp")];
        let own = ["/etc/hosts".to_owned(), "/t/own".to_owned()];
        let check = |path: &str, links: &[(&str, &str)]| {
            with(links, |links| apart(&[path.to_owned()], &own, &Moved::default(), &mounts, links))
        };
        for path in ["/t", "/tmp/x", "/data", "/t2/.git"] {
            check(path, &[]).unwrap();
        }
        check("/var/run/db", &[("/var/run", "/run")]).unwrap();
        let failure = check("/t/.git/hooks", &[]).unwrap_err();
        assert!(failure.message.contains("volume /t/.git/hooks") && failure.message.contains("/host"), "{failure:?}");
        for says in ["/t", "/t/x", "/dev"] {
            assert!(check("/l/deep", &[("/l", says)]).is_err(), "{says}");
            assert!(check("/data", &[("/etc", says)]).is_err(), "{says}");
        }
        let moved = Moved(vec![("/a".into(), "/b".into())]);
        assert!(apart(&["/a/db".to_owned()], &[], &moved, &mounts, &|_| Ok(None)).is_err());
    }

    #[test]
    fn a_link_in_what_is_bound_is_not_mounted_behind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let host = dir.path().to_str().unwrap();
        let none: &LinkReader<'_> = &|_| Ok(None);
        placed(&[bind(host, "/t"), tmpfs("/t/real"), tmpfs("/t/missing")], none).unwrap();
        let failure = placed(&[bind(host, "/t"), tmpfs("/t/link")], none).unwrap_err();
        assert!(failure.message.contains("link is a symbolic link") && failure.hint.is_some(), "{failure:?}");
    }
}
