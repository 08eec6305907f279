//! This process and this host: the engine that belongs to this process, and what is installed.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cofferdam_engine::Engine;
use cofferdam_policy::Policy;
use pyo3::prelude::*;

use crate::errors::{CofferdamError, PolicyError};

/// The engine of the process with this id.
static ENGINE: Mutex<Option<(u32, &'static Engine)>> = Mutex::new(None);

/// The engine of this process. A process that was forked off gets one of its own: what the other one found out, such as
/// its place for cgroups, is not about it.
pub fn engine() -> &'static Engine {
    let me = std::process::id();
    let mut slot = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    match *slot {
        Some((pid, engine)) if pid == me => engine,
        _ => {
            // Lives as long as the process; the other one's, if any, stays as it is.
            let engine: &'static Engine = Box::leak(Box::new(Engine::probe()));
            *slot = Some((me, engine));
            engine
        }
    }
}

/// The policy of a configuration, for an executor.
pub fn load(path: &Path, executor: &str, _nsjail_path: Option<&Path>, _default_timeout: u64) -> PyResult<Policy> {
    if executor == "seatbelt" {
        return Err(CofferdamError::new_err("Seatbelt is not here: it is a part of macOS"));
    }
    let read = |path: &Path| std::fs::read(path).map_err(PyErr::from);
    let told = |path: &Path, why: String| PolicyError::new_err(format!("{}: {why}", path.display()));
    let bytes = read(path)?;
    let beside = path.with_file_name("policy.json");
    let bytes = if path.file_name() == beside.file_name() || !beside.exists() { bytes } else { read(&beside)? };
    Policy::decode(&bytes).map_err(|errors| told(path, errors.to_string()))
}

/// `linux`, `macos` or `unknown`.
pub fn detect_platform() -> String {
    match std::env::consts::OS {
        name @ ("linux" | "macos") => name.to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Whether there is an nsjail that can be used.
pub fn is_nsjail_available(_path: Option<&Path>) -> bool {
    false
}

/// Whether macOS's Seatbelt is here.
pub fn is_seatbelt_available() -> bool {
    false
}
