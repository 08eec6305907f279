//! The caller's own terminal during an interactive run: raw while the program has it, and back on every way out.
//!
//! Only the caller's terminal; the program's pseudo-terminal is the engine's.

use std::sync::Mutex;

use cofferdam_engine::Terminal;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use crate::report::Refusal;

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
