//! One line on a terminal during a run that says nothing for a while, so that a person knows that it runs and how to end it.

use std::io::IsTerminal as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::output::excerpt::Excerpt;
use crate::output::stderr::print_note;

/// How long a program may be silent before the line.
const SILENCE: Duration = Duration::from_secs(10);

/// The end of the run, as the thread that waits for it sees it.
type RunOver = Arc<(Mutex<bool>, Condvar)>;

/// A thread that writes the line, until it is dropped.
pub(super) struct SignOfLife {
    over: RunOver,
    thread: Option<JoinHandle<()>>,
}

impl SignOfLife {
    /// Waits for output, where standard error is a terminal. A thread that cannot be started only costs the line.
    pub(super) fn start(excerpts: Arc<Mutex<[Excerpt; 2]>>) -> Option<SignOfLife> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let over = RunOver::default();
        let awaited = Arc::clone(&over);
        let thread = std::thread::Builder::new().name("sign-of-life".into()).spawn(move || {
            let (lock, condition) = &*awaited;
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = condition.wait_timeout_while(guard, SILENCE, |over| !*over);
            let is_over = *waited.unwrap_or_else(PoisonError::into_inner).0;
            let silent = || excerpts.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Excerpt::is_empty);
            if !is_over && silent() {
                print_note(&format!("running for {} s without output; Ctrl-C ends it", SILENCE.as_secs()), None);
            }
        });
        Some(SignOfLife { over, thread: Some(thread.ok()?) })
    }
}

impl Drop for SignOfLife {
    fn drop(&mut self) {
        let (lock, condition) = &*self.over;
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = true;
        condition.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().ok(); // it only writes a line
        }
    }
}
