//! What planners ask of the host's file system. Planners are pure: they ask through [`Facts`], and the tests answer from a
//! table.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use crate::failure::Failure;
use crate::plan::aliases::Aliases;
use crate::plan::own_places::OwnPlace;
use crate::plan::tree::{Disk, VolumeTree as _};

/// What lies at a path, itself and not what a link leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file, with this many names.
    File {
        /// Hard links.
        links: u64,
        /// Whether somebody may execute it.
        executable: bool,
    },
    /// A symbolic link and what it says.
    Link(String),
    /// A device, a FIFO or a socket.
    Special,
    /// Nothing.
    Missing,
    /// It cannot be looked at.
    Unknown,
}

/// Answers about one host.
pub trait Facts {
    /// What lies at this absolute path.
    fn kind(&self, path: &str) -> FileKind;
    /// The names in this directory, sorted; none when it cannot be listed.
    fn list(&self, directory: &str) -> Vec<String>;
    /// Whether something is mounted below this path.
    fn has_mounts_below(&self, path: &str) -> bool;
    /// What below this directory passes on what is written to it: a read-only mount does not keep it from being written to.
    fn may_pass_on(&self, directory: &str) -> Option<PassesOn>;
    /// Other paths of the host that mounts give the same file.
    fn aliases(&self, path: &str) -> Vec<String>;

    /// Places of the host that show a path, or something below it, by an overlay; they need not be there.
    fn layered(&self, path: &str) -> Vec<String>;
    /// Cofferdam's own files, which no program writes.
    ///
    /// # Errors
    /// It cannot be read which they are.
    fn state(&self) -> Result<Vec<OwnPlace>, Failure> {
        Ok(Vec::new())
    }
    /// Where proc file systems of the host are mounted.
    fn processes(&self) -> &[String] {
        &[]
    }
    /// The caller's home directory, canonical; `None` where nothing says which it is.
    fn home(&self) -> Option<String> {
        None
    }
    /// The home under each name that the host's mounts give it.
    fn homes(&self) -> Vec<String> {
        self.home().into_iter().collect()
    }
    /// A variable of the caller's that is an absolute path, or several with colons between them.
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }
    /// Where a path ends up when every link is followed; `None` where nothing is there, or that is not known.
    fn canonical(&self, _path: &str) -> Option<String> {
        None
    }
    /// How this file begins: enough for the first line of a script. Nothing where it cannot be read.
    fn head(&self, _file: &str) -> Vec<u8> {
        Vec::new()
    }
    /// Whether the user whom the program runs as may not enter this directory, by its mode.
    fn is_closed(&self, _directory: &str) -> bool {
        false
    }
}

/// Where a path leads once every link in it is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedPath {
    /// Something is there: its canonical path and what it is.
    There(String, FileKind),
    /// Nothing is: the deepest directory that exists (canonical), and the first name that is missing in it.
    Missing(String, String),
    /// It cannot be told.
    Unknown,
}

/// Links that a resolution went through: `(canonical directory, name)`.
pub type FollowedLinks = Vec<(String, String)>;

/// So many entries of a tree are looked at: a few hundredths of a second.
const MOST_ENTRIES: usize = 20_000;

/// The kernel reads no more of a script's first line (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE: u64 = 256;

/// No path goes through more links than this (`ELOOP`, path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Follows every link of an absolute path.
pub fn resolve(facts: &dyn Facts, path: &str) -> (ResolvedPath, FollowedLinks) {
    let mut links = FollowedLinks::new();
    let mut left: Vec<String> = path.split('/').rev().filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let (mut at, mut kind) = (String::from("/"), FileKind::Directory);
    while let Some(part) = left.pop() {
        match part.as_str() {
            "." => continue,
            ".." => {
                at.truncate(at.rfind('/').unwrap_or(0).max(1));
                continue;
            }
            _ => {}
        }
        let next = crate::plan::mount_table::join(&at, &part);
        kind = facts.kind(&next);
        match &kind {
            FileKind::Link(says) => {
                links.push((at.clone(), part));
                if links.len() > MOST_LINKS {
                    return (ResolvedPath::Unknown, links);
                }
                if says.starts_with('/') {
                    at = "/".into();
                }
                left.extend(says.split('/').rev().filter(|part| !part.is_empty()).map(str::to_owned));
                kind = FileKind::Directory;
            }
            FileKind::Missing => return (ResolvedPath::Missing(at, part), links),
            FileKind::Unknown => return (ResolvedPath::Unknown, links),
            FileKind::Directory => at = next,
            _ if left.is_empty() => at = next,
            // A file where a directory should be: nothing can be below it.
            _ => return (ResolvedPath::Unknown, links),
        }
    }
    (ResolvedPath::There(at, kind), links)
}

/// The host that this process runs on.
#[derive(Debug)]
pub struct HostFacts {
    aliases: Aliases,
    /// The program runs as somebody who is neither owner nor of the group of anything.
    as_other: bool,
}

