//! What a gateway is started with, and what one sandbox is attached with. Data only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_policy::{Network, NetworkLimits};

use crate::connect::dialer::UpstreamProxy;
use crate::connect::host_resolver::{Resolve, SystemResolver};
use crate::decide::host_name::RequestedHost;
use crate::decide::rules::EgressRules;
use crate::decide::socket_layout::SocketLayout;
use crate::http::{Api, ApiError};
use crate::report::event::EventSink;

/// What one sandbox is attached with: what it may reach, its sockets, and where its events go.
#[derive(Clone)]
pub struct EgressJob {
    /// The policy's rules.
    pub rules: Arc<EgressRules>,
    /// The policy's limits.
    pub limits: NetworkLimits,
    /// The sockets of its namespace, in the order in which their descriptors are sent.
    pub layout: SocketLayout,
    /// The API that is passed through to it.
    pub api: Option<Api>,
    /// The host's own proxy, through which all connections go.
    pub upstream_proxy: Option<UpstreamProxy>,
    /// Receives its events. Called from the gateway's threads, one event at a time; it must not block, and must not end
    /// the sandbox.
    pub sink: EventSink,
    /// Process id of the sandbox's init in this process's PID namespace: the process of a refused connection is
    /// searched among its descendants. Without it events have no process.
    pub init: Option<u32>,
}

impl EgressJob {
    /// What a policy's network requires. `rules` are compiled from it.
    ///
    /// # Errors
    /// The API cannot be passed through.
    pub fn new(
        network: &Network,
        rules: Arc<EgressRules>,
        layout: SocketLayout,
        sink: EventSink,
        init: Option<u32>,
    ) -> Result<EgressJob, ApiError> {
        let api = network.api.as_ref().map(|api| Api::new(&api.url)).transpose()?;
        let upstream_proxy = network.upstream_proxy.as_ref().map(|url| UpstreamProxy {
            host: RequestedHost::of_policy(&url.host),
            port: url.port,
            credentials: url.credentials.clone(),
        });
        Ok(EgressJob { rules, limits: network.limits, layout, api, upstream_proxy, sink, init })
    }
}

/// What a gateway is started with.
pub struct Settings {
    /// Resolves names.
    pub resolve: Arc<dyn Resolve>,
    /// The destination of a connection, given the address at which it arrived. For tests, whose sockets are not in a
    /// namespace to which every address is local.
    pub destination: Option<Arc<dyn Fn(SocketAddr) -> SocketAddr + Send + Sync>>,
    /// Time limit for a program's first message, from its first byte.
    pub greeting: Duration,
    /// Time after which a connection without traffic in either direction is ended.
    pub idle: Duration,
    /// Descriptors that connections may use; by default, what the process's limit leaves.
    pub descriptors: Option<usize>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            resolve: Arc::new(SystemResolver::default()),
            destination: None,
            greeting: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            descriptors: None,
        }
    }
}
