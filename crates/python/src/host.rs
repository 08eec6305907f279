//! The engine of this process, and the backends that are available on this host.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cofferdam_engine::Engine;
use cofferdam_engine::backends::Tools;

/// An engine, with its process id and its path of nsjail.
type CachedEngine = (u32, Option<PathBuf>, &'static Engine);

static ENGINES: Mutex<Vec<CachedEngine>> = Mutex::new(Vec::new());

/// The engine of this process with this nsjail. A forked process gets an engine of its own, since what the parent's has cached, such
/// as its cgroup, does not apply to it.
pub(crate) fn engine(nsjail: Option<&Path>) -> &'static Engine {
    let me = std::process::id();
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    engines.retain(|(pid, ..)| *pid == me); // engines of the parent process are not used
    if let Some((_, _, engine)) = engines.iter().find(|(_, path, _)| path.as_deref() == nsjail) {
        return engine;
    }
    let engine = match nsjail {
        Some(path) => Engine::probe().with_tools(Tools { nsjail: Some(path.to_owned()), ..Tools::from_environment() }),
        None => Engine::probe(),
    };
    // Leaked: it lives as long as the process.
    let engine: &'static Engine = Box::leak(Box::new(engine));
    engines.push((me, nsjail.map(Path::to_owned), engine));
    engine
}
