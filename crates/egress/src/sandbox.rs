//! One sandbox's side of the gateway: what its tasks share, and their life and end. `serve` starts the tasks.
//!
//! ```text
//! Serving ──end()──▶ Closing ─────────────────────────────▶ Ended ──▶ no task is left
//!                    (what is still queued is decided,      (tasks are
//!                    for at most DRAIN_TIMEOUT)             cancelled)
//! ```
//!
//! Shares nothing with another sandbox but the gateway's threads, buffers and cache of resolved names. Its tasks are
//! bounded by its own limits, and all of them end when it does.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::connect::dialer::{Dialer, LookupSlots};
use crate::connect::relay::BufferPool;
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::{EgressRules, EgressTarget, Grant};
use crate::decide::socket_layout::SocketLayout;
use crate::decide::synthetic_addresses::{SyntheticAddresses, synthetic};
use crate::http::Api;
use crate::limits::{DescriptorBudget, Direction, EgressLimits, LimitValues, TokenBucket};
use crate::report::event::{NetworkEvent, NetworkKind, NetworkVia};
use crate::report::reporter::Reporter;
use crate::settings::{EgressJob, Settings};
use crate::sockets::socket_owner::Inspector;
use crate::traffic::Traffic;

/// Connections accepted each second; the rest wait in the kernel's backlog. This bounds the work that one sandbox can
/// cause.
const ACCEPTS_PER_SECOND: u64 = 2000;
/// The same for DNS queries.
const QUERIES_PER_SECOND: u64 = 2000;
/// Connections whose first bytes are read at once, each with a buffer; further ones wait.
const GREETINGS: usize = 64;
/// How long the end waits for attempts that the program made before its own end and that are not decided yet.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// How long the end waits for its tasks, which stop when they next wait. Afterwards none of them can report anything.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// One sandbox.
pub(crate) struct EgressSandbox {
    /// The policy's rules.
    pub rules: Arc<EgressRules>,
    /// Makes its connections to upstream.
    pub dialer: Dialer,
    /// Its limits, and what it uses of them.
    pub limits: Arc<EgressLimits>,
    /// Its share of the descriptors of this process.
    pub descriptors: DescriptorBudget,
    /// Takes its events.
    pub reporter: Reporter,
    /// Its share of the gateway's large buffers.
    pub buffers: Arc<BufferPool>,
    /// The gateway's settings.
    pub settings: Arc<Settings>,
    /// The API that is passed through.
    pub api: Option<Arc<Api>>,
    /// Limits how many connections have their first bytes read at once.
    pub greetings: Semaphore,
    /// Limits how fast connections are accepted.
    pub accepts: TokenBucket,
    /// Limits how fast queries are answered.
    pub queries: TokenBucket,
    /// The sockets of its namespace.
    pub layout: SocketLayout,
    init: Option<u32>,
    inspector: OnceLock<Inspector>,
    names: Mutex<SyntheticAddresses>,
    connections: AtomicU64,
    outbound: AtomicU64,
    handle: Handle,
    phase: watch::Sender<Phase>,
    tasks: Mutex<Tasks>,
    /// Signalled when a count of `tasks` goes down.
    tasks_changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Phase {
    Serving,
    /// What is still queued at the sockets is read for the last time.
    Closing,
    Ended,
}

#[derive(Debug, Default)]
struct Tasks {
    alive: usize,
    /// Sockets that are served, and connections about which no event has been reported.
    undecided: usize,
}

impl EgressSandbox {
    /// A sandbox without tasks.
    pub(crate) fn new(
        job: EgressJob,
        settings: Arc<Settings>,
        buffers: Arc<BufferPool>,
        descriptors: DescriptorBudget,
        lookup_slots: LookupSlots,
        handle: Handle,
    ) -> Arc<EgressSandbox> {
        let names = SyntheticAddresses::new(usize::try_from(job.limits.names).unwrap_or(usize::MAX));
        Arc::new(EgressSandbox {
            dialer: Dialer {
                resolve: Arc::clone(&settings.resolve),
                rules: Arc::clone(&job.rules),
                proxy: job.upstream_proxy.map(Arc::new),
                lookup_slots,
                descriptors: descriptors.clone(),
            },
            rules: job.rules,
            limits: EgressLimits::new(LimitValues::from(&job.limits)),
            descriptors,
            reporter: Reporter::new(job.sink),
            buffers,
            settings,
            api: job.api.map(Arc::new),
            greetings: Semaphore::new(GREETINGS),
            accepts: TokenBucket::new(ACCEPTS_PER_SECOND, ACCEPTS_PER_SECOND),
            queries: TokenBucket::new(QUERIES_PER_SECOND, QUERIES_PER_SECOND),
            layout: job.layout,
            init: job.init,
            inspector: OnceLock::new(),
            names: Mutex::new(names),
            connections: AtomicU64::new(0),
            outbound: AtomicU64::new(0),
            handle,
            phase: watch::Sender::new(Phase::Serving),
            tasks: Mutex::default(),
            tasks_changed: Condvar::new(),
        })
    }

    /// Sets the socket by which the process of a refused connection is looked up.
    pub(crate) fn set_inspector(&self, socket: OwnedFd) {
        self.inspector.get_or_init(|| Inspector::new(socket));
    }

    /// Runs the task of a socket. It must end by itself after `closing`, when it has read what is still queued.
    pub(crate) fn spawn_socket_task(self: &Arc<EgressSandbox>, task: impl Future<Output = ()> + Send + 'static) {
        let undecided = Undecided::new(self);
        self.spawn(async move {
            task.await;
            drop(undecided);
        });
    }

