//! Blocked paths: answers questions about a path, and lists what the kernel is to enforce.
//!
//! ```text
//! path ─ absolute ─▶ links followed as far as it exists ─▶ by path? by identity of it or a directory above? by folded name?
//! ```
//!
//! The answer is advice. The policy turns [`Blocked::deny`] into masks on the files themselves, which are enforced for
//! everything that a command starts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::paths::{PathSet, is_within, normalize};

use super::error::GuardError;

/// The blocked paths of a guard.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocked {
    /// The enforced paths: as given, and what links resolve to.
    paths: PathSet,
    given: Vec<String>,
    /// Last names of those that do not exist, folded, with the identity of the directory they would be in.
    absent: HashSet<((u64, u64), String)>,
}

/// Files and directories that are blocked at this moment, by identity.
pub(super) type Identities = HashSet<(u64, u64)>;

/// Entries that are looked at in search of a file's other names.
const MOST_ENTRIES: usize = 200_000;

impl Blocked {
    /// Reads a list of paths; `home` stands for `~`.
    pub(crate) fn new(list: &[String], home: Option<&str>, workspace: &str) -> Result<Blocked, GuardError> {
        let mut blocked = Blocked::default();
        for given in list {
            let refuse = |reason: &str| GuardError::Blocked { path: given.clone(), reason: reason.into() };
            let path = match (given.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => format!("{home}/{rest}"),
                (Some(_), None) => return Err(refuse("there is no home directory that `~` stands for")),
                (None, _) => given.clone(),
            };
            if !path.starts_with('/') || path.contains('\0') {
                return Err(refuse("not an absolute path\nhint: write it from `/` or `~/` on"));
            }
            if let Some(part) = pattern_in(&path) {
                let reason = format!(
                    "nothing is called `{part}`, and neither patterns nor variables are expanded: nothing would be blocked\n\
                     hint: name the paths themselves, or the directory they are in"
                );
                return Err(refuse(&reason));
            }
            let settled = settle(Path::new(&path)).ok_or_else(|| refuse("it cannot be followed to its end"))?;
            let settled =
                settled.path.to_str().ok_or_else(|| refuse("it leads to a path that is not UTF-8"))?.to_owned();
            if let Some(parts) = ["/proc", "/dev", "/sys"].iter().find(|own| is_within(&settled, own)) {
                let reason = format!("{parts} is the sandbox's own: the host's is not there to be blocked");
                return Err(GuardError::Blocked { path: given.clone(), reason });
            }
            for covered in ["/", workspace] {
                if is_within(covered, &settled) {
                    let reason = format!("it covers {covered}, where commands work");
                    return Err(GuardError::Blocked { path: given.clone(), reason });
                }
            }
            // A link is held by its own name too, where its name is one: `..` behind a link is not.
            if let Some(named) = Some(path).filter(|path| !path.contains("/..")).and_then(|path| normalize(&path))
                && !is_within(workspace, &named)
            {
                blocked.given.push(named);
            }
            blocked.given.push(settled);
        }
        blocked.given.sort_unstable();
        blocked.given.dedup();
        blocked.paths = blocked.given.iter().map(String::as_str).collect();
        blocked.absent = blocked.given.iter().flat_map(|path| folded(Path::new(path))).collect();
        for path in &blocked.given {
            if let Some(dir) = folds_names(path) {
                let reason = format!(
                    "{dir} takes names in capitals and small letters for the same: a name that does not exist yet cannot be held there"
                );
                return Err(GuardError::Blocked { path: path.clone(), reason });
            }
        }
        Ok(blocked)
    }

    /// What the policy denies, outermost paths only.
    pub(crate) fn deny(&self) -> impl Iterator<Item = String> {
        self.paths.outermost().iter().map(str::to_owned).collect::<Vec<_>>().into_iter()
    }

    /// Whether a canonical path is blocked, by path alone.
    pub(crate) fn holds(&self, canonical: &str) -> bool {
        self.paths.covering(canonical).is_some()
    }

