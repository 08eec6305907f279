//! A run on a thread of its own: its output while it runs, its resource usage, and its end.
//!
//! ```text
//! the run's thread ── chunks (bounded: the program waits) ──▶ read    notify: there is something again
//!                 └── outcome ─────────────────────────────▶ wait
//! ```
//!
//! Callers wait without Python's lock, and are woken by signals. A run is cancelled when its object is dropped.

use std::collections::VecDeque;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_engine as engine;
use cofferdam_engine::{Cancel, Io, Monitor, Output, Stream};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::attach::attached;
use crate::errors::CofferdamError;
use crate::outcome::{PyOutcome, PyResourceUsage};

/// Most unread output, bytes. Beyond that the program blocks.
const MOST_WAITING: usize = 1 << 20;
/// How long the run's thread waits for its reader before it checks the limits again.
const PATIENCE: Duration = Duration::from_millis(5);
/// How long a caller waits before it checks for signals of Python.
const SLICE: Duration = Duration::from_millis(50);
/// Stack of a run's thread: supervision needs far less.
const STACK: usize = 1 << 20;

#[derive(Debug, Default)]
struct OutputState {
    chunks: VecDeque<(Stream, Vec<u8>)>,
    waiting: usize,
    /// Accepts all output, since a caller waits for the end.
    hurried: bool,
    /// The reader has gone.
    closed: bool,
    over: bool,
    outcome: Option<Py<PyOutcome>>,
}

#[derive(Debug, Default)]
struct OutputShared {
    state: Mutex<OutputState>,
    changed: Condvar,
}

impl OutputShared {
    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hurry(&self) {
        self.lock().hurried = true;
        self.changed.notify_all();
    }

    /// Accepts as much as there is room for. True if there was nothing before.
    fn push(&self, stream: Stream, bytes: &[u8]) -> (usize, bool) {
        let mut state = self.lock();
        if state.closed {
            return (bytes.len(), false);
        }
        if state.waiting >= MOST_WAITING && !state.hurried {
            state = self.changed.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
        }
        // The policy's limit of output applies to buffered output as well.
        let room = if state.hurried { usize::MAX } else { MOST_WAITING.saturating_sub(state.waiting) };
        let taken = bytes.len().min(room);
        if taken == 0 {
            return (0, false);
        }
        let first = state.chunks.is_empty();
        state.waiting += taken;
        state.chunks.push_back((stream, bytes[..taken].to_vec()));
        self.changed.notify_all();
        (taken, first)
    }
}

/// A run in progress, or one that has ended.
#[pyclass(frozen, module = "cofferdam._native", name = "Run")]
#[derive(Debug)]
pub struct PyRun {
    shared: Arc<OutputShared>,
    cancel: Cancel,
    monitor: Monitor,
    streams: bool,
    /// The process that started it, whose thread it runs on. A fork of that has no such thread.
    process: u32,
    /// The write end of the standard input pipe, until it is taken.
    stdin: Mutex<Option<OwnedFd>>,
}

impl Drop for PyRun {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl PyRun {
    /// Starts it.
    pub fn start(
        mut io: Io,
        stdin: Option<OwnedFd>,
        stream: bool,
        notify: Option<Py<PyAny>>,
        work: impl FnOnce(Io) -> Option<engine::Outcome> + Send + 'static,
    ) -> PyResult<PyRun> {
        let shared = Arc::<OutputShared>::default();
        let notify = notify.map(Arc::new);
        let run = PyRun {
            shared: Arc::clone(&shared),
            cancel: io.cancel.clone(),
            monitor: io.monitor.clone(),
            streams: stream,
            process: std::process::id(),
            stdin: Mutex::new(stdin),
        };
        if stream {
            let (shared, notify) = (Arc::clone(&shared), notify.clone());
            io.output = Output::Stream(Box::new(move |stream, bytes| {
                let (taken, first) = shared.push(stream, bytes);
                if first {
                    call_back(notify.as_deref());
                }
                Ok(taken)
            }));
        }
        let thread = move || {
            // A panic ends the run as well, so that callers do not wait forever.
            let came = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(io))).ok().flatten();
            let outcome = came.and_then(|outcome| attached(|py| Py::new(py, PyOutcome::of(outcome)).ok()).flatten());
            let mut state = shared.lock();
            (state.outcome, state.over) = (outcome, true);
            drop(state);
            shared.changed.notify_all();
            call_back(notify.as_deref());
            // Dropped with Python's lock, so that it is freed at once.
            attached(|_| drop(notify));
        };
        std::thread::Builder::new()
            .name("cofferdam-run".into())
            .stack_size(STACK)
            .spawn(thread)
            .map_err(|error| CofferdamError::new_err(format!("cannot start a thread for the run: {error}")))?;
        Ok(run)
    }

    /// Waits until `ready` returns a value, or until the timeout.
    fn wait_until<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        mut ready: impl FnMut(&mut OutputState) -> Option<T> + Send,
    ) -> PyResult<Option<T>> {
        let until = deadline(timeout)?;
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err("the run was started by another process, of which this one is a fork"));
        }
        loop {
            let found = py.detach(|| {
                let mut state = self.shared.lock();
                if let Some(found) = ready(&mut state) {
                    self.shared.changed.notify_all();
                    return Some(found);
                }
                let left = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
                let mut state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                let found = ready(&mut state);
                if found.is_some() {
                    self.shared.changed.notify_all();
                }
                found
            });
            if found.is_some() || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(found);
            }
            py.check_signals()?;
        }
    }
}

