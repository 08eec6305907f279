//! Every name of the host at which a path shows: by bind mounts, by a file system that is mounted twice, and by overlays.
//!
//! A path that is denied or protected has to be held at its other places as well. Aliases that no mount makes (hard links)
//! are not seen here.

use cofferdam_policy::paths::is_within;

use crate::plan::bind_mounts::BindMounts;
use crate::plan::overlays::Overlays;

/// The mounts of this process: proc_pid_mountinfo(5).
pub(crate) const MOUNT_TABLE: &str = "/proc/self/mountinfo";
/// The most names that one path is held at: mounts that contain each other show it under any number.
pub(crate) const MOST: usize = 4096;

/// Whether a path of the host, without links, lies in one of these places, under whatever name the host's mounts give them.
///
/// # Errors
/// That cannot be determined, and why.
pub fn shown_within(path: &str, places: &[String]) -> Result<bool, String> {
    let mounts =
        std::fs::read(MOUNT_TABLE).map_err(|e| format!("cannot be placed among the mounts: {MOUNT_TABLE}: {e}"))?;
    Aliases::of_mounts(&mounts).shows_within(path, places)
}

/// The aliases that one mount table makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Aliases {
    binds: BindMounts,
    overlays: Overlays,
}

impl Aliases {
    /// Of this process's mounts; none when there is no /proc.
    pub(crate) fn here() -> Aliases {
        std::fs::read(MOUNT_TABLE).map_or_else(|_| Aliases::default(), |bytes| Aliases::of_mounts(&bytes))
    }

    /// The same where it has to be known.
    ///
    /// # Errors
    /// There is no /proc, or it cannot be read.
    #[cfg(feature = "containers")]
    pub(crate) fn read() -> std::io::Result<Aliases> {
        std::fs::read(MOUNT_TABLE).map(|bytes| Aliases::of_mounts(&bytes))
    }

    /// Of this table of this process's mounts.
    pub(crate) fn of_mounts(mountinfo: &[u8]) -> Aliases {
        Aliases { binds: BindMounts::of_table(mountinfo), overlays: Overlays::here(mountinfo) }
    }

    #[cfg(test)]
    pub(super) fn of(binds: BindMounts, overlays: Overlays) -> Aliases {
        Aliases { binds, overlays }
    }

    /// Where proc file systems are mounted: what shows them shows the host's processes.
    pub(crate) fn processes(&self) -> &[String] {
        self.binds.processes()
    }

    /// Whether something is mounted below this directory of the host.
    pub(crate) fn mounted_below(&self, dir: &str) -> bool {
        self.binds.mounted_below(dir)
    }

    /// What is mounted below this directory of the host, one of it.
    #[cfg(feature = "containers")]
    pub(crate) fn first_below(&self, dir: &str) -> Option<&str> {
        self.binds.first_below(dir)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.binds.is_empty() && self.overlays.is_empty()
    }

    /// The overlay that a path lies in, where one of its layers is unknown, and so at which other names it shows.
    pub(crate) fn undetermined(&self, path: &str) -> Option<&str> {
        self.overlays.undetermined(path)
    }

    /// The other places at which this path itself shows, by one mount; all of an overlay's layer where a part of it does. The
    /// whole tree is none: no sandbox could see anything.
    pub(crate) fn itself(&self, path: &str) -> Vec<String> {
        let mut found = self.binds.itself(path);
        found.extend(self.overlays.of(path).into_iter().filter(|place| place != "/"));
        found
    }

    /// A path, and the other places at which it shows.
    pub(crate) fn with_itself(&self, path: String) -> Vec<String> {
        let others = self.itself(&path);
        std::iter::once(path).chain(others).collect()
    }

    /// The other places at which this path, or something below it, shows by bind mounts. Where the path is, they are.
    pub(crate) fn bound(&self, path: &str) -> Vec<String> {
        self.binds.of(path)
    }

