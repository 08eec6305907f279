//! Answers that may be a moment old: bounded in number and age. Knows nothing of what they are about.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old an answer may be.
const AGE: Duration = Duration::from_millis(100);
/// How many are kept; then all are forgotten, so that questions cannot fill memory.
const MOST: usize = 4096;
/// Longer questions are not remembered.
const LONGEST: usize = 4096;

/// Answers by question.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<String, (Instant, bool)>>);

impl Cache {
    /// The answer to a question, worked out where none is kept that is young enough.
    pub fn get(&self, question: &str, answer: impl FnOnce() -> bool) -> bool {
        if question.len() > LONGEST {
            return answer();
        }
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, known)) = lock().get(question)
            && made.elapsed() < AGE
        {
            return *known;
        }
        let made = Instant::now(); // what it is worked out from is no younger
        let known = answer();
        let mut kept = lock();
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(question.to_owned(), (made, known));
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_for_a_moment_and_the_number_is_bounded() {
        let cache = Cache::default();
        assert!(cache.get("a", || true));
        assert!(cache.get("a", || false), "kept");
        std::thread::sleep(AGE + Duration::from_millis(20));
        assert!(!cache.get("a", || false), "too old");
        for i in 0..2 * MOST {
            cache.get(&i.to_string(), || true);
        }
        assert!(cache.0.lock().unwrap().len() <= MOST);
    }
}
