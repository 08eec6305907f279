//! The gateway of this process: its threads, and the sandboxes that it serves.
//!
//! There is at most one, started by the first sandbox that needs it, so that callers without one pay nothing. A child
//! that was forked without exec has the memory and not the threads: it starts its own, and never touches its parent's.

use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use cofferdam_confine::signals;
use cofferdam_policy::{Network, NetworkLimits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::event::Sink;
use crate::http::{Api, ApiError};
use crate::layout::Layout;
use crate::limits::Descriptors;
use crate::name::Host;
use crate::relay::Buffers;
use crate::resolve::{Resolve, System};
use crate::rules::Rules;
use crate::sandbox::Sandbox;
use crate::upstream::{Lookups, Proxy};

/// Most threads, however many processors there are: what they do is waiting and copying.
const MOST_WORKERS: usize = 4;
/// Most large buffers, 256 KiB each: as many connections stream at full speed, others more slowly.
const BUFFERS: usize = 32;
/// Most names that are resolved at once. What they take is not counted one by one: several descriptors each, and more
/// where a name server does not answer.
const LOOKUPS: usize = 24;
/// Descriptors that are left to them and to the rest of the process.
const KEPT_DESCRIPTORS: usize = 128 + 6 * LOOKUPS;
/// What connections may take however little there is: then accepting fails, and is told.
const LEAST_DESCRIPTORS: usize = 64;
/// More than any gateway needs.
const MOST_DESCRIPTORS: u64 = 1 << 20;

/// What a sandbox may reach and whom to tell.
#[derive(Clone)]
pub struct Job {
    /// The policy's rules.
    pub rules: Arc<Rules>,
    /// What it may use in all.
    pub limits: NetworkLimits,
    /// The sockets of its namespace, in the order in which their descriptors come.
    pub layout: Layout,
    /// The API that is passed through to it.
    pub api: Option<Api>,
    /// The host's own proxy, through which everything goes.
    pub upstream_proxy: Option<Proxy>,
    /// Where its events go. Called from the gateway's threads, one event at a time; it must not block, and must not end
    /// the sandbox.
    pub sink: Sink,
    /// Process id of the sandbox's first process, as this process sees it: whose descendants are asked which of them
    /// made a refused connection. Without it events have no process.
    pub init: Option<u32>,
}

impl Job {
    /// What a policy's network asks for. `rules` are those compiled of it.
    ///
    /// # Errors
    /// The API cannot be passed through.
    pub fn new(
        network: &Network,
        rules: Arc<Rules>,
        layout: Layout,
        sink: Sink,
        init: Option<u32>,
    ) -> Result<Job, ApiError> {
        let api = network.api.as_ref().map(|api| Api::new(&api.url)).transpose()?;
        let upstream_proxy = network.upstream_proxy.as_ref().map(|url| Proxy {
            host: Host::of_policy(&url.host),
            port: url.port,
            credentials: url.credentials.clone(),
        });
        Ok(Job { rules, limits: network.limits, layout, api, upstream_proxy, sink, init })
    }
}

/// What a sandbox sent and received in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Connections that went out.
    pub connections: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Bytes from the sandbox.
    pub bytes_up: u64,
    /// Bytes to the sandbox.
    pub bytes_down: u64,
}

/// What a gateway is started with.
pub struct Settings {
    /// What resolves names.
    pub resolve: Arc<dyn Resolve>,
    /// Where a connection was made to, given the address that it arrived at. For tests, whose sockets are not those of a
    /// namespace in which every address is local.
    pub destination: Option<Arc<dyn Fn(SocketAddr) -> SocketAddr + Send + Sync>>,
    /// How long a program may take to say what it speaks, once it has begun.
    pub greeting: Duration,
    /// How long a connection may be silent both ways.
    pub idle: Duration,
    /// Descriptors that connections may take; left out, what the process's limit leaves.
    pub descriptors: Option<usize>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            resolve: Arc::new(System::default()),
            destination: None,
            greeting: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            descriptors: None,
        }
    }
}

/// A gateway: a pool of threads and what its sandboxes share.
pub struct Gateway {
    runtime: Runtime,
    owner: u32,
    settings: Arc<Settings>,
    buffers: Buffers,
    descriptors: Descriptors,
    lookups: Lookups,
}

/// Its value in a forked child is the parent's, whose threads do not exist there: to drop it would wait for them.
static GATEWAY: Mutex<Option<ManuallyDrop<Arc<Gateway>>>> = Mutex::new(None);

