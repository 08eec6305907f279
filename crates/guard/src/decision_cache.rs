//! Caches decisions about files, bounded in number and age. A refusal is cached for that time; a permission only while
//! the files that decided it are unchanged. Does not interpret the questions.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old an answer may be, whatever its files look like: a directory above them can have moved.
const AGE: Duration = Duration::from_millis(100);
/// Most entries; beyond that all are dropped, so that questions cannot fill memory.
const MOST: usize = 4096;
/// Longer questions are not remembered.
const LONGEST: usize = 4096;

/// Answers by question.
#[derive(Debug, Default)]
pub(super) struct DecisionCache(Mutex<HashMap<String, CachedDecision>>);

#[derive(Debug, Clone)]
struct CachedDecision {
    made: Instant,
    known: bool,
    files: Arc<[(CString, FileStats)]>,
}

/// What a file looked like, by its name and behind a link: device, inode, mode, length, and when it was last
/// changed. `None` where there was none.
type FileStats = [Option<(u64, u64, u32, i64, i64, u64)>; 2];

fn look(path: &CStr) -> FileStats {
    use rustix::fs::{FileType, Stat, lstat, stat};
    let of = |s: Stat| (s.st_dev, s.st_ino, s.st_mode, s.st_size, s.st_ctime, s.st_ctime_nsec);
    let named = lstat(path).ok();
    let behind =
        named.filter(|s| FileType::from_raw_mode(s.st_mode) == FileType::Symlink).and_then(|_| stat(path).ok());
    [named.map(of), behind.map(of)]
}

impl DecisionCache {
    /// The answer to a question that some files decide, worked out where none is kept that may be given. A permission
    /// comes with the other files that it was read from.
    pub(crate) fn allows(
        &self,
        question: &str,
        files: impl FnOnce() -> Vec<PathBuf>,
        answer: impl FnOnce() -> Option<Vec<PathBuf>>,
    ) -> bool {
        if question.len() > LONGEST {
            return answer().is_some();
        }
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = lock().get(question).filter(|kept| kept.made.elapsed() < AGE).cloned();
        if let Some(kept) = kept
            && (!kept.known || kept.files.iter().all(|(path, looked)| look(path) == *looked))
        {
            return kept.known;
        }
        // What it is worked out from is no younger than this.
        let made = Instant::now();
        // No file has a name with a NUL in it.
        let looks = |path: PathBuf| CString::new(path.into_os_string().into_vec()).ok().map(|path| (look(&path), path));
        let mut looked: Vec<(FileStats, CString)> = files().into_iter().filter_map(looks).collect();
        let answer = answer();
        let known = answer.is_some();
        looked.extend(answer.into_iter().flatten().filter_map(looks));
        let mut kept = lock();
        if kept.len() >= MOST {
            kept.clear();
        }
        let files = looked.into_iter().map(|(look, path)| (path, look)).collect();
        kept.insert(question.to_owned(), CachedDecision { made, known, files });
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Option<Vec<PathBuf>> {
        Some(Vec::new())
    }

    #[test]
    fn an_answer_is_kept_for_a_moment_and_the_number_is_bounded() {
        let cache = DecisionCache::default();
        assert!(cache.allows("a", Vec::new, allowed) && !cache.allows("b", Vec::new, || None));
        assert!(cache.allows("a", Vec::new, || None) && !cache.allows("b", Vec::new, allowed), "kept");
        std::thread::sleep(AGE + Duration::from_millis(20));
        assert!(!cache.allows("a", Vec::new, || None) && cache.allows("b", Vec::new, allowed), "too old");
        for i in 0..2 * MOST {
            cache.allows(&i.to_string(), Vec::new, allowed);
        }
        assert!(cache.0.lock().unwrap().len() <= MOST);
    }

    #[test]
    fn a_permission_is_kept_while_its_files_are_untouched() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let cache = DecisionCache::default();
        // Within its age, and after `change`: whether the answer was still the kept one.
        let asked = std::cell::Cell::new(0);
        let kept_after = |change: &dyn Fn()| {
            asked.set(asked.get() + 1);
            let question = asked.get().to_string();
            let before = || vec![at("file"), at("none")];
            let begun = Instant::now();
            cache.allows(&question, before, || Some(vec![at("link")]));
            change();
            let kept = cache.allows(&question, before, || None);
            (kept, begun.elapsed() < AGE)
        };
        for name in ["file", "other", "target"] {
            std::fs::write(at(name), name).unwrap();
        }
        symlink(at("target"), at("link")).unwrap();
        let changes: [(&str, &dyn Fn()); 6] = [
            ("chmod", &|| std::fs::set_permissions(at("file"), std::fs::Permissions::from_mode(0o600)).unwrap()),
            ("replaced", &|| std::fs::rename(at("other"), at("file")).unwrap()),
            ("written", &|| std::fs::write(at("target"), "more").unwrap()),
            ("made", &|| std::fs::write(at("none"), "").unwrap()),
            ("led elsewhere", &|| {
                std::fs::remove_file(at("link")).unwrap();
                symlink(at("file"), at("link")).unwrap();
            }),
            ("removed", &|| std::fs::remove_file(at("file")).unwrap()),
        ];
        for (change, make) in changes {
            std::thread::sleep(Duration::from_millis(20)); // longer than the grain of file times
            let untouched = std::iter::repeat_with(|| kept_after(&|| ())).find(|(_, in_time)| *in_time);
            assert_eq!(untouched, Some((true, true)), "{change}");
            std::thread::sleep(Duration::from_millis(20));
            assert!(!kept_after(make).0, "{change}");
        }
    }
}
