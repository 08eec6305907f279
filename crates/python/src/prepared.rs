//! A policy that is ready to run, many times and from several threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_compat::{self as compat, Form, Loaded};
use cofferdam_engine as engine;
use cofferdam_engine::{Cancel, Input, Io};
use cofferdam_policy::{Backend, Field, Policy, Stdin};
use pyo3::prelude::*;

use crate::errors::{PolicyError, of_failure};
use crate::here;
use crate::outcome::{Outcome, python};
use crate::recorded;
use crate::run::Run;

/// How often a run on the calling thread asks Python whether a signal has come, such as Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(50);

/// A policy with its backend, ready to run.
#[pyclass(frozen, module = "cofferdam._native")]
#[derive(Debug)]
pub struct Prepared {
    policy: Policy,
    nsjail: Option<PathBuf>,
    /// Where nsjail is not installed, the jail stands in for it.
    or_jail: bool,
    /// The trail that its runs are recorded in, in place of the variable's.
    audit_trail: Option<PathBuf>,
    notes: Vec<String>,
    keep_ready: usize,
    owned: Mutex<Arc<Owned>>,
}

/// What belongs to the process that made it: sandboxes staged ahead, and the thread that stages them.
#[derive(Debug)]
struct Owned {
    pid: u32,
    prepared: Option<engine::Prepared>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // After a fork, the sandboxes are the other process's, and the thread is not in this one.
        if self.pid != std::process::id() {
            std::mem::forget(self.prepared.take());
        }
    }
}

impl Owned {
    fn new(policy: &Policy, nsjail: Option<&Path>, or_jail: bool, keep_ready: usize) -> Result<Owned, engine::Failure> {
        let engine = here::engine(nsjail);
        let prepared = if or_jail { engine.prepare_or_jail(policy)? } else { engine.prepare(policy)? };
        let prepared = prepared.keep_ready(keep_ready);
        Ok(Owned { pid: std::process::id(), prepared: Some(prepared) })
    }
}

/// What a caller sets beside a policy.
#[derive(Debug, Default)]
pub struct Changes {
    /// Another command.
    pub command: Option<Vec<String>>,
    /// Another wall limit, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Standard input is the caller's.
    pub stdin: bool,
    /// `python` means `python3` where the sandbox has only that.
    pub python3: bool,
}

impl Changes {
    fn apply(self, policy: &mut Policy) -> PyResult<()> {
        if let Some(command) = self.command {
            policy.command.argv = command;
        }
        if policy.command.argv.is_empty() {
            return Err(PolicyError::new_err("command.argv: the policy names no program, and the call none either"));
        }
        if let Some(ms) = self.timeout_ms {
            // What the policy names is a ceiling; what it does not name is only the built-in value.
            let most = if policy.is_required(Field::WallTime) { policy.limits.wall_ms } else { u64::MAX };
            policy.limits.wall_ms = ms.min(most);
        }
        // A policy with a text of its own keeps it unless the caller has another.
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

impl Prepared {
    fn make(
        py: Python<'_>,
        policy: Policy,
        nsjail: Option<PathBuf>,
        or_jail: bool,
        notes: Vec<String>,
        keep_ready: usize,
    ) -> PyResult<Prepared> {
        let owned = py.detach(|| Owned::new(&policy, nsjail.as_deref(), or_jail, keep_ready));
        let owned = Mutex::new(Arc::new(owned.map_err(|failure| of_failure(&failure))?));
        Ok(Prepared { policy, nsjail, or_jail, audit_trail: None, notes, keep_ready, owned })
    }

    /// What is ready in this process.
    fn current(&self) -> PyResult<Arc<Owned>> {
        let mut slot = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.pid != std::process::id() {
            let owned = Owned::new(&self.policy, self.nsjail.as_deref(), self.or_jail, self.keep_ready);
            *slot = Arc::new(owned.map_err(|failure| of_failure(&failure))?);
        }
        Ok(Arc::clone(&slot))
    }
}

/// Standard input as bytes; end of file where there are none.
fn input(stdin: Option<&[u8]>) -> Input {
    stdin.map_or(Input::Closed, |bytes| Input::Bytes(bytes.to_vec()))
}

#[pymethods]
impl Prepared {
    /// Makes a policy ready: JSON, and what the caller sets beside it. `stored` is where an exported profile has it.
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
    ) -> PyResult<Prepared> {
        let mut policy = Policy::decode(policy).map_err(|errors| {
            PolicyError::new_err(match &stored {
                Some(file) => format!("{}: {errors}\nhint: export the profile again", file.display()),
                None => errors.to_string(),
            })
        })?;
        Changes { command, timeout_ms, stdin, python3 }.apply(&mut policy)?;
        let prepared = Prepared::make(py, policy, None, false, Vec::new(), keep_ready)?;
        Ok(Prepared { audit_trail, ..prepared })
    }

    /// Makes a configuration of any form ready for one of the compatible executors. `content` is the file's and that of the
    /// policy beside it, read by the caller: what is kept by its content must have been made of it.
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
    ) -> PyResult<Prepared> {
        let Loaded { mut policy, form, notes } =
            compat::config::decode_both(&content.0, content.1.as_deref(), &path).map_err(PolicyError::new_err)?;
        policy.backend = match executor {
            "nsjail" => Backend::Nsjail,
            "seatbelt" => Backend::Seatbelt,
            _ => Backend::Auto,
        };
        // An older configuration may not say how long it runs.
        if form == Form::Legacy && policy.limits.wall_ms == Policy::base().limits.wall_ms {
            policy.limits.wall_ms = default_timeout.saturating_mul(1000);
        }
        Changes { command, timeout_ms, stdin: false, python3: true }.apply(&mut policy)?;
        Prepared::make(py, policy, nsjail_path, true, notes, keep_ready)
    }

