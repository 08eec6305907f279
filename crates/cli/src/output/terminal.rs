//! The caller's terminal during an interactive run: raw while the program runs, and restored however the run ends.
//!
//! Only the caller's terminal; the program's pseudo-terminal is the engine's.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cofferdam_engine::Terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use super::stderr::print_error;
use crate::refusal::CliRefusal;

/// The query that follows the program's own: it ends a string that the program left open, and asks for the primary device
/// attributes, which every terminal that answers queries has. Answers come in the order of the queries.
const LAST_QUERY: &[u8] = b"\x1b\\\x1b[c";
/// How long a terminal may take for its first answer.
const FIRST_ANSWER: Duration = Duration::from_millis(250);
/// How long to wait for another answer after one: the program may have sent the same query many times.
const NEXT_ANSWER: Duration = Duration::from_millis(60);
/// How long answers are read in all.
const ALL_ANSWERS: Duration = Duration::from_secs(1);

/// The modes of the terminal before the run. Outside of the guard, so that a panic, which aborts, can restore them too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A terminal in raw mode, until it is dropped.
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Makes the terminal on standard input raw: every key goes to the program, control characters included.
    ///
    /// # Errors
    /// The modes of the terminal cannot be read or set.
    pub(crate) fn enter() -> Result<RawTerminal, CliRefusal> {
        let failed = |e: rustix::io::Errno| CliRefusal::new("terminal", format!("cannot set the terminal up: {e}"));
        let before = tcgetattr(rustix::stdio::stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(|e| e.into_inner()) = Some(before);
        let guard = RawTerminal(());
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &raw).map_err(failed)?;
        Ok(guard)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // Pending input is dropped: an answer to the program's last query would otherwise reach the caller's shell as typed text.
    if let Ok(mut before) = BEFORE.try_lock()
        && let Some(before) = before.take()
        && let Err(error) = tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &before)
    {
        print_error(&format!("cannot put the terminal back: {error}"), Some("stty sane"));
    }
}

/// Reads and drops the answers of the terminal to a program that has ended, which the caller's shell would otherwise read as
/// typed text. For output that went to a terminal and contained queries. Keys that were typed meanwhile are dropped as well.
pub(crate) fn discard_answers() {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    // A background process that reads from its terminal is stopped.
    let foreground = rustix::termios::tcgetpgrp(input).is_ok_and(|group| group == rustix::process::getpgrp());
    if !foreground || !isatty(output) {
        return;
    }
    let raw = if BEFORE.lock().unwrap_or_else(|e| e.into_inner()).is_some() { None } else { RawTerminal::enter().ok() };
    if rustix::io::write(output, LAST_QUERY).is_ok() {
        let begun = Instant::now();
        let mut timeout = FIRST_ANSWER;
        while begun.elapsed() < ALL_ANSWERS && is_readable(timeout) {
            let mut answer = [0; 4096];
            if !matches!(rustix::io::read(input, &mut answer), Ok(1..)) {
                break;
            }
            timeout = NEXT_ANSWER;
        }
    }
    drop(raw);
}

fn is_readable(timeout: Duration) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
    let input = rustix::stdio::stdin();
    matches!(poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout)), Ok(1..))
}

/// The terminal's size; 24 × 80 when the terminal does not report one.
pub(crate) fn size() -> Terminal {
    match tcgetwinsize(rustix::stdio::stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Terminal { rows: size.ws_row, columns: size.ws_col },
        _ => Terminal { rows: 24, columns: 80 },
    }
}

/// Requires a terminal on standard input.
///
/// # Errors
/// Standard input is not a terminal.
pub(crate) fn require() -> Result<(), CliRefusal> {
    if isatty(rustix::stdio::stdin()) {
        return Ok(());
    }
    Err(CliRefusal::new("terminal", "-t needs a terminal on standard input, which is none")
        .hint("-i, without -t: standard input is passed on as it is"))
}