impl Default for HostFacts {
    fn default() -> HostFacts {
        HostFacts { aliases: Aliases::here(), as_other: false }
    }
}

impl HostFacts {
    /// For a run by this process, whose program may be another user's.
    pub fn for_run(as_other: bool) -> HostFacts {
        HostFacts { as_other, ..HostFacts::default() }
    }
}

impl Facts for HostFacts {
    fn home(&self) -> Option<String> {
        Disk.home()
    }

    fn homes(&self) -> Vec<String> {
        self.home().map_or_else(Vec::new, |home| self.aliases.with_itself(home))
    }

    fn variable(&self, name: &str) -> Option<String> {
        Disk.variable(name)
    }

    fn canonical(&self, path: &str) -> Option<String> {
        Disk.canonical(path)
    }

    fn state(&self) -> Result<Vec<OwnPlace>, Failure> {
        Ok(crate::plan::own_places::OwnPlaces::now()?.places)
    }

    fn processes(&self) -> &[String] {
        self.aliases.processes()
    }

    fn kind(&self, path: &str) -> FileKind {
        match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => FileKind::Directory,
            Ok(meta) if meta.is_file() => FileKind::File { links: meta.nlink(), executable: meta.mode() & 0o111 != 0 },
            Ok(meta) if meta.is_symlink() => {
                match std::fs::read_link(path).ok().and_then(|p| p.to_str().map(str::to_owned)) {
                    Some(says) => FileKind::Link(says),
                    None => FileKind::Unknown,
                }
            }
            Ok(_) => FileKind::Special,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => FileKind::Missing,
            Err(_) => FileKind::Unknown,
        }
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn head(&self, file: &str) -> Vec<u8> {
        use std::io::Read;
        let mut head = Vec::new();
        if std::fs::metadata(file).is_ok_and(|meta| meta.is_file()) {
            let read = std::fs::File::open(file).and_then(|file| file.take(SCRIPT_LINE).read_to_end(&mut head));
            return read.map_or_else(|_| Vec::new(), |_| head);
        }
        head
    }

    fn has_mounts_below(&self, path: &str) -> bool {
        self.aliases.mounted_below(path)
    }

    fn may_pass_on(&self, directory: &str) -> Option<PassesOn> {
        may_pass_on(directory)
    }

    fn aliases(&self, path: &str) -> Vec<String> {
        if self.aliases.is_empty() { Vec::new() } else { self.aliases.bound(path) }
    }

    fn layered(&self, path: &str) -> Vec<String> {
        self.aliases.layered(path)
    }

    fn is_closed(&self, directory: &str) -> bool {
        self.as_other && std::fs::metadata(directory).is_ok_and(|meta| meta.mode() & 0o1 == 0)
    }
}

/// Why a directory that is mounted read-only may pass on what is written to something in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PassesOn {
    /// This is one.
    #[error("{} in it is a FIFO, which can be written to though it is read-only", cofferdam_policy::text::escape(.0.as_bytes()))]
    Fifo(String),
    /// Nobody can say without looking for long.
    #[error(
        "it holds more than {MOST_ENTRIES} files, too many to look for a FIFO, which could be written to though it is read-only"
    )]
    TooMany,
}

/// As [`Facts::may_pass_on`], of this host.
pub(crate) fn may_pass_on(directory: &str) -> Option<PassesOn> {
    use std::os::unix::fs::FileTypeExt;
    let mut queue = vec![std::path::PathBuf::from(directory)];
    let mut seen = 0;
    while let Some(dir) = queue.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            seen += 1;
            if kind.is_fifo() {
                return Some(PassesOn::Fifo(entry.path().to_string_lossy().into_owned()));
            }
            if seen > MOST_ENTRIES {
                return Some(PassesOn::TooMany);
            }
            if kind.is_dir() {
                queue.push(entry.path());
            }
        }
    }
    None
}

/// A host made of what a table says; everything else is missing.
#[derive(Debug, Clone, Default)]
pub struct FactsTable(BTreeMap<String, FileKind>, BTreeMap<String, String>, Vec<String>, Vec<OwnPlace>);

impl FactsTable {
    /// A host of the usual kind: a merged /usr, and these further paths (a final slash marks a directory).
    pub fn usual(further: &[&str]) -> FactsTable {
        let mut table = FactsTable::default();
        for dir in
            ["/usr/bin", "/usr/lib", "/usr/lib64", "/etc/ssl", "/home", "/dev", "/proc", "/sys", "/tmp", "/var/tmp"]
        {
            table.add(dir, FileKind::Directory);
        }
        for (link, says) in [("/bin", "usr/bin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64"), ("/sbin", "usr/bin")] {
            table.add(link, FileKind::Link(says.into()));
        }
        let executable = FileKind::File { links: 1, executable: true };
        for program in ["/usr/bin/sh", "/usr/bin/true", "/usr/bin/python3"] {
            table.add(program, executable.clone());
        }
        for file in [
            "/etc/ld.so.cache",
            "/etc/localtime",
            "/etc/hostname",
            "/proc/cmdline",
            "/proc/keys",
            "/proc/sys/kernel/random/boot_id",
        ] {
            table.add(file, FileKind::File { links: 1, executable: false });
        }
        for path in further {
            match path.strip_suffix('/') {
                Some(dir) => table.add(dir, FileKind::Directory),
                None => table.add(path, FileKind::File { links: 1, executable: false }),
            }
        }
        table
    }