    /// What was changed to make a policy of an older configuration, one line each.
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

    /// Why that one.
    #[getter]
    fn backend_reason(&self) -> PyResult<String> {
        let owned = self.current()?;
        Ok(owned.prepared.as_ref().map_or("", engine::Prepared::backend_reason).to_owned())
    }

    /// What will hold, per field, as far as it can be told before the run.
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

    /// What the backend will do, for people: steps in order.
    #[getter]
    fn plan(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let owned = self.current()?;
        python(py, &owned.prepared.as_ref().map(engine::Prepared::plan_json))
    }

    /// Runs it on this thread, without Python's lock. A signal's exception ends the run.
    #[pyo3(signature = (stdin=None, *, keep_changes=None))]
    fn run(&self, py: Python<'_>, stdin: Option<&[u8]>, keep_changes: Option<PathBuf>) -> PyResult<Outcome> {
        let owned = self.current()?;
        let trail = recorded::trail(self.audit_trail.as_deref())?;
        let input = input(stdin);
        let cancel = Cancel::default();
        let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
        let (stop, told) = (cancel.clone(), Arc::clone(&raised));
        let mut asked = Instant::now();
        // The one thing that is called after each wake-up on this thread.
        let signals = move || {
            if asked.elapsed() >= SIGNALS {
                asked = Instant::now();
                if let Err(error) = Python::attach(|py| py.check_signals()) {
                    stop.cancel();
                    told.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
            None
        };
        let io = Io { input, cancel, resize: Some(Box::new(signals)), keep_changes, ..Io::default() };
        let outcome = py.detach(move || {
            owned.prepared.as_ref().map(|prepared| recorded::run(prepared, &self.policy, trail.as_ref(), io))
        });
        if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        outcome.map(Outcome::of).ok_or_else(|| crate::errors::CofferdamError::new_err("nothing is prepared"))
    }

    /// Runs it on a thread of its own. `stream`: the output is to be read while it runs. `notify` is called on that
    /// thread when there is output again, and at the end. `pipe`: standard input comes through a pipe, whose other end
    /// `take_stdin` gives.
    #[pyo3(signature = (stdin=None, *, pipe=false, keep_changes=None, stream=false, notify=None))]
    fn start(
        &self,
        stdin: Option<&[u8]>,
        pipe: bool,
        keep_changes: Option<PathBuf>,
        stream: bool,
        notify: Option<Py<PyAny>>,
    ) -> PyResult<Run> {
        let owned = self.current()?;
        let (policy, trail) = (self.policy.clone(), recorded::trail(self.audit_trail.as_deref())?);
        let (input, ours) = match pipe {
            true => std::io::pipe().map(|(theirs, ours)| (Input::Fd(theirs.into()), Some(ours.into())))?,
            false => (input(stdin), None),
        };
        let io = Io { input, keep_changes, ..Io::default() };
        Run::start(io, ours, stream, notify, move |io| {
            owned.prepared.as_ref().map(|prepared| recorded::run(prepared, &policy, trail.as_ref(), io))
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<Prepared {:?} for the {}>", self.policy.command.argv, self.backend()?))
    }
}
