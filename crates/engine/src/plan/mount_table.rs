//! The sandbox's file system as a table: which path inside shows which file of the host, and what may be done there.
//!
//! Pure. Masks, guards, Landlock rules and the trace all ask this one table, so that they cannot disagree.

use cofferdam_policy::paths::is_within;

/// What lies at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountContent {
    /// The host's tree from this path on.
    Host(String),
    /// Something of the sandbox's own: scratch, tmpfs, proc, devices.
    Own,
}

/// One mount, in the order of mounting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Path inside.
    pub target: String,
    /// What is there.
    pub shows: MountContent,
    /// Whether the program may write there.
    pub writable: bool,
    /// Whether writes reach the host's own files (and not a layer or memory).
    pub persistent: bool,
}

/// The table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    places: Vec<MountEntry>,
}

/// `base` and `rest` joined.
pub(crate) fn join(base: &str, rest: &str) -> String {
    match (base, rest) {
        (b, "") => b.to_owned(),
        ("/", r) => format!("/{r}"),
        (b, r) => format!("{b}/{r}"),
    }
}

/// What remains of `path` below `base`; `None` when it is not below it.
pub(crate) fn below<'p>(path: &'p str, base: &str) -> Option<&'p str> {
    if base == "/" {
        return path.strip_prefix('/');
    }
    let rest = path.strip_prefix(base)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

impl View {
    /// Adds a mount over what is there.
    pub fn push(&mut self, place: MountEntry) {
        self.places.push(place);
    }

    /// All mounts, in order.
    pub fn places(&self) -> &[MountEntry] {
        &self.places
    }

    /// The mount that a path inside falls on: the last one that covers it.
    pub fn covering(&self, path: &str) -> Option<&MountEntry> {
        self.places.iter().rev().find(|p| is_within(path, &p.target))
    }

    /// The host's path of a path inside; `None` when it is of the sandbox's own.
    pub fn host_path(&self, path: &str) -> Option<String> {
        let place = self.covering(path)?;
        let MountContent::Host(source) = &place.shows else { return None };
        Some(join(source, below(path, &place.target)?))
    }

    /// The host's path of what a mount on this path inside covers.
    pub fn host_path_below(&self, path: &str) -> Option<String> {
        let place = self.places.iter().rev().find(|p| p.target != path && is_within(path, &p.target))?;
        let MountContent::Host(source) = &place.shows else { return None };
        Some(join(source, below(path, &place.target)?))
    }

    /// Every path inside at which this path of the host shows: one per mount that covers it and is not covered itself.
    pub fn appearances(&self, host: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (i, place) in self.places.iter().enumerate() {
            let MountContent::Host(source) = &place.shows else { continue };
            let Some(rest) = below(host, source) else { continue };
            let inside = join(&place.target, rest);
            let hidden = self.places[i + 1..].iter().any(|later| is_within(&inside, &later.target));
            if !hidden && !found.contains(&inside) {
                found.push(inside);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let mut v = View::default();
        let place = |t: &str, s: Option<&str>, w| MountEntry {
            target: t.into(),
            shows: s.map_or(MountContent::Own, |s| MountContent::Host(s.into())),
            writable: w,
            persistent: w,
        };
        v.push(place("/", Some("/"), false));
        v.push(place("/tmp", None, true));
        v.push(place("/data", Some("/home/u"), true));
        v
    }

    #[test]
    fn a_path_of_the_host_shows_wherever_a_mount_carries_it() {
        assert_eq!(view().appearances("/home/u/secret"), ["/home/u/secret", "/data/secret"]);
    }

    #[test]
    fn what_a_later_mount_covers_does_not_show() {
        assert_eq!(view().appearances("/tmp/x"), Vec::<String>::new());
        assert_eq!(view().appearances("/data/x"), Vec::<String>::new());
    }

    #[test]
    fn a_path_inside_leads_back_to_the_host() {
        assert_eq!(view().host_path("/data/a/b").as_deref(), Some("/home/u/a/b"));
        assert_eq!(view().host_path("/tmp/x"), None);
        assert_eq!(view().host_path("/etc/passwd").as_deref(), Some("/etc/passwd"));
        assert_eq!(view().host_path_below("/data").as_deref(), Some("/data"));
        assert_eq!(view().host_path_below("/data/a").as_deref(), Some("/home/u/a"));
    }
}
