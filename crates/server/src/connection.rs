//! One client's connection, and the state that all connections share. Both are independent of the transport.
//!
//! Between requests a connection holds nothing but the owner name of its sessions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cofferdam_engine::session::Sessions;
use cofferdam_policy::text;
use rmcp::model::ProtocolVersion;
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::environments::{EnvironmentHost, EnvironmentRegistry, ServedEnvironment, watch};
use crate::execution::run_limit::RunLimiter;
use crate::execution::session::SessionRef;
use crate::results::blobs::BlobStore;

/// How long an HTTP transport waits for an answer before it opens a stream of events for it. Clients wait some minutes for
/// the head of a response, and proxies one minute.
pub(crate) const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(55);

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct ServerState {
    /// The tools offered besides `run`, by the operator's names.
    pub tools: Vec<String>,
    /// Whether the tools and resources of the conformance suite are offered.
    pub conformance: bool,
    /// What environments are prepared with.
    pub host: Arc<EnvironmentHost>,
    /// The environments.
    pub environments: Arc<EnvironmentRegistry>,
    /// Limits how many runs are under way.
    pub runs: RunLimiter,
    /// Sandboxes that keep their interpreter's state between calls.
    pub sessions: Arc<Sessions>,
    /// Cancelled when the server shuts down, or its only client has gone.
    pub shutdown: CancellationToken,
    /// Files that results link to.
    pub blobs: BlobStore,
    /// Clients of the protocol with `initialize`, by connection: they get change notifications without a subscription.
    pub legacy_peers: Mutex<BTreeMap<String, Peer<RoleServer>>>,
}

/// One client's connection. When it is dropped, with its last request, its sessions end.
#[derive(Debug)]
pub(crate) struct McpConnection {
    /// What all connections share.
    pub state: Arc<ServerState>,
    /// The owner of its sessions.
    pub owner: String,
    /// Whether the transport serves several clients, which only their connections tell apart.
    pub is_multi_client: bool,
    /// Whether a request ever named a session. Most requests over HTTP are a connection of their own, and name none.
    used_sessions: AtomicBool,
}

impl Drop for McpConnection {
    fn drop(&mut self) {
        if !*self.used_sessions.get_mut() {
            return;
        }
        let (owner, sessions) = (std::mem::take(&mut self.owner), Arc::downgrade(&self.state.sessions));
        let end = move || {
            if let Some(sessions) = sessions.upgrade() {
                sessions.end_owner(&owner);
            }
        };
        // Ending sessions blocks, which the runtime's thread must not.
        if let Err(error) = std::thread::Builder::new().name("cofferdam-ends".into()).spawn(end) {
            tracing::warn!("sessions of a client that has gone stay until they are idle: {error}");
        }
    }
}

/// The owner of all sessions of the stateless protocol over HTTP, which has no connections.
const STATELESS_OWNER: &str = "stateless";

impl McpConnection {
    /// A new connection. `is_multi_client` is true for HTTP.
    pub(crate) fn new(state: &Arc<ServerState>, is_multi_client: bool) -> McpConnection {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let owner = format!("connection {}", COUNT.fetch_add(1, Ordering::Relaxed));
        McpConnection { state: Arc::clone(state), owner, is_multi_client, used_sessions: AtomicBool::new(false) }
    }

    /// The session that a call refers to by `name`.
    pub(crate) fn session_ref(&self, name: String, context: &RequestContext<RoleServer>) -> SessionRef {
        if self.is_multi_client && is_stateless_protocol(context) {
            return SessionRef { owner: STATELESS_OWNER.into(), name, server_named: true };
        }
        self.used_sessions.store(true, Ordering::Relaxed);
        SessionRef { owner: self.owner.clone(), name, server_named: false }
    }

    /// Completes when the client no longer waits for the answer.
    pub(crate) async fn cancelled(&self, context: &RequestContext<RoleServer>) {
        tokio::select! {
            () = context.ct.cancelled() => {}
            () = self.state.shutdown.cancelled() => {}
        }
    }

    /// The environment of this name. If it is unknown or unavailable, definitions are read again first, since it may just
    /// have been defined.
    ///
    /// # Errors
    /// It is unknown or unavailable; the error lists the available environments.
    pub(crate) async fn environment(&self, name: &str) -> Result<Arc<ServedEnvironment>, ErrorData> {
        let find = |name: &str| self.state.environments.current().find(name).cloned();
        let mut environment = find(name);
        if environment.as_ref().is_none_or(|environment| environment.unavailable().is_some()) {
            // Its result does not matter: the set in force may be newer than the one looked at above.
            watch::reload(&self.state.environments).await;
            environment = find(name);
        }
        let current = self.state.environments.current();
        let names = current.names();
        let data = json!({ "environments": names });
        let available = format!("available environments: {}", names.join(", "));
        match environment {
            None => {
                let message = format!("no environment is called {}; {available}", text::name(name));
                Err(ErrorData::invalid_params(message, Some(data)))
            }
            Some(environment) => match environment.unavailable() {
                Some(reason) => {
                    let message = format!("the environment {} is unavailable: {reason}; {available}", text::name(name));
                    Err(ErrorData::invalid_params(message, Some(data)))
                }
                None => Ok(environment),
            },
        }
    }
}

/// Whether the request is of the stateless protocol, which has no `initialize`.
pub(crate) fn is_stateless_protocol(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}
