//! The outcome of a run and its resource usage, as Python objects. Data only.

use cofferdam_compat as compat;
use cofferdam_engine as engine;
use cofferdam_engine::Ending;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde::Serialize;
use serde_json::Value;

use crate::errors::CofferdamError;
use crate::hint_wording::{in_python, message_in_python};

/// The outcome of one run, with the fields of the command's `--json`.
#[pyclass(frozen, module = "cofferdam", name = "Outcome")]
#[derive(Debug)]
pub struct PyOutcome(pub engine::Outcome);

impl PyOutcome {
    /// The engine's outcome, with its hint rewritten for Python.
    pub fn of(mut outcome: engine::Outcome) -> PyOutcome {
        if let Some(hint) = outcome.error.as_mut().and_then(|failure| failure.hint.as_mut()) {
            *hint = in_python(hint);
        }
        PyOutcome(outcome)
    }
}

#[pymethods]
impl PyOutcome {
    /// `exited`, `signalled`, `timed_out`, `limit_exceeded`, `violation` or `setup_failed`.
    #[getter]
    fn outcome(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        python(py, &self.0.outcome)
    }

    /// Whether the program exited with 0.
    #[getter]
    fn success(&self) -> bool {
        self.0.success
    }

    /// The program's exit code, when it exited.
    #[getter]
    fn exit_code(&self) -> Option<i32> {
        self.0.exit_code
    }

    /// The signal that ended it, when one did.
    #[getter]
    fn signal(&self) -> Option<i32> {
        self.0.signal
    }

    /// Standard output; empty if it was read while it ran.
    #[getter]
    fn stdout(&self) -> &str {
        &self.0.stdout
    }

    /// Standard error; empty if it was read while it ran.
    #[getter]
    fn stderr(&self) -> &str {
        &self.0.stderr
    }

    /// Whether a stream was longer than `limits.output_bytes`.
    #[getter]
    fn truncated(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        python(py, &self.0.truncated)
    }

    /// From the start of the program to its end, milliseconds.
    #[getter]
    fn execution_time_ms(&self) -> f64 {
        self.0.execution_time_ms
    }

    /// From the call to the start of the program, milliseconds.
    #[getter]
    fn setup_time_ms(&self) -> f64 {
        self.0.setup_time_ms
    }

    /// Peak memory of the whole tree, bytes.
    #[getter]
    fn memory_used_bytes(&self) -> Option<u64> {
        self.0.memory_used_bytes
    }

    /// CPU time of the whole tree, seconds.
    #[getter]
    fn cpu_time_seconds(&self) -> Option<f64> {
        self.0.cpu_time_seconds
    }

    /// Peak number of processes and threads.
    #[getter]
    fn pid_count(&self) -> Option<u64> {
        self.0.pid_count
    }

    /// The limit that was exceeded.
    #[getter]
    fn limit(&self) -> Option<&'static str> {
        self.0.limit.map(cofferdam_policy::Field::name)
    }

    /// The refused operations.
    #[getter]
    fn violations(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        python(py, &self.0.violations)
    }

    /// Whether `violations` has all refused operations of reported kinds.
    #[getter]
    fn violations_complete(&self) -> bool {
        self.0.violations_complete
    }

    /// Files changed in copy-on-write mounts.
    #[getter]
    fn changes(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        python(py, &self.0.changes)
    }

    /// How many more files changed than are listed.
    #[getter]
    fn changes_omitted(&self) -> u64 {
        self.0.changes_omitted
    }

    /// The enforcement of each field.
    #[getter]
    fn enforcement(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        python(py, &self.0.enforcement)
    }

    /// The backend that ran it.
    #[getter]
    fn backend(&self) -> &str {
        &self.0.backend
    }

    /// Why that backend was chosen.
    #[getter]
    fn backend_reason(&self) -> &str {
        &self.0.backend_reason
    }

    /// Unique to this run.
    #[getter]
    fn run_id(&self) -> &str {
        &self.0.run_id
    }

    /// Files collected.
    #[getter]
    fn artifacts(&self) -> Vec<String> {
        self.0.artifacts.clone()
    }

    /// Why nothing ran, or what went wrong afterwards.
    #[getter]
    fn error(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        python(py, &self.0.error)
    }

    /// The outcome as plain data.
    fn to_dict(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        python(py, &self.0)
    }

    /// The outcome as JSON.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// The outcome in the fields of the compatible interface.
    fn to_execution_result(&self) -> PyResult<PyExecutionResult> {
        let truncated = self.0.truncated.stdout || self.0.truncated.stderr;
        let result = compat::ExecutionResult::of(self.0.clone())
            .map_err(|error| CofferdamError::new_err(message_in_python(&error)))?;
        Ok(PyExecutionResult::new(result, truncated))
    }

    fn __repr__(&self) -> String {
        let o = &self.0;
        let code = o.exit_code.map_or_else(String::new, |code| format!(", exit_code={code}"));
        let signal = o.signal.map_or_else(String::new, |signal| format!(", signal={signal}"));
        format!("<Outcome {}{code}{signal}, {:.1} ms>", word(o.outcome), o.execution_time_ms)
    }
}

