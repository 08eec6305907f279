//! The calls to an engine, one after another: a connection of their own for each, a bound on the time of each.
//!
//! Owns the thread on which the connections live, so that any thread may call, also one that serves an async runtime of
//! its own. Says what came back or what went wrong; decides nothing.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::service::PodmanService;
use crate::failure::{FailedStep, Failure};
use cofferdam_policy::text::escape;

/// For a question whose answer the engine has.
pub(super) const ASK: Duration = Duration::from_secs(20);
/// For work of the engine's: making, starting and removing a container on a machine that is busy.
pub(super) const WORK: Duration = Duration::from_secs(120);
/// The header that says who wants an image of a registry.
const AUTH: &str = "x-registry-auth";
/// What an answer may be long.
const ANSWER_BYTES: usize = 16 << 20;
/// Each call has a bound here, which is shorter.
const NEVER: u64 = 7 * 24 * 3600;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// The engine says no.
    #[error("{}", escape(.1.as_bytes()))]
    Said(u16, String),
    /// It cannot be reached.
    #[error("cannot reach {}: {}", .0.display(), .1)]
    Unreachable(PathBuf, std::io::Error),
    /// It does not answer.
    #[error("no answer within {} seconds", .0.as_secs())]
    Late(Duration),
    /// What it answers cannot be understood, or the connection broke.
    #[error("{}", escape(.0.as_bytes()))]
    Broken(String),
}

impl Trouble {
    /// The engine does not know what was named.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Trouble::Said(404, _))
    }

    /// The engine says that it is so already, or is being done.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Trouble::Said(304 | 409, _))
    }

    /// In a failure's words.
    pub(super) fn failure(&self, step: FailedStep, doing: &str, hint: &str) -> Failure {
        let said = format!("{doing}: {self}");
        match self {
            Trouble::Said(..) => Failure::new(step, said).hint(hint),
            Trouble::Unreachable(..) | Trouble::Late(_) | Trouble::Broken(_) => {
                Failure::new(FailedStep::Engine, said).hint("look whether the engine still runs, and start it again")
            }
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error {
            Error::DockerResponseServerError { status_code, message } => Trouble::Said(status_code, message),
            Error::DockerStreamError { error } => Trouble::Said(500, error),
            Error::IOError { err } => Trouble::Broken(err.to_string()),
            Error::HyperResponseError { err } => {
                let cause = std::error::Error::source(&err).map(|cause| format!(": {cause}")).unwrap_or_default();
                Trouble::Broken(format!("{err}{cause}"))
            }
            other => Trouble::Broken(other.to_string()),
        }
    }
}

/// The answer to a ping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ping {
    /// It is Podman's service.
    pub podman: bool,
    /// Version of its Docker interface.
    pub api: String,
    /// What the program that serves says it is, with its version.
    pub server: String,
}

/// A thread with an async runtime of its own; ends when this is dropped.
#[derive(Debug)]
struct Worker {
    handle: Handle,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Worker {
    fn start() -> std::io::Result<Worker> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::Builder::new().name("engine".into()).spawn(move || drop(runtime.block_on(stopped)))?;
        Ok(Worker { handle, _stop: stop })
    }
}

/// An engine's API.
#[derive(Debug, Clone)]
pub(super) struct EngineClient {
    socket: Arc<Path>,
    docker: Docker,
    worker: Arc<Worker>,
    /// The engine itself, where it is a child of ours.
    service: Option<Arc<PodmanService>>,
}

impl EngineClient {
    /// Of the engine that listens on this socket. Connects to nothing yet.
    pub(super) fn new(socket: &Path, service: Option<Arc<PodmanService>>) -> Result<EngineClient, Failure> {
        let hint = "more threads and open files have to be allowed here: ulimit -u, ulimit -n";
        let fail = |message: String| Failure::new(FailedStep::Engine, message).hint(hint);
        let worker = Worker::start().map_err(|error| fail(format!("cannot start a thread for the engine: {error}")))?;
        let path: Arc<Path> = socket.into();
        let to = path.clone();
        let transport = move |request: BollardRequest| {
            let to = to.clone();
            async move { send(&to, request).await.map_err(from_io) }
        };
        let docker =
            Docker::connect_with_custom_transport(transport, Some("http://localhost"), NEVER, API_DEFAULT_VERSION)
                .map_err(|error| fail(error.to_string()))?;
        Ok(EngineClient { socket: path, docker, worker: Arc::new(worker), service })
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Does one call and waits for it, no longer than `bound`.
    pub(super) fn call<T, F>(&self, bound: Duration, work: impl FnOnce(Docker) -> F) -> Result<T, Trouble>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let work = work(self.docker.clone());
        self.wait(bound, async move { work.await.map_err(Trouble::from) })
    }

