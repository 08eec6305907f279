//! That there are no device files where a runtime would let a program open them, and in a directory of the host that is the
//! root no FIFOs and no mounts. Only looks.
//!
//! A bind can be mounted nodev; a root cannot be, and of the runtimes only runc has a list of devices of its own. A FIFO can
//! be written to in a root that is read-only, and what is mounted below one is as writable as on the host.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use cofferdam_policy::Field;

use super::rootfs::bound;
use crate::backends::containers::Mounted;
use crate::failure::Failure;
use crate::plan::aliases::Aliases;

/// What every container has in its own `/dev`: null, zero, full, random, urandom, tty and ptmx. They lead to nothing else.
pub(crate) const HARMLESS: [(u32, u32); 7] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)];
/// How deep is looked. Deeper paths are longer than what a program may name.
const DEEPEST: usize = 2000;

/// What is looked for in a tree.
#[derive(Debug, Clone, Copy)]
struct Sought<'a> {
    /// Devices but these; none where the program opens none.
    devices: Option<&'a [(u32, u32)]>,
    /// FIFOs.
    fifos: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FoundDevice {
    Device(PathBuf),
    Fifo(PathBuf),
}

/// None in these trees, the first of which is a root, but in that one's own `/dev`, which is covered.
///
/// # Errors
/// There is one, or a tree cannot be read.
pub(super) fn none(trees: &[PathBuf]) -> Result<(), Failure> {
    let Some((root, binds)) = trees.split_first() else { return Ok(()) };
    look(root, Field::Root, &[root.join("dev")], EVERY_DEVICE)?;
    binds.iter().try_for_each(|tree| look(tree, Field::Mounts, &[], EVERY_DEVICE))
}

/// None in what is bound but harmless ones, where a runtime's binds are not nodev and its list of devices has more than those.
///
/// # Errors
/// As [`none`].
pub(crate) fn none_bound(mounts: &[Mounted]) -> Result<(), Failure> {
    let sought = Sought { devices: Some(&HARMLESS), fifos: false };
    bound(mounts).iter().try_for_each(|tree| look(tree, Field::Mounts, &[], sought))
}

/// That a directory of the host can be the root though a runtime makes nothing but its topmost mount read-only: there is no FIFO in
/// it but where one of these mounts covers it, and where `devices` could be opened, none of those.
///
/// # Errors
/// There is one, or it cannot be read.
pub(super) fn can_be_root(root: &Path, mounts: &[Mounted], devices: bool) -> Result<(), Failure> {
    let mut covered = vec![root.join("dev"), root.join("proc")];
    covered.extend(mounts.iter().map(|mount| root.join(mount.target().trim_start_matches('/'))));
    look(root, Field::Root, &covered, Sought { devices: devices.then_some(&[]), fifos: true })
}

/// That nothing is mounted below a directory of the host: a runtime would show it as writable as it is there.
///
/// # Errors
/// Something is, or this cannot be known.
pub(super) fn nothing_mounted_below(root: &Path) -> Result<(), Failure> {
    let shown = root.display();
    let hint = "unmount it, copy the directory, or use --backend jail with --root";
    let mounts = Aliases::read().map_err(|e| {
        Failure::new(Field::Root, format!("cannot look for mounts below {shown}: {e}")).hint("mount /proc here")
    })?;
    match mounts.first_below(&root.to_string_lossy()) {
        None => Ok(()),
        Some(point) => {
            let point = cofferdam_policy::text::escape(point.as_bytes());
            let message = format!("{point} is a mount below {shown}, and a program could write there");
            Err(Failure::new(Field::Root, message).hint(hint))
        }
    }
}

const EVERY_DEVICE: Sought<'_> = Sought { devices: Some(&[]), fifos: false };

fn look(tree: &Path, field: Field, covered: &[PathBuf], sought: Sought<'_>) -> Result<(), Failure> {
    let failure = |message: String, hint: &str| Err(Failure::new(field, message).hint(hint));
    match find(tree, covered, sought) {
        Ok(None) => Ok(()),
        Ok(Some(FoundDevice::Device(device))) => failure(
            format!("{} is a device, and the program could open it", device.display()),
            "remove it, or name a mount that leaves it out: /dev inside has what programs need; or use --backend jail",
        ),
        Ok(Some(FoundDevice::Fifo(fifo))) => failure(
            format!("{} is a FIFO, which can be written to though the root is read-only", fifo.display()),
            "remove it, or use --backend jail with --root",
        ),
        Err(e) => failure(
            format!("cannot look for devices and FIFOs in {}: {e}", tree.display()),
            "use --backend jail, which mounts it without devices",
        ),
    }
}

