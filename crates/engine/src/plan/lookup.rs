//! Questions to the host's file system, remembered: which of many names exist, and where they really are.
//!
//! Thousands of denied or protected paths cost one question per directory, not per path: a directory that many names
//! lie in is listed once, and below a directory that is not there nothing is asked at all.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;

use cofferdam_policy::paths::case_folded;

/// What is known of a directory.
#[derive(Debug, Clone)]
enum KnownDirectory {
    /// It exists, at this canonical path.
    There { canonical: String, names: Option<ListedNames>, asked: u32 },
    /// It does not; this is the deepest ancestor that does (canonical), and the first missing component.
    Missing { parent: String, name: String },
    /// It, or one above it, may not be searched: this one (canonical).
    Closed(String),
    /// A file stands where it should be: this one (canonical).
    Blocked(String),
    /// It cannot be asked about.
    Unknown,
}

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathLookup {
    /// Its directory is at `parent` (canonical) and holds it under `name`. `link` is where a symbolic link leads.
    There {
        /// Canonical directory.
        parent: String,
        /// Last component.
        name: String,
        /// Canonical path of what a symbolic link leads to; itself when it is none.
        canonical: String,
        /// Whether the last component is a symbolic link.
        is_link: bool,
        /// Whether `canonical` is a directory.
        is_dir: bool,
    },
    /// It does not exist: `name` is the first component that is missing, in `parent` (canonical).
    Missing {
        /// Canonical directory.
        parent: String,
        /// First missing component.
        name: String,
    },
    /// The caller may not look into this directory (canonical); its owner could change that.
    Closed(String),
    /// Nothing can be at the path while this file (canonical) stands where a directory should be.
    Blocked(String),
    /// It cannot be asked about.
    Unknown,
}

/// What is known of a directory, for who asks about many of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DirectoryLookup {
    /// It exists, at this canonical path.
    There(String),
    /// It does not: `name` is the first component that is missing, in `parent` (canonical).
    Missing {
        /// Canonical directory.
        parent: String,
        /// First missing component.
        name: String,
    },
    /// Something stands in the way: each path under it has its own answer.
    Other,
}

/// The names of a directory that was listed.
#[derive(Debug, Clone, Default)]
struct ListedNames {
    /// As they are written, and whether each is a directory; `None` where only a look at it can say more: a symbolic link, or a
    /// file system that does not say.
    written: HashMap<String, Option<bool>>,
    /// Folded, those that are written otherwise.
    folded: HashSet<String>,
}

/// What a listing says of a name.
enum ListedAs {
    Absent,
    /// No symbolic link; whether it is a directory.
    There(bool),
    /// A look at it has to say.
    Unsure,
}

impl ListedNames {
    fn find(&self, name: &str) -> ListedAs {
        match self.written.get(name) {
            Some(Some(is_dir)) => return ListedAs::There(*is_dir),
            Some(None) => return ListedAs::Unsure,
            None => {}
        }
        let folded = case_folded(name);
        match self.folded.contains(&folded) || self.written.contains_key(&folded) {
            true => ListedAs::Unsure,
            false => ListedAs::Absent,
        }
    }
}

/// Above this many questions about one directory it is listed instead.
const LIST_AFTER: u32 = 8;

/// The memory of one planning.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    dirs: HashMap<String, KnownDirectory>,
    /// Directories that are listed at once, since many of their names will be asked about.
    listed: HashSet<String>,
    /// Symbolic links that paths went through: `(canonical directory, name)`.
    pub links: BTreeSet<(String, String)>,
}

fn utf8(path: std::path::PathBuf) -> Option<String> {
    path.into_os_string().into_string().ok()
}

impl Lookup {
    /// For questions about these paths, each normalized and absolute.
    pub(crate) fn expecting(paths: &[String]) -> Lookup {
        let mut names: HashMap<&str, u32> = HashMap::new();
        for (dir, _) in paths.iter().filter_map(|path| path.rsplit_once('/')) {
            *names.entry(dir).or_default() += 1;
        }
        let many = names.into_iter().filter(|(_, names)| *names >= LIST_AFTER / 2);
        Lookup { listed: many.map(|(dir, _)| dir.to_owned()).collect(), ..Lookup::default() }
    }

