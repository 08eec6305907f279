//! Handles the protocol's requests of one connection, of both eras and on any transport: lists tools, dispatches calls to
//! them, serves resources, and notifies clients when the list of tools has changed.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cofferdam_policy::text;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, ContentBlock, Implementation, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, PromptsCapability,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
    SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

use crate::conformance;
use crate::connection::{McpConnection, ServerState, is_stateless_protocol};
use crate::results::blobs;
use crate::results::call_result::resource_contents;
use crate::tools::{files, run, schema, sessions};

/// How long a client may cache the list of tools, milliseconds.
const TOOLS_TTL_MS: u64 = 5_000;

/// The operator's name for the tool that lists environments.
const LIST: &str = "list";

/// The operator's name for the tools that list and end sessions.
const SESSIONS: &str = "sessions";

/// The service of one connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionService {
    connection: Arc<McpConnection>,
}

impl ConnectionService {
    /// The service of a new connection. `is_multi_client` is true for HTTP.
    pub(crate) fn new(state: &Arc<ServerState>, is_multi_client: bool) -> ConnectionService {
        ConnectionService { connection: Arc::new(McpConnection::new(state, is_multi_client)) }
    }

    fn state(&self) -> &Arc<ServerState> {
        &self.connection.state
    }

    /// The tools, always in this order.
    fn tools(&self) -> Vec<Tool> {
        let environments = self.state().environments.current();
        let mut tools = vec![schema::run(&environments)];
        if self.offers(schema::UPLOAD) {
            tools.push(schema::upload(&environments));
        }
        if self.offers(schema::DOWNLOAD) {
            tools.push(schema::download());
        }
        if self.offers(LIST) {
            tools.push(schema::list());
        }
        if self.offers(SESSIONS) {
            tools.extend([schema::list_sessions(), schema::end_session()]);
        }
        if self.state().conformance {
            tools.extend(conformance::tools());
        }
        tools
    }

    fn offers(&self, tool: &str) -> bool {
        self.state().tools.iter().any(|one| one == tool)
    }
}

/// Notifies every client each time that the list of tools has changed, for as long as the server runs.
pub(crate) async fn notify_tool_changes(state: Arc<ServerState>) {
    let mut changes = state.environments.changes();
    while changes.changed().await.is_ok() {
        let peers = std::mem::take(&mut *state.legacy_peers.lock().unwrap_or_else(PoisonError::into_inner));
        let mut reached = BTreeMap::new();
        for (connection, peer) in peers {
            // A client that does not accept it within a second counts as gone.
            let sent = tokio::time::timeout(Duration::from_secs(1), peer.notify_tool_list_changed()).await;
            if matches!(sent, Ok(Ok(()))) {
                reached.insert(connection, peer);
            }
        }
        let mut current = state.legacy_peers.lock().unwrap_or_else(PoisonError::into_inner);
        // A peer that has connected meanwhile replaces the older one.
        reached.append(&mut current);
        *current = reached;
    }
}

impl ServerHandler for ConnectionService {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_resources().build();
        if self.state().conformance {
            capabilities.prompts = Some(PromptsCapability::default());
        }
        let server = Implementation::new("cofferdam", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(server).with_instructions(
            "`run` runs code in a named environment, without network unless the operator allowed it, and tells its \
             output. Files come back when code writes them to /workspace/output.",
        )
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut result = ListToolsResult::with_all_items(self.tools());
        if is_stateless_protocol(&context) {
            (result.ttl_ms, result.cache_scope) = (Some(TOOLS_TTL_MS), Some(CacheScope::Private));
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        match request.name.as_ref() {
            schema::RUN => run::call(&self.connection, arguments, context).await,
            schema::UPLOAD if self.offers(schema::UPLOAD) => files::upload(&self.connection, arguments, context).await,
            schema::DOWNLOAD if self.offers(schema::DOWNLOAD) => {
                files::download(&self.connection, arguments, context).await
            }
            schema::LIST if self.offers(LIST) => {
                let state = Arc::clone(self.state());
                let listed = tokio::task::spawn_blocking(move || {
                    schema::environment_list(&state.environments.current(), &state.host)
                });
                let listed = listed.await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                let mut result = CallToolResult::success(vec![ContentBlock::text(listed.to_string())]);
                result.structured_content = Some(listed);
                Ok(result.into())
            }
            schema::LIST_SESSIONS if self.offers(SESSIONS) => sessions::list(&self.connection, arguments, &context),
            schema::END_SESSION if self.offers(SESSIONS) => sessions::end(&self.connection, arguments, &context).await,
            other if self.state().conformance => {
                if other == conformance::CHANGES {
                    self.state().environments.notify_changed();
                }
                let result = conformance::call(other, &Value::Object(arguments), &context).await;
                result.unwrap_or_else(|| Err(ErrorData::invalid_params("no fixture is called so", None)))
            }
            other => Err(ErrorData::invalid_params(format!("no tool is called {}", text::name(other)), None)),
        }
    }

    // The server has no prompts and no completions. An empty list would mean that it could have some.
    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        match self.state().conformance {
            // The suite requests the list to see how long it may be cached.
            true => Ok(ListPromptsResult::default()),
            false => Err(ErrorData::method_not_found::<ListPromptsRequestMethod>()),
        }
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        if self.state().conformance {
            return Ok(ListResourcesResult::with_all_items(conformance::resources()));
        }
        // Blobs are not listed: a client reads them by the address in its result, which no other client knows.
        Ok(ListResourcesResult::default())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let all = if self.state().conformance { conformance::templates() } else { Vec::new() };
        Ok(ListResourceTemplatesResult::with_all_items(all))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if self.state().conformance
            && let Some(result) = conformance::read(&request.uri)
        {
            return Ok(result.into());
        }
        let Some(blob) = self.state().blobs.get(&request.uri) else {
            let message = format!(
                "nothing is kept at {}; files are kept for {} minutes",
                text::name(&request.uri),
                blobs::LIFETIME.as_secs() / 60
            );
            return Err(ErrorData::resource_not_found(message, Some(json!({ "uri": request.uri }))));
        };
        let mut result = ReadResourceResult::new(vec![resource_contents(blob)]);
        if is_stateless_protocol(&context) {
            // The content of a blob never changes.
            let ttl = u64::try_from(blobs::LIFETIME.as_millis()).unwrap_or(u64::MAX);
            (result.ttl_ms, result.cache_scope) = (Some(ttl), Some(CacheScope::Private));
        }
        Ok(result.into())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut peers = self.state().legacy_peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|_, peer| !peer.is_transport_closed());
        peers.insert(self.connection.owner.clone(), context.peer);
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.intersection(&SubscriptionFilter::builder().tools_list_changed().build()))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.state().environments.changes();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
                () = context.cancelled() => return Ok(()),
            }
        }
    }
}