    /// What is blocked at this moment, by identity: what goes by the names, and where links among them lead by now.
    pub(crate) fn identities(&self) -> Identities {
        let both = |path: &String| [std::fs::symlink_metadata(path), std::fs::metadata(path)];
        self.given.iter().flat_map(both).flatten().map(|m| (m.dev(), m.ino())).collect()
    }

    /// Those of the blocked paths that these arguments name, by any name: whole, or behind `=`. For words about a
    /// command that failed; decides nothing.
    pub(crate) fn named_by<S: AsRef<str>>(
        &self,
        args: &[S],
        workspace: &str,
        identities: &Identities,
    ) -> BTreeSet<String> {
        let words =
            args.iter().map(AsRef::as_ref).flat_map(|arg| [Some(arg), arg.split_once('=').map(|(_, value)| value)]);
        words.flatten().filter_map(|word| self.named(&Path::new(workspace).join(word), identities)).collect()
    }

    fn named(&self, path: &Path, identities: &Identities) -> Option<String> {
        let settled = settle(path)?.path;
        if let Some(blocked) = self.paths.covering(settled.to_str()?) {
            return Some(blocked.to_owned());
        }
        let meta = std::fs::metadata(&settled).ok()?;
        identities.contains(&(meta.dev(), meta.ino())).then(|| settled.to_str().map(str::to_owned)).flatten()
    }

    /// The blocked path that covers a path, if any. A path that cannot be resolved counts as blocked.
    pub(crate) fn covering(&self, path: &Path, identities: &Identities) -> bool {
        let path: &Path = &path.components().collect::<PathBuf>(); // a final `/` would hide a link
        // What `..` goes up from is looked into as well.
        let up_from = path.ancestors().filter(|at| at.ends_with("..")).filter_map(Path::parent);
        up_from.chain([path]).any(|at| self.leads_to(at, identities))
    }

    fn leads_to(&self, path: &Path, identities: &Identities) -> bool {
        let Some(settled) = settle(path) else { return true };
        if leaves_proc(path) {
            return true;
        }
        let Some(text) = settled.path.to_str() else { return true };
        if self.paths.covering(text).is_some() {
            return true;
        }
        if normalize(&path.to_string_lossy()).is_some_and(|named| self.paths.covering(&named).is_some()) {
            return true;
        }
        for dir in settled.path.ancestors() {
            if let Ok(meta) = std::fs::symlink_metadata(dir)
                && identities.contains(&(meta.dev(), meta.ino()))
            {
                return true;
            }
        }
        // Names that are not there yet: as some file system would compare them.
        settled.path.ancestors().flat_map(folded).any(|name| self.absent.contains(&name))
    }

    /// Other names of blocked files, in these directories and beside the files: a hard link is the same file.
    ///
    /// # Errors
    /// A blocked file with other names that were not found and cannot be enforced.
    pub(crate) fn other_names(&self, directories: &[String]) -> Result<Vec<String>, (String, String)> {
        let mut wanted: HashMap<(u64, u64), Linked> = HashMap::new();
        for path in &self.given {
            // A link may lead elsewhere than when the guard was made.
            let Ok(meta) = std::fs::metadata(path) else { continue };
            if !meta.is_file() || meta.nlink() < 2 {
                continue;
            }
            let Some(real) = std::fs::canonicalize(path).ok().and_then(|real| real.into_os_string().into_string().ok())
            else {
                return Err((path.clone(), format!("{path} leads to a path that cannot be named")));
            };
            let linked = wanted.entry((meta.dev(), meta.ino())).or_insert_with(|| Linked::new(path, meta.nlink()));
            linked.add(Path::new(&real));
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut queue: Vec<(PathBuf, bool)> = directories.iter().map(|dir| (PathBuf::from(dir), true)).collect();
        let known = wanted.values().flat_map(|linked| linked.names.values());
        let parents: BTreeSet<PathBuf> = known.filter_map(|path| Some(Path::new(path).parent()?.to_owned())).collect();
        queue.extend(parents.into_iter().map(|dir| (dir, false)));
        let mut looked = 0;
        while let Some((dir, deep)) = queue.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                looked += 1;
                let Ok(meta) = entry.metadata() else { continue };
                if meta.is_dir() && deep && looked < MOST_ENTRIES {
                    queue.push((entry.path(), true));
                } else if let Some(linked) = wanted.get_mut(&(meta.dev(), meta.ino())) {
                    linked.add(&entry.path());
                }
            }
        }
        for Linked { path, links, names } in wanted.values() {
            if (names.len() as u64) < *links {
                let found: Vec<&str> = names.values().map(String::as_str).collect();
                let reason = format!(
                    "{path} has {links} names (hard links), and only these were found: {}\n\
                     hint: find the others with `find / -xdev -samefile {path}` and block or remove them",
                    found.join(", ")
                );
                return Err(((*path).to_owned(), reason));
            }
        }
        let names = wanted.into_values().flat_map(|linked| linked.names.into_values());
        Ok(names.filter(|name| !self.paths.contains(name)).collect())
    }
}

