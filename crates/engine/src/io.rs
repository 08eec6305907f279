//! Where a run's streams go and come from, and how a caller stops it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cofferdam_policy::Stdin;

/// Which stream a chunk of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes output as it comes and says how much of it: the rest is offered again. With 0 it may wait a few milliseconds for
/// its reader, but no longer, since limits are looked at in between.
pub(crate) type Receive = Box<dyn FnMut(Stream, &[u8]) -> std::io::Result<usize> + Send>;

/// Tells a terminal's new size, rows and columns, when it has changed.
pub(crate) type Resize = Box<dyn FnMut() -> Option<(u16, u16)> + Send>;

/// What becomes of the output.
pub enum Output {
    /// Kept in the outcome, up to `limits.output_bytes` per stream.
    Capture,
    /// Handed over as it comes, up to `limits.output_bytes` per stream. While not all of it is taken the program waits once
    /// its pipe is full: that is the backpressure. An error ends the stream, not the run: the program finds its pipe
    /// broken.
    Stream(Receive),
}

/// Where standard input comes from when the policy says `caller`.
pub enum Input {
    /// End of file at once.
    Closed,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Copied from this descriptor as it becomes readable.
    Fd(OwnedFd),
}

/// An interactive terminal: the program gets a pseudo-terminal of its own; output comes as one stream. Its keys are what comes from
/// [`Io::input`], or from [`Io::keys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Rows at the start.
    pub rows: u16,
    /// Columns at the start.
    pub columns: u16,
}

/// Takes a directory that a run left behind.
pub type HandedBack = Box<dyn FnOnce(OwnedFd) + Send>;

/// A run's streams.
pub struct Io {
    /// Stand behind the arguments of the policy's command, for this run: what differs between runs of one prepared
    /// policy. Other people's programs take none.
    pub arguments: Vec<String>,
    /// Called once the tree is dead, with the root of the tmpfs that [`crate::Prepared::hands_back`] named. Nothing in it
    /// is trusted: the program wrote it.
    pub handed_back: Option<HandedBack>,
    /// Used when the policy's `command.stdin` is `caller`.
    pub input: Input,
    /// Where output goes.
    pub output: Output,
    /// Whether the run ends, by `limits.output_bytes`, where captured output is longer than that; it is cut otherwise.
    pub cut_ends_run: bool,
    /// `Some` for an interactive run.
    pub terminal: Option<Terminal>,
    /// With a terminal: its keys, where standard input is a stream of its own, as for a pager at the end of a pipe.
    pub keys: Option<OwnedFd>,
    /// Set from anywhere to end the run: the tree is killed.
    pub cancel: Cancel,
    /// What the program gets first when the run is cancelled: a signal, and time to end by itself. Backends that are other
    /// people's programs kill at once.
    pub signals: Option<SignalsPassed>,
    /// New terminal sizes, asked after each wake-up; return `Some((rows, columns))` when it changed.
    pub resize: Option<Resize>,
    /// Directory in which the changed files of copy-on-write mounts are kept; must not exist or be empty.
    pub keep_changes: Option<std::path::PathBuf>,
    /// Tells what the run uses while it runs.
    pub monitor: crate::monitor::Monitor,
}

impl Io {
    /// What a run reads on standard input: the policy's own text, or what the caller gave, which is taken. Where there is a
    /// terminal without keys of its own, that carries it instead.
    pub(crate) fn take_input(&mut self, policy: &Stdin) -> Input {
        match policy {
            Stdin::Text(text) => Input::Bytes(text.clone().into_bytes()),
            Stdin::Caller if self.terminal.is_none() || self.keys.is_some() => {
                std::mem::replace(&mut self.input, Input::Closed)
            }
            Stdin::Closed | Stdin::Caller => Input::Closed,
        }
    }
}

impl Default for Io {
    fn default() -> Self {
        Io {
            arguments: Vec::new(),
            handed_back: None,
            input: Input::Closed,
            output: Output::Capture,
            cut_ends_run: false,
            terminal: None,
            keys: None,
            cancel: Cancel::default(),
            signals: None,
            resize: None,
            keep_changes: None,
            monitor: crate::monitor::Monitor::default(),
        }
    }
}

/// Signals that a cancelled run passes on to its program before its tree is killed.
pub struct SignalsPassed {
    /// The signal to pass on, asked for when the run is cancelled; `None` kills at once.
    pub signal: Box<dyn FnMut() -> Option<u8> + Send>,
    /// How long the program may take to end. Cancelling it again kills at once.
    pub grace: Duration,
}

/// A flag that ends a run. Supervision looks at it after each wake-up and at least ten times a second when armed.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks for the end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// The flag itself, for a signal handler: storing true is what [`Cancel::cancel`] does.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Takes the request back: the program has got a signal instead.
    pub(crate) fn withdraw(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Whether it was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
