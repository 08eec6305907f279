//! The index of a git repository (gitformat-index(5)), read as git reads it: which entries are commits of other repositories.
//!
//! A sandbox may have written it. What git could read in another way than this does counts as not understood.

use std::collections::BTreeSet;

use cofferdam_policy::paths::fault;

use crate::plan::mount_table::join;
use crate::plan::tree::VolumeTree;

/// Most bytes of an index that is read.
pub(crate) const MOST_INDEX: u64 = 256 << 20;

/// Longest path of an entry, bytes: no file has a longer one (PATH_MAX).
const LONGEST: usize = 4096;
/// Most bytes of all paths that are returned. An index of version 4 says in a few bytes what they take in whole.
const MOST_PATHS: usize = 64 << 20;

const TYPE: u32 = 0o170_000;
const GITLINK: u32 = 0o160_000;
const DIRECTORY: u32 = 0o040_000;

/// What one index says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    /// The paths of entries that are commits of other repositories.
    pub links: BTreeSet<Vec<u8>>,
    /// Directories of a sparse index, whose entries are in a tree object.
    pub collapsed: BTreeSet<Vec<u8>>,
    /// The paths of all entries, where they were asked for.
    pub all: BTreeSet<Vec<u8>>,
    /// Further entries are in `sharedindex.HASH`, of this hash.
    pub shared: Option<String>,
    /// An entry that has its path from there is a commit of another repository.
    pub replaces: bool,
}

impl Entries {
    /// The entries of both files of a split index. An entry that has its mode here and its path there may be any of those.
    pub(crate) fn with_shared(mut self, shared: Entries) -> Entries {
        self.links.extend(if self.replaces { shared.all } else { shared.links });
        self.collapsed.extend(shared.collapsed);
        self
    }
}

/// The index of the repository whose work tree this directory is.
pub(crate) fn index_of(source: &str, tree: &dyn VolumeTree) -> Option<String> {
    let git = join(source, ".git");
    // A linked work tree and a submodule have a file that says where the rest is.
    if let Some(text) = tree.read(&git, 8192) {
        let text = String::from_utf8(text).ok()?;
        let says = text.strip_prefix("gitdir:")?.trim();
        return Some(if says.starts_with('/') { join(says, "index") } else { join(&join(source, says), "index") });
    }
    tree.exists(&git).then(|| join(&git, "index"))
}

/// The submodules that the index of a work tree has, whose repositories git looks into by itself. `None` where the index
/// is not understood, or its entries are in part in another file.
pub(crate) fn submodules(source: &str, tree: &dyn VolumeTree) -> Option<BTreeSet<String>> {
    let Some(index) = index_of(source, tree) else { return Some(BTreeSet::new()) };
    if !tree.exists(&index) {
        return Some(BTreeSet::new());
    }
    let entries = entries(&tree.read(&index, MOST_INDEX)?, false).filter(|entries| entries.shared.is_none())?;
    let mut found: BTreeSet<String> =
        entries.links.into_iter().map(String::from_utf8).collect::<Result<_, _>>().ok()?;
    found.retain(|path| fault(path).is_none() && !path.starts_with('/'));
    Some(found)
}

/// What an index says. `None` where it is not understood.
pub(crate) fn entries(index: &[u8], all: bool) -> Option<Entries> {
    // SHA-1 or SHA-256: only the repository's configuration says which. What could be read as both is neither.
    match (read(index, 20, all), read(index, 32, all)) {
        (Some(_), Some(_)) if number(index, 8)? > 0 => None,
        (one, other) => one.or(other),
    }
}

