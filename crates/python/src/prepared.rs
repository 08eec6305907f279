//! A prepared policy, which can run many times and from several threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_compat::{self as compat, Form, Loaded};
use cofferdam_engine as engine;
use cofferdam_engine::{Cancel, Input, Io};
use cofferdam_policy::{BackendName, Field, Policy, Stdin};
use pyo3::prelude::*;

use crate::audit;
use crate::errors::{PolicyError, of_failure};
use crate::host;
use crate::outcome::{PyOutcome, python};
use crate::run::PyRun;

/// How often a run on the calling thread checks for signals of Python, such as Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(50);

/// A policy prepared with its backend.
#[pyclass(frozen, module = "cofferdam._native", name = "Prepared")]
#[derive(Debug)]
pub struct PyPrepared {
    policy: Policy,
    nsjail: Option<PathBuf>,
    /// Whether the jail replaces nsjail, which is not installed.
    or_jail: bool,
    /// The audit trail of its runs, instead of the variable's.
    audit_trail: Option<PathBuf>,
    notes: Vec<String>,
    keep_ready: usize,
    owned: Mutex<Arc<Owned>>,
}

/// State that belongs to the process that created it: staged sandboxes, and the thread that stages them.
#[derive(Debug)]
struct Owned {
    pid: u32,
    prepared: Option<engine::Prepared>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // After a fork, the sandboxes belong to the parent, and the thread does not exist here.
        if self.pid != std::process::id() {
            std::mem::forget(self.prepared.take());
        }
    }
}

impl Owned {
    fn new(policy: &Policy, nsjail: Option<&Path>, or_jail: bool, keep_ready: usize) -> Result<Owned, engine::Failure> {
        let engine = host::engine(nsjail);
        let prepared = if or_jail { engine.prepare_or_jail(policy)? } else { engine.prepare(policy)? };
        let prepared = prepared.keep_ready(keep_ready);
        Ok(Owned { pid: std::process::id(), prepared: Some(prepared) })
    }
}

/// Settings of the caller in addition to a policy.
#[derive(Debug, Default)]
pub(crate) struct CallerSettings {
    /// A command that replaces the policy's.
    pub command: Option<Vec<String>>,
    /// A wall time limit that replaces the policy's, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Whether standard input is the caller's.
    pub stdin: bool,
    /// Whether `python` means `python3` if the sandbox has only that.
    pub python3: bool,
}

impl CallerSettings {
    fn apply(self, policy: &mut Policy) -> PyResult<()> {
        if let Some(command) = self.command {
            policy.command.argv = command;
        }
        if policy.command.argv.is_empty() {
            return Err(PolicyError::new_err("command.argv: the policy names no program, and the call none either"));
        }
        if let Some(ms) = self.timeout_ms {
            // A limit that the policy names cannot be exceeded; one that it does not name is only a default.
            let most = if policy.is_required(Field::WallTime) { policy.limits.wall_ms } else { u64::MAX };
            policy.limits.wall_ms = ms.min(most);
        }
        // A policy with its own input text keeps it unless the caller gives another.
        if self.stdin || !matches!(policy.command.stdin, Stdin::Text(_)) {
            policy.command.stdin = Stdin::Caller;
        }
        policy.validate().map_err(|errors| PolicyError::new_err(errors.to_string()))?;
        if self.python3 {
            cofferdam_engine::python_name::python3(policy);
        }
        Ok(())
    }
}

impl PyPrepared {
    fn make(
        py: Python<'_>,
        policy: Policy,
        nsjail: Option<PathBuf>,
        or_jail: bool,
        notes: Vec<String>,
        keep_ready: usize,
    ) -> PyResult<PyPrepared> {
        let owned = py.detach(|| Owned::new(&policy, nsjail.as_deref(), or_jail, keep_ready));
        let owned = Mutex::new(Arc::new(owned.map_err(|failure| of_failure(&failure))?));
        Ok(PyPrepared { policy, nsjail, or_jail, audit_trail: None, notes, keep_ready, owned })
    }