    /// The places that show this path, or something below it, by an overlay, on the way through any number of mounts. What is in
    /// one layer is not in each: they need not be there.
    pub(crate) fn layered(&self, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        if self.overlays.is_empty() {
            return found;
        }
        let mut seen = self.bound(path);
        seen.push(path.to_owned());
        let mut at = 0;
        while let Some(place) = seen.get(at).cloned() {
            let by_overlay = self.overlays.of(&place);
            let bound = if found.contains(&place) { self.binds.itself(&place) } else { Vec::new() };
            for other in by_overlay.into_iter().chain(bound) {
                if other != "/" && seen.len() < MOST && !seen.contains(&other) {
                    seen.push(other.clone());
                    found.push(other);
                }
            }
            at += 1;
        }
        found
    }

    fn shows_within(&self, path: &str, places: &[String]) -> Result<bool, String> {
        let contains = |place: &String| is_within(path, place);
        if places.iter().any(contains) {
            return Ok(true);
        }
        if let Some(point) = self.undetermined(path) {
            return Err(format!("lies in the overlay at {point}, and what its layers are is not known"));
        }
        // One that is the whole tree would be every path.
        let others = |place: &String| self.bound(place).into_iter().chain(self.layered(place));
        Ok(places.iter().flat_map(others).any(|other| other != "/" && contains(&other)))
    }

    /// Whether a path shows at any other place.
    pub(crate) fn has(&self, path: &str) -> bool {
        !self.bound(path).is_empty() || !self.layered(path).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_layer_shows_in_the_overlay_and_where_that_is_bound() {
        let table =
            b"21 1 8:1 / / rw - ext4 /dev/sda rw\n22 21 0:40 / /m rw - overlay o rw,lowerdir=/low,upperdir=/up\n\
            23 21 0:40 /home /data rw - overlay o rw,lowerdir=/low,upperdir=/up\n";
        let overlays = Overlays::of_table(table, &|path| Some(path.into()));
        let aliases = Aliases::of(BindMounts::of_table(table), overlays);
        let shown = |path: &str| {
            let mut found = aliases.layered(path);
            found.extend(aliases.bound(path));
            found.sort();
            found.dedup();
            found
        };
        assert_eq!(shown("/low/home/me/.ssh"), ["/data/me/.ssh", "/m/home/me/.ssh", "/up/home/me/.ssh"]);
        assert_eq!(shown("/data/me/.ssh"), ["/low/home/me/.ssh", "/m/home/me/.ssh", "/up/home/me/.ssh"]);
        assert_eq!(shown("/low/etc"), ["/m/etc", "/up/etc"]);
        assert_eq!(shown("/elsewhere"), Vec::<String>::new());
        let lies = |path: &str, place: &str| aliases.shows_within(path, &["/no".into(), place.into()]);
        for (path, place) in [
            ("/data/me/.ssh/k", "/m/home/me/.ssh"),
            ("/data/me/k", "/low/home/me"),
            ("/m/home/me/.ssh", "/m/home"),
            ("/up/home/me/k", "/data/me"),
        ] {
            assert_eq!(lies(path, place), Ok(true), "{path}");
        }
        for (path, place) in [("/data/me/.ssh/k", "/m/home/me/.aws"), ("/home", "/m/home"), ("/x", "/")] {
            assert_eq!(lies(path, place), Ok(place == "/"), "{path}");
        }
        let relative =
            Overlays::of_table(b"22 21 0:40 / /m rw - overlay o rw,lowerdir=l:/x", &|path| Some(path.into()));
        let relative = Aliases::of(BindMounts::default(), relative);
        assert!(relative.shows_within("/m/x", &["/no".into()]).is_err_and(|why| why.contains("overlay at /m")));
        assert_eq!(relative.shows_within("/n/x", &["/no".into()]), Ok(false));
        let alone = Aliases::of(BindMounts::of_table(table), Overlays::default());
        assert_eq!(alone.bound("/m/home/me"), ["/data/me"], "the control: by the bind mount alone");
        assert_eq!(alone.layered("/low/home/me"), Vec::<String>::new());
    }
}
