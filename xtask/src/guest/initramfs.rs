//! Packs a guest's file system: a cpio archive in the `newc` format (kernel documentation
//! `driver-api/early-userspace/buffer-format.rst`), written as a stream, uncompressed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use super::{GuestSpec, REPORTING};
use crate::Result;
use crate::shell::which;

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const DEVICE: u32 = 0o020_000;

/// A program and the shared libraries that `ldd` finds for it, each at its host path. Only for programs that are
/// trusted: `ldd` may run them.
pub(crate) fn with_libraries(host: &Path, guest: PathBuf) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut files = vec![(host.to_owned(), guest)];
    let Ok(listed) = Command::new("ldd").arg(host).output() else { return Err("cannot run ldd".into()) };
    // A static program makes ldd fail and has nothing to list.
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        if line.contains("not found") {
            return Err(format!("{} lacks a library: {}", host.display(), line.trim()));
        }
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        files.extend(path.map(|path| (PathBuf::from(path), PathBuf::from(path))));
    }
    Ok(files)
}

/// Writes the archive of one run.
pub(super) fn write(image: &Path, spec: &GuestSpec, init: &str, nonce: &str) -> Result {
    let busybox = which("busybox").ok_or("busybox is missing\nhint: apt-get install busybox-static")?;
    if with_libraries(&busybox, PathBuf::new())?.len() > 1 {
        return Err(format!("{} is not static\nhint: apt-get install busybox-static", busybox.display()));
    }
    let file = File::create(image).map_err(|error| format!("cannot make {}: {error}", image.display()))?;
    let mut archive = Archive { out: BufWriter::new(file), made: BTreeSet::new(), inode: 1 };
    let words: Vec<String> = spec.command.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    let (as_init, exec) = if spec.as_init { ("1", "exec ") } else { ("", "") };
    let patience = spec.timeout.saturating_sub(REPORTING).as_secs();
    let command =
        format!("NONCE={nonce}\nAS_INIT={as_init}\nPATIENCE={patience}\nrun() {{ {exec}{}; }}\n", words.join(" "));
    let mut pack = || -> io::Result<()> {
        for directory in ["proc", "sys", "dev", "tmp", "run", "root", "var/tmp", "etc", "busybox"] {
            archive.directories(Path::new(directory))?;
        }
        archive.entry(Path::new("dev/console"), DEVICE | 0o600, (5, 1), &[])?;
        archive.bytes(Path::new("init"), 0o755, init.as_bytes())?;
        archive.bytes(Path::new(".guest/command"), 0o600, command.as_bytes())?;
        archive.bytes(
            Path::new("etc/passwd"),
            0o644,
            b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
        )?;
        archive.bytes(Path::new("etc/group"), 0o644, b"root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n")?;
        archive.tree(&busybox, Path::new("busybox/busybox"))?;
        for (number, module) in spec.modules.iter().enumerate() {
            archive.tree(module, Path::new(&format!(".guest/modules/{number:03}.ko")))?;
        }
        spec.files.iter().try_for_each(|(host, guest)| archive.tree(host, guest))?;
        // A guest that brings no shell of its own gets busybox's, where scripts look for it.
        archive.link(Path::new("bin/sh"), Path::new("/busybox/busybox"))?;
        archive.entry(Path::new("TRAILER!!!"), 0, (0, 0), &[])?;
        archive.out.flush()
    };
    pack().map_err(|error| format!("cannot pack the guest's files: {error}"))
}

struct Archive {
    out: BufWriter<File>,
    /// What is there already, so that shared libraries and directories are packed once.
    made: BTreeSet<PathBuf>,
    inode: u32,
}

impl Archive {
    /// A file, a symbolic link or a whole directory of the host.
    fn tree(&mut self, host: &Path, guest: &Path) -> io::Result<()> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", host.display()));
        // What is named is followed; links inside a directory are kept as links.
        let data = std::fs::metadata(host).map_err(named)?;
        if data.is_dir() {
            self.directories(guest)?;
            for entry in std::fs::read_dir(host).map_err(named)? {
                let entry = entry?;
                let (from, to) = (entry.path(), guest.join(entry.file_name()));
                if entry.file_type()?.is_symlink() {
                    self.link(&to, &std::fs::read_link(from)?)?;
                } else {
                    self.tree(&from, &to)?;
                }
            }
            Ok(())
        } else if data.is_file() {
            let content = std::fs::read(host).map_err(named)?;
            self.bytes(guest, data.permissions().mode() & 0o7777, &content)
        } else {
            Err(named(io::Error::from(io::ErrorKind::Unsupported)))
        }
    }

    fn bytes(&mut self, guest: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        self.parents(guest)?;
        self.entry(guest, FILE | mode, (0, 0), content)
    }

    fn link(&mut self, guest: &Path, target: &Path) -> io::Result<()> {
        self.parents(guest)?;
        self.entry(guest, SYMLINK | 0o777, (0, 0), target.as_os_str().as_bytes())
    }

    fn parents(&mut self, guest: &Path) -> io::Result<()> {
        guest.parent().map_or(Ok(()), |parent| self.directories(parent))
    }

    /// The directory and all above it; the kernel makes none by itself.
    fn directories(&mut self, guest: &Path) -> io::Result<()> {
        let mut path = PathBuf::new();
        for part in guest.components() {
            if let Component::Normal(name) = part {
                path.push(name);
                self.entry(&path, DIRECTORY | 0o755, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, guest: &Path, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        let name = guest.strip_prefix("/").unwrap_or(guest);
        if !self.made.insert(name.to_owned()) {
            return Ok(());
        }
        let name: &OsStr = name.as_os_str();
        let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let size = u32::try_from(content.len()).map_err(too_long)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        let fields =
            [self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0].map(|n| format!("{n:08x}"));
        self.inode += 1;
        self.out.write_all(b"070701")?;
        fields.iter().try_for_each(|field| self.out.write_all(field.as_bytes()))?;
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        // Name and content each end on a multiple of four, counted from the start of the header.
        self.pad(110 + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out.write_all(&[0u8; 3][..written.next_multiple_of(4) - written])
    }
}
