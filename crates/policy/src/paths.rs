//! Path logic without a file system: what a path says, not what it resolves to.
//!
//! All comparisons of paths use these functions, so that "inside" means one thing. Never accesses the disk: the code
//! that opens a path resolves symlinks before a decision is made on it, never after.

/// Longest path that the kernel takes, without the final NUL (`PATH_MAX` − 1, path_resolution(7)), bytes.
pub(crate) const MAX_PATH: usize = 4095;

/// Longest component of a path (`NAME_MAX`), bytes.
pub(crate) const MAX_COMPONENT: usize = 255;

/// An absolute path without `.` and `..`, which go by name: for paths of a tree that cannot be asked, or in which what is
/// before a `..` is known to be no link. It never climbs above `/`.
pub fn lexical(path: &std::path::Path) -> std::path::PathBuf {
    use std::path::Component;
    let mut clean = std::path::PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    clean
}

/// The path without empty, `.` and `..` components: `/a//b/../c/` is `/a/c`. Relative paths stay relative.
///
/// `None` when it is empty, climbs above its start, contains a NUL, is too long, or, being relative, names its
/// start itself. `..` is taken lexically, which is only right where no component before it is a symlink:
/// use it on what a user typed, and resolve the result before deciding anything.
pub fn normalize(path: &str) -> Option<String> {
    if path.is_empty() || path.contains('\0') {
        return None;
    }
    let mut kept: Vec<&str> = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                kept.pop()?;
            }
            name if name.len() > MAX_COMPONENT => return None,
            name => kept.push(name),
        }
    }
    let joined = kept.join("/");
    let normal = if path.starts_with('/') { format!("/{joined}") } else { joined };
    (!normal.is_empty() && normal.len() <= MAX_PATH).then_some(normal)
}

/// What keeps `path` from being normalized already, as words; `None` when nothing does. `/` is normalized.
pub fn fault(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("the path is empty");
    }
    if path.len() > MAX_PATH {
        return Some("the path is longer than 4095 bytes");
    }
    let relative = match path.strip_prefix('/') {
        Some("") => return None,
        Some(rest) => rest,
        None => path,
    };
    for component in relative.as_bytes().split(|&b| b == b'/') {
        match component {
            b"" => return Some("the path has an empty component (`//` or a `/` at its end)"),
            b"." => return Some("the path has a `.` component"),
            b".." => return Some("the path has a `..` component"),
            name if name.len() > MAX_COMPONENT => {
                return Some("a component of the path is longer than 255 bytes");
            }
            name if name.contains(&0) => return Some("the path contains a NUL character"),
            _ => {}
        }
    }
    None
}

/// Whether `path` is `base` or lies under it. Both are normalized, and both absolute or both relative.
pub fn is_within(path: &str, base: &str) -> bool {
    if base == "/" {
        return path.starts_with('/');
    }
    path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A name as file systems that ignore case compare it: the same for all names that they may take for one.
pub fn case_folded(name: &str) -> String {
    match name.is_ascii() {
        true => name.to_ascii_lowercase(),
        false => name.to_uppercase().to_lowercase(),
    }
}

/// Whether a file system that ignores case may take two names for one.
pub fn may_be_one_name(one: &str, other: &str) -> bool {
    match one.is_ascii() && other.is_ascii() {
        true => one.eq_ignore_ascii_case(other),
        false => case_folded(one) == case_folded(other),
    }
}

/// The path itself and every directory above it, longest first; an absolute path ends with `/`.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |current| match current.rfind('/') {
        Some(0) if current.len() > 1 => Some("/"),
        Some(0) | None => None,
        Some(slash) => Some(&current[..slash]),
    })
}

/// A set of normalized paths that answers by prefix in a few binary searches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathSet {
    /// Sorted by bytes, without duplicates.
    entries: Vec<String>,
}

impl PathSet {
    /// Whether exactly this path is in the set.
    pub fn contains(&self, path: &str) -> bool {
        self.entries.binary_search_by(|entry| entry.as_str().cmp(path)).is_ok()
    }

    /// The innermost entry that is `path` or a directory above it.
    pub fn covering(&self, path: &str) -> Option<&str> {
        ancestors(path).find_map(|ancestor| {
            let found = self.entries.binary_search_by(|entry| entry.as_str().cmp(ancestor)).ok()?;
            Some(self.entries[found].as_str())
        })
    }

    /// The entries that lie under `path`, in order, without `path` itself.
    pub fn under<'s>(&'s self, path: &'s str) -> impl Iterator<Item = &'s str> {
        let stem = path.strip_suffix('/').unwrap_or(path).as_bytes();
        let slash = [b'/'];
        let lower = move |entry: &String| entry.bytes().lt(stem.iter().chain(slash.iter()).copied());
        let first = self.entries.partition_point(lower);
        self.entries[first..]
            .iter()
            .map(String::as_str)
            .take_while(move |entry| is_within(entry, path))
            .filter(move |entry| *entry != path)
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(String::as_str)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The set without the entries that lie under another entry.
    pub fn outermost(&self) -> PathSet {
        PathSet { entries: self.clone().into_outermost() }
    }

    /// The entries that do not lie under another one, in order.
    pub fn into_outermost(self) -> Vec<String> {
        // In the order of bytes, all that begin with an entry follow it, its descendants among them ("/a", "/a-b", "/a/c"). So
        // the kept entries that the current one begins with are all that can cover it.
        let (mut kept, mut begins): (Vec<String>, Vec<usize>) = (Vec::new(), Vec::new());
        for entry in self.entries {
            while begins.last().is_some_and(|&above| !entry.starts_with(&kept[above])) {
                begins.pop();
            }
            if !begins.iter().any(|&above| is_within(&entry, &kept[above])) {
                begins.push(kept.len());
                kept.push(entry);
            }
        }
        kept
    }
}

impl<S: Into<String>> FromIterator<S> for PathSet {
    fn from_iter<I: IntoIterator<Item = S>>(paths: I) -> PathSet {
        let mut entries: Vec<String> = paths.into_iter().map(Into::into).collect();
        entries.sort(); // often of parts that are in order
        entries.dedup();
        PathSet { entries }
    }
}