    /// Looks a normalized absolute path up.
    pub(crate) fn find(&mut self, path: &str) -> PathLookup {
        let (dir, name) = match path.rfind('/') {
            Some(0) => ("/", &path[1..]),
            Some(i) => (&path[..i], &path[i + 1..]),
            None => return PathLookup::Unknown,
        };
        if name.is_empty() {
            return PathLookup::There {
                parent: "/".into(),
                name: String::new(),
                canonical: "/".into(),
                is_link: false,
                is_dir: true,
            };
        }
        let known = self.dir(dir);
        let Some(known) = self.dirs.get_mut(known) else { return PathLookup::Unknown };
        match known {
            KnownDirectory::Unknown => PathLookup::Unknown,
            KnownDirectory::Closed(dir) => PathLookup::Closed(dir.clone()),
            KnownDirectory::Blocked(file) => PathLookup::Blocked(file.clone()),
            KnownDirectory::Missing { parent, name } => {
                PathLookup::Missing { parent: parent.clone(), name: name.clone() }
            }
            KnownDirectory::There { canonical, names, asked } => {
                *asked += 1;
                if names.is_none() && *asked == LIST_AFTER {
                    *names = list(canonical);
                }
                let parent = canonical.clone();
                let name = name.to_owned();
                match names.as_ref().map_or(ListedAs::Unsure, |names| names.find(&name)) {
                    ListedAs::Absent => PathLookup::Missing { parent, name },
                    ListedAs::There(is_dir) => {
                        let canonical = crate::plan::mount_table::join(&parent, &name);
                        PathLookup::There { parent, name, canonical, is_link: false, is_dir }
                    }
                    ListedAs::Unsure => look(&parent, &name, &mut self.links),
                }
            }
        }
    }

    /// Where a normalized absolute path leads, without links; `None` where nothing is there or it cannot be reached.
    pub(crate) fn canonical(&mut self, path: &str) -> Option<String> {
        match self.find(path) {
            PathLookup::There { canonical, .. } => Some(canonical),
            _ => None,
        }
    }

    /// Looks a normalized absolute directory up.
    pub(crate) fn directory(&mut self, path: &str) -> DirectoryLookup {
        let known = self.dir(path);
        match self.dirs.get(known) {
            Some(KnownDirectory::There { canonical, .. }) => DirectoryLookup::There(canonical.clone()),
            Some(KnownDirectory::Missing { parent, name }) => {
                DirectoryLookup::Missing { parent: parent.clone(), name: name.clone() }
            }
            _ => DirectoryLookup::Other,
        }
    }

    /// Fills in a directory and its ancestors. Returns under which name it is known: its own, or the one above it that is not
    /// there or in the way, which answers for all below it.
    fn dir<'p>(&mut self, path: &'p str) -> &'p str {
        if self.dirs.contains_key(path) {
            return path;
        }
        if path == "/" {
            self.dirs.insert("/".into(), KnownDirectory::There { canonical: "/".into(), names: None, asked: 0 });
            return path;
        }
        let above = self.dir(path.rfind('/').map_or("/", |at| if at == 0 { "/" } else { &path[..at] }));
        if !matches!(self.dirs.get(above), Some(KnownDirectory::There { .. })) {
            return above;
        }
        let known = match self.find(path) {
            PathLookup::There { canonical, is_dir: true, .. } => {
                let names = if self.listed.contains(path) { list(&canonical) } else { None };
                KnownDirectory::There { canonical, names, asked: 0 }
            }
            // A file, such as the `.git` of a worktree: nothing can be below it as long as it stays what it is.
            PathLookup::There { canonical, .. } => KnownDirectory::Blocked(canonical),
            PathLookup::Missing { parent, name } => KnownDirectory::Missing { parent, name },
            PathLookup::Closed(dir) => KnownDirectory::Closed(dir),
            PathLookup::Blocked(file) => KnownDirectory::Blocked(file),
            PathLookup::Unknown => KnownDirectory::Unknown,
        };
        self.dirs.insert(path.to_owned(), known);
        path
    }
}

