//! Starts the server from its options, and shuts it down so that nothing is left running.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_config::environments::Surroundings;
use cofferdam_config::serve::Serve;
use cofferdam_engine::audit::{Trail, TrailOptions};
use cofferdam_engine::session::Sessions;
use cofferdam_engine::{Engine, ExpectedUse};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::conformance;
use crate::connection::ServerState;
use crate::environments::fixed_places::FixedPlaces;
use crate::environments::{EnvironmentHost, EnvironmentRegistry, watch};
use crate::error::ServeError;
use crate::execution::run_limit::RunLimiter;
use crate::service::{ConnectionService, notify_tool_changes};
use crate::transport::http::{self, HttpConfig};
use crate::transport::stdio;

/// How long shutdown waits for runs to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until the only client has gone, or SIGTERM or SIGINT arrives.
///
/// # Errors
/// It cannot start.
pub fn serve(serve: &Serve) -> Result<(), ServeError> {
    raise_descriptor_limit();
    let around = Surroundings::observe()?;
    let engine = Arc::new(Engine::for_own_process(ExpectedUse::Anything));
    let open = |dir: &String| Trail::open(Path::new(dir), TrailOptions::default());
    let trail = serve.audit_trail.as_ref().map(open).transpose()?;
    if let Some(warning) = trail.as_ref().and_then(Trail::warning) {
        tracing::warn!("{warning}");
    }
    // A trail records each run before its start, so no interpreter may be started before its call.
    let prestart = serve.early != Some(0) && trail.is_none();
    let host = Arc::new(EnvironmentHost {
        around,
        engine: Arc::clone(&engine),
        prestart,
        trail,
        places: FixedPlaces::default(),
    });
    let environments = EnvironmentRegistry::load(Arc::clone(&host), serve.config.clone())
        .map_err(|problems| ServeError::Definitions(problems.iter().map(ToString::to_string).collect()))?;
    // The conformance suite sends no token: with its fixtures none is required, on a loopback address alone.
    let conformance = std::env::var_os(conformance::VARIABLE).is_some_and(|value| value == "1");
    let http = serve.http.as_deref().map(|address| HttpConfig::new(serve, address, conformance)).transpose()?;
    let sessions = Arc::new(Sessions::new(engine, environments.current().session_limits())?);
    environments.set_sessions(&sessions);
    let all_sessions = Arc::clone(&sessions);
    let state = Arc::new(ServerState {
        sessions,
        tools: serve.tools.clone(),
        conformance,
        host,
        environments: Arc::new(environments),
        runs: RunLimiter::new(serve.max_runs, serve.max_queue),
        shutdown: CancellationToken::new(),
        blobs: Default::default(),
        legacy_peers: Default::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(serve_until_shutdown(state, http));
    // A thread may be blocked in reading standard input.
    runtime.shutdown_background();
    // A thread may still be ending a client's sessions. This waits for it, and so for their audit records.
    all_sessions.end_all();
    result
}

/// The soft limit of open files that the server asks for: a session holds some forty descriptors.
const DESCRIPTORS: u64 = 16_384;

/// Raises the soft limit of open files to `DESCRIPTORS`, or to the hard limit. Sandboxes have limits of their own.
fn raise_descriptor_limit() {
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    if now.current.is_none_or(|current| current >= wanted) {
        return;
    }
    if let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: now.maximum }) {
        tracing::warn!("no more than {:?} files can be open: {errno}", now.current);
    }
}

async fn serve_until_shutdown(state: Arc<ServerState>, http: Option<HttpConfig>) -> Result<(), ServeError> {
    let shutdown = state.shutdown.clone();
    let mut signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let signalled = shutdown.clone();
    tokio::spawn(async move {
        let [terminate, interrupt] = &mut signals;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        signalled.cancel();
    });
    tokio::spawn(notify_tool_changes(Arc::clone(&state)));
    let (host, environments) = (Arc::clone(&state.host), Arc::clone(&state.environments));
    let control = watch::listen(&host.around);
    let control = tokio::spawn(watch::serve_control(control, Arc::clone(&environments)));
    tokio::spawn(watch::watch(host, environments));
    let runs = state.runs.clone();
    let result = match http {
        Some(config) => http::serve(state, config, shutdown.clone()).await,
        None => stdio::serve(ConnectionService::new(&state, false), shutdown.clone()).await,
    };
    shutdown.cancel();
    control.abort();
    // Its socket file is removed when the task is dropped.
    drop(control.await);
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, runs.idle()).await.is_err() {
        tracing::warn!("a run is not over yet; the kernel ends it with this process");
    }
    Ok(result?)
}
