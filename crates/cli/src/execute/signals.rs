//! The signals that end or resize a run. They are caught until the run has ended, because the process tree has to be killed
//! and the terminal restored first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cofferdam_engine::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};

use crate::refusal::CliRefusal;

/// The signals that are caught during a run.
pub(super) struct Signals {
    /// Cancels the run when a signal arrives.
    pub cancel: Cancel,
    /// Set when the terminal's size changes; only with a terminal.
    pub resized: Option<Arc<AtomicBool>>,
    number: Arc<AtomicUsize>,
}

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
        Ok(Signals { cancel, number, resized })
    }

    /// The number of the last signal that arrived, 0 for none.
    pub(super) fn caught(&self) -> i32 {
        i32::try_from(self.number.load(Ordering::SeqCst)).unwrap_or(0)
    }
}

/// The signals that this process ignores since it was started, as a mask whose first bit is signal 1. Empty where the kernel
/// does not report them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
