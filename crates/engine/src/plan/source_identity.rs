//! Whether a mount source is still the file that the caller of the engine decided to mount (`Filesystem::identities`).
//!
//! A backend that mounts by descriptor asks with what it has opened. One that has another program mount a path asks before
//! that program starts, and compares what it has mounted before the sandbox's program starts (`external::mounted`).

use std::os::unix::fs::MetadataExt as _;

use cofferdam_policy::{FileIdentity, Mount, Policy};

use crate::failure::{FailedStep, Failure};

/// The device and inode, as init compares them, that the source has to have; `None` where the caller did not say.
pub(crate) fn expected(policy: &Policy, source: &str) -> Option<(u64, u64)> {
    let FileIdentity { device, inode } = *policy.filesystem.identities.get(source)?;
    Some((crate::plan::executables::device(device), inode))
}

/// Refuses what was found at the source of a mount where another file was judged, or nothing was there to be judged:
/// what appears in its place meanwhile was never decided on.
///
/// # Errors
/// It is another file.
pub(crate) fn compare(policy: &Policy, source: &str, found: (u64, u64), step: &FailedStep) -> Result<(), Failure> {
    match expected(policy, source) {
        Some(expected) if expected != found => Err(Failure::new(
            step,
            format!("the mount source {source} was replaced after it was checked, and is another file now"),
        )
        .hint("run it again, and do not let untrusted code write the directory that the source is in")),
        Some(_) => Ok(()),
        None => Err(appeared(source, step)),
    }
}

/// The refusal of a source that was not there when the policy's sources were judged.
pub(crate) fn appeared(source: &str, step: &FailedStep) -> Failure {
    Failure::new(
        step,
        format!("the mount source {source} appeared, or became readable, while the run was being planned"),
    )
    .hint("run it again, and do not let untrusted code write the directory that the source is in")
}

/// The same for every source of the policy, by its path.
///
/// # Errors
/// A source is another file, or is not there any more.
pub(crate) fn compare_all(policy: &Policy) -> Result<(), Failure> {
    for (index, mount) in policy.filesystem.mounts.iter().enumerate() {
        let Mount::Bind { source, .. } = mount else { continue };
        let found = std::fs::metadata(source);
        if expected(policy, source).is_none() && found.is_err() {
            continue; // an optional mount that is left out
        }
        let found = found.map_or((0, 0), |m| (crate::plan::executables::device(m.dev()), m.ino()));
        compare(policy, source, found, &FailedStep::mount_entry(index))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_at_the_path_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        std::fs::create_dir(&source).unwrap();
        let path = source.to_str().unwrap().to_owned();
        let text = format!(
            r#"{{"version": 1, "command": {{"argv": ["/bin/true"]}}, "filesystem": {{"mounts": [{{"type": "bind", "source": "{path}", "target": "/in"}}]}}}}"#
        );
        let mut policy = Policy::decode(text.as_bytes()).unwrap();
        assert!(compare_all(&policy).unwrap_err().message.contains("appeared"), "nothing was judged");
        let meta = std::fs::metadata(&source).unwrap();
        let identity = FileIdentity { device: meta.dev(), inode: meta.ino() };
        policy.filesystem.identities.insert(path.clone(), identity);
        assert!(compare_all(&policy).is_ok(), "it is the same");
        std::fs::rename(&source, dir.path().join("aside")).unwrap();
        assert!(compare_all(&policy).unwrap_err().message.contains(&path), "it is missing");
        std::os::unix::fs::symlink("/", &source).unwrap();
        let refused = compare_all(&policy).unwrap_err();
        assert_eq!(refused.step.as_str(), "filesystem.mounts[0]");
        assert!(refused.message.contains("was replaced"), "{refused:?}");
        std::fs::remove_file(&source).unwrap();
        std::fs::rename(dir.path().join("aside"), &source).unwrap();
        assert!(compare_all(&policy).is_ok(), "the same file is back");
    }
}
