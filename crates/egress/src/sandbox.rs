//! One sandbox's side of the gateway: what its connections share, the life of its tasks, and their end.
//!
//! ```text
//! letters ─▶ sockets ─▶ accept ─▶ Client ─▶ resolver │ proxies │ API │ captured flow
//!                    └▶ datagrams, first packets
//! ```
//!
//! Nothing here is shared with another sandbox but the threads, the buffers and the cache of names. Whatever one does, its
//! tasks are bounded by its own limits, and every one of them ends when it does.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::event::{Event, Kind, Reason, Via};
use crate::gateway::{Job, Settings, Traffic};
use crate::http::Api;
use crate::layout::{Layout, Socket};
use crate::limits::{Bucket, Descriptors, Limits, Most, Way};
use crate::names::Names;
use crate::process::Inspector;
use crate::relay::Buffers;
use crate::reporter::Teller;
use crate::rules::{Grant, Refusal, Rules, Target};
use crate::upstream::{Lookups, Upstream};
use crate::{accept, attempts, datagrams, sandbox_sockets};

/// Connections that are accepted each second; the rest wait in the kernel's backlog. What one sandbox can make the host
/// work is bounded by this.
const ACCEPTS_PER_SECOND: u64 = 2000;
/// The same for queries.
const QUERIES_PER_SECOND: u64 = 2000;
/// Greetings that are being read at once, each with a buffer; further ones wait.
const GREETINGS: usize = 64;
/// How often what was counted is told.
const TICK: Duration = Duration::from_secs(1);
/// How long the end waits for what a program began before its own end and nobody has decided yet.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// How much at a socket is looked at then: a bound for a program that goes on.
const MOST_LAST: usize = 4096;

/// One sandbox.
pub struct Sandbox {
    /// What the policy says.
    pub rules: Arc<Rules>,
    /// The way out.
    pub upstream: Upstream,
    /// What may be used.
    pub limits: Arc<Limits>,
    /// What its connections may take of the process's.
    pub descriptors: Descriptors,
    /// Where events go.
    pub teller: Teller,
    /// The gateway's large buffers.
    pub buffers: Arc<Buffers>,
    /// What the gateway was started with.
    pub settings: Arc<Settings>,
    /// The API that is passed through.
    pub api: Option<Arc<Api>>,
    /// Greetings that may be read at once.
    pub greetings: Semaphore,
    /// Connections that may be accepted.
    pub accepts: Bucket,
    /// Queries that may be answered.
    pub queries: Bucket,
    init: Option<u32>,
    inspector: OnceLock<Inspector>,
    layout: Layout,
    names: Mutex<Names>,
    connections: AtomicU64,
    went_out: AtomicU64,
    handle: Handle,
    phase: watch::Sender<Phase>,
    tasks: Mutex<Tasks>,
    fewer: Condvar,
}

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Phase {
    Serving,
    /// What waits at the sockets is looked at for the last time.
    Closing,
    Ended,
}

#[derive(Debug, Default)]
struct Tasks {
    alive: usize,
    /// Sockets that are served, and connections of which nothing has been told.
    undecided: usize,
}

impl Sandbox {
    /// Nothing is served yet.
    pub fn new(
        job: Job,
        settings: Arc<Settings>,
        buffers: Arc<Buffers>,
        descriptors: Descriptors,
        lookups: Lookups,
        handle: Handle,
    ) -> Arc<Sandbox> {
        let names = Names::new(usize::try_from(job.limits.names).unwrap_or(usize::MAX));
        Arc::new(Sandbox {
            upstream: Upstream {
                resolve: Arc::clone(&settings.resolve),
                rules: Arc::clone(&job.rules),
                proxy: job.upstream_proxy.map(Arc::new),
                lookups,
                descriptors: descriptors.clone(),
            },
            rules: job.rules,
            limits: Limits::new(Most::from(&job.limits)),
            descriptors,
            teller: Teller::new(job.sink),
            buffers,
            settings,
            api: job.api.map(Arc::new),
            greetings: Semaphore::new(GREETINGS),
            accepts: Bucket::new(ACCEPTS_PER_SECOND, ACCEPTS_PER_SECOND),
            queries: Bucket::new(QUERIES_PER_SECOND, QUERIES_PER_SECOND),
            init: job.init,
            inspector: OnceLock::new(),
            layout: job.layout,
            names: Mutex::new(names),
            connections: AtomicU64::new(0),
            went_out: AtomicU64::new(0),
            handle,
            phase: watch::Sender::new(Phase::Serving),
            tasks: Mutex::default(),
            fewer: Condvar::new(),
        })
    }