fn find(tree: &Path, covered: &[PathBuf], sought: Sought<'_>) -> std::io::Result<Option<FoundDevice>> {
    let is_device = |path: &Path, kind: &std::fs::FileType| {
        let Some(harmless) = sought.devices else { return false };
        let numbers = || std::fs::symlink_metadata(path).map(|found| found.rdev());
        let known = |number: u64| harmless.contains(&(rustix::fs::major(number), rustix::fs::minor(number)));
        // One that cannot be looked at any more is no known one.
        kind.is_block_device() || (kind.is_char_device() && !numbers().is_ok_and(known))
    };
    let own = match std::fs::symlink_metadata(tree) {
        // What is written for the run itself is not there yet.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        own => own?.file_type(),
    };
    if !own.is_dir() {
        return Ok(is_device(tree, &own).then(|| FoundDevice::Device(tree.to_owned())));
    }
    let mut open = vec![(tree.to_owned(), 0)];
    while let Some((directory, depth)) = open.pop() {
        let entries = match std::fs::read_dir(&directory) {
            // Gone meanwhile.
            Err(e) if depth > 0 && e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && !can_be_searched(&directory) => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            if is_device(&path, &kind) {
                return Ok(Some(FoundDevice::Device(path)));
            }
            if sought.fifos && kind.is_fifo() && !covered.contains(&path) {
                return Ok(Some(FoundDevice::Fifo(path)));
            }
            if kind.is_dir() && depth < DEEPEST && !covered.contains(&path) {
                open.push((path, depth + 1));
            }
        }
    }
    Ok(None)
}

/// Whether a name in it can be looked up by this user, or can be made to be. Where none can, the program, which is the same one
/// then, opens nothing below; root looks everywhere.
fn can_be_searched(directory: &Path) -> bool {
    let own = std::fs::symlink_metadata(directory).is_ok_and(|m| m.uid() == rustix::process::geteuid().as_raw());
    own || !std::fs::symlink_metadata(directory.join("."))
        .is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_wherever_it_is_but_where_it_is_covered() {
        let dir = tempfile::tempdir().unwrap();
        let trees = [dir.path().to_owned()];
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::create_dir_all(dir.path().join("dev")).unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.path().join("a/link")).unwrap();
        std::fs::write(dir.path().join("a/b/file"), "").unwrap();
        none(&trees).unwrap();
        assert!(none(&["/dev/null".into()]).unwrap_err().message.contains("/dev/null is a device"));
        if !rustix::process::geteuid().is_root() {
            return; // devices are root's to make
        }
        use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
        let device = |at: &str| {
            let path = dir.path().join(at);
            mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 3)).unwrap();
        };
        device("dev/null");
        none(&trees).unwrap();
        let bind = |source: PathBuf| {
            let target = "/in".to_owned();
            [Mounted::Bind { source, target, writable: false, exec: false, directory: true }]
        };
        device("a/b/null");
        none_bound(&bind(dir.path().join("a"))).unwrap();
        let console = dir.path().join("a/console");
        mknodat(CWD, &console, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(5, 1)).unwrap();
        let failure = none_bound(&bind(dir.path().join("a"))).unwrap_err();
        assert!(failure.message.contains("a/console is a device"), "{failure:?}");
        std::fs::remove_file(console).unwrap();
        let failure = none(&trees).unwrap_err();
        assert!(failure.message.contains("a/b/null is a device") && failure.hint.is_some(), "{failure:?}");
        let bound = none(&[dir.path().join("dev/none"), dir.path().to_owned()]).unwrap_err();
        assert_eq!((failure.step.as_str(), bound.step.as_str()), ("filesystem.root", "filesystem.mounts"));
    }

    #[test]
    fn a_fifo_is_found_in_a_root_but_where_it_is_covered() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let root = tempfile::tempdir().unwrap();
        for name in ["run", "tmp", "dev"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
            mknodat(CWD, root.path().join(name).join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        }
        let tmpfs =
            |target: &str| Mounted::Tmpfs { target: target.into(), bytes: 1, mode: 0o755, exec: false, writable: true };
        can_be_root(root.path(), &[tmpfs("/tmp"), tmpfs("/run")], true).unwrap();
        let failure = can_be_root(root.path(), &[tmpfs("/tmp")], false).unwrap_err();
        assert!(failure.message.contains("run/pipe is a FIFO") && failure.hint.is_some(), "{failure:?}");
        assert_eq!(failure.step.as_str(), "filesystem.root");
        none(&[root.path().to_owned()]).unwrap();
    }

    #[test]
    fn a_mount_below_a_root_is_found() {
        let below = tempfile::tempdir().unwrap();
        nothing_mounted_below(below.path()).unwrap();
        let failure = nothing_mounted_below(Path::new("/")).unwrap_err();
        assert!(failure.message.contains(" is a mount below /") && failure.hint.is_some(), "{failure:?}");
    }
}