    /// Returns when the sockets are to be read for the last time: the program has ended, and something that it sent may
    /// still be queued.
    pub(crate) fn closing(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut phase = self.phase.subscribe();
        async move {
            // An error means that the sandbox itself is gone.
            drop(phase.wait_for(|phase| *phase >= Phase::Closing).await);
        }
    }

    /// Reports that a part of the gateway failed.
    pub(crate) fn failed(&self, why: &str) {
        let mut event = NetworkEvent::new(NetworkKind::Failed, NetworkVia::Connect);
        (event.reason, event.detail) = (Some(NetworkReason::Gateway), Some(why.to_owned()));
        self.reporter.report(event);
    }

    /// Runs a task that ends with the sandbox at the latest: then everything that it holds is dropped.
    pub(crate) fn spawn(self: &Arc<EgressSandbox>, task: impl Future<Output = ()> + Send + 'static) {
        let alive = AliveCount::new(self);
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

    /// Ends every task, and returns when none is left, or after `END_TIMEOUT`. What had arrived by then is decided first, so that the attempts
    /// of a program which ends at once are reported like any other's.
    pub(crate) fn end(&self) -> Traffic {
        self.phase.send_replace(Phase::Closing);
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let drained = self.tasks_changed.wait_timeout_while(tasks, DRAIN_TIMEOUT, |tasks| tasks.undecided > 0);
        let (tasks, waited) = drained.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            tracing::debug!(
                undecided = tasks.undecided,
                "connections are cut off before anything was reported of them"
            );
        }
        drop(tasks);
        self.phase.send_replace(Phase::Ended);
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let stopped = self.tasks_changed.wait_timeout_while(tasks, END_TIMEOUT, |tasks| tasks.alive > 0);
        let (tasks, waited) = stopped.unwrap_or_else(PoisonError::into_inner);
        let alive = tasks.alive;
        drop(tasks);
        if waited.timed_out() {
            tracing::warn!(alive, "tasks of the gateway did not stop in time");
            self.failed(&format!("{alive} connections did not stop in time: what they moved last is not counted"));
        }
        let refused = self.reporter.end();
        Traffic {
            connections: self.outbound.load(Ordering::Relaxed),
            refused,
            bytes_up: self.limits.moved(Direction::Up),
            bytes_down: self.limits.moved(Direction::Down),
        }
    }

    /// Whether it has ended: connections that have not ended by themselves are cut off.
    pub(crate) fn is_ended(&self) -> bool {
        *self.phase.borrow() == Phase::Ended
    }

    /// The number of the next connection, from 1.
    pub(crate) fn next_connection_number(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The process that made a connection, if it is found at once. The connection must not have been reset yet.
    pub(crate) fn process(&self, peer: SocketAddr, destination: SocketAddr) -> Option<u32> {
        self.inspector.get()?.process(self.init?, peer, destination)
    }

    /// Counts a connection to upstream.
    pub(crate) fn count_outbound(&self) {
        self.outbound.fetch_add(1, Ordering::Relaxed);
    }

    /// The names that were asked for, and their synthetic addresses.
    pub(crate) fn names(&self) -> MutexGuard<'_, SyntheticAddresses> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A target with a synthetic address replaced by the name that it stands for.
    ///
    /// # Errors
    /// `UnknownAddress`: a synthetic address that stands for no name.
    pub(crate) fn named_target(&self, target: &EgressTarget) -> Result<EgressTarget, EgressRefusal> {
        let EgressTarget::Address(address) = target else { return Ok(target.clone()) };
        let address = address.to_canonical();
        if !synthetic(address) {
            return Ok(EgressTarget::Address(address));
        }
        match self.names().lookup(address) {
            Some(name) => Ok(EgressTarget::Name(name.clone())),
            None => Err(EgressRefusal::because(NetworkReason::UnknownAddress, "an address that stands for no name")),
        }
    }

    /// Whether the rules allow a connection to a target that has no synthetic address.
    ///
    /// # Errors
    /// As [`EgressRules::connect`].
    pub(crate) fn decide(&self, target: &EgressTarget, port: u16) -> Result<Grant, EgressRefusal> {
        self.rules.connect(target, port)
    }

    /// The address that a connection was made to: `local`, but in tests, whose sockets are ordinary ones.
    pub(crate) fn destination(&self, local: SocketAddr) -> SocketAddr {
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        self.settings.destination.as_ref().map_or(local, |of| of(local))
    }
}

/// Counts a task, or a connection to upstream, until it is dropped: the sandbox's end waits for it.
pub(crate) struct AliveCount(Arc<EgressSandbox>);

impl AliveCount {
    /// Counts one more.
    pub(crate) fn new(sandbox: &Arc<EgressSandbox>) -> AliveCount {
        sandbox.tasks.lock().unwrap_or_else(PoisonError::into_inner).alive += 1;
        AliveCount(Arc::clone(sandbox))
    }
}

impl Drop for AliveCount {
    fn drop(&mut self) {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).alive -= 1;
        self.0.tasks_changed.notify_all();
    }
}

/// Counts an attempt of the program that no event has been reported about, or a socket at which one may be queued,
/// until it is dropped: the sandbox's end waits for it, for at most `DRAIN_TIMEOUT`.
pub(crate) struct Undecided(Arc<EgressSandbox>);

impl Undecided {
    /// Counts one more.
    pub(crate) fn new(sandbox: &Arc<EgressSandbox>) -> Undecided {
        sandbox.tasks.lock().unwrap_or_else(PoisonError::into_inner).undecided += 1;
        Undecided(Arc::clone(sandbox))
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).undecided -= 1;
        if *self.0.phase.borrow() != Phase::Serving {
            self.0.tasks_changed.notify_all();
        }
    }
}