    /// Adds a path, and the directories that lead to it.
    pub fn add(&mut self, path: &str, kind: FileKind) {
        for above in cofferdam_policy::paths::ancestors(path).skip(1) {
            self.0.entry(above.to_owned()).or_insert(FileKind::Directory);
        }
        self.0.insert(path.to_owned(), kind);
    }

    /// Says how a file begins.
    pub fn write(&mut self, file: &str, text: &str) {
        self.1.insert(file.to_owned(), text.to_owned());
    }

    /// Says that this is Cofferdam's own.
    pub fn own(&mut self, place: OwnPlace) {
        self.3.push(place);
    }

    /// Says that something is mounted at a path.
    pub fn mounted(&mut self, path: &str) {
        self.2.push(path.to_owned());
    }
}

impl Facts for FactsTable {
    fn state(&self) -> Result<Vec<OwnPlace>, Failure> {
        Ok(self.3.clone())
    }

    fn head(&self, file: &str) -> Vec<u8> {
        self.1.get(file).map(|text| text.clone().into_bytes()).unwrap_or_default()
    }

    fn kind(&self, path: &str) -> FileKind {
        self.0.get(path).cloned().unwrap_or(FileKind::Missing)
    }

    fn list(&self, directory: &str) -> Vec<String> {
        let below = |path: &str| crate::plan::mount_table::below(path, directory).map(str::to_owned);
        self.0.keys().filter_map(|path| below(path)).filter(|rest| !rest.is_empty() && !rest.contains('/')).collect()
    }

    fn has_mounts_below(&self, path: &str) -> bool {
        self.2.iter().any(|mounted| mounted != path && crate::plan::mount_table::below(mounted, path).is_some())
    }

    fn may_pass_on(&self, _directory: &str) -> Option<PassesOn> {
        None
    }

    fn layered(&self, _path: &str) -> Vec<String> {
        Vec::new()
    }

    fn aliases(&self, _path: &str) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_on_what_is_written_is_named() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let (name, below) = (dir.path().to_str().unwrap(), dir.path().join("below"));
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("file"), "").unwrap();
        assert_eq!(may_pass_on(name), None);
        let pipe = below.join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(may_pass_on(name), Some(PassesOn::Fifo(pipe.to_str().unwrap().into())));
        std::fs::remove_file(&pipe).unwrap();
        assert_eq!(may_pass_on(name), None);
        for number in 0..MOST_ENTRIES {
            std::fs::hard_link(below.join("file"), below.join(number.to_string())).unwrap();
        }
        assert_eq!(may_pass_on(name), Some(PassesOn::TooMany));
        assert!(PassesOn::TooMany.to_string().contains("more than 20000 files"));
    }

    #[test]
    fn links_are_followed_and_named() {
        let mut table = FactsTable::usual(&["/home/u/real/file"]);
        table.add("/home/u/link", FileKind::Link("real".into()));
        table.add("/home/u/far", FileKind::Link("/home/u/link/../gone".into()));
        table.add("/home/u/loop", FileKind::Link("loop".into()));
        let (found, links) = resolve(&table, "/home/u/link/file");
        assert_eq!(
            found,
            ResolvedPath::There("/home/u/real/file".into(), FileKind::File { links: 1, executable: false })
        );
        assert_eq!(links, [("/home/u".to_owned(), "link".to_owned())]);
        assert_eq!(resolve(&table, "/home/u/far").0, ResolvedPath::Missing("/home/u".into(), "gone".into()));
        assert_eq!(resolve(&table, "/home/u/loop").0, ResolvedPath::Unknown);
        assert_eq!(
            resolve(&table, "/bin/sh").0,
            ResolvedPath::There("/usr/bin/sh".into(), FileKind::File { links: 1, executable: true })
        );
        assert_eq!(resolve(&table, "/").0, ResolvedPath::There("/".into(), FileKind::Directory));
    }

    #[test]
    fn this_host_answers_as_its_file_system_does() {
        let here = HostFacts::default();
        assert_eq!(here.kind("/"), FileKind::Directory);
        assert_eq!(here.kind("/no/such/thing"), FileKind::Missing);
        assert!(here.has_mounts_below("/"), "/proc at least");
        assert!(here.list("/").contains(&"usr".to_owned()));
    }
}