/// A blocked file that has more names than one.
struct Linked<'a> {
    /// The entry that blocks it.
    path: &'a str,
    /// How many names it has.
    links: u64,
    /// Those that were found, by directory and name: one that several paths lead to is counted once.
    names: BTreeMap<((u64, u64), OsString), String>,
}

impl Linked<'_> {
    fn new(path: &str, links: u64) -> Linked<'_> {
        Linked { path, links, names: BTreeMap::new() }
    }

    /// One more name, unless it is known. One that is not UTF-8 cannot be masked, and is not counted.
    fn add(&mut self, path: &Path) {
        let (Some(dir), Some(name), Some(text)) = (path.parent(), path.file_name(), path.to_str()) else { return };
        let Ok(dir) = std::fs::metadata(dir) else { return };
        self.names.entry(((dir.dev(), dir.ino()), name.to_owned())).or_insert_with(|| text.to_owned());
    }
}

/// The part of a path that is no name of anything, and looks like what a shell would make names of.
fn pattern_in(path: &str) -> Option<&str> {
    let path = Path::new(path);
    let like = path.ancestors().filter(|at| at.symlink_metadata().is_err()).filter_map(|at| at.file_name()?.to_str());
    like.filter(|name| name.contains(['*', '?', '[', '{', '$'])).last()
}

/// A path with its links followed as far as it exists.
struct Settled {
    path: PathBuf,
}

/// Follows a path; what does not exist yet stands as it is written. `None` when it cannot be followed: it leads round,
/// is too long, or goes up from what is not there.
fn settle(path: &Path) -> Option<Settled> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        match std::fs::canonicalize(at) {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Some(Settled { path: real });
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {}
            Err(_) => return None,
        }
        // A link that leads to nothing yet: what it leads to is what would be made.
        if let Ok(says) = std::fs::read_link(at) {
            let to = at.parent()?.join(says);
            let mut whole = to;
            whole.extend(missing.iter().rev());
            return (missing.len() < 64).then(|| settle_again(&whole)).flatten();
        }
        missing.push(at.file_name()?); // `..` has none
        at = at.parent()?;
    }
}

/// One more time, for a link that leads to nothing: a second such link is not followed.
fn settle_again(path: &Path) -> Option<Settled> {
    let path = PathBuf::from(normalize(path.to_str()?)?);
    let existing = path.ancestors().find(|dir| dir.exists())?;
    let rest = path.strip_prefix(existing).ok()?;
    if existing.join(rest.components().next()?).symlink_metadata().is_ok() {
        return None;
    }
    Some(Settled { path: std::fs::canonicalize(existing).ok()?.join(rest) })
}