impl Gateway {
    /// This process's gateway, started when it is the first call.
    ///
    /// # Errors
    /// No thread or no epoll descriptor is to be had.
    pub fn shared() -> io::Result<Arc<Gateway>> {
        if let Some(gateway) = Gateway::running() {
            return Ok(gateway);
        }
        // Not under the lock: a child forked meanwhile would find it held for ever.
        let new = Arc::new(Gateway::with(Settings::default())?);
        let mut shared = GATEWAY.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = shared.as_ref().filter(|g| g.owner == new.owner) {
            return Ok(Arc::clone(earlier));
        }
        *shared = Some(ManuallyDrop::new(Arc::clone(&new)));
        Ok(new)
    }

    fn running() -> Option<Arc<Gateway>> {
        let shared = GATEWAY.lock().unwrap_or_else(PoisonError::into_inner);
        shared.as_ref().filter(|g| g.owner == std::process::id()).map(|g| Arc::clone(g))
    }

    /// One beside that of the process.
    ///
    /// # Errors
    /// As those of `shared`.
    pub fn with(settings: Settings) -> io::Result<Gateway> {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_WORKERS);
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(workers).thread_name("egress").on_thread_start(signals::block).enable_all();
        let runtime = runtime.build()?;
        let room = settings.descriptors.unwrap_or_else(room);
        Ok(Gateway {
            runtime,
            owner: std::process::id(),
            settings: Arc::new(settings),
            buffers: Buffers::new(BUFFERS),
            descriptors: Descriptors::new(room),
            lookups: Lookups::new(LOOKUPS),
        })
    }

    /// Serves a sandbox: receives the descriptors of its sockets from `letters` (SEQPACKET, SCM_RIGHTS, any number in
    /// each letter) in the order of the job's layout, and everything that connects to them. Returns at once.
    pub fn attach(&self, letters: OwnedFd, job: Job) -> Attached {
        let (settings, buffers) = (Arc::clone(&self.settings), Arc::new(self.buffers.part()));
        let (descriptors, lookups) = (self.descriptors.part(), self.lookups.part());
        let sandbox = Sandbox::new(job, settings, buffers, descriptors, lookups, self.runtime.handle().clone());
        sandbox.start(letters);
        Attached { sandbox: Some(ManuallyDrop::new(sandbox)), owner: self.owner }
    }
}

/// Descriptors that the soft limit leaves, now, but for those that the rest of the process may want.
fn room() -> usize {
    let soft = getrlimit(Resource::Nofile).current.map_or(MOST_DESCRIPTORS, |soft| soft.min(MOST_DESCRIPTORS));
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    usize::try_from(soft).unwrap_or(usize::MAX).saturating_sub(open + KEPT_DESCRIPTORS).max(LEAST_DESCRIPTORS)
}

/// Raises the soft limit of descriptors to the hard one, and returns it: for a program that is its process's only one, at
/// its start. A gateway never does so by itself, because it lives in the processes of others, and a limit belongs to the
/// process: code there may use select(2), which overflows from descriptor 1024 on, and what that process starts inherits
/// it. Sandboxes are not concerned: each has the limit of its policy.
///
/// # Errors
/// setrlimit(2).
pub fn raise_descriptor_limit() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum)
}

/// The repeats of a sandbox's refusals, which are counted for a while before they are told.
#[derive(Debug)]
pub struct Repeats(Weak<Sandbox>);

impl Repeats {
    /// Has what was refused until now told at once. Once the sandbox has ended, all has been told.
    pub fn catch_up(&self) {
        if let Some(sandbox) = self.0.upgrade() {
            sandbox.teller.catch_up();
        }
    }
}

/// A sandbox that is served. Dropping it ends its connections.
pub struct Attached {
    /// In a forked child it is the parent's to end.
    sandbox: Option<ManuallyDrop<Arc<Sandbox>>>,
    owner: u32,
}

impl Attached {
    /// Closes everything at once, and returns when no event can follow any more. In a process forked from the one that
    /// attached it, this does nothing.
    pub fn end(mut self) -> Traffic {
        self.close()
    }

    /// What tells of repeats before their time, from any thread; it keeps nothing alive.
    pub fn repeats(&self) -> Repeats {
        Repeats(self.sandbox.as_ref().map_or_else(Weak::new, |sandbox| Arc::downgrade(sandbox)))
    }

    fn close(&mut self) -> Traffic {
        match self.sandbox.take() {
            Some(sandbox) if self.owner == std::process::id() => ManuallyDrop::into_inner(sandbox).end(),
            _ => Traffic::default(),
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.close();
    }
}