/// Which of these names a directory holds, in their order, and whether each is a symbolic link; `None` when the directory
/// cannot be listed in full, or holds a name that its file system may take for one of these. One listing, and nothing kept of
/// what was not asked for.
pub(crate) fn among(dir: &str, names: &[&str]) -> Option<Vec<Option<bool>>> {
    use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
    let mut wanted: HashMap<&[u8], Option<bool>> = names.iter().map(|name| (name.as_bytes(), None)).collect();
    let folded: HashSet<String> = names.iter().map(|name| case_folded(name)).collect();
    let at = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buf = Vec::with_capacity(64 * 1024);
    let mut entries = RawDir::new(&at, buf.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let Some(found) = wanted.get_mut(name.to_bytes()) else {
            let name = name.to_str().map(case_folded);
            if name.is_ok_and(|name| folded.contains(&name)) {
                return None;
            }
            continue;
        };
        let kind = match entry.file_type() {
            // Not every file system says.
            FileType::Unknown => {
                let st = rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                FileType::from_raw_mode(st.st_mode)
            }
            kind => kind,
        };
        *found = Some(kind == FileType::Symlink);
    }
    // The same name may have been asked for more than once.
    Some(names.iter().map(|name| wanted.get(name.as_bytes()).copied().flatten()).collect())
}

/// The names of a directory; `None` when it cannot be listed in full.
fn list(dir: &str) -> Option<ListedNames> {
    let mut names = ListedNames::default();
    for entry in fs::read_dir(dir).ok()? {
        let entry = entry.ok()?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let kind = entry.file_type().ok().filter(|kind| !kind.is_symlink()).map(|kind| kind.is_dir());
        let folded = case_folded(&name);
        if folded != name {
            names.folded.insert(folded);
        }
        names.written.insert(name, kind);
    }
    Some(names)
}

/// Where a symbolic link leads, with every link on the way, itself first. When it leads nowhere: what would have to come
/// into being, or to change, for it to lead somewhere.
fn follow(parent: &str, name: &str, links: &mut BTreeSet<(String, String)>) -> Result<String, PathLookup> {
    let mut at = parent.to_owned();
    let mut left = vec![name.to_owned()];
    let mut steps = 0;
    while let Some(part) = left.pop() {
        if part == ".." {
            at.truncate(at.rfind('/').unwrap_or(0).max(1));
            continue;
        }
        let path = crate::plan::mount_table::join(&at, &part);
        let Ok(says) = fs::read_link(&path) else {
            if let Err(e) = fs::symlink_metadata(&path) {
                return Err(absent(&e, at, part));
            }
            at = path;
            continue;
        };
        steps += 1;
        if steps > 40 {
            return Err(PathLookup::Missing { parent: at, name: part }); // ELOOP, path_resolution(7)
        }
        links.insert((at.clone(), part));
        let says = utf8(says).ok_or(PathLookup::Unknown)?;
        if says.starts_with('/') {
            at = "/".into();
        }
        left.extend(says.split('/').rev().filter(|p| !p.is_empty() && *p != ".").map(str::to_owned));
    }
    Ok(at)
}

/// Why a name is not there.
fn absent(e: &std::io::Error, parent: String, name: String) -> PathLookup {
    match e.kind() {
        std::io::ErrorKind::NotFound => PathLookup::Missing { parent, name },
        std::io::ErrorKind::NotADirectory => PathLookup::Blocked(parent),
        std::io::ErrorKind::PermissionDenied => PathLookup::Closed(parent),
        _ => PathLookup::Unknown,
    }
}

