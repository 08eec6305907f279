//! The server as a whole: what it is made of, how it begins, and how it ends with nothing left running.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_config::environments::{ObserveError, Surroundings};
use cofferdam_config::serve::Serve;
use cofferdam_engine::audit::{AuditError, Options, Trail};
use cofferdam_engine::session::Sessions;
use cofferdam_engine::{Engine, Expected};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::calls::Calls;
use crate::environment::Host;
use crate::environments::Shelf;
use crate::fixtures;
use crate::http::{self, Door};
use crate::service::{Service, Shared, tell_changes};
use crate::stdio;
use crate::token::TokenError;
use crate::watch;

/// How long the end waits for runs to be over.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why the server does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The process's surroundings cannot be told.
    #[error(transparent)]
    Surroundings(#[from] ObserveError),
    /// Definitions cannot be relied upon.
    #[error("what defines environments has mistakes:{}\nhint: correct it, and look at it with: cofferdam environment check", .0.iter().map(|told| format!("\n  {told}")).collect::<String>())]
    Definitions(Vec<String>),
    /// The audit trail cannot be written.
    #[error(transparent)]
    Trail(#[from] AuditError),
    /// The address is none.
    #[error("{0} is no address to listen on\nhint: --http 127.0.0.1:8800")]
    Address(String),
    /// The address is open to others.
    #[error(
        "{0} can be reached by others, and there is no token that they could have been given\nhint: --token-file FILE, or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// Nobody could reach it.
    #[error("{0} is no loopback address, and no name is allowed by which callers reach it\nhint: --allow-host NAME")]
    Nameless(SocketAddr),
    /// There is no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The client does not speak the protocol.
    #[error("the client does not begin as the protocol does: {0}")]
    Client(String),
    /// The system refuses what the server needs.
    #[error("cannot start the server: {0}")]
    System(#[from] std::io::Error),
}

/// Serves until the client goes or a signal says to end.
///
/// # Errors
/// It cannot begin.
pub fn serve(serve: &Serve) -> Result<(), ServeError> {
    make_room();
    let around = Surroundings::observe()?;
    let engine = Arc::new(Engine::for_own_process(Expected::Anything));
    let open = |dir: &String| Trail::open(Path::new(dir), Options::default());
    let trail = serve.audit_trail.as_ref().map(open).transpose()?;
    if let Some(warning) = trail.as_ref().and_then(Trail::warning) {
        tracing::warn!("{warning}");
    }
    // What is recorded before it starts cannot have been started before.
    let early = serve.early != Some(0) && trail.is_none();
    let host = Arc::new(Host { around, engine: Arc::clone(&engine), early, trail });
    let shelf = Shelf::load(Arc::clone(&host), serve.config.clone())
        .map_err(|problems| ServeError::Definitions(problems.iter().map(ToString::to_string).collect()))?;
    // The suite sends no token: with its fixtures, and on a loopback address alone, none is asked for.
    let fixtures = std::env::var_os(fixtures::VARIABLE).is_some_and(|value| value == "1");
    let door = serve.http.as_deref().map(|address| Door::of(serve, address, fixtures)).transpose()?;
    let sessions = Arc::new(Sessions::new(engine, shelf.now().limits())?);
    shelf.governs(&sessions);
    let ending = Arc::clone(&sessions);
    let shared = Arc::new(Shared {
        sessions,
        tools: serve.tools.clone(),
        fixtures,
        host,
        shelf: Arc::new(shelf),
        calls: Calls::new(serve.max_runs, serve.max_queue),
        stop: CancellationToken::new(),
        kept: Default::default(),
        told: Default::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(until_the_end(shared, door));
    // A thread may still wait for a line that never comes.
    runtime.shutdown_background();
    // A thread that ends a client's sessions may be at it: this waits for it, and so for their records.
    ending.end_all();
    result
}

/// Files that may be open where the system allows it: a session holds some forty, and there may be many.
const DESCRIPTORS: u64 = 16_384;

/// Makes room for them, up to what the system allows. What runs in sandboxes has limits of its own.
fn make_room() {
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    if now.current.is_none_or(|current| current >= wanted) {
        return;
    }
    if let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: now.maximum }) {
        tracing::warn!("no more than {:?} files can be open: {errno}", now.current);
    }
}

async fn until_the_end(shared: Arc<Shared>, door: Option<Door>) -> Result<(), ServeError> {
    let stop = shared.stop.clone();
    let mut ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let stopped = stop.clone();
    tokio::spawn(async move {
        let [terminate, interrupt] = &mut ends;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopped.cancel();
    });
    tokio::spawn(tell_changes(Arc::clone(&shared)));
    let (host, shelf) = (Arc::clone(&shared.host), Arc::clone(&shared.shelf));
    let listening = watch::listen(&host.around);
    let answering = tokio::spawn(watch::answer(listening, Arc::clone(&shelf)));
    tokio::spawn(watch::watch(host, shelf));
    let calls = shared.calls.clone();
    let result = match door {
        Some(door) => http::serve(shared, door, stop.clone()).await,
        None => stdio::serve(Service::connected(&shared, false), stop.clone()).await,
    };
    stop.cancel();
    answering.abort();
    // Its socket goes with it.
    drop(answering.await);
    if tokio::time::timeout(PATIENCE, calls.idle()).await.is_err() {
        tracing::warn!("a run is not over yet; the kernel ends it with this process");
    }
    result
}