    /// Receives the sockets and serves them.
    pub fn start(self: &Arc<Sandbox>, letters: OwnedFd) {
        let (sandbox, undecided) = (Arc::clone(self), Undecided::new(self));
        self.spawn(async move {
            let _undecided = undecided;
            match sandbox_sockets::receive(letters, sandbox.layout.sockets.len(), sandbox.closing()).await {
                Ok(sockets) => {
                    for (what, socket) in sandbox.layout.sockets.iter().zip(sockets) {
                        sandbox.serve(*what, socket);
                    }
                }
                Err(error) => sandbox.failed(&format!("the sandbox's sockets: {error}")),
            }
        });
        let sandbox = Arc::clone(self);
        self.spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                sandbox.teller.tick();
            }
        });
    }

    fn serve(self: &Arc<Sandbox>, what: Socket, socket: OwnedFd) {
        let sandbox = Arc::clone(self);
        match what {
            Socket::Resolver => self.until_looked_at(datagrams::serve(sandbox, socket)),
            Socket::Listener(port) => self.until_looked_at(accept::serve(sandbox, socket, port, false)),
            Socket::Redirect(port) => self.until_looked_at(accept::serve(sandbox, socket, port, true)),
            Socket::Attempts { ipv6 } => self.until_looked_at(attempts::serve(sandbox, socket, ipv6)),
            Socket::Inspector => {
                self.inspector.get_or_init(|| Inspector::new(socket));
            }
        }
    }

    /// Runs the task of a socket, which ends when it has had its last look.
    fn until_looked_at(self: &Arc<Sandbox>, task: impl Future<Output = ()> + Send + 'static) {
        let undecided = Undecided::new(self);
        self.spawn(async move {
            task.await;
            drop(undecided);
        });
    }

    /// Returns when sockets are to be looked at for the last time: the program has ended, and may have begun something
    /// that nobody has seen.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut phase = self.phase.subscribe();
        async move {
            // An error means that the sandbox itself is gone.
            drop(phase.wait_for(|phase| *phase >= Phase::Closing).await);
        }
    }

    /// Says that a part of the gateway failed.
    pub fn failed(&self, why: &str) {
        let mut event = Event::new(Kind::Failed, Via::Connect);
        (event.reason, event.detail) = (Some(Reason::Gateway), Some(why.to_owned()));
        self.teller.tell(event);
    }

    /// Runs a task that ends with the sandbox: everything it holds is dropped then.
    pub fn spawn(self: &Arc<Sandbox>, task: impl Future<Output = ()> + Send + 'static) {
        let alive = Alive::new(self);
        let mut phase = self.phase.subscribe();
        self.handle.spawn(async move {
            tokio::select! {
                biased;
                // An error means that the sandbox itself is gone.
                _ = phase.wait_for(|phase| *phase == Phase::Ended) => {}
                () = task => {}
            }
            drop(alive);
        });
    }

    /// Ends every task, and returns when none is left. What had come by then is decided first, so that a program which
    /// ends at once is told of like any other.
    pub fn end(&self) -> Traffic {
        self.phase.send_replace(Phase::Closing);
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let looked = self.fewer.wait_timeout_while(tasks, LAST_LOOK, |tasks| tasks.undecided > 0);
        let (tasks, waited) = looked.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            tracing::debug!(undecided = tasks.undecided, "connections are cut off before anything was told of them");
        }
        drop(tasks);
        self.phase.send_replace(Phase::Ended);
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.fewer.wait_while(tasks, |tasks| tasks.alive > 0).unwrap_or_else(PoisonError::into_inner));
        let refused = self.teller.end();
        Traffic {
            connections: self.went_out.load(Ordering::Relaxed),
            refused,
            bytes_up: self.limits.moved(Way::Up),
            bytes_down: self.limits.moved(Way::Down),
        }
    }

    /// Whether it is over: what has not ended by itself is cut off.
    pub fn is_ended(&self) -> bool {
        *self.phase.borrow() == Phase::Ended
    }

    /// The next connection's number.
    pub fn number(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The process that made a connection which has not been reset yet, if it is found at once.
    pub fn process(&self, peer: SocketAddr, destination: SocketAddr) -> Option<u32> {
        self.inspector.get()?.process(self.init?, peer, destination)
    }

    /// Counts a connection that goes out.
    pub fn goes_out(&self) {
        self.went_out.fetch_add(1, Ordering::Relaxed);
    }

    /// The names that were asked for.
    pub fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a program means by a target: a synthetic address is the name that it was given for.
    pub fn meant(&self, target: &Target) -> Result<Target, Refusal> {
        let Target::Address(address) = target else { return Ok(target.clone()) };
        let address = address.to_canonical();
        if !crate::names::synthetic(address) {
            return Ok(Target::Address(address));
        }
        match self.names().lookup(address) {
            Some(name) => Ok(Target::Name(name.clone())),
            None => Err(refusal(Reason::UnknownAddress, "an address that stands for no name")),
        }
    }

    /// May this be connected to?
    pub fn decide(&self, target: &Target, port: u16) -> Result<Grant, Refusal> {
        self.rules.connect(target, port)
    }

    /// Where a connection was really made to, in tests whose sockets are ordinary ones.
    pub fn destination(&self, local: SocketAddr) -> SocketAddr {
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        self.settings.destination.as_ref().map_or(local, |of| of(local))
    }
}

