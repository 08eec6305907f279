//! The protocol's side: what each request of a client comes to. Both eras, on any transport.
//!
//! Holds nothing of a client's between requests but whom to tell that the tools have changed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use cofferdam_engine::session::Sessions;
use cofferdam_engine::{Cancel, Failure};
use cofferdam_policy::text;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, ContentBlock, Implementation, JsonObject, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, PromptsCapability, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::answer::{Room, answer, contents};
use crate::blobs;
use crate::calls::Calls;
use crate::environment::{Host, Place};
use crate::environments::Shelf;
use crate::fixtures;
use crate::json_answers::PATIENCE;
use crate::run::{Call, Progress, Ran, run};
use crate::schema;
use crate::session::{self, Asked};
use crate::watch;

/// Longest code that is run, bytes.
pub const LONGEST_CODE: usize = 16 << 20;

/// What may lie between a call's beginning here and the moment from which its answer is no document any more.
const MARGIN: Duration = Duration::from_secs(2);

/// How often a client hears of progress at most.
const TICK: Duration = Duration::from_millis(100);

/// How long a client may take the list of tools for what it is, milliseconds.
const FRESH_MS: u64 = 5_000;

/// What an operator calls the tool that lists environments.
const LIST: &str = "list";

/// What an operator calls the tools that tell and end sessions.
const SESSIONS: &str = "sessions";

/// What every connection shares.
#[derive(Debug)]
pub struct Shared {
    /// What is offered besides `run`.
    pub tools: Vec<String>,
    /// Whether the conformance suite's tools and resources are there.
    pub fixtures: bool,
    /// What environments depend on.
    pub host: Arc<Host>,
    /// Which there are.
    pub shelf: Arc<Shelf>,
    /// How many run.
    pub calls: Calls,
    /// Those that keep their state.
    pub sessions: Arc<Sessions>,
    /// Set when the server ends, or its only client has gone: nothing goes on.
    pub stop: CancellationToken,
    /// Files that answers link to.
    pub kept: blobs::Shelf,
    /// Clients of the older protocol, who are told of changes without asking, each once: by its connection.
    pub told: Mutex<BTreeMap<String, Peer<RoleServer>>>,
}

/// The service, one for each connection.
#[derive(Debug, Clone)]
pub struct Service {
    /// What all of them share.
    pub shared: Arc<Shared>,
    connection: Arc<Connection>,
}

/// Whose sessions they are. Dropped with its last request, it ends them.
#[derive(Debug)]
struct Connection {
    owner: String,
    /// Whether other clients come by the same way: then one is told from another by its connection alone.
    shared_way: bool,
    /// Whether it ever meant a session: most requests over HTTP are a connection of their own, and mean none.
    means_sessions: AtomicBool,
    sessions: Weak<Sessions>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !*self.means_sessions.get_mut() {
            return;
        }
        let (owner, sessions) = (std::mem::take(&mut self.owner), std::mem::take(&mut self.sessions));
        let ends = move || {
            if let Some(sessions) = sessions.upgrade() {
                sessions.end_owner(&owner);
            }
        };
        // Ending them takes a moment, which the runtime's thread has not.
        if let Err(error) = std::thread::Builder::new().name("cofferdam-ends".into()).spawn(ends) {
            tracing::warn!("sessions of a client that has gone stay until they are idle: {error}");
        }
    }
}

/// The owner of sessions of the stateless protocol where there are no connections.
const NOBODY: &str = "stateless";

impl Service {
    /// The service of a new connection. `shared_way` is how HTTP is.
    pub fn connected(shared: &Arc<Shared>, shared_way: bool) -> Service {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let owner = format!("connection {}", COUNT.fetch_add(1, Ordering::Relaxed));
        let sessions = Arc::downgrade(&shared.sessions);
        let connection = Connection { owner, shared_way, means_sessions: AtomicBool::new(false), sessions };
        Service { shared: Arc::clone(shared), connection: Arc::new(connection) }
    }

    /// Which session a call means.
    pub(crate) fn asked(&self, name: String, context: &RequestContext<RoleServer>) -> Asked {
        if self.connection.shared_way && is_modern(context) {
            return Asked { owner: NOBODY.into(), name, given: true };
        }
        self.connection.means_sessions.store(true, Ordering::Relaxed);
        Asked { owner: self.connection.owner.clone(), name, given: false }
    }

    /// Waits until nobody waits for the answer any more.
    pub(crate) async fn unwanted(&self, context: &RequestContext<RoleServer>) {
        tokio::select! {
            () = context.ct.cancelled() => {}
            () = self.shared.stop.cancelled() => {}
        }
    }