fn number(index: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(index.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn read(index: &[u8], hash: usize, all: bool) -> Option<Entries> {
    if index.get(..4)? != b"DIRC" {
        return None;
    }
    let (version, count) = (number(index, 4)?, number(index, 8)?);
    if !(2..=4).contains(&version) {
        return None;
    }
    let end = index.len().checked_sub(hash)?;
    let (mut at, mut found, mut path) = (12, Entries::default(), Vec::new());
    // Where the entries begin that give their whole path: a reader may begin at one of these.
    let mut whole: Vec<(u32, usize)> = Vec::new();
    let mut taken = 0;
    for number_of_entry in 0..count {
        let begun = at;
        let mode = number(index, at + 24)?;
        if mode > 0xffff || !matches!(mode & TYPE, 0o100_000 | 0o120_000 | DIRECTORY | GITLINK) {
            return None;
        }
        at += 40 + hash;
        let flags = number(index, at)? >> 16;
        let extended = flags & 0x4000 != 0;
        if extended && version < 3 {
            return None;
        }
        at += if extended { 4 } else { 2 };
        let mut begins = true;
        if version == 4 {
            // How much of the path before is dropped, seven bits a byte.
            let mut drop = 0usize;
            loop {
                let byte = *index.get(at)?;
                at += 1;
                if drop > 1 << 24 {
                    return None;
                }
                drop = (drop << 7) | usize::from(byte & 0x7f);
                if byte & 0x80 == 0 {
                    break;
                }
                drop += 1;
            }
            path.truncate(path.len().checked_sub(drop)?);
            begins = path.is_empty();
        } else {
            path.clear();
        }
        if begins {
            whole.push((number_of_entry, begun));
        }
        let length = index.get(at..end)?.iter().take(LONGEST + 1).position(|&byte| byte == 0)?;
        if path.len() + length > LONGEST {
            return None;
        }
        path.extend_from_slice(&index[at..at + length]);
        at += length + 1;
        // The length stands there a second time.
        if usize::try_from(flags & 0xfff).ok()? != path.len().min(0xfff) {
            return None;
        }
        if version < 4 {
            at = begun + (at - begun).next_multiple_of(8);
        }
        if !is_tracked(path.strip_suffix(b"/").filter(|_| mode & TYPE == DIRECTORY).unwrap_or(&path)) {
            return None;
        }
        let copies = usize::from(mode & TYPE == GITLINK || mode & TYPE == DIRECTORY) + usize::from(all);
        taken += copies * path.len();
        if taken > MOST_PATHS {
            return None;
        }
        match mode & TYPE {
            GITLINK if path.is_empty() => found.replaces = true,
            GITLINK => drop(found.links.insert(path.clone())),
            DIRECTORY => drop(found.collapsed.insert(path.clone())),
            _ => {}
        }
        if all {
            found.all.insert(path.clone());
        }
    }
    let entries_end = at;
    // Extensions follow: a name, a length and so many bytes; then the hash of it all.
    while at < end {
        let name = index.get(at..at + 4)?;
        let length = usize::try_from(number(index, at + 4)?).ok()?;
        let content = index.get(at + 8..(at + 8).checked_add(length)?)?;
        match name {
            b"link" => found.shared = shared(content, hash)?,
            // Readers of several threads begin where these say.
            b"EOIE" if number(content, 0)? as usize != entries_end => return None,
            b"IEOT" if !blocks(content, count, &whole)? => return None,
            // What git does not know and may leave out has a capital letter.
            b"EOIE" | b"IEOT" | b"sdir" => {}
            _ if name[0].is_ascii_uppercase() => {}
            _ => return None,
        }
        at += 8 + length;
    }
    (at == end).then_some(found)
}

/// Whether git itself would put this path into an index: it names something below the work tree, and nothing of git's. From
/// an index that is there, git takes any: `git restore .` writes `../x` and `.git/hooks/x`. The empty one stands for a path in
/// the other half of a split index.
pub(crate) fn is_tracked(path: &[u8]) -> bool {
    path.is_empty()
        || path
            .split(|&byte| byte == b'/')
            .all(|part| !matches!(part, b"" | b"." | b"..") && !part.eq_ignore_ascii_case(b".git"))
}

/// The hash of the file that has the rest, of an extension `link`; `Some(None)` where it names none.
fn shared(content: &[u8], hash: usize) -> Option<Option<String>> {
    let hash = content.get(..hash)?;
    Some(hash.iter().any(|&byte| byte != 0).then(|| cofferdam_audit::hex(hash)))
}

/// Whether the blocks of an extension `IEOT` are all entries, each once, and begin where entries do.
fn blocks(content: &[u8], count: u32, whole: &[(u32, usize)]) -> Option<bool> {
    let mut next = 0u32;
    let (mut at, mut good) = (4, number(content, 0)? == 1);
    while good && at < content.len() {
        let (offset, entries) = (number(content, at)? as usize, number(content, at + 4)?);
        good = whole.binary_search(&(next, offset)).is_ok();
        next = next.checked_add(entries)?;
        at += 8;
    }
    Some(good && next == count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tree::Disk;
    use crate::repository::protected_names::tests::git;

    #[test]
    fn an_index_of_every_version_says_which_entries_are_submodules() {
        for (format, version) in [("sha1", "2"), ("sha1", "4"), ("sha256", "2")] {
            let root = tempfile::tempdir().unwrap();
            let top = root.path();
            if !git(top, &["init", "-q", "--object-format", format, "."]) {
                return;
            }
            for name in ["a", "lib", "z"] {
                std::fs::write(top.join(format!("{name}.txt")), name).unwrap();
            }
            let sub = top.join("lib/one");
            std::fs::create_dir_all(&sub).unwrap();
            git(&sub, &["init", "-q", "--object-format", format, "."]);
            git(&sub, &["commit", "-q", "--allow-empty", "-m", "x"]);
            git(top, &["add", "."]);
            git(top, &["update-index", "--index-version", version]);
            let found = submodules(top.to_str().unwrap(), &Disk);
            assert_eq!(found, Some(BTreeSet::from(["lib/one".to_owned()])), "{format} {version}");
            git(top, &["update-index", "--split-index"]);
            assert_eq!(submodules(top.to_str().unwrap(), &Disk), None, "{format} {version}: split");
        }
    }

    #[test]
    fn a_damaged_index_says_nothing_and_never_panics() {
        let whole = {
            let root = tempfile::tempdir().unwrap();
            if !git(root.path(), &["init", "-q", "."]) {
                return;
            }
            std::fs::write(root.path().join("f"), "f").unwrap();
            git(root.path(), &["add", "f"]);
            std::fs::read(root.path().join(".git/index")).unwrap()
        };
        assert_eq!(entries(&whole, false), Some(Entries::default()));
        for length in 0..whole.len() {
            assert_eq!(entries(&whole[..length], false), None, "{length}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            entries(&changed, true);
        }
    }

    #[test]
    fn paths_that_take_more_than_any_file_has_are_not_read() {
        // Version 4: each entry drops `back` bytes of the path before and adds `more`.
        let index = |count: u32, back: u8, more: usize| {
            let mut bytes = [&b"DIRC"[..], &4u32.to_be_bytes(), &count.to_be_bytes()].concat();
            let mut length = 0;
            for number in 0..count {
                let (back, more) = if number == 0 { (0, 4000) } else { (back, more) };
                length = length - usize::from(back) + more;
                let mut head = vec![0; 62];
                head[24..28].copy_from_slice(&GITLINK.to_be_bytes());
                head[60..62].copy_from_slice(&(length.min(0xfff) as u16).to_be_bytes());
                bytes.extend(head);
                bytes.push(back);
                bytes.extend(std::iter::repeat_n(b'a' + (number % 26) as u8, more));
                bytes.push(0);
            }
            bytes.extend([0; 20]);
            bytes
        };
        assert_eq!(entries(&index(26, 1, 1), false).unwrap().links.len(), 26);
        assert_eq!(entries(&index(3, 0, 60), false), None, "longer than PATH_MAX");
        assert_eq!(entries(&index(20_000, 1, 1), false), None, "80 MB of paths");
    }

    #[test]
    fn where_several_threads_would_begin_to_read_is_where_entries_begin() {
        let entry = |name: &str, mode: u32| {
            let mut bytes = vec![0; 62];
            bytes[24..28].copy_from_slice(&mode.to_be_bytes());
            bytes[61] = name.len() as u8;
            bytes.extend(name.as_bytes());
            bytes.resize((62 + name.len() + 8) / 8 * 8, 0);
            bytes
        };
        let extension = |name: &[u8], words: &[u32]| {
            let content: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            [name, &(content.len() as u32).to_be_bytes(), &content].concat()
        };
        let index = |tail: Vec<u8>| {
            let head = [b"DIRC".as_slice(), &2u32.to_be_bytes(), &2u32.to_be_bytes()].concat();
            [head, entry("a", 0o100_644), entry("x", GITLINK), tail, vec![0; 20]].concat()
        };
        let known = entries(&index(extension(b"IEOT", &[1, 12, 1, 76, 1])), false).unwrap();
        assert_eq!(known.links, BTreeSet::from([b"x".to_vec()]));
        for blocks in [&[1, 12, 1][..], &[1, 12, 2, 76, 1], &[1, 12, 1, 84, 1], &[2, 12, 1, 76, 1]] {
            assert_eq!(entries(&index(extension(b"IEOT", blocks)), false), None, "{blocks:?}");
        }
        assert_eq!(entries(&index(extension(b"EOIE", &[100, 0, 0, 0, 0, 0])), false), None);
        assert_eq!(entries(&index(extension(b"zzzz", &[])), false), None);
        assert!(entries(&index(extension(b"ZZZZ", &[])), false).is_some());
    }
}