/// Whether a path goes by one of the links of /proc that lead elsewhere for each process: the command's are its own.
fn leaves_proc(path: &Path) -> bool {
    let in_proc = |path: &Path| path.starts_with("/proc");
    path.components().any(|part| part.as_os_str() == "proc")
        && path.ancestors().any(|at| {
            let named = at.to_str().and_then(normalize);
            named.is_some_and(|named| in_proc(Path::new(&named)))
                && std::fs::canonicalize(at).is_ok_and(|real| !in_proc(&real))
        })
}

/// A name that is not there, folded in each way, in the directory that would hold it.
fn folded(path: &Path) -> Vec<((u64, u64), String)> {
    // Where no directory would hold it, or none that can be looked into, the name itself is what is refused, unfolded.
    let parent = || std::fs::metadata(path.parent()?).ok();
    let (Err(_), Some(parent), Some(name)) = (std::fs::symlink_metadata(path), parent(), path.file_name()) else {
        return Vec::new();
    };
    fold(&name.to_string_lossy()).map(|name| ((parent.dev(), parent.ino()), name)).into()
}

/// A name as file systems that ignore case and composition might compare it, in small letters: once without marks, and
/// once with the same sign for every letter that has one, however it is composed. Takes more names for the same than
/// any of them does.
fn fold(name: &str) -> [String; 2] {
    let ignored = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{feff}' | '\u{ad}');
    // Combining marks, those of kana, and the vowels and finals that Hangul syllables are composed of.
    let mark = |c: char| matches!(c, '\u{300}'..='\u{36f}' | '\u{3099}' | '\u{309a}' | '\u{1160}'..='\u{11ff}');
    // Latin, Greek and Cyrillic letters with marks, kana, Hangul.
    let composed = |c: char| {
        matches!(c, '\u{c0}'..='\u{24f}' | '\u{386}'..='\u{390}' | '\u{3aa}'..='\u{3b0}' | '\u{3ca}'..='\u{3ce}'
            | '\u{400}'..='\u{403}' | '\u{407}' | '\u{40c}'..='\u{40e}' | '\u{419}' | '\u{439}' | '\u{450}'..='\u{453}'
            | '\u{457}' | '\u{45c}'..='\u{45e}' | '\u{4c1}'..='\u{4f9}' | '\u{1e00}'..='\u{1fff}'
            | '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7a3}')
    };
    let (mut bare, mut alike) = (String::new(), String::new());
    for c in name.chars().filter(|&c| !ignored(c)).flat_map(char::to_lowercase) {
        if mark(c) {
            alike.pop();
            alike.push('\u{fffd}');
            continue;
        }
        bare.push(c);
        alike.push(if composed(c) { '\u{fffd}' } else { c });
    }
    [bare, alike]
}