    /// The tools, always in this order.
    fn tools(&self) -> Vec<Tool> {
        let mut tools = vec![schema::run(&self.shared.shelf.now())];
        if self.offers(schema::UPLOAD) {
            tools.push(schema::upload(&self.shared.shelf.now()));
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
        if self.shared.fixtures {
            tools.extend(fixtures::tools());
        }
        tools
    }

    fn offers(&self, tool: &str) -> bool {
        self.shared.tools.iter().any(|one| one == tool)
    }

    /// The environment of a name. One that is not known may have come a moment ago: definitions are read once more.
    pub(crate) async fn place(&self, name: &str) -> Result<Arc<Place>, ErrorData> {
        let found = |name: &str| self.shared.shelf.now().find(name).cloned();
        let mut place = found(name);
        if place.as_ref().is_none_or(|place| place.unavailable().is_some()) {
            // Whatever it says: what is in force may be newer than what was looked at above.
            watch::read_again(&self.shared.shelf).await;
            place = found(name);
        }
        let now = self.shared.shelf.now();
        let names = now.names();
        let data = json!({ "environments": names });
        let there_are = format!("available environments: {}", names.join(", "));
        match place {
            None => {
                let told = format!("no environment is called {}; {there_are}", shown(name));
                Err(ErrorData::invalid_params(told, Some(data)))
            }
            Some(place) => match place.unavailable() {
                Some(reason) => {
                    let told = format!("the environment {} is unavailable: {reason}; {there_are}", shown(name));
                    Err(ErrorData::invalid_params(told, Some(data)))
                }
                None => Ok(place),
            },
        }
    }

    async fn run(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let begun = std::time::Instant::now();
        let Arguments { code, env, session } = Arguments::read(arguments)?;
        let asked = session.map(|name| self.asked(name, &context));
        let place = self.place(&env).await?;
        let turn = tokio::select! {
            turn = self.shared.calls.turn() => turn,
            () = self.unwanted(&context) => return Err(ErrorData::internal_error("the call was cancelled", None)),
        };
        let turn = match turn {
            Ok(turn) => turn,
            Err(busy) => {
                let told = busy.to_string();
                let (message, hint) = told.split_once("\nhint: ").unwrap_or((&told, ""));
                let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
                let failure = Failure { code: 125, step: "busy".into(), message: message.into(), hint };
                return Ok(answer(Ran::failed(failure), Room::DOCUMENT, &self.shared.kept).into());
            }
        };
        let token = context.meta.get_progress_token();
        let streams = token.is_some();
        let progress = token.as_ref().map(|_| Arc::<Progress>::default());
        let cancel = Cancel::default();
        let call = Call { place, code, cancel: cancel.clone(), progress: progress.clone() };
        let shared = Arc::clone(&self.shared);
        // What drops this future ends the run: nobody waits for it any more.
        let _ends = EndsWith(cancel.clone());
        let mut task = tokio::task::spawn_blocking(move || {
            let ran = match asked {
                Some(asked) => session::run(&shared.host, &shared.sessions, asked, call),
                None => run(&shared.host, call, || shared.calls.is_one()),
            };
            drop(turn);
            ran
        });
        let mut told = Told { peer: &context.peer, token, progress, last: 0.0 };
        let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + TICK, TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut cancelled = false;
        let ran = loop {
            tokio::select! {
                ran = &mut task => break ran,
                () = self.unwanted(&context), if !cancelled => {
                    cancelled = true;
                    cancel.cancel();
                    // Its token may be the next call's by now.
                    told.progress = None;
                }
                _ = tick.tick(), if told.progress.is_some() => told.tell().await,
            }
        };
        told.tell().await;
        match ran {
            Ok(ran) => {
                tracing::debug!(run = ran.outcome.run_id, outcome = ?ran.outcome.outcome, "a run has ended");
                // What follows other messages over HTTP is an event among them.
                let event = self.connection.shared_way && (streams || begun.elapsed() + MARGIN > PATIENCE);
                let room = if event { Room::of_event(&ran) } else { Room::DOCUMENT };
                Ok(answer(ran, room, &self.shared.kept).into())
            }
            Err(error) => {
                tracing::error!("a run was lost: {error}");
                Err(ErrorData::internal_error("the run was lost by a mistake of the server's", None))
            }
        }
    }
}

/// Tells every client that the list of tools has changed, each time that it has, for as long as the server runs.
pub async fn tell_changes(shared: Arc<Shared>) {
    let mut changes = shared.shelf.changes();
    while changes.changed().await.is_ok() {
        let peers = std::mem::take(&mut *shared.told.lock().unwrap_or_else(PoisonError::into_inner));
        let mut there = BTreeMap::new();
        for (connection, peer) in peers {
            // Who does not take it in a second is as good as gone.
            let sent = tokio::time::timeout(Duration::from_secs(1), peer.notify_tool_list_changed()).await;
            if matches!(sent, Ok(Ok(()))) {
                there.insert(connection, peer);
            }
        }
        let mut told = shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        // Who has come meanwhile is the newer one.
        there.append(&mut told);
        *told = there;
    }
}

/// Ends a run when it is dropped.
pub(crate) struct EndsWith(pub(crate) Cancel);

impl Drop for EndsWith {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Whom to tell about progress.
struct Told<'a> {
    peer: &'a Peer<RoleServer>,
    token: Option<ProgressToken>,
    progress: Option<Arc<Progress>>,
    last: f64,
}

impl Told<'_> {
    async fn tell(&mut self) {
        let (Some(token), Some(progress)) = (&self.token, &self.progress) else { return };
        let Some((bytes, text)) = progress.take() else { return };
        // It has to grow each time, also where a step was told and no output has come.
        self.last = (bytes as f64).max(self.last + 1.0);
        let told = ProgressNotificationParam::new(token.clone(), self.last).with_message(text);
        if let Err(error) = self.peer.notify_progress(told).await {
            tracing::debug!("nobody hears of progress: {error}");
            self.progress = None;
        }
    }
}

