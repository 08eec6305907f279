//! This process and this host: the engine that belongs to this process, and what is installed.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cofferdam_engine::Engine;
use cofferdam_engine::backends::Tools;

/// An engine of this program: of which process, with which nsjail.
type Known = (u32, Option<PathBuf>, &'static Engine);

static ENGINES: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The engine of this process, with this nsjail. A process that was forked off gets one of its own: what the other one
/// found out, such as its place for cgroups, is not about it.
pub fn engine(nsjail: Option<&Path>) -> &'static Engine {
    let me = std::process::id();
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    engines.retain(|(pid, ..)| *pid == me); // those of another process stay as they are, and are not used
    if let Some((_, _, engine)) = engines.iter().find(|(_, path, _)| path.as_deref() == nsjail) {
        return engine;
    }
    let engine = match nsjail {
        Some(path) => Engine::probe().with_tools(Tools { nsjail: Some(path.to_owned()), ..Tools::from_environment() }),
        None => Engine::probe(),
    };
    // Lives as long as the process.
    let engine: &'static Engine = Box::leak(Box::new(engine));
    engines.push((me, nsjail.map(Path::to_owned), engine));
    engine
}