    /// The JSON at a path of the API, as it comes: what only is compared needs no types, which differ between versions.
    pub(super) fn json(&self, path: String) -> Result<Value, Trouble> {
        let socket = self.socket.clone();
        self.wait(ASK, async move { json(&socket, &path).await })
    }

    /// What the engine says of itself at the lowest price; Podman needs a fifth of a second for anything more.
    pub(super) fn ping(&self) -> Result<Ping, Trouble> {
        let socket = self.socket.clone();
        self.wait(ASK, async move {
            let request = Request::get("/_ping").body(Empty::<Bytes>::new());
            let response = send(&socket, request.map_err(|error| Trouble::Broken(error.to_string()))?).await?;
            if !response.status().is_success() {
                return Err(Trouble::Said(response.status().as_u16(), "it does not answer to a ping".into()));
            }
            let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
            Ok(Ping {
                podman: header("Libpod-Api-Version").is_some(),
                api: header("Api-Version").unwrap_or_default(),
                server: header("Server").unwrap_or_default(),
            })
        })
    }

    fn wait<T: Send + 'static>(
        &self,
        bound: Duration,
        work: impl Future<Output = Result<T, Trouble>> + Send + 'static,
    ) -> Result<T, Trouble> {
        self.reachable()?;
        let (done, came) = sync_channel(1);
        let task = self.worker.handle.spawn(async move { drop(done.send(work.await)) });
        match came.recv_timeout(bound) {
            Ok(result) => result,
            Err(error) => {
                task.abort();
                Err(match error {
                    RecvTimeoutError::Timeout => Trouble::Late(bound),
                    RecvTimeoutError::Disconnected => Trouble::Broken("the thread of the engine's calls ended".into()),
                })
            }
        }
    }

    /// Starts work that goes on beside the caller.
    pub(super) fn beside<F>(&self, work: impl FnOnce(Docker, Arc<Path>) -> F) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.worker.handle.spawn(work(self.docker.clone(), self.socket.clone())).abort_handle()
    }

    /// Whether somebody listens, told apart from what an engine says: a connection of no use otherwise costs some
    /// microseconds. An engine of ours that had nothing to do and ended is started again.
    fn reachable(&self) -> Result<(), Trouble> {
        if let Some(service) = &self.service {
            return service.ensure().map_err(|error| Trouble::Unreachable(self.socket.to_path_buf(), error));
        }
        std::os::unix::net::UnixStream::connect(&*self.socket)
            .map(drop)
            .map_err(|error| Trouble::Unreachable(self.socket.to_path_buf(), error))
    }
}

fn from_io(trouble: Trouble) -> Error {
    Error::IOError { err: std::io::Error::other(trouble.to_string()) }
}

/// One request over one connection.
async fn send<B>(socket: &Path, request: Request<B>) -> Result<Response<Incoming>, Trouble>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let broken = |error: hyper::Error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        Trouble::Broken(format!("{error}{cause}"))
    };
    let stream =
        UnixStream::connect(socket).await.map_err(|error| Trouble::Unreachable(socket.to_path_buf(), error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // What becomes of the connection is told by the request.
    tokio::spawn(async move { drop(connection.await) });
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().map_err(|_| Trouble::Broken(format!("{path} is no path")))?;
    parts.headers.insert(HOST, HeaderValue::from_static("localhost"));
    if let Some(given) = parts.headers.get_mut(AUTH) {
        // bollard writes it in the usual base64, and engines read that of addresses.
        let bytes = given.as_bytes().iter().map(|byte| match byte {
            b'+' => b'-',
            b'/' => b'_',
            other => *other,
        });
        let bytes: Vec<u8> = bytes.collect();
        *given = HeaderValue::from_bytes(&bytes).map_err(|_| Trouble::Broken("credentials are no header".into()))?;
        given.set_sensitive(true);
    }
    sender.send_request(Request::from_parts(parts, body)).await.map_err(broken)
}

/// See [`EngineClient::json`].
pub(super) async fn json(socket: &Path, path: &str) -> Result<Value, Trouble> {
    let request = Request::get(path).body(Empty::<Bytes>::new()).map_err(|error| Trouble::Broken(error.to_string()))?;
    let response = send(socket, request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES);
    let bytes = body.collect().await.map_err(|error| Trouble::Broken(error.to_string()))?.to_bytes();
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| Trouble::Broken(format!("{path}: {error}")))?;
    if status.is_success() {
        return Ok(value);
    }
    Err(Trouble::Said(status.as_u16(), value["message"].as_str().unwrap_or("no reason given").to_owned()))
}
