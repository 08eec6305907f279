//! That there are no device files where a runtime would let a program open them. Only looks.
//!
//! A bind can be mounted nodev; a root cannot be, and of the runtimes only runc has a list of devices of its own.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use cofferdam_policy::Field;

use crate::outcome::Failure;

/// How deep is looked. Deeper paths are longer than what a program may name.
const DEEPEST: usize = 2000;

/// None in these trees, the first of which is a root, but in that one's own `/dev`, which is covered.
///
/// # Errors
/// There is one, or a tree cannot be read.
pub(super) fn none(trees: &[PathBuf]) -> Result<(), Failure> {
    for (i, tree) in trees.iter().enumerate() {
        let field = if i == 0 { Field::Root } else { Field::Mounts };
        let failure = |message: String, hint: &str| Failure {
            code: 125,
            step: field.name().into(),
            message,
            hint: Some(hint.into()),
        };
        let covered = (i == 0).then(|| tree.join("dev"));
        match find(tree, covered.as_deref()) {
            Ok(None) => {}
            Ok(Some(device)) => {
                return Err(failure(
                    format!("{} is a device, and the program could open it", device.display()),
                    "remove it, or name a mount that leaves it out: /dev inside has what programs need; or use --backend jail",
                ));
            }
            Err(e) => {
                let message = format!("cannot look for devices in {}: {e}", tree.display());
                return Err(failure(message, "use --backend jail, which mounts it without devices"));
            }
        }
    }
    Ok(())
}

fn find(tree: &Path, covered: Option<&Path>) -> std::io::Result<Option<PathBuf>> {
    let is_device = |kind: &std::fs::FileType| kind.is_block_device() || kind.is_char_device();
    let own = match std::fs::symlink_metadata(tree) {
        // What is written for the run itself is not there yet.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        own => own?.file_type(),
    };
    if !own.is_dir() {
        return Ok(is_device(&own).then(|| tree.to_owned()));
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
            if is_device(&kind) {
                return Ok(Some(entry.path()));
            }
            if kind.is_dir() && depth < DEEPEST && covered != Some(&*entry.path()) {
                open.push((entry.path(), depth + 1));
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
        device("a/b/null");
        let failure = none(&trees).unwrap_err();
        assert!(failure.message.contains("a/b/null is a device") && failure.hint.is_some(), "{failure:?}");
        let bound = none(&[dir.path().join("dev/none"), dir.path().to_owned()]).unwrap_err();
        assert_eq!((failure.step.as_str(), bound.step.as_str()), ("filesystem.root", "filesystem.mounts"));
    }
}
