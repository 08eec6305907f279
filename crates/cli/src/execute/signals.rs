//! The signals that end or resize a run. They are caught until the run has ended, because the process tree has to be killed
//! and the terminal restored first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use cofferdam_engine::{Cancel, SignalsPassed};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::low_level::signal_name;

use crate::refusal::CliRefusal;

/// The signals that are caught during a run.
pub(super) struct Signals {
    /// Cancels the run when a signal arrives; a run that passes the first one on takes that request back.
    pub cancel: Cancel,
    /// Set when the terminal's size changes; only with a terminal.
    pub resized: Option<Arc<AtomicBool>>,
    /// The last signal that arrived and was not passed on, 0 for none.
    number: Arc<AtomicUsize>,
    /// The signal that was passed on, 0 for none.
    passed: Arc<AtomicUsize>,
}

/// SIGHUP, as it is passed on.
const HANGUP: u8 = 1;

impl Signals {
    /// Catches SIGHUP, SIGINT, SIGQUIT and SIGTERM, and SIGWINCH with a terminal.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub(super) fn catch(tty: bool) -> Result<Signals, CliRefusal> {
        let cancel = Cancel::default();
        let number = Arc::new(AtomicUsize::new(0));
        let failed = |e: std::io::Error| CliRefusal::new("signals", format!("cannot catch signals: {e}"));
        // An ignored signal stays ignored: nohup, and a shell that starts a background process, want the run to continue.
        let ignored = ignored();
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
            let value = usize::try_from(signal).expect("signal numbers are positive");
            // The number first: when the flag is set, the number is there.
            signal_hook::flag::register_usize(signal, Arc::clone(&number), value).map_err(failed)?;
            signal_hook::flag::register(signal, cancel.flag()).map_err(failed)?;
        }
        let mut resized = None;
        if tty {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(SIGWINCH, Arc::clone(&flag)).map_err(failed)?;
            resized = Some(flag);
        }
        Ok(Signals { cancel, number, resized, passed: Arc::default() })
    }

    /// What the run passes on to its program when a signal arrives. At a terminal of its own every signal is a hangup, at
    /// which shells end that take no other signal.
    pub(super) fn passed(&self, grace: Duration, tty: bool) -> Option<SignalsPassed> {
        let (number, passed) = (Arc::clone(&self.number), Arc::clone(&self.passed));
        let signal = Box::new(move || {
            let first = number.swap(0, Ordering::SeqCst);
            passed.store(first, Ordering::SeqCst);
            let first = u8::try_from(first).ok().filter(|signal| *signal != 0);
            first.map(|signal| if tty { HANGUP } else { signal })
        });
        (!grace.is_zero()).then_some(SignalsPassed { signal, grace })
    }

    /// Whether the program got the signal, and ended by itself.
    pub(super) fn ended_program(&self) -> bool {
        self.passed.load(Ordering::SeqCst) != 0 && !self.cancel.is_cancelled()
    }

    /// The name of the signal that the program got, and at which it did not end in time. None where a second signal killed it.
    pub(super) fn killed_after_grace(&self) -> Option<&'static str> {
        let killed = self.passed.load(Ordering::SeqCst) != 0 && self.cancel.is_cancelled();
        let once = self.number.load(Ordering::SeqCst) == 0;
        (killed && once).then(|| signal_name(self.caught()).unwrap_or("a signal"))
    }

    /// The number of the last signal that arrived, 0 for none.
    pub(super) fn caught(&self) -> i32 {
        let last = [&self.number, &self.passed].map(|number| number.load(Ordering::SeqCst));
        last.into_iter().find(|number| *number != 0).and_then(|number| i32::try_from(number).ok()).unwrap_or(0)
    }
}

/// The signals that this process ignores since it was started, as a mask whose first bit is signal 1. Empty where the kernel
/// does not report them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
