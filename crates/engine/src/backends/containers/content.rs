//! What content and files are known by: hashes as text, and a stamp that distinguishes a file from every other and from
//! itself after a change. Reads nothing but what stat(2) said.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

/// An inode whose times are older than this has other times once it changes again.
const TICK: Duration = Duration::from_millis(50);

/// Bytes as two digits each.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What tells a file from every other, and, once it is [`settle`]d, from itself after a change.
pub(super) fn stamp(stat: &Metadata) -> String {
    let numbers = [
        stat.dev().cast_signed(),
        stat.ino().cast_signed(),
        stat.len().cast_signed(),
        stat.mtime(),
        stat.mtime_nsec(),
        stat.ctime(),
        stat.ctime_nsec(),
    ];
    let mut hasher = Sha256::new();
    for number in numbers {
        hasher.update(number.to_le_bytes());
    }
    hex(&hasher.finalize())
}

/// Waits until a change that comes now gives an inode other times than `newest`, seconds and nanoseconds: the clock of those
/// ticks slowly. To be called before what is there is read.
pub(super) fn settle(newest: (i64, i64)) {
    let newest = UNIX_EPOCH
        + Duration::new(u64::try_from(newest.0).unwrap_or(0), u32::try_from(newest.1).unwrap_or(0).min(999_999_999));
    let quiet = newest + TICK;
    if let Ok(wait) = quiet.duration_since(SystemTime::now()) {
        std::thread::sleep(wait.min(TICK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_settled_has_another_stamp_after_every_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let seen = || std::fs::metadata(&path).unwrap();
        std::fs::write(&path, "one").unwrap();
        let mut stamps = vec![stamp(&seen())];
        assert_eq!(stamps[0], stamp(&seen()));
        for text in ["two", "six", "seven"] {
            settle((seen().ctime(), seen().ctime_nsec()));
            std::fs::write(&path, text).unwrap();
            assert!(!stamps.contains(&stamp(&seen())), "{text}");
            stamps.push(stamp(&seen()));
        }
        std::fs::copy(&path, dir.path().join("copy")).unwrap();
        assert!(!stamps.contains(&stamp(&std::fs::metadata(dir.path().join("copy")).unwrap())));
    }

    #[test]
    fn only_what_has_just_changed_is_waited_for() {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let since = now();
        settle((since.as_secs().cast_signed(), since.subsec_nanos().into()));
        assert!(now() - since >= TICK);
        // Times of tomorrow or of before 1970 stop nobody for longer.
        let before = std::time::Instant::now();
        settle((since.as_secs().cast_signed() - 1, 0));
        settle((-5, -5));
        assert!(before.elapsed() < TICK);
        settle((since.as_secs().cast_signed() + 86_400, 0));
        assert!(before.elapsed() >= TICK);
    }
}