fn word(ending: Ending) -> String {
    serde_json::to_value(ending).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The result of an execution, in the fields of the compatible interface.
#[pyclass(frozen, get_all, module = "cofferdam", name = "ExecutionResult")]
#[derive(Debug, Clone)]
pub struct PyExecutionResult {
    /// The program exited with code 0.
    success: bool,
    /// Its exit code; 128 + N for signal N; -1 for the time limit.
    exit_code: Option<i32>,
    /// Standard output.
    stdout: String,
    /// Standard error.
    stderr: String,
    /// From its start to its end, milliseconds.
    execution_time_ms: u64,
    /// Highest memory use of the whole tree, bytes.
    memory_used_bytes: Option<u64>,
    /// Why it failed, if the exit code does not say; `Timeout` for the time limit.
    error: Option<String>,
    /// A stream was longer than the policy's limit of output, and is truncated.
    truncated: bool,
}

impl PyExecutionResult {
    fn new(r: compat::ExecutionResult, truncated: bool) -> PyExecutionResult {
        PyExecutionResult {
            success: r.success,
            exit_code: r.exit_code,
            stdout: r.stdout,
            stderr: r.stderr,
            execution_time_ms: r.execution_time_ms,
            memory_used_bytes: r.memory_used_bytes,
            error: r.error,
            truncated,
        }
    }
}

#[pymethods]
impl PyExecutionResult {
    fn __repr__(&self) -> String {
        format!(
            "ExecutionResult(success={}, exit_code={}, execution_time_ms={}, error={})",
            if self.success { "True" } else { "False" },
            self.exit_code.map_or_else(|| "None".to_owned(), |code| code.to_string()),
            self.execution_time_ms,
            self.error.as_ref().map_or_else(|| "None".to_owned(), |error| format!("{error:?}"))
        )
    }
}

/// The resource usage of a running sandbox.
#[pyclass(frozen, get_all, module = "cofferdam", name = "ResourceUsage")]
#[derive(Debug, Clone)]
pub struct PyResourceUsage {
    /// Memory of the tree, bytes.
    memory_bytes: u64,
    /// CPU time of the tree so far, seconds.
    cpu_time_seconds: f64,
    /// Processes and threads.
    pid_count: u32,
}

impl From<engine::ResourceUsage> for PyResourceUsage {
    fn from(u: engine::ResourceUsage) -> PyResourceUsage {
        PyResourceUsage { memory_bytes: u.memory_bytes, cpu_time_seconds: u.cpu_time_seconds, pid_count: u.pid_count }
    }
}

#[pymethods]
impl PyResourceUsage {
    fn __repr__(&self) -> String {
        format!(
            "ResourceUsage(memory_bytes={}, cpu_time_seconds={}, pid_count={})",
            self.memory_bytes, self.cpu_time_seconds, self.pid_count
        )
    }
}

/// Any serialisable value, as Python data.
pub(crate) fn python(py: Python<'_>, value: &impl Serialize) -> PyResult<Py<PyAny>> {
    let value = serde_json::to_value(value).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    data(py, &value)
}

fn data(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::Null => py.None(),
        Value::Bool(truth) => truth.into_py_any(py)?,
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(n), _) => n.into_py_any(py)?,
            (_, Some(n)) => n.into_py_any(py)?,
            _ => number.as_f64().into_py_any(py)?,
        },
        Value::String(text) => text.into_py_any(py)?,
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(data(py, item)?)?;
            }
            list.into_py_any(py)?
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, field) in fields {
                dict.set_item(name, data(py, field)?)?;
            }
            dict.into_py_any(py)?
        }
    })
}