fn call_back(notify: Option<&Py<PyAny>>) {
    let Some(notify) = notify else { return };
    attached(|py| {
        if let Err(error) = notify.call0(py) {
            error.write_unraisable(py, Some(notify.bind(py)));
        }
    });
}

fn deadline(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    if seconds.is_nan() {
        return Err(PyValueError::new_err("timeout: not a number"));
    }
    let most = Duration::from_secs(1 << 32);
    let duration = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(most).min(most);
    Ok(Some(Instant::now() + duration))
}

type OutputChunk<'py> = (&'static str, Bound<'py, PyBytes>);

fn chunk(py: Python<'_>, (stream, bytes): (Stream, Vec<u8>)) -> OutputChunk<'_> {
    let name = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    (name, PyBytes::new(py, &bytes))
}

fn pop(state: &mut OutputState) -> Option<(Stream, Vec<u8>)> {
    let chunk = state.chunks.pop_front()?;
    state.waiting -= chunk.1.len();
    Some(chunk)
}

#[pymethods]
impl PyRun {
    /// Waits for the end, at most `timeout` seconds. None if it is not over by then. Unread output is collected.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyOutcome>>> {
        self.shared.hurry();
        let over = self.wait_until(py, timeout, |state| state.over.then_some(()))?;
        if over.is_none() {
            return Ok(None);
        }
        match &self.shared.lock().outcome {
            Some(outcome) => Ok(Some(outcome.clone_ref(py))),
            None => Err(PyRuntimeError::new_err("the run's thread failed")),
        }
    }

    /// The next piece of output, waiting at most `timeout` seconds. None at the end, or if there is none by then.
    #[pyo3(signature = (timeout=None))]
    fn read<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<OutputChunk<'py>>> {
        if !self.streams {
            return Err(PyValueError::new_err("the output is kept for the outcome: start the run with stream=True"));
        }
        let found = self.wait_until(py, timeout, |state| match pop(state) {
            Some(chunk) => Some(Some(chunk)),
            None => state.over.then_some(None),
        })?;
        Ok(found.flatten().map(|found| chunk(py, found)))
    }

    /// All unread output.
    fn take<'py>(&self, py: Python<'py>) -> Vec<OutputChunk<'py>> {
        let mut state = self.shared.lock();
        state.waiting = 0;
        let chunks = std::mem::take(&mut state.chunks);
        drop(state);
        self.shared.changed.notify_all();
        chunks.into_iter().map(|found| chunk(py, found)).collect()
    }

    /// The descriptor of the standard input pipe, which the caller closes. None if it was taken, or there is none.
    fn take_stdin(&self) -> Option<i32> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take().map(IntoRawFd::into_raw_fd)
    }

    /// Cancels the run: the process tree is killed.
    fn cancel(&self) {
        self.cancel.cancel();
        self.shared.hurry();
    }

    /// Whether it is over.
    #[getter]
    fn done(&self) -> bool {
        self.shared.lock().over
    }

    /// The present resource usage; None before it has begun and after it has ended.
    fn usage(&self, py: Python<'_>) -> Option<PyResourceUsage> {
        py.detach(|| self.monitor.usage()).map(Into::into)
    }

    /// A snapshot every `interval` seconds, until it is over.
    fn samples(&self, interval: f64) -> PyResult<PySamples> {
        let interval = Duration::try_from_secs_f64(interval)
            .map_err(|_| PyValueError::new_err("interval: seconds, not negative"))?;
        Ok(PySamples {
            samples: Mutex::new(self.monitor.every(interval.max(Duration::from_millis(1)))),
            shared: Arc::clone(&self.shared),
        })
    }
}

/// A stream of snapshots.
#[pyclass(frozen, module = "cofferdam._native", name = "Samples")]
#[derive(Debug)]
pub struct PySamples {
    samples: Mutex<engine::Samples>,
    shared: Arc<OutputShared>,
}

#[pymethods]
impl PySamples {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> Option<PyResourceUsage> {
        let next = || {
            // A run that never began has no snapshots.
            if self.shared.lock().over {
                return None;
            }
            self.samples.lock().unwrap_or_else(PoisonError::into_inner).next()
        };
        py.detach(next).map(Into::into)
    }
}
