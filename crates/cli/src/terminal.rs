//! The caller's own terminal during an interactive run: raw while the program has it, and back on every way out.
//!
//! Only the caller's terminal; the program's pseudo-terminal is the engine's.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cofferdam_engine::Terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use crate::report::Refusal;

/// What a terminal is asked after the program's own questions: to end a string that was left open, and for its primary
/// device attributes, which every terminal that answers anything has. Answers come in the order of the questions.
const LAST_QUESTION: &[u8] = b"\x1b\\\x1b[c";
/// How long a terminal may take for its first answer.
const FIRST_ANSWER: Duration = Duration::from_millis(250);
/// How long after an answer another one is awaited: the program may have asked the same question many times.
const NEXT_ANSWER: Duration = Duration::from_millis(60);
/// How long answers are read at most.
const ALL_ANSWERS: Duration = Duration::from_secs(1);

/// How the terminal was before; held outside of the guard so that a panic, which aborts, can put it back too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A terminal in raw mode, until it is dropped.
pub struct Raw(());

impl Raw {
    /// Makes the terminal on standard input raw: every key goes to the program, control characters included.
    pub fn enter() -> Result<Raw, Refusal> {
        let failed = |e: rustix::io::Errno| Refusal::new("terminal", format!("cannot set the terminal up: {e}"));
        let before = tcgetattr(rustix::stdio::stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(|e| e.into_inner()) = Some(before);
        let guard = Raw(());
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &raw).map_err(failed)?;
        Ok(guard)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // Input that is still there goes: what the terminal answered to the program's last control sequences would be typed
    // into the caller's shell.
    if let Ok(mut before) = BEFORE.try_lock()
        && let Some(before) = before.take()
        && let Err(error) = tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &before)
    {
        crate::report::print_error(&format!("cannot put the terminal back: {error}"), Some("stty sane"));
    }
}

/// Reads and drops what the terminal answers to a program that has ended, which the caller's shell would read as typed. Call
/// it where the program's output asked for answers and went to a terminal. Keys that were typed meanwhile go as well.
pub fn discard_answers() {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    // A process in the background may not read: it would be stopped.
    let foreground = rustix::termios::tcgetpgrp(input).is_ok_and(|group| group == rustix::process::getpgrp());
    if !foreground || !isatty(output) {
        return;
    }
    let raw = if BEFORE.lock().unwrap_or_else(|e| e.into_inner()).is_some() { None } else { Raw::enter().ok() };
    if rustix::io::write(output, LAST_QUESTION).is_ok() {
        let begun = Instant::now();
        let mut patience = FIRST_ANSWER;
        while begun.elapsed() < ALL_ANSWERS && is_readable(patience) {
            let mut answer = [0; 4096];
            if !matches!(rustix::io::read(input, &mut answer), Ok(1..)) {
                break;
            }
            patience = NEXT_ANSWER;
        }
    }
    drop(raw);
}

fn is_readable(patience: Duration) -> bool {
    let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
    let input = rustix::stdio::stdin();
    matches!(poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&patience)), Ok(1..))
}

/// The terminal's size; 24 × 80 when it does not know its own.
pub fn size() -> Terminal {
    match tcgetwinsize(rustix::stdio::stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Terminal { rows: size.ws_row, columns: size.ws_col },
        _ => Terminal { rows: 24, columns: 80 },
    }
}

/// Refuses when standard input is no terminal.
pub fn require() -> Result<(), Refusal> {
    if isatty(rustix::stdio::stdin()) {
        return Ok(());
    }
    Err(Refusal::new("terminal", "-t needs a terminal on standard input, which is none")
        .hint("leave out -t; -i alone passes standard input on"))
}