    /// The prepared policy of this process.
    fn current(&self) -> PyResult<Arc<Owned>> {
        let mut slot = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.pid != std::process::id() {
            let owned = Owned::new(&self.policy, self.nsjail.as_deref(), self.or_jail, self.keep_ready);
            *slot = Arc::new(owned.map_err(|failure| of_failure(&failure))?);
        }
        Ok(Arc::clone(&slot))
    }
}

/// Refuses to keep changes in a directory of Cofferdam's own: what a program writes must not become what a later sandbox obeys.
fn destination(directory: Option<&Path>) -> PyResult<()> {
    let Some(directory) = directory else { return Ok(()) };
    match engine::destination_fault(directory, &[]) {
        None => Ok(()),
        Some(fault) => {
            let text = format!("keep_changes: cannot keep changes in {}: {fault}", directory.display());
            Err(crate::errors::CofferdamError::new_err(format!("{text}\nhint: name a directory elsewhere")))
        }
    }
}

/// Standard input as bytes; end of file without any.
fn input(stdin: Option<&[u8]>) -> Input {
    stdin.map_or(Input::Closed, |bytes| Input::Bytes(bytes.to_vec()))
}

#[pymethods]
impl PyPrepared {
    /// Prepares a policy: its JSON, and the caller's settings. `stored` is its path in the profile store.
    #[staticmethod]
    #[pyo3(signature = (policy, *, stored=None, command=None, timeout_ms=None, stdin=false, python3=false, keep_ready=0, audit_trail=None))]
    #[expect(clippy::too_many_arguments, reason = "called by name")]
    fn from_policy(
        py: Python<'_>,
        policy: &[u8],
        stored: Option<PathBuf>,
        command: Option<Vec<String>>,
        timeout_ms: Option<u64>,
        stdin: bool,
        python3: bool,
        keep_ready: usize,
        audit_trail: Option<PathBuf>,
    ) -> PyResult<PyPrepared> {
        let mut policy = Policy::decode(policy).map_err(|errors| {
            PolicyError::new_err(match &stored {
                Some(file) => format!("{}: {errors}\nhint: export the profile again", file.display()),
                None => errors.to_string(),
            })
        })?;
        CallerSettings { command, timeout_ms, stdin, python3 }.apply(&mut policy)?;
        let prepared = PyPrepared::make(py, policy, None, false, Vec::new(), keep_ready)?;
        Ok(PyPrepared { audit_trail, ..prepared })
    }

    /// Prepares a configuration of any format for a compatible executor. `content` has the file's content and that of the policy beside
    /// it, read by the caller, so that a cache keyed by the content is consistent with it.
    #[staticmethod]
    #[pyo3(signature = (path, executor, content, *, nsjail_path=None, default_timeout=60, command=None, timeout_ms=None, keep_ready=0))]
    #[expect(clippy::too_many_arguments, reason = "called by name, from one place")]
    fn from_config(
        py: Python<'_>,
        path: PathBuf,
        executor: &str,
        content: (Vec<u8>, Option<Vec<u8>>),
        nsjail_path: Option<PathBuf>,
        default_timeout: u64,
        command: Option<Vec<String>>,
        timeout_ms: Option<u64>,
        keep_ready: usize,
    ) -> PyResult<PyPrepared> {
        let Loaded { mut policy, form, notes } =
            compat::config::decode_both(&content.0, content.1.as_deref(), &path).map_err(PolicyError::new_err)?;
        policy.backend = match executor {
            "nsjail" => BackendName::Nsjail,
            "seatbelt" => BackendName::Seatbelt,
            _ => BackendName::Auto,
        };
        // An older configuration may have no time limit.
        if form == Form::Legacy && policy.limits.wall_ms == Policy::base().limits.wall_ms {
            policy.limits.wall_ms = default_timeout.saturating_mul(1000);
        }
        CallerSettings { command, timeout_ms, stdin: false, python3: true }.apply(&mut policy)?;
        PyPrepared::make(py, policy, nsjail_path, true, notes, keep_ready)
    }

