//! The caller's terminal during an interactive run: raw while the program runs, and restored however the run ends.
//!
//! It is the one on standard input, or, where that is a pipe or a file, the one that the caller's session has (tty(4)). Only the
//! caller's terminal; the program's pseudo-terminal is the engine's.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use cofferdam_engine::Terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
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

/// The terminal, for its modes, its size and its keys.
fn device() -> BorrowedFd<'static> {
    static OF_SESSION: OnceLock<Option<OwnedFd>> = OnceLock::new();
    if isatty(rustix::stdio::stdin()) {
        return rustix::stdio::stdin();
    }
    let open = || open("/dev/tty", OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).ok();
    OF_SESSION.get_or_init(open).as_ref().map_or(rustix::stdio::stdin(), |device| device.as_fd())
}

/// Whether this process may read keys: one in the background that reads from its terminal is stopped.
fn is_in_foreground() -> bool {
    rustix::termios::tcgetpgrp(device()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// The keys of the terminal, where standard input is something else.
///
/// # Errors
/// No more descriptors can be had.
pub(crate) fn keys_beside_input() -> std::io::Result<Option<OwnedFd>> {
    if isatty(rustix::stdio::stdin()) { Ok(None) } else { device().try_clone_to_owned().map(Some) }
}

/// A terminal in raw mode, until it is dropped.
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Makes the terminal raw: every key goes to the program, control characters included.
    ///
    /// # Errors
    /// The modes of the terminal cannot be read or set.
    pub(crate) fn enter() -> Result<RawTerminal, CliRefusal> {
        let failed = |e: rustix::io::Errno| CliRefusal::new("terminal", format!("cannot set the terminal up: {e}"));
        let before = tcgetattr(device()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(|e| e.into_inner()) = Some(before);
        let guard = RawTerminal(());
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        tcsetattr(device(), OptionalActions::Drain, &raw).map_err(failed)?;
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
        && let Err(error) = tcsetattr(device(), OptionalActions::Flush, &before)
    {
        print_error(&format!("cannot put the terminal back: {error}"), Some("stty sane"));
    }
}

/// Reads and drops the answers of the terminal to a program that has ended, which the caller's shell would otherwise read as
/// typed text. For output that went to a terminal and contained queries. Keys that were typed meanwhile are dropped as well.
pub(crate) fn discard_answers() {
    let (input, output) = (device(), rustix::stdio::stdout());
    if !is_in_foreground() || !isatty(output) {
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
    let input = device();
    matches!(poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout)), Ok(1..))
}

/// The terminal's size; 24 × 80 when the terminal does not report one.
pub(crate) fn size() -> Terminal {
    match tcgetwinsize(device()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Terminal { rows: size.ws_row, columns: size.ws_col },
        _ => Terminal { rows: 24, columns: 80 },
    }
}

/// Requires a terminal: on standard input, or beside a pipe or a file there.
///
/// # Errors
/// There is none, or its keys are somebody else's.
pub(crate) fn require() -> Result<(), CliRefusal> {
    if isatty(rustix::stdio::stdin()) || isatty(device()) && isatty(rustix::stdio::stdout()) && is_in_foreground() {
        return Ok(());
    }
    Err(CliRefusal::new(
        "terminal",
        "-t needs a terminal on standard input, or on standard output beside a pipe; there is none",
    )
    .hint("-i, without -t: standard input is passed on as it is"))
}