/// What waits at a socket that does not block, whether or not the runtime has heard of it.
pub fn waiting<T>(mut next: impl FnMut() -> io::Result<T>) -> impl Iterator<Item = T> {
    // Another error is about one of them.
    let some = move || Some(next()).filter(|came| !matches!(came, Err(e) if e.kind() == io::ErrorKind::WouldBlock));
    std::iter::from_fn(some).take(MOST_LAST).filter_map(Result::ok)
}

/// A refusal of the gateway's own, which no line of the policy asked for.
pub fn refusal(reason: Reason, why: &str) -> Refusal {
    Refusal { reason, rule: None, detail: Some(why.to_owned()) }
}

/// Fills the name or the address in.
pub fn about(event: &mut Event, target: &Target, port: u16) {
    match target {
        Target::Name(name) => event.host = Some(name.as_str().to_owned()),
        Target::Address(address) => event.address = Some(*address),
    }
    event.port = Some(port);
}

/// An event that something was refused, or failed upstream.
pub fn refused(via: Via, target: Option<&Target>, port: u16, refusal: Refusal, address: Option<IpAddr>) -> Event {
    let kind = match refusal.reason {
        Reason::NotResolved | Reason::Unreachable | Reason::UpstreamTimedOut | Reason::Reset | Reason::Gateway => {
            Kind::Failed
        }
        _ => Kind::Refused,
    };
    let mut event = Event::new(kind, via);
    if let Some(target) = target {
        about(&mut event, target, port);
    }
    event.port = Some(port);
    event.address = address.or(event.address);
    (event.reason, event.rule, event.detail) = (Some(refusal.reason), refusal.rule, refusal.detail);
    event
}

/// A task of a sandbox that has not ended, or a connection to upstream.
pub struct Alive(Arc<Sandbox>);

impl Alive {
    /// One more.
    pub fn new(sandbox: &Arc<Sandbox>) -> Alive {
        sandbox.tasks.lock().unwrap_or_else(PoisonError::into_inner).alive += 1;
        Alive(Arc::clone(sandbox))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).alive -= 1;
        self.0.fewer.notify_all();
    }
}

/// Something that has come from the program, or can, and has not been told of.
pub struct Undecided(Arc<Sandbox>);

impl Undecided {
    /// One more.
    pub fn new(sandbox: &Arc<Sandbox>) -> Undecided {
        sandbox.tasks.lock().unwrap_or_else(PoisonError::into_inner).undecided += 1;
        Undecided(Arc::clone(sandbox))
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).undecided -= 1;
        if *self.0.phase.borrow() != Phase::Serving {
            self.0.fewer.notify_all();
        }
    }
}
