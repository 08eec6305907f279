//! Finds the file of a command: looked up once, opened once, and identified by path and inode from then on.
//!
//! ```text
//! name ─ PATH ─▶ O_PATH descriptor ─▶ canonical path, (device, inode) ─▶ `#!` ▶ interpreter ▶ loader, the same way
//! ```
//!
//! Never looks in a relative directory, nor in one that commands may write. Runs nothing.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, fstat, open};

use super::error::plain;
use cofferdam_engine::executables::{DeviceInode, Executable, device};
use cofferdam_engine::shebang;

/// A program that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolvedCommand {
    /// The absolute path by which it was found: what is executed, so that the program sees the name it goes by.
    pub called: String,
    /// Canonical path.
    pub canonical: String,
    /// As init compares it.
    pub identity: DeviceInode,
    /// The loader or interpreters that executing it takes, theirs included.
    pub chain: Vec<Executable>,
}

impl ResolvedCommand {
    pub(crate) fn executable(&self) -> Executable {
        Executable { path: self.canonical.clone(), identity: Some(self.identity) }
    }
}

/// The directories in which programs are looked up.
#[derive(Debug, Clone, Default)]
pub(super) struct ExecutableSearch {
    /// Absolute directories, in order.
    pub directories: Vec<String>,
    /// Canonical directories that commands may write: nothing in them is ever found.
    pub writable: Vec<String>,
    /// Where rustup keeps its toolchains, canonical.
    pub rustup_home: Option<String>,
}

/// How many scripts may be interpreters of each other; the kernel follows fewer.
const DEEPEST: usize = 5;