/// What `run` takes.
struct Arguments {
    code: String,
    env: String,
    session: Option<String>,
}

impl Arguments {
    fn read(mut arguments: JsonObject) -> Result<Arguments, ErrorData> {
        let wrong = |told: String| ErrorData::invalid_params(told, None);
        let mut text = |name: &str| match arguments.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(wrong(format!("`{name}` is no text"))),
            None => Err(wrong(format!("`{name}` is missing; `run` takes code and env"))),
        };
        let (code, env) = (text("code")?, text("env")?);
        let session = match arguments.remove("session") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err(wrong("`session` is no text".into())),
        };
        if let Some(name) = arguments.keys().next() {
            return Err(wrong(format!("`run` takes no {}; it takes code, env and session", shown(name))));
        }
        if code.len() > LONGEST_CODE {
            let told = format!("the code has {} bytes, and {LONGEST_CODE} are run at most", code.len());
            return Err(wrong(told));
        }
        if let Some(at) = code.find('\0') {
            return Err(wrong(format!("the code has a NUL character at byte {at}, and no interpreter takes one")));
        }
        Ok(Arguments { code, env, session })
    }
}

/// A name for a message: one line, shortened.
pub(crate) fn shown(name: &str) -> String {
    text::name(name)
}

impl ServerHandler for Service {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_resources().build();
        if self.shared.fixtures {
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
        if is_modern(&context) {
            (result.ttl_ms, result.cache_scope) = (Some(FRESH_MS), Some(CacheScope::Private));
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
            schema::RUN => self.run(arguments, context).await,
            schema::UPLOAD if self.offers(schema::UPLOAD) => self.upload(arguments, context).await,
            schema::DOWNLOAD if self.offers(schema::DOWNLOAD) => self.download(arguments, context).await,
            schema::LIST if self.offers(LIST) => {
                let shared = Arc::clone(&self.shared);
                let listed = tokio::task::spawn_blocking(move || schema::listed(&shared.shelf.now(), &shared.host));
                let listed = listed.await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                let mut result = CallToolResult::success(vec![ContentBlock::text(listed.to_string())]);
                result.structured_content = Some(listed);
                Ok(result.into())
            }
            schema::LIST_SESSIONS if self.offers(SESSIONS) => self.list_sessions(arguments, &context),
            schema::END_SESSION if self.offers(SESSIONS) => self.end_session(arguments, &context).await,
            other if self.shared.fixtures => {
                if other == fixtures::CHANGES {
                    self.shared.shelf.tell();
                }
                let found = fixtures::call(other, &Value::Object(arguments), &context).await;
                found.unwrap_or_else(|| Err(ErrorData::invalid_params("no fixture is called so", None)))
            }
            other => Err(ErrorData::invalid_params(format!("no tool is called {}", shown(other)), None)),
        }
    }

    // There are no prompts and nothing to complete; an empty answer would say that there could be.
    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        match self.shared.fixtures {
            // The suite asks for the list to see how long it may be kept.
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
        if self.shared.fixtures {
            return Ok(ListResourcesResult::with_all_items(fixtures::resources()));
        }
        // Files are read by the address that an answer gave, and by nobody who was not given it.
        Ok(ListResourcesResult::default())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let all = if self.shared.fixtures { fixtures::templates() } else { Vec::new() };
        Ok(ListResourceTemplatesResult::with_all_items(all))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if self.shared.fixtures
            && let Some(result) = fixtures::read(&request.uri)
        {
            return Ok(result.into());
        }
        let Some(kept) = self.shared.kept.find(&request.uri) else {
            let told = format!(
                "nothing is kept at {}; files are kept for {} minutes",
                shown(&request.uri),
                blobs::LIFE.as_secs() / 60
            );
            return Err(ErrorData::resource_not_found(told, Some(json!({ "uri": request.uri }))));
        };
        let mut result = ReadResourceResult::new(vec![contents(kept)]);
        if is_modern(&context) {
            // What was written once never changes.
            let life = u64::try_from(blobs::LIFE.as_millis()).unwrap_or(u64::MAX);
            (result.ttl_ms, result.cache_scope) = (Some(life), Some(CacheScope::Private));
        }
        Ok(result.into())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut told = self.shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, peer| !peer.is_transport_closed());
        told.insert(self.connection.owner.clone(), context.peer);
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.intersection(&SubscriptionFilter::builder().tools_list_changed().build()))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.shelf.changes();
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

/// Whether the request is of the stateless protocol.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}
