//! Profiles for Python: compilation by the evaluator, and the store.

use std::path::PathBuf;

use cofferdam_profiles::cache::EvaluationCache;
use cofferdam_profiles::overrides;
use cofferdam_profiles::protocol::{Encoding, OutputFormat, RequestedOutput};
use cofferdam_profiles::{CompileRequest, Compiler, Id, Stored};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{of_compiler, of_store};
use crate::host;

/// One output: its text, or why the target cannot have one.
type Given = (Option<String>, Option<String>);

fn format(name: &str) -> PyResult<OutputFormat> {
    OutputFormat::ALL.iter().copied().find(|format| format.name() == name).ok_or_else(|| {
        let names: Vec<&str> = OutputFormat::ALL.iter().map(|format| format.name()).collect();
        PyValueError::new_err(format!("`{name}` is no format: {}", names.join(", ")))
    })
}

fn encoding(name: &str) -> PyResult<Encoding> {
    Encoding::ALL.iter().copied().find(|encoding| encoding.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Encoding::ALL.iter().map(|encoding| encoding.name()).collect();
        PyValueError::new_err(format!("`{name}` is no encoding: {}", names.join(", ")))
    })
}

/// Evaluates a profile by the program `helper`, in a sandbox unless `trusted`. Returns an output for each format, and the warnings.
#[pyfunction]
#[pyo3(signature = (helper, file, formats, *, encoding="json", overrides=vec![], imports=vec![], cache=None, trusted=false))]
#[expect(clippy::too_many_arguments, reason = "called by name, from one place")]
pub(crate) fn compile_profile(
    py: Python<'_>,
    helper: PathBuf,
    file: PathBuf,
    formats: Vec<String>,
    encoding: &str,
    overrides: Vec<String>,
    imports: Vec<PathBuf>,
    cache: Option<PathBuf>,
    trusted: bool,
) -> PyResult<(Vec<Given>, Vec<String>)> {
    let encoding = self::encoding(encoding)?;
    let outputs = formats
        .iter()
        .map(|name| Ok(RequestedOutput { format: format(name)?, encoding }))
        .collect::<PyResult<Vec<_>>>()?;
    let overrides = overrides
        .iter()
        .map(|text| overrides::parse(text).map_err(PyValueError::new_err))
        .collect::<PyResult<Vec<_>>>()?;
    let request = CompileRequest { file, overrides, outputs, imports };
    let compiled = py.detach(|| {
        Compiler::new(host::engine(None), helper)
            .cache(cache.map(EvaluationCache::at))
            .trusted(trusted)
            .compile(&request)
    });
    let compiled = compiled.map_err(|error| of_compiler(&error))?;
    let given = compiled.outputs.into_iter().map(|output| match output {
        Ok(text) => (Some(text), None),
        Err(why) => (None, Some(why)),
    });
    Ok((given.collect(), compiled.warnings))
}

/// A profile store.
#[pyclass(frozen, module = "cofferdam._native", name = "Store")]
#[derive(Debug)]
pub struct PyProfileStore(cofferdam_profiles::ProfileStore);

fn stored(name: &str) -> PyResult<Stored> {
    Stored::ALL
        .iter()
        .copied()
        .find(|stored| stored.file_name() == name)
        .ok_or_else(|| PyValueError::new_err(format!("`{name}` is no file of a stored profile")))
}

fn id(text: &str) -> PyResult<Id> {
    Id::new(text).map_err(|error| of_store(&error))
}

#[pymethods]
impl PyProfileStore {
    /// The store in this directory, which is created on the first save.
    #[new]
    fn new(directory: PathBuf) -> PyProfileStore {
        PyProfileStore(cofferdam_profiles::ProfileStore::at(directory))
    }

    /// One file of a stored profile.
    fn read<'py>(&self, py: Python<'py>, skill_id: &str, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.0.read(&id(skill_id)?, stored(name)?).map_err(|error| of_store(&error))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The path of that file.
    fn path(&self, skill_id: &str, name: &str) -> PyResult<PathBuf> {
        Ok(self.0.path(&id(skill_id)?, stored(name)?))
    }

    /// Stores these files as a profile, and returns its directory.
    fn save(&self, py: Python<'_>, skill_id: &str, files: Vec<(String, String)>) -> PyResult<PathBuf> {
        let id = id(skill_id)?;
        let files =
            files.iter().map(|(name, text)| Ok((stored(name)?, text.as_bytes()))).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.0.save(&id, &files)).map_err(|error| of_store(&error))
    }

    /// The ids of all stored profiles.
    fn list(&self) -> PyResult<Vec<String>> {
        let ids = self.0.list().map_err(|error| of_store(&error))?;
        Ok(ids.iter().map(|id| id.as_str().to_owned()).collect())
    }
}