/// Loaders, for a program whose own cannot be read.
const LOADERS: &[&str] = &[
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

impl ExecutableSearch {
    /// The program that a command is.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn find(&self, command: &str) -> Result<ResolvedCommand, String> {
        self.find_at(command, 0)
    }

    fn find_at(&self, command: &str, depth: usize) -> Result<ResolvedCommand, String> {
        let (called, file, canonical, identity) = self.locate(command)?;
        let chain = self.chain(file.as_fd(), &called, depth)?;
        Ok(ResolvedCommand { called, canonical, identity, chain })
    }

    /// The paths that decide where a command is found: those that precede it in PATH, and its own.
    pub(crate) fn candidates(&self, command: &str) -> Vec<PathBuf> {
        if command.contains('/') {
            return vec![command.into()];
        }
        let mut paths = Vec::new();
        let names = std::iter::once(command).chain(stands_in(command));
        for path in names.flat_map(|name| self.directories.iter().map(move |dir| Path::new(dir).join(name))) {
            let program = std::fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0);
            paths.push(path);
            if program {
                break;
            }
        }
        paths
    }

    /// Like `find`, without what executing it takes.
    pub(crate) fn identify(&self, command: &str) -> Result<(String, DeviceInode), String> {
        self.locate(command).map(|(_, _, canonical, identity)| (canonical, identity))
    }

    /// Whether a path leads to what commands may write.
    pub(crate) fn is_theirs(&self, path: &str) -> bool {
        let real = std::fs::canonicalize(path).ok().filter(|_| path.starts_with('/'));
        let real = real.as_deref().and_then(Path::to_str);
        real.is_some_and(|real| self.writable.iter().any(|dir| cofferdam_policy::paths::is_within(real, dir)))
    }

    fn locate(&self, command: &str) -> Result<(String, OwnedFd, String, DeviceInode), String> {
        if command.is_empty() || command.contains('\0') {
            return Err("this is no name of a program".into());
        }
        if command.contains('/') {
            if !command.starts_with('/') {
                return Err(
                    "a relative path leads elsewhere from each directory: use a name or an absolute path".into()
                );
            }
            let (file, canonical, identity) = self.open(command)?;
            return Ok((command.to_owned(), file, canonical, identity));
        }
        match (self.on_path(command), stands_in(command)) {
            (Err(None), Some(other)) => self.on_path(other),
            (found, _) => found,
        }
        .map_err(|why| {
            why.unwrap_or_else(|| match self.directories.as_slice() {
                [] => "the PATH has no absolute directory that commands cannot write: there is nowhere to look".into(),
                directories => format!("there is no such program in {}", directories.join(":")),
            })
        })
    }

    /// The first program of this name; an error without a reason where no directory has the name at all.
    fn on_path(&self, command: &str) -> Result<(String, OwnedFd, String, DeviceInode), Option<String>> {
        let mut why = None;
        for directory in &self.directories {
            let called = format!("{}/{command}", directory.trim_end_matches('/'));
            match self.open(&called) {
                Ok((file, canonical, identity)) => return Ok((called, file, canonical, identity)),
                Err(reason) if reason == MISSING => {}
                Err(reason) => why = why.or(Some(format!("{}: {reason}", plain(&called)))),
            }
        }
        Err(why)
    }

    fn open(&self, path: &str) -> Result<(OwnedFd, String, DeviceInode), String> {
        use rustix::io::Errno;
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|e| match e {
            Errno::NOENT | Errno::NOTDIR => MISSING.to_owned(),
            e => e.to_string(),
        })?;
        let stat = fstat(&file).map_err(|e| e.to_string())?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err("it is a directory".into()),
            _ => return Err("it is no regular file".into()),
        }
        if stat.st_mode & 0o111 == 0 {
            return Err("nobody may execute it".into());
        }
        let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
        // Root's commands are another user's, whom the sandbox asks.
        if !rustix::process::geteuid().is_root()
            && rustix::fs::accessat(rustix::fs::CWD, &opened, Access::EXEC_OK, AtFlags::EACCESS) == Err(Errno::ACCESS)
        {
            return Err("this user may not execute it".into());
        }
        let canonical = std::fs::read_link(&opened).map_err(|e| format!("its real path is not known: {e}"))?;
        let canonical = canonical.to_str().ok_or("its real path is not UTF-8")?.to_owned();
        if let Some(dir) = self.writable.iter().find(|dir| cofferdam_policy::paths::is_within(&canonical, dir)) {
            return Err(format!("it lies in {dir}, which commands may write: any of them could replace it"));
        }
        Ok((file, canonical, (device(stat.st_dev), stat.st_ino)))
    }

    /// The interpreters and loaders that executing a file needs.
    fn chain(&self, file: impl AsFd, called: &str, depth: usize) -> Result<Vec<Executable>, String> {
        let mut head = Vec::new();
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let read = File::open(&path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
        if read.is_err() {
            return Ok(self.loaders()); // executable and not readable: the kernel reads it
        }
        if !head.starts_with(b"#!") {
            let Some(loader) = loader_of(&head) else { return Ok(Vec::new()) };
            return self.find_at(&loader, depth + 1).map(|found| vec![found.executable()]);
        }
        if depth >= DEEPEST {
            return Err(format!("{} is a script of too many scripts", plain(called)));
        }
        let (interpreter, argument) =
            shebang::interpreter(&head).ok_or_else(|| format!("{} has no interpreter", plain(called)))?;
        let of = |reason: String| format!("its interpreter {}: {reason}", plain(&interpreter));
        let mut chain = self.with_chain(&interpreter, depth).map_err(of)?;
        // `env` starts what its argument names, which it looks for itself.
        if Path::new(&interpreter).file_name().is_some_and(|name| name == "env")
            && let Some(name) = shebang::started_by_env(&argument)
        {
            chain.extend(self.with_chain(&name, depth).map_err(|e| format!("its interpreter {}: {e}", plain(&name)))?);
        }
        Ok(chain)
    }

    fn with_chain(&self, program: &str, depth: usize) -> Result<Vec<Executable>, String> {
        let found = self.find_at(program, depth + 1)?;
        let mut chain = vec![found.executable()];
        chain.extend(found.chain);
        Ok(chain)
    }

    /// Every loader that this host has.
    pub(crate) fn loaders(&self) -> Vec<Executable> {
        let opened = LOADERS.iter().filter_map(|path| self.open(path).ok());
        opened.map(|(_, path, identity)| Executable { path, identity: Some(identity) }).collect()
    }
}

/// The program that stands in for one which is nowhere on the PATH: many systems have no `python` any more.
fn stands_in(command: &str) -> Option<&'static str> {
    (command == "python").then_some("python3")
}

/// What `open` says of what is not there.
const MISSING: &str = "there is no such file";

/// How much of a program is read: its headers, or its first line.
const HEAD: u64 = 4096;