fn look(parent: &str, name: &str, links: &mut BTreeSet<(String, String)>) -> PathLookup {
    let path = crate::plan::mount_table::join(parent, name);
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.file_type().is_symlink() => match follow(parent, name, links) {
            Ok(canonical) => {
                let is_dir = Path::new(&canonical).is_dir();
                PathLookup::There { parent: parent.into(), name: name.into(), canonical, is_link: true, is_dir }
            }
            Err(astray) => astray,
        },
        Ok(meta) => PathLookup::There {
            parent: parent.into(),
            name: name.into(),
            canonical: path,
            is_link: false,
            is_dir: meta.is_dir(),
        },
        Err(e) => absent(&e, parent.into(), name.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_the_order_in_which_they_were_asked_for() {
        let t = tempfile::tempdir().unwrap();
        let base = t.path().to_str().unwrap();
        fs::write(format!("{base}/b"), "").unwrap();
        std::os::unix::fs::symlink("b", format!("{base}/l")).unwrap();
        assert_eq!(among(base, &["z", "l", "b", "b"]), Some(vec![None, Some(true), Some(false), Some(false)]));
        assert_eq!(among("/nonexistent", &["a"]), None);
    }

    #[test]
    fn names_that_differ_by_case_alone_are_left_to_the_file_system() {
        let t = tempfile::tempdir().unwrap();
        let base = t.path().canonicalize().unwrap().into_os_string().into_string().unwrap();
        fs::write(format!("{base}/.AWS"), "").unwrap();
        assert_eq!(among(&base, &[".aws"]), None, "it may be the same file");
        assert_eq!(among(&base, &[".ssh"]), Some(vec![None]));
        let asked = [".aws", ".ssh", ".netrc", ".gnupg"].map(|name| format!("{base}/{name}"));
        let mut l = Lookup::expecting(&asked);
        l.dir(&base);
        let Some(KnownDirectory::There { names: Some(names), .. }) = l.dirs.get(&base) else { panic!("{l:?}") };
        assert!(matches!(names.find(".aws"), ListedAs::Unsure) && matches!(names.find(".ssh"), ListedAs::Absent));
        assert!(matches!(l.find(&asked[0]), PathLookup::Missing { .. }), "this file system does not ignore case");
    }

    #[test]
    fn the_first_missing_component_is_what_counts() {
        let t = tempfile::tempdir().unwrap();
        let base = t.path().canonicalize().unwrap().into_os_string().into_string().unwrap();
        let mut l = Lookup::default();
        let missing = PathLookup::Missing { parent: base.clone(), name: "a".into() };
        assert_eq!(l.find(&format!("{base}/a/b/c")), missing);
        assert_eq!(l.find(&format!("{base}/a/b/d")), missing);
        assert_eq!(l.find(&format!("{base}/a")), missing);
    }

    #[test]
    fn a_directory_is_listed_after_many_questions_and_still_answers_truly() {
        let t = tempfile::tempdir().unwrap();
        let base = t.path().canonicalize().unwrap().into_os_string().into_string().unwrap();
        fs::write(format!("{base}/n77"), "").unwrap();
        let mut l = Lookup::default();
        for i in 0..100 {
            let there = matches!(l.find(&format!("{base}/n{i}")), PathLookup::There { .. });
            assert_eq!(there, i == 77);
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_says_what_is_missing_and_is_named() {
        let t = tempfile::tempdir().unwrap();
        let base = t.path().canonicalize().unwrap().into_os_string().into_string().unwrap();
        fs::write(format!("{base}/file"), "").unwrap();
        for (link, says) in [("one", "two/three"), ("two", "gone"), ("odd", "file/x"), ("round", "round")] {
            std::os::unix::fs::symlink(says, format!("{base}/{link}")).unwrap();
        }
        let mut l = Lookup::default();
        let missing = |name: &str| PathLookup::Missing { parent: base.clone(), name: name.into() };
        assert_eq!(l.find(&format!("{base}/one")), missing("gone"));
        assert_eq!(l.find(&format!("{base}/one/below")), missing("gone"));
        assert_eq!(l.find(&format!("{base}/odd")), PathLookup::Blocked(format!("{base}/file")));
        assert_eq!(l.find(&format!("{base}/round")), missing("round"));
        let named: Vec<&str> = l.links.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(named, ["odd", "one", "round", "two"]);
    }

    #[test]
    fn links_are_resolved_and_named() {
        let t = tempfile::tempdir().unwrap();
        let base = t.path().canonicalize().unwrap().into_os_string().into_string().unwrap();
        fs::create_dir(format!("{base}/real")).unwrap();
        std::os::unix::fs::symlink("real", format!("{base}/link")).unwrap();
        let mut l = Lookup::default();
        let PathLookup::There { canonical, is_link, .. } = l.find(&format!("{base}/link")) else { panic!() };
        assert_eq!((canonical, is_link), (format!("{base}/real"), true));
        assert_eq!(
            l.find(&format!("{base}/link/x")),
            PathLookup::Missing { parent: format!("{base}/real"), name: "x".into() }
        );
    }
}