    /// What was changed to convert an older configuration, one line each.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// `jail`, `landlock` and so on.
    #[getter]
    fn backend(&self) -> PyResult<String> {
        let owned = self.current()?;
        Ok(owned.prepared.as_ref().map_or("", engine::Prepared::backend).to_owned())
    }

    /// Why that backend was chosen.
    #[getter]
    fn backend_reason(&self) -> PyResult<String> {
        let owned = self.current()?;
        Ok(owned.prepared.as_ref().map_or("", engine::Prepared::backend_reason).to_owned())
    }

    /// The expected enforcement of each field.
    #[getter]
    fn enforcement(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let owned = self.current()?;
        python(py, &owned.prepared.as_ref().map(engine::Prepared::enforcement))
    }

    /// The complete policy as JSON.
    #[getter]
    fn policy_json(&self) -> String {
        self.policy.to_json_pretty()
    }

    /// What the backend will do, for display: steps in order.
    #[getter]
    fn plan(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let owned = self.current()?;
        python(py, &owned.prepared.as_ref().map(engine::Prepared::plan_json))
    }

    /// Runs it on this thread, without Python's lock. A signal's exception ends the run.
    #[pyo3(signature = (stdin=None, *, keep_changes=None))]
    fn run(&self, py: Python<'_>, stdin: Option<&[u8]>, keep_changes: Option<PathBuf>) -> PyResult<PyOutcome> {
        let owned = self.current()?;
        let trail = audit::trail(self.audit_trail.as_deref())?;
        destination(keep_changes.as_deref())?;
        let input = input(stdin);
        let cancel = Cancel::default();
        let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
        let (stop, error_slot) = (cancel.clone(), Arc::clone(&raised));
        let mut asked = Instant::now();
        // This is called after each wake-up on this thread.
        let signals = move || {
            if asked.elapsed() >= SIGNALS {
                asked = Instant::now();
                if let Err(error) = Python::attach(|py| py.check_signals()) {
                    stop.cancel();
                    error_slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
            None
        };
        let io = Io { input, cancel, resize: Some(Box::new(signals)), keep_changes, ..Io::default() };
        let outcome = py.detach(move || {
            owned.prepared.as_ref().map(|prepared| audit::run(prepared, &self.policy, trail.as_ref(), io))
        });
        if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        outcome.map(PyOutcome::of).ok_or_else(|| crate::errors::CofferdamError::new_err("nothing is prepared"))
    }

    /// Runs it on a thread of its own. With `stream` its output has to be read while it runs. `notify` is called on that thread when there
    /// is new output, and at the end. With `pipe` standard input is a pipe, whose write end `take_stdin` returns.
    #[pyo3(signature = (stdin=None, *, pipe=false, keep_changes=None, stream=false, notify=None))]
    fn start(
        &self,
        stdin: Option<&[u8]>,
        pipe: bool,
        keep_changes: Option<PathBuf>,
        stream: bool,
        notify: Option<Py<PyAny>>,
    ) -> PyResult<PyRun> {
        let owned = self.current()?;
        let (policy, trail) = (self.policy.clone(), audit::trail(self.audit_trail.as_deref())?);
        destination(keep_changes.as_deref())?;
        let (input, ours) = match pipe {
            true => std::io::pipe().map(|(theirs, ours)| (Input::Fd(theirs.into()), Some(ours.into())))?,
            false => (input(stdin), None),
        };
        let io = Io { input, keep_changes, ..Io::default() };
        PyRun::start(io, ours, stream, notify, move |io| {
            owned.prepared.as_ref().map(|prepared| audit::run(prepared, &policy, trail.as_ref(), io))
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<Prepared {:?} for the {}>", self.policy.command.argv, self.backend()?))
    }
}