/// The loader that an ELF program names (`PT_INTERP`).
fn loader_of(head: &[u8]) -> Option<String> {
    let wide = match head.get(..6)? {
        [0x7f, b'E', b'L', b'F', 2, 1] => true,
        [0x7f, b'E', b'L', b'F', 1, 1] => false,
        _ => return None,
    };
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b)) as usize)
    };
    let (table, size, count) = if wide {
        (number(32, 8)?, number(54, 2)?, number(56, 2)?)
    } else {
        (number(28, 4)?, number(42, 2)?, number(44, 2)?)
    };
    for i in 0..count {
        let entry = table.checked_add(i.checked_mul(size)?)?;
        if number(entry, 4)? == 3 {
            let (at, len) = if wide {
                (number(entry + 8, 8)?, number(entry + 32, 8)?)
            } else {
                (number(entry + 4, 4)?, number(entry + 16, 4)?)
            };
            let name = head.get(at..at.checked_add(len)?)?.split(|&b| b == 0).next()?;
            return String::from_utf8(name.to_vec()).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> ExecutableSearch {
        ExecutableSearch { directories: vec!["/usr/bin".into(), "/bin".into()], ..ExecutableSearch::default() }
    }

    #[test]
    fn a_name_leads_to_its_canonical_file_and_the_loader() {
        let sh = search().find("sh").unwrap();
        assert_eq!(sh.called, "/usr/bin/sh");
        assert_eq!(Path::new(&sh.canonical), std::fs::canonicalize("/usr/bin/sh").unwrap());
        assert_eq!(sh.chain.len(), 1, "{sh:?}");
        assert!(sh.chain[0].path.contains("/ld-"), "{sh:?}");
    }

    #[test]
    fn python3_stands_in_for_python_where_that_is_nowhere() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let in_dir = ExecutableSearch {
            directories: vec![dir.path().to_str().unwrap().to_owned()],
            ..ExecutableSearch::default()
        };
        assert!(in_dir.find("python").unwrap_err().contains("no such program"), "neither is there");
        symlink("/usr/bin/env", dir.path().join("python3")).unwrap();
        assert!(in_dir.find("python").unwrap().called.ends_with("/python3"));
        assert_eq!(in_dir.candidates("python").len(), 2, "both names decide");
        symlink("/usr/bin/id", dir.path().join("python")).unwrap();
        assert!(in_dir.find("python").unwrap().called.ends_with("/python"), "the name itself comes first");
        std::fs::remove_file(dir.path().join("python")).unwrap();
        std::fs::write(dir.path().join("python"), "").unwrap();
        assert!(in_dir.find("python").unwrap_err().contains("may execute it"), "one that is there is not passed over");
        assert!(in_dir.find("perl").is_err(), "no other name has a substitute");
    }

    #[test]
    fn what_is_no_program_is_not_found_and_says_why() {
        for (command, part) in [
            ("", "no name"),
            ("a\0b", "no name"),
            ("./sh", "relative"),
            ("bin/sh", "relative"),
            ("no-such-program", "no such program in /usr/bin:/bin"),
            ("/usr/bin", "a directory"),
            ("/dev/null", "no regular file"),
            ("/etc/passwd", "nobody may execute it"),
        ] {
            let error = search().find(command).unwrap_err();
            assert!(error.contains(part), "{command:?}: {error}");
        }
    }

    #[test]
    fn a_path_without_directories_says_so() {
        let error = ExecutableSearch::default().find("sh").unwrap_err();
        assert!(error.contains("nowhere to look"), "{error}");
        assert!(ExecutableSearch::default().find("/bin/sh").is_ok());
    }

    #[test]
    fn a_script_is_found_with_its_interpreters() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, first: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("{first}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let names = |command: &str| {
            let found = search().find(command).unwrap();
            found.chain.into_iter().map(|e| e.path.rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let real = |name: &str| {
            let path = std::fs::canonicalize(format!("/usr/bin/{name}")).unwrap();
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(names(&script("plain", "#!/bin/sh -e"))[0], real("sh"));
        let by_env = names(&script("by-env", "#!/usr/bin/env -S X=1 cat -u"));
        assert!(by_env.contains(&real("env")) && by_env.contains(&real("cat")), "{by_env:?}");
        let writable = ExecutableSearch { writable: vec![dir.path().to_str().unwrap().to_owned()], ..search() };
        assert!(writable.find(&script("planted", "#!/bin/sh")).unwrap_err().contains("may write"));
        let round = script("round", &format!("#!{}", dir.path().join("round").display()));
        assert!(search().find(&round).unwrap_err().contains("too many scripts"));
    }
}
