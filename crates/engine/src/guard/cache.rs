//! Answers about files that may be a moment old: bounded in number and age, and given only while those files are untouched.
//! Knows nothing of what the answers say.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old an answer may be, whatever its files look like: a directory above them can have moved.
const AGE: Duration = Duration::from_millis(100);
/// How many are kept; then all are forgotten, so that questions cannot fill memory.
const MOST: usize = 4096;
/// Longer questions are not remembered.
const LONGEST: usize = 4096;

/// Answers by question.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<String, Kept>>);

#[derive(Debug, Clone)]
struct Kept {
    made: Instant,
    known: bool,
    files: Arc<[(PathBuf, Look)]>,
}

/// What a file looked like, by its name and behind a link: device, inode, mode, length, and when it was last
/// changed. `None` where there was none.
type Look = [Option<(u64, u64, u32, u64, i64, i64)>; 2];

fn look(path: &PathBuf) -> Look {
    let of = |m: std::fs::Metadata| (m.dev(), m.ino(), m.mode(), m.size(), m.ctime(), m.ctime_nsec());
    let named = std::fs::symlink_metadata(path).ok();
    let behind = named.as_ref().filter(|m| m.is_symlink()).and_then(|_| std::fs::metadata(path).ok());
    [named.map(of), behind.map(of)]
}

/// What an answer says, and the files that it is about besides those that are known before.
pub(super) struct Answer {
    /// It.
    pub known: bool,
    /// Files that it was read from; `None` where it is not to be kept.
    pub files: Option<Vec<PathBuf>>,
}

impl Cache {
    /// The answer to a question about some files, worked out where none is kept that is young enough and true to them.
    pub fn get(&self, question: &str, files: impl FnOnce() -> Vec<PathBuf>, answer: impl FnOnce() -> Answer) -> bool {
        if question.len() > LONGEST {
            return answer().known;
        }
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = lock().get(question).filter(|kept| kept.made.elapsed() < AGE).cloned();
        if let Some(kept) = kept
            && kept.files.iter().all(|(path, looked)| look(path) == *looked)
        {
            return kept.known;
        }
        // What it is worked out from is no younger than this.
        let made = Instant::now();
        let looks = |path: PathBuf| (look(&path), path);
        let mut looked: Vec<(Look, PathBuf)> = files().into_iter().map(looks).collect();
        let Answer { known, files } = answer();
        let mut kept = lock();
        let Some(files) = files else {
            kept.remove(question);
            return known;
        };
        looked.extend(files.into_iter().map(looks));
        if kept.len() >= MOST {
            kept.clear();
        }
        let files = looked.into_iter().map(|(look, path)| (path, look)).collect();
        kept.insert(question.to_owned(), Kept { made, known, files });
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(known: bool) -> Answer {
        Answer { known, files: Some(Vec::new()) }
    }

    #[test]
    fn an_answer_is_kept_for_a_moment_and_the_number_is_bounded() {
        let cache = Cache::default();
        assert!(cache.get("a", Vec::new, || answer(true)));
        assert!(cache.get("a", Vec::new, || answer(false)), "kept");
        std::thread::sleep(AGE + Duration::from_millis(20));
        assert!(!cache.get("a", Vec::new, || answer(false)), "too old");
        for i in 0..2 * MOST {
            cache.get(&i.to_string(), Vec::new, || answer(true));
        }
        assert!(cache.0.lock().unwrap().len() <= MOST);
    }

    #[test]
    fn an_answer_is_kept_while_its_files_are_untouched() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let cache = Cache::default();
        // Within its age, and after `change`: whether the answer was still the kept one.
        let asked = std::cell::Cell::new(0);
        let kept_after = |change: &dyn Fn()| {
            asked.set(asked.get() + 1);
            let question = asked.get().to_string();
            let before = || vec![at("file"), at("none")];
            let begun = Instant::now();
            cache.get(&question, before, || Answer { known: true, files: Some(vec![at("link")]) });
            change();
            let kept = cache.get(&question, before, || answer(false));
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
        let unkept = || Answer { known: true, files: None };
        assert!(cache.get("z", Vec::new, unkept) && !cache.get("z", Vec::new, || answer(false)));
    }
}