/// The directory that a path would be made in, where that ignores case in names.
fn folds_names(path: &str) -> Option<String> {
    use rustix::fs::{Mode, OFlags, ioctl_getflags, open, statfs};
    let path = Path::new(path);
    if std::fs::symlink_metadata(path).is_ok() {
        return None;
    }
    let dir = path.ancestors().skip(1).find(|dir| dir.is_dir())?;
    // vfat, exfat, ntfs, hfs+, cifs, smb2.
    const IGNORE_CASE: [u64; 6] = [0x4d44, 0x2011_bab0, 0x7366_746e, 0x482b, 0xff53_4d42, 0xfe53_4d42];
    const CASEFOLD: u64 = 0x4000_0000; // FS_CASEFOLD_FL, ioctl_iflags(2)
    let of_kind = statfs(dir).is_ok_and(|s| IGNORE_CASE.contains(&(s.f_type as u64 & 0xffff_ffff)));
    let flagged = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(ioctl_getflags)
        .is_ok_and(|flags| u64::from(flags.bits()) & CASEFOLD != 0);
    (of_kind || flagged).then(|| dir.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(list: &[&str]) -> Result<Blocked, GuardError> {
        let list: Vec<String> = list.iter().map(|path| (*path).to_owned()).collect();
        Blocked::new(&list, Some("/home/u"), "/srv/workspace")
    }

    fn allows(blocked: &Blocked, path: impl AsRef<Path>) -> bool {
        !blocked.covering(path.as_ref(), &blocked.identities())
    }

    #[test]
    fn every_way_of_writing_a_blocked_path_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        std::fs::create_dir_all(at("secret/deep")).unwrap();
        std::fs::create_dir(at("plain")).unwrap();
        std::fs::write(at("secret/deep/file"), "x").unwrap();
        std::fs::write(at("key"), "x").unwrap();
        std::os::unix::fs::symlink(at("secret"), at("link")).unwrap();
        std::os::unix::fs::symlink("link/deep", at("twice")).unwrap();
        std::os::unix::fs::symlink(at("secret/later"), at("dangling")).unwrap();
        std::os::unix::fs::symlink("round", at("round")).unwrap();
        std::fs::hard_link(at("key"), at("plain/other-name")).unwrap();
        let text = |name: &str| at(name).to_str().unwrap().to_owned();
        std::os::unix::fs::symlink("key", at("to-key")).unwrap();
        let absent = [text("Later.TXT"), text("\u{e9}cole"), text("\u{d55c}")];
        let b = blocked(&[&text("secret"), &text("key"), &absent[0], &absent[1], &absent[2]]).unwrap();
        for name in [
            "secret",
            "secret/",
            "secret/deep/file",
            "secret/not/there/yet",
            "plain/../secret",
            "link",
            "link/deep",
            "twice/file",
            "dangling",
            "round",
            "./secret/./deep",
            "key",
            "plain/other-name",
            "Later.TXT",
            "later.txt",
            "Later.TXT/x",
            "La\u{301}ter.TXT",
            "missing/../secret",
            "secret/../plain",
            "link/../../plain",
            "link/",
            "to-key/",
            "to-key/.",
            "\u{e9}cole",
            "e\u{301}cole",
            "E\u{301}COLE",
            "\u{c9}cole/x",
            "\u{1112}\u{1161}\u{11ab}",
            "\u{200b}\u{d55c}",
        ] {
            assert!(!allows(&b, at(name)), "{name}");
        }
        let through_proc = PathBuf::from(format!("/proc/self/root{}", text("secret/deep/file")));
        assert!(!allows(&b, through_proc));
        for name in
            ["", "plain", "plain/", "plain/x", "secretly", "keys", "later.txt2", "plain/key", "ecole", "\u{444}"]
        {
            assert!(allows(&b, at(name)), "{name}");
        }
        // Where these lead is another place for each process.
        let own = [
            "/proc/self/cwd",
            "/proc/self/cwd/x",
            "/proc/self/root/usr",
            "/usr/../proc/thread-self/root",
            "/proc/1/cwd/../x",
        ];
        for path in own {
            assert!(std::fs::canonicalize(path).is_err() || !allows(&b, path), "{path}");
        }
        for path in ["/proc", "/proc/self/status", "/proc/self", "/usr/lib", "/proc/../usr", "/usr/proc/x"] {
            assert!(allows(&b, path), "{path}");
        }
    }

    #[test]
    fn whatever_the_kernel_follows_to_a_blocked_file_is_refused() {
        use proptest::strategy::{Strategy as _, ValueTree as _};
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("secret/deep")).unwrap();
        std::fs::create_dir_all(base.join("plain/in")).unwrap();
        for (says, name) in [("../secret", "plain/up"), ("secret/deep", "down"), ("plain", "same"), ("/", "plain/root")]
        {
            std::os::unix::fs::symlink(says, base.join(name)).unwrap();
        }
        let b = blocked(&[base.join("secret").to_str().unwrap()]).unwrap();
        let identities = b.identities();
        let part = proptest::sample::select(vec![
            "secret",
            "deep",
            "plain",
            "in",
            "up",
            "down",
            "same",
            "root",
            "..",
            ".",
            "",
            "proc/self/root",
            "new",
        ]);
        let mut reached = 0;
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..3000 {
            let parts = proptest::collection::vec(part.clone(), 1..7).new_tree(&mut runner).unwrap().current();
            let path = base.join(parts.join("/").trim_start_matches('/'));
            let Ok(real) = std::fs::canonicalize(&path) else { continue };
            if real.starts_with(base.join("secret")) {
                reached += 1;
                assert!(b.covering(&path, &identities), "{} is {}", path.display(), real.display());
            }
        }
        assert!(reached > 100, "only {reached} led there");
    }

    #[test]
    fn hard_links_are_found_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned();
        for name in ["work/sub", "elsewhere"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("key"), "x").unwrap();
        let b = blocked(&[&at("key")]).unwrap();
        assert_eq!(b.other_names(&[at("work")]).unwrap(), Vec::<String>::new());
        std::fs::hard_link(at("key"), at("work/sub/copy")).unwrap();
        std::fs::hard_link(at("key"), at("beside")).unwrap();
        let mut names = b.other_names(&[at("work")]).unwrap();
        names.sort();
        assert_eq!(names, [at("beside"), at("work/sub/copy")]);
        std::fs::hard_link(at("key"), at("elsewhere/copy")).unwrap();
        let (_, error) = b.other_names(&[at("work")]).unwrap_err();
        assert!(error.contains("4 names") && error.contains("-samefile"), "{error}");
        let named = blocked(&[&at("key"), &at("elsewhere/copy")]).unwrap();
        assert_eq!(named.other_names(&[at("work")]).unwrap().len(), 2);
        // Two paths to the same names are not two names.
        let twice = [at("work"), format!("/proc/self/root{}", at("work"))];
        assert!(b.other_names(&twice).is_err());
        assert_eq!(named.other_names(&twice).unwrap().len(), 2);
    }

    #[test]
    fn a_link_that_leads_elsewhere_by_now_blocks_what_it_leads_to() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(at("work")).unwrap();
        for name in ["first", "second", "third"] {
            std::fs::write(at(name), name).unwrap();
        }
        symlink("first", at("link")).unwrap();
        let b = blocked(&[&at("link"), &at("later")]).unwrap();
        assert!(!allows(&b, at("first")) && allows(&b, at("second")) && allows(&b, at("third")));
        std::fs::hard_link(at("second"), at("work/copy")).unwrap();
        std::fs::hard_link(at("third"), at("work/other")).unwrap();
        assert_eq!(b.other_names(&[at("work")]).unwrap(), Vec::<String>::new());
        std::fs::remove_file(at("link")).unwrap();
        symlink("second", at("link")).unwrap();
        symlink("third", at("later")).unwrap();
        for name in ["first", "second", "work/copy", "third", "work/other"] {
            assert!(!allows(&b, at(name)), "{name}");
        }
        let mut names = b.other_names(&[at("work")]).unwrap();
        names.sort();
        assert_eq!(names, [at("second"), at("third"), at("work/copy"), at("work/other")]);
    }

    #[test]
    fn what_looks_like_a_pattern_and_is_no_name_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(at("[id]")).unwrap();
        std::fs::write(at("what?"), "x").unwrap();
        for bad in ["*.env", "**/.env", ".en?", "[.]env", "{a,b}", "$USER/.ssh", "what?*", "[id]/${NAME}"] {
            let error = blocked(&[&at(bad)]).unwrap_err();
            assert!(
                matches!(&error, GuardError::Blocked { reason, .. } if reason.contains("expanded")),
                "{bad}: {error}"
            );
        }
        for name in ["[id]", "[id]/key", "what?"] {
            assert!(!allows(&blocked(&[&at(name)]).unwrap(), at(name)), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_enforced_is_refused() {
        for bad in ["relative", "", "/", "/proc/1/mem", "/dev/mem", "/srv", "/srv/workspace", "~user/x", "/a\0b"] {
            assert!(matches!(blocked(&[bad]), Err(GuardError::Blocked { .. })), "{bad:?}");
        }
        let home = blocked(&["~/keys"]).unwrap();
        assert!(!allows(&home, "/home/u/keys"));
    }
}
